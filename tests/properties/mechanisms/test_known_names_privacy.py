"""The guarantees of weighted Gaussian and Gaussian histogram with known names, exactly, for every neighbour.

The known names are any list, since they are a function of earlier releases; a history of two releases is composed with
its own law of the list. Every known mistake is a variant of the law that exceeds the claim.
"""

from __future__ import annotations

from collections.abc import Hashable
from itertools import chain

import pytest
from properties.mechanisms.laws.known_names import OfLabel, excess, law, noisy
from support.laws import ROUNDING, cks, hockey_stick
from support.sparse_kit import LEVELS, MAKES, Sparse, Units


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
