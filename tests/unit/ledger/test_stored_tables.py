"""Tables that a ledger stores under a name: named answers and published tables."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from support.ledger_kit import ASK, BUDGET, TOTAL, code_of, raw, version_of

from dpsql.errors import Refusal, UsageError
from dpsql.ledger import Ledger, MemoryLedger, SQLiteLedger, backup, verify
from dpsql.ledger import durable as checkpoints
from dpsql.ledger import sqlite_tables as tables
from dpsql.ledger.base_ledger import find_named
from dpsql.ledger.history import History
from dpsql.ledger.record import MAX_NAMED_BYTES, MAX_PUBLISHED_BYTES, TableContent

WEEKLY = TableContent("SELECT 1", b"rows of an Arrow stream", "a question", "what they are")
OTHER = replace(WEEKLY, question="another question")


def refused(act: Callable[[], None]) -> str:
    with pytest.raises((Refusal, UsageError)) as caught:
        act()
    assert caught.value.hint
    return caught.value.code


@pytest.fixture(params=["file", "memory"])
def ledger(request: pytest.FixtureRequest, path: Path) -> Iterator[Ledger]:
    in_memory = request.param == "memory"
    with closing(MemoryLedger(BUDGET, total=TOTAL) if in_memory else SQLiteLedger(path, BUDGET, total=TOTAL)) as ledger:
        yield ledger


def test_an_answer_is_stored_for_its_account(ledger: Ledger) -> None:
    ledger.name_answer("weekly", WEEKLY, account="ana")
    ledger.name_answer("weekly", OTHER, account="bob")  # names are those of an account
    version, (first, second) = ledger.tables()
    assert version == 0
    assert (first.name, first.account, first.is_published, first.data_version) == ("weekly", "ana", False, 0)
    assert ledger.read_table(first.number) == WEEKLY
    assert ledger.read_table(second.number) == OTHER
    assert find_named(ledger.tables()[1], "WEEKLY", account="bob") == second
    assert find_named(ledger.tables()[1], "weekly", account=None) is None


def test_a_name_is_that_of_one_question(ledger: Ledger) -> None:
    ledger.name_answer("weekly", WEEKLY, account="ana")
    assert refused(lambda: ledger.name_answer("Weekly", OTHER, account="ana")) == "name-taken"
    assert len(ledger.tables()[1]) == 1


def test_the_same_answer_is_written_once_for_a_data_version(ledger: Ledger) -> None:
    ledger.name_answer("weekly", WEEKLY, account=None)
    events = len(list(ledger.events()))
    ledger.name_answer("weekly", WEEKLY, account=None)
    assert len(list(ledger.events())) == events
    ledger.bump("other data")
    ledger.name_answer("weekly", WEEKLY, account=None)
    version, stored = ledger.tables()
    assert (version, [each.data_version for each in stored]) == (1, [0, 1])


def test_what_is_free_makes_no_ledger_grow_without_bounds(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpsql.ledger.base_ledger.MAX_NAMES", 3)
    for name in ("a", "b", "A", "c"):
        ledger.name_answer(name, WEEKLY, account="ana")
    assert refused(lambda: ledger.name_answer("d", WEEKLY, account="ana")) == "too-many-names"
    ledger.name_answer("d", WEEKLY, account="bob")
    events = len(list(ledger.events()))
    for at in range(5):  # as SELECT random() around a stored answer
        ledger.name_answer("a", replace(WEEKLY, stream=bytes([at])), account="ana", is_charged=False)
    assert len(list(ledger.events())) == events


def test_a_published_table_is_refreshed_and_withdrawn(ledger: Ledger) -> None:
    assert refused(lambda: ledger.publish("weekly", WEEKLY, account=None, again=True)) == "not-published"
    ledger.publish("weekly", WEEKLY, account=None)
    assert refused(lambda: ledger.publish("WEEKLY", WEEKLY, account=None)) == "name-taken"
    ledger.publish("weekly", OTHER, account=None, again=True)
    assert [ledger.read_table(each.number) for each in ledger.tables()[1]] == [WEEKLY, OTHER]
    ledger.name_answer("weekly", WEEKLY, account="ana")  # not a published table
    ledger.withdraw("Weekly")
    assert [each.account for each in ledger.tables()[1]] == ["ana"]
    assert refused(lambda: ledger.withdraw("weekly")) == "not-published"
    ledger.publish("weekly", WEEKLY, account=None)


def test_what_is_too_large_is_refused_before_it_is_written(ledger: Ledger) -> None:
    before = len(list(ledger.events()))
    large = replace(WEEKLY, stream=os.urandom(MAX_PUBLISHED_BYTES + 1024))  # which no compression makes shorter
    assert refused(lambda: ledger.publish("weekly", large, account=None)) == "table-too-large"
    large = replace(WEEKLY, stream=os.urandom(MAX_NAMED_BYTES + 1024))
    assert refused(lambda: ledger.name_answer("weekly", large, account=None)) == "table-too-large"
    assert len(list(ledger.events())) == before


def test_they_are_there_after_the_ledger_was_opened_again(path: Path) -> None:
    with closing(SQLiteLedger(path, BUDGET, total=TOTAL)) as ledger:
        assert version_of(path) < tables.VERSION
        ledger.name_answer("weekly", WEEKLY, account="ana")
        ledger.publish("weekly", OTHER, account=None)
        assert version_of(path) == tables.VERSION  # an earlier dpsql refuses it
        stored = ledger.tables()
    verify(path)
    with closing(SQLiteLedger.open(path)) as ledger:
        assert ledger.tables() == stored
        assert [ledger.read_table(each.number) for each in stored[1]] == [WEEKLY, OTHER]


def test_another_process_sees_them(path: Path) -> None:
    with closing(SQLiteLedger(path, BUDGET, total=TOTAL)) as mine, closing(SQLiteLedger.open(path)) as other:
        assert other.tables() == (0, ())
        mine.publish("weekly", WEEKLY, account=None)
        assert [each.name for each in other.tables()[1]] == ["weekly"]
        assert other.read_table(other.tables()[1][0].number) == WEEKLY


def test_a_backup_from_before_has_none(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.ledger"
    with closing(SQLiteLedger(path, BUDGET, total=TOTAL)) as ledger:
        backup(path, copy)
        ledger.publish("weekly", WEEKLY, account=None)
    verify(copy)
    with closing(SQLiteLedger.open(copy)) as ledger:
        assert ledger.tables() == (0, ())


def test_a_checkpoint_tells_of_them(path: Path) -> None:
    with closing(SQLiteLedger(path, BUDGET, total=TOTAL)) as ledger:
        ledger.publish("weekly", WEEKLY, account="ana")
        history = History()
        history.read((each.seq, each.at, each.kind, each.body, each.chain) for each in ledger.events())
        decoded = checkpoints.decode_checkpoint(checkpoints.encode_checkpoint(history.sums()))
        assert decoded == history.sums()
        assert History(decoded).tables == list(ledger.tables()[1])


@pytest.mark.parametrize("part", ["name", "text", "question", "table"])
def test_a_table_that_another_hand_wrote_is_found(path: Path, part: str) -> None:
    with closing(SQLiteLedger(path, BUDGET, total=TOTAL)) as ledger:
        ledger.publish("weekly", WEEKLY, account=None)
    with raw(path) as connection:
        connection.execute("DROP TRIGGER events_stay_as_they_are")
        connection.execute(f"UPDATE events SET body = json_set(body, '$.{part}', 'other') WHERE kind = 'published'")
    assert code_of(lambda: verify(path)) in {"ledger-tampered", "ledger-damaged"}


def test_what_was_spent_does_not_change(ledger: Ledger) -> None:
    ledger.reserve(ASK).settle(Fraction(0), "digest")
    before = ledger.state(), ledger.entries()
    ledger.name_answer("weekly", WEEKLY, account=None)
    ledger.publish("weekly", WEEKLY, account=None)
    ledger.withdraw("weekly")
    assert (ledger.state(), ledger.entries()) == before


def test_an_old_file_takes_them(path: Path) -> None:
    shutil.copy(Path(__file__).with_name("version2.ledger"), path)
    with closing(SQLiteLedger.open(path)) as ledger:
        before = ledger.state()
        ledger.publish("weekly", WEEKLY, account=None)
        assert ledger.state() == before
    verify(path)
