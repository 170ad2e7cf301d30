"""Whatever bytes arrive, the server goes on, tells nothing, charges for no more than was asked, and serves others.

`python tests/support/wire_fuzz.py --help` says how to send millions.
"""

from __future__ import annotations

import gc
import os
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random, SystemRandom

import psycopg
import pytest
from support.hostile_bytes import ASKS, SYNC, Login, execute, frames, log_in, message, query, receive, startup
from support.server_kit import PASSWORD, Served
from support.wire_fuzz import CANARY, Tally, attack, decoded, knock, watched

from dpsql.server.wire.channel import ClientLimits

SEED = SystemRandom().getrandbits(63) if os.environ.get("DPSQL_FUZZ") else 8
DECODED = 90_000
CAREFUL = 6_000
WILD = 10_000
STRANGERS = 300
GIGABYTE = 1 << 30


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    limits = ClientLimits(login_seconds=5.0, logins=20)
    with watched(tmp_path_factory.mktemp("served"), limits) as running:
        yield running


@contextmanager
def another_client(served: Served) -> Iterator[list[float]]:
    """Let a client ask all the time, and yield how long each of its answers took; it must get every one."""
    taken, ended, failures = list[float](), threading.Event(), list[Exception]()

    def ask() -> None:
        try:
            while not ended.wait(0.02):
                began = time.monotonic()
                with psycopg.connect(served.conninfo("cleo"), connect_timeout=30) as connection:
                    assert connection.execute("SELECT 1").fetchall() == [(1,)]
                taken.append(time.monotonic() - began)
        except Exception as error:  # noqa: BLE001 - whatever it is
            failures.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield taken
    finally:
        ended.set()
        thread.join()
    assert failures == []
    assert max(taken) < 20


