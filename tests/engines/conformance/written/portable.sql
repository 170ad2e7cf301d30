# leading_country
SELECT "dpsql_key_1", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT ("t1"."country" COLLATE C) AS "dpsql_key_1", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" WHERE (NOT "t1"."user_id" IS NULL)) AS "dpsql_rows_16" GROUP BY "dpsql_key_1" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC LIMIT 3
-- []

# ties_at_the_cut
SELECT "dpsql_key_1", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT ("t1"."article" COLLATE C) AS "dpsql_key_1", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" WHERE (NOT "t1"."user_id" IS NULL)) AS "dpsql_rows_16" GROUP BY "dpsql_key_1" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC LIMIT 12
-- []

# filter_text_in
SELECT "dpsql_key_1", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT ("t1"."country" COLLATE C) AS "dpsql_key_1", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" WHERE ("t1"."country" IN (CAST($1 AS TEXT), CAST($2 AS TEXT), CAST($3 AS TEXT), CAST($4 AS TEXT))) AND (NOT "t1"."user_id" IS NULL)) AS "dpsql_rows_16" GROUP BY "dpsql_key_1" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC LIMIT 1000
-- ['DE', 'de ', 'Ö', '']

# filter_is_not_distinct_double
SELECT "dpsql_key_1", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT ("t1"."country" COLLATE C) AS "dpsql_key_1", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" WHERE ("t1"."price" IS NOT DISTINCT FROM TRY_CAST("t1"."ratio" AS DOUBLE)) AND (NOT "t1"."user_id" IS NULL)) AS "dpsql_rows_16" GROUP BY "dpsql_key_1" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC LIMIT 1000
-- []

# filter_and_or_not
SELECT "dpsql_key_1", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT ("t1"."country" COLLATE C) AS "dpsql_key_1", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" WHERE (NOT (("t1"."n" > CAST($1 AS INT)) AND (("t1"."price" < CAST($2 AS DOUBLE)) OR ("t1"."article" = CAST($3 AS TEXT))))) AND (NOT "t1"."user_id" IS NULL)) AS "dpsql_rows_16" GROUP BY "dpsql_key_1" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC LIMIT 1000
-- [0, 1.0, 'A']

# filter_date
SELECT "dpsql_key_1", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT "t1"."day" AS "dpsql_key_1", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" WHERE ("t1"."day" >= CAST($1 AS DATE)) AND (NOT "t1"."user_id" IS NULL)) AS "dpsql_rows_16" GROUP BY "dpsql_key_1" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC LIMIT 1000
-- ['2026-01-01']

# key_case
SELECT "dpsql_key_1", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT ((CASE WHEN ("t1"."price" > CAST($1 AS DOUBLE)) THEN CAST($2 AS TEXT) WHEN ("t1"."price" > CAST($3 AS DOUBLE)) THEN CAST($4 AS TEXT) WHEN ("t1"."price" IS NULL) THEN CAST($5 AS TEXT) ELSE CAST($6 AS TEXT) END) COLLATE C) AS "dpsql_key_1", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" WHERE (NOT "t1"."user_id" IS NULL)) AS "dpsql_rows_16" GROUP BY "dpsql_key_1" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC LIMIT 1000
-- [100.0, 'dear', 1.0, 'fair', None, 'cheap']

# sum_of_integers
SELECT "dpsql_key_1", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT TRY("t1"."n" + CAST($1 AS INT)) AS "dpsql_key_1", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" WHERE (NOT "t1"."user_id" IS NULL)) AS "dpsql_rows_16" GROUP BY "dpsql_key_1" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC LIMIT 1000
-- [1]

# text_like
SELECT "dpsql_key_1", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT ("t1"."country" COLLATE C) AS "dpsql_key_1", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" WHERE ("t1"."article" LIKE CAST($1 AS TEXT)) AND (NOT "t1"."user_id" IS NULL)) AS "dpsql_rows_16" GROUP BY "dpsql_key_1" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC LIMIT 1000
-- ['%b%']

# join_public_left
SELECT "dpsql_key_1", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT ("t2"."continent" COLLATE C) AS "dpsql_key_1", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" LEFT JOIN "shop"."countries" AS "t2" ON ("t1"."country" = "t2"."country") WHERE (NOT "t1"."user_id" IS NULL)) AS "dpsql_rows_16" GROUP BY "dpsql_key_1" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC LIMIT 1000
-- []

# join_public_full
SELECT "dpsql_key_1", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT ("t2"."continent" COLLATE C) AS "dpsql_key_1", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" LEFT JOIN "shop"."countries" AS "t2" ON ("t1"."country" = "t2"."country") WHERE (NOT "t1"."user_id" IS NULL)) AS "dpsql_rows_16" GROUP BY "dpsql_key_1" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC LIMIT 1000
-- []

# join_private_semi
SELECT "dpsql_key_1", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT ("t1"."country" COLLATE C) AS "dpsql_key_1", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" SEMI JOIN "shop"."likes" AS "t2" ON (("t1"."user_id" = "t2"."user_id") AND ("t1"."article" = "t2"."article")) WHERE (NOT "t1"."user_id" IS NULL)) AS "dpsql_rows_16" GROUP BY "dpsql_key_1" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC LIMIT 1000
-- []

