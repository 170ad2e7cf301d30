"""Choice of the catalog: a PostgreSQL that dpsql starts, one of the user, or the small built-in one."""

from __future__ import annotations

import importlib.util
import time
from typing import TYPE_CHECKING

from dpsql.errors import UsageError
from dpsql.server.catalog.cluster import Cluster, is_installed
from dpsql.server.catalog.query_result import Catalog
from dpsql.sql.ir.catalog import Catalog as Tables

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn

__all__ = ["open_catalog"]

_OTHER_DATABASE = "template1"


def open_catalog(kind: str, tables: Tables) -> Catalog:
    """Open the catalog of `tables` that [server] of the policy names.

    "auto" starts a PostgreSQL if the extra `dpsql[bi]` is installed, and else is "minimal"; an address is that of a
    database for this use only. Raises `UsageError` if a PostgreSQL cannot be started or reached.
    """
    if kind.startswith(("postgresql://", "postgres://")):
        _check_driver()
        from dpsql.server.catalog.foreign import open_foreign

        return open_foreign(kind, tables)
    if kind == "auto" and is_installed():
        return _open_own(tables)
    from dpsql.server.catalog.minimal import Minimal

    return Minimal(tables)


def _check_driver() -> None:
    if importlib.util.find_spec("psycopg") is None:
        hint = "pip install 'dpsql[bi]'"
        raise UsageError("not-installed", "A PostgreSQL as the catalog needs the package psycopg.", hint=hint)


def _open_own(tables: Tables) -> Catalog:
    from dpsql.server.catalog.lockdown import DATABASE, FIRST, lockdown
    from dpsql.server.catalog.shadow import Shadow, run

    cluster = Cluster()
    try:
        connection = _connect_when_ready(cluster, _OTHER_DATABASE)
        run(connection, FIRST)
        connection.finish()
        connection = _connect_when_ready(cluster, DATABASE)
        run(connection, "BEGIN", *lockdown(tables), "COMMIT")
        connection.finish()
        return Shadow(cluster.conninfo(DATABASE), becoming=True, stop=cluster.stop)
    except BaseException:
        cluster.stop()
        raise


def _connect_when_ready(cluster: Cluster, database: str) -> PGconn:
    """Connect to a server that was just started, as soon as it is ready."""
    from dpsql.server.catalog.shadow import connect

    while True:
        try:
            return connect(cluster.conninfo(database))
        except UsageError:
            if not cluster.is_starting:
                raise
        time.sleep(0.02)
