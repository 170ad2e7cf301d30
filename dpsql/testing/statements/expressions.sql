# sum_of_integers
SELECT n + 1 AS m FROM reads GROUP BY m TOP 1000 PRIVATE;

# sum_that_overflows
SELECT big + n AS m FROM reads GROUP BY m TOP 1000 PRIVATE;

# product_of_integers
SELECT small * n AS m FROM reads GROUP BY m TOP 1000 PRIVATE;

# difference_of_smallints
SELECT small - tiny AS m FROM reads GROUP BY m TOP 1000 PRIVATE;

# quotient
SELECT n / 4 AS q FROM reads GROUP BY q TOP 1000 PRIVATE;

# whole_quotient
SELECT n // 4 AS q, n % 4 AS r FROM reads GROUP BY ALL TOP 1000 PRIVATE;

# whole_quotient_by_column
SELECT big // n AS q FROM reads GROUP BY q TOP 1000 PRIVATE;

# remainder_by_column
SELECT big % small AS r FROM reads GROUP BY r TOP 1000 PRIVATE;

# negative
SELECT -n AS m, -small AS s FROM reads GROUP BY ALL TOP 1000 PRIVATE;

# decimals_added
SELECT amount + 0.5 AS a FROM reads GROUP BY a TOP 1000 PRIVATE;

# decimals_multiplied
SELECT amount * 2.5 AS a FROM reads GROUP BY a TOP 1000 PRIVATE;

# decimals_divided
SELECT amount / 3 AS a FROM reads GROUP BY a TOP 1000 PRIVATE;

# doubles_added
SELECT price + ratio AS p FROM reads GROUP BY p TOP 1000 PRIVATE;

# doubles_multiplied
SELECT price * 3 AS p FROM reads GROUP BY p TOP 1000 PRIVATE;

# doubles_divided
SELECT 1 / price AS p FROM reads GROUP BY p TOP 1000 PRIVATE;

# bits
SELECT n & 6 AS a, n | 1 AS o, ~small AS c, xor(n, 5) AS x FROM reads GROUP BY ALL TOP 1000 PRIVATE;

# absolute_and_sign
SELECT abs(n) AS a, sign(price) AS s FROM reads GROUP BY ALL TOP 1000 PRIVATE;

# floor_and_ceil
SELECT floor(price) AS f, ceil(amount) AS c FROM reads GROUP BY ALL TOP 1000 PRIVATE;

# round_double
SELECT round(price) AS r FROM reads GROUP BY r TOP 1000 PRIVATE;

# round_decimal
SELECT round(amount, 1) AS r FROM reads GROUP BY r TOP 1000 PRIVATE;

# truncated
SELECT trunc(price) AS t FROM reads GROUP BY t TOP 1000 PRIVATE;

# square_root
SELECT sqrt(n) AS s FROM reads GROUP BY s TOP 1000 PRIVATE;

# power
SELECT pow(small, 2) AS p FROM reads GROUP BY p TOP 1000 PRIVATE;

# greatest_common_divisor
SELECT gcd(n, 12) AS g FROM reads GROUP BY g TOP 1000 PRIVATE;

# modulo_function
SELECT mod(n, 3) AS m FROM reads GROUP BY m TOP 1000 PRIVATE;

# finite
SELECT isnan(price) AS nan, isinf(price) AS endless, isfinite(price) AS finite FROM reads GROUP BY ALL TOP 10 PRIVATE;

# nested_arithmetic
SELECT (n + small) * 2 - n % 7 AS m FROM reads GROUP BY m TOP 1000 PRIVATE;

# text_lower
SELECT lower(country) AS c FROM reads GROUP BY c TOP 1000 PRIVATE;

# text_upper
SELECT upper(article) AS c FROM reads GROUP BY c TOP 1000 PRIVATE;

# text_length
SELECT length(article) AS l, strlen(article) AS b FROM reads GROUP BY ALL TOP 1000 PRIVATE;

# text_trim
SELECT trim(article) AS a FROM reads GROUP BY a TOP 1000 PRIVATE;

# text_left_and_right
SELECT left(article, 2) AS l, right(article, 1) AS r FROM reads GROUP BY ALL TOP 1000 PRIVATE;

# text_substring
SELECT substr(article, 2, 3) AS s FROM reads GROUP BY s TOP 1000 PRIVATE;

# text_joined
SELECT country || '-' || article AS c FROM reads GROUP BY c TOP 1000 PRIVATE;

# text_concat
SELECT concat(country, n) AS c FROM reads GROUP BY c TOP 1000 PRIVATE;

# text_concat_ws
SELECT concat_ws('/', country, flag, n) AS c FROM reads GROUP BY c TOP 1000 PRIVATE;

# text_replace
SELECT replace(article, 'a', '<>') AS r FROM reads GROUP BY r TOP 1000 PRIVATE;

