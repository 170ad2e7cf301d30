"""Law of two looks and of what answers after them, for every neighbour of small data sets.

An outcome is both noisy sums and all that the mechanism which answers draws: its labels in order, the noisy weights or
counts that pass, or the discovered set with what is peeled of it. What a branch leaves of rho is then spent on a
Gaussian, so that each must cost what is charged for it. Outcomes of nearly one likelihood ratio count as one, which is
post-processing.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import numpy.typing as npt
from properties.mechanisms.laws.record import over_cases
from scipy.special import ndtr
from support.laws import BOTTOM, cks, discrete_gaussian_law, label_law, peeling_law

from dpsql.accounting import ZCDP
from dpsql.mechanisms import Histogram, Selection, unit_weight
from dpsql.mechanisms.domain_discovery import Discovery
from dpsql.mechanisms.gate import Look
from dpsql.mechanisms.gaussian_threshold import weighted_threshold
from dpsql.mechanisms.two_looks import Answerer, TwoLooks
from dpsql.quantities import Delta, Epsilon, Rho

STEPS = 10  # of fixed point in a weight
LEVELS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
FINE = 200  # ratios within one part of so many count as one
REACH = 8.0  # standard deviations of noise
Floats = npt.NDArray[np.float64]
Units = Sequence[frozenset[str]]
Case = tuple[TwoLooks, Units, frozenset[str]]
Table = dict[str, int]
Pair = tuple[Floats, Floats]  # the masses of outcomes without and with the unit


@dataclass(frozen=True)
class Data:
    """Counts and weights of the labels that exist, in one data set."""

    counts: Table
    weights: Table


def add_leads(looks: TwoLooks, data: Data) -> int:
    return looks.add_leads(Histogram.of_leaders(tuple(sorted(data.counts.values(), reverse=True)), looks.k_bar))


def add_weights(looks: TwoLooks, data: Data) -> int:
    return looks.gate.add(np.array(list(data.weights.values()), np.int64))


def discovery_loss(looks: TwoLooks, found: Discovery) -> ZCDP:
    return looks.discovery.loss(found)


@dataclass(frozen=True)
class Variant:
    """A way to build the looks; the defaults are the production code's."""

    leads: Callable[[TwoLooks, Data], int] = add_leads
    weights: Callable[[TwoLooks, Data], int] = add_weights
    first: Callable[[TwoLooks], Look] = lambda looks: looks.first
    second: Callable[[TwoLooks], Look] = lambda looks: looks.gate.look
    looks_always: bool = True  # also where there is no group
    threshold: Callable[[TwoLooks, Data], int] = lambda looks, _: looks.threshold
    delta: Callable[[TwoLooks], Delta] = lambda looks: looks.delta
    peeled: Callable[[TwoLooks, Data], Mapping[str, int]] = lambda _, data: data.counts
    loss: Callable[[TwoLooks, Discovery], ZCDP] = discovery_loss


PRODUCTION = Variant()


def tabulate(looks: TwoLooks, units: Units) -> Data:
    data = Data({}, {})
    for unit in units:
        weighed = sorted(unit)[: looks.weighed_groups]
        for label in unit:
            data.counts[label] = data.counts.get(label, 0) + 1
        for label in weighed:
            data.weights[label] = data.weights.get(label, 0) + unit_weight(len(weighed), steps=STEPS)
    return data


def merge(pair: Pair, ratios: Floats | None = None) -> Pair:
    """Return the pair with outcomes of nearly one ratio as one; `ratios` are their logarithms, where they are known."""
    p, q = (masses.ravel() for masses in pair)
    both = (p > 0) & (q > 0)
    logs = np.log(p[both]) - np.log(q[both]) if ratios is None else ratios.ravel()[both]
    bins = np.rint(logs * FINE).astype(np.int64)
    bins -= bins.min(initial=0)
    sums = [np.bincount(bins, masses[both]) for masses in (p, q)]
    used = sums[0] > 0
    alone = p[q == 0].sum(), q[p == 0].sum()
    return np.append(sums[0][used], [alone[0], 0.0]), np.append(sums[1][used], [0.0, alone[1]])


def multiply(first: Pair, second: Pair) -> Pair:
    """Return the laws of independent outcomes."""
    return merge((np.multiply.outer(first[0], second[0]), np.multiply.outer(first[1], second[1])))


def spread(totals: Sequence[int], look: Look, *, silent: Sequence[bool]) -> tuple[npt.NDArray[np.int64], Pair]:
    """Return the noisy sums, and their laws for each of two totals; a silent one has no noise."""
    noise = discrete_gaussian_law(look.variance, REACH)
    values = np.arange(min(totals) + min(noise), max(totals) + max(noise) + 1)
    one, two = (
        np.equal(values, total).astype(float)
        if quiet
        else np.array([noise.get(value - total, 0.0) for value in values.tolist()])
        for total, quiet in zip(totals, silent, strict=True)
    )
    return values, (one, two)


