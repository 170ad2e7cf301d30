"""pandas and polars read through an engine and through a connection: the same rows, one charge for each question."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest
import sqlalchemy as sa
from support.surfaces_kit import NAMES, TOP, charges, make_data

import dpsql
from dpsql import dbapi
from dpsql.integrations.sqlalchemy import DPSQLDialect

sa.dialects.registry.register("dpsql", DPSQLDialect.__module__, DPSQLDialect.__name__)
COUNTRIES = "SELECT country, millions, large, ratio, since FROM countries ORDER BY country"
SOME = "SELECT article FROM reads WHERE country = {} AND ts < {} GROUP BY article TOP 2 PRIVATE"
LATE = dt.datetime(2026, 1, 2, 12)  # noqa: DTZ001 - as stored


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp("frames"))


@pytest.fixture
def engine(folder: Path) -> Iterator[Any]:
    made = sa.create_engine(f"dpsql:///{folder}/events.duckdb?policy={folder}/policy.toml&ledger=:memory:")
    yield made
    made.dispose()


@pytest.fixture
def connection(folder: Path) -> Iterator[dbapi.Connection]:
    with dbapi.connect(folder / "events.duckdb", policy=folder / "policy.toml", ledger=":memory:") as opened:
        yield opened


def charged(engine: Any) -> int:
    with engine.connect() as connection:
        return charges(connection.connection.driver_connection.session)


def test_pandas_reads_through_an_engine_and_is_charged_once(engine: Any) -> None:
    frame = pd.read_sql(TOP, engine)
    assert frame["article"].tolist() == ["a0", "a1", "a2"]
    assert frame["n"].dtype == "int64"
    with engine.connect() as connection:
        for query in (TOP, sa.text(TOP)):
            pd.testing.assert_frame_equal(pd.read_sql(query, connection), frame)
            pd.testing.assert_frame_equal(pd.read_sql_query(query, connection), frame)
    parts = list(pd.read_sql(TOP, engine, chunksize=2))
    assert [len(part) for part in parts] == [2, 1]
    pd.testing.assert_frame_equal(pd.concat(parts, ignore_index=True), frame)
    assert charged(engine) == 1


def test_pandas_binds_parameters(engine: Any) -> None:
    named = pd.read_sql(sa.text(SOME.format(":c", ":late")), engine, params={"c": "DE", "late": LATE})
    assert set(named["article"]) <= {"a0", "a1"}
    again = pd.read_sql(SOME.format("?", "?"), engine, params=("DE", pd.Timestamp(LATE)))
    assert again["article"].tolist() == named["article"].tolist()
    assert charged(engine) == 1
    literal = "SELECT country FROM countries WHERE country = 'DE' AND continent <> '100% :of ?'"
    assert pd.read_sql(literal, engine)["country"].tolist() == ["DE"]


def test_pandas_reads_through_a_connection(connection: dbapi.Connection) -> None:
    with pytest.warns(UserWarning, match="SQLAlchemy"):  # pandas says so of every connection but SQLite's
        frame = pd.read_sql(TOP, connection)  # type: ignore[call-overload]
    assert frame["article"].tolist() == ["a0", "a1", "a2"]
    with pytest.warns(UserWarning, match="SQLAlchemy"):
        parts = list(pd.read_sql(TOP, connection, chunksize=1))  # type: ignore[call-overload]
    assert [len(part) for part in parts] == [1, 1, 1]
    with pytest.warns(UserWarning, match="SQLAlchemy"):
        some = pd.read_sql(SOME.format("?", "?"), connection, params=["DE", LATE])  # type: ignore[call-overload]
    assert len(some) <= 2
    assert charges(connection.session) == 2


def test_pandas_has_our_words_in_its_errors(engine: Any, connection: dbapi.Connection) -> None:
    with pytest.raises(pd.errors.DatabaseError, match="not-private") as caught:
        pd.read_sql("SELECT article FROM reads", engine)
    assert isinstance(caught.value.__cause__, sa.exc.ProgrammingError)
    assert isinstance(caught.value.__cause__.orig, dpsql.Refusal)
    with pytest.warns(UserWarning, match="SQLAlchemy"), pytest.raises(dbapi.ProgrammingError, match="not-private"):
        pd.read_sql("SELECT article FROM reads", connection)  # type: ignore[call-overload]
    assert charged(engine) == charges(connection.session) == 0


def test_pandas_reads_a_public_table_by_its_columns_and_keeps_types(engine: Any) -> None:
    frame = pd.read_sql(COUNTRIES, engine)
    assert frame["large"].tolist() == [True, True, False]
    assert frame["since"].tolist()[:2] == [dt.date(1990, 10, 3), dt.date(1789, 7, 14)]
    assert frame["ratio"].isna().tolist() == [False, False, True]


def test_pandas_reads_a_whole_table_if_it_is_public(engine: Any) -> None:
    assert pd.read_sql_table("countries", engine).shape == (3, 6)
    assert pd.read_sql("countries", engine, columns=["country"]).shape == (3, 1)
    with pytest.raises(pd.errors.DatabaseError, match="not-private"):
        pd.read_sql_table("reads", engine)


def test_pandas_writes_nothing(engine: Any) -> None:
    with pytest.raises(sa.exc.ProgrammingError, match="not-a-query"):
        pd.DataFrame({"a": [1]}).to_sql("mine", engine)


def test_polars_reads_through_an_engine_and_is_charged_once(engine: Any) -> None:
    frame = pl.read_database(TOP, engine)
    assert frame.schema == {"article": pl.String, "n": pl.Int64}
    assert frame["article"].to_list() == ["a0", "a1", "a2"]
    with engine.connect() as connection:
        assert pl.read_database(TOP, connection).equals(frame)
        assert pl.read_database(sa.text(TOP), connection).equals(frame)
    batches = list(pl.read_database(TOP, engine, iter_batches=True, batch_size=2))
    assert [len(batch) for batch in batches] == [2, 1]
    assert charged(engine) == 1


def test_polars_reads_through_a_connection_with_its_types(connection: dbapi.Connection) -> None:
    frame = pl.read_database(TOP, connection)
    assert frame["article"].to_list() == ["a0", "a1", "a2"]
    assert pl.read_database(TOP, connection.cursor()).equals(frame)
    assert charges(connection.session) == 1
    typed = pl.read_database(COUNTRIES, connection)
    assert typed.schema == {
        "country": pl.String,
        "millions": pl.Decimal(9, 2),
        "large": pl.Boolean,
        "ratio": pl.Float32,
        "since": pl.Date,
    }
    empty = pl.read_database(f"SELECT * FROM ({NAMES}) AS q LIMIT 0", connection)
    assert empty.schema == {"article": pl.String}
    given = {"parameters": ["DE", LATE]}
    some = pl.read_database(SOME.format("?", "?"), connection, execute_options=given)
    assert len(some) <= 2
    named = pl.read_database(
        SOME.format(":c", ":d"), connection, execute_options={"parameters": {"c": "DE", "d": LATE}}
    )
    assert named.equals(some)
    assert charges(connection.session) == 2


def test_an_answer_is_a_frame_without_a_detour(connection: dbapi.Connection) -> None:
    cursor = connection.execute(TOP)
    assert cursor.answer is not None
    assert pl.DataFrame(cursor.answer).rows() == cursor.fetchall()
    assert pd.DataFrame.from_arrow(cursor.answer)["article"].tolist() == ["a0", "a1", "a2"]
