"""Trino, and Athena, whose engine 3 is one: integers are checked by TRY, text is compared by its bytes.

TRY is NULL where a number does not fit or a divisor is zero. NaN is unequal to itself and its place in an order differs
between releases, so that a DOUBLE is compared by forms and is no key.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from dpsql.dialects.base import DAYS, FIRST_DAY, LAST_DAY, Dialect, begin, list_dates

__all__ = ["ATHENA", "TRINO"]

_MOMENT = "CAST({} AS TIMESTAMP(6))"
_STORED = _MOMENT.format("{0}")
_WIDE = "CAST({} AS DECIMAL(38, 0))"
_DAY = "CAST({0} AS DATE)"
_NULL = "CASE WHEN {0} IS NULL OR {1} IS NULL THEN NULL ELSE"
_LESS = f"({_NULL} NOT is_nan(@) AND (is_nan(#) OR @ < #) END)"
_AT_MOST = f"({_NULL} is_nan(#) OR (NOT is_nan(@) AND @ <= #) END)"
_EQUAL = "({0} = {1} OR (is_nan({0}) AND is_nan({1})))"
_SINCE = "date_diff('day', DATE '1970-01-01', {0})"
_PARTS = "year month day=day_of_month quarter doy=day_of_year isodow=day_of_week week isoyear=year_of_week".split()
_PLAIN = ("INTEGER", "DECIMAL", "TEXT", "DATE", "TIMESTAMP", "BOOLEAN")
_INFINITE = "infinity()"


def _fit(value: str) -> str:
    return f"TRY_CAST(TRY({value}) AS {{type}})"


def _within_calendar(form: str) -> str:
    """Return a form of a date with NULL for one that is outside the years 1 to 9999."""
    return form.replace("{0}", f"(CASE WHEN {{0}} BETWEEN {FIRST_DAY} AND {LAST_DAY} THEN {{0}} END)")


def _order(form: str, *, left: str, right: str) -> str:
    return form.replace("@", left).replace("#", right)


_TRUNCATED = list_dates(
    f"date_trunc('@', {_MOMENT.format('{0}')})",
    names="second minute hour day week month quarter year".split(),
    part="date_trunc",
)
_DOUBLES = {
    "= DOUBLE DOUBLE": _EQUAL,
    "<> DOUBLE DOUBLE": f"(NOT {_EQUAL})",
    "< DOUBLE DOUBLE": _order(_LESS, left="{0}", right="{1}"),
    "> DOUBLE DOUBLE": _order(_LESS, left="{1}", right="{0}"),
    "<= DOUBLE DOUBLE": _order(_AT_MOST, left="{0}", right="{1}"),
    ">= DOUBLE DOUBLE": _order(_AT_MOST, left="{1}", right="{0}"),
    **{f"{sign} DOUBLE DOUBLE": f"({{0}} {sign} {{1}})" for sign in "+-*/"},
    "neg DOUBLE": "(-{0})",
    "abs DOUBLE": "abs({0})",
    "isinf DOUBLE": "is_infinite({0})",
    "isfinite DOUBLE": f"(abs({{0}}) < {_INFINITE})",
}
TRINO = Dialect(
    "Trino",
    "trino",
    MappingProxyType(
        {
            **begin(),
            **_DOUBLES,
            "column TIMESTAMP": f"(CASE WHEN {_DAY} BETWEEN {FIRST_DAY} AND {LAST_DAY} THEN {_STORED} END)",
            **{
                f"{sign} INTEGER INTEGER": _fit(f"{_WIDE.format('{0}')} {sign} {_WIDE.format('{1}')}") for sign in "+-*"
            },
            **{f"{sign} DECIMAL DECIMAL": _fit(f"{{0}} {sign} {{1}}") for sign in "+-"},
            "// INTEGER INTEGER": _fit("CAST({0} AS BIGINT) / NULLIF(CAST({1} AS BIGINT), 0)"),
            "% INTEGER INTEGER": (
                "(CASE WHEN {0} <> {least} OR {1} <> -1 "
                "THEN TRY(CAST({0} AS BIGINT) % NULLIF(CAST({1} AS BIGINT), 0)) END)"
            ),
            "neg INTEGER": _fit(f"-{_WIDE.format('{0}')}"),
            "abs INTEGER": _fit(f"abs({_WIDE.format('{0}')})"),
            "neg DECIMAL": "(-{0})",
            "abs DECIMAL": "abs({0})",
            "& INTEGER": "bitwise_and({0}, {1})",
            "| INTEGER": "bitwise_or({0}, {1})",
            "xor INTEGER": "bitwise_xor({0}, {1})",
            "sum INTEGER": f"SUM({_WIDE.format('{0}')})",
            "sum DECIMAL": "SUM({0})",
            "cast INTEGER INTEGER": "TRY_CAST({0} AS {type})",
            "cast INTEGER DECIMAL": "TRY_CAST({0} AS {type})",
            "cast INTEGER DOUBLE": "CAST({0} AS DOUBLE)",
            "cast INTEGER TEXT": "CAST({0} AS VARCHAR)",
            "cast DECIMAL INTEGER": "TRY_CAST(round({0}) AS {type})",
            "cast DECIMAL DECIMAL": "TRY_CAST({0} AS {type})",
            "cast FLOAT DOUBLE": "CAST({0} AS DOUBLE)",
            "cast DOUBLE BOOLEAN": "({0} <> 0)",
            "md5 TEXT": "lower(to_hex(md5(to_utf8({0}))))",
            "sha1 TEXT": "lower(to_hex(sha1(to_utf8({0}))))",
            "sha256 TEXT": "lower(to_hex(sha256(to_utf8({0}))))",
            "length TEXT": "length({0})",
            "strlen TEXT": "length(to_utf8({0}))",
            "bit_length TEXT": "(length(to_utf8({0})) * 8)",
            "starts_with TEXT TEXT": "starts_with({0}, {1})",
            "contains TEXT TEXT": "(strpos({0}, {1}) > 0)",
            "like_backslash TEXT": "({0} LIKE {1} ESCAPE '\\')",
            **list_dates("@({0})", names=_PARTS, part="date_part"),
            **{
                f"{name} TIMESTAMP": form
                for name, form in list_dates("@({0})", names=["hour", "minute", "second"], part="date_part").items()
            },
            "date_part.dow": "(day_of_week({0}) % 7)",
            **{f"{name} DATE": _within_calendar(form) for name, form in _TRUNCATED.items()},
            **{f"{name} TIMESTAMP": form for name, form in _TRUNCATED.items()},
            "date_diff.day": "date_diff('day', CAST({0} AS DATE), CAST({1} AS DATE))",
            "- DATE DATE": "date_diff('day', {1}, {0})",
            **{
                f"{sign} DATE INTEGER": f"date_add('day', (CASE WHEN TRY({_SINCE} {sign} {{1}}) "
                f"BETWEEN {DAYS[0]} AND {DAYS[1]} THEN {sign} {{1}} END), {{0}})"
                for sign in "+-"
            },
            "last_day DATE": _within_calendar("last_day_of_month({0})"),
            "last_day TIMESTAMP": f"last_day_of_month({_DAY})",
            "cast DATE TIMESTAMP": _within_calendar(_MOMENT.format("{0}")),
            "cast TIMESTAMP DATE": _DAY,
            "cast DATE TEXT": _within_calendar("CAST({0} AS VARCHAR)"),
            "lookup": "CAST(element_at(split('{1*}', ', '), {0}) AS BIGINT)",
            **{f"in_query {family}": "({0} IN {1})" for family in _PLAIN},
        }
    ),
    parameter="?/*{n}*/",
    lacks=frozenset(
        "SEMI,ANTI,IN,FULL unequal,INTERSECT ALL,EXCEPT ALL,ORDER BY DOUBLE,UTINYINT,USMALLINT,UINTEGER".split(",")
    ),
    types=MappingProxyType({"TIMESTAMP": "TIMESTAMP(6)", "VARCHAR": "VARCHAR"}),
)
ATHENA = replace(TRINO, name="Athena", sqlglot="athena")
