"""Tables of a ledger in PostgreSQL: events and answers that only grow, and the present that they add up to.

What was read under the lock is not read again before the transaction ends. Terms and balances are JSON, so that they
can come to tell more; numbers are fractions as text, with which the server never calculates.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Any, TypeVar

import psycopg

from dpsql.accounting import BudgetState
from dpsql.errors import LedgerError
from dpsql.ledger.durable import FIRST, HISTORY, LINKED, EventRows, RowsFound, encode_holder
from dpsql.ledger.postgres.connection import LedgerConnection, fault, open_cursor
from dpsql.ledger.record import Event, LedgerTerms, decode_fraction, decode_present, encode_fraction, encode_present

VERSION = 4  # with budgets of values
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
        self._terms: LedgerTerms | None = None
        self._version = 0
        self._balances: dict[str | None, BudgetState] = {}
        self._head: tuple[int, str] | None = None

    def take_turn(self) -> LedgerTerms:
        """Wait until no other writer is within its transaction, and return the terms that the last one left."""
        self._terms = self._read_terms("SELECT version, body FROM terms FOR UPDATE")
        return self._terms

    def terms(self) -> LedgerTerms:
        """Return the present terms."""
        if self._terms is None:
            self._terms = self._read_terms("SELECT version, body FROM terms")
        return self._terms

    def set_terms(self, terms: LedgerTerms) -> None:
        """Put other terms in place of the present ones."""
        told = encode_present(terms)
        changed = self._connection.execute("UPDATE terms SET body = %s", (_json(told),)).rowcount
        if not changed:  # a new ledger; those who come later need no right to insert
            self._run("INSERT INTO terms (one, version, body) VALUES (1, ?, ?)", REPEATS, _json(told))
            self._version = REPEATS
        self._terms = terms

    def tell_repeats(self) -> bool:
        """Return whether the ledger's version says that entries may repeat others; a new ledger's does.

        The version of an older ledger is raised when a role opens it that may change it; roles for analysts may not.
        """
        self.terms()
        return self._version >= REPEATS

    def tell_divisions(self) -> bool:
        """Say in the ledger's version that values may have budgets; return whether this role may."""
        self.terms()
        if self._version < VERSION and raise_version(self._connection, VERSION):
            self._version = VERSION
        return self._version >= VERSION

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

    def _read_terms(self, statement: str) -> LedgerTerms:
        row = self._run(statement).fetchone()
        if row is None:
            raise fault("ledger-damaged")
        version, body = row
        if version > VERSION:
            raise LedgerError(
                "ledger-newer",
                f"The ledger has version {version} and this dpsql knows only up to {VERSION}.",
                hint="Install the dpsql that wrote it, or a newer one.",
            )
        told = _read(body, dict)
        if version < REPEATS and ("certificate" in told) != (version > PLAIN):
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
