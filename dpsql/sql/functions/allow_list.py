"""Checks of one call, which the rules of the allow-list use: its arguments, and the growth of text.

Functions of text: positions, patterns and replacements are literals, and what can grow is bounded.

Functions of numbers, and those that take values of any one type.

Functions of dates and time stamps: parts, units and formats are literals.

The allow-list: every function a statement may call, with its types, its growth and whether it can raise.

Every function here is deterministic, reads one row only, and is total, or made total by TRY. What does not follow from
the types is required of the text: patterns, formats, parts and positions must be literals, which are checked before any
row is read. DuckDB has no such list; the tests check ours on adversarial values.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from math import isfinite

from dpsql.errors import Place, Refusal, Unsupported
from dpsql.sql.functions.coercion import (
    arithmetic,
    combine_integers,
    convert,
    convert_to_text,
    shift_date,
    unify_for_comparison,
    unify_types,
)
from dpsql.sql.ir.literals import DAYS, MOMENTS, fill_unbound, read_clock, truncate, truncate_to_date
from dpsql.sql.ir.tree import Call, Case, Cast, Expression, In, InQuery, Literal, walk
from dpsql.sql.ir.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    INTERVAL,
    NULL,
    TEXT,
    TIMESTAMP,
    Family,
    Type,
    decimal,
)

COLUMN_CAP = 1_024  # characters of a stored text that enter a function which can make it longer
MAX_VALUE_LENGTH = 16 * 1_024  # characters, of at most four bytes each
MAX_PATTERN_LENGTH = 256
MAX_POSITION = 10_000
TIMES = frozenset({Family.DATE, Family.TIMESTAMP})
NUMBERS = frozenset({Family.INTEGER, Family.DECIMAL, Family.DOUBLE})
_FIRST_CHOICES = (TEXT, DOUBLE, TIMESTAMP, BIGINT, BOOLEAN, DATE)  # for a parameter of unknown type
PatternCheck = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Site:
    """Call: its name as written, its arguments and its place."""

    name: str
    arguments: tuple[Expression, ...]
    place: Place
    accepts_pattern: PatternCheck
    now: Callable[[], datetime]

    def refuse(self, reason: str, hint: str) -> Refusal:
        """Return the refusal of this call."""
        return Refusal("function-arguments", f"{self.name}: {reason}", hint=hint, place=self.place)

    def count(self, least: int, most: int) -> None:
        """Refuse fewer or more arguments."""
        if not least <= len(self.arguments) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            hint = "Write that many, with commas between them." if most else "Leave the parentheses empty."
            raise self.refuse(f"it takes {wanted} arguments.", hint)

    def of(self, index: int, families: frozenset[Family]) -> Expression:
        """Return an argument, which must be of one of the families."""
        wanted = next(type_ for type_ in _FIRST_CHOICES if type_.family in families)
        argument = fill_unbound(self.arguments[index], wanted)
        if argument.type.family not in families:
            names = " or ".join(sorted(family.value for family in families))
            raise self.refuse(f"argument {index + 1} must be {names}, not {argument.type}.", "Cast it with CAST.")
        return argument

    def text(self, index: int) -> Expression:
        """Return an argument, which must be text."""
        return self.of(index, frozenset({Family.TEXT}))

    def literal_text(self, index: int, *, such_as: str = "a") -> Literal:
        """Return an argument, which must be a quoted text; `such_as` is one that suits."""
        argument = fill_unbound(self.arguments[index], TEXT, such_as=Literal(such_as, TEXT, len(such_as)))
        if isinstance(argument, Literal) and isinstance(argument.value, str) and argument.type == TEXT:
            return argument
        raise self.refuse(f"argument {index + 1} must be a quoted text.", f"Write a text, such as '{such_as}'.")

    def literal_position(self, index: int, type_: Type = BIGINT) -> Literal:
        """Return an argument, which must be a whole number that no position in a text exceeds."""
        argument = fill_unbound(self.arguments[index], BIGINT, such_as=Literal(1, BIGINT))
        if isinstance(argument, Literal) and type(argument.value) is int and abs(argument.value) <= MAX_POSITION:
            return Literal(argument.value, type_)
        raise self.refuse(
            f"argument {index + 1} must be a whole number up to {MAX_POSITION}.", "Write a number, such as 10."
        )

    def pattern(self, index: int, *, flags: str = "") -> Literal:
        """Return an argument with `flags` before it, which must be a pattern that the engine compiles."""
        value = flags + str(self.literal_text(index).value)
        if len(value.encode()) > MAX_PATTERN_LENGTH or not self.accepts_pattern(value):
            reason = f"argument {index + 1} is not a pattern of RE2 of at most {MAX_PATTERN_LENGTH} bytes."
            raise self.refuse(reason, "Write a simpler one, such as '^a'.")
        return Literal(value, TEXT, len(value))


Rule = Callable[[Site], Expression]


def cap_length(argument: Expression) -> Expression:
    """Return a text argument cut to COLUMN_CAP where it is as long as what is stored."""
    if argument.longest is not None:
        return argument
    return Call("left", (argument, Literal(COLUMN_CAP, BIGINT)), TEXT, COLUMN_CAP)


def type_longer_text(function: str, arguments: tuple[Expression, ...], *, longest: int, place: Place) -> Call:
    """Return a text call whose result may have `longest` characters; refuse what could fill the memory."""
    if longest > MAX_VALUE_LENGTH:
        hint = "Nest fewer calls of replace and concat."
        raise Refusal("too-large", f"This text could exceed {MAX_VALUE_LENGTH} characters.", hint=hint, place=place)
    return Call(function, arguments, TEXT, longest)


def find_max_length(argument: Expression) -> int:
    """Return how many characters a bounded text can have."""
    return COLUMN_CAP if argument.longest is None else argument.longest


def _text_to(function: str, result: Type) -> Rule:
    def rule(site: Site) -> Expression:
        site.count(1, 1)
        argument = site.text(0)
        return Call(function, (argument,), result, argument.longest if result == TEXT else None)

    return rule


def _trimmed(function: str) -> Rule:
    def rule(site: Site) -> Expression:
        site.count(1, 2)
        argument = site.text(0)
        others = tuple(site.literal_text(index) for index in range(1, len(site.arguments)))
        return Call(function, (argument, *others), TEXT, argument.longest)

    return rule


def _two_texts(function: str, result: Type) -> Rule:
    def rule(site: Site) -> Expression:
        site.count(2, 2)
        return Call(function, (site.text(0), site.text(1)), result)

    return rule


def _substring(function: str, least: int, *, most: int) -> Rule:
    def rule(site: Site) -> Expression:
        site.count(least, most)
        argument = site.text(0)
        positions = tuple(site.literal_position(index) for index in range(1, len(site.arguments)))
        longest, last = argument.longest, int(str(positions[-1].value))
        if len(positions) == most - 1 and last >= 0:  # the last position is a length, and may be the shorter one
            longest = last if longest is None else min(last, longest)
        return Call(function, (argument, *positions), TEXT, longest)

    return rule


def _concat(site: Site) -> Expression:
    site.count(1, 16)
    parts = tuple(cap_length(convert_to_text(argument)) for argument in site.arguments)
    return type_longer_text("concat", parts, longest=sum(map(find_max_length, parts)), place=site.place)


def _concat_ws(site: Site) -> Expression:
    site.count(2, 16)
    between, parts = (
        site.literal_text(0),
        tuple(cap_length(convert_to_text(argument)) for argument in site.arguments[1:]),
    )
    longest = sum(map(find_max_length, parts)) + find_max_length(between) * (len(parts) - 1)
    return type_longer_text("concat_ws", (between, *parts), longest=longest, place=site.place)


def _translate(site: Site) -> Expression:
    site.count(3, 3)
    argument = site.text(0)
    return Call("translate", (argument, site.literal_text(1), site.literal_text(2)), TEXT, argument.longest)


def _digest(function: str, longest: int) -> Rule:
    def rule(site: Site) -> Expression:
        site.count(1, 1)
        return Call(function, (site.text(0),), TEXT, longest)

    return rule


def _replace(site: Site) -> Expression:
    site.count(3, 3)
    argument, old, new = cap_length(site.text(0)), site.literal_text(1), site.literal_text(2)
    factor = max(1, -(-len(str(new.value)) // max(1, len(str(old.value)))))
    return type_longer_text(
        "replace", (argument, old, new), longest=find_max_length(argument) * factor, place=site.place
    )


def _split_part(site: Site) -> Expression:
    site.count(3, 3)
    argument = site.text(0)
    return Call("split_part", (argument, site.literal_text(1), site.literal_position(2)), TEXT, argument.longest)


def _pattern(site: Site, options_at: int, *, replaces: bool = False) -> tuple[Literal, bool]:
    """Return the pattern, with its options written into it, and whether every match is meant."""
    written = "" if len(site.arguments) <= options_at else str(site.literal_text(options_at, such_as="").value)
    if not set(written) <= set("cisg" if replaces else "cis") or {"c", "i"} <= set(written):
        letters = "c, i, s and g" if replaces else "c, i and s"
        raise site.refuse(f"argument {options_at + 1} may hold the options {letters}.", "Write 'i' to ignore case.")
    flags = "".join(flag for flag in "is" if flag in written)
    return site.pattern(1, flags=f"(?{flags})" if flags else ""), "g" in written


def _matches(function: str) -> Rule:
    def rule(site: Site) -> Expression:
        site.count(2, 3)
        return Call(function, (site.text(0), _pattern(site, 2)[0]), BOOLEAN)

    return rule


def _regexp_extract(site: Site) -> Expression:
    site.count(2, 4)
    argument, (pattern, _) = site.text(0), _pattern(site, 3)
    if len(site.arguments) == 2:  # noqa: PLR2004 - the short form takes the whole match
        return Call("regexp_extract", (argument, pattern), TEXT, argument.longest)
    group = site.literal_position(2, INTEGER)
    if group.value not in range(10):
        raise site.refuse("the group must be a number from 0 to 9.", "Write 1 for the first group.")
    return Call("regexp_extract", (argument, pattern, group), TEXT, argument.longest)


def _regexp_replace(site: Site) -> Expression:
    site.count(3, 4)
    argument, (pattern, everywhere), new = (
        cap_length(site.text(0)),
        _pattern(site, 3, replaces=True),
        site.literal_text(2),
    )
    if "\\" in str(new.value):
        raise site.refuse("the replacement may not refer to groups.", "Write a text without a backslash.")
    times = find_max_length(argument) + 1 if everywhere else 1  # the empty text is found before, between and after
    longest = find_max_length(argument) + len(str(new.value)) * times
    options = (Literal("g", TEXT, 1),) if everywhere else ()
    return type_longer_text("regexp_replace", (argument, pattern, new, *options), longest=longest, place=site.place)


TEXT_FUNCTIONS: dict[str, Rule] = {
    **dict.fromkeys(["lower", "lcase"], _text_to("lower", TEXT)),
    **dict.fromkeys(["upper", "ucase"], _text_to("upper", TEXT)),
    **dict.fromkeys(["length", "len", "char_length", "character_length"], _text_to("length", BIGINT)),
    "strlen": _text_to("strlen", BIGINT),
    "bit_length": _text_to("bit_length", BIGINT),
    "ascii": _text_to("ascii", INTEGER),
    **dict.fromkeys(["unicode", "ord"], _text_to("unicode", INTEGER)),
    "reverse": _text_to("reverse", TEXT),
    "strip_accents": _text_to("strip_accents", TEXT),
    "md5": _digest("md5", 32),
    "sha1": _digest("sha1", 40),
    "sha256": _digest("sha256", 64),
    "translate": _translate,
    "concat_ws": _concat_ws,
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
}


_MOST_REPEATED = 50  # parts of an expression that is written several times
_ABSORB_NULL = frozenset(
    "and or is_null is_true is_false is_distinct is_not_distinct between "
    "coalesce concat concat_ws greatest least".split()
)


def _double(function: str, result: Type = DOUBLE, *, arguments: int = 1) -> Rule:
    def rule(site: Site) -> Expression:
        site.count(arguments, arguments)
        numbers = (convert(site.of(index, NUMBERS), DOUBLE, place=site.place) for index in range(arguments))
        return Call(function, tuple(numbers), result)

    return rule


def _rounded(function: str) -> Rule:
    """FLOOR, CEIL, ROUND and TRUNC, whose result type follows the argument's."""

    def rule(site: Site) -> Expression:
        site.count(1, 2 if function == "round" else 1)
        argument = site.of(0, NUMBERS)
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


