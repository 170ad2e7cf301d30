"""The service under many clients: nothing is lost, each question is charged once, and the ledger says the same.

DPSQL_LOAD=1 lets 64 clients ask 200 statements each.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from support.service_kit import ask

from dpsql import Budget, Policy, PrivateTable
from dpsql.curator import read_history, read_spending, verify_ledger
from dpsql.errors import BudgetExceeded, Error, PolicyError, Refusal, UsageError
from dpsql.ledger import Request, SQLiteLedger
from dpsql.policy import Analyst
from dpsql.server.gateway import Service

CLIENTS, QUERIES = (64, 200) if os.environ.get("DPSQL_LOAD") else (16, 30)
ANALYSTS, QUESTIONS = 4, 6


def policy_in(folder: Path, **keys: Any) -> Policy:
    tables = keys.pop("tables", {"reads": PrivateTable("user_id")})
    budget = keys.pop("budget", Budget(20, "1e-6", items=1000, queries=100))
    return Policy(budget, tables, ledger=folder / "ledger.sqlite", **keys)


def question(number: int) -> str:
    return f"SELECT article FROM reads WHERE user_id >= {number} GROUP BY article TOP 3 PRIVATE WITH (epsilon = 0.05)"


def at_once(act: Callable[[int], None], count: int) -> None:
    """Let so many threads act, and raise what one of them raised."""
    failed: list[BaseException] = []

    def acting(number: int) -> None:
        try:
            act(number)
        except BaseException as error:  # noqa: BLE001 - raised below
            failed.append(error)

    threads = [threading.Thread(target=acting, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with duckdb.connect(str(tmp_path / "events.duckdb")) as database:
        database.execute("CREATE TABLE reads AS SELECT i AS user_id, 'a' || i % 3 AS article FROM range(9000) t(i)")
        database.execute("CREATE TABLE visits AS SELECT i AS user_id, 'p' || i % 3 AS page FROM range(9000) t(i)")
    return tmp_path


def hold_against(folder: Path, policy: Policy, told: Counter[tuple[str, int]], charged: Counter[str]) -> None:
    """Hold what clients were told against the ledger: one entry for each question, charged what they were told."""
    entries = read_spending(policy).entries
    assert len(entries) == len(told)
    assert set(told.values()) == {1}
    for name, rho in charged.items():
        settled = [entry.settlement.loss for entry in entries if entry.account == name and entry.settlement]
        assert sum(float(loss) for loss in settled) == pytest.approx(rho)
    kinds = Counter(event.kind for event in read_history(folder / "ledger.sqlite"))
    assert kinds["reserved"] == kinds["settled"] == len(told)
    assert verify_ledger(folder / "ledger.sqlite").events == kinds.total()


def test_many_clients_lose_nothing_and_pay_once(folder: Path) -> None:
    analysts = {f"analyst {number}": Analyst(4) for number in range(ANALYSTS)}
    policy = policy_in(folder, analysts=analysts)
    told, charged, answered = Counter[tuple[str, int]](), Counter[str](), Counter[str]()
    shown: dict[tuple[str, int], object] = {}
    lock = threading.Lock()
    service = Service(folder / "events.duckdb", policy)

    def client(number: int) -> None:
        name = f"analyst {number % ANALYSTS}"
        for query in range(QUERIES):
            which = (number + query) % QUESTIONS
            answer = ask(service, name, question(which))
            with lock:
                answered[name] += 1
                assert shown.setdefault((name, which), answer.fetchall()) == answer.fetchall()
                if not answer.receipt.replayed:
                    told[name, which] += 1
                    charged[name] += float(answer.receipt.loss.rho)

    at_once(client, CLIENTS)
    service.close()
    assert answered.total() == CLIENTS * QUERIES
    assert len(told) == ANALYSTS * QUESTIONS
    hold_against(folder, policy, told, charged)


def test_a_policy_that_is_read_again_and_again_loses_no_statement(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpsql.server.gateway._GRACE", 0.0)  # whoever waits for the former evaluator finds it closed
    policies = [policy_in(folder, analysts={"default": Analyst(limit)}) for limit in (4, 5)]
    told, charged, lock = Counter[tuple[str, int]](), Counter[str](), threading.Lock()
    service = Service(folder / "events.duckdb", policies[0])
    ended = threading.Event()

    def client(number: int) -> None:
        name = f"analyst {number % 2}"
        for query in range(20):
            answer = ask(service, name, question(query % 4))
            with lock:
                if not answer.receipt.replayed:
                    told[name, query % 4] += 1
                    charged[name] += float(answer.receipt.loss.rho)

    def renewing() -> None:
        turn = 0
        while not ended.is_set():
            turn += 1
            service.renew(policies[turn % 2])
            time.sleep(0.05)

    curator = threading.Thread(target=renewing)
    curator.start()
    try:
        at_once(client, 6)
    finally:
        ended.set()
        curator.join()
        service.close()
    hold_against(folder, policies[0], told, charged)


def test_a_question_that_runs_while_the_policy_is_read_again_is_charged_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, going, asked = SQLiteLedger.reserve, threading.Event(), threading.Event()

    def slow(self: SQLiteLedger, request: Request) -> Any:
        answer = None if asked.is_set() else (asked.set(), going.wait(30))
        return plain(self, request) if answer is None or answer[1] else None

    monkeypatch.setattr(SQLiteLedger, "reserve", slow)
    service = Service(folder / "events.duckdb", policy_in(folder))
    replayed: list[bool] = []

    def client() -> None:
        replayed.append(ask(service, "alice", question(0)).receipt.replayed)

    first = threading.Thread(target=client)
    first.start()
    assert asked.wait(30)
    service.renew(policy_in(folder, analysts={"alice": Analyst(4)}))
    second = threading.Thread(target=client)
    second.start()
    second.join(0.3)
    assert replayed == []
    going.set()
    first.join()
    second.join()
    assert sorted(replayed) == [False, True]
    service.close()


def test_closing_while_many_ask_leaves_nothing_half_done(folder: Path) -> None:
    policy = policy_in(folder)
    told, charged, lock = Counter[tuple[str, int]](), Counter[str](), threading.Lock()
    refused: list[str] = []
    service = Service(folder / "events.duckdb", policy)

    def client(number: int) -> None:
        name = f"analyst {number % 3}"
        for query in range(30):
            try:
                answer = ask(service, name, question(query))
            except UsageError as error:
                refused.append(error.code)
                return
            with lock:
                if not answer.receipt.replayed:
                    told[name, query] += 1
                    charged[name] += float(answer.receipt.loss.rho)

    closing = threading.Timer(0.5, service.close)
    closing.start()
    at_once(client, 9)
    closing.join()
    assert set(refused) == {"closed"}
    with pytest.raises(UsageError):
        service.session("analyst 0")
    service.close()
    hold_against(folder, policy, told, charged)


def test_a_limit_that_was_lowered_holds_from_then_on_and_what_was_spent_counts(folder: Path) -> None:
    service = Service(folder / "events.duckdb", policy_in(folder, analysts={"alice": Analyst(4)}))
    ask(service, "alice", question(0))
    service.renew(policy_in(folder, analysts={"alice": Analyst("0.1"), "bob": Analyst(enabled=False)}))
    with pytest.raises(BudgetExceeded):
        ask(service, "alice", question(1))
    assert ask(service, "alice", question(0)).receipt.replayed
    with pytest.raises(Refusal):
        ask(service, "bob", question(0))
    service.close()


def test_tables_of_a_new_policy_are_there_and_those_of_the_old_are_gone(folder: Path) -> None:
    service = Service(folder / "events.duckdb", policy_in(folder))
    assert [table.name for table in service.catalog.tables] == ["reads"]
    service.renew(policy_in(folder, tables={"visits": PrivateTable("user_id")}))
    assert [table.name for table in service.catalog.tables] == ["visits"]
    ask(service, "alice", "SELECT page FROM visits GROUP BY page TOP 3 PRIVATE WITH (epsilon = 0.05)")
    with pytest.raises(Error) as caught:
        ask(service, "alice", question(0))
    assert caught.value.code == "unknown-table"
    service.close()


def test_a_policy_that_does_not_fit_leaves_the_one_in_force(folder: Path) -> None:
    service = Service(folder / "events.duckdb", policy_in(folder))
    for unfit in (
        policy_in(folder, tables={"nothing": PrivateTable("user_id")}),
        policy_in(folder, tables={"reads": PrivateTable("nobody")}),
        policy_in(folder, budget=Budget(3, "1e-6", items=1000, queries=100)),
        policy_in(folder / ".." / folder.name / "elsewhere"),
    ):
        with pytest.raises(Error):
            service.renew(unfit)
        assert ask(service, "alice", question(0))
    with pytest.raises(PolicyError):
        Service(folder / "events.duckdb", policy_in(folder, tables={"reads": PrivateTable("nobody")}))
    service.close()


def test_one_analyst_does_not_wait_for_anothers_statement(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dpsql.session import Session

    plain, going, asked = Session.sql, threading.Event(), threading.Event()

    def slow(self: Session, text: str, parameters: Any = (), **named: Any) -> Any:
        if text == "SELECT 2":
            asked.set()
            assert going.wait(30)
        return plain(self, text, parameters, **named)

    monkeypatch.setattr(Session, "sql", slow)
    service = Service(folder / "events.duckdb", policy_in(folder))
    waiting = threading.Thread(target=ask, args=(service, "alice", "SELECT 2"))
    waiting.start()
    assert asked.wait(30)
    assert ask(service, "bob", "SELECT 1").fetchall() == [(1,)]
    with service.looking("alice") as session:
        assert session.describe(question(0)).names == ["article"]
    assert waiting.is_alive()
    going.set()
    waiting.join()
    service.close()
