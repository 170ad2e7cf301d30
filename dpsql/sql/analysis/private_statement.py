"""Private query of a statement, where its clause is written or implied.

A private query that a statement of standard SQL implies: all groups of a calendar, or the first k.

A statement that would mean something else in plain SQL is refused: its first keys in alphabetical order, or its least
frequent ones.

Outer SELECT: private queries anywhere in it are each read alone, and the text around them is DuckDB's SQL. A private
SELECT that computes with its measures is split into one that releases them and a SELECT around it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from dpsql.errors import Refusal, Unsupported
from dpsql.sql.analysis.expressions import READERS
from dpsql.sql.analysis.from_clause import Sources
from dpsql.sql.analysis.known_values import check_groups_known
from dpsql.sql.analysis.outer_tree import SelectParser, find_ungrouped, read_outer_tree
from dpsql.sql.analysis.predicates import read_array
from dpsql.sql.analysis.private_select import read_private
from dpsql.sql.analysis.ranked_statements import (
    ListReading,
    RankedSelect,
    computes_around,
    describe_cut_list,
    describe_released,
    has_all_groups,
    refuse_computation,
)
from dpsql.sql.analysis.reader import Reader
from dpsql.sql.functions.allow_list import INTERVAL_ENDS, PatternCheck
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.literals import Clock, UnboundParameter
from dpsql.sql.ir.scope import list_names, propose_text
from dpsql.sql.ir.statements import OuterSelect, PrivateQuery
from dpsql.sql.ir.tree import Literal
from dpsql.sql.ir.types import BIGINT, NULL
from dpsql.sql.lexer import ScannedStatement, Value, ascii_lower, check_tokens
from dpsql.sql.syntax.block import flatten, nest, split
from dpsql.sql.syntax.clause import SplitStatement, find_clauses, list_select_tokens, several_queries, split_clause
from dpsql.sql.syntax.computed import ComputedSelect, split_measures
from dpsql.sql.syntax.forms import find_array_values
from dpsql.sql.syntax.googlesql import PrivacyHeader
from dpsql.sql.syntax.implied import (
    ImpliedClause,
    PrivateNames,
    StandardSQL,
    add_clause,
    describe_end,
    find_implied_clauses,
)
from dpsql.sql.syntax.parameters import make_literal
from dpsql.sql.syntax.spans import (
    Parts,
    PrivateSpan,
    cut_private_queries,
    find_private_spans,
    name_released,
    write_parts,
)

_OF_ORDER = frozenset(["nulls", "first", "last"])
ROW_CAP = 1_000  # a LIMIT from here on is a tool's own: no reader of a chart wants so many keys by name
_Check = Callable[[PrivateQuery], None]


@dataclass(frozen=True, slots=True)
class AnalysisRequest:
    """A statement with what it is analyzed with; its clock is read once.

    `scanned` is the statement as it was cut into words, before anything was added to it or taken out.
    """

    statement: ScannedStatement
    bound: dict[Value, object]
    catalog: Catalog
    accepts_pattern: PatternCheck
    clock: Clock | None
    header: PrivacyHeader | None
    is_lenient: bool
    scanned: ScannedStatement

    def sources(self, statement: ScannedStatement) -> Sources:
        """Return what reads the tables of a statement, which is this one or has a clause more."""
        reader = Reader(statement, self.bound, self.accepts_pattern, READERS, self.clock)
        return Sources(self.catalog, reader)


def find_implied(
    asked: AnalysisRequest, standard: StandardSQL, *, besides: frozenset[str] = frozenset()
) -> list[ImpliedClause]:
    """Return the clauses that standard SQL implies; none where it is not read as private.

    Names `besides` those of the private tables mean one, too.
    """
    header = asked.header
    if not standard.is_private and header is None:
        return []
    private = [table for table in asked.catalog.tables if table.privacy_unit is not None]
    names = PrivateNames(
        besides.union(ascii_lower(table.name.rpartition(".")[2]) for table in private),
        frozenset(ascii_lower(table.privacy_unit or "") for table in private),
    )
    parameter = asked.bound.__getitem__
    found = find_implied_clauses(asked.statement, names, default_k=standard.default_k, parameter=parameter)
    if header is not None and found and [clause.select for clause in found] != [header.select]:
        hint = "Write WITH DIFFERENTIAL_PRIVACY at the SELECT that aggregates the rows of a private table."
        raise Refusal("clause", "This SELECT is not the private query.", hint=hint, place=header.place)
    return found


def check_explicit(asked: AnalysisRequest, query: PrivateQuery, *, computed: ComputedSelect | None = None) -> None:
    """Refuse a query with a clause for an order that it cannot have, and for groups that are not known."""
    check_ranking(query, computed)
    if query.clause.shape == "all" and not any(isinstance(each, UnboundParameter) for each in asked.bound.values()):
        check_groups_known(query, catalog=asked.catalog)


def check_header(asked: AnalysisRequest) -> None:
    """Refuse WITH DIFFERENTIAL_PRIVACY beside a clause that is written."""
    if asked.header is not None:
        hint = "Leave WITH DIFFERENTIAL_PRIVACY out, or the clause that ends in PRIVATE."
        raise Refusal("clause", "The query is private in two ways.", hint=hint, place=asked.header.place)


def put_header_options(lifted: SplitStatement, header: PrivacyHeader | None) -> SplitStatement:
    """Return a private query with the options of WITH DIFFERENTIAL_PRIVACY."""
    if header is None or lifted.clause is None:
        return lifted
    return replace(lifted, clause=replace(lifted.clause, options=header.options, terms=header.terms))


class _Read(Protocol):
    def __call__(self, *, all_groups: bool) -> PrivateQuery:
        """Return the statement with ALL PRIVATE, or with TOP k PRIVATE."""


@dataclass(frozen=True, slots=True)
class ImpliedReading:
    """What a statement of standard SQL is read with: the tables, the largest k, and WITH DIFFERENTIAL_PRIVACY.

    `check` refuses a ranking.
    """

    statement: ScannedStatement
    catalog: Catalog
    max_k: int
    header: PrivacyHeader | None = None
    check: _Check | None = None


def read_implied(clause: ImpliedClause, read: _Read, *, by: ImpliedReading) -> PrivateQuery:  # noqa: C901 - one rule after another
    """Return the private query that a statement implies.

    The strategy of WITH DIFFERENTIAL_PRIVACY decides whether the groups are public.
    """
    header = by.header
    strategy = "" if header is None else header.strategy
    if clause.is_total:
        return _mark(read(all_groups=False))
    if strategy == "public":
        found = read(all_groups=True)
        if found.domain is None and not found.clause.options.get("domain"):
            hint = "Group by a time bucket with bounds in WHERE, or add domain = ['DE', 'FR'] to OPTIONS."
            reason = "PUBLIC_GROUPS needs groups that the statement or the policy determines."
            raise Refusal("domain", reason, hint=hint, place=None if header is None else header.place)
        return _mark(found)
    if clause.may_be_all and strategy != "threshold" and (every := _read_all(read)) is not None:
        return every
    found = _mark(read(all_groups=False))
    try:
        (by.check or check_ranking)(found)
    except Refusal as error:
        every = None
        if error.code in {"order", "window"} and strategy != "threshold" and not clause.may_be_all:
            every = _read_all(read)  # the first of all groups, in any order
        if every is None:
            raise
        return every
    if has_all_groups(found):
        return found
    # a ranking notes which groups SQL promises besides
    if clause.around is not None and clause.may_be_all:
        raise refuse_computation(by.statement, clause, found=clause.around, query=found, catalog=by.catalog)
    if clause.may_be_all and not clause.is_largest:
        may_have_clause = not clause.beside and by.header is None
        after = describe_end(by.statement, clause) if clause.is_inside else ""
        reading = ListReading(clause.written_limit, by.max_k, may_have_clause, after)
        return replace(found, cut_list=describe_cut_list(found, reading, catalog=by.catalog))
    return replace(found, list_note=describe_released(found) if clause.computes and not clause.is_largest else "")


def _read_all(read: _Read) -> PrivateQuery | None:
    """Return the query with ALL PRIVATE, None where its groups are not known; refuse a calendar that has no bounds."""
    try:
        found = read(all_groups=True)
    except Refusal as error:
        if error.code == "domain":  # a calendar without bounds, or of too many buckets
            raise
        return None
    return None if found.domain is None else _mark(found)


def _mark(query: PrivateQuery) -> PrivateQuery:
    """Return the query with a clause that says that it was not written."""
    return replace(query, clause=replace(query.clause, implied=True))


def check_ranking(query: PrivateQuery, computed: ComputedSelect | None = None) -> None:
    """Refuse a ranking whose LIMIT gives the number of keys and whose order is not by a measure.

    HAVING is tested on the released groups, so it may only ask for large values of the measure that ranks. With
    `computed`, that has the order and HAVING of the query.
    """
    if not query.clause.implied or query.clause.shape != "top":
        return
    place, is_cut = query.clause.place, query.limit is not None and query.limit < ROW_CAP
    by_measure = "Leave LIMIT out, or order by a count or sum, largest first: ORDER BY COUNT(*) DESC."
    if query.order:
        first = query.order[0]
        output = query.outputs[first.output]
        if output.key is not None and is_cut:
            reason = "The first keys in the order of their names are no private answer: the most frequent ones are."
            raise Refusal("order", reason, hint=by_measure, place=place)
        if output.key is None and not first.descending:
            reason, other = "The least frequent groups are not found in private.", "SELECT * FROM (... DESC LIMIT 10)"
            hint = f"Write ORDER BY ... DESC, or order the first ones: {other} AS t ORDER BY ..."
            raise Refusal("order", reason, hint=hint, place=place)
        if output.divisor is not None:
            hint = "Order by COUNT(*) or SUM, largest first."
            raise Refusal("aggregate", "AVG does not rank groups.", hint=hint, place=place)
    outputs = [(term, query.outputs[term.output]) for term in query.keep]
    tests_others = any(
        term.operator not in {">", ">="} or output.measure != 0 or output.divisor is not None
        for term, output in outputs
    )
    if computed is not None and not tests_others:
        if computed.is_other_order and is_cut:
            reason = "LIMIT takes the first groups in an order that is not that of a count or sum."
            raise Refusal("order", reason, hint=by_measure, place=place)
        tests_others = computed.tests_others
    if tests_others:
        outside = f"filter the first ones: SELECT * FROM (... DESC LIMIT {query.clause.k}) AS t WHERE ..."  # noqa: S608 - a hint
        hint = f"Write HAVING ... >= 100 of the measure that ranks, or {outside}"
        reason = "HAVING is tested on the most frequent groups alone, and others pass this test, too."
        raise Unsupported("having", reason, hint=hint, place=place)


def read_outer_select(  # noqa: C901 - one rule after another
    asked: AnalysisRequest, standard: StandardSQL, *, parser: SelectParser, refused: Refusal | Unsupported
) -> OuterSelect | None:
    """Return a statement with DuckDB's SQL around any number of private queries; None where nothing is around it."""
    statement = asked.statement
    tokens, explained = list_select_tokens(statement, of_duckdb=True)
    spans = find_private_spans(statement, tokens, clauses=find_clauses(statement, tokens))
    written = bool(spans)
    if spans:
        check_header(asked)
        found = [_read_span(asked, span, statement=statement) for span in spans]
        for at, each in enumerate(found):
            check_explicit(asked, each.query, computed=each.computed)
            _check_windows(asked, each)
            if not (each.span.is_main or has_all_groups(each.query)) and computes_around(
                statement, tokens, query=each.query
            ):
                found[at] = replace(each, query=replace(each.query, list_note=describe_released(each.query)))
    else:
        implied = find_implied(asked, standard)
        marks = [clause.head[-1].start for clause in implied]
        read = partial(_read_implied_span, asked, marks=marks, refused=refused, max_k=standard.max_k)
        found = [read(clause) for clause in implied]
    mains = [each for each in found if each.span.is_main]
    if mains and mains[0].computed is None:
        if len(found) > 1:
            raise several_queries(statement, mains[0].span.clause)
        return None
    computed = {
        at: _write_computed(asked, each, number=at + 1, parser=parser) for at, each in enumerate(found) if each.computed
    }
    spans = [each.span for each in found]
    arrays = find_array_values(statement, tokens)
    around = cut_private_queries(
        statement,
        tokens,
        spans=spans,
        computed=computed,
        arrays=arrays,
        literal=partial(_bind_outer, asked, arrays=arrays),
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
            catalog=asked.catalog,
            place=statement.place(tokens[0]),
            explained=explained,
            postgres=statement.postgres,
        )
    except (Refusal, Unsupported) as error:
        other = error
        if error.code == "wrapping" and "where TOP k PRIVATE is" in (error.hint or "") and not written:
            hint = "Ask about it in a statement of its own, and write what that answers into this one."
            other = Refusal("wrapping", error.reason, hint=hint, place=error.place)
    else:  # it may name what is not there, of which dpsql says more than DuckDB
        return replace(query, otherwise=refused) if refused.code.startswith("unknown") else query
    is_better = refused.code.startswith("unknown") or not (found or asked.is_lenient)
    if computed and not is_better:  # the refusal of a private query may explain more than that of what is around it
        is_arithmetic = refused.code in {"aggregate", "syntax"}
        is_better = other.code == "interval-end" or (other.code == "syntax" and not is_arithmetic)
    raise refused if is_better else other


