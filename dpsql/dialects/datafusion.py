"""DataFusion: text and whole numbers compare as in DuckDB; NaN and -0.0 do not, and whole numbers wrap.

Arrow orders NaN by its sign and its bits, and a Parquet file's least and greatest values leave it out. Comparisons of
DOUBLE therefore make every NaN one and -0.0 zero first, and blocks of files are not skipped for them.

This file has two parts: (1) numbers (`NUMBERS`) and texts (`TEXTS`); (2) dates and time stamps (`TIMES`), counted as
whole numbers of days or microseconds since 1970, and the dialect. DataFusion's own calendar ends before what a file may
hold. The Gregorian calendar repeats every 400 years, so parts of a date are those of the like day in the years 1770 to
2169, which have time stamps in nanoseconds, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from dpsql.dialects.base import (
    BLANKS,
    COMPUTED_AS_SPARK,
    FORMATS,
    MICROSECONDS,
    MONTHS,
    SIGNS,
    WEEKDAYS,
    Dialect,
    fold_case,
    list_windows,
)

NAN, _INFINITY = "CAST('NaN' AS DOUBLE)", "CAST('Infinity' AS DOUBLE)"
EVEN_NAN = f"nanvl(CAST({{0}} AS DOUBLE) + 0e0, {NAN})"  # one zero and one NaN, the greatest of all
_WIDE = "CAST({0} AS DECIMAL(20, 0))"
_NEGATIVE = f"TRY_CAST(-{_WIDE} AS {{type}})"
_WHOLE = "({0} - {0} % 1)"
_DIGITS = range(-9, 16)


def _fitting(sign: str) -> str:
    # a + b becomes TRY_CAST(CAST(a AS DECIMAL(20, 0)) + CAST(b AS DECIMAL(20, 0)) AS BIGINT), NULL where it is beyond
    return f"TRY_CAST({_WIDE} {sign} {_WIDE.replace('{0}', '{1}')} AS {{type}})"


def _rounded(digits: int) -> str:
    """Return the form of ROUND(DOUBLE, digits) as DuckDB computes it, by a power of ten."""
    power = f"{10.0 ** abs(digits)!r}".removesuffix(".0") + ("" if "e" in f"{10.0 ** abs(digits)!r}" else "e0")
    first, second = ("*", "/") if digits >= 0 else ("/", "*")
    rounded = f"round({{0}} {first} {power}) {second} {power}"
    return f"(CASE WHEN abs({rounded}) < {_INFINITY} THEN {rounded} ELSE {{0}} END)"


# CAST(2.5 AS BIGINT) is 2 in DuckDB, of two whole numbers as near the even one; DataFusion cuts the fraction off
_EVEN = "(CASE WHEN abs({0} - trunc({0})) = 0.5e0 THEN 2e0 * round({0} / 2e0) ELSE round({0}) END)"
_SIGN = "(CASE WHEN {0} IS NULL THEN NULL WHEN isnan({0}) OR {0} = 0e0 THEN 0 WHEN {0} > 0e0 THEN 1 ELSE -1 END)"

NUMBERS: Mapping[str, str] = {
    **{f"{sign} INTEGER INTEGER": _fitting(sign) for sign in ("+", "-", "*")},
    "// INTEGER INTEGER": f"(CASE WHEN {{1}} = -1 THEN {_NEGATIVE} ELSE {{0}} / NULLIF(NULLIF({{1}}, 0), -1) END)",
    "% INTEGER INTEGER": "(CASE WHEN {1} = -1 THEN 0 * NULLIF({0}, {least}) ELSE {0} % NULLIF(NULLIF({1}, 0), -1) END)",
    **{
        f"{sign} {first} {second}": f"TRY_CAST({{0}} {sign} {'NULLIF({1}, 0)' if sign == '%' else '{1}'} AS {{type}})"
        for sign in ("+", "-", "*", "%")
        for first, second in (("DECIMAL", "DECIMAL"), ("DECIMAL", "INTEGER"), ("INTEGER", "DECIMAL"))
    },
    **{f"{sign} DOUBLE DOUBLE": f"({{0}} {sign} {{1}})" for sign in "/%"},
    "neg INTEGER": _NEGATIVE,
    "abs INTEGER": f"(CASE WHEN {{0}} < 0 THEN {_NEGATIVE} ELSE {{0}} END)",
    "~ INTEGER": "({greatest} + {least} - {0})",
    "keyed_hash INTEGER": "xxhash64({1}, CAST({0} AS BIGINT))",
    "sign DOUBLE": f"CAST({_SIGN} AS TINYINT)",
    "isnan DOUBLE": "isnan({0})",
    "isnan FLOAT": "isnan({0})",
    "signbit DOUBLE": "(CAST({0} AS VARCHAR) LIKE '-%')",
    "signbit FLOAT": "(CAST({0} AS VARCHAR) LIKE '-%')",
    **{f"{name} DOUBLE": f"{name}({{0}})" for name in ("floor", "ceil", "round")},
    "trunc DOUBLE": "(CASE WHEN {0} < 0e0 THEN ceil({0}) ELSE floor({0}) END)",
    "floor DECIMAL": f"CAST({_WHOLE} - (CASE WHEN {{0}} % 1 < 0 THEN 1 ELSE 0 END) AS {{type}})",
    "ceil DECIMAL": f"CAST({_WHOLE} + (CASE WHEN {{0}} % 1 > 0 THEN 1 ELSE 0 END) AS {{type}})",
    "trunc DECIMAL": f"CAST({_WHOLE} AS {{type}})",
    "round DECIMAL INTEGER": "CAST(round({0}, LEAST({1}, {scale})) AS {type})",
    **{f"round.{digits} DOUBLE": _rounded(digits) for digits in _DIGITS},
    "sqrt DOUBLE": f"sqrt(CASE WHEN {{0}} < 0e0 THEN {NAN} ELSE {{0}} END)",
    "sum DECIMAL": "SUM(CAST({0} AS DECIMAL(28, {scale})))",
    "cast INTEGER DECIMAL": f"TRY_CAST({_WIDE} AS {{type}})",
    "cast INTEGER TEXT": "CAST({0} AS VARCHAR)",
    "cast BOOLEAN DOUBLE": "CAST(CAST({0} AS INT) AS DOUBLE)",
    "cast BOOLEAN DECIMAL": "TRY_CAST(CAST({0} AS INT) AS {type})",
    "cast BOOLEAN TEXT": "CAST({0} AS VARCHAR)",
    "cast DECIMAL INTEGER": "TRY_CAST(round({0}) AS {type})",
    "cast DECIMAL TEXT": "CAST({0} AS VARCHAR)",
    "cast DOUBLE INTEGER": f"TRY_CAST(TRY_CAST({_EVEN} AS BIGINT) AS {{type}})",
    "cast DOUBLE BOOLEAN": "({0} <> 0e0)",
}


_LENGTH = "CAST(character_length({0}) AS BIGINT)"
_START = f"(CASE WHEN {{1}} > 0 THEN {{1}} - 1 WHEN {{1}} < 0 THEN {_LENGTH} + {{1}} ELSE -1 END)"  # from 0
_END = f"({_START} + {{2}})"
_FIRST, _LAST = f"greatest(least({_START}, {_END}), 0)", f"greatest({_START}, {_END}, 0)"
_LEFT = f"(CASE WHEN {{1}} >= 0 THEN {{1}} ELSE greatest({_LENGTH} + {{1}}, 0) END)"
_RIGHT = f"(CASE WHEN {{1}} >= 0 THEN greatest({_LENGTH} - {{1}}, 0) ELSE 0 - {{1}} END)"
# split_part(x, '', 2) is the second letter of x, and split_part(x, '', -1) the last one
_AT = f"(CASE WHEN {{2}} > 0 THEN {{2}} WHEN {{2}} < 0 THEN {_LENGTH} + {{2}} + 1 ELSE 0 END)"
_LETTER = f"(CASE WHEN {_AT} > 0 THEN substr({{0}}, greatest({_AT}, 1), 1) ELSE '' END)"


_CASES = fold_case(
    "translate({0}, '@', '#')",
    ascii_alone="octet_length({0}) = character_length({0})",
    calls=("lower({0})", "upper({0})"),
)
TEXTS: Mapping[str, str] = {
    **_CASES,
    "keyed_hash TEXT": "xxhash64({1}, {0})",  # one of DataFusion's functions for Spark, which the engine registers
    "md5 TEXT": "md5({0})",
    "sha256 TEXT": "encode(sha256({0}), 'hex')",
    "ilike_backslash TEXT": f"({_CASES['lower TEXT']} LIKE {_CASES['lower TEXT'].replace('{0}', '{1}')})",
    "||": "({0} || {1})",
    "concat": "concat({*})",
    "length TEXT": _LENGTH,
    "bit_length TEXT": "CAST(octet_length({0}) AS BIGINT) * 8",
    **{
        f"{name} {words}": f"{function}({{0}}, {chars})"
        for name, function in (("trim", "btrim"), ("ltrim", "ltrim"), ("rtrim", "rtrim"))
        for words, chars in (("TEXT", f"'{BLANKS}'"), ("TEXT TEXT", "{1}"))
    },
    "substring TEXT INTEGER": f"substr({{0}}, greatest({_START}, 0) + 1)",
    "substring TEXT INTEGER INTEGER": f"substr({{0}}, {_FIRST} + 1, {_LAST} - {_FIRST})",
    "left TEXT": f"substr({{0}}, 1, {_LEFT})",
    "right TEXT": f"substr({{0}}, {_RIGHT} + 1)",
    "starts_with TEXT": "starts_with({0}, {1})",
    "suffix TEXT": "ends_with({0}, {1})",
    "contains TEXT": "(strpos({0}, {1}) > 0)",
    "strpos TEXT": "CAST(strpos({0}, {1}) AS BIGINT)",
    "split_part TEXT": f"(CASE WHEN {{0}} IS NULL THEN NULL WHEN {{2}} = 0 THEN '' WHEN {{1}} = '' THEN {_LETTER} "
    "ELSE split_part({0}, {1}, COALESCE(NULLIF({2}, 0), 1)) END)",
}


# Part 2: dates and time stamps.
_CYCLE, _DAY = 146_097, MICROSECONDS["day"]  # days of 400 years
_HALF = _CYCLE // 2
_DAYS = "CAST(arrow_cast({0}, 'Int32') AS BIGINT)"
_MOMENT = "arrow_cast({0}, 'Int64')"
_LAST_MOMENT = 9_223_372_036_854_775_806
_FIRST_MOMENT = -9_223_372_022_400_000_000  # DuckDB's first time stamp


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
    # a day of 3026 becomes the same day of 1826, three times 400 years before
    return f"arrow_cast(CAST({_remainder(f'({days} + {_HALF})', _CYCLE)} - {_HALF} AS INT), 'Date32')"


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
    cycles = _quotient(f"({days} + {_HALF})", _CYCLE)  # how many times 400 years a date is from its like day
    return f"({_part(part, days)} + 400 * {cycles})"


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


# the first day of the month of a day in 3026 is as many days before it as in the like year 1826
def _start(unit: str, days: str) -> str:
    """Return the number of the first day of a week, month, quarter or year."""
    like = _like(days)
    return f"({days} - (arrow_cast({like}, 'Int32') - arrow_cast(CAST(date_trunc('{unit}', {like}) AS DATE), 'Int32')))"


def _second(form: str) -> str:
    return form.replace("{0}", "{1}")


def _truncated() -> dict[str, str]:
    forms: dict[str, str] = {}
    for unit, width in MICROSECONDS.items():
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
    for unit, width in MICROSECONDS.items():
        if unit != "day":
            begun = f"CAST({_quotient(_MOMENT, width)} AS DECIMAL(20, 0))"
            forms[f"date_diff.{unit} TIMESTAMP"] = f"TRY_CAST({_second(begun)} - {begun} AS BIGINT)"
        forms[f"date_sub.{unit} TIMESTAMP"] = f"({apart} / {width})"
    return forms


_NUMBER, _UNIT = "TRY_CAST(split_part({1}, ' ', 1) AS BIGINT)", "split_part({1}, ' ', 2)"
_STEPS = f"(CASE {_UNIT} WHEN 'month' THEN 1 WHEN 'quarter' THEN 3 WHEN 'year' THEN 12 ELSE 0 END * {_NUMBER})"
_WIDTHS = " ".join(f"WHEN '{unit}' THEN {width}" for unit, width in {**MICROSECONDS, "week": 7 * _DAY}.items())
_WIDTH = f"(CASE {_UNIT} {_WIDTHS} ELSE 0 END)"


def _moved(sign: str) -> dict[str, str]:
    """Return the forms of a date or time stamp plus days or an INTERVAL, whose text is "3 month"."""
    forms = {f"{sign} DATE INTEGER": _as_date(f"({_DAYS} {sign} {{1}})")}
    for family, days in (("DATE", _DAYS), ("TIMESTAMP", _OF_MOMENT)):
        # ts + INTERVAL 1 MONTH becomes the day of that number in the next month, or its last;
        # months are counted from the year 2000 in cycles of 400 years, which make_date takes
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


def _name(names: str, position: str) -> str:
    return f"array_element(make_array({names}), {position})"


def _formatted() -> dict[str, str]:
    """Return the forms of STRFTIME, put together of what each sign of a format stands for."""
    forms: dict[str, str] = {}
    for family, days in (("DATE", _DAYS), ("TIMESTAMP", _OF_MOMENT)):
        year, month = _year(days), _part("month", days)
        weekday = _name(WEEKDAYS, f"{_part('dow', days)} + 1")
        clock = ("hour", "minute", "second")
        signs = {
            "Y": f"(CASE WHEN {year} BETWEEN 0 AND 9999 THEN {_padded(year, 4)} ELSE CAST({year} AS VARCHAR) END)",
            "m": _padded(month, 2),
            "d": _padded(_part("day", days), 2),
            "j": _padded(_part("doy", days), 3),
            "B": _name(MONTHS, month),
            "b": f"substr({_name(MONTHS, month)}, 1, 3)",
            "A": weekday,
            "a": f"substr({weekday}, 1, 3)",
            **{
                sign: _padded(_CLOCK[part], 2) if family == "TIMESTAMP" else "'00'"
                for sign, part in zip("HMS", clock, strict=True)
            },
        }
        for layout in FORMATS:
            words = re.split(r"%(\w)", layout)
            parts = [signs[word] if at % 2 else f"'{word}'" for at, word in enumerate(words) if word]
            fits = "{0} IS NOT NULL"
            if family == "DATE" and any(sign in layout for sign in ("%H", "%M", "%S")):
                fits = f"{days} BETWEEN -106751991 AND 106751991"  # days that have a time stamp
            forms[f"strftime.{layout} {family}"] = f"(CASE WHEN {fits} THEN {' || '.join(parts)} END)"
    return forms


def _of_days() -> dict[str, str]:
    forms: dict[str, str] = {}
    for family, days in (("DATE", _DAYS), ("TIMESTAMP", _OF_MOMENT)):
        forms |= {f"date_part.{part} {family}": form for part, form in _parts(days).items()}
        forms[f"dayname {family}"] = _name(WEEKDAYS, f"{_part('dow', days)} + 1")
        forms[f"monthname {family}"] = _name(MONTHS, _part("month", days))
        in_next = f"({days} - {_part('day', days)} + 32)"  # a day of the month after
        forms[f"last_day {family}"] = _as_date(f"({in_next} - {_part('day', in_next)})")
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
    "cast TIMESTAMP DATE": _as_date(_OF_MOMENT),
    "cast DATE TIMESTAMP": _midnight(_DAYS),
    "cast DATE TEXT": _printed(_DAYS),
    "cast TIMESTAMP TEXT": f"({_printed(_OF_MOMENT)} || ' ' || {_clock()})",
    "epoch_us TIMESTAMP": _MOMENT,
    "epoch_ms TIMESTAMP": f"({_MOMENT} / 1000 + ({_MOMENT} % 1000) / 500)",
    "epoch_ms DATE": f"({_DAYS} * 86400000)",
    "epoch_us DATE": f"(CASE WHEN {_DAYS} BETWEEN -106751991 AND 106751991 THEN {_DAYS} * {_DAY} END)",
}


_COMPARED = ("BOOLEAN", "INTEGER", "DECIMAL", "DATE", "TIMESTAMP", "TEXT")
_OTHER = EVEN_NAN.replace("{0}", "{1}")
_FOUND = f"(SELECT {EVEN_NAN.replace('{0}', 'c1')} FROM {{1}} AS dpsql_found)"  # noqa: S608 - a form, of no one's text
_ARRAY_LENGTH = "CAST(array_length({0}) AS BIGINT)"


def _choices() -> dict[str, str]:
    forms: dict[str, str] = {}
    for name, word in (("greatest", "max"), ("least", "min")):
        forms |= {f"{name} {family}": f"{name}({{*}})" for family in _COMPARED}
        forms |= {f"{word} {family}": f"{word.upper()}({{0}})" for family in _COMPARED}
        first = f"{{1}} IS NULL OR {EVEN_NAN} {'>' if word == 'max' else '<'}= {_OTHER}"  # of equal ones the first
        forms[f"{name} DOUBLE DOUBLE"] = f"(CASE WHEN {first} THEN {{0}} ELSE {{1}} END)"
    # max(x) becomes COALESCE(NaN if any x is NaN, max of the numbers); min(x) the other way round: NaN only if all are
    number = "CASE WHEN NOT isnan({0}) THEN {0} + 0 END"  # MIN and MAX of DataFusion lose NaN, or what is beside it
    some = f"CASE WHEN bool_or(isnan({{0}})) THEN {NAN} END"
    for family in ("DOUBLE", "FLOAT"):
        forms[f"max {family}"] = f"CAST(COALESCE({some}, MAX({number})) AS {{type}})"
        forms[f"min {family}"] = f"CAST(COALESCE(MIN({number}), {some}) AS {{type}})"
    return forms


def _among(value: str, found: str) -> str:
    """Return the form of IN (SELECT ...): DataFusion's own gives FALSE for NULL where it is part of a condition."""
    has_null = "(SELECT COUNT(*) FROM {1} AS dpsql_found WHERE c1 IS NULL) > 0"
    has_row = "(SELECT COUNT(*) FROM {1} AS dpsql_found) > 0"
    unsure = f"{has_null} OR ({{0}} IS NULL AND {has_row})"
    return f"(CASE WHEN {value} IN {found} THEN TRUE WHEN {unsure} THEN NULL ELSE FALSE END)"


