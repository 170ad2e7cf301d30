"""Golden text of the passes that bound contributions, filter partitions and read materialized tables.

The input of a case is a statement, and a line `# bound: n` bounds each unit to n groups. DPSQL_REGENERATE=1 writes what
the passes make now; read the difference.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from support.sql_golden import Case, check, load
from support.sql_reference import catalog_of, counts, nasty_tables, private, same

from dpsql.dialects.duckdb_releases import DuckDBRelease
from dpsql.sql.ir import transforms
from dpsql.sql.ir.catalog import Catalog, MaterializedSet
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.render import duckdb as render
from dpsql.sql.rewrite.bounding import Bound
from dpsql.sql.rewrite.engine_query import EngineQuery, rewrite_leaders
from dpsql.sql.rewrite.use_materialized import use_materialized

TABLES = nasty_tables()
CATALOG = catalog_of(TABLES, {"nasty": "unit"}, ["public"])
SALTS = (1, 2)
SETS = [
    MaterializedSet(columns, "unit", 0, ("kept", f"pairs_{name}"), ("kept", f"counts_{name}"))
    for columns, name in ((("t",), "t"), (("t", "i8"), "t_i8"))
]


def bound_of(case: Case) -> Bound | None:
    groups = int(case.note("bound", "0"))
    return Bound(groups, SALTS) if groups else None


def query_of(case: Case, catalog: Catalog = CATALOG) -> PrivateQuery:
    query = private(case.given, catalog)
    if case.note("one", "") and query.partitions is not None:
        query = replace(query, partitions=replace(query.partitions, salts=SALTS))
    return query


def written(counting: EngineQuery) -> str:
    return f"{counting.sql}\n-- {list(counting.parameters)!r}"


@pytest.fixture(autouse=True)
def newest(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (transforms, render):  # the text for the newest DuckDB, whichever is installed
        monkeypatch.setattr(module, "release", DuckDBRelease)


def cases(name: str) -> list[object]:
    return [pytest.param(case, id=str(case)) for case in load(name)]


@pytest.mark.parametrize("case", cases("contribution_bounding") + cases("partition_filter"))
def test_the_golden_text_of_a_builder(case: Case) -> None:
    check(case, lambda _: written(rewrite_leaders(query_of(case), 100, bound=bound_of(case))))


@pytest.mark.parametrize("case", cases("contribution_bounding"))
def test_each_unit_is_counted_in_as_many_groups_as_the_bound_allows(case: Case) -> None:
    query, bound = query_of(case), bound_of(case)
    assert bound is not None
    keys = ", ".join(output.name for output in query.outputs if output.key is not None)
    where = "WHERE b" if "WHERE b" in case.given else ""
    pairs = TABLES.execute(f"SELECT DISTINCT unit, {keys} FROM nasty {where}").fetchall()
    own = Counter(row[0] for row in pairs if row[0] is not None)
    assert sum(counts(TABLES, query, bound).values()) == sum(
        min(groups, bound.max_groups_contributed) for groups in own.values()
    )


@pytest.mark.parametrize("case", cases("partition_filter"))
def test_only_listed_partitions_are_counted(case: Case) -> None:
    query = query_of(case)
    assert query.partitions is not None
    listed = set(same(value.value for value in query.partitions.values))
    assert {key[query.partitions.key] for key in counts(TABLES, query)} <= listed


@pytest.mark.parametrize("case", cases("use_materialized"))
def test_the_golden_source_of_a_query(case: Case) -> None:
    def act(_: str) -> str:
        query = private(case.given, CATALOG)
        path = next(table.path for table in CATALOG.tables if table.name == "nasty")
        query = replace(query, materialized=tuple((path, each) for each in SETS))
        source = use_materialized(query, bounded=bound_of(case) is not None)
        said = source.description or "rows"
        return f"{source.form.name}: {said}\n{written(rewrite_leaders(query, 100, bound=bound_of(case)))}"

    check(case, act)
