"""Laws of the mechanisms over all counts: threshold, weights, ranking and cut, with discovery before peeling."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import product

import numpy as np
import numpy.typing as npt
from properties.mechanisms.laws.record import MechanismLaw
from scipy import stats
from support.laws import cks, hockey_stick, peeling_law
from support.sparse_kit import LEVELS, MAKES, STEPS, Sparse, Units, Weights, histogram, passing, sets, weighted, weights

from dpsql.accounting import discrete_gaussian_offset
from dpsql.mechanisms import NoisyRelease

Rank = Callable[[Weights, list[tuple[str, int]]], Hashable]


def leading(k: int) -> Rank:
    """Return the release of the production code, by labels."""

    def rank(_: Weights, noisy: list[tuple[str, int]]) -> Hashable:
        release = NoisyRelease.leading([(ord(label), value) for label, value in noisy], k)
        return release.positions, release.counts

    return rank


def by_true_counts(k: int) -> Rank:
    return lambda weights, noisy: tuple(sorted(noisy, key=lambda pair: (-pair[1], -weights[pair[0]], pair[0])))[:k]


def law(mechanism: Sparse, units: Units, rank: Rank, labels: str) -> dict[Hashable, float]:
    """Return the law of what is shown of `labels`; the others are as they are with and without the unit."""
    found = weights(mechanism, units)
    own = [
        [(label, event, mass) for event, mass in passing(mechanism, found[label]).items()]
        if label in found
        else [(label, None, 1.0)]
        for label in labels
    ]
    masses: dict[Hashable, float] = {}
    for row in product(*own):
        shown = rank(found, [(label, event) for label, event, _ in row if event is not None])
        masses[shown] = masses.get(shown, 0.0) + math.prod(mass for _, _, mass in row)
    return masses


Arrays = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]


def all_that_passes(mechanism: Sparse, pair: tuple[Units, Units], labels: str) -> Arrays:
    """Return the laws of every noisy weight that passes; whatever is shown of them is post-processing."""
    found = [weights(mechanism, units) for units in pair]
    top = (
        mechanism.threshold
        + max(max(own.values(), default=0) for own in found)
        + 10 * math.isqrt(math.ceil(mechanism.variance))
    )
    laws = [np.ones(()), np.ones(())]
    for label in labels:
        for at, own in enumerate(found):
            law = passing(mechanism, own[label]) if own.get(label, 0) >= mechanism.cut else {None: 1.0}
            masses = np.array([law.get(event, 0.0) for event in (None, *range(mechanism.threshold, top))])
            laws[at] = np.multiply.outer(laws[at], masses)
    return laws[0], laws[1]


def sticks(p: npt.NDArray[np.float64], q: npt.NDArray[np.float64], level: float) -> float:
    return max(float(np.maximum(0.0, one - math.exp(level) * two).sum()) for one, two in ((p, q), (q, p)))


def worst(cases: Sequence[tuple[Sparse, Units, frozenset[str]]]) -> float:
    """Return the worst factor by which a unit more or less exceeds the claim."""
    found = 0.0
    for mechanism, units, unit in cases:
        assert len(unit) <= mechanism.bound
        here, there = all_that_passes(mechanism, (units, [*units, unit]), "".join(sorted(unit)))
        rho, delta = mechanism.loss.rho.value, float(mechanism.loss.delta)
        # at the last level the Gaussian part has nearly gone: what is left is the delta of new labels
        for level in (*LEVELS, 20.0 + 40.0 * float(rho)):
            found = max(found, sticks(here, there, level) / (delta + cks(rho, level)))
    return found


def worst_order(rank: Rank) -> float:
    """Return the worst factor of the order in which two labels are shown."""
    found = 0.0
    for mechanism, units, unit in TIES:
        here, there = (law(mechanism, each, rank, "ab") for each in (units, [*units, unit]))
        for level in LEVELS:
            claimed = float(mechanism.loss.delta) + cks(mechanism.loss.rho.value, level)
            found = max(found, hockey_stick(here, there, level) / claimed, hockey_stick(there, here, level) / claimed)
    return found


def cases(
    make: Callable[[str, str, int], Sparse], seed: int, number: int
) -> list[tuple[Sparse, Units, frozenset[str]]]:
    draw = random.Random(seed)
    found: list[tuple[Sparse, Units, frozenset[str]]] = []
    for _ in range(number):
        bound = draw.choice([1, 2, 2, 3])
        mechanism = make(draw.choice(["0.3", "0.5", "1", "3"]), draw.choice(["1e-6", "0.001", "0.05", "0.3"]), bound)
        units = [frozenset(draw.sample("abcde", draw.randint(1, bound))) for _ in range(draw.choice([0, 1, 2, 6, 20]))]
        found += [(mechanism, units, frozenset(draw.sample("abcdef", size))) for size in range(1, bound + 1)]
    return found


def edges(make: Callable[[str, str, int], Sparse]) -> list[tuple[Sparse, Units, frozenset[str]]]:
    crowded = [frozenset(label) for label in "abc"] * 12
    parameters = [
        ("0.02", "1e-7", 1),
        ("0.5", "1e-6", 1),
        ("2", "0.1", 1),
        ("3", "0.3", 3),
        ("0.5", "0.3", 3),
        ("1", "0.05", 2),
    ]
    return [
        (make(rho, delta, bound), units, unit)
        for rho, delta, bound in parameters
        for units in ([], crowded, [frozenset("a")] * 30, [frozenset("a"), frozenset("b")])
        for unit in sets("abc", bound)
    ]


TIES: list[tuple[Sparse, Units, frozenset[str]]] = [
    (histogram("1", "0.05", 1), [frozenset("a"), frozenset("b")] * 3, frozenset("b")),
    (histogram("0.5", "0.3", 1), [frozenset("b")] * 2 + [frozenset("a")], frozenset("a")),
]


def edited(make: Callable[[str, str, int], Sparse], **changes: object) -> Callable[[str, str, int], Sparse]:
    def built(rho: str, delta: str, bound: int) -> Sparse:
        mechanism = make(rho, delta, bound)
        return replace(mechanism, **{name: change(mechanism) for name, change in changes.items()})  # type: ignore[operator]

    return built


def without_the_one(mechanism: Sparse) -> int:
    return mechanism.threshold - 1


def continuous(mechanism: Sparse) -> int:
    share = -math.expm1(math.log1p(-float(mechanism.loss.delta)) / mechanism.bound)
    return math.ceil(1 + math.sqrt(mechanism.variance) * stats.norm.isf(share))


def bound_ignored(mechanism: Sparse) -> int:
    return 1 + discrete_gaussian_offset(mechanism.variance, float(mechanism.loss.delta))


def of_one_size(groups: Callable[[Sparse], int]) -> Callable[[Sparse], int]:
    def threshold(mechanism: Sparse) -> int:
        size = groups(mechanism)
        share = -math.expm1(math.log1p(-float(mechanism.loss.delta)) / size)
        return mechanism.weigh(size) + discrete_gaussian_offset(mechanism.variance, share)

    return threshold


MISTAKES: dict[str, tuple[float, Callable[[str, str, int], Sparse]]] = {
    "a threshold without the 1": (1.5, edited(histogram, threshold=without_the_one)),
    "the quantile of continuous noise": (1.5, edited(histogram, threshold=continuous)),
    "delta for one group where a unit is in more": (1.5, edited(histogram, threshold=bound_ignored)),
    "noise for one group where a unit is in more": (1.5, edited(histogram, variance=lambda m: m.variance / m.bound)),
    "weighted, the threshold of one group alone": (1.1, edited(weighted, threshold=of_one_size(lambda _: 1))),
    "weighted, the threshold of the most groups alone": (
        1.5,
        edited(weighted, threshold=of_one_size(lambda m: m.bound)),
    ),
    "weights rounded up": (1.1, edited(weighted, weigh=lambda _: lambda groups: math.ceil(STEPS / math.sqrt(groups)))),
    "weights of 1 each": (1.5, edited(weighted, weigh=lambda _: lambda __: STEPS)),
}


def discovered(mechanism: Sparse, units: Units, epsilon: float, k: int) -> dict[Hashable, float]:
    """Return the law of the discovered labels and of those peeled among them, by their counts."""
    found = weights(mechanism, units)
    present = sorted(found)
    masses: dict[Hashable, float] = {}
    for kept in product((False, True), repeat=len(present)):
        domain = [label for label, held in zip(present, kept, strict=True) if held]
        chance = math.prod(
            1.0 - miss if held else miss
            for label, held in zip(present, kept, strict=True)
            for miss in (passing(mechanism, found[label])[None],)
        )
        counts = [sum(label in unit for unit in units) for label in domain]
        if len(domain) <= k:
            masses[tuple(domain), ()] = chance  # all of them, in an order that the first stage released
            continue
        for steps, mass in peeling_law(counts, None, epsilon, k).items():
            masses[tuple(domain), tuple(domain[int(at)] for at in steps)] = chance * mass
    return masses


def worst_discovery(seed: int) -> float:
    draw, found = random.Random(seed), 0.0
    for mechanism, units, unit in cases(weighted, seed, 40):
        epsilon, k = draw.choice([0.5, 1.0, 2.0]), draw.choice([1, 2, 3])
        rho = mechanism.loss.rho.value + k * Fraction(epsilon) ** 2 / 8
        here, there = (discovered(mechanism, each, epsilon, k) for each in (units, [*units, unit]))
        for level in LEVELS:
            claimed = float(mechanism.loss.delta) + cks(rho, level)
            found = max(found, hockey_stick(here, there, level) / claimed, hockey_stick(there, here, level) / claimed)
    return found


def over(name: str) -> MechanismLaw:
    """Return the law of `histogram` or `weighted`."""
    own = {
        mistake: (factor, partial(lambda make: worst(edges(make)), make))
        for mistake, (factor, make) in MISTAKES.items()
        if mistake.startswith("weight") is (name == "weighted")
    }
    by_seed = {
        f"seed {seed}": (-1.0, partial(lambda seed: worst(cases(MAKES[name], seed, 50)), seed)) for seed in range(2)
    }
    return MechanismLaw(claims={"edges": (0.5, lambda: worst(edges(MAKES[name]))), **by_seed}, mistakes=own)


HISTOGRAM, WEIGHTED = over("histogram"), over("weighted")
ORDER = MechanismLaw(
    claims={f"the release in its order, cut to {k}": (-1.0, partial(worst_order, leading(k))) for k in (1, 2, 3)},
    mistakes={"ties by the true counts": (1.5, lambda: worst_order(by_true_counts(2)))},
)
DISCOVERY = MechanismLaw(
    claims={f"seed {seed}": (0.1, partial(worst_discovery, seed)) for seed in range(2)},
    mistakes={},
)
