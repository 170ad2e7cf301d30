"""Standard SQL read as private: the clause that a statement of a tool would end in, added to its tokens.

    SELECT COUNT(...) FROM ...                                  ... PRIVATE
    SELECT ... GROUP BY keys ORDER BY measure DESC LIMIT n      ... GROUP BY keys TOP n PRIVATE ORDER BY ... LIMIT n
    SELECT ... GROUP BY bucket ORDER BY bucket                  ... GROUP BY bucket ALL PRIVATE ORDER BY bucket
    SELECT DISTINCT key FROM ...                                SELECT DISTINCT key FROM ... TOP n PRIVATE

The private query is the innermost aggregate over a private table that does not group by the privacy unit. What is
around it is read as any SELECT around a private query. One in the select list of another one, such as the total of a
share, makes two of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dpsql.errors import Place
from dpsql.sql.functions.allow_list import EVERY_AGGREGATE
from dpsql.sql.lexer import Statement, ascii_lower
from dpsql.sql.syntax.group_lists import normalize_group_lists
from dpsql.sql.syntax.parameters import Parameter, read_whole_number
from dpsql.sql.syntax.row_limits import normalize_row_limits

if TYPE_CHECKING:
    from sqlglot import Token

__all__ = [
    "EXPLICIT",
    "ImpliedClause",
    "PrivateNames",
    "StandardSQL",
    "add_clause",
    "find_ending",
    "find_implied_clauses",
]

_SET_OPERATIONS = frozenset(["UNION", "INTERSECT", "EXCEPT"])
_AFTER_GROUPS = frozenset(["ORDER_BY", "LIMIT", "OFFSET"])
_AFTER_ROWS = frozenset(["GROUP_BY", "HAVING", "WINDOW", "QUALIFY", *_AFTER_GROUPS])
_CTE_HEAD = 3  # tokens before the SELECT of a CTE: its name, AS and a parenthesis


@dataclass(frozen=True, slots=True)
class StandardSQL:
    """Whether standard SQL over private tables is read as private, and with how many keys where it does not say."""

    is_private: bool
    default_k: int = 10


EXPLICIT = StandardSQL(is_private=False)


@dataclass(frozen=True, slots=True)
class PrivateNames:
    """Names of the private tables of a policy, without their schemas, and of their privacy units; in lower case."""

    tables: frozenset[str]
    units: frozenset[str]


@dataclass(frozen=True, slots=True)
class ImpliedClause:
    """Place of the clause that a statement implies: before tokens[at].

    `is_total` where there are no groups. Otherwise `k` is the number of groups to rank, and `may_be_all` says that
    LIMIT asks for no fewer than the default, so that all groups of a known domain can be meant. `select` is the token
    that the private query begins with. `around` is the place of what a SELECT around it would compute from all groups.
    """

    tokens: tuple[Token, ...]
    select: Token
    at: int
    is_total: bool
    k: int
    may_be_all: bool
    around: Place | None = None


@dataclass(frozen=True, slots=True)
class _Block:
    """A SELECT from tokens[start] up to tokens[end]; `own` are the positions outside of inner parentheses."""

    start: int
    end: int
    own: tuple[int, ...]


def find_implied_clauses(
    statement: Statement, names: PrivateNames, *, default_k: int, parameter: Parameter
) -> list[ImpliedClause]:
    """Return where the clauses of the private queries of a statement belong, in the order of the text.

    `parameter` gives the value bound to a parameter.
    """
    tokens = normalize_group_lists(normalize_row_limits(list(statement.tokens)))
    while tokens and tokens[-1].token_type.name == "SEMICOLON":
        tokens.pop()
    private, found, blocks = set(names.tables), list[_Block](), sorted(_find_blocks(tokens), key=lambda each: each.end)
    for block in blocks:  # what a SELECT reads comes before it
        if not _names_any(tokens, range(block.start, block.end), names=private):
            continue
        inner = [other for other in found if block.start < other.start and other.end <= block.end]
        if inner and not _reads_beside(tokens, block, inner=inner, names=private):
            continue  # around a private query
        if _is_aggregate_of_many(tokens, block, units=names.units):
            found.append(block)
        elif name := _find_cte_name(tokens, block):
            private.add(name)
    clauses = list[ImpliedClause]()
    for block in sorted(found, key=lambda each: each.start):
        asked = _read_limit(statement, tokens, block=block, parameter=parameter)
        clause = _describe(tokens, block, asked=asked, default_k=default_k)
        around = _find_summary(tokens, block, blocks=blocks, k=clause.k)
        clauses.append(clause if around is None else replace(clause, around=statement.place(around)))
    return clauses


def find_ending(tokens: Sequence[Token], *, k: int = 10) -> list[ImpliedClause]:
    """Return where TOP k PRIVATE would end a SELECT with groups, whose tokens these are; nothing for another SELECT."""
    kinds, depth, outside = [token.token_type.name for token in tokens], 0, list[int]()
    for at, kind in enumerate(kinds):
        depth += (kind == "L_PAREN") - (kind == "R_PAREN")
        outside += [at] * (not depth)
    grouped = [at for at in outside if kinds[at] == "GROUP_BY" or kinds[at - 1 : at + 1] == ["SELECT", "DISTINCT"]]
    if not grouped:
        return []
    end = next((at for at in outside if at > grouped[-1] and kinds[at] in _AFTER_GROUPS), len(kinds))
    return [ImpliedClause(tuple(tokens), tokens[0], end, is_total=False, k=k, may_be_all=False)]


def add_clause(statement: Statement, clause: ImpliedClause, *, all_groups: bool) -> Statement:
    """Return the statement with the clause: PRIVATE, ALL PRIVATE or TOP k PRIVATE."""
    from sqlglot import Token, TokenType

    beside = clause.tokens[clause.at - 1]
    words = ["PRIVATE"] if clause.is_total else ["ALL", "PRIVATE"] if all_groups else ["TOP", str(clause.k), "PRIVATE"]
    kinds = {"ALL": TokenType.ALL}
    added = tuple(
        Token(
            TokenType.NUMBER if word.isdigit() else kinds.get(word, TokenType.VAR),
            word,
            beside.line,
            beside.col,
            beside.start,
            beside.end,
        )
        for word in words
    )
    end = clause.tokens[-1].end
    ending = [token for token in statement.tokens if token.start > end and token.token_type.name == "SEMICOLON"]
    return replace(statement, tokens=(*clause.tokens[: clause.at], *added, *clause.tokens[clause.at :], *ending))


def _find_blocks(tokens: list[Token]) -> Iterator[_Block]:
    """Yield every SELECT; ORDER BY and LIMIT behind the last part of a set operation belong to none of its parts."""
    for start, token in enumerate(tokens):
        if token.token_type.name != "SELECT":
            continue
        own, depth, end = list[int](), 0, len(tokens)
        is_part = tokens[start - 1].token_type.name in {*_SET_OPERATIONS, "ALL", "DISTINCT"} if start else False
        for at in range(start, len(tokens)):
            kind = tokens[at].token_type.name
            depth -= kind == "R_PAREN"
            if depth < 0 or (not depth and (kind in _SET_OPERATIONS or (is_part and kind in _AFTER_GROUPS))):
                end = at
                break
            if not depth and kind != "R_PAREN":
                own.append(at)
            depth += kind == "L_PAREN"
        yield _Block(start, end, tuple(own))


def _reads_beside(tokens: list[Token], block: _Block, *, inner: list[_Block], names: Collection[str]) -> bool:
    """Say whether a SELECT reads a private table itself, with private queries neither in FROM nor in WHERE."""
    kinds = {at: tokens[at].token_type.name for at in block.own}
    first = next((at for at in block.own if kinds[at] == "FROM" and kinds.get(at - 1) != "DISTINCT"), block.end)
    last = next((at for at in block.own if at > first and kinds[at] in _AFTER_ROWS), block.end)
    is_apart = not any(first < other.start < last for other in inner)
    return is_apart and _names_any(tokens, range(first, last), names=names)


def _find_cte_name(tokens: list[Token], block: _Block) -> str:
    """Return the name of the CTE that a SELECT is, in lower case; "" for another."""
    head = tokens[block.start - _CTE_HEAD : block.start] if block.start >= _CTE_HEAD else []
    kinds = [token.token_type.name for token in head[1:]]
    return ascii_lower(head[0].text) if kinds == ["ALIAS", "L_PAREN"] else ""


def _names_any(tokens: list[Token], positions: Collection[int], *, names: Collection[str]) -> bool:
    return any(ascii_lower(tokens[at].text) in names for at in positions)


def _is_aggregate_of_many(tokens: list[Token], block: _Block, *, units: frozenset[str]) -> bool:
    """Say whether a SELECT aggregates rows, and not for each unit alone."""
    kinds = {at: tokens[at].token_type.name for at in block.own}
    grouped = [at for at in block.own if kinds[at] == "GROUP_BY"]
    if grouped:
        last = next((at for at in block.own if at > grouped[0] and kinds[at] in {"HAVING", *_AFTER_GROUPS}), block.end)
        keys = [at for at in block.own if grouped[0] < at < last]
        return not _names_any(tokens, keys, names=units)
    if kinds.get(block.start + 1) == "DISTINCT":
        chosen = [at for at in block.own if at < next((at for at in block.own if kinds[at] == "FROM"), block.end)]
        return not _names_any(tokens, chosen, names=units)
    return any(_is_aggregate(tokens, at) for at in _skip_subqueries(tokens, block))


def _skip_subqueries(tokens: list[Token], block: _Block) -> Iterator[int]:
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


def _find_summary(tokens: list[Token], inner: _Block, *, blocks: list[_Block], k: int) -> Token | None:
    """Return what a SELECT around a private query would compute from all groups; None if it shows them as they are.

    It makes one row of several, takes the first rows in another order than from the largest, or asks which groups are
    not there.
    """
    names = {_find_cte_name(tokens, inner)} - {""}
    for at in (*range(inner.start), *range(inner.end, len(tokens))):
        ahead = [token.token_type.name for token in tokens[at : at + 4]]
        is_absence = ahead[:2] == ["NOT", "EXISTS"] or ahead == ["NOT", "IN", "L_PAREN", "SELECT"]
        if is_absence or ahead[0] in {"EXCEPT", "INTERSECT", "ANTI"}:
            absence: Token = tokens[at]
            return absence
    for block in blocks:
        is_around = block.start < inner.start and inner.end <= block.end
        outside = [at for at in _skip_subqueries(tokens, block) if not inner.start <= at < inner.end]
        if block == inner or not (is_around or _names_any(tokens, outside, names=names)):
            continue
        if name := _find_cte_name(tokens, block):
            names.add(name)
        kinds = {at: tokens[at].token_type.name for at in block.own}
        for at in outside:
            is_group = kinds.get(at) in {"GROUP_BY", "HAVING"} or (
                at == block.start + 1 and kinds.get(at) == "DISTINCT"
            )
            if is_group or _is_aggregate(tokens, at):
                return tokens[at]
        order = next((at for at in block.own if kinds[at] == "ORDER_BY"), None)
        limit = next((at for at in block.own if kinds[at] == "LIMIT"), None)
        if order is not None and limit is not None:
            first = next((at for at in block.own if at > order and kinds[at] in {"COMMA", "LIMIT"}), block.end)
            text = tokens[limit + 1].text if limit + 1 < block.end else ""
            if "DESC" not in {kinds.get(at) for at in range(order, first)} and not (
                text.isdecimal() and int(text) >= k
            ):
                return tokens[order]
    return None


def _is_aggregate(tokens: list[Token], at: int) -> bool:
    """Say whether tokens[at] is an aggregate that is called, and is no window."""
    if ascii_lower(tokens[at].text) not in EVERY_AGGREGATE or tokens[at].token_type.name == "IDENTIFIER":
        return False
    if at + 1 >= len(tokens) or tokens[at + 1].token_type.name != "L_PAREN":
        return False
    depth = 0
    for end in range(at + 1, len(tokens)):
        depth += (tokens[end].token_type.name == "L_PAREN") - (tokens[end].token_type.name == "R_PAREN")
        if not depth:
            return end + 1 >= len(tokens) or tokens[end + 1].token_type.name != "OVER"
    return True


def _read_limit(statement: Statement, tokens: list[Token], *, block: _Block, parameter: Parameter) -> int | None:
    """Return the number of rows that LIMIT of a SELECT says; None without one, and for what is no number above 0."""
    limit = next((at for at in block.own if tokens[at].token_type.name == "LIMIT"), None)
    text = "" if limit is None or limit + 1 >= len(tokens) else tokens[limit + 1].text
    bound = read_whole_number(statement.value(text), parameter, min_value=1)
    return bound if bound is not None else int(text) or None if text.isdecimal() else None


def _describe(tokens: list[Token], block: _Block, *, asked: int | None, default_k: int) -> ImpliedClause:
    kinds = {at: tokens[at].token_type.name for at in block.own}
    at = next((at for at in block.own if kinds[at] in _AFTER_GROUPS), block.end)
    asked = default_k + 1 if asked is None else asked
    groups = "GROUP_BY" in kinds.values() or kinds.get(block.start + 1) == "DISTINCT"
    return ImpliedClause(tuple(tokens), tokens[block.start], at, not groups, min(asked, default_k), asked > default_k)
