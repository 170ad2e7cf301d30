"""SQLite's own files beside a ledger: one that is taken away under an open ledger ends it, and nothing else does."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest
from support.ledger_kit import ALICE, ASK, ITEM, code_of, opened
from support.ledger_programs import start

from dpsql.accounting import BudgetVector
from dpsql.errors import LedgerError
from dpsql.ledger import Request, SQLiteLedger, verify
from dpsql.ledger import sqlite_ledger as sqlite


def delete(file: Path) -> None:
    file.unlink()


def move(file: Path) -> None:
    file.rename(file.with_name("elsewhere"))


def replace(file: Path) -> None:
    copy = file.with_name("copy")
    shutil.copy(file, copy)
    copy.replace(file)


ENDS = [delete, move, replace]


@pytest.mark.parametrize("change", ENDS)
@pytest.mark.parametrize("ending", ["-wal", "-shm"])
def test_a_ledger_whose_log_went_away_answers_no_more(path: Path, ending: str, change: Callable[[Path], None]) -> None:
    with opened(path) as ledger:
        ledger.reserve(Request("q", ITEM, ALICE, "key")).settle(Fraction(0), "d", answer=b"an answer")
        held = ledger.reserve(ASK)
        change(Path(f"{path}{ending}"))
        acts = (
            lambda: ledger.reserve(ASK),
            lambda: held.settle(Fraction(0), "d"),
            lambda: ledger.stored("key", "alice"),
            lambda: ledger.budget,
            lambda: ledger.bump("n"),
            lambda: list(ledger.events()),
            ledger.state,
        )
        for act in acts:
            assert code_of(act) == "ledger-moved"


@pytest.mark.parametrize("ending", ["", "-wal", "-shm"])
def test_what_goes_away_during_an_act_is_noticed_before_anything_is_returned(path: Path, ending: str) -> None:
    with opened(path) as ledger:
        held = ledger.reserve(ASK)
        place = Path(f"{path}{ending}")

        def acting(act: Callable[[], object]) -> str:
            write = ledger._sidecars.write_mark
            ledger._sidecars.write_mark = lambda mark: (write(mark), place.unlink())
            with pytest.raises(LedgerError) as caught:
                act()
            return caught.value.code

        assert acting(lambda: held.settle(Fraction(0), "d", answer=b"an answer")) == "ledger-moved"


def test_a_log_that_goes_away_during_a_reservation_is_noticed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(path) as ledger:
        ledger.reserve(ASK)
        agree = SQLiteLedger._agree

        def losing(self: SQLiteLedger, *given: object) -> None:
            agree(self, *given)  # type: ignore[arg-type]
            Path(f"{path}-wal").unlink()

        monkeypatch.setattr(SQLiteLedger, "_agree", losing)
        assert code_of(lambda: ledger.reserve(ASK)) == "ledger-moved"


def test_the_hint_works_where_only_the_log_was_deleted(path: Path) -> None:
    """SQLite writes what the log held into the ledger when the last connection closes."""
    with opened(path) as ledger:
        ledger.reserve(ASK)
        Path(f"{path}-wal").unlink()
        assert code_of(lambda: ledger.reserve(ASK)) == "ledger-moved"
    assert verify(path).events == 2
    with opened(path) as ledger:
        assert ledger.state().reserved == Fraction(1)


def test_what_only_a_deleted_log_held_is_missed_after_a_kill(path: Path) -> None:
    with start("ledger = opened(); ledger.reserve(ASK); say('held'); sys.stdin.readline()", path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        Path(f"{path}-wal").unlink()
        process.kill()
    assert code_of(lambda: verify(path)) in {"ledger-rolled-back", "ledger-missing", "ledger-damaged"}


BESIDE = {
    "opens and closes": "ledger = opened(); ledger.close()",
    "asks": "ledger = opened(); ledger.reserve(ASK).settle(ITEM.refundable, 'd'); ledger.close()",
    "is killed": "import os, signal; ledger = opened(); ledger.reserve(ASK); os.kill(os.getpid(), signal.SIGKILL)",
    "verifies": "from dpsql.ledger import verify; verify(sys.argv[1])",
    "forks": "import os; ledger = opened(); child = os.fork(); child or os._exit(0); os.waitpid(child, 0)",
    "forgets to close": "ledger = opened(); ledger.reserve(ASK)",
    "checkpoints": """
