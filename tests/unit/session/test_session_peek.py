"""Answers at hand: repeated statements that are free are answered at once, as long as the ledger stays as it is."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest

import dpsql
from dpsql.curator import bump
from dpsql.session import Session
from dpsql.sql.analysis.outer_tree import DETERMINISTIC

QUERY = "SELECT article FROM reads GROUP BY article TOP 3 PRIVATE WITH (epsilon = 0.05)"
OTHER = QUERY.replace("TOP 3", "TOP 4")
EVALUATED = f"SELECT list_sort(list_value(article)) AS names FROM ({QUERY}) AS t ORDER BY 1"
WRAPPED = f"SELECT upper(article) AS name FROM ({QUERY}) AS t ORDER BY name"
POLICY = """\
ledger = "spent.ledger"
[budget]
epsilon = 10
delta = 1e-6
[tables.reads]
privacy_unit = "user_id"
[tables.articles]
public = true
"""
CONSTANTS = (
    "SELECT 1",
    "SELECT 1 AS one, 'x' AS text, TRUE AS yes, NULL AS nothing, 1.50 AS amount, DATE '2026-01-02' AS day",
    "SELECT 2 + 3 * 4, upper('a') || 'b', CAST('7' AS BIGINT), CASE WHEN 1 < 2 THEN 'less' END",
    "SELECT 1 WHERE 1 = 0",
    "SELECT 1 LIMIT 0",
    "WITH root AS (SELECT 1) SELECT COUNT(*) FROM root",
    "VALUES (1, 'a'), (2, 'b')",
    "SELECT list_sum([1, 2]) AS total, 'a' LIKE 'a%' AS likes FROM range(2)",
    "SHOW TABLES",
    "SHOW FUNCTIONS",
    "SHOW BUDGET",
    "DESCRIBE reads",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with duckdb.connect(str(tmp_path / "events.duckdb")) as database:
        database.execute("CREATE TABLE reads AS SELECT i AS user_id, 'a' || i % 3 AS article FROM range(900) t(i)")
        database.execute("CREATE TABLE articles AS SELECT 'a' || i AS article, i AS price FROM range(3) t(i)")
    (tmp_path / "policy.toml").write_text(POLICY)
    return tmp_path


def opened(folder: Path) -> Session:
    return dpsql.connect(folder / "events.duckdb", policy=folder / "policy.toml")


@pytest.fixture
def session(folder: Path) -> Iterator[Session]:
    with opened(folder) as made:
        yield made


@pytest.mark.parametrize("text", CONSTANTS)
def test_a_repeated_statement_without_rows_is_at_hand_and_is_what_it_was(text: str, session: Session) -> None:
    assert session.peek(text) is None
    first = session.sql(text)
    known = session.peek(text)
    assert known is not None
    with opened(Path(session._dependencies.ledger._path).parent) as other:
        fresh = other.sql(text)
    assert known.arrow().schema == first.arrow().schema == fresh.arrow().schema
    assert known.fetchall() == first.fetchall() == fresh.fetchall()
    assert known.receipt == fresh.receipt


@pytest.mark.parametrize("text", [QUERY, WRAPPED, EVALUATED])
def test_a_stored_answer_is_at_hand_once_it_was_replayed(text: str, session: Session) -> None:
    first = session.sql(text)
    assert session.peek(text) is None  # it was charged
    again = session.sql(text)
    assert again.receipt.replayed
    known = session.peek(text)
    assert known is not None
    assert known.fetchall() == first.fetchall()
    assert (known.receipt, known.notes()) == (again.receipt, again.notes())


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM articles ORDER BY article",
        "SELECT CURRENT_DATE",
        "SELECT random() AS r FROM range(2)",
        "SELECT age(TIMESTAMP '2020-01-01') AS years",
        "SELECT t.i FROM range(9) AS t(i) USING SAMPLE 3",
        "WITH t AS (SELECT 1) SELECT localtimestamp AS now, COUNT(*) FROM t",
        "WITH t AS (SELECT 1) SELECT COUNT(*) AS n FROM t, articles",
        f"SELECT article, random() AS r FROM ({QUERY}) AS t",
        f"EXPLAIN {QUERY}",
        f"SELECT t.article, price FROM ({QUERY}) AS t JOIN articles USING (article)",
        QUERY.replace("0.05)", "0.05, fresh = true)"),
    ],
)
def test_what_other_things_than_the_ledger_decide_is_never_at_hand(text: str, session: Session) -> None:
    for _ in range(3):
        session.sql(text)
        assert session.peek(text) is None


def test_parameters_are_no_part_of_a_text(session: Session) -> None:
    assert session.sql("SELECT ? AS n", [1]).fetchall() == [(1,)]
    assert session.sql("SELECT ? AS n", [2]).fetchall() == [(2,)]
    assert session.peek("SELECT ? AS n") is None
    known = [session.peek("SELECT ? AS n", [value]) for value in (1, 2, 3, 1.0, True, "1", Decimal(1))]
    assert [None if each is None else each.fetchall() for each in known] == [
        [(1,)],
        [(2,)],
        None,
        None,
        None,
        None,
        None,
    ]


def test_values_that_are_written_differently_are_different(session: Session) -> None:
    texts = [
        session.sql("SELECT CAST(? AS VARCHAR) AS t", [value]).fetchall() for value in (0.0, -0.0, 0.0, -0.0, 0, False)
    ]
    assert texts == [[("0.0",)], [("-0.0",)], [("0.0",)], [("-0.0",)], [("0",)], [("false",)]]


def test_a_charge_of_another_is_seen_by_the_next_answer(folder: Path, session: Session) -> None:
    session.sql(QUERY)
    for text in (QUERY, "SELECT 1", "SHOW BUDGET"):
        session.sql(text)
    before = session.sql(QUERY).receipt.remaining
    with opened(folder) as other:
        other.sql(OTHER)
    assert [session.peek(text) for text in (QUERY, "SELECT 1", "SHOW BUDGET")] == [None, None, None]
    after = session.sql(QUERY)
    assert after.receipt.replayed
    assert after.receipt.remaining.refundable < before.refundable
    assert session.sql("SELECT 1").receipt.remaining == after.receipt.remaining


def test_a_new_version_of_the_data_is_answered_anew(folder: Path, session: Session) -> None:
    for _ in range(2):
        session.sql(QUERY)
    assert session.peek(QUERY) is not None
    bump(folder / "spent.ledger", note="new rows")
    assert session.peek(QUERY) is None
    assert not session.sql(QUERY).receipt.replayed


def test_a_stored_answer_that_was_deleted_is_not_returned(folder: Path, session: Session) -> None:
    for _ in range(2):
        session.sql(QUERY)
    assert session.peek(QUERY) is not None
    with closing(sqlite3.connect(folder / "spent.ledger", isolation_level=None)) as other:
        other.execute("DROP TRIGGER answers_stay")
        other.execute("DELETE FROM answers")
    assert session.peek(QUERY) is None
    with pytest.raises(dpsql.LedgerError, match=r"\[ledger-tampered\]"):
        session.sql(QUERY)


def test_only_so_many_answers_are_kept(session: Session) -> None:
    for number in range(70):
        session.sql(f"SELECT {number}")
    assert session.peek("SELECT 69") is not None
    assert sum(session.peek(f"SELECT {number}") is not None for number in range(70)) <= 64


def test_a_closed_session_has_nothing_at_hand(folder: Path) -> None:
    with opened(folder) as session:
        session.sql("SELECT 1")
    with pytest.raises(dpsql.UsageError, match=r"\[closed\]"):
        session.peek("SELECT 1")


def test_functions_that_are_called_deterministic_are_so_for_duckdb() -> None:
    with duckdb.connect() as connection:
        found = connection.execute("SELECT function_name, stability FROM duckdb_functions()").fetchall()
    assert not {name for name, stability in found if name in DETERMINISTIC and stability not in {"CONSISTENT", None}}
    assert not DETERMINISTIC & {"age", "ago", "now", "random", "today", "uuid"}
