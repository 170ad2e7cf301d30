"""How much of what could be tried a run tries: always the same part, or all with DPSQL_WHOLE=1.

With DPSQL_FUZZ=1 Hypothesis draws a few new examples. No bound that a test checks depends on the part.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

__all__ = ["FUZZING", "WHOLE", "examples", "part_of"]

Item = TypeVar("Item")

FUZZING = bool(os.environ.get("DPSQL_FUZZ"))
WHOLE = bool(os.environ.get("DPSQL_WHOLE"))


def examples(count: int) -> int:
    """Return how many examples Hypothesis draws of `count`: a third, or a tenth where they are new ones."""
    part = 10 if FUZZING else 1 if WHOLE else 3
    return max(count // part, 5)


def part_of(items: Sequence[Item], *, every: int) -> list[Item]:
    """Return one of `every` items, or all of them with DPSQL_WHOLE=1."""
    return list(items if WHOLE else items[::every])
