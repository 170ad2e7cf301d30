"""Private query of a statement, where its clause is written or implied."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dpsql.errors import Refusal
from dpsql.sql.analysis.expressions import READERS
from dpsql.sql.analysis.from_clause import Sources
from dpsql.sql.analysis.group_domains import check_groups_known
from dpsql.sql.analysis.implied_query import check_implied
from dpsql.sql.analysis.list_notes import describe_released, has_all_groups
from dpsql.sql.analysis.measures import (
    RELEASED_AGGREGATES,
)
from dpsql.sql.analysis.private_select import read_private_select
from dpsql.sql.analysis.ranked_statements import computes_around
from dpsql.sql.analysis.reader import Reader
from dpsql.sql.functions.allow_list import INTERVAL_ENDS, PatternCheck
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.clock import Clock
from dpsql.sql.ir.statements import (
    PrivateQuery,
)
from dpsql.sql.ir.unbound_parameters import UnboundParameter
from dpsql.sql.lexer import Statement, Value, ascii_lower
from dpsql.sql.syntax.clause import (
    SplitStatement,
    list_select_tokens,
)
from dpsql.sql.syntax.computed_measures import ComputedSelect
from dpsql.sql.syntax.differential_privacy import PrivacyHeader
from dpsql.sql.syntax.grammar import settle
from dpsql.sql.syntax.sqlglot_nodes import parse
from dpsql.sql.syntax.standard_sql import (
    ImpliedClause,
    PrivateNames,
    StandardSQL,
    find_implied_clauses,
)

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
    asked: AnalysisRequest, query: PrivateQuery, *, computed: ComputedSelect | None = None
) -> PrivateQuery:
    """Return a query whose clause is written; refuse an order that it cannot have, and groups that are not known."""
    check_implied(query, computed)
    if not any(isinstance(each, UnboundParameter) for each in asked.bound.values()):
        check_groups_known(query, catalog=asked.catalog)
    return query


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


def read_private(sources: Sources, lifted: SplitStatement) -> PrivateQuery:
    """Return the private query of a SELECT that has a clause."""
    statement = sources.reader.statement
    select = parse(statement, settle(statement, lifted.tokens, aggregates=RELEASED_AGGREGATES | INTERVAL_ENDS))
    return read_private_select(select, sources, lifted=lifted)
