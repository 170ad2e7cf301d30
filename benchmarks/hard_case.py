"""The hard case through SQL: recall and seconds of one query that spends a whole total of (1, 1e-6).

    python -m benchmarks run hard_case [--trials 10] [--k 10 100]

10,000 users, 200,000 events and 28,600 items, and then ten times the users and events, in a DuckDB file that is
forgotten. Each trial opens a session of its own with a ledger in memory and asks TOP k, names only, with new noise: by
the mechanism that dpsql chooses (AUTO), which is named, and by each that can be named. The policy sets no bound; the
mechanisms that need one are asked with it. Printed are the mean recall of COUNT(DISTINCT user_id), ties with the k-th
as hits, its least over the trials, the mean number of items that came back, the share of rho that was reserved, and the
seconds of the query, on the clock; the plain query, without privacy, is timed beside them.
"""

from __future__ import annotations

import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import duckdb
import pyarrow as pa
from data_sets import events
from program.main import alone
from program.row import Row, Value
from program.times import timed

import dpsql

SIZES = {"hard": (10_000, 200_000, 50_000), "hard x 10": (100_000, 2_000_000, 50_000), "tiny": (500, 5_000, 300)}
QUICK = {"trials": 2, "sizes": ["tiny"]}
PLAIN = "SELECT item, COUNT(DISTINCT user_id) AS n FROM events GROUP BY item ORDER BY n DESC"
QUERY = "SELECT item FROM events GROUP BY item TOP {k} PRIVATE WITH (mechanism = {mechanism}, fresh = true)"
MECHANISMS = (
    "auto",
    "limited_domain",
    "weighted_gaussian",
    "domain_discovery",
    *(
        f"{name}, max_groups_contributed = {most}"
        for name in ("gaussian_histogram", "weighted_gaussian")
        for most in (1, 5, 20)
    ),
    "laplace_limited_domain, max_groups_contributed = 1",
    "stable",
    "top_stable",
)


@dataclass(frozen=True, slots=True)
class Trial:
    """One answer: its recall, its size, the share of rho that was reserved for it, and its seconds."""

    recall: float
    returned: int
    reserved: float
    seconds: float
    mechanism: str


def write(path: Path, users: int, *, rows: int, items: int) -> None:
    """Write events to a new database."""
    units, labels = events(users, rows=rows, items=items)
    table = pa.table({"user_id": units, "item": labels})
    with duckdb.connect(str(path)) as connection:
        connection.register("generated", table)
        connection.execute("CREATE TABLE events AS SELECT user_id, 'item ' || item AS item FROM generated")


def ask(database: Path, mechanism: str, *, k: int, truth: Mapping[str, int]) -> Trial:
    """Ask once, in a session whose whole total the query may spend."""
    budget = dpsql.Budget(1, "1e-6", items=k, queries=1)
    policy = dpsql.Policy(budget, {"events": dpsql.PrivateTable("user_id")})
    sql = QUERY.format(k=k, mechanism=mechanism)
    with dpsql.connect(database, policy=policy, ledger=":memory:") as session:
        plan = session.explain(sql)
        before = time.perf_counter()
        answer = session.sql(sql)
        seconds = time.perf_counter() - before
        granted = session.terms.budget
    kth = sorted(truth.values(), reverse=True)[k - 1]
    hits = sum(truth[row["item"]] >= kth for row in answer.arrow().to_pylist())
    reserved = plan.price(plan.worst_case).rho.value / granted.rho.value
    return Trial(hits / k, len(answer), float(reserved), seconds, plan.mechanism)


def plain(database: Path) -> tuple[dict[str, int], list[float]]:
    """Return the counts of all items, and the seconds of the plain query that returns ten."""
    with duckdb.connect(str(database), read_only=True) as connection:
        counts = dict(connection.execute(PLAIN).fetchall())
        return counts, [timed(lambda: connection.execute(f"{PLAIN} LIMIT 10").fetchall())[1] for _ in range(5)]


def options(parser: ArgumentParser) -> None:
    """Add sizes and trials."""
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--k", type=int, nargs="+", default=[10, 100])
    parser.add_argument("--sizes", nargs="+", default=["hard", "hard x 10"], choices=SIZES, metavar="SIZE")


def run(given: Namespace) -> Iterator[Row]:
    """Write, and ask each mechanism for each k."""
    for size in given.sizes:
        users, rows, items = SIZES[size]
        with tempfile.TemporaryDirectory() as folder:
            database = Path(folder) / "events.duckdb"
            write(database, users, rows=rows, items=items)
            truth, seconds = plain(database)
            for k in given.k:
                title = f"{size}: {users:,} users, {rows:,} events, {len(truth):,} items; k = {k}"
                yield Row(title, "plain query", {"seconds": seconds})
                for mechanism in MECHANISMS:
                    trials = [ask(database, mechanism, k=k, truth=truth) for _ in range(given.trials)]
                    yield told(title, mechanism, trials)


def told(title: str, mechanism: str, trials: list[Trial]) -> Row:
    """Return what some trials of one mechanism found."""
    recalls = [trial.recall for trial in trials]
    found: dict[str, Value] = {
        "recall": fmean(recalls),
        "least": min(recalls),
        "returned": fmean(trial.returned for trial in trials),
        "reserved": trials[0].reserved,
        "seconds": [trial.seconds for trial in trials],
    }
    name = f"AUTO: {trials[0].mechanism}" if mechanism == "auto" else mechanism
    return Row(title, name, found, against="plain query")


if __name__ == "__main__":
    alone(__file__)
