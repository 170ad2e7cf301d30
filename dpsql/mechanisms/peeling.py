"""Peeling: a private top-k over a domain that is known, paid for by what it returns."""

from __future__ import annotations

from dataclasses import dataclass

from dpsql.accounting import ZCDP, BoundedRange
from dpsql.mechanisms.base import Selection
from dpsql.mechanisms.histogram import Histogram
from dpsql.mechanisms.parameters import check_epsilon, check_k, check_sensitivity, known_candidates
from dpsql.mechanisms.sampling.noise import Noise
from dpsql.mechanisms.sampling.race import race
from dpsql.quantities import Delta, Epsilon

__all__ = ["Peeling"]


@dataclass(frozen=True, slots=True)
class Peeling:
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

    epsilon: Epsilon
    k: int
    sensitivity: int = 1

    def __post_init__(self) -> None:
        check_k(self.k)
        check_sensitivity(self.sensitivity)
        check_epsilon(self.epsilon, self.sensitivity)

    @property
    def name(self) -> str:
        """The mechanism's name in SQL."""
        return "peeling"

    @property
    def worst_case(self) -> ZCDP:
        """The loss of k steps."""
        return ZCDP(BoundedRange(self.epsilon).rho * self.k, Delta(0))

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
