"""DB-API 2.0, point by point of PEP 249, for a driver that only reads."""

from __future__ import annotations

import datetime as dt
import inspect
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import NoReturn

import pytest
from support.surfaces_kit import NAMES, POLICY, TOP, charges, make_data

import dpsql
from dpsql import dbapi
from dpsql.dbapi import Connection

COUNTRIES = "SELECT country, millions, large, ratio, since FROM countries ORDER BY country"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp("dbapi"))


@pytest.fixture
def connection(folder: Path) -> Iterator[Connection]:
    with dbapi.connect(folder / "events.duckdb", policy=folder / "policy.toml", ledger=":memory:") as opened:
        yield opened


def test_the_globals_of_the_module() -> None:
    assert (dbapi.apilevel, dbapi.threadsafety, dbapi.paramstyle) == ("2.0", 2, "qmark")
    assert sorted(dbapi.__all__) == sorted(set(dbapi.__all__))
    assert all(hasattr(dbapi, name) for name in dbapi.__all__)


def test_the_tree_of_exceptions() -> None:
    assert issubclass(dbapi.Warning, Exception)
    assert not issubclass(dbapi.Warning, dbapi.Error)
    assert issubclass(dbapi.Error, Exception)
    assert dbapi.InterfaceError.__bases__ == dbapi.DatabaseError.__bases__ == (dbapi.Error,)
    for kind in "Data Operational Integrity Internal Programming NotSupported".split():
        assert issubclass(getattr(dbapi, f"{kind}Error"), dbapi.DatabaseError)


def test_a_connection_has_every_exception(connection: Connection) -> None:
    for name in dbapi.__all__:
        if name.endswith("Error") or name == "Warning":
            assert getattr(connection, name) is getattr(dbapi, name)


def test_arguments_are_those_of_dpsql_connect() -> None:
    assert str(inspect.signature(dbapi.connect).parameters) == str(inspect.signature(dpsql.connect).parameters)


def test_a_query_is_answered_with_a_description_and_a_receipt(connection: Connection) -> None:
    cursor = connection.cursor()
    assert cursor.description is cursor.receipt is cursor.answer is cursor.rownumber is cursor.lastrowid is None
    assert cursor.rowcount == -1
    assert cursor.execute(f"{TOP} WITH (mechanism = limited_domain)") is cursor
    assert cursor.description == (
        ("article", "VARCHAR", None, None, None, None, None),
        ("n", "BIGINT", None, 8, None, None, None),
    )
    assert cursor.rowcount == 3
    assert cursor.fetchone()[0] == "a0"  # type: ignore[index]
    assert [row[0] for row in cursor.fetchmany(5)] == ["a1", "a2"]
    assert cursor.fetchmany(5) == cursor.fetchall() == []
    assert cursor.fetchone() is None
    assert cursor.receipt is not None
    assert cursor.receipt.items_charged == 6
    assert [kind for kind, _ in cursor.messages] == [dbapi.Warning] * 2
    assert [str(each) for _, each in cursor.messages] == [str(cursor.receipt.total), str(cursor.receipt)]
    assert cursor.connection is connection


def test_values_are_pythons_and_types_are_told(connection: Connection) -> None:
    cursor = connection.execute(COUNTRIES)
    assert cursor.fetchall() == [
        ("DE", Decimal("83.50"), True, 1.5, dt.date(1990, 10, 3)),
        ("FR", Decimal("68.60"), True, 2.5, dt.date(1789, 7, 14)),
        ("TV", Decimal("0.01"), False, None, None),
    ]
    assert cursor.description is not None
    assert [column[1] for column in cursor.description] == ["VARCHAR", "DECIMAL", "BOOLEAN", "FLOAT", "DATE"]
    assert [column[4:6] for column in cursor.description][1] == (9, 2)
    kinds = [dbapi.STRING, dbapi.NUMBER, dbapi.NUMBER, dbapi.NUMBER, dbapi.DATETIME]
    assert [column[1] for column in cursor.description] == kinds
    assert cursor.description[0][1] != dbapi.BINARY
    assert cursor.description[0][1] != dbapi.ROWID
    assert dbapi.STRING != dbapi.NUMBER


