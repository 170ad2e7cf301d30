"""FROM: tables, subqueries, CTEs and joins, read into relations and into the names they bring.

Every subquery in FROM over a private table must pass its privacy unit on; several private tables meet only where their
units are equal (`unit_equality.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dpsql.errors import Refusal, Unsupported
from dpsql.sql.analysis.joins import propose_tie, read_join
from dpsql.sql.analysis.links import find_owned_rows
from dpsql.sql.analysis.reader import Inside, Read, Reader
from dpsql.sql.analysis.set_operations import SET_OPERATIONS, combine_branches, split_branches
from dpsql.sql.analysis.subqueries import check_shape, is_plain, read_alias, read_subquery
from dpsql.sql.analysis.unnest import read_unnest
from dpsql.sql.ir.catalog import HOME, Catalog, RowKey, Table
from dpsql.sql.ir.scope import Scope, ScopeColumn, ScopeTable, list_names
from dpsql.sql.ir.tree import Column, Derived, Expression, FromWhere, Literal, Numbered, Relation, Scan, stored_column
from dpsql.sql.ir.types import INTEGER
from dpsql.sql.ir.unit_equality import add_ties, extract_unit_equalities, find_linked_units, is_connected
from dpsql.sql.lexer import ascii_lower
from dpsql.sql.syntax.sqlglot_nodes import is_unnest, only

if TYPE_CHECKING:
    from sqlglot.expressions import Expression as Node

__all__ = ["Sources"]

MAX_TABLES = 16
MAX_RELATIONS = 64  # tables and subqueries; with more than 99 their numbers would run into those of subqueries.py
_LINKED = 1_000  # relations that links bring in are numbered from here
_FILTERS = frozenset(["SEMI", "ANTI"])


@dataclass(slots=True)
class Sources:
    """Reads FROM clauses of one statement: numbers the tables, knows the catalog and puts CTEs in place.

    `released` is the answer of a private query that the statement wraps, whose columns the engine knows by number.
    `protected` are the private tables read so far, each with its privacy unit.
    """

    catalog: Catalog
    reader: Reader
    released: Table | None = None
    count: int = 0
    tables: int = 0
    linked: int = 0
    ctes: dict[str, tuple[Node, Mapping[str, object]]] = field(default_factory=dict)
    protected: dict[str, str] = field(default_factory=dict)
    usual: Mapping[str, Read] = field(init=False)

    def __post_init__(self) -> None:
        self.reader.subquery, self.usual = self.subquery, self.reader.readers

    def subquery(self, select: Node, *, has_list: bool = True) -> Inside:
        """Return a SELECT inside an expression; its reader decides what it may be.

        Without `has_list` (EXISTS), the select list is not read.
        """
        reader, outside = self.reader, self.reader.scope
        if not is_plain(select):  # it is written in levels, and names around it would have to pass through them
            if not has_list:
                reason, hint = "EXISTS takes a SELECT of rows.", "Leave aggregates, windows, grouping and LIMIT out."
                raise Unsupported("subquery", reason, hint=hint, place=reader.place(select))
            with reader.reading(self.usual), reader.correlating(correlates=False):
                derived, table = self._projected(select, "", node=select)
            reader.within(outside)
            return Inside(derived, table, tied=False)
        number = self._number(select)
        with reader.reading(self.usual):  # no aggregates, also where those of the query itself may stand
            body, scope = self.block(select, outer=outside if reader.correlates else None)
            if has_list:
                derived, table = read_subquery(reader, select, number=number, alias="", body=body, scope=scope)
            else:
                for item in select.expressions:
                    if reader.star(item) is None:
                        reader.read(read_alias(reader, item)[1])
                private = scope.private
                table = ScopeTable("", (), None if private is None else private.table)
                derived = Derived(number, (Literal(1, INTEGER),), body)
        reader.within(outside)
        whole = next((column for column in scope.units if not column.absent), None)
        return Inside(derived, table, scope.tied, unit=whole, linked=scope.linked)

    def nowhere(self, select: Node) -> tuple[FromWhere, Scope]:
        """Return the one row that a SELECT without FROM is computed on, and no names."""
        scope = Scope(())
        self.reader.within(scope)
        return FromWhere(Numbered(self._number(select), 1), None), scope

    def block(self, select: Node, *, outer: Scope | None = None) -> tuple[FromWhere, Scope]:
        """Return FROM and WHERE of a SELECT, and leave the reader pointing at its names.

        WHERE and the select list may also name columns of `outer`.
        """
        origin = select.args.get("from_")
        if origin is None:
            hint = "Name the table: FROM reads."
            raise Refusal("no-table", "There is no FROM.", hint=hint, place=self.reader.place(select))
        only(self.reader.statement, origin, "this")
        joins = select.args.get("joins") or ()
        with self.reader.correlating(correlates=False):
            self.reader.within(Scope(()))
            relation, scope = self._relation(origin.this)
            commas = False
            for join in joins:
                self._check_lateral(join)
                self.reader.within(scope)
                right = self._relation(join.this)
                relation, scope = read_join(self.reader, join, left=(relation, scope), right=right, commas=commas)
                commas = commas or not any(join.args.get(part) for part in ("side", "kind", "on", "using"))
        scope = replace(scope, outer=outer)
        where = select.args.get("where")
        condition = None
        if where is not None:
            with self.reader.correlating():
                condition = self.reader.within(scope).condition(where.this)
        condition, scope = self._tied(select, condition, scope=scope)
        self.reader.within(scope)
        return FromWhere(relation, condition), scope

    def _check_lateral(self, join: Node) -> None:
        """Refuse an unnest whose rows would have to be there without the row that they come of."""
        if is_unnest(join.this.this) and (
            join.args.get("side") in {"RIGHT", "FULL"} or join.args.get("kind") in _FILTERS
        ):
            hint = "CROSS JOIN, JOIN ... ON and LEFT JOIN ... ON are, and a comma."
            raise Unsupported("unnest", "This join of unnest is not read.", hint=hint, place=self.reader.place(join))

    def _tied(self, select: Node, condition: Expression | None, *, scope: Scope) -> tuple[Expression | None, Scope]:
        """Return WHERE and the names of a block in whose rows all units are equal; refuse any other block."""
        units, outer_units = scope.units, scope.outer_units
        condition, pairs = extract_unit_equalities(condition, units, right=units)
        condition, outside = extract_unit_equalities(condition, units, right=outer_units)
        around = [(inner, outer_units[0].column) for inner, _ in outside]  # which are all of one unit
        if not is_connected(scope, (*pairs, *around)):
            linked = (*scope.linked, *find_linked_units(condition, scope.tables, right=scope.tables))
            condition, pairs = add_ties(condition, linked), (*pairs, *((one.column, two.column) for one, two in linked))
        if not is_connected(scope, (*pairs, *around)):
            reason = "Private tables meet only where their privacy units are equal."
            joins = select.args.get("joins") or [select]
            hint, place = propose_tie(scope, joins=joins, reader=self.reader), self.reader.place(joins[0])
            raise Refusal("join-private", reason, hint=hint, place=place)
        linked = () if outside else find_linked_units(condition, scope.tables, right=scope.outer_tables)
        return condition, replace(scope, ties=(*scope.ties, *pairs), tied=bool(outside), linked=linked)

    def define(self, with_: Node) -> None:
        """Take up the CTEs of a WITH; each sees those before it, those around it, and the tables."""
        only(self.reader.statement, with_, "expressions")
        names: set[str] = set()
        for cte in with_.expressions:
            only(self.reader.statement, cte, "this", "alias")
            only(self.reader.statement, cte.args["alias"], "this")
            name = ascii_lower(cte.alias)
            if name in names:
                raise Refusal(
                    "cte",
                    "Two CTEs have this name.",
                    hint="Give one of them another name.",
                    place=self.reader.place(cte.args["alias"]),
                )
            names.add(name)
            self.ctes[name] = (cte.this, dict(self.ctes))

    def _relation(self, node: Node) -> tuple[Relation, Scope]:
        kind = type(node).__name__
        if kind == "Table" and is_unnest(node.this):
            numbered, table = read_unnest(self.reader, node, number=self._table(node))
            return numbered, Scope((table,))
        if kind == "Subquery":
            only(self.reader.statement, node, "this", "alias")
            return self._derived(node.this, self._alias(node) or "", node=node)
        if kind != "Table" or type(node.this).__name__ != "Identifier":
            hint = "FROM takes tables that the policy names, and subqueries over them."
            raise Refusal("source", "This is not a table.", hint=hint, place=self.reader.place(node))
        only(self.reader.statement, node, "this", "db", "catalog", "alias")
        name = node.name
        before = [part.name for part in (node.args.get("catalog"), node.args.get("db")) if part]
        found = None if before else self.ctes.get(ascii_lower(name))
        if found is None:
            return self._scan(node, (*before, name))
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
        """Return the number of the next relation, a table or a subquery."""
        self.count += 1
        if self.count > MAX_RELATIONS:
            reason = f"A query may hold {MAX_RELATIONS} tables and subqueries, counting a CTE each time it is named."
            raise Refusal("too-many-tables", reason, hint="Nest fewer subqueries.", place=self.reader.place(node))
        return self.count

    def _table(self, node: Node) -> int:
        """Return the number of the next table."""
        self.tables += 1
        if self.tables > MAX_TABLES:
            reason = f"A query may name {MAX_TABLES} tables, counting those of a CTE each time it is named."
            raise Refusal("too-many-tables", reason, hint="Name fewer tables.", place=self.reader.place(node))
        return self._number(node)

    def _linked(self) -> int:
        """Return the number of a relation that a link brings in; the analyst did not name it, so it is not counted."""
        self.linked += 1
        return _LINKED + self.linked

    def _scan(self, node: Node, path: Sequence[str]) -> tuple[Relation, Scope]:
        name = path[-1]
        if self.released is not None and name == self.released.name:
            return self._answer(node, self.released)
        table = self.catalog.find_path(path)
        if table is None:
            hint = list_names("The policy exposes", [table.name for table in self.catalog.tables], wanted=name)
            raise Refusal("unknown-table", "There is no such table.", hint=hint, place=self.reader.place(node))
        number = self._table(node)
        unit = ascii_lower(table.privacy_unit) if table.privacy_unit is not None else None
        row_keys = self.catalog.row_keys
        keys = self._find_row_keys(table, row_keys) if row_keys else {}
        columns = tuple(
            ScopeColumn(
                column,
                stored_column(number, column, type_=type_),
                is_unit=ascii_lower(column) == unit,
                row_keys=keys.get(ascii_lower(column), frozenset()),
            )
            for column, type_ in table.columns
        )
        relation: Relation = Scan(number, table.path)
        if table.link is not None:
            relation, owner = find_owned_rows(Scan(number, table.path), table.link, number=self._linked)
            columns = (*columns[:-1], replace(columns[-1], column=owner))
        private = table.name if unit is not None else None
        if table.privacy_unit is not None:
            self.protected[table.name] = table.privacy_unit
        alias = self._alias(node)
        home = "" if alias else table.name.rpartition(".")[0] or HOME  # an alias hides the name that it is for
        return relation, Scope((ScopeTable(alias or name, columns, private, table.privacy_unit, home),))

    def _find_row_keys(self, table: Table, row_keys: frozenset[RowKey]) -> dict[str, frozenset[RowKey]]:
        """Return the columns of a table, in lower case, that are the key or the column of a link."""
        every = row_keys if table.privacy_unit is not None else frozenset()
        found = {key: frozenset([(path, key)]) for path, key in every if path == table.path}
        if table.link is not None:
            column, row = ascii_lower(table.link.column), (table.link.path, ascii_lower(table.link.key))
            found[column] = found.get(column, frozenset()) | {row}
        return found

    def _answer(self, node: Node, released: Table) -> tuple[Relation, Scope]:
        """Return the answer of the wrapped query, which is public once it is released."""
        number = self._table(node)
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
            hint = f"Select {table.unit_name} there too, unchanged: SELECT {table.unit_name}, ..."
            raise Refusal("unit-lost", reason, hint=hint, place=self.reader.place(select))
        return derived, Scope((table,))

    def _projected(self, select: Node, alias: str, *, node: Node) -> tuple[Derived, ScopeTable]:
        """Read a subquery: a SELECT or a set operation of several, with CTEs of its own."""
        outside, self.ctes = self.ctes, dict(self.ctes)
        try:
            if select.args.get("with_") is not None:
                self.define(select.args["with_"])
            if type(select).__name__ in SET_OPERATIONS:
                left, right = (self._branch(branch) for branch in split_branches(self.reader, select))
                return combine_branches(self.reader, select, left=left, right=right, alias=alias)
            check_shape(self.reader, select, node=node)
            number = self._number(node)
            body, scope = self.block(select)
            return read_subquery(self.reader, select, number=number, alias=alias, body=body, scope=scope)
        finally:
            self.ctes = outside

    def _branch(self, node: Node) -> tuple[Derived, ScopeTable]:
        """Read one side of a set operation; sqlglot puts parentheses around what binds closer."""
        if type(node).__name__ == "Subquery":
            only(self.reader.statement, node, "this")
            node = node.this
        return self._projected(node, "", node=node)
