"""Tests of the pytest plugin, one for each part of the suite and each engine of `--dpsql-engine`."""

from __future__ import annotations

import pytest

from dpsql.testing.kit import Kit, find_kit
from dpsql.testing.suite import run_checks

__all__ = ["dpsql_kit", "test_an_engine_answers_as_duckdb_does"]


@pytest.fixture(scope="session")
def dpsql_kit(request: pytest.FixtureRequest) -> Kit:
    """Kit of an engine, with the sample of the options."""
    kit = find_kit(request.param, request.config.getoption("--dpsql-url"))
    every = request.config.getoption("--dpsql-sample")
    return kit if every is None else kit.sample(every)


def test_an_engine_answers_as_duckdb_does(dpsql_kit: Kit, dpsql_part: str) -> None:
    """Fail with what differs; cases that the engine refuses are skipped."""
    results = list(run_checks(dpsql_kit, [dpsql_part]))
    faults = "\n".join(result.describe() for result in results if result.faults)
    if faults:
        pytest.fail(faults, pytrace=False)
    if not any(result.compared for result in results):
        pytest.skip("The engine refuses all of it, or the sample has none.")
