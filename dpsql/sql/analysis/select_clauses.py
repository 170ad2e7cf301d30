"""Clauses of a public SELECT or a subquery, and the aggregates and windows in them.

This file has three parts: (1) `SelectClauses` reads the clauses besides FROM and WHERE, and its caller decides which
expressions they may contain; (2) from `has_aggregate` on, the aggregates COUNT, SUM, AVG, MIN and MAX, by
`PUBLIC_READERS` as DuckDB computes them, and by `SUBQUERY_READERS` as functions of the set of rows alone: there DOUBLE
is summed in the order of its values, and equal values that print differently are made equal. A sum that does not fit
is NULL. Aggregates that are released with noise are in `measures.py`. (3) From `has_windows` on, windows of a subquery:
the OVER clause, and the total order that makes their values a function of the rows alone.

A window that distinguishes rows of one rank (row_number, ntile, lag, lead, first_value) is ordered, after its own
terms, by every column that the block reads. Rows that are still equal are equal in everything that the block computes,
so their order does not affect the result. Other windows give all rows of one rank the same value and are unchanged.
With the privacy unit in PARTITION BY a window sees the rows of one unit only, so no unit affects the values of another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from dpsql.dialects import ENUM
from dpsql.errors import Place, Refusal, Unsupported
from dpsql.sql.allow_list import AGGREGATES, MAX_POSITION
from dpsql.sql.analysis.expressions import READERS
from dpsql.sql.analysis.reader import Read, Reader, read_position
from dpsql.sql.ir.literals import fill_unbound
from dpsql.sql.ir.transforms import canonicalize, rebuild
from dpsql.sql.ir.tree import (
    BIGINT,
    BOOLEAN,
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
    Window,
    children,
    decimal,
    find_read_type,
    has_one_form,
    is_aggregate,
    is_column,
    stored_column,
    sum_type,
    walk,
)
from dpsql.sql.lexer import FUNCTION_PREFIX, ascii_lower
from dpsql.sql.syntax.grammar import allow_only, find_every_column, read_direction

if TYPE_CHECKING:
    from sqlglot.expressions import Expression as Node

_NARROW, _FEW = 12, 10  # digits of a DECIMAL, and of a sum of wider ones before the point, that are too few
_NUMBERED = {
    **dict.fromkeys(["row_number", "rank", "dense_rank"], BIGINT),
    **dict.fromkeys(["percent_rank", "cume_dist"], DOUBLE),
}
_MOVED = frozenset(["lag", "lead"])
_TELLS_APART = frozenset(["row_number", "ntile", "lag", "lead", "first_value"])
_HINT = "Those read are row_number, rank, dense_rank, ntile, lag, lead, first_value, count, sum, avg, min and max."


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
            hint = "Group by it, or put it into COUNT, SUM, AVG, MIN or MAX; "
            hint += "GROUP BY ALL groups by all that is selected."
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


def _read_call(reader: Reader, node: Node, *, compute: Callable[[str, Expression], Expression]) -> Expression:
    """Return an aggregate as `compute` makes it of its name and its argument, or a function of the allow-list."""
    named = _named(reader, node)
    return READERS["Anonymous"](reader, node) if named is None else compute(*named)


def _compute_public(name: str, argument: Expression) -> Expression:
    """Return an aggregate of a public query, as DuckDB computes it."""
    type_ = argument.type
    if name == "avg":
        return Call(name, (argument,), DOUBLE)
    if name == "sum":
        total = Call(name, (argument,), sum_type(type_))
        # a cast fits a sum of less than 2**31 rows
        return cast_sum(total, argument) if type_.family is Family.INTEGER and type_ != BIGINT else total
    # a column that is only read as another type is also stored in that type's order, all but an ENUM
    stored = argument.argument if isinstance(argument, Cast) else None
    if isinstance(stored, ColumnRef) and stored.type.name != ENUM and find_read_type(stored.type) == type_:
        return Cast(Call(name, (stored,), stored.type), type_)
    return Call(name, (argument,), type_, argument.longest)


def _compute_in_subquery(name: str, argument: Expression) -> Expression:
    """Return an aggregate inside a subquery, which is a function of the set of rows alone."""
    type_ = argument.type
    if name in {"sum", "avg"} and type_.family is Family.DOUBLE:
        # 1e308 + 1e308 - 1e308 is infinite in one order and finite in another: values are added from the smallest to
        # the largest.
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
    """Return an expression of one aggregate with its argument NULL where the condition does not hold.

    SUM(x) FILTER (WHERE c)      SUM(CASE WHEN c THEN x END)
    COUNT(*) FILTER (WHERE c)    COUNT(CASE WHEN c THEN 1 END)
    """
    if not isinstance(expression, Call) or not is_aggregate(expression):
        return rebuild(expression, lambda part: _only_where(part, condition))
    argument = expression.arguments[0] if expression.arguments else Literal(1, INTEGER)
    # COUNT(DISTINCT name COLLATE C) FILTER (WHERE c) counts CASE WHEN c THEN name COLLATE C END COLLATE C, which is in
    # canonical form as its argument is.
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


# Part 3: windows of a subquery.


def has_windows(expression: Expression) -> bool:
    """Say whether the expression contains a window."""
    return any(isinstance(part, Window) for part in walk(expression))


def _read_window(reader: Reader, node: Node) -> Expression:
    """Return function(...) OVER (PARTITION BY ... ORDER BY ...), without a frame of its own."""
    allow_only(reader.statement, node, "this", "partition_by", "order", "over")
    partition = tuple(
        canonicalize(read_output(reader, term, readers=READERS)) for term in node.args.get("partition_by") or ()
    )
    order, found = node.args.get("order"), list[Sorted]()
    if order is not None:
        allow_only(reader.statement, order, "expressions")
    for term in order.expressions if order is not None else ():
        allow_only(reader.statement, term, "this", "desc", "nulls_first")
        expression = read_argument(reader, term.this)
        if isinstance(expression, Literal):
            reason, hint = "A constant puts nothing in order.", "Order by a column."
            raise Refusal("order", reason, hint=hint, place=reader.place(term))
        found.append(Sorted(expression, *read_direction(term)))
    terms, called = tuple(found), node.this
    if type(called).__name__ == "Count":
        allow_only(reader.statement, called, "this", "big_int")
        if type(called.this).__name__ == "Star":
            allow_only(reader.statement, called.this)
            return Window("count_star", (), partition, terms, BIGINT)
        if called.this is None:
            raise Unsupported("window", "This window is not read.", hint=_HINT, place=reader.place(called))
        return Window("count", (read_argument(reader, called.this),), partition, terms, BIGINT)
    allow_only(reader.statement, called, "this", "expressions")
    name = str(called.this).removeprefix(FUNCTION_PREFIX)
    arguments = tuple(read_argument(reader, argument) for argument in called.expressions)
    if name in _NUMBERED and not arguments:
        return Window(name, (), partition, terms, _NUMBERED[name])
    if name == "ntile" and len(arguments) == 1 and _is_position(arguments[0], min_value=1):
        return Window(name, (replace(arguments[0], type=BIGINT),), partition, terms, BIGINT)
    window = _read_column_window(reader, node, name=name, arguments=arguments)
    if isinstance(window, Window):
        return replace(window, partition=partition, order=terms)
    return rebuild(window, lambda part: replace(part, partition=partition, order=terms))  # type: ignore[arg-type]


def _read_column_window(reader: Reader, node: Node, *, name: str, arguments: tuple[Expression, ...]) -> Expression:
    """Return a window that takes a column, without partition and order: itself, or the cast of a sum."""
    type_, place = arguments[0].type if arguments else BOOLEAN, reader.place(node)
    if name in {"sum", "avg"} and len(arguments) == 1 and type_.family is Family.DOUBLE:
        hint = f"Cast it to DECIMAL, or compute {name}(x) with GROUP BY in a subquery."
        raise Unsupported("window", f"{name} OVER adds DOUBLE values in an undefined order.", hint=hint, place=place)
    if name == "sum" and len(arguments) == 1 and type_.is_number:
        return cast_sum(Window(name, arguments, (), (), sum_type(type_)), arguments[0])
    if name == "avg" and len(arguments) == 1 and type_.is_number:
        return Window(name, arguments, (), (), DOUBLE)
    if name in {"min", "max", "first_value"} and len(arguments) == 1 and type_.family is not Family.NULL:
        argument = arguments[0] if name == "first_value" else canonicalize(arguments[0])
        return Window(name, (argument,), (), (), type_, argument.longest)
    moved = name in _MOVED and type_.family is not Family.NULL
    if moved and (len(arguments) == 1 or (len(arguments) == 2 and _is_position(arguments[1], min_value=0))):  # noqa: PLR2004 - and how far
        far = tuple(replace(argument, type=BIGINT) for argument in arguments[1:])
        return Window(name, (arguments[0], *far), (), (), type_, arguments[0].longest)
    raise Unsupported("window", "This window is not read.", hint=_HINT, place=place)


def _is_position(expression: Expression, *, min_value: int) -> bool:
    value = expression.value if isinstance(expression, Literal) else None
    return type(value) is int and min_value <= value <= MAX_POSITION


def break_ties(
    expressions: Iterable[Expression], *, refuse: Callable[[ColumnRef], Exception]
) -> tuple[Expression, ...]:
    """Return all that a block computes, with windows whose order no two rows share that differ in anything read.

    `refuse` says what to raise for a column whose equal values may print differently.
    """
    found = tuple(expressions)
    read = {part for expression in found for part in walk(expression) if isinstance(part, ColumnRef)}
    columns = sorted(read, key=lambda column: (column.relation, column.name))

    def ordered(expression: Expression) -> Expression:
        if isinstance(expression, Window) and expression.function in _TELLS_APART:
            for column in columns:
                if not has_one_form(column.type):
                    raise refuse(column)
            ties = list[Expression]()  # what is the same of two values only if they print alike
            for column in columns:
                if column.type.family is Family.DOUBLE or column.type.name == "FLOAT":
                    ties += [canonicalize(column), Call("signbit", (column,), BOOLEAN)]  # 0.0 and -0.0 differ in it
                else:
                    ties.append(canonicalize(stored_column(column.relation, column.name, type_=column.type)))
            terms = (Sorted(tie, descending=False, nulls_first=False) for tie in ties)
            return replace(expression, order=(*expression.order, *terms))
        return rebuild(expression, ordered)

    return tuple(map(ordered, found))


PUBLIC_READERS: Mapping[str, Read] = {
    **READERS,
    "Count": partial(_count, form=lambda value: value),
    "Filter": _filter,
    "Anonymous": partial(_read_call, compute=_compute_public),
}
SUBQUERY_READERS: Mapping[str, Read] = {
    **READERS,
    "Count": _count,
    "Filter": _filter,
    "Anonymous": partial(_read_call, compute=_compute_in_subquery),
    "Window": _read_window,
}