def branches(looks: TwoLooks, both: Sequence[Data], variant: Variant) -> dict[Answerer, Pair]:
    """Return the laws of the noisy sums with which each mechanism answers."""
    first, second = variant.first(looks), variant.second(looks)
    silent = [not (data.counts or variant.looks_always) for data in both]
    z, (p, q) = spread([variant.leads(looks, data) for data in both], first, silent=silent)
    y, (r, s) = spread([variant.weights(looks, data) for data in both], second, silent=silent)
    at_once = 5 * z > 4 * first.whole
    height = second.find_height(looks.open_probability) * second.whole
    taller = np.multiply.outer(np.full(len(z), first.whole), y) > np.multiply.outer(z, np.full(len(y), second.whole))
    opens = (y >= int(height)) & taller & (5 * z < 4 * first.whole)[:, None]
    crowded = opens & (y >= 2 * second.whole) & (looks.counts_rho is None)
    masks = {
        Answerer.LEADERS: ~opens & ~at_once[:, None],
        Answerer.DISCOVERY: crowded,
        Answerer.WEIGHTS if looks.counts_rho is None else Answerer.HISTOGRAM: opens & ~crowded,
    }
    if variant is PRODUCTION:
        agree_with_production(looks, (z, y), masks, at_once)
    found = {Answerer.AT_ONCE: merge((p[at_once], q[at_once]))}
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.add.outer(np.log(p) - np.log(q), np.log(r) - np.log(s))
    joint = np.multiply.outer(p, r), np.multiply.outer(q, s)
    for answerer, mask in masks.items():
        found[answerer] = merge((joint[0][mask], joint[1][mask]), ratios[mask])
    return found


def agree_with_production(
    looks: TwoLooks,
    sums: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]],
    masks: Mapping[Answerer, npt.NDArray[np.bool_]],
    at_once: npt.NDArray[np.bool_],
) -> None:
    """Compare the branches of a few noisy sums with production's choice."""
    draw = random.Random(len(sums[1]))
    for _ in range(6):
        row, column = (draw.randrange(len(each)) for each in sums)
        z, y = Fraction(int(sums[0][row]), looks.first.whole), Fraction(int(sums[1][column]), looks.gate.look.whole)
        if looks.choose(z) is Answerer.AT_ONCE:
            assert at_once[row]
            continue
        assert not at_once[row]
        assert [answerer for answerer, mask in masks.items() if mask[row, column]] == [looks.choose(z, y)]


def passing(values: tuple[int | None, int | None], threshold: int, variance: Fraction) -> Pair:
    """Return the laws of one label: below the threshold, or its noisy value; None where it does not exist."""
    noise = discrete_gaussian_law(variance, 9.0)
    top = max(value or 0 for value in values) + max(noise)
    found = []
    for value in values:
        own = [0.0 if value is None else noise.get(at - value, 0.0) for at in range(threshold, max(threshold, top) + 1)]
        found.append(np.array([max(0.0, 1.0 - math.fsum(own)), *own]))
    return found[0], found[1]


Answers = Iterator[tuple[Pair, Rho]]


def leaders_law(looks: TwoLooks, both: Sequence[Data], answerer: Answerer) -> Answers:
    """Yield the laws of the labels of a limited domain, for each number of them, with the loss."""
    domain = looks.leaders(answerer)
    laws = [label_law(domain, data.counts) for data in both]
    for found, stopped in product(range(looks.k + 1), (False, True)):
        steps = {each for each in {*laws[0], *laws[1]} if len(each) == found + stopped and (BOTTOM in each) == stopped}
        if steps:
            one, two = (np.array([law.get(each, 0.0) for each in steps]) for law in laws)
            loss = domain.loss(Selection(tuple(range(found)), stopped_at_bottom=stopped))
            yield merge((one, two)), looks.loss(answerer, loss).rho


def passed_law(looks: TwoLooks, both: Sequence[Data], answerer: Answerer, variant: Variant) -> Answers:
    """Yield the laws of the noisy weights, or counts, that pass."""
    one, two = (data.weights if answerer is Answerer.WEIGHTS else data.counts for data in both)
    if answerer is Answerer.WEIGHTS:
        variance, loss = STEPS**2 / (2 * looks.weighted.rho.value), looks.weighted.loss
        threshold = weighted_threshold(variance, variant.delta(looks), most=looks.weighed_groups, steps=STEPS)
    else:
        variance, threshold, loss = looks.histogram.variance, looks.histogram.threshold, looks.histogram.loss
    law = np.ones(1), np.ones(1)
    for label in two:
        if one.get(label) != two[label]:
            law = multiply(law, merge(passing((one.get(label), two[label]), threshold, variance)))
    yield law, looks.loss(answerer, loss).rho


