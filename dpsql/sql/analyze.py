"""Analysis: the text of one statement into a private query, or a refusal; no row is read, no name guessed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsql.errors import Place, Refusal, Unsupported
from dpsql.sql.catalog import Catalog
from dpsql.sql.clause import Lifted, lift
from dpsql.sql.expressions import READERS
from dpsql.sql.functions import PatternCheck
from dpsql.sql.grammar import settle
from dpsql.sql.nodes import only, parse, place
from dpsql.sql.parameters import Given, bind
from dpsql.sql.query import Column, Expression, Order, Output, PrivateQuery, ShowBudget
from dpsql.sql.reader import Reader
from dpsql.sql.scope import Scope
from dpsql.sql.sources import Sources, output_name
from dpsql.sql.text import Statement, ascii_lower, scan
from dpsql.sql.types import Family

if TYPE_CHECKING:
    from sqlglot.expressions import Expression as Node

__all__ = ["analyze"]

MOST_KEYS = 16
_INTEGER = re.compile(r"[0-9]{1,18}")
_KEY_FAMILIES = frozenset(
    [Family.BOOLEAN, Family.INTEGER, Family.DECIMAL, Family.DOUBLE, Family.TEXT, Family.DATE, Family.TIMESTAMP]
)
_SELECT_PARTS = ("with_", "expressions", "from_", "joins", "where", "group", "order", "limit", "distinct")


def analyze(
    text: str, catalog: Catalog, *, parameters: Given = (), accepts_pattern: PatternCheck
) -> PrivateQuery | ShowBudget:
    """Return what the statement asks, or raise `Refusal`, `Unsupported` or `UsageError`.

    Given: `parameters` are the values of ?, $1 or :name; `accepts_pattern` says whether the engine compiles a
    regular expression, tried away from all data.
    """
    statement = scan(text)
    if _is_show_budget(statement):
        return ShowBudget()
    bound = bind(statement, parameters)
    lifted = lift(statement, bound.__getitem__)
    select = parse(statement, settle(statement, lifted.tokens))
    return _Analysis(statement, Sources(catalog, Reader(statement, bound, accepts_pattern, READERS))).query(
        select, lifted
    )


def _is_show_budget(statement: Statement) -> bool:
    words = [ascii_lower(token.text) for token in statement.tokens if token.text != ";"]
    return words == ["show", "budget"]


@dataclass(slots=True)
class _Item:
    """One item of the outermost select list; `expression` is None for COUNT(DISTINCT unit)."""

    name: str
    expression: Expression | None
    node: Node


@dataclass(slots=True)
class _Analysis:
    statement: Statement
    sources: Sources

    @property
    def reader(self) -> Reader:
        return self.sources.reader

    def query(self, select: Node, lifted: Lifted) -> PrivateQuery:
        """Return the private query that the outermost SELECT spells."""
        only(self.statement, select, *_SELECT_PARTS)
        if select.args.get("with_") is not None:
            self.sources.define(select.args["with_"])
        body, scope = self.sources.block(select)
        unit, private = scope.unit, scope.private
        if private is None or unit is None or private.table is None:
            hint = "At least one table must have a privacy unit in the policy."
            reason = "Queries of public tables alone are not built yet."
            raise Unsupported("nothing-private", reason, hint=hint, place=self._at(select))
        items = [
            self._item(item, scope, unit=unit, spelled=spelled) for item, spelled in self._select_list(select, lifted)
        ]
        keys = self._keys(select, items, scope=scope)
        outputs = tuple(
            Output(item.name, None if item.expression is None else keys.index(item.expression)) for item in items
        )
        self._check_outputs(items, select)
        return PrivateQuery(
            text=self.statement.text,
            table=private.table,
            unit_name=private.unit_name or "",
            unit=unit,
            keys=keys,
            body=body,
            outputs=outputs,
            order=self._order(select, items),
            limit=self._limit(select),
            clause=lifted.clause,
            explained=lifted.explained,
        )

    def _at(self, node: Node) -> Place | None:
        return place(self.statement, node)

    def _select_list(self, select: Node, lifted: Lifted) -> list[tuple[Node, str]]:
        """Pair the items of the select list with their text, which names those without an alias."""
        depth, start, previous = 0, None, ""
        spans: list[list[int]] = []
        for token in lifted.tokens:
            kind = token.token_type.name
            depth += (kind == "L_PAREN") - (kind == "R_PAREN")
            if start is None:
                start = 0 if kind == "SELECT" and depth == 0 else None
                continue
            if depth == 0 and kind == "FROM" and previous != "DISTINCT":  # IS DISTINCT FROM is an operator
                break
            previous = kind
            if (kind == "COMMA" and depth == 0) or not spans:
                spans.append([])
            if not (kind == "COMMA" and depth == 0) and not (kind == "DISTINCT" and spans == [[]]):
                spans[-1] += [token.start, token.end + 1]
        texts = [" ".join(self.statement.text[span[0] : span[-1]].split()) if span else "" for span in spans]
        if len(texts) != len(select.expressions):
            raise Refusal(
                "syntax",
                "The select list cannot be read.",
                hint="Check its commas and parentheses.",
                place=self._at(select),
            )
        return list(zip(select.expressions, texts, strict=True))

    def _item(self, item: Node, scope: Scope, *, unit: Column, spelled: str) -> _Item:
        alias, node = output_name(self.reader, item)
        kind = type(node).__name__
        if kind == "Count":
            self._check_count(node, scope, unit=unit)
            return _Item(alias or spelled, None, node)
        if kind == "Star" or (kind == "Column" and type(node.this).__name__ == "Star"):
            hint = "Name the columns to group by."
            raise Refusal("star", "* would release raw columns.", hint=hint, place=self._at(node))
        self.sources.check_alias(alias, node, scope=scope)
        name = self.reader.column(node).name if kind == "Column" and not alias else alias or spelled
        return _Item(name, self.reader.read(node), node)

    def _check_count(self, node: Node, scope: Scope, *, unit: Column) -> None:
        only(self.statement, node, "this", "big_int")
        private = scope.private
        counted = node.this
        hint = f"Write COUNT(DISTINCT {private.unit_name if private else 'unit'})."
        reason = "The only aggregate is the number of distinct privacy units."
        if type(counted).__name__ == "Distinct":
            only(self.statement, counted, "expressions")
            columns = counted.expressions
            if len(columns) == 1 and type(columns[0]).__name__ == "Column":
                found = self.reader.column(columns[0])
                if found.is_unit and found.column == unit:
                    return
        raise Refusal("aggregate", reason, hint=hint, place=self._at(node))

    def _keys(self, select: Node, items: list[_Item], *, scope: Scope) -> tuple[Expression, ...]:
        """Return the group keys, in the order of GROUP BY; each must be selected, and nothing else may be."""
        group, released = select.args.get("group"), [item for item in items if item.expression is not None]
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

    def _check_keys(self, keys: tuple[Expression, ...], released: list[_Item], *, node: Node) -> None:
        if not 1 <= len(keys) <= MOST_KEYS:
            reason = f"A private query groups by 1 to {MOST_KEYS} keys."
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

    def _group_key(self, node: Node, items: list[_Item], *, scope: Scope) -> Expression:
        """Return the key an item of GROUP BY means: a position, a column, an alias, or an expression, in this order."""
        kind = type(node).__name__
        if kind == "Literal":
            position = _position(node, items)
            if position and (found := items[position - 1].expression) is not None:
                return found
            hint = "Positions count the select list from 1 and may not mean the count."
            raise Refusal("group-position", "This is no position of a key.", hint=hint, place=self._at(node))
        if kind == "Column" and not node.args.get("table") and scope.find(node.name, "", place=self._at(node)) is None:
            named = [item for item in items if ascii_lower(item.name) == ascii_lower(node.name)]
            if len(named) == 1 and named[0].expression is not None:
                return named[0].expression
        return self.reader.read(node)

    def _check_outputs(self, items: list[_Item], select: Node) -> None:
        names = [ascii_lower(item.name) for item in items]
        if len(set(names)) < len(names):
            hint = "Give each output its own alias."
            raise Refusal("output-names", "Two outputs have the same name.", hint=hint, place=self._at(select))

    def _order(self, select: Node, items: list[_Item]) -> tuple[Order, ...]:
        order = select.args.get("order")
        if order is None:
            return ()
        only(self.statement, order, "expressions")
        return tuple(self._order_term(term, items) for term in order.expressions)

    def _order_term(self, term: Node, items: list[_Item]) -> Order:
        only(self.statement, term, "this", "desc", "nulls_first")
        descending = bool(term.args.get("desc"))
        nulls_first = bool(term.args.get("nulls_first"))
        return Order(self._released(term.this, items), descending, nulls_first)

    def _released(self, node: Node, items: list[_Item]) -> int:
        """Return the position of the output that an ORDER BY term names; nothing else may be ordered by."""
        kind = type(node).__name__
        if kind == "Literal" and (position := _position(node, items)):
            return position - 1
        if kind == "Column" and not node.args.get("table"):
            for position, item in enumerate(items):
                if ascii_lower(item.name) == ascii_lower(node.name):
                    return position
        wanted = None if kind == "Count" else self.reader.read(node) if kind != "Literal" else ...
        if kind == "Count":
            self._check_count(node, self.reader.scope, unit=self.reader.scope.unit)  # type: ignore[arg-type]
        for position, item in enumerate(items):
            if item.expression == wanted:
                return position
        hint = "Order by an output of the query; its rows come in noisy rank order otherwise."
        raise Refusal("order", "Only released columns can be ordered by.", hint=hint, place=self._at(node))

    def _limit(self, select: Node) -> int | None:
        limit = select.args.get("limit")
        if limit is None:
            return None
        only(self.statement, limit, "expression")
        count = limit.expression
        if type(count).__name__ != "Literal" or not _INTEGER.fullmatch(str(count.this)):
            hint = "Such as LIMIT 10."
            raise Unsupported("limit", "LIMIT takes a plain whole number.", hint=hint, place=self._at(limit))
        return int(count.this)


def _position(node: Node, items: list[_Item]) -> int:
    """Return the position in the select list, from 1, that a number means; 0 when it means none."""
    position = int(node.this) if _INTEGER.fullmatch(str(node.this)) else 0
    return position if position <= len(items) else 0
