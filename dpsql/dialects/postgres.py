"""PostgreSQL: text is compared by its bytes, and arithmetic that could overflow is done in numbers that cannot.

This file has three parts: (1) dates and time stamps (`TIMES`): the calendar ends before DuckDB's, so that what is
beyond is looked for first; (2) numbers (`NUMBERS`); (3) texts (`TEXTS`), and the dialect.

A CASE of PostgreSQL computes only the branch that it takes, except for constant branches, which the planner may compute
earlier. In every form here the condition and the branch name the same operands, so that both are constant or neither
is, and the planner evaluates the condition first. A branch with fewer operands cannot fail.

PostgreSQL fails where a result does not fit, so that forms look before they compute. What is computed of integers and
decimals is computed in NUMERIC, which holds it all, then cut to the first values beyond the type, and those are NULL.
DOUBLE is IEEE's in DuckDB; PostgreSQL refuses to overflow or underflow, so that these cases are found before, by
products and quotients that are scaled into the middle of the range, exactly.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from dpsql.dialects.base import (
    ALIKE,
    BLANKS,
    FORMATS,
    MICROSECONDS,
    SIGNS,
    Dialect,
    fit_type,
    list_lower_cases,
    list_upper_cases,
    list_windows,
)

_FINITE = "isfinite({0})"
_FIRST, _LAST = "TIMESTAMP '4700-01-01 BC'", "TIMESTAMP '294200-01-01'"  # between which all is computed
_MICROS = {**MICROSECONDS, "week": 604_800_000_000}
_UNITS = (*_MICROS, "month", "quarter", "year")
_PARTS = ("day", "dow", "isodow", "doy", "quarter", "week", "month", "hour", "minute")


def _when(condition: str, value: str) -> str:
    return f"(CASE WHEN {condition} THEN {value} END)"


def _fit_bigint(value: str) -> str:
    """Return a difference as a whole number, NULL where it does not fit."""
    return fit_type(value, "bigint")


def _count(value: str) -> str:
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


# time stamps end in DuckDB where 64 bits of microseconds since 1970 do, and in PostgreSQL 29 years later
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


# date_trunc('week', ts) becomes CASE WHEN ts >= TIMESTAMP '4700-01-01 BC' OR NOT isfinite(ts) THEN date_trunc(...) END,
# because what the first days are cut to is before the calendar
def _trunc(unit: str, operand: str) -> str:
    guard = f"{operand} >= {_FIRST} OR NOT isfinite({operand})"
    return f"(CASE WHEN {guard} THEN date_trunc('{unit}', {operand}) END)"


def _parts(family: str) -> dict[str, str]:
    forms = {
        part: _count(f"EXTRACT({part} FROM {{0}})")
        for part in _PARTS
        if family == "TIMESTAMP" or part not in {"hour", "minute"}
    }
    forms["year"] = _count(_year())
    forms["isoyear"] = _count(_year("isoyear"))
    week = "EXTRACT(week FROM {0})"
    forms["yearweek"] = _count(
        f"{_year('isoyear')} * 100 + CASE WHEN {_year('isoyear')} > 0 THEN {week} ELSE -{week} END"
    )
    forms["century"] = _count("EXTRACT(century FROM {0})")
    forms["millennium"] = _count("EXTRACT(millennium FROM {0})")
    forms["era"] = _count("CASE WHEN EXTRACT(year FROM {0}) > 0 THEN 1 ELSE 0 END")
    forms["decade"] = _count(f"trunc({_year()} / 10)")
    if family == "TIMESTAMP":
        forms["second"] = _count("floor(EXTRACT(second FROM {0}))")
        forms["millisecond"] = _count("floor(CAST(EXTRACT(microseconds FROM {0}) AS bigint) / 1000)")
        forms["microsecond"] = _count("EXTRACT(microseconds FROM {0})")
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
            forms[f"date_diff.{unit} TIMESTAMP TIMESTAMP"] = _when(near, _fit_bigint(f"{last} - {first}"))
        forms[f"date_sub.{unit} TIMESTAMP TIMESTAMP"] = _when(
            near, _fit_bigint(f"trunc(({micros[1]} - {micros[0]}) / {width})")
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
        # ts + i becomes CASE WHEN NOT isfinite(ts) THEN ts
        #                     WHEN (the sum of their seconds is in the calendar) THEN ts + i, or NULL from _END on END
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


_SIGNS_OF_TO_CHAR = {
    "Y": "YYYY",
    "m": "MM",
    "d": "DD",
    "j": "DDD",
    "b": "Mon",
    "B": "FMMonth",
    "a": "Dy",
    "A": "FMDay",
    "H": "HH24",
    "M": "MI",
    "S": "SS",
}


def _formats() -> dict[str, str]:
    """Return the forms of STRFTIME; before the year 1, to_char has another year, and DuckDB writes it without zeros."""
    year = f"CAST({_year()} AS integer)"
    early = f"CASE {year} WHEN 0 THEN '0000' ELSE CAST({year} AS text) END"
    forms = {}
    for ours in FORMATS:
        parts = re.split(r"%(\w)", ours.replace("T", '"T"'))
        theirs = "".join(_SIGNS_OF_TO_CHAR[part] if at % 2 else part for at, part in enumerate(parts))
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
    "cast DATE TEXT": "(replace(CAST({0} AS text), ' BC', ' (BC)') COLLATE \"C\")",
    "cast TIMESTAMP TEXT": "(regexp_replace(CAST({0} AS text), '^(\\S+) (\\S+) BC$', '\\1 (BC) \\2') COLLATE \"C\")",
}


# Part 2: numbers.
_DOUBLE = "double precision"
_NAN, _INFINITY = f"'NaN'::{_DOUBLE}", f"'Infinity'::{_DOUBLE}"
_ONE = f"1::{_DOUBLE}"
_GREATEST = math.nextafter(math.inf, 0)
_LARGEST = f"{_GREATEST!r}::{_DOUBLE}"
_DIGITS = range(-9, 16)  # to which a DOUBLE is rounded: powers of ten that are DOUBLE and far from its ends


def _power(exponent: int) -> str:
    """Return a power of two as a DOUBLE, exactly."""
    return f"{math.ldexp(1.0, exponent)!r}::{_DOUBLE}"


def _half_away(value: str) -> str:
    """Return a DOUBLE rounded to a whole number, halves away from zero, with the sign of zero."""
    rest = f"abs({value} - trunc({value})) >= 0.5"
    return f"(trunc({value}) + CASE WHEN {rest} THEN sign({value}) ELSE '-0'::{_DOUBLE} END)"


def _careful(sign: str, *, quick: str, slow: str) -> str:
    """Return the form of an operation of IEEE's: as it is while the operands are `quick`, else by the `slow` cases.

    These name the operands a and b, of a subquery: so the form itself names each only three times, and can be nested.
    """
    # x + y becomes CASE WHEN both are small THEN x + y
    #                    ELSE (SELECT CASE WHEN (it overflows) THEN ... ELSE a + b END FROM (SELECT x AS a, y AS b)) END
    operands = "(SELECT {0} AS a, {1} AS b OFFSET 0) AS dpsql_operands"
    cases = f"SELECT CASE {slow} ELSE a {sign} b END FROM {operands}"  # noqa: S608 - a form, of no one's text
    return f"(CASE WHEN {quick} THEN {{0}} {sign} {{1}} ELSE ({cases}) END)"


_ENDLESS = f"abs(a) > {_LARGEST} OR abs(b) > {_LARGEST}"
_SIGNS = "sign(a) * sign(b)"
_TAME = " AND ".join(f"abs({each}) BETWEEN {_power(-500)} AND {_power(500)}" for each in ("{0}", "{1}"))


# x + y cannot overflow where both are below 2**1022; of others it does where x / 2**10 + y / 2**10 >= 2**1014
def _sum(sign: str) -> str:
    small = f"abs({{0}}) <= {_power(1022)} AND abs({{1}}) <= {_power(1022)}"
    parts = (f"sign({each}) * GREATEST(abs({each}), {_power(-900)}) * {_power(-10)}" for each in "ab")
    scaled = f"abs({f' {sign} '.join(parts)})"
    slow = f"WHEN {_ENDLESS} THEN a {sign} b WHEN {scaled} >= {_power(1014)} THEN sign(a) * {_INFINITY}"
    return _careful(sign, quick=small, slow=slow)


def _product() -> str:
    # a * b overflows where (a / 2**512) * (b / 2**512) >= 1, and underflows where it does by 2**1075
    large = " * ".join(f"(GREATEST(abs({each}), {_power(-24)}) * {_power(-512)})" for each in "ab")
    lesser = f"LEAST(abs(a), abs(b), {_power(-500)}) * {_power(600)}"
    greater = f"LEAST(GREATEST(abs(a), abs(b), {_power(-600)}), {_ONE})"
    slow = (
        f"WHEN a = 0 OR b = 0 OR {_ENDLESS} THEN a * b WHEN {large} >= 1 THEN {_SIGNS} * {_INFINITY} "
        f"WHEN {lesser} * {greater} <= {_power(-475)} THEN {_SIGNS} * 0"
    )
    return _careful("*", quick=_TAME, slow=slow)


def _quotient() -> str:
    """Return the form of a division; what the four scaled quotients need not see is cut to where they hold."""
    sign_of_zero = f"CASE WHEN CAST(b AS text) = '-0' THEN -{_ONE} ELSE {_ONE} END"
    by_zero = f"CASE WHEN a = 0 OR a = {_NAN} THEN {_NAN} ELSE sign(a) * {_INFINITY} * {sign_of_zero} END"
    overflows = (
        f"CASE WHEN abs(a) > {_power(500)} THEN abs(b) < 1 AND "
        f"abs(a) * {_power(-600)} / (LEAST(abs(b), {_ONE}) * {_power(474)}) >= {_power(-50)} "
        f"ELSE abs(b) < {_power(-500)} AND "
        f"GREATEST(abs(a), {_power(-60)}) / (LEAST(abs(b), {_power(-500)}) * {_power(574)}) >= {_power(450)} END"
    )
    underflows = (
        f"CASE WHEN abs(b) > {_power(500)} THEN abs(a) < 1 AND "
        f"LEAST(abs(a), {_ONE}) * {_power(574)} / (abs(b) * {_power(-600)}) <= {_power(99)} "
        f"ELSE abs(a) < {_power(-500)} AND "
        f"LEAST(abs(a), {_power(-500)}) * {_power(600)} / GREATEST(abs(b), {_power(-1)}) <= {_power(-475)} END"
    )
    slow = (
        f"WHEN b = 0 THEN {by_zero} WHEN a = 0 OR {_ENDLESS} THEN a / b "
        f"WHEN {overflows} THEN {_SIGNS} * {_INFINITY} WHEN {underflows} THEN {_SIGNS} * 0"
    )
    return _careful("/", quick=_TAME, slow=slow)


def _rounded(digits: int) -> str:
    """Return the form of ROUND(DOUBLE, digits) as DuckDB computes it, by a power of ten."""
    ten = 10.0 ** abs(digits)
    power = f"{ten!r}::{_DOUBLE}"
    if digits < 0:
        scaled = f"{_half_away(f'({{0}} / {power})')} * {power}"
        most = _last(lambda value: value / ten * ten, _GREATEST)
        small = f"abs({{0}}) < 1e-200::{_DOUBLE}"
        return f"(CASE WHEN {small} THEN {{0}} * 0 WHEN abs({{0}}) <= {most!r}::{_DOUBLE} THEN {scaled} ELSE {{0}} END)"
    most = _last(lambda value: value * ten, _GREATEST / ten)
    scaled = f"{_half_away(f'({{0}} * {power})')} / {power}"
    return f"(CASE WHEN abs({{0}}) <= {most!r}::{_DOUBLE} THEN {scaled} ELSE {{0}} END)"


def _last(computed: Callable[[float], float], near: float) -> float:
    """Return the greatest DOUBLE for which something that grows with it is finite; it is not far from `near`."""
    while math.isinf(computed(near)):
        near = math.nextafter(near, 0)
    while near < _GREATEST and math.isfinite(computed(math.nextafter(near, math.inf))):
        near = math.nextafter(near, math.inf)
    return near


def _added() -> str:
    """Return the form of a SUM of DOUBLE in the order of its values; with any near the ends, of all 2**100 as small."""
    small = f"1e290::{_DOUBLE}"
    less = f"sign({{0}}) * GREATEST(abs({{0}}), {_power(-900)}) * {_power(-100)}"
    scaled = f"CASE WHEN abs({{0}}) <= {_LARGEST} THEN {less} END"
    # sum_sorted(x) becomes SUM(x ORDER BY x) or, with any x beyond 1e290, 2**100 * SUM(x / 2**100 ORDER BY x)
    minus = f"(bool_or({{0}} = -{_INFINITY}) OR SUM(LEAST({scaled}, 0) ORDER BY {{0}}) <= -{_power(924)})"
    plus, total = f"bool_or({{0}} = {_INFINITY})", f"SUM({scaled} ORDER BY {{0}})"
    large = (
        f"CASE WHEN bool_or({{0}} = {_NAN}) OR ({minus} AND {plus}) THEN {_NAN} WHEN {minus} THEN -{_INFINITY} "
        f"WHEN {plus} OR {total} >= {_power(924)} THEN {_INFINITY} ELSE {total} * {_power(100)} END"
    )
    plain = f"SUM(CASE WHEN abs({{0}}) < {small} THEN {{0}} END ORDER BY {{0}})"
    return f"(CASE WHEN bool_or(abs({{0}}) >= {small}) THEN {large} ELSE {plain} END)"


_ADDED = _added()
_VANISHES = f"abs(total) < 1e-290 AND total <> 0 AND abs(total) * {_power(600)} / number <= {_power(-475)}"
_MEAN = f"CASE WHEN {_VANISHES} THEN sign(total) * 0 ELSE total / NULLIF(number, 0) END"
_SUMS = f"(SELECT {_ADDED} AS total, COUNT({{0}}) AS number OFFSET 0) AS dpsql_sums"
_FROM_DOUBLE = (
    f"CAST(NULLIF(NULLIF(LEAST(GREATEST({{0}}, -9223372036854777856::{_DOUBLE}), 9223372036854775808::{_DOUBLE}), "
    f"-9223372036854777856::{_DOUBLE}), 9223372036854775808::{_DOUBLE}) AS bigint)"
)

NUMBERS: Mapping[str, str] = {
    **{
        f"{sign} {family} {other}": fit_type(f"CAST({{0}} AS numeric) {sign} CAST({{1}} AS numeric)")
        for sign in "+-*"
        for family in ("INTEGER", "DECIMAL")
        for other in ("INTEGER", "DECIMAL")
    },
    "// INTEGER INTEGER": fit_type("div(CAST({0} AS numeric), NULLIF(CAST({1} AS numeric), 0))"),
    "% INTEGER INTEGER": (  # the quotient of the least number by -1 does not fit, so that DuckDB has no rest either
        "(CASE WHEN {0} <> {least} OR {1} <> -1 "
        "THEN CAST(CAST({0} AS numeric) % NULLIF(CAST({1} AS numeric), 0) AS {type}) END)"
    ),
    "% DECIMAL DECIMAL": fit_type("{0} % NULLIF({1}, 0)"),
    "neg INTEGER": fit_type("-CAST({0} AS numeric)"),
    "abs INTEGER": fit_type("abs(CAST({0} AS numeric))"),
    "abs DECIMAL": "abs({0})",
    "~ INTEGER": "CAST({least} + {greatest} - CAST({0} AS numeric) AS {type})",
    **{f"{sign} INTEGER INTEGER": f"({{0}} {own} {{1}})" for sign, own in (("&", "&"), ("|", "|"), ("xor", "#"))},
    "+ DOUBLE DOUBLE": _sum("+"),
    "- DOUBLE DOUBLE": _sum("-"),
    "* DOUBLE DOUBLE": _product(),
    "/ DOUBLE DOUBLE": _quotient(),
    "neg DOUBLE": "(-{0})",
    "abs DOUBLE": "abs({0})",
    "sign DOUBLE": f"CAST(CASE WHEN {{0}} = {_NAN} THEN 0 ELSE sign({{0}}) END AS {{type}})",
    "sqrt DOUBLE": f"(CASE WHEN {{0}} < 0 THEN {_NAN} ELSE sqrt({{0}}) END)",
    "pi": f"3.141592653589793::{_DOUBLE}",
    "isnan DOUBLE": f"({{0}} = {_NAN})",
    "isnan FLOAT": "({0} = 'NaN'::real)",
    "isinf DOUBLE": f"(abs({{0}}) = {_INFINITY})",
    "isfinite DOUBLE": f"(abs({{0}}) < {_INFINITY})",
    "signbit DOUBLE": "(left(CAST({0} AS text), 1) = '-')",
    "signbit FLOAT": "(left(CAST({0} AS text), 1) = '-')",
    **{f"{name} DOUBLE": f"{name}({{0}})" for name in ("floor", "ceil", "trunc")},
    "round DOUBLE": _half_away("{0}"),
    **{f"round.{digits} DOUBLE": _rounded(digits) for digits in _DIGITS},
    **{f"{name} DECIMAL": f"{name}({{0}})" for name in ("floor", "ceil", "trunc", "round")},
    **{f"{name} INTEGER": f"CAST({{0}} AS {_DOUBLE})" for name in ("floor", "ceil")},
    **{f"{name} INTEGER": "CAST({0} AS {type})" for name in ("trunc", "round")},
    "round DECIMAL INTEGER": "round({0}, LEAST(CAST({1} AS integer), {scale}))",
    "round INTEGER INTEGER": fit_type("round(CAST({0} AS numeric), CAST({1} AS integer))"),
    "sum_sorted DOUBLE": _ADDED,
    "avg_sorted DOUBLE": f"(SELECT {_MEAN} FROM {_SUMS})",  # noqa: S608 - as above
    "greatest_common_divisor INTEGER INTEGER": fit_type("gcd(CAST({0} AS numeric), CAST({1} AS numeric))"),
    "least_common_multiple INTEGER INTEGER": fit_type("lcm(CAST({0} AS numeric), CAST({1} AS numeric))"),
    "cast INTEGER INTEGER": fit_type("CAST({0} AS numeric)"),
    "cast INTEGER DECIMAL": fit_type("CAST({0} AS numeric)"),
    "cast INTEGER DOUBLE": f"CAST({{0}} AS {_DOUBLE})",
    "cast DOUBLE BOOLEAN": "({0} <> 0)",
    "cast BOOLEAN INTEGER": "CAST(CAST({0} AS integer) AS {type})",
    "cast BOOLEAN DOUBLE": f"CAST(CAST({{0}} AS integer) AS {_DOUBLE})",
    "cast DECIMAL INTEGER": fit_type("round({0})"),
    "cast DECIMAL DECIMAL": fit_type("round({0}, {scale})"),
    "cast DECIMAL DOUBLE": (
        f"(CASE WHEN abs({{0}}) * 1e{{scale}} <= 9007199254740992 THEN CAST({{0}} AS {_DOUBLE}) "
        f"ELSE CAST(trunc({{0}}) AS {_DOUBLE}) + CAST({{0}} - trunc({{0}}) AS {_DOUBLE}) END)"
    ),
    "cast FLOAT DOUBLE": f"CAST({{0}} AS {_DOUBLE})",
    "cast DOUBLE INTEGER": fit_type(f"CAST({_FROM_DOUBLE.replace('{0}', 'round({0})')} AS numeric)"),
    "cast DOUBLE DECIMAL": fit_type(
        "CAST("
        + _FROM_DOUBLE.replace("{0}", _half_away(f"(LEAST(GREATEST({{0}}, -1e30), 1e30) * 1e{{scale}}::{_DOUBLE})"))
        + " AS numeric) * 1e-{scale}"
    ),
}


# Part 3: texts.
BY_BYTES = '(CAST({0} AS text) COLLATE "C")'  # CAST takes the blanks from the end of CHAR(n), and citext's own equality


def _folded(operand: str, function: str) -> str:
    """Return the form of LOWER or UPPER: ASCII as in "C", the rest by DuckDB's own table."""
    one, other = (list_lower_cases if function == "lower" else list_upper_cases)()
    ascii_ = f'{function}({operand} COLLATE "C")'
    whole = f"translate({ascii_}, '{one}', '{other}')"
    return f"(CASE WHEN octet_length({operand}) = char_length({operand}) THEN {ascii_} ELSE {whole} END)"


