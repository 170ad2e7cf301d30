"""Spark: how a session is had, what is pinned in it, which tables it shows, and that nothing is said of a failure."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.engine_kit_spark import OPTIONS, URL, folder, laid, opened

from dpsql import Budget, DataSource, Policy, PrivateTable, PublicTable
from dpsql.curator import write_starter
from dpsql.engines import CsvFile, Statement, open_exact
from dpsql.engines.spark import SparkEngine
from dpsql.engines.spark_session import PINNED, _within, started
from dpsql.errors import EngineError, PolicyError, UsageError
from dpsql.open_engine import open_engine
from dpsql.registration import build_catalog
from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import Bound, rewrite_leaders

NAN = float("nan")


@pytest.fixture(scope="module")
def lent() -> Iterator[Any]:
    """A session of the user's, with settings that would change what dpsql's statements mean."""
    from pyspark.sql import SparkSession

    folder()
    session = SparkSession.getActiveSession() or SparkSession._instantiatedSession
    assert session is not None
    session = session.newSession()
    for name, value in STRANGE.items():
        session.conf.set(name, value)
    return session


STRANGE = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "true",
    "spark.sql.session.timeZone": "America/Los_Angeles",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.parser.quotedRegexColumnNames": "true",
    "spark.sql.legacy.ctePrecedencePolicy": "LEGACY",
}


def rows(engine: SparkEngine, sql: str) -> list[tuple[object, ...]]:
    table = open_exact(engine.execute(Statement(sql)))
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def counted(engine: SparkEngine, text: str, *, bound: Bound | None = None) -> list[dict[str, object]]:
    """Return the groups of a private query over `reads`, counted exactly."""
    return open_exact(engine.execute(asked(engine, text, bound=bound))).to_pylist()


def asked(engine: SparkEngine, text: str, *, bound: Bound | None = None) -> Statement:
    """Return the statement that counts the groups of a private query over `reads`."""
    policy = Policy(Budget(1, "1e-6"), {"reads": PrivateTable("u")})
    catalog = build_catalog(engine, policy)
    query = analyze(text, catalog, accepts_pattern=engine.accepts_pattern, clock=time.gmtime)  # type: ignore[arg-type]
    assert isinstance(query, PrivateQuery)
    found = rewrite_leaders(query, 20, bound=bound)
    return Statement(found.sql, found.parameters, found.types)


def refusal(url: str, **options: str) -> EngineError | PolicyError | UsageError:
    with pytest.raises((EngineError, PolicyError, UsageError)) as raised:
        SparkEngine.open(url, {}, options=options)
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None or isinstance(raised.value.__context__, type(raised.value))
    return raised.value


def test_columns_have_duckdbs_names_and_others_are_not_computed_with(lent: Any) -> None:
    lent.sql(
        "SELECT true AS a, 1Y AS b, 1S AS c, 1 AS d, 1L AS e, 1.0F AS f, 1.0D AS g, 1.50BD AS h, 'x' AS i, "
        "DATE '2026-01-31' AS j, TIMESTAMP_NTZ '2026-01-31 12:00:00' AS k, TIMESTAMP_LTZ '2026-01-31 12:00:00' AS l, "
        "X'00' AS m, array(1) AS n, INTERVAL 1 DAY AS o, CAST(1 AS DECIMAL(38, 0)) AS p"
    ).createOrReplaceTempView("kinds")
    engine = SparkEngine.borrow(lent, {"kinds": None})
    assert [column.type for column in engine.columns("kinds")] == [
        *("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(3,2)", "VARCHAR"),
        *("DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "BLOB", "array<int>", "interval day", "DECIMAL(38,0)"),
    ]
    engine.close()


def test_a_session_that_is_given_stays_as_it_is_and_what_dpsql_asks_means_the_same(lent: Any) -> None:
    before = dict(lent.conf.getAll)
    lent.sql("SELECT id AS u, 'g' || id % 2 AS g FROM range(5)").createOrReplaceTempView("reads")
    engine = SparkEngine.borrow(lent, {"reads": None})
    found = counted(
        engine, "SELECT g, COUNT(DISTINCT u) FROM reads WHERE 7 // (u - 1) IS NULL OR u > 1 GROUP BY g TOP 5 PRIVATE"
    )
    assert [list(row.values()) for row in found] == [["g0", 2], ["g1", 2]]
    settings = dict(rows(engine, "SET"))
    assert {name: settings[name] for name in PINNED if name in settings}.items() <= PINNED.items()
    assert not [name for name in settings if str(name).startswith("spark.sql.legacy.")]
    engine.close()
    assert lent.conf.getAll == before
    assert lent.sql("SELECT 1 AS one").collect()[0].one == 1


@pytest.mark.parametrize("bound", [None, Bound(3, (1, 2))])
def test_spark_sends_pairs_by_key_and_unit_or_rows_by_unit_under_a_bound(lent: Any, bound: Bound | None) -> None:
    lent.range(0, 100_000, 1, 4).selectExpr("id % 999 AS u", "'g' || id % 77 AS g").createOrReplaceTempView("reads")
    engine = SparkEngine.borrow(lent, {"reads": None})
    engine._session.conf.set("spark.sql.shuffle.partitions", "4")
    statement = asked(engine, "SELECT g, COUNT(DISTINCT u) FROM reads GROUP BY g TOP 5 PRIVATE", bound=bound)
    named = {f"p{at}": value for at, value in enumerate(statement.parameters, start=1)}
    ((plan,),) = engine._session.sql(f"EXPLAIN {statement.sql}", args=named).collect()
    sent = [re.findall(r"dpsql_\w+", keys) for keys in re.findall(r"hashpartitioning\(([^)]*)\)", str(plan))]
    by_pair, by_key, by_unit = ["dpsql_key_1", "dpsql_unit"], ["dpsql_key_1"], ["dpsql_unit"]
    assert sent == [by_key, by_pair if bound is None else by_unit]  # from the last to the first
    engine.close()


def test_text_of_a_collation_is_compared_by_its_bytes(lent: Any) -> None:
    lent.sql("SELECT * FROM VALUES (1, 'a'), (2, 'A'), (3, 'a') AS t(u, g)").createOrReplaceTempView("plain")
    lent.sql("SELECT u, g COLLATE UTF8_LCASE AS g FROM plain").createOrReplaceTempView("reads")
    engine = SparkEngine.borrow(lent, {"reads": None})
    assert [column.type for column in engine.columns("reads")] == ["INTEGER", "VARCHAR"]
    found = counted(engine, "SELECT g, COUNT(DISTINCT u) FROM reads WHERE g <> 'b' GROUP BY g TOP 5 PRIVATE")
    assert [list(row.values()) for row in found] == [["a", 2], ["A", 1]]
    assert not engine.unique("reads", "g")
    engine.close()


def test_columns_that_differ_in_case_alone_are_left_out(lent: Any) -> None:
    lent.sql("SELECT 1 AS u, 2 AS g, 3 AS G").createOrReplaceTempView("twice")
    engine = SparkEngine.borrow(lent, {"twice": None})
    assert [column.name for column in engine.columns("twice")] == ["u"]
    engine.close()


def test_a_table_of_a_database_is_found_by_its_name(lent: Any) -> None:
    lent.sql("CREATE DATABASE IF NOT EXISTS logs")
    lent.sql("CREATE TABLE IF NOT EXISTS logs.reads USING parquet AS SELECT 1 AS u, 'x' AS g")
    engine = SparkEngine.borrow(lent, {"logs.reads": None, "spark_catalog.logs.reads": None})
    assert engine.relation("logs.reads") == ("logs", "reads")
    assert [column.name for column in engine.columns("spark_catalog.logs.reads")] == ["u", "g"]
    engine.close()


def test_values_that_files_know_nothing_of_are_found_whatever_stands_beside_them() -> None:
    # Parquet's least and greatest leave NaN out and tell zeros apart: Spark would skip these files
    beside_one = laid({"reads": pa.table({"u": [1, 2], "x": [1.0, NAN]})})
    zeros = laid({"reads": pa.table({"u": [1, 2], "x": [-0.0, -0.0]})})
    for sources, condition, units in [
        (beside_one, "x > 5", 1),
        (beside_one, "x = 'NaN'", 1),
        (beside_one, "x IN ('NaN', 7)", 1),
        (beside_one, "x NOT BETWEEN 0 AND 5", 1),
        (beside_one, "x IS DISTINCT FROM 1", 1),
        (zeros, "x = 0", 2),
        (zeros, "x >= 0", 2),
        (zeros, "x IN (0, 7)", 2),
    ]:
        engine = opened(sources)
        found = counted(
            engine, f"SELECT 1 AS g, COUNT(DISTINCT u) FROM reads WHERE {condition} GROUP BY g TOP 5 PRIVATE"
        )
        assert [list(row.values())[1] for row in found] == [units], condition
        engine.close()


def test_text_that_is_no_utf8_fails_no_answer(tmp_path: Path) -> None:
    raw = pa.array([b"\xff\xfe", b"ok", b"\xf0\x9f\x99"], pa.binary())
    table = pa.table({"u": [1, 2, 3], "g": pa.Array.from_buffers(pa.string(), 3, raw.buffers())})
    pq.write_table(table, tmp_path / "rows.parquet")
    engine = opened({"reads": tmp_path / "rows.parquet"})
    text = "SELECT g, COUNT(DISTINCT u) FROM reads WHERE length(g) > 0 AND left(g, 1) <> 'x' GROUP BY g TOP 5 PRIVATE"
    assert len(counted(engine, text)) == len(counted(engine, text, bound=Bound(1, (1, 2)))) == 3
    engine.close()


def test_a_path_is_no_pattern_and_its_files_are_settled_when_it_opens(tmp_path: Path) -> None:
    place = tmp_path / "a[1] {b,c}*?"
    place.mkdir()
    pq.write_table(pa.table({"u": [1], "g": ["x"]}), place / "one.parquet")
    engine = opened({"reads": place})
    pq.write_table(pa.table({"u": [2], "g": ["x"]}), place / "two.parquet")
    assert rows(engine, f"SELECT count(*) FROM `{engine.relation('reads')[0]}`") == [(1,)]
    engine.close()


def test_sources_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    (tmp_path / "bad.parquet").write_text("no Parquet")
    csv: CsvFile = CsvFile(tmp_path / "rows.csv", ())
    wrong: list[tuple[str, Path | CsvFile | None, str]] = [
        ("none", None, "table-missing"),
        ("gone", tmp_path / "gone.parquet", "source-missing"),
        ("bad", tmp_path / "bad.parquet", "source-unreadable"),
        ("rows", csv, "policy-source"),
    ]
    for name, source, code in wrong:
        with pytest.raises((EngineError, PolicyError)) as raised:
            SparkEngine.open(URL, {name: source}, options={**OPTIONS, "spark.sql.warehouse.dir": str(folder())})
        assert raised.value.code == code


def test_an_address_is_read_by_the_file_systems_of_spark(tmp_path: Path) -> None:
    reads = pa.table({"u": [1, 2, 3], "g": ["x", "y", "y"], "day": ["1", "1", "2x"]})
    pq.write_to_dataset(reads, tmp_path / "reads", partition_cols=["day"])
    address = f"viewfs://cluster/files{tmp_path}/reads"
    sources = {"whole": address, "part": f"{address}/day=[1]/*.parquet", "file": f"file:{tmp_path}/reads/day=1"}
    policy = Policy(Budget(1, "1e-6"), {name: PublicTable(source=url) for name, url in sources.items()}, source=here())
    engine = open_engine(None, policy)
    assert [(column.name, column.type) for column in engine.columns("whole")] == [
        ("u", "BIGINT"),
        ("g", "VARCHAR"),
        ("day", "VARCHAR"),  # which one row must not change
    ]
    wanted = duckdb.sql("SELECT u, g, day FROM reads ORDER BY u").fetchall()
    assert rows(engine, f"SELECT u, g, day FROM `{engine.relation('whole')[0]}` ORDER BY u") == wanted
    for name in ("part", "file"):
        assert rows(engine, f"SELECT count(*) FROM `{engine.relation(name)[0]}`") == [(2,)]
    engine.close()


def test_types_of_partitions_do_not_depend_on_their_values(tmp_path: Path) -> None:
    for days in (["1", "2"], ["1", "2x"]):
        place = tmp_path / days[-1]
        pq.write_to_dataset(pa.table({"u": [1, 2], "day": days}), place, partition_cols=["day"])
        policy = Policy(Budget(1, "1e-6"), {"reads": PrivateTable("u", source=place)}, source=here())
        engine = open_engine(None, policy)
        assert engine.columns("reads")[-1].type == "VARCHAR"
        engine.close()


@pytest.mark.parametrize(
    ("source", "code", "hint"),
    [
        ("/nowhere/reads", "source-missing", "on those that compute"),
        ("/nowhere/reads.parquet", "source-missing", "on those that compute"),
        ("file:///nowhere/reads", "source-missing", "from the machines that compute"),
        ("viewfs://cluster/files/nowhere", "source-missing", "from the machines that compute"),
        ("s3a://bucket/reads", "source-unreadable", "org.apache.hadoop:hadoop-aws:3."),
        ("abfss://box@account.dfs.core.windows.net/reads", "source-unreadable", "org.apache.hadoop:hadoop-azure:3."),
        ("s3://bucket/reads", "source-unreadable", "Write s3a:// in place of s3://"),
        ("gs://bucket/reads", "source-unreadable", "Add the jar of that file system"),
        ("https://localhost/reads.parquet", "source-unreadable", "copy them to a file system"),
        ("hdfs://127.0.0.1:1/reads", "source-unreadable", "spark-sql"),
        (None, "table-missing", "catalog.database.table"),
    ],
)
def test_what_spark_cannot_find_is_said_by_spark_with_a_hint_of_its_own(
    source: str | None, code: str, hint: str
) -> None:
    policy = Policy(Budget(1, "1e-6"), {"reads": PublicTable(source=source)}, source=here())
    with pytest.raises(EngineError) as raised:
        open_engine(None, policy)
    assert (raised.value.code, raised.value.place) == (code, "tables.reads")
    assert hint in raised.value.hint
    own = raised.value.__context__  # the same error before it had the policy's line
    assert isinstance(own, EngineError)
    assert own.__context__ is None


def here() -> DataSource:
    """Return the Spark of this process as a policy names it."""
    return DataSource(URL, options={**OPTIONS, "spark.sql.warehouse.dir": str(folder())})


def test_settings_that_dpsql_relies_on_are_refused() -> None:
    for name in ("spark.sql.ansi.enabled", "spark.sql.legacy.timeParserPolicy"):
        assert refusal("spark:local[1]", **{name: "true"}).code == "policy-source"


def test_what_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert "Java" in refusal("spark:local[1]").reason
    monkeypatch.setattr("dpsql.engines.spark_session.find_spec", lambda _: None)
    assert "pyspark" in refusal("spark:local[1]").reason
    assert "spark-connect" in refusal("sc://127.0.0.1:1").hint


def test_a_host_that_does_not_answer_is_told_at_once() -> None:
    folder()
    begun = time.monotonic()
    for url in ("sc://127.0.0.1:1", "spark://127.0.0.1:1", "spark:nonsense"):
        assert refusal(url).code == "engine-unreachable"
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it takes the call and says nothing
        assert silent.getsockname()[1]
    assert time.monotonic() - begun < 30


def test_a_failure_says_nothing_of_the_value_that_it_is_about(lent: Any, capfd: pytest.CaptureFixture[str]) -> None:
    lent.sql("SELECT 1 AS u, 'secret-41' AS g").createOrReplaceTempView("plain")
    lent.sql("SELECT u, CAST(g AS INT) AS g FROM plain").createOrReplaceTempView("reads")
    engine = SparkEngine.borrow(lent, {"reads": None})
    with pytest.raises(EngineError) as raised:
        engine.execute(Statement("SELECT g FROM dpsql_reads"))
    assert raised.value.code == "engine-failed"
    with pytest.raises(EngineError):
        engine.execute(Statement("SELECT no_column FROM dpsql_reads WHERE 'secret-42' = g"))
    said = capfd.readouterr()
    assert "secret" not in said.out + said.err
    engine.close()


def test_a_statement_that_takes_too_long_is_stopped_and_the_next_is_answered() -> None:
    sources = laid({"reads": pa.table({"u": list(range(2000))})})
    engine = SparkEngine.open(URL, sources, options={**OPTIONS, "spark.sql.warehouse.dir": str(folder())}, time_limit=6)
    name = f"`{engine.relation('reads')[0]}`"
    assert rows(engine, f"SELECT count(*) FROM {name}") == [(2000,)]
    begun = time.monotonic()
    with pytest.raises(EngineError):
        # Tasks look for a stop once for each row of the range. A join that looks less often holds the executors.
        engine.execute(Statement(f"SELECT sum(a.u * b.id % 7) FROM {name} a, range(1000000000000) b"))
    assert time.monotonic() - begun < 16
    assert rows(engine, f"SELECT count(*) FROM {name}") == [(2000,)]
    engine.close()


def test_engines_of_one_cluster_share_it_and_another_cluster_is_not_started() -> None:
    one, two = opened({}), opened({})
    one.close()
    assert rows(two, "SELECT 1") == [(1,)]
    assert refusal("spark:local[2]").code == "engine-unreachable"
    two.close()
    assert threading.active_count() < 50


def test_spark_connect_answers_as_spark_does() -> None:
    pytest.importorskip("grpc")
    sources = laid({"reads": pa.table({"u": [1, 2, 2], "g": ["a", "a", "b"]})})
    engine = SparkEngine.open(connect_server(), sources, options={})
    found = counted(engine, "SELECT g, COUNT(DISTINCT u) FROM reads WHERE u + 0.5e0 > 1 GROUP BY g TOP 5 PRIVATE")
    assert [list(row.values()) for row in found] == [["a", 2], ["b", 1]]
    engine.close()


def test_a_session_of_spark_connect_can_be_given() -> None:
    pytest.importorskip("grpc")
    session = started(connect_server(), {})
    session.conf.set("spark.sql.ansi.enabled", "true")
    session.sql("SELECT 1 AS u, 'a' AS g").createOrReplaceTempView("reads")
    engine = SparkEngine.borrow(session, {"reads": None})
    assert rows(engine, "SELECT 1 % 0 FROM reads") == [(None,)]
    engine.close()
    assert session.conf.get("spark.sql.ansi.enabled") == "true"
    session.stop()


def connect_server() -> str:
    """Return the address of a server of Spark Connect in the Spark of this process."""
    from pyspark import SparkContext

    folder()
    context: Any = SparkContext._active_spark_context
    conf = context._jsc.sc().conf()
    if not conf.contains("spark.connect.grpc.binding.port"):
        with socket.create_server(("127.0.0.1", 0)) as free:
            conf.set("spark.connect.grpc.binding.port", str(free.getsockname()[1]))
        conf.set("spark.connect.grpc.binding.address", "127.0.0.1")
        context._jvm.org.apache.spark.sql.connect.service.SparkConnectService.start(context._jsc.sc())
    return f"sc://127.0.0.1:{conf.get('spark.connect.grpc.binding.port')}"


def test_public_tables_are_answered_as_duckdb_answers_them() -> None:
    table = pa.table({"g": ["b", "a", None], "n": [1, None, 3]})
    engine = opened(laid({"prices": table}))
    catalog = build_catalog(engine, Policy(Budget(1, "1e-6"), {"prices": PublicTable()}))
    assert catalog.dialect.name == "Spark"
    wanted = duckdb.sql('SELECT g, n FROM "table" ORDER BY g NULLS LAST').fetchall()
    assert rows(engine, f"SELECT g, n FROM `{engine.relation('prices')[0]}` ORDER BY g NULLS LAST") == wanted
    engine.close()


def test_a_starter_policy_names_the_tables_of_spark(tmp_path: Path) -> None:
    pytest.importorskip("grpc")
    url = connect_server()
    session = started(url, {})
    session.sql(
        f"CREATE TABLE starter_edits USING parquet LOCATION '{tmp_path}/edits' AS "
        "SELECT id AS editor_id, concat('page ', id % 3) AS page FROM range(100)"
    )
    session.sql("CREATE DATABASE starter_logs")
    session.sql(f"CREATE TABLE starter_logs.hits USING parquet LOCATION '{tmp_path}/hits' AS SELECT 1 AS customer_id")
    session.sql("CREATE TEMPORARY VIEW starter_view AS SELECT 1 AS user_id")
    try:
        starter = write_starter(url)
    finally:
        session.sql("DROP TABLE starter_edits")
        session.sql("DROP DATABASE starter_logs CASCADE")
    names = [each.table.name for each in starter.decisions]
    assert "starter_logs.hits" in names
    assert "starter_view" not in names
    (decision,) = [each for each in starter.decisions if each.table.name == "starter_edits"]
    assert decision.unit is not None
    assert decision.unit.column.name == "editor_id"
    assert f'[source]\nurl = "{url}"' in starter.text
    assert starter.first_query is not None


def test_a_cancelled_statement_takes_no_other_session_with_it(lent: Any) -> None:
    """A server has several sessions on one cluster, one for each statement that runs."""
    options = {**OPTIONS, "spark.sql.warehouse.dir": str(folder())}
    first, second = (SparkEngine.open(URL, {}, options=options) for _ in range(2))
    counting = "SELECT count(*) AS n FROM range({}) WHERE id % 7 = 3"

    def runs(session: Any) -> bool:
        return bool(session.sparkContext.statusTracker().getActiveJobsIds())

    with ThreadPoolExecutor(1) as threads:
        going = threads.submit(rows, first, counting.format(30_000_000))
        while not runs(lent):
            assert not going.done()
            time.sleep(0.01)
        assert lent.sparkContext._jsc.sc().getSchedulingMode().toString() == "FAIR"
        second.cancel()
        assert going.result(120) == [(4_285_714,)]
        going = threads.submit(rows, first, counting.format(10**13))
        while not runs(lent):
            time.sleep(0.01)
        first.cancel()
        with pytest.raises(EngineError):
            going.result(120)
    assert rows(second, "SELECT 1 AS one") == [(1,)]
    for engine in (first, second):
        engine.close()


@pytest.fixture
def opted_out() -> Iterator[Any]:
    """A user's session, with a table that others may not see whole, and one of a name that dpsql gives to views."""
    folder()  # which starts Spark
    from pyspark.sql import SparkSession

    first: Any = SparkSession._instantiatedSession
    session = first.newSession()
    for name in ("chosen", "dpsql_chosen"):
        session.sql(f"CREATE TABLE {name} USING parquet AS SELECT * FROM VALUES ('in'), ('opted out') AS t(u)")
    yield session
    for name in ("chosen", "dpsql_chosen"):
        session.sql(f"DROP TABLE spark_catalog.default.{name}")


