"""What it takes to start: `dpsql query` on a small file, beyond Python's own start, and what it imports.

    python -m benchmarks run cold_start [--rows 10000] [--starts help distinct again] [--repeats 9]

The aim is 0.6 s on the clock beyond `python -c ""`. Processes run in turns; CPU is theirs. A *distinct* query is
charged to a ledger on the disk, one *again* is answered from it. Below, the steps of such a query one after the
other, in processes of their own; and what its imports take by themselves, package by package, as `python -X importtime`
tells it, which itself takes time.
"""

from __future__ import annotations

import itertools
import json
import resource
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from program.main import alone
from program.row import Row
from program.times import Times, in_turns
from workload import Events, written

QUICK = {"rows": 1_000, "starts": ["help"], "repeats": 1}
PROGRAM = "from dpsql.cli import main; main()"
QUERY = "SELECT item, COUNT(DISTINCT user_id) AS n FROM events WHERE item <> '{}' GROUP BY item TOP 10 PRIVATE"
POLICY = """
ledger = "spent.ledger"
[budget]
epsilon = 100.0
delta = 1e-6
items = 10_000
queries = 1_000
[tables.events]
privacy_unit = "user_id"
"""
STARTS = {"help": "dpsql --help", "distinct": "dpsql query, distinct", "again": "dpsql query, again"}
LISTED = 12
STEPS = {
    "import the command line": "from dpsql import cli",
    "read the command line": "cli.app.commands['query'].make_context('query', ['', '--policy', 'policy.toml'])",
    "import numpy": "import numpy",
    "import pyarrow": "import pyarrow.compute",
    "import sqlglot": "from sqlglot.dialects.duckdb import DuckDB",
    "import the rest of dpsql": "import dpsql.session; from dpsql.cli import show",
    "import DuckDB": "gc.freeze(); import duckdb, dpsql.engines.duckdb.engine, dpsql.engines.duckdb.evaluator",
    "open policy, data and ledger": "session = dpsql.connect('events.duckdb', policy='policy.toml')",
    "answer": "answer = session.sql(sys.argv[1])",
    "write the answer": "show.write_answer(answer, cli.Format.csv)",
    "close": "session.close()",
}
STEPWISE = f"""
import gc, json, sys, time
gc.disable()
taken = [(time.process_time(), time.perf_counter())]
for step in {[*STEPS.values()]!r}:
    exec(step)
    taken.append((time.process_time(), time.perf_counter()))
print(json.dumps(taken), file=sys.stderr)
"""


def options(parser: ArgumentParser) -> None:
    """Add the size."""
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--starts", nargs="+", default=list(STARTS), choices=STARTS, metavar="START")
    parser.add_argument("--repeats", type=int, default=9)


def run(given: Namespace) -> Iterator[Row]:
    """Start each in turns, and list what the last imports."""
    with written(Events.of(given.rows)) as data:
        folder, numbers = data.path.parent, itertools.count()
        (folder / "policy.toml").write_text(POLICY)
        asking = [PROGRAM, "query", "--policy", "policy.toml", "--db", data.path.name]
        start = partial(started, folder)
        runs = {
            "Python alone": lambda: start([""]),
            STARTS["help"]: lambda: start([PROGRAM, "--help"]),
            STARTS["distinct"]: lambda: start([*asking, QUERY.format(next(numbers))]),
            STARTS["again"]: lambda: start([*asking, QUERY.format("again")]),
        }
        chosen = {name: runs[name] for name in ("Python alone", *map(STARTS.__getitem__, given.starts))}
        taken = in_turns(chosen, given.repeats, clocks=clocks_of_children)
        yield from starts(taken)
        yield from steps([stepwise(folder, QUERY.format(next(numbers))) for _ in range(given.repeats)])
        yield from imports(start([*asking, QUERY.format(next(numbers))], "-X", "importtime"))


def starts(taken: dict[str, Times]) -> Iterator[Row]:
    """Yield what each start took, and beyond Python's own."""
    bare, *_ = taken.values()
    for name, times in taken.items():
        yield Row("from start to end", name, times.values())
    for name, times in list(taken.items())[1:]:
        beyond = Times.of(
            (cpu - own_cpu, wall - own_wall)
            for cpu, own_cpu, wall, own_wall in zip(times.cpu, bare.cpu, times.wall, bare.wall, strict=True)
        )
        aim = " (aim 0.6 s)" if "query" in name else ""
        yield Row("beyond Python's own start, turn by turn", f"{name}{aim}", beyond.values())


def stepwise(folder: Path, query: str) -> list[tuple[float, float]]:
    """Return the clocks of a process at its start, after each step of a query, and at its end."""
    cpu, wall = clocks_of_children()
    told = started(folder, [STEPWISE, query])
    after = clocks_of_children()
    [line] = [line for line in told.splitlines() if line.startswith("[[")]
    return [(0.0, wall), *map(tuple, json.loads(line)), (after[0] - cpu, after[1])]


def steps(taken: Sequence[Sequence[tuple[float, float]]]) -> Iterator[Row]:
    """Yield what each step took, from the clocks that all processes of one machine read alike."""
    names = ["Python's own start", *STEPS, "Python's own end"]
    for at, name in enumerate(names):
        pairs = [(clocks[at], clocks[at + 1]) for clocks in taken]
        times = Times.of((after[0] - before[0], after[1] - before[1]) for before, after in pairs)
        yield Row("steps of a distinct query", name, times.values("ms"))


def imports(told: str) -> Iterator[Row]:
    """Yield what the packages took to import, the slowest first, from what -X importtime tells."""
    own: defaultdict[str, float] = defaultdict(float)
    modules: defaultdict[str, int] = defaultdict(int)
    for line in told.splitlines():
        parts = line.removeprefix("import time:").split("|")
        if line.startswith("import time:") and parts[0].strip().isdigit():
            top = parts[2].strip().split(".")[0]
            package = "the standard library" if top.lstrip("_") in sys.stdlib_module_names else top
            own[package] += int(parts[0]) / 1e3
            modules[package] += 1
    slowest = sorted(own, key=lambda package: -own[package])
    for package in slowest[:LISTED]:
        yield Row("imports of dpsql query", package, {"ms": own[package], "modules": modules[package]})
    yield Row("imports of dpsql query", "all", {"ms": sum(own.values()), "modules": sum(modules.values())})


def started(folder: Path, code: Sequence[str], *flags: str) -> str:
    """Run a Python process to its end and return what it says beside its answer."""
    command = [sys.executable, *flags, "-c", *code]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603 - our own code
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stderr


def clocks_of_children() -> tuple[float, float]:
    """Return the time of CPU that all processes took that have ended, and the time on the clock."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime, time.perf_counter()


if __name__ == "__main__":
    alone(__file__)