def _rounded_to(site: Site, type_: Type, *, digits: int) -> Type:
    if type_.family is not Family.DECIMAL:
        return _rounded_type(site.name, type_)
    if digits < 0:
        raise site.refuse("a DECIMAL is rounded to 0 or more digits.", "Cast it to DOUBLE.")
    width, scale = type_.precision
    return decimal(width, min(digits, scale))


def _same_number(function: str) -> Rule:
    def rule(site: Site) -> Expression:
        site.count(1, 1)
        argument = site.of(0, NUMBERS)
        return Call(function, (argument,), argument.type)

    return rule


def _unified(function: str, least: int, *, most: int) -> Rule:
    def rule(site: Site) -> Expression:
        site.count(least, most)
        arguments = unify_types(site.arguments, site.place)
        if arguments[0].type == NULL:
            raise site.refuse("at least one argument must have a type.", "Such as CAST(NULL AS VARCHAR).")
        lengths = [argument.longest for argument in arguments]
        longest = None if None in lengths else max(length for length in lengths if length is not None)
        return Call(function, arguments, arguments[0].type, longest)

    return rule


def _finite(function: str) -> Rule:
    """ISFINITE and ISINF, which dates and time stamps can be as well."""
    of_number = _double(function, BOOLEAN)

    def rule(site: Site) -> Expression:
        site.count(1, 1)
        argument = site.arguments[0]
        return Call(function, (argument,), BOOLEAN) if argument.type.family in TIMES else of_number(site)

    return rule


