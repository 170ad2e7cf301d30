"""Intervals of released values: in their type, rounded outwards, and with the probability that they claim."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from support.laws import SeededNoise

import dpsql
from dpsql.accounting import discrete_gaussian_offset
from dpsql.intervals import ValueNoise, widen_quotients
from dpsql.mechanisms.sampling.discrete_noise import discrete_gaussian
from dpsql.plan.mechanisms.base import CountNoise
from dpsql.plan.release import compute_interval
from dpsql.sql.ir.measures import DISTINCT_UNITS, Aggregate, ContributionRange, Measure

WHOLE = ValueNoise(Fraction(16))


def test_ends_have_the_type_of_the_value() -> None:
    reach = WHOLE.reach(0.95)
    assert WHOLE.widen([100, 3, None], 0.95) == ([100 - reach, 0, None], [100 + reach, 3 + reach, None])
    signed = ValueNoise(Fraction(16), may_be_negative=True)
    assert signed.widen([3], 0.95) == ([3 - reach], [3 + reach])
    cents = ValueNoise(Fraction(16), step=Fraction(1, 100))
    low, high = cents.widen([Decimal("10.00")], 0.95)
    assert (low, high) == ([Decimal(1000 - reach) / 100], [Decimal(1000 + reach) / 100])
    ((least,), (most,)) = ValueNoise(Fraction(16), step=Fraction(1, 3)).widen([10.0], 0.95)
    assert isinstance(least, float)
    assert isinstance(most, float)
    assert Fraction(least) <= 10 - reach * Fraction(1, 3)
    assert Fraction(most) >= 10 + reach * Fraction(1, 3)


def test_what_was_rounded_to_a_type_is_widened_by_that() -> None:
    """The exact value 3/2 steps below a released 1.5 is outside of 2 - 3, since 1.5 was rounded to 2."""
    coarse = ValueNoise(Fraction(1), step=Fraction(3, 2), may_be_negative=True)
    reach = coarse.reach(0.95)
    for steps in range(-20, 20):
        (low,), (high,) = coarse.widen([round(steps * Fraction(3, 2))], 0.95)
        assert low <= (steps - reach) * Fraction(3, 2)  # type: ignore[operator]
        assert high >= (steps + reach) * Fraction(3, 2)  # type: ignore[operator]


def test_ends_do_not_leave_their_type() -> None:
    most = 2**63 - 1
    assert WHOLE.widen([most, -most], 0.9)[1][0] == most
    assert ValueNoise(Fraction(16), may_be_negative=True).widen([-most], 0.9)[0] == [-most]
    cents = ValueNoise(Fraction(16), step=Fraction(1, 100))
    assert cents.widen([Decimal("9" * 36 + ".99")], 0.9)[1] == [Decimal("9" * 36 + ".99")]


@pytest.mark.parametrize("value", ["9999999999999999.99", "123456789012345678901234567890.12", "-9999999999999999.99"])
def test_ends_of_sums_beyond_18_digits_are_exact(value: str) -> None:
    cents = ValueNoise(Fraction(16), step=Fraction(1, 100), may_be_negative=True)
    reach = cents.reach(0.9) * cents.step
    (low,), (high,) = cents.widen([Decimal(value)], 0.9)
    assert [Fraction(low), Fraction(high)] == [Fraction(value) - reach, Fraction(value) + reach]  # type: ignore[arg-type]


@pytest.mark.parametrize("variance", [10**6 + 1, 10**7, 10**8])
@pytest.mark.parametrize("level", [0.01, 0.5, 0.95, 0.9999999])
def test_wide_intervals_are_those_of_all_masses_added_up(variance: int, level: float) -> None:
    added = discrete_gaussian_offset(Fraction(variance), (1 - level) / 2) - 1
    assert added <= ValueNoise(Fraction(variance)).reach(level) <= added + 1


@pytest.mark.parametrize("level", [0, 1, 1.5, -1, math.nan, "0.95"])
def test_levels_are_between_0_and_1(level: object) -> None:
    with pytest.raises(dpsql.UsageError, match="level-range"):
        WHOLE.reach(level)  # type: ignore[arg-type]
    with pytest.raises(dpsql.UsageError, match="level-range"):
        widen_quotients([(1, 1)], noises=(WHOLE, WHOLE), level=level)  # type: ignore[arg-type]


def test_averages_lie_between_the_quotients_of_both_intervals() -> None:
    a, b = (noise.reach(0.975) for noise in (WHOLE, ValueNoise(Fraction(4))))
    ((low,), (high,)) = widen_quotients([(1000, 100)], noises=(WHOLE, ValueNoise(Fraction(4))), level=0.95)
    assert low == pytest.approx((1000 - a) / (100 + b))
    assert high == pytest.approx((1000 + a) / (100 - b))
    (low, *none), (high, *others) = widen_quotients([(a, 1), (9, 0), (9, -5)], noises=(WHOLE, WHOLE), level=0.95)
    assert (low, high) == (0, 2 * a)  # there is at least one row
    assert none == others == [None, None]
    signed = ValueNoise(Fraction(16), may_be_negative=True)
    ((low,), (high,)) = widen_quotients([(-1000, 100)], noises=(signed, ValueNoise(Fraction(4))), level=0.95)
    assert low == pytest.approx((-1000 - a) / (100 - b))
    assert high == pytest.approx((-1000 + a) / (100 + b))


def test_columns_in_and_columns_out() -> None:
    import pyarrow as pa

    low, high = compute_interval(
        pa.chunked_array([[100, None], [3]], pa.int64()), DISTINCT_UNITS, noise=CountNoise(Fraction(16)), level=0.95
    )
    assert low.type == high.type == pa.int64()
    assert (low.to_pylist(), high.to_pylist()) == ([92, None, 0], [108, None, 11])
    signed = Measure(Aggregate.SUM, bounds=ContributionRange(-5, 5))
    low, _ = compute_interval(pa.array([3]), signed, noise=CountNoise(Fraction(16)), level=0.95)
    assert low.to_pylist() == [-5]


@pytest.mark.properties
@pytest.mark.parametrize(("total", "rows"), [(400, 200), (30, 3), (0, 2), (5000, 40), (-300, 20)])
@pytest.mark.parametrize(("first", "second"), [(100, 25), (4, 400), (2500, 1)])
def test_an_average_is_inside_of_its_interval_as_often_as_the_level_says(
    total: int, rows: int, first: int, second: int
) -> None:
    """Of 4,000 draws with an average; three standard deviations below the level would be found."""
    noise, draws, level = SeededNoise(total + rows + first), 4_000, 0.95
    drawn = (discrete_gaussian(Fraction(variance), noise, count=draws) for variance in (first, second))
    pairs = [(total + a, rows + b) for a, b in zip(*drawn, strict=True)]
    noises = ValueNoise(Fraction(first), may_be_negative=total < 0), ValueNoise(Fraction(second))
    low, high = widen_quotients(pairs, noises=noises, level=level)
    exact = total / rows
    inside = [a <= exact <= b for a, b in zip(low, high, strict=True) if a is not None]  # type: ignore[operator]
    # a draw without an average is counted as inside: the claim is of both intervals, whether they are shown or not
    outside = inside.count(False)
    assert outside <= draws * (1 - level) + 3 * math.sqrt(draws * level * (1 - level))
    assert np.mean(inside) > 0.5
