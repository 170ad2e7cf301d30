"""A private SELECT that computes with its measures, split into a private query and a SELECT around it.

    SELECT article, COUNT(*) * 1.5 AS m FROM reads GROUP BY article ORDER BY m DESC LIMIT 3

    SELECT article, COUNT(*) AS "dpsql measure 1" FROM reads GROUP BY article ORDER BY "dpsql measure 1" DESC LIMIT 3
    SELECT released.article, released."dpsql measure 1" * 1.5 AS m FROM <the answer> AS released ORDER BY m DESC LIMIT 3

A measure that is computed with others is a column of its own beside the same measure alone: whether both are one
release is for `coupled_measures.py` to say.

The private query consists of tokens of the statement, so that errors point into its text. It has the group keys and the
measures, the one that ranks before the others. All else, with HAVING, ORDER BY and LIMIT, is copied into the SELECT
around it, in which a qualified column is in place of each measure and each key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dpsql.dialects import quote_name
from dpsql.errors import Unsupported
from dpsql.sql.functions.allow_list import INTERVAL_ENDS
from dpsql.sql.lexer import Statement, ascii_lower
from dpsql.sql.syntax.item_alias import find_alias
from dpsql.sql.syntax.monotone_terms import find_direction
from dpsql.sql.syntax.private_spans import Parts, Slice
from dpsql.sql.syntax.ranked_windows import (
    Direction,
    OpenBounds,
    RankedWindow,
    Total,
    Window,
    is_decided,
    list_windows,
)
from dpsql.sql.syntax.token_scan import (
    AGGREGATES,
    CLOSINGS,
    OPENINGS,
    Call,
    Span,
    Spelling,
    find_calls,
    find_closing,
    is_subquery,
    is_word,
    kind_of,
    spell,
    split_at,
    split_commas,
)

if TYPE_CHECKING:
    from sqlglot import Token

__all__ = [
    "RELEASED",
    "ComputedSelect",
    "Ranking",
    "is_measure_name",
    "name_measure",
    "read_ranking",
    "split_measures",
]

RELEASED = '"dpsql released"'
_NAME = "dpsql measure "
_HOISTED = frozenset(["count", "sum", "avg"])
_SECTIONS = ("FROM", "WHERE", "GROUP_BY", "HAVING", "WINDOW", "QUALIFY", "ORDER_BY", "LIMIT", "OFFSET")
_SET_OPERATIONS = frozenset(["UNION", "INTERSECT", "EXCEPT"])
_LITERALS = frozenset(["NUMBER", "STRING", "NULL", "TRUE", "FALSE"])
_NOT_A_COLUMN_AFTER = frozenset(
    ["DOT", "DCOLON", "ALIAS", "R_PAREN", "R_BRACKET", "END", "IDENTIFIER", "VAR", "NUMBER", "STRING"]
)
_NOT_A_COLUMN_BEFORE = frozenset(["L_PAREN", "STRING"])
_AROUND_ANY = (
    frozenset(["", "L_PAREN", "COMMA", "ORDER_BY", "PARTITION_BY"]),
    frozenset(["", "R_PAREN", "COMMA", "ASC", "DESC", "ORDER_BY"]),
)
_GROUPING_SETS = frozenset(["rollup", "cube", "grouping"])
_INTEGER = re.compile(r"[0-9]{1,4}")
_CHAIN = 2  # tokens of a dot and a name
_SIDES = 2  # of a comparison


def name_measure(number: int) -> str:
    """Return the name of a measure in the private query, numbered from 1."""
    return f"{_NAME}{number}"


def is_measure_name(name: str) -> bool:
    """Say whether a column of the private query, or an end of its interval, is a measure that is computed with."""
    return name.startswith(_NAME)


@dataclass(slots=True)
class _Item:
    """An item of the select list: its expression is tokens[start:end]; `alias` is "" without one."""

    start: int
    end: int
    alias: str
    whole: int  # where it ends with its alias
    calls: list[Call]
    is_key: bool = False


@dataclass(frozen=True, slots=True)
class _Key:
    """A group key: its words, and the item of the private query that it is."""

    spelling: tuple[Spelling, ...]
    at: int


@dataclass(frozen=True, slots=True)
class _Measure:
    """A measure: its words, and those of all measures in its expression, if there are others."""

    words: tuple[Spelling, ...]
    together: frozenset[tuple[Spelling, ...]] = frozenset()


@dataclass(frozen=True, slots=True)
class ComputedSelect:
    """A private query and the SELECT around it.

    `tokens` are those of the private query; `copied` of them are the analyst's, the others added. The first
    `number_of_keys` columns are keys. `items` are the columns of the SELECT around it: its text and name, which is None
    for a key that is passed on under the name that it has. `rest` follows FROM. With `is_other_order`, LIMIT takes the
    first rows in an order that is neither that of a measure nor of a key; `tests_others` says that HAVING asks for more
    than large values of the measure that ranks, which is `ranked`. It has `windows`. `inner` is the private query up to
    its WHERE, and `order` the first term of ORDER BY where that is worked out from a window.
    """

    tokens: list[Token]
    copied: list[Token]
    number_of_keys: int
    number_of_measures: int
    items: tuple[tuple[tuple[str | Slice, ...] | int, str | None], ...]
    rest: tuple[str | Slice, ...]
    is_other_order: bool
    tests_others: bool
    words: tuple[Token, ...] = field(repr=False)
    windows: tuple[RankedWindow, ...] = ()
    ranked: Slice | None = None
    inner: Parts = ()
    order: Slice | None = None

    def write(self, outputs: Sequence[str], *, source: str) -> tuple[tuple[str | Slice, ...], list[str]]:
        """Return the SELECT around the private query, and its columns.

        `source` is the answer of the private query, and `outputs` are the columns of that, with the ends of intervals.
        """
        measures = [name_measure(number) for number in range(1, self.number_of_measures + 1)]
        columns = [*outputs[: self.number_of_keys], *measures]
        refers = {at: _qualify(column) for at, column in enumerate(columns)}
        shown: list[tuple[Sequence[str | Slice], str]] = []
        for part, name in self.items:
            if not isinstance(part, int):
                shown.append(([_refer(each, refers) for each in part], str(name)))
                continue
            shown.append(([refers[part]], columns[part] if name is None else name))
            ends = [end for end in ("_low", "_high") if f"{columns[part]}{end}" in outputs and name is not None]
            shown += [([_qualify(f"{columns[part]}{end}")], f"{name}{end}") for end in ends]
        found: list[str | Slice] = ["SELECT "]
        for parts, column in shown:
            found += [*([", "] if len(found) > 1 else []), *parts, f" AS {quote_name(column)}"]
        found += [f" FROM {quote_name(source)} AS {RELEASED}", *(_refer(each, refers) for each in self.rest)]
        return tuple(found), [column for _, column in shown]


@dataclass(frozen=True, slots=True)
class Ranking:
    """Columns of a private SELECT that computes nothing: by their names in lower case, in their order.

    `totals` are the private queries for the sum of each measure over all groups, `()` where there is none. `ranks` is
    the name of the measure that ranks, "" without one, and `ranked` its text. `order` is the span of ORDER BY, with the
    words, and `limit` the position of what LIMIT says.
    """

    keys: tuple[str, ...]
    totals: Mapping[str, Total]
    ranks: str
    ranked: Slice | None
    order: Slice | None


def read_ranking(statement: Statement, tokens: list[Token]) -> Ranking | None:
    """Return the columns of a SELECT with measures, None for one that is read otherwise."""
    block = _read_block(statement, tokens)
    return None if block is None else block.rank()


def _qualify(column: str) -> str:
    return f" {RELEASED}.{quote_name(column)} "


def _refer(part: str | Slice, refers: Mapping[int, str]) -> str | Slice:
    """Return a part of the SELECT with the columns that it refers to by number."""
    if isinstance(part, str):
        return part
    return Slice(part.start, part.end, tuple((start, end, refers[int(at)]) for start, end, at in part.replaced))


def split_measures(statement: Statement, tokens: list[Token]) -> ComputedSelect | None:
    """Return the parts of a SELECT that computes with measures, without its clause; None for any other."""
    block = _read_block(statement, tokens)
    return None if block is None else block.split()


@dataclass(slots=True)
class _Block:
    """The outermost SELECT of `tokens`, at position `select`, and where each of its clauses is."""

    statement: Statement
    tokens: list[Token]
    select: int
    sections: dict[str, tuple[int, int]]
    items: list[_Item]
    measures: list[_Measure] = field(default_factory=list)
    found: dict[int, _Measure] = field(default_factory=dict)  # by the token at which each of their calls starts
    calls: list[Call] = field(default_factory=list)  # where they stand
    keys: list[_Key] = field(default_factory=list)
    hidden: list[tuple[int, int]] = field(default_factory=list)  # keys that are not selected

    def split(self) -> ComputedSelect | None:
        every = self._list_calls()
        if every is None or not self._find_keys():
            return None
        for call in every:
            measure = self.found[call.start]
            if measure not in self.measures:
                self.measures.append(measure)
                self.calls.append(call)
        outside = [item for item in self.items if not item.is_key and not self._is_measure(item)]
        terms = self._split("ORDER_BY")
        around = {"HAVING", "WINDOW", "QUALIFY"} & self.sections.keys()
        if not self.measures or not (outside or self.hidden or around or terms):
            return None
        shown = [item for item in self.items if item.is_key]
        spans = [*((item.start, item.end) for item in shown), *self.hidden]
        self.keys = [_Key(self._spell(*span), at) for at, span in enumerate(spans)]
        orders = [self._find_order(term) for term in terms]
        self._rank(next((column for column, _ in orders if column is not None and column < 0), None))
        ordering = orders[0] if orders else (None, False)
        items, rest = self._copy_items(shown), self._copy_rest(terms)
        if items is None or rest is None:
            return None
        inner = self._write_inner(shown, order=ordering)
        return ComputedSelect(
            tokens=inner.found,
            copied=inner.copied,
            number_of_keys=len(spans),
            number_of_measures=len(self.measures),
            items=items,
            rest=rest,
            is_other_order=bool(terms) and ordering[0] is None and "LIMIT" in self.sections,
            tests_others=not self._asks_for_large(*self._section("HAVING")),
            words=tuple(self.tokens[self.select :]),
            windows=tuple(self._list_windows()),
            ranked=self._slice_ranked(),
            inner=tuple(self._write_source(shown)),
            order=self._find_computed_order(terms[0]) if terms else None,
        )

    def rank(self) -> Ranking | None:
        """Return the columns where the SELECT computes nothing."""
        every = self._list_calls()
        if every is None or not self._find_keys():
            return None
        shown = [item for item in self.items if item.is_key]
        measured = [item for item in self.items if self._is_measure(item)]
        if len(shown) + len(measured) < len(self.items):
            return None
        self.calls = every
        for call in every:
            words = self._spell(call.start, call.end)
            measure = _Measure(words)
            self.measures += [] if measure in self.measures else [measure]
        self.keys = [_Key(self._spell(item.start, item.end), at) for at, item in enumerate(shown)]
        orders = [self._find_order(term) for term in self._split("ORDER_BY")]
        first = next((-1 - column for column, _ in orders if column is not None and column < 0), None)
        ranked = self._find_ranked() if first is None else self.measures[first].words
        ranks = next((item for item in measured if self._spell(item.start, item.end) == ranked), None)
        start, end = self._section("ORDER_BY")
        names = {id(item): ascii_lower(item.alias or self._name(item)) for item in self.items}
        return Ranking(
            keys=tuple(names[id(item)] for item in shown),
            totals={names[id(item)]: tuple(self._write_total(item.calls[0], shown)) for item in measured},
            ranks="" if ranks is None else names[id(ranks)],
            ranked=None if ranks is None else self._slice(ranks.start, ranks.end),
            order=self._slice(start - 1, end) if end else None,
        )

    def _slice(self, start: int, end: int) -> Slice:
        return Slice(self.tokens[start].start, self.tokens[end - 1].end + 1, ())

    def _find_ranked(self) -> tuple[Spelling, ...] | None:
        """Return the measure that ranks: the first that is no average."""
        return next((each.words for each in self.measures if each.words[0].text != "avg"), None)

    def _slice_ranked(self) -> Slice | None:
        ranked = self._find_ranked()
        calls = [call for call in self.calls if self._spell(call.start, call.end) == ranked]
        return self._slice(calls[0].start, calls[0].end) if calls else None

    def _follow(self, span: Span) -> Direction | None:
        """Return how an expression, or what an alias stands for, follows the measure that ranks."""
        item = (
            self._find_ordered(*span) if span[1] == span[0] + 1 and kind_of(self.tokens, span[0]) != "NUMBER" else None
        )
        start, end = span if item is None else (item.start, item.end)
        while kind_of(self.tokens, start) == "L_PAREN" and find_closing(self.tokens, start) == end:
            start, end = start + 1, end - 1
        found = find_direction(self.tokens, (start, end))
        if found is None or self._spell(found[0].start, found[0].end) != self._find_ranked():
            return None
        return Direction(found[1], is_exact=(found[0].start, found[0].end) == (start, end))

    def _list_windows(self) -> Iterator[RankedWindow]:
        """Yield the windows, and what the groups that rank first decide of them."""
        spans = [(item.start, item.end, item.alias) for item in self.items]
        spans += [(*self._section(name), "") for name in ("HAVING", "QUALIFY", "ORDER_BY")]
        for start, end, alias in spans:
            for window in list_windows(self.tokens, (start, end), definitions=self._section("WINDOW")):
                yield RankedWindow(
                    first=self.tokens[window.start],
                    last=self.tokens[window.end - 1],
                    is_ranked=is_decided(self.tokens, window, follow=self._follow),
                    is_rank=window.is_rank,
                    partition=tuple(map(self._find_partition, window.partition)),
                    alias=ascii_lower(alias) if (window.start, window.end) == (start, end) else "",
                    total=tuple(self._write_sum(window)),
                )

    def _find_partition(self, span: Span) -> int | None:
        """Return the key that a term of PARTITION BY is, by its number; None for another one."""
        item = self._find_ordered(*span) if kind_of(self.tokens, span[0]) != "NUMBER" else None
        wanted = self._spell(*span) if item is None else self._spell(item.start, item.end)
        return next((key.at for key in self.keys if _is_same(key.spelling, wanted)), None)

    def _write_sum(self, window: Window) -> Iterator[str | Slice | OpenBounds]:
        """Yield the private query for SUM(measure) OVER (), nothing for another window."""
        inside = window.arguments[0] if len(window.arguments) == 1 else (0, 0)
        is_total = window.name == "sum" and window.is_plain and not (window.order or window.partition or window.frame)
        call = next((call for call in find_calls(self.tokens, inside) if (call.start, call.end) == inside), None)
        item = self._find_ordered(*inside) if is_total and call is None else None
        if item is not None and self._is_measure(item):
            call = item.calls[0]
        if is_total and call is not None and "HAVING" not in self.sections:
            yield from self._write_total(call, [item for item in self.items if item.is_key])

    def _write_total(self, call: Call, shown: list[_Item]) -> Iterator[str | Slice | OpenBounds]:
        """Yield the private query for the sum of a measure over all groups, nothing where it is none.

        The numbers of units of all groups add up to the number of pairs of a unit and a group.
        """
        start, end = self._section("WHERE" if "WHERE" in self.sections else "FROM")
        source = self._slice(self._section("FROM")[0] - 1, end)
        if kind_of(self.tokens, call.start + 2) != "DISTINCT":
            if not is_word(self.tokens, call.start, words={"avg"}):
                yield "SELECT "
                yield from self._open_bounds(call)
                yield from (" ", source)
            return
        close = find_closing(self.tokens, call.start + 1)
        if close == call.end and start:
            spans = [(item.start, item.end) for item in shown] + self.hidden
            keys = [part for at, span in enumerate(spans, 1) for part in (", ", self._slice(*span), f" AS key_{at}")]
            yield from (
                "SELECT COUNT(*",
                OpenBounds(),
                ") FROM (SELECT DISTINCT ",
                self._slice(call.start + 3, close - 1),
                *keys,
            )
            yield from (" ", source, ") AS pairs")

    def _open_bounds(self, call: Call) -> Iterator[str | Slice | OpenBounds]:
        """Yield a measure with a place for its bounds, also if it has bounds of its own."""
        close = find_closing(self.tokens, call.start + 1) - 1
        stated = next((at for at in range(call.start, close) if kind_of(self.tokens, at) == "FARROW"), close + 2) - 2
        yield self._slice(call.start, stated)
        yield OpenBounds(self._text(Call(call.start, close + 1)))
        yield self._slice(close, call.end)

    def _write_source(self, shown: list[_Item]) -> Iterator[str | Slice]:
        """Yield a SELECT of keys and measures, up to its WHERE."""
        yield "SELECT "
        spans = [(item.start, item.whole) for item in shown] + self.hidden
        for at, span in enumerate(spans):
            yield from ((", ",) if at else ())
            yield self._slice(*span)
        for at, call in enumerate(self.calls):
            yield from ((", ",) if spans or at else ())
            yield from (self._slice(call.start, call.end), f" AS measure_{at + 1}")
        yield " "
        yield self._slice(
            self._section("FROM")[0] - 1, self._section("WHERE" if "WHERE" in self.sections else "FROM")[1]
        )

    def _find_computed_order(self, term: Span) -> Slice | None:
        """Return the first term of ORDER BY if it is a window, or computed from one, which falls with the measure."""
        start, end, falls = self._cut_direction(term)
        item = self._find_ordered(start, end)
        inside = (start, end) if item is None else (item.start, item.end)
        has_window = any(True for _ in list_windows(self.tokens, inside))
        found = self._follow((start, end))
        return self._slice(*term) if has_window and falls and found is not None and found.rises else None

    def _spell(self, start: int, end: int) -> tuple[Spelling, ...]:
        return tuple(spell(self.statement, token) for token in self.tokens[start:end])

    def _section(self, name: str) -> tuple[int, int]:
        return self.sections.get(name, (0, 0))

    def _split(self, name: str) -> list[tuple[int, int]]:
        return split_commas(self.tokens, self._section(name)) if name in self.sections else []

    def _list_calls(self) -> list[Call] | None:
        """Return the measures of all clauses, in their order; None where an aggregate is no measure."""
        found: list[Call] = []
        for start, end in [
            *((item.start, item.end) for item in self.items),
            *split_at(self.tokens, self._section("HAVING"), kinds={"AND"}),
            *(self._section(name) for name in ("WINDOW", "QUALIFY")),
            *self._split("ORDER_BY"),
        ]:
            first = len(found)
            for call in find_calls(self.tokens, (start, end)):
                token = self.tokens[call.start]
                inside = range(call.start + 2, call.end)
                nested = any(
                    is_word(self.tokens, at, words=AGGREGATES) and kind_of(self.tokens, at + 1) == "L_PAREN"
                    for at in inside
                )
                is_plain = ascii_lower(token.text) in _HOISTED and token.token_type.name != "IDENTIFIER"
                if nested or not is_plain or kind_of(self.tokens, call.start - 1) == "DOT":
                    return None
                found.append(call)
            self._note(found[first:])
        return found

    def _note(self, calls: Sequence[Call]) -> None:
        """Note the measures of one expression, each with those that it is computed with."""
        words = [self._spell(call.start, call.end) for call in calls]
        others = frozenset(words) if len(set(words)) > 1 else frozenset[tuple[Spelling, ...]]()
        self.found |= {call.start: _Measure(each, others) for call, each in zip(calls, words, strict=True)}

    def _find_number(self, start: int, end: int) -> int:
        """Return the number, from 0, of the measure that a call is, or of the same one beside it."""
        words = self._spell(start, end)
        measure = self.found.get(start, _Measure(words))
        if measure in self.measures:
            return self.measures.index(measure)
        return [each.words for each in self.measures].index(words)

    def _is_measure(self, item: _Item) -> bool:
        return [(call.start, call.end) for call in item.calls] == [(item.start, item.end)]

    def _is_window(self, item: _Item) -> bool:
        return any(kind_of(self.tokens, at) == "OVER" for at in _list_outside(self.tokens, (item.start, item.end)))

    def _is_end(self, item: _Item) -> bool:
        """Say whether an item has the end of an interval of something that another item computes."""
        return any(is_word(self.tokens, at, words=INTERVAL_ENDS) for at in range(item.start, item.end))

    def _find_keys(self) -> bool:
        """Mark the items that are group keys, and list the keys that are no item; return whether all can be read."""
        plain = [each for each in self.items if not (each.calls or self._is_window(each) or self._is_end(each))]
        group = self._split("GROUP_BY")
        if not group or (len(group) == 1 and kind_of(self.tokens, group[0][0]) == "ALL"):
            for item in plain:
                item.is_key = not self._is_literal(item)
            return True
        for start, end in group:
            grouped = self._find_grouped(start, end)
            if is_word(self.tokens, start, words=_GROUPING_SETS) or (grouped is not None and grouped not in plain):
                return False
            if grouped is not None:
                grouped.is_key = True
            elif kind_of(self.tokens, start) == "NUMBER":
                return False
            else:
                self.hidden.append((start, end))
        return True

    def _find_grouped(self, start: int, end: int) -> _Item | None:
        """Return the item that an element of GROUP BY means: a position, the same words, or an alias."""
        first = self.tokens[start]
        if end == start + 1 and first.token_type.name == "NUMBER":
            at = int(first.text) if _INTEGER.fullmatch(first.text) else 0
            return self.items[at - 1] if 0 < at <= len(self.items) else None
        wanted = self._spell(start, end)
        same = [item for item in self.items if _is_same(self._spell(item.start, item.end), wanted)]
        if not same and end == start + 1:
            same = [item for item in self.items if item.alias and ascii_lower(item.alias) == wanted[0].text]
        return same[0] if same else None

    def _is_literal(self, item: _Item) -> bool:
        kinds = [kind_of(self.tokens, at) for at in range(item.start, item.end)]
        return kinds[-1:] != [] and kinds[-1] in _LITERALS and kinds[:-1] in ([], ["DASH"])

    def _find_order(self, term: tuple[int, int]) -> tuple[int | None, bool]:
        """Return the column of the private query that the first term of ORDER BY follows, and whether it falls.

        It is a key by its number, or a measure by its number below 0, -1 the first; None for any other order.
        """
        start, end, falls = self._cut_direction(term)
        item = self._find_ordered(start, end)
        if item is not None:
            start, end = item.start, item.end
        wanted = self._spell(start, end)
        key = next((key.at for key in self.keys if _is_same(key.spelling, wanted)), None)
        if key is not None:
            return key, falls
        found = find_direction(self.tokens, (start, end))
        if found is None:
            return None, falls
        call, rises = found
        measure = self._find_number(call.start, call.end)
        return -1 - measure, falls == rises

    def _find_ordered(self, start: int, end: int) -> _Item | None:
        """Return the item that a term of ORDER BY names, by its position or alias."""
        if end != start + 1:
            return None
        text, kind = self.tokens[start].text, kind_of(self.tokens, start)
        if kind == "ALL":  # the first of them decides
            return self.items[0]
        if kind == "NUMBER":
            at = int(text) if _INTEGER.fullmatch(text) else 0
            return self.items[at - 1] if 0 < at <= len(self.items) else None
        named = [item for item in self.items if item.alias and ascii_lower(item.alias) == ascii_lower(text)]
        return named[0] if named else None

    def _cut_direction(self, term: tuple[int, int]) -> tuple[int, int, bool]:
        """Return a term of ORDER BY without ASC, DESC and NULLS FIRST or LAST, and whether it falls."""
        start, end = term
        if is_word(self.tokens, end - 2, words={"nulls"}):
            end -= 2
        falls = kind_of(self.tokens, end - 1) == "DESC"
        return start, end - (kind_of(self.tokens, end - 1) in {"ASC", "DESC"}), falls

    def _rank(self, column: int | None) -> None:
        """Put the measure that ranks before the others, and number the columns of all."""
        order = list(range(len(self.measures)))
        if column is not None and column < 0:
            order.remove(-1 - column)
            order.insert(0, -1 - column)
        self.calls = [self.calls[at] for at in order]
        self.measures = [self.measures[at] for at in order]

    def _copy_items(self, shown: list[_Item]) -> tuple[tuple[tuple[str | Slice, ...] | int, str | None], ...] | None:
        found: list[tuple[tuple[str | Slice, ...] | int, str | None]] = []
        for item in self.items:
            if item.is_key:
                found.append((shown.index(item), None))
                continue
            part = self._copy(item.start, item.end)
            if part is None:
                return None
            name = item.alias or self._name(item)
            if self._is_measure(item):
                found.append((int(part.replaced[0][2]), name))
            else:
                found.append(((part,), name))
        return tuple(found)

    def _name(self, item: _Item) -> str:
        """Return the name of an item without an alias: a column, or its text as written."""
        last = item.end - 1
        chain = all(kind_of(self.tokens, at) == "DOT" for at in range(item.start + 1, last, _CHAIN))
        if last == item.start or (chain and (last - item.start) % _CHAIN == 0):
            return self.tokens[last].text if kind_of(self.tokens, last) in {"VAR", "IDENTIFIER"} else self._text(item)
        return self._text(item)

    def _text(self, item: _Item | Call) -> str:
        first, last = self.tokens[item.start], self.tokens[item.end - 1]
        return " ".join(self.statement.text[first.start : last.end + 1].split())

    def _copy_rest(self, terms: list[tuple[int, int]]) -> tuple[str | Slice, ...] | None:
        """Return what follows FROM; None where a name could mean two things."""
        found: list[str | Slice] = []
        for name, word in (("HAVING", " WHERE "), ("WINDOW", " WINDOW "), ("QUALIFY", " QUALIFY ")):
            if name in self.sections:
                part = self._copy(*self._section(name))
                if part is None:
                    return None
                if name == "HAVING" and self._has_key(part):
                    start, end = self._section(name)
                    where = self.statement.place(self.tokens[start], self.tokens[end - 1])
                    hint = "Test keys in WHERE, and counts and sums in HAVING."
                    raise Unsupported("having", "This HAVING tests a group key.", hint=hint, place=where)
                found += [word, part]
        for at, (start, end) in enumerate(terms):
            first, last, _ = self._cut_direction((start, end))
            whole = Slice(self.tokens[start].start, self.tokens[end - 1].end + 1, ())
            part = whole if self._find_ordered(first, last) is not None else self._copy(start, end)
            if part is None or (last > first + 1 and self._is_unclear(first, last)):
                return None
            found += [", " if at else " ORDER BY ", part]
        if "LIMIT" in self.sections:
            token = self.tokens[self._section("LIMIT")[0]]
            is_number = token.token_type.name == "NUMBER"
            found += [" LIMIT ", token.text if is_number else Slice(token.start, token.end + 1, ())]
        return tuple(found)

    def _asks_for_large(self, start: int, end: int) -> bool:
        """Say whether a condition is true of all values above one of the measure that ranks."""
        if end <= start:
            return True
        if kind_of(self.tokens, start) == "L_PAREN" and find_closing(self.tokens, start) == end:
            return self._asks_for_large(start + 1, end - 1)
        kinds = {at: kind_of(self.tokens, at) for at in _list_outside(self.tokens, (start, end))}
        parts = split_at(self.tokens, (start, end), kinds={"AND"})
        if len(parts) > 1:
            return "BETWEEN" not in kinds.values() and all(self._asks_for_large(*part) for part in parts)
        for signs, is_left in (({"GT", "GTE"}, True), ({"LT", "LTE"}, False)):
            sides = split_at(self.tokens, (start, end), kinds=signs)
            if len(sides) == _SIDES:
                value, number = sides if is_left else reversed(sides)
                return self._is_number(*number) and self._rises(*value)
        return False

    def _is_number(self, start: int, end: int) -> bool:
        kinds = [kind_of(self.tokens, at) for at in range(start, end)]
        return kinds in (["NUMBER"], ["DASH", "NUMBER"])

    def _rises(self, start: int, end: int) -> bool:
        """Say whether an expression, or what an alias stands for, rises with the measure that ranks."""
        item = None if self._is_number(start, end) else self._find_ordered(start, end)
        found = find_direction(self.tokens, (start, end) if item is None else (item.start, item.end))
        return found is not None and found[1] and self._spell(found[0].start, found[0].end) == self.measures[0].words

    def _has_key(self, part: Slice) -> bool:
        return any(int(column) < len(self.keys) for _, _, column in part.replaced)

    def _is_unclear(self, start: int, end: int) -> bool:
        """Say whether a word is an alias of one thing and a key of another one."""
        aliases = self._list_aliases()
        names = {key.spelling[-1].text for key in self.keys if len(key.spelling) == 1}
        return any(ascii_lower(token.text) in aliases & names for token in self.tokens[start:end])

    def _list_aliases(self) -> set[str]:
        """Return the aliases that are not the name of the very column that they stand for."""
        return {
            ascii_lower(item.alias)
            for item in self.items
            if item.alias and ascii_lower(self.tokens[item.end - 1].text) != ascii_lower(item.alias)
        }

    def _copy(self, start: int, end: int) -> Slice | None:
        """Return tokens[start:end] for the SELECT around the private query; None where a name could mean two things."""
        replaced: list[tuple[int, int, str]] = []
        at = start
        while at < end:
            if is_subquery(self.tokens, at):
                close = find_closing(self.tokens, at)
                words = {ascii_lower(token.text) for token in self.tokens[at:close] if token.text}
                if words & self._list_aliases():
                    return None
                at = close
                continue
            width, column = self._match(at, start=start, end=end)
            if width:
                replaced.append((self.tokens[at].start, self.tokens[at + width - 1].end + 1, str(column)))
            at += width or 1
        return Slice(self.tokens[start].start, self.tokens[end - 1].end + 1, tuple(replaced))

    def _match(self, at: int, *, start: int, end: int) -> tuple[int, int]:
        """Return how many tokens from `at` on are a measure or key, and the column that it is; 0 tokens for none."""
        ended = self._find_ended(at)
        if ended is not None:
            return 1, len(self.keys) + self._find_number(ended.start, ended.end)
        for call in find_calls(self.tokens, (at, at + 1), limit=end):
            if call.start == at:
                return call.end - at, len(self.keys) + self._find_number(call.start, call.end)
        before = kind_of(self.tokens, at - 1) if at > start else ""
        found = [(width, key.at) for key in self.keys if (width := self._match_key(key, at, start=start, end=end))]
        longest = max((width for width, _ in found), default=0)
        best = {column for width, column in found if width == longest}
        if len(best) != 1 or before in {"DOT", "DCOLON", "ALIAS"}:
            return 0, 0
        return longest, best.pop()

    def _find_ended(self, at: int) -> _Item | None:
        """Return the measure whose alias is all that value_low or value_high is called with."""
        around = [kind_of(self.tokens, at - 1), kind_of(self.tokens, at + 1)]
        if around != ["L_PAREN", "R_PAREN"] or not is_word(self.tokens, at - 2, words=INTERVAL_ENDS):
            return None
        item = self._find_ordered(at, at + 1) if kind_of(self.tokens, at) != "NUMBER" else None
        return item if item is not None and self._is_measure(item) else None

    def _match_key(self, key: _Key, at: int, *, start: int, end: int) -> int:
        """Return how many tokens from `at` on are a key, where no operator beside it can take a part of it."""
        before = kind_of(self.tokens, at - 1) if at > start else ""
        if _is_column(key.spelling):
            width = 1
            while at + width + 1 < end and kind_of(self.tokens, at + width) == "DOT":
                width += _CHAIN
            after = kind_of(self.tokens, at + width) if at + width < end else ""
            is_unit = is_word(self.tokens, at - 2, words={"extract"}) and after == "FROM"
            if before in _NOT_A_COLUMN_AFTER or after in _NOT_A_COLUMN_BEFORE or is_unit:
                return 0
            return width if _is_same(self._spell(at, at + width), key.spelling) else 0
        width = len(key.spelling)
        if at + width > end or self._spell(at, at + width) != key.spelling:
            return 0
        after = kind_of(self.tokens, at + width) if at + width < end else ""
        if before in _AROUND_ANY[0] and after in _AROUND_ANY[1]:
            return width
        return width if self._is_closed(at, at + width) and after not in {"L_PAREN", "DOT"} else 0

    def _is_closed(self, start: int, end: int) -> bool:
        """Say whether tokens are one operand: a call, or in parentheses, with or without a cast."""
        opening = start + (kind_of(self.tokens, start) != "L_PAREN")
        if kind_of(self.tokens, opening) == "DCOLON":
            return end == opening + 2
        if kind_of(self.tokens, opening) != "L_PAREN":
            return False
        close = find_closing(self.tokens, opening)
        return close == end or (kind_of(self.tokens, close) == "DCOLON" and close + 2 == end)

    def _write_inner(self, shown: list[_Item], *, order: tuple[int | None, bool]) -> _Tokens:
        """Return the private query; `order` is the column that it is ordered by, and whether that falls."""
        found = _Tokens(self.tokens)
        found.copy(0, self.select + 1)
        columns = [(item.start, item.whole) for item in shown] + self.hidden
        columns += [(call.start, call.end) for call in self.calls]
        for at, span in enumerate(columns):
            found.add(*([("COMMA", ",")] if at else []))
            found.copy(*span)
            if at >= len(self.keys):
                found.add(("ALIAS", "AS"), ("IDENTIFIER", name_measure(at - len(self.keys) + 1)))
        self._copy_clauses(found, "FROM", "WHERE")
        for at, (start, end) in enumerate(self._split("GROUP_BY")):
            if at:
                found.add(("COMMA", ","))
            else:
                found.copy(start - 1, start)
            item = self._find_grouped(start, end) if kind_of(self.tokens, start) == "NUMBER" else None
            if item is None:
                found.copy(start, end)
            else:
                found.add(("NUMBER", str(shown.index(item) + 1)))
        column, falls = order
        if column is not None:
            number = column + 1 if column >= 0 else len(self.keys) + 1  # the measure that ranks is the first
            found.add(("ORDER_BY", "ORDER BY"), ("NUMBER", str(number)), *([("DESC", "DESC")] if falls else []))
        self._copy_clauses(found, "LIMIT", "OFFSET")
        return found

    def _copy_clauses(self, found: _Tokens, *names: str) -> None:
        for name in names:
            if name in self.sections:
                start, end = self._section(name)
                found.copy(start - 1, end)


@dataclass(slots=True)
class _Tokens:
    """Tokens of a query that is made of those of another one: `found` are all of them, `copied` the other one's."""

    tokens: list[Token]
    found: list[Token] = field(default_factory=list)
    copied: list[Token] = field(default_factory=list)

    def copy(self, start: int, end: int) -> None:
        """Add tokens of the other query."""
        self.found += self.tokens[start:end]
        self.copied += self.tokens[start:end]

    def add(self, *added: tuple[str, str]) -> None:
        """Add tokens of a type and text at the place of the last one."""
        from sqlglot import Token, TokenType

        for kind, text in added:
            beside = self.found[-1]
            self.found.append(Token(TokenType[kind], text, beside.line, beside.col, beside.start, beside.end))


