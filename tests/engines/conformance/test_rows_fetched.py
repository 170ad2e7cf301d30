"""Which groups an engine returns behind a cut, by a reference in Python over all groups of the same engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import pytest
from support.engine_kits import KITS, kit_of

from dpsql.errors import Unsupported
from dpsql.mechanisms import unit_weight
from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.ir.statements import GroupCut, PrivateQuery
from dpsql.sql.ir.tree import Literal
from dpsql.sql.rewrite.engine_query import (
    Bound,
    EngineQuery,
    rewrite_all,
    rewrite_counts_and_weights,
    rewrite_weighted,
)
from dpsql.testing.queries import (
    NOON,
    SALTS,
    OpenEngine,
    accepts_pattern,
    build_statement,
    list_columns,
    open_kit,
    run_statement,
)

ONE, TWO = "article", "country, small"
BOUND = Bound(5, SALTS)
WEIGHTS = [unit_weight(groups) for groups in range(1, 6)]
Row = tuple[object, ...]


def private(opened: OpenEngine, keys: str, *, units: bool) -> PrivateQuery:
    text = f"SELECT {keys}, COUNT(DISTINCT user_id) FROM reads GROUP BY ALL TOP 9 PRIVATE"
    query = analyze(text, opened.catalog, accepts_pattern=accepts_pattern, clock=lambda: NOON)
    assert isinstance(query, PrivateQuery)
    return replace(query, reads_total=units)


def weighted(query: PrivateQuery) -> EngineQuery:
    return rewrite_weighted(query, bound=BOUND, weights=WEIGHTS, every=bool(query.group_cut and query.group_cut.names))


def both(query: PrivateQuery) -> EngineQuery:
    return rewrite_counts_and_weights(query, bound=BOUND, weights=WEIGHTS, of_all=True)


def counts(query: PrivateQuery) -> EngineQuery:
    return rewrite_all(query, bound=BOUND, every=bool(query.group_cut and query.group_cut.names))


def run(opened: OpenEngine, counting: EngineQuery) -> list[Row]:
    columns = list_columns(run_statement(opened.engine, build_statement(counting)))
    return list(zip(*(column[1:] for column in columns), strict=True))


CASES: dict[str, tuple[Callable[[PrivateQuery], EngineQuery], str, bool, GroupCut]] = {
    "weights": (weighted, ONE, False, GroupCut(3 * WEIGHTS[0], 3)),
    "weights, with the number of units": (weighted, TWO, True, GroupCut(2 * WEIGHTS[0], 3)),
    "weights, with counts of all groups": (both, ONE, True, GroupCut(2 * WEIGHTS[0], 2)),
    "counts": (counts, TWO, False, GroupCut(3, 2)),
}


@pytest.mark.parametrize("engine", KITS)
@pytest.mark.parametrize("case", CASES)
def test_an_engine_returns_the_groups_that_the_cut_leaves(engine: str, case: str) -> None:
    rewritten, keys, units, cut = CASES[case]
    opened = open_kit(kit_of(engine))
    query = private(opened, keys, units=units)
    try:
        whole = rewritten(query)
    except Unsupported:
        pytest.skip("it cannot draw the groups of a unit, so it has no mechanism with a cut")
    everything, counting = run(opened, whole), rewritten(replace(query, group_cut=cut))
    numbered = [(*row, number) for number, row in enumerate(everything, 1)]
    assert len(numbered) > 8
    assert run(opened, counting) == numbered, "without places every group is returned"
    ranked = len(keys.split(", ")) + (rewritten is not counts)
    for places in ([2, 5, 7][: cut.places], [4, len(numbered) - 1, len(numbered)][: cut.places]):
        behind = counting.select_places((*places, places[-1]))
        assert run(opened, behind) == kept(numbered, cut, places, ranked=ranked)


def kept(rows: Sequence[Row], cut: GroupCut, places: Sequence[int], *, ranked: int) -> list[Row]:
    """Return the rows that the cut leaves."""
    besides = {1, *places}
    value, last = cut.value or 0, places[-1]
    return [
        row for row in rows if cast("int", row[ranked]) >= value or row[-1] in besides or cast("int", row[-1]) > last
    ]


@pytest.mark.parametrize("engine", KITS)
@pytest.mark.parametrize("keys", [ONE, TWO])
def test_an_engine_returns_the_groups_whose_names_are_known(engine: str, keys: str) -> None:
    """NULL and names that no row has are among them; without a value there are no others but the first."""
    opened = open_kit(kit_of(engine))
    query, width = private(opened, keys, units=True), len(keys.split(", "))
    everything = run(opened, rewrite_all(query, every=True))
    chosen = [row[:width] for row in everything[2::3]]
    assert any(None in row[:width] for row in everything)
    chosen += [row[:width] for row in everything if None in row[:width]][:2]
    absent = tuple(None if each is None else type(each)("7") for each in everything[0][:width])
    names = tuple(
        tuple(Literal(value, key.type) for value, key in zip(each, query.keys, strict=True))  # type: ignore[arg-type]
        for each in (*chosen, absent)
    )
    alone = rewrite_all(replace(query, group_cut=GroupCut(names=names)), every=True)
    assert run(opened, alone) == [row for row in everything if row[:width] in chosen or row == everything[0]]
    try:
        whole = weighted(replace(query, group_cut=GroupCut(10**12, 1, names=names)))
    except Unsupported:
        return
    numbered = [(*row, number) for number, row in enumerate(run(opened, rewrite_every(query)), 1)]
    found = [
        (*row[:-1], 0) if row[:width] in chosen else row
        for row in numbered
        if row[:width] in chosen or row[-1] in {1, 4}
    ]
    assert run(opened, whole.select_places((4, len(numbered)))) == found


def rewrite_every(query: PrivateQuery) -> EngineQuery:
    return rewrite_weighted(query, bound=BOUND, weights=WEIGHTS, every=True)
