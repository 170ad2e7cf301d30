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
from dpsql.sql.syntax.token_scan import Call, find_calls, find_closing, is_subquery, is_word, kind_of, split_commas

if TYPE_CHECKING:
    from sqlglot import Token

__all__ = ["find_direction"]

_NUMBER = re.compile(r"(?=[0.]*[1-9])[0-9]*\.?[0-9]*(e[+-]?[0-9]+)?", re.IGNORECASE)  # above 0
_NUMERIC = frozenset(
    "tinyint smallint integer int bigint hugeint decimal numeric double float real float4 float8 int2 int4 int8 "
    "int1 short long".split()
) | {"double precision"}
_CASTS = frozenset(["cast", "try_cast"])
_KEEPS = frozenset(["round", "floor", "ceil", "ceiling"])
_RANKS = frozenset(["row_number", "rank", "dense_rank"])
_PARENTHESES = 2  # of the subquery, and of COUNT
_ADDS, _MULTIPLIES = frozenset(["PLUS", "DASH"]), frozenset(["STAR", "SLASH"])


def find_direction(tokens: list[Token], start: int, end: int) -> tuple[Call, bool] | None:
    """Return the measure that tokens[start:end] follow, and whether they rise with it; None for any other form."""
    if end <= start:
        return None
    parts = _split(tokens, start, end, _ADDS)
    if len(parts) > 1:
        return _find_in_sum(tokens, parts)
    parts = _split(tokens, start, end, _MULTIPLIES)
    if len(parts) > 1:
        return _find_in_product(tokens, parts)
    return _find_in_operand(tokens, start, end)


def _split(tokens: list[Token], start: int, end: int, operators: frozenset[str]) -> list[tuple[str, int, int]]:
    """Return the operands between operators outside of parentheses, each with the operator before it."""
    parts, depth, first, operator = list[tuple[str, int, int]](), 0, start, ""
    for at in range(start, end):
        kind = kind_of(tokens, at)
        depth += (kind == "L_PAREN") - (kind == "R_PAREN")
        if not depth and kind in operators:
            parts.append((operator, first, at))
            first, operator = at + 1, kind
    return [*parts, (operator, first, end)]


def _is_number(tokens: list[Token], start: int, end: int) -> bool:
    """Say whether tokens are a number above 0."""
    return end == start + 1 and kind_of(tokens, start) == "NUMBER" and bool(_NUMBER.fullmatch(tokens[start].text))


def _is_any_number(tokens: list[Token], start: int, end: int) -> bool:
    return end == start + 1 and kind_of(tokens, start) == "NUMBER"


def _find_in_sum(tokens: list[Token], parts: list[tuple[str, int, int]]) -> tuple[Call, bool] | None:
    others = [part for part in parts if not _is_any_number(tokens, *part[1:])]
    if len(others) != 1 or others[0][0] == "DASH":
        return None
    return find_direction(tokens, *others[0][1:])


def _find_in_product(tokens: list[Token], parts: list[tuple[str, int, int]]) -> tuple[Call, bool] | None:
    others = [
        part
        for part in parts
        if not _is_number(tokens, *part[1:]) and not (part[0] == "SLASH" and _is_total(tokens, *part[1:]))
    ]
    if len(others) != 1 or others[0][0] == "SLASH":
        return None
    return find_direction(tokens, *others[0][1:])


def _is_total(tokens: list[Token], start: int, end: int) -> bool:
    """Say whether tokens are SUM(COUNT(...)) OVER () or (SELECT COUNT(...) FROM table)."""
    if is_subquery(tokens, start):
        kinds = [kind_of(tokens, at) for at in range(start, end)]
        counts = list(find_calls(tokens, start + 2, end))
        first = counts[0] if counts and counts[0].start == start + 2 else None
        is_plain = first is not None and kind_of(tokens, first.end) == "FROM" and "WHERE" not in kinds
        return is_plain and kinds.count("L_PAREN") == _PARENTHESES and is_word(tokens, start + 2, {"count"})
    if not is_word(tokens, start, {"sum"}) or kind_of(tokens, start + 1) != "L_PAREN":
        return False
    close = find_closing(tokens, start + 1)
    kinds = [kind_of(tokens, at) for at in range(close, end)]
    inside = [(call.start, call.end) for call in find_calls(tokens, start + 2, close - 1)]
    is_whole = inside == [(start + 2, close - 1)] and is_word(tokens, start + 2, {"count"})
    return is_whole and kinds == ["OVER", "L_PAREN", "R_PAREN"]


def _find_in_operand(tokens: list[Token], start: int, end: int) -> tuple[Call, bool] | None:
    calls = list(find_calls(tokens, start, end))
    if [(call.start, call.end) for call in calls] == [(start, end)]:
        return calls[0], True
    if kind_of(tokens, end - 2) == "DCOLON" and _is_numeric(tokens, end - 1):
        return find_direction(tokens, start, end - 2)
    if kind_of(tokens, start) == "L_PAREN" and find_closing(tokens, start) == end:
        return find_direction(tokens, start + 1, end - 1)
    if kind_of(tokens, start + 1) != "L_PAREN":
        return None
    close, word = find_closing(tokens, start + 1), ascii_lower(tokens[start].text)
    if close != end:
        return _find_in_rank(tokens, start, end) if word in _RANKS else None
    if word in _CASTS and kind_of(tokens, end - 3) == "ALIAS" and _is_numeric(tokens, end - 2):
        return find_direction(tokens, start + 2, end - 3)
    first, *more = split_commas(tokens, start + 2, end - 1)
    is_kept = word in _KEEPS and len(more) <= 1 and all(_is_any_number(tokens, *part) for part in more)
    is_zero = word == "coalesce" and [tokens[part[0]].text for part in more if part[1] == part[0] + 1] == ["0"]
    return find_direction(tokens, *first) if is_kept or (is_zero and len(more) == 1) else None


def _is_numeric(tokens: list[Token], at: int) -> bool:
    return is_word(tokens, at, _NUMERIC) and kind_of(tokens, at) != "IDENTIFIER"


def _find_in_rank(tokens: list[Token], start: int, end: int) -> tuple[Call, bool] | None:
    """Return the measure of ROW_NUMBER() OVER (ORDER BY measure DESC), which falls with it."""
    kinds = [kind_of(tokens, at) for at in range(start + 1, start + 6)]
    if kinds != ["L_PAREN", "R_PAREN", "OVER", "L_PAREN", "ORDER_BY"] or find_closing(tokens, start + 4) != end:
        return None
    terms = split_commas(tokens, start + 6, end - 1)
    falls = kind_of(tokens, terms[0][1] - 1) == "DESC"
    is_directed = kind_of(tokens, terms[0][1] - 1) in {"ASC", "DESC"}
    found = find_direction(tokens, terms[0][0], terms[0][1] - is_directed)
    return None if found is None else (found[0], found[1] != falls)
