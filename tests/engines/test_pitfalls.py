"""What makes counting distinct units slow, large, wrong or dependent on others' rows, and the test that keeps it out.

| pitfall | kept out by |
|---|---|
| a window with one sort key becomes arg_min: a list of each unit, 3 times the memory | `..._unit_by_unit` |
| (the same for more types of keys, and what the guard sees) | `neighbours/test_bounding_plans.py` |
| min(..., n) and min_by(..., n) set room aside for n rows of each unit | `..._unit_by_unit` |
| a cut without a total order keeps what another unit's rows or a thread decide | `..._in_a_total_order` |
| DuckDB's hash of several values is uneven | `neighbours/test_bounding.py` |
| md5_number_lower is a slow macro, and a digest of any kind is slow | `..._call_nothing_else` |
| a NULL unit counts as one more, a NULL item is lost | `test_a_null_unit...` |
| count(column) is answered from metadata: no floor to compare with | `..._is_compared_with...` |
| COUNT(*) beside COUNT(DISTINCT) becomes a CTE and a join | `..._in_one_pass` |
| sqlglot drops the n of min_by with a warning alone | `..._refused_and_not_dropped` |
| AS MATERIALIZED is an error in Spark | `test_materialized...` |
| DuckDB warns of execute(...).to_arrow_table() | `..._without_a_warning` |
| only readers can share a file | `engines/test_duckdb_open.py` |
| what does not fit in memory needs a private folder | `engines/test_duckdb.py` |
| and every form must then spill, not fail | `..._fits_in_little_memory` |
| a plan chosen by looking at data shows in the time | `plan/test_plan_public.py` |
"""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import closing
from itertools import product
from pathlib import Path

import duckdb
import pytest
from sqlglot import exp, parse_one

import dpsql
from dpsql.connect import open_session
from dpsql.dialects import Dialect
from dpsql.dialects.postgres import POSTGRES
from dpsql.dialects.spark import SPARK
from dpsql.engines import Statement, open_exact
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.errors import EngineError, Refusal, Unsupported
from dpsql.plan import Plan
from dpsql.plan.mechanisms.choice import list_records
from dpsql.plan.mechanisms.record import QueryKind
from dpsql.session import Session
from dpsql.sql.render.portable import translate
from dpsql.sql.rewrite.engine_query import EngineQuery

POLICY = dpsql.Policy(dpsql.Budget(100, "1e-6"), {"events": dpsql.PrivateTable("unit")})
BOUNDS = ("", "max_groups_contributed = 1", "max_groups_contributed = 5", "max_groups_contributed = 100")
ROWS = "SELECT i % 50 AS unit, ['DE', 'FR', 'US'][1 + i % 3] AS land, 'a' || i % 20 AS item FROM range(500) AS t(i)"
NULLS = "SELECT NULL, 'DE', 'nobody' FROM range(9) UNION ALL SELECT i, 'DE', NULL FROM range(7) AS t(i)"
CALLED = "count sum min row struct_extract_at row_number hash xor least list_extract list_value".split()
MECHANISMS = list_records(QueryKind.UNKNOWN, QueryKind.KNOWN)
SYNTAX = set("CAST COALESCE dpsql_listed".split())


NEWEST = pytest.mark.skipif(duckdb.__version__ < "2", reason="plans and memory are those of the newest DuckDB")


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    file = tmp_path_factory.mktemp("pitfalls") / "events.duckdb"
    with duckdb.connect(str(file)) as connection:
        connection.execute(f"CREATE TABLE events AS {ROWS}")
    with dpsql.connect(file, policy=POLICY, ledger=":memory:") as opened:
        yield opened


def questions() -> Iterator[str]:
    """Yield every mechanism under bounds of every form, with and without partitions and counts."""
    for mechanism, bound, per, count in product(MECHANISMS, BOUNDS, (False, True), (False, True)):
        options = [f"mechanism = {mechanism.name}", *filter(None, [bound])]
        options += ["domain = ['a1', 'a2']"] * (mechanism.kind is QueryKind.KNOWN)
        options += ["partitions = ['DE', 'FR']"] * per
        keys = f"{'land, ' * per}item{', COUNT(DISTINCT unit) AS n' * count}"
        clause = f"TOP 3 PRIVATE{' PER land' * per} WITH ({', '.join(options)})"
        yield f"SELECT {keys} FROM events GROUP BY ALL {clause}"


