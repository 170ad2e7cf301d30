"""A durable ledger in one SQLite file, shared by all threads and processes of one machine.

The balance stands in one row and changes in the same transaction as the entry that explains it. Numbers are exact
fractions as text, "numerator/denominator"; SQLite never calculates with them.
"""

from __future__ import annotations

import os
import re
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

from dpsql.accounting import ZCDP, ApproximateDP, Filter, FilterState
from dpsql.errors import LedgerError, UsageError
from dpsql.ledger import sqlite_file
from dpsql.ledger.base import Entry, Held, Reservation, Settlement, admit, balance_of, closed, forked, twice
from dpsql.ledger.sqlite_file import damaged
from dpsql.quantities import Delta, Rho

__all__ = ["SQLiteLedger"]

_DIGITS = 300  # longest numerator or denominator; above it a float overflows in messages, and int() itself refuses
_FRACTION = re.compile(rf"(\d{{1,{_DIGITS}}})/([1-9]\d{{0,{_DIGITS - 1}}})", re.ASCII)


class SQLiteLedger:
    """A ledger that outlives the process: what `reserve` and `settle` did is on the disk when they return."""

    def __init__(self, path: Path | str, budget: ZCDP, *, total: ApproximateDP) -> None:
        """Open the ledger at `path`, or make it; it keeps the `budget` and the `total` it was made with."""
        self._path = Path(path).absolute()
        self._budget = budget
        self._lock = threading.Lock()
        self._process = os.getpid()
        if os.path.isfile(self._path):  # noqa: PTH113 - Path.is_file raises on names that are too long
            _identity(self._path)  # before SQLite takes the locks that belong to the other name
        self._connection: sqlite3.Connection | None = sqlite_file.connect(self._path)
        try:
            self._identity = _identity(self._path)
            with self._transaction() as connection:
                _open_book(connection, budget, total=total)
        except BaseException:
            self.close()
            raise

    @property
    def budget(self) -> ZCDP:
        """What may be spent in all."""
        return self._budget

    @property
    def durable(self) -> bool:
        """Always: the opening refuses a place where it would not be."""
        return True

    def reserve(self, worst_case: ZCDP, query: str) -> Reservation:
        """Hold `worst_case` on the disk, or raise `Shortfall` and leave the file as it was."""
        with self._transaction() as connection:
            state = admit(self._budget, _read_balance(connection, self._budget), worst_case=worst_case)
            number = connection.execute(
                "INSERT INTO entries (opened_at, query, worst_rho, delta) VALUES (?, ?, ?, ?)",
                (_now(), _note(query), _written(worst_case.rho.value), _written(worst_case.delta.value)),
            ).lastrowid
            _write_balance(connection, state)
        return Held(number or 0, worst_case, self._settle)

    def state(self) -> FilterState:
        """Return what is spent and what is held."""
        with self._file() as connection:
            return _read_balance(connection, self._budget)

    def entries(self) -> tuple[Entry, ...]:
        """Return the whole record, oldest first."""
        with self._file() as connection:
            return _read_entries(connection)

    def close(self) -> None:
        """Let go of the file; again is no harm. Reservations still open stay held."""
        if os.getpid() != self._process:
            return  # the file's locks are the parent's
        with self._lock, sqlite_file.sealed():
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def _settle(self, held: Held, settlement: Settlement) -> None:
        with self._transaction() as connection:
            changed = connection.execute(
                "UPDATE entries SET settled_at = ?, loss_rho = ?, digest = ? WHERE id = ? AND settled_at IS NULL",
                (_timed(settlement.at), _written(settlement.loss.value), _note(settlement.digest), held.number),
            ).rowcount
            if changed != 1:
                raise twice()
            state = _read_balance(connection, self._budget)
            _write_balance(connection, Filter(self._budget).settle(state, held.worst_case, loss=settlement.loss))

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._file() as connection, sqlite_file.transaction(connection):
            yield connection

    @contextmanager
    def _file(self) -> Iterator[sqlite3.Connection]:
        """Give one thread the connection, if it still writes to the file that the path names."""
        if os.getpid() != self._process:  # before the lock, which a thread of the parent may hold for ever
            raise forked()
        with self._lock, sqlite_file.sealed():
            if self._connection is None:
                raise closed()
            if _identity(self._path) != self._identity:
                raise _moved()
            yield self._connection


def _identity(path: Path) -> tuple[int, int]:
    """Return what tells the file at `path` from every other that may take its name."""
    try:
        found = path.stat()
    except OSError as error:
        raise _moved() from error
    if stat.S_ISREG(found.st_mode) and found.st_nlink != 1:
        raise LedgerError(
            "ledger-linked",
            "The ledger file has a second name, and what is spent under one is not seen under the other.",
            hint="Remove the other hard link, or copy the file instead.",
        )
    return found.st_dev, found.st_ino


