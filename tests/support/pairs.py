"""Parameters of a test in fewer combinations than their product: each two values of two parameters meet once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product

__all__ = ["list_pairs"]


def list_pairs(*parameters: Sequence[object]) -> list[tuple[object, ...]]:
    """Return combinations of values, in the order of their product, in which all pairs of two parameters occur.

    Each is the combination that brings the most new pairs, of several the first.
    """
    rows = list(product(*(range(len(values)) for values in parameters)))
    pairs = {
        row: {(one, row[one], other, row[other]) for one, other in combinations(range(len(row)), 2)} for row in rows
    }
    missing = set[tuple[int, int, int, int]]().union(*pairs.values())
    chosen = list[tuple[int, ...]]()
    while missing:
        best = max(rows, key=lambda row: len(pairs[row] & missing))
        chosen.append(best)
        missing -= pairs[best]
    return [tuple(values[at] for values, at in zip(parameters, row, strict=True)) for row in sorted(chosen)]
