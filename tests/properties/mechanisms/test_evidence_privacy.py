"""The guarantee of known names with an evidence line, exactly, for every neighbour of every small list of counts.

The laws are those of `evidence_kit.py`, which calls nothing of the mechanism; `test_evident_peeling.py` says that the
mechanism has them. Every path is an outcome: BOTTOM first, the gate shut, the gate open. Each is charged what the
receipt says, and an answer's loss is at most its charge, in both directions. Each known mistake must be caught: by the
loss, by what names without rows are returned, or by what is found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import permutations

import pytest
from properties.mechanisms.laws.evidence import ORDERS, PARAMETERS, Counts, law, without_absent, worst
from support.evidence_kit import BETA, Terms, chance_of_names, evident_law
from support.laws import ROUNDING, discrete_gaussian_law

from dpsql.mechanisms import EvidentPeeling
from dpsql.quantities import Epsilon


def test_all_paths_are_taken() -> None:
    """BOTTOM first with the gate shut, and open; a name and then the gate; all k before BOTTOM."""
    found = law((1, 0, 0), Terms(3.0, 3))
    assert min(found.values()) > 0
    assert {len(steps) for steps in found} == {1, 2, 3, 5}
    assert sum("open" in steps for steps in found) == 6 + 6


def from_largest(terms: Terms, counts: Sequence[int]) -> float:
    """Let BOTTOM stand above the largest count, as in a limited domain."""
    return max(counts) + terms.most * math.log(len(counts) / terms.chance) / terms.epsilon


def answers_without_rows(terms: Terms, names: int) -> float:
    """Return with what probability a law returns a name that no row has."""
    return 1.0 - evident_law((0,) * names, terms).get(("⊥",), 0.0)


FALSE = {
    "production": ({}, True),
    "beta / 2 used twice as beta": ({"beta": 2 * BETA}, False),
    "no gate where no known name has rows": ({"asks": lambda _, counts: any(counts)}, False),
    "absent names are left out of m": ({"bottom": without_absent}, False),
    "BOTTOM without m": ({"bottom": lambda terms, _: math.log(1 / terms.chance) / terms.epsilon}, False),
}


@pytest.mark.parametrize("variant", FALSE)
def test_names_without_rows_are_returned_in_one_of_twenty_answers(variant: str) -> None:
    """Two-sided: fewer would find less than the claim allows, more would be wrong."""
    change, is_right = FALSE[variant]
    chance = answers_without_rows(replace(Terms(0.1, 2), **change), 5)  # type: ignore[arg-type]
    assert (0.046 < chance <= BETA) is is_right
    if is_right:
        assert chance == pytest.approx(chance_of_names(Terms(0.1, 2)))


@pytest.mark.parametrize("bottom", [None, from_largest])
def test_a_bottom_that_rises_with_the_counts_is_no_line(bottom: Callable[[Terms, Sequence[int]], float] | None) -> None:
    """A name of very many units comes before BOTTOM, unless this stands above the largest count."""
    terms = Terms(1.0, 2) if bottom is None else Terms(1.0, 2, bottom=bottom)
    found = math.fsum(mass for steps, mass in evident_law((60, 0, 0), terms).items() if steps[0] == 0)
    assert (found > 0.999) is (bottom is None)


@pytest.mark.parametrize("terms", PARAMETERS, ids=lambda terms: f"epsilon {terms.epsilon}, k {terms.k}")
def test_the_numbers_of_the_mechanism_are_those_of_the_law(terms: Terms) -> None:
    mechanism = EvidentPeeling(Epsilon(str(terms.epsilon)), terms.k)
    assert float(mechanism.find_bottom(7)) == pytest.approx(terms.bottom(terms, [0] * 7))
    for above in range(terms.k - 1):
        left = terms.k - above - 1
        rho = 0.1 * left * terms.epsilon**2 / 8
        assert float(mechanism.gate(above).variance) == pytest.approx(1 / (2 * rho))
        share = math.sqrt(0.9 * left / (terms.k - above))
        assert float(mechanism.epsilon_behind(above)) == pytest.approx(terms.epsilon * share)


@cache
def joint_law(counts: Counts, terms: Terms) -> dict[tuple[object, ...], float]:
    """Return the law of a gate for a tenth of k items, and of one joint draw for the rest behind it."""
    rho = terms.k * terms.epsilon**2 / 8
    noise = discrete_gaussian_law(Fraction(terms.gate_noise / (2 * rho * terms.share)).limit_denominator(10**9))
    height = next(n for n in range(10**6) if math.fsum(mass for at, mass in noise.items() if at >= n) <= BETA)
    opens = math.fsum(mass for at, mass in noise.items() if at + max(counts) >= height)
    epsilon, best = math.sqrt(8 * terms.behind * rho), sorted(counts, reverse=True)
    losses = {
        steps: max(best[rank] - counts[at] for rank, at in enumerate(steps))
        for steps in permutations(range(len(counts)), terms.k)
    }
    weights = {steps: math.exp(-epsilon * loss / 2) for steps, loss in losses.items()}
    total = math.fsum(weights.values())
    return {(): 1 - opens, **{steps: opens * weight / total for steps, weight in weights.items()}}


def joint_paid(terms: Terms, here: Counts, there: Counts) -> float:
    """Return what `paid` does of a joint draw behind a gate: a tenth of k items where it is shut, else k."""
    p, q = joint_law(here, terms), joint_law(there, terms)
    rho, found = terms.k * terms.epsilon**2 / 8, 0.0
    for order in ORDERS:
        masses = (
            mass**order * q[steps] ** (1 - order) * math.exp(-order * (order - 1) * rho * (1.0 if steps else 0.1))
            for steps, mass in p.items()
        )
        found = max(found, math.fsum(masses))
    return found


def test_a_joint_draw_behind_a_gate_loses_no_more_than_it_is_charged() -> None:
    terms = [Terms(epsilon, k) for epsilon in (0.3, 1.0, 2.0) for k in (1, 2)]
    assert 0.99 < worst(joint_paid, terms) <= 1.0 + ROUNDING
    assert worst(joint_paid, [replace(each, gate_noise=0.1) for each in terms]) > 1.0005
