"""Checkpoints: the sums of a history when it was last read, so that the next opening continues from there.

A checkpoint is used only if its event is still in the ledger with the same chain, and if the checkpoint and the events
since then add up to the terms and balances of the ledger. Otherwise the whole history is read. Once values of a column
have budgets none is written any more: the ledger's balances would not tell whether it is right. A checkpoint is as well
protected as the mark: its digest detects truncation and accidental changes, but not a forger who knows the format.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from fractions import Fraction
from typing import Any

from dpsql.accounting import BudgetState
from dpsql.errors import Error
from dpsql.ledger.record import decode_fraction, decode_present, decode_ratio, encode_fraction, encode_present
from dpsql.ledger.replay import Replay, Sums

__all__ = ["LEAST", "checkpoint_if_due", "decode_checkpoint", "encode_checkpoint"]

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
