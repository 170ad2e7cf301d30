"""Interface of the ledger, and the parts all ledgers share: requests, entries, admission, and the sum of entries."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Protocol

from dpsql.accounting import (
    ApproximateDP,
    BudgetState,
    BudgetVector,
    CertificateTerms,
    Periods,
    add_largest,
    describe_periods,
    fold_values,
)
from dpsql.errors import BudgetExceeded, LedgerError, UsageError
from dpsql.ledger.calendar import Calendar
from dpsql.ledger.record import Division, Entry, Event, LedgerTerms, Settlement

__all__ = [
    "Account",
    "Division",
    "Entry",
    "Event",
    "Ledger",
    "OpenReservation",
    "Outcome",
    "Request",
    "Reservation",
    "Settled",
    "Settlement",
    "Shortfall",
    "admit",
    "already_settled",
    "compute_remaining",
    "ledger_closed",
    "ledger_forked",
    "refuse_other",
    "refuse_other_data",
    "refuse_other_division",
    "sum_entries",
]


@dataclass(frozen=True, slots=True)
class Account:
    """An analyst and their limit within the total. The ledger records what they spent, and not their limit."""

    name: str
    budget: BudgetVector

    def __post_init__(self) -> None:
        if not self.name or not self.name.isprintable():
            raise UsageError(
                "account-name", "An account has a name of printable characters.", hint='Such as Account("alice", ...).'
            )


@dataclass(frozen=True, slots=True)
class Request:
    """Request of a query to the ledger, before a row is read.

    `query` is the analyst's text, for the record. `key` is the digest of the canonical query, by which a stored answer
    is found again; "" for none. Without an account the request draws on the total alone. The certificate of the worst
    case must be the ledger's. An account with `most_failures` failed queries within a day is refused; None means no
    limit. A request that may be `repeated` accepts the answer that its account already has for the same key, and is
    then charged nothing. `law` is the digest of the distribution of the answer where accounts share answers: two of
    them may share one only if it is the same.

    With `values`, units of other values in a column are not counted, and only those of these values are charged; a
    unit has its value by the `division`, which must be the ledger's present one.
    """

    query: str
    worst_case: BudgetVector
    account: Account | None = None
    key: str = ""
    most_failures: int | None = None
    repeated: bool = False
    law: str = ""
    values: tuple[str, ...] = ()
    division: Division | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """Final answer of a request, and whether it repeats an earlier one, in which case nothing is charged."""

    answer: bytes
    repeats: bool = False


class Shortfall(BudgetExceeded):
    """The worst case of a query is more than what is `remaining`; decided from public numbers, nothing was charged.

    `account` names whose own limit was short; None says that it was the total.
    """

    def __init__(
        self,
        worst_case: BudgetVector,
        remaining: BudgetVector,
        *,
        account: str | None = None,
    ) -> None:
        """Name the currency that does not suffice; the refundable one if neither does."""
        self.worst_case = worst_case
        self.remaining = remaining
        self.account = account
        whose = "the budget" if account is None else f"the budget of account {account}"
        first, second = worst_case.certificate.currencies
        if worst_case.refundable > remaining.refundable:
            cost, rest = float(worst_case.refundable), float(remaining.refundable)
            reason = f"This query may cost {first} {cost:.6g}, and {first} {rest:.6g} is left of {whose}."
            hint = "Ask for fewer items, or with a smaller epsilon."
        else:
            cost, rest = float(worst_case.permanent), float(remaining.permanent)
            reason = f"This query may cost {second} {cost:.6g}, and {second} {rest:.6g} is left of {whose}."
            hint = "Ask with a smaller delta."
        super().__init__("budget-exceeded", reason, hint=hint)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by what `__init__` wants."""
        return partial(Shortfall, self.worst_case, self.remaining, account=self.account), ()


