"""Counts made to fit what is known of them: none is below 0, and none is above the one before it in a ranking."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["fit_monotone"]


def fit_monotone(counts: Sequence[int]) -> list[int]:
    """Return the integers nearest, in least squares, that never rise along the ranking and are at least 0.

    Post-processing of noisy counts: nearer to the exact ones in all, if the ranking is that of the exact counts.
    Neighbours that rise are replaced by their mean until none do (pool adjacent violators); means are exact and then
    rounded, halves up, which keeps their order.
    Source: Ayer, Brunk, Ewing, Reid and Silverman 1955; Barlow and others 1972 for the bound at 0.

    >>> monotone([9, 4, 6, -3])
    [9, 5, 5, 0]
    """
    pools: list[tuple[int, int]] = []  # sum and size
    for count in counts:
        total, size = count, 1
        while pools and pools[-1][0] * size < total * pools[-1][1]:
            before, more = pools.pop()
            total, size = total + before, size + more
        pools.append((total, size))
    return [max(0, (2 * total + size) // (2 * size)) for total, size in pools for _ in range(size)]