def memory() -> int:
    """Return how many bytes this process, and so the server, holds."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def check_calm(served: Served) -> None:
    gc.collect()  # a task that ended in an error tells the loop when it is collected
    assert served.faults == []
    assert "fault" not in served.log.getvalue()
    assert CANARY not in served.log.getvalue()


def test_ninety_thousand_messages_are_read_or_malformed() -> None:
    tally = decoded(Random(SEED), DECODED)
    assert tally.failures == []
    assert tally.messages >= DECODED
    assert min(tally.kinds.values()) > DECODED // 20, tally.kinds


@pytest.mark.parametrize(
    "told",
    [
        message(b"D", f"\0\1\0\0\0\6{CANARY}".encode()),
        message(b"E", b"SERROR\0C58000\0MTraceback (most recent call last)\0\0"),
        message(b"E", b"SERROR\0CXX000\0MThe server failed.\0\0"),
        message(b"E", b"SERROR\0MNo state.\0\0"),
        message(b"Z", b"I")[:-1],
        message(b"y"),
    ],
)
def test_what_should_not_come_back_is_found(told: bytes) -> None:
    tally = Tally()
    tally.judge(told, b"")
    assert len(tally.failures) == 1


def test_messages_that_ask_for_no_answer_are_not_charged(served: Served) -> None:
    before = memory()
    with another_client(served) as taken:
        tally = attack(
            ("127.0.0.1", served.port), Login("ben", PASSWORD), random=Random(SEED), messages=CAREFUL, asks=False
        )
    assert tally.failures == []
    assert tally.executions == 0
    assert served.charges("ben") == 0
    assert set("Z123TtE") <= set(tally.kinds), tally.kinds
    assert len(taken) > 5
    assert memory() - before < 200 << 20
    check_calm(served)


def test_messages_of_an_analyst_charge_at_most_what_they_ask(served: Served) -> None:
    before = memory()
    with another_client(served) as taken:
        tally = attack(
            ("127.0.0.1", served.port), Login("ana", PASSWORD), random=Random(SEED + 1), messages=WILD, asks=True
        )
    assert tally.failures == []
    assert served.charges("ana") <= tally.executions
    assert {"08P01", "22021", "26000", "34000", "42601", "25P02", "42501"} <= set(tally.states), tally.states
    assert set("DCIHdc") <= set(tally.kinds), tally.kinds
    assert len(taken) > 5
    assert memory() - before < 200 << 20
    check_calm(served)


def test_strangers_get_nothing_and_nobody_pays(served: Served) -> None:
    users = ("ana", "ben", "cleo")
    before = [served.charges(user) for user in users]
    tallies = [
        knock(("127.0.0.1", served.port), random=Random(SEED + at), connections=STRANGERS // 3, source=f"127.0.0.{at}")
        for at in (2, 3, 4)
    ]
    total = sum((tally.kinds for tally in tallies), Counter[str]())
    assert [failure for tally in tallies for failure in tally.failures] == []
    assert set(total) <= set("REv")  # a question for a proof, an error, a version: no row, no setting, no key
    assert [served.charges(user) for user in users] == before
    check_calm(served)


def opened(served: Served, source: str = "127.0.0.9") -> socket.socket:
    return socket.create_connection(("127.0.0.1", served.port), timeout=30, source_address=(source, 0))


@pytest.mark.parametrize("length", [0, 3, 4, 7, -1, GIGABYTE, 0x7FFFFFFF])
def test_a_first_packet_of_an_impossible_length_ends_the_connection_at_once(served: Served, length: int) -> None:
    with opened(served) as connection:
        connection.sendall(struct.pack("!i", length))
        began = time.monotonic()
        told = receive(connection, b"E")
        assert told == [] or told[0][0] == b"E"
        assert time.monotonic() - began < 30


@pytest.mark.parametrize("length", [0, 3, -1, GIGABYTE])
def test_a_message_of_an_impossible_length_ends_the_connection_at_once(served: Served, length: int) -> None:
    with opened(served) as connection:
        log_in(connection, Login("ana", PASSWORD))
        connection.sendall(b"Q" + struct.pack("!i", length))
        assert b"08P01" in receive(connection, b"E")[-1][1]
        assert connection.recv(1) == b""


def test_whoever_is_slow_to_log_in_is_left_while_others_come_in(served: Served) -> None:
    packet = startup(user="ana", database="events")
    began = time.monotonic()
    slow = [opened(served, "127.0.0.8") for _ in range(10)]
    with another_client(served):
        for at in range(8):  # a byte every now and then
            for connection in slow:
                send_if_open(connection, packet[at : at + 1])
            time.sleep(0.3)
        for connection in slow:
            assert {kind for kind, _ in frames(rest(connection))} <= {b"E"}
            connection.close()
    assert time.monotonic() - began < 30


def send_if_open(connection: socket.socket, data: bytes) -> None:
    try:
        connection.sendall(data)
    except OSError:
        return


def rest(connection: socket.socket) -> bytes:
    """Return what is sent up to the end of a connection, which must come."""
    got = b""
    try:
        while more := connection.recv(4096):
            got += more
    except ConnectionResetError:
        pass
    return got


def test_a_cancel_needs_the_key_of_the_connection(served: Served) -> None:
    with opened(served) as connection:
        log_in(connection, Login("ana", PASSWORD))
        for number in range(40):
            with opened(served) as other:
                other.sendall(struct.pack("!iiii", 16, 80877102, number, number))
                assert other.recv(1) == b""
        connection.sendall(query("SELECT 1"))
        assert [kind for kind, _ in receive(connection, b"Z")] == [b"T", b"D", b"C", b"Z"]


def test_tls_may_be_asked_for_once_and_a_second_start_is_no_message(served: Served) -> None:
    asking = struct.pack("!ii", 8, 80877103)
    with opened(served) as connection:
        connection.sendall(asking)
        assert connection.recv(1) == b"N"
        connection.sendall(asking)
        assert b"08P01" in rest(connection)
    with opened(served) as connection:
        log_in(connection, Login("ana", PASSWORD))
        connection.sendall(startup(user="ben", database="events"))  # its first byte is the type of no message
        told = rest(connection)
        assert [kind for kind, _ in frames(told)] == [b"E"]
        assert b"08P01" in told


def test_questions_before_the_login_are_not_answered(served: Served) -> None:
    before = served.charges("ana")
    for early in (query(ASKS[0]), execute() + SYNC, message(b"P", b"\0SELECT 1\0\0\0") + SYNC):
        with opened(served) as connection:
            connection.sendall(startup(user="ana", database="events") + early)
            told = receive(connection, b"E")
            assert [kind for kind, _ in told] in ([b"R", b"E"], [b"E"])
    assert served.charges("ana") == before
