"""State of a connection: settings, temporary views, transaction, prepared statements and cursors; their memory counts.

Nothing is written, so a rollback only undoes settings, which include the role, and temporary views. Tools make a view
to learn the columns of a query. Making one is free; views are put as CTEs before the statements that read them, which
are charged as with the query in its place.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING

from sqlglot import Token

from dpsql.dialects import quote_name
from dpsql.server.catalog.system_catalog import WireColumn, find_relations, measure_columns
from dpsql.server.limits import Holding, UserQuota
from dpsql.server.wire.codec import WireError
from dpsql.server.wire.command_parser import ParsedStatement, StatementText
from dpsql.server.wire.commands import value_of, word_of
from dpsql.server.wire.rows import OIDS, CopyLayout, WireRows
from dpsql.sql.lexer import read_words
from dpsql.sql.syntax.block import Block, kinds_of, nest, split

if TYPE_CHECKING:
    import pyarrow as pa


_MAX_VIEWS, _MAX_VIEW_TEXT = 20, 32 * 1024  # of a connection; characters of their queries together
_MAX_NAME, _MAX_COLUMNS = 63, 1600  # bytes, after which PostgreSQL cuts a name; columns of a relation of PostgreSQL
_MAX_WORDS = 20_000  # of a statement, more than a query may have
_QUERIES = frozenset(["SELECT", "WITH", "VALUES", "TABLE", "FROM", "("])
_STARTS = frozenset(["SELECT", "VALUES", "TABLE", "FROM"])
_TYPE_NAMES = {
    OIDS["bool"]: "boolean",
    OIDS["bytea"]: "bytea",
    OIDS["int8"]: "bigint",
    OIDS["int2"]: "smallint",
    OIDS["int4"]: "integer",
    OIDS["float4"]: "real",
    OIDS["float8"]: "double precision",
    OIDS["numeric"]: "numeric",
    OIDS["varchar"]: "varchar",
    OIDS["date"]: "date",
    OIDS["time"]: "time",
    OIDS["timestamp"]: "timestamp",
    OIDS["timestamptz"]: "timestamptz",
}


@dataclass(frozen=True, slots=True)
class View:
    """The query of a view, which reads no other view, its columns, and the statement that creates it in the catalog.

    `size` is what it holds, in bytes.
    """

    query: str
    columns: tuple[WireColumn, ...]
    definition: str = ""
    size: int = field(init=False)

    def __post_init__(self) -> None:
        """Measure the view."""
        size = sys.getsizeof(self.query) + measure_columns(self.columns) + sys.getsizeof(self.definition)
        object.__setattr__(self, "size", size)

    @classmethod
    def define(cls, name: str, query: str, *, columns: tuple[WireColumn, ...]) -> View:
        """Return the view of a query.

        The catalog has it as a view that cannot be read there. It is temporary there too: in a schema that connections
        share, one of a name would wait for another's.
        """
        cells = list[str]()
        for column in columns:
            modifier = column.modifier - 4
            is_sized = column.oid == OIDS["numeric"] and modifier >= 0
            type_ = _TYPE_NAMES.get(column.oid, "text")
            type_ += f"({modifier >> 16}, {modifier & 0xFFFF})" if is_sized else ""
            cells.append(f"NULL::{type_} AS {quote_name(column.name)}")
        unread = "WHERE (SELECT 'A temporary view cannot be read together with system catalogs.'::text)::boolean"
        # CREATE TEMPORARY VIEW v AS SELECT NULL::bigint AS n WHERE (SELECT '...'::text)::boolean
        # Who reads it gets an error with these words.
        created = f"CREATE TEMPORARY VIEW {quote_name(name)} AS SELECT {', '.join(cells)} {unread}"
        return cls(query, columns, f"{created}; GRANT SELECT ON pg_temp.{quote_name(name)} TO PUBLIC")


def add_view(views: Mapping[str, View], name: str, *, view: View, replaces: bool) -> dict[str, View]:
    """Return the views with one more; raise `WireError` for a name in use or unfit, and for too many views."""
    if not name or "\0" in name:
        raise WireError("42601", "The name of a view is not empty.", hint="CREATE TEMPORARY VIEW v AS SELECT ...")
    if _cut_name(name) != name:
        reason = f"The name of the view has more than {_MAX_NAME} bytes."
        raise WireError("42622", reason, hint="Give the view a shorter name.")
    if name in views and not replaces:
        raise WireError(
            "42P07", "A view of this name exists already.", hint="DROP VIEW it first, or CREATE OR REPLACE."
        )
    names = [_cut_name(column.name) for column in view.columns]
    if any(not each or "\0" in each for each in names):
        raise WireError("42601", "A column of the view has no name.", hint="Name it with AS.")
    if len(names) > _MAX_COLUMNS:
        raise WireError("54011", f"A view has at most {_MAX_COLUMNS} columns.", hint="Select fewer.")
    if len({*names}) < len(names):
        reason = f"Two columns of the view have one name, or the same first {_MAX_NAME} bytes."
        raise WireError("42701", reason, hint="Name them apart with AS.")
    known = {**views, name: view}
    if len(known) > _MAX_VIEWS or sum(len(one.query) for one in known.values()) > _MAX_VIEW_TEXT:
        raise WireError("54000", "There are too many views.", hint="DROP VIEW some.")
    return known


def expand_views(source: StatementText, views: Mapping[str, View]) -> StatementText:
    """Return a statement with the views that it reads as CTEs; positions stay those in the text that was sent."""
    if not views:
        return source
    read = [parts[0] for parts in find_relations(source.text) if len(parts) == 1]
    names = dict.fromkeys(name if name.isascii() else name.lower() for name in read)
    if names.keys().isdisjoint(views):
        return source
    words = list(islice(read_words(source.text), _MAX_WORDS))
    start = next((at for at, word in enumerate(words) if word_of(word) in _QUERIES), None)
    if start is None:
        return source
    first, own = words[start], _find_ctes(words[start:])
    used = [name for name in names if name in views and name not in own]
    if not used:
        return source
    # SELECT * FROM v
    # WITH "v" AS (SELECT ...) SELECT * FROM v
    ctes = ", ".join(f"{quote_name(name)} AS ({views[name].query}\n)" for name in used)  # a query may end in a comment
    if word_of(first) == "WITH":
        following = words[start + 1] if start + 1 < len(words) else first
        at, inserted = (following if word_of(following) == "RECURSIVE" else first).end + 1, f" {ctes},"
    else:
        at, inserted = first.start, f"WITH {ctes} "
    text = source.text[:at] + inserted + source.text[at:]
    # Positions behind the inserted text are those of the text that was sent, so that `before` may be negative.
    return StatementText(text, source.before - len(inserted))


def _find_ctes(words: Sequence[Token]) -> set[str]:
    """Return the names of the CTEs before a query, given its words; they hide views."""
    if word_of(words[0]) != "WITH":
        return set()
    nodes = nest(words).nodes[1:]
    # the query begins with a word, or with parentheses behind those of the last CTE
    begins = (
        at
        for at, node in enumerate(nodes)
        if kinds_of(nodes[at - 1 : at + 1]) == ["L_PAREN", "L_PAREN"]
        or (not isinstance(node, Block) and word_of(node) in _STARTS)
    )
    names = set[str]()
    for part in split(nodes[: next(begins, len(nodes))]):
        for node in part[:2]:  # the first of them may be RECURSIVE
            if isinstance(node, Block) or word_of(node) != "RECURSIVE":
                names |= set() if isinstance(node, Block) else {value_of(node)}
                break
    return names


def list_definitions(views: Mapping[str, View]) -> tuple[str, ...]:
    """Return the statements that create the views in the catalog, as views that cannot be read there."""
    return tuple(view.definition for view in views.values())


def _cut_name(name: str) -> str:
    return name.encode()[:_MAX_NAME].decode(errors="ignore")


# Clients rely on these without asking: JDBC closes a connection whose DateStyle is not ISO, and libpq's
# target_session_attrs reads default_transaction_read_only and in_hot_standby.
REPORTED = (
    "application_name client_encoding DateStyle default_transaction_read_only in_hot_standby integer_datetimes "
    "IntervalStyle is_superuser scram_iterations search_path server_encoding server_version session_authorization "
    "standard_conforming_strings TimeZone"
).split()
PER_CONNECTION = frozenset(["server_version", "session_authorization"])  # reported, but not settings
CONSENT, IMPLICIT = "dpsql.consent", "dpsql.implicit"  # settings; without a value they are as the policy says
DETAILS = "dpsql.details"  # whether the details of a receipt are sent with it
_OWN = frozenset([DETAILS, CONSENT, IMPLICIT])  # settings of dpsql that can be set
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
    DETAILS: "off",
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

    def flag(self, name: str) -> bool | None:
        """Return whether a setting that is on or off is on; None where it was not set."""
        value = self.values.get(name)
        return None if value is None else value.lower() in _ON

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
        # Most statements change no setting, and then there is nothing to measure again.
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

    `schema` has the Arrow types of the columns of a session's query. With `may_change`, they may be others the next
    time.
    """

    parameters: tuple[int, ...] = ()
    columns: tuple[WireColumn, ...] | None = None
    schema: pa.Schema | None = None
    may_change: bool = False

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
        # A statement without a name is counted from its first portal on.
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
