"""Aggregates of a private query, with or without FILTER: COUNT, SUM, AVG, variances and covariances, and quantiles.

value_low and value_high of one of them, but for quantiles, are the ends of the interval of its released value.

One unit can have any number of rows and values. What each adds up to is bounded for every unit and group when the query
is planned. A query may state the bounds itself:

    SUM(x, contribution_bounds_per_group => (0, 500))    of what one unit adds to a group; of AVG, of the unit's mean
    MEDIAN(x, contribution_bounds_per_row => (0, 500))   of the value of one row, as in VAR_POP

They are constants of the text, or parameters. Any are allowed: what a unit adds is clamped to them, and the noise
follows from them. The bounds of the policy are defaults, and protect nothing.

This file has three parts: (1) `read_measure` reads one aggregate, and `measure_forms.py` has the forms of those that
mean the same; (2) `read_quantile` reads MEDIAN(x), QUANTILE_CONT(x, 0.9) and their other spellings, which syntax has
put into one call (`syntax/aggregate_forms.py`); (3) `_read_named_bounds` reads the bounds of any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from math import isfinite
from typing import TYPE_CHECKING, cast

from dpsql.dialects import propose_query
from dpsql.errors import Place, Refusal, Unsupported
from dpsql.sql.analysis.measure_forms import (
    Conditional,
    add_condition,
    are_of_rows,
    list_spread_measures,
    simplify_average,
    simplify_count,
    simplify_distinct,
    simplify_sum,
    split_conditional,
)
from dpsql.sql.analysis.reader import Reader
from dpsql.sql.ir.catalog import Catalog, Table
from dpsql.sql.ir.literals import fill_unbound
from dpsql.sql.ir.measures import (
    DISTINCT_UNITS,
    MOST_STEPS,
    SPREADS,
    Aggregate,
    Measure,
    Quantile,
    StatedBounds,
    Statistic,
    is_present,
)
from dpsql.sql.ir.scope import find_unit
from dpsql.sql.ir.tree import BOOLEAN, DOUBLE, TEXT, Expression, Family, Literal, Type, join_conjuncts, strip_casts
from dpsql.sql.lexer import FUNCTION_PREFIX, ScannedStatement, ascii_lower
from dpsql.sql.syntax.aggregate_forms import (
    DESCENDING,
    PER_GROUP,
    PER_ROW,
    QUANTILE,
    STATED,
    find_aggregate_call,
    find_quantile_words,
    list_argument_texts,
)
from dpsql.sql.syntax.block import Block, first_token, kinds_of, name_of, nest, read_text, walk, word_of
from dpsql.sql.syntax.grammar import allow_only

if TYPE_CHECKING:
    from sqlglot import Token
    from sqlglot.expressions import Expression as Node


RELEASED_AGGREGATES = frozenset(["sum", "avg", *SPREADS])  # besides COUNT
_ROWS = Measure(Aggregate.ROWS)
ONE_ROW = StatedBounds(Fraction(0), Fraction(1))
LARGEST_STATED = 10**15
_SMALLEST = Fraction(1, LARGEST_STATED)
_LONGEST_QUOTED = 60  # characters of an argument in a hint
_SAMPLES = (Literal(0.0, DOUBLE), Literal(500.0, DOUBLE))  # of parameters without a value
_NAMES = {QUANTILE.removeprefix(FUNCTION_PREFIX), DESCENDING.removeprefix(FUNCTION_PREFIX)}
_MOST_DENOMINATOR = 1_000
_TIMES = frozenset([Family.DATE, Family.TIMESTAMP])
_HALF = Literal(0.5, DOUBLE)  # of a parameter without a value
_EXTREMES = {"min": 0.01, "max": 0.99}
_NEARER = {0: ("least", 0.01), 1: ("greatest", 0.99)}


@dataclass(frozen=True, slots=True)
class ReadMeasure:
    """A measure of the select list, and for AVG the one that divides it; `unit` is the column counted DISTINCT.

    A `statistic` is computed from these two and the `others`.
    """

    measure: Measure
    divisor: Measure | None = None
    unit: Expression | None = None
    others: tuple[Measure, ...] = ()
    statistic: Statistic | None = None

    @property
    def every(self) -> tuple[Measure, ...]:
        """All measures that it is computed from, in the order of `Output.places`."""
        return (self.measure,) if self.divisor is None else (self.measure, self.divisor, *self.others)


def is_measure(node: Node) -> bool:
    """Say whether a node is an aggregate that is released, with or without FILTER."""
    inner = node.this if type(node).__name__ == "Filter" else node
    return type(inner).__name__ == "Count" or find_function(inner) in RELEASED_AGGREGATES


def refuse_in_where(reader: Reader, where: Node) -> Refusal | None:
    """Return the refusal of a released aggregate in WHERE, outside of its subqueries; None without one."""
    parts = where.walk(prune=lambda each: type(each).__name__ == "Select")
    found = next((cast("Node", each) for each in parts if is_measure(cast("Node", each))), None)
    if found is None:
        return None
    words = _find_words(reader, found, find=find_aggregate_call) or reader.place(found)
    hint = (
        f"Write the condition behind GROUP BY, as in HAVING {'COUNT(*)' if words is None else words.fragment} >= 100."
    )
    return Refusal("aggregate", "WHERE tests rows, and an aggregate is of a group.", hint=hint, place=words)


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
    node, condition = _split_filter(reader, node)
    name = find_function(node)
    if not name:
        return _read_count(reader, node, condition=condition)
    allow_only(reader.statement, node, "this", "expressions")
    if name in SPREADS:
        return _read_spread(reader, node, statistic=SPREADS[name], condition=condition)
    arguments, stated = _read_named_bounds(reader, node.expressions)
    found = _read_summand(reader, node, arguments=arguments, name=name.upper())
    total = Measure(
        Aggregate.SUM, found, condition, stated=stated, words=_find_words(reader, node, find=find_aggregate_call)
    )
    if name == "sum":
        if stated is not None and not stated.low <= 0 <= stated.high:  # no row adds 0
            reason = "The bounds of a sum hold 0: the first is at most 0, and the second at least 0."
            raise _refuse_bounds(reader, node, reason=reason)
        return ReadMeasure(simplify_sum(total))
    # AVG is a sum, and as `divisor` the number of rows with a value; `couple_measures` gives both one weight for each
    # unit, and `divide_steps` of `plan/release.py` divides them
    divisor = replace(_count_present(found, condition), words=total.words)
    if stated is not None:  # of the mean of one unit, which counts as one row
        total, divisor = replace(total, stated=replace(stated, of_mean=True)), replace(divisor, stated=ONE_ROW)
    return ReadMeasure(*simplify_average(total, divisor))


def _read_spread(reader: Reader, node: Node, *, statistic: Statistic, condition: Expression | None) -> ReadMeasure:
    """Return a variance, deviation or covariance with the measures that it is computed from."""
    name = find_function(node).upper()
    example = f"{name}({'x, y' if statistic.is_of_pairs else 'x'}, {PER_ROW} => (0, 500))"
    written, stated = _read_named_bounds(reader, node.expressions, example=example)
    if statistic.is_of_pairs and len(written) != len(("x", "y")):
        hint = f"Write {name}(x, y) of two columns of numbers."
        raise Refusal("aggregate", f"{name} has two arguments.", hint=hint, place=reader.place(node))
    parts = [[each] for each in written] if statistic.is_of_pairs else [written]
    arguments = [_read_summand(reader, node, arguments=part, name=name, every=written) for part in parts]
    words = _find_words(reader, node, find=find_aggregate_call)
    first, rows, *others = list_spread_measures(arguments, condition=condition, stated=stated, words=words)
    return ReadMeasure(first, rows, others=tuple(others), statistic=statistic)


def _read_summand(
    reader: Reader, node: Node, *, arguments: Sequence[Node], name: str, every: Sequence[Node] = ()
) -> Expression:
    """Return the one number that each row gives to a sum or average; refuse anything else.

    It is one of `every` argument, where there are two.
    """
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
        hint = _propose_number(reader, argument, name=name, every=every or arguments, type_=found.type)
        raise Refusal("aggregate", f"{name} is for numbers, and this is {found.type}.", hint=hint, place=place)
    return found


def _propose_number(reader: Reader, argument: Node, *, name: str, every: Sequence[Node], type_: Type) -> str:
    """Return a hint with a number in place of an argument that is none; `every` argument is in the call."""
    texts, is_condition = _write_arguments(reader, every), type_ == BOOLEAN
    names, at = ("x", "y"), next(at for at, each in enumerate(every) if each is argument)
    text = texts[at] or (f"{names[at]} > 2" if is_condition else names[at])
    cast = f"CAST({text} AS {'INTEGER' if is_condition else 'DOUBLE'})"
    cast = f"date_diff('day', DATE '2026-01-01', {text})" if type_.family in _TIMES else cast
    written = [cast if other == at else each or names[other] for other, each in enumerate(texts)]
    if is_condition:
        return f"Write COUNT(*) FILTER (WHERE {text}), or {name}({', '.join(written)})."
    bounds = f"{PER_ROW if name.lower() in SPREADS else PER_GROUP} => (0, {365 if type_.family in _TIMES else 500})"
    call = f"{name}({', '.join([*written, bounds])})"
    meaning = "for days" if type_.family in _TIMES else "if it is a number in another form"
    return f"Write {call}, {meaning}, or COUNT(*) for the number of rows."


def _read_count(reader: Reader, node: Node, *, condition: Expression | None) -> ReadMeasure:
    allow_only(reader.statement, node, "this", "expressions", "big_int")
    where, unit = reader.place(node), name_unit(reader)
    (counted, *more), stated = _read_named_bounds(reader, [node.this, *node.expressions])
    is_distinct = type(counted).__name__ == "Distinct"
    if stated is not None and not is_distinct and not are_of_rows(stated):
        reason = f"The bounds of a count of rows are 0 and a whole number from 1 to {MOST_STEPS:,}."
        hint = "Write COUNT(*, contribution_bounds_per_group => (0, 5))."
        raise Refusal("option", reason, hint=hint, place=where)
    rows = replace(_ROWS, stated=stated, words=_find_words(reader, node, find=find_aggregate_call))
    if more:
        raise Refusal("aggregate", "COUNT has one argument.", hint="Write COUNT(*).", place=where)
    if type(counted).__name__ == "Star":
        allow_only(reader.statement, counted)
        return ReadMeasure(replace(rows, condition=condition))
    if is_distinct:
        columns, of_items = _read_named_bounds(reader, counted.expressions)
        while len(columns) == 1 and type(columns[0]).__name__ == "Paren":  # as Sequelize writes it
            columns = [columns[0].this]
        stated = stated or of_items
        if len(columns) == 1 and (found := _find_counted_unit(reader, columns[0], condition=condition)) is not None:
            if stated is not None:
                reason = f"COUNT(DISTINCT {unit}) counts each unit once, and has no bounds."
                raise Refusal("option", reason, hint=f"Write COUNT(DISTINCT {unit}).", place=where)
            return found
        items = _read_items(reader, columns, place=where, unit=unit, stated=stated)
        return ReadMeasure(simplify_distinct(replace(items, condition=condition, words=rows.words)))
    if counted is None:
        raise Refusal("aggregate", "COUNT needs an argument.", hint="Write COUNT(*).", place=where)
    argument = reader.read(counted)
    if _is_unit(reader, argument):
        hint = f"Write COUNT(DISTINCT {unit}), or COUNT(*) for the number of rows."
        raise Refusal("aggregate", "This counts a unit once for each row.", hint=hint, place=where)
    return ReadMeasure(simplify_count(_count_present(argument, condition, rows=rows), argument, condition=condition))


def _find_counted_unit(reader: Reader, node: Node, *, condition: Expression | None) -> ReadMeasure | None:
    """Return the number of privacy units, for the unit or CASE WHEN c THEN unit END; None for anything else."""
    kind = type(node).__name__
    if kind == "Column":
        column = reader.column(node)
        units = replace(DISTINCT_UNITS, condition=condition)
        return ReadMeasure(units, unit=column.expression) if column.is_unit else None
    conditional: Conditional | None = None
    if kind == "Case" or find_function(node) == "if":
        conditional = split_conditional(reader.read(node), zero_counts=True)
    unit = None if conditional is None else find_unit(conditional.value, reader.scope.units)
    if conditional is None or unit is None:
        return None
    units = replace(DISTINCT_UNITS, condition=add_condition(condition, conditional.condition))
    return ReadMeasure(units, unit=unit.expression)


def _count_present(argument: Expression, condition: Expression | None, *, rows: Measure = _ROWS) -> Measure:
    """Return the number of rows where an argument is neither NULL nor NaN."""
    present = is_present(argument)
    return replace(rows, condition=join_conjuncts(present if condition is None else [condition, *present]))


def _is_unit(reader: Reader, expression: Expression) -> bool:
    return any(expression == unit.expression for unit in reader.scope.units)


def _read_items(
    reader: Reader, columns: Sequence[Node], *, place: Place | None, unit: str, stated: StatedBounds | None
) -> Measure:
    """Return the number of different values of an expression; `unit` is the name of the privacy unit, for hints.

    Each unit has a few of its values counted, at most so many as the bounds of a query say
    (`plan/measures/bounds.py`). NULL is no value, and NaN is NULL as in every measure. One expression is counted:
    text that holds several columns has to say how they are told apart.
    """
    nodes = list(columns)
    if len(nodes) == 1 and type(nodes[0]).__name__ == "Tuple":  # COUNT(DISTINCT (a, b))
        nodes = list(nodes[0].expressions)
    if len(nodes) != 1:
        reason = "COUNT(DISTINCT ...) counts the values of one expression."
        texts = [text or "x" for text in _write_arguments(reader, nodes)]
        written = " || ', ' || ".join(f"CAST({text} AS VARCHAR)" for text in texts)
        hint = f"Write one text for each row, such as COUNT(DISTINCT {written})." if nodes else f"Write {unit} in it."
        raise Refusal("aggregate", reason, hint=hint, place=place)
    argument = fill_unbound(reader.read(nodes[0]), TEXT)
    # COUNT(DISTINCT CAST(user_id AS VARCHAR)) would be charged as values of which one unit has several.
    if strip_casts(argument) in {strip_casts(each.expression) for each in reader.scope.units}:
        hint = f"Write COUNT(DISTINCT {unit})."
        raise Refusal("aggregate", "The privacy unit is counted as it is.", hint=hint, place=place)
    if stated is not None and not are_of_rows(stated):
        reason = f"The bounds of a number of different values are 0 and a whole number from 1 to {MOST_STEPS:,}."
        hint = "Write COUNT(DISTINCT x, contribution_bounds_per_group => (0, 5))."
        raise Refusal("option", reason, hint=hint, place=place)
    return Measure(Aggregate.ITEMS, argument, stated=stated)


# Part 2: quantiles.


def is_quantile(node: Node) -> bool:
    """Say whether a node is a quantile, with or without FILTER."""
    inner = node.this if type(node).__name__ == "Filter" else node
    return find_function(inner) in _NAMES


def read_quantile(reader: Reader, node: Node) -> Quantile:
    """Return the quantile that an item of the select list is; refuse one that is not released."""
    node, condition = _split_filter(reader, node)
    allow_only(reader.statement, node, "this", "expressions")
    text = _read_text(reader, node.expressions[0])
    example = f"MEDIAN({text}, contribution_bounds_per_row => (0, 500))"
    (value, wanted, denominator), stated = _read_named_bounds(reader, node.expressions, example=example)
    words = _find_words(reader, node, find=find_quantile_words)
    argument = _read_value(reader, value, words=words)
    present = is_present(argument)
    falls = DESCENDING.endswith(find_function(node))
    return Quantile(
        argument=argument,
        wanted=_read_wanted(reader, wanted, denominator=denominator, falls=falls, text=text, words=words),
        condition=join_conjuncts(present if condition is None else [condition, *present]),
        stated=None if stated is None else (stated.low, stated.high),
        words=words,
    )


def propose_for_extreme(
    statement: ScannedStatement, failed: Refusal | Unsupported, *, table: Table, catalog: Catalog
) -> str | None:
    """Return a hint for MIN or MAX of a column that has no quantile as it is; None for anything else.

    The grammar, which refuses MIN and MAX, knows no types, and proposes a quantile near them. A column is looked for in
    the private `table` first.
    """
    for beside, at in walk(nest(statement.tokens).nodes):
        share = _EXTREMES.get(word_of(beside, at))
        if share is None or statement.place(first_token(beside[at:])) != failed.place:
            continue
        called = beside[at + 1]
        inside = called.nodes if isinstance(called, Block) else ()
        is_name = len(inside) == 1 or kinds_of(inside[-2:-1]) == ["DOT"]
        name = name_of(inside, len(inside) - 1) if is_name else ""
        for owner in (table, *catalog.tables):
            kind = next((type_ for column, type_ in owner.columns if ascii_lower(column) == name), None)
            if kind is not None:
                return _propose_by_type(read_text(statement, inside), kind, share=share, owner=owner)
    return None


def _propose_by_type(column: str, kind: Type, *, share: float, owner: Table) -> str | None:
    name, unit = column.rpartition(".")[2].strip(' "'), owner.privacy_unit
    if unit is not None and ascii_lower(name) == ascii_lower(unit):
        return f"Write COUNT(DISTINCT {column}), for how many there are."
    if kind.family in _TIMES:
        days = f"date_diff('day', DATE '2026-01-01', {column})"
        bounds = "contribution_bounds_per_row => (0, 365)"
        return f"Write PERCENTILE_CONT({share}, {bounds}) WITHIN GROUP (ORDER BY {days}), which counts days."
    if kind.family is Family.BOOLEAN:
        return f"Write AVG(CAST({column} AS INTEGER)), for the share of rows where it is true."
    if kind.is_number:
        return None
    if unit is None:
        return f"Select {column} alone, with GROUP BY {column} TOP 10 PRIVATE, for its most frequent values."
    return f"Ask for the most frequent values: {propose_query(owner.name, key=name, unit=unit)}"


def refuse_end(reader: Reader, node: Node, *, name: str) -> Refusal:
    """Return the refusal of value_low or value_high of a quantile."""
    reason = f"{name} is for counts, sums and averages: the interval of a quantile is one of ranks, not of values."
    hint = "Leave it out: EXPLAIN and the receipt say between which quantiles the answer lies."
    return Refusal("aggregate", reason, hint=hint, place=reader.place(node))


def _read_value(reader: Reader, node: Node, *, words: Place | None) -> Expression:
    """Return the number of each row; refuse anything else."""
    if is_measure(node) or is_quantile(node):
        hint = "Take the quantile of a column, and compute with released values in an outer SELECT."
        raise Refusal("aggregate", "An aggregate may not stand in another.", hint=hint, place=words)
    found = fill_unbound(reader.read(node), DOUBLE)
    if any(found == unit.expression for unit in reader.scope.units):
        hint = "Take the quantile of another column."
        raise Refusal("aggregate", "The privacy unit is no amount.", hint=hint, place=words)
    if found.type.is_number:
        return found
    text = _read_text(reader, node)
    cast = f"MEDIAN(CAST({text} AS DOUBLE), contribution_bounds_per_row => (0, 500))"
    hint = f"Write {cast}, if it is a number in another form."
    if found.type.family is Family.BOOLEAN:
        hint = f"Write AVG(CAST({text} AS INTEGER)), for the share of rows where it is true."
    if found.type.family in _TIMES:
        days = f"date_diff('day', DATE '2026-01-01', {text})"
        hint = f"Count days: MEDIAN({days}, contribution_bounds_per_row => (0, 365))."
    raise Refusal("aggregate", f"Quantiles are of numbers, and this is {found.type}.", hint=hint, place=words)


def _read_text(reader: Reader, node: Node) -> str:
    """Return an argument as the analyst wrote it, for a hint."""
    place = reader.place(node)
    return "x" if place is None else place.fragment


def _read_wanted(
    reader: Reader, node: Node, *, denominator: Node, falls: bool, text: str, words: Place | None
) -> Fraction:
    """Return the wanted share of rows at or below the answer; refuse 0 and 1, and what is no such share."""
    found, number = fill_unbound(reader.read(node), DOUBLE, such_as=_HALF), reader.read(denominator)
    value, divisor = (each.value if isinstance(each, Literal) else None for each in (found, number))
    if isinstance(value, bool) or value is None:
        hint = f"Write a number above 0 and below 1, such as QUANTILE_CONT({text}, 0.25)."
        reason = "The wanted quantile is a number of the text, or a parameter."
        raise Refusal("aggregate", reason, hint=hint, place=words)
    assert isinstance(divisor, int)  # noqa: S101 - dpsql wrote it
    wanted = _to_fraction(value) / divisor
    # PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY x DESC) has nine tenths of the rows at or above it: the quantile 0.1.
    share = 1 - wanted if falls else wanted
    if share in _NEARER:
        which, near = _NEARER[int(share)]
        reason = f"The {which} value is that of one {name_unit(reader)}, and is not released."
        raise Refusal("aggregate", reason, hint=f"Write {near} in place of {value}.", place=words)
    if not 0 < share < 1 or share.denominator > _MOST_DENOMINATOR:
        hint = "Write a number above 0 and below 1 with at most three decimals, such as 0.999."
        if divisor != 1:
            hint = f"Write QUANTILE_CONT({text}, 0.999), or another number with at most three decimals."
        raise Refusal("aggregate", "There is no such quantile.", hint=hint, place=words)
    return share


def _to_fraction(value: object) -> Fraction:
    """Return a number as it is written: 0.1 is a tenth, also as a DOUBLE."""
    if isinstance(value, int | Decimal):
        return Fraction(value)
    return Fraction(repr(value)) if isinstance(value, float) and value == value and abs(value) < 2 else Fraction(2)  # noqa: PLR0124, PLR2004 - NaN; beyond any share


# Part 3: what both have, FILTER and named bounds.


def _split_filter(reader: Reader, node: Node) -> tuple[Node, Expression | None]:
    """Return an aggregate without FILTER, and the condition that this has."""
    if type(node).__name__ != "Filter":
        return node, None
    allow_only(reader.statement, node, "this", "expression")
    allow_only(reader.statement, node.expression, "this")
    return node.this, reader.condition(node.expression.this)


def _read_named_bounds(
    reader: Reader, arguments: Sequence[Node], *, example: str = "SUM(x, contribution_bounds_per_group => (0, 500))"
) -> tuple[list[Node], StatedBounds | None]:
    """Return the arguments of an aggregate without its named bounds, and these, None without any.

    The bounds are in the unit of the argument: of one group, or of one row, as the function has them. A refusal
    proposes the `example`. Raises `Refusal` for what are no two numbers, or numbers out of range.
    """
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
            raise _refuse_bounds(reader, end, reason=reason, example=example)
        ends.append(Fraction(value))
    low, high = ends
    if not low < high or max(abs(low), abs(high)) > LARGEST_STATED or high - low < _SMALLEST:
        reason = (
            f"The first bound must be below the second, and both between -{LARGEST_STATED:,} and {LARGEST_STATED:,}."
        )
        raise _refuse_bounds(reader, node, reason=reason, example=example)
    return most, StatedBounds(low, high)


def _refuse_bounds(
    reader: Reader, node: Node, *, reason: str, example: str = "SUM(x, contribution_bounds_per_group => (0, 500))"
) -> Refusal:
    """Return the refusal of stated bounds, with a statement that is accepted."""
    return Refusal("option", reason, hint=f"Write {example}.", place=reader.place(node))


def _write_arguments(reader: Reader, arguments: Sequence[Node]) -> list[str]:
    """Return the arguments of an aggregate as the analyst wrote them, for a hint; "" for each if they are not found."""
    starts = [below.meta["start"] for node in arguments for below in node.walk() if "start" in below.meta]
    found = list_argument_texts(reader.statement, min(starts)) if starts else []
    is_known = len(found) == len(arguments) and all(0 < len(text) <= _LONGEST_QUOTED for text in found)
    return found if is_known else [""] * len(arguments)


def _find_words(
    reader: Reader, node: Node, *, find: Callable[[list[Token], int], tuple[Token, Token] | None]
) -> Place | None:
    """Return the place of an aggregate as the analyst wrote it, None where `find` does not find it by its start."""
    starts = [below.meta["start"] for below in node.walk() if "start" in below.meta]
    found = find(list(reader.statement.tokens), min(starts)) if starts else None
    return reader.place(node) if found is None else reader.statement.place(*found)
