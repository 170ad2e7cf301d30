"""Law of the joint exponential mechanism: its loss and its rate, for every neighbour of small histograms."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from itertools import combinations_with_replacement, permutations, product

from properties.mechanisms.laws.record import Bar, MechanismLaw
from support.laws import Law, renyi

from dpsql.mechanisms import JointExponential
from dpsql.quantities import Epsilon

ORDERS = (1.001, 2.0, 16.0)


Loss = Callable[[Sequence[int], Sequence[int]], float]  # of the counts of candidates a, b, ..., and of some of these


def worst_member(counts: Sequence[int], members: Sequence[int]) -> float:
    return max(high - counts[at] for high, at in zip(sorted(counts, reverse=True), members, strict=False))


def summed(counts: Sequence[int], members: Sequence[int]) -> float:
    return sum(high - counts[at] for high, at in zip(sorted(counts, reverse=True), members, strict=False))


def ranks_behind(counts: Sequence[int], members: Sequence[int]) -> float:
    """Return how many ranks the worst member lies behind, ties being broken by position."""
    order = sorted(range(len(counts)), key=lambda at: (-counts[at], at))
    return max(order.index(at) - rank for rank, at in enumerate(members))


def twice_at_ties(counts: Sequence[int], members: Sequence[int]) -> float:
    """Return the loss, with one more for a member of the right count at a later position than its rank's own."""
    order = sorted(range(len(counts)), key=lambda at: (-counts[at], at))
    return max(
        counts[order[rank]] - counts[at] + 2 * (counts[order[rank]] == counts[at] and order.index(at) > rank)
        for rank, at in enumerate(members)
    )


def of_those_present(counts: Sequence[int], members: Sequence[int]) -> float:
    return worst_member(counts, members) if all(counts[at] for at in members) else 100.0


@cache
def log_law(counts: tuple[int, ...], k: int, rate: float, loss: Loss) -> Law:
    """Return the logarithms of the probabilities of all sequences of candidates."""
    exponents = {each: -rate * loss(counts, each) for each in permutations(range(len(counts)), min(k, len(counts)))}
    highest = max(exponents.values())
    total = highest + math.log(math.fsum(math.exp(each - highest) for each in exponents.values()))
    return {members: each - total for members, each in exponents.items()}


def worst(loss: Loss = worst_member, share: float = 0.5) -> tuple[float, float, float]:
    """Return the worst ratio, range and Renyi divergence of any neighbours, as parts of what is claimed."""
    found = (0.0, 0.0, 0.0)
    for mechanism in [JointExponential(Epsilon(epsilon), k) for epsilon in ("0.1", "3") for k in (1, 2, 3, 4)]:
        epsilon, rho = float(mechanism.epsilon), float(mechanism.worst_case.rho)
        for candidates in (1, 2, 3, 4):
            for counts in combinations_with_replacement((4, 2, 1, 0), candidates):
                for unit in product((0, 1), repeat=candidates):
                    more = tuple(count + own for count, own in zip(counts, unit, strict=True))
                    here, there = (log_law(each, mechanism.k, share * epsilon, loss) for each in (counts, more))
                    ratios = [here[members] - there[members] for members in here]
                    orders = [
                        renyi(*pair, order) / (order * rho)
                        for pair in ((here, there), (there, here))
                        for order in ORDERS
                    ]
                    this = (max(map(abs, ratios)) / epsilon, (max(ratios) - min(ratios)) / epsilon, max(orders))
                    found = tuple(map(max, found, this))  # type: ignore[assignment]
    return found


MISTAKES: dict[str, tuple[Loss, float]] = {
    "no half": (worst_member, 1.0),
    "losses summed, as k draws are, and paid for once": (summed, 1.0),
    "ranks in place of counts": (ranks_behind, 0.5),
    "ties by position": (twice_at_ties, 0.5),
    "absent candidates pushed back": (of_those_present, 0.5),
}


def wrong(loss: Loss, share: float) -> Bar:
    def worst_of_both() -> float:
        ratio, width, order = worst(loss, share)
        return min(width, max(ratio, order))

    return 1.4, worst_of_both


LAW = MechanismLaw(
    claims={
        "ratio": (0.7, lambda: worst()[0]),
        "range": (0.99, lambda: worst()[1]),
        "Renyi": (0.6, lambda: worst()[2]),
    },
    mistakes={name: wrong(*mistake) for name, mistake in MISTAKES.items()},
)
