# key_boolean
SELECT flag, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY flag TOP 1000 PRIVATE;

# key_tinyint
SELECT tiny FROM reads GROUP BY tiny TOP 1000 PRIVATE;

# key_smallint
SELECT small FROM reads GROUP BY small TOP 1000 PRIVATE;

# key_integer
SELECT n FROM reads GROUP BY n TOP 1000 PRIVATE;

# key_bigint
SELECT big FROM reads GROUP BY big TOP 1000 PRIVATE;

# key_unsigned
SELECT u8, u16, u32 FROM reads GROUP BY ALL TOP 1000 PRIVATE;

# key_decimal
SELECT amount FROM reads GROUP BY amount TOP 1000 PRIVATE;

# key_wide_decimal
SELECT wide FROM reads GROUP BY wide TOP 1000 PRIVATE;

# key_double
SELECT price FROM reads GROUP BY price TOP 1000 PRIVATE;

# key_float
SELECT ratio FROM reads GROUP BY ratio TOP 1000 PRIVATE;

# key_text
SELECT article, country FROM reads GROUP BY article, country TOP 1000 PRIVATE;

# key_date
SELECT day FROM reads GROUP BY day TOP 1000 PRIVATE;

# key_timestamp
SELECT moment FROM reads GROUP BY moment TOP 1000 PRIVATE;

# key_unit
SELECT user_id FROM reads GROUP BY user_id TOP 1000 PRIVATE;

# key_unit_of_text
SELECT member, COUNT(DISTINCT member) AS n FROM visits GROUP BY member TOP 1000 PRIVATE;

# key_of_text_units
SELECT page, COUNT(DISTINCT member) AS n FROM visits GROUP BY page TOP 1000 PRIVATE;

# keys_many
SELECT flag, small, n, amount, price, article, day, moment FROM reads GROUP BY ALL TOP 1000 PRIVATE;

# keys_ordered_by_label: label
SELECT price, article FROM reads GROUP BY ALL TOP 1000 PRIVATE;

# keys_cut_by_label: label
SELECT country, flag FROM reads GROUP BY ALL TOP 7 PRIVATE;

# keys_all: all
SELECT day, price FROM reads GROUP BY ALL TOP 5 PRIVATE;

# key_distinct
SELECT DISTINCT country FROM reads TOP 1000 PRIVATE;

# key_alias_and_position
SELECT upper(country) AS up, n > 0 AS positive FROM reads GROUP BY up, 2 TOP 1000 PRIVATE;

# key_collated
SELECT country COLLATE "C" AS c FROM reads GROUP BY c TOP 1000 PRIVATE;

# key_constant
SELECT 'all' AS everything, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY 1 TOP 10 PRIVATE;

# key_null
SELECT CAST(NULL AS VARCHAR) AS nothing FROM reads GROUP BY 1 TOP 10 PRIVATE;

# key_comparison
SELECT price > 1 AS dear, article IS NULL AS unknown FROM reads GROUP BY ALL TOP 1000 PRIVATE;

# key_negative_zero
SELECT -price AS p FROM reads GROUP BY p TOP 1000 PRIVATE;

# key_text_printed_alike
SELECT lower(article) AS a FROM reads WHERE article <= 'z' GROUP BY a TOP 1000 PRIVATE;

# key_case
SELECT CASE WHEN price > 100 THEN 'dear' WHEN price > 1 THEN 'fair' WHEN price IS NULL THEN NULL ELSE 'cheap' END AS kind
FROM reads GROUP BY kind TOP 1000 PRIVATE;

# key_case_of_value
SELECT CASE country WHEN 'DE' THEN 1 WHEN 'FR' THEN 2 ELSE 3000000000 END AS c FROM reads GROUP BY c TOP 1000 PRIVATE;

# key_coalesce
SELECT coalesce(article, country, 'none') AS a FROM reads GROUP BY a TOP 1000 PRIVATE;

# key_nullif
SELECT nullif(country, 'DE') AS c, if(flag, n, 0) AS m FROM reads GROUP BY ALL TOP 1000 PRIVATE;

# key_greatest_and_least
SELECT greatest(n, 0) AS g, least(price, 2) AS l FROM reads GROUP BY ALL TOP 1000 PRIVATE;

# key_cast_to_text
SELECT CAST(n AS VARCHAR) AS n, CAST(flag AS VARCHAR) AS f FROM reads GROUP BY ALL TOP 1000 PRIVATE;

# key_double_as_text
SELECT CAST(price AS VARCHAR) AS p FROM reads GROUP BY p TOP 1000 PRIVATE;

# key_decimal_as_text
SELECT CAST(amount AS VARCHAR) AS a FROM reads GROUP BY a TOP 1000 PRIVATE;

# key_date_as_text
SELECT CAST(day AS VARCHAR) AS d FROM reads GROUP BY d TOP 1000 PRIVATE;

# key_timestamp_as_text
SELECT CAST(moment AS VARCHAR) AS m FROM reads GROUP BY m TOP 1000 PRIVATE;

# key_text_as_integer
SELECT CAST(article AS INTEGER) AS whole FROM reads GROUP BY whole TOP 1000 PRIVATE;

# key_text_as_double
SELECT CAST(article AS DOUBLE) AS x FROM reads GROUP BY x TOP 1000 PRIVATE;

# key_text_as_date
SELECT CAST(article AS DATE) AS d FROM reads GROUP BY d TOP 1000 PRIVATE;

# key_double_as_integer
SELECT CAST(price AS INTEGER) AS whole FROM reads GROUP BY whole TOP 1000 PRIVATE;

# key_bigint_as_smallint
SELECT big::SMALLINT AS s FROM reads GROUP BY s TOP 1000 PRIVATE;

# key_timestamp_as_date
SELECT moment::DATE AS d FROM reads GROUP BY d TOP 1000 PRIVATE;

# key_integer_as_boolean
SELECT n::BOOLEAN AS b FROM reads GROUP BY b TOP 1000 PRIVATE;

# key_count_filtered
SELECT country, COUNT(DISTINCT user_id) FILTER (WHERE n > 0) AS n FROM reads GROUP BY country TOP 1000 PRIVATE;
