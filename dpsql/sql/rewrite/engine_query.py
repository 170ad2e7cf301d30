"""Rewriter of private queries: engine SQL that counts distinct units and returns the leading groups, or all groups.

    query ── total ──▶ canonical keys ──▶ counted, bounded per unit if required ──▶ sorted ──▶ text and parameters

The keys break ties at the cut, NULLS LAST, text by its bytes. No row affects this order. The simplest query

    SELECT city FROM visits WHERE year = 2026 GROUP BY city TOP 5 PRIVATE

becomes, without the names of schemas and modules,

    SELECT dpsql_key_1, count(DISTINCT dpsql_unit) AS dpsql_count
    FROM (SELECT (t1.city COLLATE C) AS dpsql_key_1, t1.user_id AS dpsql_unit
          FROM visits AS t1 WHERE (t1.year = CAST($1 AS INTEGER)) AND (t1.user_id IS NOT NULL))
    GROUP BY dpsql_key_1
    ORDER BY dpsql_count DESC, dpsql_key_1 ASC NULLS LAST LIMIT 100
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from dpsql.errors import UsageError
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
from dpsql.sql.ir.visitor import canonicalize, rebuild_body
from dpsql.sql.render.duckdb import Writer, compose, sort_nulls_last
from dpsql.sql.render.portable import writer_for
from dpsql.sql.rewrite.contribution_bounding import (
    FIRST,
    GROUPS,
    RANK,
    TOTAL,
    UNIT,
    WEIGHT,
    Bound,
    UnitRows,
    bound_contributions,
    count_groups_of_units,
    count_units,
    filter_partitions,
    rank_pairs,
    select_pairs,
    spread_first,
    sum_first,
    weigh_contributions,
)
from dpsql.sql.rewrite.contributions import (
    bound_pairs,
    build_contributions,
    build_stored_sums,
    name_parts,
    name_sums,
    sum_contributions,
    weigh_pairs,
)
from dpsql.sql.rewrite.group_order import cut_groups, select_leading_groups, sort_groups
from dpsql.sql.rewrite.passes import make_total
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
_ROWS_OF = "(SELECT system.main.count() FROM {units})"  # nothing where no CTE has the units
_EQUALS_NULL = "IS NOT DISTINCT FROM"  # of a key whose NULL is a group


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


@dataclass(frozen=True, slots=True)
class _Request:
    """What one counting query returns, beside its query.

    The first `rows` groups by the first measure if `leading`, all if `rows` is None; `unordered` sorts these by their
    keys. With `weights` the groups have a weight after the first measure, which counts the units that a bound selects
    or `of_all`. Of an unknown domain those are returned whose first measure, or weight if `by_weight`, is above 0,
    unless `every` is set.
    """

    query: PrivateQuery
    bound: Bound | None = None
    rows: int | None = None
    leading: bool = False
    unordered: bool = False
    every: bool = False
    weights: Sequence[int] = ()
    of_all: bool = False
    by_weight: bool = True


def rewrite(query: PrivateQuery, rows: int | None, *, bound: Bound | None = None) -> CountingQuery:
    """Return the SQL for the first `rows` groups by distinct units, in each partition if there are partitions.

    None selects every candidate of a domain.
    """
    return _rewrite(_Request(query, bound, rows, leading=True))


def rewrite_unordered(query: PrivateQuery, rows: int, *, bound: Bound | None = None) -> CountingQuery:
    """Return the SQL for the first `rows` groups by distinct units, sorted by the keys and not by the counts."""
    return _rewrite(_Request(query, bound, rows, leading=True, unordered=True))


def rewrite_all(query: PrivateQuery, *, bound: Bound | None = None, every: bool = False) -> CountingQuery:
    """Return the SQL for every group that has a unit, sorted by the keys alone.

    Groups to which units add nothing are left out unless `every` is set: a group whose name is known has its measures
    in any case.
    """
    return _rewrite(_Request(query, bound, every=every))


def rewrite_weighted(
    query: PrivateQuery, *, bound: Bound | None, weights: Sequence[int], every: bool = False
) -> CountingQuery:
    """Return the SQL for count and weight of every group that is selected for some unit, sorted by the keys.

    A unit with t selected groups adds 1 to the count and weights[t - 1] to the weight of each of them; of another first
    measure, to which it adds c of at most R, c / R of that weight, rounded down. Groups of the weight 0 are left out
    unless `every` is set.
    """
    return _rewrite_weighted(_Request(query, bound, weights=weights, every=every))


def rewrite_weighted_of_all(
    query: PrivateQuery, *, bound: Bound | None, weights: Sequence[int], every: bool = False
) -> CountingQuery:
    """Return the SQL for the same groups and weights, with the count of all units of a group."""
    return _rewrite_weighted(_Request(query, bound, weights=weights, every=every, of_all=True))


def rewrite_counts_and_weights(
    query: PrivateQuery, *, bound: Bound | None, weights: Sequence[int], of_all: bool
) -> CountingQuery:
    """Return the SQL for all groups whose count, or first measure, is above 0, with weights that may be 0.

    The count is of all units of a group, or only of those for which the bound selects it if `of_all` is False.
    """
    return _rewrite_weighted(_Request(query, bound, weights=weights, of_all=of_all, by_weight=False))


def _rewrite_weighted(request: _Request) -> CountingQuery:
    if request.bound is None or len(request.weights) != request.bound.groups:
        reason = "There must be one weight for every number of groups up to the bound."
        raise UsageError("bound-range", reason, hint="Give the weights of 1 to max_groups_contributed groups.")
    return _rewrite(request)


def rewrite_total(query: PrivateQuery) -> CountingQuery:
    """Return the SQL for one row: the measures of all rows of a query without keys.

    SELECT COUNT(DISTINCT user_id) FROM visits PRIVATE      becomes
    SELECT count(DISTINCT dpsql_unit) AS dpsql_count FROM (SELECT t1.user_id AS dpsql_unit FROM visits AS t1 ...)
    """
    source = use_materialized(query, bounded=False)
    query = _apply_passes(source.query)
    writer = writer_for(query.dialect)
    if source.form is Form.COUNTS:  # of one group, or of none
        rows = build_stored_sums(writer, query, names=[], stored=source.steps)
        columns = [f"COALESCE(CAST(system.main.sum({name}) AS BIGINT), 0) AS {name}" for name in name_sums(query)]
    elif query.counts_units_alone:
        rows = _build_unit_rows(writer, query, names=[], form=Form.ROWS)
        columns = ["system.main.count(DISTINCT dpsql_unit) AS dpsql_count"]
    else:
        rows = build_contributions(writer, query, names=[], form=source.form, stored=source.steps)
        columns = sum_contributions(query)
    sql = compose("SELECT {columns} FROM ({rows})", columns=columns, rows=rows)
    return _finish(writer, sql, query=query, measures=len(query.measures), reads=source.description)


@dataclass(frozen=True, slots=True)
class _Draft:
    """Counting query that is being written: its query over the chosen source, the names of its keys, and its CTEs."""

    request: _Request
    source: QuerySource
    query: PrivateQuery
    writer: Writer
    names: list[str]
    ctes: list[str] = field(default_factory=list)

    @property
    def domain(self) -> Domain | None:
        """Known domain of the groups; weights are only read over an unknown one."""
        return None if self.request.weights else self.query.domain

    def group(self, rows: str, columns: Sequence[str], *, positive: str = "", units: str = "", where: str = "") -> str:
        """Return the SELECT of the groups of some rows; those whose sum `positive` is above 0, if it is given.

        Where the number of units is read and `units` does not count them, the rows have RANK, and groups FIRST.
        """
        template = """
        SELECT {columns}
        FROM {rows}
        WHERE {where}
        GROUP BY {keys}
        HAVING {positive} > 0
        """
        has_first = self.query.reads_total and not units
        columns = [*self.names, *columns, *([sum_first()] if has_first else [])]
        positive = "" if has_first else positive
        return compose(template, keys=self.names, columns=columns, rows=rows, where=where, positive=positive)

    def complete(self, groups: str, measures: Sequence[str], *, positive: str = "", units: str = "") -> str:
        """Return the SELECT of the groups with TOTAL if it is read, or of the candidates of a known domain.

        Of groups with FIRST those are selected of which the column `positive` is above 0, if it is given.
        """
        has_first = self.query.reads_total and not units
        if self.domain is not None:
            groups = _join_candidates(self.domain, groups, names=self.names, measures=measures, has_first=has_first)
        if has_first:
            where = f"{positive} > 0" if positive and self.domain is None else ""
            return spread_first(groups, [*self.names, *measures], where=where)
        if not self.query.reads_total:
            return groups
        columns = ["*"] if self.request.weights else [*self.names, *measures]
        template = "SELECT {columns}, {units} AS dpsql_total FROM ({groups})"
        return compose(template, columns=columns, units=units, groups=groups)


def _rewrite(request: _Request) -> CountingQuery:
    """Return the SQL for the groups and their measures, in the order of the request."""
    source = use_materialized(request.query, bounded=request.bound is not None)
    query = _apply_passes(source.query)
    names = [f"dpsql_key_{at}" for at in range(1, len(query.keys) + 1)]
    types = {name: each.type for name, each in zip((*names, UNIT), (*query.keys, query.unit), strict=True)}
    draft = _Draft(request, source, query, writer_for(query.dialect, types), names)
    if request.weights:
        write = _weigh_units if query.counts_units_alone else _weigh_measures
    else:
        write = _count_units if query.counts_units_alone else _add_measures
    groups, measures = write(draft)
    key, cut_at = "" if query.partitions is None else names[query.partitions.key], None
    order = f"{measures[0]} DESC, {sort_nulls_last(names)}" if request.leading else sort_nulls_last(names)
    if request.rows is not None:
        columns = [*names, *measures]
        sql = select_leading_groups(draft.writer, groups, order=order, rows=request.rows, key=key, columns=columns)
    else:
        if query.group_cut is not None:
            ranked = WEIGHT if request.weights else measures[0]
            columns = [*measures, *[TOTAL] * query.reads_total]
            groups, cut_at = cut_groups(
                draft.writer, groups, cut=query.group_cut, names=names, measures=columns, ranked=ranked
            )
        sql = sort_groups(groups, order, key=key)
    sql = compose("WITH {ctes}\n{sql}", ctes=draft.ctes, sql=sql)
    if request.unordered:
        sql = compose("SELECT * FROM ({sql})\nORDER BY {keys}", sql=sql, keys=sort_nulls_last(names))
    measured = len(measures)
    return _finish(draft.writer, sql, query=query, measures=measured, reads=source.description, cut_at=cut_at)


def _count_units(draft: _Draft) -> tuple[str, list[str]]:
    """Return the SELECT of all groups, or candidates, with the number of their units, and the name of that column.

    Each unit in one group of two that it has, say, is counted as

    SELECT dpsql_key_1, count() AS dpsql_count
    FROM (SELECT dpsql_key_1, dpsql_unit
          FROM (SELECT dpsql_key_1, dpsql_unit, row_number() OVER (PARTITION BY dpsql_unit ORDER BY draw) AS dpsql_rank
                FROM (SELECT DISTINCT dpsql_key_1, dpsql_unit FROM (rows)))
          WHERE dpsql_rank <= 2)
    GROUP BY dpsql_key_1
    """
    writer, query, names, form = draft.writer, draft.query, draft.names, draft.source.form
    bound, units, counted = draft.request.bound, "", ["system.main.count() AS dpsql_count"]
    rows = _list_unit_rows(draft)
    if form is Form.COUNTS:
        return draft.complete(rows, [COUNT], units=_count_stored_units(draft)), [COUNT]
    if bound is not None:
        limit, base = replace(bound, counts_units=query.reads_total), UnitRows(rows, names, form is Form.RANKS)
        bounded = bound_contributions(writer, base, bound=limit)
        draft.ctes.extend(bounded.ctes)
        source, units = f"({bounded.source})", compose(_ROWS_OF, units=bounded.units)
    elif query.reads_total:
        pairs = rows if form is Form.PAIRS else select_pairs(writer, UnitRows(rows, names))
        source, units = _number_pairs(draft, pairs, parts=())
    else:
        source = f"({rows})"
        counted = counted if form is Form.PAIRS else ["system.main.count(DISTINCT dpsql_unit) AS dpsql_count"]
    groups = draft.group(source, counted, units=units)
    return draft.complete(groups, [COUNT], units=units), [COUNT]


def _add_measures(draft: _Draft) -> tuple[str, list[str]]:
    """Return the SELECT of the groups with their measures, and the names of these.

    Over an unknown domain these are groups whose first measure is above 0: a group to which units add nothing would
    stand in a ranking although no unit need be in it.

    SELECT dpsql_key_1, COALESCE(CAST(sum(dpsql_part_1) AS BIGINT), 0) AS dpsql_measure_1
    FROM (SELECT dpsql_key_1, dpsql_unit, what the unit adds AS dpsql_part_1 FROM ... GROUP BY dpsql_key_1, dpsql_unit)
    GROUP BY dpsql_key_1 HAVING sum(dpsql_part_1) > 0
    """
    query, names, bound, sums = draft.query, draft.names, draft.request.bound, name_sums(draft.query)
    is_open = query.domain is None and not draft.request.every
    if draft.source.form is Form.COUNTS:
        groups = build_stored_sums(draft.writer, query, names=names, stored=draft.source.steps)
        where = _list_candidates(draft) if query.domain is not None else f"{sums[0]} > 0" if is_open else ""
        groups = compose("SELECT * FROM ({groups})\nWHERE {where}", groups=groups, where=where)
        return draft.complete(groups, sums, units=_count_stored_units(draft)), sums
    pairs, units = _list_contributions(draft), ""
    if query.domain is not None:
        where = _list_candidates(draft)
        pairs = compose("SELECT * FROM ({pairs}) WHERE {where}", pairs=pairs, where=where)
    if bound is not None:
        is_ranked = draft.source.form is Form.RANKS
        source = bound_pairs(draft.writer, pairs, query=query, names=names, bound=bound, is_ranked=is_ranked)
        source = f"({source})"
    elif query.reads_total:
        source, units = _number_pairs(draft, pairs, parts=name_parts(query))
    else:
        source = f"({pairs})"
    positive = f"system.main.sum({name_parts(query)[0]})" if is_open else ""
    groups = draft.group(source, sum_contributions(query), positive=positive, units=units)
    return draft.complete(groups, sums, positive=sums[0] if is_open else "", units=units), sums


def _weigh_units(draft: _Draft) -> tuple[str, list[str]]:
    """Return the SELECT of the groups with the number of their units and their weight, and the names of these.

    WITH dpsql_pairs AS (SELECT DISTINCT dpsql_key_1, dpsql_unit FROM (rows)),
         dpsql_units AS (SELECT dpsql_unit, weights[least(count(), 2)] AS dpsql_weight, count() > 2 AS dpsql_above
                         FROM dpsql_pairs GROUP BY dpsql_unit)
    SELECT dpsql_key_1, count() AS dpsql_count, sum(dpsql_weight) AS dpsql_weight
    FROM (SELECT dpsql_key_1, dpsql_weight FROM dpsql_pairs JOIN dpsql_units USING (dpsql_unit) WHERE NOT dpsql_above
          UNION ALL SELECT dpsql_key_1, weights[2] FROM (the first pairs of the other units))
    GROUP BY dpsql_key_1 HAVING sum(dpsql_weight) > 0
    """
    request, reads_total = draft.request, draft.query.reads_total
    rows = UnitRows(_list_unit_rows(draft), draft.names, draft.source.form is Form.RANKS)
    bound = replace(request.bound or Bound(0, (0, 0)), counts_units=reads_total)
    weighed = weigh_contributions(draft.writer, rows, bound=bound, weights=request.weights, of_all=request.of_all)
    draft.ctes.extend(weighed.ctes)
    units = compose(_ROWS_OF, units=weighed.units)
    columns = ["system.main.count() AS dpsql_count", "CAST(system.main.sum(dpsql_weight) AS BIGINT) AS dpsql_weight"]
    is_open = request.by_weight and not request.every  # every group that is there has a count
    positive = "system.main.sum(dpsql_weight)" if is_open else ""
    groups = draft.group(f"({weighed.source})", columns, positive=positive, units=units)
    measures = [COUNT, WEIGHT]
    return draft.complete(groups, measures, positive=WEIGHT if is_open else "", units=units), measures


def _weigh_measures(draft: _Draft) -> tuple[str, list[str]]:
    """Return the SELECT of the groups: first measure, weight, other measures; and the names of these."""
    request, query, (first, *others) = draft.request, draft.query, name_sums(draft.query)
    bound = request.bound or Bound(0, (0, 0))
    pairs = _list_contributions(draft)
    if draft.source.form is not Form.RANKS:
        parts = name_parts(query)
        pairs = rank_pairs(draft.writer, f"({pairs})", names=draft.names, salts=bound.salts, parts=parts)
        pairs = count_groups_of_units(draft.writer, pairs)
    weighed = weigh_pairs(draft.writer, pairs, bound=bound, weights=request.weights, most=query.measures[0].width)
    sums = sum_contributions(query)
    columns = [sums[0], "CAST(system.main.sum(dpsql_weight) AS BIGINT) AS dpsql_weight", *sums[1:]]
    added, column = (WEIGHT, WEIGHT) if request.by_weight else (name_parts(query)[0], first)
    positive = "" if request.every else f"system.main.sum({added})"
    where = "" if request.of_all else f"dpsql_rank <= {bound.groups:d}"
    groups = draft.group(f"({weighed})", columns, positive=positive, where=where)
    measures = [first, WEIGHT, *others]
    return draft.complete(groups, measures, positive="" if request.every else column), measures


def _list_unit_rows(draft: _Draft) -> str:
    """Return the SQL for the rows to count, in the listed partitions and of the candidates of a known domain."""
    names, form, partitions = draft.names, draft.source.form, draft.query.partitions
    rows = _build_unit_rows(draft.writer, draft.query, names=names, form=form)
    if partitions is not None:
        ctes, rows = filter_partitions(draft.writer, rows, names=names, partitions=partitions)
        draft.ctes.extend(ctes)
    if draft.domain is None:
        return rows
    where = _list_candidates(draft)
    columns = [COUNT] if form is Form.COUNTS else [UNIT, *([RANK, GROUPS] if form is Form.RANKS else [])]
    template = "SELECT {columns} FROM ({rows}) WHERE {where}"
    return compose(template, columns=[*names, *columns], rows=rows, where=where)


def _list_contributions(draft: _Draft) -> str:
    """Return the SQL for what each unit adds to each group of the listed partitions, or of all."""
    query, names, source = draft.query, draft.names, draft.source
    pairs = build_contributions(draft.writer, query, names=names, form=source.form, stored=source.steps)
    if query.partitions is None:
        return pairs
    parts = name_parts(query)
    ctes, pairs = filter_partitions(draft.writer, pairs, names=names, partitions=query.partitions, parts=parts)
    draft.ctes.extend(ctes)
    return pairs


def _number_pairs(draft: _Draft, pairs: str, *, parts: Sequence[str]) -> tuple[str, str]:
    """Return pairs as a relation whose units are counted: by a scalar subquery over a CTE, or by their RANK."""
    if draft.writer.native:
        draft.ctes.append(f"dpsql_pairs AS MATERIALIZED ({pairs})")
        return "dpsql_pairs", count_units("dpsql_pairs")
    return f"({rank_pairs(draft.writer, f'({pairs})', names=draft.names, salts=None, parts=parts)})", ""


def _count_stored_units(draft: _Draft) -> str:
    """Return the scalar subquery that counts the units of groups whose counts are stored, from the stored pairs.

    "" where they are not counted. Both tables were made from the same rows, and are of the same file.
    """
    if not draft.query.reads_total or draft.source.of_units is None:
        return ""
    pairs = _apply_passes(draft.source.of_units)
    if pairs.body.where is None and pairs.domain is None:  # the first pair of each unit
        return f"({draft.writer.select(['system.main.count()'], pairs.body, where='dpsql_rank <= 1')})"
    rows = _build_unit_rows(draft.writer, pairs, names=draft.names, form=Form.PAIRS)
    if pairs.domain is not None:
        where = _is_candidate(pairs.domain, draft.names)
        rows = compose("SELECT dpsql_unit FROM ({rows}) WHERE {where}", rows=rows, where=where)
    return count_units(f"({rows})")


def _build_unit_rows(writer: Writer, query: PrivateQuery, *, names: list[str], form: Form) -> str:
    """Return the SQL for the rows to count: keys and unit, without rows that have no unit; or keys and counts."""
    keys = [f"{writer.expression(key)} AS {name}" for key, name in zip(query.keys, names, strict=True)]
    if form is Form.COUNTS:
        return writer.select([*keys, "dpsql_units AS dpsql_count"], query.body)
    unit = writer.expression(canonicalize(query.unit))
    columns = [*keys, f"{unit} AS dpsql_unit", *([RANK, GROUPS] if form is Form.RANKS else [])]
    return writer.select(columns, writer.adapt_joins(query.body), where=f"({unit} IS NOT NULL)")


def _list_candidates(draft: _Draft) -> str:
    """Add the CTEs of the candidates of the known domain, and return the condition that the keys of a row are there.

    WITH dpsql_domain AS (SELECT DISTINCT dpsql_key_1 FROM (VALUES ('Paris'), ('Rome')) AS dpsql_listed(dpsql_key_1)
                          WHERE dpsql_key_1 IS NOT NULL)
    ... WHERE dpsql_key_1 IN (SELECT dpsql_key_1 FROM dpsql_domain)

    With several keys dpsql_domain has all combinations of the values in dpsql_domain_1, dpsql_domain_2 and so on.
    """
    if draft.query.domain is None:
        return ""
    factors = list_factors(draft.query.domain)
    listed = [
        f"{_name_factor(at, factors)} AS MATERIALIZED ({_build_values(draft.writer, each, name=name)})"
        for at, (each, name) in enumerate(zip(factors, draft.names, strict=True))
    ]
    draft.ctes.extend(listed)
    if len(listed) > 1:
        tables = " CROSS JOIN ".join(_name_factor(at, factors) for at in range(len(factors)))
        product = "dpsql_domain AS MATERIALIZED (SELECT {keys} FROM {tables})"
        draft.ctes.append(compose(product, keys=draft.names, tables=tables))
    return _is_candidate(draft.query.domain, draft.names)


def _build_values(writer: Writer, domain: KeyDomain, *, name: str) -> str:
    """Return the SQL for the distinct values of a key; NULL is among them only where the query says so."""
    if isinstance(domain, TableDomain):
        values = writer.select([f"{writer.expression(domain.value)} AS {name}"], domain.body)
    elif (times := writer.list_times(domain.values, name)) is not None:
        values = times
    else:
        rows = (f"({writer.expression(value)})" for value in domain.values)
        values = compose("SELECT {name} FROM (VALUES {rows}) AS dpsql_listed({name})", name=name, rows=rows)
    return compose(
        """
        SELECT DISTINCT {name} FROM ({values})
        WHERE {present}
        """,
        name=name,
        values=values,
        present="" if _has_null(domain) else f"{name} IS NOT NULL",
    )


def _name_factor(at: int, factors: Sequence[object]) -> str:
    """Return the name of the CTE of the values of one key."""
    return "dpsql_domain" if len(factors) == 1 else f"dpsql_domain_{at + 1}"


def _has_null(domain: KeyDomain) -> bool:
    return isinstance(domain, LiteralDomain) and domain.has_null


def _is_candidate(domain: Domain, names: list[str]) -> str:
    """Return the condition that the keys of a row have values of the domain."""
    factors = list_factors(domain)
    parts = []
    for at, (factor, name) in enumerate(zip(factors, names, strict=True)):
        listed = compose("{name} IN (SELECT {name} FROM {table})", name=name, table=_name_factor(at, factors))
        parts.append(f"({name} IS NULL OR {listed})" if _has_null(factor) else listed)
    return " AND ".join(parts)


def _join_candidates(
    domain: Domain, counted: str, *, names: list[str], measures: Sequence[str], has_first: bool
) -> str:
    """Return the candidates, each with its group if there are rows of it; NULL and NULL are the same group.

    SELECT dpsql_domain.dpsql_key_1 AS dpsql_key_1, COALESCE(dpsql_count, 0) AS dpsql_count
    FROM dpsql_domain LEFT JOIN (groups) AS dpsql_counted ON dpsql_domain.dpsql_key_1 = dpsql_counted.dpsql_key_1
    """
    return compose(
        "SELECT {columns} FROM dpsql_domain LEFT JOIN ({counted}) AS dpsql_counted ON {same}",
        columns=[
            *(f"dpsql_domain.{name} AS {name}" for name in names),
            *(f"COALESCE({name}, 0) AS {name}" for name in measures),
            *([FIRST] if has_first else []),
        ],
        counted=counted,
        same=" AND ".join(
            f"dpsql_domain.{name} {_EQUALS_NULL if _has_null(factor) else '='} dpsql_counted.{name}"
            for factor, name in zip(list_factors(domain), names, strict=True)
        ),
    )


def _finish(
    writer: Writer, sql: str, *, query: PrivateQuery, measures: int, reads: str, cut_at: int | None = None
) -> CountingQuery:
    """Return the finished statement with its parameters and column types."""
    numbers = measures + (query.partitions is not None) + query.reads_total + (cut_at is not None)
    types = *(key.type.name for key in query.keys), *[BIGINT.name] * numbers
    return CountingQuery(writer.finished(sql), tuple(writer.parameters), types, reads, query.reads_total, cut_at)
