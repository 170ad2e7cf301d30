"""The engine of MariaDB and MySQL, on a real server of MariaDB: opened, asked, refused, cut off and stopped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from sqlglot import parse_one
from support.command_kit import dpsql_command
from support.mariadb_kit import MariaDB, server

import dpsql
from dpsql.dialects.mysql import MARIADB, MYSQL
from dpsql.engines import Column, Statement, open_exact
from dpsql.engines.mysql.address import read_address
from dpsql.engines.mysql.engine import MySQLEngine
from dpsql.errors import EngineError, Error, PolicyError, UsageError
from dpsql.sql.ir.catalog import Catalog
from dpsql.testing import DUCKDB
from dpsql.testing.queries import load_queries, open_kit, rewrite_query

pytestmark = pytest.mark.xdist_group("mariadb")
SECRET = "VICTIM_SECRET"
ALIVE = "SELECT 1 AS one"
SLOW = "SELECT COUNT(*) AS n FROM seq_1_to_1000000 AS a, seq_1_to_1000000 AS b WHERE a.seq * b.seq = 7"
KINDS = (
    "CREATE TABLE shop.kinds (flag BOOLEAN, bit BIT(1), bits BIT(9), tiny TINYINT, u8 TINYINT UNSIGNED, u16 SMALLINT "
    "UNSIGNED, mid MEDIUMINT, u24 MEDIUMINT UNSIGNED, u32 INT UNSIGNED, u64 BIGINT UNSIGNED, f FLOAT, x DOUBLE, wide "
    "DECIMAL(65, 2), t CHAR(4) CHARACTER SET latin1, l LONGTEXT, s SET('p', 'q'), b BLOB, day DATE, at DATETIME(6), "
    "instant TIMESTAMP NULL, clock TIME, year YEAR, doc JSON)"
)
ROW = (
    "INSERT INTO shop.kinds VALUES (7, b'1', b'1', -1, 255, 65535, -1, 1, 4294967295, 18446744073709551615, 16777217, "
    "0.1, 1.5, 'é', REPEAT('x', 70000), 'p,q', 'b', '2026-01-31', '2026-01-31 10:20:30.5', NULL, '10:20', 2026, '{}')"
)
NAMES = (
    "INSERT INTO shop.names VALUES ('Bob', '0000-00-00', '0000-00-00'), ('bob', '2026-02-31', '2026-02-31 10:00'), "
    "('bob ', '2026-05-00', NULL), ('bób', '2026-01-31', '2026-01-31 10:00'), (NULL, '0000-12-31', '0000-12-31')"
)
MAKE = (
    "CREATE DATABASE shop CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
    "CREATE USER reader",
    "CREATE TABLE shop.reads (user_id BIGINT PRIMARY KEY, article VARCHAR(20), price DECIMAL(10, 2))",
    f"INSERT INTO shop.reads VALUES (1, 'a', 1.5), (2, 'b', 2), (3, '{SECRET}', NULL)",
    "GRANT SELECT ON shop.reads TO reader",
    "CREATE SEQUENCE shop.numbers",
    "CREATE TABLE shop.`odd ``name` (`a b` INT, kind ENUM('x', 'y'))",
    "CREATE VIEW shop.cheap AS SELECT user_id, article FROM shop.reads WHERE price < 2",
    KINDS,
    ROW,
    "CREATE TABLE shop.names (member VARCHAR(20), day DATE, at DATETIME)",
    "SET sql_mode = 'ALLOW_INVALID_DATES'",
    NAMES,
)


@pytest.fixture(scope="module")
def shop() -> MariaDB:
    server().run(*MAKE)
    return server()


def opened(shop: MariaDB, *tables: str, time_limit: float | None = 30, **options: str) -> MySQLEngine:
    return MySQLEngine.open(shop.url("shop"), dict.fromkeys(tables), options=options, time_limit=time_limit)


@pytest.fixture
def engine(shop: MariaDB) -> Iterator[MySQLEngine]:
    with closing(opened(shop, "reads", "odd `name", "shop.cheap", "kinds", "names")) as it:
        yield it


def run(engine: MySQLEngine, sql: str, *parameters: object) -> pa.Table:
    return open_exact(engine.execute(Statement(sql, parameters)))


def refused(address: str, *names: str, **options: str) -> Error:
    with pytest.raises(Error) as caught:
        MySQLEngine.open(address, dict.fromkeys(names), options=options)
    assert caught.value.__context__ is None
    return caught.value


@pytest.mark.parametrize(("name", "rows"), {"reads": 3, "odd `name": 0, "shop.cheap": 1}.items())
def test_tables_and_views_are_found_as_they_are_spelled(engine: MySQLEngine, name: str, rows: int) -> None:
    path = ".".join("`" + part.replace("`", "``") + "`" for part in engine.relation(name))
    assert run(engine, f"SELECT * FROM {path}").num_rows == rows


def test_what_is_no_table_or_may_not_be_read_is_missing(shop: MariaDB) -> None:
    for name in ("nothing", "other.reads", "", "reads`; SELECT 1 -- "):
        assert refused(shop.url("shop"), name).code == "table-missing"
    assert refused(shop.url("shop", user="reader"), "names").code == "table-missing"
    with closing(MySQLEngine.open(shop.url("shop", user="reader"), {"reads": None}, options={})) as engine:
        assert run(engine, ALIVE).num_rows == 1


def test_columns_have_duckdbs_types(engine: MySQLEngine) -> None:
    types = {column.name: column.type for column in engine.columns("kinds")}
    found = "flag BOOLEAN bit BOOLEAN bits bit tiny TINYINT u8 UTINYINT u16 USMALLINT mid INTEGER u24 INTEGER "
    found += (
        "u32 UINTEGER u64 bigint_unsigned f FLOAT x DOUBLE wide NUMERIC t VARCHAR l VARCHAR s VARCHAR b BLOB day DATE "
    )
    found += "at TIMESTAMP instant TIMESTAMP clock time year year doc VARCHAR"
    words = [word.replace("_", " ") for word in found.split()]
    assert types == dict(zip(words[::2], words[1::2], strict=True))
    assert engine.columns("reads")[1] == Column("article", "VARCHAR", "utf8mb4_general_ci")


def test_a_starter_policy_names_the_tables_that_the_user_may_read(shop: MariaDB, tmp_path: Path) -> None:
    code, out, err = dpsql_command("init", shop.url("shop", user="reader"), cwd=tmp_path)
    assert (code, err) == (0, ""), out
    policy = dpsql.Policy.from_toml(tmp_path / "policy.toml")
    assert [*policy.tables] == ["reads"]
    assert [*(policy.tables["reads"].columns or ())] == ["user_id", "article", "price"]


def read(engine: MySQLEngine, table: str, column: str) -> list[object]:
    """Return a column in the form in which statements read it."""
    (kind,) = (each.type for each in engine.columns(table) if each.name == column)
    family = "TEXT" if kind == "VARCHAR" else kind
    form = (engine.dialect.form("column", (family,)) or "{0}").replace("{0}", f"`{column}`")
    found = engine.execute(Statement(f"SELECT {form} AS v FROM shop.`{table}`", (), (kind,)))
    return open_exact(found).column(0).to_pylist()


def test_values_are_read_exactly(engine: MySQLEngine) -> None:
    assert read(engine, "kinds", "flag") == read(engine, "kinds", "bit") == [True]
    assert read(engine, "kinds", "f") == [16777216.0]  # which the server would print as 16777200
    assert read(engine, "kinds", "u32") == [2**32 - 1]
    assert read(engine, "kinds", "t") == ["é"]
    assert read(engine, "kinds", "s") == ["p,q"]
    assert read(engine, "kinds", "at") == [datetime.fromisoformat("2026-01-31 10:20:30.500000")]


def test_days_that_there_are_not_are_null(engine: MySQLEngine) -> None:
    assert read(engine, "names", "day") == [None, None, None, date(2026, 1, 31), None]
    assert read(engine, "names", "at") == [None, None, None, datetime.fromisoformat("2026-01-31 10:00"), None]


def test_text_is_compared_by_its_bytes_under_every_collation(engine: MySQLEngine) -> None:
    assert engine.unique("names", "member")
    form = (
        engine.dialect.forms["canonical TEXT"]
        .replace("{0}", engine.dialect.forms["column TEXT"])
        .replace("{0}", "member")
    )
    assert run(engine, f"SELECT {form} AS k FROM shop.names GROUP BY k").num_rows == 5
    assert run(engine, "SELECT member AS k FROM shop.names GROUP BY k").num_rows == 2


def test_a_text_longer_than_what_is_sorted_by_is_no_key(engine: MySQLEngine) -> None:
    form = engine.dialect.forms["canonical TEXT"].replace("{0}", "l")
    assert run(engine, f"SELECT {form} AS k FROM shop.kinds").to_pylist() == [{"c0": None}]


@pytest.mark.parametrize(
    "value",
    ["it's", 'say "hi"', "\\", "%s %(a)s ? @p", "\0", "\U0001f642", 2**63 - 1, Decimal("-1.50"), 1e-300, 0.1, None],
)
def test_values_of_parameters_are_no_text_of_the_statement(engine: MySQLEngine, value: object) -> None:
    found = run(engine, "SELECT @dpsql_1 AS v, @dpsql_2 AS w", value, 7).to_pylist()
    assert found == [{"c0": value, "c1": 7}]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1; SELECT 2",
        "",
        "-- nothing",
        "SELEC 1",
        "SET SESSION tx_read_only = 0",
        "CREATE TEMPORARY TABLE other AS SELECT 1",
        "WITH x AS (SELECT 1) DELETE FROM shop.reads",
        "INSERT INTO shop.reads VALUES (4, 'd', 1)",
        "SELECT NEXT VALUE FOR shop.numbers",
    ],
)
def test_only_one_select_that_reads_is_run(engine: MySQLEngine, sql: str) -> None:
    with pytest.raises(EngineError) as caught:
        run(engine, sql)
    assert caught.value.code == "engine-failed"
    assert run(engine, ALIVE).to_pylist() == [{"c0": 1}]


def test_the_session_writes_nothing(engine: MySQLEngine) -> None:
    assert engine._connection is not None
    with pytest.raises(Exception, match="READ ONLY"):
        engine._connection.query("DELETE FROM shop.reads")


def test_an_error_has_no_word_of_the_server(engine: MySQLEngine) -> None:
    with pytest.raises(EngineError) as caught:
        run(engine, "SELECT user_id + 9223372036854775807 AS n FROM shop.reads")
    assert caught.value.code == "engine-failed"
    assert caught.value.__cause__ is caught.value.__context__ is None


def test_a_statement_that_takes_too_long_is_stopped_on_the_server(shop: MariaDB) -> None:
    with closing(opened(shop, "reads", time_limit=0.3)) as engine:
        with pytest.raises(EngineError) as caught:
            run(engine, SLOW)
        assert caught.value.code == "engine-failed"
        assert running(shop) == []
        assert run(engine, ALIVE).num_rows == 1


def test_the_server_stops_a_statement_whose_process_died(shop: MariaDB) -> None:
    with closing(opened(shop, "reads", time_limit=7.5)) as engine:
        assert run(engine, "SELECT @@max_statement_time AS n").to_pylist() == [{"c0": 9.5}]


def running(shop: MariaDB) -> list[object]:
    with shop.session() as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT info FROM information_schema.processlist WHERE info LIKE 'SELECT COUNT(*) AS n FROM seq%'"
        )
        return list(cursor.fetchall())


def test_a_connection_that_was_lost_is_replaced_before_a_statement_is_charged(
    engine: MySQLEngine, shop: MariaDB
) -> None:
    assert engine._connection is not None
    lost = engine._connection.thread_id()
    shop.run(f"KILL CONNECTION {lost}")
    with engine.turn():
        assert engine._connection is not None
        assert engine._connection.thread_id() != lost
        assert open_exact(engine.execute(Statement(ALIVE))).to_pylist() == [{"c0": 1}]


def test_a_broken_connection_is_replaced_for_the_next_statement(engine: MySQLEngine, shop: MariaDB) -> None:
    assert engine._connection is not None
    shop.run(f"KILL CONNECTION {engine._connection.thread_id()}")
    with pytest.raises(EngineError):
        run(engine, ALIVE)
    assert run(engine, ALIVE).num_rows == 1


def test_options_are_variables_of_the_session(shop: MariaDB) -> None:
    with closing(opened(shop, "reads", join_buffer_size="1048576")) as engine:
        assert run(engine, "SELECT @@join_buffer_size AS n").to_pylist() == [{"c0": 1048576}]
    for name in ("sql_mode", "TIME_ZONE", "max_statement_time", "no_such_variable", "a; SELECT 1"):
        error = refused(shop.url("shop"), **{name: "1"})
        assert (error.code, error.place) == ("source-option", f"source.options.{name}")


def test_addresses(shop: MariaDB) -> None:
    found = read_address("mysql://a%40b:c%2Fd@db.example:3307/shop?ssl_ca=/etc/ca.pem")
    assert found["user"] == "a@b"
    assert found["password"] == "c/d"
    assert (found["host"], found["port"], found["database"]) == ("db.example", 3307, "shop")
    assert found["ssl_verify_cert"]
    assert found["ssl_verify_identity"]
    for url in ("mysql://host", "mysql://host/a/b", "mysql://host/a?password=x", "mysql:shop"):
        with pytest.raises(PolicyError) as caught:
            read_address(url)
        assert caught.value.code == "policy-source"
    for address in (shop.url("no_such"), "mysql://nobody@127.0.0.1:1/shop", shop.url("shop", user="nobody")):
        assert refused(address).code == "engine-unreachable"


def test_a_password_may_stand_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MYSQL_PWD", SECRET)
    assert read_address("mysql://a@host/shop")["password"] == SECRET
    assert read_address("mysql://a:b@host/shop")["password"] == "b"


def test_a_session_over_a_policy(shop: MariaDB) -> None:
    rows = ", ".join(f"({user}, 'A{article}')" for article in range(3) for user in range(300 - 100 * article))
    shop.run("CREATE TABLE shop.visits (user_id BIGINT, page VARCHAR(9))", f"INSERT INTO shop.visits VALUES {rows}")
    source = dpsql.DataSource(shop.url("shop"))
    policy = dpsql.Policy(dpsql.Budget(10, "1e-6"), {"visits": dpsql.PrivateTable("user_id")}, source=source)
    with dpsql.connect(policy=policy, ledger=":memory:") as session:
        answer = session.sql("SELECT page, COUNT(DISTINCT user_id) AS n FROM visits GROUP BY page TOP 2 PRIVATE")
        assert [row[0] for row in answer.fetchall()] == ["A0", "A1"]
        assert answer.receipt.isolation == "remote"
    with pytest.raises(UsageError):
        dpsql.connect(policy=policy, isolation="process", ledger=":memory:")


def test_the_parser_of_mysql_in_sqlglot_reads_every_statement_for_it() -> None:
    """MySQL itself is not run here; this parser knows no NO_BACKSLASH_ESCAPES."""
    known = open_kit(DUCKDB).catalog
    written = [rewrite_query(query, Catalog(known.tables, MYSQL)) for query in load_queries()]
    statements = [found.sql for found in written if found is not None]
    assert len(statements) > len(written) / 2
    for sql in statements:
        assert type(parse_one(sql.replace("ESCAPE '\\'", "ESCAPE '|'"), read="mysql")).__name__ in {"Select", "Union"}


def test_mysql_has_the_forms_of_mariadb_under_its_own_collation() -> None:
    own = {name: form.replace("utf8mb4_nopad_bin", "utf8mb4_0900_bin") for name, form in MARIADB.forms.items()}
    assert own == MYSQL.forms
