"""The allow-list: every function a statement may call, with its types, its growth and whether it can raise.

A function is here because it is deterministic, looks at one row only and is total, or made total by TRY. What cannot
be told from the types is demanded of the text: patterns, formats, parts and positions are literals, checked before
any row is read. DuckDB has no such list; ours is re-tested over adversarial values by the test suite.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from dpsql.errors import Place, Refusal, Unsupported
from dpsql.sql.coerce import alike, as_type, comparable
from dpsql.sql.tree import Call, Case, Cast, Expression, Literal
from dpsql.sql.types import BIGINT, BOOLEAN, DATE, DOUBLE, INTEGER, NULL, TEXT, TIMESTAMP, Family, Type, decimal

__all__ = ["AGGREGATES", "COLUMN_CAP", "FUNCTIONS", "LONGEST_VALUE", "REFUSED", "WINDOWS", "PatternCheck", "call"]

COLUMN_CAP = 1_024  # characters of a stored text that enter a function which can make it longer
LONGEST_VALUE = 16 * 1_024  # characters, of at most four bytes each
LONGEST_PATTERN = 256
FARTHEST_POSITION = 10_000
PatternCheck = Callable[[str], bool]

_TIMES = frozenset({Family.DATE, Family.TIMESTAMP})
_NUMBERS = frozenset({Family.INTEGER, Family.DECIMAL, Family.DOUBLE})
_PARTS_OF_BOTH = frozenset(["year", "month", "day", "dow", "isodow", "doy", "quarter", "week", "isoyear"])
_PARTS_OF_TIME = frozenset(["hour", "minute", "second", "millisecond", "microsecond", "epoch"])
_UNITS = frozenset(
    ["microsecond", "millisecond", "second", "minute", "hour", "day", "week", "month", "quarter", "year"]
)
_UNIT_SYNONYMS = {"dayofweek": "dow", "weekday": "dow", "dayofyear": "doy", "weekofyear": "week"}
_FORMAT = re.compile(r"(?:[^%]|%-?[dmHIMSj]|%[aAbBpyYUWuwVG%fg])*")


@dataclass(frozen=True, slots=True)
class _Site:
    """One call being checked: its name as written, its arguments, where it stands."""

    name: str
    arguments: tuple[Expression, ...]
    place: Place
    accepts_pattern: PatternCheck

    def refuse(self, reason: str, hint: str = "") -> Refusal:
        return Refusal("function-arguments", f"{self.name}: {reason}", hint=hint, place=self.place)

    def count(self, least: int, most: int) -> None:
        if not least <= len(self.arguments) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            raise self.refuse(f"it takes {wanted} arguments.")

    def of(self, index: int, families: frozenset[Family]) -> Expression:
        argument = self.arguments[index]
        if argument.type.family not in families:
            names = " or ".join(sorted(family.value for family in families))
            raise self.refuse(f"argument {index + 1} must be {names}, not {argument.type}.", "Cast it with CAST.")
        return argument

    def text(self, index: int) -> Expression:
        return self.of(index, frozenset({Family.TEXT}))

    def literal_text(self, index: int) -> Literal:
        argument = self.arguments[index]
        if isinstance(argument, Literal) and isinstance(argument.value, str) and argument.type == TEXT:
            return argument
        raise self.refuse(f"argument {index + 1} must be a quoted text.")

    def literal_position(self, index: int, type_: Type = BIGINT) -> Literal:
        argument = self.arguments[index]
        if isinstance(argument, Literal) and type(argument.value) is int and abs(argument.value) <= FARTHEST_POSITION:
            return Literal(argument.value, type_)
        raise self.refuse(f"argument {index + 1} must be a whole number up to {FARTHEST_POSITION}.")

    def pattern(self, index: int) -> Literal:
        literal = self.literal_text(index)
        value = str(literal.value)
        if len(value.encode()) > LONGEST_PATTERN or not self.accepts_pattern(value):
            raise self.refuse(f"argument {index + 1} is not a pattern of RE2 of at most {LONGEST_PATTERN} bytes.")
        return literal


_Rule = Callable[[_Site], Expression]


def call(name: str, arguments: tuple[Expression, ...], *, place: Place, accepts_pattern: PatternCheck) -> Expression:
    """Return the typed call of an allow-listed function; refuse arguments that could raise or grow without bound."""
    return FUNCTIONS[name](_Site(name, arguments, place, accepts_pattern))


def bounded(argument: Expression) -> Expression:
    """Return a text argument cut to COLUMN_CAP where it is as long as what is stored."""
    if argument.longest is not None:
        return argument
    return Call("left", (argument, Literal(COLUMN_CAP, BIGINT)), TEXT, COLUMN_CAP)


def grown(function: str, arguments: tuple[Expression, ...], *, longest: int, place: Place) -> Call:
    """Return a text call whose result may have `longest` characters; refuse what could fill the memory."""
    if longest > LONGEST_VALUE:
        hint = "Nest fewer calls of replace and concat."
        raise Refusal("too-large", f"This text could exceed {LONGEST_VALUE} characters.", hint=hint, place=place)
    return Call(function, arguments, TEXT, longest)


def _length(argument: Expression) -> int:
    return COLUMN_CAP if argument.longest is None else argument.longest


def _text_to(function: str, result: Type) -> _Rule:
    def rule(site: _Site) -> Expression:
        site.count(1, 1)
        argument = site.text(0)
        return Call(function, (argument,), result, argument.longest if result == TEXT else None)

    return rule


def _trimmed(function: str) -> _Rule:
    def rule(site: _Site) -> Expression:
        site.count(1, 2)
        argument = site.text(0)
        others = tuple(site.literal_text(index) for index in range(1, len(site.arguments)))
        return Call(function, (argument, *others), TEXT, argument.longest)

    return rule


def _two_texts(function: str, result: Type) -> _Rule:
    def rule(site: _Site) -> Expression:
        site.count(2, 2)
        return Call(function, (site.text(0), site.text(1)), result)

    return rule


def _substring(function: str, least: int, *, most: int) -> _Rule:
    def rule(site: _Site) -> Expression:
        site.count(least, most)
        argument = site.text(0)
        positions = tuple(site.literal_position(index) for index in range(1, len(site.arguments)))
        return Call(function, (argument, *positions), TEXT, argument.longest)

    return rule


def _concat(site: _Site) -> Expression:
    site.count(1, 16)
    parts = tuple(bounded(site.text(index)) for index in range(len(site.arguments)))
    return grown("concat", parts, longest=sum(map(_length, parts)), place=site.place)


def _replace(site: _Site) -> Expression:
    site.count(3, 3)
    argument, old, new = bounded(site.text(0)), site.literal_text(1), site.literal_text(2)
    factor = max(1, -(-len(str(new.value)) // max(1, len(str(old.value)))))
    return grown("replace", (argument, old, new), longest=_length(argument) * factor, place=site.place)


def _split_part(site: _Site) -> Expression:
    site.count(3, 3)
    argument = site.text(0)
    return Call("split_part", (argument, site.literal_text(1), site.literal_position(2)), TEXT, argument.longest)


def _matches(function: str) -> _Rule:
    def rule(site: _Site) -> Expression:
        site.count(2, 2)
        return Call(function, (site.text(0), site.pattern(1)), BOOLEAN)

    return rule


def _regexp_extract(site: _Site) -> Expression:
    site.count(2, 3)
    argument, pattern = site.text(0), site.pattern(1)
    if len(site.arguments) == 2:  # noqa: PLR2004 - the short form takes the whole match
        return Call("regexp_extract", (argument, pattern), TEXT, argument.longest)
    group = site.literal_position(2, INTEGER)
    if group.value not in range(10):
        raise site.refuse("the group must be a number from 0 to 9.")
    return Call("regexp_extract", (argument, pattern, group), TEXT, argument.longest)


def _regexp_replace(site: _Site) -> Expression:
    site.count(3, 3)
    argument, pattern, new = bounded(site.text(0)), site.pattern(1), site.literal_text(2)
    if "\\" in str(new.value):
        raise site.refuse("the replacement may not refer to groups.")
    return grown(
        "regexp_replace", (argument, pattern, new), longest=_length(argument) + len(str(new.value)), place=site.place
    )


def _double(function: str, result: Type = DOUBLE, *, arguments: int = 1) -> _Rule:
    def rule(site: _Site) -> Expression:
        site.count(arguments, arguments)
        numbers = (as_type(site.of(index, _NUMBERS), DOUBLE, place=site.place) for index in range(arguments))
        return Call(function, tuple(numbers), result)

    return rule


def _rounded(function: str) -> _Rule:
    """FLOOR, CEIL, ROUND and TRUNC, whose result type follows the argument's."""

    def rule(site: _Site) -> Expression:
        site.count(1, 2 if function == "round" else 1)
        argument = site.of(0, _NUMBERS)
        if len(site.arguments) > 1:
            digits = site.literal_position(1, INTEGER)
            return Call(function, (argument, digits), _rounded_to(site, argument.type, digits=int(str(digits.value))))
        return Call(function, (argument,), _rounded_type(function, argument.type))

    return rule


