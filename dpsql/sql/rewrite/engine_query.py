"""The rewriter: a private query into the engine SQL that counts distinct units and returns the leading groups, or all.

    query ── total ──▶ canonical keys ──▶ counted, per unit bounded if asked ──▶ ordered ──▶ text and parameters

Ties at the cut are broken by the keys, NULLS LAST, text by its bytes: an order that no row decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dpsql.errors import UsageError
from dpsql.sql.ir.canonical_keys import canonical
from dpsql.sql.ir.statements import Domain, LiteralDomain, PrivateQuery, TableDomain
from dpsql.sql.ir.types import BIGINT
from dpsql.sql.ir.visitor import rebuild_body
from dpsql.sql.render.duckdb import Writer
from dpsql.sql.render.portable import writer_for
from dpsql.sql.rewrite.contribution_bounding import (
    GROUPS,
    RANK,
    UNIT,
    WEIGHT,
    Bound,
    Bounded,
    bounded,
    weighted,
    weighted_of_all,
)
from dpsql.sql.rewrite.materialization import UNITS
from dpsql.sql.rewrite.partition_filter import arranged, leading, within
from dpsql.sql.rewrite.total import total
from dpsql.sql.rewrite.use_materialized import Form, reading

__all__ = [
    "PASSES",
    "Bound",
    "CountingQuery",
    "rewrite",
    "rewrite_all",
    "rewrite_by_label",
    "rewrite_weighted",
    "rewrite_weighted_of_all",
]

COUNT = "dpsql_count"
DOMAIN = "dpsql_domain"


@dataclass(frozen=True, slots=True, repr=False)
class CountingQuery:
    """Engine SQL and its parameters.

    The answer's columns are the keys in order, then the count, then any weight and, with partitions, the position of
    the group's own; `types` are theirs. `reads` says what stands in place of rows, "" where nothing does.
    """

    sql: str
    parameters: tuple[object, ...]
    types: tuple[str, ...] = ()
    reads: str = ""

    def __repr__(self) -> str:
        return f"CountingQuery({self.sql!r}, {len(self.parameters)} parameters)"


def totalled(query: PrivateQuery) -> PrivateQuery:
    """Apply `total` to every expression of the query."""
    domain = query.domain
    if isinstance(domain, TableDomain):
        domain = replace(domain, value=total(domain.value))
    return replace(query, keys=tuple(map(total, query.keys)), body=rebuild_body(query.body, total), domain=domain)


def canonicalised(query: PrivateQuery) -> PrivateQuery:
    """Apply `canonical` to every key and candidate."""
    domain = query.domain
    if isinstance(domain, TableDomain):
        domain = replace(domain, value=canonical(domain.value))
    elif isinstance(domain, LiteralDomain):
        domain = LiteralDomain(tuple(map(canonical, domain.values)))
    return replace(query, keys=tuple(map(canonical, query.keys)), domain=domain)


PASSES: tuple[Callable[[PrivateQuery], PrivateQuery], ...] = (totalled, canonicalised)


def _passed(query: PrivateQuery) -> PrivateQuery:
    for step in PASSES:
        query = step(query)
    return query


def rewrite(query: PrivateQuery, rows: int | None, *, bound: Bound | None = None) -> CountingQuery:
    """Return the SQL for the first `rows` groups by distinct units, of each partition if there are any.

    None stands for every candidate of a domain.
    """
    return _counted(query, bound, first=(f"{COUNT} DESC",), rows=rows)


def rewrite_by_label(query: PrivateQuery, rows: int, *, bound: Bound | None = None) -> CountingQuery:
    """Return the SQL for the first `rows` groups by distinct units, in the order of the keys and not of the counts."""
    return _counted(query, bound, first=(f"{COUNT} DESC",), rows=rows, by_label=True)


def rewrite_all(query: PrivateQuery, *, bound: Bound | None = None) -> CountingQuery:
    """Return the SQL for every group that some unit is in, in the order of the keys, which the counts do not enter."""
    return _counted(query, bound, first=(), rows=None)


def rewrite_weighted(query: PrivateQuery, *, bound: Bound | None, weights: Sequence[int]) -> CountingQuery:
    """Return the SQL for count and weight of every group that some unit keeps, in the order of the keys.

    A unit that keeps t groups adds 1 to the count and weights[t - 1] to the weight of each, and nothing to others.
    """
    return _weighted(query, bound, weights=weights, spread=weighted)


def rewrite_weighted_of_all(query: PrivateQuery, *, bound: Bound | None, weights: Sequence[int]) -> CountingQuery:
    """Return the SQL for the same groups and weights, with the count of all units in a group, also where not kept."""
    return _weighted(query, bound, weights=weights, spread=weighted_of_all)


def _weighted(
    query: PrivateQuery, bound: Bound | None, *, weights: Sequence[int], spread: Callable[..., Bounded]
) -> CountingQuery:
    """Return the SQL for the groups of some weight; refuse weights that were made for another bound."""
    if bound is None or len(weights) != bound.groups:
        reason = "There must be one weight for every number of groups up to the bound."
        raise UsageError("bound-range", reason, hint="Give the weights of 1 to max_groups_contributed groups.")
    found = reading(query, bounded=True)
    query, ranked = _passed(found.query), found.form is Form.RANKS
    writer = writer_for(query.dialect)
    names = [f"dpsql_key_{index}" for index in range(1, len(query.keys) + 1)]
    keys, base = ", ".join(names), _unit_rows(writer, query, names=names, form=found.form)
    listed: tuple[str, ...] = ()
    if query.partitions is not None:
        listed, base = within(writer, base, names=names, partitions=query.partitions)
    kept = spread(writer, base, names=names, bound=bound, weights=weights, ranked=ranked)
    measures = f"system.main.count() AS {COUNT}, CAST(system.main.sum({WEIGHT}) AS BIGINT) AS {WEIGHT}"
    groups = f"SELECT {keys}, {measures} FROM ({kept.source}) GROUP BY {keys} HAVING system.main.sum({WEIGHT}) > 0"  # noqa: S608 - as above
    order = ", ".join(f"{name} ASC NULLS LAST" for name in names)
    sql = f"{groups} ORDER BY {order}"
    if query.partitions is not None:
        sql = arranged(groups, order, key=names[query.partitions.key])
    ctes = ", ".join((*listed, *kept.ctes))
    return _finished(writer, f"WITH {ctes} {sql}" if ctes else sql, query=query, measures=2, reads=found.told)


def _counted(
    query: PrivateQuery, bound: Bound | None, *, first: tuple[str, ...], rows: int | None, by_label: bool = False
) -> CountingQuery:
    """Return the SQL for the groups and their counts, ordered by `first` and then by the keys, or just by these."""
    found = reading(query, bounded=bound is not None)
    query = _passed(found.query)
    writer = writer_for(query.dialect)
    names = [f"dpsql_key_{index}" for index in range(1, len(query.keys) + 1)]
    ctes, counted = _groups(writer, query, bound=bound, names=names, form=found.form)
    labels = [f"{name} ASC NULLS LAST" for name in names]
    order = ", ".join([*first, *labels])
    opening = f"WITH {', '.join(ctes)} " if ctes else ""
    if query.partitions is not None and rows is not None:
        key, columns = names[query.partitions.key], (*names, COUNT)
        sql = leading(writer, counted, order=order, rows=rows, key=key, columns=columns)
    elif query.partitions is not None:
        sql = arranged(counted, order, key=names[query.partitions.key])
    else:
        sql = f"{counted} ORDER BY {order}{'' if rows is None else f' LIMIT {rows:d}'}"
    sql = f"{opening}{sql}"
    if by_label:
        sql = f"SELECT * FROM ({sql}) ORDER BY {', '.join(labels)}"  # noqa: S608 - as above
    return _finished(writer, sql, query=query, measures=1, reads=found.told)


def _groups(
    writer: Writer, query: PrivateQuery, *, bound: Bound | None, names: list[str], form: Form
) -> tuple[list[str], str]:
    """Return what stands in WITH, and the SELECT of all groups, or of all candidates, with their counts."""
    keys, ctes = ", ".join(names), list[str]()
    base = _unit_rows(writer, query, names=names, form=form)
    if query.partitions is not None:
        listed, base = within(writer, base, names=names, partitions=query.partitions)
        ctes += listed
    if query.domain is not None:
        ctes.append(f"{DOMAIN} AS MATERIALIZED ({_candidates(writer, query.domain, name=keys)})")
        measure = COUNT if form is Form.COUNTS else UNIT
        base = f"SELECT {keys}, {measure} FROM ({base}) WHERE {keys} IN (SELECT {keys} FROM {DOMAIN})"  # noqa: S608 - nothing in it is the analyst's text
    if form is Form.COUNTS:
        counted = base
    else:
        kept, count = _counting(writer, base, bound=bound, names=names, form=form)
        ctes += kept.ctes
        counted = f"SELECT {keys}, {count} AS {COUNT} FROM ({kept.source}) GROUP BY {keys}"  # noqa: S608 - as above
    if query.domain is not None:
        counted = (
            f"SELECT {DOMAIN}.{keys} AS {keys}, COALESCE({COUNT}, 0) AS {COUNT} "  # noqa: S608 - as above
            f"FROM {DOMAIN} LEFT JOIN ({counted}) AS dpsql_counted ON {DOMAIN}.{keys} = dpsql_counted.{keys}"
        )
    return ctes, counted


def _counting(writer: Writer, base: str, *, bound: Bound | None, names: list[str], form: Form) -> tuple[Bounded, str]:
    """Return what is kept of the rows, and the aggregate that counts the units of a group in it."""
    if bound is not None:
        return bounded(writer, base, names=names, bound=bound, ranked=form is Form.RANKS), "system.main.count()"
    distinct = "" if form is Form.PAIRS else f"DISTINCT {UNIT}"
    return Bounded((), base), f"system.main.count({distinct})"


def _finished(writer: Writer, sql: str, *, query: PrivateQuery, measures: int, reads: str) -> CountingQuery:
    positions = query.partitions is not None
    types = *(key.type.name for key in query.keys), *[BIGINT.name] * (measures + positions)
    return CountingQuery(writer.finished(sql), tuple(writer.parameters), types, reads)


def _candidates(writer: Writer, domain: Domain, *, name: str) -> str:
    """Return the distinct values of a known domain, NULL left out."""
    if isinstance(domain, TableDomain):
        values = f"SELECT {writer.expression(domain.value)} AS {name} {writer.body(domain.body)}"
    else:
        rows = ", ".join(f"({writer.expression(value)})" for value in domain.values)
        values = f"SELECT {name} FROM (VALUES {rows}) AS dpsql_listed({name})"  # noqa: S608 - as above
    return f"SELECT DISTINCT {name} FROM ({values}) WHERE {name} IS NOT NULL"  # noqa: S608 - as above


def _unit_rows(writer: Writer, query: PrivateQuery, *, names: list[str], form: Form) -> str:
    """Return the rows to count: keys and unit, without the rows that protect nobody; or keys and counts."""
    keys = ", ".join(f"{writer.expression(key)} AS {name}" for key, name in zip(query.keys, names, strict=True))
    if form is Form.COUNTS:
        return f"SELECT {keys}, {UNITS} AS {COUNT} {writer.body(query.body)}"
    unit = writer.expression(canonical(query.unit))
    ranks = f", {RANK}, {GROUPS}" if form is Form.RANKS else ""
    told = writer.told(query.body)
    body, joint = writer.body(told), "AND" if told.where is not None else "WHERE"
    return f"SELECT {keys}, {unit} AS {UNIT}{ranks} {body} {joint} ({unit} IS NOT NULL)"
