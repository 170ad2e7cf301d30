"""SELECTs of a statement as spans of its tokens, and what stands in each of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsql.sql.functions.allow_list import EVERY_AGGREGATE
from dpsql.sql.lexer import ascii_lower
from dpsql.sql.syntax.item_alias import find_alias
from dpsql.sql.syntax.token_scan import Span, kind_of, split_commas

if TYPE_CHECKING:
    from sqlglot import Token

__all__ = [
    "SET_OPERATIONS",
    "SelectBlock",
    "find_blocks",
    "find_cte_name",
    "groups_by_any",
    "is_aggregate",
    "names_any",
    "skip_subqueries",
]

SET_OPERATIONS = frozenset(["UNION", "INTERSECT", "EXCEPT"])
_AFTER_GROUPS = frozenset(["ORDER_BY", "LIMIT", "OFFSET"])
_AFTER_KEYS = _AFTER_GROUPS | {"HAVING", "WINDOW", "QUALIFY"}
_CTE_HEAD = 3  # tokens before the SELECT of a CTE: its name, AS and a parenthesis


@dataclass(frozen=True, slots=True)
class SelectBlock:
    """A SELECT from tokens[start] up to tokens[end]; `own` are the positions outside of inner parentheses."""

    start: int
    end: int
    own: tuple[int, ...]


def find_blocks(tokens: list[Token]) -> Iterator[SelectBlock]:
    """Yield every SELECT; ORDER BY and LIMIT behind the last part of a set operation belong to none of its parts."""
    for start, token in enumerate(tokens):
        if token.token_type.name != "SELECT":
            continue
        own, depth, end = list[int](), 0, len(tokens)
        is_part = tokens[start - 1].token_type.name in {*SET_OPERATIONS, "ALL", "DISTINCT"} if start else False
        for at in range(start, len(tokens)):
            kind = tokens[at].token_type.name
            depth -= kind == "R_PAREN"
            if depth < 0 or (not depth and (kind in SET_OPERATIONS or (is_part and kind in _AFTER_GROUPS))):
                end = at
                break
            if not depth and kind != "R_PAREN":
                own.append(at)
            depth += kind == "L_PAREN"
        yield SelectBlock(start, end, tuple(own))


def find_cte_name(tokens: list[Token], block: SelectBlock) -> str:
    """Return the name of the CTE that a SELECT is, in lower case; "" for another."""
    head = tokens[block.start - _CTE_HEAD : block.start] if block.start >= _CTE_HEAD else []
    kinds = [token.token_type.name for token in head[1:]]
    return ascii_lower(head[0].text) if kinds == ["ALIAS", "L_PAREN"] else ""


def names_any(tokens: list[Token], positions: Collection[int], *, names: Collection[str]) -> bool:
    """Say whether one of the tokens at these positions is one of the names, in lower case."""
    return any(ascii_lower(tokens[at].text) in names for at in positions)


def groups_by_any(tokens: list[Token], block: SelectBlock, *, names: Collection[str]) -> bool:
    """Say whether a group key of a SELECT is one of these columns itself, by its name, position or alias, or by ALL."""
    kinds = {at: tokens[at].token_type.name for at in block.own}
    start = next((at for at in block.own if kinds[at] == "GROUP_BY"), None)
    end = next((at for at in block.own if kinds[at] == "FROM" and at - 1 in kinds), block.end)
    is_distinct = kinds.get(block.start + 1) == "DISTINCT"
    items = split_commas(tokens, (block.start + 1 + is_distinct, end))
    if start is None:
        return is_distinct and any(_is_column(tokens, item, names=names) for item in items)
    stop = next((at for at in block.own if at > start and kinds[at] in _AFTER_KEYS), block.end)
    keys = split_commas(tokens, (start + 1, stop))
    words = {ascii_lower(tokens[first].text) for first, last in keys if last == first + 1}
    chosen = [
        item
        for number, item in enumerate(items, 1)
        if words & {"all", str(number)} or (find_alias(tokens, item) and ascii_lower(tokens[item[1] - 1].text) in words)
    ]
    return any(_is_column(tokens, span, names=names) for span in (*keys, *chosen))


def _is_column(tokens: list[Token], span: Span, *, names: Collection[str]) -> bool:
    alias = find_alias(tokens, span)
    end = span[1] if alias is None else alias - (kind_of(tokens, alias - 1) == "ALIAS")
    is_bare = all(kind_of(tokens, at) == "DOT" for at in range(span[0] + 1, end, 2))
    return end > span[0] and is_bare and ascii_lower(tokens[end - 1].text) in names


def skip_subqueries(tokens: list[Token], block: SelectBlock) -> Iterator[int]:
    """Yield the positions of a SELECT that are in no SELECT inside of it."""
    depth, hidden = 0, 0
    for at in range(block.start, block.end):
        kind = tokens[at].token_type.name
        depth += kind == "L_PAREN"
        if kind == "SELECT" and at > block.start and not hidden:
            hidden = depth
        if not hidden:
            yield at
        if kind == "R_PAREN":
            hidden = 0 if depth == hidden else hidden
            depth -= 1


def is_aggregate(tokens: list[Token], at: int, *, names: frozenset[str] = EVERY_AGGREGATE) -> bool:
    """Say whether tokens[at] is an aggregate that is called, and is no window."""
    if ascii_lower(tokens[at].text) not in names or tokens[at].token_type.name == "IDENTIFIER":
        return False
    if at + 1 >= len(tokens) or tokens[at + 1].token_type.name != "L_PAREN":
        return False
    depth = 0
    for end in range(at + 1, len(tokens)):
        depth += (tokens[end].token_type.name == "L_PAREN") - (tokens[end].token_type.name == "R_PAREN")
        if not depth:
            return end + 1 >= len(tokens) or tokens[end + 1].token_type.name != "OVER"
    return True
