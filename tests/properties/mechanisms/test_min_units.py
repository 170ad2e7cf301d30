"""The floor under the threshold: labels of too few units stay unreturned but for delta, and privacy does not change.

The checkers take a `Variant`: production is the default, and each known mistake is a variant that they must catch.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations_with_replacement, product

import mpmath
import pytest
from support.laws import (
    ROUNDING,
    Counts,
    Steps,
    fits,
    goodness,
    label_law,
    named,
    outcome,
    peeling_law,
    rejects,
    worst_of,
)

from dpsql.errors import UsageError
from dpsql.mechanisms import Histogram, LimitedDomain, OperatingSystemNoise
from dpsql.quantities import Delta, Epsilon

NOISE = OperatingSystemNoise()
DRAWS = 10_000
DELTAS = ("0.3", "0.05", "1e-6")


def floored(min_units: int, epsilon: str, delta: str, size: tuple[int, int], bound: int | None) -> LimitedDomain:
    """Return the mechanism with a floor; `size` is k and k_bar."""
    return LimitedDomain(Epsilon(epsilon), Delta(delta), *size, bound, min_units)


def usual(mechanism: LimitedDomain, following: int) -> float:
    """Return the threshold that does without a floor."""
    return float(following + mechanism.threshold_offset)


def floor(mechanism: LimitedDomain) -> float:
    return float(mechanism.least_threshold)


def production(mechanism: LimitedDomain, following: int) -> float:
    return max(usual(mechanism, following), floor(mechanism))


@dataclass(frozen=True)
class Variant:
    """A way to build the mechanism; the defaults are the production code's."""

    threshold: Callable[[LimitedDomain, int], float] = production
    least_count: Callable[[LimitedDomain], int] = lambda _: 1  # exact counts below it do not race


PRODUCTION = Variant()


def law(mechanism: LimitedDomain, counts: Counts, variant: Variant = PRODUCTION) -> dict[Steps, float]:
    """Return the law of the released labels."""
    held = {label: count for label, count in counts.items() if count >= variant.least_count(mechanism)}
    labels = sorted(held, key=lambda label: (-held[label], label))
    histogram = Histogram.of_leaders(tuple(held[label] for label in labels), mechanism.k_bar)
    bottom = variant.threshold(mechanism, histogram.following)
    return named(peeling_law(histogram.leaders, bottom, float(mechanism.epsilon), mechanism.k), labels)


def too_few(mechanism: LimitedDomain, counts: Counts, variant: Variant = PRODUCTION) -> float:
    """Return how likely a label of fewer than min_units units is returned."""
    small = {label for label, count in counts.items() if count < mechanism.min_units}
    return math.fsum(mass for steps, mass in law(mechanism, counts, variant).items() if small & {*steps})


SIZES = [(1, 1), (1, 2), (2, 2), (1, 3), (2, 3), (3, 3)]
FLOORED = [
    floored(*each) for each in product((2, 3, 5), ("0.5", "2"), DELTAS, SIZES, (1, None))
]  # the bound is below k_bar, or there is none
SMALL = [
    dict(zip("abcd", counts, strict=False))
    for labels in range(5)
    for counts in combinations_with_replacement((1, 2, 3, 4, 6), labels)
]


def worst_promise(mechanism: LimitedDomain, variant: Variant = PRODUCTION) -> float:
    """Return the largest probability of a label with too few units, as a part of delta."""
    return max(too_few(mechanism, counts, variant) for counts in SMALL) / float(mechanism.delta)


@pytest.mark.parametrize("delta", DELTAS)
def test_a_label_of_too_few_units_is_returned_with_probability_delta_at_most_and_hardly_less(delta: str) -> None:
    mechanisms = [mechanism for mechanism in FLOORED if mechanism.delta == Delta(delta)]
    attained = [worst_promise(mechanism) for mechanism in mechanisms]
    assert len(attained) == 72
    assert max(attained) <= (1.0 + ROUNDING) / (1.0 + float(delta))
    assert min(attained) >= 0.999 / (1.0 + float(delta))


