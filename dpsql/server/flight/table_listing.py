"""Listings of catalogs, schemas and tables: those of the policy, as the analyst sees them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from dpsql.plan.arrow_schema import arrow_type
from dpsql.server.flight.commands import Catalogs, Keys, Schemas, Tables, TableTypes
from dpsql.sql.ir.types import find_answer_type, find_read_type

if TYPE_CHECKING:
    from dpsql.sql.ir.catalog import Catalog, Table
    from dpsql.sql.ir.types import Type

__all__ = ["Listing", "list_tables", "read_schema"]

CATALOG = ""  # tables have no catalog here; a statement may write dpsql, and need not
TYPE = "TABLE"
_TEXT, _WHOLE, _RULE = pa.string(), pa.int32(), pa.uint8()
_TYPE_NAME, _IS_UNIT = "ARROW:FLIGHT:SQL:TYPE_NAME", "dpsql.is_privacy_unit"

Listing = Catalogs | Schemas | Tables | TableTypes | Keys


def _fields(words: str, type_: pa.DataType = _TEXT) -> list[pa.Field]:
    """Return columns of one type by their names; those with ! are never NULL."""
    return [pa.field(word.removesuffix("!"), type_, nullable=not word.endswith("!")) for word in words.split()]


_CATALOGS = pa.schema(_fields("catalog_name!"))
_SCHEMAS = pa.schema(_fields("catalog_name db_schema_name!"))
_TABLES = pa.schema(_fields("catalog_name db_schema_name table_name! table_type!"))
_TABLE_TYPES = pa.schema(_fields("table_type!"))
_PRIMARY_KEYS = pa.schema(
    [*_fields("catalog_name db_schema_name table_name! column_name! key_name"), *_fields("key_sequence!", _WHOLE)]
)
_FOREIGN_KEYS = pa.schema(
    [
        *_fields("pk_catalog_name pk_db_schema_name pk_table_name! pk_column_name!"),
        *_fields("fk_catalog_name fk_db_schema_name fk_table_name! fk_column_name!"),
        *_fields("key_sequence!", _WHOLE),
        *_fields("fk_key_name pk_key_name"),
        *_fields("update_rule! delete_rule!", _RULE),
    ]
)


def read_schema(asked: Listing) -> pa.Schema:
    """Return the columns of a list, as Flight SQL wants them."""
    match asked:
        case Catalogs():
            return _CATALOGS
        case Schemas():
            return _SCHEMAS
        case Tables():
            return (
                _TABLES.append(pa.field("table_schema", pa.binary(), nullable=False)) if asked.with_columns else _TABLES
            )
        case TableTypes():
            return _TABLE_TYPES
        case Keys():
            return _PRIMARY_KEYS if asked.is_primary else _FOREIGN_KEYS


def list_tables(asked: Listing, catalog: Catalog) -> pa.Table:
    """Return a list of what is in a catalog; no row of a table is read for it."""
    schema = read_schema(asked)
    columns = list(zip(*sorted(_rows(asked, catalog)), strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _rows(asked: Listing, catalog: Catalog) -> Iterator[tuple[str | bytes, ...]]:
    match asked:
        case Catalogs():
            yield (CATALOG,)
        case TableTypes():
            yield (TYPE,)
        case Schemas() if asked.catalog in {None, CATALOG}:
            for schema in {"main", *(_place(table)[0] for table in catalog.tables)}:
                if _fits(schema, asked.pattern):
                    yield CATALOG, schema
        case Tables() if asked.catalog in {None, CATALOG} and (not asked.types or TYPE in asked.types):
            for table in catalog.tables:
                schema, name = _place(table)
                if _fits(schema, asked.schema) and _fits(name, asked.name):
                    columns = (_columns(table).serialize().to_pybytes(),) if asked.with_columns else ()
                    yield CATALOG, schema, name, TYPE, *columns


def _place(table: Table) -> tuple[str, str]:
    """Return schema and name of a table, as they are written in a statement."""
    schema, _, name = table.name.rpartition(".")
    return schema or "main", name


def _columns(table: Table) -> pa.Schema:
    unit = table.privacy_unit
    fields = []
    for name, type_ in table.columns:
        told = {_TYPE_NAME: str(type_), _IS_UNIT: "1" if unit is not None and name.lower() == unit.lower() else "0"}
        fields.append(pa.field(name, _arrow(type_), metadata=told))
    return pa.schema(fields)


def _arrow(type_: Type) -> pa.DataType:
    """Return as which type a column would be answered; as text what is not computed with."""
    try:
        return arrow_type(find_read_type(find_answer_type(type_)))
    except KeyError:
        return _TEXT


def _fits(name: str, pattern: str | None) -> bool:
    """Say whether a name is LIKE a pattern of % and _, in time that is bounded by the product of their lengths."""
    if pattern is None:
        return True
    at, back, mark = 0, 0, -1  # the position in the pattern, and where to begin again after the last %
    read = 0
    while read < len(name):
        if at < len(pattern) and pattern[at] == "%":
            mark, back = at, read
            at += 1
        elif at < len(pattern) and pattern[at] in {"_", name[read]}:
            at, read = at + 1, read + 1
        elif mark >= 0:
            back += 1
            at, read = mark + 1, back
        else:
            return False
    return not pattern[at:].strip("%")
