"""What (1, 1e-6) buys: items by certificate, and TOP 10 queries that a session answers on real data.

    python -m benchmarks run certificates [--data DIR] [--queries 2000] [--items 50 100 400] [--asked 0]

Items: the tables of `compare_budgets.py`, all of delta spent on composition, plus the gain of each certificate over
Theorem 2 of Durfee and Rogers; `optimal` counts to 5,000. Sessions: a real session over a ledger in memory asks TOP 10
queries, names only, of one table, each with another WHERE, until `BudgetExceeded`: on MSWeb, areas of one split whose
name contains a letter or two; on Steam, games played for so many hours. The budget is (1, 1e-6), and the default
epsilon is that of so many `--items`. "pay what you get" is what was answered; "charging k" is how many queries of ten
items the same rho covers. delta, spread over `--queries`, is no limit here; `--asked` ends a session after so many. An
answer without labels is an answer too, and costs one item: the labels a query say how much was learnt.
"""

from __future__ import annotations

import itertools
import string
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import accuracy
from compare_budgets import bought, totals
from data_sets import MSWEB, present
from program.main import alone
from program.row import Row

import dpsql
from dpsql.accounting import ApproximateDP, BoundedRange
from dpsql.errors import BudgetExceeded
from dpsql.quantities import Delta, Epsilon
from dpsql.terms import Terms

TOTAL = ApproximateDP(Epsilon(1), Delta("1e-6"))
ITEM_EPSILONS = ["0.005", "0.01", "0.02", "0.05", "0.1", "0.2"]
K = 10
QUICK = {"items": [100], "asked": 20, "item_epsilons": ["0.01", "0.1"], "numbers": [10, 100]}
VISITS = "SELECT area FROM events WHERE split = ? AND area LIKE ? GROUP BY area TOP 10 PRIVATE"
GAMES = "SELECT item_id FROM events WHERE hours >= ? GROUP BY item_id TOP 10 PRIVATE"
Asked = Iterator[tuple[str, list[object]]]


@dataclass(frozen=True, slots=True)
class Tally:
    """What a session answered until its budget was gone."""

    answered: int
    labels: int
    items: int
    charging_k: int
    exhausted: bool


def bought_items(epsilons: Sequence[str], numbers: Sequence[int]) -> Iterator[Row]:
    """Yield what each certificate buys and what a number of items costs."""
    names = ("pure", "theorem2", "zcdp", "optimal")
    counts = {epsilon: asdict(bought(Epsilon(epsilon), total=TOTAL)) for epsilon in epsilons}
    for epsilon, row in counts.items():
        values = {name: row[name] for name in names}
        yield Row("items that (1, 1e-6) buys, by epsilon of an item", epsilon, values, at=float(epsilon))
    for epsilon, row in counts.items():
        gains = {name: row[name] / row["theorem2"] for name in names}
        yield Row("gain over theorem2, by epsilon of an item", epsilon, gains)
    for epsilon, items in itertools.product(("0.01", "0.1"), numbers):
        cost = asdict(totals(items, Epsilon(epsilon), delta=TOTAL.delta))
        title = f"total epsilon at delta {TOTAL.delta}, by epsilon and number of items"
        yield Row(title, f"{epsilon}, {items:,} items", {name: cost[name] for name in (*names, "fixed")})


def visits() -> Asked:
    """Yield questions about areas of the site, each with another WHERE."""
    letters = [*string.ascii_lowercase, *map("".join, itertools.product(string.ascii_lowercase, repeat=2))]
    for part, split in itertools.product(letters, ("train", "test")):
        yield VISITS, [split, f"%{part}%"]


def games() -> Asked:
    """Yield questions about games, each with another WHERE."""
    for tenths in range(10, 10_000, 5):
        yield GAMES, [tenths / 10]


def session_over(source: Path, *, items: int, queries: int, asked: Asked) -> Tally:
    """Ask until the budget is gone, or the questions are."""
    budget = dpsql.Budget("1", "1e-6", items=items, queries=queries)
    policy = dpsql.Policy(budget, {"events": dpsql.PrivateTable("user_id", source=str(source))})
    terms = Terms.of_policy(policy)
    charging_k = terms.budget.rho.value // (K * BoundedRange(terms.epsilon).rho.value)
    answered = labels = charged = 0
    with dpsql.connect(policy=policy, ledger=":memory:") as session:
        for sql, parameters in asked:
            try:
                answer = session.sql(sql, parameters)
            except BudgetExceeded:
                return Tally(answered, labels, charged, int(charging_k), exhausted=True)
            answered, labels = answered + 1, labels + len(answer)
            charged += answer.receipt.items_charged
    return Tally(answered, labels, charged, int(charging_k), exhausted=False)


def sessions(given: Namespace) -> Iterator[Row]:
    """Yield how many queries sessions answer."""
    steam = list(present([given.data / "steam200k_purchases.parquet"]))
    streams = [("msweb", MSWEB, visits), *(("steam", path, games) for path in steam)]
    for (name, source, questions), items in itertools.product(streams, given.items):
        asked = itertools.islice(questions(), given.asked or None)
        tally = session_over(source, items=items, queries=given.queries, asked=asked)
        figures = {
            "pay what you get": tally.answered,
            "charging k": tally.charging_k,
            "ratio": tally.answered / tally.charging_k,
            "labels a query": tally.labels / tally.answered,
            "ended for want of": "budget" if tally.exhausted else "questions",
        }
        yield Row(f"TOP {K} queries answered for (1, 1e-6)", f"{name}, {items:,} items", figures)


def options(parser: ArgumentParser) -> None:
    """Add the items and the queries of a session."""
    accuracy.options(parser, trials=0)
    parser.add_argument("--queries", type=int, default=2_000)
    parser.add_argument("--items", type=int, nargs="+", default=[50, 100, 400])
    parser.add_argument("--item-epsilons", nargs="+", default=ITEM_EPSILONS)
    parser.add_argument("--numbers", type=int, nargs="+", default=[10, 100, 1_000], help="of items, to be told")
    parser.add_argument("--asked", type=int, default=0, help="most queries of a session; 0 for no end")


def run(given: Namespace) -> Iterator[Row]:
    """Compute, and ask."""
    yield from bought_items(given.item_epsilons, given.numbers)
    yield from sessions(given)


if __name__ == "__main__":
    alone(__file__)