def test_without_a_floor_nothing_changes() -> None:
    mechanism = floored(1, "0.5", "0.05", (2, 3), 1)
    assert mechanism.least_threshold == 0
    assert mechanism == LimitedDomain(Epsilon("0.5"), Delta("0.05"), 2, 3, 1)
    assert all(law(mechanism, counts) == law(mechanism, counts, Variant(threshold=usual)) for counts in SMALL)


def test_the_law_that_other_tests_use_knows_the_floor() -> None:
    mechanism = floored(5, "0.5", "0.3", (2, 3), 1)
    assert all(label_law(mechanism, counts) == law(mechanism, counts) for counts in SMALL)


@pytest.mark.parametrize("delta", DELTAS)
def test_a_floor_of_two_units_costs_nothing_where_nothing_bounds_the_groups(delta: str) -> None:
    mechanism = floored(2, "0.5", delta, (2, 3), None)
    assert mechanism.least_threshold == mechanism.threshold_offset


@pytest.mark.parametrize("epsilon", ["1e-9", "0.001", "0.3333", "7.5"])
@pytest.mark.parametrize("delta", ["1e-300", "1e-6", "0.5", "0.999999999999"])
@pytest.mark.parametrize(("k_bar", "min_units"), [(1, 2), (3, 20), (10**6, 1000), (7, 2**53 - 1)])
def test_the_least_threshold_is_rounded_up_and_hardly(epsilon: str, delta: str, k_bar: int, min_units: int) -> None:
    mechanism = floored(min_units, epsilon, delta, (1, k_bar), 1)
    with mpmath.workdps(60):
        true = min_units - 1 + mpmath.log(k_bar / mpmath.mpf(delta)) / mpmath.mpf(epsilon)
        least = mpmath.mpf(mechanism.least_threshold.numerator) / mechanism.least_threshold.denominator
        assert (
            0 < least - true < (true - min_units + 2) * mpmath.mpf("1e-11") + mpmath.mpf("1e-11") / mpmath.mpf(epsilon)
        )


@pytest.mark.parametrize("min_units", [0, -3, 2**53])
def test_a_floor_that_means_nothing_is_refused(min_units: int) -> None:
    with pytest.raises(UsageError, match=r"\[min-units-range\]"):
        floored(min_units, "1", "0.1", (1, 1), None)


def test_the_highest_floor_fits_the_race() -> None:
    mechanism = floored(2**53 - 1, "1e-9", "1e-300", (2, 5), None)
    assert 1 <= mechanism.select(Histogram((2**53 - 1, 7), 7), NOISE).steps <= 2
    assert floored(2**53 - 1, "40", "0.1", (2, 5), None).select(Histogram((9, 7), 7), NOISE).stopped_at_bottom


UNIVERSE = "abcde"


def every_case() -> Iterator[tuple[LimitedDomain, Counts]]:
    """Yield mechanisms and histograms on either side of the point where the floor gives way, and at it."""
    tables = [
        {label: count for label, count in zip("abc", counts, strict=True) if count}
        for counts in product((0, 1, 2, 3), repeat=3)
    ]
    for epsilon, delta, size, bound in product(("0.7", "2"), ("0.3", "1e-6"), [(1, 1), (1, 2), (2, 2)], (1, 2)):
        mechanism = floored(3, epsilon, delta, size, bound)
        yield from ((mechanism, table) for table in tables)


def random_cases(number: int, seed: int) -> Iterator[tuple[LimitedDomain, Counts]]:
    draw = random.Random(seed)
    for _ in range(number):
        k_bar = draw.randint(1, 4)
        size = (draw.randint(1, min(3, k_bar)), k_bar)
        bound = draw.choice([1, 1, 2, 3, None])
        epsilon, delta = draw.choice(["0.1", "0.5", "1", "2"]), draw.choice(["1e-6", "0.01", "0.05", "0.3"])
        lowest = draw.choice([1, 1, 4])
        present = draw.sample(UNIVERSE, draw.randint(0, 5))
        counts = {label: lowest + draw.randint(0, 2) for label in present}
        yield floored(draw.choice([2, 3, 4, 7]), epsilon, delta, size, bound), counts


