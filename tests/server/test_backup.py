"""The ledger is copied while it is served; the newest copy goes on where it was, and an older one is refused."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import duckdb
import pytest
from support.service_kit import ask

from dpsql import Budget, Policy, PrivateTable
from dpsql.curator import back_up, read_spending, verify_ledger
from dpsql.errors import LedgerError
from dpsql.server.gateway import Service


def question(number: int) -> str:
    return f"SELECT article FROM reads WHERE user_id >= {number} GROUP BY article TOP 3 PRIVATE WITH (epsilon = 0.05)"


def copied(ledger: Path, copy: Path) -> Path:
    """Copy a ledger as docs/how-to/server.md says."""
    back_up(ledger, copy)
    return copy


def put_back(copy: Path, ledger: Path) -> None:
    """Put a copy in the ledger's place as docs/how-to/server.md says."""
    for ending in ("-wal", "-shm"):
        ledger.with_name(ledger.name + ending).unlink(missing_ok=True)
    shutil.copy(copy, ledger)


@pytest.fixture
def policy(tmp_path: Path) -> Policy:
    with duckdb.connect(str(tmp_path / "events.duckdb")) as database:
        database.execute("CREATE TABLE reads AS SELECT i AS user_id, 'a' || i % 3 AS article FROM range(9000) t(i)")
    tables = {"reads": PrivateTable("user_id")}
    return Policy(Budget(20, "1e-6", items=1000, queries=100), tables, ledger=tmp_path / "ledger.sqlite")


def test_a_ledger_that_is_served_is_copied_and_only_the_newest_copy_is_taken_back(
    policy: Policy, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger.sqlite"
    service = Service(tmp_path / "events.duckdb", policy)
    ask(service, "alice", question(0))

    def client(name: str) -> None:
        for number in range(1, 11):
            ask(service, name, question(number))

    clients = [threading.Thread(target=client, args=(name,)) for name in ("alice", "bob")]
    for each in clients:
        each.start()
    copies = [copied(ledger, tmp_path / f"copy {number}.sqlite") for number in range(5)]
    for each in clients:
        each.join()
    newest = copied(ledger, tmp_path / "newest.sqlite")
    service.close()
    events = [verify_ledger(copy).events for copy in (*copies, newest)]
    assert events == sorted(events)
    assert events[-1] == verify_ledger(ledger).events

    put_back(copies[0], ledger)
    with pytest.raises(LedgerError) as caught:
        Service(tmp_path / "events.duckdb", policy)
    assert caught.value.code == "ledger-rolled-back"

    put_back(newest, ledger)
    service = Service(tmp_path / "events.duckdb", policy)
    assert ask(service, "alice", question(10)).receipt.replayed
    service.close()
    assert len(read_spending(policy).entries) == 21
