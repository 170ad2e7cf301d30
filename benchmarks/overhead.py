"""What privacy costs: a private top 10 beside the plain COUNT(DISTINCT) ... LIMIT 10.

    python -m benchmarks run overhead [--rows 1000000 10000000] [--units integer uuid] [--stores database parquet]
                                      [--threads 1 2] [--memory 2GB] [--repeats 7] [--quick]

A table for each combination of what is given. Timed is the engine's part of a query, all of them on one sealed engine.
Where the first look of `two_looks` settles it, that is what `k_bar = 1,000` takes; both reads are the other case. All
but those of `names` select counts, and with them the number of all users. The last two rows are the number of different
items of all users, which is compared with that of at most 3 items of each. The suite `bounded` has the bounds of
groups, and `fixed` what happens outside the engine. The memory limit is DuckDB's, for the plain query, too, and for
generating; `--memory none` sets none. For 100 million rows name one unit and one store.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from itertools import product

from program.main import alone
from program.row import Row
from program.times import in_turns
from workload import STORES, UNITS, Events, Written, opened, plain, private, total, written

QUICK = {"rows": [3_000], "threads": [1], "repeats": 1}
ASKED = {
    **{
        f"k_bar = {k_bar:,} (aim 1.05)": f"mechanism = limited_domain, k_bar = {k_bar}"
        for k_bar in (100, 1_000, 10_000)
    },
    **{f"{name} (aim 1.5)": f"mechanism = {name}" for name in ("weighted_gaussian", "domain_discovery")},
    "two_looks, both reads (aim 1.9)": "mechanism = two_looks",
    "names, k_bar = 1,000 (aim 1.1)": "mechanism = limited_domain, k_bar = 1000",
    "names, weighted_gaussian (aim 1.5)": "mechanism = weighted_gaussian",
    "names, two_looks, both reads (aim 1.9)": "mechanism = two_looks",
}
VALUES, KEPT = "plain COUNT(DISTINCT item)", "items, 3 of each user (aim 2.5)"
COUNT_ITEMS = "SELECT COUNT(DISTINCT item) AS n FROM {table}"
COUNT_KEPT = "SELECT COUNT(DISTINCT item, contribution_bounds_per_group => (0, 3)) AS n FROM events PRIVATE"


def options(parser: ArgumentParser) -> None:
    """Add the sizes and the settings."""
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--units", nargs="+", default=list(UNITS), choices=UNITS, metavar="UNIT")
    parser.add_argument("--stores", nargs="+", default=list(STORES), choices=STORES, metavar="STORE")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--memory", default="2GB")
    parser.add_argument("--repeats", type=int, default=7)


def run(given: Namespace) -> Iterator[Row]:
    """Time the plain query and the private ones in turns."""
    yield from compared(given, ASKED, values=True)


def compared(given: Namespace, asked: Mapping[str, str], *, values: bool = False) -> Iterator[Row]:
    """Yield a table of private queries, options by name, for each combination of sizes and settings.

    With `values` it ends with the number of different items.
    """
    memory = None if given.memory == "none" else given.memory
    for rows, unit, store in product(given.rows, given.units, given.stores):
        with written(Events.of(rows, unit), store, memory=memory) as data:
            for threads in given.threads:
                title = f"{rows:,} rows, {unit} units, {store}, threads {threads}, memory {given.memory}"
                yield from _table(title, data, asked, settings=(threads, memory, given.repeats), values=values)


def _table(
    title: str, data: Written, asked: Mapping[str, str], *, settings: tuple[int, str | None, int], values: bool
) -> Iterator[Row]:
    threads, memory, repeats = settings
    with opened(data, threads=threads, memory=memory) as (engine, session):
        runs = {"plain": plain(engine)}
        runs |= {
            name: private(engine, session, options, counts=not name.startswith("names"))
            for name, options in asked.items()
        }
        against = dict.fromkeys(runs, "plain") | {"plain": ""}
        if values:
            runs |= {VALUES: plain(engine, COUNT_ITEMS), KEPT: total(engine, session, COUNT_KEPT)}
            against |= {VALUES: "", KEPT: VALUES}
        for name, times in in_turns(runs, repeats).items():
            yield Row(title, name, times.values(), against[name], note=data.description)


if __name__ == "__main__":
    alone(__file__)
