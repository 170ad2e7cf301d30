"""Kits: engines as the conformance suite opens them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.metadata import entry_points

import duckdb
import pyarrow as pa

from dpsql.engines import Engine
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.engines.remote import RemoteEngine
from dpsql.errors import UsageError

Tables = Mapping[str, pa.Table]
GROUP = "dpsql.testing"  # entry points of other packages: the name of an engine, and its kit
_KITS = {
    "bigquery": "dpsql.testing.kits.warehouses:create_bigquery",
    "databricks": "dpsql.testing.kits.warehouses:create_databricks",
    "datafusion": "dpsql.testing.kits.files:DATAFUSION",
    "mysql": "dpsql.testing.kits.mysql:create_kit",
    "portable": "dpsql.testing.kits.portable:KIT",
    "postgres": "dpsql.testing.kits.postgres:create_kit",
    "redshift": "dpsql.testing.kits.warehouses:create_redshift",
    "snowflake": "dpsql.testing.kits.warehouses:create_snowflake",
    "spark": "dpsql.testing.kits.files:SPARK",
    "trino": "dpsql.testing.kits.warehouses:create_trino",
}


def _unchanged(table: pa.Table) -> pa.Table:
    return table


@dataclass(frozen=True)
class Kit:
    """An engine for the suite: `open` loads tables, by name, into a new engine; `fit` makes a table storable there.

    The DuckDB that the engine is compared with reads what `fit` returns too. `fit` may therefore replace a type that
    the engine lacks by another, and a value without a counterpart by NULL; it may not make two values equal. `reach`
    replaces, in what DuckDB computes, the dates and time stamps outside the engine's calendar by NULL. `own` are the
    queries for which the engine draws other groups, but as many, because it prints a value differently, and `unlike`
    those whose answers differ for a reason that its page tells, which are not compared. `types` are types of the
    engine's forms that are not in the tables of the suite, to be tested elsewhere. For slow engines, one statement and
    expression in `every` is compared with DuckDB, and one in `share` with and without a privacy unit.
    """

    name: str
    open: Callable[[Tables], Engine]
    fit: Callable[[pa.Table], pa.Table] = _unchanged
    reach: Callable[[pa.Table], pa.Table] = _unchanged
    share: int = 1
    every: int = 1
    own: frozenset[str] = frozenset()
    unlike: frozenset[str] = frozenset()
    types: tuple[str, ...] = ()

    def sample(self, every: int) -> Kit:
        """Return the kit with another sample: one statement in `every`, or all of them with 1."""
        return replace(self, every=every, share=every)


def find_kit(name: str, url: str | None = None) -> Kit:
    """Return the kit with a name, or at "module:attribute", in the current folder or installed.

    An attribute that is not a `Kit` is called for one, with the address if there is one. Names are those of dpsql's own
    engines, and the entry points of other packages in the group `dpsql.testing`.
    """
    others = entry_points(group=GROUP)
    address = _KITS.get(name) or (others[name].value if name in others.names else name)
    module, colon, attributes = address.partition(":")
    if not colon:
        known = ", ".join(sorted({*_KITS, *others.names}))
        raise UsageError("kit-unknown", f'There is no kit "{name}".', hint=f"Write module:KIT, or one of {known}.")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = import_module(module)
        for attribute in attributes.split("."):
            found = getattr(found, attribute)
    except (AttributeError, ModuleNotFoundError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name not in {module, module.partition(".")[0]}:
            hint = f"pip install {error.name}, or the package's distribution if that has another name."
            hint = f"pip install 'dpsql[{name}]'" if name in _KITS else hint
            raise UsageError("not-installed", f"This kit needs the package {error.name}.", hint=hint) from None
        hint = "Name an importable module and an attribute of it, such as mypackage.kit:KIT."
        raise UsageError("kit-unknown", f"{address} cannot be imported.", hint=hint) from None
    return _as_kit(found, url, address=address)


def _as_kit(found: object, url: str | None, *, address: str) -> Kit:
    if not isinstance(found, Kit) and callable(found):
        found = found() if url is None else found(url)
    elif url is not None:
        hint = "Leave --url out, or name a function of one argument that returns a Kit."
        raise UsageError("kit-unknown", f"{address} takes no address.", hint=hint)
    if isinstance(found, Kit):
        return found
    hint = "Name a dpsql.testing.Kit, or a function that returns one."
    raise UsageError("kit-unknown", f"{address} is not a kit.", hint=hint)


def create_duckdb(tables: Tables) -> duckdb.DuckDBPyConnection:
    """Return a DuckDB in memory that has the tables."""
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    for name, table in tables.items():
        connection.register("given", table)
        connection.execute(f'CREATE TABLE "{name}" AS SELECT * FROM given')
        connection.unregister("given")
    return connection


def rename_tables(engine: RemoteEngine, names: Mapping[str, str]) -> RemoteEngine:
    """Return the engine with other names for its tables: those of the suite, by the names that it was opened with."""
    engine._tables = {new: engine._tables[old] for old, new in names.items()}  # noqa: SLF001 - for kits alone
    return engine


def _open_duckdb(tables: Tables) -> Engine:
    return DuckDBEngine.borrow(create_duckdb(tables), dict.fromkeys(tables))


DUCKDB = Kit("duckdb", _open_duckdb)
