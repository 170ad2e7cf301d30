# leading_country
SELECT `dpsql_key_1`, COUNT(DISTINCT `dpsql_unit`) AS `dpsql_count` FROM (SELECT `t1`.`country` AS `dpsql_key_1`, `t1`.`user_id` AS `dpsql_unit` FROM `shop`.`reads` AS `t1` WHERE (NOT `t1`.`user_id` IS NULL)) AS `dpsql_rows_16` GROUP BY `dpsql_key_1` ORDER BY `dpsql_count` DESC, `dpsql_key_1` ASC NULLS LAST LIMIT 3
-- []

# ties_at_the_cut
SELECT `dpsql_key_1`, COUNT(DISTINCT `dpsql_unit`) AS `dpsql_count` FROM (SELECT `t1`.`article` AS `dpsql_key_1`, `t1`.`user_id` AS `dpsql_unit` FROM `shop`.`reads` AS `t1` WHERE (NOT `t1`.`user_id` IS NULL)) AS `dpsql_rows_16` GROUP BY `dpsql_key_1` ORDER BY `dpsql_count` DESC, `dpsql_key_1` ASC NULLS LAST LIMIT 12
-- []

# filter_text_in
SELECT `dpsql_key_1`, COUNT(DISTINCT `dpsql_unit`) AS `dpsql_count` FROM (SELECT `t1`.`country` AS `dpsql_key_1`, `t1`.`user_id` AS `dpsql_unit` FROM `shop`.`reads` AS `t1` WHERE ((`t1`.`country` = CAST(@p1 AS STRING)) OR (`t1`.`country` = CAST(@p2 AS STRING)) OR (`t1`.`country` = CAST(@p3 AS STRING)) OR (`t1`.`country` = CAST(@p4 AS STRING))) AND (NOT `t1`.`user_id` IS NULL)) AS `dpsql_rows_16` GROUP BY `dpsql_key_1` ORDER BY `dpsql_count` DESC, `dpsql_key_1` ASC NULLS LAST LIMIT 1000
-- ['DE', 'de ', 'Ö', '']

# filter_is_not_distinct_double
lacking

# filter_and_or_not
SELECT `dpsql_key_1`, COUNT(DISTINCT `dpsql_unit`) AS `dpsql_count` FROM (SELECT `t1`.`country` AS `dpsql_key_1`, `t1`.`user_id` AS `dpsql_unit` FROM `shop`.`reads` AS `t1` WHERE (NOT ((`t1`.`n` > CAST(@p1 AS INT64)) AND ((CASE WHEN `t1`.`price` IS NULL OR CAST(@p2 AS FLOAT64) IS NULL THEN NULL ELSE NOT IS_NAN(`t1`.`price`) AND (IS_NAN(CAST(@p2 AS FLOAT64)) OR `t1`.`price` < CAST(@p2 AS FLOAT64)) END) OR (`t1`.`article` = CAST(@p3 AS STRING))))) AND (NOT `t1`.`user_id` IS NULL)) AS `dpsql_rows_16` GROUP BY `dpsql_key_1` ORDER BY `dpsql_count` DESC, `dpsql_key_1` ASC NULLS LAST LIMIT 1000
-- [0, 1.0, 'A']

# filter_date
SELECT `dpsql_key_1`, COUNT(DISTINCT `dpsql_unit`) AS `dpsql_count` FROM (SELECT `t1`.`day` AS `dpsql_key_1`, `t1`.`user_id` AS `dpsql_unit` FROM `shop`.`reads` AS `t1` WHERE (`t1`.`day` >= CAST(@p1 AS DATE)) AND (NOT `t1`.`user_id` IS NULL)) AS `dpsql_rows_16` GROUP BY `dpsql_key_1` ORDER BY `dpsql_count` DESC, `dpsql_key_1` ASC NULLS LAST LIMIT 1000
-- ['2026-01-01']

# key_case
SELECT `dpsql_key_1`, COUNT(DISTINCT `dpsql_unit`) AS `dpsql_count` FROM (SELECT (CASE WHEN (CASE WHEN `t1`.`price` IS NULL OR CAST(@p1 AS FLOAT64) IS NULL THEN NULL ELSE NOT IS_NAN(CAST(@p1 AS FLOAT64)) AND (IS_NAN(`t1`.`price`) OR CAST(@p1 AS FLOAT64) < `t1`.`price`) END) THEN CAST(@p2 AS STRING) WHEN (CASE WHEN `t1`.`price` IS NULL OR CAST(@p3 AS FLOAT64) IS NULL THEN NULL ELSE NOT IS_NAN(CAST(@p3 AS FLOAT64)) AND (IS_NAN(`t1`.`price`) OR CAST(@p3 AS FLOAT64) < `t1`.`price`) END) THEN CAST(@p4 AS STRING) WHEN (`t1`.`price` IS NULL) THEN CAST(@p5 AS STRING) ELSE CAST(@p6 AS STRING) END) AS `dpsql_key_1`, `t1`.`user_id` AS `dpsql_unit` FROM `shop`.`reads` AS `t1` WHERE (NOT `t1`.`user_id` IS NULL)) AS `dpsql_rows_16` GROUP BY `dpsql_key_1` ORDER BY `dpsql_count` DESC, `dpsql_key_1` ASC NULLS LAST LIMIT 1000
-- [100.0, 'dear', 1.0, 'fair', None, 'cheap']

