"""Functions of dates and time stamps: parts, units and formats are literals."""

from __future__ import annotations

import re
from contextlib import suppress

from dpsql.errors import Place, Unsupported
from dpsql.sql.calls import LONGEST_PATTERN, TIMES, Rule, Site
from dpsql.sql.clock import DAYS, MOMENTS, reading, truncated
from dpsql.sql.coerce import comparable
from dpsql.sql.tree import Call, Cast, Expression, Literal
from dpsql.sql.types import BIGINT, DATE, DOUBLE, TEXT, TIMESTAMP, Type

__all__ = ["TIME_FUNCTIONS", "date_part"]

_PARTS_OF_BOTH = frozenset(["year", "month", "day", "dow", "isodow", "doy", "quarter", "week", "isoyear"])
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
        reason, hint = f"This part of a {argument.type} is not known.", "The SQL reference lists the parts."
        raise Unsupported("date-part", reason, hint=hint, place=place)
    if part == "epoch":
        return Call("date_part", (Literal(part, TEXT, len(part)), argument), DOUBLE)
    # DuckDB gives a constant NULL the type DOUBLE; the cast keeps the type that the text alone decides
    return Cast(Call("date_part", (Literal(part, TEXT, len(part)), argument), BIGINT), BIGINT)


def _named_part(site: Site) -> Expression:
    site.count(2, 2)
    return date_part(str(site.literal_text(0).value).lower(), site.of(1, TIMES), place=site.place)


def _unit(site: Site) -> Literal:
    unit = str(site.literal_text(0).value).lower()
    if unit not in _UNITS:
        raise site.refuse("argument 1 must name a unit of time.", f"One of {', '.join(sorted(_UNITS))}.")
    return Literal(unit, TEXT, len(unit))


def _date_trunc(site: Site) -> Expression:
    site.count(2, 2)
    unit, argument = _unit(site), site.of(1, TIMES)
    if isinstance(argument, Literal):
        with suppress(ValueError, OverflowError):
            return truncated(argument, str(unit.value))
    return Call("date_trunc", (unit, argument), TIMESTAMP)


def _clock(site: Site) -> Expression:
    site.count(0, 0)
    return reading(site.now(), site.name)


def _date_diff(site: Site) -> Expression:
    site.count(3, 3)
    unit = _unit(site)
    first, last = comparable((site.of(1, TIMES), site.of(2, TIMES)), site.place)
    return Call("date_diff", (unit, first, last), BIGINT)


def _calendar(function: str, result: Type) -> Rule:
    def rule(site: Site) -> Expression:
        site.count(1, 1)
        return Call(function, (site.of(0, TIMES),), result, 16 if result == TEXT else None)

    return rule


def _format(site: Site, index: int) -> Literal:
    literal = site.literal_text(index)
    if not 0 < len(str(literal.value)) <= LONGEST_PATTERN or not _FORMAT.fullmatch(str(literal.value)):
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
    "dayname": _calendar("dayname", TEXT),
    "monthname": _calendar("monthname", TEXT),
    "last_day": _calendar("last_day", DATE),
    **dict.fromkeys(sorted(DAYS | MOMENTS), _clock),
    "strftime": _strftime,
    **dict.fromkeys(["strptime", "try_strptime"], _strptime),
}
