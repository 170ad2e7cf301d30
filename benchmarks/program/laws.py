"""The power with which a figure grows, from a table whose rows stand on an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import linear_regression

from program.row import Row, Value, middle

__all__ = ["LINEAR", "Law", "laws_of"]

LINEAR = 1.2  # a power above it is told as more than linear: two medians are seldom exact to a fifth of a decade
_FEWEST = 2


@dataclass(frozen=True, slots=True)
class Law:
    """A column grows with `power` over all points, and with `last` from the last but one to the last.

    A constant part bends the law of small sizes down; the last step, from large to largest, shows what comes next.
    """

    column: str
    power: float
    last: float

    @property
    def is_worse_than_linear(self) -> bool:
        """Whether either power is."""
        return max(self.power, self.last) > LINEAR

    def __str__(self) -> str:
        worse = " - MORE THAN LINEAR" if self.is_worse_than_linear else ""
        return f"{self.column}: to the power {self.power:.2f}, in the last step {self.last:.2f}{worse}"


def laws_of(table: Sequence[Row]) -> list[Law]:
    """Return the law of each column that is measured at two places of the axis or more; none for other tables."""
    columns = dict.fromkeys(column for row in table for column in row.values)
    return [law for column in columns if (law := _law(column, points_of(table, column))) is not None]


def points_of(table: Sequence[Row], column: str) -> list[tuple[float, float]]:
    """Return place and figure, both above 0, of each row that stands on the axis and has a number or samples here."""
    found = ((row.at, _figure(row.values.get(column))) for row in table)
    return sorted((at, figure) for at, figure in found if at is not None and figure is not None and min(at, figure) > 0)


def _figure(value: Value | None) -> float | None:
    return value if isinstance(value, int | float) else middle(value)


def _law(column: str, points: Sequence[tuple[float, float]]) -> Law | None:
    if len({at for at, _ in points}) < _FEWEST:
        return None
    ats, figures = ([math.log(number) for number in numbers] for numbers in zip(*points, strict=True))
    last = (figures[-1] - figures[-2]) / (ats[-1] - ats[-2]) if ats[-1] > ats[-2] else math.nan
    return Law(column, linear_regression(ats, figures).slope, last)
