"""Recall and error on published histograms, known and unknown domain.

    python -m benchmarks run histograms [--data DIR] [--trials 25] [--epsilon 1 0.1] [--k 5 10 20 50 100]

NETFLIX, SEARCHLOGS, PATENT and HEPTH are counts without units, published with the private top-k literature; they are
read from `histograms/` in the `--data` folder. Told are mean recall and, below, the share of the true top k's counts
that the answer misses, for one query that spends (epsilon, 1e-6). Bounds and weights cannot be drawn without units, so
what bounds or weighs is shown under the assumption that every unit is in one group: with the bound 1, and with the
mechanism's own cap on weights, which then cuts nothing. The others hold without it, and so does AUTO where it chooses
one of them. In the last rows the labels are a public list, over which AUTO is `peeling`.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path

import accuracy
import numpy as np
from accuracy import KNOWN_DOMAIN, MECHANISMS, Cell, Mechanism, Question, Sample, measured, terms
from data_sets import HISTOGRAMS, Integers, present
from program.main import alone
from program.row import Row

QUICK = {"trials": 2}
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


def options(parser: ArgumentParser) -> None:
    """Add totals and k."""
    accuracy.options(parser, trials=25)
    parser.add_argument("--epsilon", nargs="+", default=["1", "0.1"])
    parser.add_argument("--k", type=int, nargs="+", default=[5, 10, 20, 50, 100])


def run(given: Namespace) -> Iterator[Row]:
    """Measure each histogram and total."""
    for name, counts in histograms(given.data, quick=given.quick):
        for epsilon in given.epsilon:
            table = measure(counts, given.k, epsilon=epsilon, trials=given.trials)
            for what in ("recall", "missed"):
                title = f"{name}, {np.count_nonzero(counts):,} of {len(counts):,} labels, epsilon {epsilon}: {what}"
                for mechanism, row in table.items():
                    yield Row(title, mechanism, {f"k = {k}": getattr(cell, what) for k, cell in row.items()})


if __name__ == "__main__":
    alone(__file__)
