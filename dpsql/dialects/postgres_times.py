"""Dates and time stamps in PostgreSQL, whose calendar ends before DuckDB's: what is beyond is looked for first."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["TIMES"]

_FINITE = "isfinite({0})"
_FIRST, _LAST = "TIMESTAMP '4700-01-01 BC'", "TIMESTAMP '294200-01-01'"  # between which all is computed
_SECONDS = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800}
_PARTS = ("day", "dow", "isodow", "doy", "quarter", "week", "month", "hour", "minute")


def _when(condition: str, value: str) -> str:
    return f"(CASE WHEN {condition} THEN {value} END)"


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


_IN_REACH = "{0} < TIMESTAMP '294247-01-10 04:00:54.775807' AND isfinite({0})"
_EPOCH = f"CAST({_micros('{0}')} AS double precision) / 1000000"
_DAY_IN_REACH = "isfinite({0}) AND {0} < DATE '294247-01-10'"


def _stamp(operand: str) -> str:
    """Return a date as a time stamp; NULL for one that DuckDB has no time stamp for."""
    early = f"{operand} < DATE '294247-01-10' OR NOT isfinite({operand})"
    return f"CAST(CASE WHEN {early} THEN {operand} END AS timestamp)"


def _trunc(unit: str, operand: str) -> str:
    guard = f"{operand} >= {_FIRST} OR NOT isfinite({operand})"
    return f"(CASE WHEN {guard} THEN date_trunc('{unit}', {operand}) END)"


def _parts(family: str) -> dict[str, str]:
    forms = {part: _part(f"EXTRACT({part} FROM {{0}})") for part in _PARTS if family == "TIMESTAMP" or part[0] != "h"}
    forms["year"] = _part(_year())
    forms["isoyear"] = _part(_year("isoyear"))
    forms["yearweek"] = _part(f"{_year('isoyear')} * 100 + EXTRACT(week FROM {{0}})")
    forms["decade"] = _part(f"trunc({_year()} / 10)")
    if family == "TIMESTAMP":
        forms["second"] = _part("floor(EXTRACT(second FROM {0}))")
        forms["millisecond"] = _part("floor(CAST(EXTRACT(microseconds FROM {0}) AS bigint) / 1000)")
        forms["microsecond"] = _part("EXTRACT(microseconds FROM {0})")
        forms["epoch"] = _when(_IN_REACH, _EPOCH)
    return {f"date_part.{part} {family}": form for part, form in forms.items()}


def _differences() -> dict[str, str]:
    both = "isfinite({0}) AND isfinite({1})"
    forms = {
        f"date_diff.day {family} {family}": _when(both, "CAST(CAST({1} AS date) - CAST({0} AS date) AS bigint)")
        for family in ("DATE", "TIMESTAMP")
    }
    for family in ("DATE", "TIMESTAMP"):
        months = f"{_month('{1}')} - {_month('{0}')}"
        forms[f"date_diff.month {family} {family}"] = _when(both, f"CAST({months} AS bigint)")
        years = f"floor(({_month('{1}')} - 1) / 12) - floor(({_month('{0}')} - 1) / 12)"
        forms[f"date_diff.year {family} {family}"] = _when(both, f"CAST({years} AS bigint)")
    near = " AND ".join(_IN_REACH.replace("{0}", operand) for operand in ("{0}", "{1}"))
    for unit in ("second", "minute", "hour"):
        first, last = (
            f"floor(CAST({_micros(each)} AS numeric) / {_SECONDS[unit] * 1_000_000})" for each in ("{0}", "{1}")
        )
        forms[f"date_diff.{unit} TIMESTAMP TIMESTAMP"] = _when(near, f"CAST({last} - {first} AS bigint)")
    return forms


def _moved(sign: str) -> dict[str, str]:
    """Return the forms of a date or time stamp and an INTERVAL: NULL where the calendar might end."""
    shift = f"{sign} CAST(EXTRACT(epoch FROM {{1}}) AS double precision)"
    forms = {}
    for family, operand in (("DATE", _stamp("{0}")), ("TIMESTAMP", "{0}")):
        at = f"CAST(EXTRACT(epoch FROM {operand}) AS double precision) {shift}"
        within = f"{at} BETWEEN -209866803200 AND 9221371286400"
        forms[f"{sign} {family} INTERVAL"] = (
            f"(CASE WHEN NOT isfinite({{0}}) THEN {operand} WHEN {within} THEN {operand} {sign} {{1}} END)"
        )
        days = f"CAST({{0}} - DATE '2000-01-01' AS bigint) {sign} {{1}}"
    forms[f"{sign} DATE INTEGER"] = (
        f"(CASE WHEN NOT isfinite({{0}}) THEN {{0}} WHEN {days} BETWEEN -2451000 AND 2145031000 THEN {{0}} {sign} {{1}} END)"
    )
    return forms


TIMES: Mapping[str, str] = {
    **_parts("DATE"),
    **_parts("TIMESTAMP"),
    **_differences(),
    **_moved("+"),
    **_moved("-"),
    **{
        f"date_trunc.{unit} TIMESTAMP": _trunc(unit, "{0}")
        for unit in ("second", "minute", "hour", "day", "week", "month", "quarter", "year")
    },
    **{f"date_trunc.{unit} DATE": _trunc(unit, _stamp("{0}")) for unit in ("day", "week", "month", "quarter", "year")},
    "- DATE DATE": _when("isfinite({0}) AND isfinite({1})", "CAST({0} - {1} AS bigint)"),
    "isfinite DATE": "isfinite({0})",
    "isfinite TIMESTAMP": "isfinite({0})",
    "isinf DATE": "(NOT isfinite({0}))",
    "isinf TIMESTAMP": "(NOT isfinite({0}))",
    "dayname DATE": _when(_FINITE, "to_char({0}, 'FMDay')"),
    "dayname TIMESTAMP": _when(_FINITE, "to_char({0}, 'FMDay')"),
    "monthname DATE": _when(_FINITE, "to_char({0}, 'FMMonth')"),
    "monthname TIMESTAMP": _when(_FINITE, "to_char({0}, 'FMMonth')"),
    "last_day DATE": _when(
        f"{_DAY_IN_REACH} AND {{0}} > {_FIRST}", "CAST(date_trunc('month', {0}) + INTERVAL '1 month -1 day' AS date)"
    ),
    "last_day TIMESTAMP": _when(
        f"{_FINITE} AND {{0}} BETWEEN {_FIRST} AND {_LAST}",
        "CAST(date_trunc('month', {0}) + INTERVAL '1 month -1 day' AS date)",
    ),
    "epoch_us TIMESTAMP": _when(_IN_REACH, _micros("{0}")),
    "cast DATE TIMESTAMP": _stamp("{0}"),
    "cast TIMESTAMP DATE": "CAST({0} AS date)",
    "cast DATE DATE": "{0}",
    "cast TIMESTAMP TIMESTAMP": "{0}",
    "cast TIMESTAMP WITH TIME ZONE TIMESTAMP": "({0} AT TIME ZONE 'UTC')",
    "cast TIMESTAMP WITH TIME ZONE DATE": "CAST({0} AT TIME ZONE 'UTC' AS date)",
    "cast DATE TEXT": "(replace(CAST({0} AS text), ' BC', ' (BC)') COLLATE \"C\")",
    "cast TIMESTAMP TEXT": "(regexp_replace(CAST({0} AS text), '^(\\S+) (\\S+) BC$', '\\1 (BC) \\2') COLLATE \"C\")",
}
