"""Suggested bounds: the error of a sum with a suggested bound, as a multiple of that with the best one.

    python -m benchmarks run bounds [--users 5000 20000 200000] [--epsilon 0.05]

Users' totals follow laws of known shape. The error of SUM with the bound U is the root of the squares of what is cut
off and of the noise, 2 U / epsilon of an item. What a suggestion comes to is computed from the exact law of the draw
and not sampled: quantiles of the multiple over all answers, how often the bound is above all users by a quarter, and
how often nothing is said. The rank and the tilt were chosen on the first laws; the others judge them. Beside it are a
fixed quantile, which is right for one number of users alone and the exact rank. In ten
groups of one law there is one bound for all, against the best common one.
"""

from __future__ import annotations

import math
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import numpy.typing as npt
from program.main import alone
from program.row import Row

from dpsql.mechanisms.quantiles import RankFromTop
from dpsql.quantities import Epsilon
from dpsql.suggested_bounds import ENDS

Floats = npt.NDArray[np.float64]
Law = Callable[[np.random.Generator, int], Floats]
QUICK = {"users": [2_000]}
GROUPS = 10
CHOSEN_ON: Mapping[str, Law] = {
    "lognormal(2, 1.5)": lambda random, n: random.lognormal(2, 1.5, n),
    "Pareto(2.2)": lambda random, n: 10 * (random.pareto(2.2, n) + 1),
    "exponential": lambda random, n: random.exponential(100, n),
    "Zipf(1.7)": lambda random, n: np.minimum(random.zipf(1.7, n), 10**6).astype(float),
}
JUDGED_ON: Mapping[str, Law] = {
    "normal(500, 100)": lambda random, n: np.abs(random.normal(500, 100, n)),
    "gamma(0.5)": lambda random, n: random.gamma(0.5, 20, n),
    "one in 50 is 100 times as large": lambda random, n: random.exponential(10 * 100.0 ** random.binomial(1, 0.02, n)),
    "uniform": lambda random, n: random.uniform(0, 60, n),
    "Weibull(0.6)": lambda random, n: 30 * random.weibull(0.6, n),
    "lognormal(4, 0.8)": lambda random, n: random.lognormal(4, 0.8, n),
}


def options(parser: ArgumentParser) -> None:
    """Add the sizes."""
    parser.add_argument("--users", type=int, nargs="+", default=[5_000, 20_000, 200_000])
    parser.add_argument("--epsilon", type=float, default=0.05)


def run(given: Namespace) -> Iterator[Row]:
    """Judge the bounds of each law and size."""
    mechanism = _mechanism(given.epsilon)
    for title, laws in (("laws it was chosen on", CHOSEN_ON), ("laws that judge it", JUDGED_ON)):
        for name, law in laws.items():
            for users in given.users:
                totals = law(np.random.Generator(np.random.PCG64(users)), users)
                yield Row(f"RMSE of SUM over the best, {title}", f"{name}, {users:,} users", judge(mechanism, totals))
    grouped = _mechanism(given.epsilon, groups=GROUPS)
    for name, law in {**CHOSEN_ON, **JUDGED_ON}.items():
        for users in given.users:
            random = np.random.Generator(np.random.PCG64(users))
            totals = np.concatenate([law(random, users // GROUPS) for _ in range(GROUPS)])
            yield Row(
                f"the same in {GROUPS} groups, over the best common bound",
                f"{name}, {users:,} users",
                judge(grouped, totals, groups=GROUPS),
            )


def _mechanism(item: float, *, groups: int = 1) -> RankFromTop:
    epsilon = Epsilon(str(item))
    return RankFromTop.for_sums(Epsilon(4 * epsilon.value), bins=len(ENDS) + 2, item=epsilon, groups=groups)


def judge(mechanism: RankFromTop, totals: Floats, *, groups: int = 1) -> dict[str, float]:
    """Return what a suggestion for these totals comes to, and what other choices do."""
    ends = np.array([0, *ENDS]) / 1000
    item = float(mechanism.epsilon) / 4
    parts = np.split(totals[: len(totals) // groups * groups], groups)

    def error(bound: float) -> float:
        squares = [np.maximum(part - bound, 0).sum() ** 2 + (2 * bound / item) ** 2 for part in parts]
        return math.sqrt(float(np.mean(squares)))

    descending = np.sort(totals)[::-1]
    places = np.unique(np.geomspace(1, len(totals) * 0.9, 200).astype(int)) - 1
    best = min(map(error, descending[places]))
    counts = np.bincount(np.searchsorted(ends, totals), minlength=mechanism.bins).tolist()
    weights = _draw_probabilities(mechanism, counts)
    multiples = np.array([error(end) / best for end in ends])
    order, shares = np.argsort(multiples), weights[: len(ends)] / weights[: len(ends)].sum()
    reached = np.cumsum(shares[order])
    quantiles = {f"{level:.0%}": float(multiples[order][np.searchsorted(reached, level)]) for level in (0.5, 0.9)}
    return {
        **quantiles,
        "far above": float(weights[: len(ends)][ends > 1.3 * totals.max()].sum()),
        "nothing said": float(weights[-1]),
        "quantile .95": error(float(np.quantile(totals, 0.95))) / best,
        "quantile .99": error(float(np.quantile(totals, 0.99))) / best,
        "rank 3 / epsilon": error(float(descending[min(len(totals), round(3 * groups / item)) - 1])) / best,
    }


def _draw_probabilities(mechanism: RankFromTop, counts: list[int]) -> Floats:
    """Return the probability of each bin and, last, that nothing is said."""
    scores, none = mechanism.score(counts)
    exponents = float(mechanism.epsilon) / 4 * np.array([*scores, none], float)
    weights = np.exp(exponents - exponents.max())
    return weights / weights.sum()


if __name__ == "__main__":
    alone(__file__)
