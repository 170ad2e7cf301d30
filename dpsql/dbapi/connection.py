"""Connection over a session, cursors that hold one answer each, and the types of PEP 249: codes and constructors."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn, Self

from dpsql import errors as dpsql_errors
from dpsql.connect import connect as open_session
from dpsql.dbapi import errors
from dpsql.dbapi.errors import translate_errors
from dpsql.policy import Policy

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from dpsql.answer import Answer
    from dpsql.engines import Engine
    from dpsql.receipt import Receipt
    from dpsql.session import Session
    from dpsql.sql.lexer import ParameterValues

Row = tuple[object, ...]
ColumnDescription = tuple[str, str, None, int | None, int | None, int | None, None]
Messages = list[tuple[type[errors.Warning], errors.Warning]]


@translate_errors
def connect(  # noqa: PLR0913 - what a session is opened with
    database: str | Path | duckdb.DuckDBPyConnection | Engine | SparkSession | Mapping[str, object] | None = None,
    *,
    policy: Policy | str | Path | None = None,
    ledger: str | Path | None = None,
    analyst: str | None = None,
    isolation: str | None = None,
    implicit: bool | None = None,
    consent: bool | None = None,
) -> Connection:
    """Open a session with the arguments of `dpsql.connect`, and return a connection to it.

    Raises `OperationalError` for an unusable policy, data source or ledger, `ProgrammingError` for an analyst who may
    not run queries, and `InterfaceError` for invalid arguments.
    """
    session = open_session(
        database,
        policy=policy,
        ledger=ledger,
        analyst=analyst,
        isolation=isolation,
        implicit=implicit,
        consent=consent,
    )
    return Connection(session)


class _SharedSession:
    """Session with a lock and the number of its open connections; the last connection closes it."""

    __slots__ = ("connections", "lock", "session")

    def __init__(self, session: Session) -> None:
        self.session = session
        self.lock = threading.Lock()
        self.connections = 1


class Connection:
    """Connection of PEP 249 over a session, which it closes.

    Threads may share it; it runs one statement at a time. `implicit` and `consent` can be set, as in `dpsql.connect`.
    """

    __slots__ = ("__weakref__", "_open", "_shared", "consent", "implicit")

    Warning = errors.Warning
    Error = errors.Error
    InterfaceError = errors.InterfaceError
    DatabaseError = errors.DatabaseError
    DataError = errors.DataError
    OperationalError = errors.OperationalError
    IntegrityError = errors.IntegrityError
    InternalError = errors.InternalError
    ProgrammingError = errors.ProgrammingError
    NotSupportedError = errors.NotSupportedError

    def __init__(self, session: Session) -> None:
        """Take over `session`; from now on only this connection may use it."""
        self._shared = _SharedSession(session)
        self._open = True
        self.implicit: bool | None = None
        self.consent: bool | None = None

    @property
    def session(self) -> Session:
        """The session, for calls outside PEP 249: `budget`, `history`, `explain`, `forecast`."""
        return self._shared.session

    @property
    def closed(self) -> bool:
        """Whether the connection is closed."""
        return not self._open

    @property
    def autocommit(self) -> Literal[True]:
        """Always true: a charge cannot be rolled back."""
        return True

    @translate_errors
    def another(self) -> Connection:
        """Return another connection to the same session, even if this one is closed; the last closes it."""
        # It comes with a lock and a count of its own, which give way to those that all connections of the session
        # share.
        another = Connection(self._shared.session)
        with self._shared.lock:
            if not self._shared.connections:
                raise _closed_error()
            self._shared.connections += 1
            another._shared = self._shared
        return another

    def cursor(self) -> Cursor:
        """Return a new cursor."""
        self.require_open()
        return Cursor(self)

    def execute(self, operation: str, parameters: ParameterValues | None = None) -> Cursor:
        """Execute a statement on a new cursor, and return the cursor."""
        return self.cursor().execute(operation, parameters)

    def commit(self) -> None:
        """Do nothing: nothing is written, and charges are already durable."""
        self.require_open()

    def rollback(self) -> None:
        """Do nothing: a release and its charge cannot be rolled back."""
        self.require_open()

    def close(self) -> None:
        """Close the connection once no statement is running; a second call does nothing. Its cursors end with it."""
        shared = self._shared
        with shared.lock:
            if self._open:
                self._open = False
                shared.connections -= 1
                if not shared.connections:
                    shared.session.close()

    @translate_errors
    def require_open(self) -> None:
        """Raise `InterfaceError` if the connection is closed."""
        if not self._open:
            raise _closed_error()

    @translate_errors
    def ask(self, operation: str, parameters: ParameterValues) -> Answer:
        """Run a statement in the session, after those of other threads, and return its answer."""
        with self._shared.lock:
            # Under the lock: another thread may have closed the connection while this one waited.
            self.require_open()
            return self._shared.session.sql(operation, parameters, implicit=self.implicit, consent=self.consent)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<dpsql.dbapi.Connection, {self.session!r}>"


def _closed_error() -> dpsql_errors.UsageError:
    hint = "Open another with dpsql.dbapi.connect."
    return dpsql_errors.UsageError("closed", "This connection is closed.", hint=hint)


class Cursor:
    """Cursor over the answer to the last statement, row by row or as a table.

    `arraysize` is the default number of rows that `fetchmany` returns. `messages` holds the receipt of the last
    statement as a warning.
    """

    __slots__ = (
        "__weakref__",
        "_answer",
        "_at",
        "_connection",
        "_description",
        "_receipt",
        "_rows",
        "arraysize",
        "messages",
    )

    def __init__(self, connection: Connection) -> None:
        self._connection: Connection | None = connection
        self._answer: Answer | None = None
        self._description: tuple[ColumnDescription, ...] | None = None
        self._receipt: Receipt | None = None
        self._rows: list[Row] | None = None
        self._at = 0
        self.arraysize = 1
        self.messages: Messages = []

    @property
    def connection(self) -> Connection:
        """The connection of the cursor."""
        return self._require_connection()

    @property
    def answer(self) -> Answer | None:
        """The whole answer, with its receipt, error bars and plot; None before the first statement."""
        return self._answer

    @property
    def receipt(self) -> Receipt | None:
        """Cost of the answer and remaining budget, also after the cursor is closed; None before the first statement."""
        return self._receipt

    @property
    def description(self) -> tuple[ColumnDescription, ...] | None:
        """Name, type code, None, size, precision, scale and None of each column; None before the first answer."""
        return self._description

    @property
    def rowcount(self) -> int:
        """Number of rows of the answer; -1 before the first statement."""
        return -1 if self._answer is None else len(self._answer)

    @property
    def rownumber(self) -> int | None:
        """Position of the next row to fetch, from 0; None before the first answer."""
        return None if self._answer is None else self._at

    @property
    def lastrowid(self) -> None:
        """Always None: no row is written."""
        return

    def execute(self, operation: str, parameters: ParameterValues | None = None) -> Self:
        """Run a statement and return this cursor; `parameters` are a sequence for ? or $1, a mapping for :name.

        Raises `ProgrammingError` for a refused statement, `NotSupportedError` for one that dpsql does not support, and
        `OperationalError` if the budget, the engine or the ledger cannot serve it. `dpsql.Session.sql` documents
        when a statement is charged.
        """
        connection = self._require_connection()
        # Before the statement, so that after an error nothing of the last answer can be fetched.
        self._set_answer(None)
        self._receipt = None
        answer = connection.ask(operation, () if parameters is None else parameters)
        self._set_answer(answer)
        self._receipt = answer.receipt
        self.messages.extend((errors.Warning, errors.Warning(note)) for note in answer.notes())
        return self

    @translate_errors
    def executemany(self, operation: str, seq_of_parameters: Sequence[ParameterValues]) -> NoReturn:
        """Raise `NotSupportedError`: nothing is written, and each answer is a charge of its own."""
        self._require_connection()
        del operation, seq_of_parameters
        raise dpsql_errors.Unsupported(
            "executemany", "executemany is not supported.", hint="Call execute once for each set of parameters."
        )

    def fetchone(self) -> Row | None:
        """Return the next row, or None after the last."""
        rows = self.fetchmany(1)
        return rows[0] if rows else None

    def fetchmany(self, size: int | None = None) -> list[Row]:
        """Return the next `size` rows, by default `arraysize`, or fewer at the end."""
        start = self._at
        answer = self._require_answer()
        if self._rows is None:
            self._rows = answer.fetchall()
        rows = self._rows
        self._at = min(len(rows), start + max(0, self.arraysize if size is None else size))
        return rows[start : self._at]

    def fetchall(self) -> list[Row]:
        """Return the remaining rows."""
        return self.fetchmany(self.rowcount)

    def fetch_arrow_table(self) -> pa.Table:
        """Return the remaining rows as an Arrow table."""
        return self._take_rest().arrow()

    def fetch_df(self) -> pd.DataFrame:
        """Return the remaining rows as a pandas DataFrame; needs the extra dpsql[pandas]."""
        return self._take_rest().df()

    def setinputsizes(self, sizes: Sequence[object]) -> None:
        """Do nothing, as PEP 249 allows."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Do nothing, as PEP 249 allows."""

    def close(self) -> None:
        """Drop the answer and close the cursor; any later use except `close` raises `InterfaceError`."""
        self._set_answer(None)
        self._connection = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Row:
        row = self.fetchone()
        if row is None:
            raise StopIteration
        return row

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _set_answer(self, answer: Answer | None) -> None:
        """Replace the previous answer and its messages."""
        self._answer = answer
        self._description = None if answer is None else describe_columns(answer.arrow())
        self._rows = None
        self._at = 0
        self.messages.clear()

    @translate_errors
    def _require_connection(self) -> Connection:
        if self._connection is None:
            raise dpsql_errors.UsageError("closed", "This cursor is closed.", hint="Open another: connection.cursor()")
        self._connection.require_open()
        return self._connection

    @translate_errors
    def _require_answer(self) -> Answer:
        self._require_connection()
        if self._answer is None:
            raise dpsql_errors.UsageError("no-answer", "There is nothing to fetch.", hint="Execute a statement first.")
        return self._answer

    @translate_errors
    def _take_rest(self) -> Answer:
        """Return the remaining rows, and advance to the end."""
        answer, start = self._require_answer(), self._at
        self._at = len(answer)
        return type(answer)(answer.arrow().slice(start), answer.receipt)


