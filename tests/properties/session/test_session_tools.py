"""What tools of business intelligence write around a query: answered as DuckDB would answer it, for one charge."""

from __future__ import annotations

from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
from support.session_kit import session_on, shared
from support.sql_reference import as_newest

import dpsql
from dpsql.session import Session

ASKED = "SELECT article, date_trunc('day', ts) AS ts, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article, 2"
SPELLINGS = [
    f"{ASKED} TOP 5 PRIVATE",
    ASKED.replace("SELECT ", "SELECT TOP 5 PRIVATE "),
    f"-- by day\n{ASKED}\n/* five */ top 5 private -- of them",
]
PLAIN = [  # around which nothing stands but what means nothing
    *("{}", "{};", "{} ;\n;", "({})", "{}\nLIMIT 1001", "{} LIMIT 5 OFFSET 0", "{} FETCH FIRST 200 ROWS ONLY"),
    *("{} LIMIT ALL", "{} OFFSET 0 ROWS FETCH NEXT 9 ROWS ONLY"),
    "-- Metabase:: userID: 1 queryType: native queryHash: 8f2f\n{}",
    '/* {{"app": "dbt"}} */ {}',
]
AROUND = """\
## psql and libraries

SELECT * FROM {} t LIMIT 0

SELECT * FROM {} t WHERE 1=0

SELECT * FROM {} AS t WHERE 0 = 1

SELECT * FROM {} t WHERE FALSE

SELECT * FROM {} t WHERE 1 <> 1 LIMIT 0

SELECT 1 AS one FROM {} t

SELECT t.* FROM {} t

SELECT * FROM {} t OFFSET 0

SELECT * FROM {} t FETCH FIRST 3 ROWS ONLY

SELECT COUNT(*) FROM {} t

SELECT * FROM ({}) t

(SELECT * FROM {} t)

SELECT * FROM {}

WITH t AS {} SELECT article FROM t ORDER BY n DESC NULLS LAST, 1 LIMIT 2 OFFSET 1;

## Metabase

SELECT "source"."article" AS "article" FROM {} AS "source" LIMIT 1048575

SELECT "source"."article" AS "article", SUM("source"."n") AS "sum" FROM {} AS "source" WHERE ("source"."article" <>
'x' OR "source"."article" IS NULL) AND "source"."n" > 3 GROUP BY "source"."article" ORDER BY "sum" DESC,
"source"."article" ASC LIMIT 10

SELECT AVG("source"."n") AS "avg", COUNT(DISTINCT "source"."article") AS "count" FROM {} AS "source"

SELECT FLOOR(("source"."n" / 10.0)) * 10 AS "n", COUNT(*) AS "count" FROM {} AS "source" GROUP BY
FLOOR(("source"."n" / 10.0)) * 10 ORDER BY FLOOR(("source"."n" / 10.0)) * 10 ASC

WITH "model" AS {} SELECT "model"."article" FROM "model"

SELECT CAST(DATE_TRUNC('month', "source"."ts") AS date) AS "ts", SUM("source"."n") AS "sum" FROM {} AS "source"
GROUP BY CAST(DATE_TRUNC('month', "source"."ts") AS date) ORDER BY 1

SELECT "source"."n" FROM {} AS "source" WHERE "source"."ts" >= timestamp '2026-01-02 00:00:00.000'

SELECT (CAST(extract(dow from "source"."ts") AS integer) + 1) AS d FROM {} AS "source" GROUP BY 1

## Tableau

SELECT * FROM {} AS "Custom SQL Query" LIMIT 1001

SELECT "T1"."article" AS "x" FROM (
{}
) "T1" WHERE (0=1)

SELECT "Custom SQL Query"."article" AS "article",
  SUM(1) AS "sum:Number of Records:ok" FROM {} "Custom SQL Query" GROUP BY 1 HAVING (COUNT(1) > 0)

SELECT SUM("T"."n") AS "TEMP(x)(1)(0)", COUNT("T"."n") AS "TEMP(y)" FROM {} "T" HAVING (COUNT(1) > 0)

SELECT DATE_TRUNC( 'MONTH', CAST("T"."ts" AS TIMESTAMP) ) AS "tmn:ts:ok" FROM {} "T" WHERE (("T"."ts" >= (TIMESTAMP
'2026-01-01 00:00:00.000'))) GROUP BY 1

SELECT CAST(TRUNC(EXTRACT(YEAR FROM "T"."ts")) AS INTEGER) AS "yr:ts:ok" FROM {} "T" GROUP BY 1

## Power BI

select "_"."article", "_"."n" from {} "_" order by "_"."n" limit 1000

select "_"."article",
    "_"."n"
from
(
    {}
) "_"
limit 1000

select count(1) as "a0" from {} "_"

select "rows"."article" as "article", sum("rows"."n") as "a0" from ( select "article", "n" from {} "$Table" ) "rows"
group by "article" limit 1000001

select "_"."article", "_"."t0_0" as "t0_0", "_"."t1_0" as "t1_0" from (select "_"."article", "o1" as "t1_0", "n" as
"t0_0" from (select "_"."article" as "article", "_"."n" as "n", case when "_"."article" is not null then 0 else 1
end as "o1" from {} "_") "_") "_" order by "_"."t0_0" limit 100

## Superset

SELECT article AS article, sum(n) AS "SUM(n)" FROM {} AS virtual_table GROUP BY article ORDER BY "SUM(n)" DESC LIMIT
1000

SELECT DATE_TRUNC('day', ts) AS __timestamp, SUM(n) AS sum__n FROM {} AS virtual_table WHERE ts >=
CAST('2026-01-02 00:00:00.000000' AS TIMESTAMP) AND article IN ('a0', 'a1') GROUP BY DATE_TRUNC('day', ts)
ORDER BY sum__n DESC LIMIT 100

SELECT COUNT(*) AS "COUNT(*)" FROM {} AS virtual_table HAVING COUNT(*) > 0

SELECT COUNT(*) AS rowcount FROM (SELECT * FROM {} AS virtual_table LIMIT 1000) AS rowcount_qry

WITH virtual_table AS {} SELECT article FROM virtual_table GROUP BY article ORDER BY MAX(n) DESC LIMIT 10

SELECT DISTINCT article AS article FROM {} AS virtual_table LIMIT 1000

## Looker

SELECT
    q.article  AS "q.article",
    COALESCE(SUM(q.n ), 0) AS "q.total"
FROM {}  AS q
GROUP BY
    1
ORDER BY
    2 DESC
LIMIT 500

WITH q AS {}
SELECT q.article AS "a", COUNT(*) AS "c" FROM q
GROUP BY 1 ORDER BY 1 FETCH NEXT 500 ROWS ONLY

SELECT * FROM (SELECT *, DENSE_RANK() OVER (ORDER BY z) AS r FROM (SELECT *, MIN(n) OVER (PARTITION BY article) AS z
FROM {} ww) aa) xx WHERE r <= 500

## DBeaver

SELECT COUNT(*) FROM {} dbvrcnt

SELECT * FROM {} x LIMIT 200 OFFSET 200

## Grafana

SELECT ts AS time, n AS value, article AS metric FROM {} AS "A" WHERE ts BETWEEN '2026-01-01T00:00:00Z' AND
'2026-06-01T00:00:00.123Z' ORDER BY 1, 3

SELECT floor(extract(epoch from ts)/3600)*3600 AS "time", SUM(n) AS value FROM {} x GROUP BY 1 ORDER BY 1

SELECT extract(epoch from ts) AS time FROM {} x WHERE extract(epoch from ts) <= 1790000000

## casts

SELECT CAST(n AS VARCHAR) AS s, n::int AS i, n::float8 AS f, CAST(n AS DOUBLE PRECISION) AS d, "n"::"int4" AS q,
article::varchar(255) AS v, n::numeric(10,2) AS m, article::character varying AS c, ts::date AS t FROM {} x

SELECT article AS "Article name", n AS "Number of readers" FROM {} AS "x y" WHERE "x y"."n" BETWEEN 1 AND 1e6
"""
SHAPES = [block for block in AROUND.strip().split("\n\n") if not block.startswith("## ")]


