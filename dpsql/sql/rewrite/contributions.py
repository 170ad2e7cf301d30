"""Contributions: which groups of each unit count, with which weight, and what the unit adds to each of them.

    keys and unit of each row ──▶ distinct pairs of group and unit, ranked by a draw ──▶ the first pairs of each unit

A unit's draws depend on its own rows and on two salts alone, so no other unit changes which of its groups count.

The number of units in any group is read beside each group. Every unit that adds to a group must raise it by exactly 1,
and no unit by more, in the very rows that the groups are counted from: a number from rows of another moment, or of some
groups alone, would be wrong. It is taken in one of two ways, and neither reads the rows of a table twice, since they
could change in between:

* The pairs of group and unit have a rank within their unit. Each unit has one pair of rank 1, and the groups' numbers
  of these pairs are added up over all groups.
* In DuckDB, which computes a CTE once, the units of such a CTE are counted beside the groups that are counted from it.

What a unit adds to a group is a number of whole steps between public bounds.

    rows: keys, unit, steps of each row ──▶ keys, unit: added and clamped ──▶ bounded per unit ──▶ keys: added

Every row becomes whole steps before anything is added, so that no sum depends on the order of rows. A row's steps are
a function of that row alone, and a unit's contribution one of its own rows. So adding or removing a unit changes each
group by at most the sensitivity of the measure, and the contribution of no other unit. NULL and NaN add 0.

What a unit adds to coupled measures is all of them times one weight, so that they can be divided by each other:

    c_i       sums over the rows of the unit in the group, in steps, not clamped
    B_i       high_i where c_i > 0, -low_i where it is below
    part_i    sign(c_i) min(|c_i| 2^shift_i, min over k of (|c_i| 2^shift_i B_k) // |c_k|)

The weight is the least B_k / |c_k|, at most 1. With k = i the quotient is B_i 2^shift_i, so no part is beyond its
bound whatever the rows are. A part is a function of the unit's own rows. Most units are within all bounds, and divide
nothing. Rows are at most MOST_STEPS, so products of the sums of 2**33 rows stay below 2**74: they need more than 64
bits, and are exact in all engines.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dpsql.sql.ir.measures import Aggregate, ContributionRange, Measure
from dpsql.sql.ir.statements import Partitions, PrivateQuery
from dpsql.sql.ir.transforms import canonicalize, make_total, widen, widen_presence
from dpsql.sql.ir.tree import BIGINT, BOOLEAN, DOUBLE, Call, Case, Cast, Expression, Family, Literal
from dpsql.sql.render.duckdb import Writer, compose, sort_nulls_last
from dpsql.sql.rewrite.use_materialized import Form

UNIT = "dpsql_unit"
WEIGHT = "dpsql_weight"
RANK = "dpsql_rank"
DRAW = "dpsql_draw"
GROUPS = "dpsql_groups"
TOTAL = "dpsql_total"
FIRST = "dpsql_first"
# In the logs measured, 90 % of the units have fewer groups: from this bound on, sorting only the others is faster.
MIN_GROUPS_SORTED_APART = 16
_ABOVE = "dpsql_pairs SEMI JOIN (SELECT dpsql_unit FROM dpsql_units WHERE dpsql_above) USING (dpsql_unit)"


@dataclass(frozen=True, slots=True)
class Bound:
    """Bound on the groups of each unit, chosen by a hash under two 64-bit salts that are private to the session.

    With `counts_units` the bounded rows tell the number of units, as `BoundedRows` says.

    Enforced by `bound_contributions` (units), `weigh_contributions` (units with weights), and, where rows or sums are
    measured, by `dpsql_rank <= max_groups_contributed` in `_add_measures` and `_weigh_measures` of `engine_query.py`.
    The same number goes into the noise and the price by `price_items` (`plan/mechanisms/base.py`).
    """

    max_groups_contributed: int
    salts: tuple[int, int]
    counts_units: bool = False


@dataclass(frozen=True, slots=True)
class UnitRows:
    """SELECT of the canonical keys `names` and of UNIT, which is never NULL.

    With `ranked`, the rows are distinct and have two more columns: RANK, the rank of the row within its unit, and
    GROUPS, the number of rows of the unit.
    """

    sql: str
    names: Sequence[str]
    ranked: bool = False


@dataclass(frozen=True, slots=True)
class BoundedRows:
    """SQL of the bounded rows: `source` selects keys and unit, one row per selected group of a unit, over `ctes`.

    Where the units are counted, `units` is a CTE with one row for each of them; without one, the rows of `source` have
    their RANK within their unit, from 1.
    """

    ctes: tuple[str, ...]
    source: str
    units: str = ""


def select_pairs(writer: Writer, rows: UnitRows) -> str:
    """Return the SQL for the distinct pairs of group and unit."""
    gathered = writer.gather(rows.sql, rows.names, unit=UNIT)
    return compose("SELECT DISTINCT {columns} FROM ({rows})", columns=[*rows.names, UNIT], rows=gathered)


def rank_pairs(
    writer: Writer,
    pairs: str,
    *,
    names: Sequence[str],
    salts: tuple[int, int] | None,
    parts: Sequence[str] | None = None,
) -> str:
    """Return the SQL for a relation of distinct pairs with the RANK of each pair within its unit, from 1.

    Pairs are ranked by their draw under the salts, or without salts by their keys. `parts` are further columns of the
    pairs, which may have others too. From lists they have GROUPS as well.
    """
    by = [] if salts is None else [writer.draw(names, UNIT, salts=salts)]
    if writer.lists:
        # from a list for each unit that is sorted by the draw:
        # SELECT dpsql_pair[1] AS dpsql_key_1, dpsql_unit, dpsql_rank, dpsql_groups
        # FROM (SELECT dpsql_unit, unnest(dpsql_list) AS dpsql_pair, position AS dpsql_rank, length AS dpsql_groups
        #       FROM (SELECT dpsql_unit, list of (draw, dpsql_key_1) AS dpsql_list FROM pairs GROUP BY dpsql_unit))
        form, columns = writer.list_form, [*names, *(parts or ())]
        return compose(
            """
            SELECT {fields}, dpsql_unit, dpsql_rank, dpsql_groups
            FROM (
                SELECT dpsql_unit, {rows} AS dpsql_pair, {positions} AS dpsql_rank, {length} AS dpsql_groups
                FROM (SELECT dpsql_unit, {list} AS dpsql_list FROM {pairs} GROUP BY dpsql_unit)
            )
            """,
            rows=form("list_rows", "dpsql_list"),
            positions=form("list_positions", "dpsql_list"),
            length=form("list_length", "dpsql_list"),
            list=form("list", *by, *columns),
            fields=[
                f"{form('list_field', 'dpsql_pair', str(at))} AS {name}" for at, name in enumerate(columns, len(by))
            ],
            pairs=pairs,
        )
    columns = [*names, UNIT] if parts is None else ["*"]
    if by and not writer.native:  # some engines compute what a window sorts by more than once, unless it is a column
        pairs = compose("(SELECT {columns}, {draw} AS dpsql_draw FROM {pairs})", columns=columns, draw=by, pairs=pairs)
        by = [DRAW]
    # SELECT dpsql_key_1, dpsql_unit,
    #        row_number() OVER (PARTITION BY dpsql_unit ORDER BY draw, dpsql_key_1 ASC NULLS LAST) AS dpsql_rank
    # FROM pairs
    return compose(
        """
        SELECT {columns}, system.main.row_number() OVER (PARTITION BY dpsql_unit ORDER BY {order}) AS dpsql_rank
        FROM {pairs}
        """,
        columns=columns,
        order=[*by, sort_nulls_last(names)],
        pairs=pairs,
    )


def count_groups_of_units(writer: Writer, ranked: str) -> str:
    """Return the SQL for ranked pairs with GROUPS, the number of pairs of their unit, which lists have already."""
    if writer.lists:
        return ranked
    return compose(
        "SELECT *, system.main.count() OVER (PARTITION BY dpsql_unit) AS dpsql_groups FROM ({ranked})", ranked=ranked
    )


def bound_contributions(writer: Writer, rows: UnitRows, *, bound: Bound) -> BoundedRows:
    """Return the first groups of each unit by their draws."""
    columns, ranks = [*rows.names, UNIT], [RANK] * bound.counts_units
    if bound.max_groups_contributed == 1 and writer.native and not ranks and not rows.ranked:
        # the fields of the minimum struct of (draw, keys) of each unit:
        # SELECT struct_extract_at(dpsql_least, 2) AS dpsql_key_1, dpsql_unit
        # FROM (SELECT dpsql_unit, min(row(draw, dpsql_key_1)) AS dpsql_least FROM (rows) GROUP BY dpsql_unit)
        least = compose(
            """
            SELECT {keys}, dpsql_unit
            FROM (
                SELECT dpsql_unit, system.main.min(system.main.row({draw}, {names})) AS dpsql_least
                FROM ({rows})
                GROUP BY dpsql_unit
            )
            """,
            keys=(f"system.main.struct_extract_at(dpsql_least, {at}) AS {key}" for at, key in enumerate(rows.names, 2)),
            draw=writer.draw(rows.names, UNIT, salts=bound.salts),
            names=rows.names,
            rows=rows.sql,
        )
        return BoundedRows((), least)
    if rows.ranked or bound.max_groups_contributed < MIN_GROUPS_SORTED_APART or not writer.native:
        # all pairs are ranked in one pass:
        # SELECT dpsql_key_1, dpsql_unit FROM (SELECT ..., dpsql_rank FROM (pairs)) WHERE dpsql_rank <= 3
        ranked = rows.sql
        if not rows.ranked:
            ranked = rank_pairs(writer, f"({select_pairs(writer, rows)})", names=rows.names, salts=bound.salts)
        return BoundedRows((), _select_first(ranked, [*columns, *ranks], bound=bound))
    # only the pairs of units above the bound are drawn and sorted:
    # WITH dpsql_pairs AS (SELECT DISTINCT dpsql_key_1, dpsql_unit FROM (rows)),
    #      dpsql_above AS (SELECT dpsql_unit FROM dpsql_pairs GROUP BY dpsql_unit HAVING count() > 20)
    # SELECT dpsql_key_1, dpsql_unit FROM dpsql_pairs ANTI JOIN dpsql_above USING (dpsql_unit)
    # UNION ALL SELECT dpsql_key_1, dpsql_unit FROM (the other pairs, ranked) WHERE dpsql_rank <= 20
    if bound.counts_units:
        units = _list_units(bound)
        above, of_all = _ABOVE, "dpsql_units"
        within = "(SELECT dpsql_unit FROM dpsql_units WHERE dpsql_above)"
    else:
        units = compose(
            """
            dpsql_above AS MATERIALIZED (
                SELECT dpsql_unit FROM dpsql_pairs GROUP BY dpsql_unit HAVING system.main.count() > {groups}
            )
            """,
            groups=bound.max_groups_contributed,
        )
        above, within, of_all = "dpsql_pairs SEMI JOIN dpsql_above USING (dpsql_unit)", "dpsql_above", ""
    first = compose(
        """
        SELECT {columns} FROM dpsql_pairs ANTI JOIN {above} USING (dpsql_unit)
        UNION ALL
        {first}
        """,
        columns=columns,
        above=within,
        first=_select_first(rank_pairs(writer, above, names=rows.names, salts=bound.salts), columns, bound=bound),
    )
    return BoundedRows((f"dpsql_pairs AS MATERIALIZED ({select_pairs(writer, rows)})", units), first, of_all)


def _list_units(bound: Bound, weight: str = "") -> str:
    """Return the CTE of the units, which says of each whether it is above the bound, after its weight if there is one.

    dpsql_units: dpsql_unit, dpsql_weight, dpsql_above
    """
    return compose(
        """
        dpsql_units AS MATERIALIZED (
            SELECT {columns}, system.main.count() > {groups} AS dpsql_above FROM dpsql_pairs GROUP BY dpsql_unit
        )
        """,
        columns=[UNIT, *([f"{weight} AS dpsql_weight"] if weight else [])],
        groups=bound.max_groups_contributed,
    )


def _select_first(ranked: str, columns: Sequence[str], *, bound: Bound) -> str:
    """Return the SQL for the pairs of the first ranks."""
    template = "SELECT {columns} FROM ({ranked}) WHERE dpsql_rank <= {groups}"
    return compose(template, columns=columns, ranked=ranked, groups=bound.max_groups_contributed)


def weigh_contributions(
    writer: Writer, rows: UnitRows, *, bound: Bound, weights: Sequence[int], of_all: bool = False
) -> BoundedRows:
    """Bound the groups of each unit as `bound_contributions` does, and return WEIGHT in place of the unit.

    A unit with t selected groups has the weight weights[t - 1], an integer below 2**31, in each of them; `weights` has
    one item for every t up to the bound. `of_all` selects every pair, with the weight 0 if the bound drops it. A weight
    depends on the number of groups of a unit. In DuckDB the distinct pairs are therefore materialized and read twice
    under every bound, and only the units above it are drawn and sorted.

    Other engines rank all pairs, from which the weights follow, in one pass over the table. They may evaluate a CTE
    twice, and the table may change in between. A unit could then get the large weight of few groups and add it to many.
    """
    first = f"dpsql_rank <= {bound.max_groups_contributed:d}"
    if rows.ranked or not writer.native:
        weight = writer.looked_up(
            writer.listed(weights), f"system.main.least(dpsql_groups, {bound.max_groups_contributed:d})"
        )
        ranked = rows.sql
        if not rows.ranked:
            pairs = f"({select_pairs(writer, rows)})"
            ranked = count_groups_of_units(writer, rank_pairs(writer, pairs, names=rows.names, salts=bound.salts))
        weight = f"CASE WHEN {first} THEN {weight} ELSE 0 END" if of_all else weight
        weighed = compose(
            "SELECT {columns} FROM ({ranked})\nWHERE {first}",
            columns=[*rows.names, f"{weight} AS dpsql_weight", *[RANK] * bound.counts_units],
            ranked=ranked,
            first="" if of_all else first,
        )
        return BoundedRows((), weighed)
    listed = writer.listed(weights)
    own = writer.looked_up(listed, f"system.main.least(system.main.count(), {bound.max_groups_contributed:d})")
    ctes = f"dpsql_pairs AS MATERIALIZED ({select_pairs(writer, rows)})", _list_units(bound, own)
    cut = rank_pairs(writer, _ABOVE, names=rows.names, salts=bound.salts)
    least = writer.looked_up(listed, f"{bound.max_groups_contributed:d}")
    weighed = compose(
        """
        SELECT {keys}, dpsql_weight FROM dpsql_pairs JOIN dpsql_units USING (dpsql_unit) WHERE NOT dpsql_above
        UNION ALL
        SELECT {keys}, {weight} AS dpsql_weight FROM ({cut})
        """,
        keys=rows.names,
        weight=f"CASE WHEN {first} THEN {least} ELSE 0 END" if of_all else least,
        cut=cut if of_all else _select_first(cut, [*rows.names, UNIT], bound=bound),
    )
    return BoundedRows(ctes, weighed, "dpsql_units")


def filter_partitions(
    writer: Writer, base: str, *, names: Sequence[str], partitions: Partitions, parts: Sequence[str] = ()
) -> tuple[list[str], str]:
    """Drop the rows of `base` outside the listed partitions and, with salts, bound each unit to one partition.

    `base` selects the canonical keys `names`, UNIT and `parts`, of which each pair of group and unit then has one row.
    Return the CTEs, and the SELECT over them. The partition of a unit depends only on its own rows, the list and the
    salts of the session: it is the value with the minimum draw, ties broken by the value, as under a contribution bound
    of one group. A unit therefore adds to counts of one partition only, for all data, and the choice for another unit
    does not depend on it.
    """
    key, columns = names[partitions.key], [*names, UNIT, *parts]
    values = map(writer.expression, map(canonicalize, partitions.values))
    listed = compose(
        """
        dpsql_partitions AS MATERIALIZED (
            SELECT * FROM (VALUES {rows}) AS dpsql_listed({key}, dpsql_position)
        )
        """,
        rows=(f"({value}, CAST({position} AS BIGINT))" for position, value in enumerate(values)),
        key=key,
    )
    # WITH dpsql_partitions AS (
    #     SELECT * FROM (VALUES ('DE', 0), ('FR', 1)) AS dpsql_listed(dpsql_key_1, dpsql_position))
    # SELECT dpsql_key_1, dpsql_key_2, dpsql_unit FROM (rows)
    # WHERE dpsql_key_1 IN (SELECT dpsql_key_1 FROM dpsql_partitions)
    inside = compose(
        "SELECT {columns} FROM ({base}) WHERE {key} IN (SELECT {key} FROM dpsql_partitions)",
        columns=columns,
        base=base,
        key=key,
    )
    if partitions.salts is None:
        return [listed], inside
    distinct = compose(
        "dpsql_rows AS MATERIALIZED (SELECT DISTINCT {columns} FROM ({inside}))", columns=columns, inside=inside
    )
    # with salts, of these rows those of the one partition that each unit has drawn:
    # SELECT dpsql_key_1, dpsql_key_2, dpsql_unit
    # FROM dpsql_rows SEMI JOIN (the partition of the least draw of each unit) USING (dpsql_key_1, dpsql_unit)
    rows = UnitRows(compose("SELECT {key}, dpsql_unit FROM dpsql_rows", key=key), [key])
    own = bound_contributions(writer, rows, bound=Bound(1, partitions.salts))
    return [listed, distinct, *own.ctes], compose(
        "SELECT {columns} FROM dpsql_rows {semi} JOIN ({own}) AS dpsql_own USING ({key}, dpsql_unit)",
        columns=columns,
        semi=writer.semi,
        own=own.source,
        key=key,
    )


_ONE, _ZERO = Literal(1, BIGINT), Literal(0, BIGINT)


def build_row_steps(measure: Measure) -> Expression | None:
    """Return the steps of one row, a whole number that never fails; None where each row adds 1.

    A value is rounded down to whole steps; beyond a bound it counts as the bound, and NULL and NaN as 0.
    """
    argument, bounds = measure.argument, measure.row_bounds
    if argument is None:
        condition = widen_presence(measure.condition)
        return None if condition is None else Case(((condition, _ONE),), _ZERO, BIGINT)
    value = widen(argument)
    number, centre = value, None if measure.weight is None else measure.weight.centre
    if centre is not None:  # the distance from it, rounded to the nearest step
        number = Call("-", (value, Literal(float(centre), DOUBLE)), DOUBLE)
    scaled = Call("*", (number, Literal(float(1 / bounds.step), DOUBLE)), DOUBLE)
    is_exact = argument.type.family is not Family.DOUBLE and bounds.step == Fraction(
        1, 10 ** argument.type.precision[1]
    )
    if is_exact or centre is not None:
        scaled = Call("+", (scaled, Literal(0.5, DOUBLE)), DOUBLE)  # a whole number but for the rounding of the product
    steps: Expression = Cast(Call("floor", (scaled,), DOUBLE), BIGINT)
    (low, least), (high, most) = _find_ends(measure)

    def compare(operator: str, bound: Fraction) -> Expression:
        return Call(operator, (value, Literal(float(bound), DOUBLE)), BOOLEAN)

    # amount between 0 and 500 in steps of 0.01 becomes
    # CASE WHEN amount > 0 AND amount < 500 THEN CAST(floor(amount * 100 + 0.5) AS BIGINT)
    #      WHEN isnan(amount) THEN 0 WHEN amount >= 500 THEN 50000 WHEN amount <= 0 THEN 0 ELSE 0 END
    steps = Case(
        (  # most rows are within, so that an engine looks no further; NaN is below no bound, or above each
            (Call("and", (compare(">", low), compare("<", high)), BOOLEAN), steps),
            (Call("isnan", (value,), BOOLEAN), _ZERO),
            (compare(">=", high), Literal(most, BIGINT)),
            (compare("<=", low), Literal(least, BIGINT)),
        ),
        _ZERO,
        BIGINT,
    )
    return steps if measure.condition is None else Case(((measure.condition, steps),), _ZERO, BIGINT)


def _find_ends(measure: Measure) -> tuple[tuple[Fraction, int], tuple[Fraction, int]]:
    """Return the least and the greatest value that a row counts with, each with its steps."""
    bounds, weight = measure.row_bounds, measure.weight
    low, high = bounds.low * bounds.step, bounds.high * bounds.step
    if measure.row_range is None:
        return (low, bounds.low), (high, bounds.high)
    if weight is not None and weight.centre is not None:
        least, most = measure.row_range
        return (least, bounds.low // weight.rows), (most, bounds.high // weight.rows)
    least, most = (min(max(each, low), high) for each in measure.row_range)
    return (least, math.floor(least / bounds.step)), (most, math.floor(most / bounds.step))


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
    keys = [f"{writer.expression(key)} AS {name}" for key, name in zip(query.keys, names, strict=True)]
    unit = writer.expression(canonicalize(query.unit))
    products = list_products(query)
    steps: Sequence[Expression | None] = stored or [
        build_row_steps(products[at][0] if at in products else measure) for at, measure in enumerate(query.measures)
    ]
    rows = ["" if each is None else f"dpsql_row_{at}" for at, each in enumerate(steps, start=1)]
    read = [
        f"{writer.expression(make_total(each))} AS {row}"
        for each, row in zip(steps, rows, strict=True)
        if each is not None
    ]
    factors = {at: f"dpsql_factor_{at + 1}" for at, distances in products.items() if distances[1:]}
    for at, name in factors.items():
        factor = build_row_steps(products[at][1])
        read += [f"{writer.expression(make_total(factor))} AS {name}"] if factor is not None else []
    ranks = [RANK, GROUPS] if form is Form.RANKS else []
    present = f"({unit} IS NOT NULL)"
    base = writer.select([*keys, f"{unit} AS {UNIT}", *ranks, *read], query.body, where=present)
    is_alone, parts = form is not Form.ROWS, name_parts(query)
    added = [
        f"{add_rows(measure, row, alone=is_alone)} AS {part}"
        for measure, row, part in zip(query.measures, rows, parts, strict=True)
        if measure.weight is None
    ]
    sums, numbers, coupled = find_coupled(query)
    for at, name in coupled:
        if at in products:
            from dpsql.sql.rewrite.product_steps import write_sum

            number = _sum_rows(rows[find_divisors(query)[at]], alone=is_alone)
            multiplied = [rows[at], factors[at]] if at in factors else [rows[at]]
            product = write_sum(query.measures[at], multiplied, number=number)
            added.append(f"CAST({product} AS {writer.wide}) AS {name}")
            continue
        added.append(f"CAST({_sum_rows(rows[at], alone=is_alone)} AS {writer.wide}) AS {name}")
    pairs = compose(
        """
        SELECT {columns}
        FROM ({base})
        GROUP BY {pair}
        """,
        columns=[*names, UNIT, *ranks, *added],
        base=base,
        pair=[] if is_alone else [*names, UNIT],
    )
    if not sums:
        return pairs
    # for coupled measures, SELECT dpsql_key_1, dpsql_unit, (the part of each by their one weight) FROM (pairs)
    weights = CoupledParts(writer, query.measures, sums, numbers)
    weighed = [
        name if measure.weight is None else f"{weights.build_part(at)} AS {name}"
        for at, (measure, name) in enumerate(zip(query.measures, parts, strict=True))
    ]
    return compose("SELECT {columns} FROM ({pairs})", columns=[*names, UNIT, *ranks, *weighed], pairs=pairs)


def list_products(query: PrivateQuery) -> dict[int, list[Measure]]:
    """Return the distances that are multiplied in sums of products, by the places of these in the query."""
    places = [at for at, measure in enumerate(query.measures) if measure.factor is not None]
    if not places:
        return {}
    from dpsql.sql.rewrite.product_steps import list_distances

    return {at: list_distances(query.measures[at]) for at in places}


def find_coupled(query: PrivateQuery) -> tuple[dict[int, str], dict[int, str], list[tuple[int, str]]]:
    """Return the columns of coupled measures by their places: of sums, and of numbers of rows around a middle.

    Then come all of these columns, each with the place of the measure whose rows it adds up.
    """
    coupled = {at: measure.weight for at, measure in enumerate(query.measures) if measure.weight is not None}
    sums = {at: f"dpsql_added_{at + 1}" for at in coupled}
    # what is around the middle of a range is divided by the measure that counts its rows
    divisors, counted = find_divisors(query), dict[int, str]()
    centred = [at for at, weight in coupled.items() if weight.centre is not None]
    for at in centred:
        counted.setdefault(divisors[at], f"dpsql_number_{at + 1}")
    return sums, {at: counted[divisors[at]] for at in centred}, [*sums.items(), *counted.items()]


def find_divisors(query: PrivateQuery) -> dict[int, int]:
    """Return the place of the measure that divides each measure of an average or spread."""
    return {at: each.divisor for each in query.outputs if each.divisor is not None for at in each.places}


def build_stored_sums(
    writer: Writer, query: PrivateQuery, *, names: Sequence[str], stored: Sequence[Expression]
) -> str:
    """Return the SQL for the groups whose counts are stored: the keys `names`, and the sums of the measures."""
    expressions = zip((*query.keys, *stored), (*names, *name_sums(query)), strict=True)
    return writer.select([f"{writer.expression(each)} AS {name}" for each, name in expressions], query.body)


def name_sums(query: PrivateQuery) -> list[str]:
    """Return the names of the columns of the measures of groups: the first is the count that ranks."""
    return [f"dpsql_measure_{at + 1}" for at in range(len(query.measures))]


def name_parts(query: PrivateQuery) -> list[str]:
    """Return the names of the columns of what each unit adds to the measures."""
    return [f"dpsql_part_{at + 1}" for at in range(len(query.measures))]


def sum_contributions(query: PrivateQuery) -> list[str]:
    """Return the sums of the contributions of units to each measure, 0 without any; of values how many there are."""
    return [
        f"system.main.count(DISTINCT {part}) AS {name}"
        if measure.aggregate is Aggregate.ITEMS
        else f"COALESCE(CAST(system.main.sum({part}) AS BIGINT), 0) AS {name}"
        for measure, part, name in zip(query.measures, name_parts(query), name_sums(query), strict=True)
    ]


def add_rows(measure: Measure, row: str, *, alone: bool) -> str:
    """Return what a unit adds to a group: its rows' steps added up and clamped, or 1 for each unit that counts.

    With `alone` there is one row, which needs no aggregate.
    """
    if measure.aggregate is Aggregate.UNITS:
        return f"CAST({(row if alone else f'system.main.max({row})') if row else '1'} AS BIGINT)"
    return f"CAST({clamp(_sum_rows(row, alone=alone), measure.bounds or ContributionRange(0, 1))} AS BIGINT)"


def _sum_rows(row: str, *, alone: bool) -> str:
    """Return the steps of the rows of a unit, added up."""
    return row if alone else f"system.main.sum({row})" if row else "system.main.count()"


def clamp(number: str, bounds: ContributionRange) -> str:
    """Return a number between bounds: the nearer bound where it is beyond."""
    return f"system.main.least(system.main.greatest({number}, {bounds.low:d}), {bounds.high:d})"


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
        shares = [divide(f"({size} * {self._bound(each)})", self._size(each, least=1)) for each in others if each != at]
        most = self._bound(at, scale=scale)
        whole = column if scale == 1 else f"({column} * {scale:d})"
        part = self._sign(at, f"system.main.least({', '.join([most, *shares])})" if shares else most)
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
