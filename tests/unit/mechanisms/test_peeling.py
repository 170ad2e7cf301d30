"""Peeling against its closed-form law, by chi-square and by OpenDP, and at its edges."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable
from fractions import Fraction
from functools import partial
from importlib import import_module
from itertools import combinations_with_replacement
from types import ModuleType

import opendp.prelude as dp
import pytest
from support.laws import ScriptedNoise, agree, fits, goodness, outcome, peeling_law, rejects_early

from dpsql.mechanisms import Histogram, OperatingSystemNoise, Peeling, Selection
from dpsql.quantities import Delta, Epsilon

dp.enable_features("contrib")
MODULE: ModuleType = import_module("dpsql.mechanisms.peeling")
RACE: ModuleType = import_module("dpsql.mechanisms.sampling.race")
NOISE = OperatingSystemNoise()
DRAWS = 10_000

CASES: dict[str, tuple[Peeling, tuple[int, ...]]] = {
    "apart": (Peeling(Epsilon("0.3"), 3), (30, 28, 27, 20, 19)),
    "absent candidates": (Peeling(Epsilon("0.7"), 2), (4, 3, 0, 0, 0, 0)),
    "fewer candidates than k": (Peeling(Epsilon("0.5"), 7), (6, 5, 3, 0)),
    "one far ahead": (Peeling(Epsilon("1"), 2), (300, 2, 1, 0)),
}


def sampled(case: str, draws: int) -> Callable[[], float]:
    """Return a function that draws a fresh sample and gives its p-value."""
    mechanism, counts = CASES[case]
    law = peeling_law(counts, None, float(mechanism.epsilon), mechanism.k)

    def p_value() -> float:
        seen = Counter[Hashable](outcome(mechanism.select(Histogram(counts, 0), NOISE)) for _ in range(draws))
        return goodness(seen, law)

    return p_value


@pytest.mark.properties
@pytest.mark.parametrize("case", CASES)
def test_selections_follow_the_closed_form(case: str) -> None:
    assert fits(sampled(case, 4_000))


@pytest.mark.properties
def test_the_law_survives_short_prefixes_that_are_refined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "race", partial(RACE.race, mantissa_bits=4))
    for case in CASES:
        assert fits(sampled(case, 800)), case


@pytest.mark.mutant
@pytest.mark.properties
@pytest.mark.parametrize("scale", [Fraction(7, 10), Fraction(13, 10)])
@pytest.mark.parametrize("case", CASES)
def test_noise_of_another_scale_is_noticed(case: str, scale: Fraction, monkeypatch: pytest.MonkeyPatch) -> None:
    def scaled(counts: tuple[int, ...], bottom: None, epsilon: Fraction, **rest: object) -> object:
        return RACE.race(counts, bottom, epsilon=epsilon / scale, **rest)

    monkeypatch.setattr(MODULE, "race", scaled)
    assert rejects_early(lambda draws: sampled(case, draws)(), DRAWS)


@pytest.mark.properties
def test_selections_have_the_law_of_noisy_top_k() -> None:
    mechanism, counts = CASES["absent candidates"]
    measurement = dp.m.make_noisy_top_k(
        dp.vector_domain(dp.atom_domain(T=float, nan=False)),
        dp.linf_distance(T=float, monotonic=True),
        dp.zero_concentrated_divergence(),
        k=mechanism.k,
        scale=1 / float(mechanism.epsilon),
    )

    def p_value() -> float:
        ours = Counter[Hashable](outcome(mechanism.select(Histogram(counts, 0), NOISE)) for _ in range(4_000))
        return agree(ours, Counter(tuple(measurement([*map(float, counts)])) for _ in range(4_000)))

    assert fits(p_value)
    assert measurement.map(1.0) == pytest.approx(float(mechanism.worst_case.rho), rel=1e-9)


@pytest.mark.parametrize("candidates", [1, 2, 3, 20])
@pytest.mark.parametrize("k", [1, 3, 50])
def test_every_candidate_can_be_returned_once_and_each_is_paid_for(k: int, candidates: int) -> None:
    mechanism = Peeling(Epsilon("0.4"), k)
    selection = mechanism.select(Histogram((0,) * candidates, 0), NOISE)
    assert len(selection.positions) == len(set(selection.positions)) == min(k, candidates)
    assert set(selection.positions) <= set(range(candidates))
    assert not selection.stopped_at_bottom
    assert mechanism.loss(selection).rho.value == min(k, candidates) * Fraction(2, 100)
    assert mechanism.loss(selection).rho <= mechanism.worst_case.rho
    assert mechanism.loss(selection).delta == mechanism.worst_case.delta == Delta(0)
    assert mechanism.name == "peeling"


def test_an_empty_domain_returns_nothing_draws_nothing_and_costs_nothing() -> None:
    noise = ScriptedNoise()  # fails when it is asked for anything
    mechanism = Peeling(Epsilon(1), 3)
    selection = mechanism.select(Histogram((), 0), noise)
    assert selection == Selection((), stopped_at_bottom=False)
    assert mechanism.loss(selection).rho.value == 0


def test_a_hundred_thousand_candidates_are_raced() -> None:
    mechanism = Peeling(Epsilon(1), 1000)
    counts = (*range(10**6, 10**6 - 50_000, -50), *[0] * 99_000)
    selection = mechanism.select(Histogram(counts, 0), NOISE)
    assert sorted(selection.positions) == [*range(1000)]  # the others are 900,000 units behind


@pytest.mark.parametrize("beta", [0.3, 0.05])
def test_every_returned_count_is_as_high_as_the_docstring_says(beta: float) -> None:
    closest = 0.0
    for epsilon in (0.5, 1.0, 4.0):
        for counts in combinations_with_replacement((12, 9, 8, 6, 3, 1, 0), 5):
            for k in (1, 2, 3):
                room = math.log((len(counts) - k) * (1 + math.log(k)) / beta) / epsilon
                law = peeling_law(counts, None, epsilon, k)
                low = math.fsum(
                    mass for steps, mass in law.items() if any(counts[at] < counts[k - 1] - room for at in steps)
                )
                closest = max(closest, low / beta)
    assert 0.2 < closest <= 1.0
