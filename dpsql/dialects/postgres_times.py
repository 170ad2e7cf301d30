"""Dates and time stamps in PostgreSQL, whose calendar ends before DuckDB's: what is beyond is looked for first."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["TIMES"]

_FINITE = "isfinite({0})"
_FIRST, _LAST = "TIMESTAMP '4700-01-01 BC'", "TIMESTAMP '294200-01-01'"  # between which all is computed
_MICROS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_UNITS = (*_MICROS, "month", "quarter", "year")
_PARTS = ("day", "dow", "isodow", "doy", "quarter", "week", "month", "hour", "minute")


def _when(condition: str, value: str) -> str:
    return f"(CASE WHEN {condition} THEN {value} END)"


def _fitting(value: str) -> str:
    """Return a difference as a whole number, NULL where it does not fit, as the calendar in microseconds."""
    return f"CAST(NULLIF(NULLIF(LEAST(GREATEST({value}, {{below}}), {{above}}), {{below}}), {{above}}) AS bigint)"


def _part(value: str) -> str:
    return _when(_FINITE, f"CAST({value} AS bigint)")


def _year(of: str = "year") -> str:
    """Return a year as DuckDB counts: the year before 1 is 0."""
    part = f"EXTRACT({of} FROM {{0}})"
    return f"({part} + CASE WHEN {part} < 0 THEN 1 ELSE 0 END)"


def _month(operand: str) -> str:
    """Return the number of a month since the year 0."""
    year = f"EXTRACT(year FROM {operand})"
    return f"({year} * 12 + CASE WHEN {year} < 0 THEN 12 ELSE 0 END + EXTRACT(month FROM {operand}))"


def _micros(operand: str) -> str:
    """Return the microseconds since 1970, exactly, of a time stamp that DuckDB has."""
    days = f"CAST(CAST({operand} AS date) - DATE '1970-01-01' AS bigint) * 86400000000"
    clock = f"CAST({operand} AS time)"
    seconds = f"CAST(EXTRACT(hour FROM {clock}) * 3600 + EXTRACT(minute FROM {clock}) * 60 AS bigint) * 1000000"
    return f"({days} + {seconds} + CAST(EXTRACT(microseconds FROM {clock}) AS bigint))"


_END = "TIMESTAMP '294247-01-10 04:00:54.775807'"  # the first that DuckDB has not
_IN_REACH = f"{{0}} < {_END} AND isfinite({{0}})"
_EPOCH = f"CAST({_micros('{0}')} AS double precision) / 1000000"
_DAY_31_LATER = "({0} + (32 - CAST(EXTRACT(day FROM {0}) AS integer)))"  # than the first of the month: in the next one
_ALIKE = (
    "(DATE '2000-01-01' + ({0} - DATE '2000-01-01') % 146097)"  # near 2000, in a like year: to_char takes no far date
)


def _stamp(operand: str) -> str:
    """Return a date as a time stamp; NULL for one that DuckDB has no time stamp for."""
    early = f"{operand} <= DATE '294247-01-10' OR NOT isfinite({operand})"
    return f"CAST(CASE WHEN {early} THEN {operand} END AS timestamp)"


def _trunc(unit: str, operand: str) -> str:
    guard = f"{operand} >= {_FIRST} OR NOT isfinite({operand})"
    return f"(CASE WHEN {guard} THEN date_trunc('{unit}', {operand}) END)"


def _parts(family: str) -> dict[str, str]:
    forms = {
        part: _part(f"EXTRACT({part} FROM {{0}})")
        for part in _PARTS
        if family == "TIMESTAMP" or part not in {"hour", "minute"}
    }
    forms["year"] = _part(_year())
    forms["isoyear"] = _part(_year("isoyear"))
    week = "EXTRACT(week FROM {0})"
    forms["yearweek"] = _part(
        f"{_year('isoyear')} * 100 + CASE WHEN {_year('isoyear')} > 0 THEN {week} ELSE -{week} END"
    )
    forms["century"] = _part("EXTRACT(century FROM {0})")
    forms["millennium"] = _part("EXTRACT(millennium FROM {0})")
    forms["era"] = _part("CASE WHEN EXTRACT(year FROM {0}) > 0 THEN 1 ELSE 0 END")
    forms["decade"] = _part(f"trunc({_year()} / 10)")
    if family == "TIMESTAMP":
        forms["second"] = _part("floor(EXTRACT(second FROM {0}))")
        forms["millisecond"] = _part("floor(CAST(EXTRACT(microseconds FROM {0}) AS bigint) / 1000)")
        forms["microsecond"] = _part("EXTRACT(microseconds FROM {0})")
        forms["epoch"] = _when(_IN_REACH, _EPOCH)
    return {f"date_part.{part} {family}": form for part, form in forms.items()}


def _day(operand: str) -> str:
    """Return the number of a date since 1970, the infinite ones as DuckDB has them."""
    ends = f"WHEN 'infinity' THEN {2**31 - 1} WHEN '-infinity' THEN -{2**31 - 1}"
    return f"CAST(CASE {operand} {ends} ELSE {operand} - DATE '1970-01-01' END AS bigint)"


def _differences() -> dict[str, str]:
    both = "isfinite({0}) AND isfinite({1})"
    forms = {}
    for family in ("DATE", "TIMESTAMP"):
        days = [f"CAST(CAST({each} AS date) - DATE '1970-01-01' AS numeric)" for each in ("{0}", "{1}")]
        months = [f"CAST({_month(each)} - 1 AS numeric)" for each in ("{0}", "{1}")]
        counted = {
            "day": days,
            "month": months,
            "quarter": [f"trunc({each} / 3)" for each in months],
            "year": [f"floor({each} / 12)" for each in months],
        }
        weeks = f"CAST(trunc(({days[1]} - {days[0]}) / 7) AS bigint)"
        forms[f"date_diff.week {family} {family}"] = _when(both, weeks)
        for unit, (first, last) in counted.items():
            forms[f"date_diff.{unit} {family} {family}"] = _when(both, f"CAST({last} - {first} AS bigint)")
    near = " AND ".join(_IN_REACH.replace("{0}", operand) for operand in ("{0}", "{1}"))
    micros = [f"CAST({_micros(each)} AS numeric)" for each in ("{0}", "{1}")]
    for unit, width in _MICROS.items():
        if unit not in {"day", "week"}:
            first, last = (f"floor({each} / {width})" for each in micros)
            forms[f"date_diff.{unit} TIMESTAMP TIMESTAMP"] = _when(near, _fitting(f"{last} - {first}"))
        forms[f"date_sub.{unit} TIMESTAMP TIMESTAMP"] = _when(
            near, _fitting(f"trunc(({micros[1]} - {micros[0]}) / {width})")
        )
    return forms


def _moved(sign: str) -> dict[str, str]:
    """Return the forms of a date or time stamp plus an INTERVAL or days: NULL beyond the calendar, tested before.

    The test in seconds is accurate to days, or to some years for an INTERVAL of hundreds of thousands of years.
    """
    shift = f"{sign} CAST(EXTRACT(epoch FROM {{1}}) AS double precision)"
    forms = {}
    for family, operand in (("DATE", _stamp("{0}")), ("TIMESTAMP", "{0}")):
        at = f"CAST(EXTRACT(epoch FROM {operand}) AS double precision) {shift}"
        within = f"{at} BETWEEN -210666803200 AND 9223622036855"
        moved = f"NULLIF(LEAST({operand} {sign} {{1}}, {_END}), {_END})"
        forms[f"{sign} {family} INTERVAL"] = (
            f"(CASE WHEN NOT isfinite({{0}}) THEN {operand} WHEN {within} THEN {moved} END)"
        )
    days = f"CAST({{0}} - DATE '2000-01-01' AS bigint) {sign} {{1}}"
    forms[f"{sign} DATE INTEGER"] = (
        "(CASE WHEN NOT isfinite({0}) THEN {0} "
        f"WHEN {days} BETWEEN -2451545 AND 2145031948 THEN {{0}} {sign} {{1}} END)"
    )
    return forms


_WRITTEN = {  # formats of strftime, as to_char knows them; of a date, no hour
    "%Y": "YYYY",
    "%m": "MM",
    "%d": "DD",
    "%j": "DDD",
    "%b": "Mon",
    "%B": "FMMonth",
    "%a": "Dy",
    "%A": "FMDay",
    "%Y-%m": "YYYY-MM",
    "%Y-%m-%d": "YYYY-MM-DD",
    "%Y/%m/%d": "YYYY/MM/DD",
    "%Y%m%d": "YYYYMMDD",
    "%Y%m": "YYYYMM",
    "%d/%m/%Y": "DD/MM/YYYY",
    "%m/%d/%Y": "MM/DD/YYYY",
    "%d.%m.%Y": "DD.MM.YYYY",
    "%m-%d": "MM-DD",
    "%H": "HH24",
    "%M": "MI",
    "%S": "SS",
    "%H:%M": "HH24:MI",
    "%H:%M:%S": "HH24:MI:SS",
    "%Y-%m-%d %H": "YYYY-MM-DD HH24",
    "%Y-%m-%d %H:%M": "YYYY-MM-DD HH24:MI",
    "%Y-%m-%d %H:%M:%S": "YYYY-MM-DD HH24:MI:SS",
    "%Y-%m-%dT%H:%M:%S": 'YYYY-MM-DD"T"HH24:MI:SS',
}


def _formats() -> dict[str, str]:
    """Return the forms of STRFTIME; before the year 1, to_char has another year, and DuckDB writes it without zeros."""
    year = f"CAST({_year()} AS integer)"
    early = f"CASE {year} WHEN 0 THEN '0000' ELSE CAST({year} AS text) END"
    forms = {}
    for ours, theirs in _WRITTEN.items():
        of_clock = ours in {"%M", "%S"} or "%H" in ours
        for family in ("DATE", "TIMESTAMP"):
            moment = "{0}" if family == "TIMESTAMP" else _stamp("{0}") if of_clock else _ALIKE
            before, written = "", f"to_char({moment}, '{theirs}')"
            if "YYYY" in theirs:
                marked = theirs.replace("YYYY", '"@"')
                odd = "{0} < DATE '0001-01-01' OR {0} >= DATE '10000-01-01'"
                before = f"WHEN {odd} THEN replace(to_char({moment}, '{marked}'), '@', {early}) "
                written = written.replace(_ALIKE, "{0}")
            forms[f"strftime.{ours} {family}"] = (
                f'(CASE WHEN NOT isfinite({{0}}) THEN CAST({{0}} AS text) {before}ELSE {written} END COLLATE "C")'
            )
    return forms


TIMES: Mapping[str, str] = {
    **_parts("DATE"),
    **_parts("TIMESTAMP"),
    **_differences(),
    **_moved("+"),
    **_moved("-"),
    **{f"date_trunc.{unit} TIMESTAMP": _trunc(unit, "{0}") for unit in _UNITS},
    **{f"date_trunc.{unit} DATE": _trunc(unit, _stamp("{0}")) for unit in _UNITS},
    "- DATE DATE": f"({_day('{0}')} - {_day('{1}')})",
    "literal INTERVAL": (  # PostgreSQL does not read quarters
        "(CASE WHEN CAST({0} AS text) LIKE '%quarter' "
        "THEN 3 * CAST(replace(CAST({0} AS text), 'quarter', 'month') AS interval) "
        "ELSE CAST(CAST({0} AS text) AS interval) END)"
    ),
    **_formats(),
    "isfinite DATE": "isfinite({0})",
    "isfinite TIMESTAMP": "isfinite({0})",
    "isinf DATE": "(NOT isfinite({0}))",
    "isinf TIMESTAMP": "(NOT isfinite({0}))",
    "dayname DATE": _when(_FINITE, f"to_char({_ALIKE}, 'FMDay')"),
    "dayname TIMESTAMP": _when(_FINITE, "to_char({0}, 'FMDay')"),
    "monthname DATE": _when(_FINITE, f"to_char({_ALIKE}, 'FMMonth')"),
    "monthname TIMESTAMP": _when(_FINITE, "to_char({0}, 'FMMonth')"),
    "last_day DATE": _when(
        "isfinite({0}) AND {0} < DATE '5874897-11-01'",
        f"{_DAY_31_LATER} - CAST(EXTRACT(day FROM {_DAY_31_LATER}) AS integer)",
    ),
    "last_day TIMESTAMP": _when(
        f"{_FINITE} AND {{0}} BETWEEN {_FIRST} AND {_LAST}",
        "CAST(date_trunc('month', {0}) + INTERVAL '1 month -1 day' AS date)",
    ),
    "epoch_ms TIMESTAMP": _when(_IN_REACH, f"CAST(round(CAST({_micros('{0}')} AS numeric) / 1000) AS bigint)"),
    "epoch_us TIMESTAMP": _when(_IN_REACH, _micros("{0}")),
    "column TIMESTAMP": "CAST({0} AS timestamp)",  # one with a zone is that of UTC, which the session is in
    "cast DATE TIMESTAMP": _stamp("{0}"),
    "cast TIMESTAMP DATE": "CAST({0} AS date)",
    "cast DATE DATE": "{0}",
    "cast TIMESTAMP TIMESTAMP": "{0}",
    "cast DATE TEXT": "(replace(CAST({0} AS text), ' BC', ' (BC)') COLLATE \"C\")",
    "cast TIMESTAMP TEXT": "(regexp_replace(CAST({0} AS text), '^(\\S+) (\\S+) BC$', '\\1 (BC) \\2') COLLATE \"C\")",
}
