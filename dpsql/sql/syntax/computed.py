"""A private SELECT that computes with its measures, split into a private query and a SELECT around it.

    SELECT article, COUNT(*) * 1.5 AS m FROM reads GROUP BY article ORDER BY m DESC LIMIT 3

    SELECT article, COUNT(*) AS "dpsql measure 1" FROM reads GROUP BY article ORDER BY "dpsql measure 1" DESC LIMIT 3
    SELECT released.article, released."dpsql measure 1" * 1.5 AS m FROM <the answer> AS released ORDER BY m DESC LIMIT 3

A measure that is computed with others is a column of its own beside the same measure alone: whether both are one
release is for `outer_columns.py` to say.

The private query consists of tokens of the statement, so that errors point into its text. It has the group keys and the
measures, the one that ranks before the others. All else, with HAVING, ORDER BY and LIMIT, is copied into the SELECT
around it, in which a qualified column is in place of each measure and each key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dpsql.dialects import quote_name
from dpsql.errors import Unsupported
from dpsql.sql.allow_list import INTERVAL_ENDS
from dpsql.sql.ir.measures import SPREADS
from dpsql.sql.lexer import ScannedStatement, ascii_lower
from dpsql.sql.syntax.block import (
    AGGREGATES,
    QUANTILES,
    SET_OPERATIONS,
    Block,
    CallNodes,
    Nodes,
    Parts,
    Select,
    Slice,
    Spelling,
    call_at,
    cut,
    find_calls,
    find_place,
    first_token,
    flatten,
    kind_of,
    kinds_of,
    last_token,
    make_token,
    name_of,
    nest,
    read_text,
    spell,
    split,
    walk,
    word_of,
)
from dpsql.sql.syntax.select_list import (
    Direction,
    OpenBounds,
    RankedWindow,
    Total,
    WindowNodes,
    cut_alias,
    cut_direction,
    find_alias,
    find_direction,
    is_decided,
    is_whole,
    list_comparisons,
    list_windows,
    unwrap,
)

if TYPE_CHECKING:
    from sqlglot import Token

RELEASED = '"dpsql released"'
_NAME = "dpsql measure "
_AS_TEXT = "="  # before a text that stands in place of another one
_RANKING = frozenset(["count", "count_if", "countif", "sum"])
_HOISTED = _RANKING | {"avg"} | SPREADS.keys() | QUANTILES
_CLAUSES = ("FROM", "WHERE", "GROUP_BY", "HAVING", "WINDOW", "QUALIFY", "ORDER_BY", "LIMIT", "OFFSET")
_LITERALS = frozenset(["NUMBER", "STRING", "NULL", "TRUE", "FALSE"])
_NOT_A_COLUMN_AFTER = frozenset(
    ["DOT", "DCOLON", "ALIAS", "R_PAREN", "R_BRACKET", "END", "IDENTIFIER", "VAR", "NUMBER", "STRING"]
)
_NOT_A_COLUMN_BEFORE = frozenset(["L_PAREN", "STRING"])
_BEFORE_ANY = frozenset(["", "L_PAREN", "COMMA", "ORDER_BY", "PARTITION_BY"])
_AFTER_ANY = frozenset(["", "R_PAREN", "COMMA", "ASC", "DESC", "ORDER_BY"])


def name_measure(number: int) -> str:
    """Return the name of a measure in the private query, numbered from 1."""
    return f"{_NAME}{number}"


def is_measure_name(name: str) -> bool:
    """Say whether a column of the private query, or an end of its interval, is a measure that is computed with."""
    return name.startswith(_NAME)


@dataclass(slots=True)
class SelectItem:
    """An item of the select list: its expression, its alias, which is "" without one, and both together."""

    nodes: Nodes
    alias: str
    whole: Nodes
    calls: list[CallNodes]
    is_key: bool = False

    @property
    def is_measure(self) -> bool:
        """Whether a measure is all of it."""
        return len(self.calls) == 1 and is_whole(self.calls[0], self.nodes)


@dataclass(frozen=True, slots=True)
class GroupKey:
    """A group key: its words, the number of its nodes, and the item of the private query that it is."""

    spelling: tuple[Spelling, ...]
    width: int
    at: int


@dataclass(frozen=True, slots=True)
class _Measure:
    """A measure: its words, and those of all measures in its expression, if there are others."""

    words: tuple[Spelling, ...]
    together: frozenset[tuple[Spelling, ...]] = frozenset()


@dataclass(frozen=True, slots=True)
class _Order:
    """What a term of ORDER BY follows: a key or a measure, by its number from 0, or neither; and whether it falls."""

    key: int | None
    measure: int | None
    falls: bool


@dataclass(frozen=True, slots=True)
class Level:
    """Nodes of an expression, with the types of the tokens around them, and the word before their parentheses."""

    nodes: Nodes
    before: str = ""
    after: str = ""
    called: str = ""

    def before_node(self, at: int) -> str:
        """Return the type of the token before a node."""
        if at == 0:
            return self.before
        kind = kind_of(self.nodes, at - 1)
        return f"R{kind[1:]}" if isinstance(self.nodes[at - 1], Block) else kind

    def after_nodes(self, end: int) -> str:
        """Return the type of the token behind the nodes up to `end`."""
        return self.after if end >= len(self.nodes) else kind_of(self.nodes, end)


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
            # A number is a column that is passed on as it is; other parts are texts with columns in them.
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

    def without_order(self) -> ComputedSelect:
        """Return the same without ORDER BY and LIMIT, which are those of more rows."""
        ends = (at for at, part in enumerate(self.rest) if part in {" ORDER BY ", " LIMIT "})
        return replace(self, rest=self.rest[: next(ends, len(self.rest))])


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


def _qualify(column: str) -> str:
    return f" {RELEASED}.{quote_name(column)} "


def _refer(part: str | Slice, refers: Mapping[int, str]) -> str | Slice:
    """Return a part of the SELECT with the columns that it refers to by number, and literals that were put in."""
    if isinstance(part, str):
        return part
    return Slice(
        part.start,
        part.end,
        tuple(
            # "2" is the column number 2 of the private query, "=0" the literal 0.
            (start, end, f" {at[1:]} " if at.startswith(_AS_TEXT) else refers[int(at)])
            for start, end, at in part.replaced
        ),
    )


def split_measures(statement: ScannedStatement, tokens: list[Token]) -> ComputedSelect | None:
    """Return the parts of a SELECT that computes with measures, without its clause; None for any other."""
    reader = read_select(statement, tokens)
    return None if reader is None else reader.split()


def read_ranking(statement: ScannedStatement, tokens: list[Token]) -> Ranking | None:
    """Return the columns of a SELECT with measures, None for one that is read otherwise."""
    reader = read_select(statement, tokens)
    return None if reader is None else reader.rank()


@dataclass(slots=True)
class SelectReader:
    """The outermost SELECT of a statement, behind the nodes of its `head`, while its measures and keys are found."""

    statement: ScannedStatement
    head: Nodes
    select: Select
    items: list[SelectItem]
    measures: list[_Measure] = field(default_factory=list)
    found: dict[int, _Measure] = field(default_factory=dict)  # by where each of their calls starts
    calls: list[CallNodes] = field(default_factory=list)  # where they stand
    keys: list[GroupKey] = field(default_factory=list)
    hidden: list[Nodes] = field(default_factory=list)  # keys that are not selected

    def split(self) -> ComputedSelect | None:
        """Return the parts of a SELECT that computes with measures; None for any other."""
        every = self._list_calls()
        if every is None or not self._find_keys():
            return None
        for call in every:
            measure = self.found[first_token(call.nodes).start]
            if measure not in self.measures:
                self.measures.append(measure)
                self.calls.append(call)
        outside = [item for item in self.items if not item.is_key and not item.is_measure]
        terms = self._terms("ORDER_BY")
        if not self.measures or not (outside or self.hidden or self.select.has("HAVING", "WINDOW", "QUALIFY") or terms):
            return None
        shown = [item for item in self.items if item.is_key]
        self._note_keys([*(item.nodes for item in shown), *self.hidden])
        orders = [self._find_order(term) for term in terms]
        ranks = next((order.measure for order in orders if order.measure is not None), None)
        if ranks is not None:  # the measure that ranks stands before the others
            self.calls.insert(0, self.calls.pop(ranks))
            self.measures.insert(0, self.measures.pop(ranks))
        order = orders[0] if orders else _Order(None, None, falls=False)
        items, rest = self._copy_items(shown), self._copy_rest(terms)
        if items is None or rest is None:
            return None
        inner = self._write_inner(shown, order=order)
        ranked = self._find_ranked()
        return ComputedSelect(
            tokens=inner.found,
            copied=inner.copied,
            number_of_keys=len(self.keys),
            number_of_measures=len(self.measures),
            items=items,
            rest=rest,
            is_other_order=bool(terms) and order.key is None and order.measure is None and self.select.has("LIMIT"),
            tests_others=not self._asks_for_large(self.select.clause("HAVING")),
            words=tuple(flatten(self.select.nodes)),
            windows=tuple(self._list_windows()),
            ranked=next((cut(call.nodes) for call in self.calls if self.spell(call.nodes) == ranked), None),
            inner=tuple(self._write_source(shown)),
            order=self._find_computed_order(terms[0]) if terms else None,
        )

    def rank(self) -> Ranking | None:
        """Return the columns where the SELECT computes nothing."""
        every = self._list_calls()
        if every is None or not self._find_keys():
            return None
        shown = [item for item in self.items if item.is_key]
        measured = [item for item in self.items if item.is_measure]
        if len(shown) + len(measured) < len(self.items):
            return None
        self.calls = every
        for call in every:
            measure = _Measure(self.spell(call.nodes))
            self.measures += [] if measure in self.measures else [measure]
        self._note_keys([item.nodes for item in shown])
        orders = [self._find_order(term) for term in self._terms("ORDER_BY")]
        first = next((order.measure for order in orders if order.measure is not None), None)
        ranked = self._find_ranked() if first is None else self.measures[first].words
        ranks = next((item for item in measured if self.spell(item.nodes) == ranked), None)
        order = self.select.section("ORDER_BY")
        names = {id(item): ascii_lower(self.name_item(item)) for item in self.items}
        return Ranking(
            keys=tuple(names[id(item)] for item in shown),
            totals={names[id(item)]: tuple(self._write_total(item.calls[0], shown)) for item in measured},
            ranks="" if ranks is None else names[id(ranks)],
            ranked=None if ranks is None else cut(ranks.nodes),
            order=cut(order) if order else None,
        )

    def spell(self, nodes: Nodes) -> tuple[Spelling, ...]:
        """Return nodes as they compare with others."""
        return spell(self.statement, nodes)

    def _terms(self, kind: str) -> list[Nodes]:
        return split(self.select.clause(kind)) if self.select.has(kind) else []

    def is_same(self, nodes: Nodes, spelling: Sequence[Spelling]) -> bool:
        """Say whether an expression is written as another one is spelled."""
        return is_same(self.spell(nodes), spelling)

    def name_item(self, item: SelectItem) -> str:
        """Return the alias of an item, or the column that it is, or its text as written."""
        if item.alias:
            return item.alias
        kinds = kinds_of(item.nodes)
        is_column = kinds[1::2] == ["DOT"] * (len(kinds) // 2) and kinds[-1] in {"VAR", "IDENTIFIER"}
        if is_column and len(kinds) % 2 == 1:
            return last_token(item.nodes).text
        return read_text(self.statement, item.nodes)

    def _note_keys(self, keys: Sequence[Nodes]) -> None:
        self.keys = [GroupKey(self.spell(nodes), len(nodes), at) for at, nodes in enumerate(keys)]

    def _list_calls(self) -> list[CallNodes] | None:
        """Return the measures of all clauses, in their order; None where an aggregate is no measure.

        Those of one expression are noted, each with those that it is computed with.
        """
        every: list[CallNodes] = []
        for nodes in [
            *(item.nodes for item in self.items),
            *split(self.select.clause("HAVING"), {"AND"}),
            *(self.select.clause(kind) for kind in ("WINDOW", "QUALIFY")),
            *self._terms("ORDER_BY"),
        ]:
            calls = find_calls(nodes)
            words = [self.spell(call.nodes) for call in calls]
            together = frozenset(words) if len(set(words)) > 1 else frozenset[tuple[Spelling, ...]]()
            for call, each in zip(calls, words, strict=True):
                nested = any(
                    name_of(beside, at) in AGGREGATES and kind_of(beside, at + 1) == "L_PAREN"
                    for beside, at in walk(call.nodes[1:])
                )
                if nested or call.is_qualified or word_of(call.nodes, 0) not in _HOISTED:
                    return None
                self.found[first_token(call.nodes).start] = _Measure(each, together)
            every += calls
        return every

    def _find_number(self, call: CallNodes) -> int:
        """Return the number, from 0, of the measure that a call is, or of the same one beside it."""
        words = self.spell(call.nodes)
        measure = self.found.get(first_token(call.nodes).start, _Measure(words))
        if measure in self.measures:
            return self.measures.index(measure)
        return [each.words for each in self.measures].index(words)

    def _find_keys(self) -> bool:
        """Mark the items that are group keys, and list the keys that are no item; return whether all can be read."""
        plain = list[SelectItem]()
        for item in self.items:
            # of a window, or of the end of an interval of something that another item computes
            has_end = any(ascii_lower(token.text) in INTERVAL_ENDS for token in flatten(item.nodes))
            if not item.calls and not has_end and not any(list_windows(item.nodes)):
                plain.append(item)
        group = self._terms("GROUP_BY")
        if not group or (len(group) == 1 and kind_of(group[0], 0) == "ALL"):
            for item in plain:
                item.is_key = is_possible_key(item.nodes) if group else has_names(item.nodes)
            return True
        for nodes in group:
            grouped = self.find_grouped(nodes)
            if name_of(nodes, 0) in {"rollup", "cube", "grouping"} or (grouped is not None and grouped not in plain):
                return False
            if grouped is not None:
                grouped.is_key = True
            elif kind_of(nodes, 0) == "NUMBER":
                return False
            else:
                self.hidden.append(nodes)
        return True

    def find_grouped(self, nodes: Nodes) -> SelectItem | None:
        """Return the item that an element of GROUP BY means: a position, the same words, or an alias."""
        if kinds_of(nodes) == ["NUMBER"]:
            return self.find_ordered(nodes)
        wanted = self.spell(nodes)
        same = [item for item in self.items if is_same(self.spell(item.nodes), wanted)]
        if not same and len(nodes) == 1 and name_of(nodes, 0):
            same = [item for item in self.items if item.alias and ascii_lower(item.alias) == wanted[0].text]
        return same[0] if same else None

    def find_ordered(self, nodes: Nodes) -> SelectItem | None:
        """Return the item that a term of ORDER BY names, by its position or alias."""
        name = name_of(nodes, 0)
        if len(nodes) != 1 or not name:
            return None
        if kind_of(nodes, 0) == "ALL":  # the first of them decides
            return self.items[0]
        if kind_of(nodes, 0) == "NUMBER":
            position = int(name) if re.fullmatch("[0-9]{1,4}", name) else 0
            return self.items[position - 1] if 0 < position <= len(self.items) else None
        return next((item for item in self.items if item.alias and ascii_lower(item.alias) == name), None)

    def _find_named(self, nodes: Nodes) -> SelectItem | None:
        """Return the item whose alias an expression is."""
        return None if kind_of(nodes, 0) == "NUMBER" else self.find_ordered(nodes)

    def _find_key(self, nodes: Nodes) -> int | None:
        """Return the number of the key that is written like an expression."""
        wanted = self.spell(nodes)
        return next((key.at for key in self.keys if is_same(key.spelling, wanted)), None)

    def _find_order(self, term: Nodes) -> _Order:
        """Return the key or measure that a term of ORDER BY follows."""
        nodes, falls = cut_direction(term)
        item = self.find_ordered(nodes)
        nodes = nodes if item is None else item.nodes
        key = self._find_key(nodes)
        if key is not None:
            return _Order(key, None, falls)
        found = find_direction(nodes)
        if found is None:
            return _Order(None, None, falls)
        # ORDER BY ROW_NUMBER() OVER (ORDER BY n DESC) is the order of n DESC: the term ascends, and falls with n.
        return _Order(None, self._find_number(found[0]), falls == found[1])

    def _find_ranked(self) -> tuple[Spelling, ...] | None:
        """Return the measure that ranks: the first that is no average, spread or quantile."""
        return next((each.words for each in self.measures if each.words[0].text in _RANKING), None)

    def _follow(self, nodes: Nodes) -> Direction | None:
        """Return how an expression, or what an alias stands for, follows the measure that ranks."""
        item = self._find_named(nodes)
        nodes = unwrap(nodes if item is None else item.nodes)
        found = find_direction(nodes)
        if found is None or self.spell(found[0].nodes) != self._find_ranked():
            return None
        return Direction(found[1], is_exact=is_whole(found[0], nodes))

    def _asks_for_large(self, condition: Nodes) -> bool:
        """Say whether a condition is true of all values above one of the measure that ranks."""
        waiting = [condition] if condition else []
        while waiting:
            nodes = unwrap(waiting.pop())
            parts = split(nodes, {"AND"})
            if len(parts) > 1:
                if any(
                    kind_of(beside, at) == "BETWEEN" for beside, at in walk(nodes, hidden=lambda block: block.is_query)
                ):
                    return False
                waiting += parts
                continue
            is_large = False
            for value, number in list_comparisons(nodes):
                # an expression, or what an alias stands for, rises with the measure that ranks
                item = None if _is_number(value) else self.find_ordered(value)
                followed = find_direction(value if item is None else item.nodes)
                rises = followed is not None and followed[1] and self.spell(followed[0].nodes) == self.measures[0].words
                is_large = is_large or (_is_number(number) and rises)
            if not is_large:
                return False
        return True

    def _list_windows(self) -> Iterator[RankedWindow]:
        """Yield the windows, and what the groups that rank first decide of them."""
        places = [(item.nodes, item.alias) for item in self.items]
        places += [(self.select.clause(kind), "") for kind in ("HAVING", "QUALIFY", "ORDER_BY")]
        for nodes, alias in places:
            for window in list_windows(nodes, definitions=self.select.clause("WINDOW")):
                is_alone = len(window.nodes) == len(nodes) and window.nodes[0] is nodes[0]
                partition = list[int | None]()  # the number of each key, None for what is no key
                for term in window.over.partition:
                    item = self._find_named(term)
                    partition.append(self._find_key(term if item is None else item.nodes))
                yield RankedWindow(
                    first=first_token(window.nodes),
                    last=last_token(window.nodes),
                    is_ranked=is_decided(window, follow=self._follow),
                    is_rank=window.is_rank,
                    partition=tuple(partition),
                    alias=ascii_lower(alias) if is_alone else "",
                    total=tuple(self._write_sum(window)),
                )

    def _find_computed_order(self, term: Nodes) -> Slice | None:
        """Return the first term of ORDER BY if it is a window, or computed from one, which falls with the measure."""
        nodes, falls = cut_direction(term)
        item = self.find_ordered(nodes)
        has_window = any(list_windows(nodes if item is None else item.nodes))
        followed = self._follow(nodes)
        return cut(term) if has_window and falls and followed is not None and followed.rises else None

    def _write_sum(self, window: WindowNodes) -> Iterator[str | Slice | OpenBounds]:
        """Yield the private query for SUM(measure) OVER (), nothing for another window."""
        if window.name != "sum" or len(window.arguments) != 1 or not window.is_of_all or self.select.has("HAVING"):
            return
        (argument,) = window.arguments
        call = next((call for call in find_calls(argument) if is_whole(call, argument)), None)
        item = self.find_ordered(argument) if call is None else None
        if item is not None and item.is_measure:
            call = item.calls[0]
        if call is not None:
            yield from self._write_total(call, [item for item in self.items if item.is_key])

    def _source(self) -> Slice:
        """Return FROM and WHERE."""
        return cut((*self.select.section("FROM"), *self.select.section("WHERE")))

    def _write_total(self, call: CallNodes, shown: list[SelectItem]) -> Iterator[str | Slice | OpenBounds]:
        """Yield the private query for the sum of a measure over all groups, nothing where it is none.

        The numbers of units of all groups add up to the number of pairs of a unit and a group. A measure has a place
        for its bounds, also if it has bounds of its own.
        """
        called, kinds = call.called, kinds_of(call.arguments)
        if kinds[:1] == ["DISTINCT"]:
            if len(call.nodes) == len(("COUNT", "(...)")) and call.arguments[1:]:
                keys = [*(item.nodes for item in shown), *self.hidden]
                yield from ("SELECT COUNT(*", OpenBounds(), ") FROM (SELECT DISTINCT ", cut(call.arguments[1:]))
                for number, nodes in enumerate(keys, 1):
                    yield from (", ", cut(nodes), f" AS key_{number}")
                yield from (" ", self._source(), ") AS pairs")
        elif call.name in _RANKING:
            yield "SELECT "
            inside = call.arguments[: kinds.index("FARROW") - 2] if "FARROW" in kinds else call.arguments
            last = last_token(inside) if inside else called.opening
            if last is not None and called.closing is not None:
                yield Slice(first_token(call.nodes).start, last.end + 1)
                yield OpenBounds(read_text(self.statement, call.nodes[:2]))
                yield Slice(called.closing.start, last_token(call.nodes).end + 1)
            yield from (" ", self._source())

    def _write_source(self, shown: list[SelectItem]) -> Iterator[str | Slice]:
        """Yield a SELECT of keys and measures, up to its WHERE."""
        columns = [(nodes, "") for nodes in (*(item.whole for item in shown), *self.hidden)]
        columns += [(call.nodes, f" AS measure_{number}") for number, call in enumerate(self.calls, 1)]
        for at, (nodes, name) in enumerate(columns):
            yield from filter(None, (", " if at else "SELECT ", cut(nodes), name))
        yield from (" ", self._source())

    def _copy_items(
        self, shown: list[SelectItem]
    ) -> tuple[tuple[tuple[str | Slice, ...] | int, str | None], ...] | None:
        found: list[tuple[tuple[str | Slice, ...] | int, str | None]] = []
        for item in self.items:
            if item.is_key:
                found.append((shown.index(item), None))
                continue
            part = self._copy(item.nodes)
            if part is None:
                return None
            name = self.name_item(item)
            # All of an item that is a measure has been replaced by the number of a column: it is passed on as that
            # column.
            found.append((int(part.replaced[0][2]) if item.is_measure else (part,), name))
        return tuple(found)

    def _copy_rest(self, terms: list[Nodes]) -> tuple[str | Slice, ...] | None:
        """Return what follows FROM; None where a name could mean two things."""
        found: list[str | Slice] = []
        for kind, word in (("HAVING", " WHERE "), ("WINDOW", " WINDOW "), ("QUALIFY", " QUALIFY ")):
            nodes = self.select.clause(kind)
            if not nodes:
                continue
            part = self._copy(nodes)
            if part is None:
                return None
            if kind == "HAVING" and any(
                column.isdigit() and int(column) < len(self.keys) for _, _, column in part.replaced
            ):
                where = find_place(self.statement, nodes)
                hint = "Test keys in WHERE, and counts and sums in HAVING."
                raise Unsupported("having", "This HAVING tests a group key.", hint=hint, place=where)
            found += [word, part]
        for at, term in enumerate(terms):
            nodes, _ = cut_direction(term)
            part = cut(term) if self.find_ordered(nodes) is not None else self._copy(term)
            names = {key.spelling[-1].text for key in self.keys if len(key.spelling) == 1} & self._list_aliases()
            is_unclear = len(nodes) > 1 and any(ascii_lower(token.text) in names for token in flatten(nodes))
            if part is None or is_unclear:  # a word is an alias of one thing and a key of another one
                return None
            found += [", " if at else " ORDER BY ", part]
        return (*found, *self.copy_limit())

    def copy_limit(self) -> Parts:
        """Return LIMIT and its number or parameter; nothing where there is none."""
        limit = self.select.clause("LIMIT")[:1]
        return (" LIMIT ", first_token(limit).text if kinds_of(limit) == ["NUMBER"] else cut(limit)) if limit else ()

    def _list_aliases(self) -> set[str]:
        """Return the aliases that are not the name of the very column that they stand for."""
        return {
            ascii_lower(item.alias)
            for item in self.items
            if item.alias and name_of(item.nodes, len(item.nodes) - 1) != ascii_lower(item.alias)
        }

    def _copy(self, nodes: Nodes) -> Slice | None:
        """Return nodes for the SELECT around the private query; None where a name could mean two things."""
        replaced: list[tuple[int, int, str]] = []
        waiting = [(Level(nodes), 0)]
        while waiting:
            level, at = waiting.pop()
            if at >= len(level.nodes):
                continue
            node = level.nodes[at]
            is_query = isinstance(node, Block) and node.is_query
            # In SELECT x AS n, (SELECT max(n) FROM t) the n inside is another one: a name there may mean either.
            if is_query and {ascii_lower(token.text) for token in flatten([node])} & self._list_aliases():
                return None
            width, column = (0, 0) if is_query else self._match(level, at)
            if width:
                part = level.nodes[at : at + width]
                replaced.append((first_token(part).start, last_token(part).end + 1, str(column)))
            elif not isinstance(node, Block) and self._is_made(node):
                replaced.append((node.start, node.end + 1, f"{_AS_TEXT}{node.text}"))
            waiting.append((level, at + (width or 1)))
            if isinstance(node, Block) and not width and not is_query:
                closing = f"R{node.kind[1:]}"
                waiting.append((Level(node.nodes, node.kind, closing, name_of(level.nodes, at - 1)), 0))
        return replace(cut(nodes), replaced=tuple(replaced))

    def _is_made(self, token: Token) -> bool:
        """Say whether a literal stands in place of other text, as NULL does for a key that is in no set."""
        is_literal = token.token_type.name in {"NULL", "NUMBER"}
        return is_literal and self.statement.text[token.start : token.end + 1] != token.text

    def _match(self, level: Level, at: int) -> tuple[int, int]:
        """Return how many nodes from one on are a measure or key, and the column that it is; 0 nodes for none."""
        ended = self._find_named(level.nodes) if level.called in INTERVAL_ENDS and level.before == "L_PAREN" else None
        if ended is not None and ended.is_measure:  # value_low(n)
            return 1, len(self.keys) + self._find_number(ended.calls[0])
        call = call_at(level.nodes, at)
        if call is not None:
            return len(call.nodes), len(self.keys) + self._find_number(call)
        found = [(width, key.at) for key in self.keys if (width := self.match_key(key, level, at=at))]
        longest = max((width for width, _ in found), default=0)
        best = {column for width, column in found if width == longest}
        if len(best) != 1 or level.before_node(at) in {"DOT", "DCOLON", "ALIAS"}:
            return 0, 0
        return longest, best.pop()

    def match_key(self, key: GroupKey, level: Level, *, at: int) -> int:
        """Return how many nodes from one on are a key, where no operator beside it can take a part of it."""
        nodes, before = level.nodes, level.before_node(at)
        if _is_column(key.spelling):
            end = at + 1
            while end + 1 < len(nodes) and kind_of(nodes, end) == "DOT":
                end += 2
            after = level.after_nodes(end)
            is_unit = level.called == "extract" and at == 0 and after == "FROM"
            if before in _NOT_A_COLUMN_AFTER or (end < len(nodes) and after in _NOT_A_COLUMN_BEFORE) or is_unit:
                return 0
            return end - at if is_same(self.spell(nodes[at:end]), key.spelling) else 0
        part = nodes[at : at + key.width]
        if len(part) < key.width or self.spell(part) != key.spelling:
            return 0
        after = level.after_nodes(at + key.width)
        # The key a + b is found in ROUND(a + b, 1), and not in c * a + b.
        if before in _BEFORE_ANY and after in _AFTER_ANY:
            return key.width
        return key.width if _is_closed(part) and after not in {"L_PAREN", "DOT"} else 0

    def _write_inner(self, shown: list[SelectItem], *, order: _Order) -> _Tokens:
        """Return the private query, in the order that the SELECT has."""
        found = _Tokens()
        found.copy((*self.head, self.select.nodes[0]))
        columns = [*(item.whole for item in shown), *self.hidden, *(call.nodes for call in self.calls)]
        for at, nodes in enumerate(columns):
            found.add(*([("COMMA", ",")] if at else []))
            found.copy(nodes)
            if at >= len(self.keys):
                found.add(("ALIAS", "AS"), ("IDENTIFIER", name_measure(at - len(self.keys) + 1)))
        found.copy((*self.select.section("FROM"), *self.select.section("WHERE")))
        for at, nodes in enumerate(self._terms("GROUP_BY")):
            if at:
                found.add(("COMMA", ","))
            else:
                found.copy(self.select.section("GROUP_BY")[:1])
            item = self.find_grouped(nodes) if kind_of(nodes, 0) == "NUMBER" else None
            if item is None:
                found.copy(nodes)
            else:
                found.add(("NUMBER", str(shown.index(item) + 1)))
        if order.key is not None or order.measure is not None:
            number = len(self.keys) if order.key is None else order.key  # the measure that ranks is the first
            found.add(("ORDER_BY", "ORDER BY"), ("NUMBER", str(number + 1)))
            found.add(*([("DESC", "DESC")] if order.falls else []))
        found.copy((*self.select.section("LIMIT"), *self.select.section("OFFSET")))
        return found


@dataclass(slots=True)
class _Tokens:
    """Tokens of a query that is made of those of another one: `found` are all of them, `copied` the other one's."""

    found: list[Token] = field(default_factory=list)
    copied: list[Token] = field(default_factory=list)

    def copy(self, nodes: Nodes) -> None:
        """Add nodes of the other query."""
        tokens = flatten(nodes)
        self.found += tokens
        self.copied += tokens

    def add(self, *added: tuple[str, str]) -> None:
        """Add tokens of a type and text at the place of the last one."""
        for kind, text in added:
            self.found.append(make_token(kind, text, beside=self.found[-1]))


