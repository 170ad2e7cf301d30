"""Lists of GROUP BY with parentheses that group nothing, in their plain form.

GROUP BY (a, b), c              GROUP BY a, b, c
GROUP BY (1)                    GROUP BY 1
COUNT(*) ... GROUP BY ()        COUNT(*) ...                    one group of all rows
"""

from __future__ import annotations

from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING

from dpsql.sql.syntax.token_scan import CLOSINGS, OPENINGS, Span, find_calls, find_closing, kind_of, split_commas

if TYPE_CHECKING:
    from sqlglot import Token

__all__ = ["normalize_group_lists"]

_AFTER_GROUPS = frozenset("HAVING WINDOW QUALIFY ORDER_BY LIMIT OFFSET FETCH UNION INTERSECT EXCEPT SEMICOLON".split())
_LISTS = frozenset([("GROUP_BY", "L_PAREN"), ("COMMA", "L_PAREN")])  # how an element in parentheses begins
_WORDS = frozenset(["top", "private", "all"])


def normalize_group_lists(tokens: list[Token]) -> list[Token]:
    """Return the tokens with the lists of GROUP BY in their plain form."""
    kinds = list(map(attrgetter("token_type.name"), tokens))
    if _LISTS.isdisjoint(pairwise(kinds)):
        return tokens
    starts = [at for at, kind in enumerate(kinds) if kind == "GROUP_BY"]
    for at in reversed(starts):
        end = _find_end(tokens, at + 1)
        parts = split_commas(tokens, (at + 1, end))
        if not any(kind_of(tokens, start) == "L_PAREN" for start, _ in parts):
            continue
        keys = [key for part in parts for key in _flatten(tokens, part)]
        if keys:
            written = [tokens[at]]
            for number, (start, stop) in enumerate(keys):
                comma = [_find_comma(tokens, start)] if number else []
                written += [*comma, *tokens[start:stop]]
            tokens = [*tokens[:at], *written, *tokens[end:]]
        elif _has_aggregate(tokens, at):  # a SELECT without one has a row of its own for GROUP BY ()
            tokens = [*tokens[:at], *tokens[end:]]
    return tokens


def _find_end(tokens: list[Token], start: int) -> int:
    """Return where a list of GROUP BY ends."""
    depth = 0
    for at in range(start, len(tokens)):
        kind = tokens[at].token_type.name
        depth += (kind in OPENINGS) - (kind in CLOSINGS)
        is_clause = kind in _AFTER_GROUPS or (at > start and _follows_list(tokens, at))
        if depth < 0 or (not depth and is_clause):
            return at
    return len(tokens)


def _follows_list(tokens: list[Token], at: int) -> bool:
    """Say whether TOP k PRIVATE, ALL PRIVATE or PRIVATE begins at a position, where no comma is before it."""
    return tokens[at].text.lower() in _WORDS and kind_of(tokens, at - 1) not in {"COMMA", "DOT", "IDENTIFIER"}


def _flatten(tokens: list[Token], part: Span) -> list[Span]:
    """Return the keys of an element of GROUP BY; none of an empty list."""
    start, end = part
    if start >= end or kind_of(tokens, start) != "L_PAREN" or find_closing(tokens, start) != end:
        return [part]
    if end == start + len(("(", ")")):
        return []
    inner = split_commas(tokens, (start + 1, end - 1))
    keys = [key for each in inner for key in _flatten(tokens, each)]
    is_position = end == start + len(("(", "1", ")")) and kind_of(tokens, start + 1) == "NUMBER"
    return [part] if len(inner) == 1 and keys == inner and not is_position else keys


def _find_comma(tokens: list[Token], start: int) -> Token:
    """Return a comma at the place of a token."""
    from sqlglot import Token, TokenType

    token = tokens[start]
    return Token(TokenType.COMMA, ",", token.line, token.col, token.start, token.end)


def _has_aggregate(tokens: list[Token], at: int) -> bool:
    """Say whether the SELECT of a GROUP BY has an aggregate in its select list."""
    depth, source = 0, at
    for before in range(at - 1, -1, -1):
        kind = tokens[before].token_type.name
        depth += (kind in CLOSINGS) - (kind in OPENINGS)
        if not depth and kind == "FROM":
            source = before
        if not depth and kind == "SELECT":
            return any(find_calls(tokens, (before + 1, source)))
    return False
