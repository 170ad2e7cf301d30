"""Hosts that race and are killed, a server that is killed, connections that end at the worst moment."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from fractions import Fraction

import psycopg
import pytest
from support.ledger_kit import ASK, BUDGET, ITEM, TOTAL, code_of
from support.ledger_programs import FORKED, NURSERY, RACE, start
from support.postgres_kit import fresh_schema, server

from dpsql.accounting import BudgetState, BudgetVector
from dpsql.errors import LedgerError
from dpsql.ledger import postgres_server, sum_entries
from dpsql.ledger.postgres_ledger import PostgresLedger, verify

KILLS = int(os.environ.get("DPSQL_KILLS", "60")) // 4
HELD = BudgetState(Fraction(0), Fraction("1e-9"), Fraction(1))


@pytest.fixture
def url() -> str:
    return server().url(fresh_schema())


@pytest.fixture
def ledger(url: str) -> Iterator[PostgresLedger]:
    with closing(PostgresLedger(url, BUDGET, total=TOTAL)) as ledger:
        yield ledger


def impatient(patience: pytest.MonkeyPatch, seconds: float) -> None:
    patience.setattr(postgres_server, "WAIT", seconds)


def backend(ledger: PostgresLedger) -> int:
    assert ledger._connection is not None
    return ledger._connection.info.backend_pid


# processes


def test_sixteen_processes_racing_for_the_last_items_get_exactly_those(url: str) -> None:
    with start(RACE, url) as process:
        words = process.communicate(timeout=100)[0].split()
    assert (words.count("granted"), words.count("refused"), words.count("0")) == (50, 16 * 5 - 50, 16)
    with closing(PostgresLedger.open(url)) as ledger:
        state = ledger.state()
        assert len(ledger.entries()) == 50
        assert state.spent + state.reserved == BUDGET.refundable
        assert state.permanent == Fraction("1e-12") * 50


def acknowledged_of(lines: list[str]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {"held": set(), "settled": set()}
    for line in lines:
        word, number = line.split()
        found[word].add(int(number))
    return found


def refuse_loss(url: str, acknowledged: dict[str, set[int]], *, unheard: int) -> None:
    """Fail if anything that was acknowledged is missing, or more than so many reservations nobody heard of."""
    verify(url)
    with closing(PostgresLedger.open(url)) as ledger:
        held = [event.seq for event in ledger.events() if event.kind == "reserved"]
        entries = ledger.entries()
        settled = {seq for seq, entry in zip(held, entries, strict=True) if entry.settlement}
        assert acknowledged["held"] <= set(held)
        assert acknowledged["settled"] <= settled
        assert len(set(held) - acknowledged["held"]) <= unheard
        assert ledger.state() == sum_entries(entries)
        assert ledger.state().reserved == ITEM.refundable * (len(held) - len(settled))


def test_what_was_acknowledged_before_a_client_was_killed_is_recorded(url: str) -> None:
    moments = random.Random(0)
    lines: list[str] = []
    with start(NURSERY, url, rho=10**6) as nursery:
        for kill in range(KILLS):
            nursery.stdin.write("another\n")
            nursery.stdin.flush()
            born = nursery.stdout.readline().split()
            lines += [nursery.stdout.readline() for _ in range(moments.randrange(8) if kill % 3 else 0)]
            time.sleep(moments.uniform(0, 0.005 if kill % 3 else 0.5))  # the others also while they open it
            os.kill(int(born[1]), signal.SIGKILL)
            lines += iter(nursery.stdout.readline, "gone\n")
        nursery.stdin.close()
    acknowledged = acknowledged_of(lines)
    assert len(acknowledged["settled"]) > KILLS // 2
    refuse_loss(url, acknowledged, unheard=KILLS)


ONE = """
say('born')
ledger = opened()
try:
    while True:
        reservation = ledger.reserve(ASK)
        say(f'held {reservation.number}')
        reservation.settle(ITEM.refundable, 'd', answer=b'answer')
        say(f'settled {reservation.number}')
except Error as error:
    say(error.code)
