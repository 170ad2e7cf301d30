"""The guarantee of the limited domain, computed exactly for every neighbour of many small histograms.

The checker takes a `Variant`: production is the default, and each known mistake is a variant that it must catch.
"""

from __future__ import annotations

import pytest
from properties.mechanisms.laws.limited_domain import EDGES, Variant, domain, law, random_cases, worst_excess
from support.laws import ROUNDING, hockey_stick

from dpsql.mechanisms import Selection
from dpsql.quantities import Delta


def test_the_random_cases_reach_every_edge() -> None:
    cases = random_cases(600, 0)
    assert any(not counts for _, counts in cases)
    assert any(mechanism.k < mechanism.k_bar for mechanism, _ in cases)
    assert any((mechanism.max_groups_contributed or 9) < mechanism.k_bar for mechanism, _ in cases)
    assert any(len(counts) > mechanism.k_bar and len(set(counts.values())) == 1 for mechanism, counts in cases)
    assert {float(mechanism.delta) for mechanism, _ in cases} >= {1e-6, 0.01, 0.3}


def test_the_tight_pair_attains_its_closed_form() -> None:
    mechanism = domain("1", "1e-6", 2, 2, 3)
    empty, one_unit = law(mechanism, {}), law(mechanism, {"a": 1, "b": 1})
    delta = 1e-6
    assert empty == {("⊥",): 1.0}
    assert one_unit["⊥",] == pytest.approx(1 / (1 + delta), rel=1e-12)
    assert hockey_stick(one_unit, empty, 2.0) == pytest.approx(delta / (1 + delta), rel=1e-6)


def test_the_kth_count_in_place_of_the_next_is_only_wasteful() -> None:
    assert worst_excess(EDGES, Variant(rank=0)) <= 1.0 + ROUNDING  # the exact vectors catch this one


def test_a_step_is_paid_for_whether_or_not_it_is_bottom() -> None:
    mechanism = domain("0.4", "1e-6", 3, 5, None)
    step = mechanism.epsilon.value**2 / 8
    assert mechanism.worst_case.rho.value == 3 * step
    assert mechanism.loss(Selection((), stopped_at_bottom=True)).rho.value == step
    assert mechanism.loss(Selection((0, 2), stopped_at_bottom=True)).rho.value == 3 * step
    assert mechanism.loss(Selection((0, 2), stopped_at_bottom=False)).rho.value == 2 * step
    assert mechanism.loss(Selection((), stopped_at_bottom=True)).delta == Delta("1e-6")
