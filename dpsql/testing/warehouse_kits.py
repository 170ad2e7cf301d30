"""Warehouses at an address: their calendar, and new tables by CREATE TABLE with INSERTs of literals.

A kit makes new tables in the schema of its address for each set of tables, and leaves them there: drop the schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Protocol
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from dpsql.engines import Engine
from dpsql.engines.bigquery import BigQueryEngine
from dpsql.engines.warehouse import Warehouse
from dpsql.engines.warehouses import DatabricksEngine, RedshiftEngine, SnowflakeEngine, TrinoEngine
from dpsql.errors import UsageError
from dpsql.testing.kit import Kit, rename_tables
from dpsql.testing.tables import fit_table

Fields = list[dict[str, str]]
Rows = list[tuple[str | None, ...]]
Load = Callable[..., None]
_DAY = 86_400_000_000
_DAYS = (-719_162, 2_932_896)  # 0001-01-01 and 9999-12-31
_MOMENTS = (_DAYS[0] * _DAY, (_DAYS[1] + 1) * _DAY - 1)
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - a time stamp without a zone
_WHOLE = {each: pa.int64() for each in (pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32())}
_ROWS = 500  # in one INSERT
_OWN = frozenset(["bound_five_of_decimals"])  # Trino and BigQuery draw of decimals as they print them, 1.5 for 1.50
_UNLIKE = frozenset(["domain_listed", "known_listed"])  # what is listed as 'de ' is 'de' in Redshift


def fit_calendar(table: pa.Table) -> pa.Table:
    """Return a table for a warehouse of the years 1 to 9999, without characters of code 0, one size of integers."""
    days = (_DAYS[0], _DAYS[1] - 7)  # the suite adds days, up to a week, and what passes the end is NULL
    types = {**_WHOLE, pa.float32(): pa.float64()}
    return fit_table(table, stored=types, days=days, moments=_MOMENTS, infinite=False, zero_bytes=False)


def reach_calendar(table: pa.Table) -> pa.Table:
    """Return what DuckDB computes without the days and time stamps that the calendar does not reach."""
    return fit_table(table, days=_DAYS, moments=_MOMENTS, infinite=False)


def _quote_standard(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _quote_backslashed(text: str) -> str:
    special = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return "'" + "".join(special.get(each, each) for each in text) + "'"


@dataclass(frozen=True, slots=True)
class _Warehouse:
    """What one warehouse has otherwise: its address, names of types, and literals.

    `decimal` is the type of numbers, with {0} and {1} for their digits; `quote` writes a text as a literal. With
    `casts`, texts are not put into columns of other types without a cast.
    """

    name: str
    form: str
    types: Mapping[pa.DataType, str]
    decimal: str = "DECIMAL({0}, {1})"
    quote: Callable[[str], str] = _quote_standard
    casts: bool = True


_TYPES = {
    pa.bool_(): "BOOLEAN",
    pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
    pa.date32(): "DATE",
    pa.timestamp("us"): "TIMESTAMP",
}
_DATABRICKS = _Warehouse(
    "Databricks",
    "databricks://token:TOKEN@host/catalog/schema?http_path=...",
    {**_TYPES, pa.string(): "STRING", pa.timestamp("us"): "TIMESTAMP_NTZ"},
    quote=_quote_backslashed,
)
_REDSHIFT = _Warehouse(
    "Redshift",
    "redshift://user:password@host:5439/database",
    {**_TYPES, pa.float64(): "DOUBLE PRECISION", pa.string(): "VARCHAR(12000)"},
)
_SNOWFLAKE = _Warehouse(
    "Snowflake",
    "snowflake://user:password@account/database/schema?warehouse=...&role=...",
    {**_TYPES, pa.int64(): "NUMBER(38, 0)", pa.float64(): "FLOAT", pa.timestamp("us"): "TIMESTAMP_NTZ(9)"},
    "NUMBER({0}, {1})",
    _quote_backslashed,
    casts=False,
)
_TRINO = _Warehouse("Trino", "trino://user@host:8080/memory/default", {**_TYPES, pa.timestamp("us"): "TIMESTAMP(6)"})
_BIGQUERY = _Warehouse(
    "BigQuery",
    "bigquery://project/dataset",
    {
        **_TYPES,
        pa.bool_(): "BOOL",
        pa.int64(): "INT64",
        pa.float64(): "FLOAT64",
        pa.string(): "STRING",
        pa.timestamp("us"): "DATETIME",
    },
)


def create_databricks(url: str | None = None, *, options: Mapping[str, str] | None = None) -> Kit:
    """Return the kit of the schema at `url`, in which the user may create tables."""
    opened = _opener(_DATABRICKS, url, engine=DatabricksEngine, options=options)
    return Kit("databricks", opened, fit_calendar, reach_calendar)


def create_redshift(
    url: str | None = None,
    *,
    options: Mapping[str, str] | None = None,
    engine: type[RedshiftEngine] = RedshiftEngine,
) -> Kit:
    """Return the kit of the database at `url`; `engine` is another one for what is not Redshift itself."""
    opened = _opener(_REDSHIFT, url, engine=engine, options=options)
    return Kit("redshift", opened, _fit_redshift, reach_calendar, unlike=_UNLIKE)


def create_snowflake(url: str | None = None, *, options: Mapping[str, str] | None = None) -> Kit:
    """Return the kit of the schema at `url`, in which the role may create tables."""
    opened = _opener(_SNOWFLAKE, url, engine=SnowflakeEngine, options=options)
    return Kit("snowflake", opened, fit_calendar, reach_calendar)


def create_trino(url: str | None = None, *, options: Mapping[str, str] | None = None) -> Kit:
    """Return the kit of the schema at `url`, in which the user may create tables."""
    opened = _opener(_TRINO, url, engine=TrinoEngine, options=options)
    return Kit("trino", opened, fit_calendar, reach_calendar, own=_OWN)


def create_bigquery(
    url: str | None = None, *, options: Mapping[str, str] | None = None, load: Load | None = None
) -> Kit:
    """Return the kit of the dataset at `url`, in which the account may create tables.

    `load` puts a table with its fields and rows of texts into the dataset; by default, by a load job.
    """
    opened = partial(_open_bigquery, _require_url(_BIGQUERY, url), options=options or {}, load=load or _load)
    return Kit("bigquery", opened, fit_calendar, reach_calendar, own=_OWN)


class _Openable(Protocol):
    @classmethod
    def open(cls, url: str, sources: Mapping[str, object], *, options: Mapping[str, str]) -> Warehouse: ...


def _require_url(warehouse: _Warehouse, url: str | None) -> str:
    if url is None:
        hint = f"Write --url {warehouse.form}"
        raise UsageError("kit-unknown", f"The kit of {warehouse.name} needs an address.", hint=hint)
    return url


def _opener(
    warehouse: _Warehouse, url: str | None, *, engine: type[_Openable], options: Mapping[str, str] | None
) -> Callable[[Mapping[str, pa.Table]], Engine]:
    """Return what opens an engine and makes tables over its connection."""
    address = _require_url(warehouse, url)

    def open_tables(tables: Mapping[str, pa.Table]) -> Engine:
        opened, names = engine.open(address, {}, options=options or {}), _name_tables(tables)
        with opened._connection.cursor() as cursor:  # noqa: SLF001 - for kits alone
            for full, name in names.items():
                for sql in _list_statements(warehouse, full, table=tables[name]):
                    cursor.execute(sql)
                    if warehouse is _TRINO:  # which runs a statement as its rows are fetched
                        cursor.fetchall()
        opened._tables = opened.look_up(names)  # noqa: SLF001 - as above
        return rename_tables(opened, names)

    return open_tables


def _name_tables(tables: Mapping[str, pa.Table]) -> dict[str, str]:
    """Return names for tables in a schema of others, each with the name of the suite."""
    prefix = f"dpsql_suite_{uuid4().hex[:12]}_"
    return {prefix + name: name for name in tables}


def _list_statements(warehouse: _Warehouse, name: str, *, table: pa.Table) -> Iterator[str]:
    """Yield the statements that make a table from `table`, which the engine can store; no name needs quotes."""
    kinds = [
        warehouse.decimal.format(field.type.precision, field.type.scale)
        if pa.types.is_decimal(field.type)
        else warehouse.types[field.type]
        for field in table.schema
    ]
    columns = ", ".join(f"{column} {kind}" for column, kind in zip(table.column_names, kinds, strict=True))
    yield f"CREATE TABLE {name} ({columns})"
    rows = [*zip(*map(_list_texts, table.columns), strict=True)]
    names = [f"v{at}" for at in range(len(kinds))]
    shown = ", ".join(f"CAST({each} AS {kind})" for each, kind in zip(names, kinds, strict=True))
    for at in range(0, len(rows), _ROWS):
        values = ", ".join(
            f"({', '.join('NULL' if value is None else warehouse.quote(value) for value in row)})"
            for row in rows[at : at + _ROWS]
        )
        source = f"SELECT {shown} FROM (VALUES {values}) AS v ({', '.join(names)})"
        yield f"INSERT INTO {name} {source if warehouse.casts else f'VALUES {values}'}"


def _list_texts(column: pa.ChunkedArray) -> list[str | None]:
    """Return the values of a column as texts, dates and time stamps as ISO 8601 has them."""
    values = column.combine_chunks()
    if pa.types.is_date32(values.type):
        days = values.view(pa.int32()).to_pylist()
        return [
            # Some C libraries write the year 26 without zeros.
            None if day is None else (_EPOCH + timedelta(days=day)).strftime("%Y-%m-%d").rjust(10, "0")
            for day in days
        ]
    if pa.types.is_timestamp(values.type):
        moments = values.view(pa.int64()).to_pylist()
        return [
            None
            if moment is None
            else (_EPOCH + timedelta(microseconds=moment)).isoformat(sep=" ", timespec="microseconds")
            for moment in moments
        ]
    if pa.types.is_floating(values.type):
        return [None if each is None else repr(each).replace("inf", "Infinity") for each in values.to_pylist()]
    return [
        None if each is None else str(each).lower() if isinstance(each, bool) else str(each)
        for each in values.to_pylist()
    ]


def _fit_redshift(table: pa.Table) -> pa.Table:
    """Return a table with NULL for texts that end with a blank, which does not count in Redshift."""
    fitted = fit_calendar(table)
    for at, field in enumerate(fitted.schema):
        if pa.types.is_string(field.type):
            ends = pc.ends_with(fitted.column(at), pattern=" ")
            kept = pc.if_else(ends, pa.scalar(None, pa.string()), fitted.column(at))
            fitted = fitted.set_column(at, field.name, kept)
    return fitted


def _open_bigquery(url: str, tables: Mapping[str, pa.Table], *, options: Mapping[str, str], load: Load) -> Engine:
    names = _name_tables(tables)
    engine = BigQueryEngine.open(url, {}, options=options)
    for full, name in names.items():
        fields: Fields = []
        for field in tables[name].schema:
            if pa.types.is_decimal(field.type):
                digits = {"precision": str(field.type.precision), "scale": str(field.type.scale)}
                fields.append({"name": field.name, "type": "BIGNUMERIC", "mode": "NULLABLE", **digits})
            else:
                fields.append({"name": field.name, "type": _BIGQUERY.types[field.type], "mode": "NULLABLE"})
        load(engine, full, fields=fields, rows=[*zip(*map(_list_texts, tables[name].columns), strict=True)])
    engine._tables = engine.look_up(names)  # noqa: SLF001 - for kits alone
    return rename_tables(engine, names)


def _load(engine: BigQueryEngine, name: str, *, fields: Fields, rows: Rows) -> None:
    from google.cloud import bigquery

    client: Any = engine._client  # noqa: SLF001 - for kits alone
    place = ".".join((*engine._dataset, name))  # noqa: SLF001 - as above
    schema = [bigquery.SchemaField.from_api_repr(field) for field in fields]
    client.create_table(bigquery.Table(place, schema=schema))
    written = [dict(zip((field["name"] for field in fields), row, strict=True)) for row in rows]
    if written:
        client.load_table_from_json(written, place, job_config=bigquery.LoadJobConfig(schema=schema)).result()
