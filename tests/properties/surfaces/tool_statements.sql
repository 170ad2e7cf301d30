-- What business intelligence tools, query builders and SQL courses write around a result, in our words over our tables.
-- {READS} is a private query with article, day (a TIMESTAMP) and n; {COUNTRIES} one with country and n; {TOTAL} a total n.
-- topics(article, topic, weight) and days(day, label) are public. One statement a paragraph; a line "-- source: ..." names
-- where its shape is from, and "-- refused: code" says that it must not be answered.

-- source: Superset, chart over a virtual dataset, time series with a series limit
SELECT DATE_TRUNC('day', day) AS __timestamp, article AS article, SUM(n) AS "SUM(n)" FROM ({READS}) AS virtual_table JOIN (SELECT article AS article__, SUM(n) AS mme_inner__ FROM ({READS}) AS virtual_table WHERE day >= TIMESTAMP '2026-01-01 00:00:00' GROUP BY article ORDER BY mme_inner__ DESC LIMIT 2) AS series_limit ON article = article__ GROUP BY DATE_TRUNC('day', day), article ORDER BY "SUM(n)" DESC LIMIT 10000

-- source: Superset, big number with trend
SELECT DATE_TRUNC('week', day) AS __timestamp, SUM(n) AS total FROM ({READS}) AS virtual_table WHERE day >= TO_TIMESTAMP(0)::TIMESTAMP GROUP BY DATE_TRUNC('week', day) ORDER BY total DESC LIMIT 50000

-- source: Superset, percent metrics of a table chart
SELECT article AS article, SUM(n) AS s, SUM(n) / SUM(SUM(n)) OVER () AS "%s" FROM ({READS}) AS virtual_table GROUP BY article ORDER BY s DESC LIMIT 1000

-- source: Superset, filter box values
SELECT article AS article FROM (SELECT * FROM ({READS}) AS inner_qry) AS virtual_table GROUP BY article ORDER BY article ASC LIMIT 10000

-- source: Superset, box plot
SELECT article, quantile_cont(n, [0.25, 0.5, 0.75]) AS q FROM ({READS}) AS virtual_table GROUP BY article LIMIT 1000

-- source: Superset, Jinja dataset with a CTE
WITH cte AS ({READS}), __cte AS (SELECT * FROM cte WHERE n IS NOT NULL) SELECT * FROM __cte LIMIT 101

-- source: Superset, time comparison by offset join
SELECT a.day, a.n, b.n AS "n__1 day ago" FROM (SELECT day, SUM(n) AS n FROM ({READS}) AS virtual_table GROUP BY day) AS a LEFT JOIN (SELECT day + INTERVAL '1 day' AS day, SUM(n) AS n FROM ({READS}) AS virtual_table GROUP BY 1) AS b USING (day) ORDER BY 1

-- source: Superset, SQL Lab preview
SELECT * FROM ({COUNTRIES}) AS t LIMIT 1001

-- source: Superset, histogram
SELECT floor(n / 100.0) * 100 AS bin, COUNT(*) AS c FROM ({READS}) AS virtual_table GROUP BY 1 ORDER BY 1

-- source: Superset, row count
SELECT COUNT(*) AS rowcount FROM (SELECT article, SUM(n) FROM ({READS}) AS virtual_table GROUP BY article) AS rowcount_qry

-- source: Metabase, question on a question
SELECT "source"."article" AS "article", SUM("source"."n") AS "sum" FROM (SELECT * FROM ({READS}) AS "inner") AS "source" GROUP BY "source"."article" ORDER BY "sum" DESC, "source"."article" ASC

-- source: Metabase, cumulative sum
SELECT "source"."day" AS "day", SUM(SUM("source"."n")) OVER (ORDER BY "source"."day" ASC ROWS UNBOUNDED PRECEDING) AS "sum" FROM ({READS}) AS "source" GROUP BY "source"."day" ORDER BY "source"."day" ASC

-- source: Metabase, Offset()
SELECT CAST("source"."day" AS date) AS "day", LAG(SUM("source"."n"), 1) OVER (ORDER BY CAST("source"."day" AS date) ASC) AS "previous" FROM ({READS}) AS "source" GROUP BY 1 ORDER BY 1

