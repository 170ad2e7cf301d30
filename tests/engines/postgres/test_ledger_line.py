"""A line to the server of a ledger that breaks, halves a message or falls silent, at any message of all acts.

No charge is lost or doubled, every error says what the tables hold, asking again is free if it was answered, and every
wait ends.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest
from support.child_kit import Child
from support.faulty_line import KINDS, Fault, FaultyLine, faulty_line
from support.fuzzing import WHOLE
from support.postgres_kit import fresh_schema, server
from support.session_kit import filled, values_rows

import dpsql
from dpsql.answer import Answer
from dpsql.ledger import postgres_server, sum_entries
from dpsql.ledger.base import RESERVING, SETTLING, STORED
from dpsql.ledger.postgres_ledger import PostgresLedger, verify
from dpsql.session import Session

PATIENCE = 0.4  # seconds, in place of 30
LONGEST = 6 * PATIENCE + 2 + 3  # a statement, a connection at 2 seconds, and what a loaded machine takes
POLICY = dpsql.Policy(dpsql.Budget(1, "1e-6", items=10**5, queries=10**4), {"reads": dpsql.PrivateTable("user_id")})
COUNT = "SELECT COUNT(DISTINCT user_id) FROM reads WHERE user_id <> -{} PRIVATE"
MESSAGES, BYTES = 600, 200  # of an act at which the line breaks
CLAIMS = {
    "": ("Nothing was charged.",),
    RESERVING: ("may have been charged", "running it again is charged again"),
    SETTLING: ("is charged, in full unless its answer was stored", "EXPLAIN"),
    STORED: ("its answer is stored", "Run it again: it is free."),
}


@pytest.fixture
def line() -> Iterator[FaultyLine]:
    with faulty_line() as line:
        yield line


class Recorded(NamedTuple):
    """Number of reservations of a statement, of those settled, and of those with an answer."""

    reserved: int
    settled: int
    stored: int


@dataclass
class Trial:
    """One ledger behind a faulty line, and what happened to those who asked."""

    line: FaultyLine
    schema: str
    rows: object
    number: int = 0
    messages: int = 0  # of the last act
    bytes: int = 0
    commits: list[int] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    longest: float = 0.0
    false: list[str] = field(default_factory=list)

    def connect(self) -> Session:
        return dpsql.connect(self.rows, policy=POLICY, ledger=self.line.url(self.schema))

    def find(self, query: str) -> Recorded:
        """Return what the tables hold of a statement."""
        statement = (
            f"SELECT count(*), count(s.seq), count(a.entry) FROM {self.schema}.events r "
            f"LEFT JOIN {self.schema}.events s ON s.kind = 'settled' AND {self.schema}.told_entry(s.body) = r.seq "
            f"LEFT JOIN {self.schema}.answers a ON a.entry = r.seq "
            "WHERE r.kind = 'reserved' AND position(%s IN r.body) > 0"
        )
        with server().session() as connection:
            reserved, settled, stored = connection.execute(statement, (f'"{query}"',)).fetchone() or (0, 0, 0)
        return Recorded(int(str(reserved)), int(str(settled)), int(str(stored)))

    def wait_for_server(self) -> None:
        """Wait until the server has ended what clients left behind."""
        deadline = time.monotonic() + 10
        left = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'dpsql' AND state <> 'idle'"
        while server().rows(left):
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def run(self, fault: Fault | None, act: Callable[[], object]) -> object:
        """Return the result of an act, or its error of dpsql, where this happens to the line meanwhile."""
        self.line.set(fault)
        began = time.monotonic()
        try:
            with pytest.MonkeyPatch.context() as patience:
                patience.setattr(postgres_server, "WAIT", PATIENCE)
                patience.setitem(postgres_server._DEFAULTS, "connect_timeout", "2")
                return act()
        except dpsql.Error as error:
            return error
        finally:
            self.longest = max(self.longest, time.monotonic() - began)
            self.messages, self.bytes, self.commits = self.line.messages, self.line.bytes, [*self.line.commits]
            self.line.lift()
            self.wait_for_server()


@pytest.fixture
def trial(line: FaultyLine) -> Iterator[Trial]:
    trial = Trial(line, fresh_schema(), filled(*values_rows({"a": 900, "b": 800})))
    with trial.connect():  # makes the ledger
        pass
    yield trial
    url = server().url(trial.schema)
    verify(url)
    with closing(PostgresLedger.open(url)) as ledger:
        assert ledger.state() == sum_entries(ledger.entries())
    print(f"{sum(trial.outcomes.values())} faults, longest wait {trial.longest:.1f} s: {dict(trial.outcomes)}")  # noqa: T201 - for the whole run
    assert not trial.false
    assert trial.longest < LONGEST


def list_faults(trial: Trial) -> list[Fault]:
    """Return the faults at all messages of the last act, each kind at every statement, and at bytes within them.

    A short run has those before, at and after its commits, and a few of the others.
    """
    first, *others = KINDS
    kinds = [(first, others[at % len(others)]) for at in range(trial.messages)]
    every = max(1, trial.messages // MESSAGES)  # a long history has a message for each event
    found = [Fault(kind, message=at) for at in range(0, trial.messages, every) for kind in kinds[at]]
    found += [Fault("reset", byte=at) for at in range(0, trial.bytes, max(97, trial.bytes // BYTES))]
    if WHOLE:
        return found
    cut = [Fault("reset", message=at + after) for at in trial.commits for after in (-4, 0, 1)]
    return cut + found[7 :: len(found) // 6]


def check_words(outcome: object, found: Recorded, *, most: int) -> str:
    """Compare an answer or an error with what the tables hold of its statement; return what it said."""
    reserved, settled, stored = found
    assert settled == stored <= reserved <= most
    if isinstance(outcome, Answer):
        assert stored == most
        return "answered"
    assert isinstance(outcome, dpsql.LedgerError)
    text = str(outcome)
    assert "nothing was recorded" not in text
    is_whole = outcome.charge != STORED or "asked before" not in text
    assert not is_whole or all(words in text for words in CLAIMS[outcome.charge]), text
    truth = {
        "": reserved == 0,
        RESERVING: reserved - settled <= 1,
        SETTLING: reserved >= 1 and reserved - settled <= 1,
        STORED: reserved == stored == most if is_whole else 0 < reserved == stored < most,
    }
    assert truth[outcome.charge], (text, found)
    return f"{outcome.code} {outcome.charge}".strip()


def ask_behind(trial: Trial, session: Session, fault: Fault | None, *, queries: int) -> None:
    """Ask once while the line breaks, compare the words with the tables, and ask again on a line that holds."""
    trial.number += queries
    parts = [f"({COUNT.format(trial.number + at)})" for at in range(queries)]
    sql = "SELECT " + " / ".join(parts) if queries > 1 else parts[0][1:-1]
    outcome = trial.run(fault, lambda: session.sql(sql))
    before = trial.find(sql)
    again, after = session.sql(sql), trial.find(sql)
    try:
        trial.outcomes[check_words(outcome, before, most=queries)] += 1
        assert after.reserved - before.reserved == queries - before.stored
        assert after.stored == queries
        assert again.receipt.replayed == (before.stored == queries)
    except AssertionError as error:
        trial.false.append(f"{fault}: {outcome}, {before}, then {after}: {error}")


@pytest.mark.parametrize("queries", [1, 2])
def test_an_ask_on_a_line_that_breaks_is_charged_once_and_says_so(trial: Trial, queries: int) -> None:
    with trial.connect() as session:
        for _ in range(2):  # the second on a connection that is there
            ask_behind(trial, session, None, queries=queries)
        for fault in list_faults(trial)[:: 3 * queries - 2 if WHOLE else 9 * queries - 8]:
            ask_behind(trial, session, fault, queries=queries)
    assert queries > 1 or {told.partition(" ")[2] for told in trial.outcomes} == set(CLAIMS)


def read_behind(trial: Trial, session: Session, fault: Fault | None, *, read: Callable[[Session], object]) -> None:
    """Read what the ledger holds, and what it has not said since the last charge."""
    trial.number += 1
    session.sql(COUNT.format(trial.number))
    outcome = trial.run(fault, lambda: read(session))
    trial.outcomes[tell(outcome)] += 1
    if says_charged(outcome):
        trial.false.append(f"{fault}: {outcome}")


READS: dict[str, Callable[[Session], object]] = {
    "replay": lambda session: session.replay(COUNT.format(0)),
    "repeat": lambda session: session.sql(COUNT.format(0) + " "),
    "budget": lambda session: session.budget,
    "history": lambda session: session.history,
    "explain": lambda session: session.sql("EXPLAIN " + COUNT.format(1)),
    "show": lambda session: session.sql("SHOW BUDGET"),
}


def test_a_read_on_a_line_that_breaks_says_nothing_of_a_charge(trial: Trial) -> None:
    with trial.connect() as session:
        session.sql(COUNT.format(0))
        trial.number = 1
        for read in READS.values():
            read_behind(trial, session, None, read=read)
            for fault in list_faults(trial)[:: 7 if WHOLE else 9]:
                read_behind(trial, session, fault, read=read)


def test_connecting_on_a_line_that_breaks_says_nothing_of_a_charge(trial: Trial) -> None:
    trial.run(None, lambda: trial.connect().close())
    for fault in list_faults(trial)[:: 3 if WHOLE else 2]:
        outcome = trial.run(fault, lambda: trial.connect().close())
        trial.outcomes[tell(outcome)] += 1
        if says_charged(outcome):
            trial.false.append(f"{fault}: {outcome}")


def tell(outcome: object) -> str:
    return outcome.code if isinstance(outcome, dpsql.Error) else "answered"


def says_charged(outcome: object) -> bool:
    return isinstance(outcome, dpsql.Error) and "charged" in str(outcome).replace("Nothing was charged.", "")


def test_all_who_wait_on_a_line_that_stays_silent_are_told_soon(trial: Trial) -> None:
    with trial.connect() as session, ThreadPoolExecutor(6) as threads:
        session.sql(COUNT.format(1))

        def ask() -> list[object]:
            asking = [threads.submit(act, session) for act in (*READS.values(),)]
            return [each.exception() for each in asking]

        failures = trial.run(Fault("silent", message=0, lasting=True), ask)
        assert isinstance(failures, list)
        assert {each.code for each in failures} == {"ledger-unreachable"}
        assert session.budget.rho.reserved == 0
        trial.outcomes["silent"] += 1


WAITING = """
import signal
import sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite that runs in the background ignores it
import dpsql
from support.session_kit import filled, values_rows
policy = dpsql.Policy(dpsql.Budget(1, "1e-6"), {"reads": dpsql.PrivateTable("user_id")})
session = dpsql.connect(filled(*values_rows({"a": 900})), policy=policy, ledger=sys.argv[1])
print("ready", flush=True)
input()
try:
    session.budget
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_ends_the_wait_for_a_silent_line(line: FaultyLine) -> None:
    words = [sys.executable, "-c", WAITING, line.url(fresh_schema())]
    path = {"PYTHONPATH": os.pathsep.join((str(Path(dpsql.__file__).parents[1]), str(Path(__file__).parents[2])))}
    with Child(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **path}) as process:
        assert process.stdout.readline() == "ready\n"
        fault = Fault("silent", message=0, lasting=True)
        line.set(fault)
        process.stdin.write("\n")
        process.stdin.flush()
        while not fault.hit:
            time.sleep(0.01)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30)[0] == "interrupted\n"
        assert time.monotonic() - began < 5
