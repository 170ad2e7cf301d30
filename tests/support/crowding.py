"""Clients that crowd others out: one analyst with the worst free statements, silent connections, half requests.

    python tests/support/crowding.py fair [--analysts 32] [--seconds 20]
    python tests/support/crowding.py silent [--connections 300]
    python tests/support/crowding.py halves [--requests 10000]
    python tests/support/crowding.py others [--seconds 20] [rows cursors unread ...]

Each starts `dpsql serve` with all its surfaces, prints what it measured, and ends with 1 where an aim is missed: the
median of the others at most twice as long, a login within 2 s, at most 20 lines of log. `others` measures one other
analyst, beside each kind of statement of `crowds.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import urlopen

import duckdb
import psycopg

if __name__ == "__main__":  # the tests find it themselves
    sys.path.insert(0, str(Path(__file__).parents[1]))

from support.crowds import CROWDS, Medians, measure

from dpsql.server.users import User, add_user

PASSWORD = "a password of nobody"
POLICY = """\
ledger = "ledger.sqlite"
[budget]
epsilon = 100
delta = 1e-6
items = 10000
queries = 1000
[tables.reads]
privacy_unit = "user_id"
[tables.countries]
public = true
[server]
users = "users.toml"
postgres = "127.0.0.1:0"
web = "127.0.0.1:0"
catalog = "none"
statements_per_minute = 1000000
max_connections = 300
"""
WORST = "SELECT COUNT(*) FROM countries a, countries b, countries c, countries d"
HONEST = (
    "SELECT 1",
    "SELECT name FROM countries WHERE code = 7",
    "SELECT article FROM reads GROUP BY article TOP 3 PRIVATE WITH (epsilon = 0.05)",
    "SHOW TABLES",
)
TALKATIVE = "EXPLAIN SELECT article FROM reads WHERE article IN ({}) GROUP BY article TOP 3 PRIVATE"
MOST_MEDIAN, MOST_LOGIN, MOST_LINES = 2.0, 2.0, 20


@dataclass
class Server:
    """A server that runs: where each surface listens, and what it has logged."""

    process: subprocess.Popen[str]
    ports: dict[str, int] = field(default_factory=dict)
    log: list[dict[str, object]] = field(default_factory=list)

    def conninfo(self, user: str) -> str:
        return f"host=127.0.0.1 port={self.ports['postgres']} user={user} password='{PASSWORD}' dbname=dpsql"


@contextmanager
def serving(analysts: int, catalog: str = "none") -> Iterator[Server]:
    """Run `dpsql serve` over small data for so many analysts as long as the block."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with duckdb.connect(str(folder / "events.duckdb")) as database:
            database.execute(
                "CREATE TABLE reads AS SELECT i AS user_id, 'a' || i % 5 AS article FROM range(50000) t(i)"
            )
            database.execute("CREATE TABLE countries AS SELECT i AS code, 'c' || i AS name FROM range(3000) t(i)")
        (folder / "policy.toml").write_text(POLICY.replace('catalog = "none"', f'catalog = "{catalog}"'))
        for number in range(analysts):
            add_user(folder / "users.toml", User(f"analyst{number}"), password=PASSWORD)
        command = [sys.executable, "-c", "from dpsql.cli import main; main()", "serve", "--policy", "policy.toml"]
        process = subprocess.Popen(
            [*command, "--db", "events.duckdb"],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        server, ready = Server(process), threading.Event()

        def reading() -> None:
            assert process.stderr is not None
            for line in process.stderr:
                if line.startswith("{"):
                    server.log.append(found := json.loads(line))
                    if found["event"] == "listens":
                        server.ports[str(found["surface"])] = int(str(found["place"]).rpartition(":")[2])
                    elif found["event"] == "ready":
                        ready.set()

        reader = threading.Thread(target=reading)
        reader.start()
        try:
            if not ready.wait(60):
                raise TimeoutError
            yield server
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
            reader.join()
            if process.stdout is not None:
                process.stdout.close()
                process.stderr and process.stderr.close()


async def work(server: Server, name: str, until: float, taken: list[float]) -> None:
    """Send one ordinary statement after the other, with pauses, and note how long each took."""
    async with await psycopg.AsyncConnection.connect(server.conninfo(name), autocommit=True) as connection:
        for number in range(10**6):
            if time.monotonic() > until:
                return
            began = time.monotonic()
            cursor = await connection.execute(HONEST[number % len(HONEST)])
            await cursor.fetchall()
            taken.append(time.monotonic() - began)
            await asyncio.sleep(0.5)


def median_of(server: Server, analysts: int, seconds: float) -> float:
    """Return the median time of a statement of so many ordinary analysts, in seconds."""
    taken: list[float] = []

    async def all_of_them() -> None:
        until = time.monotonic() + seconds
        await asyncio.gather(*(work(server, f"analyst{number}", until, taken) for number in range(1, analysts)))

    asyncio.run(all_of_them())
    return statistics.median(taken)


def crowd(conninfo: str, seconds: float, connections: int) -> None:
    """Send the worst free statements over many connections of one analyst, and hang up on some of them."""
    until = time.monotonic() + seconds
    long = TALKATIVE.format(", ".join(f"'{number}'" for number in range(3000)))

    def sending(number: int) -> None:
        while time.monotonic() < until:
            with suppress(psycopg.Error, OSError), psycopg.connect(conninfo, autocommit=True) as connection:
                if number % 3 == 0:
                    connection.execute(f"SET statement_timeout = '{2 + number % 5}s'")
                    connection.execute(WORST)
                elif number % 3 == 1:
                    connection.execute(long)
                else:
                    cursor = psycopg.RawCursor(connection)
                    cursor.execute(HONEST[1], prepare=True)

    threads = [threading.Thread(target=sending, args=(number,), daemon=True) for number in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def fair(analysts: int, seconds: float, connections: int = 24) -> tuple[float, float]:
    """Return the median of the others without and with an analyst who crowds them, in seconds."""
    with serving(analysts) as server:
        median_of(server, analysts, min(seconds, 3))  # sessions are opened
        alone = median_of(server, analysts, seconds)
        program = (
            f"from support.crowding import crowd; crowd({server.conninfo('analyst0')!r}, {seconds + 4}, {connections})"
        )
        path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, sys.path)])
        with subprocess.Popen([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path}) as greedy:
            time.sleep(2)
            crowded = median_of(server, analysts, seconds)
            greedy.kill()
    return alone, crowded


