"""Weights of units in small sets of groups."""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy import stats

from dpsql.mechanisms import WeightedGaussian

Weights = dict[object, int]


def weights_of(rows: Sequence[tuple[object, ...]]) -> Weights:
    return {row[0]: int(str(row[2])) for row in rows}


def reaching(mechanism: WeightedGaussian, weight: int, at_least: int) -> float:
    """Return the probability that a noisy weight is at least so much: a sum over a million steps is an integral."""
    return float(stats.norm.sf((at_least - weight - 0.5) / math.sqrt(mechanism.variance)))
