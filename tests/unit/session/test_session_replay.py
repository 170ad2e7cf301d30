"""Replay: who asks again in other words gets the stored answer, at no cost; everything else is drawn and charged."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import duckdb
import pytest
from support.session_kit import WatchedLedger, filled, rebuilt, session_on, values_rows

import dpsql
from dpsql.accounting import ZCDP, BudgetVector
from dpsql.curator import bump, read_history
from dpsql.engines import Exact, Statement
from dpsql.ledger import Request, SQLiteLedger
from dpsql.plan import compute_release_key
from dpsql.session import Session

SQL = (
    "SELECT article, country, COUNT(DISTINCT user_id) AS readers FROM reads WHERE country = 'DE' "
    "GROUP BY article, country TOP 9 PRIVATE WITH (epsilon = 0.05)"
)


def opened(folder: Path, *, analyst: str | None = None) -> Session:
    return dpsql.connect(folder / "events.duckdb", policy=folder / "policy.toml", analyst=analyst)


def edit(folder: Path, old: str, new: str) -> None:
    policy = folder / "policy.toml"
    text = policy.read_text()
    assert old in text
    policy.write_text(text.replace(old, new, 1))


def told(session: Session) -> list[str]:
    return [event.kind for event in session._dependencies.ledger.events()]


def unread(session: Session) -> Session:
    """Return the session with an engine that fails the test if it is asked."""

    def refuse(_statement: Statement, _execute: Callable[[Statement], Exact]) -> Exact:
        raise AssertionError

    return rebuilt(session, engine=refuse)


def assert_replayed(answer: dpsql.Answer, first: dpsql.Answer) -> None:
    assert answer.receipt.replayed
    assert answer.fetchall() == first.fetchall()
    assert answer.arrow().schema == first.arrow().schema
    assert (answer.receipt.items_charged, answer.receipt.loss) == (0, ZCDP.nothing())
    same = ("mechanism", "k", "k_bar", "epsilon", "delta", "threshold_offset", "stopped_at_bottom", "sealed")
    assert all(getattr(answer.receipt, name) == getattr(first.receipt, name) for name in same)


def test_a_question_asked_again_is_answered_from_the_ledger_and_no_row_is_read(example: Path) -> None:
    with opened(example) as session:
        first = session.sql(SQL)
        before, events = session.budget, told(session)
        assert not first.receipt.replayed
        assert first.receipt.items_charged == 18
        again = unread(session).sql(SQL)
        assert_replayed(again, first)
        assert again.receipt.remaining == first.receipt.remaining == before.remaining
        assert again.intervals(0.95) == first.intervals(0.95)
        assert str(again.receipt) == "answered 9 of 9; stored answer, nothing was charged"
        assert "this answer was charged when it was first given" in again.statement()
        assert (session.budget, told(session)) == (before, events)


def test_a_replay_leaves_every_byte_of_the_ledger_as_it_was(example: Path) -> None:
    with opened(example) as session:
        session.sql(SQL)
        files = [path for path in example.iterdir() if path.name.startswith("ledger.sqlite")]
        before = {path.name: path.read_bytes() for path in files if not path.name.endswith("-shm")}
        assert len(before) >= 2
        for _ in range(3):
            assert session.sql(SQL).receipt.replayed
            session.explain(SQL)
        assert {name: (example / name).read_bytes() for name in before} == before


def test_replay_across_sessions_restarts_and_ledgers_opened_side_by_side(example: Path) -> None:
    with opened(example) as first_session, opened(example) as other:
        first = first_session.sql(SQL)
        assert_replayed(other.sql(SQL), first)
    with opened(example) as later:
        assert_replayed(unread(later).sql(SQL), first)
        assert len(later._dependencies.ledger.entries()) == 1


def test_a_ledger_in_memory_replays_within_its_life() -> None:
    connection = filled(*values_rows({"a": 3000, "b": 2000}))
    sql = "SELECT article FROM reads GROUP BY article TOP 2 PRIVATE"
    with session_on(connection.cursor()) as session:
        session.sql(sql)
        assert session.sql(sql).receipt.replayed
    with session_on(connection) as other:
        assert not other.sql(sql).receipt.replayed


# in other words, and shown as they say


@pytest.fixture
def asked(example: Path) -> tuple[Session, dpsql.Answer]:
    session = opened(example)
    return session, session.sql(SQL)


def test_names_order_having_and_limit_are_those_of_the_present_query(asked: tuple[Session, dpsql.Answer]) -> None:
    session, first = asked
    rows = [(country, readers, article) for article, country, readers in first.fetchall()]
    other = SQL.replace(
        "article, country, COUNT(DISTINCT user_id) AS readers",
        "country AS land, COUNT(DISTINCT user_id) AS n, article",
        1,
    )
    for tail, wanted in [
        ("", rows),
        (" LIMIT 2", rows[:2]),
        (" LIMIT 0", []),
        (" ORDER BY n", sorted(rows, key=lambda row: row[1])),
        (" ORDER BY article DESC LIMIT 3", sorted(rows, key=lambda row: row[2], reverse=True)[:3]),
    ]:
        answer = session.sql(other + tail)
        assert answer.receipt.replayed
        assert answer.arrow().column_names == ["land", "n", "article"]
        assert answer.fetchall() == wanted
        assert answer.counts is not None
        assert answer.counts.columns == (1,)
    least = sorted(row[1] for row in rows)[4]
    having = session.sql(other.replace("TOP", f"HAVING n >= {least} TOP"))
    assert having.receipt.replayed
    assert having.fetchall() == [row for row in rows if row[1] >= least]


def test_parameters_are_part_of_the_question(example: Path) -> None:
    sql = "SELECT article FROM reads WHERE country = ? GROUP BY article TOP ? PRIVATE"
    with opened(example) as session:
        given = (["DE", 2], ["FR", 3], ["DE", 3])  # the first rows of a longer answer may be free
        assert [session.sql(sql, values).receipt.replayed for values in given] == [False, False, False]
        assert [session.sql(sql, values).receipt.replayed for values in given] == [True, True, True]
        assert session.sql(sql.replace("?", "'FR'", 1).replace("?", "3")).receipt.replayed


# what is fresh


def test_fresh_noise_is_drawn_charged_and_replayed_from_then_on(asked: tuple[Session, dpsql.Answer]) -> None:
    session, first = asked
    again = session.sql(SQL.replace("0.05)", "0.05, fresh = true)"))
    assert not again.receipt.replayed
    assert again.receipt.items_charged == 18
    assert again.fetchall() != first.fetchall()
    assert_replayed(session.sql(SQL), again)


def test_explain_says_that_asking_again_is_free(example: Path) -> None:
    with opened(example) as session:

        def stored(sql: str) -> str | None:
            facts = session.explain(sql).facts()
            assert session.sql(f"EXPLAIN VERBOSE {sql}").fetchall()[: len(facts)] == facts
            return dict(facts).get("stored")

        assert stored(SQL) is None
        session.sql(SQL)
        assert stored(SQL) == "answered before; asking again shows that answer and costs nothing"
        assert "is charged" in (stored(SQL.replace("0.05)", "0.05, fresh = true)")) or "")
        assert stored(SQL.replace("0.05", "0.04")) is None
        assert session.explain(SQL).stored


def test_a_replay_is_answered_though_nothing_is_left(example: Path) -> None:
    one = "SELECT article FROM reads GROUP BY article TOP 1 PRIVATE"
    edit(example, "items = 100\nqueries = 20", "items = 1\nqueries = 1")
    with opened(example) as session:
        first = session.sql(one)
        assert session.budget.remaining.delta.value == 0
        assert_replayed(session.sql(one), first)
        with pytest.raises(dpsql.BudgetExceeded):
            session.sql(one.replace("PRIVATE", "PRIVATE WITH (fresh = true)"))
        assert_replayed(session.sql(one), first)


# what is never stored


@pytest.mark.parametrize("error", [RuntimeError("a"), KeyboardInterrupt()], ids=lambda error: type(error).__name__)
def test_what_failed_or_was_interrupted_is_not_replayed(example: Path, error: BaseException) -> None:
    def fail(_statement: Statement, _execute: Callable[[Statement], Exact]) -> Exact:
        raise error

    with opened(example) as session:
        for _ in range(2):  # and is charged again
            with pytest.raises((dpsql.EngineError, KeyboardInterrupt)):
                rebuilt(session, engine=fail).sql(SQL)
        assert not session.explain(SQL).stored
        answer = session.sql(SQL)
        assert not answer.receipt.replayed
        failed = "failed" if isinstance(error, RuntimeError) else "interrupted"
        assert session.history.column("state").to_pylist() == [failed, failed, "answered"]
        assert (
            session.history.column("rho_charged").to_pylist()[:2]
            == session.history.column("rho_reserved").to_pylist()[:2]
        )


def test_an_answer_whose_settlement_failed_is_not_replayed(example: Path) -> None:
    def refuse() -> None:
        raise dpsql.LedgerError("ledger-failed", "The disk is gone.")

    with opened(example) as session:
        ledger = WatchedLedger(session._dependencies.ledger, before=refuse, after=lambda: None)
        with pytest.raises(dpsql.LedgerError):
            rebuilt(session, ledger=ledger).sql(SQL)  # type: ignore[arg-type]
        assert not session.sql(SQL).receipt.replayed
        assert session.history.column("state").to_pylist() == ["open", "answered"]
        assert session.history.column("rho_charged").to_pylist()[0] is None


# versions of the data


def test_a_new_version_of_the_data_is_asked_anew_also_by_sessions_that_are_open(example: Path) -> None:
    with opened(example) as session, opened(example) as other:
        first = session.sql(SQL)
        assert bump(example / "ledger.sqlite", note="the rows of november") == 1
        assert not session.explain(SQL).stored
        second = other.sql(SQL)
        assert not second.receipt.replayed
        assert second.fetchall() != first.fetchall()
        assert_replayed(session.sql(SQL), second)
        assert session.budget.rho.spent == first.receipt.loss.rho.value + second.receipt.loss.rho.value
        assert session.history.column("data_version").to_pylist() == [0, 1]
    with opened(example) as later:
        assert_replayed(later.sql(SQL), second)


def test_the_policy_raises_the_version_and_an_older_copy_never_lowers_it(example: Path) -> None:
    policy = example / "policy.toml"
    old = policy.read_text()
    with opened(example) as session:
        session.sql(SQL)
    policy.write_text(f"data_version = 3\n{old}")
    with opened(example) as session:
        assert session._dependencies.ledger.data_version == 3
        third = session.sql(SQL)
        assert not third.receipt.replayed
    for text in (old, f"data_version = 2\n{old}", f"data_version = 3\n{old}"):
        policy.write_text(text)
        with opened(example) as session:
            assert session._dependencies.ledger.data_version == 3
            assert_replayed(session.sql(SQL), third)
    bumped = [json.loads(event.body) for event in read_history(example / "ledger.sqlite") if event.kind == "bumped"]
    assert bumped == [{"data_version": 3, "note": "the policy's data_version"}]


def test_rows_that_change_change_no_version(example: Path) -> None:
    """A version that followed the data would tell of a single row."""
    with opened(example) as session:
        first = session.sql(SQL)
    with duckdb.connect(str(example / "events.duckdb")) as writer:
        writer.execute("DELETE FROM reads WHERE user_id < 1000")
    with opened(example) as session:
        assert_replayed(session.sql(SQL), first)


# policies that changed


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        (
            'columns = ["user_id", "article", "country", "ts"]',
            'columns = ["user_id", "article", "ts"]',
            "unknown-column",
        ),
        ("[tables.reads]", '[tables."main.other"]\nprivacy_unit = "user_id"\n[tables.reads]', None),
        ("items = 100", "items = 10", None),
        ("[tables.reads]", "[limits]\nmax_k = 8\n[tables.reads]", "k"),
        ("[tables.reads]", "[limits]\nmax_epsilon = 0.01\n[tables.reads]", "option-range"),
        ("[tables.reads]", "[limits]\nmax_delta = 1e-9\n[tables.reads]", None),
    ],
)
def test_a_stored_answer_is_shown_only_to_what_the_present_policy_lets_ask(
    example: Path, old: str, new: str, code: str | None
) -> None:
    with duckdb.connect(str(example / "events.duckdb")) as writer:
        writer.execute("CREATE TABLE other AS FROM reads")
    with opened(example) as session:
        first = session.sql(SQL)
    edit(example, old, new)
    with opened(example) as session:
        before = session.budget
        if code is None:
            assert session.sql(SQL).receipt.replayed
            return
        with pytest.raises(dpsql.Refusal) as caught:
            session.sql(SQL)
        assert caught.value.code == code
        assert session.budget == before
        assert first.receipt.items_charged == 18


@pytest.mark.parametrize("line", ["max_groups_contributed = 12", "min_units = 50"])
def test_a_bound_of_the_table_is_part_of_the_question(example: Path, line: str) -> None:
    with opened(example) as session:
        session.sql(SQL)
    edit(example, "[tables.reads]\n", f"[tables.reads]\n{line}\n")
    with opened(example) as session:
        assert not session.sql(SQL).receipt.replayed


def test_a_question_is_what_was_written_whatever_the_default_epsilon_is_now(example: Path) -> None:
    sql = "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article TOP 3 PRIVATE"
    with opened(example) as session:
        first = session.sql(sql)
    edit(example, "items = 100", "items = 50")
    with opened(example) as session:
        again, other = session.sql(sql), session.explain(sql)
        assert again.receipt.replayed
        assert again.fetchall() == first.fetchall()
        assert again.intervals() == first.intervals()  # of the noise that was drawn, not of today's
        assert (again.receipt.epsilon, again.receipt.delta) == (first.receipt.epsilon, first.receipt.delta)
        assert other.epsilon > first.receipt.epsilon
        assert not session.sql(f"{sql} WITH (epsilon = {other.epsilon})").receipt.replayed
        assert not session.sql(f"{sql} WITH (fresh = true)").receipt.replayed


@pytest.mark.parametrize("option", ["epsilon = {epsilon}", "delta = {delta}", "k_bar = 1000", "mechanism = two_looks"])
def test_a_default_that_is_written_out_is_the_same_question_as_long_as_it_is_the_default(
    example: Path, option: str
) -> None:
    sql = "SELECT article FROM reads GROUP BY article TOP 3 PRIVATE WITH (mechanism = auto)"
    with opened(example) as session:
        plan = session.explain(sql)
        session.sql(sql)
        told = option.format(epsilon=plan.epsilon, delta=plan.delta)
        assert session.sql(sql.replace("mechanism = auto", told)).receipt.replayed
    edit(example, "items = 100", "items = 50")
    edit(example, "queries = 20", "queries = 5")
    with opened(example) as session:
        was_default = "epsilon" in option or "delta" in option
        again = session.explain(sql.replace("mechanism = auto", told))
        assert not again.stored or not was_default


_NEW = {"release", "terms", "series", "prefix", "cells"}


def as_of_version_0_10(stored: bytes, plan: dpsql.Plan) -> bytes:
    """Return a stored answer as 0.10 wrote it: under the key of its release, and without the terms of the draw."""
    facts, _, stream = stored.partition(b"\n")[2].partition(b"\n")
    known = {name: value for name, value in json.loads(facts).items() if name not in _NEW}
    content = json.dumps({**known, "key": plan.release_key}).encode() + b"\n" + stream
    return b"dpsql release 1 " + hashlib.sha256(content).hexdigest().encode() + b"\n" + content


def test_an_answer_of_an_earlier_version_is_found_by_the_key_of_its_release(
    example: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(example) as session, monkeypatch.context() as earlier:
        earlier.setattr("dpsql.plan.mechanisms.draws._list_sharing", lambda *_: [])  # counts shared no total
        plan, first = session.explain(SQL), session.sql(SQL)
        stored = session._dependencies.ledger.stored(plan.key, None)
    assert stored is not None
    for file in example.glob("ledger.sqlite*"):
        file.unlink()
    with opened(example) as session:
        held = session._dependencies.ledger.reserve(Request(SQL, BudgetVector(0, 0), key=plan.release_key))
        held.settle(Fraction(0), "0" * 64, answer=as_of_version_0_10(stored, plan))
        assert_replayed(session.sql(SQL), first)
        assert session.sql(SQL).intervals() == first.intervals()


# answers that cannot be read


def stored_as(folder: Path, content: bytes) -> None:
    """Keep `content` as the newest answer to SQL, as if a later or earlier dpsql had."""
    with opened(folder) as session:
        plan = session.explain(SQL)
        held = session._dependencies.ledger.reserve(Request(SQL, BudgetVector(0, 0), key=compute_release_key(plan)))
        held.settle(Fraction(0), "0" * 64, answer=content)


@pytest.mark.parametrize("content", [b"dpsql release 2 x\n{}", b"x", b"dpsql release 1 " + b"0" * 64 + b"\n{}\n"])
def test_an_answer_of_another_format_is_no_free_draw_and_no_silent_charge(example: Path, content: bytes) -> None:
    stored_as(example, content)
    with opened(example) as session:
        before, events = session.budget, told(session)
        with pytest.raises(dpsql.LedgerError) as caught:
            unread(session).sql(SQL)
        assert caught.value.code == "ledger-answer"
        assert "fresh = true" in caught.value.hint
        assert (session.budget, told(session)) == (before, events)
        again = session.sql(SQL.replace("0.05)", "0.05, fresh = true)"))
        assert again.receipt.items_charged == 18
        assert_replayed(session.sql(SQL), again)


def test_an_answer_that_was_changed_is_not_shown(example: Path) -> None:
    with opened(example) as session:
        session.sql(SQL)
    with closing(sqlite3.connect(example / "ledger.sqlite")) as connection, connection:
        triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        ((content,),) = connection.execute("SELECT content FROM answers").fetchall()
        connection.execute("UPDATE answers SET content = ?", (content.replace(b"article 1", b"article 2"),))
        for _, text in triggers:
            connection.execute(text)
    with opened(example) as session:
        before = session.budget
        with pytest.raises(dpsql.LedgerError) as caught:
            session.sql(SQL)
        assert caught.value.code == "ledger-tampered"
        assert session.budget == before


# many at once


def test_one_question_asked_at_once_has_one_answer_and_one_charge(example: Path) -> None:
    sessions = [opened(example) for _ in range(4)]
    answers: list[dpsql.Answer] = []
    gate = threading.Barrier(len(sessions))

    def ask(session: Session) -> None:
        gate.wait()
        answers.extend([session.sql(SQL), session.sql(SQL)])

    threads = [threading.Thread(target=ask, args=(session,)) for session in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    drawn = [answer for answer in answers if not answer.receipt.replayed]
    assert len(answers) == 8
    (only,) = drawn
    entries = sessions[0]._dependencies.ledger.entries()
    assert [entry.settlement.repeats is None for entry in entries if entry.settlement].count(True) == 1
    assert sessions[0].budget.rho.spent == only.receipt.loss.rho.value
    assert sessions[0].budget.delta.spent == only.receipt.loss.delta.value
    assert all(answer.fetchall() == only.fetchall() for answer in answers)
    for session in sessions:
        session.close()


def test_a_ledger_is_closed_when_the_session_cannot_be_opened(example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(example).close()
    closed: list[str] = []

    def full(*_: object) -> None:
        raise dpsql.LedgerError("ledger-disk-full", "Nothing can be written.")

    shut = SQLiteLedger.close
    monkeypatch.setattr(SQLiteLedger, "register", full)
    monkeypatch.setattr(SQLiteLedger, "close", lambda ledger: (closed.append("closed"), shut(ledger)))
    with pytest.raises(dpsql.LedgerError):
        opened(example)
    assert closed == ["closed"]


def test_replay_never_charges_and_reads_no_private_row(example: Path) -> None:
    fresh = SQL.replace("0.05", "0.05, fresh = true")
    with opened(example) as session:
        first = session.sql(SQL)
        events, idle = told(session), unread(session)
        assert_replayed(idle.replay(SQL), first)
        assert "reads" in [row[0] for row in idle.replay("SHOW TABLES")]
        assert len(idle.replay(f"EXPLAIN {SQL}")) > 0
        for charged in (fresh, SQL.replace("0.05", "0.04")):
            with pytest.raises(dpsql.Refusal, match="no stored answer") as refused:
                idle.replay(charged)
            assert refused.value.code == "not-stored"
        bump(example / "ledger.sqlite", note="new rows")
        with pytest.raises(dpsql.Refusal, match="no stored answer"):
            session.replay(SQL)
        assert [kind for kind in told(session) if kind != "bumped"] == events
