"""A period in a policy, and what a session, a check and the shell then say."""

from __future__ import annotations

import json
import math
import pickle
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import duckdb
import pytest
from support.command_kit import dpsql_command
from support.ledger_makers import make_state

import dpsql
from dpsql.accounting import BudgetState, BudgetVector, Periods, epsilon_of_zcdp
from dpsql.connect import open_session
from dpsql.curator import check_policy, grant
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.ledger import Calendar, MemoryLedger, SQLiteLedger
from dpsql.mechanisms import OperatingSystemNoise
from dpsql.policy.model import separated
from dpsql.quantities import Delta, Epsilon, Rho
from dpsql.report.balance import compute_balance
from dpsql.report.policy_text import describe_policy
from dpsql.session import Session
from dpsql.session_dependencies import SessionDependencies
from dpsql.terms import Terms

TABLES = {"reads": dpsql.PrivateTable("user_id")}
MONTH = timedelta(days=30)
SQL = "SELECT article FROM reads GROUP BY article TOP 3 PRIVATE WITH (fresh = true, mechanism = limited_domain)"
START = datetime(2026, 1, 1, tzinfo=UTC)


def policy_of(**budget: object) -> dpsql.Policy:
    return dpsql.Policy(dpsql.Budget(1, "1e-6", **budget), TABLES)  # type: ignore[arg-type]


# the policy


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("30d", MONTH),
        ("12h", MONTH / 60),
        ("1w", MONTH * 7 / 30),
        ("7 d", MONTH * 7 / 30),
        ("10000d", 10_000 * MONTH / 30),
    ],
)
def test_a_period_is_written_in_hours_days_or_weeks(text: str, length: timedelta) -> None:
    assert dpsql.Budget(1, "1e-6", period=text) == dpsql.Budget(1, "1e-6", period=length)
    assert dpsql.Budget(1, "1e-6", period=text).period == length


@pytest.mark.parametrize(
    ("given", "code", "place"),
    [
        ({"period": "30"}, "policy-period", "budget.period"),
        ({"period": ""}, "policy-period", "budget.period"),
        ({"period": "1m"}, "policy-period", "budget.period"),
        ({"period": "1.5d"}, "policy-period", "budget.period"),
        ({"period": "-1d"}, "policy-period", "budget.period"),
        ({"period": "٣d"}, "policy-period", "budget.period"),
        ({"period": "30D"}, "policy-period", "budget.period"),
        ({"period": "9999999999d"}, "policy-period", "budget.period"),
        ({"period": "0h"}, "policy-range", "budget.period"),
        ({"period": "10001d"}, "policy-range", "budget.period"),
        ({"period": timedelta(minutes=90)}, "policy-range", "budget.period"),
        ({"period": timedelta(0)}, "policy-range", "budget.period"),
        ({"period": 30}, "policy-type", "budget.period"),
        ({"periods": 12}, "policy-period", "budget.periods"),
        ({"period": "30d", "periods": 0}, "policy-range", "budget.periods"),
        ({"period": "30d", "periods": True}, "policy-type", "budget.periods"),
        ({"period": "30d", "periods": 10**6}, "policy-range", "budget.periods"),  # of delta 1e-6
    ],
)
def test_what_is_no_period_is_refused(given: dict[str, object], code: str, place: str) -> None:
    with pytest.raises(dpsql.PolicyError) as caught:
        policy_of(**given)
    assert (caught.value.code, caught.value.place) == (code, place)
    assert caught.value.hint


def test_a_period_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    text = (
        '[budget]\nepsilon = 1\ndelta = 1e-6\nperiod = "30d"\nperiods = 12\n[tables.reads]\nprivacy_unit = "user_id"\n'
    )
    file.write_text(text)
    policy = dpsql.Policy.from_toml(file)
    assert policy == policy_of(period=MONTH, periods=12)
    assert pickle.loads(pickle.dumps(policy)).budget.period == MONTH
    for bad, place in (('"30 days"', "line 4"), ("30", "line 4"), ("30d", "line 4")):
        file.write_text(text.replace('"30d"', bad))
        with pytest.raises(dpsql.PolicyError, match=place):
            dpsql.Policy.from_toml(file)


