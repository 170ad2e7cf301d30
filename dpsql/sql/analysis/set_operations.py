"""UNION, INTERSECT and EXCEPT: two subqueries into one, whose every private row still belongs to its unit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dpsql.errors import Place, Refusal, Unsupported
from dpsql.sql.analysis.reader import Reader
from dpsql.sql.functions.coercion import unify_types
from dpsql.sql.ir.canonical_keys import canonicalize
from dpsql.sql.ir.scope import ScopeColumn, ScopeTable
from dpsql.sql.ir.tree import Cast, Column, Combined, Derived, Expression, FromWhere, Literal, find_collations
from dpsql.sql.ir.types import has_one_form, set_collations
from dpsql.sql.lexer import ascii_lower
from dpsql.sql.syntax.sqlglot_nodes import only

if TYPE_CHECKING:
    from sqlglot.expressions import Expression as Node

__all__ = ["SET_OPERATIONS", "Branch", "combine_branches", "split_branches"]

SET_OPERATIONS = frozenset(["Union", "Intersect", "Except"])
_INSIDE = 400  # numbers of relations inside a subquery: those of tables are below, see subqueries.py
Branch = tuple[Derived, ScopeTable]


def split_branches(reader: Reader, node: Node) -> tuple[Node, Node]:
    """Return both branches of a set operation; refuse clauses behind the last one, which apply to both."""
    for name in ("order", "limit", "offset"):
        if node.args.get(name) is not None:
            reason = "ORDER BY and LIMIT behind UNION are not read."
            hint = "Leave them out, or order and limit a subquery that holds the UNION."
            raise Unsupported("subquery", reason, hint=hint, place=reader.place(node.args[name]))
    only(reader.statement, node, "this", "expression", "distinct", "with_")
    if type(node).__name__ != "Union" and not node.args.get("distinct"):
        reason, hint = "INTERSECT ALL and EXCEPT ALL are not read.", "Leave ALL out."
        raise Unsupported("subquery", reason, hint=hint, place=reader.place(node))
    return node.this, node.expression


def combine_branches(reader: Reader, node: Node, *, left: Branch, right: Branch, alias: str) -> Branch:
    """Return the set operation over two branches, under the names of the first.

    A column is the unit where it is the unit in both; columns that are compared are made canonical first.
    """
    (first, table), (second, other) = left, right
    where = reader.at(node)
    _check(table, other, where=where)
    compares = type(node).__name__ != "Union" or bool(node.args.get("distinct"))
    pairs = [
        _alike(reader, node, pair=pair, compares=compares) for pair in zip(first.outputs, second.outputs, strict=True)
    ]
    branches = tuple(
        replace(derived, outputs=tuple(pair[at] for pair in pairs)) for at, derived in enumerate((first, second))
    )
    kind = type(node).__name__.upper() + ("" if compares else " ALL")
    relation = Combined(first.number + _INSIDE, kind, branches)
    outputs = tuple(
        Column(
            relation.number,
            f"c{at}",
            set_collations(one.type, find_collations(one) | find_collations(two)),
            None if one.longest is None or two.longest is None else max(one.longest, two.longest),
        )
        for at, (one, two) in enumerate(pairs, start=1)
    )
    columns = tuple(
        ScopeColumn(
            known.name,
            Column(first.number, f"c{at}", each.type, each.longest),
            is_unit=known.is_unit and same.is_unit,
            absent=known.absent or same.absent,
        )
        for at, (known, same, each) in enumerate(zip(table.columns, other.columns, outputs, strict=True), start=1)
    )
    _check_names(table, columns, where=where)
    both = replace(table, alias=alias, columns=columns)
    return Derived(first.number, outputs, FromWhere(relation, None)), both


def _check(table: ScopeTable, other: ScopeTable, *, where: Place) -> None:
    if len(table.columns) != len(other.columns):
        reason, hint = "The two sides have different numbers of columns.", "Select the same columns on both sides."
        raise Refusal("subquery", reason, hint=hint, place=where)
    units = [one.is_unit and two.is_unit for one, two in zip(table.columns, other.columns, strict=True)]
    if (table.table is not None or other.table is not None) and not any(units):
        hint = "Select the privacy unit's column, unchanged, in the same place on both sides."
        raise Refusal("unit-lost", "One side has no privacy unit where the other has it.", hint=hint, place=where)
    if any(
        unit and one.column.type != two.column.type
        for unit, one, two in zip(units, table.columns, other.columns, strict=True)
    ):
        hint = "Ask about one of the tables at a time."
        raise Unsupported("type", "The privacy units are of different types.", hint=hint, place=where)


def _check_names(table: ScopeTable, columns: tuple[ScopeColumn, ...], *, where: Place) -> None:
    """Refuse a column under the privacy unit's name that is no unit on the other side."""
    named = ascii_lower(table.unit_name or "")
    if table.table is not None and any(ascii_lower(each.name) == named and not each.is_unit for each in columns):
        reason = f"Only the privacy unit itself may be called {table.unit_name}."
        raise Refusal("unit-name", reason, hint="Select it in the same place on both sides.", place=where)


def _alike(
    reader: Reader, node: Node, *, pair: tuple[Expression, Expression], compares: bool
) -> tuple[Expression, Expression]:
    """Return two columns in one type, each by its own: a literal gives way to nothing here."""
    where = reader.at(node)
    fixed: list[Expression] = [
        Cast(each, each.type, each.longest) if isinstance(each, Literal) else each for each in pair
    ]
    one, two = fixed
    if one.type != two.type:
        one, two = unify_types((reader.computed(one, node), reader.computed(two, node)), where)
    if not compares:
        return one, two
    if not has_one_form(one.type):
        hint = "Use UNION ALL, or cast the column to VARCHAR."
        raise Unsupported("type", f"Columns of type {one.type} are not compared.", hint=hint, place=where)
    return canonicalize(one), canonicalize(two)
