"""Cost and gain of materializing a table: the same queries over rows and over materialized values, in turns.

    python -m benchmarks run materialized [--rows 1000000 10000000] [--memory 2GB] [--repeats 7]

The benchmark times the engine's part of a query and divides it by the time of the plain COUNT(DISTINCT) ... LIMIT 10
over the rows (aim: 0.1 for a bounded query). Then it materializes the rows once, appends 1 % and adds that. It reports
the wall time of both, and the size of the file beside that of the database.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
from program.main import alone
from program.row import Row
from program.times import Run, in_turns
from workload import QUERY, Events, Written, plain, written

import dpsql
from dpsql.connect import open_session
from dpsql.curator import materialize
from dpsql.engines import Engine, Statement
from dpsql.open_engine import open_engine

QUICK = {"rows": [3_000], "repeats": 1}
ASKED = {
    "unbounded": "mechanism = limited_domain, k_bar = 1000",
    "at most 5": "mechanism = limited_domain, k_bar = 1000, max_groups_contributed = 5",
    "at most 20": "mechanism = limited_domain, k_bar = 1000, max_groups_contributed = 20",
    "weighted_gaussian": "mechanism = weighted_gaussian",
}
FILTERED = "unbounded, a tenth of the users"


def options(parser: ArgumentParser) -> None:
    """Add the sizes."""
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--memory", default="2GB")
    parser.add_argument("--repeats", type=int, default=7)


def run(given: Namespace) -> Iterator[Row]:
    """Write events, materialize them, and ask both in turns; then append."""
    for rows in given.rows:
        events = Events.of(rows)
        with written(events, memory=given.memory) as data:
            known = _policy(data, given.memory)
            title = f"{rows:,} rows, memory {given.memory}"
            made = _seconds(known, data.path)
            yield from _asked(title, data, known, users=events.users, repeats=given.repeats)
            yield from _kept(title, data, known, made=made)


def _policy(data: Written, memory: str) -> dpsql.Policy:
    usual = data.policy(dpsql.EngineSettings(memory_limit=memory))
    tables = {"events": dpsql.PrivateTable("user_id", materialized=[["item"]])}
    return replace(usual, tables=tables, materialized=data.path.parent / "materialized")


def _seconds(known: dpsql.Policy, database: Path) -> float:
    before = time.perf_counter()
    materialize(known, database=database)
    return time.perf_counter() - before


def _asked(title: str, data: Written, known: dpsql.Policy, *, users: int, repeats: int) -> Iterator[Row]:
    over_rows, over_materialized = (open_engine(data.path, known, materialized=each) for each in (False, True))
    with (
        open_session(over_rows, known, ledger=":memory:") as long,
        open_session(over_materialized, known, ledger=":memory:") as short,
    ):
        texts = {name: QUERY.format(k=10, options=options) for name, options in ASKED.items()}
        tenth = f"events WHERE user_id < {users // 10}"
        texts[FILTERED] = texts["unbounded"].replace("events", tenth, 1)
        runs: dict[str, Run] = {"plain": plain(over_rows)}
        for name, text in texts.items():
            runs[f"{name}, rows"] = _counting(over_rows, long, text)
            runs[f"{name}, {short.explain(text).counting.reads.removesuffix(' of item')}"] = _counting(
                over_materialized, short, text
            )
        for name, times in in_turns(runs, repeats).items():
            yield Row(title, name, times.values("ms"), "" if name == "plain" else "plain", note=data.description)


def _counting(engine: Engine, session: dpsql.Session, text: str) -> Run:
    counting = session.explain(text).counting
    return lambda: engine.execute(Statement(counting.sql, counting.parameters))


def _kept(title: str, data: Written, known: dpsql.Policy, *, made: float) -> Iterator[Row]:
    """Yield what it takes to materialize the table, and to add a hundredth that was appended."""
    size = data.path.stat().st_size / 2**20
    (file,) = (data.path.parent / "materialized").glob("*.duckdb")
    yield Row(
        f"{title}: dpsql materialize", "made", {"wall s": made, "MiB": file.stat().st_size / 2**20, "data MiB": size}
    )
    with duckdb.connect(str(data.path)) as connection:
        connection.execute(
            "INSERT INTO events SELECT user_id + 1, item FROM events USING SAMPLE 1 PERCENT (bernoulli, 7)"
        )
    appended = _seconds(known, data.path)
    yield Row(f"{title}: dpsql materialize", "a hundredth appended", {"wall s": appended})


if __name__ == "__main__":
    alone(__file__)
