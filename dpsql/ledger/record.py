"""Events of a ledger, each linked to all before it by a chain of SHA-256; its calendar; entries, and their sums.

A body is JSON with sorted keys, no spaces and ASCII only, so equal content has equal bytes. Numbers are exact
fractions as text, "numerator/denominator". Amounts are named by the currencies of the ledger's certificate.

Periods are counted from one moment, and never backwards (`maths.md` 4.1). A period that was begun stays begun. A clock
that is set back finds it still running; one that is set forward opens a later period early, and then nothing new is
granted until real time has passed that one.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from dpsql.accounting import (
    ApproximateDP,
    BudgetState,
    BudgetVector,
    Certificate,
    CertificateTerms,
    Periods,
    add_largest,
    describe_periods,
    fold_values,
)
from dpsql.errors import LedgerError, UsageError
from dpsql.quantities import Delta, Epsilon

if TYPE_CHECKING:
    from dp_accounting import ComposedDpEvent

Clock = Callable[[], datetime]


def utc() -> datetime:
    """Return the time of this machine."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Calendar:
    """The periods of a ledger, the moment of the first, and the number of the last one begun, from 0.

    `since` is the number of the event that began it: what was reserved before belongs to an earlier period.
    """

    periods: Periods
    began: datetime
    number: int = 0
    since: int = 0

    def __str__(self) -> str:
        most, next_begins = self.periods.most, f"{self.next_begins:%Y-%m-%d %H:%M:%S} UTC"
        if self.number == most:
            return "all periods are over"
        which = f"period {self.number + 1}" if most is None else f"period {self.number + 1} of {most}"
        last = most is not None and self.number + 1 == most
        return f"{which}, {'which is the last and ends' if last else 'the next begins'} {next_begins}"

    @property
    def is_over(self) -> bool:
        """Whether all periods have passed, so that nothing is granted any more."""
        return self.number == self.periods.most

    @property
    def next_begins(self) -> datetime:
        """The moment at which the present period ends."""
        try:
            return self.began + self.periods.length * (self.number + 1)
        except OverflowError:
            return datetime.max.replace(tzinfo=UTC)

    def reached(self, at: datetime) -> int:
        """Return the number of the period that a clock shows, as many as there are when all are over."""
        # A clock from before the first period gives a negative number, which `at` does not take.
        number = (at - self.began) // self.periods.length
        return number if self.periods.most is None else min(number, self.periods.most)

    def at(self, at: datetime) -> Calendar:
        """Return the calendar at the time of a clock; a period that has begun never becomes an earlier one."""
        return replace(self, number=max(self.number, self.reached(at)))

    def includes(self, entry: int) -> bool:
        """Say whether the reservation of this number was made in the present period."""
        return entry > self.since


def extended(calendar: Calendar | None, periods: Periods | None, *, at: datetime) -> Calendar | None:
    """Return the calendar that a grant makes: a new one from its time on, the same, or one of more periods.

    Raises `LedgerError` for other periods, or fewer.
    """
    if periods is None:
        return calendar
    if calendar is None:
        return Calendar(periods, at)
    old = calendar.periods
    fewer = periods.most is not None and (old.most is None or periods.most < old.most)
    if periods.length != old.length or fewer:
        raise LedgerError(
            "ledger-grant",
            f"The ledger grants its budget {describe_periods(old)}; a grant must have the same period, and no fewer.",
            hint="Grant the same period, and at least as many.",
        )
    return replace(calendar, periods=periods)


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
class LedgerTerms:
    """Terms of a ledger at one moment: data set, budget, guarantee, data version, periods and certificate."""

    data_set: str
    budget: BudgetVector
    total: ApproximateDP
    data_version: int
    calendar: Calendar | None = None
    certified: CertificateTerms = _ZCDP

    @property
    def periods(self) -> Periods | None:
        """Periods in which the budget is granted; None if it is granted once."""
        return None if self.calendar is None else self.calendar.periods


@dataclass(frozen=True, slots=True)
class Division:
    """What gives each unit its value, where each value of a column has a budget: `rule` and `data` are digests.

    `rule` is that of what the policy says, and `data` that of the versions of the files that hold the column.
    """

    rule: str
    data: str


