"""Analysis: the text of one statement into a private query, or a refusal; no row is read, no name guessed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, cast

from dpsql.dialects import write_name
from dpsql.errors import Place, Refusal, Unsupported
from dpsql.sql.analysis.assumption import read_assumption
from dpsql.sql.analysis.commands import read_command
from dpsql.sql.analysis.domain import read_domain
from dpsql.sql.analysis.empty_results import has_no_row, remove_rows
from dpsql.sql.analysis.evaluated_select import SelectParser, find_strangers, read_evaluated
from dpsql.sql.analysis.expressions import READERS
from dpsql.sql.analysis.from_clause import Sources
from dpsql.sql.analysis.group_domains import check_groups_known, needs_bounds, read_group_domain
from dpsql.sql.analysis.implied_query import check_implied, read_implied
from dpsql.sql.analysis.interval_ends import complete_ends
from dpsql.sql.analysis.lineage import find_sole_column
from dpsql.sql.analysis.measures import (
    RELEASED_AGGREGATES,
    ReadMeasure,
    is_interval_end,
    is_measure,
    list_measures,
    read_measure,
    set_columns,
)
from dpsql.sql.analysis.not_private import find_private_table, not_private
from dpsql.sql.analysis.outer_select import answer_table, wrap_query
from dpsql.sql.analysis.partitions import read_partitions
from dpsql.sql.analysis.public_query import read_public, seeks_no_row
from dpsql.sql.analysis.reader import Reader
from dpsql.sql.analysis.released_clauses import Item, Released, read_position, read_row_count
from dpsql.sql.analysis.subqueries import check_alias, read_alias
from dpsql.sql.functions.allow_list import AGGREGATES, INTERVAL_ENDS, PatternCheck
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.clock import Clock
from dpsql.sql.ir.measures import DISTINCT_UNITS, Measure
from dpsql.sql.ir.scope import Scope, ScopeTable
from dpsql.sql.ir.statements import (
    Clause,
    Domain,
    EvaluatedQuery,
    Order,
    Output,
    PrivateQuery,
    PublicQuery,
    WrappedQuery,
)
from dpsql.sql.ir.statements import Statement as Asked
from dpsql.sql.ir.tree import Cast, Expression, FromWhere, Literal
from dpsql.sql.ir.types import NULL, Family, find_read_type
from dpsql.sql.ir.unbound_parameters import UnboundParameter
from dpsql.sql.ir.unit_equality import join_conjuncts, split_conjuncts
from dpsql.sql.lexer import Statement, Value, ascii_lower, check_tokens, scan
from dpsql.sql.syntax.clause import (
    SplitStatement,
    extract_clause,
    find_clauses,
    list_select_tokens,
    several_queries,
    split_clause,
)
from dpsql.sql.syntax.computed_measures import ComputedSelect, split_measures
from dpsql.sql.syntax.differential_privacy import PrivacyHeader, extract_header
from dpsql.sql.syntax.grammar import settle
from dpsql.sql.syntax.parameters import ParameterValues, bind, make_literal
from dpsql.sql.syntax.private_spans import (
    Parts,
    PrivateSpan,
    cut_private_queries,
    find_private_spans,
    name_released,
    write_parts,
)
from dpsql.sql.syntax.sqlglot_nodes import only, pair_items_with_text, parse, place
from dpsql.sql.syntax.standard_sql import (
    EXPLICIT,
    ImpliedClause,
    PrivateNames,
    StandardSQL,
    add_clause,
    find_implied_clauses,
)

if TYPE_CHECKING:
    from sqlglot import Token
    from sqlglot.expressions import Expression as Node

__all__ = ["analyze"]

MAX_KEYS = 16
_KEY_FAMILIES = frozenset(
    [Family.BOOLEAN, Family.INTEGER, Family.DECIMAL, Family.DOUBLE, Family.TEXT, Family.DATE, Family.TIMESTAMP]
)
_SELECT_PARTS = ("with_", "expressions", "from_", "joins", "where", "group", "having", "order", "limit", "distinct")


@dataclass(frozen=True, slots=True)
class _Request:
    """A statement with what it is analyzed with; its clock is read once."""

    statement: Statement
    bound: dict[Value, object]
    catalog: Catalog
    accepts_pattern: PatternCheck
    clock: Clock | None
    header: PrivacyHeader | None
    is_lenient: bool

    def sources(self, statement: Statement) -> Sources:
        """Return what reads the tables of a statement, which is this one or has a clause more."""
        reader = Reader(statement, self.bound, self.accepts_pattern, READERS, self.clock)
        return Sources(self.catalog, reader)


def analyze(  # noqa: PLR0913 - what a session has
    text: str,
    catalog: Catalog,
    *,
    parameters: ParameterValues = (),
    accepts_pattern: PatternCheck,
    clock: Clock | None = None,
    standard: StandardSQL = EXPLICIT,
    parser: SelectParser | None = None,
) -> Asked:
    """Analyze the statement, or raise `Refusal`, `Unsupported` or `UsageError`.

    `parameters` are the values of ?, $1 or :name. `accepts_pattern` says whether the engine compiles a regular
    expression, without any data. `clock` gives the time, and is read once, if the statement uses it. `standard` says
    whether standard SQL over private tables is read as private. With a `parser`, the SELECT around private queries may
    be of DuckDB's SQL.
    """
    statement, refused = _scan(text, is_lenient=parser is not None)
    bound = bind(statement, parameters)
    command = None if refused else read_command(statement, catalog)
    if command is not None:
        return command
    statement, header = extract_header(statement, bound.__getitem__)
    clock = None if clock is None else cache(clock)  # one reading for all parts of a statement
    asked = _Request(statement, bound, catalog, accepts_pattern, clock, header, is_lenient=refused is not None)
    if refused is None:
        try:
            return _read_alone(asked, standard)
        except (Refusal, Unsupported) as error:
            refused = error
    found = None if parser is None else _read_surrounded(asked, standard, parser=parser, refused=refused)
    if found is None:
        raise refused
    return found


def _scan(text: str, *, is_lenient: bool) -> tuple[Statement, Refusal | Unsupported | None]:
    """Return the tokens of a text, and why dpsql cannot read all of it, where it is left to DuckDB."""
    try:
        return scan(text), None
    except (Refusal, Unsupported) as error:
        refused = error
    if is_lenient:
        with suppress(Refusal, Unsupported):
            return scan(text, lenient=True), refused
    raise refused


def _read_alone(asked: _Request, standard: StandardSQL) -> Asked:
    """Return a statement with one private query or none, whose outer SELECT is in the closed language of dpsql."""
    lifted = extract_clause(asked.statement, asked.bound.__getitem__)
    if lifted.clause is not None:
        _check_header(asked)
        return _check_explicit(asked, _private(asked.sources(asked.statement), lifted))
    try:
        return _free(asked.sources(asked.statement), lifted)
    except (Refusal, Unsupported) as error:
        refused = error
    implied = _find_implied(asked, standard)
    if not implied:
        raise refused
    if len(implied) > 1:
        raise several_queries(asked.statement, asked.statement.tokens[0])

    def read(*, all_groups: bool) -> PrivateQuery | WrappedQuery:
        explicit = add_clause(asked.statement, implied[0], all_groups=all_groups)
        lifted = extract_clause(explicit, asked.bound.__getitem__)
        if lifted.clause is None:  # what it would end is no query
            raise refused
        try:
            return _private(asked.sources(explicit), _set_terms(lifted, asked.header))
        except Refusal as error:
            if error.code != "nothing-private":
                raise
        raise refused

    return read_implied(implied[0], read, header=asked.header)


def _find_implied(asked: _Request, standard: StandardSQL) -> list[ImpliedClause]:
    """Return the clauses that standard SQL implies; none where it is not read as private."""
    header = asked.header
    if not standard.is_private and header is None:
        return []
    names, parameter = _list_private_names(asked.catalog), asked.bound.__getitem__
    found = find_implied_clauses(asked.statement, names, default_k=standard.default_k, parameter=parameter)
    if header is not None and found and [clause.select for clause in found] != [header.select]:
        hint = "Write WITH DIFFERENTIAL_PRIVACY at the SELECT that aggregates the rows of a private table."
        raise Refusal("clause", "This SELECT is not the private query.", hint=hint, place=header.place)
    return found


def _check_explicit(
    asked: _Request, found: PrivateQuery | WrappedQuery, *, computed: ComputedSelect | None = None
) -> PrivateQuery | WrappedQuery:
    """Return a query whose clause is written; refuse an order that it cannot have, and groups that nothing tells."""
    check_implied(found, computed)
    if not any(isinstance(each, UnboundParameter) for each in asked.bound.values()):
        check_groups_known(found.inner if isinstance(found, WrappedQuery) else found, catalog=asked.catalog)
    return found


def _check_header(asked: _Request) -> None:
    if asked.header is not None:
        hint = "Leave WITH DIFFERENTIAL_PRIVACY out, or the clause that ends in PRIVATE."
        raise Refusal("clause", "The query is private in two ways.", hint=hint, place=asked.header.place)


def _set_terms(lifted: SplitStatement, header: PrivacyHeader | None) -> SplitStatement:
    """Return a private query with the options of WITH DIFFERENTIAL_PRIVACY."""
    if header is None or lifted.clause is None:
        return lifted
    return replace(lifted, clause=replace(lifted.clause, options=header.options, terms=header.terms))


def _read_surrounded(
    asked: _Request, standard: StandardSQL, *, parser: SelectParser, refused: Refusal | Unsupported
) -> EvaluatedQuery | None:
    """Return a statement with DuckDB's SQL around any number of private queries; None where nothing is around it."""
    statement = asked.statement
    tokens, explained = list_select_tokens(statement, of_duckdb=True)
    spans = find_private_spans(statement, tokens, clauses=find_clauses(statement, tokens))
    if spans:
        _check_header(asked)
        found = [_read_span(asked, span, statement=statement) for span in spans]
        for each in found:
            _check_explicit(asked, each.query, computed=each.computed)
    else:
        implied = _find_implied(asked, standard)
        marks = [clause.tokens[clause.at - 1].start for clause in implied]
        found = [_read_implied_span(asked, clause, marks=marks, refused=refused) for clause in implied]
    mains = [each for each in found if each.span.is_main]
    if mains and mains[0].computed is None:
        if len(found) > 1:
            raise several_queries(statement, mains[0].span.tokens[mains[0].span.clause])
        return None
    computed = {
        at: _write_computed(asked, each, number=at + 1, parser=parser) for at, each in enumerate(found) if each.computed
    }

    def make_outer(value: Value) -> Literal:
        bound = asked.bound[value]
        if isinstance(bound, UnboundParameter):
            bound.otherwise = NULL  # DuckDB decides what it may be
        return make_literal(bound, value.place)

    spans = [each.span for each in found]
    around = cut_private_queries(statement, tokens, spans=spans, computed=computed, literal=make_outer)
    _check_apart(statement, found, text=around.text)
    try:
        query = read_evaluated(
            around.text,
            tuple(replace(each.released, explained=explained) for each in found),
            parameters=around.literals,
            parser=parser,
            catalog=asked.catalog,
            place=statement.place(tokens[0]),
            explained=explained,
        )
    except (Refusal, Unsupported) as error:
        other = error
    else:  # it may name what is not there, of which dpsql says more than DuckDB
        return replace(query, otherwise=refused) if refused.code.startswith("unknown") else query
    is_better = refused.code.startswith("unknown") or not (found or asked.is_lenient)
    raise refused if is_better or (computed and _explains_more(refused, other)) else other


