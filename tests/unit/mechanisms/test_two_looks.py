"""Two looks: what they see, the noise of each, which mechanism answers by them, and what is charged for it."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from fractions import Fraction
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats
from support.laws import discrete_gaussian_law, fits, goodness, rejects_early

import dpsql
from dpsql.accounting import ZCDP, BoundedRange, discrete_gaussian_tail
from dpsql.mechanisms import (
    WEIGHT_STEPS,
    DomainDiscovery,
    Histogram,
    NoisyCounts,
    OperatingSystemNoise,
    Selection,
    unit_weight,
)
from dpsql.mechanisms.domain_discovery import Discovery
from dpsql.mechanisms.gate import Look, bound_weight_sum
from dpsql.mechanisms.gaussian_threshold import PLACES, find_cut
from dpsql.mechanisms.two_looks import Answerer, TwoLooks
from dpsql.plan.mechanisms.base import Groups, ItemLoss, MechanismOutput, ReadAgain
from dpsql.plan.mechanisms.two_looks import TwoLooksPlan
from dpsql.quantities import Delta, Epsilon, Rho

NOISE = OperatingSystemNoise()
Integers = npt.NDArray[np.int64]
CHOOSE, DRAW = TwoLooks.choose, Look.draw
AFTER_BOTH = Answerer.LEADERS, Answerer.WEIGHTS, Answerer.DISCOVERY


def make(k: int, epsilon: str = "0.5", delta: str = "1e-6", *, k_bar: int | None = None, cap: int = 100) -> TwoLooks:
    return TwoLooks(Epsilon(epsilon), Delta(delta), k, k_bar or max(20 * k, 1000), cap)


def crowd(groups: int) -> Histogram:
    """Return counts that the first look of `make(10)` sees in part."""
    return Histogram(tuple(sorted((30 + 3 * at for at in range(groups)), reverse=True)), 0)


# what the looks see


@pytest.mark.parametrize(
    ("k", "share"),
    [
        (1, Fraction(3, 8)),
        (5, Fraction(3, 8)),
        (6, Fraction(5, 12)),
        (10, Fraction(1, 4)),
        (24, Fraction(5, 48)),
        (25, Fraction(1, 10)),
        (200, Fraction(1, 10)),
    ],
)
def test_where_nothing_is_there_a_query_costs_the_allowed_share_on_average(k: int, share: Fraction) -> None:
    looks = make(k)
    p = looks.open_probability
    assert Fraction(6, 100) + p * Fraction(94, 100) == share
    tails = [
        discrete_gaussian_tail(looks.gate.look.variance, int(looks.height * looks.gate.look.whole) - n) for n in (0, 1)
    ]
    assert tails[0] <= p == pytest.approx(tails[1], rel=1e-5)


@pytest.mark.parametrize(("k", "k_bar"), [(1, 1), (1, 1000), (5, 5), (10, 1000), (100, 2000), (7, 10**6)])
def test_the_first_look_is_the_share_of_k_far_above_half_of_what_the_limited_domain_asks_for(
    k: int, k_bar: int
) -> None:
    looks = make(k, "0.3", k_bar=k_bar)
    offset = 1 + math.log(k_bar / 1e-6) / (0.3 * math.sqrt(0.97))
    start, width = math.ceil(offset / 2), math.ceil(0.7 * offset)
    assert looks.first.whole == k * width
    assert looks.first.variance == Fraction(k**2) / (2 * Fraction(3, 100) * looks.rho.value)
    counts = [start + 5, start, start + 2 * width, 3][:k]
    wanted = sum([5, 0, width, 0][: len(counts)])
    for following in (0, 2):
        if following and k_bar > len(counts):
            continue  # there are fewer groups than k_bar
        above = tuple(sorted((each + following for each in counts), reverse=True))
        assert looks.add_leads(Histogram(above, following)) == wanted if k >= 4 else True
    many = tuple([start + 2 * width] * min(k_bar, 2 * k))
    assert looks.add_leads(Histogram(many, 0)) == looks.first.whole
    assert looks.add_leads(Histogram(many, start + 2 * width if len(many) == k_bar else 0)) in {0, looks.first.whole}
    assert looks.add_leads(Histogram((), 0)) == 0


@pytest.mark.parametrize(("k", "cap"), [(1, 100), (1, 1), (5, 2), (10, 100), (100, 5), (300, 100)])
def test_the_second_look_is_the_excess_of_the_k_heaviest_over_a_fifth_of_the_threshold(k: int, cap: int) -> None:
    looks = make(k, "0.2", cap=cap)
    threshold = looks.weighted.threshold
    assert looks.threshold == threshold
    root = math.sqrt(min(k, cap)) * WEIGHT_STEPS
    assert root <= looks.gate.look.sensitivity < root + 1
    assert looks.gate.look.variance == Fraction(looks.gate.look.sensitivity**2) / (
        2 * Fraction(3, 100) * looks.rho.value
    )
    assert looks.gate.look.whole == k * threshold
    weights = [threshold // 5, threshold // 5 + 7, 10 * threshold, threshold // 9, threshold // 5 + 9]
    seen = sorted([0, 7, 14 * threshold // 5, 0, 9], reverse=True)
    assert looks.gate.add(np.array(weights, np.int64)) == sum(seen[:k])
    assert looks.gate.add(np.array([], np.int64)) == 0
    assert looks.gate.add(np.full(k + 3, threshold, np.int64)) == k * (threshold - threshold // 5)


def plain_choice(looks: TwoLooks, first: Fraction, second: Fraction, *, height: Fraction) -> Answerer:
    if first > Fraction("0.8"):
        return Answerer.AT_ONCE
    if second >= height and min(second, Fraction("0.8")) > first:
        if looks.counts_rho is not None:
            return Answerer.HISTOGRAM
        return Answerer.DISCOVERY if second >= 2 else Answerer.WEIGHTS
    return Answerer.LEADERS


@pytest.mark.parametrize("k", [1, 5, 6, 100])
def test_the_mechanism_is_chosen_by_both_numbers(k: int) -> None:
    looks, step = make(k), Fraction(1, 10**9)
    height = looks.height
    counting = replace(looks, max_groups_contributed=100, counts_rho=Rho("0.1"))
    edges = [Fraction(-1), Fraction(0), height, Fraction("0.3"), Fraction("0.8"), Fraction(2), Fraction(3)]
    values = [edge + off for edge in edges for off in (-step, Fraction(0), step)]
    for each in (looks, counting):
        seen = set()
        for first in values:
            assert (each.choose(first) is Answerer.AT_ONCE) == (first > Fraction("0.8"))
            for second in values:
                seen.add(each.choose(first, second))
                assert each.choose(first, second) is plain_choice(each, first, second, height=height)
        assert len(seen) == 4 if each is looks else 3


# the noise of the looks


def binned(look: Look, total: int, draws: int) -> float:
    """Return the p-value of draws in cells of one probability each."""
    edges = [NormalDist().inv_cdf(at / 40) * math.sqrt(look.variance) for at in range(1, 40)]
    seen: Counter[Hashable] = Counter()
    for _ in range(draws):
        seen[int(np.searchsorted(edges, float(look.draw(total, NOISE) * look.whole - total)))] += 1
    return goodness(seen, dict.fromkeys(range(40), 1 / 40))


def by_steps(look: Look, total: int, draws: int) -> float:
    """Return the p-value of draws against the exact law."""
    seen: Counter[Hashable] = Counter(look.draw(total, NOISE) * look.whole for _ in range(draws))
    return goodness(seen, {total + n: mass for n, mass in discrete_gaussian_law(look.variance).items()})


@pytest.mark.parametrize("groups", [0, 1, 200])
def test_the_first_look_has_the_noise_of_its_loss_around_the_sum(groups: int) -> None:
    looks = make(10)
    total = looks.add_leads(crowd(groups))
    assert (total > 0) == (groups > 0)
    seen = [looks.look_at_counts(crowd(groups), NOISE) for _ in range(20)]
    assert max(abs(each - Fraction(total, looks.first.whole)) for each in seen) > 0
    assert fits(lambda: by_steps(looks.first, total, 4_000))


@pytest.mark.parametrize("groups", [0, 1, 200])
def test_the_second_look_has_the_noise_of_its_loss_around_the_sum(groups: int) -> None:
    looks = make(10)
    weights = np.linspace(2 * looks.threshold, 1, groups).astype(np.int64)
    total = looks.gate.add(weights)
    assert (total > 0) == (groups > 0)
    seen = [looks.look_at_weights(weights, NOISE) for _ in range(20)]
    assert max(abs(each - Fraction(total, looks.gate.look.whole)) for each in seen) > 0
    assert fits(lambda: binned(looks.gate.look, total, 4_000))


@pytest.mark.mutant
@pytest.mark.parametrize("second", [False, True])
def test_a_look_of_another_noise_is_noticed(monkeypatch: pytest.MonkeyPatch, second: bool) -> None:
    looks = make(10)
    look, judge = (looks.gate.look, binned) if second else (looks.first, by_steps)
    louder = replace(look, sensitivity=look.sensitivity * 6 // 5)
    monkeypatch.setattr(Look, "draw", lambda self, total, noise: DRAW(replace(louder, whole=self.whole), total, noise))
    assert rejects_early(lambda draws: judge(look, 0, draws), 12_000)
    monkeypatch.setattr(Look, "draw", lambda self, total, noise: DRAW(self, total, noise) if total else Fraction(0))
    assert rejects_early(lambda draws: judge(look, 0, draws), 12_000)


@pytest.mark.parametrize("k", [1, 5, 10, 100])
def test_on_no_row_the_second_look_opens_with_the_allowed_probability(k: int) -> None:
    looks = make(k)
    height, second, nothing = looks.height, looks.gate.look, looks.gate.add(np.array([], np.int64))

    def p_value() -> float:
        opened = sum(second.draw(nothing, NOISE) >= height for _ in range(3_000))
        return float(stats.binomtest(opened, 3_000, float(looks.open_probability)).pvalue)

    assert fits(p_value)


@pytest.mark.parametrize(("counts", "each"), [([], 1), ([30], 1), ([40, 45, 38, 50], 4), ([28] * 9, 1), ([40] * 30, 1)])
def test_each_mechanism_answers_with_its_probability(counts: list[int], each: int) -> None:
    looks = make(4, "1", k_bar=10)
    leaders = Histogram.of_leaders(tuple(sorted(counts, reverse=True)[:11]), 10)
    weights = np.array(counts, np.int64) * unit_weight(each)
    first, second, height = looks.first, looks.gate.look, float(looks.height)
    seen, heavy = looks.add_leads(leaders), looks.gate.add(weights) / second.whole
    spread, law = math.sqrt(second.variance) / second.whole, Counter[Hashable]()
    for n, mass in discrete_gaussian_law(first.variance).items():
        z = (seen + n) / first.whole
        if z > 0.8:
            law[Answerer.AT_ONCE] += mass  # type: ignore[assignment] # of floats
            continue
        opened = float(stats.norm.sf((max(height, z) - heavy) / spread)) if z < 0.8 else 0.0
        crowded = min(opened, float(stats.norm.sf((2 - heavy) / spread)))
        for answerer, part in zip(AFTER_BOTH, (1 - opened, opened - crowded, crowded), strict=True):
            law[answerer] += mass * part  # type: ignore[assignment] # of floats

    def drawn() -> Counter[Hashable]:
        found: Counter[Hashable] = Counter()
        for _ in range(1_500):
            z = looks.look_at_counts(leaders, NOISE)
            found[looks.choose(z) or looks.choose(z, looks.look_at_weights(weights, NOISE))] += 1
        return found

    assert fits(lambda: goodness(drawn(), law))


# the charge


@pytest.mark.parametrize("k", [1, 2, 5, 6, 10, 37, 100])
@pytest.mark.parametrize("epsilon", ["0.001", "0.0371", "0.1", "0.7654321", "0.9"])
def test_the_shares_never_add_up_to_more_than_k_items(k: int, epsilon: str) -> None:
    looks = make(k, epsilon)
    item, looked = BoundedRange(Epsilon(epsilon)).rho.value, Fraction(3, 100) * looks.rho.value
    assert looks.rho.value == k * item
    assert looks.first.rho.value == looks.gate.look.rho.value == looked
    for answerer, count in ((Answerer.AT_ONCE, 1), (Answerer.LEADERS, 2)):
        domain = looks.leaders(answerer)
        assert domain.k == k
        loss = looks.loss(answerer, domain.worst_case)
        assert loss == ZCDP(Rho(count * looked + k * domain.epsilon.value**2 / 8), looks.delta)
        assert looks.rho.value * (1 - Fraction(1, 10**6)) < loss.rho.value <= looks.rho.value
    assert looks.loss(Answerer.WEIGHTS, looks.weighted.loss) == looks.worst_case
    most = looks.loss(Answerer.DISCOVERY, looks.discovery.worst_case)
    assert looks.rho.value * (1 - Fraction(1, 10**6)) < most.rho.value <= looks.rho.value
    least = looks.loss(Answerer.DISCOVERY, looks.discovery.discovery.loss)
    assert least == ZCDP(Rho(looks.rho.value * Fraction(53, 100)), looks.delta)
    assert looks.items(Answerer.DISCOVERY, looks.discovery.discovery.loss) == k * Fraction(53, 100)
    counting = replace(looks, max_groups_contributed=100, counts_rho=Rho("0.125"))
    assert counting.loss(Answerer.HISTOGRAM, counting.histogram.loss) == counting.worst_case
    assert counting.worst_case.rho.value == looks.rho.value + Fraction("0.125")


GROUPS = 12
OTHERS = Groups(np.full(GROUPS, 60, np.int64), np.full(GROUPS, 60 * WEIGHT_STEPS, np.int64))
FEW = Groups(np.full(2, 60, np.int64), np.full(2, 60 * WEIGHT_STEPS, np.int64))
NONE = Groups(np.empty(0, np.int64))


def answer(looks: TwoLooks, seen: Sequence[str], groups: Groups, monkeypatch: pytest.MonkeyPatch) -> MechanismOutput:
    """Return the answer where the looks give these numbers, each of which is drawn once."""
    numbers = list(map(Fraction, seen))
    monkeypatch.setattr(Look, "draw", lambda *_: numbers.pop(0))
    plan = TwoLooksPlan(looks, ItemLoss(looks.epsilon, None), own_cap=True)
    begun = plan.begin(groups, NOISE)
    assert len(numbers) == len(seen) - 1
    output = begun.resume(groups, NOISE) if isinstance(begun, ReadAgain) else begun
    assert not numbers
    assert output.of_second_read is (len(seen) == 2 and Fraction(seen[1]) > Fraction(seen[0]))
    return output


def charge(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare the charge of every branch with the losses of what was drawn."""
    looks = make(4, "1", k_bar=20)
    rho, k = looks.rho.value, looks.k
    for seen, looked in ((["0.9"], 1), (["0.1", "-3"], 2), (["0.7", "0.6"], 2)):
        for groups in (NONE, FEW, OTHERS):
            found = answer(looks, seen, groups, monkeypatch)
            steps = len(found.rows) + found.stopped_at_bottom
            each = looks.leaders(Answerer.AT_ONCE if looked == 1 else Answerer.LEADERS).epsilon.value ** 2 / 8
            assert 1 <= steps <= k
            assert found.loss == ZCDP(Rho(rho * looked * Fraction(3, 100) + steps * each), looks.delta)
    weighted = answer(looks, ["0.1", "1.9"], OTHERS, monkeypatch)
    assert weighted.loss == looks.worst_case == answer(looks, ["-9", "1.9"], NONE, monkeypatch).loss
    assert len(weighted.rows) == k
    once, twice = (answer(looks, ["0.1", "2.1"], groups, monkeypatch) for groups in (FEW, OTHERS))
    assert (len(once.rows), len(twice.rows)) == (2, k)
    assert once.loss.rho == Rho(rho * Fraction(53, 100))  # type: ignore[union-attr]
    peeled = k * looks.discovery.epsilon.value**2 / 8
    assert twice.loss.rho == Rho(rho * Fraction(53, 100) + peeled)  # type: ignore[union-attr]
    assert twice.items == k


