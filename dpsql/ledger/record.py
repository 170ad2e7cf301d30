"""What a ledger writes down: events, each tied to all before it by a chain of SHA-256, and what they tell.

A body is JSON with sorted keys, no spaces and ASCII only, so that one content has one spelling. Numbers are exact
fractions as text, "numerator/denominator". Amounts are named by the currencies of the ledger's certificate.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import lru_cache
from typing import Any

from dpsql.accounting import ApproximateDP, BudgetVector, Certificate, CertificateTerms, Periods
from dpsql.errors import UsageError
from dpsql.ledger.calendar import Calendar, Clock, utc
from dpsql.quantities import Delta, Epsilon

__all__ = [
    "GENESIS",
    "Body",
    "Entry",
    "Event",
    "Settlement",
    "Terms",
    "budget_names",
    "certified_of",
    "chained",
    "entries_of",
    "follow",
    "fraction",
    "now",
    "periods_of",
    "present_of",
    "ratio",
    "terms_of",
    "told_account",
    "told_certified",
    "told_periods",
    "told_present",
    "told_terms",
    "told_version",
    "written",
]

Body = Mapping[str, object]
GENESIS = "0" * 64  # the chain before the first event
_DIGITS = 300  # longest numerator or denominator; above it a float overflows in messages, and int() itself refuses
_TOO_LONG = 10**_DIGITS
_ZCDP = CertificateTerms()
_FRACTION = re.compile(rf"(\d{{1,{_DIGITS}}})/([1-9]\d{{0,{_DIGITS - 1}}})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Event:
    """One record, as it was written: `at` is an ISO 8601 time, which decides when a period begins, `body` is JSON."""

    seq: int
    at: str
    kind: str
    body: str
    chain: str


@dataclass(frozen=True, slots=True)
class Terms:
    """What a ledger stands for at one moment: whose data, what may be spent, and when, and the data's version."""

    data_set: str
    budget: BudgetVector
    total: ApproximateDP
    data_version: int
    calendar: Calendar | None = None
    certified: CertificateTerms = _ZCDP

    @property
    def periods(self) -> Periods | None:
        """How often the budget is granted; None for once."""
        return None if self.calendar is None else self.calendar.periods


@dataclass(frozen=True, slots=True)
class Settlement:
    """How an entry ended: what was returned cost `loss`, and `digest` names the answer without telling it.

    An entry that `repeats` an earlier one was given that one's answer, and is charged nothing.
    """

    at: datetime
    loss: Fraction
    digest: str
    repeats: int | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One reservation of the record; without a settlement its worst case is held, also after a crash.

    It was made in period number `period`, and is charged to that one whenever it is settled.
    """

    opened_at: datetime
    query: str
    worst_case: BudgetVector
    settlement: Settlement | None
    account: str | None = None
    key: str = ""
    data_version: int = 0
    period: int = 0

    @property
    def permanent(self) -> Fraction:
        """The permanent currency as it is charged: that of the worst case once it is reserved, unless it repeats."""
        repeats = self.settlement is not None and self.settlement.repeats is not None
        return Fraction(0) if repeats else self.worst_case.permanent


def now(clock: Clock = utc) -> str:
    """Return the time of an event, by the ledger's clock."""
    return clock().astimezone(UTC).isoformat(timespec="microseconds")


def chained(chain: str, seq: int, *, at: str, kind: str, body: str) -> str:
    """Return the chain of an event that follows one whose chain is `chain`; no part but the time can hold a newline."""
    return hashlib.sha256(f"{chain}\n{seq}\n{at}\n{kind}\n{body}".encode()).hexdigest()


def follow(last: tuple[int, str], kind: str, *, body: Body, at: str) -> Event:
    """Return the event that comes after the one of this number and chain."""
    seq, text = last[0] + 1, json.dumps(body, sort_keys=True, separators=(",", ":"))
    return Event(seq, at, kind, text, chained(last[1], seq, at=at, kind=kind, body=text))


def written(value: Fraction) -> str:
    """Return an exact number as text; refuse one that is too long to keep."""
    if max(value.numerator, value.denominator) >= _TOO_LONG:
        raise UsageError(
            "number-too-long",
            f"A ledger keeps numbers of at most {_DIGITS} digits.",
            hint="Write the number with fewer digits.",
        )
    return f"{value.numerator}/{value.denominator}"


@lru_cache(maxsize=4096)
def ratio(text: object) -> tuple[int, int]:
    """Return numerator and denominator of what `written` wrote; raise ValueError for anything else."""
    match = _FRACTION.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError
    return int(match[1]), int(match[2])


def fraction(text: object) -> Fraction:
    """Return the number that `written` wrote; raise ValueError for anything else."""
    return Fraction(*ratio(text))


def budget_names(certificate: Certificate) -> tuple[str, str]:
    """Return what a body calls both currencies of a budget."""
    first, second = certificate.currencies
    return f"budget_{first}", f"budget_{second}"


def told_terms(budget: BudgetVector, total: ApproximateDP, *, certified: CertificateTerms = _ZCDP) -> dict[str, object]:
    """Return the part of a body that tells a total, its budget, and the certificate unless it is zcdp."""
    first, second = budget_names(certified.certificate)
    return {
        first: written(budget.refundable),
        second: written(budget.permanent),
        "total_epsilon": written(total.epsilon.value),
        "total_delta": written(total.delta.value),
        **told_certified(certified),
    }


