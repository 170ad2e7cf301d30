"""History of a ledger, read from its first event or from a checkpoint: check the chain, and sum up the events.

This runs at every opening, so it sums whole numbers over common denominators and looks each fraction up once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction
from typing import Any

from dpsql.accounting import BudgetState, BudgetVector, Periods, fold_values
from dpsql.errors import LedgerError
from dpsql.ledger.base import FAILED
from dpsql.ledger.record import (
    GENESIS,
    Calendar,
    Division,
    Event,
    LedgerTerms,
    NamedTable,
    compute_chain,
    decode_periods,
    decode_ratio,
    decode_terms,
    extended,
)

Ratio = tuple[int, int]
_NOTHING = (0, 1), (0, 1)


@dataclass(frozen=True, slots=True)
class OpenEntry:
    """Open reservation: the refundable amount, the account, and the values that it is charged to, none for all."""

    amount: Ratio
    account: str | None
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums of the events up to number `seq`, from which later events continue; `chain` is the chain of that event.

    `states` has the state of the total under None, and the states of all accounts. `held` has the open reservations:
    the amounts that they reserve, and their accounts. `failed` has account and time of each query that failed, and
    `tables` are the stored ones. Up to there no value of a column had a budget.
    """

    seq: int
    chain: str
    terms: LedgerTerms
    states: Mapping[str | None, BudgetState]
    held: Mapping[int, tuple[Ratio, str | None]]
    failed: tuple[tuple[str | None, datetime], ...]
    tables: tuple[NamedTable, ...] = ()

    @property
    def size(self) -> int:
        """Number of items in the sums."""
        return len(self.states) + len(self.held) + len(self.failed) + len(self.tables)


def tampered(what: str) -> LedgerError:
    """Return the error of a ledger that was changed by something else than dpsql."""
    return LedgerError(
        "ledger-tampered",
        f"The ledger was changed after it was written: {what}.",
        hint="Put the newest good copy back, and look who may write to it.",
    )


def unlinked(seq: int) -> LedgerError:
    """Return the error of a ledger whose event of this number is not the one that was written."""
    return tampered(f"event {seq} does not follow from those before it")


def refuse_unlinked(event: Event, before: str) -> None:
    """Raise `ledger-tampered` if an event is not the one that was written after that of the chain `before`."""
    if compute_chain(before, event.seq, at=event.at, kind=event.kind, body=event.body) != event.chain:
        raise unlinked(event.seq)


