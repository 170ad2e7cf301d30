"""The server under a ledger: a connection that is known to keep what it commits, and statements that end in time.

READ COMMITTED is the level for writers, under a lock that each takes first: every statement after the lock sees all
that was committed before it. A level with one snapshot would take it before waiting for the lock, and then see stale
balances, or fail. Readers take one snapshot of all they look at.

No raw error of the server or of libpq is passed on: each becomes one that says why the ledger could not be used.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg import waiting
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq.abc import PGconn

from dpsql.errors import LedgerError
from dpsql.policy import DatabaseUrl

_STATES = {
    "ledger-busy": {"55P03", "57014", "40001", "40P01"},  # a lock or a statement timed out, or a deadlock was broken
    "ledger-read-only": {"25006", "42501"},
    "ledger-disk-full": {"53100"},
    "ledger-damaged": {"XX001", "XX002", "P0001", "23505", "23514"},  # broken pages, our triggers and constraints
    "ledger-missing": {"3F000", "42P01"},
}
# Connection lost, server shutting down, too many connections, and a transaction that was idle for too long.
_GONE = ("08", "57P", "53300", "25P03")


_FAULTS = {
    "ledger-busy": (
        "Another program locked the ledger for too long.",
        "Try again, or look in pg_stat_activity for a transaction that does not end.",
    ),
    "ledger-read-only": (
        "The ledger cannot be written here.",
        "Connect to the primary server, with a role that docs/reference/ledger.md describes.",
    ),
    "ledger-disk-full": ("The disk under the ledger is full.", "Make room, then ask again."),
    "ledger-damaged": (
        "The ledger holds what dpsql did not write.",
        "Keep the schema and settle by hand what was spent; an older copy would give spent budget back.",
    ),
    "ledger-missing": (
        "There is no ledger here, or this role may not see it.",
        "Name the database and the schema that the policy names, and grant USAGE on the schema.",
    ),
    "not-a-ledger": (
        "The schema holds something else than a ledger of dpsql.",
        "Name another schema, or one that does not exist yet.",
    ),
    "ledger-rolled-back": (
        "The ledger is older than it was, or another ledger: what was spent since is missing from it.",
        "A backup was restored, or a standby took over that had not all of it; put the newest copy back.",
    ),
    "ledger-unconfirmed": (
        "The connection was lost during a commit, and whether the ledger recorded it is not known.",
        "Connect again. Before you repeat a grant or an increment, look whether dpsql ledger export lists it.",
    ),
    "ledger-unreachable": (
        "The database of the ledger cannot be reached, or ended the connection.",
        "Look at the address, the server and the password; psql with the same address says more.",
    ),
    "ledger-failed": ("The ledger could not be read or written.", "Look into the log of the server."),
}


def fault(code: str) -> LedgerError:
    """Return the error of this code, with its reason and its hint."""
    reason, hint = _FAULTS[code]
    return LedgerError(code, reason, hint=hint)


def because(error: psycopg.Error) -> LedgerError:
    """Return the error for one of the server's or the connection's."""
    state = error.sqlstate
    if state is None:
        return fault("ledger-unreachable" if isinstance(error, psycopg.OperationalError) else "ledger-failed")
    code = next((code for code, states in _STATES.items() if state in states), None)
    return fault(code or ("ledger-unreachable" if state.startswith(_GONE) else "ledger-failed"))


@contextmanager
def sealed() -> Iterator[None]:
    """Turn every error of psycopg inside into a LedgerError."""
    try:
        yield
    except psycopg.Error as error:
        raise because(error) from error


Result = TypeVar("Result")
WRITING = "READ COMMITTED"
READING = "REPEATABLE READ READ ONLY"
WAIT = 30.0  # seconds; a commit takes milliseconds, so this is a queue of thousands

_LONGEST = 2  # times WAIT: for a statement, and for a whole act of a writer
_ENDING = 0.1  # times WAIT: for the end of a transaction whose outcome is known already
_HASTE = 1.5  # seconds for a statement of a process that is ending; a new connection takes 2 at least
_LOOK = 0.1  # seconds between two looks at the clock

# A host that vanished is noticed within about WAIT. The address may say otherwise.
_DEFAULTS = {
    "application_name": "dpsql",
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "4",
    "tcp_user_timeout": "30000",
}


class Haste:
    """Whether the process of a ledger is ending, and no statement may wait long."""

    def __init__(self) -> None:
        self.since = math.inf

    def begin(self) -> None:
        """Let no statement take long from now on."""
        self.since = min(self.since, time.monotonic())

    def limit(self, began: float, until: float) -> float:
        """Return when a statement ends at the latest that began then, and would have time until then."""
        return min(until, max(began, self.since) + _HASTE)


class LedgerConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that is closed when a statement takes longer than a minute, or is interrupted.

    No timeout of the server ends a commit that waits for a missing standby, and none reaches a client whose line is
    silent while its TCP stays up.
    """

    def __init__(self, pgconn: PGconn, *options: Any) -> None:  # noqa: ANN401 - psycopg's
        super().__init__(pgconn, *options)
        self.haste = Haste()
        self._until = math.inf

    def wait(self, gen: PQGen[Result], *_: Any, **__: Any) -> Result:  # noqa: ANN401 - limits of psycopg's own
        """Run a statement; raise `OperationalError` where it takes too long."""
        began = time.monotonic()
        limited = self._limit(gen, began=began, until=min(began + _LONGEST * WAIT, self._until))
        try:
            # With an interval psycopg resumes the generator also where the socket is silent, so that it sees the clock.
            return waiting.wait(limited, self.pgconn.socket, interval=_LOOK)
        except psycopg.Error:
            raise
        except BaseException:  # an interrupt leaves a statement without its end
            self.close()
            raise

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Let all statements of the body together take so many seconds."""
        before, self._until = self._until, min(self._until, time.monotonic() + seconds)
        try:
            yield
        finally:
            self._until = before

    def _limit(self, gen: PQGen[Result], *, began: float, until: float) -> PQGen[Result]:
        try:
            state = next(gen)
            while True:
                ready = yield state
                if time.monotonic() >= self.haste.limit(began, until):
                    self.close()
                    raise psycopg.OperationalError
                state = gen.send(ready)
        except StopIteration as end:
            result: Result = end.value
            return result


def connected(url: DatabaseUrl, haste: Haste | None = None) -> LedgerConnection:
    """Open a connection of our own; one attempt. No statement is prepared, so that a pooler may stand between."""
    haste = haste or Haste()
    try:
        given = conninfo_to_dict(url.target)
        others = {name: value for name, value in _DEFAULTS.items() if name not in given}
        if not math.isinf(haste.since):
            others["connect_timeout"] = str(round(_HASTE))
        target = make_conninfo(url.target, **others, client_encoding="UTF8")
        # autocommit: BEGIN and COMMIT are statements of ours, and psycopg begins no transaction.
        connection = LedgerConnection.connect(target, autocommit=True, prepare_threshold=None)
    except psycopg.Error:  # its words may quote the address
        failure = fault("ledger-unreachable")
    else:
        connection.haste = haste
        return connection
    # Raised outside of the handler, so that the error that may quote the address is no part of it.
    raise failure


def refuse_unsafe(connection: LedgerConnection) -> None:
    """Raise `ledger-read-only` on a standby, `ledger-not-durable` if a crash may lose or tear what was committed."""
    with connection.within(WAIT):
        row = connection.execute(
            "SELECT pg_is_in_recovery(), current_setting('fsync'), current_setting('full_page_writes')"
        ).fetchone()
    in_recovery, *flushed = row or (True,)
    if in_recovery:
        raise fault("ledger-read-only")
    for setting, value in zip(("fsync", "full_page_writes"), flushed, strict=True):
        if value != "on":
            raise LedgerError(
                "ledger-not-durable",
                f"What is spent could be lost here: the server runs with {setting} = off.",
                hint="Switch it on, or put the ledger on a server with durable commits.",
            )


def is_idle(connection: LedgerConnection) -> bool:
    """Say whether a connection is alive, as far as is known, and in no transaction that someone left open."""
    return connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


def read_snapshot(connection: LedgerConnection) -> str:
    """Return the transactions that a statement sees now, as a text that changes with every commit to the database."""
    with connection.within(WAIT):
        row = connection.execute(
            "SELECT pg_backend_pid(), pg_postmaster_start_time(), pg_current_snapshot()"
        ).fetchone()
    return " ".join(map(str, row or ()))


def begin_transaction(connection: LedgerConnection, level: str, *, schema: str) -> None:
    """Begin a short transaction whose commit is on the disk when it returns.

    A process that stalls within it loses the transaction and its lock.
    """
    limits = {"lock_timeout": WAIT, "statement_timeout": 1.5 * WAIT, "idle_in_transaction_session_timeout": WAIT / 2}
    settings = {
        "synchronous_commit": "on",
        "search_path": f'"{schema}", pg_temp',  # a schema's name is checked where it is read
        **{name: str(max(1, round(seconds * 1000))) for name, seconds in limits.items()},
    }
    # SET LOCAL ends with the transaction: behind a pooler the connection goes to another client then.
    told = "; ".join(f"SET LOCAL {name} = {value}" for name, value in settings.items())
    with connection.within(WAIT):
        connection.execute(f"BEGIN ISOLATION LEVEL {level}; {told}")


@contextmanager
def open_cursor(connection: LedgerConnection, name: str) -> Iterator[psycopg.ServerCursor[tuple[Any, ...]]]:
    """Open a cursor of the server during the body; one that cannot be closed there is closed with its connection."""
    cursor = connection.cursor(name)
    try:
        yield cursor
    finally:
        try:
            cursor.close()
        except BaseException:
            connection.close()
            cursor.close()
            raise


@contextmanager
def until_committed(connection: LedgerConnection, level: str) -> Iterator[None]:
    """Commit when the body ends, undo it if anything is raised; a connection that can do neither is closed."""
    with connection.within(_LONGEST * WAIT if level == WRITING else math.inf):
        try:
            yield
        except Exception:
            _undo(connection)
            raise
        except BaseException:  # an interrupt does not wait for the server, which undoes it
            connection.close()
            raise
        if level == WRITING:
            _commit(connection)
        else:
            _end_reading(connection)


def _undo(connection: LedgerConnection) -> None:
    try:
        with connection.within(_ENDING * WAIT):
            connection.execute("ROLLBACK")
    except psycopg.Error:
        connection.close()  # the server then undoes it
    except BaseException:
        connection.close()
        raise


def _end_reading(connection: LedgerConnection) -> None:
    """End a transaction that has read all it wanted, which is right also where the line breaks now."""
    try:
        with connection.within(_ENDING * WAIT):
            done = connection.execute("COMMIT").statusmessage
    except psycopg.OperationalError:
        connection.close()
        return
    if done != "COMMIT":  # an error was passed over
        raise fault("ledger-failed")


def _commit(connection: LedgerConnection) -> None:
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
        raise fault("ledger-unconfirmed")


VERSION = 5  # with stored tables
DIVISIONS = 4  # with budgets of values
REPEATS = 3  # with entries that may repeat others, and a certificate other than zcdp or none
PLAIN = 1  # of the two earlier versions the one without a certificate
_LOCK = 0x64707371  # "dpsq": those who make ledgers in one database wait for one another

_TABLES = """
CREATE TABLE terms (one integer PRIMARY KEY CHECK (one = 1), version integer NOT NULL, body text NOT NULL);
CREATE TABLE balances (holder text PRIMARY KEY, body text NOT NULL);
CREATE TABLE events (
    seq bigint PRIMARY KEY, at text NOT NULL, kind text NOT NULL, body text NOT NULL, chain text NOT NULL
);
CREATE TABLE answers (entry bigint PRIMARY KEY, content bytea NOT NULL);
"""
# The JSON of PostgreSQL refuses some letters that a query may hold. In a body every quote within a text is escaped, so
# that a bare one begins a name, and keys stand before what an analyst wrote.
_FUNCTIONS = {
    "told_entry": r"""SELECT substring(body from '"entry":([0-9]+)')::bigint""",
    "told_key": r"""SELECT substring(body from '"key":("(?:[^"\\]|\\.)*")')""",
    "follow": """