# join_private_with_itself
SELECT "dpsql_key_1", "dpsql_key_2", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT ("t1"."country" COLLATE C) AS "dpsql_key_1", ("t2"."country" COLLATE C) AS "dpsql_key_2", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" INNER JOIN "shop"."reads" AS "t2" ON (("t1"."user_id" = "t2"."user_id") AND ("t1"."id" < "t2"."id")) WHERE (NOT "t1"."user_id" IS NULL)) AS "dpsql_rows_18" GROUP BY "dpsql_key_1", "dpsql_key_2" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC, "dpsql_key_2" ASC LIMIT 1000
-- []

# link
SELECT "dpsql_key_1", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT ("t1"."word" COLLATE C) AS "dpsql_key_1", "t1001"."c2" AS "dpsql_unit" FROM "shop"."comments" AS "t1" INNER JOIN (SELECT "t1002"."id" AS "c1", MIN("t1002"."user_id") AS "c2" FROM "shop"."reads" AS "t1002" GROUP BY 1) AS "t1001" ON ("t1"."read_id" = "t1001"."c1") WHERE (NOT "t1001"."c2" IS NULL)) AS "dpsql_rows_16" GROUP BY "dpsql_key_1" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC LIMIT 1000
-- []

# not_in_private
SELECT "dpsql_key_1", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT ("t1"."article" COLLATE C) AS "dpsql_key_1", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" WHERE (NOT ("t1"."user_id" IN (SELECT "t2"."c1" AS "c1" FROM (SELECT "t3"."user_id" AS "c1" FROM "shop"."likes" AS "t3" WHERE ("t3"."stars" = CAST($1 AS SMALLINT))) AS "t2" WHERE (NOT ("t2"."c1" IS NULL))))) AND (NOT "t1"."user_id" IS NULL)) AS "dpsql_rows_16" GROUP BY "dpsql_key_1" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC LIMIT 1000
-- [5]

# exists_private
SELECT "dpsql_key_1", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT ("t1"."article" COLLATE C) AS "dpsql_key_1", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" WHERE (EXISTS(SELECT CAST($1 AS INT) AS "c1" FROM "shop"."likes" AS "t3" WHERE (("t3"."user_id" = "t1"."user_id") AND ("t3"."article" = "t1"."article")))) AND (NOT "t1"."user_id" IS NULL)) AS "dpsql_rows_16" GROUP BY "dpsql_key_1" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC LIMIT 1000
-- [1]

# union
SELECT "dpsql_key_1", "dpsql_key_2", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT ("t1"."c2" COLLATE C) AS "dpsql_key_1", "t1"."c3" AS "dpsql_key_2", "t1"."c1" AS "dpsql_unit" FROM (SELECT "t401"."c1" AS "c1", "t401"."c2" AS "c2", "t401"."c3" AS "c3" FROM ((SELECT "t2"."user_id" AS "c1", ("t2"."article" COLLATE C) AS "c2", "t2"."flag" AS "c3" FROM "shop"."reads" AS "t2") UNION (SELECT "t4"."user_id" AS "c1", ("t4"."article" COLLATE C) AS "c2", TRY_CAST(CAST($1 AS BOOLEAN) AS BOOLEAN) AS "c3" FROM "shop"."likes" AS "t4")) AS "t401") AS "t1" WHERE (NOT "t1"."c1" IS NULL)) AS "dpsql_rows_18" GROUP BY "dpsql_key_1", "dpsql_key_2" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC, "dpsql_key_2" ASC LIMIT 1000
-- [True]

# except
SELECT "dpsql_key_1", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT ("t1"."c2" COLLATE C) AS "dpsql_key_1", "t1"."c1" AS "dpsql_unit" FROM (SELECT "t401"."c1" AS "c1", "t401"."c2" AS "c2" FROM ((SELECT "t2"."user_id" AS "c1", ("t2"."article" COLLATE C) AS "c2" FROM "shop"."reads" AS "t2" WHERE ("t2"."n" > CAST($1 AS INT))) EXCEPT (SELECT "t4"."user_id" AS "c1", ("t4"."article" COLLATE C) AS "c2" FROM "shop"."reads" AS "t4" WHERE ("t4"."n" < CAST($2 AS INT)))) AS "t401") AS "t1" WHERE (NOT "t1"."c1" IS NULL)) AS "dpsql_rows_16" GROUP BY "dpsql_key_1" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC LIMIT 1000
-- [0, 0]

# unnest
SELECT "dpsql_key_1", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT ((CASE WHEN ("t2"."c1" = CAST($1 AS INT)) THEN "t1"."country" WHEN ("t2"."c1" = CAST($2 AS INT)) THEN "t1"."article" END) COLLATE C) AS "dpsql_key_1", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" CROSS JOIN (VALUES (1), (2)) AS "t2"("c1") WHERE (NOT "t1"."user_id" IS NULL)) AS "dpsql_rows_16" GROUP BY "dpsql_key_1" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC LIMIT 1000
-- [1, 2]