def _moved() -> LedgerError:
    return LedgerError(
        "ledger-moved",
        "The ledger file was moved, deleted or replaced while it was open.",
        hint="Put it back and connect again; an older copy would give spent budget back.",
    )


def _open_book(connection: sqlite3.Connection, budget: ZCDP, *, total: ApproximateDP) -> None:
    """Write the terms of a blank ledger, or hold those of an old one against the caller's and sum its entries up."""
    given = (budget.rho.value, budget.delta.value, total.epsilon.value, total.delta.value)
    terms = tuple(map(_written, given))
    if sqlite_file.is_blank(connection):
        sqlite_file.build(connection)
        connection.execute("INSERT INTO terms VALUES (1, ?, ?, ?, ?, ?)", (_now(), *terms))
        connection.execute("INSERT INTO balance VALUES (1, '0/1', '0/1', '0/1')")
        return
    sqlite_file.verify(connection)
    # BEGIN IMMEDIATE is content with a read-only file; a write, even of no row, is not
    connection.execute("UPDATE balance SET spent_rho = '' WHERE 0")
    row = connection.execute("SELECT budget_rho, budget_delta, total_epsilon, total_delta FROM terms").fetchone()
    if row is None:
        raise damaged()
    recorded = tuple(map(_read, row))
    if recorded != given:
        raise _other_terms(recorded, given)
    if balance_of(_read_entries(connection)) != _read_balance(connection, budget):
        raise damaged()


def _other_terms(recorded: tuple[Fraction, ...], given: tuple[Fraction, ...]) -> LedgerError:
    old, new = (
        "epsilon {2:.6g} and delta {3:.6g} (rho {0:.12g}, delta {1:.6g})".format(*map(float, terms))
        for terms in (recorded, given)
    )
    return LedgerError(
        "ledger-budget",
        f"The ledger was created for {old}, and is now opened for {new}.",
        hint="A ledger keeps the total it was created with; restore the policy's epsilon and delta.",
    )


def _read_balance(connection: sqlite3.Connection, budget: ZCDP) -> FilterState:
    row = connection.execute("SELECT spent_rho, spent_delta, reserved_rho FROM balance").fetchone()
    if row is None:
        raise damaged()
    spent_rho, spent_delta, reserved_rho = map(_read, row)
    if spent_rho + reserved_rho > budget.rho.value or spent_delta > budget.delta.value:
        raise damaged()
    return FilterState(ZCDP(Rho(spent_rho), Delta(spent_delta)), Rho(reserved_rho))


def _write_balance(connection: sqlite3.Connection, state: FilterState) -> None:
    values = (state.spent.rho.value, state.spent.delta.value, state.reserved.value)
    connection.execute(
        "UPDATE balance SET spent_rho = ?, spent_delta = ?, reserved_rho = ?", tuple(map(_written, values))
    )


def _read_entries(connection: sqlite3.Connection) -> tuple[Entry, ...]:
    rows = connection.execute(
        "SELECT opened_at, query, worst_rho, delta, settled_at, loss_rho, digest FROM entries ORDER BY id"
    )
    return tuple(map(_read_entry, rows))


def _read_entry(row: tuple[object, ...]) -> Entry:
    opened_at, query, worst_rho, delta, settled_at, loss_rho, digest = row
    settlement = None
    if settled_at is not None:
        settlement = Settlement(_read_time(settled_at), Rho(_read(loss_rho)), _read_text(digest))
    worst_case = ZCDP(Rho(_read(worst_rho)), Delta(_read(delta)))
    return Entry(_read_time(opened_at), _read_text(query), worst_case, settlement)


def _now() -> str:
    return _timed(datetime.now(UTC))


def _timed(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds")


def _note(text: str) -> str:
    """Return `text` with lone surrogates spelled out, which SQLite cannot store."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _written(value: Fraction) -> str:
    if max(value.numerator, value.denominator) >= 10**_DIGITS:
        raise UsageError(
            "number-too-long",
            f"A ledger keeps numbers of at most {_DIGITS} digits.",
            hint="Write the number with fewer digits.",
        )
    return f"{value.numerator}/{value.denominator}"


def _read(text: object) -> Fraction:
    match = _FRACTION.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise damaged()
    return Fraction(int(match[1]), int(match[2]))


def _read_text(text: object) -> str:
    if not isinstance(text, str):
        raise damaged()
    return text


def _read_time(text: object) -> datetime:
    try:
        return datetime.fromisoformat(_read_text(text))
    except ValueError as error:
        raise damaged() from error
