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

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dpsql.sql.lexer import Statement
from dpsql.sql.syntax.computed_measures import Ranking, read_ranking
from dpsql.sql.syntax.group_lists import normalize_group_lists
from dpsql.sql.syntax.list_computations import Computation, find_computation
from dpsql.sql.syntax.list_filters import find_filter
from dpsql.sql.syntax.parameters import Parameter, read_whole_number
from dpsql.sql.syntax.row_limits import normalize_row_limits
from dpsql.sql.syntax.select_blocks import (
    SelectBlock,
    find_blocks,
    find_cte_name,
    groups_by_any,
    is_aggregate,
    names_any,
    skip_subqueries,
)

if TYPE_CHECKING:
    from sqlglot import Token

__all__ = [
    "EXPLICIT",
    "ImpliedClause",
    "PrivateNames",
    "StandardSQL",
    "add_clause",
    "describe_end",
    "find_ending",
    "find_implied_clauses",
]

_AFTER_GROUPS = frozenset(["ORDER_BY", "LIMIT", "OFFSET"])
_AFTER_ROWS = frozenset(["GROUP_BY", "HAVING", "WINDOW", "QUALIFY", *_AFTER_GROUPS])
_SECTIONS = frozenset(["FROM", "WHERE", "GROUP_BY", "HAVING"])
_TWO = 2  # SELECTs: a ranking, and the one around it
_LONGEST_QUOTED = 60  # characters of a statement in a note


