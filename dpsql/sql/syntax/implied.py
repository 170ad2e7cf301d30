"""Standard SQL read as private: the clause that a statement of a tool would end in, added to its tokens.

    SELECT COUNT(...) FROM ...                                  ... PRIVATE
    SELECT ... GROUP BY keys ORDER BY measure DESC LIMIT n      ... GROUP BY keys TOP n PRIVATE ORDER BY ... LIMIT n
    SELECT ... GROUP BY bucket ORDER BY bucket                  ... GROUP BY bucket ALL PRIVATE ORDER BY bucket
    SELECT DISTINCT key FROM ...                                SELECT DISTINCT key FROM ... TOP n PRIVATE

The private query is the innermost aggregate over a private table that does not group by the privacy unit. What is
around it is read as any SELECT around a private query. One in the select list of another one, such as the total of a
share, makes two of them.

What a SELECT around a ranking computes from its rows would be another value if all groups were there, and its WHERE may
ask for groups that are not there:

    SELECT COUNT(*) FROM (ranking)                  SELECT n / SUM(n) OVER () FROM (ranking)
    SELECT ... FROM products LEFT JOIN (ranking)    SELECT ... FROM products WHERE product NOT IN (ranking)
    SELECT * FROM (ranking) WHERE n < 100

A SELECT that only chooses columns and rows, or joins them, shows some rows of those that SQL promises, each with the
right values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dpsql.sql.coercion import read_whole_number
from dpsql.sql.lexer import Parameter, ScannedStatement, ascii_lower
from dpsql.sql.syntax.block import (
    GROUPING_SETS,
    SET_OPERATIONS,
    WRITTEN_AGGREGATES,
    Block,
    Node,
    Nodes,
    Select,
    find_calls,
    find_open_block,
    find_selects,
    first_token,
    flatten,
    kind_of,
    kinds_of,
    last_token,
    make_token,
    name_of,
    nest,
    parentheses_at,
    read_text,
    split,
    walk,
    word_of,
)
from dpsql.sql.syntax.computed import Ranking, read_ranking
from dpsql.sql.syntax.forms import normalize_clauses
from dpsql.sql.syntax.select_list import (
    Direction,
    WindowNodes,
    cut_alias,
    find_alias,
    find_direction,
    is_decided,
    list_comparisons,
    list_windows,
    unwrap,
)

if TYPE_CHECKING:
    from sqlglot import Token

_AFTER_GROUPS = frozenset(["ORDER_BY", "LIMIT", "OFFSET"])
_AFTER_FROM = frozenset(["WHERE", "GROUP_BY", "HAVING", "WINDOW", "QUALIFY", *_AFTER_GROUPS])
_CLAUSES = frozenset(["FROM", "WHERE", "GROUP_BY", "HAVING"])
_IN_FROM = frozenset(["FROM", "JOIN", "COMMA", "LATERAL"])
_MEMBERSHIP = frozenset(["IN", "EXISTS", "ANY", "SOME"])
_COMPARES = frozenset("EQ NEQ IS IN AND BETWEEN LIKE".split())
_NAMES = frozenset(["VAR", "IDENTIFIER"])
_LONGEST_TERM = 4  # nodes of x.column DESC
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
class Computation:
    """A computation from the rows of a ranking: it begins at `first`, in a SELECT around the ranking or beside it.

    A `window` has itself here. `is_direct` says that FROM of that SELECT reads the ranking, and nothing else;
    `is_filter` that WHERE tests a measure.
    """

    first: Token
    select: Select | None = None
    window: WindowNodes | None = None
    is_direct: bool = False
    is_filter: bool = False


@dataclass(frozen=True, slots=True)
class ImpliedClause:
    """Place of the clause that a statement implies: between the tokens of its `head` and those of its `tail`.

    `is_total` where there are no groups. Otherwise `k` is the number of groups to rank, and `may_be_all` says that
    LIMIT asks for no fewer than the default, so that all groups of a known domain can be meant; `written_limit` is what
    it asks for, None without one, and `limit` the token that says so. `select` is the token that the private query
    begins with. `around` is what a SELECT around it computes that its first groups do not decide, and `computes` says
    that one computes anything of its rows. The `ranking` has its columns. `beside` are the clauses of the other private
    queries of the statement, and `is_largest` says that the statement is SELECT MAX(measure that ranks) FROM it.
    """

    head: tuple[Token, ...]
    tail: tuple[Token, ...]
    select: Token
    is_total: bool
    k: int
    may_be_all: bool
    written_limit: int | None = None
    limit: Token | None = None
    around: Computation | None = None
    computes: bool = False
    ranking: Ranking | None = None
    beside: tuple[ImpliedClause, ...] = ()
    is_largest: bool = False

    @property
    def tokens(self) -> tuple[Token, ...]:
        """The tokens of the statement."""
        return (*self.head, *self.tail)

    @property
    def is_inside(self) -> bool:
        """Whether a SELECT is around the query that lacks a clause."""
        return find_open_block(self.head).opening is not None


def find_implied_clauses(  # noqa: C901 - from the statement to its clauses
    statement: ScannedStatement, names: PrivateNames, *, default_k: int, parameter: Parameter
) -> list[ImpliedClause]:
    """Return where the clauses of the private queries of a statement belong, in the order of the text.

    `parameter` gives the value bound to a parameter.
    """
    tokens = normalize_clauses(statement.tokens, text=statement.text)
    while tokens and tokens[-1].token_type.name == "SEMICOLON":
        tokens.pop()
    root = nest(tokens)
    private, found = set(names.tables), list[Select]()
    selects = sorted(find_selects(root), key=lambda each: each.end)
    for select in selects:  # what a SELECT reads comes before it
        if select.names.isdisjoint(private):
            continue
        inner = [other for other in found if select.is_around(other)]
        if inner and not _reads_beside(select, inner=inner, names=private):
            continue  # around a private query
        if _is_aggregate_of_many(select, units=names.units):
            found.append(select)
        elif select.cte:
            private.add(select.cte)
    clauses = list[ImpliedClause]()
    for select in sorted(found, key=lambda each: each.start):
        limit = _find_limit(select)
        text = "" if limit is None else limit.text
        asked = read_whole_number(statement.value(text), parameter, min_value=1)
        if asked is None and text.isdecimal():
            asked = int(text) or None
        kinds = kinds_of(select.nodes)
        end = next((at for at, kind in enumerate(kinds) if kind in _AFTER_GROUPS), len(kinds))
        last = last_token(select.nodes[:end])
        split_at = next(at for at, token in enumerate(tokens) if token is last) + 1
        # Without LIMIT all groups are wanted: more than the default, whatever that is.
        wanted = default_k + 1 if asked is None else asked
        clause = ImpliedClause(
            head=tuple(tokens[:split_at]),
            tail=tuple(tokens[split_at:]),
            select=first_token(select.nodes),
            is_total=not (select.has("GROUP_BY") or select.is_distinct),
            k=min(wanted, default_k),
            may_be_all=wanted > default_k,
            written_limit=asked,
            limit=limit,
        )
        if len(selects) > 1 and not clause.is_total:
            clause = _describe_around(statement, clause, root=root, inner=select, selects=selects)
        clauses.append(clause)
    if len(clauses) == 1:
        return clauses
    return [replace(each, beside=tuple(other for other in clauses if other is not each)) for each in clauses]


def find_ending(tokens: Sequence[Token], *, k: int = 10) -> list[ImpliedClause]:
    """Return where TOP k PRIVATE would end a SELECT with groups, whose tokens these are; nothing for another SELECT."""
    nodes = nest(tokens).nodes
    kinds = kinds_of(nodes)
    grouped = [
        at for at, kind in enumerate(kinds) if kind == "GROUP_BY" or kinds[at - 1 : at + 1] == ["SELECT", "DISTINCT"]
    ]
    if not grouped:
        return []
    end = next((at for at, kind in enumerate(kinds) if at > grouped[-1] and kind in _AFTER_GROUPS), len(kinds))
    head, tail = tuple(flatten(nodes[:end])), tuple(flatten(nodes[end:]))
    return [ImpliedClause(head, tail, tokens[0], is_total=False, k=k, may_be_all=False)]


def describe_end(statement: ScannedStatement, clause: ImpliedClause) -> str:
    """Return where the clause of a query inside parentheses belongs, by the words that it follows."""
    nodes = find_open_block(clause.head).nodes
    starts = [at for at, kind in enumerate(kinds_of(nodes)) if kind in _CLAUSES]
    if not starts:
        return "at their end"
    text = read_text(statement, nodes[starts[-1] :])
    return f"after {text}" if len(text) <= _LONGEST_QUOTED else "at their end"


def add_clause(statement: ScannedStatement, clause: ImpliedClause, *, all_groups: bool) -> ScannedStatement:
    """Return the statement with the clause: PRIVATE, ALL PRIVATE or TOP k PRIVATE."""
    words = [("VAR", "PRIVATE")]
    if not clause.is_total:
        words = [("ALL", "ALL") if all_groups else ("VAR", "TOP"), *words]
    if not clause.is_total and not all_groups:
        words.insert(1, ("NUMBER", str(clause.k)))
    added = tuple(make_token(kind, word, beside=clause.head[-1]) for kind, word in words)
    end = clause.tokens[-1].end
    ending = [token for token in statement.tokens if token.start > end and token.token_type.name == "SEMICOLON"]
    return replace(statement, tokens=(*clause.head, *added, *clause.tail, *ending))


def _reads_beside(select: Select, *, inner: Sequence[Select], names: Collection[str]) -> bool:
    """Say whether a SELECT reads a private table itself, with private queries neither in FROM nor in WHERE."""
    rows = flatten((*select.section("FROM"), *select.section("WHERE")))
    inside = set(map(id, rows))
    is_apart = not any(id(first_token(other.nodes)) in inside for other in inner)
    return is_apart and any(ascii_lower(token.text) in names for token in rows)


def _is_aggregate_of_many(select: Select, *, units: frozenset[str]) -> bool:
    """Say whether a SELECT aggregates rows, and not for each unit alone."""
    if select.has("GROUP_BY"):
        keys = select.clause("GROUP_BY")
        if not GROUPING_SETS.isdisjoint(kinds_of(keys)):
            keys = tuple(flatten(keys))
        return not (_names_any(keys, units) or groups_by_any(select, names=units))
    if select.is_distinct:
        return not _names_any(select.clause("SELECT"), units)
    return any(_is_aggregate(beside, at) for beside, at in walk(select.nodes, hidden=_is_select))


def _names_any(nodes: Nodes, names: Collection[str]) -> bool:
    """Say whether one of these nodes itself is a word, or a quoted name, among these in lower case."""
    return any(name_of(nodes, at) in names for at in range(len(nodes)))


def _is_select(block: Block) -> bool:
    return kind_of(block.nodes, 0) in {"SELECT", "WITH"}


def _is_aggregate(nodes: Nodes, at: int) -> bool:
    """Say whether a node is an aggregate that is called, and is no window."""
    is_called = word_of(nodes, at) in WRITTEN_AGGREGATES and kind_of(nodes, at + 1) == "L_PAREN"
    return is_called and kind_of(nodes, at + 2) != "OVER"


def groups_by_any(select: Select, *, names: Collection[str]) -> bool:
    """Say whether a group key of a SELECT is one of these columns itself, by its name, position or alias, or by ALL."""
    if not select.has("GROUP_BY"):
        return select.is_distinct and any(_is_column(item, names=names) for item in select.items)
    keys = split(select.clause("GROUP_BY"))
    words = {name_of(key, 0) for key in keys if len(key) == 1} - {""}
    chosen = [
        item
        for number, item in enumerate(select.items, 1)
        if words & {"all", str(number)} or (find_alias(item) is not None and name_of(item, len(item) - 1) in words)
    ]
    return any(_is_column(nodes, names=names) for nodes in (*keys, *chosen))


def _is_column(nodes: Nodes, *, names: Collection[str]) -> bool:
    nodes = cut_alias(nodes)
    is_bare = all(kind == "DOT" for kind in kinds_of(nodes)[1::2])
    return is_bare and name_of(nodes, len(nodes) - 1) in names


def _find_limit(select: Select) -> Token | None:
    """Return what LIMIT says."""
    limit = select.clause("LIMIT")
    return first_token(limit) if limit else None


def _describe_around(
    statement: ScannedStatement, clause: ImpliedClause, *, root: Block, inner: Select, selects: Sequence[Select]
) -> ImpliedClause:
    """Return a clause with what the SELECTs around its query compute."""
    ranking = read_ranking(statement, flatten(inner.nodes))
    around = find_computation(root, inner, selects=selects, k=clause.k, ranking=ranking)
    if around is None and (first := _find_filter(inner, selects=selects, ranking=ranking)) is not None:
        around = Computation(first, is_filter=True)
    any_of_rows = find_computation(root, inner, selects=selects, k=clause.k)
    is_largest = False
    if around is None and any_of_rows is not None and len(selects) == len(("ranking", "around")):
        is_largest = any_of_rows.window is None and word_of([any_of_rows.first], 0) in WRITTEN_AGGREGATES
    computes = any_of_rows is not None or around is not None
    return replace(clause, around=around, computes=computes, ranking=ranking, is_largest=is_largest)


def find_computation(
    root: Block, inner: Select, *, selects: Sequence[Select], k: int, ranking: Ranking | None = None
) -> Computation | None:
    """Return what is computed from the rows of a ranking, None where they are shown as they are.

    The `selects` are those of the statement, inner ones first. With the columns of the `ranking`, what its first rows
    decide is left out.
    """
    # `hidden` keeps the walk out of blocks of the ranking; its other nodes are left out one by one.
    own = set(map(id, inner.nodes))
    for beside, at in walk(root.nodes, hidden=lambda block: id(block) in own):
        if id(beside[at]) not in own and _asks_for_absent(beside, at):
            return Computation(first_token(beside[at:]))
    names, sources = {inner.cte} - {""}, [inner]
    tops = {id(inner): inner}  # of each source, the outermost SELECT with it that has been looked at
    for select in selects:
        inside = [each for each in sources if select.is_around(each)]
        for each in inside:
            while (outer := tops[id(each)].outer) is not None and outer is not select:
                tops[id(each)] = outer
        holders = [tops[id(each)].holder for each in inside]
        outside = list(walk(select.nodes, hidden=_is_select))
        if select is inner or not (inside or any(name_of(beside, at) in names for beside, at in outside)):
            continue
        # whether FROM has the ranking alone, in parentheses or by the name of its CTE
        source = select.clause("FROM")
        is_direct = bool(source) and {"COMMA", "JOIN"}.isdisjoint(kinds_of(source))
        if kind_of(source, 0) == "L_PAREN":
            is_direct = is_direct and inner.outer is select and inner.holder is source[0]
        else:
            is_direct = is_direct and name_of(source, 0) == (inner.cte or None)
        around = _Around(select, outside, k, ranking if is_direct else None)
        found = around.find() or around.find_lost(list(zip(inside, holders, strict=True)), names)
        if found is not None:
            return replace(found, select=select, is_direct=is_direct)
        sources.append(select)
        tops[id(select)] = select
        names |= {select.cte} - {""}
    return None


def _asks_for_absent(nodes: Nodes, at: int) -> bool:
    """Say whether a word asks which groups of a ranking are not there."""
    kind, following = kind_of(nodes, at), kind_of(nodes, at + 1)
    if kind == "NOT":
        return following == "EXISTS" or (following == "IN" and _begins_select(nodes, at + 2))
    if kind == "ALL" and _begins_select(nodes, at + 1):  # as in x > ALL (SELECT ...)
        return kind_of(nodes, at - 1) not in {*SET_OPERATIONS, "SELECT"}
    is_list = kind == "EXCEPT" and following == "L_PAREN" and not _begins_select(nodes, at + 1)  # of columns
    return kind in {"INTERSECT", "ANTI", "EXCEPT"} and not is_list


def _begins_select(nodes: Nodes, at: int) -> bool:
    block = parentheses_at(nodes, at)
    return block is not None and kind_of(block.nodes, 0) == "SELECT"


@dataclass(frozen=True, slots=True)
class _Around:
    """A SELECT around a ranking: `outside` are its nodes that are in no other SELECT, each as its place in a block."""

    select: Select
    outside: Sequence[tuple[Nodes, int]]
    k: int
    ranking: Ranking | None

    def find(self) -> Computation | None:
        """Return what makes one row of several, a window, or an order in which the first rows are others."""
        nodes = self.select.nodes
        windows = {
            id(window.nodes[0]): window
            for window in list_windows(nodes, definitions=self.select.clause("WINDOW"))
            if window.over.partition or not is_decided(window, follow=self._follow)
        }
        for beside, at in self.outside:
            node = beside[at]
            is_distinct = node is nodes[1] and self.select.is_distinct
            groups = beside is nodes and kind_of(nodes, at) in {"GROUP_BY", "HAVING"}
            if is_distinct or groups or (_is_aggregate(beside, at) and not self._is_largest(beside, at)):
                return Computation(first_token([node]))
            if id(node) in windows:
                return Computation(first_token([node]), window=windows[id(node)])
        order, limit = self.select.section("ORDER_BY"), _find_limit(self.select)
        if not order or limit is None or (limit.text.isdecimal() and int(limit.text) >= self.k):
            return None
        # does LIMIT take the first rows in another order than from the largest group on?
        term = split(order[1:])[0]
        is_other = "DESC" not in kinds_of(term)
        if not is_other and self.ranking is not None and len(term) <= _LONGEST_TERM:
            others = {*self.ranking.keys, *self.ranking.totals} - {self.ranking.ranks}
            is_other = name_of(term, len(term) - 2) in others
        return Computation(first_token(order)) if is_other else None

    def find_lost(self, inside: Sequence[tuple[Select, Block | None]], names: set[str]) -> Computation | None:
        """Return what has NULL, or FALSE, for a group that is not there: an outer join, a value, a negation.

        The ranking, or what shows its rows, is `inside` a node in parentheses, or has one of the `names`.
        """
        nodes = self.select.nodes
        kinds = kinds_of(nodes)
        first = next((at for at, kind in enumerate(kinds) if kind == "FROM"), len(nodes))
        numbers = {id(node): at for at, node in enumerate(nodes)}
        holders = [numbers.get(id(holder), 0) for _, holder in inside]
        places = [at for at in range(first + 1, len(nodes)) if name_of(nodes, at) in names]
        places += [at for at in holders if at > first]
        for at, kind in enumerate(kinds):
            if kind not in {"LEFT", "RIGHT", "FULL"} or kind_of(nodes, at + 1) not in {"JOIN", "OUTER"}:
                continue
            # LEFT JOIN fills what stands behind it with NULL, RIGHT JOIN what stands before it, FULL JOIN both.
            lost = {"LEFT": any(each > at for each in places), "RIGHT": any(each < at for each in places)}
            if lost.get(kind, bool(places)):
                return Computation(first_token(nodes[at:]))
        for (each, _), holder in zip(inside, holders, strict=True):
            if _is_aggregate(each.nodes, 1):
                continue  # the largest value, which is there
            is_member, is_behind = kind_of(nodes, holder - 1) in _MEMBERSHIP, first < holder
            if is_member and is_behind:
                for at in range(holder):
                    is_not = kinds[at] == "NOT" and kind_of(nodes, at - 1) != "IS"
                    if is_not and kinds[at + 1] not in {"NULL", "LIKE", "BETWEEN"}:
                        return Computation(first_token(nodes[at:]))
                continue
            is_source = kind_of(nodes, holder - 1) in _IN_FROM and is_behind
            if is_member or not is_source or not _AFTER_FROM.isdisjoint(kinds[first:holder]):
                return Computation(flatten(nodes[holder : holder + 1])[1])
        return None

    def _follow(self, nodes: Nodes) -> Direction | None:
        """Return the direction of the column that ranks, and None for any other expression."""
        ranks = self.ranking.ranks if self.ranking is not None else ""
        is_column = len(nodes) == 1 or (len(nodes) == len(("t", ".", "n")) and kind_of(nodes, 1) == "DOT")
        is_ranking = bool(ranks) and is_column and name_of(nodes, len(nodes) - 1) == ranks
        return Direction(rises=True, is_exact=True) if is_ranking else None

    def _is_largest(self, nodes: Nodes, at: int) -> bool:
        """Say whether an aggregate is MAX of the measure that ranks, where no rows are left out."""
        called = parentheses_at(nodes, at + 1)
        if name_of(nodes, at) != "max" or self.ranking is None or called is None:
            return False
        is_plain = kind_of(nodes, at + 2) != "FILTER" and not self.select.has("WHERE")
        arguments = split(called.nodes)
        return is_plain and len(arguments) == 1 and self._follow(arguments[0]) is not None


_Measures = Mapping[str, bool]  # by the name of a column: whether it rises with the measure that ranks


def _find_filter(inner: Select, *, selects: Sequence[Select], ranking: Ranking | None) -> Token | None:
    """Return where a SELECT around a ranking asks for other than large values of its measures."""
    columns = list(_list_columns(inner, ranking=ranking))
    names, at = [name for name, _ in columns], int(kind_of(inner.behind, 0) == "ALIAS")
    renamed = parentheses_at(inner.behind, at + 1)
    if kind_of(inner.behind, at) in _NAMES and renamed is not None:
        given = [name_of(part, 0) for part in split(renamed.nodes)]  # ... AS t(a, b)
        names[: len(given)] = given
    measures = {name: rises for name, (_, rises) in zip(names, columns, strict=False) if rises is not None}
    if not measures:
        return None
    sources = [inner]
    for select in selects:
        is_around = any(select.is_around(each) for each in sources)
        if select is inner or not (is_around or _names_any(select.nodes, {each.cte for each in sources} - {""})):
            continue
        if (small := _find_small(select.clause("WHERE"), measures=measures)) is not None:
            return small
        sources.append(select)
    return None


def _list_columns(inner: Select, *, ranking: Ranking | None) -> Iterator[tuple[str, bool | None]]:
    """Yield the name of each column of a ranking, and whether it rises with what ranks; None for what is no measure."""
    calls = {_write_words(call.nodes) for item in inner.items for call in find_calls(item)}
    for item in inner.items:
        body, name = cut_alias(item), name_of(item, len(item) - 1)
        if len(body) == len(item) and (not name or (len(body) > 1 and kind_of(body, len(body) - 2) != "DOT")):
            name = _write_words(body)
        has_window = any(kind_of(beside, at) == "OVER" for beside, at in walk(body))
        if has_window or not find_calls(body):
            yield name, None
            continue
        found = find_direction(body)
        is_ranked = len(calls) == 1 if ranking is None else name == ranking.ranks
        yield name, found is not None and found[1] and is_ranked


def _write_words(nodes: Sequence[Node]) -> str:
    return " ".join(ascii_lower(token.text) for token in flatten(nodes))


def _find_small(condition: Nodes, *, measures: _Measures) -> Token | None:
    """Return where a condition tests a measure for other than large values."""
    waiting = [condition]
    while waiting:
        nodes = unwrap(waiting.pop())
        places = list(walk(nodes))
        named = [first_token(beside[at:]) for beside, at in places if _is_measure(beside, at, measures=measures)]
        kinds = {kind_of(beside, at) for beside, at in places}
        parts = split(nodes, {"AND"})
        if named and len(parts) > 1 and not kinds & {"OR", "BETWEEN"}:
            waiting += reversed(parts)
        elif named and ("OR" in kinds or not _is_large(nodes, measures=measures)):
            return named[0]
    return None


def _is_large(nodes: Nodes, *, measures: _Measures) -> bool:
    """Say whether a comparison is true of all large values of the measure that ranks, or says that there is one."""
    for column, other in list_comparisons(nodes):
        is_column = len(column) in {1, 3, 5} and all(kind == "DOT" for kind in kinds_of(column)[1::2])
        is_value = not any(
            _is_measure(beside, at, measures=measures) or kind_of(beside, at) in _COMPARES for beside, at in walk(other)
        )
        if is_column and is_value and measures.get(name_of(column, len(column) - 1)):
            return True
    return _write_words(nodes).split()[-3:] == ["is", "not", "null"]


def _is_measure(nodes: Nodes, at: int, *, measures: _Measures) -> bool:
    """Say whether a node names a measure, and is no function that is called and no table."""
    is_name = name_of(nodes, at) in measures and kind_of(nodes, at) in _NAMES
    return is_name and kind_of(nodes, at + 1) not in {"L_PAREN", "DOT"}
