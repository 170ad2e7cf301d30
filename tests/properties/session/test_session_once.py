"""One new question that two sessions of one analyst ask at once: one answer, charged once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from support.child_kit import Child
from support.session_kit import rebuilt

import dpsql
from dpsql.accounting import ZCDP
from dpsql.engines import Exact, Statement
from dpsql.pate import Majority, label
from dpsql.session import Session

POLICY = """\
ledger = "ledger.sqlite"
[budget]
epsilon = 20
delta = 1e-6
items = 2000
queries = 200
{more}
[tables.reads]
privacy_unit = "user_id"
[tables.votes]
privacy_unit = "teacher"
"""
SQL = (
    "SELECT article, COUNT(DISTINCT user_id) AS readers FROM reads WHERE user_id >= {} GROUP BY article "
    "TOP 3 PRIVATE WITH ({}epsilon = 0.05)"
)
FRESH = "fresh = true, "


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with duckdb.connect(str(tmp_path / "events.duckdb")) as database:
        database.execute("CREATE TABLE reads AS SELECT i AS user_id, 'a' || i % 3 AS article FROM range(900) t(i)")
        database.execute("CREATE TABLE votes AS SELECT t AS teacher, 1 AS example, 'x' AS label FROM range(400) a(t)")
    (tmp_path / "policy.toml").write_text(POLICY.format(more=""))
    return tmp_path


def opened(folder: Path, analyst: str | None = None) -> Session:
    return dpsql.connect(folder / "events.duckdb", policy=folder / "policy.toml", analyst=analyst)


def while_it_runs(session: Session, act: Callable[[], object]) -> Session:
    """Return a session that calls back while the engine runs its private queries: after reserving, before settling."""

    def hook(statement: Statement, execute: Callable[[Statement], Exact]) -> Exact:
        act()
        return execute(statement)

    return rebuilt(session, engine=hook)


def charges(folder: Path) -> int:
    with opened(folder) as session:
        return sum(
            entry.settlement is None or entry.settlement.repeats is None
            for entry in session._dependencies.ledger.entries()
        )


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("analyst", [None, "alice"])
def test_the_one_that_settles_second_repeats_the_first_at_no_charge(
    folder: Path, analyst: str | None, *, share: bool
) -> None:
    (folder / "policy.toml").write_text(POLICY.format(more="[limits]\nshare_replays = true\n" if share else ""))
    first: list[dpsql.Answer] = []
    with opened(folder, analyst) as one, opened(folder, analyst) as other:
        overtaken = while_it_runs(one, lambda: first.append(other.sql(SQL.format(0, ""))))
        answer = overtaken.sql(SQL.format(0, ""))
        assert answer.fetchall() == first[0].fetchall()
        assert (answer.receipt.replayed, first[0].receipt.replayed) == (True, False)
        assert (answer.receipt.items_charged, answer.receipt.loss) == (0, ZCDP.nothing())
        assert one.budget.remaining == other.budget.remaining
        paid = first[0].receipt.loss
        assert (one.budget.rho.spent, one.budget.delta.spent) == (paid.rho.value, first[0].receipt.delta.value)
        assert one.budget.rho.reserved == 0
        repeated = one.history.to_pylist()[0]
        assert (repeated["rho_charged"], repeated["delta_charged"], repeated["state"]) == (0, 0, "answered")
        again = other.sql(SQL.format(0, ""))
        assert again.fetchall() == answer.fetchall()
    assert charges(folder) == 1


def test_one_that_is_settled_between_the_look_and_the_reservation_is_repeated(folder: Path) -> None:
    with opened(folder) as one, opened(folder) as other:
        first: list[dpsql.Answer] = []
        ledger = one._dependencies.ledger
        look = ledger.stored

        def looking(key: str, account: str | None, *others: str) -> bytes | None:
            found = look(key, account, *others)
            if not first:
                first.append(other.sql(SQL.format(0, "")))
            return found

        ledger.stored = looking  # type: ignore[method-assign]
        answer = one.sql(SQL.format(0, ""))
        assert answer.receipt.replayed
        assert answer.fetchall() == first[0].fetchall()
        assert len(ledger.entries()) == 1


def test_a_fresh_question_is_drawn_and_charged_beside_it(folder: Path) -> None:
    with opened(folder) as one, opened(folder) as other:
        overtaken = while_it_runs(one, lambda: other.sql(SQL.format(0, "")))
        assert not overtaken.sql(SQL.format(0, FRESH)).receipt.replayed
    assert charges(folder) == 2


def test_another_analysts_question_is_drawn_and_charged_beside_it(folder: Path) -> None:
    with opened(folder, "alice") as one, opened(folder, "bob") as other:
        overtaken = while_it_runs(one, lambda: other.sql(SQL.format(0, "")))
        assert not overtaken.sql(SQL.format(0, "")).receipt.replayed
    assert charges(folder) == 2


def test_a_failure_beside_an_answer_is_charged(folder: Path) -> None:
    def failing(_statement: Statement, _execute: Callable[[Statement], Exact]) -> Exact:
        other.sql(SQL.format(0, ""))
        raise RuntimeError

    with opened(folder) as one, opened(folder) as other, pytest.raises(dpsql.EngineError):
        rebuilt(one, engine=failing).sql(SQL.format(0, ""))
    assert charges(folder) == 2


def test_labels_that_are_asked_for_twice_at_once_are_drawn_once(folder: Path) -> None:
    method = Majority(dpsql.Epsilon("0.5"), ("x", "y"), 400)
    with opened(folder) as one, opened(folder) as other:
        first: list[object] = []
        overtaken = while_it_runs(one, lambda: first.append(label(other, "votes", examples=(1, 2), method=method)))
        second = label(overtaken, "votes", examples=(1, 2), method=method)
        assert second.labels == first[0].labels  # type: ignore[attr-defined]
        assert (second.receipt.replayed, first[0].receipt.replayed) == (True, False)  # type: ignore[attr-defined]
    assert charges(folder) == 1


RACER = """
import sys
import dpsql
with dpsql.connect("events.duckdb", policy="policy.toml", analyst="alice") as session:
    print("ready", flush=True)
    for line in sys.stdin:
        answer = session.sql(line)
        print(answer.receipt.replayed, answer.fetchall(), flush=True)
"""
TRIALS = 50


def test_two_processes_that_ask_at_once_get_one_answer_every_time(folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(dpsql.__file__).parents[1])}
    racers = [
        Child(
            [sys.executable, "-c", RACER],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        for _ in range(2)
    ]
    pipes = [(each.stdin, each.stdout) for each in racers]
    with racers[0], racers[1]:
        assert [output.readline() for _, output in pipes] == ["ready\n"] * 2  # type: ignore[union-attr]
        for number in range(TRIALS):
            for each, _ in pipes if number % 2 else reversed(pipes):
                print(SQL.format(number, ""), file=each)
            told = [output.readline().split(" ", 1) for _, output in pipes]  # type: ignore[union-attr]
            assert told[0][1] == told[1][1]
            assert sorted(replayed for replayed, _ in told) == ["False", "True"]
    assert charges(folder) == TRIALS
    with opened(folder, "alice") as session:
        assert session.budget.rho.reserved == 0
        assert session.budget.delta.spent == TRIALS * session.sql(SQL.format(0, "")).receipt.delta.value
