"""Clauses and aggregates of a public SELECT or a subquery: outputs, GROUP BY, HAVING and ORDER BY; COUNT, SUM and more.

This file has two parts: (1) `SelectClauses` reads the clauses besides FROM and WHERE, and its caller decides which
expressions they may contain; (2) from `has_aggregate` on, the aggregates COUNT, SUM, AVG, MIN and MAX, by
`PUBLIC_READERS` as DuckDB computes them, and by `SUBQUERY_READERS` as functions of the set of rows alone: there DOUBLE
is summed in the order of its values, and equal values that print differently are made equal. A sum that does not fit
is NULL. Aggregates that are released with noise are in `measures.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from dpsql.dialects import ENUM
from dpsql.errors import Place, Refusal
from dpsql.sql.analysis.expressions import READERS
from dpsql.sql.analysis.reader import Read, Reader, read_position
from dpsql.sql.functions.allow_list import AGGREGATES
from dpsql.sql.ir.literals import fill_unbound
from dpsql.sql.ir.transforms import canonicalize, rebuild
from dpsql.sql.ir.tree import (
    BIGINT,
    DOUBLE,
    INTEGER,
    WIDEST_DECIMAL,
    Call,
    Case,
    Cast,
    Collate,
    ColumnRef,
    Expression,
    Family,
    Literal,
    Scalar,
    Sorted,
    children,
    decimal,
    find_read_type,
    is_aggregate,
    is_column,
    sum_type,
    walk,
)
from dpsql.sql.lexer import FUNCTION_PREFIX, ascii_lower
from dpsql.sql.syntax.sqlglot_nodes import allow_only, find_every_column, read_direction

if TYPE_CHECKING:
    from sqlglot.expressions import Expression as Node

_NARROW, _FEW = 12, 10  # digits of a DECIMAL, and of a sum of wider ones before the point, that are too few


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


# Part 2: aggregates.


def has_aggregate(expression: Expression) -> bool:
    """Say whether the expression contains an aggregate."""
    return any(map(is_aggregate, walk(expression)))


def is_grouped(expression: Expression, keys: tuple[Expression, ...]) -> bool:
    """Say whether the expression has one value in each group."""
    if expression in keys or isinstance(expression, Literal | Scalar) or is_aggregate(expression):
        return True
    parts = children(expression)
    return bool(parts) and all(is_grouped(part, keys) for part in parts)


def read_argument(reader: Reader, node: Node) -> Expression:
    """Return the argument of an aggregate, in which no other may stand."""
    with reader.reading(READERS):
        return reader.read(node)


def _count(reader: Reader, node: Node, *, form: Callable[[Expression], Expression] = canonicalize) -> Expression:
    """Return a COUNT; values that it tells apart are put into `form`."""
    allow_only(reader.statement, node, "this", "big_int")
    counted = node.this
    if type(counted).__name__ == "Star":
        allow_only(reader.statement, counted)
        return Call("count_star", (), BIGINT)
    if type(counted).__name__ == "Distinct":
        allow_only(reader.statement, counted, "expressions")
        if len(counted.expressions) == 1:
            return Call("count_distinct", (form(read_argument(reader, counted.expressions[0])),), BIGINT)
    elif counted is not None:
        return Call("count", (read_argument(reader, counted),), BIGINT)
    hint = "COUNT(*), COUNT(x) and COUNT(DISTINCT x) are."
    raise Refusal("function-arguments", "This COUNT is not read.", hint=hint, place=reader.place(node))


def _named(reader: Reader, node: Node) -> tuple[str, Expression] | None:
    """Return name and argument of an aggregate other than COUNT; None for any other function."""
    name = str(node.this).removeprefix(FUNCTION_PREFIX)
    if name not in AGGREGATES:
        return None
    allow_only(reader.statement, node, "this", "expressions")
    arguments = [read_argument(reader, argument) for argument in node.expressions]
    if name in {"sum", "avg"}:
        arguments = [fill_unbound(argument, DOUBLE) for argument in arguments]
    if len(arguments) != 1 or (name in {"sum", "avg"} and not arguments[0].type.is_number):
        hint = f"Write {name}(x) of one column{' of numbers' if name in {'sum', 'avg'} else ''}."
        raise Refusal("function-arguments", f"This {name} is not read.", hint=hint, place=reader.place(node))
    return name, arguments[0]


def _read_public_call(reader: Reader, node: Node) -> Expression:
    """Return an aggregate of a public query, as DuckDB computes it, or a function of the allow-list."""
    named = _named(reader, node)
    if named is None:
        return READERS["Anonymous"](reader, node)
    name, argument = named
    type_ = argument.type
    if name == "avg":
        return Call(name, (argument,), DOUBLE)
    if name == "sum" and type_.family is Family.INTEGER and type_ != BIGINT:
        return cast_sum(Call(name, (argument,), sum_type(type_)), argument)  # of less than 2**31 rows: it fits
    if name == "sum":
        return Call(name, (argument,), sum_type(type_))
    # a column that is only read as another type is also stored in that type's order, all but an ENUM
    stored = argument.argument if isinstance(argument, Cast) else None
    if isinstance(stored, ColumnRef) and stored.type.name != ENUM and find_read_type(stored.type) == type_:
        return Cast(Call(name, (stored,), stored.type), type_)
    return Call(name, (argument,), type_, argument.longest)


def _read_subquery_call(reader: Reader, node: Node) -> Expression:
    """Return an aggregate inside a subquery, or a function of the allow-list."""
    named = _named(reader, node)
    if named is None:
        return READERS["Anonymous"](reader, node)
    name, argument = named
    type_ = argument.type
    if name in {"sum", "avg"} and type_.family is Family.DOUBLE:
        return canonicalize(Call(f"{name}_sorted", (canonicalize(argument),), DOUBLE))
    if name == "avg":
        return Call(name, (argument,), DOUBLE)
    if name == "sum":
        return cast_sum(Call(name, (argument,), sum_type(type_)), argument)
    return Call(name, (canonicalize(argument),), type_, argument.longest)


def _filter(reader: Reader, node: Node) -> Expression:
    """Return an aggregate of the rows where a condition holds: elsewhere its argument is NULL, which none counts."""
    allow_only(reader.statement, node, "this", "expression")
    allow_only(reader.statement, node.expression, "this")
    with reader.reading(READERS):
        condition = reader.condition(node.expression.this)
    found, called = reader.read(node.this), str(node.this.this).removeprefix(FUNCTION_PREFIX)
    if type(node.this).__name__ != "Count" and called not in AGGREGATES:
        reason, hint = "FILTER must follow an aggregate.", "Such as COUNT(*) FILTER (WHERE dwell > 60)."
        raise Refusal("function-arguments", reason, hint=hint, place=reader.place(node))
    return _only_where(found, condition)


def _only_where(expression: Expression, condition: Expression) -> Expression:
    """Return an expression of one aggregate with its argument NULL where the condition does not hold."""
    if not isinstance(expression, Call) or not is_aggregate(expression):
        return rebuild(expression, lambda part: _only_where(part, condition))
    argument = expression.arguments[0] if expression.arguments else Literal(1, INTEGER)
    bytewise = isinstance(argument, Collate)
    kept: Expression = Case(((condition, argument),), None, argument.type, argument.longest)
    kept = Collate(kept, kept.type, kept.longest) if bytewise else kept
    function = "count" if expression.function == "count_star" else expression.function
    return Call(function, (kept,), expression.type, expression.longest)


def cast_sum(total: Expression, argument: Expression) -> Expression:
    """Return an exact sum in a type that is computed with, and NULL where it does not fit.

    A sum of DECIMAL of many decimals has few digits left before the point, and becomes a DOUBLE.
    """
    width, scale = argument.type.precision
    if argument.type.family is Family.INTEGER:
        return Cast(total, BIGINT)
    if width > _NARROW and WIDEST_DECIMAL - scale < _FEW:
        return Cast(total, DOUBLE)
    return Cast(total, decimal(WIDEST_DECIMAL, scale))


PUBLIC_READERS: Mapping[str, Read] = {
    **READERS,
    "Count": partial(_count, form=lambda value: value),
    "Filter": _filter,
    "Anonymous": _read_public_call,
}
SUBQUERY_READERS: Mapping[str, Read] = {**READERS, "Count": _count, "Filter": _filter, "Anonymous": _read_subquery_call}
