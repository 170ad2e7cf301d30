"""Outer SELECT over the answer of a private query: the tables it may read, and the outputs it passes on.

It is post-processing of a release, and free. Only released and public rows may reach it: a statement in which it reads
a private table is always refused. It is computed apart from the data; the columns that it names of public tables are
fetched for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import TypeVar, cast

from dpsql.dialects import ENUM
from dpsql.errors import Place, Refusal, Unsupported
from dpsql.sql.ir.catalog import Catalog, Table
from dpsql.sql.ir.statements import PrivateQuery, PublicQuery, WrappedQuery
from dpsql.sql.ir.tree import (
    Column,
    Derived,
    Expression,
    FromWhere,
    Joined,
    Literal,
    Relation,
    Scan,
    Sorted,
    is_aggregate,
    stored_column,
)
from dpsql.sql.ir.types import BIGINT, Family, Type
from dpsql.sql.syntax.split_statement import RELEASED

__all__ = ["HOME", "PATH", "RANK", "answer_table", "find_origin", "find_unchanged_outputs", "order_by_rank"]
__all__ += ["passes_rows", "wrap_query"]

HOME = ("memory", "dpsql evaluator")
PATH = (*HOME, "released")  # the table of the answer, with the columns c1, c2, ... and its rank
RANK = "rank"
_KEEPS_RIGHT = frozenset(["RIGHT", "FULL"])  # joins that have rows although their left side has none
Found = TypeVar("Found")


def answer_table(query: PrivateQuery) -> Table:
    """Return the answer of a private query as a table; names and types are those that its text alone decides."""
    columns = zip((output.name for output in query.outputs), query.output_types, strict=True)
    return Table(RELEASED, PATH, tuple(columns), privacy_unit=None)


def wrap_query(inner: PrivateQuery, outer: PublicQuery, *, catalog: Catalog, place: Place | None) -> WrappedQuery:
    """Return both as one question; refuse an outer SELECT that reads a private table, or not the answer once."""
    public = {table.path for table in catalog.tables if table.privacy_unit is None}
    scans = list(_all(outer, Scan))
    if any(scan.path not in {PATH, *public} for scan in scans):
        reason = "A SELECT over the answer of a private query may read no private table besides."
        hint = "Ask about it in a statement of its own, and write what that answers into this one."
        raise Refusal("wrapping", reason, hint=hint, place=place)
    others = [scan for scan in scans if scan.path != PATH]
    if len(scans) != len(others) + 1:
        reason = "A SELECT over the answer of a private query reads that answer once."
        raise Unsupported("wrapping", reason, hint="Name it in FROM, once.", place=place)
    read = {scan.number: _columns(outer, scan, place=place) for scan in others}
    beside = tuple(((*HOME, f"public {scan.number}"), _fetching(scan, read[scan.number])) for scan in others)
    return WrappedQuery(inner, order_by_rank(_moved(outer, read)), beside)


def _columns(outer: PublicQuery, scan: Scan, *, place: Place | None) -> tuple[Column, ...]:
    """Return the columns of a public table that the query names; refuse those that do not travel as they are."""
    named = tuple(dict.fromkeys(column for column in _all(outer, Column) if column.relation == scan.number))
    if any(column.type.name not in {"FLOAT", ENUM} and column.type.family is Family.OPAQUE for column in named):
        reason = "A column of a public table has a type with which nothing is computed around a private query."
        hint = "Name the columns that you need, or ask for this one in a statement of its own."
        raise Unsupported("wrapping", reason, hint=hint, place=place)
    return named


def _fetching(scan: Scan, columns: tuple[Column, ...]) -> PublicQuery:
    """Return the query for these columns of all rows of a public table; for a constant where none is named."""
    read = tuple(stored_column(column.relation, column.name, type_=column.type) for column in columns)
    outputs = read or (Literal(1, BIGINT),)
    names = tuple(f"c{at}" for at in range(1, len(outputs) + 1))
    return PublicQuery(
        names=names,
        outputs=outputs,
        distinct=False,
        body=FromWhere(scan, None),
        keys=None,
        by_all=False,
        having=None,
        order=(),
        limit=None,
        offset=0,
    )


def _moved(query: PublicQuery, read: Mapping[int, tuple[Column, ...]]) -> PublicQuery:
    """Return the query with its public tables, by their number, where they are put for it, and their columns there."""

    def moved(node: object) -> object:
        match node:
            case Scan(number=number) if number in read:
                return replace(node, path=(*HOME, f"public {number}"))
            case Column(relation=number) if number in read:
                return replace(node, name=f"c{read[number].index(node) + 1}")
            case tuple():
                return tuple(map(moved, node))
            case Type() | Enum():
                return node
        if not is_dataclass(node) or isinstance(node, type):
            return node
        return replace(node, **{field.name: moved(getattr(node, field.name)) for field in fields(node)})

    return cast("PublicQuery", moved(query))


def _all(node: object, kind: type[Found]) -> Iterator[Found]:
    """Yield every node of a kind in a tree."""
    if isinstance(node, kind):
        yield node
    elif isinstance(node, tuple):
        for part in node:
            yield from _all(part, kind)
    elif is_dataclass(node):
        for field in fields(node):
            yield from _all(getattr(node, field.name), kind)


def order_by_rank(query: PublicQuery) -> PublicQuery:
    """Return the query with its rows, and those that tie, in the order in which they were released.

    Where rows are grouped, or made distinct, none of them has a rank.
    """
    if query.distinct or query.keys is not None:
        return query
    source, rank = _ranked(query.body.source)
    if rank is None:
        return query
    term = Sorted(rank, descending=False, nulls_first=False)
    return replace(query, body=replace(query.body, source=source), order=(*query.order, term))


def _ranked(relation: Relation) -> tuple[Relation, Column | None]:
    """Return the relation with the rank of the answer among its columns; None where it is not in it row by row."""
    if isinstance(relation, Scan):
        return relation, Column(relation.number, RANK, BIGINT) if relation.path == PATH else None
    if isinstance(relation, Joined):
        left, rank = _ranked(relation.left)
        right, other = _ranked(relation.right)
        return replace(relation, left=left, right=right), rank or other
    if not isinstance(relation, Derived) or not passes_rows(relation):
        return relation, None
    source, rank = _ranked(relation.body.source)
    if rank is None:
        return relation, None
    outputs = (*relation.outputs, rank)
    inside = replace(relation, outputs=outputs, body=replace(relation.body, source=source))
    return inside, Column(relation.number, f"c{len(outputs)}", BIGINT)


def passes_rows(derived: Derived) -> bool:
    """Say whether a subquery only chooses columns and rows; an aggregate without GROUP BY has a row also for none."""
    return not derived.grouping and not any(map(is_aggregate, derived.outputs))


def find_unchanged_outputs(outer: PublicQuery, column: int) -> tuple[int, ...]:
    """Return which outputs are column number `column` (from 0) of the answer, unchanged, a row for a row of it."""
    if outer.distinct or outer.keys is not None:
        return ()
    source = outer.body.source
    return tuple(at for at, output in enumerate(outer.outputs) if find_origin(output, source) == column)


def find_origin(expression: Expression, source: Relation) -> int | None:
    """Return the column of the answer that an expression over `source` is, unchanged; None for any other."""
    if not isinstance(expression, Column):
        return None
    at = int(expression.name.removeprefix("c")) - 1  # the columns of all released tables are numbered
    match source:
        case Joined(left=left, kind=kind, right=right):
            found = (
                None if kind in _KEEPS_RIGHT else find_origin(expression, left)
            )  # what a join may leave NULL is none
            return find_origin(expression, right) if found is None and kind not in {"LEFT", "FULL"} else found
        case Scan(number=expression.relation, path=path) if path == PATH:
            return at
        case Derived(number=expression.relation) if passes_rows(source):
            return find_origin(source.outputs[at], source.body.source)
    return None
