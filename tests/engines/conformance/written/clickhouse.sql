# leading_country
SELECT "dpsql_key_1", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT CAST("t1"."country" AS Nullable(String)) AS "dpsql_key_1", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" WHERE (NOT ("t1"."user_id" IS NULL))) AS "dpsql_rows_16" GROUP BY "dpsql_key_1" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC LIMIT 3
-- []

# ties_at_the_cut
SELECT "dpsql_key_1", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT CAST("t1"."article" AS Nullable(String)) AS "dpsql_key_1", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" WHERE (NOT ("t1"."user_id" IS NULL))) AS "dpsql_rows_16" GROUP BY "dpsql_key_1" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC LIMIT 12
-- []

# filter_text_in
SELECT "dpsql_key_1", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT CAST("t1"."country" AS Nullable(String)) AS "dpsql_key_1", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" WHERE ((CAST("t1"."country" AS Nullable(String)) = CAST({p1:Nullable(String)} AS Nullable(String))) OR (CAST("t1"."country" AS Nullable(String)) = CAST({p2:Nullable(String)} AS Nullable(String))) OR (CAST("t1"."country" AS Nullable(String)) = CAST({p3:Nullable(String)} AS Nullable(String))) OR (CAST("t1"."country" AS Nullable(String)) = CAST({p4:Nullable(String)} AS Nullable(String)))) AND (NOT ("t1"."user_id" IS NULL))) AS "dpsql_rows_16" GROUP BY "dpsql_key_1" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC LIMIT 1000
-- ['DE', 'de ', 'Ö', '']

# filter_is_not_distinct_double
SELECT "dpsql_key_1", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT CAST("t1"."country" AS Nullable(String)) AS "dpsql_key_1", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" WHERE COALESCE((bitXor(reinterpretAsInt64(if(isNaN("t1"."price"), nan, "t1"."price" + 0)), bitAnd(bitShiftRight(reinterpretAsInt64(if(isNaN("t1"."price"), nan, "t1"."price" + 0)), 63), 9223372036854775807)) = bitXor(reinterpretAsInt64(if(isNaN(toFloat64("t1"."ratio")), nan, toFloat64("t1"."ratio") + 0)), bitAnd(bitShiftRight(reinterpretAsInt64(if(isNaN(toFloat64("t1"."ratio")), nan, toFloat64("t1"."ratio") + 0)), 63), 9223372036854775807))), "t1"."price" IS NULL AND toFloat64("t1"."ratio") IS NULL) AND (NOT ("t1"."user_id" IS NULL))) AS "dpsql_rows_16" GROUP BY "dpsql_key_1" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC LIMIT 1000
-- []

# filter_and_or_not
SELECT "dpsql_key_1", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT CAST("t1"."country" AS Nullable(String)) AS "dpsql_key_1", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" WHERE (NOT (("t1"."n" > CAST({p1:Nullable(String)} AS Nullable(Int32))) AND ((bitXor(reinterpretAsInt64(if(isNaN("t1"."price"), nan, "t1"."price" + 0)), bitAnd(bitShiftRight(reinterpretAsInt64(if(isNaN("t1"."price"), nan, "t1"."price" + 0)), 63), 9223372036854775807)) < bitXor(reinterpretAsInt64(if(isNaN(CAST({p2:Nullable(String)} AS Nullable(Float64))), nan, CAST({p2:Nullable(String)} AS Nullable(Float64)) + 0)), bitAnd(bitShiftRight(reinterpretAsInt64(if(isNaN(CAST({p2:Nullable(String)} AS Nullable(Float64))), nan, CAST({p2:Nullable(String)} AS Nullable(Float64)) + 0)), 63), 9223372036854775807))) OR (CAST("t1"."article" AS Nullable(String)) = CAST({p3:Nullable(String)} AS Nullable(String)))))) AND (NOT ("t1"."user_id" IS NULL))) AS "dpsql_rows_16" GROUP BY "dpsql_key_1" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC LIMIT 1000
-- [0, 1.0, 'A']

# filter_date
SELECT "dpsql_key_1", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT CAST("t1"."day" AS Nullable(Date32)) AS "dpsql_key_1", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" WHERE (CAST("t1"."day" AS Nullable(Date32)) >= CAST({p1:Nullable(String)} AS Nullable(Date32))) AND (NOT ("t1"."user_id" IS NULL))) AS "dpsql_rows_16" GROUP BY "dpsql_key_1" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC LIMIT 1000
-- ['2026-01-01']

