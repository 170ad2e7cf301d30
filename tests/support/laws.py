"""Closed-form laws, divergences and goodness of fit: what the tests of the mathematics share.

A law is a dict from outcomes to probabilities. Nothing here uses a sampler of dpsql: laws are computed from the
formulas in `maths.md`, samples are handed in.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache
from itertools import combinations, product

import scipy  # imports scipy.stats, most of a second, only where a sample is judged: no victim of a kill does

from dpsql.accounting import delta_of_zcdp
from dpsql.mechanisms import Histogram, LimitedDomain, Selection
from dpsql.quantities import Epsilon, Rho

__all__ = [
    "BOTTOM",
    "ROUNDING",
    "Counts",
    "Law",
    "ScriptedNoise",
    "SeededNoise",
    "Steps",
    "agree",
    "chance",
    "cks",
    "discrete_gaussian_law",
    "discrete_laplace_law",
    "excess",
    "fits",
    "goodness",
    "hockey_stick",
    "label_law",
    "named",
    "one_unit_exchanged",
    "one_unit_more",
    "outcome",
    "peeling_law",
    "rejects",
    "rejects_early",
    "renyi",
    "singles_out",
    "worst_of",
]

BOTTOM = "⊥"
ROUNDING = 1e-9
Counts = Mapping[str, int]
Law = Mapping[Hashable, float]
Steps = tuple[int | str, ...]  # positions, or labels, and BOTTOM
_FEW = 8.0  # cells expected to hold fewer draws than this are merged
_REJECTED = 1e-6
_AGREES = 0.01  # of half the draws: a law that is not among the others
_MISSED = 1e-4  # and there is a second chance, so a test fails without a reason once in 1e8 times


class SeededNoise:
    """Repeatable noise; it exists in the tests only."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def draw(self, count: int) -> bytes:
        return self._random.randbytes(count)


class ScriptedNoise:
    """Hands out prepared bytes, whatever is asked for, and fails when it is asked for more of them."""

    def __init__(self, *answers: bytes) -> None:
        self._answers = list(answers)

    def draw(self, count: int) -> bytes:
        if count == 0:
            return b""
        answer = self._answers.pop(0)
        assert len(answer) == count, f"{count} bytes were asked for, {len(answer)} come next"
        return answer

    @property
    def exhausted(self) -> bool:
        return not self._answers


def peeling_law(counts: Sequence[float], bottom: float | None, epsilon: float, k: int) -> dict[Steps, float]:
    """Return the law of k exponential-mechanism draws without replacement that stop at `bottom` (`maths.md` 3.2)."""
    best = max([*counts, *([] if bottom is None else [bottom])], default=0.0)
    weights = [math.exp(epsilon * (count - best)) for count in counts]
    stop = 0.0 if bottom is None else math.exp(epsilon * (bottom - best))
    law: dict[Steps, float] = {}

    def draw(drawn: tuple[int, ...], probability: float) -> None:
        left = [position for position in range(len(weights)) if position not in drawn]
        if len(drawn) == k or (not left and bottom is None):
            law[drawn] = probability
            return
        total = math.fsum(weights[position] for position in left) + stop
        if bottom is not None:
            law[(*drawn, BOTTOM)] = probability * stop / total
        for position in left:
            draw((*drawn, position), probability * weights[position] / total)

    draw((), 1.0)
    return law


def outcome(selection: Selection) -> Steps:
    """Return a selection as an outcome of `peeling_law`."""
    return (*selection.positions, BOTTOM) if selection.stopped_at_bottom else selection.positions


def named(law: Mapping[Steps, float], labels: Sequence[str]) -> dict[Steps, float]:
    """Return a law of positions as one of labels."""
    return {tuple(labels[at] if isinstance(at, int) else at for at in steps): mass for steps, mass in law.items()}


def label_law(mechanism: LimitedDomain, counts: Counts) -> dict[Steps, float]:
    """Return the law of the labels that a limited domain releases, with production's own threshold."""
    labels = sorted(counts, key=lambda label: (-counts[label], label))
    leaders = tuple(counts[label] for label in labels[: mechanism.k_bar + 1])
    histogram = Histogram.of_leaders(leaders, mechanism.k_bar)
    bottom = float(max(histogram.following + mechanism.threshold_offset, mechanism.least_threshold))
    return named(peeling_law(histogram.leaders, bottom, float(mechanism.epsilon), mechanism.k), labels)


