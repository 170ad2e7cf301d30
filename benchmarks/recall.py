"""Recall of every mechanism, data set, k and total, for one query that spends the whole total.

    python benchmarks/recall.py [--data DIR] [--trials 100] [--epsilon 1 0.1] [--k 5 10 50 100] [--only NAME ...]
                                    [--gaps MECHANISM] [--json PATH] [--plot PATH] [--quick]

For each data set and total a table of mean recall, with the mean number of labels returned behind the stroke; then, for
each mechanism, in which share of the cells it is within 0.03 of the best of all, what it loses to the best on average,
and where it is furthest behind; then every cell where one mechanism, AUTO unless `--gaps` names another, is further
behind than that. AUTO is what dpsql's planner chooses from public numbers, the population among them, and without that
("AUTO untold"); AUTO under a bound that a policy sets is compared with what keeps to the same bound. What such a choice
could reach at best is printed too: the share of the rule that takes one mechanism for each k and epsilon, and knows all
these cells. Half of delta = 1e-6 pays for the conversion to rho, half is the query's (`dpsql.plan.terms.budget_of`).
Over the data sets whose labels are a public list anyway the mechanisms of a known domain are shown too, below a line;
they do not compete. `--json` writes a line for every cell, `--plot` draws recall against k.

The best of all is the best in the same trials, and of so many some are always lucky: with few trials every choice looks
further behind than it is. With 100 the standard error of a mean is 0.01 where the recall of a trial deviates by 0.1,
and in few cells it is 0.02.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from accuracy import (
    KNOWN_DOMAIN,
    MECHANISMS,
    PUBLIC_DOMAINS,
    Cell,
    Question,
    Sample,
    measured,
    parser,
    rivals,
    terms,
)
from data_sets import Log, logs

DELTA = "1e-6"
WITHIN = 0.03
HOPELESS = 0.1  # where the best is below it, all are alike


@dataclass(frozen=True, slots=True)
class Place:
    """Where a cell stands: data, k and the epsilon of the total."""

    data: str
    k: int
    epsilon: str


Table = dict[Place, dict[str, Cell]]


def cells(log: Log, ks: Iterable[int], *, epsilon: str, trials: int) -> Table:
    """Return the cells of one data set and total; a k that all labels would fill has none."""
    budget, counts = terms(epsilon, DELTA), log.counts
    mechanisms = {**MECHANISMS, **(KNOWN_DOMAIN if log.name in PUBLIC_DOMAINS else {})}
    samples = [Sample(counts, log) for _ in range(trials)]
    return {
        Place(log.name, k, epsilon): {
            name: measured([Question(sample, k, budget.rho, budget.delta) for sample in samples], mechanism)
            for name, mechanism in mechanisms.items()
        }
        for k in ks
        if k < log.size
    }


def show(table: Table) -> None:
    """Print the cells of one data set and total."""
    ks = [place.k for place in table]
    print(f"{'mechanism':34}" + "".join(f"{'k = ' + str(k):>15}" for k in ks))
    names = dict.fromkeys(name for column in table.values() for name in column)
    for name in names:
        if name == next(iter(KNOWN_DOMAIN)):
            print("-" * (34 + 15 * len(ks)))
        row = [f"{column[name].recall:.3f} |{column[name].returned:6.1f}" for column in table.values()]
        print(f"{name:34}" + "".join(f"{cell:>15}" for cell in row))


def lines(table: Table) -> Iterable[str]:
    """Yield a line of JSON for each cell."""
    for place, column in table.items():
        for name, cell in column.items():
            mechanism, *parameters = name.split()
            yield json.dumps(
                {
                    "data": place.data,
                    "k": place.k,
                    "epsilon": float(place.epsilon),
                    "mechanism": mechanism,
                    "parameters": " ".join(parameters),
                    "recall": round(cell.recall, 4),
                    "deviation": round(cell.deviation, 4),
                    "returned": round(cell.returned, 2),
                }
            )


def show_ranks(table: Mapping[Place, Mapping[str, Cell]]) -> None:
    """Print how often each mechanism is as good as the best, its mean loss, and where it is furthest behind."""
    best = {place: max(column[name].recall for name in MECHANISMS) for place, column in table.items()}
    hoped = [place for place in table if best[place] >= HOPELESS]
    print(f"\nwithin {WITHIN} recall of the best, of {len(table)} cells, and of {len(hoped)} where the best has 0.1;")
    print("mean loss of recall to the best over all cells")
    for name in MECHANISMS:
        losses = {place: _loss(column, name) for place, column in table.items()}
        all_cells, some = (_share(losses, among) for among in (list(table), hoped))
        worst = max(losses, key=lambda place: losses[place])
        print(
            f"{name:34}{all_cells:7.1%}{some:8.1%}{sum(losses.values()) / len(losses):8.3f}   worst: "
            f"-{losses[worst]:.2f} ({worst.data}, k = {worst.k}, epsilon {worst.epsilon})"
        )
    print(f"{'by k and epsilon, in hindsight':34}{hindsight(table):7.1%}")


def hindsight(table: Mapping[Place, Mapping[str, Cell]]) -> float:
    """Return in which share of the cells the best rule that looks at k and epsilon alone is within of the best."""
    within = 0
    for asked in {(place.k, place.epsilon) for place in table}:
        columns = [column for place, column in table.items() if (place.k, place.epsilon) == asked]
        within += max(sum(_loss(column, name) <= WITHIN for column in columns) for name in rivals("AUTO"))
    return within / len(table)


def show_gaps(table: Mapping[Place, Mapping[str, Cell]], name: str) -> None:
    """Print every cell in which a mechanism is more than WITHIN behind the best."""
    print(f"\nwhere {name} is more than {WITHIN} behind:")
    for place, column in table.items():
        if _loss(column, name) > WITHIN:
            best = _best(column, name)
            print(
                f"  {place.data}, k = {place.k}, epsilon {place.epsilon}: {column[name].recall:.3f} against "
                f"{column[best].recall:.3f} of {best}"
            )


def _best(column: Mapping[str, Cell], name: str) -> str:
    return max(rivals(name), key=lambda each: column[each].recall)


def _loss(column: Mapping[str, Cell], name: str) -> float:
    return max(0.0, column[_best(column, name)].recall - column[name].recall)


def _share(losses: Mapping[Place, float], among: Sequence[Place]) -> float:
    return sum(losses[place] <= WITHIN for place in among) / max(1, len(among))


def draw(table: Table, path: Path) -> None:
    """Draw recall against k, a panel for each data set and total."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    panels = list(dict.fromkeys((place.data, place.epsilon) for place in table))
    figure, axes = plt.subplots(len(panels), 1, figsize=(8, 4 * len(panels)), squeeze=False)
    for axis, panel in zip(axes[:, 0], panels, strict=True):
        places = [place for place in table if (place.data, place.epsilon) == panel]
        for name in table[places[0]]:
            axis.plot([place.k for place in places], [table[place][name].recall for place in places], label=name)
        axis.set(title=f"{panel[0]}, epsilon {panel[1]}", xlabel="k", ylabel="recall", ylim=(0, 1.02))
    axes[0, 0].legend(fontsize=5)
    figure.savefig(path, bbox_inches="tight")