class _Tally:
    """Spent and reserved amounts of one holder, as whole numbers over one denominator for each currency."""

    __slots__ = ("held", "permanent", "permanent_unit", "spent", "unit")

    def __init__(self, state: BudgetState | None = None) -> None:
        self.unit = self.permanent_unit = 1
        self.spent = self.held = self.permanent = 0
        if state is not None:
            self.add_permanent(*state.permanent.as_integer_ratio())
            self.held = self.scale(*state.reserved.as_integer_ratio())
            amount = self.scale(*state.spent.as_integer_ratio())  # may make the unit smaller, which rescales `held`
            self.spent = amount

    def scale(self, numerator: int, denominator: int) -> int:
        """Return a refundable amount in units of this tally, which become smaller if they must."""
        if self.unit % denominator:
            factor = denominator // math.gcd(self.unit, denominator)
            self.unit, self.spent, self.held = self.unit * factor, self.spent * factor, self.held * factor
        return numerator * (self.unit // denominator)

    def add_permanent(self, numerator: int, denominator: int) -> None:
        """Spend a permanent amount, or free one that is below 0."""
        if self.permanent_unit % denominator:
            factor = denominator // math.gcd(self.permanent_unit, denominator)
            self.permanent_unit, self.permanent = self.permanent_unit * factor, self.permanent * factor
        self.permanent += numerator * (self.permanent_unit // denominator)

    def within_with(self, other: _Tally, rho: tuple[int, int], *, delta: tuple[int, int]) -> bool:
        """Say whether the amounts of this tally and another together are within a budget."""
        # used / (unit * other unit) <= rho, multiplied out, so that whole numbers are compared.
        used = (self.spent + self.held) * other.unit + (other.spent + other.held) * self.unit
        permanent = self.permanent * other.permanent_unit + other.permanent * self.permanent_unit
        return used * rho[1] <= rho[0] * self.unit * other.unit and (
            permanent * delta[1] <= delta[0] * self.permanent_unit * other.permanent_unit
        )

    def state(self) -> BudgetState:
        """Return the same as a state."""
        return BudgetState(
            Fraction(self.spent, self.unit),
            Fraction(self.permanent, self.permanent_unit),
            Fraction(self.held, self.unit),
        )


_FRESH = _Tally()


class History:
    """Sums of a history, event by event, from the first event or from the checkpoint `after`.

    `began` is the number of the last event that was not read here. Of the settlements that were read, `answers` counts
    those with an answer, and `repeats` those that repeat one. It `divides` if an event gave units their values, which
    they now have by the `division`. What is reserved for values up to event number `folded` is charged in full to all.
    The `tables` are those that are stored under a name, the oldest first.
    """

    def __init__(self, after: Sums | None = None) -> None:
        self.seq = self.began = 0
        self.chain = GENESIS
        self.terms: LedgerTerms | None = None
        self.answers = self.repeats = 0
        self.failed: list[tuple[str | None, datetime]] = []
        self.tables: list[NamedTable] = []
        self._budget: tuple[Ratio, Ratio] = _NOTHING
        self._currencies = BudgetVector(0, 0).certificate.currencies
        self._tallies: dict[str | None, _Tally] = {None: _Tally()}
        self._values: dict[str | None, dict[str, _Tally]] = {}  # of what is charged to units of one value
        self.divides = False
        self.division: Division | None = None
        self.folded = 0
        self._open: dict[int, OpenEntry] = {}
        self._deltas: dict[int, Ratio] = {}  # of the open reservations that were read here
        if after is not None:
            self.seq = self.began = after.seq
            self.chain, self.failed, self.tables = after.chain, list(after.failed), list(after.tables)
            self._open = {entry: OpenEntry(*held) for entry, held in after.held.items()}
            self._tallies = {holder: _Tally(state) for holder, state in after.states.items()}
            self._set(after.terms)

    def read(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Take rows of seq, at, kind, body and chain; raise `ledger-tampered` at the first that does not fit."""
        for seq, at, kind, body, chain in rows:
            try:
                fits = (
                    seq == self.seq + 1
                    and compute_chain(self.chain, seq, at=at, kind=kind, body=body) == chain
                    and self._take(seq, kind, body=json.loads(body), at=datetime.fromisoformat(at))
                )
            # All that a body of another hand can raise, such as one without "account", or a number that is a text.
            except (ArithmeticError, AttributeError, KeyError, LedgerError, RecursionError, TypeError, ValueError):
                fits = False
            if not fits:
                raise unlinked(self.seq + 1)
            self.seq, self.chain = seq, chain
        if self.terms is None:
            raise tampered("it has no first event")

    def states(self) -> dict[str | None, BudgetState]:
        """Return the state of the total, under None, and of every account."""
        return {holder: tally.state() for holder, tally in self._tallies.items()}

    def state(self, account: str | None) -> BudgetState:
        """Return the state of the total, or of an account; a fresh one for an account that never reserved."""
        tally = self._tallies.get(account)
        return BudgetState() if tally is None else tally.state()

    def values(self, account: str | None) -> dict[str, BudgetState]:
        """Return the state of what the total, or an account, was charged for units of one value, by their values."""
        return {value: tally.state() for value, tally in self._values.get(account, {}).items()}

    @property
    def holders_of_values(self) -> tuple[str | None, ...]:
        """Return the total, as None, and the accounts that were charged for units of some values alone."""
        return tuple(self._values)

    def sums(self) -> Sums:
        """Return what was read so far, from which another can go on; there was a first event, and no division."""
        if self.terms is None:
            raise tampered("it has no first event")
        held = {entry: (open_.amount, open_.account) for entry, open_ in self._open.items()}
        return Sums(self.seq, self.chain, self.terms, self.states(), held, tuple(self.failed), tuple(self.tables))

    def _take(self, seq: int, kind: str, *, body: dict[str, Any], at: datetime) -> bool:
        """Add an event to the sums; return whether it may follow those before it."""
        if (seq == 1) != (kind == "created"):
            return False
        if kind == "period":
            return self._turn(seq, body["number"], at=at)
        # Writers begin a period before they write in it: an event after the end of the last period that began is none
        # of ours.
        if self._calendar is not None and self._calendar.reached(at) > self._calendar.number:
            return False
        match kind:
            case "settled":
                return self._settle(body, at)
            case "reserved":
                return self._reserve(seq, body)
            case "created":
                terms = decode_terms(body, body["data_set"], data_version=0)
                return self._set(replace(terms, calendar=extended(None, _periods(body), at=at)))
            case "granted":
                return self._grant(body, at)
            case "bumped" | "divided":
                return self._bump(seq, body["data_version"]) if kind == "bumped" else self._divide(seq, body)
            case "registered":
                return isinstance(body["units"], dict)
            case _:
                return self._take_table(seq, kind, body=body, at=at)

    def _reserve(self, seq: int, body: dict[str, Any]) -> bool:
        first, second = self._currencies
        rho, delta, account = decode_ratio(body[first]), decode_ratio(body[second]), body["account"]
        values = tuple(body.get("values", ()))
        if "values" in body and not (self.division is not None and _is_sorted_set(body["values"])):
            return False
        self._open[seq], self._deltas[seq] = OpenEntry(rho, account, values), delta
        for tally in self._find_tallies(self._open[seq]):
            amount = tally.scale(*rho)
            tally.held += amount
            tally.add_permanent(*delta)
        # A unit has one value. So it may have lost what is charged to all units, and what is charged to its value: the
        # values of this entry are looked at, or all of them if it is charged to all units.
        over = self._calendar is not None and self._calendar.is_over
        total, of_values = self._tallies[None], self._values.get(None, {})
        touched = [of_values[value] for value in values] if values else [*of_values.values()]
        budget, delta_budget = _NOTHING if over else self._budget
        return all(total.within_with(tally, budget, delta=delta_budget) for tally in touched or [_FRESH])

    def _find_tallies(self, entry: OpenEntry) -> list[_Tally]:
        """Return the tallies that an entry is charged to: of the total and of its account, for all units or values."""
        holders = dict.fromkeys((None, entry.account))
        if not entry.values:
            return [self._tallies.setdefault(holder, _Tally()) for holder in holders]
        of_values = [self._values.setdefault(holder, {}) for holder in holders]
        return [tallies.setdefault(value, _Tally()) for tallies in of_values for value in entry.values]

    def _settle(self, body: dict[str, Any], at: datetime) -> bool:
        entry, loss = body["entry"], decode_ratio(body["loss"])
        found = self._open.pop(entry)  # KeyError: it was never reserved, or is settled twice
        worst, account = found.amount, found.account
        reserved, freed_delta = self._deltas.pop(entry, None), decode_ratio(body.get("freed_delta", "0/1"))
        if ("repeats" in body) != ("freed_delta" in body):
            return False
        if "repeats" in body:
            if not self._may_repeat(body) or reserved not in {None, freed_delta}:
                return False
            self.repeats += 1
        if body["answer"]:
            self.answers += 1
        if body["digest"] == FAILED:
            self.failed.append((account, at))
        # of an earlier period the tallies are gone; of values before a fold the worst case is charged to all units
        is_present = self._calendar is None or self._calendar.includes(entry)
        if is_present and not (found.values and entry <= self.folded):
            for tally in self._find_tallies(found):
                amount, freed = tally.scale(*loss), tally.scale(*worst)
                tally.spent += amount
                tally.held -= freed
                if freed_delta[0]:
                    tally.add_permanent(-freed_delta[0], freed_delta[1])
        return loss[0] * worst[1] <= worst[0] * loss[1]  # loss <= worst case

    def _may_repeat(self, body: dict[str, Any]) -> bool:
        """Say whether a settlement that repeats an entry costs nothing, stores nothing, and follows that one's."""
        entry = body["repeats"]
        before = type(entry) is int and 1 < entry <= self.seq and entry != body["entry"] and entry not in self._open
        return before and not decode_ratio(body["loss"])[0] and not body["answer"]

    def _grant(self, body: dict[str, Any], at: datetime) -> bool:
        old, periods = self.terms, _periods(body)
        if old is None or (old.calendar is not None and periods is None):
            return False
        terms = decode_terms(body, old.data_set, data_version=old.data_version)
        if old.certified.fixes or terms.certified != old.certified:
            return False
        return self._set(replace(terms, calendar=extended(old.calendar, periods, at=at)))

    def _turn(self, seq: int, number: object, *, at: datetime) -> bool:
        """Begin a period, which must be the one of its own time, and later than the last."""
        old, calendar = self.terms, self._calendar
        if old is None or calendar is None or type(number) is not int:
            return False
        if number != calendar.reached(at) or number <= calendar.number:
            return False
        self.terms = replace(old, calendar=replace(calendar, number=number, since=seq))
        # Reservations that are open stay in `_open`: their settlement is checked, and changes no tally.
        self._tallies = {holder: _Tally() for holder in self._tallies}
        self._values = {}
        return True

    @property
    def _calendar(self) -> Calendar | None:
        return None if self.terms is None else self.terms.calendar

    def _fold(self, seq: int) -> None:
        """Charge the most that was charged to one value to all units, from event number `seq` on."""
        for holder in self._values:
            self._tallies[holder] = _Tally(fold_values(self.state(holder), self.values(holder).values()))
        self._values, self.folded = {}, seq

    def _divide(self, seq: int, body: dict[str, Any]) -> bool:
        old, division = self.division, Division(_text(body["rule"]), _text(body["data"]))
        if old is not None and old.rule == division.rule:
            return False
        if old is not None:
            self._fold(seq)
        self.division, self.divides = division, True
        return True

    def _bump(self, seq: int, version: object) -> bool:
        old = self.terms
        if old is None or type(version) is not int or version <= old.data_version:
            return False
        self.terms = replace(old, data_version=version)
        self._fold(seq)
        self.division = None
        return True

    def _take_table(self, seq: int, kind: str, *, body: dict[str, Any], at: datetime) -> bool:
        """Add the stored table of an event, or take out a published one."""
        name = _text(body["name"])
        if kind == "withdrawn":
            left = [each for each in self.tables if not (each.is_published and each.name.lower() == name.lower())]
            is_there, self.tables = len(left) < len(self.tables), left
            return is_there
        for part in ("text", "question", "comment", "table"):
            _text(body[part])
        account, version = body["account"], body["data_version"]
        self.tables.append(NamedTable(seq, name, at, version, account and _text(account), kind == "published"))
        present = None if self.terms is None else self.terms.data_version
        return kind in {"named", "published"} and type(version) is int and present is not None and version <= present

    def _set(self, terms: LedgerTerms) -> bool:
        budget = terms.budget
        self.terms = terms
        self._budget = budget.refundable.as_integer_ratio(), budget.permanent.as_integer_ratio()
        self._currencies = terms.certified.certificate.currencies
        return True


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _is_sorted_set(values: object) -> bool:
    """Return whether these are the values of a reservation as they are written: texts in their order, each once."""
    if not isinstance(values, list) or not values or not all(isinstance(each, str) for each in values):
        return False
    return values == sorted(set(values))


def _periods(body: dict[str, Any]) -> Periods | None:
    return decode_periods(body["period_seconds"], body["periods"]) if "period_seconds" in body else None
