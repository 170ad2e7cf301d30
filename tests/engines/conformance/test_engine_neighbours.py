"""On an engine a privacy unit adds to the counts what it has alone: at most 1, in its groups, and nobody else's.

Of the engines whose SQL is written in the same way one is asked, such as PostgreSQL for Redshift.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.engine_kits import KITS, kit_of
from support.fuzzing import WHOLE

from dpsql.testing.queries import load_queries
from dpsql.testing.suite import compare_neighbours, find_excess, open_neighbours

ENGINES = KITS if WHOLE else ("portable", "datafusion", "mysql", "postgres", "spark")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_unit_moves_counts_by_what_it_has_alone(engine: str) -> None:
    (result,) = compare_neighbours(kit_of(engine))
    assert result.compared
    assert not result.faults, result.describe()


@pytest.mark.mutant
def test_counts_that_others_move_are_caught() -> None:
    kit = kit_of("portable")
    (query,) = (query for query in load_queries() if query.name == "bound_one")
    among = open_neighbours(kit)[0]
    assert find_excess(query, among, kit=kit) == ""
    assert "with the unit" in find_excess(query, replace(among, without=among.alone), kit=kit)
