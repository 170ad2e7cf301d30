"""SmartNoise SQL over DuckDB: no top k, so all items above a threshold get noise and are sorted.

It has no reader for DuckDB: its PostgreSQL reader ends with "cannot rollback - no transaction is active", and the SQL
it writes with "ORDER BY window expressions cannot be volatile", so a reader of one's own runs it, and orders by a hash
in the place of RANDOM(). A user's bound is one of rows, `max_ids`. It reports 1.5 times the delta that it is given, and
is given two thirds. It never refuses: asked again, it adds up.
"""

PACKAGES = ("smartnoise-sql", "opendp", "duckdb")

# what a user writes
import duckdb
from snsql import Privacy
from snsql.sql.private_reader import PrivateReader
from snsql.sql.reader.postgres import PostgresReader


class DuckDBReader(PostgresReader):
    def execute(self, query, *ignored, accuracy=False):
        cursor = self.conn.execute(query.replace("RANDOM ( )", "hash(user_id, item, now())"))
        return [tuple(column[0] for column in cursor.description), *cursor.fetchall()]


def load(folder):
    return DuckDBReader(conn=duckdb.connect(f"{folder}/events.duckdb", read_only=True))


def top(events, k, bound):
    columns = {"max_ids": bound, "user_id": {"type": "int", "private_id": True}, "item": {"type": "string"}}
    reader = PrivateReader(events, {"": {"main": {"events": columns}}}, Privacy(epsilon=1.0, delta=1e-6 / 1.5))
    query = f"SELECT item, COUNT(DISTINCT user_id) AS n FROM main.events GROUP BY item ORDER BY n DESC LIMIT {k}"
    return [item for item, _ in reader.execute(query)[1:]]


# to here
