"""Several private tables: what a unit's rows tell depends on no other unit's, and units are told apart exactly."""

from __future__ import annotations

import duckdb
import pytest
from support.sql_joins import fill, opened
from support.sql_reference import Row, accepts_pattern, catalog_of, counts, private, same

from dpsql.errors import Refusal, Unsupported
from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.rewrite.engine_query import Bound

CON = opened()
CATALOG = catalog_of(CON, {"reads": "unit", "likes": "unit"}, ["tags"])
OWN: list[Row] = [(1, "x", 1), (1, "y", 2)]


@pytest.mark.parametrize(
    "text",
    [
        "FROM reads a LEFT JOIN likes b ON a.unit = b.unit WHERE (b.unit IN (SELECT unit FROM likes)) IS NULL",
        "FROM reads a LEFT JOIN likes b ON a.unit = b.unit WHERE b.unit NOT IN (SELECT unit FROM likes WHERE n > 0)",
        (
            "FROM reads a LEFT JOIN likes b USING (unit) WHERE CASE WHEN b.unit IN (SELECT unit FROM likes) THEN FALSE "
            "WHEN b.unit NOT IN (SELECT unit FROM likes) THEN TRUE ELSE FALSE END"
        ),
        "FROM reads a WHERE a.unit NOT IN (SELECT p.unit FROM likes q LEFT JOIN reads p ON p.unit = q.unit)",
        "FROM reads a FULL JOIN likes b ON a.unit = b.unit WHERE b.unit IS NULL",
        (
            "FROM (SELECT p.unit, q.unit AS other, p.w FROM reads p LEFT JOIN likes q ON p.unit = q.unit) a "
            "FULL JOIN (SELECT unit AS other FROM likes) b USING (other) "
            "WHERE (other IN (SELECT unit FROM likes)) IS NULL"
        ),
        (
            "FROM (SELECT unit, unit AS other, w FROM likes UNION ALL SELECT p.unit, q.unit AS other, p.w FROM reads p "
            "LEFT JOIN likes q ON p.unit = q.unit) a WHERE (a.other IN (SELECT unit FROM likes)) IS NULL"
        ),
        "FROM reads a LEFT JOIN (SELECT p.unit, q.w FROM likes q LEFT JOIN reads p ON p.unit = q.unit) b USING (unit)",
        (
            "FROM reads a WHERE NOT EXISTS (SELECT 1 FROM tags t WHERE t.w = a.w AND EXISTS (SELECT 1 FROM likes b "
            "WHERE b.unit = a.unit AND b.w = t.w))"
        ),
    ],
)
def test_what_a_unit_is_counted_in_is_its_own_affair(text: str) -> None:
    query = private(f"SELECT a.w, COUNT(DISTINCT a.unit) AS n {text} GROUP BY 1 TOP 9 PRIVATE", CATALOG)
    fill(CON, OWN, [])
    alone = counts(CON, query)
    for others in ([(2, "q", 1)], [(2, "q", 1), (3, "q", None), (None, "q", 1)]):
        fill(CON, OWN, others)
        assert {key: count for key, count in counts(CON, query).items() if key != same(["q"])} == alone
        fill(CON, OWN + others, others)
        assert {key: count for key, count in counts(CON, query).items() if key != same(["q"])} == alone


@pytest.mark.parametrize(
    "text",
    [
        "SELECT b.page FROM visits a JOIN visits b ON a.who = b.who",
        "SELECT b.page FROM visits a JOIN visits b USING (who)",
        "SELECT b.page FROM visits a, visits b WHERE a.who = b.who",
        "SELECT b.page FROM visits a FULL JOIN visits b USING (who)",
        "SELECT b.page FROM visits b SEMI JOIN visits a ON a.who = b.who AND a.page = 'x'",
        "SELECT b.page FROM visits b WHERE EXISTS (SELECT 1 FROM visits a WHERE a.who = b.who AND a.page = 'x')",
        "SELECT b.page FROM visits b WHERE b.who IN (SELECT who FROM visits WHERE page = 'x')",
    ],
)
def test_units_that_a_collation_confuses_do_not_meet(text: str) -> None:
    con = duckdb.connect()
    con.execute("CREATE TABLE visits(who VARCHAR COLLATE NOCASE, page VARCHAR)")
    con.execute("INSERT INTO visits VALUES ('Ann', 'x'), ('ann', 'y')")
    query = private(f"{text} GROUP BY ALL TOP 9 PRIVATE", catalog_of(con, {"visits": "who"}, []))
    found = counts(con, query)
    con.execute("DELETE FROM visits WHERE who COLLATE C = 'Ann'")
    without = counts(con, query)
    assert found.get(same(["y"]), 0) == without.get(same(["y"]), 0)
    assert found[same(["x"])] == 1
    assert same(["x"]) not in without


