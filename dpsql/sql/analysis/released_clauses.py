"""ORDER BY, LIMIT and HAVING over the columns of the released table: post-processing, and free.

Ends of intervals in the select list of a private query: value_low, value_high, and WITH (intervals = true).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING

from dpsql.errors import Place, Refusal, Unsupported
from dpsql.sql.analysis.measures import (
    ReadMeasure,
    is_interval_end,
    is_measure,
    means_high_end,
    read_end_argument,
    read_measure,
)
from dpsql.sql.analysis.reader import Reader
from dpsql.sql.ir.literals import fill_unbound
from dpsql.sql.ir.statements import HavingTerm, IntervalEnd, Option, Order
from dpsql.sql.ir.tree import Expression, Literal
from dpsql.sql.ir.types import BIGINT
from dpsql.sql.lexer import ascii_lower
from dpsql.sql.syntax.parameters import read_whole_number
from dpsql.sql.syntax.sqlglot_nodes import find_every_column, only, read_direction

if TYPE_CHECKING:
    from sqlglot.expressions import Expression as Node


_INTEGER = re.compile(r"[0-9]{1,18}")
_COMPARISONS = {"EQ": "=", "NEQ": "<>", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">="}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_LEVEL = 0.95
_ENDS = (("low", False), ("high", True))


@dataclass(slots=True)
class Item:
    """One item of the outermost select list; `expression` is None for an aggregate, which is the `measure`.

    With `end` it is an end of the interval of the measure. It is `added` if an option puts it beside the written items.
    """

    name: str
    expression: Expression | None
    node: Node
    measure: ReadMeasure | None = None
    end: IntervalEnd | None = None
    added: bool = False


@dataclass(frozen=True, slots=True)
class Released:
    """Reads what a private query says of its released columns, which `items` lists."""

    reader: Reader
    items: list[Item]

    def order(self, select: Node) -> tuple[Order, ...]:
        """Return the ORDER BY terms; nothing but released columns may be ordered by."""
        order = select.args.get("order")
        if order is None:
            return ()
        only(self.reader.statement, order, "expressions")
        every = find_every_column(self.reader.statement, order)
        if every is not None:
            return tuple(Order(at, *read_direction(every)) for at, item in enumerate(self.items) if not item.added)
        return tuple(self._term(term) for term in order.expressions)

    def keep(self, select: Node) -> tuple[HavingTerm, ...]:
        """Return the HAVING terms: comparisons of released counts with numbers, joined by AND."""
        having = select.args.get("having")
        if having is None:
            return ()
        only(self.reader.statement, having, "this")
        terms, rest = [], [having.this]
        while rest:
            node = rest.pop()
            if type(node).__name__ == "And":
                rest += [node.expression, node.this]
            elif type(node).__name__ == "Paren":
                rest.append(node.this)
            else:
                terms.append(self._kept(node))
        return tuple(terms)

    def _term(self, term: Node) -> Order:
        only(self.reader.statement, term, "this", "desc", "nulls_first")
        position = self._released(term.this)
        if position is None:
            hint = "Order by an output of the query; its rows come in noisy rank order otherwise."
            raise Refusal("order", "Only released columns can be ordered by.", hint=hint, place=self._at(term.this))
        return Order(position, *read_direction(term))

    def _kept(self, node: Node) -> HavingTerm:
        operator = _COMPARISONS.get(type(node).__name__)
        if operator is not None:
            for left, right, sign in (
                (node.this, node.expression, operator),
                (node.expression, node.this, _MIRRORED.get(operator, operator)),
            ):
                output, number = self._count(left), self._number(right)
                if output is not None and number is not None:
                    return HavingTerm(output, sign, number)
        private = self.reader.scope.private
        count = f"COUNT(DISTINCT {private.unit_name if private else 'unit'})"
        hint = f"Select {count} AS n and write HAVING n >= 100, which tests the released count; test keys in WHERE."
        raise Unsupported("having", "This HAVING tests no released count.", hint=hint, place=self._at(node))

    def _count(self, node: Node) -> int | None:
        """Return the position of the released count that the node names, or None."""
        is_value = is_measure(node) or is_interval_end(node) or type(node).__name__ == "Column"
        position = self._released(node) if is_value else None
        return position if position is not None and self.items[position].expression is None else None

    def _number(self, node: Node) -> int | float | Decimal | None:
        if type(node).__name__ not in {"Literal", "Neg", "Paren"}:
            return None
        value = fill_unbound(self.reader.read(node), BIGINT)
        number = value.value if isinstance(value, Literal) else None
        return number if isinstance(number, int | float | Decimal) and not isinstance(number, bool) else None

    def _released(self, node: Node) -> int | None:
        """Return the position of the output that a position, an alias or an expression names."""
        kind = type(node).__name__
        if kind == "Literal":
            written = [at for at, item in enumerate(self.items) if not item.added]
            position = read_position(node, len(written))
            return written[position - 1] if position else None
        if kind == "Column" and not node.args.get("table"):
            for position, item in enumerate(self.items):
                if ascii_lower(item.name) == ascii_lower(node.name):
                    return position
        is_high = None
        if is_interval_end(node):
            measure: ReadMeasure | None = read_end_argument(self.reader, node, named=list_named(self.items))
            is_high = means_high_end(node)
        else:
            measure = read_measure(self.reader, node) if is_measure(node) else None
        wanted = (None if measure is not None else self.reader.read(node), measure, is_high)
        found = enumerate(
            (item.expression, item.measure, None if item.end is None else item.end.is_high) for item in self.items
        )
        return next((position for position, item in found if item == wanted), None)

    def _at(self, node: Node) -> Place | None:
        return self.reader.place(node)


def list_named(items: list[Item]) -> list[tuple[str, ReadMeasure]]:
    """Return the measures of a select list, with their names."""
    return [(item.name, item.measure) for item in items if item.measure is not None and item.end is None]


def read_row_count(reader: Reader, node: Node | None) -> int | None:
    """Return the number of LIMIT or OFFSET, written or bound; None without the clause."""
    if node is None:
        return None
    only(reader.statement, node, "expression")
    count = node.expression
    if type(count).__name__ == "Literal":
        if _INTEGER.fullmatch(str(count.this)):
            return int(count.this)
        given = read_whole_number(reader.statement.value(str(count.this)), reader.bound.__getitem__, min_value=0)
        if given is not None:
            return given
    hint = "Such as LIMIT 10."
    raise Unsupported("limit", "LIMIT takes a plain whole number.", hint=hint, place=reader.place(node))


def read_position(node: Node, most: int) -> int:
    """Return the position in the select list, from 1, that a number means; 0 when it means none."""
    position = int(node.this) if _INTEGER.fullmatch(str(node.this)) else 0
    return position if position <= most else 0


def complete_ends(reader: Reader, items: list[Item], *, options: Mapping[str, Option]) -> list[Item]:
    """Return the items of a select list with the measure of each end, and with the columns that the option adds.

    Raises `Refusal` for an end of nothing, for a name that is there twice, and for ends of counts that are adjusted.
    """
    option, named = options.get("intervals"), list_named(items)
    adds, level = (False, _LEVEL) if option is None else _read_option(option)
    found = list[Item]()
    for item in items:
        if is_interval_end(item.node):
            end = IntervalEnd(means_high_end(item.node), level)
            found.append(replace(item, measure=read_end_argument(reader, item.node, named=named), end=end))
        else:
            found += [item, *(_add_ends(item, level) if adds and item.measure is not None else ())]
    if adds and not named:
        hint = f"Select a measure too, such as COUNT(DISTINCT {_name_unit(reader)}) AS n, or leave intervals out."
        reason = "intervals are those of released measures, and none are selected."
        raise Refusal("option", reason, hint=hint, place=option.place if option else None)
    monotone = options.get("monotone")
    if monotone is not None and monotone.value == "true" and any(item.end is not None for item in found):
        hint = "Leave monotone out, or the intervals: either is free once the query is answered."
        reason = "Intervals are those of the counts as they were drawn, and monotone = true changes them."
        raise Refusal("option", reason, hint=hint, place=monotone.place)
    names = [ascii_lower(item.name) for item in found]
    for item in found:
        if item.added and names.count(ascii_lower(item.name)) > 1:
            hint = "Give the output of this name, or the measure, another alias."
            reason = "intervals would add a column of a name that is there already."
            raise Refusal("output-names", reason, hint=hint, place=reader.place(item.node))
    return found


def _add_ends(item: Item, level: float) -> Iterator[Item]:
    """Yield the two columns that the option adds after a measure."""
    for word, is_high in _ENDS:
        yield replace(item, name=f"{item.name}_{word}", end=IntervalEnd(is_high, level), added=True)


def _read_option(option: Option) -> tuple[bool, float]:
    """Return whether the option adds columns, and the level of all intervals."""
    if option.word and option.value in {"true", "false"}:
        return option.value == "true", _LEVEL
    if isinstance(option.value, Decimal) and 0 < float(option.value) < 1:
        return True, float(option.value)
    hint = "Write intervals = true, for 95 %, or a level such as intervals = 0.9."
    raise Refusal("option", "intervals is true, false, or a level between 0 and 1.", hint=hint, place=option.place)


def _name_unit(reader: Reader) -> str:
    private = reader.scope.private
    return (private.unit_name if private else None) or "unit"
