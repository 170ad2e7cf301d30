"""Catalog in a real PostgreSQL that has the tables of the policy, without rows.

Before PostgreSQL runs a statement, it must only read, and call no function with effects. PostgreSQL limits it further:
by a role without rights, a read-only transaction, and the tables that it locks. An answer is stored only if all
functions and relations are on closed lists, whose values depend on the tables and the user alone: what depends on time,
on the connection or on statistics is always run.

Every statement runs in a transaction of its own, which is rolled back. The transaction creates the role of the user and
switches to it before it reads the statement, so that current_user is right and other users are not visible.
PostgreSQL itself shows which tables a statement names: it has a lock on each until the transaction ends.

libpq connects and prepares. It would take a row whole before it can be measured, and copy each value, so rows are read
from the socket of the connection as PostgreSQL sends them, which is how they are held. What the rows of an answer hold
is counted and limited while they are read.
"""

from __future__ import annotations

import os
import re
import select
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TypeVar

import psycopg
from psycopg import pq
from psycopg.pq.abc import PGconn, PGresult

from dpsql.server.catalog.cluster import create_definitions, create_slots
from dpsql.server.catalog.system_catalog import (
    NOTHING_ADDED,
    Additions,
    CatalogError,
    CatalogRows,
    Description,
    Hold,
    Parameter,
    RowBlocks,
    RowWriter,
    WireColumn,
    fold_name,
    fold_word,
    is_name_start,
    measure_columns,
    split_words,
)
from dpsql.server.limits import BoundedCache
from dpsql.sql.ir.catalog import Catalog as Tables
from dpsql.sql.ir.catalog import Table
from dpsql.sql.lexer import MAX_TEXT_LENGTH

MAX_BYTES = 16 * 1024 * 1024  # of an answer as it is sent; a list of 50,000 columns for JDBC takes about 8 million
MAX_ROWS = 50_000  # tools list a row for each column, and for each of PostgreSQL's 3,400 functions

_READING_VERBS = ("select", "with", "values", "table", "show")
_FUNCTIONS_WITH_EFFECTS = re.compile(
    r"""
      pg_sleep.* | pg_read_.* | pg_ls_.* | pg_stat_file | pg_file_.* | pg_advisory.* | pg_try_advisory.* | pg_notify
    | pg_terminate_backend | pg_cancel_backend | pg_reload_conf | pg_rotate_logfile | pg_export_snapshot | pg_logical.*
    | pg_create_.* | pg_drop_.* | pg_switch_wal | pg_promote | pg_backup_.* | pg_import_.* | pg_clear_.* | pg_restore_.*
    | lo_.* | loread | lowrite | dblink.* | nextval | setval | currtid2? | ts_stat | ts_rewrite
    | (query|cursor|table|schema|database)_to_xml.*
    """,
    re.VERBOSE,
)
# psql 15 and 16 use names that changed in version 17; the length stays the same, for the positions of errors.
_NAMES = {"daticulocale": "datlocale", "colliculocale": "colllocale"}
_RENAMED = re.compile(r"(?<=[dc]\.)(?:daticulocale|colliculocale)\b")


def check_statement(sql: str) -> bytes:
    """Return a statement as bytes; raise `CatalogError` unless it only reads."""
    if len(sql) > MAX_TEXT_LENGTH:
        raise CatalogError("54000", "The statement is too long.", hint=f"Send at most {MAX_TEXT_LENGTH} characters.")
    words = None if "\0" in sql else split_words(sql)
    if words is None:
        raise CatalogError("42601", "A string, a name or a comment has no end, or there are too many words.")
    if next((word for word in map(fold_word, words) if word != "("), "") not in _READING_VERBS:
        raise CatalogError("0A000", "Only statements that read are supported.", hint="Send a SELECT.")
    names = {fold_name(word) for word in words}
    if any(_FUNCTIONS_WITH_EFFECTS.fullmatch(name) for name in names) or ("u" in names and "&" in names):
        reason = "The statement calls a function that may change something or wait, or writes a name with escapes."
        raise CatalogError("42501", reason, hint="Leave the function out, or write the name without U&.")
    try:
        return _RENAMED.sub(lambda found: _NAMES[found[0]].ljust(len(found[0])), sql).encode()
    except UnicodeEncodeError:
        raise CatalogError("22021", "The statement is not valid Unicode.") from None


