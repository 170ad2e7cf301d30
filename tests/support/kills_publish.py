"""kill -9 at every point of a publication: it is there and paid, or it is not, and the next run finishes it.

    PYTHONPATH=.:tests python tests/support/kills_publish.py --kills 1000

A nursery has everything imported and forks victims, as that of `kills.py`. Each victim publishes a table, or refreshes
one, on a ledger of its own, and once its session is open kills itself at a line of dpsql, or before or after what
SQLite asks of the disk. What it left behind is read, and the same act is run again to its end.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import duckdb
from support import kills
from support.child_kit import Child
from support.disk import Disk, usable

from dpsql import curator
from dpsql.errors import LedgerError, Refusal
from dpsql.ledger import SQLiteLedger, verify
from dpsql.publications import Publication, PublicationRequest

POLICY = """\
[budget]
epsilon = 10.0
delta = 1e-6
items = 60
[tables.reads]
privacy_unit = "user_id"
"""
ASK = "SELECT article, COUNT(DISTINCT user_id) AS readers FROM reads GROUP BY article TOP 2 PRIVATE"
ACTS = ("publish", "refresh")
WATCHED = (*kills.WATCHED, *(str(kills.HOME / part) for part in ("publications.py", "curator.py")))


class Steps(kills.Steps):
    """Steps of a publication, which has further files, from when its session is open."""

    def start(self) -> None:
        self.on = True

    def line(self, frame: FrameType, event: str, _argument: object) -> object:
        if not frame.f_code.co_filename.startswith(WATCHED):
            return None
        if self.on and event in {"line", "return"}:
            self.take()
        return self.line


def act(data: Path, ledger: Path, what: str, *, begin: Callable[[], None] = lambda: None) -> Publication:
    """Publish a table on a ledger, or refresh it; call `begin` before anything can be charged."""
    request = PublicationRequest("weekly", ASK if what == "publish" else None)
    opened = curator.plan_publication(data / "policy.toml", request, database=data / "events.duckdb", ledger=ledger)
    with opened as plan:
        begin()
        return plan.publish()


# the victim's side


def live(data: str, ledger: str, *, what: str, kind: str, at: int) -> None:
    """Do it until killed; say how many steps it had."""
    steps = Steps(kind, at)
    with Disk(steps.disk) if kind == "disk" else nullcontext():
        if kind == "line":
            sys.settrace(steps.line)
        act(Path(data), Path(ledger), what, begin=steps.start)
        steps.on = False
    kills.say("steps", steps.count)


def nurse() -> None:
    """Bear one victim for each line that is read, and say when it is gone."""
    with tempfile.TemporaryDirectory() as folder:
        data = data_in(Path(folder) / "warm")
        act(data, data / "ledger.sqlite", "publish")  # so that victims find everything imported
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            try:
                live(order.pop("data"), order.pop("ledger"), **order)
            except BaseException as error:  # noqa: BLE001 - told, and then found by who hears it
                kills.say("failed", repr(error))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        kills.say("gone", os.waitstatus_to_exitcode(status))


# the killer's side


@dataclass(frozen=True)
class Left:
    """What is in a ledger: entries, those of them that are settled, what they cost, and published tables."""

    entries: int = 0
    settled: int = 0
    cost: object = 0
    tables: int = 0


@dataclass
class Told:
    """How many victims were killed, by what they did, and how often they left what behind."""

    kills: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)


def data_in(folder: Path) -> Path:
    """Put the data and the policy into a folder."""
    folder.mkdir()
    with duckdb.connect(str(folder / "events.duckdb")) as connection:
        connection.execute(
            "CREATE TABLE reads AS SELECT u AS user_id, 'a' || a AS article FROM range(3) x(a), range(900) y(u)"
        )
    (folder / "policy.toml").write_text(POLICY)
    return folder


def read(path: Path) -> Left:
    """Return what a ledger holds; nothing of one that was not made yet."""
    try:
        with closing(SQLiteLedger.open(path)) as ledger:
            entries, state = ledger.entries(), ledger.state()
            settled = [entry for entry in entries if entry.settlement is not None]
            return Left(len(entries), len(settled), state.spent + state.reserved, len(ledger.tables()[1]))
    except LedgerError as error:
        if error.code != "ledger-missing":
            raise
    return Left()


def order(process: subprocess.Popen[str], **words: object) -> tuple[bool, int]:
    """Let a victim live; return whether it was killed, and how many steps it counted."""
    process.stdin.write(
        json.dumps({name: str(word) if isinstance(word, Path) else word for name, word in words.items()}) + "\n"
    )
    process.stdin.flush()
    steps = 0
    while True:
        word, rest = process.stdout.readline().split(maxsplit=1)
        if word == "gone":
            return int(rest) == -signal.SIGKILL, steps
        if word == "failed":
            raise AssertionError(rest)
        steps = int(rest)


def kill_many(folder: Path, number: int) -> Told:
    """Kill so many victims at steps spread over all of their way; raise AssertionError where a promise is broken."""
    told, data = Told(), data_in(folder / "data")
    made = {what: folder / f"{what}.sqlite" for what in ACTS}
    act(data, made["refresh"], "publish")
    curator.bump(made["refresh"], note="other data")
    paths = os.pathsep.join((str(kills.HOME.parent), str(Path(__file__).parents[1])))
    environment = {**os.environ, "PYTHONPATH": paths, "TMPDIR": str(folder)}
    command = [sys.executable, __file__, "--nurse"]
    with Child(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        ways = [(what, kind) for what in ACTS for kind in ("line", *(["disk"] if usable else []))]
        for what, kind in ways:
            share = number // len(ways)
            place = _copied(made[what], folder / f"count-{what}-{kind}.sqlite")
            _, steps = order(process, data=data, ledger=place, what=what, kind=kind, at=-1)
            assert steps > 0
            for step in range(share):
                # from the middle of the first part to that of the last, so that the last steps are taken as well
                at = 1 + (2 * step + 1) * steps // (2 * share) if share < steps else 1 + step % steps
                place = _copied(made[what], folder / f"{what}-{kind}-{step}.sqlite")
                before = read(place)
                killed, _ = order(process, data=data, ledger=place, what=what, kind=kind, at=at)
                told.kills[what] += killed
                told.left[check(data, place, what, before)] += 1
        process.stdin.close()
    return told


def _copied(source: Path, place: Path) -> Path:
    """Return a ledger with the content of another, which may not be there."""
    if source.exists():
        curator.back_up(source, place)
    return place


def check(data: Path, path: Path, what: str, before: Left) -> str:
    """Hold what a victim left behind against what is promised, and run its act again; return what was left."""
    left = read(path)
    entries, tables = left.entries - before.entries, left.tables - before.tables
    settled = left.settled - before.settled
    assert 0 <= settled <= entries <= 1, "charged twice"
    assert 0 <= tables <= settled, "published without being paid"
    if path.exists() and left != Left():
        verify(path)
    if what == "publish" and tables:
        assert _is_taken(data, path), "the name is not taken, and a table has it"
    else:
        assert act(data, path, what).is_current == bool(tables)
    after = read(path)
    verify(path)
    assert after.tables == before.tables + 1, "the next run has not finished it"
    if settled:  # the answer is stored: the next run charges nothing
        assert (after.entries, after.cost) == (left.entries, left.cost), "the next run charged again"
    else:  # a charge that was reserved for an answer that nobody drew stays, as that of any query
        assert after.entries == left.entries + 1
    return "published" if tables else "settled" if settled else "reserved" if entries else "nothing"


def _is_taken(data: Path, path: Path) -> bool:
    try:
        act(data, path, "publish")
    except Refusal as error:
        return error.code == "name-taken"
    return False


def main() -> None:
    """Kill as many as the command line says, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--nurse", action="store_true", help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.nurse:
        nurse()
        return
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        told = kill_many(Path(folder), wanted.kills)
    kills.say(f"{told.kills.total()} victims killed in {time.monotonic() - began:.0f} s:", told)


if __name__ == "__main__":
    main()
