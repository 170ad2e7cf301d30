"""Bounds of measures: how much one unit may add to one group, from the policy, or as the query states them.

Adding a unit raises the number of different values in a group by at most so many as it has there, and by none where
others have its values; removing it lowers the number by as much. So any number is a sound bound of COUNT(DISTINCT x),
also one that a query states, and it decides the noise. It is, in this order, that of the aggregate itself;
`max_items_contributed`; and the lesser of what the policy has for the columns and for rows. A unit that counts with at
most so many rows in COUNT(*) has no more values in them, so the rows of the policy are a default that cuts no unit
which COUNT(*) does not cut.

A quantile has a range: between which numbers the value of one row is. It decides the bins alone: a value beyond it is
counted at its end, so no range is needed for the guarantee.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil, inf, isfinite, prod

from dpsql.dialects import quote_text, write_name
from dpsql.display import unit_noun
from dpsql.errors import Refusal
from dpsql.plan.measures.expression_bounds import (
    ColumnTotals,
    ExpressionBounds,
    Number,
    Totals,
    bound_expression,
    has_times,
    is_signed,
)
from dpsql.plan.measures.rows import Columns, Count, Rows, TableRows, count_rows, list_scans_of_rows
from dpsql.policy import ColumnBounds, PrivateTable
from dpsql.policy.toml import spell
from dpsql.sql.ir.measures import MOST_STEPS, SPREADS, Aggregate, ContributionRange, Measure, Quantile
from dpsql.sql.ir.statements import Partitions, PrivateQuery
from dpsql.sql.ir.tree import NULL, ColumnRef, Literal
from dpsql.terms import Terms, read_whole_number

_OPTION, _ITEMS_OPTION = "max_rows_contributed", "max_items_contributed"
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
    option = query.clause.options.get(_ITEMS_OPTION)
    if option is not None and all(measure.aggregate is not Aggregate.ITEMS for measure in query.measures):
        reason = (
            f"{_ITEMS_OPTION} is for COUNT(DISTINCT x) of another column than the privacy unit, and the query has none."
        )
        raise Refusal("option", reason, hint="Leave it out.", place=option.place)
    if query.counts_units_alone:
        return query
    ranks_units = query.measures[0].aggregate is Aggregate.UNITS
    wanted = max(terms.min_units, *(terms.tables[name].min_units or 1 for name in query.tables))
    if query.clause.shape == "top" and not ranks_units and wanted > 1:
        who = "policy" if terms.min_units == 1 else "query"
        reason = f"The {who} wants groups of at least so many units here, which another ranking cannot promise."
        hint = f"Select COUNT(DISTINCT {query.unit_name}) first, or order by it."
        raise Refusal("min-units", reason, hint=hint, place=query.clause.place)
    from dpsql.plan.measures.coupled import RowRanges, refine_coupled

    bounding = Bounding(query, terms.tables)
    distances = {at for output in query.outputs if output.statistic for at in (output.measure, *output.others)}
    if distances:
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
            # One table can have several names in the policy: the widest bounds hold whichever of them the query uses.
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
            return _bound_items(measure, self.query, policy=self.policy, rows=self.rows.total)
        return self._bound_sum(measure)

    def _find_rows(self, measure: Measure) -> int:
        """Return how many rows of one unit count in one group: as many as FROM can make, or fewer if asked for."""
        if self.rows.total == inf:
            reason = "The policy does not say how many rows of one unit count in a group, which COUNT(*) and AVG need."
            same = [each for each in self.query.measures if each.words == measure.words]
            hint = f"{_propose_stated(*same, most=self._find_most(measure))} {self.propose_rows()}"
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
        # The value of one row is also within what all rows of a unit may add, since the others can be NULL.
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
        # One name of the table without bounds leaves the column without any.
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
        if isfinite(found.least) and isfinite(found.most) and not has_times(measure.argument):
            (table, column), *_ = missing
            reason = f"The policy has no bounds of {spell(column)}, which this adds up."
            low = "min = -500, " if is_signed(measure.argument) else ""
            line = f"{spell(column)} = {{{low}max = 500}}"
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
        most = f"as many as count of one {unit_noun(self.query.unit_name)}, and 1 where each has one row"
        return f"Or ask the curator to add rows = 20, or another number, under [tables.{spell(name)}.bounds]: {most}."


def _read_totals(rows: int | None, bounds: ColumnBounds) -> ColumnTotals:
    """Return the totals of a column by its bounds, and by those of each of so many rows."""
    most, least = (inf, -inf) if bounds.max is None else (bounds.max, bounds.min or Fraction(0))
    low, high = bounds.each or (least, most)
    # 0 * inf is NaN in floats: a column without values of a sign has the total 0, however many rows there are.
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


def _propose_stated(measure: Measure, *same: Measure, most: int = _SOME_MOST) -> str:
    """Return a hint with the measure as the query has it, and with bounds; `same` are others of the same words."""
    example = "COUNT(*)" if measure.aggregate is Aggregate.ROWS else "SUM(x)"
    words = example if measure.words is None else " ".join(measure.words.fragment.split())
    is_mean = words[:_NAME_LENGTH].lower().startswith("avg")
    is_count = measure.aggregate is Aggregate.ROWS and not is_mean
    meaning = "the rows of one unit that count" if is_count else "what one unit adds to a group"
    meaning = "the mean of one unit" if is_mean else meaning
    low = -most if any(is_signed(each.argument) for each in (measure, *same)) else 0
    bounds = f"contribution_bounds_per_group => ({low}, {_SOME_ROWS if is_count else most})"
    return f"Write {words.removesuffix(')')}, {bounds}), with your own bounds of {meaning}."


def _bound_items(measure: Measure, query: PrivateQuery, *, policy: Mapping[str, PrivateTable], rows: Count) -> Measure:
    """Return a number of different values with how many of one unit count; `rows` are those of one unit in FROM."""
    named = _find_distinct(measure, policy)
    option = query.clause.options.get(_ITEMS_OPTION)
    asked = read_whole_number(option, _ITEMS_OPTION, bounds=(1, MOST_STEPS if named == inf else int(named)))
    most = min(named, rows) if asked is None else asked
    if most > MOST_STEPS:
        raise _refuse_items(measure, query, is_joined=most != inf)
    return replace(measure, bounds=ContributionRange(0, int(most)))


def _find_distinct(measure: Measure, policy: Mapping[str, PrivateTable]) -> Count:
    """Return how many values of an expression one unit has by the bounds of its columns, infinite without one."""
    if not measure.columns:
        return inf
    found = [policy[table].bounds.find(column) for table, column in measure.columns]
    known = [each.distinct for each in found if each is not None and each.distinct is not None]
    # A value of x || y is made from one of the combinations of values of x and y.
    most = prod(known) if len(known) == len(found) else inf
    return most if most <= MOST_STEPS else inf


def _refuse_items(measure: Measure, query: PrivateQuery, *, is_joined: bool) -> Refusal:
    """Return the refusal of a number of values without a bound, with the statement and the line that give it one."""
    words = "COUNT(DISTINCT x)" if measure.words is None else " ".join(measure.words.fragment.split())
    hint = (
        f"Write {words.removesuffix(')')}, contribution_bounds_per_group => (0, 3)), with your own number of values of "
        "one unit."
    )
    reason = "The policy does not say how many different values of one unit count in a group."
    if is_joined:
        reason = "By the rows of its tables one unit can have too many rows here: a join multiplies them."
    if len(measure.columns) == 1:
        ((table, column),) = measure.columns
        line = f"{spell(column)} = {{distinct = 3}}"
        hint = f"{hint} Or ask the curator to add {line}, or another number, under [tables.{spell(table)}.bounds]."
    return Refusal("no-bounds", reason, hint=hint, place=measure.words or query.clause.place)


def bound_quantiles(query: PrivateQuery, terms: Terms) -> PrivateQuery:
    """Return the query with the row ranges of its quantiles, and their rows; refuse a quantile without them."""
    if not query.quantiles:
        return query
    if query.partitions is not None:
        reason = "Quantiles are not released of partitions."
        raise Refusal("partitions", reason, hint=_propose_one(query, query.partitions), place=query.partitions.place)
    bounding = Bounding(query, terms.tables)
    return replace(query, quantiles=tuple(_bound_quantile(each, bounding) for each in query.quantiles))


def _propose_one(query: PrivateQuery, partitions: Partitions) -> str:
    """Return a hint with the condition of one partition, in place of PER."""
    name = next((output.name for output in query.outputs if output.key == partitions.key), None)
    first = next((each.value for each in partitions.values if isinstance(each.value, str)), None)
    if name is None or first is None:
        return "Leave PER and partitions out."
    one = f"{write_name(name)} = {quote_text(first)}"
    return f"Leave PER and partitions out, or ask for one value at a time, with {one} in WHERE."


def _bound_quantile(quantile: Quantile, bounding: Bounding) -> Quantile:
    """Return a quantile with its range and its rows; refuse one that lacks either, or both at once."""
    try:
        row_range = quantile.stated or _find_quantile_range(quantile, bounding)
    except Refusal as error:
        try:
            # Both refusals are said at once, so that who adds a range is not then asked for rows.
            _find_quantile_rows(quantile, bounding)
        except Refusal as other:
            hint = f"{error.hint} {other.hint}"
            raise Refusal(error.code, f"{error.reason} {other.reason}", hint=hint, place=error.place) from None
        raise
    return replace(quantile, row_range=row_range, rows=_find_quantile_rows(quantile, bounding), stated=None)


def _find_quantile_rows(quantile: Quantile, bounding: Bounding) -> int:
    """Return how many rows of one unit count in a group: of those that FROM can make as many as the query asks for."""
    total, option = bounding.rows.total, bounding.query.clause.options.get(_OPTION)
    most = int(min(total, MOST_STEPS))
    asked = read_whole_number(option, _OPTION, bounds=(1, most))
    if asked is not None:
        return asked
    if total == most:
        return most
    reason = f"By the rows of its tables one unit can have {total:,} rows here: a join multiplies them."
    hint = f"Add {_OPTION} = 20, or another number, to WITH (...)."
    if total == inf:
        reason = "The policy does not say how many rows of one unit count in a group, which a quantile needs."
        hint = f"Write PRIVATE WITH ({_OPTION} = 20), or another number. {bounding.propose_rows()}"
    raise Refusal("no-bounds", reason, hint=hint, place=quantile.words or bounding.query.clause.place)


def _find_quantile_range(quantile: Quantile, bounding: Bounding) -> tuple[Fraction, Fraction]:
    """Return between which numbers the value of a row is by the policy; refuse one that has no such range."""
    summed = Measure(Aggregate.SUM, quantile.argument, quantile.condition, words=quantile.words)
    low, high = bounding.find_row_range(summed)
    if isinstance(low, Fraction) and isinstance(high, Fraction) and _SMALLEST <= high - low <= _LARGEST:
        return low, high
    shown = "MEDIAN(x)" if quantile.words is None else " ".join(quantile.words.fragment.split())
    column = next(iter(quantile.columns), None)
    low = -_SOME_MOST if is_signed(quantile.argument) else 0
    hint = f"Write {_write_range(shown, low)}, with your own range of one row's value."
    reason = "The policy does not say between which numbers one row's value of this is, which a quantile needs."
    if column is not None and len(quantile.columns) == 1 and not has_times(quantile.argument):
        table, name = column
        line = f"{spell(name)} = {{each = {{min = {low}, max = 500}}}}, with the range of a value,"
        hint = f"{hint} Or ask the curator to add {line} under [tables.{spell(table)}.bounds]."
    raise Refusal("no-bounds", reason, hint=hint, place=quantile.words)


def _write_range(words: str, low: int) -> str:
    """Return a quantile as it is written with a range in it: behind its own arguments."""
    end = words.upper().find(" WITHIN GROUP")
    end = words.rfind("[") if end < 0 and words.endswith("]") else end
    head, rest = (words, "") if end < 0 else (words[:end], words[end:])
    return f"{head.rstrip().removesuffix(')')}, contribution_bounds_per_row => ({low}, {_SOME_MOST})){rest}"
