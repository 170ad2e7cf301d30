"""Terms of ORDER BY that follow one measure by their form alone.

    COUNT(*) * 1.5        CAST(SUM(x) AS DOUBLE) / 100        ROUND(COUNT(*) / 7, 2)        COALESCE(SUM(x), 0)
    100.0 * COUNT(*) / SUM(COUNT(*)) OVER ()        COUNT(*) / (SELECT COUNT(*) FROM reads)
    ROW_NUMBER() OVER (ORDER BY COUNT(*) DESC)

A total of counts is above 0, and the same for all groups.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dpsql.sql.lexer import ascii_lower
from dpsql.sql.syntax.token_scan import (
    Call,
    Span,
    find_calls,
    find_closing,
    is_subquery,
    is_word,
    kind_of,
    split_at,
    split_commas,
)

if TYPE_CHECKING:
    from sqlglot import Token

__all__ = ["find_direction"]

_POSITIVE = re.compile(r"(?=[0.]*[1-9])[0-9]*\.?[0-9]*(e[+-]?[0-9]+)?", re.IGNORECASE)
_NUMERIC = frozenset(
    "tinyint smallint integer int bigint hugeint decimal numeric double float real float4 float8 int2 int4 int8 "
    "int1 short long".split()
) | {"double precision"}
_CASTS = frozenset(["cast", "try_cast"])
_KEEPS = frozenset(["round", "floor", "ceil", "ceiling"])
_RANKS = frozenset(["row_number", "rank", "dense_rank"])
_PARENTHESES = 2  # of the subquery, and of COUNT
_ADDS, _MULTIPLIES = frozenset(["PLUS", "DASH"]), frozenset(["STAR", "SLASH"])


def find_direction(tokens: list[Token], span: Span) -> tuple[Call, bool] | None:
    """Return the measure that some tokens follow, and whether they rise with it; None for any other form."""
    if span[1] <= span[0]:
        return None
    parts = _split(tokens, span, operators=_ADDS)
    if len(parts) > 1:
        return _find_in_sum(tokens, parts)
    parts = _split(tokens, span, operators=_MULTIPLIES)
    if len(parts) > 1:
        return _find_in_product(tokens, parts)
    return _find_in_operand(tokens, span)


def _split(tokens: list[Token], span: Span, *, operators: frozenset[str]) -> list[tuple[str, Span]]:
    """Return the operands between operators outside of parentheses, each with the operator before it."""
    parts = split_at(tokens, span, kinds=operators)
    return [(kind_of(tokens, part[0] - 1) if at else "", part) for at, part in enumerate(parts)]


def _is_number(tokens: list[Token], span: Span) -> bool:
    return span[1] == span[0] + 1 and kind_of(tokens, span[0]) == "NUMBER"


def _is_positive(tokens: list[Token], span: Span) -> bool:
    return _is_number(tokens, span) and bool(_POSITIVE.fullmatch(tokens[span[0]].text))


def _find_in_sum(tokens: list[Token], parts: list[tuple[str, Span]]) -> tuple[Call, bool] | None:
    others = [(operator, part) for operator, part in parts if not _is_number(tokens, part)]
    if len(others) != 1 or others[0][0] == "DASH":
        return None
    return find_direction(tokens, others[0][1])


def _find_in_product(tokens: list[Token], parts: list[tuple[str, Span]]) -> tuple[Call, bool] | None:
    others = [
        (operator, part)
        for operator, part in parts
        if not _is_positive(tokens, part) and not (operator == "SLASH" and _is_total(tokens, part))
    ]
    if len(others) != 1 or others[0][0] == "SLASH":
        return None
    return find_direction(tokens, others[0][1])


def _is_total(tokens: list[Token], span: Span) -> bool:
    """Say whether tokens are SUM(COUNT(...)) OVER () or (SELECT COUNT(...) FROM table)."""
    start, end = span
    if is_subquery(tokens, start):
        kinds = [kind_of(tokens, at) for at in range(start, end)]
        counts = list(find_calls(tokens, (start + 2, end)))
        first = counts[0] if counts and counts[0].start == start + 2 else None
        is_plain = first is not None and kind_of(tokens, first.end) == "FROM" and "WHERE" not in kinds
        parentheses = _PARENTHESES + ("FARROW" in kinds)  # of bounds of the count
        return is_plain and kinds.count("L_PAREN") == parentheses and is_word(tokens, start + 2, words={"count"})
    if not is_word(tokens, start, words={"sum"}) or kind_of(tokens, start + 1) != "L_PAREN":
        return False
    close = find_closing(tokens, start + 1)
    kinds = [kind_of(tokens, at) for at in range(close, end)]
    inside = [(call.start, call.end) for call in find_calls(tokens, (start + 2, close - 1))]
    is_whole = inside == [(start + 2, close - 1)] and is_word(tokens, start + 2, words={"count"})
    return is_whole and kinds == ["OVER", "L_PAREN", "R_PAREN"]


def _find_in_operand(tokens: list[Token], span: Span) -> tuple[Call, bool] | None:
    start, end = span
    calls = list(find_calls(tokens, span))
    if [(call.start, call.end) for call in calls] == [span]:
        return calls[0], True
    if kind_of(tokens, end - 2) == "DCOLON" and _is_numeric(tokens, end - 1):
        return find_direction(tokens, (start, end - 2))
    if kind_of(tokens, start) == "L_PAREN" and find_closing(tokens, start) == end:
        return find_direction(tokens, (start + 1, end - 1))
    if kind_of(tokens, start + 1) != "L_PAREN":
        return None
    close, word = find_closing(tokens, start + 1), ascii_lower(tokens[start].text)
    if close != end:
        return _find_in_rank(tokens, span) if word in _RANKS else None
    if word in _CASTS and kind_of(tokens, end - 3) == "ALIAS" and _is_numeric(tokens, end - 2):
        return find_direction(tokens, (start + 2, end - 3))
    first, *more = split_commas(tokens, (start + 2, end - 1))
    is_kept = word in _KEEPS and len(more) <= 1 and all(_is_number(tokens, part) for part in more)
    is_zero = word == "coalesce" and [tokens[part[0]].text for part in more if part[1] == part[0] + 1] == ["0"]
    return find_direction(tokens, first) if is_kept or (is_zero and len(more) == 1) else None


def _is_numeric(tokens: list[Token], at: int) -> bool:
    return is_word(tokens, at, words=_NUMERIC) and kind_of(tokens, at) != "IDENTIFIER"


def _find_in_rank(tokens: list[Token], span: Span) -> tuple[Call, bool] | None:
    """Return the measure of ROW_NUMBER() OVER (ORDER BY measure DESC), which falls with it."""
    start, end = span
    kinds = [kind_of(tokens, at) for at in range(start + 1, start + 6)]
    if kinds != ["L_PAREN", "R_PAREN", "OVER", "L_PAREN", "ORDER_BY"] or find_closing(tokens, start + 4) != end:
        return None
    first, last = split_commas(tokens, (start + 6, end - 1))[0]
    direction = kind_of(tokens, last - 1)
    found = find_direction(tokens, (first, last - (direction in {"ASC", "DESC"})))
    return None if found is None else (found[0], found[1] != (direction == "DESC"))
