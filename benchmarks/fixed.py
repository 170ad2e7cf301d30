"""What a query costs outside the engine: reading SQL, planning, the ledger, noise, the answer.

    python -m benchmarks run fixed [--rows 1000000] [--repeats 15]

Whole queries are asked afresh in a session with a ledger in memory, and the time that the engine takes is taken off.
The aim is 5 ms for names and counts of 100 items out of 1,000; of so many rows, all 100 are returned. No two texts are
the same, but where the same words are asked again: those are not read again. Planning alone is EXPLAIN; a replay is the
same question in other words, which the ledger answers. The SELECT around it is parsed, bound and computed by DuckDB,
which counts here: it is another one than the engine.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator

from program.main import alone
from program.row import Row
from workload import QUERY, Events, opened, outside_the_engine, written

AROUND = "SELECT * FROM ({}) AS answer"
QUICK = {"rows": 3_000, "repeats": 2}
FRESH = "epsilon = 0.1, fresh = true"
AGAIN = "the same, in the same words"
ASKED = {
    "limited_domain, k_bar = 1,000 (aim 5 ms)": f"mechanism = limited_domain, k_bar = 1000, {FRESH}",
    AGAIN: f"mechanism = limited_domain, k_bar = 1000, {FRESH}",
    "limited_domain, k_bar = 10,000": f"mechanism = limited_domain, k_bar = 10000, {FRESH}",
    "weighted_gaussian": f"mechanism = weighted_gaussian, {FRESH}",
    "domain_discovery": f"mechanism = domain_discovery, {FRESH}",
    "chosen by dpsql": FRESH,
    "replayed": "epsilon = 0.1",
}


def options(parser: ArgumentParser) -> None:
    """Add the size."""
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=15)


def run(given: Namespace) -> Iterator[Row]:
    """Ask each in turns."""
    title = f"outside the engine, 100 names and counts of {given.rows:,} rows"
    with written(Events.of(given.rows)) as data, opened(data) as (engine, session):
        texts = {name: QUERY.format(k=100, options=options) for name, options in ASKED.items()}
        texts["a SELECT around it, in other words each time"] = AROUND.format(texts["replayed"])
        texts["EXPLAIN"] = f"EXPLAIN {texts['chosen by dpsql']}"
        for name, times in outside_the_engine(engine, session, texts, repeats=given.repeats, again=[AGAIN]).items():
            yield Row(title, name, times.values("ms"))


if __name__ == "__main__":
    alone(__file__)
