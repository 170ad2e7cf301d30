"""What the ledger costs: a query's reserve and settle, alone and among writers; its size; its opening.

    python -m benchmarks run ledger [--queries 400] [--writers 1 4 16] [--events 1000 10000 100000] [--folder DIR]
    python -m benchmarks run ledger --postgres [postgresql://...]

Writers are processes of their own that share one ledger and one account. Times are on the clock, and mostly the disk's:
a reservation and a settlement are flushed before they return. Nothing is kept but a temporary folder while it runs, and
a schema dpsql_benchmark in a database that is named; without a name a server of the test extra is started, on a socket.
"""

from __future__ import annotations

import multiprocessing
import sqlite3
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from fractions import Fraction
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path

from program.main import alone
from program.row import Row, Value
from program.times import Times, timed

from dpsql.accounting import ApproximateDP, BudgetState, BudgetVector
from dpsql.ledger import Account, Ledger, Request, SQLiteLedger, verify
from dpsql.ledger.base import Outcome
from dpsql.ledger.base_ledger import encode_request, encode_settlement
from dpsql.ledger.record import now
from dpsql.ledger.sqlite_tables import SQLiteRows
from dpsql.quantities import Delta, Epsilon

QUICK = {"queries": 20, "writers": [1, 2], "events": [100, 1_000]}
BUDGET = BudgetVector(10**6, "0.5")
TOTAL = ApproximateDP(Epsilon(1), Delta("1e-6"))
QUERY = "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads WHERE country = 'DE' GROUP BY article TOP 20 PRIVATE"
REQUEST = Request(QUERY, BudgetVector("0.00625", "1e-9"), Account("alice", BUDGET), key="0" * 64)
LOSS = Fraction("0.0053125")


def options(parser: ArgumentParser) -> None:
    """Add how much is asked, and where the ledger is."""
    parser.add_argument("--queries", type=int, default=400, help="in all, shared by the writers")
    parser.add_argument("--writers", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--events", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument(
        "--folder", type=Path, metavar="DIR", help="where the ledgers are made: the disk that is measured"
    )
    parser.add_argument("--postgres", nargs="?", const="", help="instead of a file, a database or a server of our own")


def run(given: Namespace) -> Iterator[Row]:
    """Ask a ledger in a file or in PostgreSQL; files are then opened at several lengths."""
    if given.postgres is not None:
        yield from in_postgres(given.postgres or own_server(), given)
        return
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        for writers in given.writers:
            yield among(writers, given.queries, place=Path(folder) / f"{writers}.ledger")
        for events in given.events:
            yield opening(Path(folder) / f"{events} events.ledger", events)


def in_postgres(url: str, given: Namespace) -> Iterator[Row]:
    """Ask a ledger in a PostgreSQL database."""
    import psycopg

    for writers in given.writers:
        yield among(writers, given.queries, place=f"{url}{'&' if '?' in url else '?'}schema=dpsql_benchmark")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("DROP SCHEMA dpsql_benchmark CASCADE")


def own_server() -> str:
    """Start the server that the tests use, until the end of this process, and return its address."""
    from servers import postgres_kit

    url: str = postgres_kit()["server"]().url("").replace("&schema=", "")
    return url


def opened(place: Path | str) -> AbstractContextManager[Ledger]:
    """Return the ledger of a block, new or old."""
    if isinstance(place, str):
        from dpsql.ledger.postgres_ledger import PostgresLedger

        return closing(PostgresLedger(place, BUDGET, total=TOTAL))
    return closing(SQLiteLedger(place, BUDGET, total=TOTAL))


def ask(place: Path | str, queries: int, *, start: Barrier, times: Queue[list[float]]) -> None:
    """Put how long each of so many queries took."""
    with opened(place) as ledger:
        start.wait()
        times.put([timed(lambda: ledger.reserve(REQUEST).settle(LOSS, "0" * 64))[1] for _ in range(queries)])


def among(writers: int, queries: int, *, place: Path | str) -> Row:
    """Return how long a query takes when so many processes ask at once."""
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
    figures: dict[str, Value] = {
        "a query ms": [1e3 * time_ for time_ in taken],
        "p99 ms": 1e3 * p99,
        "a second": len(taken) / longest,
    }
    return Row("reserve and settle among writers", f"{writers} writing", figures)


def opening(path: Path, events: int) -> Row:
    """Return how long a ledger of so many events takes to open, first and again, and to verify, and how large it is."""
    fill(path, events)
    first = timed(lambda: opened(path).__enter__().close())  # there is no checkpoint yet
    times = Times.of(timed(lambda: opened(path).__enter__().close()) for _ in range(5))
    figures: dict[str, Value] = {
        "open, all read ms": 1e3 * first[1],
        "open wall ms": times.values("ms")["wall ms"],
        "verify ms": 1e3 * timed(lambda: verify(path))[1],
        "bytes a query": 2 * path.stat().st_size // events,
    }
    return Row("history", f"{events:,} events", figures, at=events)


def fill(path: Path, events: int, *, answer: bytes = b"", distinct: bool = True) -> None:
    """Let a ledger grow to so many events, as the queries of one account leave them, under distinct keys or one.

    It writes what the acts of a ledger write, many at once, and leaves out what they look up; whoever opens the ledger
    verifies all of it.
    """
    with opened(path):
        pass
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        rows, at, outcome = SQLiteRows(connection), now(), Outcome(LOSS, "0" * 64, answer)
        numbers = range(rows.head()[0] // 2, events // 2)
        for number in numbers:
            key = key_of(number) if distinct else REQUEST.key
            request = replace(REQUEST, query=f"{QUERY} -- {number}", key=key)
            entry = rows.append("reserved", encode_request(request, data_version=0), at=at)
            rows.append("settled", encode_settlement(entry, outcome), at=at)
            if answer:
                rows.keep(entry, answer)
        for holder in (None, "alice"):
            rows.set_balance(holder, after(rows.balance(holder), len(numbers)))
        connection.execute("COMMIT")


def after(state: BudgetState, queries: int) -> BudgetState:
    """Return what is spent after so many queries more."""
    permanent = state.permanent + queries * REQUEST.worst_case.permanent
    return BudgetState(state.spent + queries * LOSS, permanent, state.reserved)


def key_of(number: int) -> str:
    """Return the key of one of the distinct queries."""
    return f"{number:064}"


if __name__ == "__main__":
    alone(__file__)
