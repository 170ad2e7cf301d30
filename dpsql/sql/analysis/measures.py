"""Aggregates of a private query: COUNT(DISTINCT unit), COUNT(*), COUNT(x), SUM(x) and AVG(x), with or without FILTER.

value_low and value_high of one of them are the ends of the interval of its released value.

Only the privacy unit can be counted DISTINCT: one unit can add any number of other values. What each adds up to is
bounded for every unit and group when the query is planned.

Aggregates: COUNT, SUM, AVG, MIN and MAX, for public tables at the top of a statement, or inside subqueries.

Inside subqueries they are functions of the set of rows alone, in every order of reading: DOUBLE is summed in the order
of its values, and equal values that print differently are made equal. A sum that does not fit is NULL.

Bounds that a query states of an aggregate: SUM(x, contribution_bounds_per_group => (0, 500)).

They are constants of the text, or parameters. Any bounds are allowed: what a unit adds is clamped to them, and the
noise follows from them. The bounds of the policy are defaults, and protect nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING

from dpsql.dialects import ENUM
from dpsql.errors import Place, Refusal
from dpsql.sql.analysis.expressions import READERS
from dpsql.sql.analysis.reader import Read, Reader
from dpsql.sql.functions.allow_list import AGGREGATES
from dpsql.sql.ir.literals import fill_unbound
from dpsql.sql.ir.measures import DISTINCT_UNITS, MOST_STEPS, Aggregate, Measure, StatedBounds, is_present
from dpsql.sql.ir.scope import join_conjuncts
from dpsql.sql.ir.transforms import canonicalize, rebuild
from dpsql.sql.ir.tree import (
    Call,
    Case,
    Cast,
    Collate,
    ColumnRef,
    Expression,
    Literal,
    Scalar,
    children,
    is_aggregate,
    walk,
)
from dpsql.sql.ir.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INTEGER,
    WIDEST_DECIMAL,
    Family,
    decimal,
    find_read_type,
    sum_type,
)
from dpsql.sql.lexer import FUNCTION_PREFIX, ascii_lower
from dpsql.sql.syntax.forms import STATED, find_aggregate_call
from dpsql.sql.syntax.sqlglot_nodes import allow_only

if TYPE_CHECKING:
    from sqlglot.expressions import Expression as Node


_LONGEST_QUOTED = 60  # characters of a condition in a hint
RELEASED_AGGREGATES = frozenset(["sum", "avg"])  # besides COUNT
_ROWS = Measure(Aggregate.ROWS)
_NARROW, _FEW = 12, 10  # digits of a DECIMAL, and of a sum of wider ones before the point, that are too few
ONE_ROW = StatedBounds(Fraction(0), Fraction(1))
LARGEST_STATED = 10**15
_SMALLEST = Fraction(1, LARGEST_STATED)
_SAMPLES = (Literal(0.0, DOUBLE), Literal(500.0, DOUBLE))  # of parameters without a value


@dataclass(frozen=True, slots=True)
class ReadMeasure:
    """A measure of the select list, and for AVG the one that divides it; `unit` is the column counted DISTINCT."""

    measure: Measure
    divisor: Measure | None = None
    unit: Expression | None = None


def is_measure(node: Node) -> bool:
    """Say whether a node is an aggregate that is released, with or without FILTER."""
    inner = node.this if type(node).__name__ == "Filter" else node
    return type(inner).__name__ == "Count" or find_function(inner) in RELEASED_AGGREGATES


def find_function(node: Node) -> str:
    """Return the name of a called function, "" for another node."""
    return str(node.this).removeprefix(FUNCTION_PREFIX) if type(node).__name__ == "Anonymous" else ""


def name_unit(reader: Reader) -> str:
    """Return the name of the privacy unit in scope, for a hint."""
    private = reader.scope.private
    return (private.unit_name if private else None) or "unit"


def read_end_argument(reader: Reader, node: Node, *, named: Sequence[tuple[str, ReadMeasure]]) -> ReadMeasure:
    """Return the measure of value_low or value_high; `named` are the measures of the select list, with their names."""
    allow_only(reader.statement, node, "this", "expressions")
    (argument, *more) = node.expressions or [None]
    if argument is not None and not more:
        if is_measure(argument):
            return read_measure(reader, argument)
        if type(argument).__name__ == "Column" and not argument.args.get("table"):
            wanted = ascii_lower(argument.name)
            for name, measure in named:
                if ascii_lower(name) == wanted:
                    return measure
    name = find_function(node)
    example = next((name for name, _ in named if name.isidentifier()), f"COUNT(DISTINCT {name_unit(reader)})")
    hint = f"Write {name}({example}), the alias of a measure of the select list or the measure itself."
    raise Refusal("aggregate", f"{name} takes one released measure.", hint=hint, place=reader.place(node))


def read_measure(reader: Reader, node: Node) -> ReadMeasure:
    """Return what an aggregate of the select list releases; refuse one that is not released."""
    condition: Expression | None = None
    if type(node).__name__ == "Filter":
        allow_only(reader.statement, node, "this", "expression")
        allow_only(reader.statement, node.expression, "this")
        condition, node = reader.condition(node.expression.this), node.this
    name = find_function(node)
    if not name:
        return _read_count(reader, node, condition=condition)
    allow_only(reader.statement, node, "this", "expressions")
    arguments, stated = _split_stated_bounds(reader, node.expressions)
    found = _read_summand(reader, node, arguments=arguments, name=name.upper())
    words = _find_words(reader, node)
    if name == "sum":
        if stated is not None and not stated.low <= 0 <= stated.high:  # no row adds 0
            reason = "The bounds of a sum hold 0: the first is at most 0, and the second at least 0."
            raise _refuse_bounds(reader, node, reason=reason)
        return ReadMeasure(Measure(Aggregate.SUM, found, condition, stated=stated, words=words))
    divisor = replace(_count_present(found, condition), words=words)
    if stated is not None:  # of the mean of one unit, which counts as one row
        stated, divisor = replace(stated, of_mean=True), replace(divisor, stated=ONE_ROW)
    return ReadMeasure(Measure(Aggregate.SUM, found, condition, stated=stated, words=words), divisor=divisor)


def _read_summand(reader: Reader, node: Node, *, arguments: Sequence[Node], name: str) -> Expression:
    """Return the one number that each row gives to a sum or average; refuse anything else."""
    argument, more = (arguments[0] if arguments else None), arguments[1:]
    place, hint = reader.place(node), f"Write {name}(x) of one column of numbers, or COUNT(*) for the number of rows."
    if argument is None or more:
        raise Refusal("aggregate", f"{name} has one argument.", hint=hint, place=place)
    if type(argument).__name__ == "Distinct":
        reason = f"{name} of DISTINCT values is not supported: which of them count would depend on all units together."
        raise Refusal("aggregate", reason, hint="Leave DISTINCT out.", place=place)
    if is_measure(argument):
        hint = f"Write {name}(x) of a column, and compute with released values in an outer SELECT."
        raise Refusal("aggregate", "An aggregate may not stand in another.", hint=hint, place=place)
    found = fill_unbound(reader.read(argument), DOUBLE)
    if _is_unit(reader, found):
        hint = f"Write COUNT(DISTINCT {name_unit(reader)}), or {name} of another column."
        raise Refusal("aggregate", "The privacy unit is no amount to add up.", hint=hint, place=place)
    if not found.type.is_number:
        hint = (
            f"Write {name}(CAST(x AS DOUBLE)) of what is a number in another form, or COUNT(*) for the number of rows."
        )
        if found.type == BOOLEAN:
            where = reader.place(argument)
            text = "" if where is None else where.fragment
            is_whole = text.count("(") == text.count(")") and text.count("'") % 2 == 0
            if not is_whole or not 0 < len(text) <= _LONGEST_QUOTED:  # its end is not known
                text = "x > 2"
            hint = f"Write COUNT(*) FILTER (WHERE {text}), or {name}(CAST({text} AS INTEGER))."
        raise Refusal("aggregate", f"{name} is for numbers, and this is {found.type}.", hint=hint, place=place)
    return found


def _read_count(reader: Reader, node: Node, *, condition: Expression | None) -> ReadMeasure:
    allow_only(reader.statement, node, "this", "expressions", "big_int")
    where, unit = reader.place(node), name_unit(reader)
    (counted, *more), stated = _split_stated_bounds(reader, [node.this, *node.expressions])
    if stated is not None and not (stated.low == 0 and stated.high.denominator == 1 and 1 <= stated.high <= MOST_STEPS):
        reason = f"The bounds of a count of rows are 0 and a whole number from 1 to {MOST_STEPS:,}."
        hint = "Write COUNT(*, contribution_bounds_per_group => (0, 5))."
        raise Refusal("option", reason, hint=hint, place=where)
    rows = replace(_ROWS, stated=stated, words=_find_words(reader, node))
    if more:
        raise Refusal("aggregate", "COUNT has one argument.", hint="Write COUNT(*).", place=where)
    if type(counted).__name__ == "Star":
        allow_only(reader.statement, counted)
        return ReadMeasure(replace(rows, condition=condition))
    if type(counted).__name__ == "Distinct":
        _, of_units = _split_stated_bounds(reader, counted.expressions)
        if stated is not None or of_units is not None:
            reason = "COUNT(DISTINCT ...) counts each unit once, and has no bounds."
            raise Refusal("option", reason, hint=f"Write COUNT(DISTINCT {unit}).", place=where)
        columns = list(counted.expressions)
        while len(columns) == 1 and type(columns[0]).__name__ == "Paren":  # as Sequelize writes it
            columns = [columns[0].this]
        if len(columns) == 1 and type(columns[0]).__name__ == "Column" and (found := reader.column(columns[0])).is_unit:
            return ReadMeasure(replace(DISTINCT_UNITS, condition=condition), unit=found.expression)
        hint = f"Write COUNT(DISTINCT {unit}), or COUNT(*) for the number of rows."
        reason = "Only the privacy unit can be counted DISTINCT: one unit can add any number of other values."
        raise Refusal("aggregate", reason, hint=hint, place=where)
    if counted is None:
        raise Refusal("aggregate", "COUNT needs an argument.", hint="Write COUNT(*).", place=where)
    argument = reader.read(counted)
    if _is_unit(reader, argument):
        hint = f"Write COUNT(DISTINCT {unit}), or COUNT(*) for the number of rows."
        raise Refusal("aggregate", "This counts a unit once for each row.", hint=hint, place=where)
    return ReadMeasure(_count_present(argument, condition, rows=rows))


def _count_present(argument: Expression, condition: Expression | None, *, rows: Measure = _ROWS) -> Measure:
    """Return the number of rows where an argument is neither NULL nor NaN."""
    present = is_present(argument)
    return replace(rows, condition=join_conjuncts(present if condition is None else [condition, *present]))


def _is_unit(reader: Reader, expression: Expression) -> bool:
    return any(expression == unit.expression for unit in reader.scope.units)


def _split_stated_bounds(reader: Reader, arguments: Sequence[Node]) -> tuple[list[Node], StatedBounds | None]:
    """Return the arguments of an aggregate without its bounds, and these, None without any."""
    if not arguments or type(arguments[-1]).__name__ != "Anonymous" or arguments[-1].this != STATED:
        return list(arguments), None
    *most, node = arguments
    allow_only(reader.statement, node, "this", "expressions")
    ends = list[Fraction]()
    for sample, end in zip(_SAMPLES, node.expressions, strict=True):
        found = fill_unbound(reader.read(end), DOUBLE, such_as=sample)
        value = found.value if isinstance(found, Literal) else None
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or not isfinite(value):
            reason = "Bounds are numbers, written in the statement or bound to parameters."
            raise _refuse_bounds(reader, end, reason=reason)
        ends.append(Fraction(value))
    low, high = ends
    if not low < high or max(abs(low), abs(high)) > LARGEST_STATED or high - low < _SMALLEST:
        most_stated = f"{LARGEST_STATED:,}"
        reason = f"The first bound must be below the second, and both between -{most_stated} and {most_stated}."
        raise _refuse_bounds(reader, node, reason=reason)
    return most, StatedBounds(low, high)


def _refuse_bounds(reader: Reader, node: Node, *, reason: str) -> Refusal:
    hint = "Write SUM(x, contribution_bounds_per_group => (0, 500))."
    return Refusal("option", reason, hint=hint, place=reader.place(node))


def _find_words(reader: Reader, node: Node) -> Place | None:
    """Return the place of an aggregate as the analyst wrote it, None where it is not found."""
    starts = [below.meta["start"] for below in node.walk() if "start" in below.meta]
    found = find_aggregate_call(list(reader.statement.tokens), min(starts)) if starts else None
    return reader.place(node) if found is None else reader.statement.place(*found)


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
