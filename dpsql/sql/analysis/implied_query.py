"""A private query that a statement of standard SQL implies: all groups of a calendar, or the first k.

A statement that would mean something else in plain SQL is refused: its first keys in alphabetical order, or its least
frequent ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from dpsql.errors import Refusal, Unsupported
from dpsql.sql.analysis.list_notes import ListReading, describe_cut, describe_released, has_all_groups
from dpsql.sql.analysis.ranked_statements import refuse_computation
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.statements import PrivateQuery, WrappedQuery
from dpsql.sql.lexer import Statement
from dpsql.sql.syntax.computed import ComputedSelect
from dpsql.sql.syntax.differential_privacy import PrivacyHeader
from dpsql.sql.syntax.implied import ImpliedClause, describe_end

__all__ = ["ImpliedReading", "check_implied", "read_implied"]


ROW_CAP = 1_000  # a LIMIT from here on is a tool's own: no reader of a chart wants so many keys by name


_Check = Callable[[PrivateQuery | WrappedQuery], object]


class _Read(Protocol):
    def __call__(self, *, all_groups: bool) -> PrivateQuery | WrappedQuery:
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


def read_implied(clause: ImpliedClause, read: _Read, *, by: ImpliedReading) -> PrivateQuery | WrappedQuery:
    """Return the private query that a statement implies, with the SELECT around it.

    The strategy of WITH DIFFERENTIAL_PRIVACY decides whether the groups are public.
    """
    header = by.header
    groups = "" if header is None else header.groups
    if clause.is_total:
        return _mark(read(all_groups=False))
    if groups == "public":
        found = read(all_groups=True)
        if _inner(found).domain is None and not _inner(found).clause.options.get("domain"):
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
    return _replace_inner(found, _note_groups(clause, _inner(found), by=by))


def _note_groups(clause: ImpliedClause, query: PrivateQuery, *, by: ImpliedReading) -> PrivateQuery:
    """Return a ranking that notes which groups SQL promises besides; refuse what a SELECT computes from all of them."""
    if has_all_groups(query):
        return query
    if clause.around is not None and clause.may_be_all:
        raise refuse_computation(by.statement, clause, found=clause.around, query=query, catalog=by.catalog)
    if clause.may_be_all and not clause.is_largest:
        may_have_clause = not clause.beside and by.header is None
        after = describe_end(by.statement, clause) if clause.is_inside else ""
        reading = ListReading(clause.asked, by.max_k, may_have_clause, after)
        return replace(query, cut_list=describe_cut(query, reading, catalog=by.catalog))
    return replace(query, list_note=describe_released(query) if clause.computes and not clause.is_largest else "")


def _read_all(read: _Read) -> PrivateQuery | WrappedQuery | None:
    """Return the query with ALL PRIVATE, None where its groups are not known; refuse a calendar that has no bounds."""
    try:
        found = read(all_groups=True)
    except Refusal as error:
        if error.code == "domain":  # a calendar without bounds, or of too many buckets
            raise
        return None
    return None if _inner(found).domain is None else _mark(found)


def check_implied(
    found: PrivateQuery | WrappedQuery, computed: ComputedSelect | None = None
) -> PrivateQuery | WrappedQuery:
    """Return a statement; refuse a ranking whose LIMIT gives the number of keys and whose order is not by a measure.

    HAVING is tested on the released groups, so it may only ask for large values of the measure that ranks. With
    `computed`, that has the order and HAVING of the query.
    """
    inner = _inner(found)
    if inner.clause.implied and inner.clause.shape == "top":
        _check_order(inner)
        _check_having(inner)
        if computed is not None:
            _check_computed(inner, computed)
    return found


def _check_computed(query: PrivateQuery, computed: ComputedSelect) -> None:
    if computed.is_other_order and query.limit is not None and query.limit < ROW_CAP:
        reason = "LIMIT takes the first groups in an order that is not that of a count or sum."
        hint = "Leave LIMIT out, or order by a count or sum, largest first: ORDER BY COUNT(*) DESC."
        raise Refusal("order", reason, hint=hint, place=query.clause.place)
    if computed.tests_others:
        raise _refuse_having(query)


def _inner(found: PrivateQuery | WrappedQuery) -> PrivateQuery:
    return found.inner if isinstance(found, WrappedQuery) else found


def _mark(found: PrivateQuery | WrappedQuery) -> PrivateQuery | WrappedQuery:
    """Return the query with a clause that says that it was not written."""
    inner = _inner(found)
    return _replace_inner(found, replace(inner, clause=replace(inner.clause, implied=True)))


def _replace_inner(found: PrivateQuery | WrappedQuery, inner: PrivateQuery) -> PrivateQuery | WrappedQuery:
    return replace(found, inner=inner) if isinstance(found, WrappedQuery) else inner


def _check_order(query: PrivateQuery) -> None:
    """Refuse an order of a ranking that private groups cannot be found by."""
    if not query.order:
        return
    first = query.order[0]
    output = query.outputs[first.output]
    if output.key is not None and query.limit is not None and query.limit < ROW_CAP:
        reason = "The first keys in the order of their names are no private answer: the most frequent ones are."
        hint = "Leave LIMIT out, or order by a count or sum, largest first: ORDER BY COUNT(*) DESC."
        raise Refusal("order", reason, hint=hint, place=query.clause.place)
    if output.key is None and not first.descending:
        reason = "The least frequent groups are not found in private."
        hint = "Write ORDER BY ... DESC, or order the first ones: SELECT * FROM (... DESC LIMIT 10) AS t ORDER BY ..."
        raise Refusal("order", reason, hint=hint, place=query.clause.place)
    if output.divisor is not None:
        hint = "Order by COUNT(*) or SUM, largest first."
        raise Refusal("aggregate", "AVG does not rank groups.", hint=hint, place=query.clause.place)


def _check_having(query: PrivateQuery) -> None:
    """Refuse a HAVING that groups outside of the ranking would pass, too."""
    for term in query.keep:
        output = query.outputs[term.output]
        if term.operator in {">", ">="} and output.measure == 0 and output.divisor is None:
            continue
        raise _refuse_having(query)


def _refuse_having(query: PrivateQuery) -> Unsupported:
    outside = f"filter the first ones: SELECT * FROM (... DESC LIMIT {query.clause.k}) AS t WHERE ..."  # noqa: S608 - a hint
    hint = f"Write HAVING ... >= 100 of the measure that ranks, or {outside}"
    reason = "HAVING is tested on the most frequent groups alone, and others pass this test, too."
    return Unsupported("having", reason, hint=hint, place=query.clause.place)