def _bind_outer(asked: AnalysisRequest, value: Value, *, arrays: Collection[Value]) -> Literal | list[Literal]:
    """Return what is bound to a parameter around private queries, and the items of an array, which may be a text."""
    bound = asked.bound[value] if value.kind == "parameter" else value.content
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
    """A private query of a statement; where it computes with measures, with that, and why it was refused as a whole."""

    span: PrivateSpan
    query: PrivateQuery
    computed: ComputedSelect | None = None
    refused: Refusal | Unsupported | None = None

    @property
    def released(self) -> PrivateQuery:
        """The private query without the order and limit that are those of the SELECT around it."""
        return self.query if self.computed is None else replace(self.query, order=(), limit=None)


def _read_span(asked: AnalysisRequest, span: PrivateSpan, *, statement: ScannedStatement) -> _Found:
    """Return one private query of a statement."""
    lifted = split_clause(statement, nest(span.tokens).nodes, start=span.clause, parameter=asked.bound.__getitem__)
    lifted = put_header_options(lifted, asked.header)
    try:
        if asked.is_lenient:
            check_tokens(asked.scanned, span.tokens)
        return _Found(span, read_private(asked.sources(statement), lifted))
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
    if asked.is_lenient:
        check_tokens(asked.scanned, computed.copied)
    query = read_private(asked.sources(statement), replace(lifted, tokens=computed.tokens))
    return _Found(span, query, computed, refused)


