"""Bounds that an aggregate states as a named argument, in the words of GoogleSQL.

    SUM(x, contribution_bounds_per_group => (0, 5))                  SUM(x, stated bounds (0, 5))
    VAR_POP(x, contribution_bounds_per_row => (0, 9))                VAR_POP(x, stated bounds (0, 9))

Each function has one of the two arguments. `contribution_bounds_per_group` bounds what one unit adds to a group; of AVG
it bounds the mean of one unit. `contribution_bounds_per_row` bounds the value of one row. What is written on the right
is a call that sqlglot reads as an argument. `read_named_bounds` of `analysis/named_bounds.py` reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpsql.errors import Refusal
from dpsql.sql.ir.measures import SPREADS
from dpsql.sql.lexer import FUNCTION_PREFIX, ScannedStatement
from dpsql.sql.syntax.block import (
    Block,
    Nodes,
    first_token,
    kind_of,
    kinds_of,
    last_token,
    make_token,
    name_of,
    nest,
    split,
    walk,
    word_of,
)

if TYPE_CHECKING:
    from sqlglot import Token

STATED = f"{FUNCTION_PREFIX}contribution_bounds\0"  # a name that no statement can hold
PER_GROUP, PER_ROW = "contribution_bounds_per_group", "contribution_bounds_per_row"
_WITH_BOUNDS = {
    **dict.fromkeys("count count_if countif approx_count_distinct sum avg".split(), PER_GROUP),
    **dict.fromkeys("median quantile quantile_cont quantile_disc percentile_cont percentile_disc".split(), PER_ROW),
    "approx_quantiles": PER_ROW,
    **dict.fromkeys(SPREADS, PER_ROW),
}


def state_bounds(statement: ScannedStatement, tokens: list[Token]) -> list[Token]:
    """Return the tokens with the bounds of each aggregate as a call; refuse any other name => value."""
    root = nest(tokens)
    blocks = [("", root)]
    for beside, at in walk(root.nodes):
        block = beside[at]
        blocks += [(name_of(beside, at - 1), block)] if isinstance(block, Block) else []
    names, arrows = set[int](), set[int]()
    for called, block in blocks:
        for at, kind in enumerate(kinds_of(block.nodes)):
            if kind == "FARROW":
                _check_bounds(statement, block, at=at, called=called)
                names.add(id(block.nodes[at - 1]))
                arrows.add(id(block.nodes[at]))
    written = (make_token("VAR", STATED, beside=token) if id(token) in names else token for token in tokens)
    return [token for token in written if id(token) not in arrows]


def _check_bounds(statement: ScannedStatement, block: Block, *, at: int, called: str) -> None:
    """Refuse bounds that do not follow the argument of an aggregate, or that are not two of the kind that it has."""
    nodes, name, wanted = block.nodes, word_of(block.nodes, at - 1), _WITH_BOUNDS.get(called)
    example = f"Write SUM(x, {PER_GROUP} => (0, 500))."
    if wanted == PER_ROW:
        arguments = "..." if called not in SPREADS else "x, y" if SPREADS[called].is_of_pairs else "x"
        example = f"Write {called.upper()}({arguments}, {PER_ROW} => (0, 500))."
    bounds = nodes[at + 1] if at + 1 < len(nodes) else None
    pair = split(bounds.nodes) if isinstance(bounds, Block) and bounds.kind == "L_PAREN" else []
    if name not in {PER_GROUP, PER_ROW}:
        reason = "There is no argument of this name."
        hint = f"Leave it out. Only the bounds of an aggregate are written so. {example}"
        if name == "report_format":
            hint = "Leave it out: value_low(n) and value_high(n) are the ends of the interval of a measure n."
    elif name == PER_ROW != wanted:
        reason = f"{PER_ROW} is for quantiles and variances."
        hint = f"Bounds of COUNT, SUM and AVG are of a group. {example}"
    elif name == PER_GROUP and called in SPREADS:
        reason, hint = f"Bounds of {called.upper()} are of the value of one row.", example
    elif name != wanted or kind_of(nodes, at - 2) != "COMMA":
        reason = f"{PER_GROUP} is for COUNT, SUM and AVG."
        hint = f"Write them behind the argument of an aggregate. {example}"
    elif any(each not in {PER_GROUP, PER_ROW} for each in _list_names(nodes[at + 1 :])):
        return  # the other name is refused
    elif len(pair) != len(("low", "high")) or block.closing is None or at + 2 < len(nodes):
        reason, hint = "Bounds are two numbers in parentheses, behind all other arguments.", example
    else:
        return
    place = statement.place(first_token(nodes[max(at - 1, 0) :]), first_token(nodes[at:]))
    raise Refusal("option", reason, hint=hint, place=place)


def _list_names(nodes: Nodes) -> list[str]:
    """Return the names before => in the arguments of a call."""
    return [word_of(nodes, at - 1) for at, kind in enumerate(kinds_of(nodes)) if kind == "FARROW"]


def find_aggregate_call(tokens: Sequence[Token], start: int) -> tuple[Token, Token] | None:
    """Return the first and the last token of the aggregate at or around a position in the text, if there is one."""
    beyond = next((token.start for token in tokens if token.start >= start), start)
    call: tuple[Token, Token] | None = None
    for beside, at in walk(nest(tokens).nodes):
        called = beside[at + 1] if at + 1 < len(beside) else None
        if name_of(beside, at) in _WITH_BOUNDS and isinstance(called, Block) and called.kind == "L_PAREN":
            first = first_token(beside[at:])
            call = (first, called.closing or tokens[-1]) if first.start <= beyond else call
    return call if call is not None and call[1].end > start else None


def list_argument_texts(statement: ScannedStatement, start: int) -> list[str]:
    """Return the arguments of the aggregate at or around a position as the analyst wrote them, without bounds.

    Those of COUNT(DISTINCT (x, y)) are x and y.
    """
    tokens = list(statement.tokens)
    call = find_aggregate_call(tokens, start)
    if call is None:
        return []
    nodes = nest(token for token in tokens if call[0].start < token.start <= call[1].start).nodes
    while len(nodes) == 1 and isinstance(nodes[0], Block):
        nodes = nodes[0].nodes
        nodes = nodes[1:] if word_of(nodes, 0) == "distinct" else nodes
    parts = [part for part in split(nodes) if part and "FARROW" not in kinds_of(part)]
    return [" ".join(statement.place(first_token(part), last_token(part)).fragment.split()) for part in parts]
