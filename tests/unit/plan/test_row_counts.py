"""Rows that joins make of one unit: never more than the bound, in DuckDB itself, and often as many."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache

import duckdb
import pytest

from dpsql import Budget, Policy, PrivateTable, PublicTable
from dpsql.errors import Refusal
from dpsql.plan.measures import bounds as measures
from dpsql.plan.measures import expression_bounds
from dpsql.plan.measures import rows as row_counts
from dpsql.plan.measures.bounds import bound_measures
from dpsql.plan.measures.rows import Rows
from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.ir.catalog import Catalog, Table
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.ir.tree import BIGINT, Joined
from dpsql.terms import Terms

UNITS = 400
COLUMNS = {"a": "u k x", "b": "u k y", "c": "u k z", "wild": "u k w", "p": "k rate"}
BOUNDS: dict[str, dict[str, object]] = {
    "a": {"rows": 2, "x": {"max": 9}},
    "b": {"rows": 3, "y": {"max": 9}},
    "c": {"rows": 1, "z": {"min": -3, "max": 9}},
    "wild": {"w": {"max": 9}},
}
TABLES = {name: PrivateTable("u", bounds=each) for name, each in BOUNDS.items()}  # type: ignore[arg-type]
TERMS = Terms.of_total(Policy(Budget(1, "1e-6"), {**TABLES, "p": PublicTable()}))
CATALOG = Catalog(
    tuple(
        Table(name, (name,), tuple((column, BIGINT) for column in columns.split()), "u" if name != "p" else None)
        for name, columns in COLUMNS.items()
    )
)
Found = dict[str, tuple[Fraction, Fraction]]
SHAPES = {  # FROM and WHERE: the unit, and the bounds of measures
    "a": ("a.u", {"COUNT(*)": 2, "SUM(x)": 9}),
    "a JOIN b ON a.u = b.u": ("a.u", {"COUNT(*)": 6, "SUM(x)": 27, "SUM(y)": 18, "SUM(x + y)": 45, "COUNT(x)": 6}),
    "a JOIN c USING (u)": ("u", {"COUNT(*)": 2, "SUM(x)": 9, "SUM(z)": 18}),
    "a, b WHERE a.u = b.u": ("a.u", {"COUNT(*)": 6, "SUM(x)": 27}),
    "a JOIN b ON a.u = b.u AND a.k = b.k": ("a.u", {"COUNT(*)": 6, "SUM(x)": 27, "SUM(y)": 18}),
    "a LEFT JOIN b ON a.u = b.u AND a.k = b.k": ("a.u", {"COUNT(*)": 6, "SUM(x)": 27, "SUM(COALESCE(y, 1))": 24}),
    "a RIGHT JOIN b ON a.u = b.u AND a.k = b.k": ("b.u", {"COUNT(*)": 6, "SUM(x)": 27, "SUM(y)": 18}),
    "a FULL JOIN b ON a.u = b.u AND a.k = b.k": ("COALESCE(a.u, b.u)", {"COUNT(*)": 6, "SUM(x)": 27, "SUM(y)": 18}),
    "c FULL JOIN c AS d ON c.u = d.u AND c.z < d.z": ("COALESCE(c.u, d.u)", {"COUNT(*)": 2}),
    "a JOIN a AS o ON a.u = o.u": ("a.u", {"COUNT(*)": 4, "SUM(a.x)": 18, "SUM(a.x + o.x)": 36}),
    "a JOIN b ON a.u = b.u JOIN c ON c.u = a.u": ("a.u", {"COUNT(*)": 6, "SUM(x)": 27, "SUM(z)": 54}),
    "(SELECT * FROM a QUALIFY row_number() OVER (PARTITION BY u ORDER BY k) = 1) AS s": ("u", {"COUNT(*)": 1}),
    "(SELECT * FROM wild QUALIFY row_number() OVER (PARTITION BY u ORDER BY k) <= 2) AS s": ("u", {"COUNT(*)": 2}),
    "(SELECT * FROM wild QUALIFY row_number() OVER (PARTITION BY u ORDER BY k) < 2) AS s": ("u", {"COUNT(*)": 1}),
    "(SELECT * FROM a QUALIFY row_number() OVER (PARTITION BY k, u ORDER BY x) = 1) AS s": ("u", {"COUNT(*)": 2}),
    "(SELECT * FROM a QUALIFY rank() OVER (PARTITION BY u ORDER BY k) = 1) AS s": ("u", {"COUNT(*)": 2}),
    "a WHERE u IN (SELECT u FROM b)": ("a.u", {"COUNT(*)": 2, "SUM(x)": 9}),
    "a WHERE EXISTS (SELECT 1 FROM wild WHERE wild.u = a.u)": ("a.u", {"COUNT(*)": 2, "SUM(x)": 9}),
    "a SEMI JOIN wild USING (u)": ("a.u", {"COUNT(*)": 2, "SUM(x)": 9}),
    "a ANTI JOIN b ON a.u = b.u AND a.k = b.k": ("a.u", {"COUNT(*)": 2, "SUM(x)": 9}),
    "(SELECT u, x AS v FROM a UNION ALL SELECT u, y FROM b) AS s": ("u", {"COUNT(*)": 5, "SUM(v)": 18}),
    "(SELECT u, x AS v FROM a UNION ALL SELECT u, x FROM a) AS s": ("u", {"COUNT(*)": 4, "SUM(v)": 18}),
    "(SELECT u, x AS v FROM a UNION SELECT u, y FROM b) AS s": ("u", {"COUNT(*)": 5, "SUM(v)": 18}),
    "(SELECT u, x AS v FROM a UNION ALL SELECT u, 1 FROM b) AS s": ("u", {"COUNT(*)": 5, "SUM(v)": 14}),
    "(SELECT u, x AS v FROM a INTERSECT SELECT u, y FROM b) AS s": ("u", {"COUNT(*)": 2, "SUM(v)": 9}),
    "(SELECT u, x AS v FROM a EXCEPT SELECT u, y FROM b) AS s": ("u", {"COUNT(*)": 2, "SUM(v)": 9}),
    "(SELECT u, k, y, MAX(x) AS m FROM a JOIN b USING (u, k) GROUP BY ALL) AS s": ("u", {"COUNT(*)": 6, "SUM(m)": 27}),
    "(SELECT u, SUM(x) AS s, COUNT(*) AS n, AVG(x) AS m FROM a GROUP BY u) AS s": (
        "u",
        {"COUNT(*)": 1, "SUM(s)": 9, "SUM(n)": 2, "SUM(m)": 9, "SUM(s + n)": 11, "SUM(s / n)": 9},
    ),
    "(SELECT u, k, SUM(x) AS s, COUNT(*) AS n FROM a GROUP BY u, k) AS s": (
        "u",
        {"COUNT(*)": 2, "SUM(s)": 9, "SUM(n)": 2},
    ),
    "(SELECT u, SUM(x) AS s, COUNT(*) AS n FROM a GROUP BY u) AS s JOIN b USING (u)": (
        "u",
        {"COUNT(*)": 3, "SUM(s)": 27, "SUM(n)": 6, "SUM(y)": 9, "SUM(s * n)": 54},
    ),
    "(SELECT DISTINCT u FROM b) AS s JOIN a USING (u)": ("u", {"COUNT(*)": 2, "SUM(x)": 9}),
    "(SELECT DISTINCT u, x FROM a) AS s": ("u", {"COUNT(*)": 2, "SUM(x)": 9}),
    "a JOIN (SELECT u, x AS v FROM a UNION ALL SELECT u, y FROM b) AS s ON a.u = s.u": (
        "a.u",
        {"COUNT(*)": 10, "SUM(x)": 45, "SUM(v)": 36},
    ),
    "a, unnest([1, 2, 3]) AS n(i)": ("a.u", {"COUNT(*)": 6, "SUM(x)": 27, "SUM(i)": 18, "SUM(x * i)": 81}),
    "a JOIN p USING (k)": ("a.u", {"COUNT(*)": 2, "SUM(x)": 9}),
}


def find_bounds(source: str, names: list[str]) -> Found:
    """Return the bounds of the measures over FROM and WHERE."""
    listed = ", ".join(f"{name} AS m{at}" for at, name in enumerate(names))
    query = analyze(f"SELECT {listed} FROM {source} PRIVATE", CATALOG, accepts_pattern=lambda _: False)
    assert isinstance(query, PrivateQuery)
    bounds = [each.bounds for each in bound_measures(query, TERMS).measures]
    places = [output.measure for output in query.outputs]
    found = {name: bounds[at] for name, at in zip(names, places, strict=True)}
    return {name: (each.low * each.step, each.high * each.step) for name, each in found.items() if each is not None}


@pytest.mark.parametrize("source", SHAPES)
def test_rows_of_the_tables_are_multiplied(source: str) -> None:
    _, wanted = SHAPES[source]
    assert {name: high for name, (_, high) in find_bounds(source, list(wanted)).items()} == wanted


@cache
def open_units() -> duckdb.DuckDBPyConnection:
    """Return tables of random units that keep to the policy, and a public one without two rows of one key."""
    connection, draw = duckdb.connect(), random.Random(4)
    for name, columns in COLUMNS.items():
        connection.execute(f"CREATE TABLE {name} ({', '.join(f'{column} BIGINT' for column in columns.split())})")
        rows = [(key, key) for key in range(2)] if name == "p" else []
        for unit in range(UNITS if name != "p" else 0):
            left, count = 9, draw.randint(0, int(BOUNDS[name].get("rows", 5)))  # type: ignore[call-overload]
            for _ in range(count):
                value = draw.choice([left, draw.randint(0, left), -(-left // count)])
                value = min(value, left)
                left -= value
                rows.append((unit, draw.randint(0, 1), value))  # type: ignore[arg-type]
        connection.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(columns.split()))})", rows)
    return connection


def list_cut(shapes: list[str]) -> list[tuple[str, str]]:
    """Return the measures of which some unit has more than its bound."""
    cut = []
    for source in shapes:
        unit, wanted = SHAPES[source]
        for name, (low, high) in find_bounds(source, list(wanted)).items():
            inner = f"SELECT {name} AS s FROM {source} GROUP BY {unit}"
            least, most = open_units().execute(f"SELECT MIN(s), MAX(s) FROM ({inner})").fetchone() or (0, 0)
            cut += [(source, name)] if least < low - 1e-6 or most > high + 1e-6 else []
    return cut


def test_units_that_keep_to_the_policy_are_never_cut() -> None:
    assert list_cut(list(SHAPES)) == []


def test_most_bounds_are_reached() -> None:
    reached = [
        (source, name)
        for source, (unit, wanted) in SHAPES.items()
        for name, high in wanted.items()
        if (open_units().execute(f"SELECT MAX(s) FROM (SELECT {name} AS s FROM {source} GROUP BY {unit})").fetchone())
        in [(high,), (float(high),)]
    ]
    assert len(reached) > 0.7 * sum(len(wanted) for _, wanted in SHAPES.values())


def _choose(choose: Callable[..., float]) -> Callable[..., Rows]:
    right = row_counts._join

    def join(relation: Joined, tables: object, **known: object) -> Rows:
        found = right(relation, tables, **known)  # type: ignore[arg-type]
        sides = [row_counts.count_rows(side, tables) for side in (relation.left, relation.right)]  # type: ignore[arg-type]
        total = choose(side.total for side in sides)
        return replace(found, total=total, with_row=dict.fromkeys(found.with_row, 1))

    return join


MUTANTS: dict[str, Callable[..., Rows]] = {"the smaller number": _choose(min), "the larger number": _choose(max)}


@pytest.mark.mutant
@pytest.mark.parametrize("mutant", MUTANTS)
def test_other_rules_cut_some_unit(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_counts, "_join", MUTANTS[mutant])
    assert measures.count_rows is expression_bounds.count_rows is row_counts.count_rows
    assert list_cut(["a JOIN b ON a.u = b.u"])


OF_USERS = "(SELECT u, k, SUM(x) AS s, COUNT(*) AS n, MAX(x) AS m FROM a GROUP BY u, k) AS s"
OF_UNKNOWN = "(SELECT u, k, SUM(w) AS s FROM wild GROUP BY u, k) AS s"
IN_GROUPS = {  # FROM, the unit and what the query groups by, and the bounds of measures in one group
    (OF_USERS, "u", "k"): {"COUNT(*)": 1, "SUM(s)": 9, "SUM(n)": 2, "SUM(m)": 9},
    (OF_USERS, "u", "k % 2"): {"COUNT(*)": 2, "SUM(s)": 9},  # several keys in one group
    (OF_USERS, "u", "n"): {"COUNT(*)": 2},  # of what does not group the subquery
    (f"(SELECT u AS v, k AS j, s FROM {OF_USERS}) AS r", "v", "j"): {"COUNT(*)": 1, "SUM(s)": 9},
    (f"{OF_USERS} JOIN c USING (u)", "u", "s.k"): {"COUNT(*)": 1, "SUM(s)": 9, "SUM(z)": 9},
    (f"{OF_USERS} JOIN b ON s.u = b.u", "s.u", "s.k"): {"COUNT(*)": 3, "SUM(s)": 27, "SUM(y)": 9},
    (f"{OF_USERS} LEFT JOIN b ON s.u = b.u", "s.u", "b.k"): {"COUNT(*)": 6},
    (OF_UNKNOWN, "u", "k"): {"COUNT(*)": 1, "SUM(s)": 9},  # without `rows`
}


def find_bounds_in_groups(source: str, key: str, names: list[str]) -> Found:
    listed = ", ".join(f"{name} AS m{at}" for at, name in enumerate(names))
    sql = f"SELECT {key} AS g, {listed} FROM {source} GROUP BY {key} TOP 5 PRIVATE"
    query = analyze(sql, CATALOG, accepts_pattern=lambda _: False)
    assert isinstance(query, PrivateQuery)
    query = replace(query, clause=replace(query.clause, shape="total"))  # sums may be below 0, and do not rank then
    bounds = [each.bounds for each in bound_measures(query, TERMS).measures]
    places = [output.measure for output in query.outputs if output.key is None]
    found = {name: bounds[at] for name, at in zip(names, places, strict=True)}
    return {name: (each.low * each.step, each.high * each.step) for name, each in found.items() if each is not None}


@pytest.mark.parametrize("shape", IN_GROUPS)
def test_a_row_of_each_unit_and_key_is_one_row_in_a_group_of_the_key(shape: tuple[str, str, str]) -> None:
    source, unit, key = shape
    wanted = IN_GROUPS[shape]
    found = find_bounds_in_groups(source, key, list(wanted))
    assert {name: high for name, (_, high) in found.items()} == wanted
    for name, (low, high) in found.items():
        inner = f"SELECT {name} AS v FROM {source} GROUP BY {unit}, {key}"
        least, most = open_units().execute(f"SELECT MIN(v), MAX(v) FROM ({inner})").fetchone() or (0, 0)
        if "wild" not in source or name == "COUNT(*)":
            assert low - 1e-6 <= least <= most <= high + 1e-6


@pytest.mark.parametrize("measure", ["COUNT(*)", "SUM(x)"])
def test_a_joined_table_needs_rows(measure: str) -> None:
    with pytest.raises(Refusal, match="no-bounds") as refused:
        find_bounds("a JOIN wild ON a.u = wild.u", [measure])
    assert "[tables.wild.bounds]" in (refused.value.hint or "")
    assert find_bounds("a JOIN wild ON a.u = wild.u", ["SUM(w)"]) == {"SUM(w)": (0, 18)}
    stated = measure.replace(")", ", contribution_bounds_per_group => (0, 5))")
    assert find_bounds("a JOIN wild ON a.u = wild.u", [stated]) == {stated: (0, 5)}


def test_a_product_may_not_be_too_large() -> None:
    joined = "a AS a0 " + " ".join(f"JOIN b AS b{at} ON b{at}.u = a0.u" for at in range(13))
    with pytest.raises(Refusal, match="3,188,646 rows"):
        find_bounds(joined, ["COUNT(*)"])
