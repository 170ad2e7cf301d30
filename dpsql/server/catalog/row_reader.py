"""Rows of one statement, read from the socket of a connection as PostgreSQL sends them, which is how they are held.

libpq connects and prepares. It would take a row whole before it can be measured, and copy each value.
"""

from __future__ import annotations

import os
import select
import struct
import time
from collections.abc import Sequence

from psycopg.pq.abc import PGconn

from dpsql.server.catalog.connection_results import lost_error, make_error, wait_until_ready
from dpsql.server.catalog.encrypted_rows import read_encrypted_rows
from dpsql.server.catalog.protocol import CatalogError, Hold, Parameter
from dpsql.server.catalog.row_encoder import RowEncoder
from dpsql.server.row_blocks import RowBlocks

__all__ = ["read_rows"]

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
    if connection.ssl_in_use:
        return read_encrypted_rows(connection, parameters, formats=formats, hold=hold)
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
