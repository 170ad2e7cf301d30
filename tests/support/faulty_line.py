"""A line to a PostgreSQL that breaks at a chosen message: a proxy on TCP before the server's Unix socket."""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from support.postgres_kit import server

__all__ = ["KINDS", "Fault", "FaultyLine", "faulty_line"]

KINDS = ("reset", "close", "half", "silent", "delay")
_LATE = 0.03  # seconds of a delay
_LOOK = 0.1  # seconds between two looks at whether the line was lifted


@dataclass
class Fault:
    """What happens at a message, counted in both directions, or at a byte; a lasting silence holds for new connections.

    A message that is cut in half arrives so, before the line is reset.
    """

    kind: str
    message: int | None = None
    byte: int | None = None
    lasting: bool = False
    hit: bool = False


@dataclass
class FaultyLine:
    """The proxy; `messages` and `bytes` count what came by since a fault was set."""

    port: int
    target: str
    messages: int = 0
    bytes: int = 0
    commits: list[int] = field(default_factory=list)  # the numbers of messages that commit
    fault: Fault | None = None
    is_silent: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _pairs: list[_Pair] = field(default_factory=list)

    def url(self, schema: str) -> str:
        """Return the address of a ledger behind the line."""
        options = f"schema={schema}&sslmode=disable&gssencmode=disable"
        return f"postgresql://tester@127.0.0.1:{self.port}/postgres?{options}"

    def set(self, fault: Fault | None) -> None:
        """Count again from 0, and let this happen next."""
        with self._lock:
            self.messages = self.bytes = 0
            self.commits = []
            self.fault = fault

    def lift(self) -> None:
        """Let nothing more happen, and forget connections that fell silent."""
        with self._lock:
            self.fault, self.is_silent = None, False
            silent = [pair for pair in self._pairs if pair.is_silent]
        for pair in silent:
            pair.is_over = True

    def accept(self, listening: socket.socket) -> None:
        """Serve connections until the socket is closed."""
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            behind = socket.socket(socket.AF_UNIX)
            behind.connect(self.target)
            pair = _Pair(self, client, behind)
            with self._lock:
                pair.is_silent = self.is_silent
                self._pairs = [each for each in self._pairs if not each.is_over] + [pair]
            threading.Thread(target=pair.run, daemon=True).start()

    def close(self) -> None:
        """End all connections."""
        for pair in self._pairs:
            pair.is_over = True

    def take(self, message: bytes) -> tuple[Fault | None, int]:
        """Count a message; return the fault that meets it, if any, and how much of it arrives before."""
        with self._lock:
            fault, at, before = self.fault, self.messages, self.bytes
            self.messages += 1
            self.commits += [at] if b"COMMIT\0" in message and message[:1] in b"QP" else []
            self.bytes += len(message)
            if fault is None or fault.hit:
                return None, 0
            if fault.message == at:
                arrives = len(message) // 2 if fault.kind == "half" else 0
            elif fault.byte is not None and before <= fault.byte < self.bytes:
                arrives = fault.byte - before
            else:
                return None, 0
            fault.hit = True
            self.is_silent = fault.lasting
            return fault, arrives


class _Pair:
    """A connection of a client, and that of the proxy to the server."""

    def __init__(self, line: FaultyLine, client: socket.socket, behind: socket.socket) -> None:
        self._line, self._client, self._behind = line, client, behind
        self._received: dict[socket.socket, bytes] = {client: b"", behind: b""}
        self._has_started = False
        self.is_silent = self.is_over = False

    def run(self) -> None:
        """Pass messages on, one by one, until either end closes; a silent line takes them and passes on none."""
        with self._client, self._behind, suppress(OSError):
            while not self.is_over:
                for source in select.select(list(self._received), [], [], _LOOK)[0]:
                    data = source.recv(65536)
                    if not data and self.is_silent:
                        del self._received[source]
                    elif not data:
                        return
                    elif not self.is_silent:
                        self._received[source] += data
                        self._pass_whole(source, self._behind if source is self._client else self._client)

    def _pass_whole(self, source: socket.socket, sink: socket.socket) -> None:
        while not (self.is_silent or self.is_over):
            received = self._received[source]
            length = _measure(received, has_type=self._has_started)
            if length is None:
                return
            self._has_started = True
            self._received[source] = received[length:]
            self._pass(received[:length], sink)

    def _pass(self, message: bytes, sink: socket.socket) -> None:
        fault, arrives = self._line.take(message)
        if fault is None:
            sink.sendall(message)
        elif fault.kind == "delay":
            time.sleep(_LATE)
            sink.sendall(message)
        else:
            sink.sendall(message[:arrives])
            self.is_silent = fault.kind == "silent"
            self.is_over = not self.is_silent
            if fault.kind != "close" and not self.is_silent:
                self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _measure(received: bytes, *, has_type: bool) -> int | None:
    """Return the length of the message that begins here; None while it is not whole."""
    start = 1 if has_type else 0
    if len(received) < start + 4:
        return None
    length = start + int.from_bytes(received[start : start + 4])
    return length if len(received) >= length else None


@contextmanager
def faulty_line() -> Iterator[FaultyLine]:
    """Run the proxy during the body."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        line = FaultyLine(listening.getsockname()[1], str(Path(server().folder) / ".s.PGSQL.5432"))
        thread = threading.Thread(target=line.accept, args=(listening,), daemon=True)
        thread.start()
        try:
            yield line
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            line.close()
            thread.join(10)