# unit_and_key
SELECT "dpsql_key_1", "dpsql_key_2", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT ("t1"."c2" COLLATE C) AS "dpsql_key_1", "t1"."c3" AS "dpsql_key_2", "t1"."c1" AS "dpsql_unit" FROM (SELECT "t101"."c1" AS "c1", "t101"."c2" AS "c2", "t101"."c3" AS "c3" FROM (SELECT "t2"."user_id" AS "c1", ("t2"."country" COLLATE C) AS "c2", COUNT(*) AS "c3" FROM "shop"."reads" AS "t2" GROUP BY 1, 2) AS "t101") AS "t1" WHERE (NOT "t1"."c1" IS NULL)) AS "dpsql_rows_18" GROUP BY "dpsql_key_1", "dpsql_key_2" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC, "dpsql_key_2" ASC LIMIT 1000
-- []

# unit_sum_of_decimals
SELECT "dpsql_key_1", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT "t1"."c2" AS "dpsql_key_1", "t1"."c1" AS "dpsql_unit" FROM (SELECT "t101"."c1" AS "c1", TRY_CAST("t101"."c2" AS DECIMAL(18, 2)) AS "c2", TRY_CAST("t101"."c3" AS DECIMAL(18, 4)) AS "c3" FROM (SELECT "t2"."user_id" AS "c1", sum("t2"."amount") AS "c2", sum("t2"."wide") AS "c3" FROM "shop"."reads" AS "t2" GROUP BY 1) AS "t101") AS "t1" WHERE (NOT "t1"."c1" IS NULL)) AS "dpsql_rows_16" GROUP BY "dpsql_key_1" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC LIMIT 1000
-- []

# window_first
SELECT "dpsql_key_1", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT ("t1"."c2" COLLATE C) AS "dpsql_key_1", "t1"."c1" AS "dpsql_unit" FROM (SELECT "t101"."c1" AS "c1", "t101"."c2" AS "c2" FROM (SELECT "t2"."user_id" AS "c1", "t2"."article" AS "c2", row_number() OVER (PARTITION BY "t2"."user_id" ORDER BY "t2"."moment" ASC, (("t2"."article" COLLATE C) COLLATE C) ASC, "t2"."moment" ASC, "t2"."user_id" ASC) AS "c3" FROM "shop"."reads" AS "t2") AS "t101" WHERE ("t101"."c3" = CAST($1 AS BIGINT))) AS "t1" WHERE (NOT "t1"."c1" IS NULL)) AS "dpsql_rows_16" GROUP BY "dpsql_key_1" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC LIMIT 1000
-- [1]

# window_sums
SELECT "dpsql_key_1", "dpsql_key_2", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT "t1"."c2" AS "dpsql_key_1", (CASE WHEN isnan("t1"."c3") THEN CAST($1 AS DOUBLE) WHEN ("t1"."c3" = CAST($2 AS DOUBLE)) THEN CAST($3 AS DOUBLE) ELSE "t1"."c3" END) AS "dpsql_key_2", "t1"."c1" AS "dpsql_unit" FROM (SELECT "t101"."c1" AS "c1", TRY_CAST("t101"."c2" AS BIGINT) AS "c2", "t101"."c3" AS "c3" FROM (SELECT "t2"."user_id" AS "c1", sum("t2"."small") OVER (PARTITION BY "t2"."user_id" ORDER BY "t2"."id" ASC) AS "c2", avg("t2"."tiny") OVER (PARTITION BY "t2"."user_id") AS "c3" FROM "shop"."reads" AS "t2") AS "t101") AS "t1" WHERE (NOT "t1"."c1" IS NULL)) AS "dpsql_rows_18" GROUP BY "dpsql_key_1", "dpsql_key_2" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC, "dpsql_key_2" ASC LIMIT 1000
-- ['nan', 0.0, 0.0]

