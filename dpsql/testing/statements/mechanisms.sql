# domain_listed
SELECT country, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY country
TOP 3 PRIVATE WITH (domain = ['DE', 'FR', 'de ', 'nowhere']);

# domain_listed_numbers
SELECT n FROM reads GROUP BY n TOP 3 PRIVATE WITH (domain = ['1', '2', '2147483647', '-5']);

# domain_listed_doubles
SELECT price FROM reads GROUP BY price TOP 3 PRIVATE WITH (domain = ['0', '1.5', '99']);

# domain_stored
SELECT country, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY country TOP 3 PRIVATE WITH (domain = 'countries.country');

# domain_stored_days
SELECT day FROM reads GROUP BY day TOP 3 PRIVATE WITH (domain = 'days.day');

# domain_stored_doubles
SELECT price FROM reads GROUP BY price TOP 3 PRIVATE WITH (domain = 'countries.area');

# domain_stored_bounded: top 1
SELECT country FROM reads GROUP BY country TOP 3 PRIVATE WITH (domain = 'countries.country');

# known_listed: all
SELECT country, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY country
ALL PRIVATE WITH (domain = ['DE', 'FR', 'de ', 'nowhere']);

# known_doubles: all
SELECT price, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY price ALL PRIVATE WITH (domain = ['0', '1.5', '99']);

# known_bounded: all 1
SELECT country, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY country ALL PRIVATE WITH (domain = ['DE', 'FR']);

# total: total
SELECT COUNT(DISTINCT user_id) AS n FROM reads PRIVATE;

# total_filtered: total
SELECT COUNT(DISTINCT user_id) FILTER (WHERE country = 'DE') AS n FROM reads WHERE n > 0 PRIVATE;

# total_joined: total
SELECT COUNT(DISTINCT r.user_id) AS n FROM reads r JOIN likes l ON r.user_id = l.user_id PRIVATE;

# per
SELECT flag, country, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY ALL
TOP 3 PRIVATE PER flag WITH (partitions = ['true', 'false']);

# per_text
SELECT country, article FROM reads GROUP BY ALL TOP 4 PRIVATE PER country WITH (partitions = ['DE', 'FR', 'US']);

# per_one_each: top kept
SELECT country, article FROM reads GROUP BY ALL
TOP 4 PRIVATE PER country WITH (partitions = ['DE', 'FR', 'US']);

# per_bounded: top 2
SELECT country, n FROM reads GROUP BY ALL TOP 4 PRIVATE PER country WITH (partitions = ['DE', 'FR', 'de']);

# per_all: all 5
SELECT flag, n FROM reads GROUP BY ALL TOP 4 PRIVATE PER flag WITH (partitions = ['true', 'false']);

# per_weighted: weighted 5
SELECT country, n FROM reads GROUP BY ALL TOP 4 PRIVATE PER country WITH (partitions = ['DE', 'FR', 'de']);

# more_than_k
SELECT article FROM reads GROUP BY article TOP 5 PRIVATE WITH (k_bar = 20);

# bound_one_of_text: top 1
SELECT article FROM reads GROUP BY article TOP 1000 PRIVATE;

# bound_one_of_two_keys: all 1
SELECT country, tiny FROM reads GROUP BY ALL TOP 5 PRIVATE;

# bound_five_of_doubles: all 5 own
SELECT price FROM reads GROUP BY price TOP 5 PRIVATE;

# bound_five_of_times: all 5 own
SELECT day, moment FROM reads GROUP BY ALL TOP 5 PRIVATE;

# bound_five_of_numbers: all 5
SELECT small, n, big FROM reads GROUP BY ALL TOP 5 PRIVATE;

# bound_five_of_decimals: all 5
SELECT amount, wide FROM reads GROUP BY ALL TOP 5 PRIVATE;

# bound_five_of_booleans: all 1
SELECT flag, n > 0 AS positive FROM reads GROUP BY ALL TOP 5 PRIVATE;

# bound_of_text_units: all 2
SELECT page, seconds FROM visits GROUP BY ALL TOP 5 PRIVATE;

# bound_twenty: all 20
SELECT article FROM reads GROUP BY article TOP 5 PRIVATE;

# bound_of_joins: all 3
SELECT c.continent, r.n FROM reads AS r JOIN countries AS c ON r.country = c.country GROUP BY ALL TOP 5 PRIVATE;

# bound_of_links: all 2
SELECT word, votes FROM comments GROUP BY ALL TOP 5 PRIVATE;

# weighted_one: weighted 1
SELECT article FROM reads GROUP BY article TOP 5 PRIVATE;

# weighted_twenty: weighted 20
SELECT article, tiny FROM reads GROUP BY ALL TOP 5 PRIVATE;

# weighted_of_all_twenty: weighted_all 20
SELECT article FROM reads GROUP BY ALL TOP 5 PRIVATE;

# weighted_of_text_units: weighted 2
SELECT page FROM visits GROUP BY page TOP 5 PRIVATE;

# adaptive
SELECT country, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY country TOP ADAPTIVE PRIVATE;

