"""How cost grows: with rows, users, items, k_bar, groups of a unit, queries in the ledger, and answers that it keeps.

    python -m benchmarks run scaling [--axes NAME ...] [--events 1000000] [--rows 100000 1000000 10000000]
                                     [--users ...] [--items ...] [--k-bar ...] [--groups ...] [--entries ...]
                                     [--afresh ...] [--repeats 5]

A table for each axis, and below it the power with which each figure grows: 1 is linear, 0 is no growth at all. All but
one size stay as they are: `--events` rows, a tenth as many users, 100,000 items, k_bar 1,000. Of the engine CPU is
told, and of what reads a ledger; of what writes to it the time on the clock, disk and all.

`entries` are queries in a ledger file, each of another question and with an answer of a kilobyte: what it then takes to
open the file where it has no checkpoint and where it has one, and what memory the former takes; to ask for the first
time after that; to look up an answer that is there and one that is not; to reserve and settle, an answer of one's own
and one that all share; to tell what is left; and to list the history. `afresh` is how often one question was asked with
fresh = true, of which all answers are kept.

Linear by what they are: an opening without a checkpoint and the history, which read all events, and the size. So is,
at half a microsecond to one an entry, the look-up of an answer that is missed: it passes by every time that others
asked this one question of the present data. It is told as more than linear where the file outgrows what SQLite keeps
of it in memory, 2 MiB, and each entry becomes a page that is read; a look-up after it finds nothing there either. In
a file nothing else grows. In PostgreSQL every look-up passes by all entries of its one question, within the server,
because the index there is of hashes. With rows, and with them users, the plain query is also told as a little more
than linear: DuckDB's own growth, which the private ones keep near to.
"""

from __future__ import annotations

import multiprocessing
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

from ledger import BUDGET, LOSS, REQUEST, TOTAL, fill, key_of
from memory import held
from program.main import alone
from program.row import Row, Value
from program.times import Times, in_turns, timed
from workload import QUERY, Events, opened, outside_the_engine, plain, private, written

from dpsql.ledger import Account, MemoryLedger, SQLiteLedger

QUICK = {
    "events": 2_000,
    "rows": [1_000, 2_000],
    "users": [10, 100],
    "items": [10, 100],
    "k_bar": [10, 100],
    "groups": [1, 5],
    "entries": [20, 40],
    "afresh": [20, 40],
    "repeats": 1,
}
ENGINE = {
    "unbounded": "mechanism = limited_domain, k_bar = 1000",
    "at most 1": "mechanism = limited_domain, k_bar = 1000, max_groups_contributed = 1",
    "at most 5": "mechanism = limited_domain, k_bar = 1000, max_groups_contributed = 5",
    "at most 20": "mechanism = limited_domain, k_bar = 1000, max_groups_contributed = 20",
    "all keys": "mechanism = weighted_gaussian",
}
ANSWER = bytes(1_000)


def options(parser: ArgumentParser) -> None:
    """Add the places of each axis."""
    parser.add_argument("--axes", nargs="+", default=list(AXES), choices=AXES, metavar="AXIS")
    parser.add_argument("--events", type=int, default=1_000_000, help="rows on the axes other than rows")
    places = partial(parser.add_argument, type=int, nargs="+")
    places("--rows", default=[100_000, 1_000_000, 10_000_000])
    places("--users", default=[1_000, 10_000, 100_000, 1_000_000])
    places("--items", default=[1_000, 10_000, 100_000, 1_000_000])
    places("--k-bar", default=[100, 1_000, 10_000])
    places("--groups", default=[1, 2, 5, 10, 20, 50, 100])
    places("--entries", default=[1_000, 10_000, 100_000, 1_000_000])
    places("--afresh", default=[100, 1_000, 10_000])
    parser.add_argument("--repeats", type=int, default=5)


def run(given: Namespace) -> Iterator[Row]:
    """Measure along each axis."""
    for axis in given.axes:
        yield from AXES[axis](given)


def over_events(axis: str, events: Callable[[Namespace, int], Events], given: Namespace) -> Iterator[Row]:
    """Yield what the engine takes for events of several sizes."""
    for size in getattr(given, axis):
        with written(events(given, size)) as data, opened(data) as (engine, session):
            runs = {"plain": plain(engine)}
            runs |= {name: private(engine, session, options) for name, options in ENGINE.items()}
            taken = in_turns(runs, given.repeats)
            yield place(axis, size, {f"{name}, CPU s": times.cpu for name, times in taken.items()})


def over_k_bar(given: Namespace) -> Iterator[Row]:
    """Yield what the engine takes, and what passes outside it, for several k_bar."""
    with written(Events.of(given.events)) as data, opened(data) as (engine, session):
        for k_bar in given.k_bar:
            asked = f"mechanism = limited_domain, k_bar = {k_bar}"
            inside = in_turns({"": private(engine, session, asked)}, given.repeats)[""]
            text = QUERY.format(k=10, options=f"{asked}, epsilon = 0.1, fresh = true")
            outside = outside_the_engine(engine, session, {"": text}, repeats=given.repeats)[""]
            yield place("k_bar", k_bar, {"engine, CPU s": inside.cpu, "outside, CPU s": outside.cpu})


