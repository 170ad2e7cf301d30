"""Writer of materialized tables in PostgreSQL: a connection of the curator's role that writes in one schema.

Only curators use it, who may read the data; it runs no statement of an analyst. Its errors do not show PostgreSQL's
texts, which can carry cell values into a terminal or its history. All that one build reads is of one snapshot, and
sessions see all that it writes at once.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING

from dpsql.dialects import quote_name, quote_path
from dpsql.engines.postgres import connect_writer
from dpsql.errors import EngineError

if TYPE_CHECKING:
    from adbc_driver_manager.dbapi import Connection

_PATIENCE = 300.0  # seconds in which statements over the last build have to end
_WAIT = "200ms"  # that statements of sessions wait at most behind one attempt to replace a table
_PAUSE = 1.0  # seconds between two attempts
_LOOK_UP = 5.0  # seconds in which every statement that has begun has looked up its tables
_RIGHTS = """
SELECT DISTINCT CASE WHEN a.grantee = 0 THEN '' ELSE pg_catalog.pg_get_userbyid(a.grantee)::text END,
    a.privilege_type::text
FROM (
    SELECT nspowner AS owner, nspacl AS acl FROM pg_catalog.pg_namespace WHERE nspname = $1 AND $2 = ''
    UNION ALL
    SELECT relowner, relacl FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = relnamespace
    WHERE nspname = $1 AND relname = $2
) AS found, pg_catalog.aclexplode(acl) AS a
WHERE a.grantee <> owner
"""
_IS_HEAP = """
WITH RECURSIVE parts AS (
    SELECT pg_catalog.to_regclass($1)::oid AS oid
    UNION ALL
    SELECT inhrelid FROM pg_catalog.pg_inherits JOIN parts ON inhparent = parts.oid
)
SELECT pg_catalog.bool_and(c.relkind = 'p' OR (c.relkind = 'r' AND a.amname = 'heap'))
FROM parts JOIN pg_catalog.pg_class AS c ON c.oid = parts.oid LEFT JOIN pg_catalog.pg_am AS a ON a.oid = c.relam
"""
_SNAPSHOT = """
SELECT pg_catalog.to_regclass($1)::oid::text, pg_catalog.pg_current_snapshot()::text
"""
_PASSED = """
SELECT pg_catalog.to_regclass($1)::oid::text = $2,
    pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text::bigint - CAST($3 AS bigint)
