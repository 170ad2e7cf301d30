"""Statements as tools write them, in the simple and in the extended protocol; the tool is in the name of the test."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from functools import partial
from typing import Any
from xml.etree import ElementTree as ET

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import tuple_row
from support import postgres_kit
from support.server_kit import NAMES, PASSWORD, TOP, Served, serving

from dpsql.server.users import change_password, remove_user
from dpsql.server.wire.command_parser import StatementText
from dpsql.server.wire.connection_state import View, expand_views

Rows = list[tuple[object, ...]]
DE_FR, ALL = [("DE",), ("FR",)], [("DE",), ("FR",), ("TV",)]
SORTED = "SELECT country FROM countries"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("tools")) as found:
        yield found


@pytest.fixture
def client(served: Served) -> Iterator[psycopg.Connection]:
    with psycopg.connect(served.conninfo(), autocommit=True) as connection:
        yield connection


PUBLIC: list[tuple[str, str, list[object] | None, Rows]] = [
    ("sqlalchemy-psycopg", f"{SORTED} ORDER BY country LIMIT %s::INTEGER OFFSET %s::INTEGER", [1, 1], [("FR",)]),
    ("sqlalchemy-cast", f"{SORTED} ORDER BY country LIMIT CAST(%s AS INTEGER)", [2], DE_FR),
    ("sqlalchemy-offset", f"{SORTED} ORDER BY country OFFSET %s::BIGINT ROWS", [2], [("TV",)]),
    ("pgx", f"{SORTED} ORDER BY country LIMIT %s", [2], DE_FR),
    ("tableau", "SELECT 1 LIMIT 0", None, []),
    ("superset", "SELECT 1 WHERE 1=0", None, []),
    ("evidence", "WITH root AS (SELECT 1) SELECT COUNT(*) FROM root", None, [(1,)]),
    ("metabase", "SELECT 1 AS one", None, [(1,)]),
    ("hikari", "SELECT 'x'::text", None, [("x",)]),
    ("prisma", "SELECT true", None, [(True,)]),
    ("jdbc", "SELECT NULL", None, [(None,)]),
    ("power-bi", "SELECT 1; ", None, [(1,)]),
    ("knex", "SELECT 1+1 AS result", None, [(2,)]),
    ("odbc", "VALUES (1, 'a')", None, [(1, "a")]),
    ("looker", "SELECT 1 UNION ALL SELECT 2", None, [(1,), (2,)]),
    ("django-icontains", f'{SORTED} WHERE UPPER("countries"."country"::text) LIKE UPPER(%s)', ["%d%"], [("DE",)]),
    ("django-iexact", f'{SORTED} WHERE UPPER("countries"."country"::text) = UPPER(%s)', ["de"], [("DE",)]),
    ("django-regex", f'{SORTED} WHERE "countries"."country"::text ~ %s ORDER BY 1', ["^[DF]"], DE_FR),
    ("django-iregex", f'{SORTED} WHERE "countries"."country"::text ~* %s', ["^d"], [("DE",)]),
    ("rails-not-match", f"{SORTED} WHERE country !~ 'D' ORDER BY 1", None, [("FR",), ("TV",)]),
    ("hasura-not-imatch", f"{SORTED} WHERE country !~* 'd' ORDER BY 1", None, [("FR",), ("TV",)]),
    ("pgx-any", f"{SORTED} WHERE country = ANY(%s) ORDER BY 1", [["DE", "FR", "'{"]], DE_FR),
    ("sqlx-any", f"{SORTED} WHERE since = ANY(%s)", [[date(1990, 10, 3), None]], [("DE",)]),
    ("npgsql-any", f"{SORTED} WHERE millions = ANY(%s)", [[Decimal("83.50")]], [("DE",)]),
    ("npgsql-all", f"{SORTED} WHERE country <> ALL(%s)", [["DE", "FR"]], [("TV",)]),
    ("sqlalchemy-any", f"{SORTED} WHERE country = ANY (CAST(%s AS VARCHAR[])) ORDER BY 1", [["DE", "FR"]], DE_FR),
    ("empty-any", f"{SORTED} WHERE country = ANY(%s)", [[]], []),
    ("empty-all", f"{SORTED} WHERE country <> ALL(%s) ORDER BY 1", [[]], ALL),
    ("psycopg2-any", f"{SORTED} WHERE country = ANY(ARRAY['DE','FR']) ORDER BY 1", None, DE_FR),
    ("activerecord-any", f"{SORTED} WHERE country = ANY ('{{DE,\"FR\"}}'::text[]) ORDER BY 1", None, DE_FR),
    ("pg-deparsed-any", f"{SORTED} WHERE country = ANY ((ARRAY['DE'::text])::text[])", None, [("DE",)]),
    ("grafana-to-char", "SELECT to_char(since, 'YYYY-MM') FROM countries WHERE country = 'DE'", None, [("1990-10",)]),
    ("datagrip-cast", "SELECT millions::text FROM countries WHERE country = 'DE'", None, [("83.50",)]),
    ("libreoffice", f"{SORTED} WHERE country = 'DE' FOR READ ONLY", None, [("DE",)]),
    ("comment", f"{SORTED} WHERE country = 'DE' -- for update", None, [("DE",)]),
    ("column-for", "SELECT country AS \"for update\" FROM countries WHERE country = 'DE'", None, [("DE",)]),
    ("pg-dump", "SELECT pg_catalog.set_config('search_path', '', false)", None, [("",)]),
]


@pytest.mark.parametrize("prepare", [False, True], ids=["simple", "extended"])
@pytest.mark.parametrize(("text", "values", "rows"), [row[1:] for row in PUBLIC], ids=[row[0] for row in PUBLIC])
def test_a_statement_is_answered_free(
    text: str, values: list[object] | None, rows: Rows, *, prepare: bool, client: psycopg.Connection, served: Served
) -> None:
    before = served.charges()
    cursor = client.cursor() if prepare else psycopg.ClientCursor(client)
    assert cursor.execute(text, values, prepare=prepare or None).fetchall() == rows
    assert served.charges() == before


def test_a_constant_never_reaches_the_engine_or_the_catalog(tmp_path_factory: pytest.TempPathFactory) -> None:
    with serving(tmp_path_factory.mktemp("constants")) as served, psycopg.connect(served.conninfo()) as client:
        engine = served.front.service._resources._engine
        engine.close()
        for text in ("SELECT 1", "SELECT 1 LIMIT 0", "WITH root AS (SELECT 1) SELECT COUNT(*) FROM root", "VALUES (1)"):
            client.execute(text)


PRIVATE: list[tuple[str, str, list[object] | None]] = [
    ("pgx-any", "country = ANY(%s)", [["DE", "TV"]]),
    ("psycopg2-any", "country = ANY(ARRAY['DE','TV'])", None),
    ("activerecord-any", "country = ANY('{DE,TV}'::text[])", None),
    ("sqlalchemy-in", "country IN (%s::VARCHAR, %s::VARCHAR)", ["DE", "TV"]),
]


def test_arrays_in_a_private_query_are_the_same_query_as_in(client: psycopg.Connection, served: Served) -> None:
    before = served.charges()
    answers = []
    for _, condition, values in PRIVATE:
        text = (
            f"SELECT article, COUNT(DISTINCT user_id) AS n FROM reads WHERE {condition} GROUP BY article TOP 2 PRIVATE"
        )
        answers += [client.execute(text, values).fetchall() for _ in range(2)]
    assert all(answer == answers[0] for answer in answers)
    assert served.charges() == before + 1


@pytest.mark.parametrize(
    "condition", ["country ~ 'D'", "UPPER(country::text) LIKE UPPER('%d%')", "country ILIKE '%d%'"]
)
def test_djangos_operators_are_read_in_a_private_query(condition: str, client: psycopg.Connection) -> None:
    found = client.execute(f"SELECT article FROM reads WHERE {condition} GROUP BY article TOP 2 PRIVATE").fetchall()
    assert found == [("a0",), ("a1",)]


AROUND: list[tuple[str, str, list[object] | None, list[str]]] = [
    ("sqlalchemy-limit", "LIMIT %s::INTEGER OFFSET %s::INTEGER", [1, 1], ["a1"]),
    ("pgx-any", "WHERE article = ANY(%s)", [["a0"]], ["a0"]),
    ("activerecord-any", "WHERE article = ANY('{a0,a1}'::text[])", None, ["a0", "a1"]),
    ("django-icontains", 'WHERE UPPER("article"::text) LIKE UPPER(%s)', ["%A0%"], ["a0"]),
    ("django-iregex", "WHERE article ~* 'A[01]'", None, ["a0", "a1"]),
    ("npgsql-all", "WHERE article <> ALL(%s)", [["a0", "a1"]], ["a2"]),
]


@pytest.mark.parametrize("output", ["article", "[article] AS article"], ids=["dpsql", "duckdb"])
@pytest.mark.parametrize(("around", "values", "names"), [row[1:] for row in AROUND], ids=[row[0] for row in AROUND])
def test_a_select_around_an_answer_is_free(
    around: str, values: list[object] | None, names: list[str], output: str, client: psycopg.Connection, served: Served
) -> None:
    client.execute(NAMES)
    before = served.charges()
    text = f"SELECT {output} FROM ({NAMES}) AS x {around}"
    for prepare in (False, True):
        found = client.execute(text, values, prepare=prepare).fetchall()
        assert [str(row[0]).strip("[]") for row in found] == names
    assert served.charges() == before


REFUSED: list[tuple[str, str, str, str]] = [
    ("psql-analyze", f"EXPLAIN ANALYZE {TOP}", "0A000", ""),
    ("pgadmin-analyze", f"EXPLAIN (ANALYZE TRUE, FORMAT JSON) {TOP}", "0A000", ""),
    ("auto-explain", "EXPLAIN (FORMAT YAML) SELECT 1", "0A000", ""),
    ("pgadmin-position", "EXPLAIN (FORMAT JSON) SELECT nothing FROM countries", "42703", "nothing"),
    ("explain-private", "EXPLAIN SELECT * FROM reads", "42501", "reads"),
    ("explain-command", "EXPLAIN (COSTS OFF) BEGIN", "42601", "BEGIN"),
    ("qt-position", "PREPARE q AS SELECT nothing FROM countries", "42703", "nothing"),
    ("qt-write", "PREPARE q AS INSERT INTO countries VALUES ($1)", "25006", ""),
    ("qt-command", "PREPARE q AS BEGIN", "42601", "BEGIN"),
    ("qt-expression", "EXECUTE q (1 + 1)", "0A000", ""),
    ("qt-unknown", "EXECUTE q (1)", "26000", ""),
    ("qt-type", "PREPARE q (point) AS SELECT $1", "42704", ""),
    ("django-for-update", f"{SORTED} FOR UPDATE", "25006", "FOR UPDATE"),
    ("rails-for-share", f"{SORTED} FOR KEY SHARE OF countries SKIP LOCKED", "25006", "FOR KEY"),
    ("notify", "NOTIFY x, 'y'", "0A000", ""),
    ("dbt-view", 'CREATE VIEW "dpsql"."main"."continents" AS (SELECT 1)', "25006", ""),
    ("view-parameter", "CREATE TEMP VIEW v AS SELECT country FROM countries WHERE country = $1", "42P02", ""),
    ("view-table", "CREATE TEMP VIEW countries AS SELECT 1", "42P07", ""),
    ("view-columns", "CREATE TEMP VIEW v AS SELECT 1 AS a, 2 AS a", "42701", ""),
    ("view-position", "CREATE TEMP VIEW v AS SELECT nothing FROM countries", "42703", "nothing"),
    ("view-command", "CREATE TEMP VIEW v AS BEGIN", "42601", "BEGIN"),
    ("view-private", "CREATE TEMP VIEW v AS SELECT * FROM reads", "42501", "reads"),
    ("drop-view", "DROP VIEW nowhere", "42P01", ""),
    ("drop-table", "DROP TABLE countries", "25006", ""),
    ("copy-private", "COPY reads TO STDOUT", "42501", ""),
    ("copy-unknown", "COPY countries (nothing) TO STDOUT", "42703", ""),
    ("copy-table", "COPY nowhere TO STDOUT", "42P01", "nowhere"),
    ("set-config", "SELECT set_config('client_encoding', 'latin1', false)", "0A000", ""),
    (
        "private-similar",
        "SELECT article FROM reads WHERE article SIMILAR TO 'a' GROUP BY 1 TOP 2 PRIVATE",
        "0A000",
        "SIMILAR TO",
    ),
    (
        "private-less-any",
        "SELECT 1 AS x FROM reads WHERE user_id < ANY(ARRAY[1]) GROUP BY x TOP 2 PRIVATE",
        "0A000",
        "ANY",
    ),
    ("no-array", f"{SORTED} WHERE country = ANY('DE')", "22P02", "'DE'"),
]


@pytest.mark.parametrize(("text", "sqlstate", "at"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_a_refusal_has_its_sqlstate_its_place_and_a_hint(
    text: str, sqlstate: str, at: str, client: psycopg.Connection, served: Served
) -> None:
    before = served.charges()
    with pytest.raises(psycopg.Error) as caught:
        client.execute(text)
    assert (caught.value.sqlstate, bool(caught.value.diag.message_hint)) == (sqlstate, True)
    if at:
        assert int(caught.value.diag.statement_position or 0) == text.index(at) + 1
    assert served.charges() == before


def test_a_temporary_view_stands_for_its_query(client: psycopg.Connection, served: Served) -> None:
    before = served.charges()
    client.execute("CREATE TEMPORARY VIEW \"Some one's\" AS SELECT country FROM countries WHERE country <> 'TV'")
    client.execute('CREATE OR REPLACE TEMP VIEW few AS SELECT * FROM "Some one\'s" LIMIT 1')
    client.execute(f"CREATE TEMP VIEW top AS {TOP}")
    assert served.charges() == before
    assert client.execute('SELECT v.country FROM "Some one\'s" AS v ORDER BY 1').fetchall() == DE_FR
    assert len(client.execute("WITH x AS (SELECT 1 AS one) SELECT country FROM x, few").fetchall()) == 1
    assert client.execute(f"{SORTED} WHERE country IN (SELECT country FROM few) LIMIT %s", [0]).fetchall() == []
    answer = client.execute(TOP).fetchall()
    assert sorted(client.execute("SELECT * FROM top").fetchall()) == sorted(answer)
    assert client.execute("SELECT COUNT(*) FROM top").fetchone() == (len(answer),)
    assert served.charges() - before <= 1
    assert any("QUERY PLAN" in str(row) or row for row in client.execute("EXPLAIN SELECT * FROM top").fetchall())
    with pytest.raises(psycopg.errors.UndefinedColumn) as caught:
        client.execute("SELECT nothing FROM few")
    assert int(caught.value.diag.statement_position or 0) == len("SELECT ") + 1
    with psycopg.connect(served.conninfo()) as other, pytest.raises(psycopg.errors.UndefinedTable):
        other.execute("SELECT * FROM few")


def test_a_view_ends_with_its_transaction_or_is_dropped(client: psycopg.Connection) -> None:
    client.execute("BEGIN; CREATE TEMP VIEW v AS SELECT 1 AS one")
    assert client.execute("SELECT * FROM v").fetchall() == [(1,)]
    client.execute("ROLLBACK")
    for statement in ("DROP VIEW v", "DISCARD TEMP", "DISCARD ALL"):
        with pytest.raises(psycopg.errors.UndefinedTable):
            client.execute("SELECT * FROM v")
        client.execute("CREATE TEMP VIEW v AS SELECT 1 AS one")
        with pytest.raises(psycopg.errors.DuplicateTable):
            client.execute("CREATE TEMP VIEW v AS SELECT 2")
        client.execute(statement)
    with pytest.raises(psycopg.errors.UndefinedTable) as caught:
        client.execute('DROP VIEW "not ""there"')
    client.execute(caught.value.diag.message_hint or "")
    client.execute("DROP VIEW IF EXISTS v, w CASCADE")
    long = "é" * 31
    for statement in (f'CREATE TEMP VIEW "{long}ab" AS SELECT 1', 'CREATE TEMP VIEW "" AS SELECT 1'):
        with pytest.raises(psycopg.Error) as caught:
            client.execute(statement)
        assert caught.value.sqlstate in {"42622", "42601"}
    with pytest.raises(psycopg.errors.TooManyColumns):
        client.execute("CREATE TEMP VIEW v AS SELECT " + ",".join(f"1 c{number}" for number in range(1601)))
    with pytest.raises(psycopg.errors.DuplicateColumn):
        client.execute(f'CREATE TEMP VIEW v AS SELECT 1 AS "{long}ab", 2 AS "{long}ac"')
    for number in range(20):
        client.execute(f"CREATE TEMP VIEW v{number} AS SELECT 1 AS one")
    with pytest.raises(psycopg.errors.ProgramLimitExceeded):
        client.execute("CREATE TEMP VIEW v20 AS SELECT 1 AS one")


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT * FROM v", [(1,)]),
        ("SELECT * FROM v WHERE one > 1", []),
        ("WITH w AS (SELECT 2 AS two) SELECT one, two FROM w, v", [(1, 2)]),
        ("WITH RECURSIVE w AS (SELECT 2 AS two) SELECT one, two FROM w, v", [(1, 2)]),
        ("WITH v AS (SELECT 7 AS one) SELECT * FROM v", [(7,)]),
        ("WITH w(a, b) AS (SELECT 2, 3), v AS (SELECT 7 AS one) SELECT one, a FROM v, w", [(7, 2)]),
        ("WITH w AS (SELECT 2 AS v) SELECT one, v FROM w, v", [(1, 2)]),
        ("SELECT * FROM (WITH v AS (SELECT 7 AS one) SELECT * FROM v) AS s", [(7,)]),
        ("SELECT 'FROM v' AS a -- FROM v", [("FROM v",)]),
    ],
)
def test_a_view_that_ends_in_a_comment_is_read_unless_a_cte_has_its_name(
    query: str, rows: list[tuple[object, ...]], client: psycopg.Connection
) -> None:
    client.execute("CREATE OR REPLACE TEMP VIEW v AS SELECT 1 AS one -- (")
    assert client.execute(query).fetchall() == rows
    client.execute("DROP VIEW v")


def test_a_text_of_too_many_words_is_not_searched_for_views() -> None:
    views = {"v": View("SELECT 1 AS one", ())}
    short, long = (StatementText(f"SELECT {'1,' * count}1 FROM v", 0) for count in (5_000, 10_000))
    assert expand_views(short, views) != short
    assert expand_views(long, views) is long


@pytest.mark.parametrize(
    "text",
    [
        "SELECT one, v FROM t ORDER BY two, v",
        "SELECT extract(month FROM v), substring(a FROM v) FROM t WHERE a IS DISTINCT FROM v",
        "SELECT article, v FROM reads GROUP BY article, v TOP 3 PRIVATE WITH (mechanism = joint, v = 1)",
        'SELECT * FROM s.v, "V", v(1)',
    ],
)
def test_a_column_of_the_name_of_a_view_is_no_view(text: str) -> None:
    source = StatementText(text, 0)
    assert expand_views(source, {"v": View(TOP, ())}) is source


def test_the_catalog_shows_a_view_to_its_connection_alone(tmp_path_factory: pytest.TempPathFactory) -> None:
    columns = (
        "SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod) FROM pg_catalog.pg_attribute a "
        "JOIN pg_catalog.pg_class c ON a.attrelid = c.oid WHERE a.attnum > 0 AND c.relname = %s ORDER BY a.attnum"
    )
    query = f'SELECT a.article AS "Of a", c.* FROM ({TOP}) AS a, (SELECT * FROM countries) AS c'
    with serving(tmp_path_factory.mktemp("views"), catalog="auto") as served:
        own, other = psycopg.connect(served.conninfo()), psycopg.connect(served.conninfo())
        with own, other:
            own.execute(f"CREATE TEMP VIEW v AS {query}")
            own.commit()
            described = own.execute(columns, ["v"], prepare=True).fetchall()
            assert described[0] == ("Of a", "text")
            assert ("millions", "numeric(9,2)") in described
            assert ("since", "date") in described
            assert own.execute("SELECT relkind FROM pg_class WHERE relname = 'v'").fetchone() == ("v",)
            assert other.execute(columns, ["v"]).fetchall() == []
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                own.execute("SELECT * FROM pg_class, main.countries")
            own.rollback()
            with pytest.raises(psycopg.errors.InvalidTextRepresentation, match="A temporary view cannot be read"):
                own.execute("SELECT * FROM pg_class, pg_temp.v")
            own.rollback()
            own.execute("DROP VIEW v")
            assert own.execute(columns, ["v"], prepare=True).fetchall() == []
            assert served.charges() == 0
        _check_names_in_the_catalog(served)
        _check_that_a_former_login_reads_nothing(served)


def _check_names_in_the_catalog(served: Served) -> None:
    """Check that PostgreSQL takes the names of views and columns as names."""
    name, column = 'v"; DROP TABLE main.countries; --', "c'\"; SELECT 1; --"
    view, output = (sql.Identifier(each) for each in (name, column))
    listed = "SELECT a.attname FROM pg_attribute a JOIN pg_class c ON a.attrelid = c.oid WHERE c.relname = %s"
    with psycopg.connect(served.conninfo(), autocommit=True) as client:
        client.execute(sql.SQL("CREATE TEMP VIEW {} AS SELECT 1 AS {}").format(view, output))
        assert client.execute(listed, [name]).fetchall() == [(column,)]
        assert client.execute(sql.SQL("SELECT * FROM {}").format(view)).fetchall() == [(1,)]
        assert client.execute("SELECT count(*) FROM pg_class WHERE relname = 'countries'").fetchall() == [(1,)]


def _check_that_a_former_login_reads_nothing(served: Served) -> None:
    """Check that nobody reads the catalog, nor what it has stored, whose password was changed or who was removed."""
    stored, run = "SELECT relname FROM pg_class WHERE relname = 'reads'", "SELECT pg_backend_pid() > 0"
    for act in (partial(change_password, password=PASSWORD), remove_user):
        with psycopg.connect(served.conninfo("cleo"), autocommit=True) as client:
            for text in (stored, stored, run):
                assert client.execute(text).fetchone()
            act(served.front.users._path, "cleo")
            served.front.users.reload()
            for text in (stored, run, "SHOW jit"):
                for prepare in (False, True):
                    with pytest.raises(psycopg.errors.InvalidAuthorizationSpecification):
                        client.execute(text, prepare=prepare)


PGADMIN = (
    "EXPLAIN (FORMAT JSON, ANALYZE FALSE, VERBOSE FALSE, COSTS FALSE, BUFFERS FALSE, TIMING FALSE, SUMMARY FALSE, "
    "SETTINGS FALSE, WAL FALSE)"
)


@pytest.mark.parametrize("prepare", [False, True], ids=["simple", "extended"])
@pytest.mark.parametrize("query", [TOP, "SELECT country FROM countries", "SELECT 1"])
def test_pgadmins_explain_button_shows_a_plan(
    query: str, *, prepare: bool, client: psycopg.Connection, served: Served
) -> None:
    before = served.charges()
    found = client.execute(f"{PGADMIN} {query}", prepare=prepare)
    assert [(column.name, column.type_code) for column in found.description or ()] == [("QUERY PLAN", 114)]
    ((documents,),) = found.fetchall()
    assert found.statusmessage == "EXPLAIN"
    ((plan,),) = [document.values() for document in documents]
    nodes: list[dict[str, Any]] = [plan, *plan["Plans"]]
    assert all(isinstance(node["Node Type"], str) for node in nodes)
    assert (plan["Node Type"] == "Result") == (query != TOP)
    assert "SELECT" in nodes[-1]["SQL"]
    assert served.charges() == before


def test_dbeavers_explain_reads_xml(client: psycopg.Connection) -> None:
    ((document,),) = client.execute(f"EXPLAIN (FORMAT XML, ANALYSE false, VERBOSE true) {TOP}").fetchall()
    space = "{http://www.postgresql.org/2009/explain}"
    plan = ET.fromstring(document).find(f"{space}Query/{space}Plan")
    assert plan is not None
    assert plan.find(f"{space}Node-Type") is not None
    assert plan.find(f"{space}Plans/{space}Plan/{space}SQL") is not None


def test_explain_of_several_private_queries_has_a_node_for_each(client: psycopg.Connection) -> None:
    text = f"EXPLAIN (FORMAT JSON) SELECT a.article, [1] FROM ({TOP}) AS a, ({NAMES}) AS b"
    (((document,),),) = client.execute(text).fetchall()
    assert [node["Private query"] for node in document["Plan"]["Plans"]] == ["1 of 2", "2 of 2"]
    assert "Together" in document["Plan"]


def test_explain_has_a_node_for_each_statement_of_two_looks(client: psycopg.Connection) -> None:
    facts = dict(client.execute(f"EXPLAIN VERBOSE {NAMES}").fetchall())
    (((document,),),) = client.execute(f"EXPLAIN (FORMAT JSON) {NAMES}").fetchall()
    plan = document["Plan"]
    assert plan["Node Type"] == "Two Looks"
    assert [node["SQL"] for node in plan["Plans"]] == [facts["engine SQL"], facts["engine SQL, second look"]]
    assert not any(name.startswith("Engine SQL") for name in plan)


def test_explain_in_text_has_lines_and_values_are_bound(client: psycopg.Connection) -> None:
    text = "EXPLAIN (COSTS OFF) SELECT article FROM reads WHERE country = %s GROUP BY article TOP 2 PRIVATE"
    lines = [row[0] for row in client.execute(text, ["DE"])]
    assert any(line.startswith("mechanism: ") for line in lines)
    assert dict(client.execute(f"EXPLAIN VERBOSE {TOP}").fetchall()).keys() >= {"mechanism", "engine SQL"}
    assert client.execute("EXPLAIN (SELECT 1)").fetchone() == ("reads", "no private row")


def test_qt_prepares_and_executes_by_sql_and_is_charged_once(client: psycopg.Connection, served: Served) -> None:
    before = served.charges()
    text = "SELECT article FROM reads WHERE country <> $1 AND user_id > $2 AND ts < $3 GROUP BY article TOP 2 PRIVATE"
    assert client.execute(f"PREPARE qpsqlpstmt_1 AS {text}").statusmessage == "PREPARE"
    assert served.charges() == before
    moment = "TIMESTAMP WITH TIME ZONE '2027-01-01T01:00:00.000+01:00'"
    found = client.execute(f"EXECUTE qpsqlpstmt_1 ('qt', -5, {moment})")
    assert (found.fetchall(), found.statusmessage) == ([("a0",), ("a1",)], "SELECT 2")
    assert (
        client.execute(
            f"EXECUTE qpsqlpstmt_1 (E'q\\164'::text, CAST('-5' AS int), {moment})".replace("\\164", "t")
        ).rowcount
        == 2
    )
    written = text.replace("$1", "'qt'").replace("$2", "-5").replace("$3", "TIMESTAMP '2027-01-01 00:00:00'")
    client.execute(written)
    assert served.charges() == before + 1
    for wrong, sqlstate in (("EXECUTE qpsqlpstmt_1 ('qt')", "42601"), (f"PREPARE qpsqlpstmt_1 AS {text}", "42P05")):
        with pytest.raises(psycopg.Error) as caught:
            client.execute(wrong)
        assert caught.value.sqlstate == sqlstate
    assert client.execute("DEALLOCATE qpsqlpstmt_1").statusmessage == "DEALLOCATE"
    with pytest.raises(psycopg.errors.InvalidSqlStatementName):
        client.execute(f"EXECUTE qpsqlpstmt_1 ('qt', -5, {moment})")


def test_a_statement_that_psycopg_prepared_is_executed_by_sql(client: psycopg.Connection) -> None:
    client.execute("SELECT %s::text AS x", ["first"], prepare=True)
    assert client.execute("EXECUTE _pg3_0 (NULL)").fetchall() == [(None,)]
    assert client.execute("EXECUTE _pg3_0 ('a''b')", prepare=True).fetchall() == [("a'b",)]


def test_an_error_of_execute_has_no_place_in_another_text(client: psycopg.Connection) -> None:
    client.execute("PREPARE matching AS SELECT country FROM countries WHERE regexp_matches(country, $1)")
    with pytest.raises(psycopg.Error) as caught:
        client.execute("EXECUTE matching ('(')")
    assert (caught.value.sqlstate, caught.value.diag.statement_position) == ("42601", None)


def test_listening_is_accepted_in_silence(client: psycopg.Connection) -> None:
    assert client.execute("LISTEN changes").statusmessage == "LISTEN"
    assert client.execute("UNLISTEN *").statusmessage == "UNLISTEN"


def test_set_config_sets_as_set_does(client: psycopg.Connection) -> None:
    client.execute("SELECT set_config('statement_timeout', '7s', false)")
    assert client.execute("SHOW statement_timeout").fetchone() == ("7s",)
    client.execute("BEGIN; SELECT set_config('application_name', 'inside', true)")
    assert client.execute("SHOW application_name").fetchone() == ("inside",)
    client.execute("COMMIT")
    assert client.execute("SHOW application_name").fetchone() == ("",)


def test_statements_of_sessions_are_accepted_also_several_in_a_text(client: psycopg.Connection) -> None:
    client.execute("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY")
    found = client.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1; PREPARE p AS SELECT 2; EXECUTE p; COMMIT")
    tags = [found.statusmessage]
    while found.nextset():
        tags.append(found.statusmessage)
    assert tags == ["BEGIN", "SELECT 1", "PREPARE", "SELECT 1", "COMMIT"]


CURSOR = "CURSOR WITH HOLD FOR SELECT x FROM (VALUES (1), (2), (3)) AS v(x) ORDER BY x"
MOVES = [
    "NEXT FROM c", "PRIOR FROM c", "FIRST FROM c", "LAST FROM c", "ALL FROM c", "FORWARD ALL FROM c", "c",
    "BACKWARD ALL FROM c", "BACKWARD FROM c", "FORWARD FROM c", "2 FROM c", "-2 IN c", "0 FROM c",
    "FORWARD 2 FROM c", "FORWARD 0 FROM c", "BACKWARD 2 FROM c", "BACKWARD -1 FROM c",
    *(f"{kind} {count} FROM c" for kind in ("ABSOLUTE", "RELATIVE") for count in (-5, -3, -1, 0, 1, 2, 3, 4)),
]  # fmt: skip


@pytest.mark.parametrize("scroll", ["SCROLL", "NO SCROLL INSENSITIVE"])
def test_cursors_move_as_those_of_postgresql(scroll: str, client: psycopg.Connection) -> None:
    draws = random.Random(7)
    statements = [f"{draws.choice(['FETCH', 'FETCH', 'MOVE'])} {draws.choice(MOVES)}" for _ in range(400)]

    def run(connection: psycopg.Connection[Any]) -> Iterator[object]:
        connection.execute(f"DECLARE c {scroll} {CURSOR}")
        for text in statements:
            try:
                found = connection.execute(text)
            except psycopg.Error as error:
                yield text, error.sqlstate
                connection.execute("CLOSE c")  # after an error PostgreSQL's position is that of the scan so far
                connection.execute(f"DECLARE c {scroll} {CURSOR}")
            else:
                yield text, found.fetchall() if found.description else None, found.statusmessage

    with postgres_kit.server().session() as reference:
        assert list(run(client)) == list(run(reference))


@pytest.mark.parametrize(
    ("words", "sqlstate"),
    [
        ("INSENSITIVE NO SCROLL", None),
        ("NO SCROLL ASENSITIVE", None),
        ("SCROLL NO SCROLL", "42P11"),
        ("NO SCROLL INSENSITIVE SCROLL", "42P11"),
        ("ASENSITIVE INSENSITIVE", "42P11"),
        ("NO INSENSITIVE", "42601"),
        ("NO", "42601"),
    ],
)
def test_words_of_a_cursor_are_refused_as_postgresql_does(
    words: str, sqlstate: str | None, client: psycopg.Connection
) -> None:
    def declare(connection: psycopg.Connection[Any]) -> str | None:
        try:
            connection.execute(f"DECLARE c {words} CURSOR FOR SELECT 1")
        except psycopg.Error as error:
            return error.sqlstate
        return None

    client.execute("BEGIN")
    with postgres_kit.server().session() as reference:
        reference.execute("BEGIN")
        assert declare(client) == declare(reference) == sqlstate
        reference.execute("ROLLBACK")
    client.execute("ROLLBACK")


def test_jdbc_scrolls_a_private_cursor_and_is_charged_once(client: psycopg.Connection, served: Served) -> None:
    before = served.charges()
    text = "SELECT article FROM reads WHERE country <> 'jdbc' GROUP BY article TOP 3 PRIVATE"
    client.execute("BEGIN")
    client.execute(f"DECLARE c INSENSITIVE SCROLL CURSOR FOR {text} FOR READ ONLY")
    forwards = client.execute("FETCH ALL FROM c").fetchall()
    backwards = client.execute("FETCH BACKWARD ALL FROM c", prepare=True)
    assert backwards.fetchall() == forwards[::-1]
    assert backwards.statusmessage == f"FETCH {len(forwards)}"
    assert client.execute("FETCH RELATIVE 2 FROM c").fetchall() == forwards[1:2]
    assert client.execute("MOVE BACKWARD ALL FROM c").statusmessage == "MOVE 1"
    client.execute("COMMIT")
    assert served.charges() == before + 1


def test_psycopg_scrolls_its_named_cursor(served: Served) -> None:
    with psycopg.connect(served.conninfo()) as client, client.cursor("c", scrollable=True) as cursor:
        cursor.execute(f"{SORTED} ORDER BY country")
        assert cursor.fetchall() == ALL
        cursor.scroll(0, mode="absolute")
        assert cursor.fetchone() == ("DE",)
        cursor.scroll(-1)
        assert cursor.fetchmany(2) == DE_FR


def test_an_error_of_fetch_has_no_place_in_another_text(client: psycopg.Connection) -> None:
    text = "SELECT country FROM countries WHERE regexp_matches(country, %s)"
    client.execute(f"DECLARE c CURSOR WITH HOLD FOR {text}", ["("])
    with pytest.raises(psycopg.Error) as caught:
        client.execute("FETCH 1 FROM c")
    assert (caught.value.sqlstate, caught.value.diag.statement_position) == ("42601", None)


COPIES: list[tuple[str, str, bytes]] = [
    ("pgadmin-text", "COPY countries (country, since) TO STDOUT", b"DE\t1990-10-03\nFR\t1789-07-14\nTV\t\\N\n"),
    ("psql-csv", "COPY (SELECT country, millions FROM countries ORDER BY 1 LIMIT 1) TO STDOUT WITH CSV HEADER",
     b"country,millions\nDE,83.50\n"),
    ("datagrip-csv", "COPY countries (\"country\", continent) TO STDOUT (FORMAT csv, DELIMITER ';', FORCE_QUOTE *)",
     b'"DE";"Europe"\n"FR";"Europe"\n"TV";"Oceania"\n'),
    ("null", "COPY (TABLE countries) TO STDOUT (FORMAT csv, NULL 'none')",
     b"DE,Europe,83.50,t,1.5,1990-10-03\nFR,Europe,68.60,t,2.5,1789-07-14\nTV,Oceania,0.01,f,none,none\n"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), [row[1:] for row in COPIES], ids=[row[0] for row in COPIES])
def test_public_rows_are_copied(text: str, expected: bytes, client: psycopg.Connection, served: Served) -> None:
    before = served.charges()
    with client.cursor().copy(text) as copy:
        assert b"".join(map(bytes, copy)) == expected
    assert served.charges() == before


def test_a_public_table_is_copied_in_binary(client: psycopg.Connection) -> None:
    with client.cursor(row_factory=tuple_row).copy("COPY countries TO STDOUT (FORMAT binary)") as copy:
        copy.set_types(["text", "text", "numeric", "bool", "float8", "date"])
        rows = list(copy.rows())
    assert rows[2] == ("TV", "Oceania", Decimal("0.01"), False, None, None)
    with client.cursor().copy("COPY countries (country) TO STDOUT BINARY") as copy:
        data = b"".join(map(bytes, copy))
    assert data.startswith(b"PGCOPY\n\xff\r\n\0")
    assert data.endswith(struct.pack("!hi2sh", 1, 2, b"TV", -1))


def test_the_plan_of_a_public_statement_is_json_that_parses(client: psycopg.Connection) -> None:
    ((text,),) = client.execute("EXPLAIN (FORMAT JSON) SELECT '\"</a>é' AS x", binary=True).fetchall()
    assert json.loads(json.dumps(text))[0]["Plan"]["Cost"] == "nothing"
