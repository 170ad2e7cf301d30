"""Joins of two sides of FROM, and the names that both sides have.

Two private sides must be joined on their units (`unit_equality.py`): in ON or USING for an outer, SEMI or ANTI join, or
in WHERE for an inner join. A private and a public side may be joined on anything. A row of the public side without a
partner has no unit, so the kinds of join that would preserve it are written as those that drop it. The answer is the
same, because a group without units is not in it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from dpsql.dialects import write_name
from dpsql.errors import Refusal, Unsupported
from dpsql.sql.analysis.reader import Reader
from dpsql.sql.functions.coercion import unify_for_comparison
from dpsql.sql.ir.scope import Scope, ScopeColumn, ScopeTable, propose_name
from dpsql.sql.ir.tree import Call, Exists, Expression, InQuery, Joined, Relation, Scalar, walk
from dpsql.sql.ir.types import BOOLEAN
from dpsql.sql.ir.unit_equality import (
    add_ties,
    extract_unit_equalities,
    find_linked_units,
    is_connected,
    join_conjuncts,
)
from dpsql.sql.lexer import ascii_lower
from dpsql.sql.syntax.sqlglot_nodes import only

if TYPE_CHECKING:
    from sqlglot.expressions import Expression as Node

__all__ = ["Side", "propose_tie", "read_join"]

Side = tuple[Relation, Scope]
_KINDS = {  # how sqlglot spells a join: its side and kind
    ("", ""): "INNER",
    ("", "INNER"): "INNER",
    ("", "CROSS"): "INNER",
    **{(side, kind): side for side in ("LEFT", "RIGHT", "FULL") for kind in ("", "OUTER")},
    ("", "SEMI"): "SEMI",
    ("", "ANTI"): "ANTI",
}
_KEEPS_LEFT, _KEEPS_RIGHT = frozenset(["LEFT", "FULL"]), frozenset(["RIGHT", "FULL"])
_FILTERS, _INNER = frozenset(["SEMI", "ANTI"]), frozenset(["INNER", "CROSS"])
_EXAMPLE_TIE = "a.unit = b.unit"
_PAIR = 2  # tables of one join
_FIRST = "Write the private table first, and join the public one to it."


def propose_tie(*scopes: Scope, joins: Sequence[Node] = (), reader: Reader | None = None) -> str:
    """Return a hint with the condition that ties the private tables of the scopes by their units, or by a link's key.

    Conditions that the `joins` have already, of one column and another, are in it.
    """
    tables = [table for scope in scopes for table in scope.tables]
    found = [(table.alias, column) for table in tables for column in table.columns if column.is_unit]
    types = sorted({str(column.column.type) for _, column in found})
    if len(types) > 1:
        return f"Ask the curator for units of one type: {' and '.join(types)} are not equal here, even if cast."
    if not all(alias for alias, _ in found):
        return f"Name the subqueries, as in (SELECT ...) AS a JOIN (SELECT ...) AS b ON {_EXAMPLE_TIE}."
    written = [] if reader is None else [text for join in joins for text in _list_equalities(reader, join)]
    private = [table for table in tables if any(column.is_unit for column in table.columns)]
    ties = [_propose_pair(table, private[:at], written=written) for at, table in enumerate(private) if at]
    more = [text for text in written if text not in ties]
    if len(private) > _PAIR:
        return f"Write WHERE {' AND '.join(ties)}, joined to other conditions by AND."
    return f"Write JOIN ... ON {' AND '.join([*(ties or [_EXAMPLE_TIE]), *more])}, joined to other conditions by AND."


def _propose_pair(table: ScopeTable, before: Sequence[ScopeTable], *, written: Collection[str]) -> str:
    """Return the condition that joins a private table to one before it: by the key of a link, or by their units."""
    for other in before:
        for column in table.columns:
            for known in other.columns:
                if other.table == table.table or column.row_keys.isdisjoint(known.row_keys):
                    continue
                sides = _qualify(other.alias, known), _qualify(table.alias, column)
                if {" = ".join(sides), " = ".join(sides[::-1])}.isdisjoint(written):
                    return " = ".join(sides)
    units = [_qualify(each.alias, next(unit for unit in each.columns if unit.is_unit)) for each in (before[0], table)]
    return " = ".join(units)


def _qualify(alias: str, column: ScopeColumn) -> str:
    return f"{write_name(alias)}.{write_name(column.name)}"


def _list_equalities(reader: Reader, join: Node) -> list[str]:
    """Return the conditions of ON that compare two columns of tables, as they are written."""
    parts, found = [join.args.get("on")], list[str]()
    while parts:
        part = parts.pop(0)
        kind = type(part).__name__
        if part is not None and kind == "And":
            parts = [part.this, part.expression, *parts]
        elif part is not None and kind == "EQ":
            sides, place = (part.this, part.expression), reader.place(part)
            is_plain = all(type(side).__name__ == "Column" and side.args.get("table") for side in sides)
            found += [" ".join(place.fragment.split())] if place is not None and is_plain else []
    return found


def _tie_left(source: Relation, scope: Scope) -> Side:
    """Return the left side of a join that keeps rows of the right one, with the ties that links give it."""
    if not scope.linked or is_connected(scope) or not isinstance(source, Joined) or source.kind not in _INNER:
        return source, scope
    pairs = tuple((one.column, other.column) for one, other in scope.linked)
    tied = replace(source, kind="INNER", on=add_ties(source.on, scope.linked))
    return tied, replace(scope, ties=(*scope.ties, *pairs))


def read_join(reader: Reader, join: Node, *, left: Side, right: Side, commas: bool) -> Side:
    """Return the join of two sides, of which the right one is a single table; `commas` precede it in FROM."""
    only(reader.statement, join, "this", "side", "kind", "on", "using")
    (source, scope), (other, added) = left, right
    kind = _kind(reader, join, scope=scope, added=added, commas=commas)
    if kind in _KEEPS_RIGHT:
        source, scope = _tie_left(source, scope)
    (table,) = added.tables
    if any(ascii_lower(known.alias) == ascii_lower(table.alias) for known in scope.tables):
        hint = "Give one of them another alias."
        raise Refusal("alias", "Two tables have this name.", hint=hint, place=reader.place(join))
    conditions: list[Expression] = []
    after = replace(
        scope,
        tables=(
            *_tables_after_join(scope, added, lonely=kind in _KEEPS_RIGHT),
            *_tables_after_join(added, scope, lonely=kind in _KEEPS_LEFT),
        ),
    )
    if join.args.get("using"):
        after, conditions = _using(reader, join, scope=scope, table=table, after=after)
    if join.args.get("on") is not None:
        conditions.append(reader.within(after).condition(join.args["on"]))
        _check_on(reader, join, kind=kind, condition=conditions[-1])
    if not conditions and (kind != "INNER" or str(join.args.get("kind") or "") not in {"", "CROSS"}):
        raise Refusal("join", "This join has no condition.", hint="ON or USING.", place=reader.place(join))
    condition, after = _tied(
        reader, join, kind=kind, scopes=(scope, added, after), condition=join_conjuncts(conditions)
    )
    joined_ = Joined(source, "CROSS" if condition is None else kind, other, condition)
    return joined_, scope if kind in _FILTERS else after


def _tables_after_join(scope: Scope, other: Scope, *, lonely: bool) -> tuple[ScopeTable, ...]:
    """Return the tables of a side, without units if unmatched rows of the other side are preserved (`lonely`)."""
    if not lonely or other.private is None:
        return scope.tables
    return tuple(replace(table, columns=tuple(map(_absent, table.columns))) for table in scope.tables)


def _absent(column: ScopeColumn) -> ScopeColumn:
    shared = None if column.shared is None else _absent(column.shared)
    return replace(column, absent=column.is_unit, shared=shared)


def _kind(reader: Reader, join: Node, *, scope: Scope, added: Scope, commas: bool) -> str:
    """Return the kind of join: unmatched rows of a public side are never preserved beside a private one."""
    where = reader.place(join)
    kind = _KINDS.get((str(join.args.get("side") or ""), str(join.args.get("kind") or "")))
    if kind is None:
        hint = "INNER, LEFT, RIGHT, FULL, SEMI, ANTI and CROSS JOIN are."
        raise Unsupported("join", "This kind of join is not read.", hint=hint, place=where)
    if commas and kind in _KEEPS_RIGHT:
        hint = "Write the comma as JOIN ... ON, or put what it adds into a subquery."
        raise Unsupported("join", "RIGHT and FULL JOIN are not read after a comma.", hint=hint, place=where)
    if (scope.private is None) == (added.private is None):
        return kind
    if scope.private is None and kind in _FILTERS:
        raise Refusal("join-private", "Rows of public tables cannot depend on units.", hint=_FIRST, place=where)
    if scope.private is None:
        return "RIGHT" if kind in _KEEPS_RIGHT else "INNER"
    return kind if kind in _FILTERS else "LEFT" if kind in _KEEPS_LEFT else "INNER"


def _check_on(reader: Reader, join: Node, *, kind: str, condition: Expression) -> None:
    """Refuse a subquery in ON of an outer join: DuckDB's optimizer fails on it where it could do without the join."""
    if kind in _KEEPS_LEFT | _KEEPS_RIGHT and any(
        isinstance(each, InQuery | Exists | Scalar) for each in walk(condition)
    ):
        reason = "A subquery is not read in ON of an outer join."
        hint = "Compute it as a column of a subquery in FROM, such as (SELECT *, x IN (SELECT ...) AS found FROM t)."
        raise Unsupported("subquery", reason, hint=hint, place=reader.place(join.args["on"]) or reader.place(join))