def over_groups(given: Namespace) -> Iterator[Row]:
    """Yield what the engine takes for several bounds of groups."""
    with written(Events.of(given.events)) as data, opened(data) as (engine, session):
        for groups in given.groups:
            bounded = private(
                engine, session, f"mechanism = limited_domain, k_bar = 1000, max_groups_contributed = {groups}"
            )
            taken = in_turns({"plain": plain(engine), "bounded": bounded}, given.repeats)
            yield place("groups", groups, {f"{name}, CPU s": times.cpu for name, times in taken.items()})


def over_ledger(axis: str, given: Namespace) -> Iterator[Row]:
    """Yield what a ledger of several lengths takes for each of its acts."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "spent.ledger"
        for queries in getattr(given, axis):
            fill(path, 2 * queries, answer=ANSWER, distinct=axis == "entries")
            openings = opened_ledger(path, repeats=given.repeats)
            yield place(axis, queries, openings | acts(path, distinct=axis == "entries", repeats=given.repeats))


def opening(path: Path) -> SQLiteLedger:
    """Open the ledger of an axis."""
    return SQLiteLedger(path, BUDGET, total=TOTAL)


def opened_ledger(path: Path, *, repeats: int) -> dict[str, Value]:
    """Return what it takes to open a ledger, reading all or on from its checkpoint, and to ask for the first time."""

    def afresh() -> None:
        path.with_name(f"{path.name}.checkpoint").unlink(missing_ok=True)
        opening(path).close()

    def asked_first() -> None:
        with closing(opening(path)) as ledger:
            ledger.reserve(replace(REQUEST, key="e" * 64)).settle(LOSS, "0" * 64)

    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as processes:
        more = processes.submit(memory_of, path).result()
    times = {
        "open, all read": Times.of(timed(afresh) for _ in range(2)),
        "open": Times.of(timed(lambda: opening(path).close()) for _ in range(repeats)),
        "open, first query": Times.of(timed(asked_first) for _ in range(repeats)),
    }
    figures = {f"{name}, CPU ms": taken.values("ms")["CPU ms"] for name, taken in times.items()}
    return {**figures, "open, all read, MiB": more}


def memory_of(path: Path) -> float:
    """Return by how many MiB an opening that reads all makes this process, which is new, grow; the least is a page."""
    path.with_name(f"{path.name}.checkpoint").unlink(missing_ok=True)
    with closing(MemoryLedger(BUDGET, total=TOTAL)) as ledger:
        ledger.reserve(REQUEST).settle(LOSS, "0" * 64)
    before = held()
    opening(path).close()
    return max(held() - before, 2**-8)


def acts(path: Path, *, distinct: bool, repeats: int) -> dict[str, Value]:
    """Return the milliseconds of each act of a ledger, and its size; the questions that this asks stay in it."""
    with closing(opening(path)) as ledger:
        known = key_of(0) if distinct else REQUEST.key
        new = replace(REQUEST, key="f" * 64) if distinct else REQUEST
        same = replace(REQUEST, key=known, account=Account("carol", BUDGET))
        reads = {
            "answer found": lambda: ledger.stored(known, "alice"),
            "answer missed": lambda: ledger.stored(known, "bob"),
            "what is left": lambda: (ledger.state(), ledger.state("alice"), ledger.budget),
        }
        writes = {
            "reserve, settle": lambda: ledger.reserve(new).settle(LOSS, "0" * 64, answer=ANSWER),
            "the same, shared": lambda: ledger.reserve(same).settle(LOSS, "0" * 64, answer=ANSWER, shared=True),
        }
        looked, wrote = in_turns(reads, repeats), in_turns(writes, repeats)
        lists = Times.of([timed(ledger.entries)])
    told = {f"{name}, CPU ms": times.values("ms")["CPU ms"] for name, times in {**looked, "history": lists}.items()}
    told |= {f"{name}, wall ms": times.values("ms")["wall ms"] for name, times in wrote.items()}
    return {**told, "size MiB": path.stat().st_size / 2**20}


def place(axis: str, at: int, values: Mapping[str, Value]) -> Row:
    """Return a row on an axis."""
    return Row(f"cost against {axis}", f"{at:,}", values, at=at)


AXES: Mapping[str, Callable[[Namespace], Iterator[Row]]] = {
    "rows": partial(over_events, "rows", lambda _, size: Events.of(size)),
    "users": partial(over_events, "users", lambda given, size: Events(given.events, size)),
    "items": partial(over_events, "items", lambda given, size: Events(given.events, given.events // 10, size)),
    "k_bar": over_k_bar,
    "groups": over_groups,
    "entries": partial(over_ledger, "entries"),
    "afresh": partial(over_ledger, "afresh"),
}


if __name__ == "__main__":
    alone(__file__)
