"""Tests of WHERE around a ranking that groups outside of it would pass, too: those for small values of a measure.

    SELECT * FROM (SELECT article, COUNT(*) AS n ... GROUP BY article) WHERE n < 100

A test for large values of the measure that ranks, or of keys, shows some rows of those that SQL promises.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from dpsql.sql.lexer import ascii_lower
from dpsql.sql.syntax.computed_measures import Ranking
from dpsql.sql.syntax.item_alias import find_alias
from dpsql.sql.syntax.monotone_terms import find_direction
from dpsql.sql.syntax.select_blocks import SelectBlock, find_cte_name
from dpsql.sql.syntax.token_scan import Span, find_calls, find_closing, kind_of, split_at, split_commas

if TYPE_CHECKING:
    from sqlglot import Token

__all__ = ["find_filter"]

_AFTER_WHERE = frozenset(["GROUP_BY", "HAVING", "WINDOW", "QUALIFY", "ORDER_BY", "LIMIT", "OFFSET"])
_SIDES = 2  # of a comparison
_QUALIFIED = frozenset([3, 5])  # tokens of table.column and of schema.table.column
_COMPARES = frozenset("EQ NEQ IS IN AND BETWEEN LIKE".split())
_NAMES = frozenset(["VAR", "IDENTIFIER"])

_Measures = Mapping[str, bool]  # by the name of a column: whether it rises with the measure that ranks


def find_filter(
    tokens: list[Token], inner: SelectBlock, *, blocks: Sequence[SelectBlock], ranking: Ranking | None
) -> int | None:
    """Return where a SELECT around a ranking asks for other than large values of its measures."""
    measures = _rename(tokens, inner, columns=list(_list_columns(tokens, inner, ranking=ranking)))
    if not measures:
        return None
    sources = [inner]
    for block in blocks:
        inside = any(block.start < each.start and each.end <= block.end for each in sources)
        names = {find_cte_name(tokens, each) for each in sources} - {""}
        if block == inner or not (inside or any(ascii_lower(tokens[at].text) in names for at in block.own)):
            continue
        where = next((at for at in block.own if kind_of(tokens, at) == "WHERE"), None)
        if where is not None:
            end = next((at for at in block.own if at > where and kind_of(tokens, at) in _AFTER_WHERE), block.end)
            if (at := _find_small(tokens, (where + 1, end), measures=measures)) is not None:
                return at
        sources.append(block)
    return None


def _list_columns(
    tokens: list[Token], inner: SelectBlock, *, ranking: Ranking | None
) -> Iterator[tuple[str, bool | None]]:
    """Yield the name of each column of a ranking, and whether it rises with what ranks; None for what is no measure."""
    end = next((at for at in inner.own if kind_of(tokens, at) == "FROM"), inner.end)
    items = split_commas(tokens, (inner.start + 1, end))
    calls = {_spell(tokens, (call.start, call.end)) for item in items for call in find_calls(tokens, item)}
    for item in items:
        alias = find_alias(tokens, item)
        name = ascii_lower(tokens[item[1] - 1 if alias is None else alias].text)
        body = (item[0], item[1] if alias is None else alias - (kind_of(tokens, alias - 1) == "ALIAS"))
        if alias is None and body[1] > body[0] + 1 and kind_of(tokens, body[1] - 2) != "DOT":
            name = _spell(tokens, body)
        if any(kind_of(tokens, at) == "OVER" for at in range(*body)) or not list(find_calls(tokens, body)):
            yield name, None
            continue
        found = find_direction(tokens, body)
        is_ranked = len(calls) == 1 if ranking is None else name == ranking.ranks
        yield name, found is not None and found[1] and is_ranked


def _rename(tokens: list[Token], inner: SelectBlock, *, columns: Sequence[tuple[str, bool | None]]) -> _Measures:
    """Return the measures of a ranking by the names that they have around it: ... AS t(a, b) gives others."""
    at = inner.end + 1 + (kind_of(tokens, inner.end + 1) == "ALIAS")
    names = [name for name, _ in columns]
    is_named = kind_of(tokens, inner.end) == "R_PAREN" and kind_of(tokens, at) in _NAMES
    if is_named and kind_of(tokens, at + 1) == "L_PAREN":
        given = split_commas(tokens, (at + 2, find_closing(tokens, at + 1) - 1))
        names[: len(given)] = [ascii_lower(tokens[start].text) for start, _ in given]
    return {name: rises for name, (_, rises) in zip(names, columns, strict=False) if rises is not None}


def _spell(tokens: list[Token], span: Span) -> str:
    return " ".join(ascii_lower(token.text) for token in tokens[slice(*span)])


def _find_small(tokens: list[Token], span: Span, *, measures: _Measures) -> int | None:
    """Return where a condition tests a measure for other than large values."""
    start, end = span
    named = [at for at in range(start, end) if _is_measure(tokens, at, measures=measures)]
    if not named:
        return None
    if kind_of(tokens, start) == "L_PAREN" and find_closing(tokens, start) == end:
        return _find_small(tokens, (start + 1, end - 1), measures=measures)
    if any(kind_of(tokens, at) == "OR" for at in range(start, end)):
        return named[0]
    parts = split_at(tokens, span, kinds={"AND"})
    if len(parts) > 1 and not any(kind_of(tokens, at) == "BETWEEN" for at in range(start, end)):
        found = (_find_small(tokens, part, measures=measures) for part in parts)
        return next((at for at in found if at is not None), None)
    for signs, is_left in (({"GT", "GTE"}, True), ({"LT", "LTE"}, False)):
        sides = split_at(tokens, span, kinds=signs)
        if len(sides) != _SIDES:
            continue
        (first, last), other = sides if is_left else reversed(sides)
        is_column = last - first == 1 or (last - first in _QUALIFIED and kind_of(tokens, last - 2) == "DOT")
        is_value = not any(at in named or kind_of(tokens, at) in _COMPARES for at in range(*other))
        if is_column and is_value and measures.get(ascii_lower(tokens[last - 1].text)):
            return None
    is_there = _spell(tokens, span).split()[-3:] == ["is", "not", "null"]
    return None if is_there else named[0]


def _is_measure(tokens: list[Token], at: int, *, measures: _Measures) -> bool:
    """Say whether a token names a measure, in no subquery, and is no function that is called."""
    kinds = kind_of(tokens, at), kind_of(tokens, at + 1)
    return ascii_lower(tokens[at].text) in measures and kinds[0] in _NAMES and "L_PAREN" != kinds[1] != "DOT"
