"""Normalization of LIMIT and OFFSET from the other forms that tools write.

    [OFFSET m ROWS] FETCH FIRST n ROWS ONLY    LIMIT n [OFFSET m]
    OFFSET m LIMIT n                           LIMIT n OFFSET m
    LIMIT ALL                                  (nothing: all rows)
    LIMIT $1::INTEGER, LIMIT CAST($1 AS INT)   LIMIT $1

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
_TYPES = frozenset("smallint int2 integer int int4 bigint int8".split())


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
    count, width = _read_count(tokens, at + 1)
    if _kind(tokens, at) != "OFFSET" or not width:
        return [], 0
    return [tokens[at], *count], 1 + width + (_word(tokens, at + 1 + width) in _ROWS)


def _read_limit(tokens: list[Token], at: int) -> tuple[list[Token], int]:
    """Return LIMIT n, nothing for all rows, and the number of its tokens at tokens[at]."""
    if _kind(tokens, at) == "LIMIT" and _kind(tokens, at + 1) == "ALL":
        return [], 2
    count, width = _read_count(tokens, at + 1)
    if _kind(tokens, at) == "LIMIT" and width:
        return [tokens[at], *count], 1 + width
    if _kind(tokens, at) != "FETCH" or _word(tokens, at + 1) not in {"first", "next"}:
        return [], 0
    count, width = _read_count(tokens, at + 2)
    if _word(tokens, at + 2 + width) not in _ROWS or _word(tokens, at + 3 + width) != "only":
        return [], 0
    count = count or [_like(tokens[at], "NUMBER", text="1")]
    return [_like(tokens[at], "LIMIT", text="LIMIT"), *count], 4 + width


def _read_count(tokens: list[Token], at: int) -> tuple[list[Token], int]:
    """Return the count at tokens[at] and the number of its tokens with a cast to whole numbers; nothing and 0 for none.

    SQLAlchemy writes such casts for psycopg.
    """
    if _word(tokens, at) == "cast" and [_kind(tokens, at + 1), _kind(tokens, at + 3)] == ["L_PAREN", "ALIAS"]:
        is_count = _kind(tokens, at + 2) in _COUNTS and _word(tokens, at + 4) in _TYPES
        return (tokens[at + 2 : at + 3], 6) if is_count and _kind(tokens, at + 5) == "R_PAREN" else ([], 0)
    if _kind(tokens, at) not in _COUNTS:
        return [], 0
    is_cast = _kind(tokens, at + 1) == "DCOLON" and _word(tokens, at + 2) in _TYPES
    return tokens[at : at + 1], 3 if is_cast else 1


def _word(tokens: list[Token], at: int) -> str:
    return "" if _kind(tokens, at) in {"", "IDENTIFIER"} else ascii_lower(tokens[at].text)


def _kind(tokens: list[Token], at: int) -> str:
    return tokens[at].token_type.name if 0 <= at < len(tokens) else ""


def _like(token: Token, kind: str, *, text: str) -> Token:
    from sqlglot import Token, TokenType

    return Token(TokenType[kind], text, token.line, token.col, token.start, token.end)
