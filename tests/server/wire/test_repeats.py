"""Repeated statements: answered at once, and right after whatever another process changed in between."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path

import psycopg
import pytest
from support.server_kit import ACCOUNTS, NAMES, PASSWORD, TOP, Served, serving
from support.surfaces_kit import POLICY, make_data

from dpsql.server.users import User, add_user, remove_user

DPSQL = [sys.executable, "-c", "from dpsql.cli import main; main()"]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("repeats")) as found:
        yield found


def notices_of(connection: psycopg.Connection, text: str) -> tuple[list[tuple[object, ...]], str]:
    """Return the rows of a statement and the notices that came with them."""
    told: list[str] = []
    connection.add_notice_handler(hear := lambda notice: told.append(str(notice.message_primary)))
    try:
        return connection.execute(text).fetchall(), "; ".join(told)
    finally:
        connection.remove_notice_handler(hear)


@pytest.mark.parametrize("prepare", [False, True])
def test_a_repeated_answer_has_the_rows_types_and_notices_of_a_replay(prepare: bool, served: Served) -> None:
    with psycopg.connect(served.conninfo(), autocommit=True) as connection:
        connection.execute(TOP)
        results = [connection.execute(TOP, prepare=prepare) for _ in range(3)]
        assert len({tuple(result.fetchall()) for result in results}) == 1
        assert len({tuple((one.name, one.type_code) for one in result.description) for result in results}) == 1
        assert notices_of(connection, TOP) == notices_of(connection, TOP)
        assert "stored answer, nothing was charged" in notices_of(connection, TOP)[1]
        connection.execute("SET dpsql.details = on")
        told: list[object] = []
        connection.add_notice_handler(lambda notice: told.append(notice.message_detail))
        connection.execute(TOP)
        assert "mechanism: " in str(told[0])


CONSTANTS = (
    "SELECT 1",
    "SELECT 1 AS one, 'x'::text AS text, true AS yes, NULL AS nothing, 1.50 AS amount, 1e0 AS double",
    "SELECT DATE '2026-01-02' AS day, TIMESTAMP '2026-01-02 03:04:05.678' AS moment, 9223372036854775807 AS large",
    "SELECT 2 + 3 * 4, upper('a') || 'b', CAST('7' AS BIGINT), CASE WHEN 1 < 2 THEN 'less' END",
    "SELECT 1 AS a WHERE 1 = 0",
    "SELECT 1 AS a LIMIT 0",
    "WITH root AS (SELECT 1) SELECT COUNT(*) FROM root",
    "VALUES (1, 'a'), (2, NULL)",
    "SELECT x FROM (SELECT 1 AS x UNION ALL SELECT 2) AS t ORDER BY x DESC",
    "SHOW TABLES",
    "DESCRIBE reads",
)


@pytest.mark.parametrize("text", CONSTANTS)
@pytest.mark.parametrize("binary", [False, True])
def test_a_repeated_constant_has_the_rows_and_types_of_the_first(text: str, binary: bool, served: Served) -> None:
    text = f"{text} -- {binary}"  # which nobody has sent
    with psycopg.connect(served.conninfo("ben"), autocommit=True) as connection:
        found = [connection.execute(text, binary=binary) for _ in range(3)]
        assert served.front.service.session("ben").peek(text, postgres=True) is not None
    columns = [[(one.name, one.type_code, one.internal_size) for one in each.description or ()] for each in found]
    assert columns[0] == columns[1] == columns[2]
    rows = [each.fetchall() for each in found]
    assert rows[0] == rows[1] == rows[2]


def test_a_repeated_statement_with_parameters_is_answered_for_its_values(served: Served) -> None:
    text = "SELECT %s::VARCHAR AS text, %s::INTEGER AS number, %s::DATE AS day"
    rows = [("x", 1, date(2026, 1, 2)), ("x", 2, date(2026, 1, 2)), ("y", 1, None), ("1", 1, date(1969, 1, 1))]
    with psycopg.connect(served.conninfo(), autocommit=True) as connection:
        for _ in range(8):  # psycopg prepares the statement on the way
            for row in rows:
                assert connection.execute(text, row).fetchall() == [row]
                assert connection.execute(text, row, binary=True).fetchall() == [row]


def test_a_repeated_description_is_that_of_the_types_and_the_reading(served: Served) -> None:
    with psycopg.connect(served.conninfo("cleo"), autocommit=True, prepare_threshold=None) as connection:
        for _ in range(3):
            for value, oid in ((1, 20), ("x", 25), (1.5, 701), (None, 25)):
                kind = {20: "BIGINT", 25: "VARCHAR", 701: "DOUBLE"}[oid]
                found = connection.execute(f"SELECT CAST(%s AS {kind}) AS v", (value,))
                assert (found.description[0].type_code, found.fetchall()) == (oid, [(value,)])
            with pytest.raises(psycopg.errors.UndefinedColumn):
                connection.execute("SELECT no_such FROM countries WHERE continent = %s", ("x",))


def test_a_repeated_answer_is_counted_logged_and_limited_like_every_other(served: Served) -> None:
    def count() -> float:
        lines = front.telemetry.metrics().splitlines()
        found = [line for line in lines if line.startswith("dpsql_statements_total{")]
        return sum(float(line.split()[-1]) for line in found if '"postgres"' in line and '"free"' in line)

    front = served.front
    with psycopg.connect(served.conninfo("ben"), autocommit=True) as connection:
        before, lines = count(), served.log.getvalue().count('"answered"')
        for _ in range(5):
            connection.execute("SELECT 1")
        assert count() == before + 5
        assert served.log.getvalue().count('"answered"') == lines + 5
        front.throttle.set_limit(1)
        try:
            connection.execute("SELECT 1")
            with pytest.raises(psycopg.errors.InsufficientResources, match="too-many-statements"):
                connection.execute("SELECT 1")
        finally:
            front.throttle.set_limit(100_000)


def test_a_client_that_sends_many_statements_at_once_is_answered_in_order(served: Served) -> None:
    with psycopg.connect(served.conninfo(), autocommit=True) as connection:
        connection.execute("SELECT 7")
        with connection.pipeline():
            cursors = [connection.execute(f"SELECT {number % 3 + 5}") for number in range(300)]
        assert [cursor.fetchall() for cursor in cursors] == [[(number % 3 + 5,)] for number in range(300)]


def test_an_answer_of_one_analyst_is_not_at_hand_for_another(served: Served) -> None:
    with (
        psycopg.connect(served.conninfo("ana"), autocommit=True) as one,
        psycopg.connect(served.conninfo("cleo"), autocommit=True) as other,
    ):
        for _ in range(2):
            one.execute(NAMES)
        before = served.charges("cleo")
        assert "stored answer" not in notices_of(other, NAMES)[1]
        assert served.charges("cleo") == before + 1


@contextmanager
def serve(folder: Path) -> Iterator[tuple[Callable[[], psycopg.Connection], Callable[[], None]]]:
    """Run `dpsql serve`; yield a function that connects as metabase, and one that reloads the server's files."""
    log = folder / "log"
    command = [*DPSQL, "serve", "--policy", "policy.toml", "--db", "events.duckdb"]
    with log.open("w") as out, subprocess.Popen(command, cwd=folder, stdout=out, stderr=out) as process:

        def wait_for(word: str, count: int = 1) -> str:
            for _ in range(600):
                if (text := log.read_text()).count(word) >= count:
                    return text
                assert process.poll() is None, log.read_text()
                time.sleep(0.05)
            raise AssertionError(log.read_text())

        def reload() -> None:
            count = log.read_text().count('"event": "reloaded"')
            process.send_signal(signal.SIGHUP)
            wait_for('"event": "reloaded"', count + 1)

        try:
            port = wait_for("ready").partition("postgres listens on 127.0.0.1:")[2].partition(",")[0].split()[0]
            target = f"host=127.0.0.1 port={port} user=metabase password='{PASSWORD}' dbname=dpsql"
            yield lambda: psycopg.connect(target, autocommit=True), reload
        finally:
            process.terminate()
            process.wait(30)


