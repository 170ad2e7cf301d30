"""The guarantees of the mechanisms over all counts, computed exactly for every neighbour of small data sets.

A data set is a list of units, each a set of labels; its neighbours have one unit more. Laws are those of the whole
release, with the production code's threshold, weights, ranking and cut; each known mistake is a `Variant` of these.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from properties.mechanisms.laws.all_counts import all_that_passes, worst
from support.laws import ROUNDING
from support.sparse_kit import STEPS, Sparse, Units, histogram, sets

from dpsql.accounting import discrete_gaussian_tail
from dpsql.mechanisms.gaussian_threshold import unit_weight


def cut_cases(cut: int, raised: int) -> list[tuple[Sparse, Units, frozenset[str]]]:
    """Return units that are one short of lifting labels to a cut, and the one that does."""
    parameters = [("0.5", "1e-6", 1), ("0.5", "1e-3", 2), ("0.1", "1e-6", 2)]
    made = [replace(histogram(*each), cut=cut) for each in parameters]
    return [
        (replace(mechanism, threshold=mechanism.threshold + raised), [unit] * (cut - 1), unit)
        for mechanism in made
        for unit in sets("ab", mechanism.bound)
    ]


@pytest.mark.mutant
@pytest.mark.parametrize("cut", [2, 3, 5])
def test_a_cut_by_the_true_counts_costs_as_much_of_the_threshold(cut: int) -> None:
    """One unit lifts a label from nothing to the cut: only a threshold that is higher by cut - 1 makes up for it."""
    assert worst(cut_cases(cut, raised=0)) > 1.5
    assert worst(cut_cases(cut, raised=cut - 2)) > 1.0 + ROUNDING
    assert worst(cut_cases(cut, raised=cut - 1)) <= 1.0 + ROUNDING


def test_a_weight_is_rounded_down_so_that_no_unit_moves_more_than_one() -> None:
    """Rounded up, the squares of two weights of 1 / sqrt(2) exceed 1: more loss than charged."""
    for groups in range(1, 3000):
        assert groups * unit_weight(groups) ** 2 <= 2**40 < groups * (unit_weight(groups) + 1) ** 2
        assert groups * unit_weight(groups, steps=STEPS) ** 2 <= STEPS**2


def test_the_failure_of_the_histogram_is_what_the_threshold_allows() -> None:
    """From nothing to one unit in all its groups: the chance of any label is the whole delta that is used."""
    for bound in (1, 2, 3):
        mechanism = histogram("1", "0.05", bound)
        unit = frozenset("abc"[:bound])
        _, masses = all_that_passes(mechanism, ([], [unit]), "".join(sorted(unit)))
        shown = 1.0 - float(masses.flat[0])
        each = discrete_gaussian_tail(mechanism.variance, mechanism.threshold - 1)
        assert shown == pytest.approx(1 - (1 - each) ** bound, rel=1e-6)
        assert shown <= 0.05
        assert 1 - (1 - discrete_gaussian_tail(mechanism.variance, mechanism.threshold - 2)) ** bound > 0.05
