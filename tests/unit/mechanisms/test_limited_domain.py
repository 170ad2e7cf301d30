"""The limited domain against its test vectors and, by chi-square, its closed-form law."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable
from fractions import Fraction
from functools import partial
from importlib import import_module
from types import ModuleType

import mpmath
import pytest
from support.laws import BOTTOM, fits, goodness, outcome, peeling_law, rejects_early

from dpsql.errors import UsageError
from dpsql.mechanisms import Histogram, LimitedDomain, OperatingSystemNoise, Selection
from dpsql.quantities import Delta, Epsilon

MODULE: ModuleType = import_module("dpsql.mechanisms.limited_domain")
RACE: ModuleType = import_module("dpsql.mechanisms.sampling.race")
NOISE = OperatingSystemNoise()


def domain(epsilon: str, delta: str, k: int, k_bar: int, bound: int | None) -> LimitedDomain:
    return LimitedDomain(Epsilon(epsilon), Delta(delta), k, k_bar, bound)


CASES: dict[str, tuple[LimitedDomain, tuple[int, ...]]] = {
    "vector": (domain("0.3", "0.05", 3, 4, 10), (30, 28, 27, 20, 19, 3)),
    "fewer groups than k_bar": (domain("0.7", "0.1", 2, 4, 2), (4, 3)),
    "no group": (domain("0.7", "0.1", 2, 4, 2), ()),
    "one group": (domain("1", "0.5", 3, 3, 1), (3,)),
    "ties everywhere": (domain("0.5", "0.2", 3, 4, None), (9, 9, 9, 9, 9, 9)),
    "exactly k_bar groups": (domain("0.4", "0.3", 3, 3, 3), (8, 6, 5)),
    "k far below k_bar": (domain("0.2", "0.01", 1, 8, 3), (40, 39, 37, 36, 30, 30, 30, 29, 28)),
    "BOTTOM far behind": (domain("0.05", "0.5", 4, 4, 1), (9020, 9007, 9003, 9000, 60)),
}


def exact_law(mechanism: LimitedDomain, counts: tuple[int, ...]) -> dict[Hashable, float]:
    histogram = Histogram.of_leaders(counts, mechanism.k_bar)
    bottom = float(histogram.following + mechanism.threshold_offset)
    return peeling_law(histogram.leaders, bottom, float(mechanism.epsilon), mechanism.k)


def sampled(case: str, draws: int) -> Callable[[], float]:
    """Return a function that draws a fresh sample and gives its p-value."""
    mechanism, counts = CASES[case]
    histogram = Histogram.of_leaders(counts, mechanism.k_bar)
    law = exact_law(mechanism, counts)

    def p_value() -> float:
        return goodness(Counter(outcome(mechanism.select(histogram, NOISE)) for _ in range(draws)), law)

    return p_value


@pytest.mark.properties
@pytest.mark.parametrize("case", CASES)
def test_selections_follow_the_closed_form(case: str) -> None:
    assert fits(sampled(case, 6_000))


@pytest.mark.properties
@pytest.mark.parametrize(("bits", "draws", "least"), [(6, 1_200, 270), (2, 400, 900)])
def test_the_law_survives_short_prefixes_that_are_refined(
    bits: int, draws: int, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    refined: list[int] = []
    untangle = RACE._untangle

    def counted(contenders: list[object], reader: object) -> list[int]:
        refined.append(len(contenders))
        return list(untangle(contenders, reader))

    monkeypatch.setattr(RACE, "_untangle", counted)
    monkeypatch.setattr(MODULE, "race", partial(RACE.race, mantissa_bits=bits))
    for case in CASES:
        assert fits(sampled(case, draws)), case
    assert len(refined) > least
    assert max(refined) > 2


@pytest.mark.mutant
@pytest.mark.properties
@pytest.mark.parametrize("scale", [Fraction(7, 10), Fraction(13, 10)])
@pytest.mark.parametrize("case", ["vector", "fewer groups than k_bar", "ties everywhere", "BOTTOM far behind"])
def test_noise_of_another_scale_is_noticed(case: str, scale: Fraction, monkeypatch: pytest.MonkeyPatch) -> None:
    def scaled(counts: tuple[int, ...], bottom: Fraction, epsilon: Fraction, **rest: object) -> object:
        return RACE.race(counts, bottom, epsilon=epsilon / scale, **rest)

    monkeypatch.setattr(MODULE, "race", scaled)
    assert rejects_early(lambda draws: sampled(case, draws)(), 15_000)


@pytest.mark.mutant
def test_the_kth_count_in_place_of_the_next_is_noticed() -> None:
    mechanism, counts = CASES["vector"]
    wasteful = counts[: mechanism.k_bar] + counts[mechanism.k_bar - 1 :]
    histogram = Histogram.of_leaders(wasteful, mechanism.k_bar)
    law = exact_law(mechanism, counts)
    assert histogram.following == counts[mechanism.k_bar - 1]

    def p_value(draws: int) -> float:
        return goodness(Counter(outcome(mechanism.select(histogram, NOISE)) for _ in range(draws)), law)

    assert rejects_early(p_value, 15_000)
    assert exact_law(mechanism, wasteful)[BOTTOM,] > law[BOTTOM,] + 0.05


@pytest.mark.parametrize(
    ("following", "mechanism", "threshold"),
    [
        (0, domain("0.1", "1e-6", 1, 10, 1), 139.15510557964274),
        (3, domain("0.1", "1e-6", 1, 10, 5), 158.24948470398374),
        (3, domain("0.05", "1e-8", 1, 100, 1000), 464.5170185988091),
        (17, domain("1", "1e-9", 1, 1000, 3), 39.82187812561452),
        (19, domain("0.3", "0.05", 3, 4, 10), 34.606755448912935),
    ],
)
def test_threshold_vectors(following: int, mechanism: LimitedDomain, threshold: float) -> None:
    assert float(following + mechanism.threshold_offset) == pytest.approx(threshold, rel=1e-12)


@pytest.mark.parametrize("epsilon", ["1e-9", "0.001", "0.1", "0.3333", "1", "7.5", "40"])
@pytest.mark.parametrize("delta", ["1e-300", "1e-30", "1e-6", "0.05", "0.5", "0.999999999999"])
@pytest.mark.parametrize("k_bar", [1, 3, 20, 10**6])
def test_the_threshold_is_rounded_up_and_hardly(epsilon: str, delta: str, k_bar: int) -> None:
    mechanism = domain(epsilon, delta, 1, k_bar, None)
    with mpmath.workdps(50):
        true = 1 + mpmath.log(k_bar / mpmath.mpf(delta)) / mpmath.mpf(epsilon)
        offset = mpmath.mpf(mechanism.threshold_offset.numerator) / mechanism.threshold_offset.denominator
        assert 0 < offset - true < true * mpmath.mpf("1e-11") + mpmath.mpf("1e-11") / mpmath.mpf(epsilon)


def test_law_vector() -> None:
    law = exact_law(*CASES["vector"])
    expected = {
        (BOTTOM,): 0.6651430279,
        (0, BOTTOM): 0.1333450645,
        (1, BOTTOM): 0.0671109782,
        (2, BOTTOM): 0.0484500341,
        (0, 1, BOTTOM): 0.0164847965,
        (1, 0, BOTTOM): 0.0151173930,
        (0, 2, BOTTOM): 0.0118330892,
        (2, 0, BOTTOM): 0.0105749985,
    }
    assert {event: law[event] for event in expected} == pytest.approx(expected, rel=1e-8)
    assert math.fsum(law.values()) == pytest.approx(1.0, abs=1e-12)
    assert math.fsum(len(event) * mass for event, mass in law.items()) == pytest.approx(1.4152313118, rel=1e-9)


def test_law_vector_with_too_few_groups() -> None:
    unpadded = {
        (BOTTOM,): 0.6207060741,
        (0, BOTTOM): 0.2107149919,
        (0, 1): 0.0427245714,
        (1, BOTTOM): 0.0893656205,
        (1, 0): 0.0364887421,
    }
    padded = {
        (BOTTOM,): 0.6320476002,
        (0, BOTTOM): 0.2060576388,
        (0, 1): 0.0398036555,
        (1, BOTTOM): 0.0878990869,
        (1, 0): 0.0341920186,
    }
    mechanism, counts = CASES["fewer groups than k_bar"]
    assert exact_law(mechanism, counts) == pytest.approx(unpadded, rel=1e-8)
    dummies = exact_law(mechanism, (*counts, 0, 0))
    merged: Counter[Hashable] = Counter()
    for event, mass in dummies.items():
        end = next((step for step, at in enumerate(event) if at not in (0, 1)), None)
        merged[event if end is None else (*event[:end], BOTTOM)] += mass
    assert merged == pytest.approx(padded, rel=1e-8)


def test_an_empty_table_pays_one_step() -> None:
    mechanism, counts = CASES["no group"]
    selection = mechanism.select(Histogram.of_leaders(counts, mechanism.k_bar), NOISE)
    assert selection == Selection((), stopped_at_bottom=True)
    assert selection.steps == 1


def test_the_largest_threshold_fits_the_race() -> None:
    mechanism = domain("1e-9", "1e-300", 2, 5, None)
    selection = mechanism.select(Histogram((2**53 - 1, 7), 7), NOISE)
    assert 1 <= selection.steps <= 2


@pytest.mark.parametrize(
    ("leaders", "following"),
    [((1, 2), 0), ((2,), 3), ((-1,), 0), ((2**53,), 0), ((1.0,), 0), ((True,), 0), ((1,), -1)],
)
def test_a_histogram_of_anything_but_descending_counts_is_refused(leaders: tuple[int, ...], following: int) -> None:
    with pytest.raises(UsageError, match=r"\[histogram-"):
        Histogram(leaders, following)


def test_a_histogram_does_not_show_its_counts() -> None:
    histogram = Histogram.of_leaders((987654, 3), 1)
    assert (histogram.leaders, histogram.following) == ((987654,), 3)
    assert "987654" not in repr(histogram) + str(histogram)
