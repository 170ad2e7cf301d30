# all_groups_by_text
SELECT article FROM reads GROUP BY article TOP 1000 PRIVATE;

# ties_at_the_cut
SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article TOP 12 PRIVATE;

# leading_country
SELECT country, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY country TOP 3 PRIVATE;

# empty_table
SELECT article, COUNT(DISTINCT user_id) AS n FROM nothing GROUP BY article TOP 10 PRIVATE;

# filter_equal_text
SELECT article FROM reads WHERE country = 'DE' GROUP BY article TOP 1000 PRIVATE;

# filter_text_before
SELECT article FROM reads WHERE article < 'b' GROUP BY article TOP 1000 PRIVATE;

# filter_text_from
SELECT article FROM reads WHERE article >= 'É' GROUP BY article TOP 1000 PRIVATE;

# filter_text_unequal
SELECT country FROM reads WHERE article <> 'a' GROUP BY country TOP 1000 PRIVATE;

# filter_integer
SELECT n FROM reads WHERE n > -2 GROUP BY n TOP 1000 PRIVATE;

# filter_bigint_end
SELECT big FROM reads WHERE big >= 9223372036854775807 OR big <= -9223372036854775807 GROUP BY big TOP 1000 PRIVATE;

# filter_double_greater
SELECT price FROM reads WHERE price > 2.5 GROUP BY price TOP 1000 PRIVATE;

# filter_double_nan
SELECT price FROM reads WHERE price = 'NaN'::DOUBLE GROUP BY price TOP 1000 PRIVATE;

# filter_double_in
SELECT price FROM reads WHERE price IN (1.5, 'NaN', 0, 'inf') GROUP BY price TOP 1000 PRIVATE;

# filter_double_between
SELECT price FROM reads WHERE price BETWEEN -1 AND 'inf'::DOUBLE GROUP BY price TOP 1000 PRIVATE;

# filter_double_two_columns
SELECT country FROM reads WHERE price >= ratio GROUP BY country TOP 1000 PRIVATE;

# filter_decimal
SELECT amount FROM reads WHERE amount >= 1.5 GROUP BY amount TOP 1000 PRIVATE;

# filter_decimal_with_integer_column
SELECT amount FROM reads WHERE amount > n GROUP BY amount TOP 1000 PRIVATE;

# filter_date
SELECT day FROM reads WHERE day >= DATE '2026-01-01' GROUP BY day TOP 1000 PRIVATE;

# filter_date_in
SELECT day FROM reads WHERE day IN ('2026-01-01', '2024-02-29', '0001-01-01') GROUP BY day TOP 1000 PRIVATE;

# filter_timestamp
SELECT moment FROM reads WHERE moment < TIMESTAMP '2026-01-31 23:59:59.999999' GROUP BY moment TOP 1000 PRIVATE;

# filter_timestamp_with_date
SELECT moment FROM reads WHERE moment >= day GROUP BY moment TOP 1000 PRIVATE;

# filter_boolean
SELECT country FROM reads WHERE flag GROUP BY country TOP 1000 PRIVATE;

# filter_not_boolean
SELECT country FROM reads WHERE NOT flag GROUP BY country TOP 1000 PRIVATE;

# filter_is_not_true
SELECT country FROM reads WHERE flag IS NOT TRUE GROUP BY country TOP 1000 PRIVATE;

# filter_is_false
SELECT country FROM reads WHERE flag IS FALSE GROUP BY country TOP 1000 PRIVATE;

# filter_is_null
SELECT country FROM reads WHERE article IS NULL GROUP BY country TOP 1000 PRIVATE;

# filter_is_distinct
SELECT country FROM reads WHERE article IS DISTINCT FROM 'a' GROUP BY country TOP 1000 PRIVATE;

# filter_is_not_distinct_double
SELECT country FROM reads WHERE price IS NOT DISTINCT FROM ratio GROUP BY country TOP 1000 PRIVATE;

# filter_and_or_not
SELECT country FROM reads WHERE NOT (n > 0 AND (price < 1 OR article = 'A')) GROUP BY country TOP 1000 PRIVATE;

# filter_text_in
SELECT country FROM reads WHERE country IN ('DE', 'de ', 'Ö', '') GROUP BY country TOP 1000 PRIVATE;

# filter_text_not_in
SELECT country FROM reads WHERE country NOT IN ('DE', 'US') GROUP BY country TOP 1000 PRIVATE;

# filter_not_in_null
SELECT country FROM reads WHERE country NOT IN ('DE', NULL) GROUP BY country TOP 1000 PRIVATE;

# filter_not_between
SELECT n FROM reads WHERE n NOT BETWEEN 0 AND 9 GROUP BY n TOP 1000 PRIVATE;

# filter_nobody
SELECT country FROM reads WHERE n > 0 AND n < 0 GROUP BY country TOP 1000 PRIVATE;

# filter_no_unit
SELECT country FROM reads WHERE user_id IS NULL GROUP BY country TOP 1000 PRIVATE;

# bound_one: top 1
SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article TOP 1000 PRIVATE;

# bound_five: top 5
SELECT article, country FROM reads GROUP BY article, country TOP 1000 PRIVATE;

# bound_twenty_by_label: label 20
SELECT article, n FROM reads GROUP BY article, n TOP 1000 PRIVATE;

# weighted: weighted 5
SELECT article FROM reads GROUP BY article TOP 10 PRIVATE;

# weighted_of_all: weighted_all 3
SELECT country FROM reads GROUP BY country TOP 10 PRIVATE;
