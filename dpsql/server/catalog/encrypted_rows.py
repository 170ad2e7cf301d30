"""Rows of one statement, read by libpq: over TLS, which ends in libpq.

libpq takes a row whole before it can be measured, and has one format for all columns.
"""

from __future__ import annotations

import fcntl
import select
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from itertools import chain

from psycopg import pq
from psycopg.adapt import Transformer
from psycopg.pq.abc import PGconn, PGresult

from dpsql.server.catalog.connection_results import statement_error, wait_until_ready
from dpsql.server.catalog.protocol import CatalogError, Hold, Parameter
from dpsql.server.catalog.row_encoder import RowEncoder
from dpsql.server.catalog.statement_guard import MAX_BYTES, too_large_error
from dpsql.server.row_blocks import RowBlocks

__all__ = ["read_encrypted_rows"]

Values = tuple[bytes | None, ...]
_WITH_ROWS = frozenset([pq.ExecStatus.TUPLES_OK, pq.ExecStatus.TUPLES_CHUNK, pq.ExecStatus.SINGLE_TUPLE])
_WITH_CHUNKS = 170_000  # the first version of libpq that reads several rows at once
_VALUES_OF_CHUNK, _MAX_CHUNK = 4_000, 500  # values and rows that are read together, in about a millisecond
_PAUSE = 1e-5  # seconds between chunks, in which other threads run
_MAX_ROW = 1 << 20  # bytes; libpq has a buffer as large as the largest row for as long as the connection lasts
_BYTEA = 17  # the type whose values psycopg leaves as they are


def read_encrypted_rows(
    connection: PGconn, parameters: Sequence[Parameter], *, formats: Sequence[int], hold: Hold | None
) -> tuple[RowBlocks, str]:
    """Run the prepared statement without a name, and return its rows, each column in its format, and its tag.

    A statement with two formats is run twice, in one snapshot. Raises `CatalogError`, and what `hold` raises.
    """
    first, *others = sorted({*formats})
    reader = _RowReader(connection, parameters, width=len(formats))
    answer = RowEncoder(hold)
    if not others:
        for chunk in reader.run(first):
            answer.add(chunk)
        reader.close()
        return answer.finish(), reader.tag
    is_first = [code == first for code in formats]
    for chunk in reader.run(first):
        answer.add([[value if keep else b"" for value, keep in zip(row, is_first, strict=True)] for row in chunk])
    former, answer = answer.finish(), RowEncoder(hold)
    known, count = iter(former), 0
    for chunk in reader.run(others[0]):
        cells = [zip(is_first, *pair, strict=True) for pair in zip(chunk, known, strict=False)]  # known rows last more
        answer.add([[old if keep else new for keep, new, old in row] for row in cells])
        count += len(chunk)
    reader.close()
    if count != len(former):
        reason = "The statement returned other rows when it was run again, for the second format."
        raise CatalogError("0A000", reason, hint="Request one format for all columns.")
    if hold is not None:
        hold(-former.size)
    return answer.finish(), reader.tag


class _RowReader:
    """Reader of the rows of a prepared statement of `width` columns; `tag` is that of the last run."""

    def __init__(self, connection: PGconn, parameters: Sequence[Parameter], *, width: int) -> None:
        self._connection, self._width = connection, width
        self._values = [each.value for each in parameters]
        self._shapes = [int(each.is_binary) for each in parameters]
        self.tag = ""
        self._has_large = False
        self._failure: CatalogError | None = None

    def close(self) -> None:
        """Close the connection if it has read a large row."""
        if self._has_large:
            self._connection.finish()

    def run(self, code: int) -> Iterator[Sequence[Values]]:
        """Run the statement in one format, and yield chunks of its rows; a connection with unread rows is closed."""
        self._connection.send_query_prepared(b"", self._values, self._shapes, code)
        if pq.version() < _WITH_CHUNKS:
            self._connection.set_single_row_mode()
        else:
            self._connection.set_chunked_rows_mode(max(1, min(_MAX_CHUNK, _VALUES_OF_CHUNK // self._width)))
        is_read = False
        try:
            yield from self._read_chunks()
            is_read = True
            if self._failure is not None:
                raise self._failure
        finally:
            if not is_read:
                self._connection.finish()

    def _read_chunks(self) -> Iterator[Sequence[Values]]:
        while (result := _next_result(self._connection)) is not None:
            if result.status not in _WITH_ROWS:
                self._failure = statement_error(result)
                continue
            self.tag = (result.command_status or b"").decode() or self.tag
            if result.ntuples:
                rows = _split_result(result)
                self._has_large |= sum(map(len, filter(None, chain.from_iterable(rows)))) > _MAX_ROW
                yield rows
                time.sleep(_PAUSE)


def _split_result(result: PGresult) -> Sequence[Values]:
    """Return the rows of a result, each value as the bytes that were received."""
    transformer = Transformer()
    transformer.set_pgresult(result, set_loaders=False)
    transformer.set_loader_types([_BYTEA] * result.nfields, pq.Format.BINARY)
    return transformer.load_rows(0, result.ntuples, tuple)


def _next_result(connection: PGconn) -> PGresult | None:
    """Return the next result; raise `CatalogError` if much more than an answer is seen to come.

    The driver would wait for it too, and keep every other thread waiting.
    """
    received, waiting = 0, bytearray(4)
    while connection.is_busy():
        wait_until_ready(connection, select.POLLIN)
        fcntl.ioctl(connection.socket, termios.FIONREAD, waiting)
        received += int.from_bytes(waiting, sys.byteorder)
        if received > MAX_BYTES:
            raise too_large_error()
        connection.consume_input()
    return connection.get_result()
