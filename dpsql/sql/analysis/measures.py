"""Aggregates of a private query: COUNT(DISTINCT unit), COUNT(*), COUNT(x), SUM(x) and AVG(x), with or without FILTER.

value_low and value_high of one of them are the ends of the interval of its released value. COUNT(DISTINCT x) of other
values is read in `distinct_items.py`.

One unit can have any number of rows and values. What each adds up to is
bounded for every unit and group when the query is planned. A query may state the bounds itself, as in
SUM(x, contribution_bounds_per_group => (0, 500)). They are constants of the text, or parameters. Any are allowed: what
a unit adds is clamped to them, and the noise follows from them. The bounds of the policy are defaults, and protect
nothing.

This file has two parts: (1) `read_measure` reads one aggregate, and `named_bounds.py` its bounds; (2) from
`couple_measures` on, measures that are divided by each other become sets, for which each unit has one weight. AVG(x) is
a set of its own, of SUM(x) and COUNT(x), so the same SUM beside it keeps its own cut. Outputs that meet in one
expression of a SELECT around the private query (`outer_measures.py`) are one set, too. A release is known by its
measure and its set. A unit is never cut where units are counted: COUNT(DISTINCT unit) is in no set. Neither is
COUNT(DISTINCT x), to which no unit adds a number of its own: two units can have the same value.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.errors import Place, Refusal
from dpsql.sql.analysis.conditional import (
    Conditional,
    add_condition,
    are_of_rows,
    simplify_average,
    simplify_count,
    simplify_distinct,
    simplify_sum,
    split_conditional,
)
from dpsql.sql.analysis.distinct_items import read_items
from dpsql.sql.analysis.named_bounds import read_named_bounds, refuse_bounds, write_arguments
from dpsql.sql.analysis.reader import Reader
from dpsql.sql.analysis.spread_measures import list_spread_measures
from dpsql.sql.ir.literals import fill_unbound
from dpsql.sql.ir.measures import (
    DISTINCT_UNITS,
    MOST_STEPS,
    SPREADS,
    Aggregate,
    Measure,
    StatedBounds,
    Statistic,
    Weight,
    is_present,
)
from dpsql.sql.ir.scope import find_unit
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.ir.tree import (
    BOOLEAN,
    DOUBLE,
    Expression,
    join_conjuncts,
)
from dpsql.sql.lexer import FUNCTION_PREFIX, ascii_lower
from dpsql.sql.syntax.aggregate_forms import PER_ROW, find_aggregate_call
from dpsql.sql.syntax.sqlglot_nodes import allow_only

if TYPE_CHECKING:
    from sqlglot.expressions import Expression as Node


RELEASED_AGGREGATES = frozenset(["sum", "avg", *SPREADS])  # besides COUNT
_ROWS = Measure(Aggregate.ROWS)
ONE_ROW = StatedBounds(Fraction(0), Fraction(1))
_Set = frozenset[Measure]
_ALONE: _Set = frozenset()
_UNWEIGHED = frozenset([Aggregate.UNITS, Aggregate.ITEMS])


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
    if name in SPREADS:
        return _read_spread(reader, node, statistic=SPREADS[name], condition=condition)
    arguments, stated = read_named_bounds(reader, node.expressions)
    found = _read_summand(reader, node, arguments=arguments, name=name.upper())
    total = Measure(Aggregate.SUM, found, condition, stated=stated, words=_find_words(reader, node))
    if name == "sum":
        if stated is not None and not stated.low <= 0 <= stated.high:  # no row adds 0
            reason = "The bounds of a sum hold 0: the first is at most 0, and the second at least 0."
            raise refuse_bounds(reader, node, reason=reason)
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
    written, stated = read_named_bounds(reader, node.expressions, example=example)
    if statistic.is_of_pairs and len(written) != len(("x", "y")):
        hint = f"Write {name}(x, y) of two columns of numbers."
        raise Refusal("aggregate", f"{name} has two arguments.", hint=hint, place=reader.place(node))
    parts = [[each] for each in written] if statistic.is_of_pairs else [written]
    arguments = [_read_summand(reader, node, arguments=part, name=name, every=written) for part in parts]
    words = _find_words(reader, node)
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
        hint = _propose_number(
            reader, argument, name=name, every=every or arguments, is_condition=found.type == BOOLEAN
        )
        raise Refusal("aggregate", f"{name} is for numbers, and this is {found.type}.", hint=hint, place=place)
    return found


def _propose_number(reader: Reader, argument: Node, *, name: str, every: Sequence[Node], is_condition: bool) -> str:
    """Return a hint with a number in place of an argument that is none; `every` argument is in the call."""
    texts = write_arguments(reader, every) if is_condition else [""] * len(every)
    names, at = ("x", "y"), next(at for at, each in enumerate(every) if each is argument)
    text = texts[at] or (f"{names[at]} > 2" if is_condition else names[at])
    cast = f"CAST({text} AS {'INTEGER' if is_condition else 'DOUBLE'})"
    written = [cast if other == at else each or names[other] for other, each in enumerate(texts)]
    call = f"{name}({', '.join(written)})"
    if is_condition:
        return f"Write COUNT(*) FILTER (WHERE {text}), or {call}."
    return f"Write {call} of what is a number in another form, or COUNT(*) for the number of rows."


def _read_count(reader: Reader, node: Node, *, condition: Expression | None) -> ReadMeasure:
    allow_only(reader.statement, node, "this", "expressions", "big_int")
    where, unit = reader.place(node), name_unit(reader)
    (counted, *more), stated = read_named_bounds(reader, [node.this, *node.expressions])
    is_distinct = type(counted).__name__ == "Distinct"
    if stated is not None and not is_distinct and not are_of_rows(stated):
        reason = f"The bounds of a count of rows are 0 and a whole number from 1 to {MOST_STEPS:,}."
        hint = "Write COUNT(*, contribution_bounds_per_group => (0, 5))."
        raise Refusal("option", reason, hint=hint, place=where)
    rows = replace(_ROWS, stated=stated, words=_find_words(reader, node))
    if more:
        raise Refusal("aggregate", "COUNT has one argument.", hint="Write COUNT(*).", place=where)
    if type(counted).__name__ == "Star":
        allow_only(reader.statement, counted)
        return ReadMeasure(replace(rows, condition=condition))
    if is_distinct:
        columns, of_items = read_named_bounds(reader, counted.expressions)
        while len(columns) == 1 and type(columns[0]).__name__ == "Paren":  # as Sequelize writes it
            columns = [columns[0].this]
        stated = stated or of_items
        if len(columns) == 1 and (found := _find_counted_unit(reader, columns[0], condition=condition)) is not None:
            if stated is not None:
                reason = f"COUNT(DISTINCT {unit}) counts each unit once, and has no bounds."
                raise Refusal("option", reason, hint=f"Write COUNT(DISTINCT {unit}).", place=where)
            return found
        items = read_items(reader, columns, place=where, unit=unit, stated=stated)
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


def _find_words(reader: Reader, node: Node) -> Place | None:
    """Return the place of an aggregate as the analyst wrote it, None where it is not found."""
    starts = [below.meta["start"] for below in node.walk() if "start" in below.meta]
    found = find_aggregate_call(list(reader.statement.tokens), min(starts)) if starts else None
    return reader.place(node) if found is None else reader.statement.place(*found)


def set_columns(measure: Measure, find: Callable[[Expression], tuple[tuple[str, str], ...]]) -> Measure:
    """Return a measure, and what 0.11 read in its words, with the stored columns that they are worked out from."""
    former = None if measure.former is None else set_columns(measure.former, find)
    columns = () if measure.argument is None else find(measure.argument)
    return replace(measure, columns=columns, former=former)


# Part 2: sets of measures that are divided by each other.


def couple_measures(query: PrivateQuery, meetings: Iterable[Collection[int]] = ()) -> PrivateQuery:
    """Return the query with the sets of its measures: of each average, and of outputs that meet, by their positions."""
    found = list(meetings)
    if not found and all(output.divisor is None for output in query.outputs):
        return query
    plain = [replace(measure, weight=None) for measure in query.measures]
    sets = _find_sets(query, plain, meetings=found)
    ordered = sorted({each for each in sets if each}, key=lambda each: sorted(map(repr, each)))
    weights = {each: Weight(number) for number, each in enumerate(ordered, start=1)}
    pairs = [
        [] if not output.is_measure else [replace(plain[at], weight=weights.get(within)) for at in output.places]
        for output, within in zip(query.outputs, sets, strict=True)
    ]
    ranking = [_find_ranking(query, plain[0], pairs=pairs)] if query.clause.shape == "top" else []
    measures = tuple(dict.fromkeys([*ranking, *sorted({each for pair in pairs for each in pair}, key=repr)]))
    outputs = tuple(
        output.place(list(map(measures.index, pair))) if pair else output
        for output, pair in zip(query.outputs, pairs, strict=True)
    )
    return replace(query, measures=measures, outputs=outputs)


def _find_sets(query: PrivateQuery, plain: Sequence[Measure], *, meetings: Iterable[Collection[int]]) -> list[_Set]:
    """Return the set of each output, which is empty for a key and for a measure alone."""
    together = dict[int, _Set]()
    merged = list[frozenset[int]]()
    for each in map(frozenset, meetings):  # those that have an output in common are one
        apart = [other for other in merged if not other & each]
        merged = [*apart, each.union(*(other for other in merged if other & each))]
    for meeting in merged:
        met = [
            at
            for at in meeting
            if is_released_number(query, at) and plain[query.outputs[at].measure].aggregate not in _UNWEIGHED
        ]
        measures = frozenset(plain[query.outputs[at].measure] for at in met)
        together |= dict.fromkeys(met, measures if len(measures) > 1 else _ALONE)
    last = dict[tuple[int, ...], _Set]()
    found = list[_Set]()
    for at, output in enumerate(query.outputs):
        places = output.places
        within = _ALONE if output.divisor is None else frozenset(plain[each] for each in places)
        if output.end is not None:  # of the measure before it
            within = last.get(places, within)
        elif output.is_measure:
            within = last[places] = together.get(at, within)
        found.append(within)
    return found


def _find_ranking(query: PrivateQuery, ranking: Measure, *, pairs: Sequence[Sequence[Measure]]) -> Measure:
    """Return the measure that ranks: as it is alone, if an output has it so, else in the set of its first output."""
    able = [pair[0] for output, pair in zip(query.outputs, pairs, strict=True) if pair and output.divisor is None]
    same = [measure for measure in able if replace(measure, weight=None) == ranking]
    return ranking if ranking in same else next(iter(same), ranking)


def is_released_number(inner: PrivateQuery, at: int) -> bool:
    """Say whether an output is a measure as it is released."""
    output = inner.outputs[at]
    return output.is_measure and output.divisor is None and output.end is None