def _rounded_type(function: str, type_: Type) -> Type:
    if type_.family is Family.DECIMAL:
        return decimal(type_.precision[0], 0)
    if type_.family is Family.INTEGER and function in {"floor", "ceil"}:
        return DOUBLE
    unsigned = type_.name.startswith("U")
    return BIGINT if unsigned and function == "round" else type_


def _rounded_to(site: _Site, type_: Type, *, digits: int) -> Type:
    if type_.family is not Family.DECIMAL:
        return _rounded_type(site.name, type_)
    if digits < 0:
        raise site.refuse("a DECIMAL is rounded to 0 or more digits.", "Cast it to DOUBLE.")
    width, scale = type_.precision
    return decimal(width, min(digits, scale))


def _same_number(function: str) -> _Rule:
    def rule(site: _Site) -> Expression:
        site.count(1, 1)
        argument = site.of(0, _NUMBERS)
        return Call(function, (argument,), argument.type)

    return rule


def _unified(function: str, least: int, *, most: int) -> _Rule:
    def rule(site: _Site) -> Expression:
        site.count(least, most)
        arguments = alike(site.arguments, site.place)
        if arguments[0].type == NULL:
            raise site.refuse("at least one argument must have a type.")
        lengths = [argument.longest for argument in arguments]
        longest = None if None in lengths else max(length for length in lengths if length is not None)
        return Call(function, arguments, arguments[0].type, longest)

    return rule


