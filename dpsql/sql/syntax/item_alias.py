"""Alias of an item of a select list, with AS or without: `amount::INTEGER x`, `day + INTERVAL '1 day' next`.

A word that follows an operand is an alias, unless it belongs to the type or the interval before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.sql.lexer import ascii_lower
from dpsql.sql.syntax.token_scan import Span, is_word, kind_of

if TYPE_CHECKING:
    from sqlglot import Token

__all__ = ["find_alias", "is_alias_of_interval"]

_LONGEST = 2  # tokens of AS and a name
_ENDS_OPERAND = frozenset("R_PAREN R_BRACKET R_BRACE END NUMBER STRING IDENTIFIER NULL TRUE FALSE".split())
_ENDS_ITEM = frozenset("COMMA R_PAREN FROM WHERE GROUP_BY ORDER_BY LIMIT UNION INTERSECT EXCEPT SEMICOLON".split()) | {
    ""
}
_UNITS = frozenset(
    f"{unit}{ending}"
    for unit in "microsecond millisecond second minute hour day week month quarter year decade".split()
    for ending in ("", "s")
) | frozenset(["century", "centuries", "millennium", "millennia"])
_OF_TYPES = {"precision": ("double",), "varying": ("character", "char", "bit"), "zone": ("time",)}
_BEFORE_OPERAND = frozenset(
    "all and any at between case collate distinct else escape except filter from glob ilike in intersect interval is "
    "like not of or over select similar then to union when".split()
)


def find_alias(tokens: list[Token], span: Span) -> int | None:
    """Return the position of the alias that ends an item; None where it has none."""
    start, end = span
    last, before = end - 1, end - 2
    if end - start > _LONGEST and kind_of(tokens, before) == "ALIAS":
        return last
    if before < start or not _is_name(tokens, last) or _belongs_to_type(tokens, last):
        return None
    if _is_unit(tokens, last):
        return None
    kind = kind_of(tokens, before)
    is_type = kind_of(tokens, end - 3) == "DCOLON" or _belongs_to_type(tokens, before)
    is_zone = is_word(tokens, before, words={"zone"}) and is_word(tokens, end - 4, words={"at"})  # AT TIME ZONE x
    ends = kind in _ENDS_OPERAND or is_type or _is_name(tokens, before)
    return last if ends and not is_zone else None


def is_alias_of_interval(tokens: list[Token], at: int) -> bool:
    """Say whether tokens[at] is the alias of an item that ends with INTERVAL '...', which names its units itself."""
    kinds = [kind_of(tokens, each) for each in (at - 2, at - 1, at + 1)]
    is_behind = kinds[:2] == ["INTERVAL", "STRING"] and kinds[2] in _ENDS_ITEM
    return is_behind and _is_name(tokens, at) and not _is_unit(tokens, at)


def _is_name(tokens: list[Token], at: int) -> bool:
    """Say whether a token can name an item, or be the word that ends one."""
    if kind_of(tokens, at) == "IDENTIFIER":
        return True
    text = ascii_lower(tokens[at].text)
    is_letter = text[:1].isalpha() or text[:1] == "_"
    return is_letter and text not in _BEFORE_OPERAND and kind_of(tokens, at) not in {"END", "NULL", "TRUE", "FALSE"}


def _is_unit(tokens: list[Token], at: int) -> bool:
    """Say whether a word is the unit of an INTERVAL: INTERVAL 1 DAY."""
    return (
        kind_of(tokens, at) != "IDENTIFIER"
        and is_word(tokens, at, words=_UNITS)
        and any(kind_of(tokens, before) == "INTERVAL" for before in (at - 2, at - 4))
    )


def _belongs_to_type(tokens: list[Token], at: int) -> bool:
    """Say whether a word ends a type of several words, such as DOUBLE PRECISION."""
    before = _OF_TYPES.get(ascii_lower(tokens[at].text), ()) if at > 0 else ()
    return bool(before) and is_word(tokens, at - 1, words=before)
