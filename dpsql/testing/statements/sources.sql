# join_public
SELECT c.continent, COUNT(DISTINCT r.user_id) AS n FROM reads AS r JOIN countries AS c ON r.country = c.country
GROUP BY c.continent TOP 1000 PRIVATE;

# join_public_left
SELECT c.continent FROM reads AS r LEFT JOIN countries AS c ON r.country = c.country GROUP BY c.continent TOP 1000 PRIVATE;

# join_public_right
SELECT c.continent FROM countries AS c RIGHT JOIN reads AS r ON r.country = c.country GROUP BY 1 TOP 1000 PRIVATE;

# join_public_full
SELECT c.continent FROM reads AS r FULL JOIN countries AS c ON r.country = c.country GROUP BY 1 TOP 1000 PRIVATE;

# join_public_semi
SELECT article FROM reads AS r SEMI JOIN countries AS c ON r.country = c.country GROUP BY 1 TOP 1000 PRIVATE;

# join_public_anti
SELECT article FROM reads AS r ANTI JOIN countries AS c ON r.country = c.country GROUP BY 1 TOP 1000 PRIVATE;

# join_public_cross
SELECT c.country FROM reads AS r CROSS JOIN countries AS c WHERE r.n > c.people GROUP BY 1 TOP 1000 PRIVATE;

# join_public_comma
SELECT c.continent, r.flag FROM reads AS r, countries AS c WHERE c.country = r.country GROUP BY ALL TOP 1000 PRIVATE;

# join_public_using
SELECT d.holiday FROM reads JOIN days AS d USING (day) GROUP BY d.holiday TOP 1000 PRIVATE;

# join_public_inequality
SELECT d.week FROM reads AS r JOIN days AS d ON r.day < d.day AND r.small > d.week GROUP BY 1 TOP 1000 PRIVATE;

# join_public_left_inequality
SELECT d.week FROM reads AS r LEFT JOIN days AS d ON r.day < d.day AND r.small > d.week GROUP BY 1 TOP 1000 PRIVATE;

# join_public_semi_inequality
SELECT r.country FROM reads AS r SEMI JOIN days AS d ON r.day < d.day AND r.small > d.week GROUP BY 1 TOP 1000 PRIVATE;

# join_public_anti_inequality
SELECT r.country FROM reads AS r ANTI JOIN days AS d ON r.day < d.day AND r.small > d.week GROUP BY 1 TOP 1000 PRIVATE;

# join_public_double
SELECT c.country FROM reads AS r JOIN countries AS c ON r.price = c.area GROUP BY 1 TOP 1000 PRIVATE;

# join_public_not_distinct
SELECT c.continent FROM reads AS r JOIN countries AS c ON r.country IS NOT DISTINCT FROM c.country GROUP BY 1 TOP 1000 PRIVATE;

# join_public_twice
SELECT c.continent, d.holiday FROM reads AS r LEFT JOIN countries AS c ON c.country = r.country
LEFT JOIN days AS d ON d.day = r.day AND d.holiday GROUP BY ALL TOP 1000 PRIVATE;

# join_public_grouped
SELECT g.n FROM reads AS r JOIN (SELECT country, COUNT(*) AS n FROM countries GROUP BY country) AS g USING (country)
GROUP BY g.n TOP 1000 PRIVATE;

# join_public_cut
SELECT x.continent FROM reads AS r
JOIN (SELECT country, continent FROM countries ORDER BY country DESC NULLS LAST LIMIT 3) AS x ON x.country <= r.country
GROUP BY 1 TOP 1000 PRIVATE;

# join_private
SELECT l.article, COUNT(DISTINCT r.user_id) AS n FROM reads AS r JOIN likes AS l ON r.user_id = l.user_id
GROUP BY l.article TOP 1000 PRIVATE;

# join_private_left
SELECT l.stars, COUNT(DISTINCT r.user_id) AS n FROM reads AS r LEFT JOIN likes AS l ON r.user_id = l.user_id AND l.stars > 2
GROUP BY 1 TOP 1000 PRIVATE;

