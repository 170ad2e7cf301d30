"""Under a bound an engine keeps, for each unit, the groups with the smallest draws."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest
from support.engine_kits import KITS, kit_of

from dpsql.testing.draws import find_draw_faults
from dpsql.testing.queries import open_kit
from dpsql.testing.suite import draw_groups


@pytest.mark.parametrize("engine", [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in KITS])
def test_an_engine_keeps_the_groups_of_the_least_draws(engine: str) -> None:
    (result,) = draw_groups(kit_of(engine))
    assert not result.faults, result.describe()
    if result.refused:
        pytest.skip("it has no MD5, and refuses every bound")


@pytest.mark.mutant
def test_a_draw_by_another_hash_is_caught() -> None:
    held = open_kit(kit_of("portable"))
    wrong = MappingProxyType({**held.catalog.dialect.forms, "md5": "md5(reverse({0}))"})
    catalog = replace(held.catalog, dialect=replace(held.catalog.dialect, forms=wrong))
    assert len(list(find_draw_faults(replace(held, catalog=catalog)))) == 9
    assert list(find_draw_faults(held)) == []
