"""Clauses of a SELECT besides FROM and WHERE: outputs, GROUP BY, HAVING and ORDER BY.

The caller decides which expressions the block may contain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from dpsql.errors import Place, Refusal
from dpsql.sql.analysis.measures import has_aggregate, is_grouped
from dpsql.sql.analysis.reader import Read, Reader, read_position
from dpsql.sql.ir.tree import Call, Cast, Expression, Literal, Sorted, is_column
from dpsql.sql.ir.types import Family
from dpsql.sql.lexer import ascii_lower
from dpsql.sql.syntax.sqlglot_nodes import allow_only, find_every_column, read_direction

if TYPE_CHECKING:
    from sqlglot.expressions import Expression as Node


@dataclass(frozen=True, slots=True)
class Selected:
    """A column that a SELECT puts out; `is_unit` where it is the privacy unit, unchanged."""

    name: str
    expression: Expression
    is_unit: bool = False


@dataclass(frozen=True, slots=True)
class Grouping:
    """Keys (None: no grouping, none: the whole table), whether they are those of GROUP BY ALL, and HAVING."""

    keys: tuple[Expression, ...] | None
    by_all: bool
    having: Expression | None


def strip_parentheses(reader: Reader, node: Node) -> Node:
    """Return the node inside redundant parentheses."""
    while type(node).__name__ == "Paren":
        allow_only(reader.statement, node, "this")
        node = node.this
    return node


def read_output(reader: Reader, node: Node, *, readers: Mapping[str, Read]) -> Expression:
    """Return an expression in which `readers` may stand; a column, or its MIN or MAX, alone as it is stored."""
    node = strip_parentheses(reader, node)
    if type(node).__name__ == "Column" and not reader.means_clock(node):
        return reader.column(node).expression
    with reader.reading(readers):
        expression = reader.read(node)
    inner = expression.argument if isinstance(expression, Cast) else expression
    return inner if isinstance(inner, Call) and inner.type.family is Family.OPAQUE else expression


@dataclass(frozen=True, slots=True)
class SelectClauses:
    """One SELECT, with its outputs; `readers` are the nodes that may stand in its expressions."""

    reader: Reader
    select: Node
    outputs: list[Selected]
    readers: Mapping[str, Read]

    @property
    def place(self) -> Place | None:
        """Return the place of the SELECT."""
        return self.reader.place(self.select)

    @property
    def distinct(self) -> bool:
        """Say whether this is SELECT DISTINCT; refuse DISTINCT ON."""
        if self.select.args.get("distinct") is None:
            return False
        allow_only(self.reader.statement, self.select.args["distinct"])
        return True

    def grouping(self) -> Grouping:
        """Return GROUP BY and HAVING."""
        group, node = self.select.args.get("group"), self.select.args.get("having")
        having = None if node is None else self.condition(node)
        expressions = [output.expression for output in self.outputs]
        if group is None:
            aggregates = having is not None or any(map(has_aggregate, expressions))
            return Grouping(() if aggregates else None, by_all=False, having=having)
        by_all = bool(group.args.get("all"))
        allow_only(self.reader.statement, group, "all" if by_all else "expressions")
        if by_all:
            keys = tuple(expression for expression in expressions if not has_aggregate(expression))
        else:
            keys = tuple(self._key(node) for node in group.expressions)
        return Grouping(keys, by_all, having)

    def order(self) -> tuple[Sorted, ...]:
        """Return the ORDER BY terms."""
        order = self.select.args.get("order")
        if order is None:
            return ()
        allow_only(self.reader.statement, order, "expressions")
        every = find_every_column(self.reader.statement, order)
        if every is not None:
            outputs = (output.expression for output in self.outputs)
            return tuple(Sorted(each, *read_direction(every)) for each in outputs if not isinstance(each, Literal))
        terms = list[Sorted]()
        for term in order.expressions:
            allow_only(self.reader.statement, term, "this", "desc", "nulls_first")
            node = strip_parentheses(self.reader, term.this)
            expression = self._named(node)
            if expression is None and isinstance(
                expression := read_output(self.reader, node, readers=self.readers), Literal
            ):
                reason, hint = "A constant puts nothing in order.", "Order by a column, or by its position."
                raise Refusal("order", reason, hint=hint, place=self.reader.place(term))
            terms.append(Sorted(expression, *read_direction(term)))
        return tuple(terms)

    def check(self, grouping: Grouping, order: tuple[Sorted, ...]) -> None:
        """Refuse columns that are neither grouped by nor aggregated, and an order by what DISTINCT leaves out."""
        ordered, outputs = [term.expression for term in order], [output.expression for output in self.outputs]
        if self.distinct and any(expression not in outputs for expression in ordered):
            hint = "Select what DISTINCT rows are ordered by."
            raise Refusal("order", "Only selected columns can be ordered by here.", hint=hint, place=self.place)
        if grouping.keys is None and not any(map(has_aggregate, ordered)):
            return
        having = [] if grouping.having is None else [grouping.having]
        keys, parts = grouping.keys or (), [*outputs, *ordered, *having]
        columns = tuple(filter(is_column, keys))
        if grouping.by_all and not all(is_grouped(part, columns) for part in having):
            hint = "Write GROUP BY and the keys instead of GROUP BY ALL, to which DuckDB adds what HAVING names."
            raise Refusal("not-a-key", "This HAVING changes what GROUP BY ALL means.", hint=hint, place=self.place)
        if any(map(has_aggregate, keys)) or not all(is_grouped(part, keys) for part in parts):
            hint = (
                "Group by it, or put it into COUNT, SUM, AVG, MIN or MAX; GROUP BY ALL groups by all that is selected."
            )
            raise Refusal("not-a-key", "A column is neither grouped by nor aggregated.", hint=hint, place=self.place)

    def condition(self, node: Node) -> Expression:
        """Return what HAVING or QUALIFY says, in which a name that no column has may be that of an output."""
        allow_only(self.reader.statement, node, "this")
        with self.reader.reading({**self.readers, "Column": self._column}):
            return self.reader.condition(node.this)

    def _column(self, reader: Reader, node: Node) -> Expression:
        known = node.args.get("table") or reader.scope.find(node.name, "", place=partial(reader.place, node))
        found = None if known else self._find_alias(node.name)
        if found is None:
            return self.readers["Column"](reader, node)
        reader.copy(found, node)
        return found

    def _key(self, node: Node) -> Expression:
        """Return what GROUP BY names: a position, a column, an alias or an expression, in this order."""
        node = strip_parentheses(self.reader, node)
        is_name = type(node).__name__ == "Column" and not node.args.get("table")
        if is_name and self.reader.scope.find(node.name, "", place=partial(self.reader.place, node)) is not None:
            return read_output(self.reader, node, readers=self.readers)
        return self._named(node) or read_output(self.reader, node, readers=self.readers)

    def _named(self, node: Node) -> Expression | None:
        """Return the output that a position or an alias names, or None."""
        if type(node).__name__ == "Literal":
            position = read_position(node, len(self.outputs))
            if position:
                return self.outputs[position - 1].expression
            hint = "Positions count the select list from 1."
            raise Refusal("group-position", "This is no position.", hint=hint, place=self.reader.place(node))
        if type(node).__name__ != "Column" or node.args.get("table"):
            return None
        return self._find_alias(node.name)

    def _find_alias(self, name: str) -> Expression | None:
        """Return the first output of that name, or None."""
        found = (output.expression for output in self.outputs if ascii_lower(output.name) == ascii_lower(name))
        return next(found, None)