# sum_of_integers
SELECT `dpsql_key_1`, COUNT(DISTINCT `dpsql_unit`) AS `dpsql_count` FROM (SELECT CAST(NULLIF(NULLIF(LEAST(GREATEST(CAST(`t1`.`n` AS BIGNUMERIC) + CAST(CAST(@p1 AS INT64) AS BIGNUMERIC), CAST(TRIM('(-2147483649)', '()') AS BIGNUMERIC)), CAST(TRIM('(2147483648)', '()') AS BIGNUMERIC)), CAST(TRIM('(-2147483649)', '()') AS BIGNUMERIC)), CAST(TRIM('(2147483648)', '()') AS BIGNUMERIC)) AS INT64) AS `dpsql_key_1`, `t1`.`user_id` AS `dpsql_unit` FROM `shop`.`reads` AS `t1` WHERE (NOT `t1`.`user_id` IS NULL)) AS `dpsql_rows_16` GROUP BY `dpsql_key_1` ORDER BY `dpsql_count` DESC, `dpsql_key_1` ASC NULLS LAST LIMIT 1000
-- [1]

# text_like
SELECT `dpsql_key_1`, COUNT(DISTINCT `dpsql_unit`) AS `dpsql_count` FROM (SELECT `t1`.`country` AS `dpsql_key_1`, `t1`.`user_id` AS `dpsql_unit` FROM `shop`.`reads` AS `t1` WHERE (`t1`.`article` LIKE CAST(@p1 AS STRING)) AND (NOT `t1`.`user_id` IS NULL)) AS `dpsql_rows_16` GROUP BY `dpsql_key_1` ORDER BY `dpsql_count` DESC, `dpsql_key_1` ASC NULLS LAST LIMIT 1000
-- ['%b%']

# join_public_left
SELECT `dpsql_key_1`, COUNT(DISTINCT `dpsql_unit`) AS `dpsql_count` FROM (SELECT `t2`.`continent` AS `dpsql_key_1`, `t1`.`user_id` AS `dpsql_unit` FROM `shop`.`reads` AS `t1` LEFT JOIN `shop`.`countries` AS `t2` ON (`t1`.`country` = `t2`.`country`) WHERE (NOT `t1`.`user_id` IS NULL)) AS `dpsql_rows_16` GROUP BY `dpsql_key_1` ORDER BY `dpsql_count` DESC, `dpsql_key_1` ASC NULLS LAST LIMIT 1000
-- []

# join_public_full
SELECT `dpsql_key_1`, COUNT(DISTINCT `dpsql_unit`) AS `dpsql_count` FROM (SELECT `t2`.`continent` AS `dpsql_key_1`, `t1`.`user_id` AS `dpsql_unit` FROM `shop`.`reads` AS `t1` LEFT JOIN `shop`.`countries` AS `t2` ON (`t1`.`country` = `t2`.`country`) WHERE (NOT `t1`.`user_id` IS NULL)) AS `dpsql_rows_16` GROUP BY `dpsql_key_1` ORDER BY `dpsql_count` DESC, `dpsql_key_1` ASC NULLS LAST LIMIT 1000
-- []

# join_private_semi
SELECT `dpsql_key_1`, COUNT(DISTINCT `dpsql_unit`) AS `dpsql_count` FROM (SELECT `t1`.`country` AS `dpsql_key_1`, `t1`.`user_id` AS `dpsql_unit` FROM `shop`.`reads` AS `t1` WHERE (EXISTS(SELECT CAST(@p1 AS BOOL) AS `c1` FROM `shop`.`likes` AS `t2` WHERE ((`t1`.`user_id` = `t2`.`user_id`) AND (`t1`.`article` = `t2`.`article`)))) AND (NOT `t1`.`user_id` IS NULL)) AS `dpsql_rows_16` GROUP BY `dpsql_key_1` ORDER BY `dpsql_count` DESC, `dpsql_key_1` ASC NULLS LAST LIMIT 1000
-- [True]

# join_private_with_itself
SELECT `dpsql_key_1`, `dpsql_key_2`, COUNT(DISTINCT `dpsql_unit`) AS `dpsql_count` FROM (SELECT `t1`.`country` AS `dpsql_key_1`, `t2`.`country` AS `dpsql_key_2`, `t1`.`user_id` AS `dpsql_unit` FROM `shop`.`reads` AS `t1` INNER JOIN `shop`.`reads` AS `t2` ON ((`t1`.`user_id` = `t2`.`user_id`) AND (`t1`.`id` < `t2`.`id`)) WHERE (NOT `t1`.`user_id` IS NULL)) AS `dpsql_rows_18` GROUP BY `dpsql_key_1`, `dpsql_key_2` ORDER BY `dpsql_count` DESC, `dpsql_key_1` ASC NULLS LAST, `dpsql_key_2` ASC NULLS LAST LIMIT 1000
-- []

# link
SELECT `dpsql_key_1`, COUNT(DISTINCT `dpsql_unit`) AS `dpsql_count` FROM (SELECT `t1`.`word` AS `dpsql_key_1`, `t1001`.`c2` AS `dpsql_unit` FROM `shop`.`comments` AS `t1` INNER JOIN (SELECT `t1002`.`id` AS `c1`, MIN(`t1002`.`user_id`) AS `c2` FROM `shop`.`reads` AS `t1002` GROUP BY 1) AS `t1001` ON (`t1`.`read_id` = `t1001`.`c1`) WHERE (NOT `t1001`.`c2` IS NULL)) AS `dpsql_rows_16` GROUP BY `dpsql_key_1` ORDER BY `dpsql_count` DESC, `dpsql_key_1` ASC NULLS LAST LIMIT 1000
-- []

