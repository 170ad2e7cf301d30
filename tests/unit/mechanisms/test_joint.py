"""The joint exponential mechanism against its closed-form law, the exact weights of its stretches, and its edges."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction
from functools import cache
from importlib import import_module
from itertools import combinations_with_replacement, permutations
from types import ModuleType

import pytest
from mpmath.ctx_iv import MPIntervalContext
from support.laws import ScriptedNoise, SeededNoise, Steps, fits, goodness, peeling_law, rejects, rejects_early

from dpsql.mechanisms import Histogram, JointExponential, OperatingSystemNoise, Selection
from dpsql.mechanisms.sampling.noise import BitReader
from dpsql.quantities import Delta, Epsilon, Rho

MODULE: ModuleType = import_module("dpsql.mechanisms.joint")
NOISE = OperatingSystemNoise()
DRAWS = 1_500
Loss = Callable[[Sequence[int], Sequence[int]], int]


def worst_member(counts: Sequence[int], members: Sequence[int]) -> int:
    return max(counts[rank] - counts[at] for rank, at in enumerate(members))


def joint_law(counts: Sequence[int], k: int, rate: float, loss: Loss = worst_member) -> dict[Hashable, float]:
    """Return the law of all sequences, for counts in descending order."""
    sequences = permutations(range(len(counts)), min(k, len(counts)))
    weights: dict[Hashable, float] = {each: math.exp(-rate * loss(counts, each)) for each in sequences}
    total = math.fsum(weights.values())
    return {each: weight / total for each, weight in weights.items()}


CASES: dict[str, tuple[JointExponential, tuple[int, ...]]] = {
    "apart": (JointExponential(Epsilon("0.3"), 2), (30, 28, 27, 20, 19)),
    "absent candidates": (JointExponential(Epsilon("0.7"), 3), (4, 3, 0, 0, 0)),
    "all candidates": (JointExponential(Epsilon(1), 4), (6, 5, 3, 0)),
    "fewer candidates than k": (JointExponential(Epsilon(2), 7), (3, 2, 2)),
    "all tied": (JointExponential(Epsilon(1), 2), (7, 7, 7, 7)),
    "one far ahead": (JointExponential(Epsilon(1), 2), (2**53 - 1, 2, 1, 0)),
    "one alone": (JointExponential(Epsilon(1), 1), (5, 4, 4, 1)),
}


@pytest.fixture(autouse=True)
def _one_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make one real context for all draws: making it takes four fifths of a draw's time."""
    monkeypatch.setattr("mpmath.ctx_iv.MPIntervalContext", cache(MPIntervalContext))


def draws_of(case: str, draws: int) -> Counter[Hashable]:
    mechanism, counts = CASES[case]
    histogram = Histogram(counts, 0)
    return Counter(mechanism.select(histogram, NOISE).positions for _ in range(draws))


def sampled(case: str, draws: int = DRAWS) -> Callable[[], float]:
    """Return a function that draws a fresh sample and gives its p-value under the law."""
    mechanism, counts = CASES[case]
    law = joint_law(counts, mechanism.k, float(mechanism.epsilon) / 2)
    return lambda: goodness(draws_of(case, draws), law)


@pytest.mark.properties
@pytest.mark.parametrize("case", CASES)
def test_selections_follow_the_closed_form(case: str) -> None:
    assert fits(sampled(case))


def test_one_member_is_drawn_as_peeling_draws_it_with_half_the_epsilon() -> None:
    mechanism, counts = CASES["one alone"]
    law: dict[Hashable, float] = {**peeling_law(counts, None, float(mechanism.epsilon) / 2, 1)}
    assert law == pytest.approx(joint_law(counts, 1, float(mechanism.epsilon) / 2))


def against_the_lowest(counts: Sequence[int], members: Sequence[int]) -> int:
    return max(abs(count - counts[at]) for count, at in zip(reversed(counts), members, strict=False))


def ties_by_position(counts: Sequence[int], members: Sequence[int]) -> int:
    return max(counts[rank] - counts[at] + (at > rank) for rank, at in enumerate(members))


