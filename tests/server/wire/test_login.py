"""Coming in: passwords, TLS, versions of the protocol, and how much may be sent before anybody is known."""

from __future__ import annotations

import re
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import trustme
from support.hostile_bytes import message, receive
from support.server_kit import ACCOUNTS, PASSWORD, Served, serving
from support.surfaces_kit import POLICY

from dpsql.server.wire.channel import ClientLimits

TLS_REQUEST, GSS_REQUEST = struct.pack("!ii", 8, 80877103), struct.pack("!ii", 8, 80877104)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, authority: trustme.CA) -> Iterator[Served]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", "localhost").configure_cert(context)
    policy = (POLICY + ACCOUNTS).replace("[server]\n", "[server]\nconnections_per_user = 3\n")
    limits = ClientLimits(login_seconds=2.0)
    with serving(tmp_path_factory.mktemp("login"), tls=context, limits=limits, policy=policy) as found:
        yield found


def startup(*parameters: str, version: int = 3 << 16) -> bytes:
    body = b"".join(text.encode() + b"\0" for text in parameters) + b"\0"
    return struct.pack("!ii", 8 + len(body), version) + body


def talk(served: Served, *sent: bytes, wait: float = 5.0) -> bytes:
    """Return all that the server says until it hangs up, or until nothing more has come for so many seconds."""
    said = b""
    with socket.create_connection(("127.0.0.1", served.port), timeout=wait) as client:
        for data in sent:
            client.sendall(data)
        try:
            while part := client.recv(65536):
                said += part
        except TimeoutError:
            said += b"<waits>"
    return said


@pytest.mark.parametrize("user", ["ana", "nobody", "", "a\u0000b".replace("\u0000", " ")])
def test_a_wrong_password_and_an_unknown_name_are_told_the_same(user: str, served: Served) -> None:
    with pytest.raises(psycopg.OperationalError) as caught:
        psycopg.connect(host="127.0.0.1", port=served.port, user=user or " ", password="wrong", dbname="events")
    assert "The name or the password is wrong." in str(caught.value)


def test_tls_is_spoken_and_its_certificate_checked(served: Served, authority: trustme.CA, tmp_path: Path) -> None:
    root = tmp_path / "root.pem"
    authority.cert_pem.write_to_path(str(root))
    with psycopg.connect(f"{served.conninfo()} sslmode=verify-full sslrootcert={root}") as connection:
        assert connection.pgconn.ssl_in_use
        assert connection.execute("SELECT 1").fetchone() == (1,)
    with psycopg.connect(f"{served.conninfo()} sslmode=disable") as connection:
        assert not connection.pgconn.ssl_in_use


def test_what_is_sent_in_the_clear_behind_a_request_for_tls_is_refused(served: Served) -> None:
    said = talk(served, TLS_REQUEST + startup("user", "ana"))
    assert b"C08P01" in said
    assert not said.startswith(b"S")


def test_other_encryption_is_declined_and_asked_for_once(served: Served) -> None:
    assert talk(served, GSS_REQUEST, wait=0.5) == b"N<waits>"
    assert b"C08P01" in talk(served, GSS_REQUEST, GSS_REQUEST)


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"C08P01"),
        (struct.pack("!ii", 1 << 30, 3 << 16), b"C08P01"),
        (struct.pack("!ii", 4, 3 << 16), b"C08P01"),
        (startup("user", "ana", version=2 << 16), b"C0A000"),
        (startup("user", "ana", "replication", "database"), b"C0A000"),
        (struct.pack("!ii", 13, 3 << 16) + b"user\0", b"C08P01"),
        (startup("user", "ana") + b"Q" + struct.pack("!i", 13) + b"SELECT 1\0", b"C08P01"),
        (startup("user", "ana") + b"p" + struct.pack("!i", 1 << 28), b"C08P01"),
        (startup("user", "ana") + b"p" + struct.pack("!i", 8) + b"MD5\0", b"C08P01"),
    ],
)
def test_nonsense_before_the_login_ends_the_connection(sent: bytes, expected: bytes, served: Served) -> None:
    said = talk(served, sent)
    assert expected in said
    assert not said.endswith(b"<waits>")
    assert b"Traceback" not in said


def test_newer_versions_and_unknown_extensions_are_negotiated(served: Served) -> None:
    said = talk(served, startup("user", "ana", "_pq_.command_tag", "1", version=(3 << 16) + 9999), wait=0.5)
    assert said.startswith(b"v" + struct.pack("!iii", 29, (3 << 16) + 2, 1) + b"_pq_.command_tag\0")
    assert b"SCRAM-SHA-256\0\0" in said


def test_whoever_says_nothing_is_hung_up_on(served: Served) -> None:
    began = time.monotonic()
    assert b"C08006" in talk(served, startup("user", "ana"), wait=10)
    assert time.monotonic() - began > 1


