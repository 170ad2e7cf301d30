"""The optimal adaptive composition of bounded-range steps, bounded from above: the certificate `optimal`.

V_k(x) is the largest sum of max(0, P - x Q) that an analyst reaches with k steps of epsilon-bounded range, choosing
each after seeing the answers before it. It is convex and falling in x, and `maths.md` 6.4 proves

    V_k(x) = max over u in [x / e**epsilon, x] of the chord of V_(k-1) from u to u e**epsilon, taken at x.

So a piecewise linear curve through upper bounds on a grid lies above V_(k-1), and on every cell of u the chord of that
curve lies below the tangent at the cell's middle. Each step takes the highest of these tangents: an upper bound again,
too high by about 2 / cells**2 of what the step adds. Floats: the grid of ln x is made of multiples of one double of 30
bits, hence exact, and epsilon is rounded up to it; every step adds `_SLACK` times the value at the left end of its
reach, 8 times what its roundings can add up to (6.5).

Source: the recursion is that of Dong, Durfee and Rogers 2020, arXiv:1909.13830, as re-derived in `maths.md` 6.4; the
certified bound is ours. A session must hold to it that every item is of bounded range with at most this epsilon.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dpsql.accounting.guarantees import BoundedRange, delta_of_zcdp, epsilon_of_zcdp
from dpsql.errors import UsageError
from dpsql.quantities import Delta, Epsilon, Rho

MOST_ITEMS = 5_000
_CELLS = 32  # of one epsilon
_WIDEST = 8.0  # the largest epsilon of an item: a cell is then 1/4 wide, as 6.5 supposes
_BITS = 30
_PRECISION = 120
_SLACK = 2.0**-44
_UP = 1.0 + 2.0**-44
_FURTHER = 10**4  # the grid ends where delta is that many times smaller than the target
_LEFTMOST = 12.0
_LEAST = Fraction(1, 10**280)  # below it doubles may underflow
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Cells:
    """The numbers of one step that are the same for every x: per cell of u, at its middle."""

    width: float
    p: Floats
    q: Floats
    tilt: Floats  # the derivative of p, times the reach of a tangent
    reach: float
    share: float  # of the right node in the middle of a cell
    dent: float

    @property
    def epsilon(self) -> float:
        """Return the epsilon that is computed with, not below the one that was given."""
        return _CELLS * self.width


def _cells(epsilon: Epsilon) -> _Cells:
    import mpmath  # only the certificate `optimal` pays for the import

    fine = float(epsilon) / _CELLS
    # The width has 30 bits, and a node's number fewer than 23: their product is exact in a double of 53 bits. One unit
    # more than rounded down is above the epsilon that was given.
    unit = math.ldexp(1.0, math.frexp(fine)[1] - _BITS)
    width = (math.floor(fine / unit) + 1) * unit
    context = mpmath.MPContext()  # its own: the precision of the common one may be changed back by another thread
    context.prec = _PRECISION
    step, whole = context.mpf(width), context.mpf(width) * _CELLS
    half, total = context.exp(step / 2), context.expm1(whole)
    middles = [(cell + context.mpf("0.5")) * step for cell in range(_CELLS)]
    p = [context.expm1(t - whole) / context.expm1(-whole) for t in middles]
    reach = half * (half - 1)
    return _Cells(
        width=width,
        p=np.array([float(each) for each in p]),
        q=np.array([float(1 - each) for each in p]),
        tilt=np.array([float(reach * context.exp(cell * step) / total) for cell in range(_CELLS)]),
        reach=float(reach / (half * half - 1)),
        share=float(1 / (1 + half)),
        dent=float((1 - 1 / half) ** 2 * context.exp(whole) / total / (half * half - 1)),
    )


def _step(curve: Floats, cells: _Cells) -> Floats:
    """Return upper bounds on V_k at the nodes, from those on V_(k-1)."""
    size, distance = len(curve), np.arange(_CELLS, 0, -1) * cells.width
    left = (curve[0] * np.exp(-distance) - np.expm1(-distance)) * _UP  # convex, and 1 at x = 0
    # Left of the grid the chord from (0, 1) to the first node; right of it the last value, since the curve falls.
    nodes = np.concatenate([left, curve, np.full(_CELLS, curve[-1])])
    middles = (1.0 - cells.share) * nodes[:-1] + cells.share * nodes[1:]
    falls = nodes[:-1] - nodes[1:]
    slopes = cells.reach * falls
    width = math.expm1(cells.width)
    rise = width * (nodes[_CELLS:-1] - nodes[: -_CELLS - 1]) + falls[_CELLS:] - falls[:-_CELLS]
    dents = cells.dent * np.maximum(rise, 0.0)  # 0 but for roundings: the curve is convex
    # One more step never lowers V: it may be idle.
    best = curve.copy()
    for cell in range(_CELLS):
        near = slice(_CELLS - 1 - cell, _CELLS - 1 - cell + size)
        far = slice(near.start + _CELLS, near.stop + _CELLS)
        p, q = cells.p[cell], cells.q[cell]
        value = p * middles[near] + q * middles[far] + dents[near]
        tilt = cells.tilt[cell] * (middles[near] - middles[far]) - (p * slopes[near] + q * slopes[far])
        np.maximum(best, value + np.abs(tilt), out=best)
    best += _SLACK * nodes[:size]
    # V falls in x and is at most 1, so that each bound may be lowered to those before it.
    return np.asarray(np.minimum.accumulate(np.minimum(best, 1.0)))


def _curves(cells: _Cells, *, first: int, last: int) -> Iterator[Floats]:
    """Yield upper bounds on V_0, V_1, ... at the nodes exp(i width), i from `first` to `last`."""
    points = np.arange(first, last + 1) * cells.width
    curve = np.maximum(0.0, -np.expm1(points)) * _UP
    done = 0
    while True:
        yield curve
        done += 1
        curve = _step(curve, cells)
        curve[max(0, done * _CELLS - first) :] = 0.0  # k steps are k epsilon private


def _check(k: int, epsilon: Epsilon) -> None:
    if not 1 <= k <= MOST_ITEMS or float(epsilon) > _WIDEST:
        reason = f"The adaptive optimum is computed for 1 to {MOST_ITEMS:,} items of an epsilon of at most 8."
        raise UsageError("composition-range", reason)


def _ends(cells: _Cells, k: int, *, last: float) -> tuple[int, int]:
    """Return the first and last node of a grid that loses little outside; any grid gives upper bounds."""
    right = min(k * cells.epsilon, last)
    left = min(k * cells.epsilon, _LEFTMOST, right)
    return -math.ceil(left / cells.width), math.ceil(right / cells.width) + 1


def _rho(k: int, epsilon: Epsilon) -> Rho:
    return BoundedRange(epsilon).rho * k


@lru_cache(maxsize=64)
def adaptive_epsilon(k: int, epsilon: Epsilon, *, delta: Delta) -> float:
    """Return a total for which `k` adaptively chosen items of `epsilon` are (total, delta)-private, rounded up.

    It lies about 0.1 % above the optimum (6.4), and never above k epsilon or what zero-concentration gives.
    """
    _check(k, epsilon)
    plain = min(float(k * epsilon.value) * _UP, epsilon_of_zcdp(_rho(k, epsilon), delta))
    if delta.value < _LEAST:
        return plain
    cells, level = _cells(epsilon), float(delta) / _UP
    reach = epsilon_of_zcdp(_rho(k, epsilon), Delta(delta.value / _FURTHER))
    first, last = _ends(cells, k, last=reach)
    curve = next(curve for done, curve in enumerate(_curves(cells, first=first, last=last)) if done == k)
    # argmax is 0 both for a first node that is low enough and for none: either way the plain bound is taken.
    below = int(np.argmax(curve <= level))
    if curve[below] > level or below == 0:
        return plain
    before, after = float(curve[below - 1]), float(curve[below])
    share = (before - level) / (before - after) * _UP  # the chord of a convex curve lies above it
    inside = math.log1p(share * math.expm1(cells.width))
    return min(plain, max(0.0, (first + below - 1) * cells.width + inside + 2.0**-40 * cells.width) * _UP)


def _at(curve: Floats, cells: _Cells, *, first: int, total: Epsilon) -> float:
    """Return the chord of two neighbouring nodes at exp(total), rounded up."""
    node = math.floor(total.value / Fraction(cells.width))
    place = node - first
    if place + 1 >= len(curve):
        return float(curve[-1])
    inside = float(total.value - node * Fraction(cells.width))
    share = math.expm1(inside) / math.expm1(cells.width) / _UP
    return float((1.0 - share) * curve[place] + share * curve[place + 1]) * _UP


def adaptive_delta(k: int, epsilon: Epsilon, *, total: Epsilon) -> float:
    """Return a delta for which `k` adaptively chosen items of `epsilon` are (total, delta)-private, rounded up."""
    _check(k, epsilon)
    if k * epsilon.value <= total.value:
        return 0.0
    plain = delta_of_zcdp(_rho(k, epsilon), total)
    cells = _cells(epsilon)
    further = Delta(max(Fraction(plain), _LEAST) / _FURTHER)
    first, last = _ends(cells, k, last=epsilon_of_zcdp(_rho(k, epsilon), further))
    curve = next(curve for done, curve in enumerate(_curves(cells, first=first, last=last)) if done == k)
    return min(plain, max(sys.float_info.min, _at(curve, cells, first=first, total=total)))


def adaptive_items(epsilon: Epsilon, *, total: Epsilon, delta: Delta) -> int:
    """Return how many items of `epsilon` are certainly (total, delta)-private; MOST_ITEMS if more."""
    _check(1, epsilon)
    enough = _search(epsilon, total=total, delta=delta)
    if delta.value < _LEAST or enough == MOST_ITEMS:
        return enough
    cells, level = _cells(epsilon), float(delta) / _UP
    reach = epsilon_of_zcdp(_rho(min(5 * enough // 4 + 2, MOST_ITEMS), epsilon), Delta(delta.value / _FURTHER))
    first, last = _ends(cells, MOST_ITEMS, last=max(reach, float(total) * _UP))
    for k, curve in enumerate(_curves(cells, first=first, last=last)):
        # V rises in k: the first k that is too many ends the search, and up to `enough` rho has shown that all is well.
        if k > enough and _at(curve, cells, first=first, total=total) > level:
            return k - 1
        if k == MOST_ITEMS:
            break
    return MOST_ITEMS


def _search(epsilon: Epsilon, *, total: Epsilon, delta: Delta) -> int:
    """Return how many items zero-concentration or the plain sum allows, at most MOST_ITEMS."""
    low, high = math.floor(total.value / epsilon.value), MOST_ITEMS + 1
    while high - low > 1:
        middle = (low + high) // 2
        if Fraction(delta_of_zcdp(_rho(middle, epsilon), total)) <= delta.value:
            low = middle
        else:
            high = middle
    return min(low, MOST_ITEMS)
