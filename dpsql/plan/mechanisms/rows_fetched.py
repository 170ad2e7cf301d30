"""Rows that engines return to a mechanism: what its noise may lift, known names, and candidates of a domain."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Protocol

import numpy as np

from dpsql.dialects import DUCKDB
from dpsql.mechanisms import WEIGHT_STEPS, Histogram
from dpsql.mechanisms.lower_cut import PLACES, LowerCut
from dpsql.plan.arrow_tables import ReleasedNames
from dpsql.plan.mechanisms.base import Groups, RowsRead
from dpsql.plan.mechanisms.measure_text import describe_amount
from dpsql.plan.mechanisms.record import Reads
from dpsql.plan.mechanisms.request import MechanismRequest
from dpsql.sql.ir.statements import GroupCut, LiteralDomain, PrivateQuery, count_groups
from dpsql.sql.ir.tree import Literal
from dpsql.sql.ir.types import Family
from dpsql.sql.rewrite.engine_query import Bound, rewrite, rewrite_all

MOST_NAMES = 500  # known names that a statement lists
_LISTED = frozenset([Family.TEXT, Family.INTEGER, Family.BOOLEAN])


class _HasCut(Protocol):
    @property
    def cut(self) -> LowerCut | None:
        """The cut below which few groups need be read."""
        ...


def cut_rows(
    query: PrivateQuery, mechanism: _HasCut, *, known: int = 0, leaders: int = 0, heaviest: int = 0
) -> tuple[PrivateQuery, LowerCut | None]:
    """Return the query with the mechanism's cut where the engine is in another program, and the cut.

    In this one rows are as good as read. `known` names are listed in the statement; there is no cut beside names that
    are too many, or of types that are not compared exactly.
    """
    listed = _list_names(query) if known else ()
    cut = None if listed is None or query.dialect is DUCKDB else mechanism.cut
    if cut is None or listed is None:
        return query, None
    return replace(query, group_cut=GroupCut(cut.value, PLACES, leaders, heaviest, listed)), cut


def keep_known(query: PrivateQuery) -> tuple[PrivateQuery, bool]:
    """Return the query of which an engine elsewhere returns the groups of known names alone, if it can be told them."""
    listed = _list_names(query)
    return (query, False) if listed is None else (replace(query, group_cut=GroupCut(names=listed)), True)


def is_within_rows(reads: Reads, request: MechanismRequest) -> bool:
    """Say whether a public number keeps the rows that a mechanism reads within the policy's limit, if it has one.

    Those of the candidates in a public table are not limited.
    """
    query, limit = request.query, request.terms.limits.max_rows_fetched
    if limit is None:
        return True
    if reads is Reads.GROUPS:
        return False
    if reads is Reads.LEADERS:
        partitions = 1 if query.partitions is None else len(query.partitions.values)
        return (request.k_bar + 1) * partitions <= limit
    if not request.known:
        candidates = count_groups(query.domain)
        return candidates is None or candidates <= limit
    return _list_names(query) is not None and request.known + 1 <= limit


def _list_names(query: PrivateQuery) -> tuple[tuple[Literal, ...], ...] | None:
    """Return the known names as literals; None where the engine cannot be given them."""
    names, types = query.names, [key.type for key in query.keys]
    if not isinstance(names, ReleasedNames) or names.count > MOST_NAMES or query.dialect is DUCKDB:
        return None
    if not {each.family for each in types} <= _LISTED:
        return None
    columns = (
        [Literal(value, type_) for value in column.to_pylist()]
        for column, type_ in zip(names.table.columns, types, strict=True)
    )
    return tuple(zip(*columns, strict=True))


def describe_cut(query: PrivateQuery, cut: LowerCut | None, *, weighted: bool, known: int = 0) -> str:
    """Return in words which groups the engine returns; "" for all of them."""
    if cut is None:
        return ""
    named = "those of known names, " if known else ""
    if weighted:
        least = f"a weight of {float(Fraction(cut.value, WEIGHT_STEPS)):.1f}"
    else:
        least = describe_amount(query, cut.value)
    return f"{named}the groups with {least} or more, and few others"


def read_candidates(groups: Groups) -> tuple[Histogram, list[int]]:
    """Return the scores of all candidates, in descending order, and the row of each.

    They are raised alike to at least 0: a race depends on their differences alone.
    """
    order = np.argsort(-groups.counts, kind="stable")
    exact = groups.counts[order].tolist()
    lowest = min(0, min(exact, default=0))
    return Histogram.of_leaders(tuple(each - lowest for each in exact), len(exact)), order.tolist()


def read_domain(query: PrivateQuery, bound: Bound | None, *, known: int, evident: bool = False) -> RowsRead:
    """Return the rows that have all candidates: joined to the domain, or to `known` names after they are read."""
    others, least = len(query.measures) - 1, find_min(query)
    if not known:
        most = count_groups(query.domain)
        return RowsRead(counting=rewrite(query, None, bound=bound), max_rows=most, min_count=least, others=others)
    query, listed = keep_known(replace(query, domain=None))
    counting = rewrite_all(query, bound=bound, every=True)
    return RowsRead(
        counting=counting, min_count=least, others=others, known=known, alone=True, evident=evident, listed=listed
    )


def count_candidates(query: PrivateQuery, known: int = 0) -> str:
    """Say in words who the candidates of a known domain are."""
    domain = query.domain
    if known:
        return f"{known:,} names that earlier answers released; every one takes part, also with no unit at all"
    listed = f"{len(domain.values)} values of the query" if isinstance(domain, LiteralDomain) else "a public column"
    return f"{listed}; every one takes part, also with no unit at all"


def find_min(query: PrivateQuery) -> int | None:
    """Return what the first measure of a group is at least; None where it may be below 0."""
    bounds = query.measures[0].bounds
    return None if bounds is not None and bounds.low < 0 else 0
