"""The queries that every engine is asked, and what an engine answers to one: exactly, before anything is released.

A block of `engines/conformance/*.sql` is `# name`, or `# name: act 5` where not just the first k groups are read, and a
statement. The acts are those of `sql/rewrite.py`: top, all, total, label, weighted, weighted_all; the number is the
bound, and "kept" keeps each unit to one partition. "own" stands where the draw is of doubles or time stamps as the
engine itself prints them: as many groups are kept as elsewhere, but others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pyarrow as pa
from support.engine_kits import Kit
from support.engine_tables import TABLES
from support.sql_reference import NOON, accepts_pattern

from dpsql.engines import Engine, Statement, open_exact
from dpsql.engines.remote import RemoteEngine
from dpsql.errors import EngineError, Error, Unsupported
from dpsql.plan.measures import bound_measures
from dpsql.plan.registration import build_catalog
from dpsql.plan.terms import Terms
from dpsql.policy import Budget, Policy, PrivateTable, PublicTable
from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.statements import PrivateQuery, PublicQuery
from dpsql.sql.rewrite.engine_query import (
    Bound,
    CountingQuery,
    rewrite,
    rewrite_all,
    rewrite_total,
    rewrite_unordered,
    rewrite_weighted,
    rewrite_weighted_of_all,
)
from dpsql.sql.rewrite.public_query import rewrite_public

__all__ = [
    "FOLDER",
    "Asked",
    "Opened",
    "answer",
    "count_measures",
    "counting",
    "differences",
    "failure",
    "load",
    "opened",
    "over",
    "run",
    "spelled",
    "statement_of",
]

FOLDER = Path(__file__).parents[1] / "engines" / "conformance"
SALTS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)
_BOUNDS = {
    "rows": 3,
    **{name: {"max": most} for name, most in (("n", 1_000), ("tiny", 100), ("price", 1_000), ("ratio", 100))},
    **{name: {"max": most} for name, most in (("wide", 10**6), ("big", 10**12))},
    "amount": {"min": -100, "max": 500},
}
POLICY = Policy(
    Budget(1, "1e-6"),
    {
        **{name: PrivateTable("user_id") for name in ("likes", "nothing")},
        "reads": PrivateTable("user_id", bounds=_BOUNDS),
        "comments": PrivateTable(link="read_id -> reads.id"),
        **{name: PrivateTable("member") for name in ("visits", "friends")},
        "lefts": PrivateTable("id"),
        **{name: PublicTable() for name in ("countries", "days", "rights")},
    },
)


@dataclass(frozen=True)
class Asked:
    """One query of the suite, and how it is rewritten: with `units` the number of units in any group is read, too."""

    name: str
    text: str
    act: str = "top"
    bound: Bound | None = None
    kept: bool = False
    own: bool = False
    units: bool = False

    @property
    def draws(self) -> bool:
        """Whether groups of a unit are drawn, which DuckDB does by a hash of its own."""
        return self.bound is not None or self.kept


@dataclass(frozen=True, eq=False)
class Opened:
    """An engine of a kit over tables, and what analysis knows of them."""

    engine: Engine
    catalog: Catalog


@cache
def load() -> tuple[Asked, ...]:
    """Return the queries of all files, each under a name of its own."""
    blocks = [block for file in sorted(FOLDER.glob("*.sql")) for block in file.read_text().split("\n\n")]
    found = tuple(_asked(block) for block in filter(str.strip, blocks))
    assert len({asked.name for asked in found}) == len(found), "two queries have one name"
    return found


def _asked(block: str) -> Asked:
    first, _, text = block.strip().partition("\n")
    name, _, how = first.removeprefix("# ").partition(": ")
    act, *rest = how.split() or ["top"]
    groups = [int(word) for word in rest if word.isdecimal()]
    bound = Bound(groups[0], SALTS) if groups else None
    return Asked(name, text.strip().removesuffix(";"), act, bound, *(word in rest for word in ("kept", "own", "units")))


@cache
def opened(kit: Kit, through: Kit | None = None) -> Opened:
    """Return the engine of a kit, or one of another kit, over the tables of the suite as the first can store them."""
    return over(through or kit, {name: kit.fit(table) for name, table in TABLES.items()})


def over(kit: Kit, tables: Mapping[str, pa.Table]) -> Opened:
    """Return an engine of a kit over tables of its own."""
    engine = kit.open(tables)
    return Opened(engine, build_catalog(engine, POLICY))


@cache
def counting(asked: Asked, catalog: Catalog) -> CountingQuery | None:
    """Return the SQL of a query for the engine of the catalog; None where it has not what that takes."""
    query = analyze(asked.text, catalog, accepts_pattern=accepts_pattern, clock=lambda: NOON)
    try:
        if isinstance(query, PublicQuery):
            return rewrite_public(query, 1_000, dialect=catalog.dialect)
        assert isinstance(query, PrivateQuery)
        if asked.kept and query.partitions is not None:
            query = replace(query, partitions=replace(query.partitions, salts=SALTS))
        query = replace(bound_measures(query, Terms.of_total(POLICY)), reads_total=asked.units)
        return _rewritten(query, asked)
    except Unsupported as error:
        if error.code != "engine-lacks":
            raise
        return None


def count_measures(asked: Asked, catalog: Catalog) -> int:
    """Return how many measures a private query releases."""
    query = analyze(asked.text, catalog, accepts_pattern=accepts_pattern, clock=lambda: NOON)
    return len(query.measures) if isinstance(query, PrivateQuery) else 1


def _rewritten(query: PrivateQuery, asked: Asked) -> CountingQuery:
    bound, rows = asked.bound, query.clause.k or 100
    weights = [round(2**20 / math.sqrt(at)) for at in range(1, 1 + (bound.groups if bound else 0))]
    match asked.act:
        case "all":
            return rewrite_all(query, bound=bound)
        case "total":
            return rewrite_total(query)
        case "label":
            return rewrite_unordered(query, rows, bound=bound)
        case "weighted":
            return rewrite_weighted(query, bound=bound, weights=weights)
        case "weighted_all":
            return rewrite_weighted_of_all(query, bound=bound, weights=weights)
    assert asked.act == "top"
    return rewrite(query, rows if query.domain is None else None, bound=bound)


def answer(asked: Asked, held: Opened) -> pa.Table | None:
    """Return what the engine counts, exactly; None where it has not what it takes."""
    found = counting(asked, held.catalog)
    return None if found is None else run(held.engine, statement_of(found))


def statement_of(found: CountingQuery) -> Statement:
    """Return the statement by which an engine is asked."""
    return Statement(found.sql, found.parameters, found.types)


def run(engine: Engine, statement: Statement) -> pa.Table:
    """Return an engine's answer; where it has none, fail with its own words, which here are of no private row."""
    try:
        return open_exact(engine.execute(statement))
    except EngineError:
        if isinstance(engine, RemoteEngine):
            engine.fetch(statement)
        raise


