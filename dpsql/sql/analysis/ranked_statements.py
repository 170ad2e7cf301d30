"""Statements to paste in place of one that computes from groups which a ranking does not have.

    100.0 * COUNT(*) / SUM(COUNT(*)) OVER ()            100.0 * COUNT(*) / (SELECT COUNT(*) FROM reads)
    ROW_NUMBER() OVER (PARTITION BY country ...) <= 3   ... TOP 3 PRIVATE PER country WITH (partitions = ...)
    NTILE(4) OVER (ORDER BY COUNT(*) DESC)              SELECT NTILE(4) OVER ... FROM (... LIMIT 10) AS released

Each is the analyst's own text, with a part of it replaced.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING

from dpsql.dialects import quote_text, write_name
from dpsql.errors import Refusal
from dpsql.sql.analysis.known_values import list_known_values
from dpsql.sql.analysis.measures import LARGEST_STATED
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.measures import MOST_STEPS, Aggregate
from dpsql.sql.ir.statements import Clause, Name, Option, PrivateQuery, count_groups
from dpsql.sql.ir.tree import ColumnRef, Expression, Family, In, Literal, list_scans, split_conjuncts, strip_casts
from dpsql.sql.lexer import ScannedStatement, ascii_lower
from dpsql.sql.syntax.block import (
    SET_OPERATIONS,
    Parts,
    Slice,
    call_at,
    find_selects,
    first_token,
    flatten,
    kind_of,
    kinds_of,
    last_token,
    name_of,
    nest,
)
from dpsql.sql.syntax.clause import MAX_LISTED
from dpsql.sql.syntax.computed import RELEASED, ComputedSelect, name_measure
from dpsql.sql.syntax.implied import Computation, ImpliedClause, find_computation
from dpsql.sql.syntax.select_list import OpenBounds, RankedWindow, Total, read_limit_of_qualify, read_limit_of_rank
from dpsql.sql.syntax.spans import PrivateSpan

if TYPE_CHECKING:
    from sqlglot import Token


_REASON = (
    "SQL computes this from all groups before it takes the first ones, and others than the first are not released."
)
_AFTER_CLAUSE = frozenset(["R_PAREN", "ORDER_BY", "LIMIT", "OFFSET", "SEMICOLON", "UNION", "INTERSECT", "EXCEPT"])
_SOURCE = "dpsql source"
_BEFORE = re.compile(rf"(?<=[\s(]) (?={RELEASED}\.)")
_BEHIND = re.compile(rf'({RELEASED}\."[^"]*") (?=[\s,)])')
_WITH_TOTAL = "Write this, with a private total: {}"
_PER = "Write this, which ranks the groups of each {}: {}"
_PER_LATER = (
    "Write {clause} at the end of the private query, with the values of {key}. If they are not public, ask for them "
    "first: {names}"
)
_LISTED = "Write this, which computes it from the released rows: {}"
_VALUES = "['...', '...']"
_MANY = 1 << 62
Edit = tuple[int, int, Parts]


@dataclass(frozen=True, slots=True)
class _Per:
    """PER key number `key`, from 0, with the first k groups of each of its values."""

    key: int
    k: int


@dataclass(frozen=True, slots=True)
class RankedSelect:
    """A private SELECT that ranks groups and computes with its measures, in its statement.

    `clause` is what standard SQL implies; None where the clause is written.
    """

    statement: ScannedStatement
    catalog: Catalog
    span: PrivateSpan
    computed: ComputedSelect
    clause: ImpliedClause | None

    def check(self, query: PrivateQuery) -> None:
        """Refuse a window that the groups which rank first do not decide, with a statement to paste."""
        if not self.computed.windows or has_all_groups(query):
            return
        per = None if query.partitions is None else query.partitions.key
        found = list[RankedWindow]()
        for window in self.computed.windows:
            keys = set(self._list_keys(window, query))
            if not window.is_ranked or keys != (set() if per is None else {per}):
                found.append(window)
        if found:
            place = self.statement.place(found[0].first, found[0].last)
            raise Refusal("window", _REASON, hint=self._write_hint(found, query), place=place)

    def find_per(self, query: PrivateQuery) -> Clause | None:
        """Return the clause with PER that QUALIFY asks for, where the text has the values of the partitions.

            QUALIFY ROW_NUMBER() OVER (PARTITION BY country ORDER BY COUNT(*) DESC) <= 3

        None for any other QUALIFY, and where a group could be in a partition that the text does not name.
        """
        keys = self._list_keys(self.computed.windows[0], query) if self.computed.windows else []
        k = self._read_limit(query) if len(keys) == 1 and keys[0] is not None and len(query.keys) > 1 else None
        if k is None or keys[0] is None:
            return None
        clause = query.clause
        known = self._list_partitions(query, key=keys[0])
        if not known:
            return None
        name = next(output.name for output in query.outputs if output.key == keys[0])
        options = {**clause.options, "partitions": Option(known, clause.place)}
        return replace(clause, k=k, per=Name(name, clause.place), options=MappingProxyType(options))

    def find_limit(self, query: PrivateQuery) -> int | None:
        """Return the k of QUALIFY ROW_NUMBER() OVER (ORDER BY COUNT(*) DESC) <= k, None for any other QUALIFY."""
        windows = self.computed.windows
        return self._read_limit(query) if windows and not windows[0].partition else None

    def _read_limit(self, query: PrivateQuery) -> int | None:
        """Return the k of QUALIFY rank <= k where all windows rank in the same partitions and no option has others."""
        windows, clause = self.computed.windows, query.clause
        is_one = all(window.is_ranked and window.partition == windows[0].partition for window in windows)
        is_open = clause.stated is None and clause.per is None and not {"domain", "partitions"} & clause.options.keys()
        if not (is_one and is_open):
            return None
        k = read_limit_of_qualify(nest(self.computed.words).nodes, windows=windows)
        if k == 0:
            place = self.statement.place(windows[0].first, windows[0].last)
            hint = "Write <= 10 behind it, or another number of groups."
            raise Refusal("window", "QUALIFY keeps no group here: ranks begin at 1.", hint=hint, place=place)
        return k

    def _list_partitions(self, query: PrivateQuery, *, key: int) -> tuple[str, ...]:
        """Return the values of a key by the text, none where it can be NULL or have others."""
        values = _list_text_values(query, self.catalog, key=key)
        texts = [each.value for each in map(strip_casts, values) if isinstance(each, Literal)]
        is_known = len(texts) == len(values) and not any(text is None for text in texts)
        return tuple(map(str, texts)) if is_known else ()

    def _list_keys(self, window: RankedWindow, query: PrivateQuery) -> list[int | None]:
        """Return the keys of the query in PARTITION BY."""
        return [None if at is None else query.outputs[at].key for at in window.partition]

    def _write_hint(self, found: Sequence[RankedWindow], query: PrivateQuery) -> str:
        clause = query.clause
        if clause.stated is not None:
            return f"Leave it out, or write it in a SELECT around this one, which ends with LIMIT {clause.k}."
        has_totals = all(_bound_total(window.total, query, catalog=self.catalog) for window in found)
        if has_totals and query.domain is None and query.partitions is None:
            return _WITH_TOTAL.format(self._write_shares(found, query))
        is_at_end = self.clause is not None or _is_at_end(self.statement, query)
        keys = self._list_keys(found[0], query)
        is_ranked = all(window.is_ranked and window.partition == found[0].partition for window in found)
        if is_ranked and is_at_end and len(keys) == 1 and not clause.options and clause.per is None:
            (key,) = keys
            if key is not None and len(query.keys) > 1:
                return self._write_per(found, query, key=key)
        if not is_at_end and (clause.options or clause.per is not None):
            return "Leave it out, or write the clause behind GROUP BY: then the refusal says what to paste."
        return _LISTED.format(self._write_listed(query))

    def _write_shares(self, found: Sequence[RankedWindow], query: PrivateQuery) -> str:
        """Return the statement with private totals in place of windows."""
        ending = " PRIVATE)" if self.clause is None else ")"
        edits: list[Edit] = [
            (each.first.start, each.last.end + 1, _divide_by(self.statement, total, ending=ending))
            for each in found
            for total in [_bound_total(each.total, query, catalog=self.catalog)]
        ]
        order, ranked = self.computed.order, self.computed.ranked
        if order is not None and ranked is not None:
            edits = [each for each in edits if not order.start <= each[0] < order.end]
            edits.append((order.start, order.end, (ranked, " DESC")))
        if self.clause is None and not _is_written(self.statement, query):
            _, end = _find_characters(self.statement, query)
            edits.append((end, end, (f" {query.clause}",)))
        return _edit(self.statement, edits)

    def _write_per(self, found: Sequence[RankedWindow], query: PrivateQuery, *, key: int) -> str:
        """Return the statement with PER, or what comes before it where the values of the key are not known."""
        tokens = self.statement.tokens
        spans = [(window.first, window.last) for window in found]
        matches = _match_ranks(tokens, spans, names={window.alias for window in found})
        k = read_limit_of_rank(tokens, matches=matches) or query.clause.k or 1
        items = [part for part in self.computed.inner if isinstance(part, Slice)]
        source: Parts = (items[found[0].partition[0] or 0], " ", items[-1])
        at = self.clause.head[-1].end + 1 if self.clause is not None else 0
        place = (at, at) if self.clause is not None else _find_characters(self.statement, query)
        return write_per(self.statement, self.catalog, query=query, per=_Per(key, k), at=place, source=source)

    def _find_ranking(self, query: PrivateQuery) -> int | None:
        """Return the number, from 1, of the first measure that can rank groups; None for averages and quantiles alone.

        Without an ORDER BY groups are ranked as they would be without the computation.
        """
        ranking = {each.name for each in query.outputs if each.is_measure and each.divisor is None}
        numbers = range(1, self.computed.number_of_measures + 1)
        return next((number for number in numbers if name_measure(number) in ranking), None)

    def _write_listed(self, query: PrivateQuery) -> str:
        """Return the statement with the private query in FROM of what computes from it."""
        outer, _ = self.computed.write([output.name for output in query.outputs], source=_SOURCE)
        ranking = self._find_ranking(query)
        order = "" if ranking is None else f"ORDER BY measure_{ranking} DESC "
        ending: Parts = (f" GROUP BY ALL {order}LIMIT {query.clause.k}",)
        if self.clause is None:
            ending = (" GROUP BY ALL ", str(query.clause))
        if self.clause is None and (query.clause.options or query.clause.per is not None):  # as they are written
            start, end = _find_characters(self.statement, query)
            nodes = nest(token for token in self.statement.tokens if token.start >= end).nodes
            ends = (at for at, kind in enumerate(kinds_of(nodes)) if kind in _AFTER_CLAUSE)
            inside = nodes[: next(ends, len(nodes))]
            ending = (" GROUP BY ALL ", Slice(start, max(last_token(inside).end + 1 if inside else end, start), ()))
        inner = _write(self.statement, (*self.computed.inner, *ending))
        text = _BEHIND.sub(r"\1", _BEFORE.sub("", _write(self.statement, outer)))
        for number in range(1, self.computed.number_of_measures + 1):
            # In the statement to paste, released."dpsql measure 1" is written released.measure_1.
            text = text.replace(f'"{name_measure(number)}"', f"measure_{number}")
        text = text.replace(f'"{_SOURCE}" AS {RELEASED}', f"({inner}) AS released").replace(f"{RELEASED}.", "released.")
        start, end = self.span.start, self.span.end
        return _edit(self.statement, [(start, end, (f" {text} ",))])


def refuse_computation(
    statement: ScannedStatement, clause: ImpliedClause, *, found: Computation, query: PrivateQuery, catalog: Catalog
) -> Refusal:
    """Return the refusal of what a SELECT around an implied ranking computes from all groups."""
    hint = ""
    if query.clause.stated is None:
        shares = _write_shares_around(statement, clause, found=found, query=query, catalog=catalog)
        per = "" if shares else _write_per_around(statement, clause, found=found, query=query, catalog=catalog)
        hint = _WITH_TOTAL.format(shares) if shares else per
    if not hint:
        end = "each inner query" if clause.beside else "the inner query"
        others = [each for each in clause.beside if each.around is not None and each.may_be_all]
        limited = _edit(statement, [edit for each in (clause, *others) for edit in _limit(each)])
        hint = f"End {end} with LIMIT {clause.k}: {limited}"
    if found.window is not None:
        place = statement.place(first_token(found.window.nodes), last_token(found.window.nodes))
        return Refusal("window", _REASON, hint=hint, place=place)
    reason = f"This would be computed from the first {clause.k} groups alone: others are not released."
    if found.is_filter:
        reason = f"This is tested on the first {clause.k} groups alone, and others pass this test, too."
    return Refusal("wrapping", reason, hint=hint, place=statement.place(found.first))


def _bound_total(total: Total, query: PrivateQuery, *, catalog: Catalog) -> Parts:
    """Return a private total to which a unit adds as much as to k groups together, where that is known.

    So the shares of the k groups that a ranking returns are no more than the whole. Numbers of different values have
    none: groups can have the same values.
    """
    if total[:1] == ("SELECT COUNT(*",) and any(each.aggregate is Aggregate.ITEMS for each in query.measures):
        return ()
    return tuple(
        _state_bounds(part, query, catalog=catalog) if isinstance(part, OpenBounds) else part for part in total
    )


def _state_bounds(place: OpenBounds, query: PrivateQuery, *, catalog: Catalog) -> str:
    """Return k times the bounds of a measure in one group, as its argument; "" where these are not known here."""
    scanned = [scan for scan in list_scans(query.body) if scan.path in query.private_paths]
    table = next((each for each in catalog.tables if len(scanned) == 1 and each.path == scanned[0].path), None)
    inside = [path for path, _ in query.private_tables if not scanned]  # of a subquery in FROM
    counted = next((each for each in catalog.tables if len(inside) == 1 and each.path == inside[0]), table)
    rows = None if counted is None or counted.rows is None else (Fraction(0), Fraction(counted.rows))
    words = "".join(place.words.split()).lower()
    written = [(each, "".join(each.words.fragment.split()).lower()) for each in query.measures if each.words]
    measure = next((each for each, text in written if text == words), None)
    bounds: tuple[Fraction, Fraction] | None = None
    if not place.words:
        bounds = rows or (Fraction(0), Fraction(1))
    elif measure is not None and measure.stated is not None:
        bounds = measure.stated.low, measure.stated.high
    elif measure is not None and measure.aggregate is Aggregate.ROWS:
        bounds = rows
    elif measure is not None and measure.aggregate is Aggregate.SUM and table is not None:
        argument = None if measure.argument is None else strip_casts(measure.argument)
        bounds = table.find_bounds(argument.name) if isinstance(argument, ColumnRef) else None
    if bounds is None:
        return ""
    k, most = query.clause.k or 1, MOST_STEPS if measure is None or measure.argument is None else LARGEST_STATED
    ends = [max(min(end * k, Fraction(most)), Fraction(-most)) for end in bounds]
    low, high = (format(Decimal(end.numerator) / Decimal(end.denominator), "f") for end in ends)
    return f", contribution_bounds_per_group => ({low}, {high})"


def _divide_by(statement: ScannedStatement, total: Parts, *, ending: str = ")") -> Parts:
    """Return a private total in parentheses; for PostgreSQL a fraction, as its SUM of whole numbers is."""
    return ("(1.0 * (", *total, ending, ")") if statement.postgres else ("(", *total, ending)


def _write_shares_around(
    statement: ScannedStatement, clause: ImpliedClause, *, found: Computation, query: PrivateQuery, catalog: Catalog
) -> str:
    """Return the statement with a private total in place of SUM(n) OVER () or (SELECT SUM(n) FROM ranking)."""
    ranking, select = clause.ranking, found.select
    if ranking is None or select is None or not found.is_direct:
        return ""
    if found.window is not None:
        window = found.window
        if window.name != "sum" or len(window.arguments) != 1 or not window.is_of_all:
            return ""
        (argument,) = window.arguments
        total = ranking.totals.get(name_of(argument, len(argument) - 1), ())
        total = _bound_total(total, query, catalog=catalog)
        start, end = first_token(window.nodes).start, last_token(window.nodes).end + 1
        return _edit(statement, [(start, end, _divide_by(statement, total))]) if total else ""
    nodes, call = select.nodes, call_at(select.nodes, 1)
    is_alone = call is not None and nodes[1] is found.first and len(call.nodes) == len(("SUM", "(...)"))
    if call is None or not is_alone or call.name != "sum" or len(call.arguments) not in {1, 3}:
        return ""
    measured = name_of(call.arguments, len(call.arguments) - 1)
    total = _bound_total(ranking.totals.get(measured, ()), query, catalog=catalog)
    after = nodes[1 + len(call.nodes) :]
    if not total or {"WHERE", "ORDER_BY", "LIMIT", "GROUP_BY", "QUALIFY", "COMMA"} & set(kinds_of(after)):
        return ""
    start, end = select.start, select.end + 1
    if kind_of(after, 0) == "FROM":
        return _edit(statement, [(start, end, _divide_by(statement, total) if statement.postgres else total)])
    name = nodes[1 + len(call.nodes) : len(select.section("SELECT"))]
    first = total[0] if isinstance(total[0], str) else ""
    if first != "SELECT " or kind_of(name, 0) not in {"ALIAS", "VAR", "IDENTIFIER"}:
        return ""
    alias = Slice(first_token(name).start, last_token(name).end + 1, ())
    measure, source = total[: total.index(" ")], total[total.index(" ") + 1 :]
    return _edit(statement, [(start, end, (*measure, " ", alias, " ", *source))])


def _write_per_around(
    statement: ScannedStatement, clause: ImpliedClause, *, found: Computation, query: PrivateQuery, catalog: Catalog
) -> str:
    """Return a hint with PER for RANK() OVER (PARTITION BY key ORDER BY measure DESC)."""
    tokens, ranking, window = clause.tokens, clause.ranking, found.window
    if ranking is None or window is None or not window.is_rank or len(query.keys) == 1:
        return ""
    over = window.over
    if len(over.partition) != 1:
        return ""
    name = name_of(over.partition[0], len(over.partition[0]) - 1)
    term, falls = over.order[0] if over.order else ((), False)
    ordered = name_of(term, len(term) - 1) if falls else ""
    names = [ascii_lower(output.name) for output in query.outputs]
    key = query.outputs[names.index(name)].key if name in names else None
    if key is None or not found.is_direct or not ranking.ranks or ordered != ranking.ranks:
        return ""
    ranks = flatten(window.nodes)
    after = next(at for at, token in enumerate(tokens) if token is ranks[-1]) + 1
    after += kind_of(tokens, after) == "ALIAS"
    alias = ascii_lower(tokens[after].text) if kind_of(tokens, after) in {"VAR", "IDENTIFIER"} else ""
    matches = _match_ranks(tokens, [(ranks[0], ranks[-1])], names={alias})
    k = read_limit_of_rank(tokens, matches=matches) or clause.k
    end = clause.head[-1].end + 1
    source = f"{write_name(query.outputs[names.index(name)].name)} FROM {write_name(query.tables[0])}"
    return write_per(statement, catalog, query=query, per=_Per(key, k), at=(end, end), source=(source,))


def _match_ranks(
    tokens: Sequence[Token], spans: Sequence[tuple[Token, Token]], *, names: Collection[str]
) -> Callable[[int], int]:
    """Return what says how many tokens from a position on are a rank: a window with these ends, or one of its names."""

    def matches(at: int) -> int:
        for first, last in spans:
            if tokens[at].start == first.start:
                return next((end - at + 1 for end in range(at, len(tokens)) if tokens[end].start == last.start), 1)
        return int(kind_of(tokens, at) in {"VAR", "IDENTIFIER"} and ascii_lower(tokens[at].text) in names)

    return matches


def write_per(
    statement: ScannedStatement, catalog: Catalog, *, query: PrivateQuery, per: _Per, at: tuple[int, int], source: Parts
) -> str:
    """Return a hint with PER a key: the statement, or how to find the values of the key first, in a `source`."""
    name = next(output.name for output in query.outputs if output.key == per.key)
    values = _find_partitions(query, catalog, key=per.key)
    clause = f"TOP {per.k} PRIVATE PER {write_name(name)} WITH (partitions = {values or _VALUES})"
    if values:
        return _PER.format(name, _edit(statement, [(*at, (f" {clause}" if at[0] == at[1] else clause,))]))
    names = _write(statement, ("SELECT ", *source, f" GROUP BY ALL TOP {query.clause.k or 10} PRIVATE"))
    return _PER_LATER.format(clause=clause, key=name, names=names)


def _list_text_values(query: PrivateQuery, catalog: Catalog, *, key: int) -> Sequence[Expression]:
    """Return the values that a key can have by the text alone; none where that does not tell them."""
    expression = query.keys[key]
    known = list_known_values(expression, query.body, catalog=catalog)
    for condition in split_conjuncts(query.body.where):
        if known is None and isinstance(condition, In) and strip_casts(condition.argument) == strip_casts(expression):
            bare = [strip_casts(choice) for choice in condition.choices]
            known = tuple(each for each in bare if isinstance(each, Literal)) if len(bare) <= MAX_LISTED else None
    return known or ()


def _find_partitions(query: PrivateQuery, catalog: Catalog, *, key: int) -> str:
    """Return the values of a key as the option `partitions` takes them; "" where neither text nor policy has them."""
    known = _list_text_values(query, catalog, key=key)
    if known:
        bare = [strip_casts(each) for each in known]
        texts = [str(each.value) for each in bare if isinstance(each, Literal) and each.value is not None]
        return f"[{', '.join(quote_text(text) for text in texts)}]"
    public = find_public_column(query, key, catalog=catalog)
    return quote_text(public) if public else ""


def _limit(clause: ImpliedClause) -> list[Edit]:
    """Return what a ranking has with LIMIT, in parentheses if it is a part of a set operation."""
    tokens, ranking = clause.tokens, clause.ranking
    if clause.limit is not None:
        return [(clause.limit.start, clause.limit.end + 1, (str(clause.k),))]
    at = clause.head[-1].end + 1
    order: Parts = () if ranking is None or ranking.ranked is None else ("ORDER BY ", ranking.ranked, " DESC")
    if ranking is not None and ranking.order is not None:
        return [(ranking.order.start, ranking.order.end, (*order, f" LIMIT {clause.k}"))]
    limit: Edit = (at, at, (*((" ", *order) if order else ()), f" LIMIT {clause.k}"))
    first = next(at for at, token in enumerate(tokens) if token.start == clause.select.start)
    around = kind_of(tokens, first - 1), kind_of(clause.tail, 0)
    if not ({*around} & SET_OPERATIONS or around[0] in {"ALL", "DISTINCT"}):
        return [limit]
    start = clause.select.start
    return [(start, start, ("(",)), (at, at, (*limit[2], ")"))]


def computes_around(statement: ScannedStatement, tokens: list[Token], *, query: PrivateQuery) -> bool:
    """Say whether a SELECT around a query whose clause is written computes from its rows."""
    root = nest(tokens)
    selects = sorted(find_selects(root), key=lambda each: each.end)
    at, _ = _find_characters(statement, query)
    inside = [each for each in selects if each.start <= at <= each.end]
    inner = max(inside, key=lambda each: each.start, default=None)
    if inner is None or len(selects) == 1:
        return False
    return find_computation(root, inner, selects=selects, k=query.clause.k or _MANY) is not None


def _find_characters(statement: ScannedStatement, query: PrivateQuery) -> tuple[int, int]:
    """Return the characters at which a written clause stands."""
    place = query.clause.place
    start = 0
    for _ in range(place.line - 1):
        start = statement.text.index("\n", start) + 1
    start += place.column - 1
    return start, start + len(place.fragment)


def _is_at_end(statement: ScannedStatement, query: PrivateQuery) -> bool:
    """Say whether a clause is written behind the query, neither behind SELECT nor in HAVING."""
    start, end = _find_characters(statement, query)
    first = next((at for at, token in enumerate(statement.tokens) if token.start == start), 0)
    before = kind_of(statement.tokens, first - 1)
    return before not in {"SELECT", "HAVING"} and ascii_lower(statement.text[start:end]).split()[:1] in (
        ["top"],
        ["limit"],
    )


def _is_written(statement: ScannedStatement, query: PrivateQuery) -> bool:
    """Say whether the text has the clause, which is else a proposal for a statement without one."""
    start, end = _find_characters(statement, query)
    return ascii_lower(statement.text[start:end]).split()[:1] in (["top"], ["limit"], ["all"], ["private"])


def _edit(statement: ScannedStatement, edits: Iterable[Edit]) -> str:
    """Return the statement with other text for some characters."""
    parts, at = list[str | Slice](), 0
    for start, end, replacement in sorted(edits, key=lambda each: each[:2]):
        parts += [Slice(at, start, ()), *replacement]
        at = end
    text = _write(statement, (*parts, Slice(at, len(statement.text), ())))
    return text.strip().rstrip(";").rstrip()


def _write(statement: ScannedStatement, parts: Parts) -> str:
    """Return text of the statement, in which each ? has its number: some may be there twice."""
    values = [(token, statement.value(token.text)) for token in statement.tokens]
    marks = [token for token, value in values if value and (value.kind, value.content) == ("parameter", "?")]
    numbers = {token.start: f"${number}" for number, token in enumerate(marks, 1)}
    found = list[str]()
    for part in parts:
        if isinstance(part, str):
            found.append(part)
            continue
        at = part.start
        changes = [*part.replaced, *((start, start + 1, mark) for start, mark in numbers.items())]
        for start, end, text in sorted(changes):
            if at <= start < part.end:
                found += [statement.text[at:start], text]
                at = end
        found.append(statement.text[at : part.end])
    return "".join(found)


def has_all_groups(query: PrivateQuery) -> bool:
    """Say whether the text and the policy show that every group of a query is released."""
    if query.clause.shape != "top":
        return True
    known = None if query.partitions is not None else count_groups(query.domain)
    return known is not None and query.clause.k is not None and known <= query.clause.k


def find_public_column(query: PrivateQuery, key: int, *, catalog: Catalog) -> str:
    """Return the column of a public table that has the name and the kind of a key; "" without one."""
    names = {ascii_lower(output.name) for output in query.outputs if output.key == key}
    names |= {ascii_lower(query.key_column[1])} if query.key_column is not None else set()
    family = query.keys[key].type.family
    for table in catalog.tables:
        for column, type_ in table.columns if table.is_public else ():
            if ascii_lower(column) in names and type_.family is family is not Family.OPAQUE:
                return f"{table.name}.{column}"
    return ""
