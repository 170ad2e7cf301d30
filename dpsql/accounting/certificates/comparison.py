"""The same items under every bound: the tables of `maths.md` 6.2 and 6.3, and Figure 1 of Durfee and Rogers 2019."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dpsql.accounting.certificates.composition import durfee_rogers
from dpsql.accounting.certificates.fixed_compositions import fixed_epsilon, pure_delta, pure_epsilon
from dpsql.accounting.certificates.optimal import MOST_ITEMS, adaptive_epsilon
from dpsql.accounting.certificates.purchases import items_bought
from dpsql.accounting.conversions import bs16_epsilon, epsilon_of_zcdp
from dpsql.accounting.guarantees import ApproximateDP, BoundedRange, Certificate
from dpsql.errors import UsageError
from dpsql.quantities import Delta, Epsilon

__all__ = ["ComparedTotals", "PurchasedItems", "Ratio", "bought", "figure_one", "totals"]


@dataclass(frozen=True, slots=True)
class ComparedTotals:
    """The total epsilon of `items` items of one epsilon, under each bound.

    `pure`, `theorem2`, `zcdp` and `optimal` are certificates. `advanced` is the pure term of Theorem 1, `older_zcdp`
    the conversion of 2016, `fixed` what items fixed beforehand would cost at best and `general` what items of plain
    epsilon-differential privacy would.
    """

    epsilon: float
    items: int
    pure: float
    advanced: float
    bounded_range: float
    theorem2: float
    older_zcdp: float
    zcdp: float
    optimal: float
    fixed: float
    general: float


def totals(items: int, epsilon: Epsilon, *, delta: Delta) -> ComparedTotals:
    """Return the row of `maths.md` 6.2 for these items; `delta` pays for the composition alone."""
    if not 1 <= items <= MOST_ITEMS:
        raise UsageError("composition-range", f"A comparison is of 1 to {MOST_ITEMS:,} items.")
    terms, rho = durfee_rogers(items, epsilon, delta=delta), BoundedRange(epsilon).rho * items
    return ComparedTotals(
        epsilon=float(epsilon),
        items=items,
        pure=terms.basic,
        advanced=terms.pure,
        bounded_range=terms.bounded_range,
        theorem2=terms.best,
        older_zcdp=bs16_epsilon(rho, delta),
        zcdp=epsilon_of_zcdp(rho, delta),
        optimal=adaptive_epsilon(items, epsilon, delta=delta),
        fixed=fixed_epsilon(items, epsilon, delta=delta),
        general=pure_epsilon(items, epsilon, delta=delta),
    )


@dataclass(frozen=True, slots=True)
class PurchasedItems:
    """Number of items of one epsilon that a total buys under each certificate."""

    epsilon: float
    pure: int
    theorem2: int
    zcdp: int
    optimal: int


def bought(epsilon: Epsilon, *, total: ApproximateDP) -> PurchasedItems:
    """Return the row of `maths.md` 6.3 for this epsilon of an item."""
    counts = {each.value: items_bought(each, epsilon, total=total) for each in Certificate}
    return PurchasedItems(float(epsilon), **counts)


@dataclass(frozen=True, slots=True)
class Ratio:
    """Ratios of the optimal total of plain differential privacy to those of bounded range, for k items."""

    k: int
    theorem2: float
    zcdp: float | None


def figure_one(k: int, epsilon: Epsilon, *, delta: Delta) -> Ratio:
    """Return one point of the figure; a ratio above 1 says that bounded range is the better.

    Source: Durfee and Rogers 2019, arXiv:1905.04273, Figure 1: the smallest (k - 2i) epsilon of Lemma 4.5 whose delta_i
    is at most `delta`, over Lemma 4.4 at that same delta_i. `zcdp` is ours: zero-concentration in the place of Lemma
    4.4, and None where delta_i is 0.
    """
    step, low, high = float(epsilon), 0, k // 2 + 1
    while high - low > 1:
        middle = (low + high) // 2
        fits = pure_delta(k, epsilon, total=(k - 2 * middle) * step) <= float(delta)
        low, high = (middle, high) if fits else (low, middle)
    total = (k - 2 * low) * step
    reached = Delta(Fraction(pure_delta(k, epsilon, total=total))) if low else Delta(0)
    if not reached.value:
        return Ratio(k, 1.0, None)
    rho = BoundedRange(epsilon).rho * k
    return Ratio(k, total / durfee_rogers(k, epsilon, delta=reached).best, total / epsilon_of_zcdp(rho, reached))
