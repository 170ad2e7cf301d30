"""Accounts: everyone has a limit of their own within one total, and sees nothing of what others ask."""

from __future__ import annotations

import json
import math
import sys
import threading
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import duckdb
import pytest
from support.session_kit import session_on, shared, values_rows

import dpsql
from dpsql.curator import change_units, grant, grant_policy, read_history
from dpsql.ledger import SQLiteLedger, sum_entries, verify
from dpsql.session import Session

SQL = (  # which costs whole items
    "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article "
    "TOP 4 PRIVATE WITH (mechanism = limited_domain, epsilon = 0.02)"
)
ANEW = SQL.replace("0.02)", "0.02, delta = 1e-12, fresh = true)")
ITEM = Fraction("0.02") ** 2 / 8
ANALYSTS = """
[analysts.alice]
epsilon = 0.5
[analysts.bob]
epsilon = 0.2
delta = 1e-7
items = 10
[analysts.mallory]
enabled = false
"""


def opened(folder: Path, analyst: str | None = None, *, policy: str = "policy.toml") -> Session:
    return dpsql.connect(folder / "events.duckdb", policy=folder / policy, analyst=analyst)


@pytest.fixture
def folder(example: Path) -> Path:
    with (example / "policy.toml").open("a") as policy:
        policy.write(ANALYSTS)
    return example


def test_everyone_pays_from_their_own_limit_and_all_from_the_total(folder: Path) -> None:
    costs: dict[str | None, Fraction] = {}
    for name in ("alice", "bob", "carol", None):
        with opened(folder, name) as session:
            answer = session.sql(SQL)
            assert not answer.receipt.replayed
            costs[name] = answer.receipt.loss.rho.value
            balance = session.budget
            assert balance.analyst == name
            assert answer.receipt.remaining == balance.remaining
            own = costs[name] if name else sum(costs.values())
            assert balance.rho.spent == own
            shown = {row[0]: row[1:] for row in session.sql("SHOW BUDGET").fetchall()}
            assert shown["rho"] == pytest.approx(
                tuple(map(float, (balance.rho.granted, own, 0, balance.rho.remaining))), rel=1e-5
            )
    assert set(costs.values()) == {8 * ITEM}
    with closing(SQLiteLedger.open(folder / "ledger.sqlite")) as ledger:
        assert ledger.state().spent == 32 * ITEM
        assert [ledger.state(name).spent for name in ("alice", "bob", "carol")] == [8 * ITEM] * 3


def test_what_remains_is_the_lesser_of_ones_own_and_of_the_total_for_each_quantity(folder: Path) -> None:
    with opened(folder, "alice") as alice, opened(folder, "bob") as bob, opened(folder) as nobody:
        total, own = nobody.budget, bob.budget
        assert own.remaining.rho.value == own.rho.granted < total.rho.granted
        assert own.remaining.delta.value == Fraction("5e-8")
        # all of the total's delta but 2e-8, and little rho
        nobody.sql(SQL.replace("0.02)", "0.0001, delta = 4.8e-7)"))
        left = bob.budget
        assert left.remaining.delta.value == Fraction("2e-8") == alice.budget.remaining.delta.value
        assert left.remaining.rho.value == own.rho.granted  # his own limit is the shorter one still
        assert (left.rho.spent, left.delta.spent) == (0, 0)  # of his own
        assert str(left).startswith("bob used 0 % of the budget, others used 60 %, and 40 % is left\n")
        assert "others used " not in str(nobody.budget)
        assert "this is the budget of the account bob" in str(left)
        # and the most that is said to remain can be asked for
        items = int(left.remaining.rho.value / ITEM)
        bob.sql(f"SELECT article FROM reads GROUP BY article TOP {items} PRIVATE WITH (epsilon = 0.02, delta = 2e-8)")
        with pytest.raises(dpsql.BudgetExceeded):
            bob.sql(SQL)


