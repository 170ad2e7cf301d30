"""The guarantee of the limited domain, computed exactly for every neighbour of many small histograms.

The checker takes a `Variant`: production is the default, and each known mistake is a variant that it must catch.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

import pytest
from support.laws import ROUNDING, Counts, Steps, hockey_stick, named, peeling_law, worst_of

from dpsql.mechanisms import Histogram, LimitedDomain, Selection
from dpsql.quantities import Delta, Epsilon

UNIVERSE = "abcdef"


def _reach(mechanism: LimitedDomain, k_bar: int) -> int:
    bound = mechanism.max_groups_contributed
    return k_bar if bound is None else min(bound, k_bar)


def _logarithm(mechanism: LimitedDomain, k_bar: int) -> float:
    return math.log(_reach(mechanism, k_bar) / mechanism.delta.value)


def _production_offset(mechanism: LimitedDomain, k_bar: int) -> float:
    return float(replace(mechanism, k=1, k_bar=max(k_bar, 1)).threshold_offset)


@dataclass(frozen=True)
class Variant:
    """A way to build the mechanism; the defaults are the production code's."""

    offset: Callable[[LimitedDomain, int], float] = _production_offset
    tie: Callable[[Counts, str], Hashable] = lambda _, label: label
    keeps_bottom: Callable[[int, int], bool] = lambda _, __: True
    k_bar: Callable[[LimitedDomain, int], int] = lambda mechanism, _: mechanism.k_bar
    rank: int = 1  # of the count that BOTTOM stands upon, after k_bar


PRODUCTION = Variant()


def law(mechanism: LimitedDomain, counts: Counts, variant: Variant = PRODUCTION) -> dict[Steps, float]:
    """Return the law of the released labels."""
    labels = sorted(counts, key=lambda label: (-counts[label], variant.tie(counts, label)))
    k_bar = variant.k_bar(mechanism, len(labels))
    histogram = Histogram.of_leaders(tuple(counts[label] for label in labels[: k_bar + 1]), k_bar)
    ranked = dict(enumerate((*histogram.leaders, histogram.following), start=1))
    bottom = ranked.get(k_bar + variant.rank, 0) + variant.offset(mechanism, k_bar)
    if not variant.keeps_bottom(len(labels), k_bar):
        bottom = None
    return named(peeling_law(histogram.leaders, bottom, float(mechanism.epsilon), mechanism.k), labels)


def worst_excess(cases: Sequence[tuple[LimitedDomain, Counts]], variant: Variant = PRODUCTION) -> float:
    """Return the worst excess over all neighbours of all cases, in both orders."""
    return worst_of(cases, lambda mechanism, counts: law(mechanism, counts, variant), universe=UNIVERSE)


def domain(epsilon: str, delta: str, k: int, k_bar: int, bound: int | None) -> LimitedDomain:
    return LimitedDomain(Epsilon(epsilon), Delta(delta), k, k_bar, bound)


def random_cases(number: int, seed: int) -> list[tuple[LimitedDomain, Counts]]:
    draw = random.Random(seed)
    cases = []
    for _ in range(number):
        k_bar = draw.randint(1, 4)
        mechanism = domain(
            draw.choice(["0.1", "0.5", "1", "2"]),
            draw.choice(["1e-6", "1e-3", "0.01", "0.1", "0.3"]),
            draw.randint(1, min(3, k_bar)),
            k_bar,
            draw.choice([1, 1, 2, 2, 3, None]),
        )
        highest = draw.choice([1, 2, 2, 4])
        present = draw.sample(UNIVERSE, draw.randint(0, 5))
        cases.append((mechanism, {label: draw.randint(1, highest) for label in present}))
    return cases


EDGES: list[tuple[LimitedDomain, Counts]] = [
    (domain("1", "1e-6", 2, 2, 3), {}),  # the tightest pair of `maths.md` 3.3
    (domain("0.1", "0.01", 2, 4, None), {}),
    (domain("0.25", "1e-6", 1, 1, 1), {"a": 1, "b": 1}),
    (domain("1", "1e-6", 3, 4, 3), {"a": 3}),
    (domain("1", "1e-6", 1, 1, 1), {"a": 1}),
    (domain("2", "1e-6", 1, 1, None), {"b": 2, "a": 1, "c": 1, "d": 1}),
    (domain("0.5", "1e-6", 2, 2, 1), dict.fromkeys("abcde", 1)),
    (domain("0.5", "0.1", 1, 4, None), {"a": 6}),
    (domain("1", "1e-3", 2, 4, 4), {}),
]


@pytest.mark.parametrize("seed", range(5))
def test_no_neighbour_exceeds_the_claim(seed: int) -> None:
    assert worst_excess(random_cases(600, seed)) <= 1.0 + ROUNDING


def test_no_neighbour_exceeds_the_claim_at_the_edges() -> None:
    assert 0.99999 < worst_excess(EDGES) <= 1.0 + ROUNDING


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


MISTAKES = {
    "without the 1": (7.3, Variant(offset=lambda m, k_bar: _logarithm(m, k_bar) / float(m.epsilon))),
    "ln(1/delta) without M": (
        3.8,
        Variant(offset=lambda m, _: 1 + math.log(1 / m.delta.value) / float(m.epsilon)),
    ),
    "M of 1 where a unit is in more groups": (
        3.8,
        Variant(offset=lambda m, _: float(replace(m, max_groups_contributed=1).threshold_offset)),
    ),
    "M of at most the labels beyond k_bar": (
        3.8,
        Variant(
            offset=lambda m, k_bar: float(
                replace(m, max_groups_contributed=max(1, min(_reach(m, k_bar), 5 - k_bar))).threshold_offset
            )
        ),
    ),
    "decimal logarithm": (
        4500.0,
        Variant(offset=lambda m, k_bar: 1 + _logarithm(m, k_bar) / math.log(10) / float(m.epsilon)),
    ),
    "without 1/epsilon": (3e4, Variant(offset=lambda m, k_bar: 1 + _logarithm(m, k_bar))),
    "no BOTTOM with k_bar labels or fewer": (9.9e5, Variant(keeps_bottom=lambda present, k_bar: present > k_bar)),
    "ties broken by the data": (
        1.4,
        Variant(tie=lambda counts, label: ord(label) * (-1) ** sum(counts.values())),
    ),
    "k_bar as the number of labels": (2.5, Variant(k_bar=lambda _, present: present)),
}


@pytest.mark.mutant
@pytest.mark.parametrize("mistake", MISTAKES)
def test_every_known_mistake_is_caught(mistake: str) -> None:
    factor, variant = MISTAKES[mistake]
    assert worst_excess(EDGES, variant) > factor


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
