"""Items of a select list and terms of ORDER BY: the alias of an item, and the measure that an expression follows.

    amount::INTEGER x        day + INTERVAL '1 day' next        COUNT(*) AS n
    COUNT(*) * 1.5        CAST(SUM(x) AS DOUBLE) / 100        ROUND(COUNT(*) / 7, 2)        COALESCE(SUM(x), 0)
    100.0 * COUNT(*) / SUM(COUNT(*)) OVER ()        COUNT(*) / (SELECT COUNT(*) FROM reads)
    ROW_NUMBER() OVER (ORDER BY COUNT(*) DESC)

A word that follows an operand is an alias, unless it belongs to the type or the interval before it. Whether an
expression rises with a measure is seen from its form alone. A total of counts is above 0, and the same for all groups.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dpsql.sql.syntax.block import (
    Block,
    Call,
    Node,
    Nodes,
    find_calls,
    flatten,
    kind_of,
    kinds_of,
    list_blocks,
    name_of,
    split,
)

__all__ = ["cut_alias", "cut_direction", "find_alias", "find_direction", "is_alias_of_interval", "is_whole", "unwrap"]

_ENDS_OPERAND = frozenset("R_PAREN R_BRACKET R_BRACE END NUMBER STRING IDENTIFIER NULL TRUE FALSE".split())
_ENDS_ITEM = frozenset("COMMA R_PAREN FROM WHERE GROUP_BY ORDER_BY LIMIT UNION INTERSECT EXCEPT SEMICOLON".split()) | {
    ""
}
_UNITS = frozenset(
    f"{unit}{ending}"
    for unit in "microsecond millisecond second minute hour day week month quarter year decade".split()
    for ending in ("", "s")
) | frozenset(["century", "centuries", "millennium", "millennia"])
_OF_TYPES = {"precision": ("double",), "varying": ("character", "char", "bit"), "zone": ("time",)}
_BEFORE_OPERAND = frozenset(
    "all and any at between case collate distinct else escape except filter from glob ilike in intersect interval is "
    "like not of or over select similar then to union when".split()
)
_POSITIVE = re.compile(r"(?=[0.]*[1-9])[0-9]*\.?[0-9]*(e[+-]?[0-9]+)?", re.IGNORECASE)
_NUMERIC = frozenset(
    "tinyint smallint integer int bigint hugeint decimal numeric double float real float4 float8 int2 int4 int8 "
    "int1 short long".split()
) | {"double precision"}
_CASTS = frozenset(["cast", "try_cast"])
_KEEPS = frozenset(["round", "floor", "ceil", "ceiling"])
_RANKS = frozenset(["row_number", "rank", "dense_rank"])
_ADDS, _MULTIPLIES = frozenset(["PLUS", "DASH"]), frozenset(["STAR", "SLASH"])


def find_alias(nodes: Nodes) -> int | None:
    """Return which of its nodes is the alias of an item; None where it has none."""
    last, before = len(nodes) - 1, len(nodes) - 2
    if before > 0 and kind_of(nodes, before) == "ALIAS":
        return last
    if before < 0 or not _is_name(nodes, last) or _belongs_to_type(nodes, last) or _is_unit(nodes, last):
        return None
    is_type = kind_of(nodes, last - 2) == "DCOLON" or _belongs_to_type(nodes, before)
    is_zone = name_of(nodes, before) == "zone" and name_of(nodes, last - 3) == "at"  # AT TIME ZONE x
    ends = isinstance(nodes[before], Block) or kind_of(nodes, before) in _ENDS_OPERAND
    return last if (ends or is_type or _is_name(nodes, before)) and not is_zone else None


def cut_alias(nodes: Nodes) -> Nodes:
    """Return the expression of an item, without its alias."""
    alias = find_alias(nodes)
    return nodes if alias is None else nodes[: alias - (kind_of(nodes, alias - 1) == "ALIAS")]


def is_alias_of_interval(nodes: Sequence[Node], at: int) -> bool:
    """Say whether a node is the alias of an item that ends with INTERVAL '...', which names its units itself."""
    if kind_of(nodes, at - 1) != "STRING" or kind_of(nodes, at - 2) != "INTERVAL":
        return False
    return kind_of(nodes, at + 1) in _ENDS_ITEM and _is_name(nodes, at) and not _is_unit(nodes, at)


def _is_name(nodes: Sequence[Node], at: int) -> bool:
    """Say whether a node can name an item, or be the word that ends one."""
    if kind_of(nodes, at) == "IDENTIFIER":
        return True
    text = name_of(nodes, at)
    is_letter = text[:1].isalpha() or text[:1] == "_"
    return is_letter and text not in _BEFORE_OPERAND and kind_of(nodes, at) not in {"END", "NULL", "TRUE", "FALSE"}


def _is_unit(nodes: Sequence[Node], at: int) -> bool:
    """Say whether a word is the unit of an INTERVAL: INTERVAL 1 DAY."""
    is_word = kind_of(nodes, at) != "IDENTIFIER" and name_of(nodes, at) in _UNITS
    return is_word and any(kind_of(nodes, before) == "INTERVAL" for before in (at - 2, at - 4))


def _belongs_to_type(nodes: Sequence[Node], at: int) -> bool:
    """Say whether a word ends a type of several words, such as DOUBLE PRECISION."""
    before = _OF_TYPES.get(name_of(nodes, at), ()) if at > 0 else ()
    return bool(before) and name_of(nodes, at - 1) in before


def cut_direction(term: Nodes) -> tuple[Nodes, bool]:
    """Return a term of ORDER BY without ASC, DESC and NULLS FIRST or LAST, and whether it falls."""
    if name_of(term, len(term) - 2) == "nulls":
        term = term[:-2]
    direction = kind_of(term, len(term) - 1)
    return (term[:-1] if direction in {"ASC", "DESC"} else term), direction == "DESC"


def unwrap(nodes: Nodes) -> Nodes:
    """Return what is in the parentheses around all of an expression."""
    while len(nodes) == 1 and isinstance(nodes[0], Block) and nodes[0].kind == "L_PAREN":
        nodes = nodes[0].nodes
    return nodes


def is_whole(call: Call, nodes: Nodes) -> bool:
    """Say whether a call is all of an expression."""
    return len(call.nodes) == len(nodes) and call.nodes[0] is nodes[0]


def find_direction(nodes: Nodes) -> tuple[Call, bool] | None:
    """Return the measure that an expression follows, and whether it rises with it; None for any other form."""
    rises = True
    while nodes:
        found = _look_inside(nodes)
        if found is None or isinstance(found, Call):
            return None if found is None else (found, rises)
        nodes, is_same = found
        rises = rises == is_same
    return None


def _look_inside(nodes: Nodes) -> Call | tuple[Nodes, bool] | None:
    """Return the measure that an expression is, or the part that it follows and whether it rises with that."""
    parts = _split_at_operators(nodes, _ADDS)
    if len(parts) > 1:
        others = [(operator, part) for operator, part in parts if not _is_number(part)]
        return (others[0][1], True) if len(others) == 1 and others[0][0] != "DASH" else None
    parts = _split_at_operators(nodes, _MULTIPLIES)
    if len(parts) > 1:
        others = [
            (operator, part)
            for operator, part in parts
            if not _is_positive(part) and not (operator == "SLASH" and _is_total(part))
        ]
        return (others[0][1], True) if len(others) == 1 and others[0][0] != "SLASH" else None
    return _look_inside_operand(nodes)


def _split_at_operators(nodes: Nodes, operators: frozenset[str]) -> list[tuple[str, Nodes]]:
    """Return the operands between operators, each with the operator before it."""
    parts = split(nodes, operators)
    signs = [kind for kind in kinds_of(nodes) if kind in operators]
    return list(zip(["", *signs], parts, strict=True))


def _look_inside_operand(nodes: Nodes) -> Call | tuple[Nodes, bool] | None:
    calls = find_calls(nodes)
    if len(calls) == 1 and is_whole(calls[0], nodes):
        return calls[0]
    if kind_of(nodes, len(nodes) - 2) == "DCOLON" and _is_numeric(nodes, len(nodes) - 1):
        return nodes[:-2], True
    first, called = nodes[0], nodes[1] if len(nodes) > 1 else None
    if isinstance(first, Block) and first.kind == "L_PAREN" and len(nodes) == 1:
        return first.nodes, True
    if not isinstance(called, Block) or called.kind != "L_PAREN":
        return None
    word, inside = name_of(nodes, 0), called.nodes
    if len(nodes) > len(("f", "()")):
        return _look_inside_rank(nodes) if word in _RANKS else None
    if word in _CASTS and kind_of(inside, len(inside) - 2) == "ALIAS" and _is_numeric(inside, len(inside) - 1):
        return inside[:-2], True
    argument, *more = split(inside)
    is_kept = word in _KEEPS and len(more) <= 1 and all(map(_is_number, more))
    is_zero = word == "coalesce" and [name_of(part, 0) for part in more if len(part) == 1] == ["0"]
    return (argument, True) if is_kept or (is_zero and len(more) == 1) else None


def _look_inside_rank(nodes: Nodes) -> tuple[Nodes, bool] | None:
    """Return the measure of ROW_NUMBER() OVER (ORDER BY measure DESC), which falls with it."""
    if kinds_of(nodes)[1:] != ["L_PAREN", "OVER", "L_PAREN"]:
        return None
    arguments, over = nodes[1], nodes[3]
    if not isinstance(arguments, Block) or not isinstance(over, Block):
        return None
    if arguments.nodes or kind_of(over.nodes, 0) != "ORDER_BY":
        return None
    term = split(over.nodes[1:])[0]
    direction = kind_of(term, len(term) - 1)
    return (term[:-1] if direction in {"ASC", "DESC"} else term), direction != "DESC"


def _is_number(nodes: Nodes) -> bool:
    return kinds_of(nodes) == ["NUMBER"]


def _is_positive(nodes: Nodes) -> bool:
    return _is_number(nodes) and bool(_POSITIVE.fullmatch(name_of(nodes, 0)))


def _is_numeric(nodes: Nodes, at: int) -> bool:
    return name_of(nodes, at) in _NUMERIC and kind_of(nodes, at) != "IDENTIFIER"


def _is_total(nodes: Nodes) -> bool:
    """Say whether an operand is SUM(COUNT(...)) OVER () or (SELECT COUNT(...) FROM table)."""
    first = nodes[0] if nodes else None
    if isinstance(first, Block):
        if not first.is_query or len(nodes) > 1 or name_of(first.nodes, 1) != "count":
            return False
        kinds = kinds_of(flatten(first.nodes))
        counts = len(list(list_blocks(first))) - len(("(SELECT ...)", "(...)"))
        is_plain = kind_of(first.nodes, 2) == "L_PAREN" and kind_of(first.nodes, 3) == "FROM" and "WHERE" not in kinds
        return is_plain and counts == ("FARROW" in kinds)  # bounds of the count
    if name_of(nodes, 0) != "sum" or kinds_of(nodes)[1:] != ["L_PAREN", "OVER", "L_PAREN"]:
        return False
    inside, over = nodes[1], nodes[3]
    if not isinstance(inside, Block) or not isinstance(over, Block) or over.nodes:
        return False
    calls = find_calls(inside.nodes)
    return len(calls) == 1 and is_whole(calls[0], inside.nodes) and calls[0].name == "count"
