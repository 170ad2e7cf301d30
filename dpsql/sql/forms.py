"""Forms that sqlglot would misread, or that mean nothing, put into those that it reads as DuckDB does.

DATE '2026-01-31'::VARCHAR       (DATE '2026-01-31')::VARCHAR    what is cast is the date
FROM reads TABLESAMPLE 100%      FROM reads                      all rows, each once
, LATERAL unnest([a, b])         , unnest([a, b])                it sees the tables before it either way
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.errors import Unsupported
from dpsql.sql.text import STAND_IN, Statement, ascii_lower
from dpsql.sql.unwrap import last_clause

if TYPE_CHECKING:
    from sqlglot import Token

__all__ = ["plainly"]

MOST_SAMPLES = 16
_TYPED = frozenset(["date", "timestamp", "datetime"])
_AFTER_SAMPLE = frozenset(
    "COMMA R_PAREN WHERE GROUP_BY HAVING QUALIFY ORDER_BY LIMIT JOIN INNER LEFT RIGHT FULL".split()
)
_AFTER_SAMPLE |= frozenset("SEMI ANTI CROSS ON USING UNION INTERSECT EXCEPT".split()) | {""}


def plainly(statement: Statement, tokens: list[Token]) -> list[Token]:
    """Return the tokens with each of these forms in its plain one."""
    found: list[Token] = []
    at = samples = 0
    while at < len(tokens):
        width = _lateral(tokens, at)
        if not width and _kind(tokens, at) == "TABLE_SAMPLE":
            samples += 1
            width = _sample(statement, tokens, at=at) if samples <= MOST_SAMPLES else 0
        if width:
            at += width
            continue
        typed = _is_typed_and_cast(tokens, at)
        found += _in_parentheses(tokens[at], tokens[at + 1]) if typed else [tokens[at]]
        at += 2 if typed else 1
    return found


def _is_typed_and_cast(tokens: list[Token], at: int) -> bool:
    """Say whether DATE '...' or TIMESTAMP '...' with a cast behind it begins at tokens[at]."""
    if _kind(tokens, at + 2) != "DCOLON" or not tokens[at + 1].text.startswith(STAND_IN):
        return False
    return tokens[at].token_type.name != "IDENTIFIER" and ascii_lower(tokens[at].text) in _TYPED


def _in_parentheses(word: Token, text: Token) -> list[Token]:
    from sqlglot import Token, TokenType

    opens = Token(TokenType.L_PAREN, "(", word.line, word.col, word.start, word.start)
    closes = Token(TokenType.R_PAREN, ")", text.line, text.col, text.end, text.end)
    return [opens, word, text, closes]


def _lateral(tokens: list[Token], at: int) -> int:
    """Return 1 where tokens[at] is the LATERAL of an unnest that a comma or JOIN brings, else 0."""
    if tokens[at].token_type.name != "LATERAL" or at + 1 == len(tokens) or not at:
        return 0
    return int(ascii_lower(tokens[at + 1].text) == "unnest" and _kind(tokens, at - 1) in {"COMMA", "JOIN"})


def _sample(statement: Statement, tokens: list[Token], *, at: int) -> int:
    """Return how many tokens a sample of all rows has that begins at tokens[at], 0 for none; refuse any other."""
    if tokens[at].token_type.name != "TABLE_SAMPLE" or ascii_lower(tokens[at].text) != "tablesample":
        return 0
    if last_clause([token.token_type.name for token in tokens[:at]]) not in {"FROM", "JOIN"}:
        return 0
    inside = _kind(tokens, at + 1) == "L_PAREN"
    words = [ascii_lower(token.text) for token in tokens[at + 1 + inside : at + 3 + inside]]
    width = 3 + 2 * inside
    closed = not inside or _kind(tokens, at + width - 1) == "R_PAREN"
    if words in (["100", "%"], ["100", "percent"]) and closed and _kind(tokens, at + width) in _AFTER_SAMPLE:
        return width
    hint = "Leave it out: a sample protects nobody here. TABLESAMPLE 100%, which takes no row away, is read."
    raise Unsupported("keyword", "Samples are not read.", hint=hint, place=statement.place(tokens[at]))


def _kind(tokens: list[Token], at: int) -> str:
    return tokens[at].token_type.name if 0 <= at < len(tokens) else ""
