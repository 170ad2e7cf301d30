"""The filter against every adaptive analyst: the exact optimum of the hockey stick over all strategies.

An analyst picks query after query from a menu, seeing every answer, as long as the books admit it. `optimum` is the
largest sum of max(0, P - e**epsilon Q) over the transcripts of any strategy. Production must keep it below
delta_pool + CKS(rho, epsilon); each known bookkeeping mistake must be seen to let it through.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

import pytest
from support.analysts import Outcome, Query, optimum, query
from support.laws import cks

from dpsql.accounting import ZCDP, BoundedRange, BudgetState, BudgetVector, Filter
from dpsql.errors import UsageError
from dpsql.mechanisms import LimitedDomain, Selection
from dpsql.quantities import Delta, Epsilon, Rho

price = BudgetVector.of
LEVELS = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0)


class Books:
    """Production: the worst case is reserved before, what was returned is settled after, delta is not refunded."""

    def __init__(self, budget: ZCDP) -> None:
        self.filter = Filter(price(budget))

    def fresh(self) -> BudgetState:
        return BudgetState()

    def admits(self, state: BudgetState, asked: Query) -> bool:
        for part in asked.parts:
            if not self.filter.admits(state, price(part.worst_case)):
                return False
            state = self.filter.reserve(state, price(part.worst_case))
        return True

    def after(self, state: BudgetState, asked: Query, outcome: Outcome) -> BudgetState:
        for part in asked.parts:
            state = self.filter.reserve(state, price(part.worst_case))
        for part, selection in zip(asked.parts, outcome.selections, strict=True):
            state = self.filter.settle(state, price(part.worst_case), loss=part.loss(selection).rho.value)
        return state


class Careless(Books):
    """Books that write down a loss afterwards, whatever was there before."""

    def admits(self, state: BudgetState, asked: Query) -> bool:
        try:
            return all(self.filter.admits(state, price(self.expected(part, asked))) for part in asked.parts)
        except UsageError:
            return False  # the budget is overdrawn

    def after(self, state: BudgetState, asked: Query, outcome: Outcome) -> BudgetState:
        for part, selection in zip(asked.parts, outcome.selections, strict=True):
            took = price(self.charged(part, selection))
            state = replace(state, spent=state.spent + took.refundable, permanent=state.permanent + took.permanent)
        return state

    def expected(self, part: LimitedDomain, _: Query) -> ZCDP:
        return part.worst_case

    def charged(self, part: LimitedDomain, selection: Selection) -> ZCDP:
        return part.loss(selection)


class BottomForFree(Careless):
    def charged(self, part: LimitedDomain, selection: Selection) -> ZCDP:
        return ZCDP(BoundedRange(part.epsilon).rho * len(selection.positions), part.delta)


class DeltaRefunded(Careless):
    def charged(self, part: LimitedDomain, selection: Selection) -> ZCDP:
        loss = part.loss(selection)
        return loss if selection.positions else replace(loss, delta=Delta(0))


class ExpectedStepsReserved(Careless):
    def expected(self, part: LimitedDomain, asked: Query) -> ZCDP:
        steps = max(
            sum(one.p * one.selections[0].steps for one in asked.outcomes),
            sum(one.q * one.selections[0].steps for one in asked.outcomes),
        )
        return ZCDP(Rho(BoundedRange(part.epsilon).rho.value * Fraction(steps)), part.delta)


class HalfThePrice(Careless):
    def charged(self, part: LimitedDomain, selection: Selection) -> ZCDP:
        return ZCDP(Rho(part.loss(selection).rho.value / 2), part.delta)

    def expected(self, part: LimitedDomain, _: Query) -> ZCDP:
        return ZCDP(Rho(part.worst_case.rho.value / 2), part.delta)


def worst_excess(books: Books, menu: Sequence[Query]) -> float:
    """Return the worst ratio of an optimum to what the budget promises, over levels and both orders."""
    budget = books.filter.budget
    return max(
        optimum(books, asked, level) / (float(budget.permanent) + cks(budget.refundable, level))
        for asked in (menu, [each.turned() for each in menu])
        for level in LEVELS
    )


def domain(epsilon: str, delta: str, k: int, k_bar: int, bound: int | None = None) -> LimitedDomain:
    return LimitedDomain(Epsilon(epsilon), Delta(delta), k, k_bar, bound)


def random_menus(number: int, seed: int) -> Iterator[tuple[Books, list[Query]]]:
    """Yield budgets and menus of heterogeneous queries about one and the same privacy unit."""
    draw = random.Random(seed)
    for _ in range(number):
        menu, deltas = [], draw.choice([["1e-6", "2e-6"], ["0.01", "0.02"]])
        for _ in range(draw.randint(2, 3)):
            k = draw.randint(1, 2)
            epsilon, delta = draw.choice(["0.5", "0.8", "1.5"]), draw.choice(deltas)
            bound = draw.choice([1, 2, None])
            mechanism = domain(epsilon, delta, k, draw.randint(k, 2), bound)
            counts = {label: draw.randint(1, draw.choice([4, 12])) for label in draw.sample("abc", draw.randint(0, 2))}
            unit = draw.sample("abc", draw.randint(0, bound or 3))
            more = {label: counts.get(label, 0) + (label in unit) for label in {*counts, *unit}}
            menu.append(query(mechanism, counts, more))
        menu.append(menu[0].beside(menu[1]))
        worst = [part.worst_case for each in menu for part in each.parts]
        rho = max(each.rho.value for each in worst) * draw.choice([1, Fraction(3, 2), 2])
        pool = max(each.delta.value for each in worst) * draw.choice([1, Fraction(3, 2), 2])
        yield Books(ZCDP(Rho(rho), Delta(pool))), menu


@pytest.mark.parametrize("seed", range(3))
def test_no_adaptive_analyst_exceeds_the_budget(seed: int) -> None:
    ratios = [worst_excess(books, menu) for books, menu in random_menus(100, seed)]
    assert max(ratios) <= 1.0 + 1e-9


def test_an_analyst_who_spends_all_of_delta_meets_the_bound() -> None:
    tight = query(domain("1", "1e-6", 2, 2, 3), {"a": 1, "b": 1}, {})
    books = Books(ZCDP(tight.parts[0].worst_case.rho * 3, Delta("3e-6")))
    assert 0.999 < worst_excess(books, [tight]) <= 1.0 + 1e-9


EVEN = query(domain("2", "1e-6", 1, 1, 1), {"a": 8}, {"a": 9})
NEW = query(domain("1", "1e-6", 1, 1, 1), {}, {"a": 1})
LONG = query(domain("1", "1e-6", 4, 4), dict.fromkeys("abcd", 14), dict.fromkeys("abcd", 15))
STEP, LONG_STEP = EVEN.parts[0].worst_case.rho, BoundedRange(LONG.parts[0].epsilon).rho
SCENES: dict[str, tuple[ZCDP, list[Query]]] = {
    "even odds": (ZCDP(STEP, Delta("4e-6")), [EVEN]),
    "a new label": (ZCDP(NEW.parts[0].worst_case.rho * 5, Delta("1e-6")), [NEW]),
    "mostly short": (ZCDP(Rho(LONG_STEP.value * Fraction("1.95")), Delta("1e-6")), [LONG]),
    "three at once": (ZCDP(STEP, Delta("3e-6")), [EVEN.beside(EVEN).beside(EVEN)]),
    "several": (ZCDP(STEP * 3, Delta("6e-6")), [EVEN]),
}
MISTAKES = [
    (BottomForFree, "even odds", 100.0),
    (DeltaRefunded, "a new label", 4.9),
    (ExpectedStepsReserved, "mostly short", 2.0),
    (Careless, "three at once", 100.0),
    (HalfThePrice, "several", 20.0),
]


@pytest.mark.parametrize("scene", SCENES)
def test_production_holds_where_mistakes_are_made(scene: str) -> None:
    budget, menu = SCENES[scene]
    assert worst_excess(Books(budget), menu) <= 1.0 + 1e-9


@pytest.mark.mutant
@pytest.mark.parametrize(("mistake", "scene", "factor"), MISTAKES)
def test_every_known_mistake_is_caught(mistake: type[Books], scene: str, factor: float) -> None:
    budget, menu = SCENES[scene]
    assert worst_excess(mistake(budget), menu) > factor
