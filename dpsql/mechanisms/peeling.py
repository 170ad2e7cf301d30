"""Peeling: a private top-k over a domain that is known, paid for by what it returns.

Peeling over known names with an evidence line: where no row has any, a name is returned in 1 of 20 answers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from dpsql.accounting import ZCDP, BoundedRange, discrete_gaussian_offset
from dpsql.errors import UsageError
from dpsql.mechanisms.base import (
    COUNT_LIMIT,
    FALSE_ALARM,
    Histogram,
    Selection,
    check_epsilon,
    check_k,
    check_sensitivity,
    known_candidates,
)
from dpsql.mechanisms.sampling.discrete_noise import discrete_gaussian
from dpsql.mechanisms.sampling.noise import Noise
from dpsql.mechanisms.sampling.race import race
from dpsql.quantities import Delta, Epsilon, Rho


@dataclass(frozen=True, slots=True)
class _ItemsOfKnownNames:
    """Parameters of at most k items over a known domain: the epsilon of one, and the reach of a unit."""

    name: ClassVar[str] = "peeling"  # in SQL
    epsilon: Epsilon
    k: int
    sensitivity: int = 1

    def __post_init__(self) -> None:
        check_k(self.k)
        check_sensitivity(self.sensitivity)
        check_epsilon(self.epsilon, self.sensitivity)

    @property
    def worst_case(self) -> ZCDP:
        """The loss of k items."""
        return ZCDP(BoundedRange(self.epsilon).rho * self.k, Delta(0))


@dataclass(frozen=True, slots=True)
class Peeling(_ItemsOfKnownNames):
    """Peel k of all candidates of a public domain with Gumbel noise; there is no BOTTOM.

    Given: epsilon is the bounded-range parameter of one draw; k >= 1. The domain is public or a function of earlier
    answers, never of the data; the histogram's leaders are the counts of all its candidates, 0 for those that no unit
    is in. To leave these out is to tell, with certainty, that some unit is in the others (`maths.md` 5.4).
    Nothing bounds how many groups a privacy unit is in. One unit changes each count by at most R = `sensitivity`, all
    in one direction (1 where units are counted).
    Returns: a `Selection` of min(k, candidates) positions in noisy rank order; it never stops at BOTTOM.
    Loss: rho = epsilon**2 / 8 for every returned candidate; delta 0.
    Utility: with probability 1 - beta every returned candidate of d > k has a count of at least
    h_(k) - R ln((d - k) * (1 + ln(k)) / beta) / epsilon (`maths.md` 5.4).
    Cost: O(d log d) for d candidates, whatever the counts.
    Source: Durfee and Rogers 2019, arXiv:1905.04273, Lemma 4.2 (one draw of noise for all steps is peeling with the
    exponential mechanism) and Lemma 4.3 (bounded range). One unit moves all counts the same way, so the weights are
    exp(epsilon * count / R), without the half of the general exponential mechanism.

    >>> mechanism = Peeling(Epsilon("0.2"), k=10)
    >>> mechanism.worst_case.rho, mechanism.worst_case.delta
    (Rho(0.05), Delta(0))
    """

    def select(self, histogram: Histogram, noise: Noise) -> Selection:
        """Draw the selection with the exact law of repeated exponential mechanisms over all candidates."""
        counts = known_candidates(histogram)
        steps = min(self.k, len(counts))
        if not steps:
            return Selection((), stopped_at_bottom=False)
        order = race(counts, None, epsilon=self.epsilon.value / self.sensitivity, steps=steps, noise=noise)
        return Selection(tuple(order), stopped_at_bottom=False)

    def loss(self, selection: Selection) -> ZCDP:
        """Return epsilon**2 / 8 for every step that was drawn."""
        return ZCDP(BoundedRange(self.epsilon).rho * selection.steps, Delta(0))


GATE_SHARE = Fraction(1, 10)  # of the items that are left
_DECIMALS = 24  # of an epsilon that is a square root, rounded down


@dataclass(frozen=True, slots=True)
class EvidenceGate:
    """Say whether the largest of some counts, with discrete Gaussian noise, reaches a public height.

    Given: rho sets the noise; one privacy unit changes no count by more than R = `sensitivity`, so that the largest
    moves by at most R. The noise is drawn whatever the counts are.
    Loss: rho = R**2 / (2 sigma**2), whether or not it opens.
    Utility: where all counts are 0 it opens with probability `probability` at most: the height is the least integer
    that the noise reaches so rarely.
    """

    rho: Rho
    probability: Fraction
    sensitivity: int = 1

    @property
    def variance(self) -> Fraction:
        """Return sigma squared."""
        return self.sensitivity**2 / (2 * self.rho.value)

    @property
    def height(self) -> int:
        """Return the noisy count at which it opens."""
        return discrete_gaussian_offset(self.variance, float(self.probability))

    def opens(self, largest: int, noise: Noise) -> bool:
        """Draw the noise and compare."""
        (drawn,) = discrete_gaussian(self.variance, noise, count=1)
        return largest + drawn >= self.height


@dataclass(frozen=True, slots=True)
class EvidentSelection:
    """Positions in the list of candidates, in released order; the first `above` of them came before BOTTOM.

    `gate_opened` is None where nothing was left to spend.
    """

    positions: tuple[int, ...]
    above: int
    stopped_at_bottom: bool
    gate_opened: bool | None = None


@dataclass(frozen=True, slots=True)
class EvidentPeeling(_ItemsOfKnownNames):
    """Peel known names with Gumbel noise against BOTTOM; where that comes first, go on only if a gate opens.

    BOTTOM stands at R ln(d / beta') / epsilon for d candidates. If it comes after j < k names, k - j - 1 items are
    left. A tenth of them buys an `EvidenceGate` on the largest count of the names that were not returned; if it opens,
    the rest buys k - j more of these, without BOTTOM.
    Given: epsilon is the bounded-range parameter of one draw; k >= 1. The candidates are a function of earlier answers,
    never of the data; their counts come in an order that does not depend on the data, 0 for those that no unit is in
    (`maths.md` 5.4). One unit changes each count by at most R = `sensitivity`, and any two of them, 0 included, by
    amounts at most R apart. Without `has_gate` the answer ends at BOTTOM, and all draws have a bounded range.
    Returns: an `EvidentSelection` of at most k positions.
    Loss: epsilon**2 / 8 for each item: one for each name before BOTTOM and for BOTTOM, a tenth of what is left for the
    gate, all of it if it opened; never more than k. Delta 0.
    Utility: where all counts are 0, a name is returned with probability 0.05 at most: beta' is half of that, and the
    gate has the other half; without a gate, or with k = 1, beta' is all of it. Where some count is large, the gate
    says nothing of each of the names behind it.
    Source: `maths.md` 9.4.2; for the draws Durfee and Rogers 2019, arXiv:1905.04273, Lemmas 4.2 and 4.3.

    >>> peeling = EvidentPeeling(Epsilon("0.1"), k=10)
    >>> round(float(peeling.find_bottom(200)), 2), peeling.gate(0).height
    (89.87, 42)
    >>> peeling.items(EvidentSelection((), 0, stopped_at_bottom=True, gate_opened=False))
    Fraction(19, 10)
    """

    has_gate: bool = True

    @property
    def _rate(self) -> Fraction:
        return self.epsilon.value / self.sensitivity

    @property
    def _probability(self) -> Fraction:
        """Return with what probability each of BOTTOM and the gate may fail where no row has a name."""
        return FALSE_ALARM / 2 if self.left(0) else FALSE_ALARM

    def find_bottom(self, candidates: int) -> Fraction:
        """Return where BOTTOM stands: of so many candidates of count 0 the first beats it with beta' at most."""
        # A double is enough: BOTTOM is one more public candidate, and no proof needs its height (`maths.md` 9.4.2).
        return Fraction(math.log(candidates / float(self._probability)) / float(self._rate))

    def left(self, above: int) -> int:
        """Return how many items are left where BOTTOM came after so many names; none of them buys less than a gate."""
        return self.k - above - 1 if self.has_gate else 0

    def gate(self, above: int) -> EvidenceGate:
        """Return the gate after so many names, where items are left."""
        rho = BoundedRange(self.epsilon).rho.value * self.left(above) * GATE_SHARE
        return EvidenceGate(Rho(rho), self._probability, self.sensitivity)

    def epsilon_behind(self, above: int) -> Fraction:
        """Return the epsilon of each of the k - `above` draws behind the gate, which cost no more than what is left."""
        square = self.epsilon.value**2 * (1 - GATE_SHARE) * self.left(above) / (self.k - above)
        return Fraction(math.isqrt(math.floor(square * 10 ** (2 * _DECIMALS))), 10**_DECIMALS)

    def select(self, counts: Sequence[int], noise: Noise) -> EvidentSelection:
        """Draw the selection with the exact law of repeated exponential mechanisms and of the gate."""
        bottom = len(counts)
        if not bottom:
            return EvidentSelection((), 0, stopped_at_bottom=False)
        if max(map(abs, counts)) >= COUNT_LIMIT:
            raise UsageError("histogram-counts", "The counts of known names must be integers of less than 2**53.")
        order = race(counts, self.find_bottom(bottom), epsilon=self._rate, steps=min(self.k, bottom + 1), noise=noise)
        if bottom not in order:
            return EvidentSelection(tuple(order), len(order), stopped_at_bottom=False)
        first = order[: order.index(bottom)]
        above, returned = len(first), frozenset(first)
        rest = [at for at in range(bottom) if at not in returned]
        if not rest or not self.left(above):
            return EvidentSelection(tuple(first), above, stopped_at_bottom=True)
        scores = [counts[at] for at in rest]
        # The noise is drawn even if every count is 0: a gate that is certainly shut there would tell it (`maths.md`
        # 9.4.2).
        if not self.gate(above).opens(max(scores), noise):
            return EvidentSelection(tuple(first), above, stopped_at_bottom=True, gate_opened=False)
        rate, steps = self.epsilon_behind(above) / self.sensitivity, min(self.k - above, len(rest))
        behind = [rest[at] for at in race(scores, None, epsilon=rate, steps=steps, noise=noise)]
        return EvidentSelection((*first, *behind), above, stopped_at_bottom=True, gate_opened=True)

    def items(self, selection: EvidentSelection) -> Fraction:
        """Return how many items `selection` cost, at most k: a whole number but for the gate."""
        steps = Fraction(selection.above + selection.stopped_at_bottom)
        if selection.gate_opened is None:
            return steps
        return steps + self.left(selection.above) * (1 if selection.gate_opened else GATE_SHARE)

    def loss(self, selection: EvidentSelection) -> ZCDP:
        """Return what `selection` cost, at most `worst_case`."""
        return ZCDP(Rho(BoundedRange(self.epsilon).rho.value * self.items(selection)), Delta(0))
