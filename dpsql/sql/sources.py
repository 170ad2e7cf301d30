"""FROM: tables, subqueries, CTEs and joins, read into relations and into the names they bring.

One private table may stand in a query; every subquery over it must pass its privacy unit on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dpsql.errors import Refusal, Unsupported
from dpsql.sql.catalog import Catalog, Table
from dpsql.sql.joins import joined
from dpsql.sql.links import owned
from dpsql.sql.nodes import only
from dpsql.sql.reader import Read, Reader
from dpsql.sql.scope import Scope, ScopeColumn, ScopeTable, listed
from dpsql.sql.subqueries import check_shape, selected
from dpsql.sql.text import ascii_lower
from dpsql.sql.tree import Body, Column, Derived, Relation, Scan

if TYPE_CHECKING:
    from sqlglot.expressions import Expression as Node

__all__ = ["Sources"]

MOST_TABLES = 8
_NO_UNIT = "Select the privacy unit's column, unchanged, in every subquery over a private table."


@dataclass(slots=True)
class Sources:
    """Reads FROM clauses of one statement: numbers the tables, knows the catalog and puts CTEs in place.

    `released` is the answer of a private query that the statement wraps, whose columns the engine knows by number.
    """

    catalog: Catalog
    reader: Reader
    released: Table | None = None
    count: int = 0
    linked: int = 0
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
            relation, scope = joined(self.reader, join, left=(relation, scope), right=self._relation(join.this))
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

    def _linked(self) -> int:
        """Return the number of a relation that a link brings in; the analyst did not name it, so it is not counted."""
        self.linked += 1
        return MOST_TABLES + self.linked

    def _scan(self, node: Node, name: str, *, schema: str) -> tuple[Relation, Scope]:
        if self.released is not None and name == self.released.name:
            return self._answer(node, self.released)
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
        relation: Relation = Scan(number, table.path)
        if table.link is not None:
            relation, owner = owned(Scan(number, table.path), table.link, number=self._linked)
            columns = (*columns[:-1], replace(columns[-1], column=owner))
        private = table.name if unit is not None else None
        alias = self._alias(node) or name
        return relation, Scope((ScopeTable(alias, columns, private, table.privacy_unit),))

    def _answer(self, node: Node, released: Table) -> tuple[Relation, Scope]:
        """Return the answer of the wrapped query, which protects nobody any more."""
        number = self._number(node)
        columns = tuple(
            ScopeColumn(name, Column(number, f"c{at}", type_), is_unit=False)
            for at, (name, type_) in enumerate(released.columns, start=1)
        )
        return Scan(number, released.path), Scope((ScopeTable("", columns),))

    def _derived(self, select: Node, alias: str, *, node: Node) -> tuple[Relation, Scope]:
        """Read a subquery in FROM or a CTE, which must pass the unit on."""
        derived, table = self._projected(select, alias, node=node)
        if table.table is not None and not any(column.is_unit for column in table.columns):
            reason = f"This subquery loses the privacy unit {table.unit_name}."
            raise Refusal("unit-lost", reason, hint=_NO_UNIT, place=self.reader.place(select))
        return derived, Scope((table,))

    def _projected(self, select: Node, alias: str, *, node: Node) -> tuple[Derived, ScopeTable]:
        """Read a SELECT that chooses columns and rows, and nothing more."""
        check_shape(self.reader, select, node=node)
        number = self._number(node)
        body, scope = self.block(select)
        return selected(self.reader, select, number, alias=alias, body=body, scope=scope)
