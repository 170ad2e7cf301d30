"""Whether the rows of a ledger say what its history says, in whatever database they stand; nothing here writes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any, Protocol

from dpsql.accounting import FilterState
from dpsql.errors import LedgerError
from dpsql.ledger.record import Terms
from dpsql.ledger.replay import Replay, Sums, tampered
from dpsql.ledger.rows import holder_of
from dpsql.values import dataclass

__all__ = ["Mark", "Verified", "is_behind", "replayed", "verified"]


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a ledger had come: of which data set, its last event and that event's chain."""

    data_set: str
    seq: int
    chain: str


@dataclass(frozen=True, slots=True)
class Verified:
    """A ledger whose whole history holds together: how many events, and the chain of the last, which stands for all."""

    events: int
    head: str


class Rows(Protocol):
    """What is looked at."""

    def terms(self) -> Terms:
        """Return the present terms."""
        ...

    def balances(self) -> Mapping[str, FilterState]:
        """Return the state of every holder: the total and all accounts."""
        ...

    def history(self, after: int = ...) -> Iterable[tuple[Any, ...]]:
        """Return seq, at, kind, body and chain of all events that follow number `after`, oldest first."""
        ...

    def chain_at(self, seq: int) -> str | None:
        """Return the chain of an event, if it is there."""
        ...

    def answer(self, entry: int) -> bytes | None:
        """Return the answer of an entry, if it kept one; it must be the one that its settlement names."""
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
    if rows.balances() != {holder_of(account): state for account, state in replay.states().items()}:
        raise tampered("its balances are not those of its events")
    return replay, terms


def verified(rows: Rows, checkpoint: Sums | None = None) -> tuple[Replay, Terms]:
    """Return the same from the first event, whatever there is; raise also for answers, and for a false checkpoint."""
    replay, terms = replayed(rows)
    _check_answers(rows, replay)
    if checkpoint is not None and rows.chain_at(checkpoint.seq) == checkpoint.chain:
        before = Replay()
        before.read(islice(rows.history(), checkpoint.seq))
        if before.sums() != checkpoint:
            raise tampered("its checkpoint is not what its events add up to")
    return replay, terms


def _check_answers(rows: Rows, replay: Replay) -> None:
    """Raise `ledger-tampered` if an answer is not the one it was given, is missing, or belongs to no event.

    As many answers as events that name one, each named by its own: then none is missing. None is kept here.
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


def is_behind(rows: Rows, mark: Mark, *, data_set: str) -> bool:
    """Say whether the ledger never came to what its mark says."""
    return mark.data_set != data_set or rows.chain_at(mark.seq) != mark.chain
