"""State of a connection: its settings and transaction, its prepared statements and cursors, and the memory they hold.

Nothing is written, so a rollback only undoes settings, which include the role, and temporary views.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from dpsql.server.memory import Holding, UserQuota, WireColumn, measure_columns
from dpsql.server.wire.command_parser import ParsedStatement
from dpsql.server.wire.commands import Fetch
from dpsql.server.wire.rows import CopyLayout, WireRows
from dpsql.server.wire.sqlstates import WireError
from dpsql.server.wire.views import View

if TYPE_CHECKING:
    import pyarrow as pa

# Clients rely on these without asking: JDBC closes a connection whose DateStyle is not ISO, and libpq's
# target_session_attrs reads default_transaction_read_only and in_hot_standby.
REPORTED = (
    "application_name client_encoding DateStyle default_transaction_read_only in_hot_standby integer_datetimes "
    "IntervalStyle is_superuser scram_iterations search_path server_encoding server_version session_authorization "
    "standard_conforming_strings TimeZone"
).split()
PER_CONNECTION = frozenset(["server_version", "session_authorization"])  # reported, but not settings
CONSENT, IMPLICIT = "dpsql.consent", "dpsql.implicit"  # settings; without a value they are as the policy says
_OWN = frozenset(["dpsql.details", CONSENT, IMPLICIT])  # settings of dpsql that can be set
_ON, _OFF = frozenset(["on", "true", "yes", "1"]), frozenset(["off", "false", "no", "0"])
_MAX_LENGTH, _MAX_COUNT = 1_000, 200  # characters of a value; settings of a connection
# bytes of Python for an object of these, for a value in it, and for a type
_OF_OBJECT, _OF_VALUE, OF_TYPE = 1_000, 100, 50
_FIXED: Mapping[str, str] = {
    "client_encoding": "UTF8",
    "datestyle": "ISO, MDY",
    "default_transaction_read_only": "on",
    "in_hot_standby": "off",
    "integer_datetimes": "on",
    "intervalstyle": "postgres",
    "is_superuser": "off",
    "max_identifier_length": "63",
    "scram_iterations": "4096",
    "server_encoding": "UTF8",
    "standard_conforming_strings": "on",
    "timezone": "UTC",
    "transaction_isolation": "read committed",
    "transaction_read_only": "on",
}
_DEFAULTS: Mapping[str, str] = {
    "application_name": "",
    "bytea_output": "hex",
    "client_min_messages": "notice",
    "default_transaction_isolation": "read committed",
    "dpsql.details": "off",
    "extra_float_digits": "1",
    "lc_collate": "C",
    "lc_ctype": "C",
    "search_path": "main",
    "statement_timeout": "0",
    "transaction_deferrable": "off",
}
INITIAL_SETTINGS: Mapping[str, str] = {**_DEFAULTS, **_FIXED}
_READ_ONLY = frozenset(
    "in_hot_standby integer_datetimes is_superuser max_identifier_length server_encoding server_version "
    "server_version_num session_authorization dpsql.receipt".split()
)
_UNITS = {"": 1, "ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_PUNCTUATION = re.compile(r"[-_'\" ]")
_DURATION = re.compile(r"([0-9]{1,10}) *(|ms|s|min|h|d)")


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a connection, by lower-case names, and its temporary views.

    `role` is the analyst that it acts as, empty for its user.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    role: str = ""
    views: Mapping[str, View] = field(default_factory=dict)

    def with_value(self, name: str, value: str) -> Settings:  # noqa: C901 - one check for each
        """Return these settings with a value set; raise `WireError` for one that cannot be set or honoured."""
        normal = _PUNCTUATION.sub("", value.lower())  # asyncpg quotes what it sets in its first message
        if len(value) > _MAX_LENGTH or len(name) > _MAX_LENGTH:
            hint = f"Set at most {_MAX_LENGTH} characters."
            raise WireError("22023", "The value of a setting is too long.", hint=hint)
        if name.startswith("dpsql.") and name not in _OWN | _READ_ONLY:
            raise WireError("42704", "There is no such setting.", hint="SHOW ALL lists the settings.")
        if name in _READ_ONLY:
            raise WireError("55P02", "This setting is read-only.", hint=f"SHOW {name}")
        if name == "client_encoding" and normal not in {"utf8", "unicode"}:
            raise WireError("0A000", "Only UTF-8 is supported.", hint="SET client_encoding TO 'UTF8'.")
        if name == "datestyle" and "iso" not in normal:
            raise WireError("0A000", "Only the ISO style of dates is supported.", hint="SET DateStyle TO ISO.")
        if name == "standard_conforming_strings" and normal not in {"on", "true", "1", "yes"}:
            raise WireError("0A000", "Strings without E do not read escapes.", hint="Write E'...' for escapes.")
        if name in {"transaction_read_only", "default_transaction_read_only"} and normal in {"off", "false", "0", "no"}:
            raise WireError("25006", "Every transaction is read-only.", hint="Leave it on.")
        if name == "statement_timeout":
            _parse_milliseconds(value)
        if name in {CONSENT, IMPLICIT} and value.lower() not in _ON | _OFF:
            raise WireError("22023", f"{name} is on or off.", hint=f"SET {name} = on")
        if name in _FIXED:
            return self  # the value is the fixed one, or has no effect
        values = {**self.values, name: value}
        if len(values) > _MAX_COUNT:
            raise WireError("54000", "There are too many settings.", hint="RESET ALL")
        return replace(self, values=values)

    def without_value(self, name: str) -> Settings:
        """Return these settings with the default of one, or of all if the name is empty."""
        values = {one: value for one, value in self.values.items() if name and one != name}
        return replace(self, values=values)

    def get(self, name: str) -> str:
        """Return a setting; raise `WireError` for an unknown one."""
        for values in (self.values, _FIXED, _DEFAULTS):
            if name in values:
                return values[name]
        raise WireError("42704", "There is no such setting.", hint="SHOW ALL lists the settings.")

    @property
    def implicit(self) -> bool | None:
        """Whether standard SQL over private tables is read as private; None leaves it to the policy."""
        return self._flag(IMPLICIT)

    @property
    def consent(self) -> bool | None:
        """Whether queries that can hardly return a row are run all the same; None leaves it to the policy."""
        return self._flag(CONSENT)

    def _flag(self, name: str) -> bool | None:
        value = self.values.get(name)
        return None if value is None else value.lower() in _ON

    @property
    def has_details(self) -> bool:
        """Whether the details of a receipt are sent with it."""
        return self.get("dpsql.details").lower() in _ON

    @property
    def size(self) -> int:
        """The bytes that they hold."""
        values = sum(sys.getsizeof(name) + sys.getsizeof(value) for name, value in self.values.items())
        views = sum(sys.getsizeof(name) + view.size for name, view in self.views.items())
        return _OF_OBJECT + _OF_VALUE * len(self.values) + values + views

    @property
    def seconds(self) -> float:
        """The time limit of a statement; 0 is no limit."""
        value = self.values.get("statement_timeout")
        return 0.0 if value is None else _parse_milliseconds(value) / 1_000


def _parse_milliseconds(value: str) -> int:
    found = _DURATION.fullmatch(value.strip())
    if found is None:
        raise WireError("22023", "This is not a duration.", hint="SET statement_timeout TO '30s'.")
    return int(found[1]) * _UNITS[found[2]]


@dataclass(frozen=True, slots=True)
class _Savepoint:
    """Settings at a savepoint; `holding` counts their memory."""

    name: str
    settings: Settings
    lasting: Settings
    holding: Holding


class Transaction:
    """State of a connection: "I" outside a transaction, "T" in one, "E" in one that failed.

    `settings` are those in force; those that outlive the transaction lack what SET LOCAL changed. What all of them
    hold, also those that a rollback would restore, is counted.
    """

    __slots__ = ("_holding", "_lasting", "_previous", "_quota", "_savepoints", "settings", "status")

    def __init__(self, settings: Settings, quota: UserQuota) -> None:
        self.status = "I"
        self.settings = self._lasting = self._previous = settings
        self._savepoints: list[_Savepoint] = []
        self._quota = quota
        self._holding = quota.hold(settings.size, is_forced=True)

    def begin(self) -> None:
        """Begin a transaction block; a rollback undoes the settings made from here on."""
        self.status = "T"
        self._previous = self._lasting
        self._savepoints.clear()

    def commit(self) -> None:
        """End the block or batch, and keep what was set in it, except with SET LOCAL."""
        self._end(self._lasting)

    def rollback(self) -> None:
        """End the block or batch, and undo what was set in it."""
        self._end(self._previous)

    def _end(self, settings: Settings) -> None:
        is_same = settings is self.settings is self._lasting is self._previous
        if self._savepoints or not is_same:
            self.settings = self._lasting = self._previous = settings
            self._holding.resize(settings.size, is_forced=True)
        self.status = "I"
        self._savepoints.clear()

    def change(self, change: Callable[[Settings], Settings], *, local: bool = False) -> None:
        """Change the settings; `local` changes last until the end of the block."""
        changed = change(self.settings)
        lasting = self._lasting if local else change(self._lasting)
        if changed is self.settings and lasting is self._lasting:
            return
        self._holding.resize(changed.size + lasting.size + self._previous.size)
        self.settings, self._lasting = changed, lasting

    def fail(self) -> None:
        """Record a failed statement: a block then only accepts its end, and a batch is undone."""
        if self.status == "I":
            self.rollback()
        else:
            self.status = "E"

    def add_savepoint(self, name: str) -> None:
        """Save the settings under a name."""
        self._check_block("SAVEPOINT")
        if len(self._savepoints) >= _MAX_COUNT:
            raise WireError("54000", "There are too many savepoints.", hint="RELEASE some.")
        size = sys.getsizeof(name) + self.settings.size + self._lasting.size
        holding = self._quota.hold(size)
        self._savepoints.append(_Savepoint(name, self.settings, self._lasting, holding))

    def release_savepoint(self, name: str) -> None:
        """Remove a savepoint and those after it."""
        self._check_block("RELEASE SAVEPOINT")
        del self._savepoints[self._find_savepoint(name) :]

    def rollback_to(self, name: str) -> None:
        """Undo what was set since a savepoint, and continue from it."""
        self._check_block("ROLLBACK TO SAVEPOINT")
        at = self._find_savepoint(name)
        del self._savepoints[at + 1 :]
        self.settings, self._lasting = self._savepoints[at].settings, self._savepoints[at].lasting
        self._holding.resize(self.settings.size + self._lasting.size + self._previous.size, is_forced=True)
        self.status = "T"

    def _find_savepoint(self, name: str) -> int:
        for at in reversed(range(len(self._savepoints))):
            if self._savepoints[at].name == name:
                return at
        raise WireError("3B001", "There is no such savepoint.", hint=f"SAVEPOINT {name}")

    def _check_block(self, command: str) -> None:
        if self.status == "I":
            raise WireError("25P01", f"{command} can only be used in a transaction block.", hint="BEGIN first.")


_MAX_STATEMENTS, _MAX_PORTALS = 1_000, 100
_MAX_TEXT = 4 << 20  # characters of statements
_FEW_VALUES, _FEW_BYTES = 100, 10_000  # of parameters that are decoded in the event loop
_OF_SHAPE = 500  # bytes that Python needs for the shape of a statement


@dataclass(frozen=True, slots=True)
class BoundValues:
    """The encoded values of a statement's parameters, their formats, and the OIDs of their types."""

    values: tuple[bytes | None, ...] = ()
    formats: tuple[int, ...] = ()
    types: tuple[int, ...] = ()

    @property
    def is_small(self) -> bool:
        """Whether the values are decoded in about a millisecond."""
        return len(self.values) <= _FEW_VALUES and sum(map(len, filter(None, self.values))) <= _FEW_BYTES


