"""Hostile SQL around private queries: no private value, no file, no path of the machine and no crash comes of it.

`outer_selects.jsonl` holds one statement a line, with "ok" or the code of the error that it must end in. {PRIVATE} is a
private query whose answer is stored, {FILE} a file with a mark in it, and {DATABASE} the file of the data.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from support.session_kit import COUNTS, rebuilt

import dpsql
from dpsql.engines import Exact, Statement
from dpsql.errors import Error
from dpsql.session import Session

CASES = [json.loads(line) for line in Path(__file__).with_name("outer_selects.jsonl").read_text().splitlines()]
MARKS = ("canary", "/root", "/tmp", "/home", "/proc", "site-packages")
TOPICS = "CREATE TABLE topics AS SELECT * FROM (VALUES ('a', 'new'), ('b', 'old')) AS t(article, topic)"
READS = "CREATE TABLE reads AS SELECT i AS user_id, ['a', 'b', 'c'][1 + i % 3] AS article FROM range(3000) t(i)"
SECRETS = (
    "CREATE TABLE secrets AS SELECT 'canary-secret' AS s",
    "CREATE TABLE users AS SELECT 1 AS user_id, 'canary-user' AS name",
    "INSERT INTO reads SELECT 3, 'canary-private'",
)
TABLES = {
    "reads": dpsql.PrivateTable("user_id"),
    "users": dpsql.PrivateTable("user_id"),
    "topics": dpsql.PublicTable(),
}


@dataclass(frozen=True)
class Attacked:
    """A session whose private answer is stored, and what stands for the placeholders of the corpus."""

    session: Session
    names: Mapping[str, str]

    def write(self, sql: str) -> str:
        for name, value in self.names.items():
            sql = sql.replace(f"{{{name}}}", value)
        return sql

    def run(self, sql: str) -> tuple[str, str]:
        """Return the outcome of a statement, and all that it shows without the analyst's own words."""
        try:
            answer = self.session.sql(self.write(sql))
            outcome, shown = "ok", repr((answer.fetchall(), answer.arrow().schema))
        except Error as error:
            outcome, shown = error.code, f"{error.reason} {error.hint}"  # its place is a piece of the statement
        for value in (self.names["FILE"], self.names["DATABASE"], "/etc"):
            shown = shown.replace(value, "")
        return outcome, shown


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    folder = tmp_path_factory.mktemp("attacked")
    file, database = folder / "notes.csv", folder / "events.duckdb"
    file.write_text("a,b\ncanary-file,1\n")
    with duckdb.connect(str(database)) as connection:
        for statement in (READS, TOPICS, *SECRETS):
            connection.execute(statement)
    engine = dpsql.EngineSettings(isolation="process", memory_limit="300MB", time_limit=3, threads=1)
    policy = dpsql.Policy(dpsql.Budget(50, "1e-6"), TABLES, engine=engine)
    with (
        pytest.MonkeyPatch.context() as patched,
        dpsql.connect(database, policy=policy, ledger=":memory:") as session,
    ):
        patched.setenv("CANARY", "canary-environment")
        session.sql(COUNTS)
        names = {"PRIVATE": COUNTS, "FILE": str(file), "DATABASE": str(database)}
        yield Attacked(session, names)


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_it_ends_as_expected_and_shows_nothing(attacked: Attacked, case: dict[str, str]) -> None:
    before = attacked.session.history.num_rows
    outcome, shown = attacked.run(case["sql"])
    assert outcome == case["expect"], shown
    assert not [mark for mark in MARKS if mark in shown], shown
    assert attacked.session.history.num_rows == before == 1
    assert attacked.session.sql(f"SELECT COUNT(*)::FLOAT FROM ({COUNTS}) AS x").fetchall() == [(3.0,)]  # it lives


def test_the_marks_would_be_seen(attacked: Attacked) -> None:
    assert attacked.run("SELECT 'canary' AS c, [1] AS l") == ("ok", "([('canary', '[1]')], c: string\nl: string)")


class _Recording:
    """An evaluator that keeps what it is given."""

    def __init__(self, evaluator: object) -> None:
        self._evaluator = evaluator
        self.seen: list[object] = []

    def compute(
        self, tables: Mapping[tuple[str, str, str], pa.Table], statement: Statement, **more: object
    ) -> pa.Table:
        given = sorted((path, table.to_pydict()) for path, table in tables.items())
        self.seen.append((statement.sql, statement.parameters, given))
        return self._evaluator.compute(tables, statement, **more)  # type: ignore[attr-defined, no-any-return]

    def close(self) -> None: ...


def _refuse(statement: Statement, run: object) -> Exact:
    assert "reads" not in statement.sql
    assert "users" not in statement.sql
    return run(statement)  # type: ignore[operator, no-any-return]