def _logarithm(site: Site) -> Expression:
    return _double("log10" if len(site.arguments) == 1 else "log", arguments=min(2, len(site.arguments) or 1))(site)


def _common_integer(function: str) -> Rule:
    def rule(site: Site) -> Expression:
        site.count(2, 2)
        whole = frozenset({Family.INTEGER})
        numbers = (convert(site.of(index, whole), BIGINT, place=site.place) for index in range(2))
        return Call(function, tuple(numbers), BIGINT)

    return rule


def _xor(site: Site) -> Expression:
    site.count(2, 2)
    whole = frozenset({Family.INTEGER})
    return combine_integers(site.of(0, whole), "xor", right=site.of(1, whole), where=site.place)


def _modulo(site: Site) -> Expression:
    site.count(2, 2)
    return arithmetic(site.of(0, NUMBERS), "%", right=site.of(1, NUMBERS), where=site.place)


def _pi(site: Site) -> Expression:
    site.count(0, 0)
    return Call("pi", (), DOUBLE)


def _if(site: Site) -> Expression:
    site.count(3, 3)
    condition = site.of(0, frozenset({Family.BOOLEAN, Family.NULL}))
    then, otherwise = unify_types(site.arguments[1:], site.place)
    if then.type == NULL:
        raise site.refuse("at least one result must have a type.", "Such as CAST(NULL AS VARCHAR).")
    lengths = then.longest, otherwise.longest
    longest = None if lengths[0] is None or lengths[1] is None else max(lengths[0], lengths[1])
    return Case(((convert(condition, BOOLEAN, place=site.place), then),), otherwise, then.type, longest)


