"""Law of a choice among known names with an evidence line, from the formulas in `maths.md` 9.4.2 alone.

A `Terms` is production by default; each known mistake changes one of its functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from support.laws import BOTTOM, Steps, discrete_gaussian_law, peeling_law

__all__ = ["BETA", "OPEN", "Terms", "chance_of_names", "evident_law", "items"]

BETA = 0.05
OPEN = "open"
Scores = Sequence[int]


def find_bottom(terms: Terms, counts: Scores) -> float:
    """Return where BOTTOM stands: all names are counted, whether a row has them or not."""
    return terms.most * math.log(len(counts) / terms.chance) / terms.epsilon


def asks_gate(terms: Terms, counts: Scores) -> bool:
    """Return whether the gate is asked where items are left: always."""
    return terms.has_gate and bool(counts)


@dataclass(frozen=True)
class Terms:
    """Parameters of one query, and the parts that a mistake may change."""

    epsilon: float
    k: int
    most: int = 1
    has_gate: bool = True
    beta: float = BETA
    bottom: Callable[[Terms, Scores], float] = find_bottom
    asks: Callable[[Terms, Scores], bool] = asks_gate
    share: float = 0.1
    gate_noise: float = 1.0
    behind: float = 0.9

    @property
    def chance(self) -> float:
        """Return what BOTTOM and the gate may each let through."""
        return self.beta / 2 if self.has_gate and self.k > 1 else self.beta


def evident_law(counts: Scores, terms: Terms) -> dict[Steps, float]:
    """Return the law: names, BOTTOM, OPEN if the gate opened, and the names behind it."""
    law: dict[Steps, float] = {}
    bottom = terms.bottom(terms, counts)
    for steps, mass in peeling_law(counts, bottom, terms.epsilon / terms.most, terms.k).items():
        above = [int(at) for at in steps if at != BOTTOM]
        rest = [at for at in range(len(counts)) if at not in above]
        left = terms.k - len(above) - 1
        if BOTTOM not in steps or left < 1 or not rest or not terms.asks(terms, counts):
            law[steps] = law.get(steps, 0.0) + mass
            continue
        opens = _find_chance(terms, left, largest=max(counts[at] for at in rest))
        law[steps] = mass * (1 - opens)
        epsilon = terms.epsilon * math.sqrt(terms.behind * left / (terms.k - len(above))) / terms.most
        behind = peeling_law([counts[at] for at in rest], None, epsilon, terms.k - len(above))
        for more, chance in behind.items():
            law[(*steps, OPEN, *(rest[int(at)] for at in more))] = mass * opens * chance
    return {steps: mass for steps, mass in law.items() if mass > 0.0}


def _find_chance(terms: Terms, left: int, *, largest: int) -> float:
    """Return with what probability the gate opens."""
    rho = terms.share * left * terms.epsilon**2 / 8
    variance = Fraction(terms.gate_noise * terms.most**2 / (2 * rho)).limit_denominator(10**9)
    masses = discrete_gaussian_law(variance)

    def tail(least: int) -> float:
        return math.fsum(mass for n, mass in masses.items() if n >= least)

    height = 0
    while tail(height) > terms.chance:
        height += 1
    return tail(height - largest)


def chance_of_names(terms: Terms) -> float:
    """Return with what probability a name is returned where no row has any, however many there are."""
    first = 1 / (1 + 1 / terms.chance)
    if not terms.has_gate or terms.k == 1:
        return first
    return first + (1 - first) * _find_chance(terms, terms.k - 1, largest=0)


def items(steps: Steps, terms: Terms) -> float:
    """Return what an outcome costs, in items: all names before BOTTOM, BOTTOM, and a tenth or all of the rest."""
    if BOTTOM not in steps:
        return float(len(steps))
    above = steps.index(BOTTOM)
    left = (terms.k - above - 1) if terms.has_gate else 0
    return above + 1 + left * (1.0 if OPEN in steps else 0.1)
