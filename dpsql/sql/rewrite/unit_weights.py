"""What a unit adds to coupled measures: all of them times one weight, so that they can be divided by each other.

    c_i       sums over the rows of the unit in the group, in steps, not clamped
    B_i       high_i where c_i > 0, -low_i where it is below
    part_i    sign(c_i) min(|c_i| 2^shift_i, min over k of (|c_i| 2^shift_i B_k) // |c_k|)

The weight is the least B_k / |c_k|, at most 1. With k = i the quotient is B_i 2^shift_i, so no part is beyond its
bound whatever the rows are. A part is a function of the unit's own rows. Most units are within all bounds, and divide
nothing. Rows are at most MOST_STEPS, so products of the sums of 2**33 rows stay below 2**74: they need more than 64
bits, and are exact in all engines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dpsql.sql.ir.measures import Measure
from dpsql.sql.render.clauses import (
    at_least,
    at_most,
    bigint,
    both,
    choose,
    clamp,
    greatest,
    least,
    less_than,
    multiply,
)
from dpsql.sql.render.duckdb import Writer

__all__ = ["UnitWeights"]


@dataclass(frozen=True, slots=True)
class UnitWeights:
    """Columns of what is worked out from: the `sums` of coupled measures, by the places of these in the query.

    `numbers` are those of the rows that count, for sums of distances from the middle of a range. All are `wide`.
    """

    writer: Writer
    measures: Sequence[Measure]
    sums: Mapping[int, str]
    numbers: Mapping[int, str]

    def build_part(self, at: int) -> str:
        """Return what a unit adds to coupled measure number `at`."""
        weight, column = self.measures[at].weight, self.sums[at]
        if at in self.numbers and weight is not None:
            number, bounds = self.numbers[at], self.measures[at].row_bounds
            share = self._share(self._size(at), weight.rows, of=greatest(number, "1"))
            weighed = choose(at_most(number, weight.rows), column, otherwise=self._sign(at, share))
            return bigint(clamp(weighed, bounds.low, high=bounds.high))  # of rows that a DOUBLE rounded
        scale = 1 if weight is None else 1 << weight.shift
        others = [each for each in self.sums if each not in self.numbers and self._is_coupled(at, each)]
        is_within = both(*(self._is_within(each) for each in others))
        size = self._size(at) if scale == 1 else multiply(self._size(at), scale)
        shares = [self._share(size, self._bound(each), of=self._size(each, least=1)) for each in others if each != at]
        most = self._bound(at, scale=scale)
        whole = column if scale == 1 else multiply(column, scale)
        return bigint(choose(is_within, whole, otherwise=self._sign(at, least(most, *shares) if shares else most)))

    def _is_coupled(self, one: int, other: int) -> bool:
        first, second = self.measures[one].weight, self.measures[other].weight
        return first is not None and second is not None and first.number == second.number

    def _share(self, size: str, bound: str | int, *, of: str) -> str:
        """Return the part of a size that a bound is of a number, rounded down."""
        return self.writer.divide_wide(multiply(size, bound), of)

    def _is_within(self, at: int) -> str:
        bounds = self.measures[at].row_bounds
        return both(at_least(self.sums[at], bounds.low), at_most(self.sums[at], bounds.high))

    def _size(self, at: int, *, least: int = 0) -> str:
        """Return the distance of a sum from 0, or `least` if that is greater."""
        bounds, column = self.measures[at].row_bounds, self.sums[at]
        sides = [column] * (bounds.high > 0) + [f"-{column}"] * (bounds.low < 0) + [f"{least:d}"] * (least > 0)
        return greatest(*sides) if len(sides) > 1 else sides[0]

    def _bound(self, at: int, *, scale: int = 1) -> str:
        """Return the bound on the side of a sum, in steps of which `scale` are one of the rows."""
        bounds = self.measures[at].row_bounds
        low, high = f"{-bounds.low * scale:d}", f"{bounds.high * scale:d}"
        if bounds.low < 0 < bounds.high:
            return choose(less_than(self.sums[at], "0"), low, otherwise=high)
        return low if bounds.low < 0 else high

    def _sign(self, at: int, size: str) -> str:
        """Return a size on the side of a sum."""
        bounds = self.measures[at].row_bounds
        if bounds.low < 0 < bounds.high:
            return multiply(size, choose(less_than(self.sums[at], "0"), "-1", otherwise="1"))
        return f"-{size}" if bounds.low < 0 else size
