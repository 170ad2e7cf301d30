"""What every engine does, on real DuckDB: opened, in a process of its own, borrowed from the user, and recorded."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from dpsql.engines import Column, CsvFile, Engine, Exact, RecordingEngine, Statement, open_exact
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.engines.duckdb.worker_engine import WorkerEngine
from dpsql.errors import EngineError, UsageError

SECRET = "VICTIM_SECRET"
SLOW = "SELECT count(*) AS n FROM range(400000) AS a, range(400000) AS b WHERE a.range * b.range = 7 AND a.range < $1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("engines")
    with closing(duckdb.connect(folder / "events.duckdb")) as connection:
        connection.execute("CREATE TABLE reads (user_id BIGINT, article VARCHAR, price DECIMAL(10, 2))")
        connection.execute(f"INSERT INTO reads VALUES (1, 'a', 1.5), (2, 'b', 2), (3, '{SECRET}', NULL)")
        connection.execute('CREATE SCHEMA web; CREATE TABLE web."odd ""name" ("a b" INTEGER, kind ENUM (\'x\', \'y\'))')
        connection.execute("CREATE TABLE codes (code VARCHAR COLLATE NOCASE, number BIGINT, none INTEGER)")
        connection.execute("INSERT INTO codes VALUES ('a', 1, NULL), ('A', 1, NULL), (NULL, 2, NULL)")
        connection.execute("CREATE VIEW cheap AS SELECT user_id, article FROM reads WHERE price < 2")
        connection.execute(f"COPY (SELECT 7 AS user_id, 'p' AS page) TO '{folder / 'visits.parquet'}'")
    (folder / "clicks.csv").write_text("page,when,User_ID\np,2026-01-02,7\n,,8\n")
    return folder


def sources(folder: Path) -> dict[str, Path | CsvFile | None]:
    clicks = CsvFile(folder / "clicks.csv", (Column("user_id", "SMALLINT"), Column("page", "VARCHAR")))
    files = {"visits": folder / "visits.parquet", 'web.clicks "of" today': clicks}
    return {"reads": None, "codes": None, 'web.odd "name': None, "cheap": None, **files}


KINDS = ["sealed", "worker", "borrowed", "recording"]


@contextmanager
def opened(kind: str, folder: Path) -> Iterator[Engine]:
    file = folder / "events.duckdb"
    if kind == "borrowed":
        with (
            closing(duckdb.connect(file)) as connection,
            closing(DuckDBEngine.borrow(connection, sources(folder))) as it,
        ):
            yield it
    elif kind == "worker":
        with closing(WorkerEngine.open(file, sources(folder), memory_limit="1GB", threads=2)) as started:
            yield started
    else:
        with closing(DuckDBEngine.open(file, sources(folder), threads=2)) as it:
            yield RecordingEngine(it) if kind == "recording" else it


@pytest.fixture(params=KINDS, scope="module")
def engine(request: pytest.FixtureRequest, folder: Path) -> Iterator[Engine]:
    """One for all tests, which no statement may change."""
    with opened(request.param, folder) as it:
        yield it


@pytest.fixture(params=KINDS)
def own(request: pytest.FixtureRequest, folder: Path, tmp_path: Path) -> Iterator[Engine]:
    """One that a test may close, on a copy of the data."""
    with opened(request.param, Path(shutil.copytree(folder, tmp_path / "own"))) as it:
        yield it


def spelled(engine: Engine, name: str) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in engine.relation(name))


def run(engine: Engine, sql: str, *parameters: object) -> pa.Table:
    return open_exact(engine.execute(Statement(sql, parameters)))


ROWS = {"reads": 3, "codes": 3, 'web.odd "name': 0, "cheap": 1, "visits": 1, 'web.clicks "of" today': 2}


@pytest.mark.parametrize(("name", "rows"), ROWS.items())
def test_every_table_is_found_under_its_relation(engine: Engine, name: str, rows: int) -> None:
    assert len(engine.relation(name)) == 3
    assert run(engine, f"SELECT * FROM {spelled(engine, name)}").num_rows == rows


def test_columns_are_in_the_words_of_the_engine(engine: Engine) -> None:
    assert engine.columns("reads") == (
        Column("user_id", "BIGINT"),
        Column("article", "VARCHAR"),
        Column("price", "DECIMAL(10,2)"),
    )
    assert engine.columns('web.odd "name') == (Column("a b", "INTEGER"), Column("kind", "ENUM"))
    assert engine.columns("visits") == (Column("user_id", "INTEGER"), Column("page", "VARCHAR"))
    assert engine.columns('web.clicks "of" today') == (Column("user_id", "SMALLINT"), Column("page", "VARCHAR"))


def test_parameters_are_bound_in_order_and_never_read_as_sql(engine: Engine) -> None:
    noon = datetime(2026, 1, 2, 12, tzinfo=UTC).replace(tzinfo=None)
    values = (1, 2.5, True, None, "'; DROP TABLE reads; --", Decimal("1.25"), date(2026, 1, 2), noon)
    marks = ", ".join(f"${number} AS c{number}" for number in range(1, len(values) + 1))
    (row,) = run(engine, f"SELECT {marks}", *values).to_pylist()
    assert tuple(row.values()) == values


def test_a_result_is_sealed_arrow_with_types_even_when_empty(engine: Engine) -> None:
    exact = engine.execute(
        Statement(f"SELECT user_id, article FROM {spelled(engine, 'reads')} WHERE user_id > $1", (9,))
    )
    assert type(exact) is Exact
    table = open_exact(exact)
    assert table.num_rows == 0
    assert table.schema == pa.schema([("user_id", pa.int64()), ("article", pa.large_string())])


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1; SELECT 2",
        "",
        "-- nothing",
        "SELEC 1",
        "SET VARIABLE x = 1",
        "SET threads = 1",
        "CREATE TEMP TABLE reads AS SELECT 1",
        "ATTACH ':memory:' AS other",
        "COPY (SELECT 1) TO 'there.csv'",
        *(["PRAGMA database_size"] if duckdb.__version__ >= "2" else []),  # which older ones take for a SELECT
        "EXPLAIN ANALYZE SELECT 1",
        "INSERT INTO reads VALUES (4, 'd', 1)",
        "BEGIN",
        "INSTALL httpfs",
    ],
)
def test_only_one_select_is_run(engine: Engine, sql: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EngineError) as caught:
        run(engine, sql)
    assert caught.value.code == "engine-failed"
    assert list(tmp_path.iterdir()) == []
    assert run(engine, "SELECT getvariable('x') IS NULL AS unset").to_pylist() == [{"unset": True}]


LEAKS = {
    "CAST(article AS INTEGER)": SECRET,
    "CASE WHEN user_id = 3 THEN error(article) END": SECRET,
    "strptime(article, '%Y')": SECRET,
    "regexp_matches('x', '(' || article)": SECRET,
    "CASE WHEN user_id = 3 THEN 9223372036854775807 + user_id END": "+ 3)",
}


@pytest.mark.parametrize(("expression", "leak"), LEAKS.items())
def test_silence_no_word_of_the_engine_leaves(
    engine: Engine, expression: str, leak: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    control = f"SELECT {expression} FROM (VALUES (3::BIGINT, '{SECRET}')) AS v(user_id, article)"
    with closing(duckdb.connect()) as raw, pytest.raises(duckdb.Error) as told:
        raw.sql(control).fetchall()
    assert leak in str(told.value).partition("LINE")[0]
    statement = Statement(
        f"SELECT {expression} AS x FROM {spelled(engine, 'reads')} WHERE article > $1", ("BOUND_SECRET",)
    )
    with pytest.raises(EngineError) as caught:
        engine.execute(statement)
    said = _everything_said(caught.value)
    said += "".join(capfd.readouterr()) + caplog.text + repr(statement)
    for word in (leak, "BOUND_SECRET", "Conversion", "Overflow", "Could not", "Invalid", "_duckdb"):
        assert word not in said
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None
    assert caught.value.code == "engine-failed"
    assert caught.value.hint


def _everything_said(error: EngineError) -> str:
    """Return what a careless handler could log: the error, its traceback, and the local variables of our frames."""
    ours = error.__traceback__.tb_next if error.__traceback__ else None
    deep = traceback.TracebackException(type(error), error, ours, capture_locals=True)
    return "".join([str(error), repr(error), repr(vars(error)), *traceback.format_exception(error), *deep.format()])


def test_an_error_while_another_is_handled_shows_none_of_the_engine(engine: Engine) -> None:
    def ask() -> None:
        try:
            {}["outer"]
        except KeyError:
            run(engine, f"SELECT CAST(article AS INTEGER) FROM {spelled(engine, 'reads')}")

    with pytest.raises(EngineError) as caught:
        ask()
    assert isinstance(caught.value.__context__, KeyError)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_a_failure_does_not_spoil_the_next_statement(engine: Engine) -> None:
    for _ in range(3):
        with pytest.raises(EngineError):
            run(engine, "SELECT error('no')")
        assert run(engine, "SELECT 1 AS one").to_pylist() == [{"one": 1}]


@pytest.mark.parametrize("pattern", ["", "a", "^(a|b)+$", r"\p{Greek}", "(?i)x", "[[:alpha:]]", "'", "é", "a\0b"])
def test_patterns_that_compile(engine: Engine, pattern: str) -> None:
    assert engine.accepts_pattern(pattern)
    run(engine, f"SELECT regexp_matches(article, $1) FROM {spelled(engine, 'reads')}", pattern)


@pytest.mark.parametrize("pattern", ["(", "[", "(?=a)", r"\1", "a{1001}", "(a{1000}){1000}", "\ud800", "*"])
def test_patterns_that_do_not_compile(engine: Engine, pattern: str) -> None:
    assert not engine.accepts_pattern(pattern)
    with pytest.raises(EngineError):
        run(engine, f"SELECT regexp_matches(article, $1) FROM {spelled(engine, 'reads')}", pattern)


@pytest.mark.parametrize(
    ("name", "column", "unique"),
    [
        ("reads", "user_id", True),
        ("reads", "price", True),
        ("codes", "code", True),
        ("codes", "number", False),
        ("codes", "none", True),
        ('web.odd "name', "a b", True),
    ],
)
def test_whether_a_value_stands_twice(engine: Engine, name: str, column: str, unique: bool) -> None:
    """NULL may; text is compared by its bytes, whatever its collation."""
    assert engine.unique(name, column) is unique


def test_a_closed_engine_does_not_say_what_stands_twice(own: Engine) -> None:
    own.close()
    with pytest.raises(UsageError) as caught:
        own.unique("reads", "user_id")
    assert caught.value.code == "engine-closed"


@pytest.mark.parametrize("name", ["nothing", "", "READS"])
def test_a_name_that_was_not_registered_does_not_exist(engine: Engine, name: str) -> None:
    for ask in (engine.relation, engine.columns):
        with pytest.raises(UsageError) as caught:
            ask(name)
        assert caught.value.code == "table-unknown"


def test_a_closed_engine_answers_nothing(own: Engine) -> None:
    assert own.accepts_pattern("a")
    own.close()
    own.close()
    for ask in (lambda: run(own, "SELECT 1"), lambda: own.accepts_pattern("a")):
        with pytest.raises(UsageError) as caught:
            ask()
        assert caught.value.code == "engine-closed"


def test_many_threads_may_ask_at_once(engine: Engine) -> None:
    with ThreadPoolExecutor(8) as pool:
        tables = pool.map(lambda number: run(engine, "SELECT $1::BIGINT * 2 AS n", number), range(64))
        assert [table.to_pylist()[0]["n"] for table in tables] == [2 * number for number in range(64)]


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Let SIGINT interrupt, also where the tests were started in the background and ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_stops_the_statement_and_stays_a_ctrl_c(engine: Engine) -> None:
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt) as caught:
        run(engine, SLOW, 10**9)
    assert time.monotonic() - began < 20
    assert caught.value.__context__ is None
    assert run(engine, "SELECT 1 AS one").to_pylist() == [{"one": 1}]
