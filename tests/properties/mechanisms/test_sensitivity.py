"""The guarantee of rankings by sums, computed exactly: one unit adds up to R to a group, on all small universes.

Each known mistake with R is a variant that the check must catch.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable
from dataclasses import replace
from itertools import product

import pytest
from properties.mechanisms.laws.limited_domain_sums import UNIVERSE, Variant, domain, law
from support.laws import ROUNDING, excess, fits, goodness, outcome, peeling_law, rejects

from dpsql.mechanisms import Histogram, LaplaceCounts, LimitedDomain, NoisyCounts, OperatingSystemNoise, Peeling
from dpsql.quantities import Epsilon

NOISE = OperatingSystemNoise()


def test_groups_of_score_zero_are_no_groups() -> None:
    """One unit of a bound of 1 could bring many labels to which it adds 0, and each is a label that only it has."""
    mechanism = domain("1", "1e-6", 1, 4, bound=1, most=2)
    kept, without = Variant(keeps_zeros=True), law(mechanism, {})
    assert law(mechanism, dict.fromkeys(UNIVERSE, 0)) == without == {("⊥",): 1.0}
    with_zeros = law(mechanism, {"a": 2, "b": 0, "c": 0, "d": 0}, kept)
    assert excess(mechanism, with_zeros, law(mechanism, {}, kept)) > 1.0 + ROUNDING


@pytest.mark.parametrize("scale", [2, 7])
def test_scores_in_steps_of_r_have_the_law_of_counts(scale: int) -> None:
    """R times the scores at the sensitivity R is the law at 1, to the last bit of the threshold's rounding."""
    one = domain("0.5", "1e-3", 2, 3, bound=2, most=1)
    scaled = replace(one, sensitivity=scale)
    scores = {"a": 40, "b": 38, "c": 12, "d": 3}
    here, there = law(one, scores), law(scaled, {label: scale * score for label, score in scores.items()})
    assert here.keys() == there.keys()
    assert all(there[event] == pytest.approx(mass, rel=1e-9) for event, mass in here.items())


@pytest.mark.parametrize("most", [1, 5])
def test_peeling_of_sums_is_of_bounded_range(most: int) -> None:
    mechanism = Peeling(Epsilon("0.8"), 2, most)
    scores = (6, 3, 3, 0)
    worst = 0.0
    for added in product(range(most + 1), repeat=4):
        more = tuple(score + each for score, each in zip(scores, added, strict=True))
        here, there = (
            peeling_law(each, None, float(mechanism.epsilon) / mechanism.sensitivity, 2) for each in (scores, more)
        )
        worst = max(worst, *(abs(math.log(here[event] / there[event])) for event in here))
    assert worst <= 2 * float(mechanism.epsilon) * (1 + 1e-12)
    assert worst > 0.9 * float(mechanism.epsilon)


def test_the_draws_have_the_law_of_the_sensitivity() -> None:
    """The scores are raced at epsilon / R: the law without R is told from it."""
    mechanism = domain("1", "0.2", 2, 3, bound=1, most=4)
    histogram, peeled = Histogram((14, 12, 5), 3), Peeling(Epsilon("1"), 2, 4)

    def drawn(mechanism: LimitedDomain | Peeling, histogram: Histogram) -> Counter[Hashable]:
        return Counter(outcome(mechanism.select(histogram, NOISE)) for _ in range(6_000))

    bottom = 3 + float(mechanism.threshold_offset)
    for per_step, agrees in ((1 / 4, fits), (1.0, rejects)):
        law = peeling_law(histogram.leaders, bottom, per_step, 2)
        assert agrees(lambda law=law: goodness(drawn(mechanism, histogram), law))
        law = peeling_law((9, 7, 0), None, per_step, 2)
        assert agrees(lambda law=law: goodness(drawn(peeled, Histogram((9, 7, 0), 0)), law))


@pytest.mark.parametrize(("kind", "share"), [("gaussian", 0), ("pure", 1), ("range", 2)])
def test_noise_grows_with_the_sensitivity(kind: str, share: int) -> None:
    epsilon = Epsilon("0.5")
    one, more = (
        NoisyCounts(epsilon, 3, each) if kind == "gaussian" else LaplaceCounts(epsilon, share, 3, each)
        for each in (1, 6)
    )
    assert more.variance == 36 * one.variance
    assert more.items(5) == one.items(5) == 3
