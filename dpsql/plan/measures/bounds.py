"""Bounds of measures: how much one unit may add to one group, from the policy, or as the query states them.

Those of coupled measures have finer steps, and averages are around the middle of the range of their rows. A unit beyond
a bound of a set has a weight below 1, which is rounded down to whole steps. Steps are as fine as the largest number of
them allows, so that what is lost by rounding is far below the noise (`maths.md` 10.4).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil, inf, isfinite

from dpsql.dialects import write_name
from dpsql.errors import Refusal
from dpsql.plan.measures.distances import count_half
from dpsql.plan.measures.distinct import OPTION as ITEMS_OPTION
from dpsql.plan.measures.distinct import bound_items, refuse_stray_option
from dpsql.plan.measures.expression_bounds import ColumnTotals, ExpressionBounds, Number, Totals, bound_expression
from dpsql.plan.measures.rows import Columns, Rows, TableRows, count_rows, list_scans_of_rows
from dpsql.policy import ColumnBounds, PrivateTable
from dpsql.policy.starter import spell
from dpsql.sql.ir.measures import MOST_STEPS, SPREADS, Aggregate, ContributionRange, Measure
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.ir.tree import NULL, ColumnRef, Literal
from dpsql.terms import Terms, read_whole_number

_OPTION = "max_rows_contributed"
_LARGEST, _SMALLEST = 10**18, Fraction(1, 10**18)  # of the bounds of a sum
_SOME_ROWS, _SOME_MOST = 20, 500
_ASSUMED = ColumnTotals(Fraction(500), Fraction(0), Fraction(0), Fraction(500))  # of a column without bounds, in hints
_NAME_LENGTH = len("count")


def bound_measures(query: PrivateQuery, terms: Terms) -> PrivateQuery:
    """Return the query with the bounds of its measures; refuse a measure that has none."""
    counts_rows = bool(query.quantiles) or any(measure.aggregate is Aggregate.ROWS for measure in query.measures)
    option = query.clause.options.get(_OPTION)
    if option is not None and not counts_rows:
        reason = f"{_OPTION} is for COUNT(*), COUNT(x), AVG and quantiles, and the query has none of them."
        raise Refusal("option", reason, hint="Leave it out.", place=option.place)
    if ITEMS_OPTION in query.clause.options:
        refuse_stray_option(query)
    if query.counts_units_alone:
        return query
    ranks_units = query.measures[0].aggregate is Aggregate.UNITS
    wanted = max(terms.min_units, *(terms.tables[name].min_units or 1 for name in query.tables))
    if query.clause.shape == "top" and not ranks_units and wanted > 1:
        who = "policy" if terms.min_units == 1 else "query"
        reason = f"The {who} wants groups of at least so many units here, which another ranking cannot promise."
        hint = f"Select COUNT(DISTINCT {query.unit_name}) first, or order by it."
        raise Refusal("min-units", reason, hint=hint, place=query.clause.place)
    bounding = Bounding(query, terms.tables)
    distances = {at for output in query.outputs if output.statistic for at in (output.measure, *output.others)}
    if distances:
        from dpsql.plan.measures.spread import RowRanges

        ranges = RowRanges(query, terms.tables, bounding.tables, bounding.table_rows, bounding.find_totals)
    measures = tuple(
        ranges.put(each) if at in distances else bounding.bound(each) for at, each in enumerate(query.measures)
    )
    _check_ranking(query, measures[0])
    return refine_coupled(replace(query, measures=measures))


def _check_ranking(query: PrivateQuery, measure: Measure) -> None:
    """Refuse to rank groups of an unknown domain by sums that can be below 0, which no threshold covers."""
    if measure.bounds is None or measure.bounds.low >= 0 or query.clause.shape != "top" or query.domain is not None:
        return
    reason = "Sums that can be below 0 are released for totals and for known groups alone, or beside what ranks."
    hint = (
        f"Rank by COUNT(DISTINCT {write_name(query.unit_name)}), write ALL PRIVATE WITH (domain = ...) for known "
        "groups, or PRIVATE for a total."
    )
    raise Refusal("bounds", reason, hint=hint, place=query.clause.place)


@dataclass(slots=True)
class Bounding:
    """Bounds of the measures of one query; `policy` has the private tables by name.

    `tables` are those that the query names, by path: several names may have the same. `table_rows` are the rows of one
    unit in each, and `rows` those that FROM can make in one group, in which the `grouped` columns have one value.
    """

    query: PrivateQuery
    policy: Mapping[str, PrivateTable]
    tables: dict[tuple[str, ...], list[tuple[str, PrivateTable]]] = field(init=False)
    table_rows: dict[tuple[str, ...], TableRows] = field(init=False)
    rows: Rows = field(init=False)
    grouped: Columns = field(init=False)

    def __post_init__(self) -> None:
        units = dict(self.query.protected)
        self.tables, self.table_rows = {}, {}
        for path, name in self.query.private_tables:
            if name in units:
                self.tables.setdefault(path, []).append((name, self.policy[name]))
        for path, named in self.tables.items():
            bounds = [inf if table.bounds.rows is None else table.bounds.rows for _, table in named]
            self.table_rows[path] = TableRows(named[0][0], max(bounds), units[named[0][0]])
        keys = self.query.keys
        self.grouped = frozenset((key.relation, key.name) for key in keys if isinstance(key, ColumnRef))
        self.rows = count_rows(self.query.body.source, self.table_rows, grouped=self.grouped)

    def bound(self, measure: Measure) -> Measure:
        """Return a measure with its bounds and the range of its rows."""
        if measure.aggregate is Aggregate.UNITS:
            return measure
        if measure.stated is not None:
            return _apply_stated(measure)
        if measure.aggregate is Aggregate.ROWS:
            return replace(measure, bounds=ContributionRange(0, self._find_rows(measure)))
        if measure.aggregate is Aggregate.ITEMS:
            return bound_items(measure, self.query, policy=self.policy, rows=self.rows.total)
        return self._bound_sum(measure)

    def _find_rows(self, measure: Measure) -> int:
        """Return how many rows of one unit count in one group: as many as FROM can make, or fewer if asked for."""
        if self.rows.total == inf:
            reason = "The policy does not say how many rows of one unit count in a group, which COUNT(*) and AVG need."
            hint = f"{_propose_stated(measure, most=self._find_most(measure))} {self.propose_rows()}"
            if _is_of_spread(measure):  # which has no bounds of rows in the query
                reason = "The policy does not say how many rows of one unit count in a group, which a spread needs."
                hint = self.propose_rows().removeprefix("Or ").capitalize()
            raise Refusal("no-bounds", reason, hint=hint, place=measure.words or self.query.clause.place)
        if self.rows.total > MOST_STEPS:
            reason = (
                f"By the rows of its tables one unit can have {self.rows.total:,} rows here: a join multiplies them."
            )
            hint = "Join fewer rows of one unit." if _is_of_spread(measure) else _propose_stated(measure)
            raise Refusal("no-bounds", reason, hint=hint, place=measure.words or self.query.clause.place)
        most = int(self.rows.total)
        asked = read_whole_number(self.query.clause.options.get(_OPTION), _OPTION, bounds=(1, most))
        return most if asked is None else asked

    def _find_most(self, measure: Measure) -> int:
        """Return an upper bound of a mean that suits a hint: that of a row where it is known, 1 for a share."""
        same = (each for each in self.query.measures if each.words == measure.words and each.argument is not None)
        found = [self._bound_argument(each, Totals(self.table_rows, self.find_totals)).high for each in same]
        return max(1, ceil(found[0])) if found and isfinite(found[0]) else _SOME_MOST

    def _bound_sum(self, measure: Measure) -> Measure:
        """Return a sum with the bounds that follow from those of the columns in it."""
        assert measure.argument is not None  # noqa: S101 - of every sum
        found = self._bound_argument(measure, Totals(self.table_rows, self.find_totals))
        least, most = found.least, found.most
        if not (isinstance(least, Fraction) and isinstance(most, Fraction)):
            raise self._refuse(measure)
        if least == most == 0:  # NULL or 0 in every row
            most = Fraction(1)
        low, high = max(found.low, least), min(found.high, most)
        if max(most, -least) > _LARGEST or most - least < _SMALLEST:
            reason = f"By its bounds one unit can add {float(least):.3g} to {float(most):.3g}, which is out of range."
            raise Refusal("no-bounds", reason, hint=_propose_stated(measure), place=measure.words)
        assert isinstance(low, Fraction) and isinstance(high, Fraction)  # noqa: S101, PT018 - between finite bounds
        is_narrower = low > least or high < most
        return replace(
            measure,
            bounds=ContributionRange.of_values(least, most, type_=measure.argument.type),
            row_range=(low, high) if is_narrower else None,
        )

    def find_row_range(self, measure: Measure) -> tuple[Number, Number]:
        """Return between which numbers one row's value of a sum is, infinite where that does not follow."""
        found = self._bound_argument(measure, Totals(self.table_rows, self.find_totals))
        return found.low, found.high

    def _bound_argument(self, measure: Measure, totals: Totals) -> ExpressionBounds:
        argument = measure.argument or Literal(None, NULL)
        totals = replace(totals, grouped=self.grouped)
        return bound_expression(argument, self.query.body, totals=totals, condition=measure.condition)

    def find_totals(self, path: tuple[str, ...], column: str) -> ColumnTotals | None:
        """Return the totals of a column of a private table, None without bounds."""
        known = [(table.bounds.rows, table.bounds.find(column)) for _, table in self.tables.get(path, ())]
        found = [_read_totals(rows, bounds) for rows, bounds in known if bounds is not None]
        if not found or len(found) < len(known):
            return None
        return ColumnTotals(
            max(each.positive for each in found),
            max(each.negative for each in found),
            min(each.low for each in found),
            max(each.high for each in found),
        )

    def _refuse(self, measure: Measure) -> Refusal:
        """Return the refusal of a sum without bounds, with the statement and the line of a policy that give it some."""
        missing: dict[tuple[str, str], ColumnTotals] = {}  # columns whose bounds would be enough, if these are there

        def find(path: tuple[str, ...], column: str) -> ColumnTotals | None:
            known = self.find_totals(path, column)
            if known is None and path in self.tables:
                known = missing[self.table_rows[path].name, column] = _ASSUMED
            return known

        hint = _propose_stated(measure)
        reason = "How much one unit may add to this does not follow from the bounds of the policy."
        found = self._bound_argument(measure, Totals(self.table_rows, find))
        if isfinite(found.least) and isfinite(found.most):
            (table, column), *_ = missing
            reason = f"The policy has no bounds of {spell(column)}, which this adds up."
            line = f"{spell(column)} = {{max = 500}}"
            hint = f"{hint} Or ask the curator to add {line}, or another number, under [tables.{spell(table)}.bounds]."
        elif not missing:
            rows = {path: replace(each, rows=_SOME_ROWS) for path, each in self.table_rows.items() if each.rows == inf}
            found = self._bound_argument(measure, Totals({**self.table_rows, **rows}, find))
            if isfinite(found.least) and isfinite(found.most):
                reason = (
                    "The policy does not say how many rows of one unit count in a group, which bounds of this need."
                )
                hint = f"{hint} {self.propose_rows()}"
        return Refusal("no-bounds", reason, hint=hint, place=measure.words or self.query.clause.place)

    def propose_rows(self) -> str:
        """Return a hint with the line of a policy that sets the rows of a table without them."""
        paths = [scan.path for scan in list_scans_of_rows(self.query.body.source)]
        missing = [self.table_rows[path].name for path in paths if path in self.table_rows]
        name = next((name for name in missing if self.policy[name].bounds.rows is None), self.query.table)
        return f"Or ask the curator to add rows = 20, or another number, under [tables.{spell(name)}.bounds]."


