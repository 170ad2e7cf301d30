"""Forms that sqlglot would misread, or that mean nothing, put into those that it reads as DuckDB does.

DATE '2026-01-31'::VARCHAR       (DATE '2026-01-31')::VARCHAR    what is cast is the date
FROM reads TABLESAMPLE 100%      FROM reads                      all rows, each once, by any method of percentages
, LATERAL unnest([a, b])         , unnest([a, b])                it sees the tables before it either way
day + INTERVAL '1 day' x         day + INTERVAL '1 day' AS x     x is no unit
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.errors import Unsupported
from dpsql.sql.lexer import Statement, ascii_lower
from dpsql.sql.syntax.split_statement import find_last_clause
from dpsql.sql.syntax.terms import is_alias_of_interval

if TYPE_CHECKING:
    from sqlglot import Token

__all__ = ["is_typed_and_cast", "normalize_misread_forms"]

MAX_SAMPLES = 16
_TYPED = frozenset(["date", "timestamp", "datetime"])
_ALL_ROWS = frozenset(
    (*opening, "100", sign, *[")"] * bool(opening))
    for opening in ((), ("(",), ("system", "("), ("bernoulli", "("))
    for sign in ("%", "percent")
)
_BEYOND = 1 + max(map(len, _ALL_ROWS))  # tokens that are looked at from TABLESAMPLE on
_AFTER_SAMPLE = frozenset(
    "COMMA R_PAREN WHERE GROUP_BY HAVING QUALIFY ORDER_BY LIMIT JOIN INNER LEFT RIGHT FULL".split()
)
_AFTER_SAMPLE |= frozenset("SEMI ANTI CROSS ON USING UNION INTERSECT EXCEPT".split()) | {""}


def normalize_misread_forms(statement: Statement, tokens: list[Token]) -> list[Token]:
    """Return the tokens with each of these forms in its plain one."""
    found: list[Token] = []
    kinds = [*(token.token_type.name for token in tokens), *[""] * _BEYOND]
    at = samples = 0
    while at < len(tokens):
        width = _lateral(tokens, kinds, at=at)
        if kinds[at] == "TABLE_SAMPLE":
            samples += 1
            width = _sample(statement, tokens, kinds=kinds, at=at) if samples <= MAX_SAMPLES else 0
        if width:
            at += width
            continue
        if kinds[max(at - 2, 0)] == "INTERVAL" and is_alias_of_interval(tokens, at):
            found.append(_like(tokens[at], "ALIAS", text="AS"))
        typed = is_typed_and_cast(tokens, kinds, at=at)
        found += _in_parentheses(tokens[at], tokens[at + 1]) if typed else [tokens[at]]
        at += 2 if typed else 1
    return found


def is_typed_and_cast(tokens: list[Token], kinds: list[str], *, at: int) -> bool:
    """Say whether DATE '...' or TIMESTAMP '...' with a cast behind it begins at tokens[at], which is no quoted name."""
    if kinds[at + 1 : at + 3] != ["STRING", "DCOLON"] or kinds[at] == "IDENTIFIER":
        return False
    return ascii_lower(tokens[at].text) in _TYPED


def _like(token: Token, kind: str, *, text: str) -> Token:
    from sqlglot import Token, TokenType

    return Token(TokenType[kind], text, token.line, token.col, token.start, token.end)


def _in_parentheses(word: Token, text: Token) -> list[Token]:
    from sqlglot import Token, TokenType

    opens = Token(TokenType.L_PAREN, "(", word.line, word.col, word.start, word.start)
    closes = Token(TokenType.R_PAREN, ")", text.line, text.col, text.end, text.end)
    return [opens, word, text, closes]


def _lateral(tokens: list[Token], kinds: list[str], *, at: int) -> int:
    """Return 1 where tokens[at] is the LATERAL of an unnest that a comma or JOIN brings, else 0."""
    if kinds[at] != "LATERAL" or at + 1 == len(tokens) or not at:
        return 0
    return int(ascii_lower(tokens[at + 1].text) == "unnest" and kinds[at - 1] in {"COMMA", "JOIN"})


def _sample(statement: Statement, tokens: list[Token], *, kinds: list[str], at: int) -> int:
    """Return how many tokens a sample of all rows has that begins at tokens[at], 0 for none; refuse any other."""
    if ascii_lower(tokens[at].text) != "tablesample" or find_last_clause(kinds[:at]) not in {"FROM", "JOIN"}:
        return 0
    within = range(at + 1, min(at + _BEYOND, len(tokens)))
    words = ["" if kinds[each] == "IDENTIFIER" else ascii_lower(tokens[each].text) for each in within]
    for width in range(2, len(words) + 1):
        if tuple(words[:width]) in _ALL_ROWS and kinds[at + 1 + width] in _AFTER_SAMPLE:
            return 1 + width
    hint = "Leave it out: a sample adds no privacy here. Only TABLESAMPLE 100% is accepted."
    raise Unsupported("keyword", "Samples are not read.", hint=hint, place=statement.place(tokens[at]))
