"""Days and moments as PostgreSQL writes them, beyond Python's calendar too: before Christ, after 9999 and without end.

DuckDB counts days and microseconds from 1970, PostgreSQL from 2000; both call one number at each end infinity.
"""

from __future__ import annotations

import struct

from dpsql.server.wire.sqlstates import WireError

__all__ = ["day_binary", "day_of", "day_text", "moment_binary", "moment_of", "moment_text", "time_text"]

EPOCH = 10_957  # days from 1970-01-01 to 2000-01-01
MICROSECONDS = 86_400_000_000  # of a day
_LAST_DAY, _LAST_MOMENT = 2**31 - 1, 2**63 - 1
_DAY, _MOMENT = struct.Struct("!i"), struct.Struct("!q")
_ERA = 146_097  # days of 400 years


def _civil(days: int) -> tuple[int, int, int]:
    """Return year, month and day, of the Gregorian calendar without an end, of a day counted from 1970-01-01."""
    era, day = divmod(days + 719_468, _ERA)  # from 0000-03-01, so that a leap day ends its year
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5
    month = month + 3 if month < 10 else month - 9  # noqa: PLR2004 - March is month 0
    return year + era * 400 + (month < 3), month, day + 1  # noqa: PLR2004


def _date(days: int) -> tuple[str, str]:
    """Return a day as text, and what follows a date before Christ."""
    year, month, day = _civil(days)
    return f"{year if year > 0 else 1 - year:04}-{month:02}-{day:02}", "" if year > 0 else " BC"


def day_text(days: int) -> str:
    """Return a day, counted from 1970, as PostgreSQL writes it in ISO style."""
    if abs(days) == _LAST_DAY:
        return "infinity" if days > 0 else "-infinity"
    return "".join(_date(days))


def time_text(microseconds: int) -> str:
    """Return a time of day."""
    seconds, part = divmod(microseconds, 1_000_000)
    hours, seconds = divmod(seconds, 3_600)
    fraction = f".{part:06}".rstrip("0") if part else ""
    return f"{hours:02}:{seconds // 60:02}:{seconds % 60:02}{fraction}"


def moment_text(microseconds: int, zone: str = "") -> str:
    """Return a moment, counted from 1970, as PostgreSQL writes it in ISO style."""
    if abs(microseconds) == _LAST_MOMENT:
        return "infinity" if microseconds > 0 else "-infinity"
    days, rest = divmod(microseconds, MICROSECONDS)
    date, era = _date(days)
    return f"{date} {time_text(rest)}{zone}{era}"


def day_binary(days: int) -> bytes:
    """Return a day in binary."""
    if abs(days) == _LAST_DAY:
        return _DAY.pack(_LAST_DAY if days > 0 else -_LAST_DAY - 1)
    return _DAY.pack(_within(days - EPOCH, _LAST_DAY))


def moment_binary(microseconds: int) -> bytes:
    """Return a moment in binary."""
    if abs(microseconds) == _LAST_MOMENT:
        return _MOMENT.pack(_LAST_MOMENT if microseconds > 0 else -_LAST_MOMENT - 1)
    return _MOMENT.pack(_within(microseconds - EPOCH * MICROSECONDS, _LAST_MOMENT))


def _within(number: int, last: int) -> int:
    if abs(number) >= last:
        raise WireError("22008", "A date is out of the range of PostgreSQL's.", hint="Ask for it in text.")
    return number


def day_of(data: bytes) -> int:
    """Return the day, counted from 1970, that binary data holds."""
    (days,) = _DAY.unpack(data)
    return int(days) + EPOCH


def moment_of(data: bytes) -> int:
    """Return the microseconds, counted from 1970, that binary data holds."""
    (microseconds,) = _MOMENT.unpack(data)
    return int(microseconds) + EPOCH * MICROSECONDS