def _tried(site: Site) -> Expression:
    """TRY: what fails gives NULL here in any case, and so does all that is computed from it if nothing absorbs NULL."""
    site.count(1, 1)
    for part in walk(site.arguments[0]):
        absorbs = isinstance(part, Call) and part.function in _ABSORB_NULL
        if absorbs or isinstance(part, Case | In | InQuery):
            hint = "Leave TRY out: an operation that fails gives NULL in any case."
            raise Unsupported("try", "TRY is read around plain operations and functions.", hint=hint, place=site.place)
    return site.arguments[0]


def _width_bucket(site: Site) -> Expression:
    """WIDTH_BUCKET of SQL:2003, in DOUBLE: 0 below the first end, n + 1 from the last on, else the bucket of 1 to n.

    DuckDB has no such function, so it is put together of others.
    """
    site.count(4, 4)
    value = convert(site.of(0, NUMBERS), DOUBLE, place=site.place)
    if len(walk(value)) > _MOST_REPEATED:
        raise site.refuse("argument 1 is too long.", "Compute it in a subquery in FROM, and name its column here.")
    low, high = _bucket_end(site, 1), _bucket_end(site, 2)
    buckets = int(str(site.literal_position(3).value))
    if not low < high or not isfinite(high - low) or buckets < 1:
        raise site.refuse("the ends must rise, and there must be a bucket.", "Such as width_bucket(x, 0, 100, 10).")
    start, width, count = (Literal(each, DOUBLE) for each in (low, high - low, float(buckets)))
    one = Literal(1.0, DOUBLE)
    share = Call("/", (Call("-", (value, start), DOUBLE), width), DOUBLE)
    bucket: Expression = Call("+", (Call("floor", (Call("*", (share, count), DOUBLE),), DOUBLE), one), DOUBLE)
    bucket = Call("least", (Call("greatest", (bucket, one), DOUBLE), count), DOUBLE)
    return Case(
        (
            (Call("is_null", (value,), BOOLEAN), Literal(None, INTEGER)),
            (Call("<", (value, start), BOOLEAN), Literal(0, INTEGER)),
            (Call(">=", (value, Literal(high, DOUBLE)), BOOLEAN), Literal(buckets + 1, INTEGER)),
        ),
        Cast(bucket, INTEGER),
        INTEGER,
    )


