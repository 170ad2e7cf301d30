"""The used share of a budget, one figure for both currencies, and by how much a query raises it.

The used share is the larger of the shares of the two currencies. It is shown in hundredths of a percent, rounded up.
A query is shown with the difference of two such figures, so what queries show adds up to the figure of the budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction

from dpsql.accounting.budget import BudgetState, BudgetVector, add_largest

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
