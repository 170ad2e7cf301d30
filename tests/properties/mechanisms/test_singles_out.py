"""Draws single out their own law: the right one passes, the stated wrong one and a third one do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from fractions import Fraction

import numpy as np
import pytest
from support.laws import Law, chance, discrete_gaussian_law, discrete_laplace_law, singles_out

SOURCE = np.random.default_rng(7)
LAWS: dict[str, tuple[Law, Law, Law]] = {
    "an event": (chance(0.1), chance(0.16), chance(0.3)),
    "noise": tuple(discrete_gaussian_law(Fraction(variance)) for variance in (4, 2, 9)),  # type: ignore[dict-item]
    "an impossible outcome": ({"a": 0.6, "b": 0.4}, {"a": 1.0}, {"a": 0.1, "b": 0.9}),
    "another kind": (discrete_laplace_law(Fraction(2)), discrete_laplace_law(Fraction(1)), {0: 1.0}),
}


def sampling(law: Law, seen: list[int]) -> Callable[[int], Counter[Hashable]]:
    """Return a sampler of a law that notes how much was drawn."""
    events, masses = list(law), np.array([*law.values()])

    def sample(runs: int) -> Counter[Hashable]:
        seen.append(runs)
        found = SOURCE.multinomial(runs, masses / masses.sum())
        return Counter({event: int(count) for event, count in zip(events, found, strict=True) if count})

    return sample


@pytest.mark.parametrize("name", LAWS)
def test_draws_single_out_their_own_law(name: str) -> None:
    law, wrong, third = LAWS[name]
    runs, halves = list[int](), 0
    for _ in range(50):
        before = len(runs)
        assert singles_out(law, wrong, sample=sampling(law, runs))
        assert len(runs) - before <= 2, "a second chance was needed"
        halves += len(runs) - before == 1
    assert halves > 30, "half of the draws are seldom enough"
    assert sum(runs) < 50 * 2_500
    assert not any(singles_out(law, wrong, sample=sampling(other, runs)) for _ in range(50) for other in (wrong, third))
