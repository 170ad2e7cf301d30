"""Outer SELECT: private queries anywhere in it are each read alone, and the text around them is DuckDB's SQL.

A private SELECT that computes with its measures is split into one that releases them and a SELECT around it.

This file has two parts: (1) `read_outer_select`; (2) from `_has_sets` on, grouping sets of a private SELECT, which are
private queries of one statement. One without keys is a total, and each takes the options it has. Each is charged and
stored by itself, and their worst cases must fit into the budget together, as with any statement of several private
queries.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from dpsql.dialects import quote_name
from dpsql.errors import Refusal, Unsupported
from dpsql.sql.allow_list import INTERVAL_ENDS
from dpsql.sql.analysis.known_values import is_time_bucket, list_known_values
from dpsql.sql.analysis.outer_tree import ASK_INSIDE, SelectParser, find_ungrouped, read_outer_tree
from dpsql.sql.analysis.plain_select import describe_released, find_implied, put_header_options, read_implied
from dpsql.sql.analysis.predicates import read_array
from dpsql.sql.analysis.private_select import AnalysisRequest, check_explicit, check_header, check_ranking, read_private
from dpsql.sql.analysis.ranked_statements import RankedSelect, computes_around, has_all_groups
from dpsql.sql.coercion import make_literal
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.literals import UnboundParameter
from dpsql.sql.ir.scope import ENDED, STORED, list_names, propose_text
from dpsql.sql.ir.statements import Clause, OuterSelect, PrivateQuery
from dpsql.sql.ir.tree import BIGINT, NULL, Expression, Literal
from dpsql.sql.lexer import ScannedStatement, Value, ascii_lower, check_tokens
from dpsql.sql.syntax.block import GROUPING_SETS, Parts, flatten, nest, split
from dpsql.sql.syntax.clause import SplitStatement, find_clauses, list_select_tokens, several_queries, split_clause
from dpsql.sql.syntax.computed import ComputedSelect, split_measures
from dpsql.sql.syntax.forms import find_array_values
from dpsql.sql.syntax.implied import ImpliedClause, add_clause
from dpsql.sql.syntax.spans import PrivateSpan, cut_private_queries, find_private_spans, name_released, write_parts

if TYPE_CHECKING:
    from sqlglot import Token

    from dpsql.sql.syntax.grouping_sets import GroupingSet, GroupingSets

_OF_ORDER = frozenset(["nulls", "first", "last"])
_OF_SELECTION = frozenset(  # options that have no meaning for a total
    "delta domain evidence gate k_bar known max_groups_contributed mechanism monotone partitions prefer".split()
)


def read_outer_select(  # noqa: C901, PLR0912 - one rule after another
    request: AnalysisRequest, parser: SelectParser, *, otherwise: Refusal | Unsupported
) -> OuterSelect | None:
    """Return a statement with DuckDB's SQL around any number of private queries; None where nothing is around it.

    Each private query is read alone (`_read_span`), its text is replaced by FROM "dpsql released n"
    (`cut_private_queries`), DuckDB parses the rest, and `read_outer_tree` points it to the answers. It is bound in
    `OuterSelectView.bind` before a charge and run in `OuterSelectView.compute` by the evaluator after it
    (`build_answer.py`).
    """
    statement = request.statement
    tokens, explained = list_select_tokens(statement, of_duckdb=True)
    spans = find_private_spans(statement, tokens, clauses=find_clauses(statement, tokens))
    written = bool(spans)
    if spans:
        check_header(request)
        found = [each for span in spans for each in _read_span_sets(request, span, statement=statement)]
        for at, each in enumerate(found):
            check_explicit(request, each.query, computed=each.computed)
            _check_windows(request, each)
            if not (each.span.is_main or has_all_groups(each.query)) and computes_around(
                statement, tokens, query=each.query
            ):
                found[at] = replace(each, query=replace(each.query, list_note=describe_released(each.query)))
    else:
        implied = find_implied(request)
        reader = _ImpliedClauses(request, [clause.head[-1].start for clause in implied], otherwise)
        found = [each for clause in implied for each in reader.read_sets(clause)]
    mains = [each for each in found if each.span.is_main]
    if mains and mains[0].computed is None and mains[0].sets is None:
        if len(found) > 1:
            raise several_queries(statement, mains[0].span.clause)
        return None
    computed = {
        at: _write_around(request, found, start=at, parser=parser)
        for at, each in enumerate(found)
        if each.computed or each.sets
    }
    spans = [each.span for each in found]
    arrays = find_array_values(statement, tokens)
    around = cut_private_queries(
        statement,
        tokens,
        spans=spans,
        computed=computed,
        arrays=arrays,
        literal=partial(_bind_outer, request, arrays=arrays),
    )
    for number, each in enumerate(found, 1):
        if f'"{name_released(number)}"' not in around.text:  # it is inside another one
            raise several_queries(statement, each.span.clause)
    try:
        query = read_outer_tree(
            around.text,
            tuple(replace(each.released, explained=explained) for each in found),
            parameters=around.literals,
            parser=parser,
            catalog=request.catalog,
            place=statement.place(tokens[0]),
            explained=explained,
            postgres=statement.postgres,
        )
    except (Refusal, Unsupported) as error:
        other = error
        if error.code == "wrapping" and ASK_INSIDE in (error.hint or "") and not written:
            hint = "Ask about it in a statement of its own, and write what that answers into this one."
            other = Refusal("wrapping", error.reason, hint=hint, place=error.place)
    else:  # it may name what is not there, of which dpsql says more than DuckDB
        return replace(query, otherwise=otherwise) if otherwise.code.startswith("unknown") else query
    is_better = otherwise.code.startswith("unknown") or not (found or request.is_lenient)
    if computed and not is_better:  # the refusal of a private query may explain more than that of what is around it
        is_arithmetic = otherwise.code in {"aggregate", "syntax"}
        is_better = other.code == "interval-end" or (other.code == "syntax" and not is_arithmetic)
    if otherwise.code in {STORED, ENDED}:
        is_better = otherwise.code == ENDED or bool(found)
    raise otherwise if is_better else other


def _bind_outer(request: AnalysisRequest, value: Value, *, arrays: Collection[Value]) -> Literal | list[Literal]:
    """Return what is bound to a parameter around private queries, and the items of an array, which may be a text."""
    bound = request.bound[value] if value.kind == "parameter" else value.content
    if isinstance(bound, UnboundParameter):  # something stands for it, small enough for a cast to any type of numbers
        bound.is_array |= value in arrays
        if bound.value is None and not bound.is_array:
            bound.otherwise = NULL  # DuckDB decides what it may be
        sample = make_literal(bound, value.place)
        if sample.type == BIGINT:
            sample = Literal(1, BIGINT)
        return [sample] if bound.is_array else sample
    if value in arrays and isinstance(bound, str):
        bound = read_array(bound, value.place)
    if isinstance(bound, list | tuple):
        return [make_literal(each, value.place) for each in bound]
    return make_literal(bound, value.place)


@dataclass(frozen=True, slots=True)
class _Found:
    """A private query of a statement; where it computes with measures, with that, and why it was refused as a whole.

    A query of one of several grouping sets has all `sets`, which follow each other.
    """

    span: PrivateSpan
    query: PrivateQuery
    computed: ComputedSelect | None = None
    refused: Refusal | Unsupported | None = None
    sets: GroupingSets | None = None

    @property
    def released(self) -> PrivateQuery:
        """The private query without the order and limit that are those of the SELECT around it."""
        is_inside = self.computed is not None or self.sets is not None
        return replace(self.query, order=(), limit=None) if is_inside else self.query


def _lift(request: AnalysisRequest, span: PrivateSpan, *, statement: ScannedStatement) -> SplitStatement:
    """Return one private query of a statement, split from its clause."""
    lifted = split_clause(statement, nest(span.tokens).nodes, start=span.clause, parameter=request.bound.__getitem__)
    return put_header_options(lifted, request.header)


def _read_span_sets(request: AnalysisRequest, span: PrivateSpan, *, statement: ScannedStatement) -> list[_Found]:
    """Return the private queries that a text in place of one means: one for each of its grouping sets."""
    lifted = _lift(request, span, statement=statement)
    sets = _expand_sets(statement, lifted.tokens)
    if sets is None:
        return [_read_span(request, lifted, span=span, statement=statement)]
    read = partial(_read_span, request, span=span, statement=statement)
    return [replace(each, sets=sets) for each in _read_sets(lifted, sets, read=read, catalog=request.catalog)]


def _read_span(
    request: AnalysisRequest, lifted: SplitStatement, *, span: PrivateSpan, statement: ScannedStatement
) -> _Found:
    """Return one private query of a statement."""
    try:
        if request.is_lenient:
            check_tokens(request.scanned, span.tokens)
        return _Found(span, read_private(request.sources(statement), lifted))
    except (Refusal, Unsupported) as error:
        refused = error
    computed = None
    try:
        computed = None if refused.code == "option" else split_measures(statement, lifted.tokens)
    except Unsupported as error:
        if refused.code == "aggregate":
            refused = error
    if computed is None:
        raise refused
    if request.is_lenient:
        check_tokens(request.scanned, computed.copied)
    query = read_private(request.sources(statement), replace(lifted, tokens=computed.tokens))
    return _Found(span, query, computed, refused)


@dataclass(frozen=True, slots=True)
class _ImpliedClauses:
    """Reader of the private queries that standard SQL implies, which raises `otherwise` where a clause ends none.

    `marks` are where their heads end in the text, of all of them.
    """

    request: AnalysisRequest
    marks: Collection[int]
    otherwise: Refusal | Unsupported

    def find_span(self, clause: ImpliedClause, *, all_groups: bool) -> tuple[ScannedStatement, PrivateSpan]:
        """Return the statement with its implied clause, and the private query that this ends."""
        explicit = add_clause(self.request.statement, clause, all_groups=all_groups)
        tokens, _ = list_select_tokens(explicit, of_duckdb=True)
        spans = find_private_spans(explicit, tokens, clauses=find_clauses(explicit, tokens), marks=self.marks)
        if not spans:  # what the clause would end is no query
            raise self.otherwise
        return explicit, spans[0]

    def read_sets(self, clause: ImpliedClause) -> list[_Found]:
        """Return the private queries of an implied clause: one for each grouping set of its query."""
        sets = None
        if _has_sets(clause.head):
            explicit, span = self.find_span(clause, all_groups=False)
            sets = _expand_sets(explicit, _lift(self.request, span, statement=explicit).tokens)
        if sets is None:
            return [self.read(clause)]
        found = list[_Found]()
        for each in sets.sets:
            choose = partial(_choose_set, sets=sets, chosen=each)
            one = self.read(replace(clause, is_total=each.is_total), choose)
            # LIMIT would cut the rows of all sets together, and a domain is that of one key
            cut = one.query.cut_list and replace(one.query.cut_list, alone="", every="")
            found.append(replace(one, sets=sets, query=replace(one.query, cut_list=cut)))
        return found

    def read(
        self, clause: ImpliedClause, choose: Callable[[SplitStatement], SplitStatement] = lambda lifted: lifted
    ) -> _Found:
        """Return the private query of an implied clause, or of the grouping set that `choose` takes of it."""
        request, spans = self.request, list[_Found]()

        def read(*, all_groups: bool) -> PrivateQuery:
            explicit, span = self.find_span(clause, all_groups=all_groups)
            try:
                lifted = choose(_lift(request, span, statement=explicit))
                # `check` below looks at the span of the query that was read last.
                spans[:] = [_read_span(request, lifted, span=span, statement=explicit)]
            except Refusal as error:
                if error.code != "nothing-private":
                    raise
                raise self.otherwise from None
            return spans[0].query

        def check(found: PrivateQuery) -> None:
            _check_windows(request, spans[0], clause=clause)
            try:
                check_ranking(found, spans[0].computed)
            except (Refusal, Unsupported) as error:
                raise (_find_unknown(request, spans[0]) or error) from None

        try:
            query = read_implied(request, clause, read=read, check=check)
        except Refusal as error:
            # QUALIFY ROW_NUMBER() OVER (PARTITION BY country ORDER BY n DESC) <= 3 is TOP 3 PRIVATE PER country, if
            # WHERE or a CASE says which countries there are; the statement is then read again with that clause.
            per = _find_per(request, spans, clause=clause) if error.code == "window" else None
            if per is None:
                raise
            per = replace(per, k=min(per.k or 1, request.standard.max_k))
            stated = replace(clause, k=per.k or 1, may_be_all=False)  # the statement says how many it wants
            choose = partial(_choose_per, per=per)
        else:
            k = None if has_all_groups(query) else _find_limit(request, spans, clause=clause)
            if k is None:
                return replace(spans[0], query=query)
            stated = replace(clause, k=min(k, request.standard.max_k), written_limit=k, may_be_all=False)
        return self.read(stated, choose)


def _choose_per(lifted: SplitStatement, *, per: Clause) -> SplitStatement:
    """Return a private query with the clause that has PER, in place of TOP k PRIVATE."""
    known = lifted.clause
    is_top = known is not None and known.shape == "top"
    return replace(lifted, clause=replace(per, place=known.place)) if known and is_top else lifted


def _find_per(request: AnalysisRequest, found: Sequence[_Found], *, clause: ImpliedClause) -> Clause | None:
    """Return the clause with PER that QUALIFY of a private SELECT asks for, None without it."""
    ranked = _find_ranked(request, found, clause=clause)
    return None if ranked is None else ranked.find_per(found[0].query)


def _find_limit(request: AnalysisRequest, found: Sequence[_Found], *, clause: ImpliedClause) -> int | None:
    """Return the k of QUALIFY ROW_NUMBER() OVER (ORDER BY COUNT(*) DESC) <= k; None without it, or beside a LIMIT."""
    ranked = None if clause.written_limit is not None else _find_ranked(request, found, clause=clause)
    return None if ranked is None else ranked.find_limit(found[0].query)


def _find_ranked(request: AnalysisRequest, found: Sequence[_Found], *, clause: ImpliedClause) -> RankedSelect | None:
    """Return a private SELECT that computes with its measures, None for another."""
    each = next(iter(found), None)
    if each is None or each.computed is None:
        return None
    return RankedSelect(request.statement, request.catalog, each.span, each.computed, clause)


def _find_unknown(request: AnalysisRequest, found: _Found) -> Refusal | None:
    """Return the refusal of a name in ORDER BY or HAVING that is no column and stands nowhere before; None without."""
    words = [] if found.computed is None else list(found.computed.words)
    tables = [table for table in request.catalog.tables if table.name in found.query.tables]
    columns = [name for table in tables for name, _ in table.columns]
    kinds = [token.token_type.name for token in words]
    first = len(flatten(split(nest(words).nodes, {"HAVING", "ORDER_BY"})[0]))
    if "OVER" in kinds[first:]:
        return None
    known = {ascii_lower(name) for name in columns} | {ascii_lower(token.text) for token in words[:first]}
    for at in range(first, len(words)):
        is_name = kinds[at] in {"VAR", "IDENTIFIER"} and request.statement.value(words[at].text) is None
        is_alone = kinds[at + 1 : at + 2] != ["L_PAREN"] and kinds[at - 1] not in {"ALIAS", "DCOLON", "R_PAREN"}
        if is_name and is_alone and ascii_lower(words[at].text) not in known | _OF_ORDER:
            aliases = [each.name for each in found.query.outputs if each.key is not None]
            aliases += [name for _, name in found.computed.items if name] if found.computed is not None else []
            names = list(dict.fromkeys([*aliases, *columns]))
            hint = list_names("The columns here are", names, wanted=words[at].text)
            place = request.statement.place(words[at])
            return Refusal("unknown-column", "There is no such column here.", hint=hint, place=place)
    return None


def _check_windows(request: AnalysisRequest, found: _Found, *, clause: ImpliedClause | None = None) -> None:
    """Refuse a window of a private SELECT that needs groups which are not released."""
    if found.computed is not None and found.computed.windows:
        RankedSelect(request.statement, request.catalog, found.span, found.computed, clause).check(found.query)


def _write_around(request: AnalysisRequest, found: Sequence[_Found], *, start: int, parser: SelectParser) -> Parts:
    """Return the SELECT around private query number `start`, from 0, and around those of its other grouping sets.

    Inside another SELECT it is in parentheses.
    """
    first, written = found[start], list[tuple[Parts, list[str]]]()
    others = [] if first.sets is None else first.sets.sets[1:]
    for number, each in enumerate(found[start : start + 1 + len(others)], start + 1):
        if each.computed is not None:
            written.append(_write_select(request, each, number=number, parser=parser))
            continue
        names = [output.name for output in each.query.outputs]
        columns = ", ".join(map(quote_name, names))
        written.append(((f"SELECT {columns} FROM {quote_name(name_released(number))}",), names))  # noqa: S608
    parts = written[0][0] if first.sets is None else first.sets.write(written)
    return parts if first.span.is_main else ["(", *parts, ")"]


def _write_select(
    request: AnalysisRequest, found: _Found, *, number: int, parser: SelectParser
) -> tuple[Parts, list[str]]:
    """Return the SELECT around a private query that computes with its measures, and its columns."""
    computed, statement = found.computed, request.statement
    assert computed is not None  # noqa: S101 - of the caller
    outputs = [output.name for output in found.query.outputs]
    if found.sets is not None:
        computed = computed.without_order()
    parts, written = computed.write(outputs, source=name_released(number))
    names = [ascii_lower(name) for name in written]
    if len(set(names)) < len(names):
        hint, where = "Give each output its own alias.", statement.place(computed.words[0])
        raise Refusal("output-names", "Two outputs have the same name.", hint=hint, place=where)
    tables = [table for table in request.catalog.tables if table.name in found.query.tables]
    columns = {ascii_lower(name) for table in tables for name, _ in table.columns}
    text = write_parts(statement, parts)
    ungrouped = find_ungrouped(text, names, columns=columns, parser=parser)
    if ungrouped:
        raise _refuse_ungrouped(statement, found, ungrouped=ungrouped, columns=columns)
    return parts, written


def _refuse_ungrouped(
    statement: ScannedStatement, found: _Found, *, ungrouped: Collection[str], columns: Collection[str]
) -> Refusal | Unsupported:
    """Return the refusal of a column that is neither a key nor in a measure."""
    refused, computed = found.refused, found.computed
    assert refused is not None and computed is not None  # noqa: S101, PT018 - of a computed SELECT
    if "*" in ungrouped:
        hint, where = "Name the columns to group by.", statement.place(computed.words[0])
        return Refusal("star", "* would release raw columns.", hint=hint, place=where)
    named = [token for token in computed.words if ascii_lower(token.text) in ungrouped]
    quoted = [token for token in named if token.token_type.name == "IDENTIFIER"]
    if quoted and ascii_lower(quoted[0].text) not in columns:
        hint, where = propose_text(quoted[0].text).rstrip(), statement.place(quoted[0])
        return Refusal("unknown-column", "There is no such column here.", hint=hint, place=where)
    has_ends = any(ascii_lower(token.text) in INTERVAL_ENDS for token in computed.words)
    if refused.code != "aggregate" or not named or has_ends:
        return refused
    hint = "Group by it: GROUP BY ALL groups by all that is selected."
    if found.query.clause.shape == "total":
        hint = "Leave it out, or write it in COUNT, SUM or AVG."
    reason = "This is neither a group key nor in a count or sum."
    return Refusal("not-a-key", reason, hint=hint, place=statement.place(named[0]))


# Part 2: grouping sets.


def _has_sets(tokens: Sequence[Token]) -> bool:
    """Say whether a private query may have grouping sets, which few have."""
    return any(token.token_type.name in GROUPING_SETS for token in tokens)


def _expand_sets(statement: ScannedStatement, tokens: list[Token]) -> GroupingSets | None:
    """Return the grouping sets of a private query, None without any."""
    if not _has_sets(tokens):
        return None
    from dpsql.sql.syntax.grouping_sets import expand_grouping_sets

    return expand_grouping_sets(statement, tokens)


def _choose_set(lifted: SplitStatement, *, sets: GroupingSets, chosen: GroupingSet) -> SplitStatement:
    """Return the private query of one of the grouping sets of a statement."""
    clause = lifted.clause
    assert clause is not None  # noqa: S101 - of the caller
    stated = clause.stated
    if stated is not None and stated.epsilon is not None and len(sets.sets) > 1:
        reason = "The epsilon of OPTIONS is that of one private query, and each grouping set is one."
        hint = "Leave epsilon and delta out: each set then costs what the policy says."
        raise Refusal("option", reason, hint=hint, place=stated.place)
    if not chosen.is_total:
        return replace(lifted, tokens=chosen.tokens)
    total = replace(clause, k=None, per=None, shape="total")
    return _leave_options(replace(lifted, tokens=chosen.tokens, clause=total), _OF_SELECTION)


def _leave_options(lifted: SplitStatement, names: Collection[str]) -> SplitStatement:
    """Return a private query without the options of these names."""
    clause = lifted.clause
    assert clause is not None  # noqa: S101 - of the caller
    options = {name: option for name, option in clause.options.items() if name not in names}
    return replace(lifted, clause=replace(clause, options=MappingProxyType(options)))


def _read_sets(
    lifted: SplitStatement, sets: GroupingSets, *, read: Callable[[SplitStatement], _Found], catalog: Catalog
) -> list[_Found]:
    """Return the private query of each grouping set; the option `domain` is for those of the one key that it has.

    Raises `Refusal` where it would be the domain of several keys.
    """
    domain = lifted.clause.options.get("domain") if lifted.clause is not None else None
    queries, listed = list[_Found](), set[Expression]()
    for each in sets.sets:
        part = _choose_set(lifted, sets=sets, chosen=each)
        if domain is None or each.is_total:
            queries.append(read(part))
            continue
        query = read(_leave_options(part, {"domain"}))
        keys = _list_open_keys(query.query, catalog=catalog)
        if keys:
            listed |= set(keys)
            query = read(part)
        queries.append(query)
    if domain is not None and len(listed) > 1:
        reason = "The domain is that of one key, and the grouping sets have several keys without known values."
        hint = "Leave the domain out and write TOP 10 PRIVATE, or write a query for each set with a domain of its own."
        raise Refusal("domain", reason, hint=hint, place=domain.place)
    return queries


def _list_open_keys(query: PrivateQuery, *, catalog: Catalog) -> list[Expression]:
    """Return the keys whose values the statement does not tell; all keys of a ranking, whose domain is of them."""
    if query.clause.shape == "top":
        return list(query.keys)
    is_known = (is_time_bucket(key) or list_known_values(key, query.body, catalog=catalog) for key in query.keys)
    return [key for key, known in zip(query.keys, is_known, strict=True) if not known]
