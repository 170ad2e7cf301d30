"""Names that were released once: recall of filtered queries after one broad list, with its names known and without.

    python -m benchmarks run released [--trials 3] [--broad 200] [--k 10] [--only NAME ...] [--names 100000]

Each trial opens a session with a ledger in memory and a total of (1, 1e-6). 40 % of rho pay for one TOP list of all
events, names only, and the rest for ten TOP k of a tenth of the units each. The tenths are correlated with the names:
items are dealt to ten heaps by a hash, and a unit belongs to the heap that most of its items are in. Compared are the
mechanism that dpsql chooses (AUTO) and weighted Gaussian, each with `known = false`, with the names above their
evidence line and with all of them (`known = all`), and a choice among the names alone (`domain = released`). Printed
are the mean recall of the ten queries, ties with the k-th as hits, the number of names that were known before the first
of them, the mean number of names that came back, and how many of the true top k of a segment are among the known names
at all.

The last table is what so many `--names` cost: the whole of a query beside the same one with `known = false`, in turns.
Its names were released from a public list.
"""

from __future__ import annotations

import math
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from statistics import fmean, median

import accuracy
import duckdb
import numpy as np
import pyarrow as pa
from accuracy import terms
from data_sets import Integers, Log, logs
from program.main import alone
from program.row import Row, Value
from program.times import in_turns

import dpsql

QUICK = {"trials": 1, "broad": 20, "k": 5, "names": 1_000, "repeats": 1}
SEGMENTS = 10
BROAD_SHARE = Fraction(2, 5)
ASKED = {
    "AUTO without": "known = false",
    "AUTO": "",
    "AUTO with all": "known = all",
    "weighted_gaussian without": "mechanism = weighted_gaussian, known = false",
    "weighted_gaussian": "mechanism = weighted_gaussian",
    "weighted_gaussian with all": "mechanism = weighted_gaussian, known = all",
    "domain = released": "domain = released",
}
BROAD = "SELECT item FROM events GROUP BY item TOP {k} PRIVATE WITH (epsilon = {epsilon})"
ITEMS = "CREATE TABLE items AS SELECT 'item ' || i AS item FROM range({count}) t(i)"
READS = (
    "CREATE TABLE events AS SELECT i * 7919 % 50021 AS user_id, 'item ' || i % {count} AS item "
    "FROM range(20 * {count}) t(i)"
)
LISTED = "SELECT item FROM events GROUP BY item TOP {k} PRIVATE WITH (domain = 'items.item', epsilon = {epsilon})"
SEGMENT = (
    "SELECT item FROM events WHERE segment = {segment} GROUP BY item TOP {k} PRIVATE WITH (epsilon = {epsilon}{also})"
)


@dataclass(frozen=True, slots=True)
class Trial:
    """What ten queries of one session found."""

    recalls: tuple[float, ...]
    returned: tuple[int, ...]
    covered: tuple[float, ...]
    known: int
    mechanisms: tuple[str, ...]


def segments_of(log: Log) -> Integers:
    """Return the heap that most items of each unit are in; of several the first."""
    heaps = (log.labels * 2_654_435_761 % 2**32 * SEGMENTS) >> 32
    counts = np.bincount(log.units * SEGMENTS + heaps, minlength=log.population * SEGMENTS)
    return np.argmax(counts.reshape(log.population, SEGMENTS), axis=1)


def stored(log: Log, segments: Integers, folder: str) -> Path:
    """Return a DuckDB file of the events of a log."""
    path = Path(folder, f"{log.name}.duckdb".replace(" ", "_"))
    rows = pa.table({"user_id": log.units, "item": log.labels, "segment": segments[log.units]})
    with duckdb.connect(str(path)) as connection:
        connection.register("rows", rows)
        connection.execute("CREATE TABLE events AS SELECT user_id, 'item ' || item AS item, segment FROM rows")
    return path


def epsilon_of(share: Fraction, k: int) -> str:
    """Return the epsilon of one item of which k take a share of the total's rho, rounded down."""
    square = 8 * terms("1", "1e-6").rho.value * share / k
    return f"{math.isqrt(math.floor(square * 10**16)) / 10**8:.8f}"


def leading(log: Log, units: Integers, k: int) -> frozenset[str]:
    """Return the labels of some units that have at least the k-th count."""
    counts = np.bincount(log.labels[units], minlength=log.size)
    kth = max(1, int(np.partition(counts, -k)[-k]))
    return frozenset(f"item {label}" for label in np.flatnonzero(counts >= kth))


