"""Memory that one analyst makes `dpsql serve` hold: cursors, answers that nobody reads, statements, values, messages.

    python tests/support/held_memory.py [attack ...] [--seconds 20] [--connections 100]

Each attack gets a server of its own. The script prints by how many MB its resident memory grew, and how much was left
after the clients had gone, and ends with 1 where that is more than 256 MB, or 64 MB a minute later.
"""

from __future__ import annotations

import argparse
import re
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

if __name__ == "__main__":  # the tests find it themselves
    sys.path.insert(0, str(Path(__file__).parents[1]))

import psycopg
from support import crowding
from support.crowding import PASSWORD, Server, serving
from support.hostile_bytes import FLUSH, Login, bind, describe, execute, log_in, message, parse, query

MOST_GROWTH, MOST_LEFT, PATIENCE = 256, 64, 60  # MB, and seconds
POLICY = crowding.POLICY.replace('catalog = "none"', 'catalog = "auto"\nconnections_per_user = 100')
NULLS = "SELECT " + ", ".join(["NULL"] * 1600) + " FROM pg_attribute a, pg_attribute b LIMIT {}"
SHORT = (
    "SELECT "
    + ", ".join(f"'{number}{{0}}'" for number in range(8))
    + " FROM pg_attribute a, pg_attribute b LIMIT 40000"
)
WIDE = (
    "SELECT "
    + ", ".join(f"NULL AS a_column_with_a_long_name_{number}" for number in range(1600))
    + " FROM pg_class -- {}"
)
LONG = "SELECT repeat('{}', 3000000) FROM pg_class LIMIT 5"
PUBLIC = "SELECT a.name, b.name AS b, a.code, {} AS n FROM countries a, countries b LIMIT 1000000"


EXPLAIN = (
    "EXPLAIN SELECT article FROM reads WHERE article IN ("
    + ", ".join(["'{0}'"] * 1000)
    + ") GROUP BY article TOP 3 PRIVATE"
)


@dataclass
class Client:
    """An analyst with connections that stay open until the attack ends."""

    server: Server
    connections: int
    until: float
    sockets: list[socket.socket] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self.until

    def open(self) -> socket.socket:
        """Log in, and return the connection, from which nothing is read."""
        connection = socket.create_connection(("127.0.0.1", self.server.ports["postgres"]), timeout=20)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        log_in(connection, Login("analyst0", PASSWORD))
        connection.settimeout(1)
        self.sockets.append(connection)
        return connection

    def send_unread(self, make: Callable[[int], bytes]) -> None:
        """Send something over every connection, and read nothing."""
        for number in range(self.connections):
            with suppress(OSError):
                self.open().sendall(make(number))

    def send_read(self, make: Callable[[int, int], bytes], *, rounds: int) -> None:
        """Send something over every connection again and again, and read the replies."""

        def talk(number: int) -> None:
            with suppress(OSError):
                connection = self.open()
                for turn in range(rounds):
                    if self.is_over:
                        return
                    connection.sendall(make(number, turn))
                    with suppress(TimeoutError):
                        connection.recv(1 << 20)

        run_all(talk, self.connections)

    def run_statements(self, make: Callable[[int, int], str], *, first: str = "", rounds: int = 100) -> None:
        """Run statements over every connection, and keep what they opened; a refused one is no failure."""
        kept: list[psycopg.Connection] = []

        def talk(number: int) -> None:
            connection = psycopg.connect(self.server.conninfo("analyst0"), autocommit=True)
            kept.append(connection)
            with suppress(psycopg.Error):
                if first:
                    connection.execute(first)
            for turn in range(rounds):
                if self.is_over:
                    return
                with suppress(psycopg.Error):
                    connection.execute(make(number, turn))

        run_all(talk, self.connections)
        while not self.is_over:
            time.sleep(0.1)
        for connection in kept:
            connection.close()


