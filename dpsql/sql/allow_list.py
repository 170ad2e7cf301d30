"""The allow-list: every function a statement may call, with its types, its growth and whether it can raise.

Every function here is deterministic, reads one row only, and is total, or made total by TRY. What does not follow from
the types is required of the text: patterns, formats, parts and positions must be literals, which are checked before any
row is read. DuckDB has no such list; the tests check ours on adversarial values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from math import isfinite

from dpsql.errors import Place, Refusal, Unsupported
from dpsql.sql.coercion import (
    arithmetic,
    combine_integers,
    convert,
    convert_to_text,
    shift_date,
    unify_for_comparison,
    unify_types,
)
from dpsql.sql.ir.literals import DAYS, MOMENTS, fill_unbound, read_clock, truncate, truncate_to_date
from dpsql.sql.ir.scope import propose_name
from dpsql.sql.ir.tree import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    INTERVAL,
    NULL,
    TEXT,
    TIMESTAMP,
    Call,
    Case,
    Cast,
    Expression,
    Family,
    In,
    InQuery,
    Literal,
    Type,
    decimal,
    walk,
)

COLUMN_CAP = 1_024  # characters of a stored text that enter a function which can make it longer
MAX_VALUE_LENGTH = 16 * 1_024  # characters, of at most four bytes each
MAX_PATTERN_LENGTH = 256
MAX_POSITION = 10_000
TIMES = frozenset({Family.DATE, Family.TIMESTAMP})
NUMBERS = frozenset({Family.INTEGER, Family.DECIMAL, Family.DOUBLE})
_FIRST_CHOICES = (TEXT, DOUBLE, TIMESTAMP, BIGINT, BOOLEAN, DATE)  # for a parameter of unknown type
_MOST_REPEATED = 50  # parts of an expression that is written several times
_ABSORB_NULL = frozenset(
    "and or is_null is_true is_false is_distinct is_not_distinct between "
    "coalesce concat concat_ws greatest least".split()
)
_PARTS_OF_BOTH = frozenset(
    "year month day dow isodow doy quarter week isoyear yearweek decade century millennium era".split()
)
_PARTS_OF_TIME = frozenset("hour minute second millisecond microsecond epoch".split())
_UNITS = frozenset("microsecond millisecond second minute hour day week month quarter year".split())
_UNIT_SYNONYMS = {"dayofweek": "dow", "weekday": "dow", "dayofyear": "doy", "weekofyear": "week"}
_FORMAT = re.compile(r"(?:[^%]|%-?[dmHIMSj]|%[aAbBpyYUWuwVG%fg])*")
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

    def number(self, index: int) -> Expression:
        """Return an argument, which must be a number."""
        return self.of(index, NUMBERS)

    def double(self, index: int) -> Expression:
        """Return an argument, which must be a number, as DOUBLE."""
        return convert(self.of(index, NUMBERS), DOUBLE, place=self.place)

    def integer(self, index: int) -> Expression:
        """Return an argument, which must be an integer, as BIGINT."""
        return convert(self.of(index, frozenset({Family.INTEGER})), BIGINT, place=self.place)

    def time(self, index: int) -> Expression:
        """Return an argument, which must be a date or a time stamp."""
        return self.of(index, TIMES)

    def unit(self, index: int) -> Literal:
        """Return an argument, which must name a unit of time."""
        unit = str(self.literal_text(index, such_as="day").value).lower()
        if unit not in _UNITS:
            raise self.refuse("argument 1 must name a unit of time.", f"Write one of {', '.join(sorted(_UNITS))}.")
        return Literal(unit, TEXT, len(unit))

    def interval(self, index: int) -> Literal:
        """Return an argument, which must be an INTERVAL."""
        argument = self.arguments[index]
        if isinstance(argument, Literal) and argument.type == INTERVAL:
            return argument
        raise self.refuse(f"argument {index + 1} must be an INTERVAL.", "Such as INTERVAL 15 MINUTE.")

    def format(self, index: int) -> Literal:
        """Return an argument, which must be a format of times."""
        literal = self.literal_text(index, such_as="%Y")
        if not 0 < len(str(literal.value)) <= MAX_PATTERN_LENGTH or not _FORMAT.fullmatch(str(literal.value)):
            raise self.refuse("the format has a specifier that is not known.", "For example '%Y-%m-%d'.")
        return literal


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


def _takes(least: int, most: int | None = None) -> Callable[[Rule], Rule]:
    """Let a rule refuse fewer or more arguments before it looks at them."""
    last = least if most is None else most

    def decorate(rule: Rule) -> Rule:
        def counted(site: Site) -> Expression:
            if least <= len(site.arguments) <= last:
                return rule(site)
            wanted = str(least) if least == last else f"{least} to {last}"
            hint = "Write that many, with commas between them." if last else "Leave the parentheses empty."
            raise site.refuse(f"it takes {wanted} arguments.", hint)

        return counted

    return decorate


def _plain(
    function: str,
    *kinds: Callable[[Site, int], Expression],
    result: Type | None = None,
    longest: int | None = None,
    optional: int = 0,
) -> Rule:
    """Return the rule of a function whose arguments are of these kinds, the last `optional` of which may be left out.

    Without a `result` it has the type of the first argument. Text is as long as that argument, if not the `longest`.
    """

    @_takes(len(kinds) - optional, len(kinds))
    def rule(site: Site) -> Expression:
        arguments = tuple(kind(site, index) for index, kind in enumerate(kinds[: len(site.arguments)]))
        type_ = arguments[0].type if result is None else result
        length = arguments[0].longest if type_ == TEXT and longest is None else longest
        return Call(function, arguments, type_, length)

    return rule


def _substring(function: str, most: int) -> Rule:
    @_takes(2, most)
    def rule(site: Site) -> Expression:
        argument = site.text(0)
        positions = tuple(site.literal_position(index) for index in range(1, len(site.arguments)))
        # left(x, 5) has at most 5 characters; left(x, -5) leaves 5 out, so that x alone bounds it.
        longest, last = argument.longest, int(str(positions[-1].value))
        if len(positions) == most - 1 and last >= 0:  # the last position is a length, and may be the shorter one
            longest = last if longest is None else min(last, longest)
        return Call(function, (argument, *positions), TEXT, longest)

    return rule


@_takes(1, 16)
def _concat(site: Site) -> Expression:
    parts = tuple(cap_length(convert_to_text(argument)) for argument in site.arguments)
    return type_longer_text("concat", parts, longest=sum(map(find_max_length, parts)), place=site.place)


@_takes(2, 16)
def _concat_ws(site: Site) -> Expression:
    between = site.literal_text(0)
    parts = tuple(cap_length(convert_to_text(argument)) for argument in site.arguments[1:])
    longest = sum(map(find_max_length, parts)) + find_max_length(between) * (len(parts) - 1)
    return type_longer_text("concat_ws", (between, *parts), longest=longest, place=site.place)


@_takes(3)
def _replace(site: Site) -> Expression:
    argument, old, new = cap_length(site.text(0)), site.literal_text(1), site.literal_text(2)
    # The quotient is rounded up. An empty `old` is bounded as if it had one character.
    factor = max(1, -(-len(str(new.value)) // max(1, len(str(old.value)))))
    longest = find_max_length(argument) * factor
    return type_longer_text("replace", (argument, old, new), longest=longest, place=site.place)


def _pattern(site: Site, options_at: int, *, replaces: bool = False) -> tuple[Literal, bool]:
    """Return the pattern, with its options written into it, and whether every match is meant.

    It must be one that the engine compiles.
    """
    written = "" if len(site.arguments) <= options_at else str(site.literal_text(options_at, such_as="").value)
    if not set(written) <= set("cisg" if replaces else "cis") or {"c", "i"} <= set(written):
        letters = "c, i, s and g" if replaces else "c, i and s"
        raise site.refuse(f"argument {options_at + 1} may hold the options {letters}.", "Write 'i' to ignore case.")
    flags = "".join(flag for flag in "is" if flag in written)
    value = (f"(?{flags})" if flags else "") + str(site.literal_text(1).value)
    if len(value.encode()) > MAX_PATTERN_LENGTH or not site.accepts_pattern(value):
        reason = f"argument 2 is not a pattern of RE2 of at most {MAX_PATTERN_LENGTH} bytes."
        raise site.refuse(reason, "Write a simpler one, such as '^a'.")
    return Literal(value, TEXT, len(value)), "g" in written


def _matches(function: str) -> Rule:
    @_takes(2, 3)
    def rule(site: Site) -> Expression:
        return Call(function, (site.text(0), _pattern(site, 2)[0]), BOOLEAN)

    return rule


@_takes(2, 4)
def _regexp_extract(site: Site) -> Expression:
    argument, (pattern, _) = site.text(0), _pattern(site, 3)
    if len(site.arguments) == 2:  # noqa: PLR2004 - the short form takes the whole match
        return Call("regexp_extract", (argument, pattern), TEXT, argument.longest)
    group = site.literal_position(2, INTEGER)
    if group.value not in range(10):
        raise site.refuse("the group must be a number from 0 to 9.", "Write 1 for the first group.")
    return Call("regexp_extract", (argument, pattern, group), TEXT, argument.longest)


@_takes(3, 4)
def _regexp_replace(site: Site) -> Expression:
    argument, (pattern, everywhere) = cap_length(site.text(0)), _pattern(site, 3, replaces=True)
    new = site.literal_text(2)
    if "\\" in str(new.value):
        raise site.refuse("the replacement may not refer to groups.", "Write a text without a backslash.")
    times = find_max_length(argument) + 1 if everywhere else 1  # the empty text is found before, between and after
    longest = find_max_length(argument) + len(str(new.value)) * times
    options = (Literal("g", TEXT, 1),) if everywhere else ()
    return type_longer_text("regexp_replace", (argument, pattern, new, *options), longest=longest, place=site.place)


TEXT_FUNCTIONS: dict[str, Rule] = {
    **dict.fromkeys(["lower", "lcase"], _plain("lower", Site.text)),
    **dict.fromkeys(["upper", "ucase"], _plain("upper", Site.text)),
    **dict.fromkeys(["length", "len", "char_length", "character_length"], _plain("length", Site.text, result=BIGINT)),
    "strlen": _plain("strlen", Site.text, result=BIGINT),
    "bit_length": _plain("bit_length", Site.text, result=BIGINT),
    "ascii": _plain("ascii", Site.text, result=INTEGER),
    **dict.fromkeys(["unicode", "ord"], _plain("unicode", Site.text, result=INTEGER)),
    "reverse": _plain("reverse", Site.text),
    "strip_accents": _plain("strip_accents", Site.text),
    "md5": _plain("md5", Site.text, longest=32),
    "sha1": _plain("sha1", Site.text, longest=40),
    "sha256": _plain("sha256", Site.text, longest=64),
    "translate": _plain("translate", Site.text, Site.literal_text, Site.literal_text),
    "concat_ws": _concat_ws,
    **{name: _plain(name, Site.text, Site.literal_text, optional=1) for name in ("trim", "ltrim", "rtrim")},
    **dict.fromkeys(["substr", "substring"], _substring("substring", 3)),
    **{name: _substring(name, 2) for name in ("left", "right")},
    **{name: _plain(name, Site.text, Site.text, result=BOOLEAN) for name in ("starts_with", "prefix")},
    **dict.fromkeys(["ends_with", "suffix"], _plain("suffix", Site.text, Site.text, result=BOOLEAN)),
    "contains": _plain("contains", Site.text, Site.text, result=BOOLEAN),
    **dict.fromkeys(["strpos", "instr"], _plain("strpos", Site.text, Site.text, result=BIGINT)),
    "concat": _concat,
    "replace": _replace,
    "split_part": _plain("split_part", Site.text, Site.literal_text, Site.literal_position),
    **{name: _matches(name) for name in ("regexp_matches", "regexp_full_match")},
    "regexp_extract": _regexp_extract,
    "regexp_replace": _regexp_replace,
}


def _double(function: str, result: Type = DOUBLE) -> Rule:
    return _plain(function, Site.double, result=result)


def _rounded(function: str) -> Rule:
    """FLOOR, CEIL, ROUND and TRUNC, whose result type follows the argument's."""

    @_takes(1, 2 if function == "round" else 1)
    def rule(site: Site) -> Expression:
        argument = site.number(0)
        digits = [site.literal_position(1, INTEGER)] if len(site.arguments) > 1 else []
        type_ = argument.type
        if type_.family is Family.DECIMAL:
            (width, scale), kept = type_.precision, int(str(digits[0].value)) if digits else 0
            if kept < 0:
                raise site.refuse("a DECIMAL is rounded to 0 or more digits.", "Cast it to DOUBLE.")
            type_ = decimal(width, min(kept, scale))
        elif type_.family is Family.INTEGER and function in {"floor", "ceil"}:
            type_ = DOUBLE
        elif type_.name.startswith("U") and function == "round":
            type_ = BIGINT
        return Call(function, (argument, *digits), type_)

    return rule


