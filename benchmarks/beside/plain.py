"""The plain query of DuckDB, without privacy, which all others are told as a ratio to."""

PACKAGES = ("duckdb",)

# what a user writes
import duckdb


def load(folder):
    return duckdb.connect(f"{folder}/events.duckdb", read_only=True)


def top(events, k, bound):
    query = f"SELECT item, COUNT(DISTINCT user_id) AS n FROM events GROUP BY item ORDER BY n DESC LIMIT {k}"
    return [item for item, _ in events.execute(query).fetchall()]


# to here
