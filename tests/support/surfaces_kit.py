"""A small database on disk for whoever comes from outside, and how many charges it took."""

from __future__ import annotations

from pathlib import Path

import duckdb

from dpsql.session import Session

__all__ = ["NAMES", "POLICY", "TOP", "charges", "make_data"]

POLICY = """\
ledger = "ledger.sqlite"
[budget]
epsilon = 4.0
delta = 1e-6
items = 100
queries = 20

[tables.reads]
privacy_unit = "user_id"
columns = ["user_id", "article", "country", "ts"]
[tables.countries]
public = true
[tables."shop.orders"]
privacy_unit = "user_id"
"""
TOP = "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article TOP 3 PRIVATE"
NAMES = "SELECT article FROM reads GROUP BY article TOP 3 PRIVATE"


def make_data(folder: Path) -> Path:
    """Write events.duckdb and policy.toml: three articles of 3000, 2000 and 1000 readers, in two countries."""
    with duckdb.connect(str(folder / "events.duckdb")) as connection:
        connection.execute(
            "CREATE TABLE reads AS SELECT u AS user_id, 'a' || a AS article, ['DE', 'FR'][1 + u % 2] AS country, "
            "TIMESTAMP '2026-01-01' + to_days(a::INTEGER) AS ts, 7 AS secret "
            "FROM range(3) x(a), range(3000) y(u) WHERE u < 3000 - 1000 * a"
        )
        connection.execute(
            "CREATE TABLE countries AS SELECT * FROM (VALUES "
            "('DE', 'Europe', 83.5::DECIMAL(9, 2), true, 1.5::FLOAT, DATE '1990-10-03'), "
            "('FR', 'Europe', 68.6, true, 2.5, DATE '1789-07-14'), "
            "('TV', 'Oceania', 0.01, false, NULL, NULL)) v(country, continent, millions, large, ratio, since)"
        )
        connection.execute("CREATE SCHEMA shop")
        connection.execute("CREATE TABLE shop.orders AS SELECT 1::BIGINT AS user_id, 'x' AS product")
    (folder / "policy.toml").write_text(POLICY)
    return folder


def charges(session: Session) -> int:
    """Return how many queries the ledger was charged for."""
    return int(session.history.num_rows)