def private_table_error() -> CatalogError:
    """Return the error for a statement that reads a table of the policy together with system catalogs."""
    reason = "A table of the policy cannot be read together with system catalogs."
    return CatalogError(
        "42501", reason, hint="Query the table alone; where it is private, end the query with: TOP 10 PRIVATE"
    )


def too_large_error() -> CatalogError:
    """Return the error for an answer above the limits."""
    return CatalogError("54000", "The answer is too large.", hint="Add a WHERE or a LIMIT.")


_CONSTANT_FUNCTIONS = frozenset(
    """
    array_agg array_length array_lower array_position array_to_string array_upper bool_and bool_or btrim cardinality
    char_length coalesce concat concat_ws count format generate_series generate_subscripts greatest json_agg
    json_build_object jsonb_agg jsonb_build_object least left length lower ltrim max min nullif parse_ident position
    quote_ident quote_literal regexp_match regexp_replace regexp_split_to_table replace right row_number row_to_json
    rtrim split_part starts_with string_agg string_to_array strpos substr substring sum to_json trim unnest upper

    col_description current_database current_schema current_schemas current_setting format_type getdatabaseencoding
    obj_description pg_char_to_encoding pg_encoding_to_char pg_get_constraintdef pg_get_expr pg_get_function_arguments
    pg_get_function_identity_arguments pg_get_function_result pg_get_function_sqlbody pg_get_functiondef
    pg_get_indexdef pg_get_keywords pg_get_partkeydef pg_get_ruledef pg_get_serial_sequence pg_get_statisticsobjdef
    pg_get_statisticsobjdef_columns pg_get_triggerdef pg_get_userbyid pg_get_viewdef pg_is_in_recovery
    pg_relation_is_publishable pg_tablespace_location row_security_active set_config shobj_description to_regclass
    to_regnamespace to_regproc to_regtype version
    """.split()
)
_CONSTANT_FAMILIES = re.compile(r"_pg_\w+|pg_\w+_is_visible|has_\w+_privilege")
_KEYWORDS_BEFORE_PARENTHESES = frozenset(
    """
    all and any array as bit bpchar case cast char decimal distinct else except exists filter from group having in
    intersect is join lateral like limit not numeric offset on only operator or over partition recursive select some
    then union using values varchar when where with
    """.split()
)
_NAMES_OF_LISTS = frozenset(["as", "with", "recursive"])  # words before a name that has a list of columns
_CLOCK_WORDS = frozenset("current_date current_time current_timestamp localtime localtimestamp".split())
_TIMES = re.compile(r"_?(?:date|time|timetz|time_?stamp|timestamptz|(?:date|ts|tstz)(?:multi)?range)")  # _ of an array
_CLOCK_TEXT = re.compile(r"(?<![a-z])(?:now|today|tomorrow|yesterday)(?![a-z])|\\[0-7xu]", re.IGNORECASE)
_RELATIONS = re.compile(
    r"""
    pg_catalog | pg_toast | pg_get_\w+ | pg_(?:
      am | amop | amproc | attrdef | attribute | auth_members | cast | class | collation | constraint | conversion
    | database | db_role_setting | default_acl | depend | description | enum | event_trigger | extension
    | foreign_data_wrapper | foreign_server | foreign_table | group | index | indexes | inherits | init_privs | language
    | largeobject_metadata | matviews | namespace | opclass | operator | opfamily | parameter_acl | partitioned_table
    | policies | policy | proc | publication | publication_namespace | publication_rel | publication_tables | range
    | rewrite | roles | rules | seclabel | seclabels | sequence | settings | shdepend | shdescription | statistic_ext
    | subscription | tables | tablespace | transform | trigger | ts_\w+ | type | user | user_mapping | user_mappings
    | views )
    """,
    re.VERBOSE,
)


def is_constant(sql: str, parameters: Sequence[Parameter]) -> bool:
    """Return whether a statement has the same answer as long as the tables and the user are the same."""
    texts = [sql, *(each.value.decode(errors="replace") for each in parameters if each.value is not None)]
    if any(_CLOCK_TEXT.search(text) for text in texts):
        return False
    words = split_words(sql)
    if not words or fold_name(words[0]) == "show":
        return False
    names = list(map(fold_name, words))
    for at, name in enumerate(names):
        before, then = names[at - 1] if at else "", names[at + 1] if at + 1 < len(names) else ""
        if name in _CLOCK_WORDS or _TIMES.fullmatch(name):  # a text that is cast to a time may be 'now'
            return False
        if is_name_start(name):
            if then == "(":
                is_known = (
                    name in _CONSTANT_FUNCTIONS
                    or _CONSTANT_FAMILIES.fullmatch(name) is not None
                    or before in _NAMES_OF_LISTS
                )
                is_known = is_known or (name in _KEYWORDS_BEFORE_PARENTHESES and fold_word(words[at]) == name)
            else:
                is_known = not name.startswith("pg_") or _RELATIONS.fullmatch(name) is not None
            if not is_known:
                return False
    return True


