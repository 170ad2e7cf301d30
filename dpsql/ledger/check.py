"""Whether the rows of a ledger say what its history says, in whatever database they stand; nothing here writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from dpsql.accounting import FilterState
from dpsql.ledger.record import Terms
from dpsql.ledger.replay import Replay, tampered
from dpsql.ledger.rows import holder_of

__all__ = ["Mark", "Verified", "check_answers", "is_behind", "replayed"]


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

    def history(self) -> Iterable[tuple[Any, ...]]:
        """Return seq, at, kind, body and chain of all events, oldest first."""
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


def replayed(rows: Rows) -> tuple[Replay, Terms]:
    """Return what the history adds up to, and the terms; raise `ledger-tampered` where the rows say otherwise."""
    replay = Replay()
    replay.read(rows.history())
    terms = rows.terms()
    if terms != replay.terms:
        raise tampered("its terms are not those of its events")
    if rows.balances() != {holder_of(account): state for account, state in replay.states().items()}:
        raise tampered("its balances are not those of its events")
    return replay, terms


def check_answers(rows: Rows, replay: Replay) -> None:
    """Raise `ledger-tampered` if an answer is not the one it was given, or belongs to no event."""
    kept = sorted(replay.answers)
    for entry in kept:
        rows.answer(entry)
    if list(rows.answers()) != kept:
        raise tampered("it holds an answer that no event was given")


def is_behind(rows: Rows, mark: Mark, *, data_set: str) -> bool:
    """Say whether the ledger never came to what its mark says."""
    return mark.data_set != data_set or rows.chain_at(mark.seq) != mark.chain