class Reservation(Protocol):
    """Worst case that is reserved for one query until its actual cost is known."""

    def settle(self, loss: Fraction, digest: str, *, answer: bytes = b"", shared: bool = False) -> Settled:
        """Charge `loss`, at most the worst case, and free the rest of the reservation; once only, and durably.

        `digest` identifies the outcome without revealing it. `answer`, if there is one, is stored under the key of the
        request. Returns the final answer. A request that may be repeated gets the answer that its account received in
        the meantime, free of charge. With `shared`, the final answer is the first one settled under this key and data
        version by any account, at its cost then. Otherwise it is `answer`.
        """
        ...


class Ledger(Protocol):
    """The record of one budget; safe to share among threads."""

    @property
    def budget(self) -> BudgetVector:
        """Recorded budget, in all or of a period. Read `state` first: a grant in between only adds."""
        ...

    @property
    def total(self) -> ApproximateDP:
        """Guarantee of the budget, once or in each period."""
        ...

    @property
    def certified(self) -> CertificateTerms:
        """The certificate by which the budget is counted, and what it fixes; the ledger's for good."""
        ...

    @property
    def calendar(self) -> Calendar | None:
        """The periods in which the budget is granted, as they stand now; None for a budget that is granted once."""
        ...

    @property
    def durable(self) -> bool:
        """Whether what was spent outlives the process and the power."""
        ...

    @property
    def data_version(self) -> int:
        """An operator's public counter, 0 at first; answers of another version are not found again."""
        ...

    def stamp(self) -> Hashable:
        """Return a value that stays equal while this ledger returns the same as now; None where that is not known.

        It changes with what any process writes, and with the period. Take it before what it is to be the stamp of.
        """
        ...

    def peek_stamp(self) -> Hashable:
        """Return the stamp without waiting; None also where it cannot be found at once."""
        ...

    def reserve(self, request: Request) -> Reservation | Settled:
        """Reserve the worst case durably if the total and the limit of the account admit it; else raise `Shortfall`.

        For a request that may be repeated, return the stored answer if there is one, and reserve nothing. Raises
        `Refusal` for an account with too many recent failures of the engine.
        """
        ...

    @property
    def division(self) -> Division | None:
        """What gives each unit its value now; None where no value has a budget, or the data version is new."""
        ...

    def state(self, account: str | None = None, *, values: Iterable[str] | None = None) -> BudgetState:
        """Return the spent and reserved amounts of the total or of an account, in the current period.

        They are those that a unit of these values may have lost at most, or, without values, a unit of any. When all
        periods are over, the whole budget counts as spent.
        """
        ...

    def states(self, account: str | None = None) -> Mapping[str, BudgetState]:
        """Return `state` for each value that a query of the total, or of the account, named since units keep it."""
        ...

    def entries(self) -> tuple[Entry, ...]:
        """Return all reservations and how they ended, oldest first."""
        ...

    def stored(self, key: str, account: str | None, *others: str) -> bytes | None:
        """Return the newest stored answer for this key or the others, this account and the current data version."""
        ...

    def answers(self, account: str | None, after: int) -> tuple[int, list[bytes]]:
        """Return the answers of an account, of all data versions, that were stored after event number `after`.

        They come in the order in which they were settled, the oldest first, with the number of the last event of the
        ledger, from which a later call goes on.
        """
        ...

    def grant(self, budget: BudgetVector, total: ApproximateDP, *, note: str, periods: Periods | None = None) -> None:
        """Replace the total by one that is smaller in nothing; a curator's act, recorded with its `note`.

        With `periods` it is granted in each from now on, the present one among them, or in more of the same length.
        """
        ...

    def bump(self, note: str, *, to: int | None = None) -> int:
        """Raise the data version by one, or to `to` if it is below, and return it.

        An operator's act, never a function of the data; nothing is recorded where nothing is raised.
        """
        ...

    def divide(self, division: Division) -> None:
        """Record what gives each unit its value, where that is not the ledger's present division.

        Where another rule gave units their values, the most that was charged to one of them is charged to all. Raises
        `ledger-data` if the rule is the present one and the data are others, although the data version is the same.
        """
        ...

    def register(self, units: Mapping[str, str]) -> None:
        """Record the privacy unit of each table that is new or declared otherwise than before; nothing is refunded."""
        ...

    def events(self) -> Iterator[Event]:
        """Return the whole history as it was recorded, oldest first; raise `ledger-tampered` where it was changed."""
        ...

    def hurry(self) -> None:
        """Wait no longer than a few seconds for a server from now on, because the process is ending."""
        ...

    def close(self) -> None:
        """Close the ledger; closing it twice is allowed. Open reservations stay reserved."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a reservation: its loss, its digest, and the answer to store, if any."""

    loss: Fraction
    digest: str
    answer: bytes = b""
    shared: bool = False
    repeats: int | None = None