# SUBSTRING counts from the end where the position is negative, and back from it where the length is
_FROM = "(CASE WHEN {1} < 0 THEN char_length({0}) + 1 + {1} ELSE {1} END)"
_AT = "CASE WHEN {2} < 0 THEN {count} + 1 + {2} ELSE {2} END"
# split_part(x, ',', -1) becomes (string_to_array(x, ','))[cardinality(string_to_array(x, ',')) + 1 - 1], or ''
_SPLIT = "string_to_array({0}, {1})"
_LETTER = f"substr({{0}}, CAST({_AT.replace('{count}', 'char_length({0})')} AS integer), 1)"
_SPLIT_PART = f"COALESCE(({_SPLIT})[{_AT.replace('{count}', f'cardinality({_SPLIT})')}], '')"

TEXTS: Mapping[str, str] = {
    **{f"{sign} TEXT TEXT": f'({{0}} {sign} {{1}} COLLATE "C")' for sign in SIGNS},
    "between TEXT TEXT TEXT": '({0} COLLATE "C" BETWEEN {1} AND {2})',
    "collated TEXT": BY_BYTES,
    "canonical TEXT": BY_BYTES,
    "is_distinct TEXT TEXT": '({0} IS DISTINCT FROM {1} COLLATE "C")',
    "is_not_distinct TEXT TEXT": '({0} IS NOT DISTINCT FROM {1} COLLATE "C")',
    "greatest TEXT": 'GREATEST({0} COLLATE "C", {1*})',
    "least TEXT": 'LEAST({0} COLLATE "C", {1*})',
    "min TEXT": 'MIN({0} COLLATE "C")',
    "max TEXT": 'MAX({0} COLLATE "C")',
    "min UUID": 'MIN(CAST({0} AS text) COLLATE "C")',
    "max UUID": 'MAX(CAST({0} AS text) COLLATE "C")',
    "like TEXT TEXT": "({0} COLLATE \"C\" LIKE {1} ESCAPE '')",
    "ilike TEXT TEXT": f"({_folded('{0}', 'lower')} LIKE {_folded('{1}', 'lower')} ESCAPE '')",
    "like_escape TEXT TEXT TEXT": '({0} COLLATE "C" LIKE {1} ESCAPE {2})',
    "ilike_escape TEXT TEXT TEXT": f"({_folded('{0}', 'lower')} LIKE {_folded('{1}', 'lower')} ESCAPE {{2}})",
    "md5 TEXT": "md5({0})",
    "keyed_hash TEXT": 'hashtextextended({0} COLLATE "C", {1})',
    "sha256 TEXT": "encode(sha256(convert_to({0}, 'UTF8')), 'hex')",
    "lower TEXT": _folded("{0}", "lower"),
    "upper TEXT": _folded("{0}", "upper"),
    "length TEXT": "CAST(char_length({0}) AS bigint)",
    "strlen TEXT": "CAST(octet_length({0}) AS bigint)",
    "bit_length TEXT": "CAST(octet_length({0}) * 8 AS bigint)",
    "ascii TEXT": "ascii({0})",
    "unicode TEXT": "(CASE WHEN {0} = '' COLLATE \"C\" THEN -1 ELSE ascii({0}) END)",
    "|| TEXT TEXT": "({0} || {1})",
    "concat": "concat({*})",
    "concat_ws": "concat_ws({*})",
    "translate TEXT TEXT TEXT": "translate({0}, {1}, {2})",
    "replace TEXT TEXT TEXT": 'replace({0} COLLATE "C", {1}, {2})',
    **{f"{name} TEXT": f"{name}({{0}}, '{BLANKS}')" for name in ("ltrim", "rtrim")},
    **{f"{name} TEXT TEXT": f"{name}({{0}}, {{1}})" for name in ("ltrim", "rtrim")},
    "trim TEXT": f"btrim({{0}}, '{BLANKS}')",
    "trim TEXT TEXT": "btrim({0}, {1})",
    "substring TEXT INTEGER": f"substr({{0}}, CAST({_FROM} AS integer))",
    "substring TEXT INTEGER INTEGER": (
        f"substr({{0}}, CAST({_FROM} + LEAST({{2}}, 0) AS integer), CAST(abs({{2}}) AS integer))"
    ),
    **{f"{name} TEXT INTEGER": f"{name}({{0}}, CAST({{1}} AS integer))" for name in ("left", "right")},
    "starts_with TEXT TEXT": 'starts_with({0} COLLATE "C", {1})',
    "suffix TEXT TEXT": '(right({0}, char_length({1})) = {1} COLLATE "C")',
    "contains TEXT TEXT": '(strpos({0} COLLATE "C", {1}) > 0)',
    "strpos TEXT TEXT": 'CAST(strpos({0} COLLATE "C", {1}) AS bigint)',
    "split_part TEXT TEXT INTEGER": (
        f"(CASE WHEN {{0}} IS NULL THEN NULL WHEN {{1}} = '' COLLATE \"C\" THEN {_LETTER} ELSE {_SPLIT_PART} END)"
    ),
    "cast UUID TEXT": BY_BYTES,
    "cast ENUM TEXT": BY_BYTES,
    "cast INTEGER TEXT": BY_BYTES,
    "cast BOOLEAN TEXT": BY_BYTES,
    "cast DECIMAL TEXT": (
        "(CASE WHEN {width} = {scale} THEN regexp_replace(CAST(round({0}, {scale}) AS text), '^(-?)0[.]', '\\1.') "
        'ELSE CAST(round({0}, {scale}) AS text) END COLLATE "C")'
    ),
}


