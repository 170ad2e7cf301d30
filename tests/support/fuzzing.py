"""Number of examples that Hypothesis draws: always the same ones; or, with DPSQL_FUZZ=1, a few new ones."""

from __future__ import annotations

import os

__all__ = ["FUZZING", "WHOLE", "examples"]

FUZZING = bool(os.environ.get("DPSQL_FUZZ"))
WHOLE = bool(os.environ.get("DPSQL_WHOLE"))


def examples(count: int) -> int:
    """Return how many examples to draw of `count`, all with DPSQL_WHOLE=1.

    It is half of them, and a tenth with DPSQL_FUZZ=1, so that a run has a bounded time.
    """
    part = 10 if FUZZING else 1 if WHOLE else 2
    return max(count // part, 5)