import sqlite3
for mode in ("PASSIVE", "FULL", "RESTART", "TRUNCATE"):
    connection = sqlite3.connect(sys.argv[1])
    connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
    connection.close()
""",
    "uses other settings": """
import sqlite3
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=0.5)
for setting in ("journal_mode = DELETE", "locking_mode = EXCLUSIVE", "journal_size_limit = 0"):
    try:
        connection.execute(f"PRAGMA {setting}").fetchone()
        connection.execute("SELECT count(*) FROM events").fetchone()
        connection.execute("VACUUM")
    except sqlite3.OperationalError:
        pass
connection.close()
""",
    "copies": """
import sqlite3
source, target = sqlite3.connect(sys.argv[1]), sqlite3.connect(":memory:")
source.backup(target)
source.close()
""",
}


@pytest.mark.parametrize("name", BESIDE)
def test_nothing_that_another_process_does_with_sqlite_is_an_alarm(path: Path, name: str) -> None:
    with opened(path) as ledger:
        ledger.reserve(ASK)
        for _ in range(2):
            with start(BESIDE[name], path) as process:
                while process.poll() is None:
                    ledger.state()
                    ledger.reserve(Request("q", BudgetVector(0, 0))).settle(Fraction(0), "d")
        ledger.reserve(ASK).settle(Fraction(0), "d")
    assert verify(path).events > 4


def test_many_processes_that_come_and_go_are_no_alarm(path: Path) -> None:
    program = """
for number in range(12):
    ledger = opened()
    for _ in range(3):
        ledger.reserve(Request("q", BudgetVector(0, 0))).settle(Fraction(0), 'd')
    ledger.state()
    ledger.close()
say("done")
"""
    processes = [start(program, path) for _ in range(4)]
    assert [process.communicate(timeout=120)[0] for process in processes] == ["done\n"] * 4
    with opened(path) as ledger:
        assert len(ledger.entries()) == 4 * 12 * 3


def test_ledgers_of_one_file_in_one_process_come_and_go(path: Path) -> None:
    failed: list[LedgerError] = []

    def coming_and_going() -> None:
        try:
            for _ in range(10):
                with opened(path) as ledger:
                    ledger.reserve(ASK).settle(Fraction(0), "d")
        except LedgerError as error:
            failed.append(error)

    threads = [threading.Thread(target=coming_and_going) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert failed == []


@pytest.mark.parametrize("ending", ["-wal", "-shm"])
def test_a_log_behind_a_symbolic_link_is_missed_too(path: Path, ending: str) -> None:
    """SQLite has its files beside the real one."""
    link = path.parent / "other folder" / "link"
    link.parent.mkdir()
    link.symlink_to(path)
    with opened(path):
        pass
    with opened(link) as ledger:
        ledger.reserve(ASK)
        Path(f"{path}{ending}").unlink()
        assert code_of(lambda: ledger.reserve(ASK)) == "ledger-moved"


def test_a_log_that_is_gone_before_the_opening_ends_is_missed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def losing(*given: object, **named: object) -> object:
        Path(f"{path}-wal").unlink()
        return check(*given, **named)  # type: ignore[arg-type]

    check = sqlite.check
    monkeypatch.setattr(sqlite, "check", losing)
    assert code_of(lambda: opened(path)) == "ledger-moved"


def test_a_ledger_behind_a_symbolic_link_is_no_alarm(path: Path) -> None:
    link = path.with_name("link")
    with opened(path) as ledger:
        link.symlink_to(path)
        with closing(SQLiteLedger.open(link)) as other:
            other.reserve(ASK)
            ledger.reserve(ASK)
        ledger.reserve(ASK)