def _tied(
    reader: Reader, join: Node, *, kind: str, scopes: tuple[Scope, Scope, Scope], condition: Expression | None
) -> tuple[Expression | None, Scope]:
    """Return the condition and the names of a join; refuse one of private sides that could join two units.

    An inner join may go without a tie until WHERE is read. The rows that an outer join may leave alone must not meet
    others by then but on their unit; and one tie is what it adds, since without a partner the right side is NULL.
    """
    scope, added, after = scopes
    linked = find_linked_units(condition, scope.tables, right=added.tables)
    if kind == "INNER":
        condition, pairs = extract_unit_equalities(condition, after.units, right=after.units)
        return condition, replace(after, ties=(*after.ties, *pairs), linked=(*after.linked, *linked))
    if scope.private is None or added.private is None:
        return condition, after
    condition, pairs = extract_unit_equalities(condition, scope.units, right=added.units)
    if not pairs:
        condition, pairs = add_ties(condition, linked), tuple((one.column, other.column) for one, other in linked)
    if not pairs or (kind in _KEEPS_RIGHT and not is_connected(scope)):
        reason = "Private tables meet only where their privacy units are equal."
        hint = propose_tie(scope, added, joins=[join], reader=reader)
        raise Refusal("join-private", reason, hint=hint, place=reader.place(join))
    return condition, replace(after, ties=(*after.ties, pairs[0]))


