"""Law of weighted Gaussian and Gaussian histogram with known names, whatever names are known."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from itertools import combinations, product

from properties.mechanisms.laws.record import Bar, MechanismLaw
from support.laws import cks, discrete_gaussian_law, hockey_stick
from support.sparse_kit import LEVELS, MAKES, Sparse, Units, passing, sets, weights

UNIVERSE = "abc"


DATA: tuple[Units, ...] = (
    [],
    [frozenset("a")],
    [frozenset("ab"), frozenset("b")],
    [frozenset("c")] * 3 + [frozenset("ab")],
)


PARAMETERS = [("0.5", "1e-6", 2), ("1", "0.05", 2), ("3", "0.3", 2), ("0.3", "0.001", 1)]


LISTS = [frozenset(chosen) for size in range(4) for chosen in combinations(UNIVERSE, size)]


Noisy = dict[int | None, float]


OfLabel = Callable[[Sparse, int | None, bool], Noisy]


def noisy(mechanism: Sparse, weight: int | None, is_known: bool) -> Noisy:
    """Return the law of one label: its noisy weight, or None; `weight` is None where no unit has the label."""
    if is_known:
        return {(weight or 0) + n: mass for n, mass in discrete_gaussian_law(mechanism.variance, 9.0).items()}
    return {None: 1.0} if weight is None else passing(mechanism, weight)


def law(
    mechanism: Sparse, units: Units, labels: str, known: frozenset[str], of_label: OfLabel
) -> dict[Hashable, float]:
    """Return the joint law of some labels; their order and the cut to k are functions of it."""
    found = weights(mechanism, units)
    each = [of_label(mechanism, found.get(label), label in known).items() for label in labels]
    return {
        tuple(event for event, _ in row): math.prod(mass for _, mass in row)
        for row in product(*each)
        if math.prod(mass for _, mass in row) > 1e-18
    }


def excess(mechanism: Sparse, here: dict[Hashable, float], there: dict[Hashable, float]) -> float:
    rho, delta, found = mechanism.loss.rho.value, float(mechanism.loss.delta), 0.0
    for level in (*LEVELS, 20.0 + 40.0 * float(rho)):
        claimed = delta + cks(rho, level)
        found = max(found, hockey_stick(here, there, level) / claimed, hockey_stick(there, here, level) / claimed)
    return found


def worst(make: str, of_label: OfLabel, *, parameters: Sequence[tuple[str, str, int]] = PARAMETERS) -> float:
    """Return the worst factor by which a unit more or less exceeds the claim, over all lists of known names.

    Labels that the unit does not have are as they are with and without it.
    """
    return max(
        excess(mechanism, law(mechanism, units, labels, known, of_label), law(mechanism, more, labels, known, of_label))
        for mechanism in (MAKES[make](*each) for each in parameters)
        for units in DATA
        for unit in sets(UNIVERSE, mechanism.bound)
        for known in LISTS
        for labels, more in [("".join(sorted(unit)), [*units, unit])]
    )


def threshold_for_nobody(mechanism: Sparse, weight: int | None, is_known: bool) -> Noisy:
    """Let names that were never released through without a threshold, if some unit has them."""
    return {None: 1.0} if weight is None and not is_known else noisy(mechanism, weight, True)


def absent_left_out(mechanism: Sparse, weight: int | None, is_known: bool) -> Noisy:
    """Leave out the known names that no unit has: who appears without a threshold tells that somebody is there."""
    return {None: 1.0} if weight is None else noisy(mechanism, weight, is_known)


def absent_without_noise(mechanism: Sparse, weight: int | None, is_known: bool) -> Noisy:
    """Give known names that no unit has the weight 0 without noise."""
    return {0: 1.0} if weight is None and is_known else noisy(mechanism, weight, is_known)


MISTAKES = [threshold_for_nobody, absent_left_out, absent_without_noise]


def wrong(make: str, mistake: OfLabel) -> Bar:
    return 1.5, lambda: worst(make, mistake, parameters=PARAMETERS[:2])


LAW = MechanismLaw(
    claims={make: (0.5, partial(worst, make, noisy)) for make in MAKES},
    mistakes={f"{mistake.__name__}, {make}": wrong(make, mistake) for mistake in MISTAKES for make in MAKES},
)
