"""The guarantee of every other ranking by sums, computed exactly: one unit adds up to R to a group, on small universes.

`test_sensitivity.py` has the limited domain and peeling. Each known mistake with R is a variant that must be caught.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction
from itertools import permutations, product

import pytest
from properties.mechanisms.laws import stable
from properties.mechanisms.laws.selections_by_sums import (
    MOST,
    UNIVERSE,
    Sparse,
    Unit,
    all_units,
    at_once,
    excess,
    softmax,
    weighted,
    weights,
)
from support import fixed_stable_kit, laplace_kit, top_stable_kit
from support.laws import (
    ROUNDING,
    Counts,
    Law,
    chance,
    discrete_gaussian_law,
    one_unit_more,
    peeling_law,
    singles_out,
)

from dpsql.errors import UsageError
from dpsql.mechanisms import (
    ChooseKBar,
    DomainDiscovery,
    FixedStableTopK,
    FullHistogram,
    GapChoice,
    GaussianHistogram,
    Histogram,
    JointExponential,
    OperatingSystemNoise,
    PTRGaussian,
)
from dpsql.mechanisms.gaussian_threshold import unit_weight
from dpsql.quantities import Delta, Epsilon, Rho

NOISE = OperatingSystemNoise()


def scores(draw: random.Random, most: int) -> dict[str, int]:
    present = draw.sample(UNIVERSE, draw.randint(0, 3))
    return {label: draw.randint(1, draw.choice([1, 2, 12]) * most) for label in present}


def test_the_squares_of_the_weights_of_a_unit_never_add_up_to_more_than_one() -> None:
    draw = random.Random(5)
    for _ in range(3_000):
        most, groups = draw.choice([1, 2, 3, 20, 5_000, 2**20]), draw.randint(1, 120)
        added = [draw.choice([0, 1, most - 1, most, draw.randint(0, most)]) for _ in range(groups)]
        assert sum((c * unit_weight(groups) // most) ** 2 for c in added) <= 2**40


@pytest.mark.parametrize("k", [1, 2])
def test_discovery_and_peeling_of_sums_together_cost_the_sum(k: int) -> None:
    """The domain is what passed, by weights; of more than k the sums themselves are peeled, at epsilon / R."""
    for raced, holds in ((True, True), (False, False)):
        found = 0.0
        for most, bound in product((2, 3), (1, 2)):
            sparse = weighted("0.2", "0.3", bound, most)
            mechanism = DomainDiscovery(sparse.loss.rho, sparse.loss.delta, bound, Epsilon(3), k, most)
            assert mechanism.peeling.sensitivity == most
            for units in ([{"a": most}] * 9 + [{"b": most}] * 9 + [{"c": most}] * 9, [{"a": most}, {"b": 1}], []):
                here = discovered(sparse, units, mechanism, raced=raced)
                for unit in all_units(bound, most):
                    there = discovered(sparse, [*units, unit], mechanism, raced=raced)
                    found = max(found, excess(here, there, mechanism.worst_case))
        assert (found <= 1.0 + ROUNDING) is holds


def discovered(sparse: Sparse, units: Sequence[Unit], mechanism: DomainDiscovery, *, raced: bool) -> Law:
    """Return the law of the discovered labels and of those peeled among them, by their sums."""
    found, sums = weights(sparse, units), Counter[str]()
    for unit in units:
        sums.update(unit)
    law = discrete_gaussian_law(sparse.variance, 9.0)
    miss = {
        label: math.fsum(mass for n, mass in law.items() if weight + n < sparse.threshold)
        for label, weight in found.items()
    }
    masses: dict[Hashable, float] = {}
    for kept in product((False, True), repeat=len(found)):
        domain = [label for label, held in zip(sorted(found), kept, strict=True) if held]
        chance = math.prod(1.0 - miss[label] if label in domain else miss[label] for label in found)
        if len(domain) <= mechanism.k:
            masses[tuple(domain), ()] = chance
            continue
        per_step = float(mechanism.epsilon) / (mechanism.sensitivity if raced else 1)
        for steps, mass in peeling_law([sums[label] for label in domain], None, per_step, mechanism.k).items():
            masses[tuple(domain), steps] = chance * mass
    return masses


# The choice of k_bar, and of a gap: exponential mechanisms, of which the range is what is claimed


def widest(law: Callable[[Counts], Law], counts: Counts, *, bound: int | None, most: int) -> float:
    """Return the widest range of the log-likelihood ratio of any neighbours."""
    here, found = law(counts), 0.0
    for more in one_unit_more(counts, UNIVERSE, bound, most):
        there = law(more)
        ratios = [math.log(here[each] / there[each]) for each in here]
        found = max(found, max(ratios) - min(ratios))
    return found


def k_bar_law(mechanism: ChooseKBar, counts: Counts, *, raced: int) -> Law:
    padded = [*sorted(counts.values(), reverse=True), *[0] * 9]
    rate = float(mechanism.epsilon) / raced
    places = zip(mechanism.candidates, mechanism.offsets, strict=True)
    return softmax({k_bar: -rate * (padded[k_bar] + offset) for k_bar, offset in places})


@pytest.mark.parametrize("most", MOST)
def test_the_choice_of_k_bar_by_sums_is_of_bounded_range(most: int) -> None:
    draw, found, mistaken = random.Random(most), 0.0, 0.0
    for _ in range(40):
        mechanism = ChooseKBar(Epsilon(draw.choice(["0.5", "2"])), Delta("0.01"), (1, 2, 3), None, 1, most)
        counts, epsilon = scores(draw, most), float(mechanism.epsilon)

        def law(counts: Counts, raced: int = most, mechanism: ChooseKBar = mechanism) -> Law:
            return k_bar_law(mechanism, counts, raced=raced)

        found = max(found, widest(law, counts, bound=None, most=most) / epsilon)
        mistaken = max(mistaken, widest(lambda each, law=law: law(each, 1), counts, bound=None, most=most) / epsilon)
    assert 0.99 < found <= 1.0 + ROUNDING
    assert mistaken > 0.99 * most


def test_k_bar_is_chosen_by_the_thresholds_of_the_sensitivity() -> None:
    mechanism = ChooseKBar(Epsilon(1), Delta("0.01"), (1, 2, 4), 2, 1, 5)
    counts = (40, 20, 12, 9, 8)
    assert [each.sensitivity for each in mechanism._domains()] == [5, 5, 5]

    def drawn(runs: int) -> Counter[Hashable]:
        return Counter(mechanism.choose(Histogram.of_leaders(counts, 4), NOISE) for _ in range(runs))

    named = dict(zip("abcde", counts, strict=True))
    assert singles_out(*(k_bar_law(mechanism, named, raced=raced) for raced in (5, 1)), sample=drawn)


@pytest.mark.parametrize("most", MOST)
def test_the_choice_of_a_gap_between_sums_is_of_bounded_range(most: int) -> None:
    draw, found, mistaken = random.Random(most), 0.0, 0.0
    for _ in range(40):
        mechanism = GapChoice(Epsilon(draw.choice(["0.5", "2"])), draw.randint(2, 3), sensitivity=most)
        counts = scores(draw, most)
        others = list(one_unit_more(counts, UNIVERSE, None, most))
        found = max(found, stable.widest(mechanism, counts, others))
        mistaken = max(mistaken, stable.widest(mechanism, counts, others, stable.Variant(in_choice=1)))
    assert 0.99 < found <= 1.0 + ROUNDING
    assert mistaken > 0.99 * most


@pytest.mark.parametrize("most", [1, 4, 2**20])
def test_the_test_of_a_gap_costs_what_it_is_charged(most: int) -> None:
    test = PTRGaussian(Fraction(25 * most**2), Delta("1e-6"), most)
    assert test.loss.rho == Rho("0.02")
    assert 23 * most <= test.offset <= 25 * most
    with pytest.raises(UsageError, match="variance-range"):
        PTRGaussian(Fraction(10**9 * most**2 + 1), Delta("1e-6"), most)


# Known domains: all keys in one draw, and sums that may be below 0


def joint_law(mechanism: JointExponential, counts: Sequence[int], *, raced: int) -> Law:
    falling, rate = sorted(counts, reverse=True), float(mechanism.epsilon) / (2 * raced)
    sequences = permutations(range(len(counts)), min(mechanism.k, len(counts)))
    return softmax(
        {each: -rate * max(high - counts[at] for high, at in zip(falling, each, strict=False)) for each in sequences}
    )


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 3), (-1, 2), (-2, 2)])
def test_one_draw_of_all_keys_by_sums_is_of_bounded_range(low: int, high: int) -> None:
    """The sensitivity is the width: what it takes a unit from the least that it can add to the most."""
    most = high - low
    found = {most: 0.0, max(high, -low, 1): 0.0, 1: 0.0}
    for k, counts in product((1, 2, 3), ((0, 0, 0), (4, 1, 0), (2, 2, 1))):
        mechanism = JointExponential(Epsilon("1.5"), k, most)
        for unit in product(range(low, high + 1), repeat=3):
            more = [count + own for count, own in zip(counts, unit, strict=True)]
            for raced, worst in found.items():
                here, there = (joint_law(mechanism, each, raced=raced) for each in (counts, more))
                ratios = [math.log(here[each] / there[each]) for each in here]
                width = max(max(ratios) - min(ratios), *map(abs, ratios)) / 1.5
                found[raced] = max(worst, width)
    assert 0.8 < found[most] <= 1.0 + ROUNDING
    assert found[1] > 0.8 * most
    if low < 0:  # the larger end alone is not enough where sums can fall, too
        assert found[max(high, -low)] > 1.2


def test_draws_have_the_law_of_the_sensitivity() -> None:
    joint, counts = JointExponential(Epsilon(2), 2, 4), (9, 7, 0)
    fixed = FixedStableTopK(Rho("0.5"), Delta("0.1"), 2, 3, Fraction(1), None, 3)
    top = top_stable_kit.stable("2", "0.05", 1, 3, "2", 3)
    falling = (40, 36, 33, 4)

    def drawn(draw: Callable[[], Hashable]) -> Callable[[int], Counter[Hashable]]:
        return lambda runs: Counter(draw() for _ in range(runs))

    known, leaders = Histogram(counts, 0), Histogram.of_leaders(falling, 3)
    laws = [joint_law(joint, counts, raced=raced) for raced in (4, 1)]
    assert singles_out(*laws, sample=drawn(lambda: joint.select(known, NOISE).positions))
    fixed_laws = [
        fixed_stable_kit.law_of_positions(fixed, falling, fixed_stable_kit.Variant(in_race=raced))
        for raced in (True, False)
    ]
    assert singles_out(*fixed_laws, sample=drawn(lambda: fixed.select(leaders, NOISE)))
    top_laws = [
        top_stable_kit.law_of_positions(top, falling, top_stable_kit.Variant(in_race=raced)) for raced in (True, False)
    ]
    assert singles_out(*top_laws, sample=drawn(lambda: top.select(leaders, NOISE)))


def test_the_laplace_release_has_the_noise_and_the_threshold_of_the_sensitivity() -> None:
    mechanism = at_once("2", "0.2", 1, 1, 4)
    expected = laplace_kit.outcomes(mechanism, {"a": 14, "b": 2})
    shown = float(expected["a",].sum())

    def drawn(runs: int) -> Counter[Hashable]:
        return Counter(bool(mechanism.select(Histogram((14,), 2), NOISE).positions) for _ in range(runs))

    other = float(laplace_kit.outcomes(mechanism, {"a": 14, "b": 2}, laplace_kit.Variant(above=1))["a",].sum())
    assert singles_out(chance(shown), chance(other), sample=drawn)


@pytest.mark.parametrize("most", [1, 7, 2**20])
def test_a_histogram_in_steps_of_r_needs_r_times_as_much(most: int) -> None:
    one, more = (GaussianHistogram(Rho("0.02"), Delta("1e-7"), 3, 5, each) for each in (1, most))
    assert more.variance == most**2 * one.variance
    assert more.loss == one.loss
    assert (one.threshold - 2) * most <= more.threshold <= (one.threshold + 1) * most
    giant = FullHistogram.of([2**40 * 5, 1])
    assert more.release(giant, NOISE).positions == (0,)
