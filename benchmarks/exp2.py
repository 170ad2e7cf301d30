"""EXP2 of Zhu and Wang 2022: daily top-15 states, and a histogram with one gap.

    python -m benchmarks run exp2 [--data DIR] [--trials 100] [--k 10 50 100 200 500 1000 1500]

States: the cumulative cases by state of The New York Times from 2020-03-12 on, a person being one case of one state.
Four windows of ten days; the ten top-15 queries of a window spend (0.1, 1e-6) together, a tenth of rho and of delta
each. Told is the mean recall over days and trials. The states are a public list, which the paper's mechanisms know too:
its EM-CDP is `peeling`, and where its StableTopK and TS find no stable set of k, exponential mechanisms over the list
for half of the budget do the rest ("stable, then EM" and "top_stable, then EM"). `fixed_stable_top_k` is for an unknown
domain.

Gap: 15,000 labels of which k have a count of 700 and the others 0; one query of (0.15, 1e-6); recall against k, and its
standard deviation over the trials. top_stable has also its own (epsilon, delta), as a single query may. Nothing is said
of what a unit may change, so bounded mechanisms take no part.

The last row of a table says whether the order is that of the paper's figure, and why where it is not.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path

import accuracy
import numpy as np
import pyarrow.parquet as pq
from accuracy import (
    K_BAR_PER_K,
    KNOWN_DOMAIN,
    MECHANISMS,
    NOISE,
    Answer,
    Cell,
    Mechanism,
    Question,
    Sample,
    candidates,
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
from dpsql.mechanisms import GapChoice, PTRGaussian, TopStable, distance_regulariser
from dpsql.mechanisms.sampling.race import race
from dpsql.quantities import Delta, Epsilon, Rho

DAYS, WINDOWS, STATES = 10, 4, 15
FIRST_DAY = "2020-03-12"
LABELS, HEIGHT = 15_000, 700
KS = [10, 50, 100, 200, 500, 1_000, 1_500]
QUICK = {"trials": 1, "k": KS[:2]}
GAP_TOTAL = ApproximateDP(Epsilon("0.15"), Delta("1e-6"))
HALF, QUARTER = Fraction(1, 2), Fraction(1, 4)
GAP: Mapping[str, Mechanism] = {
    **{name: MECHANISMS[name] for name in ("limited_domain", "stable_top_k", "fixed_stable_top_k", "top_stable")},
    "top_stable, own (epsilon, delta)": tuned(top_stable, alone=GAP_TOTAL),
    "peeling": peeling,
}
NOISE_OF_RECALL = 0.02
STATES_NOTE = (
    "The order of Figure 1(a), which needs the exponential mechanism that takes over where no gap holds: without it "
    "StableTopK and TS return the leaders up to the widest gap, or nothing."
)
GAP_NOTE = (
    "The order of Figure 1(b), but for TS with its own (epsilon, delta): its threshold grows with ln k alone and its "
    "first test is that of rank k, so it does not fall with k as the paper's does."
)
Curves = dict[str, dict[int, Cell]]


def stable_then_em(question: Question) -> Answer:
    """Answer by Algorithm 3 as the paper has it: what a stable set lacks comes from the public list.

    A quarter of rho proposes a rank near k, a quarter tests its gap, half pays for exponential mechanisms: they fill
    the set up to k, cut it to k, or draw all k where the gap does not hold. All of delta is the test's.
    """
    labels, histogram = candidates(question)
    k, k_bar = question.k, min(K_BAR_PER_K * question.k, len(labels) - 1)
    regulariser = distance_regulariser(k, k_bar, penalty=Fraction(1))
    proposed = GapChoice(question.epsilon(1, QUARTER), k_bar, regulariser).choose(histogram.first(k_bar), NOISE)
    test = PTRGaussian(2 / question.rho.value, question.delta)
    held = test.release(histogram.first(k_bar), proposed, noise=NOISE) is not None
    return completed(question, stable=proposed if held else 0)


def top_stable_then_em(question: Question) -> Answer:
    """Answer by the first stable rank from k down, for half of rho, and fill it up from the public list."""
    _, histogram = candidates(question)
    mechanism = TopStable(question.epsilon(4, HALF), question.delta, question.k, question.k)
    selection = mechanism.select(histogram.first(question.k), NOISE)
    return completed(question, stable=len(selection.members))


def completed(question: Question, *, stable: int) -> Answer:
    """Return k labels, the first `stable` of them known to be stable, by exponential mechanisms for half of rho."""
    labels, histogram = candidates(question)
    counts, k = histogram.leaders, question.k
    if stable <= k:
        steps = k - stable
        epsilon = question.epsilon(max(steps, 1), HALF).value
        drawn = race(counts[stable:], None, epsilon=epsilon, steps=steps, noise=NOISE) if steps else []
        return labels[[*range(stable), *(stable + at for at in drawn)]]
    drops = stable - k < k
    steps = stable - k if drops else k
    scores = [-count if drops else count for count in counts[:stable]]
    drawn = race(scores, None, epsilon=question.epsilon(steps, HALF).value, steps=steps, noise=NOISE)
    return labels[sorted({*range(stable)} - {*drawn}) if drops else list(drawn)]


FALLBACKS: Mapping[str, Mechanism] = {
    "stable, then EM": stable_then_em,
    "top_stable, then EM": top_stable_then_em,
}


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


def shape(upper: Iterable[Mapping[str, float]], lower: Iterable[Mapping[str, float]], *, at: str) -> str:
    """Return whether all of `upper` have at least the recall of all of `lower`, but for noise."""
    return "yes" if min(row[at] for row in upper) > max(row[at] for row in lower) - NOISE_OF_RECALL else "no"


def states(days: list[Integers], trials: int) -> Iterator[Row]:
    """Yield the recall of every mechanism in each window."""
    budget = terms("0.1", "1e-6")
    rho, delta = Rho(budget.rho.value / DAYS), Delta(budget.delta.value / DAYS)
    windows = [days[start : start + DAYS] for start in range(0, len(days), DAYS)]
    found: dict[str, dict[str, float]] = {}
    title = f"top {STATES} of {len(days[0])} states, ten days for (0.1, 1e-6): recall"
    for name, mechanism in {**WITHOUT_UNITS, **KNOWN_DOMAIN, **FALLBACKS}.items():
        cells = [
            measured([Question(Sample(day), STATES, rho, delta) for day in window for _ in range(trials)], mechanism)
            for window in windows
        ]
        spans = [f"day {DAYS * at + 1}-{DAYS * at + DAYS}" for at in range(len(windows))]
        found[name] = dict(zip(spans, (cell.recall for cell in cells), strict=True))
        yield Row(title, name, found[name])
    first, below, last = [found["peeling"]], [found[name] for name in FALLBACKS], [found["limited_domain"]]
    values = {span: shape(first, below, at=span) + "; " + shape(below, last, at=span) for span in found["peeling"]}
    yield Row(title, "paper: EM, then StableTopK and TS; then LD", values, note=STATES_NOTE)


def gap_curves(ks: list[int], trials: int) -> Curves:
    """Return recall against k on the histogram with one gap."""
    budget = terms("0.15", "1e-6")
    mechanisms = {**GAP, **FALLBACKS}
    curves: Curves = {name: {} for name in mechanisms}
    for k in ks:
        counts = np.zeros(LABELS, dtype=np.int64)
        counts[:k] = HEIGHT
        questions = [Question(Sample(counts), k, budget.rho, budget.delta)] * trials
        for name, mechanism in mechanisms.items():
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
        if what == "recall":
            recalls = {name: {str(k): cell.recall for k, cell in curve.items()} for name, curve in curves.items()}
            upper, lower = [recalls["stable, then EM"]], [recalls["peeling"], recalls["top_stable, then EM"]]
            values = {f"k = {k}": shape(upper, lower, at=str(k)) for k in given.k}
            yield Row(title, "paper: StableTopK, then EM and TS", values, note=GAP_NOTE)


if __name__ == "__main__":
    alone(__file__)