WRONG: dict[str, Callable[[Sequence[int], int, float], dict[Hashable, float]]] = {
    "no half": joint_law,
    "noise of 0.7": lambda counts, k, epsilon: joint_law(counts, k, epsilon / 1.4),
    "noise of 1.3": lambda counts, k, epsilon: joint_law(counts, k, epsilon / 2.6),
    "the sum of the members' losses": lambda counts, k, epsilon: joint_law(
        counts, k, epsilon / 2, lambda of, members: sum(of[rank] - of[at] for rank, at in enumerate(members))
    ),
    "the losses of a set": lambda counts, k, epsilon: joint_law(
        counts, k, epsilon / 2, lambda of, members: worst_member(of, sorted(members))
    ),
    "counts in ascending order": lambda counts, k, epsilon: joint_law(counts, k, epsilon / 2, against_the_lowest),
    "ties by position": lambda counts, k, epsilon: joint_law(counts, k, epsilon / 2, ties_by_position),
}


@pytest.mark.mutant
@pytest.mark.properties
def test_a_wrong_law_is_noticed() -> None:
    mechanism, counts = CASES["all candidates"]
    seen = draws_of("all candidates", 6_000)
    for wrong, law in WRONG.items():
        assert rejects(lambda law=law: goodness(seen, law(counts, mechanism.k, float(mechanism.epsilon)))), wrong  # type: ignore[misc]


@pytest.mark.properties
@pytest.mark.parametrize("case", ["apart", "absent candidates", "all candidates"])
def test_the_law_survives_few_shares_and_single_bits(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "_UNITS", 1)
    monkeypatch.setattr(MODULE, "_MORE_BITS", 1)
    monkeypatch.setattr(MODULE, "_GUARD_BITS", 4)
    assert fits(sampled(case, draws=500))


@pytest.mark.mutant
def test_few_shares_without_the_coin_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "_UNITS", 1)
    monkeypatch.setattr(MODULE, "_is_kept", lambda *_: True)
    assert rejects_early(lambda draws: sampled("all candidates", draws=draws)(), 4_000)


HISTOGRAMS = [counts for size in (1, 2, 3, 4, 5) for counts in combinations_with_replacement((9, 4, 3, 1, 0), size)]


def sequences_within(counts: Sequence[int], length: int, within: int) -> int:
    number: int = MODULE._sequences(MODULE._eligible(counts, length=length, within=within))
    return number


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
def test_the_product_counts_the_sequences_within_a_loss(k: int) -> None:
    for counts in HISTOGRAMS:
        length = min(k, len(counts))
        losses = [worst_member(counts, members) for members in permutations(range(len(counts)), length)]
        for within in range(11):
            expected = sum(loss <= within for loss in losses)
            assert sequences_within(counts, length, within) == expected


@pytest.mark.properties
@pytest.mark.parametrize("k", [1, 2, 4, 5])
@pytest.mark.parametrize("rate", [Fraction(1, 2 * 10**9), Fraction(1, 20), Fraction(3, 2)])
def test_the_weights_of_the_stretches_make_the_closed_form(rate: Fraction, k: int) -> None:
    """Shares times their coin, spread over the sequences that a stretch allows: the law of production, exactly."""
    context = MPIntervalContext()
    context.prec = 256
    for counts in HISTOGRAMS:
        length = min(k, len(counts))
        stretches = MODULE._stretches(counts, length=length, rate=float(rate))
        each_alike = []
        for at, start in enumerate(stretches.starts.tolist()):
            number = sequences_within(counts, length, start)
            stretch = stretches.exact(at, sequences=number, rate=rate)
            each_alike.append((start, float(stretch.chance(context).mid) * stretch.shares / number))
        found = {
            members: math.fsum(part for start, part in each_alike if start >= worst_member(counts, members))
            for members in permutations(range(len(counts)), length)
        }
        total = math.fsum(found.values())
        law = joint_law(counts, length, float(rate))
        assert all(math.isclose(found[members] / total, mass, rel_tol=1e-9) for members, mass in law.items())  # type: ignore[index]