def _read_implied_span(
    asked: AnalysisRequest,
    clause: ImpliedClause,
    *,
    marks: Collection[int],
    refused: Refusal | Unsupported,
    max_k: int,
) -> _Found:
    """Return the private query of an implied clause; raise `refused` where it is none."""
    read_spans = list[_Found]()

    def read(*, all_groups: bool) -> PrivateQuery:
        explicit = add_clause(asked.statement, clause, all_groups=all_groups)
        tokens, _ = list_select_tokens(explicit, of_duckdb=True)
        spans = find_private_spans(explicit, tokens, clauses=find_clauses(explicit, tokens), marks=marks)
        if not spans:  # what the clause would end is no query
            raise refused
        try:
            read_spans[:] = [_read_span(asked, spans[0], statement=explicit)]
        except Refusal as error:
            if error.code != "nothing-private":
                raise
            raise refused from None
        return read_spans[0].query

    def check(found: PrivateQuery) -> None:
        _check_windows(asked, read_spans[0], clause=clause)
        try:
            check_ranking(found, read_spans[0].computed)
        except (Refusal, Unsupported) as error:
            raise (_find_unknown(asked, read_spans[0]) or error) from None

    reading = ImpliedReading(asked.statement, asked.catalog, max_k, asked.header, check)
    query = read_implied(clause, read, by=reading)
    return replace(read_spans[0], query=query)


