"""The exact histogram that a mechanism sees depends on who is in which group, and on nothing else of the rows."""

from __future__ import annotations

import random

import pytest
from support.session_kit import exact_histogram, filled, session_on

from dpsql.engines import Statement, open_exact
from dpsql.mechanisms import Histogram

SQL = (
    "SELECT article FROM reads GROUP BY article TOP 3 PRIVATE "
    "WITH (mechanism = limited_domain, epsilon = 0.01, k_bar = 5)"
)
BOUNDED = SQL.replace("k_bar = 5", "k_bar = 5, max_groups_contributed = 2")
Rows = list[tuple[int, str | None]]


def rows_of(seed: int) -> Rows:
    source = random.Random(seed)
    labels = ["ant", "bee", "cat", "dog", "eel", "fox", "gnu", None]
    return list({(source.randrange(12), source.choice(labels)) for _ in range(60)})


def leading(rows: Rows, sql: str = SQL) -> tuple[list[object], Histogram]:
    """Return the groups in the order read, and what the mechanism was given."""
    connection = filled("CREATE TABLE reads (user_id BIGINT, article VARCHAR)")
    connection.executemany("INSERT INTO reads VALUES (?, ?)", rows)
    session = session_on(connection)
    plan = session.explain(sql)
    exact = session._dependencies.engine.execute(Statement(plan.counting.sql, plan.counting.parameters))
    return open_exact(exact).column(0).to_pylist(), exact_histogram(session, sql)


@pytest.mark.parametrize("seed", range(6))
def test_row_order_does_not_matter(seed: int) -> None:
    rows = rows_of(seed)
    shuffled = random.Random(seed + 100).sample(rows, len(rows))
    assert leading(rows) == leading(shuffled)


@pytest.mark.parametrize("seed", range(6))
def test_repeating_rows_does_not_matter(seed: int) -> None:
    rows = rows_of(seed)
    assert leading(rows) == leading(rows * 3 + rows[:7])


@pytest.mark.parametrize("seed", range(6))
def test_names_of_units_do_not_matter(seed: int) -> None:
    rows = rows_of(seed)
    assert leading(rows) == leading([(10**12 - 7 * unit, label) for unit, label in rows])


@pytest.mark.parametrize("seed", range(6))
def test_relabelling_in_order_does_not_matter(seed: int) -> None:
    rows = rows_of(seed)
    labels, histogram = leading(rows)
    renamed = [(unit, None if label is None else f"zz-{label}") for unit, label in rows]
    again, same = leading(renamed)
    assert same == histogram
    assert again == [None if label is None else f"zz-{label}" for label in labels]


@pytest.mark.parametrize("seed", range(6))
def test_it_is_the_histogram(seed: int) -> None:
    rows = rows_of(seed)
    counts = sorted(
        (
            (-sum(1 for _, other in rows if other == label), label is None, label or "")
            for label in {row[1] for row in rows}
        ),
    )
    labels, histogram = leading(rows)
    assert labels == [None if null else label for _, null, label in counts[:6]]
    assert (*histogram.leaders, histogram.following) == tuple(-count for count, _, _ in counts[:6])


@pytest.mark.parametrize("seed", range(4))
def test_a_bound_keeps_at_most_so_many_groups_of_each_unit(seed: int) -> None:
    rows = rows_of(seed)
    _, histogram = leading(rows, BOUNDED)
    units = {unit for unit, _ in rows}
    assert sum(histogram.leaders) + histogram.following <= 2 * len(units)
