-- Twelve tiles over four published tables, in the words of Superset: datasets in main, quoted metrics, a filter of times.
-- The last three columns of each are a number and the ends of its 95 % interval.

-- visitors: big number
SELECT
  SUM(visitors) AS "SUM(visitors)",
  SUM(visitors_low) AS "SUM(visitors_low)",
  SUM(visitors_high) AS "SUM(visitors_high)"
FROM main.totals
LIMIT 50000;

-- views: big number
SELECT
  SUM(views) AS "SUM(views)",
  SUM(views_low) AS "SUM(views_low)",
  SUM(views_high) AS "SUM(views_high)"
FROM main.totals
LIMIT 50000;

-- areas: bar chart
SELECT
  area AS area,
  SUM(visitors) AS "SUM(visitors)",
  SUM(visitors_low) AS "SUM(visitors_low)",
  SUM(visitors_high) AS "SUM(visitors_high)"
FROM main.areas
GROUP BY
  area
ORDER BY
  "SUM(visitors)" DESC
LIMIT 1000;

-- areas with s: pie chart with a filter
SELECT
  area AS area,
  SUM(visitors) AS "SUM(visitors)",
  SUM(visitors_low) AS "SUM(visitors_low)",
  SUM(visitors_high) AS "SUM(visitors_high)"
FROM main.areas
WHERE
  area ILIKE '/s%'
GROUP BY
  area
ORDER BY
  "SUM(visitors)" DESC
LIMIT 100;

-- days: line chart
SELECT
  DATE_TRUNC('day', day) AS day,
  SUM(visitors) AS "SUM(visitors)",
  SUM(visitors_low) AS "SUM(visitors_low)",
  SUM(visitors_high) AS "SUM(visitors_high)"
FROM main.days
WHERE
  day >= CAST('1998-02-02 00:00:00.000000' AS TIMESTAMP)
  AND day < CAST('1998-02-09 00:00:00.000000' AS TIMESTAMP)
GROUP BY
  DATE_TRUNC('day', day)
ORDER BY
  "SUM(visitors)" DESC
LIMIT 1000;

-- weekend: big number with a time range
SELECT
  SUM(visitors) AS "SUM(visitors)",
  SUM(visitors_low) AS "SUM(visitors_low)",
  SUM(visitors_high) AS "SUM(visitors_high)"
FROM main.days
WHERE
  day >= CAST('1998-02-07 00:00:00.000000' AS TIMESTAMP)
  AND day < CAST('1998-02-09 00:00:00.000000' AS TIMESTAMP)
LIMIT 50000;

-- weeks: bar chart by week
SELECT
  DATE_TRUNC('week', day) AS day,
  SUM(visitors) AS "SUM(visitors)",
  SUM(visitors_low) AS "SUM(visitors_low)",
  SUM(visitors_high) AS "SUM(visitors_high)"
FROM main.days
GROUP BY
  DATE_TRUNC('week', day)
ORDER BY
  "SUM(visitors)" DESC
LIMIT 1000;

-- areas by day: heat map
SELECT
  day AS day,
  area AS area,
  SUM(visitors) AS "SUM(visitors)",
  SUM(visitors_low) AS "SUM(visitors_low)",
  SUM(visitors_high) AS "SUM(visitors_high)"
FROM main.area_days
GROUP BY
  day,
  area
ORDER BY
  "SUM(visitors)" DESC
LIMIT 1000;

-- downloads by day: line chart with a filter
SELECT
  DATE_TRUNC('day', day) AS day,
  SUM(visitors) AS "SUM(visitors)",
  SUM(visitors_low) AS "SUM(visitors_low)",
  SUM(visitors_high) AS "SUM(visitors_high)"
FROM main.area_days
WHERE
  area = '/msdownload'
GROUP BY
  DATE_TRUNC('day', day)
ORDER BY
  "SUM(visitors)" DESC
LIMIT 1000;

-- busiest day of each area: table
SELECT
  area AS area,
  MAX(visitors) AS "MAX(visitors)",
  MAX(visitors_low) AS "MAX(visitors_low)",
  MAX(visitors_high) AS "MAX(visitors_high)"
FROM main.area_days
GROUP BY
  area
ORDER BY
  "MAX(visitors)" DESC
LIMIT 1000;

-- share of visitors: bar chart of a virtual dataset over two published tables
SELECT
  area AS area,
  MAX(percent) AS "MAX(percent)",
  MAX(percent_low) AS "MAX(percent_low)",
  MAX(percent_high) AS "MAX(percent_high)"
FROM (
  SELECT
    area,
    100.0 * a.visitors / t.visitors AS percent,
    100.0 * a.visitors_low / t.visitors_high AS percent_low,
    100.0 * a.visitors_high / t.visitors_low AS percent_high
  FROM areas AS a, totals AS t
) AS virtual_table
GROUP BY
  area
ORDER BY
  "MAX(percent)" DESC
LIMIT 1000;

-- topics: pie chart of a virtual dataset with a public table
SELECT
  topic AS topic,
  SUM(visitors) AS "SUM(visitors)",
  SUM(visitors_low) AS "SUM(visitors_low)",
  SUM(visitors_high) AS "SUM(visitors_high)"
FROM (
  SELECT
    topic,
    visitors,
    visitors_low,
    visitors_high
  FROM areas
  JOIN topics
    USING (area)
) AS virtual_table
GROUP BY
  topic
ORDER BY
  "SUM(visitors)" DESC
LIMIT 100;
