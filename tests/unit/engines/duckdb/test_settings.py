"""Whatever the settings of the connection that a user lends, statements mean the same and no row makes them fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, suppress

import duckdb
import pyarrow as pa
import pytest
from support.fuzzing import WHOLE
from support.session_kit import rebuilt

import dpsql
from dpsql.engines import Exact, Statement, open_exact
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.engines.duckdb.instance import PINNED
from dpsql.errors import EngineError

ROWS = (
    "CREATE TABLE reads (user_id BIGINT, g VARCHAR, n INTEGER, m INTEGER, x DOUBLE, d DECIMAL(9, 2), seen TIMESTAMP)",
    """INSERT INTO reads SELECT u, ['a', 'A', NULL, 'äb'][1 + u % 4], u % 7, u % 3, u - 3, u / 8,
    TIMESTAMP '2026-01-01 23:30:00' + to_hours(u::INTEGER) FROM range(60) t(u)""",
    """INSERT INTO reads VALUES
    (60, 'a', 2147483647, 0, 'inf', 0, '9999-12-31'), (61, NULL, NULL, NULL, 'nan', NULL, NULL)""",
)
QUERIES = (
    """SELECT g, COUNT(DISTINCT user_id) AS c FROM reads WHERE (n / m > 3 OR n // m = 1 OR n % m < 2 OR d * n > 3)
    AND (g = 'a' OR g ~ 'b') GROUP BY g TOP 5 PRIVATE""",
    """SELECT seen::DATE AS day, COUNT(DISTINCT user_id) AS c FROM reads
    WHERE sqrt(x) > 1 OR ln(x) < 1 OR x / 0 > 1 OR hour(seen) > 3 GROUP BY day TOP 5 PRIVATE""",
    "SELECT AVG(d) AS a, SUM(n) AS s FROM reads PRIVATE",
)
POLICY = dpsql.Policy(
    dpsql.Budget(100, "1e-3", items=40),
    {"reads": dpsql.PrivateTable("user_id", bounds={"rows": 3, "x": {"max": 9}, "n": {"max": 9}, "d": {"max": 9}})},
)
WORDS = (
    "NOCASE NULLS_FIRST NULLS_LAST_ON_ASC_FIRST_ON_DESC DESC full spark postgres America/New_York buddhist 1.4 ALL "
    "uppercase lowercase 1 0 7 100000 true false"
).split()
RESOURCES = frozenset(  # they decide what can be computed, not what a statement means
    "access_mode lock_configuration max_execution_time memory_limit max_memory operator_memory_limit threads "
    "worker_threads external_threads async_threads disabled_filesystems temp_directory max_temp_directory_size "
    "block_allocator_memory disabled_log_types enabled_log_types enable_logging logging_level logging_mode "
    "logging_storage log_query_path pivot_limit max_expression_depth".split()
)


@pytest.fixture(scope="module")
def statements() -> list[Statement]:
    """Return the statements by which the queries are answered."""
    seen: list[Statement] = []

    def watch(statement: Statement, execute: Callable[[Statement], Exact]) -> Exact:
        seen.append(statement)
        return execute(statement)

    with closing(filled()) as connection, dpsql.connect(connection, policy=POLICY, ledger=":memory:") as session:
        watched = rebuilt(session, engine=watch)
        for query in QUERIES:
            watched.sql(query)
    assert len(seen) >= len(QUERIES)
    return seen


def filled() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:")
    for statement in ROWS:
        connection.execute(statement)
    return connection


def answers(engine: DuckDBEngine, statements: list[Statement]) -> list[pa.Table]:
    with engine.turn():
        return [open_exact(engine.execute(each)) for each in statements]


def borrowed(connection: duckdb.DuckDBPyConnection) -> DuckDBEngine:
    return DuckDBEngine.borrow(connection, {"reads": None})


def changes(connection: duckdb.DuckDBPyConnection) -> Iterator[str]:
    """Set each setting to the first other word that it takes, or the first two; yield which, and put it back."""
    names = connection.execute("SELECT DISTINCT name FROM duckdb_settings() ORDER BY name").fetchall()
    for (name,) in names:
        if name in RESOURCES or name.startswith(("debug_", "enable_external_access")):
            continue
        before = connection.execute("SELECT current_setting($1)", [name]).fetchall()
        left = 2 if WHOLE else 1
        for word in WORDS:
            with suppress(duckdb.Error):
                connection.execute(f"SET GLOBAL {name} = '{word}'")
                if left and connection.execute("SELECT current_setting($1)", [name]).fetchall() != before:
                    left -= 1
                    yield f"{name} = '{word}'"
                connection.execute(f"RESET GLOBAL {name}")


@pytest.mark.engines
def test_no_setting_of_the_user_changes_what_a_statement_means(statements: list[Statement]) -> None:
    with closing(filled()) as connection, closing(borrowed(connection)) as earlier:
        plain = answers(earlier, statements)
        tried = set()
        for at, change in enumerate(changes(connection)):
            tried.add(change.split()[0])
            if WHOLE or change.split()[0] in PINNED or at % 3 == 0:
                assert answers(earlier, statements) == plain, change
            with closing(borrowed(connection)) as later:
                assert answers(later, statements) == plain, change
    assert tried >= {"default_collation", "ieee_floating_point_ops", "integer_division", "default_null_order"}


def test_without_pins_settings_change_what_statements_mean(statements: list[Statement]) -> None:
    """The statements above notice: each of these settings changes one of them, or makes it fail."""
    with closing(filled()) as connection, closing(borrowed(connection)) as engine:
        plain = answers(engine, statements)
        for change in ("ieee_floating_point_ops = false", "integer_division = true", "default_collation = 'NOCASE'"):
            name = change.split()[0]
            engine._connection.execute(f"SET SESSION {change}")
            with suppress(EngineError):
                assert [open_exact(engine.execute(each)) for each in statements] != plain, change
            engine._connection.execute(f"SET SESSION {name} = '{PINNED[name][0]}'")


@pytest.mark.parametrize("name", ["ieee_floating_point_ops", "default_collation", "TimeZone"])
def test_a_statement_is_not_begun_where_a_pin_is_gone(name: str) -> None:
    with closing(filled()) as connection, closing(borrowed(connection)) as engine:
        wrong = {"ieee_floating_point_ops": "false", "default_collation": "NOCASE", "TimeZone": "Asia/Tokyo"}[name]
        engine._connection.execute(f"SET SESSION {name} = '{wrong}'")
        with pytest.raises(EngineError) as caught, engine.turn():
            pytest.fail("a turn began")
    assert caught.value.code == "engine-settings"


def test_a_locked_setting_is_refused_where_it_is_wrong_and_the_hint_holds() -> None:
    with closing(filled()) as connection:
        connection.execute("SET GLOBAL default_collation = 'NOCASE'; SET GLOBAL lock_configuration = true")
        with pytest.raises(EngineError) as caught:
            borrowed(connection)
    assert caught.value.code == "engine-settings"
    hint = caught.value.hint
    with closing(filled()) as connection:
        connection.execute("SET GLOBAL default_collation = 'NOCASE'")
        connection.execute(hint.split("Run ")[1].split(" before")[0])
        connection.execute("SET GLOBAL lock_configuration = true")
        with closing(borrowed(connection)):
            pass


def test_two_connections_of_other_settings_share_an_answer_because_it_means_the_same() -> None:
    query = "SELECT COUNT(DISTINCT user_id) AS n FROM reads WHERE g = 'a' PRIVATE"
    seen = []
    for collation in ("", "NOCASE"):
        with closing(filled()) as connection:
            connection.execute(f"SET GLOBAL default_collation = '{collation}'")
            with dpsql.connect(connection, policy=POLICY, ledger=":memory:") as session:
                seen.append(session.sql(query).fetchall()[0][0])
    assert abs(seen[0] - seen[1]) < 8  # 16 users have 'a', and 31 'a' or 'A'


def test_a_macro_that_comes_later_changes_no_operator(statements: list[Statement]) -> None:
    with closing(filled()) as connection, closing(borrowed(connection)) as engine:
        plain = answers(engine, statements)
        connection.execute('CREATE MACRO "//"(a, b) AS 7; CREATE MACRO "%"(a, b) AS 1; CREATE MACRO ">"(a, b) AS true')
        connection.execute("CREATE MACRO nullif(a, b) AS NULL; CREATE MACRO list_value(a) AS [7]")
        assert answers(engine, statements) == plain
