"""What every ledger returns of the answers of one account: all that were stored since, in the order of settling."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from support.ledger_makers import MAKERS, Maker, loss

from dpsql.errors import LedgerError
from dpsql.ledger import Account, Ledger, Request
from dpsql.ledger.base import Reservation

ALICE, BOB, QUOTED = (Account(name, loss(100, 1)) for name in ("alice", "bob", 'a","account":"alice'))


@pytest.fixture(params=MAKERS)
def maker(request: pytest.FixtureRequest, tmp_path: Path) -> Maker:
    return request.param(tmp_path)


@pytest.fixture
def ledger(maker: Maker) -> Iterator[Ledger]:
    with contextlib.closing(maker.make(loss(100, "0.5"))) as made:
        yield made
    maker.check()


def held(ledger: Ledger, account: Account | None, *, key: str = "k", repeated: bool = False) -> Reservation:
    found = ledger.reserve(Request(f"q of {key}", loss(1), account, key, repeated=repeated))
    assert isinstance(found, Reservation)
    return found


def settle(ledger: Ledger, account: Account | None, answer: bytes, *, key: str = "k") -> None:
    held(ledger, account, key=key).settle(Fraction(1, 2), "digest", answer=answer)


def test_the_answers_of_one_account_come_in_the_order_of_settling(ledger: Ledger) -> None:
    first, second = held(ledger, ALICE), held(ledger, ALICE, key="other")
    settle(ledger, BOB, b"of bob")
    settle(ledger, None, b"of nobody")
    settle(ledger, QUOTED, b"of a strange name")
    second.settle(Fraction(1, 2), "digest", answer=b"second, but settled first")
    ledger.bump("new rows")
    first.settle(Fraction(1, 2), "digest", answer=b"first")
    held(ledger, ALICE, key="failed").settle(Fraction(1), "failed")
    held(ledger, ALICE, key="open")
    assert ledger.answers("alice", 0)[1] == [b"second, but settled first", b"first"]
    assert ledger.answers("bob", 0)[1] == [b"of bob"]
    assert ledger.answers(None, 0)[1] == [b"of nobody"]
    assert ledger.answers(QUOTED.name, 0)[1] == [b"of a strange name"]
    assert ledger.answers("carol", 0)[1] == []


def test_a_later_call_goes_on_from_the_last_event(ledger: Ledger) -> None:
    reserved = held(ledger, ALICE)
    settle(ledger, ALICE, b"one", key="one")
    position, answers = ledger.answers("alice", 0)
    assert answers == [b"one"]
    assert ledger.answers("alice", position) == (position, [])
    reserved.settle(Fraction(1, 2), "digest", answer=b"reserved before, settled after")
    later, answers = ledger.answers("alice", position)
    assert answers == [b"reserved before, settled after"]
    assert later > position


def test_an_entry_that_repeats_another_has_no_answer_of_its_own(ledger: Ledger) -> None:
    first, second = (held(ledger, ALICE, repeated=True) for _ in range(2))
    first.settle(Fraction(1, 2), "digest", answer=b"answer")
    assert second.settle(Fraction(1, 2), "digest", answer=b"own draw").answer == b"answer"
    assert ledger.answers("alice", 0)[1] == [b"answer"]


def test_another_connection_sees_the_same(maker: Maker, ledger: Ledger) -> None:
    settle(ledger, ALICE, json.dumps(["ä"]).encode())
    with contextlib.ExitStack() as closing:
        other = maker.again(ledger)
        if other is not ledger:
            closing.callback(other.close)
        assert other.answers("alice", 0) == ledger.answers("alice", 0)


def test_a_closed_ledger_has_none(maker: Maker) -> None:
    made = maker.make(loss(1, "0.5"))
    made.close()
    with pytest.raises(LedgerError, match="closed"):
        made.answers("alice", 0)
