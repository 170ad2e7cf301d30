"""Candidates of a known domain: the rows that have all of them, and how the candidates are called."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dpsql.mechanisms import Histogram
from dpsql.plan.mechanisms.base import Groups, RowsRead
from dpsql.plan.mechanisms.known_groups import find_min
from dpsql.plan.mechanisms.rows_fetched import keep_known
from dpsql.sql.ir.statements import LiteralDomain, PrivateQuery, count_groups
from dpsql.sql.rewrite.engine_query import Bound, rewrite, rewrite_all

__all__ = ["count_candidates", "read_candidates", "read_domain"]


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