def test_the_terms_of_a_period_are_those_of_a_total() -> None:
    once, monthly = Terms.of_policy(policy_of()), Terms.of_policy(policy_of(period="30d", periods=12))
    assert (monthly.total, monthly.budget, monthly.epsilon, monthly.delta) == (
        once.total,
        once.budget,
        once.epsilon,
        once.delta,
    )
    assert (once.periods, monthly.periods) == (None, Periods(MONTH, 12))
    conversion = Delta(12 * Fraction("1e-6") / 2)
    assert float(monthly.after(12).epsilon) == pytest.approx(
        epsilon_of_zcdp(once.budget.rho * 12, conversion), rel=1e-5
    )


# the check


def told(**budget: object) -> str:
    return " ".join(" ".join(describe_policy(check_policy(policy_of(**budget)))).split())


def test_a_check_says_what_holds_per_period_and_that_the_total_has_no_end() -> None:
    text = told(period="30d")
    check = check_policy(policy_of(period="30d"))
    assert "Each has (1, 1e-06)-differential privacy per 30 days, over all queries of these and all analysts." in text
    assert "grows WITHOUT END: (1, 1e-06) after 1 period, (" in text
    assert [total.periods for total in check.totals] == [1, 4, 12]
    for total in check.totals:
        assert f"({total.epsilon:g}, {total.delta:g}) after {total.periods} period" in text
    assert (check.period, check.periods) == ("30 days", None)
    assert "Nothing is carried over." in text


def test_a_check_says_the_total_of_all_periods() -> None:
    text = told(period="1w", periods=52)
    (total,) = check_policy(policy_of(period="1w", periods=52)).totals
    assert "every 7 days, 52 periods at most, and then no more." in text
    assert f"Over all of them the total is ({total.epsilon:g}, {total.delta:g}) after 52 periods." in text
    assert "WITHOUT END" not in text


def test_a_check_of_a_budget_that_is_granted_once_speaks_of_no_period() -> None:
    check = check_policy(policy_of())
    assert (check.period, check.periods, check.totals) == (None, None, ())
    assert "period" not in told()


def test_deltas_that_come_to_one_are_not_told_as_a_promise() -> None:
    policy = dpsql.Policy(dpsql.Budget(1, "0.2", period="1d"), TABLES)
    assert [total.periods for total in check_policy(policy).totals] == [1, 4]


# the session


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "events.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE reads AS SELECT i AS user_id, 'a' || i % 3 AS article FROM range(9000) t(i)")
    return path


Opened = tuple[dpsql.Session, Callable[[float], None]]


@pytest.fixture
def opened(database: Path) -> Iterator[Opened]:
    """A session of monthly budgets, at most three, and the hands of its ledger's clock, in months."""
    policy = policy_of(period="30d", periods=3, items=6)
    plain, terms = (
        open_session(DuckDBEngine.open(database, {"reads": None}), policy, ledger=":memory:"),
        Terms.of_policy(policy),
    )
    time = [START]
    ledger = MemoryLedger(terms.budget, total=terms.total, periods=terms.periods, clock=lambda: time[0])
    parts = plain._dependencies
    with Session(
        SessionDependencies(parts.engine, ledger, parts.catalog, terms, OperatingSystemNoise(), parts.evaluator)
    ) as session:
        yield session, lambda months: time.__setitem__(0, START + MONTH * months)


def test_a_session_asks_again_in_the_next_period_and_no_more_after_the_last(opened: Opened) -> None:
    session, hands = opened
    for month in range(3):
        hands(month)
        assert session.budget.items == 6
        session.sql(SQL)
        session.sql(SQL)
        with pytest.raises(dpsql.BudgetExceeded) as caught:
            session.sql(SQL)
        assert f"Now: period {month + 1} of 3, " in caught.value.hint
        assert session.budget.items == 0
    assert "which is the last and ends 2026-04-01 00:00:00 UTC" in caught.value.hint
    hands(3)
    assert session.budget.rho.remaining == session.budget.delta.remaining == 0
    with pytest.raises(dpsql.BudgetExceeded, match="Now: all periods are over"):
        session.sql(SQL)
    assert "all periods are over" in str(session.budget)
    assert session.sql("SHOW BUDGET").fetchall()[0][-2:] == (None, None)
    assert [tile.remaining for tile in session.budget.tiles] == [0] * 4
    assert "\nnot enough for any of the usual queries\n" in str(session.budget)


def test_nobody_drew_on_the_total_when_all_periods_are_over() -> None:
    terms = Terms.of_policy(policy_of(period="30d", periods=3), "alice")
    gone = make_state(terms.budget, Fraction(0))
    calendar = Calendar(Periods(MONTH, 3), START, 2)
    last = compute_balance(terms, gone, own=BudgetState(), calendar=calendar)
    over = compute_balance(terms, gone, own=BudgetState(), calendar=replace(calendar, number=3))
    assert "others used " in str(last)
    assert "others used " not in str(over)
    assert over.remaining == last.remaining == BudgetVector(0, 0)