def _is_column(spelling: Sequence[Spelling]) -> bool:
    return all(each.kind == ("DOT" if at % _CHAIN else "name") for at, each in enumerate(spelling)) and (
        len(spelling) % _CHAIN == 1
    )


def _is_same(one: Sequence[Spelling], other: Sequence[Spelling]) -> bool:
    """Say whether two expressions are written alike; a column may be written with its table or without."""
    if not (_is_column(one) and _is_column(other)):
        return tuple(one) == tuple(other)
    shorter = min(len(one), len(other))
    return tuple(one[-shorter:]) == tuple(other[-shorter:])


def _list_outside(tokens: list[Token], span: Span) -> Iterator[int]:
    """Yield the positions that are in no subquery."""
    at = span[0]
    while at < span[1]:
        if is_subquery(tokens, at):
            at = find_closing(tokens, at)
            continue
        yield at
        at += 1


def _read_block(statement: Statement, tokens: list[Token]) -> _Block | None:
    """Return the outermost SELECT with its clauses and items; None for one that has others, or DISTINCT."""
    depth, select = 0, -1
    starts: list[tuple[str, int]] = []
    for at, token in enumerate(tokens):
        kind = token.token_type.name
        depth += (kind in OPENINGS) - (kind in CLOSINGS)
        if depth:
            continue
        if kind in _SET_OPERATIONS:
            return None
        if kind == "SELECT":
            if select >= 0:
                return None
            select = at
        elif select >= 0 and kind in _SECTIONS and not (kind == "FROM" and kind_of(tokens, at - 1) == "DISTINCT"):
            starts.append((kind, at))
    names = [name for name, _ in starts]
    if select < 0 or names[:1] != ["FROM"] or sorted(set(names), key=_SECTIONS.index) != names:
        return None
    if kind_of(tokens, select + 1) in {"DISTINCT", "ALL"}:
        return None
    ends = [*(at for _, at in starts[1:]), len(tokens)]
    sections = {name: (at + 1, end) for (name, at), end in zip(starts, ends, strict=True)}
    items = [_read_item(tokens, part) for part in split_commas(tokens, (select + 1, starts[0][1]))]
    lists = [sections[name] for name in ("GROUP_BY", "ORDER_BY") if name in sections]
    terms = [(item.start, item.end) for item in items] + [term for each in lists for term in split_commas(tokens, each)]
    if any(start >= end for start, end in (*terms, *sections.values())):  # a comma too many
        return None
    return _Block(statement, tokens, select, sections, items)


def _read_item(tokens: list[Token], span: Span) -> _Item:
    """Return an item of the select list, with its alias, with AS or without."""
    start, end = span
    at = find_alias(tokens, span)
    alias = "" if at is None else tokens[at].text
    expression = end if at is None else at - (kind_of(tokens, at - 1) == "ALIAS")
    return _Item(start, expression, alias, end, list(find_calls(tokens, (start, expression))))
