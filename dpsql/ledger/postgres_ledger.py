"""A durable ledger in one schema of a PostgreSQL database, shared by all threads, processes and hosts that reach it.

Every act is one transaction. Writers take a lock on the one row of terms first, so that they come one after another.

The checkpoint is in a folder of the user who opened the ledger, XDG_CACHE_HOME or ~/.cache, which nobody else can read.
A role that serves analysts may write balances and append events. If it could also write the checkpoint, the next
opening would trust what it wrote.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Hashable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import psycopg

from dpsql.accounting import BudgetState
from dpsql.errors import LedgerError
from dpsql.ledger import postgres_server
from dpsql.ledger.base import Failures, ledger_closed, ledger_forked, refuse_other
from dpsql.ledger.base_ledger import LedgerTransaction, begin
from dpsql.ledger.durable import (
    FIRST,
    HISTORY,
    LINKED,
    Durable,
    EventRows,
    Mark,
    RowsFound,
    Verified,
    checkpoint_if_due,
    decode_checkpoint,
    encode_holder,
    is_behind,
    replayed,
    verify_rows,
)
from dpsql.ledger.history import Sums
from dpsql.ledger.postgres_server import (
    READING,
    WRITING,
    Haste,
    LedgerConnection,
    fault,
    open_cursor,
    sealed,
)
from dpsql.ledger.record import (
    Clock,
    Event,
    LedgerTerms,
    decode_fraction,
    decode_present,
    encode_fraction,
    encode_present,
    now,
)
from dpsql.policy import DatabaseUrl

_PAGE = 2000
_CURSORS = count()  # one that was not read to its end may stand open for a moment
# The hash of a key finds its events and gives them no order. OFFSET keeps the server from reading all events in order
# instead, until enough of them fit. They are looked through where they are, and a page of them is fetched.
_UNDER = """SELECT seq, at, kind, body, chain, (
    SELECT before.chain FROM events AS before WHERE before.seq = under.seq - 1
) FROM (
    SELECT * FROM events WHERE kind = 'reserved' AND told_key(body) <> '""' AND told_key(body) = ? OFFSET 0
) AS under"""
_STATE = ("spent_rho", "spent_delta", "reserved_rho")
Json = TypeVar("Json", str, dict[str, Any])


class PostgresRows(EventRows):
    """One transaction's view of the schema, by an open connection."""

    SETTLEMENT = f"{LINKED} WHERE kind = 'settled' AND told_entry(body) = ?"
    ASKED = f"{_UNDER} WHERE (substr(body, 1, ?) = ? OR body NOT LIKE ?) AND seq < ? ORDER BY seq DESC LIMIT ?"
    ENTRY = "told_entry(settled.body)"
    FIRST_ASKED = f"{_UNDER} WHERE body LIKE ? AND seq > ? ORDER BY seq LIMIT ?"

    def __init__(self, connection: LedgerConnection) -> None:
        self._connection = connection
        self._version = 0
        self._balances: dict[str | None, BudgetState] = {}
        self._head: tuple[int, str] | None = None

    def take_turn(self) -> LedgerTerms:
        """Wait until no other writer is within its transaction, and return the terms that the last one left."""
        # The row lock is the turn of the writer. At READ COMMITTED the statements after it see what the last writer
        # committed.
        self._terms = self._read_terms("SELECT version, body FROM terms FOR UPDATE")
        return self._terms

    def set_terms(self, terms: LedgerTerms) -> None:
        """Put other terms in place of the present ones."""
        told = encode_present(terms)
        changed = self._connection.execute("UPDATE terms SET body = %s", (_json(told),)).rowcount
        if not changed:  # a new ledger; those who come later need no right to insert
            self._run("INSERT INTO terms (one, version, body) VALUES (1, ?, ?)", postgres_server.REPEATS, _json(told))
            self._version = postgres_server.REPEATS
        self._terms = terms

    def tell_repeats(self) -> bool:
        """Return whether the ledger's version says that entries may repeat others; a new ledger's does.

        The version of an older ledger is raised when a role opens it that may change it; roles for analysts may not.
        """
        self.terms()
        return self._version >= postgres_server.REPEATS

    def tell_divisions(self) -> bool:
        """Say in the ledger's version that values may have budgets; return whether this role may."""
        return self._tell(postgres_server.DIVISIONS)

    def tell_tables(self) -> bool:
        """Say in the ledger's version that tables may be stored; return whether this role may."""
        return self._tell(postgres_server.VERSION)

    def _tell(self, version: int) -> bool:
        self.terms()
        if self._version < version and postgres_server.raise_version(self._connection, version):
            self._version = version
        return self._version >= version

    def balance(self, account: str | None) -> BudgetState:
        """Return the spent and reserved amounts."""
        if account not in self._balances:
            row = self._run("SELECT body FROM balances WHERE holder = ?", _json(encode_holder(account))).fetchone()
            if row is None and account is None:
                raise fault("ledger-damaged")
            self._balances[account] = BudgetState() if row is None else _state(row[0])
        return self._balances[account]

    def set_balance(self, account: str | None, state: BudgetState) -> None:
        """Put another state in place of the present one."""
        self._run(
            "INSERT INTO balances (holder, body) VALUES (?, ?) ON CONFLICT (holder) DO UPDATE SET body = excluded.body",
            *(_json(encode_holder(account)), _json(_encode_state(state))),
        )
        self._balances[account] = state

    def start_afresh(self) -> None:
        """Put a fresh state in place of every balance."""
        self._run("UPDATE balances SET body = ?", _json(_encode_state(BudgetState())))
        self._balances = {}
        self.set_balance(None, BudgetState())

    def balances(self) -> dict[str, BudgetState]:
        """Return the state of every holder: the total and all accounts."""
        return {_read(holder, str): _state(body) for holder, body in self._run("SELECT holder, body FROM balances")}

    def head(self) -> tuple[int, str]:
        """Return number and chain of the last event."""
        if self._head is None:
            self._head = super().head()
        return self._head

    def history(self, after: int = FIRST) -> Iterator[tuple[Any, ...]]:
        """Return seq, at, kind, body and chain of all events that follow number `after`, oldest first.

        They are read in pages.
        """
        with open_cursor(self._connection, f"history_{next(_CURSORS)}") as cursor:
            cursor.itersize = _PAGE
            yield from cursor.execute(HISTORY.replace("?", "%s"), (after,))

    def answers(self) -> Iterator[int]:
        """Return the entries of all answers, in their order, without holding them all."""
        with open_cursor(self._connection, f"answers_{next(_CURSORS)}") as cursor:
            cursor.itersize = _PAGE
            for (entry,) in cursor.execute("SELECT entry FROM answers ORDER BY entry"):
                yield entry

    def _insert(self, event: Event) -> None:
        super()._insert(event)
        self._head = event.seq, event.chain

    def _read_terms(self, statement: str = "SELECT version, body FROM terms") -> LedgerTerms:
        row = self._run(statement).fetchone()
        if row is None:
            raise fault("ledger-damaged")
        version, body = row
        if version > postgres_server.VERSION:
            raise LedgerError(
                "ledger-newer",
                f"The ledger has version {version} and this dpsql knows only up to {postgres_server.VERSION}.",
                hint="Install the dpsql that wrote it, or a newer one.",
            )
        told = _read(body, dict)
        if version < postgres_server.REPEATS and ("certificate" in told) != (version > postgres_server.PLAIN):
            raise fault("ledger-damaged")
        self._version = version
        try:
            return decode_present(told)
        except (KeyError, TypeError, ValueError) as error:
            raise fault("ledger-damaged") from error

    def _run(self, statement: str, *values: object) -> RowsFound:
        return self._connection.execute(statement.replace("?", "%s"), values)