def _check_apart(statement: Statement, found: Sequence[_Found], *, text: str) -> None:
    """Refuse a private query that stands in another one, and so not in the text around them."""
    for number, each in enumerate(found, 1):
        if f'"{name_released(number)}"' not in text:
            raise several_queries(statement, each.span.tokens[each.span.clause])


def _explains_more(refused: Refusal | Unsupported, other: Refusal | Unsupported) -> bool:
    """Say whether the refusal of a private query explains more than that of the SELECT around its measures."""
    is_arithmetic = refused.code in {"aggregate", "syntax"}
    return other.code == "interval-end" or (other.code == "syntax" and not is_arithmetic)


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


def _read_span(asked: _Request, span: PrivateSpan, *, statement: Statement) -> _Found:
    """Return the private query that stands somewhere in a statement."""
    lifted = split_clause(statement, span.tokens, start=span.clause, parameter=asked.bound.__getitem__)
    lifted = _set_terms(lifted, asked.header)
    try:
        if asked.is_lenient:
            check_tokens(statement, span.tokens)
        return _Found(span, _read_plain(asked.sources(statement), lifted))
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
        check_tokens(statement, computed.copied)
    query = _read_plain(asked.sources(statement), replace(lifted, tokens=computed.tokens))
    return _Found(span, query, computed, refused)


