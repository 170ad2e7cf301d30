"""Bounds that a query states of an aggregate, in the words of GoogleSQL.

    SUM(amount * 2, contribution_bounds_per_group => (0, 500))

They are put into the form of a call of `STATED`, a name that no statement can hold: sqlglot reads it as one argument
more of the aggregate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.errors import Refusal
from dpsql.sql.lexer import FUNCTION_PREFIX, Statement, ascii_lower
from dpsql.sql.syntax.token_scan import find_closing, kind_of, split_commas

if TYPE_CHECKING:
    from sqlglot import Token

__all__ = ["STATED", "find_aggregate_call", "normalize_stated_bounds"]

STATED = f"{FUNCTION_PREFIX}contribution_bounds\0"
_NAME, _OF_ROW = "contribution_bounds_per_group", "contribution_bounds_per_row"
_EXAMPLE = f"Write SUM(x, {_NAME} => (0, 500))."
_AGGREGATES = frozenset(["sum", "avg", "count"])
_BOUNDS = 2  # a low and a high one


def normalize_stated_bounds(statement: Statement, tokens: list[Token]) -> list[Token]:
    """Return the tokens with the bounds of each aggregate as a call; refuse any other name => value."""
    arrows = [at for at, token in enumerate(tokens) if token.token_type.name == "FARROW"]
    if not arrows:
        return tokens
    found: list[Token] = []
    start = 0
    for at in arrows:
        _check(statement, tokens, at=at)
        found += [*tokens[start : at - 1], _call(tokens[at - 1])]
        start = at + 1
    return [*found, *tokens[start:]]


def _check(statement: Statement, tokens: list[Token], *, at: int) -> None:
    """Refuse bounds that do not follow the argument of an aggregate, or that are not two of a group."""
    name = "" if at == 0 or kind_of(tokens, at - 1) == "IDENTIFIER" else ascii_lower(tokens[at - 1].text)
    place = statement.place(tokens[max(at - 1, 0)], tokens[at])
    if name == _OF_ROW:
        reason, hint = f"{_OF_ROW} is for quantiles.", f"Bounds of COUNT, SUM and AVG are of a group. {_EXAMPLE}"
        raise Refusal("option", reason, hint=hint, place=place)
    if name != _NAME:
        hint = f"Leave it out. Only the bounds of an aggregate are written so. {_EXAMPLE}"
        raise Refusal("option", "There is no argument of this name.", hint=hint, place=place)
    opening = find_opening(tokens, at - 1)
    called = "" if opening is None else ascii_lower(tokens[opening - 1].text)
    if called not in _AGGREGATES or kind_of(tokens, at - 2) != "COMMA":
        hint = f"Write them behind the argument of an aggregate. {_EXAMPLE}"
        raise Refusal("option", f"{_NAME} is for COUNT, SUM and AVG.", hint=hint, place=place)
    end = find_closing(tokens, at + 1) if kind_of(tokens, at + 1) == "L_PAREN" else at
    if end == at or len(split_commas(tokens, (at + 2, end - 1))) != _BOUNDS or kind_of(tokens, end) != "R_PAREN":
        reason = "Bounds are two numbers in parentheses, behind all other arguments."
        raise Refusal("option", reason, hint=_EXAMPLE, place=place)


def find_opening(tokens: list[Token], at: int) -> int | None:
    """Return the position of the innermost parenthesis of a call that is open before a position, None without one."""
    depth = 0
    for start in range(at - 1, 0, -1):
        kind = tokens[start].token_type.name
        depth += (kind == "R_PAREN") - (kind == "L_PAREN")
        if depth < 0:
            return start
    return None


def find_aggregate_call(tokens: list[Token], start: int) -> tuple[Token, Token] | None:
    """Return the first and the last token of the aggregate at or around a position in the text, if there is one."""
    last = next((at for at, token in enumerate(tokens) if token.start >= start), len(tokens))
    for at in range(last, -1, -1):
        if kind_of(tokens, at + 1) == "L_PAREN" and ascii_lower(tokens[at].text) in _AGGREGATES:
            end = find_closing(tokens, at + 1)
            return (tokens[at], tokens[end - 1]) if tokens[end - 1].end > start else None
    return None


def _call(name: Token) -> Token:
    from sqlglot import Token, TokenType

    return Token(TokenType.VAR, STATED, name.line, name.col, name.start, name.end)