def test_the_one_whose_limit_is_short_is_named(folder: Path) -> None:
    with opened(folder, "bob") as bob, opened(folder) as nobody:
        limit, worst = bob.budget.limit.refundable, 12 * 2 * ITEM
        percent = f"{math.ceil(10_000 * worst / limit) / 100:g}"
        words = f"may use {percent} % more of the limit of account bob, and 100 % is left"
        with pytest.raises(dpsql.BudgetExceeded, match=words):
            bob.sql(SQL.replace("TOP 4", "TOP 12"))
        with pytest.raises(
            dpsql.BudgetExceeded, match="may use 120 % more of the limit of account bob, and 100 % is left"
        ):
            bob.sql(SQL.replace("0.02)", "0.02, delta = 6e-8)"))
        nobody.sql("SELECT article FROM reads GROUP BY article TOP 450 PRIVATE WITH (epsilon = 0.02)")
        with pytest.raises(
            dpsql.BudgetExceeded, match=r"may use [\d.]+ % more of the budget, and [\d.]+ % is left"
        ) as caught:
            nobody.sql(SQL.replace("TOP 4", "TOP 250"))
        assert "bob" not in str(caught.value)
    assert [event.kind for event in read_history(folder / "ledger.sqlite")].count("reserved") == 1


@pytest.mark.filterwarnings("ignore:The policy does not list the analyst")
def test_another_analyst_never_gets_mine_and_cannot_tell_that_it_exists(folder: Path) -> None:
    with opened(folder, "alice") as alice:
        mine = alice.sql(SQL)
    for name in ("bob", "carol", "Alice", "alice ", None):
        with opened(folder, name) as session:
            assert not session.explain(SQL).stored
            assert session.history.num_rows == 0
            theirs = session.sql(SQL)
            assert not theirs.receipt.replayed
            assert theirs.receipt.items_charged == mine.receipt.items_charged == 8
            assert theirs.arrow().schema == mine.arrow().schema
            assert theirs.fetchall() != mine.fetchall()
            assert session.sql(SQL).fetchall() == theirs.fetchall()
            assert session.history.num_rows == 1
    with opened(folder, "alice") as alice:
        assert alice.sql(SQL).fetchall() == mine.fetchall()


def test_the_unnamed_have_one_account_where_the_policy_gives_the_unlisted_a_limit(example: Path) -> None:
    with (example / "policy.toml").open("a") as policy:
        policy.write("[analysts.default]\nepsilon = 0.3\n")
    with opened(example) as first, opened(example) as second, opened(example, "zoe") as zoe:
        answer = first.sql(SQL)
        assert second.sql(SQL).fetchall() == answer.fetchall()  # nobody can tell them apart
        assert not zoe.sql(SQL).receipt.replayed
        assert first.budget.analyst == "default"
        assert zoe.budget.rho == first.budget.rho
        assert first.history.equals(second.history)