# not_in_private
SELECT `dpsql_key_1`, COUNT(DISTINCT `dpsql_unit`) AS `dpsql_count` FROM (SELECT `t1`.`article` AS `dpsql_key_1`, `t1`.`user_id` AS `dpsql_unit` FROM `shop`.`reads` AS `t1` WHERE (NOT (`t1`.`user_id` IN (SELECT `t2`.`c1` AS `c1` FROM (SELECT `t3`.`user_id` AS `c1` FROM `shop`.`likes` AS `t3` WHERE (`t3`.`stars` = CAST(@p1 AS INT64))) AS `t2` WHERE (NOT (`t2`.`c1` IS NULL))))) AND (NOT `t1`.`user_id` IS NULL)) AS `dpsql_rows_16` GROUP BY `dpsql_key_1` ORDER BY `dpsql_count` DESC, `dpsql_key_1` ASC NULLS LAST LIMIT 1000
-- [5]

# exists_private
SELECT `dpsql_key_1`, COUNT(DISTINCT `dpsql_unit`) AS `dpsql_count` FROM (SELECT `t1`.`article` AS `dpsql_key_1`, `t1`.`user_id` AS `dpsql_unit` FROM `shop`.`reads` AS `t1` WHERE (EXISTS(SELECT CAST(@p1 AS INT64) AS `c1` FROM `shop`.`likes` AS `t3` WHERE ((`t3`.`user_id` = `t1`.`user_id`) AND (`t3`.`article` = `t1`.`article`)))) AND (NOT `t1`.`user_id` IS NULL)) AS `dpsql_rows_16` GROUP BY `dpsql_key_1` ORDER BY `dpsql_count` DESC, `dpsql_key_1` ASC NULLS LAST LIMIT 1000
-- [1]

# union
SELECT `dpsql_key_1`, `dpsql_key_2`, COUNT(DISTINCT `dpsql_unit`) AS `dpsql_count` FROM (SELECT `t1`.`c2` AS `dpsql_key_1`, `t1`.`c3` AS `dpsql_key_2`, `t1`.`c1` AS `dpsql_unit` FROM (SELECT `t401`.`c1` AS `c1`, `t401`.`c2` AS `c2`, `t401`.`c3` AS `c3` FROM ((SELECT `t2`.`user_id` AS `c1`, `t2`.`article` AS `c2`, `t2`.`flag` AS `c3` FROM `shop`.`reads` AS `t2`) UNION DISTINCT (SELECT `t4`.`user_id` AS `c1`, `t4`.`article` AS `c2`, CAST(@p1 AS BOOL) AS `c3` FROM `shop`.`likes` AS `t4`)) AS `t401`) AS `t1` WHERE (NOT `t1`.`c1` IS NULL)) AS `dpsql_rows_18` GROUP BY `dpsql_key_1`, `dpsql_key_2` ORDER BY `dpsql_count` DESC, `dpsql_key_1` ASC NULLS LAST, `dpsql_key_2` ASC NULLS LAST LIMIT 1000
-- [True]

# except
SELECT `dpsql_key_1`, COUNT(DISTINCT `dpsql_unit`) AS `dpsql_count` FROM (SELECT `t1`.`c2` AS `dpsql_key_1`, `t1`.`c1` AS `dpsql_unit` FROM (SELECT `t401`.`c1` AS `c1`, `t401`.`c2` AS `c2` FROM ((SELECT `t2`.`user_id` AS `c1`, `t2`.`article` AS `c2` FROM `shop`.`reads` AS `t2` WHERE (`t2`.`n` > CAST(@p1 AS INT64))) EXCEPT DISTINCT (SELECT `t4`.`user_id` AS `c1`, `t4`.`article` AS `c2` FROM `shop`.`reads` AS `t4` WHERE (`t4`.`n` < CAST(@p2 AS INT64)))) AS `t401`) AS `t1` WHERE (NOT `t1`.`c1` IS NULL)) AS `dpsql_rows_16` GROUP BY `dpsql_key_1` ORDER BY `dpsql_count` DESC, `dpsql_key_1` ASC NULLS LAST LIMIT 1000
-- [0, 0]

# unnest
SELECT `dpsql_key_1`, COUNT(DISTINCT `dpsql_unit`) AS `dpsql_count` FROM (SELECT (CASE WHEN (`t2`.`c1` = CAST(@p1 AS INT64)) THEN `t1`.`country` WHEN (`t2`.`c1` = CAST(@p2 AS INT64)) THEN `t1`.`article` END) AS `dpsql_key_1`, `t1`.`user_id` AS `dpsql_unit` FROM `shop`.`reads` AS `t1` CROSS JOIN UNNEST([STRUCT(1 AS `c1`), STRUCT(2 AS `c1`)]) AS `t2` WHERE (NOT `t1`.`user_id` IS NULL)) AS `dpsql_rows_16` GROUP BY `dpsql_key_1` ORDER BY `dpsql_count` DESC, `dpsql_key_1` ASC NULLS LAST LIMIT 1000
-- [1, 2]

# unit_and_key
SELECT `dpsql_key_1`, `dpsql_key_2`, COUNT(DISTINCT `dpsql_unit`) AS `dpsql_count` FROM (SELECT `t1`.`c2` AS `dpsql_key_1`, `t1`.`c3` AS `dpsql_key_2`, `t1`.`c1` AS `dpsql_unit` FROM (SELECT `t101`.`c1` AS `c1`, `t101`.`c2` AS `c2`, `t101`.`c3` AS `c3` FROM (SELECT `t2`.`user_id` AS `c1`, `t2`.`country` AS `c2`, COUNT(*) AS `c3` FROM `shop`.`reads` AS `t2` GROUP BY 1, 2) AS `t101`) AS `t1` WHERE (NOT `t1`.`c1` IS NULL)) AS `dpsql_rows_18` GROUP BY `dpsql_key_1`, `dpsql_key_2` ORDER BY `dpsql_count` DESC, `dpsql_key_1` ASC NULLS LAST, `dpsql_key_2` ASC NULLS LAST LIMIT 1000
-- []

