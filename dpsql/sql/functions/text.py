"""Functions of text: positions, patterns and replacements are literals, and what can grow is bounded."""

from __future__ import annotations

from dpsql.sql.functions.coercion import convert_to_text
from dpsql.sql.functions.signatures import Rule, Site, cap_length, find_max_length, type_longer_text
from dpsql.sql.ir.tree import Call, Expression, Literal
from dpsql.sql.ir.types import BIGINT, BOOLEAN, INTEGER, TEXT, Type

__all__ = ["TEXT_FUNCTIONS"]


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