def one_unit_more(counts: Counts, universe: str, bound: int | None, most: int = 1) -> Iterator[dict[str, int]]:
    """Yield the counts with one unit more, in every way that at most `bound` labels of the universe allow.

    It adds up to `most` to each of them; a label to which nobody adds anything does not exist.
    """
    for size in range(1, (bound or len(universe)) + 1):
        for labels in combinations(universe, size):
            for amounts in product(range(1, most + 1), repeat=size):
                added = dict(zip(labels, amounts, strict=True))
                yield {label: counts.get(label, 0) + added.get(label, 0) for label in {*counts, *labels}}


def one_unit_exchanged(counts: Counts, universe: str) -> Iterator[dict[str, int]]:
    """Yield the counts with one unit exchanged for another, of other labels; one that has none is one more or less."""
    labels = [{}, *one_unit_more({}, universe, None)]
    found = set()
    for gone, come in product(labels, labels):
        moved = {label: counts.get(label, 0) - gone.get(label, 0) + come.get(label, 0) for label in universe}
        own = tuple(moved.values())
        if gone.keys() <= counts.keys() and own not in found:
            found.add(own)
            yield {label: count for label, count in moved.items() if count}


def worst_of(
    cases: Iterable[tuple[LimitedDomain, Counts]], law: Callable[[LimitedDomain, Counts], Law], *, universe: str
) -> float:
    """Return the worst excess over all neighbours of all cases, in both orders."""
    worst = 0.0
    for mechanism, counts in cases:
        here = law(mechanism, counts)
        for more in one_unit_more(counts, universe, mechanism.max_groups_contributed):
            there = law(mechanism, more)
            worst = max(worst, excess(mechanism, here, there), excess(mechanism, there, here))
    return worst


@cache
def discrete_gaussian_law(variance: Fraction, reach: float = 13.0) -> dict[int, float]:
    """Return N_Z(0, variance) on the integers within `reach` standard deviations."""
    last = math.ceil(reach * math.sqrt(variance)) + 1
    masses = {n: math.exp(-n * n / (2.0 * float(variance))) for n in range(-last, last + 1)}
    total = math.fsum(masses.values())
    return {n: mass / total for n, mass in masses.items()}


@cache
def discrete_laplace_law(scale: Fraction, reach: float = 36.0) -> dict[int, float]:
    """Return the discrete Laplace on the integers within `reach` scales: all but about exp(-reach) of its mass."""
    last, decay = math.ceil(reach * scale) + 1, math.exp(-1.0 / scale)
    return {n: (1.0 - decay) / (1.0 + decay) * decay ** abs(n) for n in range(-last, last + 1)}


def hockey_stick(p: Law, q: Law, epsilon: float) -> float:
    """Return the sum of max(0, P - e**epsilon Q): the least delta for that epsilon."""
    factor = math.exp(epsilon)
    return math.fsum(max(0.0, mass - factor * q.get(event, 0.0)) for event, mass in p.items())


def excess(mechanism: LimitedDomain, p: Law, q: Law) -> float:
    """Return the worst factor by which the pair (P, Q) exceeds what the mechanism claims; at most 1 if it is true."""
    epsilon, delta = float(mechanism.epsilon), float(mechanism.worst_case.delta)
    rho = mechanism.worst_case.rho.value
    pure = hockey_stick(p, q, mechanism.k * epsilon) / delta
    levels = [epsilon * part for part in (0.1, 0.5, 1.0, 1.5, 2.0, 3.0)]
    return max(pure, *(hockey_stick(p, q, level) / (delta + cks(rho, level)) for level in levels))


def renyi(log_p: Law, log_q: Law, alpha: float) -> float:
    """Return the Renyi divergence of order alpha, from the logarithms of two laws on the same outcomes."""
    exponents = [alpha * mass + (1.0 - alpha) * log_q[event] for event, mass in log_p.items()]
    largest = max(exponents)
    return (largest + math.log(math.fsum(math.exp(x - largest) for x in exponents))) / (alpha - 1.0)


@cache
def cks(rho: Fraction, epsilon: float) -> float:
    """Return the delta that dpsql converts a rho into."""
    return delta_of_zcdp(Rho(rho), Epsilon(epsilon))


