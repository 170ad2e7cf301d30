"""Forms of DataFusion's for dates and time stamps, counted as whole numbers of days or microseconds since 1970.

DataFusion's own calendar ends before what a file may hold. The Gregorian calendar repeats every 400 years, so parts of
a date are those of the like day in the years 1770 to 2169, which have time stamps in nanoseconds, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["TIMES"]

_CYCLE, _DAY = 146_097, 86_400_000_000  # days of 400 years, microseconds of a day
_HALF = _CYCLE // 2
_DAYS = "CAST(arrow_cast({0}, 'Int32') AS BIGINT)"
_MOMENT = "arrow_cast({0}, 'Int64')"
_LAST_MOMENT = 9_223_372_036_854_775_806
_FIRST_MOMENT = -9_223_372_022_400_000_000  # DuckDB's first time stamp
_CLOCKED = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": _DAY,
}
_WEEKDAYS = "'Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'"
_MONTHS = "'January', 'February', 'March', 'April', 'May', 'June', 'July', 'August', 'September', 'October', "
_MONTHS += "'November', 'December'"


def _remainder(value: str, divisor: int) -> str:
    """Return the rest of a division, which is not negative."""
    return f"(({value} % {divisor} + {divisor}) % {divisor})"


def _quotient(value: str, divisor: int) -> str:
    """Return a whole quotient, rounded down."""
    return f"({value} / {divisor} - (CASE WHEN {value} % {divisor} < 0 THEN 1 ELSE 0 END))"


def _as_date(days: str) -> str:
    """Return the date of a number of days; NULL beyond DuckDB's."""
    fits = f"{days} BETWEEN -2147483646 AND 2147483646"
    return f"(CASE WHEN {fits} THEN arrow_cast(TRY_CAST({days} AS INT), 'Date32') END)"


def _as_moment(micros: str) -> str:
    return f"arrow_cast({micros}, 'Timestamp(Microsecond, None)')"


def _midnight(days: str) -> str:
    """Return the time stamp at which a day begins; NULL where there is none."""
    fits = f"{days} BETWEEN -106751991 AND 106751991"
    return f"(CASE WHEN {fits} THEN {_as_moment(f'{days} * {_DAY}')} END)"


def _like(days: str) -> str:
    """Return the date that is the like day in the years 1770 to 2169."""
    return f"arrow_cast(CAST({_remainder(f'({days} + {_HALF})', _CYCLE)} - {_HALF} AS INT), 'Date32')"


def _cycles(days: str) -> str:
    """Return how many times 400 years a date is from its like day."""
    return _quotient(f"({days} + {_HALF})", _CYCLE)


_OF_MOMENT = _quotient(_MOMENT, _DAY)  # days
_OF_DAY = _remainder(_MOMENT, _DAY)
_CLOCK = {
    "hour": f"({_OF_DAY} / 3600000000)",
    "minute": f"(({_OF_DAY} / 60000000) % 60)",
    "second": f"(({_OF_DAY} / 1000000) % 60)",
    "millisecond": f"(({_OF_DAY} / 1000) % 60000)",
    "microsecond": f"({_OF_DAY} % 60000000)",
    "epoch": f"(CAST({_MOMENT} AS DOUBLE) / 1000000e0)",
}


def _part(part: str, days: str) -> str:
    return f"CAST(date_part('{part}', {_like(days)}) AS BIGINT)"


def _year(days: str, part: str = "year") -> str:
    return f"({_part(part, days)} + 400 * {_cycles(days)})"


