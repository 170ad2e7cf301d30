"""Law of peeling over a known domain, for every neighbour of every small histogram."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from itertools import combinations_with_replacement, permutations, product

from properties.mechanisms.laws.record import Bar, MechanismLaw
from support.laws import Steps, cks, hockey_stick, peeling_law, renyi

from dpsql.mechanisms import Peeling
from dpsql.quantities import Epsilon

Counts = tuple[int, ...]  # of the candidates a, b, ... of the domain, which stay in this order


Law = Mapping[Steps, float]


ORDERS = (1.001, 1.5, 2.0, 4.0, 16.0, 64.0)


LEVELS = (0.02, 0.1, 0.5, 1.0, 2.0, 4.0)


@cache
def production(mechanism: Peeling, counts: Counts) -> dict[Steps, float]:
    return peeling_law(counts, None, float(mechanism.epsilon), mechanism.k)


@dataclass(frozen=True)
class Variant:
    """A way to build the mechanism and to charge one step; the defaults are the production code's."""

    law: Callable[[Peeling, Counts], Law] = production
    step: Callable[[Peeling], Fraction] = lambda mechanism: mechanism.worst_case.rho.value / mechanism.k


PRODUCTION = Variant()


def pure(mechanism: Peeling, p: Law, q: Law, _: Fraction) -> float:
    """Return the largest log-likelihood ratio as a part of k * epsilon."""
    return max(math.log(mass / q[event]) for event, mass in p.items()) / (mechanism.k * float(mechanism.epsilon))


def orders(mechanism: Peeling, p: Law, q: Law, step: Fraction) -> float:
    """Return the worst Renyi divergence as a part of alpha * rho."""
    logs = [{event: math.log(mass) for event, mass in law.items()} for law in (p, q)]
    return max(renyi(*logs, order) / (order * mechanism.k * float(step)) for order in ORDERS)


def levels(mechanism: Peeling, p: Law, q: Law, step: Fraction) -> float:
    """Return the worst hockey stick as a part of what rho converts into, with a delta of 0."""
    return max(hockey_stick(p, q, level) / cks(mechanism.k * step, level) for level in LEVELS)


def prefixes(law: Law) -> dict[Steps, float]:
    """Return how likely an answer begins with each sequence."""
    masses = defaultdict[Steps, float](float)
    for steps, mass in law.items():
        for length in range(len(steps) + 1):
            masses[steps[:length]] += mass
    return dict(masses)


def ranges(mechanism: Peeling, p: Law, q: Law, _: Fraction) -> float:
    """Return the widest range of one step's log-likelihood ratio, given what came before, as a part of epsilon."""
    here, there = prefixes(p), prefixes(q)
    ratios = defaultdict[Steps, list[float]](list)
    for steps in here:
        if steps:
            ratios[steps[:-1]].append(math.log(here[steps] / there[steps]))
    return max(max(step) - min(step) for step in ratios.values()) / float(mechanism.epsilon)


def stopping(_: Peeling, p: Law, q: Law, step: Fraction) -> float:
    """Return the largest E_Q[(P/Q)**alpha * exp(-alpha (alpha - 1) paid)] of an analyst who reads one step, then
    goes on or stops as the answers suggest, and pays for what was read.
    """
    here, there = prefixes(p), prefixes(q)

    def best(steps: Steps, order: float) -> float:
        paid = order * (order - 1.0) * len(steps) * float(step)
        stopped = math.exp(order * math.log(here[steps]) + (1.0 - order) * math.log(there[steps]) - paid)
        further = [(*steps, at) for at in candidates if (*steps, at) in here]
        if not further:
            return stopped
        read_on = math.fsum(best(each, order) for each in further)
        return max(stopped, read_on) if steps else read_on

    candidates = {at for steps in p for at in steps}
    return max(best((), order) for order in (1.5, 4.0))


CHECKS = {"pure": pure, "Renyi": orders, "hockey stick": levels, "range": ranges, "stopping": stopping}


def pairs(candidates: int) -> Iterator[tuple[Counts, Counts]]:
    """Yield all neighbours, in one of the two orders; a law does not care for the names of its candidates."""
    for counts in combinations_with_replacement((5, 2, 1, 0), candidates):
        for unit in product((0, 1), repeat=candidates):
            if any(unit):
                yield counts, tuple(count + more for count, more in zip(counts, unit, strict=True))


