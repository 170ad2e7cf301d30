"""A checkpoint: from it on the history adds up to the same, and one that is not of this history changes nothing."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from support.ledger_kit import ALICE, ASK, BUDGET, ITEM, TOTAL, code_of, opened, raw, tampering

from dpsql.accounting import ApproximateDP, BudgetVector, Certificate, CertificateTerms, Periods
from dpsql.curator import read_history
from dpsql.errors import Error
from dpsql.ledger import Account, MemoryLedger, Request, SQLiteLedger, durable, verify
from dpsql.ledger.base import FAILED
from dpsql.ledger.durable import decode_checkpoint, encode_checkpoint
from dpsql.ledger.history import History
from dpsql.quantities import Epsilon, Rho

ACCOUNTS = [None, *(Account(name, BudgetVector(9, "1e-3")) for name in ("ann", "ben", 'c"é'))]
Row = tuple[Any, ...]


# equality: through a checkpoint and from the first event on


def history_of(seed: int) -> list[Row]:
    """Return the events of a random ledger: several analysts, periods or none, any certificate."""
    choose = random.Random(seed)
    clock = [datetime(2026, 1, 1, tzinfo=UTC)]
    periods = choose.choice([None, Periods(timedelta(days=7), None), Periods(timedelta(days=7), 4)])
    certified = CertificateTerms(Certificate.pure) if seed % 4 == 1 else CertificateTerms()
    kind = certified.certificate
    worst = [
        BudgetVector(Fraction(1, n), 0 if seed % 4 == 1 else Fraction(1, 10**n), certificate=kind)
        for n in (3, 7, 8, 30)
    ]
    held = []
    budget = BudgetVector(5, 0 if seed % 4 == 1 else "0.01", certificate=kind)
    with closing(
        MemoryLedger(budget, total=TOTAL, periods=periods, certified=certified, clock=lambda: clock[0])
    ) as ledger:
        for _ in range(80):
            act = choose.choices(["reserve", "settle", "wait", "bump", "grant", "register"], [8, 7, 3, 1, 1, 1])[0]
            with suppress(Error):  # what is refused is not recorded
                if act == "reserve":
                    loss = choose.choice(worst)
                    key = choose.choice("abc")
                    request = Request("q", loss, choose.choice(ACCOUNTS), key)
                    held.append((ledger.reserve(request), loss.refundable))
                elif act == "settle" and held:
                    reservation, most = held.pop(choose.randrange(len(held)))
                    part = most * choose.choice([Fraction(0), Fraction(1, 3), Fraction(1)])
                    failed = choose.random() < 0.2
                    reservation.settle(part, FAILED if failed else "0", answer=b"" if failed else b"kept")
                elif act == "wait":
                    clock[0] += timedelta(days=choose.choice([0, 1, 5, 9]), microseconds=choose.randrange(3))
                elif act == "bump":
                    ledger.bump("more")
                elif act == "grant":
                    larger = BudgetVector((ledger.budget.rho + Rho(1)).value, ledger.budget.delta.value)
                    ledger.grant(larger, ApproximateDP(Epsilon(1), TOTAL.delta), note="more")
                else:
                    ledger.register({"reads": choose.choice(["user", "device"])})
        return [(event.seq, event.at, event.kind, event.body, event.chain) for event in ledger.events()]


@pytest.mark.parametrize("seed", range(24))
def test_what_is_read_on_from_any_checkpoint_is_what_is_read_from_the_first_event_on(seed: int) -> None:
    history = history_of(seed)
    full, growing = History(), History()
    full.read(history)
    for number, row in enumerate(history, 1):
        growing.read([row])
        before = decode_checkpoint(encode_checkpoint(growing.sums()))
        assert before == growing.sums()
        resumed = History(before)
        resumed.read(history[number:])
        assert resumed.sums() == full.sums()


def test_the_random_histories_hold_every_kind_of_event_and_what_is_open_or_failed() -> None:
    histories = [history_of(seed) for seed in range(24)]
    kinds = {row[2] for history in histories for row in history}
    assert kinds == {"created", "granted", "bumped", "registered", "reserved", "settled", "period"}
    ends = []
    for events in histories:
        replay = History()
        replay.read(events)
        ends.append(replay.sums())
    assert any(end.held for end in ends)
    assert any(end.failed for end in ends)
    assert any(len(end.states) > 2 for end in ends)


# the file beside the ledger


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "LEAST", 1)


def beside(path: Path) -> Path:
    return Path(f"{path}.checkpoint")


@pytest.fixture
def kept(rich: Path) -> Path:
    """Return a ledger of thirteen events with a checkpoint of ten, and open reservations and a failure before it."""
    with opened(rich) as ledger:
        ledger.reserve(Request("fails", ITEM, ALICE))
    with opened(rich) as ledger:
        held = ledger.reserve(Request("open", ITEM, ALICE))
        ledger.reserve(Request("fails", ITEM, ALICE)).settle(Fraction(1), FAILED)
        beside(rich).unlink(missing_ok=True)
        with opened(rich):
            pass
        held.settle(Fraction("0.25"), "digest")
    return rich


def seq_of(path: Path) -> int | None:
    """Return the number of the event up to which the checkpoint beside a ledger tells, if it tells anything."""
    sums = decode_checkpoint(beside(path).read_text("utf-8", "replace"))
    return None if sums is None else sums.seq


def seen(path: Path) -> tuple[object, ...]:
    with closing(SQLiteLedger.open(path)) as ledger:
        return ledger.state(), ledger.state("alice"), ledger.budget, ledger.data_version, ledger.stored("key", None)


def test_an_opening_reads_on_from_the_checkpoint_of_the_one_before(kept: Path, read_from: list[int]) -> None:
    first = seen(kept)
    assert (read_from[-1], seq_of(kept)) == (13, 13)  # one event more is not worth the writing
    beside(kept).unlink()
    assert seen(kept) == first
    assert (read_from[-1], seq_of(kept)) == (0, 14)
    assert seen(kept) == first
    assert (read_from[-1], seq_of(kept)) == (14, 14)


def test_a_checkpoint_is_as_private_as_its_ledger(kept: Path) -> None:
    beside(kept).unlink()
    kept.chmod(0o640)
    seen(kept)
    assert beside(kept).stat().st_mode & 0o777 == 0o640


def test_a_short_history_needs_no_checkpoint(rich: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside(rich).unlink(missing_ok=True)
    monkeypatch.setattr(durable, "LEAST", 10)
    seen(rich)
    assert not beside(rich).exists()
    with opened(rich) as ledger:
        ledger.reserve(ASK)
    seen(rich)
    assert seq_of(rich) == 10


def test_a_checkpoint_waits_until_a_fourth_as_many_events_were_added_as_it_tells_of_things(path: Path) -> None:
    told = []
    for _ in range(24):
        with opened(path) as ledger:
            told.append(seq_of(path) if beside(path).exists() else 0)
            ledger.reserve(ASK)
    # as many things as there are events: the reservations, which are all open, and the total
    assert told == [1, 2, 3, 4, 4, 6, 6, 8, 8, 8, *[11] * 4, *[15] * 5, *[20] * 5]


def test_a_reservation_that_was_open_at_the_checkpoint_is_held_until_it_is_settled_and_only_once(
    path: Path, read_from: list[int]
) -> None:
    with opened(path) as ledger:
        ledger.reserve(ASK).settle(Fraction(1), "digest")
        held = ledger.reserve(Request("q", ITEM, ALICE))
        with opened(path) as other:
            assert (other.state("alice").reserved, seq_of(path)) == (Fraction(1), 4)
        held.settle(Fraction("0.5"), "digest")
        assert code_of(lambda: held.settle(Fraction(0), "digest")) == "already-settled"
    with opened(path) as ledger:
        assert (ledger.state("alice").spent, ledger.state("alice").reserved) == (Fraction("0.5"), Fraction(0))
    assert read_from[-1] == 4


def test_failures_before_the_checkpoint_are_counted(path: Path) -> None:
    with opened(path) as ledger:
        ledger.reserve(Request("q", ITEM, ALICE)).settle(Fraction(1), FAILED)
    for _ in range(2):
        with opened(path) as ledger:
            with pytest.raises(Error, match="too-many-failures"):
                ledger.reserve(Request("q", ITEM, ALICE, most_failures=1))
            ledger.reserve(Request("q", ITEM, ALICE, most_failures=2))  # each is counted once


# what is not of this history


def mutants(told: object, path: tuple[object, ...] = ()) -> Iterator[tuple[tuple[object, ...], object]]:
    """Yield the place of each leaf of a checkpoint, and another value for it."""
    if isinstance(told, dict | list):
        for at in told if isinstance(told, dict) else range(len(told)):
            yield from mutants(told[at], (*path, at))
    elif isinstance(told, int):
        yield path, told + 1
    elif told is None:
        yield path, "bob"
    elif isinstance(told, str):
        other = f"{int(told.split('/')[0]) + 1}/{told.split('/')[1]}" if "/" in told else f"{told[:-1]}0"
        yield path, other if other != told else f"{told[:-1]}1"


def changed(told: dict[str, Any], path: tuple[Any, ...], value: object) -> str:
    """Return a checkpoint with one value changed, and its digest made to fit."""
    other = json.loads(json.dumps(told))
    part = other
    for at in path[:-1]:
        part = part[at]
    part[path[-1]] = value
    line = json.dumps(other, sort_keys=True, separators=(",", ":"))
    return f"{line}\n{durable._digest(line)}\n"


def test_a_checkpoint_with_one_value_changed_is_not_believed_though_its_digest_fits(
    kept: Path, read_from: list[int]
) -> None:
    right = seen(kept)
    told = json.loads(beside(kept).read_text().splitlines()[0])
    places = list(mutants(told))
    assert len(places) > 20
    for place, value in places:
        beside(kept).write_text(changed(told, place, value))
        read_from.clear()
        assert seen(kept) == right, place
        if place[0] == "failed":  # of which no balance tells
            beside(kept).write_text(changed(told, place, value))
            assert code_of(lambda: verify(kept)) == "ledger-tampered"
        else:
            assert (read_from[-1], seq_of(kept)) == (0, 14), place


def test_verifying_reads_everything_and_finds_a_checkpoint_that_is_false(kept: Path, read_from: list[int]) -> None:
    seen(kept)
    read_from.clear()
    assert verify(kept).events == 14
    assert set(read_from) == {0}
    told = json.loads(beside(kept).read_text().splitlines()[0])
    beside(kept).write_text(changed(told, ("states", 0, 3), "0/1"))
    assert verify(kept).events == 14  # what is held and what is open differ: it is none
    beside(kept).write_text(changed(told, ("states", 0, 1), "0/1"))
    assert code_of(lambda: verify(kept)) == "ledger-tampered"


@pytest.mark.parametrize(
    "spoil", [lambda text: text[:-1], lambda text: text[5:], lambda _: "", lambda text: "\xe9" + text]
)
def test_a_checkpoint_that_was_cut_short_is_made_again(kept: Path, read_from: list[int], spoil: Any) -> None:
    right = seen(kept)
    beside(kept).write_text(spoil(beside(kept).read_text()), "latin-1")
    assert seq_of(kept) is None
    assert seen(kept) == right
    assert (read_from[-1], seq_of(kept)) == (0, 14)


def test_a_checkpoint_of_another_ledger_or_of_an_older_copy_is_not_believed(
    kept: Path, read_from: list[int], tmp_path: Path
) -> None:
    right = seen(kept)
    other = tmp_path / "other.ledger"
    with opened(other) as ledger:
        for _ in range(7):
            ledger.reserve(ASK).settle(Fraction(1), "digest")
    seen(other)
    shutil.copy(beside(other), beside(kept))
    assert seen(kept) == right
    assert read_from[-1] == 0


def test_an_older_checkpoint_of_the_same_ledger_is_read_on_from(kept: Path, read_from: list[int]) -> None:
    older = beside(kept).read_text()
    with opened(kept) as ledger:
        ledger.reserve(ASK).settle(Fraction(1), "digest")
    right = seen(kept)
    beside(kept).write_text(older)
    assert seen(kept) == right
    assert read_from[-1] == 13


def test_a_checkpoint_gives_nothing_back_where_the_balance_was_changed(kept: Path) -> None:
    seen(kept)
    with raw(kept) as connection:
        connection.execute("UPDATE balances SET spent_rho = '0/1'")
    assert code_of(lambda: SQLiteLedger.open(kept)) == "ledger-tampered"


@pytest.mark.parametrize("least", [13, 14, 15])
def test_a_history_whose_end_was_taken_off_is_refused(kept: Path, least: int) -> None:
    seen(kept)
    with opened(kept) as ledger:
        ledger.reserve(ASK)
    with tampering(kept) as connection:
        connection.execute("DELETE FROM events WHERE seq >= ?", (least,))
    for mark in (True, False):
        if not mark:
            Path(f"{kept}.mark").unlink()
        assert code_of(lambda: SQLiteLedger.open(kept)) in {"ledger-tampered", "ledger-rolled-back"}


@pytest.mark.parametrize("seq", range(1, 15))
def test_an_event_that_was_changed_is_found_by_what_reads_it_and_by_an_opening_if_it_follows_the_checkpoint(
    kept: Path, seq: int
) -> None:
    with tampering(kept) as connection:
        connection.execute("UPDATE events SET body = body || ' ' WHERE seq = ?", (seq,))
    assert code_of(lambda: verify(kept)) == "ledger-tampered"
    assert code_of(lambda: next(read_history(kept))) == "ledger-tampered"
    if seq > 13:
        assert code_of(lambda: SQLiteLedger.open(kept)) == "ledger-tampered"
    else:
        with closing(SQLiteLedger.open(kept)) as ledger:
            assert code_of(ledger.entries) == "ledger-tampered"
    beside(kept).unlink()
    assert code_of(lambda: SQLiteLedger.open(kept)) == "ledger-tampered"


@pytest.mark.parametrize(("seq", "key", "account"), [(3, "key", "alice"), (4, "key", "alice"), (5, "key", None)])
def test_an_event_before_the_checkpoint_that_was_changed_gives_no_answer(
    path: Path, seq: int, key: str, account: str | None
) -> None:
    with opened(path) as ledger:
        ledger.register({"reads": "user_id"})
        ledger.reserve(Request("of alice", ITEM, ALICE, "key")).settle(Fraction("0.5"), "digest", answer=b"an answer")
        ledger.reserve(Request("of nobody", ITEM, key="key")).settle(Fraction("0.5"), "digest", answer=b"another")
    with opened(path) as ledger:
        assert ledger.stored(key, account) is not None
    with tampering(path) as connection:
        connection.execute("UPDATE events SET body = body || ' ' WHERE seq = ?", (seq,))
    with opened(path) as ledger:
        assert code_of(lambda: ledger.stored(key, account)) == "ledger-tampered"


def test_a_declaration_before_the_checkpoint_that_was_changed_is_found_by_the_next(path: Path) -> None:
    with opened(path) as ledger:
        ledger.register({"reads": "user_id"})
    with opened(path):
        pass
    with tampering(path) as connection:
        connection.execute("UPDATE events SET body = replace(body, 'user_id', 'row_id') WHERE seq = 2")
    with opened(path) as ledger:
        assert code_of(lambda: ledger.register({"reads": "row_id"})) == "ledger-tampered"


def test_an_opening_that_cannot_write_its_checkpoint_opens(kept: Path) -> None:
    right = seen(kept)
    beside(kept).unlink()
    beside(kept).mkdir()
    assert seen(kept) == right
    assert BUDGET.rho == right[2].rho
