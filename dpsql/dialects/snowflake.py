"""Snowflake: every whole number is a NUMBER of 38 digits, and text is compared by its bytes.

A NUMBER may hold more than a BIGINT: such values are read as NULL, as are days beyond the years 1 to 9999. NaN equals
itself and is the greatest DOUBLE (https://docs.snowflake.com/en/sql-reference/data-types-numeric), but there is no
arithmetic on DOUBLE here, since its overflow is not documented. Branches of a CASE may be computed before its
condition, so that no form relies on one to avoid an error.
"""

from __future__ import annotations

from types import MappingProxyType

from dpsql.dialects.base import DAYS, FIRST_DAY, LAST_DAY, Dialect, begin, fit, list_dates

__all__ = ["SNOWFLAKE"]

_BIG = "NULLIF(NULLIF(LEAST(GREATEST({0}, -9223372036854775809), 9223372036854775808), -9223372036854775809), "
_BIG += "9223372036854775808)"
_NUMBER = "CAST({} AS NUMBER(38, 0))"
_MOMENT = "CAST({} AS TIMESTAMP_NTZ(6))"
_MICRO = _MOMENT.format("DATE_TRUNC('MICROSECOND', {0})")
_REST = "MOD({0}, NULLIF({1}, 0))"
_SINCE = "DATEDIFF('DAY', DATE '1970-01-01', {0})"
_LATER = f"(CASE WHEN {_SINCE} @ {{1}} BETWEEN {DAYS[0]} AND {DAYS[1]} THEN @ {{1}} END)"
_NAN = "CAST('NaN' AS DOUBLE)"
_INFINITE = "CAST('inf' AS DOUBLE)"
_PARTS = "year month day quarter doy=DAYOFYEAR isodow=DAYOFWEEKISO week=WEEKISO isoyear=YEAROFWEEKISO".split()

SNOWFLAKE = Dialect(
    "Snowflake",
    "snowflake",
    MappingProxyType(
        {
            **begin(),
            "column INTEGER": _BIG,
            "column TEXT": "COLLATE({0}, '')",
            "column DATE": f"(CASE WHEN {{0}} BETWEEN {FIRST_DAY} AND {LAST_DAY} THEN {{0}} END)",
            "column TIMESTAMP": (
                f"(CASE WHEN CAST({{0}} AS DATE) BETWEEN {FIRST_DAY} AND {LAST_DAY} THEN {_MICRO} END)"
            ),
            **{f"{sign} INTEGER INTEGER": fit(f"{{0}} {sign} {{1}}") for sign in "+-*"},
            **{f"{sign} DECIMAL DECIMAL": f"CAST({fit(f'{{0}} {sign} {{1}}')} AS {{type}})" for sign in "+-"},
            "% INTEGER INTEGER": f"(CASE WHEN {{0}} <> {{least}} OR {{1}} <> -1 THEN {_REST} END)",
            "neg INTEGER": fit("-{0}"),
            "abs INTEGER": fit("ABS({0})"),
            "neg DECIMAL": "(-{0})",
            "abs DECIMAL": "ABS({0})",
            "sum INTEGER": f"SUM({_NUMBER.format('{0}')})",
            "sum DECIMAL": "SUM({0})",
            "cast INTEGER INTEGER": fit("{0}"),
            "cast INTEGER DECIMAL": f"CAST({fit('{0}')} AS {{type}})",
            "cast INTEGER DOUBLE": "CAST({0} AS DOUBLE)",
            "cast INTEGER TEXT": f"CAST({_NUMBER.format('{0}')} AS VARCHAR)",
            "cast DECIMAL INTEGER": fit("ROUND({0})"),
            "cast DECIMAL DECIMAL": f"CAST({fit('ROUND({0}, {scale})')} AS {{type}})",
            "isnan DOUBLE": f"({{0}} = {_NAN})",
            "isinf DOUBLE": f"({{0}} = {_INFINITE} OR {{0}} = -{_INFINITE})",
            "isfinite DOUBLE": f"({{0}} > -{_INFINITE} AND {{0}} < {_INFINITE})",
            "neg DOUBLE": "(-{0})",
            "md5 TEXT": "MD5({0})",
            "sha256 TEXT": "SHA2({0}, 256)",
            "length TEXT": "LENGTH({0})",
            "starts_with TEXT TEXT": "STARTSWITH({0}, {1})",
            "suffix TEXT TEXT": "ENDSWITH({0}, {1})",
            "contains TEXT TEXT": "CONTAINS({0}, {1})",
            "like TEXT TEXT": "({0} LIKE {1})",
            **list_dates("@({0})", names=_PARTS, part="date_part"),
            **list_dates("@({0})", names=["hour", "minute", "second"], part="date_part"),
            "date_part.dow": "MOD(DAYOFWEEKISO({0}), 7)",
            **list_dates(
                _MOMENT.format("DATE_TRUNC('@', {0})"),
                names="second minute hour day week month quarter year".split(),
                part="date_trunc",
            ),
            **list_dates("DATEDIFF('@', {0}, {1})", names="day month quarter year".split(), part="date_diff"),
            "- DATE DATE": "DATEDIFF('DAY', {1}, {0})",
            **{f"{sign} DATE INTEGER": f"DATEADD('DAY', {_LATER.replace('@', sign)}, {{0}})" for sign in "+-"},
            "last_day": "LAST_DAY(CAST({0} AS DATE))",
            "cast DATE TIMESTAMP": _MOMENT.format("{0}"),
            "cast TIMESTAMP DATE": "CAST({0} AS DATE)",
            "cast DATE TEXT": "TO_CHAR({0}, 'YYYY-MM-DD')",
            "lookup": _NUMBER.format("SPLIT_PART('{1*}', ', ', {0})"),
        }
    ),
    parameter=":{n}",
    lacks=frozenset(
        ["SEMI", "ANTI", "FULL unequal", "INTERSECT ALL", "EXCEPT ALL", "UTINYINT", "USMALLINT", "UINTEGER"]
    ),
    types=MappingProxyType({"TIMESTAMP": "TIMESTAMP_NTZ(6)", "DOUBLE": "DOUBLE"}),
)