def test_every_branch_is_charged_for_what_was_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    charge(monkeypatch)


def first_stage(self: DomainDiscovery, _: Discovery) -> ZCDP:
    return self.discovery.loss


def both_stages(self: DomainDiscovery, _: Discovery) -> ZCDP:
    return self.worst_case


def one_look(looks: TwoLooks, _: Answerer, loss: ZCDP) -> ZCDP:
    return ZCDP(Rho(looks.rho.value * Fraction(3, 100) + loss.rho.value), looks.delta)


def drawn_again(choose: Callable[..., Answerer | None], looks: TwoLooks, *seen: Fraction) -> Answerer | None:
    return choose(looks, *seen[:1], *(looks.gate.look.draw(0, NOISE) for _ in seen[1:]))


@pytest.mark.mutant
@pytest.mark.parametrize(
    ("owner", "name", "mistake"),
    [
        (DomainDiscovery, "loss", first_stage),
        (DomainDiscovery, "loss", both_stages),
        (TwoLooks, "loss", one_look),
        (TwoLooks, "choose", lambda *seen: drawn_again(CHOOSE, *seen)),
    ],
    ids=["second stage never", "second stage always", "one look", "drawn again"],
)
def test_another_charge_is_noticed(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, mistake: Callable[..., object]
) -> None:
    monkeypatch.setattr(owner, name, mistake)
    with pytest.raises((AssertionError, IndexError)):
        charge(monkeypatch)


