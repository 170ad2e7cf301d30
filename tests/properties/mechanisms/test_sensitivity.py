"""The guarantee of rankings by sums, computed exactly: one unit adds up to R to a group, on all small universes.

Each known mistake with R is a variant that the check must catch.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

import pytest
from support.laws import ROUNDING, Counts, Steps, excess, fits, goodness, named, outcome, peeling_law, rejects

from dpsql.errors import UsageError
from dpsql.mechanisms import Histogram, LaplaceCounts, LimitedDomain, NoisyCounts, OperatingSystemNoise, Peeling
from dpsql.quantities import Delta, Epsilon

UNIVERSE = "abcd"
NOISE = OperatingSystemNoise()


def offset_of(mechanism: LimitedDomain) -> float:
    return float(mechanism.threshold_offset)


@dataclass(frozen=True)
class Variant:
    """A way to build the mechanism; the defaults are the production code's."""

    offset: Callable[[LimitedDomain], float] = offset_of
    per_step: Callable[[LimitedDomain], float] = lambda mechanism: float(mechanism.epsilon) / mechanism.sensitivity
    keeps_zeros: bool = False


PRODUCTION = Variant()


def law(mechanism: LimitedDomain, scores: Counts, variant: Variant = PRODUCTION) -> dict[Steps, float]:
    """Return the law of the released labels; labels of score 0 do not exist."""
    present = [label for label in scores if scores[label] > 0 or variant.keeps_zeros]
    labels = sorted(present, key=lambda label: (-scores[label], label))
    leaders = tuple(scores[label] for label in labels[: mechanism.k_bar + 1])
    histogram = Histogram.of_leaders(leaders, mechanism.k_bar)
    bottom = histogram.following + variant.offset(mechanism)
    return named(peeling_law(histogram.leaders, bottom, variant.per_step(mechanism), mechanism.k), labels)


def one_unit_more(mechanism: LimitedDomain, scores: Counts) -> Iterator[dict[str, int]]:
    """Yield the scores with one unit more, which adds 0 to R to each of at most `max_groups_contributed` labels."""
    for size in range(1, (mechanism.max_groups_contributed or len(UNIVERSE)) + 1):
        for labels in combinations(UNIVERSE, size):
            for added in product(range(mechanism.sensitivity + 1), repeat=size):
                more = dict(zip(labels, added, strict=True))
                yield {label: scores.get(label, 0) + more.get(label, 0) for label in {*scores, *labels}}


def worst_excess(cases: Sequence[tuple[LimitedDomain, Counts]], variant: Variant = PRODUCTION) -> float:
    """Return the worst excess over all neighbours of all cases, in both orders."""
    worst = 0.0
    for mechanism, scores in cases:
        here = law(mechanism, scores, variant)
        for more in one_unit_more(mechanism, scores):
            there = law(mechanism, more, variant)
            worst = max(worst, excess(mechanism, here, there), excess(mechanism, there, here))
    return worst


def domain(epsilon: str, delta: str, k: int, k_bar: int, *, bound: int | None, most: int) -> LimitedDomain:
    return LimitedDomain(Epsilon(epsilon), Delta(delta), k, k_bar, bound, sensitivity=most)


def random_cases(number: int, seed: int) -> list[tuple[LimitedDomain, Counts]]:
    draw = random.Random(seed)
    cases = []
    for _ in range(number):
        k_bar, most = draw.randint(1, 3), draw.choice([2, 2, 3])
        mechanism = domain(
            draw.choice(["0.5", "1", "2"]),
            draw.choice(["1e-6", "0.01", "0.2"]),
            draw.randint(1, min(2, k_bar)),
            k_bar,
            bound=draw.choice([1, 2, 3]),
            most=most,
        )
        present = draw.sample(UNIVERSE, draw.randint(0, 4))
        cases.append((mechanism, {label: draw.randint(1, 2 * most) for label in present}))
    return cases


EDGES: list[tuple[LimitedDomain, Counts]] = [
    (domain("1", "1e-6", 2, 2, bound=3, most=3), {}),
    (domain("1", "1e-6", 1, 1, bound=1, most=3), {"a": 1, "b": 1}),
    (domain("2", "1e-6", 1, 1, bound=None, most=2), {"b": 2, "a": 1, "c": 1, "d": 1}),
    (domain("0.5", "1e-3", 2, 3, bound=2, most=3), {"a": 3}),
    (domain("1", "0.1", 2, 2, bound=2, most=2), dict.fromkeys("abcd", 2)),
    (domain("1", "1e-3", 1, 2, bound=1, most=3), {"a": 80, "b": 80}),  # far above BOTTOM
]


@pytest.mark.parametrize("seed", range(3))
def test_no_neighbour_exceeds_the_claim(seed: int) -> None:
    assert worst_excess(random_cases(120, seed)) <= 1.0 + ROUNDING


def test_no_neighbour_exceeds_the_claim_at_the_edges() -> None:
    assert 0.9 < worst_excess(EDGES) <= 1.0 + ROUNDING


MISTAKES = {
    "R left out of the threshold": (
        50.0,
        Variant(offset=lambda m: float(replace(m, sensitivity=1).threshold_offset)),
    ),
    "R left out of the race": (1.5, Variant(per_step=lambda m: float(m.epsilon))),
    "R left out of the logarithm's part of the threshold": (
        50.0,
        Variant(
            offset=lambda m: m.sensitivity - 1 + float(replace(m, sensitivity=1).threshold_offset),
        ),
    ),
    "1 in place of R before the logarithm": (
        1.5,
        Variant(offset=lambda m: 1 - m.sensitivity + float(m.threshold_offset)),
    ),
}


@pytest.mark.mutant
@pytest.mark.parametrize("mistake", MISTAKES)
def test_every_known_mistake_is_caught(mistake: str) -> None:
    factor, variant = MISTAKES[mistake]
    assert worst_excess(EDGES, variant) > factor


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


@pytest.mark.parametrize("sensitivity", [0, -1])
def test_a_sensitivity_is_at_least_one(sensitivity: int) -> None:
    for build in (
        lambda: domain("1", "1e-6", 1, 1, bound=1, most=sensitivity),
        lambda: Peeling(Epsilon("1"), 1, sensitivity),
        lambda: NoisyCounts(Epsilon("1"), None, sensitivity),
        lambda: LaplaceCounts(Epsilon("1"), 1, None, sensitivity),
    ):
        with pytest.raises(UsageError, match="sensitivity-range"):
            build()


def test_an_epsilon_too_small_for_the_sensitivity_is_refused() -> None:
    with pytest.raises(UsageError, match="epsilon-range"):
        Peeling(Epsilon("1e-6"), 1, 2**20)
    with pytest.raises(UsageError, match="min-units-range"):
        LimitedDomain(Epsilon("1"), Delta("1e-6"), 1, 1, min_units=5, sensitivity=2)
