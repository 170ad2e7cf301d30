"""Coming in: passwords, TLS, versions of the protocol, and how much may be sent before anybody is known."""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import trustme
from server.kit import PASSWORD, Served, serving

from dpsql.server.wire.stream import Limits

TLS_REQUEST, GSS_REQUEST = struct.pack("!ii", 8, 80877103), struct.pack("!ii", 8, 80877104)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, authority: trustme.CA) -> Iterator[Served]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", "localhost").configure_cert(context)
    limits = Limits(login_seconds=2.0, connections_of_one=3)
    with serving(tmp_path_factory.mktemp("login"), tls=context, limits=limits) as found:
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
    assert 1.0 < time.monotonic() - began < 8.0


def test_one_user_has_only_so_many_connections(served: Served) -> None:
    held = [psycopg.connect(served.conninfo("ben")) for _ in range(3)]
    with pytest.raises(psycopg.OperationalError, match="too many connections"):
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
        assert PASSWORD not in served.log.getvalue()


def test_the_server_names_a_version_that_clients_take(served: Served) -> None:
    with psycopg.connect(served.conninfo()) as connection:
        assert connection.info.server_version == 180004
        assert connection.info.parameter_status("server_version") == "18.4 (dpsql)"
        assert connection.info.parameter_status("standard_conforming_strings") == "on"


def test_from_another_machine_nothing_is_said_in_the_clear(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpsql.server.wire.startup.is_loopback", lambda _: False)
    with pytest.raises(psycopg.OperationalError, match="Connections are encrypted here"):
        psycopg.connect(f"{served.conninfo()} sslmode=disable")
    with psycopg.connect(f"{served.conninfo()} sslmode=require") as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