@pytest.fixture(scope="module")
def plans(session: Session) -> list[Plan]:
    """Return the plans of all questions that can be asked."""
    found = []
    for text in questions():
        try:
            found.append(session.explain(text))
        except Refusal:  # this mechanism needs a bound, or does not go with PER
            continue
    assert {plan.mechanism for plan in found} == {each.name for each in MECHANISMS}
    return found


def operators(session: Session, counting: EngineQuery) -> list[dict[str, str]]:
    """Return the operators of DuckDB's plan of a statement, with what stands in them."""
    engine = session._dependencies.engine
    assert isinstance(engine, DuckDBEngine)
    explained = f"EXPLAIN (FORMAT json) {counting.sql}"
    ((_, text),) = engine._connection.execute(explained, list(counting.parameters)).fetchall()
    found, rest = [], json.loads(text)
    while rest:
        node = rest.pop(0)
        found.append({"name": node["name"], "words": json.dumps(node["extra_info"])})
        rest = node["children"] + rest
    return found


def tree_of(sql: str) -> exp.Expr:
    """Return a statement as sqlglot reads it, functions by their bare names."""
    return parse_one(sql.replace("system.main.", ""), read="duckdb")


def wide(sql: str) -> list[exp.Expr]:
    """Return the calls of min and max that keep more than one row."""
    return [call for call in tree_of(sql).find_all(exp.Min, exp.Max) if len(list(call.iter_expressions())) > 1]


def names_of(found: list[dict[str, str]]) -> list[str]:
    return [operator["name"] for operator in found]


def test_no_statement_gathers_lists_unit_by_unit(session: Session, plans: list[Plan]) -> None:
    for plan in plans:
        for operator in operators(session, plan.counting):
            assert operator["name"] != "UNNEST", plan.counting.sql
            assert "arg_m" not in operator["words"], plan.counting.sql
        assert not wide(plan.counting.sql), "min(x, n) sets room aside for n rows of every unit"


@NEWEST
def test_every_statement_reads_the_table_in_one_pass(session: Session, plans: list[Plan]) -> None:
    """A CTE is one that dpsql wrote: DuckDB makes another of COUNT(DISTINCT) beside COUNT(*), and a join of both."""
    for plan in plans:
        names = names_of(operators(session, plan.counting))
        assert names.count("SEQ_SCAN") == 1
        assert names.count("CTE") == plan.counting.sql.count(" AS MATERIALIZED (")
        assert not [name for name in names if "DELIM" in name]


@NEWEST
def test_the_guards_see_what_they_guard_against(session: Session) -> None:
    counted = "SELECT item, count(DISTINCT unit) AS c, count(*) AS d FROM dpsql_data.main.events GROUP BY item"
    names = names_of(operators(session, EngineQuery(counted, ())))
    assert "CTE" in names
    assert any("JOIN" in name for name in names)
    listed = "SELECT unit, min(item, 100) AS c FROM dpsql_data.main.events GROUP BY unit"
    assert wide(listed)


def test_every_cut_is_made_in_a_total_order(plans: list[Plan]) -> None:
    """Its order ends with all keys: none of two groups is kept by chance."""
    seen = 0
    for plan in plans:
        keys = [f"dpsql_key_{at}" for at in range(1, len(plan.query.keys) + 1)]
        tree = tree_of(plan.counting.sql)
        cuts = [each.args["order"] for each in tree.find_all(exp.Window) if each.args.get("order")]
        cuts += [each.args["order"] for each in tree.find_all(exp.Select) if each.args.get("limit")]
        assert len(cuts) == plan.counting.sql.count("row_number()") + plan.counting.sql.count(" LIMIT ")
        seen += len(cuts)
        for order in cuts:
            by = [each.this.name for each in order.expressions]
            assert by[-len(keys) :] == keys, plan.counting.sql
        assert not list(tree.find_all(exp.TableSample, exp.Offset, exp.Fetch))
    assert seen > len(plans)


def test_statements_call_nothing_else(plans: list[Plan]) -> None:
    """A short list of functions, each measured and understood; operators and casts stand beside them."""
    called = set()
    for plan in plans:
        called |= set(re.findall(r"([\w.]+)\(", re.sub(r"'[^']*'", "", plan.counting.sql)))
    assert called <= SYNTAX | {f"system.main.{name}" for name in CALLED}


