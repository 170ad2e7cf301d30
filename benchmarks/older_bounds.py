"""Published bounds that no session uses, for comparison with those of its certificates. Not run itself.

Every composition bound is moved up by `SLACK`, 16 times what the roundings of its formula can add up to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dpsql.accounting.certificates import DurfeeRogers
from dpsql.errors import UsageError
from dpsql.quantities import Delta, Epsilon, Rho

__all__ = ["bs16_epsilon", "bs16_rho", "dong_durfee_rogers", "kappa", "lemma_4_4"]

SLACK = 2.0**-45


def lemma_4_4(epsilons: Sequence[Epsilon], *, delta: Delta) -> DurfeeRogers:
    """Return the total epsilon of items of different, fixed epsilons, chosen adaptively otherwise, rounded up.

    Source: Durfee and Rogers 2019, arXiv:1905.04273, Lemma 4.4. Which epsilon comes when is fixed beforehand: the
    lemma says nothing about one that is chosen after seeing answers.
    """
    level, steps = log_inverse(delta, len(epsilons)), [float(each) for each in epsilons]
    drift = math.fsum(step * math.tanh(step / 2.0) for step in steps)
    squares = math.fsum(step**2 for step in steps)
    return DurfeeRogers(
        basic=float(sum(each.value for each in epsilons)) * (1.0 + SLACK),
        pure=(drift + math.sqrt(2.0 * squares * level)) * (1.0 + SLACK),
        bounded_range=(squares / 2.0 + math.sqrt(squares * level / 2.0)) * (1.0 + SLACK),
    )


def dong_durfee_rogers(k: int, epsilon: Epsilon, *, delta: Delta) -> float:
    """Return k kappa(epsilon) + epsilon sqrt(k ln(1/delta) / 2), the sharper third term, rounded up.

    Source: Dong, Durfee and Rogers 2020, arXiv:1909.13830, adaptive composition of bounded range: the mean of a step's
    loss is at most kappa, and Hoeffding's inequality bounds the rest.
    """
    level = log_inverse(delta, k)
    return (k * kappa(epsilon) + float(epsilon) * math.sqrt(k * level / 2.0)) * (1.0 + SLACK)


def kappa(epsilon: Epsilon) -> float:
    """Return the largest Kullback-Leibler divergence of an epsilon-bounded-range mechanism, at most epsilon**2 / 8.

    Source: Dong, Durfee and Rogers 2020, arXiv:1909.13830: x - 1 - ln x at x = epsilon / (1 - exp(-epsilon)), rounded
    up. With y = x - 1 an error in y enters times y / (1 + y), so all of them stay below 2**-49 y.
    """
    step = float(epsilon)
    excess = step / -math.expm1(-step) - 1.0
    return excess - math.log1p(excess) + 2.0**-49 * excess


def bs16_epsilon(rho: Rho, delta: Delta) -> float:
    """Return rho + 2 sqrt(rho ln(1/delta)), the older and looser bound of Bun and Steinke 2016, Proposition 1.3."""
    return float(rho) + 2.0 * math.sqrt(float(rho) * log_inverse(delta, 1))


def bs16_rho(epsilon: Epsilon, delta: Delta) -> float:
    """Return the inverse of `bs16_epsilon` in rho."""
    level = log_inverse(delta, 1)
    return (math.sqrt(level + float(epsilon)) - math.sqrt(level)) ** 2


def log_inverse(delta: Delta, k: int) -> float:
    """Return ln(1 / delta); raise `UsageError` for no items, and for a delta outside (0, 1)."""
    if k < 1 or not 0 < delta.value < 1:
        raise UsageError("composition-range", "Composition needs k of at least 1 and delta strictly between 0 and 1.")
    return math.log(delta.value.denominator) - math.log(delta.value.numerator)