def _using(
    reader: Reader, join: Node, *, scope: Scope, table: ScopeTable, after: Scope
) -> tuple[Scope, list[Expression]]:
    """Return the names after a join with its USING columns merged, and the equalities they mean."""
    conditions: list[Expression] = []
    for name in join.args["using"]:
        where = partial(reader.at, name)
        left, right = scope.find(name.name, "", place=where), Scope((table,)).find(name.name, "", place=where)
        if left is None or right is None:
            shared = {ascii_lower(column.name) for column in table.columns}
            near = propose_name(name.name, [each.name for each in scope.star() if ascii_lower(each.name) in shared])
            reason, hint = "USING needs this column on both sides.", f"{near}Write ON left.x = right.y instead."
            raise Refusal("unknown-column", reason, hint=hint, place=where())
        if left.is_unit and right.is_unit and left.column.type == right.column.type:
            sides: tuple[Expression, ...] = (left.column, right.column)
        else:
            sides = unify_for_comparison(tuple(reader.computed(side.column, name) for side in (left, right)), where())
        conditions.append(Call("=", sides, BOOLEAN))
        side = str(join.args.get("side") or "")
        if left.is_unit != right.is_unit and (scope.private is None or table.table is None):
            side = "LEFT" if left.is_unit else "RIGHT"  # rows of the public side alone are dropped
        after = _merged(after, left, right=right, shared=_shared(side, left, right=right, sides=sides))
    return after, conditions


def _shared(side: str, left: ScopeColumn, *, right: ScopeColumn, sides: tuple[Expression, ...]) -> ScopeColumn:
    """Return the meaning of a name of USING: the column of the preserved side, or the present one of both."""
    if side != "FULL":
        return right if side == "RIGHT" else left
    lengths = [each.longest for each in sides]
    longest = None if None in lengths else max(length for length in lengths if length is not None)
    first = Call("coalesce", sides, sides[0].type, longest)
    return ScopeColumn(left.name, first, is_unit=left.is_unit and right.is_unit, absent=left.absent or right.absent)


def _merged(after: Scope, left: ScopeColumn, *, right: ScopeColumn, shared: ScopeColumn) -> Scope:
    """Return the names with the right side's column hidden behind the left's, which means `shared`."""
    tables, ties = list[ScopeTable](), after.ties
    for table in after.tables:
        columns = list(table.columns)
        for at, column in enumerate(columns):
            if column.column == right.column:
                columns[at] = replace(column, merged=True)
            elif column.bare.column == left.column and not column.merged:
                known = shared.column == column.bare.column
                columns[at] = column if known else replace(column, shared=shared)
                ties = (*ties, (left.column, column.column)) if column.is_unit else ties
        tables.append(replace(table, columns=tuple(columns)))
    return replace(after, tables=tuple(tables), ties=ties)
