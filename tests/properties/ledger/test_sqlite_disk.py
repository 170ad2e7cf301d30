"""A disk that is full, or fails at any step: refused, nothing acknowledged is lost, and it goes on once it can."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from support.disk import Disk, Fault, usable
from support.ledger_kit import ASK, BUDGET, ITEM, TOTAL, code_of, opened
from support.ledger_programs import start

from dpsql.errors import LedgerError
from dpsql.ledger import Request, SQLiteLedger, sum_entries, verify

REFUSED = {"ledger-failed", "ledger-disk-full", "ledger-cannot-open"}
reachable = pytest.mark.skipif(not usable, reason="this Python keeps its SQLite to itself")


class Acts:
    """Acts upon one ledger whose disk may fail; what was acknowledged is noted."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.held: set[int] = set()
        self.settled: set[int] = set()
        self.ledger: SQLiteLedger | None = None

    def reserve(self) -> None:
        self.open().held.add(self.ledger.reserve(ASK).number)

    def settle(self) -> None:
        number, reservation = self.last
        reservation.settle(Fraction("0.25"), "d", answer=b"answer")
        self.settled.add(number)

    def ask(self) -> None:
        reservation = self.open().ledger.reserve(ASK)
        self.held.add(reservation.number)
        self.last = reservation.number, reservation

    def open(self) -> Acts:
        if self.ledger is None:
            self.ledger = SQLiteLedger(self.path, BUDGET, total=TOTAL)
        return self

    def close(self) -> None:
        if self.ledger is not None:
            ledger, self.ledger = self.ledger, None
            ledger.close()

    def checkpoint(self) -> None:
        """Reserve, and let the log be copied into the file right after the commit."""
        self.ledger._connection.execute("PRAGMA wal_autocheckpoint = 1")
        self.reserve()

    def check(self) -> None:
        """Hold what stands in the file, now and opened again, against what was acknowledged."""
        self.ask()
        self.settle()
        self.close()
        with contextlib.closing(SQLiteLedger.open(self.path)) as ledger:
            entries = ledger.entries()
            reserved = [event.seq for event in ledger.events() if event.kind == "reserved"]
            assert self.held <= set(reserved)
            settled = {seq for seq, entry in zip(reserved, entries, strict=True) if entry.settlement}
            assert self.settled <= settled
            assert len(set(reserved) - self.held) + len(settled - self.settled) <= 1  # the one that failed may stand
            assert ledger.state() == sum_entries(entries)
        assert verify(self.path)


PREPARED: dict[str, Callable[[Acts], None]] = {
    "open": Acts.close,  # there is no file yet
    "open again": lambda acts: (acts.ask(), acts.settle(), acts.close()),
    "reserve": Acts.ask,
    "settle": Acts.ask,
    "checkpoint": Acts.ask,
    "close": Acts.ask,
}


def code_if_refused(act: Callable[[], None]) -> str | None:
    try:
        act()
    except LedgerError as error:
        return error.code
    return None


@reachable
@pytest.mark.parametrize(("moment", "lasting"), [("before", False), ("before", True), ("after", False)])
@pytest.mark.parametrize("act", PREPARED)
def test_a_disk_that_fails_at_any_step_refuses_and_loses_nothing(
    tmp_path: Path, act: str, moment: str, lasting: bool
) -> None:
    seen: set[str] = set()
    for step in range(1000):
        acts, fault = Acts(tmp_path / f"{step}.ledger"), Fault(moment, lasting=lasting)
        with Disk(fault):
            PREPARED[act](acts)
            fault.arm(step)
            code = code_if_refused(getattr(acts, act.removesuffix(" again")))
            fault.lift()
            assert code in {None, *REFUSED}
            assert code is None or fault.failed
            acts.check()
        seen |= set(fault.failed)
        if not fault.failed:
            break
    assert step > 0 or (act, moment) == ("open again", "after")  # which writes nothing
    if act in {"reserve", "settle"}:
        assert {"write log", "sync log"} <= seen


@reachable
def test_a_flush_that_failed_undoes_the_reservation_for_all_who_have_the_ledger_open(path: Path) -> None:
    fault = Fault("after", lasting=False)  # the commit is in the log, and nobody may count on it
    with Disk(fault), opened(path) as one, opened(path) as other:
        one.reserve(ASK)
        before = one.state()
        fault.arm(6)
        assert code_of(lambda: one.reserve(ASK)) == "ledger-failed"
        assert fault.failed == ["sync log"]
        assert one.state() == other.state() == before
        other.reserve(Request("in its place", ITEM))
        assert [entry.query for entry in one.entries()] == ["q", "in its place"]
    assert verify(path).events == 3


