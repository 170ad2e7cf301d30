"""Rewriter of private queries: engine SQL that counts distinct units and returns the leading groups, or all groups.

    query ── total ──▶ canonical keys ──▶ counted, bounded per unit if required ──▶ sorted ──▶ text and parameters

The keys break ties at the cut, NULLS LAST, text by its bytes. No row affects this order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dpsql.errors import UsageError
from dpsql.sql.ir.canonical_keys import canonicalize
from dpsql.sql.ir.statements import (
    Domain,
    KeyDomain,
    LiteralDomain,
    PrivateQuery,
    ProductDomain,
    ReleasedDomain,
    TableDomain,
    list_factors,
)
from dpsql.sql.ir.tree import Expression
from dpsql.sql.ir.types import BIGINT
from dpsql.sql.ir.visitor import rebuild_body
from dpsql.sql.render.clauses import (
    alias,
    at_most,
    bigint,
    both,
    count,
    cross_join,
    cte,
    descending,
    distinct,
    either,
    equal,
    in_query,
    is_null,
    left_join,
    list_parts,
    more_than,
    not_distinct,
    not_null,
    or_zero,
    order_by,
    qualify_column,
    select,
    sort_nulls_last,
    subquery,
    sum_column,
    values,
    with_ctes,
)
from dpsql.sql.render.duckdb import Writer
from dpsql.sql.render.portable import writer_for
from dpsql.sql.rewrite.contribution_bounding import (
    GROUPS,
    RANK,
    UNIT,
    WEIGHT,
    Bound,
    BoundedRows,
    bound_contributions,
    select_pairs,
    weigh_all_pairs,
    weigh_contributions,
)
from dpsql.sql.rewrite.contributions import (
    bound_pairs,
    build_contributions,
    build_stored_sums,
    name_parts,
    name_sums,
    rank_pairs,
    sum_contributions,
    weigh_pairs,
)
from dpsql.sql.rewrite.group_cut import cut_groups
from dpsql.sql.rewrite.partition_filter import filter_partitions, order_groups, select_leading_groups
from dpsql.sql.rewrite.stored_measures import UNITS
from dpsql.sql.rewrite.total import make_total
from dpsql.sql.rewrite.unit_total import (
    FIRST,
    PAIRS,
    TOTAL,
    add_total,
    count_rows,
    count_units,
    number_pairs,
    spread_first,
    sum_first,
)
from dpsql.sql.rewrite.use_materialized import Form, QuerySource, use_materialized

__all__ = [
    "PASSES",
    "Bound",
    "CountingQuery",
    "rewrite",
    "rewrite_all",
    "rewrite_counts_and_weights",
    "rewrite_total",
    "rewrite_unordered",
    "rewrite_weighted",
    "rewrite_weighted_of_all",
]

COUNT = "dpsql_count"
DOMAIN = "dpsql_domain"
_COUNTED = "dpsql_counted"


@dataclass(frozen=True, slots=True, repr=False)
class CountingQuery:
    """Engine SQL and its parameters.

    The columns of the answer are the keys in order, the count, the weight if there is one and, with partitions, the
    position of the partition of the group. `types` lists their types. `reads` describes the materialized tables that
    the query reads in place of rows, "" for none. With `has_total` a column after these is the number of units in any
    group, the same in every row. With `cut_at` groups are cut: the next column is the place of each group, before the
    position of its partition, and the parameters from that index on are the places of groups to return.
    """

    sql: str
    parameters: tuple[object, ...]
    types: tuple[str, ...] = ()
    reads: str = ""
    has_total: bool = False
    cut_at: int | None = None

    def select_places(self, places: Sequence[int]) -> CountingQuery:
        """Return the query with the places of groups to return, the last of them after which all are."""
        start = self.cut_at or 0
        parameters = (*self.parameters[:start], *places, *self.parameters[start + len(places) :])
        return replace(self, parameters=parameters)

    def __repr__(self) -> str:
        return f"CountingQuery({self.sql!r}, {len(self.parameters)} parameters)"


def make_query_total(query: PrivateQuery) -> PrivateQuery:
    """Apply `make_total` to every expression of the query."""
    domain = None if query.domain is None else _change_domain(query.domain, make_total)
    return replace(
        query, keys=tuple(map(make_total, query.keys)), body=rebuild_body(query.body, make_total), domain=domain
    )


def _change_domain(domain: Domain, change: Callable[[Expression], Expression]) -> Domain:
    """Return a domain with `change` applied to its values."""
    if isinstance(domain, ProductDomain):
        return ProductDomain(tuple(_change_values(each, change) for each in domain.factors))
    if isinstance(domain, ReleasedDomain):
        return domain
    return _change_values(domain, change)


def _change_values(domain: KeyDomain, change: Callable[[Expression], Expression]) -> KeyDomain:
    if isinstance(domain, TableDomain):
        return replace(domain, value=change(domain.value))
    return LiteralDomain(tuple(map(change, domain.values)))


def canonicalize_query(query: PrivateQuery) -> PrivateQuery:
    """Apply `canonicalize` to every key and candidate."""
    domain = None if query.domain is None else _change_domain(query.domain, canonicalize)
    return replace(query, keys=tuple(map(canonicalize, query.keys)), domain=domain)


PASSES: tuple[Callable[[PrivateQuery], PrivateQuery], ...] = (make_query_total, canonicalize_query)


def _apply_passes(query: PrivateQuery) -> PrivateQuery:
    """Apply all passes in order."""
    for step in PASSES:
        query = step(query)
    return query


def rewrite(query: PrivateQuery, rows: int | None, *, bound: Bound | None = None) -> CountingQuery:
    """Return the SQL for the first `rows` groups by distinct units, in each partition if there are partitions.

    None selects every candidate of a domain.
    """
    return _rewrite_counts(query, bound, first=(descending(COUNT),), rows=rows)


def rewrite_unordered(query: PrivateQuery, rows: int, *, bound: Bound | None = None) -> CountingQuery:
    """Return the SQL for the first `rows` groups by distinct units, sorted by the keys and not by the counts."""
    return _rewrite_counts(query, bound, first=(descending(COUNT),), rows=rows, unordered=True)


def rewrite_all(query: PrivateQuery, *, bound: Bound | None = None, every: bool = False) -> CountingQuery:
    """Return the SQL for every group that has a unit, sorted by the keys alone.

    Groups to which units add nothing are left out unless `every` is set: a group whose name is known has its measures
    in any case.
    """
    return _rewrite_counts(query, bound, first=(), rows=None, every=every)


def rewrite_total(query: PrivateQuery) -> CountingQuery:
    """Return the SQL for one row: the measures of all rows of a query without keys."""
    found = use_materialized(query, bounded=False)
    query = _apply_passes(found.query)
    writer = writer_for(query.dialect)
    if found.form is Form.COUNTS:  # of one group, or of none
        stored = build_stored_sums(writer, query, names=[], stored=found.steps)
        sql = select([alias(or_zero(bigint(sum_column(name))), name) for name in name_sums(query)], subquery(stored))
    elif query.counts_units_alone:
        base = _build_unit_rows(writer, query, names=[], form=Form.ROWS)
        sql = select([alias(count(distinct(UNIT)), COUNT)], subquery(base))
    else:
        pairs = build_contributions(writer, query, names=[], form=found.form, stored=found.steps)
        sql = select(sum_contributions(query), subquery(pairs))
    return _finish(writer, sql, query=query, measures=len(query.measures), reads=found.description)


def rewrite_weighted(
    query: PrivateQuery, *, bound: Bound | None, weights: Sequence[int], every: bool = False
) -> CountingQuery:
    """Return the SQL for count and weight of every group that is selected for some unit, sorted by the keys.

    A unit with t selected groups adds 1 to the count and weights[t - 1] to the weight of each of them; of another first
    measure, to which it adds c of at most R, c / R of that weight, rounded down. Groups of the weight 0 are left out
    unless `every` is set.
    """
    return _rewrite_weights(query, bound, weights=weights, spread=weigh_contributions, every=every)


def rewrite_weighted_of_all(
    query: PrivateQuery, *, bound: Bound | None, weights: Sequence[int], every: bool = False
) -> CountingQuery:
    """Return the SQL for the same groups and weights, with the count of all units of a group."""
    return _rewrite_weights(query, bound, weights=weights, spread=weigh_all_pairs, every=every)


def rewrite_counts_and_weights(
    query: PrivateQuery, *, bound: Bound | None, weights: Sequence[int], of_all: bool
) -> CountingQuery:
    """Return the SQL for all groups whose count, or first measure, is above 0, with weights that may be 0.

    The count is of all units of a group, or only of those for which the bound selects it if `of_all` is False.
    """
    spread = weigh_all_pairs if of_all else weigh_contributions
    return _rewrite_weights(query, bound, weights=weights, spread=spread, by_weight=False)


def _rewrite_weights(
    query: PrivateQuery,
    bound: Bound | None,
    *,
    weights: Sequence[int],
    spread: Callable[..., BoundedRows],
    every: bool = False,
    by_weight: bool = True,
) -> CountingQuery:
    """Return the SQL for the groups of positive weight, or measure, or for `every` group.

    Refuse weights for another bound.
    """
    if bound is None or len(weights) != bound.groups:
        reason = "There must be one weight for every number of groups up to the bound."
        raise UsageError("bound-range", reason, hint="Give the weights of 1 to max_groups_contributed groups.")
    if not query.counts_units_alone:
        of_all = spread is weigh_all_pairs
        return _rewrite_weighted_measures(
            query, bound, weights=weights, of_all=of_all, every=every, by_weight=by_weight
        )
    found = use_materialized(query, bounded=True)
    query, ranked = _apply_passes(found.query), found.form is Form.RANKS
    writer, names = _open_writer(query)
    base = _build_unit_rows(writer, query, names=names, form=found.form)
    listed: tuple[str, ...] = ()
    if query.partitions is not None:
        listed, base = filter_partitions(writer, base, names=names, partitions=query.partitions)
    bound = replace(bound, counts_units=query.reads_total)
    bounded = spread(writer, base, names=names, bound=bound, weights=weights, ranked=ranked)
    columns = alias(count(), COUNT), alias(bigint(sum_column(WEIGHT)), WEIGHT)
    groups = _group_weights(query, bounded, names=names, columns=columns, by_weight=by_weight and not every)
    order = sort_nulls_last(names)
    sorted_, cut_at = _sort_groups(writer, query, groups=groups, order=order, names=names, measures=(COUNT, WEIGHT))
    sql = with_ctes((*listed, *bounded.ctes), sorted_)
    return _finish(writer, sql, query=query, measures=2, reads=found.description, cut_at=cut_at)


def _group_weights(
    query: PrivateQuery, bounded: BoundedRows, *, names: list[str], columns: Sequence[str], by_weight: bool
) -> str:
    """Return the SELECT of the groups, or of those of positive weight, with the number of units if it is read."""
    by, source = list_parts(names), subquery(bounded.source)
    if query.reads_total and not bounded.units:
        groups = select((*names, *columns, sum_first()), source, group_by=by)
        return spread_first(groups, [*names, COUNT, WEIGHT], where=more_than(WEIGHT, "0") if by_weight else "")
    positive = more_than(sum_column(WEIGHT), "0") if by_weight else ""  # every group that is there has a count
    groups = select((*names, *columns), source, group_by=by, having=positive)
    return add_total(groups, ["*"], units=count_rows(bounded.units)) if query.reads_total else groups


def _rewrite_counts(
    query: PrivateQuery,
    bound: Bound | None,
    *,
    first: tuple[str, ...],
    rows: int | None,
    unordered: bool = False,
    every: bool = False,
) -> CountingQuery:
    """Return the SQL for the groups and their counts, sorted by `first`, then by the keys."""
    if not query.counts_units_alone:
        return _rewrite_measures(query, bound, first=first, rows=rows, unordered=unordered, every=every)
    found = use_materialized(query, bounded=bound is not None)
    query = _apply_passes(found.query)
    writer, names = _open_writer(query)
    ctes, counted = _build_groups(writer, query, bound=bound, names=names, found=found)
    order, cut_at = list_parts([*first, sort_nulls_last(names)]), None
    if rows is None:
        sql, cut_at = _sort_groups(writer, query, groups=counted, order=order, names=names, measures=(COUNT,))
    else:
        sql = _take_leading_groups(query, counted, order=order, rows=rows, columns=(*names, COUNT))
    sql = with_ctes(ctes, sql)
    if unordered:
        sql = select(["*"], subquery(sql), order_by=sort_nulls_last(names))
    return _finish(writer, sql, query=query, measures=1, reads=found.description, cut_at=cut_at)


def _rewrite_measures(
    query: PrivateQuery,
    bound: Bound | None,
    *,
    first: tuple[str, ...],
    rows: int | None,
    unordered: bool,
    every: bool,
) -> CountingQuery:
    """Return the SQL for the groups and their measures; over an unknown domain, for groups whose first is above 0.

    A group to which units add nothing would stand in a ranking although no unit need be in it. `every` selects such
    groups, too.
    """
    found = use_materialized(query, bounded=bound is not None)
    query = _apply_passes(found.query)
    writer, names = _open_writer(query)
    sums = name_sums(query)
    if found.form is Form.COUNTS:
        ctes, groups = _select_stored_groups(writer, query, names=names, found=found, every=every)
        units = _count_stored_units(writer, query, names=names, found=found)
    else:
        ctes, groups, units = _add_up_groups(writer, query, bound=bound, names=names, found=found, every=every)
    if query.domain is not None:
        columns = [_name_keys(names), *(alias(or_zero(name), name) for name in sums)]
        has_first = query.reads_total and not units
        columns = [*columns, *([FIRST] if has_first else [])]
        groups = select(columns, _join_candidates(query.domain, groups, names=names))
        groups = spread_first(groups, [*names, *sums]) if has_first else groups
    if units:
        groups = add_total(groups, [*names, *sums], units=units)
    order, cut_at = list_parts([*((descending(sums[0]),) if first else ()), sort_nulls_last(names)]), None
    if rows is None:
        sql, cut_at = _sort_groups(writer, query, groups=groups, order=order, names=names, measures=sums)
    else:
        sql = _take_leading_groups(query, groups, order=order, rows=rows, columns=(*names, *sums))
    sql = with_ctes(ctes, sql)
    if unordered:
        sql = select(["*"], subquery(sql), order_by=sort_nulls_last(names))
    return _finish(writer, sql, query=query, measures=len(sums), reads=found.description, cut_at=cut_at)


def _add_up_groups(
    writer: Writer, query: PrivateQuery, *, bound: Bound | None, names: list[str], found: QuerySource, every: bool
) -> tuple[list[str], str, str]:
    """Return the CTEs, the SELECT of the groups with what the units add to the measures of each, and that of units.

    The last is the scalar subquery that counts the units; "" where they are not counted, or the groups have TOTAL or,
    where candidates are yet to be joined, what it is the sum of.
    """
    ctes, pairs = _build_pairs(writer, query, names=names, found=found)
    if query.domain is not None:
        ctes += _build_candidates(writer, query.domain, names=names)
        pairs = select(["*"], subquery(pairs), where=_is_candidate(query.domain, names))
    by, columns, source, units = list_parts(names), [*names, *sum_contributions(query)], "", ""
    if query.reads_total and bound is None and writer.native:
        ctes, source, units = [*ctes, cte(PAIRS, pairs)], PAIRS, count_units(PAIRS)
    elif query.reads_total and bound is None:
        pairs = number_pairs(writer, pairs, names=names, parts=name_parts(query))
    elif bound is not None:
        is_ranked = found.form is Form.RANKS
        pairs = bound_pairs(writer, pairs, query=query, names=names, bound=bound, is_ranked=is_ranked)
    source = source or subquery(pairs)
    if query.reads_total and not units:
        groups, sums = select([*columns, sum_first()], source, group_by=by), name_sums(query)
        if query.domain is None:
            groups = spread_first(groups, [*names, *sums], where="" if every else more_than(sums[0], "0"))
        return ctes, groups, ""
    positive = "" if every or query.domain is not None else more_than(sum_column(name_parts(query)[0]), "0")
    return ctes, select(columns, source, group_by=by, having=positive), units


def _count_stored_units(writer: Writer, query: PrivateQuery, *, names: list[str], found: QuerySource) -> str:
    """Return the scalar subquery that counts the units of groups whose counts are stored, from the stored pairs.

    "" where they are not counted. Both tables were made from the same rows, and are of the same file.
    """
    if not query.reads_total or found.of_units is None:
        return ""
    pairs = _apply_passes(found.of_units)
    if pairs.body.where is None and pairs.domain is None:  # the first pair of each unit
        return subquery(writer.select([count()], pairs.body, where=at_most(RANK, 1)))
    base = _build_unit_rows(writer, pairs, names=names, form=Form.PAIRS)
    if pairs.domain is not None:
        base = select([UNIT], subquery(base), where=_is_candidate(pairs.domain, names))
    return count_units(subquery(base))


def _select_stored_groups(
    writer: Writer, query: PrivateQuery, *, names: list[str], found: QuerySource, every: bool
) -> tuple[list[str], str]:
    """Return the CTEs, and the SELECT of the groups whose counts are stored."""
    groups = build_stored_sums(writer, query, names=names, stored=found.steps)
    if query.domain is None:
        positive = "" if every else more_than(name_sums(query)[0], "0")
        return [], select(["*"], subquery(groups), where=positive)
    ctes = _build_candidates(writer, query.domain, names=names)
    return ctes, select(["*"], subquery(groups), where=_is_candidate(query.domain, names))


def _rewrite_weighted_measures(
    query: PrivateQuery, bound: Bound, *, weights: Sequence[int], of_all: bool, every: bool, by_weight: bool
) -> CountingQuery:
    """Return the SQL for the groups of positive weight, or measure, or all: first measure, weight, other measures."""
    most = query.measures[0].width
    found = use_materialized(query, bounded=True)
    query = _apply_passes(found.query)
    writer, names = _open_writer(query)
    ctes, pairs = _build_pairs(writer, query, names=names, found=found)
    if found.form is not Form.RANKS:
        pairs = rank_pairs(writer, pairs, query=query, names=names, bound=bound)
    weighed = weigh_pairs(writer, pairs, bound=bound, weights=weights, most=most)
    kept = "" if of_all else at_most(RANK, bound.groups)
    weight, (first, *others) = sum_column(WEIGHT), sum_contributions(query)
    columns = (*names, first, alias(bigint(weight), WEIGHT), *others)
    shown = (name_sums(query)[0], WEIGHT, *name_sums(query)[1:])
    by = list_parts(names)
    if query.reads_total:
        groups = select([*columns, sum_first()], subquery(weighed), where=kept, group_by=by)
        positive = "" if every else more_than(WEIGHT if by_weight else name_sums(query)[0], "0")
        groups = spread_first(groups, [*names, *shown], where=positive)
    else:
        positive = "" if every else more_than(weight if by_weight else sum_column(name_parts(query)[0]), "0")
        groups = select(columns, subquery(weighed), where=kept, group_by=by, having=positive)
    order = sort_nulls_last(names)
    sorted_, cut_at = _sort_groups(writer, query, groups=groups, order=order, names=names, measures=shown)
    sql = with_ctes(ctes, sorted_)
    return _finish(writer, sql, query=query, measures=len(shown), reads=found.description, cut_at=cut_at)


def _sort_groups(
    writer: Writer, query: PrivateQuery, *, groups: str, order: str, names: list[str], measures: Sequence[str]
) -> tuple[str, int | None]:
    """Return the SELECT of the groups by `order`, with the position of the partition if the query has partitions.

    With a cut these are the groups that it leaves; the second value is then the index of its first parameter.
    """
    cut_at = None
    if query.group_cut is not None:
        ranked = WEIGHT if WEIGHT in measures else measures[0]
        columns = (*measures, TOTAL) if query.reads_total else measures
        groups, cut_at = cut_groups(writer, groups, cut=query.group_cut, names=names, measures=columns, ranked=ranked)
    if query.partitions is None:
        return order_by(groups, order), cut_at
    return order_groups(groups, order, key=names[query.partitions.key]), cut_at


def _take_leading_groups(query: PrivateQuery, groups: str, *, order: str, rows: int, columns: tuple[str, ...]) -> str:
    """Return the SELECT of the first `rows` groups by `order`, or of the first `rows` of each partition."""
    if query.partitions is None:
        return order_by(groups, order, limit=rows)
    writer, key = writer_for(query.dialect), columns[query.partitions.key]
    return select_leading_groups(writer, groups, order=order, rows=rows, key=key, columns=columns)


def _open_writer(query: PrivateQuery) -> tuple[Writer, list[str]]:
    """Return a writer that has the types of keys and unit, and the names of the keys."""
    names = [f"dpsql_key_{index}" for index in range(1, len(query.keys) + 1)]
    types = zip((*names, UNIT), (*query.keys, query.unit), strict=True)
    return writer_for(query.dialect, {name: expression.type for name, expression in types}), names


def _build_pairs(writer: Writer, query: PrivateQuery, *, names: list[str], found: QuerySource) -> tuple[list[str], str]:
    """Return the CTEs, and the SELECT of what each unit adds to each group of the listed partitions, or of all."""
    pairs = build_contributions(writer, query, names=names, form=found.form, stored=found.steps)
    if query.partitions is None:
        return [], pairs
    parts = name_parts(query)
    listed, pairs = filter_partitions(writer, pairs, names=names, partitions=query.partitions, parts=parts)
    return [*listed], pairs


def _build_groups(
    writer: Writer, query: PrivateQuery, *, bound: Bound | None, names: list[str], found: QuerySource
) -> tuple[list[str], str]:
    """Return the CTEs, and the SELECT of all groups, or candidates, with their counts, and TOTAL if it is read."""
    keys, ctes, form, units = list_parts(names), list[str](), found.form, ""
    base = _build_unit_rows(writer, query, names=names, form=form)
    if query.partitions is not None:
        listed, base = filter_partitions(writer, base, names=names, partitions=query.partitions)
        ctes += listed
    if query.domain is not None:
        ctes += _build_candidates(writer, query.domain, names=names)
        measures = [COUNT] if form is Form.COUNTS else [UNIT, *([RANK, GROUPS] if form is Form.RANKS else [])]
        base = select([keys, *measures], subquery(base), where=_is_candidate(query.domain, names))
    if form is Form.COUNTS:
        counted, units = base, _count_stored_units(writer, query, names=names, found=found)
    elif bound is None and query.reads_total:
        pairs = base if form is Form.PAIRS else select_pairs(writer, base, names=names)
        if writer.native:
            ctes, source, units = [*ctes, cte(PAIRS, pairs)], PAIRS, count_units(PAIRS)
        else:
            source = subquery(number_pairs(writer, pairs, names=names))
        counted = _count_pairs(query, source, names=names, units=units)
    elif bound is None:
        what = "" if form is Form.PAIRS else distinct(UNIT)
        counted = select([keys, alias(count(what), COUNT)], subquery(base), group_by=keys)
    else:
        limit, ranked = replace(bound, counts_units=query.reads_total), form is Form.RANKS
        bounded = bound_contributions(writer, base, names=names, bound=limit, ranked=ranked)
        ctes, units = [*ctes, *bounded.ctes], count_rows(bounded.units)
        counted = _count_pairs(query, subquery(bounded.source), names=names, units=units)
    if query.domain is not None:
        has_first = query.reads_total and not units
        columns = _name_keys(names), alias(or_zero(COUNT), COUNT), *([FIRST] if has_first else [])
        counted = select(columns, _join_candidates(query.domain, counted, names=names))
        counted = spread_first(counted, [*names, COUNT]) if has_first else counted
    return ctes, add_total(counted, [*names, COUNT], units=units) if query.reads_total and units else counted


def _count_pairs(query: PrivateQuery, source: str, *, names: list[str], units: str) -> str:
    """Return the SELECT of groups with the number of their pairs and, unless `units` counts the units, TOTAL.

    Where candidates are yet to be joined, they have what TOTAL is the sum of.
    """
    keys, counts = list_parts(names), alias(count(), COUNT)
    if not query.reads_total or units:
        return select([keys, counts], source, group_by=keys)
    groups = select([keys, counts, sum_first()], source, group_by=keys)
    return groups if query.domain is not None else spread_first(groups, [*names, COUNT])


def _finish(
    writer: Writer, sql: str, *, query: PrivateQuery, measures: int, reads: str, cut_at: int | None = None
) -> CountingQuery:
    """Return the finished statement with its parameters and column types."""
    numbers = measures + (query.partitions is not None) + query.reads_total + (cut_at is not None)
    types = *(key.type.name for key in query.keys), *[BIGINT.name] * numbers
    return CountingQuery(writer.finished(sql), tuple(writer.parameters), types, reads, query.reads_total, cut_at)


def _build_candidates(writer: Writer, domain: Domain, *, names: list[str]) -> list[str]:
    """Return the CTEs of the candidates of a known domain, with several keys also of the values of each."""
    factors = list_factors(domain)
    listed = [_build_values(writer, each, name=name) for each, name in zip(factors, names, strict=True)]
    if len(listed) == 1:
        return [cte(DOMAIN, listed[0])]
    tables = [_name_factor(position, factors) for position in range(len(factors))]
    product = cross_join(tables)
    return [*map(cte, tables, listed), cte(DOMAIN, select(names, product))]


def _build_values(writer: Writer, domain: KeyDomain, *, name: str) -> str:
    """Return the SQL for the distinct values of a key; NULL is among them only where the query says so."""
    if isinstance(domain, TableDomain):
        found = writer.select([alias(writer.expression(domain.value), name)], domain.body)
    elif (times := writer.list_times(domain.values, name)) is not None:
        found = times
    else:
        rows = ([writer.expression(value)] for value in domain.values)
        found = select([name], values(rows, "dpsql_listed", columns=[name]))
    return select([name], subquery(found), distinct=True, where="" if _has_null(domain) else not_null(name))


def _name_factor(position: int, factors: Sequence[object]) -> str:
    """Return the name of the CTE of the values of one key."""
    return DOMAIN if len(factors) == 1 else f"{DOMAIN}_{position + 1}"


def _has_null(domain: KeyDomain) -> bool:
    return isinstance(domain, LiteralDomain) and domain.has_null


def _is_candidate(domain: Domain, names: list[str]) -> str:
    """Return the condition that the keys of a row have values of the domain."""
    factors = list_factors(domain)
    parts = []
    for position, (factor, name) in enumerate(zip(factors, names, strict=True)):
        found = in_query(name, select([name], _name_factor(position, factors)))
        parts.append(either(is_null(name), found) if _has_null(factor) else found)
    return both(*parts)


def _join_candidates(domain: Domain, counted: str, *, names: list[str]) -> str:
    """Return the candidates, each with its group if there are rows of it; NULL and NULL are the same group."""
    on = [
        (not_distinct if _has_null(factor) else equal)(qualify_column(DOMAIN, name), qualify_column(_COUNTED, name))
        for factor, name in zip(list_factors(domain), names, strict=True)
    ]
    return left_join(DOMAIN, subquery(counted), name=_COUNTED, on=both(*on))


def _name_keys(names: list[str]) -> str:
    """Return the keys of the candidates under their own names."""
    return list_parts(alias(qualify_column(DOMAIN, name), name) for name in names)


def _build_unit_rows(writer: Writer, query: PrivateQuery, *, names: list[str], form: Form) -> str:
    """Return the SQL for the rows to count: keys and unit, without rows that have no unit; or keys and counts."""
    keys = [alias(writer.expression(key), name) for key, name in zip(query.keys, names, strict=True)]
    if form is Form.COUNTS:
        return writer.select([*keys, alias(UNITS, COUNT)], query.body)
    unit = writer.expression(canonicalize(query.unit))
    ranks = [RANK, GROUPS] if form is Form.RANKS else []
    body = writer.adapt_joins(query.body)
    return writer.select([*keys, alias(unit, UNIT), *ranks], body, where=subquery(not_null(unit)))
