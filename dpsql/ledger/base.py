"""Parts of every ledger: accounts, requests, reservations, admission, sums of entries, and failures.

A ledger marks an error with how far the charge had come. The session adds the words, as it knows what came before and
after. An error without a mark charged nothing.

A failure of the engine is an answer without noise: whether a query runs out of memory or time can depend on the rows of
one unit. A failed query is charged in full, which bounds what all failures reveal. A limit bounds their number.
"""

from __future__ import annotations

import re
from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import partial, wraps
from typing import ParamSpec, TypeVar

from dpsql.accounting import (
    NO_RISE,
    BudgetState,
    BudgetVector,
    Rise,
    describe_periods,
    format_percent,
)
from dpsql.errors import BudgetExceeded, Error, LedgerError, Refusal, UsageError
from dpsql.ledger.record import Division, LedgerTerms


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
    # whose limit is the shorter one is said, of the currency that does not suffice
    if worst.refundable > remaining.refundable:
        own = of_account.refundable < of_total.refundable
    elif worst.permanent > remaining.permanent:
        own = of_account.permanent < of_total.permanent
    else:
        return
    account = request.account.name if own and request.account else None
    raise Shortfall(worst, remaining, account=account)


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


_Given = ParamSpec("_Given")
_Returned = TypeVar("_Returned")


def release_on_interrupt(act: Callable[_Given, _Returned]) -> Callable[_Given, _Returned]:
    """Return the operation, which keeps no lock, turn or transaction alive once it was interrupted.

    An interrupt may arrive after a `with` was entered and before its block begins, or after the block and before the
    exit. The context then ends when its frame is freed, and a traceback, which a notebook stores, would keep the frame.
    """

    @wraps(act)
    def acting(*args: _Given.args, **kwargs: _Given.kwargs) -> _Returned:
        try:
            return act(*args, **kwargs)
        except KeyboardInterrupt as caught:
            interrupt = caught.with_traceback(None)
            # It is raised below, outside of this block, which would chain it to the caught traceback again.
            interrupt.__context__ = None
        raise interrupt

    return acting


MAY_BE_CHARGED = "A private query may have been charged; EXPLAIN says for free whether its answer is stored."

RESERVING = "reserving"  # the reservation may be recorded
SETTLING = "settling"  # the reservation is recorded, and its settlement may be
STORED = "stored"  # the settlement is recorded, with the answer

_CLAIM = re.compile(r"[;.] nothing was charged\.?$", re.IGNORECASE)
_WORDS = {
    RESERVING: (
        "The query may have been charged in full; no row was read.",
        "SHOW BUDGET shows what is left; running it again is charged again.",
    ),
    SETTLING: (
        "The query is charged, in full unless its answer was stored.",
        "Run it again{how}: it is free if the answer was stored, and charged if not; EXPLAIN says which, for free.",
    ),
    STORED: ("The query was charged, and its answer is stored.", "Run it again{how}: it is free."),
}
_CLAIM_OF_HINT = "Nothing was charged. "
_IN_FULL = frozenset(["engine-failed", "release-failed"])  # whose own words say what is charged
_FOR_CURATORS = frozenset(["ledger-unconfirmed"])  # whose hint is on other acts than queries
_OWN_WORDS = frozenset(["wrapping-failed"])  # says itself that the answer is stored, and would fail again
_EARLIER = "What this statement asked before was charged, and is stored."


@contextmanager
def mark_charge(stage: str) -> Iterator[list[bool]]:
    """Mark an error of the body with a stage once the list that it gets is not empty."""
    begun = list[bool]()
    try:
        yield begun
    except Error as error:
        if begun and not error.charge and error.code not in _IN_FULL:
            error.charge = stage
        raise