def _find_unknown(asked: AnalysisRequest, found: _Found) -> Refusal | None:
    """Return the refusal of a name in ORDER BY or HAVING that is no column and stands nowhere before; None without."""
    words = [] if found.computed is None else list(found.computed.words)
    tables = [table for table in asked.catalog.tables if table.name in found.query.tables]
    columns = [name for table in tables for name, _ in table.columns]
    kinds = [token.token_type.name for token in words]
    first = len(flatten(split(nest(words).nodes, {"HAVING", "ORDER_BY"})[0]))
    if "OVER" in kinds[first:]:
        return None
    known = {ascii_lower(name) for name in columns} | {ascii_lower(token.text) for token in words[:first]}
    for at in range(first, len(words)):
        is_name = kinds[at] in {"VAR", "IDENTIFIER"} and asked.statement.value(words[at].text) is None
        is_alone = kinds[at + 1 : at + 2] != ["L_PAREN"] and kinds[at - 1] not in {"ALIAS", "DCOLON", "R_PAREN"}
        if is_name and is_alone and ascii_lower(words[at].text) not in known | _OF_ORDER:
            aliases = [each.name for each in found.query.outputs if each.key is not None]
            aliases += [name for _, name in found.computed.items if name] if found.computed is not None else []
            names = list(dict.fromkeys([*aliases, *columns]))
            hint = list_names("The columns here are", names, wanted=words[at].text)
            place = asked.statement.place(words[at])
            return Refusal("unknown-column", "There is no such column here.", hint=hint, place=place)
    return None