# key_case
SELECT "dpsql_key_1", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT (CASE WHEN (bitXor(reinterpretAsInt64(if(isNaN("t1"."price"), nan, "t1"."price" + 0)), bitAnd(bitShiftRight(reinterpretAsInt64(if(isNaN("t1"."price"), nan, "t1"."price" + 0)), 63), 9223372036854775807)) > bitXor(reinterpretAsInt64(if(isNaN(CAST({p1:Nullable(String)} AS Nullable(Float64))), nan, CAST({p1:Nullable(String)} AS Nullable(Float64)) + 0)), bitAnd(bitShiftRight(reinterpretAsInt64(if(isNaN(CAST({p1:Nullable(String)} AS Nullable(Float64))), nan, CAST({p1:Nullable(String)} AS Nullable(Float64)) + 0)), 63), 9223372036854775807))) THEN CAST({p2:Nullable(String)} AS Nullable(String)) WHEN (bitXor(reinterpretAsInt64(if(isNaN("t1"."price"), nan, "t1"."price" + 0)), bitAnd(bitShiftRight(reinterpretAsInt64(if(isNaN("t1"."price"), nan, "t1"."price" + 0)), 63), 9223372036854775807)) > bitXor(reinterpretAsInt64(if(isNaN(CAST({p3:Nullable(String)} AS Nullable(Float64))), nan, CAST({p3:Nullable(String)} AS Nullable(Float64)) + 0)), bitAnd(bitShiftRight(reinterpretAsInt64(if(isNaN(CAST({p3:Nullable(String)} AS Nullable(Float64))), nan, CAST({p3:Nullable(String)} AS Nullable(Float64)) + 0)), 63), 9223372036854775807))) THEN CAST({p4:Nullable(String)} AS Nullable(String)) WHEN ("t1"."price" IS NULL) THEN CAST({p5:Nullable(String)} AS Nullable(String)) ELSE CAST({p6:Nullable(String)} AS Nullable(String)) END) AS "dpsql_key_1", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" WHERE (NOT ("t1"."user_id" IS NULL))) AS "dpsql_rows_16" GROUP BY "dpsql_key_1" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC LIMIT 1000
-- [100.0, 'dear', 1.0, 'fair', None, 'cheap']

# sum_of_integers
SELECT "dpsql_key_1", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT accurateCastOrNull(toInt128("t1"."n") + toInt128(CAST({p1:Nullable(String)} AS Nullable(Int32))), 'Nullable(Int32)') AS "dpsql_key_1", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" WHERE (NOT ("t1"."user_id" IS NULL))) AS "dpsql_rows_16" GROUP BY "dpsql_key_1" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC LIMIT 1000
-- [1]

# text_like
lacking

# join_public_left
SELECT "dpsql_key_1", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT CAST("t2"."continent" AS Nullable(String)) AS "dpsql_key_1", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" LEFT JOIN "shop"."countries" AS "t2" ON (CAST("t1"."country" AS Nullable(String)) = CAST("t2"."country" AS Nullable(String))) WHERE (NOT ("t1"."user_id" IS NULL))) AS "dpsql_rows_16" GROUP BY "dpsql_key_1" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC LIMIT 1000
-- []

# join_public_full
SELECT "dpsql_key_1", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT CAST("t2"."continent" AS Nullable(String)) AS "dpsql_key_1", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" LEFT JOIN "shop"."countries" AS "t2" ON (CAST("t1"."country" AS Nullable(String)) = CAST("t2"."country" AS Nullable(String))) WHERE (NOT ("t1"."user_id" IS NULL))) AS "dpsql_rows_16" GROUP BY "dpsql_key_1" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC LIMIT 1000
-- []

# join_private_semi
SELECT "dpsql_key_1", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT CAST("t1"."country" AS Nullable(String)) AS "dpsql_key_1", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" SEMI JOIN "shop"."likes" AS "t2" ON (("t1"."user_id" = "t2"."user_id") AND (CAST("t1"."article" AS Nullable(String)) = CAST("t2"."article" AS Nullable(String)))) WHERE (NOT ("t1"."user_id" IS NULL))) AS "dpsql_rows_16" GROUP BY "dpsql_key_1" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC LIMIT 1000
-- []

# join_private_with_itself
SELECT "dpsql_key_1", "dpsql_key_2", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT CAST("t1"."country" AS Nullable(String)) AS "dpsql_key_1", CAST("t2"."country" AS Nullable(String)) AS "dpsql_key_2", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" INNER JOIN "shop"."reads" AS "t2" ON (("t1"."user_id" = "t2"."user_id") AND ("t1"."id" < "t2"."id")) WHERE (NOT ("t1"."user_id" IS NULL))) AS "dpsql_rows_18" GROUP BY "dpsql_key_1", "dpsql_key_2" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC, "dpsql_key_2" ASC LIMIT 1000
-- []

