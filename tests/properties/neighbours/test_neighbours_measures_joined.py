"""Drop one privacy unit from all tables under measures over joins, links, unions and subqueries.

Rows that a join multiplies are added up before the clamp, so what each group loses stays within the bounds of one unit.
"""

from __future__ import annotations

from functools import partial

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.fuzzing import examples
from support.session_kit import session_on
from support.sql_reference import fill as fill_table

import dpsql
from dpsql.session import Session

Row = tuple[object, ...]
UNITS, KEYS = [None, 0, 1, 2], [None, "a", "b", "c"]
NUMBERS = [None, -7, 0, 1, 3, 5, 2**31 - 1]
CON = duckdb.connect()
CON.execute("""
    CREATE TABLE reads (unit BIGINT, k VARCHAR, n INTEGER);
    CREATE TABLE likes (unit BIGINT, k VARCHAR, w INTEGER);
    CREATE TABLE accounts (id BIGINT, unit BIGINT, k VARCHAR);
    CREATE TABLE payments (account BIGINT, k VARCHAR, n INTEGER);
    CREATE TABLE tags (k VARCHAR, label VARCHAR, m INTEGER);
    INSERT INTO tags VALUES ('a', 'x', 1), ('a', 'x', 2), ('a', 'y', 3), ('b', 'x', NULL), (NULL, 'z', 1);
""")
SOURCES = {
    "a join": ("reads AS r JOIN likes AS l ON r.unit = l.unit", "r.k", "r.n", "r.unit"),
    "the unit of the other side": ("reads AS r LEFT JOIN likes AS l ON r.unit = l.unit", "r.k", "r.n", "l.unit"),
    "the key of the other side": ("reads AS r LEFT JOIN likes AS l ON r.unit = l.unit", "l.k", "l.w", "r.unit"),
    "both sides": ("reads AS r FULL JOIN likes AS l USING (unit)", "r.k", "l.w", "unit"),
    "a public table": (
        "reads AS r JOIN tags AS t ON r.k = t.k",
        "t.label",
        "r.n * t.m, contribution_bounds_per_group => (0, 7)",
        "unit",
    ),
    "a public table that is kept": ("tags AS t FULL JOIN reads AS r ON r.k = t.k", "t.label", "r.n", "unit"),
    "a link": ("payments", "k", "n", "unit"),
    "two links": ("payments AS p JOIN accounts AS a ON p.unit = a.unit", "a.k", "p.n", "a.unit"),
    "a union": ("(SELECT unit, k FROM reads UNION ALL SELECT unit, k FROM likes) AS u", "k", None, "unit"),
    "a subquery": ("(SELECT unit, k, sum(n) AS n FROM reads GROUP BY unit, k) AS u", "k", "n", "unit"),
    "a window": (
        "(SELECT unit, k, n, row_number() OVER (PARTITION BY unit ORDER BY n) AS r FROM reads) AS u",
        "k",
        "CASE WHEN r > 1 THEN n END",
        "unit",
    ),
    "EXISTS": (
        "reads AS r WHERE EXISTS (SELECT 1 FROM likes AS l WHERE l.unit = r.unit AND l.k = r.k)",
        "k",
        "n",
        "unit",
    ),
}
ENDS = {
    "total": "PRIVATE",
    "all": "GROUP BY 1 ALL PRIVATE WITH (domain = ['a', 'b', 'x'])",
    "top": "GROUP BY 1 TOP 9 PRIVATE WITH (mechanism = limited_domain)",
    "sets": "GROUP BY 1 TOP 9 PRIVATE WITH (mechanism = top_stable)",
}
ROWS = st.lists(st.tuples(st.sampled_from(UNITS), st.sampled_from(KEYS), st.sampled_from(NUMBERS)), max_size=8)
OWNERS = st.lists(st.sampled_from(UNITS), min_size=3, max_size=3)
PAYMENTS = st.lists(
    st.tuples(st.sampled_from([None, 0, 1, 2, 9]), st.sampled_from(KEYS), st.sampled_from(NUMBERS)), max_size=8
)


def session_over(groups: int | None) -> Session:
    bounds = {"rows": 3, "n": {"max": 5}, "w": {"max": 6}}
    names = {"reads": "n", "likes": "w", "accounts": "", "payments": "n"}
    tables: dict[str, dpsql.PrivateTable | dpsql.PublicTable] = {"tags": dpsql.PublicTable()}
    for table, column in names.items():
        own = {name: bounds[name] for name in ("rows", column) if name}
        whose = {"link": "account -> accounts.id"} if table == "payments" else {"privacy_unit": "unit"}
        tables[table] = dpsql.PrivateTable(**whose, bounds=own, max_groups_contributed=groups)  # type: ignore[arg-type]
    return session_on(CON, dpsql.Policy(dpsql.Budget(50, "1e-6"), tables))


SESSIONS = {groups: session_over(groups) for groups in (None, 1, 2)}
fill = partial(fill_table, CON)


@pytest.mark.parametrize("source", SOURCES)
@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(list(ENDS)),
    st.tuples(ROWS, ROWS, OWNERS, PAYMENTS),
    st.sampled_from(UNITS[1:]),
    st.sampled_from(list(SESSIONS)),
)
def test_dropping_a_unit_moves_measures_of_joined_rows_within_its_bounds(
    source: str,
    shape: str,
    tables: tuple[list[Row], list[Row], list[object], list[Row]],
    unit: int,
    groups: int | None,
) -> None:
    reads, likes, owners, payments = tables
    origin, key, amount, counted = SOURCES[source]
    measures = ["COUNT(*)", f"COUNT(DISTINCT {counted})", *([f"SUM({amount})"] if amount else [])]
    shown = ", ".join(f"{measure} AS m{at}" for at, measure in enumerate(measures))
    sql = f"SELECT {f'{key} AS g, ' if shape != 'total' else ''}{shown} FROM {origin} {ENDS[shape]}"
    plan = SESSIONS[groups].explain(sql)
    keys, found = len(plan.query.keys), list[dict[Row, Row]]()
    for dropped in (None, unit):
        fill("reads", [row for row in reads if dropped is None or row[0] != dropped])
        fill("likes", [row for row in likes if dropped is None or row[0] != dropped])
        kept = [(at, owner) for at, owner in enumerate(owners) if dropped is None or owner != dropped]
        fill("accounts", [(at, owner, KEYS[at + 1]) for at, owner in kept])
        gone = {at for at in range(len(owners)) if at not in dict(kept)}
        fill("payments", [row for row in payments if row[0] not in gone])
        answer = CON.execute(plan.counting.sql, list(plan.counting.parameters)).fetchall()
        found.append({row[:keys]: row[keys : len(row) - plan.counting.has_total] for row in answer})
    before, after = found
    moved = 0
    for group in before.keys() | after.keys():
        nothing = (0,) * len(plan.query.measures)
        changes = [a - b for a, b in zip(before.get(group, nothing), after.get(group, nothing), strict=True)]  # type: ignore[operator]
        moved += any(changes)
        is_new = shape in {"top", "sets"} and (group in before) != (group in after)
        for change, measure in zip(changes[: 1 if is_new else None], plan.query.measures, strict=False):
            assert 0 <= change <= measure.width
        assert not is_new or changes[0] > 0
    assert moved <= (1 if shape == "total" else groups or len(before) + len(after))