def run_all(act: Callable[[int], None], count: int) -> None:
    threads = [threading.Thread(target=act, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def held_cursor(select: str, fetch: str = "FETCH 1 FROM") -> Callable[[int, int], str]:
    """Return what declares a cursor WITH HOLD and runs its query."""
    return lambda number, turn: (
        f"DECLARE c{turn} CURSOR WITH HOLD FOR {select.format(number * 100 + turn)}; {fetch} c{turn}"
    )


def portals(select: str, formats: tuple[int, ...] = (0,), count: int = 40) -> bytes:
    """Return the messages that open and suspend portals."""
    results = struct.pack(f"!h{len(formats)}h", len(formats), *formats)
    bound = [message(b"B", b"p%d\0s\0" % at + struct.pack("!hh", 0, 0) + results) for at in range(count)]
    return parse(select, b"s") + b"".join(one + execute(1, b"p%d" % at) for at, one in enumerate(bound)) + FLUSH


def numbered(template: str, number: int) -> str:
    return template.format(number)


ATTACKS: dict[str, Callable[[Client], None]] = {
    "null cursors": lambda client: client.run_statements(held_cursor(NULLS.replace("{}", "2500 -- {}\n"))),
    "too large cursors": lambda client: client.run_statements(held_cursor(NULLS.replace("{}", "10000 -- {}\n"))),
    "short cursors": lambda client: client.run_statements(held_cursor(SHORT)),
    "public cursors": lambda client: client.run_statements(held_cursor(PUBLIC)),
    "reversed": lambda client: client.run_statements(
        lambda number, turn: held_cursor(SHORT, "MOVE ALL IN")(number, turn) + f"; FETCH BACKWARD 30000 FROM c{turn}"
    ),
    "unread nulls": lambda client: client.send_unread(lambda _: query(NULLS.format(2500))),
    "unread short": lambda client: client.send_unread(lambda number: query(numbered(SHORT, number))),
    "unread long": lambda client: client.send_unread(lambda number: query(numbered(LONG, number))),
    "unread public": lambda client: client.send_unread(lambda number: query(numbered(PUBLIC, number))),
    "unread copy": lambda client: client.send_unread(lambda n: query(f"COPY ({numbered(SHORT, n)}) TO STDOUT")),
    "unread long copy": lambda client: client.send_unread(lambda n: query(f"COPY ({numbered(LONG, n)}) TO STDOUT")),
    "unread descriptions": lambda client: client.send_unread(
        lambda n: query(f"DECLARE c CURSOR WITH HOLD FOR {numbered(WIDE, n)}\n") + query("FETCH 0 FROM c;" * 900)
    ),
    "portals": lambda client: client.send_unread(lambda number: portals(numbered(SHORT, number))),
    "two formats": lambda client: client.send_unread(lambda number: portals(numbered(SHORT, number), (0, 1) * 4)),
    "huge cells": lambda client: client.run_statements(
        lambda number, turn: f"SELECT repeat('x', {90_000_000 + number * 100 + turn})"
    ),
    "names": lambda client: client.send_read(
        lambda _, turn: parse("SELECT 1", b"n%d" % turn + b"x" * 900_000) + FLUSH, rounds=900
    ),
    "texts": lambda client: client.send_read(
        lambda _, turn: parse(f"SELECT '{'é' * 60_000}'", b"n%d" % turn) + FLUSH, rounds=900
    ),
    "described": lambda client: client.send_read(
        lambda number, turn: (
            parse(numbered(WIDE, number * 1000 + turn), b"n%d" % turn) + describe(name=b"n%d" % turn) + FLUSH
        ),
        rounds=900,
    ),
    "values": lambda client: client.send_read(
        lambda _, turn: parse("SELECT $1", types=[25]) + bind([b"x" * 1_000_000], portal=b"p%d" % turn) + FLUSH,
        rounds=100,
    ),
    "halves": lambda client: client.send_unread(lambda _: query("x" * 1_000_000)[:-1]),
    "savepoints": lambda client: client.run_statements(
        lambda _, turn: "".join(f"SET a.b{at} TO '{turn}{'x' * 900}';" for at in range(150)) + f"SAVEPOINT s{turn}",
        first="BEGIN",
        rounds=190,
    ),
    "views": lambda client: client.run_statements(
        lambda _, turn: (
            f"CREATE TEMPORARY VIEW v{turn} AS SELECT * FROM (SELECT "
            + ", ".join(f"1 AS c{at}" for at in range(200))
            + ") t; SELECT count(*) FROM pg_class"
        ),
        rounds=20,
    ),
    "analyses": lambda client: client.run_statements(lambda number, turn: EXPLAIN.format(number * 1000 + turn)),
}


def measure(server: Server) -> float:
    """Return the resident memory of a server, in MB."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024


@contextmanager
def sampling(server: Server) -> Iterator[list[float]]:
    """Measure the memory every 20 ms as long as the block, and put the most into the list."""
    most, is_over = [measure(server)], threading.Event()

    def sample() -> None:
        while not is_over.wait(0.02):
            most[0] = max(most[0], measure(server))

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield most
    finally:
        is_over.set()
        sampler.join()


def warm_up(server: Server) -> None:
    """Run ordinary statements of another analyst, so that all is loaded."""
    for _ in range(5):
        with psycopg.connect(server.conninfo("analyst1"), autocommit=True) as connection:
            for text in (
                *crowding.HONEST,
                EXPLAIN.format("x"),
                "SELECT oid, * FROM pg_class",
                "SELECT count(*) FROM pg_attribute",
            ):
                connection.execute(text).fetchall()
            with connection.cursor().copy("COPY (SELECT name FROM countries) TO STDOUT") as copy:
                for _ in copy:
                    pass


def attack(*names: str, seconds: float, connections: int) -> tuple[float, float]:
    """Return by how many MB a server grew under attacks, each for so long, and how much was left after their end."""
    with patch.object(crowding, "POLICY", POLICY), serving(2) as server:
        warm_up(server)
        idle = measure(server)
        with sampling(server) as most:
            for name in names:
                client = Client(server, connections, time.monotonic() + seconds)
                ATTACKS[name](client)
                while not client.is_over:
                    time.sleep(0.1)
                for connection in client.sockets:
                    connection.close()
        until = time.monotonic() + PATIENCE
        while measure(server) > idle + MOST_LEFT and time.monotonic() < until:
            time.sleep(0.5)
        left = measure(server) - idle
        with psycopg.connect(server.conninfo("analyst0"), autocommit=True) as connection:
            connection.execute("SELECT oid, * FROM pg_class").fetchall()
    return most[0] - idle, left


def main() -> int:
    """Run the attacks that the command line names, or all."""
    parser = argparse.ArgumentParser(description=re.split(r"\n\n", __doc__ or "")[0])
    parser.add_argument("attacks", nargs="*", default=list(ATTACKS))
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--connections", type=int, default=100)
    given = parser.parse_args()
    failed = False
    for name in given.attacks:
        growth, left = attack(name, seconds=given.seconds, connections=given.connections)
        failed |= growth > MOST_GROWTH or left > MOST_LEFT
        sys.stdout.write(f"{name:20} {growth:6.0f} MB more, {left:6.0f} MB left\n")
        sys.stdout.flush()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
