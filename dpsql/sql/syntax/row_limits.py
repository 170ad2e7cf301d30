"""Normalization of LIMIT and OFFSET from the other forms that tools write.

    [OFFSET m ROWS] FETCH FIRST n ROWS ONLY    LIMIT n [OFFSET m]
    OFFSET m LIMIT n                           LIMIT n OFFSET m
    LIMIT ALL                                  (nothing: all rows)

FETCH, OFFSET and LIMIT are reserved words in DuckDB, so no unquoted name can be mistaken for one of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.sql.lexer import ascii_lower

if TYPE_CHECKING:
    from sqlglot import Token

__all__ = ["normalize_row_limits"]

_KEYWORDS = frozenset(["LIMIT", "OFFSET", "FETCH"])
_ROWS = frozenset(["row", "rows"])
_COUNTS = frozenset(["NUMBER", "STRING"])  # a parameter is a STRING


def normalize_row_limits(tokens: list[Token]) -> list[Token]:
    """Rewrite every row limit as LIMIT n OFFSET m."""
    if _KEYWORDS.isdisjoint(token.token_type.name for token in tokens):
        return tokens
    found: list[Token] = []
    at = 0
    while at < len(tokens):
        offset, width = _read_offset(tokens, at)
        limit, more = _read_limit(tokens, at + width)
        if not width and more:
            offset, width = _read_offset(tokens, at + more)
        found += [*limit, *offset] if width + more else [tokens[at]]
        at += width + more or 1
    return found


def _read_offset(tokens: list[Token], at: int) -> tuple[list[Token], int]:
    """Return OFFSET m and the number of its tokens at tokens[at]; nothing and 0 if there is no OFFSET."""
    if _kind(tokens, at) != "OFFSET" or _kind(tokens, at + 1) not in _COUNTS:
        return [], 0
    return tokens[at : at + 2], 3 if _word(tokens, at + 2) in _ROWS else 2


def _read_limit(tokens: list[Token], at: int) -> tuple[list[Token], int]:
    """Return LIMIT n, nothing for all rows, and the number of its tokens at tokens[at]."""
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
