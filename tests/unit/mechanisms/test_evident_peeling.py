"""Peeling over known names with an evidence line: its law, what it costs, and how rarely it returns what no row has."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from fractions import Fraction

import numpy as np
import pytest
from support.evidence_kit import OPEN, Terms, chance_of_names, evident_law
from support.laws import BOTTOM, SeededNoise, discrete_gaussian_law, goodness

from dpsql.accounting import ZCDP
from dpsql.errors import UsageError
from dpsql.mechanisms import EvidenceGate, EvidentPeeling, EvidentSelection, FullHistogram, GaussianHistogram, Noise
from dpsql.mechanisms.base import LabelPosition, NoisyRelease
from dpsql.mechanisms.gaussian_threshold import WeightedGaussian, find_line, keep_evident
from dpsql.quantities import Delta, Epsilon, Rho


def outcome(selection: EvidentSelection) -> tuple[int | str, ...]:
    """Return a selection as an outcome of the reference law."""
    first, behind = selection.positions[: selection.above], selection.positions[selection.above :]
    stopped = (BOTTOM,) if selection.stopped_at_bottom else ()
    return (*first, *stopped, *((OPEN, *behind) if selection.gate_opened else ()))


LAWS: list[tuple[str, int, list[int], int, bool]] = [
    ("2", 3, [3, 0, 1, 0], 1, True),
    ("1", 2, [2, 4, 0], 1, True),
    ("3", 3, [0, 0, 0], 1, True),
    ("4", 2, [4, -3, 2, 0], 2, True),
    ("2", 1, [1, 2], 1, True),
    ("2", 3, [3, 1, 0, 0], 1, False),
]


@pytest.mark.parametrize(("epsilon", "k", "counts", "most", "has_gate"), LAWS)
def test_the_selection_has_its_law(epsilon: str, k: int, counts: list[int], most: int, has_gate: bool) -> None:
    mechanism, noise, seen = EvidentPeeling(Epsilon(epsilon), k, most, has_gate), SeededNoise(7), Counter[Hashable]()
    for _ in range(2_000):
        seen[outcome(mechanism.select(counts, noise))] += 1
    expected = evident_law(counts, Terms(float(epsilon), k, most, has_gate))
    assert math.fsum(expected.values()) == pytest.approx(1)
    assert goodness(seen, expected) > 1e-6


@pytest.mark.parametrize("names", [20, 200, 2_000])
@pytest.mark.parametrize("k", [1, 2, 10])
@pytest.mark.parametrize("has_gate", [True, False])
def test_names_that_no_row_has_are_returned_in_one_of_twenty_answers(names: int, k: int, has_gate: bool) -> None:
    """Exactly, of the numbers that the mechanism uses: 0.048, or 0.0476 without a gate, and not 0.024 or 0.098."""
    mechanism = EvidentPeeling(Epsilon("0.05"), k, 1, has_gate)
    beaten = math.exp(0.05 * float(mechanism.find_bottom(names)))
    chance = names / (names + beaten)
    if has_gate and k > 1:
        gate = mechanism.gate(0)
        law = discrete_gaussian_law(gate.variance)
        chance += (1 - chance) * math.fsum(mass for n, mass in law.items() if n >= gate.height)
    assert 0.046 < chance <= 0.05
    assert chance == pytest.approx(chance_of_names(Terms(0.05, k, 1, has_gate)), abs=1e-6)


@pytest.mark.parametrize("names", [20])
def test_so_many_answers_without_a_row_have_names(names: int) -> None:
    mechanism, noise, draws = EvidentPeeling(Epsilon("0.1"), 10), SeededNoise(names), 3_000
    returned = sum(bool(mechanism.select([0] * names, noise).positions) for _ in range(draws))
    deviation = math.sqrt(draws * 0.048 * 0.952)
    assert abs(returned - draws * 0.048) < 4.5 * deviation  # 0.024 and 0.098 are 6 and 13 of these away


def test_absent_names_are_candidates_of_bottom() -> None:
    """With ten names that have rows and 190 without, BOTTOM stands where it does with 200 of either kind."""
    mechanism, seen = EvidentPeeling(Epsilon("0.1"), 10), list[float]()

    class Watched(EvidentPeeling):
        def find_bottom(self, candidates: int) -> Fraction:
            seen.append(candidates)
            return mechanism.find_bottom(candidates)

    for counts in ([0] * 200, [5] * 10 + [0] * 190, [5] * 200):
        Watched(Epsilon("0.1"), 10).select(counts, SeededNoise(1))
    assert seen == [200, 200, 200]


def test_a_name_of_many_units_is_always_returned_and_bottom_does_not_rise_with_it() -> None:
    mechanism, noise = EvidentPeeling(Epsilon("0.1"), 3), SeededNoise(3)
    selections = [mechanism.select([0, 900, 0, 0], noise) for _ in range(50)]
    assert {each.positions[0] for each in selections} == {1}
    assert min(each.above for each in selections) == 1
    assert {each.gate_opened for each in selections if each.above == 1} <= {True, False}  # an item is left for it


class Counted:
    """Counts the bytes of noise that are drawn."""

    def __init__(self, noise: Noise) -> None:
        self.noise, self.drawn = noise, 0

    def draw(self, count: int) -> bytes:
        self.drawn += count
        return self.noise.draw(count)


def test_the_noise_of_the_gate_is_drawn_whatever_the_counts_are() -> None:
    for largest in (0, 10**6, -(10**6)):
        noise = Counted(SeededNoise(1))
        EvidenceGate(Rho("0.01"), Fraction(1, 40)).opens(largest, noise)
        assert noise.drawn > 0


@pytest.mark.parametrize("variance", ["0.25", "1", "3", "400"])
@pytest.mark.parametrize("probability", [Fraction(1, 20), Fraction(1, 40)])
def test_the_height_is_the_least_integer_that_noise_reaches_so_rarely(variance: str, probability: Fraction) -> None:
    gate = EvidenceGate(Rho(1 / (2 * Fraction(variance))), probability)
    assert gate.variance == Fraction(variance)
    law = discrete_gaussian_law(gate.variance)

    def tail(least: int) -> float:
        return math.fsum(mass for n, mass in law.items() if n >= least)

    assert tail(gate.height) <= probability < tail(gate.height - 1)


CHARGES = [
    (EvidentSelection((4, 2, 3), 3, stopped_at_bottom=False), "3"),
    (EvidentSelection((4, 2), 2, stopped_at_bottom=True), "3"),
    (EvidentSelection((), 0, stopped_at_bottom=True, gate_opened=False), "1.2"),
    (EvidentSelection((4,), 1, stopped_at_bottom=True, gate_opened=False), "2.1"),
    (EvidentSelection((4, 1, 2), 1, stopped_at_bottom=True, gate_opened=True), "3"),
    (EvidentSelection((1, 2, 4), 0, stopped_at_bottom=True, gate_opened=True), "3"),
]


@pytest.mark.parametrize(("selection", "items"), CHARGES)
def test_the_charge_is_a_function_of_the_answer_and_never_above_k_items(
    selection: EvidentSelection, items: str
) -> None:
    mechanism = EvidentPeeling(Epsilon("0.4"), 3)
    assert mechanism.items(selection) == Fraction(items)
    assert mechanism.loss(selection) == ZCDP(Rho(Fraction(items) * Fraction("0.02")), Delta(0))
    assert mechanism.loss(selection).rho <= mechanism.worst_case.rho


@pytest.mark.parametrize("k", [2, 3, 10, 100])
def test_the_steps_of_every_path_add_up_to_k_items_at_most(k: int) -> None:
    mechanism = EvidentPeeling(Epsilon("0.3"), k, 4)
    item = mechanism.epsilon.value**2 / 8
    for above in range(k - 1):
        gate = Fraction(4) ** 2 / (2 * mechanism.gate(above).variance)
        behind = (k - above) * mechanism.epsilon_behind(above) ** 2 / 8
        assert gate == item * (k - above - 1) / 10
        assert 0 <= k * item - ((above + 1) * item + gate + behind) < Fraction(1, 10**20)
    assert mechanism.left(k - 1) == 0


def test_what_means_nothing_is_refused() -> None:
    for wrong in ({"k": 0}, {"k": 1, "sensitivity": 0}):
        with pytest.raises(UsageError):
            EvidentPeeling(Epsilon(1), **wrong)
    with pytest.raises(UsageError, match="epsilon of a draw"):
        EvidentPeeling(Epsilon("1e-10"), 1)
    with pytest.raises(UsageError, match="known names"):
        EvidentPeeling(Epsilon(1), 1).select([2**53], SeededNoise(1))


def test_no_candidates_are_no_draw() -> None:
    mechanism = EvidentPeeling(Epsilon(1), 2)
    nothing = mechanism.select([], SeededNoise(1))
    assert (nothing.positions, mechanism.items(nothing)) == ((), 0)


@pytest.mark.parametrize("names", [1, 20, 200, 100_000])
@pytest.mark.parametrize("variance", ["0.3", "2", "500"])
def test_the_line_is_the_least_integer_that_the_largest_noise_of_all_reaches_so_rarely(
    names: int, variance: str
) -> None:
    line, law = find_line(Fraction(variance), names), discrete_gaussian_law(Fraction(variance))

    def chance(least: int) -> float:
        return -math.expm1(names * math.log1p(-math.fsum(mass for n, mass in law.items() if n >= least)))

    assert chance(line) <= 0.05 < chance(line - 1)


def test_known_names_below_the_line_are_left_out_and_no_others() -> None:
    line = find_line(Fraction(4), 3)
    positions = tuple(map(LabelPosition, (1, 5, 0, 2, 4)))
    released = NoisyRelease(positions, (line + 1, line, line, line - 1, line - 2))
    kept = keep_evident(released, 3, variance=Fraction(4))
    assert (kept.positions, kept.counts) == ((1, 5, 0, 4), (line + 1, line, line, line - 2))
    assert keep_evident(released, 0, variance=Fraction(4)) == released


@pytest.mark.parametrize("names", [20])
@pytest.mark.parametrize("make", [GaussianHistogram, WeightedGaussian])
def test_a_line_on_values_lets_names_without_rows_through_in_one_of_twenty_releases(
    names: int, make: type[GaussianHistogram | WeightedGaussian]
) -> None:
    mechanism, noise, draws = make(Rho("0.0002"), Delta("1e-9"), 10, 5), SeededNoise(names), 1_500
    absent, nothing = np.zeros(names, np.int64), FullHistogram.of([])

    def returned(known: Sequence[LabelPosition]) -> bool:
        return bool(known)

    found = sum(
        returned(
            keep_evident(mechanism.release(nothing, noise, known=absent), names, variance=mechanism.variance).positions
        )
        for _ in range(draws)
    )
    assert abs(found - draws * 0.05) < 4.5 * math.sqrt(draws * 0.05 * 0.95)
