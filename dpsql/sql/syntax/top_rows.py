"""TOP n without PRIVATE, in standard SQL that is read as private: written as LIMIT n at the end of its SELECT.

    SELECT TOP 10 kind, COUNT(*) AS n FROM t GROUP BY kind ORDER BY n DESC          SQL Server
    SELECT kind, COUNT(*) AS n FROM t GROUP BY kind TOP 10 ORDER BY n DESC          TOP k PRIVATE without its last word

The text is rewritten, so that a SELECT around a private query, which is DuckDB's to read, may have it, too. The words
are replaced by spaces: what stands before the LIMIT keeps its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.sql.lexer import ScannedStatement, ascii_lower
from dpsql.sql.syntax.block import (
    SET_OPERATIONS,
    Block,
    Nodes,
    Select,
    find_selects,
    first_token,
    kind_of,
    kinds_of,
    last_token,
    nest,
    word_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_LIMITS = frozenset(["LIMIT", "OFFSET", "FETCH"])
_NO_ITEM = frozenset(["", "COMMA", "FROM", "ALIAS", "DOT", "DCOLON", "R_PAREN", "OVER", "FILTER"])  # behind top(10)
_NOT_ROWS = frozenset(["private", "percent", "with", "per"])
_OPERATORS = frozenset("PLUS DASH STAR SLASH EQ NEQ LT LTE GT GTE AND OR IS IN LIKE BETWEEN DPIPE MOD".split())


def write_limits(statement: ScannedStatement) -> str | None:
    """Return the text of a statement with LIMIT n for each TOP n; None where it has none."""
    if "top" not in ascii_lower(statement.text):  # as most
        return None
    tokens = list(statement.tokens)
    while kind_of(tokens, len(tokens) - 1) == "SEMICOLON":
        tokens.pop()
    edits = list[tuple[int, int, str]]()
    for select in find_selects(nest(tokens)):
        if not _LIMITS.isdisjoint(kinds_of(select.nodes)) or not SET_OPERATIONS.isdisjoint(kinds_of(select.nodes)):
            continue
        for at in _find_tops(select):
            start, last = first_token(select.nodes[at:]).start, last_token(select.nodes[at : at + 2]).end + 1
            end = last_token(select.nodes).end + 1
            edits += [(start, last, " " * (last - start)), (end, end, f" LIMIT {_read_number(select.nodes, at + 1)}")]
    text = statement.text
    for start, end, written in sorted(edits, reverse=True):
        text = text[:start] + written + text[end:]
    return text if edits else None


def _find_tops(select: Select) -> Iterator[int]:
    """Yield where TOP n stands in a SELECT: before its first item, or behind its groups."""
    nodes = select.nodes
    first = 1 + (kind_of(nodes, 1) == "DISTINCT")
    if word_of(nodes, first) == "top" and _read_number(nodes, first + 1):
        is_call = isinstance(nodes[first + 1], Block) and kind_of(nodes, first + 2) in _NO_ITEM | _OPERATORS
        if not is_call and word_of(nodes, first + 2) not in _NOT_ROWS:
            yield first
            return
    for at in range(first + 1, len(nodes) - 1):
        is_last = at + 2 == len(nodes) or kind_of(nodes, at + 2) == "ORDER_BY"
        has_groups = "GROUP_BY" in kinds_of(nodes[:at]) or select.is_distinct
        if word_of(nodes, at) == "top" and kind_of(nodes, at + 1) == "NUMBER" and is_last and has_groups:
            yield at
            return


def _read_number(nodes: Nodes, at: int) -> str:
    """Return a whole number, in parentheses or without; "" for anything else."""
    node = nodes[at] if at < len(nodes) else None
    inside = node.nodes if isinstance(node, Block) and node.kind == "L_PAREN" else nodes[at : at + 1]
    text = first_token(inside).text if kinds_of(inside) == ["NUMBER"] else ""
    return text if text.isdecimal() else ""