# unit_sum_of_decimals
SELECT `dpsql_key_1`, COUNT(DISTINCT `dpsql_unit`) AS `dpsql_count` FROM (SELECT `t1`.`c2` AS `dpsql_key_1`, `t1`.`c1` AS `dpsql_unit` FROM (SELECT `t101`.`c1` AS `c1`, NULLIF(NULLIF(LEAST(GREATEST(ROUND(CAST(`t101`.`c2` AS BIGNUMERIC), 2), CAST(TRIM('(-10000000000000000.00)', '()') AS BIGNUMERIC)), CAST(TRIM('(10000000000000000.00)', '()') AS BIGNUMERIC)), CAST(TRIM('(-10000000000000000.00)', '()') AS BIGNUMERIC)), CAST(TRIM('(10000000000000000.00)', '()') AS BIGNUMERIC)) AS `c2`, NULLIF(NULLIF(LEAST(GREATEST(ROUND(CAST(`t101`.`c3` AS BIGNUMERIC), 4), CAST(TRIM('(-100000000000000.0000)', '()') AS BIGNUMERIC)), CAST(TRIM('(100000000000000.0000)', '()') AS BIGNUMERIC)), CAST(TRIM('(-100000000000000.0000)', '()') AS BIGNUMERIC)), CAST(TRIM('(100000000000000.0000)', '()') AS BIGNUMERIC)) AS `c3` FROM (SELECT `t2`.`user_id` AS `c1`, SUM(CAST(`t2`.`amount` AS BIGNUMERIC)) AS `c2`, SUM(CAST(`t2`.`wide` AS BIGNUMERIC)) AS `c3` FROM `shop`.`reads` AS `t2` GROUP BY 1) AS `t101`) AS `t1` WHERE (NOT `t1`.`c1` IS NULL)) AS `dpsql_rows_16` GROUP BY `dpsql_key_1` ORDER BY `dpsql_count` DESC, `dpsql_key_1` ASC NULLS LAST LIMIT 1000
-- []

# window_first
SELECT `dpsql_key_1`, COUNT(DISTINCT `dpsql_unit`) AS `dpsql_count` FROM (SELECT `t1`.`c2` AS `dpsql_key_1`, `t1`.`c1` AS `dpsql_unit` FROM (SELECT `t101`.`c1` AS `c1`, `t101`.`c2` AS `c2` FROM (SELECT `t2`.`user_id` AS `c1`, `t2`.`article` AS `c2`, ROW_NUMBER() OVER (PARTITION BY `t2`.`user_id` ORDER BY CAST(`t2`.`moment` AS DATETIME) ASC NULLS LAST, `t2`.`article` ASC NULLS LAST, CAST(`t2`.`moment` AS DATETIME) ASC NULLS LAST, `t2`.`user_id` ASC NULLS LAST) AS `c3` FROM `shop`.`reads` AS `t2`) AS `t101` WHERE (`t101`.`c3` = CAST(@p1 AS INT64))) AS `t1` WHERE (NOT `t1`.`c1` IS NULL)) AS `dpsql_rows_16` GROUP BY `dpsql_key_1` ORDER BY `dpsql_count` DESC, `dpsql_key_1` ASC NULLS LAST LIMIT 1000
-- [1]

# window_sums
lacking

# domain_listed
WITH `dpsql_domain` AS (SELECT DISTINCT `dpsql_key_1` FROM (SELECT `dpsql_key_1` FROM UNNEST([STRUCT(CAST(@p1 AS STRING) AS `dpsql_key_1`), STRUCT(CAST(@p2 AS STRING) AS `dpsql_key_1`), STRUCT(CAST(@p3 AS STRING) AS `dpsql_key_1`), STRUCT(CAST(@p4 AS STRING) AS `dpsql_key_1`)]) AS `dpsql_listed`) AS `dpsql_rows_102` WHERE NOT `dpsql_key_1` IS NULL) SELECT `dpsql_domain`.`dpsql_key_1` AS `dpsql_key_1`, COALESCE(`dpsql_count`, 0) AS `dpsql_count` FROM `dpsql_domain` LEFT JOIN (SELECT `dpsql_key_1`, COUNT(DISTINCT `dpsql_unit`) AS `dpsql_count` FROM (SELECT `dpsql_key_1`, `dpsql_unit` FROM (SELECT `t1`.`country` AS `dpsql_key_1`, `t1`.`user_id` AS `dpsql_unit` FROM `shop`.`reads` AS `t1` WHERE (NOT `t1`.`user_id` IS NULL)) AS `dpsql_rows_38` WHERE `dpsql_key_1` IN (SELECT `dpsql_key_1` FROM `dpsql_domain`)) AS `dpsql_rows_31` GROUP BY `dpsql_key_1`) AS `dpsql_counted` ON `dpsql_domain`.`dpsql_key_1` = `dpsql_counted`.`dpsql_key_1` ORDER BY `dpsql_count` DESC, `dpsql_key_1` ASC NULLS LAST
-- ['DE', 'FR', 'de ', 'nowhere']

