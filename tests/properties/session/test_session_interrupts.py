"""Clients that interrupt, cancel, hang up or close: what they asked is paid, not shown, and holds up nobody else."""

from __future__ import annotations

import asyncio
import contextlib
import dis
import functools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
from support.child_kit import Child
from support.fuzzing import WHOLE
from support.session_kit import filled, rebuilt, values_rows

import dpsql
from dpsql.engines import Exact, Statement
from dpsql.ledger import SQLiteLedger, verify
from dpsql.ledger.record import Entry
from dpsql.ledger.sqlite_files import Sidecars
from dpsql.session import Session

SQL = "SELECT article FROM reads WHERE user_id <> -{} GROUP BY article TOP 2 PRIVATE"
POLICY = dpsql.Policy(dpsql.Budget(1, "1e-6", items=10**5, queries=10**4), {"reads": dpsql.PrivateTable("user_id")})
EVERY = 1 if WHOLE else 5  # of the points of a query at which it is interrupted
Hook = Callable[[Statement, Callable[[Statement], Exact]], Exact]
Tracer = Callable[[FrameType, str, Any], Any]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spent.ledger"


def opened(path: Path, hook: Hook | None = None) -> Session:
    rows = filled(*values_rows({"a": 900, "b": 800}))
    return rebuilt(dpsql.connect(rows, policy=POLICY, ledger=path), engine=hook)


def entries_in(path: Path) -> tuple[Entry, ...]:
    assert verify(path)
    with contextlib.closing(SQLiteLedger.open(path)) as ledger:
        return ledger.entries()


def assert_paid_in_full(path: Path) -> None:
    """One query was asked; its worst case is spent, or held for good."""
    (entry,) = entries_in(path)
    assert entry.settlement is None or entry.settlement.loss == entry.worst_case.refundable


# interrupts


class Interrupting:
    """Traces the ledger and the session, and interrupts at the one point but so many where a signal may be noticed.

    That is after a call, in whatever frame: also between the end of what `with` enters and its block.
    """

    def __init__(self, left: int) -> None:
        self.left = left
        self._called: set[FrameType] = set()  # whose last step was a call

    def __call__(self, frame: FrameType, _event: str, _argument: object) -> Tracer | None:
        if not is_watched(frame.f_code.co_filename):
            return None
        frame.f_trace_opcodes = True
        names = names_of(frame.f_code)

        def step(frame: FrameType, event: str, _argument: object) -> Tracer:
            if event == "opcode":
                self._step(frame, names[frame.f_lasti])
            return step

        return step

    def _step(self, frame: FrameType, now: str) -> None:
        if frame in self._called:
            self._called.remove(frame)
            if now != "PUSH_EXC_INFO":  # where the call has raised, no signal is noticed
                self.left -= 1
                if self.left == -1:
                    self._called.clear()  # it holds frames, and these what they hold
                    sys.settrace(None)
                    raise KeyboardInterrupt
        if now.startswith("CALL"):
            self._called.add(frame)


@functools.cache
def is_watched(file: str) -> bool:
    home = Path(dpsql.__file__).parent
    return file.startswith(
        (str(home / "session.py"), str(home / "charged_release.py"), str(home / "ledger"), contextlib.__file__)
    )


@functools.cache
def names_of(code: CodeType) -> list[str]:
    """Return the name of each byte's operation: every look at a code object copies its bytes."""
    return [dis.opname[byte] for byte in code.co_code]


