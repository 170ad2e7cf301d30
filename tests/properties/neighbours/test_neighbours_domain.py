"""Drop one privacy unit under a known domain: the candidates stay, and no count moves further than the unit reaches."""

from __future__ import annotations

from functools import partial

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.fuzzing import examples
from support.sql_reference import Row, catalog_of, counts, drop_unit, private
from support.sql_reference import fill as fill_table

from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite import known_groups
from dpsql.sql.rewrite.engine_query import Bound, rewrite_all, rewrite_leaders, rewrite_total

UNITS = [None, 0, 1, 2, 3]
WORDS = [None, "", "a", "A", "b", "ä", "z"]
NUMBERS = [None, 0, 1, -1, 40_000]
DOUBLES = [None, 0.0, -0.0, 1.5, float("nan"), float("inf")]
CON = duckdb.connect()
CON.execute("""
    CREATE TABLE events(unit BIGINT, w VARCHAR, c VARCHAR COLLATE NOCASE, n INTEGER, x DOUBLE);
    CREATE TABLE known(w VARCHAR, c VARCHAR COLLATE NOCASE, n BIGINT, x DOUBLE);
    INSERT INTO known VALUES ('a', 'a', 1, 0.0), ('A', 'A', -1, -0.0), (NULL, NULL, NULL, NULL),
        ('a', 'a', 40000, 'nan'), ('zz', 'B', 7, '-inf'), ('', '', 5000000000, 'nan')
""")
CATALOG = catalog_of(CON, {"events": "unit"}, ["known"])
FORMS = [
    ("w", "'known.w'"),
    ("c", "'known.c'"),
    ("c", "'known.w'"),
    ("upper(w)", "'known.w'"),
    ("n", "'known.n'"),
    ("n % 3", "['0', '1', '2', '-1']"),
    ("x", "'known.x'"),
    ("x", "['0', '-0.0', '1.5', '7']"),
    ("w", "['a', 'a', 'A', 'nobody']"),
    ("n > 0", "['true', 'false']"),
]
WHERES = ["", " WHERE n >= 0", " WHERE w IN (SELECT w FROM known)", " WHERE unit <> 1 OR c = 'a'"]
ROWS = st.lists(st.tuples(*map(st.sampled_from, (UNITS, WORDS, WORDS, NUMBERS, DOUBLES))), max_size=14)
BOUNDS = [None, 1, 2, 16]
SALTS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)
fill = partial(fill_table, CON, "events")


def found(query: PrivateQuery, groups: int | None) -> dict[Row, int]:
    counting = rewrite_leaders(query, None, bound=None if groups is None else Bound(groups, SALTS))
    rows = CON.execute(counting.sql, list(counting.parameters)).fetchall()
    assert [row[-1] for row in rows] == sorted((row[-1] for row in rows), reverse=True)
    return counts(CON, query, None if groups is None else Bound(groups, SALTS))


@settings(max_examples=examples(500), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(FORMS), st.sampled_from(WHERES), ROWS, st.sampled_from(UNITS[1:]), st.sampled_from(BOUNDS))
def test_dropping_a_unit_moves_few_counts_and_no_candidate(
    form: tuple[str, str], where: str, rows: list[Row], unit: int, groups: int | None
) -> None:
    key, domain = form
    query = private(f"SELECT {key} AS k FROM events{where} GROUP BY k TOP 9 PRIVATE WITH (domain = {domain})", CATALOG)
    unlisted = private(f"SELECT {key} AS k FROM events{where} GROUP BY k TOP 9 PRIVATE", CATALOG)
    fill(rows)
    before, plain = found(query, groups), counts(CON, unlisted)
    fill(drop_unit(rows, unit))
    after = found(query, groups)
    assert before.keys() == after.keys()
    moved = [before[candidate] - after[candidate] for candidate in before]
    assert set(moved) <= {0, 1}
    assert sum(moved) <= (groups or len(before))
    if groups in {None, 16}:
        assert before == {candidate: plain.get(candidate, 0) for candidate in before}


def test_the_candidates_of_a_stored_domain_are_its_distinct_values_but_null() -> None:
    fill([(1, "a", "a", 1, float("nan")), (2, "b", "A", 2, -0.0)])
    text = found(private("SELECT w FROM events GROUP BY w TOP 9 PRIVATE WITH (domain = 'known.w')", CATALOG), None)
    assert {value for ((_, value),) in text} == {"a", "A", "zz", ""}
    folded = found(private("SELECT c FROM events GROUP BY c TOP 9 PRIVATE WITH (domain = 'known.c')", CATALOG), None)
    assert {value: count for ((_, value),), count in folded.items()} == {"a": 1, "A": 1, "B": 0, "": 0}
    reals = found(private("SELECT x FROM events GROUP BY x TOP 9 PRIVATE WITH (domain = 'known.x')", CATALOG), None)
    assert {value: count for ((_, value),), count in reals.items()} == {0.0: 1, "nan": 1, float("-inf"): 0}
    whole = found(private("SELECT n FROM events GROUP BY n TOP 9 PRIVATE WITH (domain = 'known.n')", CATALOG), None)
    assert {value for ((_, value),) in whole} == {1, -1, 40_000, 7}  # what no INTEGER can be is no candidate


@settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(FORMS), st.sampled_from(WHERES), ROWS, st.sampled_from(UNITS[1:]), st.sampled_from(BOUNDS))
def test_dropping_a_unit_keeps_all_known_groups_and_their_order(
    form: tuple[str, str], where: str, rows: list[Row], unit: int, groups: int | None
) -> None:
    key, domain = form
    text = f"SELECT {key} AS k, COUNT(DISTINCT unit) AS n FROM events{where} GROUP BY k ALL PRIVATE"
    query = private(f"{text} WITH (domain = {domain})", CATALOG)
    counting = rewrite_all(query, bound=None if groups is None else Bound(groups, SALTS))

    def read() -> list[Row]:
        return CON.execute(counting.sql, list(counting.parameters)).fetchall()

    fill(rows)
    before = read()
    fill(drop_unit(rows, unit))
    after = read()
    assert [repr(label) for *label, _ in before] == [repr(label) for *label, _ in after]
    moved = [more[-1] - less[-1] for more, less in zip(before, after, strict=True)]
    assert set(moved) <= {0, 1}
    assert sum(moved) <= (groups or len(before))


TOLD = [
    "CASE WHEN n > 0 THEN 'up' WHEN n < 0 THEN 'down' END",
    "CASE w WHEN 'a' THEN 0e0 WHEN 'b' THEN -0e0 WHEN 'z' THEN 'NaN' END",
    "n > 0",
    "x > 1 OR n > 0",
    "width_bucket(x, 0, 3, 2)",
    "CASE WHEN w > 'a' THEN c IS NULL END",
    "n > 0 AS k, w IN ('a', 'b')",
    "x IS NULL AS k, CASE WHEN n > 0 THEN 'up' END AS l, w = 'a'",
]


@settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(TOLD), st.sampled_from(WHERES), ROWS, st.sampled_from(UNITS[1:]), st.sampled_from(BOUNDS))
def test_dropping_a_unit_keeps_the_groups_that_the_statement_tells(
    keys: str, where: str, rows: list[Row], unit: int, groups: int | None
) -> None:
    text = f"SELECT {keys} AS z, COUNT(DISTINCT unit) AS n FROM events{where} GROUP BY ALL ALL PRIVATE"
    counting = rewrite_all(private(text, CATALOG), bound=None if groups is None else Bound(groups, SALTS))

    def read(rows: list[Row]) -> list[Row]:
        fill(rows)
        return CON.execute(counting.sql, list(counting.parameters)).fetchall()

    before, after, empty = read(rows), read(drop_unit(rows, unit)), read([])
    labels = [[repr(label) for *label, _ in found] for found in (before, after, empty)]
    assert labels[0] == labels[1] == labels[2]
    moved = [more[-1] - less[-1] for more, less in zip(before, after, strict=True)]
    assert set(moved) <= {0, 1}
    assert sum(moved) <= (groups or len(before))
    if where == "" and groups is None:  # no row is dropped, so a unit with rows is in some group
        assert sum(moved) >= (unit in {row[0] for row in rows})


@pytest.mark.mutant
def test_groups_that_are_read_from_the_rows_would_show_a_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutant: the values of the key that some row has, in place of those that the statement tells."""
    query = private("SELECT n > 0 AS k, COUNT(DISTINCT unit) AS n FROM events GROUP BY k ALL PRIVATE", CATALOG)

    def labels(rows: list[Row]) -> list[object]:
        fill(rows)
        counting = rewrite_all(query)
        return [label for label, _ in CON.execute(counting.sql, list(counting.parameters)).fetchall()]

    some: list[Row] = [(1, "a", "a", 1, 0.0)]
    assert labels(some) == labels([*some, (2, "a", "a", -1, 0.0)]) == [False, True, None]
    values = "SELECT DISTINCT n > 0 AS {} FROM events"
    monkeypatch.setattr(known_groups, "_build_values", lambda *_, name: values.format(name))
    assert labels(some) != labels([*some, (2, "a", "a", -1, 0.0)])


@settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(WHERES), ROWS, st.sampled_from(UNITS[1:]))
def test_dropping_a_unit_moves_a_total_by_one_at_most(where: str, rows: list[Row], unit: int) -> None:
    counting = rewrite_total(private(f"SELECT COUNT(DISTINCT unit) AS n FROM events{where} PRIVATE", CATALOG))

    def read() -> int:
        ((total,),) = CON.execute(counting.sql, list(counting.parameters)).fetchall()
        return total

    fill(rows)
    before = read()
    fill(drop_unit(rows, unit))
    assert before - read() in {0, 1}
