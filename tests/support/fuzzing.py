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
    """Return how many examples Hypothesis draws of `count`: a tenth, the same ones or new ones, or all."""
    return count if WHOLE and not FUZZING else max(count // 10, 5)


def part_of(items: Sequence[Item], *, every: int) -> list[Item]:
    """Return one of `every` items, or all of them with DPSQL_WHOLE=1."""
    return list(items if WHOLE else items[::every])