# link
SELECT "dpsql_key_1", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT CAST("t1"."word" AS Nullable(String)) AS "dpsql_key_1", "t1001"."c2" AS "dpsql_unit" FROM "shop"."comments" AS "t1" INNER JOIN (SELECT "t1002"."id" AS "c1", MIN("t1002"."user_id") AS "c2" FROM "shop"."reads" AS "t1002" GROUP BY 1) AS "t1001" ON ("t1"."read_id" = "t1001"."c1") WHERE (NOT ("t1001"."c2" IS NULL))) AS "dpsql_rows_16" GROUP BY "dpsql_key_1" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC LIMIT 1000
-- []

# not_in_private
SELECT "dpsql_key_1", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT CAST("t1"."article" AS Nullable(String)) AS "dpsql_key_1", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" WHERE (NOT multiIf("t1"."user_id" IN (SELECT "t2"."c1" AS "c1" FROM (SELECT "t3"."user_id" AS "c1" FROM "shop"."likes" AS "t3" WHERE ("t3"."stars" = CAST({p1:Nullable(String)} AS Nullable(Int16)))) AS "t2" WHERE (NOT ("t2"."c1" IS NULL))), true, EXISTS (SELECT 1 FROM (SELECT "t2"."c1" AS "c1" FROM (SELECT "t3"."user_id" AS "c1" FROM "shop"."likes" AS "t3" WHERE ("t3"."stars" = CAST({p1:Nullable(String)} AS Nullable(Int16)))) AS "t2" WHERE (NOT ("t2"."c1" IS NULL))) WHERE c1 IS NULL) OR ("t1"."user_id" IS NULL AND EXISTS (SELECT 1 FROM (SELECT "t2"."c1" AS "c1" FROM (SELECT "t3"."user_id" AS "c1" FROM "shop"."likes" AS "t3" WHERE ("t3"."stars" = CAST({p1:Nullable(String)} AS Nullable(Int16)))) AS "t2" WHERE (NOT ("t2"."c1" IS NULL))))), NULL, false)) AND (NOT ("t1"."user_id" IS NULL))) AS "dpsql_rows_16" GROUP BY "dpsql_key_1" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC LIMIT 1000
-- [5]

# exists_private
lacking

# union
lacking

# except
SELECT "dpsql_key_1", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT CAST("t1"."c2" AS Nullable(String)) AS "dpsql_key_1", "t1"."c1" AS "dpsql_unit" FROM (SELECT "t401"."c1" AS "c1", CAST("t401"."c2" AS Nullable(String)) AS "c2" FROM ((SELECT "t2"."user_id" AS "c1", CAST("t2"."article" AS Nullable(String)) AS "c2" FROM "shop"."reads" AS "t2" WHERE ("t2"."n" > CAST({p1:Nullable(String)} AS Nullable(Int32)))) EXCEPT DISTINCT (SELECT "t4"."user_id" AS "c1", CAST("t4"."article" AS Nullable(String)) AS "c2" FROM "shop"."reads" AS "t4" WHERE ("t4"."n" < CAST({p2:Nullable(String)} AS Nullable(Int32))))) AS "t401") AS "t1" WHERE (NOT ("t1"."c1" IS NULL))) AS "dpsql_rows_16" GROUP BY "dpsql_key_1" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC LIMIT 1000
-- [0, 0]

# unnest
SELECT "dpsql_key_1", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT (CASE WHEN ("t2"."c1" = CAST({p1:Nullable(String)} AS Nullable(Int32))) THEN CAST("t1"."country" AS Nullable(String)) WHEN ("t2"."c1" = CAST({p2:Nullable(String)} AS Nullable(Int32))) THEN CAST("t1"."article" AS Nullable(String)) END) AS "dpsql_key_1", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" CROSS JOIN (SELECT 1 AS "c1" UNION ALL SELECT 2) AS "t2" WHERE (NOT ("t1"."user_id" IS NULL))) AS "dpsql_rows_16" GROUP BY "dpsql_key_1" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC LIMIT 1000
-- [1, 2]

# unit_and_key
SELECT "dpsql_key_1", "dpsql_key_2", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT CAST("t1"."c2" AS Nullable(String)) AS "dpsql_key_1", "t1"."c3" AS "dpsql_key_2", "t1"."c1" AS "dpsql_unit" FROM (SELECT "t101"."c1" AS "c1", CAST("t101"."c2" AS Nullable(String)) AS "c2", "t101"."c3" AS "c3" FROM (SELECT "t2"."user_id" AS "c1", CAST("t2"."country" AS Nullable(String)) AS "c2", COUNT(*) AS "c3" FROM "shop"."reads" AS "t2" GROUP BY 1, 2) AS "t101") AS "t1" WHERE (NOT ("t1"."c1" IS NULL))) AS "dpsql_rows_18" GROUP BY "dpsql_key_1", "dpsql_key_2" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC, "dpsql_key_2" ASC LIMIT 1000
-- []

# unit_sum_of_decimals
lacking

