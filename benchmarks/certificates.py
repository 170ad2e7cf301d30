"""What (1, 1e-6) buys: items by certificate, and TOP 10 queries that a session answers on real data.

    python benchmarks/certificates.py [--data DIR] [--queries 2000] [--items 50 100 400] [--plot PATH] [--quick]

Items: the tables of `dpsql compare-budgets`, all of delta spent on composition, plus the gain of each certificate over
Theorem 2 of Durfee and Rogers; `optimal` counts to 5,000. Sessions: a real session over a ledger in memory asks TOP 10
queries, names only, of one table, each with another WHERE, until `BudgetExceeded`: on MSWeb, areas of one split whose
name contains a letter or two; on Steam, games played for so many hours. The budget is (1, 1e-6), and the default
epsilon is that of so many `--items`. "pay what you get" is what was answered; "charging k" is how many queries of ten
items the same rho covers. delta, spread over `--queries`, is no limit here. An answer without labels is an answer too,
and costs one item: the labels a query say how much was learnt.
"""

from __future__ import annotations

import argparse
import itertools
import string
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from accuracy import parser
from data_sets import MSWEB, present

import dpsql
from dpsql.accounting import ApproximateDP, BoundedRange
from dpsql.accounting.comparison import bought, totals
from dpsql.errors import BudgetExceeded
from dpsql.plan.terms import Terms
from dpsql.quantities import Delta, Epsilon

TOTAL = ApproximateDP(Epsilon(1), Delta("1e-6"))
ITEM_EPSILONS = ("0.005", "0.01", "0.02", "0.05", "0.1", "0.2")
K = 10
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


def show_items() -> None:
    """Print what each certificate buys and what a number of items costs."""
    print("items that (1, 1e-6) buys, all of delta for composition; behind the stroke the gain over theorem2\n")
    print(f"{'item epsilon':>12}{'pure':>15}{'theorem2':>15}{'zcdp':>15}{'optimal':>15}")
    for epsilon in ITEM_EPSILONS:
        row = asdict(bought(Epsilon(epsilon), total=TOTAL))
        counts = [row[name] for name in ("pure", "theorem2", "zcdp", "optimal")]
        cells = [f"{count:,} | {count / row['theorem2']:.2f}" for count in counts]
        print(f"{epsilon:>12}" + "".join(f"{cell:>15}" for cell in cells))
    print("\ntotal epsilon of a number of items at delta 1e-6\n")
    names = ("pure", "theorem2", "zcdp", "optimal", "fixed")
    print(f"{'item epsilon':>12}{'items':>7}" + "".join(f"{name:>11}" for name in names))
    for epsilon, items in itertools.product(("0.01", "0.1"), (10, 100, 1_000)):
        cost = asdict(totals(items, Epsilon(epsilon), delta=TOTAL.delta))
        print(f"{epsilon:>12}{items:7,}" + "".join(f"{cost[name]:11.5f}" for name in names))


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


def show_sessions(chosen: argparse.Namespace) -> None:
    """Print how many queries sessions answer."""
    steam = list(present([chosen.data / "steam200k_purchases.parquet"]))
    streams = [("msweb", MSWEB, visits), *(("steam", path, games) for path in steam)]
    print(f"\nTOP {K} queries answered for (1, 1e-6) until the budget is gone\n")
    print(f"{'data':8}{'items':>7}{'pay what you get':>18}{'charging k':>12}{'ratio':>7}{'labels a query':>16}")
    for (name, source, questions), items in itertools.product(streams, chosen.items):
        asked = questions()
        if chosen.quick:
            asked = itertools.islice(asked, 20)
        tally = session_over(source, items=items, queries=chosen.queries, asked=asked)
        ratio, each = tally.answered / tally.charging_k, tally.labels / tally.answered
        note = "" if tally.exhausted else "  (out of questions, not of budget)"
        print(f"{name:8}{items:7,}{tally.answered:18,}{tally.charging_k:12,}{ratio:7.2f}{each:16.2f}{note}")


def draw(path: Path) -> None:
    """Draw the items that each certificate buys against an item's epsilon."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    rows = [asdict(bought(Epsilon(epsilon), total=TOTAL)) for epsilon in ITEM_EPSILONS]
    figure, axis = plt.subplots(figsize=(7, 5))
    for name in ("pure", "theorem2", "zcdp", "optimal"):
        axis.loglog([row["epsilon"] for row in rows], [row[name] for row in rows], marker="o", label=name)
    axis.set(xlabel="epsilon of an item", ylabel="items for (1, 1e-6)")
    axis.legend()
    figure.savefig(path, bbox_inches="tight")


def main() -> None:
    """Compute, ask and print."""
    made = parser(__doc__)
    made.add_argument("--queries", type=int, default=2_000)
    made.add_argument("--items", type=int, nargs="+", default=[50, 100, 400])
    made.add_argument("--plot", type=Path, metavar="PATH")
    chosen = made.parse_args()
    show_items()
    sys.stdout.flush()
    show_sessions(chosen)
    if chosen.plot:
        draw(chosen.plot)


if __name__ == "__main__":
    main()