# domain_stored
WITH `dpsql_domain` AS (SELECT DISTINCT `dpsql_key_1` FROM (SELECT `t0`.`country` AS `dpsql_key_1` FROM `shop`.`countries` AS `t0`) AS `dpsql_rows_102` WHERE NOT `dpsql_key_1` IS NULL) SELECT `dpsql_domain`.`dpsql_key_1` AS `dpsql_key_1`, COALESCE(`dpsql_count`, 0) AS `dpsql_count` FROM `dpsql_domain` LEFT JOIN (SELECT `dpsql_key_1`, COUNT(DISTINCT `dpsql_unit`) AS `dpsql_count` FROM (SELECT `dpsql_key_1`, `dpsql_unit` FROM (SELECT `t1`.`country` AS `dpsql_key_1`, `t1`.`user_id` AS `dpsql_unit` FROM `shop`.`reads` AS `t1` WHERE (NOT `t1`.`user_id` IS NULL)) AS `dpsql_rows_38` WHERE `dpsql_key_1` IN (SELECT `dpsql_key_1` FROM `dpsql_domain`)) AS `dpsql_rows_31` GROUP BY `dpsql_key_1`) AS `dpsql_counted` ON `dpsql_domain`.`dpsql_key_1` = `dpsql_counted`.`dpsql_key_1` ORDER BY `dpsql_count` DESC, `dpsql_key_1` ASC NULLS LAST
-- []

# per
WITH `dpsql_partitions` AS (SELECT * FROM UNNEST([STRUCT(CAST(@p1 AS BOOL) AS `dpsql_key_1`, CAST(0 AS INT64) AS `dpsql_position`), STRUCT(CAST(@p2 AS BOOL) AS `dpsql_key_1`, CAST(1 AS INT64) AS `dpsql_position`)]) AS `dpsql_listed`) SELECT `dpsql_key_1`, `dpsql_key_2`, `dpsql_count`, `dpsql_position` FROM (SELECT `dpsql_key_1`, `dpsql_key_2`, `dpsql_count`, `dpsql_position`, ROW_NUMBER() OVER (PARTITION BY `dpsql_position` ORDER BY `dpsql_count` DESC, `dpsql_key_1` ASC NULLS LAST, `dpsql_key_2` ASC NULLS LAST) AS `dpsql_rank` FROM (SELECT `dpsql_counted`.*, `dpsql_position` FROM (SELECT `dpsql_key_1`, `dpsql_key_2`, COUNT(DISTINCT `dpsql_unit`) AS `dpsql_count` FROM (SELECT `dpsql_key_1`, `dpsql_key_2`, `dpsql_unit` FROM (SELECT `t1`.`flag` AS `dpsql_key_1`, `t1`.`country` AS `dpsql_key_2`, `t1`.`user_id` AS `dpsql_unit` FROM `shop`.`reads` AS `t1` WHERE (NOT `t1`.`user_id` IS NULL)) AS `dpsql_rows_75` WHERE `dpsql_key_1` IN (SELECT `dpsql_key_1` FROM `dpsql_partitions`)) AS `dpsql_rows_66` GROUP BY `dpsql_key_1`, `dpsql_key_2`) AS `dpsql_counted` JOIN `dpsql_partitions` USING (`dpsql_key_1`)) AS `dpsql_rows_41`) AS `dpsql_rows_10` WHERE `dpsql_rank` <= 3 ORDER BY `dpsql_position` NULLS LAST, `dpsql_count` DESC, `dpsql_key_1` ASC NULLS LAST, `dpsql_key_2` ASC NULLS LAST
-- [False, True]

# per_one_each
WITH `dpsql_partitions` AS (SELECT * FROM UNNEST([STRUCT(CAST(@p1 AS STRING) AS `dpsql_key_1`, CAST(0 AS INT64) AS `dpsql_position`), STRUCT(CAST(@p2 AS STRING) AS `dpsql_key_1`, CAST(1 AS INT64) AS `dpsql_position`), STRUCT(CAST(@p3 AS STRING) AS `dpsql_key_1`, CAST(2 AS INT64) AS `dpsql_position`)]) AS `dpsql_listed`), `dpsql_rows` AS (SELECT DISTINCT `dpsql_key_1`, `dpsql_key_2`, `dpsql_unit` FROM (SELECT `dpsql_key_1`, `dpsql_key_2`, `dpsql_unit` FROM (SELECT `t1`.`country` AS `dpsql_key_1`, `t1`.`article` AS `dpsql_key_2`, `t1`.`user_id` AS `dpsql_unit` FROM `shop`.`reads` AS `t1` WHERE (NOT `t1`.`user_id` IS NULL)) AS `dpsql_rows_246` WHERE `dpsql_key_1` IN (SELECT `dpsql_key_1` FROM `dpsql_partitions`)) AS `dpsql_rows_237`) SELECT `dpsql_key_1`, `dpsql_key_2`, `dpsql_count`, `dpsql_position` FROM (SELECT `dpsql_key_1`, `dpsql_key_2`, `dpsql_count`, `dpsql_position`, ROW_NUMBER() OVER (PARTITION BY `dpsql_position` ORDER BY `dpsql_count` DESC, `dpsql_key_1` ASC NULLS LAST, `dpsql_key_2` ASC NULLS LAST) AS `dpsql_rank` FROM (SELECT `dpsql_counted`.*, `dpsql_position` FROM (SELECT `dpsql_key_1`, `dpsql_key_2`, COUNT(DISTINCT `dpsql_unit`) AS `dpsql_count` FROM (SELECT `dpsql_key_1`, `dpsql_key_2`, `dpsql_unit` FROM `dpsql_rows` INNER JOIN (SELECT `dpsql_key_1`, `dpsql_unit` FROM (SELECT `dpsql_key_1`, `dpsql_unit`, ROW_NUMBER() OVER (PARTITION BY `dpsql_unit` ORDER BY `dpsql_draw` NULLS LAST, `dpsql_key_1` ASC NULLS LAST) AS `dpsql_rank` FROM (SELECT `dpsql_key_1`, `dpsql_unit`, TO_HEX(MD5(CAST(@p4 AS STRING) || CAST(`dpsql_unit` AS STRING) || COALESCE(',' || CAST(`dpsql_key_1` AS STRING), ';'))) AS `dpsql_draw` FROM (SELECT DISTINCT `dpsql_key_1`, `dpsql_unit` FROM (SELECT `dpsql_key_1`, `dpsql_unit` FROM `dpsql_rows`) AS `dpsql_rows_144`) AS `dpsql_rows_136`) AS `dpsql_rows_109`) AS `dpsql_rows_85` WHERE `dpsql_rank` <= 1) AS `dpsql_own` USING (`dpsql_key_1`, `dpsql_unit`)) AS `dpsql_rows_66` GROUP BY `dpsql_key_1`, `dpsql_key_2`) AS `dpsql_counted` JOIN `dpsql_partitions` USING (`dpsql_key_1`)) AS `dpsql_rows_41`) AS `dpsql_rows_10` WHERE `dpsql_rank` <= 4 ORDER BY `dpsql_position` NULLS LAST, `dpsql_count` DESC, `dpsql_key_1` ASC NULLS LAST, `dpsql_key_2` ASC NULLS LAST
-- ['DE', 'FR', 'US', '9e3779b97f4a7c15c2b2ae3d27d4eb4f']

