"""Kits: engines as the conformance suite opens them; DuckDB itself, and DuckDB as if it were another engine.

The second, with DuckDB's own functions as forms, tests the portable writer, and is the reference for groups that are
drawn by MD5.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.metadata import entry_points
from types import MappingProxyType

import duckdb
import pyarrow as pa

from dpsql.dialects import STANDARD, Dialect
from dpsql.engines import Column, Engine, Registered, Statement
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.engines.remote import RemoteEngine
from dpsql.errors import UsageError
from dpsql.sql.allow_list import FUNCTIONS, INSIDE
from dpsql.sql.ir.transforms import ALWAYS_RAISES

Tables = Mapping[str, pa.Table]
GROUP = "dpsql.testing"  # entry points of other packages: the name of an engine, and its kit
_KITS = {
    "bigquery": "dpsql.testing.warehouse_kits:create_bigquery",
    "databricks": "dpsql.testing.warehouse_kits:create_databricks",
    "datafusion": "dpsql.testing.kits:DATAFUSION",
    "mysql": "dpsql.testing.kits:create_mysql",
    "portable": "dpsql.testing.kit:PORTABLE_KIT",
    "postgres": "dpsql.testing.kits:create_postgres",
    "redshift": "dpsql.testing.warehouse_kits:create_redshift",
    "snowflake": "dpsql.testing.warehouse_kits:create_snowflake",
    "spark": "dpsql.testing.kits:SPARK",
    "trino": "dpsql.testing.warehouse_kits:create_trino",
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
    expression in `every` is compared with DuckDB, beside one of each kind, and one statement in `share` with and
    without a privacy unit.
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
        # The kit is there, but not a package that it imports.
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


_UNITS = "microsecond millisecond second minute hour day week month quarter year".split()
_PARTS = "year month day dow isodow doy quarter week isoyear yearweek decade century millennium era".split()
_PARTS += "hour minute second millisecond microsecond epoch".split()
_PLAIN = {*FUNCTIONS.keys() - STANDARD.keys(), *INSIDE, "count", "signbit"}
_RAISING = {*ALWAYS_RAISES & FUNCTIONS.keys(), "regexp_extract"}  # TRY makes NULL of what DuckDB fails for
_ADDED = "list_aggregate(list_sort(list({{0}}), 'ASC', 'NULLS FIRST'), '{}')"

PORTABLE = Dialect(
    "DuckDB as another engine",
    "duckdb",
    MappingProxyType(
        {
            **STANDARD,
            **{name: f"{name}({{*}})" for name in _PLAIN},
            **{name: f"TRY({name}({{*}}))" for name in _RAISING},
            **{sign: f"TRY({{0}} {sign} {{1}})" for sign in ("+", "-", "*", "/", "//", "%")},
            **{sign: f"({{0}} {sign} {{1}})" for sign in ("||", "&", "|")},
            **{f"date_part.{part}": f"TRY(date_part('{part}', {{0}}))" for part in _PARTS},
            **{f"date_trunc.{unit}": f"TRY(date_trunc('{unit}', {{0}}))" for unit in _UNITS},
            **{f"date_diff.{unit}": f"TRY(date_diff('{unit}', {{0}}, {{1}}))" for unit in _UNITS},
            **{f"date_sub.{unit}": f"TRY(date_sub('{unit}', {{0}}, {{1}}))" for unit in _UNITS},
            "neg": "TRY(-{0})",
            "~": "(~{0})",
            "cast": "TRY_CAST({0} AS {type})",
            "canonical TEXT": "({0} COLLATE C)",
            "lookup": "list_extract([{1*}], {0})",
            "is_distinct": "({0} IS DISTINCT FROM {1})",
            "is_not_distinct": "({0} IS NOT DISTINCT FROM {1})",
            "is_true": "({0} IS TRUE)",
            "is_false": "({0} IS FALSE)",
            "like": "({0} LIKE {1})",
            "ilike": "({0} ILIKE {1})",
            "like_escape": "({0} LIKE {1} ESCAPE {2})",
            "ilike_escape": "({0} ILIKE {1} ESCAPE {2})",
            "sum_sorted": _ADDED.format("sum"),
            "avg_sorted": _ADDED.format("avg"),
        }
    ),
    materialized=True,
)


class PortableEngine(RemoteEngine):
    """A DuckDB in this process, queried as if it were elsewhere."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, tables: Mapping[str, Registered]) -> None:
        super().__init__(PORTABLE, tables)
        self._connection = connection

    def fetch(self, statement: Statement) -> pa.Table:
        return self._connection.sql(statement.sql, params=list(statement.parameters)).to_arrow_table()

    def cancel(self) -> None:
        self._connection.interrupt()

    def disconnect(self) -> None:
        self._connection.close()


def _open_portable(tables: Mapping[str, pa.Table]) -> Engine:
    connection = create_duckdb(tables)
    known = {
        name: Registered(
            ("memory", "main", name),
            tuple(Column(row[0], row[1]) for row in connection.execute(f'DESCRIBE "{name}"').fetchall()),
        )
        for name in tables
    }
    return PortableEngine(connection, known)


PORTABLE_KIT = Kit("portable", _open_portable, share=6)
