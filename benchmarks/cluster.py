"""What Spark spends and sends on one machine and on workers of its own, and what a cluster needs for more rows.

    python -m benchmarks run cluster [--rows 1000000] [--master "local[2]"] [--workers 2 4] [--aim 10000000000]

Spark runs the private counting query on a Parquet file, unbounded and bounded, and its own event log tells what each
stage read, sent to the next (bytes, records), and spent (CPU of the executors). Two partitions and no adaptive plan: a
task is then a thread's work. From the costs of a row, of a pair that is sent and of a pair that is counted follows what
`--aim` rows need; all rows are sent, keys and unit of each. The same statements then run on local clusters of
`--workers` Java processes: bytes that they send to each other and to Python, counts as on one machine, and a worker
that is killed in the middle, which may change neither the counts nor the charge. Last, a simulation of pairs and tasks
alone: what a hot key does to the reducers, and a slow executor to the time.
"""

from __future__ import annotations

import json
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pyarrow as pa
from executors import Job, jobs_of, kill_one_amid, spark_home, wait_for_workers
from program.main import alone
from program.row import Row
from spread import Cluster, loads, makespan
from workload import BUDGET, QUERY, Events, Written, written

import dpsql
from dpsql.connect import open_session
from dpsql.engines import Engine, Statement, open_exact
from dpsql.open_engine import open_engine

if TYPE_CHECKING:
    from dpsql.engines.spark import SparkEngine

QUICK = {"rows": 2_000, "pairs": 100_000, "workers": [2]}
ASKED = {"unbounded": "k_bar = 1000", "at most 5 groups": "k_bar = 1000, max_groups_contributed = 5"}
HOT = (0.0, 0.01, 0.1, 0.5)
REDUCER_BYTES = 200 << 20  # of shuffled bytes that one reducer is given
CORES_OF_EXECUTOR = 4


@dataclass(frozen=True, slots=True)
class Stage:
    """What all tasks of a stage together read, sent and spent."""

    read: int
    sent: int
    sent_bytes: int
    cpu: float

    def row(self, table: str, name: str) -> Row:
        """Return it as a row: CPU for each record that it read, bytes for each that it sent."""
        values = {
            "records in": self.read,
            "records sent": self.sent,
            "CPU ns a record in": round(1e9 * self.cpu / max(1, self.read)),
            "bytes a record sent": round(self.sent_bytes / max(1, self.sent), 1),
        }
        return Row(table, name, values)


def options(parser: ArgumentParser) -> None:
    """Add the sizes of what is measured and of what it is worked out for."""
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--workers", type=int, nargs="*", default=[2, 4])
    parser.add_argument("--aim", type=float, default=1e10)
    parser.add_argument("--cores", type=int, default=1_000)
    parser.add_argument("--pairs", type=int, default=4_000_000, help="of the simulation of a hot key")


def run(given: Namespace) -> Iterator[Row]:
    """Measure, work out, simulate."""
    with spark_home(), written(Events.of(given.rows), "parquet") as data:
        measured = stages_of(data, given.master)
        spread_out = list(on_workers(data, given))
    for name, stages in measured.items():
        title = f"stages, {name}, {given.rows:,} rows on spark:{given.master}"
        for number, stage in enumerate(stages, 1):
            yield stage.row(title, f"stage {number}")
    for name, stages in measured.items():
        yield needs(name, stages, rows=given.aim, cores=given.cores)
    yield from spread_out
    yield from simulated(measured["unbounded"], given)


