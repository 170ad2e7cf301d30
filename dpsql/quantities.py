"""Epsilon, Rho and Delta: the numbers of a privacy guarantee, exact and not interchangeable.

Each holds a `fractions.Fraction`, so sums and comparisons never round. A float is read by its shortest decimal
(`Epsilon(0.05)` is exactly 1/20, what the writer meant), never by its binary value.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import ClassVar, Self

from dpsql.errors import UsageError

_KINDS = "int, float, Decimal, Fraction or decimal text"
_EXPONENT = re.compile(r"[eE]([+-]?[\d_]+)\s*\Z")
_LARGEST_EXPONENT = 300  # 1e999999999 is eleven characters of text and a gigabyte of digits
Number = int | float | str | Decimal | Fraction


def exact(value: Number, what: str) -> Fraction:
    """Return `value` as a Fraction; refuse booleans, NaN, infinities and what is no number, naming it `what`."""
    if type(value) is Fraction:
        return value
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal | Fraction):
        raise UsageError(
            "not-a-number",
            f"{what} must be a number ({_KINDS}), not {type(value).__name__}.",
            hint='Such as 0.05 or "0.05".',
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError("not-finite", f"{what} must be a finite number.", hint="NaN and infinity bound nothing.")
    if isinstance(value, int | Fraction):
        return Fraction(value)
    text = float.__repr__(value) if isinstance(value, float) else str(value)
    try:
        exponent = _EXPONENT.search(text)
        if exponent and abs(int(exponent[1])) > _LARGEST_EXPONENT:
            raise UsageError(
                "number-range",
                f"{what} must have an exponent between -300 and 300.",
                hint="Write a number of that size.",
            )
        return Fraction(text)
    except (ValueError, ZeroDivisionError) as error:
        raise UsageError(
            "not-a-number", f"{what} must be a finite number written in decimal digits.", hint='Such as 0.05 or "1e-6".'
        ) from error


@dataclass(frozen=True, slots=True, order=True, init=False)
class _Quantity:
    """An exact number that is at least 0, or above it; its class has the error for one that is not."""

    value: Fraction
    _is_positive: ClassVar[bool] = False
    _range: ClassVar[tuple[str, str, str]]

    def __init__(self, value: Number) -> None:
        fraction = exact(value, type(self).__name__)
        if fraction.numerator < self._is_positive:
            code, reason, hint = self._range
            raise UsageError(code, reason, hint=hint)
        object.__setattr__(self, "value", fraction)

    def __float__(self) -> float:
        return float(self.value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self})"

    def __str__(self) -> str:
        return f"{float(self.value):.6g}"


class _Additive(_Quantity):
    """A quantity that composes by addition; only with its own kind."""

    __slots__ = ()

    def __add__(self, other: Self) -> Self:
        if type(other) is not type(self):
            return NotImplemented
        return type(self)(self.value + other.value)

    def __sub__(self, other: Self) -> Self:
        if type(other) is not type(self):
            return NotImplemented
        return type(self)(self.value - other.value)

    def __mul__(self, times: int) -> Self:
        if isinstance(times, bool) or not isinstance(times, int):
            return NotImplemented
        return type(self)(self.value * times)


class Epsilon(_Quantity):
    """A pure or bounded-range privacy parameter, positive and finite; `UsageError` for what is none.

    >>> Epsilon(0.05).value, Epsilon("1e-3").value
    (Fraction(1, 20), Fraction(1, 1000))
    """

    __slots__ = ()
    _is_positive = True
    _range = "epsilon-range", "Epsilon must be greater than 0.", "Such as 0.05."


class Rho(_Additive):
    """A zero-concentrated privacy loss (Bun and Steinke 2016), at least 0; composes by addition.

    >>> Rho("0.25") + Rho("0.5")
    Rho(0.75)
    """

    __slots__ = ()
    _range = "rho-range", "Rho must be at least 0.", "A loss is never negative."


class Delta(_Additive):
    """A probability that the guarantee may fail, at least 0; composes by addition.

    >>> Delta("1e-6") + Delta("1e-6")
    Delta(2e-06)
    """

    __slots__ = ()
    _range = "delta-range", "Delta must be at least 0.", "Such as 1e-6."
