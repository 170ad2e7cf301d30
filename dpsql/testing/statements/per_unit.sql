# unit_count
SELECT reads, COUNT(DISTINCT user_id) AS n FROM (SELECT user_id, COUNT(*) AS reads FROM reads GROUP BY user_id) AS x
GROUP BY reads TOP 1000 PRIVATE;

# unit_count_of_a_column
SELECT c, d FROM (SELECT user_id, COUNT(article) AS c, COUNT(DISTINCT article) AS d FROM reads GROUP BY user_id) AS x
GROUP BY ALL TOP 1000 PRIVATE;

# unit_count_of_text_units
SELECT c FROM (SELECT member, COUNT(DISTINCT page) AS c FROM visits GROUP BY member) AS x GROUP BY c TOP 1000 PRIVATE;

# unit_count_filtered
SELECT c FROM (SELECT user_id, COUNT(*) FILTER (WHERE n > 0) AS c FROM reads GROUP BY user_id) AS x GROUP BY c TOP 1000 PRIVATE;

# unit_sum_of_integers
SELECT s FROM (SELECT user_id, SUM(n) AS s FROM reads GROUP BY user_id) AS x GROUP BY s TOP 1000 PRIVATE;

# unit_sum_that_overflows
SELECT s FROM (SELECT user_id, SUM(big) AS s FROM reads GROUP BY user_id) AS x GROUP BY s TOP 1000 PRIVATE;

# unit_sum_of_decimals
SELECT s FROM (SELECT user_id, SUM(amount) AS s, SUM(wide) AS w FROM reads GROUP BY user_id) AS x GROUP BY s TOP 1000 PRIVATE;

# unit_sum_of_doubles
SELECT s FROM (SELECT user_id, SUM(weight) AS s FROM likes GROUP BY user_id) AS x GROUP BY s TOP 1000 PRIVATE;

# unit_average_of_integers
SELECT a FROM (SELECT user_id, AVG(small) AS a FROM reads GROUP BY user_id) AS x GROUP BY a TOP 1000 PRIVATE;

# unit_average_of_decimals
SELECT a FROM (SELECT user_id, AVG(amount) AS a FROM reads GROUP BY user_id) AS x GROUP BY a TOP 1000 PRIVATE;

# unit_average_of_doubles
SELECT a FROM (SELECT user_id, AVG(weight) AS a FROM likes GROUP BY user_id) AS x GROUP BY a TOP 1000 PRIVATE;

# unit_ends_of_numbers
SELECT a, b, c, d FROM (SELECT user_id, MIN(n) AS a, MAX(big) AS b, MAX(amount) AS c, MIN(wide) AS d
FROM reads GROUP BY user_id) AS x GROUP BY ALL TOP 1000 PRIVATE;

# unit_ends_of_doubles
SELECT a, b FROM (SELECT user_id, MIN(price) AS a, MAX(price) AS b FROM reads GROUP BY user_id) AS x GROUP BY ALL TOP 1000 PRIVATE;

# unit_ends_of_text
SELECT a, b FROM (SELECT user_id, MIN(article) AS a, MAX(article) AS b FROM reads GROUP BY user_id) AS x
GROUP BY ALL TOP 1000 PRIVATE;

# unit_ends_of_times
SELECT a, b, c, d FROM (SELECT user_id, MIN(day) AS a, MAX(moment) AS b, MAX(day) AS c, MIN(moment) AS d
FROM reads GROUP BY user_id) AS x GROUP BY ALL TOP 1000 PRIVATE;

# unit_ends_of_booleans
SELECT a, b FROM (SELECT user_id, MIN(flag) AS a, MAX(flag) AS b FROM reads GROUP BY user_id) AS x GROUP BY ALL TOP 1000 PRIVATE;

# unit_having
SELECT a FROM (SELECT user_id, COUNT(DISTINCT article) AS a FROM reads GROUP BY user_id HAVING a > 5) AS x GROUP BY a TOP 1000 PRIVATE;