BEGIN
    IF new.seq <> (SELECT coalesce(max(seq), 0) + 1 FROM events) THEN
        RAISE EXCEPTION 'events follow one another';
    END IF;
    RETURN new;
END""",
    "stay": """
BEGIN
    RAISE EXCEPTION 'a ledger only grows';
END""",
}
_RULES = f"""
CREATE FUNCTION told_entry(body text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $${_FUNCTIONS["told_entry"]}$$;
CREATE FUNCTION told_key(body text) RETURNS text LANGUAGE sql IMMUTABLE AS $${_FUNCTIONS["told_key"]}$$;
CREATE FUNCTION follow() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $${_FUNCTIONS["follow"]}$$;
CREATE FUNCTION stay() RETURNS trigger LANGUAGE plpgsql AS $${_FUNCTIONS["stay"]}$$;
CREATE UNIQUE INDEX settled_once ON events (told_entry(body)) WHERE kind = 'settled';
CREATE INDEX asked ON events USING hash (told_key(body)) WHERE kind = 'reserved' AND told_key(body) <> '""';
CREATE INDEX registrations ON events (seq) WHERE kind = 'registered';
CREATE TRIGGER events_follow BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION follow();
CREATE TRIGGER events_stay BEFORE UPDATE OR DELETE OR TRUNCATE ON events FOR EACH STATEMENT EXECUTE FUNCTION stay();
CREATE TRIGGER answers_stay BEFORE UPDATE OR DELETE OR TRUNCATE ON answers FOR EACH STATEMENT EXECUTE FUNCTION stay();
CREATE TRIGGER terms_stay BEFORE DELETE OR TRUNCATE ON terms FOR EACH STATEMENT EXECUTE FUNCTION stay();
CREATE TRIGGER balances_stay BEFORE DELETE OR TRUNCATE ON balances FOR EACH STATEMENT EXECUTE FUNCTION stay();
"""

# The content of the schema, line by line, without the parts that differ by version of PostgreSQL.
_RELATIONS = """
SELECT c.relname, c.relkind::text || c.relpersistence::text, (
    SELECT string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod), ', ' ORDER BY a.attnum)
    FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
), c.relhasrules OR c.relrowsecurity OR EXISTS (
    SELECT 1 FROM pg_index i WHERE i.indexrelid = c.oid AND NOT (i.indisvalid AND i.indisready)
)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s
"""
_TRIGGERS = """
SELECT t.tgname, c.relname, p.proname, t.tgtype::int, t.tgenabled::text, t.tgqual IS NULL
FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_proc p ON p.oid = t.tgfoid AND p.pronamespace = n.oid
WHERE n.nspname = %s
"""
_SOURCES = (
    "SELECT p.proname, p.prosrc FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = %s"
)

_TERMS = ("terms", "rp", "one integer, version integer, body text", False)
_EXPECTED_RELATIONS = {
    _TERMS,
    ("terms_pkey", "ip", "one integer", False),
    ("balances", "rp", "holder text, body text", False),
    ("balances_pkey", "ip", "holder text", False),
    ("events", "rp", "seq bigint, at text, kind text, body text, chain text", False),
    ("events_pkey", "ip", "seq bigint", False),
    ("answers", "rp", "entry bigint, content bytea", False),
    ("answers_pkey", "ip", "entry bigint", False),
    ("settled_once", "ip", "told_entry bigint", False),
    ("asked", "ip", "told_key integer", False),
    ("registrations", "ip", "seq bigint", False),
}
_ROW_BEFORE_INSERT, _BEFORE_DELETE_OR_TRUNCATE, _BEFORE_ALL_BUT_INSERT = 7, 42, 58  # bits of pg_trigger.tgtype
_EXPECTED_TRIGGERS = {
    ("events_follow", "events", "follow", _ROW_BEFORE_INSERT, "O", True),
    ("events_stay", "events", "stay", _BEFORE_ALL_BUT_INSERT, "O", True),
    ("answers_stay", "answers", "stay", _BEFORE_ALL_BUT_INSERT, "O", True),
    ("terms_stay", "terms", "stay", _BEFORE_DELETE_OR_TRUNCATE, "O", True),
    ("balances_stay", "balances", "stay", _BEFORE_DELETE_OR_TRUNCATE, "O", True),
}

# Each fails for a role without the right, although none changes a row.
_WRITES = """
SELECT one FROM terms WHERE false FOR UPDATE;
INSERT INTO events SELECT * FROM events WHERE false;
INSERT INTO answers SELECT * FROM answers WHERE false;
INSERT INTO balances SELECT * FROM balances WHERE false;
UPDATE balances SET body = body WHERE false
"""


def is_blank(connection: LedgerConnection, schema: str) -> bool:
    """Say whether the schema is empty: new, or created for a ledger."""
    return not _relations(connection, schema)


def lock_making(connection: LedgerConnection) -> None:
    """Wait until no other process is creating a ledger in this database."""
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))


def build(connection: LedgerConnection, schema: str) -> None:
    """Make the tables of a ledger, and the schema if it is not there; inside the caller's transaction."""
    (there,) = connection.execute("SELECT to_regnamespace(%s) IS NOT NULL", (schema,)).fetchone() or (False,)
    if not there:
        connection.execute(f'CREATE SCHEMA "{schema}"')
    connection.execute(_TABLES)
    connection.execute(_RULES)