def _json(value: object) -> str:
    """Return a value in ASCII, which every encoding of a database preserves."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _read(text: str, kind: type[Json]) -> Json:
    """Return what `_json` wrote, in the one spelling that it has."""
    try:
        value = json.loads(text)
    except (RecursionError, ValueError) as error:
        raise fault("ledger-damaged") from error
    if not isinstance(value, kind) or _json(value) != text:
        raise fault("ledger-damaged")
    return value


def _encode_state(state: BudgetState) -> dict[str, str]:
    values = (state.spent, state.permanent, state.reserved)
    return dict(zip(_STATE, map(encode_fraction, values), strict=True))


def _state(body: str) -> BudgetState:
    told = _read(body, dict)
    try:
        return BudgetState(*(decode_fraction(told[name]) for name in _STATE))
    except (KeyError, ValueError) as error:
        raise fault("ledger-damaged") from error


class PostgresLedger(Durable[str | DatabaseUrl]):
    """A ledger for several hosts: what `reserve` and `settle` did is on the server's disk when they return."""

    def _start(self, place: str | DatabaseUrl, wanted: LedgerTerms | None, *, clock: Clock) -> None:
        self._url = DatabaseUrl.of(place)
        self._clock = clock
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._closed = False
        self._connection: LedgerConnection | None = None
        self._haste = Haste()
        self._failed_at = -math.inf
        try:
            self._terms, self._mark = self._open_book(wanted)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection; closing it twice is allowed. Open reservations stay reserved."""
        if os.getpid() != self._process:
            return  # the connection is the parent's
        with self._lock:
            self._closed = True
            self._drop()

    def hurry(self) -> None:
        """Let no statement take longer than 1.5 seconds from now on."""
        self._haste.begin()

    def _open_book(self, wanted: LedgerTerms | None) -> tuple[LedgerTerms, Mark]:
        """Create the tables of a new ledger, or verify the events that no checkpoint covers."""
        # The second look finds out what became of a commit whose answer was lost.
        if not self._is_prepared(wanted) and not self._is_prepared(wanted):
            raise fault("ledger-unconfirmed")
        with self._transaction(READING) as connection:  # takes long for a long history; others need not wait
            rows = PostgresRows(connection)
            replay, terms = replayed(rows, _checkpoint(rows))
        if wanted is not None:
            refuse_other(terms, wanted)
        if (told := checkpoint_if_due(replay)) is not None:
            _write_checkpoint(terms.data_set, told)
        self._history, self._failures = replay, Failures()
        return terms, Mark(terms.data_set, replay.seq, replay.chain)

    def _is_prepared(self, wanted: LedgerTerms | None) -> bool:
        """Make the tables if there are none; return False where that is not known: what is there is not made again."""
        try:
            with self._transaction(WRITING) as connection:
                _prepare(connection, self._url.schema, wanted=wanted, clock=self._clock)
        except LedgerError as error:
            if error.code == "ledger-unconfirmed":
                return False
            raise
        return True

    @contextmanager
    def _writing(self) -> Iterator[LedgerTransaction]:
        with self._transaction(WRITING) as connection:
            rows = PostgresRows(connection)
            data_set = rows.take_turn().data_set
            if is_behind(rows, self._mark, data_set=data_set):
                raise fault("ledger-rolled-back")
            yield rows
            head = Mark(data_set, *rows.head())
        # After the commit: an act that was undone must not move the mark.
        self._mark = head

    @contextmanager
    def _reading(self) -> Iterator[LedgerTransaction]:
        with self._transaction(READING) as connection:
            yield PostgresRows(connection)

    def _find_version(self) -> Hashable:
        """Return the snapshot of the open connection: equal ones see the same commits; None without a connection."""
        with self._hold_connection():
            if self._connection is None or not postgres_server.is_idle(self._connection):
                return None
            try:
                return id(self._connection), postgres_server.read_snapshot(self._connection)
            except psycopg.OperationalError:  # the next transaction connects again
                return None

    def _peek_version(self) -> Hashable:
        return None  # the server is asked

    @contextmanager
    def _transaction(self, level: str) -> Iterator[LedgerConnection]:
        """Give one thread the connection for one transaction."""
        with self._hold_connection():
            connection = self._begun(level)
            with postgres_server.until_committed(connection, level):
                yield connection

    @contextmanager
    def _hold_connection(self) -> Iterator[None]:
        """Let one thread use the connection; those that waited while the server was not reached fail with it."""
        if os.getpid() != self._process:  # before the lock, which a thread of the parent may hold for ever
            raise ledger_forked()
        # Before the lock: who waited here while the server was not reached shares that failure, and does not try again.
        asked_at = time.monotonic()
        with self._lock, sealed():
            if self._closed:
                raise ledger_closed()
            if self._failed_at > asked_at:
                raise fault("ledger-unreachable")
            yield

    def _begun(self, level: str) -> LedgerConnection:
        """Return the connection with a transaction begun, or a new one where it was lost: so far it did nothing."""
        if self._connection is not None and postgres_server.is_idle(self._connection):
            try:
                postgres_server.begin_transaction(self._connection, level, schema=self._url.schema)
            # A server or a pooler may end an idle connection. Nothing of this act was sent, so that a new one is safe.
            except psycopg.OperationalError:
                pass
            else:
                return self._connection
        self._drop()
        try:
            self._connection = self._connect(level)
        except (psycopg.OperationalError, LedgerError) as error:
            if isinstance(error, psycopg.OperationalError) or error.code == "ledger-unreachable":
                self._failed_at = time.monotonic()
            raise
        return self._connection

    def _connect(self, level: str) -> LedgerConnection:
        """Return a new connection to a server that was found safe, with a transaction begun."""
        connection = postgres_server.connected(self._url, self._haste)
        try:
            postgres_server.refuse_unsafe(connection)
            postgres_server.begin_transaction(connection, level, schema=self._url.schema)
        except BaseException:
            connection.close()  # it must not be used before it was verified
            raise
        return connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def verify(url: str | DatabaseUrl) -> Verified:
    """Check everything in the ledger at `url`, without changing it, while others may write to it; a standby will do.

    Raises `ledger-tampered` naming the first event that does not fit, or what opening raises.
    """
    address = DatabaseUrl.of(url)
    with sealed(), closing(postgres_server.connected(address)) as connection:
        postgres_server.begin_transaction(connection, READING, schema=address.schema)
        with postgres_server.until_committed(connection, READING):
            if postgres_server.is_blank(connection, address.schema):
                raise fault("ledger-missing")
            rows = _open_rows(connection, address.schema)
            replay, _ = verify_rows(rows, _checkpoint(rows))
    return Verified(replay.seq, replay.chain)


def _checkpoint(rows: PostgresRows) -> Sums | None:
    return decode_checkpoint(_read_checkpoint(rows.terms().data_set))


def _prepare(connection: LedgerConnection, schema: str, *, wanted: LedgerTerms | None, clock: Clock) -> None:
    """Make the tables if there are none, or see that they are ours and can be written."""
    if postgres_server.is_blank(connection, schema):
        if wanted is None:
            raise fault("ledger-missing")
        postgres_server.lock_making(connection)
        if postgres_server.is_blank(connection, schema):  # still, after those who came first
            postgres_server.build(connection, schema)
            begin(PostgresRows(connection), wanted, at=now(clock))
            return
    _open_rows(connection, schema)
    postgres_server.refuse_unwritable(connection)
    postgres_server.raise_version(connection)


def _open_rows(connection: LedgerConnection, schema: str) -> PostgresRows:
    """Return the book of tables that are a ledger's, of this version, and as they were made."""
    postgres_server.refuse_foreign(connection, schema)
    rows = PostgresRows(connection)
    rows.terms()  # raises for a newer version, whose tables may be others
    postgres_server.refuse_strange(connection, schema)
    return rows


