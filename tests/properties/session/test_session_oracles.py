"""One-bit oracles that were found and closed: whether a statement fails must not depend on one unit's row."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.engines import Statement, open_exact
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.ledger import MemoryLedger, Request

BUDGET = dpsql.Budget(10, "1e-5", items=1000, queries=1000)
POLICY = dpsql.Policy(BUDGET, {"e": dpsql.PrivateTable("u")})
VICTIM = "INSERT INTO e VALUES (999, 'x', 'x', 'x≠', -1, 9007199254740993)"


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        texts = "w VARCHAR, c VARCHAR COLLATE NOCASE, a VARCHAR COLLATE NOACCENT"
        connection.execute(f"CREATE TABLE e(u INTEGER, {texts}, x DOUBLE, n BIGINT)")
        connection.execute("INSERT INTO e SELECT i, 'zz', 'zz', 'zz', 1, 1 FROM range(50) t(i)")
        yield connection


def outcome(session: dpsql.Session, condition: str) -> str:
    """Return what an analyst sees of a query whose groups are too small to be released."""
    try:
        session.sql(f"SELECT w FROM e WHERE u = 999 AND ({condition}) GROUP BY w TOP 1 PRIVATE WITH (fresh = true)")
    except dpsql.Error as error:
        return f"{type(error).__name__} {error.code}"
    return "answered"


@pytest.mark.parametrize(
    "condition",
    [
        "CASE WHEN u = 999 THEN 'a' ILIKE 'A' ESCAPE 'a' END",
        "'k' ILIKE '\N{KELVIN SIGN}' ESCAPE 'k'",
        "w ILIKE '%A' ESCAPE 'a'",
        "c NOT LIKE 'A' ESCAPE 'a'",
        "c LIKE '%A' ESCAPE 'a'",
        "a LIKE 'x≠' ESCAPE '='",
        "a LIKE '%≠' ESCAPE '='",
        "c ILIKE '%!%' ESCAPE '!'",
        "sqrt(x) > 0e0",
        "ln(x) > 0e0",
        "log2(x) > 0e0",
        "1e0 / (x + 1) > 0e0",
        "x / 0 > 0e0",
    ],
)
def test_one_row_decides_nothing_that_is_seen(connection: duckdb.DuckDBPyConnection, condition: str) -> None:
    connection.execute("SET GLOBAL ieee_floating_point_ops = false")
    connection.execute("SET GLOBAL integer_division = true")
    with dpsql.connect(connection, policy=POLICY, ledger=":memory:") as session:
        without = outcome(session, condition)
        connection.execute(VICTIM)
        assert outcome(session, condition) == without
        assert not without.startswith("EngineError")
    settings = "SELECT current_setting('ieee_floating_point_ops'), current_setting('integer_division')"
    assert connection.execute(settings).fetchall() == [(False, True)]


def test_a_column_of_text_may_exceed_two_gibibytes(connection: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """A 32-bit Arrow column fails past 2 GiB, which one unit's row can bring about by way of a public table."""
    path = tmp_path / "e.duckdb"
    with duckdb.connect(str(path)) as writer:
        writer.execute("CREATE TABLE e AS SELECT 1 AS u, 'a' AS w")
    for engine in (DuckDBEngine.open(path, {"e": None}), DuckDBEngine.borrow(connection, {"e": None})):
        table = open_exact(engine.execute(Statement("SELECT 'a' AS w")))
        assert str(table.schema.field("w").type) == "large_string"
        engine.close()


def test_a_type_follows_the_text_and_no_constant(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("DELETE FROM e")
    connection.execute("INSERT INTO e SELECT i, 'w', 'c', 'a', 1, 9007199254740993 FROM range(3000) t(i)")
    sql = "SELECT CASE WHEN x = 2 THEN month(CAST(.5 AS DATE)) ELSE n END AS m FROM e GROUP BY m TOP 1 PRIVATE"
    with dpsql.connect(connection, policy=POLICY, ledger=":memory:") as session:
        assert session.sql(sql).fetchall() == [(9007199254740993,)]


def test_not_a_time_is_no_parameter(connection: duckdb.DuckDBPyConnection) -> None:
    pandas = pytest.importorskip("pandas")
    with dpsql.connect(connection, policy=POLICY, ledger=":memory:") as session:
        with pytest.raises(dpsql.UsageError) as caught:
            session.sql(
                "SELECT w FROM e WHERE TIMESTAMP '2026-01-01 00:00:00' = ? GROUP BY w TOP 1 PRIVATE", [pandas.NaT]
            )
        assert caught.value.code == "parameter-type"
        assert session.budget.rho.spent == 0


def test_a_second_name_of_the_ledger_is_no_second_budget(tmp_path: Path, connection: duckdb.DuckDBPyConnection) -> None:
    sql = "SELECT w FROM e GROUP BY w TOP 1 PRIVATE WITH (fresh = true)"
    with dpsql.connect(connection, policy=POLICY, ledger=tmp_path / "l.sqlite") as session:
        session.sql(sql)
        os.link(tmp_path / "l.sqlite", tmp_path / "m.sqlite")
        with pytest.raises(dpsql.LedgerError) as caught:
            session.sql(sql)
        assert caught.value.code == "ledger-linked"
        with pytest.raises(dpsql.LedgerError) as caught:
            dpsql.connect(connection, policy=POLICY, ledger=tmp_path / "m.sqlite")
        assert caught.value.code == "ledger-linked"
        (tmp_path / "m.sqlite").unlink()
        session.sql(sql)


def test_a_fork_does_not_double_a_budget_in_memory() -> None:
    from dpsql.accounting import ApproximateDP, BudgetVector
    from dpsql.quantities import Delta, Epsilon

    ledger = MemoryLedger(BudgetVector(1, "1e-6"), total=ApproximateDP(Epsilon(1), Delta("2e-6")))
    child = os.fork()
    if child == 0:
        try:
            ledger.reserve(Request("SELECT 1", BudgetVector(1, 0)))
        except dpsql.LedgerError as error:
            os._exit(7 if error.code == "ledger-forked" else 8)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