@dataclass(frozen=True, slots=True)
class Shape:
    """The OIDs of a statement's parameters, and its columns, which are None if it returns no rows.

    `schema` has the Arrow types of the columns of a session's query.
    """

    parameters: tuple[int, ...] = ()
    columns: tuple[WireColumn, ...] | None = None
    schema: pa.Schema | None = None

    @property
    def size(self) -> int:
        """The bytes that it holds; its Arrow types take as many as its columns."""
        columns = measure_columns(self.columns or ())
        return _OF_SHAPE + OF_TYPE * len(self.parameters) + columns * (1 if self.schema is None else 2)


@dataclass(frozen=True, slots=True)
class CommandComplete:
    """Outcome of a statement without rows: its tag."""

    tag: str


@dataclass(frozen=True, slots=True)
class RowSet:
    """Outcome of a statement with rows: those from `start` up to `stop`, and the word of its tag."""

    rows: WireRows
    start: int
    stop: int
    word: str = "SELECT"


@dataclass(frozen=True, slots=True)
class CopyOutput:
    """Outcome of a COPY: its rows, and their layout."""

    rows: WireRows
    layout: CopyLayout


Outcome = CommandComplete | RowSet | CopyOutput


@dataclass(slots=True)
class PreparedStatement:
    """A statement, the types that the client declared for its parameters, and its shape once it was described.

    `holding` counts its memory while it has a name or a portal.
    """

    statement: ParsedStatement
    types: tuple[int, ...] = ()
    shape: Shape | None = None
    holding: Holding | None = None

    @property
    def size(self) -> int:
        """The bytes that it holds; its text twice, as its command may have parts of it."""
        texts = 2 * sys.getsizeof(self.statement.source.text)
        return _OF_OBJECT + texts + _OF_VALUE * len(self.types) + (0 if self.shape is None else self.shape.size)