def interrupt_everywhere(path: Path) -> None:
    """Interrupt one query after another, each at a later point, until one comes through."""
    asked: list[int] = []
    kept: list[KeyboardInterrupt] = []  # as a notebook keeps the last

    def noting(statement: Statement, execute: Callable[[Statement], Exact]) -> Exact:
        asked.append(point)
        return execute(statement)

    session = opened(path, noting)
    ledger = session._dependencies.ledger
    ledger._connection.execute("PRAGMA synchronous = OFF")  # the power stays on
    shown: list[int] = []
    sys._getframe().f_trace_opcodes = True  # Python 3.12 looks for it when tracing starts
    for point in range(0, 10_000, EVERY):
        interrupting = Interrupting(point)
        sys.settrace(interrupting)
        try:
            session.sql(SQL.format(point))
            shown.append(point)
        except KeyboardInterrupt as interrupt:
            kept.append(interrupt)
        finally:
            sys.settrace(None)
        assert not ledger._lock.locked()
        assert not ledger._connection.in_transaction
        if interrupting.left >= 0:
            break
    assert sys.exception() is None
    session.close()
    entries = {entry.query: entry for entry in entries_in(path)}
    assert len(kept) * EVERY == point > 200
    assert shown == [point]
    assert entries[SQL.format(point)].settlement is not None
    assert {SQL.format(number) for number in asked} <= set(entries)
    states = {entry.settlement.digest[:11] if entry.settlement else "held" for entry in entries.values()}
    assert {"held", "interrupted"} < states
    assert len(entries) < len(kept)  # those before the reservation cost nothing


PROGRAM = """
import signal, sys, threading, time
from pathlib import Path
import dpsql
from dpsql.engines import Statement
from support.session_kit import WatchedLedger, rebuilt
from properties.session.test_session_interrupts import SQL, opened

signal.signal(signal.SIGINT, signal.default_int_handler)

def say(*words):
    print(*words, flush=True)
"""
FAR_TOO_LONG = """
def hook(statement, execute):
    say("asked")
    return execute(Statement("SELECT sum(a.range * b.range) FROM range(1000000) a, range(1000000) b"))
session = opened(Path(sys.argv[1]), hook)
try:
    say(session.sql(SQL.format(1)))
except KeyboardInterrupt:
    say("interrupted", session.budget.rho.reserved)
session.close()
"""
SETTLING = """
session = opened(Path(sys.argv[1]))
waiting = rebuilt(session, ledger=WatchedLedger(session._dependencies.ledger, before=lambda: (say("settling"), input()),
                                                after=lambda: None))
for number in (1, 2):
    try:
        waiting.sql(SQL.format(number))
        say("shown")
    except KeyboardInterrupt:
        say("interrupted")
session.close()
"""
RESERVING = """
session = opened(Path(sys.argv[1]))
say("ready")
input()
for number in (1, 2):
    try:
        threading.Timer(0.2, lambda: say("waiting")).start()
        session.sql(SQL.format(number))
        say("shown")
    except KeyboardInterrupt:
        say("interrupted")
session.close()
"""
EVERYWHERE = """
from properties.session.test_session_interrupts import interrupt_everywhere
interrupt_everywhere(Path(sys.argv[1]))
say("done")
"""
ABANDONED = """
def hook(statement, execute):
    say("asked")
    time.sleep(1000)
session = opened(Path(sys.argv[1]), hook)
threading.Thread(target=lambda: say(session.sql(SQL.format(1))), daemon=True).start()
input()
"""


