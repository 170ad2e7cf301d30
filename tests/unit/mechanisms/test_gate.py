"""The gate: what it sees, how often it opens on nothing, and what is charged where it stays closed."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats
from support.laws import fits

from dpsql.accounting import ZCDP, discrete_gaussian_tail
from dpsql.mechanisms import (
    WEIGHT_STEPS,
    DomainDiscovery,
    GaussianHistogram,
    OperatingSystemNoise,
    WeightedGaussian,
)
from dpsql.mechanisms.gate import LOOK_SHARE, Gate, Look, bound_weight_sum, find_open_probability
from dpsql.plan.mechanisms.base import Groups, ItemLoss, MechanismOutput, MechanismPlan
from dpsql.plan.mechanisms.gaussian_histogram import DomainDiscoveryPlan, GaussianHistogramPlan, WeightedGaussianPlan
from dpsql.quantities import Delta, Epsilon, Rho

NOISE = OperatingSystemNoise()
K, EPSILON, DELTA = 4, Epsilon("1"), Delta("1e-6")
PRICE = ItemLoss(EPSILON, None)
WHOLE = PRICE.rho(K)
LOOKED, LEFT = Rho(WHOLE.value * LOOK_SHARE), Rho(WHOLE.value * (1 - LOOK_SHARE))
GROUPS = Groups(np.full(9, 60, np.int64), np.full(9, 60 * WEIGHT_STEPS, np.int64))
NONE = Groups(np.empty(0, np.int64))


def build_gate(threshold: int, sensitivity: int) -> Gate:
    return Gate(LOOKED, K, threshold, sensitivity, find_open_probability(K, looks=1))


def build_plans(bound: int = 3) -> dict[str, tuple[MechanismPlan, Gate, ZCDP]]:
    """Return the plans, each with its gate and with the loss where the gate opens before nine heavy groups."""
    weighted = WeightedGaussian(LEFT, DELTA, K, bound)
    histogram = GaussianHistogram(LEFT, DELTA, K, bound)
    discovery = DomainDiscovery(Rho(LEFT.value / 2), DELTA, bound, Epsilon("0.69"), K)
    moved = bound_weight_sum(min(K, bound), steps=WEIGHT_STEPS)
    by_weights, found = build_gate(weighted.threshold, moved), build_gate(discovery.discovery.threshold, moved)
    by_counts = build_gate(histogram.threshold, min(K, bound))
    peeled = LOOKED.value + LEFT.value / 2 + K * Fraction("0.69") ** 2 / 8
    whole = ZCDP(WHOLE, DELTA)
    return {
        "weights": (WeightedGaussianPlan(weighted, PRICE, own_cap=True, gate=by_weights), by_weights, whole),
        "counts": (GaussianHistogramPlan(histogram, PRICE, gate=by_counts), by_counts, whole),
        "discovery": (DomainDiscoveryPlan(discovery, PRICE, own_cap=True, gate=found), found, ZCDP(Rho(peeled), DELTA)),
    }


@pytest.mark.parametrize(("k", "share"), [(1, "0.375"), (5, "0.375"), (10, "0.25"), (25, "0.1"), (500, "0.1")])
@pytest.mark.parametrize("looks", [1, 2])
def test_where_nothing_is_there_a_query_costs_the_allowed_share_on_average(k: int, share: str, looks: int) -> None:
    p, looked = find_open_probability(k, looks=looks), looks * Fraction(3, 100)
    assert looked + p * (1 - looked) == Fraction(share)
    gate = Gate(Rho("0.1"), k, 5000, 70, p)
    at = int(gate.height * gate.look.whole)
    assert at == gate.height * gate.look.whole
    assert discrete_gaussian_tail(gate.look.variance, at) <= p < discrete_gaussian_tail(gate.look.variance, at - 1)


@pytest.mark.parametrize("name", ["weights", "counts", "discovery"])
def test_a_gate_opens_on_no_row_as_often_as_it_says(name: str) -> None:
    plan, gate, _ = build_plans()[name]

    def p_value() -> float:
        outputs = [plan.draw(NONE, NOISE) for _ in range(500)]
        assert {output.rows for output in outputs} == {()}
        opened = sum(output.loss.rho != LOOKED for output in outputs)  # type: ignore[union-attr]
        tail = discrete_gaussian_tail(gate.look.variance, int(gate.height * gate.look.whole))
        return float(stats.binomtest(opened, len(outputs), tail).pvalue)

    assert fits(p_value)


def draw_at(plan: MechanismPlan, share: Fraction, groups: Groups, monkeypatch: pytest.MonkeyPatch) -> MechanismOutput:
    """Return the answer where the gate gives this number, which is drawn once."""
    numbers = [share]
    monkeypatch.setattr(Look, "draw", lambda *_: numbers.pop(0))
    output = plan.draw(groups, NOISE)
    assert not numbers
    return output


@pytest.mark.parametrize("name", ["weights", "counts", "discovery"])
def test_a_closed_gate_costs_its_share_and_an_open_one_the_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, gate, whole = build_plans()[name]
    step = Fraction(1, 10**12)
    for groups in (GROUPS, NONE):
        closed = draw_at(plan, gate.height - step, groups, monkeypatch)
        assert (closed.rows, closed.loss, closed.items) == ((), ZCDP(LOOKED, DELTA), 1)
        assert not closed.counts
        assert closed.stopped_at_bottom
    opened = draw_at(plan, gate.height, GROUPS, monkeypatch)
    assert (len(opened.rows), opened.loss) == (K, whole)
    assert whole.rho.value <= WHOLE.value
    empty = draw_at(plan, gate.height, NONE, monkeypatch)
    assert empty.rows == ()
    assert empty.loss.rho == (Rho(LOOKED.value + LEFT.value / 2) if name == "discovery" else WHOLE)  # type: ignore[union-attr]


def plain_sum(values: npt.NDArray[np.int64], gate: Gate) -> npt.NDArray[np.int64]:
    seen = np.clip(-np.sort(-values, axis=1)[:, : gate.k] - gate.threshold // 5, 0, 14 * gate.threshold // 5)
    return np.asarray(seen.sum(axis=1))


@pytest.mark.parametrize(("k", "bound", "most"), [(1, 3, 1), (4, 2, 1), (3, 8, 1), (4, 4, 20), (6, 2, 7)])
def test_no_unit_changes_the_sum_of_counts_by_more_than_its_sensitivity(k: int, bound: int, most: int) -> None:
    """Of a measure to which a unit adds up to `most`, R times the groups that the bound and k allow."""
    gate = Gate(Rho("0.1"), k, 60 * most, most * min(k, bound), Fraction(1, 5))
    random_, pairs, groups = np.random.default_rng(10 * k + bound), 40_000, 9
    here = random_.integers(0, 240 * most, (pairs, groups)) // random_.integers(1, 9, (pairs, 1))
    ranks = np.argsort(random_.random((pairs, groups)), axis=1)
    sizes = random_.integers(1, min(bound, groups) + 1, (pairs, 1))
    there = here + (ranks < sizes) * np.maximum(1, most - random_.integers(0, 2, (pairs, groups)))
    for at in range(0, pairs, 200):
        assert gate.add(here[at]) == plain_sum(here[at : at + 1], gate)[0]
    moved = np.abs(plain_sum(there, gate) - plain_sum(here, gate)).max()
    assert moved == gate.sensitivity
    if min(k, bound) > 1:  # the mistakes: noise for one group, or with the root of the groups
        assert moved > most * min(k, bound) ** 0.5 > most


@pytest.mark.parametrize("build", [WeightedGaussian, GaussianHistogram])
def test_a_cut_is_lowered_to_where_a_gate_begins_to_see(
    build: Callable[..., WeightedGaussian | GaussianHistogram],
) -> None:
    chosen = build(Rho("0.5"), Delta("1e-12"), 10, 4)
    gate = Gate(Rho("0.0006"), 10, chosen.threshold, 10, Fraction(1, 5))
    assert chosen.cut is not None
    cut = chosen.cut.lower_to(gate.start)
    assert gate.start == chosen.threshold // 5 == cut.value < chosen.cut.value
    assert cut.releases == chosen.cut.releases
    assert cut.lower_to(gate.start + 1) == cut
    values = np.linspace(1, 3 * chosen.threshold, 40).astype(np.int64)
    assert gate.add(values) == gate.add(values[values >= cut.value])
