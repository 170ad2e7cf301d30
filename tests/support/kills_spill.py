"""kill -9 of everything while a statement spills: after one more opening no file holds what it had spilled.

    python tests/support/kills_spill.py --kills 200

A victim is a process that opens an engine, in process or with a worker, over rows with a marked value, and runs a
statement that does not fit in its memory. It is killed at a random moment, alone or with its worker. Its rows are then
in the temporary folder or not; after the next engine has been opened they must not be.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

import dpsql

HOME = Path(dpsql.__file__).parents[1]
MARKED = b"VICTIM_SECRET"
ROWS = 1_500_000
SQL = "SELECT count(*) AS n FROM (SELECT DISTINCT user_id, article FROM dpsql_data.main.reads)"
_CHUNK = 1 << 22
_PATIENCE = 60.0  # seconds in which a killed process is gone

# the victim's side


def live(database: str, kind: str) -> None:
    """Run a statement that spills, again and again, until killed."""
    from dpsql.engines import Statement
    from dpsql.engines.duckdb.engine import DuckDBEngine
    from dpsql.engines.duckdb.worker_engine import WorkerEngine

    opened = WorkerEngine if kind == "process" else DuckDBEngine
    engine = opened.open(database, {"reads": None}, memory_limit="60MB", threads=2)
    worker = engine._worker.pid if isinstance(engine, WorkerEngine) and engine._worker is not None else 0
    os.write(1, f"{worker}\n".encode())
    while True:
        engine.execute(Statement(SQL))


# the killer's side


@dataclass
class Kills:
    """How many victims were killed, how many of them had spilled by then, and what was found of their rows."""

    killed: int = 0
    spilled: int = 0
    left: int = 0  # folders that a killed victim left behind
    found: list[str] = field(default_factory=list)


def data_in(folder: Path) -> Path:
    """Write a database in which every row has the marked value."""
    file = folder / "events.duckdb"
    with duckdb.connect(str(file)) as connection:
        connection.execute(
            f"CREATE TABLE reads AS SELECT i AS user_id, '{MARKED.decode()}' || hash(i) AS article "
            f"FROM range({ROWS}) AS t(i)"
        )
    return file


def holding(place: Path) -> list[str]:
    """Return the files below a folder that hold the marked value."""
    return [str(file) for file in sorted(place.rglob("*")) if file.is_file() and _is_marked(file)]


def _is_marked(file: Path) -> bool:
    before = b""
    with file.open("rb") as stream:
        while block := stream.read(_CHUNK):
            if MARKED in before + block:
                return True
            before = block[-len(MARKED) :]
    return False


def ended(pid: int) -> None:
    """Wait until a process is gone that is not ours to wait for."""
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        with suppress(OSError):
            if "Z (zombie)" not in Path(f"/proc/{pid}/status").read_text():
                time.sleep(0.01)
                continue
        return
    raise AssertionError(f"{pid} is still there")


def kill_many(folder: Path, kills: int, *, seed: int = 0) -> Kills:
    """Kill so many victims; return what was found, also of what should not have been."""
    moments, told = random.Random(seed), Kills()
    database, place = data_in(folder), folder / "temporary"
    place.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(HOME), "TMPDIR": str(place)}
    for number in range(kills):
        kind = ("in_process", "process")[number % 2]
        command = [sys.executable, __file__, "--victim", str(database), kind]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as victim:
            assert victim.stdout is not None
            worker = int(victim.stdout.readline())
            time.sleep(moments.uniform(0.05, 1.5))
            if worker:
                with suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)
            victim.kill()
        if worker:
            ended(worker)
        told.killed += victim.returncode == -signal.SIGKILL
        told.spilled += bool(holding(place))
        told.left += any(place.iterdir())
        opened_again(database, environment)
        told.found += holding(place) + [str(left) for left in place.iterdir()]
    return told


def opened_again(database: Path, environment: dict[str, str]) -> None:
    """Open an engine once more, in a process of its own, and close it."""
    code = (
        "import sys; from dpsql.engines.duckdb.engine import DuckDBEngine;"
        "DuckDBEngine.open(sys.argv[1], {'reads': None}).close()"
    )
    subprocess.run([sys.executable, "-c", code, str(database)], env=environment, check=True)


def main() -> None:
    """Kill as many as the command line says, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--victim", nargs=2, help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.victim:
        live(*wanted.victim)
        return
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        told = kill_many(Path(folder), wanted.kills, seed=wanted.seed)
    sys.stdout.write(f"{wanted.kills} victims in {time.monotonic() - began:.0f} s: {told}\n")
    sys.exit(bool(told.found))


if __name__ == "__main__":
    main()
