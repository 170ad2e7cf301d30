"""The guarantees of weighted Gaussian and Gaussian histogram with known names, exactly, for every neighbour.

The known names are any list, since they are a function of earlier releases; a history of two releases is composed with
its own law of the list. Every known mistake is a variant of the law that exceeds the claim.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from itertools import chain, combinations, product

import pytest
from support.laws import ROUNDING, cks, discrete_gaussian_law, hockey_stick
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


@pytest.mark.parametrize("make", MAKES)
def test_no_neighbour_exceeds_the_claim_whatever_is_known(make: str) -> None:
    assert 0.5 < worst(make, noisy) <= 1.0 + ROUNDING


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


@pytest.mark.mutant
@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_every_known_mistake_is_caught(make: str, mistake: OfLabel) -> None:
    assert worst(make, mistake, parameters=PARAMETERS[:2]) > 1.5


def two_queries(mechanism: Sparse, units: Units, labels: str, of_label: OfLabel) -> dict[Hashable, float]:
    """Return the law of two releases of which the second knows the names of the first, beside those always known."""
    masses: dict[Hashable, float] = {}
    first = law(mechanism, units, labels, frozenset(), of_label)
    names = {frozenset(label for label, event in zip(labels, seen, strict=True) if event is not None) for seen in first}  # type: ignore[call-overload]
    second = {known: law(mechanism, units, labels, known, of_label) for known in names}
    for seen, mass in first.items():
        known = frozenset(label for label, event in zip(labels, seen, strict=True) if event is not None)  # type: ignore[call-overload]
        for event, chance in second[known].items():
            if mass * chance > 1e-16:
                masses[seen, event] = mass * chance
    return masses


@pytest.mark.parametrize("make", MAKES)
def test_a_history_of_two_releases_costs_their_sum(make: str) -> None:
    """The list that the second uses is drawn by the first: adaptive composition, with nothing charged for the list."""
    found = 0.0
    for rho, delta, bound in (("1", "0.05", 1), ("3", "0.3", 1)):
        mechanism = MAKES[make](rho, delta, bound)
        for units in ([], [frozenset("a")], [frozenset("a")] * 3):
            here, there = (two_queries(mechanism, each, "a", noisy) for each in (units, [*units, frozenset("a")]))
            for level in LEVELS:
                claimed = 2 * float(mechanism.loss.delta) + cks(2 * mechanism.loss.rho.value, level)
                sticks = hockey_stick(here, there, level), hockey_stick(there, here, level)
                found = max(found, *(stick / claimed for stick in sticks))
    assert 0.1 < found <= 1.0 + ROUNDING


@pytest.mark.mutant
def test_the_list_of_another_query_on_the_same_data_must_be_released() -> None:
    """Names that are taken from the data, and not from a release, exceed any claim: a mutant of the history."""
    mechanism, found = MAKES["histogram"]("1", "0.05", 1), 0.0
    for units in ([], [frozenset("a")]):
        pair = [units, [*units, frozenset("a")]]
        here, there = (law(mechanism, each, "a", frozenset(chain.from_iterable(each)), noisy) for each in pair)
        found = max(found, excess(mechanism, here, there))
    assert found > 1.5
