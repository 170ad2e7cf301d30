"""Commands that a connection carries out itself: transactions, settings, cursors, prepared statements and COPY."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Begin:
    """BEGIN or START TRANSACTION; `tag` is the one that was written."""

    tag: str


@dataclass(frozen=True, slots=True)
class Commit:
    """COMMIT or END; `chain` begins the next transaction at once."""

    chain: bool


@dataclass(frozen=True, slots=True)
class Rollback:
    """ROLLBACK or ABORT, to a savepoint if it has a name."""

    chain: bool = False
    savepoint: str = ""


@dataclass(frozen=True, slots=True)
class Savepoint:
    """SAVEPOINT."""

    name: str


@dataclass(frozen=True, slots=True)
class ReleaseSavepoint:
    """RELEASE SAVEPOINT."""

    name: str


@dataclass(frozen=True, slots=True)
class TableLock:
    """LOCK TABLE in the mode ACCESS SHARE; it does nothing, as no table can be changed."""


@dataclass(frozen=True, slots=True)
class Set:
    """SET; a value of None is DEFAULT, and `local` ends with the transaction."""

    name: str
    value: str | None
    local: bool = False


@dataclass(frozen=True, slots=True)
class SetConfig:
    """SELECT set_config(name, value, is_local), which returns the value; pg_dump sends it."""

    name: str
    value: str
    local: bool


@dataclass(frozen=True, slots=True)
class CancelBackend:
    """SELECT pg_cancel_backend(number), which cancels the statement of another connection; None is a parameter."""

    number: int | None


@dataclass(frozen=True, slots=True)
class Reset:
    """RESET; of all settings if the name is empty."""

    name: str


@dataclass(frozen=True, slots=True)
class Show:
    """SHOW of a setting."""

    name: str


@dataclass(frozen=True, slots=True)
class Declare:
    """DECLARE CURSOR for the statement that begins at a character; one with NO SCROLL only moves forwards."""

    name: str
    start: int
    hold: bool
    no_scroll: bool = False


@dataclass(frozen=True, slots=True)
class Fetch:
    """FETCH or MOVE by a number of rows, backwards if it is negative, or to one row, from the start or from here.

    A count of None is ALL. JDBC moves so through a scrollable result set.
    """

    name: str
    count: int | None
    kind: Literal["FORWARD", "BACKWARD", "ABSOLUTE", "RELATIVE"] = "FORWARD"
    move: bool = False


@dataclass(frozen=True, slots=True)
class CloseCursor:
    """CLOSE; of all cursors if the name is empty."""

    name: str


@dataclass(frozen=True, slots=True)
class CopyOut:
    """COPY (statement) TO STDOUT, or COPY of `columns` of a table, with options as written.

    The statement, or the name of the table, is from `start` up to `stop`.
    """

    start: int
    stop: int
    columns: str = ""
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Explain:
    """EXPLAIN with options, of the statement that begins at a character; a `layout` of "" is that of dpsql."""

    start: int
    layout: str


@dataclass(frozen=True, slots=True)
class Prepare:
    """PREPARE of the statement that begins at a character; `types` are the OIDs of its parameters."""

    name: str
    start: int
    types: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Execute:
    """EXECUTE of a prepared statement; its values as text, and the OIDs of their types, 0 for none."""

    name: str
    values: tuple[bytes | None, ...]
    types: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CreateView:
    """CREATE TEMPORARY VIEW of the query that begins at a character; tools make one to learn its columns."""

    name: str
    start: int
    replaces: bool


@dataclass(frozen=True, slots=True)
class DropView:
    """DROP VIEW."""

    names: tuple[str, ...]
    if_exists: bool


@dataclass(frozen=True, slots=True)
class Deallocate:
    """DEALLOCATE; of all statements if the name is empty."""

    name: str


@dataclass(frozen=True, slots=True)
class Discard:
    """DISCARD ALL, which PgBouncer sends between two clients, or PLANS, SEQUENCES or TEMP."""

    kind: str


@dataclass(frozen=True, slots=True)
class Listen:
    """LISTEN; no notification ever comes."""


@dataclass(frozen=True, slots=True)
class Unlisten:
    """UNLISTEN; it does nothing."""


@dataclass(frozen=True, slots=True)
class Unlock:
    """SELECT pg_advisory_unlock_all(), which asyncpg's pools send; it does nothing, as there are no locks."""


Command = (
    Begin | Commit | Rollback | Savepoint | ReleaseSavepoint | TableLock | Set | SetConfig | Reset | Show | Declare
    | Fetch | CloseCursor | CancelBackend | CreateView | DropView | CopyOut | Explain | Prepare | Execute | Deallocate
    | Discard | Listen | Unlisten | Unlock
)  # fmt: skip
