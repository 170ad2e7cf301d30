"""Dates and timestamps as PostgreSQL writes them, also beyond Python's calendar: before Christ, after 9999, infinity.

DuckDB counts days and microseconds from 1970, PostgreSQL from 2000. In both, the number at each end is infinity.
"""

from __future__ import annotations

import struct

from dpsql.server.wire.sqlstates import WireError

__all__ = [
    "decode_day",
    "decode_timestamp",
    "encode_day",
    "encode_timestamp",
    "format_day",
    "format_time",
    "format_timestamp",
]

EPOCH = 10_957  # days from 1970-01-01 to 2000-01-01
MICROSECONDS = 86_400_000_000  # of a day
_LAST_DAY, _LAST_TIMESTAMP = 2**31 - 1, 2**63 - 1
_DAY, _TIMESTAMP = struct.Struct("!i"), struct.Struct("!q")
_ERA = 146_097  # days of 400 years


def _format_date(days: int) -> tuple[str, str]:
    """Return a date of the proleptic Gregorian calendar, in days from 1970-01-01, and " BC" if it is before Christ."""
    era, day = divmod(days + 719_468, _ERA)  # from 0000-03-01, as a leap day then ends its year
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5
    month = month + 3 if month < 10 else month - 9  # noqa: PLR2004 - March is month 0
    year += era * 400 + (month < 3)  # noqa: PLR2004
    return f"{year if year > 0 else 1 - year:04}-{month:02}-{day + 1:02}", "" if year > 0 else " BC"


def format_day(days: int) -> str:
    """Format a date, in days from 1970, as PostgreSQL writes it in ISO style."""
    if abs(days) == _LAST_DAY:
        return "infinity" if days > 0 else "-infinity"
    return "".join(_format_date(days))


def format_time(microseconds: int) -> str:
    """Format a time of day, in microseconds."""
    seconds, part = divmod(microseconds, 1_000_000)
    hours, seconds = divmod(seconds, 3_600)
    fraction = f".{part:06}".rstrip("0") if part else ""
    return f"{hours:02}:{seconds // 60:02}:{seconds % 60:02}{fraction}"


def format_timestamp(microseconds: int, zone: str = "") -> str:
    """Format a timestamp, in microseconds from 1970, as PostgreSQL writes it in ISO style."""
    if abs(microseconds) == _LAST_TIMESTAMP:
        return "infinity" if microseconds > 0 else "-infinity"
    days, rest = divmod(microseconds, MICROSECONDS)
    date, era = _format_date(days)
    return f"{date} {format_time(rest)}{zone}{era}"


def encode_day(days: int) -> bytes:
    """Encode a date, in days from 1970."""
    if abs(days) == _LAST_DAY:
        return _DAY.pack(_LAST_DAY if days > 0 else -_LAST_DAY - 1)
    return _DAY.pack(_check_range(days - EPOCH, _LAST_DAY))


def encode_timestamp(microseconds: int) -> bytes:
    """Encode a timestamp, in microseconds from 1970."""
    if abs(microseconds) == _LAST_TIMESTAMP:
        return _TIMESTAMP.pack(_LAST_TIMESTAMP if microseconds > 0 else -_LAST_TIMESTAMP - 1)
    return _TIMESTAMP.pack(_check_range(microseconds - EPOCH * MICROSECONDS, _LAST_TIMESTAMP))


def _check_range(number: int, last: int) -> int:
    if abs(number) >= last:
        raise WireError("22008", "A date is outside PostgreSQL's range.", hint="Fetch it in text format.")
    return number


def decode_day(data: bytes) -> int:
    """Decode a date to days from 1970."""
    (days,) = _DAY.unpack(data)
    return int(days) + EPOCH


def decode_timestamp(data: bytes) -> int:
    """Decode a timestamp to microseconds from 1970."""
    (microseconds,) = _TIMESTAMP.unpack(data)
    return int(microseconds) + EPOCH * MICROSECONDS
