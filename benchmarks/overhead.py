"""What privacy costs: a private top 10 beside the plain COUNT(DISTINCT) ... LIMIT 10.

    python -m benchmarks run overhead [--rows 1000000 10000000] [--units integer uuid] [--stores database parquet]
                                      [--threads 1 2] [--memory 2GB] [--repeats 7] [--quick]

A table for each combination of what is given. Timed is the engine's part of a query, all of them on one sealed engine.
Where the first look of `two_looks` settles it, that is what `k_bar = 1,000` takes; both reads are the other case. All
but those of `names` select counts, and with them the number of all users. The last rows are totals: the number of
different items, which is compared with that of at most 3 items of each user, and statistics of the lengths of items,
which are compared with the number of users. The suite `bounded` has the bounds of
groups, and `fixed` what happens outside the engine. The memory limit is DuckDB's, for the plain query, too, and for
generating; `--memory none` sets none. For 100 million rows name one unit and one store.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from types import MappingProxyType

from program.main import alone
from program.row import Row
from program.times import in_turns
from workload import STORES, UNITS, Events, Written, opened, plain, private, total, written

from dpsql.policy import Bounds

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
TOTALS = {  # plain statements, each with the private ones that are compared with it
    "COUNT(DISTINCT item)": {
        "items, 3 of each user (aim 2.5)": "COUNT(DISTINCT item, contribution_bounds_per_group => (0, 3))"
    },
    "COUNT(DISTINCT user_id)": {
        "AVG (aim 1.6)": "AVG(length(item), contribution_bounds_per_group => (0, 30))",
        "VARIANCE (aim 1.6)": "VARIANCE(length(item), contribution_bounds_per_row => (0, 30))",
        "MEDIAN (aim 3)": "MEDIAN(length(item), contribution_bounds_per_row => (0, 30))",
    },
}
OF_ALL = "SELECT {} AS n FROM {}"
ROWS = 20  # of one user in the totals


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
    yield from compared(given, ASKED, totals=TOTALS)


def compared(
    given: Namespace, asked: Mapping[str, str], *, totals: Mapping[str, Mapping[str, str]] = MappingProxyType({})
) -> Iterator[Row]:
    """Yield a table of private queries, options by name, for each combination of sizes and settings.

    It ends with private totals, each below the plain one that it is compared with.
    """
    memory = None if given.memory == "none" else given.memory
    for rows, unit, store in product(given.rows, given.units, given.stores):
        with written(Events.of(rows, unit), store, memory=memory) as data:
            for threads in given.threads:
                title = f"{rows:,} rows, {unit} units, {store}, threads {threads}, memory {given.memory}"
                yield from _table(title, data, asked, settings=(threads, memory, given.repeats), totals=totals)


def _table(
    title: str,
    data: Written,
    asked: Mapping[str, str],
    *,
    settings: tuple[int, str | None, int],
    totals: Mapping[str, Mapping[str, str]],
) -> Iterator[Row]:
    threads, memory, repeats = settings
    with opened(replace(data, bounds=Bounds(rows=ROWS)), threads=threads, memory=memory) as (engine, session):
        runs = {"plain": plain(engine)}
        runs |= {
            name: private(engine, session, options, counts=not name.startswith("names"))
            for name, options in asked.items()
        }
        against = dict.fromkeys(runs, "plain") | {"plain": ""}
        for measure, others in totals.items():
            beside = f"plain {measure}"
            runs[beside] = plain(engine, OF_ALL.format(measure, "{table}"))
            runs |= {
                name: total(engine, session, f"{OF_ALL.format(own, 'events')} PRIVATE") for name, own in others.items()
            }
            against |= {beside: "", **dict.fromkeys(others, beside)}
        for name, times in in_turns(runs, repeats).items():
            yield Row(title, name, times.values(), against[name], note=data.description)


if __name__ == "__main__":
    alone(__file__)