def discovered_law(looks: TwoLooks, both: Sequence[Data], variant: Variant) -> Answers:
    """Yield the laws of what is discovered, with its noisy weights, and of what is peeled of more than k."""
    discovery = looks.discovery
    variance = STEPS**2 / (2 * discovery.rho.value)
    threshold = weighted_threshold(variance, variant.delta(looks), most=looks.weighed_groups, steps=STEPS)
    labels = sorted(both[1].weights)
    values = {label: (both[0].weights.get(label), both[1].weights[label]) for label in labels}
    own = {label: passing(each, threshold, variance) for label, each in values.items()}
    for held in product((False, True), repeat=len(labels)):
        domain = tuple(at for at, each in enumerate(held) if each)
        law = np.ones(1), np.ones(1)
        for label, passes in zip(labels, held, strict=True):
            p, q = own[label]
            law = multiply(law, merge((p[1:], q[1:]) if passes else (p[:1], q[:1])))
        if len(domain) > looks.k:
            laws = []
            for data in both:
                counts = [variant.peeled(looks, data).get(labels[at], 0) for at in domain]
                laws.append(peeling_law(counts, None, float(discovery.epsilon), looks.k))
            law = multiply(law, merge((np.array(list(laws[0].values())), np.array([laws[1][at] for at in laws[0]]))))
        found = Discovery(domain, domain[: looks.k])  # type: ignore[arg-type]
        yield law, looks.loss(Answerer.DISCOVERY, variant.loss(looks, found)).rho


def pieces(case: Case, variant: Variant) -> Iterator[tuple[Pair, float]]:
    """Yield the laws without and with the unit, in pieces of the same events, and how much rho each leaves."""
    looks, units, unit = case
    both = [tabulate(looks, each) for each in (units, [*units, unit])]
    if variant.threshold(looks, both[0]) != variant.threshold(looks, both[1]):
        yield (np.array([1.0, 0.0]), np.array([0.0, 1.0])), 0.0  # shares of other wholes
        return
    for answerer, law in branches(looks, both, variant).items():
        match answerer:
            case Answerer.AT_ONCE | Answerer.LEADERS:
                answers = leaders_law(looks, both, answerer)
            case Answerer.DISCOVERY:
                answers = discovered_law(looks, both, variant)
            case _:
                answers = passed_law(looks, both, answerer, variant)
        for answer, spent in answers:
            left = looks.worst_case.rho.value - spent.value
            assert left >= 0
            yield multiply(law, answer), float(left)


def stick(pair: Pair, level: float, left: float) -> float:
    """Return the hockey-stick divergence of a pair that a Gaussian of this rho follows."""
    p, q = pair
    found = float(p[q == 0].sum())
    p, q = p[(p > 0) & (q > 0)], q[(p > 0) & (q > 0)]
    if left <= 1e-12:
        return found + float(np.maximum(0.0, p - math.exp(level) * q).sum())
    mean, rest = math.sqrt(2 * left), level - np.log(p) + np.log(q)
    sticks = p * ndtr(mean / 2 - rest / mean) - math.exp(level) * q * ndtr(-mean / 2 - rest / mean)
    return found + float(np.maximum(0.0, sticks).sum())


def find_excess(claim: ZCDP, laws: Sequence[tuple[Pair, float]]) -> float:
    """Return the worst factor by which pieces of a law, each with the rho that it leaves, exceed the claim."""
    rho, delta = claim.rho.value, float(claim.delta)
    return max(
        math.fsum(stick((pair[at], pair[1 - at]), level, left) for pair, left in laws) / (delta + cks(rho, level))
        for level in (*LEVELS, 20.0 + 40.0 * float(rho))
        for at in (0, 1)
    )


def worst(cases: Sequence[Case], variant: Variant = PRODUCTION) -> float:
    """Return the worst factor by which a unit more or less exceeds the claim."""
    return max(find_excess(case[0].worst_case, list(pieces(case, variant))) for case in cases)


def make(epsilon: str, delta: str, k: int, *, k_bar: int, cap: int, bounded: bool = True) -> TwoLooks:
    bound = cap if bounded else None
    return TwoLooks(Epsilon(epsilon), Delta(delta), k, k_bar, cap, max_groups_contributed=bound, steps=STEPS)


def with_counts(looks: TwoLooks) -> TwoLooks:
    """Return the looks of a query of counts, which a histogram answers."""
    return replace(looks, counts_rho=Rho(looks.rho.value / 2))