@pytest.mark.parametrize(
    ("type_", "answered"),
    [("UUID", True), ("ENUM('a', 'b')", True), ("DOUBLE", True), ("DATE", True), ("HUGEINT", True), ("FLOAT", True)],
)
def test_units_of_every_type_may_be_tied(type_: str, *, answered: bool) -> None:
    con = duckdb.connect()
    con.execute(f"CREATE TABLE one(unit {type_}, w VARCHAR); CREATE TABLE two(unit {type_}, v VARCHAR)")
    query = private(
        "SELECT v FROM one FULL JOIN two USING (unit) GROUP BY 1 TOP 9 PRIVATE",
        catalog_of(con, {"one": "unit", "two": "unit"}, []),
    )
    assert (counts(con, query) == {}) is answered


@pytest.mark.parametrize("condition", ["USING (unit)", "ON one.unit = two.unit"])
@pytest.mark.parametrize("types", [("INTEGER", "BIGINT"), ("UUID", "VARCHAR"), ("ENUM('a')", "UUID")])
def test_units_of_two_types_are_not_tied(types: tuple[str, str], condition: str) -> None:
    """DuckDB would cast one side to the other, and fail on a row of text that is no UUID."""
    con = duckdb.connect()
    con.execute(f"CREATE TABLE one(unit {types[0]}, w VARCHAR); CREATE TABLE two(unit {types[1]}, v VARCHAR)")
    catalog = catalog_of(con, {"one": "unit", "two": "unit"}, [])
    both = "(SELECT unit, w AS v FROM one UNION ALL SELECT unit, v FROM two) AS t"
    with pytest.raises(Unsupported, match="of different types"):
        analyze(f"SELECT v FROM {both} GROUP BY 1 TOP 9 PRIVATE", catalog, accepts_pattern=accepts_pattern)
    text = f"SELECT v FROM one JOIN two {condition} GROUP BY 1 TOP 9 PRIVATE"
    with pytest.raises(Refusal, match="join-private") as refused:
        analyze(text, catalog, accepts_pattern=accepts_pattern)
    assert "of one type" in str(refused.value)


@pytest.mark.parametrize("condition", ["USING (unit)", "ON one.unit = two.unit"])
@pytest.mark.parametrize("other", ["ENUM('y', 'b', 'x')", "VARCHAR", "VARCHAR COLLATE NOCASE"])
def test_units_of_an_enum_are_tied_by_their_text(other: str, condition: str) -> None:
    con = duckdb.connect()
    con.execute(f"CREATE TABLE one(unit ENUM('x', 'y', 'z'), w VARCHAR); CREATE TABLE two(unit {other}, v VARCHAR)")
    con.execute(
        "INSERT INTO one VALUES ('x', 'p'), ('y', 'p'), ('z', 'p'); INSERT INTO two VALUES ('x', 'q'), ('b', 'r')"
    )
    catalog = catalog_of(con, {"one": "unit", "two": "unit"}, [])
    query = private(f"SELECT v FROM one JOIN two {condition} GROUP BY 1 TOP 9 PRIVATE", catalog)
    assert counts(con, query) == {same(["q"]): 1}
    both = "(SELECT unit, w AS v FROM one UNION ALL SELECT unit, v FROM two) AS t"
    query = private(f"SELECT v FROM {both} GROUP BY 1 TOP 9 PRIVATE", catalog)
    assert counts(con, query) == {same(["p"]): 3, same(["q"]): 1, same(["r"]): 1}


