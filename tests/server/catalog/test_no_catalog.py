"""Without a PostgreSQL, drivers connect and get constants; what needs tables is refused in a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import asyncpg
import psycopg
import pytest
import sqlalchemy as sa
from support.catalog_corpus import CORPUS
from support.server_kit import Served, serving

from dpsql.server.catalog import CatalogError, Parameter, SystemCatalog, open_catalog
from dpsql.sql.ir.catalog import Catalog as Tables

TOP = "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article TOP 3 PRIVATE"


@pytest.fixture(scope="module")
def none() -> SystemCatalog:
    return open_catalog("none", Tables(()))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("none"), catalog="none") as found:
        yield found


def values(none: SystemCatalog, sql: str) -> list[tuple[bytes | None, ...]]:
    return list(none.execute(sql, user="ana").rows)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("select pg_catalog.version();", (b"PostgreSQL 18.0 (dpsql, without a catalog)",)),
        ("SELECT current_user, session_user, USER AS me, current_role", (b"ana",) * 4),
        ("SELECT current_schema(), current_database() AS db, current_catalog", (b"main", b"dpsql", b"dpsql")),
        ("SELECT * FROM current_schema()", (b"main",)),
        ("SELECT current_setting('server_version_num')::int", (b"180000",)),
        ("SELECT current_setting('jit') AS cur, set_config('jit', 'off', false) AS new", (b"off", b"off")),
        ("SELECT current_setting('nothing', true)", (None,)),
        ("SELECT pg_catalog.pg_is_in_recovery()", (b"f",)),
        ("SHOW standard_conforming_strings", (b"on",)),
        ("show transaction isolation level", (b"read committed",)),
    ],
)
def test_what_drivers_ask_about_the_connection_is_answered(
    none: SystemCatalog, sql: str, expected: tuple[bytes | None, ...]
) -> None:
    assert values(none, sql) == [expected]
    assert none.describe(sql, user="ana").columns == none.execute(sql, user="ana").columns


def test_values_have_types_and_formats(none: SystemCatalog) -> None:
    sql = "SELECT current_setting('server_version_num')::int AS n, pg_is_in_recovery(), version() AS v"
    columns = none.describe(sql, user="ana").columns
    assert [(column.name, column.oid) for column in columns] == [("n", 23), ("pg_is_in_recovery", 16), ("v", 25)]
    ((number, recovering, _),) = none.execute(sql, user="ana", formats=[1]).rows
    assert (number, recovering) == ((180_000).to_bytes(4), b"\0")
    with pytest.raises(CatalogError):
        none.execute(sql, user="ana", formats=[0, 1])


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM pg_class",
        "SELECT table_name FROM information_schema.tables",
        "SELECT version(), oid FROM pg_class",
        "SELECT version(),",
        "SELECT version() FROM",
        "SELECT version(1)",
        "SELECT current_user()",
        "SELECT pg_sleep(1)",
        "SELECT current_setting('search_path')::int",
        "SELECT current_setting('server_version')::regclass",
        "SELECT 'reads'::regclass",
        "SELECT",
        "",
        "SELECT version() " + " " * 2_000,
    ],
)
def test_everything_else_is_refused_in_a_sentence(none: SystemCatalog, sql: str) -> None:
    with pytest.raises(CatalogError) as caught:
        none.execute(sql, user="ana")
    assert (caught.value.sqlstate, caught.value.message) == (
        "0A000",
        "This server has no catalog, so it does not answer what reads pg_catalog or information_schema.",
    )


def test_an_unknown_setting_is_none(none: SystemCatalog) -> None:
    for sql in ("SHOW nothing", "SELECT current_setting('nothing')"):
        with pytest.raises(CatalogError) as caught:
            none.execute(sql, user="ana")
        assert caught.value.sqlstate == "42704"


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2", "pg8000"])
def test_sqlalchemy_connects_and_asks(served: Served, driver: str) -> None:
    engine = sa.create_engine(served.url(scheme=f"postgresql+{driver}"))
    with engine.connect() as connection:
        assert {row[0] for row in connection.execute(sa.text(TOP))} == {"a0", "a1", "a2"}
        assert connection.dialect.server_version_info == (18, 0)
    with pytest.raises(sa.exc.NotSupportedError if driver != "pg8000" else sa.exc.DBAPIError):
        sa.inspect(engine).get_table_names()
    engine.dispose()


def test_asyncpg_connects_and_asks(served: Served) -> None:
    import asyncio

    async def run() -> list[str]:
        connection = await asyncpg.connect(served.url())
        await connection.set_type_codec("json", encoder=str, decoder=str, schema="pg_catalog")
        try:
            return [row["article"] for row in await connection.fetch(TOP)]
        finally:
            await connection.close()

    assert sorted(asyncio.run(run())) == ["a0", "a1", "a2"]


def test_the_hint_of_the_refusal_works(served: Served) -> None:
    with psycopg.connect(served.conninfo(), autocommit=True) as connection:
        with pytest.raises(psycopg.errors.FeatureNotSupported) as caught:
            connection.execute("SELECT * FROM pg_catalog.pg_tables")
        assert caught.value.diag.message_hint == "SHOW TABLES lists the tables, and DESCRIBE a table its columns."
        assert ("reads",) in [row[:1] for row in connection.execute("SHOW TABLES").fetchall()]
        assert connection.execute("DESCRIBE reads").fetchone() is not None


def test_a_type_that_only_an_extension_has_is_not_there(none: SystemCatalog) -> None:
    found = dict[str, str]()
    for asked in CORPUS:
        if "pg_type" in asked.sql:
            with suppress(CatalogError):
                given = [Parameter(None if value is None else value.encode()) for value in asked.parameters]
                assert list(none.execute(asked.sql, given, user="ana").rows) == []
                found[asked.tool] = asked.sql
    assert found.keys() == {"psycopg 3.3", "psycopg2 2.9", "psqlODBC"}
    with pytest.raises(CatalogError):
        none.execute(found["psycopg 3.3"], [Parameter(b"int4")], user="ana")
