"""Where a durable ledger may stand, and the files that it refuses: not ours, or ours that someone wrote to."""

from __future__ import annotations

import functools
import os
import sqlite3
from pathlib import Path

import pytest
from ledger.sqlite_kit import BUDGET, ITEM, TOTAL, code_of, opened, raw

from dpsql.accounting import FilterState
from dpsql.ledger import SQLiteLedger, sqlite_file
from dpsql.quantities import Rho


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    assert code_of(lambda: SQLiteLedger(tmp_path / "no" / "x", BUDGET, total=TOTAL)) == "ledger-directory"
    (tmp_path / "file").touch()
    assert code_of(lambda: SQLiteLedger(tmp_path / "file" / "x", BUDGET, total=TOTAL)) == "ledger-directory"


def test_a_path_that_is_no_file_is_refused(tmp_path: Path) -> None:
    assert code_of(lambda: SQLiteLedger(tmp_path, BUDGET, total=TOTAL)) == "ledger-cannot-open"
    assert code_of(lambda: SQLiteLedger(tmp_path / "a\0b", BUDGET, total=TOTAL)) == "ledger-cannot-open"
    assert code_of(lambda: SQLiteLedger(tmp_path / ("x" * 300), BUDGET, total=TOTAL)) == "ledger-cannot-open"
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    assert code_of(lambda: SQLiteLedger(tmp_path / "dangling", BUDGET, total=TOTAL)) == "ledger-cannot-open"


class Immutable(sqlite3.Connection):
    """A connection to a file that may not be written, also for a superuser who may write everything."""

    def __init__(self, address: str, **options: object) -> None:
        super().__init__(address.replace("mode=rw", "mode=ro"), **options)


