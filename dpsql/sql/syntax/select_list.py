"""Items of a select list, terms of ORDER BY and windows: their parts, and the measure that they follow.

    amount::INTEGER x        day + INTERVAL '1 day' next        COUNT(*) AS n
    COUNT(*) * 1.5        CAST(SUM(x) AS DOUBLE) / 100        ROUND(COUNT(*) / 7, 2)        COALESCE(SUM(x), 0)
    100.0 * COUNT(*) / SUM(COUNT(*)) OVER ()        COUNT(*) / (SELECT COUNT(*) FROM reads)
    ROW_NUMBER() OVER (ORDER BY COUNT(*) DESC)

A word that follows an operand is an alias, unless it belongs to the type or the interval before it. Whether an
expression rises with a measure is seen from its form alone. A total of counts is above 0, and the same for all groups.

SQL computes windows from all groups and applies LIMIT then. A ranking of unknown groups has the first ones alone, which
decide some windows:

    RANK() OVER (ORDER BY COUNT(*) DESC)                    decided: no group after this one matters
    SUM(COUNT(*)) OVER (ORDER BY COUNT(*) DESC)             decided: a running sum from the largest group on
    SUM(COUNT(*)) OVER ()                                   not decided: SQL adds all groups up, before LIMIT
    RANK() OVER (PARTITION BY a ORDER BY COUNT(*) DESC)     decided by the first groups of each a, and by no others
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from dpsql.sql.syntax.block import (
    AGGREGATES,
    Block,
    CallNodes,
    Node,
    Nodes,
    Slice,
    find_calls,
    flatten,
    kind_of,
    kinds_of,
    list_blocks,
    name_of,
    parentheses_at,
    split,
    walk,
)

if TYPE_CHECKING:
    from sqlglot import Token

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
_ADDS, _MULTIPLIES = frozenset(["PLUS", "DASH"]), frozenset(["STAR", "SLASH"])
_RANKS = frozenset(["row_number", "rank", "dense_rank"])
_BEFORE, _HERE, _AFTER = -1, 0, 1
_AT_MOST, _AT_LEAST = {"LTE": 0, "LT": -1, "EQ": 0}, {"GTE": 0, "GT": -1, "EQ": 0}  # before and after a number


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
    while len(nodes) == 1 and (block := parentheses_at(nodes, 0)) is not None:
        nodes = block.nodes
    return nodes


def is_whole(call: CallNodes, nodes: Nodes) -> bool:
    """Say whether a call is all of an expression."""
    return len(call.nodes) == len(nodes) and call.nodes[0] is nodes[0]


def list_comparisons(nodes: Nodes) -> Iterator[tuple[Nodes, Nodes]]:
    """Yield the two sides of a comparison with > or >=, or with < or <= the other way round: the larger one first."""
    greater, less = split(nodes, {"GT", "GTE"}), split(nodes, {"LT", "LTE"})
    if len(greater) == len(("left", "right")):
        yield greater[0], greater[1]
    if len(less) == len(("left", "right")):
        yield less[1], less[0]


def find_direction(nodes: Nodes) -> tuple[CallNodes, bool] | None:
    """Return the measure that an expression follows, and whether it rises with it; None for any other form."""
    rises = True
    while nodes:
        calls = find_calls(nodes)
        if len(calls) == 1 and is_whole(calls[0], nodes):
            return calls[0], rises
        nodes, is_same = _find_operand(nodes)
        rises = rises == is_same
    return None


def _find_operand(nodes: Nodes) -> tuple[Nodes, bool]:  # noqa: C901 - a case for each form
    """Return the operand that an expression follows, and whether it rises with that; nothing for any other form."""
    for operators, falls_with in ((_ADDS, "DASH"), (_MULTIPLIES, "SLASH")):
        parts = split(nodes, operators)
        if len(parts) == 1:
            continue
        signs = ["", *(kind for kind in kinds_of(nodes) if kind in operators)]
        others = list[tuple[str, Nodes]]()
        for sign, part in zip(signs, parts, strict=True):
            is_number = kinds_of(part) == ["NUMBER"]
            if operators is _MULTIPLIES:
                is_positive = is_number and _POSITIVE.fullmatch(name_of(part, 0))
                is_constant = bool(is_positive) or (sign == "SLASH" and _is_total(part))
            else:
                is_constant = is_number
            others += [] if is_constant else [(sign, part)]
        # n * 2 / 7 + 1 is followed to n. 100 - n and 100 / n are not: they are read as expressions of no measure.
        return (others[0][1], True) if len(others) == 1 and others[0][0] != falls_with else ((), True)
    first, called = parentheses_at(nodes, 0), parentheses_at(nodes, 1)
    if kind_of(nodes, len(nodes) - 2) == "DCOLON" and _is_numeric(nodes):
        return nodes[:-2], True
    if first is not None and len(nodes) == 1:
        return first.nodes, True
    if called is None:
        return (), True
    word, inside = name_of(nodes, 0), called.nodes
    if len(nodes) > len(("f", "()")):  # ROW_NUMBER() OVER (ORDER BY measure DESC) falls with the measure
        over = parentheses_at(nodes, 3) if kinds_of(nodes)[1:] == ["L_PAREN", "OVER", "L_PAREN"] else None
        if word not in _RANKS or inside or over is None or kind_of(over.nodes, 0) != "ORDER_BY":
            return (), True
        term = split(over.nodes[1:])[0]
        direction = kind_of(term, len(term) - 1)
        return (term[:-1] if direction in {"ASC", "DESC"} else term), direction != "DESC"
    if word in {"cast", "try_cast"} and kind_of(inside, len(inside) - 2) == "ALIAS" and _is_numeric(inside):
        return inside[:-2], True
    argument, *more = split(inside)
    is_rounded = word in {"round", "floor", "ceil", "ceiling"} and len(more) <= 1
    is_kept = is_rounded and all(kinds_of(part) == ["NUMBER"] for part in more)
    is_zero = word == "coalesce" and [name_of(part, 0) for part in more if len(part) == 1] == ["0"]
    return (argument, True) if is_kept or (is_zero and len(more) == 1) else ((), True)


def _is_numeric(nodes: Nodes) -> bool:
    """Say whether a type of numbers is the last of some nodes."""
    return name_of(nodes, len(nodes) - 1) in _NUMERIC and kind_of(nodes, len(nodes) - 1) != "IDENTIFIER"


def _is_total(nodes: Nodes) -> bool:
    """Say whether an operand is SUM(COUNT(...)) OVER () or (SELECT COUNT(...) FROM table)."""
    first = parentheses_at(nodes, 0)
    if first is not None:
        if not first.is_query or len(nodes) > 1 or name_of(first.nodes, 1) != "count":
            return False
        kinds = kinds_of(flatten(first.nodes))
        counts = len(list(list_blocks(first))) - len(("(SELECT ...)", "(...)"))
        is_plain = kind_of(first.nodes, 2) == "L_PAREN" and kind_of(first.nodes, 3) == "FROM" and "WHERE" not in kinds
        return is_plain and counts == ("FARROW" in kinds)  # bounds of the count
    if name_of(nodes, 0) != "sum" or kinds_of(nodes)[1:] != ["L_PAREN", "OVER", "L_PAREN"]:
        return False
    inside, over = parentheses_at(nodes, 1), parentheses_at(nodes, 3)
    if inside is None or over is None or over.nodes:
        return False
    calls = find_calls(inside.nodes)
    return len(calls) == 1 and is_whole(calls[0], inside.nodes) and calls[0].name == "count"


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
class WindowNodes:
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


def list_windows(nodes: Nodes, *, definitions: Nodes = ()) -> Iterator[WindowNodes]:
    """Yield the windows in some nodes, but those of subqueries; `definitions` are those of WINDOW."""
    named = dict[str, _Over]()
    for part in split(definitions) if definitions else ():
        over = parentheses_at(part, 2) if kind_of(part, 1) == "ALIAS" else None
        if over is not None:
            named[name_of(part, 0)] = _read_over(over.nodes, named)
    for beside, at in walk(nodes, hidden=lambda block: block.is_query):
        if kind_of(beside, at) != "OVER":
            continue
        is_plain = kind_of(beside, at - 2) != "FILTER"
        arguments = at - 1 if is_plain else at - 3
        called, words = parentheses_at(beside, arguments), parentheses_at(beside, at + 1)
        inside = () if called is None else called.nodes
        yield WindowNodes(
            nodes=beside[max(0, arguments - 1) : at + 2],
            name=name_of(beside, arguments - 1),
            arguments=tuple(split(inside)) if inside else (),
            over=named.get(name_of(beside, at + 1), _Over()) if words is None else _read_over(words.nodes, named),
            is_plain=is_plain and kind_of(inside, 0) != "DISTINCT" and "ORDER_BY" not in kinds_of(inside),
        )


def _read_over(nodes: Nodes, named: Mapping[str, _Over]) -> _Over:
    """Return what is in the parentheses of OVER, with what a name at its beginning stands for."""
    marks = list[tuple[str, int]]()
    for at in range(len(nodes)):
        kind = kind_of(nodes, at)
        if kind in {"PARTITION_BY", "ORDER_BY"}:
            marks.append((kind, at))
        elif kind != "IDENTIFIER" and name_of(nodes, at) in {"rows", "range", "groups"}:
            # A column may be called rows or range: the word begins a frame only before PRECEDING, FOLLOWING or CURRENT
            # ROW.
            tokens = flatten(nodes[at + 1 :])
            if any(name_of(tokens, each) in {"preceding", "following", "current"} for each in range(len(tokens))):
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


def is_decided(window: WindowNodes, *, follow: Follow) -> bool:
    """Say whether the groups that rank first decide a window, in the partitions that it has."""
    over = window.over
    if not over.order:  # decided if it is MAX of the measure that ranks
        is_max = window.name == "max" and len(window.arguments) == 1 and window.is_plain and over.frame is None
        followed = follow(window.arguments[0]) if is_max else None
        return followed is not None and followed.rises
    term, falls = over.order[0]
    followed = follow(term)
    if followed is None:
        return False
    # `rises`: the window goes from the smallest group to the largest. Only groups that are larger than a released one
    # are released for certain, and these stand behind it then, and else before it.
    rises = followed.rises != falls
    if window.name in _RANKS:
        return window.is_rank and not rises
    if window.name in {"lag", "lead"}:
        distance = window.arguments[1:2]  # a number that is not below 0
        # LAG over n DESC and LEAD over n ASC look at a larger group; a distance below 0 would turn them round.
        is_forward = bool(window.arguments) and all(kinds_of(nodes) == ["NUMBER"] for nodes in distance)
        return window.is_plain and rises == (window.name == "lead") and is_forward
    excludes = over.frame is not None and any(name_of(over.frame, at) == "exclude" for at in range(len(over.frame)))
    start, end = _read_frame(over.frame)
    if window.name == "first_value" and window.is_plain and not rises and start in {_BEFORE, _HERE}:
        return not excludes
    if window.name == "last_value" and window.is_plain and rises and end in {_HERE, _AFTER}:
        return over.frame is not None and not excludes
    if window.name not in AGGREGATES | {"first_value", "last_value", "nth_value"}:
        return False
    if not (followed.is_exact or over.counts == "rows"):
        return False  # rows that tie would be in the frame, and some of them are not there
    # The frame reaches to the side of the larger groups alone.
    return start in {_HERE, _AFTER} if rises else end in {_BEFORE, _HERE}


def _read_frame(frame: Nodes | None) -> tuple[int, int]:
    """Return where a frame starts and ends: before the row, at it, or after it."""
    if frame is None:
        return _BEFORE, _HERE
    end = next((at for at in range(len(frame)) if name_of(frame, at) == "exclude"), len(frame))
    bounds = [frame[:end]]
    if kind_of(frame, 0) == "BETWEEN":
        middle = next((at for at, kind in enumerate(kinds_of(frame[:end])) if kind == "AND"), end)
        bounds = [frame[1:middle], frame[middle + 1 : end]]
    places = {"preceding": _BEFORE, "following": _AFTER}
    start, *other = [places.get(name_of(bound, len(bound) - 1), _HERE) for bound in bounds]
    return start, other[0] if other else _HERE


def read_limit_of_rank(tokens: Sequence[Token], *, matches: Callable[[int], int]) -> int | None:
    """Return the k of `rank <= k`, `rank < k` or `rank = 1` in a statement, either way round; None without one.

    `matches` returns how many tokens from one on are the rank, 0 for none.
    """
    for at in range(len(tokens)):
        width = matches(at)
        for sign, number, signs in ((at + width, at + width + 1, _AT_MOST), (at - 1, at - 2, _AT_LEAST)):
            text = name_of(tokens, number) if kind_of(tokens, number) == "NUMBER" else ""
            if width and kind_of(tokens, sign) in signs and text.isdecimal():
                return max(0, int(text) + signs[kind_of(tokens, sign)])
    return None


def read_limit_of_qualify(nodes: Nodes, *, windows: Sequence[RankedWindow]) -> int | None:
    """Return the k of QUALIFY rank <= k of a SELECT, None without one; QUALIFY may have other conditions after AND."""
    kinds = kinds_of(nodes)
    if "QUALIFY" not in kinds or "BETWEEN" in kinds:
        return None
    start = kinds.index("QUALIFY") + 1
    ends = (at for at in range(start, len(kinds)) if kinds[at] in {"ORDER_BY", "LIMIT", "OFFSET"})
    ranks = [window for window in windows if window.is_rank]

    def matches(tokens: Sequence[Token], at: int) -> int:
        for window in ranks:
            if tokens[at].start == window.first.start:
                last = next((end for end in range(at, len(tokens)) if tokens[end].start == window.last.start), at)
                return last - at + 1
            if kind_of(tokens, at) in {"VAR", "IDENTIFIER"} and name_of(tokens, at) == window.alias != "":
                return 1
        return 0

    for part in split(nodes[start : next(ends, len(nodes))], {"AND"}):
        tokens = flatten(part)
        for end in range(len(tokens)):
            width = matches(tokens, end)
            if width and len(tokens) == width + len(("<=", "k")):  # nothing else is in the condition
                return read_limit_of_rank(tokens, matches=partial(matches, tokens))
    return None
