"""Rows of one statement, read from the socket of a connection as PostgreSQL sends them, which is how they are held.

libpq connects and prepares. It would take a row whole before it can be measured, and copy each value. What the rows of
an answer hold is counted and limited while they are read.
"""

from __future__ import annotations

import os
import select
import struct
import time
from collections.abc import Sequence

from psycopg import pq
from psycopg.pq.abc import PGconn, PGresult

from dpsql.server.catalog.protocol import CatalogError, Hold, Parameter
from dpsql.server.catalog.statements import MAX_BYTES, MAX_ROWS, too_large_error
from dpsql.server.memory import RowBlocks, RowWriter

_LONGEST = 30.0  # seconds for what PostgreSQL should have ended itself
GOOD = frozenset([pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK])
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
        raise statement_error(result) if connection.status == pq.ConnStatus.OK else lost_error()
    return result


def statement_error(result: PGresult) -> CatalogError:
    """Return the error of a failed result."""

    def read(part: pq.DiagnosticField) -> str:
        return (result.error_field(part) or b"").decode(errors="replace")

    return make_error(
        read(pq.DiagnosticField.SQLSTATE),
        read(pq.DiagnosticField.MESSAGE_PRIMARY),
        hint=read(pq.DiagnosticField.MESSAGE_HINT),
        position=read(pq.DiagnosticField.STATEMENT_POSITION),
    )


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


class RowEncoder:
    """Encoder of the rows of an answer; `count` is the number of rows that were read."""

    def __init__(self, hold: Hold | None) -> None:
        self._writer, self._hold, self._held = RowWriter(), hold, 0
        self.count = 0

    def add(self, rows: Sequence[Sequence[bytes | None]]) -> None:
        """Encode rows; raise `CatalogError` beyond the limits of an answer."""
        for row in rows:
            self._writer.add(row)
        self._count(len(rows))

    def extend(self, messages: memoryview, ends: Sequence[int]) -> None:
        """Add messages of rows, and the position behind each; raise as `add` does."""
        self._writer.extend(messages, ends)
        self._count(len(ends))

    def check_room(self, size: int) -> None:
        """Raise `CatalogError` for a row of so many bytes that the answer would exceed its limit."""
        if self._writer.size + size > MAX_BYTES:
            raise too_large_error()

    def finish(self) -> RowBlocks:
        """Return all rows."""
        rows = self._writer.finish()
        self._hold_size(rows.size)
        return rows

    def _count(self, count: int) -> None:
        self.count += count
        if self._writer.size > MAX_BYTES or self.count > MAX_ROWS:
            raise too_large_error()
        self._hold_size(self._writer.size)

    def _hold_size(self, size: int) -> None:
        if self._hold is not None:
            self._hold(size - self._held)
        self._held = size


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
    reader = _RowReader(connection, RowEncoder(hold))
    try:
        _send(connection, _bind_message(parameters, formats) + _EXECUTE)
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
    return reader.rows.finish(), reader.tag


class _RowReader:
    """Reader of the messages that answer Bind, Execute and Sync."""

    def __init__(self, connection: PGconn, rows: RowEncoder) -> None:
        self._connection, self.rows = connection, rows
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
                    self.rows.check_room(size)
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
        if ends:
            with memoryview(self._data) as data, data[start : start + ends[-1]] as messages:
                self.rows.extend(messages, ends)

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


def _bind_message(parameters: Sequence[Parameter], formats: Sequence[int]) -> bytes:
    """Return the message that binds values to the statement without a name."""
    parts = [bytes(2), _pack_codes([int(each.is_binary) for each in parameters]), struct.pack("!H", len(parameters))]
    for each in parameters:
        parts += [struct.pack("!i", -1 if each.value is None else len(each.value)), each.value or b""]
    content = b"".join([*parts, _pack_codes(formats)])
    return _HEAD.pack(b"B", len(content) + 4) + content


def _pack_codes(codes: Sequence[int]) -> bytes:
    return struct.pack(f"!H{len(codes)}H", len(codes), *codes)


def _send(connection: PGconn, message: bytes) -> None:
    sent = 0
    while sent < len(message):
        wait_until_ready(connection, select.POLLOUT)
        sent += os.write(connection.socket, message[sent : sent + _CHUNK])