def test_show_budget_says_which_period_it_is_and_until_when(opened: Opened) -> None:
    session, hands = opened
    hands(1.5)
    table = session.sql("SHOW BUDGET").arrow()
    assert table.column_names == ["measure", "granted", "spent", "reserved", "remaining", "period", "until"]
    assert table["period"].to_pylist() == [2] * 9
    assert set(table["until"].to_pylist()) == {START + 2 * MONTH}
    lines = str(session.budget).splitlines()
    assert lines[-1] == (
        "guarantee: (1, 1e-06)-differential privacy for every privacy unit per 30 days, over all queries of these"
    )
    assert "period 2 of 3, the next begins 2026-03-02 00:00:00 UTC" in lines


def test_a_citation_speaks_of_one_period(opened: Opened) -> None:
    statement = opened[0].sql(SQL).statement()
    assert (
        "over all queries and analysts of any one period of 30 days, within (1, 1e-06)-differential privacy "
        "(what several periods lose adds up, up to 3 of them); this answer cost"
    ) in statement
    assert " in all" not in statement


def test_a_ledger_of_a_policy_is_made_opened_and_refused_by_its_period(database: Path, tmp_path: Path) -> None:
    file = tmp_path / "spent.sqlite"
    for policy in (policy_of(period="30d"), policy_of(period="720h")):
        with dpsql.connect(database, policy=policy, ledger=file) as session:
            session.sql(SQL)
    for policy in (policy_of(), policy_of(period="29d"), policy_of(period="30d", periods=99)):
        with pytest.raises(dpsql.LedgerError) as caught:
            dpsql.connect(database, policy=policy, ledger=file)
        assert (caught.value.code, caught.value.place) == ("ledger-period", str(file))


# the shell


def test_a_ledger_is_given_periods_in_the_shell(database: Path) -> None:
    folder = database.parent
    policy = 'ledger = "l.sqlite"\n[budget]\nepsilon = 1\ndelta = 1e-6\n{}[tables.reads]\nprivacy_unit = "user_id"\n'
    (folder / "policy.toml").write_text(policy.format(""))
    session = ("--db", "events.duckdb", "--policy", "policy.toml")
    assert dpsql_command("query", *session, SQL, cwd=folder)[0] == 0
    arguments = ("ledger", "grant", "l.sqlite", "--epsilon", "1", "--delta", "1e-6", "--note", "monthly")
    code, out, err = dpsql_command(*arguments, "--period", "30d", "--periods", "12", cwd=folder)
    assert (code, err) == (0, "")
    assert out.decode().rstrip().endswith("is (1, 1e-06)-differential privacy per 30 days, at most 12 times.")
    assert dpsql_command("budget", *session[2:], cwd=folder)[0] == 7
    (folder / "policy.toml").write_text(policy.format('period = "30d"\nperiods = 12\n'))
    code, out, _ = dpsql_command("budget", *session[2:], cwd=folder)
    assert (code, "period 1 of 12, the next begins 20" in out.decode()) == (0, True)
    code, out, _ = dpsql_command("budget", *session[2:], "--format", "json", cwd=folder)
    period = json.loads(out)["period"]
    assert (period["number"], period["most"], period["length"]) == (1, 12, "30 days")
    assert datetime.fromisoformat(period["until"]) > datetime.now(UTC)
    code, _, err = dpsql_command(*arguments, cwd=folder)  # which keeps the periods, and so changes nothing
    assert (code, "per 30 days, at most 12 times already" in err) == (2, True)
    code, _, err = dpsql_command(*arguments, "--period", "29d", cwd=folder)
    assert (code, "ledger-grant" in err) == (7, True)
    assert dpsql_command("ledger", "verify", "l.sqlite", cwd=folder)[0] == 0


def test_a_grant_without_a_period_keeps_the_one_there_is(tmp_path: Path) -> None:
    terms, path = Terms.of_policy(policy_of(period="30d", periods=12)), tmp_path / "l.sqlite"
    SQLiteLedger(path, terms.budget, total=terms.total, periods=terms.periods).close()
    grant(path, dpsql.Budget(2, "1e-6"), note="more")
    with closing(SQLiteLedger.open(path)) as ledger:
        assert (ledger.total.epsilon, ledger.calendar.periods) == (Epsilon(2), Periods(MONTH, 12))


