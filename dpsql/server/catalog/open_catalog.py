"""Which catalog a server has: a PostgreSQL of our own, the user's, or the small one that is built in."""

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

_ELSEWHERE = "template1"


def open_catalog(kind: str, tables: Tables) -> Catalog:
    """Return the catalog of `tables` that the policy's [server] asks for.

    "auto" is a PostgreSQL of our own where the extra `dpsql[bi]` is installed, and else "minimal"; an address is that
    of a database which is used for nothing else. Raises `UsageError` where a PostgreSQL cannot be run or reached.
    """
    if kind.startswith(("postgresql://", "postgres://")):
        _needs_driver()
        from dpsql.server.catalog.foreign import open_foreign

        return open_foreign(kind, tables)
    if kind == "auto" and is_installed():
        return _own(tables)
    from dpsql.server.catalog.minimal import Minimal

    return Minimal(tables)


def _needs_driver() -> None:
    if importlib.util.find_spec("psycopg") is None:
        hint = "pip install 'dpsql[bi]'"
        raise UsageError("not-installed", "A PostgreSQL as the catalog needs the package psycopg.", hint=hint)


def _own(tables: Tables) -> Catalog:
    from dpsql.server.catalog.lockdown import DATABASE, FIRST, lockdown
    from dpsql.server.catalog.shadow import Shadow, run

    cluster = Cluster()
    try:
        connection = _awaited(cluster, _ELSEWHERE)
        run(connection, FIRST)
        connection.finish()
        connection = _awaited(cluster, DATABASE)
        run(connection, "BEGIN", *lockdown(tables), "COMMIT")
        connection.finish()
        return Shadow(cluster.conninfo(DATABASE), becoming=True, stop=cluster.stop)
    except BaseException:
        cluster.stop()
        raise


def _awaited(cluster: Cluster, database: str) -> PGconn:
    """Connect to a server that has just been started, as soon as it answers."""
    from dpsql.server.catalog.shadow import connected

    while True:
        try:
            return connected(cluster.conninfo(database))
        except UsageError:
            if not cluster.is_starting:
                raise
        time.sleep(0.02)
