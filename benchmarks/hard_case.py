"""The hard case through SQL: recall and seconds of one query that spends a whole total of (1, 1e-6).

    python benchmarks/hard_case.py [--trials 10] [--k 10 100] [--quick]

10,000 users, 200,000 events and 28,600 items, and then ten times the users and events, in a DuckDB file that is
forgotten. Each trial opens a session of its own with a ledger in memory and asks TOP k, names only, with new noise: by
the mechanism that dpsql chooses (AUTO), which is named, and by each that can be named. The policy sets no bound; the
mechanisms that need one are asked with it. Printed are the mean recall of COUNT(DISTINCT user_id), ties with the k-th
as hits, its least over the trials, the mean number of items that came back, the share of rho that was reserved, and the
median seconds of the query, on the clock; the plain query, without privacy, is timed beside them.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

import duckdb
import pyarrow as pa
from data_sets import events
from overhead import machine

import dpsql

SIZES = (("hard", 10_000, 200_000, 50_000), ("hard x 10", 100_000, 2_000_000, 50_000))
TINY = (("tiny", 500, 5_000, 300),)
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
    reserved = plan.columns(plan.worst_case).rho.value / granted.rho.value
    return Trial(hits / k, len(answer), float(reserved), seconds, plan.mechanism)


def plain(database: Path) -> tuple[dict[str, int], float]:
    """Return the counts of all items, and the seconds of the plain query that returns ten."""
    with duckdb.connect(str(database), read_only=True) as connection:
        counts = dict(connection.execute(PLAIN).fetchall())
        figures = []
        for _ in range(5):
            before = time.perf_counter()
            connection.execute(f"{PLAIN} LIMIT 10").fetchall()
            figures.append(time.perf_counter() - before)
    return counts, median(figures)


def rows(database: Path, truth: Mapping[str, int], *, k: int, trials: int) -> Iterator[str]:
    """Yield a line for each mechanism."""
    for mechanism in MECHANISMS:
        made = [ask(database, mechanism, k=k, truth=truth) for _ in range(trials)]
        name = f"AUTO: {made[0].mechanism}" if mechanism == "auto" else mechanism
        recalls = [each.recall for each in made]
        yield (
            f"{name:52}{fmean(recalls):8.3f}{min(recalls):8.3f}{fmean(each.returned for each in made):10.1f}"
            f"{made[0].reserved:10.4f}{median(each.seconds for each in made):9.3f}"
        )


def main() -> None:
    """Write, ask and print."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--trials", type=int, default=10)
    made.add_argument("--k", type=int, nargs="+", default=[10, 100])
    made.add_argument("--quick", action="store_true", help="two trials on small generated data")
    chosen = made.parse_args()
    trials = 2 if chosen.quick else chosen.trials
    print(machine())
    for name, users, events_, items in TINY if chosen.quick else SIZES:
        with tempfile.TemporaryDirectory() as folder:
            database = Path(folder) / "events.duckdb"
            write(database, users, rows=events_, items=items)
            truth, seconds = plain(database)
            print(f"\n{name}: {users:,} users, {events_:,} events, {len(truth):,} items; plain query {seconds:.3f} s")
            for k in chosen.k:
                print(f"\nk = {k:<48}{'recall':>8}{'least':>8}{'returned':>10}{'reserved':>10}{'seconds':>9}")
                for row in rows(database, truth, k=k, trials=trials):
                    print(row, flush=True)


if __name__ == "__main__":
    main()