def worst(check: str, mechanisms: Sequence[Peeling], variant: Variant = PRODUCTION) -> float:
    """Return the worst result of a check over all neighbours in both orders; infinite where a law has no room."""
    found = 0.0
    for mechanism in mechanisms:
        for candidates in (1, 2, 3, 4):
            for pair in pairs(candidates):
                p, q = (variant.law(mechanism, counts) for counts in pair)
                if p.keys() != q.keys():
                    return math.inf
                step = variant.step(mechanism)
                found = max(found, CHECKS[check](mechanism, p, q, step), CHECKS[check](mechanism, q, p, step))
    return found


MECHANISMS = [Peeling(Epsilon(epsilon), k) for epsilon in ("0.1", "0.5", "1", "3") for k in (1, 2, 3, 4)]


def of_those(law: Callable[[Peeling, Counts], Law], kept: Callable[[Counts], list[int]]) -> Callable[..., Law]:
    """Return a law over a part of the domain, with the positions of the whole."""

    def partial(mechanism: Peeling, counts: Counts) -> Law:
        positions = kept(counts)
        smaller = law(mechanism, tuple(counts[at] for at in positions))
        return {tuple(positions[int(at)] for at in steps): mass for steps, mass in smaller.items()}

    return partial


def permute_and_flip(mechanism: Peeling, counts: Counts) -> Law:
    """Return the law of repeated permute-and-flip: candidates come in a random order, each is taken or passed over."""

    @cache
    def one(left: tuple[int, ...]) -> dict[int, float]:
        best, law = max(counts[at] for at in left), dict.fromkeys(left, 0.0)
        taken = {at: math.exp(float(mechanism.epsilon) * (counts[at] - best)) for at in left}
        for order in permutations(left):
            reached = 1.0 / math.factorial(len(left))
            for at in order:
                law[at] += reached * taken[at]
                reached *= 1.0 - taken[at]
        return law

    def draw(steps: Steps, mass: float) -> Iterator[tuple[Steps, float]]:
        left = tuple(at for at in range(len(counts)) if at not in steps)
        if not left or len(steps) == mechanism.k:
            yield steps, mass
            return
        for at, part in one(left).items():
            yield from draw((*steps, at), mass * part)

    return dict(draw((), 1.0))


def doubled(mechanism: Peeling, counts: Counts) -> Law:
    return production(Peeling(Epsilon(2 * mechanism.epsilon.value), mechanism.k), counts)


def present(counts: Counts) -> list[int]:
    return [at for at, count in enumerate(counts) if count]


def present_or_first(counts: Counts) -> list[int]:
    return sorted({0, *present(counts)})


def two_leaders(counts: Counts) -> list[int]:
    return sorted(sorted(range(len(counts)), key=lambda at: -counts[at])[:2])


MISTAKES: dict[str, tuple[str, float, Variant]] = {
    "absent candidates left out": ("pure", 1e9, Variant(law=of_those(production, present))),
    "the candidates present and some more": ("pure", 1e9, Variant(law=of_those(production, present_or_first))),
    "the leaders alone, without BOTTOM": ("pure", 1e9, Variant(law=of_those(production, two_leaders))),
    "noise of half the size, by its range": ("range", 1.99, Variant(law=doubled)),
    "noise of half the size, by its orders": ("Renyi", 3.9, Variant(law=doubled)),
    "noise of half the size, by its hockey stick": ("hockey stick", 1.5, Variant(law=doubled)),
    "a step charged at epsilon**2 / 16": ("Renyi", 1.99, Variant(step=lambda m: m.epsilon.value**2 / 16)),
    "a step of epsilon**2 / 16, when read": ("stopping", 1.01, Variant(step=lambda m: m.epsilon.value**2 / 16)),
    "permute-and-flip, by its orders": ("Renyi", 3.0, Variant(law=permute_and_flip)),
    "permute-and-flip, by its range": ("range", 1.8, Variant(law=permute_and_flip)),
}


def wrong(check: str, factor: float, variant: Variant) -> Bar:
    few = [mechanism for mechanism in MECHANISMS if mechanism.k <= 2]
    return factor, lambda: worst(check, few, variant)


ATTAINED = {"pure": 0.9, "Renyi": 0.999, "hockey stick": 0.1, "range": 0.999, "stopping": 0.999}
LAW = MechanismLaw(
    claims={check: (attained, partial(worst, check, MECHANISMS)) for check, attained in ATTAINED.items()},
    mistakes={name: wrong(*mistake) for name, mistake in MISTAKES.items()},
)
