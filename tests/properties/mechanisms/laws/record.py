"""Record of the law of one mechanism, beside its claim, and of the mistakes that the comparison must catch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

__all__ = ["Bar", "MechanismLaw", "over_cases"]

Cases = TypeVar("Cases")
Variant = TypeVar("Variant")
Bar = tuple[float, Callable[[], float]]


@dataclass(frozen=True)
class MechanismLaw:
    """Exact laws of one mechanism on tiny universes, for neighbours in both directions.

    A number is the worst factor by which neighbours exceed the claimed loss. `claims` has sets of neighbours, each with
    a part of the claim that is attained: the factor is above it, and at most 1. `mistakes` has known wrong mechanisms,
    each with a number that the factor exceeds.
    """

    claims: Mapping[str, Bar]
    mistakes: Mapping[str, Bar]


def over_cases(
    worst: Callable[..., float],
    mistakes: Mapping[str, tuple[float, Variant]],
    *,
    edges: Sequence[Cases],
    attained: float,
    random_cases: Callable[[int, int], Sequence[Cases]] = lambda _, __: [],
    sizes: Sequence[int] = (),
) -> MechanismLaw:
    """Return the law of a mechanism whose neighbours are random cases, so many for each seed, and edges.

    `worst` takes cases and a variant of the mechanism, which is production's by default; mistakes are variants.
    """

    def drawn(seed: int) -> Bar:
        return -1.0, lambda: worst(random_cases(sizes[seed], seed))

    def wrong(factor: float, variant: Variant) -> Bar:
        return factor, lambda: worst(edges, variant)

    return MechanismLaw(
        claims={
            "edges": (attained, lambda: worst(edges)),
            **{f"seed {seed}": drawn(seed) for seed in range(len(sizes))},
        },
        mistakes={name: wrong(*mistake) for name, mistake in mistakes.items()},
    )
