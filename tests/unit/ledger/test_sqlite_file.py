"""Where a durable ledger may stand, and the files that it refuses: not ours, or ours that someone wrote to."""

from __future__ import annotations

import errno
import functools
import os
import sqlite3
from fractions import Fraction
from pathlib import Path

import pytest
from support.ledger_kit import BUDGET, ITEM, TOTAL, code_of, opened, raw
from support.ledger_makers import make_state

from dpsql.ledger import Request, SQLiteLedger, verify
from dpsql.ledger import sqlite_files as files


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
        raise OSError(getattr(errno, number), "no")

    monkeypatch.setattr(files.os, "open", refuse)
    assert code_of(lambda: SQLiteLedger(path, BUDGET, total=TOTAL)) == code
    assert not path.exists()


def test_a_full_disk_refuses_and_changes_nothing(path: Path) -> None:
    with opened(path) as ledger:
        held = ledger.reserve(Request("fits", ITEM))
        before = ledger.state()
        connection = ledger._connection
        assert connection is not None
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
        assert code_of(lambda: ledger.reserve(Request("x" * 10**5, ITEM))) == "ledger-disk-full"
        assert code_of(lambda: held.settle(Fraction(1), "x" * 10**5)) == "ledger-disk-full"
        assert ledger.state() == before
        connection.execute("PRAGMA max_page_count = 1000000")
        held.settle(Fraction(1), "after room was made")
        assert ledger.state() == make_state(ITEM, Fraction(0))


def test_a_file_held_by_someone_is_busy_and_nothing_is_charged(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "WAIT", 0.05)
    with opened(path) as ledger, raw(path) as other:
        held = ledger.reserve(Request("before", ITEM))
        other.execute("BEGIN IMMEDIATE")
        assert code_of(lambda: ledger.reserve(Request("during", ITEM))) == "ledger-busy"
        assert code_of(lambda: held.settle(Fraction(0), "during")) == "ledger-busy"
        assert code_of(lambda: SQLiteLedger(path, BUDGET, total=TOTAL)) == "ledger-busy"
        other.execute("ROLLBACK")
        held.settle(Fraction(1), "after")
        assert ledger.state() == make_state(ITEM, Fraction(0))


def test_a_file_being_made_by_someone_is_busy(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "WAIT", 0.05)
    with raw(path) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert code_of(lambda: SQLiteLedger(path, BUDGET, total=TOTAL)) == "ledger-busy"
        other.execute("ROLLBACK")


@pytest.mark.parametrize("change", ["delete", "move", "replace"])
def test_a_ledger_whose_file_went_away_writes_no_more(path: Path, change: str) -> None:
    with opened(path) as ledger:
        held = ledger.reserve(Request("q", ITEM))
        if change == "delete":
            path.unlink()
        elif change == "move":
            path.rename(path.with_suffix(".moved"))
        else:
            copy = path.with_suffix(".copy")
            copy.write_bytes(path.read_bytes())
            copy.replace(path)
        assert code_of(lambda: ledger.reserve(Request("lost", ITEM))) == "ledger-moved"
        assert code_of(lambda: held.settle(Fraction(0), "lost")) == "ledger-moved"
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
        connection.execute("PRAGMA user_version = 8")
    assert code_of(lambda: SQLiteLedger(made, BUDGET, total=TOTAL)) == "ledger-newer"


@pytest.mark.parametrize(
    "change",
    [
        "DROP TRIGGER events_stay",
        "DROP INDEX settled_once",
        "DROP TABLE events",
        "DROP TABLE answers",
        "CREATE TABLE guests (name TEXT)",
        "CREATE TRIGGER refund AFTER INSERT ON events BEGIN UPDATE balances SET spent_rho = '0/1'; END",
        "PRAGMA user_version = 0",
        "PRAGMA user_version = 1",
        "PRAGMA user_version = -1",
        "DELETE FROM terms",
    ],
)
def test_a_file_of_other_tables_is_refused(made: Path, change: str) -> None:
    with raw(made) as connection:
        connection.execute(change)
    assert code_of(lambda: SQLiteLedger(made, BUDGET, total=TOTAL)) == "ledger-damaged"
    assert code_of(lambda: SQLiteLedger.open(made)) == "ledger-damaged"


NUMBERS = [
    "'0.5'",
    "'1/0'",
    "'-1/2'",
    "''",
    "'\u0661/\u0662'",
    "x'312f32'",
    "7",
    "'NaN'",
    "CAST(x'ff2f32' AS TEXT)",
    "'1/' || replace(hex(zeroblob(3000)), '0', '9')",
    "'1000/1'",
]


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("place", ["balances SET spent_rho", "balances SET reserved_rho", "terms SET total_epsilon"])
def test_numbers_that_dpsql_never_writes_are_found(made: Path, place: str, number: str) -> None:
    with raw(made) as connection:
        connection.execute(f"UPDATE {place} = {number}")
    codes = {"ledger-damaged", "ledger-tampered", "ledger-failed"}
    assert code_of(lambda: SQLiteLedger(made, BUDGET, total=TOTAL)) in codes
    assert code_of(lambda: verify(made)) in codes


