"""Catalog in a real PostgreSQL that has the tables of the policy, without rows.

Every statement runs in a transaction of its own, which is rolled back. The transaction creates the role of the user and
switches to it before it reads the statement, so that current_user is right and other users are not visible.
PostgreSQL itself shows which tables a statement names: it has a lock on each until the transaction ends.

libpq connects and prepares. It would take a row whole before it can be measured, and copy each value, so rows are read
from the socket of the connection as PostgreSQL sends them, which is how they are held. What the rows of an answer hold
is counted and limited while they are read.
"""

from __future__ import annotations

import os
import select
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import psycopg
from psycopg import pq
from psycopg.pq.abc import PGconn, PGresult

from dpsql.server.catalog.statements import (
    MAX_BYTES,
    MAX_ROWS,
    check_statement,
    is_constant,
    private_table_error,
    too_large_error,
)
from dpsql.server.catalog.system_catalog import CatalogError, CatalogRows, Description, Hold, Parameter
from dpsql.server.memory import BoundedCache, RowBlocks, RowWriter, WireColumn, measure_columns

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
        text = check_statement(sql)

        def answer(connection: PGconn) -> CatalogRows:
            columns = _prepared(connection, text, types=[each.type_oid for each in parameters]).columns
            if not {*formats} <= {0, 1} or len(formats) not in {0, 1, len(columns)}:
                raise CatalogError("08P01", "The formats of the results do not fit the columns.")
            if hold is not None:
                hold(measure_columns(columns))
            codes = tuple(formats) if len(formats) > 1 else (*formats, 0)[:1] * len(columns)
            return CatalogRows(columns, *read_rows(connection, parameters, formats=codes, hold=hold))

        found = self._asked(user, answer, definitions=definitions)
        if not definitions and is_constant(sql, parameters):
            size = _measure_key(sql, parameters) + found.size
            self._answers.add((user, sql, tuple(parameters), tuple(formats)), found, size=size)
        return found

    def close(self) -> None:
        """Close the idle connections, then stop the server."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.finish()
        self._stop()

    def _asked(self, user: str, act: Callable[[PGconn], Answered], *, definitions: Sequence[str] = ()) -> Answered:
        """Return the result of an act in a read-only transaction under the role of the user, after `definitions`."""
        known = user.encode(errors="replace").replace(b"\0", b"")[:63].decode(errors="ignore")
        is_usable = known and known not in _OURS and not known.startswith("pg_")
        name = known if is_usable else "analyst"  # PostgreSQL or we have another use for it
        limits = f"SET LOCAL statement_timeout = '{_STATEMENT_LIMIT}'; SET LOCAL lock_timeout = '{_STATEMENT_LIMIT}';"
        begin = f"BEGIN ISOLATION LEVEL REPEATABLE READ; {limits}{''.join(f'{each};' for each in definitions)}"
        with self._lock:
            own = self._roles.setdefault(name, threading.Lock())
        try:
            with _turn(own), _turn(self._turns), self._connection() as connection:
                role = pq.Escaping(connection).escape_identifier(name.encode())
                switch = b"LOGIN; SET TRANSACTION READ ONLY; SET LOCAL SESSION AUTHORIZATION " + role
                try:
                    started = connection.exec_(begin.encode() + b"CREATE ROLE " + role + b" " + switch)
                    check_result(connection, started)
                    return act(connection)
                finally:
                    if connection.status == pq.ConnStatus.OK:
                        connection.exec_(b"ROLLBACK")
        except psycopg.Error:
            raise lost_error() from None

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


_LONGEST = 30.0  # seconds for what PostgreSQL should have ended itself
GOOD = frozenset([pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK])
_ERROR_FIELDS = (
    pq.DiagnosticField.SQLSTATE,
    pq.DiagnosticField.MESSAGE_PRIMARY,
    pq.DiagnosticField.MESSAGE_HINT,
    pq.DiagnosticField.STATEMENT_POSITION,
)
_TOO_MUCH = frozenset(["53400", "53200"])


def is_ready(connection: PGconn, event: int, *, seconds: float) -> bool:
    """Wait until the socket of a connection is ready, and say whether it is."""
    waiting = select.poll()
    waiting.register(connection.socket, event)
    return bool(waiting.poll(max(0.0, seconds) * 1000))


def wait_until_ready(connection: PGconn, event: int) -> None:
    """Wait until the socket of a connection is ready; close it and raise `CatalogError` if that takes too long."""
    if not is_ready(connection, event, seconds=_LONGEST):
        connection.finish()
        raise lost_error()


def check_result(connection: PGconn, result: PGresult) -> PGresult:
    """Return a result; raise `CatalogError` for the failure of a statement or of the connection."""
    if result.status not in GOOD:
        if connection.status != pq.ConnStatus.OK:
            raise lost_error()
        state, message, hint, position = (
            (result.error_field(part) or b"").decode(errors="replace") for part in _ERROR_FIELDS
        )
        raise make_error(state, message, hint=hint, position=position)
    return result


def make_error(state: str, message: str, *, hint: str, position: str) -> CatalogError:
    """Return what PostgreSQL says of a statement; it has no rows that its words could quote."""
    if not state:
        return lost_error()
    if state in _TOO_MUCH:  # in the words of the wire the first of them means the budget
        return too_large_error()
    return CatalogError(state, message, hint=hint, position=int(position) if position.isdecimal() else None)


def lost_error() -> CatalogError:
    """Return the error for a connection that has ended."""
    return CatalogError("58000", "The PostgreSQL for catalogs has stopped.", hint="Try again in a moment.")


_CHUNK = 64 * 1024  # bytes that are read together
_PAUSE = 1e-5  # seconds between chunks, in which other threads run
_HEAD = struct.Struct("!ci")
_MIN_LENGTH = 4  # of a message, which counts itself
_EXECUTE = _HEAD.pack(b"E", 9) + bytes(5) + _HEAD.pack(b"S", 4)  # all rows of the portal without a name; and Sync


def read_rows(
    connection: PGconn, parameters: Sequence[Parameter], *, formats: Sequence[int], hold: Hold | None
) -> tuple[RowBlocks, str]:
    """Run the prepared statement without a name, and return its rows, each column in its format, and its tag.

    A connection whose rows were not all read is closed. Raises `CatalogError`, and what `hold` raises.
    """
    reader = _RowReader(connection, hold)
    parts = [bytes(2), _pack_codes([int(each.is_binary) for each in parameters]), struct.pack("!H", len(parameters))]
    for each in parameters:
        parts += [struct.pack("!i", -1 if each.value is None else len(each.value)), each.value or b""]
    bind = b"".join([*parts, _pack_codes(formats)])  # values to the statement without a name
    message, sent = _HEAD.pack(b"B", len(bind) + 4) + bind + _EXECUTE, 0
    try:
        while sent < len(message):
            wait_until_ready(connection, select.POLLOUT)
            sent += os.write(connection.socket, message[sent : sent + _CHUNK])
        while not reader.is_complete:
            reader.read()
            time.sleep(_PAUSE)
    except OSError:
        raise lost_error() from None
    finally:
        if not reader.is_complete:
            connection.finish()
    if reader.failure is not None:
        raise reader.failure
    return reader.finish(), reader.tag


def _pack_codes(codes: Sequence[int]) -> bytes:
    return struct.pack(f"!H{len(codes)}H", len(codes), *codes)


class _RowReader:
    """Reader of the messages that answer Bind, Execute and Sync."""

    def __init__(self, connection: PGconn, hold: Hold | None) -> None:
        self._connection, self._hold, self._held = connection, hold, 0
        self._writer, self._count = RowWriter(), 0
        self._data = bytearray()
        self.tag = ""
        self.failure: CatalogError | None = None
        self.is_complete = False

    def read(self) -> None:
        """Read what has arrived; raise `CatalogError` if the connection has ended, or for too many rows."""
        wait_until_ready(self._connection, select.POLLIN)
        received = os.read(self._connection.socket, _CHUNK)
        if not received:
            raise lost_error()
        data = self._data
        data += received
        at = start = 0
        ends = list[int]()  # of rows that follow each other, from `start` on
        while len(data) - at >= _HEAD.size:
            kind, size = _HEAD.unpack_from(data, at)
            if size < _MIN_LENGTH:
                raise lost_error()
            stop = at + size + 1
            if kind == b"D":
                if stop > len(data):
                    if self._writer.size + size > MAX_BYTES:  # before all of a long row is read
                        raise too_large_error()
                    break
                ends.append(stop - start)
            elif stop > len(data):
                break
            else:
                self._add_rows(start, ends)
                self._read_message(kind, bytes(data[at + _HEAD.size : stop]))
                ends, start = [], stop
            at = stop
        self._add_rows(start, ends)
        del data[:at]

    def _add_rows(self, start: int, ends: Sequence[int]) -> None:
        """Add rows, by the position behind each; raise `CatalogError` beyond the limits of an answer."""
        if not ends:
            return
        with memoryview(self._data) as data, data[start : start + ends[-1]] as messages:
            self._writer.extend(messages, ends)
        self._count += len(ends)
        if self._writer.size > MAX_BYTES or self._count > MAX_ROWS:
            raise too_large_error()
        self._hold_size(self._writer.size)

    def _read_message(self, kind: bytes, content: bytes) -> None:
        if kind == b"C":
            self.tag = content.rstrip(b"\0").decode()
        elif kind == b"E":
            fields = {part[:1]: part[1:].decode(errors="replace") for part in content.split(b"\0")}
            self.failure = make_error(
                fields.get(b"C", ""), fields.get(b"M", ""), hint=fields.get(b"H", ""), position=fields.get(b"P", "")
            )
        elif kind == b"Z":
            self.is_complete = True

    def finish(self) -> RowBlocks:
        """Return all rows."""
        rows = self._writer.finish()
        self._hold_size(rows.size)
        return rows

    def _hold_size(self, size: int) -> None:
        if self._hold is not None:
            self._hold(size - self._held)
        self._held = size
