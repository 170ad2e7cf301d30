"""Rows of one unit that FROM can make: of all tables together, and with one row of a table.

The policy bounds the rows of one unit in each private table. A join pairs rows of one unit, so the numbers of both
sides are multiplied; a row of a public table belongs to no unit, and counts as one. Semi joins, IN and EXISTS keep
rows and make none. UNION adds the rows of its sides. A subquery that groups has at most as many rows as it reads, and
one for each unit where it groups by the unit alone; QUALIFY row_number() OVER (PARTITION BY unit) <= k leaves k. Where
it groups by other keys too, a group of the query that has one value of each of them has one row of each unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from dpsql.sql.ir.tree import (
    Call,
    ColumnRef,
    Combined,
    Cut,
    Derived,
    Expression,
    Joined,
    Literal,
    Numbered,
    Relation,
    Scan,
    Window,
    is_aggregate,
    split_conjuncts,
    strip_casts,
    walk,
)

Count = int | float  # whole, or infinite
_FILTERS = frozenset(["SEMI", "ANTI"])


@dataclass(frozen=True, slots=True)
class TableRows:
    """Bound of the rows of one unit in a private table, infinite without one, and the column of the unit."""

    name: str
    rows: Count
    unit: str


@dataclass(frozen=True, slots=True)
class Rows:
    """Most rows of one unit in a relation: `total`, and `with_row` with the same row of each relation in it."""

    total: Count
    with_row: Mapping[int, Count]


Columns = frozenset[tuple[int, str]]  # by the number of their relation and their name
_NO_COLUMNS = Columns()


def count_rows(
    relation: Relation, tables: Mapping[tuple[str, ...], TableRows], *, grouped: Columns = _NO_COLUMNS
) -> Rows:
    """Return how many rows of one unit a relation can have, given the private tables by their paths.

    Each of the `grouped` columns has one value in all of these rows: they are those of one group.
    """
    match relation:
        case Scan(number=number, path=path):
            return Rows(tables[path].rows if path in tables else 1, {number: 1})
        case Numbered(number=number, count=count):
            return Rows(count, {number: 1})
        case Cut(source=source):
            return count_rows(source, tables)
        case Derived():
            fixed = tuple(each for at, each in enumerate(relation.outputs, 1) if (relation.number, f"c{at}") in grouped)
            columns = frozenset((each.relation, each.name) for each in fixed if isinstance(each, ColumnRef))
            inner = count_rows(relation.body.source, tables, grouped=columns)
            total = (
                1 if _is_one_row(relation, tables, fixed=fixed) else min(inner.total, _count_first(relation, tables))
            )
            return Rows(total, {**inner.with_row, relation.number: 1})
        case Combined():
            return _combine(relation, tables)
        case Joined():
            return _join(relation, tables, grouped=grouped)


def _combine(relation: Combined, tables: Mapping[tuple[str, ...], TableRows]) -> Rows:
    branches = [count_rows(branch, tables) for branch in relation.branches]
    totals = [branch.total for branch in branches]
    # UNION without ALL drops rows that are equal, but a unit may have none of these: the sum holds for both.
    total = {"INTERSECT": min(totals), "EXCEPT": totals[0]}.get(relation.kind, sum(totals))
    return Rows(
        total, {**{at: each for branch in branches for at, each in branch.with_row.items()}, relation.number: 1}
    )


def _join(relation: Joined, tables: Mapping[tuple[str, ...], TableRows], *, grouped: Columns) -> Rows:
    left, right = (count_rows(side, tables, grouped=grouped) for side in (relation.left, relation.right))
    if relation.kind in _FILTERS:
        return left
    if _is_looked_up(relation):
        right = Rows(1, right.with_row)
    # visits v JOIN orders o ON v.unit = o.unit: with 3 and 20 rows of a unit 60, where each row of v is in 20
    total = left.total * right.total
    if relation.kind == "FULL":  # where none has a partner, all of both sides are there
        total = max(total, left.total + right.total)
    return Rows(
        total,
        {
            **{at: each * right.total for at, each in left.with_row.items()},
            **{at: each * left.total for at, each in right.with_row.items()},
        },
    )


def _is_looked_up(relation: Joined) -> bool:
    """Say whether the right side has at most one row for each row of the left: it is joined by its one group key."""
    right, on = relation.right, relation.on
    if not isinstance(right, Derived) or right.grouping != "1" or not isinstance(on, Call) or on.function != "=":
        return False
    sides = (strip_casts(side) for side in on.arguments)
    return any(isinstance(side, ColumnRef) and (side.relation, side.name) == (right.number, "c1") for side in sides)


def list_sources(relation: Relation) -> dict[int, Relation]:
    """Return the relations of one FROM whose columns it has, by their numbers."""
    match relation:
        case Joined(left=left, right=right):
            return list_sources(left) | list_sources(right)
    return {relation.number: relation}


def list_scans_of_rows(relation: Relation) -> list[Scan]:
    """Return the stored tables whose rows a relation has, in their order, without those that only filter."""
    match relation:
        case Scan():
            return [relation]
        case Numbered():
            return []
        case Cut(source=source):
            return list_scans_of_rows(source)
        case Derived(body=body):
            return list_scans_of_rows(body.source)
        case Combined(branches=branches):
            return [scan for branch in branches for scan in list_scans_of_rows(branch)]
        case Joined(left=left, right=right, kind=kind):
            passed = kind in _FILTERS or _is_looked_up(relation)
            return [*list_scans_of_rows(left), *([] if passed else list_scans_of_rows(right))]


def _is_one_row(relation: Derived, tables: Mapping[tuple[str, ...], TableRows], *, fixed: Sequence[Expression]) -> bool:
    """Say whether a subquery has one row for each unit: all that it groups by are the unit, constants, and fixed."""
    # SELECT min(unit), sum(x) FROM t is one row in all; SELECT unit, x FROM t has a row for each that it reads.
    if not relation.grouping:
        return bool(relation.outputs) and any(is_aggregate(part) for each in relation.outputs for part in walk(each))
    keys = list_keys(relation)
    return any(_is_unit(key, relation, tables=tables) for key in keys) and all(
        isinstance(key, Literal) or key in fixed or _is_unit(key, relation, tables=tables) for key in keys
    )


def _count_first(relation: Derived, tables: Mapping[tuple[str, ...], TableRows]) -> Count:
    """Return how many rows of one unit a condition on row_number() OVER (PARTITION BY unit) leaves at most."""
    source, found = relation.body.source, list[Count]([inf])
    if not isinstance(source, Derived):
        return inf
    for condition in split_conjuncts(relation.body.where):
        match condition:
            case Call(function="=" | "<=" | "<" as sign, arguments=(ColumnRef() as column, Literal(value=int(most)))):
                ranked = source.outputs[int(column.name[1:]) - 1] if column.relation == source.number else None
                if not isinstance(ranked, Window) or ranked.function != "row_number" or not ranked.partition:
                    continue
                if all(_is_unit(each, source, tables=tables) for each in ranked.partition):
                    found.append({"=": 1, "<=": max(1, most), "<": max(1, most - 1)}[sign])
    return min(found)


def list_keys(relation: Derived) -> tuple[Expression, ...]:
    """Return what a subquery groups by."""
    if relation.grouping == "ALL":
        return tuple(each for each in relation.outputs if not any(map(is_aggregate, walk(each))))
    return relation.outputs[: len(relation.grouping.split(","))] if relation.grouping else ()


def _is_unit(expression: Expression, relation: Derived, *, tables: Mapping[tuple[str, ...], TableRows]) -> bool:
    """Say whether an expression over the rows that a subquery reads is the privacy unit, unchanged."""
    inner = strip_casts(expression)
    if isinstance(inner, Call) and inner.function in {"min", "coalesce"}:  # of a link, and of FULL JOIN ... USING
        return all(_is_unit(each, relation, tables=tables) for each in inner.arguments)
    if not isinstance(inner, ColumnRef):
        return False
    source = list_sources(relation.body.source).get(inner.relation)
    match source:
        case Scan(path=path):
            return path in tables and inner.name == tables[path].unit
        case Derived():
            return _is_unit(source.outputs[int(inner.name.removeprefix("c")) - 1], source, tables=tables)
        case Combined():
            at = int(inner.name.removeprefix("c")) - 1
            return all(_is_unit(branch.outputs[at], branch, tables=tables) for branch in source.branches)
    return False