DATAFUSION = Dialect(
    "DataFusion",
    "duckdb",
    MappingProxyType(
        {
            **COMPUTED_AS_SPARK,
            **{f"{sign} DOUBLE": f"({EVEN_NAN} {sign} {_OTHER})" for sign in SIGNS},
            "= FLOAT": f"({EVEN_NAN} = {_OTHER})",
            "is_distinct": "({0} IS DISTINCT FROM {1})",
            "is_not_distinct": "({0} IS NOT DISTINCT FROM {1})",
            "is_distinct DOUBLE": f"({EVEN_NAN} IS DISTINCT FROM {_OTHER})",
            "is_not_distinct DOUBLE": f"({EVEN_NAN} IS NOT DISTINCT FROM {_OTHER})",
            **{f"in {family}": "({0} IN ({1*}))" for family in _COMPARED},
            **{f"in_query {family}": _among("{0}", "{1}") for family in _COMPARED},
            "in_query DOUBLE": _among(EVEN_NAN, _FOUND),
            "order DOUBLE": EVEN_NAN,
            "lookup": "array_element(make_array({1*}), {0})",
            "list": "array_sort(array_agg(struct({*})))",
            "list_rows": "unnest({0})",
            "list_positions": f"unnest(range(1, {_ARRAY_LENGTH} + 1))",
            "list_length": _ARRAY_LENGTH,
            "list_field": "get_field({0}, 'c{1}')",  # as struct names them
            **_choices(),
            **list_windows("@"),
            **NUMBERS,
            **TEXTS,
            **TIMES,
        }
    ),
    parameter="$p{n}",
    lacks=frozenset(["SEMI", "ANTI", "IN", "//", "condition as value", "correlated IN", "min OVER", "max OVER"]),
    types=MappingProxyType(
        {
            "TIMESTAMP": "TIMESTAMP(6)",
            "UTINYINT": "TINYINT UNSIGNED",
            "USMALLINT": "SMALLINT UNSIGNED",
            "UINTEGER": "INT UNSIGNED",
        }
    ),
)
