from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import pytest
from support.duckdb_kit import run

from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.engines.duckdb.instance import _CALLED_BY_SYNTAX
from dpsql.errors import EngineError, UsageError


@pytest.fixture
def connection(database: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with closing(duckdb.connect(database)) as connection:
        yield connection


def settings(connection: duckdb.DuckDBPyConnection) -> list[tuple[object, ...]]:
    return connection.sql("SELECT name, value FROM duckdb_settings() ORDER BY name").fetchall()


def test_the_settings_and_the_catalogue_of_the_user_stay(connection: duckdb.DuckDBPyConnection, parquet: Path) -> None:
    connection.execute("SET TimeZone = 'Asia/Tokyo'; SET threads = 3; SET VARIABLE mine = 1")
    before = settings(connection)
    with closing(DuckDBEngine.borrow(connection, {"reads": None, "visits": parquet})) as engine:
        assert not engine.sealed
        assert engine.relation("reads") == ("events", "main", "reads")
        assert engine.relation("visits") == ("temp", "main", "visits")
        assert run(engine, "SELECT page FROM temp.main.visits").to_pylist() == [{"page": "p"}]
        assert settings(connection) == before
        with pytest.raises(duckdb.CatalogException):
            connection.sql("SELECT * FROM visits")
        with pytest.raises(duckdb.CatalogException):
            connection.sql("SELECT * FROM temp.main.visits")
    assert settings(connection) == before
    connection.execute("INSERT INTO reads VALUES (-1, 'still writable')")
    assert connection.sql("SELECT getvariable('mine')").fetchall() == [(1,)]


def test_the_current_database_is_the_one_of_the_connection(tmp_path: Path) -> None:
    with closing(duckdb.connect()) as connection:
        connection.execute(f"ATTACH '{tmp_path / 'two.duckdb'}' AS two; CREATE TABLE two.main.reads (user_id INTEGER)")
        assert refused_loan(connection, {"reads": None}).code == "table-missing"
        connection.execute("USE two")
        with closing(DuckDBEngine.borrow(connection, {"reads": None})) as engine:
            assert engine.relation("reads") == ("two", "main", "reads")


def refused_loan(connection: duckdb.DuckDBPyConnection, sources: dict[str, Path | None]) -> EngineError:
    with pytest.raises(EngineError) as caught:
        DuckDBEngine.borrow(connection, sources)
    assert caught.value.hint
    return caught.value


def test_a_temporary_table_of_the_user_is_not_seen(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("CREATE TEMP TABLE mine (user_id INTEGER); CREATE TEMP TABLE reads (user_id VARCHAR)")
    assert refused_loan(connection, {"mine": None}).code == "table-missing"
    with closing(DuckDBEngine.borrow(connection, {"reads": None})) as engine:
        assert run(engine, "SELECT * FROM events.main.reads").num_rows == 1000


@pytest.mark.skipif(
    duckdb.__version__ < "2", reason="DuckDB drops what was not fetched, as docs/reference/sources.md says"
)
def test_a_pending_result_of_the_user_is_not_disturbed(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("SELECT * FROM range(100000)")
    assert connection.fetchone() == (0,)
    assert refused_loan(connection, {"reads": None}).code == "connection-unusable"
    with closing(DuckDBEngine.borrow(connection.cursor(), {"reads": None})) as engine:
        assert run(engine, "SELECT * FROM events.main.reads").num_rows == 1000
    assert len(connection.fetchall()) == 99_999


def test_a_connection_that_is_closed_or_none(database: Path) -> None:
    connection = duckdb.connect(database)
    engine = DuckDBEngine.borrow(connection, {"reads": None})
    connection.close()
    assert refused_loan(connection, {"reads": None}).code == "connection-unusable"
    with pytest.raises(EngineError):
        run(engine, "SELECT 1")
    engine.close()
    for other in (None, duckdb, str(database)):
        with pytest.raises(UsageError):
            DuckDBEngine.borrow(other, {})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["+", "~~", "||", "=>", "like_escape", "Date_Part", "to_days"])
def test_a_macro_that_changes_what_sql_means_is_refused(name: str) -> None:
    with closing(duckdb.connect()) as connection:
        connection.execute(f'CREATE TABLE reads (user_id INTEGER); CREATE MACRO "{name}"(a, b) AS 42')
        error = refused_loan(connection, {"reads": None})
        assert error.code == "macros"
        assert f'"{name}"' in error.reason


def test_a_macro_with_a_name_of_its_own_is_no_harm() -> None:
    with closing(duckdb.connect()) as connection:
        connection.execute("CREATE TABLE reads (user_id INTEGER); CREATE MACRO add(a, b) AS a + b")
        connection.execute("CREATE MACRO pairs(n) AS TABLE SELECT range FROM range(n)")
        DuckDBEngine.borrow(connection, {"reads": None}).close()
        assert connection.sql("SELECT add(1, 2)").fetchall() == [(3,)]


SYNTAX = """
    a LIKE b; a NOT LIKE b; a ILIKE b; a LIKE b ESCAPE '#'; a NOT LIKE b ESCAPE '#'; a ILIKE b ESCAPE '#';
    a SIMILAR TO b; a ~ b; a GLOB b; a ^@ b; a || b; -a; a + b; a // b; a % b; a ** b; a & b; a << b; ~a; @a;
    a IN (1, 2); a BETWEEN b AND 2; CASE WHEN a THEN b END; coalesce(a, b); nullif(a, b); ifnull(a, b); a IS TRUE;
    a IS DISTINCT FROM b; NOT a; a::DATE; TRY_CAST(a AS INTEGER); TRY(a); a COLLATE C; extract(year FROM a);
    a AT TIME ZONE 'UTC'; substring(a FROM 1 FOR 2); trim(BOTH FROM a); position(a IN b); overlay(a PLACING b FROM 1);
    count(*); [a]; {'x': a}; MAP {'a': 1}; (a, b); ROW(a, b); a[1]; a[1:2]; ARRAY(SELECT 1); [x FOR x IN a];
    a = ANY([1]); EXISTS (SELECT 1); DATE '2026-01-01'; x'41'; current_date; INTERVAL (a) YEAR; INTERVAL (a) QUARTER;
    INTERVAL (a) MONTH; INTERVAL (a) WEEK; INTERVAL (a) DAY; INTERVAL (a) HOUR; INTERVAL (a) MINUTE;
    INTERVAL (a) SECOND; INTERVAL (a) MILLISECOND; INTERVAL (a) MICROSECOND; INTERVAL (a) DECADE;
    INTERVAL (a) CENTURY; INTERVAL (a) MILLENNIUM
"""


@pytest.fixture(scope="module")
def parser() -> Iterator[duckdb.DuckDBPyConnection]:
    with closing(duckdb.connect()) as connection:
        yield connection


@pytest.mark.parametrize("expression", [expression.strip() for expression in SYNTAX.split(";")])
def test_every_function_that_syntax_calls_is_known(parser: duckdb.DuckDBPyConnection, expression: str) -> None:
    ((tree,),) = parser.execute("SELECT json_serialize_sql($1)", [f"SELECT {expression}"]).fetchall()
    assert '"error":false' in tree
    called = set(re.findall(r'"function_name":"([^"]+)"', tree))
    assert {name for name in called if re.search(r"\w", name)} <= _CALLED_BY_SYNTAX
