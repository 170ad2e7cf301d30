"""Random subqueries that group, number, combine and choose: what each unit brings is a function of its own rows alone.

So the counts are the sum of what every unit brings when it is alone in all private tables, at most 1 to any group, in
whatever order rows are stored and however many threads read them. And they are those of the text on DuckDB.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from random import Random

import duckdb
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.fuzzing import examples
from support.sql_reference import Row, catalog_of, counts, keep_unit, private, reference_counts, with_enums_as_text
from support.sql_reference import fill as fill_table

from dpsql.errors import Error
from dpsql.sql.ir.statements import PrivateQuery

CON = duckdb.connect()
COLUMNS = "unit BIGINT, w VARCHAR, c VARCHAR COLLATE NOCASE, n BIGINT, x DOUBLE, f FLOAT, m DECIMAL(9,2), e {}"
TYPES = COLUMNS.format("ENUM('b', 'a')")
CON.execute(f"""
    CREATE TABLE events({TYPES});
    CREATE TABLE more({TYPES});
    CREATE TABLE tags(w VARCHAR, tag VARCHAR, n BIGINT, x DOUBLE);
    INSERT INTO tags VALUES ('a', 'one', 1, 0.0), ('a', 'two', 5, -0.0), ('A', 'one', 0, 'nan'), ('b', NULL, 1, 1e308),
        (NULL, 'none', NULL, -1e308), ('', 'one', 5, 1)
""")
CATALOG = catalog_of(CON, {"events": "unit", "more": "unit"}, ["tags"])
REFERENCE = with_enums_as_text(CON)
NASTY = [
    [None, 0, 1, 1, 1, 2],
    [None, "", "a", "A", "b"],
    [None, "a", "A", "b"],
    [None, 0, 1, -1, 2**62, 2**62],
    [None, 0.0, -0.0, 0.1, 0.2, 0.3, 1e16, -1e16, 1e308, float("nan"), float("inf"), float("-inf")],
    [None, 0.0, -0.0, 1.1, float("nan")],
    [None, "0.10", "-9999999.99", "9999999.99"],
    [None, "a", "b"],
]
PLAIN = [
    NASTY[0],
    [None, "", "a", "b"],
    [None, "a", "b"],
    [None, 0, 1, -1, 7],
    [None, 0.5, 1.5, -2.0],
    [None, 1.5, 2.5],
]
PLAIN += [[None, "0.10", "2.25"], NASTY[7]]
KEYS = ["w", "c", "n", "x", "f", "m", "e"]
EXAMPLES = settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])


def rows_of(values: list[list[object]]) -> st.SearchStrategy[list[Row]]:
    return st.lists(st.tuples(*map(st.sampled_from, values)), max_size=12)


def aggregate(random: Random) -> str:
    column = random.choice(KEYS)
    number = random.choice(["n", "x", "f", "m", "n + 1", "x * 2"])
    forms = ["COUNT(*)", f"COUNT({column})", f"COUNT(DISTINCT {column})", f"SUM({number})", f"AVG({number})"]
    return random.choice([*forms, f"MIN({column})", f"MAX({column})", f"MAX({column})"])


def window(random: Random, order: str) -> str:
    column, number = random.choice(KEYS), random.choice(["n", "m", "n + 1"])
    forms = [
        "row_number()",
        "rank()",
        "dense_rank()",
        "percent_rank()",
        "cume_dist()",
        "ntile(2)",
        f"lag({column})",
        f"lead({column}, 2)",
        f"first_value({column})",
        "COUNT(*)",
        f"COUNT({column})",
        f"SUM({number})",
        f"AVG({number})",
        f"MIN({column})",
        f"MAX({column})",
    ]
    partition = random.choice(["unit", "unit", "w, unit", "unit, c"])
    return f"{random.choice(forms)} OVER (PARTITION BY {partition}{order})"


def order(random: Random, *, total: bool) -> str:
    terms = [
        f"{random.choice(KEYS)}{random.choice(['', ' DESC', ' NULLS FIRST'])}" for _ in range(random.randint(1, 2))
    ]
    if total:
        terms += KEYS
    return f" ORDER BY {', '.join(terms)}" if total or random.random() < 0.8 else ""


def one(random: Random, *, total: bool) -> str:
    """Return a SELECT over private tables of the columns unit, k and j."""
    table = random.choice(
        ["events", "events", "events", "more", "more", "(SELECT * FROM events UNION ALL SELECT * FROM more)"]
    )
    where = random.choice(["", "", " WHERE n > 0", " WHERE w IN (SELECT w FROM tags ORDER BY n DESC, x LIMIT 3)"])
    where = random.choice([where, " WHERE n >= (SELECT MIN(n) FROM tags)"])
    source, key = f" FROM {table} AS s{where}", random.choice(KEYS)
    match random.randrange(5):
        case 0:
            return f"SELECT DISTINCT unit, CAST({key} AS VARCHAR) AS k, {random.choice(KEYS)} IS NULL AS j{source}"
        case 1:
            having = " GROUP BY unit" + random.choice(["", " HAVING COUNT(*) > 1", " HAVING j", " ORDER BY 1"])
            return f"SELECT unit, CAST({aggregate(random)} AS VARCHAR) AS k, COUNT(*) > 1 AS j{source}{having}"
        case 2:
            head = f"SELECT unit, CAST({key} AS VARCHAR) AS k, {aggregate(random)} IS NULL AS j"
            return f"{head}{source} GROUP BY {key}, unit" + random.choice(["", " HAVING MAX(n) > 0"])
        case 3:
            over = window(random, order(random, total=total))
            return f"SELECT unit, CAST({over} AS VARCHAR) AS k, n > 0 AS j{source}"
        case _:
            over = window(random, order(random, total=total))
            return (
                f"SELECT unit, CAST({key} AS VARCHAR) AS k, {over} IS NULL AS j{source} QUALIFY j OR {over} IS NOT NULL"
            )


def statement(random: Random, *, total: bool = False) -> str:
    """Return a private query over such subqueries; `total` where DuckDB's own answer is a function of the rows."""
    text = one(random, total=total)
    for _ in range(random.choice([0, 0, 0, 1, 1, 2])):
        combine = random.choice(["UNION ALL", "UNION", "INTERSECT", "EXCEPT"])
        text = f"{text.removesuffix(' ORDER BY 1')} {combine} {one(random, total=total).removesuffix(' ORDER BY 1')}"
    group = random.choice(["k, j", "k"])
    if random.random() < 0.3:
        return (
            f"WITH a AS (WITH events AS (SELECT * FROM events) {text}) SELECT {group} FROM a GROUP BY ALL TOP 9 PRIVATE"
        )
    if random.random() < 0.1:
        once = f"WITH a AS ({text}) SELECT {group} FROM (SELECT * FROM a UNION SELECT * FROM a) AS b"
        return f"{once} GROUP BY ALL TOP 9 PRIVATE"
    return f"SELECT {group} FROM ({text}) AS a GROUP BY ALL TOP 9 PRIVATE"