def test_one_user_has_only_so_many_connections(served: Served) -> None:
    held = [psycopg.connect(served.conninfo("ben")) for _ in range(3)]
    with pytest.raises(
        psycopg.OperationalError, match=r"(?s)as many connections as are allowed: 3.*connections_per_user"
    ):
        psycopg.connect(served.conninfo("ben"))
    for connection in held:
        connection.close()
    for _ in range(50):
        try:
            psycopg.connect(served.conninfo("ben")).close()
            break
        except psycopg.OperationalError:
            time.sleep(0.05)
    else:
        pytest.fail("a connection that was closed is still counted")


def test_guesses_are_slowed_down(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        states = []
        for _ in range(8):
            with pytest.raises(psycopg.OperationalError) as caught:
                psycopg.connect(host="127.0.0.1", port=served.port, user="ana", password="wrong", dbname="events")
            states.append("Too many logins" in str(caught.value))
        assert not states[0]
        assert states[-1]
        assert re.search(r"Try again in [12] s\.", str(caught.value))
        assert PASSWORD not in served.log.getvalue()


@pytest.fixture
def opened() -> Iterator[Callable[..., socket.socket]]:
    connections: list[socket.socket] = []

    def open_one(served: Served, source: str = "127.0.0.1") -> socket.socket:
        connections.append(socket.create_connection(("127.0.0.1", served.port), 10, (source, 0)))
        return connections[-1]

    yield open_one
    for connection in connections:
        connection.close()


def test_guesses_that_are_made_at_once_are_looked_at_one_by_one(
    tmp_path: Path, opened: Callable[..., socket.socket]
) -> None:
    with serving(tmp_path) as served:
        begun = [opened(served) for _ in range(20)]
        for connection in begun:  # all are admitted, and asked for a proof
            connection.sendall(startup("user", "ana", "database", "events"))
            receive(connection, b"R")
            connection.sendall(message(b"p", b"SCRAM-SHA-256\0" + (17).to_bytes(4) + b"n,,n=,r=abcdefghi"))
        challenges = [receive(connection, b"R")[-1][1][4:].decode() for connection in begun]
        told = []
        for connection, challenge in zip(begun, challenges, strict=True):
            nonce = challenge.partition(",")[0]
            connection.sendall(message(b"p", f"c=biws,{nonce},p={'A' * 43}=".encode()))
            told.append(b"Too many logins" in receive(connection, b"E")[-1][1])
        assert told[:6] == [False] * 6
        assert sum(told) >= 10  # after a second, one more is looked at


def test_of_one_address_that_takes_half_of_the_logins_the_oldest_silent_one_gives_way(
    tmp_path: Path, opened: Callable[..., socket.socket]
) -> None:
    with serving(tmp_path, limits=ClientLimits(logins=8)) as served:
        greedy = [opened(served, "127.0.0.8") for _ in range(4)]
        greedy[0].sendall(startup("user", "ana", "database", "events"))
        assert receive(greedy[0], b"R")
        newest = opened(served, "127.0.0.8")
        assert greedy[1].recv(1) == b""  # hung up on
        newest.sendall(startup("user", "ana", "database", "events"))
        assert receive(newest, b"R")
        with psycopg.connect(served.conninfo()) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        for connection in (greedy[0], greedy[2], greedy[3]):
            connection.settimeout(0.1)
            with pytest.raises(TimeoutError):
                connection.recv(1)


def test_three_hundred_silent_clients_keep_nobody_from_logging_in(
    tmp_path: Path, opened: Callable[..., socket.socket]
) -> None:
    with serving(tmp_path) as served:
        for number in range(300):
            one = opened(served)
            if number % 2:
                one.sendall(startup("user", "ana", "database", "events"))
        began = time.monotonic()
        with psycopg.connect(served.conninfo()) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        assert time.monotonic() - began < 20
        assert len(served.wire._pending) <= 100


def test_the_server_names_a_version_that_clients_take(served: Served) -> None:
    with psycopg.connect(served.conninfo()) as connection:
        assert connection.info.server_version == 180000
        assert connection.info.parameter_status("server_version") == "18.0 (dpsql)"
        assert connection.info.parameter_status("standard_conforming_strings") == "on"


def test_from_another_machine_nothing_is_said_in_the_clear(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpsql.server.wire.channel.is_loopback", lambda _: False)
    with pytest.raises(psycopg.OperationalError, match="must be encrypted"):
        psycopg.connect(f"{served.conninfo()} sslmode=disable")
    with psycopg.connect(f"{served.conninfo()} sslmode=require") as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_with_require_tls_this_machine_is_refused_in_the_clear(tmp_path: Path, authority: trustme.CA) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate = authority.issue_cert("127.0.0.1")
    certificate.configure_cert(context)
    keys = "require_tls = true\ncertificate = 'cert.pem'\nkey = 'key.pem'\n"
    policy = (POLICY + ACCOUNTS).replace("[server]\n", f"[server]\n{keys}")
    with serving(tmp_path, tls=context, policy=policy) as served:
        with pytest.raises(psycopg.OperationalError, match=r"(?s)must be encrypted.*sslmode=require"):
            psycopg.connect(f"{served.conninfo()} sslmode=disable")
        assert b"R\0\0\0" not in talk(served, startup("user", "ana"))  # no password is asked for
        with psycopg.connect(f"{served.conninfo()} sslmode=require") as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
