"""The events of `materialized_kit` in a database of PostgreSQL, whose sessions read by a role of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import psycopg
from support.materialized_kit import policy
from support.postgres_kit import Server, server

import dpsql
from dpsql.connect import open_session
from dpsql.engines import Engine
from dpsql.open_engine import open_engine

SCHEMA = "stored"
_TYPES = {
    "BIGINT": "bigint",
    "INTEGER": "integer",
    "TINYINT": "smallint",
    "VARCHAR": "text",
    "DATE": "date",
    "DOUBLE": "double precision",
    "FLOAT": "real",
    "DECIMAL(6,2)": "numeric(6, 2)",
}


class Database:
    """A database of its own, the role that owns it, and one that reads its tables."""

    def __init__(self, on: Server) -> None:
        self.server = on
        self.name = on.fresh_database()
        self.reader, self.writer = f"{self.name}_reader", f"{self.name}_writer"
        on.run(f"CREATE ROLE {self.reader} LOGIN", f"CREATE ROLE {self.writer} LOGIN")
        on.run(f"GRANT CREATE ON DATABASE {self.name} TO {self.writer}")

    def url(self, role: str) -> str:
        return f"postgresql://{role}@/{self.name}?host={self.server.folder}"

    def session(self) -> psycopg.Connection[tuple[object, ...]]:
        return self.server.session(self.name)

    def run(self, *statements: str) -> None:
        with self.session() as connection:
            for statement in statements:
                connection.execute(statement)

    def rows(self, statement: str) -> list[tuple[object, ...]]:
        with self.session() as connection:
            return connection.execute(statement).fetchall()

    def copy(self, file: Path) -> None:
        """Copy all tables of a DuckDB file; the kind of events is an ENUM."""
        self.run("CREATE TYPE kind AS ENUM ('web', 'app')")
        with duckdb.connect(str(file), read_only=True) as source:
            for (table,) in source.execute("SELECT table_name FROM duckdb_tables()").fetchall():
                self._copy_table(source, str(table))
        self.run(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {self.reader}, {self.writer}")

    def _copy_table(self, source: duckdb.DuckDBPyConnection, table: str) -> None:
        columns = [(row[0], _TYPES.get(row[1], "kind")) for row in source.execute(f'DESCRIBE "{table}"').fetchall()]
        listed = ", ".join(f"{name} {type_}" for name, type_ in columns)
        names = ", ".join(name for name, _ in columns)
        self.run(f"CREATE TABLE {table} ({listed})")
        with self.session() as connection, connection.cursor().copy(f"COPY {table} ({names}) FROM STDIN") as copy:
            for row in source.execute(f'SELECT * FROM "{table}"').fetchall():
                copy.write_row(row)

    def policy(self, folder: Path, **keys: object) -> dpsql.Policy:
        """Return the policy of the kit, over this database."""
        known = policy(folder, **keys)  # type: ignore[arg-type]
        source = dpsql.DataSource(self.url(self.reader), materialized=SCHEMA)
        return dpsql.Policy(known.budget, known.tables, source=source, ledger=known.ledger)

    @contextmanager
    def opened(self, known: dpsql.Policy, *, materialized: bool = True) -> Iterator[tuple[Engine, dpsql.Session]]:
        """Open the data by the role that reads, and a session over it."""
        engine = open_engine(None, known, materialized=materialized)
        with open_session(engine, known, ledger=":memory:") as session:
            yield engine, session

    def salts(self) -> tuple[int, int]:
        """Return the salts of the ranks that are materialized."""
        ((salts,),) = self.rows(f"SELECT salts FROM {SCHEMA}.dpsql_secrets")
        return int(str(salts)[:16], 16), int(str(salts)[16:], 16)

    def everything(self) -> dict[str, list[tuple[object, ...]]]:
        """Return all rows of all sets by table, without the ranks: these are drawn, and number the rows of a unit."""
        found = {}
        for (table,) in self.rows(f"SELECT tablename FROM pg_tables WHERE schemaname = '{SCHEMA}' ORDER BY 1"):
            if "_counts_" in str(table):
                found[str(table)] = sorted(self.rows(f"SELECT * FROM {SCHEMA}.{table}"), key=str)
            if "_pairs_" in str(table):
                rows = f"SELECT to_jsonb(t) - 'dpsql_rank' FROM {SCHEMA}.{table} AS t"
                found[str(table)] = sorted((tuple(each.items()) for (each,) in self.rows(rows)), key=str)  # type: ignore[attr-defined]
                ranks = "SELECT array_agg(dpsql_rank ORDER BY dpsql_rank) = array_agg(row_number ORDER BY row_number)"
                numbered = f"SELECT *, row_number() OVER (PARTITION BY user_id) FROM {SCHEMA}.{table}"
                assert {each for (each,) in self.rows(f"{ranks} FROM ({numbered}) AS t GROUP BY user_id")} <= {True}
        return found


def fresh_database() -> Database:
    """Return a database that no other test has."""
    return Database(server())
