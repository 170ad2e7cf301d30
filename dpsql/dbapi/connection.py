"""A connection, which holds a session, and its cursors, which hold one answer each."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn, Self

from dpsql import errors as dpsql_errors
from dpsql.connect import connect as open_session
from dpsql.dbapi import errors
from dpsql.dbapi.errors import translates
from dpsql.dbapi.types import Described, described
from dpsql.policy import Policy

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from dpsql.answer import Answer, Receipt
    from dpsql.engines import Engine
    from dpsql.session import Session
    from dpsql.sql.syntax.parameters import ParameterValues

__all__ = ["Connection", "Cursor", "connect"]

Row = tuple[object, ...]
Messages = list[tuple[type[errors.Warning], errors.Warning]]


@translates
def connect(
    database: str | Path | duckdb.DuckDBPyConnection | Engine | SparkSession | None = None,
    *,
    policy: Policy | str | Path | None = None,
    ledger: str | Path | None = None,
    analyst: str | None = None,
    isolation: str | None = None,
) -> Connection:
    """Return a connection to what `dpsql.connect` opens, which takes the same arguments.

    Raises `OperationalError` for a policy, data or ledger that cannot be used, `ProgrammingError` for an analyst who
    may not ask, and `InterfaceError` for arguments that cannot mean anything.
    """
    return Connection(open_session(database, policy=policy, ledger=ledger, analyst=analyst, isolation=isolation))


class _Held:
    """A session, whose turn it is to ask it, and how many connections hold it: the last one closes it."""

    __slots__ = ("connections", "session", "turn")

    def __init__(self, session: Session) -> None:
        self.session = session
        self.turn = threading.Lock()
        self.connections = 1


class Connection:
    """A session as PEP 249 wants it; it closes the session.

    Threads may share it: one statement is answered at a time, so that a question that two of them ask is charged once
    and then replayed.
    """

    __slots__ = ("__weakref__", "_held", "_open")

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
        """`session` is used from here on by this connection alone."""
        self._held = _Held(session)
        self._open = True

    @property
    def session(self) -> Session:
        """The session, for what PEP 249 has no word for: `budget`, `history`, `explain`, `forecast`."""
        return self._held.session

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return not self._open

    @property
    def autocommit(self) -> Literal[True]:
        """Always true: what was charged stays charged."""
        return True

    @translates
    def another(self) -> Connection:
        """Return a further connection to the same session, also when this one is closed; the last one closes it."""
        further = Connection(self._held.session)
        with self._held.turn:
            if not self._held.connections:
                raise _closed()
            self._held.connections += 1
            further._held = self._held
        return further

    def cursor(self) -> Cursor:
        """Return a new cursor."""
        self.require_open()
        return Cursor(self)

    def execute(self, operation: str, parameters: ParameterValues | None = None) -> Cursor:
        """Return a new cursor that has executed a statement."""
        return self.cursor().execute(operation, parameters)

    def commit(self) -> None:
        """Do nothing: nothing is written, and what was charged is already durable."""
        self.require_open()

    def rollback(self) -> None:
        """Do nothing: a release cannot be taken back, nor what it cost."""
        self.require_open()

    def close(self) -> None:
        """Close the session, once no statement is running; again is no harm. Its cursors are of no further use."""
        held = self._held
        with held.turn:
            if self._open:
                self._open = False
                held.connections -= 1
                if not held.connections:
                    held.session.close()

    @translates
    def require_open(self) -> None:
        """Raise `InterfaceError` once it is closed."""
        if not self._open:
            raise _closed()

    @translates
    def ask(self, operation: str, parameters: ParameterValues) -> Answer:
        """Return the session's answer to a statement, when those of other threads are done."""
        with self._held.turn:
            self.require_open()
            return self._held.session.sql(operation, parameters)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<dpsql.dbapi.Connection, {self.session!r}>"


def _closed() -> dpsql_errors.UsageError:
    hint = "Open another with dpsql.dbapi.connect."
    return dpsql_errors.UsageError("closed", "This connection is closed.", hint=hint)


