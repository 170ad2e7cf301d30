"""Law of known names with an evidence line, on every path: BOTTOM first, the gate shut, the gate open."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import combinations_with_replacement, product

from properties.mechanisms.laws.record import Bar, MechanismLaw
from support.evidence_kit import Terms, evident_law, items
from support.laws import cks, hockey_stick

Counts = tuple[int, ...]


Pair = tuple[Counts, Counts]


ORDERS = (1.01, 2.0, 4.0, 16.0)


LEVELS = (0.05, 0.2, 1.0, 3.0)


PARAMETERS = [Terms(epsilon, k) for epsilon in (0.1, 1.0, 3.0) for k in (1, 2, 3)]


WIDE = [Terms(1.0, 2, most=2), Terms(3.0, 3, most=2), Terms(2.0, 2, has_gate=False)]


law = cache(evident_law)


def pairs(names: int, *, most: int = 1) -> Iterator[Pair]:
    """Yield all neighbours in one order: a unit adds up to `most` to any names of a list, alike or not."""
    for counts in combinations_with_replacement((4, 1, 0), names):
        for unit in product(range(most + 1), repeat=names):
            if any(unit):
                yield counts, tuple(count + more for count, more in zip(counts, unit, strict=True))


def paid(terms: Terms, here: Counts, there: Counts) -> float:
    """Return the largest E_Q[(P/Q)**a exp(-a (a - 1) charge)] over the orders: at most 1 if no answer cost more."""
    p, q = law(here, terms), law(there, terms)
    if p.keys() != q.keys():
        return math.inf
    item, worst = terms.epsilon**2 / 8, 0.0
    for order in ORDERS:
        each = (
            order * math.log(mass) + (1 - order) * math.log(q[steps]) - order * (order - 1) * items(steps, terms) * item
            for steps, mass in p.items()
        )
        logs = list(each)
        top = max(logs)
        worst = max(worst, top + math.log(math.fsum(math.exp(each - top) for each in logs)))
    return math.exp(min(worst, 700.0))


def converted(terms: Terms, here: Counts, there: Counts) -> float:
    """Return the worst hockey stick as a part of what k items convert into, with a delta of 0."""
    rho = Fraction(terms.k * terms.epsilon**2 / 8)
    p, q = law(here, terms), law(there, terms)
    return max(hockey_stick(p, q, level) / cks(rho, level) for level in LEVELS)


def worst(check: Callable[[Terms, Counts, Counts], float], every: Sequence[Terms]) -> float:
    return max(
        check(terms, *pair)
        for terms in every
        for names in range(terms.k, 4)
        for one in pairs(names, most=terms.most)
        for pair in (one, one[::-1])
    )


def without_absent(terms: Terms, counts: Sequence[int]) -> float:
    """Leave names without rows out of the number of candidates."""
    return terms.most * math.log(max(1, sum(map(bool, counts))) / terms.chance) / terms.epsilon


LEAKS = {
    "absent names are left out of m": {"bottom": without_absent},
    "the gate is skipped where no known name has rows": {"asks": lambda _, counts: any(counts)},
    "the gate has a third of its noise": {"gate_noise": 0.1},
    "behind the gate all items are used ten times": {"behind": 9.0},
}


def wrong(changes: dict[str, object]) -> Bar:
    terms = [replace(each, **changes) for each in PARAMETERS if each.k == 2]  # type: ignore[arg-type]
    return 1.0005, lambda: worst(paid, terms)


LAW = MechanismLaw(
    claims={
        "no answer loses more than it is charged": (0.99, lambda: worst(paid, [*PARAMETERS, *WIDE])),
        "what k items claim": (0.2, lambda: worst(converted, [*PARAMETERS, *WIDE])),
    },
    mistakes={name: wrong(changes) for name, changes in LEAKS.items()},
)
