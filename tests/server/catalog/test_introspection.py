"""Every statement that tools send to learn of tables is answered by the empty PostgreSQL, as one with rows would."""

from __future__ import annotations

import pytest
from support.catalog_corpus import CORPUS, Asked

from dpsql.server.catalog.system_catalog import SystemCatalog, is_catalog

NAMES = ("reads", "countries")


@pytest.fixture(scope="module")
def oids(shadow: SystemCatalog) -> dict[str, str]:
    found = shadow.execute("SELECT relname, oid FROM pg_class WHERE relnamespace = 'main'::regnamespace", user="ana")
    return {(name or b"").decode(): (oid or b"").decode() for name, oid in found.rows}


def answered(shadow: SystemCatalog, asked: Asked, oids: dict[str, str]) -> str:
    """Return all that the answer shows, as text."""
    sql, given = asked.filled(oids)
    answer = shadow.execute(sql, given, user="ana")
    assert len(answer.columns) == asked.columns, sql
    assert shadow.describe(sql, user="ana").columns == answer.columns, sql
    return " ".join((value or b"").decode(errors="replace") for row in answer.rows for value in row)


def test_there_are_enough_statements_of_enough_tools() -> None:
    assert len(CORPUS) > 250
    assert len({asked.tool for asked in CORPUS}) > 20
    assert sum(asked.got == "captured" for asked in CORPUS) > 200
    assert sum(bool(asked.shows) for asked in CORPUS) > 70


@pytest.mark.parametrize("tool", sorted({asked.tool for asked in CORPUS}))
def test_the_shadow_answers_a_tool_and_shows_the_tables_where_postgresql_would(
    shadow: SystemCatalog, oids: dict[str, str], tool: str
) -> None:
    for asked in CORPUS:
        if asked.tool == tool:
            shown = answered(shadow, asked, oids)
            assert [name for name in asked.shows if name not in shown] == [], asked.sql


def test_npgsql_finds_the_types(shadow: SystemCatalog) -> None:
    (sql,) = [asked.sql for asked in CORPUS if asked.tool.startswith("Npgsql") and "elemtypoid" in asked.sql]
    assert len(shadow.execute(sql, user="ana").rows) > 300


def test_activerecord_lists_the_tables(shadow: SystemCatalog) -> None:
    listed = (
        "SELECT c.relname FROM pg_class c LEFT JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = ANY (current_schemas(false)) AND c.relkind IN ('r','v','m','p','f')"
    )
    assert is_catalog(listed, NAMES)
    assert sorted(row[0] or b"" for row in shadow.execute(listed, user="ana").rows) == [b"countries", b"reads"]


def test_all_of_them_are_told_from_what_the_session_answers() -> None:
    missed = [asked.sql for asked in CORPUS if not is_catalog(asked.sql, NAMES)]
    assert missed == []