def _parts(days: str) -> dict[str, str]:
    """Return the form of each part of a date, of its number of days."""
    year, isoyear, week = _year(days), _year(days, "isoyear"), _part("week", days)
    return {
        "year": year,
        "isoyear": isoyear,
        **{part: _part(part, days) for part in ("month", "day", "dow", "isodow", "doy", "quarter", "week")},
        "yearweek": f"({isoyear} * 100 + (CASE WHEN {isoyear} > 0 THEN {week} ELSE 0 - {week} END))",
        "decade": f"({year} / 10)",
        "century": f"(CASE WHEN {year} > 0 THEN ({year} - 1) / 100 + 1 ELSE {year} / 100 - 1 END)",
        "millennium": f"(CASE WHEN {year} > 0 THEN ({year} - 1) / 1000 + 1 ELSE {year} / 1000 - 1 END)",
        "era": f"(CASE WHEN {{0}} IS NULL THEN NULL WHEN {year} > 0 THEN 1 ELSE 0 END)",
    }


def _start(unit: str, days: str) -> str:
    """Return the number of the first day of a week, month, quarter or year."""
    like = _like(days)
    return f"({days} - (arrow_cast({like}, 'Int32') - arrow_cast(CAST(date_trunc('{unit}', {like}) AS DATE), 'Int32')))"


def _second(form: str) -> str:
    return form.replace("{0}", "{1}")


def _truncated() -> dict[str, str]:
    forms: dict[str, str] = {}
    for unit, width in _CLOCKED.items():
        start = f"({_MOMENT} - {_remainder(_MOMENT, width)})"
        forms[f"date_trunc.{unit} DATE"] = _midnight(_DAYS)
        fits = f"{_MOMENT} >= {_FIRST_MOMENT}"
        forms[f"date_trunc.{unit} TIMESTAMP"] = f"(CASE WHEN {fits} THEN {_as_moment(start)} END)"
    for unit in ("week", "month", "quarter", "year"):
        forms[f"date_trunc.{unit} DATE"] = _midnight(_start(unit, _DAYS))
        forms[f"date_trunc.{unit} TIMESTAMP"] = _midnight(_start(unit, _OF_MOMENT))
    return forms


def _apart() -> dict[str, str]:
    """Return the forms of DATE_DIFF, which counts boundaries, and of DATE_SUB, which counts whole units."""
    forms: dict[str, str] = {}
    for family, days in (("DATE", _DAYS), ("TIMESTAMP", _OF_MOMENT)):
        month = f"({_year(days)} * 12 + {_part('month', days)})"
        counted = {"day": days, "month": month, "quarter": f"(({month} - 1) / 3)", "year": _year(days)}
        for unit, form in counted.items():
            forms[f"date_diff.{unit} {family}"] = f"({_second(form)} - {form})"
        forms[f"date_diff.week {family}"] = f"(({_second(days)} - {days}) / 7)"
    wide = f"CAST({_MOMENT} AS DECIMAL(20, 0))"
    apart = f"TRY_CAST({_second(wide)} - {wide} AS BIGINT)"
    for unit, width in _CLOCKED.items():
        if unit != "day":
            begun = f"CAST({_quotient(_MOMENT, width)} AS DECIMAL(20, 0))"
            forms[f"date_diff.{unit} TIMESTAMP"] = f"TRY_CAST({_second(begun)} - {begun} AS BIGINT)"
        forms[f"date_sub.{unit} TIMESTAMP"] = f"({apart} / {width})"
    return forms


_NUMBER, _UNIT = "TRY_CAST(split_part({1}, ' ', 1) AS BIGINT)", "split_part({1}, ' ', 2)"
_STEPS = f"(CASE {_UNIT} WHEN 'month' THEN 1 WHEN 'quarter' THEN 3 WHEN 'year' THEN 12 ELSE 0 END * {_NUMBER})"
_WIDTHS = " ".join(f"WHEN '{unit}' THEN {width}" for unit, width in {**_CLOCKED, "week": 7 * _DAY}.items())
_WIDTH = f"(CASE {_UNIT} {_WIDTHS} ELSE 0 END)"


