"""Private query of a statement, where its clause is written or implied.

A private query that a statement of standard SQL implies: all groups of a calendar, or the first k.

A statement that would mean something else in plain SQL is refused: its first keys in alphabetical order, or its least
frequent ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from dpsql.errors import Refusal, Unsupported
from dpsql.sql.analysis.expressions import READERS
from dpsql.sql.analysis.from_clause import Sources
from dpsql.sql.analysis.known_values import check_groups_known
from dpsql.sql.analysis.ranked_statements import (
    ListReading,
    describe_cut,
    describe_released,
    has_all_groups,
    refuse_computation,
)
from dpsql.sql.analysis.reader import Reader
from dpsql.sql.functions.allow_list import PatternCheck
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.literals import Clock, UnboundParameter
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.lexer import Statement, Value, ascii_lower
from dpsql.sql.syntax.clause import SplitStatement
from dpsql.sql.syntax.computed import ComputedSelect
from dpsql.sql.syntax.googlesql import PrivacyHeader
from dpsql.sql.syntax.implied import ImpliedClause, PrivateNames, StandardSQL, describe_end, find_implied_clauses

ROW_CAP = 1_000  # a LIMIT from here on is a tool's own: no reader of a chart wants so many keys by name
_Check = Callable[[PrivateQuery], None]


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
    check_implied(query, computed)
    if query.clause.shape == "all" and not any(isinstance(each, UnboundParameter) for each in asked.bound.values()):
        check_groups_known(query, catalog=asked.catalog)


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


class _Read(Protocol):
    def __call__(self, *, all_groups: bool) -> PrivateQuery:
        """Return the statement with ALL PRIVATE, or with TOP k PRIVATE."""


@dataclass(frozen=True, slots=True)
class ImpliedReading:
    """What a statement of standard SQL is read with: the tables, the largest k, and WITH DIFFERENTIAL_PRIVACY.

    `check` refuses a ranking.
    """

    statement: Statement
    catalog: Catalog
    max_k: int
    header: PrivacyHeader | None = None
    check: _Check | None = None


def read_implied(clause: ImpliedClause, read: _Read, *, by: ImpliedReading) -> PrivateQuery:  # noqa: C901 - one rule after another
    """Return the private query that a statement implies.

    The strategy of WITH DIFFERENTIAL_PRIVACY decides whether the groups are public.
    """
    header = by.header
    groups = "" if header is None else header.groups
    if clause.is_total:
        return _mark(read(all_groups=False))
    if groups == "public":
        found = read(all_groups=True)
        if found.domain is None and not found.clause.options.get("domain"):
            hint = "Group by a time bucket with bounds in WHERE, or add domain = ['DE', 'FR'] to OPTIONS."
            reason = "PUBLIC_GROUPS needs groups that the statement or the policy determines."
            raise Refusal("domain", reason, hint=hint, place=None if header is None else header.place)
        return _mark(found)
    if clause.may_be_all and groups != "threshold" and (every := _read_all(read)) is not None:
        return every
    found = _mark(read(all_groups=False))
    try:
        (by.check or check_implied)(found)
    except Refusal as error:
        every = None
        if error.code in {"order", "window"} and groups != "threshold" and not clause.may_be_all:
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
        reading = ListReading(clause.asked, by.max_k, may_have_clause, after)
        return replace(found, cut_list=describe_cut(found, reading, catalog=by.catalog))
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


def check_implied(query: PrivateQuery, computed: ComputedSelect | None = None) -> None:
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
