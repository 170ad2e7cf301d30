"""The engine of MariaDB and MySQL, on a real server of each: opened, queried, refused, cut off and stopped."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
import trustme
from support.command_kit import dpsql_command
from support.mysql_kit import SERVERS, Server, start_server

import dpsql
from dpsql.dialects.mysql import MARIADB, MYSQL
from dpsql.engines import Column, Statement, open_exact
from dpsql.engines.mysql import MySQLEngine, read_address
from dpsql.errors import EngineError, Error, PolicyError, UsageError

SECRET = "VICTIM_SECRET"
ALIVE = "SELECT 1 AS one"
SLOW = f"SELECT COUNT(*) AS n FROM {', '.join(f'shop.digits AS d{at}' for at in range(12))} WHERE RAND(7) < 0"
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
COLLATIONS = {"mariadb": "utf8mb4_general_ci", "mysql": "utf8mb4_0900_ai_ci"}  # under which 'bób' = 'Bob'
MAKE = (
    "CREATE USER reader",
    "CREATE TABLE shop.reads (user_id BIGINT PRIMARY KEY, article VARCHAR(20), price DECIMAL(10, 2))",
    f"INSERT INTO shop.reads VALUES (1, 'a', 1.5), (2, 'b', 2), (3, '{SECRET}', NULL)",
    "GRANT SELECT ON shop.reads TO reader",
    "CREATE TABLE shop.digits (d INT)",
    "INSERT INTO shop.digits VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)",
    "CREATE TABLE shop.`odd ``name` (`a b` INT, kind ENUM('x', 'y'))",
    "CREATE VIEW shop.cheap AS SELECT user_id, article FROM shop.reads WHERE price < 2",
    KINDS,
    ROW,
    "CREATE TABLE shop.names (member VARCHAR(20), day DATE, at DATETIME)",
    "SET sql_mode = 'ALLOW_INVALID_DATES'",
    NAMES,
)


@pytest.fixture(scope="module", params=SERVERS)
def shop(request: pytest.FixtureRequest) -> Server:
    server = start_server(str(request.param))
    server.run(f"CREATE DATABASE shop CHARACTER SET utf8mb4 COLLATE {COLLATIONS[server.name]}", *MAKE)
    return server


def opened(shop: Server, *tables: str, time_limit: float | None = 30, **options: str) -> MySQLEngine:
    return MySQLEngine.open(shop.url("shop"), dict.fromkeys(tables), options=options, time_limit=time_limit)


@pytest.fixture
def engine(shop: Server) -> Iterator[MySQLEngine]:
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


def test_what_is_no_table_or_may_not_be_read_is_missing(shop: Server) -> None:
    for name in ("nothing", "other.reads", "", "reads`; SELECT 1 -- "):
        assert refused(shop.url("shop"), name).code == "table-missing"
    assert refused(shop.url("shop", user="reader"), "names").code == "table-missing"
    with closing(MySQLEngine.open(shop.url("shop", user="reader"), {"reads": None}, options={})) as engine:
        assert run(engine, ALIVE).num_rows == 1


def test_columns_have_duckdbs_types(engine: MySQLEngine, shop: Server) -> None:
    types = {column.name: column.type for column in engine.columns("kinds")}
    found = "flag BOOLEAN bit BOOLEAN bits bit tiny TINYINT u8 UTINYINT u16 USMALLINT mid INTEGER u24 INTEGER "
    found += "u32 UINTEGER u64 bigint_unsigned f FLOAT x DOUBLE wide NUMERIC t VARCHAR l VARCHAR s VARCHAR b BLOB "
    doc = {"mariadb": "VARCHAR", "mysql": "json"}[shop.name]
    found += f"day DATE at TIMESTAMP instant TIMESTAMP clock time year year doc {doc}"
    words = [word.replace("_", " ") for word in found.split()]
    assert types == dict(zip(words[::2], words[1::2], strict=True))
    assert engine.columns("reads")[1] == Column("article", "VARCHAR", COLLATIONS[shop.name])


def test_a_starter_policy_names_the_tables_that_the_user_may_read(shop: Server, tmp_path: Path) -> None:
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


def test_text_is_compared_by_its_bytes_under_every_collation(engine: MySQLEngine, shop: Server) -> None:
    assert engine.unique("names", "member")
    form = (
        engine.dialect.forms["canonical TEXT"]
        .replace("{0}", engine.dialect.forms["column TEXT"])
        .replace("{0}", "member")
    )
    assert run(engine, f"SELECT {form} AS k FROM shop.names GROUP BY k").num_rows == 5
    alike = {"mariadb": 2, "mysql": 3}[shop.name]  # 'bob ' is equal too where blanks at the end do not count
    assert run(engine, "SELECT member AS k FROM shop.names GROUP BY k").num_rows == alike


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


def test_a_sequence_of_mariadb_is_not_moved(shop: Server) -> None:
    if shop.name == "mysql":
        pytest.skip("MySQL has no sequences")
    shop.run("CREATE SEQUENCE shop.numbers")
    with closing(opened(shop, "reads")) as engine, pytest.raises(EngineError):
        run(engine, "SELECT NEXT VALUE FOR shop.numbers")


def test_an_error_has_no_word_of_the_server(engine: MySQLEngine) -> None:
    with pytest.raises(EngineError) as caught:
        run(engine, "SELECT user_id + 9223372036854775807 AS n FROM shop.reads")
    assert caught.value.code == "engine-failed"
    assert caught.value.__cause__ is caught.value.__context__ is None


def test_a_statement_that_takes_too_long_is_stopped_on_the_server(shop: Server) -> None:
    with closing(opened(shop, "reads", time_limit=0.3)) as engine:
        with pytest.raises(EngineError) as caught:
            run(engine, SLOW)
        assert caught.value.code == "engine-failed"
        assert running(shop) == []
        assert run(engine, ALIVE).num_rows == 1


def test_the_server_stops_a_statement_whose_process_died(shop: Server) -> None:
    with closing(opened(shop, "reads", time_limit=7.5)) as engine:
        limit, value = {"mariadb": ("max_statement_time", 9.5), "mysql": ("max_execution_time", 9500)}[shop.name]
        assert run(engine, f"SELECT @@{limit} AS n").to_pylist() == [{"c0": value}]


def running(shop: Server) -> list[object]:
    with shop.session() as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT info FROM information_schema.processlist WHERE info LIKE 'SELECT COUNT(*) AS n FROM shop.digits%'"
        )
        return list(cursor.fetchall())


def test_a_connection_that_was_lost_is_replaced_before_a_statement_is_charged(
    engine: MySQLEngine, shop: Server
) -> None:
    assert engine._connection is not None
    lost = engine._connection.thread_id()
    shop.run(f"KILL CONNECTION {lost}")
    with engine.turn():
        assert engine._connection is not None
        assert engine._connection.thread_id() != lost
        assert open_exact(engine.execute(Statement(ALIVE))).to_pylist() == [{"c0": 1}]


def test_a_connection_that_was_idle_for_too_long_is_replaced_before_a_statement_is_charged(shop: Server) -> None:
    with closing(opened(shop, "reads", wait_timeout="1")) as engine:
        assert engine._connection is not None
        sql = f"SELECT COUNT(*) FROM information_schema.processlist WHERE id = {engine._connection.thread_id()}"
        deadline = time.monotonic() + 60
        with shop.session() as connection, connection.cursor() as cursor:
            while cursor.execute(sql) and cursor.fetchall()[0][0]:
                assert time.monotonic() < deadline
                time.sleep(0.1)
        with engine.turn():
            assert open_exact(engine.execute(Statement(ALIVE))).to_pylist() == [{"c0": 1}]


def test_a_broken_connection_is_replaced_for_the_next_statement(engine: MySQLEngine, shop: Server) -> None:
    assert engine._connection is not None
    shop.run(f"KILL CONNECTION {engine._connection.thread_id()}")
    with pytest.raises(EngineError):
        run(engine, ALIVE)
    assert run(engine, ALIVE).num_rows == 1


def test_options_are_variables_of_the_session(shop: Server) -> None:
    with closing(opened(shop, "reads", join_buffer_size="1048576")) as engine:
        assert run(engine, "SELECT @@join_buffer_size AS n").to_pylist() == [{"c0": 1048576}]
    for name in ("sql_mode", "TIME_ZONE", "max_statement_time", "no_such_variable", "a; SELECT 1"):
        error = refused(shop.url("shop"), **{name: "1"})
        assert (error.code, error.place) == ("source-option", f"source.options.{name}")


def test_addresses(shop: Server) -> None:
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


def test_a_session_over_a_policy(shop: Server) -> None:
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


def test_mysql_has_the_forms_of_mariadb_but_md5_under_its_own_collation() -> None:
    own = {name: form.replace("utf8mb4_nopad_bin", "utf8mb4_0900_bin") for name, form in MARIADB.forms.items()}
    del own["md5 TEXT"]
    assert {**own, "draw TEXT": own["sha256 TEXT"]} == MYSQL.forms


def test_settings_of_the_server_change_no_answer(shop: Server) -> None:
    """Names of days are English, numbers without a sign are subtracted, and no estimate of rows ends a statement."""
    old = "@@lc_time_names, @@sql_big_selects, @@max_join_size, @@sql_mode"
    with shop.session() as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT {old.replace('@@', '@@global.')}")
        names, big, size, mode = cursor.fetchall()[0]
        cursor.execute("SET GLOBAL max_join_size = 1, GLOBAL sql_big_selects = 0, GLOBAL lc_time_names = 'de_DE'")
        cursor.execute("SET GLOBAL sql_mode = 'ANSI,ONLY_FULL_GROUP_BY,PAD_CHAR_TO_FULL_LENGTH'")
        try:
            with closing(opened(shop, "reads")) as engine:
                sql = "SELECT DATE_FORMAT(CAST('2026-01-31' AS DATE), '%W') AS d, COUNT(*) AS n FROM shop.reads AS a "
                sql += "JOIN shop.reads AS b JOIN shop.reads AS c WHERE YEAR('2026-01-31') - 2027 < 0"
                assert run(engine, sql).to_pylist() == [{"c0": "Saturday", "c1": 27}]
        finally:
            values = f"GLOBAL sql_big_selects = {big}, GLOBAL lc_time_names = '{names}', GLOBAL sql_mode = '{mode}'"
            cursor.execute(f"SET GLOBAL max_join_size = {size}, {values}")


def test_many_long_texts_are_sorted(shop: Server) -> None:
    """MariaDB plans for the longest texts, and fails where its buffer does not hold some rows of them."""
    columns = [f"t{at}" for at in range(40)]
    shop.run(
        f"CREATE OR REPLACE VIEW shop.wide AS SELECT {', '.join(f'l AS {each}' for each in columns)} FROM shop.kinds"
    )
    with closing(opened(shop, "shop.wide")) as engine:
        forms = [engine.dialect.forms[name] for name in ("canonical TEXT", "column TEXT")]
        keys = [forms[0].replace("{0}", forms[1]).replace("{0}", each) for each in columns]
        sql = f"SELECT COUNT(*) AS n FROM shop.wide GROUP BY {', '.join(keys)} ORDER BY {', '.join(keys)}"
        assert run(engine, sql).to_pylist() == [{"c0": 1}]


def test_a_password_is_sent_as_the_server_asks_for_it(shop: Server) -> None:
    """By MySQL's default, caching_sha2_password: encrypted by RSA, then as a hash, and over a socket."""
    shop.run(
        f"CREATE USER guest@'127.0.0.1' IDENTIFIED BY '{SECRET}'",
        f"CREATE USER guest@localhost IDENTIFIED BY '{SECRET}'",
        "GRANT SELECT ON shop.reads TO guest@'127.0.0.1'",
        "GRANT SELECT ON shop.reads TO guest@localhost",
    )
    network = f"{shop.name}://guest:{SECRET}@127.0.0.1:{shop.port}/shop"
    for address in (network, network, shop.url("shop", user=f"guest:{SECRET}")):
        with closing(MySQLEngine.open(address, {"reads": None}, options={})) as engine:
            assert run(engine, ALIVE).num_rows == 1
    assert refused(network.replace(SECRET, "other")).code == "engine-unreachable"