class Cursor:
    """The answer to the statement that it executed last, row by row or as a table.

    `arraysize` is how many rows `fetchmany` returns. `messages` holds a word on what the last statement cost.
    """

    __slots__ = (
        "__weakref__",
        "_answer",
        "_at",
        "_connection",
        "_described",
        "_receipt",
        "_rows",
        "arraysize",
        "messages",
    )

    def __init__(self, connection: Connection) -> None:
        self._connection: Connection | None = connection
        self._answer: Answer | None = None
        self._described: tuple[Described, ...] | None = None
        self._receipt: Receipt | None = None
        self._rows: list[Row] | None = None
        self._at = 0
        self.arraysize = 1
        self.messages: Messages = []

    @property
    def connection(self) -> Connection:
        """The connection that it was made by."""
        return self._opened()

    @property
    def answer(self) -> Answer | None:
        """The whole answer, with its receipt, error bars and plot; None before the first."""
        return self._answer

    @property
    def receipt(self) -> Receipt | None:
        """What the answer cost and what remains, also once the cursor is closed; None before the first."""
        return self._receipt

    @property
    def description(self) -> tuple[Described, ...] | None:
        """Name, type code, None, size, precision, scale and None of each column; None before the first answer."""
        return self._described

    @property
    def rowcount(self) -> int:
        """How many rows the answer has; -1 before the first."""
        return -1 if self._answer is None else len(self._answer)

    @property
    def rownumber(self) -> int | None:
        """The position of the row that is fetched next, from 0; None before the first answer."""
        return None if self._answer is None else self._at

    @property
    def lastrowid(self) -> None:
        """Always None: no row is written."""
        return

    def execute(self, operation: str, parameters: ParameterValues | None = None) -> Self:
        """Answer a statement and return this cursor; `parameters` are a sequence for ? or $1, a mapping for :name.

        Raises `ProgrammingError` for what is refused, `NotSupportedError` for what is not read yet, and
        `OperationalError` when the budget, the engine or the ledger cannot answer. What is charged when is told by
        `dpsql.Session.sql`.
        """
        connection = self._opened()
        self._take(None)
        self._receipt = None
        answer = connection.ask(operation, () if parameters is None else parameters)
        self._take(answer)
        self._receipt = answer.receipt
        self.messages.append((errors.Warning, errors.Warning(str(answer.receipt))))
        return self

    @translates
    def executemany(self, operation: str, seq_of_parameters: Sequence[ParameterValues]) -> NoReturn:
        """Raise `NotSupportedError`: there is nothing to write, and each answer is a charge to decide on."""
        self._opened()
        del operation, seq_of_parameters
        raise dpsql_errors.Unsupported(
            "executemany", "A statement is not executed many times at once.", hint="Call execute for each."
        )

    def fetchone(self) -> Row | None:
        """Return the next row, or None when there is no more."""
        rows = self.fetchmany(1)
        return rows[0] if rows else None

    def fetchmany(self, size: int | None = None) -> list[Row]:
        """Return the next `size` rows, by default `arraysize`, or as many as there are."""
        start = self._at
        rows = self._fetched()
        self._at = min(len(rows), start + max(0, self.arraysize if size is None else size))
        return rows[start : self._at]

    def fetchall(self) -> list[Row]:
        """Return the rows that were not fetched yet."""
        return self.fetchmany(self.rowcount)

    def fetch_arrow_table(self) -> pa.Table:
        """Return the rows that were not fetched yet as an Arrow table."""
        return self._rest().arrow()

    def fetch_df(self) -> pd.DataFrame:
        """Return the rows that were not fetched yet as a pandas DataFrame; needs the extra dpsql[pandas]."""
        return self._rest().df()

    def setinputsizes(self, sizes: Sequence[object]) -> None:
        """Do nothing, as PEP 249 allows."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Do nothing, as PEP 249 allows."""

    def close(self) -> None:
        """Let go of the answer; any further use but this raises `InterfaceError`."""
        self._take(None)
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

    def _take(self, answer: Answer | None) -> None:
        """Hold an answer and forget the one before, with the words on it."""
        self._answer = answer
        self._described = None if answer is None else described(answer.arrow())
        self._rows = None
        self._at = 0
        self.messages.clear()

    @translates
    def _opened(self) -> Connection:
        if self._connection is None:
            raise dpsql_errors.UsageError("closed", "This cursor is closed.", hint="Make another: connection.cursor().")
        self._connection.require_open()
        return self._connection

    @translates
    def _answered(self) -> Answer:
        self._opened()
        if self._answer is None:
            raise dpsql_errors.UsageError("no-answer", "There is nothing to fetch.", hint="Execute a statement first.")
        return self._answer

    def _fetched(self) -> list[Row]:
        """Return all rows of the answer, which become Python values when the first is wanted."""
        answer = self._answered()
        if self._rows is None:
            self._rows = answer.fetchall()
        return self._rows

    @translates
    def _rest(self) -> Answer:
        """Return the rows that were not fetched yet, which then are."""
        answer, start = self._answered(), self._at
        self._at = len(answer)
        return type(answer)(answer.arrow().slice(start), answer.receipt)
