"""Positions in the tokens of an expression: calls of aggregates, subqueries, commas and closing parentheses."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsql.sql.functions.allow_list import EVERY_AGGREGATE
from dpsql.sql.lexer import Statement, ascii_lower

if TYPE_CHECKING:
    from sqlglot import Token

__all__ = [
    "AGGREGATES",
    "CLOSINGS",
    "OPENINGS",
    "Call",
    "Span",
    "Spelling",
    "find_calls",
    "find_closing",
    "is_subquery",
    "is_word",
    "kind_of",
    "spell",
    "split_at",
    "split_commas",
]

Span = tuple[int, int]  # positions of the first token, and of the one behind the last
OPENINGS = frozenset(["L_PAREN", "L_BRACKET", "L_BRACE"])
CLOSINGS = frozenset(["R_PAREN", "R_BRACKET", "R_BRACE"])
_NAMES = frozenset(["VAR", "IDENTIFIER"])
AGGREGATES = EVERY_AGGREGATE | {"columns"}  # COLUMNS(*) stands for several


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an aggregate, with its FILTER: tokens[start:end]."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Spelling:
    """A token as it compares with others: names and keywords without regard to case, values by what they are."""

    kind: str
    text: str


def kind_of(tokens: list[Token], at: int) -> str:
    """Return the type of a token, "" where there is none."""
    return tokens[at].token_type.name if 0 <= at < len(tokens) else ""


def is_word(tokens: list[Token], at: int, *, words: Collection[str]) -> bool:
    """Say whether a token is one of some words, quoted or not."""
    return 0 <= at < len(tokens) and ascii_lower(tokens[at].text) in words


def spell(statement: Statement, token: Token) -> Spelling:
    """Return a token as it compares; each ? is another value."""
    value = statement.value(token.text)
    if value is not None:
        return Spelling(value.kind, f"?{token.start}" if value.content == "?" else value.content)
    kind = token.token_type.name
    return Spelling("name" if kind in _NAMES else kind, ascii_lower(token.text))


def find_closing(tokens: list[Token], at: int) -> int:
    """Return the position behind the parenthesis that closes the one at `at`."""
    depth = 0
    for end in range(at, len(tokens)):
        kind = tokens[end].token_type.name
        depth += (kind in OPENINGS) - (kind in CLOSINGS)
        if not depth:
            return end + 1
    return len(tokens)


def is_subquery(tokens: list[Token], at: int) -> bool:
    """Say whether a subquery opens at a position."""
    return kind_of(tokens, at) == "L_PAREN" and kind_of(tokens, at + 1) in {"SELECT", "WITH", "FROM"}


def split_commas(tokens: list[Token], span: Span) -> list[Span]:
    """Return the parts of some tokens between the commas outside of parentheses."""
    return split_at(tokens, span, kinds={"COMMA"})


def split_at(tokens: list[Token], span: Span, *, kinds: Collection[str]) -> list[Span]:
    """Return the parts of some tokens between tokens of these types outside of parentheses."""
    parts, depth, first = list[Span](), 0, span[0]
    for at in range(*span):
        kind = tokens[at].token_type.name
        depth += (kind in OPENINGS) - (kind in CLOSINGS)
        if kind in kinds and not depth:
            parts.append((first, at))
            first = at + 1
    return [*parts, (first, span[1])]


def find_calls(tokens: list[Token], span: Span, *, limit: int | None = None) -> Iterator[Call]:
    """Yield the calls of aggregates that begin in some tokens, but no windows and none of a subquery.

    Those in the arguments of a window are found, those in the arguments of another call are not.
    """
    at = span[0]
    while at < span[1]:
        if is_subquery(tokens, at):
            at = find_closing(tokens, at)
            continue
        if not is_word(tokens, at, words=AGGREGATES) or kind_of(tokens, at + 1) != "L_PAREN":
            at += 1
            continue
        close = find_closing(tokens, at + 1)
        if kind_of(tokens, close) == "FILTER" and kind_of(tokens, close + 1) == "L_PAREN":
            close = find_closing(tokens, close + 1)
        if kind_of(tokens, close) == "OVER":
            at += 2
            continue
        if limit is None or close <= limit:
            yield Call(at, close)
        at = close