EDGES: list[tuple[LimitedDomain, Counts]] = [
    (floored(2, "1", "1e-6", (2, 2), None), {}),  # the floor and the usual threshold are one
    (floored(2, "1", "0.3", (2, 3), 2), {"a": 1, "b": 1, "c": 1, "d": 1}),
    (floored(3, "2", "0.3", (1, 1), 1), {"a": 5, "b": 5}),
    (floored(3, "1", "1e-6", (2, 2), 1), dict.fromkeys("abcde", 9)),
    (floored(4, "2", "0.3", (1, 2), 1), {"a": 3}),
    (floored(9, "1", "0.05", (1, 2), 1), {"a": 8, "b": 8}),
    (floored(40, "1", "1e-6", (1, 1), 1), {"a": 39}),
]


def worst_excess(cases: Sequence[tuple[LimitedDomain, Counts]], variant: Variant = PRODUCTION) -> float:
    """Return the worst excess over all neighbours of all cases, in both orders."""
    return worst_of(cases, lambda mechanism, counts: law(mechanism, counts, variant), universe=UNIVERSE)


def test_no_neighbour_exceeds_the_claim_on_either_side_of_the_floor() -> None:
    assert 0.99 < worst_excess([*every_case()]) <= 1.0 + ROUNDING


@pytest.mark.parametrize("seed", range(2))
def test_no_neighbour_of_a_random_histogram_exceeds_the_claim(seed: int) -> None:
    assert 0.5 < worst_excess([*random_cases(400, seed)]) <= 1.0 + ROUNDING


def test_no_neighbour_exceeds_the_claim_at_the_edges() -> None:
    assert 0.99999 < worst_excess(EDGES) <= 1.0 + ROUNDING


def test_the_cases_meet_the_floor_where_it_holds_where_it_gives_way_and_in_between() -> None:
    moves: Counter[str] = Counter()
    for mechanism, counts in every_case():
        ranked = [*sorted(counts.values(), reverse=True), 0, 0, 0]
        following = ranked[mechanism.k_bar]
        least, before, after = floor(mechanism), usual(mechanism, following), usual(mechanism, following + 1)
        moves["holds" if after <= least else "gives way" if before >= least else "in between"] += 1
    assert {*moves} == {"holds", "gives way", "in between"}
    assert min(moves.values()) > 50


def surplus(mechanism: LimitedDomain, labels: int) -> float:
    return math.log(labels / mechanism.delta.value) / float(mechanism.epsilon)


def at_least(least: Callable[[LimitedDomain], float]) -> Variant:
    return Variant(threshold=lambda mechanism, following: max(usual(mechanism, following), least(mechanism)))


MISLED = {
    "no floor": (2.0, Variant(threshold=usual)),
    "the floor without its logarithm": (2.0, at_least(lambda m: float(m.min_units - 1))),
    "M in place of k_bar": (
        1.5,
        at_least(lambda m: m.min_units - 1 + surplus(m, min(m.max_groups_contributed or m.k_bar, m.k_bar))),
    ),
    "one unit too low": (1.2, at_least(lambda m: m.min_units - 2 + surplus(m, m.k_bar))),
    "without 1/epsilon": (2.0, at_least(lambda m: m.min_units - 1 + surplus(m, m.k_bar) * float(m.epsilon))),
    "the lower of the two": (2.0, Variant(threshold=lambda m, following: min(usual(m, following), floor(m)))),
}


@pytest.mark.mutant
@pytest.mark.parametrize("mistake", MISLED)
def test_every_way_to_break_the_promise_is_caught(mistake: str) -> None:
    factor, variant = MISLED[mistake]
    assert max(worst_promise(mechanism, variant) for mechanism in FLOORED) > factor


