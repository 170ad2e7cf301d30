"""Comparison of tables with and without one privacy unit: the unit may change counts by what it has alone.

For all that a plan counts, weighs or bounds, the groups of all units together are the sum of the groups of each unit
alone. A unit therefore changes only groups that contain it, and no counts of others. A number of different values is no
such sum: a unit adds at most as many as it has alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from random import Random

import pyarrow as pa
import pyarrow.compute as pc

from dpsql.sql.rewrite.engine_query import Bound
from dpsql.testing.kit import Kit
from dpsql.testing.queries import (
    SALTS,
    OpenEngine,
    SuiteQuery,
    build_statement,
    count_measures,
    find_item_measures,
    list_columns,
    open_tables,
    rewrite_query,
    run_statement,
)
from dpsql.testing.tables import TABLES

_UNITS = {"reads": "user_id", "likes": "user_id", "visits": "member", "friends": "member"}
HEAVY, LIGHT = (1, "a "), (5, "\u00e9")  # a unit of whole numbers and one of text, which are removed together
_KEYS = [
    "article",
    "country",
    "n",
    "flag",
    "day",
    "amount",
    "price",
    "small",
    "n > 0",
    "country = 'DE'",
    "article IS NULL",
]
_KEYS += ["coalesce(country, 'none')", "CASE WHEN flag THEN n END", "price IS DISTINCT FROM 0", "price < 2"]
_FILTERS = ["n > 0", "article <> 'a'", "flag IS NOT TRUE", "price >= 0", "n BETWEEN 0 AND 5", "country IN ('DE', 'de')"]
_FILTERS += ["country IS NULL", "reads.user_id <> 1", "day >= DATE '2026-01-01'", "amount > 1.5", "big <> 0"]
_MEASURES = ["COUNT(*)", "COUNT(country)", "SUM(n)", "SUM(price)", "SUM(tiny)", "COUNT(DISTINCT reads.user_id)"]
_MEASURES += ["SUM(n) FILTER (WHERE flag)", "COUNT(*) FILTER (WHERE price > 1)"]
_SPREAD = "COVAR_POP(price, n, contribution_bounds_per_row => (-2, 40)) AS spread"
_SOURCES = ["reads", "reads JOIN countries AS c USING (country)", "reads LEFT JOIN days AS d USING (day)"]
_SOURCES += ["reads SEMI JOIN likes AS l ON reads.user_id = l.user_id", "(SELECT * FROM reads WHERE n <> 1) AS reads"]


Measures = Counter[tuple[object, ...]]  # by the keys of a group, and 0 for its count or 1 for its weight


@dataclass(frozen=True, eq=False)
class Neighbours:
    """An engine over the tables of all units, of all but the unit `name`, and of that unit alone."""

    name: str
    together: OpenEngine
    without: OpenEngine
    alone: OpenEngine


def _split(tables: Mapping[str, pa.Table], unit: tuple[int, str], *, kept: bool) -> dict[str, pa.Table]:
    """Return the tables with the rows of one unit alone, or without them, in another order."""
    found = dict(tables)
    for name, column in _UNITS.items():
        value = unit[column == "member"]
        same = pc.fill_null(pc.equal(tables[name].column(column), pa.scalar(value)), fill_value=False)
        rows = tables[name].filter(same if kept else pc.invert(same))
        order = list(range(rows.num_rows))
        Random(7).shuffle(order)
        found[name] = rows.take(pa.array(order, pa.int64()))
    return found


@cache
def open_neighbours(kit: Kit) -> tuple[Neighbours, ...]:
    """Return the neighbours of an engine: without a unit that has half of all rows, and without one of few rows."""
    everybody = {name: kit.fit(table) for name, table in TABLES.items()}
    fewer = _split(everybody, HEAVY, kept=False)
    parts = [everybody, fewer, _split(everybody, HEAVY, kept=True)]
    parts += [_split(fewer, LIGHT, kept=False), _split(fewer, LIGHT, kept=True)]
    held = [open_tables(kit, part) for part in parts]
    return Neighbours("heavy", held[0], held[1], held[2]), Neighbours("light", held[1], held[3], held[4])


def find_excess(query: SuiteQuery, among: Neighbours, *, kit: Kit) -> str:
    """Return, in a line, by how much a unit changes a group beyond what it has alone; empty if it does not."""
    written = open_neighbours(kit)[0].together
    cut = query.rewrite in {"top", "label"} and "TOP 1000 " not in query.text
    whole = replace(query, rewrite="all") if cut else query
    found = rewrite_query(whole, written.catalog)
    if found is None:
        return ""
    read = [_read(whole, held, kit) for held in (among.together, among.without, among.alone)]
    if found.has_total:
        totals = [table.column(table.num_columns - 1).to_pylist() for table in read]
        if any(len(set(each)) > 1 for each in totals) or (
            all(totals) and not totals[0][0] - totals[1][0] == totals[2][0] <= 1
        ):
            return f"the number of units is {' and '.join(str(set(each)) for each in totals)}"
        read = [table.select(range(table.num_columns - 1)) for table in read]
    known = count_measures(query, written.catalog)
    together, without, alone = (_measured(table, whole, known=known) for table in read)
    shared = find_item_measures(query, written.catalog)
    return _beyond(whole, together, without=without, alone=alone, shared=shared)


@lru_cache(maxsize=8)
def _read(query: SuiteQuery, held: OpenEngine, kit: Kit) -> pa.Table:
    """Return an answer; that without the heavy unit is read again beside the light one."""
    written = open_neighbours(kit)[0].together
    found = rewrite_query(query, written.catalog)
    if found is None:
        raise TypeError(query.name)
    statement = build_statement(found)
    return run_statement(held.engine, replace(statement, sql=_addressed(statement.sql, written, held=held)))


def _beyond(
    query: SuiteQuery, together: Measures, *, without: Measures, alone: Measures, shared: frozenset[int]
) -> str:
    for *group, measure in sorted({*together, *without, *alone}):
        key = (*group, measure)
        added = together[key] - without[key]
        # that plan counts all units of the groups that somebody keeps
        if query.rewrite == "weighted_all" and not measure:
            fair = 0 <= added <= _most_added(query) or key not in without or key not in together
        elif measure in shared and not query.rewrite.startswith("weighted"):  # where 1 is the weight
            fair = 0 <= added <= alone[key]
        else:
            fair = added == alone[key]
        if not fair:
            return f"{group} has {together[key]} with the unit, {without[key]} without and {alone[key]} alone"
    counts = [count for (*_, measure), count in alone.items() if not measure]
    if _adds_sums(query):  # they have bounds of their own, which the reference of the measures checks
        return ""
    bound = None if query.rewrite == "weighted_all" else query.bound
    if max(counts, default=0) > 1 or (bound is not None and sum(counts) > bound.max_groups_contributed):
        return f"the unit alone counts {sum(counts)}, and {max(counts)} in one group"
    return ""


def _most_added(query: SuiteQuery) -> int:
    """Return how much one unit adds to one group at most: 1 where units are counted, else that of any measure."""
    return 2**20 if _adds_sums(query) else 1


def _adds_sums(query: SuiteQuery) -> bool:
    return query.name.startswith("measure_") or query.name in {"units_of_sums", "units_of_bounded_sums"}


def _addressed(sql: str, written: OpenEngine, *, held: OpenEngine) -> str:
    """Return SQL that was written for the tables of one engine with the addresses of another's."""
    for name in TABLES:  # a kit may give each set of tables a schema of its own, or names of their own
        for own, other in zip(written.engine.relation(name), held.engine.relation(name), strict=True):
            sql = sql.replace(own, other) if own != other else sql
    return sql