def refuse_strange(connection: LedgerConnection, schema: str) -> None:
    """Raise `ledger-damaged` if tables, triggers or functions of a ledger are not as they were made."""
    if _relations(connection, schema) != _EXPECTED_RELATIONS:
        raise fault("ledger-damaged")
    if set(connection.execute(_TRIGGERS, (schema,))) != _EXPECTED_TRIGGERS:
        raise fault("ledger-damaged")
    if dict(connection.execute(_SOURCES, (schema,))) != _FUNCTIONS:
        raise fault("ledger-damaged")


def refuse_foreign(connection: LedgerConnection, schema: str) -> None:
    """Raise `not-a-ledger` if the schema holds something else than a ledger of any version."""
    if _TERMS not in _relations(connection, schema):
        raise fault("not-a-ledger")


def raise_version(connection: LedgerConnection, version: int = REPEATS) -> bool:
    """Bring the version of an earlier dpsql's tables to at least `version`; return whether this role may."""
    # Without a savepoint a refused UPDATE would abort the whole transaction.
    connection.execute("SAVEPOINT version")
    try:
        connection.execute("UPDATE terms SET version = %s WHERE version < %s", (version, version))
    except psycopg.errors.InsufficientPrivilege:
        connection.execute("ROLLBACK TO version")
        return False
    return True


def refuse_unwritable(connection: LedgerConnection) -> None:
    """Raise what the server says to a role that may not reserve and settle."""
    connection.execute(_WRITES)


def _relations(connection: LedgerConnection, schema: str) -> set[tuple[object, ...]]:
    return set(connection.execute(_RELATIONS, (schema,)))
