"""What a suite yields: one line of a table at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import groupby
from statistics import median

__all__ = ["Row", "Samples", "Value", "middle", "tables_of"]

Samples = tuple[float, ...] | list[float]  # the latter as JSON has it
Value = float | str | Samples


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table: numbers, words, and samples, of which a table shows the median and the range.

    `against` names the row of the same table to which samples are told as ratios. `at` is where the line stands on an
    axis, in a table of a law: how a figure grows. `note` is a sentence on the whole table, or on why a figure is
    missing.
    """

    table: str
    name: str
    values: Mapping[str, Value]
    against: str = ""
    at: float | None = None
    note: str = ""

    def told(self) -> dict[str, object]:
        """Return the row as JSON has it; what is not said is not written."""
        return {key: value for key, value in asdict(self).items() if value not in ("", None)}


def middle(value: Value | None) -> float | None:
    """Return the median of samples, and nothing for what is none."""
    return median(value) if isinstance(value, tuple | list) else None


def tables_of(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Yield the rows of one table after the other, as soon as the next begins."""
    for _, table in groupby(rows, key=lambda row: row.table):
        yield list(table)