@dataclass(slots=True)
class Portal:
    """A statement with its values; once it has run, its outcome and the number of rows that were fetched.

    `columns` are those that were described to the client, and `analyst` is the one for whom it was opened. `position`
    is the number of rows passed, and one more behind the last row. A cursor WITH HOLD outlives its transaction, and
    `is_committed` once that has ended; one with NO SCROLL only moves forwards.
    """

    prepared: PreparedStatement
    bound: BoundValues = field(default_factory=BoundValues)
    formats: tuple[int, ...] = ()
    columns: tuple[WireColumn, ...] | None = None
    outcome: Outcome | None = None
    position: int = 0
    analyst: str = ""
    is_with_hold: bool = False
    is_committed: bool = False
    is_no_scroll: bool = False
    holding: Holding | None = None

    @property
    def size(self) -> int:
        """The bytes that it holds, without its statement and its rows."""
        numbers = len(self.bound.formats) + len(self.bound.types) + len(self.formats)
        values = sum(_OF_VALUE + len(value or b"") for value in self.bound.values)
        return _OF_OBJECT + values + _OF_VALUE * numbers


class ConnectionObjects:
    """The statements and portals of a connection, by name; only the empty name may be overwritten.

    What they hold is counted for the user until nothing refers to them.
    """

    def __init__(self, quota: UserQuota) -> None:
        self._quota = quota
        self.statements: dict[str, PreparedStatement] = {}
        self.portals: dict[str, Portal] = {}

    def check_statement(self, name: str, prepared: PreparedStatement) -> None:
        """Raise `WireError` for a name in use, and for too many statements."""
        if name and name in self.statements:
            reason = "A prepared statement of this name exists already."
            raise WireError("42P05", reason, hint="DEALLOCATE it first, or use another name.")
        others = [one for other, one in self.statements.items() if other != name]
        size = sum(len(one.statement.source.text) for one in (*others, prepared))
        if len(others) >= _MAX_STATEMENTS or size > _MAX_TEXT:
            raise WireError("54000", "There are too many prepared statements.", hint="Close or DEALLOCATE some.")

    def add_statement(self, name: str, prepared: PreparedStatement) -> None:
        """Add a statement; raise as `check_statement` does, and beyond the quota."""
        self.check_statement(name, prepared)
        self.statements.pop(name, None)
        prepared.holding = self._quota.hold(sys.getsizeof(name) + prepared.size)
        self.statements[name] = prepared

    def find_statement(self, name: str) -> PreparedStatement:
        """Return a statement by name; raise `WireError` if there is none."""
        if name not in self.statements:
            raise WireError("26000", "There is no prepared statement of this name.", hint="Prepare it again.")
        return self.statements[name]

    def add_portal(self, name: str, portal: Portal) -> None:
        """Add a portal; raise `WireError` for a name in use, for too many portals, and beyond the quota."""
        if name and name in self.portals:
            raise WireError("42P03", "A cursor of this name exists already.", hint="Close it first.")
        self.portals.pop(name, None)
        if len(self.portals) >= _MAX_PORTALS:
            raise WireError("54000", "There are too many cursors.", hint="Close some.")
        prepared = portal.prepared
        if prepared.holding is None:
            prepared.holding = self._quota.hold(prepared.size)
        portal.holding = self._quota.hold(sys.getsizeof(name) + portal.size)
        self.portals[name] = portal

    def find_portal(self, name: str) -> Portal:
        """Return a portal or cursor by name; raise `WireError` if there is none."""
        if name not in self.portals:
            hint = "A cursor ends with its transaction: declare it again, or declare it WITH HOLD."
            raise WireError("34000", "There is no cursor of this name.", hint=hint)
        return self.portals[name]

    def clear(self) -> None:
        """Close all statements and portals."""
        self.statements.clear()
        self.portals.clear()

    def end_transaction(self, *, succeeds: bool) -> None:
        """Close the portals that end with a transaction: all but cursors WITH HOLD that were, or now are, committed."""
        for name, portal in list(self.portals.items()):
            if portal.is_with_hold and (succeeds or portal.is_committed):
                portal.is_committed = True
            else:
                del self.portals[name]


