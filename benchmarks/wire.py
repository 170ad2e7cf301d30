"""The wire server beside PostgreSQL: first row and questions a second, of the same rows and clients in one run.

    python -m benchmarks run wire [--rows 100000 1000000] [--questions 16] [--clients 1 8]

`dpsql serve` answers `TOP 10 PRIVATE` of a DuckDB file, with its ledger on the disk of the temporary folder. The
PostgreSQL of the test extra answers the plain query on the same rows: the exact counts of all groups, `ORDER BY n DESC
LIMIT 10`. Both run on this machine in processes of their own, over TCP without TLS, and are asked by psycopg.
A *distinct* question was never asked before: dpsql plans it, charges the ledger durably, counts and draws. One *again*
is one that was: dpsql replays its answer at no cost, PostgreSQL counts once more. `SELECT 1` is what the way there and
back costs, and *columns* lists the columns of the table by information_schema, as tools do before a question. First row
is the time from sending a question to holding a row, by one client that is connected, and both servers are asked in
turns; questions a second are of so many clients at once.

The plain query is not private: the figures say what a private answer costs beside an exact one, and nothing else.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import psycopg
from program.main import alone
from program.row import Row, Value
from program.times import Run, Times, in_turns
from servers import Place, events_in, in_postgres, served

QUICK = {"rows": [5_000], "questions": 4, "clients": [1, 2]}
NOTHING = "SELECT 1"
COLUMNS = "SELECT column_name, data_type FROM information_schema.columns WHERE table_schema IN ('main', 'public')"
Question = Callable[[], str]


def options(parser: ArgumentParser) -> None:
    """Add sizes and clients."""
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--questions", type=int, default=16)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8])


def run(given: Namespace) -> Iterator[Row]:
    """Ask both servers each kind of question, for each size."""
    for rows in given.rows:
        with events_in(rows) as folder, in_postgres(folder) as postgres, served(folder, catalog="auto") as dpsql:
            for kind in KINDS:
                asked = {place: KINDS[kind](place) for place in (postgres, dpsql)}
                firsts = first_rows(asked, times=given.questions)
                for place, question in asked.items():
                    times = given.questions if kind == "distinct" or place is postgres else 10 * given.questions
                    figures: dict[str, Value] = {"first row ms": firsts[place.name].values("ms")["wall ms"]}
                    for count in given.clients:
                        figures[f"a second, clients = {count}"] = rate(place, question, times=times, clients=count)
                    against = "" if place is postgres else postgres.name
                    yield Row(f"{rows:,} rows, {kind}", place.name, figures, against)


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


KINDS: Mapping[str, Callable[[Place], Question]] = {
    "distinct": lambda place: place.distinct,
    "again": again,
    NOTHING: lambda _: lambda: NOTHING,
    "columns": lambda _: lambda: COLUMNS,
}


if __name__ == "__main__":
    alone(__file__)
