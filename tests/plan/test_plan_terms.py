"""The terms of a session: rho from the total, the pool of delta, and defaults that buy exactly what they promise."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

import dpsql
from dpsql.accounting import ZCDP, FilterState, epsilon_of_zcdp
from dpsql.plan import Terms, balance_of
from dpsql.quantities import Delta, Epsilon, Rho

TABLES = {"reads": dpsql.PrivateTable("user_id")}


def terms_of(epsilon: object, delta: object, items: int = 100, queries: int = 20, **limits: object) -> Terms:
    budget = dpsql.Budget(epsilon, delta, items=items, queries=queries)  # type: ignore[arg-type]
    return Terms.of_policy(dpsql.Policy(budget, TABLES, limits=dpsql.Limits(**limits)))  # type: ignore[arg-type]


def test_the_documented_total() -> None:
    terms = terms_of(1, "1e-6")
    assert str(terms.total) == "(1, 1e-06)-differential privacy"
    assert terms.budget.delta == Delta("5e-7")
    assert terms.delta == Delta("2.5e-8")
    assert float(terms.budget.rho) == pytest.approx(0.0229374, rel=1e-4)
    assert terms.epsilon == Epsilon("0.04283")


@pytest.mark.parametrize("epsilon", ["0.1", "1", "3", "10", "100"])
@pytest.mark.parametrize("delta", ["1e-4", "1e-6", "1e-12", "1e-40"])
def test_rho_and_half_of_delta_give_back_the_total(epsilon: str, delta: str) -> None:
    terms = terms_of(epsilon, delta, items=1)
    half = Delta(Fraction(delta) / 2)
    assert terms.budget.delta == half
    assert epsilon_of_zcdp(terms.budget.rho, half) <= float(epsilon) * (1 + 1e-9)
    assert epsilon_of_zcdp(Rho(terms.budget.rho.value * Fraction("1.001")), half) > float(epsilon)


def next_digit(epsilon: Fraction) -> Fraction:
    """Return epsilon with its last digit, of four, one higher."""
    grid = Fraction(1)
    while epsilon / grid >= 10**4:
        grid *= 10
    while epsilon / grid < 10**3:
        grid /= 10
    assert (epsilon / grid).denominator == 1
    return epsilon + grid


@pytest.mark.parametrize("seed", range(40))
def test_the_default_epsilon_buys_the_items_and_no_digit_more(seed: int) -> None:
    source = random.Random(seed)
    items = source.choice([1, 2, 10, 100, 999, 10_000])
    terms = terms_of(str(round(source.uniform(0.5, 5), 3)), f"1e-{source.randint(4, 12)}", items, max_epsilon=100)
    assert items * terms.epsilon.value**2 / 8 <= terms.budget.rho.value
    assert items * next_digit(terms.epsilon.value) ** 2 / 8 > terms.budget.rho.value


def test_the_default_epsilon_respects_the_ceiling() -> None:
    assert terms_of(10, "1e-6", 1, max_epsilon="0.3").epsilon == Epsilon("0.3")


@pytest.mark.parametrize(
    ("epsilon", "delta", "items"), [("0.001", "1e-6", 10**6), ("1e-9", "1e-6", 1), ("0.1", "1e-6", 10**6)]
)
def test_a_budget_that_buys_nothing_is_refused(epsilon: str, delta: str, items: int) -> None:
    with pytest.raises(dpsql.PolicyError) as caught:
        terms_of(epsilon, delta, items)
    assert (caught.value.code, caught.value.place) == ("policy-items", "budget.items")
    assert caught.value.hint


@pytest.mark.parametrize("queries", [1, 3, 7, 1000])
def test_the_default_delta_is_exactly_a_share(queries: int) -> None:
    terms = terms_of(1, "1e-6", queries=queries)
    assert terms.delta.value * queries == terms.budget.delta.value


def test_a_balance_adds_up() -> None:
    terms = terms_of(1, "1e-6")
    rho = Rho(30 * terms.epsilon.value**2 / 8)
    state = FilterState(ZCDP(rho, Delta("1e-7")), Rho(20 * terms.epsilon.value**2 / 8))
    balance = balance_of(terms, state)
    assert balance.rho.granted == terms.budget.rho.value
    assert balance.rho.granted == balance.rho.spent + balance.rho.reserved + balance.rho.remaining
    assert (balance.delta.spent, balance.delta.reserved, balance.delta.remaining) == (
        Fraction("1e-7"),
        0,
        Fraction("4e-7"),
    )
    assert balance.items == 50
    names = [row[0] for row in balance.rows()]
    assert names == ["rho", "delta", "items of epsilon 0.04283"]
    _, granted, spent, reserved, remaining = balance.rows()[2]
    assert (int(granted), spent, reserved, int(remaining)) == (100, 30.0, 20.0, 50)
    lines = str(balance).splitlines()
    assert lines[0] == "total guarantee: (1, 1e-06)-differential privacy for every privacy unit, over all queries"
    assert lines[1].startswith("rho   granted 0.0229374, spent 0.00687903, reserved 0.00458602")
    assert lines[-1] == "about 50 more items at epsilon 0.04283"
    assert len(lines) == 4


def test_a_balance_never_shows_a_running_epsilon() -> None:
    """What was spent so far is no guarantee (`maths.md` 2.4)."""
    terms = terms_of(1, "1e-6")
    half = Rho(terms.budget.rho.value / 2)
    text = str(balance_of(terms, FilterState(ZCDP(half, Delta("1e-7")), Rho(0))))
    assert text.count("epsilon") == 1
    assert "differential privacy" in text.splitlines()[0]
