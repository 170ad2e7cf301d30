"""The guarantee of known names with an evidence line, exactly, for every neighbour of every small list of counts.

The laws are those of `evidence_kit.py`, which calls nothing of the mechanism; `test_evident_peeling.py` says that the
mechanism has them. Every path is an outcome: BOTTOM first, the gate shut, the gate open. Each is charged what the
receipt says, and an answer's loss is at most its charge, in both directions. Each known mistake must be caught: by the
loss, by what names without rows are returned, or by what is found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import combinations_with_replacement, permutations, product

import pytest
from support.evidence_kit import BETA, Terms, chance_of_names, evident_law, items
from support.laws import ROUNDING, cks, discrete_gaussian_law, hockey_stick

from dpsql.mechanisms import EvidentPeeling
from dpsql.quantities import Epsilon

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


def test_no_answer_loses_more_than_it_is_charged() -> None:
    assert 0.99 < worst(paid, [*PARAMETERS, *WIDE]) <= 1.0 + ROUNDING


def test_no_neighbour_exceeds_what_k_items_claim() -> None:
    assert 0.2 < worst(converted, [*PARAMETERS, *WIDE]) <= 1.0 + ROUNDING


def test_all_paths_are_taken() -> None:
    """BOTTOM first with the gate shut, and open; a name and then the gate; all k before BOTTOM."""
    found = law((1, 0, 0), Terms(3.0, 3))
    assert min(found.values()) > 0
    assert {len(steps) for steps in found} == {1, 2, 3, 5}
    assert sum("open" in steps for steps in found) == 6 + 6


def without_absent(terms: Terms, counts: Sequence[int]) -> float:
    """Leave names without rows out of the number of candidates."""
    return terms.most * math.log(max(1, sum(map(bool, counts))) / terms.chance) / terms.epsilon


def from_largest(terms: Terms, counts: Sequence[int]) -> float:
    """Let BOTTOM stand above the largest count, as in a limited domain."""
    return max(counts) + terms.most * math.log(len(counts) / terms.chance) / terms.epsilon


LEAKS = {
    "absent names are left out of m": {"bottom": without_absent},
    "the gate is skipped where no known name has rows": {"asks": lambda _, counts: any(counts)},
    "the gate has a third of its noise": {"gate_noise": 0.1},
    "behind the gate all items are used ten times": {"behind": 9.0},
}


@pytest.mark.mutant
@pytest.mark.parametrize("mistake", LEAKS)
def test_every_known_leak_is_caught(mistake: str) -> None:
    terms = [replace(each, **LEAKS[mistake]) for each in PARAMETERS if each.k == 2]  # type: ignore[arg-type]
    assert worst(paid, terms) > 1.0005


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
