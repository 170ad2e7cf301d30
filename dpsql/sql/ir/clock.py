"""Clock, read once per statement, and arithmetic on its reading before the engine gets the query.

A reading is a constant of the query, in UTC and without a zone. Truncation to the hour or the day and addition of an
INTERVAL are computed here. A statement truncated to the hour is then the same query throughout that hour.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from dpsql.sql.ir.tree import Literal
from dpsql.sql.ir.types import DATE, TIMESTAMP

__all__ = [
    "CLOCK_WORDS",
    "DAYS",
    "MOMENTS",
    "Clock",
    "add_interval",
    "read_clock",
    "system_clock",
    "truncate",
    "truncate_to_date",
]

Clock = Callable[[], datetime]
CLOCK_WORDS = frozenset(["current_date", "current_timestamp", "localtimestamp"])  # DuckDB reads them without ()
DAYS = frozenset(["current_date", "today"])
MOMENTS = frozenset("now get_current_timestamp transaction_timestamp current_timestamp localtimestamp".split())
_MONTHS = {"month": 1, "quarter": 3, "year": 12}


def system_clock() -> datetime:
    """Return the system time in UTC."""
    return datetime.now(UTC)


def read_clock(moment: datetime, name: str) -> Literal:
    """Return the value of a clock function at `moment`: a DATE or a TIMESTAMP, in UTC if `moment` has a zone."""
    moment = moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)
    return _day(moment) if name in DAYS else _moment(moment)


def truncate(literal: Literal, unit: str) -> Literal:
    """Return date_trunc(unit, literal), a TIMESTAMP; raise `ValueError` or `OverflowError` if Python cannot."""
    moment = _python(literal)
    midnight = datetime(moment.year, moment.month, moment.day)  # noqa: DTZ001 - of UTC, as everything here
    match unit:
        case "week":
            return _moment(midnight - timedelta(days=midnight.weekday()))
        case "month" | "quarter" | "year":
            return _moment(midnight.replace(day=1, month=moment.month - (moment.month - 1) % _MONTHS[unit]))
        case "day":
            return _moment(midnight)
    step = timedelta(**{f"{unit}s": 1})
    return _moment(midnight + (moment - midnight) // step * step)


def add_interval(literal: Literal, amount: int, *, unit: str) -> Literal:
    """Return literal + INTERVAL amount unit, a TIMESTAMP; raise as `truncate` does."""
    moment = _python(literal)
    if unit not in _MONTHS:
        return _moment(moment + timedelta(**{f"{unit}s": amount}))
    month = moment.year * 12 + moment.month - 1 + amount * _MONTHS[unit]
    year, month = month // 12, month % 12 + 1
    return _moment(moment.replace(year=year, month=month, day=min(moment.day, monthrange(year, month)[1])))


def truncate_to_date(literal: Literal) -> Literal:
    """Return the date of a TIMESTAMP."""
    return _day(_python(literal))


def _python(literal: Literal) -> datetime:
    if not isinstance(literal.value, str):
        raise ValueError  # noqa: TRY004 - NULL, which the engine cuts and moves as well
    return datetime.fromisoformat(literal.value)


def _moment(moment: datetime) -> Literal:
    return Literal(moment.isoformat(sep=" "), TIMESTAMP)


def _day(moment: datetime) -> Literal:
    return Literal(moment.date().isoformat(), DATE)
