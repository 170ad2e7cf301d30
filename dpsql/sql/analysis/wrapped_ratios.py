"""Ends of the intervals of ratios in the SELECT around a private query, in the language of dpsql.

    SELECT x.s / x.n FROM (FROM released) AS x      also selects "high of s" / "low of n", and so on

They are hidden columns of the answer and of the SELECT, for tables that people read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import cast

from dpsql.sql.analysis.meeting_outputs import counts_all_rows, is_share
from dpsql.sql.analysis.outer_select import PATH, find_origin, passes_rows
from dpsql.sql.ir.statements import IntervalEnd, Output, PrivateQuery, WrappedQuery
from dpsql.sql.ir.tree import (
    Call,
    Case,
    Cast,
    Column,
    Derived,
    Expression,
    Joined,
    Literal,
    Relation,
    Scan,
    Try,
    children,
    is_aggregate,
)
from dpsql.sql.ir.types import BIGINT, BOOLEAN
from dpsql.sql.ir.visitor import rebuild

__all__ = ["add_wrapped_ratios"]

_LEVEL = 0.975  # of each of two measures, so that both are within their ends with probability 0.95


@dataclass(frozen=True, slots=True)
class _Ratio:
    """An output that is a measure, times constants, by another one; both by the numbers of their outputs, from 0."""

    expression: Call
    columns: tuple[Column, Column]
    part: int
    whole: int
    is_negative: bool


@dataclass(slots=True)
class _Ends:
    """The private query with hidden ends, and FROM with their columns."""

    inner: PrivateQuery
    source: Relation
    known: dict[tuple[int, bool], Column] = field(default_factory=dict)

    def read(self, output: int, *, is_high: bool) -> Column:
        """Return the column of an end of a measure, which is added where it is missing."""
        if (output, is_high) not in self.known:
            measure = self.inner.outputs[output]
            name = f"{'high' if is_high else 'low'} of {measure.name} in its interval"
            end = replace(measure, name=name, end=IntervalEnd(is_high, _LEVEL))
            self.inner = replace(self.inner, outputs=(*self.inner.outputs, end))
            type_ = self.inner.output_types[output]
            self.source, found = _pull(self.source, Column(0, f"c{len(self.inner.outputs)}", type_))
            self.known[output, is_high] = cast("Column", found)
        return self.known[output, is_high]


def add_wrapped_ratios(wrapped: WrappedQuery) -> WrappedQuery:
    """Return a query with the low and the high end of the 95 % interval of each ratio behind its columns.

    None are added to a SELECT that makes groups of its rows, and none of counts that were adjusted.
    """
    outer, option = wrapped.outer, wrapped.inner.clause.options.get("monotone")
    is_grouped = outer.distinct or outer.keys is not None or any(map(is_aggregate, outer.outputs))
    if is_grouped or (option is not None and option.value == "true"):
        return wrapped
    found = [(at, _find_ratio(each, wrapped)) for at, each in enumerate(outer.outputs)]
    ratios = {at: ratio for at, ratio in found if ratio is not None}
    if not ratios:
        return wrapped
    ends = _Ends(wrapped.inner, outer.body.source)
    written = [_write_end(ends, ratio, is_high=is_high) for ratio in ratios.values() for is_high in (False, True)]
    names = tuple(f"end {at}" for at in range(len(written)))
    body = replace(outer.body, source=ends.source)
    changed = replace(outer, names=outer.names + names, outputs=(*outer.outputs, *written), body=body)
    return replace(wrapped, inner=ends.inner, outer=changed, ratios=tuple(ratios))


def _find_ratio(expression: Expression, wrapped: WrappedQuery) -> _Ratio | None:
    """Return the ratio that an output is, perhaps rounded: the interval is that of the exact value."""
    expression = _strip(expression)
    while isinstance(expression, Call) and expression.function == "round":
        expression = _strip(expression.arguments[0])
    if not isinstance(expression, Call) or expression.function != "/":
        return None
    part, whole = expression.arguments
    columns, divisor = list(_list_columns(part)), _find_divisor(whole)
    if len(columns) != 1 or not _is_product(part) or divisor is None:
        return None
    pair = columns[0], divisor
    origins = [find_origin(each, wrapped.outer.body.source) for each in pair]
    outputs = wrapped.inner.outputs
    if any(at is None or at >= len(outputs) or not _is_measure(outputs[at]) for at in origins):
        return None
    return _Ratio(expression, pair, cast("int", origins[0]), cast("int", origins[1]), _is_negative(part))


def _is_measure(output: Output) -> bool:
    return output.key is None and output.divisor is None and output.end is None


def _list_columns(expression: Expression) -> Iterator[Column]:
    if isinstance(expression, Column):
        yield expression
    for each in children(expression):
        yield from _list_columns(each)


def _strip(expression: Expression) -> Expression:
    while isinstance(expression, Cast | Try):
        expression = expression.argument
    return expression


def _find_divisor(expression: Expression) -> Column | None:
    """Return the column that an expression is, perhaps within casts and NULLIF with a constant."""
    match _strip(expression):
        case Column() as column:
            return column
        case Case(branches=((Call(function="=", arguments=(first, Literal())), Literal(value=None)),), default=last):
            return _find_divisor(first) if first == last else None
    return None


def _is_product(expression: Expression) -> bool:
    expression = _strip(expression)
    if isinstance(expression, Call) and expression.function == "*":
        return all(map(_is_product, expression.arguments))
    return isinstance(expression, Column | Literal)


def _is_negative(expression: Expression) -> bool:
    """Say whether the constants of a product are below 0 together."""
    expression = _strip(expression)
    if isinstance(expression, Literal):
        return expression.value is not None and float(cast("float", expression.value)) < 0
    return sum(map(_is_negative, children(expression))) % 2 == 1


def _write_end(ends: _Ends, ratio: _Ratio, *, is_high: bool) -> Expression:
    """Return an end of the interval of a ratio, as `evaluated_intervals` writes it; NULL where there is none."""
    part = ends.read(ratio.part, is_high=is_high is not ratio.is_negative)
    least, most = (ends.read(ratio.whole, is_high=side) for side in (False, True))
    zero, one = Literal(0, BIGINT), Literal(1, BIGINT)
    wholes: list[Expression]
    if counts_all_rows(ends.inner, ratio.whole):  # it is at least 1 where the ratio exists
        wholes = [Call("greatest", (each, one), each.type) for each in (least, most)]
    else:
        is_above = Call(">", (least, zero), BOOLEAN)
        wholes = [Case(((is_above, each),), None, each.type) for each in (least, most)]
    found = list[Expression]()
    for whole in wholes:
        clipped: Expression = part
        if is_share(ends.inner, ratio.part, of=ratio.whole):
            clipped = Call("least", (Call("greatest", (part, zero), part.type), whole), part.type)
        sides = zip(ratio.expression.arguments, ratio.columns, (clipped, whole), strict=True)
        found.append(replace(ratio.expression, arguments=tuple(_put(side, old, new=new) for side, old, new in sides)))
    return Call("greatest" if is_high else "least", tuple(found), ratio.expression.type)


def _put(expression: Expression, old: Column, *, new: Expression) -> Expression:
    """Return an expression with another one in place of a column."""

    def change(each: Expression) -> Expression:
        return new if each == old else rebuild(each, change)

    return change(expression)


def _pull(relation: Relation, column: Column) -> tuple[Relation, Column | None]:
    """Return FROM with a further column of the answer, and that column; None where the answer is not in it."""
    if isinstance(relation, Scan):
        return relation, replace(column, relation=relation.number) if relation.path == PATH else None
    if isinstance(relation, Joined):
        left, found = _pull(relation.left, column)
        right, other = _pull(relation.right, column)
        return replace(relation, left=left, right=right), found or other
    if not isinstance(relation, Derived) or not passes_rows(relation):
        return relation, None
    source, found = _pull(relation.body.source, column)
    if found is None:
        return relation, None
    outputs = (*relation.outputs, found)
    inside = replace(relation, outputs=outputs, body=replace(relation.body, source=source))
    return inside, Column(relation.number, f"c{len(outputs)}", column.type)
