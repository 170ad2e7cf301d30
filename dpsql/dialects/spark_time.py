"""Forms of Spark's for dates and time stamps, NULL where DuckDB's calendar ends."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["TIMES"]

_DAY = 86_400_000_000
_MOMENT = "unix_micros(CAST({0} AS TIMESTAMP))"  # since 1970; the session's zone is UTC
_NEXT = "unix_micros(CAST({1} AS TIMESTAMP))"
_MIDNIGHT = "(CASE WHEN unix_date({0}) BETWEEN -106751991 AND 106751991 THEN CAST({0} AS TIMESTAMP_NTZ) END)"
_OF_DAY = f"pmod({_MOMENT}, {_DAY}L)"
_FIXED = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": _DAY,
}
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
}
_CLOCK = {
    "hour": f"({_OF_DAY} DIV 3600000000)",
    "minute": f"(({_OF_DAY} DIV 60000000) % 60)",
    "second": f"(({_OF_DAY} DIV 1000000) % 60)",
    "millisecond": f"(({_OF_DAY} DIV 1000) % 60000)",
    "microsecond": f"({_OF_DAY} % 60000000)",
}
_SHOWN = "CAST({0} AS STRING)"
_BEFORE = "CAST(1 - year({0}) AS STRING)"  # the year before our era
_DATE = f"(CASE WHEN year({{0}}) BETWEEN 1 AND 9999 THEN {_SHOWN} WHEN year({{0}}) > 0 THEN substring({_SHOWN}, 2) "
_DATE += f"ELSE concat(lpad({_BEFORE}, greatest(4, length({_BEFORE})), '0'), right({_SHOWN}, 6), ' (BC)') END)"

TIMES: Mapping[str, str] = {
    "cast DATE DATE": "{0}",
    "cast DATE TEXT": _DATE,
    "cast TIMESTAMP TEXT": f"concat({_DATE.replace('{0}', 'CAST({0} AS DATE)')}, ' ', "
    f"substring_index({_SHOWN}, ' ', -1))",
    "cast TIMESTAMP TIMESTAMP": "{0}",
    "cast TIMESTAMP DATE": "CAST({0} AS DATE)",
    "cast DATE TIMESTAMP": _MIDNIGHT,
    **{f"date_part.{part}": f"CAST({form} AS BIGINT)" for part, form in _PARTS.items()},
    **{f"date_part.{part} TIMESTAMP": form for part, form in _CLOCK.items()},
    "date_part.epoch TIMESTAMP": f"({_MOMENT} / 1000000D)",
    **{
        f"date_trunc.{unit} TIMESTAMP": f"CAST(timestamp_micros({_MOMENT} - pmod({_MOMENT}, {width}L)) AS TIMESTAMP_NTZ)"
        for unit, width in _FIXED.items()
    },
    "date_diff.day DATE": "(CAST(unix_date({1}) AS BIGINT) - unix_date({0}))",
    "- DATE DATE": "(CAST(unix_date({0}) AS BIGINT) - unix_date({1}))",
    "+ DATE INTEGER": "date_add({0}, {1})",
    "- DATE INTEGER": "date_sub({0}, {1})",
}