# domain_listed
WITH "dpsql_domain" AS MATERIALIZED (SELECT DISTINCT "dpsql_key_1" FROM (SELECT "dpsql_key_1" FROM (VALUES ((CAST($1 AS TEXT) COLLATE C)), ((CAST($2 AS TEXT) COLLATE C)), ((CAST($3 AS TEXT) COLLATE C)), ((CAST($4 AS TEXT) COLLATE C))) AS "dpsql_listed"("dpsql_key_1")) AS "dpsql_rows_102" WHERE NOT "dpsql_key_1" IS NULL) SELECT "dpsql_domain"."dpsql_key_1" AS "dpsql_key_1", COALESCE("dpsql_count", 0) AS "dpsql_count" FROM "dpsql_domain" LEFT JOIN (SELECT "dpsql_key_1", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT "dpsql_key_1", "dpsql_unit" FROM (SELECT ("t1"."country" COLLATE C) AS "dpsql_key_1", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" WHERE (NOT "t1"."user_id" IS NULL)) AS "dpsql_rows_38" WHERE "dpsql_key_1" IN (SELECT "dpsql_key_1" FROM "dpsql_domain")) AS "dpsql_rows_31" GROUP BY "dpsql_key_1") AS "dpsql_counted" ON "dpsql_domain"."dpsql_key_1" = "dpsql_counted"."dpsql_key_1" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC
-- ['DE', 'FR', 'de ', 'nowhere']

# domain_stored
WITH "dpsql_domain" AS MATERIALIZED (SELECT DISTINCT "dpsql_key_1" FROM (SELECT ("t0"."country" COLLATE C) AS "dpsql_key_1" FROM "shop"."countries" AS "t0") AS "dpsql_rows_102" WHERE NOT "dpsql_key_1" IS NULL) SELECT "dpsql_domain"."dpsql_key_1" AS "dpsql_key_1", COALESCE("dpsql_count", 0) AS "dpsql_count" FROM "dpsql_domain" LEFT JOIN (SELECT "dpsql_key_1", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT "dpsql_key_1", "dpsql_unit" FROM (SELECT ("t1"."country" COLLATE C) AS "dpsql_key_1", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" WHERE (NOT "t1"."user_id" IS NULL)) AS "dpsql_rows_38" WHERE "dpsql_key_1" IN (SELECT "dpsql_key_1" FROM "dpsql_domain")) AS "dpsql_rows_31" GROUP BY "dpsql_key_1") AS "dpsql_counted" ON "dpsql_domain"."dpsql_key_1" = "dpsql_counted"."dpsql_key_1" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC
-- []

# per
WITH "dpsql_partitions" AS MATERIALIZED (SELECT * FROM (VALUES (CAST($1 AS BOOLEAN), CAST(0 AS BIGINT)), (CAST($2 AS BOOLEAN), CAST(1 AS BIGINT))) AS "dpsql_listed"("dpsql_key_1", "dpsql_position")) SELECT "dpsql_key_1", "dpsql_key_2", "dpsql_count", "dpsql_position" FROM (SELECT "dpsql_key_1", "dpsql_key_2", "dpsql_count", "dpsql_position", ROW_NUMBER() OVER (PARTITION BY "dpsql_position" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC, "dpsql_key_2" ASC) AS "dpsql_rank" FROM (SELECT "dpsql_counted".*, "dpsql_position" FROM (SELECT "dpsql_key_1", "dpsql_key_2", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT "dpsql_key_1", "dpsql_key_2", "dpsql_unit" FROM (SELECT "t1"."flag" AS "dpsql_key_1", ("t1"."country" COLLATE C) AS "dpsql_key_2", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" WHERE (NOT "t1"."user_id" IS NULL)) AS "dpsql_rows_75" WHERE "dpsql_key_1" IN (SELECT "dpsql_key_1" FROM "dpsql_partitions")) AS "dpsql_rows_66" GROUP BY "dpsql_key_1", "dpsql_key_2") AS "dpsql_counted" JOIN "dpsql_partitions" USING ("dpsql_key_1")) AS "dpsql_rows_41") AS "dpsql_rows_10" WHERE "dpsql_rank" <= 3 ORDER BY "dpsql_position", "dpsql_count" DESC, "dpsql_key_1" ASC, "dpsql_key_2" ASC
-- [False, True]

# per_one_each
WITH "dpsql_partitions" AS MATERIALIZED (SELECT * FROM (VALUES ((CAST($1 AS TEXT) COLLATE C), CAST(0 AS BIGINT)), ((CAST($2 AS TEXT) COLLATE C), CAST(1 AS BIGINT)), ((CAST($3 AS TEXT) COLLATE C), CAST(2 AS BIGINT))) AS "dpsql_listed"("dpsql_key_1", "dpsql_position")), "dpsql_rows" AS MATERIALIZED (SELECT DISTINCT "dpsql_key_1", "dpsql_key_2", "dpsql_unit" FROM (SELECT "dpsql_key_1", "dpsql_key_2", "dpsql_unit" FROM (SELECT ("t1"."country" COLLATE C) AS "dpsql_key_1", ("t1"."article" COLLATE C) AS "dpsql_key_2", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" WHERE (NOT "t1"."user_id" IS NULL)) AS "dpsql_rows_237" WHERE "dpsql_key_1" IN (SELECT "dpsql_key_1" FROM "dpsql_partitions")) AS "dpsql_rows_228") SELECT "dpsql_key_1", "dpsql_key_2", "dpsql_count", "dpsql_position" FROM (SELECT "dpsql_key_1", "dpsql_key_2", "dpsql_count", "dpsql_position", ROW_NUMBER() OVER (PARTITION BY "dpsql_position" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC, "dpsql_key_2" ASC) AS "dpsql_rank" FROM (SELECT "dpsql_counted".*, "dpsql_position" FROM (SELECT "dpsql_key_1", "dpsql_key_2", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT "dpsql_key_1", "dpsql_key_2", "dpsql_unit" FROM "dpsql_rows" INNER JOIN (SELECT "dpsql_key_1", "dpsql_unit" FROM (SELECT "dpsql_key_1", "dpsql_unit", ROW_NUMBER() OVER (PARTITION BY "dpsql_unit" ORDER BY md5(CAST($4 AS TEXT) || COALESCE(md5(CAST("dpsql_unit" AS TEXT)), '') || COALESCE(md5(CAST("dpsql_key_1" AS TEXT)), '')), "dpsql_key_1" ASC) AS "dpsql_rank" FROM (SELECT DISTINCT "dpsql_key_1", "dpsql_unit" FROM (SELECT "dpsql_key_1", "dpsql_unit" FROM "dpsql_rows") AS "dpsql_rows_135") AS "dpsql_rows_127") AS "dpsql_rows_85" WHERE "dpsql_rank" <= 1) AS "dpsql_own" USING ("dpsql_key_1", "dpsql_unit")) AS "dpsql_rows_66" GROUP BY "dpsql_key_1", "dpsql_key_2") AS "dpsql_counted" JOIN "dpsql_partitions" USING ("dpsql_key_1")) AS "dpsql_rows_41") AS "dpsql_rows_10" WHERE "dpsql_rank" <= 4 ORDER BY "dpsql_position", "dpsql_count" DESC, "dpsql_key_1" ASC, "dpsql_key_2" ASC
-- ['DE', 'FR', 'US', '9e3779b97f4a7c15c2b2ae3d27d4eb4f']

# bound_one
SELECT "dpsql_key_1", COUNT(*) AS "dpsql_count" FROM (SELECT "dpsql_key_1", "dpsql_unit" FROM (SELECT "dpsql_key_1", "dpsql_unit", ROW_NUMBER() OVER (PARTITION BY "dpsql_unit" ORDER BY md5(CAST($1 AS TEXT) || COALESCE(md5(CAST("dpsql_unit" AS TEXT)), '') || COALESCE(md5(CAST("dpsql_key_1" AS TEXT)), '')), "dpsql_key_1" ASC) AS "dpsql_rank" FROM (SELECT DISTINCT "dpsql_key_1", "dpsql_unit" FROM (SELECT ("t1"."article" COLLATE C) AS "dpsql_key_1", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" WHERE (NOT "t1"."user_id" IS NULL)) AS "dpsql_rows_70") AS "dpsql_rows_62") AS "dpsql_rows_20" WHERE "dpsql_rank" <= 1) AS "dpsql_rows_13" GROUP BY "dpsql_key_1" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC LIMIT 1000
-- ['9e3779b97f4a7c15c2b2ae3d27d4eb4f']

# bound_five
SELECT "dpsql_key_1", "dpsql_key_2", COUNT(*) AS "dpsql_count" FROM (SELECT "dpsql_key_1", "dpsql_key_2", "dpsql_unit" FROM (SELECT "dpsql_key_1", "dpsql_key_2", "dpsql_unit", ROW_NUMBER() OVER (PARTITION BY "dpsql_unit" ORDER BY md5(CAST($1 AS TEXT) || COALESCE(md5(CAST("dpsql_unit" AS TEXT)), '') || COALESCE(md5(CAST("dpsql_key_1" AS TEXT)), '') || COALESCE(md5(CAST("dpsql_key_2" AS TEXT)), '')), "dpsql_key_1" ASC, "dpsql_key_2" ASC) AS "dpsql_rank" FROM (SELECT DISTINCT "dpsql_key_1", "dpsql_key_2", "dpsql_unit" FROM (SELECT ("t1"."article" COLLATE C) AS "dpsql_key_1", ("t1"."country" COLLATE C) AS "dpsql_key_2", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" WHERE (NOT "t1"."user_id" IS NULL)) AS "dpsql_rows_89") AS "dpsql_rows_79") AS "dpsql_rows_24" WHERE "dpsql_rank" <= 5) AS "dpsql_rows_15" GROUP BY "dpsql_key_1", "dpsql_key_2" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC, "dpsql_key_2" ASC LIMIT 1000
-- ['9e3779b97f4a7c15c2b2ae3d27d4eb4f']

# bound_twenty_by_label
SELECT * FROM (SELECT "dpsql_key_1", "dpsql_key_2", COUNT(*) AS "dpsql_count" FROM (SELECT "dpsql_key_1", "dpsql_key_2", "dpsql_unit" FROM (SELECT "dpsql_key_1", "dpsql_key_2", "dpsql_unit", ROW_NUMBER() OVER (PARTITION BY "dpsql_unit" ORDER BY md5(CAST($1 AS TEXT) || COALESCE(md5(CAST("dpsql_unit" AS TEXT)), '') || COALESCE(md5(CAST("dpsql_key_1" AS TEXT)), '') || COALESCE(md5(CAST("dpsql_key_2" AS TEXT)), '')), "dpsql_key_1" ASC, "dpsql_key_2" ASC) AS "dpsql_rank" FROM (SELECT DISTINCT "dpsql_key_1", "dpsql_key_2", "dpsql_unit" FROM (SELECT ("t1"."article" COLLATE C) AS "dpsql_key_1", "t1"."n" AS "dpsql_key_2", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" WHERE (NOT "t1"."user_id" IS NULL)) AS "dpsql_rows_93") AS "dpsql_rows_83") AS "dpsql_rows_28" WHERE "dpsql_rank" <= 20) AS "dpsql_rows_19" GROUP BY "dpsql_key_1", "dpsql_key_2" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC, "dpsql_key_2" ASC LIMIT 1000) AS "dpsql_rows_3" ORDER BY "dpsql_key_1" ASC, "dpsql_key_2" ASC
-- ['9e3779b97f4a7c15c2b2ae3d27d4eb4f']

# weighted
SELECT "dpsql_key_1", COUNT(*) AS "dpsql_count", CAST(SUM("dpsql_weight") AS BIGINT) AS "dpsql_weight" FROM (SELECT "dpsql_key_1", list_extract([1048576, 741455, 605396, 524288, 468937], LEAST("dpsql_groups", 5)) AS "dpsql_weight" FROM (SELECT *, COUNT(*) OVER (PARTITION BY "dpsql_unit") AS "dpsql_groups" FROM (SELECT "dpsql_key_1", "dpsql_unit", ROW_NUMBER() OVER (PARTITION BY "dpsql_unit" ORDER BY md5(CAST($1 AS TEXT) || COALESCE(md5(CAST("dpsql_unit" AS TEXT)), '') || COALESCE(md5(CAST("dpsql_key_1" AS TEXT)), '')), "dpsql_key_1" ASC) AS "dpsql_rank" FROM (SELECT DISTINCT "dpsql_key_1", "dpsql_unit" FROM (SELECT ("t1"."article" COLLATE C) AS "dpsql_key_1", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" WHERE (NOT "t1"."user_id" IS NULL)) AS "dpsql_rows_107") AS "dpsql_rows_99") AS "dpsql_rows_57") AS "dpsql_rows_43" WHERE "dpsql_rank" <= 5) AS "dpsql_rows_22" GROUP BY "dpsql_key_1" HAVING SUM("dpsql_weight") > 0 ORDER BY "dpsql_key_1" ASC
-- ['9e3779b97f4a7c15c2b2ae3d27d4eb4f']

# weighted_of_all
SELECT "dpsql_key_1", COUNT(*) AS "dpsql_count", CAST(SUM("dpsql_weight") AS BIGINT) AS "dpsql_weight" FROM (SELECT "dpsql_key_1", CASE WHEN "dpsql_rank" <= 3 THEN list_extract([1048576, 741455, 605396], LEAST("dpsql_groups", 3)) ELSE 0 END AS "dpsql_weight" FROM (SELECT *, COUNT(*) OVER (PARTITION BY "dpsql_unit") AS "dpsql_groups" FROM (SELECT "dpsql_key_1", "dpsql_unit", ROW_NUMBER() OVER (PARTITION BY "dpsql_unit" ORDER BY md5(CAST($1 AS TEXT) || COALESCE(md5(CAST("dpsql_unit" AS TEXT)), '') || COALESCE(md5(CAST("dpsql_key_1" AS TEXT)), '')), "dpsql_key_1" ASC) AS "dpsql_rank" FROM (SELECT DISTINCT "dpsql_key_1", "dpsql_unit" FROM (SELECT ("t1"."country" COLLATE C) AS "dpsql_key_1", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" WHERE (NOT "t1"."user_id" IS NULL)) AS "dpsql_rows_112") AS "dpsql_rows_104") AS "dpsql_rows_62") AS "dpsql_rows_48") AS "dpsql_rows_22" GROUP BY "dpsql_key_1" HAVING SUM("dpsql_weight") > 0 ORDER BY "dpsql_key_1" ASC
-- ['9e3779b97f4a7c15c2b2ae3d27d4eb4f']

# public_order
SELECT "t1"."country" AS "c1", "t1"."people" AS "c2" FROM "shop"."countries" AS "t1" ORDER BY 2 DESC, 1 ASC NULLS FIRST LIMIT 5 OFFSET 0
-- []

# public_groups
SELECT "t0"."c1" AS "c1", "t0"."c2" AS "c2", "t0"."c3" AS "c3", "t0"."c4" AS "c4" FROM (SELECT ("t1"."continent" COLLATE C) AS "c1", COUNT(*) AS "c2", COUNT(DISTINCT ("t1"."country" COLLATE C)) AS "c3", MAX("t1"."people") AS "c4" FROM "shop"."countries" AS "t1" GROUP BY 1) AS "t0" ORDER BY 1 ASC LIMIT 1000 OFFSET 0
-- []

# measure_ranked_by_sum
SELECT "dpsql_key_1", COALESCE(CAST(SUM("dpsql_part_1") AS BIGINT), 0) AS "dpsql_measure_1", COALESCE(CAST(SUM("dpsql_part_2") AS BIGINT), 0) AS "dpsql_measure_2" FROM (SELECT "dpsql_key_1", "dpsql_unit", CAST(LEAST(GREATEST(SUM("dpsql_row_1"), 0), 1048576) AS BIGINT) AS "dpsql_part_1", CAST(MAX("dpsql_row_2") AS BIGINT) AS "dpsql_part_2" FROM (SELECT ("t1"."article" COLLATE C) AS "dpsql_key_1", "t1"."user_id" AS "dpsql_unit", (CASE WHEN (("t1"."price" > CAST($1 AS DOUBLE)) AND ("t1"."price" < CAST($2 AS DOUBLE))) THEN TRY_CAST(floor(TRY("t1"."price" * CAST($3 AS DOUBLE))) AS BIGINT) WHEN isnan("t1"."price") THEN CAST($4 AS BIGINT) WHEN ("t1"."price" >= CAST($5 AS DOUBLE)) THEN CAST($6 AS BIGINT) WHEN ("t1"."price" <= CAST($7 AS DOUBLE)) THEN CAST($8 AS BIGINT) ELSE CAST($9 AS BIGINT) END) AS "dpsql_row_1", (CASE WHEN "t1"."flag" THEN CAST($10 AS BIGINT) ELSE CAST($11 AS BIGINT) END) AS "dpsql_row_2" FROM "shop"."reads" AS "t1" WHERE (NOT "t1"."user_id" IS NULL)) AS "dpsql_rows_73" GROUP BY "dpsql_key_1", "dpsql_unit") AS "dpsql_rows_32" GROUP BY "dpsql_key_1" HAVING SUM("dpsql_part_1") > 0 ORDER BY "dpsql_measure_1" DESC, "dpsql_key_1" ASC LIMIT 5
-- [0.0, 1000.0, 1048.576, 0, 1000.0, 1048576, 0.0, 0, 0, 1, 0]

# measure_weighted
SELECT "dpsql_key_1", COALESCE(CAST(SUM("dpsql_part_1") AS BIGINT), 0) AS "dpsql_measure_1", CAST(SUM("dpsql_weight") AS BIGINT) AS "dpsql_weight", COALESCE(CAST(SUM("dpsql_part_2") AS BIGINT), 0) AS "dpsql_measure_2" FROM (SELECT *, CASE WHEN "dpsql_rank" <= 20 THEN (CAST(list_extract([1048576, 741455, 605396, 524288, 468937, 428079, 396324, 370728, 349525, 331589, 316158, 302698, 290823, 280244, 270741, 262144, 254317, 247152, 240560, 234469], LEAST("dpsql_groups", 20)) AS BIGINT) * "dpsql_part_1") // 1000 ELSE 0 END AS "dpsql_weight" FROM (SELECT *, COUNT(*) OVER (PARTITION BY "dpsql_unit") AS "dpsql_groups" FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY "dpsql_unit" ORDER BY md5(CAST($11 AS TEXT) || COALESCE(md5(CAST("dpsql_unit" AS TEXT)), '') || COALESCE(md5(CAST("dpsql_key_1" AS TEXT)), '')), "dpsql_key_1" ASC) AS "dpsql_rank" FROM (SELECT "dpsql_key_1", "dpsql_unit", CAST(LEAST(GREATEST(SUM("dpsql_row_1"), 0), 1000) AS BIGINT) AS "dpsql_part_1", CAST(LEAST(GREATEST(COUNT(*), 0), 3) AS BIGINT) AS "dpsql_part_2" FROM (SELECT ("t1"."article" COLLATE C) AS "dpsql_key_1", "t1"."user_id" AS "dpsql_unit", (CASE WHEN ((TRY_CAST("t1"."n" AS DOUBLE) > CAST($1 AS DOUBLE)) AND (TRY_CAST("t1"."n" AS DOUBLE) < CAST($2 AS DOUBLE))) THEN TRY_CAST(floor(TRY(TRY(TRY_CAST("t1"."n" AS DOUBLE) * CAST($3 AS DOUBLE)) + CAST($4 AS DOUBLE))) AS BIGINT) WHEN isnan(TRY_CAST("t1"."n" AS DOUBLE)) THEN CAST($5 AS BIGINT) WHEN (TRY_CAST("t1"."n" AS DOUBLE) >= CAST($6 AS DOUBLE)) THEN CAST($7 AS BIGINT) WHEN (TRY_CAST("t1"."n" AS DOUBLE) <= CAST($8 AS DOUBLE)) THEN CAST($9 AS BIGINT) ELSE CAST($10 AS BIGINT) END) AS "dpsql_row_1" FROM "shop"."reads" AS "t1" WHERE (NOT "t1"."user_id" IS NULL)) AS "dpsql_rows_195" GROUP BY "dpsql_key_1", "dpsql_unit") AS "dpsql_rows_144") AS "dpsql_rows_105") AS "dpsql_rows_91") AS "dpsql_rows_41" WHERE "dpsql_rank" <= 20 GROUP BY "dpsql_key_1" HAVING SUM("dpsql_weight") > 0 ORDER BY "dpsql_key_1" ASC
-- [0.0, 1000.0, 1.0, 0.5, 0, 1000.0, 1000, 0.0, 0, 0, '9e3779b97f4a7c15c2b2ae3d27d4eb4f']

# measure_weighted_of_all
SELECT "dpsql_key_1", COALESCE(CAST(SUM("dpsql_part_1") AS BIGINT), 0) AS "dpsql_measure_1", CAST(SUM("dpsql_weight") AS BIGINT) AS "dpsql_weight", COALESCE(CAST(SUM("dpsql_part_2") AS BIGINT), 0) AS "dpsql_measure_2" FROM (SELECT *, CASE WHEN "dpsql_rank" <= 3 THEN (CAST(list_extract([1048576, 741455, 605396], LEAST("dpsql_groups", 3)) AS BIGINT) * "dpsql_part_1") // 1048576 ELSE 0 END AS "dpsql_weight" FROM (SELECT *, COUNT(*) OVER (PARTITION BY "dpsql_unit") AS "dpsql_groups" FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY "dpsql_unit" ORDER BY md5(CAST($10 AS TEXT) || COALESCE(md5(CAST("dpsql_unit" AS TEXT)), '') || COALESCE(md5(CAST("dpsql_key_1" AS TEXT)), '')), "dpsql_key_1" ASC) AS "dpsql_rank" FROM (SELECT "dpsql_key_1", "dpsql_unit", CAST(LEAST(GREATEST(SUM("dpsql_row_1"), 0), 1048576) AS BIGINT) AS "dpsql_part_1", CAST(1 AS BIGINT) AS "dpsql_part_2" FROM (SELECT ("t1"."article" COLLATE C) AS "dpsql_key_1", "t1"."user_id" AS "dpsql_unit", (CASE WHEN (("t1"."price" > CAST($1 AS DOUBLE)) AND ("t1"."price" < CAST($2 AS DOUBLE))) THEN TRY_CAST(floor(TRY("t1"."price" * CAST($3 AS DOUBLE))) AS BIGINT) WHEN isnan("t1"."price") THEN CAST($4 AS BIGINT) WHEN ("t1"."price" >= CAST($5 AS DOUBLE)) THEN CAST($6 AS BIGINT) WHEN ("t1"."price" <= CAST($7 AS DOUBLE)) THEN CAST($8 AS BIGINT) ELSE CAST($9 AS BIGINT) END) AS "dpsql_row_1" FROM "shop"."reads" AS "t1" WHERE (NOT "t1"."user_id" IS NULL)) AS "dpsql_rows_162" GROUP BY "dpsql_key_1", "dpsql_unit") AS "dpsql_rows_127") AS "dpsql_rows_88") AS "dpsql_rows_74") AS "dpsql_rows_41" GROUP BY "dpsql_key_1" HAVING SUM("dpsql_weight") > 0 ORDER BY "dpsql_key_1" ASC
-- [0.0, 1000.0, 1048.576, 0, 1000.0, 1048576, 0.0, 0, 0, '9e3779b97f4a7c15c2b2ae3d27d4eb4f']

# measure_per_one_each
WITH "dpsql_partitions" AS MATERIALIZED (SELECT * FROM (VALUES ((CAST($1 AS TEXT) COLLATE C), CAST(0 AS BIGINT)), ((CAST($2 AS TEXT) COLLATE C), CAST(1 AS BIGINT)), ((CAST($3 AS TEXT) COLLATE C), CAST(2 AS BIGINT))) AS "dpsql_listed"("dpsql_key_1", "dpsql_position")), "dpsql_rows" AS MATERIALIZED (SELECT DISTINCT "dpsql_key_1", "dpsql_key_2", "dpsql_unit", "dpsql_part_1" FROM (SELECT "dpsql_key_1", "dpsql_key_2", "dpsql_unit", "dpsql_part_1" FROM (SELECT "dpsql_key_1", "dpsql_key_2", "dpsql_unit", CAST(LEAST(GREATEST(COUNT(*), 0), 3) AS BIGINT) AS "dpsql_part_1" FROM (SELECT ("t1"."country" COLLATE C) AS "dpsql_key_1", "t1"."n" AS "dpsql_key_2", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" WHERE (NOT "t1"."user_id" IS NULL)) AS "dpsql_rows_296" GROUP BY "dpsql_key_1", "dpsql_key_2", "dpsql_unit") AS "dpsql_rows_266" WHERE "dpsql_key_1" IN (SELECT "dpsql_key_1" FROM "dpsql_partitions")) AS "dpsql_rows_255") SELECT * FROM (SELECT "dpsql_counted".*, "dpsql_position" FROM (SELECT "dpsql_key_1", "dpsql_key_2", COALESCE(CAST(SUM("dpsql_part_1") AS BIGINT), 0) AS "dpsql_measure_1" FROM (SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY "dpsql_unit" ORDER BY md5(CAST($5 AS TEXT) || COALESCE(md5(CAST("dpsql_unit" AS TEXT)), '') || COALESCE(md5(CAST("dpsql_key_1" AS TEXT)), '') || COALESCE(md5(CAST("dpsql_key_2" AS TEXT)), '')), "dpsql_key_1" ASC, "dpsql_key_2" ASC) AS "dpsql_rank" FROM (SELECT "dpsql_key_1", "dpsql_key_2", "dpsql_unit", "dpsql_part_1" FROM "dpsql_rows" INNER JOIN (SELECT "dpsql_key_1", "dpsql_unit" FROM (SELECT "dpsql_key_1", "dpsql_unit", ROW_NUMBER() OVER (PARTITION BY "dpsql_unit" ORDER BY md5(CAST($4 AS TEXT) || COALESCE(md5(CAST("dpsql_unit" AS TEXT)), '') || COALESCE(md5(CAST("dpsql_key_1" AS TEXT)), '')), "dpsql_key_1" ASC) AS "dpsql_rank" FROM (SELECT DISTINCT "dpsql_key_1", "dpsql_unit" FROM (SELECT "dpsql_key_1", "dpsql_unit" FROM "dpsql_rows") AS "dpsql_rows_156") AS "dpsql_rows_148") AS "dpsql_rows_106" WHERE "dpsql_rank" <= 1) AS "dpsql_own" USING ("dpsql_key_1", "dpsql_unit")) AS "dpsql_rows_85") AS "dpsql_rows_35" WHERE "dpsql_rank" <= 2) AS "dpsql_rows_31" GROUP BY "dpsql_key_1", "dpsql_key_2" HAVING SUM("dpsql_part_1") > 0) AS "dpsql_counted" JOIN "dpsql_partitions" USING ("dpsql_key_1")) AS "dpsql_rows_3" ORDER BY "dpsql_key_1" ASC, "dpsql_key_2" ASC
-- ['DE', 'FR', 'de', '9e3779b97f4a7c15c2b2ae3d27d4eb4f', '9e3779b97f4a7c15c2b2ae3d27d4eb4f']