# bound_one
SELECT `dpsql_key_1`, COUNT(*) AS `dpsql_count` FROM (SELECT `dpsql_key_1`, `dpsql_unit` FROM (SELECT `dpsql_key_1`, `dpsql_unit`, ROW_NUMBER() OVER (PARTITION BY `dpsql_unit` ORDER BY `dpsql_draw` NULLS LAST, `dpsql_key_1` ASC NULLS LAST) AS `dpsql_rank` FROM (SELECT `dpsql_key_1`, `dpsql_unit`, TO_HEX(MD5(CAST(@p1 AS STRING) || CAST(`dpsql_unit` AS STRING) || COALESCE(',' || CAST(`dpsql_key_1` AS STRING), ';'))) AS `dpsql_draw` FROM (SELECT DISTINCT `dpsql_key_1`, `dpsql_unit` FROM (SELECT `t1`.`article` AS `dpsql_key_1`, `t1`.`user_id` AS `dpsql_unit` FROM `shop`.`reads` AS `t1` WHERE (NOT `t1`.`user_id` IS NULL)) AS `dpsql_rows_79`) AS `dpsql_rows_71`) AS `dpsql_rows_44`) AS `dpsql_rows_20` WHERE `dpsql_rank` <= 1) AS `dpsql_rows_13` GROUP BY `dpsql_key_1` ORDER BY `dpsql_count` DESC, `dpsql_key_1` ASC NULLS LAST LIMIT 1000
-- ['9e3779b97f4a7c15c2b2ae3d27d4eb4f']

# bound_five
SELECT `dpsql_key_1`, `dpsql_key_2`, COUNT(*) AS `dpsql_count` FROM (SELECT `dpsql_key_1`, `dpsql_key_2`, `dpsql_unit` FROM (SELECT `dpsql_key_1`, `dpsql_key_2`, `dpsql_unit`, ROW_NUMBER() OVER (PARTITION BY `dpsql_unit` ORDER BY `dpsql_draw` NULLS LAST, `dpsql_key_1` ASC NULLS LAST, `dpsql_key_2` ASC NULLS LAST) AS `dpsql_rank` FROM (SELECT `dpsql_key_1`, `dpsql_key_2`, `dpsql_unit`, TO_HEX(MD5(CAST(@p1 AS STRING) || CAST(`dpsql_unit` AS STRING) || COALESCE(',' || TO_HEX(MD5(CAST(`dpsql_key_1` AS STRING))), ';') || COALESCE(',' || CAST(`dpsql_key_2` AS STRING), ';'))) AS `dpsql_draw` FROM (SELECT DISTINCT `dpsql_key_1`, `dpsql_key_2`, `dpsql_unit` FROM (SELECT `t1`.`article` AS `dpsql_key_1`, `t1`.`country` AS `dpsql_key_2`, `t1`.`user_id` AS `dpsql_unit` FROM `shop`.`reads` AS `t1` WHERE (NOT `t1`.`user_id` IS NULL)) AS `dpsql_rows_102`) AS `dpsql_rows_92`) AS `dpsql_rows_53`) AS `dpsql_rows_24` WHERE `dpsql_rank` <= 5) AS `dpsql_rows_15` GROUP BY `dpsql_key_1`, `dpsql_key_2` ORDER BY `dpsql_count` DESC, `dpsql_key_1` ASC NULLS LAST, `dpsql_key_2` ASC NULLS LAST LIMIT 1000
-- ['9e3779b97f4a7c15c2b2ae3d27d4eb4f']

