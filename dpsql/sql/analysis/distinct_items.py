"""COUNT(DISTINCT x) of what is not the privacy unit: the number of different values in a group.

Each unit has a few of its values counted, at most so many as the bounds of a query say (`plan/measures/distinct.py`).
NULL is no value, and NaN is NULL as in every measure. One expression is counted: text that holds several columns has to
say how they are told apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpsql.errors import Place, Refusal
from dpsql.sql.analysis.named_bounds import write_arguments
from dpsql.sql.analysis.reader import Reader
from dpsql.sql.ir.literals import fill_unbound
from dpsql.sql.ir.measures import MOST_STEPS, Aggregate, Measure, StatedBounds
from dpsql.sql.ir.tree import TEXT, Expression, strip_casts

if TYPE_CHECKING:
    from sqlglot.expressions import Expression as Node


def read_items(
    reader: Reader, columns: Sequence[Node], *, place: Place | None, unit: str, stated: StatedBounds | None
) -> Measure:
    """Return the number of different values of an expression; `unit` is the name of the privacy unit, for hints."""
    nodes = list(columns)
    if len(nodes) == 1 and type(nodes[0]).__name__ == "Tuple":  # COUNT(DISTINCT (a, b))
        nodes = list(nodes[0].expressions)
    if len(nodes) != 1:
        reason = "COUNT(DISTINCT ...) counts the values of one expression."
        texts = [text or "x" for text in write_arguments(reader, nodes)]
        written = " || ', ' || ".join(f"CAST({text} AS VARCHAR)" for text in texts)
        hint = f"Write one text for each row, such as COUNT(DISTINCT {written})." if nodes else f"Write {unit} in it."
        raise Refusal("aggregate", reason, hint=hint, place=place)
    argument = fill_unbound(reader.read(nodes[0]), TEXT)
    if _is_unit(reader, argument):
        hint = f"Write COUNT(DISTINCT {unit})."
        raise Refusal("aggregate", "The privacy unit is counted as it is.", hint=hint, place=place)
    if stated is not None:
        check_items(stated, place=place)
    return Measure(Aggregate.ITEMS, argument, stated=stated)


def check_items(stated: StatedBounds, *, place: Place | None) -> None:
    """Refuse bounds of a number of values other than 0 and a whole number."""
    if stated.low == 0 and stated.high.denominator == 1 and 1 <= stated.high <= MOST_STEPS:
        return
    reason = f"The bounds of a number of different values are 0 and a whole number from 1 to {MOST_STEPS:,}."
    hint = "Write COUNT(DISTINCT x, contribution_bounds_per_group => (0, 5))."
    raise Refusal("option", reason, hint=hint, place=place)


def _is_unit(reader: Reader, argument: Expression) -> bool:
    units = {strip_casts(unit.expression) for unit in reader.scope.units}
    return strip_casts(argument) in units
