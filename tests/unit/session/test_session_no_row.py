"""What tools send before they ask, through a session: answered from the catalog, at no cost, and no row is read."""

from __future__ import annotations

import pytest
from support.session_kit import NAMES, rebuilt, session_on, shared

import dpsql
from dpsql.engines import Exact, Statement
from dpsql.session import Session

TABLES = {
    "reads": dpsql.PrivateTable("user_id", columns=("user_id", "article", "dwell")),
    "notes": dpsql.PrivateTable(link="reader -> users.id", columns=("word",)),
    "users": dpsql.PrivateTable("household"),
    "countries": dpsql.PublicTable(),
}
DATA = (
    "CREATE TABLE reads AS SELECT i AS user_id, 'a' AS article, i / 4 dwell, 'zebra' AS hidden FROM range(3000) n(i)",
    "CREATE TABLE users AS SELECT i AS id, i // 2 AS household, 'x' AS name FROM range(3000) n(i)",
    "CREATE TABLE notes AS SELECT i AS reader, 'zebra' AS word FROM range(3000) n(i)",
    "CREATE TABLE countries AS SELECT 'DE' AS country",
)
NOTHING = [
    "SELECT * FROM reads LIMIT 0",
    "SELECT article, dwell + 1 AS d FROM reads WHERE 1 = 0",
    "SELECT * FROM (SELECT * FROM reads) AS x LIMIT 0",
    "SELECT r.article, u.name FROM reads AS r JOIN users AS u ON r.user_id = u.household WHERE FALSE",
    "SELECT * FROM reads AS r LEFT JOIN countries AS c ON c.country = r.article LIMIT 0",
    "SELECT article, COUNT(*) AS n FROM reads GROUP BY article ORDER BY n LIMIT 0",
]


@pytest.fixture
def session() -> Session:
    return session_on(shared(*DATA), dpsql.Policy(dpsql.Budget(1, "1e-6"), TABLES))


def run_by(session: Session, text: str) -> list[str]:
    """Return the statements that the engine runs for a question."""
    ran: list[str] = []

    def recording(statement: Statement, execute: object) -> Exact:
        ran.append(statement.sql)
        return execute(statement)  # type: ignore[operator, no-any-return]

    rebuilt(session, engine=recording).sql(text)
    return ran


@pytest.mark.parametrize("text", NOTHING)
def test_what_asks_for_no_row_is_answered_without_one_and_for_nothing(session: Session, text: str) -> None:
    assert run_by(session, text) == []
    answer = session.sql(text)
    assert len(answer) == 0
    assert answer.receipt.items_charged == 0
    assert answer.receipt.loss == session._dependencies.terms.nothing
    assert session.history.num_rows == 0
    assert session.budget.rho.spent == session.budget.rho.reserved == 0


def test_the_columns_are_those_that_exist_for_analysts(session: Session) -> None:
    for table in TABLES:
        described = session.sql(f"DESCRIBE {table}").fetchall()
        assert session.sql(f"SELECT * FROM {table} LIMIT 0").arrow().column_names == [column[0] for column in described]
    assert session.sql("SELECT * FROM notes LIMIT 0").arrow().column_names == ["word", "household"]
    for text in ("SELECT hidden FROM reads LIMIT 0", "SELECT reader FROM notes WHERE 1 = 0"):
        with pytest.raises(dpsql.Refusal, match="unknown-column") as refused:
            session.sql(text)
        assert "zebra" not in str(refused.value)


def test_it_is_answered_alike_whatever_the_table_holds() -> None:
    full, empty = (
        session_on(shared(*DATA, *more), dpsql.Policy(dpsql.Budget(1, "1e-6"), TABLES))
        for more in ((), ("DELETE FROM reads", "DELETE FROM users", "DELETE FROM notes"))
    )
    for text in NOTHING:
        assert full.sql(text).arrow().equals(empty.sql(text).arrow())
        assert full.sql(text).arrow().schema == empty.sql(text).arrow().schema


def test_it_is_answered_when_the_budget_is_used_up(session: Session) -> None:
    while True:
        try:
            session.sql(NAMES.replace("0.05", "0.3, fresh = true"))
        except dpsql.BudgetExceeded:
            break
    assert session.sql("SELECT * FROM reads WHERE 1 = 0").arrow().column_names == ["user_id", "article", "dwell"]
    assert session.sql("SELECT 1").fetchall() == [(1,)]


def test_a_question_of_no_row_has_no_plan(session: Session) -> None:
    with pytest.raises(dpsql.Refusal, match="not-a-query"):
        session.explain("SELECT * FROM reads LIMIT 0")
