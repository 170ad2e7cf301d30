"""FROM: tables, subqueries, CTEs and joins, read into relations and into the names they bring.

One private table may stand in a query; every subquery over it must pass its privacy unit on. A join with public
tables keeps the private side's rows: INNER, LEFT with the private side on the left, CROSS, or a comma.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dpsql.errors import Refusal, Unsupported
from dpsql.sql.catalog import Catalog
from dpsql.sql.coerce import comparable
from dpsql.sql.nodes import only
from dpsql.sql.query import Body, Call, Column, Derived, Expression, Joined, Relation, Scan
from dpsql.sql.reader import Read, Reader
from dpsql.sql.scope import Scope, ScopeColumn, ScopeTable, listed
from dpsql.sql.text import ascii_lower
from dpsql.sql.types import BOOLEAN, NULL, Family

if TYPE_CHECKING:
    from sqlglot.expressions import Expression as Node

__all__ = ["Sources", "output_name"]

MOST_TABLES = 8
_NO_UNIT = "Select the privacy unit's column, unchanged, in every subquery over a private table."
_INNER_ONLY = {
    "group": "Grouping belongs to the outermost query.",
    "distinct": "Units are counted once, so DISTINCT is not needed here.",
    "limit": "Rows cut by LIMIT depend on other units' rows.",
    "offset": "Rows cut by OFFSET depend on other units' rows.",
    "order": "The order of a subquery has no meaning here; leave it out.",
}


@dataclass(slots=True)
class Sources:
    """Reads FROM clauses of one statement: numbers the tables, knows the catalog and puts CTEs in place."""

    catalog: Catalog
    reader: Reader
    count: int = 0
    ctes: dict[str, tuple[Node, Mapping[str, object]]] = field(default_factory=dict)
    usual: Mapping[str, Read] = field(init=False)

    def __post_init__(self) -> None:
        self.reader.subquery, self.usual = self.subquery, self.reader.readers

    def subquery(self, select: Node) -> Derived:
        """Return a SELECT of public tables alone that stands inside an expression; it sees no name outside it."""
        outside = self.reader.scope
        with self.reader.reading(self.usual):  # no aggregates, also where those of the query itself may stand
            derived, table = self._projected(select, "", node=select)
        self.reader.within(outside)
        if table.table is not None:
            hint = "Join a public table, or ask about one private table at a time."
            reason = "A subquery in an expression may not read a private table."
            raise Unsupported("subquery-private", reason, hint=hint, place=self.reader.place(select))
        return derived

    def block(self, select: Node) -> tuple[Body, Scope]:
        """Return FROM and WHERE of a SELECT, and leave the reader pointing at its names."""
        origin = select.args.get("from_")
        if origin is None:
            hint = "Name the table: FROM reads."
            raise Refusal("no-table", "There is no FROM.", hint=hint, place=self.reader.place(select))
        only(self.reader.statement, origin, "this")
        relation, scope = self._relation(origin.this)
        for join in select.args.get("joins") or ():
            relation, scope = self._join(relation, scope, join=join)
        where = select.args.get("where")
        condition = None if where is None else self.reader.within(scope).condition(where.this)
        self.reader.within(scope)
        return Body(relation, condition), scope

    def define(self, with_: Node) -> None:
        """Take up the CTEs of the outermost WITH; each sees those before it, and the tables."""
        only(self.reader.statement, with_, "expressions")
        for cte in with_.expressions:
            only(self.reader.statement, cte, "this", "alias")
            only(self.reader.statement, cte.args["alias"], "this")
            name = ascii_lower(cte.alias)
            if name in self.ctes:
                raise Refusal(
                    "cte",
                    "Two CTEs have this name.",
                    hint="Give one of them another name.",
                    place=self.reader.place(cte.args["alias"]),
                )
            self.ctes[name] = (cte.this, dict(self.ctes))

    def _relation(self, node: Node) -> tuple[Relation, Scope]:
        kind = type(node).__name__
        if kind == "Subquery":
            only(self.reader.statement, node, "this", "alias")
            return self._derived(node.this, self._alias(node) or "", node=node)
        if kind != "Table" or type(node.this).__name__ != "Identifier":
            hint = "FROM takes tables that the policy names, and subqueries over them."
            raise Refusal("source", "This is not a table.", hint=hint, place=self.reader.place(node))
        only(self.reader.statement, node, "this", "db", "alias")
        name, schema = node.name, node.args["db"].name if node.args.get("db") else ""
        found = self.ctes.get(ascii_lower(name)) if not schema else None
        if found is None:
            return self._scan(node, name, schema=schema)
        outside, self.ctes = self.ctes, dict(found[1])  # type: ignore[arg-type]
        try:
            return self._derived(found[0], self._alias(node) or name, node=node)
        finally:
            self.ctes = outside

    def _alias(self, node: Node) -> str:
        alias = node.args.get("alias")
        if alias is None:
            return ""
        only(self.reader.statement, alias, "this")
        return str(alias.name)

    def _number(self, node: Node) -> int:
        self.count += 1
        if self.count > MOST_TABLES:
            reason = f"A query may name {MOST_TABLES} tables, counting those inside CTEs."
            raise Refusal("too-many-tables", reason, hint="Name fewer tables.", place=self.reader.place(node))
        return self.count

    def _scan(self, node: Node, name: str, *, schema: str) -> tuple[Relation, Scope]:
        table = self.catalog.find(name, schema)
        if table is None:
            hint = listed("The policy exposes", [table.name for table in self.catalog.tables])
            raise Refusal("unknown-table", "There is no such table.", hint=hint, place=self.reader.place(node))
        number = self._number(node)
        unit = ascii_lower(table.privacy_unit) if table.privacy_unit is not None else None
        columns = tuple(
            ScopeColumn(column, Column(number, column, type_), is_unit=ascii_lower(column) == unit)
            for column, type_ in table.columns
        )
        private = table.name if unit is not None else None
        alias = self._alias(node) or name
        return Scan(number, table.path), Scope((ScopeTable(alias, columns, private, table.privacy_unit),))

    def _derived(self, select: Node, alias: str, *, node: Node) -> tuple[Relation, Scope]:
        """Read a subquery in FROM or a CTE, which must pass the unit on."""
        derived, table = self._projected(select, alias, node=node)
        if table.table is not None and not any(column.is_unit for column in table.columns):
            reason = f"This subquery loses the privacy unit {table.unit_name}."
            raise Refusal("unit-lost", reason, hint=_NO_UNIT, place=self.reader.place(select))
        return derived, Scope((table,))

    def _projected(self, select: Node, alias: str, *, node: Node) -> tuple[Derived, ScopeTable]:
        """Read a SELECT that chooses columns and rows, and nothing more."""
        if type(select).__name__ != "Select":
            raise Unsupported(
                "subquery",
                "A subquery here must be one SELECT.",
                hint="Write UNION and the like as one query.",
                place=self.reader.place(node),
            )
        for name, hint in _INNER_ONLY.items():
            if select.args.get(name) is not None:
                reason = "A subquery in FROM may only choose columns and rows."
                raise Unsupported("subquery", reason, hint=hint, place=self.reader.place(select))
        only(self.reader.statement, select, "expressions", "from_", "joins", "where")
        number = self._number(node)
        body, scope = self.block(select)
        named = [pair for item in select.expressions for pair in self._outputs(item, scope)]
        columns = tuple(
            ScopeColumn(name, Column(number, f"c{index}", expression.type, expression.longest), is_unit=is_unit)
            for index, (name, expression, is_unit) in enumerate(named, start=1)
        )
        private = scope.private
        table = ScopeTable(alias, columns, *((private.table, private.unit_name) if private is not None else ()))
        return Derived(number, tuple(expression for _, expression, _ in named), body), table

    def _outputs(self, item: Node, scope: Scope) -> list[tuple[str, Expression, bool]]:
        """Return name, expression and whether it is the unit, for one item of a subquery's select list."""
        if (starred := self.reader.star(item)) is not None:
            return [(column.name, column.column, column.is_unit) for column in starred]
        name, node = output_name(self.reader, item)
        self.check_alias(name, node, scope=scope)
        if type(node).__name__ == "Column":
            column = self.reader.column(node)
            return [(name or column.name, column.column, column.is_unit)]
        expression = self.reader.read(node)
        if expression.type == NULL or expression.type.family is Family.INTERVAL:
            raise Unsupported(
                "type",
                "This column has no type; cast it.",
                hint="Such as CAST(NULL AS VARCHAR).",
                place=self.reader.place(node),
            )
        return [(name, expression, False)]

    def check_alias(self, name: str, node: Node, *, scope: Scope) -> None:
        """Refuse to call anything but the privacy unit by the privacy unit's name."""
        private = scope.private
        if private is None or private.unit_name is None or ascii_lower(name) != ascii_lower(private.unit_name):
            return
        if type(node).__name__ != "Column" or not self.reader.column(node).is_unit:
            reason = f"Only the privacy unit itself may be called {private.unit_name}."
            raise Refusal("unit-name", reason, hint="Choose another alias.", place=self.reader.place(node))

    def _join(self, left: Relation, scope: Scope, *, join: Node) -> tuple[Relation, Scope]:
        only(self.reader.statement, join, "this", "side", "kind", "on", "using")
        side, kind = str(join.args.get("side") or ""), str(join.args.get("kind") or "")
        right, added = self._relation(join.this)
        self._check_join(join, side, scope=scope, added=added)
        (table,) = added.tables
        if any(ascii_lower(known.alias) == ascii_lower(table.alias) for known in scope.tables):
            hint = "Give one of them another alias."
            raise Refusal("alias", "Two tables have this name.", hint=hint, place=self.reader.place(join))
        conditions: list[Expression] = []
        if join.args.get("using"):
            table, conditions = self._using(join, scope, table=table)
        both = Scope((*scope.tables, table))
        if join.args.get("on") is not None:
            conditions.append(self.reader.within(both).condition(join.args["on"]))
        if not conditions and (side or kind not in {"", "CROSS"}):
            raise Refusal("join", "This join has no condition.", hint="ON or USING.", place=self.reader.place(join))
        condition = None if not conditions else _and(conditions)
        return Joined(left, (side or "INNER") if condition is not None else "CROSS", right, condition), both

    def _check_join(self, join: Node, side: str, *, scope: Scope, added: Scope) -> None:
        where = self.reader.place(join)
        if side not in {"", "LEFT"} or str(join.args.get("kind") or "") not in {"", "INNER", "OUTER", "CROSS"}:
            hint = "INNER JOIN and LEFT JOIN are; write the private table first."
            raise Unsupported("join", "This kind of join is not built yet.", hint=hint, place=where)
        if scope.private is not None and added.private is not None:
            hint = "Ask about one private table at a time; public tables may be joined."
            raise Unsupported("join-private", "Joins of two private tables are not built yet.", hint=hint, place=where)
        if side == "LEFT" and added.private is not None:
            hint = "Write the private table first."
            raise Unsupported("join", "LEFT JOIN must keep the private table's rows.", hint=hint, place=where)

    def _using(self, join: Node, scope: Scope, *, table: ScopeTable) -> tuple[ScopeTable, list[Expression]]:
        """Return the right side with its USING columns merged into the left's, and the equalities they mean."""
        conditions: list[Expression] = []
        columns = list(table.columns)
        for name in join.args["using"]:
            where = self.reader.at(name)
            left, right = scope.find(name.name, "", place=where), Scope((table,)).find(name.name, "", place=where)
            if left is None or right is None:
                raise Refusal(
                    "unknown-column",
                    "USING needs this column on both sides.",
                    hint="Write ON left.x = right.y instead.",
                    place=where,
                )
            sides = comparable(tuple(self.reader.computed(side.column, name) for side in (left, right)), where)
            conditions.append(Call("=", sides, BOOLEAN))
            columns[columns.index(right)] = replace(right, merged=True)
        return replace(table, columns=tuple(columns)), conditions


def _and(conditions: list[Expression]) -> Expression:
    return conditions[0] if len(conditions) == 1 else Call("and", tuple(conditions), BOOLEAN)


def output_name(reader: Reader, item: Node) -> tuple[str, Node]:
    """Return the alias of a select item ('' without one) and the item itself."""
    if type(item).__name__ != "Alias":
        return "", item
    only(reader.statement, item, "this", "alias")
    return str(item.alias), item.this
