"""The wire server beside PostgreSQL: first row and questions a second, of the same rows and clients in one run.

    python -m benchmarks run wire [--rows 100000 1000000] [--questions 16] [--repeats 200] [--clients 1 8]

`dpsql serve` answers `TOP 10 PRIVATE` of a DuckDB file, with its ledger on the disk of the temporary folder. The
PostgreSQL of the test extra answers the plain query on the same rows: the exact counts of all groups, `ORDER BY n DESC
LIMIT 10`. Both run on this machine in processes of their own, over TCP, and are asked by psycopg. dpsql is asked over
TLS, too; the PostgreSQL of the test extra is built without it.

A *distinct* question was never asked before: dpsql plans it, charges the ledger durably, counts and draws. One
*again* is one that was: dpsql replays its answer at no cost, PostgreSQL counts once more. `SELECT 1` and `SHOW` are
what the way there and back costs, and *columns* asks `information_schema.columns` for the columns of the table. First
row is the time from sending a question to holding a row, by one client that is connected, and the servers that read
rows for it are asked in turns, as are those that read none; questions a second are of so many clients at once.
*Login* is the time to connect, with SCRAM-SHA-256 and as many iterations as each server has by default: 4,096 in
PostgreSQL, 16,384 in dpsql, which the client computes.

The plain query is not private: the figures say what a private answer costs beside an exact one, and nothing else.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import psycopg
from program.main import alone
from program.row import Row, Value
from program.times import Run, Times, in_turns
from servers import Place, events_in, in_postgres, served

QUICK = {"rows": [5_000], "questions": 4, "repeats": 4, "clients": [1, 2]}
NOTHING, SETTING = "SELECT 1", "SHOW TimeZone"
COLUMNS = "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'events'"
Question = Callable[[], str]


def options(parser: ArgumentParser) -> None:
    """Add sizes, repetitions and clients."""
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--questions", type=int, default=16, help="of those that read rows")
    parser.add_argument("--repeats", type=int, default=200, help="of those that read none")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8])


def run(given: Namespace) -> Iterator[Row]:
    """Ask all servers each kind of question, for each size, and log in to each."""
    for rows in given.rows:
        with events_in(rows) as folder, in_postgres(folder) as postgres, served(folder, catalog="auto") as dpsql:
            places = postgres, dpsql, dpsql.over_tls()
            for kind in KINDS:
                yield from compare(places, kind, table=f"{rows:,} rows, {kind}", given=given)
            if rows == given.rows[-1]:
                yield from compare_logins(places, given.questions)


def compare(places: Sequence[Place], kind: str, *, table: str, given: Namespace) -> Iterator[Row]:
    """Ask the servers one kind of question: in turns, and each alone by several clients at once."""
    postgres, *_ = places
    asked = {place: KINDS[kind](place) for place in places}
    readers = {place: asked[place] for place in places if kind == "distinct" or (kind, place) == ("again", postgres)}
    others = {place: asked[place] for place in places if place not in readers}
    firsts = first_rows(readers, times=given.questions) | first_rows(others, times=given.repeats)
    for place, question in asked.items():
        times = given.questions if place in readers else 10 * given.repeats
        figures: dict[str, Value] = {"first row ms": firsts[place.name].values("ms")["wall ms"]}
        for count in given.clients:
            figures[f"a second, clients = {count}"] = rate(place, question, times=times, clients=count)
        yield Row(table, place.name, figures, "" if place is postgres else postgres.name)


def compare_logins(places: Sequence[Place], times: int) -> Iterator[Row]:
    """Log in to the servers in turns."""
    postgres, *_ = places
    taken = in_turns({place.name: partial(log_in, place) for place in places}, times)
    for place in places:
        figures: dict[str, Value] = {"wall ms": taken[place.name].values("ms")["wall ms"]}
        yield Row("login", place.name, figures, "" if place is postgres else postgres.name)


def log_in(place: Place) -> None:
    """Connect, and leave."""
    place.connected().close()


def again(place: Place) -> Question:
    """Return what asks one question over and over, after it was asked once."""
    question = place.distinct()
    with place.connected() as connection:
        connection.execute(question).fetchall()
    return lambda: question


def first_rows(asked: Mapping[Place, Question], *, times: int) -> dict[str, Times]:
    """Return the times until one client holds a row, in turns."""
    with ExitStack() as holds:
        runs: dict[str, Run] = {}
        for place, question in asked.items():
            connection = holds.enter_context(place.connected())
            runs[place.name] = partial(first_row, connection, question)
        return in_turns(runs, times)


def first_row(connection: psycopg.Connection[tuple[object, ...]], question: Question) -> object:
    """Ask, and return the first row."""
    return connection.execute(question()).fetchone()


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


def always(text: str) -> Callable[[Place], Question]:
    """Return what asks a text of every server."""
    return lambda _: lambda: text


KINDS: Mapping[str, Callable[[Place], Question]] = {
    "distinct": lambda place: place.distinct,
    "again": again,
    NOTHING: always(NOTHING),
    "SHOW": always(SETTING),
    "columns": always(COLUMNS),
}


if __name__ == "__main__":
    alone(__file__)
