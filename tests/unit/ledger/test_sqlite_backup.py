"""Copies of a ledger's file: private from the first byte, whole while others write, and verified; and what verifies."""

from __future__ import annotations

import importlib
import os
import shutil
import sqlite3
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from support.ledger_kit import ASK, BUDGET, TOTAL, code_of, opened, raw, tampering
from support.ledger_programs import start

from dpsql.curator import back_up
from dpsql.errors import LedgerError, UsageError
from dpsql.ledger import SQLiteLedger, backup, verify
from dpsql.ledger import sqlite_files as files
from dpsql.ledger.sqlite_files import Sidecars, because


def names(path: Path) -> set[str]:
    return {file.name for file in path.parent.iterdir()}


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def test_a_copy_has_every_event_and_nothing_is_left_beside_either(rich: Path) -> None:
    before = names(rich)
    found = backup(rich, rich.with_name("copy"))
    assert found == verify(rich) == verify(rich.with_name("copy"))
    assert names(rich) == before | {"copy"}
    with closing(SQLiteLedger.open(rich.with_name("copy"))) as copy, closing(SQLiteLedger.open(rich)) as ledger:
        assert list(copy.events()) == list(ledger.events())
        assert copy.stored("key", None) == ledger.stored("key", None)


@pytest.mark.parametrize("mask", [0, 0o777])
def test_a_copy_is_readable_by_its_owner_alone_at_every_moment(rich: Path, mask: int) -> None:
    copy, seen, done = rich.with_name("copy"), set[int](), threading.Event()

    def watch() -> None:
        while not done.is_set():
            for file in copy.parent.glob("copy*"):
                try:
                    seen.add(stat.S_IMODE(file.stat().st_mode))
                except FileNotFoundError:
                    continue

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with umask(mask):
            for _ in range(5):
                backup(rich, copy)
                seen.add(stat.S_IMODE(copy.stat().st_mode))
                copy.unlink()
    finally:
        done.set()
        watcher.join()
    assert {mode & 0o177 for mode in seen} == {0}
    assert 0o600 in seen


def test_a_file_that_is_there_is_never_written(rich: Path) -> None:
    copy = rich.with_name("copy")
    (copy.parent / "folder").mkdir()
    (copy.parent / "dangling").symlink_to(copy)
    for name in ("copy", "folder", "dangling", rich.name):
        place = copy.with_name(name)
        if name == "copy":
            place.write_bytes(b"precious")
        assert code_of(lambda place=place: backup(rich, place)) == "ledger-exists"
    assert copy.read_bytes() == b"precious"
    copy.unlink()
    for ending in ("-wal", "-journal", "-shm"):
        Path(f"{copy}{ending}").write_bytes(b"of another file")
        assert code_of(lambda: backup(rich, copy)) == "ledger-exists"
        assert not copy.exists()
        assert Path(f"{copy}{ending}").read_bytes() == b"of another file"
        Path(f"{copy}{ending}").unlink()
    backup(rich, copy)


def test_a_place_that_cannot_be_written_is_told(rich: Path) -> None:
    assert code_of(lambda: backup(rich, rich.parent / "no" / "copy")) == "ledger-directory"
    assert code_of(lambda: backup(rich, rich.parent / "a\0b")) == "ledger-cannot-open"
    assert code_of(lambda: backup(rich.with_name("no"), rich.with_name("copy"))) == "ledger-missing"
    assert not rich.with_name("copy").exists()


