"""The wire server beside PostgreSQL: first row and questions a second, of the same rows and clients in one run.

    python benchmarks/wire.py [--rows 1000000] [--questions 16] [--clients 1 8] [--quick]

`dpsql serve` answers `TOP 10 PRIVATE` of a DuckDB file, with its ledger on the disk of the temporary folder. The
PostgreSQL of the test extra answers the plain query on the same rows: the exact counts of all groups, `ORDER BY n DESC
LIMIT 10`. Both run on this machine in processes of their own, over TCP without TLS, and are asked by psycopg.
A *distinct* question was never asked before: dpsql plans it, charges the ledger durably, counts and draws. One *again*
is one that was: dpsql replays its answer for nothing, PostgreSQL counts once more. `SELECT 1` is what the way there and
back costs. First row is the median from sending a question to holding a row, by one client that is connected; questions
a second are of so many clients at once.

The plain query is not private: the figures say what a private answer costs beside an exact one, and nothing else.
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import runpy
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import duckdb
import psycopg

PRIVATE = "SELECT item, COUNT(DISTINCT user_id) AS n FROM events WHERE dwell <> {number} GROUP BY item TOP 10 PRIVATE"
PLAIN = (
    "SELECT item, COUNT(DISTINCT user_id) AS n FROM events WHERE dwell <> {number} GROUP BY item "
    "ORDER BY n DESC, item LIMIT 10"
)
NOTHING = "SELECT 1"
GENERATE = """
COPY (SELECT CAST(floor({users} * u * u) AS BIGINT) AS user_id,
             'item number ' || CAST(floor(pow(1 - v * (1 - pow(20000, -0.1)), -10)) AS BIGINT) AS item,
             CAST(hash(i) % 1000 AS INTEGER) AS dwell
      FROM (SELECT i, hash(hash(i, 'user')) / pow(2, 64) AS u, hash(hash(i, 'item')) / pow(2, 64) AS v
            FROM range({rows}) AS t(i)))