def told_certified(certified: CertificateTerms) -> dict[str, object]:
    """Return the part of a body that tells a certificate and what it fixes; nothing for zcdp."""
    if certified.certificate is Certificate.zcdp:
        return {}
    epsilon, delta = certified.epsilon, certified.delta
    return {
        "certificate": certified.certificate.value,
        "item_epsilon": None if epsilon is None else written(epsilon.value),
        "query_delta": None if delta is None else written(delta.value),
    }


def certified_of(body: Body) -> CertificateTerms:
    """Return the certificate of which `told_certified` told; raise ValueError or KeyError for what is none."""
    if "certificate" not in body:
        return CertificateTerms()
    certificate, epsilon, delta = Certificate(str(body["certificate"])), body["item_epsilon"], body["query_delta"]
    fixed = (epsilon is not None, delta is not None)
    expected = (certificate in {Certificate.theorem2, Certificate.optimal}, certificate is Certificate.theorem2)
    if certificate is Certificate.zcdp or fixed != expected or (epsilon is not None and not fraction(epsilon)):
        raise ValueError
    return CertificateTerms(
        certificate,
        None if epsilon is None else Epsilon(fraction(epsilon)),
        None if delta is None else Delta(fraction(delta)),
    )


def told_periods(periods: Periods | None) -> dict[str, object]:
    """Return the part of a body that tells how often the budget is granted; nothing for once."""
    if periods is None:
        return {}
    return {"period_seconds": periods.length // timedelta(seconds=1), "periods": periods.most}


def periods_of(seconds: object, most: object) -> Periods:
    """Return the periods of which `told_periods` told; raise ValueError for what are none."""
    if type(seconds) is not int or not (most is None or type(most) is int):
        raise ValueError
    try:
        return Periods(timedelta(seconds=seconds), most)
    except UsageError as error:
        raise ValueError from error


def terms_of(body: Body, data_set: str, *, data_version: int) -> Terms:
    """Return the terms that a body tells; raise ValueError or KeyError if it tells none."""
    certified = certified_of(body)
    first, second = budget_names(certified.certificate)
    budget = BudgetVector(fraction(body[first]), fraction(body[second]), certified.certificate)
    epsilon = fraction(body["total_epsilon"])
    if not epsilon:
        raise ValueError
    total = ApproximateDP(Epsilon(epsilon), Delta(fraction(body["total_delta"])))
    return Terms(data_set, budget, total, data_version, certified=certified)


def told_account(account: str | None) -> str:
    """Return how the body of a reservation begins that is of this account: no name in it sorts before this one."""
    return f'{{"account":{json.dumps(account)},'


def told_version(version: int) -> str:
    """Return what stands in the body of a reservation on this data version, and of no other.

    In a text every quote is escaped, so that a bare one begins a name.
    """
    return f'"data_version":{version},'


def told_present(terms: Terms) -> dict[str, object]:
    """Return terms as JSON has them, with where in its periods a ledger stands."""
    told = told_terms(terms.budget, terms.total, certified=terms.certified)
    told |= {"data_set": terms.data_set, "data_version": terms.data_version}
    calendar = terms.calendar
    if calendar is not None:
        began = calendar.began.isoformat(timespec="microseconds")
        told |= {**told_periods(calendar.periods), "began": began, "number": calendar.number, "since": calendar.since}
    return told


def present_of(told: Mapping[str, Any]) -> Terms:
    """Return the terms of which `told_present` told; raise KeyError, TypeError or ValueError for what are none."""
    terms = terms_of(told, told["data_set"], data_version=int(told["data_version"]))
    if "period_seconds" not in told:
        return terms
    periods = periods_of(told["period_seconds"], told["periods"])
    began = datetime.fromisoformat(told["began"])
    return replace(terms, calendar=Calendar(periods, began, int(told["number"]), int(told["since"])))


def entries_of(events: Iterable[Event]) -> tuple[Entry, ...]:
    """Return what was reserved and how it ended, in the order of reserving; of events that were verified."""
    entries: dict[int, Entry] = {}
    period, certificate = 0, Certificate.zcdp
    for event in events:
        if event.kind == "created":
            certificate = certified_of(json.loads(event.body)).certificate
        elif event.kind == "period":
            period = json.loads(event.body)["number"]
        elif event.kind == "reserved":
            entries[event.seq] = _entry(event, certificate, period=period)
        elif event.kind == "settled":
            body = json.loads(event.body)
            settlement = Settlement(
                datetime.fromisoformat(event.at), _loss(body["loss"]), body["digest"], body.get("repeats")
            )
            entries[body["entry"]] = replace(entries[body["entry"]], settlement=settlement)
    return tuple(entries.values())


@lru_cache(maxsize=4096)
def _loss(text: object) -> Fraction:
    """Return a loss; entries that cost the same share one."""
    return fraction(text)


@lru_cache(maxsize=4096)
def _worst_case(refundable: object, permanent: object, certificate: Certificate) -> BudgetVector:
    return BudgetVector(fraction(refundable), fraction(permanent), certificate)


def _entry(event: Event, certificate: Certificate, *, period: int) -> Entry:
    body = json.loads(event.body)
    first, second = certificate.currencies
    return Entry(
        opened_at=datetime.fromisoformat(event.at),
        query=body["query"],
        worst_case=_worst_case(body[first], body[second], certificate),
        settlement=None,
        account=body["account"],
        key=body["key"],
        data_version=body["data_version"],
        period=period,
    )
