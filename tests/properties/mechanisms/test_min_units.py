"""The floor under the threshold: labels of too few units stay unreturned but for delta, and privacy does not change.

The checkers take a `Variant`: production is the default, and each known mistake is a variant that they must catch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import replace
from fractions import Fraction

import mpmath
import pytest
from properties.mechanisms.laws.min_units import (
    DELTAS,
    FLOORED,
    SMALL,
    Variant,
    every_case,
    floor,
    floored,
    law,
    surplus,
    usual,
    worst_promise,
)
from support.laws import (
    ROUNDING,
    fits,
    goodness,
    label_law,
    outcome,
    peeling_law,
    rejects,
)

from dpsql.mechanisms import Histogram, LimitedDomain, OperatingSystemNoise
from dpsql.quantities import Delta, Epsilon

NOISE = OperatingSystemNoise()


DRAWS = 10_000


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


def test_the_highest_floor_fits_the_race() -> None:
    mechanism = floored(2**53 - 1, "1e-9", "1e-300", (2, 5), None)
    assert 1 <= mechanism.select(Histogram((2**53 - 1, 7), 7), NOISE).steps <= 2
    assert floored(2**53 - 1, "40", "0.1", (2, 5), None).select(Histogram((9, 7), 7), NOISE).stopped_at_bottom


def test_the_cases_meet_the_floor_where_it_holds_where_it_gives_way_and_in_between() -> None:
    moves: Counter[str] = Counter()
    for mechanism, counts in every_case():
        ranked = [*sorted(counts.values(), reverse=True), 0, 0, 0]
        following = ranked[mechanism.k_bar]
        least, before, after = floor(mechanism), usual(mechanism, following), usual(mechanism, following + 1)
        moves["holds" if after <= least else "gives way" if before >= least else "in between"] += 1
    assert {*moves} == {"holds", "gives way", "in between"}
    assert min(moves.values()) > 50


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