WIDE: dict[str, tuple[int, ...]] = {
    "long tail": tuple(10**6 // rank for rank in range(1, 301)),
    "huge differences": tuple(10**9 * (300 - rank) + rank**2 for rank in range(300)),
    "one far ahead": (2**53 - 1, *[0] * 299),
    "all tied": (5,) * 300,
}


@pytest.mark.parametrize("epsilon", ["1e-9", "0.01", "1", "700", "1e300"])
@pytest.mark.parametrize("shape", WIDE)
def test_shares_are_enough_and_hardly_more(shape: str, epsilon: str) -> None:
    """A chance above 1 would be a law gone wrong; the shares that are lost in rounding make few draws again."""
    context, counts, rate = MPIntervalContext(), WIDE[shape], Fraction(epsilon) / 2
    context.prec = 192
    stretches = MODULE._stretches(counts, length=20, rate=float(rate))
    kept = 0.0
    for at in {*range(0, len(stretches.starts), 97), *stretches.shares.argsort()[-30:].tolist()}:
        number = sequences_within(counts, 20, int(stretches.starts[at]))
        chance = stretches.exact(at, sequences=number, rate=rate).chance(context)
        assert (chance.b <= 1) is True
        kept = max(kept, float(chance.a))
    assert kept > 0.999


@pytest.mark.parametrize("bits", [1, 3, 64])
@pytest.mark.parametrize("width", [None, Fraction(1, 20), Fraction(2)])
def test_the_coin_falls_as_often_as_it_should(
    width: Fraction | None, bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MODULE, "_MORE_BITS", bits)
    stretch = MODULE._Stretch(sequences=5, decay=Fraction(17, 10), width=width, shares=MODULE._UNITS)
    chance = 5 * math.exp(-1.7) * (1.0 if width is None else 1.0 - math.exp(-width))
    reader = BitReader(SeededNoise(7))
    kept = sum(MODULE._is_kept(stretch, reader) for _ in range(1_000))
    assert abs(kept - 1_000 * chance) <= 4 * math.sqrt(1_000 * chance * (1.0 - chance))


@pytest.mark.parametrize("candidates", [1, 2, 3, 20])
@pytest.mark.parametrize("k", [1, 3, 50])
def test_a_sequence_holds_a_candidate_once_and_is_paid_for_once(k: int, candidates: int) -> None:
    mechanism = JointExponential(Epsilon("0.4"), k)
    selection = mechanism.select(Histogram((0,) * candidates, 0), NOISE)
    assert len(selection.positions) == len(set(selection.positions)) == min(k, candidates)
    assert set(selection.positions) <= set(range(candidates))
    assert not selection.stopped_at_bottom
    assert mechanism.loss(selection) == mechanism.worst_case
    assert mechanism.worst_case.rho == Rho("0.02")
    assert mechanism.worst_case.delta == Delta(0)
    assert mechanism.name == "joint"


def test_an_empty_domain_returns_nothing_draws_nothing_and_costs_nothing() -> None:
    noise = ScriptedNoise()  # fails when it is asked for anything
    mechanism = JointExponential(Epsilon(1), 3)
    selection = mechanism.select(Histogram((), 0), noise)
    assert selection == Selection((), stopped_at_bottom=False)
    assert mechanism.loss(selection).rho.value == 0


@pytest.mark.parametrize("gap", [0, 1, 10**6, 5 * 10**11])
def test_ten_thousand_candidates_give_a_hundred(gap: int) -> None:
    counts = tuple(gap * rank for rank in range(10_000, 0, -1))
    selection = JointExponential(Epsilon(1), 100).select(Histogram(counts, 0), NOISE)
    assert len(set(selection.positions)) == 100
    if gap >= 10**6:
        assert selection.positions == tuple(range(100))
    assert worst_member(counts, selection.positions) < 3_000  # 2 / epsilon * (100 ln 10,000 + 100) is 2,042


@pytest.mark.parametrize("beta", [0.3, 0.05])
def test_every_member_is_as_near_its_rank_as_the_docstring_says(beta: float) -> None:
    closest = 0.0
    for epsilon in (0.5, 1.0, 4.0):
        for counts in [(40, *rest) for rest in combinations_with_replacement((40, 39, 30, 22, 12, 0), 3)]:
            for k in (1, 2, 3):
                room = 2 * math.log(math.perm(len(counts), k) / beta) / epsilon
                law: dict[Steps, float] = joint_law(counts, k, epsilon / 2)  # type: ignore[assignment]
                low = math.fsum(mass for members, mass in law.items() if worst_member(counts, members) > room)  # type: ignore[arg-type]
                closest = max(closest, low / beta)
    assert 0.2 < closest <= 1.0
