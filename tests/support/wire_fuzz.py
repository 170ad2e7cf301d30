"""Send a server of our own hostile bytes, by the million if wanted.

    python tests/support/wire_fuzz.py [--messages 1000000] [--seed 7]

Each connection logs in and sends some hundred messages: valid conversations, mutated. What comes back must be whole
messages without a word of data, code or paths, and whoever did not ask for an answer is charged nothing.
"""

from __future__ import annotations

import argparse
import selectors
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random, SystemRandom
from unittest.mock import patch

import duckdb

if __name__ == "__main__":  # the tests find it themselves
    sys.path.insert(0, str(Path(__file__).parents[1]))

from support import server_kit
from support.hostile_bytes import (
    SYNC,
    TERMINATE,
    Login,
    before_login,
    conversation,
    executions,
    frames,
    log_in,
    mutated,
    replies,
)
from support.server_kit import PASSWORD, Served
from support.surfaces_kit import make_data

from dpsql.server.wire.channel import ClientLimits
from dpsql.server.wire.codec import Malformed, parse_message

__all__ = ["CANARY", "Tally", "attack", "decoded", "knock", "watched"]

CANARY = "canary"  # a value of the private data that is in one row alone, and so in no answer
LEAKS = (
    *(CANARY, "secret", "Traceback", 'File "', ".py", "dpsql.server", "dpsql/", "asyncio"),
    *("duckdb", "Error(", "/tmp", "/home", "site-packages"),
)
PATIENCE = 60.0
HALF = 0.5


@dataclass
class Tally:
    """What was sent, what came back, and what should not have."""

    messages: int = 0
    connections: int = 0
    executions: int = 0
    states: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def judge(self, stream: bytes, sent: bytes) -> None:
        """Look through what a server sent."""
        try:
            told = replies(stream)
        except AssertionError:
            self.failures.append(f"no whole messages came back: {stream[-80:]!r} after {sent[-200:]!r}")
            return
        for kind, payload in told:
            self.kinds[kind.decode()] += 1
            if kind in b"EN":
                self._error(kind, payload, sent)
        for leak in LEAKS:
            if leak.encode() in stream:
                self.failures.append(f"{leak} came back: {stream!r} after {sent[-200:]!r}")

    def _error(self, kind: bytes, payload: bytes, sent: bytes) -> None:
        fields = {part[:1]: part[1:] for part in payload.rstrip(b"\0").split(b"\0")}
        if not {b"S", b"C", b"M"} <= fields.keys() or len(fields[b"C"]) != 5:
            self.failures.append(f"an error of a shape of its own came back: {payload!r}")
            return
        state = fields[b"C"].decode()
        self.states[state if kind == b"E" else "notice"] += 1
        if state.startswith("XX"):
            self.failures.append(f"the server failed: {payload!r} after {sent!r}")


@contextmanager
def watched(folder: Path, limits: ClientLimits) -> Iterator[Served]:
    """Serve data in which one unit has an article and a country of its own, which no answer may name."""

    def with_canary(place: Path) -> Path:
        make_data(place)
        with duckdb.connect(str(place / "events.duckdb")) as connection:
            connection.execute("INSERT INTO reads SELECT 999999, $1, $1, TIMESTAMP '2026-01-01', 7", [CANARY])
        return place

    with patch.object(server_kit, "make_data", with_canary), server_kit.serving(folder, limits=limits) as served:
        yield served


def decoded(random: Random, messages: int) -> Tally:
    """Read so many messages as the server does, without a server: each is one, or `Malformed`, and nothing else."""
    tally = Tally()
    while tally.messages < messages:
        stream = _stream(random, asks=True)
        for kind, payload in frames(stream):
            try:
                parse_message(kind, payload)
            except Malformed:
                tally.kinds["malformed"] += 1
            except Exception as error:  # noqa: BLE001 - whatever it is, it is a fault
                tally.failures.append(f"{error!r} of {kind!r} {payload!r}")
            else:
                tally.kinds["read"] += 1
            tally.messages += 1
    return tally


