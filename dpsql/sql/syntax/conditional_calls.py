"""Calls that other systems have for a condition, written as the grammar has them.

    COUNT_IF(c), COUNTIF(c)                COUNT(*) FILTER (WHERE c)
    COUNT_IF(c) FILTER (WHERE d)           COUNT(*) FILTER (WHERE (d) AND (c))
    IIF(c, x, y), IFF(c, x, y)             IF(c, x, y)

COUNT_IF is of DuckDB, Snowflake and Spark, COUNTIF of GoogleSQL, IIF of SQL Server, and IFF of Snowflake. Bounds that
are stated in COUNT_IF are those of COUNT(*).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpsql.sql.syntax.block import Block, Node, Nodes, first_token, kind_of, kinds_of, make_token, split, word_of

if TYPE_CHECKING:
    from sqlglot import Token

_COUNTS_IF = frozenset(["count_if", "countif"])
CONDITIONAL_CALLS = _COUNTS_IF | {"iif", "iff"}


def read_conditional_call(nodes: Nodes, at: int) -> tuple[Sequence[Node], int]:
    """Return what to write for such a call, and for how many nodes; nothing and 0 for another node."""
    name, called = word_of(nodes, at), nodes[at + 1] if at + 1 < len(nodes) else None
    if name not in CONDITIONAL_CALLS or not isinstance(called, Block) or called.kind != "L_PAREN":
        return (), 0
    head = first_token(nodes[at:])
    if name not in _COUNTS_IF:
        return (make_token("VAR", "if", beside=head), called), 2
    condition, *rest = split(called.nodes)
    is_named = len(rest) == 1 and kind_of(rest[0], 1) == "FARROW"
    if not condition or kind_of(condition, 0) in {"DISTINCT", "STAR"} or not (is_named or not rest):
        return (), 0
    counted: list[Node] = [make_token("STAR", "*", beside=first_token(condition))]
    if is_named:
        counted += [make_token("COMMA", ",", beside=first_token(rest[0])), *rest[0]]
    filtered = nodes[at + 3] if kinds_of(nodes[at + 2 : at + 4]) == ["FILTER", "L_PAREN"] else None
    is_filtered = isinstance(filtered, Block) and kind_of(filtered.nodes, 0) == "WHERE"
    if is_filtered and isinstance(filtered, Block):
        sides = (_wrap(filtered.nodes[1:], beside=head), _wrap(condition, beside=head))
        condition = (sides[0], make_token("AND", "AND", beside=head), sides[1])
    where = Block(called.opening, (make_token("WHERE", "WHERE", beside=head), *condition), called.closing)
    count = Block(called.opening, tuple(counted), called.closing)
    return (
        make_token("VAR", "count", beside=head),
        count,
        make_token("FILTER", "FILTER", beside=head),
        where,
    ), 2 + 2 * is_filtered


def _wrap(nodes: Nodes, *, beside: Token) -> Block:
    """Return nodes in parentheses."""
    return Block(make_token("L_PAREN", "(", beside=beside), nodes, make_token("R_PAREN", ")", beside=beside))
