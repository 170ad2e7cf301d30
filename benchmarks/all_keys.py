"""What noise on a million keys costs: the time that a query for 100 of them passes outside the engine.

    python -m benchmarks run all_keys [--keys 1000000] [--repeats 9]

Every key has a unit or two, and the first 300 keys have hundreds, so nearly all stand far below any threshold. New
noise each time, beside a mechanism that reads the leaders alone.
"""

from __future__ import annotations

import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

import duckdb
from program.main import alone
from program.row import Row
from workload import QUERY, Written, opened, outside_the_engine

QUICK = {"keys": 1_000, "repeats": 1}
GENERATE = """
CREATE TABLE events AS
SELECT i AS user_id, 'item number ' || CASE WHEN i % 10 = 0 THEN i // 10 % 300 ELSE i % {keys} END AS item
FROM range({keys} * 2) AS t(i)
"""
LEADERS = "limited_domain, k_bar = 1000"
MECHANISMS = (LEADERS, "gaussian_histogram, max_groups_contributed = 5", "weighted_gaussian", "domain_discovery")


def options(parser: ArgumentParser) -> None:
    """Add the number of keys."""
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=9)


def run(given: Namespace) -> Iterator[Row]:
    """Time each mechanism over all keys, beside one that reads the leaders alone."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.duckdb"
        with duckdb.connect(str(path)) as connection:
            connection.execute(GENERATE.format(keys=given.keys))
        fresh = "epsilon = 0.1, fresh = true"
        texts = {name: QUERY.format(k=100, options=f"mechanism = {name}, {fresh}") for name in MECHANISMS}
        with opened(Written(path, "database", "")) as (engine, session):
            for name, times in outside_the_engine(engine, session, texts, repeats=given.repeats).items():
                against = "" if name == LEADERS else LEADERS
                yield Row(f"outside the engine, {given.keys:,} keys", name, times.values("ms"), against)


if __name__ == "__main__":
    alone(__file__)