def _bucket_end(site: Site, index: int) -> float:
    """Return an end of the buckets, which must be a number of the text."""
    argument = fill_unbound(site.arguments[index], DOUBLE, such_as=Literal(float(index), DOUBLE))
    value = argument.value if isinstance(argument, Literal) else None
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool) and isfinite(value):
        return float(value)
    raise site.refuse(f"argument {index + 1} must be a number.", "Write one, such as 100.")


def _nullif(site: Site) -> Expression:
    site.count(2, 2)
    first = site.arguments[0]
    equal = Call("=", unify_for_comparison(site.arguments, site.place), BOOLEAN)
    return Case(((equal, Literal(None, first.type)),), first, first.type, first.longest)


NUMBER_FUNCTIONS: dict[str, Rule] = {
    **{name: _double(name) for name in ("sqrt", "cbrt", "ln", "log2", "log10", "exp")},
    "log": _logarithm,
    **{name: _double(name) for name in "sin cos tan cot asin acos atan sinh cosh tanh radians degrees even".split()},
    "atan2": _double("atan2", arguments=2),
    "pi": _pi,
    "mod": _modulo,
    "xor": _xor,
    **dict.fromkeys(["gcd", "greatest_common_divisor"], _common_integer("greatest_common_divisor")),
    **dict.fromkeys(["lcm", "least_common_multiple"], _common_integer("least_common_multiple")),
    "if": _if,
    "try": _tried,
    **dict.fromkeys(["pow", "power"], _double("pow", arguments=2)),
    "sign": _double("sign", Type(Family.INTEGER, "TINYINT")),
    "isnan": _double("isnan", BOOLEAN),
    **{name: _finite(name) for name in ("isinf", "isfinite")},
    "abs": _same_number("abs"),
    **dict.fromkeys(["ceil", "ceiling"], _rounded("ceil")),
    **{name: _rounded(name) for name in ("floor", "round", "trunc")},
    **{name: _unified(name, 2, most=16) for name in ("greatest", "least")},
    **dict.fromkeys(["coalesce", "ifnull"], _unified("coalesce", 2, most=16)),
    "nullif": _nullif,
    "width_bucket": _width_bucket,
}


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


FUNCTIONS: dict[str, Rule] = {**TEXT_FUNCTIONS, **NUMBER_FUNCTIONS, **TIME_FUNCTIONS}
TAKES_INTERVAL = frozenset(["time_bucket", "date_add"])

AGGREGATES = frozenset(["sum", "avg", "min", "max"])  # besides count, and over public tables alone
WINDOWS = frozenset("row_number rank dense_rank percent_rank cume_dist ntile lag lead first_value".split())
INTERVAL_ENDS = frozenset(["value_low", "value_high"])  # of measures that a private query releases
INSIDE = AGGREGATES | WINDOWS  # what subqueries may call
EVERY_AGGREGATE = frozenset(  # of DuckDB, with the macros that are made of them
    "any_value approx_count_distinct approx_quantile approx_top_k arbitrary arg_max arg_max_null arg_max_nulls_last "
    "arg_min arg_min_null arg_min_nulls_last argmax argmin array_agg avg bit_and bit_or bit_xor bitstring_agg bool_and "
    "bool_or combine_aggr corr count count_if count_star countif covar_pop covar_samp decimal_average entropy favg "
    "first fsum geomean geometric_mean group_concat grouping grouping_id histogram histogram_exact kahan_sum kurtosis "
    "kurtosis_pop last list listagg lttb mad max max_by mean median min min_by mode percentile_cont percentile_disc "
    "product quantile quantile_cont quantile_disc regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope "
    "regr_sxx regr_sxy regr_syy reservoir_quantile sem skewness stddev stddev_pop stddev_samp string_agg sum "
    "sum_no_overflow sumkahan var_pop var_samp variance variant_group_array variant_group_object wavg "
    "weighted_avg".split()
)
REFUSED = INSIDE | EVERY_AGGREGATE | {"last_value", "nth_value", "random", "uuid"}


def call(
    name: str,
    arguments: tuple[Expression, ...],
    *,
    place: Place,
    accepts_pattern: PatternCheck,
    now: Callable[[], datetime],
) -> Expression:
    """Return the typed call of an allow-listed function; refuse arguments that could raise or grow without bound.

    `now` reads the clock of the statement.
    """
    return FUNCTIONS[name](Site(name, arguments, place, accepts_pattern, now))