fill = partial(fill_table, CON)


def read(text: str) -> PrivateQuery | None:
    try:
        return private(text, CATALOG)
    except Error as error:
        found = error
    assert found.code == "too-many-tables", (found, text)
    return None


@EXAMPLES
@given(st.randoms(use_true_random=False), rows_of(NASTY), rows_of(NASTY))
def test_counts_are_the_sum_of_what_each_unit_brings_alone(random: Random, events: list[Row], more: list[Row]) -> None:
    query = read(statement(random))
    if query is None:
        return
    fill("events", events)
    fill("more", more)
    whole = counts(CON, query)
    events, more = random.sample(events, len(events)), random.sample(more, len(more))
    fill("events", events)
    fill("more", more)
    assert counts(CON, query) == whole, query.text
    found: Counter[Row] = Counter()
    for unit in {row[0] for row in events + more} - {None}:
        fill("events", keep_unit(events, unit))
        fill("more", keep_unit(more, unit))
        alone = counts(CON, query)
        assert set(alone.values()) <= {1}
        found.update(alone)
    assert dict(found) == whole, query.text


@EXAMPLES
@given(st.randoms(use_true_random=False), rows_of(PLAIN), rows_of(PLAIN))
def test_counts_are_those_of_the_text_on_duckdb(random: Random, events: list[Row], more: list[Row]) -> None:
    query = read(statement(random, total=True))
    if query is None:
        return
    fill("events", events)
    fill("more", more)
    assert counts(CON, query) == reference_counts(REFERENCE, query, "unit"), query.text
