"""DB-API 2.0 (PEP 249) over a session: what pandas, polars, notebooks and SQLAlchemy know how to talk to.

    import dpsql.dbapi

    with dpsql.dbapi.connect("events.duckdb", policy="policy.toml") as connection:
        rows = connection.execute("SELECT article FROM reads GROUP BY article TOP 10 PRIVATE").fetchall()

It translates and decides nothing: every statement goes to `Session.sql`, every answer comes from there, and its
receipt with it. There is nothing to write, so that a transaction has nothing to commit and nothing to roll back.
"""

from dpsql.dbapi.connection import Connection, Cursor, connect
from dpsql.dbapi.errors import (
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    Warning,
)
from dpsql.dbapi.types import (
    BINARY,
    DATETIME,
    NUMBER,
    ROWID,
    STRING,
    Binary,
    Date,
    DateFromTicks,
    Time,
    TimeFromTicks,
    Timestamp,
    TimestampFromTicks,
)

__all__ = [
    "BINARY",
    "DATETIME",
    "NUMBER",
    "ROWID",
    "STRING",
    "Binary",
    "Connection",
    "Cursor",
    "DataError",
    "DatabaseError",
    "Date",
    "DateFromTicks",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "Time",
    "TimeFromTicks",
    "Timestamp",
    "TimestampFromTicks",
    "Warning",
    "apilevel",
    "connect",
    "paramstyle",
    "threadsafety",
]

apilevel = "2.0"
threadsafety = 2  # threads may share a connection, which answers one at a time; a cursor belongs to one of them
paramstyle = "qmark"  # :name and $1 are read as well, see docs/reference/sql/parameters.md
