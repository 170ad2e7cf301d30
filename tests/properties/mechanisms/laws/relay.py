"""Law of both legs of a relay and of its gate, for every neighbour of small data sets."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations

import numpy as np
import numpy.typing as npt
from properties.mechanisms.laws.record import over_cases
from support.laws import BOTTOM, Steps, cks, discrete_gaussian_law, label_law

from dpsql.mechanisms import Gate, Relay, Selection, unit_weight
from dpsql.mechanisms.weighted_gaussian import weighted_threshold
from dpsql.quantities import Delta, Epsilon

STEPS = 4


LEVELS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)


Units = Sequence[frozenset[str]]


Case = tuple[Relay, Units, frozenset[str]]


@dataclass(frozen=True)
class Variant:
    """A way to build the relay; the defaults are the production code's."""

    gate: Callable[[Relay, Selection], Gate] = lambda relay, first: replace(relay.gate(first), steps=STEPS)
    rho: Callable[[Relay, Selection], Fraction] = lambda relay, first: relay.second_leg(first).rho.value
    delta: Callable[[Relay], Delta] = lambda relay: relay.first_leg.delta
    weigh: Callable[[int], int] = lambda groups: unit_weight(groups, steps=STEPS)
    asks_always: bool = True  # also where there is no group
    first_leg: Callable[[Relay], Relay] = lambda relay: relay


PRODUCTION = Variant()


def weights(units: Units, variant: Variant) -> dict[str, int]:
    found: dict[str, int] = {}
    for unit in units:
        for label in unit:
            found[label] = found.get(label, 0) + variant.weigh(len(unit))
    return found


def opens(gate: Gate, largest: int) -> float:
    law = discrete_gaussian_law(gate.variance, 9.0)
    return math.fsum(mass for n, mass in law.items() if largest + n >= gate.height)


def leg_law(relay: Relay, units: Units, variant: Variant) -> dict[Steps, float]:
    counts: dict[str, int] = {}
    for unit in units:
        for label in unit:
            counts[label] = counts.get(label, 0) + 1
    return dict(label_law(variant.first_leg(relay).first_leg, counts))


def passed(
    relay: Relay, found: Mapping[str, int], labels: Sequence[str], *, first: Selection, variant: Variant, top: int
) -> npt.NDArray[np.float64]:
    """Return the joint law of the noisy weights of some labels, each below the threshold or a number from it on."""
    variance = STEPS**2 / (2 * variant.rho(relay, first))
    threshold = weighted_threshold(variance, variant.delta(relay), most=relay.weighed_groups, steps=STEPS)
    noise = discrete_gaussian_law(variance, 9.0)
    law = np.ones(())
    for label in labels:
        own = np.zeros(top + 1)
        if label in found:
            own[1:] = [noise.get(threshold + n - found[label], 0.0) for n in range(top)]
        own[0] = max(0.0, 1.0 - own[1:].sum())
        law = np.multiply.outer(law, own)
    return law


def pieces(case: Case, variant: Variant) -> list[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]]:
    """Return the laws without and with the unit, in pieces of the same events."""
    relay, units, unit = case
    both = (units, [*units, unit])
    laws = [leg_law(relay, each, variant) for each in both]
    found = [weights(each, variant) for each in both]
    result = []
    for steps in laws[0].keys() | laws[1].keys():
        returned = [each for each in steps if each != BOTTOM]
        first = Selection(tuple(range(len(returned))), stopped_at_bottom=BOTTOM in steps)
        masses = [law.get(steps, 0.0) for law in laws]
        if not relay.left(first):
            result.append((np.array(masses[0]), np.array(masses[1])))
            continue
        rest = [{label: weight for label, weight in each.items() if label not in returned} for each in found]
        gate = variant.gate(relay, first)
        open_ = [opens(gate, max(each.values(), default=0)) if each or variant.asks_always else 0.0 for each in rest]
        result.append((np.array(masses[0] * max(0.0, 1 - open_[0])), np.array(masses[1] * max(0.0, 1 - open_[1]))))
        labels = sorted(unit.difference(map(str, returned)))
        deviation = math.sqrt(STEPS**2 / (2 * variant.rho(relay, first)))
        top = max([0, *rest[0].values(), *rest[1].values()]) + math.ceil(9 * deviation)
        here, there = (passed(relay, each, labels, first=first, variant=variant, top=top) for each in rest)
        result.append((masses[0] * open_[0] * here, masses[1] * open_[1] * there))
    return result


def worst(cases: Sequence[Case], variant: Variant = PRODUCTION) -> float:
    """Return the worst factor by which a unit more or less exceeds the claim."""
    found = 0.0
    for case in cases:
        relay, laws = case[0], pieces(case, variant)
        rho, delta = relay.worst_case.rho.value, float(relay.delta)
        for level in (*LEVELS, 20.0 + 40.0 * float(rho)):
            for at in (0, 1):
                stick = math.fsum(
                    float(np.maximum(0.0, pair[at] - math.exp(level) * pair[1 - at]).sum()) for pair in laws
                )
                found = max(found, stick / (delta + cks(rho, level)))
    return found


def relay(epsilon: str, delta: str, k: int, bound: int) -> Relay:
    return Relay(Epsilon(epsilon), Delta(delta), k, k_bar=k, weighed_groups=bound, max_groups_contributed=bound)


def random_cases(seed: int, number: int) -> list[Case]:
    draw = random.Random(seed)
    found: list[Case] = []
    for _ in range(number):
        bound = draw.choice([1, 2, 2])
        made = relay(
            draw.choice(["0.5", "1", "2", "3"]),
            draw.choice(["1e-6", "1e-3", "0.05", "0.3"]),
            draw.choice([3, 4, 5]),
            bound,
        )
        units = [frozenset(draw.sample("abcd", draw.randint(1, bound))) for _ in range(draw.choice([0, 1, 2, 6, 15]))]
        found += [(made, units, frozenset(draw.sample("abcde", size))) for size in range(1, bound + 1)]
    return found


def edges() -> list[Case]:
    crowds = [], [frozenset("a")], [frozenset("a")] * 8, [frozenset("a"), frozenset("b")] * 5, [frozenset("ab")] * 12
    parameters = [
        ("1", "1e-6", 3, 1),
        ("3", "1e-6", 4, 2),
        ("3", "0.3", 5, 1),
        ("2", "0.05", 3, 2),
        ("0.5", "0.3", 5, 2),
    ]
    return [
        (relay(epsilon, delta, k, bound), list(units), frozenset(chosen))
        for epsilon, delta, k, bound in parameters
        for units in crowds
        for size in range(1, bound + 1)
        for chosen in combinations("abc", size)
    ]


def with_delta(made: Relay) -> Relay:
    return replace(made, delta=Delta(min(Fraction(999, 1000), 2 * made.delta.value)))


MISTAKES = {
    "no noise in the gate where there is no group": (1e5, Variant(asks_always=False)),
    "a sixth of the noise in the gate": (
        100.0,
        Variant(gate=lambda made, first: Gate(made.gate(first).rho * 40, steps=STEPS)),
    ),
    "all of delta for each leg": (1.25, Variant(delta=lambda made: made.delta, first_leg=with_delta)),
}


LAW = over_cases(
    worst,
    MISTAKES,
    edges=edges(),
    attained=0.3,
    random_cases=lambda number, seed: random_cases(seed, number),
    sizes=[60] * 2,
)
