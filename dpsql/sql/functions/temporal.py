"""Functions of dates and time stamps: parts, units and formats are literals."""

from __future__ import annotations

import re
from contextlib import suppress

from dpsql.errors import Place, Unsupported
from dpsql.sql.functions.arithmetic import shift_date
from dpsql.sql.functions.coercion import convert, unify_for_comparison
from dpsql.sql.functions.signatures import MAX_PATTERN_LENGTH, TIMES, Rule, Site
from dpsql.sql.ir.clock import DAYS, MOMENTS, read_clock, truncate, truncate_to_date
from dpsql.sql.ir.tree import Call, Cast, Expression, Literal
from dpsql.sql.ir.types import BIGINT, DATE, DOUBLE, INTERVAL, TEXT, TIMESTAMP, Family, Type

__all__ = ["TIME_FUNCTIONS", "date_part"]

_PARTS_OF_BOTH = frozenset(
    [
        "year",
        "month",
        "day",
        "dow",
        "isodow",
        "doy",
        "quarter",
        "week",
        "isoyear",
        "yearweek",
        "decade",
        "century",
        "millennium",
        "era",
    ]
)
_PARTS_OF_TIME = frozenset(["hour", "minute", "second", "millisecond", "microsecond", "epoch"])
_UNITS = frozenset(
    ["microsecond", "millisecond", "second", "minute", "hour", "day", "week", "month", "quarter", "year"]
)
_UNIT_SYNONYMS = {"dayofweek": "dow", "weekday": "dow", "dayofyear": "doy", "weekofyear": "week"}
_FORMAT = re.compile(r"(?:[^%]|%-?[dmHIMSj]|%[aAbBpyYUWuwVG%fg])*")


def _part(name: str) -> Rule:
    def rule(site: Site) -> Expression:
        site.count(1, 1)
        return date_part(name, site.of(0, TIMES), place=site.place)

    return rule


def date_part(name: str, argument: Expression, *, place: Place) -> Expression:
    """Return the call for EXTRACT(name FROM argument) and its many spellings."""
    part = _UNIT_SYNONYMS.get(name, name)
    if part not in (_PARTS_OF_BOTH if argument.type == DATE else _PARTS_OF_BOTH | _PARTS_OF_TIME):
        reason, hint = (
            f"This part of a {argument.type} is not known.",
            "Such as year, month, day, dow, hour and minute.",
        )
        raise Unsupported("date-part", reason, hint=hint, place=place)
    if part == "epoch":
        return Call("date_part", (Literal(part, TEXT, len(part)), argument), DOUBLE)
    # DuckDB gives a constant NULL the type DOUBLE; the cast preserves the type that the text alone decides
    return Cast(Call("date_part", (Literal(part, TEXT, len(part)), argument), BIGINT), BIGINT)


def _named_part(site: Site) -> Expression:
    site.count(2, 2)
    return date_part(str(site.literal_text(0, such_as="day").value).lower(), site.of(1, TIMES), place=site.place)


def _unit(site: Site) -> Literal:
    unit = str(site.literal_text(0, such_as="day").value).lower()
    if unit not in _UNITS:
        raise site.refuse("argument 1 must name a unit of time.", f"Write one of {', '.join(sorted(_UNITS))}.")
    return Literal(unit, TEXT, len(unit))


def _date_trunc(site: Site) -> Expression:
    site.count(2, 2)
    unit, argument = _unit(site), site.of(1, TIMES)
    if isinstance(argument, Literal):
        with suppress(ValueError, OverflowError):
            return truncate(argument, str(unit.value))
    return Call("date_trunc", (unit, argument), TIMESTAMP)


def _clock(site: Site) -> Expression:
    site.count(0, 0)
    return read_clock(site.now(), site.name)


def _date_diff(site: Site) -> Expression:
    site.count(3, 3)
    unit = _unit(site)
    first, last = unify_for_comparison((site.of(1, TIMES), site.of(2, TIMES)), site.place)
    return Call("date_diff", (unit, first, last), BIGINT)