def test_who_may_not_ask_is_refused_before_anything_is_opened(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(sys.modules["dpsql.connect"], "open_engine", refuse)
    with pytest.raises(dpsql.Refusal) as caught:
        opened(folder, "mallory")
    assert caught.value.code == "analyst-disabled"
    assert not (folder / "ledger.sqlite").exists()
    for name in ("", "default", "a\nb", "x" * 101):
        with pytest.raises(dpsql.UsageError) as unnamed:
            opened(folder, name)
        assert unnamed.value.code == "analyst-name"


def test_a_limit_that_was_lowered_keeps_what_was_spent_and_what_was_answered(folder: Path) -> None:
    with opened(folder, "alice") as alice:
        first = alice.sql(SQL)
    text = (folder / "policy.toml").read_text()
    (folder / "policy.toml").write_text(
        text.replace("[analysts.alice]\nepsilon = 0.5", "[analysts.alice]\nepsilon = 0.01\nitems = 1")
    )
    with opened(folder, "alice") as alice:
        balance = alice.budget
        assert balance.rho.spent == 8 * ITEM > balance.rho.granted
        assert (balance.rho.remaining, balance.items) == (0, 0)
        assert alice.sql(SQL).fetchall() == first.fetchall()
        with pytest.raises(
            dpsql.BudgetExceeded,
            match=r"The share of account alice is used\. .* and 0 % is left\. Stored answers stay free\.",
        ):
            alice.sql(ANEW)


@pytest.mark.parametrize("listed", [True, False])
def test_all_analysts_together_never_pass_the_total(example: Path, listed: bool) -> None:
    names = ["alice", "bob", "carol", "dave", None]
    with (example / "policy.toml").open("a") as policy:
        policy.write("".join(f"[analysts.{name}]\nepsilon = 0.9\n" for name in names if name and listed))
    sessions = [opened(example, name) for name in names]
    outcomes: list[int | str] = []
    gate = threading.Barrier(len(sessions))
    most = SQL.replace("TOP 4", "TOP 11").replace("0.02)", "0.03, delta = 1e-12, fresh = true)")

    def ask(session: Session) -> None:
        gate.wait()
        for _ in range(12):
            try:
                outcomes.append(session.sql(most).receipt.items_charged)
            except dpsql.BudgetExceeded as error:
                outcomes.append(error.code)

    threads = [threading.Thread(target=ask, args=(session,)) for session in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    item = Fraction("0.03") ** 2 / 8
    charged = sum(outcome for outcome in outcomes if isinstance(outcome, int))
    assert len(outcomes) == 60
    assert "budget-exceeded" in outcomes
    total = sessions[-1].budget
    with closing(SQLiteLedger.open(example / "ledger.sqlite")) as ledger:
        assert ledger.state().spent == charged * item <= ledger.budget.refundable
        assert ledger.state().reserved == 0
        assert ledger.state() == sum_entries(ledger.entries())
        assert ledger.budget.rho.value - charged * item < 22 * item  # and nothing that fits was refused
        each = [ledger.state(name).spent for name in names if name]
    assert sum(each) <= charged * item
    assert total.rho.remaining == total.rho.granted - charged * item
    assert all(session.budget.remaining.rho.value <= total.rho.remaining for session in sessions)
    for session in sessions:
        session.close()
    verify(example / "ledger.sqlite")


# one data set, whatever it is called


def declared(folder: Path) -> list[dict[str, str]]:
    return [
        json.loads(event.body)["units"]
        for event in read_history(folder / "ledger.sqlite")
        if event.kind == "registered"
    ]


def test_units_are_recorded_once_and_a_change_of_them_gives_nothing_back(folder: Path) -> None:
    with opened(folder) as session:
        cost = session.sql(SQL).receipt.loss
    opened(folder, "alice").close()
    assert declared(folder) == [{"reads": "user_id", "visits": "user_id"}]
    text = (folder / "policy.toml").read_text()
    (folder / "policy.toml").write_text(text.replace('privacy_unit = "user_id"', 'privacy_unit = "article"', 1))
    with pytest.raises(dpsql.LedgerError, match="reads"):
        opened(folder)
    assert change_units(folder / "policy.toml", note="another person") == {"reads": "article"}
    with opened(folder) as session:
        assert session.budget.rho.spent == cost.rho.value
        assert session.budget.delta.spent == cost.delta.value
        other = session.sql("SELECT country FROM reads GROUP BY country TOP 1 PRIVATE WITH (epsilon = 0.02)")
        assert not other.receipt.replayed
    assert declared(folder) == [{"reads": "user_id", "visits": "user_id"}, {"reads": "article"}]


def test_another_name_of_the_table_draws_on_the_same_total(folder: Path) -> None:
    with opened(folder) as session:
        cost = session.sql(SQL).receipt.loss.rho.value
    text = (folder / "policy.toml").read_text()
    for alias in ('"main.reads"', '"READS"'):
        (folder / "policy.toml").write_text(text.replace("[tables.reads]", f"[tables.{alias}]"))
        with opened(folder) as session:
            assert session.budget.rho.spent == cost
            cost += session.sql(ANEW).receipt.loss.rho.value
            assert session.budget.rho.spent == cost
    with duckdb.connect(str(folder / "events.duckdb")) as writer:
        writer.execute("ALTER TABLE reads RENAME TO lectures")
    (folder / "policy.toml").write_text(text.replace("[tables.reads]", "[tables.lectures]"))
    with opened(folder) as session:
        assert session.budget.rho.spent == cost
        renamed = session.sql(SQL.replace("FROM reads", "FROM lectures"))
        assert not renamed.receipt.replayed
        assert session.budget.rho.spent == cost + renamed.receipt.loss.rho.value


def test_nothing_new_writes_no_event(folder: Path) -> None:
    opened(folder).close()
    before = list(read_history(folder / "ledger.sqlite"))
    assert [event.kind for event in before] == ["created", "registered"]
    for name in ("alice", "bob", None):
        with opened(folder, name) as session:
            session.sql("SHOW BUDGET")
            session.sql(f"EXPLAIN {SQL}")
            assert session.history.num_rows == 0
    assert list(read_history(folder / "ledger.sqlite")) == before


def test_a_policy_without_private_tables_declares_nothing() -> None:
    policy = dpsql.Policy(dpsql.Budget(1, "1e-6"), {"reads": dpsql.PublicTable()})
    with session_on(shared(*values_rows({"a": 3})), policy) as session:
        assert [event.kind for event in session._dependencies.ledger.events()] == ["created"]


def test_a_grant_reaches_sessions_that_are_open(folder: Path) -> None:
    with opened(folder) as nobody, opened(folder, "bob") as bob:
        before = nobody.budget.rho.granted, bob.budget.rho
        grant(folder / "ledger.sqlite", dpsql.Budget(2, "1e-6"), note="the second year")
        assert nobody.budget.rho.granted > before[0]
        assert bob.budget.rho == before[1]


@pytest.mark.parametrize("analyst", [None, "bob"])
def test_a_session_that_is_open_cites_what_the_ledger_promises_now(folder: Path, analyst: str | None) -> None:
    with opened(folder, analyst) as session:
        assert "within (1, 1e-06)-differential privacy in all" in session.sql(SQL).statement()
        grant(folder / "ledger.sqlite", dpsql.Budget(2, "1e-6", period="30d"), note="every month")
        drawn, replayed = session.sql(ANEW), session.sql(SQL)
        assert (drawn.receipt.replayed, replayed.receipt.replayed) == (False, True)
        for answer in (drawn, replayed):
            assert "any one period of 30 days, within (2, 1e-06)-differential privacy" in answer.statement()
        assert session.budget.granted.epsilon == dpsql.Epsilon(2)
        assert "guarantee: (2, 1e-06)-differential privacy for every privacy unit per 30" in str(session.budget)


def test_an_analyst_who_used_more_than_the_default_delta_keeps_stored_answers(folder: Path) -> None:
    """Before 0.12 a limit without delta had all of the total's."""
    with (folder / "policy.toml").open("a") as policy:
        policy.write("[analysts.dora]\nepsilon = 0.5\ndelta = 1e-6\n")
    large = "SELECT article FROM reads GROUP BY article TOP 2 PRIVATE WITH (delta = 4e-7)"
    total = "SELECT COUNT(DISTINCT user_id) AS n FROM reads PRIVATE"
    with opened(folder, "dora") as dora:
        first = dora.sql(large)
    text = (folder / "policy.toml").read_text()
    (folder / "policy.toml").write_text(
        text.replace("[analysts.dora]\nepsilon = 0.5\ndelta = 1e-6", "[analysts.dora]\nepsilon = 0.5")
    )
    with opened(folder, "dora") as dora:
        balance = dora.budget
        assert balance.delta.granted == Fraction("2.5e-7") < balance.delta.spent == Fraction("4e-7")
        assert str(balance).startswith("100 % of the budget is used, 0 % is left\nenough, at the worst, for any one of")
        fit = {tile.name: tile.remaining for tile in balance.tiles}
        assert (fit["names"], fit["names_with_counts"]) == (0, 0) < (fit["totals"], fit["series"])
        assert all(amount >= 0 for row in dora.sql("SHOW BUDGET").fetchall() for amount in row[1:])
        assert dora.history["percent_used"].to_pylist() == [100.0]
        assert dora.sql(large).fetchall() == first.fetchall()
        assert dora.sql(large).receipt.replayed
        with pytest.raises(dpsql.BudgetExceeded, match=r"The share of account dora is used\. ") as caught:
            dora.sql(SQL)
        assert "name them, such as domain" in caught.value.hint
        receipt = dora.sql(total).receipt
        assert (receipt.used, receipt.items_charged) == (0, 1)
        assert "0 % more: names that nobody listed have used more of the budget" in str(receipt)


# history


def test_a_history_is_ones_own_newest_last(folder: Path) -> None:
    with opened(folder, "alice") as alice:
        receipts = [alice.sql(SQL).receipt, alice.sql(ANEW).receipt]
        alice.sql(SQL)
        with opened(folder, "bob") as bob:
            bob.sql(SQL)
            assert bob.history.column("query").to_pylist() == [SQL]
        table = alice.history
    assert table.column_names == [
        "asked_at",
        "query",
        "data_version",
        "rho_reserved",
        "rho_charged",
        "delta_charged",
        "state",
        "percent_used",
    ]
    rows = table.to_pylist()
    assert [row["query"] for row in rows] == [SQL, ANEW]
    assert rows[0]["asked_at"] <= rows[1]["asked_at"]
    assert [row["rho_charged"] for row in rows] == [float(receipt.loss.rho) for receipt in receipts]
    assert [row["delta_charged"] for row in rows] == [float(receipt.delta) for receipt in receipts]
    assert [row["state"] for row in rows] == ["answered", "answered"]
    assert [row["percent_used"] for row in rows] == [float(receipt.percent_used) for receipt in receipts]
    with opened(folder, "alice") as later:
        assert later.history.equals(table)
    with pytest.raises(dpsql.UsageError):
        later.history  # noqa: B018 - the access is the test


def write_limit(folder: Path, total: str, extra: str = "") -> None:
    (folder / "policy.toml").write_text(
        f'ledger = "own.sqlite"\n[budget]\n{total}\n[analysts.ana]\nepsilon = 0.5\n{extra}\n'
        '[tables.reads]\nprivacy_unit = "user_id"\n'
    )


def test_an_overdrawn_account_is_told_what_a_query_adds_and_not_by_how_much_it_is_over(example: Path) -> None:
    write_limit(example, "epsilon = 1\ndelta = 1e-6", "delta = 1e-6")
    with opened(example, "ana") as session:
        for k in (1, 2):
            top = f"SELECT article FROM reads GROUP BY article TOP {k} PRIVATE"
            session.sql(f"{top} WITH (delta = 2e-7, epsilon = 0.01)")
    write_limit(example, "epsilon = 1\ndelta = 1e-6")  # delta 2.5e-7 for queries, of which 4e-7 are used
    with opened(example, "ana") as session:
        assert session.budget.percent_used == 100
        forecast = session.forecast(f"{top} WITH (epsilon = 0.011, delta = 1.25e-8)")
        assert forecast.cost == "at most 5 % more of the budget"


def test_a_grant_that_lowers_the_delta_of_an_account_is_refused_and_its_hint_keeps_it(example: Path) -> None:
    write_limit(example, "epsilon = 1\ndelta = 1e-6")
    with opened(example, "ana") as session:
        before = session.budget.delta.granted
        assert before == Fraction("2.5e-7")
    write_limit(example, "epsilon = 2\ndelta = 1e-6")
    said = r"limit of ana falls .* \[analysts.ana\] delta = 5e-07, or .* \[budget\] delta = 2e-06\."
    with pytest.warns(dpsql.UngrantedBudgetWarning, match=said), opened(example, "ana") as session:
        assert session.budget.delta.granted == before
    with pytest.raises(dpsql.UsageError, match=rf"(?s)\[grant-shares\].*{said}"):
        grant_policy(example / "policy.toml", note="more")
    write_limit(example, "epsilon = 2\ndelta = 1e-6", "delta = 5e-07")
    grant_policy(example / "policy.toml", note="more")
    with opened(example, "ana") as session:
        assert session.budget.delta.granted == before
    write_limit(example, "epsilon = 2\ndelta = 2e-06")
    grant_policy(example / "policy.toml", note="both")
    with opened(example, "ana") as session:
        assert session.budget.delta.granted == before