class CursorMove(NamedTuple):
    """Rows from `start` up to `stop`, from 0, in reverse if `is_reversed`, and the position of the cursor behind them.

    `goes_back` is true if a cursor with NO SCROLL cannot do it: also to fetch the row again on which it is.
    """

    start: int
    stop: int
    position: int
    is_reversed: bool = False
    goes_back: bool = False


def move_cursor(fetch: Fetch, *, position: int, total: int) -> CursorMove:
    """Return what a FETCH or MOVE does at a position in `total` rows.

    Position 0 is before the first row, 1 on it, and `total` + 1 behind the last one.
    """
    count, fetches_again = fetch.count, not fetch.move and 0 < position <= total
    match fetch.kind:
        case "ABSOLUTE":
            wanted = count or 0
            target = total + 1 + wanted if wanted < 0 else wanted
            goes_back = wanted < 0 or (position > 0 and target <= position)
            return _move_to(target, total=total, goes_back=goes_back)
        case "RELATIVE":
            target = position + (count or 0)
            return _move_to(target, total=total, goes_back=target < position or (not count and fetches_again))
        case "BACKWARD":
            return CursorMove(0, max(position - 1, 0), 0, is_reversed=True, goes_back=True)
    if count == 0:
        return _move_to(position, total=total, goes_back=fetches_again)
    if count is None or count > 0:
        target = total + 1 if count is None else min(position + count, total + 1)
        return CursorMove(min(position, total), min(target, total), target)
    target = max(position + count, 0)
    return CursorMove(max(target - 1, 0), max(position - 1, 0), target, is_reversed=True, goes_back=True)


def _move_to(target: int, *, total: int, goes_back: bool) -> CursorMove:
    """Return the move to one row, or to before the first or behind the last one, where there is none."""
    target = min(max(target, 0), total + 1)
    start = target - 1 if 0 < target <= total else target
    return CursorMove(min(start, total), min(target, total), target, goes_back=goes_back)
