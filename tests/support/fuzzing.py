"""Number of examples that Hypothesis draws: all of them, always the same; or, with DPSQL_FUZZ=1, a few new ones."""

from __future__ import annotations

import os

__all__ = ["FUZZING", "examples"]

FUZZING = bool(os.environ.get("DPSQL_FUZZ"))


def examples(count: int) -> int:
    """Return how many examples to draw of `count`: a tenth with DPSQL_FUZZ=1, so that a run has a bounded time."""
    return max(count // 10, 5) if FUZZING else count