def test_a_null_unit_counts_for_nobody_and_a_null_item_is_an_item(plans: list[Plan]) -> None:
    with duckdb.connect() as clean, duckdb.connect() as dirty:
        clean.execute(f"CREATE TABLE events AS {ROWS}; INSERT INTO events SELECT i, 'DE', NULL FROM range(7) AS t(i)")
        dirty.execute(f"CREATE TABLE events AS {ROWS}; INSERT INTO events {NULLS}")
        named = 0
        for plan in plans:
            sql = plan.counting.sql.replace('"dpsql_data"', '"memory"')
            wanted, found = (each.execute(sql, plan.counting.parameters).fetchall() for each in (clean, dirty))
            assert found == wanted
            named += any(None in row for row in found)
        assert named > len(plans) / 2


def test_what_privacy_costs_is_compared_with_what_counts_distinct_units() -> None:
    sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
    try:
        from workload import PLAIN
    finally:
        sys.path.pop()
    assert "COUNT(DISTINCT user_id)" in PLAIN
    assert PLAIN.count("COUNT") == 1


def test_the_argument_that_sqlglot_drops_is_refused_and_not_dropped() -> None:
    with pytest.raises(Unsupported):
        translate("SELECT min_by(item, unit, 5) AS kept FROM events", (), dialect=SPARK)


@pytest.mark.parametrize("dialect", [SPARK, POSTGRES])
def test_materialized_is_written_only_where_it_is_known(dialect: Dialect) -> None:
    sql = translate("WITH a AS MATERIALIZED (SELECT 1 AS x) SELECT x FROM a", (), dialect=dialect)
    assert ("MATERIALIZED" in sql) is (dialect is POSTGRES)


def test_a_result_is_fetched_without_a_warning(session: Session) -> None:
    statement = Statement("SELECT item FROM dpsql_data.main.events")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert len(open_exact(session._dependencies.engine.execute(statement))) == 500
    assert not caught


LITTLE = "30MB"  # twice as much is still too little for ONE_KEY
MANY_PAIRS = """
CREATE TABLE events AS
SELECT hash(i % 210_000) % 30_000 AS unit, 'item number ' || hash(i % 210_000, 7) % 100_000 AS item
FROM range(300_000) AS t(i)
"""
ONE_KEY = """
SELECT item, count(*) AS c FROM (
    SELECT item, row_number() OVER (PARTITION BY unit ORDER BY hash(item, unit)) AS place
    FROM (SELECT DISTINCT unit, item FROM dpsql_data.main.events)
) WHERE place <= 5 GROUP BY item ORDER BY c DESC, item LIMIT 10
"""


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DuckDBEngine, DuckDBEngine]]:
    """Return two engines over the same rows, with much memory and with little."""
    file = tmp_path_factory.mktemp("pairs") / "events.duckdb"
    with duckdb.connect(str(file)) as connection:
        connection.execute(MANY_PAIRS)
    with (
        closing(DuckDBEngine.open(file, {"events": None}, threads=1)) as roomy,
        closing(DuckDBEngine.open(file, {"events": None}, memory_limit=LITTLE, threads=1)) as narrow,
    ):
        yield roomy, narrow


@NEWEST
@pytest.mark.parametrize("options", [*BOUNDS, "mechanism = weighted_gaussian", "mechanism = domain_discovery"])
def test_every_form_fits_in_little_memory(engines: tuple[DuckDBEngine, DuckDBEngine], options: str) -> None:
    """It spills what it cannot hold, and counts the same."""
    roomy, narrow = engines
    with_options = f" WITH ({options})" * bool(options)
    counts = "SELECT item, COUNT(DISTINCT unit) AS n FROM events GROUP BY item TOP 5 PRIVATE"
    counting = open_session(roomy, POLICY, ledger=":memory:").explain(counts + with_options).counting
    statement = Statement(counting.sql, counting.parameters)
    assert open_exact(narrow.execute(statement)).equals(open_exact(roomy.execute(statement)))


def test_lists_of_each_unit_do_not_fit_in_it(engines: tuple[DuckDBEngine, DuckDBEngine]) -> None:
    roomy, narrow = engines
    assert len(open_exact(roomy.execute(Statement(ONE_KEY)))) == 10
    with pytest.raises(EngineError):
        narrow.execute(Statement(ONE_KEY))
