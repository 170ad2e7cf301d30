"""Bounds of what one privacy unit adds to one group: its rows and, by column, the sums of its values and each value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, cast

from dpsql.errors import PolicyError, UsageError
from dpsql.policy.toml import Section
from dpsql.policy.validation import check_count, check_name, fold, wrong_type
from dpsql.quantities import Number, exact

__all__ = ["Bounds", "ColumnBounds", "check_bounds", "read_bounds"]

_LARGEST = 10**15
_EACH, _ENDS = "each", ("min", "max")
_KEYS = (*_ENDS, _EACH)
_HINT = "Write the least and the most that one unit's values add up to in one group, such as {max = 500}."
_HINT_EACH = "Write the least and the greatest value of one row, such as each = {min = 1, max = 10}."


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """Bounds of one unit's values in one group; at least `max` or `each` is set.

    `max` bounds the sum of the positive values, and `-min` that of the negative ones, which count as 0 where only `max`
    is set. `each` is the range of the value of one row.
    """

    min: Fraction | None
    max: Fraction | None
    each: tuple[Fraction, Fraction] | None = None

    def __str__(self) -> str:
        """Return the bounds as a policy file writes them."""
        parts = [] if self.max is None else [_write_ends(self.min or Fraction(0), self.max)]
        parts += [] if self.each is None else [f"each = {{{_write_ends(*self.each)}}}"]
        return f"{{{', '.join(parts)}}}"

    def bound_sum(self, rows: int | None) -> tuple[Fraction, Fraction] | None:
        """Return the least and the most that so many rows of a unit add up to; None where nothing bounds them."""
        ends = [] if self.max is None else [(self.min or Fraction(0), self.max)]
        if self.each is not None and rows is not None:
            ends.append((min(self.each[0] * rows, Fraction(0)), max(self.each[1] * rows, Fraction(0))))
        return (max(low for low, _ in ends), min(high for _, high in ends)) if ends else None


def _write_ends(low: Fraction, high: Fraction) -> str:
    return f"min = {float(low):.15g}, max = {float(high):.15g}"


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
            yield f"{name} = {found}"

    def find(self, column: str) -> ColumnBounds | None:
        """Return the bounds of a column, by its name without regard to ASCII case."""
        return next((found for name, found in self.columns if fold(name) == fold(column)), None)


GivenBounds = Mapping[str, Number | Mapping[str, Number]]


def check_bounds(values: Bounds | Mapping[str, int | GivenBounds]) -> Bounds:
    """Return the bounds of a table: a number of rows under "rows", and of columns a mapping with max, min and each.

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


def read_bounds(section: Section) -> dict[str, int | GivenBounds]:
    """Return the bounds that a policy file has for a table, as `check_bounds` takes them."""
    found: dict[str, int | GivenBounds] = {}
    for name, value in section.values.items():
        if name == "rows" and not isinstance(value, dict):
            found[name] = section.whole(name)
            continue
        inner = section.section(name)
        inner.only(*_KEYS)
        if _EACH not in inner.values:
            inner.require("max")
        given: dict[str, Number | Mapping[str, Number]] = _read_ends(inner)
        if _EACH in inner.values:
            each = inner.section(_EACH)
            each.only(*_ENDS)
            each.require(*_ENDS)
            given[_EACH] = _read_ends(each)
        found[name] = given
    return found


def _read_ends(section: Section) -> dict[str, Any]:
    return {key: section.number(key) for key in _ENDS if key in section.values}


def _check_column(values: GivenBounds, place: str) -> ColumnBounds:
    unknown = next((key for key in values if key not in _KEYS), None)
    if unknown is not None or not {"max", _EACH} & values.keys():
        reason = 'Bounds of a column are "max" and, below 0, "min", and "each" of one row\'s value.'
        raise PolicyError("policy-bounds", reason, hint=_HINT, place=place)
    each = None if _EACH not in values else _check_each(values[_EACH], f"{place}.{_EACH}")
    if "max" not in values:
        if "min" in values:
            reason = "There is a min and no max."
            raise PolicyError("policy-bounds", reason, hint=_HINT, place=place)
        return ColumnBounds(None, None, each)
    low, high = (_check_number(values.get(key, 0), key, place=place, hint=_HINT) for key in _ENDS)
    stated = low if "min" in values else None
    if not -_LARGEST <= low <= 0 or not low < high or not 0 <= high <= _LARGEST:
        reason = f"A max must be above 0 and at most {_LARGEST:,}, and a min at most 0."
        raise PolicyError("policy-bounds", reason, hint=_HINT, place=place)
    if each is not None and not max(low, each[0]) < min(high, each[1]):
        reason = "No value of each lies between min and max."
        hint = "Raise max, or lower min, to what the values of one unit add up to in one group."
        raise PolicyError("policy-bounds", reason, hint=hint, place=place)
    return ColumnBounds(stated, high, each)


def _check_each(values: object, place: str) -> tuple[Fraction, Fraction]:
    if not isinstance(values, Mapping) or set(values) != set(_ENDS):
        reason = 'The range of one row\'s value has the keys "min" and "max".'
        raise PolicyError("policy-bounds", reason, hint=_HINT_EACH, place=place)
    low, high = (_check_number(values[key], key, place=place, hint=_HINT_EACH) for key in _ENDS)
    if not -_LARGEST <= low < high <= _LARGEST:
        reason = f"The min of each must be below its max, and both between -{_LARGEST:,} and {_LARGEST:,}."
        raise PolicyError("policy-bounds", reason, hint=_HINT_EACH, place=place)
    return low, high


def _check_number(value: object, key: str, *, place: str, hint: str) -> Fraction:
    try:
        return exact(cast("Number", value), f"The {key}")
    except UsageError as error:
        raise PolicyError("policy-number", error.reason, hint=hint, place=place) from None
