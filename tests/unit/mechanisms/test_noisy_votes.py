"""Noisy votes: what neighbours are apart, exactly; the laws of what is made of them; constants that must fail."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from fractions import Fraction
from itertools import chain, combinations, product

import pytest
from support.laws import ROUNDING, SeededNoise, cks, discrete_gaussian_law, fits, goodness, hockey_stick, rejects

from dpsql.accounting import ZCDP
from dpsql.errors import UsageError
from dpsql.mechanisms import VOTE_STEPS, NoisyVotes, OperatingSystemNoise, vote_weight
from dpsql.quantities import Delta, Epsilon, Rho

Vector = tuple[int, ...]


def ballots(labels: int) -> Iterator[tuple[int, ...]]:
    """Yield the labels that a teacher may vote for, in every way."""
    return chain.from_iterable(combinations(range(labels), size) for size in range(labels + 1))


def weighed(ballot: Sequence[int], labels: int, max_labels: int) -> Vector:
    weight = vote_weight(len(ballot), max_labels) if ballot else 0
    return tuple(weight if at in ballot else 0 for at in range(labels))


def unweighed(ballot: Sequence[int], labels: int, _: int) -> Vector:
    return tuple(VOTE_STEPS if at in ballot else 0 for at in range(labels))


def squared(one: Vector, two: Vector) -> int:
    return sum((first - second) ** 2 for first, second in zip(one, two, strict=True))


SHAPES = [(labels, most) for labels in range(1, 6) for most in range(1, labels + 1)]


@pytest.mark.parametrize(("labels", "most"), SHAPES)
def test_a_teacher_exchanged_costs_at_most_rho_and_nearly_all_of_it(labels: int, most: int) -> None:
    """The Renyi divergence of shifted discrete Gaussians is at most alpha times this (Canonne, Kamath, Steinke)."""
    mechanism = NoisyVotes(Epsilon("0.7"), labels, most)
    vectors = [weighed(ballot, labels, most) for ballot in ballots(labels)]
    costs = [squared(one, two) / (2 * mechanism.variance) for one, two in product(vectors, vectors)]
    assert max(costs) <= mechanism.loss.rho.value
    assert max(costs) > Fraction(3, 4) * mechanism.loss.rho.value
    if 2 * most <= labels or most == labels:
        assert max(costs) == mechanism.loss.rho.value


@pytest.mark.parametrize(("labels", "most"), SHAPES)
def test_a_teacher_more_or_less_costs_no_more(labels: int, most: int) -> None:
    mechanism = NoisyVotes(Epsilon("0.7"), labels, most)
    nobody = (0,) * labels
    for ballot in ballots(labels):
        assert squared(nobody, weighed(ballot, labels, most)) / (2 * mechanism.variance) <= mechanism.loss.rho.value


def test_votes_that_are_not_weighed_down_cost_too_much() -> None:
    mechanism = NoisyVotes(Epsilon(1), 4, 1)
    apart = max(
        squared(unweighed(one, 4, 1), unweighed(two, 4, 1)) for one, two in product([*ballots(4)], [*ballots(4)])
    )
    assert apart / (2 * mechanism.variance) == 2 * mechanism.loss.rho.value


def test_weights_that_are_rounded_up_would_cost_too_much() -> None:
    ceiled = math.isqrt(VOTE_STEPS**2 * 2 // 3 - 1) + 1
    assert 3 * vote_weight(3, 2) ** 2 <= 2 * VOTE_STEPS**2 < 3 * ceiled**2


@pytest.mark.parametrize("most", range(1, 30))
def test_no_weight_is_above_a_vote_and_no_ballot_above_its_most(most: int) -> None:
    for labels in range(1, 200):
        weight = vote_weight(labels, most)
        assert weight == VOTE_STEPS or labels > most
        assert labels * weight**2 <= most * VOTE_STEPS**2 < labels * (weight + 1) ** 2 or weight == VOTE_STEPS


def majority_law(votes: Sequence[int], variance: Fraction, teachers: int) -> dict[Hashable, float]:
    """Return the law of the labels whose noisy votes are more than half of the teachers."""
    noise = discrete_gaussian_law(variance)
    above = [
        math.fsum(mass for draw, mass in noise.items() if 2 * (count + draw) > VOTE_STEPS * teachers) for count in votes
    ]
    return {
        ballot: math.prod(one if at in ballot else 1 - one for at, one in enumerate(above))
        for ballot in ballots(len(votes))
    }


def worst_majority(scale: Fraction = Fraction(1)) -> float:
    """Return the worst factor over the claim, with the variance scaled, all exchanges of one of two teachers."""
    labels, most, found = 3, 1, 0.0
    mechanism = NoisyVotes(Epsilon(5), labels, most)
    vectors = [weighed(ballot, labels, most) for ballot in ballots(labels)]
    laws = {
        pair: majority_law([one + two for one, two in zip(*pair, strict=True)], mechanism.variance * scale, 2)
        for pair in product(vectors, vectors[:5])
    }
    for (one, stays), (two, same) in product(laws, laws):
        if stays == same:
            for level in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0):
                apart = hockey_stick(laws[one, stays], laws[two, same], level)
                found = max(found, apart / cks(mechanism.loss.rho.value, level))
    return found


def test_the_labels_of_the_majority_are_within_the_claim() -> None:
    assert 0.05 < worst_majority() <= 1.0 + ROUNDING


def test_noise_for_a_teacher_more_is_not_enough_for_one_exchanged() -> None:
    assert worst_majority(Fraction(1, 2)) > 1.5


def noise_p_value(mechanism: NoisyVotes, scale: Fraction = Fraction(1)) -> float:
    """Compare the noise on zero votes with its law, in cells of a fifth of sigma."""
    source, cell = OperatingSystemNoise(), math.isqrt(int(mechanism.variance)) // 5
    drawn = [each // cell for _ in range(2_000) for each in mechanism.release((0,) * mechanism.labels, source)]
    law: dict[Hashable, float] = {}
    for draw, mass in discrete_gaussian_law(mechanism.variance * scale).items():
        law[draw // cell] = law.get(draw // cell, 0.0) + mass
    return goodness(Counter(drawn), law)


def test_the_noise_follows_its_law() -> None:
    assert fits(lambda: noise_p_value(NoisyVotes(Epsilon(4), 4, 2)))


@pytest.mark.mutant
@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(3, 2)])
def test_noise_of_another_size_is_noticed(scale: Fraction) -> None:
    assert rejects(lambda: noise_p_value(NoisyVotes(Epsilon(4), 4, 2), scale))


def test_the_noise_is_added_to_the_votes_of_its_label() -> None:
    mechanism = NoisyVotes(Epsilon(1), 3, 1)
    plain = mechanism.release((0, 0, 0), SeededNoise(4))
    assert mechanism.release((10, 0, 7_000), SeededNoise(4)) == (plain[0] + 10, plain[1], plain[2] + 7_000)


def test_one_label_each_has_the_papers_divergence() -> None:
    mechanism = NoisyVotes(Epsilon("0.2"), 10, 1)
    assert mechanism.loss == ZCDP(Rho("0.01"), Delta(0))
    assert mechanism.loss.rho.value == 1 / (mechanism.variance / VOTE_STEPS**2)  # alpha / sigma**2, Example 13


@pytest.mark.parametrize("shape", [(0, 0), (3, 0), (3, 4)])
def test_bounds_that_mean_nothing_are_refused(shape: tuple[int, int]) -> None:
    with pytest.raises(UsageError, match=r"\[labels-range\]"):
        NoisyVotes(Epsilon(1), *shape)


@pytest.mark.parametrize("votes", [(1,), (1, 2, 3), (1, -1), (1, 2**53)])
def test_votes_that_cannot_be_are_refused(votes: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match=r"\[votes\]"):
        NoisyVotes(Epsilon(1), 2, 1).release(votes, OperatingSystemNoise())
