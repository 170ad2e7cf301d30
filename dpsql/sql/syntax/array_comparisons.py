"""Comparisons with the items of an array, as drivers and object-relational mappers write them.

    x = ANY (ARRAY['a', 'b']::text[])     x IN ('a', 'b')
    x = ANY (['a', 'b'])                  x IN ('a', 'b')
    x <> ALL (ARRAY['a', 'b'])            x NOT IN ('a', 'b')
    x = ANY (SELECT y FROM t)             x IN (SELECT y FROM t)
    x = ANY ('{a,b}'), x = ANY ($1)       a call of `ANY_OF`, as the items are in the value

An array in any other place is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.sql.lexer import Statement, Value, ascii_lower
from dpsql.sql.syntax.token_scan import find_closing, is_subquery, kind_of

if TYPE_CHECKING:
    from sqlglot import Token

__all__ = ["ALL_OF", "ANY_OF", "find_array_values", "normalize_array_comparisons"]

ANY_OF, ALL_OF = "any\0", "all\0"  # names that no statement can hold
_COMPARISONS = {("EQ", "any"): ANY_OF, ("EQ", "some"): ANY_OF, ("NEQ", "all"): ALL_OF}


def normalize_array_comparisons(tokens: list[Token]) -> list[Token]:
    """Return the tokens with each of these comparisons in its plain form."""
    found: list[Token] = []
    at = 0
    while at < len(tokens):
        function, end = _find_comparison(tokens, at)
        written = _rewrite(tokens, at, end=end, function=function) if function else []
        found += written or [tokens[at]]
        at = end if written else at + 1
    return found


def find_array_values(statement: Statement, tokens: list[Token]) -> frozenset[Value]:
    """Return the texts and parameters that are the array of such a comparison."""
    found = set[Value]()
    for at in range(len(tokens)):
        function, end = _find_comparison(tokens, at)
        inner = _strip_casts(tokens[at + 3 : end - 1]) if function else []
        value = statement.value(inner[0].text) if len(inner) == 1 else None
        found |= set() if value is None else {value}
    return frozenset(found)


def _find_comparison(tokens: list[Token], at: int) -> tuple[str, int]:
    """Return the function and the end of the comparison whose operator is tokens[at]; "" if there is none."""
    function = _COMPARISONS.get((kind_of(tokens, at), _read_word(tokens, at + 1)), "")
    if not function or kind_of(tokens, at + 2) != "L_PAREN":
        return "", at
    return function, find_closing(tokens, at + 2)


def _rewrite(tokens: list[Token], at: int, *, end: int, function: str) -> list[Token]:
    """Return the plain form of the comparison tokens[at:end]; nothing if it has none."""
    operator, quantifier, opening, closing = tokens[at], tokens[at + 1], tokens[at + 2], tokens[end - 1]
    inner = _strip_casts(tokens[at + 3 : end - 1])
    kinds = [token.token_type.name for token in inner]
    if kinds == ["STRING"]:
        return [operator, _like(quantifier, "VAR", text=function), opening, *inner, closing]
    start = int(kinds[:1] == ["ARRAY"])
    is_list = kind_of(inner, start) == "L_BRACKET" and find_closing(inner, start) == len(inner)
    if is_list and len(inner) > start + len(("[", "]")):
        items = inner[start + 1 : -1]
    elif is_subquery([opening, *inner], 0):
        items = inner
    else:
        return []
    negation = [_like(operator, "NOT", text="NOT")] if function == ALL_OF else []
    return [*negation, _like(operator, "IN", text="IN"), opening, *items, closing]


def _strip_casts(tokens: list[Token]) -> list[Token]:
    """Return an array without casts to arrays and without parentheses around it."""
    while True:
        kinds = [token.token_type.name for token in tokens]
        if kinds[:1] == ["L_PAREN"] and find_closing(tokens, 0) == len(tokens):
            tokens = tokens[1:-1]
        elif kinds[-2:] != ["L_BRACKET", "R_BRACKET"] and kinds[-3:] != ["L_BRACKET", "R_BRACKET", "R_PAREN"]:
            return tokens
        elif _read_word(tokens, 0) == "cast" and kinds[1:2] == ["L_PAREN"] and "ALIAS" in kinds:
            tokens = tokens[2 : len(kinds) - 1 - kinds[::-1].index("ALIAS")]
        elif "DCOLON" in kinds:
            tokens = tokens[: len(kinds) - 1 - kinds[::-1].index("DCOLON")]
        else:
            return tokens


def _read_word(tokens: list[Token], at: int) -> str:
    return "" if kind_of(tokens, at) in {"", "IDENTIFIER"} else ascii_lower(tokens[at].text)


def _like(token: Token, kind: str, *, text: str) -> Token:
    """Return a token at the place of another one, so that errors about it point there."""
    from sqlglot import Token, TokenType

    return Token(TokenType[kind], text, token.line, token.col, token.start, token.end)
