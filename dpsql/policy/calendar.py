"""First and last days of columns of times, which are public: time series without bounds in WHERE are between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import cast

from dpsql.errors import PolicyError
from dpsql.policy.toml import Section
from dpsql.policy.validation import check_name, fold, wrong_type

__all__ = ["CalendarDays", "check_calendar", "read_calendar_days"]

_KEYS = ("first", "last")
_HINT = "Write both days, such as {first = 2025-01-01, last = 2026-12-31}."


@dataclass(frozen=True, slots=True)
class CalendarDays:
    """Days of a column from `first` to `last`, both included."""

    column: str
    first: date
    last: date

    def __str__(self) -> str:
        """Return the line of a policy file."""
        return f"{self.column} = {{first = {self.first}, last = {self.last}}}"


def check_calendar(values: tuple[CalendarDays, ...] | Mapping[str, Mapping[str, date]]) -> tuple[CalendarDays, ...]:
    """Return the days of each column of a table, by a mapping such as {"ts": {"first": date, "last": date}}.

    Raises `PolicyError` for anything else.
    """
    if isinstance(values, tuple) and all(isinstance(each, CalendarDays) for each in values):
        return values
    if not isinstance(values, Mapping):
        raise wrong_type("a mapping of columns to their first and last day", values, place="calendar")
    found = list[CalendarDays]()
    for name, days in values.items():
        place = f"calendar.{check_name(name, 'calendar')}"
        if not isinstance(days, Mapping):
            raise wrong_type("a mapping such as {first = 2025-01-01, last = 2026-12-31}", days, place=place)
        if any(fold(name) == fold(other.column) for other in found):
            reason = f'The column "{name}" has two calendars.'
            raise PolicyError("policy-columns", reason, hint="Keep one of them.", place=place)
        found.append(_check_days(name, days, place=place))
    return tuple(found)


def _check_days(column: str, days: Mapping[str, date], *, place: str) -> CalendarDays:
    if set(days) != set(_KEYS):
        raise PolicyError("policy-calendar", 'A calendar has a "first" and a "last" day.', hint=_HINT, place=place)
    for key in _KEYS:
        if not isinstance(days[key], date) or isinstance(days[key], datetime):
            raise wrong_type("a date without a time, such as 2025-01-01", days[key], place=f"{place}.{key}")
    if days["last"] < days["first"]:
        raise PolicyError("policy-calendar", "The last day is before the first.", hint=_HINT, place=place)
    return CalendarDays(column, days["first"], days["last"])


def read_calendar_days(section: Section) -> dict[str, Mapping[str, date]]:
    """Return the calendar that a policy file has for a table, for `check_calendar`, which looks at the values."""
    found: dict[str, Mapping[str, date]] = {}
    for name in section.values:
        inner = section.section(name)
        inner.only(*_KEYS)
        inner.require(*_KEYS)
        found[name] = cast("Mapping[str, date]", inner.values)
    return found