def _is_number(nodes: Nodes) -> bool:
    return kinds_of(nodes) in (["NUMBER"], ["DASH", "NUMBER"])


def _is_closed(nodes: Nodes) -> bool:
    """Say whether nodes are one operand: a call, or in parentheses, with or without a cast."""
    opening = int(kind_of(nodes, 0) != "L_PAREN")
    kinds = kinds_of(nodes)[opening:]
    is_cast = kinds[-2:-1] == ["DCOLON"]
    return (kinds[:1] == ["L_PAREN"] and len(kinds) == 1 + 2 * is_cast) or (is_cast and len(kinds) == len(("::", "x")))


def _is_column(spelling: Sequence[Spelling]) -> bool:
    return len(spelling) % 2 == 1 and all(
        each.kind == ("DOT" if at % 2 else "name") for at, each in enumerate(spelling)
    )


def is_possible_key(nodes: Nodes) -> bool:
    """Say whether an item can be a key of GROUP BY ALL: it is no literal."""
    *sign, kind = kinds_of(nodes)
    return kind not in _LITERALS or sign not in ([], ["DASH"])


def has_names(nodes: Nodes) -> bool:
    """Say whether an expression has a word that may be a column, and is therefore no constant."""
    return any(
        kind_of(beside, at) in {"VAR", "IDENTIFIER"} and kind_of(beside, at + 1) != "L_PAREN"
        for beside, at in walk(nodes)
    )


