"""Rows that cross from an engine to Python, for mechanisms of all groups: with the lower cut, and without it.

    python -m benchmarks run crossing [--rows 1000000] [--engines postgres spark]

Data is MSWeb, which comes with the package, and synthetic events of few and of very many items. Both statements are
those of one plan: the places of the one are drawn, those of the other are left open, so that every group is returned.
Each engine has a process of its own.
"""

from __future__ import annotations

import multiprocessing
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import duckdb
from data_sets import MSWEB
from engines import SOURCES
from program.main import alone
from program.row import Row, Value
from workload import Events, Written, written

from dpsql.connect import open_session
from dpsql.engines import Engine, open_exact
from dpsql.mechanisms import OperatingSystemNoise
from dpsql.open_engine import open_engine
from dpsql.plan import Plan, build_statement, draw_places

QUICK = {"rows": [2_000], "engines": ["postgres"]}
ITEMS = {"few items": 100_000, "very many items": 10**12}
QUERY = "SELECT item, COUNT(DISTINCT user_id) AS n FROM events GROUP BY item TOP {k} PRIVATE WITH ({options})"
QUERIES = {
    "two_looks, second read, top 10": QUERY.format(k=10, options="mechanism = two_looks, epsilon = 0.05, delta = 1e-8"),
    "weighted_gaussian, top 20": QUERY.format(
        k=20, options="mechanism = weighted_gaussian, epsilon = 0.05, delta = 1e-8"
    ),
    "gaussian_histogram, top 10, at most 5 groups": QUERY.format(
        k=10, options="mechanism = gaussian_histogram, max_groups_contributed = 5, epsilon = 0.05, delta = 1e-8"
    ),
}
NOISE = OperatingSystemNoise()


def options(parser: ArgumentParser) -> None:
    """Add the sizes and the engines."""
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000])
    others = [name for name in SOURCES if name != "duckdb"]
    parser.add_argument("--engines", nargs="+", default=others, choices=others, metavar="ENGINE")


def run(given: Namespace) -> Iterator[Row]:
    """Count the rows of each query on each engine, for each data set in a process of its own."""
    for title, events in _data_sets(given.rows):
        with written(events or Events.of(1), "parquet") as data:
            if events is None:
                duckdb.sql(f"COPY (FROM '{MSWEB}' SELECT user_id, area AS item) TO '{data.path}' (FORMAT parquet)")
            for name in given.engines:
                with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as processes:
                    found = processes.submit(crossed, name, data).result()
                for query, values in found.items():
                    yield Row(f"{title} on {name}", query, values)


def _data_sets(sizes: list[int]) -> Iterator[tuple[str, Events | None]]:
    yield "MSWeb", None
    for rows in sizes:
        for name, items in ITEMS.items():
            yield f"{rows:,} events of {name}", Events(rows, max(1, rows // 10), items)


def crossed(name: str, data: Written) -> dict[str, dict[str, Value]]:
    """Return how many rows cross for each query, and how large they are in Arrow."""
    found: dict[str, dict[str, Value]] = {}
    with SOURCES[name](data) as policy:
        engine = open_engine(None, policy)
        with open_session(engine, policy, ledger=":memory:") as session:
            for query, text in QUERIES.items():
                plan = session.explain(text)
                (rows, size), (left, small) = _fetch(engine, plan), _fetch(engine, draw_places(plan, NOISE))
                found[query] = {
                    "rows without": rows,
                    "MB without": size,
                    "rows with the cut": left,
                    "MB with it": small,
                }
    return found


def _fetch(engine: Engine, plan: Plan) -> tuple[float, float]:
    """Return how many rows an engine returns, and their megabytes."""
    rows = plan.spec.second or plan.spec.rows
    table = open_exact(engine.execute(build_statement(rows.counting)))
    return float(table.num_rows), table.nbytes / 1e6


if __name__ == "__main__":
    alone(__file__)
