"""The engine of PostgreSQL, on a real server: opened, asked, refused, cut off and stopped."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa
import pytest
from support.postgres_kit import fresh_schema, server

from dpsql.engines import Column, Statement, open_exact
from dpsql.engines.postgres import PostgresEngine
from dpsql.errors import EngineError, Error, UsageError

SECRET = "VICTIM_SECRET"
SLOW = "SELECT pg_sleep(30)::text AS s"
ALIVE = "SELECT 1 AS one"
MAKE = (
    'CREATE SCHEMA "{0}"',
    'CREATE TABLE "{0}".reads (user_id bigint PRIMARY KEY, article text, price numeric(10, 2))',
    f"INSERT INTO \"{{0}}\".reads VALUES (1, 'a', 1.5), (2, 'b', 2), (3, '{SECRET}', NULL)",
    'CREATE TABLE "{0}"."odd ""name" ("a b" integer, kind text)',
    'CREATE TABLE "{0}".codes (code char(3), number bigint, none integer)',
    "INSERT INTO \"{0}\".codes VALUES ('a', 1, NULL), ('A', 1, NULL), (NULL, 2, NULL)",
    'CREATE VIEW "{0}".cheap AS SELECT user_id, article FROM "{0}".reads WHERE price < 2',
    'CREATE MATERIALIZED VIEW "{0}".kept AS SELECT * FROM "{0}".cheap',
    'CREATE TABLE "{0}".parts (user_id bigint, day date) PARTITION BY RANGE (day)',
    "CREATE TABLE \"{0}\".part PARTITION OF \"{0}\".parts FOR VALUES FROM ('2026-01-01') TO ('2027-01-01')",
    'CREATE SEQUENCE "{0}".counter',
)
ROWS = {"reads": 3, 'odd "name': 0, "codes": 3, "cheap": 1, "kept": 1, "parts": 0}


@pytest.fixture(scope="module")
def schema() -> str:
    name = fresh_schema()
    server().run(*(statement.format(name) for statement in MAKE))
    return name


def url(user: str = "tester", **options: str) -> str:
    return server().url("", user, **options).replace("&schema=", "")


def opened(schema: str, *tables: str, time_limit: float | None = None, **options: str) -> PostgresEngine:
    names = dict.fromkeys(f"{schema}.{table}" for table in tables)
    return PostgresEngine.open(url(), names, options=options, time_limit=time_limit)


@pytest.fixture
def engine(schema: str) -> Iterator[PostgresEngine]:
    with closing(opened(schema, *ROWS, time_limit=20)) as it:
        yield it


def run(engine: PostgresEngine, sql: str, *parameters: object) -> pa.Table:
    return open_exact(engine.execute(Statement(sql, parameters)))


def refused(*names: str, address: str = "", **options: str) -> Error:
    with pytest.raises(Error) as caught:
        PostgresEngine.open(address or url(), dict.fromkeys(names), options=options)
    assert caught.value.__context__ is None or isinstance(caught.value.__context__, ImportError)
    return caught.value


@pytest.mark.parametrize(("name", "rows"), ROWS.items())
def test_tables_views_and_partitions_are_found_as_they_are_spelled(
    engine: PostgresEngine, schema: str, name: str, rows: int
) -> None:
    path = ".".join('"' + part.replace('"', '""') + '"' for part in engine.relation(f"{schema}.{name}"))
    assert run(engine, f"SELECT * FROM {path}").num_rows == rows


def test_a_name_without_a_schema_is_of_the_schema_public(schema: str) -> None:
    server().run(f'CREATE TABLE public."{schema}" (user_id bigint)')
    with closing(PostgresEngine.open(url(), {schema: None}, options={})) as engine:
        assert engine.relation(schema) == ("public", schema)


@pytest.mark.parametrize("name", ["nothing", "READS", "counter", "reads_pkey", "", 'reads"; SELECT 1 --'])
def test_what_is_no_table_is_missing(schema: str, name: str) -> None:
    assert refused(f"{schema}.{name}").code == "table-missing"


def test_columns_have_duckdbs_types(engine: PostgresEngine, schema: str) -> None:
    assert engine.columns(f"{schema}.reads") == (
        Column("user_id", "BIGINT"),
        Column("article", "VARCHAR"),
        Column("price", "DECIMAL(10,2)"),
    )


@pytest.mark.parametrize(
    ("name", "column", "unique"),
    [("reads", "user_id", True), ("codes", "code", True), ("codes", "number", False), ("codes", "none", True)],
)
def test_whether_a_value_stands_twice(
    engine: PostgresEngine, schema: str, name: str, column: str, unique: bool
) -> None:
    assert engine.unique(f"{schema}.{name}", column) is unique


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1; SELECT 2",
        "",
        "-- nothing",
        "SELEC 1",
        "SET work_mem = '1MB'",
        "CREATE TEMP TABLE reads AS SELECT 1",
        "COPY (SELECT 1) TO STDOUT",
        "EXPLAIN ANALYZE SELECT 1",
        "BEGIN",
        "SELECT nextval('\"{0}\".counter')",
        'WITH x AS (INSERT INTO "{0}".reads VALUES (4) RETURNING 1) SELECT * FROM x',
        'SELECT * INTO "{0}".other FROM "{0}".reads',
        'SELECT * FROM "{0}".reads FOR UPDATE',
    ],
)
def test_only_one_select_that_reads_is_run(engine: PostgresEngine, schema: str, sql: str) -> None:
    with pytest.raises(EngineError) as caught:
        run(engine, sql.format(schema))
    assert caught.value.code == "engine-failed"
    assert run(engine, ALIVE).to_pylist() == [{"one": 1}]


@pytest.mark.parametrize(
    "expression",
    [
        "CAST(article AS integer)",
        "CASE WHEN user_id = 3 THEN CAST(article AS uuid)::text END",
        "1 / (user_id - 3)",
        "ROW(article)::text::date",
    ],
)
def test_silence_no_word_of_the_server_leaves(
    engine: PostgresEngine, schema: str, expression: str, capfd: pytest.CaptureFixture[str]
) -> None:
    statement = Statement(f'SELECT {expression} AS x FROM "{schema}".reads WHERE article > $1', ("BOUND_SECRET",))
    with pytest.raises(EngineError) as caught:
        engine.execute(statement)
    ours = caught.value.__traceback__.tb_next if caught.value.__traceback__ else None
    deep = traceback.TracebackException(EngineError, caught.value, ours, capture_locals=True)
    said = "".join([repr(caught.value), *traceback.format_exception(caught.value), *deep.format(), *capfd.readouterr()])
    for word in (SECRET, "BOUND_SECRET", "invalid input", "division", "SQLSTATE", "adbc"):
        assert word not in said
    assert caught.value.__context__ is None


def test_a_notice_of_the_server_is_not_printed(schema: str, capfd: pytest.CaptureFixture[str]) -> None:
    server().run(
        f'CREATE FUNCTION "{schema}".loud(x text) RETURNS text LANGUAGE plpgsql AS '
        "$$ BEGIN RAISE WARNING 'saw %', x; RETURN x; END $$",
        f'CREATE VIEW "{schema}".noisy AS SELECT "{schema}".loud(article) AS article FROM "{schema}".reads',
    )
    with closing(opened(schema, "noisy")) as engine:
        assert run(engine, f'SELECT * FROM "{schema}".noisy').num_rows == 3
    assert SECRET not in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://tester:s3cret@/postgres?host=/nowhere",
        "postgresql://tester:s3cret@/nothing?host={host}",
        "postgresql://nobody:s3cret@/postgres?host={host}",
        "postgresql://tester:s3cret@/postgres?host={host}&nonsense=1",
        "postgresql://tester:s3cret@127.0.0.1:1/postgres?connect_timeout=2",
    ],
)
def test_an_unreachable_database_is_told_without_the_password(address: str, capfd: pytest.CaptureFixture[str]) -> None:
    error = refused(address=address.format(host=server().folder))
    assert error.code == "engine-unreachable"
    said = "".join([*traceback.format_exception(error), *capfd.readouterr()])
    assert not [word for word in ("s3cret", "libpq", "does not exist", "FATAL") if word in said]


def test_a_password_file_a_service_and_options_are_libpqs(schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PGHOST": str(server().folder), "PGUSER": "tester", "PGDATABASE": "postgres"}.items():
        monkeypatch.setenv(name, value)
    address = "postgresql://?sslmode=prefer&application_name=of_dpsql&options=-c%20DateStyle%3DGerman"
    with closing(PostgresEngine.open(address, {f"{schema}.reads": None}, options={})) as engine:
        sql = "SELECT current_setting('application_name') AS a, current_setting('DateStyle') AS b"
        assert run(engine, sql).to_pylist() == [{"a": "of_dpsql", "b": "ISO, YMD"}]


def test_settings_of_the_policy_hold_and_those_of_dpsql_are_not_to_be_had(schema: str) -> None:
    with closing(opened(schema, "reads", time_limit=3, work_mem="9MB", jit="off")) as engine:
        sql = "SELECT current_setting('work_mem') AS a, current_setting('jit') AS b, current_setting($1) AS c"
        assert run(engine, sql, "statement_timeout").to_pylist() == [{"a": "9MB", "b": "off", "c": "5s"}]
    for name, value in {"search_path": "public", "TimeZone": "CET", "default_transaction_read_only": "off"}.items():
        assert refused(**{name: value}).code == "source-option"
    for name, value in {"nonsense": "1", "work_mem": "much"}.items():
        error = refused(**{name: value})
        assert (error.code, error.place) == ("source-option", f"source.options.{name}")


def test_names_in_a_statement_are_those_of_the_catalog_whatever_a_schema_has(schema: str) -> None:
    server().run(
        f"CREATE FUNCTION \"{schema}\".md5(text) RETURNS text LANGUAGE sql AS $$ SELECT 'own' $$",
        f"CREATE FUNCTION \"{schema}\".same(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT false'",
        f'CREATE OPERATOR "{schema}".= (LEFTARG = text, RIGHTARG = text, FUNCTION = "{schema}".same)',
        f'CREATE ROLE "{schema}" LOGIN',
        f'ALTER ROLE "{schema}" SET search_path = "{schema}", pg_catalog',
    )
    with closing(PostgresEngine.open(url(schema), {}, options={})) as engine:
        sql = "SELECT md5($1) AS m, CAST($1 AS text) = CAST($1 AS text) AS e"
        assert run(engine, sql, "a").to_pylist() == [{"m": "0cc175b9c0f1b6a831c399e269772661", "e": True}]


def test_what_the_user_may_not_read_is_not_there_and_rows_are_those_that_it_may(schema: str) -> None:
    role = fresh_schema()
    server().run(
        f'CREATE ROLE "{role}" LOGIN',
        f'CREATE TABLE "{schema}".rows (user_id bigint, owner text, hidden text)',
        f"INSERT INTO \"{schema}\".rows VALUES (1, '{role}', 'x'), (2, 'other', 'y')",
        f'ALTER TABLE "{schema}".rows ENABLE ROW LEVEL SECURITY',
        f'CREATE POLICY own ON "{schema}".rows USING (owner = current_user)',
    )
    assert refused(f"{schema}.rows", address=url(role)).code == "table-missing"
    server().run(f'GRANT USAGE ON SCHEMA "{schema}" TO "{role}"')
    assert refused(f"{schema}.rows", address=url(role)).code == "table-missing"
    server().run(f'GRANT SELECT (user_id, owner) ON "{schema}".rows TO "{role}"')
    with closing(PostgresEngine.open(url(role), {f"{schema}.rows": None}, options={})) as engine:
        assert [column.name for column in engine.columns(f"{schema}.rows")] == ["user_id", "owner"]
        assert run(engine, f'SELECT user_id FROM "{schema}".rows').to_pylist() == [{"user_id": 1}]
    with closing(opened(schema, "rows", role=role)) as engine:
        assert run(engine, f'SELECT user_id FROM "{schema}".rows').num_rows == 1


def test_a_database_of_other_bytes_than_utf8_is_refused() -> None:
    server().run("CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    assert refused(address=url().replace("/postgres?", "/latin?")).code == "engine-encoding"


def test_a_connection_that_broke_fails_one_statement_and_the_next_has_a_new_one(engine: PostgresEngine) -> None:
    (row,) = run(engine, "SELECT pg_backend_pid() AS pid").to_pylist()
    server().rows(f"SELECT pg_terminate_backend({row['pid']}, 5000)")
    with pytest.raises(EngineError) as caught:
        run(engine, ALIVE)
    assert caught.value.code == "engine-failed"
    (again,) = run(engine, "SELECT pg_backend_pid() AS pid, current_setting('search_path') AS path").to_pylist()
    assert again["pid"] != row["pid"]
    assert again["path"] == "pg_catalog, pg_temp"


def test_a_statement_stops_at_the_time_limit_on_the_server_too(schema: str) -> None:
    with closing(opened(schema, "reads", time_limit=0.4)) as engine:
        began = time.monotonic()
        with pytest.raises(EngineError):
            run(engine, SLOW)
        assert time.monotonic() - began < 20
        assert run(engine, ALIVE).num_rows == 1
    assert server().rows(
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(30)::text%' AND state = 'active'"
    ) == [(1,)]


def test_ctrl_c_stops_the_statement_and_stays_a_ctrl_c(engine: PostgresEngine) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            run(engine, SLOW)
        assert time.monotonic() - began < 20
    finally:
        signal.signal(signal.SIGINT, before)
    assert run(engine, ALIVE).to_pylist() == [{"one": 1}]


def test_many_threads_may_ask_at_once(engine: PostgresEngine) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(4) as pool:
        tables = pool.map(lambda number: run(engine, "SELECT $1::bigint * 2 AS n", number), range(16))
        assert [table.to_pylist()[0]["n"] for table in tables] == [2 * number for number in range(16)]


def test_a_closed_engine_answers_nothing(engine: PostgresEngine) -> None:
    engine.close()
    engine.close()
    with pytest.raises(UsageError) as caught:
        run(engine, ALIVE)
    assert caught.value.code == "engine-closed"


def test_without_the_driver_it_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "adbc_driver_postgresql", None)
    monkeypatch.setitem(sys.modules, "adbc_driver_postgresql.dbapi", None)
    error = refused()
    assert error.code == "not-installed"
    assert "pip install 'dpsql[postgres]'" in error.hint
