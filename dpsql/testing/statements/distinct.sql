# measure_values: total
SELECT COUNT(DISTINCT article, contribution_bounds_per_group => (0, 1000)) AS n FROM reads PRIVATE;

# measure_values_of_numbers: total
SELECT COUNT(DISTINCT n, contribution_bounds_per_group => (0, 1000)) AS n,
COUNT(DISTINCT amount, contribution_bounds_per_group => (0, 1000)) AS amounts FROM reads PRIVATE;

# measure_values_of_doubles: total
SELECT COUNT(DISTINCT price, contribution_bounds_per_group => (0, 1000)) AS n FROM reads PRIVATE;

# measure_values_of_days: total
SELECT COUNT(DISTINCT day, contribution_bounds_per_group => (0, 1000)) AS n FROM reads PRIVATE;

# measure_values_computed: total
SELECT COUNT(DISTINCT n % 7, contribution_bounds_per_group => (0, 1000)) AS n FROM reads PRIVATE;

# measure_values_filtered: total
SELECT COUNT(DISTINCT article, contribution_bounds_per_group => (0, 1000)) FILTER (WHERE n > 0) AS n FROM reads PRIVATE;

# measure_values_of_groups: all
SELECT country, COUNT(DISTINCT article, contribution_bounds_per_group => (0, 1000)) AS n FROM reads
GROUP BY country TOP 9 PRIVATE;

# measure_values_beside_others: all
SELECT country, COUNT(DISTINCT article, contribution_bounds_per_group => (0, 1000)) AS n, COUNT(DISTINCT user_id) AS u,
COUNT(*) AS r, SUM(n) AS s, AVG(price) AS a, COUNT(DISTINCT user_id) FILTER (WHERE flag) AS f FROM reads
GROUP BY country TOP 9 PRIVATE;

# measure_values_of_a_few: top items
SELECT country, COUNT(DISTINCT article) AS n FROM reads GROUP BY country TOP 9 PRIVATE;

# measure_values_of_a_few_in_total: total items
SELECT COUNT(DISTINCT article, contribution_bounds_per_group => (0, 2)) AS n FROM reads PRIVATE;

# measure_values_of_few_numbers: total items
SELECT COUNT(DISTINCT n, contribution_bounds_per_group => (0, 2)) AS n FROM reads PRIVATE;

# measure_values_of_few_days: total items
SELECT COUNT(DISTINCT day, contribution_bounds_per_group => (0, 1)) AS n FROM reads PRIVATE;

# measure_values_of_text_units: top items
SELECT page, COUNT(DISTINCT seconds, contribution_bounds_per_group => (0, 2)) AS n FROM visits GROUP BY page TOP 9 PRIVATE;

# measure_values_of_two_columns: top items
SELECT country, COUNT(DISTINCT article) AS n, COUNT(DISTINCT n) AS m, COUNT(*) AS r FROM reads GROUP BY country TOP 9 PRIVATE;

# measure_values_bounded: all 2 items
SELECT country, COUNT(DISTINCT article) AS n FROM reads GROUP BY country TOP 9 PRIVATE;

# measure_values_bounded_with_units: all 2 items units
SELECT country, COUNT(DISTINCT article) AS n, SUM(n) AS s FROM reads GROUP BY country TOP 9 PRIVATE;

# measure_values_with_units: all items units
SELECT country, COUNT(DISTINCT article) AS n FROM reads GROUP BY country TOP 9 PRIVATE;

# measure_values_known: all items
SELECT country, COUNT(DISTINCT article) AS n, COUNT(*) AS r FROM reads GROUP BY country
ALL PRIVATE WITH (domain = 'countries.country');

# measure_values_weighted: weighted 2 items
SELECT country, COUNT(DISTINCT user_id) AS u, COUNT(DISTINCT article) AS n FROM reads GROUP BY country TOP 9 PRIVATE;

# measure_values_per: all items
SELECT flag, country, COUNT(DISTINCT article) AS n FROM reads GROUP BY flag, country TOP 3 PRIVATE PER flag
WITH (partitions = ['true', 'false']);

# measure_values_per_one_each: all 2 kept items
SELECT flag, country, COUNT(DISTINCT article) AS n FROM reads GROUP BY flag, country TOP 3 PRIVATE PER flag
WITH (partitions = ['true', 'false']);

# measure_approximate_values: top items
SELECT country, APPROX_COUNT_DISTINCT(article) AS n FROM reads GROUP BY country TOP 9 PRIVATE;
