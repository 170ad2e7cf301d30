"""Set-up of the PostgreSQL that dpsql starts: empty tables, and a role that can only read system catalogs.

Of the functions with effects, and of those that run SQL themselves, the role may only call those that tools use and
that change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.sql.ir.catalog import DATABASE

__all__ = ["DATABASE_STATEMENTS", "lockdown"]

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
