"""SELECT TOP n of other systems, put into standard SQL: LIMIT n at the end of the same SELECT.

    SELECT TOP 5 education, AVG(income) FROM people GROUP BY education ORDER BY 2 DESC
    SELECT education, AVG(income) FROM people GROUP BY education ORDER BY 2 DESC LIMIT 5

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
    number = nodes[start + 2 : start + 3]
    if word_of(nodes, start + 1) != "top" or kinds_of(unwrap(number)) not in (["NUMBER"], ["STRING"]):
        return nodes
    if word_of(nodes, start + 3) in {"private", "percent"} or kind_of(nodes, start + 3) in {"WITH", "PERCENT"}:
        return nodes
    end = next((at for at in range(start, len(nodes)) if kind_of(nodes, at) in _ENDS), len(nodes))
    inside = kinds_of(nodes[start:end])
    if "GROUP_BY" not in inside or not {"LIMIT", "OFFSET", "FETCH"}.isdisjoint(inside):
        return nodes
    limit: list[Node] = [make_token("LIMIT", "LIMIT", beside=last), *flatten(unwrap(number))]
    return (*nodes[: start + 1], *nodes[start + 3 : end], *limit, *nodes[end:])
