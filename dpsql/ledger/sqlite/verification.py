"""Whether a ledger's file says what its history says; nothing here writes."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from dpsql.errors import LedgerError
from dpsql.ledger.checkpoint import decode_checkpoint
from dpsql.ledger.record import Terms
from dpsql.ledger.replay import Replay, Sums
from dpsql.ledger.sqlite import file as sqlite_file
from dpsql.ledger.sqlite import schema
from dpsql.ledger.sqlite.errors import damaged, sealed
from dpsql.ledger.sqlite.sidecars import Sidecars, rolled_back
from dpsql.ledger.sqlite.transaction import Rows
from dpsql.ledger.verification import Mark, Verified, is_behind, replayed, verify_rows

__all__ = ["check", "hold_against", "missing", "refuse_missing", "verify", "verify_file"]


def verify(path: Path | str) -> Verified:
    """Check everything in the ledger at `path`, without changing it, while others may write to it.

    Raises `ledger-tampered` naming the first event that does not fit, `ledger-rolled-back`, or what opening raises.
    """
    file = Path(path).absolute()
    refuse_missing(file)
    beside = Sidecars(file)
    mark, checkpoint = (
        beside.read_mark(),
        decode_checkpoint(beside.read_checkpoint()),
    )  # before the file, which only ever goes on
    before = beside.identify_rest()
    if before is not None:  # no process has it open, and reading it need not create a log beside it
        found, failure = None, None
        try:
            found = verify_file(file, mark, checkpoint=checkpoint, mode="ro&immutable=1")
        except LedgerError as error:
            failure = error
        if beside.identify_rest() == before:
            if found is not None:
                return found
            if failure is not None:
                raise failure
    return verify_file(file, mark, checkpoint=checkpoint, mode="ro")


def verify_file(file: Path, mark: Mark | None, *, checkpoint: Sums | None = None, mode: str) -> Verified:
    """Check everything in a file that came at least to its mark, opened in one of the modes of SQLite's addresses."""
    with closing(sqlite_file.connect(file, mode)) as connection, sealed(), sqlite_file.snapshot(connection):
        if schema.is_blank(connection):
            raise missing()
        if schema.read_version(connection) == 1:
            raise LedgerError(
                "ledger-older",
                "The ledger has the tables of an earlier version, which had no chain to verify.",
                hint="Open it once with this version of dpsql, which upgrades it in place.",
            )
        rows = _whole(connection)
        replay, terms = verify_rows(rows, checkpoint)
        hold_against(mark, rows, data_set=terms.data_set)
        if connection.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
            raise damaged()
    return Verified(replay.seq, replay.chain)


def check(connection: sqlite3.Connection, mark: Mark | None, *, checkpoint: Sums | None) -> tuple[Replay, Terms]:
    """Return what a file adds up to whose tables, chain and balances fit, and that came at least to its mark."""
    rows = _whole(connection)
    replay, terms = replayed(rows, checkpoint)
    hold_against(mark, rows, data_set=terms.data_set)
    return replay, terms


def _whole(connection: sqlite3.Connection) -> Rows:
    if not schema.is_whole(connection):
        raise damaged()
    return Rows(connection)


def hold_against(mark: Mark | None, rows: Rows, *, data_set: str) -> None:
    """Raise `ledger-rolled-back` if the file never came to what its mark says."""
    if mark is not None and is_behind(rows, mark, data_set=data_set):
        raise rolled_back()


def refuse_missing(path: Path) -> None:
    """Raise `ledger-missing` if there is nothing at `path`."""
    try:
        path.stat()
    except FileNotFoundError as error:
        raise missing() from error
    except (OSError, ValueError):  # the opening has a better error
        return


def missing() -> LedgerError:
    """Return the error of a ledger that is not there."""
    return LedgerError("ledger-missing", "There is no ledger here.", hint="Name the file that the policy names.")
