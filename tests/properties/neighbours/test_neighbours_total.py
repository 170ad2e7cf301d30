"""Drop one unit: the number of units that is read with the groups falls by 1 if any group changes, and never by more.

The generated SQL is run on random tables, of every form that counts. What a dropped unit moves is then priced by the
exact loss of counts that share the total; totals that are wrong in the ways one could get them wrong are caught.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import duckdb
import pytest
from properties.mechanisms.test_shared_total_privacy import worst
from support.looks_kit import second_alone
from support.session_kit import session_on
from support.sql_reference import find_moves

import dpsql
from dpsql import engines
from dpsql.curator import materialize
from dpsql.mechanisms import SharedTotal
from dpsql.plan.identity.replay_key import MeasuredRows, list_measured_rows
from dpsql.quantities import Epsilon
from dpsql.sql.analysis.domains import count_covering_groups

Row = tuple[int | None, str | None, int]
Read = tuple[dict[object, int], int | None]  # the first measure of each group, and the total
KEYS = [None, "a", "b", "c", "d"]
BOUNDS = {"rows": 3, "x": {"max": 4}}
COUNT = "COUNT(DISTINCT unit) AS n"
SELECTS = {
    "rows": f"SELECT k, {COUNT} FROM reads GROUP BY k",
    "filtered": f"SELECT k, {COUNT} FROM reads WHERE x > 1 GROUP BY k",
    "distinct": f"SELECT k, {COUNT} FROM (SELECT DISTINCT unit, k FROM reads) GROUP BY k",
    "conditions": "SELECT k, COUNT(DISTINCT unit) FILTER (WHERE x > 1) AS n FROM reads GROUP BY k",
    "two keys": f"SELECT k, x, {COUNT} FROM reads GROUP BY k, x",
    "row counts": "SELECT k, COUNT(*) AS n FROM reads GROUP BY k",
    "sums": "SELECT k, SUM(x) AS n FROM reads GROUP BY k",
    "both": f"SELECT k, SUM(x) AS s, {COUNT} FROM reads GROUP BY k",
    "union": f"SELECT k, {COUNT} FROM (SELECT unit, k FROM reads UNION ALL SELECT unit, 'z' || k FROM reads) "
    "GROUP BY k",
    "joined": f"SELECT k, {COUNT} FROM reads FULL JOIN more USING (unit) GROUP BY k",
}
SECOND = "/* the second statement */"
OPTIONS = {
    "": "",
    "bounded": "max_groups_contributed = 2",
    "widely bounded": "mechanism = limited_domain, max_groups_contributed = 20",
    "two looks": "mechanism = two_looks",
    "two looks, bounded": "mechanism = two_looks, max_groups_contributed = 2",
    "second look": f"mechanism = two_looks {SECOND}",
    "second look, bounded": f"mechanism = two_looks {SECOND}, max_groups_contributed = 2",
    "weighted": "mechanism = weighted_gaussian",
    "weighted, bounded": "mechanism = weighted_gaussian, max_groups_contributed = 3",
    "discovery": "mechanism = domain_discovery",
    "set": "mechanism = stable",
    "domain": "domain = ['a', 'b', 'nowhere', 'zz'], mechanism = peeling",
    "domain, bounded": "domain = ['a', 'b', 'nowhere', 'zz'], mechanism = peeling, max_groups_contributed = 2",
}
CON = duckdb.connect()
CON.execute("CREATE TABLE reads (unit BIGINT, k VARCHAR, x INTEGER)")
CON.execute("CREATE TABLE more (unit BIGINT)")
TABLES = {"reads": dpsql.PrivateTable("unit", bounds=BOUNDS), "more": dpsql.PrivateTable("unit")}
SESSION = session_on(CON, dpsql.Policy(dpsql.Budget(50, "1e-6"), TABLES))
CASES = [
    (form, options)
    for form in SELECTS
    for options in OPTIONS
    if not (
        (form == "two keys" and "domain" in options)
        or (options == "discovery" and form not in {"rows", "both"})
        or ("look" in options and form in {"row counts", "sums", "both"})  # which rank by no number of units
    )
]


def fill(rows: list[Row]) -> None:
    CON.execute("DELETE FROM reads; DELETE FROM more")
    if rows:
        CON.execute(
            f"INSERT INTO reads VALUES {', '.join(['(?, ?, ?)'] * len(rows))}", [v for row in rows for v in row]
        )
        CON.execute("INSERT INTO more SELECT DISTINCT unit + 1 FROM reads")


def statement(form: str, options: str) -> str:
    return SELECTS[form] + " TOP 4 PRIVATE" + (f" WITH ({OPTIONS[options]})" if options else "")


@cache
def explain(sql: str) -> dpsql.Plan:
    plan = SESSION.explain(sql)
    return second_alone(plan) if SECOND in sql else plan


def read(sql: str, change: Callable[[str], str] = str) -> Read:
    plan = explain(sql)
    assert plan.counting.has_total
    keys = len(plan.query.keys)
    rows = CON.execute(change(plan.counting.sql), list(plan.counting.parameters)).fetchall()
    totals = {row[-1] for row in rows}
    assert len(totals) <= 1
    return {row[:keys]: row[keys] for row in rows}, next(iter(totals), None)


def tables(number: int) -> Iterator[list[Row]]:
    draw = random.Random(11)
    for _ in range(number):
        most = draw.choice([3, 6, 14])
        yield [
            (draw.choice([None, 0, 1, 2, 3]), draw.choice(KEYS), draw.randint(0, 4))
            for _ in range(draw.randint(1, most))
        ]


def drops(rows: list[Row], sql: str, change: Callable[[str], str] = str) -> Iterator[tuple[dict[object, int], int]]:
    """Yield by how much each group and the total fall for each unit that is dropped, of those groups that have rows.

    A table without groups has no total that would be used.
    """
    fill(rows)
    groups, total = read(sql, change)
    for unit in {row[0] for row in rows} - {None}:
        CON.execute(f"DELETE FROM reads WHERE unit = {unit:d}; DELETE FROM more WHERE unit = {unit:d}")
        fewer, less = read(sql, change)
        if total is not None and less is not None:
            yield find_moves(groups, fewer), total - less
        fill(rows)


def find_same_rows(grouped: dpsql.Plan, total: dpsql.Plan) -> MeasuredRows | None:
    """Return how a total is of the rows of one group, or of all groups, of a query; None where it is of neither."""
    own = next(list_measured_rows(grouped.query))
    return next((each for each in list_measured_rows(total.query) if set(each.measures) <= set(own.measures)), None)


def count_alone(form: str, condition: str = "") -> dpsql.Plan:
    """Return the plan of a form without groups, of the rows that meet a condition."""
    text = SELECTS[form].replace("k, x, ", "", 1).replace("k, ", "", 1).rpartition(" GROUP BY ")[0]
    where = condition and f"{' AND' if text.endswith('x > 1') else ' WHERE'} {condition}"
    return explain(f"{text}{where} PRIVATE")


def read_alone(plan: dpsql.Plan) -> tuple[int, ...]:
    found = CON.execute(plan.counting.sql, list(plan.counting.parameters)).fetchone()
    assert found is not None
    return found


@pytest.mark.parametrize(("form", "options"), [each for each in CASES if "domain" not in each[1]])
def test_the_total_is_that_of_a_query_without_groups(form: str, options: str) -> None:
    """It answers such a query, also where rows have no key, and units are in more groups than are counted."""
    grouped, alone = explain(statement(form, options)), count_alone(form)
    assert find_same_rows(grouped, alone) is not None
    if not grouped.query.counts_units_alone:  # the total is of all units, and not of those that a measure counts
        return
    seen = 0
    for rows in tables(12):
        fill(rows)
        groups, total = read(statement(form, options))
        assert total == read_alone(alone)[0] if groups else total is None
        seen += bool(groups)
    assert seen > 4


def test_a_total_of_a_domain_is_another_number() -> None:
    fill([(1, "a", 2), (2, "c", 2), (3, "d", 2)])
    assert read(statement("rows", "domain"))[1] != read_alone(count_alone("rows"))[0]


def compare_with_filter(form: str, options: str, *, number: int) -> Iterator[tuple[int, int]]:
    """Yield the number of each group, and that of a query with a filter on its key, which are of the same rows."""
    grouped = explain(statement(form, options))
    names = ["a", "b"] if "domain" in options else [None, "a", "b"]
    for name in [None] if form == "distinct" else names:  # what DISTINCT returns could be compared otherwise
        condition = "k IS NULL" if name is None else f"k = '{name}'"
        key = (name, 2) if form == "two keys" else (name,)
        alone = count_alone(form, f"{condition} AND x = 2" if form == "two keys" else condition)
        same = find_same_rows(grouped, alone)
        assert same is not None
        assert sorted(same.fixed) == sorted(next(list_measured_rows(grouped.query)).keys)
        for rows in tables(number):
            fill(rows)
            yield read(statement(form, options))[0].get(key, 0), read_alone(alone)[0]


@pytest.mark.parametrize(
    ("form", "options"),
    [each for each in CASES if "bound" not in each[1] and (each[0], "domain" in each[1]) != ("distinct", True)],
)
def test_the_number_of_a_group_is_that_of_a_filter_on_its_key(form: str, options: str) -> None:
    pairs = list(compare_with_filter(form, options, number=6))
    assert all(grouped == alone for grouped, alone in pairs)
    assert sum(grouped > 0 for grouped, _ in pairs) > 1


def test_with_a_bound_of_groups_it_is_another_number() -> None:
    assert any(grouped < alone for grouped, alone in compare_with_filter("rows", "bounded", number=30))


@pytest.mark.parametrize(
    "key", ["x > 1", "CASE WHEN x > 2 THEN 'high' WHEN x > 0 THEN 'low' END", "x IS NULL", "k = 'a'"]
)
def test_groups_that_the_text_tells_have_all_rows(key: str) -> None:
    grouped = explain(f"SELECT {key} AS c, COUNT(*) AS n FROM reads GROUP BY c ALL PRIVATE")
    for rows in tables(12):
        fill(rows[:3])  # units have at most 3 rows, as many as count in all
        found = CON.execute(grouped.counting.sql, list(grouped.counting.parameters)).fetchall()
        assert len(found) == count_covering_groups(grouped.query)
        assert sum(row[-1] for row in found) == read_alone(count_alone("row counts"))[0]


def test_a_list_of_groups_need_not_have_all_rows() -> None:
    listed = explain("SELECT k, COUNT(*) AS n FROM reads GROUP BY k ALL PRIVATE WITH (domain = ['a', 'b', 'c', 'd'])")
    assert count_covering_groups(listed.query) is None
    fill([(1, None, 2), (2, "c", 2)])
    found = CON.execute(listed.counting.sql, list(listed.counting.parameters)).fetchall()
    assert sum(row[-1] for row in found) == 1  # of 2 rows


@pytest.mark.parametrize(("form", "options"), CASES)
def test_a_unit_that_moves_a_group_moves_the_total_by_one(form: str, options: str) -> None:
    moved = 0
    for rows in tables(3):
        for groups, by in drops(rows, statement(form, options)):
            assert by == 1 if any(groups.values()) else by in {0, 1}
            assert min(groups.values(), default=0) >= 0
            moved += by
    assert moved > 0


def test_the_total_is_of_units_in_the_groups_that_can_be_returned() -> None:
    fill([(1, "a", 1), (1, "b", 1), (2, "c", 1), (None, "a", 1), (3, "b", 0), (4, None, 1)])
    assert read(statement("rows", ""))[1] == 4
    assert read(statement("filtered", "domain")) == ({(each,): 0 for each in ("a", "b", "nowhere", "zz")}, 0)
    assert read(statement("rows", "domain"))[1] == 2
    assert read(statement("rows", "domain, bounded"))[1] == 2
    assert read(statement("union", ""))[1] == 4


def of_leaders(sql: str) -> str:
    """Return the statement with the units of the first group alone: those of all rows that were returned."""
    return f"WITH w AS ({sql}) SELECT * EXCLUDE (dpsql_total), max(dpsql_count) OVER () FROM w"


def of_all_branches(sql: str) -> str:
    """Return the statement with what the branches of a UNION would count, each by itself."""
    branches = "(SELECT 2 * count(DISTINCT unit) FROM reads)"  # both are of the same table
    return f"WITH w AS ({sql}) SELECT * EXCLUDE (dpsql_total), CAST({branches} AS BIGINT) FROM w"


def stale(sql: str) -> str:
    """Return the statement with a total that was read once."""
    return f"WITH w AS ({sql}) SELECT * EXCLUDE (dpsql_total), CAST(4 AS BIGINT) FROM w"


WRONG = {"of leaders": of_leaders, "of each branch": of_all_branches, "stale": stale}


def worst_of(change: Callable[[str], str]) -> float:
    """Return the worst loss of a unit by what it moves in SQL, in what is charged."""
    moves = {
        (tuple(sorted(groups.values())), by)
        for rows in tables(10)
        for groups, by in drops(rows, statement("union", ""), change)
        if len(groups) > 1
    }
    return max(worst(SharedTotal(Epsilon(1), len(groups)), [(groups, by)]) for groups, by in moves)


def test_what_a_unit_moves_in_sql_costs_what_is_charged() -> None:
    assert 0.97 < worst_of(str) <= 1.0 + 1e-9


@pytest.mark.mutant
@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_total_is_caught(wrong: str) -> None:
    assert worst_of(WRONG[wrong]) > 1.3


def test_materialized_tables_have_the_same_total(tmp_path: Path) -> None:
    path, draw = tmp_path / "reads.duckdb", random.Random(3)
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE reads (unit BIGINT, k VARCHAR, x INTEGER)")
        rows = [(draw.choice([None, *range(9)]), draw.choice(KEYS), draw.randint(0, 4)) for _ in range(60)]
        connection.executemany("INSERT INTO reads VALUES (?, ?, ?)", rows)
    table = dpsql.PrivateTable("unit", bounds=BOUNDS, materialized=((), ("k",), ("k", "x")))
    policy = dpsql.Policy(dpsql.Budget(50, "1e-6"), {"reads": table}, materialized=tmp_path / "materialized")
    materialize(policy, database=path)
    seen = set[str]()
    statements = [
        statement(form, options)
        for form in ("rows", "filtered", "two keys", "row counts", "sums", "both")
        for options in ("", "bounded", "widely bounded", "weighted", "domain", "domain, bounded")
        if not (form == "two keys" and "domain" in options)
    ]
    statements += [f"SELECT k, {COUNT} FROM reads WHERE unit > 3 GROUP BY k TOP 4 PRIVATE"]
    fill(rows)
    with dpsql.connect(path, policy=policy, ledger=":memory:") as stored:
        for text in statements:
            counting = stored.explain(text).counting
            seen.add(counting.reads.partition(" of ")[0])
            found = stored._dependencies.engine.execute(engines.Statement(counting.sql, counting.parameters))
            totals = set(engines.open_exact(found).column(-1).to_pylist())
            assert totals == {read(text)[1]}, text
    assert {"materialized counts", "materialized pairs", "materialized ranks"} <= seen


def test_the_rows_of_listed_groups_are_those_of_a_filter_with_in() -> None:
    grouped = explain(statement("row counts", ""))
    alone = count_alone("row counts", "k IN ('a', 'b')")
    same = find_same_rows(grouped, alone)
    assert same is not None
    assert list(same.fixed.values()) == [("a", "b")]
    seen = 0
    for rows in tables(12):
        fill(rows[:3])  # units have at most 3 rows, as many as count in all
        groups = read(statement("row counts", ""))[0]
        assert groups.get(("a",), 0) + groups.get(("b",), 0) == read_alone(alone)[0]
        seen += len(groups) > 1
    assert seen > 4