def _nullif(site: _Site) -> Expression:
    site.count(2, 2)
    first = site.arguments[0]
    equal = Call("=", comparable(site.arguments, site.place), BOOLEAN)
    return Case(((equal, Literal(None, first.type)),), first, first.type, first.longest)


def _part(name: str) -> _Rule:
    def rule(site: _Site) -> Expression:
        site.count(1, 1)
        return date_part(name, site.of(0, _TIMES), place=site.place)

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


def _named_part(site: _Site) -> Expression:
    site.count(2, 2)
    return date_part(str(site.literal_text(0).value).lower(), site.of(1, _TIMES), place=site.place)


def _unit(site: _Site) -> Literal:
    unit = str(site.literal_text(0).value).lower()
    if unit not in _UNITS:
        raise site.refuse("argument 1 must name a unit of time.", f"One of {', '.join(sorted(_UNITS))}.")
    return Literal(unit, TEXT, len(unit))


def _date_trunc(site: _Site) -> Expression:
    site.count(2, 2)
    return Call("date_trunc", (_unit(site), site.of(1, _TIMES)), TIMESTAMP)


def _date_diff(site: _Site) -> Expression:
    site.count(3, 3)
    unit = _unit(site)
    first, last = comparable((site.of(1, _TIMES), site.of(2, _TIMES)), site.place)
    return Call("date_diff", (unit, first, last), BIGINT)


def _calendar(function: str, result: Type) -> _Rule:
    def rule(site: _Site) -> Expression:
        site.count(1, 1)
        return Call(function, (site.of(0, _TIMES),), result, 16 if result == TEXT else None)

    return rule