def needs(name: str, stages: list[Stage], *, rows: float, cores: int) -> Row:
    """Return what so many rows need, where all are sent by the first stage and the keys stay as many as they are."""
    first, second, *others = stages
    factor = rows / first.read
    cpu = rows * (first.cpu / first.read + second.cpu / max(1, second.read)) + factor * sum(each.cpu for each in others)
    pairs = rows * first.sent_bytes / max(1, first.sent)
    sent = pairs + factor * sum(each.sent_bytes for each in stages[1:])
    values = {
        "CPU hours": round(cpu / 3_600, 1),
        f"minutes on {cores:,} cores": round(cpu / 60 / cores, 1),
        "shuffled GB": round(sent / 1e9),
        "reducers": int(-(-max(pairs, *(factor * each.sent_bytes for each in stages[1:])) // REDUCER_BYTES)),
    }
    return Row(f"{rows:,.0f} rows", name, values, note="Cores of the speed of this machine's, which never wait.")


def simulated(stages: list[Stage], given: Namespace) -> Iterator[Row]:
    """Yield what a hot key and a slow executor do."""
    reducers, executors = 10 * given.cores, given.cores // CORES_OF_EXECUTOR
    seconds = stages[1].cpu / max(1, stages[1].read)
    for hot in HOT:
        values: dict[str, float] = {}
        for name, alone_ in (("by key and unit", False), ("by key alone", True)):
            found = loads(given.pairs, keys=1_000_000, hot=hot, reducers=reducers // 10, by_key_alone=alone_)
            values[f"{name}: most / mean"] = round(float(found.max() / found.mean()), 2)
        yield Row(f"a hot key, {given.pairs:,} pairs on {reducers // 10:,} reducers", f"{hot:.0%} of pairs", values)
    tasks = [seconds * given.aim / reducers] * reducers
    even = makespan(tasks, Cluster(executors, CORES_OF_EXECUTOR))
    for slow in (1, 2, 5, 20):
        values = {
            f"speculation {'on' if copies else 'off'}, x": round(
                makespan(tasks, Cluster(executors, CORES_OF_EXECUTOR, slow, speculation=copies)) / even, 2
            )
            for copies in (False, True)
        }
        title = f"one executor of {executors:,} is slow, {reducers:,} tasks of {tasks[0]:.1f} s"
        yield Row(title, f"{slow} times slower", values)


def on_workers(data: Written, given: Namespace) -> Iterator[Row]:
    """Yield what the same statements cost and send on one machine and on workers, and what a dying worker changes."""
    statements: dict[str, Statement] = {}
    one: Mapping[str, _Measured] = {}
    rows: list[Row] = []
    for workers in (0, *given.workers):
        name = f"{workers} workers" if workers else f"one machine, {given.master}"
        master = f"local-cluster[{workers},1,1024]" if workers else given.master
        found, deaths = measured_on(data, master, workers=workers, statements=statements)
        one = one or found
        for query, measured in found.items():
            table = f"on workers, {given.rows:,} rows, {query}"
            rows.append(Row(table, name, measured.told(one[query]), note=_SHARED))
        for query, values in deaths.items():
            rows.append(Row(f"a worker is killed, {given.rows:,} rows", f"one of {workers}, {query}", values))
    order = list(dict.fromkeys(row.table for row in sorted(rows, key=lambda row: "killed" in row.table)))
    yield from sorted(rows, key=lambda row: order.index(row.table))


_SHARED = "The workers share the cores of this machine: CPU and bytes are those of a cluster, and the time is not."


@dataclass(frozen=True, slots=True)
class _Measured:
    """A statement on a cluster: its counts, its seconds on the clock, and what its job spent."""

    counts: pa.Table
    wall: float
    job: Job

    def told(self, one: _Measured) -> dict[str, float | str]:
        """Return it beside the same statement on one machine."""
        return {
            "CPU x": round(self.job.cpu / one.job.cpu, 2),
            "wall x": round(self.wall / one.wall, 2),
            "shuffled kB": round(self.job.shuffled / 1e3),
            "between workers kB": round(self.job.remote / 1e3),
            "to Python kB": round(self.job.returned / 1e3, 1),
            "counts": "the same" if self.counts.equals(one.counts) else "others",
        }


def measured_on(
    data: Written, master: str, *, workers: int, statements: dict[str, Statement]
) -> tuple[dict[str, _Measured], dict[str, dict[str, float | str]]]:
    """Run the statements, which the first call makes, on a Spark; where it has workers, also while one is killed."""
    runs: dict[str, tuple[pa.Table, float]] = {}
    deaths: dict[str, dict[str, float | str]] = {}
    settings = {
        "spark.sql.shuffle.partitions": "8",
        "spark.sql.files.maxPartitionBytes": str(max(4_096, data.path.stat().st_size // 8)),
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.executor.memory": "600m",
    }
    with tempfile.TemporaryDirectory() as log:
        with spark_on(data, master, settings=settings, log=log) as (engine, session):
            for name, asked in ASKED.items():
                statement = statements.setdefault(name, counting_of(session, asked))
                timed(engine, statement)  # warms up
                runs[name] = timed(engine, statement)
            for name, asked in ASKED.items() if workers else ():
                deaths[name] = killed_while_counting(engine, statements[name], before=runs[name], workers=workers)
                deaths[name] |= killed_while_answering(engine, session, options_=asked, workers=workers)
        [file] = Path(log).iterdir()
        jobs = jobs_of(file)
    others = jobs[2 * len(ASKED) :]
    for at, values in enumerate(deaths.values()):
        of_it = others[2 * at : 2 * at + 2]
        values["workers lost"] = sum(job.died for job in of_it)
        values["tasks lost"] = sum(job.lost for job in of_it)
    return {name: _Measured(*runs[name], jobs[2 * at + 1]) for at, name in enumerate(ASKED)}, deaths


def timed(engine: Engine, statement: Statement) -> tuple[pa.Table, float]:
    """Return the counts of a statement, and the seconds on the clock."""
    began = time.perf_counter()
    found = open_exact(engine.execute(statement))
    return found, time.perf_counter() - began


def killed_while_counting(
    engine: SparkEngine, statement: Statement, *, before: tuple[pa.Table, float], workers: int
) -> dict[str, float | str]:
    """Kill a worker in the middle of the engine's part of a query."""
    wait_for_workers(workers)
    with kill_one_amid(engine._session):  # noqa: SLF001 - whose progress nothing else tells
        found, seconds = timed(engine, statement)
    return {"counts": "the same" if found.equals(before[0]) else "others", "wall x": round(seconds / before[1], 2)}


def killed_while_answering(
    engine: SparkEngine, session: dpsql.Session, *, options_: str, workers: int
) -> dict[str, float | str]:
    """Kill a worker in the middle of a whole private query, and count how often it is charged."""
    wait_for_workers(workers)
    before = session.budget.rho.spent
    with kill_one_amid(engine._session):  # noqa: SLF001 - as above
        answer = session.sql(QUERY.format(k=10, options=f"mechanism = limited_domain, {options_}"))
    return {"charges": float((session.budget.rho.spent - before) / answer.receipt.loss.rho.value)}


@contextmanager
def spark_on(
    data: Written, master: str, *, settings: Mapping[str, str], log: str
) -> Iterator[tuple[SparkEngine, dpsql.Session]]:
    """Open a session on a Spark that writes one event log into a folder."""
    always = {
        "spark.ui.enabled": "false",
        "spark.sql.adaptive.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": log,
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }
    table = dpsql.PrivateTable("user_id", source=data.path)
    source = dpsql.DataSource(f"spark:{master}", options={**always, **settings})
    policy = dpsql.Policy(BUDGET, {"events": table}, source=source)
    engine = cast("SparkEngine", open_engine(None, policy))
    with open_session(engine, policy, ledger=":memory:") as session:
        yield engine, session


def stages_of(data: Written, master: str) -> dict[str, list[Stage]]:
    """Run the counting queries on Spark, and return the stages of each as its event log tells them."""
    with tempfile.TemporaryDirectory() as log:
        settings = {"spark.sql.shuffle.partitions": "2"}
        with spark_on(data, master, settings=settings, log=log) as (engine, session):
            for options_ in ASKED.values():
                for _ in range(2):  # the first warms up
                    engine.execute(counting_of(session, options_))
        [file] = Path(log).iterdir()
        return told(file)


def counting_of(session: dpsql.Session, options_: str) -> Statement:
    """Return the engine's part of a private query."""
    counting = session.explain(QUERY.format(k=10, options=f"mechanism = limited_domain, {options_}")).counting
    return Statement(counting.sql, counting.parameters, counting.types)


def told(file: Path) -> dict[str, list[Stage]]:
    """Return the stages of the second run of each query: those of the last job but one of theirs, and so on."""
    jobs: list[list[int]] = []
    tasks: dict[int, list[dict[str, dict[str, int]]]] = {}
    for line in file.read_text().splitlines():
        event = json.loads(line)
        if event["Event"] == "SparkListenerJobStart" and len(event["Stage IDs"]) > 1:
            jobs.append(sorted(event["Stage IDs"]))
        elif event["Event"] == "SparkListenerTaskEnd":
            tasks.setdefault(event["Stage ID"], []).append(event["Task Metrics"])
    return {
        name: [_stage(tasks[stage]) for stage in jobs[2 * at + 1] if stage in tasks] for at, name in enumerate(ASKED)
    }


def _stage(tasks: list[dict[str, dict[str, int]]]) -> Stage:
    read = sum(
        task["Input Metrics"]["Records Read"] + task["Shuffle Read Metrics"]["Total Records Read"] for task in tasks
    )
    sent = sum(task["Shuffle Write Metrics"]["Shuffle Records Written"] for task in tasks)
    sent_bytes = sum(task["Shuffle Write Metrics"]["Shuffle Bytes Written"] for task in tasks)
    cpu = sum(int(str(task["Executor CPU Time"])) for task in tasks) / 1e9
    return Stage(read, sent, sent_bytes, cpu)


if __name__ == "__main__":
    alone(__file__)
