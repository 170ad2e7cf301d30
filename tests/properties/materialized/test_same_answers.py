"""Counts from materialized tables equal counts from rows: keys, counts, weights, order and types."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from support.materialized_kit import SETS, counted, events, opened, policy, salts_of

import dpsql
from dpsql.curator import materialize

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


@pytest.mark.parametrize("seed", [3])
def test_what_is_materialized_counts_as_the_rows_do(tmp_path: Path, seed: int) -> None:
    events(tmp_path / "events.duckdb", seed=10 * seed)
    known = policy(tmp_path)
    assert materialize(known, database=tmp_path / "events.duckdb") == {"reads": "made"}
    read: dict[str, int] = {}
    with (
        opened(tmp_path / "events.duckdb", known) as short,
        opened(tmp_path / "events.duckdb", known, materialized=False) as long,
    ):
        long[1]._salts = salts_of(tmp_path)  # ranks are drawn as a session with these salts draws
        short[1]._salts = long[1]._salts
        for text in asked():
            try:
                expected, rows = counted(long, text)
            except (dpsql.Unsupported, dpsql.Refusal):
                continue
            found, reads = counted(short, text)
            assert rows == ""
            if (
                not reads.startswith("materialized ranks") or "(" not in text.partition(",")[0]
            ):  # hashed with more, drawn again
                assert found.equals(expected), (text, reads)
            kind = " ".join(reads.split()[:2])
            read[kind] = read.get(kind, 0) + 1
    assert min(read[kind] for kind in ("", "materialized pairs", "materialized ranks", "materialized counts")) >= 10, (
        read
    )


MEASURES = (
    "COUNT(*) AS m",
    "SUM(n) AS m",
    "COUNT(DISTINCT user_id) AS u, COUNT(*) AS m",
    "COUNT(DISTINCT user_id) FILTER (WHERE country = 'DE') AS u",
)
MEASURED = (
    "mechanism = limited_domain, k_bar = 30",
    "mechanism = weighted_gaussian, max_groups_contributed = 2",
    "mechanism = gaussian_histogram, max_groups_contributed = 1",
    "mechanism = stable",
    "domain = ['a1', 'b2', 'nobody'], mechanism = joint",
)


def test_rows_and_sums_are_never_read_from_what_holds_distinct_units(tmp_path: Path) -> None:
    """Materialized pairs have one row for each group of a unit: they know no number of rows, and no values."""
    events(tmp_path / "events.duckdb", rows=900, seed=3)
    table = dpsql.PrivateTable("user_id", materialized=SETS, bounds={"rows": 20, "n": {"max": 40}})
    known = dpsql.Policy(dpsql.Budget(100, "1e-6"), {"reads": table}, materialized=tmp_path / "materialized")
    assert materialize(known, database=tmp_path / "events.duckdb") == {"reads": "made"}
    texts = [
        f"SELECT article, {measures} FROM reads {where} GROUP BY article TOP 9 PRIVATE WITH ({options})"
        for measures in MEASURES
        for where in ("", "WHERE country = 'DE'")
        for options in MEASURED
    ]
    texts += [f"SELECT {measures} FROM reads PRIVATE" for measures in MEASURES]
    by_units = (
        "SELECT article, COUNT(DISTINCT user_id) AS u FROM reads GROUP BY article TOP 9 PRIVATE WITH (k_bar = 30)"
    )
    with opened(tmp_path / "events.duckdb", known) as over:
        assert counted(over, by_units)[1]
        found = [counted(over, text) for text in texts]
    # a FILTER of units alone is a condition on rows, of which the pairs know enough
    assert not [text for text, (_, reads) in zip(texts, found, strict=True) if reads and " AS m" in text]
    with opened(tmp_path / "events.duckdb", known, materialized=False) as plain:
        pairs = zip(texts, found, strict=True)
        # a bound draws by salts, which are those of the session
        same = [(text, table) for text, (table, _) in pairs if "max_groups_contributed" not in text]
        assert all(table.equals(counted(plain, text)[0]) for text, table in same)