def answered(path: Path, truth: Mapping[int, frozenset[str]], given: Namespace, *, also: str) -> Trial:
    """Return what the ten queries find after the broad one, in a session of their own."""
    policy = dpsql.Policy(dpsql.Budget("1", "1e-6"), {"events": dpsql.PrivateTable("user_id")})
    k, share = given.k, (1 - BROAD_SHARE) / SEGMENTS
    found, returned, mechanisms, covered = [], [], [], []
    with dpsql.connect(path, policy=policy, ledger=":memory:") as session:
        broad = session.sql(BROAD.format(k=given.broad, epsilon=epsilon_of(BROAD_SHARE, given.broad)))
        names = {item for (item,) in broad.fetchall()}
        for segment, best in truth.items():
            text = SEGMENT.format(segment=segment, k=k, epsilon=epsilon_of(share, k), also=also and f", {also}")
            covered.append(min(k, len(names & best)) / k)
            try:
                answer = session.sql(text)
            except dpsql.Refusal:  # no name is known
                found.append(0.0)
                returned.append(0)
                continue
            items = {item for (item,) in answer.fetchall()}
            found.append(len(items & best) / k)
            returned.append(len(items))
            mechanisms.append(answer.receipt.mechanism)
    return Trial(tuple(found), tuple(returned), tuple(covered), len(names), tuple(dict.fromkeys(mechanisms)))


def options(parser: ArgumentParser) -> None:
    """Add the lengths of both lists and the data sets."""
    accuracy.options(parser, trials=3)
    parser.add_argument("--broad", type=int, default=200, help="names of the broad list")
    parser.add_argument("--k", type=int, default=10, help="names of each segment")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="data sets to take")
    parser.add_argument("--names", type=int, default=100_000, help="known names whose cost is measured")
    parser.add_argument("--repeats", type=int, default=15, help="turns of that")


def run(given: Namespace) -> Iterator[Row]:
    """Measure each data set with more names than the broad list asks for, and what many names cost."""
    yield from recalled(given)
    yield from timed(given.names, given.repeats)


def timed(count: int, repeats: int) -> Iterator[Row]:
    """Time a query without and with so many known names, each about twenty units'."""
    again = "0.02, mechanism = weighted_gaussian, delta = 1e-10, fresh = true"
    asked = {"known = false": f"{again}, known = false", "known names (aim 20 ms more)": again}
    tables = {"events": dpsql.PrivateTable("user_id"), "items": dpsql.PublicTable()}
    limits = dpsql.Limits(max_k=max(1_000, count), max_k_bar=max(10_000, count))
    policy = dpsql.Policy(dpsql.Budget("100", "1e-6"), tables, limits=limits)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "names.duckdb")
        with duckdb.connect(str(path)) as connection:
            connection.execute(ITEMS.format(count=count))
            connection.execute(READS.format(count=count))
        with dpsql.connect(path, policy=policy, ledger=":memory:") as session:
            session.sql(LISTED.format(k=count, epsilon=0.002))

            def ask(options: str) -> int:
                return len(session.sql(BROAD.format(k=10, epsilon=options)).fetchall())

            times = in_turns({name: partial(ask, options) for name, options in asked.items()}, repeats)
    without = median(times["known = false"].cpu)
    for name, each in times.items():
        values: dict[str, Value] = {**each.values("ms"), "more CPU ms": 1e3 * (median(each.cpu) - without)}
        yield Row(f"the whole of a query beside {count:,} names that were released", name, values)


def recalled(given: Namespace) -> Iterator[Row]:
    """Measure the recall of queries that follow a broad list."""
    for log in logs(given.data, quick=given.quick):
        if (given.only and log.name not in given.only) or log.size <= given.broad:
            continue
        segments = segments_of(log)
        truth = {
            segment: leading(log, segments[log.units] == segment, given.k)
            for segment in range(SEGMENTS)
            if np.count_nonzero(segments == segment)
        }
        title = f"{log.name}: recall@{given.k} of segments after one TOP {given.broad}, (1, 1e-6) in all"
        note = f"{log.population:,} units, {log.size:,} labels, {given.trials} trials."
        with tempfile.TemporaryDirectory() as folder:
            path = stored(log, segments, folder)
            for name, also in ASKED.items():
                trials = [answered(path, truth, given, also=also) for _ in range(given.trials)]
                values = {
                    "recall": fmean(each for trial in trials for each in trial.recalls),
                    "returned": fmean(each for trial in trials for each in trial.returned),
                    "known": fmean(trial.known for trial in trials),
                    "of them true": fmean(each for trial in trials for each in trial.covered),
                    "mechanism": ", ".join(dict.fromkeys(each for trial in trials for each in trial.mechanisms)),
                }
                yield Row(title, name, values, note=note)


if __name__ == "__main__":
    alone(__file__)
