"""Behind a lower cut a release has the law of noise on every group: by chi-square, and by enumeration of the places."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from importlib import import_module
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest
from support.laws import agree, discrete_gaussian_law, fits, goodness, rejects_early

from dpsql.accounting import discrete_gaussian_tail
from dpsql.errors import UsageError
from dpsql.mechanisms import (
    FullHistogram,
    GaussianHistogram,
    OperatingSystemNoise,
    WeightedGaussian,
    unit_weight,
)
from dpsql.mechanisms.base import Places, ReadPlaces
from dpsql.mechanisms.gaussian_threshold import PLACES, LowerCut, draw_passing, find_cut
from dpsql.mechanisms.two_looks import Answerer, TwoLooks
from dpsql.quantities import Delta, Epsilon, Rho

NOISE = OperatingSystemNoise()
BELOW = "below"
VARIANCE, THRESHOLD = Fraction(4), 7
CUT = LowerCut(4, ((THRESHOLD, VARIANCE),))  # at a cut so high noise lifts a group in one of fifteen draws
VALUES = np.array([3, 3, 1, 5, 3, 2, 3], np.int64)
MODULE = import_module("dpsql.mechanisms.sampling.above")

Read = Callable[[Places], tuple[Sequence[int], ReadPlaces]]


def returned(values: npt.NDArray[np.int64], places: Places) -> tuple[npt.NDArray[np.int64], ReadPlaces]:
    """Return the rows that an engine returns behind a cut, of values in the order of their labels, and what is told."""
    numbers = np.arange(1, len(values) + 1)
    kept = (values >= places.cut) | np.isin(numbers, places.drawn) | (numbers > places.last) | (numbers == 1)
    rows = np.flatnonzero(kept)
    return rows, ReadPlaces(places, numbers[rows])


def one_law(value: int) -> dict[int | str, float]:
    """Return the law of one group: nothing, a noisy value at the threshold, or one beyond it."""
    law: dict[int | str, float] = dict.fromkeys((BELOW, THRESHOLD, THRESHOLD + 1), 0.0)
    for n, mass in discrete_gaussian_law(VARIANCE, 20.0).items():
        law[shorten(value + n)] += mass
    return law


def shorten(noisy: int) -> int | str:
    return BELOW if noisy < THRESHOLD else min(noisy, THRESHOLD + 1)


@cache
def joint_law() -> dict[Hashable, float]:
    """Return the law of what happens to each group."""
    found = product(*(one_law(value).items() for value in VALUES.tolist()))
    return {tuple(event for event, _ in events): math.prod(mass for _, mass in events) for events in found}


def few_places(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr("dpsql.mechanisms.gaussian_threshold.PLACES", number)


def p_value(read: Read, draws: int = 2_500, *, cut: LowerCut = CUT) -> float:
    """Return the p-value of releases of what is read, each with places of its own."""
    seen: Counter[Hashable] = Counter()
    for _ in range(draws):
        rows, told = read(cut.draw(NOISE))
        passed = draw_passing(FullHistogram(VALUES[rows], told), THRESHOLD, variance=VARIANCE, noise=NOISE)
        noisy = {int(rows[at]): shorten(value) for at, value in passed}
        seen[tuple(noisy.get(at, BELOW) for at in range(len(VALUES)))] += 1
    return goodness(seen, joint_law())


@pytest.mark.properties
@pytest.mark.parametrize("number", [1, 3, 64])
def test_a_release_behind_a_cut_has_the_law_of_noise_on_every_group(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """One place, so that most groups lie beyond it, to so many that hardly any does."""
    few_places(monkeypatch, number)
    assert fits(lambda: p_value(lambda places: returned(VALUES, places)))


def forget_the_rest(places: Places) -> tuple[Sequence[int], ReadPlaces]:
    """Drop groups below the cut, as HAVING with a constant does."""
    rows = np.flatnonzero(places.cut <= VALUES)
    return rows, ReadPlaces(places, rows + 1)


def forget_beyond(places: Places) -> tuple[Sequence[int], ReadPlaces]:
    """Drop groups beyond the last place."""
    rows, told = returned(VALUES, places)
    kept = (VALUES[rows] >= places.cut) | (told.rows <= places.last)
    return rows[kept], told.take(np.flatnonzero(kept))


@pytest.mark.mutant
@pytest.mark.properties
@pytest.mark.parametrize("mistake", [forget_the_rest, forget_beyond])
def test_groups_that_are_not_read_are_noticed(monkeypatch: pytest.MonkeyPatch, mistake: Read) -> None:
    few_places(monkeypatch, 1)
    assert rejects_early(lambda draws: p_value(mistake, draws), 12_000)


@pytest.mark.mutant
@pytest.mark.properties
def test_a_second_chance_of_groups_that_are_read_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """That they were returned says already that their place was drawn: noise of their own would lift more of them."""
    few_places(monkeypatch, 8)

    def mistake(places: Places) -> tuple[Sequence[int], ReadPlaces]:
        rows, told = returned(VALUES, places)
        return rows, ReadPlaces(replace(places, drawn=()), told.rows)

    assert rejects_early(lambda draws: p_value(mistake, draws), 6_000)


@pytest.mark.mutant
@pytest.mark.properties
def test_a_place_that_is_not_confirmed_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    few_places(monkeypatch, 8)
    wide = LowerCut(CUT.value, ((THRESHOLD, VARIANCE), (THRESHOLD, VARIANCE * 2)))  # its places are drawn more often
    assert fits(lambda: p_value(lambda places: returned(VALUES, places), cut=wide))
    monkeypatch.setattr(MODULE, "_below", lambda *_, **__: True)
    assert rejects_early(lambda draws: p_value(lambda places: returned(VALUES, places), draws, cut=wide), 6_000)


def sequences(size: int, places: int) -> Iterator[tuple[tuple[bool, ...], int]]:
    """Yield which of so many groups are drawn, up to the last place, and of how many that is known."""
    seen = set()
    for drawn in product([False, True], repeat=size):
        at = [place for place, is_drawn in enumerate(drawn, 1) if is_drawn][:places]
        known = size if len(at) < places else at[-1]
        if (drawn[:known], known) not in seen:
            seen.add((drawn[:known], known))
            yield drawn[:known], known


@pytest.mark.parametrize("places", [1, 2, 3])
def test_places_that_stop_early_and_fresh_noise_after_them_have_the_law_of_noise_on_every_group(places: int) -> None:
    """The number of the places that are drawn is fixed, so the last of them is random: exact, by enumeration."""
    values = (3, 2, 3, 1)
    start, chosen = THRESHOLD - CUT.value + 1, -math.expm1(-float(CUT.rate))
    tail = {n: mass for n, mass in discrete_gaussian_law(VARIANCE, 20.0).items() if n >= start}
    lifted = math.fsum(tail.values())
    assert lifted < chosen < 1

    def passes(value: int, *, is_drawn: bool | None) -> float:
        """Return the probability that a group reaches the threshold: at a place, at none, or beyond all of them."""
        reaches = math.fsum(mass for n, mass in tail.items() if value + n >= THRESHOLD)
        return reaches if is_drawn is None else reaches / chosen if is_drawn else 0.0

    for events in product([False, True], repeat=len(values)):
        found = 0.0
        for drawn, known in sequences(len(values), places):
            mass = math.prod(chosen if each else 1 - chosen for each in drawn)
            each_passes = [passes(value, is_drawn=drawn[at] if at < known else None) for at, value in enumerate(values)]
            found += mass * math.prod(p if event else 1 - p for p, event in zip(each_passes, events, strict=True))
        wanted = [passes(value, is_drawn=None) for value in values]
        assert found == pytest.approx(
            math.prod(p if event else 1 - p for p, event in zip(wanted, events, strict=True)), rel=1e-12
        )


def test_places_are_ascending_and_as_many_as_the_statement_has_room_for() -> None:
    drawn = CUT.draw(NOISE)
    assert len(drawn.drawn) == PLACES
    assert drawn.drawn[0] >= 1
    assert sorted(set(drawn.drawn)) == list(drawn.drawn)
    assert drawn.last == drawn.drawn[-1]
    assert CUT.open.last == 0
    assert str(drawn.drawn[0]) not in repr(drawn).removeprefix("Places(cut=4)")


@pytest.mark.properties
def test_every_place_is_drawn_independently_with_one_probability() -> None:
    chosen = -math.expm1(-float(CUT.rate))

    def first_gaps() -> float:
        seen: Counter[Hashable] = Counter()
        for _ in range(3_000):
            first, second, *_ = CUT.draw(NOISE).drawn
            seen[min(first, 20), min(second - first, 20)] += 1
        one = {n: chosen * (1 - chosen) ** (n - 1) for n in range(1, 20)}
        one[20] = 1 - math.fsum(one.values())
        return goodness(seen, {(a, b): one[a] * one[b] for a in one for b in one})

    assert fits(first_gaps)


MECHANISMS = [
    WeightedGaussian(Rho("0.01"), Delta("1e-7"), k=10, max_groups_contributed=100),
    WeightedGaussian(Rho("0.5"), Delta("1e-5"), k=10, max_groups_contributed=1),
    WeightedGaussian(Rho("1e-6"), Delta("1e-9"), k=10, max_groups_contributed=1000),
    GaussianHistogram(Rho("0.02"), Delta("1e-7"), k=10, max_groups_contributed=1),
    GaussianHistogram(Rho("0.02"), Delta("1e-6"), k=10, max_groups_contributed=20, sensitivity=100),
    TwoLooks(Epsilon("0.05"), Delta("1e-7"), k=10, k_bar=1000, weighed_groups=100),
    TwoLooks(Epsilon("1"), Delta("1e-5"), k=2, k_bar=40, weighed_groups=1),
    TwoLooks(Epsilon("0.1"), Delta("1e-9"), k=100, k_bar=2000, weighed_groups=5),
]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
def test_places_are_drawn_at_least_as_often_as_noise_lifts_a_group_below_the_cut(
    mechanism: WeightedGaussian | GaussianHistogram | TwoLooks,
) -> None:
    cut = mechanism.cut
    assert cut is not None
    assert cut.value > 1
    chosen = -math.expm1(-float(cut.rate))
    for threshold, variance in cut.releases:
        lifted = discrete_gaussian_tail(variance, threshold - cut.value + 1)
        assert 0 < lifted < chosen
        assert 8 * cut.value >= min(each for each, _ in cut.releases)
    largest = max(discrete_gaussian_tail(variance, t - cut.value + 1) for t, variance in cut.releases)
    assert chosen < 1.2 * largest, "more places are drawn than need be"


def test_there_is_no_cut_where_it_would_leave_out_next_to_nothing() -> None:
    assert find_cut(((3, Fraction(4)),)) is None


def test_places_of_other_groups_are_refused() -> None:
    with pytest.raises(UsageError) as error:
        FullHistogram(VALUES, ReadPlaces(CUT.open, np.array([1, 2], np.int64)))
    assert error.value.code == "histogram-size"


@pytest.mark.properties
@pytest.mark.parametrize("crowd", [60])
def test_two_looks_behind_a_cut_have_the_law_of_those_that_read_all_groups(
    monkeypatch: pytest.MonkeyPatch, crowd: int
) -> None:
    """The sum of the heaviest, and what is released after it: the two samples have one law."""
    few_places(monkeypatch, 3)
    made = TwoLooks(Epsilon("1.5"), Delta("0.2"), k=4, k_bar=4, weighed_groups=4)
    cut = made.cut or LowerCut(made.gate.start, releases_of(made))
    assert cut.value <= made.gate.start
    counts = np.array([9, 2, 8, 1, 3, 7, 2, 2, 4, 2] + [1] * crowd, np.int64)
    weights = np.array([unit_weight(4) * each for each in counts.tolist()], np.int64)
    weights[[1, 4]] = unit_weight(1) * counts[[1, 4]]

    def draw(rows: Sequence[int], read: ReadPlaces | None) -> Hashable:
        weighed = FullHistogram(weights[rows], read)
        answerer = made.choose(Fraction(-1), made.look_at_weights(weights[rows], NOISE))
        positions: Sequence[int] = ()
        if answerer is Answerer.WEIGHTS:
            positions = made.weighted.release(weighed, NOISE).positions
        elif answerer is Answerer.DISCOVERY:
            positions = made.discovery.select(weighed, FullHistogram(counts[rows]), noise=NOISE).positions
        return answerer, tuple(min(int(rows[at]), 10) for at in positions[:2]), len(positions)

    def compare() -> float:
        seen, wanted = Counter[Hashable](), Counter[Hashable]()
        for _ in range(1_500):
            seen[draw(*returned(weights, cut.draw(NOISE)))] += 1
            wanted[draw(range(len(counts)), None)] += 1
        return agree(seen, wanted)

    assert fits(compare)


def releases_of(made: TwoLooks) -> tuple[tuple[int, Fraction], ...]:
    return tuple((each.threshold, each.variance) for each in (made.weighted, made.discovery.discovery))
