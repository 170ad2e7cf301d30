"""Bounds of what one privacy unit adds to one group: its rows, and the sums of its values, by column."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from dpsql.errors import PolicyError, UsageError
from dpsql.policy.toml import Section
from dpsql.policy.validation import check_count, check_name, fold, wrong_type
from dpsql.quantities import Number, exact

__all__ = ["Bounds", "ColumnBounds", "check_bounds", "read_bounds"]

_LARGEST = 10**15
_KEYS = ("min", "max")
_HINT = "Write the least and the most that one unit's values add up to in one group, such as {max = 500}."


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """Least and largest sum of one unit's values in one group."""

    min: Fraction
    max: Fraction


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of a private table: the `rows` of one unit in one group, None without a bound, and those of columns."""

    rows: int | None = None
    columns: tuple[tuple[str, ColumnBounds], ...] = ()

    def list_lines(self) -> Iterator[str]:
        """Yield the bounds as a policy file writes them."""
        if self.rows is not None:
            yield f"rows = {self.rows}"
        for name, found in self.columns:
            yield f"{name} = {{min = {float(found.min):g}, max = {float(found.max):g}}}"

    def find(self, column: str) -> ColumnBounds | None:
        """Return the bounds of a column, by its name without regard to ASCII case."""
        return next((found for name, found in self.columns if fold(name) == fold(column)), None)


def check_bounds(values: Bounds | Mapping[str, int | Mapping[str, Number]]) -> Bounds:
    """Return the bounds of a table: a number of rows under "rows", and of columns a mapping with max, and min if < 0.

    Raises `PolicyError` for anything else.
    """
    if isinstance(values, Bounds):
        return values
    if not isinstance(values, Mapping):
        raise wrong_type("a mapping of columns to their bounds", values, place="bounds")
    rows, columns = None, dict[str, ColumnBounds]()
    for name, value in values.items():
        check_name(name, "bounds")
        if name == "rows" and not isinstance(value, Mapping):
            rows = check_count(value, "bounds.rows")
        elif not isinstance(value, Mapping):
            raise wrong_type("a mapping such as {max = 500}", value, place=f"bounds.{name}")
        elif any(fold(name) == fold(other) for other in columns):
            reason = f'The column "{name}" has two bounds.'
            raise PolicyError("policy-columns", reason, hint="Keep one of them.", place=f"bounds.{name}")
        else:
            columns[name] = _check_column(value, f"bounds.{name}")
    return Bounds(rows, tuple(columns.items()))


def read_bounds(section: Section) -> dict[str, int | dict[str, int | float]]:
    """Return the bounds that a policy file has for a table, as `check_bounds` takes them."""
    found: dict[str, int | dict[str, int | float]] = {}
    for name, value in section.values.items():
        if name == "rows" and not isinstance(value, dict):
            found[name] = section.whole(name)
            continue
        inner = section.section(name)
        inner.only(*_KEYS)
        inner.require("max")
        found[name] = {key: inner.number(key) for key in _KEYS if key in inner.values}
    return found


def _check_column(values: Mapping[str, Number], place: str) -> ColumnBounds:
    unknown = next((key for key in values if key not in _KEYS), None)
    if unknown is not None or "max" not in values:
        reason = 'Bounds of a column are "max" and, below 0, "min".'
        raise PolicyError("policy-bounds", reason, hint=_HINT, place=place)
    try:
        low, high = (exact(values.get(key, 0), f"The {key}") for key in _KEYS)
    except UsageError as error:
        raise PolicyError("policy-number", error.reason, hint=_HINT, place=place) from None
    if not -_LARGEST <= low <= 0 or not low < high or not 0 <= high <= _LARGEST:
        reason = f"A max must be above 0 and at most {_LARGEST:,}, and a min at most 0."
        raise PolicyError("policy-bounds", reason, hint=_HINT, place=place)
    return ColumnBounds(low, high)