def test_a_query_of_counts_is_answered_by_a_histogram_at_the_price_of_both(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = TwoLooks(Epsilon("1"), Delta("1e-6"), 4, 20, 2, max_groups_contributed=2, counts_rho=Rho("0.25"))
    numbers = [Fraction("0.1"), Fraction(1)]
    monkeypatch.setattr(Look, "draw", lambda *_: numbers.pop(0))
    plan = TwoLooksPlan(looks, ItemLoss(looks.epsilon, NoisyCounts(looks.epsilon, 2)), own_cap=False)
    output = plan.draw(OTHERS, NOISE)
    assert output.loss == looks.worst_case
    assert output.of_second_read
    assert output.counts is not None
    assert len(output.counts) == len(output.rows) == 4


# the sensitivity of the looks, by search


def sum_heaviest(weights: Integers, looks: TwoLooks) -> Integers:
    """Return the sum of the second look for each row."""
    start, width = looks.threshold // 5, 14 * looks.threshold // 5
    heaviest = -np.sort(-weights, axis=1)[:, : looks.k]
    return np.asarray(np.clip(heaviest - start, 0, width).sum(axis=1))


def sum_leads(counts: Integers, looks: TwoLooks) -> Integers:
    """Return the sum of the first look for each row."""
    offset = looks.leaders(Answerer.AT_ONCE).threshold_offset
    ranked = -np.sort(-counts, axis=1)
    following = ranked[:, looks.k_bar : looks.k_bar + 1] if ranked.shape[1] > looks.k_bar else 0
    leads = ranked[:, : looks.k] - following - math.ceil(offset / 2)
    return np.asarray(np.clip(leads, 0, math.ceil(offset * Fraction(7, 10))).sum(axis=1))


def random_units(
    random_: np.random.Generator, pairs: int, groups: int, most: int
) -> tuple[npt.NDArray[np.bool_], Integers]:
    """Return for each pair which groups the unit is in, and how many, biased to the first groups."""
    number = random_.integers(1, min(most, groups) + 1, pairs)
    order = np.argsort(np.where(random_.random((pairs, 1)) < 0.5, np.arange(groups), random_.random((pairs, groups))))
    ranks = np.argsort(order, axis=1)
    return ranks < number[:, None], number


@pytest.mark.parametrize(
    ("k", "cap", "delta"), [(1, 100, "1e-6"), (3, 8, "1e-9"), (8, 3, "0.1"), (5, 5, "1e-6"), (4, 1, "1e-6")]
)
def test_no_unit_changes_the_second_sum_by_more_than_its_sensitivity(k: int, cap: int, delta: str) -> None:
    looks, random_ = make(k, "0.8", delta, k_bar=20, cap=cap), np.random.default_rng(k * 100 + cap)
    pairs, groups = 40_000, 10
    here = random_.integers(0, 3 * looks.threshold, (pairs, groups)) // random_.integers(1, 8, (pairs, 1))
    own, number = random_units(random_, pairs, groups, cap)
    added = np.array([0, *(unit_weight(each) for each in range(1, groups + 1))])[number]
    there = here + own * added[:, None]
    for at in range(0, pairs, 200):
        assert looks.gate.add(here[at]) == sum_heaviest(here[at : at + 1], looks)[0]
        assert looks.gate.add(there[at][there[at] > 0]) == sum_heaviest(there[at : at + 1], looks)[0]
    moved = np.abs(sum_heaviest(there, looks) - sum_heaviest(here, looks)).max()
    assert 0.9999 * looks.gate.look.sensitivity < moved <= looks.gate.look.sensitivity
    if min(k, cap) > 1:  # the mistake: noise for one group
        assert moved > bound_weight_sum(min(k, cap) - 1, steps=WEIGHT_STEPS)
        assert moved > 1.4 * WEIGHT_STEPS


@pytest.mark.parametrize(
    ("k", "k_bar", "bound"), [(1, 1, None), (2, 2, 1), (3, 5, 2), (5, 8, None), (4, 4, 2), (6, 30, 3)]
)
def test_no_unit_changes_the_first_sum_by_more_than_k(k: int, k_bar: int, bound: int | None) -> None:
    looks = TwoLooks(Epsilon("2"), Delta("0.01"), k, k_bar, 100 if bound is None else bound, bound)
    random_, pairs, groups = np.random.default_rng(k * 100 + k_bar), 40_000, 9
    here = random_.integers(0, 12, (pairs, groups)) * (random_.random((pairs, groups)) < 0.8)
    here[pairs // 2 :] = np.arange(groups)[None, :] < random_.integers(0, groups, (pairs - pairs // 2, 1))
    here[pairs // 2 :] *= random_.integers(1, 12, (pairs - pairs // 2, 1))
    own, _ = random_units(random_, pairs, groups, bound or groups)
    there = here + own
    for at in range(0, pairs, 200):
        for data in (here[at], there[at]):
            ranked = tuple(sorted(filter(None, data.tolist()), reverse=True))
            assert looks.add_leads(Histogram.of_leaders(ranked, k_bar)) == sum_leads(data[None, :], looks)[0]
    moved = np.abs(sum_leads(there, looks) - sum_leads(here, looks)).max()
    reached = k if bound is None or groups > k_bar else min(k, bound)
    assert moved == reached <= looks.first.sensitivity == k
    if bound is not None and groups > k_bar and bound < k:  # the mistake: what a bound is for counts alone
        assert moved > min(k, bound)


# the cut


FAINT = [("0.5", "1e-9", 10), ("0.1", "1e-9", 10), ("0.1", "1e-9", 100), ("1", "1e-12", 5), ("3", "1e-9", 10)]


@pytest.mark.parametrize(("epsilon", "delta", "k"), FAINT)
def test_rows_below_the_cut_change_nothing_of_the_second_look(epsilon: str, delta: str, k: int) -> None:
    looks, random_ = make(k, epsilon, delta), np.random.default_rng(k)
    cut, own = looks.cut, find_cut(releases(looks))
    assert cut is not None
    assert own is not None
    assert cut.value <= looks.threshold // 5 < own.value, "where the cut of the releases alone is above what is seen"
    assert cut.releases == releases(looks)
    for _ in range(200):
        weights = (random_.random(random_.integers(0, 3 * k)) ** 4 * 3 * looks.threshold).astype(np.int64) + 1
        assert looks.gate.add(weights) == looks.gate.add(weights[weights >= cut.value])
    # the mistake: at the cut of the releases alone a unit more lifts k rows over it, each by all that was not seen
    before = np.full(k, own.value - 1, np.int64)
    assert looks.gate.add(before) > 0 == looks.gate.add(before[before >= own.value])
    jump = looks.gate.add(before + unit_weight(k))
    assert jump > looks.gate.look.sensitivity


def releases(looks: TwoLooks) -> tuple[tuple[int, Fraction], ...]:
    discovery = looks.discovery.discovery
    return (looks.weighted.threshold, looks.weighted.variance), (discovery.threshold, discovery.variance)


@pytest.mark.parametrize(("epsilon", "delta"), [("8", "1e-6"), ("0.1", "1e-30"), ("0.1", "1e-200")])
def test_places_far_below_a_threshold_are_integers_of_an_engine(epsilon: str, delta: str) -> None:
    cut = make(10, epsilon, delta).cut
    assert cut is not None
    drawn = cut.draw(NOISE).drawn
    assert len(drawn) == PLACES
    assert drawn[-1] < 2**62
    for threshold, variance in cut.releases:
        assert discrete_gaussian_tail(variance, threshold - cut.value + 1) <= -math.expm1(-float(cut.rate))


def test_there_is_no_cut_by_weights_where_a_histogram_answers() -> None:
    looks = make(10, delta="1e-9")
    assert looks.cut is not None
    assert replace(looks, max_groups_contributed=100, counts_rho=Rho("0.1")).cut is None


# refusals


USUAL: dict[str, object] = {
    "epsilon": Epsilon("1"),
    "delta": Delta("1e-6"),
    "k": 5,
    "k_bar": 50,
    "weighed_groups": 3,
}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"k": 0}, "k-range"),
        ({"k_bar": 4}, "k-range"),
        ({"delta": Delta(0)}, "delta-range"),
        ({"delta": Delta(1)}, "delta-range"),
        ({"weighed_groups": 0}, "bound-range"),
        ({"max_groups_contributed": 0}, "bound-range"),
        ({"epsilon": Epsilon("1e-9")}, "epsilon-range"),
        ({"epsilon": Epsilon("1e-13")}, "epsilon-range"),
        ({"epsilon": Epsilon("1e-5")}, "rho-range"),
        ({"epsilon": Epsilon("13.5")}, "rho-range"),
        ({"counts_rho": Rho("0.1")}, "bound-range"),
        ({"max_groups_contributed": 3, "counts_rho": Rho(1000)}, "rho-range"),
        ({"delta": Delta("1e-300"), "weighed_groups": 100}, "probability-range"),
    ],
)
def test_what_means_nothing_is_refused_before_anything_is_drawn(changes: dict[str, object], code: str) -> None:
    TwoLooks(**USUAL)  # type: ignore[arg-type]
    with pytest.raises(dpsql.UsageError) as error:
        TwoLooks(**{**USUAL, **changes})  # type: ignore[arg-type]
    assert error.value.code == code


