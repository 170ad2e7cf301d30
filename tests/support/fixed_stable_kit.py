"""The law of FixedStableTopK over positions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from support.laws import (
    BOTTOM,
    discrete_gaussian_law,
    peeling_law,
)

from dpsql.mechanisms import FixedStableSelection, FixedStableTopK


@dataclass(frozen=True)
class Variant:
    """A way to build the mechanism; the defaults are the production code's."""

    unstable: int | None = None  # the widest gap that must not pass: R
    above: int | None = None  # where BOTTOM stands above the next count, but for the logarithm: R
    in_logarithm: bool = True  # R is in the logarithm's part of BOTTOM
    in_race: bool = True  # R is in the exponents
    in_noise: bool = True  # R is in the noise of the test
    bottom_fills: bool = True  # BOTTOM stands against what fills up
    reach: Callable[[FixedStableTopK, int], int] = lambda m, k_bar: min(m.max_groups_contributed or k_bar, k_bar)


PRODUCTION = Variant()


def tail(variance: Fraction, at_least: int) -> float:
    return math.fsum(mass for draw, mass in discrete_gaussian_law(variance).items() if draw >= at_least)


def offset(variance: Fraction, probability: float) -> int:
    return next(n for n in range(1000) if tail(variance, n) <= probability)


def law_of_positions(
    m: FixedStableTopK, counts: tuple[int, ...], variant: Variant = PRODUCTION
) -> dict[FixedStableSelection, float]:
    """Return the law over the counts of all groups, in descending order."""
    rho, half = float(m.rho), float(m.delta) / 2
    raced = m.sensitivity if variant.in_race else 1
    variance = 2 * (m.sensitivity if variant.in_noise else 1) ** 2 / m.rho.value
    ranked = [*counts, *[0] * (m.k_bar + 1)][: m.k_bar + 1]
    leaders, following = counts[: m.k_bar], ranked[-1]
    gaps = [ranked[at] - ranked[at + 1] for at in range(m.k_bar)]
    scores = [gap - math.floor(m.penalty * abs(at + 1 - m.k)) for at, gap in enumerate(gaps)]
    weights = [math.exp(math.sqrt(2 * rho) * 0.5 * (score - max(scores)) / raced) for score in scores]
    found: dict[FixedStableSelection, float] = {}

    def fill(proposed: int, held: bool, mass: float) -> None:
        start = proposed if held else 0
        epsilon = math.sqrt(4 * rho / (m.k - start))
        above = m.sensitivity if variant.above is None else variant.above
        share = m.sensitivity if variant.in_logarithm else 1
        threshold = following + above + share * math.log(variant.reach(m, m.k_bar - start) / half) / epsilon
        others = leaders[start:]
        kept = variant.bottom_fills or not held
        steps_law = peeling_law(others, threshold if kept else None, epsilon / raced, m.k - start)
        for steps, part in steps_law.items():
            filled = tuple(start + at for at in steps if isinstance(at, int))
            stable = frozenset(range(min(start, len(counts))))
            found[FixedStableSelection(proposed, held, stable, filled, BOTTOM in steps)] = mass * part

    def cut(proposed: int, mass: float) -> None:
        some, drops = counts[:proposed], proposed - m.k < m.k
        everything = frozenset(range(len(some)))
        if len(some) <= m.k:
            found[FixedStableSelection(proposed, True, everything, (), False)] = mass
            return
        draws = min(proposed - m.k, m.k)
        epsilon = math.sqrt(4 * rho / draws)
        scored = [-count for count in some] if drops else some
        for steps, part in peeling_law(scored, None, epsilon / raced, len(some) - m.k if drops else m.k).items():
            stable = everything.difference(steps) if drops else frozenset()
            selection = FixedStableSelection(proposed, True, stable, () if drops else steps, False)
            found[selection] = found.get(selection, 0.0) + mass * part

    least = offset(variance, half) + (m.sensitivity if variant.unstable is None else variant.unstable)
    for proposed, (gap, weight) in enumerate(zip(gaps, weights, strict=True), start=1):
        chosen = weight / math.fsum(weights)
        held = tail(variance, least - gap)
        fill(proposed, False, chosen * (1.0 - held))
        if proposed < m.k:
            fill(proposed, True, chosen * held)
        else:
            cut(proposed, chosen * held)
    return found
