"""Laws of every other ranking by sums, of which one unit adds up to R to a group."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, partial
from itertools import combinations, product

import numpy as np
import numpy.typing as npt
from properties.mechanisms.laws.record import MechanismLaw
from properties.mechanisms.laws.stable import ranked
from support import fixed_stable_kit, laplace_kit, top_stable_kit
from support.laws import (
    Counts,
    Law,
    cks,
    discrete_gaussian_law,
    hockey_stick,
    one_unit_more,
)

from dpsql.accounting import ZCDP, discrete_gaussian_offset
from dpsql.mechanisms import (
    FixedStableTopK,
    GaussianHistogram,
    LaplaceLimitedDomain,
    TopStable,
)
from dpsql.mechanisms.gaussian_threshold import unit_weight, weighted_threshold
from dpsql.quantities import Delta, Epsilon, Rho

UNIVERSE = "abc"


LEVELS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 40.0)


STEPS = 4  # of fixed point in a weight, few enough to enumerate


MOST = (1, 2, 3)


def excess(here: Law, there: Law, claimed: ZCDP) -> float:
    """Return the worst factor by which two laws exceed what is claimed, in both orders."""
    return max(
        hockey_stick(p, q, level) / (float(claimed.delta) + cks(claimed.rho.value, level))
        for p, q in ((here, there), (there, here))
        for level in LEVELS
    )


# All counts: a unit is what it adds to each of its groups, and its weight where groups are weighed


Unit = Mapping[str, int]


@dataclass(frozen=True)
class Sparse:
    """What a mechanism over all counts does: its loss, noise and threshold, and what a unit adds with c in t groups."""

    loss: ZCDP
    variance: Fraction
    threshold: int
    bound: int
    most: int
    weigh: Callable[[int, int], int]


def histogram(rho: str, delta: str, bound: int, most: int) -> Sparse:
    mechanism = GaussianHistogram(Rho(rho), Delta(delta), 2, bound, most)
    return Sparse(mechanism.loss, mechanism.variance, mechanism.threshold, bound, most, lambda c, _: c)


def weighted(rho: str, delta: str, bound: int, most: int) -> Sparse:
    """Return the weighted mechanism in fixed point of four steps, as the SQL has it."""
    variance = STEPS**2 / (2 * Rho(rho).value)
    threshold = weighted_threshold(variance, Delta(delta), most=bound, steps=STEPS)
    loss = ZCDP(Rho(rho), Delta(delta))
    return Sparse(loss, variance, threshold, bound, most, lambda c, t: c * unit_weight(t, steps=STEPS) // most)


def weights(mechanism: Sparse, units: Sequence[Unit]) -> dict[str, int]:
    """Return the groups that exist with their weights: those to which somebody adds a step at least."""
    found = Counter[str]()
    for unit in units:
        for label, added in unit.items():
            found[label] += mechanism.weigh(added, len(unit))
    return {label: weight for label, weight in found.items() if weight > 0}


@cache
def passing(variance: Fraction, weight: int, *, threshold: int, top: int) -> npt.NDArray[np.float64]:
    """Return the law of a group: the chance that it is not shown, then those of its noisy weights."""
    law = discrete_gaussian_law(variance, 9.0)
    shown = np.array([law.get(noisy - weight, 0.0) for noisy in range(threshold, top)])
    return np.concatenate([[1.0 - shown.sum()], shown])


def sparse_laws(
    mechanism: Sparse, pair: Sequence[Sequence[Unit]], labels: Sequence[str]
) -> list[npt.NDArray[np.float64]]:
    found = [weights(mechanism, units) for units in pair]
    highest = max((max(own.values(), default=0) for own in found), default=0)
    top = mechanism.threshold + highest + 9 * math.isqrt(math.ceil(mechanism.variance)) + 9
    absent = np.eye(1, top - mechanism.threshold + 1)[0]
    return [
        math.prod(  # type: ignore[misc] # of arrays
            (
                passing(mechanism.variance, own[label], threshold=mechanism.threshold, top=top)
                if label in own
                else absent
            ).reshape([-1 if at == axis else 1 for axis in range(len(labels))])
            for at, label in enumerate(labels)
        )
        for own in found
    ]


def worst_sparse(cases: Sequence[tuple[Sparse, Sequence[Unit], Unit]]) -> float:
    found = 0.0
    for mechanism, units, unit in cases:
        laws = sparse_laws(mechanism, (units, [*units, unit]), sorted(unit))
        rho, delta = mechanism.loss.rho.value, float(mechanism.loss.delta)
        for level in (*LEVELS, 20.0 + 40.0 * float(rho)):
            for p, q in (laws, laws[::-1]):
                stick = float(np.maximum(0.0, p - math.exp(level) * q).sum())
                found = max(found, stick / (delta + cks(rho, level)))
    return found


def all_units(bound: int, most: int, labels: str = "ab") -> Iterator[Unit]:
    """Yield all that one unit can add, 0 included: to a group in which it has rows that add nothing."""
    for size in range(1, bound + 1):
        for chosen in combinations(labels, size):
            for added in product(range(most + 1), repeat=size):
                yield dict(zip(chosen, added, strict=True))


def sparse_cases(make: Callable[..., Sparse]) -> list[tuple[Sparse, Sequence[Unit], Unit]]:
    found = []
    for most, bound, (rho, delta) in product(
        MOST, (1, 2), (("0.5", "1e-6"), ("2", "0.1"), ("0.5", "0.3"), ("3", "0.3"))
    ):
        mechanism = make(rho, delta, bound, most)
        for units in ([], [{"a": most}] * 12, [{"a": 1}, {"b": most}], [dict.fromkeys("ab"[:bound], 1)] * 2):
            found += [(mechanism, units, unit) for unit in all_units(bound, most)]
    return found


MAKES = {"histogram": histogram, "weighted": weighted}


def edited(make: Callable[..., Sparse], **changes: Callable[[Sparse], object]) -> Callable[..., Sparse]:
    def built(*arguments: object) -> Sparse:
        mechanism = make(*arguments)
        return replace(mechanism, **{name: change(mechanism) for name, change in changes.items()})  # type: ignore[arg-type]

    return built


SPARSE_MISTAKES: dict[str, tuple[float, Callable[..., Sparse]]] = {
    "R left out of the threshold": (1.5, edited(histogram, threshold=lambda m: m.threshold - m.most + 1)),
    "R left out of sigma": (
        1.5,
        edited(
            histogram,
            variance=lambda m: m.variance / m.most**2,
            threshold=lambda m: m.most + discrete_gaussian_offset(m.variance / m.most**2, float(m.loss.delta) / 2),
        ),
    ),
    "a unit's total that is not clamped": (1.5, edited(histogram, weigh=lambda _: lambda c, __: 2 * c)),
    "weights of c without R": (
        1.5,
        edited(weighted, weigh=lambda _: lambda c, t: c * unit_weight(t, steps=STEPS)),
    ),
    "weights of c / R in every group": (1.1, edited(weighted, weigh=lambda m: lambda c, _: c * STEPS // m.most)),
    "weights rounded up": (
        1.05,
        edited(weighted, weigh=lambda m: lambda c, t: math.ceil(c * STEPS / m.most / math.sqrt(t))),
    ),
}


# The leaders at once, with Laplace noise


def at_once(epsilon: str, delta: str, k_bar: int, bound: int, most: int) -> LaplaceLimitedDomain:
    return LaplaceLimitedDomain(Epsilon(epsilon), Delta(delta), k_bar, k_bar, bound, most)


LAPLACE: list[tuple[LaplaceLimitedDomain, Counts]] = [
    (at_once("2", "0.1", 1, 1, 2), {}),
    (at_once("2", "0.3", 1, 1, 3), {"a": 1, "b": 1}),
    (at_once("3", "0.05", 2, 1, 2), {"a": 3, "b": 3, "c": 3}),
    (at_once("3", "0.2", 2, 2, 2), {"b": 2, "a": 1}),
    (at_once("2", "1e-6", 1, 1, 2), {"a": 60}),
]


def worst_laplace(variant: laplace_kit.Variant = laplace_kit.PRODUCTION) -> float:
    found = 0.0
    for mechanism, counts in LAPLACE:
        here = laplace_kit.outcomes(mechanism, counts, variant)
        delta, rho = float(mechanism.delta), mechanism.worst_case.rho.value
        for more in one_unit_more(counts, UNIVERSE, mechanism.max_groups_contributed, mechanism.sensitivity):
            there = laplace_kit.outcomes(mechanism, more, variant)
            for p, q in ((here, there), (there, here)):
                found = max(found, laplace_kit.stick(p, q, float(mechanism.epsilon)) / delta)
                found = max(found, *(laplace_kit.stick(p, q, e) / (delta + cks(rho, e)) for e in (0.2, 1.0, 4.0)))
    return found


def without(mechanism: LaplaceLimitedDomain) -> LaplaceLimitedDomain:
    return replace(mechanism, sensitivity=1)


LAPLACE_MISTAKES = {
    "R left out of the threshold": laplace_kit.Variant(above=1),
    "R left out of the scale": laplace_kit.Variant(
        scale=lambda m: without(m).scale, bottom_scale=lambda m: without(m).scale
    ),
    "R left out of the offset": laplace_kit.Variant(offset=lambda m: without(m).offset),
}


def softmax(exponents: Mapping[Hashable, float]) -> Law:
    highest = max(exponents.values())
    total = math.fsum(math.exp(each - highest) for each in exponents.values())
    return {event: math.exp(each - highest) / total for event, each in exponents.items()}


FIXED: list[tuple[FixedStableTopK, Counts]] = [
    (FixedStableTopK(Rho(rho), Delta(delta), k, k_bar, Fraction(penalty) * most, bound, most), counts)
    for most in (2, 3)
    for rho, delta, k, k_bar, penalty, bound, counts in (
        ("1", "1e-6", 1, 1, "0", None, {}),
        ("4", "1e-6", 1, 1, "0", None, {"b": 2 * most, "a": most}),
        ("16", "1e-6", 1, 1, "0", None, {"b": 2 * most, "a": most}),
        ("1", "1e-6", 1, 2, "0", 1, {"b": 1}),
        ("2", "0.02", 2, 2, "0", 1, {"a": 12 * most, "b": 1, "c": 1}),
        ("1", "0.05", 1, 3, "1", None, {"a": 9 * most, "b": 8 * most, "c": 8 * most}),
        ("4", "0.01", 1, 3, "0", 2, dict.fromkeys("abc", 9 * most)),
    )
]


def fixed_law(m: FixedStableTopK, counts: Counts, variant: fixed_stable_kit.Variant) -> Law:
    labels = ranked(counts)
    positions = fixed_stable_kit.law_of_positions(m, tuple(counts[label] for label in labels), variant)
    found: dict[Hashable, float] = {}
    for each, mass in positions.items():
        shown = frozenset(labels[at] for at in each.stable), tuple(labels[at] for at in each.filled)
        event = (each.proposed, each.held, *shown, each.stopped_at_bottom)
        found[event] = found.get(event, 0.0) + mass
    return found


def worst_fixed(variant: fixed_stable_kit.Variant = fixed_stable_kit.PRODUCTION) -> float:
    found = 0.0
    for m, counts in FIXED:
        here = fixed_law(m, counts, variant)
        for more in one_unit_more(counts, UNIVERSE, m.max_groups_contributed, m.sensitivity):
            found = max(found, excess(here, fixed_law(m, more, variant), m.worst_case))
    return found


FIXED_MISTAKES = {
    "a gap of 1 taken for the widest that a unit can close": fixed_stable_kit.Variant(unstable=1),
    "BOTTOM 1 above": fixed_stable_kit.Variant(above=1),
    "R left out of the logarithm's part of BOTTOM": fixed_stable_kit.Variant(in_logarithm=False),
    "R left out of the races": fixed_stable_kit.Variant(in_race=False),
    "R left out of the noise": fixed_stable_kit.Variant(in_noise=False),
}


TOP_STABLE: list[tuple[TopStable, Counts]] = [
    (top_stable_kit.stable(epsilon, delta, k, k_bar, within, most), counts)
    for most in (2, 3)
    for epsilon, delta, k, k_bar, within, counts in (
        ("2", "1e-6", 1, 1, None, {}),
        ("2", "0.0404", 1, 1, None, {"a": 1}),
        ("2", "0.05", 1, 2, None, {"a": 3 * most, "b": 2 * most}),
        ("2", "0.01", 1, 2, "1", {"a": 15 * most, "b": 15 * most}),
        ("3", "0.1", 1, 3, "2", {"a": 20 * most, "b": 20 * most, "c": 20 * most}),
    )
]


FOUR = (
    TopStable(Epsilon(4), Delta("1e-12"), 1, 4, Fraction(1, 4), sensitivity=2),
    {"a": 2 * 97, "b": 2 * 69, "c": 2 * 37, "d": 2 * 32},
)


def top_stable_law(mechanism: TopStable, counts: Counts, variant: top_stable_kit.Variant) -> Law:
    labels = ranked(counts)
    positions = top_stable_kit.law_of_positions(mechanism, tuple(counts[label] for label in labels), variant)
    return {
        (each.rank, frozenset(labels[at] for at in each.members), tuple(labels[at] for at in each.ranked)): mass
        for each, mass in positions.items()
    }


def worst_top_stable(
    variant: top_stable_kit.Variant = top_stable_kit.PRODUCTION,
    cases: Sequence[tuple[TopStable, Counts]] = TOP_STABLE,
) -> float:
    found = 0.0
    for mechanism, counts in cases:
        here, pure = top_stable_law(mechanism, counts, variant), float(mechanism.guarantee.epsilon)
        for more in one_unit_more(counts, max(UNIVERSE, "".join(counts), key=len), None, mechanism.sensitivity):
            there = top_stable_law(mechanism, more, variant)
            found = max(found, excess(here, there, mechanism.worst_case))
            sticks = hockey_stick(here, there, pure), hockey_stick(there, here, pure)
            found = max(found, *(each / float(mechanism.delta) for each in sticks))
    return found


TOP_STABLE_MISTAKES = {
    "a distance of the gap less 1": top_stable_kit.Variant(less=1),
    "R left out of the noise of distances": top_stable_kit.Variant(distance_factor=2),
    "R left out of the noise of the threshold": top_stable_kit.Variant(threshold_factor=Fraction(1, 2)),
    "R left out of the threshold": top_stable_kit.Variant(offset=lambda m: replace(m, sensitivity=1).offset),
    "R left out of the race": top_stable_kit.Variant(in_race=False),
}


def law(attained: float, worst: Callable[..., float], factor: float, mistakes: Mapping[str, object]) -> MechanismLaw:
    wrong = {name: (factor, partial(worst, variant)) for name, variant in mistakes.items()}
    return MechanismLaw(claims={"edges": (attained, worst)}, mistakes=wrong)


ALL_COUNTS = MechanismLaw(
    claims={name: (0.5, partial(lambda make: worst_sparse(sparse_cases(make)), make)) for name, make in MAKES.items()},
    mistakes={
        name: (factor, partial(lambda make: worst_sparse(sparse_cases(make)), make))
        for name, (factor, make) in SPARSE_MISTAKES.items()
    },
)
AT_ONCE = law(0.8, worst_laplace, 1.2, LAPLACE_MISTAKES)
FIXED_STABLE = law(0.5, worst_fixed, 1.05, FIXED_MISTAKES)
TOP = MechanismLaw(
    claims={"edges": (0.6, worst_top_stable), "four groups": (-1.0, partial(worst_top_stable, cases=[FOUR]))},
    mistakes={
        name: (1.1, partial(worst_top_stable, mistake, [FOUR] if "noise" in name else TOP_STABLE))
        for name, mistake in TOP_STABLE_MISTAKES.items()
    },
)
