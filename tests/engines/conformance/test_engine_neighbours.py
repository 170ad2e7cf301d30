"""On every engine a privacy unit adds to the counts what it has alone: at most 1, in its groups, and nobody else's."""

from __future__ import annotations

import pytest
from support.engine_kits import KITS, kit_of

from dpsql.testing.suite import compare_neighbours


@pytest.mark.parametrize("engine", [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in KITS])
def test_a_unit_moves_counts_by_what_it_has_alone(engine: str) -> None:
    (result,) = compare_neighbours(kit_of(engine))
    assert result.compared
    assert not result.faults, result.describe()