@dataclass(frozen=True, slots=True)
class NamedTable:
    """Table that the ledger stores under a name, without its content: an answer that was named, or a published table.

    `number` is that of its event, which has the content. A named answer is that of its `account` alone, a published
    table that of everybody; its account is the one that was charged.
    """

    number: int
    name: str
    at: datetime
    data_version: int
    account: str | None
    is_published: bool


@dataclass(frozen=True, slots=True)
class TableContent:
    """Content of a stored table: an Arrow `stream`, the `text` of its query, and a `comment`, "" for none.

    `question` is a digest of what was asked, which is the same in other words.
    """

    text: str
    stream: bytes
    question: str
    comment: str = ""


@dataclass(frozen=True, slots=True)
class Settlement:
    """Settlement of an entry: the `loss` that was charged, and the `digest` of the outcome.

    An entry that `repeats` an earlier one returned the answer of that one, and is charged nothing. `epoch` is as in
    `Entry`. `number` is that of the event.
    """

    at: datetime
    loss: Fraction
    digest: str
    repeats: int | None = None
    epoch: int = 0
    number: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """Recorded reservation; without a settlement its worst case stays reserved, also after a crash.

    It was made in period number `period`, and is charged to that period whenever it is settled. It is charged to units
    of the `values` alone, to all where there are none. Units keep their values in one `epoch`, from 0: a new one begins
    when the data version is incremented, and when a policy says otherwise what value a unit has. One that is open and
    `is_outdated` is of an epoch before the present one. `number` is that of the event.
    """

    opened_at: datetime
    query: str
    worst_case: BudgetVector
    settlement: Settlement | None
    account: str | None = None
    key: str = ""
    data_version: int = 0
    period: int = 0
    values: tuple[str, ...] = ()
    epoch: int = 0
    number: int = 0
    is_outdated: bool = False

    @property
    def charged(self) -> Fraction:
        """The refundable currency as it is charged: the loss once there is one, else the worst case.

        What was reserved for values is charged in full if their epoch ended before it was settled.
        """
        if self.settlement is None or (self.values and self.settlement.epoch != self.epoch):
            return self.worst_case.refundable
        return self.settlement.loss

    @property
    def permanent(self) -> Fraction:
        """The permanent currency as it is charged: that of the worst case once it is reserved, unless it repeats."""
        repeats = self.settlement is not None and self.settlement.repeats is not None
        if self.settlement is not None and self.values and self.settlement.epoch != self.epoch:
            repeats = False
        return Fraction(0) if repeats else self.worst_case.permanent


def now(clock: Clock = utc) -> str:
    """Return the time of an event, by the ledger's clock."""
    return clock().astimezone(UTC).isoformat(timespec="microseconds")


def compute_chain(chain: str, seq: int, *, at: str, kind: str, body: str) -> str:
    """Return the chain of an event that follows one whose chain is `chain`; no part but the time can hold a newline."""
    return hashlib.sha256(f"{chain}\n{seq}\n{at}\n{kind}\n{body}".encode()).hexdigest()


def make_event(last: tuple[int, str], kind: str, *, body: Body, at: str) -> Event:
    """Return the event that comes after the one of this number and chain."""
    seq, text = last[0] + 1, json.dumps(body, sort_keys=True, separators=(",", ":"))
    return Event(seq, at, kind, text, compute_chain(last[1], seq, at=at, kind=kind, body=text))


def encode_fraction(value: Fraction) -> str:
    """Return an exact number as text; refuse one that is too long to keep."""
    if max(value.numerator, value.denominator) >= _TOO_LONG:
        raise UsageError(
            "number-too-long",
            f"A ledger stores numbers of at most {_DIGITS} digits.",
            hint="Write the number with fewer digits.",
        )
    return f"{value.numerator}/{value.denominator}"


@lru_cache(maxsize=4096)
def decode_ratio(text: object) -> tuple[int, int]:
    """Return numerator and denominator of what `encode_fraction` wrote; raise ValueError for anything else."""
    match = _FRACTION.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError
    return int(match[1]), int(match[2])


