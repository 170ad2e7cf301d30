"""Private SELECT, from its syntax tree: keys, measures, unit, domain and order, or a refusal."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

from dpsql.dialects import write_name
from dpsql.errors import Place, Refusal, Unsupported
from dpsql.sql.analysis.charged_values import find_charged_values, find_sole_column
from dpsql.sql.analysis.domains import read_assumption, read_domain, read_partitions
from dpsql.sql.analysis.from_clause import Sources
from dpsql.sql.analysis.known_values import needs_bounds, read_group_domain
from dpsql.sql.analysis.measures import (
    ReadMeasure,
    is_interval_end,
    is_measure,
    list_measures,
    read_measure,
    set_columns,
)
from dpsql.sql.analysis.outer_measures import couple_measures
from dpsql.sql.analysis.reader import Reader
from dpsql.sql.analysis.released_clauses import Item, Released, complete_ends, read_position, read_row_count
from dpsql.sql.analysis.subqueries import check_alias, read_alias
from dpsql.sql.ir.literals import UnboundParameter
from dpsql.sql.ir.measures import DISTINCT_UNITS, Measure
from dpsql.sql.ir.scope import Scope, ScopeTable, join_conjuncts, split_conjuncts
from dpsql.sql.ir.statements import (
    Clause,
    Domain,
    Order,
    Output,
    PrivateQuery,
)
from dpsql.sql.ir.tree import Cast, Expression, FromWhere
from dpsql.sql.ir.types import Family, find_read_type
from dpsql.sql.lexer import Statement, ascii_lower
from dpsql.sql.syntax.clause import (
    SplitStatement,
)
from dpsql.sql.syntax.sqlglot_nodes import only, pair_items_with_text, place

if TYPE_CHECKING:
    from sqlglot.expressions import Expression as Node


MAX_KEYS = 16
_KEY_FAMILIES = frozenset(
    [Family.BOOLEAN, Family.INTEGER, Family.DECIMAL, Family.DOUBLE, Family.TEXT, Family.DATE, Family.TIMESTAMP]
)
_SELECT_PARTS = ("with_", "expressions", "from_", "joins", "where", "group", "having", "order", "limit", "distinct")


def read_private_select(select: Node, sources: Sources, *, lifted: SplitStatement) -> PrivateQuery:
    """Return the private query of a SELECT whose clause was removed; raise `Refusal` or `Unsupported`."""
    assert lifted.clause is not None  # noqa: S101 - of the caller
    return _Analysis(sources.reader.statement, sources, lifted, lifted.clause).query(select)


def _describe_output(item: Item, keys: tuple[Expression, ...], *, measures: tuple[Measure, ...]) -> Output:
    """Return the column of the answer that an item of the select list is."""
    if item.measure is None or item.expression is not None:
        return Output(item.name, None if item.expression is None else keys.index(item.expression))
    divisor = item.measure.divisor
    if measures == (DISTINCT_UNITS,):
        return Output(item.name, None, end=item.end)
    return Output(
        item.name,
        None,
        measures.index(item.measure.measure),
        None if divisor is None else measures.index(divisor),
        item.end,
    )


def _filter(body: FromWhere, condition: Expression | None) -> FromWhere:
    """Return the rows of a body where a condition holds."""
    return FromWhere(body.source, join_conjuncts([*split_conjuncts(body.where), *split_conjuncts(condition)]))


@dataclass(slots=True)
class _Analysis:
    statement: Statement
    sources: Sources
    lifted: SplitStatement
    clause: Clause

    @property
    def reader(self) -> Reader:
        return self.sources.reader

    def query(self, select: Node) -> PrivateQuery:
        """Return the private query of the outermost SELECT."""
        if read_row_count(self.reader, select.args.get("offset")):
            hint = "Ask for more keys with TOP k and leave the first rows of the answer out."
            reason = "OFFSET is not read in a private query."
            raise Unsupported("limit", reason, hint=hint, place=self._at(select.args["offset"]))
        only(self.statement, select, *_SELECT_PARTS, "offset")
        if select.args.get("with_") is not None:
            self.sources.define(select.args["with_"])
        body, scope = self.sources.block(select)
        private, unit = self._private(scope, select)
        self._check_unit_column(private.unit_name or "")
        with self.reader.correlating():
            items = [
                self._item(item, scope, spelled=spelled)
                for item, spelled in pair_items_with_text(self.statement, select, tokens=self.lifted.tokens)
            ]
            keys = self._keys(select, items, scope=scope)
            items = complete_ends(self.reader, items, options=self.clause.options)
        self._check_outputs(items, select)
        released = Released(self.reader, items)
        order, assumed = released.order(select), self.clause.options.get("assume")
        measures, condition = self._measures(items, order)
        domain, cut = self._domain(keys, body)
        query = PrivateQuery(
            text=self.statement.text,
            table=private.table or "",
            unit_name=private.unit_name or "",
            protected=tuple(sorted(self.sources.protected.items())),
            unit=self._find_unit(items) or unit,
            keys=keys,
            body=_filter(body, condition),
            outputs=tuple(_describe_output(item, keys, measures=measures) for item in items),
            order=order,
            limit=read_row_count(self.reader, select.args.get("limit")),
            clause=self.clause,
            explained=self.lifted.explained,
            keep=released.keep(select),
            domain=domain,
            assumed=None if assumed is None else read_assumption(assumed, catalog=self.sources.catalog),
            dialect=self.sources.catalog.dialect,
            materialized=self.sources.catalog.materialized,
            private_tables=self.sources.catalog.private_tables,
            measures=measures,
            key_column=find_sole_column(keys[0], body.source, catalog=self.sources.catalog) if len(keys) == 1 else None,
            cut=cut,
            charged_values=find_charged_values(body, self._find_unit(items) or unit, catalog=self.sources.catalog),
        )
        query = couple_measures(set_columns(query, catalog=self.sources.catalog))
        return read_partitions(query, self._per(items, keys, scope=scope), catalog=self.sources.catalog)

    def _check_unit_column(self, unit: str) -> None:
        """Refuse another privacy unit than the policy's."""
        option = None if self.clause.terms is None else self.clause.terms.unit_column
        if option is not None and (not option.word or ascii_lower(str(option.value)) != ascii_lower(unit)):
            hint = f"Write privacy_unit_column = {write_name(unit)}, or leave it out."
            raise Refusal("option", "The policy has another privacy unit here.", hint=hint, place=option.place)

    def _domain(self, keys: tuple[Expression, ...], body: FromWhere) -> tuple[Domain | None, str]:
        """Return the known domain of the options or, for ALL PRIVATE, of the statement, and what WHERE cuts of it."""
        option, catalog = self.clause.options.get("domain"), self.sources.catalog
        if self.clause.shape != "all":
            listed = None if self.clause.per else option
            return (None if listed is None else read_domain(listed, keys, catalog=catalog)), ""
        unbound = [each for each in self.reader.bound.values() if isinstance(each, UnboundParameter)]
        if unbound and option is None and any(map(needs_bounds, keys)):  # which groups there are is open
            for each in unbound:
                each.is_option = True
            return None, ""
        return read_group_domain(keys, body, option=option, catalog=catalog, place=self.clause.place)

    def _at(self, node: Node) -> Place | None:
        return place(self.statement, node)

    def _measures(self, items: list[Item], order: tuple[Order, ...]) -> tuple[tuple[Measure, ...], Expression | None]:
        """Return the measures, the one that ranks first, and the condition of rows to count.

        A group that no counted row is in has the count 0 in SQL, and is nowhere to be released. So where only units are
        counted, under one condition, that may stand in WHERE, where it takes away the same rows, and the group too.
        """
        found = [item.measure for item in items if item.measure is not None]
        if not found:
            return (DISTINCT_UNITS,), None
        conditions = {each.measure.condition for each in found}
        if len(conditions) == 1 and all(each.unit is not None for each in found):
            return (DISTINCT_UNITS,), found[0].measure.condition
        return list_measures(found, ranking=self._find_ranking(items, order)), None

    def _find_ranking(self, items: list[Item], order: tuple[Order, ...]) -> ReadMeasure | None:
        """Return the measure that ranks: the first in ORDER BY or else in the select list; None where nothing does."""
        if self.clause.shape != "top":
            return None
        ordered = [items[term.output] for term in order]
        able = [
            item.measure for item in (*ordered, *items) if item.measure is not None and item.measure.divisor is None
        ]
        if able:
            return able[0]
        where = next(item.node for item in items if item.measure is not None)
        private = self.reader.scope.private
        unit = write_name(private.unit_name or "unit") if private else "unit"
        hint = f"Write COUNT(DISTINCT {unit}), or select COUNT(*) or SUM too: groups are ranked by the first of them."
        raise Refusal("aggregate", "AVG does not rank groups.", hint=hint, place=self._at(where))

    def _find_unit(self, items: list[Item]) -> Expression | None:
        """Return the unit that is counted DISTINCT, None where none is; refuse two of them."""
        units = [(item.measure.unit, item.node) for item in items if item.measure is not None and item.measure.unit]
        if any(unit != units[0][0] for unit, _ in units):
            hint = "Count one of them: where both are there they are the same unit."
            raise Refusal("counts", "Two privacy units are counted.", hint=hint, place=self._at(units[-1][1]))
        return units[0][0] if units else None

    def _private(self, scope: Scope, select: Node) -> tuple[ScopeTable, Expression]:
        """Return the private table in scope, which must be there, and its unit."""
        if scope.private is not None and scope.unit is not None:
            return scope.private, scope.unit
        hint = "Leave TOP k PRIVATE out and write ORDER BY ... LIMIT k: public tables are answered exactly, at no cost."
        if self.clause.shape != "top":
            hint = "Leave the clause out: public tables are answered exactly, at no cost."
        reason = "No table of this query has a privacy unit."
        raise Refusal("nothing-private", reason, hint=hint, place=self._at(select))

    def _item(self, item: Node, scope: Scope, *, spelled: str) -> Item:
        alias, node = read_alias(self.reader, item)
        kind = type(node).__name__
        if is_measure(node):
            return Item(alias or spelled, None, node, read_measure(self.reader, node))
        if is_interval_end(node):
            return Item(alias or spelled, None, node)  # of a measure that may follow: `complete_ends` finds it
        if any(is_measure(cast("Node", part)) or is_interval_end(cast("Node", part)) for part in node.walk()):
            hint = "Put the query into FROM: SELECT 2 * x.n FROM (SELECT COUNT(*) AS n FROM ... PRIVATE) AS x."
            reason = "Counts and sums are released as they are, and computed with outside of the private query."
            raise Refusal("aggregate", reason, hint=hint, place=self._at(node))
        if kind == "Star" or (kind == "Column" and type(node.this).__name__ == "Star"):
            hint = "Name the columns to group by."
            raise Refusal("star", "* would release raw columns.", hint=hint, place=self._at(node))
        check_alias(self.reader, alias, node=node, scope=scope)
        is_column = kind == "Column" and not self.reader.means_clock(node)
        name = self.reader.column(node).name if is_column and not alias else alias or spelled
        return Item(name, self.reader.read(node), node)

    def _keys(self, select: Node, items: list[Item], *, scope: Scope) -> tuple[Expression, ...]:
        """Return the group keys, in the order of GROUP BY; each must be selected, and nothing else may be."""
        group, released = select.args.get("group"), [item for item in items if item.expression is not None]
        if self.clause.shape == "total":
            return self._no_keys(select, released)
        if select.args.get("distinct") is not None:
            only(self.statement, select.args["distinct"])
        if group is None and select.args.get("distinct") is None:
            hint = "Add GROUP BY and the columns whose values are to be ranked."
            raise Refusal("no-group", "There is no GROUP BY.", hint=hint, place=self._at(select))
        if group is not None:
            only(self.statement, group, "all" if group.args.get("all") else "expressions")
        if group is None or group.args.get("all"):
            keys = [item.expression for item in released if item.expression is not None]
        else:
            keys = [self._group_key(node, items, scope=scope) for node in group.expressions]
        unique = tuple(dict.fromkeys(keys))
        self._check_keys(unique, released, node=group if group is not None and group.expressions else select)
        return unique

    def _no_keys(self, select: Node, released: list[Item]) -> tuple[Expression, ...]:
        """Return no key; refuse a total that has one."""
        if select.args.get("group") is not None or select.args.get("distinct") is not None:
            hint = "Write TOP 10 PRIVATE, or ALL PRIVATE where the groups are known."
            raise Refusal("clause", "PRIVATE alone is for a total.", hint=hint, place=self.clause.place)
        if released:
            hint = "End the query with GROUP BY ALL TOP 10 PRIVATE, or leave the column out."
            raise Refusal("not-a-key", "A total has no keys.", hint=hint, place=self._at(released[0].node))
        return ()

    def _check_keys(self, keys: tuple[Expression, ...], released: list[Item], *, node: Node) -> None:
        if not keys:
            hint = "Select a column beside the count, or write PRIVATE alone for a total."
            raise Refusal("keys", "GROUP BY has no key.", hint=hint, place=self._at(node))
        if len(keys) > MAX_KEYS:
            reason = f"A private query groups by 1 to {MAX_KEYS} keys."
            raise Refusal("keys", reason, hint="Group by fewer expressions.", place=self._at(node))
        selected = [item.expression for item in released]
        if any(key not in selected for key in keys):
            hint = "Select every key, in the same words."
            raise Refusal("key-not-selected", "A group key is not selected.", hint=hint, place=self._at(node))
        for item in released:
            if item.expression not in keys:
                hint = "Group by it: GROUP BY ALL groups by all that is selected."
                raise Refusal(
                    "not-a-key", "This is selected but not a group key.", hint=hint, place=self._at(item.node)
                )
            if item.expression.type.family not in _KEY_FAMILIES:
                hint = "Cast it to a type whose equal values print alike, such as VARCHAR."
                reason = f"A key may not be of type {item.expression.type}."
                raise Refusal("key-type", reason, hint=hint, place=self._at(item.node))

    def _group_key(self, node: Node, items: list[Item], *, scope: Scope) -> Expression:
        """Return the key an item of GROUP BY means: a position, a column, an alias, or an expression, in this order."""
        kind = type(node).__name__
        if kind == "Literal":
            position = read_position(node, len(items))
            if position and (found := items[position - 1].expression) is not None:
                return found
            hint = "Positions count the select list from 1 and may not mean the count."
            raise Refusal("group-position", "This is no position of a key.", hint=hint, place=self._at(node))
        is_name = kind == "Column" and not node.args.get("table")
        if is_name and scope.find(node.name, "", place=partial(self._at, node)) is None:
            named = [item for item in items if ascii_lower(item.name) == ascii_lower(node.name)]
            if len(named) == 1 and named[0].expression is not None:
                return named[0].expression
        return self.reader.read(node)

    def _per(self, items: list[Item], keys: tuple[Expression, ...], *, scope: Scope) -> int | None:
        """Return the number of the key that PER names, by its output or by its column; None where it names none."""
        per = self.clause.per
        if per is None:
            return None
        named = [item.expression for item in items if ascii_lower(item.name) == ascii_lower(per.text)]
        if not named and (found := scope.find(per.text, "", place=lambda: per.place)) is not None:
            named = [found.column, Cast(found.column, find_read_type(found.column.type))]
        return next((keys.index(expression) for expression in named if expression in keys), None)

    def _check_outputs(self, items: list[Item], select: Node) -> None:
        names = [ascii_lower(item.name) for item in items]
        if len(set(names)) < len(names):
            hint = "Give each output its own alias."
            raise Refusal("output-names", "Two outputs have the same name.", hint=hint, place=self._at(select))