def _unified(function: str) -> Rule:
    @_takes(2, 16)
    def rule(site: Site) -> Expression:
        arguments = unify_types(site.arguments, site.place)
        if arguments[0].type == NULL:
            raise site.refuse("at least one argument must have a type.", "Such as CAST(NULL AS VARCHAR).")
        return Call(function, arguments, arguments[0].type, _find_longest(arguments))

    return rule


def _find_longest(texts: tuple[Expression, ...]) -> int | None:
    """Return the length of the longest of some texts, None where one is as long as what is stored."""
    lengths = [text.longest for text in texts if text.longest is not None]
    return max(lengths) if len(lengths) == len(texts) else None


def _finite(function: str) -> Rule:
    """ISFINITE and ISINF, which dates and time stamps can be as well."""
    of_number = _double(function, BOOLEAN)

    @_takes(1)
    def rule(site: Site) -> Expression:
        argument = site.arguments[0]
        return Call(function, (argument,), BOOLEAN) if argument.type.family in TIMES else of_number(site)

    return rule


def _logarithm(site: Site) -> Expression:
    rule = _plain("log", Site.double, Site.double, result=DOUBLE) if len(site.arguments) > 1 else _double("log10")
    return rule(site)


@_takes(2)
def _xor(site: Site) -> Expression:
    whole = frozenset({Family.INTEGER})
    return combine_integers(site.of(0, whole), "xor", right=site.of(1, whole), where=site.place)