def test_what_another_process_changes_between_two_replays_is_seen(tmp_path: Path) -> None:
    make_data(tmp_path)
    address = "[server]\npostgres = '127.0.0.1:0'\nweb = 'off'\n"
    policy = (POLICY + ACCOUNTS).replace("[server]\n", address)
    (tmp_path / "policy.toml").write_text(policy)
    users = tmp_path / "users.toml"
    add_user(users, User("metabase", acts_as=("ana", "ben")), password=PASSWORD)

    def run(*words: str) -> None:
        subprocess.run(words, cwd=tmp_path, check=True, env=os.environ, capture_output=True)

    def at_hand(connection: psycopg.Connection) -> bool:
        return "stored answer" in notices_of(connection, TOP)[1]

    with serve(tmp_path) as (connect, reload), connect() as connection:
        assert [at_hand(connection) for _ in range(3)] == [False, True, True]

        before = connection.execute("SHOW BUDGET").fetchall()
        assert connection.execute("SHOW BUDGET").fetchall() == before
        connect_as = "dpsql.connect('events.duckdb', policy='policy.toml', analyst='metabase')"
        ask = f"import dpsql, sys; {connect_as}.sql(sys.argv[1])"
        other = TOP.replace("FROM reads", "FROM reads WHERE article <> 'none'")
        run(sys.executable, "-c", ask, other)  # charged by another process
        assert connection.execute("SHOW BUDGET").fetchall() != before
        assert at_hand(connection)

        run(*DPSQL, "data", "bump", "ledger.sqlite", "--note", "new rows")
        assert [at_hand(connection) for _ in range(3)] == [False, True, True]

        connection.execute("SET ROLE ana")
        assert [at_hand(connection) for _ in range(3)] == [False, True, True]
        written = users.read_text()
        users.write_text(written.replace('acts_as = ["ana", "ben"]', 'acts_as = ["ben"]'))
        assert users.read_text() != written
        reload()
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match=r"\[role\]"):
            connection.execute(TOP)
        connection.execute("RESET ROLE")
        assert at_hand(connection)

        (tmp_path / "policy.toml").write_text(
            policy.replace("[analysts.metabase]\n", "[analysts.metabase]\nenabled = false\n")
        )
        reload()
        with pytest.raises(psycopg.Error, match=r"\[analyst-disabled\]"):
            connection.execute(TOP)
        (tmp_path / "policy.toml").write_text(policy)
        reload()
        assert [at_hand(connection) for _ in range(2)] == [True, True]

        remove_user(users, "metabase")
        reload()
        with pytest.raises(psycopg.Error, match=r"\[user-removed\]"):
            connection.execute(TOP)