def arguments() -> argparse.Namespace:
    """Read the command line."""
    made = parser(__doc__)
    made.add_argument("--epsilon", nargs="+", default=["1", "0.1"])
    made.add_argument("--k", type=int, nargs="+", default=[5, 10, 50, 100])
    made.add_argument("--only", nargs="+", metavar="NAME", help="data sets to take")
    made.add_argument("--gaps", metavar="MECHANISM", default="AUTO", choices=MECHANISMS, help="whose gaps to list")
    made.add_argument("--json", type=Path, metavar="PATH")
    made.add_argument("--plot", type=Path, metavar="PATH")
    made.set_defaults(trials=100)
    return made.parse_args()


def main() -> None:
    """Measure and print."""
    chosen = arguments()
    trials = 2 if chosen.quick else chosen.trials
    table: Table = {}
    for log in logs(chosen.data, quick=chosen.quick):
        if chosen.only and log.name not in chosen.only:
            continue
        print(f"\n{log.name}: {log.population:,} units, {log.size:,} labels, {len(log.units):,} pairs; {trials} trials")
        for epsilon in chosen.epsilon:
            print(f"\nepsilon = {epsilon}, delta = {DELTA}")
            part = cells(log, chosen.k, epsilon=epsilon, trials=trials)
            show(part)
            table |= part
    if table:
        show_ranks(table)
        show_gaps(table, chosen.gaps)
    if chosen.json:
        chosen.json.write_text("".join(f"{line}\n" for line in lines(table)))
    if chosen.plot and table:
        draw(table, chosen.plot)


if __name__ == "__main__":
    main()
