"""ROLLUP, CUBE and GROUPING SETS of a private SELECT: one SELECT for each set of keys, and their UNION ALL.

    SELECT country, age, COUNT(*) AS n FROM people GROUP BY ROLLUP (country, age) TOP 10 PRIVATE ORDER BY n DESC

    SELECT country, age, COUNT(*) AS n FROM people GROUP BY country, age TOP 10 PRIVATE
    SELECT country, NULL AS age, COUNT(*) AS n FROM people GROUP BY country TOP 10 PRIVATE
    SELECT NULL AS country, NULL AS age, COUNT(*) AS n FROM people PRIVATE

Each is a private query of its own, with the same release, price and stored answer as if it were written alone. A key
that is not in a set is NULL, but not in the arguments of an aggregate, where it is the column. GROUPING(x) is a number
that the text decides: a bit for each argument, 1 where it is not in the set, the last one the lowest.

ORDER BY and LIMIT are those of all rows. A term that is no column of the answer becomes a hidden one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, product
from typing import TYPE_CHECKING

from dpsql.dialects import quote_name
from dpsql.errors import Refusal, Unsupported
from dpsql.sql.allow_list import INTERVAL_ENDS
from dpsql.sql.lexer import ScannedStatement, ascii_lower
from dpsql.sql.syntax.block import (
    GROUPING_SETS,
    Block,
    Node,
    Nodes,
    Parts,
    Slice,
    call_at,
    find_place,
    first_token,
    flatten,
    join,
    kind_of,
    kinds_of,
    last_token,
    make_token,
    name_of,
    parentheses_at,
    split,
    word_of,
)
from dpsql.sql.syntax.computed import GroupKey, Level, SelectReader, has_names, read_select
from dpsql.sql.syntax.select_list import cut_direction, list_windows, unwrap

if TYPE_CHECKING:
    from sqlglot import Token

MAX_SETS = 32
_NUMBERS = frozenset(["grouping", "grouping_id"])
_HIDDEN = "dpsql order "
_UNION = "dpsql sets"


@dataclass(frozen=True, slots=True)
class GroupingSet:
    """The tokens of the SELECT of one set, without its clause; one without keys `is_total`."""

    tokens: list[Token]
    is_total: bool


@dataclass(frozen=True, slots=True)
class GroupingSets:
    """The SELECTs of a statement with grouping sets, and ORDER BY and LIMIT of all their rows."""

    sets: tuple[GroupingSet, ...]
    ending: Parts

    def write(self, selects: Sequence[tuple[Parts, Sequence[str]]]) -> Parts:
        """Return the UNION ALL of the SELECTs of the sets, each given with its columns."""
        columns = [quote_name(name) for name in selects[0][1] if not name.startswith(_HIDDEN)]
        found: list[str | Slice] = ["SELECT ", ", ".join(columns), " FROM ("]
        for at, (parts, _) in enumerate(selects):
            found += [*([" UNION ALL "] if at else []), "(", *parts, ")"]
        return (*found, f") AS {quote_name(_UNION)}", *self.ending)


def expand_grouping_sets(statement: ScannedStatement, tokens: list[Token]) -> GroupingSets | None:
    """Return the SELECTs for the grouping sets of a SELECT without its clause; None where its GROUP BY has none.

    Raises `Unsupported` and `Refusal` for what has no meaning for each set alone.
    """
    reader = read_select(statement, tokens)
    group = () if reader is None else reader.select.clause("GROUP_BY")
    if reader is None or GROUPING_SETS.isdisjoint(kinds_of(group)):
        return None
    return _Expansion(statement, reader).expand(group)


@dataclass(frozen=True, slots=True)
class _Expansion:
    """The outermost SELECT of a statement while its grouping sets are expanded."""

    statement: ScannedStatement
    reader: SelectReader

    def expand(self, group: Nodes) -> GroupingSets:
        """Return a SELECT for each grouping set of GROUP BY."""
        select = self.reader.select
        place = find_place(self.statement, group)
        has_windows = any(any(list_windows(item.nodes)) for item in self.reader.items)
        if select.has("WINDOW", "QUALIFY") or has_windows:
            reason = "A window beside ROLLUP, CUBE and GROUPING SETS would be computed from the rows of all sets."
            hint = "Leave it out, or write it in a SELECT around this one, over its released rows."
            raise Unsupported("construct", reason, hint=hint, place=place)
        calls = [call for item in self.reader.items for call in item.calls if call.name not in _NUMBERS]
        if not calls:
            reason = "ROLLUP, CUBE and GROUPING SETS have no count or sum to release: a total has no names."
            hint = "Select COUNT(*) too, or COUNT(DISTINCT ...) of the privacy unit."
            raise Unsupported("construct", reason, hint=hint, place=place)
        sets = [tuple(map(self._resolve, each)) for each in _list_sets(group)]
        if len(sets) > MAX_SETS:
            reason = f"These are {len(sets):,} grouping sets; {MAX_SETS} are the most, as each is a private query."
            hint = "Write those that you need: GROUPING SETS ((a, b), (a), ())."
            raise Refusal("too-large", reason, hint=hint, place=place)
        keys = list[Nodes]()
        for key in chain.from_iterable(sets):
            keys += [] if self._is_in(key, keys) else [key]
        self._check_items(keys)
        ordered = list(self._order_columns())
        extra = [(nodes, name) for nodes, name, is_hidden, _ in ordered if is_hidden]
        written = tuple(self._write(each, keys, extra=extra) for each in sets)
        return GroupingSets(written, tuple(self._write_ending(ordered)))

    def _check_items(self, keys: Sequence[Nodes]) -> None:
        """Refuse an item that is neither computed from keys nor from measures."""
        spelled = [GroupKey(self.reader.spell(key), len(key), at) for at, key in enumerate(keys)]
        rewriter = _Rewriter(self.reader, spelled, [key.spelling for key in spelled])
        for item in self.reader.items:
            is_measured = any(call.name not in _NUMBERS for call in item.calls)
            has_end = any(ascii_lower(token.text) in INTERVAL_ENDS for token in flatten(item.nodes))
            if not (is_measured or has_end) and has_names(rewriter.rewrite(item.nodes)):
                place = find_place(self.statement, item.nodes)
                reason, hint = "This is neither a group key nor in a count or sum.", "Group by it, or leave it out."
                raise Refusal("not-a-key", reason, hint=hint, place=place)

    def _resolve(self, key: Nodes) -> Nodes:
        """Return the expression of a key, which may be written as a position or an alias."""
        grouped = self.reader.find_grouped(key)
        if grouped is None and kind_of(key, 0) == "NUMBER":
            place = find_place(self.statement, key)
            raise Refusal("keys", "There is no such column to group by.", hint="Name the key.", place=place)
        return key if grouped is None else grouped.nodes

    def _is_in(self, key: Nodes, keys: Sequence[Nodes]) -> bool:
        wanted = self.reader.spell(key)
        return any(self.reader.spell(each) == wanted for each in keys)

    def _order_columns(self) -> Iterator[tuple[Nodes, str, bool, Nodes]]:
        """Yield each term of ORDER BY: its expression, the column that has it, whether that is hidden, and the rest."""
        terms = split(self.reader.select.clause("ORDER_BY")) if self.reader.select.has("ORDER_BY") else []
        for number, term in enumerate(terms, 1):
            nodes, _ = cut_direction(term)
            item = None if kind_of(nodes, 0) == "ALL" else self.reader.find_ordered(nodes)
            if item is None and kind_of(nodes, 0) != "ALL":
                wanted = self.reader.spell(nodes)
                same = (each for each in self.reader.items if self.reader.is_same(each.nodes, wanted))
                item = next(same, None)
            rest = term[len(nodes) :]
            if kind_of(nodes, 0) == "ALL":
                yield nodes, "", False, rest
            elif item is not None:
                yield item.nodes, self.reader.name_item(item), False, rest
            else:
                yield nodes, f"{_HIDDEN}{number}", True, rest

    def _write_ending(self, ordered: Sequence[tuple[Nodes, str, bool, Nodes]]) -> Iterator[str | Slice]:
        """Yield ORDER BY and LIMIT of all rows."""
        for at, (_, name, _, rest) in enumerate(ordered):
            words = " ".join(token.text for token in flatten(rest))
            yield f"{', ' if at else ' ORDER BY '}{quote_name(name) if name else 'ALL'} {words}"
        yield from self.reader.copy_limit()

    def _write(
        self, keys: Sequence[Nodes], every: Sequence[Nodes], *, extra: Sequence[tuple[Nodes, str]]
    ) -> GroupingSet:
        """Return the SELECT of one set of the keys."""
        select, written = self.reader.select, list[Node]([*self.reader.head, self.reader.select.nodes[0]])
        absent = [key for key in every if not self._is_in(key, keys)]
        known = [GroupKey(self.reader.spell(key), len(key), at) for at, key in enumerate(absent)]
        rewriter = _Rewriter(self.reader, known, tuple(map(self.reader.spell, every)))
        columns = [(item.nodes, item.whole, item.alias, self.reader.name_item(item)) for item in self.reader.items]
        columns += [(nodes, nodes, "", name) for nodes, name in extra]
        for at, (nodes, whole, alias, name) in enumerate(columns):
            beside = first_token(nodes)
            written += [make_token("COMMA", ",", beside=beside)] if at else []
            changed = rewriter.rewrite(nodes)
            is_same = changed is nodes and not (at >= len(self.reader.items))
            if is_same:
                written += whole
                continue
            named = make_token("IDENTIFIER", alias or name, beside=beside)
            written += [*changed, make_token("ALIAS", "AS", beside=beside), named]
        written += [*select.section("FROM"), *select.section("WHERE")]
        for at, key in enumerate(keys):
            sign = make_token("COMMA", ",", beside=first_token(key)) if at else first_token(select.section("GROUP_BY"))
            written += [sign, *key]
        having = select.section("HAVING")
        written += [having[0], *rewriter.rewrite(having[1:])] if having else []
        written += self._write_order(rewriter) if keys else []
        # A total is one row.
        written += select.section("LIMIT") if keys else ()
        written += select.section("OFFSET")
        return GroupingSet(flatten(written), is_total=not keys)

    def _write_order(self, rewriter: _Rewriter) -> list[Node]:
        """Return ORDER BY of one set, without the terms that are one value in all of its rows."""
        kept, section = list[Nodes](), self.reader.select.section("ORDER_BY")
        for term in split(section[1:]) if section else ():
            nodes, _ = cut_direction(term)
            item = self.reader.find_ordered(nodes)
            changed = rewriter.rewrite(nodes if item is None else item.nodes)
            if has_names(changed):
                kept.append(term if item is not None else (*changed, *term[len(nodes) :]))
        return [*section[:1], *join(kept)] if kept else []


@dataclass(frozen=True, slots=True)
class _Rewriter:
    """Writes NULL for the keys that are `absent` from a set, and a number for GROUPING of some of `every` key."""

    reader: SelectReader
    absent: Sequence[GroupKey]
    every: Sequence[tuple[object, ...]]

    def rewrite(self, nodes: Nodes) -> Nodes:
        """Return the nodes of an expression for the set; the same object where nothing changes."""
        return self._rewrite(Level(nodes))

    def _rewrite(self, level: Level) -> Nodes:
        found, at, is_changed = list[Node](), 0, False
        while at < len(level.nodes):
            node = level.nodes[at]
            call = call_at(level.nodes, at)
            width, changed = 1, list[Node]([node])
            if word_of(level.nodes, at) in _NUMBERS and kind_of(level.nodes, at + 1) == "L_PAREN":
                width, changed = 2, [self._number(level.nodes[at : at + 2])]
            elif call is not None:
                # SUM(age) adds the column age up, also in a set without the key age.
                width, changed = len(call.nodes), list(call.nodes)
            elif isinstance(node, Block) and not node.is_query:
                inside = Level(node.nodes, node.kind, f"R{node.kind[1:]}", name_of(level.nodes, at - 1))
                nodes = self._rewrite(inside)
                changed = [node if nodes is node.nodes else Block(node.opening, nodes, node.closing)]
            elif (longest := self._match(level, at)) > 0:
                width, changed = longest, [_make_literal("NULL", "NULL", over=level.nodes[at : at + longest])]
            is_changed |= tuple(map(id, changed)) != tuple(map(id, level.nodes[at : at + width]))
            found += changed
            at += width
        return tuple(found) if is_changed else level.nodes

    def _match(self, level: Level, at: int) -> int:
        """Return how many nodes from one on are a key that is absent, 0 for none."""
        return max((self.reader.match_key(key, level, at=at) for key in self.absent), default=0)

    def _number(self, nodes: Nodes) -> Token:
        """Return GROUPING of its arguments, or of all keys where it has none, as a number."""
        called = nodes[1]
        listed = split(called.nodes) if isinstance(called, Block) and called.nodes else []
        words = [self._find_key(each) for each in listed] or list(self.every)
        absent, number = {key.spelling for key in self.absent}, 0
        for each in words:
            # GROUPING(country, age) of the set (country) is binary 01, which is 1.
            number = 2 * number + (each in absent)
        return _make_literal("NUMBER", str(number), over=nodes)

    def _find_key(self, nodes: Nodes) -> tuple[object, ...]:
        """Return the spelling of the key that an argument of GROUPING is."""
        grouped = self.reader.find_grouped(nodes)
        for candidate in (nodes, () if grouped is None else grouped.nodes):
            for key in self.every:
                if candidate and self.reader.is_same(candidate, key):  # type: ignore[arg-type]
                    return key
        place = find_place(self.reader.statement, nodes)
        reason, hint = "GROUPING takes keys of GROUP BY.", "Write it of a key that ROLLUP, CUBE or GROUPING SETS names."
        raise Refusal("keys", reason, hint=hint, place=place)


def _make_literal(kind: str, text: str, *, over: Nodes) -> Token:
    """Return a literal in place of some nodes."""
    from sqlglot import Token, TokenType

    first = first_token(over)
    return Token(TokenType[kind], text, first.line, first.col, first.start, last_token(over).end)


def _list_sets(group: Nodes) -> list[tuple[Nodes, ...]]:
    """Return the sets of keys of GROUP BY: all combinations of those of its elements."""
    end = len(group)
    if kind_of(group, end - 1) in {"ROLLUP", "CUBE"} and kind_of(group, end - 2) == "WITH":  # as MySQL writes it
        keys = split(group[: end - 2])
        return _list_chosen(kind_of(group, end - 1), [(key,) for key in keys])
    # GROUP BY a, ROLLUP (b, c) has the sets (a, b, c), (a, b) and (a).
    elements = [_list_element(part) for part in split(group)]
    return [tuple(chain.from_iterable(each)) for each in product(*elements)]


def _list_element(nodes: Nodes) -> list[tuple[Nodes, ...]]:
    """Return the sets of one element of GROUP BY, or of GROUPING SETS."""
    kind, block = kind_of(nodes, 0), parentheses_at(nodes, 1)
    if kind not in GROUPING_SETS or block is None or len(nodes) > len(("ROLLUP", "(...)")):
        return [_list_keys(nodes)]
    parts = split(block.nodes) if block.nodes else []
    if kind == "GROUPING_SETS":
        return list(chain.from_iterable(map(_list_element, parts)))
    return _list_chosen(kind, list(map(_list_keys, parts)))


def _list_chosen(kind: str, parts: Sequence[tuple[Nodes, ...]]) -> list[tuple[Nodes, ...]]:
    """Return the sets of ROLLUP, its parts from all to none, or of CUBE, all that can be chosen of them."""
    sizes = range(len(parts), -1, -1)
    if kind == "ROLLUP":
        return [tuple(chain.from_iterable(parts[:size])) for size in sizes]
    if len(parts) > MAX_SETS.bit_length():  # too many to list: the caller refuses them
        return [()] * (1 << min(len(parts), 16))
    return [tuple(chain.from_iterable(each)) for size in sizes for each in combinations(parts, size)]


def _list_keys(nodes: Nodes) -> tuple[Nodes, ...]:
    """Return the keys of one set: one, several in parentheses, or none in ()."""
    inside = unwrap(nodes)
    if inside is nodes or (inside and len(split(inside)) == 1):
        return (inside,) if inside else ()
    return tuple(split(inside)) if inside else ()
