"""Contribution bounding: at most a fixed number of groups for each privacy unit, sampled inside the engine.

Soundness. The groups selected for a unit depend only on its own rows, the bound and the salts of the session. Removing
a unit changes at most `Bound.groups` counts, each by 1, and never changes the groups of another unit. Every form sorts
the groups of a unit the same way: first by a draw, which is a hash of group and unit under the salts, then by the keys,
NULLS LAST (in lists of other engines first), text by its bytes. The keys break ties between 64-bit draws, so neither
row order nor threads affect the result. The guarantee does not need the salts: they prevent an author of labels from
choosing which labels survive.

Speed. Each bound uses the cheapest form. One group is the minimum of (draw, keys) over the raw rows of a unit, in one
pass, because duplicates share a draw. A few groups are the first rows of a window over the distinct pairs; the second
sort key also stops DuckDB from turning the window into one list per unit, which takes twice the time and three times
the memory. With a bound that most units never reach, only the units above it are drawn and sorted.

The bound alone chooses the form. A choice by the rows would leak through the running time. All forms select the same
groups, and the groups under a smaller bound are among those under a larger one.

With weights, each unit spreads one weight over its selected groups. The share of a unit in t groups is looked up in a
list of integers that is bound as a parameter. Nothing is computed in floating point, the sums are exact in any order,
and the weights are the ones for which the threshold of the mechanism was computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpsql.sql.render.clauses import (
    alias,
    at_most,
    combine,
    count,
    cte,
    join,
    least,
    least_struct,
    list_parts,
    more_than,
    number_rows,
    select,
    sort_nulls_last,
    struct_field,
    subquery,
    zero_unless,
)
from dpsql.sql.render.duckdb import Writer

__all__ = [
    "DRAW",
    "GROUPS",
    "MIN_GROUPS_SORTED_APART",
    "RANK",
    "UNIT",
    "WEIGHT",
    "Bound",
    "BoundedRows",
    "bound_contributions",
    "rank_in_lists",
    "select_pairs",
    "weigh_all_pairs",
    "weigh_contributions",
]

UNIT = "dpsql_unit"
WEIGHT = "dpsql_weight"
RANK = "dpsql_rank"
DRAW = "dpsql_draw"
GROUPS = "dpsql_groups"
_LIST, _PAIR = "dpsql_list", "dpsql_pair"
# In the logs measured, 90 % of the units have fewer groups: from this bound on, sorting only the others is faster.
MIN_GROUPS_SORTED_APART = 16


@dataclass(frozen=True, slots=True)
class Bound:
    """Bound of `groups` groups per unit, chosen by a hash under two 64-bit salts that are private to the session.

    With `counts_units` the bounded rows tell the number of units, as `BoundedRows` says.
    """

    groups: int
    salts: tuple[int, int]
    counts_units: bool = False


@dataclass(frozen=True, slots=True)
class BoundedRows:
    """SQL of the bounded rows: `source` selects keys and unit, one row per selected group of a unit, over `ctes`.

    Where the units are counted, `units` is a CTE with one row for each of them; without one, the rows of `source` have
    their RANK within their unit, from 1.
    """

    ctes: tuple[str, ...]
    source: str
    units: str = ""


def bound_contributions(
    writer: Writer, base: str, *, names: Sequence[str], bound: Bound, ranked: bool = False
) -> BoundedRows:
    """Bound the groups of each unit in `base`, a SELECT of the canonical keys `names` and of UNIT, which is never NULL.

    With `ranked`, the rows of `base` are distinct and have two more columns: RANK, the rank of the row within its
    unit, and GROUPS, the number of rows of the unit.
    """
    columns, ranks = (*names, UNIT), [RANK] if bound.counts_units else []
    if ranked:
        return BoundedRows((), select([*columns, *ranks], subquery(base), where=at_most(RANK, bound.groups)))
    if bound.groups == 1 and writer.native and not ranks:
        return BoundedRows((), _select_minimum(base, names, draw=writer.draw(names, UNIT, salts=bound.salts)))
    pairs = select_pairs(writer, base, names=names)
    if bound.groups < MIN_GROUPS_SORTED_APART or not writer.native:
        rows = subquery(_rank_pairs(writer, subquery(pairs), names=names, bound=bound))
        return BoundedRows((), select([*columns, *ranks], rows, where=at_most(RANK, bound.groups)))
    if bound.counts_units:
        return _bound_with_units(writer, pairs, names=names, bound=bound)
    above = select([UNIT], "dpsql_pairs", group_by=UNIT, having=more_than(count(), str(bound.groups)))
    within = select(columns, join("dpsql_pairs", "dpsql_above", kind="ANTI", using=[UNIT]))
    rest = join("dpsql_pairs", "dpsql_above", kind="SEMI", using=[UNIT])
    first = _select_first(writer, rest, names=names, bound=bound)
    return BoundedRows((cte("dpsql_pairs", pairs), cte("dpsql_above", above)), combine("UNION ALL", within, first))


def _bound_with_units(writer: Writer, pairs: str, *, names: Sequence[str], bound: Bound) -> BoundedRows:
    """Return the pairs of the units within a bound, and the first ones of the others, with a CTE of all units."""
    units = select([UNIT, alias(more_than(count(), str(bound.groups)), _IS_ABOVE)], "dpsql_pairs", group_by=UNIT)
    above = subquery(select([UNIT], "dpsql_units", where=_IS_ABOVE))
    within = select((*names, UNIT), join("dpsql_pairs", above, kind="ANTI", using=[UNIT]))
    first = _select_first(writer, _ABOVE, names=names, bound=bound)
    ctes = cte("dpsql_pairs", pairs), cte("dpsql_units", units)
    return BoundedRows(ctes, combine("UNION ALL", within, first), "dpsql_units")


def weigh_contributions(
    writer: Writer, base: str, *, names: Sequence[str], bound: Bound, weights: Sequence[int], ranked: bool = False
) -> BoundedRows:
    """Bound the groups of each unit as `bound_contributions` does, and return WEIGHT in place of the unit.

    A unit with t selected groups has the weight weights[t - 1], an integer below 2**31, in each of them; `weights` has
    one item for every t up to the bound. A weight depends on the number of groups of a unit. The distinct pairs are
    therefore materialized and read twice under every bound, and only the units above it are drawn and sorted.
    """
    if ranked or not writer.native:
        weight = _look_up_weight(writer, bound, weights=weights)
        rows = base if ranked else _rank_in_one_pass(writer, base, names=names, bound=bound)
        columns = (*names, alias(weight, WEIGHT), *([RANK] if bound.counts_units else []))
        return BoundedRows((), select(columns, subquery(rows), where=at_most(RANK, bound.groups)))
    table, ctes, within = _build_weight_ctes(writer, base, names=names, bound=bound, weights=weights)
    first = _select_first(writer, _ABOVE, names=names, bound=bound)
    cut = select((*names, alias(writer.looked_up(table, str(bound.groups)), WEIGHT)), subquery(first))
    return BoundedRows(ctes, combine("UNION ALL", within, cut), "dpsql_units")


def weigh_all_pairs(
    writer: Writer, base: str, *, names: Sequence[str], bound: Bound, weights: Sequence[int], ranked: bool = False
) -> BoundedRows:
    """Return every distinct pair of `base` with the WEIGHT of `weigh_contributions`, 0 for pairs that it drops."""
    if ranked or not writer.native:
        weight = _look_up_weight(writer, bound, weights=weights)
        rows = base if ranked else _rank_in_one_pass(writer, base, names=names, bound=bound)
        own = alias(zero_unless(at_most(RANK, bound.groups), weight), WEIGHT)
        return BoundedRows((), select((*names, own, *([RANK] if bound.counts_units else [])), subquery(rows)))
    table, ctes, within = _build_weight_ctes(writer, base, names=names, bound=bound, weights=weights)
    rows = _rank_pairs(writer, _ABOVE, names=names, bound=bound)
    weight = writer.looked_up(table, str(bound.groups))
    own = alias(zero_unless(at_most(RANK, bound.groups), weight), WEIGHT)
    return BoundedRows(ctes, combine("UNION ALL", within, select((*names, own), subquery(rows))), "dpsql_units")


def _look_up_weight(writer: Writer, bound: Bound, *, weights: Sequence[int]) -> str:
    """Return the SQL for the weight of a row by GROUPS, the number of groups of its unit."""
    return writer.looked_up(writer.listed(weights), least(GROUPS, str(bound.groups)))


def _rank_in_one_pass(writer: Writer, base: str, *, names: Sequence[str], bound: Bound) -> str:
    """Return the distinct pairs with RANK and GROUPS, from which their weights follow, in one pass over the table.

    An engine other than DuckDB may evaluate a CTE twice, and the table may change in between. A unit could then get
    the large weight of few groups and add it to many.
    """
    pairs = select_pairs(writer, base, names=names)
    ranked = _rank_pairs(writer, subquery(pairs), names=names, bound=bound)
    if writer.lists:
        return ranked
    return select(["*", alias(count(partition_by=UNIT), GROUPS)], subquery(ranked))


_IS_ABOVE = "dpsql_above"
_ABOVE = join("dpsql_pairs", subquery(select([UNIT], "dpsql_units", where=_IS_ABOVE)), kind="SEMI", using=[UNIT])


def _build_weight_ctes(
    writer: Writer, base: str, *, names: Sequence[str], bound: Bound, weights: Sequence[int]
) -> tuple[str, tuple[str, ...], str]:
    """Return the list of weights, the CTEs of pairs and units, and the SELECT of the units within the bound."""
    table, most = writer.listed(weights), str(bound.groups)
    own = alias(writer.looked_up(table, least(count(), most)), WEIGHT)
    above = alias(more_than(count(), most), _IS_ABOVE)
    units = select([UNIT, own, above], "dpsql_pairs", group_by=UNIT)
    pairs = select_pairs(writer, base, names=names)
    within = select((*names, WEIGHT), join("dpsql_pairs", "dpsql_units", using=[UNIT]), where=f"NOT {_IS_ABOVE}")
    return table, (cte("dpsql_pairs", pairs), cte("dpsql_units", units)), within


def _select_minimum(rows: str, names: Sequence[str], *, draw: str) -> str:
    """Return the SQL for the first group of each unit: the fields of the minimum struct of (draw, keys)."""
    first = select([UNIT, alias(least_struct([draw, *names]), "dpsql_least")], subquery(rows), group_by=UNIT)
    keys = (alias(struct_field("dpsql_least", at), name) for at, name in enumerate(names, start=2))
    return select((*keys, UNIT), subquery(first))


def select_pairs(writer: Writer, base: str, *, names: Sequence[str]) -> str:
    """Return the SQL for the distinct pairs of group and unit in `base`."""
    return select((*names, UNIT), subquery(writer.gather(base, names, unit=UNIT)), distinct=True)


def _select_first(writer: Writer, pairs: str, *, names: Sequence[str], bound: Bound) -> str:
    """Return the SQL for the first groups of each unit in a relation of distinct pairs."""
    ranked = _rank_pairs(writer, pairs, names=names, bound=bound)
    return select((*names, UNIT), subquery(ranked), where=at_most(RANK, bound.groups))


def rank_in_lists(
    writer: Writer, pairs: str, *, names: Sequence[str], by: Sequence[str] = (), parts: Sequence[str] = ()
) -> str:
    """Return the SQL for a relation of distinct pairs with their RANK and GROUPS, from a sorted list for each unit.

    The lists are sorted by the expressions `by` and then by the keys. `parts` are further columns of the pairs.
    """
    names = [*names, *parts]
    listed = select([UNIT, alias(writer.list_form("list", *by, *names), _LIST)], pairs, group_by=UNIT)
    forms = ("list_rows", _PAIR), ("list_positions", RANK), ("list_length", GROUPS)
    rows = select([UNIT, *(alias(writer.list_form(form, _LIST), name) for form, name in forms)], subquery(listed))
    fields = (writer.list_form("list_field", _PAIR, str(at)) for at in range(len(by), len(by) + len(names)))
    return select([*map(alias, fields, names), UNIT, RANK, GROUPS], subquery(rows))


def _rank_pairs(writer: Writer, pairs: str, *, names: Sequence[str], bound: Bound) -> str:
    """Return the SQL for a relation of distinct pairs with the RANK of each pair within its unit."""
    draw = writer.draw(names, UNIT, salts=bound.salts)
    if writer.lists:
        return rank_in_lists(writer, pairs, names=names, by=(draw,))
    if not writer.native:  # some engines compute what a window sorts by more than once, unless it is a column
        pairs, draw = subquery(select((*names, UNIT, alias(draw, DRAW)), pairs)), DRAW
    rank = number_rows(UNIT, list_parts([draw, sort_nulls_last(names)]))
    return select((*names, UNIT, alias(rank, RANK)), pairs)