Answered = TypeVar("Answered")
_MOST_CONNECTIONS = 4
_STATEMENT_LIMIT = "10s"
_WAIT = 15.0  # seconds for a turn, or for a connection
_WAITING: dict[int, int] = {pq.PollingStatus.READING: select.POLLIN, pq.PollingStatus.WRITING: select.POLLOUT}
_FIRST_OF_USERS = 16384  # below it are the OIDs that every PostgreSQL begins with
_LOCKS = b"locks"
_LOCKED = f"""
WITH own AS (
    SELECT relation FROM pg_catalog.pg_locks
    WHERE pid = pg_catalog.pg_backend_pid() AND locktype = 'relation' AND relation >= {_FIRST_OF_USERS}
    AND mode NOT IN ('AccessExclusiveLock', 'ShareUpdateExclusiveLock')
)
SELECT 1 FROM own WHERE relation IN (SELECT oid FROM pg_catalog.pg_class WHERE relkind = 'r') LIMIT 1
""".encode()  # noqa: S608 - our own number
_MAX_DESCRIPTIONS, _MAX_ANSWERS = 4 * 1024 * 1024, 32 * 1024 * 1024  # bytes of stored descriptions and answers
_OF_ENTRY, _OF_VALUE = 1_000, 100  # bytes that Python needs for an entry of a cache, and for a value in its key
_OURS = frozenset(["dpsql", "public", "none"])
_NO_TABLES = Tables(())
_MOST_STORED, _SLOTS_AT_A_TIME = 200, 32


