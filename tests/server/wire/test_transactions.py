"""BEGIN, COMMIT and the rest, cursors and settings, as clients of PostgreSQL expect them; nothing is ever written."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.pq import TransactionStatus
from support.server_kit import TOP, Served, serving


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("transactions")) as found:
        yield found


@pytest.fixture
def client(served: Served) -> Iterator[psycopg.Connection]:
    with psycopg.connect(served.conninfo(), autocommit=True) as connection:
        yield connection


def sqlstate(client: psycopg.Connection, text: str) -> str | None:
    with pytest.raises(psycopg.Error) as caught:
        client.execute(text)
    return caught.value.sqlstate


def shown(client: psycopg.Connection, name: str) -> str:
    row = client.execute(f"SHOW {name}").fetchone()
    assert row is not None
    return str(row[0])


def test_a_transaction_that_failed_takes_nothing_but_its_end(client: psycopg.Connection) -> None:
    client.execute("BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY")
    assert client.info.transaction_status == TransactionStatus.INTRANS
    assert sqlstate(client, "SELECT nothing FROM countries") == "42703"
    assert client.info.transaction_status == TransactionStatus.INERROR
    assert sqlstate(client, "SELECT 1") == "25P02"
    assert client.execute("COMMIT").statusmessage == "ROLLBACK"
    assert client.execute("SELECT 1").fetchone() == (1,)


def test_a_savepoint_saves_the_transaction(client: psycopg.Connection) -> None:
    client.execute("BEGIN; SAVEPOINT here")
    assert sqlstate(client, "SELECT nothing FROM countries") == "42703"
    client.execute("ROLLBACK TO here; RELEASE SAVEPOINT here")
    assert sqlstate(client, "ROLLBACK TO here") == "3B001"
    client.execute("ROLLBACK")
    assert sqlstate(client, "SAVEPOINT here") == "25P01"


def test_a_wrong_begin_or_commit_warns(client: psycopg.Connection) -> None:
    warnings = list[str]()
    client.add_notice_handler(lambda notice: warnings.append(str(notice.sqlstate)))
    for text in ("COMMIT", "BEGIN", "BEGIN", "ROLLBACK", "ROLLBACK"):
        client.execute(text)
    assert warnings == ["25P01", "25001", "25P01"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("INSERT INTO countries VALUES (1)", "25006"),
        ("CREATE TEMPORARY TABLE x (y int)", "25006"),
        ("/* a */ delete from reads", "25006"),
        ("COPY reads FROM STDIN", "25006"),
        ("COPY countries TO '/tmp/x'", "42501"),
        ("COPY reads TO STDOUT", "42501"),
        ("NOTIFY x", "0A000"),
        ("PREPARE TRANSACTION 'x'", "0A000"),
        ("SET SESSION AUTHORIZATION ben", "42501"),
        ("SET client_encoding TO latin1", "0A000"),
        ("SET transaction_read_only TO off", "25006"),
        ("SET statement_timeout TO soon", "22023"),
        ("SHOW nothing_of_the_kind", "0A000"),
        ("SELECT x FROM nobody GROUP BY x TOP 3 PRIVATE", "42P01"),
        ("SELECT COUNT(*) FROM reads", "42501"),
        ("SELECT 1; SELECT", "42601"),
        ("FETCH 1 FROM nobody", "34000"),
        ("DECLARE c CURSOR FOR SELECT 1", "25P01"),
        ("FETCH 1 2 3", "42601"),
        ("DEALLOCATE nobody", "26000"),
    ],
)
def test_what_is_refused_has_the_sqlstate_that_clients_know(
    text: str, expected: str, client: psycopg.Connection
) -> None:
    assert sqlstate(client, text) == expected


def test_an_error_points_at_the_character_of_the_whole_text(client: psycopg.Connection) -> None:
    text = "SELECT 'ü';\n  SELECT nothing FROM countries"
    with pytest.raises(psycopg.Error) as caught:
        client.execute(text)
    assert caught.value.diag.statement_position == str(text.index("nothing") + 1)
    assert caught.value.diag.message_hint


def test_settings_return_with_the_end_of_a_transaction(client: psycopg.Connection) -> None:
    client.execute("SET application_name TO 'outside'; SET LOCAL application_name TO nothing")
    assert shown(client, "application_name") == "outside"
    assert client.info.parameter_status("application_name") == "outside"
    client.execute("BEGIN; SET application_name TO 'inside'; SET LOCAL search_path TO a, b")
    assert (shown(client, "application_name"), shown(client, "search_path")) == ("inside", "a, b")
    client.execute("ROLLBACK")
    assert (shown(client, "application_name"), shown(client, "search_path")) == ("outside", "main")
    assert client.info.parameter_status("application_name") == "outside"
    client.execute("BEGIN; SET application_name TO 'inside'; SET LOCAL search_path TO a; COMMIT")
    assert (shown(client, "application_name"), shown(client, "search_path")) == ("inside", "main")
    client.execute("DISCARD ALL")
    assert shown(client, "application_name") == ""


def test_a_setting_of_dpsql_that_there_is_not_is_refused(client: psycopg.Connection) -> None:
    assert sqlstate(client, "SET dpsql.nothing TO 'x'") == "42704"
    assert sqlstate(client, "SET dpsql.receipt TO 'x'") == "55P02"
    assert "dpsql.details" in {row[0] for row in client.execute("SHOW ALL").fetchall()}


def test_a_text_of_statements_succeeds_or_fails_as_one(client: psycopg.Connection) -> None:
    assert sqlstate(client, "SET application_name TO 'half'; SELECT nothing FROM countries") == "42703"
    assert shown(client, "application_name") == ""


def test_cursors_are_read_in_parts_and_end_with_their_transaction(client: psycopg.Connection) -> None:
    client.execute(f"BEGIN; DECLARE c SCROLL CURSOR FOR {TOP}; DECLARE kept CURSOR WITH HOLD FOR SELECT 7 AS x")
    assert [row[0] for row in client.execute("FETCH 2 FROM c")] == ["a0", "a1"]
    found = client.execute("FETCH ALL IN c")
    assert (found.fetchall()[0][0], found.statusmessage) == ("a2", "FETCH 1")
    assert client.execute("MOVE ABSOLUTE 1 IN c").statusmessage == "MOVE 1"
    assert [row[0] for row in client.execute("FETCH NEXT FROM c")] == ["a1"]
    assert [row[0] for row in client.execute("FETCH LAST FROM c")] == ["a2"]
    client.execute("COMMIT")
    assert sqlstate(client, "FETCH 1 FROM c") == "34000"
    assert client.execute("FETCH 1 FROM kept").fetchall() == [(7,)]
    assert client.execute("CLOSE ALL").statusmessage == "CLOSE CURSOR ALL"
    assert sqlstate(client, "FETCH 1 FROM kept") == "34000"


def test_declaring_a_cursor_charges_nothing_until_it_is_fetched_from(
    client: psycopg.Connection, served: Served
) -> None:
    before = served.charges()
    client.execute("BEGIN; DECLARE d CURSOR FOR SELECT country FROM reads GROUP BY country TOP 2 PRIVATE")
    assert served.charges() == before
    client.execute("FETCH 1 FROM d; FETCH 1 FROM d; COMMIT")
    assert served.charges() == before + 1


def test_only_a_service_account_asks_for_others_and_they_are_charged(served: Served) -> None:
    with psycopg.connect(served.conninfo("cleo"), autocommit=True) as other:
        assert sqlstate(other, "SET ROLE ana") == "42501"
        other.execute("SET ROLE cleo")
    before = {name: served.charges(name) for name in ("ana", "ben", "metabase")}
    text = "SELECT ts, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY ts TOP 2 PRIVATE"
    with psycopg.connect(served.conninfo("metabase"), autocommit=True) as service:
        assert sqlstate(service, "SET ROLE cleo") == "42501"
        service.execute("SET ROLE ben")
        service.execute(text)
        assert shown(service, "role") == "ben"
        service.execute("BEGIN; SET LOCAL ROLE ana")
        service.execute(text)
        service.execute("COMMIT")
        assert shown(service, "role") == "ben"
        service.execute("RESET ROLE")
        service.execute(text)
    assert {name: served.charges(name) - count for name, count in before.items()} == dict.fromkeys(before, 1)


def test_a_cursor_asks_for_whom_it_was_opened(served: Served) -> None:
    before = {name: served.charges(name) for name in ("ana", "ben")}
    with psycopg.connect(served.conninfo("metabase"), autocommit=True) as service:
        service.execute("SET ROLE ben")
        question = "SELECT article FROM reads WHERE country = 'FR' GROUP BY article TOP 2 PRIVATE"
        service.execute(f"DECLARE c CURSOR WITH HOLD FOR {question}")
        service.execute("SET ROLE ana")
        service.execute("FETCH 1 FROM c")
    assert {name: served.charges(name) - count for name, count in before.items()} == {"ana": 0, "ben": 1}


def test_a_role_may_be_given_with_the_connection(served: Served) -> None:
    with psycopg.connect(f"{served.conninfo('metabase')} options='-c role=ben -c application_name=x\\\\ y'") as service:
        assert (shown(service, "role"), shown(service, "application_name")) == ("ben", "x y")
    with pytest.raises(psycopg.OperationalError, match="may not act"):
        psycopg.connect(f"{served.conninfo('cleo')} options='-c role=ben'")


def test_a_role_that_was_given_with_the_connection_stays(served: Served) -> None:
    conninfo = f"{served.conninfo('metabase')} options='-c role=ben'"
    with psycopg.connect(conninfo, autocommit=True) as service:
        for other in (
            "SET ROLE ana",
            "SET ROLE NONE",
            "SET ROLE metabase",
            "SET role TO ana",
            "BEGIN; SET LOCAL ROLE ana",
        ):
            assert sqlstate(service, other) == "42501"
            service.execute("ROLLBACK")
        for same in ("SET ROLE ben", "RESET ROLE", "RESET ALL", "DISCARD ALL", "BEGIN; SET LOCAL ROLE ben; ROLLBACK"):
            service.execute(same)
            assert shown(service, "role") == "ben"
    with pytest.raises(psycopg.OperationalError, match="may not act"):
        psycopg.connect(f"{served.conninfo('metabase')} options='-c role=none'")


def test_an_empty_text_is_answered(client: psycopg.Connection) -> None:
    assert client.execute("").statusmessage in {None, ""}
    assert client.execute(" ; -- nothing\n;").statusmessage in {None, ""}


def test_the_receipt_is_a_notice_and_can_be_shown(client: psycopg.Connection) -> None:
    told = list[str]()
    client.add_notice_handler(lambda notice: told.append(str(notice.message_primary)))
    client.execute(TOP)
    assert "; ".join(told) == shown(client, "dpsql.receipt")
    assert " users in all groups (95 %: " in told[0]
    client.execute("SET client_min_messages TO warning")
    client.execute(TOP)
    assert len(told) == 2


def test_the_notice_says_that_counts_are_bounded(client: psycopg.Connection) -> None:
    said = list[str]()
    client.add_notice_handler(lambda notice: said.append(str(notice.message_primary)))
    client.execute(f"{TOP} WITH (max_groups_contributed = 1)")
    note = "each user counted in at most 1 group: true counts can be higher"
    assert note in said[1]
    assert note in shown(client, "dpsql.receipt")


@pytest.mark.parametrize("binary", [False, True])
def test_ends_of_intervals_are_whole_numbers_and_free(binary: bool, client: psycopg.Connection) -> None:
    count = "COUNT(DISTINCT user_id)"
    plain = client.execute(f"SELECT article, {count} AS n FROM reads GROUP BY article TOP 3 PRIVATE").fetchall()
    sql = f"SELECT article, {count} AS n, value_low(n) AS lo, value_high(n) FROM reads GROUP BY article TOP 3 PRIVATE"
    with client.cursor(binary=binary) as cursor:
        cursor.execute(sql, prepare=True)
        assert cursor.description is not None
        assert [(column.name, column.type_code) for column in cursor.description[1:]] == [
            ("n", 20),
            ("lo", 20),
            ("value_high(n)", 20),
        ]
        rows = cursor.fetchall()
    assert [row[:2] for row in rows] == plain
    assert all(low < n < high and n - low == high - n for _, n, low, high in rows)
    assert "stored answer, nothing was charged" in shown(client, "dpsql.receipt")
    both = client.execute(f"SELECT article, {count} AS n FROM reads GROUP BY 1 TOP 3 PRIVATE WITH (intervals = true)")
    assert [column.name for column in both.description or ()] == ["article", "n", "n_low", "n_high"]
    assert [row[:2] for row in both] == plain


def test_details_of_a_receipt_are_shown_where_they_are_wanted(client: psycopg.Connection) -> None:
    details = list[str | None]()
    client.add_notice_handler(lambda notice: details.append(notice.message_detail))
    client.execute(TOP)
    assert client.execute("SHOW dpsql.details").fetchone() == ("off",)
    client.execute("SET dpsql.details TO on")
    client.execute(TOP)
    assert details[:2] == [None, None]
    assert str(details[2]).startswith("mechanism: two_looks; legs: by counts about ")  # with the first notice
    assert details[3:] == [None]


def test_a_short_answer_is_explained_in_a_notice(client: psycopg.Connection) -> None:
    said = list[str]()
    client.add_notice_handler(lambda notice: said.append(str(notice.message_primary)))
    client.execute("SELECT article FROM reads WHERE user_id = 7 GROUP BY article TOP 3 PRIVATE WITH (known = false)")
    assert said[0].startswith("No article stood out, or there is none. At this price an article needs about ")
    assert said[1].startswith("answered 0 of 3; used ")
    assert said[2].startswith("warning: The condition on user_id leaves at most one user")
    shown = client.execute("SHOW dpsql.receipt").fetchone()
    assert shown == (f"{said[0]} {said[1]}; {said[2]}",)
