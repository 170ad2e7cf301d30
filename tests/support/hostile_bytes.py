"""Bytes that no client sends: valid conversations of the protocol, and what is done to them.

`python tests/support/wire_fuzz.py --help` says how to send millions.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

__all__ = [
    "ASKS",
    "DESCRIBED",
    "SYNC",
    "TERMINATE",
    "Login",
    "before_login",
    "conversation",
    "executions",
    "frames",
    "log_in",
    "message",
    "mutated",
    "query",
    "replies",
    "startup",
]

PROTOCOL = 196608
SSL_REQUEST, CANCEL_REQUEST, GSS_REQUEST = 80877103, 80877102, 80877104
MOST = 1 << 30
KNOWN = frozenset(b"RSKZTDCEN1253nstIGHWdcAv")  # the types of messages that a server sends
ASKS = (
    "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article TOP 2 PRIVATE",
    "SELECT 1",
    "SHOW BUDGET",
    "SHOW TABLES",
    "BEGIN",
    "COMMIT",
    "SELECT article FROM reads GROUP BY article TOP 3 PRIVATE LIMIT 0",
    "SELECT user_id FROM reads",
    "COPY (SELECT 1) TO STDOUT",
    "DECLARE c CURSOR FOR SELECT 1",
    "FETCH 3 IN c",
    "SELEC 1",
    "",
    "SELECT 1; SELECT 2",
    "COPY reads FROM STDIN",
    "SET search_path TO 'x'",
    "PREPARE s1 (bigint) AS SELECT CAST($1 AS BIGINT) AS v",
    "EXECUTE s1 (5)",
    "DEALLOCATE ALL",
    "EXPLAIN (FORMAT JSON, ANALYZE FALSE) SELECT 1",
    "FETCH BACKWARD 2 FROM c",
    "SELECT country FROM countries WHERE country = ANY ('{DE,\"FR\"}'::text[])",
    "COPY countries (country) TO STDOUT",
    "SELECT set_config('application_name', 'x', false)",
)
# in small letters: no byte of it is the type of a message that asks for an answer, wherever a message may begin
DESCRIBED = "select country, count(distinct user_id) as n from reads group by country top 1 private"


def message(kind: bytes, payload: bytes = b"") -> bytes:
    return kind + struct.pack("!i", len(payload) + 4) + payload


def startup(version: int = PROTOCOL, **options: str) -> bytes:
    words = b"".join(name.encode() + b"\0" + value.encode() + b"\0" for name, value in options.items())
    payload = struct.pack("!i", version) + words + b"\0"
    return struct.pack("!i", len(payload) + 4) + payload


def query(text: str) -> bytes:
    return message(b"Q", text.encode() + b"\0")


def parse(text: str, name: bytes = b"", types: Sequence[int] = ()) -> bytes:
    return message(b"P", name + b"\0" + text.encode() + b"\0" + struct.pack(f"!h{len(types)}I", len(types), *types))


def bind(values: Sequence[bytes | None] = (), name: bytes = b"", portal: bytes = b"", format_: int = 0) -> bytes:
    told = b"".join(
        struct.pack("!i", -1) if value is None else struct.pack("!i", len(value)) + value for value in values
    )
    formats = struct.pack("!hh", 1, format_)
    return message(b"B", portal + b"\0" + name + b"\0" + formats + struct.pack("!h", len(values)) + told + formats)


def describe(kind: bytes = b"S", name: bytes = b"") -> bytes:
    return message(b"D", kind + name + b"\0")


def execute(rows: int = 0, portal: bytes = b"") -> bytes:
    return message(b"E", portal + b"\0" + struct.pack("!i", rows))


SYNC, FLUSH, TERMINATE = message(b"S"), message(b"H"), message(b"X")


def conversation(random: Random, *, asks: bool) -> list[bytes]:
    """Return messages that a client may send after its login; without `asks` none of them asks for an answer."""
    sent: list[bytes] = []
    for _ in range(random.randint(1, 4)):
        name = random.choice([b"", b"s1", b"statement number two"])
        text = random.choice(ASKS) if asks else DESCRIBED
        sent += [parse(text, name), describe(b"S", name)]
        if random.random() < 0.5:
            sent += [parse("select cast($1 as bigint) as v", b"v", [20])]
            sent += [bind([random.choice([b"5", b"\0" * 8, b"", None])], b"v", b"p", random.randint(0, 1))]
            sent += [describe(b"P", b"p"), message(b"C", b"Pp\0"), message(b"C", b"Sv\0")]
        sent += [bind((), name), describe(b"P"), FLUSH]
        if asks:
            sent += [execute(random.choice([0, 1, 2]))]
        sent += [message(b"C", b"S" + name + b"\0"), SYNC]
        if asks and random.random() < 0.5:
            sent += [query(random.choice(ASKS))]
        if random.random() < 0.2:
            sent += [message(b"d", b"1\tx\n"), message(b"c"), message(b"f", b"no\0"), SYNC]
    return sent


def before_login(random: Random) -> list[bytes]:
    """Return messages that a client may send before anybody knows who it is, and some that it may not."""
    nonce = base64.b64encode(random.randbytes(18))
    first = b"n,,n=,r=" + nonce
    sasl = message(b"p", b"SCRAM-SHA-256\0" + struct.pack("!i", len(first)) + first)
    start = startup(
        random.choice([PROTOCOL, PROTOCOL, 196610, 131072, 262144, 0x7FFFFFFF]),
        user=random.choice(["ana", "nobody", "x" * 200, "postgres"]),
        database="dpsql",
    )
    cancel = struct.pack("!iiii", 16, CANCEL_REQUEST, random.getrandbits(31), random.getrandbits(31))
    ways: list[list[bytes]] = [
        [start, sasl, message(b"p", b"c=biws,r=" + nonce + b",p=" + base64.b64encode(random.randbytes(32)))],
        [start, query(ASKS[0]), execute(), SYNC],
        [query(ASKS[0])],
        [cancel],
        [struct.pack("!ii", 8, GSS_REQUEST), start, sasl],
        [start, start, sasl, sasl],
        [start, message(b"p", b"secret\0")],
        [start, message(b"p", b"SCRAM-SHA-256-PLUS\0" + struct.pack("!i", 4) + b"p=,,")],
        [start, message(b"p", b"SCRAM-SHA-256\0" + struct.pack("!i", -1))],
        [b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"],
    ]
    return random.choice(ways)


Change = Callable[[Random, list[bytes]], None]


def _flip(random: Random, sent: list[bytes]) -> None:
    at = random.randrange(len(sent))
    changed = bytearray(sent[at])
    for _ in range(random.choice([1, 1, 2, 8])):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    sent[at] = bytes(changed)


def _cut(random: Random, sent: list[bytes]) -> None:
    at = random.randrange(len(sent))
    sent[at] = sent[at][: random.randrange(len(sent[at]))]


def _repeat(random: Random, sent: list[bytes]) -> None:
    at = random.randrange(len(sent))
    sent[at:at] = [sent[at]] * random.choice([1, 2, 20])


def _shuffle(random: Random, sent: list[bytes]) -> None:
    random.shuffle(sent)


def _length(random: Random, sent: list[bytes]) -> None:
    at = random.randrange(len(sent))
    wrong = random.choice([0, 1, 3, 4, 5, -1, -(1 << 31), MOST, 0x7FFFFFFF, len(sent[at]) + 1, len(sent[at]) - 2])
    sent[at] = sent[at][:1] + struct.pack("!i", wrong) + sent[at][5:]


def _kind(random: Random, sent: list[bytes]) -> None:
    at = random.randrange(len(sent))
    sent[at] = random.choice([random.randbytes(1), b"F", b"d", b"c", b"f", b"p", b"\0"]) + sent[at][1:]


def _inside(random: Random, sent: list[bytes]) -> None:
    """Put bytes that are no text, or too many, or too few, into a message whose length is right all the same."""
    at = random.randrange(len(sent))
    kind, payload = sent[at][:1], sent[at][5:]
    where = random.randrange(len(payload) + 1)
    odd = random.choice([b"\0", b"\xff\xfe", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"x" * 3000, b"\xff" * 4])
    ways = [payload[:where] + odd + payload[where:], payload[:where], odd, b"", payload.rstrip(b"\0")]
    sent[at] = message(kind, random.choice(ways))


def _flip_inside(random: Random, sent: list[bytes]) -> None:
    at = random.randrange(len(sent))
    changed = bytearray(sent[at][5:])
    for _ in range(random.choice([1, 1, 2, 8]) if changed else 0):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    sent[at] = message(sent[at][:1], bytes(changed))


def _numbers(random: Random, sent: list[bytes]) -> None:
    """Bind so many parameters, of such formats, as nobody has."""
    count = random.choice([-1, -32768, 1, 999, 32767])
    format_ = random.choice([-1, 2, 7, 32767])
    body = random.choice(
        [
            struct.pack("!hh", 0, count),
            struct.pack("!hh", 1, format_) + struct.pack("!hh", 0, 0),
            struct.pack("!h", count) + b"\0" * 64,
            struct.pack("!hhi", 0, 1, random.choice([-2, MOST, 99])) + b"1\0\0",
            struct.pack("!hhhh", 0, 0, 1, format_),
        ]
    )
    sent.insert(random.randrange(len(sent) + 1), message(b"B", b"\0\0" + body))
    if any(one[:1] == b"E" for one in sent):
        sent.insert(random.randrange(len(sent) + 1), execute(random.choice([-1, -(1 << 31)])))


def _again(random: Random, sent: list[bytes]) -> None:
    """Start a second time, or ask for TLS within the conversation."""
    start = startup(user="ana", database="dpsql")
    sent.insert(random.randrange(len(sent) + 1), random.choice([start, struct.pack("!ii", 8, SSL_REQUEST)]))


def _noise(random: Random, sent: list[bytes]) -> None:
    sent.insert(random.randrange(len(sent) + 1), random.randbytes(random.choice([1, 4, 5, 60])))


# what keeps the frames stands first: a stream is read on behind it
KEEPING: tuple[Change, ...] = (_repeat, _shuffle, *[_inside] * 3, *[_flip_inside] * 3, _numbers)
BREAKING: tuple[Change, ...] = (_flip, _cut, _length, _kind, _again, _noise)


def mutated(random: Random, sent: list[bytes], *, breaking: bool) -> bytes:
    """Return the messages with one to twelve things done to them, as one stream."""
    changed = list(sent)
    for _ in range(random.choice([1, 3, 6, 12])):
        random.choice(KEEPING)(random, changed)
    if breaking:
        random.choice(BREAKING)(random, changed)
    return b"".join(changed)


def frames(stream: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the type and the payload of each message of a stream, for as long as its lengths are right."""
    at = 0
    while at + 5 <= len(stream):
        (length,) = struct.unpack_from("!i", stream, at + 1)
        if length < 4 or at + 1 + length > len(stream):
            return
        yield stream[at : at + 1], stream[at + 5 : at + 1 + length]
        at += 1 + length