@_takes(2)
def _modulo(site: Site) -> Expression:
    return arithmetic(site.number(0), "%", right=site.number(1), where=site.place)


@_takes(3)
def _if(site: Site) -> Expression:
    condition = site.of(0, frozenset({Family.BOOLEAN, Family.NULL}))
    then, otherwise = results = unify_types(site.arguments[1:], site.place)
    if then.type == NULL:
        raise site.refuse("at least one result must have a type.", "Such as CAST(NULL AS VARCHAR).")
    branch = convert(condition, BOOLEAN, place=site.place), then
    return Case((branch,), otherwise, then.type, _find_longest(results))


@_takes(1)
def _tried(site: Site) -> Expression:
    """TRY: what fails gives NULL here in any case, and so does all that is computed from it if nothing absorbs NULL."""
    for part in walk(site.arguments[0]):
        absorbs = isinstance(part, Call) and part.function in _ABSORB_NULL
        if absorbs or isinstance(part, Case | In | InQuery):
            hint = "Leave TRY out: an operation that fails gives NULL in any case."
            raise Unsupported("try", "TRY is read around plain operations and functions.", hint=hint, place=site.place)
    return site.arguments[0]


@_takes(4)
def _width_bucket(site: Site) -> Expression:
    """WIDTH_BUCKET of SQL:2003, in DOUBLE: 0 below the first end, n + 1 from the last on, else the bucket of 1 to n.

    DuckDB has no such function, so it is put together of others.
    """
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
    # The quotient is rounded, so that a value just below the last end could be in bucket n + 1.
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