def _read_checkpoint(data_set: str) -> str | None:
    """Return the text of the checkpoint of a data set; None if there is none, or none that is ours alone to write."""
    with suppress(OSError, RuntimeError), _place(data_set).open("rb") as file:
        if _is_ours(os.fstat(file.fileno())):
            return file.read().decode("utf-8", "replace")
    return None


def _write_checkpoint(data_set: str, text: str) -> None:
    """Put a checkpoint in place of the one before, whole or not at all; where it cannot, the next opening reads all."""
    with suppress(OSError, RuntimeError):
        place = _place(data_set)
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, draft = tempfile.mkstemp(dir=place.parent)  # private to its owner
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(text.encode())
            Path(draft).replace(place)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise


def _place(data_set: str) -> Path:
    stated = os.environ.get("XDG_CACHE_HOME", "")
    cache = Path(stated) if stated.startswith("/") else Path.home() / ".cache"
    return cache / "dpsql" / f"{hashlib.sha256(data_set.encode()).hexdigest()}.checkpoint"


def _is_ours(found: os.stat_result) -> bool:
    if not stat.S_ISREG(found.st_mode):
        return False
    # 0o022: the right to write of the group and of others.
    return sys.platform == "win32" or (found.st_uid == os.geteuid() and not found.st_mode & 0o022)
