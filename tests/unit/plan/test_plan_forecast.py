"""How many more such queries fit is what a ledger admits, one after another, to the last."""

from __future__ import annotations

import random
from fractions import Fraction

import duckdb
import pytest
from support import looks_kit
from support.looks_kit import price_looks

import dpsql
from dpsql.accounting import BudgetVector
from dpsql.ledger import MemoryLedger, Request
from dpsql.plan import Plan
from dpsql.quantities import Delta, Rho
from dpsql.report.forecast import forecast

NAMES = "SELECT article FROM reads GROUP BY article TOP {k} PRIVATE WITH (epsilon = {epsilon}{more})"
COUNTS = (
    "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article "
    "TOP {k} PRIVATE WITH (epsilon = {epsilon}{more})"
)
KNOWN = ", domain = ['a', 'b', 'c']"
BOUNDED = ", max_groups_contributed = 2"
ITEM = Fraction("0.01") ** 2 / 8
AT_ONCE = {  # in items
    k: price_looks(dpsql.Epsilon("0.01"), looks_kit.AT_ONCE, k=k, found=-(-k // 2)) / ITEM for k in (1, 3, 10)
}


def plan_of(sql: str) -> Plan:
    connection = duckdb.connect(":memory:")
    connection.execute("CREATE TABLE reads (user_id BIGINT, article VARCHAR)")
    policy = dpsql.Policy(dpsql.Budget(1, "1e-6"), {"reads": dpsql.PrivateTable("user_id")})
    with dpsql.connect(connection, policy=policy, ledger=":memory:") as session:
        return session.explain(sql)


def admitted(plan: Plan, remaining: BudgetVector, *, loss: Rho) -> int:
    ledger = MemoryLedger(remaining, total=plan_total())
    asked = 0
    while True:
        try:
            reservation = ledger.reserve(Request("", plan.price(plan.worst_case)))
        except dpsql.BudgetExceeded:
            return asked
        reservation.settle(loss.value, "")
        asked += 1


def plan_total() -> dpsql.accounting.ApproximateDP:
    return dpsql.accounting.ApproximateDP(dpsql.Epsilon(1), Delta("1e-6"))


@pytest.mark.parametrize("more", ["", KNOWN, BOUNDED])
@pytest.mark.parametrize("sql", [NAMES, COUNTS])
@pytest.mark.parametrize("k", [1, 2, 3, 10])
def test_as_many_fit_as_a_ledger_admits(sql: str, k: int, more: str) -> None:
    plan, source = plan_of(sql.format(k=k, epsilon="0.01", more=more)), random.Random(k)
    for _ in range(8):
        times = Fraction(source.randint(0, 4000), 1000)
        pool = Fraction(source.randint(0, 4000), 1000)
        remaining = BudgetVector(plan.worst_case.rho.value * times, plan.worst_case.delta.value * pool)
        told = forecast(plan, remaining, times=2)
        assert told.at_worst == admitted(plan, remaining, loss=plan.worst_case.rho)
        assert told.at_half == admitted(plan, remaining, loss=told.half_loss.rho)
        assert told.fits == (told.at_worst >= 2)


@pytest.mark.parametrize(
    ("sql", "more", "k", "items"),
    [
        (NAMES, "", 10, AT_ONCE[10]),  # the first look, and five keys and BOTTOM of what it leaves
        (NAMES, ", mechanism = limited_domain", 10, 6),  # five keys and BOTTOM
        (NAMES, "", 3, AT_ONCE[3]),  # two keys and BOTTOM
        (NAMES, "", 1, AT_ONCE[1]),
        (NAMES, ", mechanism = weighted_gaussian", 10, 10),  # behind an open gate, and without one
        (NAMES, ", mechanism = weighted_gaussian, gate = false", 10, 10),
        (COUNTS, "", 10, AT_ONCE[10] + 5),
        (COUNTS, ", mechanism = limited_domain", 10, 11),
        (
            COUNTS,
            BOUNDED + ", mechanism = limited_domain",
            10,
            8,
        ),  # counts under a bound cost two items, however many they are
        (NAMES, KNOWN, 10, 3),  # a known domain returns all it has
        (COUNTS, f"{KNOWN}, mechanism = peeling", 10, 6),
        (COUNTS, KNOWN, 10, 3),  # all counts at once
    ],
)
def test_what_a_query_costs_of_which_half_comes_back(sql: str, more: str, k: int, items: int | Fraction) -> None:
    plan = plan_of(sql.format(k=k, epsilon="0.01", more=more))
    told = forecast(plan, plan.price(plan.worst_case), times=1)
    assert told.half_loss.rho == Rho(plan.item_loss.rho.value * items)
    assert told.half_loss.delta == plan.delta


def test_the_words_say_whether_the_planned_queries_fit() -> None:
    plan = plan_of(NAMES.format(k=10, epsilon="0.01", more=""))
    three = BudgetVector(plan.worst_case.rho.value * 3, plan.delta.value * 100)
    assert str(forecast(plan, three, times=3)) == (
        "3 such queries fit, with any answers. What is left admits 3 in the worst case, and 4 when half of the "
        "items come back."
    )
    assert str(forecast(plan, three, times=1)).startswith("1 such query fits, with any answers. What")
    assert "may not all fit, but do if half" in str(forecast(plan, three, times=4))
    assert str(forecast(plan, three, times=5)).startswith("5 such queries may not all fit. What")


@pytest.mark.parametrize("times", [0, -1, 1.5, True, "3", None])
def test_times_is_a_whole_number_of_at_least_one(times: object) -> None:
    plan = plan_of(NAMES.format(k=1, epsilon="0.01", more=""))
    with pytest.raises(dpsql.UsageError, match=r"\[times-range\]"):
        forecast(plan, plan.worst_case, times=times)  # type: ignore[arg-type]
