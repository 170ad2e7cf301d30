"""LIMIT and OFFSET in the other spellings that tools write, put into the one that is read.

    [OFFSET m ROWS] FETCH FIRST n ROWS ONLY    LIMIT n [OFFSET m]
    OFFSET m LIMIT n                           LIMIT n OFFSET m
    LIMIT ALL                                  (nothing: all rows)

FETCH, OFFSET and LIMIT are reserved in DuckDB, so that no name is taken for one of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.sql.lexer import ascii_lower

if TYPE_CHECKING:
    from sqlglot import Token

__all__ = ["normalize_row_limits"]

_SAID = frozenset(["LIMIT", "OFFSET", "FETCH"])
_ROWS = frozenset(["row", "rows"])
_COUNTS = frozenset(["NUMBER", "STRING"])  # a parameter is a STRING


def normalize_row_limits(tokens: list[Token]) -> list[Token]:
    """Return the tokens with every LIMIT and OFFSET as LIMIT n OFFSET m, where they say so in other words."""
    if _SAID.isdisjoint(token.token_type.name for token in tokens):
        return tokens
    found: list[Token] = []
    at = 0
    while at < len(tokens):
        offset, width = _offset(tokens, at)
        limit, more = _limit(tokens, at + width)
        if not width and more:
            offset, width = _offset(tokens, at + more)
        found += [*limit, *offset] if width + more else [tokens[at]]
        at += width + more or 1
    return found


def _offset(tokens: list[Token], at: int) -> tuple[list[Token], int]:
    """Return OFFSET m, and how many tokens say it at tokens[at]; nothing where none do."""
    if _kind(tokens, at) != "OFFSET" or _kind(tokens, at + 1) not in _COUNTS:
        return [], 0
    return tokens[at : at + 2], 3 if _word(tokens, at + 2) in _ROWS else 2


def _limit(tokens: list[Token], at: int) -> tuple[list[Token], int]:
    """Return LIMIT n, nothing for all rows, and how many tokens say it at tokens[at]."""
    if _kind(tokens, at) == "LIMIT" and _kind(tokens, at + 1) == "ALL":
        return [], 2
    if _kind(tokens, at) == "LIMIT" and _kind(tokens, at + 1) in _COUNTS:
        return tokens[at : at + 2], 2
    if _kind(tokens, at) != "FETCH" or _word(tokens, at + 1) not in {"first", "next"}:
        return [], 0
    counted = _kind(tokens, at + 2) in _COUNTS
    if _word(tokens, at + 2 + counted) not in _ROWS or _word(tokens, at + 3 + counted) != "only":
        return [], 0
    count = tokens[at + 2] if counted else _like(tokens[at], "NUMBER", text="1")
    return [_like(tokens[at], "LIMIT", text="LIMIT"), count], 4 + counted


def _word(tokens: list[Token], at: int) -> str:
    return "" if _kind(tokens, at) in {"", "IDENTIFIER"} else ascii_lower(tokens[at].text)


def _kind(tokens: list[Token], at: int) -> str:
    return tokens[at].token_type.name if 0 <= at < len(tokens) else ""


def _like(token: Token, kind: str, *, text: str) -> Token:
    from sqlglot import Token, TokenType

    return Token(TokenType[kind], text, token.line, token.col, token.start, token.end)