def test_rows_come_one_by_one_in_lots_and_by_iteration(connection: Connection) -> None:
    cursor = connection.execute("SELECT country FROM countries ORDER BY country")
    assert cursor.arraysize == 1
    assert cursor.fetchmany() == [("DE",)]
    cursor.arraysize = 2
    assert cursor.rownumber == 1
    assert cursor.fetchmany() == [("FR",), ("TV",)]
    assert cursor.fetchmany() == []
    assert list(cursor.execute("SELECT country FROM countries ORDER BY country")) == [("DE",), ("FR",), ("TV",)]
    cursor.execute("SELECT country FROM countries ORDER BY country")
    assert cursor.fetchmany(0) == []
    assert cursor.fetchmany(2) == [("DE",), ("FR",)]
    assert cursor.fetchall() == [("TV",)]


def test_tables_hold_the_rows_that_were_not_fetched_yet(connection: Connection) -> None:
    cursor = connection.execute("SELECT country FROM countries ORDER BY country")
    cursor.fetchone()
    assert cursor.fetch_arrow_table().to_pydict() == {"country": ["FR", "TV"]}
    assert cursor.fetch_arrow_table().num_rows == 0
    assert cursor.fetchall() == []
    cursor.execute("SELECT country FROM countries ORDER BY country")
    assert cursor.fetch_df()["country"].tolist() == ["DE", "FR", "TV"]
    assert cursor.fetchone() is None


def test_an_empty_answer_has_a_description_and_no_row(connection: Connection) -> None:
    cursor = connection.execute("SELECT country FROM countries WHERE country = 'XX'")
    assert cursor.description is not None
    assert (cursor.rowcount, cursor.fetchall(), cursor.fetchone()) == (0, [], None)


@pytest.mark.parametrize(
    ("where", "parameters"),
    [
        ("country = ?", ("DE",)),
        ("country = ?", ["DE"]),
        ("country = $1", ("DE",)),
        ("country = :which", {"which": "DE"}),
        ("since = ?", (dbapi.Date(1990, 10, 3),)),
        ("millions = ?", (Decimal("83.5"),)),
        ("large = ? AND ratio < 2", (True,)),
        ("country = 'DE' AND continent <> 'a ? :b %s %%'", None),
    ],
)
def test_parameters_are_bound(connection: Connection, where: str, parameters: object) -> None:
    cursor = connection.execute(f"SELECT country FROM countries WHERE {where}", parameters)  # type: ignore[arg-type]
    assert cursor.fetchall() == [("DE",)]


def test_what_is_bound_is_data_and_no_sql(connection: Connection) -> None:
    cursor = connection.execute("SELECT country FROM countries WHERE country = ?", ("' OR 1 = 1 --",))
    assert cursor.fetchall() == []


def test_constructors_of_values() -> None:
    assert dbapi.Date(2026, 1, 2) == dt.date(2026, 1, 2)
    assert dbapi.Time(3, 4, 5) == dt.time(3, 4, 5)
    assert dbapi.Timestamp(2026, 1, 2, 3, 4, 5) == dt.datetime(2026, 1, 2, 3, 4, 5)  # noqa: DTZ001 - PEP 249's
    ticks = time.mktime((2026, 1, 2, 3, 4, 5, 0, 0, -1))
    assert dbapi.DateFromTicks(ticks) == dt.date(2026, 1, 2)
    assert dbapi.TimeFromTicks(ticks) == dt.time(3, 4, 5)
    assert dbapi.TimestampFromTicks(ticks).tzinfo is None
    assert dbapi.Binary(b"ab") == b"ab"


