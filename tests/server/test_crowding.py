"""An analyst, or nobody at all, who sends as much as they can: the others are answered, and the server stops when told.

`python tests/support/crowding.py --help` measures more of it.
"""

from __future__ import annotations

import base64
import json
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest
from support.crowding import HONEST, PASSWORD, WORST, Server, fair, halves, others, serving, silent
from support.hostile_bytes import Login, log_in, query


def test_one_analysts_free_statements_hardly_delay_the_others() -> None:
    alone, crowded = fair(6, 2, connections=6)
    assert crowded < 10 * alone + 1.0  # the aim is measured by the script: here nothing may stand still


def test_rows_of_the_catalog_hardly_delay_the_others() -> None:
    [(_, alone, crowded)] = others(["rows"], 1, rest=0)
    for name, median in crowded.items():
        assert median < 10 * alone[name] + 0.5, name


def test_silent_connections_lock_nobody_out() -> None:
    assert max(silent(150).values()) < 10


def test_half_requests_are_no_faults() -> None:
    lines, faults = halves(300)
    assert (lines <= 20, faults) == (True, 0)


def leave_postgres(server: Server) -> None:
    with socket.create_connection(("127.0.0.1", server.ports["postgres"])) as leaving:
        log_in(leaving, Login("analyst1", PASSWORD))
        leaving.sendall(query(WORST))
        time.sleep(0.5)


def leave_web(server: Server) -> None:
    body = json.dumps({"sql": WORST}).encode()
    proof = base64.b64encode(f"analyst1:{PASSWORD}".encode()).decode()
    head = (
        f"POST /api/v1/query HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Basic {proof}\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.ports["web"])) as leaving:
        leaving.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        time.sleep(0.5)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(3) as started:
        yield started


@pytest.mark.parametrize("leave", [leave_postgres, leave_web])
def test_a_public_statement_ends_with_its_client(server: Server, leave: Callable[[Server], None]) -> None:
    for _ in range(4):  # more than an analyst has places for
        leave(server)
    began = time.monotonic()
    with psycopg.connect(server.conninfo("analyst1"), autocommit=True) as connection:
        assert connection.execute(HONEST[1]).fetchone() == ("c7",)
    assert time.monotonic() - began < 15


def test_a_public_statement_ends_when_it_is_cancelled_and_others_go_on_meanwhile(server: Server) -> None:
    with psycopg.connect(server.conninfo("analyst1"), autocommit=True) as greedy:
        failures: list[str] = []

        def running() -> None:
            try:
                greedy.execute(WORST)
            except psycopg.Error as error:
                failures.append(str(error.sqlstate))

        thread = threading.Thread(target=running)
        thread.start()
        time.sleep(0.5)
        for name, texts in (("analyst1", [HONEST[0], *HONEST[2:]]), ("analyst2", HONEST)):
            with psycopg.connect(server.conninfo(name), autocommit=True) as other:
                for text in texts:  # of public statements, an analyst has one at a time
                    assert other.execute(text).fetchall()
        assert thread.is_alive()
        greedy.cancel()
        thread.join(20)
        assert failures == ["57014"]


def test_sigterm_ends_it_within_ten_seconds_though_a_client_never_reads() -> None:
    with serving(3) as server:
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect(("127.0.0.1", server.ports["postgres"]))
            log_in(deaf, Login("analyst1", PASSWORD))
            wide = ", ".join(f"a.name AS n{number}" for number in range(30))
            deaf.sendall(query(f"SELECT {wide} FROM countries a, countries b LIMIT 300000"))
            greedy = psycopg.connect(server.conninfo("analyst2"), autocommit=True)
            failures: list[object] = []

            def running() -> None:
                try:
                    greedy.execute(WORST)
                except psycopg.Error as error:
                    failures.append(error)

            thread = threading.Thread(target=running)
            thread.start()
            time.sleep(3)
            began = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            server.process.wait(15)
            assert time.monotonic() - began < 10
            thread.join(10)
            assert len(failures) == 1
        greedy.close()
