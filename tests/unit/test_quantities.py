"""Epsilon, Rho and Delta: exact, not interchangeable, and nothing but finite numbers in range."""

from __future__ import annotations

import copy
import math
import operator
import pickle
import time
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.errors import UsageError
from dpsql.quantities import Delta, Epsilon, Number, Rho, exact

KINDS = (Epsilon, Rho, Delta)
Kind = type[Epsilon] | type[Rho] | type[Delta]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "value", [0.05, "0.05", "5e-2", " 0.05 ", "1/20", Decimal("0.05"), Fraction(1, 20), np.float64(0.05)]
)
def test_a_number_is_read_as_it_is_written(kind: Kind, value: Number) -> None:
    assert kind(value).value == Fraction(1, 20)


@given(st.floats(min_value=1e-290, max_value=1e290))
def test_a_float_is_its_shortest_decimal(value: float) -> None:
    assert Epsilon(value).value == Fraction(repr(value))
    assert float(Epsilon(value)) == value


@given(st.lists(st.fractions(min_value=0, max_value=1), min_size=1, max_size=20))
def test_sums_do_not_round(values: list[Fraction]) -> None:
    total = Rho(0)
    for value in values:
        total = total + Rho(value)
    assert total.value == sum(values)
    for value in values:
        total = total - Rho(value)
    assert total == Rho(0)


def test_ten_tenths_are_one() -> None:
    assert sum((Delta("0.1") for _ in range(9)), Delta("0.1")) == Delta(1) == Delta(0.1) * 10


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, -math.inf, "nan", "inf", "-Infinity", Decimal("NaN"), Decimal("sNaN"), Decimal("Infinity")],
)
def test_what_is_not_finite_is_refused(kind: Kind, value: Number) -> None:
    with pytest.raises(UsageError, match=rf"\[not-(finite|a-number)\].*{kind.__name__}"):
        kind(value)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "value", [True, False, None, b"1", 1j, [1], np.bool_(True), Epsilon(1), "", "one", "0x1p3", "1/0"]
)
def test_what_is_no_number_is_refused(kind: Kind, value: Number) -> None:
    with pytest.raises(UsageError, match=r"\[not-a-number\]"):
        kind(value)


@pytest.mark.parametrize(
    "value", ["1e999999999", "1E-999999999", " 2.5e+88888888 ", "1e٩٩٩٩٩٩٩٩٩", "1e9_9_9", Decimal("1e9999"), 5e-324]
)
def test_an_exponent_that_would_fill_the_memory_is_refused_at_once(value: Number) -> None:
    begun = time.process_time()
    with pytest.raises(UsageError, match=r"\[number-range\]"):
        Epsilon(value)
    assert time.process_time() - begun < 10


@pytest.mark.parametrize("text", ["9" * 5_000, "1e" + "9" * 5_000])
def test_a_text_of_thousands_of_digits_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"\[n"):
        Rho(text)


def test_an_integer_has_any_size() -> None:
    assert exact(10**5_000, "It") == 10**5_000


@pytest.mark.parametrize(
    ("kind", "value", "code"),
    [
        (Epsilon, 0, "epsilon-range"),
        (Epsilon, "-1e-30", "epsilon-range"),
        (Rho, -1, "rho-range"),
        (Delta, "-1e-300", "delta-range"),
    ],
)
def test_what_is_out_of_range_is_refused(kind: Kind, value: Number, code: str) -> None:
    with pytest.raises(UsageError, match=rf"\[{code}\]"):
        kind(value)


def test_a_difference_below_zero_is_refused() -> None:
    with pytest.raises(UsageError, match=r"\[delta-range\]"):
        Delta("0.1") - Delta("0.2")


@pytest.mark.parametrize("act", [operator.add, operator.sub, operator.lt, operator.le, operator.gt, operator.ge])
@pytest.mark.parametrize(
    ("one", "two"),
    [(Rho(1), Delta(1)), (Delta(1), Rho(1)), (Epsilon(1), Rho(1)), (Rho(1), Epsilon(1)), (Rho(1), 1), (1.0, Delta(1))],
)
def test_kinds_do_not_mix(act: Callable[[object, object], object], one: object, two: object) -> None:
    with pytest.raises(TypeError):
        act(one, two)
    assert one != two


def test_epsilons_do_not_add() -> None:
    with pytest.raises(TypeError):
        operator.add(Epsilon(1), Epsilon(1))


@pytest.mark.parametrize("times", [0.5, True, "2", Fraction(1, 2), Rho(2)])
def test_a_quantity_is_multiplied_by_whole_numbers_only(times: object) -> None:
    with pytest.raises(TypeError):
        operator.mul(Rho(1), times)


def test_a_quantity_is_ordered_and_hashed_by_value() -> None:
    assert Epsilon("0.1") < Epsilon("0.2") <= Epsilon(0.2)
    assert {Rho("0.5"), Rho(Fraction(1, 2))} == {Rho("0.5")}


@pytest.mark.parametrize("quantity", [Epsilon("0.3"), Rho(Fraction(1, 3)), Delta("1e-9")])
def test_a_quantity_is_frozen_and_travels(quantity: Epsilon | Rho | Delta) -> None:
    assert pickle.loads(pickle.dumps(quantity)) == copy.deepcopy(quantity) == quantity
    for name, refusal in (("value", FrozenInstanceError), ("other", (AttributeError, TypeError))):
        with pytest.raises(refusal):
            setattr(quantity, name, Fraction(9))


def test_a_quantity_reads_as_a_decimal() -> None:
    assert (repr(Epsilon("0.05")), str(Delta("1e-6")), repr(Rho(Fraction(1, 3)))) == (
        "Epsilon(0.05)",
        "1e-06",
        "Rho(0.333333)",
    )
