"""What our process holds at most, against rows: it is flat where the data is open in a worker.

    python -m benchmarks run memory [--rows 100000 1000000 10000000] [--ways process in_process] [--memory 2GB]

A fresh process opens a session and asks two questions: one whose mechanism reads the leaders, and one that reads all
keys, of which there are 100,000 whatever the rows. Its peak is that of resident memory, as the system tells it, of
which Python with all imports is the most. With `isolation = "process"` DuckDB's memory is a worker's, and what is left
is ours; in process both are one. `--memory` is DuckDB's limit.
"""

from __future__ import annotations

import multiprocessing
import resource
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from program.main import alone
from program.row import Row
from workload import QUERY, Events, Written, written

import dpsql

QUICK = {"rows": [1_000], "ways": ["process"]}
WAYS = {"process": "session, data in a worker", "in_process": "session and data in one process"}
ASKED = ("mechanism = limited_domain, k_bar = 10000", "mechanism = weighted_gaussian")


def options(parser: ArgumentParser) -> None:
    """Add the sizes."""
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS, metavar="WAY")
    parser.add_argument("--memory", default="2GB")


def run(given: Namespace) -> Iterator[Row]:
    """Ask in a process of its own, for each size and way."""
    for rows in given.rows:
        with written(Events.of(rows), memory=given.memory) as data:
            peaks = {f"{WAYS[way]}, MiB": alone_in(data, way, given.memory) for way in given.ways}
            yield Row("peak memory against rows", f"{rows:,}", peaks, at=rows)


def alone_in(data: Written, isolation: str, memory: str) -> float:
    """Return the peak of a process that is new."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as processes:
        return processes.submit(peak, data, isolation, memory).result()


def peak(data: Written, isolation: str, memory: str) -> float:
    """Ask, and return the most MiB that this process has held."""
    engine = dpsql.EngineSettings(isolation=isolation, memory_limit=memory)
    with dpsql.connect(data.database, policy=data.policy(engine), ledger=":memory:") as session:
        for options in ASKED:
            session.sql(QUERY.format(k=100, options=f"{options}, epsilon = 0.1"))
    return held()


def held() -> float:
    """Return the most MiB that this process has held; of the program before it in the same process, nothing."""
    told = Path("/proc/self/status")
    if told.exists():
        [line] = [line for line in told.read_text().splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # bytes, elsewhere than on Linux


if __name__ == "__main__":
    alone(__file__)
