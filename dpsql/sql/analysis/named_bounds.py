"""Bounds that an aggregate states as a named argument: contribution_bounds_per_group and contribution_bounds_per_row.

`syntax/aggregate_forms.py` says which function has which of the two, and refuses the other. So one reader is enough for
both. The bounds are constants of the text, or parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from math import isfinite
from typing import TYPE_CHECKING

from dpsql.errors import Refusal
from dpsql.sql.analysis.reader import Reader
from dpsql.sql.ir.literals import fill_unbound
from dpsql.sql.ir.measures import StatedBounds
from dpsql.sql.ir.tree import DOUBLE, Literal
from dpsql.sql.syntax.aggregate_forms import STATED, list_argument_texts
from dpsql.sql.syntax.sqlglot_nodes import allow_only

if TYPE_CHECKING:
    from sqlglot.expressions import Expression as Node

LARGEST_STATED = 10**15
_SMALLEST = Fraction(1, LARGEST_STATED)
_LONGEST_QUOTED = 60  # characters of an argument in a hint
_SAMPLES = (Literal(0.0, DOUBLE), Literal(500.0, DOUBLE))  # of parameters without a value


def read_named_bounds(
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
            raise refuse_bounds(reader, end, reason=reason, example=example)
        ends.append(Fraction(value))
    low, high = ends
    if not low < high or max(abs(low), abs(high)) > LARGEST_STATED or high - low < _SMALLEST:
        most_stated = f"{LARGEST_STATED:,}"
        reason = f"The first bound must be below the second, and both between -{most_stated} and {most_stated}."
        raise refuse_bounds(reader, node, reason=reason, example=example)
    return most, StatedBounds(low, high)


def refuse_bounds(
    reader: Reader, node: Node, *, reason: str, example: str = "SUM(x, contribution_bounds_per_group => (0, 500))"
) -> Refusal:
    """Return the refusal of stated bounds, with a statement that is accepted."""
    return Refusal("option", reason, hint=f"Write {example}.", place=reader.place(node))


def write_arguments(reader: Reader, arguments: Sequence[Node]) -> list[str]:
    """Return the arguments of an aggregate as the analyst wrote them, for a hint; "" for each if they are not found."""
    starts = [below.meta["start"] for node in arguments for below in node.walk() if "start" in below.meta]
    found = list_argument_texts(reader.statement, min(starts)) if starts else []
    is_known = len(found) == len(arguments) and all(0 < len(text) <= _LONGEST_QUOTED for text in found)
    return found if is_known else [""] * len(arguments)
