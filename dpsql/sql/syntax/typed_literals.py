"""Typed literals for the calls by which PostgreSQL drivers write dates and time stamps.

    TO_TIMESTAMP('2026-01-31 12:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US')    (TIMESTAMP '2026-01-31 12:00:00.000000')
    TO_DATE('2026-01-31', 'YYYY-MM-DD')                                       (DATE '2026-01-31')

DuckDB has neither function of two texts, so the calls have no other meaning. Other formats are refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.sql.lexer import Statement, ascii_lower

if TYPE_CHECKING:
    from sqlglot import Token

__all__ = ["DATE_FUNCTIONS", "type_date_calls"]

_DAY = "YYYY-MM-DD"
_FORMATS = {
    "to_timestamp": ("TIMESTAMP", {_DAY, f"{_DAY} HH24:MI:SS", f"{_DAY} HH24:MI:SS.MS", f"{_DAY} HH24:MI:SS.US"}),
    "to_date": ("DATE", {_DAY}),
}
DATE_FUNCTIONS = frozenset(_FORMATS)
_CALL = ["L_PAREN", "STRING", "COMMA", "STRING", "R_PAREN"]


def type_date_calls(statement: Statement, tokens: list[Token]) -> list[Token]:
    """Replace each of these calls by a typed literal in parentheses."""
    if not any(token.text[:3].lower() == "to_" for token in tokens):
        return tokens
    found: list[Token] = []
    at = 0
    while at < len(tokens):
        word = _find_literal_type(statement, tokens, at=at)
        if word:
            found += [tokens[at + 1], _copy_token(tokens[at], word), tokens[at + 2], tokens[at + 5]]
        else:
            found.append(tokens[at])
        at += 1 + len(_CALL) if word else 1
    return found


def _find_literal_type(statement: Statement, tokens: list[Token], *, at: int) -> str:
    """Return the type of the literal for the call at tokens[at]; "" if there is no such call."""
    name = "" if tokens[at].token_type.name == "IDENTIFIER" else ascii_lower(tokens[at].text)
    if name not in _FORMATS or [token.token_type.name for token in tokens[at + 1 : at + 6]] != _CALL:
        return ""
    word, formats = _FORMATS[name]
    layout = statement.value(tokens[at + 4].text)
    return word if layout is not None and layout.kind == "string" and layout.content in formats else ""


def _copy_token(token: Token, word: str) -> Token:
    from sqlglot import Token, TokenType

    return Token(TokenType[word], word, token.line, token.col, token.start, token.end)