@pytest.fixture(scope="module")
def session() -> Session:
    made = (
        "CREATE TABLE reads AS SELECT i % 3000 AS user_id, 'a' || i % 3 AS article, "
        "TIMESTAMP '2026-01-01 05:00:00' + to_days(CAST(i % 2 AS INTEGER)) AS ts FROM range(12000) n(i)"
    )
    policy = dpsql.Policy(dpsql.Budget(1, "1e-6"), {"reads": dpsql.PrivateTable("user_id")})
    return session_on(shared(made), policy)


@pytest.fixture(scope="module")
def released(session: Session) -> pa.Table:
    return session.sql(SPELLINGS[0]).arrow()


def rows(table: pa.Table) -> list[str]:
    """Return the rows in one order; a sum that DuckDB makes a HUGEINT is a whole number too."""
    found = (tuple(map(_plain, row.values())) for row in table.to_pylist())
    return sorted(map(repr, found))


def _plain(value: object) -> object:
    return int(value) if isinstance(value, Decimal) and value == int(value) else value


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("shape", PLAIN)
def test_what_means_nothing_changes_nothing(session: Session, released: pa.Table, shape: str, spelling: str) -> None:
    if spelling.endswith("them") and not shape.endswith("{}"):
        shape = shape.replace("{}", "{}\n")  # what follows a comment begins a line
    assert session.sql(shape.format(spelling)).arrow().equals(released)
    assert session.history.num_rows == 1


@pytest.mark.parametrize("shape", SHAPES)
def test_what_tools_write_around_is_computed_as_duckdb_does(session: Session, released: pa.Table, shape: str) -> None:
    known = session.history.num_rows
    with duckdb.connect() as evaluator:
        evaluator.register("released", released)
        expected = evaluator.sql(as_newest(shape).format("(SELECT * FROM released)")).to_arrow_table()
    for spelling in SPELLINGS[:2]:
        text = shape.format(f"({spelling})")
        answer = session.sql(text)
        assert answer.receipt.items_charged == 0
        assert answer.arrow().schema == session.describe(text)
        assert answer.arrow().num_columns == expected.num_columns
        assert rows(answer.arrow()) == rows(expected)
    assert session.history.num_rows == known == 1
