"""What noise on a million keys costs: the time that a query for 100 of them passes outside the engine.

    python benchmarks/all_keys.py [--keys 1000000] [--repeats 9]

Every key has a unit or two, and the first 300 keys have hundreds, so nearly all stand far below any threshold. Every
figure is a median, with new noise each time. Nothing is written but a temporary database.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import duckdb
from overhead import TimedEngine, machine, outside_the_engine

import dpsql
from dpsql.connect import session_of
from dpsql.engines.duckdb import DuckDBEngine

GENERATE = """
CREATE TABLE events AS
SELECT i AS user_id, 'item number ' || CASE WHEN i % 10 = 0 THEN i // 10 % 300 ELSE i % {keys} END AS item
FROM range({keys} * 2) AS t(i)
"""
MECHANISMS = ("gaussian_histogram, max_groups_contributed = 5", "weighted_gaussian", "domain_discovery")


def main() -> None:
    """Time each mechanism over all keys, beside one that reads the leaders alone."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=9)
    arguments = parser.parse_args()
    print(machine())
    policy = dpsql.Policy(
        dpsql.Budget(100, "1e-6", items=1_000, queries=1_000), {"events": dpsql.PrivateTable("user_id")}
    )
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "events.duckdb"
        with duckdb.connect(str(database)) as connection:
            connection.execute(GENERATE.format(keys=arguments.keys))
        engine = TimedEngine(DuckDBEngine.open(database, {"events": None}))
        with session_of(engine, policy, ledger=":memory:") as session:
            for mechanism in (*MECHANISMS, "limited_domain, k_bar = 1000"):
                options = f"mechanism = {mechanism}, epsilon = 0.1, fresh = true"
                cpu, wall = outside_the_engine(engine, session, arguments.repeats, options=options)
                print(f"{mechanism:52} {1e3 * cpu:7.1f} ms of CPU, {1e3 * wall:7.1f} ms outside the engine")


if __name__ == "__main__":
    main()
