"""What questions cost where nothing stands out: 400 users, each with a few of 5,000 titles."""

from __future__ import annotations

from fractions import Fraction

import pytest
from support.session_kit import session_on, shared

import dpsql
from dpsql.engines import Exact, Statement
from dpsql.mechanisms.gate import find_open_probability
from dpsql.plan import release
from dpsql.session import Session

ROWS = (
    "CREATE TABLE reads (user_id BIGINT, title VARCHAR, day INTEGER)",
    "INSERT INTO reads SELECT i % 400, 't' || (hash(i) % 5000), i % 30 FROM range(6000) t(i)",
)
NAMES = "SELECT title FROM reads GROUP BY title TOP {k} PRIVATE{more}"
RUNS = 200


def session() -> Session:
    policy = dpsql.Policy(dpsql.Budget(1, "1e-6"), {"reads": dpsql.PrivateTable("user_id")})
    return session_on(shared(*ROWS), policy)


@pytest.mark.parametrize("k", [100, 50, 20, 10])
@pytest.mark.parametrize("more", ["", " WITH (max_groups_contributed = 3)"])
def test_where_nothing_stands_out_a_tenth_is_charged_on_average(k: int, more: str) -> None:
    one = session()
    plan = one.explain(NAMES.format(k=k, more=more))

    known: dict[str, Exact] = {}

    def execute(statement: Statement) -> Exact:
        if statement.sql not in known:
            known[statement.sql] = one._dependencies.engine.execute(statement)
        return known[statement.sql]

    exact = execute(Statement(plan.counting.sql, plan.counting.parameters, plan.counting.types))
    item = plan.price(plan.worst_case).refundable / k
    noise = one._dependencies.noise
    released = [release(plan, exact, noise=noise, execute=execute) for _ in range(RUNS)]
    charged = [plan.price(each.loss).refundable / item for each in released]
    allowed = k * (Fraction(6, 100) + find_open_probability(k, 2) * Fraction(94, 100))
    deviation = k * float(find_open_probability(k, 2) / RUNS) ** 0.5
    assert float(sum(charged) / RUNS) <= float(allowed) + 1 + 5 * deviation
    assert sum(charged) / RUNS < Fraction(1, 2) * k


def test_after_three_such_questions_most_of_the_budget_is_left() -> None:
    enough, runs = 0, 50
    for _ in range(runs):
        one = session()
        for k in (50, 20, 10):
            one.sql(NAMES.format(k=k, more=""))
        enough += one.forecast("SELECT COUNT(DISTINCT user_id) FROM reads PRIVATE").at_worst >= 25 or asks_names(
            one, 12
        )
    assert enough >= 0.8 * runs


def asks_names(one: Session, number: int) -> bool:
    """Say whether so many more questions on names fit."""
    try:
        for day in range(number):
            one.sql(NAMES.format(k=10, more="").replace(" GROUP", f" WHERE day = {day} GROUP"))
    except dpsql.BudgetExceeded:
        return False
    return True