def _format(site: _Site, index: int) -> Literal:
    literal = site.literal_text(index)
    if not 0 < len(str(literal.value)) <= LONGEST_PATTERN or not _FORMAT.fullmatch(str(literal.value)):
        raise site.refuse("the format has a specifier that is not known.", "For example '%Y-%m-%d'.")
    return literal


def _strftime(site: _Site) -> Expression:
    site.count(2, 2)
    layout = _format(site, 1)
    return Call("strftime", (site.of(0, _TIMES), layout), TEXT, 16 * max(1, len(str(layout.value))))


def _strptime(site: _Site) -> Expression:
    site.count(2, 2)
    return Call("try_strptime", (site.text(0), _format(site, 1)), TIMESTAMP)


FUNCTIONS: dict[str, _Rule] = {
    **dict.fromkeys(["lower", "lcase"], _text_to("lower", TEXT)),
    **dict.fromkeys(["upper", "ucase"], _text_to("upper", TEXT)),
    **dict.fromkeys(["length", "len", "char_length", "character_length"], _text_to("length", BIGINT)),
    **{name: _trimmed(name) for name in ("trim", "ltrim", "rtrim")},
    **dict.fromkeys(["substr", "substring"], _substring("substring", 2, most=3)),
    **{name: _substring(name, 2, most=2) for name in ("left", "right")},
    **{name: _two_texts(name, BOOLEAN) for name in ("starts_with", "prefix")},
    **dict.fromkeys(["ends_with", "suffix"], _two_texts("suffix", BOOLEAN)),
    "contains": _two_texts("contains", BOOLEAN),
    **dict.fromkeys(["strpos", "instr"], _two_texts("strpos", BIGINT)),
    "concat": _concat,
    "replace": _replace,
    "split_part": _split_part,
    **{name: _matches(name) for name in ("regexp_matches", "regexp_full_match")},
    "regexp_extract": _regexp_extract,
    "regexp_replace": _regexp_replace,
    **{name: _double(name) for name in ("sqrt", "cbrt", "ln", "log2", "log10", "exp")},
    "log": _double("log10"),
    **dict.fromkeys(["pow", "power"], _double("pow", arguments=2)),
    "sign": _double("sign", Type(Family.INTEGER, "TINYINT")),
    **{name: _double(name, BOOLEAN) for name in ("isnan", "isinf", "isfinite")},
    "abs": _same_number("abs"),
    **dict.fromkeys(["ceil", "ceiling"], _rounded("ceil")),
    **{name: _rounded(name) for name in ("floor", "round", "trunc")},
    **{name: _unified(name, 2, most=16) for name in ("greatest", "least")},
    **dict.fromkeys(["coalesce", "ifnull"], _unified("coalesce", 2, most=16)),
    "nullif": _nullif,
    **{name: _part(name) for name in sorted(_PARTS_OF_BOTH - {"dow", "doy"} | _PARTS_OF_TIME | set(_UNIT_SYNONYMS))},
    **dict.fromkeys(["date_part", "datepart"], _named_part),
    **dict.fromkeys(["date_trunc", "datetrunc"], _date_trunc),
    **dict.fromkeys(["date_diff", "datediff"], _date_diff),
    "dayname": _calendar("dayname", TEXT),
    "monthname": _calendar("monthname", TEXT),
    "last_day": _calendar("last_day", DATE),
    "strftime": _strftime,
    **dict.fromkeys(["strptime", "try_strptime"], _strptime),
}

AGGREGATES = frozenset(["sum", "avg", "min", "max"])  # besides count, and over public tables alone
WINDOWS = frozenset("row_number rank dense_rank ntile lag lead first_value last_value".split())
REFUSED = AGGREGATES | WINDOWS
REFUSED |= frozenset(
    "mean median mode stddev variance quantile any_value first last arg_min arg_max min_by max_by array_agg list "
    "string_agg group_concat histogram bool_or bool_and bit_or bit_and count_if approx_count_distinct random uuid "
    "now".split()
)