# unit_and_key
SELECT country, c FROM (SELECT user_id, country, COUNT(*) AS c FROM reads GROUP BY user_id, country) AS x
GROUP BY ALL TOP 1000 PRIVATE;

# unit_and_double_key
SELECT price, c FROM (SELECT user_id, price, COUNT(*) AS c FROM reads GROUP BY user_id, price) AS x GROUP BY ALL TOP 1000 PRIVATE;

# window_first
SELECT article FROM (SELECT user_id, article FROM reads
QUALIFY row_number() OVER (PARTITION BY user_id ORDER BY moment) = 1) AS x GROUP BY article TOP 1000 PRIVATE;

# window_first_by_text
SELECT country FROM (SELECT user_id, country FROM reads
QUALIFY row_number() OVER (PARTITION BY user_id ORDER BY article DESC) <= 2) AS x GROUP BY country TOP 1000 PRIVATE;

# window_first_by_double
SELECT country FROM (SELECT user_id, country FROM reads
QUALIFY row_number() OVER (PARTITION BY user_id ORDER BY price DESC NULLS LAST) = 1) AS x GROUP BY country TOP 1000 PRIVATE;

# window_ranks
SELECT r, d FROM (SELECT user_id, rank() OVER (PARTITION BY user_id ORDER BY n) AS r,
dense_rank() OVER (PARTITION BY user_id ORDER BY n DESC) AS d FROM reads) AS x GROUP BY ALL TOP 1000 PRIVATE;

# window_shares
SELECT p, c FROM (SELECT user_id, percent_rank() OVER (PARTITION BY user_id ORDER BY n) AS p,
cume_dist() OVER (PARTITION BY user_id ORDER BY country) AS c FROM reads) AS x GROUP BY ALL TOP 1000 PRIVATE;

# window_ntile
SELECT t FROM (SELECT user_id, ntile(3) OVER (PARTITION BY user_id ORDER BY n) AS t FROM reads) AS x GROUP BY t TOP 10 PRIVATE;

# window_lag
SELECT country, before FROM (SELECT user_id, country, lag(country) OVER (PARTITION BY user_id ORDER BY id) AS before FROM reads) AS x
GROUP BY ALL TOP 1000 PRIVATE;

# window_lead_two
SELECT m FROM (SELECT user_id, lead(n, 2) OVER (PARTITION BY user_id ORDER BY id) AS m FROM reads) AS x GROUP BY m TOP 1000 PRIVATE;

# window_first_value
SELECT f FROM (SELECT user_id, first_value(article) OVER (PARTITION BY user_id ORDER BY price NULLS FIRST) AS f FROM reads) AS x
GROUP BY f TOP 1000 PRIVATE;

# window_counts
SELECT c, d FROM (SELECT user_id, COUNT(*) OVER (PARTITION BY user_id) AS c,
COUNT(flag) OVER (PARTITION BY user_id ORDER BY n) AS d FROM reads) AS x GROUP BY ALL TOP 1000 PRIVATE;

# window_sums
SELECT s, a FROM (SELECT user_id, SUM(small) OVER (PARTITION BY user_id ORDER BY id) AS s,
AVG(tiny) OVER (PARTITION BY user_id) AS a FROM reads) AS x GROUP BY ALL TOP 1000 PRIVATE;

# window_ends
SELECT a, b FROM (SELECT user_id, MIN(article) OVER (PARTITION BY user_id ORDER BY id) AS a,
MAX(price) OVER (PARTITION BY user_id ORDER BY id) AS b FROM reads) AS x GROUP BY ALL TOP 1000 PRIVATE;

# window_of_text_units
SELECT page FROM (SELECT member, page FROM visits
QUALIFY row_number() OVER (PARTITION BY member ORDER BY seconds) = 1) AS x GROUP BY page TOP 1000 PRIVATE;

# window_by_unit_and_text
SELECT r FROM (SELECT user_id, row_number() OVER (PARTITION BY user_id, country ORDER BY id) AS r FROM reads) AS x
GROUP BY r TOP 1000 PRIVATE;