# a budget to begin with


def item_epsilon(budget: dpsql.Budget) -> float:
    return float(Terms.of_policy(dpsql.Policy(budget, TABLES)).epsilon)


@pytest.mark.parametrize("users", [1_000, 10_000, 99_999, 10**6, 10**8])
@pytest.mark.parametrize("items", [1, 20, 100])
def test_a_suggested_budget_buys_items_that_rank_what_it_says(users: int, items: int) -> None:
    budget = dpsql.Budget.suggest(items=items, queries=10, users=users)
    assert budget == dpsql.Budget.suggest(items=items, queries=10, users=users)
    assert (budget.items, budget.queries, budget.period) == (items, 10, None)
    units = separated(users)
    assert (units - 1) ** 2 * 4 < users <= 4 * units**2
    chosen = item_epsilon(budget)
    assert 1 / (1 + math.exp(-chosen * units)) >= 0.95
    assert chosen <= 1.015 * math.log(19) / units  # and not much more than it takes
    delta = budget.delta.value
    assert delta <= min(Fraction(1, 10**6), Fraction(1, 10 * users))
    assert delta**2 * users**3 <= 1
    assert delta == Fraction(1, 10**6) or (10 * delta) ** 2 * users**3 > 1
    assert delta.numerator == 1


@pytest.mark.parametrize("rho", ["1e-6", "0.001", "0.05", "1", "4"])
@pytest.mark.parametrize("delta", ["5e-7", "5e-13"])
def test_the_suggested_total_is_sound_and_near_the_best(rho: str, delta: str) -> None:
    from dpsql.policy.model import _epsilon

    ours, best = _epsilon(float(rho), -math.log(float(delta))), epsilon_of_zcdp(Rho(rho), Delta(delta))
    assert best * (1 - 1e-9) <= ours <= best * 1.005


def test_more_users_need_less_and_more_items_need_more() -> None:
    def epsilons(items: list[int], users: list[int]) -> list[Epsilon]:
        return [dpsql.Budget.suggest(items=i, queries=5, users=u).epsilon for i in items for u in users]

    by_users, by_items = epsilons([50], [10**n for n in range(3, 9)]), epsilons([1, 5, 50, 200], [10_000])
    assert by_users == sorted(by_users, reverse=True)
    assert by_items == sorted(by_items)


@pytest.mark.parametrize(
    ("given", "code", "place"),
    [
        ({"users": 0}, "policy-range", "users"),
        ({"users": -5}, "policy-range", "users"),
        ({"users": 10**9 + 1}, "policy-range", "users"),
        ({"users": 1e4}, "policy-type", "users"),
        ({"users": True}, "policy-type", "users"),
        ({"users": "many"}, "policy-type", "users"),
        ({"items": 0}, "policy-range", "budget.items"),
        ({"items": 2.5}, "policy-type", "budget.items"),
        ({"queries": 0}, "policy-range", "budget.queries"),
        ({"users": 30}, "policy-suggestion", "items"),
        ({"users": 1}, "policy-suggestion", "items"),
        ({"items": 10**6}, "policy-suggestion", "items"),
    ],
)
def test_a_suggestion_for_what_makes_no_sense_is_refused(given: dict[str, object], code: str, place: str) -> None:
    arguments = {"items": 100, "queries": 20, "users": 10_000, **given}
    with pytest.raises(dpsql.PolicyError) as caught:
        dpsql.Budget.suggest(**arguments)  # type: ignore[arg-type]
    assert (caught.value.code, caught.value.place) == (code, place)
    assert caught.value.hint


def test_the_table_of_suggestions_in_the_documentation_is_what_the_function_says() -> None:
    text = (Path(__file__).parents[3] / "docs" / "reference" / "budget.md").read_text()
    rows = re.findall(r"^\| ([\d,]+) \| ([\d.]+) \| ([\de.-]+) \| ([\d.]+) \| ([\d,]+) \|$", text, re.MULTILINE)
    assert len(rows) == 5
    for users, epsilon, delta, item, units in rows:
        count = int(users.replace(",", ""))
        budget = dpsql.Budget.suggest(items=100, queries=20, users=count)
        assert (str(budget.epsilon), str(budget.delta)) == (epsilon, delta)
        assert f"{item_epsilon(budget):.3g}" == item
        assert separated(count) == int(units.replace(",", ""))