def test_a_merged_unit_is_one_column_where_the_left_one_stood() -> None:
    fill(CON, [(1, "x", 7), (2, "y", 7)], [(2, "z", 8), (3, "z", 8)])
    for kind in ("LEFT", "RIGHT", "FULL", "INNER"):
        stars = f"(SELECT * FROM likes AS a {kind} JOIN (SELECT unit, n AS m FROM reads) AS b USING (unit)) AS x"
        columns = [row[0] for row in CON.execute(f"DESCRIBE SELECT * FROM {stars}").fetchall()]
        assert columns == ["w", "unit", "n", "m"]
        query = private(f"SELECT m, COUNT(DISTINCT unit) AS c FROM {stars} GROUP BY 1 TOP 9 PRIVATE", CATALOG)
        rows = CON.execute(f"SELECT m, COUNT(DISTINCT unit) FROM {stars} GROUP BY 1").fetchall()
        assert counts(CON, query) == {same(row[:1]): row[1] for row in rows}


BESIDE = "SELECT a.unit AS own, b.unit FROM reads a LEFT JOIN likes b ON a.unit = b.unit"  # unit may be absent
MERGED = {  # what a name of USING means is the unit where both columns are, and there where both are
    f"(SELECT own, COUNT(*) OVER (PARTITION BY unit) AS n FROM ({BESIDE}) d FULL JOIN likes l USING (unit))": (
        "not-row-local"
    ),
    "(SELECT unit, n FROM (SELECT unit, unit AS who, n FROM reads) d FULL JOIN visits USING (unit, who))": "unit-lost",
    "(SELECT unit, n FROM (SELECT unit, unit AS who, n FROM reads) d LEFT JOIN visits USING (unit, who))": "",
    "(SELECT unit, n FROM reads FULL JOIN codes USING (unit))": "",
    "(SELECT unit, n FROM codes FULL JOIN reads USING (unit))": "",
    "(SELECT unit, n FROM codes JOIN reads USING (unit))": "",
}


@pytest.mark.parametrize("origin", MERGED)
def test_a_merged_name_is_the_unit_only_where_it_is_in_every_row(origin: str) -> None:
    con = opened()
    con.execute("CREATE TABLE visits(unit BIGINT, who BIGINT); CREATE TABLE codes(unit BIGINT)")
    catalog = catalog_of(con, {"reads": "unit", "likes": "unit", "visits": "who"}, ["codes"])
    text = f"SELECT n FROM {origin} AS t GROUP BY n TOP 9 PRIVATE"
    if not MERGED[origin]:
        assert private(text, catalog).unit_name == "unit"
        return
    with pytest.raises(Refusal) as refused:
        private(text, catalog)
    assert refused.value.code == MERGED[origin]


@pytest.mark.parametrize("kind", ["LEFT", "RIGHT", "FULL"])
@pytest.mark.parametrize(
    "condition", ["b.w IN (SELECT w FROM tags)", "EXISTS (SELECT 1 FROM tags)", "b.n > (SELECT MAX(n) FROM tags)"]
)
def test_a_subquery_in_on_of_an_outer_join_stands_in_from_instead(kind: str, condition: str) -> None:
    """DuckDB drops a join that DISTINCT can do without, and then fails on what its condition has computed."""
    text = f"SELECT a.w FROM reads a {kind} JOIN likes b ON a.unit = b.unit AND {condition} GROUP BY 1 TOP 9 PRIVATE"
    with pytest.raises(Unsupported, match="ON of an outer join"):
        analyze(text, CATALOG, accepts_pattern=accepts_pattern)
    inside = text.replace("likes b", f"(SELECT *, {condition} AS found FROM likes b) AS b").replace(
        f"AND {condition} G", "AND b.found G"
    )
    fill(CON, [(1, "x", 1), (2, "y", 1)], [(1, "x", 0), (2, "z", None)])
    found = counts(CON, private(inside, CATALOG))
    for groups in (2, 20):
        assert counts(CON, private(inside, CATALOG), Bound(groups, (1, 2))) == found


def test_all_private_tables_that_are_read_are_known_wherever_they_stand() -> None:
    text = "SELECT w FROM reads r WHERE EXISTS (SELECT 1 FROM likes l WHERE l.unit = r.unit) GROUP BY 1 TOP 9 PRIVATE"
    query = private(text, CATALOG)
    assert query.protected == (("likes", "unit"), ("reads", "unit"))
    assert query.holders == "likes and reads"
    con = duckdb.connect()
    con.execute("CREATE TABLE a(x INT, w INT); CREATE TABLE b(y INT, v INT)")
    other = private(
        "SELECT w FROM a JOIN b ON a.x = b.y GROUP BY 1 TOP 9 PRIVATE", catalog_of(con, {"a": "x", "b": "y"}, [])
    )
    assert (other.unit_name, other.holders) == ("x", "a and y of b")
