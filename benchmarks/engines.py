"""What privacy costs on other engines: private top 10s beside the plain query of the same engine and data.

    python -m benchmarks run engines [--rows 100000 1000000] [--engines duckdb mariadb] [--repeats 5]

The private queries are unbounded, bounded to 5 groups of a unit, and weighted. Each engine and size has a process of
its own, in which the queries run in turns. CPU is that of this process and of the engine's, which are found by name.
DuckDB, DataFusion and Spark (sessions here, of two threads) read one Parquet file, PostgreSQL (of the test extra, on
this machine), MariaDB (of Debian) and, if it is named, MySQL (of DPSQL_MYSQLD or fetched) their own tables, analysed.
What came out are the rows that the engine sent to Python for the unbounded query, and memory is the most that Python's
process held: neither grows with the rows.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import duckdb
from memory import held
from program.main import alone
from program.row import Row, Value
from program.times import clocks, in_turns
from servers import fill, mysql, postgres
from workload import BUDGET, PLAIN, QUERY, Events, Written, written

import dpsql
from dpsql.connect import open_session
from dpsql.engines import Engine, Statement, open_exact
from dpsql.open_engine import open_engine

QUICK = {"rows": [2_000], "engines": ["duckdb", "postgres", "datafusion"], "repeats": 1}
SPARK = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
PRIVATE = {
    "private": "k_bar = 1000, mechanism = limited_domain",
    "at most 5": "k_bar = 1000, mechanism = limited_domain, max_groups_contributed = 5",
    "weighted": "mechanism = weighted_gaussian, max_groups_contributed = 5",
}
PROCESSES = {"mariadb": "mariadbd", "mysql": "mysqld", "postgres": "postgres", "spark": "java"}


def options(parser: ArgumentParser) -> None:
    """Add the sizes and the engines."""
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument(
        "--engines", nargs="+", default=[name for name in SOURCES if name != "mysql"], choices=SOURCES, metavar="ENGINE"
    )
    parser.add_argument("--repeats", type=int, default=5)


def run(given: Namespace) -> Iterator[Row]:
    """Time the plain and the private queries in turns, for each size and engine in a process of its own."""
    for rows in given.rows:
        with written(Events.of(rows), "parquet") as data:
            for name in given.engines:
                with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as processes:
                    found = processes.submit(compared, name, data, given.repeats).result()
                for query, values in found.items():
                    against = "" if query == "plain" else "plain"
                    yield Row(f"{rows:,} rows on {name}", query, values, against, note=data.description)


def compared(name: str, data: Written, repeats: int) -> dict[str, dict[str, Value]]:
    """Return what the queries took on an engine, and what came out of it."""
    with SOURCES[name](data) as policy:
        engine = open_engine(None, policy)
        with open_session(engine, policy, ledger=":memory:") as session:
            runs, shipped = _queries(engine, session)
            forget_peak()
            taken = in_turns(runs, repeats, clocks=partial(_clocks, PROCESSES.get(name)))
            private = {"rows to Python": shipped(), "our peak, MiB": held()}
            return {
                query: {**times.values(), **(private if query == "private" else {})} for query, times in taken.items()
            }


def forget_peak() -> None:
    """Count what is held at most from now on, where the system lets a process do so: not what filling a table took."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _queries(engine: Engine, session: dpsql.Session) -> tuple[dict[str, Callable[[], object]], Callable[[], int]]:
    quote = "`" if engine.dialect.sqlglot in {"mysql", "spark"} else '"'
    table = ".".join(f"{quote}{part}{quote}" for part in engine.relation("events"))
    plain = Statement(PLAIN.format(table=table))
    asked = {"plain": plain}
    for name, options in PRIVATE.items():
        counting = session.explain(QUERY.format(k=10, options=options)).counting
        asked[name] = Statement(counting.sql, counting.parameters, counting.types)
    runs: dict[str, Callable[[], object]] = {name: partial(engine.execute, each) for name, each in asked.items()}
    return runs, lambda: int(open_exact(engine.execute(asked["private"])).num_rows)


def _clocks(process: str | None) -> tuple[float, float]:
    """Return the time of CPU, with that of the processes of this name and their former children, and the clock."""
    cpu, wall = clocks()
    return cpu + (0.0 if process is None else sum(map(_spent, _named(process)))), wall


def _named(process: str) -> Iterator[Path]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_text().split("\0")  # which may begin with a loader
            if process in {(folder / "comm").read_text().strip(), *(Path(word).name for word in words if "/" in word)}:
                yield folder / "stat"
        except OSError:  # it has ended meanwhile
            continue


def _spent(stat: Path) -> float:
    try:
        fields = stat.read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _policy(table: dpsql.PrivateTable, source: dpsql.DataSource | None = None) -> dpsql.Policy:
    return dpsql.Policy(BUDGET, {"events": table}, source=source)


@contextmanager
def _duckdb(data: Written) -> Iterator[dpsql.Policy]:
    yield _policy(dpsql.PrivateTable("user_id", source=data.path))


@contextmanager
def _spark(data: Written) -> Iterator[dpsql.Policy]:
    yield _policy(dpsql.PrivateTable("user_id", source=data.path), dpsql.DataSource("spark:local[2]", options=SPARK))


@contextmanager
def _postgres(data: Written) -> Iterator[dpsql.Policy]:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        folder.chmod(0o755)  # PostgreSQL runs as somebody else
        duckdb.sql(f"COPY (FROM '{data.path}') TO '{folder / 'events.csv'}' (FORMAT csv, HEADER false)")
        with postgres(folder) as url:
            fill(url, "user_id BIGINT, item TEXT", folder / "events.csv")
            yield _policy(dpsql.PrivateTable("user_id"), dpsql.DataSource(url))


@contextmanager
def _datafusion(data: Written) -> Iterator[dpsql.Policy]:
    options = {"datafusion.execution.target_partitions": "2"}
    source = dpsql.DataSource("datafusion:", options=options)
    yield _policy(dpsql.PrivateTable("user_id", source=data.path), source)


@contextmanager
def _mysql(data: Written, *, name: str) -> Iterator[dpsql.Policy]:
    with tempfile.TemporaryDirectory() as made, mysql(name, Path(made)) as server:
        file = Path(made) / "events.csv"
        duckdb.sql(f"COPY (FROM '{data.path}') TO '{file}' (FORMAT csv, HEADER false)")
        server.run(
            "CREATE DATABASE shop CHARACTER SET utf8mb4",
            "CREATE TABLE shop.events (user_id BIGINT, item VARCHAR(60))",
            f"LOAD DATA INFILE '{file}' INTO TABLE shop.events FIELDS TERMINATED BY ',' OPTIONALLY ENCLOSED BY '\"'",
            "ANALYZE TABLE shop.events",
        )
        yield _policy(dpsql.PrivateTable("user_id"), dpsql.DataSource(server.url("shop")))


SOURCES = {
    "duckdb": _duckdb,
    "postgres": _postgres,
    "spark": _spark,
    "datafusion": _datafusion,
    "mariadb": partial(_mysql, name="mariadb"),
    "mysql": partial(_mysql, name="mysql"),
}

if __name__ == "__main__":
    alone(__file__)
