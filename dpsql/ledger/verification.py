"""Check that the rows of a ledger agree with its history, in every database; nothing here writes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from dpsql.accounting import BudgetState
from dpsql.errors import LedgerError
from dpsql.ledger.event_rows import encode_holder
from dpsql.ledger.record import Event, Terms
from dpsql.ledger.replay import Replay, Sums, tampered

__all__ = ["Mark", "Verified", "is_behind", "replayed", "verify_rows"]


@dataclass(frozen=True, slots=True)
class Mark:
    """Last known end of a ledger: its data set, its last event and the chain of that event."""

    data_set: str
    seq: int
    chain: str


@dataclass(frozen=True, slots=True)
class Verified:
    """Verified ledger: the number of its events, and the chain of the last one, which identifies the whole history."""

    events: int
    head: str


class Rows(Protocol):
    """Rows to verify."""

    def terms(self) -> Terms:
        """Return the present terms."""
        ...

    def balances(self) -> Mapping[str, BudgetState]:
        """Return the state of every holder: the total and all accounts."""
        ...

    def history(self, after: int = ...) -> Iterable[tuple[Any, ...]]:
        """Return seq, at, kind, body and chain of all events that follow number `after`, oldest first."""
        ...

    def chain_at(self, seq: int) -> str | None:
        """Return the chain of an event, if it is there."""
        ...

    def answer(self, entry: int) -> bytes | None:
        """Return the stored answer of an entry, if there is one; its digest must be that of the settlement."""
        ...

    def events(self, after: int, most: int) -> list[Event]:
        """Return so many events, from the one that follows number `after`."""
        ...

    def answers(self) -> Iterator[int]:
        """Return the entries of all answers, in their order."""
        ...


def replayed(rows: Rows, checkpoint: Sums | None = None) -> tuple[Replay, Terms]:
    """Return what the history adds up to, and the terms; raise `ledger-tampered` where the rows say otherwise.

    It is read on from a checkpoint if that is one of this history and nothing disagrees with it, else from the first
    event, which decides.
    """
    if checkpoint is not None and rows.chain_at(checkpoint.seq) == checkpoint.chain:
        with suppress(LedgerError):
            return _agreeing(rows, Replay(checkpoint))
    return _agreeing(rows, Replay())


def _agreeing(rows: Rows, replay: Replay) -> tuple[Replay, Terms]:
    replay.read(rows.history(replay.began) if replay.began else rows.history())
    terms = rows.terms()
    if terms != replay.terms:
        raise tampered("its terms are not those of its events")
    if rows.balances() != {encode_holder(account): state for account, state in replay.states().items()}:
        raise tampered("its balances are not those of its events")
    return replay, terms


def verify_rows(rows: Rows, checkpoint: Sums | None = None) -> tuple[Replay, Terms]:
    """Replay from the first event, and check the stored answers and the checkpoint as well."""
    replay, terms = replayed(rows)
    _check_answers(rows, replay)
    if replay.repeats:
        _check_repeats(rows)
    if checkpoint is not None and rows.chain_at(checkpoint.seq) == checkpoint.chain:
        before = Replay()
        before.read(islice(rows.history(), checkpoint.seq))
        if before.sums() != checkpoint:
            raise tampered("its checkpoint is not what its events add up to")
    return replay, terms


def _check_answers(rows: Rows, replay: Replay) -> None:
    """Raise `ledger-tampered` if an answer was changed, is missing, or belongs to no event.

    None is missing if there are as many answers as events that name one, and each has the digest of its event.
    """
    found = 0
    for entry in rows.answers():
        if rows.answer(entry) is None:
            raise tampered("it holds an answer that no event was given")
        found += 1
    if found == replay.answers:
        return
    for _, _, kind, body, _ in rows.history():
        if kind == "settled":
            rows.answer(json.loads(body)["entry"])  # raises for the first that is missing


def _check_repeats(rows: Rows) -> None:
    """Raise `ledger-tampered` if a settlement repeats an entry that has no answer, or is of another question."""
    for seq, _, kind, body, _ in rows.history():
        told = json.loads(body) if kind == "settled" else {}
        if "repeats" in told:
            own, repeated = (_question(rows, told[name]) for name in ("entry", "repeats"))
            if own is None or own != repeated or rows.answer(told["repeats"]) is None:
                raise tampered(f"event {seq} repeats an answer to another question")


def _question(rows: Rows, entry: int) -> tuple[str, str | None, int] | None:
    """Return key, account and data version of a reservation; None for another event, or one without a key."""
    (event,) = rows.events(entry - 1, 1)
    told = json.loads(event.body)
    found = event.kind == "reserved" and told["key"]
    return (told["key"], told["account"], told["data_version"]) if found else None


def is_behind(rows: Rows, mark: Mark, *, data_set: str) -> bool:
    """Say whether the ledger never came to what its mark says."""
    return mark.data_set != data_set or rows.chain_at(mark.seq) != mark.chain
