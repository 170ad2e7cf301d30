"""Data laid out against dpsql on other engines than DuckDB: rows at the ends of types, names that case tells apart."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from support.engine_kits import kit_of
from support.postgres_kit import fresh_schema, server
from support.sql_reference import NOON, accepts_pattern

from dpsql.dialects import STANDARD, Dialect
from dpsql.engines import Statement, open_exact
from dpsql.engines.postgres import PostgresEngine
from dpsql.engines.remote import RemoteEngine
from dpsql.errors import EngineError, PolicyError, Unsupported, UsageError
from dpsql.policy import Budget, Policy, PrivateTable
from dpsql.registration import build_catalog
from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import rewrite_leaders

Ask = Callable[[str], pa.Table]
DAYS = "5874897-12-31", "294277-01-01", "4714-11-24 BC", "infinity", "-infinity", "0001-12-31 BC", "2024-02-29"
MOMENTS = "294276-12-31 23:59:59.999999", "294247-01-10 04:00:54.775806", "4714-11-24 BC", "infinity", "-infinity"


@contextmanager
def asked(columns: str, *rows: str) -> Iterator[Ask]:
    """Yield what asks a PostgreSQL that has these rows in a table: the exact counts of a private query's groups."""
    schema = fresh_schema()
    name = f"{schema}.t"
    with server().session() as connection:
        connection.execute(f'CREATE SCHEMA "{schema}"')
        connection.execute(f"CREATE TABLE {name} ({columns})")
        for row in rows:
            connection.execute(f"INSERT INTO {name} VALUES ({row})")
    engine = PostgresEngine.open(server().url("public").partition("&")[0], {name: None}, options={})

    def ask(keys: str) -> pa.Table:
        statement = f"SELECT {keys} FROM {name} GROUP BY ALL TOP 100 PRIVATE"
        query = analyze(statement, catalog, accepts_pattern=accepts_pattern, clock=lambda: NOON)
        assert isinstance(query, PrivateQuery)
        counted = rewrite_leaders(query, 100)
        return open_exact(engine.execute(Statement(counted.sql, counted.parameters, counted.types)))

    try:
        catalog = build_catalog(engine, Policy(Budget(1, "1e-6"), {name: PrivateTable("user_id")}))
        yield ask
    finally:
        engine.close()


@pytest.fixture(scope="module")
def ends() -> Iterator[Ask]:
    pairs = [(day, moment) for day in DAYS for moment in MOMENTS]
    rows = (f"{at}, '{day}', '{moment}', {at}.25" for at, (day, moment) in enumerate(pairs))
    with asked("user_id int, d date, m timestamp, n numeric(18, 4)", *rows) as ask:
        yield ask


@pytest.mark.parametrize(
    "key",
    [
        *(f"strftime(d, '{form}')" for form in ("%Y", "%Y-%m-%d", "%a", "%j", "%H:%M")),
        *("dayname(d)", "monthname(d)", "last_day(d)", "round(n, 100)", "last_day(m)", "strftime(m, '%Y-%m-%d')"),
        *(f"date_{how}('microsecond', m, TIMESTAMP '2200-01-01')" for how in ("diff", "sub")),
        *(f"date_{how}('microsecond', CAST(d AS TIMESTAMP), m)" for how in ("diff", "sub")),
    ],
)
def test_no_row_of_postgresql_makes_a_statement_fail(ends: Ask, key: str) -> None:
    assert sum(ends(key)["dpsql_count"].to_pylist()) == len(DAYS) * len(MOMENTS)


def test_days_beyond_the_time_stamps_of_postgresql_are_named_as_in_duckdb() -> None:
    names = "strftime(d, '%Y-%m-%d') AS a, dayname(d) AS b, monthname(d) AS c, last_day(d) AS e"
    with asked("user_id int, d date", "1, '5874897-05-31'", "2, '4714-11-24 BC'", "3, '0001-01-01'") as ask:
        found = ask(names)
    assert found.drop(["dpsql_key_4", "dpsql_count"]).to_pylist() == [
        {"dpsql_key_1": "-4713-11-24", "dpsql_key_2": "Monday", "dpsql_key_3": "November"},
        {"dpsql_key_1": "0001-01-01", "dpsql_key_2": "Monday", "dpsql_key_3": "January"},
        {"dpsql_key_1": "5874897-05-31", "dpsql_key_2": "Friday", "dpsql_key_3": "May"},
    ]


def test_a_unit_is_never_taken_from_another_column_of_its_name() -> None:
    columns, rows = 'user_id text, "User_ID" text, k text', ("'one', 'x', 'a'", "'one', 'y', 'a'")
    with pytest.raises(PolicyError, match="no column") as refused, asked(columns, *rows):
        pass
    assert refused.value.code == "policy-no-column"


@pytest.mark.parametrize("kind", ["DECIMAL(10,2)", "BLOB COLLATE NOCASE", "UUID", "FLOAT"])
def test_a_column_of_sqlite_that_may_hold_anything_is_no_key_and_no_unit(tmp_path: Path, kind: str) -> None:
    kit_of("sqlite")  # which makes the example known
    from sqlite import SQLite

    with sqlite3.connect(tmp_path / "data") as connection:
        connection.execute(f"CREATE TABLE t (user_id TEXT, k {kind})")
        connection.execute("INSERT INTO t VALUES ('one', 'no number')")
    connection.close()
    engine = SQLite(f"sqlite:{tmp_path / 'data'}", ["t"])
    try:
        catalog = build_catalog(engine, Policy(Budget(1, "1e-6"), {"t": PrivateTable("user_id")}))
        with pytest.raises(Unsupported, match="not computed with"):
            analyze("SELECT k FROM t TOP 1 PRIVATE", catalog, accepts_pattern=accepts_pattern, clock=lambda: NOON)
        with pytest.raises(PolicyError, match="may not be a"):
            build_catalog(engine, Policy(Budget(1, "1e-6"), {"t": PrivateTable("k")}))
    finally:
        engine.close()


def test_no_limit_of_clickhouse_lets_some_rows_be_counted_and_others_not() -> None:
    kit = kit_of("clickhouse").open({"t": pa.table({"user_id": range(10_000), "k": ["a"] * 10_000})})
    name = ".".join(kit.relation("t"))
    from clickhouse import ClickHouse

    few = {"max_rows_to_read": "1000", "read_overflow_mode": "break", "max_block_size": "100", "limit": "1"}
    engine = ClickHouse("clickhouse:", [name], options=few)
    with pytest.raises(EngineError, match="could not answer"):
        engine.execute(Statement(f"SELECT count(DISTINCT user_id) FROM {name}"))
    engine.close()
    kit.close()


class Endless(RemoteEngine):
    """An engine that answers once it is let, and in whose cancelling the user loses patience."""

    def __init__(self) -> None:
        super().__init__(Dialect("Endless", "duckdb", STANDARD), {}, time_limit=0.02)
        self.let, self.fetched = threading.Event(), 0

    def fetch(self, statement: Statement) -> pa.Table:  # noqa: ARG002 - whatever it is
        self.fetched += 1
        self.let.wait()
        return pa.table({})

    def cancel(self) -> None:
        raise KeyboardInterrupt

    def disconnect(self) -> None:
        pass


def test_two_interrupts_do_not_let_two_statements_onto_one_connection() -> None:
    engine = Endless()
    with pytest.raises(KeyboardInterrupt):
        engine.execute(Statement("SELECT 1"))
    with pytest.raises(UsageError, match="closed"):
        engine.execute(Statement("SELECT 1"))
    engine.let.set()
    assert engine.fetched == 1
