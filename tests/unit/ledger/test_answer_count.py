"""The number of stored answers that are free to ask for again, counted from events, beside looking for each of them."""

from __future__ import annotations

import random
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from support.ledger_kit import ALICE, BUDGET, ITEM, TOTAL

from dpsql.accounting import BudgetVector
from dpsql.ledger import Account, Ledger, MemoryLedger, Request, SQLiteLedger, base_ledger
from dpsql.ledger.answer_count import AnswerCount
from dpsql.ledger.base import Reservation
from dpsql.ledger.record import Event

BOB = Account("bob", BUDGET)
ACCOUNTS = (None, ALICE, BOB)
KEYS = ("", "k1", "k2", "k3", 'a "key":"k1"')
TEXTS = {"k1": "of two parts \ud800", "k2": "of two parts \ud800"}  # of one statement, with a lone surrogate
SMALL = BudgetVector(ITEM.refundable / 1000, ITEM.permanent / 1000)


def open_ledger(kind: str, folder: Path) -> Ledger:
    if kind == "memory":
        return MemoryLedger(BUDGET, total=TOTAL)
    return SQLiteLedger(folder / "ledger.sqlite", BUDGET, total=TOTAL)


def act(ledger: Ledger, some: random.Random, *, held: list[Reservation]) -> None:
    """Reserve, settle one way or another, or increment the data version."""
    chosen = some.random()
    if chosen < 0.015:
        ledger.bump("a new version")
    elif chosen < 0.6 or not held:
        key = some.choice(KEYS)
        request = Request(TEXTS.get(key, key), SMALL, some.choice(ACCOUNTS), key, repeated=some.random() < 0.5)
        made = ledger.reserve(request)
        held += [made] if isinstance(made, Reservation) else []
    else:
        open_ = held.pop(some.randrange(len(held)))
        answer = some.choice((b"", b"answer", b"answer"))
        open_.settle(SMALL.refundable, "digest" if answer else "failed", answer=answer, shared=some.random() < 0.2)


def count_by_looking(ledger: Ledger, account: Account | None) -> int:
    name = None if account is None else account.name
    return len({TEXTS.get(key, key) for key in KEYS if key and ledger.stored(key, name) is not None})


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_the_count_is_that_of_the_answers_that_are_found(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base_ledger, "_PAGE", 7)
    counts = set[int]()
    with closing(open_ledger(kind, tmp_path)) as ledger:
        some, held = random.Random(4), list[Reservation]()
        for step in range(250):
            act(ledger, some, held=held)
            if step % 5 == 0:
                for account in ACCOUNTS:
                    name = None if account is None else account.name
                    counted = ledger.count_answers(name)
                    assert counted == count_by_looking(ledger, account)
                    counts.add(counted)
        anew = AnswerCount()  # all at once
        anew.read(ledger.events())
        assert [anew.of(name) for name in (None, "alice", "bob")] == [
            ledger.count_answers(name) for name in (None, "alice", "bob")
        ]
    assert counts == {0, 1, 2, 3}


def test_another_session_and_another_process_count_the_same(tmp_path: Path) -> None:
    with closing(open_ledger("sqlite", tmp_path)) as first, closing(open_ledger("sqlite", tmp_path)) as second:
        some, held = random.Random(5), list[Reservation]()
        for step in range(60):
            act(first, some, held=held)
            if step % 7 == 0:
                assert second.count_answers("alice") == first.count_answers("alice")


def test_each_event_is_read_once_and_all_again_after_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, read = MemoryLedger(BUDGET, total=TOTAL), list[int]()

    class Watched(AnswerCount):
        def read(self, events: list[Event]) -> None:  # type: ignore[override]
            read.extend(event.seq for event in events)
            if read.count(2) == 1 and len(read) > 4:
                raise KeyboardInterrupt
            super().read(events)

    def ask(key: str) -> None:
        made = ledger.reserve(Request(key, SMALL, ALICE, key))
        assert isinstance(made, Reservation)
        made.settle(SMALL.refundable, "d", answer=b"answer")

    monkeypatch.setattr(base_ledger, "AnswerCount", Watched)
    ask("k1")
    assert (ledger.count_answers("alice"), ledger.count_answers("alice"), read) == (1, 1, [1, 2, 3])
    ask("k2")
    with pytest.raises(KeyboardInterrupt):
        ledger.count_answers("alice")
    assert ledger.count_answers("alice") == 2
    assert read == [1, 2, 3, 4, 5, 1, 2, 3, 4, 5]
    ask("k3")
    assert ledger.count_answers("alice") == 3
    assert read[10:] == [6, 7]


def test_an_answer_of_an_earlier_version_is_not_free() -> None:
    ledger = MemoryLedger(BUDGET, total=TOTAL)
    made = [ledger.reserve(replace(Request("q", SMALL, ALICE), key=key)) for key in ("k1", "k2")]
    for each in made:
        assert isinstance(each, Reservation)
    made[0].settle(SMALL.refundable, "d", answer=b"answer")  # type: ignore[union-attr]
    assert ledger.count_answers("alice") == 1
    ledger.bump("a new version")
    made[1].settle(SMALL.refundable, "d", answer=b"answer")  # type: ignore[union-attr]
    assert ledger.count_answers("alice") == 0
