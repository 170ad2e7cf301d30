"""WITH ANONYMIZATION, as GoogleSQL wrote it before WITH DIFFERENTIAL_PRIVACY, put into the words of that.

    SELECT WITH ANONYMIZATION item, ANON_SUM(quantity CLAMPED BETWEEN 0 AND 100) FROM orders GROUP BY item
    SELECT WITH DIFFERENTIAL_PRIVACY item, SUM(quantity, contribution_bounds_per_group => (0, 100)) ...

CLAMPED BETWEEN bounds what one unit adds to a group. In quantiles and variances it bounds the value of each row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpsql.sql.syntax.block import (
    Block,
    Node,
    Nodes,
    first_token,
    flatten,
    kind_of,
    kinds_of,
    make_token,
    nest,
    rewrite,
    word_of,
)

if TYPE_CHECKING:
    from sqlglot import Token

_PER_GROUP, _PER_ROW = "contribution_bounds_per_group", "contribution_bounds_per_row"
OLD_AGGREGATES = {  # what each is called now, and the bounds that it has
    "anon_avg": ("avg", _PER_GROUP),
    "anon_count": ("count", _PER_GROUP),
    "anon_percentile_cont": ("percentile_cont", _PER_ROW),
    "anon_quantiles": ("approx_quantiles", _PER_ROW),
    "anon_stddev_pop": ("stddev_pop", _PER_ROW),
    "anon_sum": ("sum", _PER_GROUP),
    "anon_var_pop": ("var_pop", _PER_ROW),
}


def read_anonymization(tokens: Sequence[Token]) -> list[Token]:
    """Return the tokens with the words of WITH DIFFERENTIAL_PRIVACY; the same ones without WITH ANONYMIZATION."""
    found = list(tokens)
    starts = [
        at + 2
        for at in range(len(found))
        if kinds_of(found[at : at + 2]) == ["SELECT", "WITH"] and word_of(found, at + 2) == "anonymization"
    ]
    if not starts:
        return found
    for at in starts:
        found[at] = make_token("VAR", "DIFFERENTIAL_PRIVACY", beside=found[at])
    return flatten(rewrite(nest(found), _rename).nodes)


def _rename(nodes: Nodes) -> Nodes:
    """Return the nodes of a block with the aggregates under their names of today."""
    found = list[Node]()
    for at, node in enumerate(nodes):
        called = OLD_AGGREGATES.get(word_of(nodes, at - 1))
        if word_of(nodes, at) in OLD_AGGREGATES and kind_of(nodes, at + 1) == "L_PAREN":
            name = OLD_AGGREGATES[word_of(nodes, at)][0]
            found.append(make_token("VAR", name.upper(), beside=first_token(nodes[at:])))
        elif called is not None and isinstance(node, Block):
            found.append(Block(node.opening, _state_bounds(node.nodes, name=called[1]), node.closing))
        else:
            found.append(node)
    return tuple(found)


def _state_bounds(nodes: Nodes, *, name: str) -> Nodes:
    """Return the arguments of an aggregate with named bounds for CLAMPED BETWEEN low AND high at their end."""
    start = next((at for at in range(len(nodes)) if word_of(nodes, at) == "clamped"), len(nodes))
    ends = [at for at in range(start, len(nodes)) if kind_of(nodes, at) == "AND"]
    if kind_of(nodes, start + 1) != "BETWEEN" or len(ends) != 1 or not nodes[start + 2 : ends[0]]:
        return nodes
    word = first_token(nodes[start:])
    words = [("COMMA", ","), ("VAR", name), ("FARROW", "=>")]
    named = [make_token(kind, text, beside=word) for kind, text in words]
    opening, closing = make_token("L_PAREN", "(", beside=word), make_token("R_PAREN", ")", beside=word)
    comma = make_token("COMMA", ",", beside=word)
    return (
        *nodes[:start],
        *named,
        Block(opening, (*nodes[start + 2 : ends[0]], comma, *nodes[ends[0] + 1 :]), closing),
    )