@pytest.mark.parametrize(
    ("statement", "kind", "own", "code"),
    [
        ("SELECT article FROM reads", dbapi.ProgrammingError, dpsql.Refusal, "not-private"),
        ("DROP TABLE reads", dbapi.ProgrammingError, dpsql.Refusal, "not-a-query"),
        ("INSERT INTO reads VALUES (1)", dbapi.ProgrammingError, dpsql.Refusal, "not-a-query"),
        ("SELECT secret FROM reads GROUP BY secret TOP 1 PRIVATE", dbapi.ProgrammingError, dpsql.Refusal, None),
        ("SELECT soundex(country) FROM countries", dbapi.ProgrammingError, dpsql.Refusal, "outer-select"),
        ("SELECT country FROM (DESCRIBE countries) AS x", dbapi.NotSupportedError, dpsql.Unsupported, None),
        (f"{TOP} WITH (epsilon = 1, count_rho = 9)", dbapi.DatabaseError, dpsql.Error, None),
        ("SELECT country FROM countries WHERE country = ?", dbapi.ProgrammingError, dpsql.UsageError, "parameters"),
        (3, dbapi.InterfaceError, dpsql.UsageError, "not-text"),
    ],
)
def test_errors_are_of_pep_249_and_of_dpsql(
    connection: Connection, statement: str, kind: type[Exception], own: type[dpsql.Error], code: str | None
) -> None:
    cursor = connection.execute("SELECT country FROM countries")
    with pytest.raises(kind) as caught:
        cursor.execute(statement)
    error = caught.value
    assert isinstance(error, own)
    assert isinstance(error, dbapi.Error)
    assert code in {None, error.code}
    assert error.hint
    assert error.__cause__ is error.__context__ is None
    assert (cursor.description, cursor.rowcount, cursor.messages) == (None, -1, [])
    with pytest.raises(dbapi.InterfaceError, match="nothing to fetch"):
        cursor.fetchone()
    assert connection.execute("SELECT country FROM countries").rowcount == 3
    assert charges(connection.session) == 0


def test_a_budget_that_is_spent_is_an_operational_error(connection: Connection) -> None:
    def spend() -> None:
        for _ in range(100):
            connection.execute(f"{NAMES} WITH (fresh = true)")

    with pytest.raises(dbapi.OperationalError) as caught:
        spend()
    assert isinstance(caught.value, dpsql.BudgetExceeded)
    assert caught.value.code == "budget-exceeded"


def test_errors_of_the_opening(folder: Path, tmp_path: Path) -> None:
    policy = folder / "policy.toml"
    with pytest.raises(dbapi.OperationalError, match="policy-missing") as caught:
        dbapi.connect(folder / "events.duckdb")
    assert isinstance(caught.value, dpsql.PolicyError)
    with pytest.raises(dbapi.OperationalError, match="database-missing") as missing:
        dbapi.connect(tmp_path / "none.duckdb", policy=policy, ledger=":memory:")
    assert isinstance(missing.value, dpsql.EngineError)
    with pytest.raises(dbapi.OperationalError) as lost:
        dbapi.connect(folder / "events.duckdb", policy=policy, ledger=tmp_path / "no" / "where" / "at.all")
    assert isinstance(lost.value, dpsql.LedgerError)
    with pytest.raises(dbapi.InterfaceError, match="isolation"):
        dbapi.connect(folder / "events.duckdb", policy=policy, isolation="elsewhere")