def _moved(sign: str) -> dict[str, str]:
    """Return the forms of a date or time stamp plus days or an INTERVAL, whose text is "3 month"."""
    forms = {f"{sign} DATE INTEGER": _as_date(f"({_DAYS} {sign} {{1}})")}
    for family, days in (("DATE", _DAYS), ("TIMESTAMP", _OF_MOMENT)):
        months = f"({_year(days)} * 12 + {_part('month', days)} - 1 {sign} {_STEPS})"
        cycles, month = _quotient(months, 4_800), _remainder(months, 4_800)
        first = f"arrow_cast(make_date(CAST(2000 + {month} / 12 AS INT), CAST({month} % 12 + 1 AS INT), 1), 'Int32')"
        last = f"(CASE WHEN {month} % 12 IN (3, 5, 8, 10) THEN 30 WHEN {month} % 12 <> 1 THEN 31 "
        last += f"WHEN ({month} / 12) % 4 = 0 AND ({month} / 12) NOT IN (100, 200, 300) THEN 29 ELSE 28 END)"
        day = f"(({cycles} - 5) * {_CYCLE} + {first} - 1 + least({_part('day', days)}, {last}))"
        clock = "0" if family == "DATE" else _OF_DAY
        wide = f"CAST({days if family == 'DATE' else _MOMENT} AS DECIMAL(38, 0))"
        micros = f"{wide} * {_DAY}" if family == "DATE" else wide
        by_months = f"CAST({day} AS DECIMAL(38, 0)) * {_DAY} + {clock}"
        by_width = f"{micros} {sign} CAST({_WIDTH} AS DECIMAL(38, 0)) * {_NUMBER}"
        moved = f"TRY_CAST((CASE WHEN {_STEPS} <> 0 THEN {by_months} ELSE {by_width} END) AS BIGINT)"
        start = "TRUE" if family == "TIMESTAMP" else f"{days} BETWEEN -106751991 AND 106751991"
        fits = f"{start} AND {moved} BETWEEN {_FIRST_MOMENT} AND {_LAST_MOMENT}"
        forms[f"{sign} {family} INTERVAL"] = f"(CASE WHEN {fits} THEN {_as_moment(moved)} END)"
    return forms


def _padded(number: str, digits: int) -> str:
    return f"lpad(CAST({number} AS VARCHAR), {digits}, '0')"


def _printed(days: str) -> str:
    year = _year(days)
    shown = f"(CASE WHEN {year} > 0 THEN {year} ELSE 1 - {year} END)"
    digits = f"greatest(4, character_length(CAST({shown} AS VARCHAR)))"
    date = f"lpad(CAST({shown} AS VARCHAR), {digits}, '0') || '-' || {_padded(_part('month', days), 2)} || '-' || "
    return f"({date}{_padded(_part('day', days), 2)} || (CASE WHEN {year} > 0 THEN '' ELSE ' (BC)' END))"


def _clock() -> str:
    rest = f"({_OF_DAY} % 1000000)"
    time = " || ':' || ".join(_padded(_CLOCK[part], 2) for part in ("hour", "minute", "second"))
    fraction = f"(CASE WHEN {rest} = 0 THEN '' ELSE '.' || rtrim({_padded(rest, 6)}, '0') END)"
    return f"{time} || {fraction}"