# window_first
SELECT "dpsql_key_1", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT CAST("t1"."c2" AS Nullable(String)) AS "dpsql_key_1", "t1"."c1" AS "dpsql_unit" FROM (SELECT "t101"."c1" AS "c1", CAST("t101"."c2" AS Nullable(String)) AS "c2" FROM (SELECT "t2"."user_id" AS "c1", CAST("t2"."article" AS Nullable(String)) AS "c2", ROW_NUMBER() OVER (PARTITION BY "t2"."user_id" ORDER BY CAST("t2"."moment" AS Nullable(DateTime64(6, 'UTC'))) ASC, CAST("t2"."article" AS Nullable(String)) ASC, CAST("t2"."moment" AS Nullable(DateTime64(6, 'UTC'))) ASC, "t2"."user_id" ASC) AS "c3" FROM "shop"."reads" AS "t2") AS "t101" WHERE ("t101"."c3" = CAST({p1:Nullable(String)} AS Nullable(Int64)))) AS "t1" WHERE (NOT ("t1"."c1" IS NULL))) AS "dpsql_rows_16" GROUP BY "dpsql_key_1" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC LIMIT 1000
-- [1]

# window_sums
lacking

# domain_listed
WITH "dpsql_domain" AS (SELECT DISTINCT "dpsql_key_1" FROM (SELECT "dpsql_key_1" FROM (SELECT CAST({p1:Nullable(String)} AS Nullable(String)) AS "dpsql_key_1" UNION ALL SELECT CAST({p2:Nullable(String)} AS Nullable(String)) UNION ALL SELECT CAST({p3:Nullable(String)} AS Nullable(String)) UNION ALL SELECT CAST({p4:Nullable(String)} AS Nullable(String))) AS "dpsql_listed") AS "dpsql_rows_103" WHERE NOT ("dpsql_key_1" IS NULL)) SELECT "dpsql_domain"."dpsql_key_1" AS "dpsql_key_1", COALESCE("dpsql_count", 0) AS "dpsql_count" FROM "dpsql_domain" LEFT JOIN (SELECT "dpsql_key_1", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT "dpsql_key_1", "dpsql_unit" FROM (SELECT CAST("t1"."country" AS Nullable(String)) AS "dpsql_key_1", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" WHERE (NOT ("t1"."user_id" IS NULL))) AS "dpsql_rows_38" WHERE "dpsql_key_1" IN (SELECT "dpsql_key_1" FROM "dpsql_domain")) AS "dpsql_rows_31" GROUP BY "dpsql_key_1") AS "dpsql_counted" ON "dpsql_domain"."dpsql_key_1" = "dpsql_counted"."dpsql_key_1" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC
-- ['DE', 'FR', 'de ', 'nowhere']

# domain_stored
WITH "dpsql_domain" AS (SELECT DISTINCT "dpsql_key_1" FROM (SELECT CAST("t0"."country" AS Nullable(String)) AS "dpsql_key_1" FROM "shop"."countries" AS "t0") AS "dpsql_rows_103" WHERE NOT ("dpsql_key_1" IS NULL)) SELECT "dpsql_domain"."dpsql_key_1" AS "dpsql_key_1", COALESCE("dpsql_count", 0) AS "dpsql_count" FROM "dpsql_domain" LEFT JOIN (SELECT "dpsql_key_1", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT "dpsql_key_1", "dpsql_unit" FROM (SELECT CAST("t1"."country" AS Nullable(String)) AS "dpsql_key_1", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" WHERE (NOT ("t1"."user_id" IS NULL))) AS "dpsql_rows_38" WHERE "dpsql_key_1" IN (SELECT "dpsql_key_1" FROM "dpsql_domain")) AS "dpsql_rows_31" GROUP BY "dpsql_key_1") AS "dpsql_counted" ON "dpsql_domain"."dpsql_key_1" = "dpsql_counted"."dpsql_key_1" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC
-- []

# per
WITH "dpsql_partitions" AS (SELECT * FROM (SELECT CAST({p1:Nullable(String)} AS Nullable(Bool)) AS "dpsql_key_1", CAST(0 AS Nullable(Int64)) AS "dpsql_position" UNION ALL SELECT CAST({p2:Nullable(String)} AS Nullable(Bool)), CAST(1 AS Nullable(Int64))) AS "dpsql_listed") SELECT "dpsql_key_1", "dpsql_key_2", "dpsql_count", "dpsql_position" FROM (SELECT "dpsql_key_1", "dpsql_key_2", "dpsql_count", "dpsql_position", ROW_NUMBER() OVER (PARTITION BY "dpsql_position" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC, "dpsql_key_2" ASC) AS "dpsql_rank" FROM (SELECT "dpsql_counted".*, "dpsql_position" FROM (SELECT "dpsql_key_1", "dpsql_key_2", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT "dpsql_key_1", "dpsql_key_2", "dpsql_unit" FROM (SELECT "t1"."flag" AS "dpsql_key_1", CAST("t1"."country" AS Nullable(String)) AS "dpsql_key_2", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" WHERE (NOT ("t1"."user_id" IS NULL))) AS "dpsql_rows_75" WHERE "dpsql_key_1" IN (SELECT "dpsql_key_1" FROM "dpsql_partitions")) AS "dpsql_rows_66" GROUP BY "dpsql_key_1", "dpsql_key_2") AS "dpsql_counted" JOIN "dpsql_partitions" USING ("dpsql_key_1")) AS "dpsql_rows_41") AS "dpsql_rows_10" WHERE "dpsql_rank" <= 3 ORDER BY "dpsql_position", "dpsql_count" DESC, "dpsql_key_1" ASC, "dpsql_key_2" ASC
-- [False, True]

# per_one_each
WITH "dpsql_partitions" AS (SELECT * FROM (SELECT CAST({p1:Nullable(String)} AS Nullable(String)) AS "dpsql_key_1", CAST(0 AS Nullable(Int64)) AS "dpsql_position" UNION ALL SELECT CAST({p2:Nullable(String)} AS Nullable(String)), CAST(1 AS Nullable(Int64)) UNION ALL SELECT CAST({p3:Nullable(String)} AS Nullable(String)), CAST(2 AS Nullable(Int64))) AS "dpsql_listed"), "dpsql_rows" AS (SELECT DISTINCT "dpsql_key_1", "dpsql_key_2", "dpsql_unit" FROM (SELECT "dpsql_key_1", "dpsql_key_2", "dpsql_unit" FROM (SELECT CAST("t1"."country" AS Nullable(String)) AS "dpsql_key_1", CAST("t1"."article" AS Nullable(String)) AS "dpsql_key_2", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" WHERE (NOT ("t1"."user_id" IS NULL))) AS "dpsql_rows_247" WHERE "dpsql_key_1" IN (SELECT "dpsql_key_1" FROM "dpsql_partitions")) AS "dpsql_rows_238") SELECT "dpsql_key_1", "dpsql_key_2", "dpsql_count", "dpsql_position" FROM (SELECT "dpsql_key_1", "dpsql_key_2", "dpsql_count", "dpsql_position", ROW_NUMBER() OVER (PARTITION BY "dpsql_position" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC, "dpsql_key_2" ASC) AS "dpsql_rank" FROM (SELECT "dpsql_counted".*, "dpsql_position" FROM (SELECT "dpsql_key_1", "dpsql_key_2", COUNT(DISTINCT "dpsql_unit") AS "dpsql_count" FROM (SELECT "dpsql_key_1", "dpsql_key_2", "dpsql_unit" FROM "dpsql_rows" INNER JOIN (SELECT "dpsql_key_1", "dpsql_unit" FROM (SELECT "dpsql_key_1", "dpsql_unit", ROW_NUMBER() OVER (PARTITION BY "dpsql_unit" ORDER BY "dpsql_draw", "dpsql_key_1" ASC) AS "dpsql_rank" FROM (SELECT "dpsql_key_1", "dpsql_unit", sipHash64(COALESCE(sipHash64(CAST({p4:Nullable(String)} AS Nullable(Int64)), "dpsql_key_1"), sipHash64(CAST({p5:Nullable(String)} AS Nullable(Int64)), '')), sipHash64(CAST({p5:Nullable(String)} AS Nullable(Int64)), "dpsql_unit")) AS "dpsql_draw" FROM (SELECT DISTINCT "dpsql_key_1", "dpsql_unit" FROM (SELECT "dpsql_key_1", "dpsql_unit" FROM "dpsql_rows") AS "dpsql_rows_145") AS "dpsql_rows_137") AS "dpsql_rows_109") AS "dpsql_rows_85" WHERE "dpsql_rank" <= 1) AS "dpsql_own" USING ("dpsql_key_1", "dpsql_unit")) AS "dpsql_rows_66" GROUP BY "dpsql_key_1", "dpsql_key_2") AS "dpsql_counted" JOIN "dpsql_partitions" USING ("dpsql_key_1")) AS "dpsql_rows_41") AS "dpsql_rows_10" WHERE "dpsql_rank" <= 4 ORDER BY "dpsql_position", "dpsql_count" DESC, "dpsql_key_1" ASC, "dpsql_key_2" ASC
-- ['DE', 'FR', 'US', -7046029254386353131, -4417276706812531889]

# bound_one
SELECT "dpsql_key_1", COUNT(*) AS "dpsql_count" FROM (SELECT "dpsql_key_1", "dpsql_unit" FROM (SELECT "dpsql_key_1", "dpsql_unit", ROW_NUMBER() OVER (PARTITION BY "dpsql_unit" ORDER BY "dpsql_draw", "dpsql_key_1" ASC) AS "dpsql_rank" FROM (SELECT "dpsql_key_1", "dpsql_unit", sipHash64(COALESCE(sipHash64(CAST({p1:Nullable(String)} AS Nullable(Int64)), "dpsql_key_1"), sipHash64(CAST({p2:Nullable(String)} AS Nullable(Int64)), '')), sipHash64(CAST({p2:Nullable(String)} AS Nullable(Int64)), "dpsql_unit")) AS "dpsql_draw" FROM (SELECT DISTINCT "dpsql_key_1", "dpsql_unit" FROM (SELECT CAST("t1"."article" AS Nullable(String)) AS "dpsql_key_1", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" WHERE (NOT ("t1"."user_id" IS NULL))) AS "dpsql_rows_80") AS "dpsql_rows_72") AS "dpsql_rows_44") AS "dpsql_rows_20" WHERE "dpsql_rank" <= 1) AS "dpsql_rows_13" GROUP BY "dpsql_key_1" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC LIMIT 1000
-- [-7046029254386353131, -4417276706812531889]

# bound_five
SELECT "dpsql_key_1", "dpsql_key_2", COUNT(*) AS "dpsql_count" FROM (SELECT "dpsql_key_1", "dpsql_key_2", "dpsql_unit" FROM (SELECT "dpsql_key_1", "dpsql_key_2", "dpsql_unit", ROW_NUMBER() OVER (PARTITION BY "dpsql_unit" ORDER BY "dpsql_draw", "dpsql_key_1" ASC, "dpsql_key_2" ASC) AS "dpsql_rank" FROM (SELECT "dpsql_key_1", "dpsql_key_2", "dpsql_unit", sipHash64(sipHash64(COALESCE(sipHash64(CAST({p1:Nullable(String)} AS Nullable(Int64)), "dpsql_key_1"), sipHash64(CAST({p2:Nullable(String)} AS Nullable(Int64)), '')), COALESCE(sipHash64(CAST({p1:Nullable(String)} AS Nullable(Int64)), "dpsql_key_2"), sipHash64(CAST({p2:Nullable(String)} AS Nullable(Int64)), ''))), sipHash64(CAST({p2:Nullable(String)} AS Nullable(Int64)), "dpsql_unit")) AS "dpsql_draw" FROM (SELECT DISTINCT "dpsql_key_1", "dpsql_key_2", "dpsql_unit" FROM (SELECT CAST("t1"."article" AS Nullable(String)) AS "dpsql_key_1", CAST("t1"."country" AS Nullable(String)) AS "dpsql_key_2", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" WHERE (NOT ("t1"."user_id" IS NULL))) AS "dpsql_rows_106") AS "dpsql_rows_96") AS "dpsql_rows_53") AS "dpsql_rows_24" WHERE "dpsql_rank" <= 5) AS "dpsql_rows_15" GROUP BY "dpsql_key_1", "dpsql_key_2" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC, "dpsql_key_2" ASC LIMIT 1000
-- [-7046029254386353131, -4417276706812531889]

# bound_twenty_by_label
SELECT * FROM (SELECT "dpsql_key_1", "dpsql_key_2", COUNT(*) AS "dpsql_count" FROM (SELECT "dpsql_key_1", "dpsql_key_2", "dpsql_unit" FROM (SELECT "dpsql_key_1", "dpsql_key_2", "dpsql_unit", ROW_NUMBER() OVER (PARTITION BY "dpsql_unit" ORDER BY "dpsql_draw", "dpsql_key_1" ASC, "dpsql_key_2" ASC) AS "dpsql_rank" FROM (SELECT "dpsql_key_1", "dpsql_key_2", "dpsql_unit", sipHash64(sipHash64(COALESCE(sipHash64(CAST({p1:Nullable(String)} AS Nullable(Int64)), "dpsql_key_1"), sipHash64(CAST({p2:Nullable(String)} AS Nullable(Int64)), '')), COALESCE(sipHash64(CAST({p1:Nullable(String)} AS Nullable(Int64)), "dpsql_key_2"), sipHash64(CAST({p2:Nullable(String)} AS Nullable(Int64)), ''))), sipHash64(CAST({p2:Nullable(String)} AS Nullable(Int64)), "dpsql_unit")) AS "dpsql_draw" FROM (SELECT DISTINCT "dpsql_key_1", "dpsql_key_2", "dpsql_unit" FROM (SELECT CAST("t1"."article" AS Nullable(String)) AS "dpsql_key_1", "t1"."n" AS "dpsql_key_2", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" WHERE (NOT ("t1"."user_id" IS NULL))) AS "dpsql_rows_110") AS "dpsql_rows_100") AS "dpsql_rows_57") AS "dpsql_rows_28" WHERE "dpsql_rank" <= 20) AS "dpsql_rows_19" GROUP BY "dpsql_key_1", "dpsql_key_2" ORDER BY "dpsql_count" DESC, "dpsql_key_1" ASC, "dpsql_key_2" ASC LIMIT 1000) AS "dpsql_rows_3" ORDER BY "dpsql_key_1" ASC, "dpsql_key_2" ASC
-- [-7046029254386353131, -4417276706812531889]

# weighted
SELECT "dpsql_key_1", COUNT(*) AS "dpsql_count", CAST(SUM("dpsql_weight") AS Nullable(Int64)) AS "dpsql_weight" FROM (SELECT "dpsql_key_1", [1048576, 741455, 605396, 524288, 468937][LEAST("dpsql_groups", 5)] AS "dpsql_weight" FROM (SELECT *, COUNT(*) OVER (PARTITION BY "dpsql_unit") AS "dpsql_groups" FROM (SELECT "dpsql_key_1", "dpsql_unit", ROW_NUMBER() OVER (PARTITION BY "dpsql_unit" ORDER BY "dpsql_draw", "dpsql_key_1" ASC) AS "dpsql_rank" FROM (SELECT "dpsql_key_1", "dpsql_unit", sipHash64(COALESCE(sipHash64(CAST({p1:Nullable(String)} AS Nullable(Int64)), "dpsql_key_1"), sipHash64(CAST({p2:Nullable(String)} AS Nullable(Int64)), '')), sipHash64(CAST({p2:Nullable(String)} AS Nullable(Int64)), "dpsql_unit")) AS "dpsql_draw" FROM (SELECT DISTINCT "dpsql_key_1", "dpsql_unit" FROM (SELECT CAST("t1"."article" AS Nullable(String)) AS "dpsql_key_1", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" WHERE (NOT ("t1"."user_id" IS NULL))) AS "dpsql_rows_117") AS "dpsql_rows_109") AS "dpsql_rows_81") AS "dpsql_rows_57") AS "dpsql_rows_43" WHERE "dpsql_rank" <= 5) AS "dpsql_rows_22" GROUP BY "dpsql_key_1" HAVING SUM("dpsql_weight") > 0 ORDER BY "dpsql_key_1" ASC
-- [-7046029254386353131, -4417276706812531889]

# weighted_of_all
SELECT "dpsql_key_1", COUNT(*) AS "dpsql_count", CAST(SUM("dpsql_weight") AS Nullable(Int64)) AS "dpsql_weight" FROM (SELECT "dpsql_key_1", CASE WHEN "dpsql_rank" <= 3 THEN [1048576, 741455, 605396][LEAST("dpsql_groups", 3)] ELSE 0 END AS "dpsql_weight" FROM (SELECT *, COUNT(*) OVER (PARTITION BY "dpsql_unit") AS "dpsql_groups" FROM (SELECT "dpsql_key_1", "dpsql_unit", ROW_NUMBER() OVER (PARTITION BY "dpsql_unit" ORDER BY "dpsql_draw", "dpsql_key_1" ASC) AS "dpsql_rank" FROM (SELECT "dpsql_key_1", "dpsql_unit", sipHash64(COALESCE(sipHash64(CAST({p1:Nullable(String)} AS Nullable(Int64)), "dpsql_key_1"), sipHash64(CAST({p2:Nullable(String)} AS Nullable(Int64)), '')), sipHash64(CAST({p2:Nullable(String)} AS Nullable(Int64)), "dpsql_unit")) AS "dpsql_draw" FROM (SELECT DISTINCT "dpsql_key_1", "dpsql_unit" FROM (SELECT CAST("t1"."country" AS Nullable(String)) AS "dpsql_key_1", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" WHERE (NOT ("t1"."user_id" IS NULL))) AS "dpsql_rows_122") AS "dpsql_rows_114") AS "dpsql_rows_86") AS "dpsql_rows_62") AS "dpsql_rows_48") AS "dpsql_rows_22" GROUP BY "dpsql_key_1" HAVING SUM("dpsql_weight") > 0 ORDER BY "dpsql_key_1" ASC
-- [-7046029254386353131, -4417276706812531889]

# public_order
SELECT CAST("t1"."country" AS Nullable(String)) AS "c1", "t1"."people" AS "c2" FROM "shop"."countries" AS "t1" ORDER BY 2 DESC, 1 ASC NULLS FIRST LIMIT 5 OFFSET 0
-- []

# public_groups
SELECT CAST("t0"."c1" AS Nullable(String)) AS "c1", "t0"."c2" AS "c2", "t0"."c3" AS "c3", "t0"."c4" AS "c4" FROM (SELECT CAST("t1"."continent" AS Nullable(String)) AS "c1", COUNT(*) AS "c2", COUNT(DISTINCT CAST("t1"."country" AS Nullable(String))) AS "c3", MAX("t1"."people") AS "c4" FROM "shop"."countries" AS "t1" GROUP BY 1) AS "t0" ORDER BY 1 ASC LIMIT 1000 OFFSET 0
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
WITH "dpsql_partitions" AS (SELECT * FROM (SELECT CAST({p1:Nullable(String)} AS Nullable(String)) AS "dpsql_key_1", CAST(0 AS Nullable(Int64)) AS "dpsql_position" UNION ALL SELECT CAST({p2:Nullable(String)} AS Nullable(String)), CAST(1 AS Nullable(Int64)) UNION ALL SELECT CAST({p3:Nullable(String)} AS Nullable(String)), CAST(2 AS Nullable(Int64))) AS "dpsql_listed"), "dpsql_rows" AS (SELECT DISTINCT "dpsql_key_1", "dpsql_key_2", "dpsql_unit", "dpsql_part_1" FROM (SELECT "dpsql_key_1", "dpsql_key_2", "dpsql_unit", "dpsql_part_1" FROM (SELECT "dpsql_key_1", "dpsql_key_2", "dpsql_unit", CAST(LEAST(GREATEST(COUNT(*), 0), 3) AS Nullable(Int64)) AS "dpsql_part_1" FROM (SELECT CAST("t1"."country" AS Nullable(String)) AS "dpsql_key_1", "t1"."n" AS "dpsql_key_2", "t1"."user_id" AS "dpsql_unit" FROM "shop"."reads" AS "t1" WHERE (NOT ("t1"."user_id" IS NULL))) AS "dpsql_rows_318" GROUP BY "dpsql_key_1", "dpsql_key_2", "dpsql_unit") AS "dpsql_rows_288" WHERE "dpsql_key_1" IN (SELECT "dpsql_key_1" FROM "dpsql_partitions")) AS "dpsql_rows_277") SELECT * FROM (SELECT "dpsql_counted".*, "dpsql_position" FROM (SELECT "dpsql_key_1", "dpsql_key_2", COALESCE(CAST(SUM("dpsql_part_1") AS Nullable(Int64)), 0) AS "dpsql_measure_1" FROM (SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY "dpsql_unit" ORDER BY "dpsql_draw", "dpsql_key_1" ASC, "dpsql_key_2" ASC) AS "dpsql_rank" FROM (SELECT *, sipHash64(sipHash64(COALESCE(sipHash64(CAST({p6:Nullable(String)} AS Nullable(Int64)), "dpsql_key_1"), sipHash64(CAST({p7:Nullable(String)} AS Nullable(Int64)), '')), COALESCE(sipHash64(CAST({p6:Nullable(String)} AS Nullable(Int64)), "dpsql_key_2"), sipHash64(CAST({p7:Nullable(String)} AS Nullable(Int64)), ''))), sipHash64(CAST({p7:Nullable(String)} AS Nullable(Int64)), "dpsql_unit")) AS "dpsql_draw" FROM (SELECT "dpsql_key_1", "dpsql_key_2", "dpsql_unit", "dpsql_part_1" FROM "dpsql_rows" INNER JOIN (SELECT "dpsql_key_1", "dpsql_unit" FROM (SELECT "dpsql_key_1", "dpsql_unit", ROW_NUMBER() OVER (PARTITION BY "dpsql_unit" ORDER BY "dpsql_draw", "dpsql_key_1" ASC) AS "dpsql_rank" FROM (SELECT "dpsql_key_1", "dpsql_unit", sipHash64(COALESCE(sipHash64(CAST({p4:Nullable(String)} AS Nullable(Int64)), "dpsql_key_1"), sipHash64(CAST({p5:Nullable(String)} AS Nullable(Int64)), '')), sipHash64(CAST({p5:Nullable(String)} AS Nullable(Int64)), "dpsql_unit")) AS "dpsql_draw" FROM (SELECT DISTINCT "dpsql_key_1", "dpsql_unit" FROM (SELECT "dpsql_key_1", "dpsql_unit" FROM "dpsql_rows") AS "dpsql_rows_178") AS "dpsql_rows_170") AS "dpsql_rows_142") AS "dpsql_rows_118" WHERE "dpsql_rank" <= 1) AS "dpsql_own" USING ("dpsql_key_1", "dpsql_unit")) AS "dpsql_rows_97") AS "dpsql_rows_59") AS "dpsql_rows_35" WHERE "dpsql_rank" <= 2) AS "dpsql_rows_31" GROUP BY "dpsql_key_1", "dpsql_key_2" HAVING SUM("dpsql_part_1") > 0) AS "dpsql_counted" JOIN "dpsql_partitions" USING ("dpsql_key_1")) AS "dpsql_rows_3" ORDER BY "dpsql_key_1" ASC, "dpsql_key_2" ASC
-- ['DE', 'FR', 'de', -7046029254386353131, -4417276706812531889, -7046029254386353131, -4417276706812531889]
