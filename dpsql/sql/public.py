"""Queries over public tables alone: read into our own form like private ones, answered exactly, and free.

The same expressions are known as in private queries, and besides them COUNT, SUM, AVG, MIN and MAX, GROUP BY, HAVING,
DISTINCT, ORDER BY, LIMIT and OFFSET of the outermost SELECT.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsql.errors import Refusal
from dpsql.sql.expressions import READERS
from dpsql.sql.functions import AGGREGATES
from dpsql.sql.nodes import only, spelled_items
from dpsql.sql.query import PublicQuery, Sorted
from dpsql.sql.reader import Read, Reader
from dpsql.sql.released import position_of, row_count
from dpsql.sql.scope import Scope
from dpsql.sql.sources import Sources
from dpsql.sql.subqueries import output_name
from dpsql.sql.text import FUNCTION_PREFIX, ascii_lower
from dpsql.sql.tree import Call, Cast, Column, Expression, Literal, children
from dpsql.sql.types import BIGINT, DOUBLE, Family, decimal, read_as

if TYPE_CHECKING:
    from sqlglot import Token
    from sqlglot.expressions import Expression as Node

__all__ = ["read_public"]

_PARTS = "with_ expressions from_ joins where group having order limit offset distinct".split()
_COUNTS = frozenset(["count_star", "count", "count_distinct"])


def read_public(sources: Sources, select: Node, *, tokens: list[Token]) -> tuple[PublicQuery, Scope]:
    """Return what the SELECT asks and the names it sees, among which the caller must find no private table."""
    reader = sources.reader
    only(reader.statement, select, *_PARTS)
    if select.args.get("with_") is not None:
        sources.define(select.args["with_"])
    body, scope = sources.block(select)
    items = spelled_items(reader.statement, select, tokens=tokens)
    block = _Block(reader, select, [pair for item, text in items for pair in _named(reader, item, text=text)])
    having = block.having()
    query = PublicQuery(
        names=tuple(name for name, _ in block.outputs),
        outputs=tuple(expression for _, expression in block.outputs),
        distinct=select.args.get("distinct") is not None,
        body=body,
        keys=block.keys(having),
        by_all=block.by_all,
        having=having,
        order=block.order(),
        limit=row_count(reader, select.args.get("limit")),
        offset=row_count(reader, select.args.get("offset")) or 0,
    )
    block.check(query)
    return query, scope


def _named(reader: Reader, item: Node, *, text: str) -> list[tuple[str, Expression]]:
    """Return the names and expressions of one item of the select list: several for a star."""
    if (starred := reader.star(item)) is not None:
        return [(column.name, column.column) for column in starred]
    name, node = output_name(reader, item)
    if type(node).__name__ == "Column":
        name = name or reader.column(node).name
    return [(name or text, _read(reader, node))]


def _read(reader: Reader, node: Node) -> Expression:
    """Return an expression in which aggregates may stand; a column, or its MIN or MAX, alone as it is stored."""
    node = _bare(reader, node)
    if type(node).__name__ == "Column":
        return reader.column(node).column
    with reader.reading(_WITH_AGGREGATES):
        expression = reader.read(node)
    inner = expression.argument if isinstance(expression, Cast) else expression
    return inner if isinstance(inner, Call) and inner.type.family is Family.OPAQUE else expression


def _bare(reader: Reader, node: Node) -> Node:
    """Return what stands in the parentheses, which change no meaning."""
    while type(node).__name__ == "Paren":
        only(reader.statement, node, "this")
        node = node.this
    return node


@dataclass(frozen=True, slots=True)
class _Block:
    """The outermost SELECT, with the names and expressions of its outputs."""

    reader: Reader
    select: Node
    outputs: list[tuple[str, Expression]]

    @property
    def by_all(self) -> bool:
        """Say whether this is GROUP BY ALL."""
        group = self.select.args.get("group")
        return group is not None and bool(group.args.get("all"))

    def keys(self, having: Expression | None) -> tuple[Expression, ...] | None:
        """Return the grouping: None for none at all, nothing for the whole table."""
        group, expressions = self.select.args.get("group"), [expression for _, expression in self.outputs]
        if group is None:
            return () if having is not None or any(map(_aggregates, expressions)) else None
        only(self.reader.statement, group, "all" if self.by_all else "expressions")
        if self.by_all:
            return tuple(expression for expression in expressions if not _aggregates(expression))
        return tuple(self._key(node) for node in group.expressions)

    def having(self) -> Expression | None:
        """Return the condition on groups."""
        having = self.select.args.get("having")
        if having is None:
            return None
        only(self.reader.statement, having, "this")
        with self.reader.reading(_WITH_AGGREGATES):
            return self.reader.condition(having.this)

    def order(self) -> tuple[Sorted, ...]:
        """Return the ORDER BY terms."""
        order = self.select.args.get("order")
        if order is None:
            return ()
        only(self.reader.statement, order, "expressions")
        return tuple(self._term(term) for term in order.expressions)

    def check(self, query: PublicQuery) -> None:
        """Refuse names that stand twice and columns that are neither grouped by nor aggregated."""
        place = self.reader.place(self.select)
        if query.distinct:
            only(self.reader.statement, self.select.args["distinct"])
        if len(set(map(ascii_lower, query.names))) < len(query.names):
            hint = "Give each output its own alias."
            raise Refusal("output-names", "Two outputs have the same name.", hint=hint, place=place)
        ordered = [term.expression for term in query.order]
        if query.distinct and any(expression not in query.outputs for expression in ordered):
            hint = "Select what DISTINCT rows are ordered by."
            raise Refusal("order", "Only selected columns can be ordered by here.", hint=hint, place=place)
        if query.keys is None and not any(map(_aggregates, ordered)):
            return
        keys, parts = query.keys or (), [*query.outputs, *ordered, *([] if query.having is None else [query.having])]
        columns = tuple(key for key in keys if isinstance(key, Column))
        if query.by_all and query.having is not None and not _grouped(query.having, columns):
            hint = "Write GROUP BY and the keys instead of GROUP BY ALL, to which DuckDB adds what HAVING names."
            raise Refusal("not-a-key", "This HAVING changes what GROUP BY ALL means.", hint=hint, place=place)
        if any(map(_aggregates, keys)) or not all(_grouped(part, keys) for part in parts):
            hint = (
                "Group by it, or put it into COUNT, SUM, AVG, MIN or MAX; GROUP BY ALL groups by all that is selected."
            )
            raise Refusal("not-a-key", "A column is neither grouped by nor aggregated.", hint=hint, place=place)

    def _term(self, term: Node) -> Sorted:
        only(self.reader.statement, term, "this", "desc", "nulls_first")
        descending, nulls_first = bool(term.args.get("desc")), bool(term.args.get("nulls_first"))
        node = _bare(self.reader, term.this)
        expression = self._named(node)
        if expression is None and isinstance(expression := _read(self.reader, node), Literal):
            reason, hint = "A constant puts nothing in order.", "Order by a column, or by its position."
            raise Refusal("order", reason, hint=hint, place=self.reader.place(term))
        return Sorted(expression, descending, nulls_first)

    def _key(self, node: Node) -> Expression:
        """Return what GROUP BY names: a position, a column, an alias or an expression, in this order."""
        node = _bare(self.reader, node)
        is_name = type(node).__name__ == "Column" and not node.args.get("table")
        if is_name and self.reader.scope.find(node.name, "", place=self.reader.place(node)) is not None:
            return _read(self.reader, node)
        return self._named(node) or _read(self.reader, node)

    def _named(self, node: Node) -> Expression | None:
        """Return the output that a position or an alias names, or None."""
        if type(node).__name__ == "Literal":
            position = position_of(node, len(self.outputs))
            if position:
                return self.outputs[position - 1][1]
            hint = "Positions count the select list from 1."
            raise Refusal("group-position", "This is no position.", hint=hint, place=self.reader.place(node))
        if type(node).__name__ != "Column" or node.args.get("table"):
            return None
        found = [expression for name, expression in self.outputs if ascii_lower(name) == ascii_lower(node.name)]
        return found[0] if found else None


def _aggregates(expression: Expression) -> bool:
    """Say whether an aggregate stands in the expression."""
    found = isinstance(expression, Call) and expression.function in _COUNTS | AGGREGATES
    return found or any(map(_aggregates, children(expression)))


def _grouped(expression: Expression, keys: tuple[Expression, ...]) -> bool:
    """Say whether the expression has one value in each group."""
    if expression in keys or isinstance(expression, Literal):
        return True
    if isinstance(expression, Call) and expression.function in _COUNTS | AGGREGATES:
        return True
    parts = children(expression)
    return bool(parts) and all(_grouped(part, keys) for part in parts)


def _inside(reader: Reader, node: Node) -> Expression:
    """Return the argument of an aggregate, in which no other may stand."""
    with reader.reading(READERS):
        return reader.read(node)


def _count(reader: Reader, node: Node) -> Expression:
    only(reader.statement, node, "this", "big_int")
    counted = node.this
    if type(counted).__name__ == "Star":
        only(reader.statement, counted)
        return Call("count_star", (), BIGINT)
    if type(counted).__name__ == "Distinct":
        only(reader.statement, counted, "expressions")
        if len(counted.expressions) == 1:
            return Call("count_distinct", (_inside(reader, counted.expressions[0]),), BIGINT)
    elif counted is not None:
        return Call("count", (_inside(reader, counted),), BIGINT)
    hint = "COUNT(*), COUNT(x) and COUNT(DISTINCT x) are."
    raise Refusal("function-arguments", "This COUNT is not read.", hint=hint, place=reader.place(node))


def _called(reader: Reader, node: Node) -> Expression:
    """Return an aggregate other than COUNT, or a function of the allow-list."""
    name = str(node.this).removeprefix(FUNCTION_PREFIX)
    if name not in AGGREGATES:
        return READERS["Anonymous"](reader, node)
    only(reader.statement, node, "this", "expressions")
    arguments = [_inside(reader, argument) for argument in node.expressions]
    if len(arguments) != 1 or (name in {"sum", "avg"} and not arguments[0].type.is_number):
        hint = f"Write {name}(x) of one column{' of numbers' if name in {'sum', 'avg'} else ''}."
        raise Refusal("function-arguments", f"This {name} is not read.", hint=hint, place=reader.place(node))
    (argument,) = arguments
    type_ = argument.type
    if name == "avg":
        return Call(name, (argument,), DOUBLE)
    if name == "sum" and type_.family is Family.INTEGER:
        return Cast(Call(name, (argument,), decimal(38, 0)), BIGINT)
    if name == "sum" and type_.family is Family.DECIMAL:
        return Call(name, (argument,), decimal(38, type_.precision[1]))
    if isinstance(argument, Cast) and isinstance(stored := argument.argument, Column) and read_as(stored.type) == type_:
        return Cast(Call(name, (stored,), stored.type), type_)  # an ENUM has an order of its own
    return Call(name, (argument,), type_, argument.longest)


_WITH_AGGREGATES: Mapping[str, Read] = {**READERS, "Count": _count, "Anonymous": _called}
