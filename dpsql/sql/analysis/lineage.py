"""Lineage: the stored columns that an expression is worked out from, through subqueries in FROM."""

from __future__ import annotations

from dpsql.sql.ir.catalog import Catalog, Table
from dpsql.sql.ir.tree import (
    Column,
    Combined,
    Cut,
    Derived,
    Exists,
    Expression,
    InQuery,
    Joined,
    Numbered,
    Relation,
    Scalar,
    Scan,
    walk,
)
from dpsql.sql.ir.types import find_read_type

__all__ = ["find_private_columns", "find_sole_column", "find_stored_column"]

_Relations = dict[int, Scan | tuple[Derived, ...]]


def find_sole_column(expression: Expression, source: Relation, *, catalog: Catalog) -> tuple[str, str] | None:
    """Return the one stored column that an expression is worked out from, with its private table, or None."""
    columns = _stored_columns(expression, _relations(source))
    if len(columns) != 1:
        return None
    ((_, path, name),) = columns
    private = _find_private(path, catalog)
    return (private[0].name, name) if len(private) == 1 and name else None


def find_private_columns(expression: Expression, source: Relation, *, catalog: Catalog) -> tuple[tuple[str, str], ...]:
    """Return the stored columns of numbers of private tables that an expression reads, as (table, column), sorted."""
    columns = _stored_columns(expression, _relations(source))
    found = {(table, name) for _, path, name in columns for table in _find_private(path, catalog) if name}
    return tuple(sorted((table.name, name) for table, name in found if _has_numbers(table, name)))


def find_stored_column(column: Column, source: Relation, *, catalog: Catalog) -> tuple[Table, str] | None:
    """Return the stored column of a private table that a column is, unchanged through subqueries; None for another."""
    relation = _relations(source)[column.relation]
    if isinstance(relation, Scan):
        private = _find_private(relation.path, catalog)
        return (private[0], column.name) if len(private) == 1 else None
    if len(relation) != 1:
        return None
    output = relation[0].outputs[int(column.name.removeprefix("c")) - 1]
    return find_stored_column(output, relation[0].body.source, catalog=catalog) if isinstance(output, Column) else None


def _find_private(path: tuple[str, ...], catalog: Catalog) -> list[Table]:
    return [table for table in catalog.tables if table.path == path and table.privacy_unit is not None]


def _has_numbers(table: Table, column: str) -> bool:
    return any(name == column and find_read_type(type_).is_number for name, type_ in table.columns)


def _stored_columns(
    expression: Expression, relations: _Relations, *, seen: set[tuple[int, int]] | None = None
) -> set[tuple[int, tuple[str, ...], str]]:
    """Return the columns of stored tables that an expression reads, each with the number and the path of its table.

    Outputs of subqueries that were `seen` are passed over: each may be named many times, in each of many subqueries.
    What a subquery in it reads is a column of no table: it may be any row's. So is the number of an item of unnest, and
    what UNION puts together: they make several values of one.
    """
    found, seen = set[tuple[int, tuple[str, ...], str]](), set() if seen is None else seen
    for part in walk(expression):
        if isinstance(part, InQuery | Exists | Scalar):
            found.add((part.source.number, (), ""))
        if not isinstance(part, Column):
            continue
        relation = relations[part.relation]
        if isinstance(relation, Scan):
            found.add((part.relation, relation.path, part.name))
            continue
        if not relation:
            found.add((part.relation, (), ""))
        for subquery in relation:
            at = int(part.name.removeprefix("c")) - 1
            if (id(subquery), at) not in seen:
                seen.add((id(subquery), at))
                found |= _stored_columns(subquery.outputs[at], _relations(subquery.body.source), seen=seen)
    return found


def _relations(relation: Relation) -> _Relations:
    """Return the tables and subqueries of one FROM, by their numbers: for each the SELECTs that its rows come of."""
    match relation:
        case Joined():
            return _relations(relation.left) | _relations(relation.right)
        case Scan():
            return {relation.number: relation}
        case Derived():
            return {relation.number: (relation,)}
        case Numbered() | Combined():  # no one SELECT
            return {relation.number: ()}
        case Cut():
            return {relation.number: (relation.source,)}
