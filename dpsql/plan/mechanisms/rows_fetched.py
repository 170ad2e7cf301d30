"""Rows that engines return to a mechanism, and amounts in words.

The rows are what its noise may lift, known names, or the candidates of a domain.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np

from dpsql.dialects import DUCKDB
from dpsql.mechanisms import WEIGHT_STEPS, GaussianHistogram, Histogram, WeightedGaussian
from dpsql.mechanisms.gate import Gate
from dpsql.mechanisms.gaussian_threshold import PLACES, LowerCut, list_weights
from dpsql.mechanisms.two_looks import TwoLooks
from dpsql.plan.mechanisms.base import Groups, RowsRead
from dpsql.plan.mechanisms.names import ReleasedNames
from dpsql.plan.mechanisms.record import MechanismRequest, Reads, describe_amount
from dpsql.sql.ir.measures import Aggregate
from dpsql.sql.ir.statements import GroupCut, LiteralDomain, PrivateQuery, count_groups
from dpsql.sql.ir.tree import Family, Literal
from dpsql.sql.rewrite.engine_query import (
    Bound,
    rewrite_all,
    rewrite_leaders,
    rewrite_unordered,
    rewrite_weighted,
    rewrite_weighted_of_all,
)

MOST_NAMES = 500  # known names that a statement lists
NO_ROW = "if no row has any of them, none is returned in 95 of 100 answers"
OWN = "the mechanism's own cap on weights; counts are of all groups"
_LISTED = frozenset([Family.TEXT, Family.INTEGER, Family.BOOLEAN])


def read_leaders(query: PrivateQuery, bound: Bound | None, *, k_bar: int, is_ordered: bool = True) -> RowsRead:
    """Return the rows that have the first k_bar + 1 groups: in the order of their counts, or of their labels."""
    rewrite = rewrite_leaders if is_ordered else rewrite_unordered
    counting = rewrite(query, k_bar + 1, bound=bound)
    return RowsRead(counting=counting, max_rows=k_bar + 1, others=len(query.measures) - 1)


def read_domain(query: PrivateQuery, bound: Bound | None, *, known: int, evident: bool = False) -> RowsRead:
    """Return the rows that have all candidates: joined to the domain, or to `known` names after they are read."""
    others, least = len(query.measures) - 1, find_min(query)
    if not known:
        most = count_groups(query.domain)
        return RowsRead(
            counting=rewrite_leaders(query, None, bound=bound), max_rows=most, min_count=least, others=others
        )
    query, listed = keep_known(replace(query, domain=None))
    counting = rewrite_all(query, bound=bound, every=True)
    return RowsRead(
        counting=counting, min_count=least, others=others, known=known, alone=True, evident=evident, listed=listed
    )


def keep_known(query: PrivateQuery) -> tuple[PrivateQuery, bool]:
    """Return the query of which an engine elsewhere returns the groups of known names alone, if it can be told them."""
    listed = _list_names(query)
    return (query, False) if listed is None else (replace(query, group_cut=GroupCut(names=listed)), True)


def find_min(query: PrivateQuery) -> int | None:
    """Return what the first measure of a group is at least; None where it may be below 0."""
    bounds = query.measures[0].bounds
    return None if bounds is not None and bounds.low < 0 else 0


def cut_rows(
    query: PrivateQuery,
    mechanism: GaussianHistogram | WeightedGaussian | TwoLooks,
    *,
    known: int = 0,
    gate: Gate | None = None,
) -> tuple[PrivateQuery, LowerCut | None]:
    """Return the query with the mechanism's cut where the engine is in another program, and the cut.

    In this one rows are as good as read. `known` names are listed in the statement; there is no cut beside names that
    are too many, or of types that are not compared exactly. A `gate` in front sees all groups from its start on.
    """
    # () is no known name; None is known names that the statement cannot have, beside which there is no cut.
    listed = _list_names(query) if known else ()
    cut = None if listed is None or query.dialect is DUCKDB else mechanism.cut
    if cut is None or listed is None:
        return query, None
    cut = cut if gate is None else cut.lower_to(gate.start)
    return replace(query, group_cut=GroupCut(cut.value, PLACES, names=listed)), cut


def describe_rows_left(query: PrivateQuery, cut: LowerCut | None, *, weighted: bool, known: int = 0) -> str:
    """Return in words which groups the engine returns; "" for all of them."""
    if cut is None:
        return ""
    named = "those of known names, " if known else ""
    least = f"a weight of {float(Fraction(cut.value, WEIGHT_STEPS)):.1f}"
    least = least if weighted else describe_amount(query.measures[0], cut.value)
    return f"{named}the groups with {least} or more, and few others"


def read_weights(
    query: PrivateQuery,
    mechanism: WeightedGaussian | TwoLooks,
    *,
    bound: Bound | None,
    own_cap: bool,
    gate: Gate | None = None,
    known: int = 0,
) -> RowsRead:
    """Return the rows that have all groups, with the weights that the mechanism's threshold is made for.

    With `own_cap` that cap limits weights alone, and counts are of all groups.
    """
    rewritten = rewrite_weighted_of_all if own_cap else rewrite_weighted
    weighed = mechanism.weighed_groups if isinstance(mechanism, TwoLooks) else mechanism.max_groups_contributed
    cut_query, cut = cut_rows(query, mechanism, known=known, gate=gate)
    return RowsRead(
        counting=rewritten(cut_query, bound=bound, weights=list_weights(weighed), every=known > 0),
        min_count=0 if known else 1,
        weighted=True,
        min_weight=0 if known else 1,
        others=len(query.measures) - 1,
        known=known,
        cut=cut,
        rows_in_words=describe_rows_left(query, cut, weighted=True, known=known),
    )


def compute_threshold(mechanism: WeightedGaussian) -> Fraction:
    """Return the noisy weight that a group needs, where a unit in one group alone has the weight 1."""
    return Fraction(mechanism.threshold, WEIGHT_STEPS)


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
    # A statement that lists the known names returns them and one other group at most.
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


def read_candidates(groups: Groups) -> tuple[Histogram, list[int]]:
    """Return the scores of all candidates, in descending order, and the row of each.

    They are raised alike to at least 0: a race depends on their differences alone.
    """
    order = np.argsort(-groups.counts, kind="stable")
    exact = groups.counts[order].tolist()
    # A sum may be below 0, and a `Histogram` has no negative counts.
    lowest = min(0, min(exact, default=0))
    return Histogram.of_leaders(tuple(each - lowest for each in exact), len(exact)), order.tolist()


def count_candidates(query: PrivateQuery, known: int = 0) -> str:
    """Say in words who the candidates of a known domain are."""
    domain = query.domain
    if known:
        return f"{known:,} names that earlier answers released; every one takes part, also with no unit at all"
    listed = f"{len(domain.values)} values of the query" if isinstance(domain, LiteralDomain) else "a public column"
    return f"{listed}; every one takes part, also with no unit at all"


def describe_noisy(query: PrivateQuery, steps: int) -> str:
    """Return the noisy value that a group needs."""
    amount = describe_amount(query.measures[0], steps)
    return f"a noisy {amount.removeprefix('a ')}" if amount.startswith("a ") else f"a noisy count of {amount}"


def describe_spread(query: PrivateQuery, steps: float) -> tuple[str, str]:
    """Return the scale of noise on the first measure as a value, and whether it is on a count or a sum."""
    measure = query.measures[0]
    value = steps if measure.bounds is None else steps * float(measure.bounds.step)
    return f"{value:.1f}", "sum" if measure.aggregate is Aggregate.SUM else "count"


def describe_known(known: int, *, line: str = "") -> tuple[tuple[str, str], ...]:
    """Return how many names need no threshold, as lines of name and value; none where there are none.

    `line` says what they need instead; "" for nothing.
    """
    if not known:
        return ()
    names = "1 that an earlier answer released needs" if known == 1 else f"{known:,} that earlier answers released need"
    if line:
        return (("known names", f"{names} {line}, less than the threshold; {NO_ROW}"),)
    return (("known names", f"{names} no threshold, also with no unit at all"),)