def random_cases(number: int, seed: int) -> list[Case]:
    draw = random.Random(seed)
    found: list[Case] = []
    while len(found) < number:
        cap, bounded, k = draw.choice([1, 2, 2, 3]), draw.random() < 0.7, draw.choice([1, 1, 2, 3])
        looks = make(
            draw.choice(["1", "1.5", "2", "3"]),
            draw.choice(["1e-6", "1e-3", "0.05", "0.3"]),
            k,
            k_bar=k + draw.choice([0, 0, 1, 2]),
            cap=cap,
            bounded=bounded,
        )
        looks = with_counts(looks) if bounded and draw.random() < 0.3 else looks
        most = cap if bounded else 3
        units = [frozenset(draw.sample("abc", draw.randint(1, most))) for _ in range(draw.choice([0, 1, 2, 6, 15, 25]))]
        found.append((looks, units, frozenset(draw.sample("abcd", draw.randint(1, most)))))
    return found


CUT = Fraction(2, 3)  # of the threshold, where rows are cut by mistake


A, B, C = (frozenset(label) for label in "abc")


def edges() -> list[Case]:
    crowds: list[list[frozenset[str]]] = [[], [A], [A] * 12, [A, B] * 8, [A, B, C] * 10]
    made = [
        make("2", "1e-6", 1, k_bar=1, cap=1),
        make("1.5", "1e-3", 2, k_bar=2, cap=2),
        make("3", "0.3", 1, k_bar=2, cap=2, bounded=False),
        with_counts(make("2", "0.05", 2, k_bar=2, cap=1)),
    ]
    cases = [
        (looks, units, frozenset(chosen))
        for looks in made
        for units in crowds
        for size in range(1, looks.weighed_groups + 1)
        for chosen in combinations("ac", size)
    ]
    narrow, wide = make("2", "1e-6", 1, k_bar=1, cap=1), make("2", "1e-6", 1, k_bar=1, cap=3)
    faint = make("0.5", "1e-6", 1, k_bar=1, cap=1)
    below = math.ceil(CUT * faint.threshold / STEPS) - 1  # units with which a weight is just below the cut
    return [
        *cases,
        (wide, [frozenset("acd")] * 14 + [B] * 14, B),
        (wide, [A] * 30 + [B] * 30, B),
        (narrow, [A] * 30 + [B] * 30, C),
        (faint, [A] * below, A),
    ]


def count_alone(looks: TwoLooks, data: Data) -> Data:
    """Return the data of which the first k_bar groups by count alone are read."""
    first = sorted(data.counts, key=lambda label: (-data.counts[label], label))[: looks.k_bar]
    return Data(data.counts, {label: data.weights[label] for label in first if label in data.weights})


def cut_weights(looks: TwoLooks, data: Data) -> Data:
    """Return the data of which the groups of at least a part of the threshold alone are read."""
    least = CUT * looks.threshold
    return Data(data.counts, {label: each for label, each in data.weights.items() if each >= least})


def leaders_alone(looks: TwoLooks, data: Data) -> Mapping[str, int]:
    first = sorted(data.counts, key=lambda label: (-data.counts[label], label))[: looks.k_bar]
    return {label: data.counts[label] for label in first}


MISTAKES = {
    "no noise in the looks where there is no group": (1e4, Variant(looks_always=False)),
    "a threshold of the look that is taken from data": (
        1e4,
        Variant(threshold=lambda looks, data: max(data.weights.values(), default=looks.threshold)),
    ),
    "the heaviest of the groups that a LIMIT by counts leaves": (
        1.1,
        Variant(weights=lambda looks, data: add_weights(looks, count_alone(looks, data))),
    ),
    "counts of the first look in the discovery": (1.1, Variant(peeled=leaders_alone)),
    "the second stage of the discovery is charged never": (
        1.1,
        Variant(loss=lambda looks, _: looks.discovery.discovery.loss),
    ),
    "a cut by the weights themselves": (
        1.1,
        Variant(weights=lambda looks, data: add_weights(looks, cut_weights(looks, data))),
    ),
    "the first look at a sixth of the noise": (
        1.1,
        Variant(first=lambda looks: replace(looks.first, rho=looks.first.rho * 36)),
    ),
    "the second look at a sixth of the noise": (
        1.1,
        Variant(second=lambda looks: replace(looks.gate.look, rho=looks.gate.look.rho * 36)),
    ),
    "delta twice": (1.25, Variant(delta=lambda looks: Delta(min(Fraction(999, 1000), 2 * looks.delta.value)))),
}


LAW = over_cases(
    worst,
    MISTAKES,
    edges=edges(),
    attained=0.9,
    random_cases=random_cases,
    sizes=[80] * 2,
)
