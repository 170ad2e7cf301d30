"""A plan is chosen from public numbers alone: whatever the rows are, the engine is asked the same statement.

Two looks ask for a second one where the noisy number that the first released says so, and the number alone decides.
What the numbers are that do decide, each changes it: the bound of groups and k_bar here, a population that is told in
public in `test_planner.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from typing import TYPE_CHECKING
from unittest.mock import patch

import duckdb
import pytest

import dpsql
from dpsql.connect import open_session
from dpsql.engines import RecordingEngine, Statement
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.errors import Error
from dpsql.mechanisms.gate import Look
from dpsql.plan.mechanisms.choice import list_records
from dpsql.plan.mechanisms.record import QueryKind

if TYPE_CHECKING:
    from dpsql.session import Session

DATA = {
    "a hundred units in few groups": "SELECT i % 100 AS unit, 'a' || i % 7 AS item, i AS n FROM range(3000) t(i)",
    "no row": "SELECT 1::BIGINT AS unit, 'a' AS item, 1::BIGINT AS n WHERE false",
    "one row": "SELECT 1::BIGINT AS unit, 'a' AS item, 1::BIGINT AS n",
    "one unit in every group": "SELECT 1::BIGINT AS unit, 'a' || i AS item, i AS n FROM range(3000) t(i)",
    "one group of all": "SELECT i AS unit, 'a' AS item, i AS n FROM range(3000) t(i)",
    "nothing but NULL": "SELECT NULL::BIGINT AS unit, NULL::VARCHAR AS item, NULL::BIGINT AS n FROM range(3000)",
}
BOUNDS = ("", *(f"max_groups_contributed = {groups}" for groups in (1, 5, 100)))
COUNTS = ("", ", COUNT(DISTINCT unit) AS c")
SALTS = (7, 11)


def opened(rows: str) -> tuple[Session, RecordingEngine]:
    """Return a session whose salts are those of every other here, and the engine that records what it is asked."""
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE events AS {rows}")
    engine = RecordingEngine(DuckDBEngine.borrow(connection, {"events": None}))
    budget = dpsql.Budget(100, "1e-6", items=2_000, queries=200)
    policy = dpsql.Policy(budget, {"events": dpsql.PrivateTable("unit")})
    session = open_session(engine, policy, ledger=":memory:")
    session._plans.salts = SALTS
    return session, engine


def question(*options: str) -> str:
    """Return a question, with counts if the last option asks for them."""
    *more, count = options
    clause = ", ".join(filter(None, ["epsilon = 0.01", "fresh = true", *more]))
    return f"SELECT item{count} FROM events WHERE n >= 0 GROUP BY item TOP 3 PRIVATE WITH ({clause})"


def questions() -> Iterator[str]:
    """Yield questions of every mechanism, the one that AUTO chooses among them, under bounds of every form."""
    mechanisms = [
        "",
        "domain = ['a1', 'a2']",
        *(f"mechanism = {each.name}" for each in list_records(QueryKind.UNKNOWN)),
    ]
    mechanisms += [f"mechanism = {each.name}, domain = ['a1', 'a2']" for each in list_records(QueryKind.KNOWN)]
    for mechanism, (at, bound) in product(mechanisms, enumerate(BOUNDS)):
        yield question(mechanism, bound, COUNTS[at % 2])
    yield "SELECT item FROM events GROUP BY item TOP ADAPTIVE PRIVATE WITH (epsilon = 0.01, fresh = true)"
    per = "PER item WITH (partitions = ['a1', 'a2'], epsilon = 0.01, fresh = true)"
    yield f"SELECT item, n FROM events GROUP BY ALL TOP 3 PRIVATE {per}"


class NothingNew:
    """A ledger in which no further answer is found, so that all sessions know the same names."""

    def answers(self, _: str | None, after: int) -> tuple[int, list[bytes]]:
        return after, []


def knowing(session: Session) -> Session:
    """Return the session once it knows two names from an answer over a declared domain, and will know no others."""
    session.sql(question("domain = ['a1', 'a2']", ""))
    names = session.explain(question("mechanism = weighted_gaussian", "")).query.names
    assert names is not None
    assert names.count == 2
    session._plans.names.ledger = NothingNew()  # type: ignore[assignment]
    return session


def asked(rows: str) -> dict[str, list[Statement] | str]:
    """Return what the engine is asked for each question, or the code of what it is refused with.

    Once where every look releases 0 and, if there is a look, once where it releases 1.
    """
    session, engine = opened(rows)
    knowing(session)
    found: dict[str, list[Statement] | str] = {}
    for text in questions():
        for looked in (0, 1):
            engine.statements.clear()
            with patch.object(Look, "draw", return_value=Fraction(looked)) as look:
                try:
                    session.sql(text)
                    found[f"{text} at {looked}"] = list(engine.statements)
                except Error as error:
                    found[f"{text} at {looked}"] = error.code
            if not look.called:
                break
    return found


def looks_twice(session: Session, text: str) -> bool:
    return session.explain(text).mechanism == "two_looks"


@pytest.fixture(scope="module")
def usual() -> dict[str, list[Statement] | str]:
    return asked(next(iter(DATA.values())))


def test_most_questions_are_answered_each_by_one_statement(usual: dict[str, list[Statement] | str]) -> None:
    answered = {text: statements for text, statements in usual.items() if not isinstance(statements, str)}
    assert len(answered) > 0.8 * len(usual)
    assert {len(statements) for statements in answered.values()} == {1, 2}
    twice = {text for text, statements in answered.items() if len(statements) == 2}
    session = knowing(opened(DATA["no row"])[0])
    assert twice == {
        at_0 for each in questions() if (at_0 := f"{each} at 0") in answered and looks_twice(session, each)
    }
    assert len({statements[0].sql for statements in answered.values()}) > 15


@pytest.mark.properties
@pytest.mark.parametrize("rows", list(DATA)[1:])
def test_whatever_the_rows_are_the_engine_is_asked_the_same(usual: dict[str, list[Statement] | str], rows: str) -> None:
    """Of the same question: the statement, its parameters and how many there are; or the same refusal."""
    assert asked(DATA[rows]) == usual


@pytest.mark.properties
@pytest.mark.parametrize("rows", list(DATA)[1:])
def test_whatever_the_rows_are_auto_weighs_and_chooses_the_same(rows: str) -> None:
    def told(session: Session) -> Iterator[object]:
        for bound, count in product(BOUNDS, COUNTS):
            plan = session.explain(question("", bound, count))
            yield plan.mechanism, plan.considered, plan.max_groups_contributed, plan.worst_case, plan.counting.sql

    usual, other = (opened(DATA[each])[0] for each in (next(iter(DATA)), rows))
    assert list(told(usual)) == list(told(other))


def statement(more: str) -> str:
    session, _ = opened(DATA["no row"])
    counts = "SELECT item, COUNT(DISTINCT unit) AS c FROM events GROUP BY item TOP 3 PRIVATE"
    return session.explain(f"{counts} WITH ({more})").counting.sql


def test_the_bound_decides_on_the_form_and_k_bar_on_the_cut() -> None:
    forms = [
        statement(f"mechanism = limited_domain, max_groups_contributed = {groups}") for groups in (1, 5, 15, 16, 100)
    ]
    assert [("row_number" in form, "MATERIALIZED" in form) for form in forms] == [
        (False, False),
        *[(True, False)] * 2,
        *[(True, True)] * 2,
    ]
    cuts = [statement(f"mechanism = limited_domain, k_bar = {k_bar}") for k_bar in (10, 1000)]
    assert [cut.rpartition(" LIMIT ")[2] for cut in cuts] == ["11", "1001"]
