"""Where the policy shares answers the first draw is everybody's, each pays for it, and none can tell who was first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.session_kit import PRIVATE, rebuilt, session_on, shared, values_rows

import dpsql
from dpsql.engines import Exact, Statement

ASK = (
    "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads WHERE article <> '{}' GROUP BY article "
    "TOP 3 PRIVATE WITH (epsilon = 0.02)"
)
Open = Callable[..., dpsql.Session]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    connection = shared(*values_rows({"a": 30000, "b": 20000, "c": 15000}))
    analysts = {name: dpsql.Analyst(0.5) for name in ("alice", "bob", "carol")}
    with ExitStack() as sessions:

        def open_one(analyst: str, *, share: bool = True) -> dpsql.Session:
            policy = dpsql.Policy(
                dpsql.Budget(1, "1e-6"), PRIVATE, limits=dpsql.Limits(share_replays=share), analysts=analysts
            )
            opening = dpsql.connect(connection, policy=policy, ledger=tmp_path / "ledger.sqlite", analyst=analyst)
            return sessions.enter_context(opening)

        yield open_one


def test_the_first_draw_answers_everybody_and_each_pays_for_it(opened: Open) -> None:
    alice, bob = opened("alice"), opened("bob")
    questions = [ASK.format(f"x{number}") for number in range(5)]
    for sql in questions:
        first, second = alice.sql(sql), bob.sql(sql)
        # five times three noisy counts of standard deviation 100 agree by chance alone with probability below 1e-30
        assert first.fetchall() == second.fetchall()
        for answer in (first, second):
            assert answer.receipt.shared
            assert not answer.receipt.replayed
            assert answer.receipt.loss.rho.value > 0
        assert first.receipt.loss == second.receipt.loss
        assert first.receipt.items_charged == second.receipt.items_charged
    assert alice.budget.rho.spent == bob.budget.rho.spent > 0
    assert bob.sql(questions[0]).receipt.replayed


def test_a_hit_runs_and_holds_and_settles_as_a_miss_does(opened: Open) -> None:
    ran: list[str] = []

    def hook(statement: Statement, run: Callable[[Statement], Exact]) -> Exact:
        ran.append(statement.sql)
        return run(statement)

    alice, bob = (rebuilt(opened(name), engine=hook) for name in ("alice", "bob"))
    text = ASK.format("x").replace("0.02)", "0.02, mechanism = limited_domain)")  # one statement
    alice.sql(text)
    miss = list(alice._dependencies.ledger.events())[-2:]
    bob.sql(text)
    hit = list(alice._dependencies.ledger.events())[-2:]
    assert ran[0] == ran[1]
    assert [event.kind for event in miss] == [event.kind for event in hit] == ["reserved", "settled"]


def test_a_later_draw_is_never_served_to_another(opened: Open) -> None:
    alice, bob, carol = opened("alice"), opened("bob"), opened("carol")
    sql = ASK.format("x")
    first = alice.sql(sql).fetchall()
    fresh = alice.sql(sql.replace("(", "(fresh = true, ", 2).replace("COUNT(fresh = true, ", "COUNT(")).fetchall()
    assert fresh != first  # three counts of standard deviation 100
    assert alice.sql(sql).fetchall() == fresh  # her own newest
    assert bob.sql(sql).fetchall() == carol.sql(sql).fetchall() == first


def test_a_receipt_says_whether_what_was_spent_is_kept(opened: Open) -> None:
    assert opened("alice").sql(ASK.format("x")).receipt.durable
    with session_on(shared(*values_rows({"a": 30}))) as trial:
        receipt = trial.sql(ASK.format("x")).receipt
        assert not receipt.durable
        assert "in memory, for trials" in str(receipt.details())


def test_without_sharing_everybody_has_a_draw_of_their_own(opened: Open) -> None:
    alice, bob = opened("alice", share=False), opened("bob", share=False)
    answers = [[session.sql(ASK.format(f"x{number}")) for number in range(3)] for session in (alice, bob)]
    assert [answer.fetchall() for answer in answers[0]] != [answer.fetchall() for answer in answers[1]]
    assert not any(answer.receipt.shared for answer in answers[0])


def test_another_version_of_the_data_has_another_first_draw(opened: Open) -> None:
    alice, bob = opened("alice"), opened("bob")
    before = [alice.sql(ASK.format(f"x{number}")).fetchall() for number in range(3)]
    assert [bob.sql(ASK.format(f"x{number}")).fetchall() for number in range(3)] == before  # and so knows its names
    alice._dependencies.ledger.bump("new rows")
    after = [bob.sql(ASK.format(f"x{number}")).fetchall() for number in range(3)]
    assert before != after
    assert [alice.sql(ASK.format(f"x{number}")).fetchall() for number in range(3)] == after


def test_it_costs_the_second_what_it_cost_the_first_also_where_it_stopped_early(opened: Open) -> None:
    alice, bob = opened("alice"), opened("bob")
    sql = "SELECT article FROM reads GROUP BY article TOP 9 PRIVATE WITH (epsilon = 0.02)"
    first, second = alice.sql(sql), bob.sql(sql)
    assert first.receipt.stopped_at_bottom
    assert second.receipt.loss == first.receipt.loss
    assert second.fetchall() == first.fetchall()
    assert bob.budget.rho.spent == first.receipt.loss.rho.value


def test_who_cannot_afford_it_does_not_get_what_another_paid_for(opened: Open) -> None:
    alice, bob = opened("alice"), opened("bob")
    last = ASK.format("last")
    alice.sql(last)
    price = bob.forecast(last)
    for number in range(price.at_worst):
        bob.sql(ASK.format(f"y{number}"))
    with pytest.raises(dpsql.BudgetExceeded):
        bob.sql(last)
