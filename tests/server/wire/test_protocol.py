"""Messages as bytes: what no driver sends, or sends in its own way."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from scramp import ScramClient
from support.server_kit import PASSWORD, TOP, Served, serving

from dpsql.server.wire.channel import ClientLimits

SYNC, FLUSH, END = b"S\0\0\0\4", b"H\0\0\0\4", b"X\0\0\0\4"


class Raw:
    """A client that sends what it is told."""

    def __init__(self, served: Served) -> None:
        self.socket = socket.create_connection(("127.0.0.1", served.port), timeout=10)
        body = b"user\0ana\0\0"
        self.socket.sendall(struct.pack("!ii", 8 + len(body), 3 << 16) + body)
        scram = ScramClient(["SCRAM-SHA-256"], "ana", PASSWORD)
        self.read()
        first = scram.get_client_first().encode()
        self.send(b"p", b"SCRAM-SHA-256\0", struct.pack("!i", len(first)), first)
        scram.set_server_first(self.read()[1][4:].decode())
        self.send(b"p", scram.get_client_final().encode())
        scram.set_server_final(self.read()[1][4:].decode())
        self.until_ready()

    def send(self, kind: bytes, *parts: bytes) -> None:
        data = b"".join(parts)
        self.socket.sendall(kind + struct.pack("!i", len(data) + 4) + data)

    def read(self) -> tuple[bytes, bytes]:
        head = self.exactly(5)
        return head[:1], self.exactly(struct.unpack("!i", head[1:])[0] - 4)

    def exactly(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            part = self.socket.recv(count - len(found))
            if not part:
                raise EOFError
            found += part
        return found

    def until_ready(self) -> list[tuple[bytes, bytes]]:
        found = []
        while not found or found[-1][0] != b"Z":
            found.append(self.read())
        return found

    def said(self) -> str:
        """Return the types of what is said until it is ready, with the SQLSTATEs of errors."""
        return " ".join(_named(kind, data) for kind, data in self.until_ready())


def _named(kind: bytes, data: bytes) -> str:
    code = next((field[1:] for field in data.split(b"\0") if field[:1] == b"C"), b"") if kind == b"E" else b""
    return (kind + code).decode()


def parse(text: str, name: str = "", *types: int) -> tuple[bytes, ...]:
    return b"P", name.encode(), b"\0", text.encode(), b"\0", struct.pack(f"!h{len(types)}i", len(types), *types)


def bind(*values: bytes, portal: str = "", results: tuple[int, ...] = ()) -> tuple[bytes, ...]:
    given = b"".join(struct.pack("!i", len(value)) + value for value in values)
    codes = struct.pack(f"!h{len(results)}h", len(results), *results)
    return b"B", portal.encode(), b"\0\0\0\0", struct.pack("!h", len(values)), given, codes


def execute(most: int = 0, portal: str = "") -> tuple[bytes, ...]:
    return b"E", portal.encode(), b"\0", struct.pack("!i", most)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("protocol")) as found:
        yield found


@pytest.fixture
def raw(served: Served) -> Iterator[Raw]:
    client = Raw(served)
    yield client
    client.socket.close()


def test_rows_come_in_parts_until_all_have_come(raw: Raw) -> None:
    raw.send(*parse(TOP))
    raw.send(*bind())
    for _ in range(3):
        raw.send(*execute(2))
    raw.socket.sendall(SYNC)
    assert raw.said() == "1 2 N N D D s D C C Z"  # notices of the total and of the receipt


def test_a_portal_ends_with_its_transaction(raw: Raw) -> None:
    raw.send(*parse(TOP))
    raw.send(*bind(portal="p"))
    raw.socket.sendall(SYNC)
    assert raw.said() == "1 2 Z"
    raw.send(*execute(0, "p"))
    raw.socket.sendall(SYNC)
    assert raw.said() == "E34000 Z"


def test_everything_behind_an_error_is_passed_over_until_sync(raw: Raw) -> None:
    raw.send(*parse("SELECT 1; SELECT 2"))
    raw.send(b"Q", b"SELECT 1\0")
    raw.send(b"P", b"not even a message")
    raw.send(*bind())
    raw.socket.sendall(SYNC)
    assert raw.said() == "E42601 Z"
    raw.send(b"Q", b"SELECT 1\0")
    assert raw.said() == "T D C Z"


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ((b"Q", b"SELECT '\xff'\0"), "E22021 Z"),
        ((b"Q", b"SELECT 1"), "E08P01 Z"),
        ((b"Q", b"SELECT 1\0more"), "E08P01 Z"),
        ((b"Q", b"\0"), "I Z"),
        ((b"Q", b"SELECT 1;" * 2000 + b"\0"), "E54000 Z"),
        ((b"Q", b"SELECT " + b"1+" * 100_000 + b"1\0"), "E54000 Z"),
        ((b"F", b"\0\0\0\1\0\0\0\0\0\0"), "E0A000 Z"),
    ],
)
def test_what_is_wrong_in_the_simple_protocol_is_told_without_a_sync(
    message: tuple[bytes, ...], said: str, raw: Raw
) -> None:
    raw.send(*message)
    assert raw.said() == said
    raw.send(b"Q", b"SELECT 1\0")
    assert raw.said() == "T D C Z"


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([(b"D", b"Snobody\0")], "E26000 Z"),
        ([(b"D", b"Xnobody\0")], "E08P01 Z"),
        ([(b"B", b"\0nobody\0\0\0\0\0\0\0")], "E26000 Z"),
        ([parse("SELECT $1"), bind(), execute()], "1 2 E08P01 Z"),
        ([parse("SELECT 1"), bind(b"1")], "1 E08P01 Z"),
        ([parse("SELECT 1"), bind(results=(2,)), execute()], "1 2 E22023 Z"),
        ([parse("SELECT 1"), bind(results=(0, 0)), execute()], "1 2 E08P01 Z"),
        ([parse("SELECT $1", "", 114), bind(b"{}"), execute()], "1 2 E0A000 Z"),
        ([parse("SELECT 1", "p"), parse("SELECT 1", "p")], "1 E42P05 Z"),
        ([parse(""), bind(), execute()], "1 2 I Z"),
        ([parse("BEGIN"), bind(), execute(), execute()], "1 2 C E55000 Z"),
        ([(b"C", b"Snobody\0"), (b"C", b"Pnobody\0")], "3 3 Z"),
        ([(b"d", b"rows"), (b"c",), (b"f", b"no\0")], "Z"),
    ],
)
def test_what_is_wrong_in_the_extended_protocol_is_told_once(
    messages: list[tuple[bytes, ...]], said: str, raw: Raw
) -> None:
    for message in messages:
        raw.send(*message)
    raw.socket.sendall(SYNC)
    assert raw.said() == said


@pytest.mark.parametrize(
    "data",
    [
        b"?\0\0\0\4",
        b"Q\0\0\0\3",
        b"Q\x7f\xff\xff\xff",
        b"Q\xff\xff\xff\xff",
        b"p\0\0\0\4",
        b"\0\0\0\x08\x04\xd2\x16\x2f",
    ],
)
def test_what_cannot_be_followed_ends_the_connection(data: bytes, raw: Raw) -> None:
    raw.socket.sendall(data)
    kind, said = raw.read()
    assert (kind, b"FATAL" in said) == (b"E", True)
    with pytest.raises(EOFError):
        raw.read()


def test_an_error_comes_before_sync_and_flush_brings_what_is_ready(raw: Raw) -> None:
    raw.send(*parse("SELECT 1"))
    raw.socket.sendall(FLUSH)
    assert raw.read()[0] == b"1"
    raw.send(*parse("SELECT ("))
    raw.send(b"D", b"S\0")
    assert [raw.read()[0] for _ in range(2)] == [b"1", b"E"]


def test_only_execute_charges(raw: Raw, served: Served) -> None:
    before = served.charges()
    text = "SELECT country FROM reads GROUP BY country TOP 2 PRIVATE"
    raw.send(*parse(text, "s"))
    raw.send(b"D", b"Ss\0")
    raw.send(b"B", b"\0s\0\0\0\0\0\0\0")
    raw.send(b"D", b"P\0")
    raw.send(b"C", b"P\0")
    raw.socket.sendall(SYNC)
    assert raw.said() == "1 t T 2 T 3 Z"
    raw.socket.sendall(END)
    assert served.charges() == before


def test_a_statement_prepared_by_sql_is_one_of_the_protocol(raw: Raw) -> None:
    raw.send(b"Q", b"PREPARE p (text, int) AS SELECT country FROM countries WHERE country = $1 LIMIT $2::INTEGER\0")
    assert raw.said() == "C Z"
    raw.send(b"D", b"Sp\0")
    raw.send(b"B", b"\0p\0\0\0\0\2\0\0\0\2FR\0\0\0\1\x31\0\0")
    raw.send(*execute())
    raw.send(*parse("SELECT 1", "p"))
    raw.socket.sendall(SYNC)
    assert raw.said() == "t T 2 D C E42P05 Z"
    raw.send(*parse("EXECUTE p ('DE', 1)", "again"))
    raw.send(b"D", b"Sagain\0")
    raw.send(b"C", b"Sp\0")
    raw.send(b"Q", b"EXECUTE p ('DE', 1)\0")
    raw.socket.sendall(SYNC)
    assert raw.said() == "1 t T 3 E26000 Z"
    assert raw.said() == "Z"


def test_a_statement_that_executes_itself_is_refused(raw: Raw) -> None:
    raw.send(*parse("EXECUTE p", "p"))
    raw.send(b"D", b"Sp\0")
    raw.socket.sendall(SYNC)
    assert raw.said() == "1 E0A000 Z"
    raw.send(b"Q", b"EXECUTE p\0")
    assert raw.said() == "E0A000 Z"


def test_a_portal_that_fetches_from_itself_is_refused(raw: Raw) -> None:
    raw.send(*parse("FETCH 1 FROM p"))
    raw.send(*bind(portal="p"))
    raw.send(*execute(0, "p"))
    raw.socket.sendall(SYNC)
    assert raw.said() == "1 2 E34000 Z"


def test_more_types_than_parameters_are_passed_over(raw: Raw) -> None:
    raw.send(*parse("SELECT $1 AS x", "s", 25, 25, 25))
    raw.send(b"D", b"Ss\0")
    raw.socket.sendall(SYNC)
    assert raw.said() == "1 t T Z"


def test_a_long_text_keeps_nobody_else_waiting(raw: Raw, served: Served) -> None:
    other = Raw(served)
    raw.send(b"Q", b"SELECT 1, " + b" ".join(b"$a%d$" % at for at in range(15_000)) + b"\0")
    began = time.monotonic()
    other.send(b"Q", b"SHOW server_version\0")
    assert other.said() == "T D C Z"
    assert time.monotonic() - began < 20
    other.socket.close()


def test_what_waits_in_one_connection_is_bounded(raw: Raw) -> None:
    raw.send(*parse("SELECT $1 AS x", "", 25))
    for at in range(80):
        raw.send(*bind(b"x" * 1_000_000, portal=f"p{at}"))
    raw.socket.sendall(SYNC)
    said = raw.said().split()
    assert said[-2:] == ["E53200", "Z"]
    assert 50 < said.count("2") < 70


def test_statements_and_settings_are_bounded_too(raw: Raw) -> None:
    for at in range(60):
        raw.send(*parse("SELECT '" + "x" * 100_000 + "'", f"s{at}"))
    raw.socket.sendall(SYNC)
    assert raw.said().endswith("1 E54000 Z")
    raw.send(b"Q", b"".join(b"SET a.b%d TO 1;" % at for at in range(300)) + b"\0")
    assert raw.said().endswith("C E54000 Z")


def test_what_all_connections_hold_is_bounded_and_given_back(tmp_path: Path) -> None:
    declare = "DECLARE c CURSOR WITH HOLD FOR SELECT '{}' AS x"
    with (
        serving(tmp_path, limits=ClientLimits(held=90_000, held_by_user=45_000)) as served,
        psycopg.connect(served.conninfo("ana"), autocommit=True) as holding,
        psycopg.connect(served.conninfo("ana"), autocommit=True) as other,
        psycopg.connect(served.conninfo("ben"), autocommit=True) as another,
    ):
        holding.execute(declare.format("x" * 9_000))
        assert holding.execute("FETCH 1 FROM c").fetchone() == ("x" * 9_000,)
        for _ in range(2):
            with pytest.raises(psycopg.errors.OutOfMemory, match="holds too much for this user") as caught:
                other.execute(declare.format("y" * 9_000))
            assert (caught.value.diag.message_hint or "").startswith("Fetch the rows, close cursors")
        assert other.execute("SELECT 1").fetchone() == (1,)
        another.execute(declare.format("z" * 9_000))
        assert another.execute("FETCH 1 FROM c").fetchone() == ("z" * 9_000,)
        holding.execute("CLOSE c")
        for _ in range(5):
            other.execute(declare.format("y" * 9_000))
            assert other.execute("FETCH 1 FROM c").fetchone() == ("y" * 9_000,)
            other.execute("CLOSE c")
        for _ in range(5):  # a connection that breaks off gives back too
            with psycopg.connect(served.conninfo("ana"), autocommit=True) as breaking:
                breaking.execute(declare.format("x" * 9_000))
                with socket.socket(fileno=os.dup(breaking.fileno())) as broken:
                    broken.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("SELECT pg_cancel_backend($1)", 1),
        ("SELECT pg_cancel_backend(1)", 0),
        ("SHOW server_version", 0),
        ("SET application_name = 'x'", 0),
        ("RESET application_name", 0),
        ("SELECT set_config('application_name', 'x', false)", 0),
        ("SELECT pg_advisory_unlock_all()", 0),
        ("BEGIN", 0),
        ("ROLLBACK", 0),
        ("DEALLOCATE ALL", 0),
        ("DISCARD ALL", 0),
        ("LISTEN x", 0),
        ("UNLISTEN *", 0),
        ("CLOSE ALL", 0),
        ("PREPARE p AS SELECT 1", 0),
        ("COPY (SELECT 1) TO STDOUT", 0),
        ("DECLARE c CURSOR WITH HOLD FOR SELECT 1", 0),
        ("EXPLAIN SELECT country FROM countries WHERE country = $1", 1),
        ("SELECT country FROM countries WHERE country = $1", 1),
        ("SELECT 1", 0),
        ("", 0),
    ],
)
def test_values_of_another_number_than_the_statement_has_are_the_error_of_the_client(
    raw: Raw, served: Served, text: str, count: int
) -> None:
    for given in {0, 1, 2} - {count}:
        raw.send(*parse(text))
        raw.send(*bind(*[b"1"] * given))
        raw.send(*execute())
        raw.socket.sendall(SYNC)
        assert "E08P01" in raw.said(), given
    assert "fault" not in served.log.getvalue()
