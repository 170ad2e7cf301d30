"""FixedStableTopK: its exact guarantee, its sampler against its law in every branch, its loss, and known mistakes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import replace
from fractions import Fraction

import pytest
from properties.mechanisms.laws.fixed_stable import mechanism
from support.fixed_stable_kit import law_of_positions
from support.laws import fits, goodness, rejects_early

from dpsql.accounting import ZCDP
from dpsql.mechanisms import FixedStableSelection, FixedStableTopK, Histogram, OperatingSystemNoise
from dpsql.quantities import Delta, Rho

NOISE = OperatingSystemNoise()


SAMPLED = {
    "a gap at k": (mechanism("0.5", "0.1", 2, 3, "1"), (30, 29, 14, 13)),
    "a gap before k": (mechanism("0.5", "0.2", 3, 4, "0"), (30, 15, 14, 14, 13)),
    "a gap after k, drops": (mechanism("0.5", "0.1", 2, 3, "0"), (24, 23, 21, 2)),
    "a gap after k, picks": (mechanism("0.5", "0.1", 1, 3, "0"), (24, 23, 22, 1)),
    "no gap": (mechanism("1", "0.2", 2, 3, "0.5", 1), (7, 7, 7, 7)),
    "fewer groups than k": (mechanism("1", "0.4", 3, 5, "0"), (4, 3)),
    "no group": (mechanism("0.5", "0.3", 2, 3, "1"), ()),
}


def p_value(case: str, claimed: FixedStableTopK | None = None, draws: int = 2_500) -> float:
    m, counts = SAMPLED[case]
    histogram = Histogram.of_leaders(counts, m.k_bar)
    selections = Counter[Hashable](m.select(histogram, NOISE) for _ in range(draws))
    return goodness(selections, law_of_positions(claimed or m, counts))


@pytest.mark.properties
@pytest.mark.parametrize("case", SAMPLED)
def test_selections_follow_the_law(case: str) -> None:
    assert fits(lambda: p_value(case))


@pytest.mark.mutant
@pytest.mark.properties
@pytest.mark.parametrize("factor", [Fraction(1, 3), Fraction(3)])
@pytest.mark.parametrize("case", ["a gap before k", "a gap after k, drops"])
def test_noise_of_another_scale_is_noticed(case: str, factor: Fraction) -> None:
    m, _ = SAMPLED[case]
    claimed = replace(m, rho=Rho(m.rho.value * factor))
    assert rejects_early(lambda draws: p_value(case, claimed, draws), 6_000)


def test_the_cases_reach_every_branch() -> None:
    reached = {
        (each.held, each.proposed - m.k > 0, each.proposed - m.k >= m.k, bool(each.stable), bool(each.filled))
        for m, counts in SAMPLED.values()
        for each, mass in law_of_positions(m, counts).items()
        if mass > 0.05
    }
    wanted = [
        (True, False, False, True, False),  # as many as wanted
        (True, False, False, True, True),  # filled up
        (True, True, False, True, False),  # dropped
        (True, True, True, False, True),  # picked
        (False, False, False, False, True),  # by the limited domain alone
    ]
    assert reached >= {*wanted}


def test_the_loss_is_what_the_steps_cost() -> None:
    m = mechanism("0.07", "1e-6", 3, 9, "1")
    quarter, half = Fraction("0.0175"), Delta("5e-7")
    assert m.test.loss == ZCDP(Rho(quarter), half)
    assert 0 < quarter - m.choice.loss.rho.value < Fraction(1, 10**12)
    base = m.choice.loss.rho.value + quarter

    def extra(proposed: int, held: bool, filled: int, bottom: bool) -> Fraction:
        loss = m.loss(FixedStableSelection(proposed, held, frozenset(), tuple(range(filled)), bottom))
        assert loss.delta == Delta("1e-6")
        assert loss.rho.value <= m.worst_case.rho.value == Fraction("0.07")
        return loss.rho.value - base

    def draws(made: int, planned: int) -> Fraction:
        return made * m.fill(planned).value ** 2 / 8

    assert extra(3, True, 0, False) == 0
    assert extra(5, False, 3, False) == draws(3, 3)
    assert extra(5, False, 1, True) == draws(2, 3)
    assert extra(1, True, 2, False) == draws(2, 2)
    assert extra(1, True, 0, True) == draws(1, 2)
    assert extra(5, True, 0, False) == draws(2, 2)
    assert extra(6, True, 3, False) == draws(3, 3)
    assert extra(9, True, 3, False) == draws(3, 3)


def test_every_answer_of_the_sampler_costs_at_most_the_worst_case() -> None:
    for m, counts in SAMPLED.values():
        histogram = Histogram.of_leaders(counts, m.k_bar)
        losses = [m.loss(m.select(histogram, NOISE)) for _ in range(50)]
        assert all(loss.rho <= m.worst_case.rho and loss.delta == m.worst_case.delta for loss in losses)


def test_one_giant_count_is_released_at_the_price_of_the_gap() -> None:
    m = mechanism("0.5", "1e-9", 1, 5, "1")
    selection = m.select(Histogram((2**53 - 1,), 0), NOISE)
    assert selection == FixedStableSelection(1, True, frozenset({0}), (), False)
    assert m.loss(selection).rho.value <= Fraction("0.25")


def test_the_least_rho_works() -> None:
    m = mechanism("1e-8", "1e-6", 2, 3, "0")
    assert m.test.variance == 2 * 10**8
    assert m.loss(m.select(Histogram((5, 2), 0), NOISE)).rho <= m.worst_case.rho
