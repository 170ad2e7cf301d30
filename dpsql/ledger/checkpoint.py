"""Checkpoints: the sums of a history when it was last read, so that the next opening continues from there.

A checkpoint is used only if its event is still in the ledger with the same chain, and if the checkpoint and the events
since then add up to the terms and balances of the ledger. Otherwise the whole history is read. A checkpoint is as well
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
from dpsql.ledger.record import (
    Division,
    decode_fraction,
    decode_present,
    decode_ratio,
    encode_fraction,
    encode_present,
)
from dpsql.ledger.replay import OpenEntry, Replay, Sums

__all__ = ["LEAST", "checkpoint_if_due", "decode_checkpoint", "encode_checkpoint"]

LEAST = 10_000  # events; fewer are read in about the time in which a process imports what it needs
_SHARE = 4  # things that a checkpoint may tell of for each event that was added
_FORM = 2  # 1 had no budgets of values


def checkpoint_if_due(replay: Replay) -> str | None:
    """Return the checkpoint to write, if enough events were read to make it worth writing."""
    read = replay.seq - replay.began
    if read < LEAST:
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
        "held": [
            [entry, f"{held.amount[0]}/{held.amount[1]}", held.account, *held.values]
            for entry, held in sums.held.items()
        ],
        "failed": [[account, when.isoformat()] for account, when in sums.failed],
        "values": [
            [holder, value, *map(encode_fraction, _values(state))]
            for holder, states in sums.values.items()
            for value, state in states.items()
        ],
        "division": None if sums.division is None else [sums.division.rule, sums.division.data],
        "folded": sums.folded,
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
    values: dict[str | None, dict[str, BudgetState]] = {}
    for holder, value, *amounts in told["values"]:
        values.setdefault(_name(holder), {})[str(value)] = _state(amounts)
    division = told["division"]
    sums = Sums(
        int(told["seq"]),
        str(told["chain"]),
        decode_present(told["terms"]),
        {_name(holder): _state(values) for holder, *values in told["states"]},
        {
            int(entry): OpenEntry(decode_ratio(rho), _name(account), tuple(map(str, of_values)))
            for entry, rho, account, *of_values in told["held"]
        },
        tuple((_name(account), _moment(when)) for account, when in told["failed"]),
        values,
        None if division is None else Division(*map(str, division)),
        int(told["folded"]),
    )
    reserved = {(holder, None): state.reserved for holder, state in sums.states.items()}
    reserved |= {
        (holder, value): state.reserved for holder, states in values.items() for value, state in states.items()
    }
    return sums if _held_by(sums) == {key: amount for key, amount in reserved.items() if amount} else None


def _held_by(sums: Sums) -> dict[tuple[str | None, str | None], Fraction]:
    """Return what the open reservations of the present period hold: in all and by each account, for all or a value."""
    calendar = sums.terms.calendar
    held: dict[tuple[str | None, str | None], Fraction] = {}
    for number, entry in sums.held.items():
        if (calendar is None or calendar.includes(number)) and not (entry.values and number <= sums.folded):
            amount = Fraction(*entry.amount)
            for holder in dict.fromkeys((None, entry.account)):
                for value in entry.values or (None,):
                    held[holder, value] = held.get((holder, value), Fraction(0)) + amount
    return {key: amount for key, amount in held.items() if amount}


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