def is_same(one: Sequence[Spelling], other: Sequence[Spelling]) -> bool:
    """Say whether two expressions are written alike; a column may be written with its table or without."""
    if not (_is_column(one) and _is_column(other)):
        return tuple(one) == tuple(other)
    shorter = min(len(one), len(other))
    return tuple(one[-shorter:]) == tuple(other[-shorter:])


def read_select(statement: ScannedStatement, tokens: Sequence[Token]) -> SelectReader | None:
    """Return the outermost SELECT with its clauses and items; None for one that has others, or DISTINCT."""
    nodes = nest(tokens).nodes
    kinds = kinds_of(nodes)
    if kinds.count("SELECT") != 1 or not SET_OPERATIONS.isdisjoint(kinds):
        return None
    start = kinds.index("SELECT")
    select = Select(nodes[start:])
    names = [kind for kind, _ in select.clauses[1:]]
    if names[:1] != ["FROM"] or sorted(set(names), key=_CLAUSES.index) != names:
        return None
    if kind_of(nodes, start + 1) in {"DISTINCT", "ALL"}:
        return None
    lists = [split(select.clause(kind)) for kind in ("GROUP_BY", "ORDER_BY") if select.has(kind)]
    terms = [*select.items, *(term for each in lists for term in each), *(select.clause(kind) for kind in names)]
    if not all(terms):  # a comma too many
        return None
    items = list[SelectItem]()
    for item in select.items:
        alias, expression = find_alias(item), cut_alias(item)
        name = flatten(item[alias : alias + 1])[0].text if alias is not None else ""
        items.append(SelectItem(expression, name, item, find_calls(expression)))
    return SelectReader(statement, nodes[:start], select, items)