def _read_plain(sources: Sources, lifted: SplitStatement) -> PrivateQuery:
    found = _private(sources, lifted)
    assert isinstance(found, PrivateQuery)  # noqa: S101 - nothing is around it
    return found


def _read_implied_span(
    asked: _Request, clause: ImpliedClause, *, marks: Collection[int], refused: Refusal | Unsupported
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

    def check(found: PrivateQuery | WrappedQuery) -> object:
        return check_implied(found, read_spans[0].computed)

    query = read_implied(clause, read, header=asked.header, check=check)
    assert isinstance(query, PrivateQuery)  # noqa: S101 - nothing is around it
    return replace(read_spans[0], query=query)


def _write_computed(asked: _Request, found: _Found, *, number: int, parser: SelectParser) -> Parts:
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
    strangers = find_strangers(text, names, columns=columns, parser=parser)
    if strangers:
        raise _refuse_stranger(statement, found, strangers=strangers)
    return parts if found.span.is_main else ["(", *parts, ")"]


def _refuse_stranger(statement: Statement, found: _Found, *, strangers: Collection[str]) -> Refusal | Unsupported:
    """Return the refusal of a column that is neither a key nor in a measure."""
    refused, computed = found.refused, found.computed
    assert refused is not None and computed is not None  # noqa: S101, PT018 - of a computed SELECT
    if "*" in strangers:
        hint, where = "Name the columns to group by.", statement.place(computed.words[0])
        return Refusal("star", "* would release raw columns.", hint=hint, place=where)
    named = [token for token in computed.words if ascii_lower(token.text) in strangers]
    has_ends = any(ascii_lower(token.text) in INTERVAL_ENDS for token in computed.words)
    if refused.code != "aggregate" or not named or has_ends:
        return refused
    hint = "Group by it: GROUP BY ALL groups by all that is selected."
    if found.query.clause.shape == "total":
        hint = "Leave it out, or write it in COUNT, SUM or AVG."
    reason = "This is neither a group key nor in a count or sum."
    return Refusal("not-a-key", reason, hint=hint, place=statement.place(named[0]))


def _private(sources: Sources, lifted: SplitStatement) -> PrivateQuery | WrappedQuery:
    """Return the private query of a statement that has a clause, with the SELECT around it."""
    statement, clause = sources.reader.statement, lifted.clause
    assert clause is not None  # noqa: S101 - of the caller
    select = parse(statement, settle(statement, lifted.tokens, aggregates=RELEASED_AGGREGATES | INTERVAL_ENDS))
    private = _Analysis(statement, sources, lifted, clause).query(select)
    return private if lifted.outer is None else _around(private, sources, tokens=lifted.outer)


def _list_private_names(catalog: Catalog) -> PrivateNames:
    private = [table for table in catalog.tables if table.privacy_unit is not None]
    return PrivateNames(
        frozenset(ascii_lower(table.name.rpartition(".")[2]) for table in private),
        frozenset(ascii_lower(table.privacy_unit or "") for table in private),
    )


def _free(sources: Sources, lifted: SplitStatement) -> PublicQuery:
    """Return a SELECT without private rows: it names only public tables, or selects no row."""
    statement = sources.reader.statement
    query = _read(sources, lifted)
    if sources.protected:
        if lifted.explained or not has_no_row(query):
            raise not_private(statement, lifted.tokens, catalog=sources.catalog)
        return remove_rows(query)
    if lifted.explained:
        hint, where = "Leave EXPLAIN out: it costs nothing.", statement.place(statement.tokens[0])
        raise Refusal("not-a-query", "A query of public tables has no plan.", hint=hint, place=where)
    return query


def _read(sources: Sources, lifted: SplitStatement) -> PublicQuery:
    """Analyze a SELECT without the clause; if it is refused, raise the most helpful error."""
    statement, helps = sources.reader.statement, _names_public(lifted, sources.catalog)
    helps = helps or all(token.token_type.name != "FROM" for token in lifted.tokens)
    helps = helps or find_private_table(lifted.tokens, sources.catalog) is None  # a misspelt name, most likely
    try:
        select = parse(statement, settle(statement, lifted.tokens, aggregates=AGGREGATES))
        helps = helps or seeks_no_row(_apart(sources.reader), select)
        return read_public(sources, select, tokens=lifted.tokens)
    except (Refusal, Unsupported):
        if helps:
            raise
    raise not_private(statement, lifted.tokens, catalog=sources.catalog)


def _apart(reader: Reader) -> Reader:
    """Return a reader of the same statement that sees no table and no clock, and counts for itself."""
    apart = Reader(reader.statement, reader.bound, reader.accepts_pattern, READERS)
    return Sources(Catalog(()), apart).reader


def _around(private: PrivateQuery, sources: Sources, *, tokens: list[Token]) -> WrappedQuery:
    """Return the private query with the SELECT around it, which `tokens` spell and which reads its answer."""
    inside = sources.reader
    statement, catalog = inside.statement, sources.catalog
    clock = None if inside.clock is None else inside.now  # one reading for both
    reader = Reader(statement, inside.bound, inside.accepts_pattern, READERS, clock)
    outside = Sources(catalog, reader, answer_table(private))
    select = parse(statement, settle(statement, tokens, aggregates=AGGREGATES))
    query = read_public(outside, select, tokens=tokens)
    return wrap_query(private, query, catalog=catalog, place=private.clause.place)


def _names_public(lifted: SplitStatement, catalog: Catalog) -> bool:
    """Say whether a word of the statement is the name of a public table: without one it can only ask private ones."""
    public = {ascii_lower(table.name.rpartition(".")[2]) for table in catalog.tables if table.privacy_unit is None}
    return any(ascii_lower(token.text) in public for token in lifted.tokens)


def _describe_output(item: Item, keys: tuple[Expression, ...], *, measures: tuple[Measure, ...]) -> Output:
    """Return the column of the answer that an item of the select list is."""
    if item.measure is None or item.expression is not None:
        return Output(item.name, None if item.expression is None else keys.index(item.expression))
    divisor = item.measure.divisor
    if measures == (DISTINCT_UNITS,):
        return Output(item.name, None, end=item.end)
    return Output(
        item.name,
        None,
        measures.index(item.measure.measure),
        None if divisor is None else measures.index(divisor),
        item.end,
    )


def _filter(body: FromWhere, condition: Expression | None) -> FromWhere:
    """Return the rows of a body where a condition holds."""
    return FromWhere(body.source, join_conjuncts([*split_conjuncts(body.where), *split_conjuncts(condition)]))


@dataclass(slots=True)
class _Analysis:
    statement: Statement
    sources: Sources
    lifted: SplitStatement
    clause: Clause

    @property
    def reader(self) -> Reader:
        return self.sources.reader

    def query(self, select: Node) -> PrivateQuery:
        """Return the private query that the outermost SELECT spells."""
        if read_row_count(self.reader, select.args.get("offset")):
            hint = "Ask for more keys with TOP k and leave the first rows of the answer out."
            reason = "OFFSET is not read in a private query."
            raise Unsupported("limit", reason, hint=hint, place=self._at(select.args["offset"]))
        only(self.statement, select, *_SELECT_PARTS, "offset")
        if select.args.get("with_") is not None:
            self.sources.define(select.args["with_"])
        body, scope = self.sources.block(select)
        private, unit = self._private(scope, select)
        self._check_unit_column(private.unit_name or "")
        with self.reader.correlating():
            items = [
                self._item(item, scope, spelled=spelled)
                for item, spelled in pair_items_with_text(self.statement, select, tokens=self.lifted.tokens)
            ]
            keys = self._keys(select, items, scope=scope)
            items = complete_ends(self.reader, items, options=self.clause.options)
        self._check_outputs(items, select)
        released = Released(self.reader, items)
        order, assumed = released.order(select), self.clause.options.get("assume")
        measures, condition = self._measures(items, order)
        domain, cut = self._domain(keys, body)
        query = PrivateQuery(
            text=self.statement.text,
            table=private.table or "",
            unit_name=private.unit_name or "",
            protected=tuple(sorted(self.sources.protected.items())),
            unit=self._find_unit(items) or unit,
            keys=keys,
            body=_filter(body, condition),
            outputs=tuple(_describe_output(item, keys, measures=measures) for item in items),
            order=order,
            limit=read_row_count(self.reader, select.args.get("limit")),
            clause=self.clause,
            explained=self.lifted.explained,
            keep=released.keep(select),
            domain=domain,
            assumed=None if assumed is None else read_assumption(assumed, catalog=self.sources.catalog),
            dialect=self.sources.catalog.dialect,
            materialized=self.sources.catalog.materialized,
            measures=measures,
            key_column=find_sole_column(keys[0], body.source, catalog=self.sources.catalog) if len(keys) == 1 else None,
            cut=cut,
        )
        query = set_columns(query, catalog=self.sources.catalog)
        return read_partitions(query, self._per(items, keys, scope=scope), catalog=self.sources.catalog)

    def _check_unit_column(self, unit: str) -> None:
        """Refuse another privacy unit than the policy's."""
        option = None if self.clause.terms is None else self.clause.terms.unit_column
        if option is not None and (not option.word or ascii_lower(str(option.value)) != ascii_lower(unit)):
            hint = f"Write privacy_unit_column = {write_name(unit)}, or leave it out."
            raise Refusal("option", "The policy has another privacy unit here.", hint=hint, place=option.place)

    def _domain(self, keys: tuple[Expression, ...], body: FromWhere) -> tuple[Domain | None, str]:
        """Return the known domain of the options or, for ALL PRIVATE, of the statement, and what WHERE cuts of it."""
        option, catalog = self.clause.options.get("domain"), self.sources.catalog
        if self.clause.shape != "all":
            listed = None if self.clause.per else option
            return (None if listed is None else read_domain(listed, keys, catalog=catalog)), ""
        unbound = [each for each in self.reader.bound.values() if isinstance(each, UnboundParameter)]
        if unbound and option is None and any(map(needs_bounds, keys)):  # which groups there are is open
            for each in unbound:
                each.is_option = True
            return None, ""
        return read_group_domain(keys, body, option=option, catalog=catalog, place=self.clause.place)

    def _at(self, node: Node) -> Place | None:
        return place(self.statement, node)

    def _measures(self, items: list[Item], order: tuple[Order, ...]) -> tuple[tuple[Measure, ...], Expression | None]:
        """Return the measures, the one that ranks first, and the condition of rows to count.

        A group that no counted row is in has the count 0 in SQL, and is nowhere to be released. So where only units are
        counted, under one condition, that may stand in WHERE, where it takes away the same rows, and the group too.
        """
        found = [item.measure for item in items if item.measure is not None]
        if not found:
            return (DISTINCT_UNITS,), None
        conditions = {each.measure.condition for each in found}
        if len(conditions) == 1 and all(each.unit is not None for each in found):
            return (DISTINCT_UNITS,), found[0].measure.condition
        return list_measures(found, ranking=self._find_ranking(items, order)), None

    def _find_ranking(self, items: list[Item], order: tuple[Order, ...]) -> ReadMeasure | None:
        """Return the measure that ranks: the first in ORDER BY or else in the select list; None where nothing does."""
        if self.clause.shape != "top":
            return None
        ordered = [items[term.output] for term in order]
        able = [
            item.measure for item in (*ordered, *items) if item.measure is not None and item.measure.divisor is None
        ]
        if able:
            return able[0]
        where = next(item.node for item in items if item.measure is not None)
        private = self.reader.scope.private
        unit = write_name(private.unit_name or "unit") if private else "unit"
        hint = f"Write COUNT(DISTINCT {unit}), or select COUNT(*) or SUM too: groups are ranked by the first of them."
        raise Refusal("aggregate", "AVG does not rank groups.", hint=hint, place=self._at(where))

    def _find_unit(self, items: list[Item]) -> Expression | None:
        """Return the unit that is counted DISTINCT, None where none is; refuse two of them."""
        units = [(item.measure.unit, item.node) for item in items if item.measure is not None and item.measure.unit]
        if any(unit != units[0][0] for unit, _ in units):
            hint = "Count one of them: where both are there they are the same unit."
            raise Refusal("counts", "Two privacy units are counted.", hint=hint, place=self._at(units[-1][1]))
        return units[0][0] if units else None

    def _private(self, scope: Scope, select: Node) -> tuple[ScopeTable, Expression]:
        """Return the private table in scope, which must be there, and its unit."""
        if scope.private is not None and scope.unit is not None:
            return scope.private, scope.unit
        hint = "Leave TOP k PRIVATE out and write ORDER BY ... LIMIT k: public tables are answered exactly, at no cost."
        if self.clause.shape != "top":
            hint = "Leave the clause out: public tables are answered exactly, at no cost."
        reason = "No table of this query has a privacy unit."
        raise Refusal("nothing-private", reason, hint=hint, place=self._at(select))

    def _item(self, item: Node, scope: Scope, *, spelled: str) -> Item:
        alias, node = read_alias(self.reader, item)
        kind = type(node).__name__
        if is_measure(node):
            return Item(alias or spelled, None, node, read_measure(self.reader, node))
        if is_interval_end(node):
            return Item(alias or spelled, None, node)  # of a measure that may follow: `complete_ends` finds it
        if any(is_measure(cast("Node", part)) or is_interval_end(cast("Node", part)) for part in node.walk()):
            hint = "Put the query into FROM: SELECT 2 * x.n FROM (SELECT COUNT(*) AS n FROM ... PRIVATE) AS x."
            reason = "Counts and sums are released as they are, and computed with outside of the private query."
            raise Refusal("aggregate", reason, hint=hint, place=self._at(node))
        if kind == "Star" or (kind == "Column" and type(node.this).__name__ == "Star"):
            hint = "Name the columns to group by."
            raise Refusal("star", "* would release raw columns.", hint=hint, place=self._at(node))
        check_alias(self.reader, alias, node=node, scope=scope)
        is_column = kind == "Column" and not self.reader.means_clock(node)
        name = self.reader.column(node).name if is_column and not alias else alias or spelled
        return Item(name, self.reader.read(node), node)

    def _keys(self, select: Node, items: list[Item], *, scope: Scope) -> tuple[Expression, ...]:
        """Return the group keys, in the order of GROUP BY; each must be selected, and nothing else may be."""
        group, released = select.args.get("group"), [item for item in items if item.expression is not None]
        if self.clause.shape == "total":
            return self._no_keys(select, released)
        if select.args.get("distinct") is not None:
            only(self.statement, select.args["distinct"])
        if group is None and select.args.get("distinct") is None:
            hint = "Add GROUP BY and the columns whose values are to be ranked."
            raise Refusal("no-group", "There is no GROUP BY.", hint=hint, place=self._at(select))
        if group is not None:
            only(self.statement, group, "all" if group.args.get("all") else "expressions")
        if group is None or group.args.get("all"):
            keys = [item.expression for item in released if item.expression is not None]
        else:
            keys = [self._group_key(node, items, scope=scope) for node in group.expressions]
        unique = tuple(dict.fromkeys(keys))
        self._check_keys(unique, released, node=group if group is not None and group.expressions else select)
        return unique

    def _no_keys(self, select: Node, released: list[Item]) -> tuple[Expression, ...]:
        """Return no key; refuse a total that has one."""
        if select.args.get("group") is not None or select.args.get("distinct") is not None:
            hint = "Write TOP 10 PRIVATE, or ALL PRIVATE where the groups are known."
            raise Refusal("clause", "PRIVATE alone is for a total.", hint=hint, place=self.clause.place)
        if released:
            hint = "End the query with GROUP BY ALL TOP 10 PRIVATE, or leave the column out."
            raise Refusal("not-a-key", "A total has no keys.", hint=hint, place=self._at(released[0].node))
        return ()

    def _check_keys(self, keys: tuple[Expression, ...], released: list[Item], *, node: Node) -> None:
        if not keys:
            hint = "Select a column beside the count, or write PRIVATE alone for a total."
            raise Refusal("keys", "GROUP BY has no key.", hint=hint, place=self._at(node))
        if len(keys) > MAX_KEYS:
            reason = f"A private query groups by 1 to {MAX_KEYS} keys."
            raise Refusal("keys", reason, hint="Group by fewer expressions.", place=self._at(node))
        selected = [item.expression for item in released]
        if any(key not in selected for key in keys):
            hint = "Select every key, in the same words."
            raise Refusal("key-not-selected", "A group key is not selected.", hint=hint, place=self._at(node))
        for item in released:
            if item.expression not in keys:
                hint = "Group by it: GROUP BY ALL groups by all that is selected."
                raise Refusal(
                    "not-a-key", "This is selected but not a group key.", hint=hint, place=self._at(item.node)
                )
            if item.expression.type.family not in _KEY_FAMILIES:
                hint = "Cast it to a type whose equal values print alike, such as VARCHAR."
                reason = f"A key may not be of type {item.expression.type}."
                raise Refusal("key-type", reason, hint=hint, place=self._at(item.node))

    def _group_key(self, node: Node, items: list[Item], *, scope: Scope) -> Expression:
        """Return the key an item of GROUP BY means: a position, a column, an alias, or an expression, in this order."""
        kind = type(node).__name__
        if kind == "Literal":
            position = read_position(node, len(items))
            if position and (found := items[position - 1].expression) is not None:
                return found
            hint = "Positions count the select list from 1 and may not mean the count."
            raise Refusal("group-position", "This is no position of a key.", hint=hint, place=self._at(node))
        is_name = kind == "Column" and not node.args.get("table")
        if is_name and scope.find(node.name, "", place=partial(self._at, node)) is None:
            named = [item for item in items if ascii_lower(item.name) == ascii_lower(node.name)]
            if len(named) == 1 and named[0].expression is not None:
                return named[0].expression
        return self.reader.read(node)

    def _per(self, items: list[Item], keys: tuple[Expression, ...], *, scope: Scope) -> int | None:
        """Return the number of the key that PER names, by its output or by its column; None where it names none."""
        per = self.clause.per
        if per is None:
            return None
        named = [item.expression for item in items if ascii_lower(item.name) == ascii_lower(per.text)]
        if not named and (found := scope.find(per.text, "", place=lambda: per.place)) is not None:
            named = [found.column, Cast(found.column, find_read_type(found.column.type))]
        return next((keys.index(expression) for expression in named if expression in keys), None)

    def _check_outputs(self, items: list[Item], select: Node) -> None:
        names = [ascii_lower(item.name) for item in items]
        if len(set(names)) < len(names):
            hint = "Give each output its own alias."
            raise Refusal("output-names", "Two outputs have the same name.", hint=hint, place=self._at(select))