# join_private_right
SELECT r.country, COUNT(DISTINCT l.user_id) AS n FROM reads AS r RIGHT JOIN likes AS l ON r.user_id = l.user_id
GROUP BY 1 TOP 1000 PRIVATE;

# join_private_full
SELECT r.flag, l.stars FROM reads AS r FULL JOIN likes AS l USING (user_id) GROUP BY ALL TOP 1000 PRIVATE;

# join_private_semi
SELECT country FROM reads AS r SEMI JOIN likes AS l ON r.user_id = l.user_id AND r.article = l.article GROUP BY 1 TOP 1000 PRIVATE;

# join_private_anti
SELECT country FROM reads AS r ANTI JOIN likes AS l ON r.user_id = l.user_id GROUP BY 1 TOP 1000 PRIVATE;

# join_private_comma
SELECT l.article FROM reads AS r, likes AS l WHERE r.user_id = l.user_id AND r.n > l.stars GROUP BY 1 TOP 1000 PRIVATE;

# join_private_with_itself
SELECT a.country, b.country AS other FROM reads AS a JOIN reads AS b ON a.user_id = b.user_id AND a.id < b.id
GROUP BY ALL TOP 1000 PRIVATE;

# join_private_of_text_units
SELECT f.page, COUNT(DISTINCT v.member) AS n FROM visits AS v JOIN friends AS f ON v.member = f.member
GROUP BY 1 TOP 1000 PRIVATE;

# join_private_of_text_units_anti
SELECT v.page FROM visits AS v ANTI JOIN friends AS f USING (member) GROUP BY 1 TOP 1000 PRIVATE;

# link
SELECT word, COUNT(DISTINCT user_id) AS n FROM comments GROUP BY word TOP 1000 PRIVATE;

# link_and_join
SELECT c.word, r.country FROM comments AS c JOIN reads AS r ON c.user_id = r.user_id AND c.read_id = r.id
GROUP BY ALL TOP 1000 PRIVATE;

# link_and_public
SELECT c.word, x.continent FROM comments AS c JOIN countries AS x ON x.people > c.votes GROUP BY ALL TOP 1000 PRIVATE;

# in_public
SELECT article FROM reads WHERE country IN (SELECT country FROM countries WHERE continent = 'Europe')
GROUP BY article TOP 1000 PRIVATE;

# not_in_public_with_null
SELECT article FROM reads WHERE country NOT IN (SELECT country FROM countries) GROUP BY article TOP 1000 PRIVATE;

# not_in_public
SELECT article FROM reads WHERE country NOT IN (SELECT country FROM countries WHERE country IS NOT NULL)
GROUP BY article TOP 1000 PRIVATE;

# in_public_doubles
SELECT country FROM reads WHERE price IN (SELECT area FROM countries) GROUP BY country TOP 1000 PRIVATE;

# in_public_days
SELECT country FROM reads WHERE day IN (SELECT day FROM days WHERE holiday) GROUP BY country TOP 1000 PRIVATE;

# not_in_public_days
SELECT country FROM reads WHERE day NOT IN (SELECT day FROM days) OR day IS NULL GROUP BY country TOP 1000 PRIVATE;

# in_public_moments
SELECT country FROM reads WHERE moment IN (SELECT moment FROM rights WHERE id > 3) GROUP BY country TOP 1000 PRIVATE;

# in_public_decimals
SELECT country FROM reads WHERE amount IN (SELECT amount FROM rights WHERE id > 3) GROUP BY country TOP 1000 PRIVATE;

# in_public_booleans
SELECT country FROM reads WHERE flag IN (SELECT holiday FROM days WHERE week = 1) GROUP BY country TOP 1000 PRIVATE;

# in_public_numbers
SELECT country FROM reads WHERE small NOT IN (SELECT week FROM days WHERE week > 1) GROUP BY country TOP 1000 PRIVATE;

# in_public_correlated
SELECT country FROM reads AS r WHERE r.country IN (SELECT c.country FROM countries AS c WHERE c.people > r.n)
GROUP BY country TOP 1000 PRIVATE;

