"""StableTopK: its constants, its sampler against its law, its exact guarantee, and two mistakes that must be caught."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, pairwise

import pytest
from scipy import stats
from support.laws import SeededNoise, cks, discrete_gaussian_law, fits, goodness, hockey_stick, rejects

from dpsql.accounting import ZCDP
from dpsql.errors import UsageError
from dpsql.mechanisms import Histogram, OperatingSystemNoise, StableSelection, StableTopK, distance_regulariser
from dpsql.quantities import Delta, Epsilon, Rho

Counts = Mapping[str, int]
UNIVERSE = "abcde"
NOISE = OperatingSystemNoise()


@dataclass(frozen=True)
class Variant:
    """A way to build the mechanism; the defaults are the production code's."""

    share: float = 0.5  # of epsilon * gap in the exponent of the choice
    unstable: int = 1  # the widest gap that must not pass


PRODUCTION = Variant()


def tail(variance: Fraction, at_least: int) -> float:
    law = discrete_gaussian_law(variance)
    return math.fsum(mass for draw, mass in law.items() if draw >= at_least)


def positional_law(
    mechanism: StableTopK, histogram: Histogram, variant: Variant = PRODUCTION
) -> dict[StableSelection, float]:
    gaps = mechanism.gaps(histogram)
    regulariser = mechanism.regulariser or (0,) * len(gaps)
    scores = [gap + more for gap, more in zip(gaps, regulariser, strict=True)]
    weights = [math.exp(float(mechanism.epsilon) * variant.share * (score - max(scores))) for score in scores]
    law: dict[StableSelection, float] = {}
    for k, (gap, weight) in enumerate(zip(gaps, weights, strict=True), start=1):
        chosen = weight / math.fsum(weights)
        held = tail(mechanism.variance, mechanism.offset + variant.unstable - gap)
        positions = frozenset(range(min(k, len(histogram.leaders))))
        law[StableSelection(k, positions)] = chosen * held
        law[StableSelection(k, None)] = chosen * (1.0 - held)
    return law


def law(mechanism: StableTopK, counts: Counts, variant: Variant = PRODUCTION) -> dict[Hashable, float]:
    """Return the law of the k that is chosen and the set of labels that is released."""
    labels = sorted(counts, key=lambda label: (-counts[label], label))
    leaders = tuple(counts[label] for label in labels[: mechanism.k_bar + 1])
    histogram = Histogram.of_leaders(leaders, mechanism.k_bar)
    return {
        (chosen.k, chosen.positions and frozenset(labels[at] for at in chosen.positions)): mass
        for chosen, mass in positional_law(mechanism, histogram, variant).items()
    }


def neighbours(counts: Counts) -> Iterator[dict[str, int]]:
    for size in range(1, len(UNIVERSE) + 1):
        for added in combinations(UNIVERSE, size):
            yield {label: counts.get(label, 0) + (label in added) for label in {*counts, *added}}


def worst_excess(cases: Sequence[tuple[StableTopK, Counts]], variant: Variant = PRODUCTION) -> float:
    """Return the worst factor by which any neighbours, in either order, exceed the claimed loss."""
    worst = 0.0
    for mechanism, counts in cases:
        delta, rho = float(mechanism.loss.delta), mechanism.loss.rho.value
        here = law(mechanism, counts, variant)
        for more in neighbours(counts):
            there = law(mechanism, more, variant)
            for level in (0.05, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 40.0):
                claimed = delta + cks(rho, level)
                worst = max(
                    worst, hockey_stick(here, there, level) / claimed, hockey_stick(there, here, level) / claimed
                )
    return worst


