"""Bounds that a query states of an aggregate: SUM(x, contribution_bounds_per_group => (0, 500)).

They are constants of the text, or parameters. Any bounds are allowed: what a unit adds is clamped to them, and the
noise follows from them. The bounds of the policy are defaults, and protect nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from math import isfinite
from typing import TYPE_CHECKING

from dpsql.errors import Place, Refusal
from dpsql.sql.analysis.reader import Reader
from dpsql.sql.ir.measures import MOST_STEPS, StatedBounds
from dpsql.sql.ir.tree import Literal
from dpsql.sql.ir.types import DOUBLE
from dpsql.sql.ir.unbound_parameters import fill_unbound
from dpsql.sql.syntax.forms import STATED, find_aggregate_call
from dpsql.sql.syntax.sqlglot_nodes import only

if TYPE_CHECKING:
    from sqlglot.expressions import Expression as Node

__all__ = ["LARGEST_STATED", "ONE_ROW", "check_holds_zero", "find_words", "read_bounds_of_rows", "split_stated_bounds"]

ONE_ROW = StatedBounds(Fraction(0), Fraction(1))
LARGEST_STATED = 10**15
_SMALLEST = Fraction(1, LARGEST_STATED)
_SAMPLES = (Literal(0.0, DOUBLE), Literal(500.0, DOUBLE))  # of parameters without a value


def split_stated_bounds(reader: Reader, arguments: Sequence[Node]) -> tuple[list[Node], StatedBounds | None]:
    """Return the arguments of an aggregate without its bounds, and these, None without any."""
    if not arguments or not _is_stated(arguments[-1]):
        return list(arguments), None
    *most, node = arguments
    only(reader.statement, node, "this", "expressions")
    low, high = (_read_end(reader, end, at=at) for at, end in enumerate(node.expressions))
    if not low < high or max(abs(low), abs(high)) > LARGEST_STATED or high - low < _SMALLEST:
        reason = (
            f"The first bound must be below the second, and both between -{LARGEST_STATED:,} and {LARGEST_STATED:,}."
        )
        raise _refuse(reader, node, reason=reason)
    return most, StatedBounds(low, high)


def _is_stated(node: Node) -> bool:
    return type(node).__name__ == "Anonymous" and node.this == STATED


def _read_end(reader: Reader, node: Node, *, at: int) -> Fraction:
    found = fill_unbound(reader.read(node), DOUBLE, such_as=_SAMPLES[at])
    value = found.value if isinstance(found, Literal) else None
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or not isfinite(value):
        raise _refuse(reader, node, reason="Bounds are numbers, written in the statement or bound to parameters.")
    return Fraction(value)


def check_holds_zero(reader: Reader, node: Node, *, stated: StatedBounds | None) -> None:
    """Refuse bounds of a sum that leave out 0, which is what no row adds."""
    if stated is not None and not stated.low <= 0 <= stated.high:
        reason = "The bounds of a sum hold 0: the first is at most 0, and the second at least 0."
        raise _refuse(reader, node, reason=reason)


def read_bounds_of_rows(reader: Reader, node: Node, *, stated: StatedBounds | None) -> StatedBounds | None:
    """Return the bounds of a number of rows: from 0 to a whole number."""
    if stated is None:
        return None
    if not (stated.low == 0 and stated.high.denominator == 1 and 1 <= stated.high <= MOST_STEPS):
        reason = f"The bounds of a count of rows are 0 and a whole number from 1 to {MOST_STEPS:,}."
        hint = "Write COUNT(*, contribution_bounds_per_group => (0, 5))."
        raise Refusal("option", reason, hint=hint, place=reader.place(node))
    return stated


def _refuse(reader: Reader, node: Node, *, reason: str) -> Refusal:
    hint = "Write SUM(x, contribution_bounds_per_group => (0, 500))."
    return Refusal("option", reason, hint=hint, place=reader.place(node))


def find_words(reader: Reader, node: Node) -> Place | None:
    """Return the place of an aggregate as the analyst wrote it, None where it is not found."""
    starts = [below.meta["start"] for below in node.walk() if "start" in below.meta]
    found = find_aggregate_call(list(reader.statement.tokens), min(starts)) if starts else None
    return reader.place(node) if found is None else reader.statement.place(*found)