def decode_fraction(text: object) -> Fraction:
    """Return the number that `encode_fraction` wrote; raise ValueError for anything else."""
    return Fraction(*decode_ratio(text))


def budget_names(certificate: Certificate) -> tuple[str, str]:
    """Return what a body calls both currencies of a budget."""
    first, second = certificate.currencies
    return f"budget_{first}", f"budget_{second}"


def encode_terms(
    budget: BudgetVector, total: ApproximateDP, *, certified: CertificateTerms = _ZCDP
) -> dict[str, object]:
    """Return the part of a body with a total, its budget, and the certificate unless it is zcdp."""
    first, second = budget_names(certified.certificate)
    return {
        first: encode_fraction(budget.refundable),
        second: encode_fraction(budget.permanent),
        "total_epsilon": encode_fraction(total.epsilon.value),
        "total_delta": encode_fraction(total.delta.value),
        **encode_certificate(certified),
    }


def encode_certificate(certified: CertificateTerms) -> dict[str, object]:
    """Return the part of a body with a certificate and what it fixes; nothing for zcdp."""
    if certified.certificate is Certificate.zcdp:
        return {}
    epsilon, delta = certified.epsilon, certified.delta
    return {
        "certificate": certified.certificate.value,
        "item_epsilon": None if epsilon is None else encode_fraction(epsilon.value),
        "query_delta": None if delta is None else encode_fraction(delta.value),
    }


def decode_certificate(body: Body) -> CertificateTerms:
    """Return the certificate of a body; raise ValueError or KeyError if it is malformed."""
    if "certificate" not in body:
        return CertificateTerms()
    certificate, epsilon, delta = Certificate(str(body["certificate"])), body["item_epsilon"], body["query_delta"]
    fixed = (epsilon is not None, delta is not None)
    expected = (certificate in {Certificate.theorem2, Certificate.optimal}, certificate is Certificate.theorem2)
    if certificate is Certificate.zcdp or fixed != expected or (epsilon is not None and not decode_fraction(epsilon)):
        raise ValueError
    return CertificateTerms(
        certificate,
        None if epsilon is None else Epsilon(decode_fraction(epsilon)),
        None if delta is None else Delta(decode_fraction(delta)),
    )


