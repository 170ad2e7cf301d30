"""Both evaluators of released rows: in this process, and in a worker."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing

import pytest

from dpsql.engines.duckdb.evaluator import SharedEvaluator, WorkerEvaluator

__all__ = ["evaluated"]


@pytest.fixture(
    scope="module", autouse=True, params=["in_process", pytest.param("process", marks=pytest.mark.properties)]
)
def evaluated(request: pytest.FixtureRequest) -> Iterator[None]:
    """Where released rows are computed with: every test of a module that imports this runs with both."""
    if request.param == "in_process":
        yield
        return
    with pytest.MonkeyPatch.context() as patched, closing(WorkerEvaluator()) as workers:
        patched.setattr(sys.modules["dpsql.connect"], "open_evaluator", lambda *_, **__: SharedEvaluator(workers))
        yield
