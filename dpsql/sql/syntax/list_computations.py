"""What a SELECT around a ranking computes from its rows that it would compute from other rows if all groups were there.

    SELECT COUNT(*) FROM (ranking)                  SELECT n / SUM(n) OVER () FROM (ranking)
    SELECT ... FROM products LEFT JOIN (ranking)    SELECT ... FROM products WHERE product NOT IN (ranking)

A SELECT that only chooses columns and rows, or joins them, shows some rows of those that SQL promises, each with the
right values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsql.sql.lexer import ascii_lower
from dpsql.sql.syntax.computed_measures import Ranking
from dpsql.sql.syntax.ranked_windows import Direction, Window, is_decided, list_windows
from dpsql.sql.syntax.select_blocks import (
    SET_OPERATIONS,
    SelectBlock,
    find_cte_name,
    is_aggregate,
    names_any,
    skip_subqueries,
)
from dpsql.sql.syntax.token_scan import Span, find_closing, kind_of, split_commas

if TYPE_CHECKING:
    from sqlglot import Token

__all__ = ["Computation", "find_computation"]

_BRANCHES = frozenset(["WHERE", "GROUP_BY", "HAVING", "WINDOW", "QUALIFY", "ORDER_BY", "LIMIT", "OFFSET"])
_IN_FROM = frozenset(["FROM", "JOIN", "COMMA", "LATERAL"])
_MEMBERSHIP = frozenset(["IN", "EXISTS", "ANY", "SOME"])
_OUTER = frozenset(["LEFT", "RIGHT", "FULL"])
_COLUMN_AND_DESC = 5  # tokens from ORDER BY to the end of x.column DESC


@dataclass(frozen=True, slots=True)
class Computation:
    """A computation from the rows of a ranking: it begins at tokens[at], in a SELECT around the ranking or beside it.

    A `window` has itself here. `is_direct` says that FROM of that SELECT reads the ranking, and nothing else;
    `is_filter` that WHERE tests a measure.
    """

    at: int
    block: SelectBlock | None = None
    window: Window | None = None
    is_direct: bool = False
    is_filter: bool = False


def find_computation(
    tokens: list[Token], inner: SelectBlock, *, blocks: Sequence[SelectBlock], k: int, ranking: Ranking | None = None
) -> Computation | None:
    """Return what is computed from the rows of a ranking, None where they are shown as they are.

    With the columns of the `ranking`, what its first rows decide is left out.
    """
    at = _find_absence(tokens, inner)
    if at is not None:
        return Computation(at)
    names, sources = {find_cte_name(tokens, inner)} - {""}, [inner]
    for block in blocks:
        inside = [each for each in sources if block.start < each.start and each.end <= block.end]
        outside = [
            at for at in skip_subqueries(tokens, block) if not any(each.start <= at < each.end for each in inside)
        ]
        if block == inner or not (inside or names_any(tokens, outside, names=names)):
            continue
        is_direct = _reads_alone(tokens, block, inner=inner, blocks=blocks)
        around = _Around(tokens, block, outside, k, ranking if is_direct else None)
        found = around.find() or around.find_lost(inside, names)
        if found is not None:
            return Computation(found.at, block, found.window, is_direct)
        sources.append(block)
        if name := find_cte_name(tokens, block):
            names.add(name)
    return None


def _find_absence(tokens: list[Token], inner: SelectBlock) -> int | None:
    """Return where a statement asks which groups are not there."""
    positions: list[int] = [*range(inner.start), *range(inner.end, len(tokens))]
    return next((at for at in positions if _is_absence(tokens, at)), None)


def _is_absence(tokens: list[Token], at: int) -> bool:
    ahead = [token.token_type.name for token in tokens[at : at + 4]]
    if ahead[:2] == ["NOT", "EXISTS"] or ahead == ["NOT", "IN", "L_PAREN", "SELECT"]:
        return True
    if ahead[:3] == ["ALL", "L_PAREN", "SELECT"]:  # as in x > ALL (SELECT ...)
        return kind_of(tokens, at - 1) not in {*SET_OPERATIONS, "SELECT"}
    is_list = ahead[:2] == ["EXCEPT", "L_PAREN"] and kind_of(tokens, at + 2) != "SELECT"  # of columns
    return ahead[0] in {"INTERSECT", "ANTI", "EXCEPT"} and not is_list


def _reads_alone(tokens: list[Token], block: SelectBlock, *, inner: SelectBlock, blocks: Sequence[SelectBlock]) -> bool:
    """Say whether FROM of a SELECT has the ranking alone, in parentheses or by the name of its CTE."""
    kinds = {at: tokens[at].token_type.name for at in block.own}
    first = next((at for at in block.own if kinds[at] == "FROM"), block.end)
    last = next((at for at in block.own if at > first and kinds[at] in _BRANCHES), block.end)
    if any(kinds.get(at) in {"COMMA", "JOIN"} for at in range(first, last)):
        return False
    if kind_of(tokens, first + 1) != "L_PAREN":
        return last > first + 1 and ascii_lower(tokens[first + 1].text) == (find_cte_name(tokens, inner) or None)
    between = [each for each in blocks if each not in (block, inner) and block.start < each.start < inner.start]
    return first < inner.start < last and not any(inner.end <= each.end for each in between)


@dataclass(frozen=True, slots=True)
class _Around:
    """A SELECT around a ranking: `outside` are its positions that are in no other SELECT."""

    tokens: list[Token]
    block: SelectBlock
    outside: list[int]
    k: int
    ranking: Ranking | None

    def find(self) -> Computation | None:
        """Return what makes one row of several, a window, or an order in which the first rows are others."""
        kinds = {at: self.tokens[at].token_type.name for at in self.block.own}
        windows = {window.start: window for window in self._list_open_windows()}
        for at in self.outside:
            is_distinct = at == self.block.start + 1 and kinds.get(at) == "DISTINCT"
            if kinds.get(at) in {"GROUP_BY", "HAVING"} or is_distinct:
                return Computation(at)
            if is_aggregate(self.tokens, at) and not self._is_largest(at):
                return Computation(at)
            if at in windows:
                return Computation(at, window=windows[at])
        order = next((at for at in self.block.own if kinds[at] == "ORDER_BY"), None)
        return Computation(order) if order is not None and self._takes_others(order, kinds) else None

    def _takes_others(self, order: int, kinds: Mapping[int, str]) -> bool:
        """Say whether LIMIT takes the first rows in another order than from the largest group on."""
        limit = next((at for at in self.block.own if kinds[at] == "LIMIT"), None)
        text = "" if limit is None or limit + 1 >= self.block.end else self.tokens[limit + 1].text
        if limit is None or (text.isdecimal() and int(text) >= self.k):
            return False
        ends = (at for at in self.block.own if at > order and kinds[at] in {"COMMA", "LIMIT"})
        first = next(ends, self.block.end)
        if "DESC" not in {kinds.get(at) for at in range(order, first)}:
            return True
        if self.ranking is None:
            return False
        others = {*self.ranking.keys, *self.ranking.totals} - {self.ranking.ranks}
        return ascii_lower(self.tokens[first - 2].text) in others and first <= order + _COLUMN_AND_DESC

    def find_lost(self, inside: Sequence[SelectBlock], names: set[str]) -> Computation | None:
        """Return what has NULL, or FALSE, for a group that is not there: an outer join, a value, a negation.

        The ranking is `inside`, in parentheses, or has one of the `names`.
        """
        first = next((at for at in self.block.own if kind_of(self.tokens, at) == "FROM"), self.block.end)
        openings = [self._find_opening(each) for each in inside]
        places = [at for at in self.block.own if at > first and ascii_lower(self.tokens[at].text) in names]
        places += [at for at in openings if at > first]
        for at in self.block.own:
            kind = kind_of(self.tokens, at)
            if kind not in _OUTER or kind_of(self.tokens, at + 1) not in {"JOIN", "OUTER"}:
                continue
            lost = {"LEFT": any(each > at for each in places), "RIGHT": any(each < at for each in places)}
            if lost.get(kind, bool(places)):
                return Computation(at)
        for each, opening in zip(inside, openings, strict=True):
            before = kind_of(self.tokens, opening - 1)
            if is_aggregate(self.tokens, each.start + 1):
                continue  # the largest value, which is there
            if before in _MEMBERSHIP and first < opening:
                negated = next((at for at in self.block.own if at < opening and self._is_negation(at)), None)
                if negated is not None:
                    return Computation(negated)
            elif before in _MEMBERSHIP or not (
                before in _IN_FROM and first < opening and self._is_in_from(opening, first)
            ):
                return Computation(opening + 1)
        return None

    def _find_opening(self, inner: SelectBlock) -> int:
        """Return the parenthesis at the level of this SELECT in which another one is."""
        own = set(self.block.own)
        return next(at for at in range(inner.start, self.block.start - 1, -1) if at in own)

    def _is_negation(self, at: int) -> bool:
        around = kind_of(self.tokens, at - 1), kind_of(self.tokens, at + 1)
        return kind_of(self.tokens, at) == "NOT" and around[0] != "IS" and around[1] not in {"NULL", "LIKE", "BETWEEN"}

    def _is_in_from(self, opening: int, first: int) -> bool:
        kinds = [kind_of(self.tokens, at) for at in self.block.own if first < at < opening]
        return not any(kind in _BRANCHES for kind in kinds)

    def _list_open_windows(self) -> Iterator[Window]:
        span = (self.block.start, self.block.end)
        for window in list_windows(self.tokens, span, definitions=self._find_definitions()):
            if window.partition or not is_decided(self.tokens, window, follow=self._follow):
                yield window

    def _find_definitions(self) -> Span:
        own = [at for at in self.block.own if kind_of(self.tokens, at) in _BRANCHES]
        start = next((at for at in own if kind_of(self.tokens, at) == "WINDOW"), None)
        if start is None:
            return (0, 0)
        return start + 1, next((at for at in own if at > start), self.block.end)

    def _follow(self, span: Span) -> Direction | None:
        """Return the direction of the column that ranks, and None for any other expression."""
        start, end = span
        ranks = self.ranking.ranks if self.ranking is not None else ""
        is_column = end == start + 1 or (end == start + 3 and kind_of(self.tokens, start + 1) == "DOT")
        is_ranking = bool(ranks) and is_column and ascii_lower(self.tokens[end - 1].text) == ranks
        return Direction(rises=True, is_exact=True) if is_ranking else None

    def _is_largest(self, at: int) -> bool:
        """Say whether an aggregate is MAX of the measure that ranks, where no rows are left out."""
        if ascii_lower(self.tokens[at].text) != "max" or self.ranking is None:
            return False
        close = find_closing(self.tokens, at + 1)
        arguments = split_commas(self.tokens, (at + 2, close - 1))
        has_where = any(kind_of(self.tokens, each) == "WHERE" for each in self.block.own)
        is_plain = kind_of(self.tokens, close) != "FILTER" and not has_where
        return is_plain and len(arguments) == 1 and self._follow(arguments[0]) is not None