def _check_windows(asked: AnalysisRequest, found: _Found, *, clause: ImpliedClause | None = None) -> None:
    """Refuse a window of a private SELECT that needs groups which are not released."""
    if found.computed is not None and found.computed.windows:
        RankedSelect(asked.statement, asked.catalog, found.span, found.computed, clause).check(found.query)


def _write_computed(asked: AnalysisRequest, found: _Found, *, number: int, parser: SelectParser) -> Parts:
    """Return the SELECT around a private query that computes with its measures."""
    computed, statement = found.computed, asked.statement
    assert computed is not None  # noqa: S101 - of the caller
    outputs = [output.name for output in found.query.outputs]
    parts, written = computed.write(outputs, source=name_released(number))
    names = [ascii_lower(name) for name in written]
    if len(set(names)) < len(names):
        hint, where = "Give each output its own alias.", statement.place(computed.words[0])
        raise Refusal("output-names", "Two outputs have the same name.", hint=hint, place=where)
    tables = [table for table in asked.catalog.tables if table.name in found.query.tables]
    columns = {ascii_lower(name) for table in tables for name, _ in table.columns}
    text = write_parts(statement, parts)
    ungrouped = find_ungrouped(text, names, columns=columns, parser=parser)
    if ungrouped:
        raise _refuse_ungrouped(statement, found, ungrouped=ungrouped, columns=columns)
    return parts if found.span.is_main else ["(", *parts, ")"]


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