@pytest.mark.parametrize("step", ["_copy", "_flush"])
def test_a_copy_that_was_not_finished_is_removed(rich: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    for error, code in ((because(sqlite3.SQLITE_FULL), "ledger-disk-full"), (KeyboardInterrupt(), None)):

        def fail(*_: object, error: BaseException = error) -> None:
            raise error

        monkeypatch.setattr(importlib.import_module("dpsql.ledger.sqlite_ledger"), step, fail)
        with pytest.raises((LedgerError, KeyboardInterrupt)) as caught:
            backup(rich, rich.with_name("copy"))
        assert getattr(caught.value, "code", None) == code
        assert {name for name in names(rich) if name.startswith("copy")} == set()


@pytest.mark.parametrize("change", ["events SET at = '2026-01-01' WHERE seq = 2", "balances SET spent_rho = '0/1'"])
def test_a_ledger_that_does_not_hold_together_leaves_no_copy(rich: Path, change: str) -> None:
    with tampering(rich) as connection:
        connection.execute(f"UPDATE {change}")
    assert code_of(lambda: backup(rich, rich.with_name("copy"))) == "ledger-tampered"
    assert list(rich.parent.glob("copy*")) == []


def test_an_older_file_than_its_mark_is_not_copied(path: Path) -> None:
    with opened(path) as ledger:
        ledger.reserve(ASK)
    older = shutil.copy(path, path.with_name("older"))
    with opened(path) as ledger:
        ledger.reserve(ASK)
    shutil.copy(older, path)
    assert code_of(lambda: backup(path, path.with_name("copy"))) == "ledger-rolled-back"
    assert not path.with_name("copy").exists()


WRITER = """
ledger = opened()
say("begun")
while True:
    try:
        ledger.reserve(Request("q" * 500, BudgetVector(0, 0), key="key")).settle(Fraction(0), 'd', answer=b'x' * 3000)
    except BrokenPipeError:
        break
"""


def test_copies_of_a_ledger_that_others_write_are_each_one_state_of_it(path: Path) -> None:
    with opened(path):
        pass
    writers = [start(WRITER, path) for _ in range(2)]
    try:
        for each in writers:
            assert each.stdout is not None
            assert each.stdout.readline() == "begun\n"
        found = []
        for number in range(4):
            least = Sidecars(path).read_mark()
            found.append(backup(path, path.with_name(f"copy{number}")))
            assert least is not None
            assert found[-1].events >= least.seq
            time.sleep(0.05)
    finally:
        for each in writers:
            with each:
                each.kill()
    assert [each.events for each in found] == sorted(each.events for each in found)
    assert found[-1].events > found[0].events
    with opened(path) as ledger:
        chains = {event.seq: event.chain for event in ledger.events()}
        assert all(chains[each.events] == each.head for each in found)
    assert all(verify(path.with_name(f"copy{number}")) == each for number, each in enumerate(found))


# verifying leaves nothing behind


def test_verifying_a_copy_leaves_nothing_beside_it(rich: Path) -> None:
    copy = rich.parent / "alone" / "copy"
    copy.parent.mkdir()
    shutil.copy(rich, copy)
    before = copy.read_bytes()
    verify(copy)
    assert names(copy) == {"copy"}
    copy.write_bytes(before.replace(b"monday", b"sunday"))
    assert code_of(lambda: verify(copy)) in {"ledger-damaged", "ledger-tampered"}
    assert names(copy) == {"copy"}
    for folder in (copy.parent, copy.parent.parent):
        folder.chmod(0o500)
    try:
        copy.write_bytes(before)
        assert verify(copy).events == 9
    finally:
        for folder in (copy.parent, copy.parent.parent):
            folder.chmod(0o700)


def test_verifying_a_ledger_in_use_takes_nothing_away(path: Path) -> None:
    with opened(path) as ledger:
        ledger.reserve(ASK)
        for _ in range(3):
            assert verify(path).events == 2
        ledger.reserve(ASK)
    assert verify(path).events == 3
    assert names(path) == {path.name, f"{path.name}.lock", f"{path.name}.mark"}


def test_a_link_to_a_ledger_in_use_is_read_with_its_log(path: Path) -> None:
    link = path.parent / "other folder" / "link"
    link.parent.mkdir()
    link.symlink_to(path)
    with opened(path) as ledger:
        ledger.reserve(ASK)
        assert verify(link).events == 2
        assert backup(link, path.with_name("copy")).events == 2


def test_an_old_journal_is_not_passed_over(path: Path) -> None:
    with opened(path) as ledger:
        ledger.reserve(ASK)
    with raw(path) as connection:
        assert connection.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",)
    Path(f"{path}-journal").touch()
    assert Sidecars(path).identify_rest() is None
    assert verify(path).events == 2


def test_a_file_that_is_written_while_it_is_verified_is_read_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SQLiteLedger(path, BUDGET, total=TOTAL).close()
    connect, modes = files.connect, list[str]()

    def writing(file: Path, mode: str = "rw") -> object:
        modes.append(mode)
        found = connect(file, mode)
        if mode == "ro&immutable=1":
            with opened(path) as ledger:
                ledger.reserve(ASK)
        return found

    monkeypatch.setattr(files, "connect", writing)
    assert verify(path).events == 2
    assert [mode for mode in modes if mode != "rw"] == ["ro&immutable=1", "ro"]


def test_a_ledger_in_a_database_is_backed_up_with_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="pg_dump"):
        back_up("postgresql://nowhere/db", tmp_path / "copy")
