"""What a surface costs: one question in process, through the DB-API, and PostgreSQL's protocol by rows and by columns.

    python -m benchmarks run surfaces [--rows 100000] [--questions 20]

The same rows, the same policy, ledgers on the same disk, ten names and counts. A *distinct* question was never asked
before and is planned, charged, counted and drawn; one *again* is answered from the ledger, so that little but the
surface is left; the plain query of DuckDB stands beside them, in this process. Servers run in a process of their own:
their CPU is added where the system tells it, which is Linux.
"""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import adbc_driver_postgresql.dbapi
import duckdb
from program.main import alone
from program.row import Row
from program.times import Clocks, Run, in_turns
from servers import COLUMNS, PLAIN, Place, events_in, served

import dpsql
import dpsql.dbapi

QUICK = {"rows": 5_000, "questions": 2}
Ask = Callable[[str], object]


def options(parser: ArgumentParser) -> None:
    """Add the size."""
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--questions", type=int, default=20)


def run(given: Namespace) -> Iterator[Row]:
    """Ask through each surface in turns."""
    with events_in(given.rows) as folder, served(folder, catalog="auto") as place, ExitStack() as holds:
        surfaces = opened(folder, place, holds=holds)
        same = place.distinct()
        for kind, question in (("distinct", place.distinct), ("again", lambda: same)):
            runs: dict[str, Run] = {name: partial(asked, ask, question) for name, ask in surfaces.items()}
            runs["plain query of DuckDB"] = plain(folder, holds)
            for name, times in in_turns(runs, given.questions, clocks=clocks_with(place.pid)).items():
                against = "" if name == "in process" else "in process"
                yield Row(f"{kind}, {given.rows:,} rows", name, times.values("ms"), against)


def asked(ask: Ask, question: Callable[[], str]) -> object:
    """Ask a question and return its answer."""
    return ask(question())


def opened(folder: Path, place: Place, *, holds: ExitStack) -> dict[str, Ask]:
    """Return what asks a question and fetches all of its answer, by surface."""
    policy, database = folder / "policy.toml", folder / "events.duckdb"
    session = holds.enter_context(dpsql.connect(database, policy=policy, ledger=folder / "own.ledger"))
    local = holds.enter_context(dpsql.dbapi.connect(database, policy=policy, ledger=folder / "dbapi.ledger"))
    wire = holds.enter_context(place.connected())
    columnar = holds.enter_context(adbc_driver_postgresql.dbapi.connect(place.dsn, autocommit=True))
    return {
        "in process": lambda text: session.sql(text).arrow(),
        "DB-API": lambda text: fetched(local.cursor(), text),
        "wire (psycopg)": lambda text: wire.execute(text).fetchall(),
        "wire (ADBC)": lambda text: fetched(columnar.cursor(), text),
    }


def fetched(cursor: Any, text: str) -> object:  # noqa: ANN401 - of whichever driver
    """Return all rows of an answer."""
    try:
        cursor.execute(text)
        return cursor.fetchall()
    finally:
        cursor.close()


def plain(folder: Path, holds: ExitStack) -> Callable[[], object]:
    """Return what asks DuckDB itself, on a copy: one process alone opens a file to write, and dpsql reads this one."""
    connection = holds.enter_context(duckdb.connect())
    connection.execute(f"CREATE TABLE events ({COLUMNS})")
    connection.execute(f"COPY events FROM '{folder / 'events.csv'}' (HEADER false)")
    return lambda: connection.execute(PLAIN.format(number=1_000)).fetchall()


def clocks_with(pid: int) -> Clocks:
    """Return clocks that see the CPU of another process, too, where the system tells."""
    other = (~pid << 3) | 2  # the clock of all threads of a process, as Linux numbers it (clock_getcpuclockid)

    def clocks() -> tuple[float, float]:
        seen = time.clock_gettime(other) if sys.platform == "linux" else 0.0
        return time.process_time() + seen, time.perf_counter()

    return clocks


if __name__ == "__main__":
    alone(__file__)
