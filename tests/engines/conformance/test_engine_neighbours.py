"""On every engine a privacy unit adds to the counts what it has alone: at most 1, in its groups, and nobody else's."""

from __future__ import annotations

import pytest
from support.engine_kits import KITS, kit_of

from dpsql.testing.neighbours import find_excess, generate_queries, open_neighbours
from dpsql.testing.queries import load_queries

GENERATED = 25


@pytest.mark.parametrize("engine", [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in KITS])
def test_a_unit_moves_counts_by_what_it_has_alone(engine: str) -> None:
    kit = kit_of(engine)
    asked = [*(each for each in load_queries() if " PRIVATE" in each.text), *generate_queries(GENERATED)]
    wrong = [
        f"{each.name}, {among.name}: {found}"
        for among in open_neighbours(kit)
        for each in asked[:: kit.share]
        if (found := find_excess(each, among, kit=kit))
    ]
    assert not wrong, "\n".join(wrong)