def executions(stream: bytes) -> int:
    """Return how many messages of a stream ask for an answer."""
    return sum(kind in b"QE" for kind, _ in frames(stream))


def replies(stream: bytes) -> list[tuple[bytes, bytes]]:
    """Return the messages that a server sent, which must be whole messages of known types."""
    told = list(frames(stream))
    assert sum(len(payload) + 5 for _, payload in told) == len(stream), stream[-200:]
    assert {kind[0] for kind, _ in told} <= KNOWN
    return told


@dataclass(frozen=True)
class Login:
    """Who logs in; the salted password is kept, since it is what takes time."""

    user: str
    password: str

    def salted(self, salt: bytes, rounds: int, *, known: dict[tuple[str, bytes, int], bytes] = {}) -> bytes:  # noqa: B006
        key = self.user, salt, rounds
        if key not in known:
            known[key] = hashlib.pbkdf2_hmac("sha256", self.password.encode(), salt, rounds)
        return known[key]


def receive(connection: socket.socket, until: bytes) -> list[tuple[bytes, bytes]]:
    """Read messages up to one of the types in `until`, or to the end."""
    stream = b""
    while True:
        told = list(frames(stream))
        if told and told[-1][0] in until:
            return told
        more = connection.recv(65536)
        if not more:
            return told
        stream += more


def log_in(connection: socket.socket, login: Login) -> None:
    """Log in by SCRAM-SHA-256, as libpq does."""
    connection.sendall(startup(user=login.user, database="dpsql"))
    assert receive(connection, b"RE")[-1][0] == b"R"
    bare = b"n=,r=" + base64.b64encode(login.user.encode() * 3)
    first = b"n,," + bare
    connection.sendall(message(b"p", b"SCRAM-SHA-256\0" + struct.pack("!i", len(first)) + first))
    kind, payload = receive(connection, b"RE")[-1]
    assert kind == b"R", payload
    challenge = payload[4:]
    told = dict(part.split(b"=", 1) for part in challenge.split(b","))
    salted = login.salted(base64.b64decode(told[b"s"]), int(told[b"i"]))
    client = hmac.digest(salted, b"Client Key", "sha256")
    last = b"c=biws,r=" + told[b"r"]
    signature = hmac.digest(hashlib.sha256(client).digest(), bare + b"," + challenge + b"," + last, "sha256")
    proof = base64.b64encode(bytes(one ^ other for one, other in zip(client, signature, strict=True)))
    connection.sendall(message(b"p", last + b",p=" + proof))
    assert receive(connection, b"ZE")[-1][0] == b"Z"
