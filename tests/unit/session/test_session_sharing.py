"""Several threads, several sessions, a connection that someone else uses too, and forks."""

from __future__ import annotations

import subprocess
import sys
import threading
from fractions import Fraction
from pathlib import Path

import duckdb
import pytest
from support.session_kit import NAMES, PRIVATE, filled, session_on, shared, values_rows

import dpsql

SQL = "SELECT article FROM reads GROUP BY article TOP 2 PRIVATE WITH (epsilon = 0.02, delta = 1e-9, fresh = true)"
BY_ITEM = SQL.replace("WITH (", "WITH (mechanism = limited_domain, ")
LOOKS = SQL.replace("WITH (", "WITH (mechanism = two_looks, ")
ITEM = Fraction("0.02") ** 2 / 8


def asked_by_threads(sessions: list[dpsql.Session], times: int, sql: str) -> list[dpsql.Receipt]:
    receipts: list[dpsql.Receipt] = []
    failures: list[BaseException] = []
    gate = threading.Barrier(len(sessions))

    def ask(session: dpsql.Session) -> None:
        gate.wait()
        try:
            for _ in range(times):
                receipts.append(session.sql(sql).receipt)  # noqa: PERF401 - kept one by one, whatever fails later
        except BaseException as error:  # noqa: BLE001 - a thread has nobody to tell
            failures.append(error)

    threads = [threading.Thread(target=ask, args=(session,)) for session in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    return receipts


def charges(receipts: list[dpsql.Receipt], sql: str) -> Fraction:
    """Return the sum of what was charged, which are whole items where no look is taken."""
    spent = sum((receipt.loss.rho.value for receipt in receipts), Fraction(0))
    items = sum(receipt.items_charged for receipt in receipts) * ITEM
    assert spent == items if sql == BY_ITEM else spent <= items
    return spent


@pytest.mark.parametrize("sql", [BY_ITEM, LOOKS])
def test_threads_of_one_session_lose_no_charge(sql: str) -> None:
    session = session_on(shared(*values_rows({"a": 3000, "b": 2900, "c": 2800})))
    receipts = asked_by_threads([session] * 6, 6, sql)
    assert len(receipts) == 36
    balance = session.budget
    assert balance.rho.spent == charges(receipts, sql)
    assert balance.rho.reserved == 0
    assert balance.delta.spent == 36 * Fraction("1e-9")


@pytest.mark.parametrize("sql", [BY_ITEM, LOOKS])
def test_sessions_on_one_ledger_draw_on_one_total(example: Path, sql: str) -> None:
    policy, database = example / "policy.toml", example / "events.duckdb"
    with dpsql.connect(database, policy=policy) as first, dpsql.connect(database, policy=policy) as second:
        receipts = asked_by_threads([first, second, first, second], 4, sql)
        spent = charges(receipts, sql)
        assert first.budget == second.budget
        assert first.budget.rho.spent == spent
        many = int(first.budget.rho.remaining / ITEM)
        most = BY_ITEM.replace("TOP 2", f"TOP {many}")
        second.sql(most)
        with pytest.raises(dpsql.BudgetExceeded):
            first.sql(most)


def test_an_open_connection_stays_its_owners() -> None:
    connection = filled(*values_rows({"a": 3000}), "SET threads = 2", "SET default_null_order = 'nulls_first'")
    watched = "SELECT name, value FROM duckdb_settings() WHERE name <> 'duckdb_api' ORDER BY name"
    settings = connection.execute(watched).fetchall()
    tables = connection.execute("SHOW TABLES").fetchall()
    session = session_on(connection)
    answer = session.sql(NAMES)
    assert answer.receipt.sealed is False
    assert "sealed" not in str(answer.receipt)
    assert [article for (article,) in answer.fetchall()] == ["a"]
    assert connection.execute(watched).fetchall() == settings
    assert connection.execute("SHOW TABLES").fetchall() == tables
    session.close()
    assert connection.execute("SELECT count(*) FROM reads").fetchone() == (3000,)


def test_an_open_transaction_stays_its_owners() -> None:
    connection = filled(*values_rows({"a": 3000}))
    session = session_on(connection)
    connection.execute("BEGIN")
    connection.execute("INSERT INTO reads SELECT i, 'uncommitted' FROM range(9000) t(i)")
    assert [article for (article,) in session.sql(NAMES).fetchall()] == ["a"]
    session.close()
    connection.execute("ROLLBACK")
    assert connection.execute("SELECT count(*) FROM reads").fetchone() == (3000,)


def test_a_result_that_is_being_fetched_stays_its_owners() -> None:
    connection = filled(*values_rows({"a": 3000}))
    session = session_on(connection)
    pending = connection.execute("SELECT i FROM range(5) t(i)")
    assert pending.fetchone() == (0,)
    session.sql(NAMES)
    assert pending.fetchall() == [(1,), (2,), (3,), (4,)]


def test_a_path_is_sealed(example: Path) -> None:
    with dpsql.connect(example / "events.duckdb", policy=example / "policy.toml") as session:
        assert session.sql(SQL).receipt.sealed is True
        with duckdb.connect(str(example / "other.duckdb")) as other:  # another database of the process is no matter
            other.execute("SELECT 1")


def test_two_engines_read_one_file_side_by_side(example: Path) -> None:
    policy = dpsql.Policy(dpsql.Budget(1, "1e-6"), PRIVATE)
    opened = [dpsql.connect(example / "events.duckdb", policy=policy, ledger=":memory:") for _ in range(3)]
    assert {tuple(session.sql(SQL).arrow().column_names) for session in opened} == {("article",)}
    for session in opened:
        session.close()


FORKS = """
import os
from dpsql.mechanisms import OperatingSystemNoise

noise = OperatingSystemNoise()
noise.draw(16)
seen = []
for _ in range(200):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, noise.draw(16))
        os._exit(0)
    os.close(writing)
    seen.append(os.read(reading, 16))
    os.close(reading)
    os.waitpid(child, 0)
assert all(len(block) == 16 for block in seen)
print(len({*seen, noise.draw(16)}))
"""


def test_forks_draw_different_noise() -> None:
    done = subprocess.run([sys.executable, "-c", FORKS], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout == "201\n"


FORKED_SESSION = """
import os, sys
import dpsql

session = dpsql.connect(sys.argv[1] + "/events.duckdb", policy=sys.argv[1] + "/policy.toml")
child = os.fork()
if child == 0:
    try:
        session.budget
    except dpsql.LedgerError as error:
        os._exit(17 if error.code == "ledger-forked" else 1)
    os._exit(2)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17
print(session.budget.items)
"""


def test_a_session_belongs_to_one_process(example: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKED_SESSION, str(example)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "100\n"
