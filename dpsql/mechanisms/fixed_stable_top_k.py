"""Fixed stable top-k: release a stable set of about k leaders at one price, and fill it up or cut it to k."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from dpsql.accounting import ZCDP, BoundedRange, epsilon_of_draws
from dpsql.errors import UsageError
from dpsql.mechanisms.base import Histogram, Selection
from dpsql.mechanisms.limited_domain import LimitedDomain
from dpsql.mechanisms.sampling.noise import Noise
from dpsql.mechanisms.sampling.race import race
from dpsql.mechanisms.stable_top_k import GapChoice, PTRGaussian, distance_regulariser
from dpsql.quantities import Delta, Epsilon, Rho

_LEAST_RHO = Fraction(1, 10**8)  # keeps the variance within what the test takes


@dataclass(frozen=True, slots=True)
class FixedStableSelection:
    """The k that was proposed, whether its gap held, and k labels or fewer.

    `stable` is a set of positions: whoever shows the labels must put them in an order that does not depend on their
    counts. `filled` are further positions in noisy rank order, and `stopped_at_bottom` says whether BOTTOM ended them.
    """

    proposed: int
    held: bool
    stable: frozenset[int]
    filled: tuple[int, ...]
    stopped_at_bottom: bool


@dataclass(frozen=True, slots=True)
class FixedStableTopK:
    """Propose a k near the one wanted at a wide gap, test the gap, then make k labels of the proposed ones.

    Where the gap does not hold, all k come from a limited domain. Where it holds for fewer than k, the limited domain
    over the other groups fills them up. Where it holds for more, exponential mechanisms drop the lowest of them, or
    pick k where that takes fewer draws.
    Given: rho of at least 1e-8 is for the whole query, delta in (0, 1) too; 1 <= k <= k_bar; `penalty` is how much
    wider a gap must be for each rank further from k; `max_groups_contributed` bounds how many groups one privacy unit
    is in (None: no bound), enforced by the caller; one unit changes each count by at most R = `sensitivity`, all in one
    direction (1 where units are counted). The histogram holds the k_bar first groups by (count descending, a
    fixed order of labels) and the count after them.
    Returns: a `FixedStableSelection`.
    Loss: at most rho, and delta. A quarter of rho pays for the proposal, a quarter for the test, the rest for the
    draws that fill or cut, of m * epsilon**2 / 8 = rho / 2 for m draws (epsilon rounded down); draws of a limited
    domain that were not made are not charged. Half of delta is the test's, half the limited domain's; it is charged
    whole whatever was drawn.
    Utility: a proposed gap of 2 * offset + R or more holds with probability at least 1 - delta / 2; the draws as in
    `LimitedDomain`.
    Cost: O(k_bar log k_bar).
    Source: Zhu and Wang 2022, Adaptive Private-K-Selection (AISTATS), Algorithm 3, reconstructed (`maths.md` 7.3);
    k-bar = k_bar, k~ = proposed, lambda = penalty. The paper fills up from the whole domain, which must then be known;
    here a limited domain of k_bar - proposed groups does, which needs a delta of its own and may stop at BOTTOM.

    >>> mechanism = FixedStableTopK(Rho("0.08"), Delta("1e-6"), 3, k_bar=10, penalty=Fraction(1))
    >>> mechanism.test.variance, mechanism.fill(1), mechanism.fill(4)
    (Fraction(25, 1), Epsilon(0.565685), Epsilon(0.282843))
    """

    name: ClassVar[str] = "stable"  # in SQL
    rho: Rho
    delta: Delta
    k: int
    k_bar: int
    penalty: Fraction
    max_groups_contributed: int | None = None
    sensitivity: int = 1

    def __post_init__(self) -> None:
        if self.rho.value < _LEAST_RHO:
            raise UsageError("rho-range", "The rho of a fixed stable top-k must be at least 1e-8.")
        _ = self.choice, self.test, self._limited(self.k, self.k_bar)  # each refuses what it cannot use

    @property
    def choice(self) -> GapChoice:
        """Return the proposal of k, for a quarter of rho."""
        regulariser = distance_regulariser(self.k, self.k_bar, penalty=self.penalty)
        return GapChoice(epsilon_of_draws(self.rho.value / 4), self.k_bar, regulariser, self.sensitivity)

    @property
    def test(self) -> PTRGaussian:
        """Return the test of the gap, for a quarter of rho and half of delta."""
        return PTRGaussian(2 * self.sensitivity**2 / self.rho.value, Delta(self.delta.value / 2), self.sensitivity)

    def fill(self, draws: int) -> Epsilon:
        """Return the epsilon of each of `draws` draws that cost half of rho together."""
        return epsilon_of_draws(self.rho.value / 2, draws)

    @property
    def worst_case(self) -> ZCDP:
        """The loss to reserve before the data is read; a public number."""
        return ZCDP(self.rho, self.delta)

    def select(self, histogram: Histogram, noise: Noise) -> FixedStableSelection:
        """Draw the proposal, the test and what fills or cuts."""
        proposed = self.choice.choose(histogram, noise)
        stable = self.test.release(histogram, proposed, noise=noise)
        if stable is not None and proposed >= self.k:
            return self._cut(histogram, proposed, noise=noise)
        # Once the set is released, the groups below it are a histogram of their own (`maths.md` 7.3).
        start = 0 if stable is None else proposed
        others = Histogram(histogram.leaders[start:], histogram.following)
        selection = self._limited(self.k - start, self.k_bar - start).select(others, noise)
        filled = tuple(start + at for at in selection.positions)
        bottom = selection.stopped_at_bottom
        return FixedStableSelection(proposed, stable is not None, stable or frozenset(), filled, bottom)

    def loss(self, selection: FixedStableSelection) -> ZCDP:
        """Return what the proposal, the test and the draws that were made cost, at most `worst_case`."""
        start = selection.proposed if selection.held else 0
        if start >= self.k:
            draws = self._draws_to_cut(start)
            paid = ZCDP(BoundedRange(self.fill(draws)).rho * draws if draws else Rho(0), Delta(self.delta.value / 2))
        else:
            drawn = Selection(selection.filled, stopped_at_bottom=selection.stopped_at_bottom)
            paid = self._limited(self.k - start, self.k_bar - start).loss(drawn)
        return self.choice.loss + self.test.loss + paid

    def _limited(self, k: int, k_bar: int) -> LimitedDomain:
        # k = 0 goes on to `check_k`, which refuses it in words, and not to a division by zero.
        epsilon, delta, bound = self.fill(max(k, 1)), Delta(self.delta.value / 2), self.max_groups_contributed
        return LimitedDomain(epsilon, delta, k, k_bar, bound, sensitivity=self.sensitivity)

    def _draws_to_cut(self, proposed: int) -> int:
        # Dropping the surplus or picking k of them, whichever takes fewer draws: `proposed` is released, so this is
        # public.
        return min(proposed - self.k, self.k)

    def _cut(self, histogram: Histogram, proposed: int, *, noise: Noise) -> FixedStableSelection:
        """Return k of the proposed leaders: the set is known, so no BOTTOM stands against them."""
        counts, draws = histogram.leaders[:proposed], self._draws_to_cut(proposed)
        surplus = max(0, len(counts) - self.k)  # fewer groups may exist than were proposed
        if surplus == 0:
            return _make_selection(proposed, stable=frozenset(range(len(counts))), filled=())
        drops = proposed - self.k < self.k
        scores = [-count for count in counts] if drops else counts
        # The surplus can be below the draws that are charged, which go by `proposed`: how many groups exist is private.
        steps = surplus if drops else self.k
        drawn = race(scores, None, epsilon=self.fill(draws).value / self.sensitivity, steps=steps, noise=noise)
        if drops:
            return _make_selection(proposed, stable=frozenset(range(len(counts))).difference(drawn), filled=())
        return _make_selection(proposed, stable=frozenset(), filled=tuple(drawn))


def _make_selection(proposed: int, *, stable: frozenset[int], filled: tuple[int, ...]) -> FixedStableSelection:
    return FixedStableSelection(proposed, held=True, stable=stable, filled=filled, stopped_at_bottom=False)
