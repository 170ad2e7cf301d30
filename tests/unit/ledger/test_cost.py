"""What an act of the ledger reads does not grow with what was asked before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import pytest

from dpsql.accounting import ApproximateDP, BudgetVector
from dpsql.ledger import Account, Ledger, MemoryLedger, Request, SQLiteLedger, base_ledger
from dpsql.ledger.record import Event
from dpsql.quantities import Delta, Epsilon

BUDGET, TOTAL = BudgetVector(1_000, "0.5"), ApproximateDP(Epsilon(1), Delta("1e-6"))


@pytest.fixture(params=["memory", "file"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    in_memory = request.param == "memory"
    made = MemoryLedger(BUDGET, total=TOTAL) if in_memory else SQLiteLedger(tmp_path / "ledger", BUDGET, total=TOTAL)
    with closing(made):
        yield made


@pytest.fixture
def bodies(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every body that the acts of a ledger read."""
    read: list[str] = []
    monkeypatch.setattr(
        base_ledger, "json", SimpleNamespace(loads=lambda text: json.loads((read.append(text), text)[1]))
    )
    return read


def answered(ledger: Ledger, times: int, *, key: str = "key", name: str = "ana") -> None:
    for _ in range(times):
        request = Request("q", BudgetVector(1, 0), Account(name, BUDGET), key=key)
        ledger.reserve(request).settle(Fraction(1), "0" * 64, answer=b"answer")


def test_an_answer_is_found_without_reading_those_that_the_same_question_got_before(
    ledger: Ledger, bodies: list[str]
) -> None:
    answered(ledger, 30)
    bodies.clear()
    assert ledger.stored("key", "ana") == b"answer"
    assert len(bodies) == 1


def test_entries_of_earlier_versions_of_the_data_are_not_read(ledger: Ledger, bodies: list[str]) -> None:
    answered(ledger, 30)
    ledger.bump("more rows")
    answered(ledger, 2, name="ben")
    bodies.clear()
    assert ledger.stored("key", "ana") is None
    assert len(bodies) == 1  # nor those of others on this one


def test_the_answer_that_all_share_is_found_without_reading_those_that_came_after(
    ledger: Ledger, bodies: list[str]
) -> None:
    answered(ledger, 30)
    ledger.bump("more rows")
    answered(ledger, 30)
    request = Request("q", BudgetVector(1, 0), Account("ben", BUDGET), key="key")
    held = ledger.reserve(request)
    bodies.clear()
    assert held.settle(Fraction(1), "0" * 64, answer=b"of ben", shared=True).answer == b"answer"
    assert len(bodies) == 2


def test_each_event_is_held_against_the_balances_once(ledger: Ledger) -> None:
    answered(ledger, 3)
    looked: list[int] = []
    with ledger._writing() as book:  # type: ignore[attr-defined]
        found = type(book).events
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(book), "events", lambda self, after, most: looked.append(after) or found(self, after, most))
        answered(ledger, 2)
        assert ledger.state().spent == Fraction(5)
    assert [*dict.fromkeys(looked)] == [6, 7, 8, 9, 10, 11]


def test_a_ledger_in_memory_looks_at_the_entries_of_a_key_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counted(list[Event]):
        looked = 0

        def __getitem__(self, at: object) -> object:
            Counted.looked += 1
            return super().__getitem__(at)  # type: ignore[index]

        def __reversed__(self) -> object:
            raise AssertionError

    with closing(MemoryLedger(BUDGET, total=TOTAL)) as ledger:
        answered(ledger, 2)
        answered(ledger, 30, key="another")
        monkeypatch.setattr(ledger._book, "record", Counted(ledger._book.record))
        ledger.state()  # reads what was added
        Counted.looked = 0
        assert ledger.stored("key", "ben") is None
        assert Counted.looked <= 5


def test_a_ledger_in_memory_forgets_the_key_of_an_act_that_was_undone() -> None:
    def undone(key: str) -> None:
        with ledger._writing() as book:
            book.append("reserved", {"key": key}, at="2026-01-01T00:00:00+00:00")
            raise KeyboardInterrupt

    with closing(MemoryLedger(BUDGET, total=TOTAL)) as ledger:
        answered(ledger, 1)
        for key in ("key", "another"):
            with pytest.raises(KeyboardInterrupt):
                undone(key)
        answered(ledger, 2)
        assert [event.seq for event in ledger._book.asked("key", account="ana", version=0)] == [6, 4, 2]
        assert list(ledger._book.asked("another", account="ana", version=0)) == []
