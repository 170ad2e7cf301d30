"""Items that a dashboard is charged where answers follow from stored ones, and where none does, in many orders.

    python -m benchmarks run reuse [--orders 25] [--quick]

The tiles are those of `examples/10_eight_tiles.py`, over the data that it uses. Two lists of questions are run: the
eight tiles alone, and with them what people ask beside them: fewer and more rows of the rankings, the number of all
visitors, and that of one area. Each order is drawn at random, and starts with an empty ledger: once as if every query
had `reuse = false`, and once as written. The budget is large enough for all of them. What an order is charged depends
on the noise, too.
"""

from __future__ import annotations

import random
import re
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from importlib.resources import files
from pathlib import Path
from statistics import mean
from unittest.mock import patch

from program.main import alone
from program.row import Row

import dpsql
from dpsql.plan import Plan

QUICK = {"orders": 2}
SEED = 7
TILES = Path(__file__).parents[1] / "examples" / "eight_tiles.sql"
RANKED = "SELECT area, COUNT(DISTINCT user_id) AS visitors FROM visits{} GROUP BY area TOP {} PRIVATE"
TOTAL = "SELECT COUNT(DISTINCT user_id) AS visitors FROM visits{} PRIVATE"
TEST = " WHERE split = 'test'"
BESIDE = (
    *(RANKED.format("", k) for k in (3, 5, 12)),
    *(RANKED.format(TEST, k) for k in (3, 12)),
    TOTAL.format(""),
    TOTAL.format(TEST),
    TOTAL.format(" WHERE area = '/ie'"),
    TOTAL.format(" WHERE area = '/search'"),
)


def options(parser: ArgumentParser) -> None:
    """Add the number of orders."""
    parser.add_argument("--orders", type=int, default=25)


def run(given: Namespace) -> Iterator[Row]:
    """Ask both lists in random orders, without reuse and with it."""
    tiles = re.findall(r"^-- [\w ]+: .*\n([^;]+);", TILES.read_text(), re.MULTILINE)
    for title, texts in (("eight tiles", tiles), ("eight tiles, and nine questions beside them", [*tiles, *BESIDE])):
        draw = random.Random(SEED)  # noqa: S311 - an order of questions
        orders = [draw.sample(texts, len(texts)) for _ in range(given.orders)]
        for name, is_reused in (("reuse = false", False), ("as written", True)):
            found = [_ask(order, is_reused=is_reused) for order in orders]
            items, free = zip(*found, strict=True)
            yield Row(
                f"{title}, {given.orders} orders",
                name,
                {
                    "items charged, mean": mean(items),
                    "least": min(items),
                    "most": max(items),
                    "answers from others, mean": mean(free),
                },
            )


def _ask(texts: Sequence[str], *, is_reused: bool) -> tuple[int, int]:
    """Return the items that the questions were charged in an order, and how many answers followed from others."""
    with tempfile.TemporaryDirectory() as folder:
        policy = Path(folder) / "policy.toml"
        policy.write_text(
            f'ledger = "ledger.sqlite"\n[sql]\nimplicit = true\n[budget]\nepsilon = 3.0\ndelta = 1e-6\nitems = 400\n'
            f'queries = 40\n[tables.visits]\nprivacy_unit = "user_id"\n'
            f'source = "{files("dpsql.cli") / "data" / "msweb.parquet"}"\n[tables.visits.bounds]\nrows = 20\n'
        )
        way = nullcontext() if is_reused else patch.object(Plan, "reuses", new=False)
        with dpsql.connect(policy=policy) as session, way:
            receipts = [session.sql(text).receipt for text in texts]
    return sum(receipt.items_charged for receipt in receipts), sum(bool(receipt.reused) for receipt in receipts)


if __name__ == "__main__":
    alone(__file__)
