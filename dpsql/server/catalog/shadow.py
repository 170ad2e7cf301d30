"""Catalog in a real PostgreSQL that has the tables of the policy, without rows.

Every statement runs in a transaction of its own, which is rolled back. The transaction creates the role of the user and
switches to it before it reads the statement, so that current_user is right and other users are not visible.
PostgreSQL itself shows which tables a statement names: it has a lock on each until the transaction ends.
"""

from __future__ import annotations

import select
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import psycopg
from psycopg import pq
from psycopg.pq.abc import PGconn

from dpsql.server.catalog.protocol import CatalogError, CatalogRows, Description, Hold, Parameter
from dpsql.server.catalog.row_reader import check_result, is_ready, lost_error, read_rows
from dpsql.server.catalog.statements import check_statement, is_constant, private_table_error
from dpsql.server.memory import BoundedCache, WireColumn, measure_columns

Answered = TypeVar("Answered")
_MOST_CONNECTIONS = 4
_STATEMENT_LIMIT = "10s"
_WAIT = 15.0  # seconds for a turn, or for a connection
_WAITING: dict[int, int] = {pq.PollingStatus.READING: select.POLLIN, pq.PollingStatus.WRITING: select.POLLOUT}
_FIRST_OF_USERS = 16384  # below it are the OIDs that every PostgreSQL begins with
_LOCKS = b"locks"
_LOCKED = f"""
WITH own AS (
    SELECT relation, mode FROM pg_catalog.pg_locks
    WHERE pid = pg_catalog.pg_backend_pid() AND locktype = 'relation' AND relation >= {_FIRST_OF_USERS}
)
SELECT 1 FROM own WHERE relation NOT IN (SELECT relation FROM own WHERE mode = 'AccessExclusiveLock') LIMIT 1
""".encode()  # noqa: S608 - our own number
_MAX_DESCRIPTIONS, _MAX_ANSWERS = 4 * 1024 * 1024, 32 * 1024 * 1024  # bytes of stored descriptions and answers
_OF_ENTRY, _OF_VALUE = 1_000, 100  # bytes that Python needs for an entry of a cache, and for a value in its key
_OURS = frozenset(["dpsql", "public", "none"])