def _read_totals(rows: int | None, bounds: ColumnBounds) -> ColumnTotals:
    """Return the totals of a column by its bounds, and by those of each of so many rows."""
    most, least = (inf, -inf) if bounds.max is None else (bounds.max, bounds.min or Fraction(0))
    low, high = bounds.each or (least, most)
    count = inf if rows is None else Fraction(rows)
    positive, negative = max(high, Fraction(0)), max(-low, Fraction(0))
    return ColumnTotals(
        min(most, positive * count if positive else positive),
        min(-least, negative * count if negative else negative),
        max(low, least),
        min(high, most),
    )


def _apply_stated(measure: Measure) -> Measure:
    """Return a measure with the bounds that the query states, which are then no part of it."""
    stated = measure.stated
    assert stated is not None  # noqa: S101 - of the caller
    if measure.aggregate in {Aggregate.ROWS, Aggregate.ITEMS}:
        return replace(measure, bounds=ContributionRange(0, int(stated.high)), stated=None)
    least, most = min(stated.low, Fraction(0)), max(stated.high, Fraction(0))
    type_ = None if measure.argument is None else measure.argument.type
    return replace(
        measure,
        bounds=ContributionRange.of_values(least, most, type_=type_),
        row_range=(stated.low, stated.high) if stated.of_mean else None,
        stated=None,
    )