def _date_sub(site: Site) -> Expression:
    site.count(3, 3)
    unit = _unit(site)
    first, last = unify_for_comparison((site.of(1, TIMES), site.of(2, TIMES)), site.place)
    return Call("date_sub", (unit, first, last), BIGINT)


def _date_add(site: Site) -> Expression:
    site.count(2, 2)
    return shift_date(site.of(0, TIMES), "+", interval=_interval(site, 1), where=site.place)


def _interval(site: Site, index: int) -> Literal:
    argument = site.arguments[index]
    if isinstance(argument, Literal) and argument.type == INTERVAL:
        return argument
    raise site.refuse(f"argument {index + 1} must be an INTERVAL.", "Such as INTERVAL 15 MINUTE.")


def _time_bucket(site: Site) -> Expression:
    site.count(2, 2)
    width, argument = _interval(site, 0), site.of(1, TIMES)
    if int(str(width.value).split()[0]) <= 0:
        raise site.refuse("the INTERVAL must be longer than nothing.", "Such as INTERVAL 15 MINUTE.")
    return Call("time_bucket", (width, argument), argument.type)


def _date(site: Site) -> Expression:
    site.count(1, 1)
    argument = site.of(0, TIMES)
    if isinstance(argument, Literal) and argument.type == TIMESTAMP and argument.value is not None:
        return truncate_to_date(argument)
    return Cast(argument, DATE)


def _epoch(function: str) -> Rule:
    """Count the time since 1970; epoch_ms of a number is the time stamp so many milliseconds after."""

    def rule(site: Site) -> Expression:
        site.count(1, 1)
        if function == "epoch_ms" and site.arguments[0].type.family is Family.INTEGER:
            return Call(function, (convert(site.arguments[0], BIGINT, place=site.place),), TIMESTAMP)
        return Call(function, (site.of(0, TIMES),), BIGINT)

    return rule


def _calendar(function: str, result: Type) -> Rule:
    def rule(site: Site) -> Expression:
        site.count(1, 1)
        return Call(function, (site.of(0, TIMES),), result, 16 if result == TEXT else None)

    return rule


def _format(site: Site, index: int) -> Literal:
    literal = site.literal_text(index, such_as="%Y")
    if not 0 < len(str(literal.value)) <= MAX_PATTERN_LENGTH or not _FORMAT.fullmatch(str(literal.value)):
        raise site.refuse("the format has a specifier that is not known.", "For example '%Y-%m-%d'.")
    return literal


def _strftime(site: Site) -> Expression:
    site.count(2, 2)
    layout = _format(site, 1)
    return Call("strftime", (site.of(0, TIMES), layout), TEXT, 16 * max(1, len(str(layout.value))))


def _strptime(site: Site) -> Expression:
    site.count(2, 2)
    return Call("try_strptime", (site.text(0), _format(site, 1)), TIMESTAMP)


TIME_FUNCTIONS: dict[str, Rule] = {
    **{name: _part(name) for name in sorted(_PARTS_OF_BOTH - {"dow", "doy"} | _PARTS_OF_TIME | set(_UNIT_SYNONYMS))},
    **dict.fromkeys(["date_part", "datepart"], _named_part),
    **dict.fromkeys(["date_trunc", "datetrunc"], _date_trunc),
    **dict.fromkeys(["date_diff", "datediff"], _date_diff),
    **dict.fromkeys(["date_sub", "datesub"], _date_sub),
    "date_add": _date_add,
    "time_bucket": _time_bucket,
    "date": _date,
    **{name: _epoch(name) for name in ("epoch_ms", "epoch_us", "epoch_ns")},
    "dayname": _calendar("dayname", TEXT),
    "monthname": _calendar("monthname", TEXT),
    "last_day": _calendar("last_day", DATE),
    **dict.fromkeys(sorted(DAYS | MOMENTS), _clock),
    "strftime": _strftime,
    **dict.fromkeys(["strptime", "try_strptime"], _strptime),
}
