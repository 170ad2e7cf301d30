"""The adapters of `examples/engines` in whole sessions, by their address, over what their engines alone store."""

from __future__ import annotations

import sqlite3
import threading
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.engine_kit_clickhouse import laid, memory
from support.engine_kit_sqlite import KIT as SQLITE_KIT

import dpsql
from dpsql import (
    Budget,
    DataSource,
    EngineError,
    Policy,
    PrivateTable,
    PublicTable,
    Unsupported,
    UsageError,
    open_engine,
)
from dpsql.curator import write_starter
from dpsql.dialects import DUCKDB, STANDARD, Dialect
from dpsql.engines import Column, Registered, RemoteEngine, Statement, base, open_exact, remote
from dpsql.sql.ir.tree import BIGINT, Call, ColumnRef, Expression
from dpsql.sql.render.portable import PortableWriter

EXAMPLES = Path(__file__).parents[2] / "examples" / "engines"
READS = pa.table(
    {
        "user_id": pa.array([u for u in range(6000) for _ in (0, 1)], pa.int64()),
        "article": pa.array([f"a{(u + v) % 4}" for u in range(6000) for v in (0, 1)]),
        "dwell": pa.array([float(u % 90) for u in range(6000) for _ in (0, 1)]),
    }
)
ASKED = "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article TOP 2 PRIVATE"