# exists_public
SELECT article FROM reads AS r WHERE EXISTS (SELECT 1 FROM countries AS c WHERE c.country = r.country AND c.people > r.n)
GROUP BY article TOP 1000 PRIVATE;

# not_exists_public
SELECT article FROM reads AS r WHERE NOT EXISTS (SELECT 1 FROM days AS d WHERE d.day = r.day) GROUP BY 1 TOP 1000 PRIVATE;

# exists_as_key
SELECT EXISTS (SELECT 1 FROM days AS d WHERE d.day = r.day) AS known, flag FROM reads AS r GROUP BY ALL TOP 1000 PRIVATE;

# scalar_public
SELECT article FROM reads WHERE n > (SELECT MIN(people) FROM countries) GROUP BY article TOP 1000 PRIVATE;

# in_private
SELECT article FROM reads WHERE user_id IN (SELECT user_id FROM likes WHERE stars > 1) GROUP BY article TOP 1000 PRIVATE;

# not_in_private
SELECT article FROM reads WHERE user_id NOT IN (SELECT user_id FROM likes WHERE stars = 5) GROUP BY article TOP 1000 PRIVATE;

# not_in_private_of_text_units
SELECT page FROM visits WHERE member NOT IN (SELECT member FROM friends WHERE seconds > 0) GROUP BY page TOP 1000 PRIVATE;

# exists_private
SELECT article FROM reads AS r WHERE EXISTS (SELECT 1 FROM likes AS l WHERE l.user_id = r.user_id AND l.article = r.article)
GROUP BY article TOP 1000 PRIVATE;

# exists_private_as_key
SELECT a.country, EXISTS (SELECT 1 FROM reads AS b WHERE b.user_id = a.user_id AND b.moment < a.moment) AS again
FROM reads AS a GROUP BY ALL TOP 1000 PRIVATE;

# cte
WITH dear AS (SELECT user_id, lower(article) AS article FROM reads WHERE price > 1) SELECT article FROM dear
GROUP BY article TOP 1000 PRIVATE;

# cte_twice
WITH a AS (SELECT user_id, country, n FROM reads), b AS (SELECT user_id, country FROM a WHERE n > 0)
SELECT a.country, b.country AS other FROM a JOIN b ON a.user_id = b.user_id GROUP BY ALL TOP 1000 PRIVATE;

# derived
SELECT half FROM (SELECT user_id, n // 2 AS half FROM reads WHERE flag IS NOT NULL) AS x WHERE half <> 5
GROUP BY half TOP 1000 PRIVATE;

# derived_distinct
SELECT article FROM (SELECT DISTINCT user_id, article, flag FROM reads) AS x GROUP BY article TOP 1000 PRIVATE;

# union_all
SELECT article FROM (SELECT user_id, article FROM reads UNION ALL SELECT user_id, article FROM likes) AS x
GROUP BY article TOP 1000 PRIVATE;

# union
SELECT article, flag FROM (SELECT user_id, article, flag FROM reads UNION SELECT user_id, article, TRUE FROM likes) AS x
GROUP BY ALL TOP 1000 PRIVATE;

# intersect
SELECT article FROM (SELECT user_id, article FROM reads INTERSECT SELECT user_id, article FROM likes) AS x
GROUP BY article TOP 1000 PRIVATE;

# except
SELECT article FROM (SELECT user_id, article FROM reads WHERE n > 0 EXCEPT SELECT user_id, article FROM reads WHERE n < 0) AS x
GROUP BY article TOP 1000 PRIVATE;

# except_doubles
SELECT price FROM (SELECT user_id, price FROM reads EXCEPT SELECT user_id, weight FROM likes) AS x
GROUP BY price TOP 1000 PRIVATE;

# unnest
SELECT x.tag, COUNT(DISTINCT r.user_id) AS n FROM reads AS r, unnest([r.country, r.article]) AS x(tag)
GROUP BY x.tag TOP 1000 PRIVATE;

# unnest_numbers
SELECT x.m FROM reads AS r CROSS JOIN unnest([1, 2, 3]) AS x(m) WHERE r.tiny >= x.m GROUP BY x.m TOP 1000 PRIVATE;