def random_cases(number: int, seed: int) -> list[tuple[StableTopK, Counts]]:
    draw = random.Random(seed)
    cases = []
    for _ in range(number):
        epsilon, delta = draw.choice(["0.3", "0.5", "1", "2"]), draw.choice(["1e-6", "0.001", "0.05", "0.3"])
        k_bar = draw.randint(1, 4)
        regulariser = draw.choice([(), distance_regulariser(draw.randint(1, k_bar), k_bar, penalty=Fraction(3, 2))])
        mechanism = StableTopK(Epsilon(epsilon), Delta(delta), k_bar, regulariser)
        highest = draw.choice([1, 2, 3, 12])
        present = draw.sample(UNIVERSE, draw.randint(0, 5))
        cases.append((mechanism, {label: draw.randint(1, highest) for label in present}))
    return cases


EDGES: list[tuple[StableTopK, Counts]] = [
    (StableTopK(Epsilon("1"), Delta("1e-6"), 1), {}),
    (StableTopK(Epsilon("4"), Delta("1e-6"), 1), {"b": 2, "a": 1}),
    (StableTopK(Epsilon("2"), Delta("1e-6"), 2), {"b": 1}),
    (StableTopK(Epsilon("0.5"), Delta("1e-6"), 3), {"b": 4, "a": 3, "c": 3, "d": 3}),
    (StableTopK(Epsilon("2"), Delta("1e-6"), 4), dict.fromkeys("abcde", 3)),
    (StableTopK(Epsilon("2"), Delta("1e-6"), 4), {"a": 5, "b": 3, "c": 3}),
    (StableTopK(Epsilon("2"), Delta("1e-6"), 2), {"a": 8, "b": 4, "c": 1}),
]


@pytest.mark.properties
@pytest.mark.parametrize("seed", range(3))
def test_no_neighbour_exceeds_the_claim(seed: int) -> None:
    assert worst_excess(random_cases(150, seed)) <= 1.0 + 1e-9


def test_no_neighbour_exceeds_the_claim_at_the_edges() -> None:
    assert 0.5 < worst_excess(EDGES) <= 1.0 + 1e-9


@pytest.mark.mutant
def test_a_choice_without_the_half_is_caught() -> None:
    assert worst_excess(EDGES, Variant(share=1.0)) > 2.0


@pytest.mark.mutant
def test_a_threshold_that_takes_a_gap_of_one_for_stable_is_caught() -> None:
    assert worst_excess(EDGES, Variant(unstable=0)) > 100.0


SAMPLED = {
    "a wide gap": (StableTopK(Epsilon("0.5"), Delta("0.01"), 4), (60, 58, 57, 31, 30)),
    "no gap": (StableTopK(Epsilon("1"), Delta("0.2"), 3), (7, 7, 7, 7)),
    "fewer groups than k_bar": (StableTopK(Epsilon("1"), Delta("0.2"), 5), (6, 3)),
    "a regulariser": (StableTopK(Epsilon(1), Delta("0.1"), 3, (-2, 0, 3)), (9, 6, 3, 3)),
    "no group": (StableTopK(Epsilon("0.5"), Delta("0.3"), 3), ()),
}


def sampled_p_value(case: str, *, claimed: StableTopK | None = None) -> float:
    mechanism, counts = SAMPLED[case]
    histogram = Histogram.of_leaders(counts, mechanism.k_bar)
    selections = Counter(mechanism.select(histogram, NOISE) for _ in range(8_000))
    return goodness(selections, positional_law(claimed or mechanism, histogram))


@pytest.mark.properties
@pytest.mark.parametrize("case", SAMPLED)
def test_selections_follow_the_law(case: str) -> None:
    assert fits(lambda: sampled_p_value(case))


@pytest.mark.mutant
@pytest.mark.properties
@pytest.mark.parametrize("scale", [Fraction(7, 10), Fraction(13, 10)])
@pytest.mark.parametrize("case", ["a wide gap", "fewer groups than k_bar"])
def test_noise_of_another_scale_is_noticed(case: str, scale: Fraction) -> None:
    mechanism, _ = SAMPLED[case]
    claimed = StableTopK(Epsilon(mechanism.epsilon.value * scale), mechanism.delta, mechanism.k_bar)
    assert rejects(lambda: sampled_p_value(case, claimed=claimed))