@dataclass(frozen=True, slots=True)
class OpenReservation:
    """The reservation of every ledger here: an entry's number, and the act of its ledger that settles it.

    `question` is the key of the request and the data version that it was made under; `law` is that of the request.
    """

    number: int
    worst_case: BudgetVector
    account: str | None
    question: tuple[str, int]
    settler: Callable[[OpenReservation, Outcome], Settled]
    repeated: bool = False
    law: str = ""
    values: tuple[str, ...] = ()

    def settle(self, loss: Fraction, digest: str, *, answer: bytes = b"", shared: bool = False) -> Settled:
        """Charge `loss`, at most the worst case, free the rest, and return the final answer."""
        return self.settler(self, Outcome(loss, digest, answer, shared))


def compute_remaining(budget: BudgetVector, state: BudgetState) -> BudgetVector:
    """Return what may still be admitted: 0 where a limit was lowered below what was already used."""
    refundable = budget.refundable - state.spent - state.reserved
    permanent = budget.permanent - state.permanent
    return BudgetVector(max(refundable, Fraction(0)), max(permanent, Fraction(0)), certificate=budget.certificate)


def admit(request: Request, of_total: BudgetVector, *, of_account: BudgetVector) -> None:
    """Raise `Shortfall` if the worst case exceeds what is left of the total or of the account, compared exactly."""
    worst = request.worst_case
    remaining = BudgetVector(
        min(of_total.refundable, of_account.refundable),
        min(of_total.permanent, of_account.permanent),
        certificate=worst.certificate,
    )
    if worst.refundable > remaining.refundable:
        own = of_account.refundable < of_total.refundable
    elif worst.permanent > remaining.permanent:
        own = of_account.permanent < of_total.permanent
    else:
        return
    account = request.account.name if own and request.account else None
    raise Shortfall(worst, remaining, account=account)


def sum_entries(entries: Iterable[Entry], account: str | None = None, *, period: int | None = None) -> BudgetState:
    """Return the sum of `entries` in any order: of all, or of one account or period.

    It is what a unit of any value may have lost at most. The present epoch is that of the last entry or settlement.
    """
    known = [entry for entry in entries if account in {None, entry.account} and period in {None, entry.period}]
    present = max((each.epoch for entry in known for each in (entry, entry.settlement) if each), default=0)
    values: dict[tuple[int, int], dict[str, BudgetState]] = {}
    state = BudgetState()
    for entry in known:
        of_epoch = values.setdefault((entry.period, entry.epoch), {})
        for value in entry.values:
            of_epoch[value] = _add_entry(of_epoch.get(value, BudgetState()), entry)
        if not entry.values:
            state = _add_entry(state, entry)
    for (_, epoch), states in values.items():
        state = (add_largest if epoch == present else fold_values)(state, states.values())
    return state


def _add_entry(state: BudgetState, entry: Entry) -> BudgetState:
    held = entry.settlement is None
    return BudgetState(
        state.spent + (0 if held else entry.charged),
        state.permanent + entry.permanent,
        state.reserved + (entry.charged if held else 0),
    )