UNSAFE = {
    "a test of exact counts": (1e5, Variant(threshold=usual, least_count=lambda m: m.min_units)),
    "a test of exact counts, and the floor": (2.7, Variant(least_count=lambda m: m.min_units)),
    "the floor alone": (1e3, Variant(threshold=lambda m, _: floor(m))),
    "the lower of the two": (1e3, Variant(threshold=lambda m, following: min(usual(m, following), floor(m)))),
    "the higher for many units, the lower for few": (
        1e3,
        Variant(threshold=lambda m, following: floor(m) if following >= m.min_units else usual(m, following)),
    ),
}


@pytest.mark.mutant
@pytest.mark.parametrize("mistake", UNSAFE)
def test_every_way_to_break_privacy_is_caught(mistake: str) -> None:
    factor, variant = UNSAFE[mistake]
    assert worst_excess(EDGES, variant) > factor


CASES: dict[str, tuple[LimitedDomain, tuple[int, ...]]] = {
    "the floor holds": (floored(9, "0.5", "0.3", (2, 3), 2), (13, 12, 11, 4)),
    "the floor holds by a fraction": (floored(5, "0.7", "0.2", (2, 3), 1), (8, 6, 5, 3)),
    "the floor gives way": (floored(4, "0.6", "0.3", (2, 3), 1), (14, 13, 9, 8)),
    "fewer groups than k_bar": (floored(6, "0.8", "0.1", (3, 4), None), (9, 8)),
}


def by_hand(mechanism: LimitedDomain, following: int) -> float:
    """Return the threshold by the formulas of `maths.md` 3.1 and 3.6, without production's."""
    reach = min(mechanism.max_groups_contributed or mechanism.k_bar, mechanism.k_bar)
    return max(following + 1 + surplus(mechanism, reach), mechanism.min_units - 1 + surplus(mechanism, mechanism.k_bar))


def sampled(case: str, threshold: Callable[[LimitedDomain, int], float]) -> Callable[[], float]:
    """Return a function that draws a fresh sample and gives its p-value."""
    mechanism, counts = CASES[case]
    histogram = Histogram.of_leaders(counts, mechanism.k_bar)
    bottom = threshold(mechanism, histogram.following)
    expected = peeling_law(histogram.leaders, bottom, float(mechanism.epsilon), mechanism.k)

    def p_value() -> float:
        seen = Counter[Hashable](outcome(mechanism.select(histogram, NOISE)) for _ in range(DRAWS))
        return goodness(seen, expected)

    return p_value


@pytest.mark.parametrize("case", CASES)
def test_selections_follow_the_closed_form(case: str) -> None:
    assert fits(sampled(case, by_hand))


@pytest.mark.mutant
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("shift", [-1, 1])
def test_a_threshold_a_unit_away_is_noticed(case: str, shift: int) -> None:
    assert rejects(sampled(case, lambda mechanism, following: by_hand(mechanism, following) + shift))


def test_the_cases_lie_on_both_sides_of_the_floor() -> None:
    higher = {
        case: floor(mechanism) - usual(mechanism, Histogram.of_leaders(counts, mechanism.k_bar).following)
        for case, (mechanism, counts) in CASES.items()
    }
    assert higher["the floor gives way"] < 0
    assert 0 < higher["the floor holds by a fraction"] < 2
    assert min(higher["the floor holds"], higher["fewer groups than k_bar"]) > 2


def test_a_floor_changes_neither_the_worst_case_nor_the_offset() -> None:
    mechanism = floored(9, "0.4", "0.05", (2, 3), 1)
    plain = replace(mechanism, min_units=1)
    assert (mechanism.worst_case, mechanism.threshold_offset) == (plain.worst_case, plain.threshold_offset)
    assert mechanism.worst_case.rho.value == 2 * Fraction(2, 100)
