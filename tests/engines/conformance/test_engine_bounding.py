"""Under a bound an engine keeps, for each unit, the groups with the smallest draws."""

from __future__ import annotations

import pytest
from support.engine_kits import KITS, kit_of

from dpsql.testing.suite import draw_groups


@pytest.mark.parametrize("engine", [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in KITS])
def test_an_engine_keeps_the_groups_of_the_least_draws(engine: str) -> None:
    (result,) = draw_groups(kit_of(engine))
    assert not result.faults, result.describe()
    if result.refused:
        pytest.skip("it has no MD5, and refuses every bound")
