"""EXP2 of Zhu and Wang 2022: daily top-15 states, and a histogram with one gap.

    python benchmarks/exp2.py [--data DIR] [--trials 100] [--plot PATH] [--quick]

States: the cumulative cases by state of The New York Times from 2020-03-12 on, a person being one case of one state.
Four windows of ten days; the ten top-15 queries of a window spend (0.1, 1e-6) together, a tenth of rho and of delta
each. Printed is the mean recall over days and trials. The states are a public list, which the two mechanisms below the
line use; the paper's EM-CDP is `peeling`, and its fill-in of StableTopK knows the list too, where `fixed_stable_top_k`
here is for an unknown domain.

Gap: 15,000 labels of which k have a count of 700 and the others 0; one query of (0.15, 1e-6); recall against k with its
standard deviation over the trials. top_stable has also its own (epsilon, delta), as a single query may. Nothing is said
of what a unit may change, so bounded mechanisms take no part.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

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
    parser,
    peeling,
    terms,
    top_stable,
    tuned,
)
from data_sets import Integers, present
from histograms import WITHOUT_UNITS

from dpsql.accounting import ApproximateDP
from dpsql.quantities import Delta, Epsilon, Rho

DAYS, WINDOWS, STATES = 10, 4, 15
FIRST_DAY = "2020-03-12"
LABELS, HEIGHT = 15_000, 700
KS = (10, 50, 100, 200, 500, 1_000, 1_500)
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


def show_states(days: list[Integers], trials: int) -> None:
    """Print the recall of every mechanism in each window."""
    budget = terms("0.1", "1e-6")
    rho, delta = Rho(budget.rho.value / DAYS), Delta(budget.delta.value / DAYS)
    windows = [days[start : start + DAYS] for start in range(0, len(days), DAYS)]
    print(f"{'mechanism':32}" + "".join(f"  day {DAYS * at + 1:2}-{DAYS * at + DAYS:2}" for at in range(len(windows))))
    for name, mechanism in {**WITHOUT_UNITS, **KNOWN_DOMAIN}.items():
        if name == next(iter(KNOWN_DOMAIN)):
            print("-" * (32 + 11 * len(windows)))
        cells = [
            measured([Question(Sample(day), STATES, rho, delta) for day in window for _ in range(trials)], mechanism)
            for window in windows
        ]
        print(f"{name:32}" + "".join(f"{cell.recall:11.3f}" for cell in cells))


def gap_curves(ks: tuple[int, ...], trials: int) -> Curves:
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


def show_gap(curves: Curves) -> None:
    """Print the curves, with the deviation of a trial behind the stroke."""
    ks = list(next(iter(curves.values())))
    print(f"{'mechanism':34}" + "".join(f"{'k = ' + str(k):>13}" for k in ks))
    for name, curve in curves.items():
        print(f"{name:34}" + "".join(f"{f'{cell.recall:.3f} | {cell.deviation:.2f}':>13}" for cell in curve.values()))


def draw(curves: Curves, path: Path) -> None:
    """Draw the curves with a band of one standard deviation."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(8, 5))
    for name, curve in curves.items():
        means = np.array([cell.recall for cell in curve.values()])
        spread = np.array([cell.deviation for cell in curve.values()])
        axis.plot(list(curve), means, label=name)
        axis.fill_between(list(curve), means - spread, means + spread, alpha=0.2)
    axis.set(xlabel="k", ylabel="recall", ylim=(0, 1.02))
    axis.legend()
    figure.savefig(path, bbox_inches="tight")


def main() -> None:
    """Measure and print."""
    made = parser(__doc__)
    made.set_defaults(trials=100)
    made.add_argument("--plot", type=Path, metavar="PATH")
    chosen = made.parse_args()
    trials = 2 if chosen.quick else chosen.trials
    found = () if chosen.quick else present([chosen.data / "nyt_us_states_2020.parquet"])
    for days in [made_up()] if chosen.quick else map(daily, found):
        print(f"top {STATES} of {len(days[0])} states, ten days for (0.1, 1e-6); {trials} trials\n")
        show_states(days, trials)
    print(f"\nk of {LABELS:,} labels with a count of {HEIGHT}, (0.15, 1e-6); {trials} trials\n")
    curves = gap_curves(KS[:2] if chosen.quick else KS, trials)
    show_gap(curves)
    if chosen.plot:
        draw(curves, chosen.plot)


if __name__ == "__main__":
    main()
