# types_before: all
SELECT a, b, c, d, e, f, g FROM (
SELECT user_id, lag(flag) OVER (PARTITION BY user_id ORDER BY id) AS a,
lag(n, 2) OVER (PARTITION BY user_id ORDER BY id) AS b, lead(amount) OVER (PARTITION BY user_id ORDER BY id) AS c,
lead(price, 1) OVER (PARTITION BY user_id ORDER BY id) AS d, lag(ratio) OVER (PARTITION BY user_id ORDER BY id) AS e,
lag(day, 3) OVER (PARTITION BY user_id ORDER BY id) AS f, lead(moment) OVER (PARTITION BY user_id ORDER BY id) AS g
FROM reads) AS x GROUP BY ALL TOP 5 PRIVATE;

# types_least_of_each_unit: all
SELECT a, b, c, d, e, f FROM (SELECT user_id, min(flag) AS a, min(amount) AS b, min(price) AS c, min(ratio) AS d,
min(day) AS e, min(moment) AS f FROM reads GROUP BY user_id) AS x GROUP BY ALL TOP 5 PRIVATE;

# types_greatest_of_each_unit: all
SELECT a, b, c, d, e, f FROM (SELECT user_id, max(flag) AS a, max(amount) AS b, max(price) AS c, max(ratio) AS d,
max(day) AS e, max(moment) AS f FROM reads GROUP BY user_id) AS x GROUP BY ALL TOP 5 PRIVATE;

# types_least_and_greatest
SELECT min(ratio) AS a, max(ratio) AS b, min(day) AS c, max(moment) AS d, min(article) AS e, max(wide) AS f FROM rights;

# types_distinct
SELECT COUNT(DISTINCT flag) AS a, COUNT(DISTINCT n) AS b, COUNT(DISTINCT amount) AS c, COUNT(DISTINCT price) AS d,
COUNT(DISTINCT article) AS e, COUNT(DISTINCT day) AS f, COUNT(DISTINCT moment) AS g FROM rights;

# types_first_by_ratio: all
SELECT f FROM (SELECT user_id, first_value(ratio) OVER (PARTITION BY user_id ORDER BY price) AS f FROM reads) AS x
GROUP BY f TOP 5 PRIVATE;
