"""Trino's forms on Velox, which is not in CI: `DPSQL_VELOX` names a Python that has pyvelox and pyarrow."""

from __future__ import annotations

import os

import pytest
from support.fuzzing import WHOLE

from dpsql.testing.suite import compare_forms

OTHERWISE = ("neq(DECIMAL(10, 2), BIGINT)", "neq(DOUBLE, BIGINT)")  # Trino takes 0 as a number of either type
UNTESTED = {'"cast FLOAT DOUBLE"'}  # the tables have no FLOAT


@pytest.mark.skipif("DPSQL_VELOX" not in os.environ, reason="Velox is not installed: DPSQL_VELOX names its Python")
def test_every_form_of_trino_gives_in_velox_what_duckdb_gives() -> None:
    from support.velox_kit import KIT

    results = list(compare_forms(KIT.sample(1) if WHOLE else KIT))
    compared = sum(result.compared for result in results[:-1])
    faults = [fault for result in results[:-1] for fault in result.faults]
    assert compared > 100
    assert [fault for fault in faults if not any(sign in fault[1] for sign in OTHERWISE)] == []
    assert {case for case, _ in results[-1].faults} <= UNTESTED