def units(engine: SparkEngine, name: str) -> list[object]:
    relation = ".".join(f"`{part}`" for part in engine.relation(name))
    return sorted(open_exact(engine.execute(Statement(f"SELECT u FROM {relation}"))).column("u").to_pylist())


def test_a_view_that_hides_rows_of_the_table_of_its_name_is_what_is_asked(opted_out: Any) -> None:
    opted_out.sql("CREATE TEMP VIEW chosen AS SELECT * FROM spark_catalog.default.chosen WHERE u <> 'opted out'")
    engine = SparkEngine.borrow(opted_out, {"chosen": None, "default.chosen": None})
    assert units(engine, "chosen") == ["in"]
    assert units(engine, "default.chosen") == ["in", "opted out"]
    engine.close()


def test_views_of_dpsqls_own_stand_for_no_other_table(opted_out: Any) -> None:
    opted_out.sql("CREATE TEMP VIEW t AS SELECT 'private' COLLATE UNICODE_CI AS u")
    opted_out.sql("CREATE TEMP VIEW bytes_t AS SELECT 'public' AS u")
    for names in (["t", "bytes_t"], ["bytes_t", "t"]):
        engine = SparkEngine.borrow(opted_out, dict.fromkeys(names))
        assert [units(engine, "t"), units(engine, "bytes_t")] == [["private"], ["public"]]
        engine.close()
    with pytest.raises(EngineError, match="no table"):
        SparkEngine.borrow(opted_out, {"dpsql_chosen": None})


def test_a_session_that_starts_too_late_is_stopped_and_one_in_time_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped, done = list[Any](), threading.Event()

    def start() -> Any:
        done.wait(10)
        return "session"

    def stop(session: Any) -> None:
        stopped.append(session)
        done.clear()

    monkeypatch.setattr("dpsql.engines.spark_session._PATIENCE", 0.05)
    with pytest.raises(EngineError):
        _within(start, stop=stop)
    done.set()
    while done.is_set():
        time.sleep(0.01)
    assert stopped == ["session"]
    monkeypatch.setattr("dpsql.engines.spark_session._PATIENCE", 10)
    assert _within(lambda: "session", stop=stop) == "session"
    assert len(stopped) == 1
