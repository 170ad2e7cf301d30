"""Many analysts at once: a light question while others ask heavy ones, and four heavy ones at the same time.

    python -m benchmarks run concurrency [--rows 1000000] [--engines duckdb postgres] [--seconds 60]

The service behind `dpsql serve` runs in this process, with its ledger on the disk of the temporary folder; DuckDB reads
a database file, PostgreSQL (of the test extra, on this machine) its own table. A *heavy* question is a private top 10
over all rows, a *light* one over 20,000 of them, and none was asked before. Each engine has a process of its own.

*Light, alone* is asked by twelve analysts, each every two seconds. *Light, 16 analysts* is the same, while four others
ask heavy questions without a pause, after each had one answer: with the default of `connections`, and with one, which
is how earlier versions worked. *Heavy, 4 at once* are asked by four analysts at the same moment; the last of them ends
4 times as late as one alone where they run one after the other. The plain heavy query is sent to the engine itself,
over one connection and over four.
"""

from __future__ import annotations

import itertools
import multiprocessing
import sys
import threading
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import duckdb
import psycopg
from program.main import alone
from program.row import Row
from servers import COLUMNS, PLAIN, events_in, fill, postgres

import dpsql
from dpsql.server.gateway import Service
from dpsql.server.serve import SWITCH_INTERVAL

QUICK = {"rows": [2_000], "engines": ["duckdb", "postgres"], "seconds": 0.2}
LIGHT_ROWS, LIGHT, HEAVY, EVERY = 20_000, 12, 4, 2.0
ANALYSTS = LIGHT + HEAVY
PRIVATE = (
    "SELECT item, COUNT(DISTINCT user_id) AS n FROM {table} WHERE dwell <> {number} GROUP BY item TOP 10 PRIVATE "
    "WITH (mechanism = limited_domain, k_bar = 1000)"
)
BUDGET = dpsql.Budget(100, "1e-3", items=1_000_000, queries=100_000)
Plain = Callable[[], object]
Samples = tuple[float, ...]


def options(parser: ArgumentParser) -> None:
    """Add the sizes, the engines and the time that each workload of several analysts takes."""
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--engines", nargs="+", default=list(SOURCES), choices=SOURCES, metavar="ENGINE")
    parser.add_argument("--seconds", type=float, default=60.0)


def run(given: Namespace) -> Iterator[Row]:
    """Measure each engine and size in a process of its own."""
    for rows in given.rows:
        for name in given.engines:
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as processes:
                found = processes.submit(measured, name, rows, given.seconds).result()
            for row, (samples, against) in found.items():
                yield Row(f"{rows:,} rows on {name}", row, {"wall s": samples}, against)


def measured(name: str, rows: int, seconds: float) -> dict[str, tuple[Samples, str]]:
    """Return the seconds that questions took on an engine, and the row that they are told against."""
    sys.setswitchinterval(SWITCH_INTERVAL)  # as the server has it
    with events_in(rows) as folder, SOURCES[name](folder) as (policy, database, plain):
        with closing(Service(database, policy())) as service:
            ask = partial(_ask, service)
            heavy = _one_by_one(partial(ask, "analyst 0", "events"), count=HEAVY)
            together = _at_once([partial(ask, f"analyst {number}", "events") for number in range(HEAVY)])
            light = _crowd(ask, seconds, heavy=0)
            crowd = _crowd(ask, seconds, heavy=HEAVY)
        with closing(Service(database, policy(connections=1))) as service:
            single = _crowd(partial(_ask, service), seconds, heavy=HEAVY)
        plains = [plain() for _ in range(HEAVY)]
        one, four = _one_by_one(plains[0], count=HEAVY), _at_once(plains)
    return {
        "light, alone": (light, ""),
        f"light, {ANALYSTS} analysts": (crowd, "light, alone"),
        f"light, {ANALYSTS} analysts, connections = 1": (single, "light, alone"),
        "heavy, alone": (heavy, ""),
        "heavy, 4 at once": ((together,), "heavy, alone"),
        "plain, alone": (one, ""),
        "plain, 4 at once": ((four,), "plain, alone"),
    }