# measure_rows: total
SELECT COUNT(*) AS rows, COUNT(country) AS known, COUNT(*) FILTER (WHERE n > 0) AS positive FROM reads PRIVATE;

# measure_sums: total
SELECT SUM(n) AS n, SUM(tiny) AS tiny, SUM(price) AS price, AVG(price) AS mean, COUNT(DISTINCT user_id) AS u FROM reads PRIVATE;

# measure_decimals: total
SELECT SUM(amount) AS amount, SUM(wide) AS wide, SUM(big) AS big, SUM(ratio) AS ratio FROM reads PRIVATE;

# measure_averages: total
SELECT AVG(price) AS p, AVG(n) AS n, AVG(tiny) FILTER (WHERE flag) AS t, COUNT(price) AS rows, SUM(price) AS s FROM reads PRIVATE;

# measure_averages_of_decimals: total
SELECT AVG(amount) AS a, AVG(wide) AS w, AVG(big) AS b, AVG(ratio) AS r FROM reads PRIVATE;

# measure_averages_of_groups: all
SELECT country, AVG(n) AS n, AVG(price) AS p FROM reads GROUP BY country
ALL PRIVATE WITH (domain = ['DE', 'FR', 'de ', 'nowhere']);

# measure_ranked_with_average
SELECT article, COUNT(*) AS rows, AVG(price) AS p FROM reads GROUP BY article TOP 5 PRIVATE;

# measure_spreads: total
SELECT VAR_POP(price, contribution_bounds_per_row => (0, 100)) AS p, COUNT(price) AS rows,
    STDDEV(n, contribution_bounds_per_row => (-10, 10)) FILTER (WHERE flag) AS n
FROM reads PRIVATE;

# measure_spreads_of_decimals: total
SELECT VARIANCE(amount, contribution_bounds_per_row => (-20.5, 20)) AS a, VAR_POP(wide, contribution_bounds_per_row => (0, 1000)) AS w,
    STDDEV_POP(big, contribution_bounds_per_row => (0, 100000)) AS b, VAR_SAMP(ratio, contribution_bounds_per_row => (0.1, 0.7)) AS r
FROM reads PRIVATE;

# measure_covariances: total
SELECT COVAR_POP(price, n, contribution_bounds_per_row => (-5, 50)) AS c,
    COVAR_SAMP(amount, ratio, contribution_bounds_per_row => (0, 20)) AS d
FROM reads PRIVATE;

# measure_spreads_of_groups: all
SELECT country, STDDEV_SAMP(n, contribution_bounds_per_row => (0, 50)) AS s, COVAR_POP(n, tiny, contribution_bounds_per_row => (0, 9)) AS c
FROM reads GROUP BY country ALL PRIVATE WITH (domain = ['DE', 'FR', 'de ', 'nowhere']);

# measure_ranked_with_spread
SELECT article, COUNT(*) AS rows, STDDEV(price, contribution_bounds_per_row => (0, 100)) AS s FROM reads GROUP BY article
TOP 5 PRIVATE;

# measure_ranked
SELECT country, COUNT(*) AS rows, SUM(n) AS n FROM reads GROUP BY country TOP 5 PRIVATE;

# measure_ranked_by_sum
SELECT article, SUM(price) AS s, COUNT(DISTINCT user_id) FILTER (WHERE flag) AS u FROM reads GROUP BY article TOP 5 PRIVATE;

# measure_known: all
SELECT country, COUNT(*) AS n, SUM(price) AS s FROM reads GROUP BY country
ALL PRIVATE WITH (domain = ['DE', 'FR', 'de ', 'nowhere']);

# measure_bounded: top 2
SELECT country, article, COUNT(*) AS n FROM reads GROUP BY ALL TOP 50 PRIVATE;

# measure_known_bounded: all 1
SELECT country, SUM(price) AS s, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY country
ALL PRIVATE WITH (domain = 'countries.country');

# measure_joined
SELECT c.continent, COUNT(*) AS n FROM reads AS r JOIN countries AS c ON r.country = c.country GROUP BY 1 TOP 5 PRIVATE;

# known_case: all
SELECT CASE WHEN n < 0 THEN 'low' WHEN n < 3 THEN 'mid' END AS k, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY k
ALL PRIVATE;

# known_flags: all
SELECT flag, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY flag ALL PRIVATE;

# known_doubles_of_case: all
SELECT CASE WHEN flag THEN 0e0 WHEN n > 1 THEN 1.5e0 END AS k, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY k
ALL PRIVATE;

# known_hours: all
SELECT EXTRACT(hour FROM moment) AS h, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY h ALL PRIVATE;

# known_days_of_weeks: all
SELECT EXTRACT(isodow FROM day) AS d, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY d ALL PRIVATE;

# known_bins: all
SELECT width_bucket(price, 0, 10, 4) AS bin, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY bin ALL PRIVATE;

# known_calendar: all
SELECT moment::DATE AS d, COUNT(DISTINCT user_id) AS n FROM reads
WHERE moment >= DATE '2024-01-01' AND moment < DATE '2026-03-01' GROUP BY ALL ALL PRIVATE;