_CODES = {
    "null": "NULL",
    "bool": "BOOLEAN",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "uint8": "UTINYINT",
    "uint16": "USMALLINT",
    "uint32": "UINTEGER",
    "uint64": "UBIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "large_string": "VARCHAR",
    "string_view": "VARCHAR",
    "binary": "BLOB",
    "large_binary": "BLOB",
    "binary_view": "BLOB",
    "date32[day]": "DATE",
    "timestamp[us]": "TIMESTAMP",
}


@dataclass(frozen=True, slots=True, eq=False)
class TypeObject:
    """Object of PEP 249 that equals several type codes: `cursor.description[0][1] == STRING`."""

    codes: frozenset[str]

    def __eq__(self, other: object) -> bool:
        return other in self.codes if isinstance(other, str) else self is other

    __hash__ = None  # type: ignore[assignment]  # it equals several texts, whose hashes differ


STRING = TypeObject(frozenset(["VARCHAR"]))
BINARY = TypeObject(frozenset(["BLOB"]))
NUMBER = TypeObject(
    frozenset(
        "BOOLEAN TINYINT SMALLINT INTEGER BIGINT UTINYINT USMALLINT UINTEGER UBIGINT FLOAT DOUBLE DECIMAL".split()
    )
)
DATETIME = TypeObject(frozenset(["DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"]))
ROWID = TypeObject(frozenset())  # released rows have no identity

