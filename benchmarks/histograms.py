"""Recall and error on published histograms, known and unknown domain.

    python benchmarks/histograms.py [--data DIR] [--trials 25] [--epsilon 1 0.1] [--k 5 10 20 50 100]
                                    [--plot PATH] [--quick]

NETFLIX, SEARCHLOGS, PATENT and HEPTH are counts without units, published with the private top-k literature; they are
read from `histograms/` in the `--data` folder. Printed are mean recall and, behind the stroke, the share of the true
top k's counts that the answer misses, for one query that spends (epsilon, 1e-6). Bounds and weights cannot be drawn
without units, so what bounds or weighs is shown under the assumption that every unit is in one group: with the bound 1,
and with the mechanism's own cap on weights, which then cuts nothing. The others hold without it, and so does AUTO where
it chooses one of them. Below the line the labels are a public list, over which AUTO is `peeling`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from accuracy import KNOWN_DOMAIN, MECHANISMS, Cell, Mechanism, Question, Sample, measured, parser, terms
from data_sets import HISTOGRAMS, Integers, present

SHOWN = ("weighted_gaussian most=100", "domain_discovery most=100")  # with the cap that they set themselves
WITHOUT_UNITS: Mapping[str, Mechanism] = {
    name: mechanism
    for name, mechanism in MECHANISMS.items()
    if "most=" not in name or name.endswith(" most=1") or name in SHOWN
}
Table = dict[str, dict[int, Cell]]


def histograms(folder: Path, *, quick: bool) -> Iterator[tuple[str, Integers]]:
    """Yield names and counts; when quick a generated one only."""
    if quick:
        yield "tiny", (2_000 / np.arange(1, 301)).astype(np.int64)
        return
    for path in present(folder / "histograms" / f"{name}.npy" for name in HISTOGRAMS):
        yield path.stem, np.load(path).astype(np.int64)


def measure(counts: Integers, ks: list[int], *, epsilon: str, trials: int) -> Table:
    """Return the cells of one histogram and total."""
    budget = terms(epsilon, "1e-6")
    questions = {k: [Question(Sample(counts), k, budget.rho, budget.delta)] * trials for k in ks}
    mechanisms = {**WITHOUT_UNITS, **KNOWN_DOMAIN}
    return {name: {k: measured(questions[k], each) for k in ks} for name, each in mechanisms.items()}


def show(table: Table, ks: list[int]) -> None:
    """Print the cells of one histogram and total."""
    print(f"{'mechanism':32}" + "".join(f"{'k = ' + str(k):>15}" for k in ks))
    for name, row in table.items():
        if name == next(iter(KNOWN_DOMAIN)):
            print("-" * (32 + 15 * len(ks)))
        print(f"{name:32}" + "".join(f"{f'{cell.recall:.3f} | {cell.missed:.3f}':>15}" for cell in row.values()))


def draw(tables: Mapping[str, Table], path: Path) -> None:
    """Draw recall against k, a panel for each histogram and total."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(len(tables), 1, figsize=(8, 4 * len(tables)), squeeze=False)
    for axis, (title, table) in zip(axes[:, 0], tables.items(), strict=True):
        for name, row in table.items():
            axis.plot(list(row), [cell.recall for cell in row.values()], label=name)
        axis.set(title=title, xlabel="k", ylabel="recall", ylim=(0, 1.02))
    axes[0, 0].legend(fontsize=6)
    figure.savefig(path, bbox_inches="tight")


def arguments() -> argparse.Namespace:
    """Read the command line."""
    made = parser(__doc__)
    made.add_argument("--epsilon", nargs="+", default=["1", "0.1"])
    made.add_argument("--k", type=int, nargs="+", default=[5, 10, 20, 50, 100])
    made.add_argument("--plot", type=Path, metavar="PATH")
    return made.parse_args()


def main() -> None:
    """Measure and print."""
    chosen = arguments()
    tables: dict[str, Table] = {}
    for name, counts in histograms(chosen.data, quick=chosen.quick):
        print(f"\n{name}: {np.count_nonzero(counts):,} labels with a count, of {len(counts):,}")
        for epsilon in chosen.epsilon:
            print(f"\nepsilon = {epsilon}, delta = 1e-6")
            table = measure(counts, chosen.k, epsilon=epsilon, trials=2 if chosen.quick else chosen.trials)
            show(table, chosen.k)
            tables[f"{name}, epsilon {epsilon}"] = table
    if chosen.plot and tables:
        draw(tables, chosen.plot)


if __name__ == "__main__":
    main()
