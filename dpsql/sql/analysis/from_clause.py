"""FROM and WHERE of a SELECT: tables, subqueries, CTEs and joins, and the privacy unit of their rows.

`Sources._scan` finds the privacy unit of a table, `_read_join` joins two sides, `_check_units_tied` checks after WHERE
that all units of a row are equal, `find_owned_rows` looks up the unit of a linked table.

Every subquery in FROM over a private table must pass its privacy unit on; several private tables meet only where their
units are equal (`ir/scope.py`).

Two private sides of a join must be joined on their units (`ir/scope.py`): in ON or USING for an outer, SEMI or ANTI
join, or in WHERE for an inner join. A private and a public side may be joined on anything. A row of the public side
without a partner has no unit, so the kinds of join that would preserve it are written as those that drop it. The answer
is the same, because a group without units is not in it.

`find_owned_rows` joins a linked table with the privacy unit of its rows. The key of the link is declared unique and was
unique when the session opened, but data may change under a session that reads a file or a connection of the user. A key
therefore belongs to one unit for all data: the smallest, by its bytes, of the units that have a row with this key.
Removing a unit A means removing all its rows: those of the table of units with A, and those of linked tables that
belong to it. Every other row stays with its unit, because a smallest unit other than A is still the smallest without A;
by induction this holds along a chain. No row ever passes from one unit to another, so counts fall by at most 1 and only
in the groups of the removed unit, which is what a private table requires. (With a plain join, a row with two units
would remove two units; if a key with two units belonged to no unit, it would pass to the second one when the first is
removed.) Where keys are unique, the smallest unit is the only one.

Rows whose key is NULL or names no row have no unit and drop out of the join. Keys are compared by their bytes, like
groups, under every collation. The grouping took no measurable time: the join builds the same hash table of keys anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from dpsql.dialects import write_name
from dpsql.errors import Refusal, Unsupported
from dpsql.sql.analysis.measures import refuse_in_where
from dpsql.sql.analysis.reader import Inside, Read, Reader, read_alias
from dpsql.sql.analysis.subqueries import (
    SET_OPERATIONS,
    SUBQUERY_PARTS,
    combine_branches,
    is_plain,
    read_subquery,
    read_unnest,
)
from dpsql.sql.coercion import unify_for_comparison
from dpsql.sql.ir.catalog import HOME, Catalog, Link, RowKey
from dpsql.sql.ir.scope import (
    Scope,
    ScopeColumn,
    ScopeTable,
    add_ties,
    extract_unit_equalities,
    find_linked_units,
    is_connected,
    list_tables,
    propose_name,
    refuse_stored,
)
from dpsql.sql.ir.transforms import canonicalize
from dpsql.sql.ir.tree import (
    BOOLEAN,
    INTEGER,
    Call,
    ColumnRef,
    Derived,
    Exists,
    Expression,
    FromWhere,
    InQuery,
    Joined,
    Literal,
    Numbered,
    Relation,
    Scalar,
    Scan,
    find_longest,
    join_conjuncts,
    stored_column,
    walk,
)
from dpsql.sql.lexer import ascii_lower
from dpsql.sql.syntax.grammar import allow_only, is_unnest

if TYPE_CHECKING:
    from sqlglot.expressions import Expression as Node


MAX_TABLES = 16
MAX_RELATIONS = 64  # tables and subqueries; with more than 99 their numbers would run into those of subqueries.py
_LINKED = 1_000  # relations that links bring in are numbered from here
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


@dataclass(slots=True)
class Sources:
    """Reads FROM clauses of one statement: numbers the tables, knows the catalog and puts CTEs in place.

    `protected` are the private tables read so far, each with its privacy unit.
    """

    catalog: Catalog
    reader: Reader
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
            reader.scope = outside
            return Inside(derived, table, tied=False)
        number = self._number(select)
        with reader.reading(self.usual):  # no aggregates, also where those of the query itself may stand
            body, scope = self.read_from_and_where(select, outer=outside if reader.correlates else None)
            if has_list:
                derived, table = read_subquery(reader, select, number=number, alias="", body=body, scope=scope)
            else:
                for item in select.expressions:
                    if reader.star(item) is None:
                        reader.read(read_alias(reader, item)[1])
                private = scope.private
                table = ScopeTable("", (), None if private is None else private.private_table)
                derived = Derived(number, (Literal(1, INTEGER),), body)
        reader.scope = outside
        # A unit that an outer join may leave NULL does not say whose row it is.
        whole = next((column for column in scope.units if not column.absent), None)
        return Inside(derived, table, scope.tied, unit=whole, linked=scope.linked)

    def read_without_from(self, select: Node) -> tuple[FromWhere, Scope]:
        """Return the one row that a SELECT without FROM is computed on, and no names."""
        scope = Scope(())
        self.reader.scope = scope
        return FromWhere(Numbered(self._number(select), 1), None), scope

    def read_from_and_where(self, select: Node, *, outer: Scope | None = None) -> tuple[FromWhere, Scope]:
        """Return FROM and WHERE of a SELECT, and leave the reader pointing at its names.

        WHERE and the select list may also name columns of `outer`.
        """
        origin = select.args.get("from_")
        if origin is None:
            hint = "Name the table: FROM reads."
            raise Refusal("no-table", "There is no FROM.", hint=hint, place=self.reader.place(select))
        allow_only(self.reader.statement, origin, "this")
        joins = select.args.get("joins") or ()
        with self.reader.correlating(correlates=False):
            self.reader.scope = Scope(())
            relation, scope = self._relation(origin.this)
            commas = False
            for join in joins:
                lacks = join.args.get("side") in {"RIGHT", "FULL"} or join.args.get("kind") in _FILTERS
                if lacks and is_unnest(join.this.this):  # its rows would be there without the row that they come of
                    hint = "CROSS JOIN, JOIN ... ON and LEFT JOIN ... ON are, and a comma."
                    reason, where = "This join of unnest is not read.", self.reader.place(join)
                    raise Unsupported("unnest", reason, hint=hint, place=where)
                self.reader.scope = scope
                right = self._relation(join.this)
                relation, scope = _read_join(self.reader, join, left=(relation, scope), right=right, commas=commas)
                # FROM a, b JOIN c: in DuckDB the comma binds less than JOIN, and sqlglot has both in one list.
                commas = commas or not any(join.args.get(part) for part in ("side", "kind", "on", "using"))
        self.reader.scope = scope = replace(scope, outer=outer)
        condition = None
        if select.args.get("where") is not None:
            try:
                with self.reader.correlating():
                    condition = self.reader.condition(select.args["where"].this)
            except (Refusal, Unsupported) as error:
                raise refuse_in_where(self.reader, select.args["where"]) or error from None
        if joins or condition is not None or outer is not None:
            condition, scope = self._check_units_tied(select, condition, scope=scope)
        self.reader.scope = scope
        return FromWhere(relation, condition), scope

    def _check_units_tied(
        self, select: Node, condition: Expression | None, *, scope: Scope
    ) -> tuple[Expression | None, Scope]:
        """Return WHERE and the names of a block in whose rows all units are equal; refuse any other block."""
        units, outer_units = scope.units, scope.outer_units
        # WHERE a.user_id = b.user_id becomes WHERE (a.user_id COLLATE C) = (b.user_id COLLATE C), which is a tie.
        condition, pairs = extract_unit_equalities(condition, units, right=units)
        condition, outside = extract_unit_equalities(condition, units, right=outer_units)
        around = [(inner, outer_units[0].expression) for inner, _ in outside] if outside else []  # all of one unit
        if not is_connected(scope, (*pairs, *around)):
            # Keys of links tie only what is not tied as it is written: for items.order_id = orders.id with unique ids
            # the equality of units is true in any case, and would only be computed besides.
            linked = (*scope.linked, *find_linked_units(condition, scope.tables, right=scope.tables))
            condition, pairs = (
                add_ties(condition, linked),
                (*pairs, *((one.expression, two.expression) for one, two in linked)),
            )
        if not is_connected(scope, (*pairs, *around)):
            reason = "Private tables meet only where their privacy units are equal."
            joins = select.args.get("joins") or [select]
            hint, place = propose_tie(scope, joins=joins, reader=self.reader), self.reader.place(joins[0])
            raise Refusal("join-private", reason, hint=hint, place=place)
        linked = () if outside else find_linked_units(condition, scope.tables, right=scope.outer_tables)
        return condition, replace(scope, ties=(*scope.ties, *pairs), tied=bool(outside), linked=linked)

    def define(self, with_: Node) -> None:
        """Take up the CTEs of a WITH; each sees those before it, those around it, and the tables."""
        allow_only(self.reader.statement, with_, "expressions")
        names: set[str] = set()
        for cte in with_.expressions:
            allow_only(self.reader.statement, cte, "this", "alias")
            allow_only(self.reader.statement, cte.args["alias"], "this")
            name = ascii_lower(cte.alias)
            if name in names:
                hint, where = "Give one of them another name.", self.reader.place(cte.args["alias"])
                raise Refusal("cte", "Two CTEs have this name.", hint=hint, place=where)
            names.add(name)
            # A copy: a CTE that is defined later, or in a subquery that names this one, does not change what its own
            # names mean.
            self.ctes[name] = (cte.this, dict(self.ctes))

    def _relation(self, node: Node) -> tuple[Relation, Scope]:
        kind = type(node).__name__
        if kind == "Table" and is_unnest(node.this):
            numbered, table = read_unnest(self.reader, node, number=self._number(node, is_table=True))
            return numbered, Scope((table,))
        is_subquery = kind == "Subquery"
        if not is_subquery and (kind != "Table" or type(node.this).__name__ != "Identifier"):
            hint = "FROM takes tables that the policy names, and subqueries over them."
            raise Refusal("source", "This is not a table.", hint=hint, place=self.reader.place(node))
        allow_only(self.reader.statement, node, "this", "alias", *(() if is_subquery else ("db", "catalog")))
        alias = node.args.get("alias")
        if alias is not None:
            allow_only(self.reader.statement, alias, "this")
        name = "" if alias is None else str(alias.name)
        if is_subquery:
            return self._derived(node.this, name, node=node)
        schema, database = node.text("db"), node.text("catalog")
        found = None if schema or database else self.ctes.get(ascii_lower(node.name))
        if found is None:
            return self._scan(node, [part for part in (database, schema, node.name) if part], alias=name)
        # The text of a CTE is read again wherever it is named, with the CTEs that it sees where it stands.
        outside, self.ctes = self.ctes, dict(found[1])  # type: ignore[arg-type]
        try:
            return self._derived(found[0], name or node.name, node=node)
        finally:
            self.ctes = outside

    def _number(self, node: Node, *, is_table: bool = False) -> int:
        """Return the number of the next relation, a table or a subquery."""
        self.tables += is_table
        if self.tables > MAX_TABLES:
            reason = f"A query may name {MAX_TABLES} tables, counting those of a CTE each time it is named."
            raise Refusal("too-many-tables", reason, hint="Name fewer tables.", place=self.reader.place(node))
        self.count += 1
        if self.count > MAX_RELATIONS:
            reason = f"A query may hold {MAX_RELATIONS} tables and subqueries, counting a CTE each time it is named."
            raise Refusal("too-many-tables", reason, hint="Nest fewer subqueries.", place=self.reader.place(node))
        return self.count

    def _linked(self) -> int:
        """Return the number of a relation that a link brings in; the analyst did not name it, so it is not counted."""
        self.linked += 1
        return _LINKED + self.linked

    def _scan(self, node: Node, path: Sequence[str], *, alias: str) -> tuple[Relation, Scope]:
        """Return a table that FROM names and its columns.

        Here the privacy unit is found: the column that the policy names or, with a link, the last column, which
        `find_owned_rows` computes. `row_keys` are the keys of links that a column holds or refers to.
        """
        table = self.catalog.find_path(path)
        if table is None:
            hint = list_tables([table.name for table in self.catalog.list_tables()], path)
            raise Refusal("unknown-table", "There is no such table.", hint=hint, place=self.reader.place(node))
        if table.stored_kind:  # the engine does not have it; `read_outer_select` reads it where nothing private is read
            raise refuse_stored(table, self.reader.place(node))
        number = self._number(node, is_table=True)
        unit = ascii_lower(table.privacy_unit) if table.privacy_unit is not None else None
        keys = dict[str, frozenset[RowKey]]()  # of the columns that are the key or the column of a link
        if self.catalog.row_keys:
            every = self.catalog.row_keys if table.privacy_unit is not None else frozenset()
            keys = {key: frozenset([(path, key)]) for path, key in every if path == table.path}
        if self.catalog.row_keys and table.link is not None:
            column, row = ascii_lower(table.link.column), (table.link.path, ascii_lower(table.link.key))
            keys[column] = keys.get(column, frozenset()) | {row}
        columns: tuple[ScopeColumn, ...] = ()
        for name, type_ in table.columns:
            stored, lower = stored_column(number, name, type_=type_), ascii_lower(name)
            row_keys = keys.get(lower, frozenset())
            columns = (*columns, ScopeColumn(name, stored, is_unit=lower == unit, row_keys=row_keys))
        relation: Relation = Scan(number, table.path)
        if table.link is not None:
            relation, owner = find_owned_rows(Scan(number, table.path), table.link, number=self._linked)
            # The last column stands for no stored one: items.user_id is "c2" of the subquery of owners.
            columns = (*columns[:-1], replace(columns[-1], expression=owner))
        private_name = table.name if unit is not None else None
        if table.privacy_unit is not None:
            self.protected[table.name] = table.privacy_unit
        schema = "" if alias else table.name.rpartition(".")[0] or HOME  # an alias hides the name that it is for
        return relation, Scope((ScopeTable(alias or path[-1], columns, private_name, table.privacy_unit, schema),))

    def _derived(self, select: Node, alias: str, *, node: Node) -> tuple[Relation, Scope]:
        """Read a subquery in FROM or a CTE, which must pass the unit on."""
        derived, table = self._projected(select, alias, node=node)
        if table.private_table is not None and not any(column.is_unit for column in table.columns):
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
                for name in ("order", "limit", "offset"):  # they would apply to both branches
                    if select.args.get(name) is not None:
                        reason = "ORDER BY and LIMIT behind UNION are not read."
                        hint = "Leave them out, or order and limit a subquery that holds the UNION."
                        where = self.reader.place(select.args[name])
                        raise Unsupported("subquery", reason, hint=hint, place=where)
                allow_only(self.reader.statement, select, "this", "expression", "distinct", "with_")
                if type(select).__name__ != "Union" and not select.args.get("distinct"):
                    reason, hint = "INTERSECT ALL and EXCEPT ALL are not read.", "Leave ALL out."
                    raise Unsupported("subquery", reason, hint=hint, place=self.reader.place(select))
                left, right = self._branch(select.this), self._branch(select.expression)
                return combine_branches(self.reader, select, left=left, right=right, alias=alias)
            if type(select).__name__ != "Select":
                hint = "Or several, with UNION, INTERSECT or EXCEPT between them."
                reason = "A subquery here must be one SELECT."
                raise Unsupported("subquery", reason, hint=hint, place=self.reader.place(node))
            allow_only(self.reader.statement, select, *SUBQUERY_PARTS)
            number = self._number(node)
            body, scope = self.read_from_and_where(select)
            return read_subquery(self.reader, select, number=number, alias=alias, body=body, scope=scope)
        finally:
            self.ctes = outside

    def _branch(self, node: Node) -> tuple[Derived, ScopeTable]:
        """Read one side of a set operation; sqlglot puts parentheses around what binds closer."""
        if type(node).__name__ == "Subquery":
            allow_only(self.reader.statement, node, "this")
            node = node.this
        return self._projected(node, "", node=node)


def propose_tie(*scopes: Scope, joins: Sequence[Node] = (), reader: Reader | None = None) -> str:
    """Return a hint with the condition that ties the private tables of the scopes by their units, or by a link's key.

    Conditions that the `joins` have already, of one column and another, are in it.
    """
    tables = [table for scope in scopes for table in scope.tables]
    found = [(table.alias, column) for table in tables for column in table.columns if column.is_unit]
    types = sorted({str(column.expression.type) for _, column in found})
    if len(types) > 1:
        return f"Ask the curator for units of one type: {' and '.join(types)} are not equal here, even if cast."
    if not all(alias for alias, _ in found):
        return f"Name the subqueries, as in (SELECT ...) AS a JOIN (SELECT ...) AS b ON {_EXAMPLE_TIE}."
    written, parts = list[str](), [join.args.get("on") for join in joins] if reader is not None else []
    while reader is not None and parts:
        part = parts.pop(0)
        kind = type(part).__name__
        if part is not None and kind == "And":
            parts = [part.this, part.expression, *parts]
        elif part is not None and kind == "EQ":  # of two columns of tables, as it is written
            sides, place = (part.this, part.expression), reader.place(part)
            is_plain = all(type(side).__name__ == "Column" and side.args.get("table") for side in sides)
            written += [" ".join(place.fragment.split())] if place is not None and is_plain else []
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
                if other.private_table == table.private_table or column.row_keys.isdisjoint(known.row_keys):
                    continue
                sides = _qualify(other.alias, known), _qualify(table.alias, column)
                if {" = ".join(sides), " = ".join(sides[::-1])}.isdisjoint(written):
                    return " = ".join(sides)
    units = [_qualify(each.alias, next(unit for unit in each.columns if unit.is_unit)) for each in (before[0], table)]
    return " = ".join(units)


def _qualify(alias: str, column: ScopeColumn) -> str:
    return f"{write_name(alias)}.{write_name(column.name)}"


def _read_join(reader: Reader, join: Node, *, left: Side, right: Side, commas: bool) -> Side:
    """Return the join of two sides, of which the right one is a single table; `commas` precede it in FROM."""
    allow_only(reader.statement, join, "this", "side", "kind", "on", "using")
    (source, scope), (other, added) = left, right
    kind = _kind(reader, join, scope=scope, added=added, commas=commas)
    is_untied = kind in _KEEPS_RIGHT and bool(scope.linked) and not is_connected(scope)
    if is_untied and isinstance(source, Joined) and source.kind in _INNER:
        # rows of the right side are kept: links have to tie the left side by then
        source = replace(source, kind="INNER", on=add_ties(source.on, scope.linked))
        scope = replace(scope, ties=(*scope.ties, *((one.expression, two.expression) for one, two in scope.linked)))
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
        after, conditions = _read_using(reader, join, scope=scope, table=table, after=after)
    if join.args.get("on") is not None:
        reader.scope = after
        conditions.append(reader.condition(join.args["on"]))
        parts = walk(conditions[-1])
        if kind in _KEEPS_LEFT | _KEEPS_RIGHT and any(isinstance(each, InQuery | Exists | Scalar) for each in parts):
            # DuckDB's optimizer fails on it where it could do without the join
            reason = "A subquery is not read in ON of an outer join."
            hint = "Compute it as a column of a subquery in FROM, such as "
            hint += "(SELECT *, x IN (SELECT ...) AS found FROM t)."
            where = reader.place(join.args["on"]) or reader.place(join)
            raise Unsupported("subquery", reason, hint=hint, place=where)
    if not conditions and (kind != "INNER" or str(join.args.get("kind") or "") not in {"", "CROSS"}):
        raise Refusal("join", "This join has no condition.", hint="ON or USING.", place=reader.place(join))
    condition, after = _tie_join(
        reader, join, kind=kind, scopes=(scope, added, after), condition=join_conjuncts(conditions)
    )
    joined_ = Joined(source, "CROSS" if condition is None else kind, other, condition)
    # SEMI and ANTI JOIN bring no columns: behind them the names are those of the left side.
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
    # rows of the public side alone have no unit and are in no group:
    # countries LEFT JOIN reads becomes countries JOIN reads, and countries FULL JOIN reads a RIGHT JOIN
    if scope.private is None:
        return "RIGHT" if kind in _KEEPS_RIGHT else "INNER"
    return kind if kind in _FILTERS else "LEFT" if kind in _KEEPS_LEFT else "INNER"


def _tie_join(
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
        condition, pairs = (
            add_ties(condition, linked),
            tuple((one.expression, other.expression) for one, other in linked),
        )
    if not pairs or (kind in _KEEPS_RIGHT and not is_connected(scope)):
        reason = "Private tables meet only where their privacy units are equal."
        hint = propose_tie(scope, added, joins=[join], reader=reader)
        raise Refusal("join-private", reason, hint=hint, place=reader.place(join))
    return condition, replace(after, ties=(*after.ties, pairs[0]))


def _read_using(
    reader: Reader, join: Node, *, scope: Scope, table: ScopeTable, after: Scope
) -> tuple[Scope, list[Expression]]:
    """Return the names after a join with its USING columns merged, and the equalities they mean."""
    conditions: list[Expression] = []
    for name in join.args["using"]:
        where = partial(reader.at, name)
        left, right = scope.find(name.name, "", place=where), Scope((table,)).find(name.name, "", place=where)
        if left is None or right is None:
            others = {ascii_lower(column.name) for column in table.columns}
            near = propose_name(name.name, [each.name for each in scope.star() if ascii_lower(each.name) in others])
            reason, hint = "USING needs this column on both sides.", f"{near}Write ON left.x = right.y instead."
            raise Refusal("unknown-column", reason, hint=hint, place=where())
        if left.is_unit and right.is_unit and left.expression.type == right.expression.type:
            sides: tuple[Expression, ...] = (left.expression, right.expression)
        else:
            sides = unify_for_comparison(
                tuple(reader.computed(side.expression, name) for side in (left, right)), where()
            )
        conditions.append(Call("=", sides, BOOLEAN))
        side = str(join.args.get("side") or "")
        if left.is_unit != right.is_unit and (scope.private is None or table.private_table is None):
            side = "LEFT" if left.is_unit else "RIGHT"  # rows of the public side alone are dropped
        if side == "FULL":  # the present one of both
            both = Call("coalesce", sides, sides[0].type, find_longest(sides))
            is_unit, absent = left.is_unit and right.is_unit, left.absent or right.absent
            shared = ScopeColumn(left.name, both, is_unit=is_unit, absent=absent)
        else:
            shared = right if side == "RIGHT" else left  # the column of the preserved side
        after = _merge_columns(after, left, right=right, shared=shared)
    return after, conditions


def _merge_columns(after: Scope, left: ScopeColumn, *, right: ScopeColumn, shared: ScopeColumn) -> Scope:
    """Return the names with the right side's column hidden behind the left's, which means `shared`."""
    tables, ties = list[ScopeTable](), after.ties
    for table in after.tables:
        columns = list(table.columns)
        for at, column in enumerate(columns):
            if column.expression == right.expression:
                # a JOIN b USING (id): b.id is found as b.id alone, and not by the bare name id.
                columns[at] = replace(column, merged=True)
            elif column.bare.expression == left.expression and not column.merged:
                known = shared.expression == column.bare.expression
                columns[at] = column if known else replace(column, shared=shared)
                ties = (*ties, (left.expression, column.expression)) if column.is_unit else ties
        tables.append(replace(table, columns=tuple(columns)))
    return replace(after, tables=tuple(tables), ties=ties)


def find_owned_rows(scan: Scan, link: Link, *, number: Callable[[], int]) -> tuple[Relation, Expression]:
    """Return the rows of a linked table that have a unit, and the unit; `number` gives fresh relation numbers.

    items, linked by order_id to orders     items JOIN (SELECT id, min(user_id) FROM orders GROUP BY id) AS owners
    of user_id                              ON items.order_id = owners.id, and min(user_id) is the unit
    """
    at, target = number(), Scan(number(), link.path)
    source: Relation = target
    if link.beyond is None:
        unit = stored_column(target.number, link.unit, type_=link.unit_type)
    else:
        source, unit = find_owned_rows(target, link.beyond, number=number)
    # No two rows of the subquery have one key, so that the join repeats no row, also where keys of the stored table
    # repeat.
    key = canonicalize(stored_column(target.number, link.key, type_=link.type))
    # min passes over NULL: a key has a unit if any row with this key has one. In a chain `source` has joined the rows
    # of `link.beyond`, and the unit is the least of the least.
    least = Call("min", (canonicalize(unit),), unit.type)
    units = Derived(at, (key, least), FromWhere(source, None), grouping="1")
    own = canonicalize(stored_column(scan.number, link.column, type_=link.type))
    sides = (own, canonicalize(ColumnRef(at, "c1", key.type)))
    return Joined(scan, "INNER", units, Call("=", sides, BOOLEAN)), ColumnRef(at, "c2", unit.type)
