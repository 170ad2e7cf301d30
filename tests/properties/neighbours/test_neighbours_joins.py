"""Drop one privacy unit from all private tables at once, under queries over several of them: counts move by at most 1.

And only in groups that the unit is in, alone among its own rows. What is counted is what DuckDB counts in the text.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.fuzzing import examples
from support.sql_joins import SHAPES, UNITS, Asked, asked, fill, opened
from support.sql_reference import Row, catalog_of, counts, drop_unit, find_moves, keep_unit, private, same

from dpsql.sql.analysis import from_clause
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import Bound

CON = opened()
CATALOG = catalog_of(CON, {"reads": "unit", "likes": "unit"}, ["tags"])
ROWS = st.lists(
    st.tuples(st.sampled_from(UNITS), st.sampled_from([None, "x", "y", "X"]), st.sampled_from([None, 0, 1, 2])),
    max_size=7,
)
EXAMPLES = settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])


def read(question: Asked) -> PrivateQuery:
    """Return the query, however many tables it names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(from_clause, "MAX_TABLES", 40)
        return private(question.text(), CATALOG)


@pytest.mark.parametrize("shape", SHAPES)
@EXAMPLES
@given(st.integers(0, 2**63), ROWS, ROWS, st.sampled_from(UNITS[1:]))
def test_dropping_a_unit_everywhere_moves_no_count_by_more_than_one(
    shape: str, seed: int, reads: list[Row], likes: list[Row], unit: int
) -> None:
    query = read(asked(Random(seed), shape))
    found = []
    for part in (lambda rows: rows, lambda rows: drop_unit(rows, unit), lambda rows: keep_unit(rows, unit)):
        fill(CON, part(reads), part(likes))
        found.append(counts(CON, query))
    before, after, alone = found
    changes = find_moves(before, after)
    assert set(changes.values()) <= {0, 1}
    assert {key for key, change in changes.items() if change} == set(alone)


@pytest.mark.parametrize("shape", SHAPES)
@settings(EXAMPLES, max_examples=examples(40))
@given(st.integers(0, 2**63), ROWS, ROWS)
def test_a_bound_keeps_of_each_unit_what_it_keeps_alone(
    shape: str, seed: int, reads: list[Row], likes: list[Row]
) -> None:
    query, bound, kept = read(asked(Random(seed), shape)), Bound(2, (1, 2)), dict[Row, int]()
    for unit in UNITS[1:]:
        fill(CON, keep_unit(reads, unit), keep_unit(likes, unit))
        alone = counts(CON, query, bound)
        assert len(alone) == sum(alone.values()) <= bound.max_groups_contributed
        kept = {key: kept.get(key, 0) + alone.get(key, 0) for key in kept.keys() | alone.keys()}
    fill(CON, reads, likes)
    assert counts(CON, query, bound) == kept


@pytest.mark.parametrize("shape", SHAPES)
@EXAMPLES
@given(st.integers(0, 2**63), ROWS, ROWS)
def test_what_is_counted_is_what_duckdb_counts(shape: str, seed: int, reads: list[Row], likes: list[Row]) -> None:
    question = asked(Random(seed), shape)
    fill(CON, reads, likes)
    found = counts(CON, read(question))
    if question.alike and question.counted and " NOT IN " not in question.origin and " IS NULL" not in question.origin:
        rows = CON.execute(question.reference()).fetchall()
        assert found == {same(row[:-1]): row[-1] for row in rows if row[-1]}
