"""Receipts add up: what thirty questions say that they used is what the budget shows as used, to the last digit."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from support.session_kit import PRIVATE, rebuilt, session_on, shared, values_rows
from support.values_kit import data_file, policy_of

import dpsql
from dpsql.accounting import NO_RISE, Certificate, Rise
from dpsql.engines import Exact, Statement
from dpsql.errors import BudgetExceeded, EngineError
from dpsql.receipt import Receipt
from dpsql.session import Session

READS = shared(*values_rows({f"a{at}": 400 + 60 * at for at in range(8)}))
TOTAL = "SELECT COUNT(DISTINCT user_id) AS n FROM reads"
QUESTIONS = [
    "SELECT article FROM reads GROUP BY article TOP {k} PRIVATE",
    "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article TOP {k} PRIVATE",
    "SELECT article FROM reads WHERE user_id > {k} GROUP BY article TOP 2 PRIVATE WITH (mechanism = limited_domain)",
    f"{TOTAL} WHERE article = 'a{{k}}' PRIVATE",
    f"{TOTAL} WHERE user_id > {{k}} PRIVATE",
    f"SELECT ({TOTAL} WHERE user_id > {{k}} PRIVATE) - ({TOTAL} WHERE article = 'a{{k}}' PRIVATE) AS d",
    "SELECT article FROM reads GROUP BY article TOP {k} PRIVATE WITH (domain = ['a1', 'a2', 'zz'])",
    "SELECT article FROM reads GROUP BY article TOP 1 PRIVATE WITH (fresh = true)",
]


def read_words(receipt: Receipt) -> Decimal:
    """Return the percent that the line of a receipt shows; 0 for a stored answer."""
    words = str(receipt)
    found = re.search(r"used ([\d.]+) % (more )?of the budget|(?P<zero>0) % more: ", words)
    if found is None:
        assert "nothing was charged" in words
        return Decimal(0)
    return Decimal(found["zero"] or found[1])


def ask_thirty(session: Session, some: random.Random, questions: list[str] = QUESTIONS) -> list[Receipt | Decimal]:
    """Return the receipt of each question, or the percent that an error says; of a refused one nothing."""
    found: list[Receipt | Decimal] = []
    for _ in range(30):
        sql = some.choice(questions).format(k=some.randint(1, 5))
        try:
            found.append(session.sql(sql).receipt)
        except BudgetExceeded:
            continue
        except EngineError as error:
            said = re.search(r"charged in full: ([\d.]+) %( more)? of the budget\.", error.reason)
            assert said is not None
            found.append(Decimal(said[1]))
    return found


def failing(some: random.Random) -> Callable[[Statement, Callable[[Statement], Exact]], Exact]:
    def hook(statement: Statement, execute: Callable[[Statement], Exact]) -> Exact:
        if some.random() < 0.05:
            raise RuntimeError
        return execute(statement)

    return hook


def shown(session: Session) -> Decimal:
    (first, *_) = session.sql("SHOW BUDGET").fetchall()
    assert first[0] == "percent of the budget"
    assert first[2] + first[4] == 100
    return Decimal(str(first[2]))


@pytest.mark.parametrize("certificate", [each.value for each in Certificate])
@pytest.mark.parametrize("analyst", [None, "ana"])
def test_receipts_of_mixed_questions_add_up(certificate: str, analyst: str | None) -> None:
    outdone = 0
    may_have_limit = certificate in {"zcdp", "pure"}
    analysts = {"ana": dpsql.Analyst("0.6")} if analyst and may_have_limit else None
    for seed in range(4):
        some = random.Random(seed)
        budget = dpsql.Budget(2, "1e-6", items=80, queries=30, certificate=certificate)
        limits = dpsql.Limits(failures_per_day=100)
        policy = dpsql.Policy(budget, PRIVATE, analysts=analysts, limits=limits)
        with dpsql.connect(READS.cursor(), policy=policy, ledger=":memory:", analyst=analyst) as opened:
            session = rebuilt(opened, engine=failing(some))
            found = ask_thirty(session, some)
            receipts = [each for each in found if isinstance(each, Receipt)]
            failed = [each for each in found if isinstance(each, Decimal)]
            assert sum(map(read_words, receipts)) + sum(failed) == session.budget.percent_used == shown(session)
            assert sum(each.percent_used for each in receipts) + sum(failed) == session.budget.percent_used
            if not failed:
                assert sum(each.used for each in receipts) == session.budget.used
            history = [Decimal(str(percent)) for percent in session.history["percent_used"].to_pylist()]
            assert sum(history) == session.budget.percent_used
            assert str(session.budget).startswith(
                f"{session.budget.percent_used.normalize():f} % of the budget is used"
            )
            for each in receipts:
                free = each.replayed or bool(each.parts and all(part.replayed for part in each.parts))
                assert bool(each.outdone_by) <= (not each.used and not free)
                outdone += bool(each.outdone_by)
    assert outdone or certificate not in {"zcdp", "optimal"}


def test_receipts_of_values_add_up_for_each_value(tmp_path: Path) -> None:
    questions = [
        "SELECT article FROM reads WHERE country = 'DE' GROUP BY article TOP {k} PRIVATE",
        "SELECT article FROM reads WHERE country IN ('DE', 'FR') GROUP BY article TOP {k} PRIVATE",
        "SELECT COUNT(DISTINCT user_id) AS n FROM reads WHERE country = 'FR' AND user_id > {k} PRIVATE",
        "SELECT COUNT(DISTINCT user_id) AS n FROM reads WHERE user_id > {k} PRIVATE",
        "SELECT article FROM reads GROUP BY article TOP {k} PRIVATE",
    ]
    path = data_file(tmp_path / "reads.duckdb")
    for seed in range(2):
        with dpsql.connect(path, policy=policy_of("zcdp"), ledger=":memory:") as session:
            receipts = [
                each for each in ask_thirty(session, random.Random(seed), questions) if isinstance(each, Receipt)
            ]
            assert any(None not in each.rise.by_value for each in receipts if not each.replayed)
            rows = {row[-1]: row for row in session.sql("SHOW BUDGET").fetchall() if row[0] == "percent of the budget"}
            for value in ("DE", "FR", "named by none"):
                balance = session.budget.of([value])
                rises = [each.used_of(value) for each in receipts]
                assert sum((rise.share for rise in rises), Fraction(0)) == balance.used
                assert sum(rise.percent for rise in rises) == balance.percent_used
                assert value not in rows or Decimal(str(rows[value][2])) == balance.percent_used


def test_two_sessions_of_one_ledger_add_up_at_the_same_time(tmp_path: Path) -> None:
    policy = dpsql.Policy(dpsql.Budget(2, "1e-6", items=200, queries=60), PRIVATE)
    place, found = tmp_path / "two.ledger", list[Receipt | Decimal]()
    sessions = [dpsql.connect(READS.cursor(), policy=policy, ledger=place) for _ in range(2)]
    gate = threading.Barrier(2)

    def run(session: Session, seed: int) -> None:
        gate.wait()
        found.extend(ask_thirty(session, random.Random(seed)))

    threads = [threading.Thread(target=run, args=(session, seed)) for seed, session in enumerate(sessions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rises = [each.rise for each in found if isinstance(each, Receipt)]
    assert len(rises) > 40
    total = sum(rises, NO_RISE)
    for session in sessions:
        balance = session.budget
        assert total == Rise(balance.used, int(100 * balance.percent_used))
        assert sum(map(Decimal, map(str, session.history["percent_used"].to_pylist()))) == balance.percent_used
        session.close()


def test_a_total_after_names_does_not_look_free() -> None:
    session = session_on(READS)
    names = session.sql(QUESTIONS[1].format(k=2).replace("PRIVATE", "PRIVATE WITH (delta = 2e-7, epsilon = 0.01)"))
    assert str(names.receipt).startswith("answered ")
    assert names.receipt.used == Fraction("2e-7") / Fraction("5e-7")
    total = f"{TOTAL} WHERE user_id > 3 PRIVATE"
    most = dict(session.sql(f"EXPLAIN {total}").fetchall())["cost"]
    assert most == "at most 0 % more of the budget: names that nobody listed have used more"
    receipt = session.sql(total).receipt
    assert receipt.items_charged == 1
    more = session.forecast(total.replace("3", "4")).at_worst
    assert str(receipt).startswith(
        f"answered 1 of 1; 0 % more: names that nobody listed have used more of the budget; about {more} more like this"
    )


def test_a_statement_of_two_queries_says_how_many_more_fit() -> None:
    session = session_on(READS)
    sql = QUESTIONS[5].replace("PRIVATE", "PRIVATE WITH (epsilon = 0.06)")
    receipt = session.sql(sql.format(k=1)).receipt
    assert receipt.more
    assert f"about {receipt.more} more like this" in str(receipt)
    for at in range(receipt.more):
        assert session.sql(sql.format(k=2 + at)).receipt.more == receipt.more - 1 - at
    with pytest.raises(BudgetExceeded):
        session.sql(sql.format(k=2 + receipt.more))
    assert session.sql(sql.format(k=1)).receipt.more is None


def test_a_statement_of_two_values_says_how_many_more_fit_into_the_budget_of_each(tmp_path: Path) -> None:
    one = "(SELECT COUNT(DISTINCT user_id) FROM reads WHERE country = '{}' PRIVATE WITH (epsilon = 0.2))"
    with dpsql.connect(data_file(tmp_path / "r.duckdb"), policy=policy_of("zcdp"), ledger=":memory:") as session:
        both = session.sql(f"SELECT {one.format('DE')} - {one.format('FR')} AS d").receipt
        alone = session.forecast(one.format("DE")[1:-1].replace("WITH (", "WITH (fresh = true, ")).at_worst
        assert both.more == alone > 0


def test_an_empty_value_is_shown() -> None:
    by_value = {"": Rise(Fraction(1, 20), 500), "DE": Rise(Fraction(1, 10), 1000)}
    receipt = replace(session_on(READS).sql(QUESTIONS[3].format(k=1)).receipt, rise=Rise(by_value=by_value))
    assert dict(receipt.details())["used of each value"] == "'' 5 %, DE 10 %"
    assert "used 5 % of the budget of '' and 10 % of the budget of DE" in str(receipt)


def test_a_query_that_lost_to_an_equal_one_has_used_nothing_and_no_less() -> None:
    """It reserved when rho was the larger part, and frees its delta when delta is."""
    session = session_on(READS)
    top = "SELECT article FROM reads GROUP BY article TOP {} PRIVATE WITH (delta = {}, epsilon = 0.01)"
    session.sql(f"{TOTAL} PRIVATE WITH (epsilon = 0.1354)")
    session.sql(top.format(1, "4.5e-8"))
    share = session.budget.used
    assert Fraction("0.09") < share < Fraction("0.11")
    faster = list[Receipt]()

    def hook(statement: Statement, execute: Callable[[Statement], Exact]) -> Exact:
        if not faster:
            faster.append(session.sql(top.format(2, "1e-8")).receipt)
        return execute(statement)

    slower = rebuilt(session, engine=hook).sql(top.format(2, "1e-8")).receipt
    assert slower.replayed
    assert (slower.used, slower.percent_used) == (0, 0)
    assert faster[0].used >= session.budget.used - share > 0
    assert sum(map(Decimal, map(str, session.history["percent_used"].to_pylist()))) == session.budget.percent_used