# text_translate
SELECT translate(article, 'ab', 'x') AS r FROM reads GROUP BY r TOP 1000 PRIVATE;

# text_split
SELECT split_part(article, ',', 2) AS part FROM reads GROUP BY part TOP 1000 PRIVATE;

# text_reverse
SELECT reverse(country) AS r FROM reads GROUP BY r TOP 1000 PRIVATE;

# text_position
SELECT strpos(article, 'b') AS p FROM reads GROUP BY p TOP 1000 PRIVATE;

# text_starts_ends_contains
SELECT starts_with(article, 'a') AS s, ends_with(article, 'b') AS e, contains(article, ' ') AS c
FROM reads GROUP BY ALL TOP 1000 PRIVATE;

# text_like
SELECT country FROM reads WHERE article LIKE '%b%' GROUP BY country TOP 1000 PRIVATE;

# text_not_like
SELECT country FROM reads WHERE article NOT LIKE 'a_' GROUP BY country TOP 1000 PRIVATE;

# text_like_escape
SELECT article FROM reads WHERE article LIKE '%!%%' ESCAPE '!' GROUP BY article TOP 1000 PRIVATE;

# text_ilike
SELECT article FROM reads WHERE article ILIKE 'A%' GROUP BY article TOP 1000 PRIVATE;

# text_pattern
SELECT article FROM reads WHERE regexp_matches(article, '^[a-c]+$') GROUP BY article TOP 1000 PRIVATE;

# text_pattern_extract
SELECT regexp_extract(article, '[0-9]+') AS digits FROM reads GROUP BY digits TOP 1000 PRIVATE;

# text_pattern_replace
SELECT regexp_replace(article, '[0-9]', '#', 'g') AS masked FROM reads GROUP BY masked TOP 1000 PRIVATE;

# text_digests
SELECT md5(country) AS m, sha256(country) AS s FROM reads GROUP BY ALL TOP 1000 PRIVATE;

# text_codes
SELECT ascii(country) AS a, unicode(country) AS u, bit_length(country) AS b FROM reads GROUP BY ALL TOP 1000 PRIVATE;

# time_parts_of_a_date
SELECT year(day) AS y, month(day) AS m, dayofweek(day) AS d FROM reads GROUP BY ALL TOP 1000 PRIVATE;

# time_weeks
SELECT week(day) AS w, isoyear(day) AS y, quarter(day) AS q, dayofyear(day) AS d FROM reads GROUP BY ALL TOP 1000 PRIVATE;

# time_parts_of_a_moment
SELECT EXTRACT(hour FROM moment) AS h, minute(moment) AS m, second(moment) AS s FROM reads GROUP BY ALL TOP 1000 PRIVATE;

# time_epoch
SELECT epoch(moment) AS e FROM reads GROUP BY e TOP 1000 PRIVATE;

# time_truncated_to_months
SELECT date_trunc('month', day) AS m FROM reads GROUP BY m TOP 1000 PRIVATE;

# time_truncated_to_weeks
SELECT date_trunc('week', moment) AS w FROM reads GROUP BY w TOP 1000 PRIVATE;

# time_truncated_to_hours
SELECT date_trunc('hour', moment) AS h FROM reads GROUP BY h TOP 1000 PRIVATE;

# time_days_added
SELECT day + 7 AS d FROM reads GROUP BY d TOP 1000 PRIVATE;

# time_days_between
SELECT day - DATE '2026-01-01' AS d FROM reads GROUP BY d TOP 1000 PRIVATE;

# time_interval_added
SELECT moment + INTERVAL 1 MONTH AS m FROM reads GROUP BY m TOP 1000 PRIVATE;

# time_interval_taken
SELECT day - INTERVAL 1 DAY AS d FROM reads GROUP BY d TOP 1000 PRIVATE;

# time_diff
SELECT date_diff('month', day, DATE '2026-03-01') AS m FROM reads GROUP BY m TOP 1000 PRIVATE;

# time_bucket
SELECT time_bucket(INTERVAL 15 MINUTE, moment) AS b FROM reads GROUP BY b TOP 1000 PRIVATE;

# time_names
SELECT dayname(day) AS d, monthname(day) AS m FROM reads GROUP BY ALL TOP 1000 PRIVATE;

# time_last_day
SELECT last_day(day) AS l FROM reads GROUP BY l TOP 1000 PRIVATE;

# time_printed
SELECT strftime(moment, '%Y-%m') AS m FROM reads GROUP BY m TOP 1000 PRIVATE;

# time_read
SELECT strptime(article, '%Y-%m-%d') AS t FROM reads GROUP BY t TOP 1000 PRIVATE;

# time_of_the_clock
SELECT country FROM reads WHERE moment < now() AND day >= current_date - 100 GROUP BY country TOP 1000 PRIVATE;

# time_past_weeks
SELECT country FROM reads WHERE day >= DATE '2026-01-31' - INTERVAL 30 DAY GROUP BY country TOP 1000 PRIVATE;