_FORMATS = (
    "%Y %m %d %j %b %B %a %A %Y-%m %Y-%m-%d %Y/%m/%d %Y%m%d %Y%m %d/%m/%Y %m/%d/%Y %d.%m.%Y %m-%d %H %M %S".split()
)
_FORMATS += ["%H:%M", "%H:%M:%S", "%Y-%m-%d %H", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S"]


def _name(names: str, position: str) -> str:
    return f"array_element(make_array({names}), {position})"


def _shortened(name: str) -> str:
    return f"substr({name}, 1, 3)"


def _formatted() -> dict[str, str]:
    """Return the forms of STRFTIME, put together of what each sign of a format stands for."""
    forms: dict[str, str] = {}
    for family, days in (("DATE", _DAYS), ("TIMESTAMP", _OF_MOMENT)):
        year, month = _year(days), _part("month", days)
        weekday = _name(_WEEKDAYS, f"{_part('dow', days)} + 1")
        clock = ("hour", "minute", "second")
        signs = {
            "Y": f"(CASE WHEN {year} BETWEEN 0 AND 9999 THEN {_padded(year, 4)} ELSE CAST({year} AS VARCHAR) END)",
            "m": _padded(month, 2),
            "d": _padded(_part("day", days), 2),
            "j": _padded(_part("doy", days), 3),
            "B": _name(_MONTHS, month),
            "b": _shortened(_name(_MONTHS, month)),
            "A": weekday,
            "a": _shortened(weekday),
            **{
                sign: _padded(_CLOCK[part], 2) if family == "TIMESTAMP" else "'00'"
                for sign, part in zip("HMS", clock, strict=True)
            },
        }
        for layout in _FORMATS:
            words = re.split(r"%(\w)", layout)
            parts = [signs[word] if at % 2 else f"'{word}'" for at, word in enumerate(words) if word]
            fits = "{0} IS NOT NULL"
            if family == "DATE" and any(sign in layout for sign in ("%H", "%M", "%S")):
                fits = f"{days} BETWEEN -106751991 AND 106751991"  # days that have a time stamp
            forms[f"strftime.{layout} {family}"] = f"(CASE WHEN {fits} THEN {' || '.join(parts)} END)"
    return forms


_FINITE = "(CASE WHEN {0} IS NOT NULL THEN TRUE END)"


def _of_days() -> dict[str, str]:
    forms: dict[str, str] = {}
    for family, days in (("DATE", _DAYS), ("TIMESTAMP", _OF_MOMENT)):
        forms |= {f"date_part.{part} {family}": form for part, form in _parts(days).items()}
        forms[f"dayname {family}"] = _name(_WEEKDAYS, f"{_part('dow', days)} + 1")
        forms[f"monthname {family}"] = _name(_MONTHS, _part("month", days))
        in_next = f"({days} - {_part('day', days)} + 32)"  # a day of the month after
        forms[f"last_day {family}"] = _as_date(f"({in_next} - {_part('day', in_next)})")
        forms[f"isfinite {family}"] = _FINITE
        forms[f"isinf {family}"] = _FINITE.replace("TRUE", "FALSE")
    return forms


TIMES: Mapping[str, str] = {
    **dict.fromkeys(("keyed_hash DATE", "keyed_hash TIMESTAMP"), "xxhash64({1}, {0})"),  # no far date is printed
    "literal INTERVAL": "{0}",  # its text, which `_moved` reads
    **_of_days(),
    **{f"date_part.{part} TIMESTAMP": form for part, form in _CLOCK.items()},
    **_truncated(),
    **_apart(),
    **_formatted(),
    **_moved("+"),
    **_moved("-"),
    "- DATE DATE": f"({_DAYS} - {_second(_DAYS)})",
    "cast DATE DATE": "{0}",
    "cast TIMESTAMP TIMESTAMP": "{0}",
    "cast TIMESTAMP DATE": _as_date(_OF_MOMENT),
    "cast DATE TIMESTAMP": _midnight(_DAYS),
    "cast DATE TEXT": _printed(_DAYS),
    "cast TIMESTAMP TEXT": f"({_printed(_OF_MOMENT)} || ' ' || {_clock()})",
    "epoch_us TIMESTAMP": _MOMENT,
    "epoch_ms TIMESTAMP": f"({_MOMENT} / 1000 + ({_MOMENT} % 1000) / 500)",
    "epoch_ms DATE": f"({_DAYS} * 86400000)",
    "epoch_us DATE": f"(CASE WHEN {_DAYS} BETWEEN -106751991 AND 106751991 THEN {_DAYS} * {_DAY} END)",
}
