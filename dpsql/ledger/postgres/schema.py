"""The schema of a ledger in PostgreSQL: events and answers that only grow, and the present that they add up to."""

from __future__ import annotations

import psycopg

from dpsql.ledger.postgres.connection import Connection
from dpsql.ledger.postgres.errors import damaged, not_a_ledger

__all__ = [
    "PLAIN",
    "REPEATS",
    "VERSION",
    "build",
    "is_blank",
    "lock_making",
    "raise_version",
    "refuse_foreign",
    "refuse_strange",
    "refuse_unwritable",
]

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


def is_blank(connection: Connection, schema: str) -> bool:
    """Say whether the schema is empty: new, or created for a ledger."""
    return not _relations(connection, schema)


def lock_making(connection: Connection) -> None:
    """Wait until no other process is creating a ledger in this database."""
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))


def build(connection: Connection, schema: str) -> None:
    """Make the tables of a ledger, and the schema if it is not there; inside the caller's transaction."""
    (there,) = connection.execute("SELECT to_regnamespace(%s) IS NOT NULL", (schema,)).fetchone() or (False,)
    if not there:
        connection.execute(f'CREATE SCHEMA "{schema}"')
    connection.execute(_TABLES)
    connection.execute(_RULES)


def refuse_strange(connection: Connection, schema: str) -> None:
    """Raise `ledger-damaged` if tables, triggers or functions of a ledger are not as they were made."""
    if _relations(connection, schema) != _EXPECTED_RELATIONS:
        raise damaged()
    if set(connection.execute(_TRIGGERS, (schema,))) != _EXPECTED_TRIGGERS:
        raise damaged()
    if dict(connection.execute(_SOURCES, (schema,))) != _FUNCTIONS:
        raise damaged()


def refuse_foreign(connection: Connection, schema: str) -> None:
    """Raise `not-a-ledger` if the schema holds something else than a ledger of any version."""
    if _TERMS not in _relations(connection, schema):
        raise not_a_ledger()


def raise_version(connection: Connection, version: int = REPEATS) -> bool:
    """Bring the version of an earlier dpsql's tables to at least `version`; return whether this role may."""
    connection.execute("SAVEPOINT version")
    try:
        connection.execute("UPDATE terms SET version = %s WHERE version < %s", (version, version))
    except psycopg.errors.InsufficientPrivilege:
        connection.execute("ROLLBACK TO version")
        return False
    return True


def refuse_unwritable(connection: Connection) -> None:
    """Raise what the server says to a role that may not reserve and settle."""
    connection.execute(_WRITES)


def _relations(connection: Connection, schema: str) -> set[tuple[object, ...]]:
    return set(connection.execute(_RELATIONS, (schema,)))