def test_constants() -> None:
    mechanism = StableTopK(Epsilon("0.6324555320336759"), Delta("1e-6"), 10)  # rho of 0.1
    sigma = math.sqrt(mechanism.variance)
    assert float(mechanism.loss.rho) == pytest.approx(0.1, rel=1e-15)
    assert (2 / float(mechanism.epsilon), sigma) == pytest.approx((3.1622776602, 3.1622776602), rel=1e-10)
    assert sigma * stats.norm.isf(1e-6) == pytest.approx(15.0316475011, rel=1e-11)
    assert sigma * math.sqrt(2 * math.log(1e6)) == pytest.approx(16.6225813627, rel=1e-11)
    assert mechanism.offset == 16


def test_the_loss_is_exact_and_the_same_for_every_answer() -> None:
    mechanism = StableTopK(Epsilon("0.2"), Delta("1e-7"), 5)
    assert mechanism.loss == ZCDP(Rho("0.01"), Delta("1e-7")) == mechanism.choice.loss + mechanism.test.loss
    assert StableTopK(Epsilon("0.2"), Delta("1e-7"), 5, (0, 1, 2, 1, 0)).loss == mechanism.loss


@pytest.mark.parametrize(
    ("counts", "gaps"), [((), (0, 0, 0)), ((5,), (5, 0, 0)), ((5, 3, 3), (2, 0, 3)), ((5, 3, 3, 2, 1), (2, 0, 1))]
)
def test_gaps_go_on_with_zeros(counts: tuple[int, ...], gaps: tuple[int, ...]) -> None:
    mechanism = StableTopK(Epsilon(1), Delta("1e-6"), 3)
    assert mechanism.gaps(Histogram.of_leaders(counts, 3)) == gaps


def test_adding_a_unit_moves_every_gap_by_at_most_one() -> None:
    for mechanism, counts in random_cases(60, 9):
        for more in neighbours(counts):
            before, after = (sorted(each.values(), reverse=True)[: mechanism.k_bar + 1] for each in (counts, more))
            ends = [[*each, *[0] * (mechanism.k_bar + 1 - len(each))] for each in (before, after)]
            moved = [[one - two for one, two in pairwise(each)] for each in ends]
            assert all(abs(one - two) <= 1 for one, two in zip(*moved, strict=True))


def test_only_groups_that_exist_are_released() -> None:
    mechanism = StableTopK(Epsilon("0.5"), Delta("0.4"), 6)
    histogram = Histogram.of_leaders((3, 2), 6)
    selections = [mechanism.select(histogram, SeededNoise(seed)) for seed in range(500)]
    assert any(selection.k > 2 and selection.positions == {0, 1} for selection in selections)
    assert all(selection.positions is None or selection.positions <= {0, 1} for selection in selections)


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        ("k-range", ("1", "0.1", 0)),
        ("delta-range", ("1", "0", 1)),
        ("delta-range", ("1", "1", 1)),
        ("epsilon-range", ("0.00009", "0.1", 1)),
    ],
)
def test_parameters_that_mean_nothing_are_refused(code: str, arguments: tuple[str, str, int]) -> None:
    epsilon, delta, k_bar = arguments
    with pytest.raises(UsageError, match=rf"\[{code}\]"):
        StableTopK(Epsilon(epsilon), Delta(delta), k_bar)


def test_more_leaders_than_k_bar_are_refused() -> None:
    with pytest.raises(UsageError, match=r"\[histogram-size\]"):
        StableTopK(Epsilon(1), Delta("0.1"), 1).select(Histogram((2, 1), 0), NOISE)


def test_the_least_epsilon_works() -> None:
    mechanism = StableTopK(Epsilon("1e-4"), Delta("1e-6"), 3)
    assert mechanism.offset == pytest.approx(2e4 * stats.norm.isf(1e-6), rel=1e-4)
