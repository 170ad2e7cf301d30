"""The server under a ledger: a connection that is known to keep what it commits, and transactions that end in time.

READ COMMITTED is the level for writers, under a lock that each takes first: every statement after the lock sees all
that was committed before it. A level with one snapshot would take it before waiting for the lock, and then see stale
balances, or fail. Readers take one snapshot of all they look at.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from dpsql.ledger.postgres.errors import because, not_durable, read_only, unknown, unreachable
from dpsql.policy import DatabaseUrl

__all__ = ["READING", "WRITING", "Connection", "begin", "connected", "is_idle", "read_snapshot", "refuse_unsafe"]
__all__ += ["until_committed"]

Connection = psycopg.Connection[tuple[Any, ...]]
WRITING = "READ COMMITTED"
READING = "REPEATABLE READ READ ONLY"
WAIT = 30.0  # seconds; a commit takes milliseconds, so this is a queue of thousands

_LONGEST = {WRITING: 2, READING: 20}  # times WAIT

# A host that vanished is noticed within about WAIT. The address may say otherwise.
_DEFAULTS = {
    "application_name": "dpsql",
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "4",
    "tcp_user_timeout": "30000",
}


def connected(url: DatabaseUrl) -> Connection:
    """Open a connection of our own; one attempt. No statement is prepared, so that a pooler may stand between."""
    try:
        given = conninfo_to_dict(url.target)
        others = {name: value for name, value in _DEFAULTS.items() if name not in given}
        target = make_conninfo(url.target, **others, client_encoding="UTF8")
        return psycopg.connect(target, autocommit=True, prepare_threshold=None)
    except psycopg.Error:  # its words may quote the address
        failure = unreachable()
    raise failure


def refuse_unsafe(connection: Connection) -> None:
    """Raise `ledger-read-only` on a standby, `ledger-not-durable` if a crash may lose or tear what was committed."""
    row = connection.execute(
        "SELECT pg_is_in_recovery(), current_setting('fsync'), current_setting('full_page_writes')"
    ).fetchone()
    in_recovery, *flushed = row or (True,)
    if in_recovery:
        raise read_only()
    for setting, value in zip(("fsync", "full_page_writes"), flushed, strict=True):
        if value != "on":
            raise not_durable(setting)


def is_idle(connection: Connection) -> bool:
    """Say whether a connection is alive, as far as is known, and in no transaction that someone left open."""
    return connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


def read_snapshot(connection: Connection) -> str:
    """Return the transactions that a statement sees now, as a text that changes with every commit to the database."""
    with _patience(connection, WAIT):
        row = connection.execute(
            "SELECT pg_backend_pid(), pg_postmaster_start_time(), pg_current_snapshot()"
        ).fetchone()
    return " ".join(map(str, row or ()))


def begin(connection: Connection, level: str, *, schema: str) -> None:
    """Begin a short transaction whose commit is on the disk when it returns.

    A process that stalls within it loses the transaction and its lock.
    """
    limits = {"lock_timeout": WAIT, "statement_timeout": 1.5 * WAIT, "idle_in_transaction_session_timeout": WAIT / 2}
    settings = {
        "synchronous_commit": "on",
        "search_path": f'"{schema}", pg_temp',  # a schema's name is checked where it is read
        **{name: str(max(1, round(seconds * 1000))) for name, seconds in limits.items()},
    }
    told = "; ".join(f"SET LOCAL {name} = {value}" for name, value in settings.items())
    with _patience(connection, WAIT):
        connection.execute(f"BEGIN ISOLATION LEVEL {level}; {told}")


@contextmanager
def until_committed(connection: Connection, level: str) -> Iterator[None]:
    """Commit when the body ends, undo it if anything is raised; a connection that can do neither is closed."""
    with _patience(connection, _LONGEST[level] * WAIT):
        yield from _until_committed(connection)


def _until_committed(connection: Connection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        try:
            connection.execute("ROLLBACK")
        except BaseException as error:
            connection.close()  # the server then undoes it
            if not isinstance(error, psycopg.Error):
                raise
        raise
    _commit(connection)


def _commit(connection: Connection) -> None:
    """Commit, once; raise `ledger-unconfirmed` unless the server said that it is done, or that it is not."""
    warned: list[str] = []

    def hear(notice: psycopg.errors.Diagnostic) -> None:
        warned.append(notice.severity_nonlocalized or "")

    connection.add_notice_handler(hear)
    done: str | None = None
    try:
        done = connection.execute("COMMIT").statusmessage
    except psycopg.Error as error:
        if error.diag.severity_nonlocalized == "ERROR":  # and not FATAL: the server is there, and undid it
            raise because(error) from error
        connection.close()
    finally:
        connection.remove_notice_handler(hear)
    # a warning: the wait for a standby was cut short, which has the server say that all is done
    if done != "COMMIT" or "WARNING" in warned:
        raise unknown()


@contextmanager
def _patience(connection: Connection, seconds: float) -> Iterator[None]:
    """Close the connection of a body that takes longer: no timeout of the server ends a commit.

    A commit may wait for a missing standby, and a stalled server enforces no timeout.
    """
    timer = threading.Timer(seconds, _hang_up, (connection,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # it must not meet the next who gets this descriptor


def _hang_up(connection: Connection) -> None:
    with suppress(OSError, psycopg.Error):
        line = socket.socket(fileno=connection.fileno())
        try:
            line.shutdown(socket.SHUT_RDWR)
        finally:
            line.detach()