def refuse_other_division() -> LedgerError:
    """Return the error of a query for values that units no longer have: the data version or the policy has changed."""
    return LedgerError(
        "ledger-divided",
        "The data version or the policy changed while this query was prepared; nothing was charged.",
        hint="Run it again.",
    )


def refuse_other_data() -> LedgerError:
    """Return the error of an opening with other data files than those of the data version."""
    return LedgerError(
        "ledger-data",
        "The data file is not the one of this data version, and budget_by needs one file for each.",
        hint="After every change of the file, increment the version: dpsql data bump --note why.",
    )


def ledger_closed() -> LedgerError:
    """Return the error of every act upon a closed ledger."""
    return LedgerError("ledger-closed", "This ledger is closed.", hint="Connect again to ask further.")


def ledger_forked() -> LedgerError:
    """Return the error for a ledger that a fork carried into another process."""
    return LedgerError(
        "ledger-forked",
        "This ledger was opened by another process, before a fork.",
        hint="Connect once in every process.",
    )


def refuse_other(recorded: LedgerTerms, wanted: LedgerTerms) -> None:
    """Raise `LedgerError` if a ledger has another certificate, a larger total or other periods than it is opened for.

    A ledger with a smaller total is used as it is: the larger one is yet to be granted.
    """
    _refuse_other_certificate(recorded, wanted)
    if (recorded.certified.fixes and recorded.total != wanted.total) or not _is_within(recorded.total, wanted.total):
        old, new = (f"epsilon {terms.total.epsilon} and delta {terms.total.delta}" for terms in (recorded, wanted))
        raise LedgerError(
            "ledger-budget",
            f"The ledger has the total {old}, and is now opened for {new}.",
            hint="A ledger's total is never lowered. Write the ledger's epsilon and delta into the policy.",
        )
    before, after = recorded.periods, wanted.periods
    if not (before == after or (before is None and not recorded.certified.fixes) or _has_fewer(before, after)):
        raise LedgerError(
            "ledger-period",
            f"The ledger grants its budget {describe_periods(before)}, and is now opened to grant it "
            f"{describe_periods(after)}.",
            hint="Periods are never taken back. Write the ledger's period and periods into the policy.",
        )


def _is_within(recorded: ApproximateDP, wanted: ApproximateDP) -> bool:
    return recorded.epsilon <= wanted.epsilon and recorded.delta <= wanted.delta


def _has_fewer(recorded: Periods | None, wanted: Periods | None) -> bool:
    """Return whether a ledger has fewer periods, of the same length, than are wanted."""
    if recorded is None or wanted is None or recorded.length != wanted.length:
        return False
    return recorded.most is not None and (wanted.most is None or recorded.most <= wanted.most)


def _refuse_other_certificate(recorded: LedgerTerms, wanted: LedgerTerms) -> None:
    """Raise `LedgerError` where losses are counted otherwise; where items are fixed, also for other numbers of them."""
    old, new = recorded.certified.certificate, wanted.certified.certificate
    if old is not new:
        raise LedgerError(
            "ledger-certificate",
            f"The ledger has the certificate {old.value}, and is now opened for {new.value}.",
            hint="Restore the policy's certificate: a ledger always has the certificate that it was created with.",
        )
    if recorded.certified.fixes and recorded.total == wanted.total and recorded.budget != wanted.budget:
        raise LedgerError(
            "ledger-certificate",
            f"The ledger fixes {recorded.budget}, and is now opened for {wanted.budget}.",
            hint=f"Restore the policy's items and queries, which the certificate {old.value} fixes for good.",
        )


def already_settled() -> LedgerError:
    """Return the error for settling a reservation twice."""
    return LedgerError(
        "already-settled", "A reservation is settled exactly once.", hint="Reserve again for a new query."
    )