@_takes(2)
def _nullif(site: Site) -> Expression:
    first = site.arguments[0]
    equal = Call("=", unify_for_comparison(site.arguments, site.place), BOOLEAN)
    return Case(((equal, Literal(None, first.type)),), first, first.type, first.longest)


_GCD, _LCM = "greatest_common_divisor", "least_common_multiple"
NUMBER_FUNCTIONS: dict[str, Rule] = {
    **{name: _double(name) for name in ("sqrt", "cbrt", "ln", "log2", "log10", "exp")},
    "log": _logarithm,
    **{name: _double(name) for name in "sin cos tan cot asin acos atan sinh cosh tanh radians degrees even".split()},
    "atan2": _plain("atan2", Site.double, Site.double, result=DOUBLE),
    "pi": _plain("pi", result=DOUBLE),
    "mod": _modulo,
    "xor": _xor,
    **dict.fromkeys(["gcd", _GCD], _plain(_GCD, Site.integer, Site.integer, result=BIGINT)),
    **dict.fromkeys(["lcm", _LCM], _plain(_LCM, Site.integer, Site.integer, result=BIGINT)),
    "if": _if,
    "try": _tried,
    **dict.fromkeys(["pow", "power"], _plain("pow", Site.double, Site.double, result=DOUBLE)),
    "sign": _double("sign", Type(Family.INTEGER, "TINYINT")),
    "isnan": _double("isnan", BOOLEAN),
    **{name: _finite(name) for name in ("isinf", "isfinite")},
    "abs": _plain("abs", Site.number),
    **dict.fromkeys(["ceil", "ceiling"], _rounded("ceil")),
    **{name: _rounded(name) for name in ("floor", "round", "trunc")},
    **{name: _unified(name) for name in ("greatest", "least")},
    **dict.fromkeys(["coalesce", "ifnull"], _unified("coalesce")),
    "nullif": _nullif,
    "width_bucket": _width_bucket,
}


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


def _part(name: str) -> Rule:
    @_takes(1)
    def rule(site: Site) -> Expression:
        return date_part(name, site.time(0), place=site.place)

    return rule


@_takes(2)
def _named_part(site: Site) -> Expression:
    return date_part(str(site.literal_text(0, such_as="day").value).lower(), site.time(1), place=site.place)