class Shadow:
    """Statements over the catalogs of one PostgreSQL, each under the role of its user."""

    def __init__(self, conninfo: str, *, place: str, stop: Callable[[], None], tables: Tables = _NO_TABLES) -> None:
        """Connect once, to check that the server answers. Raises `CatalogError`; `close` calls `stop`.

        `place` says in the message at start which server it is, and `tables` are those that it has.
        """
        self._tables = tables
        self._slots = dict[tuple[str, str], int]()  # those of stored tables, by user and name
        self._most_slots = 0
        self._conninfo = conninfo
        self._stop = stop
        self._idle: list[PGconn] = []
        self._lock = threading.Lock()
        self._turns = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self._roles: dict[str, threading.Lock] = {}  # whose statement is being answered; as many as there are users
        self._closed = False
        self._descriptions = BoundedCache[Description](_MAX_DESCRIPTIONS)
        self._answers = BoundedCache[CatalogRows](_MAX_ANSWERS)
        first = connect(conninfo)
        number = first.server_version
        self.version = f"{number // 10000}.{number % 10000}"
        self.summary = f"PostgreSQL {self.version}{place}"
        self._idle.append(first)

    def find_description(self, sql: str, types: Sequence[int] = ()) -> Description | None:
        """Return the description of a statement that was described before, or None; never wait."""
        return self._descriptions.find((sql, tuple(types)))

    def find_answer(
        self, sql: str, parameters: Sequence[Parameter] = (), *, user: str, formats: Sequence[int] = ()
    ) -> CatalogRows | None:
        """Return the answer to a statement that was run before if it is still right, or None; never wait."""
        return self._answers.find((user, sql, tuple(parameters), tuple(formats)))

    def describe(
        self,
        sql: str,
        types: Sequence[int] = (),
        *,
        user: str,
        added: Additions = NOTHING_ADDED,
    ) -> Description:
        """Return what one statement takes and gives. Raises `CatalogError`."""
        found = None if added.definitions else self.find_description(sql, types)
        if found is None:
            text = check_statement(sql)
            prepare = partial(_prepared, text=text, types=types)
            found = self._asked(user, prepare, added=added)
        if not added.definitions:
            size = _measure_key(sql) + _OF_VALUE * (len(types) + len(found.parameters)) + measure_columns(found.columns)
            self._descriptions.add((sql, tuple(types)), found, size=size)
        return found

    def execute(
        self,
        sql: str,
        parameters: Sequence[Parameter] = (),
        *,
        user: str,
        formats: Sequence[int] = (),
        added: Additions = NOTHING_ADDED,
        hold: Hold | None = None,
    ) -> CatalogRows:
        """Answer one statement. Raises `CatalogError`, and what `hold` raises."""
        found = None if added.definitions else self.find_answer(sql, parameters, user=user, formats=formats)
        if found is not None and found.stored == added.stored:
            if hold is not None:
                hold(found.size)
            return found
        text = check_statement(sql)

        def answer(connection: PGconn) -> CatalogRows:
            columns = _prepared(connection, text, types=[each.type_oid for each in parameters]).columns
            if not {*formats} <= {0, 1} or len(formats) not in {0, 1, len(columns)}:
                raise CatalogError("08P01", "The formats of the results do not fit the columns.")
            if hold is not None:
                hold(measure_columns(columns))
            codes = tuple(formats) if len(formats) > 1 else (*formats, 0)[:1] * len(columns)
            return CatalogRows(columns, *read_rows(connection, parameters, formats=codes, hold=hold), added.stored)

        found = self._asked(user, answer, added=added)
        if not added.definitions and is_constant(sql, parameters):
            size = _measure_key(sql, parameters) + found.size
            self._answers.add((user, sql, tuple(parameters), tuple(formats)), found, size=size)
        return found

    def close(self) -> None:
        """Close the idle connections, then stop the server."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.finish()
        self._stop()

    def _create_slots(self, connection: PGconn, name: str, *, stored: Sequence[Table]) -> Mapping[str, int]:
        """Return the slots of a user's stored tables, by name; create those that are missing, some at a time."""
        with self._lock:
            for table in stored:
                self._slots.setdefault((name, table.name), len(self._slots))
            if len(self._slots) > self._most_slots:
                most = -(-len(self._slots) // _SLOTS_AT_A_TIME) * _SLOTS_AT_A_TIME
                run(connection, *create_slots(self._most_slots, most))
                self._most_slots = most
            return {table.name: self._slots[name, table.name] for table in stored}

    def _asked(
        self,
        user: str,
        act: Callable[[PGconn], Answered],
        *,
        added: Additions = NOTHING_ADDED,
    ) -> Answered:
        """Return the result of an act in a read-only transaction under the role of the user, with what is `added`.

        The transaction makes the stored tables of empty ones, which nobody else uses.
        """
        known = user.encode(errors="replace").replace(b"\0", b"")[:63].decode(errors="ignore")
        is_usable = known and known not in _OURS and not known.startswith("pg_")
        name = known if is_usable else "analyst"  # PostgreSQL or we have another use for it
        limits = f"SET LOCAL statement_timeout = '{_STATEMENT_LIMIT}'; SET LOCAL lock_timeout = '{_STATEMENT_LIMIT}';"
        # BEGIN ISOLATION LEVEL REPEATABLE READ; CREATE ROLE ada LOGIN; SET TRANSACTION READ ONLY;
        # SET LOCAL SESSION AUTHORIZATION ada
        begin = f"BEGIN ISOLATION LEVEL REPEATABLE READ; {limits}"
        stored = added.stored[:_MOST_STORED]
        with self._lock:
            own = self._roles.setdefault(name, threading.Lock())
        try:
            # One statement of a user at a time: CREATE ROLE of one name in two open transactions would wait for the
            # other's end.
            with _turn(own), _turn(self._turns), self._connection() as connection:
                made = list(added.definitions)
                if stored:
                    slots = self._create_slots(connection, name, stored=stored)
                    listed = replace(self._tables, tables=(*self._tables.tables, *stored))
                    made += create_definitions(listed, slots=slots)
                role = pq.Escaping(connection).escape_identifier(name.encode())
                switch = b"LOGIN; SET TRANSACTION READ ONLY; SET LOCAL SESSION AUTHORIZATION " + role
                try:
                    started = connection.exec_(
                        "; ".join([begin, *made, "CREATE ROLE "]).encode() + role + b" " + switch
                    )
                    check_result(connection, started)
                    return act(connection)
                finally:
                    # The role, the settings and the views end with the transaction.
                    if connection.status == pq.ConnStatus.OK:
                        connection.exec_(b"ROLLBACK")
        except psycopg.Error:
            raise lost_error() from None

    @contextmanager
    def _connection(self) -> Iterator[PGconn]:
        """Lend a connection that is in no transaction; one that a failure has left otherwise is closed."""
        with self._lock:
            if self._closed:
                raise CatalogError("57P01", "The server is stopping.")
            connection = self._idle.pop() if self._idle else None
        # An idle connection may be dead: an empty statement finds out.
        if connection is None or connection.exec_(b"").status != pq.ExecStatus.EMPTY_QUERY:
            connection = connect(self._conninfo)
        try:
            yield connection
        finally:
            usable = connection.transaction_status == pq.TransactionStatus.IDLE  # a closed one's is unknown
            with self._lock:
                keep = usable and not self._closed
                if keep:
                    self._idle.append(connection)
            if not keep:
                connection.finish()


@contextmanager
def _turn(gate: threading.Lock | threading.BoundedSemaphore) -> Iterator[None]:
    """Wait to be let in, so that slow statements of one keep others waiting for a bounded time."""
    if not gate.acquire(timeout=_WAIT):
        raise CatalogError("53300", "Too many statements wait for the catalog.", hint="Try again in a moment.")
    try:
        yield
    finally:
        gate.release()


def connect(conninfo: str) -> PGconn:
    """Return a connection. Raises `CatalogError`."""
    connection = pq.PGconn.connect_start(conninfo.encode())
    deadline = time.monotonic() + _WAIT
    wanted: int = pq.PollingStatus.FAILED
    if connection.status != pq.ConnStatus.BAD:
        wanted = connection.connect_poll()
    while wanted in _WAITING and is_ready(connection, _WAITING[wanted], seconds=deadline - time.monotonic()):
        wanted = connection.connect_poll()
    if wanted != pq.PollingStatus.OK:
        connection.finish()
        raise CatalogError("58000", "The PostgreSQL for catalogs does not answer.", hint="Try again in a moment.")
    connection.notice_handler = None
    check_result(connection, connection.prepare(_LOCKS, _LOCKED))
    return connection


def run(connection: PGconn, *statements: str) -> None:
    """Run statements of our own. Raises `CatalogError`."""
    for statement in statements:
        check_result(connection, connection.exec_(statement.encode()))


def _prepared(connection: PGconn, text: bytes, *, types: Sequence[int]) -> Description:
    """Prepare a statement and return what it takes and gives, once it is known to return rows and to name no table."""
    check_result(connection, connection.prepare(b"", text, list(types)))
    told = check_result(connection, connection.describe_prepared(b""))
    columns = tuple(
        WireColumn((told.fname(at) or b"").decode(), told.ftype(at), told.fsize(at), told.fmod(at))
        for at in range(told.nfields)
    )
    if not columns:  # so are statements that act, which could end our transaction
        raise CatalogError("0A000", "This statement returns no column.", hint="Write what to select.")
    # by another prepared statement: a query of any other kind would forget the one without a name
    if check_result(connection, connection.exec_prepared(_LOCKS, [])).ntuples:
        raise private_table_error()
    return Description(tuple(told.param_type(at) for at in range(told.nparams)), columns)


def _measure_key(sql: str, parameters: Sequence[Parameter] = ()) -> int:
    """Return the bytes that a key of a cache holds."""
    values = sum(_OF_VALUE + len(each.value or b"") for each in parameters)
    return _OF_ENTRY + sys.getsizeof(sql) + values


_LONGEST = 30.0  # seconds for what PostgreSQL should have ended itself
GOOD = frozenset([pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK])
_ERROR_FIELDS = (
    pq.DiagnosticField.SQLSTATE,
    pq.DiagnosticField.MESSAGE_PRIMARY,
    pq.DiagnosticField.MESSAGE_HINT,
    pq.DiagnosticField.STATEMENT_POSITION,
)
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
        if connection.status != pq.ConnStatus.OK:
            raise lost_error()
        state, message, hint, position = (
            (result.error_field(part) or b"").decode(errors="replace") for part in _ERROR_FIELDS
        )
        raise make_error(state, message, hint=hint, position=position)
    return result


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


_CHUNK = 64 * 1024  # bytes that are read together
_PAUSE = 1e-5  # seconds between chunks, in which other threads run
_HEAD = struct.Struct("!ci")
_MIN_LENGTH = 4  # of a message, which counts itself
_EXECUTE = _HEAD.pack(b"E", 9) + bytes(5) + _HEAD.pack(b"S", 4)  # all rows of the portal without a name; and Sync


def read_rows(
    connection: PGconn, parameters: Sequence[Parameter], *, formats: Sequence[int], hold: Hold | None
) -> tuple[RowBlocks, str]:
    """Run the prepared statement without a name, and return its rows, each column in its format, and its tag.

    A connection whose rows were not all read is closed. Raises `CatalogError`, and what `hold` raises.
    """
    reader = _RowReader(connection, hold)
    # A Bind: portal and statement, both without a name; the formats of the values; the values; the formats of the
    # columns.
    parts = [bytes(2), _pack_codes([int(each.is_binary) for each in parameters]), struct.pack("!H", len(parameters))]
    for each in parameters:
        parts += [struct.pack("!i", -1 if each.value is None else len(each.value)), each.value or b""]
    bind = b"".join([*parts, _pack_codes(formats)])  # values to the statement without a name
    message, sent = _HEAD.pack(b"B", len(bind) + 4) + bind + _EXECUTE, 0
    try:
        while sent < len(message):
            wait_until_ready(connection, select.POLLOUT)
            sent += os.write(connection.socket, message[sent : sent + _CHUNK])
        while not reader.is_complete:
            reader.read()
            time.sleep(_PAUSE)
    except OSError:
        raise lost_error() from None
    finally:
        # Rows that were not read would be taken for the answer to the next statement.
        if not reader.is_complete:
            connection.finish()
    if reader.failure is not None:
        raise reader.failure
    return reader.finish(), reader.tag


def _pack_codes(codes: Sequence[int]) -> bytes:
    return struct.pack(f"!H{len(codes)}H", len(codes), *codes)


class _RowReader:
    """Reader of the messages that answer Bind, Execute and Sync."""

    def __init__(self, connection: PGconn, hold: Hold | None) -> None:
        self._connection, self._hold, self._held = connection, hold, 0
        self._writer, self._count = RowWriter(), 0
        self._data = bytearray()
        self.tag = ""
        self.failure: CatalogError | None = None
        self.is_complete = False

    def read(self) -> None:
        """Read what has arrived; raise `CatalogError` if the connection has ended, or for too many rows."""
        wait_until_ready(self._connection, select.POLLIN)
        received = os.read(self._connection.socket, _CHUNK)
        if not received:
            raise lost_error()
        data = self._data
        data += received
        at = start = 0
        ends = list[int]()  # of rows that follow each other, from `start` on
        while len(data) - at >= _HEAD.size:
            kind, size = _HEAD.unpack_from(data, at)
            if size < _MIN_LENGTH:
                raise lost_error()
            stop = at + size + 1
            if kind == b"D":
                if stop > len(data):
                    if self._writer.size + size > MAX_BYTES:  # before all of a long row is read
                        raise too_large_error()
                    break
                ends.append(stop - start)
            elif stop > len(data):
                break
            else:
                self._add_rows(start, ends)
                self._read_message(kind, bytes(data[at + _HEAD.size : stop]))
                ends, start = [], stop
            at = stop
        self._add_rows(start, ends)
        # What is left is the beginning of a message, or nothing.
        del data[:at]

    def _add_rows(self, start: int, ends: Sequence[int]) -> None:
        """Add rows, by the position behind each; raise `CatalogError` beyond the limits of an answer."""
        if not ends:
            return
        with memoryview(self._data) as data, data[start : start + ends[-1]] as messages:
            self._writer.extend(messages, ends)
        self._count += len(ends)
        if self._writer.size > MAX_BYTES or self._count > MAX_ROWS:
            raise too_large_error()
        self._hold_size(self._writer.size)

    def _read_message(self, kind: bytes, content: bytes) -> None:
        if kind == b"C":
            self.tag = content.rstrip(b"\0").decode()
        elif kind == b"E":
            fields = {part[:1]: part[1:].decode(errors="replace") for part in content.split(b"\0")}
            self.failure = make_error(
                fields.get(b"C", ""), fields.get(b"M", ""), hint=fields.get(b"H", ""), position=fields.get(b"P", "")
            )
        elif kind == b"Z":
            self.is_complete = True

    def finish(self) -> RowBlocks:
        """Return all rows."""
        rows = self._writer.finish()
        self._hold_size(rows.size)
        return rows

    def _hold_size(self, size: int) -> None:
        if self._hold is not None:
            self._hold(size - self._held)
        self._held = size
