"""What tools and courses publish around a result is answered, as DuckDB answers it over the released rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import duckdb
import pytest
from support.session_kit import filled, session_on

import dpsql
from dpsql.engines.duckdb.evaluator import WorkerEvaluator
from dpsql.errors import Error
from dpsql.session import Session

QUERIES = {
    "READS": (
        "SELECT article, date_trunc('day', ts) AS day, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article, 2 "
        "TOP 9 PRIVATE WITH (epsilon = 0.5)"
    ),
    "COUNTRIES": (
        "SELECT country, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY country TOP 3 PRIVATE WITH (epsilon = 0.5)"
    ),
    "TOTAL": "SELECT COUNT(DISTINCT user_id) AS n FROM reads PRIVATE WITH (epsilon = 0.5)",
}
READS = (  # groups of all sizes: a series limit or a top n must not hang on the noise
    "CREATE TABLE reads AS SELECT i % 3000 AS user_id, ['DE', 'FR', 'DE'][1 + i % 3] AS country, "
    "'a' || CASE WHEN i % 21 < 11 THEN 0 WHEN i % 21 < 18 THEN 1 ELSE 2 END AS article, "
    "TIMESTAMP '2026-01-01 05:00:00' + to_days(CAST(i % 21 IN (0, 1, 2, 3, 4, 11, 12, 13, 18) AS INTEGER)) AS ts "
    "FROM range(12000) n(i)"
)
PUBLIC = (
    "CREATE TABLE topics (article VARCHAR, topic VARCHAR, weight FLOAT)",
    "INSERT INTO topics VALUES ('a0', 'new', 1.5), ('a1', 'old', 2.5), ('z', 'none', NULL)",
    "CREATE TABLE days (day TIMESTAMP, label VARCHAR)",
    "INSERT INTO days VALUES ('2026-01-01', 'launch'), ('2026-01-03', NULL)",
)
TABLES = {"reads": dpsql.PrivateTable("user_id"), "topics": dpsql.PublicTable(), "days": dpsql.PublicTable()}
COMMENT = re.compile(r"^-- (source|refused): (.*)\n", re.MULTILINE)
_HUGE = re.compile(r"Decimal\('(-?[0-9]+)'\)")


class Published(NamedTuple):
    """A published statement, where its shape is from, and the code of its refusal if it must be refused."""

    source: str
    sql: str
    refused: str | None


def read_statements() -> list[Published]:
    paragraphs = Path(__file__).with_name("tool_statements.sql").read_text().strip().split("\n\n")[1:]
    found = []
    for paragraph in paragraphs:
        notes = dict(COMMENT.findall(paragraph))
        found.append(Published(notes["source"], COMMENT.sub("", paragraph).strip(), notes.get("refused")))
    return found


PUBLISHED = read_statements()
ANSWERED = [each for each in PUBLISHED if each.refused is None]


@pytest.fixture(scope="module")
def opened() -> Iterator[tuple[Session, duckdb.DuckDBPyConnection]]:
    """A session that has answered the private queries, and a database with their answers as tables.

    What is around them is computed by a worker; the statements of test_session_tools.py are computed in the process.
    """
    policy = dpsql.Policy(dpsql.Budget(50, "1e-6"), TABLES)
    session, reference = session_on(filled(READS, *PUBLIC), policy), filled(*PUBLIC)
    for name, query in QUERIES.items():
        reference.register(f"answer_{name}", session.sql(query).arrow())
        reference.execute(f'CREATE TABLE "released {name}" AS FROM answer_{name}')
    with closing(WorkerEvaluator()) as workers:
        yield Session(replace(session._dependencies, evaluator=workers)), reference


def write(sql: str, queries: dict[str, str]) -> str:
    for name, query in queries.items():
        sql = sql.replace(f"{{{name}}}", query)
    return sql


def show(rows: list[tuple[object, ...]]) -> list[str]:
    """Return rows in one order, with HUGEINT as a whole number and what is no scalar as DuckDB writes it."""
    return sorted(_HUGE.sub(r"\1", repr(row)) for row in rows)


def test_there_are_enough_of_them() -> None:
    assert len(PUBLISHED) >= 97
    assert len({each.sql for each in PUBLISHED}) == len(PUBLISHED)
    assert len(ANSWERED) / len(PUBLISHED) > 0.95


@pytest.mark.parametrize("published", ANSWERED, ids=[each.source for each in ANSWERED])
def test_it_is_answered_as_duckdb_does(opened: tuple[Session, duckdb.DuckDBPyConnection], published: Published) -> None:
    session, reference = opened
    text, before = write(published.sql, QUERIES), session.history.num_rows
    answer = session.sql(text)
    assert answer.receipt.items_charged == 0
    assert session.describe(text) == answer.arrow().schema
    known = write(published.sql, {name: f'FROM "released {name}"' for name in QUERIES})
    expected = reference.sql(known)
    assert answer.arrow().column_names == expected.columns
    names = [f"c{at}" for at in range(len(expected.columns))]
    shown = [
        name if _is_scalar(str(type_)) else f"CAST({name} AS VARCHAR)"
        for name, type_ in zip(names, expected.types, strict=True)
    ]
    rows = reference.execute(f"SELECT {', '.join(shown)} FROM ({known}) AS t({', '.join(names)})").fetchall()
    assert show(answer.fetchall()) == show(rows)
    assert session.history.num_rows == before


def _is_scalar(type_: str) -> bool:
    return not type_.endswith("]") and not type_.startswith(("STRUCT", "MAP", "INTERVAL", "JSON", "TIME ", "UUID"))


@pytest.mark.parametrize("published", [each for each in PUBLISHED if each.refused], ids=lambda each: each.source)
def test_what_must_not_be_answered_is_refused(
    opened: tuple[Session, duckdb.DuckDBPyConnection], published: Published
) -> None:
    session, before = opened[0], opened[0].history.num_rows
    with pytest.raises(Error) as caught:
        session.sql(write(published.sql, QUERIES))
    assert caught.value.code == published.refused
    assert session.history.num_rows == before