def spelled(table: pa.Table) -> list[list[object]]:
    """Return the columns of an answer, each as its type and its values, that are alike only if they print alike."""
    return [[str(column.type).removeprefix("large_"), *_values(column.combine_chunks())] for column in table.columns]


def _values(column: pa.Array) -> list[object]:
    """Return dates as numbers, since Python's do not reach as far, and doubles as text, since NaN is unlike itself."""
    if pa.types.is_date32(column.type):
        return list(column.view(pa.int32()).to_pylist())
    if pa.types.is_timestamp(column.type):
        return list(column.view(pa.int64()).to_pylist())
    return [repr(value) if isinstance(value, float) else value for value in column.to_pylist()]


def differences(asked: Asked, wanted: pa.Table, found: pa.Table) -> str:
    """Return in what two answers differ, in a line; nothing where keys, counts, order and types are the same."""
    theirs, ours = spelled(wanted), spelled(found)
    if asked.own:
        theirs, ours = ([[column[0] for column in each], sum(each[-1][1:])] for each in (theirs, ours))  # type: ignore[assignment]
        return "" if ours == theirs else f"{ours}, not {theirs}"
    if ours == theirs:
        return ""
    if len(ours) != len(theirs) or wanted.num_rows != found.num_rows:
        return f"{found.num_rows} rows of {len(ours)} columns, not {wanted.num_rows} of {len(theirs)}"
    pairs = (
        (at, row) for at, column in enumerate(ours) for row, value in enumerate(column) if value != theirs[at][row]
    )
    at, row = min(pairs, key=lambda pair: pair[1])
    return f"column {at + 1}, row {row}: {str(ours[at][row])[:60]!r}, not {str(theirs[at][row])[:60]!r}"


def failure(error: BaseException) -> str:
    """Return an error in a line."""
    return f"{error.code}: {error.reason}" if isinstance(error, Error) else f"{type(error).__name__}: {error}"