# bound_twenty_by_label
SELECT * FROM (SELECT `dpsql_key_1`, `dpsql_key_2`, COUNT(*) AS `dpsql_count` FROM (SELECT `dpsql_key_1`, `dpsql_key_2`, `dpsql_unit` FROM (SELECT `dpsql_key_1`, `dpsql_key_2`, `dpsql_unit`, ROW_NUMBER() OVER (PARTITION BY `dpsql_unit` ORDER BY `dpsql_draw` NULLS LAST, `dpsql_key_1` ASC NULLS LAST, `dpsql_key_2` ASC NULLS LAST) AS `dpsql_rank` FROM (SELECT `dpsql_key_1`, `dpsql_key_2`, `dpsql_unit`, TO_HEX(MD5(CAST(@p1 AS STRING) || CAST(`dpsql_unit` AS STRING) || COALESCE(',' || TO_HEX(MD5(CAST(`dpsql_key_1` AS STRING))), ';') || COALESCE(',' || CAST(`dpsql_key_2` AS STRING), ';'))) AS `dpsql_draw` FROM (SELECT DISTINCT `dpsql_key_1`, `dpsql_key_2`, `dpsql_unit` FROM (SELECT `t1`.`article` AS `dpsql_key_1`, `t1`.`n` AS `dpsql_key_2`, `t1`.`user_id` AS `dpsql_unit` FROM `shop`.`reads` AS `t1` WHERE (NOT `t1`.`user_id` IS NULL)) AS `dpsql_rows_106`) AS `dpsql_rows_96`) AS `dpsql_rows_57`) AS `dpsql_rows_28` WHERE `dpsql_rank` <= 20) AS `dpsql_rows_19` GROUP BY `dpsql_key_1`, `dpsql_key_2` ORDER BY `dpsql_count` DESC, `dpsql_key_1` ASC NULLS LAST, `dpsql_key_2` ASC NULLS LAST LIMIT 1000) AS `dpsql_rows_3` ORDER BY `dpsql_key_1` ASC NULLS LAST, `dpsql_key_2` ASC NULLS LAST
-- ['9e3779b97f4a7c15c2b2ae3d27d4eb4f']

# weighted
SELECT `dpsql_key_1`, COUNT(*) AS `dpsql_count`, CAST(SUM(`dpsql_weight`) AS INT64) AS `dpsql_weight` FROM (SELECT `dpsql_key_1`, [1048576, 741455, 605396, 524288, 468937][SAFE_ORDINAL(LEAST(`dpsql_groups`, 5))] AS `dpsql_weight` FROM (SELECT *, COUNT(*) OVER (PARTITION BY `dpsql_unit`) AS `dpsql_groups` FROM (SELECT `dpsql_key_1`, `dpsql_unit`, ROW_NUMBER() OVER (PARTITION BY `dpsql_unit` ORDER BY `dpsql_draw` NULLS LAST, `dpsql_key_1` ASC NULLS LAST) AS `dpsql_rank` FROM (SELECT `dpsql_key_1`, `dpsql_unit`, TO_HEX(MD5(CAST(@p1 AS STRING) || CAST(`dpsql_unit` AS STRING) || COALESCE(',' || CAST(`dpsql_key_1` AS STRING), ';'))) AS `dpsql_draw` FROM (SELECT DISTINCT `dpsql_key_1`, `dpsql_unit` FROM (SELECT `t1`.`article` AS `dpsql_key_1`, `t1`.`user_id` AS `dpsql_unit` FROM `shop`.`reads` AS `t1` WHERE (NOT `t1`.`user_id` IS NULL)) AS `dpsql_rows_116`) AS `dpsql_rows_108`) AS `dpsql_rows_81`) AS `dpsql_rows_57`) AS `dpsql_rows_43` WHERE `dpsql_rank` <= 5) AS `dpsql_rows_22` GROUP BY `dpsql_key_1` HAVING SUM(`dpsql_rows_22`.`dpsql_weight`) > 0 ORDER BY `dpsql_key_1` ASC NULLS LAST
-- ['9e3779b97f4a7c15c2b2ae3d27d4eb4f']

# weighted_of_all
SELECT `dpsql_key_1`, COUNT(*) AS `dpsql_count`, CAST(SUM(`dpsql_weight`) AS INT64) AS `dpsql_weight` FROM (SELECT `dpsql_key_1`, CASE WHEN `dpsql_rank` <= 3 THEN [1048576, 741455, 605396][SAFE_ORDINAL(LEAST(`dpsql_groups`, 3))] ELSE 0 END AS `dpsql_weight` FROM (SELECT *, COUNT(*) OVER (PARTITION BY `dpsql_unit`) AS `dpsql_groups` FROM (SELECT `dpsql_key_1`, `dpsql_unit`, ROW_NUMBER() OVER (PARTITION BY `dpsql_unit` ORDER BY `dpsql_draw` NULLS LAST, `dpsql_key_1` ASC NULLS LAST) AS `dpsql_rank` FROM (SELECT `dpsql_key_1`, `dpsql_unit`, TO_HEX(MD5(CAST(@p1 AS STRING) || CAST(`dpsql_unit` AS STRING) || COALESCE(',' || CAST(`dpsql_key_1` AS STRING), ';'))) AS `dpsql_draw` FROM (SELECT DISTINCT `dpsql_key_1`, `dpsql_unit` FROM (SELECT `t1`.`country` AS `dpsql_key_1`, `t1`.`user_id` AS `dpsql_unit` FROM `shop`.`reads` AS `t1` WHERE (NOT `t1`.`user_id` IS NULL)) AS `dpsql_rows_121`) AS `dpsql_rows_113`) AS `dpsql_rows_86`) AS `dpsql_rows_62`) AS `dpsql_rows_48`) AS `dpsql_rows_22` GROUP BY `dpsql_key_1` HAVING SUM(`dpsql_rows_22`.`dpsql_weight`) > 0 ORDER BY `dpsql_key_1` ASC NULLS LAST
-- ['9e3779b97f4a7c15c2b2ae3d27d4eb4f']