def test_neighbours_with_the_same_releases_are_the_same_to_the_evaluator() -> None:
    """Replace one user's rows and keep the ledger: what an outer SELECT is computed from does not change.

    Here the evaluator is in the process of the session, where statements end as they do in a worker.
    """
    databases = [duckdb.connect(":memory:") for _ in range(2)]
    for database in databases:
        for statement in (READS, TOPICS, *SECRETS):
            database.execute(statement)
    databases[1].execute("DELETE FROM reads WHERE user_id = 3")
    databases[1].execute("INSERT INTO reads SELECT 3, 'other' || i FROM range(50) t(i)")
    databases[1].execute("DELETE FROM users")
    policy = dpsql.Policy(dpsql.Budget(50, "1e-6"), TABLES)
    first, second = (dpsql.connect(database, policy=policy, ledger=":memory:") for database in databases)
    first.sql(COUNTS)
    second = rebuilt(second, engine=_refuse, ledger=first._dependencies.ledger)
    recorded = [_Recording(each._dependencies.evaluator) for each in (first, second)]
    names = {"PRIVATE": COUNTS, "FILE": "/nowhere/notes.csv", "DATABASE": "/nowhere/events.duckdb"}
    sessions = [
        Attacked(Session(replace(each._dependencies, evaluator=evaluator)), names)
        for each, evaluator in zip((rebuilt(first, engine=_refuse), second), recorded, strict=True)
    ]
    computed = 0
    for case in CASES:
        if case["category"] == "limits":
            continue  # a worker alone limits memory in full
        outcomes = [each.run(case["sql"]) for each in sessions]
        assert outcomes[0] == outcomes[1]
        assert outcomes[0][0] == case["expect"], case["id"]
        assert not [mark for mark in MARKS if mark in outcomes[0][1]], outcomes[0]
        assert recorded[0].seen == recorded[1].seen
        computed += bool(recorded[0].seen)
        for each in recorded:
            each.seen.clear()
    assert computed > 100


BOUND_TO_FAIL = [
    "SELECT foo, n::FLOAT FROM ({PRIVATE}) AS x",
    "SELECT x.article.foo, [1] FROM ({PRIVATE}) AS x",
    "SELECT n + article::STRUCT(a INT) FROM ({PRIVATE}) AS x",
    "SELECT CAST(n AS NOTYPE) FROM ({PRIVATE}) AS x",
    "SELECT article FROM ({PRIVATE}) AS x UNION SELECT 1, 2",
    "SELECT [article, n, topic] || 1 FROM ({PRIVATE}) AS x, topics",
    "SELECT strptime('2026', article), [1] FROM ({PRIVATE}) AS x",
    "SELECT n::FLOAT FROM ({PRIVATE}) AS x, topics WHERE topic = 3 AND foo",
    "SELECT CAST('own-text' AS INTEGER), [1] FROM ({PRIVATE}) AS x",
    "SELECT CAST(article AS INTEGER), [1] FROM ({PRIVATE}) AS x",
    "SELECT CAST(topic AS INTEGER), [1] FROM topics",
    "SELECT CAST(topic AS INTEGER), foo, [1] FROM topics",
    "SELECT error(article || topic), [1] FROM ({PRIVATE}) AS x, topics",
    "SELECT (SELECT n FROM ({PRIVATE}) AS y), [1]",
    "SELECT CASE WHEN n > 0 THEN error(article) END, [1] FROM ({PRIVATE}) AS x",
    "SELECT regexp_matches(topic, '('), [1] FROM topics",
    "SELECT regexp_matches('(', topic || '('), [1] FROM topics",
    "SELECT * FROM (PIVOT (SELECT * FROM topics) ON topic IN ('new', 3, foo) USING COUNT(*)), ({PRIVATE}) AS x",
]


@pytest.fixture(scope="module")
def marked(attacked: Attacked) -> Attacked:
    """Return a session with the evaluator of `attacked`, whose public and released rows are marks."""
    database = duckdb.connect(":memory:")
    database.execute("CREATE TABLE reads AS SELECT i AS user_id, 'canary-key' AS article FROM range(3000) t(i)")
    database.execute("CREATE TABLE topics AS SELECT 'canary-key' AS article, 'canary-topic' AS topic")
    tables = {name: TABLES[name] for name in ("reads", "topics")}
    policy = dpsql.Policy(dpsql.Budget(50, "1e-6"), tables)
    session = dpsql.connect(database, policy=policy, ledger=":memory:")
    session = Session(replace(session._dependencies, evaluator=attacked.session._dependencies.evaluator))
    return replace(attacked, session=session)


@pytest.mark.parametrize("sql", BOUND_TO_FAIL)
def test_what_an_error_says_holds_no_value_of_the_data(marked: Attacked, sql: str) -> None:
    outcome, shown = marked.run(sql)
    assert outcome in {"outer-select", "wrapping-failed", "syntax", "unknown-column", "ok"}
    if outcome != "ok":
        assert "canary" not in shown
    if "own-text" in sql:
        assert outcome == "wrapping-failed"
