"""The Laplace limited domain: its exact guarantee with its counts, mistakes that must be caught, its law."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import pairwise, permutations, product

import numpy as np
import pytest
from properties.mechanisms.laws.laplace_limited_domain import continuous, domain
from support.laplace_kit import outcomes
from support.laws import discrete_laplace_law, fits, goodness, rejects_early

from dpsql.accounting import ZCDP, ApproximateDP
from dpsql.mechanisms import CountedSelection, Histogram, LaplaceLimitedDomain, OperatingSystemNoise
from dpsql.quantities import Delta, Epsilon, Rho

NOISE = OperatingSystemNoise()


@cache
def law(mechanism: LaplaceLimitedDomain, histogram: Histogram) -> Counter[CountedSelection, float]:
    """Return the law of the positions in their order, with the counts, cut to k: all ties are broken evenly."""
    noise = discrete_laplace_law(mechanism.scale, reach=18.0)
    found = Counter[CountedSelection]()
    ends = [[count + draw for draw in noise] for count in histogram.leaders]
    base = histogram.following + 1 + mechanism.offset
    below = dict(zip(noise, np.cumsum([*noise.values()]).tolist(), strict=True))
    least, most = min(noise), max(noise)
    for noisy in product(*ends):
        mass = math.prod(noise[count - exact] for count, exact in zip(noisy, histogram.leaders, strict=True))
        levels = sorted({*noisy}, reverse=True)
        beaten = [1.0, *(below[min(max(level - base, least), most)] * (level - base >= least) for level in levels), 0.0]
        for reached in range(len(levels) + 1):  # BOTTOM is at most so many of the levels
            part = beaten[reached] - beaten[reached + 1]
            if part > 0.0:
                released = [at for at, count in enumerate(noisy) if count in levels[:reached]]
                orders = [
                    order
                    for order in permutations(released)
                    if all(noisy[one] >= noisy[two] for one, two in pairwise(order))
                ]
                for order in orders:
                    kept = order[: mechanism.k]
                    counts = tuple(noisy[at] for at in kept)
                    found[CountedSelection(kept, counts, len(kept) < mechanism.k)] += mass * part / len(orders)
    return found


SAMPLED = {
    "two that tie": (domain("2", "0.3", 2, 2, 1), (3, 3, 1)),
    "three, cut to one": (domain("3", "0.3", 1, 3, 1), (2, 2, 2)),
    "three, cut to two": (domain("6", "0.4", 2, 3, 2), (3, 2, 2, 1)),
    "fewer groups than k_bar": (domain("2", "0.2", 2, 5, 2), (6,)),
    "no group": (domain("1", "0.3", 1, 3, 1), ()),
}


def p_value(
    case: str, claimed: LaplaceLimitedDomain | None = None, *, counted: bool = True, draws: int = 10_000
) -> float:
    mechanism, counts = SAMPLED[case]
    histogram = Histogram.of_leaders(counts, mechanism.k_bar)
    show = (lambda selection: selection) if counted else (lambda selection: selection.positions)
    expected = Counter[Hashable]()
    for selection, mass in law(claimed or mechanism, histogram).items():
        expected[show(selection)] += mass
    seen = Counter[Hashable](show(mechanism.select(histogram, NOISE)) for _ in range(draws))
    return goodness(seen, expected)


@pytest.mark.properties
@pytest.mark.parametrize("case", SAMPLED)
def test_selections_follow_the_law(case: str) -> None:
    assert fits(lambda: p_value(case))


@pytest.mark.parametrize("case", ["two that tie", "three, cut to two"])
def test_their_order_follows_the_law(case: str) -> None:
    assert fits(lambda: p_value(case, counted=False, draws=3_000))


@pytest.mark.mutant
@pytest.mark.properties
@pytest.mark.parametrize("scale", [Fraction(7, 10), Fraction(13, 10)])
@pytest.mark.parametrize("case", ["two that tie", "three, cut to two", "fewer groups than k_bar"])
def test_noise_of_another_scale_is_noticed(case: str, scale: Fraction) -> None:
    mechanism, _ = SAMPLED[case]
    claimed = replace(mechanism, epsilon=Epsilon(mechanism.epsilon.value / scale))
    assert rejects_early(lambda draws: p_value(case, claimed, draws=draws), 10_000)


def test_the_two_models_of_the_law_agree() -> None:
    mechanism, counts = domain("2", "0.3", 2, 2, 1), {"a": 3, "b": 3, "c": 1}
    of_sets = {event: float(masses.sum()) for event, masses in outcomes(mechanism, counts).items()}
    summed = Counter[Hashable]()
    for selection, mass in law(mechanism, Histogram((3, 3), 1)).items():
        summed[tuple(sorted("ab"[at] for at in selection.positions))] += mass
    assert dict(summed) == pytest.approx(of_sets, abs=1e-7)
    assert math.fsum(of_sets.values()) == pytest.approx(1.0, abs=1e-12)


def test_the_offset_is_exact() -> None:
    offsets = [
        domain(*case).offset
        for case in [("1", "1e-6", 1, 1, 1), ("1", "1e-6", 1, 10, 5), ("0.1", "1e-6", 10, 10, 1), ("1", "0.5", 1, 1, 1)]
    ]
    assert offsets == [16, 86, 154, 1]  # the reals need 15.3, 84.9, 152.8 and 0


def test_the_continuous_constants_of_the_specification() -> None:
    assert continuous(domain("1", "1e-6", 1, 1, 1), 1) == pytest.approx(15.278690, abs=1e-6)
    assert continuous(domain("1", "1e-6", 1, 10, 5), 5) == pytest.approx(84.910767, abs=1e-6)


def test_the_loss_is_the_same_for_every_answer() -> None:
    mechanism = domain("0.2", "1e-7", 3, 9, 4)
    assert mechanism.worst_case == ZCDP(Rho("0.02"), Delta("1e-7"))
    assert mechanism.guarantee == ApproximateDP(Epsilon("0.2"), Delta("1e-7"))
    answers = [CountedSelection((), (), stopped_at_bottom=True), CountedSelection((0,), (4,), stopped_at_bottom=False)]
    assert {mechanism.loss(answer) for answer in answers} == {mechanism.worst_case}


def test_a_clear_leader_is_released_with_its_count_and_the_empty_table_gives_nothing() -> None:
    mechanism = domain("1", "1e-9", 3, 3, 1)
    selection = mechanism.select(Histogram((2**52, 3), 0), NOISE)
    assert (selection.positions, selection.stopped_at_bottom) == ((0,), True)
    assert abs(selection.counts[0] - 2**52) < 100
    assert mechanism.select(Histogram((), 0), NOISE) == CountedSelection((), (), stopped_at_bottom=True)


def test_the_least_epsilon_works() -> None:
    mechanism = domain("1e-9", "1e-6", 1, 1, 1)
    assert mechanism.offset == pytest.approx(15.27869e9, rel=1e-6)
    assert mechanism.select(Histogram((5,), 0), NOISE).positions in {(), (0,)}
