"""Private queries that materialized tables answer, or answer in part, and some that they do not."""

from __future__ import annotations

import itertools

KEYS = (
    "article",
    "article, country",
    "country",
    "day, country",
    "upper(article)",
    "length(article), article",
    "kind",
    "city",
    "date_trunc('month', day)",
    "article, n",
)
FILTERS = (
    "",
    "country = 'DE'",
    "'FR' = country",
    "country IS NULL",
    "country IN ('DE')",
    "country IN ('DE', 'FR')",
    "country <> 'DE'",
    "article LIKE 'a%' AND country = 'DE'",
    "country = 'DE' OR country = 'FR'",
    "user_id <> 3",
    "user_id % 2 = 0 AND country = 'US'",
    "n > 2",
    "lower(country) = 'de'",
    "day = DATE '2024-02-01' AND country = 'DE'",
    "user_id IN (SELECT user_id FROM visits WHERE n = 1)",
    "EXISTS (SELECT 1 FROM visits v WHERE v.user_id = reads.user_id AND v.country = reads.country)",
    "country IN (SELECT code FROM places)",
)
TABLES = (
    "reads",
    "(SELECT user_id, article, country, day, kind, n, country AS city FROM reads) AS reads",
    "(SELECT user_id, article, country, count(*) AS n FROM reads GROUP BY ALL) AS reads",
    "(SELECT user_id, article, row_number() OVER (PARTITION BY user_id ORDER BY article) AS n FROM reads) AS reads",
    "(SELECT user_id, max(article) AS article, count(*) AS n FROM reads GROUP BY user_id) AS reads",
    "(SELECT DISTINCT user_id, article, country FROM reads) AS reads",
    "reads JOIN places ON reads.country = places.code",
    "reads LEFT JOIN places ON reads.country = places.code",
    "reads SEMI JOIN places ON reads.country = places.code",
    "reads JOIN visits USING (user_id)",
    "(SELECT user_id, article, country FROM reads UNION ALL SELECT user_id, country, article FROM reads) AS reads",
)
OPTIONS = (
    "mechanism = limited_domain, k_bar = 30",
    "mechanism = limited_domain, k_bar = 30, max_groups_contributed = 1",
    "mechanism = limited_domain, k_bar = 30, max_groups_contributed = 3",
    "mechanism = limited_domain, k_bar = 30, max_groups_contributed = 20",
    "mechanism = two_looks, k_bar = 30",
    "mechanism = two_looks, k_bar = 30, max_groups_contributed = 3",
    "mechanism = weighted_gaussian, max_groups_contributed = 2",
    "mechanism = weighted_gaussian",
    "mechanism = domain_discovery",
    "mechanism = gaussian_histogram, max_groups_contributed = 2",
    "mechanism = stable",
    "domain = ['a1', 'b2', 'nobody'], max_groups_contributed = 1",
    "domain = ['a1', 'b2', 'nobody']",
)
PER = [
    f"SELECT country, article, COUNT(DISTINCT user_id) FROM reads GROUP BY ALL TOP 2 PRIVATE PER country "
    f"WITH (partitions = ['DE', 'FR', 'IT'], {options})"
    for options in ("mechanism = limited_domain", "mechanism = limited_domain, max_groups_contributed = 2")
]


def asked() -> list[str]:
    """Return some of all combinations, each part of which is in many, and all of a few keys without a filter."""
    every = [*itertools.product(KEYS, FILTERS, TABLES, OPTIONS)][::61]
    every += itertools.product(KEYS[:3], FILTERS[:1], TABLES[:1], OPTIONS)
    every += itertools.product(KEYS[:1], FILTERS[:7], TABLES[:1], OPTIONS[:1])
    every += itertools.product(KEYS[:1], ("n > 2", ""), TABLES[2:5], OPTIONS[:4])
    return PER + [
        f"SELECT {keys}, COUNT(DISTINCT user_id) FROM {table}{f' WHERE {condition}' if condition else ''} GROUP BY ALL "
        f"TOP 5 PRIVATE WITH ({options})"
        for keys, condition, table, options in every
    ]


MEASURES = (
    "COUNT(*) AS m",
    "SUM(n) AS m",
    "SUM(price) AS m, COUNT(*) AS c",
    "COUNT(price) AS m, SUM(score) AS s",
    "AVG(price) AS m, COUNT(DISTINCT user_id) AS u",
    "COUNT(DISTINCT user_id) AS u, COUNT(*) AS m",
    "COUNT(DISTINCT user_id) AS u, SUM(amount) AS m, COUNT(amount) AS c",
    "COUNT(DISTINCT user_id) FILTER (WHERE country = 'DE') AS u, SUM(score) AS m",
    "COUNT(*) FILTER (WHERE country = 'DE') AS m",
    "SUM(price) FILTER (WHERE country <> 'DE' AND price IS NOT NULL) AS m",
    "COUNT(country) AS m",
)
SELECTED = ("", "country = 'DE'", "country IN ('DE', 'FR')", "user_id <> 3", "article = 'a1' AND country IS NULL")
MEASURED = (
    "TOP 9 PRIVATE WITH (mechanism = limited_domain, k_bar = 30)",
    "TOP 9 PRIVATE WITH (mechanism = limited_domain, k_bar = 30, max_groups_contributed = 1)",
    "TOP 9 PRIVATE WITH (mechanism = weighted_gaussian, max_groups_contributed = 2)",
    "TOP 9 PRIVATE WITH (mechanism = domain_discovery)",
    "TOP 9 PRIVATE WITH (mechanism = gaussian_histogram, max_groups_contributed = 2)",
    "TOP 9 PRIVATE WITH (mechanism = stable)",
    "ALL PRIVATE WITH (domain = ['a1', 'b2', 'nobody'])",
    "ALL PRIVATE WITH (domain = ['a1', 'b2', 'nobody'], max_groups_contributed = 1)",
)


def measured() -> list[str]:
    """Return rankings, known groups and totals by each measure, with each condition, and in other tables."""
    questions = []
    for measures, condition in itertools.product(MEASURES, SELECTED):
        where = f"WHERE {condition} " if condition else ""
        questions += [f"SELECT {measures} FROM reads {where}PRIVATE"]
        questions += [f"SELECT article, {measures} FROM reads {where}GROUP BY article {clause}" for clause in MEASURED]
        clause = MEASURED[0]
        questions += [
            f"SELECT {key}, {measures} FROM {table} {where}GROUP BY ALL {clause}"
            for key, table in (
                ("upper(article) AS k", "reads"),
                ("country, article", "reads"),
                ("article", "reads JOIN places ON country = code"),
                ("article", "(SELECT * FROM reads) AS reads"),
                ("article", "(SELECT * FROM reads UNION ALL SELECT * FROM reads) AS reads"),
            )
        ]
    for option in ("max_rows_contributed = 2", "max_rows_contributed = 5"):
        questions += [f"SELECT COUNT(*) AS m FROM reads PRIVATE WITH ({option})"]
        questions += [f"SELECT article, COUNT(*) AS m FROM reads GROUP BY article TOP 9 PRIVATE WITH ({option})"]
    partitions = "TOP 2 PRIVATE PER country WITH (partitions = ['DE', 'FR', 'IT'])"
    return [*questions, f"SELECT country, article, COUNT(*) AS m FROM reads GROUP BY ALL {partitions}"]
