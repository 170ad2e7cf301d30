"""What one shared total buys, narrower intervals of counts at the same charge, and what reading it costs.

    python -m benchmarks run counts_total [--rows 10000000] [--threads 2] [--memory 2GB] [--repeats 7] [--trials 200]
                                          [--m 10 100] [--quick]

Intervals are those of answers to SQL: of m counts that share a noisy total, beside the same m counts with independent
noise, and how many of all intervals hold the exact count. The exact data is known to the benchmark alone. Timed is the
engine's part of a query: with the total, beside the same query without it and beside the plain one. The aims are 30 %
and 42 % for 10 and 100 counts; 1.4 of the plain query without a bound, and 1.1 of the query without the total where
the pass groups by users anyway.
"""

from __future__ import annotations

import warnings
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import replace

import duckdb
from program.main import alone
from program.row import Row
from program.times import Run, in_turns
from workload import QUERY, Events, Written, opened, plain, written

import dpsql
from dpsql.engines import Engine, Statement
from dpsql.intervals import LEVEL, ValueNoise
from dpsql.mechanisms import NoisyCounts
from dpsql.plan import Plan
from dpsql.sql.rewrite.engine_query import Bound

QUICK = {"rows": [3_000], "threads": [1], "repeats": 1, "trials": 2, "m": [10]}
AIMS = {10: " (aim 0.70)", 100: " (aim 0.58)"}
USERS, EPSILON = 3_000, 0.05
CREATE = """
CREATE TABLE reads AS
SELECT u AS user_id, 'item ' || i AS item FROM range(?) AS users(u), range(?) AS items(i) WHERE hash(u, i) % 3 > 0
"""
ASKED = QUERY.replace("events", "reads").format(k="{k}", options=f"fresh = true, epsilon = {EPSILON}, k_bar = 200")
WITHOUT = "without the total"
TIMED = {
    "no bound (aim 1.4 of plain)": ("mechanism = limited_domain", "plain"),
    "at most 5 groups (aim 1.1)": ("mechanism = limited_domain, max_groups_contributed = 5", WITHOUT),
    "at most 20 groups (aim 1.1)": ("mechanism = limited_domain, max_groups_contributed = 20", WITHOUT),
    "weighted_gaussian (aim 1.1)": ("mechanism = weighted_gaussian", WITHOUT),
}


def options(parser: ArgumentParser) -> None:
    """Add the sizes and the settings."""
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000_000])
    parser.add_argument("--threads", type=int, nargs="+", default=[2])
    parser.add_argument("--memory", default="2GB")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--m", type=int, nargs="+", default=[10, 100])


def run(given: Namespace) -> Iterator[Row]:
    """Compare the intervals, and then the times."""
    for m in given.m:
        yield from _intervals(m, given.trials)
    memory = None if given.memory == "none" else given.memory
    for rows in given.rows:
        with written(Events.of(rows), memory=memory) as data:
            for threads in given.threads:
                yield from _times(data, threads, memory=memory, repeats=given.repeats)


def _intervals(m: int, trials: int) -> Iterator[Row]:
    """Yield the width of the intervals of m counts with and without a shared total, and how many hold."""
    connection = duckdb.connect()
    connection.execute(CREATE, [USERS, m])
    exact = dict(connection.execute("SELECT item, count(DISTINCT user_id) FROM reads GROUP BY item").fetchall())
    ((users,),) = connection.execute("SELECT count(DISTINCT user_id) FROM reads").fetchall()
    policy = dpsql.Policy(
        dpsql.Budget(100, "1e-6", items=2 * m * (trials + 1), queries=trials + 1),
        {"reads": dpsql.PrivateTable("user_id")},
    )
    text = ASKED.format(k=m)
    widths, held, totals, charged = list[float](), list[bool](), list[bool](), set[int]()
    with dpsql.connect(connection, policy=policy, ledger=":memory:") as session:
        for _ in range(trials):
            with warnings.catch_warnings(action="ignore"):  # that fresh = true is charged again
                answer = session.sql(text)
            ends = answer.intervals().to_pylist()
            charged.add(answer.receipt.items_charged)
            held += [row["low"] <= exact[row["item"]] <= row["high"] for row in ends]
            widths += [(row["high"] - row["low"]) / 2 for row in ends]
            totals += [answer.total is not None and answer.total.low <= users <= answer.total.high]
    alone = ValueNoise(NoisyCounts(dpsql.Epsilon(EPSILON)).variance).reach(LEVEL)
    title = f"{m} counts at epsilon {EPSILON} an item, {LEVEL:.0%} intervals"
    yield Row(title, "independent noise", {"items": float(2 * m), "half width": float(alone), "of that": 1.0})
    width = sum(widths) / len(widths)
    found = {"items": float(max(charged)), "half width": width, "of that": width / alone}
    shares = {"hold": sum(held) / len(held), "totals hold": sum(totals) / len(totals)}
    yield Row(title, f"one shared total{AIMS.get(m, '')}", {**found, **shares})


def _times(data: Written, threads: int, *, memory: str | None, repeats: int) -> Iterator[Row]:
    """Yield the time of each query with the total, beside the same without it, and the plain one."""
    with opened(data, threads=threads, memory=memory) as (engine, session):
        for name, (asked, against) in TIMED.items():
            plan = session.explain(QUERY.format(k=10, options=asked))
            runs = {
                "plain": plain(engine),
                WITHOUT: _counting(engine, plan, total=False),
                "with the total": _counting(engine, plan, total=True),
            }
            for run, times in in_turns(runs, repeats).items():
                beside = {"plain": "", WITHOUT: "plain"}.get(run, against)
                yield Row(
                    f"{name}, threads {threads}, memory {memory}", run, times.values(), beside, note=data.description
                )


def _counting(engine: Engine, plan: Plan, *, total: bool) -> Run:
    """Return what runs the engine's part of a query, with or without the number of users."""
    bound = plan.max_groups_contributed
    query = replace(plan.query, reads_total=total)
    counting = plan.mechanism_plan.specify(query, None if bound is None else Bound(bound, (1, 2))).rows.counting
    return lambda: engine.execute(Statement(counting.sql, counting.parameters))


if __name__ == "__main__":
    alone(__file__)
