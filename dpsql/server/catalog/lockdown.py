"""What a PostgreSQL of our own is before the first analyst asks it: the tables, empty, and nothing to do with them.

The analyst's statements run there as a role that may read system catalogs. What it may call besides is decided here:
of the functions that do something, or run SQL of their own, only those that tools use and that change nothing.
"""

from __future__ import annotations

from dpsql.server.catalog.ddl import definitions
from dpsql.sql.ir.catalog import Catalog as Tables

__all__ = ["DATABASE", "FIRST", "lockdown"]

DATABASE = "dpsql"
FIRST = f"ALTER DATABASE postgres RENAME TO {DATABASE}"  # from another database; "postgres" need not be there too

_HARMLESS = """
    array_sample array_shuffle clock_timestamp current_query gen_random_uuid pg_available_extensions pg_blocking_pids
    pg_collation_actual_version pg_current_wal_flush_lsn pg_current_wal_insert_lsn pg_current_wal_lsn
    pg_database_collation_actual_version pg_database_size pg_indexes_size pg_is_in_recovery pg_is_wal_replay_paused
    pg_jit_available pg_last_wal_receive_lsn pg_last_wal_replay_lsn pg_last_xact_replay_timestamp pg_lock_status
    pg_partition_ancestors pg_partition_tree pg_prepared_xact pg_relation_size pg_safe_snapshot_blocking_pids
    pg_sequence_last_value pg_table_size pg_tablespace_size pg_total_relation_size random random_normal set_config
    timeofday txid_status uuidv4 uuidv7
""".split()
# Volatile functions do something; the XML of a table is SQL that a function runs, which no lock of ours would show.
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
"""  # noqa: S608 - our own names
# Tools call it for settings that do not matter here, and it is the one way to become somebody else inside a SELECT.
_SET_NOTHING = """
CREATE OR REPLACE FUNCTION pg_catalog.set_config(text, text, boolean) RETURNS text
LANGUAGE sql AS 'SELECT $2'
"""


def lockdown(tables: Tables) -> tuple[str, ...]:
    """Return the statements that make the shadow of `tables` in a new database, and close it."""
    return (
        "DROP SCHEMA public",
        *definitions(tables),
        _SET_NOTHING,
        _REVOKE,
        f"REVOKE TEMPORARY ON DATABASE {DATABASE} FROM PUBLIC",
    )