_COMPARED = ("BOOLEAN", "INTEGER", "DECIMAL", "DOUBLE", "DATE", "TIMESTAMP")  # alike in both, NaN above all
_COMPUTED = (*_COMPARED, "TEXT")


_COMPARISONS = {
    **{f"{sign} {kind} {kind}": f"({{0}} {sign} {{1}})" for kind in _COMPARED for sign in SIGNS},
    **{f"between {kind} {kind} {kind}": "({0} BETWEEN {1} AND {2})" for kind in _COMPARED},
    **{f"is_distinct {kind} {kind}": "({0} IS DISTINCT FROM {1})" for kind in _COMPARED},
    **{f"is_not_distinct {kind} {kind}": "({0} IS NOT DISTINCT FROM {1})" for kind in _COMPARED},
    **dict.fromkeys(("= BLOB BLOB", "= FLOAT FLOAT"), "({0} = {1})"),  # of units, and of a column with its zero
    **{f"coalesce {kind}": "COALESCE({*})" for kind in _COMPUTED},
    **{f"{name} {kind}": f"{name.upper()}({{*}})" for name in ("greatest", "least") for kind in _COMPARED},
    **{f"{end} {kind}": f"{end.upper()}({{0}})" for end in ("min", "max") for kind in (*_COMPARED, "FLOAT")},
    "min BOOLEAN": "bool_and({0})",
    "max BOOLEAN": "bool_or({0})",
}
_WINDOWS = list_windows("CAST(@ AS integer)")
_WINDOWS["ntile INTEGER"] = _WINDOWS.pop("ntile")