"""
_MOST_TRANSACTIONS = 2**30  # PostgreSQL stores 32 bits of the number of a row's transaction
# Rows of transactions from the first one that ran at a snapshot on. Ages are distances from one number, which cancels
# out; those of very old rows may be negative. No snapshot has the numbers of subtransactions, so those of the rows that
# were seen tell which of these rows are new.
_IS_RECENT = "pg_catalog.age(xmin) BETWEEN 0 AND pg_catalog.age('{xid}'::xid)"
_SEEN = """
SELECT COUNT(*), pg_catalog.array_to_string(pg_catalog.array_agg(DISTINCT xmin::text) FILTER (WHERE {recent}), ',')
FROM {name}
"""
_MOST_SEEN = 10_000  # numbers of transactions in a mark
_RUNNING = """
SELECT virtualxid FROM pg_catalog.pg_locks
WHERE locktype = 'virtualxid' AND granted AND pid <> pg_catalog.pg_backend_pid()
"""
_IS_FILTERED = """
SELECT c.relrowsecurity FROM pg_catalog.pg_class AS c WHERE c.oid = pg_catalog.to_regclass($1)
"""


class PostgresWriter:
    """Connection that writes in `schema`, which `reader`, the role of sessions, may read."""

    scratch = "pg_temp"

    def __init__(self, connection: Connection, schema: str, *, reader: str) -> None:
        self._connection = connection
        self.schema = schema
        self._reader = reader
        self._marks: dict[str, str] = {}

    def rows(self, sql: str, parameters: Iterable[object] = ()) -> list[tuple[object, ...]]:
        """Run one statement and return its rows; raise `EngineError` if it fails."""
        found: list[tuple[object, ...]] | None = None
        with suppress(Exception), self._connection.cursor() as cursor:
            cursor.execute(sql, tuple(parameters) or None)
            table = cursor.fetch_arrow_table()
            found = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
        if found is None:
            raise _failed()
        return found

    def run(self, statements: Iterable[tuple[str, list[object]]]) -> None:
        """Run statements one by one; raise `EngineError` if one fails."""
        for sql, parameters in statements:
            self.rows(sql, parameters)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run the body in a transaction with one snapshot, after those of other builds in the schema."""
        lock = "pg_catalog.hashtextextended('dpsql materialize ' || $1, 0)"
        self.rows(f"SELECT 1 FROM (SELECT pg_catalog.pg_advisory_lock({lock})) AS locked", [self.schema])  # noqa: S608
        try:
            self.rows("BEGIN ISOLATION LEVEL REPEATABLE READ")
            self._marks.clear()
            try:
                yield
                self.rows("COMMIT")
            except BaseException:
                with suppress(EngineError):
                    self.rows("ROLLBACK")
                raise
        finally:
            with suppress(EngineError):
                self.rows(f"SELECT pg_catalog.pg_advisory_unlock({lock})", [self.schema])

    def commit(self) -> None:
        """Commit the new tables, and go on in another transaction, which reads no data.

        A statement finds no rows in a table that is newer than its snapshot. So those that have begun are waited for a
        moment, until they have looked up their tables.
        """
        self.rows("COMMIT")
        deadline, begun = time.monotonic() + _LOOK_UP, set(self.rows(_RUNNING))
        while begun and time.monotonic() < deadline:
            time.sleep(_PAUSE / 10)
            begun &= set(self.rows(_RUNNING))
        self.rows("BEGIN")

    def open_schema(self) -> None:
        """Make the schema and the tables of its state, if they are not there, and set the rights to them.

        Raises `EngineError` if another role owns the schema.
        """
        schema = quote_name(self.schema)
        found = (
            "SELECT pg_catalog.pg_get_userbyid(nspowner) = current_user FROM pg_catalog.pg_namespace WHERE nspname = $1"
        )
        if not self.rows(found, [self.schema]):
            self.rows(f"CREATE SCHEMA {schema}")
        if self.rows(found, [self.schema]) != [(True,)]:
            reason = f'The schema "{self.schema}" belongs to another role than the one that materializes.'
            hint = "Give --url the address of that role, or name another schema under [source]."
            raise EngineError("prepare-failed", reason, hint=hint, place="source.materialized")
        for role, right in self.rows(_RIGHTS, [self.schema, ""]):
            if right == "CREATE" or not role:
                self.rows(f"REVOKE {right} ON SCHEMA {schema} FROM {_quote_role(role)}")
        state = f"{schema}.dpsql_state (name text PRIMARY KEY, description text)"
        hidden = f"{schema}.dpsql_secrets (name text PRIMARY KEY, salts text, mark text)"
        self.run([(f"CREATE TABLE IF NOT EXISTS {each}", []) for each in (state, hidden)])
        self.rows(f"GRANT USAGE ON SCHEMA {schema} TO {quote_name(self._reader)}")
        self._restrict("dpsql_state")
        self._restrict("dpsql_secrets", shared=False)

    def _restrict(self, table: str, *, shared: bool = True) -> None:
        """Take the rights of others to a table, and let the reader read it if it is `shared`."""
        name = f"{quote_name(self.schema)}.{quote_name(table)}"
        for role, right in self.rows(_RIGHTS, [self.schema, table]):
            if (role, right) != (self._reader, "SELECT") or not shared:
                self.rows(f"REVOKE {right} ON TABLE {name} FROM {_quote_role(role)}")
        if shared:
            self.rows(f"GRANT SELECT ON TABLE {name} TO {quote_name(self._reader)}")

    def is_filtered(self, relation: tuple[str, ...]) -> bool:
        """Say whether the table shows rows by the role that reads it."""
        name = quote_path(relation)
        return self.rows(_IS_FILTERED, [name]) == [(True,)]

    def tables(self) -> set[str]:
        """Return the names of the tables in the schema."""
        sql = "SELECT tablename::text FROM pg_catalog.pg_tables WHERE schemaname = $1"
        return {str(name) for (name,) in self.rows(sql, [self.schema])}

    def read_state(self) -> dict[str, str]:
        """Return the descriptions of what is materialized, by the tables of the policy."""
        found = self.rows(f"SELECT name, description FROM {quote_name(self.schema)}.dpsql_state")  # noqa: S608 - quoted
        return {str(name): str(description) for name, description in found}

    def read_secrets(self, name: str) -> tuple[tuple[int, int], str] | None:
        """Return the salts of the ranks of a table, and the mark of the rows of its last build; None without one."""
        sql = f"SELECT salts, mark FROM {quote_name(self.schema)}.dpsql_secrets WHERE name = $1"  # noqa: S608 - quoted
        for salts, mark in self.rows(sql, [name]):
            return (int(str(salts)[:16], 16), int(str(salts)[16:], 16)), str(mark)
        return None

    def write_state(self, name: str, description: str, *, salts: tuple[int, int], mark: str) -> None:
        """Replace what is known of a table."""
        state, hidden = (f"{quote_name(self.schema)}.{table}" for table in ("dpsql_state", "dpsql_secrets"))
        written = "".join(f"{each:016x}" for each in salts)
        self.run(
            [
                (f"DELETE FROM {state} WHERE name = $1", [name]),  # noqa: S608 - quoted
                (f"DELETE FROM {hidden} WHERE name = $1", [name]),  # noqa: S608 - quoted
                (f"INSERT INTO {state} VALUES ($1, $2)", [name, description]),  # noqa: S608 - quoted
                (f"INSERT INTO {hidden} VALUES ($1, $2, $3)", [name, written, mark]),  # noqa: S608 - quoted
            ]
        )

    def mark_rows(self, relation: tuple[str, ...]) -> str:
        """Return a mark of the rows of a table as this transaction sees them, "" for a view or a foreign table.

        It has the table's number, the snapshot, the number of rows, and the transactions that made the recent ones; it
        is "" where these are very many.
        """
        name = quote_path(relation)
        if name not in self._marks:
            is_heap = self.rows(_IS_HEAP, [name]) == [(True,)]
            self._marks[name] = self._mark(name)[0] if is_heap else ""
        return self._marks[name]

    def _mark(self, name: str) -> tuple[str, int]:
        """Return the mark of the rows of a table, and how many they are."""
        ((table, snapshot),) = self.rows(_SNAPSHOT, [name])
        ((rows, seen),) = self.rows(_SEEN.format(recent=_is_recent(str(snapshot)), name=name))
        is_short = str(seen).count(",") < _MOST_SEEN
        return f"{table} {snapshot} {rows} {seen or ''}" if is_short else "", int(str(rows))

    def copy_new_rows(self, relation: tuple[str, ...], columns: Iterable[str], *, mark: str) -> tuple[str, ...] | None:
        """Copy columns of the rows that were added since a mark, and return the path of the copy; () without such rows.

        Returns None if earlier rows were changed or deleted. A changed row is a new one in place of the old one. Old
        ones can only become fewer: if their number is the same, they are all there.
        """
        name, parts = quote_path(relation), mark.split(" ")
        is_mark = len(parts) == len(("table", "snapshot", "rows", "seen"))
        if not is_mark or self.rows(_IS_HEAP, [name]) != [(True,)]:
            return None
        table, snapshot, rows, seen = parts
        ((same, passed),) = self.rows(_PASSED, [name, table, int(snapshot.partition(":")[0])])
        if not same or not 0 <= int(str(passed)) < _MOST_TRANSACTIONS:
            return None
        condition = f"{_is_recent(snapshot)} AND xmin::text <> ALL (pg_catalog.string_to_array($1, ','))"
        listed = ", ".join(map(quote_name, columns))
        self.rows(
            f"CREATE TEMP TABLE dpsql_new ON COMMIT DROP AS SELECT {listed} FROM {name} WHERE {condition}",  # noqa: S608 - ours
            [seen],
        )
        ((added,),) = self.rows(f"SELECT COUNT(*) FROM {self.scratch}.dpsql_new")  # noqa: S608 - ours
        self._marks[name], all_rows = self._mark(name)
        if all_rows - int(str(added)) != int(rows):
            self.rows(f"DROP TABLE {self.scratch}.dpsql_new")
            return None
        return (self.scratch, "dpsql_new") if added else ()

    def create(self, table: str, rows: tuple[str, list[object]]) -> tuple[str, ...]:
        """Make a table of the rows of a SELECT, beside the one that has its name until `replace_tables`."""
        sql, parameters = rows
        new = f"{quote_name(self.schema)}.{quote_name(table + _NEW)}"
        self.run([(f"DROP TABLE IF EXISTS {new}", []), (f"CREATE TABLE {new} AS {sql}", parameters)])
        self.rows(f"ANALYZE {new}")
        self._restrict(table + _NEW)
        return self.schema, table + _NEW

    def index(self, table: str, columns: Iterable[str]) -> None:
        """Make an index of a new table on some of its columns."""
        listed = ", ".join(map(quote_name, columns))
        self.rows(f"CREATE INDEX ON {quote_name(self.schema)}.{quote_name(table + _NEW)} ({listed})")

    def replace_tables(self, tables: Iterable[str], *, dropped: Iterable[str]) -> None:
        """Give the new tables their names, in place of those that had them; drop other ones.

        A statement that reads one of them ends first. Others wait for a moment at most, and then read the new ones.
        """
        schema, listed = quote_name(self.schema), list(tables)
        there = self.tables()
        old = [f"{schema}.{quote_name(table)}" for table in (*listed, *dropped) if table in there]
        if old:
            self._lock(", ".join(old))
            self.rows(f"DROP TABLE {', '.join(old)}")
        for table in listed:
            self.rows(f"ALTER TABLE {schema}.{quote_name(table + _NEW)} RENAME TO {quote_name(table)}")

    def _lock(self, tables: str) -> None:
        deadline = time.monotonic() + _PATIENCE
        # Without the savepoint a LOCK that fails would undo the whole transaction.
        self.run([(f"SET LOCAL lock_timeout = '{_WAIT}'", []), ("SAVEPOINT dpsql_lock", [])])
        while True:
            try:
                # While this waits, all later statements over the tables wait behind it: so it waits a moment, gives up,
                # and tries again.
                self.rows(f"LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE")
            except EngineError:
                if time.monotonic() >= deadline:
                    raise
            else:
                break
            self.rows("ROLLBACK TO SAVEPOINT dpsql_lock")
            time.sleep(_PAUSE)
        self.rows("SET LOCAL lock_timeout = 0")


_NEW = "_new"


@contextmanager
def open_writer(url: str, options: Mapping[str, str], *, schema: str, reader: str) -> Iterator[PostgresWriter]:
    """Connect to the database at `url` to write in a schema, which the role `reader` may read."""
    with closing(connect_writer(url, options)) as connection:
        writer = PostgresWriter(connection, schema, reader=reader)
        writer.open_schema()
        yield writer


def _is_recent(snapshot: str) -> str:
    return _IS_RECENT.format(xid=int(snapshot.partition(":")[0]) % 2**32)


def _quote_role(name: object) -> str:
    """Return a role as GRANT names it; "" is everybody."""
    return quote_name(str(name)) if name else "PUBLIC"


def _failed() -> EngineError:
    reason = "The table could not be materialized; nothing was charged."
    hint = (
        "Give --url the address of a role of this database that may read the table, and owns or may create the schema."
    )
    return EngineError("prepare-failed", reason, hint=hint, place="source.materialized")