# known_product: all
SELECT flag, country, n > 0 AS positive, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY ALL
ALL PRIVATE WITH (domain = 'countries.country');

# known_product_bounded: all 1
SELECT flag, CASE WHEN n < 0 THEN 'low' END AS k, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY ALL ALL PRIVATE;

# measure_of_two_known_keys: all 2
SELECT flag, country = 'DE' AS home, COUNT(*) AS rows, SUM(price) AS s FROM reads GROUP BY ALL ALL PRIVATE;

# measure_weighted: weighted 20
SELECT article, SUM(n) AS s, COUNT(*) AS rows FROM reads GROUP BY article TOP 5 PRIVATE;

# measure_weighted_of_two_keys: weighted 2
SELECT country, tiny, COUNT(n) AS rows FROM reads GROUP BY ALL TOP 5 PRIVATE;

# measure_weighted_of_all: weighted_all 3
SELECT article, SUM(price) AS s, COUNT(DISTINCT user_id) AS u FROM reads GROUP BY article TOP 5 PRIVATE;

# measure_weighted_of_units: weighted 5
SELECT country, COUNT(DISTINCT user_id) FILTER (WHERE n > 0) AS u, SUM(n) AS s FROM reads GROUP BY country TOP 5 PRIVATE;

# measure_by_label: label
SELECT country, SUM(n) AS s, COUNT(*) AS rows FROM reads GROUP BY country TOP 5 PRIVATE;

# measure_by_label_bounded: label 2
SELECT country, COUNT(*) AS rows FROM reads GROUP BY country TOP 5 PRIVATE;

# measure_all: all 2
SELECT country, flag, SUM(price) AS s FROM reads GROUP BY ALL TOP 5 PRIVATE;

# measure_per
SELECT country, n, SUM(n) AS s, COUNT(*) AS rows FROM reads GROUP BY ALL TOP 4 PRIVATE
PER country WITH (partitions = ['DE', 'FR', 'de']);

# measure_per_one_each: all 2 kept
SELECT country, n, COUNT(*) AS rows FROM reads GROUP BY ALL TOP 4 PRIVATE PER country WITH (partitions = ['DE', 'FR', 'de']);

# measure_per_weighted: weighted 2
SELECT country, n, SUM(n) AS s FROM reads GROUP BY ALL TOP 4 PRIVATE PER country WITH (partitions = ['DE', 'FR', 'de']);

# units_of_counts: top units
SELECT country, COUNT(DISTINCT user_id) AS n FROM reads WHERE n > 0 GROUP BY country TOP 5 PRIVATE;

# units_of_a_bound: top 2 units
SELECT country, n, COUNT(DISTINCT user_id) AS c FROM reads GROUP BY ALL TOP 5 PRIVATE;

# units_of_a_domain: top units
SELECT country, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY country
TOP 3 PRIVATE WITH (domain = ['DE', 'FR', 'nowhere']);

# units_of_weights: weighted 3 units
SELECT country, n, COUNT(DISTINCT user_id) AS c FROM reads GROUP BY ALL TOP 5 PRIVATE;

# units_of_all_weights: weighted_all 3 units
SELECT country, n, COUNT(DISTINCT user_id) AS c FROM reads GROUP BY ALL TOP 5 PRIVATE;

# units_of_sums: label units
SELECT country, COUNT(*) AS c, SUM(n) AS s, COUNT(DISTINCT user_id) AS u FROM reads GROUP BY country TOP 5 PRIVATE;

# units_of_bounded_sums: top 2 units
SELECT country, n, COUNT(*) AS c FROM reads GROUP BY ALL TOP 5 PRIVATE;

# measure_quantile: bins
SELECT MEDIAN(n) AS m FROM reads PRIVATE;

# measure_quantile_of_whole_numbers: bins
SELECT QUANTILE_DISC(n, 0.5, contribution_bounds_per_row => (0, 20)) AS m FROM reads PRIVATE;

# measure_quantile_filtered: bins
SELECT PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY price DESC) FILTER (WHERE flag) AS q FROM reads PRIVATE;

# measure_quantile_of_a_wide_range: bins
SELECT QUANTILE_CONT(price, 0.25, contribution_bounds_per_row => (0.01, 500)) AS q FROM reads PRIVATE;

# measure_quantile_of_decimals: bins
SELECT MEDIAN(amount) AS m FROM reads PRIVATE;

# measure_quantile_of_an_expression: bins
SELECT MEDIAN(CASE WHEN flag THEN n ELSE price END) AS m FROM reads PRIVATE;

# measure_quantile_of_groups: bins
SELECT country, MEDIAN(price) AS m FROM reads GROUP BY country ALL PRIVATE WITH (domain = ['DE', 'FR', 'de ', 'nowhere']);

# measure_quantile_bounded: bins 2
SELECT country, n, MEDIAN(price) AS m FROM reads GROUP BY ALL TOP 9 PRIVATE;
