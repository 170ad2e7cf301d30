"""Copies of a ledger: private, of one state, verified, and nothing left where one fails."""

from __future__ import annotations

import os
import stat
import threading
import time
from fractions import Fraction
from pathlib import Path

import pytest
from support.ledger_kit import ALICE, BUDGET, ITEM, TOTAL, code_of, opened, raw

from dpsql.accounting import BudgetVector
from dpsql.curator import back_up
from dpsql.errors import UsageError
from dpsql.ledger import Request, SQLiteLedger, backup, verify
from dpsql.ledger import sqlite_files as files


def test_a_copy_holds_what_the_ledger_holds_and_is_its_owners_alone(rich: Path, tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        found = backup(rich, tmp_path / "copy")
    finally:
        os.umask(mask)
    assert found == verify(rich) == verify(tmp_path / "copy")
    assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o600
    assert sorted(file.name for file in tmp_path.glob("copy*")) == ["copy"]
    with opened(tmp_path / "copy") as again, opened(rich) as ledger:
        assert again.state() == ledger.state()


def test_no_moment_shows_a_copy_to_others(rich: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[int] = []
    connect = files.connect

    def looking(*given: object) -> object:
        modes.extend(stat.S_IMODE(file.stat().st_mode) for file in tmp_path.glob("copy*"))
        return connect(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(files, "connect", looking)
    mask = os.umask(0)
    try:
        backup(rich, tmp_path / "copy")
    finally:
        os.umask(mask)
    assert set(modes) == {0o600}


def test_what_is_there_is_not_written_over(rich: Path, tmp_path: Path) -> None:
    (tmp_path / "copy").write_text("dear")
    assert code_of(lambda: backup(rich, tmp_path / "copy")) == "ledger-exists"
    assert (tmp_path / "copy").read_text() == "dear"
    assert code_of(lambda: backup(rich, rich)) == "ledger-exists"
    assert code_of(lambda: backup(rich, tmp_path / "no" / "copy")) == "ledger-directory"
    assert code_of(lambda: backup(tmp_path / "none", tmp_path / "other")) == "ledger-missing"
    assert not (tmp_path / "other").exists()


def test_a_copy_of_a_damaged_ledger_is_not_kept(rich: Path, tmp_path: Path) -> None:
    with raw(rich) as connection:
        connection.execute("UPDATE balances SET spent_rho = '0/1'")
    assert code_of(lambda: backup(rich, tmp_path / "copy")) == "ledger-tampered"
    assert list(tmp_path.glob("copy*")) == []


def test_a_ledger_is_copied_while_others_write_to_it(path: Path, tmp_path: Path) -> None:
    ended = threading.Event()

    def writing() -> None:
        with opened(path) as ledger:
            while not ended.is_set():
                ledger.reserve(Request("q", BudgetVector(0, 0), ALICE)).settle(Fraction(0), "d")
                time.sleep(0.002)

    SQLiteLedger(path, BUDGET, total=TOTAL).close()
    writer = threading.Thread(target=writing)
    writer.start()
    try:
        events = [backup(path, tmp_path / f"copy {number}").events for number in range(10)]
    finally:
        ended.set()
        writer.join()
    assert events == sorted(events)
    assert events[-1] <= verify(path).events


def test_verifying_leaves_nothing_beside_a_copy(rich: Path, tmp_path: Path) -> None:
    backup(rich, tmp_path / "alone" if (tmp_path / "alone").mkdir() else tmp_path / "alone" / "copy")
    verify(tmp_path / "alone" / "copy")
    assert [file.name for file in (tmp_path / "alone").iterdir()] == ["copy"]


def test_verifying_sees_what_stands_in_the_log_alone(path: Path) -> None:
    with opened(path) as ledger:
        before = verify(path).events
        ledger.reserve(Request("q", ITEM))
        assert verify(path).events == before + 1


def test_a_file_that_is_written_while_it_is_verified_is_read_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SQLiteLedger(path, BUDGET, total=TOTAL).close()
    connect, modes = files.connect, list[str]()

    def writing(file: Path, mode: str = "rw") -> object:
        modes.append(mode)
        found = connect(file, mode)
        if mode == "ro&immutable=1":
            with opened(path) as ledger:
                ledger.reserve(Request("q", ITEM))
        return found

    monkeypatch.setattr(files, "connect", writing)
    assert verify(path).events == 2
    assert [mode for mode in modes if mode != "rw"] == ["ro&immutable=1", "ro"]


def test_a_ledger_in_a_database_is_backed_up_with_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="pg_dump"):
        back_up("postgresql://nowhere/db", tmp_path / "copy")