def _measured(table: pa.Table, query: SuiteQuery, *, known: int) -> Measures:
    """Return counts and weights, each by its keys and 0 for a count or 1 for a weight.

    For a ranking by several measures, only the first is compared: the others are not read where the first is 0.
    """
    columns = [column[1:] for column in list_columns(table)]
    weighted = query.rewrite.startswith("weighted")
    per = "PER " in query.text  # the last column is then the position of the partition
    keys = len(columns) - known - weighted - per
    measures = 1 + weighted if " TOP " in query.text else known
    found: Measures = Counter()
    for row in zip(*columns, strict=True):
        for at in range(measures):
            found[(*map(repr, row[:keys]), at)] += int(str(row[keys + at]))
    return found


def generate_queries(number: int) -> list[SuiteQuery]:
    """Return random queries, the same in every run; some are bounded or weighted, and some have sums."""
    random, found = Random(20_26), []
    for at in range(number):
        keys = [f"{key} AS k{place}" for place, key in enumerate(random.sample(_KEYS, random.randint(1, 3)))]
        condition = random.choice(["{0}", "{0} AND {1}", "{0} OR {1}", "NOT ({0} AND {1})"])
        where = condition.format(*random.sample(_FILTERS, 2))
        source = random.choice(_SOURCES)
        rest = f"FROM {source} WHERE {where} GROUP BY ALL TOP 9 PRIVATE"
        text = f"SELECT {', '.join(keys)} {rest}"
        kind = random.choice(["all", "all", "weighted", "weighted_all"])
        bound = Bound(random.choice([1, 2, 5]), SALTS) if kind != "all" or random.random() < 0.6 else None
        found.append(SuiteQuery(f"generated {at}: {text}", text, kind, bound=bound))
        measures = [f"{each} AS m{place}" for place, each in enumerate(random.sample(_MEASURES, random.randint(1, 2)))]
        measures += ["AVG(price) AS mean"] if at % 3 == 0 else []  # which ranks nothing
        measures += [_SPREAD] if at % 7 == 0 else []
        summed = f"SELECT {', '.join([*keys, *measures])} {rest}"
        if "(SELECT" not in source:  # columns of a subquery are none that the policy bounds
            found.append(SuiteQuery(f"measure_generated {at}: {summed}", summed, kind, bound=bound))
    return found