def test_a_read_only_file_is_refused(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made.chmod(0o400)
    if os.access(made, os.W_OK):
        monkeypatch.setattr(sqlite3, "connect", functools.partial(sqlite3.connect, factory=Immutable))
    assert code_of(lambda: SQLiteLedger(made, BUDGET, total=TOTAL)) == "ledger-read-only"


@pytest.mark.parametrize(
    ("number", "code"),
    [("EACCES", "ledger-read-only"), ("EROFS", "ledger-read-only"), ("ENOSPC", "ledger-disk-full")],
)
def test_a_file_that_cannot_be_made_says_why(
    path: Path, monkeypatch: pytest.MonkeyPatch, number: str, code: str
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(getattr(sqlite_file.errno, number), "no")

    monkeypatch.setattr(sqlite_file.os, "open", refuse)
    assert code_of(lambda: SQLiteLedger(path, BUDGET, total=TOTAL)) == code
    assert not path.exists()


def test_a_full_disk_refuses_and_changes_nothing(path: Path) -> None:
    with opened(path) as ledger:
        held = ledger.reserve(ITEM, "fits")
        before = ledger.state()
        connection = ledger._connection
        assert connection is not None
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
        assert code_of(lambda: ledger.reserve(ITEM, "x" * 10**5)) == "ledger-disk-full"
        assert code_of(lambda: held.settle(Rho(1), "x" * 10**5)) == "ledger-disk-full"
        assert ledger.state() == before
        connection.execute("PRAGMA max_page_count = 1000000")
        held.settle(Rho(1), "after room was made")
        assert ledger.state() == FilterState(spent=ITEM, reserved=Rho(0))


def test_a_file_held_by_someone_is_busy_and_nothing_is_charged(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "WAIT", 0.05)
    with opened(path) as ledger, raw(path) as other:
        held = ledger.reserve(ITEM, "before")
        other.execute("BEGIN IMMEDIATE")
        assert code_of(lambda: ledger.reserve(ITEM, "during")) == "ledger-busy"
        assert code_of(lambda: held.settle(Rho(0), "during")) == "ledger-busy"
        assert code_of(lambda: SQLiteLedger(path, BUDGET, total=TOTAL)) == "ledger-busy"
        other.execute("ROLLBACK")
        held.settle(Rho(1), "after")
        assert ledger.state() == FilterState(spent=ITEM, reserved=Rho(0))


def test_a_file_being_made_by_someone_is_busy(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_file, "WAIT", 0.05)
    with raw(path) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert code_of(lambda: SQLiteLedger(path, BUDGET, total=TOTAL)) == "ledger-busy"
        other.execute("ROLLBACK")


@pytest.mark.parametrize("change", ["delete", "move", "replace"])
def test_a_ledger_whose_file_went_away_writes_no_more(path: Path, change: str) -> None:
    with opened(path) as ledger:
        held = ledger.reserve(ITEM, "q")
        if change == "delete":
            path.unlink()
        elif change == "move":
            path.rename(path.with_suffix(".moved"))
        else:
            copy = path.with_suffix(".copy")
            copy.write_bytes(path.read_bytes())
            copy.replace(path)
        assert code_of(lambda: ledger.reserve(ITEM, "lost")) == "ledger-moved"
        assert code_of(lambda: held.settle(Rho(0), "lost")) == "ledger-moved"
        assert code_of(ledger.state) == "ledger-moved"


# files that are not ours, and ours that someone wrote to


@pytest.mark.parametrize("content", [b"xy", b"policy = true\n" * 500, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    assert code_of(lambda: SQLiteLedger(path, BUDGET, total=TOTAL)) in {"not-a-ledger", "ledger-damaged"}
    assert path.read_bytes() == content


@pytest.mark.parametrize("header", ["", "PRAGMA application_id = 252006", "PRAGMA user_version = 1"])
def test_another_applications_database_is_refused_and_left_alone(path: Path, header: str) -> None:
    with raw(path) as connection:
        connection.execute("CREATE TABLE entries (id INTEGER)")
        connection.execute(header)
    content = path.read_bytes()
    assert code_of(lambda: SQLiteLedger(path, BUDGET, total=TOTAL)) == "not-a-ledger"
    assert path.read_bytes() == content
    assert list(path.parent.iterdir()) == [path]


def test_a_newer_version_is_refused(made: Path) -> None:
    with raw(made) as connection:
        connection.execute("PRAGMA user_version = 2")
    assert code_of(lambda: SQLiteLedger(made, BUDGET, total=TOTAL)) == "ledger-newer"


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE balance SET spent_rho = '0.5'",
        "UPDATE balance SET spent_rho = '1/0'",
        "UPDATE balance SET spent_rho = '-1/2'",
        "UPDATE balance SET spent_rho = ''",
        "UPDATE balance SET spent_rho = '\u0661/\u0662'",
        "UPDATE balance SET spent_rho = x'312f32'",
        "UPDATE balance SET spent_rho = CAST(x'ff2f32' AS TEXT)",
        "UPDATE balance SET spent_rho = '1/' || replace(hex(zeroblob(3000)), '0', '9')",
        "UPDATE balance SET spent_rho = '0/1'",
        "UPDATE balance SET reserved_rho = '0/1'",
        "UPDATE balance SET spent_delta = '1/1'",
        "UPDATE balance SET spent_rho = '1000/1'",
        "DELETE FROM balance",
        "DELETE FROM terms",
        "UPDATE terms SET total_epsilon = 'one'",
        "UPDATE terms SET budget_rho = x'00'",
        "UPDATE entries SET settled_at = 'yesterday', loss_rho = '1/1', digest = '' WHERE id = 2",
        "UPDATE entries SET settled_at = '2026-01-01T00:00:00+00:00', loss_rho = '1/1', digest = x'00' WHERE id = 2",
        "UPDATE entries SET settled_at = '2026-01-01T00:00:00+00:00' WHERE id = 2",
        "INSERT INTO entries (opened_at, query, worst_rho, delta) VALUES ('2026-01-01', 'q', '1/1', '0/1')",
        "INSERT INTO entries (opened_at, query, worst_rho, delta) VALUES (7, x'00', 1, 'NaN')",
        "DROP TRIGGER entries_stay",
        "DROP TABLE entries",
        "CREATE TABLE guests (name TEXT)",
        "CREATE TRIGGER refund AFTER INSERT ON entries BEGIN UPDATE balance SET spent_rho = '0/1'; END",
        "PRAGMA user_version = 0",
    ],
)
def test_what_someone_else_wrote_into_the_file_is_found(made: Path, change: str) -> None:
    with raw(made) as connection:
        connection.execute(change)
    assert code_of(lambda: SQLiteLedger(made, BUDGET, total=TOTAL)) in {"ledger-damaged", "ledger-failed"}


@pytest.mark.parametrize("held", ["much", "1000/1"])
def test_what_someone_writes_while_it_is_open_is_found(path: Path, held: str) -> None:
    with opened(path) as ledger, raw(path) as other:
        reservation = ledger.reserve(ITEM, "q")
        other.execute("UPDATE balance SET reserved_rho = ?", (held,))
        for act in (ledger.state, lambda: ledger.reserve(ITEM, "q"), lambda: reservation.settle(Rho(0), "d")):
            assert code_of(act) == "ledger-damaged"


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM entries",
        "UPDATE entries SET query = 'another'",
        "UPDATE entries SET worst_rho = '0/1'",
        "UPDATE entries SET loss_rho = '0/1' WHERE id = 1",
        "UPDATE entries SET settled_at = NULL WHERE id = 1",
    ],
)
def test_the_file_itself_guards_its_entries(made: Path, change: str) -> None:
    with raw(made) as connection, pytest.raises(sqlite3.IntegrityError):
        connection.execute(change)


def test_a_file_with_overwritten_pages_is_refused(made: Path) -> None:
    content = bytearray(made.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    made.write_bytes(content)
    assert code_of(lambda: SQLiteLedger(made, BUDGET, total=TOTAL)) == "ledger-damaged"
