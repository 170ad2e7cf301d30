"""Spark SQL as dpsql's own sessions have it: no ANSI mode, so that little raises, UTC, TIMESTAMP without a zone.

Spark skips blocks of a Parquet file by their smallest and largest values, which ignore NaN and order -0.0 before 0.0. A
comparison of a stored DOUBLE would find a row depending on the rows beside it, and so on other units. Comparisons
therefore use x + 0, for which files have no statistics.

This file has three parts: (1) numbers (`NUMBERS`) and texts (`TEXTS`); (2) dates and time stamps (`TIMES`), NULL where
DuckDB's calendar ends; (3) the dialects: Spark SQL and Databricks SQL.

Spark's own functions fail at the ends of theirs, which a stored value may reach: so they are given what is within, and
what is counted is counted in whole numbers, of days or of microseconds since 1970.

Databricks SQL has the forms of Spark that need no setting which a SQL warehouse lacks; ANSI mode is off, the zone UTC.
TIMESTAMP is an instant there, so that time stamps without a zone have their own name.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dpsql.dialects.base import (
    BLANKS,
    COMPUTED_AS_SPARK,
    MICROSECONDS,
    MONTHS,
    SIGNS,
    WEEKDAYS,
    Dialect,
    fold_case,
    list_windows,
)

_WHOLE = "(abs({0}) >= 4503599627370496D)"  # a double of this size has no fraction; NaN is the greatest of all
# DIV may fail at 0, and at -1 it wraps the least number: a // b becomes
# CASE WHEN b = 0 OR (b = -1 AND a = least) THEN NULL ELSE TRY_CAST(a DIV b AS INT) END
_DIVIDED = "(CASE WHEN {1} = 0 OR ({1} = -1 AND {0} = {least}) THEN NULL ELSE TRY_CAST(({0} DIV {1}) AS {type}) END)"
_ZERO = "({0} * 0.0D)"  # of the sign of {0}
_ROUND = f"(CASE WHEN abs({{0}}) < 0.5D THEN {_ZERO} WHEN {_WHOLE} THEN {{0}} ELSE round({{0}}) END)"
# the C library's pow(10, 23) and pow(10, 210), with which DuckDB counts, are not the doubles next to them
_POWER = "(CASE abs({1}) WHEN 23 THEN 1.0000000000000001e+23D WHEN 210 THEN 1.0000000000000001e+210D "
_POWER += "ELSE CAST(concat('1e', abs({1})) AS DOUBLE) END)"
_UP, _DOWN = (_ROUND.replace("{0}", f"({{0}} {sign} {_POWER})") for sign in ("*", "/"))
_ENDLESS = "CAST('Infinity' AS DOUBLE)"
_TENS = f"({_DOWN} * {_POWER})"
_DIGITS = f"(CASE WHEN NOT abs({{0}}) < {_ENDLESS} THEN {{0}} WHEN {{1}} >= 0 THEN "
_DIGITS += f"(CASE WHEN abs({_UP} / {_POWER}) < {_ENDLESS} THEN {_UP} / {_POWER} ELSE {{0}} END) "
_DIGITS += f"WHEN isnan({_TENS}) THEN 0.0D WHEN abs({_TENS}) < {_ENDLESS} THEN {_TENS} ELSE {{0}} END)"
NUMBERS: Mapping[str, str] = {
    "+ INTEGER INTEGER": "try_add({0}, {1})",
    "- INTEGER INTEGER": "try_subtract({0}, {1})",
    "* INTEGER INTEGER": "try_multiply({0}, {1})",
    "// INTEGER INTEGER": _DIVIDED,
    "% INTEGER INTEGER": "(CASE WHEN {1} = 0 OR ({1} = -1 AND {0} = {least}) THEN NULL ELSE {0} % {1} END)",
    **{
        f"{sign} {first} {second}": f"TRY_CAST(({{0}} {sign} {{1}}) AS {{type}})"
        for sign in ("+", "-", "*", "%")
        for first, second in (("DECIMAL", "DECIMAL"), ("DECIMAL", "INTEGER"), ("INTEGER", "DECIMAL"))
    },
    "/ DOUBLE DOUBLE": "(CASE WHEN {1} = 0 THEN {0} * power({1}, -1D) ELSE {0} / {1} END)",
    "% DOUBLE DOUBLE": "(CASE WHEN {1} = 0 AND {0} IS NOT NULL THEN CAST('NaN' AS DOUBLE) ELSE {0} % {1} END)",
    "neg INTEGER": "(CASE WHEN {0} = {least} THEN NULL ELSE -{0} END)",
    "abs INTEGER": "(CASE WHEN {0} = {least} THEN NULL ELSE abs({0}) END)",
    "~ INTEGER": "(~{0})",
    "sign DOUBLE": "CAST(sign({0}) AS TINYINT)",
    "isnan DOUBLE": "(CASE WHEN {0} IS NULL THEN NULL ELSE isnan({0}) END)",
    "isnan FLOAT": "(CASE WHEN {0} IS NULL THEN NULL ELSE isnan({0}) END)",
    "signbit DOUBLE": "(CASE WHEN {0} IS NULL THEN NULL ELSE CAST({0} AS STRING) LIKE '-%' END)",
    "signbit FLOAT": "(CASE WHEN {0} IS NULL THEN NULL ELSE CAST({0} AS STRING) LIKE '-%' END)",
    "floor DOUBLE": f"(CASE WHEN {{0}} = 0 OR {_WHOLE} THEN {{0}} ELSE CAST(floor({{0}}) AS DOUBLE) END)",
    "ceil DOUBLE": f"(CASE WHEN {{0}} = 0 OR {_WHOLE} THEN {{0}} WHEN {{0}} > -1 AND {{0}} < 0 THEN {_ZERO} "
    "ELSE CAST(ceil({0}) AS DOUBLE) END)",
    "trunc DOUBLE": f"(CASE WHEN abs({{0}}) < 1 THEN {_ZERO} WHEN {_WHOLE} THEN {{0}} "
    "ELSE CAST(CAST({0} AS BIGINT) AS DOUBLE) END)",
    "floor DECIMAL": "CAST(floor({0}) AS {type})",
    "ceil DECIMAL": "CAST(ceil({0}) AS {type})",
    "trunc DECIMAL": "CAST((CASE WHEN {0} < 0 THEN ceil({0}) ELSE floor({0}) END) AS {type})",
    "round INTEGER INTEGER": "(CASE WHEN {1} >= 0 THEN {0} "
    "ELSE TRY_CAST(round(CAST({0} AS DECIMAL(20, 0)), greatest(CAST({1} AS INT), -30)) AS {type}) END)",
    "round DOUBLE": _ROUND,
    "round DOUBLE INTEGER": _DIGITS,
    "round DECIMAL INTEGER": "CAST(round({0}, CAST({1} AS INT)) AS {type})",
    "sqrt DOUBLE": "sqrt({0})",
    "sum DECIMAL": "SUM({0})",
    "sum_sorted DOUBLE": "(CASE WHEN COUNT({0}) > 0 THEN aggregate(array_sort(collect_list({0})), 0.0D, "
    "(dpsql_a, dpsql_b) -> dpsql_a + dpsql_b) END)",
    "avg_sorted DOUBLE": "(aggregate(array_sort(collect_list({0})), 0.0D, "
    "(dpsql_a, dpsql_b) -> dpsql_a + dpsql_b) / COUNT({0}))",
    "cast INTEGER DECIMAL": "TRY_CAST({0} AS {type})",
    "cast INTEGER TEXT": "CAST({0} AS STRING)",
    "cast BOOLEAN DOUBLE": "CAST({0} AS DOUBLE)",
    "cast BOOLEAN DECIMAL": "TRY_CAST({0} AS {type})",
    "cast BOOLEAN TEXT": "CAST({0} AS STRING)",
    "cast DECIMAL INTEGER": "TRY_CAST(round({0}, 0) AS {type})",
    "cast DECIMAL TEXT": "CAST({0} AS STRING)",
    "cast DOUBLE INTEGER": "(CASE WHEN {0} < 9223372036854775808D THEN TRY_CAST(rint({0}) AS {type}) END)",
    "cast DOUBLE BOOLEAN": "({0} <> 0)",
}


_LENGTH = "CAST(char_length({0}) AS BIGINT)"
# substring(x, 2, 3) is from 1 to 4, counted from 0; of 5 letters substring(x, -2) from 3. A length below 0 counts back:
# _FROM and _TO are the lesser and the greater end, none before the text
_START = (
    f"(CASE WHEN {{1}} > 0 THEN {{1}} - 1 WHEN {{1}} < 0 THEN {_LENGTH} + {{1}} ELSE -1 END)"  # from 0; may be before
)
_END = f"({_START} + {{2}})"
_FROM, _TO = (f"greatest(least({_START}, {_END}), 0)", f"greatest({_START}, {_END}, 0)")
_LEFT = f"(CASE WHEN {{1}} >= 0 THEN {{1}} ELSE greatest({_LENGTH} + {{1}}, 0) END)"
# right(x, 3) is all from length - 3 on; right(x, -3) all but the first 3 letters
_RIGHT = f"(CASE WHEN {{1}} >= 0 THEN greatest({_LENGTH} - {{1}}, 0) ELSE -{{1}} END)"
_LETTER = "substring({0}, CAST((CASE WHEN {2} > 0 THEN {2} WHEN {2} < 0 AND {2} >= -" + _LENGTH + " THEN "
_LETTER += _LENGTH + " + {2} + 1 ELSE 10001 END) AS INT), (CASE WHEN {2} BETWEEN -10000 AND 10000 THEN 1 ELSE 0 END))"


_CASES = fold_case(
    "translate({0}, '@', '#')", ascii_alone="octet_length({0}) = char_length({0})", calls=("lower({0})", "upper({0})")
)
TEXTS: Mapping[str, str] = {
    **_CASES,
    "md5 TEXT": "md5(CAST({0} AS BINARY))",
    "sha1 TEXT": "sha1(CAST({0} AS BINARY))",
    "sha256 TEXT": "sha2(CAST({0} AS BINARY), 256)",
    "ilike_backslash TEXT": f"({_CASES['lower TEXT']} LIKE {_CASES['lower TEXT'].replace('{0}', '{1}')})",
    "||": "concat({0}, {1})",
    "concat": "concat_ws('', {*})",
    "length TEXT": _LENGTH,
    "bit_length TEXT": "CAST(bit_length({0}) AS BIGINT)",
    **{
        f"{name} {words}": f"trim({side} {chars} FROM {{0}})"
        for name, side in (("trim", "BOTH"), ("ltrim", "LEADING"), ("rtrim", "TRAILING"))
        for words, chars in (("TEXT", f"'{BLANKS}'"), ("TEXT TEXT", "{1}"))
    },
    "substring TEXT INTEGER": f"substring({{0}}, CAST(greatest({_START}, 0) + 1 AS INT))",
    "substring TEXT INTEGER INTEGER": f"substring({{0}}, CAST({_FROM} + 1 AS INT), CAST({_TO} - {_FROM} AS INT))",
    "left TEXT": f"substring({{0}}, 1, CAST({_LEFT} AS INT))",
    "right TEXT": f"substring({{0}}, CAST({_RIGHT} + 1 AS INT))",
    "starts_with TEXT": "startswith({0}, {1})",
    "suffix TEXT": "endswith({0}, {1})",
    "contains TEXT": "contains({0}, {1})",
    "strpos TEXT": "CAST(instr({0}, {1}) AS BIGINT)",
    "split_part TEXT": f"(CASE WHEN {{0}} IS NULL THEN NULL WHEN {{2}} = 0 THEN '' WHEN {{1}} = '' THEN {_LETTER} "
    "ELSE split_part({0}, {1}, CAST(nullif({2}, 0) AS INT)) END)",
}


# Part 2: dates and time stamps.
_DAY = MICROSECONDS["day"]
_DAYS = "CAST(unix_date({0}) AS BIGINT)"
_MOMENT = "unix_micros(CAST({0} AS TIMESTAMP))"  # the session's zone is UTC
_IN_TIME = "(unix_date({0}) BETWEEN -106751991 AND 106751991)"  # a day whose midnight is a time stamp
_MIDNIGHT = f"(CASE WHEN {_IN_TIME} THEN CAST({{0}} AS TIMESTAMP_NTZ) END)"
_OF_DAY = f"pmod({_MOMENT}, {_DAY}L)"
_FIRST = "CAST(timestamp_micros(-9223372022400000000L) AS TIMESTAMP_NTZ)"  # DuckDB's first time stamp
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
# Spark prints +12345-01-01 and -0043-01-01, DuckDB 12345-01-01 and 0044-01-01 (BC)
_PRINTED = f"(CASE WHEN year({{0}}) BETWEEN 1 AND 9999 THEN {_SHOWN} WHEN year({{0}}) > 0 THEN substring({_SHOWN}, 2) "
_PRINTED += f"ELSE concat(lpad({_BEFORE}, greatest(4, length({_BEFORE})), '0'), right({_SHOWN}, 6), ' (BC)') END)"


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


# date_trunc('hour', ts) becomes timestamp_micros(micros - pmod(micros, 3600000000)); of a week or more the day is cut
def _truncated() -> dict[str, str]:
    forms = {}
    for unit, width in MICROSECONDS.items():
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
    for unit, width in MICROSECONDS.items():
        begun = f"(({_MOMENT} DIV {width}L) - (CASE WHEN {_MOMENT} % {width}L < 0 THEN 1L ELSE 0L END))"
        if unit != "day":
            forms[f"date_diff.{unit} TIMESTAMP"] = f"try_subtract({_second(begun)}, {begun})"
        forms[f"date_sub.{unit} TIMESTAMP"] = f"(try_subtract({_second(_MOMENT)}, {_MOMENT}) DIV {width}L)"
    return forms


# ts + i becomes CASE WHEN try_add(ts, i) >= (the first time stamp that DuckDB has) THEN try_add(ts, i) END
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


# INTERVAL '2 quarter' becomes INTERVAL '6 month': Spark reads no quarters
_QUARTERS = "concat(3 * CAST(substring_index({0}, ' ', 1) AS INT), ' month')"
TIMES: Mapping[str, str] = {
    "literal INTERVAL": f"CAST((CASE WHEN {{0}} LIKE '%quarter%' THEN {_QUARTERS} ELSE {{0}} END) AS INTERVAL)",
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
    **_both("dayname", f"element_at(array({WEEKDAYS}), dayofweek({{0}}))"),
    **_both("monthname", f"element_at(array({MONTHS}), month({{0}}))"),
    "epoch_us TIMESTAMP": _MOMENT,
    "epoch_ms TIMESTAMP": f"({_MOMENT} DIV 1000 + ({_MOMENT} % 1000) DIV 500)",
    "epoch_ms DATE": f"({_DAYS} * 86400000L)",
    "epoch_us DATE": f"try_multiply({_DAYS}, {_DAY}L)",
}


_ANY = {
    **{f"{sign} DOUBLE": f"(({{0}} + 0.0D) {sign} ({{1}} + 0.0D))" for sign in SIGNS},
    "between DOUBLE": "(({0} + 0.0D) BETWEEN {1} AND {2})",
    "in DOUBLE": "(({0} + 0.0D) IN ({1*}))",
    "is_distinct": "(NOT ({0} <=> {1}))",
    "is_not_distinct": "({0} <=> {1})",
    "is_distinct DOUBLE": "(NOT (({0} + 0.0D) <=> ({1} + 0.0D)))",
    "is_not_distinct DOUBLE": "(({0} + 0.0D) <=> ({1} + 0.0D))",
    "order DOUBLE": "({0} + 0.0D)",
    "greatest": "greatest({*})",
    "least": "least({*})",
    "min": "MIN({0})",
    "max": "MAX({0})",
    "keyed_hash": "xxhash64({1}, {0})",
    "gather": "/*+ REPARTITION({0}) */ {*}",  # one shuffle, by unit, instead of one by pair and one by unit
    "lookup": "element_at(array({1*}), CAST({0} AS INT))",
}

# Part 3: the dialects.
SPARK = Dialect(
    "Spark",
    "spark",
    MappingProxyType({**COMPUTED_AS_SPARK, **_ANY, **list_windows("CAST(@ AS INT)"), **NUMBERS, **TEXTS, **TIMES}),
    parameter=":p{n}",
    lacks=frozenset(["UTINYINT", "USMALLINT", "UINTEGER"]),
)


_LEFT_OUT = frozenset(
    ["sum_sorted", "avg_sorted", "sqrt", "round", "sign", "/", "%", "signbit", "dayname", "monthname"]
)


DATABRICKS = Dialect(
    "Databricks",
    "databricks",
    MappingProxyType(
        {
            **{
                name: form
                for name, form in SPARK.forms.items()
                if name.split()[0] not in _LEFT_OUT and "INTERVAL" not in name.split()[1:] and "epoch" not in name
            },
            "% INTEGER INTEGER": SPARK.forms["% INTEGER INTEGER"],
            "column TIMESTAMP": "CAST({0} AS TIMESTAMP_NTZ)",
        }
    ),
    parameter=":p{n}",
    lacks=SPARK.lacks,
    types=MappingProxyType({"TIMESTAMP": "TIMESTAMP_NTZ"}),
)
