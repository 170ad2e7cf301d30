"""Under a bound an engine keeps, for each unit, the groups with the smallest draws.

A keyed hash of its own is tested besides. A digest that keeps the groups of the reference is that of the reference.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest
from support.engine_kits import KITS, kit_of
from support.fuzzing import WHOLE

from dpsql.testing.draws import can_draw, check_draws, draw_by_digest, find_draw_faults, has_keyed_hash
from dpsql.testing.queries import open_kit


@pytest.mark.parametrize("engine", KITS)
def test_an_engine_keeps_the_groups_of_the_least_draws(engine: str) -> None:
    kit = kit_of(engine)
    opened = open_kit(kit)
    drawing = draw_by_digest(opened)
    faults = list(find_draw_faults(drawing)) if can_draw(drawing) else []
    if has_keyed_hash(opened) or WHOLE:
        faults += check_draws(kit)
    elif not can_draw(drawing):
        pytest.skip("it has no MD5, and refuses every bound")
    assert not faults


@pytest.mark.mutant
def test_a_draw_by_another_hash_is_caught() -> None:
    held = open_kit(kit_of("portable"))
    wrong = MappingProxyType({**held.catalog.dialect.forms, "md5": "md5(reverse({0}))"})
    catalog = replace(held.catalog, dialect=replace(held.catalog.dialect, forms=wrong))
    assert len(list(find_draw_faults(replace(held, catalog=catalog)))) == 9
    assert list(find_draw_faults(held)) == []