-- source: Metabase, custom expression with case and ratio
SELECT CASE WHEN "source"."n" > 500 THEN 'large' ELSE 'small' END AS "size", CAST(COUNT(*) AS float) / NULLIF(CAST(SUM("source"."n") AS float), 0.0) AS "ratio" FROM ({READS}) AS "source" GROUP BY 1

-- source: Metabase, join to a model
SELECT "source"."article" AS "article", "Topics - Article"."topic" AS "Topics - Article__topic", "source"."n" AS "n" FROM ({READS}) AS "source" LEFT JOIN "main"."topics" AS "Topics - Article" ON "source"."article" = "Topics - Article"."article" LIMIT 2000

-- source: Metabase, regex extract and text search
SELECT regexp_extract("source"."article", '[0-9]+') AS "number" FROM ({READS}) AS "source" WHERE LOWER("source"."article") LIKE '%a%' GROUP BY 1 ORDER BY 1

-- source: Metabase, column discovery of a native query
WITH "card" AS ({READS}) SELECT * FROM "card" WHERE 1 = 0

-- source: Metabase, median and percentile
SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY "source"."n") AS "median" FROM ({READS}) AS "source"

-- source: Metabase, day of week
SELECT ((CAST(extract(dow from "source"."day") AS integer) + 7) % 7) + 1 AS "dow", COUNT(*) AS "count" FROM ({READS}) AS "source" GROUP BY 1 ORDER BY 1

-- source: Grafana, time series with macros expanded
SELECT floor(extract(epoch from day) / 86400) * 86400 AS "time", article AS metric, avg(n) AS "value" FROM ({READS}) AS q WHERE day BETWEEN '2026-01-01T00:00:00Z' AND '2026-12-31T00:00:00Z' GROUP BY 1, 2 ORDER BY 1, 2

-- source: Grafana, gauge with a threshold
SELECT sum(n)::float / 1000 AS "Readers (k)" FROM ({READS}) AS q

-- source: Grafana, template variable
SELECT DISTINCT article AS __text, article AS __value FROM ({READS}) AS q ORDER BY 1

-- source: Grafana, filled gaps
SELECT s.t AS time, coalesce(q.n, 0) AS value FROM generate_series(TIMESTAMP '2026-01-01', TIMESTAMP '2026-01-04', INTERVAL 1 DAY) AS s(t) LEFT JOIN (SELECT day, SUM(n) AS n FROM ({READS}) AS r GROUP BY day) AS q ON q.day = s.t ORDER BY 1

-- source: Grafana, state timeline by window
SELECT day AS time, article, CASE WHEN n > avg(n) OVER (PARTITION BY article) THEN 'high' ELSE 'low' END AS state FROM ({READS}) AS q ORDER BY 1, 2

-- source: Grafana, two queries in one panel
SELECT 'articles' AS metric, (SELECT COUNT(*) FROM ({READS}) AS a) AS value UNION ALL SELECT 'countries', (SELECT COUNT(*) FROM ({COUNTRIES}) AS b)

-- source: Redash, cohort preparation
SELECT day::date AS date, min(day::date) OVER (PARTITION BY article) AS cohort, date_diff('day', min(day) OVER (PARTITION BY article), day) AS step, n AS value FROM ({READS}) AS q ORDER BY 2, 3

-- source: Redash, funnel
WITH steps AS (SELECT 1 AS step, SUM(n) AS n FROM ({READS}) AS r UNION ALL SELECT 2, SUM(n) FROM ({COUNTRIES}) AS c) SELECT step, n, round(n * 100.0 / first_value(n) OVER (ORDER BY step), 1) AS pct FROM steps ORDER BY step

-- source: Redash, query results as a table
SELECT a.country, a.n FROM ({COUNTRIES}) AS a WHERE a.n > (SELECT avg(n) FROM ({COUNTRIES}) AS b)

-- source: Redash, link column
SELECT '<a href="https://example.org/' || article || '">' || article || '</a>' AS link, printf('%d readers', n) AS t FROM ({READS}) AS q

