"""kill -9 at every point between reserve and answer; then what was shown and acknowledged is held against the ledger.

    PYTHONPATH=.:tests python tests/support/kills.py --kills 10000

A nursery has everything imported and forks victims. A victim opens a session on real files, asks queries, and says what
it was granted and shown; it kills itself at a step of its way (a line of dpsql, or before or after what SQLite asks of
the disk), or is killed from outside at any moment.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from types import FrameType

import duckdb
from support.child_kit import Child
from support.disk import Disk, usable
from support.session_kit import rebuilt

import dpsql
from dpsql.accounting import BudgetVector
from dpsql.engines import Exact, Statement
from dpsql.ledger import Request, Shortfall, SQLiteLedger, sum_entries, verify

__all__ = ["Kills", "kill_many"]

POLICY = """\
ledger = "ledger.sqlite"
[budget]
epsilon = 1.0
delta = 1e-6
items = 1000
queries = 1000
[tables.reads]
privacy_unit = "user_id"
budget_by = "country"
"""
BATCH = 40
SOON = {"kind": "time", "at": -1, "opening": False, "pause": 0.02}
HOME = Path(dpsql.__file__).parent
WATCHED = tuple(
    str(HOME / part)
    for part in ("session.py", "charged_release.py", "ledger", "engines", "plan/release.py", "report/stored_tables.py")
)


def text_of(number: int) -> str:
    """Return a query that no other has: two of three are charged to the units of a country, the third to all.

    Its answer has the name q and the number.
    """
    value = f"country = 'c{number % 3}' AND " if number % 3 else ""
    clause = f"TOP 2 PRIVATE WITH (name = 'q{number}')"
    return f"SELECT article FROM reads WHERE {value}user_id <> -{number} GROUP BY article {clause}"


# the victim's side


class Steps:
    """Counts the steps of a victim from where it is told to; at the one that was ordered, the victim dies."""

    def __init__(self, kind: str, at: int) -> None:
        self.kind, self.at, self.count, self.on = kind, at, 0, False

    def take(self) -> None:
        self.count += 1
        if self.count == self.at:
            os.kill(os.getpid(), signal.SIGKILL)

    def disk(self, _moment: str, _act: str, _file: str) -> int:
        if self.on and self.kind == "disk":
            self.take()
        return 0

    def line(self, frame: FrameType, event: str, _argument: object) -> Callable[..., object] | None:
        if not frame.f_code.co_filename.startswith(WATCHED):
            return None
        if self.on and event in {"line", "return"}:
            self.take()
        return self.line


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def live(folder: str, number: int, *, kind: str, at: int, opening: bool) -> None:
    """Ask queries until killed; with steps to count, one query, and say how many steps it had."""
    steps = Steps(kind, at)

    def asked(statement: Statement, execute: Callable[[Statement], Exact]) -> Exact:
        say("granted", number)
        return execute(statement)

    with Disk(steps.disk) if kind == "disk" else nullcontext():
        if kind == "line":
            sys.settrace(steps.line)
        steps.on = opening
        session = rebuilt(dpsql.connect(f"{folder}/events.duckdb", policy=f"{folder}/policy.toml"), engine=asked)
        steps.on = True
        while True:
            answer = session.sql(text_of(number))
            say("shown", number, answer.receipt.loss.rho.value)
            if kind != "time":
                say("steps", steps.count)
                return
            number += 1


def nurse() -> None:
    """Bear one victim for each line that is read, and say when it is gone."""
    with tempfile.TemporaryDirectory() as folder:
        place = data_in(Path(folder) / "warm")
        with dpsql.connect(place / "events.duckdb", policy=place / "policy.toml") as session:
            session.sql(text_of(0))  # so that victims find everything imported
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            say("born", os.getpid())
            try:
                live(order.pop("folder"), order.pop("number"), **order)
            except BaseException as error:  # noqa: BLE001 - told, and then found by who hears it
                say("failed", repr(error))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        say("gone", os.waitstatus_to_exitcode(status))


# the killer's side


@dataclass
class Heard:
    """What victims on one ledger said before they died."""

    granted: set[int] = field(default_factory=set)
    shown: dict[int, Fraction] = field(default_factory=dict)


@dataclass
class Kills:
    """How often a victim was killed, by the kind of moment, and what had been said by then."""

    kills: Counter[str] = field(default_factory=Counter)
    granted: int = 0
    shown: int = 0
    entries: int = 0
    settled: int = 0


class Nursery:
    """A process that bears victims in a folder, and everything that one of them said."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.number = 0

    def victim(self, folder: Path, heard: Heard, *, pause: float = 0, **order: object) -> tuple[bool, int]:
        """Let one live; return whether it was killed and how many steps it counted. With a `pause`, kill it then."""
        self.number += 1000
        self.process.stdin.write(json.dumps({"folder": str(folder), "number": self.number, **order}) + "\n")
        self.process.stdin.flush()
        steps = 0
        while True:
            word, *rest = self.process.stdout.readline().split(maxsplit=1)
            if word == "gone":
                return int(rest[0]) == -signal.SIGKILL, steps
            if word == "born" and pause:
                time.sleep(pause)
                os.kill(int(rest[0]), signal.SIGKILL)
            elif word == "granted":
                heard.granted.add(int(rest[0]))
            elif word == "shown":
                number, loss = rest[0].split()
                heard.shown[int(number)] = Fraction(loss)
            elif word == "steps":
                steps = int(rest[0])
            elif word == "failed":
                raise AssertionError(rest[0])