def test_an_error_of_the_engine_says_nothing_of_the_data(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> NoReturn:
        raise ValueError("user 4711 is odd")

    monkeypatch.setattr("dpsql.engines.duckdb.engine.DuckDBEngine.execute", failing)
    with pytest.raises(dbapi.OperationalError) as caught:
        connection.execute(NAMES)
    assert isinstance(caught.value, dpsql.EngineError)
    assert "4711" not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__cause__ is caught.value.__context__ is None
    assert charges(connection.session) == 1


def test_nothing_is_executed_many_times(connection: Connection) -> None:
    with pytest.raises(dbapi.NotSupportedError, match="executemany"):
        connection.cursor().executemany(NAMES, [(), ()])
    assert charges(connection.session) == 0


def test_transactions_have_nothing_to_do(connection: Connection) -> None:
    connection.execute(NAMES)
    connection.rollback()
    connection.commit()
    assert connection.autocommit is True
    assert charges(connection.session) == 1


def test_sizes_may_be_set_and_mean_nothing(connection: Connection) -> None:
    cursor = connection.cursor()
    cursor.setinputsizes((25,))
    cursor.setoutputsize(1000)
    cursor.setoutputsize(2000, 0)
    assert cursor.execute(COUNTRIES).rowcount == 3


@pytest.mark.parametrize(
    "use",
    [
        lambda cursor: cursor.execute(COUNTRIES),
        lambda cursor: cursor.executemany(COUNTRIES, []),
        lambda cursor: cursor.fetchone(),
        lambda cursor: cursor.fetchmany(2),
        lambda cursor: cursor.fetchall(),
        lambda cursor: cursor.fetch_arrow_table(),
        lambda cursor: cursor.fetch_df(),
        list,
        lambda cursor: cursor.connection,
    ],
)
def test_what_is_closed_is_of_no_use(folder: Path, use: object) -> None:
    connection = dbapi.connect(folder / "events.duckdb", policy=folder / "policy.toml", ledger=":memory:")
    cursor, other = connection.execute(COUNTRIES), connection.execute(COUNTRIES)
    cursor.close()
    cursor.close()
    with pytest.raises(dbapi.InterfaceError, match="closed"):
        use(cursor)  # type: ignore[operator]
    assert not connection.closed
    connection.close()
    connection.close()
    assert connection.closed
    for act in (lambda: use(other), connection.cursor, connection.commit, connection.rollback):  # type: ignore[operator]
        with pytest.raises(dbapi.InterfaceError, match="closed"):
            act()
    with pytest.raises(dbapi.InterfaceError, match="closed"):
        connection.execute(COUNTRIES)


def test_connections_to_one_session_are_closed_one_by_one(folder: Path) -> None:
    first = dbapi.connect(folder / "events.duckdb", policy=folder / "policy.toml", ledger=":memory:")
    second = first.another()
    rows = first.execute(NAMES).fetchall()
    first.close()
    first.close()
    with pytest.raises(dbapi.InterfaceError, match="closed"):
        first.cursor()
    assert second.execute(NAMES).fetchall() == rows
    third = first.another()
    second.close()
    assert charges(third.session) == 1
    third.close()
    for over in (first, second, third):
        with pytest.raises(dbapi.InterfaceError, match="closed"):
            over.another()
    with pytest.raises(dpsql.UsageError, match="session is closed"):
        first.session.sql(NAMES)


def test_a_closed_cursor_still_has_its_receipt(connection: Connection) -> None:
    cursor = connection.execute(NAMES)
    receipt = cursor.receipt
    cursor.close()
    assert cursor.receipt is receipt is not None
    assert cursor.answer is None


def test_with_blocks_close(folder: Path) -> None:
    with dbapi.connect(folder / "events.duckdb", policy=folder / "policy.toml", ledger=":memory:") as connection:
        with connection.cursor() as cursor:
            assert cursor.execute(COUNTRIES).rowcount == 3
        with pytest.raises(dbapi.InterfaceError, match="This cursor is closed"):
            cursor.fetchone()
    with pytest.raises(dbapi.InterfaceError, match="This connection is closed"):
        connection.cursor()


def test_cursors_of_one_connection_hold_answers_of_their_own(connection: Connection) -> None:
    first, second = connection.execute(COUNTRIES), connection.execute(TOP)
    assert second.fetchone() is not None
    assert len(first.fetchall()) == 3
    assert len(second.fetchall()) == 2


def test_a_question_that_several_threads_ask_at_once_is_charged_once(connection: Connection) -> None:
    together = threading.Barrier(8)

    def ask(_: int) -> list[tuple[object, ...]]:
        together.wait()
        return connection.cursor().execute(TOP).fetchall()

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(ask, range(8)))
    assert all(answer == answers[0] for answer in answers)
    assert charges(connection.session) == 1


@pytest.mark.parametrize("isolation", ["in_process", "process"])
def test_a_connection_may_be_used_and_closed_in_another_thread(folder: Path, tmp_path: Path, isolation: str) -> None:
    connection = dbapi.connect(
        folder / "events.duckdb", policy=folder / "policy.toml", ledger=tmp_path / "x.sqlite", isolation=isolation
    )
    with ThreadPoolExecutor(1) as elsewhere:
        rows = elsewhere.submit(lambda: connection.execute(NAMES).fetchall()).result()
        assert connection.execute(NAMES).fetchall() == rows
        elsewhere.submit(connection.close).result()
    assert connection.closed


def test_a_memory_ledger_is_warned_of_where_the_connection_is_opened(folder: Path) -> None:
    policy = dpsql.Policy(dpsql.Budget(1, "1e-6"), {"reads": dpsql.PrivateTable("user_id")})
    with pytest.warns(dpsql.MemoryLedgerWarning) as caught:
        dbapi.connect(folder / "events.duckdb", policy=policy).close()
    (warning,) = caught
    assert warning.filename == __file__


