"""PER in a statement: which words are the clause, which key is named, which values it has, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.fuzzing import examples
from support.sql_reference import Row, accepts_pattern, catalog_of, private, same

from dpsql.errors import Error, Place
from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.analysis.domains import find_partition_query, set_partition_values
from dpsql.sql.ir.statements import PrivateQuery, TableDomain
from dpsql.sql.rewrite.bounding import Bound
from dpsql.sql.rewrite.engine_query import rewrite_all, rewrite_leaders

CON = duckdb.connect()
CON.execute("""
    CREATE TABLE events(unit BIGINT, per VARCHAR, country VARCHAR COLLATE NOCASE, n INTEGER, x DOUBLE);
    CREATE TABLE known(country VARCHAR, n BIGINT);
""")
CATALOG = catalog_of(CON, {"events": "unit"}, ["known"])
TEXT = "SELECT country, n FROM events GROUP BY country, n"
LISTED = "WITH (partitions = ['DE', 'FR'])"


def key_of(query: PrivateQuery) -> str:
    assert query.partitions is not None
    return next(output.name for output in query.outputs if output.key == query.partitions.key)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (f"{TEXT} TOP 3 PRIVATE PER country {LISTED}", "country"),
        (f"{TEXT} top 3 private per COUNTRY {LISTED}", "country"),
        (f'{TEXT} TOP 3 PRIVATE PER "country" {LISTED} ORDER BY n LIMIT 2', "country"),
        (f"{TEXT} TOP 3 PRIVATE /* PER n */ PER -- n\n country {LISTED}", "country"),
        (f"SELECT n AS country, upper(country) AS c FROM events GROUP BY ALL TOP 3 PRIVATE PER c {LISTED}", "c"),
        (f"SELECT country AS c, n FROM events GROUP BY ALL TOP 3 PRIVATE PER country {LISTED}", "c"),
        (f"SELECT country AS per, n FROM events GROUP BY ALL TOP 3 PRIVATE PER per {LISTED}", "per"),
        (f"SELECT per, n FROM events GROUP BY per, n TOP 3 PRIVATE PER per {LISTED}", "per"),
        (
            f"SELECT e.per, n FROM events e WHERE per <> 'PRIVATE PER n' GROUP BY ALL TOP 3 PRIVATE PER per {LISTED}",
            "per",
        ),
        (
            f'SELECT country AS "a "" PER n", n FROM events GROUP BY ALL TOP 3 PRIVATE PER "a "" PER n" {LISTED}',
            'a " PER n',
        ),
        (
            f'SELECT upper(country), n FROM events GROUP BY ALL TOP 3 PRIVATE PER "upper(country)" {LISTED}',
            "upper(country)",
        ),
    ],
)
def test_per_names_a_key_by_its_output_or_its_column(text: str, key: str) -> None:
    assert key_of(private(text, CATALOG)) == key


@pytest.mark.parametrize(
    "text",
    [
        "SELECT TOP 3 PRIVATE per FROM events GROUP BY per",
        "SELECT TOP 3 PRIVATE per, n FROM events GROUP BY ALL",
        "SELECT TOP 3 PRIVATE per AS country, n FROM events GROUP BY ALL",
        "SELECT TOP 3 PRIVATE per || 'x' AS p FROM events GROUP BY ALL",
        "SELECT TOP 3 PRIVATE per IS NULL AS p FROM events GROUP BY ALL",
        "SELECT TOP 3 PRIVATE per LIKE 'a%' AS p FROM events GROUP BY ALL",
        "SELECT TOP 3 PRIVATE per IN ('a') AS p FROM events GROUP BY ALL",
        "SELECT per FROM events GROUP BY per TOP 3 PRIVATE",
        "SELECT per country FROM events GROUP BY ALL TOP 3 PRIVATE",
    ],
)
def test_a_column_named_per_is_a_column(text: str) -> None:
    query = private(text, CATALOG)
    assert query.partitions is None
    assert query.clause.per is None


@pytest.mark.parametrize(
    ("text", "code", "fragment"),
    [
        (f"SELECT TOP 3 PRIVATE PER country n FROM events GROUP BY ALL {LISTED}", "per", "PER"),
        (f"SELECT TOP 3 PRIVATE PER country, n FROM events GROUP BY ALL {LISTED}", "per", "PER"),
        (f'SELECT TOP 3 PRIVATE PER "country", n FROM events GROUP BY ALL {LISTED}', "per", "PER"),
        (f"{TEXT} TOP 3 PRIVATE PER", "per", "PER"),
        (f"{TEXT} TOP 3 PRIVATE PER {LISTED}", "per", "PER WITH"),
        (f"{TEXT} TOP 3 PRIVATE PER 'country' {LISTED}", "per", "PER 'country'"),
        (f"{TEXT} TOP 3 PRIVATE PER 1 {LISTED}", "per", "PER 1"),
        (f"{TEXT} TOP 3 PRIVATE PER ? {LISTED}", "parameters", "?"),
        (f"{TEXT} TOP 3 PRIVATE PER country, n {LISTED}", "clause", ","),
        (f"{TEXT} TOP 3 PRIVATE PER events.country {LISTED}", "clause", "."),
        (f"{TEXT} TOP 3 PRIVATE PER upper(country) {LISTED}", "clause", "("),
        (f"{TEXT} TOP 3 PRIVATE PER country PER n {LISTED}", "clause", "PER"),
        (f"{TEXT} TOP 3 PRIVATE {LISTED} PER country", "clause", "PER"),
        (f"{TEXT} TOP 3 PRIVATE PER country AS x {LISTED}", "clause", "AS"),
        (f'{TEXT} TOP 3 PRIVATE "PER" country {LISTED}', "clause", '"PER"'),
        (f"{TEXT} PER country TOP 3 PRIVATE {LISTED}", "syntax", None),
        (f"{TEXT} TOP 3 PRIVATE WITH (per = country, partitions = ['DE'])", "option", "per = country"),
        (f"{TEXT} TOP 3 PRIVATE PER country WITH (partitions = ['DE', 5])", "option", "partitions = ['DE', 5]"),
        (f"{TEXT} TOP 3 PRIVATE PER country WITH (partitions = [])", "option", "partitions = []"),
        (f"{TEXT} TOP 3 PRIVATE PER n WITH (partitions = ['DE'])", "literal", "partitions = ['DE']"),
        (f"{TEXT} TOP 3 PRIVATE PER x {LISTED}", "per", "x"),
        (f"{TEXT} TOP 3 PRIVATE PER unit {LISTED}", "per", "unit"),
    ],
)  # fmt: skip
def test_what_is_no_per_is_refused_where_it_stands(text: str, code: str, fragment: str | None) -> None:
    with pytest.raises(Error) as caught:
        analyze(text, CATALOG, accepts_pattern=accepts_pattern)
    assert caught.value.code == code
    assert caught.value.hint
    if fragment is not None:
        assert isinstance(caught.value.place, Place)
        assert caught.value.place.fragment == fragment


@pytest.mark.parametrize(
    ("key", "listed", "values"),
    [
        ("country", "['b', 'a', 'B', 'b', '']", ["", "B", "a", "b"]),
        ("n", "['10', '9', '-1', '9']", [-1, 9, 10]),
        ("n > 1", "['true', 'false', 'TRUE']", [False, True]),
        ("x", "['1', '-0.0', '0', '1.0', '1e0']", [0.0, 1.0]),
        ("CASE WHEN n > 0 THEN DATE '2026-01-31' END", "['2026-02-01', '2025-12-31']", ["2025-12-31", "2026-02-01"]),
        ("country", "'known.country'", []),
        ("n", "'known.n'", []),
    ],
)
def test_values_stand_once_each_in_their_natural_order(key: str, listed: str, values: list[object]) -> None:
    text = f"SELECT {key} AS k, per FROM events GROUP BY ALL TOP 3 PRIVATE PER k WITH (partitions = {listed})"
    found = private(text, CATALOG).partitions
    assert found is not None
    assert [value.value for value in found.values] == values
    assert isinstance(found.source, TableDomain) == (not found.values)


def test_the_values_of_a_public_table_are_asked_for_once() -> None:
    query = private(f"{TEXT} TOP 3 PRIVATE PER country WITH (partitions = 'known.country')", CATALOG)
    assert find_partition_query(private(f"{TEXT} TOP 3 PRIVATE PER country {LISTED}", CATALOG)) is None
    assert find_partition_query(private(f"{TEXT} TOP 3 PRIVATE", CATALOG)) is None
    asked = find_partition_query(query)
    assert asked is not None
    assert (asked.distinct, asked.limit) == (True, 1002)
    known = set_partition_values(query, ["FR", None, "DE"])
    assert find_partition_query(known) is None
    assert known.partitions is not None
    assert [value.value for value in known.partitions.values] == ["DE", "FR"]


UNITS = [None, 0, 1, 2, 3]
PERS = [None, "", "a", "A", "b", "ä", "z"]
COUNTRIES = [None, "DE", "de", "FR", "XX"]
NUMBERS = [None, 0, 1, -1]
ROWS = st.lists(
    st.tuples(*map(st.sampled_from, (UNITS, PERS, COUNTRIES, NUMBERS, [None, 0.0, -0.0, 1.5]))), max_size=20
)
LISTS = [
    ("country", ["DE", "FR", "none"]),
    ("country", ["DE", "de"]),
    ("per", ["a", "A", "", "ä"]),
    ("n", ["0", "1"]),
    ("x", ["-0.0"]),
]
SALTS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)


@pytest.mark.properties
@settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(LISTS), ROWS, st.sampled_from([1, 2, 100]), st.sampled_from([None, 1, 3]), st.booleans())
def test_each_partition_holds_its_leaders_and_each_unit_keeps_to_one(
    listed: tuple[str, list[str]], rows: list[Row], most: int, groups: int | None, single: bool
) -> None:
    """The first `most` of each partition by count and key, among the groups that are all counted in `rewrite_all`."""
    key, values = listed
    other = "per" if key != "per" else "country"
    text = (
        f"SELECT {key} AS k, {other} AS o, n FROM events GROUP BY ALL TOP 3 PRIVATE PER k WITH (partitions = {values})"
    )
    query = private(text, CATALOG)
    assert query.partitions is not None
    query = replace(query, partitions=replace(query.partitions, salts=SALTS if single else None))
    CON.execute("DELETE FROM events")
    if rows:
        CON.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?)", rows)
    bound = None if groups is None else Bound(groups, SALTS)
    whole, first = (
        CON.execute(counting.sql, list(counting.parameters)).fetchall()
        for counting in (rewrite_all(query, bound=bound), rewrite_leaders(query, most, bound=bound))
    )
    at, known = query.partitions.key, [value.value for value in query.partitions.values]
    assert all(same([row[at]]) == same([known[row[-1]]]) for row in whole)
    if groups is None and not single:
        assert sum(row[-2] for row in whole) == len(expected(rows, key, known, other=other))
    if groups == 1:
        assert sum(row[-2] for row in whole) == len({row[0] for row in expected(rows, key, known, other=other)})
    for position in range(len(known)):
        here = [row for row in whole if row[-1] == position]
        leaders = sorted(here, key=lambda row: -row[-2])[:most]  # stable: ties stay in the order of the keys
        assert [row for row in first if row[-1] == position] == leaders
    assert [row[-1] for row in first] == sorted(row[-1] for row in first)


def expected(rows: list[Row], key: str, known: list[object], *, other: str) -> set[Row]:
    """Return the distinct pairs of unit and group that count."""
    names = ("unit", "per", "country", "n", "x")
    named = [dict(zip(names, row, strict=True)) for row in rows]
    return {
        (row["unit"], *same((row[key], row[other], row["n"])))
        for row in named
        if row["unit"] is not None and row[key] is not None and same([row[key]])[0] in same(known)
    }
