"""Why a ledger in PostgreSQL could not be opened, read or written: never a raw error of the server or of libpq."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from dpsql.errors import LedgerError

__all__ = [
    "because",
    "damaged",
    "failed",
    "missing",
    "newer",
    "not_a_ledger",
    "not_durable",
    "read_only",
    "rolled_back",
]
__all__ += ["sealed", "unknown", "unreachable"]

_WAITED = {"55P03", "57014", "40001", "40P01"}  # a lock or a statement timed out, or the server broke a deadlock
_FORBIDDEN = {"25006", "42501"}
_FULL = {"53100"}
_STRANGE = {"XX001", "XX002", "P0001", "23505", "23514"}  # broken pages, our own triggers and constraints
_NOTHING_THERE = {"3F000", "42P01"}
_GONE = ("08", "57P", "53300", "25P03")


def because(error: psycopg.Error) -> LedgerError:
    """Return the error for one of the server's or the connection's."""
    state = error.sqlstate
    if state is None:
        return unreachable() if isinstance(error, psycopg.OperationalError) else failed()
    if state in _WAITED:
        return LedgerError(
            "ledger-busy",
            "Another program locked the ledger for too long.",
            hint="Try again, or look in pg_stat_activity for a transaction that does not end.",
        )
    if state in _FORBIDDEN:
        return read_only()
    if state in _FULL:
        hint = "Make room, then ask again."
        return LedgerError("ledger-disk-full", "The disk under the ledger is full.", hint=hint)
    if state in _STRANGE:
        return damaged()
    if state in _NOTHING_THERE:
        return missing()
    return unreachable() if state.startswith(_GONE) else failed()


@contextmanager
def sealed() -> Iterator[None]:
    """Turn every error of psycopg inside into a LedgerError."""
    try:
        yield
    except psycopg.Error as error:
        raise because(error) from error


def damaged() -> LedgerError:
    """Return the error of a ledger that says what dpsql never writes."""
    return LedgerError(
        "ledger-damaged",
        "The ledger holds what dpsql did not write.",
        hint="Keep the schema and settle by hand what was spent; an older copy would give spent budget back.",
    )


def missing() -> LedgerError:
    """Return the error of a ledger that is not there."""
    return LedgerError(
        "ledger-missing",
        "There is no ledger here, or this role may not see it.",
        hint="Name the database and the schema that the policy names, and grant USAGE on the schema.",
    )


def newer(version: int, known: int) -> LedgerError:
    """Return the error of tables that this dpsql does not know."""
    return LedgerError(
        "ledger-newer",
        f"The ledger has version {version} and this dpsql knows only up to {known}.",
        hint="Install the dpsql that wrote it, or a newer one.",
    )


def not_a_ledger() -> LedgerError:
    """Return the error of a schema that holds something else."""
    return LedgerError(
        "not-a-ledger",
        "The schema holds something else than a ledger of dpsql.",
        hint="Name another schema, or one that does not exist yet.",
    )


def not_durable(setting: str) -> LedgerError:
    """Return the error of a server on which a commit may be lost."""
    return LedgerError(
        "ledger-not-durable",
        f"What is spent could be lost here: the server runs with {setting} = off.",
        hint="Switch it on, or put the ledger on a server with durable commits.",
    )


def read_only() -> LedgerError:
    """Return the error of a ledger that this role may not write, or that is written elsewhere."""
    return LedgerError(
        "ledger-read-only",
        "The ledger cannot be written here.",
        hint="Connect to the primary server, with a role that docs/reference/ledger.md describes.",
    )


def rolled_back() -> LedgerError:
    """Return the error of a database that is behind what this process saw of it."""
    return LedgerError(
        "ledger-rolled-back",
        "The ledger is older than it was, or another ledger: what was spent since is missing from it.",
        hint="A backup was restored, or a standby took over that had not all of it; put the newest copy back.",
    )


def unknown() -> LedgerError:
    """Return the error for a commit whose outcome is unknown."""
    return LedgerError(
        "ledger-unconfirmed",
        "The connection was lost during a commit, and whether the ledger recorded it is not known.",
        hint="Connect again. Before you repeat a grant or an increment, look whether dpsql ledger export lists it.",
    )


def unreachable() -> LedgerError:
    """Return the error of a server that does not answer."""
    return LedgerError(
        "ledger-unreachable",
        "The database of the ledger cannot be reached, or ended the connection.",
        hint="Look at the address, the server and the password; psql with the same address says more.",
    )


def failed() -> LedgerError:
    """Return the error of whatever else happens to a server."""
    return LedgerError(
        "ledger-failed",
        "The ledger could not be read or written.",
        hint="Look into the log of the server.",
    )
