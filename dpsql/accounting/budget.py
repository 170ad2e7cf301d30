"""Budgets and losses as exact amounts in the two currencies of a certificate, the filter, and the used share.

From public numbers only (`maths.md` 2.4, 4 and 6.3), the filter admits on the worst case and charges what was returned.
As long as admitted and charged losses stay within the budget on every path, Theorem S gives the whole adaptive
transcript the budget's guarantee. The permanent currency is spent on admission and never refunded.

The used share is the larger of the shares of the two currencies. It is shown in hundredths of a percent, rounded up.
A query is shown with the difference of two such figures, so what queries show adds up to the figure of the budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from typing import Self

from dpsql.accounting.guarantees import ZCDP, Certificate, RenyiCurve
from dpsql.errors import UsageError
from dpsql.quantities import Delta, Number, Rho, exact


@dataclass(frozen=True, slots=True)
class BudgetVector:
    """Amounts in both currencies of a certificate, such as rho and delta for zcdp: a budget, or the price of a query.

    `refundable` is reserved when a query is admitted, and later replaced by what its answer cost. `permanent` is spent
    on admission. Amounts of different certificates are never added or compared: that raises `wrong-certificate`.

    >>> print(BudgetVector("0.5", "1e-6") + BudgetVector("0.25", 0))
    rho 0.75, delta 1e-06
    """

    refundable: Fraction
    permanent: Fraction
    certificate: Certificate = Certificate.zcdp

    def __init__(self, refundable: Number, permanent: Number, *, certificate: Certificate = Certificate.zcdp) -> None:
        """Read both amounts exactly; raise `UsageError` for one below 0."""
        amounts = exact(refundable, "An amount"), exact(permanent, "An amount")
        if min(amounts) < 0:
            raise UsageError("amount-range", "An amount of a budget must be at least 0.", hint="Such as 0.5.")
        # The class is frozen, and its own __init__ has to write past that.
        object.__setattr__(self, "refundable", amounts[0])
        object.__setattr__(self, "permanent", amounts[1])
        object.__setattr__(self, "certificate", certificate)

    @classmethod
    def of(cls, loss: object) -> Self:
        """Return a loss under zcdp; raise `UsageError` for a loss of another kind."""
        if isinstance(loss, RenyiCurve):
            loss = loss.concentrated()  # raises, with the reason, where no rho bounds the curve
        if not isinstance(loss, ZCDP):
            reason = "This session's certificate adds up rho; a loss of another kind cannot be charged to it."
            raise UsageError("wrong-certificate", reason)
        return cls(loss.rho.value, loss.delta.value)

    @property
    def rho(self) -> Rho:
        """The rho, which only the certificate zcdp counts."""
        return Rho(self._amount("rho"))

    @property
    def delta(self) -> Delta:
        """The delta, which the certificate theorem2 does not count."""
        return Delta(self._amount("delta"))

    def _amount(self, currency: str) -> Fraction:
        for name, amount in zip(self.certificate.currencies, (self.refundable, self.permanent), strict=True):
            if name == currency:
                return amount
        reason = f"The certificate {self.certificate.value} counts no {currency}."
        raise UsageError("wrong-certificate", reason, hint="Read refundable and permanent.")

    def require(self, certificate: Certificate) -> None:
        """Raise `UsageError` unless these are amounts of `certificate`."""
        if self.certificate is not certificate:
            reason = f"Amounts of the certificate {self.certificate.value} cannot be counted by {certificate.value}."
            raise UsageError("wrong-certificate", reason, hint="Use the certificate of the ledger.")

    def share_of(self, limit: BudgetVector) -> Fraction:
        """Return the share of `limit` that these amounts use: of the currency of which they use more."""
        limit.require(self.certificate)
        pairs = (self.refundable, limit.refundable), (self.permanent, limit.permanent)
        # Of a currency that was not granted at all, nothing used is 0 and anything used is the whole.
        return max(used / granted if granted else Fraction(used > 0) for used, granted in pairs)

    def least_share_of(self, limit: BudgetVector) -> Fraction:
        """Return the share of `limit` that these amounts are: of the currency of which they are less."""
        limit.require(self.certificate)
        pairs = (self.refundable, limit.refundable), (self.permanent, limit.permanent)
        return min((part / granted for part, granted in pairs if granted), default=Fraction(0))

    def __add__(self, other: BudgetVector) -> BudgetVector:
        other.require(self.certificate)
        return BudgetVector(
            self.refundable + other.refundable, self.permanent + other.permanent, certificate=self.certificate
        )

    def __str__(self) -> str:
        amounts = zip(self.certificate.currencies, (self.refundable, self.permanent), strict=True)
        return ", ".join(
            f"{amount} {name}" if name in {"items", "queries"} else f"{name} {float(amount):.6g}"
            for name, amount in amounts
        )


@dataclass(frozen=True, slots=True)
class BudgetState:
    """Used part of a budget, in the currencies of its certificate.

    Of the refundable currency, `spent` was settled, and `reserved` belongs to queries that have not settled. Of the
    other currency, `permanent` was spent.
    """

    spent: Fraction = Fraction(0)
    permanent: Fraction = Fraction(0)
    reserved: Fraction = Fraction(0)


@dataclass(frozen=True, slots=True)
class Filter:
    """A budget and the acts upon a state of it: pure functions of exact numbers, which the ledger makes durable."""

    budget: BudgetVector

    def remaining(self, state: BudgetState) -> BudgetVector:
        """Return what may still be admitted; raise `UsageError` if the budget is overdrawn."""
        return BudgetVector(
            self.budget.refundable - state.spent - state.reserved,
            self.budget.permanent - state.permanent,
            certificate=self.budget.certificate,
        )

    def admits(self, state: BudgetState, worst_case: BudgetVector) -> bool:
        """Say whether `worst_case` fits, compared exactly and without tolerance."""
        worst_case.require(self.budget.certificate)
        left = self.remaining(state)
        return worst_case.refundable <= left.refundable and worst_case.permanent <= left.permanent

    def reserve(self, state: BudgetState, worst_case: BudgetVector) -> BudgetState:
        """Return the state after admission: the refundable amount is reserved, the other spent."""
        if not self.admits(state, worst_case):
            raise UsageError("not-admitted", "A loss may be reserved only when the filter admits it.")
        return add_worst_case(state, worst_case)

    def settle(self, state: BudgetState, worst_case: BudgetVector, *, loss: Fraction) -> BudgetState:
        """Return the state after the answer: what was returned is spent, the rest of the reservation is freed."""
        worst_case.require(self.budget.certificate)
        check_settlement(worst_case, loss)
        if worst_case.refundable > state.reserved:
            raise UsageError("over-settled", "A release may not free more than was reserved.")
        return replace(state, spent=state.spent + loss, reserved=state.reserved - worst_case.refundable)


def add_worst_case(state: BudgetState, worst_case: BudgetVector) -> BudgetState:
    """Return the state after a worst case was admitted."""
    return replace(
        state, reserved=state.reserved + worst_case.refundable, permanent=state.permanent + worst_case.permanent
    )


def add_largest(state: BudgetState, values: Iterable[BudgetState]) -> BudgetState:
    """Return the state that decides on a query of these values: what all units may have lost, and the most of a value.

    `state` is of the queries that every unit counts in, `values` are of those that only units of one value count in. A
    unit has one value, so it has lost at most this much, in each currency.
    """
    spent = permanent = used = Fraction(0)
    for value in values:  # the most that is used may be of another value than the most that is spent
        spent, permanent = max(spent, value.spent), max(permanent, value.permanent)
        used = max(used, value.spent + value.reserved)
    return BudgetState(state.spent + spent, state.permanent + permanent, state.reserved + used - spent)


def fold_values(state: BudgetState, values: Iterable[BudgetState]) -> BudgetState:
    """Return the state of all units after units may have changed their value: the most of a value is spent for all.

    What is reserved for a value counts as spent: its settlement changes nothing any more.
    """
    most = add_largest(BudgetState(), values)
    return replace(state, spent=state.spent + most.spent + most.reserved, permanent=state.permanent + most.permanent)


def check_settlement(worst_case: BudgetVector, loss: Fraction) -> None:
    """Raise `UsageError` if a release cost more than its worst case, or less than nothing."""
    if not 0 <= loss <= worst_case.refundable:
        raise UsageError("over-settled", "A release may not cost more than its worst case.")


STEPS = 10_000  # of the whole budget: hundredths of a percent
_NOTHING = BudgetState()


@dataclass(frozen=True, slots=True)
class Rise:
    """Rise of the used share of a budget: exact as `share`, and as shown, in `steps` of a hundredth of a percent.

    Where the values of a column have budgets, `by_value` has the rise of each value that was charged. A query that is
    charged to all units has every value that was named before, and None for all others.
    """

    share: Fraction = Fraction(0)
    steps: int = 0
    by_value: Mapping[str | None, Rise] = field(default_factory=dict)

    @classmethod
    def between(cls, before: Fraction, after: Fraction) -> Rise:
        """Return the rise from one used share to another."""
        return cls(after - before, round_up(after) - round_up(before))

    def of(self, value: str | None) -> Rise:
        """Return the rise of a value's budget; that of an unnamed value for one that was not named before."""
        if not self.by_value:  # charged to all units
            return self
        return self.by_value.get(value, self.by_value.get(None, NO_RISE))

    def __add__(self, other: Rise) -> Rise:
        total = Rise(self.share + other.share, self.steps + other.steps)
        if not self.by_value and not other.by_value:
            return total
        values = dict.fromkeys((*self.by_value, *other.by_value))
        return replace(total, by_value={value: self.of(value) + other.of(value) for value in values})

    def larger(self, other: Rise) -> Rise:
        """Return the larger of two rises, of each value too."""
        values = dict.fromkeys((*self.by_value, *other.by_value))
        by_value = {value: self.of(value).larger(other.of(value)) for value in values}
        return Rise(max(self.share, other.share), max(self.steps, other.steps), by_value)

    @property
    def percent(self) -> Decimal:
        """The rise as it is shown, in percent."""
        return to_percent(self.steps)


