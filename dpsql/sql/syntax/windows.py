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

from dpsql.sql.syntax.block import (
    AGGREGATES,
    Block,
    Nodes,
    flatten,
    kind_of,
    kinds_of,
    name_of,
    split,
    walk,
)
from dpsql.sql.syntax.spans import Slice
from dpsql.sql.syntax.terms import cut_direction

if TYPE_CHECKING:
    from sqlglot import Token

__all__ = [
    "Direction",
    "OpenBounds",
    "RankedWindow",
    "Total",
    "Window",
    "is_decided",
    "list_windows",
    "read_limit_of_rank",
]

_RANKS = frozenset(["row_number", "rank", "dense_rank"])
_FRAMES = frozenset(["rows", "range", "groups"])
_BEFORE, _HERE, _AFTER = -1, 0, 1
_AT_MOST, _AT_LEAST = {"LTE": 0, "LT": -1, "EQ": 0}, {"GTE": 0, "GT": -1, "EQ": 0}  # before and after a number


@dataclass(frozen=True, slots=True)
class Direction:
    """How an expression follows the measure that ranks: whether it rises with it, and whether it is the measure."""

    rises: bool
    is_exact: bool


Follow = Callable[[Nodes], Direction | None]


@dataclass(frozen=True, slots=True)
class _Over:
    """What is in the parentheses of OVER; `frame` is what follows ROWS, RANGE or GROUPS, the word `counts`."""

    partition: tuple[Nodes, ...] = ()
    order: tuple[tuple[Nodes, bool], ...] = ()
    frame: Nodes | None = None
    counts: str = ""


@dataclass(frozen=True, slots=True)
class Window:
    """A call of a window function up to the end of its OVER, for which the WINDOW clause may stand.

    Each term of `over.order` has its expression and whether it falls. `is_plain` says that nothing else, such as FILTER
    or DISTINCT, is in the call.
    """

    nodes: Nodes
    name: str
    arguments: tuple[Nodes, ...]
    over: _Over
    is_plain: bool

    @property
    def is_rank(self) -> bool:
        """Whether it numbers the rows."""
        return self.name in _RANKS and not self.arguments

    @property
    def is_of_all(self) -> bool:
        """Whether OVER () makes it one value of all rows."""
        return self.is_plain and not (self.over.order or self.over.partition or self.over.frame)


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


def list_windows(nodes: Nodes, *, definitions: Nodes = ()) -> Iterator[Window]:
    """Yield the windows in some nodes, but those of subqueries; `definitions` are those of WINDOW."""
    named = dict[str, _Over]()
    for part in split(definitions) if definitions else ():
        over = part[2] if kinds_of(part[1:3]) == ["ALIAS", "L_PAREN"] else None
        if isinstance(over, Block):
            named[name_of(part, 0)] = _read_over(over.nodes, named)
    for beside, at in walk(nodes, hidden=lambda block: block.is_query):
        if kind_of(beside, at) == "OVER":
            yield _read_window(beside, at, named=named)


def _read_window(nodes: Nodes, over: int, *, named: Mapping[str, _Over]) -> Window:
    """Return the window whose OVER is one of some nodes."""
    arguments, is_plain = over - 1, True
    if kind_of(nodes, over - 2) == "FILTER":
        arguments, is_plain = over - 3, False
    called = nodes[arguments] if arguments >= 0 else None
    inside = called.nodes if isinstance(called, Block) else ()
    words = nodes[over + 1] if over + 1 < len(nodes) else None
    found = _read_over(words.nodes, named) if isinstance(words, Block) else named.get(name_of(nodes, over + 1), _Over())
    return Window(
        nodes=nodes[max(0, arguments - 1) : over + 2],
        name=name_of(nodes, arguments - 1),
        arguments=tuple(split(inside)) if inside else (),
        over=found,
        is_plain=is_plain and kind_of(inside, 0) != "DISTINCT" and "ORDER_BY" not in kinds_of(inside),
    )