@pytest.mark.parametrize("held", ["much", "1000/1"])
def test_what_someone_writes_while_it_is_open_is_found(path: Path, held: str) -> None:
    with opened(path) as ledger, raw(path) as other:
        reservation = ledger.reserve(Request("q", ITEM))
        other.execute("UPDATE balances SET reserved_rho = ?", (held,))
        for act in (
            ledger.state,
            lambda: ledger.reserve(Request("q", ITEM)),
            lambda: reservation.settle(Fraction(0), "d"),
        ):
            assert code_of(act) == ("ledger-damaged" if held == "much" else "ledger-tampered")


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM events",
        "DELETE FROM events WHERE seq = 9",
        "UPDATE events SET at = '2026-01-01T00:00:00+00:00' WHERE seq = 2",
        "UPDATE events SET chain = '' WHERE seq = 9",
        "REPLACE INTO events SELECT * FROM events WHERE seq = 2",
        "INSERT INTO events SELECT 11, at, kind, body, chain FROM events WHERE seq = 9",
        "INSERT INTO events SELECT NULL, at, kind, body, chain FROM events WHERE seq = 9",
        "INSERT INTO events SELECT 10, at, kind, body, chain FROM events WHERE kind = 'settled' LIMIT 1",
        "DELETE FROM answers",
        "UPDATE answers SET content = x'00'",
        "REPLACE INTO answers VALUES (3, x'00')",
        "INSERT INTO terms SELECT 2, data_set, '9/1', '9/1', '9/1', '9/1', 0 FROM terms",
    ],
)
def test_the_file_itself_guards_what_only_grows(rich: Path, change: str) -> None:
    with raw(rich) as connection, pytest.raises(sqlite3.IntegrityError):
        connection.execute(change)
    assert verify(rich).events == 9


def test_a_file_with_overwritten_pages_is_refused(made: Path) -> None:
    content = bytearray(made.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    made.write_bytes(content)
    assert code_of(lambda: SQLiteLedger(made, BUDGET, total=TOTAL)) == "ledger-damaged"


def test_the_files_beside_a_ledger_are_as_private_as_it_is(path: Path) -> None:
    with opened(path):
        pass
    path.chmod(0o660)
    for sidecar in (".lock", ".mark"):
        Path(f"{path}{sidecar}").unlink()
    with opened(path) as ledger:
        ledger.reserve(Request("q", ITEM))
    for sidecar in (".lock", ".mark"):
        assert Path(f"{path}{sidecar}").stat().st_mode & 0o777 == 0o660


MOUNTS = """\
/dev/vda / ext4 rw,relatime 0 0
proc /proc proc rw 0 0
filer:/export /data nfs4 rw,vers=4.2 0 0
tmpfs /data/local tmpfs rw 0 0
//server/share /mnt/with\\040space cifs rw 0 0
me@host:/ /home/me/remote fuse.sshfs rw 0 0
/dev/vdb /over ext4 rw 0 0
filer:/other /over nfs rw 0 0
broken
"""


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("/tmp/spent.ledger", "ext4"),
        ("/data/spent.ledger", "nfs4"),
        ("/database/spent.ledger", "ext4"),
        ("/data/local/spent.ledger", "tmpfs"),
        ("/mnt/with space/spent.ledger", "cifs"),
        ("/home/me/remote/a/b/spent.ledger", "fuse.sshfs"),
        ("/over/spent.ledger", "nfs"),
    ],
)
def test_the_file_system_of_a_place_is_the_innermost_and_last_that_was_mounted(place: str, kind: str) -> None:
    assert files.find_file_system(place, MOUNTS) == kind


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "lustre", "afs"])
def test_a_ledger_on_another_machine_is_refused_and_nothing_is_made(
    path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    table = path.parent / "mounts"
    table.write_text(f"/dev/vda / ext4 rw 0 0\nhost:/export {path.parent} {kind} rw 0 0\n")
    monkeypatch.setattr(files, "MOUNTS", table)
    for act in (lambda: SQLiteLedger(path, BUDGET, total=TOTAL), lambda: SQLiteLedger.open(path)):
        assert code_of(act) == "ledger-not-durable"
    assert list(path.parent.iterdir()) == [table]


@pytest.mark.parametrize("table", ["/dev/vda / ext4 rw 0 0", "", None])
def test_a_place_of_no_known_network_is_taken(path: Path, monkeypatch: pytest.MonkeyPatch, table: str | None) -> None:
    mounts = path.parent / "mounts"
    if table is not None:
        mounts.write_text(table)
    monkeypatch.setattr(files, "MOUNTS", mounts)
    with opened(path) as ledger:
        assert ledger.durable
