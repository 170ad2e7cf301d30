"""A PostgreSQL of the user's may be the catalog: a database that has nothing else, and a role without power."""

from __future__ import annotations

import itertools

import pytest
from support.postgres_kit import Server, server

from dpsql.errors import UsageError
from dpsql.server.catalog import CatalogError, open_catalog
from dpsql.server.row_blocks import WireColumn
from dpsql.server.wire.values import OIDS
from dpsql.server.wire.views import View, list_definitions
from dpsql.sql.ir.catalog import Catalog as Tables
from dpsql.sql.ir.catalog import Table
from dpsql.sql.ir.types import parse_type

NAMES = (f"catalog_{at}" for at in itertools.count())


@pytest.fixture
def running() -> Server:
    return server()


@pytest.fixture
def name(running: Server) -> str:
    name = next(NAMES)
    running.run(f"CREATE ROLE {name} LOGIN", f"CREATE DATABASE {name} OWNER {name}")
    return name


def address(running: Server, name: str, user: str | None = None) -> str:
    return f"postgresql://{user or name}@/{name}?host={running.folder}"


def test_it_holds_the_tables_and_is_made_anew_by_the_next_start(running: Server, name: str, tables: Tables) -> None:
    for exposed in (tables, Tables(tables.tables[:1])):
        opened = open_catalog(address(running, name), exposed)
        rows = opened.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'main'", user="ana").rows
        assert {row[0] for row in rows} == {table.name.encode() for table in exposed.tables}
        with pytest.raises(CatalogError) as caught:
            opened.execute("SELECT count(*) FROM reads", user="ana")
        assert caught.value.sqlstate == "42501"
        with pytest.raises(CatalogError):
            opened.execute("SELECT pg_sleep(9)", user="ana")
        setting = "SELECT set_config('search_path', 'pg_catalog', false)"
        assert opened.execute(setting, user="ana").tag == "SELECT 1"
        assert list(opened.execute("SELECT current_schema()", user="ana").rows) == [(b"main",)]
        view = list_definitions({"v": View.define("v", "SELECT 1", columns=(WireColumn("one", OIDS["int4"], 4, -1),))})
        listed = "SELECT relname FROM pg_class WHERE relname = 'v'"
        assert list(opened.execute(listed, user="ana", definitions=view).rows) == [(b"v",)]
        assert list(opened.execute(listed, user="ana").rows) == []
        opened.close()


def test_a_schema_public_of_the_policy_is_there_also_at_the_next_start(running: Server, name: str) -> None:
    listed = "SELECT schemaname, tablename FROM pg_tables WHERE schemaname IN ('main', 'public')"
    for expected in ([(b"public", b"words")], [(b"public", b"words")], []):
        tables = tuple(Table("public.words", (), (("word", parse_type("VARCHAR")),), None) for _ in expected)
        opened = open_catalog(address(running, name), Tables(tables))
        assert list(opened.execute(listed, user="ana").rows) == expected
        opened.close()


def test_a_database_with_tables_of_others_is_left_alone(running: Server, name: str, tables: Tables) -> None:
    open_catalog(address(running, name), tables).close()
    url = f"host={running.folder} user={name} dbname={name}"
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA theirs")
        connection.execute("CREATE TABLE theirs.customers (name text)")
    with pytest.raises(UsageError) as caught:
        open_catalog(address(running, name), tables)
    assert caught.value.code == "catalog-in-use"
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT count(*) FROM theirs.customers, main.reads").fetchone() == (0,)


def test_a_superuser_is_no_role_for_it(running: Server, name: str, tables: Tables) -> None:
    with pytest.raises(UsageError) as caught:
        open_catalog(address(running, name, "tester"), tables)
    assert caught.value.code == "catalog-superuser"


@pytest.mark.parametrize("url", ["postgresql://secret@/x?host=/nowhere", "postgresql://secret:secret@["])
def test_an_address_that_does_not_answer_is_told_without_a_word_of_it(url: str, tables: Tables) -> None:
    with pytest.raises(UsageError) as caught:
        open_catalog(url, tables)
    assert caught.value.code in {"catalog-unreachable", "catalog-url"}
    assert "secret" not in str(caught.value)


def test_a_role_that_may_make_nothing_is_told_so(running: Server, name: str, tables: Tables) -> None:
    with pytest.raises(UsageError) as caught:
        open_catalog(address(running, "template1", name), tables)
    assert caught.value.code == "catalog-unavailable"