def _read_over(nodes: Nodes, named: Mapping[str, _Over]) -> _Over:
    """Return what is in the parentheses of OVER, with what a name at its beginning stands for."""
    marks = list[tuple[str, int]]()
    for at in range(len(nodes)):
        kind = kind_of(nodes, at)
        if kind in {"PARTITION_BY", "ORDER_BY"}:
            marks.append((kind, at))
        elif kind != "IDENTIFIER" and name_of(nodes, at) in _FRAMES and _is_frame(nodes[at + 1 :]):
            marks.append(("FRAME", at))
    ends = [*(at for _, at in marks[1:]), len(nodes)]
    parts = {kind: nodes[at + 1 : end] for (kind, at), end in zip(marks, ends, strict=False)}
    first = marks[0][1] if marks else len(nodes)
    base = named.get(name_of(nodes, 0), _Over()) if first == 1 else _Over()
    partition = tuple(split(parts["PARTITION_BY"])) if "PARTITION_BY" in parts else base.partition
    order = tuple(cut_direction(term) for term in split(parts["ORDER_BY"])) if "ORDER_BY" in parts else base.order
    if "FRAME" not in parts:
        return _Over(partition, order, base.frame, base.counts)
    return _Over(partition, order, parts["FRAME"], name_of(nodes, dict(marks)["FRAME"]))


def _is_frame(nodes: Nodes) -> bool:
    tokens = flatten(nodes)
    return any(name_of(tokens, at) in {"preceding", "following", "current"} for at in range(len(tokens)))


def is_decided(window: Window, *, follow: Follow) -> bool:
    """Say whether the groups that rank first decide a window, in the partitions that it has."""
    over = window.over
    if not over.order:
        return _is_largest(window, follow=follow)
    term, falls = over.order[0]
    found = follow(term)
    if found is None:
        return False
    rises = found.rises != falls
    if window.name in _RANKS:
        return window.is_rank and not rises
    if window.name in {"lag", "lead"}:
        return window.is_plain and rises == (window.name == "lead") and _is_forward(window)
    excludes = over.frame is not None and any(name_of(over.frame, at) == "exclude" for at in range(len(over.frame)))
    start, end = _read_frame(over.frame)
    if window.name == "first_value" and window.is_plain and not rises and start in {_BEFORE, _HERE}:
        return not excludes
    if window.name == "last_value" and window.is_plain and rises and end in {_HERE, _AFTER}:
        return over.frame is not None and not excludes
    if window.name not in AGGREGATES | {"first_value", "last_value", "nth_value"}:
        return False
    if not (found.is_exact or over.counts == "rows"):
        return False  # rows that tie would be in the frame, and some of them are not there
    return start in {_HERE, _AFTER} if rises else end in {_BEFORE, _HERE}


def _is_largest(window: Window, *, follow: Follow) -> bool:
    """Say whether a window is MAX of the measure that ranks over all groups."""
    if window.name != "max" or len(window.arguments) != 1 or not window.is_plain or window.over.frame is not None:
        return False
    found = follow(window.arguments[0])
    return found is not None and found.rises


def _is_forward(window: Window) -> bool:
    """Say whether the distance of LAG or LEAD is a number that is not below 0."""
    _, *more = window.arguments or ((),)
    return bool(window.arguments) and (not more or kinds_of(more[0]) == ["NUMBER"])


def _read_frame(frame: Nodes | None) -> tuple[int, int]:
    """Return where a frame starts and ends: before the row, at it, or after it."""
    if frame is None:
        return _BEFORE, _HERE
    end = next((at for at in range(len(frame)) if name_of(frame, at) == "exclude"), len(frame))
    frame = frame[:end]
    if kind_of(frame, 0) != "BETWEEN":
        return _read_bound(frame), _HERE
    middle = next((at for at, kind in enumerate(kinds_of(frame)) if kind == "AND"), len(frame))
    return _read_bound(frame[1:middle]), _read_bound(frame[middle + 1 :])


def _read_bound(nodes: Nodes) -> int:
    return {"preceding": _BEFORE, "following": _AFTER}.get(name_of(nodes, len(nodes) - 1), _HERE)


def read_limit_of_rank(tokens: Sequence[Token], *, matches: Callable[[int], int]) -> int | None:
    """Return the k of `rank <= k`, `rank < k` or `rank = 1` in a statement, either way round; None without one.

    `matches` returns how many tokens from one on are the rank, 0 for none.
    """
    for at in range(len(tokens)):
        width = matches(at)
        for sign, number, signs in ((at + width, at + width + 1, _AT_MOST), (at - 1, at - 2, _AT_LEAST)):
            text = name_of(tokens, number) if kind_of(tokens, number) == "NUMBER" else ""
            if width and kind_of(tokens, sign) in signs and text.isdecimal():
                return max(1, int(text) + signs[kind_of(tokens, sign)])
    return None
