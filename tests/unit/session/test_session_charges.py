"""What a query costs: the worst case is held before a row is read, what was returned is charged, nothing else is."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
from support.looks_kit import AT_ONCE, find_answerer, price_looks
from support.session_kit import (
    COUNTS,
    NAMES,
    PRIVATE,
    WatchedLedger,
    charged,
    fresh_ledger,
    rebuilt,
    session_on,
    shared,
    values_rows,
)

import dpsql
from dpsql.engines import Exact, Statement
from dpsql.ledger import SQLiteLedger
from dpsql.mechanisms.gate import Look
from dpsql.plan import Plan
from dpsql.session import Session

STANDING_OUT = {f"a{number}": 1000 + 100 * number for number in range(4)}  # 4 groups, then BOTTOM
ITEM = Fraction("0.05") ** 2 / 8
BY_ITEM = "WITH (mechanism = limited_domain, "
NOBODY = "FROM reads WHERE user_id < 0"
LOOKS = None  # of two looks: what they cost, and not whole items
ONE_ANEW = "SELECT article FROM reads GROUP BY article TOP 1 PRIVATE WITH (fresh = true)"


@pytest.fixture
def session() -> Session:
    return session_on(shared(*values_rows(STANDING_OUT)))


BOUNDED = "a bound of 2 groups"  # noise decides how many stand out, and counts cost at most 2 items


def price_of(plan: Plan, receipt: dpsql.Receipt) -> dpsql.Rho:
    """Return what two looks, what answered, and counts of all that was found cost."""
    found, looked = receipt.answered, find_answerer(receipt.legs)
    assert receipt.mechanism == "two_looks"
    keys = price_looks(plan.epsilon, looked, k=plan.k, found=found, discovered=len(STANDING_OUT))
    return dpsql.Rho(keys + charged(plan, 0 if plan.counts is None else found).value)


@pytest.mark.parametrize(
    ("sql", "keys", "bottom", "items"),
    [
        (NAMES, 4, True, LOOKS),
        (COUNTS, 4, True, LOOKS),
        (NAMES.replace("TOP 5", "TOP 4"), 4, False, LOOKS),
        (COUNTS.replace("TOP 5", "TOP 4"), 4, False, LOOKS),
        (NAMES.replace("FROM reads", NOBODY), 0, True, LOOKS),
        (COUNTS.replace("FROM reads", NOBODY), 0, True, LOOKS),
        (NAMES + " LIMIT 1", 1, True, LOOKS),
        (NAMES.replace("WITH (", BY_ITEM), 4, True, 5),
        (COUNTS.replace("WITH (", BY_ITEM), 4, True, 9),
        (NAMES.replace("TOP 5", "TOP 4").replace("WITH (", BY_ITEM), 4, False, 4),
        (COUNTS.replace("TOP 5", "TOP 4").replace("WITH (", BY_ITEM), 4, False, 8),
        (NAMES.replace("FROM reads", NOBODY).replace("WITH (", BY_ITEM), 0, True, 1),
        (COUNTS.replace("FROM reads", NOBODY).replace("WITH (", BY_ITEM), 0, True, 1),
        (COUNTS.replace("0.05)", "0.05, max_groups_contributed = 4)").replace("WITH (", BY_ITEM), 4, True, 9),
        (COUNTS.replace("0.05)", "0.05, max_groups_contributed = 2)").replace("WITH (", BY_ITEM), 3, False, BOUNDED),
        (NAMES.replace("WITH (", BY_ITEM) + " LIMIT 1", 1, True, 5),
    ],
)
def test_what_is_returned_is_charged(
    session: Session, sql: str, keys: int, bottom: bool, items: int | str | None
) -> None:
    plan, before = session.explain(sql), session.budget
    answer = session.sql(sql)
    receipt, after = answer.receipt, session.budget
    if items == BOUNDED:
        drawn = len(answer) + receipt.stopped_at_bottom
        paid = charged(plan, drawn + min(2, len(answer)))
    else:
        assert (len(answer), receipt.stopped_at_bottom) == (keys, bottom)
        paid = charged(plan, items) if isinstance(items, int) else price_of(plan, receipt)
    assert receipt.loss.rho == paid
    assert receipt.items_charged == math.ceil(paid.value / charged(plan, 1).value)
    assert receipt.loss.rho <= plan.worst_case.rho
    assert receipt.loss.delta == plan.delta
    assert after.rho.spent - before.rho.spent == receipt.loss.rho.value
    assert after.delta.spent - before.delta.spent == plan.delta.value
    assert after.rho.reserved == 0
    assert receipt.remaining.rho.value == after.rho.remaining == after.rho.granted - after.rho.spent
    assert receipt.remaining.delta.value == after.delta.remaining == after.delta.granted - after.delta.spent


def test_sums_are_exact_over_many_queries(session: Session) -> None:
    spent, delta = Fraction(0), Fraction(0)
    for epsilon in ("0.011", "0.0123456789012345", "1.5e-2", "0.0070"):
        answer = session.sql(
            "SELECT article FROM reads GROUP BY article TOP 3 PRIVATE "
            f"WITH (mechanism = limited_domain, epsilon = {epsilon}, delta = 1.23e-9)"
        )
        spent += answer.receipt.items_charged * Fraction(epsilon) ** 2 / 8
        delta += Fraction("1.23e-9")
        assert session.budget.rho.spent == spent
        assert session.budget.delta.spent == delta


@pytest.fixture
def durable(session: Session, tmp_path: Path) -> tuple[Session, Path]:
    path = tmp_path / "ledger.sqlite"
    terms = session._dependencies.terms
    return rebuilt(session, ledger=SQLiteLedger(path, terms.budget, total=terms.total)), path


def on_disk(path: Path) -> tuple[Fraction, Fraction, Fraction, int]:
    """Return spent rho, spent delta, reserved rho and the number of settled entries, as a stranger reads the file."""
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    try:
        row = connection.execute(
            "SELECT spent_rho, spent_delta, reserved_rho FROM balances WHERE holder = 'total'"
        ).fetchone()
        (settled,) = connection.execute("SELECT count(*) FROM events WHERE kind = 'settled'").fetchone()
    finally:
        connection.close()
    spent, delta, reserved = map(Fraction, row)
    return spent, delta, reserved, settled


@pytest.mark.parametrize(("sql", "items"), [(NAMES, 5), (COUNTS, 10)])
@pytest.mark.parametrize("clause", ["WITH (", BY_ITEM])
def test_the_worst_case_is_on_the_disk_before_a_row_is_read(
    durable: tuple[Session, Path], sql: str, items: int, clause: str
) -> None:
    session, path = durable
    seen: list[tuple[Fraction, Fraction, Fraction, int]] = []

    def look(statement: Statement, execute: Callable[[Statement], Exact]) -> Exact:
        seen.append(on_disk(path))
        return execute(statement)

    watched = rebuilt(session, engine=look)
    answer = watched.sql(sql.replace("WITH (", clause))
    receipt, delta = answer.receipt, answer.receipt.delta.value
    twice = receipt.mechanism == "two_looks" and find_answerer(receipt.legs) != AT_ONCE
    assert seen == [(0, delta, items * ITEM, 0)] * (2 if twice else 1)
    assert on_disk(path) == (receipt.loss.rho.value, delta, 0, 1)
    assert receipt.loss.rho.value == receipt.items_charged * ITEM or clause != BY_ITEM


def test_what_was_returned_is_on_the_disk_before_the_answer_is_handed_out(durable: tuple[Session, Path]) -> None:
    session, path = durable
    events: list[object] = []
    ledger = WatchedLedger(
        session._dependencies.ledger,
        before=lambda: events.append(on_disk(path)[3]),
        after=lambda: events.append(on_disk(path)[3]),
    )
    events.append(len(rebuilt(session, ledger=ledger).sql(NAMES)))  # type: ignore[arg-type]
    assert events == [0, 1, 4]


def free_statements() -> list[tuple[str, type[dpsql.Error] | None]]:
    return [
        ("SHOW BUDGET", None),
        ("show budget;", None),
        (f"EXPLAIN {COUNTS}", None),
        ("SELECT article FROM reads GROUP BY article", dpsql.Refusal),
        ("SELECT nothing FROM reads GROUP BY nothing TOP 5 PRIVATE", dpsql.Refusal),
        ("SELECT article FROM nowhere GROUP BY article TOP 5 PRIVATE", dpsql.Refusal),
        ("SELECT article, sum(user_id) FROM reads GROUP BY article TOP 5 PRIVATE", dpsql.Error),
        ("SELECT article FROM reads GROUP BY article TOP 5 PRIVATE WITH (epsilon = 2)", dpsql.Refusal),
        ("SELECT article FROM reads GROUP BY article TOP 5 PRIVATE WITH (k_bar = 4)", dpsql.Refusal),
        ("SELECT article FROM reads GROUP BY article TOP 5 PRIVATE WITH (epsilon = 1)", dpsql.BudgetExceeded),
        ("SELECT article FROM reads GROUP BY article TOP ? PRIVATE", dpsql.UsageError),
        ("EXPLAIN SELECT article FROM reads GROUP BY article TOP 5 PRIVATE WITH (epsilon = 2)", dpsql.Refusal),
        ("", dpsql.Refusal),
    ]


@pytest.mark.parametrize(("sql", "error"), free_statements(), ids=lambda value: str(value)[:40])
def test_what_reads_no_row_costs_nothing(session: Session, sql: str, error: type[dpsql.Error] | None) -> None:
    read: list[Statement] = []

    def record(statement: Statement, execute: Callable[[Statement], Exact]) -> Exact:
        read.append(statement)
        return execute(statement)

    watched = rebuilt(session, engine=record)
    before = watched.budget
    if error is None:
        assert watched.sql(sql).receipt.items_charged == 0
    else:
        with pytest.raises(error):
            watched.sql(sql)
    assert watched.budget == before
    assert watched._dependencies.ledger.entries() == ()
    assert read == []


@pytest.mark.parametrize("seen", [0, 1])  # by the first look, which decides on the second statement
def test_explain_costs_nothing_and_shows_what_sql_runs(
    session: Session, seen: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Look, "draw", lambda *_: Fraction(seen))
    read: list[Statement] = []

    def record(statement: Statement, execute: Callable[[Statement], Exact]) -> Exact:
        read.append(statement)
        return execute(statement)

    watched = rebuilt(session, engine=record)
    plan = watched.explain(COUNTS)
    assert read == []
    assert watched._dependencies.ledger.entries() == ()
    watched.sql(COUNTS)
    facts = dict(plan.facts())
    shown = [facts["engine SQL"], facts["engine SQL, second look"]]
    assert [statement.sql for statement in read] == shown[: 1 if seen else 2]


def test_show_budget_has_no_plan(session: Session) -> None:
    with pytest.raises(dpsql.Refusal) as caught:
        session.explain("SHOW BUDGET")
    assert caught.value.code == "not-a-query"


def test_a_budget_is_spent_to_the_last_item_and_no_further() -> None:
    policy = dpsql.Policy(dpsql.Budget(1, "1e-6", items=10, queries=1000), PRIVATE)
    session = session_on(shared(*values_rows({})), policy)
    for left in range(9, -1, -1):
        assert session.sql(ONE_ANEW).receipt.items_charged == 1
        assert session.budget.items == left
    with pytest.raises(dpsql.BudgetExceeded):
        session.sql(ONE_ANEW)
    assert session.budget.rho.remaining >= 0


def test_the_pool_of_delta_is_spent_by_queries_that_return_nothing() -> None:
    policy = dpsql.Policy(dpsql.Budget(1, "1e-6", items=1000, queries=3), PRIVATE)
    session = session_on(shared(*values_rows({})), policy)
    for _ in range(3):
        session.sql(ONE_ANEW)
    with pytest.raises(dpsql.BudgetExceeded, match="Only a query whose keys are known fits"):
        session.sql(ONE_ANEW)
    assert session.budget.delta.remaining == 0


def test_the_ledger_keeps_the_words_of_the_question(session: Session) -> None:
    ledger = fresh_ledger(session)
    rebuilt(session, ledger=ledger).sql(NAMES)
    (entry,) = ledger.entries()
    assert entry.query == NAMES
    assert entry.settlement is not None
    assert len(entry.settlement.digest) == 64
