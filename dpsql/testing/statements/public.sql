# public_rows
SELECT country, continent, people FROM countries ORDER BY country, continent;

# public_order
SELECT country, people FROM countries ORDER BY people DESC NULLS LAST, country NULLS FIRST LIMIT 5;

# public_order_by_double
SELECT area, country FROM countries ORDER BY area NULLS LAST, country;

# public_filter
SELECT country FROM countries WHERE people > 5 AND continent LIKE 'E%' ORDER BY 1;

# public_aggregates
SELECT COUNT(*) AS c, COUNT(continent) AS d, SUM(people) AS s, MIN(country) AS a, MAX(country) AS b FROM countries;

# public_groups
SELECT continent, COUNT(*) AS c, COUNT(DISTINCT country) AS d, MAX(people) AS m FROM countries GROUP BY continent ORDER BY continent;

# public_having
SELECT continent, COUNT(*) AS c FROM countries GROUP BY continent HAVING COUNT(*) > 1 ORDER BY continent;

# public_distinct
SELECT DISTINCT week FROM days ORDER BY week DESC NULLS FIRST;

# public_average
SELECT AVG(week) AS a, SUM(week) AS s FROM days;

# public_join
SELECT c.country, d.day FROM countries AS c JOIN days AS d ON d.week = length(c.country) - 1 ORDER BY 1, 2;

# public_offset
SELECT day FROM days ORDER BY day LIMIT 3 OFFSET 2;

# public_cte
WITH big AS (SELECT country FROM countries WHERE people > 1000) SELECT COUNT(*) AS n FROM big;

# public_expressions
SELECT upper(country) AS u, coalesce(continent, 'none') AS c, people % 7 AS r FROM countries ORDER BY 1, 2, 3;

# public_window
SELECT country, r FROM (SELECT country, row_number() OVER (PARTITION BY continent ORDER BY country) AS r FROM countries) AS x
ORDER BY country, r;

# public_groups_by_double
SELECT abs(area) AS a, COUNT(*) AS n FROM countries GROUP BY a ORDER BY a;

# public_distinct_doubles
SELECT DISTINCT price + 0.0 AS p FROM rights WHERE price > -1 AND price < 1 ORDER BY p;

# public_groups_by_product
SELECT price * 0 AS p, COUNT(*) AS n FROM rights WHERE price * 0 = 0 GROUP BY p HAVING p IS DISTINCT FROM 7;
