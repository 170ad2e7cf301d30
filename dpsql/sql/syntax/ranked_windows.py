"""Windows over groups in the order of a measure: which of them the groups that rank first decide.

    RANK() OVER (ORDER BY COUNT(*) DESC)                    decided: no group after this one matters
    SUM(COUNT(*)) OVER (ORDER BY COUNT(*) DESC)             decided: a running sum from the largest group on
    SUM(COUNT(*)) OVER ()                                   not decided: SQL adds all groups up, before LIMIT
    RANK() OVER (PARTITION BY a ORDER BY COUNT(*) DESC)     decided by the first groups of each a, and by no others

SQL computes windows from all groups and applies LIMIT then. A ranking of unknown groups has the first ones alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsql.sql.lexer import ascii_lower
from dpsql.sql.syntax.private_spans import Slice
from dpsql.sql.syntax.token_scan import (
    AGGREGATES,
    CLOSINGS,
    OPENINGS,
    Span,
    find_closing,
    is_subquery,
    is_word,
    kind_of,
    split_at,
    split_commas,
)

if TYPE_CHECKING:
    from sqlglot import Token

__all__ = ["Direction", "RankedWindow", "Window", "is_decided", "list_windows", "read_limit_of_rank"]

_RANKS = frozenset(["row_number", "rank", "dense_rank"])
_FRAMES = frozenset(["rows", "range", "groups"])
_BEFORE, _HERE, _AFTER = -1, 0, 1
_MOVES = 2  # parts of LAG and LEAD up to the distance
_AT_MOST, _AT_LEAST = {"LTE": 0, "LT": -1, "EQ": 0}, {"GTE": 0, "GT": -1, "EQ": 0}  # before and after a number


@dataclass(frozen=True, slots=True)
class Direction:
    """How an expression follows the measure that ranks: whether it rises with it, and whether it is the measure."""

    rises: bool
    is_exact: bool


Follow = Callable[[Span], Direction | None]


@dataclass(frozen=True, slots=True)
class Window:
    """A call of a window function: tokens[start:end], with what its OVER says, or the WINDOW clause in its place.

    `arguments` are the spans of its arguments, and each term of `order` has its expression and whether it falls. The
    `frame` is the span behind ROWS, RANGE or GROUPS, None without one; `is_plain` says that nothing else, such as
    FILTER or ORDER BY among the arguments, changes what it does.
    """

    start: int
    end: int
    name: str
    arguments: tuple[Span, ...]
    partition: tuple[Span, ...]
    order: tuple[tuple[Span, bool], ...]
    frame: Span | None
    is_plain: bool

    @property
    def is_rank(self) -> bool:
        """Whether it numbers rows."""
        return self.name in _RANKS and not self.arguments


@dataclass(frozen=True, slots=True)
class OpenBounds:
    """Place in a total for the bounds of a measure, whose text it has; "" for a number of pairs of unit and group."""

    words: str = ""


Total = Sequence[str | Slice | OpenBounds]


@dataclass(frozen=True, slots=True)
class RankedWindow:
    """A window of a private SELECT; if it `is_ranked`, the groups that rank first decide it in each of its partitions.

    `partition` are the keys in PARTITION BY, by number, None for what is no key. `is_rank` says that it numbers rows,
    `alias` is the name of the column that it is, and `total` the private query for a sum over all groups.
    """

    first: Token
    last: Token
    is_ranked: bool
    is_rank: bool
    partition: tuple[int | None, ...]
    alias: str
    total: Total


@dataclass(frozen=True, slots=True)
class _Over:
    partition: tuple[Span, ...] = ()
    order: tuple[tuple[Span, bool], ...] = ()
    frame: Span | None = None


def list_windows(tokens: list[Token], span: Span, *, definitions: Span = (0, 0)) -> Iterator[Window]:
    """Yield the windows in some tokens, but those of subqueries; `definitions` are those of WINDOW."""
    named = _read_definitions(tokens, definitions)
    at = span[0]
    while at < span[1]:
        if is_subquery(tokens, at):
            at = find_closing(tokens, at)
            continue
        if kind_of(tokens, at) == "OVER":
            yield _read_window(tokens, at, named=named)
        at += 1


def _read_definitions(tokens: list[Token], span: Span) -> dict[str, _Over]:
    named = dict[str, _Over]()
    for start, end in split_commas(tokens, span) if span[1] > span[0] else ():
        if kind_of(tokens, start + 1) == "ALIAS" and kind_of(tokens, start + 2) == "L_PAREN":
            named[ascii_lower(tokens[start].text)] = _read_over(tokens, (start + 3, end - 1), named=named)
    return named


def _read_window(tokens: list[Token], over: int, *, named: Mapping[str, _Over]) -> Window:
    """Return the window of an OVER."""
    opening, is_plain = _find_opening(tokens, over - 1), True
    if kind_of(tokens, opening - 1) == "FILTER":
        opening, is_plain = _find_opening(tokens, opening - 2), False
    close = find_closing(tokens, opening)
    if kind_of(tokens, over + 1) == "L_PAREN":
        end = find_closing(tokens, over + 1)
        found = _read_over(tokens, (over + 2, end - 1), named=named)
    else:
        end = over + 2
        found = named.get(ascii_lower(tokens[over + 1].text) if over + 1 < len(tokens) else "", _Over())
    inside = (opening + 1, close - 1)
    arguments = tuple(split_commas(tokens, inside)) if inside[1] > inside[0] else ()
    has_order = kind_of(tokens, inside[0]) == "DISTINCT" or len(split_at(tokens, inside, kinds={"ORDER_BY"})) > 1
    return Window(
        start=max(0, opening - 1),
        end=end,
        name=ascii_lower(tokens[max(0, opening - 1)].text),
        arguments=arguments,
        partition=found.partition,
        order=found.order,
        frame=found.frame,
        is_plain=is_plain and not has_order,
    )


def _find_opening(tokens: list[Token], closing: int) -> int:
    """Return the parenthesis that the one at `closing` closes."""
    depth = 0
    for at in range(closing, -1, -1):
        kind = tokens[at].token_type.name
        depth += (kind in CLOSINGS) - (kind in OPENINGS)
        if not depth:
            return at
    return 0


def _read_over(tokens: list[Token], span: Span, *, named: Mapping[str, _Over]) -> _Over:
    """Return what is in the parentheses of OVER, with what a name at its beginning stands for."""
    marks, depth = list[tuple[str, int]](), 0
    for at in range(*span):
        kind = tokens[at].token_type.name
        depth += (kind in OPENINGS) - (kind in CLOSINGS)
        if depth:
            continue
        if kind in {"PARTITION_BY", "ORDER_BY"}:
            marks.append((kind, at))
        elif kind != "IDENTIFIER" and is_word(tokens, at, words=_FRAMES) and _is_frame(tokens, (at + 1, span[1])):
            marks.append(("FRAME", at))
    ends = [*(at for _, at in marks[1:]), span[1]][: len(marks)]
    parts = {kind: (at + 1, end) for (kind, at), end in zip(marks, ends, strict=True)}
    first = marks[0][1] if marks else span[1]
    base = named.get(ascii_lower(tokens[span[0]].text), _Over()) if first == span[0] + 1 else _Over()
    partition = tuple(split_commas(tokens, parts["PARTITION_BY"])) if "PARTITION_BY" in parts else base.partition
    order = tuple(_cut(tokens, term) for term in split_commas(tokens, parts["ORDER_BY"])) if "ORDER_BY" in parts else ()
    return _Over(partition, order or base.order, parts.get("FRAME", base.frame))


def _is_frame(tokens: list[Token], span: Span) -> bool:
    words = {ascii_lower(tokens[at].text) for at in range(*span)}
    return bool(words & {"preceding", "following", "current"})


def _cut(tokens: list[Token], term: Span) -> tuple[Span, bool]:
    """Return a term of ORDER BY without ASC, DESC and NULLS FIRST or LAST, and whether it falls."""
    start, end = term
    if is_word(tokens, end - 2, words={"nulls"}):
        end -= 2
    falls = kind_of(tokens, end - 1) == "DESC"
    return (start, end - (kind_of(tokens, end - 1) in {"ASC", "DESC"})), falls


def _find_direction(window: Window, follow: Follow) -> Direction | None:
    """Return how the order of a window follows the measure that ranks; None for another order, and without one."""
    if not window.order:
        return None
    span, falls = window.order[0]
    found = follow(span)
    return None if found is None else Direction(found.rises != falls, found.is_exact)


def is_decided(tokens: list[Token], window: Window, *, follow: Follow) -> bool:
    """Say whether the groups that rank first decide a window, in the partitions that it has."""
    if not window.order:
        return _is_largest(tokens, window, follow=follow)
    found = _find_direction(window, follow)
    if found is None:
        return False
    if window.name in _RANKS:
        return window.is_rank and not found.rises
    if window.name in {"lag", "lead"}:
        return window.is_plain and found.rises == (window.name == "lead") and _is_forward(tokens, window)
    start, end = _read_frame(tokens, window.frame)
    if window.name == "first_value" and window.is_plain and not found.rises and start in {_BEFORE, _HERE}:
        return not _excludes(tokens, window)
    if window.name == "last_value" and window.is_plain and found.rises and end in {_HERE, _AFTER}:
        return window.frame is not None and not _excludes(tokens, window)
    if window.name not in AGGREGATES | {"first_value", "last_value", "nth_value"}:
        return False
    is_by_rows = window.frame is not None and is_word(tokens, window.frame[0] - 1, words={"rows"})
    if not (found.is_exact or is_by_rows):
        return False  # rows that tie would be in the frame, and some of them are not there
    return start in {_HERE, _AFTER} if found.rises else end in {_BEFORE, _HERE}


def _is_largest(tokens: list[Token], window: Window, *, follow: Follow) -> bool:
    """Say whether a window is MAX of the measure that ranks over all groups."""
    if window.name != "max" or len(window.arguments) != 1 or not window.is_plain or window.frame is not None:
        return False
    found = follow(window.arguments[0])
    return found is not None and found.rises and not kind_of(tokens, window.end).startswith("FILTER")


def _is_forward(tokens: list[Token], window: Window) -> bool:
    """Say whether the distance of LAG or LEAD is a number that is not below 0."""
    if len(window.arguments) < _MOVES:
        return len(window.arguments) == 1
    start, end = window.arguments[1]
    return end == start + 1 and kind_of(tokens, start) == "NUMBER"


def _excludes(tokens: list[Token], window: Window) -> bool:
    return window.frame is not None and any(is_word(tokens, at, words={"exclude"}) for at in range(*window.frame))


def _read_frame(tokens: list[Token], frame: Span | None) -> tuple[int, int]:
    """Return where a frame starts and ends: before the row, at it, or after it."""
    if frame is None:
        return _BEFORE, _HERE
    end = next((at for at in range(*frame) if is_word(tokens, at, words={"exclude"})), frame[1])
    if kind_of(tokens, frame[0]) != "BETWEEN":
        return _read_bound(tokens, (frame[0], end)), _HERE
    middle = next((at for at in range(frame[0], end) if kind_of(tokens, at) == "AND"), end)
    return _read_bound(tokens, (frame[0] + 1, middle)), _read_bound(tokens, (middle + 1, end))


def _read_bound(tokens: list[Token], span: Span) -> int:
    last = ascii_lower(tokens[span[1] - 1].text) if span[1] > span[0] else ""
    return {"preceding": _BEFORE, "following": _AFTER}.get(last, _HERE)


def read_limit_of_rank(tokens: list[Token], span: Span, *, matches: Callable[[int], int]) -> int | None:
    """Return the k of `rank <= k`, `rank < k` or `rank = 1` in a condition, either way round; None without one.

    `matches` returns how many tokens from a position on are the rank, 0 for none.
    """
    for at in range(*span):
        width = matches(at)
        if not width:
            continue
        after, number = kind_of(tokens, at + width), at + width + 1
        if after in _AT_MOST and kind_of(tokens, number) == "NUMBER" and tokens[number].text.isdecimal():
            return max(1, int(tokens[number].text) + _AT_MOST[after])
        before, number = kind_of(tokens, at - 1), at - 2
        if before in _AT_LEAST and kind_of(tokens, number) == "NUMBER" and tokens[number].text.isdecimal():
            return max(1, int(tokens[number].text) + _AT_LEAST[before])
    return None