def start(program: str, path: Path) -> Child:
    root, tests = Path(dpsql.__file__).parents[1], Path(__file__).parents[2]
    return Child(
        [sys.executable, "-c", PROGRAM + program, str(path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(root), str(tests)))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_an_interrupt_at_any_point_leaves_nothing_held_up_and_nothing_shown_unpaid(path: Path) -> None:
    with start(EVERYWHERE, path) as process:  # of its own: here, what other tests left behind might be interrupted
        assert process.communicate(timeout=250)[0] == "done\n"


def test_ctrl_c_during_a_long_statement_is_paid_in_full(path: Path) -> None:
    with start(FAR_TOO_LONG, path) as process:
        assert process.stdout.readline() == "asked\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60)[0] == "interrupted 0\n"
    assert process.returncode == 0
    (entry,) = entries_in(path)
    assert (entry.settlement.digest, entry.settlement.loss) == ("interrupted", entry.worst_case.refundable)


def test_ctrl_c_while_a_settlement_waits_is_paid_in_full_and_the_next_query_goes_on(path: Path) -> None:
    with start(SETTLING, path) as process:
        assert process.stdout.readline() == "settling\n"
        with Sidecars(path).turn():
            process.stdin.write("\n")
            process.stdin.flush()
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == "interrupted\n"
        assert process.communicate("\n", timeout=60)[0] == "settling\nshown\n"
    first, second = entries_in(path)
    assert first.settlement is None
    assert second.settlement is not None


def test_ctrl_c_while_a_reservation_waits_costs_nothing_and_the_next_query_goes_on(path: Path) -> None:
    with start(RESERVING, path) as process:
        assert process.stdout.readline() == "ready\n"
        with Sidecars(path).turn():
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "waiting\n"
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == "interrupted\n"
        assert "shown\n" in process.communicate(timeout=60)[0]
    (entry,) = entries_in(path)
    assert entry.query == SQL.format(2)


def test_a_thread_that_its_process_left_behind_is_paid_in_full(path: Path) -> None:
    with start(ABANDONED, path) as process:
        assert process.stdout.readline() == "asked\n"
        assert process.communicate("\n", timeout=60)[0] == ""
    assert process.returncode == 0
    (entry,) = entries_in(path)
    assert entry.settlement is None


# cancelled clients


@pytest.mark.parametrize("how", ["cancel", "time out"])
def test_a_cancelled_task_is_paid(path: Path, how: str) -> None:
    asked, gate = threading.Event(), threading.Event()

    def slow(statement: Statement, execute: Callable[[Statement], Exact]) -> Exact:
        asked.set()
        assert gate.wait(60)
        return execute(statement)

    session = opened(path, slow)

    async def client() -> None:
        task = asyncio.create_task(asyncio.to_thread(session.sql, SQL.format(1)))
        await asyncio.to_thread(asked.wait, 60)
        if how == "cancel":
            task.cancel()
        try:
            await asyncio.wait_for(task, 0.01)
        finally:
            gate.set()

    with pytest.raises((asyncio.CancelledError, TimeoutError)):
        asyncio.run(client())  # waits for its threads, as a server does
    session.close()
    (entry,) = entries_in(path)
    assert entry.settlement is not None
    assert entry.settlement.loss > 0


# a session that is closed meanwhile


def query_beside(session: Session, act: Callable[[], None]) -> BaseException | None:
    """Run a query in a thread of its own and `act` in this one; return how the query failed, if it did."""
    failures: list[BaseException] = []

    def query() -> None:
        try:
            session.sql(SQL.format(1))
        except BaseException as error:  # noqa: BLE001 - handed on
            failures.append(error)

    thread = threading.Thread(target=query)
    thread.start()
    act()
    thread.join(60)
    assert not thread.is_alive()
    return failures[0] if failures else None


@pytest.mark.parametrize("moment", ["before the engine is asked", "after the engine answered"])
def test_a_session_closed_while_its_query_runs_shows_nothing_and_is_paid_in_full(path: Path, moment: str) -> None:
    asked, closed = threading.Event(), threading.Event()

    def hook(statement: Statement, execute: Callable[[Statement], Exact]) -> Exact:
        exact = execute(statement) if moment.startswith("after") else None
        asked.set()
        assert closed.wait(60)
        return exact if exact is not None else execute(statement)

    session = opened(path, hook)

    def close() -> None:
        assert asked.wait(60)
        session.close()
        closed.set()

    failure = query_beside(session, close)
    assert isinstance(failure, dpsql.LedgerError)
    assert failure.code == "ledger-closed"
    with pytest.raises(dpsql.UsageError):
        session.sql(SQL.format(2))
    assert_paid_in_full(path)


def test_closing_at_any_moment_of_a_query_neither_hangs_nor_shows_what_is_not_paid(path: Path) -> None:
    for attempt in range(0, 20, 2):
        place = path.with_name(f"{attempt}.ledger")
        session = opened(place)
        failure = query_beside(session, lambda session=session, attempt=attempt: closing_late(session, attempt))
        entries = entries_in(place)
        if failure is None:
            assert entries[0].settlement is not None
        else:
            assert isinstance(failure, dpsql.Error)
            assert len(entries) <= 1


def closing_late(session: Session, attempt: int) -> None:
    threading.Event().wait(attempt / 2000)
    session.close()
