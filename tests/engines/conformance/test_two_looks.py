"""Two looks on every engine: where the first look settles it one statement is run, and otherwise weights are read."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pyarrow as pa
import pytest
from support.engine_kits import KITS, kit_of
from support.laws import SeededNoise
from support.looks_kit import AT_ONCE, WEIGHTS, find_answerer, price_looks
from support.session_kit import charged, fresh_ledger, rebuilt

import dpsql
from dpsql.connect import open_session
from dpsql.engines import Exact, Statement
from dpsql.mechanisms import unit_weight
from dpsql.session import Session
from dpsql.testing.queries import run_statement

K = 40
ARTICLES = [f"article {at:02}" for at in range(K)]
QUERY = "SELECT article, COUNT(DISTINCT user_id) AS n FROM {} GROUP BY article TOP 40 PRIVATE WITH (epsilon = 1)"
# At this price the first look says 0 of articles with up to 12 units, 1 from 28 on, and settles it above .8. Behind
# both looks a noisy weight of 2.6 is enough, and from 2.2 times as much on domain discovery would answer. The noise of
# a look is .12, that of a weight .33 and that of a count 2.
HEAVY, LIGHT = 60, 6


def build_reads(units: int) -> pa.Table:
    """Return rows of so many units in each article, each unit in two articles, and some rows without a unit."""
    pairs = [(units * at + number, at) for at in range(K) for number in range(units // 2)]
    pairs += [(unit, (at + 1) % K) for unit, at in pairs]
    users = pa.array([*(unit for unit, _ in pairs), *([None] * 9)], pa.int64())
    return pa.table({"user_id": users, "article": [*(ARTICLES[at] for _, at in pairs), *(["nobody's"] * 9)]})


@cache
def open_reads(engine: str) -> Session:
    """Return a session over both tables."""
    kit = kit_of(engine)
    opened = kit.open({name: kit.fit(build_reads(units)) for name, units in (("heavy", HEAVY), ("light", LIGHT))})
    tables = {name: dpsql.PrivateTable("user_id") for name in ("heavy", "light")}
    policy = dpsql.Policy(dpsql.Budget(50, "1e-6"), tables, limits=dpsql.Limits(max_epsilon=1))
    return open_session(opened, policy, ledger=":memory:")


def run(session: Session, table: str) -> tuple[dpsql.Answer, list[Statement]]:
    """Return an answer with the statements that the engine ran for it."""
    statements = list[Statement]()

    def watch(statement: Statement, execute: Callable[[Statement], Exact]) -> Exact:
        statements.append(statement)
        return execute(statement)

    own = rebuilt(session, engine=watch, ledger=fresh_ledger(session), noise=SeededNoise(7))
    return own.sql(QUERY.format(table)), statements


@pytest.mark.parametrize("engine", KITS)
def test_the_looks_decide_how_often_an_engine_is_asked_and_what_answers(engine: str) -> None:
    session = open_reads(engine)
    for table, units, expected in (("heavy", HEAVY, AT_ONCE), ("light", LIGHT, WEIGHTS)):
        plan = session.explain(QUERY.format(table))
        if plan.spec.build_second is None:
            assert plan.mechanism == "limited_domain"
            pytest.skip("it cannot look up weights, so that the limited domain answers")
        answer, statements = run(session, table)
        receipt = answer.receipt
        assert find_answerer(receipt.legs) == expected
        assert len(statements) == (1 if expected == AT_ONCE else 2)
        found = dict(answer.fetchall())
        assert set(found) == set(ARTICLES)
        assert all(abs(int(str(count)) - units) <= 16 for count in found.values())  # 8 standard deviations
        paid = price_looks(plan.epsilon, expected, k=K, found=K) + charged(plan, K).value
        assert receipt.loss.rho.value == paid


@pytest.mark.parametrize("engine", KITS)
def test_the_second_statement_reads_counts_and_weights_of_all_groups(engine: str) -> None:
    session = open_reads(engine)
    second = session.explain(QUERY.format("light")).spec.second
    if second is None:
        pytest.skip("it cannot look up weights, so that the limited domain answers")
    counting = second.counting
    read = run_statement(session._dependencies.engine, Statement(counting.sql, counting.parameters, counting.types))
    rows = list(zip(*(column.to_pylist()[:] for column in read.columns[:3]), strict=True))
    assert rows == [(article, LIGHT, LIGHT * unit_weight(2)) for article in ARTICLES]
