-- Eight tiles of a dashboard, in plain SQL. The policy has [sql] implicit = true, so each is read as private.

-- total: visitors and page views
SELECT COUNT(DISTINCT user_id) AS visitors, COUNT(*) AS views FROM visits;

-- ranking: the areas that most visitors see
SELECT area, COUNT(DISTINCT user_id) AS visitors FROM visits GROUP BY area ORDER BY visitors DESC LIMIT 10;

-- ranking by rows: where most page views are, by the first letter of the area
SELECT substr(area, 2, 1) AS letter, COUNT(*) AS views FROM visits GROUP BY letter ORDER BY views DESC LIMIT 5;

-- series: visitors by the number of areas that they see
SELECT CASE WHEN areas = 1 THEN '1' WHEN areas <= 3 THEN '2 to 3' WHEN areas <= 9 THEN '4 to 9' ELSE 'more' END AS seen,
       COUNT(DISTINCT user_id) AS visitors
FROM (SELECT user_id, COUNT(*) AS areas FROM visits GROUP BY user_id) AS visitors_areas
GROUP BY seen ORDER BY seen;

-- share: how many of the visitors need support
SELECT ROUND(100.0 * needing / visitors, 1) AS percent, needing, visitors
FROM (SELECT COUNT(DISTINCT user_id) FILTER (WHERE area = '/support') AS needing,
             COUNT(DISTINCT user_id) AS visitors FROM visits) AS totals;

-- top of each: the first three areas of each half of the visitors, as in an A/B test
SELECT half, area, visitors
FROM (SELECT CASE WHEN user_id % 2 = 0 THEN 'A' ELSE 'B' END AS half, area, COUNT(DISTINCT user_id) AS visitors
      FROM visits GROUP BY half, area ORDER BY visitors DESC LIMIT 10) AS pairs
QUALIFY row_number() OVER (PARTITION BY half ORDER BY visitors DESC) <= 3 ORDER BY half, visitors DESC;

-- comparison: the same areas in both halves, and how they differ
SELECT area, train, test, train / NULLIF(test, 0)::DOUBLE AS ratio
FROM (SELECT area, COUNT(DISTINCT user_id) FILTER (WHERE split = 'train') AS train,
             COUNT(DISTINCT user_id) FILTER (WHERE split = 'test') AS test
      FROM visits GROUP BY area ORDER BY train DESC LIMIT 5) AS halves;

-- table: with the ends of the 95 % intervals
SELECT area, COUNT(DISTINCT user_id) AS visitors, value_low(visitors) AS low, value_high(visitors) AS high
FROM visits WHERE split = 'test' GROUP BY area ORDER BY visitors DESC LIMIT 5;