-- source: Redash, dropdown list
SELECT article AS name, article AS value FROM ({READS}) AS q GROUP BY ALL ORDER BY ALL

-- source: Tableau, top n filter by a set
SELECT "Custom SQL Query"."article" AS "article", SUM("Custom SQL Query"."n") AS "sum:n:ok" FROM ({READS}) "Custom SQL Query" INNER JOIN (SELECT "Custom SQL Query"."article" AS "article", SUM("Custom SQL Query"."n") AS "$__alias__0" FROM ({READS}) "Custom SQL Query" GROUP BY 1 ORDER BY 2 DESC LIMIT 2) "t0" ON ("Custom SQL Query"."article" IS NOT DISTINCT FROM "t0"."article") GROUP BY 1

-- source: Tableau, level of detail
SELECT "t0"."article" AS "article", SUM("t1"."m") AS "sum:m:ok" FROM (SELECT "article" FROM ({READS}) "q" GROUP BY 1) "t0" INNER JOIN (SELECT "article", MAX("n") AS "m" FROM ({READS}) "q" GROUP BY 1) "t1" ON ("t0"."article" IS NOT DISTINCT FROM "t1"."article") GROUP BY 1

-- source: Tableau, quick filter domain
SELECT "Custom SQL Query"."country" AS "country" FROM ({COUNTRIES}) "Custom SQL Query" GROUP BY 1 ORDER BY 1 ASC NULLS FIRST

-- source: Tableau, date hierarchy
SELECT CAST(EXTRACT(YEAR FROM "q"."day") AS INTEGER) AS "yr:day:ok", CAST(EXTRACT(QUARTER FROM "q"."day") AS INTEGER) AS "qr:day:ok", SUM("q"."n") AS "sum:n:ok" FROM ({READS}) "q" GROUP BY 1, 2

-- source: Tableau, metadata probe
SELECT * FROM ({READS}) "Custom SQL Query" LIMIT 0

-- source: Tableau, blending of two sources
SELECT "a"."article", "b"."topic", SUM("a"."n") AS "n" FROM ({READS}) "a" LEFT JOIN "topics" "b" ON ("a"."article" = "b"."article") GROUP BY 1, 2 HAVING (COUNT(1) > 0)

-- source: Tableau, reference line
SELECT AVG("x"."n") AS "avg", STDDEV_POP("x"."n") AS "std", MIN("x"."n") AS "lo", MAX("x"."n") AS "hi" FROM ({READS}) "x" HAVING (COUNT(1) > 0)

-- source: Power BI, DirectQuery with a computed column
select "_"."article", "_"."a0" from (select "rows"."article" as "article", sum(cast("rows"."n" as decimal(38, 6))) as "a0" from (select "article", "n" from ({READS}) "$Table") "rows" group by "article") "_" where not "_"."a0" is null limit 1000001

-- source: Power BI, top n visual
select "basetable0"."c1", "basetable0"."a0" from (select "t0"."article" as "c1", sum("t0"."n") as "a0" from ({READS}) "t0" group by "t0"."article") "basetable0" order by "basetable0"."a0" desc, "basetable0"."c1" asc limit 4

-- source: Power BI, incremental refresh window
select "_"."day", "_"."n" from ({READS}) "_" where "_"."day" >= timestamp '2026-01-01 00:00:00' and "_"."day" < timestamp '2027-01-01 00:00:00'

-- source: Power BI, distinct count measure
select count(distinct "t0"."article") + max(case when "t0"."article" is null then 1 else 0 end) as "a0" from ({READS}) "t0"

-- source: Power BI, merged queries
select "$Outer"."article", "$Inner"."topic" from ({READS}) "$Outer" left outer join (select "_"."article", "_"."topic" from "topics" "_") "$Inner" on ("$Outer"."article" = "$Inner"."article")

-- source: Looker, derived table as a CTE
WITH reads_per_day AS ({READS}) SELECT (DATE(reads_per_day.day)) AS "reads_per_day.day_date", COALESCE(SUM(reads_per_day.n), 0) AS "reads_per_day.total" FROM reads_per_day GROUP BY (DATE(reads_per_day.day)) ORDER BY 1 DESC FETCH NEXT 500 ROWS ONLY

