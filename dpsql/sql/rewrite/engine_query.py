"""Rewriter of private queries: engine SQL that counts distinct units and returns the leading groups, or all groups.

    query ── total ──▶ canonical keys ──▶ counted, bounded per unit if required ──▶ sorted ──▶ text and parameters

The keys break ties at the cut, NULLS LAST, text by its bytes. No row affects this order. Groups of a known domain are
its candidates, each with its group if there are rows of it. The simplest query

    SELECT city FROM visits WHERE year = 2026 GROUP BY city TOP 5 PRIVATE WITH (mechanism = limited_domain)

becomes, without the names of schemas and modules,

    SELECT dpsql_key_1, count(DISTINCT dpsql_unit) AS dpsql_count
    FROM (SELECT (t1.city COLLATE C) AS dpsql_key_1, t1.user_id AS dpsql_unit
          FROM visits AS t1 WHERE (t1.year = CAST($1 AS INTEGER)) AND (t1.user_id IS NOT NULL))
    GROUP BY dpsql_key_1
    ORDER BY dpsql_count DESC, dpsql_key_1 ASC NULLS LAST LIMIT 101

101 is k_bar + 1, with k_bar = 20 k.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from dpsql.dialects import DUCKDB
from dpsql.errors import UsageError
from dpsql.sql.ir.catalog import Form
from dpsql.sql.ir.measures import Aggregate
from dpsql.sql.ir.statements import (
    Domain,
    LiteralDomain,
    PrivateQuery,
    ProductDomain,
    ReleasedDomain,
    TableDomain,
    list_factors,
)
from dpsql.sql.ir.transforms import canonicalize, make_total, rebuild
from dpsql.sql.ir.tree import BIGINT, join_conjuncts, split_conjuncts
from dpsql.sql.render.duckdb import Writer, compose, sort_nulls_last
from dpsql.sql.render.portable import writer_for
from dpsql.sql.rewrite.bounding import (
    GROUPS,
    RANK,
    UNIT,
    WEIGHT,
    Bound,
    UnitRows,
    bound_contributions,
    count_groups_of_units,
    rank_item_rows,
    rank_pairs,
    select_pairs,
    weigh_contributions,
)
from dpsql.sql.rewrite.contributions import (
    ONE,
    build_contributions,
    build_item_rows,
    counts_items,
    find_pair_types,
    name_keys,
    name_parts,
    name_sums,
    read_rows,
    sum_contributions,
)
from dpsql.sql.rewrite.known_groups import (
    cut_groups,
    filter_partitions,
    is_candidate,
    list_candidates,
)
from dpsql.sql.rewrite.use_materialized import QuerySource, use_materialized

__all__ = [
    "Bound",
    "EngineQuery",
    "rewrite_all",
    "rewrite_counts_and_weights",
    "rewrite_leaders",
    "rewrite_total",
    "rewrite_unordered",
    "rewrite_weighted",
    "rewrite_weighted_of_all",
]

COUNT = "dpsql_count"
TOTAL = "dpsql_total"
FIRST = "dpsql_first"
_EQUALS_NULL = "IS NOT DISTINCT FROM"  # of a key whose NULL is a group
_ROWS_OF = "(SELECT system.main.count() FROM {units})"  # nothing where no CTE has the units


@dataclass(frozen=True, slots=True, repr=False)
class EngineQuery:
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

    def select_places(self, places: Sequence[int]) -> EngineQuery:
        """Return the query with the places of groups to return, the last of them after which all are."""
        start = self.cut_at or 0
        parameters = (*self.parameters[:start], *places, *self.parameters[start + len(places) :])
        return replace(self, parameters=parameters)

    def __repr__(self) -> str:
        return f"EngineQuery({self.sql!r}, {len(self.parameters)} parameters)"


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
    weights: Sequence[int] | None = None
    of_all: bool = False
    by_weight: bool = True


def rewrite_leaders(query: PrivateQuery, rows: int | None, *, bound: Bound | None = None) -> EngineQuery:
    """Return the SQL for the first `rows` groups by distinct units, in each partition if there are partitions.

    None selects every candidate of a domain.
    """
    return _rewrite(_Request(query, bound, rows, leading=True))


def rewrite_unordered(query: PrivateQuery, rows: int, *, bound: Bound | None = None) -> EngineQuery:
    """Return the SQL for the first `rows` groups by distinct units, sorted by the keys and not by the counts."""
    return _rewrite(_Request(query, bound, rows, leading=True, unordered=True))


def rewrite_all(query: PrivateQuery, *, bound: Bound | None = None, every: bool = False) -> EngineQuery:
    """Return the SQL for every group that has a unit, sorted by the keys alone.

    Groups to which units add nothing are left out unless `every` is set: a group whose name is known has its measures
    in any case.
    """
    return _rewrite(_Request(query, bound, every=every))


def rewrite_weighted(
    query: PrivateQuery, *, bound: Bound | None, weights: Sequence[int], every: bool = False
) -> EngineQuery:
    """Return the SQL for count and weight of every group that is selected for some unit, sorted by the keys.

    A unit with t selected groups adds 1 to the count and weights[t - 1] to the weight of each of them; of another first
    measure, to which it adds c of at most R, c / R of that weight, rounded down. Groups of the weight 0 are left out
    unless `every` is set.
    """
    return _rewrite(_Request(query, bound, weights=weights, every=every))


def rewrite_weighted_of_all(
    query: PrivateQuery, *, bound: Bound | None, weights: Sequence[int], every: bool = False
) -> EngineQuery:
    """Return the SQL for the same groups and weights, with the count of all units of a group."""
    return _rewrite(_Request(query, bound, weights=weights, every=every, of_all=True))


def rewrite_counts_and_weights(
    query: PrivateQuery, *, bound: Bound | None, weights: Sequence[int], of_all: bool
) -> EngineQuery:
    """Return the SQL for all groups whose count, or first measure, is above 0, with weights that may be 0.

    The count is of all units of a group, or only of those for which the bound selects it if `of_all` is False.
    """
    return _rewrite(_Request(query, bound, weights=weights, of_all=of_all, by_weight=False))


def rewrite_total(query: PrivateQuery) -> EngineQuery:
    """Return the SQL for one row: the measures of all rows of a query without keys.

    SELECT COUNT(DISTINCT user_id) FROM visits PRIVATE      becomes
    SELECT count(DISTINCT dpsql_unit) AS dpsql_count FROM (SELECT t1.user_id AS dpsql_unit FROM visits AS t1 ...)
    """
    source = use_materialized(query, bounded=False)
    query = apply_passes(source.query)
    writer, columns = open_writer(query), sum_contributions(query)
    if source.form is Form.COUNTS:  # of one group, or of none
        rows = _read_stored_sums(writer, query, names=[], source=source)
        columns = [f"COALESCE(CAST(system.main.sum({name}) AS BIGINT), 0) AS {name}" for name in name_sums(query)]
    elif query.counts_units_alone:
        rows = read_rows(writer, query, names=[])
        columns = ["system.main.count(DISTINCT dpsql_unit) AS dpsql_count"]
    elif counts_items(query):
        rows = build_item_rows(writer, query, names=[])
    else:
        rows = build_contributions(writer, query, names=[], form=source.form, stored=source.steps)
    sql = compose("SELECT {columns} FROM ({rows})", columns=columns, rows=rows)
    return _finish(writer, sql, query=query, measures=len(query.measures), reads=source.description)


def open_writer(query: PrivateQuery) -> Writer:
    """Return the writer of statements for the engine that has the tables of a query."""
    return Writer() if query.dialect is DUCKDB else writer_for(query.dialect, find_pair_types(query))


def confine_to_values(query: PrivateQuery) -> PrivateQuery:
    """Return the query over the rows of units that have one of its charged values; as it is without these.

    In every row of a private query all units are equal, and a row belongs to its unit (`ir/scope.py`). Rows of
    units with other values are dropped where the rows are counted. So such a unit changes no answer: its own rows are
    not counted, and neither the rows of other units nor their values depend on it. Which value a unit has is decided
    over all its rows of the stored table, before WHERE, without the salts of a session and without materialized tables.
    """
    values = query.charged_values
    if values is None or values.condition is None:
        return query
    # WHERE year = 2026 becomes WHERE year = 2026 AND user_id IN (SELECT the units that have one of the values)
    where = join_conjuncts([*split_conjuncts(query.body.where), values.condition])
    return replace(query, body=replace(query.body, where=where), charged_values=replace(values, condition=None))


def apply_passes(query: PrivateQuery) -> PrivateQuery:
    """Return a query whose expressions never fail, and whose keys and candidates are equal if they print alike."""
    keys = tuple(canonicalize(make_total(key)) for key in query.keys)
    query = replace(query, keys=keys, body=rebuild(query.body, make_total))
    if query.domain is None or isinstance(query.domain, ReleasedDomain):
        return query
    factors = tuple(
        replace(each, value=canonicalize(make_total(each.value)))
        if isinstance(each, TableDomain)
        else LiteralDomain(tuple(canonicalize(make_total(value)) for value in each.values))
        for each in list_factors(query.domain)
    )
    return replace(query, domain=ProductDomain(factors) if isinstance(query.domain, ProductDomain) else factors[0])


@dataclass(frozen=True, slots=True)
class _Draft:
    """Counting query that is being written: its query over the chosen source, the names of its keys, and its CTEs.

    The `domain` is that of the groups, if it is known; weights are only read over an unknown one.
    """

    request: _Request
    source: QuerySource
    query: PrivateQuery
    domain: Domain | None
    writer: Writer
    names: list[str]
    ctes: list[str] = field(default_factory=list)

    def group(self, rows: str, columns: Sequence[str], *, positive: str = "", units: str = "", where: str = "") -> str:
        """Return the SELECT of the groups of some rows; those whose sum `positive` is above 0, if it is given.

        Where the number of units is read and `units` does not count them, the rows have RANK, and groups FIRST: the
        number of units whose pair of rank 1 is in the group.
        """
        template = """
        SELECT {columns}
        FROM {rows}
        WHERE {where}
        GROUP BY {keys}
        HAVING {positive} > 0
        """
        columns = [*self.names, *columns]
        if self.query.reads_total and not units:
            one = ONE if counts_items(self.query) else "1"
            columns.append(f"system.main.sum(CASE WHEN dpsql_rank <= 1 THEN {one} ELSE 0 END) AS dpsql_first")
            positive = ""  # a group that is left out later still has its part of the total
        return compose(template, keys=self.names, columns=columns, rows=rows, where=where, positive=positive)

    def complete(self, groups: str, measures: Sequence[str], *, positive: str = "", units: str = "") -> str:
        """Return the SELECT of the groups with TOTAL if it is read, or of the candidates of a known domain.

        Of groups with FIRST those are selected of which the column `positive` is above 0, if it is given.

        SELECT dpsql_domain.dpsql_key_1 AS dpsql_key_1, COALESCE(dpsql_count, 0) AS dpsql_count
        FROM dpsql_domain LEFT JOIN (groups) AS dpsql_counted ON dpsql_domain.dpsql_key_1 = dpsql_counted.dpsql_key_1
        """
        has_first = self.query.reads_total and not units
        if self.domain is not None:
            factors = zip(list_factors(self.domain), self.names, strict=True)
            same = {name: _EQUALS_NULL if factor.has_null else "=" for factor, name in factors}
            groups = compose(
                "SELECT {columns} FROM dpsql_domain LEFT JOIN ({groups}) AS dpsql_counted ON {same}",
                columns=[
                    *(f"dpsql_domain.{name} AS {name}" for name in self.names),
                    *(f"COALESCE({name}, 0) AS {name}" for name in measures),
                    *([FIRST] if has_first else []),
                ],
                groups=groups,
                same=" AND ".join(f"dpsql_domain.{name} {sign} dpsql_counted.{name}" for name, sign in same.items()),
            )
        # FIRST is NULL for a candidate without a row, and sum passes over it. The total is of all groups: the filter is
        # around the SELECT of the window, not in it.
        if has_first:  # which candidates have none of where no row is in their group
            spread = compose(
                """
                SELECT {columns}, CAST(COALESCE(system.main.sum(dpsql_first) OVER (), 0) AS BIGINT) AS dpsql_total
                FROM ({groups})
                """,
                columns=[*self.names, *measures],
                groups=groups,
            )
            if not positive or self.domain is not None:
                return spread
            return compose("SELECT * FROM ({spread}) WHERE {positive} > 0", spread=spread, positive=positive)
        if not self.query.reads_total:
            return groups
        columns = ["*"] if self.request.weights else [*self.names, *measures]
        template = "SELECT {columns}, {units} AS dpsql_total FROM ({groups})"
        return compose(template, columns=columns, units=units, groups=groups)


def _rewrite(request: _Request) -> EngineQuery:
    """Return the SQL for the groups and their measures, in the order of the request."""
    bound, weights = request.bound, request.weights
    if weights is not None and (bound is None or len(weights) != bound.max_groups_contributed):
        reason = "There must be one weight for every number of groups up to the bound."
        raise UsageError("bound-range", reason, hint="Give the weights of 1 to max_groups_contributed groups.")
    source = QuerySource(request.query)
    if request.query.materialized:
        source = use_materialized(request.query, bounded=bound is not None)
    query = apply_passes(source.query)
    names, domain = name_keys(query), None if weights else query.domain
    draft = _Draft(request, source, query, domain, open_writer(query), names)
    if weights and bound is not None:
        weigh = _weigh_units if query.counts_units_alone else _weigh_measures
        groups, measures = weigh(draft, bound)
    else:
        groups, measures = _count_units(draft) if query.counts_units_alone else _add_measures(draft)
    cut_at = None
    if request.rows is None and query.group_cut is not None:
        ranked, columns = WEIGHT if weights else measures[0], [*measures, *[TOTAL] * query.reads_total]
        groups, cut_at = cut_groups(
            draft.writer, groups, cut=query.group_cut, names=names, measures=columns, ranked=ranked
        )
    sql = compose("WITH {ctes}\n{sql}", ctes=draft.ctes, sql=_sort_groups(draft, groups, measures=measures))
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
    rows = _list_units(draft)
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
        # Each row of PAIRS is one unit of a group; in all other forms a unit may have several rows of a group.
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
        groups = _read_stored_sums(draft.writer, query, names=names, source=draft.source)
        where = f"{sums[0]} > 0" if is_open else ""
        if query.domain is not None:
            where = list_candidates(draft.writer, query.domain, names=names, ctes=draft.ctes)
        groups = compose("SELECT * FROM ({groups})\nWHERE {where}", groups=groups, where=where)
        return draft.complete(groups, sums, units=_count_stored_units(draft)), sums
    pairs, units = _list_contributions(draft), ""
    if query.domain is not None:
        where = list_candidates(draft.writer, query.domain, names=names, ctes=draft.ctes)
        pairs = compose("SELECT * FROM ({pairs}) WHERE {where}", pairs=pairs, where=where)
    if bound is not None:
        if counts_items(query):
            pairs = rank_item_rows(draft.writer, f"({pairs})", names=names, salts=bound.salts)
        elif draft.source.form is not Form.RANKS:
            parts = name_parts(query)
            pairs = rank_pairs(draft.writer, f"({pairs})", names=names, salts=bound.salts, parts=parts)
        source = compose(
            "(SELECT * FROM ({pairs}) WHERE dpsql_rank <= {groups})", pairs=pairs, groups=bound.max_groups_contributed
        )
    elif query.reads_total:
        source, units = _number_pairs(draft, pairs, parts=name_parts(query))
    else:
        source = f"({pairs})"
    added = "count" if query.measures[0].aggregate is Aggregate.ITEMS else "sum"
    positive = f"system.main.{added}({name_parts(query)[0]})" if is_open else ""
    groups = draft.group(source, sum_contributions(query), positive=positive, units=units)
    return draft.complete(groups, sums, positive=sums[0] if is_open else "", units=units), sums


def _weigh_units(draft: _Draft, bound: Bound) -> tuple[str, list[str]]:
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
    rows = UnitRows(_list_units(draft), draft.names, draft.source.form is Form.RANKS)
    bound = replace(bound, counts_units=reads_total)
    weighed = weigh_contributions(draft.writer, rows, bound=bound, weights=request.weights or (), of_all=request.of_all)
    draft.ctes.extend(weighed.ctes)
    units = compose(_ROWS_OF, units=weighed.units)
    columns = ["system.main.count() AS dpsql_count", "CAST(system.main.sum(dpsql_weight) AS BIGINT) AS dpsql_weight"]
    is_open = request.by_weight and not request.every  # every group that is there has a count
    positive = "system.main.sum(dpsql_weight)" if is_open else ""
    groups = draft.group(f"({weighed.source})", columns, positive=positive, units=units)
    measures = [COUNT, WEIGHT]
    return draft.complete(groups, measures, positive=WEIGHT if is_open else "", units=units), measures


def _weigh_measures(draft: _Draft, bound: Bound) -> tuple[str, list[str]]:
    """Return the SELECT of the groups: first measure, weight, other measures; and the names of these.

    A unit with t groups left adds weights[t - 1] * c / width to each, rounded down, c being what it adds to the first
    measure; 0 to those beyond the bound.
    """
    request, query, (first, *others) = draft.request, draft.query, name_sums(draft.query)
    pairs = _list_contributions(draft)
    if counts_items(query):
        pairs = rank_item_rows(draft.writer, f"({pairs})", names=draft.names, salts=bound.salts, counted=True)
    elif draft.source.form is not Form.RANKS:
        parts = name_parts(query)
        pairs = rank_pairs(draft.writer, f"({pairs})", names=draft.names, salts=bound.salts, parts=parts)
        pairs = count_groups_of_units(draft.writer, pairs)
    # The product is below 2**41 and the quotient at most weights[t - 1] < 2**21, so that engines which divide in
    # doubles find the same whole number.
    listed = draft.writer.listed(request.weights or ())
    weight = draft.writer.looked_up(listed, f"system.main.least(dpsql_groups, {bound.max_groups_contributed:d})")
    # SELECT *, CASE WHEN dpsql_rank <= 3 THEN weights[least(dpsql_groups, 3)] * dpsql_part_1 // 500 ELSE 0 END AS ...
    weighed = compose(
        "SELECT *, CASE WHEN dpsql_rank <= {groups} THEN {share} ELSE 0 END AS dpsql_weight FROM ({pairs})",
        groups=bound.max_groups_contributed,
        share=f"(CAST({weight} AS BIGINT) * dpsql_part_1) // {query.measures[0].width:d}",
        pairs=pairs,
    )
    sums = sum_contributions(query)
    columns = [sums[0], "CAST(system.main.sum(dpsql_weight) AS BIGINT) AS dpsql_weight", *sums[1:]]
    added, column = (WEIGHT, WEIGHT) if request.by_weight else (name_parts(query)[0], first)
    # A weight may be rounded down to 0 where the measure is above 0, so that `by_weight` drops more groups than the
    # measure.
    positive = "" if request.every else f"system.main.sum({added})"
    where = "" if request.of_all else f"dpsql_rank <= {bound.max_groups_contributed:d}"
    groups = draft.group(f"({weighed})", columns, positive=positive, where=where)
    measures = [first, WEIGHT, *others]
    return draft.complete(groups, measures, positive="" if request.every else column), measures


def _list_units(draft: _Draft) -> str:
    """Return the SQL for the rows to count, in the listed partitions and of the candidates of a known domain.

    Of stored counts these are the keys and the number of units.
    """
    writer, query, names, form = draft.writer, draft.query, draft.names, draft.source.form
    if form is Form.COUNTS:
        keys = [f"{writer.expression(key)} AS {name}" for key, name in zip(query.keys, names, strict=True)]
        rows, columns = writer.select([*keys, "dpsql_units AS dpsql_count"], query.body), [COUNT]
    else:
        rows = read_rows(writer, query, names=names, form=form)
        columns = [UNIT, RANK, GROUPS] if form is Form.RANKS else [UNIT]
    if query.partitions is not None:
        rows = filter_partitions(writer, rows, names=names, partitions=query.partitions, ctes=draft.ctes)
    if draft.domain is None:
        return rows
    where = list_candidates(writer, draft.domain, names=names, ctes=draft.ctes)
    template = "SELECT {columns} FROM ({rows}) WHERE {where}"
    return compose(template, columns=[*names, *columns], rows=rows, where=where)


def _read_stored_sums(writer: Writer, query: PrivateQuery, *, names: list[str], source: QuerySource) -> str:
    """Return the SQL for the groups whose counts are stored: the keys `names`, and the sums of the measures."""
    expressions = zip((*query.keys, *source.steps), (*names, *name_sums(query)), strict=True)
    return writer.select([f"{writer.expression(each)} AS {name}" for each, name in expressions], query.body)


def _list_contributions(draft: _Draft) -> str:
    """Return the SQL for what each unit adds to each group of the listed partitions, or of all."""
    query, names, source = draft.query, draft.names, draft.source
    parts = name_parts(query)
    if counts_items(query):
        pairs, parts = build_item_rows(draft.writer, query, names=names), [*parts, ONE]
    else:
        pairs = build_contributions(draft.writer, query, names=names, form=source.form, stored=source.steps)
    if query.partitions is None:
        return pairs
    return filter_partitions(
        draft.writer, pairs, names=names, partitions=query.partitions, ctes=draft.ctes, parts=parts
    )


def _number_pairs(draft: _Draft, pairs: str, *, parts: Sequence[str]) -> tuple[str, str]:
    """Return pairs as a relation whose units are counted: by a scalar subquery over a CTE, or by their RANK."""
    # DuckDB computes a CTE that is MATERIALIZED once, so that groups and total are of the same rows. Elsewhere one
    # statement could compute it twice, and the table could change in between.
    if draft.writer.native:
        draft.ctes.append(f"dpsql_pairs AS MATERIALIZED ({pairs})")
        return "dpsql_pairs", _count_distinct_units("dpsql_pairs")
    if counts_items(draft.query):
        return f"({rank_item_rows(draft.writer, f'({pairs})', names=draft.names, salts=None)})", ""
    return f"({rank_pairs(draft.writer, f'({pairs})', names=draft.names, salts=None, parts=parts)})", ""


def _count_stored_units(draft: _Draft) -> str:
    """Return the scalar subquery that counts the units of groups whose counts are stored, from the stored pairs.

    "" where they are not counted. Both tables were made from the same rows, and are of the same file.
    """
    if not draft.query.reads_total or draft.source.of_units is None:
        return ""
    pairs = apply_passes(draft.source.of_units)
    if pairs.body.where is None and pairs.domain is None:  # the first pair of each unit
        return f"({draft.writer.select(['system.main.count()'], pairs.body, where='dpsql_rank <= 1')})"
    rows = read_rows(draft.writer, pairs, names=draft.names)
    if pairs.domain is not None:
        where = is_candidate(pairs.domain, draft.names)
        rows = compose("SELECT dpsql_unit FROM ({rows}) WHERE {where}", rows=rows, where=where)
    return _count_distinct_units(f"({rows})")


def _count_distinct_units(pairs: str) -> str:
    """Return the scalar subquery that counts the units of a relation of pairs, which is computed once."""
    template = "(SELECT system.main.count() FROM (SELECT dpsql_unit FROM {pairs} GROUP BY dpsql_unit))"
    return compose(template, pairs=pairs)


def _sort_groups(draft: _Draft, groups: str, *, measures: Sequence[str]) -> str:
    """Return the SELECT of the groups in the order of the request: all, or the first `rows` of them.

    With partitions these are the first ones of each, partition by partition, with its position as the last column.
    """
    request, names, partitions = draft.request, draft.names, draft.query.partitions
    order = f"{measures[0]} DESC, {sort_nulls_last(names)}" if request.leading else sort_nulls_last(names)
    if partitions is None:
        limit = "" if request.rows is None else f"{request.rows:d}"
        return compose("{groups}\nORDER BY {order}\nLIMIT {limit}", groups=groups, order=order, limit=limit)
    groups = compose(
        "SELECT dpsql_counted.*, dpsql_position FROM ({groups}) AS dpsql_counted JOIN dpsql_partitions USING ({key})",
        groups=groups,
        key=names[partitions.key],
    )
    # SELECT dpsql_counted.*, dpsql_position FROM (groups) AS dpsql_counted JOIN dpsql_partitions USING (dpsql_key_1)
    # QUALIFY row_number() OVER (PARTITION BY dpsql_position ORDER BY dpsql_count DESC, dpsql_key_1, dpsql_key_2) <= 3
    # ORDER BY dpsql_position, dpsql_count DESC, dpsql_key_1, dpsql_key_2
    if request.rows is None:
        return compose("SELECT * FROM ({groups}) ORDER BY {order}", groups=groups, order=order)
    template = """
        SELECT * FROM ({groups})
        QUALIFY system.main.row_number() OVER (PARTITION BY dpsql_position ORDER BY {order}) <= {rows}
        ORDER BY dpsql_position, {order}
        """
    if not draft.writer.native:  # few engines have QUALIFY
        template = """
        SELECT {columns}, dpsql_position
        FROM (
            SELECT {columns}, dpsql_position,
            system.main.row_number() OVER (PARTITION BY dpsql_position ORDER BY {order}) AS dpsql_rank
            FROM ({groups})
        )
        WHERE dpsql_rank <= {rows}
        ORDER BY dpsql_position, {order}
        """
    return compose(template, columns=[*names, *measures], groups=groups, order=order, rows=request.rows)


def _finish(
    writer: Writer, sql: str, *, query: PrivateQuery, measures: int, reads: str, cut_at: int | None = None
) -> EngineQuery:
    """Return the finished statement with its parameters and column types."""
    numbers = measures + (query.partitions is not None) + query.reads_total + (cut_at is not None)
    types = *(key.type.name for key in query.keys), *[BIGINT.name] * numbers
    return EngineQuery(writer.finished(sql), tuple(writer.parameters), types, reads, query.reads_total, cut_at)
