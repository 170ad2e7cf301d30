"""Outputs of private queries that meet in one expression of the SELECT around them, in the language of dpsql.

    SELECT x.s / x.n FROM (SELECT SUM(price) AS s, COUNT(*) AS n FROM reads PRIVATE) AS x        s and n meet

Values meet in arithmetic, in functions and in comparisons. They do not in AND, OR and NOT, nor in the condition and the
result of CASE: what only decides whether a value is shown is not computed with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum
from typing import cast

from dpsql.sql.analysis.coupled_measures import couple_measures
from dpsql.sql.analysis.outer_select import PATH
from dpsql.sql.ir.measures import Aggregate, Measure, is_present
from dpsql.sql.ir.statements import PrivateQuery, PublicQuery, WrappedQuery
from dpsql.sql.ir.tree import (
    Call,
    Case,
    Cast,
    Column,
    Combined,
    Cut,
    Derived,
    Expression,
    In,
    Literal,
    Scalar,
    Scan,
    Try,
    Window,
    children,
)
from dpsql.sql.ir.types import BIGINT, BOOLEAN, Type
from dpsql.sql.ir.unit_equality import split_conjuncts
from dpsql.sql.ir.visitor import rebuild

__all__ = ["APART", "clip_shares", "counts_all_rows", "couple_outputs", "find_meetings", "is_share"]

APART = frozenset(["and", "or", "not", "||", "concat", "concat_ws", "coalesce"])  # these compute no number of two
_NONE: frozenset[int] = frozenset()


@dataclass(slots=True)
class _Walk:
    """One walk through a SELECT; its `relations` by their numbers."""

    relations: Mapping[int, Scan | Derived | Combined | Cut]
    meetings: list[frozenset[int]] = field(default_factory=list)
    known: dict[int, frozenset[int]] = field(default_factory=dict)  # by the identity of expressions of the SELECT

    def find(self, expression: Expression) -> frozenset[int]:
        """Return the outputs that the value of an expression is computed from, and note those that meet in it."""
        if id(expression) not in self.known:
            self.known[id(expression)] = self._find(expression)
        return self.known[id(expression)]

    def _find(self, expression: Expression) -> frozenset[int]:
        match expression:
            case Column():
                return self._find_column(expression)
            case Case():
                for condition, _ in expression.branches:
                    self.find(condition)
                results = [result for _, result in expression.branches]
                return self._unite([*results, *([] if expression.default is None else [expression.default])])
            case Window():
                self._unite([*expression.partition, *(term.expression for term in expression.order)])
                return self._unite(expression.arguments)
            case Scalar(source=source):
                return self.find(source.outputs[0])
        found = self._unite(children(expression))
        is_apart = isinstance(expression, Call) and expression.function in APART
        if len(found) > 1 and isinstance(expression, Call | In) and not is_apart:
            self.meetings.append(found)
        return _NONE if expression.type == BOOLEAN else found

    def _unite(self, expressions: Sequence[Expression]) -> frozenset[int]:
        return _NONE.union(*map(self.find, expressions))

    def _find_column(self, column: Column) -> frozenset[int]:
        relation, number = self.relations.get(column.relation), column.name.removeprefix("c")
        if not number.isdigit():
            return _NONE
        at = int(number) - 1
        match relation:
            case Scan(path=path) if path == PATH:
                return frozenset([at])
            case Derived():
                return self.find(relation.outputs[at])
            case Combined():
                return self._unite([branch.outputs[at] for branch in relation.branches])
            case Cut():
                return self.find(relation.source.outputs[at])
        return _NONE


def find_meetings(query: PublicQuery) -> list[frozenset[int]]:
    """Return the positions of outputs of the answer that meet in an expression of the SELECT around it."""
    walk = _Walk(_list_relations(query))
    for expression in _list_expressions(query):
        walk.find(expression)
    return walk.meetings


def _list_relations(query: PublicQuery) -> dict[int, Scan | Derived | Combined | Cut]:
    found = dict[int, Scan | Derived | Combined | Cut]()
    for node in _list_nodes(query):
        if isinstance(node, Scan | Derived | Combined):
            found.setdefault(node.number, node)
        elif isinstance(node, Cut):
            found[node.source.number] = node
    return found


def _list_nodes(node: object) -> Iterator[object]:
    """Yield the nodes of a tree, each before those in it."""
    yield node
    if isinstance(node, tuple):
        for part in node:
            yield from _list_nodes(part)
    elif is_dataclass(node) and not isinstance(node, type | Type):
        for each in fields(node):
            yield from _list_nodes(getattr(node, each.name))


def _list_expressions(query: PublicQuery) -> Iterator[Expression]:
    """Yield every expression of a SELECT, also those within others."""
    for node in _list_nodes(query):
        if isinstance(node, Column | Call | Case | Cast | In | Scalar | Try | Window):
            yield node


def couple_outputs(wrapped: WrappedQuery) -> WrappedQuery:
    """Return a query with the sets of the outputs that meet in the SELECT around it."""
    counted = [each for each in wrapped.inner.outputs if each.key is None and each.divisor is None]
    meetings = find_meetings(wrapped.outer) if len(counted) > 1 else []
    if not meetings:
        return wrapped
    return replace(wrapped, inner=couple_measures(wrapped.inner, meetings))


def is_share(query: PrivateQuery, part: int, *, of: int) -> bool:
    """Say whether an output counts some of the rows that another one counts."""
    outputs = query.outputs[part], query.outputs[of]
    if any(each.key is not None or each.divisor is not None or each.end is not None for each in outputs):
        return False
    first, second = (query.measures[each.measure] for each in outputs)
    counts = first.aggregate is second.aggregate is Aggregate.ROWS and first.weight == second.weight
    return counts and set(split_conjuncts(second.condition)) <= set(split_conjuncts(first.condition))


def counts_all_rows(query: PrivateQuery, at: int) -> bool:
    """Say whether an output counts every row that the measures of its set read: then each unit counts 1 or more."""
    output = query.outputs[at]
    rows = query.measures[output.measure]
    if output.divisor is not None or rows.aggregate is not Aggregate.ROWS or rows.weight is None:
        return False
    wanted = set(split_conjuncts(rows.condition))
    others = [each for each in query.measures if each.weight == rows.weight and each != rows]
    return all(wanted <= set(_list_conditions(each)) for each in others)


def _list_conditions(measure: Measure) -> list[Expression]:
    """Return the conditions of the rows that a measure reads: a sum reads those that have a value."""
    present = () if measure.argument is None else is_present(measure.argument)
    return [*split_conjuncts(measure.condition), *present]


def clip_shares(query: PublicQuery, inner: PrivateQuery) -> PublicQuery:
    """Return a SELECT in which the count of a part is at least 0 and at most that of the whole that divides it."""
    walk = _Walk(_list_relations(query))

    def clip(node: object) -> object:
        match node:
            case tuple():
                return tuple(map(clip, node))
            case Type() | Enum():
                return node
            case Call(function="/", arguments=(part, whole)) if found := _clip_part(
                walk, part, whole=whole, inner=inner
            ):
                return replace(node, arguments=(found, cast("Expression", clip(whole))))
        if not is_dataclass(node) or isinstance(node, type):
            return node
        return replace(node, **{each.name: clip(getattr(node, each.name)) for each in fields(node)})

    return cast("PublicQuery", clip(query))


def _clip_part(walk: _Walk, part: Expression, *, whole: Expression, inner: PrivateQuery) -> Expression | None:
    counts = [list(_list_released(walk, each)) for each in (part, whole)]
    if [len(each) for each in counts] != [1, 1] or not _is_product(part):
        return None
    (count,), (total,) = counts
    (at,), (of,) = (sorted(walk.find(each)) or [-1] for each in (count, total))
    if not is_share(inner, at, of=of):
        return None
    zero = Literal(0, BIGINT)
    largest, least = (Call(name, (each, zero), BIGINT) for name, each in (("greatest", total), ("greatest", count)))
    return _replace(part, count, by=Call("least", (least, largest), BIGINT))


def _list_released(walk: _Walk, expression: Expression) -> Iterator[Column]:
    """Yield the columns of an expression that are one output each."""
    if isinstance(expression, Column) and walk.find(expression):
        yield expression
    for each in children(expression):
        yield from _list_released(walk, each)


def _is_product(expression: Expression) -> bool:
    """Say whether an expression is a column times constants."""
    match expression:
        case Column() | Literal():
            return True
        case Cast(argument=argument) | Try(argument=argument):
            return _is_product(argument)
        case Call(function="*" | "coalesce"):
            return all(map(_is_product, expression.arguments))
    return False


def _replace(expression: Expression, wanted: Column, *, by: Expression) -> Expression:
    """Return an expression with another one in place of a column."""

    def change(each: Expression) -> Expression:
        return by if each == wanted else rebuild(each, change)

    return change(expression)
