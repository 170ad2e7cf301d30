"""Dates and time stamps in MySQL and MariaDB, whose calendar has the years 1 to 9999; what is beyond is NULL."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["TIMES"]

_MONTH = "(YEAR({0}) * 12 + MONTH({0}) - 1)"
_SINCE = "TIMESTAMPDIFF(MICROSECOND, CAST('1970-01-01' AS DATETIME(6)), {0})"
_STAMP = "CAST({0} AS DATETIME(6))"
_MICROS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
}
_PARTS = {
    "year": "YEAR({0})",
    "month": "MONTH({0})",
    "day": "DAYOFMONTH({0})",
    "dow": "(DAYOFWEEK({0}) - 1)",
    "isodow": "(WEEKDAY({0}) + 1)",
    "doy": "DAYOFYEAR({0})",
    "quarter": "QUARTER({0})",
    "week": "WEEK({0}, 3)",
    "isoyear": "(YEARWEEK({0}, 3) DIV 100)",
    "yearweek": "YEARWEEK({0}, 3)",
    "decade": "(YEAR({0}) DIV 10)",
    "century": "((YEAR({0}) - 1) DIV 100 + 1)",
    "millennium": "((YEAR({0}) - 1) DIV 1000 + 1)",
    "era": "(CASE WHEN {0} IS NOT NULL THEN 1 END)",
}
_OF_SECOND = "(SECOND({0}) * 1000000 + MICROSECOND({0}))"
_CLOCK = {
    "hour": "HOUR({0})",
    "minute": "MINUTE({0})",
    "second": "SECOND({0})",
    "millisecond": f"({_OF_SECOND} DIV 1000)",
    "microsecond": _OF_SECOND,
    "epoch": f"(CAST({_SINCE} AS DOUBLE) / 1000000e0)",
}
_STARTS = {  # the first day of what a day is in
    "day": "{0}",
    "week": "DATE_SUB({0}, INTERVAL WEEKDAY({0}) DAY)",
    "month": "DATE_SUB({0}, INTERVAL DAYOFMONTH({0}) - 1 DAY)",
    "quarter": "DATE_SUB(DATE_SUB({0}, INTERVAL DAYOFMONTH({0}) - 1 DAY), INTERVAL MOD(MONTH({0}) - 1, 3) MONTH)",
    "year": "DATE_SUB({0}, INTERVAL DAYOFYEAR({0}) - 1 DAY)",
}
_FORMATS = {
    "%Y": "%Y",
    "%m": "%m",
    "%d": "%d",
    "%j": "%j",
    "%b": "%b",
    "%B": "%M",
    "%a": "%a",
    "%A": "%W",
    "%Y-%m": "%Y-%m",
    "%Y-%m-%d": "%Y-%m-%d",
    "%Y/%m/%d": "%Y/%m/%d",
    "%Y%m%d": "%Y%m%d",
    "%Y%m": "%Y%m",
    "%d/%m/%Y": "%d/%m/%Y",
    "%m/%d/%Y": "%m/%d/%Y",
    "%d.%m.%Y": "%d.%m.%Y",
    "%m-%d": "%m-%d",
    "%H": "%H",
    "%M": "%i",
    "%S": "%s",
    "%H:%M": "%H:%i",
    "%H:%M:%S": "%H:%i:%s",
    "%Y-%m-%d %H": "%Y-%m-%d %H",
    "%Y-%m-%d %H:%M": "%Y-%m-%d %H:%i",
    "%Y-%m-%d %H:%M:%S": "%Y-%m-%d %H:%i:%s",
    "%Y-%m-%dT%H:%M:%S": "%Y-%m-%dT%H:%i:%s",
}
_NUMBER = "CAST(SUBSTRING_INDEX({1}, ' ', 1) AS SIGNED)"
_UNIT = "SUBSTRING_INDEX({1}, ' ', -1)"
_STEPS = f"(CASE {_UNIT} WHEN 'month' THEN 1 WHEN 'quarter' THEN 3 WHEN 'year' THEN 12 ELSE 0 END * {_NUMBER})"
_SECONDS = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800}
_WIDTHS = " ".join(f"WHEN '{unit}' THEN {width}" for unit, width in _SECONDS.items())
_WIDTH = f"(CASE {_UNIT} {_WIDTHS} ELSE 0 END * {_NUMBER})"
_LAST_DAY = "CAST('0000-12-31' AS DATE)"
_LAST_MOMENT = "CAST('0000-12-31 23:59:59.999999' AS DATETIME(6))"
_FINITE = "(CASE WHEN {0} IS NOT NULL THEN TRUE END)"


def _other(form: str) -> str:
    return form.replace("{0}", "{1}")


def _remainder(width: int) -> str:
    """Return the microseconds since the last multiple of a width."""
    return f"MOD(MOD({_SINCE}, {width}) + {width}, {width})"


def _within(moved: str, below: str) -> str:
    """Return a date or time stamp, which is NULL before the year 1: up to `below`, the last one before it."""
    return f"NULLIF(GREATEST({moved}, {below}), {below})"


def _both(name: str, form: str) -> dict[str, str]:
    return {f"{name} {family}": form for family in ("DATE", "TIMESTAMP")}


def _moved(sign: str) -> dict[str, str]:
    verb = "DATE_ADD" if sign == "+" else "DATE_SUB"
    moved = f"{verb}({verb}({_STAMP}, INTERVAL {_STEPS} MONTH), INTERVAL {_WIDTH} SECOND)"
    days = f"{verb}({{0}}, INTERVAL {{1}} DAY)"
    return {
        **{f"{sign} {family} INTERVAL": _within(moved, _LAST_MOMENT) for family in ("DATE", "TIMESTAMP")},
        f"{sign} DATE INTEGER": _within(days, _LAST_DAY),
    }


def _truncated() -> dict[str, str]:
    forms: dict[str, str] = {}
    for unit, start in _STARTS.items():
        forms |= _both(f"date_trunc.{unit}", f"CAST({start.replace('{0}', 'CAST({0} AS DATE)')} AS DATETIME(6))")
    for unit, width in _MICROS.items():
        if unit != "day":
            forms[f"date_trunc.{unit} TIMESTAMP"] = f"DATE_SUB({{0}}, INTERVAL {_remainder(width)} MICROSECOND)"
            forms[f"date_trunc.{unit} DATE"] = _STAMP
    return forms


def _apart() -> dict[str, str]:
    counted = {"day": "TO_DAYS({0})", "month": _MONTH, "quarter": f"({_MONTH} DIV 3)", "year": "YEAR({0})"}
    forms: dict[str, str] = {}
    for unit, form in counted.items():
        forms |= _both(f"date_diff.{unit}", f"({_other(form)} - {form})")
    forms |= _both("date_diff.week", "((TO_DAYS({1}) - TO_DAYS({0})) DIV 7)")
    for unit, width in _MICROS.items():
        if unit != "day":
            begun = f"(({_SINCE} - {_remainder(width)}) DIV {width})"
            forms[f"date_diff.{unit} TIMESTAMP"] = f"({_other(begun)} - {begun})"
        forms[f"date_sub.{unit} TIMESTAMP"] = f"(TIMESTAMPDIFF(MICROSECOND, {{0}}, {{1}}) DIV {width})"
    return forms


TIMES: Mapping[str, str] = {
    "column DATE": "(CASE WHEN {0} >= CAST('0001-01-01' AS DATE) AND FROM_DAYS(TO_DAYS({0})) = {0} THEN {0} END)",
    "column TIMESTAMP": "(CASE WHEN {0} >= CAST('0001-01-01' AS DATE) AND FROM_DAYS(TO_DAYS({0})) = CAST({0} AS DATE) "
    f"THEN {_STAMP} END)",
    "literal INTERVAL": "{0}",  # its text, which `_moved` reads
    **{name: form for part, text in _PARTS.items() for name, form in _both(f"date_part.{part}", text).items()},
    **{f"date_part.{part} TIMESTAMP": form for part, form in _CLOCK.items()},
    **_truncated(),
    **_apart(),
    **_moved("+"),
    **_moved("-"),
    "- DATE DATE": "(TO_DAYS({0}) - TO_DAYS({1}))",
    "cast DATE DATE": "{0}",
    "cast TIMESTAMP TIMESTAMP": "{0}",
    "cast TIMESTAMP DATE": "CAST({0} AS DATE)",
    "cast DATE TIMESTAMP": _STAMP,
    **_both("last_day", "LAST_DAY({0})"),
    **_both("dayname", "DATE_FORMAT({0}, '%W')"),
    **_both("monthname", "DATE_FORMAT({0}, '%M')"),
    **_both("isfinite", _FINITE),
    **_both("isinf", _FINITE.replace("TRUE", "FALSE")),
    **{
        name: form
        for ours, own in _FORMATS.items()
        for name, form in _both(f"strftime.{ours}", f"DATE_FORMAT({{0}}, '{own}')").items()
    },
    "epoch_us TIMESTAMP": _SINCE,
    "epoch_us DATE": f"TIMESTAMPDIFF(MICROSECOND, CAST('1970-01-01' AS DATETIME(6)), {_STAMP})",
    "epoch_ms TIMESTAMP": f"({_SINCE} DIV 1000 + MOD({_SINCE}, 1000) DIV 500)",
    "epoch_ms DATE": "((TO_DAYS({0}) - TO_DAYS(CAST('1970-01-01' AS DATE))) * 86400000)",
}
