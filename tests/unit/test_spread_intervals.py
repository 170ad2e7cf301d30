"""Intervals of variances and covariances: the exact law of their one event, and how often they hold the exact value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

import dpsql
from dpsql import intervals
from dpsql.intervals import SharedNoise, SpreadLaw, ValueNoise, find_axes, find_chi_square
from dpsql.sql.ir.measures import SPREADS, Statistic

Doubles = npt.NDArray[np.float64]
GAUSSIANS = {
    "one step": [ValueNoise(Fraction(1)) for _ in range(3)],
    "narrow and wide": [ValueNoise(Fraction(variance), step=Fraction(1, variance)) for variance in (4, 100, 2500)],
    "wide": [ValueNoise(Fraction(2500)) for _ in range(3)],
    "four": [ValueNoise(Fraction(variance)) for variance in (4, 25, 36, 400)],
    "a shared total": [
        ValueNoise(Fraction(9), parts=SharedNoise(Fraction(30), Fraction(2), 3)),
        ValueNoise(Fraction(100)),
        ValueNoise(Fraction(400)),
    ],
}
OTHERS = {
    "below one step": [ValueNoise(Fraction(1, 9)), ValueNoise(Fraction(100)), ValueNoise(Fraction(400))],
    "Laplace": [ValueNoise(Fraction(18), Fraction(3)), ValueNoise(Fraction(50), Fraction(5)), ValueNoise(Fraction(99))],
}


def masses(variance: Fraction, scale: Fraction | None = None) -> tuple[Doubles, Doubles]:
    """Return the outcomes of discrete Gaussian or Laplace noise, and their probabilities."""
    most = 60 * float(scale) if scale else 12 * math.sqrt(variance) + 12
    points = np.arange(-math.ceil(most), math.ceil(most) + 1, dtype=np.float64)
    law = np.exp(-np.abs(points) / float(scale)) if scale else np.exp(-(points**2) / (2 * float(variance)))
    return points, law / law.sum()


def law_of(noise: ValueNoise) -> tuple[Doubles, Doubles]:
    if noise.parts is None:
        return masses(noise.variance, noise.scale)
    (own, own_law), (shared, shared_law) = masses(noise.parts.own), masses(noise.parts.shared)
    points = np.add.outer(own, noise.parts.factor * shared).ravel() / 2
    return points, np.multiply.outer(own_law, shared_law).ravel()


def holds(noises: Sequence[ValueNoise], level: float) -> float:
    """Return the exact probability that every linear form of the noises is within the axes: the sum of squares is 1."""
    axes = [max(axis, 1e-9) for axis in find_axes(noises, level)]  # of noise that is 0 with that probability
    squares, chances = np.zeros(1), np.ones(1)
    for noise, axis in zip(noises[:-1], axes[:-1], strict=True):
        points, law = law_of(noise)
        squares = np.add.outer(squares, (points * float(noise.step) / axis) ** 2).ravel()
        chances = np.multiply.outer(chances, law).ravel()
        kept = squares <= 1  # a sum beyond never comes back
        squares, chances = squares[kept], chances[kept]
    points, law = law_of(noises[-1])
    last = (points * float(noises[-1].step) / axes[-1]) ** 2
    order = np.argsort(last)
    below = np.concatenate([[0.0], np.cumsum(law[order])])
    return float(chances @ below[np.searchsorted(last[order], 1 - squares, side="right")])


@pytest.mark.parametrize("degrees", [3, 4])
@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999, 1 - 1e-9])
def test_quantiles_are_those_of_chi_square(degrees: int, level: float) -> None:
    exact = stats.chi2.isf(1 - level, degrees)
    assert exact <= find_chi_square(1 - level, degrees) <= exact * (1 + 1e-6)


@pytest.mark.parametrize("name", [*GAUSSIANS, *OTHERS])
@pytest.mark.parametrize("level", [0.5, 0.8, 0.95, 0.999])
def test_all_linear_forms_hold_at_once_with_the_probability_of_the_level(name: str, level: float) -> None:
    assert holds((GAUSSIANS | OTHERS)[name], level) >= level


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_of_wide_noise_they_hold_with_little_more(level: float) -> None:
    assert holds(GAUSSIANS["wide"], level) <= level + 0.1 * (1 - level)


@pytest.mark.mutant
@pytest.mark.parametrize("mistake", ["1 degree of 3", "3 degrees of 4", "no rounding", "Laplace as a Gaussian"])
def test_every_known_mistake_is_caught(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    noises, right = list(GAUSSIANS["wide"]), find_chi_square
    match mistake:
        case "1 degree of 3":
            monkeypatch.setattr(intervals, "find_chi_square", lambda outside, _: stats.chi2.isf(outside, 1))
        case "3 degrees of 4":
            noises = [ValueNoise(Fraction(2500)) for _ in range(4)]
            monkeypatch.setattr(intervals, "find_chi_square", lambda outside, _: right(outside, 3))
        case "no rounding":
            noises = list(GAUSSIANS["one step"])
            axes = [math.sqrt(right(0.05, 3))] * 3
            monkeypatch.setitem(globals(), "find_axes", lambda *_: [0.995 * axis for axis in axes])
        case "Laplace as a Gaussian":
            noises = [ValueNoise(Fraction(50), Fraction(5)) for _ in range(3)]
            axes = [math.sqrt(50 * right(0.001, 3))] * 3
            monkeypatch.setitem(globals(), "find_axes", lambda *_: axes)
    level = 0.999 if mistake.startswith("Laplace") else 0.95
    assert holds(noises, level) < level


def law(statistic: Statistic, *, epsilon: float, most_rows: int, half: Fraction = Fraction(1)) -> SpreadLaw:
    """Return the law of a statistic of values in a range of half the width `half`, with the noise of `epsilon`."""
    steps = 2**19 // most_rows
    rows = ValueNoise(Fraction(2 * most_rows / epsilon) ** 2)
    variance = Fraction(2 * most_rows * steps / epsilon) ** 2
    sums = ValueNoise(variance, step=half / steps, may_be_negative=True)
    if statistic.is_of_pairs:
        products = ValueNoise(variance, step=half**2 / steps, may_be_negative=True)
        return SpreadLaw(statistic, (rows, sums, sums, products), (half, half))
    products = ValueNoise(variance, step=half**2 / 2 / steps, may_be_negative=True)
    return SpreadLaw(statistic, (rows, sums, products), (half,), half**2 / 2)


RANDOM = np.random.default_rng(20)
Users = list[Doubles]  # values of each user, in -1 to 1


def apart(values: Doubles) -> Users:
    return [np.array([value]) for value in values]


DATA: dict[str, tuple[Users, int]] = {
    "the same value in the middle": (apart(np.zeros(100)), 1),
    "the same value at an end": (apart(np.ones(1000)), 1),
    "both ends": (apart(np.repeat([-1.0, 1.0], 50)), 1),
    "few rows": (apart(np.repeat([-0.8, 0.8], 15)), 1),
    "100 users": (apart(RANDOM.uniform(-1, 1, 100)), 1),
    "lognormal": (apart(np.clip(RANDOM.lognormal(2, 1.5, 1000), 0, 100) / 50 - 1), 1),
    "ratings": (apart(RANDOM.integers(1, 6, 2000) / 2 - 1.5), 1),
    "one end": (apart(np.where(np.arange(60) < 50, 1.0, -1.0)), 1),
    "users of many rows": ([RANDOM.uniform(-1, 1, int(n)) for n in np.minimum(RANDOM.zipf(1.7, 600), 300)], 5),
}


def sums_of(users: Users, most_rows: int, *, of_pairs: bool) -> list[float]:
    """Return the weighted sums of one argument, or of it and its mirrored third power."""
    weights = np.concatenate([np.full(len(each), min(1.0, most_rows / len(each))) for each in users])
    values = np.concatenate(users)
    if of_pairs:
        other = -(values**3)
        return [weights.sum(), weights @ values, weights @ other, weights @ (values * other)]
    return [weights.sum(), weights @ values, weights @ (values**2 - 0.5)]


def exact_value(statistic: Statistic, sums: Sequence[float]) -> float:
    rows, *means, products = sums
    found = products / rows - means[0] * means[-1] / rows**2 + (0 if statistic.is_of_pairs else 0.5)
    found *= rows / (rows - 1) if statistic.is_of_sample else 1
    return math.sqrt(max(0.0, found)) if statistic.is_root else found


DRAWS = 400


@pytest.mark.parametrize("statistic", [Statistic.VAR_POP, Statistic.STDDEV_SAMP, Statistic.COVAR_SAMP])
@pytest.mark.parametrize("name", list(DATA))
def test_an_interval_holds_the_exact_value_as_often_as_the_level_says(name: str, statistic: Statistic) -> None:
    """Of 400 draws at 95 % more than 46 are missed with a probability below 1e-7, and 3 % are missed in fact."""
    assert stats.binom.sf(46, DRAWS, 0.05) < 1e-7
    users, most_rows = DATA[name]
    sums, missed, values = sums_of(users, most_rows, of_pairs=statistic.is_of_pairs), 0, []
    released = law(statistic, epsilon=0.25, most_rows=most_rows)
    exact = exact_value(statistic, [round(sums[0]), *sums[1:]])
    generator = np.random.default_rng(len(name))
    for _ in range(DRAWS):
        steps = [
            round(each / float(noise.step)) + round(generator.normal(0, math.sqrt(noise.variance)))
            for each, noise in zip(sums, released.noises, strict=True)
        ]
        ends, value = released.widen(steps, 0.95), released.compute(steps)
        if ends is None or value is None:
            assert ends is value is None
            continue
        assert ends[0] - 1e-9 <= value <= ends[1] + 1e-9
        slack = 0.01 if statistic.is_root and exact < 0.1 else 1e-4  # of the steps
        missed += not ends[0] - slack <= exact <= ends[1] + slack
        values.append(ends[1] - ends[0])
    assert missed <= 46
    assert name in {"few rows", "one end"} or np.median(values) < 1  # of these nothing is known


def test_an_interval_is_no_wider_than_three_forms_of_it_need() -> None:
    """Beside the interval of the one form that a variance is to first order, 1.5 times as wide at most."""
    users, most_rows = DATA["ratings"]
    sums, released = sums_of(users, most_rows, of_pairs=False), law(Statistic.VAR_POP, epsilon=0.25, most_rows=1)
    steps = [round(each / float(noise.step)) for each, noise in zip(sums, released.noises, strict=True)]
    low, high = released.widen(steps, 0.95) or (0, 1)
    rows, mean, variance = sums[0], sums[1] / sums[0], exact_value(Statistic.VAR_POP, sums)
    deviations = [math.sqrt(noise.variance) * float(noise.step) for noise in released.noises]
    form = [mean * mean + 0.5 - variance, -2 * mean, 1]
    width = 2 * 1.96 * math.hypot(*(a * b for a, b in zip(form, deviations, strict=True))) / rows
    assert 1 < (high - low) / width < 1.5


def test_more_is_known_at_a_lower_level_and_of_more_rows() -> None:
    for statistic in set(SPREADS.values()):
        released = law(statistic, epsilon=1, most_rows=1)
        zeros = [0] * (len(released.noises) - 2)
        widths = [
            high - low
            for rows, level in ((3, 0.95), (60, 0.95), (1000, 0.95), (1000, 0.5))
            if (ends := released.widen([rows, *zeros, 0], level)) is not None
            for low, high in [ends]
        ]
        assert all(later <= earlier for earlier, later in pairwise(widths))
        assert len(widths) == 4


@pytest.mark.parametrize("statistic", sorted(set(SPREADS.values()), key=str))
def test_too_few_rows_have_no_value(statistic: Statistic) -> None:
    released = law(statistic, epsilon=1, most_rows=1)
    zeros = [0] * (len(released.noises) - 1)
    for rows in (-3, 0, 1, 2, Fraction(3, 2)):
        is_there = rows >= (2 if statistic.value.endswith("SAMP") else 1)
        assert (released.compute([rows, *zeros]) is not None) is is_there
        assert (released.widen([rows, *zeros], 0.95) is not None) is is_there


def test_a_value_is_within_what_a_range_can_have() -> None:
    both = Statistic.VAR_POP, Statistic.COVAR_POP
    var, covar = (law(each, epsilon=1, most_rows=1, half=Fraction(3)) for each in both)
    assert var.compute([100, 0, 2**26]) == 9
    assert var.compute([100, 0, -(2**26)]) == 0
    assert covar.compute([100, 0, 0, 2**26]) == 9
    assert covar.compute([100, 0, 0, -(2**26)]) == -9
    assert var.widen([2, 0, 0], 0.95) == (0, 9)  # nothing is known
    assert covar.widen([2, 0, 0, 0], 0.95) == (-9, 9)


@pytest.mark.parametrize("level", [0, 1, -1, math.nan])
def test_levels_are_between_0_and_1(level: float) -> None:
    with pytest.raises(dpsql.UsageError, match="level-range"):
        law(Statistic.VAR_POP, epsilon=1, most_rows=1).widen([100, 0, 0], level)