def encode_periods(periods: Periods | None) -> dict[str, object]:
    """Return the part of a body with the periods of the budget; nothing for a budget that is granted once."""
    if periods is None:
        return {}
    return {"period_seconds": periods.length // timedelta(seconds=1), "periods": periods.most}


def decode_periods(seconds: object, most: object) -> Periods:
    """Return the periods of a body; raise ValueError if they are malformed."""
    if type(seconds) is not int or not (most is None or type(most) is int):
        raise ValueError
    try:
        return Periods(timedelta(seconds=seconds), most)
    except UsageError as error:
        raise ValueError from error


def decode_terms(body: Body, data_set: str, *, data_version: int) -> LedgerTerms:
    """Return the terms of a body; raise ValueError or KeyError if they are malformed."""
    certified = decode_certificate(body)
    first, second = budget_names(certified.certificate)
    budget = BudgetVector(
        decode_fraction(body[first]), decode_fraction(body[second]), certificate=certified.certificate
    )
    epsilon = decode_fraction(body["total_epsilon"])
    if not epsilon:
        raise ValueError
    total = ApproximateDP(Epsilon(epsilon), Delta(decode_fraction(body["total_delta"])))
    return LedgerTerms(data_set, budget, total, data_version, certified=certified)


def encode_account_prefix(account: str | None) -> str:
    """Return how the body of a reservation begins that is of this account: no name in it sorts before this one."""
    return f'{{"account":{json.dumps(account)},'


def encode_version(version: int) -> str:
    """Return the text that is in the body of a reservation if and only if it has this data version.

    Quotes inside texts are escaped, so an unescaped quote always begins a name.
    """
    return f'"data_version":{version},'


def encode_present(terms: LedgerTerms) -> dict[str, object]:
    """Return terms as JSON, with the current period of the ledger."""
    told = encode_terms(terms.budget, terms.total, certified=terms.certified)
    told |= {"data_set": terms.data_set, "data_version": terms.data_version}
    calendar = terms.calendar
    if calendar is not None:
        began = calendar.began.isoformat(timespec="microseconds")
        told |= {**encode_periods(calendar.periods), "began": began, "number": calendar.number, "since": calendar.since}
    return told


def decode_present(told: Mapping[str, Any]) -> LedgerTerms:
    """Return the terms that `encode_present` encoded; raise KeyError, TypeError or ValueError if they are malformed."""
    terms = decode_terms(told, told["data_set"], data_version=int(told["data_version"]))
    if "period_seconds" not in told:
        return terms
    periods = decode_periods(told["period_seconds"], told["periods"])
    began = datetime.fromisoformat(told["began"])
    return replace(terms, calendar=Calendar(periods, began, int(told["number"]), int(told["since"])))


# A stored table is part of an event, and each opening reads the events: bytes of one that is published, and of a named
# answer, once they are compressed.
MAX_PUBLISHED_BYTES, MAX_NAMED_BYTES = 4 * 1024**2, 256 * 1024


def encode_table(
    name: str, account: str | None, *, data_version: int, content: TableContent, most: int
) -> dict[str, object]:
    """Return the body of an event that stores a table. Raises `UsageError` for one of more than `most` bytes."""
    packed = zlib.compress(content.stream, 9)
    if len(packed) > most:
        reason = f"A table that the ledger stores has at most {most // 1024} KiB here, once it is compressed."
        raise UsageError("table-too-large", reason, hint="Ask for fewer rows.")
    return {
        "account": account,
        "name": name,
        "data_version": data_version,
        "text": content.text,
        "question": content.question,
        "comment": content.comment,
        "table": base64.b64encode(packed).decode("ascii"),
    }


def decode_table(body: Body) -> TableContent:
    """Return the content of a stored table. Raises ValueError or KeyError for a malformed body."""
    packed, text = base64.b64decode(str(body["table"]), validate=True), str(body["text"])
    try:
        stream = zlib.decompress(packed)
    except zlib.error as error:
        raise ValueError from error
    return TableContent(text, stream, str(body["question"]), str(body["comment"]))


def read_entries(events: Iterable[Event]) -> tuple[Entry, ...]:
    """Return what was reserved and how it ended, in the order of reserving; of events that were verified."""
    entries: dict[int, Entry] = {}
    period, epoch, certificate, rule = 0, 0, Certificate.zcdp, None
    for event in events:
        if event.kind == "created":
            certificate = decode_certificate(json.loads(event.body)).certificate
        elif event.kind == "period":
            period = json.loads(event.body)["number"]
        # units keep their values until the data version or the rule that gives them changes
        elif event.kind == "bumped":
            epoch, rule = epoch + 1, None
        elif event.kind == "divided":
            known, rule = rule, json.loads(event.body)["rule"]
            epoch += known is not None
        elif event.kind == "reserved":
            entries[event.seq] = _entry(event, certificate, period=period, epoch=epoch)
        elif event.kind == "settled":
            body = json.loads(event.body)
            at, loss = datetime.fromisoformat(event.at), _loss(body["loss"])
            settlement = Settlement(at, loss, body["digest"], body.get("repeats"), epoch, event.seq)
            entries[body["entry"]] = replace(entries[body["entry"]], settlement=settlement)
    for number, entry in entries.items():
        if entry.settlement is None and entry.epoch < epoch:
            entries[number] = replace(entry, is_outdated=True)
    return tuple(entries.values())


@lru_cache(maxsize=4096)
def _loss(text: object) -> Fraction:
    """Return a loss; entries that cost the same share one."""
    return decode_fraction(text)


@lru_cache(maxsize=4096)
def _worst_case(refundable: object, permanent: object, *, certificate: Certificate) -> BudgetVector:
    return BudgetVector(decode_fraction(refundable), decode_fraction(permanent), certificate=certificate)


def _entry(event: Event, certificate: Certificate, *, period: int, epoch: int) -> Entry:
    body = json.loads(event.body)
    first, second = certificate.currencies
    return Entry(
        opened_at=datetime.fromisoformat(event.at),
        query=body["query"],
        worst_case=_worst_case(body[first], body[second], certificate=certificate),
        settlement=None,
        account=body["account"],
        key=body["key"],
        data_version=body["data_version"],
        period=period,
        values=tuple(body.get("values", ())),
        epoch=epoch,
        number=event.seq,
    )


def sum_entries(entries: Iterable[Entry], account: str | None = None, *, period: int | None = None) -> BudgetState:
    """Return the sum of `entries` in any order: of all, or of one account or period.

    It is what a unit of any value may have lost at most. The present epoch is that of the last entry or settlement, or
    the one after it where an open entry is of an epoch before the present one.
    """
    known = [entry for entry in entries if account in {None, entry.account} and period in {None, entry.period}]
    present = max((each.epoch for entry in known for each in (entry, entry.settlement) if each), default=0)
    present = max([present, *(entry.epoch + 1 for entry in known if entry.is_outdated)])
    sums: dict[tuple[int, int], dict[str | None, BudgetState]] = {}  # by period and epoch, of each value and of all
    for entry in known:
        states = sums.setdefault((entry.period, entry.epoch), {})
        spent, reserved = (entry.charged, 0) if entry.settlement else (0, entry.charged)
        for value in entry.values or (None,):
            state = states.get(value, BudgetState())
            states[value] = BudgetState(
                state.spent + spent, state.permanent + entry.permanent, state.reserved + reserved
            )
    total = BudgetState()
    for (_, epoch), states in sums.items():
        common = states.pop(None, BudgetState())
        total = BudgetState(
            total.spent + common.spent, total.permanent + common.permanent, total.reserved + common.reserved
        )
        total = (add_largest if epoch == present else fold_values)(total, states.values())
    return total


@dataclass(frozen=True, slots=True)
class Spent:
    """Spent budget: the events of all entries, and `delta`, the probability that a query fails, which they leave out.

    `dp_accounting` has no event for such a mechanism. If an accountant finds epsilon at some delta for `event`, the
    guarantee is epsilon at the sum of that delta and this one (`maths.md` 2.4).
    """

    event: ComposedDpEvent
    delta: Delta


def dp_events(entries: Iterable[Entry], *, value: str | None = None) -> Spent:
    """Return one zero-concentrated event for each of the `entries`: its loss, or its worst case if it is not settled.

    Take all entries of a ledger, or those of one `period` or `account`. Where each value of a column has a budget, all
    entries together are more than any unit loses; with `value` they are those that count units of this value, which is
    what a unit loses that has had it all the time. Needs the extra dpsql[dp-accounting]; raises `UsageError` without
    it, for entries of another certificate than zcdp, which have no rho, and for a value in entries of several epochs.
    """
    spent = list(entries)
    if value is not None and len({entry.epoch for entry in spent}) > 1:
        reason = "The data version or the policy changed between these entries, and units may not have the same value."
        raise UsageError("several-epochs", reason, hint="Take the entries of one epoch, or leave value out.")
    spent = [entry for entry in spent if value is None or not entry.values or value in entry.values]
    if any("rho" not in entry.worst_case.certificate.currencies for entry in spent):
        reason = "Only a ledger with the certificate zcdp records what an accountant of rho can add up."
        raise UsageError("wrong-certificate", reason, hint="The guarantee is the total of the ledger.")
    try:
        from dp_accounting import ComposedDpEvent, ZCDpEvent
    except ImportError:
        hint = "Install it: pip install 'dpsql[dp-accounting]'."
        failure = UsageError("not-installed", "The package dp-accounting is not installed.", hint=hint)
    else:
        events = []
        for entry in spent:
            # Rounded up: the accountant must not count less than was charged.
            near = float(entry.charged)
            events.append(ZCDpEvent(near if Fraction(near) >= entry.charged else math.nextafter(near, math.inf)))
        return Spent(ComposedDpEvent(events), Delta(sum((entry.permanent for entry in spent), Fraction(0))))
    raise failure
