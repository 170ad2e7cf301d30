"""Aggregates of a private query: COUNT(DISTINCT unit), COUNT(*), COUNT(x), SUM(x) and AVG(x), with or without FILTER.

value_low and value_high of one of them are the ends of the interval of its released value.

Only the privacy unit can be counted DISTINCT: one unit can add any number of other values. What each adds up to is
bounded for every unit and group when the query is planned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dpsql.errors import Refusal
from dpsql.sql.analysis.lineage import find_private_columns
from dpsql.sql.analysis.reader import Reader
from dpsql.sql.analysis.stated_bounds import (
    ONE_ROW,
    check_holds_zero,
    find_words,
    read_bounds_of_rows,
    split_stated_bounds,
)
from dpsql.sql.functions.allow_list import INTERVAL_ENDS
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.measures import DISTINCT_UNITS, Aggregate, Measure, is_present
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.ir.tree import Expression
from dpsql.sql.ir.types import BOOLEAN, DOUBLE
from dpsql.sql.ir.unbound_parameters import fill_unbound
from dpsql.sql.ir.unit_equality import join_conjuncts
from dpsql.sql.lexer import FUNCTION_PREFIX, ascii_lower
from dpsql.sql.syntax.sqlglot_nodes import only

if TYPE_CHECKING:
    from sqlglot.expressions import Expression as Node

__all__ = [
    "RELEASED_AGGREGATES",
    "ReadMeasure",
    "is_interval_end",
    "is_measure",
    "list_measures",
    "means_high_end",
    "read_end_argument",
    "read_measure",
    "set_columns",
]

_LONGEST_QUOTED = 60  # characters of a condition in a hint
RELEASED_AGGREGATES = frozenset(["sum", "avg"])  # besides COUNT
_ROWS = Measure(Aggregate.ROWS)


@dataclass(frozen=True, slots=True)
class ReadMeasure:
    """A measure of the select list, and for AVG the one that divides it; `unit` is the column counted DISTINCT."""

    measure: Measure
    divisor: Measure | None = None
    unit: Expression | None = None


def is_measure(node: Node) -> bool:
    """Say whether a node is an aggregate that is released, with or without FILTER."""
    inner = node.this if type(node).__name__ == "Filter" else node
    return type(inner).__name__ == "Count" or _find_name(inner) in RELEASED_AGGREGATES


def is_interval_end(node: Node) -> bool:
    """Say whether a node calls value_low or value_high."""
    return _find_name(node) in INTERVAL_ENDS


def means_high_end(node: Node) -> bool:
    """Say which end a call of value_low or value_high means."""
    return _find_name(node) == "value_high"


def read_end_argument(reader: Reader, node: Node, *, named: Sequence[tuple[str, ReadMeasure]]) -> ReadMeasure:
    """Return the measure of value_low or value_high; `named` are the measures of the select list, with their names."""
    only(reader.statement, node, "this", "expressions")
    (argument, *more) = node.expressions or [None]
    if argument is not None and not more:
        if is_measure(argument):
            return read_measure(reader, argument)
        if type(argument).__name__ == "Column" and not argument.args.get("table"):
            wanted = ascii_lower(argument.name)
            for name, measure in named:
                if ascii_lower(name) == wanted:
                    return measure
    name = _find_name(node)
    example = next((name for name, _ in named if name.isidentifier()), f"COUNT(DISTINCT {_name_unit(reader)})")
    hint = f"Write {name}({example}), the alias of a measure of the select list or the measure itself."
    raise Refusal("aggregate", f"{name} takes one released measure.", hint=hint, place=reader.place(node))


def _find_name(node: Node) -> str:
    """Return the name of a called function, "" for another node."""
    return str(node.this).removeprefix(FUNCTION_PREFIX) if type(node).__name__ == "Anonymous" else ""


def read_measure(reader: Reader, node: Node) -> ReadMeasure:
    """Return what an aggregate of the select list releases; refuse one that is not released."""
    if type(node).__name__ != "Filter":
        return _read(reader, node, condition=None)
    only(reader.statement, node, "this", "expression")
    only(reader.statement, node.expression, "this")
    return _read(reader, node.this, condition=reader.condition(node.expression.this))


def _read(reader: Reader, node: Node, *, condition: Expression | None) -> ReadMeasure:
    name = _find_name(node)
    if not name:
        return _read_count(reader, node, condition=condition)
    only(reader.statement, node, "this", "expressions")
    arguments, stated = split_stated_bounds(reader, node.expressions)
    found = _read_summand(reader, node, arguments=arguments, name=name.upper())
    words = find_words(reader, node)
    if name == "sum":
        check_holds_zero(reader, node, stated=stated)
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
        hint = f"Write COUNT(DISTINCT {_name_unit(reader)}), or {name} of another column."
        raise Refusal("aggregate", "The privacy unit is no amount to add up.", hint=hint, place=place)
    if not found.type.is_number:
        hint = (
            f"Write {name}(CAST(x AS DOUBLE)) of what is a number in another form, or COUNT(*) for the number of rows."
        )
        if found.type == BOOLEAN:
            text = _find_text(reader, argument)
            hint = f"Write COUNT(*) FILTER (WHERE {text}), or {name}(CAST({text} AS INTEGER))."
        raise Refusal("aggregate", f"{name} is for numbers, and this is {found.type}.", hint=hint, place=place)
    return found


def _find_text(reader: Reader, node: Node) -> str:
    """Return a condition as it is written, or another one where it is long or its end is not known."""
    where = reader.place(node)
    text = "" if where is None else where.fragment
    is_whole = text.count("(") == text.count(")") and text.count("'") % 2 == 0
    return text if is_whole and 0 < len(text) <= _LONGEST_QUOTED else "x > 2"


def _read_count(reader: Reader, node: Node, *, condition: Expression | None) -> ReadMeasure:
    only(reader.statement, node, "this", "expressions", "big_int")
    (counted, *more), stated = split_stated_bounds(reader, [node.this, *node.expressions])
    rows = replace(_ROWS, stated=read_bounds_of_rows(reader, node, stated=stated), words=find_words(reader, node))
    if more:
        raise Refusal("aggregate", "COUNT has one argument.", hint="Write COUNT(*).", place=reader.place(node))
    if type(counted).__name__ == "Star":
        only(reader.statement, counted)
        return ReadMeasure(replace(rows, condition=condition))
    if type(counted).__name__ == "Distinct":
        _, of_units = split_stated_bounds(reader, counted.expressions)
        if stated is not None or of_units is not None:
            reason = "COUNT(DISTINCT ...) counts each unit once, and has no bounds."
            hint = f"Write COUNT(DISTINCT {_name_unit(reader)})."
            raise Refusal("option", reason, hint=hint, place=reader.place(node))
        return ReadMeasure(
            replace(DISTINCT_UNITS, condition=condition),
            unit=_read_counted_unit(reader, node, columns=list(counted.expressions)),
        )
    if counted is None:
        raise Refusal("aggregate", "COUNT needs an argument.", hint="Write COUNT(*).", place=reader.place(node))
    found = reader.read(counted)
    if _is_unit(reader, found):
        hint = f"Write COUNT(DISTINCT {_name_unit(reader)}), or COUNT(*) for the number of rows."
        raise Refusal("aggregate", "This counts a unit once for each row.", hint=hint, place=reader.place(node))
    return ReadMeasure(_count_present(found, condition, rows=rows))


def _count_present(argument: Expression, condition: Expression | None, *, rows: Measure = _ROWS) -> Measure:
    """Return the number of rows where an argument is neither NULL nor NaN."""
    present = is_present(argument)
    return replace(rows, condition=join_conjuncts(present if condition is None else [condition, *present]))


def _read_counted_unit(reader: Reader, node: Node, *, columns: Sequence[Node]) -> Expression:
    """Return the unit column that COUNT(DISTINCT <the privacy unit>) names, also in parentheses; refuse any other."""
    if len(columns) == 1:
        counted = columns[0]
        while type(counted).__name__ == "Paren":  # as Sequelize writes it
            counted = counted.this
        if type(counted).__name__ == "Column" and (found := reader.column(counted)).is_unit:
            return found.column
    hint = f"Write COUNT(DISTINCT {_name_unit(reader)}), or COUNT(*) for the number of rows."
    reason = "Only the privacy unit can be counted DISTINCT: one unit can add any number of other values."
    raise Refusal("aggregate", reason, hint=hint, place=reader.place(node))


def _name_unit(reader: Reader) -> str:
    private = reader.scope.private
    return (private.unit_name if private else None) or "unit"


def _is_unit(reader: Reader, expression: Expression) -> bool:
    return any(expression == unit.column for unit in reader.scope.units)


def list_measures(found: Sequence[ReadMeasure], *, ranking: ReadMeasure | None) -> tuple[Measure, ...]:
    """Return the measures of a select list, each once: that which ranks, then the others in the order of their words.

    So the same measures, listed in another order, are the same question.
    """
    first = [] if ranking is None else [ranking.measure]
    every = [measure for each in found for measure in (each.measure, each.divisor) if measure is not None]
    return tuple(dict.fromkeys([*first, *sorted(every, key=repr)]))


def set_columns(query: PrivateQuery, *, catalog: Catalog) -> PrivateQuery:
    """Return the query with the stored columns that each of its sums is worked out from."""
    measures = tuple(
        measure
        if measure.argument is None
        else replace(measure, columns=find_private_columns(measure.argument, query.body.source, catalog=catalog))
        for measure in query.measures
    )
    return replace(query, measures=measures)