def others(kinds: Sequence[str], seconds: float, rest: float = 3) -> Iterator[tuple[str, Medians, Medians]]:
    """Yield each kind of crowd, and the medians of another analyst alone and beside it, in seconds."""
    with serving(2, catalog="auto") as server:

        def median() -> Medians:
            web = server.ports["web"]
            return measure(server.conninfo("analyst1"), web, user="analyst1", password=PASSWORD, seconds=seconds)

        for kind in kinds:
            time.sleep(rest)  # until the former crowd is gone
            alone = median()
            call = f"crowd({kind!r}, {server.ports['postgres']}, user='analyst0', password={PASSWORD!r}, "
            program = f"from support.crowds import crowd; print({call}seconds={seconds + 3}))"
            path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, sys.path)])
            environment = {**os.environ, "PYTHONPATH": path}
            with subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE) as greedy:
                time.sleep(2)
                crowded = median()
                done, _ = greedy.communicate(timeout=30)
            yield f"{kind}, {int(done)} times", alone, crowded


@contextmanager
def plugged(ports: list[int], connections: int, sent: bytes = b"") -> Iterator[None]:
    """Hold so many connections to each port open, each of which sent no more than this."""
    plugs: list[socket.socket] = []
    try:
        for port in ports:
            for number in range(connections):
                plugs.append(socket.create_connection(("127.0.0.1", port), timeout=10))
                if number % 2:
                    with suppress(OSError):
                        plugs[-1].sendall(sent)
        yield
    finally:
        for plug in plugs:
            plug.close()


def silent(connections: int) -> dict[str, float]:
    """Return how long a login takes on each surface while so many connections to each say nothing, in seconds."""
    found = {}
    with serving(2) as server, plugged(list(server.ports.values()), connections, b"GET / HTTP/1.1\r\nHost"):
        began = time.monotonic()
        with psycopg.connect(server.conninfo("analyst1")) as connection:
            connection.execute("SELECT 1")
        found["postgres"] = time.monotonic() - began
        began = time.monotonic()
        with urlopen(f"http://127.0.0.1:{server.ports['web']}/healthz", timeout=30) as answer:
            assert answer.read() == b"ok"
        with urlopen(f"http://127.0.0.1:{server.ports['web']}/login", timeout=30) as answer:
            assert answer.status == 200
        found["web"] = time.monotonic() - began
    return found


def halves(requests: int) -> tuple[int, int]:
    """Return how many lines so many half requests leave in the log, and how many of them are faults."""
    half = [
        b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\n\r\na=",
        b"POST /api/v1/query HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{",
        b"GET / HTTP/1.1\r\nHo",
        b"\0\0",
    ]
    with serving(2) as server:
        before = len(server.log)
        for number in range(requests):
            surface = "web" if number % 4 < 3 else "postgres"
            with socket.create_connection(("127.0.0.1", server.ports[surface]), timeout=10) as plug:
                plug.sendall(half[number % 4])
        time.sleep(1)
        lines = server.log[before:]
    lines = [line for line in lines if line["event"] not in {"stopping", "stopped"}]
    return len(lines), sum(line["event"] == "fault" for line in lines)


def say(words: str) -> None:
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


def main() -> int:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(description=re.split(r"\n\n", __doc__ or "")[0])
    kinds = parser.add_subparsers(dest="kind", required=True)
    first = kinds.add_parser("fair")
    first.add_argument("--analysts", type=int, default=32)
    first.add_argument("--seconds", type=float, default=20)
    kinds.add_parser("silent").add_argument("--connections", type=int, default=300)
    kinds.add_parser("halves").add_argument("--requests", type=int, default=10_000)
    last = kinds.add_parser("others")
    last.add_argument("crowds", nargs="*", default=list(CROWDS))
    last.add_argument("--seconds", type=float, default=20)
    given = parser.parse_args()
    match given.kind:
        case "fair":
            alone, crowded = fair(given.analysts, given.seconds)
            say(f"median alone {1e3 * alone:.1f} ms, crowded {1e3 * crowded:.1f} ms: {crowded / alone:.2f} times")
            return int(crowded > MOST_MEDIAN * alone)
        case "others":
            worst = 0.0
            for kind, alone, crowded in others(given.crowds, given.seconds):
                times = {name: crowded[name] / alone[name] for name in alone}
                worst = max(worst, *times.values())
                each = (
                    f"{name} {1e3 * alone[name]:.2f} -> {1e3 * crowded[name]:.2f} ms, {times[name]:.1f} x"
                    for name in times
                )
                say(f"{kind}: {'; '.join(each)}")
            return int(worst > MOST_MEDIAN)
        case "silent":
            found = silent(given.connections)
            say(", ".join(f"{surface} {seconds:.2f} s" for surface, seconds in found.items()))
            return int(max(found.values()) > MOST_LOGIN)
    lines, faults = halves(given.requests)
    say(f"{lines} lines, {faults} of them faults")
    return int(lines > MOST_LINES)


if __name__ == "__main__":
    sys.exit(main())