POSTGRES = Dialect(
    "PostgreSQL",
    "postgres",
    MappingProxyType(
        {
            **_COMPARISONS,
            **ALIKE,
            **_WINDOWS,
            **NUMBERS,
            **TEXTS,
            **TIMES,
            "column DECIMAL": "NULLIF({0}, 'NaN')",
            "not": "(NOT {0})",
            "is_null": "({0} IS NULL)",
            "is_true": "({0} IS TRUE)",
            "is_false": "({0} IS FALSE)",
            "cast NULL": "CAST({0} AS {type})",
            "count_star": "COUNT(*)",
            "count": "COUNT({0})",
            **{f"count_distinct {family}": "COUNT(DISTINCT {0})" for family in (*_COMPUTED, "BLOB")},
            "sum INTEGER": "SUM(CAST({0} AS numeric))",
            "sum DECIMAL": "SUM({0})",
            # hashint8extended folds a number to 32 bits: the upper ones are in the salt of the rest
            "keyed_hash INTEGER": "hashint8extended({0}, hashint8extended(CAST({0} AS bigint) >> 32, {1}))",
            "keyed_hash UUID": "uuid_hash_extended({0}, {1})",
            "mix": "hashint8extended({0}, hashint8extended({0} >> 32, {1}))",
            "lookup": "(ARRAY[{1*}])[{0}]",
            "divide_wide": "DIV({0}, {1})",
        }
    ),
    types=MappingProxyType({"UTINYINT": "smallint", "USMALLINT": "integer", "UINTEGER": "bigint"}),
    materialized=True,
    lacks=frozenset(["SEMI", "ANTI", "FULL unequal"]),
)
