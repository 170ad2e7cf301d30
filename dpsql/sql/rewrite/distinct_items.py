"""Different values in a group: rows with the few values of each unit that count, for COUNT(DISTINCT x).

Two units can have the same value, so the number of values is no sum over units. What each unit has in a group is
therefore not one row, but one for each of its values there, and the values of all units are counted together.

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

from collections.abc import Mapping, Sequence

from dpsql.sql.ir.measures import Aggregate, Measure, is_present
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.ir.transforms import canonicalize, make_total
from dpsql.sql.ir.tree import Case, Expression, Family, join_conjuncts, split_conjuncts
from dpsql.sql.render.duckdb import Writer, compose, sort_nulls_last
from dpsql.sql.rewrite.contributions import (
    UNIT,
    CoupledParts,
    add_rows,
    build_row_steps,
    find_coupled,
    find_divisors,
    list_products,
    name_parts,
)

ONE = "dpsql_one"
_APART = 0x9E37_79B9_7F4A_7C15  # the draw of a value is not that of a group with the same key


def counts_items(query: PrivateQuery) -> bool:
    """Say whether different values are counted."""
    return any(measure.aggregate is Aggregate.ITEMS for measure in query.measures)


def name_items(query: PrivateQuery) -> dict[str, Expression]:
    """Return the values that are counted, by the names of their columns."""
    return {
        f"dpsql_item_{at}": _find_item(measure)
        for at, measure in enumerate(query.measures, start=1)
        if measure.aggregate is Aggregate.ITEMS
    }


def _find_item(measure: Measure) -> Expression:
    """Return the value of a row, NULL where it does not count; equal values are identical."""
    argument = measure.argument
    assert argument is not None  # noqa: S101 - of every measure of values
    present = is_present(argument) if argument.type.family is Family.DOUBLE else ()  # NULL is NULL in any case
    condition = join_conjuncts([*split_conjuncts(measure.condition), *present])
    item = make_total(argument)
    if condition is not None:
        item = Case(((make_total(condition), item),), None, argument.type)
    return canonicalize(item)


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
    items, pair = name_items(query), [*names, UNIT]
    rows = _gather_values(writer, query, names=names, items=items)
    places = {item: item.replace("item", "place") for item in items}
    drawn = [_draw(writer, query, item=item) for item in items]
    within = f"PARTITION BY {', '.join(pair)}"
    ranked = [
        f"system.main.{'row_number' if len(items) == 1 else 'dense_rank'}() OVER ({within} ORDER BY "
        f"CASE WHEN {item} IS NULL THEN 1 ELSE 0 END, {item.replace('item', 'draw')}, {sort_nulls_last([item])}) "
        f"AS {place}"
        for item, place in places.items()
    ]
    number = next(iter(places.values()))
    if len(items) > 1:
        number = "dpsql_number"
        ranked.append(f"system.main.row_number() OVER ({within} ORDER BY {sort_nulls_last(items)}) AS {number}")
    ranked_rows = compose(
        "SELECT {columns} FROM (SELECT *, {drawn} FROM ({rows}))",
        columns=[*pair, *items, *ranked, *_add_over_pairs(writer, query, within=within)],
        drawn=drawn,
        rows=rows,
    )
    limits = {
        f"dpsql_item_{at}": measure.width
        for at, measure in enumerate(query.measures, start=1)
        if measure.aggregate is Aggregate.ITEMS
    }
    first = f"CASE WHEN {number} <= 1 THEN {{part}} ELSE 0 END"
    parts = _write_parts(writer, query, first=first, places=places, limits=limits)
    (item, *more) = items
    return compose(
        """
        SELECT {columns} FROM ({rows})
        WHERE {where}
        """,
        columns=[*pair, *parts, f"{first.format(part='1')} AS {ONE}"],
        rows=ranked_rows,
        where="" if more else f"{places[item]} <= {limits[item]:d}",
    )


def _gather_values(
    writer: Writer, query: PrivateQuery, *, names: Sequence[str], items: Mapping[str, Expression]
) -> str:
    """Return the SQL for one row per group, unit and values, with the steps of its rows added up."""
    keys = [f"{writer.expression(key)} AS {name}" for key, name in zip(query.keys, names, strict=True)]
    unit = writer.expression(canonicalize(query.unit))
    read = [f"{writer.expression(value)} AS {name}" for name, value in items.items()]
    added, products = list[str](), list_products(query)
    for at, measure in enumerate(query.measures, start=1):
        if measure.aggregate is Aggregate.ITEMS:
            continue
        if at - 1 in products:
            read += _read_distances(writer, products[at - 1], at=at)
            added.append(_write_product(query, at=at))
            continue
        steps, row = build_row_steps(measure), f"dpsql_row_{at}"
        if steps is not None:
            read.append(f"{writer.expression(make_total(steps))} AS {row}")
            together = "max" if measure.aggregate is Aggregate.UNITS else "sum"
            added.append(f"system.main.{together}({row}) AS {row}")
        elif measure.aggregate is not Aggregate.UNITS:
            added.append(f"system.main.count() AS {row}")
    base = writer.select([*keys, f"{unit} AS {UNIT}", *read], query.body, where=f"({unit} IS NOT NULL)")
    columns = [*names, UNIT, *items]
    return compose(
        "SELECT {columns} FROM ({base}) GROUP BY {groups}", columns=[*columns, *added], base=base, groups=columns
    )


def _read_distances(writer: Writer, distances: Sequence[Measure], *, at: int) -> list[str]:
    """Return the columns of the distances whose products measure number `at` adds up, counted from 1."""
    names = [f"dpsql_row_{at}", f"dpsql_factor_{at}"]
    steps = [build_row_steps(each) for each in distances]
    return [
        f"{writer.expression(make_total(each))} AS {name}"
        for each, name in zip(steps, names, strict=False)
        if each is not None
    ]


def _write_product(query: PrivateQuery, *, at: int) -> str:
    """Return the sum of products of measure number `at`, counted from 1, over the rows of one value."""
    from dpsql.sql.rewrite.product_steps import write_sum

    measure, divisor = query.measures[at - 1], find_divisors(query)[at - 1] + 1
    rows = [f"dpsql_row_{at}", *([] if measure.is_of_squares else [f"dpsql_factor_{at}"])]
    return f"{write_sum(measure, rows, number=f'system.main.sum(dpsql_row_{divisor})')} AS dpsql_row_{at}"


def _draw(writer: Writer, query: PrivateQuery, *, item: str) -> str:
    """Return the draw by which the values of a unit are taken in order."""
    assert query.item_salts is not None  # noqa: S101 - of every planned query
    first, second = (salt ^ _APART for salt in query.item_salts)
    return f"{writer.draw([item], UNIT, salts=(first, second))} AS {item.replace('item', 'draw')}"


def _add_over_pairs(writer: Writer, query: PrivateQuery, *, within: str) -> list[str]:
    """Return the columns of what the rows of a pair add up to."""
    _, _, coupled = find_coupled(query)
    columns = list[str]()
    for at, measure in enumerate(query.measures):
        row = f"dpsql_row_{at + 1}"
        if measure.aggregate is Aggregate.ITEMS or measure.weight is not None:
            continue
        if measure.aggregate is not Aggregate.UNITS:
            columns.append(f"system.main.sum({row}) OVER ({within}) AS {row}")
        elif build_row_steps(measure) is not None:
            columns.append(f"system.main.max({row}) OVER ({within}) AS {row}")
    for at, name in coupled:
        columns.append(f"CAST(system.main.sum(dpsql_row_{at + 1}) OVER ({within}) AS {writer.wide}) AS {name}")
    return columns


def _write_parts(
    writer: Writer,
    query: PrivateQuery,
    *,
    first: str,
    places: Mapping[str, str],
    limits: Mapping[str, int],
) -> list[str]:
    """Return the part of each measure in one row: a value that counts, or in the first row what the unit adds."""
    coupled_sums, numbers, _ = find_coupled(query)
    weights = CoupledParts(writer, query.measures, coupled_sums, numbers)
    written = list[str]()
    for at, (measure, part) in enumerate(zip(query.measures, name_parts(query), strict=True)):
        item, row = f"dpsql_item_{at + 1}", f"dpsql_row_{at + 1}"
        if measure.aggregate is Aggregate.ITEMS:
            kept = item if len(limits) == 1 else f"CASE WHEN {places[item]} <= {limits[item]:d} THEN {item} END"
            written.append(f"{kept} AS {part}")
            continue
        if measure.weight is not None:
            added = weights.build_part(at)
        else:
            is_one = measure.aggregate is Aggregate.UNITS and build_row_steps(measure) is None
            added = add_rows(measure, "" if is_one else row, alone=True)
        written.append(f"{first.format(part=added)} AS {part}")
    return written


def rank_item_rows(
    writer: Writer, rows: str, *, names: Sequence[str], salts: tuple[int, int] | None, counted: bool = False
) -> str:
    """Return the SQL for a relation of rows with RANK, the rank of their pair within the unit, from 1.

    Pairs are ranked as `rank_pairs` does. With `counted` the rows have GROUPS, too.
    """
    by = [] if salts is None else ["dpsql_draw"]
    if by:
        draw = writer.draw(names, UNIT, salts=salts or (0, 0))
        rows = compose("(SELECT *, {draw} AS dpsql_draw FROM {rows})", draw=draw, rows=rows)
    ranked = compose(
        "SELECT *, system.main.dense_rank() OVER (PARTITION BY dpsql_unit ORDER BY {order}) AS dpsql_rank FROM {rows}",
        order=[*by, sort_nulls_last(names)],
        rows=rows,
    )
    if not counted:
        return ranked
    return compose(
        "SELECT *, CAST({last} OVER (PARTITION BY dpsql_unit) AS BIGINT) AS dpsql_groups FROM ({ranked})",
        last="system.main.max(dpsql_rank)",
        ranked=ranked,
    )
