"""The terms of a session: rho from the total, the pool of delta, and defaults that buy exactly what they promise."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest

import dpsql
from dpsql.accounting import BudgetState, BudgetVector, epsilon_of_zcdp
from dpsql.quantities import Delta, Epsilon, Rho
from dpsql.report.balance import compute_balance
from dpsql.report.policy_check import Check, report_policy
from dpsql.terms import Sublimit, Terms

OFF = dpsql.Analyst(enabled=False)
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
    state = BudgetState(rho.value, Fraction("1e-7"), Fraction(20 * terms.epsilon.value**2 / 8))
    balance = compute_balance(terms, state)
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
    assert balance.queries == 5
    # an item is 0.99968 %: 30 are 29.9904, and with 20 more 49.984
    assert str(balance).splitlines() == [
        "30 % of the budget is used, 19.99 % is held by queries that run or never ended, 50.01 % is left",
        "enough, at the worst, for any one of these:",
        "     5  lists of names (TOP 10)",
        "     2  lists of names with counts (TOP 10)",
        "    50  totals",
        "     4  series of 12 months",
        "guarantee: (1, 1e-06)-differential privacy for every privacy unit, over all queries",
    ]
    assert balance.tile_rows() == [  # of 100 items 30 are spent and 20 held
        ("lists of names (TOP 10)", 10, 3, 2, 5),
        ("lists of names with counts (TOP 10)", 5, 2, 1, 2),
        ("totals", 100, 30, 20, 50),
        ("series of 12 months", 8, 3, 1, 4),
    ]
    lines = balance.details()
    assert lines[0].startswith("rho   granted 0.0229374, spent 0.00687903, reserved 0.00458602")
    assert lines[-1] == "about 50 more items at epsilon 0.04283"


def test_the_amounts_of_a_balance_are_rounded_and_the_remaining_ones_down() -> None:
    terms = terms_of(1, "1e-6")
    third = terms.budget.refundable / 3
    balance = compute_balance(terms, BudgetState(third, Fraction("1e-7") / 3, Fraction(0)))
    for name, *amounts in balance.rows():
        assert all(len(f"{amount:.12g}".replace(".", "").strip("0").split("e")[0]) <= 6 for amount in amounts), name
    assert balance.rows()[0][4] <= balance.rho.remaining < balance.rows()[0][4] + Fraction("1e-7")


def test_a_balance_of_an_account_is_never_more_than_the_total_has() -> None:
    terms = terms_for("alice", alice=dpsql.Analyst("0.5"))
    assert terms.account is not None
    own, total = terms.account.budget, terms.budget
    assert own.delta.value == Fraction("2.5e-7")  # half of the total's, as of epsilon
    third = own.refundable / 3
    mine = BudgetState(third, Fraction("1e-7"), third)
    for of_all, left in (
        (mine, (own.rho.value / 3, Fraction("1.5e-7"))),
        (BudgetState(total.rho.value, Fraction("1e-7"), Fraction(0)), (0, Fraction("1.5e-7"))),
        (BudgetState(third, Fraction("4.5e-7"), third), (own.rho.value / 3, Fraction("5e-8"))),
    ):
        balance = compute_balance(terms, of_all, own=mine)
        assert (balance.remaining.rho.value, balance.remaining.delta.value) == left
        assert (balance.rho.granted, balance.rho.spent, balance.rho.reserved) == (
            own.rho.value,
            third,
            third,
        )
        assert ("others used " in str(balance)) == (of_all is not mine)
        assert balance.items == left[0] // (terms.epsilon.value**2 / 8)
        assert "this is the budget of the account alice" in str(balance).splitlines()
        assert balance.granted == terms.total
    assert compute_balance(
        terms, mine, own=BudgetState(own.rho.value, own.delta.value, third)
    ).remaining == BudgetVector(0, 0)


def test_a_balance_never_shows_a_running_epsilon() -> None:
    """What was spent so far is no guarantee (`maths.md` 2.4)."""
    terms = terms_of(1, "1e-6")
    half = Rho(terms.budget.rho.value / 2)
    balance = compute_balance(terms, BudgetState(half.value, Fraction("1e-7"), Fraction(0)))
    assert "\n".join([str(balance), *balance.details()]).count("epsilon") == 1
    assert "differential privacy" in str(balance).splitlines()[-1]


# --- the terms of an analyst


def terms_for(name: str | None, *, limits: dpsql.Limits | None = None, **analysts: dpsql.Analyst) -> Terms:
    return Terms.of_policy(dpsql.Policy(dpsql.Budget(1, "1e-6"), TABLES, limits=limits, analysts=analysts), name)


def test_whoever_has_no_limit_has_the_terms_of_the_total() -> None:
    whole = terms_of(1, "1e-6")
    assert whole.account is None
    assert terms_for(None) == terms_for(None, alice=dpsql.Analyst("0.5")) == whole
    named = replace(whole, account=Sublimit("bob", whole.budget))  # an account of one's own, which limits nothing
    assert terms_for("bob") == terms_for("bob", alice=dpsql.Analyst("0.5")) == named


def test_an_analyst_with_the_whole_total_has_exactly_its_rho() -> None:
    terms, whole = terms_for("alice", alice=dpsql.Analyst(1)), terms_of(1, "1e-6")
    assert terms.account == Sublimit("alice", whole.budget)
    assert replace(terms, account=None, earlier_delta=None) == whole


@pytest.mark.parametrize("epsilon", ["0.1", "0.5", "0.999"])
@pytest.mark.parametrize("delta", ["1e-7", "1e-6", "1e-12"])
def test_a_limit_converts_as_a_total_does(epsilon: str, delta: str) -> None:
    terms = terms_for("alice", alice=dpsql.Analyst(epsilon, delta))
    alone = terms_of(epsilon, delta)
    assert terms.account == Sublimit("alice", alone.budget)
    assert (terms.epsilon, terms.delta) == (alone.epsilon, alone.delta)
    assert terms.account.budget.rho < terms.budget.rho
    assert terms.account.budget.delta <= terms.budget.delta


def test_the_guarantee_is_that_of_the_total_whoever_asks() -> None:
    terms = terms_for("alice", alice=dpsql.Analyst("0.1", "1e-9"))
    whole = terms_of(1, "1e-6")
    assert (terms.total, terms.budget) == (whole.total, whole.budget)


@pytest.mark.parametrize("items", [1, 3, 100, 777])
@pytest.mark.parametrize("queries", [1, 7])
def test_items_of_the_default_epsilon_fit_the_limit_exactly(items: int, queries: int) -> None:
    terms = terms_for("alice", alice=dpsql.Analyst("0.31", "3e-7", items=items, queries=queries))
    assert terms.account is not None
    own = terms.account.budget
    assert items * terms.epsilon.value**2 / 8 <= own.rho.value
    assert items * next_digit(terms.epsilon.value) ** 2 / 8 > own.rho.value
    assert terms.delta.value * queries == own.delta.value


def test_what_an_analyst_does_not_say_is_that_of_the_budget() -> None:
    budget = dpsql.Budget(1, "1e-6", items=50, queries=4)
    policy = dpsql.Policy(budget, TABLES, analysts={"alice": dpsql.Analyst("0.5")})
    alone = terms_of("0.5", "1e-6", items=50, queries=4)
    terms = Terms.of_policy(policy, "alice")
    assert (terms.epsilon, terms.delta.value) == (alone.epsilon, alone.delta.value / 2)
    assert terms.earlier_delta == alone.delta


@pytest.mark.parametrize("certificate", ["zcdp", "pure"])
@pytest.mark.parametrize("epsilon", ["0.1", "0.5", "1"])
def test_an_analyst_has_the_fraction_of_delta_that_they_have_of_epsilon(epsilon: str, certificate: str) -> None:
    policy = dpsql.Policy(
        dpsql.Budget(1, "1e-6", certificate=certificate), TABLES, analysts={"alice": dpsql.Analyst(epsilon)}
    )
    terms, whole = Terms.of_policy(policy, "alice"), Terms.of_total(policy)
    assert terms.account is not None
    assert terms.account.budget.permanent == Fraction(epsilon) * whole.budget.permanent
    alone = Terms.of_total(dpsql.Policy(dpsql.Budget(epsilon, "1e-6", certificate=certificate), TABLES))
    assert terms.account.budget.refundable == alone.budget.refundable
    assert terms.delta.value == terms.account.budget.permanent / 20


def test_the_unlisted_have_a_limit_each_and_the_unnamed_one_together() -> None:
    analysts = {"default": dpsql.Analyst("0.2"), "alice": dpsql.Analyst("0.5")}
    accounts = {name: terms_for(name, **analysts).account for name in (None, "bob", "carol", "alice")}
    assert [account and account.name for account in accounts.values()] == ["default", "bob", "carol", "alice"]
    alone = terms_of("0.2", "1e-6").budget
    limit = replace(alone, permanent=alone.permanent / 5)
    assert all(accounts[name] and accounts[name].budget == limit for name in (None, "bob", "carol"))


def test_a_disabled_analyst_has_no_terms() -> None:
    for name, analysts in (
        ("bob", {"bob": dpsql.Analyst(enabled=False)}),
        (None, {"default": OFF}),
        ("x", {"default": OFF}),
    ):
        with pytest.raises(dpsql.Refusal) as caught:
            terms_for(name, **analysts)
        assert caught.value.code == "analyst-disabled"


@pytest.mark.parametrize("certificate", ["zcdp", "pure", "theorem2", "optimal"])
def test_an_analyst_without_a_share_has_terms_and_nothing_to_spend(certificate: str) -> None:
    budget = dpsql.Budget(1, "1e-6", certificate=certificate)
    tables = {"reads": dpsql.PrivateTable("user_id")}
    policy = dpsql.Policy(budget, tables, analysts={"bi": dpsql.Analyst(0)})
    terms, whole = Terms.of_policy(policy, "bi"), Terms.of_policy(policy, "ana")
    assert (terms.has_share, whole.has_share) == (False, True)
    assert terms.account is not None
    assert (terms.account.name, terms.account.budget.refundable, terms.account.budget.permanent) == ("bi", 0, 0)
    assert terms.epsilon == whole.epsilon


@pytest.mark.parametrize(
    ("name", "analysts", "place"),
    [
        ("alice", {"alice": dpsql.Analyst("0.001", items=10**6)}, "analysts.alice.items"),
        ("bob", {"default": dpsql.Analyst("0.001", items=10**6)}, "analysts.default.items"),
        (None, {"default": dpsql.Analyst("1e-9")}, "analysts.default.items"),
    ],
)
def test_a_limit_that_buys_nothing_is_refused(name: str, analysts: dict[str, dpsql.Analyst], place: str) -> None:
    with pytest.raises(dpsql.PolicyError) as caught:
        terms_for(name, **analysts)
    assert (caught.value.code, caught.value.place) == ("policy-items", place)


def test_a_check_is_of_the_total_and_of_every_limit() -> None:
    def read_back(**analysts: dpsql.Analyst) -> Check:
        policy = dpsql.Policy(dpsql.Budget(1, "1e-6"), TABLES, analysts=analysts)
        return report_policy(policy, {}, reach=lambda _: 0)

    whole = read_back()
    for limited in (read_back(default=OFF, bob=OFF), read_back(default=dpsql.Analyst("0.2"))):
        assert replace(limited, analysts=()) == whole != limited
    for name in ("alice", "default"):
        with pytest.raises(dpsql.PolicyError) as caught:
            read_back(bob=OFF, **{name: dpsql.Analyst("0.001", items=10**6)})
        assert caught.value.place == f"analysts.{name}.items"


def test_the_ceilings_hold_for_an_analyst_too() -> None:
    limits = dpsql.Limits(max_epsilon="0.01")
    assert terms_for("alice", limits=limits, alice=dpsql.Analyst(1, items=1)).epsilon == Epsilon("0.01")


# --- the usual queries


def fit(policy: dpsql.Policy, spent: int = 0) -> dict[str, int]:
    """Return how many of each usual query fit when so many items were spent."""
    terms = Terms.of_policy(policy)
    state = BudgetState(spent * terms.epsilon.value**2 / 8)
    return {tile.many: tile.remaining for tile in compute_balance(terms, state).tiles}


def test_the_usual_queries_are_priced_at_the_bounds_of_the_policy() -> None:
    budget = dpsql.Budget(1, "1e-6")  # of 100 items
    usual = {"lists of names (TOP 10)": 10, "lists of names with counts (TOP 10)": 5}
    assert fit(dpsql.Policy(budget, TABLES)) == {**usual, "totals": 100, "series of 12 months": 8}
    bounded = {"visits": dpsql.PrivateTable("user_id", max_groups_contributed=2)}
    fewer = {"lists of names (TOP 10)": 10, "lists of names with counts (TOP 10)": 8}
    assert fit(dpsql.Policy(budget, bounded)) == {**fewer, "totals": 100, "series of 12 months": 50}
    both = dpsql.Policy(budget, {**TABLES, **bounded})
    assert fit(both) == fit(dpsql.Policy(budget, TABLES))  # of whichever table
    small = dpsql.Policy(budget, TABLES, limits=dpsql.Limits(max_k=4))
    assert next(iter(fit(small).items())) == ("lists of names (TOP 4)", 20)  # as many as there are deltas
    assert fit(small, spent=90)["lists of names (TOP 4)"] == 2
    assert fit(small, spent=99) == dict.fromkeys(fit(small), 0) | {"totals": 1}


def test_a_usual_query_that_the_policy_refuses_is_left_out() -> None:
    budget, small_groups = dpsql.Budget(1, "1e-6"), {"visits": dpsql.PrivateTable("user_id", min_units=5)}
    assert list(fit(dpsql.Policy(budget, small_groups))) == [
        "lists of names (TOP 10)",
        "lists of names with counts (TOP 10)",
    ]
    assert len(fit(dpsql.Policy(budget, {**TABLES, **small_groups}))) == 4
    assert fit(dpsql.Policy(budget, {"pages": dpsql.PublicTable()})) == {}
