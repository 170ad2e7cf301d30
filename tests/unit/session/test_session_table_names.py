"""Names of tables as tools write them: with the default schema, as main or public, and with the database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.session_kit import session_on, shared

import dpsql
from dpsql.errors import Error
from dpsql.session import Session

BUDGET = dpsql.Budget(8, "1e-6")
PRIVATE, PUBLIC = dpsql.PrivateTable("user_id"), dpsql.PublicTable()
DEFAULT = 'reads main.reads public.reads dpsql.main.reads DPSQL."public"."reads" "dpsql"."main"."reads"'.split()
LISTED = [name.replace("reads", "countries") for name in DEFAULT]


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    connection = shared(
        "CREATE SCHEMA web",
        "CREATE TABLE reads AS SELECT i AS user_id, 'a' || i % 3 AS article, 'DE' AS code FROM range(9000) t(i)",
        "CREATE TABLE countries AS SELECT 'DE' AS code, 'Germany' AS name",
        "CREATE TABLE web.clicks AS SELECT 'web' AS code",
    )
    tables = {"reads": PRIVATE, "countries": PUBLIC, "web.clicks": PUBLIC}
    with session_on(connection, dpsql.Policy(BUDGET, tables)) as opened:
        yield opened


def refusal(session: Session, sql: str) -> str:
    with pytest.raises(Error) as caught:
        session.sql(sql)
    return caught.value.code


def test_a_private_question_is_the_same_under_every_name(session: Session) -> None:
    asked = [
        f"SELECT {name}.article FROM {name} WHERE {name}.code = 'DE' GROUP BY {name}.article TOP 3 PRIVATE"
        for name in DEFAULT
    ]
    asked.append("SELECT public.reads.article FROM main.reads WHERE code = 'DE' GROUP BY 1 TOP 3 PRIVATE")
    answers = [sorted(session.sql(sql).fetchall()) for sql in asked]
    assert answers == [[("a0",), ("a1",), ("a2",)]] * len(asked)
    assert session.history.num_rows == 1


@pytest.mark.parametrize("name", LISTED)
def test_a_public_table_is_read_under_every_name(session: Session, name: str) -> None:
    for sql in (
        f"SELECT {name}.name FROM {name} WHERE {name}.code = 'DE'",
        f"SELECT c.name FROM {name} AS c",
        f"SELECT max({name}.name) OVER () AS name FROM {name}",
        f"SELECT any_value({name}.name) AS name FROM {name}, web.clicks",
    ):
        assert session.sql(sql).fetchall() == [("Germany",)], sql
    assert session.sql(f"SELECT {name}.* FROM {name}").fetchall() == [("DE", "Germany")]
    assert session.sql(f"DESCRIBE {name}").arrow()["column_name"].to_pylist() == ["code", "name"]


def test_a_domain_and_a_select_around_a_private_query_may_use_them(session: Session) -> None:
    known = "SELECT code FROM dpsql.main.reads GROUP BY code TOP 1 PRIVATE WITH (domain = 'public.countries.code')"
    assert session.sql(known).fetchall() == [("DE",)]
    around = f'SELECT "dpsql"."main"."countries"."name" FROM ({known}) r JOIN "dpsql"."main"."countries" USING (code)'
    assert session.sql(around).fetchall() == [("Germany",)]


def test_another_schema_is_itself(session: Session) -> None:
    for name in ("web.clicks", '"dpsql"."web"."clicks"'):
        assert session.sql(f"SELECT {name}.code FROM {name}").fetchall() == [("web",)]
    for name in ("clicks", "main.clicks", "public.clicks", "dpsql.clicks", "other.main.countries", "web.countries"):
        assert refusal(session, f"SELECT * FROM {name}") == "unknown-table", name
    for column in ("web.countries.name", "other.main.countries.name"):
        assert refusal(session, f"SELECT {column} FROM countries") in {"unknown-column", "syntax"}, column


def test_a_schema_public_of_the_policy_comes_first() -> None:
    connection = shared(
        "CREATE SCHEMA public",
        "CREATE TABLE public.words AS SELECT 'public' AS word",
        "CREATE TABLE words AS SELECT 'main' AS word",
        "CREATE TABLE others AS SELECT 'others' AS word",
    )
    tables = {"public.words": PUBLIC, "words": PUBLIC, "others": PUBLIC}
    with session_on(connection, dpsql.Policy(BUDGET, tables)) as session:
        for name, found in (
            ("words", "main"),
            ("main.words", "main"),
            ("public.words", "public"),
            ("dpsql.public.words", "public"),
            ("public.others", "others"),
        ):
            assert session.sql(f"SELECT {name}.word FROM {name}").fetchall() == [(found,)], name
