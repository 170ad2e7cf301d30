"""Private query of a statement, with the SELECT around it, where its clause is written or implied."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dpsql.errors import Refusal, Unsupported
from dpsql.sql.analysis.expressions import READERS
from dpsql.sql.analysis.from_clause import Sources
from dpsql.sql.analysis.group_domains import check_groups_known
from dpsql.sql.analysis.implied_query import check_implied
from dpsql.sql.analysis.list_notes import describe_released, has_all_groups
from dpsql.sql.analysis.measures import (
    RELEASED_AGGREGATES,
)
from dpsql.sql.analysis.meeting_outputs import clip_shares, couple_outputs
from dpsql.sql.analysis.outer_select import answer_table, wrap_query
from dpsql.sql.analysis.postgres_reading import find_numeric_sums
from dpsql.sql.analysis.private_select import read_private_select
from dpsql.sql.analysis.public_query import read_public
from dpsql.sql.analysis.ranked_statements import computes_around
from dpsql.sql.analysis.reader import Reader
from dpsql.sql.analysis.wrapped_ratios import add_wrapped_ratios
from dpsql.sql.functions.allow_list import AGGREGATES, INTERVAL_ENDS, PatternCheck
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.clock import Clock
from dpsql.sql.ir.statements import (
    PrivateQuery,
    WrappedQuery,
)
from dpsql.sql.ir.unbound_parameters import UnboundParameter
from dpsql.sql.lexer import Statement, Value, ascii_lower
from dpsql.sql.syntax.clause import (
    SplitStatement,
    list_select_tokens,
)
from dpsql.sql.syntax.computed import ComputedSelect
from dpsql.sql.syntax.differential_privacy import PrivacyHeader
from dpsql.sql.syntax.grammar import settle
from dpsql.sql.syntax.implied import (
    ImpliedClause,
    PrivateNames,
    StandardSQL,
    find_implied_clauses,
)
from dpsql.sql.syntax.sqlglot_nodes import parse

if TYPE_CHECKING:
    from sqlglot import Token

__all__ = [
    "AnalysisRequest",
    "check_explicit",
    "check_header",
    "find_implied",
    "note_released",
    "read_private",
    "set_terms",
]


@dataclass(frozen=True, slots=True)
class AnalysisRequest:
    """A statement with what it is analyzed with; its clock is read once.

    `scanned` is the statement as it was cut into words, before anything was added to it or taken out.
    """

    statement: Statement
    bound: dict[Value, object]
    catalog: Catalog
    accepts_pattern: PatternCheck
    clock: Clock | None
    header: PrivacyHeader | None
    is_lenient: bool
    scanned: Statement

    def sources(self, statement: Statement) -> Sources:
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
    names, parameter = _list_private_names(asked.catalog), asked.bound.__getitem__
    names = replace(names, tables=names.tables | besides)
    found = find_implied_clauses(asked.statement, names, default_k=standard.default_k, parameter=parameter)
    if header is not None and found and [clause.select for clause in found] != [header.select]:
        hint = "Write WITH DIFFERENTIAL_PRIVACY at the SELECT that aggregates the rows of a private table."
        raise Refusal("clause", "This SELECT is not the private query.", hint=hint, place=header.place)
    return found


def _list_private_names(catalog: Catalog) -> PrivateNames:
    private = [table for table in catalog.tables if table.privacy_unit is not None]
    return PrivateNames(
        frozenset(ascii_lower(table.name.rpartition(".")[2]) for table in private),
        frozenset(ascii_lower(table.privacy_unit or "") for table in private),
    )


def check_explicit(
    asked: AnalysisRequest, found: PrivateQuery | WrappedQuery, *, computed: ComputedSelect | None = None
) -> PrivateQuery | WrappedQuery:
    """Return a query whose clause is written; refuse an order that it cannot have, and groups that are not known."""
    check_implied(found, computed)
    if not any(isinstance(each, UnboundParameter) for each in asked.bound.values()):
        check_groups_known(found.inner if isinstance(found, WrappedQuery) else found, catalog=asked.catalog)
    return found


def note_released(asked: AnalysisRequest, query: PrivateQuery) -> PrivateQuery:
    """Return a query whose clause is written, noting that a SELECT around it computes from its rows if one does."""
    tokens, _ = list_select_tokens(asked.statement, of_duckdb=True)
    if has_all_groups(query) or not computes_around(asked.statement, tokens, query=query):
        return query
    return replace(query, list_note=describe_released(query))


def check_header(asked: AnalysisRequest) -> None:
    """Refuse WITH DIFFERENTIAL_PRIVACY beside a clause that is written."""
    if asked.header is not None:
        hint = "Leave WITH DIFFERENTIAL_PRIVACY out, or the clause that ends in PRIVATE."
        raise Refusal("clause", "The query is private in two ways.", hint=hint, place=asked.header.place)


def set_terms(lifted: SplitStatement, header: PrivacyHeader | None) -> SplitStatement:
    """Return a private query with the options of WITH DIFFERENTIAL_PRIVACY."""
    if header is None or lifted.clause is None:
        return lifted
    return replace(lifted, clause=replace(lifted.clause, options=header.options, terms=header.terms))


def read_private(sources: Sources, lifted: SplitStatement) -> PrivateQuery | WrappedQuery:
    """Return the private query of a statement that has a clause, with the SELECT around it."""
    statement = sources.reader.statement
    select = parse(statement, settle(statement, lifted.tokens, aggregates=RELEASED_AGGREGATES | INTERVAL_ENDS))
    private = read_private_select(select, sources, lifted=lifted)
    return private if lifted.outer is None else _around(private, sources, tokens=lifted.outer)


def _around(private: PrivateQuery, sources: Sources, *, tokens: list[Token]) -> WrappedQuery:
    """Return the private query with the SELECT around it, whose tokens are `tokens` and which reads its answer."""
    inside = sources.reader
    statement, catalog = inside.statement, sources.catalog
    if statement.postgres and find_numeric_sums(private) and any(each.token_type.name == "SLASH" for each in tokens):
        hint, where = "Write CAST(n AS DOUBLE) / 2.", statement.place(tokens[0])
        raise Unsupported("wrapping", "A sum that is NUMERIC is not divided here.", hint=hint, place=where)
    clock = None if inside.clock is None else inside.now  # one reading for both
    reader = Reader(statement, inside.bound, inside.accepts_pattern, READERS, clock)
    outside = Sources(catalog, reader, answer_table(private))
    select = parse(statement, settle(statement, tokens, aggregates=AGGREGATES))
    query = read_public(outside, select, tokens=tokens)
    wrapped = couple_outputs(wrap_query(private, query, catalog=catalog, place=private.clause.place))
    if not statement.postgres:  # whose clients show no table of ours
        wrapped = add_wrapped_ratios(wrapped)
    return replace(wrapped, outer=clip_shares(wrapped.outer, wrapped.inner))
