"""Law of StableTopK: the k that is chosen, and the set that is released if its gap holds."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import product

from properties.mechanisms.laws.record import MechanismLaw, over_cases
from support.laws import Counts, Law, cks, discrete_gaussian_law, hockey_stick, one_unit_exchanged, one_unit_more

from dpsql.accounting import ZCDP, discrete_gaussian_offset
from dpsql.mechanisms import GapChoice, PTRGaussian, StableSelection, StableTopK, distance_regulariser
from dpsql.quantities import Delta, Epsilon

UNIVERSE = "abcde"
LEVELS = (0.05, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 40.0)
Near = Callable[[StableTopK, Counts], Iterable[Counts]]


@dataclass(frozen=True)
class Variant:
    """A way to build the mechanism; the defaults are the production code's.

    A number in place of None is used for the sensitivity there.
    """

    share: float = 0.5  # of epsilon * gap / sensitivity in the exponent of the choice
    in_choice: int | None = None
    in_gap: int | None = None  # the widest gap that must not pass
    in_noise: int | None = None


PRODUCTION = Variant()


def tail(variance: Fraction, at_least: int) -> float:
    law = discrete_gaussian_law(variance)
    return math.fsum(mass for draw, mass in law.items() if draw >= at_least)


def chance_to_hold(test: PTRGaussian, gap: int, variant: Variant = PRODUCTION) -> float:
    """Return with what probability a gap passes the test."""
    most = test.sensitivity
    variance = test.variance * Fraction(variant.in_noise or most, most) ** 2
    offset = discrete_gaussian_offset(variance, float(test.delta))
    return tail(variance, offset + (most if variant.in_gap is None else variant.in_gap) - gap)


def gaps_of(counts: Sequence[int], k_bar: int) -> list[int]:
    """Return the gaps of falling counts, which go on with zeros."""
    padded = [*counts, *[0] * (k_bar + 1)]
    return [padded[at] - padded[at + 1] for at in range(k_bar)]


def choice_law(choice: GapChoice, counts: Sequence[int], variant: Variant = PRODUCTION) -> list[float]:
    """Return the law of k, of falling counts."""
    regulariser = choice.regulariser or (0,) * choice.k_bar
    scores = [gap + more for gap, more in zip(gaps_of(counts, choice.k_bar), regulariser, strict=True)]
    rate = float(choice.epsilon) * variant.share / (variant.in_choice or choice.sensitivity)
    weights = [math.exp(rate * (score - max(scores))) for score in scores]
    return [weight / math.fsum(weights) for weight in weights]


def positional_law(
    mechanism: StableTopK, counts: Sequence[int], variant: Variant = PRODUCTION
) -> dict[StableSelection, float]:
    """Return the law of k and of the positions that are released, of falling counts."""
    law: dict[StableSelection, float] = {}
    chances = zip(gaps_of(counts, mechanism.k_bar), choice_law(mechanism.choice, counts, variant), strict=True)
    for k, (gap, chosen) in enumerate(chances, start=1):
        held = chance_to_hold(mechanism.test, gap, variant)
        law[StableSelection(k, frozenset(range(min(k, len(counts)))))] = chosen * held
        law[StableSelection(k, None)] = chosen * (1.0 - held)
    return law


def ranked(counts: Counts) -> list[str]:
    """Return the labels that exist in the order of their counts."""
    return sorted((label for label in counts if counts[label] > 0), key=lambda label: (-counts[label], label))


def law(mechanism: StableTopK, counts: Counts, variant: Variant = PRODUCTION) -> dict[Hashable, float]:
    """Return the law of the k that is chosen and the set of labels that is released."""
    labels = ranked(counts)
    return {
        (chosen.k, chosen.positions and frozenset(labels[at] for at in chosen.positions)): mass
        for chosen, mass in positional_law(mechanism, [counts[label] for label in labels], variant).items()
    }


def one_more(mechanism: StableTopK, counts: Counts) -> Iterable[Counts]:
    """Return the counts with one unit more, which adds up to the sensitivity to each of its labels."""
    universe = UNIVERSE if mechanism.sensitivity == 1 else UNIVERSE[:3]
    return one_unit_more(counts, universe, None, mechanism.sensitivity)


def exchanged(_: StableTopK, counts: Counts) -> Iterable[Counts]:
    """Return the counts with one unit exchanged for another, which moves a gap by 2."""
    return one_unit_exchanged(counts, UNIVERSE[:4])


def exceed(claim: ZCDP, here: Law, others: Iterable[Law]) -> float:
    """Return the worst factor by which a law and others, in either order, exceed the claimed loss."""
    claimed = {level: float(claim.delta) + cks(claim.rho.value, level) for level in LEVELS}
    return max(
        hockey_stick(*pair, level) / most
        for there in others
        for pair in ((here, there), (there, here))
        for level, most in claimed.items()
    )


def worst_excess(
    cases: Sequence[tuple[StableTopK, Counts]], variant: Variant = PRODUCTION, near: Near = one_more
) -> float:
    """Return the worst factor by which any neighbours, in either order, exceed the claimed loss."""
    return max(
        exceed(
            mechanism.loss,
            law(mechanism, counts, variant),
            (law(mechanism, x, variant) for x in near(mechanism, counts)),
        )
        for mechanism, counts in cases
    )


def worst_test(cases: Sequence[tuple[int, Counts]], variant: Variant = PRODUCTION) -> float:
    """Return the worst factor of the test alone, at a k that is known, where a unit is exchanged."""
    found = 0.0
    for (k, counts), variance, delta in product(cases, (Fraction(1), Fraction(30)), ("1e-6", "0.119")):
        test = PTRGaussian(variance, Delta(delta), sensitivity=2)

        def law(counts: Counts, k: int = k, test: PTRGaussian = test) -> Law:
            labels = ranked(counts)
            held = chance_to_hold(test, gaps_of([counts[label] for label in labels], k)[-1], variant)
            return {frozenset(labels[:k]): held, None: 1.0 - held}

        found = max(found, exceed(test.loss, law(counts), map(law, one_unit_exchanged(counts, UNIVERSE[:4]))))
    return found


def widest(choice: GapChoice, counts: Counts, others: Iterable[Counts], variant: Variant = PRODUCTION) -> float:
    """Return the widest range of the log-likelihood ratio of a choice, as a part of epsilon."""

    def chances(counts: Counts) -> list[float]:
        return choice_law(choice, sorted(counts.values(), reverse=True), variant)

    here, found = chances(counts), 0.0
    for other in others:
        ratios = [math.log(p / q) for p, q in zip(here, chances(other), strict=True)]
        found = max(found, max(ratios) - min(ratios))
    return found / float(choice.epsilon)


def worst_choice(variant: Variant = PRODUCTION) -> float:
    """Return the widest range of a choice where a unit is exchanged."""
    draw = random.Random(5)
    drawn = [(draw.randint(1, 4), few_counts(draw)) for _ in range(30)]
    return max(
        widest(GapChoice(Epsilon(1), k_bar, sensitivity=2), counts, one_unit_exchanged(counts, UNIVERSE[:4]), variant)
        for k_bar, counts in [*EXCHANGED_EDGES, *drawn]
    )


def few_counts(draw: random.Random) -> Counts:
    counts = {label: draw.choice([0, 1, 2, 3, draw.randint(1, 12)]) for label in UNIVERSE[:4]}
    return {label: count for label, count in counts.items() if count}


def random_cases(number: int, seed: int) -> list[tuple[StableTopK, Counts]]:
    draw = random.Random(seed)
    cases = []
    for _ in range(number):
        epsilon, delta = draw.choice(["0.3", "0.5", "1", "2"]), draw.choice(["1e-6", "0.001", "0.05", "0.3"])
        k_bar = draw.randint(1, 4)
        regulariser = draw.choice([(), distance_regulariser(draw.randint(1, k_bar), k_bar, penalty=Fraction(3, 2))])
        mechanism = StableTopK(Epsilon(epsilon), Delta(delta), k_bar, regulariser)
        highest = draw.choice([1, 2, 3, 12])
        present = draw.sample(UNIVERSE, draw.randint(0, 5))
        cases.append((mechanism, {label: draw.randint(1, highest) for label in present}))
    return cases


EDGES: list[tuple[StableTopK, Counts]] = [
    (StableTopK(Epsilon("1"), Delta("1e-6"), 1), {}),
    (StableTopK(Epsilon("4"), Delta("1e-6"), 1), {"b": 2, "a": 1}),
    (StableTopK(Epsilon("2"), Delta("1e-6"), 2), {"b": 1}),
    (StableTopK(Epsilon("0.5"), Delta("1e-6"), 3), {"b": 4, "a": 3, "c": 3, "d": 3}),
    (StableTopK(Epsilon("2"), Delta("1e-6"), 4), dict.fromkeys("abcde", 3)),
    (StableTopK(Epsilon("2"), Delta("1e-6"), 4), {"a": 5, "b": 3, "c": 3}),
    (StableTopK(Epsilon("2"), Delta("1e-6"), 2), {"a": 8, "b": 4, "c": 1}),
]


LAW = over_cases(
    worst_excess,
    {
        "a choice without the half": (2.0, Variant(share=1.0)),
        "a threshold that takes a gap of one for stable": (100.0, Variant(in_gap=0)),
    },
    edges=EDGES,
    attained=0.5,
    random_cases=random_cases,
    sizes=[100] * 2,
)

# Rankings by sums, of which one unit adds up to R to each group: gaps move by up to R either way

SUMS = [
    (StableTopK(Epsilon(epsilon), Delta(delta), k_bar, (), most), counts)
    for most in (1, 2, 3)
    for epsilon, delta, k_bar, counts in (
        ("1", "1e-6", 1, {}),
        ("4", "1e-6", 1, {"b": 2 * most, "a": most}),
        ("2", "0.05", 2, {"a": 12 * most, "b": 1, "c": 1}),
        ("2", "1e-6", 2, {"b": most}),
        ("1", "0.3", 2, {"a": most + 1, "b": 1}),
    )
]
BY_SUMS = over_cases(
    worst_excess,
    {
        "R left out of the gap that is not stable": (1.5, Variant(in_gap=1)),
        "R left out of the choice": (1.1, Variant(in_choice=1)),
        "R left out of sigma": (1.2, Variant(in_noise=1)),
    },
    edges=SUMS,
    attained=0.6,
)

# One unit exchanged for another: a gap moves by 2, so the constants of the paper, for one unit more, fail

EXCHANGED_EDGES: list[tuple[int, Counts]] = [
    (1, {}),
    (4, {}),
    (2, {"a": 1}),
    (1, {"a": 2, "b": 2}),
    (1, {"a": 4, "b": 2, "c": 2, "d": 1}),
    (2, {"a": 4, "b": 4, "c": 2}),
    (4, dict.fromkeys("abcd", 3)),
    (4, {"a": 8, "b": 4, "c": 1, "d": 1}),
    (3, {"a": 6, "b": 5, "c": 4, "d": 1}),
]


def exchanged_cases(cases: Iterable[tuple[int, Counts]]) -> list[tuple[StableTopK, Counts]]:
    return [
        (StableTopK(Epsilon(epsilon), Delta(delta), k_bar, sensitivity=2), counts)
        for (k_bar, counts), epsilon, delta in product(cases, ("0.5", "2"), ("1e-6", "0.05"))
    ]


def drawn_exchanges(seed: int) -> list[tuple[StableTopK, Counts]]:
    draw = random.Random(seed)
    return exchanged_cases((draw.randint(1, 4), few_counts(draw)) for _ in range(8))


EXCHANGES = exchanged_cases(EXCHANGED_EDGES)
PAPER, PASSING, QUIET = Variant(in_choice=1, in_gap=1, in_noise=1), Variant(in_gap=1), Variant(in_noise=1)
EXCHANGED = MechanismLaw(
    claims={
        "edges": (0.5, lambda: worst_excess(EXCHANGES, near=exchanged)),
        "seed 0": (-1.0, lambda: worst_excess(drawn_exchanges(0), near=exchanged)),
        "the test": (0.9, lambda: worst_test(EXCHANGED_EDGES)),
        "the choice": (0.9, worst_choice),
    },
    mistakes={
        "the constants of one unit more": (2.0, partial(worst_excess, EXCHANGES, PAPER, exchanged)),
        "a gap of one that passes": (1.5, partial(worst_excess, EXCHANGES, PASSING, exchanged)),
        "a gap of one that passes the test": (1.5, partial(worst_test, EXCHANGED_EDGES, PASSING)),
        "the noise of one unit more in the test": (1.5, partial(worst_test, EXCHANGED_EDGES, QUIET)),
        "the choice of one unit more": (1.9, partial(worst_choice, Variant(in_choice=1))),
    },
)
