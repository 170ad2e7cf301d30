"""MySQL and MariaDB, in what both have: text by its bytes, numbers that look before they compute.

Both take letters of either case, and text with and without blanks at its end, for equal under most collations; they
fail where a result does not fit its type; and they have neither NaN nor infinity nor the sign of zero. A DOUBLE that
would be infinite is NULL.

This file has three parts: (1) numbers (`NUMBERS`): whole numbers are computed as DECIMAL, which holds them all, and
then fitted. A DOUBLE that does not fit fails there, so that sums and products are tested before, on operands that are
scaled, exactly. (2) Texts (`list_texts`), brought to a collation that compares them by their bytes; (3) dates and time
stamps (`TIMES`), and the dialects.

Sorting looks at the first bytes of a text alone, as many as `max_sort_length` says: a key that is longer is NULL.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from dpsql.dialects.base import COMPUTED, FORMATS, MICROSECONDS, Dialect, fit_type

_WIDE = "CAST({0} AS DECIMAL(65, 0))"


def _other(form: str) -> str:
    return form.replace("{0}", "{1}")


def _power(exponent: int) -> str:
    """Return a power of two as a DOUBLE, exactly."""
    written = repr(math.ldexp(1.0, exponent))
    return written if "e" in written else f"{written}e0"


# A sum is tested by its half, which is exact for what is near the ends and never overflows; a product by operands that
# were made smaller, and not below where that is exact.
_SUM = f"(CASE WHEN abs({{0}} * 0.5e0 @ {{1}} * 0.5e0) < {_power(1023)} THEN {{0}} @ {{1}} END)"
_SMALL = f"(GREATEST(abs({{0}}), {_power(-24)}) * {_power(-512)})"
_PRODUCT = f"(CASE WHEN {_SMALL} * {_other(_SMALL)} < 1e0 THEN {{0}} * {{1}} + 0e0 END)"
# a % b of whole numbers is MOD(CAST(a AS DECIMAL(65, 0)), NULLIF(CAST(b AS DECIMAL(65, 0)), 0)), NULL for b = 0
_REST = f"MOD({_WIDE}, NULLIF({_other(_WIDE)}, 0))"
# ROUND of a DOUBLE here rounds halves to the nearest even number: round(2.5) is TRUNCATE(2.5, 0) + SIGN(2.5), 3
_ROUNDED = (
    "(CASE WHEN abs({0} - TRUNCATE({0}, 0)) >= 0.5e0 THEN TRUNCATE({0}, 0) + SIGN({0}) ELSE TRUNCATE({0}, 0) END)"
)
_FITS = "ROUND({0}) >= -9223372036854775808e0 AND ROUND({0}) < 9223372036854775808e0"
_FROM_DOUBLE = f"(CASE WHEN {_FITS} THEN CAST(ROUND({{0}}) AS SIGNED) END)"  # to DECIMAL, digits would be lost
_BITS = {"&": "&", "|": "|", "xor": "^"}

NUMBERS: Mapping[str, str] = {
    **{f"{sign} INTEGER INTEGER": fit_type(f"{_WIDE} {sign} {_other(_WIDE)}") for sign in ("+", "-", "*")},
    **{
        f"{sign} {first} {second}": fit_type(f"{{0}} {sign} {{1}}")
        for sign in ("+", "-", "*")
        for first, second in (("DECIMAL", "DECIMAL"), ("DECIMAL", "INTEGER"), ("INTEGER", "DECIMAL"))
    },
    "// INTEGER INTEGER": fit_type(f"({_WIDE} - {_REST}) / NULLIF({_other(_WIDE)}, 0)"),
    "% INTEGER INTEGER": f"(CASE WHEN {{0}} <> {{least}} OR {{1}} <> -1 THEN CAST({_REST} AS {{type}}) END)",
    "% DECIMAL DECIMAL": fit_type("MOD({0}, NULLIF({1}, 0))"),
    "+ DOUBLE DOUBLE": _SUM.replace("@", "+"),
    "- DOUBLE DOUBLE": _SUM.replace("@", "-"),
    "* DOUBLE DOUBLE": _PRODUCT,
    "neg INTEGER": fit_type(f"-{_WIDE}"),
    "neg DOUBLE": "(0e0 - {0})",  # which is not -0.0 where MySQL has it
    "abs INTEGER": fit_type(f"abs({_WIDE})"),
    **{f"{sign} INTEGER INTEGER": f"CAST(({{0}} {own} {{1}}) AS SIGNED)" for sign, own in _BITS.items()},
    "~ INTEGER": f"CAST({{least}} + {{greatest}} - {_WIDE} AS SIGNED)",
    "sign DOUBLE": "SIGN({0})",
    "isnan DOUBLE": "(CASE WHEN {0} IS NOT NULL THEN FALSE END)",
    "signbit DOUBLE": "({0} < 0)",  # zero has no sign here
    "isinf DOUBLE": "(CASE WHEN {0} IS NOT NULL THEN FALSE END)",
    "isfinite DOUBLE": "(CASE WHEN {0} IS NOT NULL THEN TRUE END)",
    "floor DOUBLE": "(floor({0}) + 0e0)",  # as a sum all of its digits are sent
    "ceil DOUBLE": "(ceiling({0}) + 0e0)",
    "trunc DOUBLE": "(TRUNCATE({0}, 0) + 0e0)",
    "round DOUBLE": f"({_ROUNDED} + 0e0)",
    "floor DECIMAL": "CAST(floor({0}) AS {type})",
    "ceil DECIMAL": "CAST(ceiling({0}) AS {type})",
    "trunc DECIMAL": "CAST(TRUNCATE({0}, 0) AS {type})",
    "round DECIMAL": "CAST(round({0}, 0) AS {type})",
    "round DECIMAL INTEGER": "CAST(round({0}, LEAST({1}, {scale})) AS {type})",
    "sum INTEGER": f"SUM({_WIDE})",
    "sum DECIMAL": "SUM({0})",
    "cast INTEGER INTEGER": fit_type(_WIDE),
    "cast INTEGER DECIMAL": fit_type(_WIDE),
    "cast BOOLEAN INTEGER": "CAST({0} AS SIGNED)",
    "cast BOOLEAN DOUBLE": "CAST({0} AS DOUBLE)",
    "cast DECIMAL DECIMAL": fit_type("round({0}, {scale})"),
    "cast DECIMAL INTEGER": fit_type("round({0}, 0)"),
    "cast DOUBLE INTEGER": fit_type(f"CAST({_FROM_DOUBLE} AS DECIMAL(65, 0))"),
    "cast DOUBLE BOOLEAN": "({0} <> 0)",
    "column FLOAT": "CAST({0} AS DOUBLE)",  # of which more digits are sent
}


# Part 2: texts.
MAX_KEY_LENGTH = 65_536  # bytes

_LENGTH = "CHAR_LENGTH({0})"
# SUBSTRING(x, -2) begins at CHAR_LENGTH(x) - 1; a length below 0 counts back, so that the earlier end is the start
_FIRST = f"(CASE WHEN {{1}} < 0 THEN {_LENGTH} + 1 + {{1}} ELSE {{1}} END)"  # counted from 1; may be before it
_START, _END = f"LEAST({_FIRST}, {_FIRST} + {{2}})", f"GREATEST({_FIRST}, {_FIRST} + {{2}})"
_LEFT = f"(CASE WHEN {{1}} < 0 THEN GREATEST({_LENGTH} + {{1}}, 0) ELSE {{1}} END)"


def list_texts(collation: str) -> Mapping[str, str]:
    """Return the forms for text under a collation that compares it by its bytes."""
    by_bytes = f"(CONVERT({{0}} USING utf8mb4) COLLATE {collation})"
    key = f"(CASE WHEN OCTET_LENGTH({{0}}) <= {MAX_KEY_LENGTH} THEN {by_bytes} END)"

    def text(form: str) -> str:
        return f"(CONVERT({form} USING utf8mb4) COLLATE {collation})"

    return {
        "column TEXT": by_bytes,
        "literal TEXT": by_bytes,
        "canonical TEXT": key,
        "count_distinct TEXT": f"COUNT(DISTINCT {key})",
        **{f"cast {family} TEXT": text("CAST({0} AS CHAR)") for family in ("INTEGER", "DECIMAL", "DATE")},
        "cast BOOLEAN TEXT": text("(CASE WHEN {0} THEN 'true' WHEN NOT {0} THEN 'false' END)"),
        "cast TIMESTAMP TEXT": text("TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM CAST({0} AS CHAR)))"),
        "like_backslash TEXT": "({0} LIKE {1} ESCAPE '\\')",
        "|| TEXT TEXT": "CONCAT({0}, {1})",
        "concat TEXT": f"CONCAT_WS({text(chr(39) * 2)}, {{*}})",
        "concat_ws TEXT": "CONCAT_WS({*})",
        "md5 TEXT": text("MD5({0})"),
        "sha256 TEXT": text("SHA2({0}, 256)"),
        "length TEXT": "CHAR_LENGTH({0})",
        "strlen TEXT": "OCTET_LENGTH({0})",
        "bit_length TEXT": "(OCTET_LENGTH({0}) * 8)",
        "unicode TEXT": "(CASE WHEN {0} = '' THEN -1 "
        "ELSE CAST(CONV(HEX(CONVERT(LEFT({0}, 1) USING utf32)), 16, 10) AS SIGNED) END)",
        "ascii TEXT": "(CASE WHEN {0} = '' THEN 0 "
        "ELSE CAST(CONV(HEX(CONVERT(LEFT({0}, 1) USING utf32)), 16, 10) AS SIGNED) END)",
        "replace TEXT TEXT TEXT": "REPLACE({0}, {1}, {2})",
        "left TEXT INTEGER": f"LEFT({{0}}, {_LEFT})",
        "right TEXT INTEGER": f"RIGHT({{0}}, {_LEFT})",
        "substring TEXT INTEGER": f"SUBSTRING({{0}}, GREATEST({_FIRST}, 1))",
        "substring TEXT INTEGER INTEGER": f"SUBSTRING({{0}}, GREATEST({_START}, 1), "
        f"GREATEST({_END} - GREATEST({_START}, 1), 0))",
        "starts_with TEXT TEXT": "(LEFT({0}, CHAR_LENGTH({1})) = {1})",
        "suffix TEXT TEXT": "(RIGHT({0}, CHAR_LENGTH({1})) = {1})",
        "contains TEXT TEXT": "(LOCATE({1}, {0}) > 0)",
        "strpos TEXT TEXT": "LOCATE({1}, {0})",
    }


# Part 3: dates and time stamps.
_MONTH = "(YEAR({0}) * 12 + MONTH({0}) - 1)"
_SINCE = "TIMESTAMPDIFF(MICROSECOND, CAST('1970-01-01' AS DATETIME(6)), {0})"
_STAMP = "CAST({0} AS DATETIME(6))"
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
# an INTERVAL is its text, such as "3 month": MySQL takes no INTERVAL that is a value.
# ts + INTERVAL 3 MONTH becomes DATE_ADD(DATE_ADD(ts, INTERVAL 3 MONTH), INTERVAL 0 SECOND), with 3 and 0 of that text
_NUMBER = "CAST(SUBSTRING_INDEX({1}, ' ', 1) AS SIGNED)"
_UNIT = "SUBSTRING_INDEX({1}, ' ', -1)"
_STEPS = f"(CASE {_UNIT} WHEN 'month' THEN 1 WHEN 'quarter' THEN 3 WHEN 'year' THEN 12 ELSE 0 END * {_NUMBER})"
_SECONDS = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800}
_WIDTHS = " ".join(f"WHEN '{unit}' THEN {width}" for unit, width in _SECONDS.items())
_WIDTH = f"(CASE {_UNIT} {_WIDTHS} ELSE 0 END * {_NUMBER})"
_LAST_DAY = "CAST('0000-12-31' AS DATE)"
_LAST_MOMENT = "CAST('0000-12-31 23:59:59.999999' AS DATETIME(6))"


def _translate_format(layout: str) -> str:
    """Return a format of strftime as DATE_FORMAT has it, which writes names and minutes by other letters."""
    return layout.replace("%M", "%i").replace("%B", "%M").replace("%A", "%W").replace("%S", "%s")


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


# date_trunc('hour', ts) becomes DATE_SUB(ts, INTERVAL (microseconds since the hour) MICROSECOND)
def _truncated() -> dict[str, str]:
    forms: dict[str, str] = {}
    for unit, start in _STARTS.items():
        forms |= _both(f"date_trunc.{unit}", f"CAST({start.replace('{0}', 'CAST({0} AS DATE)')} AS DATETIME(6))")
    for unit, width in MICROSECONDS.items():
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
    for unit, width in MICROSECONDS.items():
        if unit != "day":
            begun = f"(({_SINCE} - {_remainder(width)}) DIV {width})"
            forms[f"date_diff.{unit} TIMESTAMP"] = f"({_other(begun)} - {begun})"
        forms[f"date_sub.{unit} TIMESTAMP"] = f"(TIMESTAMPDIFF(MICROSECOND, {{0}}, {{1}}) DIV {width})"
    return forms


TIMES: Mapping[str, str] = {
    # a date may be 0000-00-00 or 2026-02-31, which no function takes: it is not that of its own number of days
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
    "cast TIMESTAMP DATE": "CAST({0} AS DATE)",
    "cast DATE TIMESTAMP": _STAMP,
    **_both("last_day", "LAST_DAY({0})"),
    **_both("dayname", "DATE_FORMAT({0}, '%W')"),
    **_both("monthname", "DATE_FORMAT({0}, '%M')"),
    **{
        name: form
        for layout in FORMATS
        for name, form in _both(f"strftime.{layout}", f"DATE_FORMAT({{0}}, '{_translate_format(layout)}')").items()
    },
    "epoch_us TIMESTAMP": _SINCE,
    "epoch_us DATE": f"TIMESTAMPDIFF(MICROSECOND, CAST('1970-01-01' AS DATETIME(6)), {_STAMP})",
    "epoch_ms TIMESTAMP": f"({_SINCE} DIV 1000 + MOD({_SINCE}, 1000) DIV 500)",
    "epoch_ms DATE": "((TO_DAYS({0}) - TO_DAYS(CAST('1970-01-01' AS DATE))) * 86400000)",
}


_COMPUTED = ("BOOLEAN", "INTEGER", "DECIMAL", "DOUBLE", "TEXT", "DATE", "TIMESTAMP")
_INTEGERS = "TINYINT SMALLINT INTEGER INT BIGINT UTINYINT USMALLINT UINTEGER".split()


_CHOICES = {
    **{  # GREATEST and LEAST are NULL here where one operand is
        f"{name} {family} {family}": f"COALESCE({name.upper()}({{0}}, {{1}}), {{0}}, {{1}})"
        for name in ("greatest", "least")
        for family in _COMPUTED
    },
    **{f"{end} {family}": f"{end.upper()}({{0}})" for end in ("min", "max") for family in _COMPUTED},
}


def _forms(collation: str) -> dict[str, str]:
    """Return the forms under a `collation` that compares text by its bytes, blanks at the end too."""
    return {
        **COMPUTED,
        "is_distinct": "(NOT ({0} <=> {1}))",
        "is_not_distinct": "({0} <=> {1})",
        "lookup": "CAST(ELT({0}, {1*}) AS SIGNED)",
        "column BOOLEAN": "({0} <> 0)",
        **_CHOICES,
        **NUMBERS,
        **list_texts(collation),
        **TIMES,
    }


def _dialect(name: str, forms: dict[str, str]) -> Dialect:
    return Dialect(
        name,
        "mysql",
        MappingProxyType(forms),
        parameter="@dpsql_{n}",
        types=MappingProxyType(
            {
                **dict.fromkeys([*_INTEGERS, "BOOLEAN"], "SIGNED"),
                "TIMESTAMP": "DATETIME(6)",
                "FLOAT": "DOUBLE",
                "REAL": "DOUBLE",
            }
        ),
        lacks=frozenset(["SEMI", "ANTI", "FULL", "NaN", "infinity", "ordinal NULLS"]),
    )


MARIADB = _dialect("MariaDB", _forms("utf8mb4_nopad_bin"))
_OF_MYSQL = _forms("utf8mb4_0900_bin")
_OF_MYSQL["draw TEXT"] = _OF_MYSQL["sha256 TEXT"]
del _OF_MYSQL["md5 TEXT"]  # which a server may not have, as MySQL 9.7 by itself
MYSQL = _dialect("MySQL", _OF_MYSQL)