@contextmanager
def nursery() -> Iterator[Nursery]:
    """Start a nursery; who is killed leaves the folder behind into which it would spill, in one that goes with it."""
    paths = os.pathsep.join((str(HOME.parent), str(Path(__file__).parents[1])))
    command = [sys.executable, __file__, "--nurse"]
    with (
        tempfile.TemporaryDirectory() as folder,
        Child(
            command,
            env={**os.environ, "PYTHONPATH": paths, "TMPDIR": folder},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        yield Nursery(process)
        process.stdin.close()


def data_in(folder: Path) -> Path:
    """Put the data and the policy into a folder."""
    folder.mkdir()
    with duckdb.connect(str(folder / "events.duckdb")) as connection:
        connection.execute(
            "CREATE TABLE reads AS SELECT u AS user_id, 'a' || a AS article, 'c' || u % 3 AS country "
            "FROM range(5) x(a), range(900) y(u)"
        )
    (folder / "policy.toml").write_text(POLICY)
    return folder


def orders(nursery: Nursery, folder: Path, kills: int, moments: random.Random) -> list[dict[str, object]]:
    """Return as many deaths as wanted: spread over all steps of a query, of an opening, and over time."""
    chosen: list[dict[str, object]] = []
    ways = [("line", False, 5), ("line", True, 1)]
    if usable:
        ways += [("disk", False, 8), ("disk", True, 1)]  # 200 kills take in every step of the disk's
    for kind, opening, part in ways:
        share = kills * part // 20
        _, count = nursery.victim(folder, Heard(), kind=kind, at=-1, opening=opening)
        chosen += [
            {"kind": kind, "at": 1 + (step * count // share if share < count else step % count), "opening": opening}
            for step in range(share)
        ]
    chosen += [
        {"kind": "time", "at": -1, "opening": False, "pause": moments.uniform(0.001, 0.12)}
        for _ in range(kills - len(chosen))
    ]
    moments.shuffle(chosen)
    return chosen


def kill_many(folder: Path, kills: int, *, seed: int = 0) -> Kills:
    """Kill so many victims on ledgers of their own; raise AssertionError at the first thing that is not as promised."""
    moments, told = random.Random(seed), Kills()
    with nursery() as nurse_:
        nurse_.victim(data_in(folder / "first"), Heard(), kind="line", at=-1, opening=False)
        waiting = orders(nurse_, folder / "first", kills, moments)
        for batch in range(0, kills, BATCH):
            place, heard, bystander = data_in(folder / str(batch)), Heard(), None
            for order in waiting[batch : batch + BATCH]:
                killed, _ = nurse_.victim(place, heard, **order)
                told.kills[str(order["kind"])] += killed
                if not killed:  # its way was shorter than that of those before it
                    told.kills["time"] += nurse_.victim(place, heard, **SOON)[0]
                if bystander is None and batch % (2 * BATCH) and heard.granted:
                    bystander = SQLiteLedger.open(place / "ledger.sqlite")  # so that no log is recovered
            if bystander is not None:
                bystander.close()
            check(place / "ledger.sqlite", heard, told)
    return told


def check(path: Path, heard: Heard, told: Kills) -> None:
    """Hold what was heard of victims against the ledger that they left behind."""
    verified = verify(path)
    with closing(SQLiteLedger.open(path)) as ledger:
        entries, state, budget = ledger.entries(), ledger.state(), ledger.budget
        named = {entry.query: entry for entry in entries}
        assert len(named) == len(entries)
        for number in heard.granted:
            assert text_of(number) in named, "an acknowledged reservation is lost"
        for number, loss in heard.shown.items():
            settlement = named[text_of(number)].settlement
            assert settlement is not None, "what was shown is not paid"
            assert settlement.loss == loss, "what was shown is not paid in full"
        stored = {table.name: ledger.read_table(table.number).text for table in ledger.tables()[1]}
        assert stored.keys() >= {f"q{number}" for number in heard.shown}, "what was shown has lost its name"
        assert all(named[text].settlement is not None for text in stored.values()), "what has a name is not paid"
        of_entries = sum_entries(entries)
        assert (state.spent + state.reserved, state.permanent) == (
            of_entries.spent + of_entries.reserved,
            of_entries.permanent,
        )
        assert set(ledger.states()) == {value for entry in entries for value in entry.values}
        for value in ledger.states():
            counting = [entry for entry in entries if not entry.values or value in entry.values]
            lost = ledger.state(values=(value,))
            assert lost.spent + lost.reserved == sum(entry.charged for entry in counting)
            assert lost.permanent == sum(entry.permanent for entry in counting)
        assert state.spent + state.reserved <= budget.refundable
        assert state.permanent <= budget.permanent
        rest = BudgetVector(
            budget.refundable - state.spent - state.reserved,
            budget.permanent - state.permanent,
        )
        ledger.reserve(Request("all that is left", rest))
        try:
            ledger.reserve(Request("more than that", BudgetVector(Fraction(1, 10**30), 0)))
        except Shortfall:
            pass
        else:
            raise AssertionError("more than the total was granted")
    assert verify(path).events == verified.events + 1
    told.granted += len(heard.granted)
    told.shown += len(heard.shown)
    told.entries += len(entries)
    told.settled += sum(entry.settlement is not None for entry in entries)


def main() -> None:
    """Kill as many as the command line says, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--nurse", action="store_true", help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.nurse:
        nurse()
        return
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        told = kill_many(Path(folder), wanted.kills, seed=wanted.seed)
    say(f"{sum(told.kills.values())} of {wanted.kills} victims killed in {time.monotonic() - began:.0f} s:", told)


if __name__ == "__main__":
    main()
