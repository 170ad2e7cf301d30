"""A budget that is short says what would fit, and what it says fits."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest
from support.session_kit import PRIVATE, shared, values_rows
from support.shortfall_kit import (
    ITEM,
    POLICY,
    POOL,
    SHAPES,
    asked,
    assert_fits,
    fitting,
    hint_of,
    left_with,
)

import dpsql
from dpsql.terms import Terms

OWN_CAPS = ["weighted_gaussian", "domain_discovery"]


@pytest.mark.parametrize(
    ("shape", "k", "bound", "items_left", "keys"),
    [
        ("names", 10, "", 7, 7),
        ("names", 10, "", 1, 1),
        ("names", 10, "max_groups_contributed = 3", 7, 7),
        ("counts", 10, "", 19, 9),
        ("counts", 10, "", 7, 3),
        ("counts", 10, "", 2, 1),
        ("counts", 10, "max_groups_contributed = 3", 12, 9),
        ("counts", 10, "max_groups_contributed = 3", 6, 3),
        ("counts", 10, "max_groups_contributed = 3", 5, 2),
        ("counts", 10, "max_groups_contributed = 100", 9, 4),
        ("counts", 10, "max_groups_contributed = 3, mechanism = gaussian_histogram", 12, 9),
        ("names", 10, "max_groups_contributed = 3, mechanism = gaussian_histogram", 7, 7),
        ("counts", 10, "max_groups_contributed = 3, mechanism = laplace_limited_domain", 12, 9),
        ("names", 10, "mechanism = weighted_gaussian", 7, 7),
        ("counts", 10, "mechanism = weighted_gaussian", 19, 9),
        ("counts", 10, "max_groups_contributed = 3, mechanism = weighted_gaussian", 12, 9),
        ("names", 10, "mechanism = domain_discovery", 7, 7),
        ("counts", 10, "mechanism = domain_discovery", 7, 3),
        ("counts", 10, "max_groups_contributed = 3, mechanism = domain_discovery", 12, 9),
        ("names", 10, "mechanism = stable", 7, 7),
        ("counts", 10, "mechanism = stable", 7, 3),
        ("names", 10, "mechanism = top_stable", 7, 7),
        ("counts", 10, "mechanism = top_stable", 7, 3),
        ("names", 10, "k_bar = AUTO", 7, 6),
        ("counts", 10, "k_bar = AUTO", 7, 3),
        ("names", 10, "k_bar = AUTO", 2, 1),
    ],
)
def test_the_most_keys_that_fit(shape: str, k: int, bound: str, items_left: int, keys: int) -> None:
    session = left_with(items_left * ITEM + ITEM / 3, POOL)
    hint = hint_of(session, asked(shape, k, "epsilon = 0.05", bound))
    assert hint.startswith(f"TOP {keys} PRIVATE at this epsilon or WITH (epsilon = ")
    queries = fitting(hint, shape, k, "epsilon = 0.05", bound)
    assert len(queries) == 2
    for sql in queries:
        assert_fits(session, sql)
    hint_of(session, asked(shape, keys + 1, "epsilon = 0.05", bound))  # one more does not fit


@pytest.mark.parametrize(("items_left", "more"), [(Fraction(1, 2), ""), (Fraction(4, 3), "k_bar = AUTO")])
def test_less_than_one_item(items_left: Fraction, more: str) -> None:
    """The choice of k_bar costs an item, too."""
    session = left_with(items_left * ITEM, POOL)
    hint = hint_of(session, asked("counts", 10, "epsilon = 0.05", more))
    assert "TOP" not in hint
    (sql,) = fitting(hint, "counts", 10, "epsilon = 0.05", more)
    assert_fits(session, sql)


def test_no_rho_at_all() -> None:
    assert hint_of(left_with(Fraction(0), POOL), asked("names", 3)) == "What is left is not enough for a single row."


def test_an_epsilon_below_the_least_is_not_offered() -> None:
    limits = dpsql.Limits(min_epsilon="0.01")
    session = left_with(ITEM / 100, POOL, dpsql.Policy(POLICY.budget, PRIVATE, limits=limits))
    assert hint_of(session, asked("names", 3, "epsilon = 0.05")) == "What is left is not enough for a single row."


def test_delta_alone() -> None:
    session = left_with(50 * ITEM, Fraction("1.23456e-8"))
    hint = hint_of(session, asked("names", 3, "epsilon = 0.05"))
    assert hint == "WITH (delta = 123e-10) would fit."
    (sql,) = fitting(hint, "names", 3, "epsilon = 0.05")
    assert_fits(session, sql)


def test_delta_and_rho_together() -> None:
    session = left_with(2 * ITEM, Fraction("1.23456e-8"))
    hint = hint_of(session, asked("names", 3, "epsilon = 0.05"))
    queries = fitting(hint, "names", 3, "epsilon = 0.05")
    assert len(queries) == 2
    for sql in queries:
        assert "delta = 123e-10" in sql
        assert_fits(session, sql)


@pytest.mark.parametrize("left", [Fraction(0), Fraction(1, 10**40)])
def test_no_delta_left(left: Fraction) -> None:
    hint = hint_of(left_with(50 * ITEM, left), asked("names", 3, "epsilon = 0.05"))
    assert hint == "Only a query whose keys are known fits: name them, such as domain = ['DE', 'FR']."


@pytest.mark.parametrize("domain", ["domain = ['a', 'b', 'c', 'd', 'e']", "domain = 'labels.article'"])
@pytest.mark.parametrize(("shape", "items_left", "keys"), [("names", 3, 3), ("counts", 7, 3), ("names", 1, 1)])
def test_one_draw_of_a_known_domain(shape: str, items_left: int, keys: int, domain: str) -> None:
    connection = shared(*values_rows({"a": 9}), "CREATE TABLE labels AS SELECT 'l' || i AS article FROM range(9) t(i)")
    policy = dpsql.Policy(POLICY.budget, {**PRIVATE, "labels": dpsql.PublicTable()})
    session = left_with(items_left * ITEM + ITEM / 3, POOL, policy, connection)
    more = f"mechanism = joint, {domain}"
    hint = hint_of(session, asked(shape, 9, "epsilon = 0.05", more))
    assert hint.startswith(f"TOP {keys} PRIVATE at this epsilon or WITH (epsilon = ")
    queries = fitting(hint, shape, 9, "epsilon = 0.05", more)
    assert len(queries) == 2
    for sql in queries:
        assert_fits(session, sql)
    hint_of(session, asked(shape, keys + 1, "epsilon = 0.05", more))


@pytest.mark.properties
def test_what_is_said_fits_in_general() -> None:
    source = random.Random(20)
    rho = Terms.of_policy(POLICY).budget.rho.value
    offered = 0
    for _ in range(60):
        shape, k = source.choice(list(SHAPES)), source.randint(1, 60)
        epsilon = f"epsilon = {source.choice(['1', '0.3', '0.0712', '2.5e-2', '1e-4'])}"
        bound = source.choice(["", f"max_groups_contributed = {source.randint(1, 40)}"])
        bound += source.choice(["", "", f"{', ' if bound else ''}mechanism = {source.choice(OWN_CAPS)}"])
        left = rho * Fraction(source.random()) ** source.choice([1, 2, 8])
        session = left_with(left, POOL * Fraction(source.random()) ** source.choice([1, 3]))
        sql = asked(shape, k, epsilon, "delta = 2.5e-7", bound)
        try:
            session.sql(sql)
        except dpsql.BudgetExceeded as error:
            for query in fitting(error.hint, shape, k, epsilon, "delta = 2.5e-7", bound):
                assert_fits(session, query)
                offered += 1
    assert offered > 30
