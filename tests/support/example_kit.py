"""The data set of the documentation's example, on disk."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

POLICY = """\
ledger = "ledger.sqlite"
[budget]
epsilon = 1.0
delta = 1e-6
items = 100
queries = 20

[tables.reads]
privacy_unit = "user_id"
columns = ["user_id", "article", "country", "ts"]
[tables.visits]
source = "visits.parquet"
privacy_unit = "user_id"
[tables.countries]
public = true
"""


@pytest.fixture(scope="session")
def _example_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve articles with 1500, 1600, ... 2600 readers in DE, and one with 3 that must never stand out."""
    folder = tmp_path_factory.mktemp("example")
    with duckdb.connect(str(folder / "events.duckdb")) as connection:
        connection.execute(
            "CREATE TABLE reads (user_id BIGINT, article VARCHAR, country VARCHAR, ts TIMESTAMP, secret_column INTEGER)"
        )
        connection.execute(
            "INSERT INTO reads SELECT u, 'article ' || a, 'DE', TIMESTAMP '2026-01-01', 0 "
            "FROM range(12) AS x(a), range(2600) AS y(u) WHERE u < 1500 + 100 * a"
        )
        connection.execute("INSERT INTO reads SELECT u, 'rare', 'DE', NULL, 1 FROM range(3) AS t(u)")
        connection.execute("INSERT INTO reads SELECT u, 'french', 'FR', NULL, 1 FROM range(5000) AS t(u)")
        connection.execute(
            "CREATE TABLE countries AS SELECT * FROM (VALUES ('DE', 'Europe'), ('FR', 'Europe')) v(country, continent)"
        )
        connection.execute("CREATE TABLE unlisted AS SELECT 1 AS x")
        path = str(folder / "visits.parquet").replace("'", "''")
        connection.execute(
            f"COPY (SELECT u AS user_id, '/page' || (u % 4) AS page FROM range(8000) t(u)) TO '{path}' (FORMAT parquet)"
        )
    (folder / "policy.toml").write_text(POLICY)
    return folder


@pytest.fixture
def example(_example_files: Path, tmp_path: Path) -> Path:
    """A folder of one's own with the example's database, Parquet file and policy, and no ledger yet."""
    for name in ("events.duckdb", "visits.parquet", "policy.toml"):
        (tmp_path / name).write_bytes((_example_files / name).read_bytes())
    return tmp_path