-- source: Looker, pivot
SELECT * FROM (SELECT *, DENSE_RANK() OVER (ORDER BY z___min_rank) AS z___pivot_row_rank, RANK() OVER (PARTITION BY z__pivot_col_rank ORDER BY z___min_rank) AS z__pivot_col_ordering FROM (SELECT *, MIN(z___rank) OVER (PARTITION BY "q.article") AS z___min_rank FROM (SELECT *, RANK() OVER (ORDER BY "q.total" DESC, z__pivot_col_rank, "q.article") AS z___rank FROM (SELECT *, DENSE_RANK() OVER (ORDER BY "q.day") AS z__pivot_col_rank FROM (SELECT q.article AS "q.article", q.day AS "q.day", SUM(q.n) AS "q.total" FROM ({READS}) AS q GROUP BY 1, 2) ww) bb WHERE z__pivot_col_rank <= 16384) aa) xx) zz WHERE z___pivot_row_rank <= 500 OR z__pivot_col_ordering = 1 ORDER BY z___pivot_row_rank

-- source: Looker, totals row
WITH q AS ({READS}) SELECT COALESCE(SUM(q.n), 0) AS "q.total" FROM q LIMIT 1

-- source: Looker, tier dimension
SELECT CASE WHEN q.n < 100 THEN 'T00' WHEN q.n < 500 THEN 'T01' WHEN q.n IS NOT NULL THEN 'T02' ELSE 'TXX' END AS "q.tier", COUNT(*) AS "q.count" FROM ({READS}) AS q GROUP BY 1 ORDER BY MIN(q.n)

-- source: Looker, percentile measure
SELECT q.article AS a, APPROX_QUANTILE(q.n, 0.9) AS p90 FROM ({READS}) AS q GROUP BY 1 ORDER BY 2 DESC LIMIT 500

-- source: Looker Studio, blended chart
SELECT t0.article, COUNT(*) AS t0_c, t0.n * 1.0 / t1.n AS share FROM ({READS}) AS t0 CROSS JOIN ({TOTAL}) AS t1 GROUP BY t0.article, t0.n, t1.n ORDER BY share DESC LIMIT 100

-- source: dbt, model with staging CTEs
with source as ({READS}), renamed as (select article as article_id, day as read_on, n as readers from source), final as (select *, row_number() over (partition by article_id order by read_on) as nth from renamed) select * from final

-- source: dbt, limit of dbt show
select * from (with source as ({READS}) select * from source) as model_limit_subq limit 5

-- source: dbt_utils, surrogate key
select md5(cast(coalesce(cast(article as TEXT), '_null_') || '-' || coalesce(cast(day as TEXT), '_null_') as TEXT)) as k, n from ({READS}) as q

-- source: dbt_utils, pivot macro
select article, sum(case when dayofweek(day) = 4 then n else 0 end) as "thursday", sum(case when dayofweek(day) = 5 then n else 0 end) as "friday" from ({READS}) as q group by article

-- source: dbt_utils, date spine
with rawdata as (with p as (select 0 as generated_number union all select 1) select p0.generated_number * power(2, 0) + p1.generated_number * power(2, 1) + 1 as generated_number from p as p0 cross join p as p1), spine as (select DATE '2026-01-01' + (generated_number - 1)::int as d from rawdata) select spine.d, sum(q.n) as n from spine left join ({READS}) as q on q.day::date = spine.d group by 1 order by 1

-- source: dbt test, not null and unique
select count(*) as failures, count(*) != 0 as should_warn from (select article from ({READS}) as q where article is null) dbt_internal_test

-- source: dbt MetricFlow, ratio metric
SELECT MAX(subq_1.n) / NULLIF(MAX(subq_2.n), 0)::DOUBLE AS share FROM (SELECT SUM(n) AS n FROM ({READS}) AS a) AS subq_1 CROSS JOIN (SELECT SUM(n) AS n FROM ({COUNTRIES}) AS b) AS subq_2

-- source: Evidence, chained queries
with by_article as (select article, sum(n) as readers_num0 from ({READS}) as q group by all), ranked as (select *, readers_num0 / sum(readers_num0) over () as share_pct1 from by_article) select * from ranked order by share_pct1 desc