# the files beside it


@pytest.mark.parametrize("sidecar", [".lock", ".mark"])
def test_a_directory_in_the_place_of_a_file_beside_it_refuses_uncharged(made: Path, sidecar: str) -> None:
    beside = Path(f"{made}{sidecar}")
    with opened(made) as ledger:
        held, before = ledger.reserve(ASK), ledger.state()
        content = beside.read_bytes()
        beside.unlink()
        beside.mkdir()
        assert code_of(lambda: ledger.reserve(ASK)) == "ledger-cannot-open"
        assert code_of(lambda: held.settle(Fraction(0), "d")) == "ledger-cannot-open"
        assert code_of(lambda: SQLiteLedger(made, BUDGET, total=TOTAL)) == "ledger-cannot-open"
        assert ledger.state() == before
        beside.rmdir()
        beside.write_bytes(content)
        held.settle(Fraction(1), "d")
        assert ledger.state().reserved == Fraction(1)


EXHAUSTED = """
import resource
ledger = opened()
held = ledger.reserve(ASK)
usual = resource.getrlimit(resource.RLIMIT_NOFILE)
free = os.open('/dev/null', os.O_RDONLY)
os.close(free)
for more in range(3):
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + more, usual[1]))
    for act in (lambda: ledger.reserve(ASK), lambda: held.settle(ITEM.refundable, 'd'), opened):
        try:
            act()
            say('done')
        except Error as error:
            say(error.code)
resource.setrlimit(resource.RLIMIT_NOFILE, usual)
say(len(ledger.entries()))
"""


def test_without_descriptors_nothing_is_granted(path: Path) -> None:
    with start(EXHAUSTED, path) as process:
        words = process.communicate(timeout=60)[0].split()
    assert process.returncode == 0
    assert words[:3] == ["ledger-cannot-open"] * 3
    assert set(words[:-1]) <= {"done", "already-settled", "ledger-cannot-open"}
    with opened(path) as ledger:
        assert len(ledger.entries()) == int(words[-1])
    assert verify(path)


ORDINARY_USER = 65534
ORDINARY = f"""
if os.geteuid() == 0:
    os.setgid({ORDINARY_USER})
    os.setuid({ORDINARY_USER})
from contextlib import closing
for act in (opened, lambda: SQLiteLedger.open(sys.argv[1])):
    try:
        with closing(act()) as ledger:
            ledger.reserve(ASK)
            say('reserved')
    except Error as error:
        say(error.code)
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """Return a folder that an ordinary user may enter, who may not enter those of a superuser's tests."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with opened(folder / "spent.ledger") as ledger:
            ledger.reserve(ASK)
        yield folder
        folder.chmod(0o755)


def own(folder: Path, *, mode: int, without: str = "") -> None:
    """Give the folder and its files to the ordinary user, but not the right to write to `without`."""
    for file in (*folder.iterdir(), folder):
        if os.geteuid() == 0:
            os.chown(file, ORDINARY_USER, ORDINARY_USER)
        file.chmod(0o400 if without and file.name.endswith(without) else 0o600)
    folder.chmod(mode)


@pytest.mark.parametrize(
    ("mode", "without", "codes"),
    [
        (0o755, "", {"reserved"}),
        (0o555, "", {"ledger-cannot-open", "ledger-read-only"}),
        (0o755, ".ledger", {"ledger-read-only"}),
        (0o755, ".lock", {"ledger-read-only"}),
        (0o000, "", {"ledger-cannot-open", "ledger-read-only", "ledger-moved"}),
    ],
)
def test_what_an_ordinary_user_may_not_write_is_refused(place: Path, mode: int, without: str, codes: set[str]) -> None:
    path = place / "spent.ledger"
    own(place, mode=mode, without=without)
    with start(ORDINARY, path) as process:
        words = process.communicate(timeout=60)[0].split()
    assert process.returncode == 0
    assert len(words) == 2
    assert set(words) <= codes
    place.chmod(0o755)
    assert verify(path).events == (4 if "reserved" in codes else 2)


def test_a_mark_that_may_not_be_written_notices_less_and_refuses_the_next_opening(place: Path) -> None:
    path = place / "spent.ledger"
    own(place, mode=0o755, without=".mark")
    with start(ORDINARY, path) as process:
        words = process.communicate(timeout=60)[0].split()
    assert words == ["reserved", "ledger-read-only"]
    assert verify(path).events == 3