def _merge(pairs: Iterable[tuple[float, float]], weight: Callable[[tuple[float, float]], float]) -> list[list[float]]:
    """Add up the lightest cells until every cell weighs enough."""
    cells: list[list[float]] = []
    small = [0.0, 0.0]
    for pair in sorted(pairs, key=weight):
        if weight(pair) < _FEW or (0.0 < weight((small[0], small[1])) < _FEW):
            small = [small[0] + pair[0], small[1] + pair[1]]
        else:
            cells.append([*pair])
    return [small, *cells] if weight((small[0], small[1])) > 0 else cells


def goodness(observed: Counter[Hashable], law: Law) -> float:
    """Return the p-value of the chi-square test of a sample against its law; 0 for an outcome the law has not."""
    if not observed.keys() <= {event for event, mass in law.items() if mass > 0.0}:
        return 0.0
    draws = observed.total()
    cells = _merge(((observed[event], draws * mass) for event, mass in law.items()), lambda pair: pair[1])
    if len(cells) == 1:
        return 1.0
    statistic = math.fsum((seen - expected) ** 2 / expected for seen, expected in cells)
    return float(scipy.stats.chi2.sf(statistic, len(cells) - 1))


def agree(first: Counter[Hashable], second: Counter[Hashable]) -> float:
    """Return the p-value of the chi-square test that two samples of one size have one law."""
    pairs = [(float(first[event]), float(second[event])) for event in first.keys() | second.keys()]
    cells = _merge(pairs, lambda pair: pair[0] + pair[1])
    if len(cells) == 1:
        return 1.0
    return float(scipy.stats.chi2_contingency(cells, correction=False).pvalue)


def fits(p_value: Callable[[], float]) -> bool:
    """Say whether a fresh sample agrees with its law; true randomness earns one second chance."""
    return p_value() > _REJECTED or p_value() > _REJECTED


def rejects(p_value: Callable[[], float]) -> bool:
    """Say whether a fresh sample is found to disagree with the law."""
    return p_value() <= _REJECTED


def rejects_early(p_value: Callable[[int], float], draws: int) -> bool:
    """Say whether some fresh sample of at most so many draws, the smaller first, disagrees with the law."""
    return any(p_value(size) <= _REJECTED for size in (draws // 12, draws // 4, draws))


def singles_out(law: Law, *others: Law, sample: Callable[[int], Counter[Hashable]]) -> bool:
    """Say whether fresh draws agree with a law and disagree with each other one; there is a second chance.

    There are as many draws as are sure to reject the others. Half of them do so most of the time, and are then enough:
    draws of another law pass one of the four looks at them with a probability of 4e-6 at most. Half of them reject
    a law that is not among the others less surely than all do, so they are enough only where they agree well.
    """
    draws = max(_draws_to_reject(law, other) for other in others)
    for _ in range(2):
        seen = Counter[Hashable]()
        for part, least in ((draws // 2, _AGREES), (draws - draws // 2, _REJECTED)):
            seen += sample(part)
            if goodness(seen, law) > least and all(goodness(seen, other) <= _REJECTED for other in others):
                return True
    return False


def chance(probability: float) -> dict[Hashable, float]:
    """Return the law of an event that has a probability, and of its opposite."""
    return {True: probability, False: 1.0 - probability}


def _draws_to_reject(law: Law, other: Law) -> int:
    """Return how many draws of a law reject another, but for a probability of about 1e-4."""
    draws = 100
    while _missed(law, other, draws) > _MISSED:
        draws += draws // 8
    return draws + draws // 3  # few draws reject less often than the chi-square says


def _missed(law: Law, other: Law, draws: int) -> float:
    """Return about the probability that so many draws of a law agree with another, by the noncentral chi-square."""
    possible = {event for event, mass in other.items() if mass > 0.0}
    within = math.fsum(law.get(event, 0.0) for event in possible)
    cells = _merge(((draws * law.get(event, 0.0), draws * other[event]) for event in possible), lambda pair: pair[1])
    if len(cells) == 1:
        return within**draws
    distance = math.fsum((found - expected) ** 2 / expected for found, expected in cells)
    bound = scipy.stats.chi2.isf(_REJECTED, len(cells) - 1)
    return float(within**draws * scipy.stats.ncx2.cdf(bound, len(cells) - 1, distance))
