"""IN (SELECT ...) and EXISTS (SELECT ...): conditions on the existence of a row.

Over public tables every condition is allowed, also on the outer row. Over private tables the condition may depend only
on rows of the unit of the outer row: a tie at the top of the subquery's WHERE ensures this, or the unit itself is
looked up among units. The lookup must reveal only whether the unit exists: NULL among the units, which makes IN
uncertain for every row in SQL, is excluded, and for a row without a unit the result is always NULL.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dpsql.errors import Refusal
from dpsql.sql.analysis.reader import Inside, Reader
from dpsql.sql.functions.coercion import unify_for_comparison
from dpsql.sql.ir.scope import ScopeTable
from dpsql.sql.ir.tree import Call, Case, Column, Derived, Exists, Expression, FromWhere, InQuery, Literal
from dpsql.sql.ir.types import BOOLEAN
from dpsql.sql.ir.unit_equality import add_ties, compare_by_bytes, find_unit, link_units
from dpsql.sql.syntax.sqlglot_nodes import only

if TYPE_CHECKING:
    from sqlglot.expressions import Expression as Node

__all__ = ["read_exists", "read_in_query"]

_HINT = (
    "Look the privacy unit up, unit IN (SELECT unit FROM t), or tie the subquery in WHERE: EXISTS (SELECT 1 FROM t "
    "WHERE t.unit = r.unit AND ...)."
)


def read_in_query(reader: Reader, node: Node) -> Expression:
    """Return x IN (SELECT ...)."""
    only(reader.statement, node, "this", "query")
    only(reader.statement, node.args["query"], "this")
    argument, inside = reader.operand(node.this), reader.subquery(node.args["query"].this)
    if len(inside.source.outputs) != 1:
        hint = "Select the one column to compare with."
        raise Refusal("subquery", "This subquery must have one column.", hint=hint, place=reader.place(node))
    if inside.table.table is not None and not inside.tied:
        tied = _tie_by_link(reader, inside, argument=argument)
        if tied is None:
            return _unit_among_units(reader, node, argument=argument, inside=inside)
        inside = replace(inside, source=tied)
    output = reader.computed(inside.source.outputs[0], node)
    left, right = unify_for_comparison((argument, output), reader.at(node))
    return InQuery(left, replace(inside.source, outputs=(right,)))


def read_exists(reader: Reader, node: Node) -> Expression:
    """Return EXISTS (SELECT ...)."""
    only(reader.statement, node, "this")
    inside = reader.subquery(node.this, has_list=False)
    if inside.table.table is None or inside.tied:
        return Exists(inside.source)
    tied = _tie_by_link(reader, inside)
    if tied is None:
        raise _untied(reader, node)
    return Exists(tied)


def _tie_by_link(reader: Reader, inside: Inside, *, argument: Expression | None = None) -> Derived | None:
    """Return the subquery over rows of the outer row's unit alone, where a key of a link looks them up; else None."""
    linked = inside.linked
    if argument is not None:
        if find_unit(argument, (*reader.scope.units, *reader.scope.outer_units)) is not None:
            return None
        if not linked and inside.unit is not None and reader.correlates:
            (column,) = inside.table.columns
            rows = ScopeTable("", (column, inside.unit))
            outside = (*reader.scope.tables, *reader.scope.outer_tables)
            linked = tuple(link_units((argument, column.column), outside, right=(rows,)))
    if not linked:
        return None
    body = inside.source.body
    return replace(inside.source, body=FromWhere(body.source, add_ties(body.where, linked)))


def _unit_among_units(reader: Reader, node: Node, *, argument: Expression, inside: Inside) -> Expression:
    """Return unit IN (SELECT unit ...), which is never NULL where the unit is there."""
    (output,) = inside.table.columns
    unit = find_unit(argument, (*reader.scope.units, *reader.scope.outer_units))
    if unit is None or not output.is_unit or unit.column.type != output.column.type:
        raise _untied(reader, node)
    source, (column,) = inside.source, inside.source.outputs
    found = Column(source.number, "c1", column.type, column.longest)
    there = Call("not", (Call("is_null", (found,), BOOLEAN),), BOOLEAN)
    among = InQuery(
        compare_by_bytes(unit.column), Derived(source.number, (compare_by_bytes(found),), FromWhere(source, there))
    )
    if not unit.absent:  # where it is NULL the row has no unit
        return among
    return Case(((Call("is_null", (unit.column,), BOOLEAN), Literal(None, BOOLEAN)),), among, BOOLEAN)


def _untied(reader: Reader, node: Node) -> Refusal:
    reason = "This subquery reads rows of other privacy units than the row's own."
    return Refusal("subquery-private", reason, hint=_HINT, place=reader.place(node))