@_takes(2)
def _date_trunc(site: Site) -> Expression:
    unit, argument = site.unit(0), site.time(1)
    if isinstance(argument, Literal):
        with suppress(ValueError, OverflowError):
            return truncate(argument, str(unit.value))
    return Call("date_trunc", (unit, argument), TIMESTAMP)


@_takes(0)
def _clock(site: Site) -> Expression:
    return read_clock(site.now(), site.name)


def _apart(function: str) -> Rule:
    """DATE_DIFF, which counts the boundaries between two times, and DATE_SUB, which counts whole units."""

    @_takes(3)
    def rule(site: Site) -> Expression:
        unit = site.unit(0)
        first, last = unify_for_comparison((site.time(1), site.time(2)), site.place)
        return Call(function, (unit, first, last), BIGINT)

    return rule


@_takes(2)
def _date_add(site: Site) -> Expression:
    return shift_date(site.time(0), "+", interval=site.interval(1), where=site.place)


@_takes(2)
def _time_bucket(site: Site) -> Expression:
    width, argument = site.interval(0), site.time(1)
    if int(str(width.value).split()[0]) <= 0:
        raise site.refuse("the INTERVAL must be longer than nothing.", "Such as INTERVAL 15 MINUTE.")
    return Call("time_bucket", (width, argument), argument.type)


@_takes(1)
def _date(site: Site) -> Expression:
    argument = site.time(0)
    if isinstance(argument, Literal) and argument.type == TIMESTAMP and argument.value is not None:
        return truncate_to_date(argument)
    return Cast(argument, DATE)


@_takes(1)
def _epoch_ms(site: Site) -> Expression:
    if site.arguments[0].type.family is Family.INTEGER:  # the time stamp so many milliseconds after 1970
        return Call("epoch_ms", (site.integer(0),), TIMESTAMP)
    return Call("epoch_ms", (site.time(0),), BIGINT)


@_takes(2)
def _strftime(site: Site) -> Expression:
    layout = site.format(1)
    return Call("strftime", (site.time(0), layout), TEXT, 16 * max(1, len(str(layout.value))))


TIME_FUNCTIONS: dict[str, Rule] = {
    **{name: _part(name) for name in sorted(_PARTS_OF_BOTH - {"dow", "doy"} | _PARTS_OF_TIME | set(_UNIT_SYNONYMS))},
    **dict.fromkeys(["date_part", "datepart"], _named_part),
    **dict.fromkeys(["date_trunc", "datetrunc"], _date_trunc),
    **dict.fromkeys(["date_diff", "datediff"], _apart("date_diff")),
    **dict.fromkeys(["date_sub", "datesub"], _apart("date_sub")),
    "date_add": _date_add,
    "time_bucket": _time_bucket,
    "date": _date,
    "epoch_ms": _epoch_ms,
    **{name: _plain(name, Site.time, result=BIGINT) for name in ("epoch_us", "epoch_ns")},
    "dayname": _plain("dayname", Site.time, result=TEXT, longest=16),
    "monthname": _plain("monthname", Site.time, result=TEXT, longest=16),
    "last_day": _plain("last_day", Site.time, result=DATE),
    **dict.fromkeys(sorted(DAYS | MOMENTS), _clock),
    "strftime": _strftime,
    **dict.fromkeys(["strptime", "try_strptime"], _plain("try_strptime", Site.text, Site.format, result=TIMESTAMP)),
}


FUNCTIONS: dict[str, Rule] = {**TEXT_FUNCTIONS, **NUMBER_FUNCTIONS, **TIME_FUNCTIONS}
TAKES_INTERVAL = frozenset(["time_bucket", "date_add"])
AGGREGATES = frozenset(["sum", "avg", "min", "max"])  # besides count, and over public tables alone
WINDOWS = frozenset("row_number rank dense_rank percent_rank cume_dist ntile lag lead first_value".split())
HIGH_ENDS = frozenset(["value_high", "dp_interval_high"])  # of the intervals of measures that a private query releases
INTERVAL_ENDS = HIGH_ENDS | {"value_low", "dp_interval_low"}  # by their names here, and by Snowflake's
INSIDE = AGGREGATES | WINDOWS  # what subqueries may call


def refuse_unknown(name: str, place: Place | None, *, known: Iterable[str] = FUNCTIONS, hint: str = "") -> Unsupported:
    """Return the refusal of a function that is not here; without a hint it proposes one of the `known` functions."""
    hint = hint or f"{propose_name(name, known)}SHOW FUNCTIONS lists those that there are."
    return Unsupported("function", "This function is not on the allow-list.", hint=hint, place=place)


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
