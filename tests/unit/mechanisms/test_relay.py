"""The relay of a limited domain and a weighted Gaussian: what it pays for, what it draws, and what it refuses."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from support.laws import BOTTOM, SeededNoise, fits, goodness, outcome, peeling_law

import dpsql
from dpsql.accounting import ZCDP
from dpsql.mechanisms import (
    WEIGHT_STEPS,
    FullHistogram,
    Gate,
    OperatingSystemNoise,
    Relay,
    RelaySelection,
    Selection,
    unit_weight,
)
from dpsql.quantities import Delta, Epsilon, Rho

NOISE = OperatingSystemNoise()


def relay(k: int, epsilon: str = "0.5", **changes: int) -> Relay:
    return Relay(Epsilon(epsilon), Delta("1e-4"), k, k_bar=20 * k, weighed_groups=changes.get("weighed_groups", 5))


@pytest.mark.parametrize("k", [1, 2, 3, 10, 21, 100])
def test_the_legs_and_the_gate_cost_exactly_what_is_charged(k: int) -> None:
    """What a first leg leaves is spent once: the losses of what was drawn add up to that of k items at most."""
    made = relay(k)
    for found in range(k + 1):
        first = Selection(tuple(range(found)), stopped_at_bottom=found < k)
        spent = made.first_leg.loss(first)
        if k == first.steps:
            assert made.gate_items(first) == 0
            assert made.loss(RelaySelection((), first)).rho == spent.rho
            continue
        gate, second = made.gate(first), made.second_leg(first)
        closed = ZCDP(spent.rho + gate.rho, Delta(spent.delta.value * 2))
        assert made.loss(RelaySelection((), first, gate_opened=False)) == closed
        opened = made.loss(RelaySelection((), first, gate_opened=True))
        assert opened == ZCDP(closed.rho + second.rho, spent.delta + second.delta) == made.worst_case
        assert second.k == k - found
        assert made.items(RelaySelection((), first, gate_opened=True)) == k


def test_a_query_in_which_nothing_stands_out_is_charged_two_and_a_half_items_of_ten_at_most() -> None:
    made = relay(10, "0.1")
    counts, weights = FullHistogram.of([1] * 500), np.full(500, WEIGHT_STEPS, np.int64)
    runs = [made.items(made.select(counts, weights, noise=NOISE)) for _ in range(400)]
    first = Selection((), stopped_at_bottom=True)
    gate = made.gate(first)
    opened = float(stats.norm.sf((gate.height - WEIGHT_STEPS) / math.sqrt(gate.variance)))
    assert 1.9 + 8.1 * opened < 2.5
    assert set(runs) <= {Fraction(19, 10), 10}
    assert stats.binomtest(runs.count(10), len(runs), opened).pvalue > 1e-6


@pytest.mark.parametrize(
    ("counts", "each"), [([], 1), ([3, 9, 1], 1), ([40, 2, 60, 30], 4), ([70, 5, 50], 2), ([90, 90, 90, 90], 1)]
)
def test_the_first_leg_and_the_gate_are_drawn_by_their_law(counts: list[int], each: int) -> None:
    made = relay(4)
    weights = np.array(counts, np.int64) * unit_weight(each)
    order = sorted(range(len(counts)), key=lambda at: (-counts[at], at))
    bottom = float(made.first_leg.threshold_offset)
    law: dict[Hashable, float] = {}
    for steps, mass in peeling_law([counts[at] for at in order], bottom, float(made.epsilon), made.k).items():
        returned = [order[int(at)] for at in steps if at != BOTTOM]
        first = Selection(tuple(returned), stopped_at_bottom=BOTTOM in steps)
        if not made.left(first):
            law[steps, None] = mass
            continue
        gate, largest = made.gate(first), max((int(weights[at]) for at in order if at not in returned), default=0)
        opened = float(stats.norm.sf((gate.height - 0.5 - largest) / math.sqrt(gate.variance)))
        law[steps, True], law[steps, False] = mass * opened, mass * (1 - opened)

    def drawn() -> Counter[Hashable]:
        found: Counter[Hashable] = Counter()
        for _ in range(4_000):
            selection = made.select(FullHistogram.of(counts), weights, noise=NOISE)
            found[outcome(selection.first), selection.gate_opened] += 1
        return found

    assert fits(lambda: goodness(drawn(), law))


def test_what_follows_is_what_the_first_leg_did_not_return_in_the_order_of_noisy_weights() -> None:
    """Many units that are each in one group alone: weights find what stands below BOTTOM."""
    made = Relay(Epsilon("1"), Delta("1e-6"), 10, k_bar=200, weighed_groups=1)
    counts = [1000, 900, *[12, 11, 10, 9] * 2, *[1] * 50]
    histogram, weights = FullHistogram.of(counts), np.array(counts, np.int64) * WEIGHT_STEPS
    lengths = []
    for _ in range(50):
        selection = made.select(histogram, weights, noise=NOISE)
        assert len(set(selection.positions)) == len(selection.positions) <= made.k
        assert len(selection.first.positions) >= 2
        assert set(selection.positions[:2]) == {0, 1}
        assert all(counts[at] > 1 for at in selection.positions)
        lengths.append(len(selection.positions) - len(selection.first.positions))
    assert sum(lengths) / 50 > 5


def test_groups_without_weight_are_of_the_first_leg_alone() -> None:
    made = relay(5)
    counts = FullHistogram.of([5000, 4000, 50])
    for _ in range(20):
        selection = made.select(counts, np.zeros(3, np.int64), noise=NOISE)
        assert selection.positions[2:] == () or 2 in selection.first.positions
        assert set(selection.positions[:2]) == {0, 1}


def test_equal_counts_are_cut_by_the_order_of_labels() -> None:
    made = Relay(Epsilon("1"), Delta("1e-6"), 1, k_bar=1, weighed_groups=1)
    counts = FullHistogram.of([7, 7, 7])
    assert {made.select(counts, np.zeros(3, np.int64), noise=SeededNoise(seed)).positions for seed in range(30)} <= {
        (),
        (0,),
    }


def test_a_gate_stands_at_twice_its_deviation() -> None:
    for rho in ("0.01", "0.3", "2"):
        gate = Gate(Rho(rho))
        assert math.isclose(gate.height, 2 * math.sqrt(gate.variance), abs_tol=1.0)
        assert gate.height**2 >= gate.variance * 4


@pytest.mark.parametrize(
    "changes",
    [{"k": 0}, {"k": 5, "k_bar": 4}, {"delta": Delta(0)}, {"weighed_groups": 0}, {"sensitivity": 0}],
)
def test_what_means_nothing_is_refused(changes: dict[str, object]) -> None:
    usual: dict[str, object] = {
        "k": 5,
        "k_bar": 50,
        "weighed_groups": 3,
        "epsilon": Epsilon("1"),
        "delta": Delta("1e-6"),
    }
    with pytest.raises(dpsql.UsageError):
        Relay(**{**usual, **changes})  # type: ignore[arg-type]
    made = relay(3)
    with pytest.raises(dpsql.UsageError):
        made.select(FullHistogram.of([1, 2]), np.zeros(3, np.int64), noise=NOISE)