Date = dt.date
Time = dt.time
Timestamp = dt.datetime
Binary = bytes


def DateFromTicks(ticks: float) -> dt.date:
    """Return the local date at a number of seconds after the epoch."""
    return TimestampFromTicks(ticks).date()


def TimeFromTicks(ticks: float) -> dt.time:
    """Return the local time of day at a number of seconds after the epoch."""
    return TimestampFromTicks(ticks).time()


def TimestampFromTicks(ticks: float) -> dt.datetime:
    """Return the local time at a number of seconds after the epoch, without a zone, as a TIMESTAMP of DuckDB."""
    return dt.datetime.fromtimestamp(ticks)  # noqa: DTZ006 - PEP 249 means local time


def describe_columns(table: pa.Table) -> tuple[ColumnDescription, ...]:
    """Return the description of each column that PEP 249 defines.

    It has the name, DuckDB's name of the type, the bytes of an integer or a float, and the precision and scale of a
    DECIMAL.
    """
    import pyarrow as pa

    described = list[ColumnDescription]()
    for field in table.schema:
        kind = field.type
        if pa.types.is_decimal(kind):
            described.append((field.name, "DECIMAL", None, None, kind.precision, kind.scale, None))
            continue
        zoned = pa.types.is_timestamp(kind) and kind.tz is not None
        code = "TIMESTAMP WITH TIME ZONE" if zoned else _CODES.get(str(kind), str(kind).upper())
        size = kind.bit_width // 8 if pa.types.is_integer(kind) or pa.types.is_floating(kind) else None
        described.append((field.name, code, None, size, None, None, None))
    return tuple(described)
