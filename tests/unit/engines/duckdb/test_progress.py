"""How far DuckDB says a statement is: asked from another thread while it runs, and never drawn by DuckDB itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from dpsql.engines import Statement, Watchable
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.engines.recording import RecordingEngine

LONG = Statement("SELECT count(*) FROM (SELECT DISTINCT a.user_id + b.user_id * 1000 FROM {0} AS a, {0} AS b) AS pairs")
DRAWN = "SELECT current_setting('enable_progress_bar'), current_setting('enable_progress_bar_print')"


@pytest.fixture(params=["sealed", "lent"])
def engine(request: pytest.FixtureRequest, database: Path) -> Iterator[DuckDBEngine]:
    if request.param == "sealed":
        with closing(DuckDBEngine.open(database, {"reads": None}, threads=1)) as opened:
            yield opened
        return
    with closing(duckdb.connect(database)) as connection:
        connection.execute("SET enable_progress_bar = false")
        with closing(DuckDBEngine.borrow(connection, {"reads": None})) as lent:
            yield lent


def told_while(engine: DuckDBEngine, statement: Statement) -> list[float]:
    """Return what the engine tells while a statement runs in another thread."""
    thread = threading.Thread(target=engine.execute, args=(statement,))
    thread.start()
    told = []
    while thread.is_alive():
        told.append(engine.progress())
        thread.join(0.005)
    return [share for share in told if share is not None]


def test_the_share_that_is_done_is_told_while_the_statement_runs_and_at_no_other_time(engine: DuckDBEngine) -> None:
    assert engine.progress() is None
    told = told_while(engine, Statement(LONG.sql.format(".".join(engine.relation("reads")))))
    assert told
    assert all(0 <= share <= 1 for share in told)
    assert max(told) > 0
    assert engine.progress() is None
    engine.close()
    assert engine.progress() is None


def test_duckdb_draws_nothing_itself(engine: DuckDBEngine) -> None:
    assert engine._connection.execute(DRAWN).fetchall() == [(True, False)]


def test_a_lent_connection_whose_settings_are_locked_is_taken_as_it_is(database: Path) -> None:
    with closing(duckdb.connect(database)) as connection:
        with closing(DuckDBEngine.borrow(connection, {"reads": None})):
            settings = (
                "ieee_floating_point_ops = true; SET integer_division = false; SET arrow_large_buffer_size = true"
            )
            connection.execute(f"SET GLOBAL {settings}; SET lock_configuration = true")
        with closing(DuckDBEngine.borrow(connection, {"reads": None})) as engine:
            engine.execute(Statement("SELECT 1"))


def test_what_does_not_tell_is_seen_not_to(engine: DuckDBEngine) -> None:
    assert isinstance(engine, Watchable)
    assert not isinstance(RecordingEngine(engine), Watchable)
