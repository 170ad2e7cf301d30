"""The history read again from its first event: whether the chain holds, and what the events add up to.

This runs at every opening, so it sums whole numbers over common denominators and looks each fraction up once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from fractions import Fraction
from typing import Any

from dpsql.accounting import ZCDP, Certificate, FilterState, Periods
from dpsql.errors import LedgerError
from dpsql.ledger.calendar import Calendar, extended
from dpsql.ledger.record import GENESIS, Terms, budget_names, chained, periods_of, ratio, terms_of
from dpsql.quantities import Delta, Rho

__all__ = ["Replay", "tampered"]

_NOTHING = (0, 1), (0, 1)


def tampered(what: str) -> LedgerError:
    """Return the error of a ledger that was changed by something else than dpsql."""
    return LedgerError(
        "ledger-tampered",
        f"The ledger was changed after it was written: {what}.",
        hint="Put the newest good copy back, and look who may write to it.",
    )


class _Tally:
    """What one holder has spent and holds, as whole numbers over one denominator for rho and one for delta."""

    __slots__ = ("delta", "delta_unit", "held", "rho_unit", "spent")

    def __init__(self) -> None:
        self.rho_unit = self.delta_unit = 1
        self.spent = self.held = self.delta = 0

    def rho(self, numerator: int, denominator: int) -> int:
        """Return a rho in units of this tally, which become smaller if they must."""
        if self.rho_unit % denominator:
            factor = denominator // math.gcd(self.rho_unit, denominator)
            self.rho_unit, self.spent, self.held = self.rho_unit * factor, self.spent * factor, self.held * factor
        return numerator * (self.rho_unit // denominator)

    def add_delta(self, numerator: int, denominator: int) -> None:
        """Spend a delta."""
        if self.delta_unit % denominator:
            factor = denominator // math.gcd(self.delta_unit, denominator)
            self.delta_unit, self.delta = self.delta_unit * factor, self.delta * factor
        self.delta += numerator * (self.delta_unit // denominator)

    def within(self, rho: tuple[int, int], delta: tuple[int, int]) -> bool:
        """Say whether what is spent and held stays within a budget."""
        return (self.spent + self.held) * rho[1] <= rho[0] * self.rho_unit and (
            self.delta * delta[1] <= delta[0] * self.delta_unit
        )

    def state(self) -> FilterState:
        """Return the same as a state."""
        spent = ZCDP(Rho(Fraction(self.spent, self.rho_unit)), Delta(Fraction(self.delta, self.delta_unit)))
        return FilterState(spent, Rho(Fraction(self.held, self.rho_unit)))


class Replay:
    """What a history adds up to, event by event."""

    def __init__(self) -> None:
        self.seq = 0
        self.chain = GENESIS
        self.terms: Terms | None = None
        self.answers: dict[int, str] = {}
        self._budget: tuple[tuple[int, int], tuple[int, int]] = _NOTHING
        self._currencies = Certificate.zcdp.currencies
        self._tallies: dict[str | None, _Tally] = {None: _Tally()}
        self._open: dict[int, tuple[tuple[int, int], str | None]] = {}

    def read(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Take rows of seq, at, kind, body and chain; raise `ledger-tampered` at the first that does not fit."""
        for row in rows:
            if not self._fits(row):
                raise tampered(f"event {self.seq + 1} does not follow from those before it")
        if self.terms is None:
            raise tampered("it has no first event")

    def states(self) -> dict[str | None, FilterState]:
        """Return the state of the total, under None, and of every account."""
        return {holder: tally.state() for holder, tally in self._tallies.items()}

    def _fits(self, row: tuple[Any, ...]) -> bool:
        seq, at, kind, body, chain = row
        try:
            if seq != self.seq + 1 or chained(self.chain, seq, at=at, kind=kind, body=body) != chain:
                return False
            if not self._take(seq, kind, body=json.loads(body), at=datetime.fromisoformat(at)):
                return False
        except (ArithmeticError, AttributeError, KeyError, LedgerError, RecursionError, TypeError, ValueError):
            return False
        self.seq, self.chain = seq, chain
        return True

    def _take(self, seq: int, kind: str, *, body: dict[str, Any], at: datetime) -> bool:
        if (seq == 1) != (kind == "created"):
            return False
        if kind == "period":
            return self._turn(seq, body["number"], at=at)
        if self._calendar is not None and self._calendar.reached(at) > self._calendar.number:
            return False
        match kind:
            case "settled":
                return self._settle(body)
            case "reserved":
                return self._reserve(seq, body)
            case "created":
                terms = terms_of(body, body["data_set"], data_version=0)
                return self._set(replace(terms, calendar=extended(None, _periods(body), at=at)), body)
            case "granted":
                return self._grant(body, at)
            case "bumped":
                return self._bump(body["data_version"])
            case "registered":
                return isinstance(body["units"], dict)
            case _:
                return False

    def _reserve(self, seq: int, body: dict[str, Any]) -> bool:
        first, second = self._currencies
        rho, delta, account = ratio(body[first]), ratio(body[second]), body["account"]
        self._open[seq] = rho, account
        total = self._tallies[None]
        for tally in (total,) if account is None else (total, self._tallies.setdefault(account, _Tally())):
            amount = tally.rho(*rho)
            tally.held += amount
            tally.add_delta(*delta)
        over = self._calendar is not None and self._calendar.is_over
        return total.within(*_NOTHING) if over else total.within(*self._budget)

    def _settle(self, body: dict[str, Any]) -> bool:
        entry, loss = body["entry"], ratio(body["loss"])
        worst, account = self._open.pop(entry)
        if body["answer"]:
            self.answers[entry] = body["answer"]
        if self._calendar is None or self._calendar.includes(entry):
            for holder in (None,) if account is None else (None, account):
                tally = self._tallies[holder]
                amount, freed = tally.rho(*loss), tally.rho(*worst)
                tally.spent += amount
                tally.held -= freed
        return loss[0] * worst[1] <= worst[0] * loss[1]

    def _grant(self, body: dict[str, Any], at: datetime) -> bool:
        old, periods = self.terms, _periods(body)
        if old is None or (old.calendar is not None and periods is None):
            return False
        terms = terms_of(body, old.data_set, data_version=old.data_version)
        if old.certified.fixes or terms.certified != old.certified:
            return False
        return self._set(replace(terms, calendar=extended(old.calendar, periods, at=at)), body)

    def _turn(self, seq: int, number: object, *, at: datetime) -> bool:
        """Begin a period, which must be the one of its own time, and later than the last."""
        old, calendar = self.terms, self._calendar
        if old is None or calendar is None or type(number) is not int:
            return False
        if number != calendar.reached(at) or number <= calendar.number:
            return False
        self.terms = replace(old, calendar=replace(calendar, number=number, since=seq))
        self._tallies = {holder: _Tally() for holder in self._tallies}
        return True

    @property
    def _calendar(self) -> Calendar | None:
        return None if self.terms is None else self.terms.calendar

    def _bump(self, version: object) -> bool:
        old = self.terms
        if old is None or type(version) is not int or version <= old.data_version:
            return False
        self.terms = replace(old, data_version=version)
        return True

    def _set(self, terms: Terms, body: dict[str, Any]) -> bool:
        first, second = budget_names(terms.certified.certificate)
        self.terms, self._budget = terms, (ratio(body[first]), ratio(body[second]))
        self._currencies = terms.certified.certificate.currencies
        return True


def _periods(body: dict[str, Any]) -> Periods | None:
    return periods_of(body["period_seconds"], body["periods"]) if "period_seconds" in body else None