def _is_of_spread(measure: Measure) -> bool:
    """Say whether a number of rows is that of a variance or covariance, by the words of the analyst."""
    words = "" if measure.words is None else measure.words.fragment
    return words.partition("(")[0].strip().lower() in SPREADS


def _propose_stated(measure: Measure, *, most: int = _SOME_MOST) -> str:
    """Return a hint with the measure as the query has it, and with bounds."""
    example = "COUNT(*)" if measure.aggregate is Aggregate.ROWS else "SUM(x)"
    words = example if measure.words is None else " ".join(measure.words.fragment.split())
    is_mean = words[:_NAME_LENGTH].lower().startswith("avg")
    is_count = measure.aggregate is Aggregate.ROWS and not is_mean
    meaning = "the rows of one unit that count" if is_count else "what one unit adds to a group"
    meaning = "the mean of one unit" if is_mean else meaning
    bounds = f"contribution_bounds_per_group => (0, {_SOME_ROWS if is_count else most})"
    return f"Write {words.removesuffix(')')}, {bounds}), with your own bounds of {meaning}."


def refine_coupled(query: PrivateQuery) -> PrivateQuery:
    """Return a query, whose measures are bounded, with the steps of its coupled measures."""
    if all(measure.weight is None for measure in query.measures):
        return query
    changed = dict(_center_averages(query))
    if any(output.statistic is not None for output in query.outputs):
        from dpsql.plan.measures.spread import refine_spread

        changed |= refine_spread(query, changed)
    refined = [changed.get(measure) or _refine(measure) for measure in query.measures]
    measures = tuple(dict.fromkeys(refined))
    places = [measures.index(measure) for measure in refined]
    outputs = tuple(
        output if not output.is_measure else output.place([places[at] for at in output.places])
        for output in query.outputs
    )
    return replace(query, measures=measures, outputs=outputs)