TO '{file}' (FORMAT csv, HEADER false)
"""
COLUMNS = "user_id BIGINT, item VARCHAR, dwell INTEGER"
POLICY = """
ledger = "spent.ledger"
[budget]
epsilon = 100.0
delta = 1e-3
items = 1_000_000
queries = 100_000
[tables.events]
privacy_unit = "user_id"
[server]
users = "users.toml"
postgres = "127.0.0.1:{port}"
web = "off"
catalog = "minimal"
statements_per_minute = 1_000_000
"""
NAME = PASSWORD = "benchmark"  # noqa: S105 - of a server that lives for a minute, on this machine alone
START = 60.0
NUMBERS = itertools.count(1_000)  # dwell is below: the condition is always true, and every question is another
SETTINGS = ("shared_buffers=512MB", "work_mem=256MB", "fsync=on")
Question = Callable[[], str]


@dataclass(frozen=True)
class Place:
    """Something to ask, and how it is asked."""

    name: str
    dsn: str
    text: str

    def distinct(self) -> str:
        """Return a question that was never asked."""
        return self.text.format(number=next(NUMBERS))

    def again(self) -> Question:
        """Return what asks one question over and over, after it was asked once."""
        question = self.distinct()
        with self.connected() as connection:
            connection.execute(question).fetchall()
        return lambda: question

    def connected(self) -> psycopg.Connection[tuple[object, ...]]:
        """Return a connection on which nothing but the question is sent."""
        return psycopg.connect(self.dsn, autocommit=True)


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def served(folder: Path) -> Iterator[Place]:
    """Serve the rows in `folder` with dpsql, in a process of its own."""
    port = free_port()
    (folder / "policy.toml").write_text(POLICY.format(port=port))
    with duckdb.connect(folder / "events.duckdb") as connection:
        connection.execute(f"CREATE TABLE events ({COLUMNS})")
        connection.execute(f"COPY events FROM '{folder / 'events.csv'}' (HEADER false)")
    command = [sys.executable, "-c", "from dpsql.cli import main; main()"]
    add = [*command, "user", "add", NAME, "--policy", "policy.toml", "--password-stdin"]
    subprocess.run(add, input=PASSWORD, text=True, cwd=folder, check=True, stdout=subprocess.DEVNULL)  # noqa: S603
    serve = [*command, "serve", "--policy", "policy.toml", "--db", "events.duckdb"]
    place = Place("dpsql", f"host=127.0.0.1 port={port} user={NAME} password={PASSWORD} dbname=dpsql", PRIVATE)
    with (folder / "log").open("w") as log, subprocess.Popen(serve, cwd=folder, stdout=log, stderr=log) as process:  # noqa: S603
        try:
            wait_for(place, process, folder / "log")
            yield place
        finally:
            process.terminate()
            process.wait(timeout=START)


def wait_for(place: Place, process: subprocess.Popen[bytes], log: Path) -> None:
    """Return when a client gets in."""
    deadline = time.monotonic() + START
    while True:
        try:
            place.connected().close()
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(log.read_text()) from None
            time.sleep(0.1)
        else:
            return


@contextmanager
def in_postgres(folder: Path) -> Iterator[Place]:
    """Fill a PostgreSQL of our own with the rows in `folder`."""
    kit = runpy.run_path(str(Path(__file__).parents[1] / "tests" / "ledger" / "postgres_kit.py"))
    port, home = free_port(), folder / "postgres"
    home.mkdir()
    server = kit["Server"](home)
    os.environ["PGPORT"] = str(port)  # the kit names none
    server.start("listen_addresses=127.0.0.1", f"port={port}", *SETTINGS)
    try:
        place = Place("PostgreSQL", f"host=127.0.0.1 port={port} user=tester dbname=postgres", PLAIN)
        with place.connected() as connection:
            connection.execute(f"CREATE TABLE events ({COLUMNS})")
            with connection.cursor().copy("COPY events FROM STDIN (FORMAT csv)") as copy:
                copy.write((folder / "events.csv").read_bytes())
            connection.execute("VACUUM ANALYZE events")
        yield place
    finally:
        server.stop()


def first_row(place: Place, question: Question, *, times: int) -> float:
    """Return the median of seconds until one client holds a row."""
    taken = []
    with place.connected() as connection:
        for _ in range(times):
            text = question()
            began = time.perf_counter()
            connection.execute(text).fetchone()
            taken.append(time.perf_counter() - began)
    return median(taken)


def rate(place: Place, question: Question, *, times: int, clients: int) -> float:
    """Return questions a second of so many clients, each connected before the first asks."""
    connections = [place.connected() for _ in range(clients)]

    def ask(connection: psycopg.Connection[tuple[object, ...]]) -> None:
        for _ in range(max(1, times // clients)):
            connection.execute(question()).fetchall()

    try:
        with ThreadPoolExecutor(clients) as threads:
            began = time.perf_counter()
            list(threads.map(ask, connections))
            taken = time.perf_counter() - began
    finally:
        for connection in connections:
            connection.close()
    return max(1, times // clients) * clients / taken


def report(places: list[Place], questions: int, *, clients: list[int]) -> None:
    """Print a row for each way to ask and place to ask, in turns."""
    print(f"{'':34}{'first row':>12}" + "".join(f"{f'{count} client' + 's' * (count > 1):>14}" for count in clients))
    for kind in ("distinct", "again", NOTHING):
        for place in places:
            question = {"distinct": lambda: place.distinct, "again": place.again, NOTHING: lambda: lambda: NOTHING}  # noqa: B023
            times = questions if kind == "distinct" or place.text == PLAIN else 10 * questions
            asked = question[kind]()
            first = first_row(place, asked, times=questions)
            rates = [rate(place, asked, times=times, clients=count) for count in clients]
            print(
                f"{place.name + ', ' + kind:34}{1e3 * first:9.1f} ms" + "".join(f"{figure:12.1f}/s" for figure in rates)
            )


def main() -> None:
    """Run the comparison for each size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--questions", type=int, default=16)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--quick", action="store_true", help="few rows and questions: whether it runs")
    given = parser.parse_args()
    rows, questions = ([5_000], 4) if given.quick else (given.rows, given.questions)
    print(f"Python {platform.python_version()}, DuckDB {duckdb.__version__}, {os.cpu_count()} cores")
    for count in rows:
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            folder.chmod(0o755)  # PostgreSQL runs as somebody else
            duckdb.sql(GENERATE.format(users=count // 10, rows=count, file=folder / "events.csv"))
            with in_postgres(folder) as postgres, served(folder) as dpsql:
                print(f"\n{count:,} rows")
                report([postgres, dpsql], questions, clients=given.clients)


if __name__ == "__main__":
    main()