class Shadow:
    """Statements over the catalogs of one PostgreSQL, each under the role of its user."""

    def __init__(self, conninfo: str, *, place: str, stop: Callable[[], None]) -> None:
        """Connect once, to check that the server answers. Raises `CatalogError`; `close` calls `stop`.

        `place` says in the message at start which server it is.
        """
        self._conninfo = conninfo
        self._stop = stop
        self._idle: list[PGconn] = []
        self._lock = threading.Lock()
        self._turns = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self._roles: dict[str, threading.Lock] = {}  # whose statement is being answered; as many as there are users
        self._closed = False
        self._descriptions = BoundedCache[Description](_MAX_DESCRIPTIONS)
        self._answers = BoundedCache[CatalogRows](_MAX_ANSWERS)
        first = connect(conninfo)
        number = first.server_version
        self.version = f"{number // 10000}.{number % 10000}"
        self.summary = f"PostgreSQL {self.version}{place}"
        self._idle.append(first)

    def find_description(self, sql: str, types: Sequence[int] = ()) -> Description | None:
        """Return the description of a statement that was described before, or None; never wait."""
        return self._descriptions.find((sql, tuple(types)))

    def find_answer(
        self, sql: str, parameters: Sequence[Parameter] = (), *, user: str, formats: Sequence[int] = ()
    ) -> CatalogRows | None:
        """Return the answer to a statement that was run before if it is still right, or None; never wait."""
        return self._answers.find((user, sql, tuple(parameters), tuple(formats)))

    def describe(
        self, sql: str, types: Sequence[int] = (), *, user: str, definitions: Sequence[str] = ()
    ) -> Description:
        """Return what one statement takes and gives. Raises `CatalogError`."""
        found = None if definitions else self.find_description(sql, types)
        if found is None:
            text = check_statement(sql)
            prepare = partial(_prepared, text=text, types=types)
            found = self._asked(user, prepare, definitions=definitions)
        if not definitions:
            size = _measure_key(sql) + _OF_VALUE * (len(types) + len(found.parameters)) + measure_columns(found.columns)
            self._descriptions.add((sql, tuple(types)), found, size=size)
        return found

    def execute(
        self,
        sql: str,
        parameters: Sequence[Parameter] = (),
        *,
        user: str,
        formats: Sequence[int] = (),
        definitions: Sequence[str] = (),
        hold: Hold | None = None,
    ) -> CatalogRows:
        """Answer one statement. Raises `CatalogError`, and what `hold` raises."""
        found = None if definitions else self.find_answer(sql, parameters, user=user, formats=formats)
        if found is not None:
            if hold is not None:
                hold(found.size)
            return found
        found = self._execute(sql, parameters, user=user, formats=formats, definitions=definitions, hold=hold)
        if not definitions and is_constant(sql, parameters):
            size = _measure_key(sql, parameters) + found.size
            self._answers.add((user, sql, tuple(parameters), tuple(formats)), found, size=size)
        return found

    def _execute(
        self,
        sql: str,
        parameters: Sequence[Parameter],
        *,
        user: str,
        formats: Sequence[int],
        definitions: Sequence[str],
        hold: Hold | None,
    ) -> CatalogRows:
        text = check_statement(sql)

        def answer(connection: PGconn) -> CatalogRows:
            columns = _prepared(connection, text, types=[each.type_oid for each in parameters]).columns
            if not {*formats} <= {0, 1} or len(formats) not in {0, 1, len(columns)}:
                raise CatalogError("08P01", "The formats of the results do not fit the columns.")
            if hold is not None:
                hold(measure_columns(columns))
            codes = tuple(formats) if len(formats) > 1 else (*formats, 0)[:1] * len(columns)
            return CatalogRows(columns, *read_rows(connection, parameters, formats=codes, hold=hold))

        return self._asked(user, answer, definitions=definitions)

    def close(self) -> None:
        """Close the idle connections, then stop the server."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.finish()
        self._stop()

    def _asked(self, user: str, act: Callable[[PGconn], Answered], *, definitions: Sequence[str] = ()) -> Answered:
        role = _role(user)
        with self._lock:
            own = self._roles.setdefault(role, threading.Lock())
        with _losing(), _turn(own), _turn(self._turns), self._connection() as connection:
            try:
                check_result(connection, connection.exec_(self._beginning(connection, role, definitions=definitions)))
                return act(connection)
            finally:
                if connection.status == pq.ConnStatus.OK:
                    connection.exec_(b"ROLLBACK")

    def _beginning(self, connection: PGconn, name: str, *, definitions: Sequence[str]) -> bytes:
        """Return the statements that begin a read-only transaction under the role of the user, after `definitions`."""
        limits = f"SET LOCAL statement_timeout = '{_STATEMENT_LIMIT}'; SET LOCAL lock_timeout = '{_STATEMENT_LIMIT}';"
        made = "".join(f"{definition};" for definition in definitions)
        begin = f"BEGIN ISOLATION LEVEL REPEATABLE READ; {limits}{made}".encode()
        role = pq.Escaping(connection).escape_identifier(name.encode())
        return (
            begin + b"CREATE ROLE " + role + b" LOGIN; SET TRANSACTION READ ONLY; SET LOCAL SESSION AUTHORIZATION "
        ) + role

    @contextmanager
    def _connection(self) -> Iterator[PGconn]:
        """Lend a connection that is in no transaction; one that a failure has left otherwise is closed."""
        with self._lock:
            if self._closed:
                raise CatalogError("57P01", "The server is stopping.")
            connection = self._idle.pop() if self._idle else None
        if connection is None or connection.exec_(b"").status != pq.ExecStatus.EMPTY_QUERY:
            connection = connect(self._conninfo)
        try:
            yield connection
        finally:
            usable = connection.transaction_status == pq.TransactionStatus.IDLE  # a closed one's is unknown
            with self._lock:
                keep = usable and not self._closed
                if keep:
                    self._idle.append(connection)
            if not keep:
                connection.finish()


@contextmanager
def _turn(gate: threading.Lock | threading.BoundedSemaphore) -> Iterator[None]:
    """Wait to be let in, so that slow statements of one keep others waiting for a bounded time."""
    if not gate.acquire(timeout=_WAIT):
        raise CatalogError("53300", "Too many statements wait for the catalog.", hint="Try again in a moment.")
    try:
        yield
    finally:
        gate.release()


@contextmanager
def _losing() -> Iterator[None]:
    """Say in our words that a connection has ended."""
    try:
        yield
    except psycopg.Error:
        raise lost_error() from None


def connect(conninfo: str) -> PGconn:
    """Return a connection. Raises `CatalogError`."""
    connection = pq.PGconn.connect_start(conninfo.encode())
    deadline = time.monotonic() + _WAIT
    wanted: int = pq.PollingStatus.FAILED
    if connection.status != pq.ConnStatus.BAD:
        wanted = connection.connect_poll()
    while wanted in _WAITING and is_ready(connection, _WAITING[wanted], seconds=deadline - time.monotonic()):
        wanted = connection.connect_poll()
    if wanted != pq.PollingStatus.OK:
        connection.finish()
        raise CatalogError("58000", "The PostgreSQL for catalogs does not answer.", hint="Try again in a moment.")
    connection.notice_handler = None
    check_result(connection, connection.prepare(_LOCKS, _LOCKED))
    return connection


def run(connection: PGconn, *statements: str) -> None:
    """Run statements of our own. Raises `CatalogError`."""
    for statement in statements:
        check_result(connection, connection.exec_(statement.encode()))


def _role(user: str) -> str:
    """Return the role of a user: their own name, unless PostgreSQL or we have another use for it."""
    known = user.encode(errors="replace").replace(b"\0", b"")[:63].decode(errors="ignore")
    return "analyst" if known in _OURS or known.startswith("pg_") or not known else known


def _prepared(connection: PGconn, text: bytes, *, types: Sequence[int]) -> Description:
    """Prepare a statement and return what it takes and gives, once it is known to return rows and to name no table."""
    check_result(connection, connection.prepare(b"", text, list(types)))
    told = check_result(connection, connection.describe_prepared(b""))
    columns = tuple(
        WireColumn((told.fname(at) or b"").decode(), told.ftype(at), told.fsize(at), told.fmod(at))
        for at in range(told.nfields)
    )
    if not columns:  # so are statements that act, which could end our transaction
        raise CatalogError("0A000", "This statement returns no column.", hint="Write what to select.")
    # by another prepared statement: a query of any other kind would forget the one without a name
    if check_result(connection, connection.exec_prepared(_LOCKS, [])).ntuples:
        raise private_table_error()
    return Description(tuple(told.param_type(at) for at in range(told.nparams)), columns)


def _measure_key(sql: str, parameters: Sequence[Parameter] = ()) -> int:
    """Return the bytes that a key of a cache holds."""
    values = sum(_OF_VALUE + len(each.value or b"") for each in parameters)
    return _OF_ENTRY + sys.getsizeof(sql) + values