NO_RISE = Rise()


def round_up(share: Fraction) -> int:
    """Return a share in hundredths of a percent, rounded up, as what is used is shown."""
    # `//` rounds down, so that the negated quotient is rounded up; a whole number stays as it is.
    return -(-share.numerator * STEPS // share.denominator)


def round_down(share: Fraction) -> int:
    """Return a share in hundredths of a percent, rounded down, as what is left is shown."""
    return math.floor(share * STEPS)


def to_percent(steps: int) -> Decimal:
    """Return hundredths of a percent in percent."""
    return Decimal(steps) / 100


def format_percent(percent: Decimal) -> str:
    """Return hundredths of a percent without zeros at the end."""
    return f"{percent.normalize() + 0:f} %"


def compute_used_share(state: BudgetState, limit: BudgetVector) -> Fraction:
    """Return the used share of a limit: the larger of its currencies' shares, at most 1; reservations do not count."""
    (spent, refundable), (gone, permanent) = (state.spent, limit.refundable), (state.permanent, limit.permanent)
    return max(
        # A limit may have been lowered below what was spent: the share is 1 then, and 0 of 0 is 0.
        spent / refundable if spent < refundable else Fraction(spent > 0),
        gone / permanent if gone < permanent else Fraction(gone > 0),
    )


def measure_rise(
    limit: BudgetVector,
    common: BudgetState,
    *,
    change: Callable[[BudgetState], BudgetState],
    states: Mapping[str, BudgetState] | None = None,
    values: Iterable[str] = (),
) -> Rise:
    """Return by how much a change raises the used share of queries of these `values`, or of all units without any.

    `common` is what every unit was charged, and `states` what units of one value were charged besides; None where
    values have no budgets.
    """
    named = tuple(values)
    if states is None:
        return Rise.between(compute_used_share(common, limit), compute_used_share(change(common), limit))
    # A query of all units is measured in every value that was named, since each of these budgets has less left.
    before = {value: states.get(value, _NOTHING) for value in named or states}
    after = {value: change(state) for value, state in before.items()} if named else before
    changed = common if named else change(common)

    def rise(some: Iterable[str]) -> Rise:
        every = tuple(some)
        shares = [
            compute_used_share(add_largest(state, (of_value[value] for value in every)), limit)
            for state, of_value in ((common, before), (changed, after))
        ]
        return Rise.between(*shares)

    by_value: dict[str | None, Rise] = {value: rise((value,)) for value in before}
    if not named:
        by_value[None] = rise(())
    return replace(rise(before), by_value=by_value)
