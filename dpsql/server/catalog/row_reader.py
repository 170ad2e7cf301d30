"""Reader of the rows of one statement: in blocks, so that neither libpq nor Python ever holds more than the limits."""

from __future__ import annotations

import fcntl
import select
import sys
import termios
import time
from collections.abc import Iterator, Sequence

from psycopg import pq
from psycopg.adapt import Transformer
from psycopg.pq.abc import PGconn, PGresult

from dpsql.server.catalog.query_result import CatalogError, Hold, Parameter
from dpsql.server.catalog.statement_guard import MAX_BYTES, MAX_ROWS, too_large_error
from dpsql.server.row_blocks import RowBlocks, RowWriter

__all__ = ["check_result", "is_ready", "lost_error", "read_rows"]

Values = tuple[bytes | None, ...]
_LONGEST = 30.0  # seconds for what PostgreSQL should have ended itself
_GOOD = frozenset([pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK])
_WITH_ROWS = frozenset([pq.ExecStatus.TUPLES_OK, pq.ExecStatus.TUPLES_CHUNK, pq.ExecStatus.SINGLE_TUPLE])
_TOO_MUCH = frozenset(["53400", "53200"])
_WITH_CHUNKS = 170_000  # the first version of libpq that reads several rows at once
_VALUES_OF_CHUNK, _MAX_CHUNK = 4_000, 500  # values and rows that are read together, in about a millisecond
_PAUSE = 1e-5  # seconds between chunks, in which other threads run
_MAX_ROW = 1 << 20  # bytes; libpq keeps a buffer of the largest row for as long as the connection lasts
_BYTEA = 17  # the type whose values psycopg leaves as they are


def read_rows(
    connection: PGconn, parameters: Sequence[Parameter], *, formats: Sequence[int], hold: Hold | None
) -> tuple[RowBlocks, str]:
    """Run the prepared statement without a name, and return its rows, each column in its format, and its tag.

    libpq has one format for all columns, so a statement with two is run twice, in one snapshot. Raises `CatalogError`,
    and what `hold` raises.
    """
    first, *others = sorted({*formats})
    reader = _RowReader(connection, parameters, width=len(formats))
    answer = _Encoder(hold)
    if not others:
        for chunk in reader.run(first):
            answer.add(chunk)
        return answer.finish(), reader.tag
    is_first = [code == first for code in formats]
    for chunk in reader.run(first):
        answer.add([[value if keep else b"" for value, keep in zip(row, is_first, strict=True)] for row in chunk])
    former, answer = answer.finish(), _Encoder(hold)
    known = iter(former)
    for chunk in reader.run(others[0]):
        cells = [zip(is_first, *pair, strict=True) for pair in zip(known, chunk, strict=False)]
        answer.add([[old if keep else new for keep, old, new in row] for row in cells], count=len(chunk))
    if answer.count != len(former):
        reason = "The statement returned other rows when it was run again, for the second format."
        raise CatalogError("0A000", reason, hint="Request one format for all columns.")
    if hold is not None:
        hold(-former.size)
    return answer.finish(), reader.tag


class _Encoder:
    """Encoder of the rows of an answer, which counts what they hold."""

    def __init__(self, hold: Hold | None) -> None:
        self._writer, self._hold, self._held = RowWriter(), hold, 0
        self.count = 0

    def add(self, rows: Sequence[Sequence[bytes | None]], *, count: int | None = None) -> None:
        """Encode rows, which were read as `count` rows; raise `CatalogError` beyond the limits of an answer."""
        for row in rows:
            self._writer.add(row)
        self.count += len(rows) if count is None else count
        if self._writer.size > MAX_BYTES or self.count > MAX_ROWS:
            raise too_large_error()
        self._hold_size(self._writer.size)

    def finish(self) -> RowBlocks:
        """Return all rows."""
        rows = self._writer.finish()
        self._hold_size(rows.size)
        return rows

    def _hold_size(self, size: int) -> None:
        if self._hold is not None:
            self._hold(size - self._held)
        self._held = size


class _RowReader:
    """Reader of the rows of a prepared statement of `width` columns; `tag` is that of the last run."""

    def __init__(self, connection: PGconn, parameters: Sequence[Parameter], *, width: int) -> None:
        self._connection, self._width = connection, width
        self._values = [each.value for each in parameters]
        self._shapes = [int(each.is_binary) for each in parameters]
        self.tag = ""

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
        finally:
            if not is_read:
                self._connection.finish()

    def _read_chunks(self) -> Iterator[Sequence[Values]]:
        failure, largest = None, 0
        while True:
            result, received = _next_result(self._connection)
            if result is None:
                break
            largest = max(largest, received)
            if result.status not in _WITH_ROWS:
                failure = _statement_error(result)
                continue
            self.tag = (result.command_status or b"").decode() or self.tag
            if result.ntuples:
                yield _split_result(result)
                time.sleep(_PAUSE)
        if largest > _MAX_ROW:
            self._connection.finish()
        if failure is not None:
            raise failure


def _split_result(result: PGresult) -> Sequence[Values]:
    """Return the rows of a result, each value as the bytes that were received."""
    transformer = Transformer()
    transformer.set_pgresult(result, set_loaders=False)
    transformer.set_loader_types([_BYTEA] * result.nfields, pq.Format.BINARY)
    return transformer.load_rows(0, result.ntuples, tuple)


def _next_result(connection: PGconn) -> tuple[PGresult | None, int]:
    """Return the next result, and the bytes that were received for it, or few less; raise `CatalogError` for too many.

    The driver would wait for it too, and keep every other thread waiting.
    """
    received, waiting = 0, bytearray(4)
    while connection.is_busy():
        if not is_ready(connection, select.POLLIN, seconds=_LONGEST):
            connection.finish()
            raise lost_error()
        fcntl.ioctl(connection.socket, termios.FIONREAD, waiting)
        received += int.from_bytes(waiting, sys.byteorder)
        if received > MAX_BYTES:
            raise too_large_error()
        connection.consume_input()
    return connection.get_result(), received


def is_ready(connection: PGconn, event: int, *, seconds: float) -> bool:
    """Wait until the socket of a connection is ready, and say whether it is."""
    waiting = select.poll()
    waiting.register(connection.socket, event)
    return bool(waiting.poll(max(0.0, seconds) * 1000))


def check_result(connection: PGconn, result: PGresult) -> PGresult:
    """Return a result; raise `CatalogError` for the failure of a statement or of the connection."""
    if result.status not in _GOOD:
        raise _statement_error(result) if connection.status == pq.ConnStatus.OK else lost_error()
    return result


def _statement_error(result: PGresult) -> CatalogError:
    """Return what PostgreSQL says of a statement; it has no rows that its words could quote."""

    def said(part: pq.DiagnosticField) -> str:
        return (result.error_field(part) or b"").decode(errors="replace")

    state = said(pq.DiagnosticField.SQLSTATE)
    if not state:
        return lost_error()
    if state in _TOO_MUCH:  # in the words of the wire the first of them means the budget
        return too_large_error()
    position = said(pq.DiagnosticField.STATEMENT_POSITION)
    return CatalogError(
        state,
        said(pq.DiagnosticField.MESSAGE_PRIMARY),
        hint=said(pq.DiagnosticField.MESSAGE_HINT),
        position=int(position) if position.isdecimal() else None,
    )


def lost_error() -> CatalogError:
    """Return the error for a connection that has ended."""
    return CatalogError("58000", "The PostgreSQL for catalogs has stopped.", hint="Try again in a moment.")