class ChargeLog:
    """The charges of one statement, which may have several private queries."""

    __slots__ = ("answers", "is_complete", "is_fresh", "rises")

    def __init__(self) -> None:
        self.answers = 0  # that were charged and stored
        self.is_complete = False  # whether all are there
        self.is_fresh = False  # whether the query that runs has fresh = true
        self.rises: list[Rise] = []  # of the used share of the budget, by each query that was settled

    def describe(self, error: Error) -> None:
        """Say in the words of an error what was charged before it."""
        # all private queries were answered, and what came after them failed, such as the SELECT around them
        if self.answers and self.is_complete and not error.charge:
            error.charge = STORED
            if error.code in _OWN_WORDS:
                restate(error, f"{error.reason} {self._describe_sum()}".strip())
                return
        # nothing was charged: only an error of the ledger leaves doubt about that
        if not error.charge and not self.answers:
            if isinstance(error, LedgerError) and not _CLAIM.search(error.reason):
                restate(error, f"{error.reason} Nothing was charged.", hint=error.hint)
            return
        reason, hint = _CLAIM.sub(".", error.reason), error.hint.replace(_CLAIM_OF_HINT, "")
        if error.charge:
            words, advice = _WORDS[error.charge]
            reason = f"{reason} {words}"
            advice = advice.format(how=" without fresh = true" if self.is_fresh else "")
            hint = advice if error.code in _FOR_CURATORS else f"{advice} {hint}".strip()
        if self.answers:
            reason = f"{reason} {self._describe_sum(is_all=error.charge not in {RESERVING, SETTLING})}".strip()
        if self.answers and not self.is_complete:
            reason = f"{reason} {_EARLIER}"
            if error.code not in _IN_FULL:
                error.charge = error.charge or STORED
        restate(error, reason, hint=hint)

    def annotate(self, interrupt: BaseException) -> None:
        """Say in a note of an interrupt what the statement was charged before it."""
        if self.rises:
            interrupt.add_note(self._describe_sum())

    def _describe_sum(self, *, is_all: bool = True) -> str:
        """Return by how much all queries of the statement raised the used share, or those before the last one."""
        if not self.rises:
            return ""
        used = describe_charge(sum(self.rises, NO_RISE).percent)
        return f"In all this statement used {used}." if is_all else f"Before, this statement used {used}."


def restate(error: Error, reason: str, *, hint: str | None = None) -> None:
    """Put other words into an error."""
    error.reason, error.hint = reason, error.hint if hint is None else hint
    error.args = error.code, reason, hint, error.place


def describe_charge(percent: Decimal) -> str:
    """Return by how much a failure raised the used share of a budget."""
    return f"{format_percent(percent)}{'' if percent else ' more'} of the budget"


FAILED = "failed"  # digest of the outcome of a query that failed in the engine or in the release
_DAY = timedelta(days=1)


class Failures:
    """The failures of one ledger, by account, in the order of their times."""

    __slots__ = ("_count", "_found")

    def __init__(self) -> None:
        self._count = 0
        self._found: dict[str | None, list[datetime]] = defaultdict(list)

    def take(self, found: Sequence[tuple[str | None, datetime]]) -> None:
        """Take account and time of those that were added to `found`, which only grows, since the last time."""
        for account, when in found[self._count :]:
            insort(self._found[account], when)
        self._count = len(found)

    def refuse(self, account: str | None, most: int | None, *, at: str) -> None:
        """Raise `Refusal` for an account of which `most` queries failed in the day before `at`; None means no limit.

        By a clock that was set back, those after `at` count too.
        """
        if most is None:
            return
        found = self._found.get(account, [])
        failed = len(found) - bisect_right(found, datetime.fromisoformat(at) - _DAY)
        if failed < most:
            return
        reason = f"The engine failed {failed} of this account's queries within a day, and the policy allows {most}."
        hint = (
            "Ask again a day after the last of them, or ask the curator about memory_limit and time_limit; "
            "stored answers are there."
        )
        raise Refusal("too-many-failures", reason, hint=hint)
