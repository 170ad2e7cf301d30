"""Every adaptive analyst at once: the exact optimum of the hockey stick over all strategies, under given books."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Protocol, TypeVar

from support.laws import BOTTOM, label_law

from dpsql.mechanisms import LimitedDomain, Selection

State = TypeVar("State", bound=Hashable)
Counts = Mapping[str, int]


@dataclass(frozen=True)
class Outcome:
    """What the books see of an answer, and how likely it is with and without one privacy unit."""

    selections: tuple[Selection, ...]
    p: float
    q: float


@dataclass(frozen=True)
class Query:
    """One mechanism, or several asked together before any is answered, on one pair of neighbours."""

    parts: tuple[LimitedDomain, ...]
    outcomes: tuple[Outcome, ...]

    def turned(self) -> Query:
        return replace(self, outcomes=tuple(replace(one, p=one.q, q=one.p) for one in self.outcomes))

    def beside(self, other: Query) -> Query:
        both = (
            Outcome((*one.selections, *two.selections), one.p * two.p, one.q * two.q)
            for one, two in product(self.outcomes, other.outcomes)
        )
        return Query((*self.parts, *other.parts), tuple(both))


def query(mechanism: LimitedDomain, counts: Counts, more: Counts) -> Query:
    """Return the query on two neighbouring tables; answers of one ratio and one price are one outcome."""
    here, there = label_law(mechanism, counts), label_law(mechanism, more)
    merged: defaultdict[tuple[Selection, float], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for event in here.keys() | there.keys():
        p, q = here.get(event, 0.0), there.get(event, 0.0)
        stopped = event[-1] == BOTTOM
        selection = Selection(tuple(range(len(event) - stopped)), stopped)
        cell = merged[selection, round(math.log(p / q), 12) if p and q else math.inf * (1 if p else -1)]
        cell[0] += p
        cell[1] += q
    return Query((mechanism,), tuple(Outcome((selection,), p, q) for (selection, _), (p, q) in merged.items()))


class Books(Protocol[State]):
    """What decides whether a query is admitted, and what an answer leaves."""

    def fresh(self) -> State: ...

    def admits(self, state: State, asked: Query) -> bool: ...

    def after(self, state: State, asked: Query, outcome: Outcome) -> State: ...


def optimum(books: Books[State], menu: Sequence[Query], level: float) -> float:
    """Return the largest hockey stick that any adaptive strategy reaches."""
    factor, known = math.exp(level), dict[tuple[State, float], float]()

    def scaled(state: State, ratio: float) -> float:
        """Return the optimum of what follows, for P of 1 and Q of `ratio` so far."""
        key = state, round(ratio, 13)
        if key not in known:
            best = max(0.0, 1.0 - factor * ratio)
            for asked in menu:
                if books.admits(state, asked):
                    followed = (
                        weighted(books.after(state, asked, one), one.p, ratio * one.q) for one in asked.outcomes
                    )
                    best = max(best, math.fsum(followed))
            known[key] = best
        return known[key]

    def weighted(state: State, p: float, q: float) -> float:
        return p * scaled(state, q / p) if p and q else p

    return scaled(books.fresh(), 1.0)
