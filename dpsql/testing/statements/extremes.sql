# extremes_of_times
SELECT a, b FROM (SELECT user_id, MAX(day) AS a, MIN(moment) AS b FROM reads GROUP BY user_id) AS x
GROUP BY ALL TOP 1000 PRIVATE;
