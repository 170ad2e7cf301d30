"""LIKE with the items of an array, as PostgreSQL has it: a call that no statement can hold otherwise.

x LIKE ANY (ARRAY['a%', 'b%'])     x LIKE any item(...), which is x LIKE 'a%' OR x LIKE 'b%'
x LIKE ALL ('{a%,%b}'), ALL ($1)   a call of `ALL_OF`, as the items are in the value
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.sql.lexer import ascii_lower
from dpsql.sql.syntax.array_comparisons import ALL_OF, ANY_OF
from dpsql.sql.syntax.token_scan import find_closing, kind_of

if TYPE_CHECKING:
    from sqlglot import Token

__all__ = ["ALL_ITEMS", "ANY_ITEMS", "normalize_like_lists"]

ANY_ITEMS, ALL_ITEMS = "any item\0", "all item\0"  # names that no statement can hold
_LIKES = frozenset(["LIKE", "ILIKE"])
_OF_VALUE = {"any": ANY_OF, "some": ANY_OF, "all": ALL_OF}
_OF_ITEMS = {"any": ANY_ITEMS, "some": ANY_ITEMS, "all": ALL_ITEMS}
_SHORTEST = len(("ARRAY", "[", "item", "]"))


def normalize_like_lists(tokens: list[Token]) -> list[Token]:
    """Return the tokens with each LIKE of an array in its plain form."""
    from sqlglot import Token, TokenType

    found: list[Token] = []
    at = 0
    while at < len(tokens):
        found.append(tokens[at])
        word = "" if kind_of(tokens, at + 1) in {"", "IDENTIFIER"} else ascii_lower(tokens[at + 1].text)
        at += 1
        if found[-1].token_type.name not in _LIKES or word not in _OF_VALUE or kind_of(tokens, at + 1) != "L_PAREN":
            continue
        end = find_closing(tokens, at + 1)
        inner = _strip_cast(tokens[at + 2 : end - 1])
        kinds = [token.token_type.name for token in inner]
        name = _OF_VALUE[word] if kinds == ["STRING"] else ""
        if kinds[:2] == ["ARRAY", "L_BRACKET"] and kinds[-1] == "R_BRACKET" and len(kinds) >= _SHORTEST:
            name, inner = _OF_ITEMS[word], inner[2:-1]
        if name:
            quantifier = tokens[at]
            place = quantifier.line, quantifier.col, quantifier.start, quantifier.end
            found += [Token(TokenType.VAR, name, *place), tokens[at + 1], *inner, tokens[end - 1]]
            at = end
    return found


def _strip_cast(tokens: list[Token]) -> list[Token]:
    """Return an array without the cast to an array after it, such as ::text[]."""
    kinds = [token.token_type.name for token in tokens]
    is_cast = kinds[-2:] == ["L_BRACKET", "R_BRACKET"] and "DCOLON" in kinds
    return tokens[: len(kinds) - 1 - kinds[::-1].index("DCOLON")] if is_cast else tokens
