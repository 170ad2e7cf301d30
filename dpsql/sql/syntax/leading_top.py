"""TOP n of other systems, put into standard SQL: LIMIT n at the end of the same SELECT.

    SELECT TOP 5 education, AVG(income) FROM people GROUP BY education ORDER BY 2 DESC
    SELECT education, AVG(income) FROM people GROUP BY education ORDER BY 2 DESC LIMIT 5

So is TOP n behind the groups, which is TOP n PRIVATE without its last word.
TOP n PRIVATE is a clause of dpsql and stays, and so does what has another meaning: PERCENT, WITH TIES, and TOP beside a
LIMIT. Where standard SQL is read as private, LIMIT says how many groups are wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from dpsql.sql.syntax.block import (
    SET_OPERATIONS,
    Node,
    Nodes,
    flatten,
    kind_of,
    kinds_of,
    make_token,
    nest,
    rewrite,
    word_of,
)
from dpsql.sql.syntax.select_list import unwrap

if TYPE_CHECKING:
    from sqlglot import Token

_ENDS = SET_OPERATIONS | {"SEMICOLON"}


def read_top_as_limit(tokens: Sequence[Token]) -> list[Token]:
    """Return the tokens with LIMIT n in place of TOP n in every SELECT that has groups and no LIMIT."""
    return flatten(rewrite(nest(tokens), partial(_move, tokens[-1])).nodes)


def _move(last: Token, nodes: Nodes) -> Nodes:
    """Return the nodes of a block with the TOP of its first SELECT at the end of that."""
    start = next((at for at, kind in enumerate(kinds_of(nodes)) if kind == "SELECT"), len(nodes))
    end = next((at for at in range(start, len(nodes)) if kind_of(nodes, at) in _ENDS), len(nodes))
    top = start + 1 + (kind_of(nodes, start + 1) == "DISTINCT")
    if word_of(nodes, top) != "top":
        top = next((at for at in range(top, end) if _ends_groups(nodes, at, end=end)), end)
    number = nodes[top + 1 : top + 2]
    if top == end or kinds_of(unwrap(number)) not in (["NUMBER"], ["STRING"]):
        return nodes
    if word_of(nodes, top + 2) in {"private", "percent"} or kind_of(nodes, top + 2) in {"WITH", "PERCENT"}:
        return nodes
    inside = kinds_of(nodes[start:end])
    has_groups = "GROUP_BY" in inside or inside[1:2] == ["DISTINCT"]
    if not has_groups or not {"LIMIT", "OFFSET", "FETCH"}.isdisjoint(inside):
        return nodes
    limit: list[Node] = [make_token("LIMIT", "LIMIT", beside=last), *flatten(unwrap(number))]
    return (*nodes[:top], *nodes[top + 2 : end], *limit, *nodes[end:])


def _ends_groups(nodes: Nodes, at: int, *, end: int) -> bool:
    """Say whether TOP n is at a place where it ends the query, or ORDER BY follows."""
    is_last = at + 2 == end or kind_of(nodes, at + 2) == "ORDER_BY"
    is_behind = "GROUP_BY" in kinds_of(nodes[:at])
    return word_of(nodes, at) == "top" and kind_of(nodes, at + 1) == "NUMBER" and is_last and is_behind
