"""The shadow knows tables and no row, and lets nobody do anything there."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dpsql.server.catalog import open_catalog
from dpsql.server.catalog.shadow import MAX_ROWS, Shadow, connect
from dpsql.server.catalog.system_catalog import (
    Additions,
    CatalogError,
    CatalogRows,
    Parameter,
    SystemCatalog,
    WireColumn,
)
from dpsql.server.wire.connection_state import View, list_definitions
from dpsql.server.wire.rows import OIDS
from dpsql.sql.ir.catalog import Catalog as Tables
from dpsql.sql.ir.catalog import Table
from dpsql.sql.ir.tree import parse_type

ALWAYS_RUN = "SELECT pg_backend_pid() > 0"  # it is no stored answer


def values(shadow: SystemCatalog, sql: str, user: str = "ana") -> list[tuple[str | None, ...]]:
    rows = shadow.execute(sql, user=user).rows
    return [tuple(None if value is None else value.decode() for value in row) for row in rows]


def refused(shadow: SystemCatalog, sql: str) -> CatalogError:
    with pytest.raises(CatalogError) as caught:
        shadow.execute(sql, user="ana")
    return caught.value


def test_tables_have_postgresqls_types(shadow: SystemCatalog) -> None:
    asked = "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'reads'"
    assert values(shadow, asked) == [
        ("user_id", "bigint"),
        ("article", "text"),
        ("price", "numeric"),
        ("at", "timestamp without time zone"),
    ]


def test_whoever_asks_finds_themselves_and_nobody_else(shadow: SystemCatalog) -> None:
    asked = "SELECT current_user, session_user, (SELECT string_agg(rolname, ' ') FROM pg_roles WHERE rolname !~ '^pg_')"
    for user in ("ana", 'b"ob; DROP', "Ærø", "current_user", "PG_monitor", "default"):
        assert values(shadow, asked, user) == [(user, user, f"dpsql {user}")]
    assert values(shadow, "SELECT current_user", "é" * 60) == [("é" * 31,)]
    for user in ("dpsql", "pg_monitor", "public", "none", ""):
        assert values(shadow, "SELECT current_user", user) == [("analyst",)]


def test_views_of_one_name_wait_for_no_other(shadow: Shadow) -> None:
    column = WireColumn("n", OIDS["numeric"], -1, (9 << 16 | 2) + 4)
    added = Additions(list_definitions({"v": View.define("v", "SELECT 1", columns=(column,))}))
    listed = "SELECT a.attname FROM pg_attribute a WHERE a.attrelid = 'v'::regclass AND a.attnum > 0"

    def run(_: object) -> CatalogRows:  # while the view of another exists
        return shadow.execute(listed, user="ben", added=added)

    assert list(shadow._asked("ana", run, added=added).rows) == [(b"n",)]
    with pytest.raises(CatalogError, match="cannot be read together with system catalogs"):
        shadow.execute("SELECT * FROM v, pg_class", user="ana", added=added)
    assert refused(shadow, listed).sqlstate == "42P01"


def test_the_catalog_says_which_postgresql_it_is(shadow: SystemCatalog) -> None:
    assert values(shadow, "SHOW server_version") == [(shadow.version,)]
    assert values(shadow, "SELECT version()")[0][0].startswith(f"PostgreSQL {shadow.version}")
    assert values(shadow, "SELECT current_schema(), current_database()") == [("main", "dpsql")]


def test_there_is_one_database_and_tools_take_it_for_one_of_a_user(shadow: SystemCatalog) -> None:
    listed = "SELECT datname, oid > 16383, datallowconn, datistemplate FROM pg_database ORDER BY 1"
    assert values(shadow, listed) == [
        ("dpsql", "t", "t", "f"),
        ("template0", "f", "f", "t"),
        ("template1", "f", "f", "t"),
    ]
    pgadmin = "SELECT db.datname FROM pg_database db WHERE db.oid > 16383 OR db.datname IN ('postgres', 'edb')"
    assert values(shadow, pgadmin) == [("dpsql",)]


def test_settings_can_be_cast(shadow: SystemCatalog) -> None:
    sql = "SELECT current_setting('server_version_num')::int AS number, current_setting('max_index_keys')::int"
    assert [column.oid for column in shadow.describe(sql, user="ana").columns] == [23, 23]
    assert int(values(shadow, sql)[0][0] or "") >= 180_000


def test_comments_say_what_an_analyst_may_do(shadow: SystemCatalog) -> None:
    described = (
        "SELECT a.attname, col_description(c.oid, a.attnum) FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid "
        "WHERE c.relname = 'reads' AND a.attnum > 0 ORDER BY a.attnum"
    )
    assert values(shadow, described) == [
        ("user_id", "The privacy unit: COUNT(DISTINCT user_id) counts it."),
        ("article", None),
        ("price", "A measure for SUM and AVG: one unit adds 0 to 100 to a group."),
        ("at", None),
    ]
    tables = "SELECT relname, obj_description(oid, 'pg_class') FROM pg_class WHERE relname ~ '^(reads|countries)$'"
    assert dict(values(shadow, tables)) == {
        "countries": "Public: any SELECT is answered exactly.",
        "reads": "Private: the privacy unit is user_id. End a query with TOP 10 PRIVATE.",
    }


def test_no_label_of_an_enum_is_there() -> None:
    mood = parse_type("ENUM('glad', 'sad')")
    opened = open_catalog("auto", Tables((Table("moods", (), (("mood", mood),), "mood"),)))
    try:
        assert values(opened, "SELECT * FROM pg_enum") == []
        typed = "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attname = 'mood'"
        assert values(opened, typed) == [("text",)]
    finally:
        opened.close()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) FROM reads",
        "SELECT count(*) FROM pg_class, main.reads",
        "TABLE reads",
        "SELECT 1 WHERE false AND EXISTS (SELECT FROM reads)",
        "SELECT (SELECT count(*) FROM reads) FROM pg_class",
        "WITH r AS (SELECT * FROM reads) SELECT 1 FROM pg_class",
        "SELECT * FROM pg_class c LEFT JOIN reads r ON false",
        'SELECT 1 FROM pg_class, "countries" LIMIT 0',
        "WITH gone AS (DELETE FROM reads RETURNING 1) SELECT * FROM gone",
        "SELECT row_to_json(r) FROM ONLY reads r",
    ],
)
def test_no_statement_may_name_a_table_of_the_policy(shadow: SystemCatalog, sql: str) -> None:
    error = refused(shadow, sql)
    assert error.sqlstate == "42501"
    assert error.hint.endswith("end the query with: TOP 10 PRIVATE")
    with pytest.raises(CatalogError):
        shadow.describe(sql, user="ana")


@pytest.mark.parametrize(
    "sql",
    [
        "COMMIT",
        "RESET SESSION AUTHORIZATION",
        "SET ROLE dpsql",
        "SELECT 1; COMMIT",
        "SELECT INTO mine FROM pg_class",
        "SELECT FROM pg_class",
        "CREATE TABLE mine (a int)",
        "COPY pg_class TO STDOUT",
        "COPY (SELECT 1) TO PROGRAM 'true'",
        "DO $$ BEGIN END $$",
        "LISTEN a",
        "EXPLAIN ANALYZE SELECT 1",
        "SELECT pg_sleep(9)",
        'SELECT "pg_sleep"(9)',
        "SELECT pg_catalog . pg_sleep(9)",
        'SELECT U&"pg\\005fsleep"(9)',
        "SELECT pg_read_file('/etc/passwd')",
        "SELECT pg_ls_dir('/')",
        "SELECT lo_creat(1)",
        "SELECT lo_import('/etc/passwd')",
        "SELECT pg_advisory_lock(1)",
        "SELECT pg_notify('a', 'b')",
        "SELECT pg_stat_reset()",
        "SELECT pg_terminate_backend(pg_backend_pid())",
        "SELECT query_to_xml('SELECT count(*) FROM reads', true, true, '')",
        "SELECT table_to_xml('reads', true, true, '')",
        "SELECT * FROM ts_stat('SELECT to_tsvector(article) FROM reads')",
        "SELECT current_setting('data_directory')",
        "SELECT * FROM pg_authid",
        "SELECT * FROM pg_class FOR UPDATE",
        "SELECT 1 \0",
        "SELECT '\ud800'",
        "SELECT 'open",
        "",
    ],
)
def test_what_acts_or_looks_elsewhere_is_refused_and_leaves_no_trace(shadow: SystemCatalog, sql: str) -> None:
    begun = time.monotonic()
    refused(shadow, sql)
    assert time.monotonic() - begun < 20
    assert values(shadow, "SELECT current_user, current_setting('transaction_read_only')") == [("ana", "on")]


def test_behind_the_first_wall_postgresql_refuses_too(shadow: SystemCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refused(shadow, "SELECT pg_sleep(9)").hint.startswith("Leave the function out")
    monkeypatch.setattr("dpsql.server.catalog.shadow.check_statement", str.encode)
    acting = "pg_sleep(9) pg_advisory_lock(1) lo_creat(1) pg_ls_dir('/') pg_read_file('/etc/passwd') nextval('a')"
    for call in [*acting.split(), "table_to_xml('reads', true, true, '')", "pg_notify('a', 'b')"]:
        assert refused(shadow, f"SELECT {call}").sqlstate in {"42501", "42P01"}, call
    for statement in ("COMMIT", "RESET SESSION AUTHORIZATION", "SET ROLE dpsql", "COPY (SELECT 1) TO PROGRAM 'true'"):
        assert refused(shadow, statement).sqlstate == "0A000", statement
    assert values(shadow, "SELECT current_user") == [("ana",)]


def test_settings_are_taken_as_said_and_not_set(shadow: SystemCatalog) -> None:
    asked = (
        "SELECT set_config('session_authorization', 'dpsql', false), set_config('transaction_read_only', 'off', false)"
    )
    assert values(shadow, asked) == [("dpsql", "off")]
    assert values(shadow, "SELECT set_config('role', 'dpsql', true), current_user") == [("dpsql", "ana")]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT repeat('x', 900000000)",
        "SELECT generate_series(1, 100000000)",
        "SELECT string_agg(repeat('x', 1000), '') FROM generate_series(1, 10000000)",
        "SELECT array_agg(i) FROM generate_series(1, 100000000) i",
    ],
)
def test_an_answer_without_end_is_cut_and_others_are_answered(shadow: SystemCatalog, sql: str) -> None:
    assert refused(shadow, sql).sqlstate == "54000"
    assert values(shadow, ALWAYS_RUN) == [("t",)]


def test_an_answer_has_a_most_rows_and_a_most_bytes(shadow: SystemCatalog) -> None:
    rows = f"SELECT a.attname FROM pg_attribute a, pg_attribute b LIMIT {MAX_ROWS}"
    assert len(shadow.execute(rows, user="ana").rows) == MAX_ROWS
    assert refused(shadow, f"{rows[:-1]}1").sqlstate == "54000"
    nulls = "SELECT " + ", ".join(["NULL"] * 1600) + " FROM pg_attribute LIMIT {}"
    assert len(shadow.execute(nulls.format(2_500), user="ana").rows) == 2_500
    assert refused(shadow, nulls.format(2_700)).sqlstate == "54000"


@pytest.mark.parametrize("formats", [(), (0, 1, 0)])
def test_what_an_answer_holds_is_counted_while_it_is_read(shadow: SystemCatalog, formats: tuple[int, ...]) -> None:
    sql, held = "SELECT a.attname, a.attnum, NULL FROM pg_attribute a, pg_class LIMIT 30000", list[int]()

    def hold(size: int) -> None:
        held.append(size)
        if sum(held) > limit:
            raise MemoryError

    limit = 1 << 30
    found = shadow.execute(sql, user="ana", formats=formats, hold=hold)
    assert (len(found.rows), sum(held)) == (30_000, found.size)
    assert max(held) < found.size / 10
    texts = [(name, int(number or 0)) for name, number, _ in shadow.execute(sql, user="ana").rows]
    numbers = [number or b"" for _, number, _ in found.rows]
    decoded = [struct.unpack("!h", number)[0] if formats else int(number) for number in numbers]
    assert list(zip((name for name, *_ in found.rows), decoded, strict=True)) == texts
    limit = 100_000
    held.clear()
    with pytest.raises(MemoryError):
        shadow.execute(f"{sql} -- again", user="ana", formats=formats, hold=hold)
    assert sum(held) < 2 * limit
    assert values(shadow, ALWAYS_RUN) == [("t",)]


def test_values_come_as_they_are_asked_for(shadow: SystemCatalog) -> None:
    sql, given = "SELECT $1::int4 + 1, 'x'::text", [Parameter(b"\0\0\0\x29", 23, is_binary=True)]
    assert list(shadow.execute(sql, given, user="ana").rows) == [(b"42", b"x")]
    assert list(shadow.execute(sql, given, user="ana", formats=[1]).rows) == [(b"\0\0\0\x2a", b"x")]
    assert list(shadow.execute(sql, given, user="ana", formats=[0, 1]).rows) == [(b"42", b"x")]
    mixed = shadow.execute("SELECT 1, 2 FROM pg_class LIMIT 2", user="ana", formats=[1, 0])
    assert (list(mixed.rows), mixed.tag) == ([(b"\0\0\0\x01", b"2")] * 2, "SELECT 2")
    with pytest.raises(CatalogError):
        shadow.execute(sql, given, user="ana", formats=[0, 0, 0])
    described = shadow.describe("SELECT typname FROM pg_type WHERE oid = $1 AND typname = $2", [0, 25], user="ana")
    assert described.parameters == (26, 25)
    assert [(column.name, column.oid) for column in described.columns] == [("typname", 19)]


def test_an_error_has_its_code_and_its_place(shadow: SystemCatalog) -> None:
    error = refused(shadow, "SELECT nothing FROM pg_class")
    assert (error.sqlstate, error.position) == ("42703", 8)
    assert refused(shadow, "SELECT * FROM pg_nothing").sqlstate == "42P01"


def test_an_old_psql_may_list_databases(shadow: SystemCatalog) -> None:
    assert values(shadow, "SELECT d.daticulocale FROM pg_catalog.pg_database d WHERE datname = 'dpsql'") == [(None,)]


def test_whoever_waits_too_long_is_told_so_and_others_are_answered(
    shadow: SystemCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpsql.server.catalog.shadow._WAIT", 0.5)
    monkeypatch.setattr("dpsql.server.catalog.shadow._STATEMENT_LIMIT", "2s")
    slow = "SELECT count(*) FROM pg_proc a, pg_proc b, pg_type c WHERE a.proname < b.proname"
    with ThreadPoolExecutor(2) as pool:
        asked = pool.submit(refused, shadow, slow)
        time.sleep(0.5)
        assert refused(shadow, ALWAYS_RUN).sqlstate == "53300"
        assert values(shadow, ALWAYS_RUN, "ben") == [("t",)]
        assert asked.result().sqlstate == "57014"


def test_a_slow_statement_stops_no_other_thread(shadow: SystemCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpsql.server.catalog.shadow._STATEMENT_LIMIT", "1s")
    asked = threading.Thread(
        target=refused, args=(shadow, "SELECT count(*) FROM pg_proc a, pg_proc b, pg_proc c, pg_proc d")
    )
    longest, before = 0.0, time.monotonic()
    asked.start()
    while asked.is_alive():
        time.sleep(0.001)
        longest, before = max(longest, time.monotonic() - before), time.monotonic()
    assert longest < 0.5


def test_one_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpsql.server.catalog.shadow._WAIT", 0.3)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(1)
        begun = time.monotonic()
        with pytest.raises(CatalogError):
            connect(f"host=127.0.0.1 port={silent.getsockname()[1]}")
        assert time.monotonic() - begun < 20


def test_many_ask_at_once(shadow: SystemCatalog) -> None:
    with ThreadPoolExecutor(16) as pool:
        sql = "SELECT current_user WHERE pg_backend_pid() > 0"
        asked = list(pool.map(lambda at: values(shadow, sql, f"analyst {at % 5}"), range(200)))
    assert [rows[0][0] for rows in asked] == [f"analyst {at % 5}" for at in range(200)]


def test_strange_names_are_as_the_policy_has_them_or_not_there() -> None:
    text = parse_type("VARCHAR")
    names = ["web.Clicks", "public.x", 'a"b', "main.a.b", "pg_x.y", "information_schema.z", "x" * 70, "x" * 80]
    odd = Table("odd", (), tuple((name, text) for name in ("ctid", "Ctid", "two words", "y" * 70, "y" * 75)), None)
    opened = open_catalog("auto", Tables((*(Table(name, (), (("c", text),), None) for name in names), odd)))
    try:
        listed = "SELECT schemaname, tablename FROM pg_tables WHERE schemaname !~ '^(pg_|info)' ORDER BY 1, 2"
        expected = [("main", 'a"b'), ("main", "a.b"), ("main", "odd"), ("main", "x" * 63)]
        assert values(opened, listed) == [*expected, ("public", "x"), ("web", "Clicks")]
        columns = "SELECT column_name FROM information_schema.columns WHERE table_name = 'odd'"
        assert values(opened, columns) == [("Ctid",), ("two words",), ("y" * 63,)]
    finally:
        opened.close()
    with pytest.raises(CatalogError):
        opened.execute("SELECT 1", user="ana")


def test_a_lost_postgresql_is_an_error_and_closing_removes_its_folder(tables: Tables) -> None:
    opened = open_catalog("auto", tables)
    assert isinstance(opened, Shadow)
    folder = Path(opened._conninfo.split("'")[1])
    assert values(opened, ALWAYS_RUN) == [("t",)]
    pid = int((folder / "data" / "postmaster.pid").read_text().split()[0])
    os.kill(pid, 2)
    deadline = time.monotonic() + 10
    while folder.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert refused(opened, ALWAYS_RUN).sqlstate == "58000"
    opened.close()
    opened.close()
    assert not folder.exists()


def test_a_killed_server_takes_its_postgresql_along() -> None:
    code = (
        "import sys, time; from dpsql.server.catalog import open_catalog; from dpsql.sql.ir.catalog import Catalog;"
        "shadow = open_catalog('auto', Catalog(())); print(shadow._conninfo.split(\"'\")[1], flush=True);"
        "time.sleep(60)"
    )
    started = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert started.stdout is not None
    folder = Path(started.stdout.readline().strip())
    assert (folder / "data").exists()
    started.kill()
    started.wait()
    started.stdout.close()
    deadline = time.monotonic() + 20
    while folder.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not folder.exists()


def test_no_thread_is_left_behind(shadow: SystemCatalog) -> None:
    before = threading.active_count()
    values(shadow, ALWAYS_RUN)
    assert threading.active_count() == before