PROBES = [
    "SELECT 1",
    "SELECT * FROM reads LIMIT 0",
    "SELECT * FROM (SELECT * FROM reads) AS q WHERE 1 = 0",
    f"SELECT * FROM ({NAMES}) AS q LIMIT 0",
    f"SELECT * FROM ({NAMES}) AS q WHERE 1 = 0",
    f"SELECT * FROM ({NAMES}) AS q WHERE 1 = 2 LIMIT 1",
    f"{NAMES} LIMIT 0",
    f"WITH q AS ({NAMES}) SELECT * FROM q LIMIT 0",
    f"EXPLAIN {NAMES}",
    "SHOW TABLES",
    "DESCRIBE reads",
    "SHOW BUDGET",
]


@pytest.mark.parametrize("probe", PROBES)
def test_a_probe_describes_and_is_not_charged(connection: Connection, probe: str) -> None:
    cursor = connection.execute(probe)
    assert cursor.description
    assert charges(connection.session) == 0
    if NAMES in probe and "EXPLAIN" not in probe:
        assert [column[:2] for column in cursor.description] == [("article", "VARCHAR")]
        assert cursor.fetchall() == []


def test_the_columns_of_a_table_are_told_without_a_row(connection: Connection) -> None:
    described = {row[0]: row[1] for row in connection.execute("DESCRIBE reads").fetchall()}
    cursor = connection.execute("SELECT * FROM reads WHERE 1=0")
    assert cursor.description is not None
    assert {column[0]: column[1] for column in cursor.description} == described
    assert cursor.fetchall() == []
    assert charges(connection.session) == 0


def test_what_is_wrapped_around_a_query_is_one_charge_in_all(connection: Connection) -> None:
    for probe in PROBES:
        connection.execute(probe)
    for wrapped in (
        TOP,
        f"SELECT * FROM ({TOP}) AS q LIMIT 1",
        f"SELECT * FROM ({TOP}) AS q LIMIT 1000",
        f"WITH q AS ({TOP}) SELECT * FROM q",
        f"WITH q AS ({TOP}) SELECT count(*) FROM q",
        f"SELECT sum(n) FROM ({TOP}) AS q",
        f"-- a tool's comment\n{TOP}\n;",
    ):
        assert connection.execute(wrapped).rowcount >= 1
    assert charges(connection.session) == 1


def test_a_probe_leaves_no_answer_behind_that_a_query_would_find(connection: Connection) -> None:
    connection.execute(f"SELECT * FROM ({TOP}) AS q LIMIT 0")
    assert connection.execute(TOP).rowcount == 3


def test_importing_is_light() -> None:
    heavy = ("duckdb", "pyarrow", "sqlglot", "numpy", "pandas")
    code = f"import dpsql.dbapi, sys; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_a_connection_reads_standard_sql_as_private_where_it_is_told(connection: Connection) -> None:
    total = "SELECT COUNT(DISTINCT user_id) AS n FROM reads"
    with pytest.raises(dbapi.ProgrammingError):
        connection.execute(total)
    connection.implicit = True
    cursor = connection.execute(total)
    assert cursor.receipt is not None
    assert cursor.receipt.read_as == "PRIVATE"
    assert "read as PRIVATE" in str(cursor.messages[0][1])
    with pytest.raises(dbapi.ProgrammingError):
        connection.another().execute(total)
    connection.implicit = None
    with pytest.raises(dbapi.ProgrammingError):
        connection.execute(total)


def test_a_connection_gives_consent_where_it_is_told(folder: Path, tmp_path: Path) -> None:
    policy = tmp_path / "small.toml"
    policy.write_text(POLICY.replace("columns = [", "population = 200\ncolumns = [", 1))
    names = "SELECT article FROM reads GROUP BY article TOP 50 PRIVATE"
    with dbapi.connect(folder / "events.duckdb", policy=policy, ledger=":memory:") as connection:
        with pytest.raises(dbapi.ProgrammingError, match="consent = true"):
            connection.execute(names)
        connection.consent = True
        assert connection.execute(names).rowcount >= 0
        with pytest.raises(dbapi.ProgrammingError):
            connection.another().execute(f"{names} WITH (fresh = true)")
    with dbapi.connect(folder / "events.duckdb", policy=policy, ledger=":memory:", consent=True) as connection:
        assert connection.execute(names).rowcount >= 0
