"""EXP2 of Zhu and Wang 2022: daily top-15 states, and a histogram with one gap.

    python -m benchmarks run exp2 [--data DIR] [--trials 100] [--k 10 50 100 200 500 1000 1500]

States: the cumulative cases by state of The New York Times from 2020-03-12 on, a person being one case of one state.
Four windows of ten days; the ten top-15 queries of a window spend (0.1, 1e-6) together, a tenth of rho and of delta
each. Told is the mean recall over days and trials. The states are a public list, which the last two mechanisms use; the
paper's EM-CDP is `peeling`, and its fill-in of StableTopK knows the list too, where `fixed_stable_top_k` here is for an
unknown domain.

Gap: 15,000 labels of which k have a count of 700 and the others 0; one query of (0.15, 1e-6); recall against k, and its
standard deviation over the trials. top_stable has also its own (epsilon, delta), as a single query may. Nothing is said
of what a unit may change, so bounded mechanisms take no part.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path

import accuracy
import numpy as np
import pyarrow.parquet as pq
from accuracy import (
    KNOWN_DOMAIN,
    MECHANISMS,
    Cell,
    Mechanism,
    Question,
    Sample,
    measured,
    peeling,
    terms,
    top_stable,
    tuned,
)
from data_sets import Integers, present
from histograms import WITHOUT_UNITS
from program.main import alone
from program.row import Row

from dpsql.accounting import ApproximateDP
from dpsql.quantities import Delta, Epsilon, Rho

DAYS, WINDOWS, STATES = 10, 4, 15
FIRST_DAY = "2020-03-12"
LABELS, HEIGHT = 15_000, 700
KS = [10, 50, 100, 200, 500, 1_000, 1_500]
QUICK = {"trials": 2, "k": KS[:2]}
GAP_TOTAL = ApproximateDP(Epsilon("0.15"), Delta("1e-6"))
GAP: Mapping[str, Mechanism] = {
    **{name: MECHANISMS[name] for name in ("limited_domain", "stable_top_k", "fixed_stable_top_k", "top_stable")},
    "top_stable, own (epsilon, delta)": tuned(top_stable, alone=GAP_TOTAL),
    "peeling": peeling,
}
Curves = dict[str, dict[int, Cell]]


def daily(path: Path) -> list[Integers]:
    """Return the cases of all states on each day of all windows."""
    table = pq.read_table(path, columns=["date", "state", "cases"]).to_pylist()
    states = {state: at for at, state in enumerate(sorted({row["state"] for row in table}))}
    days = sorted({row["date"] for row in table if row["date"] >= FIRST_DAY})[: DAYS * WINDOWS]
    cases = {day: np.zeros(len(states), dtype=np.int64) for day in days}
    for row in table:
        if row["date"] in cases:
            cases[row["date"]][states[row["state"]]] = row["cases"]
    return list(cases.values())


def made_up() -> list[Integers]:
    """Return days of 55 states whose cases double every three days."""
    return [(2.0 ** (day / 3) * 2_000 / np.arange(1, 56)).astype(np.int64) for day in range(DAYS * WINDOWS)]


def states(days: list[Integers], trials: int) -> Iterator[Row]:
    """Yield the recall of every mechanism in each window."""
    budget = terms("0.1", "1e-6")
    rho, delta = Rho(budget.rho.value / DAYS), Delta(budget.delta.value / DAYS)
    windows = [days[start : start + DAYS] for start in range(0, len(days), DAYS)]
    title = f"top {STATES} of {len(days[0])} states, ten days for (0.1, 1e-6): recall"
    for name, mechanism in {**WITHOUT_UNITS, **KNOWN_DOMAIN}.items():
        cells = [
            measured([Question(Sample(day), STATES, rho, delta) for day in window for _ in range(trials)], mechanism)
            for window in windows
        ]
        spans = [f"day {DAYS * at + 1}-{DAYS * at + DAYS}" for at in range(len(windows))]
        yield Row(title, name, dict(zip(spans, (cell.recall for cell in cells), strict=True)))


def gap_curves(ks: list[int], trials: int) -> Curves:
    """Return recall against k on the histogram with one gap."""
    budget = terms("0.15", "1e-6")
    curves: Curves = {name: {} for name in GAP}
    for k in ks:
        counts = np.zeros(LABELS, dtype=np.int64)
        counts[:k] = HEIGHT
        questions = [Question(Sample(counts), k, budget.rho, budget.delta)] * trials
        for name, mechanism in GAP.items():
            curves[name][k] = measured(questions, mechanism)
    return curves


def options(parser: ArgumentParser) -> None:
    """Add trials and k."""
    accuracy.options(parser, trials=100)
    parser.add_argument("--k", type=int, nargs="+", default=KS)


def run(given: Namespace) -> Iterator[Row]:
    """Measure the states, and the histogram with one gap."""
    found = () if given.quick else present([given.data / "nyt_us_states_2020.parquet"])
    for days in [made_up()] if given.quick else map(daily, found):
        yield from states(days, given.trials)
    curves = gap_curves(given.k, given.trials)
    for what in ("recall", "deviation"):
        title = f"k of {LABELS:,} labels with a count of {HEIGHT}, (0.15, 1e-6): {what}"
        for name, curve in curves.items():
            yield Row(title, name, {f"k = {k}": getattr(cell, what) for k, cell in curve.items()})


if __name__ == "__main__":
    alone(__file__)
