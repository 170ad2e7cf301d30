"""Results and failures of connections to the PostgreSQL for catalogs."""

from __future__ import annotations

import select

from psycopg import pq
from psycopg.pq.abc import PGconn, PGresult

from dpsql.server.catalog.protocol import CatalogError
from dpsql.server.catalog.statement_guard import too_large_error

__all__ = ["GOOD", "check_result", "is_ready", "lost_error", "make_error", "statement_error", "wait_until_ready"]

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
