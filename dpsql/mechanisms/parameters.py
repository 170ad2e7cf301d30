"""What the mechanisms ask of their parameters and of the histogram they are given."""

from __future__ import annotations

from dpsql.errors import UsageError
from dpsql.mechanisms.histogram import Histogram
from dpsql.mechanisms.sampling.race import LEAST_EPSILON
from dpsql.quantities import Delta, Epsilon


def check_epsilon(epsilon: Epsilon, sensitivity: int = 1) -> None:
    """Raise UsageError for an epsilon, per unit of a count of this sensitivity, below that of any draw."""
    if epsilon.value < LEAST_EPSILON * sensitivity:
        raise UsageError("epsilon-range", "The epsilon of a draw must be at least 1e-9.")


def check_delta(delta: Delta) -> None:
    """Raise UsageError for a delta that an unknown domain cannot have."""
    if not 0 < delta.value < 1:
        raise UsageError("delta-range", "The delta of an unknown domain must lie strictly between 0 and 1.")


def check_k(k: int, k_bar: int | None = None) -> None:
    """Raise UsageError unless 1 <= k <= k_bar (None: whatever k)."""
    if k_bar is None and k < 1:
        raise UsageError("k-range", "k must be at least 1.")
    if k_bar is not None and not 1 <= k <= k_bar:
        raise UsageError("k-range", "k must be at least 1 and at most k_bar.")


def check_bound(max_groups_contributed: int | None) -> None:
    """Raise UsageError for a bound below 1; None is no bound."""
    if max_groups_contributed is not None and max_groups_contributed < 1:
        raise UsageError("bound-range", "max_groups_contributed must be at least 1.")


def check_sensitivity(sensitivity: int) -> None:
    """Raise UsageError for a gap that moves by less than 1 between neighbours."""
    if sensitivity < 1:
        raise UsageError("sensitivity-range", "The sensitivity of a gap must be at least 1.")


def check_leaders(histogram: Histogram, k_bar: int) -> None:
    """Raise UsageError for a histogram of more than k_bar leaders."""
    if len(histogram.leaders) > k_bar:
        raise UsageError("histogram-size", "The histogram holds more leaders than k_bar.")


def known_candidates(histogram: Histogram) -> tuple[int, ...]:
    """Return the counts of all candidates of a known domain; raise UsageError if some were left out."""
    if histogram.following:
        raise UsageError("histogram-cut", "The histogram must hold every candidate of a known domain.")
    return histogram.leaders