-- source: Evidence, big value with comparison
select last(n order by d) as readers, last(n order by d) / first(n order by d) - 1 as growth_pct from (select day as d, sum(n) as n from ({READS}) as q group by 1) as s

-- source: Evidence, sparkline
select article, array_agg({'date': day::varchar, 'value': n} order by day) as trend from ({READS}) as q group by article

-- source: Hex, cell that reads another cell
with dataframe_1 as ({READS}) select * exclude (day), strftime(day, '%a') as weekday from dataframe_1

-- source: Hex, pivot cell
WITH cells AS ({READS}) SELECT * FROM (PIVOT cells ON article IN ('a0', 'a1', 'a2') USING SUM(n) GROUP BY day) ORDER BY day

-- source: Mode, rolling average
SELECT day, AVG(n) OVER (ORDER BY day RANGE BETWEEN INTERVAL 6 DAYS PRECEDING AND CURRENT ROW) AS rolling FROM (SELECT day, SUM(n)::BIGINT AS n FROM ({READS}) AS q GROUP BY day) AS d ORDER BY day

-- source: Mode SQL tutorial, ntile
SELECT article, n, NTILE(4) OVER (ORDER BY n) AS quartile FROM ({READS}) AS q ORDER BY n

-- source: Mode SQL tutorial, running total
SELECT day, article, n, SUM(n) OVER (PARTITION BY article ORDER BY day) AS running_total FROM ({READS}) AS q ORDER BY 2, 1

-- source: Mode SQL tutorial, window alias
SELECT article, n, RANK() OVER w AS r, LEAD(n, 1) OVER w AS next FROM ({READS}) AS q WINDOW w AS (PARTITION BY day ORDER BY n DESC) ORDER BY 1, 2

-- source: Lightdash, table calculation
WITH metrics AS (SELECT "reads".article AS "reads_article", SUM("reads".n) AS "reads_total" FROM ({READS}) AS "reads" GROUP BY 1) SELECT *, "reads_total" - AVG("reads_total") OVER () AS "diff_from_average" FROM metrics ORDER BY "reads_total" DESC LIMIT 500

-- source: Lightdash, pivot query
WITH original_query AS ({READS}), group_by_query AS (SELECT article, day, (ARRAY_AGG(n))[1] AS n_any FROM original_query GROUP BY article, day), pivot_query AS (SELECT *, DENSE_RANK() OVER (ORDER BY article) AS row_index, DENSE_RANK() OVER (ORDER BY day) AS column_index FROM group_by_query), filtered_rows AS (SELECT * FROM pivot_query WHERE row_index <= 500), total_columns AS (SELECT COUNT(DISTINCT column_index) AS total_columns FROM filtered_rows) SELECT * FROM filtered_rows CROSS JOIN total_columns ORDER BY row_index, column_index