def attack(address: tuple[str, int], login: Login, *, random: Random, messages: int, asks: bool) -> Tally:
    """Send so many messages over connections that have logged in; without `asks`, none that asks for an answer."""
    tally = Tally()
    while tally.messages < messages:
        stream = _stream(random, asks=asks)
        with _connected(address) as connection:
            log_in(connection, login)
            told = _exchange(connection, stream)
        tally.connections += 1
        tally.messages += _sent(stream)
        tally.executions += executions(stream)
        if told is None:
            tally.failures.append(f"the server did not end the connection after {stream!r}")
        else:
            tally.judge(told, stream)
    return tally


def knock(address: tuple[str, int], *, random: Random, connections: int, source: str) -> Tally:
    """Open so many connections that never log in, and send what should not be."""
    tally = Tally()
    for _ in range(connections):
        sent = before_login(random)
        stream = mutated(random, sent, breaking=True) if random.random() < 0.8 else b"".join(sent)
        with _connected(address, source) as connection:
            told = _exchange(connection, stream)
        tally.connections += 1
        tally.messages += max(1, len(sent))
        if told is None:
            tally.failures.append(f"the server did not end the connection after {stream!r}")
        elif told[:1] != b"N":  # no to encryption is no message
            tally.judge(told, stream)
    return tally


def _stream(random: Random, *, asks: bool) -> bytes:
    """Return some mutated conversations; the last may break the frames, and nothing behind it would be read."""
    while True:
        parts = [mutated(random, conversation(random, asks=asks), breaking=False) + SYNC for _ in range(6)]
        if random.random() < 0.7:
            parts.append(mutated(random, conversation(random, asks=asks), breaking=True))
        else:
            parts.append(TERMINATE)
        stream = b"".join(parts)
        if asks or not any(letter in _types(stream) for letter in b"QE"):
            return stream


def _types(stream: bytes) -> set[int]:
    """Return the types of the messages, and every byte of what cannot be told apart."""
    found, end = set[int](), 0
    for kind, payload in frames(stream):
        found |= set(kind)
        end += len(payload) + 5
    return found | set(stream[end:])


def _sent(stream: bytes) -> int:
    return sum(1 for _ in frames(stream)) + 1


def _connected(address: tuple[str, int], source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(address, timeout=PATIENCE, source_address=(source, 0))


def _exchange(connection: socket.socket, stream: bytes) -> bytes | None:
    """Send a stream and its end, and return what comes back to its end; None if that never comes."""
    connection.setblocking(False)
    got, deadline = bytearray(), time.monotonic() + PATIENCE
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ | selectors.EVENT_WRITE)
        while time.monotonic() < deadline:
            for _, events in selector.select(1.0):
                try:
                    if events & selectors.EVENT_WRITE:
                        stream = stream[connection.send(stream) :]
                        if not stream:
                            connection.shutdown(socket.SHUT_WR)
                            selector.modify(connection, selectors.EVENT_READ)
                    if events & selectors.EVENT_READ:
                        more = connection.recv(65536)
                        if not more:
                            return bytes(got)
                        got += more
                except OSError:  # it was hung up on while it still sent
                    return bytes(got)
    return None


def main() -> None:
    """Send as many messages as are wanted, and end in an error where something should not have come back."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=SystemRandom().getrandbits(63))
    given = parser.parse_args()
    sys.stdout.write(f"--seed {given.seed}" + "\n")
    with tempfile.TemporaryDirectory() as folder, watched(Path(folder), ClientLimits()) as served:
        began, sent, failures = time.monotonic(), 0, list[str]()
        while sent < given.messages and not failures:
            random = Random(f"{given.seed} {sent}")
            asks = random.random() < HALF
            before = served.charges("ana" if asks else "ben")
            login = Login("ana" if asks else "ben", PASSWORD)
            tally = attack(("127.0.0.1", served.port), login, random=random, messages=20_000, asks=asks)
            sent, failures = sent + tally.messages, tally.failures
            if served.charges(login.user) - before > tally.executions:
                failures.append(f"{login.user} was charged for more than was asked")
            failures += map(str, served.faults)
            states = ", ".join(f"{state} {count:,}" for state, count in tally.states.most_common(8))
            sys.stdout.write(f"{sent:,} messages, {time.monotonic() - began:.0f} s: {states}" + "\n")
    for failure in failures:
        sys.stdout.write(failure + "\n")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