"""


def test_what_was_acknowledged_before_the_server_was_killed_is_recorded(url: str) -> None:
    with start(ONE, url, rho=10**6) as client:
        lines = [client.stdout.readline() for _ in range(60)]
        server().kill()
        *more, code = (line.strip() for line in client.stdout)
    assert code in {"ledger-unreachable", "ledger-unconfirmed"}
    server().start()
    acknowledged = acknowledged_of([*lines[1:], *more])
    assert len(acknowledged["settled"]) >= 25
    refuse_loss(url, acknowledged, unheard=1)


def test_a_reservation_outlives_the_server_and_settles_when_it_is_back(ledger: PostgresLedger) -> None:
    held = ledger.reserve(ASK)
    server().kill()
    for act in (ledger.state, lambda: ledger.reserve(ASK), lambda: held.settle(Fraction(0), "d")):
        assert code_of(act) == "ledger-unreachable"
    server().start()
    assert ledger.state() == HELD
    held.settle(Fraction("0.5"), "d")
    assert ledger.state() == BudgetState(Fraction("0.5"), Fraction("1e-9"), Fraction(0))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_does_not_write_through_its_parents_connection(url: str) -> None:
    with start(FORKED, url) as process:
        assert process.communicate(timeout=30)[0].split() == ["ledger-forked", "1"]


# connections


def test_a_connection_lost_between_reserve_and_settle_is_replaced(ledger: PostgresLedger) -> None:
    held = ledger.reserve(ASK)
    before = backend(ledger)
    server().run(f"SELECT pg_terminate_backend({before}, 5000)")
    held.settle(Fraction("0.5"), "d")
    assert backend(ledger) != before
    assert ledger.state().spent == Fraction("0.5")
    assert [event.kind for event in ledger.events()] == ["created", "reserved", "settled"]


def test_a_connection_lost_within_an_act_charges_nothing_and_costs_that_act(ledger: PostgresLedger) -> None:
    held = ledger.reserve(ASK)

    def cut_short() -> None:
        with ledger._writing() as book:
            book.set_balance(None, BudgetState())
            server().run(f"SELECT pg_terminate_backend({backend(ledger)}, 5000)")
            book.append("settled", {"entry": 2, "loss": "0/1", "digest": "", "answer": ""}, at="2026-01-01")

    assert code_of(cut_short) == "ledger-unreachable"
    assert ledger.state() == HELD
    held.settle(Fraction(1), "d")
    assert len(list(ledger.events())) == 3


def test_an_error_that_was_passed_over_is_not_committed_as_if_nothing_were(ledger: PostgresLedger) -> None:
    def careless() -> None:
        with ledger._writing() as book:
            book.set_balance(None, BudgetState())
            with contextlib.suppress(psycopg.Error):
                book._run("SELECT 1 / 0")

    ledger.reserve(ASK)
    assert code_of(careless) == "ledger-failed"
    assert ledger.state() == HELD


class Interrupted(postgres_server.LedgerConnection):
    """A connection on which Ctrl-C is pressed while a transaction is being undone."""

    def execute(self, query: object, *values: object, **options: object) -> object:
        if query == "ROLLBACK":
            raise KeyboardInterrupt
        return super().execute(query, *values, **options)


def test_an_act_interrupted_while_it_is_undone_leaves_no_half(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_server, "LedgerConnection", Interrupted)
    with closing(PostgresLedger(url, BUDGET, total=TOTAL)) as ledger:
        ledger.reserve(ASK)

        def interrupted() -> None:
            with ledger._writing() as book:
                book.set_balance(None, BudgetState())
                raise RuntimeError

        with pytest.raises(KeyboardInterrupt):
            interrupted()
        monkeypatch.undo()
        ledger.bump("the next")
        assert ledger.state() == HELD
    assert verify(url).events == 3


class Failing(postgres_server.LedgerConnection):
    """A connection whose next statement but so many fails, as a server does that is out of memory."""

    left = -1

    def execute(self, query: object, *values: object, **options: object) -> object:
        if query != "ROLLBACK":
            Failing.left -= 1
            if Failing.left == -1:
                return super().execute("SELECT 1 / 0")
        return super().execute(query, *values, **options)


def failing_at(statement: int, act: Callable[[], object]) -> str | None:
    """Return the code of the error that an act ends with when this statement of it fails; None if it has fewer."""
    Failing.left = statement
    try:
        act()
    except LedgerError as error:
        return error.code
    finally:
        Failing.left = -1
    return None


@pytest.mark.parametrize("name", ["reserve", "settle", "grant", "bump", "register"])
def test_an_error_at_any_statement_leaves_all_as_it_was(url: str, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(postgres_server, "LedgerConnection", Failing)
    with closing(PostgresLedger(url, BUDGET, total=TOTAL)) as ledger:
        held = ledger.reserve(ASK)
        acts = {
            "reserve": lambda: ledger.reserve(ASK),
            "settle": lambda: held.settle(Fraction("0.5"), "d", answer=b"answer"),
            "grant": lambda: ledger.grant(BudgetVector(60, "1e-6"), TOTAL, note="more"),
            "bump": lambda: ledger.bump("note"),
            "register": lambda: ledger.register({"t": "u"}),
        }
        before = ledger.state(), list(ledger.events())
        statements = 0
        while (code := failing_at(statements, acts[name])) is not None:
            assert code == "ledger-failed"
            assert (ledger.state(), list(ledger.events())) == before
            statements += 1
        assert statements >= 5
        assert len(list(ledger.events())) == 3
    assert verify(url).events == 3


# waiting


def test_who_waits_too_long_for_a_turn_is_told_so_and_is_not_charged(url: str, ledger: PostgresLedger) -> None:
    held = ledger.reserve(ASK)
    schema = url.partition("schema=")[2]
    with server().session() as other, other.transaction(), pytest.MonkeyPatch.context() as patience:
        other.execute(f"SELECT one FROM {schema}.terms FOR UPDATE")
        impatient(patience, 0.2)
        assert code_of(lambda: ledger.reserve(ASK)) == "ledger-busy"
        assert code_of(lambda: held.settle(Fraction(0), "d")) == "ledger-busy"
        assert ledger.state() == HELD
    held.settle(Fraction(1), "d")


def test_who_stands_still_within_a_turn_loses_it(url: str, ledger: PostgresLedger) -> None:
    with closing(PostgresLedger.open(url)) as other, pytest.MonkeyPatch.context() as patience:
        impatient(patience, 1.0)

        def stand_still() -> None:
            with ledger._writing() as book:
                book.set_balance(None, BudgetState())
                other.reserve(ASK)  # comes to its turn when ours is taken away
                book.append("bumped", {"data_version": 1, "note": ""}, at="2026-01-01")

        assert code_of(stand_still) == "ledger-unreachable"
        assert ledger.state() == HELD
    assert verify(url).events == 2


def test_a_process_of_the_server_that_stands_still_is_left_behind(ledger: PostgresLedger) -> None:
    held = ledger.reserve(ASK)
    stopped = backend(ledger)
    os.kill(stopped, signal.SIGSTOP)
    try:
        with pytest.MonkeyPatch.context() as patience:
            impatient(patience, 0.5)
            held.settle(Fraction("0.5"), "d")  # through another, because this one had not begun
        assert backend(ledger) != stopped
    finally:
        os.kill(stopped, signal.SIGCONT)
    assert ledger.state().spent == Fraction("0.5")


def test_a_process_of_the_server_that_stands_still_within_an_act_charges_nothing(ledger: PostgresLedger) -> None:
    held = ledger.reserve(ASK)
    stopped = backend(ledger)

    def stand_still() -> None:
        with ledger._writing() as book:
            book.set_balance(None, BudgetState())
            os.kill(stopped, signal.SIGSTOP)
            book.append("bumped", {"data_version": 1, "note": ""}, at="2026-01-01")

    with pytest.MonkeyPatch.context() as patience:
        impatient(patience, 0.5)
        assert code_of(stand_still) == "ledger-unreachable"
        assert code_of(lambda: held.settle(Fraction(0), "d")) == "ledger-busy"  # the lock is still held
    os.kill(stopped, signal.SIGCONT)
    held.settle(Fraction("0.5"), "d")
    assert [event.kind for event in ledger.events()] == ["created", "reserved", "settled"]


@pytest.fixture
def lonely(ledger: PostgresLedger) -> Iterator[PostgresLedger]:
    """Return a ledger of which every commit waits for a standby that is not there."""
    server().configure(synchronous_standby_names="nobody")
    yield ledger
    server().configure(synchronous_standby_names="")


def waiting_for_a_standby(pid: int) -> None:
    deadline = time.monotonic() + 30
    found = f"SELECT 1 FROM pg_stat_activity WHERE pid = {pid} AND wait_event = 'SyncRep'"
    while not server().rows(found):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("end", ["pg_terminate_backend", "pg_cancel_backend", "patience"])
def test_a_commit_of_unknown_outcome_is_not_taken_for_done_nor_refunded(lonely: PostgresLedger, end: str) -> None:
    pid = backend(lonely)
    with ThreadPoolExecutor(1) as threads, pytest.MonkeyPatch.context() as patience:
        if end == "patience":
            impatient(patience, 0.5)
        reserving: Future[object] = threads.submit(lonely.reserve, ASK)
        waiting_for_a_standby(pid)
        if end != "patience":
            server().run(f"SELECT {end}({pid})")
        assert code_of(lambda: reserving.result(timeout=30)) == "ledger-unconfirmed"
    server().configure(synchronous_standby_names="")
    deadline = time.monotonic() + 30
    while not lonely.entries():  # the server's side may still be at it
        assert time.monotonic() < deadline
    assert lonely.state() == HELD
    lonely.reserve(ASK)
    assert lonely.state().reserved == Fraction(2)


# servers


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
def test_a_server_that_may_lose_a_commit_is_refused(url: str, ledger: PostgresLedger, setting: str) -> None:
    server().configure(**{setting: "off"})
    try:
        assert code_of(lambda: PostgresLedger.open(url)) == "ledger-not-durable"
        server().run(f"SELECT pg_terminate_backend({backend(ledger)}, 5000)")
        for _ in range(2):
            assert code_of(lambda: ledger.reserve(ASK)) == "ledger-not-durable"
    finally:
        server().configure(**{setting: "on"})
    assert ledger.state() == BudgetState()


def test_a_standby_may_be_verified_and_not_opened(url: str, ledger: PostgresLedger) -> None:
    held = ledger.reserve(ASK)
    with server().as_standby():
        assert code_of(lambda: PostgresLedger.open(url)) == "ledger-read-only"
        assert code_of(lambda: held.settle(Fraction(0), "d")) == "ledger-read-only"
        assert verify(url).events == 2
    held.settle(Fraction("0.5"), "d")
    assert ledger.state().spent == Fraction("0.5")


def test_a_server_that_is_not_there_is_named_without_its_words(url: str) -> None:
    server().stop()
    try:
        for act in (verify, PostgresLedger.open, lambda url: PostgresLedger(url, BUDGET, total=TOTAL)):
            assert code_of(lambda act=act: act(url)) == "ledger-unreachable"
    finally:
        server().start()
