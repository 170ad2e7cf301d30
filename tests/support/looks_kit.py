"""Two looks and the gate in tests: their price and law spelled out, and the second statement in place of the first."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import replace
from fractions import Fraction

import dpsql
from dpsql.accounting import discrete_gaussian_offset, discrete_gaussian_tail
from dpsql.engines import Exact, Statement
from dpsql.mechanisms.two_looks import Answerer
from dpsql.plan import Plan
from dpsql.session import Session

__all__ = [
    "AT_ONCE",
    "DISCOVERY",
    "GATE",
    "HISTOGRAM",
    "LEADERS",
    "WEIGHTS",
    "behind",
    "execute_once",
    "find_answerer",
    "find_opening",
    "price_looks",
    "second_alone",
]

AT_ONCE, LEADERS, WEIGHTS = Answerer.AT_ONCE.value, Answerer.LEADERS.value, Answerer.WEIGHTS.value
DISCOVERY, HISTOGRAM = Answerer.DISCOVERY.value, Answerer.HISTOGRAM.value
GATE = Fraction(3, 100)  # of the rho of the keys, for the gate; what answers behind it has the rest


def find_answerer(legs: str) -> str:
    """Return what answered, in the words of a receipt."""
    return legs.rpartition("; ")[2].partition(":")[0]


def take_root(square: Fraction) -> Fraction:
    """Return an epsilon whose square is at most this: twelve decimals."""
    return Fraction(math.isqrt(math.floor(square * 10**24)), 10**12)


def price_looks(epsilon: dpsql.Epsilon, answerer: str, *, k: int, found: int, discovered: int = 0) -> Fraction:
    """Return the rho of the looks and of the keys, from the text of the rule and not from the code under test.

    A look costs 3 % of k items; what answers has the rest, and the limited domain costs what it draws of that.
    """
    rho = k * epsilon.value**2 / 8
    drawn = found + (found < k)  # with BOTTOM
    if answerer == AT_ONCE:
        return rho * 3 / 100 + drawn * take_root(8 * rho * 97 / 100 / k) ** 2 / 8
    if answerer == LEADERS:
        return rho * 6 / 100 + drawn * take_root(8 * rho * 94 / 100 / k) ** 2 / 8
    if answerer == WEIGHTS:
        return rho
    assert answerer == DISCOVERY
    half = rho * 47 / 100
    return rho * 6 / 100 + half + (k * take_root(8 * half / k) ** 2 / 8 if discovered > k else 0)


def find_opening(
    values: Iterable[int], *, k: int, threshold: int, square: int, epsilon: Fraction = Fraction(1)
) -> float:
    """Return the exact probability that a gate of k items opens, from the text of the rule and not from the code.

    It sees the k largest values, each from a fifth of the threshold on and for 14 fifths of it at most. The sensitivity
    is the root of `square`, rounded up. On no row it opens with the least probability that is not above the allowed.
    """
    total = sum(min(max(value - threshold // 5, 0), 14 * threshold // 5) for value in sorted(values)[-k:])
    root = math.isqrt(square)
    variance = Fraction((root + (root * root < square)) ** 2) / (2 * GATE * k * epsilon**2 / 8)
    allowed = Fraction(3, 8) if k <= 5 else max(Fraction(1, 10), Fraction(5, 2) / k)
    least = discrete_gaussian_offset(variance, float((allowed - GATE) / (1 - GATE))) - total
    return discrete_gaussian_tail(variance, least) if least > 0 else 1 - discrete_gaussian_tail(variance, 1 - least)


def behind(opening: float, law: Mapping[Hashable, float]) -> dict[Hashable, float]:
    """Return the law of the released rows behind a gate that opens so often, and otherwise shows none."""
    gated = {shown: opening * mass for shown, mass in law.items()}
    return gated | {(): gated.get((), 0.0) + 1 - opening}


def execute_once(session: Session) -> Callable[[Statement], Exact]:
    """Return an engine's execute that runs each statement once, for many draws from the same rows."""
    known: dict[str, Exact] = {}

    def execute(statement: Statement) -> Exact:
        if statement.sql not in known:
            known[statement.sql] = session._dependencies.engine.execute(statement)
        return known[statement.sql]

    return execute


def second_alone(plan: Plan) -> Plan:
    """Return the plan with the second statement as the one that it runs; any other plan as it is."""
    second = plan.spec.second
    return plan if second is None else replace(plan, spec=replace(plan.spec, rows=second, build_second=None))
