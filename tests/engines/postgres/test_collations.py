"""Columns of several collations: text is compared by its bytes, and a column that already is stays as it is."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import duckdb
import psycopg
import pyarrow as pa
import pytest
from support.materialized_kit import counted
from support.materialized_postgres import SCHEMA, Database
from support.postgres_kit import Server
from support.redshift_kit import RedshiftOnPostgres

from dpsql.curator import materialize
from dpsql.engines import Statement, open_exact
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.engines.postgres import PostgresEngine
from dpsql.policy import Budget, DataSource, Policy, PrivateTable
from dpsql.registration import build_catalog
from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import Bound, EngineQuery, rewrite_all

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))  # the package of the tests has no ICU
pytestmark = pytest.mark.skipif(not PROGRAMS, reason="no PostgreSQL of the system, with ICU")
COLUMNS = {
    "plain": "text",
    "bytes": 'text COLLATE "C"',
    "short": 'varchar(20) COLLATE "C"',
    "fixed": 'char(9) COLLATE "C"',
    "named": 'words COLLATE "C"',
    "posix": 'text COLLATE "POSIX"',
    "german": 'text COLLATE "de-DE-x-icu"',
    "folded": "text COLLATE folded",
}
WORDS = ["a", "A", "b", "B", "\u00e4", "\u00c4", "a\u0308", "ab", "a b", "Z", "", None]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="collations-"))
    folder.chmod(0o755)
    server = Server(folder, PROGRAMS[-1])
    server.start()
    by_icu = "TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'de-DE' LC_COLLATE 'C' LC_CTYPE 'C'"
    server.run(f"CREATE DATABASE german {by_icu}", "CREATE DATABASE plain TEMPLATE template0 LC_COLLATE 'C'")
    for name in ("german", "plain"):
        _fill(server, name)
    try:
        yield server
    finally:
        server.stop(signal.SIGQUIT)
        shutil.rmtree(folder, ignore_errors=True)


def _fill(server: Server, name: str) -> None:
    columns = ", ".join(f"{column} {type_}" for column, type_ in COLUMNS.items())
    with psycopg.connect(host=str(server.folder), user="tester", dbname=name, autocommit=True) as connection:
        connection.execute("CREATE DOMAIN words AS text")
        connection.execute(
            "CREATE COLLATION folded (provider = icu, locale = 'und-u-ks-level1', deterministic = false)"
        )
        connection.execute(f"CREATE TABLE reads (user_id bigint, {columns})")
        for unit, word in ((unit, WORDS[(unit * step) % len(WORDS)]) for unit in range(40) for step in (1, 5)):
            connection.execute(f"INSERT INTO reads VALUES ({unit}{', %s' * len(COLUMNS)})", [word] * len(COLUMNS))
        connection.execute("CREATE INDEX ON reads (bytes)")


@contextmanager
def open_database(server: Server, name: str) -> Iterator[PostgresEngine]:
    url = f"postgresql://tester@/{name}?host={server.folder}"
    with closing(PostgresEngine.open(url, {"reads": None}, options={})) as opened:
        yield opened


@pytest.fixture(scope="module")
def reference() -> Iterator[DuckDBEngine]:
    rows = [(unit, *[WORDS[(unit * step) % len(WORDS)]] * len(COLUMNS)) for unit in range(40) for step in (1, 5)]
    listed = dict(zip(("user_id", *COLUMNS), map(list, zip(*rows, strict=True)), strict=True))
    listed["fixed"] = [word and word.rstrip() for word in listed["fixed"]]
    given = pa.table(listed)
    connection = duckdb.connect()
    connection.register("given", given)
    connection.execute("CREATE TABLE reads AS SELECT * FROM given")
    with closing(DuckDBEngine.borrow(connection, {"reads": None})) as opened:
        yield opened


def counting(
    engine: PostgresEngine | RedshiftOnPostgres | DuckDBEngine,
    text: str,
    unit: str = "user_id",
    *,
    bound: Bound | None = None,
) -> EngineQuery:
    catalog = build_catalog(engine, Policy(Budget(1, "1e-6"), {"reads": PrivateTable(unit)}))
    query = analyze(text, catalog, accepts_pattern=lambda _: True, clock=lambda: None)  # type: ignore[arg-type, return-value]
    assert isinstance(query, PrivateQuery)
    return rewrite_all(query, bound=bound)


def answer(
    engine: PostgresEngine | RedshiftOnPostgres | DuckDBEngine,
    text: str,
    unit: str = "user_id",
    *,
    bound: Bound | None = None,
) -> list[dict[str, object]]:
    found = counting(engine, text, unit, bound=bound)
    table = open_exact(engine.execute(Statement(found.sql, found.parameters, found.types)))
    return table.rename_columns([f"c{at}" for at in range(table.num_columns)]).to_pylist()


EXPRESSIONS = ("{0}", "{0} = 'a'", "{0} < 'b'", "{0} IN ('A', 'b')", "lower({0})", "coalesce({0}, 'B')", "{0} || 'x'")
EXPRESSIONS += ("CASE WHEN user_id > 3 THEN {0} ELSE 'B' END", "{0} = german", "{0} = bytes", "{0} IN (bytes, plain)")
EXPRESSIONS += ("coalesce({0}, german)", "coalesce({0}, bytes) || plain", "greatest({0}, plain)", "{0} LIKE 'A%'")


def statements(column: str) -> Iterator[str]:
    for expression in EXPRESSIONS:
        yield f"SELECT {expression.format(column)} AS k FROM reads GROUP BY k TOP 99 PRIVATE"
    least = f"SELECT user_id, min({column}) AS m FROM reads GROUP BY user_id"
    yield f"SELECT m FROM ({least}) AS x GROUP BY m TOP 99 PRIVATE"
    joined = f"reads AS r JOIN (SELECT DISTINCT user_id, {column} AS k FROM reads) AS x"
    yield f"SELECT r.german FROM {joined} ON r.user_id = x.user_id AND r.bytes = x.k GROUP BY ALL TOP 99 PRIVATE"
    computed = "SELECT user_id, CASE WHEN user_id > 3 THEN 'a' ELSE 'B' END AS k FROM reads"
    yield f"SELECT k FROM ({computed}) AS x GROUP BY k TOP 99 PRIVATE"
    both = f"SELECT user_id, {column} AS k FROM reads UNION ALL SELECT user_id, bytes FROM reads"
    yield f"SELECT k FROM ({both}) AS x GROUP BY k TOP 99 PRIVATE"


@pytest.mark.parametrize("column", COLUMNS)
def test_text_of_every_collation_is_compared_by_its_bytes(server: Server, reference: DuckDBEngine, column: str) -> None:
    for database in ("german", "plain") if column == "plain" else ("german",):
        with open_database(server, database) as engine:
            for text in statements(column):
                assert answer(engine, text) == answer(reference, text), text


@pytest.mark.parametrize("unit", ["plain", "bytes", "german", "folded"])
def test_a_unit_of_every_collation_is_told_apart_by_its_bytes(
    server: Server, reference: DuckDBEngine, unit: str
) -> None:
    text = "SELECT posix IS NULL AS k FROM reads GROUP BY k TOP 9 PRIVATE"
    with open_database(server, "german") as engine:
        assert answer(engine, text, unit) == answer(reference, text, unit)


@pytest.mark.parametrize(("database", "bare"), [("german", {"bytes", "short"}), ("plain", {"plain", "bytes", "short"})])
def test_a_column_that_is_compared_by_its_bytes_is_written_as_it_is(
    server: Server, database: str, bare: set[str]
) -> None:
    with open_database(server, database) as engine:
        for column in COLUMNS:
            sql = counting(engine, f"SELECT {column} FROM reads GROUP BY {column} TOP 9 PRIVATE").sql
            assert ("COLLATE" not in sql) is (column in bare), column
        assert {column.name for column in engine.columns("reads") if not column.collation} == {"user_id", *bare}


def test_an_index_of_a_column_by_bytes_is_used(server: Server) -> None:
    with open_database(server, "german") as engine:
        found = counting(engine, "SELECT posix FROM reads WHERE bytes = 'b' GROUP BY posix TOP 9 PRIVATE")
        assert engine._connection is not None
        with engine._connection.cursor() as cursor:
            cursor.execute("SET enable_seqscan = off")
            cursor.execute(f"EXPLAIN {found.sql}", found.parameters)
            plan = "\n".join(str(row[0]) for row in cursor.fetchall())
    assert "reads_bytes_idx" in plan


def test_text_is_materialized_by_its_bytes(server: Server) -> None:
    database = Database(server)
    database.run(
        "CREATE COLLATION folded (provider = icu, locale = 'und-u-ks-level1', deterministic = false)",
        "CREATE TABLE reads (user_id text COLLATE folded, article text COLLATE folded, n smallint)",
        "INSERT INTO reads SELECT chr(97 - i % 2 * 32), chr(97 - i / 2 % 2 * 32), 1 FROM generate_series(0, 3) AS i",
        f"GRANT SELECT ON reads TO {database.reader}, {database.writer}",
    )
    source = DataSource(database.url(database.reader), materialized=SCHEMA)
    table = PrivateTable("user_id", materialized=((), ("article",)), bounds={"rows": 5})
    known = Policy(Budget(1, "1e-6"), {"reads": table}, source=source)
    text = "SELECT article, COUNT(DISTINCT user_id) FROM reads GROUP BY article TOP 5 PRIVATE"
    text += " WITH (mechanism = limited_domain, max_groups_contributed = {})"
    for added in ("", "INSERT INTO reads VALUES ('A', 'b', 1), ('a', 'B', 1)"):
        if added:
            database.run(added)
        materialize(known, url=database.url(database.writer))
        with database.opened(known) as short, database.opened(known, materialized=False) as long:
            short[1]._plans.salts = long[1]._plans.salts = database.salts()
            for bound in (1, 2):
                found, told = counted(short, text.format(bound))
                assert told == "materialized ranks of article"
                assert found.equals(counted(long, text.format(bound))[0])


@pytest.mark.parametrize(("key", "own"), [("folded", "C"), ("C", "folded"), ("folded", "folded")])
def test_links_are_followed_by_the_bytes_of_the_keys(server: Server, key: str, own: str) -> None:
    database = Database(server)
    database.run(
        "CREATE COLLATION folded (provider = icu, locale = 'und-u-ks-level1', deterministic = false)",
        f'CREATE TABLE people (person bigint, name text COLLATE "{key}")',
        "INSERT INTO people VALUES (1, 'a'), (2, 'A')",
        f'CREATE TABLE reads (name text COLLATE "{own}", article text)',
        "INSERT INTO reads VALUES ('a', 'x'), ('A', 'y'), ('A', 'x')",
        f"GRANT SELECT ON people, reads TO {database.reader}",
    )
    tables = {"people": PrivateTable("person"), "reads": PrivateTable(link="name -> people.name")}
    known = Policy(Budget(1, "1e-6"), tables, source=DataSource(database.url(database.reader)))
    with database.opened(known) as session:
        found, _ = counted(session, "SELECT article, COUNT(DISTINCT person) FROM reads GROUP BY article TOP 5 PRIVATE")
    assert dict(zip(found["dpsql_key_1"].to_pylist(), found["dpsql_count"].to_pylist(), strict=True)) == {
        "x": 2,
        "y": 1,
    }


IN_REDSHIFT = ("{0}", "{0} = 'a'", "{0} < 'b'", "{0} IN ('A', 'b')", "coalesce({0}, 'B')", "md5({0})")
IN_REDSHIFT += ("{0} = german", "{0} IN (folded, plain)", "{0} BETWEEN 'A' AND german", "coalesce({0}, german)")


def redshift_statements(column: str) -> Iterator[str]:
    for expression in IN_REDSHIFT:
        yield f"SELECT {expression.format(column)} AS k FROM reads GROUP BY k TOP 99 PRIVATE"
    for function in ("min", "max"):
        ends = f"SELECT user_id, {function}({column}) AS m FROM reads GROUP BY user_id"
        yield f"SELECT m FROM ({ends}) AS x GROUP BY m TOP 99 PRIVATE"
    joined = f"reads AS r JOIN (SELECT DISTINCT user_id, {column} AS k FROM reads) AS x"
    yield f"SELECT r.german FROM {joined} ON r.user_id = x.user_id AND r.folded = x.k GROUP BY ALL TOP 99 PRIVATE"
    both = f"SELECT user_id, {column} AS k FROM reads UNION SELECT user_id, german FROM reads"
    yield f"SELECT k FROM ({both}) AS x GROUP BY k TOP 99 PRIVATE"
    first = f"row_number() OVER (PARTITION BY user_id, {column} ORDER BY german) AS r"
    yield f"SELECT r FROM (SELECT user_id, {first} FROM reads) AS x GROUP BY r TOP 99 PRIVATE"


@pytest.fixture(scope="module")
def redshift(server: Server) -> Iterator[RedshiftOnPostgres]:
    """Yield an engine over a database with columns that ignore case, as those with CASE_INSENSITIVE do."""
    columns = {"plain": "varchar(20)", "german": 'varchar(20) COLLATE "de-DE-x-icu"'}
    columns |= {"folded": "varchar(20) COLLATE folded", "fixed": "char(9) COLLATE folded"}
    server.run("CREATE DATABASE redshift TEMPLATE german")
    with psycopg.connect(host=str(server.folder), user="tester", dbname="redshift", autocommit=True) as connection:
        connection.execute("DROP TABLE reads")
        made = ", ".join(f"{name} {type_}" for name, type_ in columns.items())
        connection.execute(f"CREATE TABLE reads (user_id bigint, {made})")
        for unit, word in ((unit, WORDS[(unit * step) % len(WORDS)]) for unit in range(40) for step in (1, 5)):
            connection.execute("INSERT INTO reads VALUES (%s, %s, %s, %s, %s)", [unit, *[word] * 4])
        found = connection.execute("SELECT COUNT(DISTINCT folded), COUNT(DISTINCT fixed) FROM reads").fetchall()
        assert found[0] < (8, 8), "the collation ignores case"
    url = f"redshift://tester@/redshift?host={server.folder}"
    with closing(RedshiftOnPostgres.open(url, {"reads": None}, options={})) as opened:
        yield opened


@pytest.mark.parametrize("column", ["plain", "german", "folded", "fixed"])
def test_redshift_compares_text_of_every_collation_by_its_bytes(
    redshift: RedshiftOnPostgres, reference: DuckDBEngine, column: str
) -> None:
    for text in redshift_statements(column):
        assert answer(redshift, text) == answer(reference, text), text


@pytest.mark.parametrize("unit", ["folded", "fixed"])
def test_units_and_groups_that_differ_in_case_stay_apart_in_redshift(
    redshift: RedshiftOnPostgres, reference: DuckDBEngine, unit: str
) -> None:
    text = "SELECT folded AS k FROM reads GROUP BY k TOP 99 PRIVATE"
    found = answer(redshift, text, unit)
    assert found == answer(reference, text, unit)
    assert {"a", "A"} <= {row["c0"] for row in found}
    kept = answer(redshift, text, unit, bound=Bound(1, (1, 2)))  # one group of each unit
    units = len({*WORDS} - {None})
    assert sum(int(str(row["c1"])) for row in kept) == units


@pytest.mark.usefixtures("redshift")
def test_what_is_unique_in_redshift_is_told_by_bytes(server: Server) -> None:
    with psycopg.connect(host=str(server.folder), user="tester", dbname="redshift", autocommit=True) as connection:
        connection.execute("CREATE TABLE people (name varchar(20) COLLATE folded)")
        connection.execute("INSERT INTO people VALUES ('a'), ('A')")
    url = f"redshift://tester@/redshift?host={server.folder}"
    with closing(RedshiftOnPostgres.open(url, {"people": None}, options={})) as engine:
        assert engine.unique("people", "name")
