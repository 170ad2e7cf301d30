"""DB-API 2.0 (PEP 249) over a session, for pandas, polars, notebooks and SQLAlchemy.

    import dpsql.dbapi

    with dpsql.dbapi.connect("events.duckdb", policy="policy.toml") as connection:
        rows = connection.execute("SELECT article FROM reads GROUP BY article TOP 10 PRIVATE").fetchall()

Every statement goes to `Session.sql`, which returns the answer and its receipt. Nothing is ever written: commit and
rollback do nothing.
"""

from dpsql.dbapi.connection import (
    BINARY,
    DATETIME,
    NUMBER,
    ROWID,
    STRING,
    Binary,
    Connection,
    Cursor,
    Date,
    DateFromTicks,
    Time,
    TimeFromTicks,
    Timestamp,
    TimestampFromTicks,
    connect,
)
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
threadsafety = 2  # threads may share a connection, which runs one statement at a time, but not a cursor
paramstyle = "qmark"  # :name and $1 work as well, see docs/reference/sql/expressions.md
