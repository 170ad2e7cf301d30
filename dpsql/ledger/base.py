"""Parts of every ledger: accounts, requests, reservations, admission, and sums of entries."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

from dpsql.accounting import (
    NO_RISE,
    BudgetState,
    BudgetVector,
    Rise,
    add_largest,
    describe_periods,
    fold_values,
)
from dpsql.errors import BudgetExceeded, LedgerError, UsageError
from dpsql.ledger.failures import SETTLING
from dpsql.ledger.record import Division, Entry, LedgerTerms
from dpsql.quantities import Delta

if TYPE_CHECKING:
    from dp_accounting import ComposedDpEvent


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
    """Final answer of a request, and whether it repeats an earlier one, in which case nothing is charged.

    `rise` is that of the used share of the account, or of the total for a request without one.
    """

    answer: bytes
    repeats: bool = False
    rise: Rise = field(default=NO_RISE, compare=False)


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


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a reservation: its loss, its digest, and the answer to store, if any."""

    loss: Fraction
    digest: str
    answer: bytes = b""
    shared: bool = False
    repeats: int | None = None


@dataclass(frozen=True, slots=True)
class Reservation:
    """Worst case that is reserved for one query, as entry `number`, until its actual cost is known.

    `question` is the key of the request and the data version that it was made under; `law` is that of the request.
    `limit` is that of the account, None for the total, and `rise` is what the reservation added to its used share.
    """

    number: int
    worst_case: BudgetVector
    account: str | None
    question: tuple[str, int]
    settler: Callable[[Reservation, Outcome], Settled]  # the act of its ledger that settles it
    repeated: bool = False
    law: str = ""
    values: tuple[str, ...] = ()
    limit: BudgetVector | None = None
    rise: Rise = NO_RISE

    def settle(self, loss: Fraction, digest: str, *, answer: bytes = b"", shared: bool = False) -> Settled:
        """Charge `loss`, at most the worst case, and free the rest of the reservation; once only, and durably.

        `digest` identifies the outcome without revealing it. `answer`, if there is one, is stored under the key of the
        request. Returns the final answer. A request that may be repeated gets the answer that its account received in
        the meantime, free of charge. With `shared`, the final answer is the first one settled under this key and data
        version by any account, at its cost then. Otherwise it is `answer`.
        """
        try:
            return self.settler(self, Outcome(loss, digest, answer, shared))
        except LedgerError as error:
            error.charge = SETTLING
            raise


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
    fixes, kind, other = recorded.certified.fixes, recorded.certified.certificate, wanted.certified.certificate
    if kind is not other:
        raise LedgerError(
            "ledger-certificate",
            f"The ledger has the certificate {kind.value}, and is now opened for {other.value}.",
            hint="Restore the policy's certificate: a ledger always has the certificate that it was created with.",
        )
    old, new = recorded.total, wanted.total
    if fixes and old == new and recorded.budget != wanted.budget:
        raise LedgerError(
            "ledger-certificate",
            f"The ledger fixes {recorded.budget}, and is now opened for {wanted.budget}.",
            hint=f"Restore the policy's items and queries, which the certificate {kind.value} fixes for good.",
        )
    if (fixes and old != new) or old.epsilon > new.epsilon or old.delta > new.delta:
        raise LedgerError(
            "ledger-budget",
            f"The ledger has the total epsilon {old.epsilon} and delta {old.delta}, and is now opened for "
            f"epsilon {new.epsilon} and delta {new.delta}.",
            hint="A ledger's total is never lowered. Write the ledger's epsilon and delta into the policy.",
        )
    before, after = recorded.periods, wanted.periods
    if before is None:
        agrees = after is None or not fixes  # periods are yet to be granted
    else:  # the ledger may have fewer periods of the same length
        fewer = before.most is not None and after is not None and (after.most is None or before.most <= after.most)
        agrees = before == after or (fewer and after is not None and before.length == after.length)
    if not agrees:
        raise LedgerError(
            "ledger-period",
            f"The ledger grants its budget {describe_periods(before)}, and is now opened to grant it "
            f"{describe_periods(after)}.",
            hint="Periods are never taken back. Write the ledger's period and periods into the policy.",
        )


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
            near = float(entry.charged)
            events.append(ZCDpEvent(near if Fraction(near) >= entry.charged else math.nextafter(near, math.inf)))
        return Spent(ComposedDpEvent(events), Delta(sum((entry.permanent for entry in spent), Fraction(0))))
    raise failure
