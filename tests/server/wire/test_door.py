"""Every statement of the wire is counted, limited and logged, takes turns, and leaves the event loop to others."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator

import psycopg
import pytest
from support.catalog_corpus import CORPUS
from support.hostile_bytes import Login, log_in, message, query
from support.loop_stalls import CROWDS, longest_stall
from support.server_kit import PASSWORD, TOP, Served, serving

from dpsql.server.limits import Throttle

COUNTED = re.compile(r'^dpsql_statements_total\{kind="(\w+)",surface="postgres"} ([0-9.]+)$', re.MULTILINE)
BY_KIND = {
    "private": [TOP],
    "replay": [TOP],
    "free": ["SELECT 1", "EXPLAIN SELECT 1", "SHOW TABLES", "SELECT one FROM v"],
    "catalog": [
        "SELECT count(*) FROM pg_class",
        "SELECT count(*) FROM pg_class",  # stored
        "SELECT count(*) FROM pg_class WHERE relname <> clock_timestamp()::text",
        "SELECT version()",
        "COPY (SELECT 1 FROM pg_class) TO STDOUT",
    ],
    "show": ["SHOW timezone", "SHOW ALL", "SHOW role", "SHOW max_connections"],
    "constant": ["SELECT set_config('application_name', 'x', false)", "SELECT pg_advisory_unlock_all()"],
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("door"), catalog="auto") as one:
        yield one


def counts(served: Served) -> dict[str, float]:
    return {kind: float(count) for kind, count in COUNTED.findall(served.front.telemetry.metrics())}


def send(connection: psycopg.Connection, text: str) -> None:
    if text.startswith("COPY"):
        with connection.cursor().copy(text.encode()) as copied:
            list(copied)
    else:
        connection.execute(text.encode())


def test_each_kind_of_statement_is_counted_and_logged_as_one_of_that_kind(served: Served) -> None:
    with psycopg.connect(served.conninfo(), autocommit=True, prepare_threshold=None) as connection:
        connection.execute("CREATE TEMPORARY VIEW v AS SELECT 1 AS one")
        for kind, texts in BY_KIND.items():
            for text in texts:
                before, start = counts(served), len(served.log.getvalue())
                send(connection, text)
                after = counts(served)
                assert {name for name in after if after[name] != before.get(name)} == {kind}, text
                assert after[kind] == before.get(kind, 0) + 1
                lines = [json.loads(line) for line in served.log.getvalue()[start:].splitlines()]
                found = [(line["event"], line["analyst"], line["kind"]) for line in lines]
                assert found == [("answered", "ana", kind)], text


def test_descriptions_are_counted_whether_they_are_known_or_not(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as client:
        log_in(client, Login("ben", PASSWORD))
        for text in (b"SELECT article FROM reads GROUP BY article TOP 1 PRIVATE", b"SELECT relname FROM pg_class"):
            for _ in range(2):
                before = counts(served).get("describe", 0)
                client.sendall(message(b"P", b"\0" + text + b"\0\0\0") + message(b"D", b"S\0") + message(b"S"))
                received = b""
                while not received.endswith(b"Z\0\0\0\5I"):
                    received += client.recv(1 << 16)
                assert b"T\0" in received
                assert counts(served)["describe"] == before + 1


@pytest.mark.parametrize("kind", ["catalog", "show", "constant"])
def test_what_reads_no_table_counts_as_a_statement_too(kind: str, served: Served) -> None:
    front = served.front
    front.throttle.set_limit(10)
    try:
        with psycopg.connect(served.conninfo("cleo"), autocommit=True, prepare_threshold=None) as connection:
            for text in (BY_KIND[kind] * 10)[:10]:
                send(connection, text)
            for _ in range(2):
                with pytest.raises(psycopg.errors.InsufficientResources, match="too-many-statements"):
                    send(connection, BY_KIND[kind][0])
            with pytest.raises(psycopg.errors.InsufficientResources, match="too-many-statements"):
                connection.execute("SELECT 1")
            connection.execute("BEGIN")
            connection.execute("COMMIT")
    finally:
        front.throttle.set_limit(100_000)


def test_the_default_limit_admits_every_recorded_session_of_a_tool_at_once() -> None:
    throttle = Throttle(clock=lambda: 0.0)
    assert all(throttle.may_ask("ana") for _ in range(2 * len(CORPUS)))
    assert len(CORPUS) > 200


def test_refusals_of_the_catalog_are_counted_and_do_not_displace_others(served: Served) -> None:
    telemetry = served.front.telemetry
    with psycopg.connect(served.conninfo("ben"), autocommit=True) as connection:
        before = telemetry.refusals(5)
        with pytest.raises(psycopg.errors.UndefinedColumn):
            connection.execute("SELECT no_such FROM pg_class")
    assert telemetry.refusals(5) == before
    assert re.search(r'dpsql_refusals_total\{code="catalog",surface="postgres"} [1-9]', telemetry.metrics())
    assert '"fault"' not in served.log.getvalue()


def test_lines_of_the_log_that_tools_cause_are_limited(served: Served) -> None:
    with psycopg.connect(served.conninfo("ben"), autocommit=True) as connection, connection.pipeline():
        for _ in range(700):
            connection.execute("SHOW timezone")
    lines = [json.loads(line) for line in served.log.getvalue().splitlines()]
    assert sum(line.get("kind") == "show" for line in lines) == 600


@pytest.mark.parametrize("kind", CROWDS)
def test_nothing_that_a_client_sends_keeps_the_event_loop_from_others(kind: str, served: Served) -> None:
    if kind in {"unread", "cursors"}:
        pytest.skip("test_crowding sends them")
    assert longest_stall(served, kind, 1) < 0.05  # of the processor; half of them took 0.2 before


def test_a_text_of_many_statements_lets_others_be_served_after_each(served: Served) -> None:
    text = "SELECT 1;" * 900
    with (
        socket.create_connection(("127.0.0.1", served.port)) as client,
        psycopg.connect(served.conninfo("ben"), autocommit=True) as other,
    ):
        log_in(client, Login("ana", PASSWORD))
        other.execute("SELECT 1")
        done = threading.Event()

        def receive() -> None:
            tail = b""
            client.sendall(query(text))
            while b"Z\0\0\0\5" not in tail:
                tail = tail[-5:] + client.recv(1 << 16)
            done.set()

        thread = threading.Thread(target=receive)
        thread.start()
        served_meanwhile = 0
        while not done.is_set():
            other.execute("SELECT 1")
            served_meanwhile += not done.is_set()
        thread.join()
    assert served_meanwhile > 10  # it was 1 when a text ran in one turn


def test_a_text_of_many_statements_is_cancelled_between_two(served: Served) -> None:
    text = "".join(f"SELECT {number} + 1;" for number in range(900))
    with psycopg.connect(served.conninfo("ben"), autocommit=True) as connection:
        connection.execute("SELECT 1")
        before = counts(served)["free"]
        threading.Timer(0.2, connection.cancel_safe).start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute(text.encode())
    assert counts(served)["free"] < before + 900
