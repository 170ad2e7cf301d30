"""Forms of Spark's for dates and time stamps, NULL where DuckDB's calendar ends.

Spark's own functions fail at the ends of theirs, which a stored value may reach: so they are given what is within, and
what is counted is counted in whole numbers, of days or of microseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["TIMES"]

_DAY = 86_400_000_000
_DAYS = "CAST(unix_date({0}) AS BIGINT)"
_MOMENT = "unix_micros(CAST({0} AS TIMESTAMP))"  # the session's zone is UTC
_IN_TIME = "(unix_date({0}) BETWEEN -106751991 AND 106751991)"  # a day whose midnight is a time stamp
_MIDNIGHT = f"(CASE WHEN {_IN_TIME} THEN CAST({{0}} AS TIMESTAMP_NTZ) END)"
_OF_DAY = f"pmod({_MOMENT}, {_DAY}L)"
_FIRST = "CAST(timestamp_micros(-9223372022400000000L) AS TIMESTAMP_NTZ)"  # DuckDB's first time stamp
_CLOCKED = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": _DAY,
}
_CALENDAR = {"week": "WEEK", "month": "MM", "quarter": "QUARTER", "year": "YEAR"}
_PARTS = {
    "year": "year({0})",
    "month": "month({0})",
    "day": "dayofmonth({0})",
    "quarter": "quarter({0})",
    "doy": "dayofyear({0})",
    "dow": "(dayofweek({0}) - 1)",
    "isodow": "(weekday({0}) + 1)",
    "week": "weekofyear({0})",
    "isoyear": "extract(YEAROFWEEK FROM {0})",
    "yearweek": "(extract(YEAROFWEEK FROM {0}) * 100 + (CASE WHEN extract(YEAROFWEEK FROM {0}) > 0 "
    "THEN weekofyear({0}) ELSE -weekofyear({0}) END))",
    "decade": "(year({0}) DIV 10)",
    "century": "(CASE WHEN year({0}) > 0 THEN (year({0}) - 1) DIV 100 + 1 ELSE year({0}) DIV 100 - 1 END)",
    "millennium": "(CASE WHEN year({0}) > 0 THEN (year({0}) - 1) DIV 1000 + 1 ELSE year({0}) DIV 1000 - 1 END)",
    "era": "(CASE WHEN {0} IS NULL THEN NULL WHEN year({0}) > 0 THEN 1 ELSE 0 END)",
}
_CLOCK = {
    "hour": f"({_OF_DAY} DIV 3600000000)",
    "minute": f"(({_OF_DAY} DIV 60000000) % 60)",
    "second": f"(({_OF_DAY} DIV 1000000) % 60)",
    "millisecond": f"(({_OF_DAY} DIV 1000) % 60000)",
    "microsecond": f"({_OF_DAY} % 60000000)",
}
_COUNTED = {  # what two days are apart by, each of them counted alone
    "day": _DAYS,
    "month": "(CAST(year({0}) AS BIGINT) * 12 + month({0}))",
    "quarter": "((CAST(year({0}) AS BIGINT) * 12 + month({0}) - 1) DIV 3)",
    "year": "CAST(year({0}) AS BIGINT)",
}
_SHOWN = "CAST({0} AS STRING)"
_BEFORE = "CAST(1 - year({0}) AS STRING)"  # the year before our era
_PRINTED = f"(CASE WHEN year({{0}}) BETWEEN 1 AND 9999 THEN {_SHOWN} WHEN year({{0}}) > 0 THEN substring({_SHOWN}, 2) "
_PRINTED += f"ELSE concat(lpad({_BEFORE}, greatest(4, length({_BEFORE})), '0'), right({_SHOWN}, 6), ' (BC)') END)"
_FINITE = "(CASE WHEN {0} IS NOT NULL THEN TRUE END)"
_WEEKDAYS = "'Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'"
_MONTHS = "'January', 'February', 'March', 'April', 'May', 'June', 'July', 'August', 'September', 'October', "
_MONTHS += "'November', 'December'"


def _of_day(form: str) -> str:
    """Return a form of a date as one of a time stamp."""
    return form.replace("{0}", "CAST({0} AS DATE)")


def _second(form: str) -> str:
    """Return a form of the first operand as one of the second."""
    return form.replace("{0}", "{1}")


def _both_of_day(form: str) -> str:
    return _of_day(form).replace("{1}", "CAST({1} AS DATE)")


def _both(name: str, form: str) -> dict[str, str]:
    return {f"{name} DATE": form, f"{name} TIMESTAMP": _of_day(form)}


def _truncated() -> dict[str, str]:
    forms = {}
    for unit, width in _CLOCKED.items():
        forms[f"date_trunc.{unit} DATE"] = _MIDNIGHT
        start = f"try_subtract({_MOMENT}, pmod({_MOMENT}, {width}L))"
        forms[f"date_trunc.{unit} TIMESTAMP"] = f"CAST(timestamp_micros({start}) AS TIMESTAMP_NTZ)"
    for unit, word in _CALENDAR.items():
        start = f"trunc((CASE WHEN {_IN_TIME} THEN {{0}} END), '{word}')"
        forms |= _both(f"date_trunc.{unit}", _MIDNIGHT.replace("{0}", start))
    return forms


def _apart() -> dict[str, str]:
    weeks = f"(({_second(_DAYS)} - {_DAYS}) DIV 7)"
    forms = {"date_diff.week DATE": weeks, "date_diff.week TIMESTAMP": _both_of_day(weeks)}
    for unit, form in _COUNTED.items():
        forms |= {
            f"date_diff.{unit} DATE": f"({_second(form)} - {form})",
            f"date_diff.{unit} TIMESTAMP": _both_of_day(f"({_second(form)} - {form})"),
        }
    for unit, width in _CLOCKED.items():
        begun = f"(({_MOMENT} DIV {width}L) - (CASE WHEN {_MOMENT} % {width}L < 0 THEN 1L ELSE 0L END))"
        if unit != "day":
            forms[f"date_diff.{unit} TIMESTAMP"] = f"try_subtract({_second(begun)}, {begun})"
        forms[f"date_sub.{unit} TIMESTAMP"] = f"(try_subtract({_second(_MOMENT)}, {_MOMENT}) DIV {width}L)"
    return forms


def _moved(sign: str) -> dict[str, str]:
    name = "try_add" if sign == "+" else "try_subtract"
    days = f"({_DAYS} {sign} {{1}})"
    moved = f"{name}({{0}}, {{1}})"
    within = f"(CASE WHEN {moved} >= {_FIRST} THEN {moved} END)"
    return {
        f"{sign} TIMESTAMP INTERVAL": within,
        f"{sign} DATE INTERVAL": within.replace("{0}", _MIDNIGHT),
        f"{sign} DATE INTEGER": f"(CASE WHEN {days} BETWEEN -2147483648 AND 2147483646 AND {days} <> -2147483647 "
        f"THEN date_from_unix_date(CAST({days} AS INT)) END)",
    }


_QUARTERS = "concat(3 * CAST(substring_index({0}, ' ', 1) AS INT), ' month')"
TIMES: Mapping[str, str] = {
    "literal INTERVAL": f"CAST((CASE WHEN {{0}} LIKE '%quarter%' THEN {_QUARTERS} ELSE {{0}} END) AS INTERVAL)",
    "cast DATE DATE": "{0}",
    "cast TIMESTAMP TIMESTAMP": "{0}",
    "cast TIMESTAMP DATE": "CAST({0} AS DATE)",
    "cast DATE TIMESTAMP": _MIDNIGHT,
    "cast DATE TEXT": _PRINTED,
    "cast TIMESTAMP TEXT": f"concat({_of_day(_PRINTED)}, ' ', substring_index({_SHOWN}, ' ', -1))",
    **{name: text for part, form in _PARTS.items() for name, text in _both(f"date_part.{part}", form).items()},
    **{f"date_part.{part} TIMESTAMP": form for part, form in _CLOCK.items()},
    "date_part.epoch TIMESTAMP": f"({_MOMENT} / 1000000D)",
    **_truncated(),
    **_apart(),
    **_moved("+"),
    **_moved("-"),
    "- DATE DATE": f"({_DAYS} - {_second(_DAYS)})",
    **_both("last_day", "(CASE WHEN unix_date({0}) < 2147483637 THEN last_day({0}) END)"),
    **_both("dayname", f"element_at(array({_WEEKDAYS}), dayofweek({{0}}))"),
    **_both("monthname", f"element_at(array({_MONTHS}), month({{0}}))"),
    "epoch_us TIMESTAMP": _MOMENT,
    "epoch_ms TIMESTAMP": f"({_MOMENT} DIV 1000 + ({_MOMENT} % 1000) DIV 500)",
    "epoch_ms DATE": f"({_DAYS} * 86400000L)",
    "epoch_us DATE": f"try_multiply({_DAYS}, {_DAY}L)",
    **dict.fromkeys(("isfinite DATE", "isfinite TIMESTAMP"), _FINITE),
    **dict.fromkeys(("isinf DATE", "isinf TIMESTAMP"), _FINITE.replace("TRUE", "FALSE")),
}