_NUMBERS = itertools.count(1_000)  # dwell is below: the condition is always true, and every question is another


def _ask(service: Service, analyst: str, table: str) -> None:
    text = PRIVATE.format(table=table, number=next(_NUMBERS))
    service.answer(analyst, lambda session, stop: session.sql(text, stop=stop))


def _one_by_one(run: Callable[[], object], *, count: int) -> Samples:
    """Return the seconds of each run, after one to warm up."""
    run()
    return tuple(_seconds(run) for _ in range(count))


def _at_once(runs: list[Callable[[], object]]) -> float:
    """Return the seconds until the last of several runs at the same time has ended."""
    with ThreadPoolExecutor(len(runs)) as threads:
        return _seconds(lambda: list(threads.map(lambda run: run(), runs)))


def _crowd(ask: Callable[[str, str], None], seconds: float, *, heavy: int) -> Samples:
    """Return the seconds of light questions, while some analysts ask heavy ones without a pause."""
    begins, ends, taken = threading.Barrier(LIGHT + heavy + 1), threading.Event(), list[float]()

    def ask_heavy(number: int) -> None:
        ask(f"heavy {number}", "events")
        begins.wait()
        while not ends.is_set():
            ask(f"heavy {number}", "events")

    def ask_light(number: int) -> None:
        ask(f"light {number}", "light")
        begins.wait()
        ends.wait(EVERY * number / LIGHT)
        while not ends.is_set():
            began = time.monotonic()
            taken.append(_seconds(lambda: ask(f"light {number}", "light")))
            ends.wait(began + EVERY - time.monotonic())

    acts = [*(partial(ask_heavy, each) for each in range(heavy)), *(partial(ask_light, each) for each in range(LIGHT))]
    with ThreadPoolExecutor(len(acts)) as threads:
        going = [threads.submit(act) for act in acts]
        begins.wait()
        time.sleep(seconds)
        ends.set()
        for each in going:
            each.result()
    return tuple(taken)


def _seconds(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def _policy(folder: Path, source: dpsql.DataSource | None = None, *, connections: int | None = None) -> dpsql.Policy:
    tables = dict.fromkeys(("events", "light"), dpsql.PrivateTable("user_id"))
    settings = dpsql.EngineSettings(connections=connections)
    return dpsql.Policy(BUDGET, tables, ledger=folder / "spent.ledger", source=source, engine=settings)


Source = tuple[Callable[..., dpsql.Policy], Path | None, Callable[[], Plain]]


@contextmanager
def _duckdb(folder: Path) -> Iterator[Source]:
    database = folder / "events.duckdb"
    with duckdb.connect(database) as connection:
        connection.execute(f"CREATE TABLE events ({COLUMNS})")
        connection.execute(f"COPY events FROM '{folder / 'events.csv'}' (HEADER false)")
        connection.execute(f"CREATE TABLE light AS FROM events LIMIT {LIGHT_ROWS}")
    with duckdb.connect(database, read_only=True) as connection:

        def plain() -> Plain:
            cursor = connection.cursor()
            return lambda: cursor.execute(PLAIN.format(number=next(_NUMBERS))).fetchall()

        yield partial(_policy, folder), database, plain


@contextmanager
def _postgres(folder: Path) -> Iterator[Source]:
    with postgres(folder) as url:
        fill(url, COLUMNS.replace("VARCHAR", "TEXT"), folder / "events.csv")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"CREATE TABLE light AS TABLE events LIMIT {LIGHT_ROWS}")
            connection.execute("VACUUM ANALYZE light")
        opened: list[psycopg.Connection[tuple[object, ...]]] = []

        def plain() -> Plain:
            opened.append(connection := psycopg.connect(url, autocommit=True))
            return lambda: connection.execute(PLAIN.format(number=next(_NUMBERS))).fetchall()

        try:
            yield partial(_policy, folder, dpsql.DataSource(url)), None, plain
        finally:
            for each in opened:
                each.close()


SOURCES = {"duckdb": _duckdb, "postgres": _postgres}

if __name__ == "__main__":
    alone(__file__)
