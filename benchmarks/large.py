"""Whether every form finishes on data far larger than its memory: time, spill, peak memory and progress, run once.

    python -m benchmarks run large [--rows 100000000] [--forms unbounded "at most 5" ...] [--threads 2] [--memory 2GB]

Every form is run once on one sealed engine, after the plain query, which also warms up: for ratios that are sharper at
smaller sizes there are `overhead` and `bounded`. *Spilled* is the most that lay in the engine's private folder at a
time, *peak* the most that this process held in memory, DuckDB's and all, *still* the longest that the share which
DuckDB tells of a statement did not move. A form that fails says so. Then one is interrupted while it spills, and the
seconds are told until it has ended. Last, a fresh process asks two whole questions of a worker, as in `memory`: what it
holds itself does not grow with rows. The folder for temporary files must have room for the data and for the spill.
"""

from __future__ import annotations

import signal
import threading
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from memory import alone_in, held
from program.main import alone
from program.row import Row, Value
from program.times import Run, timed
from workload import Events, TimedEngine, Written, opened, plain, private, written

import dpsql
from dpsql.engines import Statement, open_exact

QUICK = {"rows": 3_000, "threads": 1, "forms": ["unbounded", "at most 5"]}
FORMS = {
    "unbounded": "mechanism = limited_domain, k_bar = 1000",
    **{
        f"at most {groups}": f"mechanism = limited_domain, k_bar = 1000, max_groups_contributed = {groups}"
        for groups in (1, 5, 20, 100)
    },
    "weighted": "mechanism = weighted_gaussian",
    "discovery": "mechanism = domain_discovery",
}
STOPPED, AFTER = "at most 5", 10.0  # the form that is interrupted, so many seconds after it began
_EACH = 0.2


@dataclass(slots=True)
class Watched:
    """What was seen of a statement while it ran."""

    spilled: int = 0
    still: float = 0.0


def options(parser: ArgumentParser) -> None:
    """Add the size and the settings."""
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--forms", nargs="+", default=list(FORMS), choices=FORMS, metavar="FORM")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory", default="2GB")


def run(given: Namespace) -> Iterator[Row]:
    """Run each form, interrupt one, and ask through a session."""
    title = f"{given.rows:,} rows, threads {given.threads}, memory {given.memory}"
    with written(Events.of(given.rows), memory=given.memory) as data:
        with opened(data, threads=given.threads, memory=given.memory) as (engine, session):
            yield Row(title, "plain", _once(engine, plain(engine)), note=data.description)
            for name in given.forms:
                yield Row(title, name, _once(engine, private(engine, session, FORMS[name])), "plain")
            if STOPPED in given.forms:
                ended = _ended_after(private(engine, session, FORMS[STOPPED]))
                yield Row("an interrupt", f"{STOPPED}, {AFTER:g} s after it began", {"s until it has ended": ended})
        yield Row("peak memory of a session, data in a worker", title, {"MiB": _asked(data, given.memory)})


def _once(engine: TimedEngine, run: Run) -> dict[str, Value]:
    """Return what a run took; a run that fails took something, too."""
    _forget_peak()
    failed = False

    def attempt() -> None:
        nonlocal failed
        try:
            run()
        except dpsql.EngineError:
            failed = True

    with _watching(engine) as watched:
        cpu, wall = timed(attempt)
    return {
        "CPU s": (cpu,),
        "wall s": (wall,),
        "spilled MiB": round(watched.spilled / 2**20),
        "peak MiB": round(held()),
        "still s": watched.still,
        "ended": "failed" if failed else "well",
    }


@contextmanager
def _watching(engine: TimedEngine) -> Iterator[Watched]:
    """Look at the spill folder and at the progress of what runs in the block."""
    told = open_exact(engine.execute(Statement("SELECT current_setting('temp_directory') AS folder")))
    folder, seen, done = Path(told.column("folder")[0].as_py()), Watched(), threading.Event()

    def look() -> None:
        share, moved = None, time.monotonic()
        while not done.wait(_EACH):
            seen.spilled = max(seen.spilled, _size(folder))
            now = engine.progress()
            if now != share:
                share, moved = now, time.monotonic()
            seen.still = max(seen.still, time.monotonic() - moved)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        done.set()
        thread.join()


def _size(folder: Path) -> int:
    """Return the bytes in a folder whose files come and go."""
    sizes = []
    for file in folder.iterdir():
        try:
            sizes.append(file.stat().st_size)
        except FileNotFoundError:
            continue
    return sum(sizes)


def _forget_peak() -> None:
    """Let the peak of memory begin again, where the system can."""
    forget = Path("/proc/self/clear_refs")
    if forget.exists():
        forget.write_text("5")


def _ended_after(run: Run) -> Value:
    """Return how long a run goes on after an interrupt; of one that is over before, nothing."""
    interrupted = 0.0

    def interrupt(*_: object) -> None:
        nonlocal interrupted
        interrupted = time.monotonic()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, AFTER)
    try:
        run()
    except KeyboardInterrupt:
        return time.monotonic() - interrupted
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return "it was over"


def _asked(data: Written, memory: str) -> Value:
    """Return the peak of a process that asks, or that it could not."""
    try:
        return alone_in(data, "process", memory)
    except dpsql.EngineError:
        return "failed"


if __name__ == "__main__":
    alone(__file__)
