"""What the ledger costs: a query's reserve and settle, alone and among writers; its size; its opening.

    python benchmarks/ledger.py [--queries 300] [--folder /somewhere]
    python benchmarks/ledger.py --postgres [postgresql://...]

Writers are processes of their own that share one ledger and one account. Times are on the clock, and mostly the disk's:
a reservation and a settlement are flushed before they return. Nothing is kept but a temporary folder while it runs, and
a schema dpsql_benchmark in a database that is named; without a name a server of the test extra is started, on a socket.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import runpy
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from statistics import median

from dpsql.accounting import ZCDP, ApproximateDP
from dpsql.ledger import Account, Ledger, Request, SQLiteLedger, verify
from dpsql.ledger.keeper import Book, Keeper
from dpsql.ledger.sqlite_book import Rows
from dpsql.quantities import Delta, Epsilon, Rho

BUDGET = ZCDP(Rho(10**6), Delta("0.5"))
TOTAL = ApproximateDP(Epsilon(1), Delta("1e-6"))
QUERY = "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads WHERE country = 'DE' GROUP BY article TOP 20 PRIVATE"
REQUEST = Request(QUERY, ZCDP(Rho("0.00625"), Delta("1e-9")), Account("alice", BUDGET), key="0" * 64)
LOSS = Rho("0.0053125")
WRITERS = (1, 4, 16)
EVENTS = (1_000, 10_000, 100_000)


def opened(place: Path | str) -> AbstractContextManager[Ledger]:
    """Return the ledger of a block, new or old."""
    if isinstance(place, str):
        from dpsql.ledger.postgres import PostgresLedger

        return closing(PostgresLedger(place, BUDGET, total=TOTAL))
    return closing(SQLiteLedger(place, BUDGET, total=TOTAL))


def ask(place: Path | str, queries: int, *, start: Barrier, times: Queue[list[float]]) -> None:
    """Put how long each of so many queries took."""
    taken = []
    with opened(place) as ledger:
        start.wait()
        for _ in range(queries):
            began = time.perf_counter()
            ledger.reserve(REQUEST).settle(LOSS, "0" * 64)
            taken.append(time.perf_counter() - began)
    times.put(taken)


def among(writers: int, queries: int, *, place: Path | str) -> None:
    """Print how long a query takes when so many processes ask at once."""
    with opened(place):
        pass
    context = multiprocessing.get_context("spawn")
    start, times = context.Barrier(writers), context.Queue()
    each = max(queries // writers, 20)
    running = [
        context.Process(target=ask, args=(place, each), kwargs={"start": start, "times": times}) for _ in range(writers)
    ]
    for process in running:
        process.start()
    lists = [times.get() for _ in running]
    taken, longest = sorted(time_ for list_ in lists for time_ in list_), max(map(sum, lists))
    for process in running:
        process.join()
    p99 = taken[min(len(taken) - 1, len(taken) * 99 // 100)]
    print(
        f"{writers:3} writing  median {median(taken) * 1e3:8.2f} ms   p99 {p99 * 1e3:8.2f} ms   "
        f"longest {taken[-1] * 1e3:8.2f} ms   {len(taken) / longest:6.0f} queries/s"
    )


class Batch(Keeper):
    """The acts of a ledger within one transaction, so that a long history is made in seconds."""

    durable = False

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @contextmanager
    def _writing(self) -> Iterator[Book]:
        yield Rows(self._connection)

    _reading = _writing


def fill(path: Path, events: int) -> None:
    """Make a ledger of so many events, as the queries of one account leave them."""
    with opened(path):
        pass
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        batch = Batch(connection)
        for number in range(events // 2):
            batch.reserve(replace(REQUEST, query=f"{QUERY} -- {number}")).settle(LOSS, "0" * 64)
        connection.execute("COMMIT")


def openings(folder: Path) -> None:
    """Print how long a ledger takes to open, and how large it is, for histories of several lengths."""
    for events in EVENTS:
        path = folder / f"{events}.ledger"
        fill(path, events)
        taken = []
        for _ in range(5):
            began = time.perf_counter()
            with opened(path):
                taken.append(time.perf_counter() - began)
        began = time.perf_counter()
        verify(path)
        verified = time.perf_counter() - began
        size = path.stat().st_size
        print(
            f"{events:7,} events  opens in {median(taken) * 1e3:8.1f} ms ({median(taken) / events * 1e6:5.2f} us an "
            f"event)   verify {verified * 1e3:8.1f} ms   {size / events * 2:5.0f} bytes a query"
        )


def in_postgres(url: str, queries: int) -> None:
    """Print the same of a ledger in a PostgreSQL database."""
    import psycopg

    for writers in WRITERS:
        among(writers, queries, place=f"{url}{'&' if '?' in url else '?'}schema=dpsql_benchmark")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("DROP SCHEMA dpsql_benchmark CASCADE")


def own_server() -> str:
    """Start the server that the tests use, until the end of this process, and return its address."""
    kit = runpy.run_path(str(Path(__file__).parents[1] / "tests" / "ledger" / "postgres_kit.py"))
    url: str = kit["server"]().url("").replace("&schema=", "")
    return url


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=400, help="in all, shared by the writers")
    parser.add_argument("--folder", type=Path, help="where the ledgers are made: the disk that is measured")
    parser.add_argument("--postgres", nargs="?", const="", help="instead of a file, a database or a server of our own")
    given = parser.parse_args()
    print(f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {os.cpu_count()} cores")
    if given.postgres is not None:
        in_postgres(given.postgres or own_server(), given.queries)
        return
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        for writers in WRITERS:
            among(writers, given.queries, place=Path(folder) / f"{writers}.ledger")
        openings(Path(folder))


if __name__ == "__main__":
    main()
