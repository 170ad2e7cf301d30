"""The guard in front of pyarrow's server: what never reaches it."""

from __future__ import annotations

import base64
import json
import os
import socket
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.flight as fl
import pytest
from support.flight_messages import packed

from dpsql.errors import PolicyError
from dpsql.server.flight import connection_guard, serve_flight
from dpsql.server.flight.frames import PREFACE, Frame

from .conftest import Served

SETTINGS, END_HEADERS = Frame(4, 0, 0, b""), 4


@pytest.fixture
def plug(served: Served) -> Iterator[Callable[[], socket.socket]]:
    plugs: list[socket.socket] = []

    def connect() -> socket.socket:
        plugs.append(socket.create_connection(("localhost", served.flight.port), timeout=10))
        return plugs[-1]

    yield connect
    for one in plugs:
        one.close()


def is_over(connection: socket.socket) -> bool:
    """Say whether the server has ended a connection, once everything that it sent is read."""
    try:
        while connection.recv(65_536):
            pass
    except ConnectionResetError:
        return True
    return True


def test_a_message_of_any_length_is_not_waited_for(served: Served) -> None:
    client, options = served.client()
    before = psutil.Process().memory_info().rss
    for _ in range(3):
        with pytest.raises((fl.FlightError, pa.ArrowException, OSError)):
            list(client.do_action(fl.Action("BeginTransaction", b"x" * 50_000_000), options))
    assert psutil.Process().memory_info().rss - before < 120_000_000  # the client's own copies are in it
    assert list(served.client()[0].list_actions(options))


def test_a_message_that_announces_too_much_ends_the_connection(plug: Callable[[], socket.socket]) -> None:
    connection = plug()
    head = Frame(1, END_HEADERS, 1, b"\x83\x86\x44\x01/")
    connection.sendall(PREFACE + SETTINGS.bytes + head.bytes + Frame(0, 0, 1, b"\x00\xff\xff\xff\xff").bytes)
    assert is_over(connection)


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", os.urandom(200), PREFACE + b"\xff" * 9])
def test_who_does_not_speak_http_2_is_put_down(plug: Callable[[], socket.socket], sent: bytes) -> None:
    connection = plug()
    connection.sendall(sent)
    assert is_over(connection)


def test_who_does_not_log_in_is_put_down(
    served: Served, plug: Callable[[], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_guard, "_LOGIN_SECONDS", 0.3)
    silent, polite = plug(), plug()
    polite.sendall(PREFACE + SETTINGS.bytes)
    client, options = served.client()
    assert is_over(silent)
    assert is_over(polite)
    time.sleep(0.3)
    assert list(client.list_actions(options))  # who has logged in stays


def test_connections_of_users_are_counted_and_bounded(served: Served, plug: Callable[[], socket.socket]) -> None:
    most = served.front.service.policy.server.max_connections
    silent = [plug() for _ in range(min(most, 50))]  # which take no place of a user's
    for connection in silent:
        connection.sendall(PREFACE + SETTINGS.bytes)
        assert connection.recv(9)
    assert served.front.telemetry.open_connections() == 0
    client, options = served.client()
    assert list(client.list_actions(options))
    assert served.front.telemetry.open_connections() == 1
    client.close()
    deadline = time.monotonic() + 10
    while served.front.telemetry.open_connections() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert served.front.telemetry.open_connections() == 0
    for connection in silent:
        connection.close()


def test_a_user_beyond_the_most_connections_is_hung_up_on(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(served.front), "enter", lambda *_: False)

    def called_for_a_while() -> None:
        client, options = served.client()
        for _ in range(100):
            list(client.list_actions(options))
            time.sleep(0.02)

    with pytest.raises((fl.FlightError, pa.ArrowException, OSError)):
        called_for_a_while()


def test_many_silent_clients_keep_nobody_from_logging_in(served: Served, plug: Callable[[], socket.socket]) -> None:
    silent = [plug() for _ in range(150)]
    client, options = served.client()
    assert list(client.list_actions(options))
    assert is_over(silent[0])
    assert len(served.flight._guard._pending) <= 100


def test_an_address_that_a_client_makes_up_is_not_believed(served: Served) -> None:
    client = fl.connect(served.uri)
    header = (b"x-dpsql-door", b"203.0.113.7")
    with pytest.raises(fl.FlightUnauthenticatedError):
        client.authenticate_basic_token("alice", "wrong horse", fl.FlightCallOptions(headers=[header]))
    assert "203.0.113.7" not in served.log.getvalue()
    assert "login-failed" in served.log.getvalue()


def test_the_server_behind_the_guard_is_nobody_elses(served: Served) -> None:
    inside = Path(served.flight._guard._inside)
    assert stat.S_IMODE(inside.parent.stat().st_mode) == 0o700
    served.run(served.flight.close())
    assert not inside.parent.exists()


def test_other_machines_need_tls(served: Served) -> None:
    with pytest.raises(PolicyError, match=r"\[policy-tls\]"):
        served.run(serve_flight(served.front, ("0.0.0.0", 0)))


def test_a_large_answer_arrives_whole(served: Served) -> None:
    joined = " CROSS JOIN ".join(f"countries c{at}" for at in range(11))
    client, options = served.client()
    command = packed("CommandStatementQuery", (1, f"SELECT c0.country, c1.continent, c2.since FROM {joined}"))
    info = client.get_flight_info(fl.FlightDescriptor.for_command(command), options)
    batches = list(client.do_get(info.endpoints[0].ticket, options))
    assert sum(batch.data.num_rows for batch in batches) == 3**11
    assert len(batches) > 1
    assert max(batch.data.nbytes for batch in batches) < 5_000_000


def literal(name: bytes, value: bytes, *, length: int | None = None) -> bytes:
    """Return a header as HPACK writes it out; with another `length`, its value is made to be what follows."""
    return bytes([0, len(name)]) + name + bytes([len(value) if length is None else length]) + value


def test_the_guards_header_cannot_be_made_the_value_of_a_clients(
    served: Served, plug: Callable[[], socket.socket]
) -> None:
    before = [
        b"\x83\x86",  # POST, http
        literal(b":path", b"/arrow.flight.protocol.FlightService/Handshake"),
        literal(b":authority", b"localhost"),
        literal(b"te", b"trailers"),
        literal(b"content-type", b"application/grpc"),
        literal(b"authorization", b"Basic " + base64.b64encode(b"alice:wrong horse")),
        literal(b"x-dpsql-door", b"1 203.0.113.7"),
    ]
    length = len(literal(b"x-dpsql-door", b"d" * 32))
    for swallowed in range(length - 24, length + 1):
        block = b"".join([*before, literal(b"x-any-bin", b"", length=swallowed)])
        connection = plug()
        connection.sendall(PREFACE + SETTINGS.bytes + Frame(1, END_HEADERS, 1, block).bytes)
        connection.settimeout(0.1)
        with suppress(TimeoutError, ConnectionResetError):
            while connection.recv(65_536):
                pass
    served.client()  # a login of another connection is told by then
    logged = list(map(json.loads, served.log.getvalue().splitlines()))
    assert {one["address"] for one in logged if one["event"].startswith("login")} <= {"127.0.0.1", "::1"}