def test_the_certificate_and_the_name_of_the_server_are_checked(shop: Server, tmp_path: Path) -> None:
    if shop.name == "mariadb":
        pytest.skip("MariaDB takes a certificate only as it starts")
    authority, other, key = tmp_path / "ca.pem", tmp_path / "other.pem", tmp_path / "server.pem"
    issuer = trustme.CA()
    issuer.cert_pem.write_to_path(authority)
    trustme.CA().cert_pem.write_to_path(other)
    issuer.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(key)
    shop.run(
        "CREATE USER careful@'127.0.0.1' REQUIRE SSL",
        "GRANT SELECT ON shop.reads TO careful@'127.0.0.1'",
        f"SET GLOBAL ssl_ca = '{authority}', GLOBAL ssl_cert = '{key}', GLOBAL ssl_key = '{key}'",
        "ALTER INSTANCE RELOAD TLS",
    )
    address = f"mysql://careful@localhost:{shop.port}/shop?ssl_ca="
    with closing(MySQLEngine.open(f"{address}{authority}", {"reads": None}, options={})) as engine:
        assert engine._connection is not None
        assert engine._connection._secure
    assert refused(f"{address}{other}").code == "engine-unreachable"
    assert refused(f"{address}{authority}".replace("localhost", "127.0.0.1")).code == "engine-unreachable"