@pytest.mark.parametrize("epsilon", ["2e-4", "3e-4", "0.001", "2"])
@pytest.mark.parametrize("delta", ["1e-280", "1e-9", "0.5", "0.999999999"])
@pytest.mark.parametrize("k", [1, 100])
def test_what_can_be_asked_can_be_drawn(epsilon: str, delta: str, k: int) -> None:
    looks = make(k, epsilon, delta, k_bar=10**6)
    assert looks.height > 0
    empty = np.array([], np.int64)
    first, second = looks.look_at_counts(Histogram((), 0), NOISE), looks.look_at_weights(empty, NOISE)
    assert looks.choose(first, second) is not None
    tail = NormalDist().inv_cdf(1 - float(looks.open_probability)) * math.sqrt(looks.gate.look.variance)
    assert float(looks.height * looks.gate.look.whole) == pytest.approx(tail, rel=1e-3)


def test_more_leaders_than_k_bar_are_refused() -> None:
    with pytest.raises(dpsql.UsageError):
        make(2, k_bar=2).look_at_counts(Histogram((3, 2, 1), 0), NOISE)


def test_the_limited_domain_stops_at_bottom_where_there_is_no_group() -> None:
    looks = make(10)
    for answerer in (Answerer.AT_ONCE, Answerer.LEADERS):
        selected = looks.leaders(answerer).select(Histogram((), 0), NOISE)
        assert selected == Selection((), stopped_at_bottom=True)


@pytest.mark.parametrize("groups", [1, 2, 3, 4, 99, 100])
def test_the_sum_of_weights_of_one_unit_is_within_its_bound(groups: int) -> None:
    draw = random.Random(groups)
    for steps in (1, 4, 10, WEIGHT_STEPS, draw.randint(2, 10**6)):
        bound = bound_weight_sum(groups, steps=steps)
        assert groups * unit_weight(groups, steps=steps) <= bound < steps * math.sqrt(groups) + 1
