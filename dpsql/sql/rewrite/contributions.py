"""Contributions: what each unit adds to each group.

    rows: keys, unit, steps of each row ──▶ keys, unit: added and clamped ──▶ bounded per unit ──▶ keys: added

A unit's contribution is a function of its own rows. So adding or removing a unit changes each group by at most the
sensitivity of the measure, and the contribution of no other unit.

What a unit adds to coupled measures is all of them times one weight, so that they can be divided by each other:

    c_i       sums over the rows of the unit in the group, in steps, not clamped
    B_i       high_i where c_i > 0, -low_i where it is below
    part_i    sign(c_i) min(|c_i| 2^shift_i, min over k of (|c_i| 2^shift_i B_k) // |c_k|)

The weight is the least B_k / |c_k|, at most 1. With k = i the quotient is B_i 2^shift_i, so no part is beyond its
bound whatever the rows are. A part is a function of the unit's own rows. Most units are within all bounds, and divide
nothing. Rows are at most MOST_STEPS, so products of the sums of 2**33 rows stay below 2**74: they need more than 64
bits, and are exact in all engines.

Different values in a group, COUNT(DISTINCT x): two units can have the same value, so their number is no sum over units.
What each unit has in a group is therefore not one row, but one for each of its values there, and the values of all
units are counted together.

    rows: keys, unit, value ──▶ distinct ──▶ the first values of each unit and group by a draw ──▶ bounded per unit
                                                          ──▶ keys: count(DISTINCT value)

Which values of a unit count is a function of its own rows and of two salts alone: whether other units have a value, or
how many do, decides nothing. So adding a unit raises each of its groups by 0 to D, the number of values that count, and
changes no other; removing it lowers them by as much. A draw by the value alone would let all units keep the same
values, of which fewer are different.

Every pair of group and unit has a row here, with the value NULL if it has none that counts. What the unit adds to other
measures is in one of the rows of its pair, in which ONE is 1, and 0 in the others, so that all of them are added up as
if there were no more rows. Where groups are bounded, all rows of a pair have its rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dpsql.sql.ir.catalog import Form
from dpsql.sql.ir.measures import Aggregate, ContributionRange, Measure, is_present
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.ir.transforms import canonicalize, make_total
from dpsql.sql.ir.tree import Case, Expression, Family, Type, join_conjuncts, split_conjuncts
from dpsql.sql.render.duckdb import Writer, compose, sort_nulls_last
from dpsql.sql.rewrite.bounding import GROUPS, RANK, UNIT
from dpsql.sql.rewrite.row_steps import build_row_steps, clamp, list_distances, write_product_sum

ONE = "dpsql_one"
_APART = 0x9E37_79B9_7F4A_7C15  # the draw of a value is not that of a group with the same key


def name_keys(query: PrivateQuery) -> list[str]:
    """Return the names of the columns of the keys."""
    return [f"dpsql_key_{at + 1}" for at in range(len(query.keys))]


def name_parts(query: PrivateQuery) -> list[str]:
    """Return the names of the columns of what each unit adds to the measures."""
    return [f"dpsql_part_{at + 1}" for at in range(len(query.measures))]


def name_sums(query: PrivateQuery) -> list[str]:
    """Return the names of the columns of the measures of groups: the first is the count that ranks."""
    return [f"dpsql_measure_{at + 1}" for at in range(len(query.measures))]


def counts_items(query: PrivateQuery) -> bool:
    """Say whether different values are counted."""
    return any(measure.aggregate is Aggregate.ITEMS for measure in query.measures)


def find_pair_types(query: PrivateQuery) -> dict[str, Type]:
    """Return the types of the columns of pairs, by their names."""
    types = dict(zip((*name_keys(query), UNIT), (each.type for each in (*query.keys, query.unit)), strict=True))
    return types | {name: item.type for name, item in _list_items(query).items()}


def read_rows(
    writer: Writer,
    query: PrivateQuery,
    *,
    names: Sequence[str],
    columns: Iterable[tuple[Expression, str]] = (),
    form: Form = Form.ROWS,
) -> str:
    """Return the SELECT of the rows that have a unit: the keys `names`, UNIT, and further columns with their names.

    Rows whose `form` is RANKS have their RANK and GROUPS.

    SELECT t1.city AS dpsql_key_1, t1.user_id AS dpsql_unit FROM visits AS t1 WHERE (t1.user_id IS NOT NULL)
    """
    keys = [f"{writer.expression(key)} AS {name}" for key, name in zip(query.keys, names, strict=True)]
    unit = writer.expression(canonicalize(query.unit))
    ranks = [RANK, GROUPS] if form is Form.RANKS else []
    more = [f"{writer.expression(each)} AS {name}" for each, name in columns]
    return writer.select([*keys, f"{unit} AS dpsql_unit", *ranks, *more], query.body, where=f"({unit} IS NOT NULL)")


def build_contributions(
    writer: Writer,
    query: PrivateQuery,
    *,
    names: Sequence[str],
    form: Form = Form.ROWS,
    stored: Sequence[Expression] = (),
) -> str:
    """Return the SQL for one row per group and unit: the keys `names`, UNIT, and what the unit adds to each measure.

    `stored` has the steps of each measure in a materialized table, in place of those of a row. In a short `form` each
    of its rows is one unit of a group; where it is RANKS, they have their RANK and GROUPS.

    SELECT city, SUM(amount) FROM visits GROUP BY city TOP 5 PRIVATE                                      becomes

    SELECT dpsql_key_1, dpsql_unit, least(greatest(sum(dpsql_row_1), 0), 500) AS dpsql_part_1
    FROM (SELECT t1.city AS dpsql_key_1, t1.user_id AS dpsql_unit, floor(t1.amount + 0.5) AS dpsql_row_1
          FROM visits AS t1 WHERE t1.user_id IS NOT NULL)
    GROUP BY dpsql_key_1, dpsql_unit
    """
    steps, is_alone, parts = _list_steps(query, stored), form is not Form.ROWS, name_parts(query)
    added = [
        f"{add_rows(measure, next(iter(steps[at]), ''), alone=is_alone)} AS {parts[at]}"
        for at, measure in enumerate(query.measures)
        if measure.weight is None
    ]
    sums, numbers, coupled = find_coupled(query)
    added += [
        f"CAST({_sum_steps(query, steps, at=at, alone=is_alone)} AS {writer.wide}) AS {name}" for at, name in coupled
    ]
    pair, ranks = [*names, UNIT], [RANK, GROUPS] if form is Form.RANKS else []
    pairs = compose(
        """
        SELECT {columns}
        FROM ({rows})
        GROUP BY {pair}
        """,
        columns=[*pair, *ranks, *added],
        rows=read_rows(writer, query, names=names, columns=_flatten(steps), form=form),
        pair=[] if is_alone else pair,
    )
    if not sums:
        return pairs
    # for coupled measures, SELECT dpsql_key_1, dpsql_unit, (the part of each by their one weight) FROM (pairs)
    weights = CoupledParts(writer, query.measures, sums, numbers)
    weighed = [
        part if measure.weight is None else f"{weights.build_part(at)} AS {part}"
        for at, (measure, part) in enumerate(zip(query.measures, parts, strict=True))
    ]
    return compose("SELECT {columns} FROM ({pairs})", columns=[*pair, *ranks, *weighed], pairs=pairs)


def build_item_rows(writer: Writer, query: PrivateQuery, *, names: Sequence[str]) -> str:
    """Return the SQL for the rows of each pair of group and unit: the keys `names`, UNIT, the parts, and ONE.

    A part of a measure of values is one of the values that count, or NULL. For one such measure

    SELECT city, COUNT(DISTINCT product) FROM visits GROUP BY city TOP 5 PRIVATE        becomes, with 3 values of a unit

    SELECT dpsql_key_1, dpsql_unit, dpsql_item_1 AS dpsql_part_1, CASE WHEN dpsql_place_1 <= 1 THEN 1 ELSE 0 END AS ...
    FROM (SELECT *, row_number() OVER (PARTITION BY dpsql_key_1, dpsql_unit ORDER BY CASE WHEN dpsql_item_1 IS NULL
                                       THEN 1 ELSE 0 END, dpsql_draw_1, dpsql_item_1) AS dpsql_place_1
          FROM (SELECT *, draw AS dpsql_draw_1
                FROM (SELECT DISTINCT t1.city AS dpsql_key_1, t1.user_id AS dpsql_unit, t1.product AS dpsql_item_1
                      FROM visits AS t1 WHERE t1.user_id IS NOT NULL)))
    WHERE dpsql_place_1 <= 3
    """
    assert query.item_salts is not None  # noqa: S101 - of every planned query
    items, steps, pair = _list_items(query), _list_steps(query), [*names, UNIT]
    # With one measure of values the rows of a pair are its different values: `row_number` is the place of a value, and
    # WHERE drops the rows beyond the bound. With several, a value is in a row for each combination with the others:
    # `dense_rank` is its place, no row is dropped, and a value beyond its bound becomes NULL.
    within, is_single = f"PARTITION BY {', '.join(pair)}", len(items) == 1
    sums, numbers, coupled = find_coupled(query)
    weights = CoupledParts(writer, query.measures, sums, numbers)
    number = f"dpsql_place_{next(iter(items)).removeprefix('dpsql_item_')}" if is_single else "dpsql_number"
    # columns of each level, from the innermost: sums over the rows of a value, draws, sums over a pair, and parts
    added, drawn, over_pairs, parts = list[str](), list[str](), list[str](), list[str]()
    salts = query.item_salts[0] ^ _APART, query.item_salts[1] ^ _APART
    base = read_rows(
        writer, query, names=names, columns=[*((item, name) for name, item in items.items()), *_flatten(steps)]
    )
    ranked, limits = list[str](), list[str]()
    for at, (measure, part) in enumerate(zip(query.measures, name_parts(query), strict=True), start=1):
        row, item, draw, place = (f"dpsql_{word}_{at}" for word in ("row", "item", "draw", "place"))
        if measure.aggregate is Aggregate.ITEMS:
            drawn.append(f"{writer.draw([item], UNIT, salts=salts)} AS {draw}")
            ranked.append(
                f"system.main.{'row_number' if is_single else 'dense_rank'}() OVER ({within} ORDER BY "
                # NULL is last and so takes the place of no value; equal draws are put in order by the value.
                f"CASE WHEN {item} IS NULL THEN 1 ELSE 0 END, {draw}, {sort_nulls_last([item])}) AS {place}"
            )
            limits.append(f"{place} <= {measure.width:d}")
            value = item if is_single else f"CASE WHEN {limits[-1]} THEN {item} END"
            parts.append(f"{value} AS {part}")
            continue
        is_one = measure.aggregate is Aggregate.UNITS and not steps[at - 1]  # each unit of a group adds 1
        together = "max" if measure.aggregate is Aggregate.UNITS else "sum"
        if not is_one:
            total = f"system.main.max({row})" if together == "max" else _sum_steps(query, steps, at=at - 1)
            added.append(f"{total} AS {row}")
        if measure.weight is not None:
            whole = weights.build_part(at - 1)
        else:
            whole = add_rows(measure, "" if is_one else row, alone=True)
            over_pairs += [] if is_one else [f"system.main.{together}({row}) OVER ({within}) AS {row}"]
        # Every row of the pair has the same window sum over the whole pair; the first row alone adds it to the group.
        parts.append(f"CASE WHEN {number} <= 1 THEN {whole} ELSE 0 END AS {part}")
    over_pairs += [
        f"CAST(system.main.sum(dpsql_row_{at + 1}) OVER ({within}) AS {writer.wide}) AS {name}" for at, name in coupled
    ]
    if not is_single:
        ranked.append(f"system.main.row_number() OVER ({within} ORDER BY {sort_nulls_last(items)}) AS {number}")
    return compose(
        """
        SELECT {columns} FROM (
            SELECT {ranked} FROM (
                SELECT *, {drawn} FROM (
                    SELECT {values} FROM ({base}) GROUP BY {groups}
                )
            )
        )
        WHERE {where}
        """,
        columns=[*pair, *parts, f"CASE WHEN {number} <= 1 THEN 1 ELSE 0 END AS {ONE}"],
        ranked=[*pair, *items, *ranked, *over_pairs],
        drawn=drawn,
        values=[*pair, *items, *added],
        base=base,
        groups=[*pair, *items],
        where=limits[0] if is_single else "",
    )


def _list_items(query: PrivateQuery) -> dict[str, Expression]:
    """Return the values that are counted, by the names of their columns: NULL where a row does not count.

    Equal values are identical.
    """
    items = dict[str, Expression]()
    for at, measure in enumerate(query.measures, start=1):
        if measure.aggregate is not Aggregate.ITEMS or measure.argument is None:
            continue
        argument = measure.argument
        present = is_present(argument) if argument.type.family is Family.DOUBLE else ()  # NULL is NULL in any case
        # For COUNT(DISTINCT x) FILTER (WHERE c) the item is CASE WHEN c THEN x END: a row that does not count has NULL.
        condition = join_conjuncts([*split_conjuncts(measure.condition), *present])
        item = make_total(argument)
        if condition is not None:
            item = Case(((make_total(condition), item),), None, argument.type)
        items[f"dpsql_item_{at}"] = canonicalize(item)
    return items


Steps = list[dict[str, Expression]]


def _list_steps(query: PrivateQuery, stored: Sequence[Expression] = ()) -> Steps:
    """Return the steps of a row for each measure, by the names of their columns; none where each row adds 1.

    Of a sum of products they are its distances: one for squares, else two.
    """
    found = Steps()
    for at, measure in enumerate(query.measures):
        if measure.aggregate is Aggregate.ITEMS:
            found.append({})
            continue
        each = [measure] if measure.factor is None else list_distances(measure)
        steps = [stored[at]] if stored else map(build_row_steps, each)
        names = f"dpsql_row_{at + 1}", f"dpsql_factor_{at + 1}"
        found.append({name: make_total(part) for name, part in zip(names, steps, strict=False) if part is not None})
    return found


def _flatten(steps: Steps) -> Iterable[tuple[Expression, str]]:
    return ((step, name) for each in steps for name, step in each.items())


def _sum_steps(query: PrivateQuery, steps: Steps, *, at: int, alone: bool = False) -> str:
    """Return the steps of the rows of a unit, added up, of measure number `at`."""
    rows, measure = list(steps[at]), query.measures[at]
    if measure.factor is not None:  # of which the distances are multiplied
        number = _sum_rows(next(iter(steps[_find_divisors(query)[at]]), ""), alone=alone)
        return write_product_sum(measure, rows, number=number)
    return _sum_rows(next(iter(rows), ""), alone=alone)


def _sum_rows(row: str, *, alone: bool) -> str:
    """Return a column of steps added up, or how many rows there are where each adds 1."""
    return row if alone else f"system.main.sum({row})" if row else "system.main.count()"


def add_rows(measure: Measure, row: str, *, alone: bool) -> str:
    """Return what a unit adds to a group: its rows' steps added up and clamped, or 1 for each unit that counts.

    With `alone` there is one row, which needs no aggregate.
    """
    if measure.aggregate is Aggregate.UNITS:
        return f"CAST({(row if alone else f'system.main.max({row})') if row else '1'} AS BIGINT)"
    return f"CAST({clamp(_sum_rows(row, alone=alone), measure.bounds or ContributionRange(0, 1))} AS BIGINT)"


def sum_contributions(query: PrivateQuery) -> list[str]:
    """Return the sums of the contributions of units to each measure, 0 without any; of values how many there are."""
    return [
        f"system.main.count(DISTINCT {part}) AS {name}"
        if measure.aggregate is Aggregate.ITEMS
        else f"COALESCE(CAST(system.main.sum({part}) AS BIGINT), 0) AS {name}"
        for measure, part, name in zip(query.measures, name_parts(query), name_sums(query), strict=True)
    ]


def find_coupled(query: PrivateQuery) -> tuple[dict[int, str], dict[int, str], list[tuple[int, str]]]:
    """Return the columns of coupled measures by their places: of sums, and of numbers of rows around a middle.

    Then come all of these columns, each with the place of the measure whose rows it adds up.
    """
    coupled = {at: measure.weight for at, measure in enumerate(query.measures) if measure.weight is not None}
    sums = {at: f"dpsql_added_{at + 1}" for at in coupled}
    # what is around the middle of a range is divided by the measure that counts its rows
    divisors, counted = _find_divisors(query), dict[int, str]()
    centred = [at for at, weight in coupled.items() if weight.centre is not None]
    for at in centred:
        counted.setdefault(divisors[at], f"dpsql_number_{at + 1}")
    return sums, {at: counted[divisors[at]] for at in centred}, [*sums.items(), *counted.items()]


def _find_divisors(query: PrivateQuery) -> dict[int, int]:
    """Return the place of the measure that divides each measure of an average or spread."""
    return {at: each.divisor for each in query.outputs if each.divisor is not None for at in each.places}


@dataclass(frozen=True, slots=True)
class CoupledParts:
    """Columns of what is worked out from: the `sums` of coupled measures, by the places of these in the query.

    `numbers` are those of the rows that count, for sums of distances from the middle of a range. All are `wide`.
    """

    writer: Writer
    measures: Sequence[Measure]
    sums: Mapping[int, str]
    numbers: Mapping[int, str]

    def build_part(self, at: int) -> str:
        """Return what a unit adds to coupled measure number `at`."""
        weight, column, divide = self.measures[at].weight, self.sums[at], self.writer.divide_wide
        if at in self.numbers and weight is not None:
            number, bounds = self.numbers[at], self.measures[at].row_bounds
            # The divisor is at least 1 because an engine may compute both branches of CASE for a group without rows
            # that count.
            share = self._sign(at, divide(f"({self._size(at)} * {weight.rows})", f"system.main.greatest({number}, 1)"))
            weighed = f"CASE WHEN {number} <= {weight.rows:d} THEN {column} ELSE {share} END"
            return f"CAST({clamp(weighed, bounds)} AS BIGINT)"  # of rows that a DOUBLE rounded
        scale = 1 if weight is None else 1 << weight.shift
        coupled = {each: self.measures[each].weight for each in self.sums if each not in self.numbers}
        coupled_by = 0 if weight is None else weight.number
        others = [each for each, other in coupled.items() if other is not None and other.number == coupled_by]
        ranges = ((self.sums[each], self.measures[each].row_bounds) for each in others)
        is_within = " AND ".join(f"{each} >= {bounds.low:d} AND {each} <= {bounds.high:d}" for each, bounds in ranges)
        size = self._size(at) if scale == 1 else f"({self._size(at)} * {scale:d})"
        # Each share is |c_i| 2^shift_i B_k // |c_k|, rounded down (10.4 of docs/explanation/maths.md). A sum of 0
        # divides as 1: its share is |c_i| 2^shift_i B_k, which is no less than |c_i| 2^shift_i, so that it binds
        # nothing.
        shares = [divide(f"({size} * {self._bound(each)})", self._size(each, least=1)) for each in others if each != at]
        most = self._bound(at, scale=scale)
        whole = column if scale == 1 else f"({column} * {scale:d})"
        part = self._sign(at, f"system.main.least({', '.join([most, *shares])})" if shares else most)
        # Most units are within all bounds, and nothing is divided for them: the weight is 1.
        return f"CAST(CASE WHEN {is_within} THEN {whole} ELSE {part} END AS BIGINT)"

    def _size(self, at: int, *, least: int = 0) -> str:
        """Return the distance of a sum from 0, or `least` if that is greater."""
        bounds, column = self.measures[at].row_bounds, self.sums[at]
        sides = [column] * (bounds.high > 0) + [f"-{column}"] * (bounds.low < 0) + [f"{least:d}"] * (least > 0)
        return f"system.main.greatest({', '.join(sides)})" if len(sides) > 1 else sides[0]

    def _bound(self, at: int, *, scale: int = 1) -> str:
        """Return the bound on the side of a sum, in steps of which `scale` are one of the rows."""
        bounds = self.measures[at].row_bounds
        low, high = f"{-bounds.low * scale:d}", f"{bounds.high * scale:d}"
        if bounds.low < 0 < bounds.high:
            return f"CASE WHEN {self.sums[at]} < 0 THEN {low} ELSE {high} END"
        return low if bounds.low < 0 else high

    def _sign(self, at: int, size: str) -> str:
        """Return a size on the side of a sum."""
        bounds = self.measures[at].row_bounds
        if bounds.low < 0 < bounds.high:
            return f"({size} * CASE WHEN {self.sums[at]} < 0 THEN -1 ELSE 1 END)"
        return f"-{size}" if bounds.low < 0 else size
