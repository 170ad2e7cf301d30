"""Qrlew rewrites the query into text for PostgreSQL, which DuckDB runs: all items above a threshold, noise, sorted.

It cannot read the catalogue of DuckDB 2.0 (the SQLAlchemy dialect duckdb-engine 0.17.0 fails on a type REGCLASS), so a
table of the same columns and as many rows stands in SQLite for it. Half of the budget selects items, half is for
counts. It answers COUNT(DISTINCT user_id) with a number of rows, clipped. Noise is RANDOM() of the database, in
floating point.
"""

PACKAGES = ("pyqrlew", "duckdb")

# what a user writes
import duckdb
import sqlalchemy
from pyqrlew import Dataset, Dialect

FILL = """
WITH RECURSIVE numbers(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM numbers WHERE i < {rows})
INSERT INTO events SELECT i, '' FROM numbers
"""


def load(folder):
    events = duckdb.connect(f"{folder}/events.duckdb", read_only=True)
    [rows] = events.execute("SELECT COUNT(*) FROM events").fetchone()
    catalogue = sqlalchemy.create_engine("sqlite://", poolclass=sqlalchemy.StaticPool)
    with catalogue.begin() as connection:
        connection.execute(sqlalchemy.text("CREATE TABLE events (user_id BIGINT, item VARCHAR)"))
        connection.execute(sqlalchemy.text(FILL.format(rows=rows)))
    return events, Dataset.from_database("events", catalogue)


def top(loaded, k, bound):
    events, dataset = loaded
    query = f"SELECT item, COUNT(DISTINCT user_id) AS n FROM events GROUP BY item ORDER BY n DESC LIMIT {k}"
    rewritten = dataset.relation(query).rewrite_with_differential_privacy(
        dataset,
        [("events", [], "user_id")],
        {"epsilon": 1.0, "delta": 1e-6},
        max_multiplicity=float(bound),
        max_multiplicity_share=1.0,
        max_privacy_unit_groups=bound,
    )
    return [item for item, _ in events.execute(rewritten.relation().to_query(Dialect.PostgreSql)).fetchall()]


# to here
