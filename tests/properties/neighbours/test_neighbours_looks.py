"""Drop one unit: by how much the two looks move, from what the engine returns to both statements of a query.

The sums are taken without their noise. What a unit moves is at most what the noise is for, in either direction, and
next to all of it is found on small tables, so that a sum that moves further would be seen.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from itertools import product

import duckdb
import pytest
from support.laws import SeededNoise
from support.looks_kit import second_alone
from support.session_kit import session_on
from support.sql_reference import drop_unit
from support.sql_reference import fill as fill_table

import dpsql
from dpsql.engines import Statement, open_exact
from dpsql.mechanisms import Histogram
from dpsql.mechanisms.gate import Look
from dpsql.mechanisms.two_looks import TwoLooks
from dpsql.plan import Plan
from dpsql.plan.release import _read_groups
from dpsql.session import Session

LABELS = [None, "", "a", "A", "b", "c", "d", "e"]
SQL = "SELECT k, COUNT(DISTINCT unit) AS n FROM reads GROUP BY k TOP {k} PRIVATE WITH (epsilon = 5, delta = 0.4{more})"
CON = duckdb.connect()
CON.execute("CREATE TABLE reads (unit BIGINT, k VARCHAR)")
Row = tuple[int | None, str | None]


@pytest.fixture(scope="module")
def session() -> Session:
    tables = {"reads": dpsql.PrivateTable("unit")}
    return session_on(CON, dpsql.Policy(dpsql.Budget(100, "0.9"), tables, limits=dpsql.Limits(max_epsilon=5)))


fill = partial(fill_table, CON, "reads")


def tables(seed: int, number: int, groups: int) -> Iterator[list[Row]]:
    """Yield small tables: units in one group, in a few or in all, some rows twice, and rows of nobody.

    In the first, two units are in as many groups as count for one, so that no bound draws which those are.
    """
    yield [(unit, label) for unit in (1, 2) for label in LABELS[1 : 1 + groups]]
    draw = random.Random(seed)
    for _ in range(number):
        rows = list[Row]()
        for unit in range(draw.randint(1, 9)):
            for label in draw.sample(LABELS, draw.choice([1, 1, 2, 4, len(LABELS)])):
                rows += [(unit, label)] * draw.choice([1, 1, 2])
        rows += [(None, draw.choice(LABELS))] * draw.randint(0, 2)
        draw.shuffle(rows)
        yield rows


def look(session: Session, plan: Plan) -> tuple[int, int]:
    """Return the sums of both looks, in whole steps, without noise."""
    looks, groups = plan.mechanism_plan.selection, []
    assert isinstance(looks, TwoLooks)
    for each in (plan, second_alone(plan)):
        counting = each.counting
        exact = session._dependencies.engine.execute(Statement(counting.sql, counting.parameters, counting.types))
        groups.append(_read_groups(each, open_exact(exact)))
    leaders = Histogram.of_leaders(tuple(groups[0].counts.tolist()), looks.k_bar)
    noise = SeededNoise(0)
    first, second = looks.look_at_counts(leaders, noise), looks.look_at_weights(groups[1].weights, noise)
    return int(first), int(second)


CASES = [*product((1, 2, 4), ("", ", max_groups_contributed = 1", ", max_groups_contributed = 3")), (2, ", k_bar = 2")]
CASES.append((2, ", k_bar = 2, max_groups_contributed = 1"))


@pytest.mark.parametrize(("k", "more"), CASES)
def test_a_unit_moves_neither_look_by_more_than_its_noise_is_for(
    session: Session, monkeypatch: pytest.MonkeyPatch, k: int, more: str
) -> None:
    monkeypatch.setattr(Look, "draw", lambda _self, total, _noise: Fraction(total))
    plan = session.explain(SQL.format(k=k, more=more))
    looks: TwoLooks = plan.mechanism_plan.selection
    groups, most = looks.max_groups_contributed or k, [0, 0]
    for rows in tables(7 * k, 15, groups):
        fill(rows)
        whole = look(session, plan)
        for unit in {unit for unit, _ in rows} - {None}:
            fill(drop_unit(rows, unit))
            fewer = look(session, plan)
            for at, claimed in enumerate((looks.first.sensitivity, looks.gate.look.sensitivity)):
                moved = abs(whole[at] - fewer[at])
                assert moved <= claimed
                most[at] = max(most[at], moved)
    assert looks.first.sensitivity == k
    assert most[0] >= min(k, groups)  # as many leaders, each by one; and all of them where number k_bar + 1 moves
    assert most[1] >= 0.7 * looks.gate.look.sensitivity


def test_a_bound_on_groups_is_none_on_how_far_a_unit_moves_the_first_look(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The count after the leaders is subtracted from all of them: one unit in one group moves both by 1."""
    monkeypatch.setattr(Look, "draw", lambda _self, total, _noise: Fraction(total))
    plan = session.explain(SQL.format(k=2, more=", k_bar = 2, max_groups_contributed = 1"))
    looks: TwoLooks = plan.mechanism_plan.selection
    assert (looks.k, looks.k_bar, looks.max_groups_contributed) == (2, 2, 1)
    rows: list[Row] = [(1, "b"), (2, "b"), (3, "c"), (4, "c")]  # counts 0, 2 and 2
    fill(rows)
    without, _ = look(session, plan)
    fill([*rows, (5, "a")])
    with_one, _ = look(session, plan)
    assert without - with_one == 2 == looks.first.sensitivity
    assert without - with_one > min(
        looks.k, looks.max_groups_contributed or looks.k
    )  # of which the noise would be too little
