"""Check that the rows of a ledger agree with its history, in every database, and checkpoints of that history.

A checkpoint has the sums of a history when it was last read, so that the next opening continues from there. It is used
only if its event is still in the ledger with the same chain, and if the checkpoint and the events since then add up to
the terms and balances of the ledger. Otherwise the whole history is read. Once values of a column have budgets none is
written any more: the ledger's balances would not tell whether it is right. A checkpoint is as well protected as the
mark: its digest detects truncation and accidental changes, but not a forger who knows the format.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from itertools import islice
from typing import Any, Protocol

from dpsql.accounting import BudgetState
from dpsql.errors import Error, LedgerError
from dpsql.ledger.durable import encode_holder
from dpsql.ledger.record import (
    Event,
    LedgerTerms,
    decode_fraction,
    decode_present,
    decode_ratio,
    encode_fraction,
    encode_present,
)
from dpsql.ledger.replay import Replay, Sums, tampered

LEAST = 10_000  # events; fewer are read in about the time in which a process imports what it needs
_SHARE = 4  # things that a checkpoint may tell of for each event that was added
_FORM = 1


def checkpoint_if_due(replay: Replay) -> str | None:
    """Return the checkpoint to write, if enough events were read to make it worth writing."""
    read = replay.seq - replay.began
    if read < LEAST or replay.divides:
        return None
    sums = replay.sums()
    return encode_checkpoint(sums) if _SHARE * read >= sums.size else None


def encode_checkpoint(sums: Sums) -> str:
    """Return a checkpoint as text: a line of JSON, and its SHA-256."""
    told = {
        "form": _FORM,
        "seq": sums.seq,
        "chain": sums.chain,
        "terms": encode_present(sums.terms),
        "states": [[holder, *map(encode_fraction, _values(state))] for holder, state in sums.states.items()],
        "held": [[entry, f"{rho[0]}/{rho[1]}", account] for entry, (rho, account) in sums.held.items()],
        "failed": [[account, when.isoformat()] for account, when in sums.failed],
    }
    line = json.dumps(told, sort_keys=True, separators=(",", ":"))
    return f"{line}\n{_digest(line)}\n"


def decode_checkpoint(text: str | None) -> Sums | None:
    """Return the sums that `encode_checkpoint` encoded; None for any other text."""
    line, _, rest = (text or "").partition("\n")
    if rest != f"{_digest(line)}\n":
        return None
    with suppress(ArithmeticError, AttributeError, Error, KeyError, RecursionError, TypeError, ValueError):
        return _read(json.loads(line))
    return None


def _read(told: Mapping[str, Any]) -> Sums | None:
    if told["form"] != _FORM:
        return None
    sums = Sums(
        int(told["seq"]),
        str(told["chain"]),
        decode_present(told["terms"]),
        {_name(holder): _state(values) for holder, *values in told["states"]},
        {int(entry): (decode_ratio(rho), _name(account)) for entry, rho, account in told["held"]},
        tuple((_name(account), _moment(when)) for account, when in told["failed"]),
    )
    return sums if _held_by(sums) == {holder: state.reserved for holder, state in sums.states.items()} else None


def _held_by(sums: Sums) -> dict[str | None, Fraction]:
    """Return what the open reservations of the present period hold, in all and by each account."""
    calendar = sums.terms.calendar
    held = dict.fromkeys(sums.states, Fraction(0))
    for entry, ((numerator, denominator), account) in sums.held.items():
        if calendar is None or calendar.includes(entry):
            for holder in dict.fromkeys((None, account)):
                held[holder] += Fraction(numerator, denominator)
    return held


def _name(account: object) -> str | None:
    if not (account is None or isinstance(account, str)):
        raise TypeError
    return account


def _moment(when: str) -> datetime:
    moment = datetime.fromisoformat(when)
    if moment.tzinfo is None:  # it could not be compared with others
        raise ValueError
    return moment


def _state(values: list[object]) -> BudgetState:
    spent, permanent, reserved = map(decode_fraction, values)
    return BudgetState(spent, permanent, reserved)


def _values(state: BudgetState) -> tuple[Fraction, Fraction, Fraction]:
    return state.spent, state.permanent, state.reserved


def _digest(line: str) -> str:
    return hashlib.sha256(line.encode("utf-8", "replace")).hexdigest()


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


class LedgerRows(Protocol):
    """Rows to verify."""

    def terms(self) -> LedgerTerms:
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


def replayed(rows: LedgerRows, checkpoint: Sums | None = None) -> tuple[Replay, LedgerTerms]:
    """Return what the history adds up to, and the terms; raise `ledger-tampered` where the rows say otherwise.

    It is read on from a checkpoint if that is one of this history and nothing disagrees with it, else from the first
    event, which decides.
    """
    if checkpoint is not None and rows.chain_at(checkpoint.seq) == checkpoint.chain:
        with suppress(LedgerError):
            return _agreeing(rows, Replay(checkpoint))
    return _agreeing(rows, Replay())


def _agreeing(rows: LedgerRows, replay: Replay) -> tuple[Replay, LedgerTerms]:
    replay.read(rows.history(replay.began) if replay.began else rows.history())
    terms = rows.terms()
    if terms != replay.terms:
        raise tampered("its terms are not those of its events")
    if rows.balances() != {encode_holder(account): state for account, state in replay.states().items()}:
        raise tampered("its balances are not those of its events")
    return replay, terms


def verify_rows(rows: LedgerRows, checkpoint: Sums | None = None) -> tuple[Replay, LedgerTerms]:
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


def _check_answers(rows: LedgerRows, replay: Replay) -> None:
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


def _check_repeats(rows: LedgerRows) -> None:
    """Raise `ledger-tampered` if a settlement repeats an entry that has no answer, or is of another question."""
    for seq, _, kind, body, _ in rows.history():
        told = json.loads(body) if kind == "settled" else {}
        if "repeats" in told:
            own, repeated = (_question(rows, told[name]) for name in ("entry", "repeats"))
            if own is None or own != repeated or rows.answer(told["repeats"]) is None:
                raise tampered(f"event {seq} repeats an answer to another question")


def _question(rows: LedgerRows, entry: int) -> tuple[str, str | None, int] | None:
    """Return key, account and data version of a reservation; None for another event, or one without a key."""
    (event,) = rows.events(entry - 1, 1)
    told = json.loads(event.body)
    found = event.kind == "reserved" and told["key"]
    return (told["key"], told["account"], told["data_version"]) if found else None


def is_behind(rows: LedgerRows, mark: Mark, *, data_set: str) -> bool:
    """Say whether the ledger never came to what its mark says."""
    return mark.data_set != data_set or rows.chain_at(mark.seq) != mark.chain