@pytest.fixture(params=["clickhouse", "sqlite"])
def address(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataSource:
    """Return where the reads are, in an engine that has an entry point."""
    return _address(request.param, tmp_path, monkeypatch)


def _address(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> DataSource:
    import clickhouse
    import sqlite

    points = EntryPoints(
        [
            EntryPoint("clickhouse", "clickhouse:ClickHouse", open_engine.GROUP),
            EntryPoint("sqlite", "sqlite:SQLite", open_engine.GROUP),
        ]
    )
    assert {point.load() for point in points} == {clickhouse.ClickHouse, sqlite.SQLite}
    monkeypatch.setattr(open_engine, "entry_points", points.select)
    if name == "clickhouse":
        memory().query(
            f"CREATE OR REPLACE TABLE default.reads ENGINE = Memory AS SELECT * FROM {laid({'reads': READS})}.reads"
        )
        return DataSource("clickhouse::memory:", options={"max_threads": "1"})
    with sqlite3.connect(folder / "events.sqlite") as database:
        database.execute("CREATE TABLE reads (user_id BIGINT, article TEXT, dwell DOUBLE)")
        database.executemany(
            "INSERT INTO reads VALUES (?, ?, ?)", zip(*(c.to_pylist() for c in READS.columns), strict=True)
        )
    database.close()
    return DataSource(f"sqlite:{folder}/events.sqlite")


def policy_of(source: DataSource | None, **settings: Any) -> Policy:
    return Policy(Budget(10, "1e-6"), {"reads": PrivateTable("user_id")}, source=source, **settings)


def test_the_adapters_are_as_short_as_the_page_says() -> None:
    lines = {
        path.name: [line for line in path.read_text().splitlines() if line.strip()] for path in EXAMPLES.glob("*.py")
    }
    assert len(lines["clickhouse.py"]) <= 80
    assert len(lines["sqlite.py"]) <= 60


def test_a_session_over_the_address_of_a_policy(address: DataSource) -> None:
    with dpsql.connect(policy=policy_of(address), ledger=":memory:") as session:
        answer = session.sql(ASKED)
        rows = answer.fetchall()
        assert len(rows) == 2
        assert {row[0] for row in rows} < {"a0", "a1", "a2", "a3"}
        assert all(2700 < row[1] < 3300 for row in rows)
        assert answer.receipt.isolation == "remote"
        again = session.sql(ASKED)
        assert again.fetchall() == rows


def test_a_starter_policy_lists_the_tables_of_an_adapter(address: DataSource) -> None:
    starter = write_starter(address.url)
    (decision,) = [each for each in starter.decisions if each.table.name == "reads"]
    assert decision.unit is not None
    assert decision.unit.column.name == "user_id"
    assert [column.type for column in decision.table.columns] == ["BIGINT", "VARCHAR", "DOUBLE"]
    assert f'url = "{address.without_passwords()}"' in starter.text


@pytest.mark.parametrize("shown", [False, True])
def test_an_adapter_whose_catalog_cannot_be_read_is_refused(
    shown: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(base, "_IS_SHOWN", shown)
    source = _address("sqlite", tmp_path, monkeypatch)
    import sqlite

    monkeypatch.setattr(sqlite.SQLite, "list_tables", RemoteEngine.list_tables)  # SQLite has no information_schema
    with pytest.raises(EngineError) as caught:
        write_starter(source.url)
    assert (caught.value.code, caught.value.__context__) == ("engine-failed", None)
    assert ("Traceback" in capsys.readouterr().err) == shown


def test_a_table_that_is_not_there_is_named(address: DataSource) -> None:
    policy = Policy(Budget(10, "1e-6"), {"nowhere": PrivateTable("user_id")}, source=address)
    with pytest.raises(EngineError) as caught:
        dpsql.connect(policy=policy, ledger=":memory:")
    assert caught.value.code == "table-missing"


def test_the_engines_write_nothing(address: DataSource) -> None:
    scheme = address.scheme
    engine = open_engine.open_engine(None, policy_of(address))
    assert isinstance(engine, RemoteEngine)
    for statement in ("INSERT INTO reads SELECT * FROM reads", "CREATE TABLE other (a INT)", "DROP TABLE reads"):
        with pytest.raises(EngineError) as caught:
            engine.execute(Statement(statement))
        assert caught.value.code == "engine-failed"
        assert caught.value.__context__ is None, scheme
    found = open_exact(
        engine.execute(Statement("SELECT COUNT(*) AS n FROM " + ".".join(engine.relation("reads")), types=("BIGINT",)))
    )
    assert found.to_pylist() == [{"n": 12_000}]
    engine.close()
    engine.close()


def test_sqlite_has_no_md5_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = _address("sqlite", tmp_path, monkeypatch)
    with dpsql.connect(policy=policy_of(source), ledger=":memory:") as session:
        before = session.budget
        with pytest.raises(Unsupported) as caught:
            session.sql(ASKED + " WITH (max_groups_contributed = 1)")
        assert (caught.value.code, "md5" in caught.value.reason) == ("engine-lacks", True)
        assert session.budget == before


def test_clickhouse_bounds_as_the_others_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = _address("clickhouse", tmp_path, monkeypatch)
    with dpsql.connect(policy=policy_of(source), ledger=":memory:") as session:
        rows = session.sql(ASKED + " WITH (max_groups_contributed = 1)").fetchall()
        assert all(1300 < row[1] < 1700 for row in rows)


def test_sqlite_reads_what_a_column_was_declared_to_hold_and_else_null(tmp_path: Path) -> None:
    from sqlite import SQLite

    path = tmp_path / "a ?#%b.sqlite"
    with sqlite3.connect(path) as database:
        database.execute(
            "CREATE TABLE odd (user_id BIGINT, word TEXT COLLATE NOCASE, day DATE, moment TIMESTAMP, ok BOOLEAN, x X)"
        )
        rows = [
            (1, "a", "2026-01-31", "2026-01-31 10:20:30", 1, 1),
            ("many", b"a", "2026-02-30", "2026-01-31 10:20:30.000000", 2, 1),
            (2.5, "A", "now", "2026-01-31T10:20:30", "yes", 1),
            (b"\x01", None, 2461072, "2026-01-31 10:20:30.123456", 0, 1),
            (4, "\u00fc\0b", "2026-01-31\0x", "2026-01-31 10:20:30\0x", None, 1),
            (2**63 - 1, "", "0000-01-01", "2026-01-31 24:00:00", True, 1),
        ]
        database.executemany("INSERT INTO odd VALUES (?, ?, ?, ?, ?, ?)", rows)
        database.execute("INSERT INTO odd (user_id, word) VALUES (7, CAST(x'ff61' AS TEXT))")
    database.close()
    tables = {"odd": PublicTable()}
    with dpsql.connect(
        SQLite(f"sqlite:{path}", tables), policy=Policy(Budget(1, "1e-6"), {**tables}), ledger=":memory:"
    ) as session:
        found = session.sql("SELECT user_id, word, day, moment, ok FROM odd ORDER BY word, user_id, moment").fetchall()
        text = [(user, word, str(day), str(at), ok) for user, word, day, at, ok in found]
    assert text == [
        (2**63 - 1, "", "None", "None", True),
        (None, "A", "None", "None", None),
        (1, "a", "2026-01-31", "2026-01-31 10:20:30", True),
        (4, "\u00fc\0b", "None", "None", None),
        (7, "\ufffda", "None", "None", None),
        (None, None, "None", "2026-01-31 10:20:30.123456", False),
        (None, None, "None", "None", None),
    ]


def test_sqlite_answers_columns_that_begin_with_a_thousand_nulls() -> None:
    """Its driver would else tell the type from the first rows alone, and fail over a text behind them."""
    table = pa.table({"user_id": pa.array(range(3000)), "word": pa.array([None] * 2999 + ["a"])})
    engine = SQLITE_KIT.open({"reads": table})
    found = open_exact(engine.execute(Statement('SELECT "word" FROM "reads"', types=("VARCHAR",))))
    assert found.column(0).to_pylist()[-1] == "a"
    engine.close()


def test_sqlite_answers_where_no_row_tells_its_driver_a_type() -> None:
    table = pa.table({"user_id": pa.array([None, None], pa.int64()), "day": pa.array([None, None], pa.date32())})
    engine = SQLITE_KIT.open({"reads": table})
    for rows in (0, 2):
        statement = Statement(f'SELECT "user_id", "day" FROM "reads" LIMIT {rows}', types=("VARCHAR", "DATE"))
        found = open_exact(engine.execute(statement))
        assert (found.schema.types, found.num_rows) == ([pa.string(), pa.date32()], rows)
    engine.close()


def test_clickhouse_reads_its_own_types_as_those_of_the_language() -> None:
    from clickhouse import ClickHouse

    database, connection = laid({}), memory()
    connection.query(
        f"CREATE TABLE {database}.odd (low LowCardinality(Nullable(String)), fixed FixedString(4), "
        "kind Enum8('z' = 1, 'a' = 2), "
        "zoned DateTime('Europe/Berlin'), fine DateTime64(6, 'America/New_York'), coarse DateTime64(3), id UUID, "
        "day Date, wide UInt64, amount Decimal(9, 2), many Array(Int8), bytes String) ENGINE = Memory"
    )
    connection.query(
        f"INSERT INTO {database}.odd VALUES ('x', 'ab', 'a', '2026-03-29 03:30:00', '2026-03-29 02:30:00.5', now64(3), "
        "'A45DE0E7-5136-4F92-86E2-F4256CB75B34', '2026-03-29', 18446744073709551615, 1.5, [1], unhex('ff61'))"
    )
    tables = {f"{database}.odd": PublicTable()}
    with dpsql.connect(
        ClickHouse("clickhouse:", tables), policy=Policy(Budget(1, "1e-6"), {**tables}), ledger=":memory:"
    ) as session:
        asked = f"SELECT low, fixed, kind, zoned, fine, id, day, wide, amount, bytes FROM {database}.odd "
        asked += "WHERE fixed = 'ab' AND kind = 'a'"
        (row,) = session.sql(asked).fetchall()
        assert list(map(str, row)) == [
            *(
                "x",
                "ab",
                "a",
                "2026-03-29 01:30:00",
                "2026-03-29 06:30:00.500000",
                "a45de0e7-5136-4f92-86e2-f4256cb75b34",
            ),
            *("2026-03-29", "18446744073709551615", "1.50", "\ufffda"),
        ]
        for column in ("coarse", "many"):
            with pytest.raises(dpsql.Error) as caught:
                session.sql(f"SELECT low FROM {database}.odd WHERE {column} IS NOT NULL AND {column} = 1")
            assert caught.value.code in {"outer-select", "wrapping-failed"}  # DuckDB's SQL over public rows


def test_after_a_statement_that_failed_clickhouse_answers_the_next() -> None:
    """Of chdb itself the next one would have no rows: a wrong count, which nobody notices."""
    from clickhouse import ClickHouse

    database = laid({"reads": READS})
    engine = ClickHouse("clickhouse:", [f"{database}.reads"])
    for _ in range(3):
        with pytest.raises(EngineError):
            engine.execute(Statement(f"SELECT intDiv(user_id, 0) FROM {database}.reads"))
        found = open_exact(engine.execute(Statement(f"SELECT COUNT(*) AS n FROM {database}.reads", types=("BIGINT",))))
        assert found.to_pylist() == [{"n": 12_000}]
    engine.close()


def test_clickhouse_stops_at_the_time_limit() -> None:
    from clickhouse import ClickHouse

    engine = ClickHouse("clickhouse:", [], time_limit=0.3)
    with pytest.raises(EngineError) as caught:
        engine.execute(Statement("SELECT sum(number) FROM numbers(100000000000)"))
    assert caught.value.code == "engine-failed"
    assert open_exact(engine.execute(Statement("SELECT 1 AS n"))).num_rows == 1
    engine.close()


class Deaf(RemoteEngine):
    """An engine of which a statement ends when it likes, whatever it is told."""

    def __init__(self) -> None:
        self.goes_on, self.let_go = threading.Event(), 0
        super().__init__(DUCKDB, {}, time_limit=0.5)

    def fetch(self, statement: Statement) -> pa.Table:  # noqa: ARG002
        self.goes_on.wait(10)
        return pa.table({"n": [1]})

    def disconnect(self) -> None:
        self.let_go += 1


def test_an_engine_that_cannot_be_stopped_runs_nothing_until_its_statement_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote, "_LAST_WAIT", 0.01)
    engine = Deaf()
    with pytest.raises(EngineError) as late:
        engine.execute(Statement("SELECT 1"))
    assert late.value.code == "engine-failed"
    with pytest.raises(UsageError) as closed:
        engine.execute(Statement("SELECT 2"))
    assert closed.value.code == "engine-closed"
    engine.goes_on.set()
    assert engine._done.wait(10)
    assert open_exact(engine.execute(Statement("SELECT 3"))).to_pydict() == {"n": [1]}
    engine.goes_on.clear()
    with pytest.raises(EngineError):
        engine.execute(Statement("SELECT 4"))
    engine.close()
    assert engine.let_go == 0  # what the statement uses may still be in use
    engine.goes_on.set()


def busy(engine: RemoteEngine) -> dpsql.Session:
    """Return a session over an engine whose first statement was charged and still runs."""
    columns = Column("user_id", "BIGINT"), Column("article", "VARCHAR")
    engine._tables["reads"] = Registered(("reads",), columns)
    session = dpsql.connect(engine, policy=policy_of(None), ledger=":memory:")
    with pytest.raises(EngineError):
        session.sql(ASKED)
    return session


def test_what_an_engine_never_ran_is_not_charged_and_not_counted_as_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_LAST_WAIT", 0.01)
    engine = Deaf()
    with busy(engine) as session:
        before, asked = session.budget, session.history.num_rows
        for _ in range(5):  # more than the failures of a day
            with pytest.raises(UsageError) as closed:
                session.sql(ASKED)
            assert closed.value.code == "engine-closed"
        assert (session.budget, session.history.num_rows) == (before, asked)
        engine.goes_on.set()


class Reconnecting(Deaf):
    """A deaf engine that can leave a statement to itself."""

    def reconnect(self) -> bool:
        self.goes_on.set()
        return True


def test_an_engine_that_can_be_opened_again_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_LAST_WAIT", 0.01)
    engine = Reconnecting()
    with pytest.raises(EngineError):
        engine.execute(Statement("SELECT 1"))
    with engine.turn():
        assert open_exact(engine.execute(Statement("SELECT 2"))).to_pydict() == {"n": [1]}


def test_what_grows_with_its_depth_is_refused_before_it_fills_the_memory() -> None:
    doubled = Dialect("Doubled", "duckdb", {**STANDARD, "neg": "(0 - {0} + {0} - {0})"})
    expression: Expression = ColumnRef(1, "n", BIGINT)
    writer = PortableWriter(dialect=doubled)
    for _ in range(30):
        expression = Call("neg", (expression,), BIGINT)
    with pytest.raises(Unsupported) as caught:
        writer.finished(f"SELECT {writer.expression(expression)} AS a")
    assert caught.value.code == "engine-lacks"