@dataclass(frozen=True, slots=True)
class StandardSQL:
    """Whether standard SQL over private tables is read as private, and with how many keys where it does not say.

    A query may ask for `max_k` keys.
    """

    is_private: bool
    default_k: int = 10
    max_k: int = 1_000


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
    LIMIT asks for no fewer than the default, so that all groups of a known domain can be meant; `asked` is what it asks
    for, None without one. `select` is the token that the private query begins with. `around` is what a SELECT around it
    computes that its first groups do not decide, and `computes` says that one computes anything of its rows. The
    `ranking` has its columns.
    """

    tokens: tuple[Token, ...]
    select: Token
    at: int
    is_total: bool
    k: int
    may_be_all: bool
    asked: int | None = None
    around: Computation | None = None
    computes: bool = False
    ranking: Ranking | None = None
    limit: int | None = None  # position of what LIMIT says
    beside: tuple[ImpliedClause, ...] = ()  # those of the other private queries of the statement
    is_largest: bool = False  # the statement is SELECT MAX(measure that ranks) FROM it

    @property
    def is_inside(self) -> bool:
        """Whether a SELECT is around the query that lacks a clause."""
        kinds = [token.token_type.name for token in self.tokens[: self.at]]
        return kinds.count("L_PAREN") > kinds.count("R_PAREN")


def find_implied_clauses(
    statement: Statement, names: PrivateNames, *, default_k: int, parameter: Parameter
) -> list[ImpliedClause]:
    """Return where the clauses of the private queries of a statement belong, in the order of the text.

    `parameter` gives the value bound to a parameter.
    """
    tokens = normalize_group_lists(normalize_row_limits(list(statement.tokens)))
    while tokens and tokens[-1].token_type.name == "SEMICOLON":
        tokens.pop()
    private, found, blocks = (
        set(names.tables),
        list[SelectBlock](),
        sorted(find_blocks(tokens), key=lambda each: each.end),
    )
    for block in blocks:  # what a SELECT reads comes before it
        if not names_any(tokens, range(block.start, block.end), names=private):
            continue
        inner = [other for other in found if block.start < other.start and other.end <= block.end]
        if inner and not _reads_beside(tokens, block, inner=inner, names=private):
            continue  # around a private query
        if _is_aggregate_of_many(tokens, block, units=names.units):
            found.append(block)
        elif name := find_cte_name(tokens, block):
            private.add(name)
    clauses = list[ImpliedClause]()
    for block in sorted(found, key=lambda each: each.start):
        asked = _read_limit(statement, tokens, block=block, parameter=parameter)
        clause = _describe(tokens, block, asked=asked, default_k=default_k)
        if len(blocks) > 1 and not clause.is_total:
            clause = _describe_around(statement, clause, block=block, blocks=blocks)
        clauses.append(clause)
    if len(clauses) == 1:
        return clauses
    return [replace(each, beside=tuple(other for other in clauses if other is not each)) for each in clauses]


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


def describe_end(statement: Statement, clause: ImpliedClause) -> str:
    """Return where the clause of a query inside parentheses belongs, by the words that it follows."""
    tokens, end, depth = clause.tokens, clause.at, 0
    for start in range(end - 1, -1, -1):
        kind = tokens[start].token_type.name
        depth += (kind == "R_PAREN") - (kind == "L_PAREN")
        if not depth and kind in _SECTIONS:
            text = " ".join(statement.text[tokens[start].start : tokens[end - 1].end + 1].split())
            return f"after {text}" if len(text) <= _LONGEST_QUOTED else "at their end"
    return "at their end"


def _describe_around(
    statement: Statement, clause: ImpliedClause, *, block: SelectBlock, blocks: list[SelectBlock]
) -> ImpliedClause:
    """Return a clause with what the SELECTs around its query compute."""
    tokens = list(clause.tokens)
    ranking = read_ranking(statement, tokens[block.start : block.end])
    around = find_computation(tokens, block, blocks=blocks, k=clause.k, ranking=ranking)
    if around is None and (at := find_filter(tokens, block, blocks=blocks, ranking=ranking)) is not None:
        around = Computation(at, is_filter=True)
    found = find_computation(tokens, block, blocks=blocks, k=clause.k)
    is_largest = around is None and found is not None and len(blocks) == _TWO and is_aggregate(tokens, found.at)
    computes = found is not None or around is not None
    return replace(clause, around=around, computes=computes, ranking=ranking, is_largest=is_largest)


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


def _reads_beside(tokens: list[Token], block: SelectBlock, *, inner: list[SelectBlock], names: Collection[str]) -> bool:
    """Say whether a SELECT reads a private table itself, with private queries neither in FROM nor in WHERE."""
    kinds = {at: tokens[at].token_type.name for at in block.own}
    first = next((at for at in block.own if kinds[at] == "FROM" and kinds.get(at - 1) != "DISTINCT"), block.end)
    last = next((at for at in block.own if at > first and kinds[at] in _AFTER_ROWS), block.end)
    is_apart = not any(first < other.start < last for other in inner)
    return is_apart and names_any(tokens, range(first, last), names=names)


def _is_aggregate_of_many(tokens: list[Token], block: SelectBlock, *, units: frozenset[str]) -> bool:
    """Say whether a SELECT aggregates rows, and not for each unit alone."""
    kinds = {at: tokens[at].token_type.name for at in block.own}
    grouped = [at for at in block.own if kinds[at] == "GROUP_BY"]
    if grouped:
        last = next((at for at in block.own if at > grouped[0] and kinds[at] in {"HAVING", *_AFTER_GROUPS}), block.end)
        keys = [at for at in block.own if grouped[0] < at < last]
        return not (names_any(tokens, keys, names=units) or groups_by_any(tokens, block, names=units))
    if kinds.get(block.start + 1) == "DISTINCT":
        chosen = [at for at in block.own if at < next((at for at in block.own if kinds[at] == "FROM"), block.end)]
        return not names_any(tokens, chosen, names=units)
    return any(is_aggregate(tokens, at) for at in skip_subqueries(tokens, block))


def _read_limit(statement: Statement, tokens: list[Token], *, block: SelectBlock, parameter: Parameter) -> int | None:
    """Return the number of rows that LIMIT of a SELECT says; None without one, and for what is no number above 0."""
    limit = next((at for at in block.own if tokens[at].token_type.name == "LIMIT"), None)
    text = "" if limit is None or limit + 1 >= len(tokens) else tokens[limit + 1].text
    bound = read_whole_number(statement.value(text), parameter, min_value=1)
    return bound if bound is not None else int(text) or None if text.isdecimal() else None


def _describe(tokens: list[Token], block: SelectBlock, *, asked: int | None, default_k: int) -> ImpliedClause:
    kinds = {at: tokens[at].token_type.name for at in block.own}
    at = next((at for at in block.own if kinds[at] in _AFTER_GROUPS), block.end)
    limit = next((at + 1 for at in block.own if kinds[at] == "LIMIT"), None)
    wanted = default_k + 1 if asked is None else asked
    return ImpliedClause(
        tokens=tuple(tokens),
        select=tokens[block.start],
        at=at,
        is_total=not ("GROUP_BY" in kinds.values() or kinds.get(block.start + 1) == "DISTINCT"),
        k=min(wanted, default_k),
        may_be_all=wanted > default_k,
        asked=asked,
        limit=limit,
    )
