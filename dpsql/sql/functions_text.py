"""Functions of text: positions, patterns and replacements are literals, and what can grow is bounded."""

from __future__ import annotations

from dpsql.sql.calls import Rule, Site, bounded, grown, length_of
from dpsql.sql.tree import Call, Expression
from dpsql.sql.types import BIGINT, BOOLEAN, INTEGER, TEXT, Type

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
        return Call(function, (argument, *positions), TEXT, argument.longest)

    return rule


def _concat(site: Site) -> Expression:
    site.count(1, 16)
    parts = tuple(bounded(site.text(index)) for index in range(len(site.arguments)))
    return grown("concat", parts, longest=sum(map(length_of, parts)), place=site.place)


def _replace(site: Site) -> Expression:
    site.count(3, 3)
    argument, old, new = bounded(site.text(0)), site.literal_text(1), site.literal_text(2)
    factor = max(1, -(-len(str(new.value)) // max(1, len(str(old.value)))))
    return grown("replace", (argument, old, new), longest=length_of(argument) * factor, place=site.place)


def _split_part(site: Site) -> Expression:
    site.count(3, 3)
    argument = site.text(0)
    return Call("split_part", (argument, site.literal_text(1), site.literal_position(2)), TEXT, argument.longest)


def _matches(function: str) -> Rule:
    def rule(site: Site) -> Expression:
        site.count(2, 2)
        return Call(function, (site.text(0), site.pattern(1)), BOOLEAN)

    return rule


def _regexp_extract(site: Site) -> Expression:
    site.count(2, 3)
    argument, pattern = site.text(0), site.pattern(1)
    if len(site.arguments) == 2:  # noqa: PLR2004 - the short form takes the whole match
        return Call("regexp_extract", (argument, pattern), TEXT, argument.longest)
    group = site.literal_position(2, INTEGER)
    if group.value not in range(10):
        raise site.refuse("the group must be a number from 0 to 9.")
    return Call("regexp_extract", (argument, pattern, group), TEXT, argument.longest)


def _regexp_replace(site: Site) -> Expression:
    site.count(3, 3)
    argument, pattern, new = bounded(site.text(0)), site.pattern(1), site.literal_text(2)
    if "\\" in str(new.value):
        raise site.refuse("the replacement may not refer to groups.")
    return grown(
        "regexp_replace", (argument, pattern, new), longest=length_of(argument) + len(str(new.value)), place=site.place
    )


TEXT_FUNCTIONS: dict[str, Rule] = {
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
}