-- source: Lightdash, row functions
SELECT article, n, NTH_VALUE(n, 2) OVER (ORDER BY n DESC ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS second, MAX(CASE WHEN article = 'a0' THEN n END) OVER () AS lookup FROM ({READS}) AS q

-- source: Lightdash, column totals
WITH q AS ({READS}), column_totals AS (SELECT SUM(n) AS total FROM q) SELECT q.article, q.n / column_totals.total AS share FROM q CROSS JOIN column_totals

-- source: Cube, query with keys and measures
SELECT q_0."reads__article", "reads__total" "reads__total" FROM (SELECT "reads".article "reads__article", sum("reads".n) "reads__total" FROM ({READS}) AS "reads" GROUP BY 1) as q_0 ORDER BY 2 DESC LIMIT 10000

-- source: Cube, rolling window over a series of dates
SELECT "reads.day_series"."date_from" "reads__day_day", sum("reads_base"."n") "reads__rolling" FROM (SELECT unnest(range(TIMESTAMP '2026-01-01', TIMESTAMP '2026-01-04', INTERVAL 1 DAY)) AS date_from) AS "reads.day_series" LEFT JOIN ({READS}) AS "reads_base" ON "reads_base".day <= "reads.day_series"."date_from" AND "reads_base".day > "reads.day_series"."date_from" - interval '7 day' GROUP BY 1 ORDER BY 1 ASC LIMIT 10000

-- source: Cube SQL API, wrapped query
SELECT "t"."article", COUNT(*) AS "c" FROM (SELECT "article" FROM ({READS}) AS "reads" WHERE "n" > 10) AS "t" GROUP BY 1 LIMIT 50000

-- source: SQLAlchemy, aliased subquery with bound limits
SELECT anon_1.article, anon_1.n FROM ({READS}) AS anon_1 ORDER BY anon_1.n DESC LIMIT 10 OFFSET 0

-- source: SQLAlchemy, correlated exists
SELECT topics.topic FROM topics WHERE EXISTS (SELECT * FROM ({READS}) AS anon_1 WHERE anon_1.article = topics.article)

-- source: SQLAlchemy, count of a query
SELECT count(*) AS count_1 FROM (SELECT anon_2.article AS article, anon_2.n AS n FROM ({READS}) AS anon_2) AS anon_1

-- source: ibis, window and case
SELECT "t1"."article", "t1"."n", ROW_NUMBER() OVER (PARTITION BY "t1"."article" ORDER BY "t1"."n" DESC) - 1 AS "rn" FROM (SELECT * FROM ({READS}) AS "t0" WHERE NOT ("t0"."article" IS NULL)) AS "t1" QUALIFY (ROW_NUMBER() OVER (PARTITION BY "t1"."article" ORDER BY "t1"."n" DESC) - 1) < 2

-- source: ibis, struct and list
SELECT "t0"."article", LIST("t0"."n") AS "ns", ARG_MAX("t0"."day", "t0"."n") AS "best" FROM ({READS}) AS "t0" GROUP BY 1

-- source: ibis, pivot_longer
SELECT "t1"."article", "t1"."pair"."name" AS "name", "t1"."pair"."value" AS "value" FROM (SELECT "t0"."article", UNNEST([{'name': 'n', 'value': "t0"."n"}, {'name': 'twice', 'value': "t0"."n" * 2}]) AS "pair" FROM ({READS}) AS "t0") AS "t1"

-- source: dbplyr, slice_max by group
SELECT "article", "day", "n" FROM (SELECT q01.*, RANK() OVER (PARTITION BY "article" ORDER BY "n" DESC) AS "col01" FROM ({READS}) q01) q01 WHERE ("col01" <= 1)

-- source: dbplyr, mutate and summarise
SELECT "article", AVG("share") AS "share" FROM (SELECT q01.*, "n" * 1.0 / SUM("n") OVER (PARTITION BY "day") AS "share" FROM ({READS}) q01) q01 GROUP BY "article"

-- source: dbplyr, left_join with suffixes
SELECT LHS.*, "topic", RHS."weight" AS "weight.y" FROM ({READS}) LHS LEFT JOIN "topics" RHS ON (LHS."article" = RHS."article")

-- source: dbplyr, count and pivot_wider
SELECT "article", MAX(CASE WHEN ("d" = 4) THEN "n" END) AS "4", MAX(CASE WHEN ("d" = 5) THEN "n" END) AS "5" FROM (SELECT q01.*, EXTRACT(isodow FROM "day") AS "d" FROM ({READS}) q01) q01 GROUP BY "article"

-- source: Malloy, nested query
WITH __stage0 AS (SELECT group_set, CASE WHEN group_set IN (0, 1) THEN base.article END AS "article__0", CASE WHEN group_set = 0 THEN SUM(base.n) END AS "total__0", CASE WHEN group_set = 1 THEN base.day END AS "day__1", CASE WHEN group_set = 1 THEN SUM(base.n) END AS "n__1" FROM ({READS}) AS base CROSS JOIN (SELECT UNNEST(GENERATE_SERIES(0, 1, 1)) AS group_set) AS group_set GROUP BY 1, 2, 4) SELECT "article__0" AS "article", MAX("total__0") AS total, COALESCE(LIST({'day': "day__1", 'n': "n__1"} ORDER BY "n__1" DESC NULLS LAST, "day__1") FILTER (WHERE group_set = 1), []) AS by_day FROM __stage0 GROUP BY 1 ORDER BY 2 DESC NULLS LAST, 1

-- source: PRQL, compiled pipeline
WITH table_0 AS (SELECT article, n, ROW_NUMBER() OVER (PARTITION BY article ORDER BY n DESC) AS _expr_0 FROM ({READS}) AS q) SELECT article, n FROM table_0 WHERE _expr_0 <= 1 ORDER BY n DESC, article

-- source: Rill, time series with a comparison
SELECT base.ts AS ts, base.n AS n, comparison.n AS n_prev, (base.n - comparison.n) / comparison.n::DOUBLE AS n__delta_rel FROM (SELECT date_trunc('DAY', day) AS ts, SUM(n) AS n FROM ({READS}) AS a GROUP BY ALL) AS base LEFT OUTER JOIN (SELECT date_trunc('DAY', day) + INTERVAL 1 DAY AS ts, SUM(n) AS n FROM ({READS}) AS b GROUP BY ALL) AS comparison ON base.ts = comparison.ts ORDER BY base.ts

-- source: Rill, top list with rest
SELECT COALESCE(t.article, 'Other') AS article, SUM(q.n) AS n FROM ({READS}) AS q LEFT JOIN (SELECT article FROM ({READS}) AS r GROUP BY 1 ORDER BY SUM(n) DESC LIMIT 2) AS t USING (article) GROUP BY ALL ORDER BY n DESC

-- source: MotherDuck, column explorer
SELECT COUNT(*) AS c, approx_count_distinct(article) AS d, MIN(n), MAX(n), AVG(n)::DOUBLE, histogram(article) AS h FROM ({READS}) AS q

-- source: Observable, chart of bins
SELECT width_bucket AS x, COUNT(*) AS y FROM (SELECT floor(n / 50)::INT AS width_bucket FROM ({READS}) AS q) GROUP BY 1 ORDER BY 1

-- source: Mosaic (vgplot), bins and sums
SELECT 0 + 100 * FLOOR(n / 100)::DOUBLE AS x1, 0 + 100 * (1 + FLOOR(n / 100))::DOUBLE AS x2, COUNT(*)::INTEGER AS y FROM ({READS}) AS source GROUP BY x1, x2

-- source: Zing Data and other phone clients, sampled preview
SELECT * FROM ({READS}) AS q USING SAMPLE 100 PERCENT (bernoulli)

-- source: DBeaver, sorted and filtered grid
SELECT * FROM ({READS}) z_q ORDER BY n DESC, article ASC LIMIT 200

-- source: DataGrip, aggregate view
SELECT count(*), count(DISTINCT article), sum(n), avg(n), bool_and(n > 0) FROM ({READS}) AS q

-- source: Sigma, grouped levels
WITH level_1 AS (SELECT article, day, n FROM ({READS}) AS w), level_2 AS (SELECT article AS article_2, SUM(n) AS sum_of_n FROM level_1 GROUP BY article) SELECT l1.article, l1.day, l1.n, l2.sum_of_n FROM level_1 AS l1 LEFT JOIN level_2 AS l2 ON l1.article IS NOT DISTINCT FROM l2.article_2 ORDER BY l2.sum_of_n DESC, 2

-- source: ThoughtSpot, growth of a measure
SELECT "ta_1"."ca_1", CASE WHEN LAG("ta_1"."ca_2") OVER (ORDER BY "ta_1"."ca_1") <> 0 THEN ("ta_1"."ca_2" - LAG("ta_1"."ca_2") OVER (ORDER BY "ta_1"."ca_1"))::float / LAG("ta_1"."ca_2") OVER (ORDER BY "ta_1"."ca_1") ELSE NULL END AS "ca_3" FROM (SELECT "q"."day" AS "ca_1", SUM("q"."n") AS "ca_2" FROM ({READS}) AS "q" GROUP BY 1) AS "ta_1" ORDER BY 1

-- source: Preset, annotation layer
SELECT label AS title, day AS start_dttm, NULL AS end_dttm FROM days WHERE label IS NOT NULL ORDER BY 2

-- source: PostgreSQL wiki, share of a whole by subquery
SELECT country, n, round(100.0 * n / (SELECT sum(n) FROM ({COUNTRIES}) AS t), 2) AS pct FROM ({COUNTRIES}) AS c ORDER BY pct DESC

-- source: Use The Index, Luke, keyset pagination
SELECT article, n FROM ({READS}) AS q WHERE (n, article) < (100000, 'z') ORDER BY n DESC, article DESC FETCH FIRST 3 ROWS ONLY

-- source: Modern SQL, filter clause
SELECT SUM(n) FILTER (WHERE article = 'a0') AS a0, SUM(n) FILTER (WHERE article <> 'a0') AS rest FROM ({READS}) AS q

-- source: Modern SQL, gaps and islands
SELECT article, MIN(day) AS since, MAX(day) AS until, COUNT(*) AS days FROM (SELECT article, day, day - to_days(row_number() OVER (PARTITION BY article ORDER BY day)::INT) AS island FROM ({READS}) AS q) AS g GROUP BY article, island ORDER BY 1, 2

-- source: Modern SQL, recursive numbers
WITH RECURSIVE numbers(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM numbers WHERE i < 3), q AS ({READS}) SELECT i, (SELECT n FROM q ORDER BY n DESC LIMIT 1) / i AS share FROM numbers ORDER BY i

-- source: Kimball, rollup report
SELECT article, CAST(day AS DATE) AS d, SUM(n) AS n, GROUPING(article, CAST(day AS DATE)) AS g FROM ({READS}) AS q GROUP BY ROLLUP (article, CAST(day AS DATE)) ORDER BY 4, 1, 2

-- source: Pareto chart of SQL courses
SELECT article, n, SUM(n) OVER (ORDER BY n DESC ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) * 100.0 / SUM(n) OVER () AS cumulative FROM ({READS}) AS q ORDER BY n DESC

-- source: LeetCode, second highest
SELECT (SELECT DISTINCT n FROM ({READS}) AS q ORDER BY n DESC LIMIT 1 OFFSET 1) AS second_highest

-- source: StrataScratch, top one of each group with ties
SELECT day, article FROM (SELECT day, article, dense_rank() OVER (PARTITION BY day ORDER BY n DESC) AS r FROM ({READS}) AS q) AS ranked WHERE r = 1 ORDER BY 1, 2

-- source: DuckDB documentation, ASOF join
SELECT d.label, q.n FROM days AS d ASOF JOIN ({READS}) AS q ON d.day >= q.day ORDER BY 1, 2

-- source: DuckDB documentation, list lambda
SELECT list_sum(list_transform(list(n), lambda v: v * 2)) AS twice FROM ({READS}) AS q

-- source: DuckDB documentation, positional and qualified stars
SELECT q.* RENAME (n AS readers), t.topic FROM ({READS}) AS q JOIN topics AS t USING (article) ORDER BY ALL LIMIT 5

-- source: DuckDB documentation, unpivot
SELECT * FROM (UNPIVOT (SELECT SUM(n) AS total, MAX(n)::HUGEINT AS best FROM ({READS}) AS q) ON total, best INTO NAME k VALUE v) ORDER BY k

-- source: a chart of public tables alone
SELECT topic, string_agg(article, ', ' ORDER BY article) AS articles, SUM(weight) OVER () AS w FROM topics GROUP BY topic, weight ORDER BY 1

-- source: a number tile
SELECT n AS "Readers", to_json({'value': n}) AS j FROM ({TOTAL}) AS t

-- source: Superset, a chart whose dataset joins the private table itself
-- refused: wrapping
SELECT q.article, r.country FROM ({READS}) AS q JOIN reads AS r ON r.article = q.article

-- source: DBeaver, row estimate of a private table
-- refused: not-private
SELECT COUNT(*) FROM reads dbvrcnt

-- source: Hex, file cell
-- refused: function
SELECT * FROM ({READS}) AS q JOIN read_csv('targets.csv') AS t USING (article)

-- source: MotherDuck, summary of a table
-- refused: wrapping
SELECT s.*, q.n FROM (SUMMARIZE topics) AS s, ({READS}) AS q