# public_order
SELECT `t1`.`country` AS `c1`, `t1`.`people` AS `c2` FROM `shop`.`countries` AS `t1` ORDER BY 2 DESC, 1 ASC LIMIT 5 OFFSET 0
-- []

# public_groups
SELECT `t0`.`c1` AS `c1`, `t0`.`c2` AS `c2`, `t0`.`c3` AS `c3`, `t0`.`c4` AS `c4` FROM (SELECT `t1`.`continent` AS `c1`, COUNT(*) AS `c2`, COUNT(DISTINCT `t1`.`country`) AS `c3`, MAX(`t1`.`people`) AS `c4` FROM `shop`.`countries` AS `t1` GROUP BY 1) AS `t0` ORDER BY 1 ASC NULLS LAST LIMIT 1000 OFFSET 0
-- []

# measure_ranked_by_sum
lacking

# measure_weighted
lacking

# measure_weighted_of_all
lacking

# measure_averages_of_decimals
lacking

# measure_averages_of_groups
lacking

# measure_quantile_of_groups
lacking

# measure_quantile_bounded
lacking

# measure_per_one_each
WITH `dpsql_partitions` AS (SELECT * FROM UNNEST([STRUCT(CAST(@p1 AS STRING) AS `dpsql_key_1`, CAST(0 AS INT64) AS `dpsql_position`), STRUCT(CAST(@p2 AS STRING) AS `dpsql_key_1`, CAST(1 AS INT64) AS `dpsql_position`), STRUCT(CAST(@p3 AS STRING) AS `dpsql_key_1`, CAST(2 AS INT64) AS `dpsql_position`)]) AS `dpsql_listed`), `dpsql_rows` AS (SELECT DISTINCT `dpsql_key_1`, `dpsql_key_2`, `dpsql_unit`, `dpsql_part_1` FROM (SELECT `dpsql_key_1`, `dpsql_key_2`, `dpsql_unit`, `dpsql_part_1` FROM (SELECT `dpsql_key_1`, `dpsql_key_2`, `dpsql_unit`, CAST(LEAST(GREATEST(COUNT(*), 0), 3) AS INT64) AS `dpsql_part_1` FROM (SELECT `t1`.`country` AS `dpsql_key_1`, `t1`.`n` AS `dpsql_key_2`, `t1`.`user_id` AS `dpsql_unit` FROM `shop`.`reads` AS `t1` WHERE (NOT `t1`.`user_id` IS NULL)) AS `dpsql_rows_313` GROUP BY `dpsql_key_1`, `dpsql_key_2`, `dpsql_unit`) AS `dpsql_rows_283` WHERE `dpsql_key_1` IN (SELECT `dpsql_key_1` FROM `dpsql_partitions`)) AS `dpsql_rows_272`) SELECT * FROM (SELECT `dpsql_counted`.*, `dpsql_position` FROM (SELECT `dpsql_key_1`, `dpsql_key_2`, COALESCE(CAST(SUM(`dpsql_part_1`) AS INT64), 0) AS `dpsql_measure_1` FROM (SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY `dpsql_unit` ORDER BY `dpsql_draw` NULLS LAST, `dpsql_key_1` ASC NULLS LAST, `dpsql_key_2` ASC NULLS LAST) AS `dpsql_rank` FROM (SELECT *, TO_HEX(MD5(CAST(@p5 AS STRING) || CAST(`dpsql_unit` AS STRING) || COALESCE(',' || TO_HEX(MD5(CAST(`dpsql_key_1` AS STRING))), ';') || COALESCE(',' || CAST(`dpsql_key_2` AS STRING), ';'))) AS `dpsql_draw` FROM (SELECT `dpsql_key_1`, `dpsql_key_2`, `dpsql_unit`, `dpsql_part_1` FROM `dpsql_rows` INNER JOIN (SELECT `dpsql_key_1`, `dpsql_unit` FROM (SELECT `dpsql_key_1`, `dpsql_unit`, ROW_NUMBER() OVER (PARTITION BY `dpsql_unit` ORDER BY `dpsql_draw` NULLS LAST, `dpsql_key_1` ASC NULLS LAST) AS `dpsql_rank` FROM (SELECT `dpsql_key_1`, `dpsql_unit`, TO_HEX(MD5(CAST(@p4 AS STRING) || CAST(`dpsql_unit` AS STRING) || COALESCE(',' || CAST(`dpsql_key_1` AS STRING), ';'))) AS `dpsql_draw` FROM (SELECT DISTINCT `dpsql_key_1`, `dpsql_unit` FROM (SELECT `dpsql_key_1`, `dpsql_unit` FROM `dpsql_rows`) AS `dpsql_rows_173`) AS `dpsql_rows_165`) AS `dpsql_rows_138`) AS `dpsql_rows_114` WHERE `dpsql_rank` <= 1) AS `dpsql_own` USING (`dpsql_key_1`, `dpsql_unit`)) AS `dpsql_rows_93`) AS `dpsql_rows_59`) AS `dpsql_rows_35` WHERE `dpsql_rank` <= 2) AS `dpsql_rows_31` GROUP BY `dpsql_key_1`, `dpsql_key_2` HAVING SUM(`dpsql_rows_31`.`dpsql_part_1`) > 0) AS `dpsql_counted` JOIN `dpsql_partitions` USING (`dpsql_key_1`)) AS `dpsql_rows_3` ORDER BY `dpsql_key_1` ASC NULLS LAST, `dpsql_key_2` ASC NULLS LAST
-- ['DE', 'FR', 'de', '9e3779b97f4a7c15c2b2ae3d27d4eb4f', '9e3779b97f4a7c15c2b2ae3d27d4eb4f']
