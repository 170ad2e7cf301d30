"""Statements over public tables: beside the private ones, within a time limit, and stopped when nobody waits."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.connect import open_session
from dpsql.engines import Statement
from dpsql.engines.pool import PublicEngines
from dpsql.open_engine import open_engine, public_engines

WORST = "SELECT COUNT(*) FROM countries a, countries b, countries c, countries d"
TOP = "SELECT article FROM reads GROUP BY article TOP 2 PRIVATE WITH (epsilon = 0.05)"
TABLES = {"reads": dpsql.PrivateTable("user_id"), "countries": dpsql.PublicTable()}


@pytest.fixture
def database(tmp_path: Path) -> Path:
    with duckdb.connect(str(tmp_path / "events.duckdb")) as connection:
        connection.execute("CREATE TABLE reads AS SELECT i AS user_id, 'a' || i % 3 AS article FROM range(9000) t(i)")
        connection.execute("CREATE TABLE countries AS SELECT i AS code, 'c' || i AS name FROM range(3000) t(i)")
    return tmp_path / "events.duckdb"


def policy(**engine: object) -> dpsql.Policy:
    settings = dpsql.EngineSettings(**engine)  # type: ignore[arg-type]
    return dpsql.Policy(dpsql.Budget(1, "1e-6", items=100), TABLES, engine=settings)


def ask_again(session: dpsql.Session, text: str) -> list[tuple[object, ...]]:
    """Return the rows of a statement that takes no time, but may begin a process; on a busy machine that takes some."""
    for _ in range(30):
        with suppress(dpsql.EngineError):
            return session.sql(text).fetchall()
    raise AssertionError


ISOLATIONS = pytest.mark.parametrize("isolation", ["in_process", "process"])


@ISOLATIONS
def test_a_public_statement_has_a_time_limit_of_its_own(database: Path, isolation: str) -> None:
    known = policy(isolation=isolation, public_time_limit=2, time_limit=60)
    with dpsql.connect(database, policy=known, ledger=":memory:") as session:
        began = time.monotonic()
        with pytest.raises(dpsql.EngineError) as caught:
            session.sql(WORST)
        assert caught.value.code == "public-time-limit"
        assert "2 seconds" in caught.value.reason
        assert time.monotonic() - began < 60  # which private statements may take
        assert session.history.num_rows == 0
        assert ask_again(session, "SELECT COUNT(*) AS n FROM countries") == [(3000,)]


@ISOLATIONS
def test_it_is_stopped_when_nobody_waits(database: Path, isolation: str) -> None:
    gone = threading.Event()
    with dpsql.connect(database, policy=policy(isolation=isolation), ledger=":memory:") as session:
        threading.Timer(0.5, gone.set).start()
        with pytest.raises(dpsql.EngineError) as caught:
            session.sql(WORST, stop=gone.is_set)
        assert caught.value.code == "statement-stopped"
        with pytest.raises(dpsql.EngineError):
            session.sql(TOP, stop=gone.is_set)  # not begun, and not charged
        assert session.history.num_rows == 0
        assert len(session.sql(TOP)) == 2


@ISOLATIONS
def test_private_statements_and_constants_do_not_wait_for_it(database: Path, isolation: str) -> None:
    gone = threading.Event()
    with dpsql.connect(database, policy=policy(isolation=isolation), ledger=":memory:") as session:
        failures: list[str] = []

        def running() -> None:
            try:
                session.sql(WORST, stop=gone.is_set)
            except dpsql.EngineError as error:
                failures.append(error.code)

        thread = threading.Thread(target=running)
        thread.start()
        time.sleep(0.3)
        assert len(session.sql(TOP)) == 2
        assert session.sql("SELECT 1 AS one").fetchall() == [(1,)]
        assert session.sql("SHOW TABLES").arrow().num_rows == 2
        functions = dict(session.sql("SHOW FUNCTIONS"))
        assert functions["lower"] == "everywhere"
        assert functions["row_number"] == "with OVER, in subqueries and over public tables"
        assert functions.keys() >= {"count", "sum", "date_trunc"}
        assert session.describe("SHOW FUNCTIONS").names == ["function", "used"]
        assert session.sql("SELECT name FROM countries WHERE code = 7").fetchall() == [("c7",)]
        assert thread.is_alive()
        gone.set()
        thread.join(20)
        assert failures == ["statement-stopped"]


def test_constants_wait_for_no_private_statement(database: Path) -> None:
    known = policy()
    engine = open_engine(database, known)
    with open_session(
        engine, known, ledger=":memory:", public=public_engines(database, known, engine=engine)
    ) as session:
        with engine.turn():
            done: list[object] = []
            texts = (
                "SELECT 1 AS one",
                "SHOW TABLES",
                "DESCRIBE reads",
                f"EXPLAIN {TOP}",
                "SELECT code FROM countries LIMIT 1",
            )
            thread = threading.Thread(target=lambda: done.extend(session.sql(text).fetchall() for text in texts))
            thread.start()
            thread.join(20)
        assert len(done) == len(texts)


def test_an_open_connection_is_used_through_a_cursor_of_its_own(database: Path) -> None:
    with (
        duckdb.connect(str(database)) as connection,
        dpsql.connect(connection, policy=policy(public_time_limit=0.5), ledger=":memory:") as session,
    ):
        with pytest.raises(dpsql.EngineError) as caught:
            session.sql(WORST)
        assert caught.value.code == "public-time-limit"
        assert ask_again(session, "SELECT COUNT(*) AS n FROM countries") == [(3000,)]
        assert connection.execute("SELECT count(*) FROM countries").fetchone() == (3000,)


def test_a_csv_file_that_has_changed_is_not_loaded_again(tmp_path: Path) -> None:
    (tmp_path / "countries.csv").write_text("code,name\n1,a\n")
    table = dpsql.PublicTable(source=tmp_path / "countries.csv", columns={"code": "BIGINT", "name": "VARCHAR"})
    known = dpsql.Policy(dpsql.Budget(1, "1e-6"), {"countries": table})
    with dpsql.connect(policy=known, ledger=":memory:") as session:
        (tmp_path / "countries.csv").write_text("code,name\n1,a\n2,b\n")
        with pytest.raises(dpsql.EngineError) as caught:
            session.sql("SELECT * FROM countries")
        assert caught.value.code == "source-changed"


class Busy:
    """An engine of which a statement ends when it is stopped."""

    opened = 0

    def __init__(self) -> None:
        Busy.opened += 1

    def execute(self, _: Statement, *, stop: object = None) -> object:
        while not stop():  # type: ignore[operator]
            time.sleep(0.01)
        raise dpsql.EngineError("engine-failed", "It was stopped.", hint="")

    def close(self) -> None:
        pass


def test_no_more_engines_are_opened_than_there_may_be() -> None:
    Busy.opened = 0
    engines = PublicEngines(Busy, seconds=0.3, most=2)  # type: ignore[arg-type]

    def asking() -> None:
        with pytest.raises(dpsql.EngineError) as caught:
            engines.execute(Statement("SELECT 1"))
        assert caught.value.code == "public-time-limit"

    threads = [threading.Thread(target=asking) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Busy.opened == 2
    engines.close()
    engines.close()
    with pytest.raises(dpsql.UsageError):
        engines.execute(Statement("SELECT 1"))