def _refine(measure: Measure) -> Measure:
    """Return a measure in the finest steps such that one unit adds at most MOST_STEPS."""
    if measure.weight is None or measure.bounds is None:
        return measure
    shift = max(0, (MOST_STEPS // measure.bounds.width).bit_length() - 1)
    return replace(measure, bounds=measure.bounds.refine(shift), weight=replace(measure.weight, shift=shift))


def _center_averages(query: PrivateQuery) -> Iterator[tuple[Measure, Measure]]:
    """Yield sums and counts of averages with those that replace them: of the distances from the middle, and alone.

    Those of a set that is shown as it is have to stay.
    """
    undivided = (output for output in query.outputs if output.quantile is None and output.divisor is None)
    shown = {query.measures[output.measure] for output in undivided}
    for output in query.outputs:
        if not output.is_measure or output.divisor is None or output.statistic is not None:
            continue
        total, rows = query.measures[output.measure], query.measures[output.divisor]
        if total not in shown and rows not in shown and (centred := _center(total, rows)) is not None:
            yield total, centred
            yield rows, replace(rows, weight=None)


def _center(total: Measure, rows: Measure) -> Measure | None:
    """Return the sum of the distances from the middle of the range of a row; None where that has more noise."""
    if total.row_range is None or total.bounds is None or rows.bounds is None or total.weight is None:
        return None
    (least, most), most_rows = total.row_range, rows.bounds.high
    half = (most - least) / 2
    if half <= 0 or most_rows * half > total.bounds.sensitivity * total.bounds.step:
        return None
    steps = count_half(total, half, most=MOST_STEPS // 2 // most_rows)
    if steps is None:
        return None
    bounds = ContributionRange(-most_rows * steps, most_rows * steps, half / steps)
    weight = replace(total.weight, centre=(least + most) / 2, rows=most_rows)
    return replace(total, bounds=bounds, weight=weight)
