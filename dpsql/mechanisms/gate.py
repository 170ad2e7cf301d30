"""Gate: a noisy look at the heaviest groups, before a mechanism that costs the same whatever it returns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from dpsql.accounting import discrete_gaussian_offset
from dpsql.mechanisms.sampling.discrete_noise import discrete_gaussian
from dpsql.mechanisms.sampling.noise import Noise
from dpsql.quantities import Rho

LOOK_SHARE = Fraction(3, 100)  # of rho, for each look
_FEW, _ALLOWED_OF_FEW = 5, Fraction(3, 8)  # up to so many k, what a query costs on average where there is nothing
_ALLOWED, _ALLOWED_ITEMS = Fraction(1, 10), Fraction(5, 2)  # of more: a tenth, but two and a half items at least
_FLOOR, _TOP = Fraction(1, 5), Fraction(14, 5)  # of the threshold: from where on, and how much of a group is seen
_WIDE = 10**18  # from this variance on, noise is as good as continuous


@dataclass(frozen=True, slots=True)
class Look:
    """Release a sum over groups, in whole steps, with discrete Gaussian noise.

    Given: one privacy unit more or less changes the sum by at most `sensitivity` steps. Where there is no group the sum
    is 0, and the noise is the same.
    Returns: the noisy sum divided by `whole`, the steps that stand for all k groups.
    Loss: rho, = sensitivity**2 / (2 sigma**2).
    Source: Canonne, Kamath and Steinke 2020, arXiv:2004.00010, Theorem 4.

    >>> look = Look(Rho("0.01"), sensitivity=10, whole=400)
    >>> look.variance
    Fraction(5000, 1)
    """

    rho: Rho
    sensitivity: int
    whole: int

    @property
    def variance(self) -> Fraction:
        """Return sigma squared, in squared steps."""
        return Fraction(self.sensitivity**2) / (2 * self.rho.value)

    def draw(self, total: int, noise: Noise) -> Fraction:
        """Return the noisy share."""
        (drawn,) = discrete_gaussian(self.variance, noise, count=1)
        return Fraction(total + drawn, self.whole)

    def find_height(self, probability: Fraction) -> Fraction:
        """Return the least share that the noise alone reaches with at most this probability; of wide noise, nearly."""
        if self.variance > _WIDE:  # nothing that is private depends on the height
            deviations = NormalDist().inv_cdf(1.0 - float(probability))
            return Fraction(math.ceil(deviations * math.sqrt(self.variance)), self.whole)
        return Fraction(discrete_gaussian_offset(self.variance, float(probability)), self.whole)


@dataclass(frozen=True, slots=True)
class Gate:
    """Look at the k heaviest groups, each from a fifth of a public threshold on, and open if enough stands out.

    Given: `rho` is that of the look; `threshold` is the one that a group must reach behind the gate; one privacy unit
    changes the sum of the k heaviest groups by at most `sensitivity`. It opens with at most the `probability` where
    there is nothing.
    Loss: rho, whether or not it opens.
    Source: `maths.md` 9.5.1. A unit adds at most `sensitivity` to k groups together, ordered values change by no more
    than what they are ordered of, and clipping does not widen a change.

    >>> gate = Gate(Rho("0.01"), k=10, threshold=40, sensitivity=4, probability=Fraction(1, 5))
    >>> gate.start, gate.width, gate.height
    (8, 112, Fraction(1, 16))
    """

    rho: Rho
    k: int
    threshold: int
    sensitivity: int
    probability: Fraction

    @property
    def look(self) -> Look:
        """Return the noisy sum; 1 if k groups are a fifth and the threshold high."""
        return Look(self.rho, self.sensitivity, self.k * self.threshold)

    @property
    def start(self) -> int:
        """Return from what on a group is seen: a cut of what is read must not be above it."""
        return math.floor(_FLOOR * self.threshold)

    @property
    def width(self) -> int:
        """Return how much of a group is seen at most."""
        return math.floor(_TOP * self.threshold)

    @property
    def height(self) -> Fraction:
        """Return what the noisy share must reach."""
        return self.look.find_height(self.probability)

    def add(self, values: npt.NDArray[np.int64]) -> int:
        """Return the exact sum that is seen; 0 of no group."""
        # A group that is missing and one at or below `start` both add 0, so that fewer than k groups need no padding.
        heaviest = np.partition(values, len(values) - self.k)[-self.k :] if len(values) > self.k else values
        return int(np.clip(heaviest - self.start, 0, self.width).sum())

    def draw(self, values: npt.NDArray[np.int64], noise: Noise) -> Fraction:
        """Return the noisy share, from what all groups have, at least all that have more than `start`."""
        return self.look.draw(self.add(values), noise)


def find_open_probability(k: int, looks: int) -> Fraction:
    """Return with what probability a gate after so many looks opens on nothing: what a query then costs decides it.

    That is 37.5 % of k items for k of at most 5, and otherwise a tenth of them, but two and a half items at least.

    >>> [round(float(find_open_probability(k, 2)), 3) for k in (5, 10, 100)]
    [0.335, 0.202, 0.043]
    """
    allowed = _ALLOWED_OF_FEW if k <= _FEW else max(_ALLOWED, _ALLOWED_ITEMS / k)
    # On nothing the looks are always paid and the rest with probability p: allowed = spent + (1 - spent) p, solved for
    # p.
    spent = looks * LOOK_SHARE
    return (allowed - spent) / (1 - spent)


def bound_weight_sum(groups: int, *, steps: int) -> int:
    """Return by how much at most one unit changes the sum of so many weights: `steps` * sqrt(groups), rounded up.

    >>> bound_weight_sum(4, steps=10), bound_weight_sum(5, steps=10)
    (20, 23)
    """
    square = groups * steps * steps
    root = math.isqrt(square)
    return root if root * root == square else root + 1
