"""Kits of engines that need no account: DataFusion and Spark over Parquet files, MySQL and PostgreSQL at an address.

DataFusion and Spark run in this process, over files in a temporary folder. On a server each set of tables has a new
database, or a new schema, which is dropped at the end.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, partial
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from dpsql.engines import Engine
from dpsql.engines.datafusion import DataFusionEngine
from dpsql.engines.mysql import MySQLEngine, read_address
from dpsql.engines.postgres import PostgresEngine
from dpsql.engines.remote import import_driver
from dpsql.engines.spark import SparkEngine
from dpsql.errors import UsageError
from dpsql.testing.kit import Kit, rename_tables
from dpsql.testing.tables import fit_table

if TYPE_CHECKING:
    import psycopg
    import pymysql

DATAFUSION_OPTIONS = {"datafusion.execution.target_partitions": "2"}
URL = "spark:local[1]"
OPTIONS = {  # that make a small query quick: one task each, nothing compiled
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.hadoop.fs.viewfs.mounttable.cluster.link./files": "file:///",  # addresses that are no paths
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
_SPARK_STORED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()}


@cache
def make_folder(name: str) -> Path:
    """Return a folder for the tables of this process; for "spark" Spark starts, for as long as the process runs."""
    made = Path(tempfile.mkdtemp(prefix=f"dpsql-{name}-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    if name == "spark":
        first = SparkEngine.open(URL, {}, options={**OPTIONS, "spark.sql.warehouse.dir": str(made)})
        atexit.register(first.close)
    return made


def write_files(tables: Mapping[str, pa.Table]) -> dict[str, Path]:
    """Write each table for DataFusion to a file of small row groups, and return the files by name."""
    place = Path(tempfile.mkdtemp(dir=make_folder("datafusion")))
    for name, table in tables.items():
        pq.write_table(table, place / f"{name}.parquet", row_group_size=64)
    return {name: place / f"{name}.parquet" for name in tables}


def write_folders(tables: Mapping[str, pa.Table]) -> dict[str, Path]:
    """Write each table for Spark into a folder of one file, and return the folders by name."""
    place = Path(tempfile.mkdtemp(dir=make_folder("spark")))
    for name, table in tables.items():
        (place / name).mkdir()
        pq.write_table(table, place / name / "rows.parquet")
    return {name: place / name for name in tables}


def open_spark(sources: Mapping[str, Path | None]) -> SparkEngine:
    """Return an engine over tables in files, or of the catalog."""
    options = {**OPTIONS, "spark.sql.warehouse.dir": str(make_folder("spark"))}
    return SparkEngine.open(URL, sources, options=options)


DATAFUSION = Kit(
    "datafusion",
    lambda tables: DataFusionEngine.open("datafusion:", write_files(tables), options=DATAFUSION_OPTIONS),
    partial(fit_table, infinite=False),
    share=24,
    every=8,
)
SPARK = Kit(
    "spark",
    lambda tables: open_spark(write_folders(tables)),
    partial(fit_table, stored=_SPARK_STORED, infinite=False),
    share=80,
    every=6,
)


_MYSQL_TYPES = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.uint8(): "TINYINT UNSIGNED",
    pa.uint16(): "SMALLINT UNSIGNED",
    pa.uint32(): "INT UNSIGNED",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "TEXT",
    pa.date32(): "DATE",
    pa.timestamp("us"): "DATETIME(6)",
}
_MYSQL_DAYS = (-719_162, 2_932_896)  # 0001-01-01 and 9999-12-31


def _fit_mysql(table: pa.Table) -> pa.Table:
    """Return a table that can be stored; what queries compute of one with units may not leave calendar and DOUBLE."""
    if "user_id" in table.column_names:
        return _reach_mysql(table, margin=31, largest=1e300)
    return _reach_mysql(table, margin=1)


def _reach_mysql(table: pa.Table, *, margin: int = 0, largest: float = float("inf")) -> pa.Table:
    """Make NULL of days outside the calendar, `margin` days at its ends, and other DOUBLE; 0.0 of -0.0."""
    days = (_MYSQL_DAYS[0] + margin * (largest < float("inf")), _MYSQL_DAYS[1] - margin)
    moments = (days[0] * 86_400_000_000, (days[1] + 1) * 86_400_000_000 - 1)
    table = fit_table(table, days=days, moments=moments, infinite=False)
    for at, field in enumerate(table.schema):
        if pa.types.is_floating(field.type):
            kept = [
                None if value is None or not isfinite(value) or abs(value) > largest else value + 0.0
                for value in table.column(at).to_pylist()
            ]
            table = table.set_column(at, field.name, pa.array(kept, field.type))
    return table


def _connect_mysql(url: str) -> pymysql.connections.Connection[Any]:
    import pymysql

    return pymysql.connect(**read_address(url), charset="utf8mb4", autocommit=True)


def _open_mysql(tables: Mapping[str, pa.Table], *, url: str) -> Engine:
    database = f"kit_{uuid4().hex}"
    atexit.register(_drop_database, url, database)
    with _connect_mysql(url) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {database} CHARACTER SET utf8mb4")
        for name, table in tables.items():
            columns = ", ".join(
                f"`{field.name}` {_MYSQL_TYPES.get(field.type) or _decimal(field.type)} NULL" for field in table.schema
            )
            cursor.execute(f"CREATE TABLE {database}.`{name}` ({columns})")
            rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
            marks = ", ".join(["%s"] * table.num_columns)
            cursor.executemany(f"INSERT INTO {database}.`{name}` VALUES ({marks})", rows)
    names = {f"{database}.{name}": name for name in tables}
    return rename_tables(MySQLEngine.open(url, dict.fromkeys(names), options={}), names)


def _drop_database(url: str, database: str) -> None:
    """Drop a database, if the server is still there."""
    with suppress(Exception), _connect_mysql(url) as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE {database}")


def _decimal(type_: pa.DataType) -> str:
    return f"DECIMAL({type_.precision}, {type_.scale})"


def create_mysql(url: str | None = None) -> Kit:
    """Return the kit for the server at an address, where the user may create databases."""
    if url is None:
        hint = "Write --url mysql://user@host/database, of a user who may create databases."
        raise UsageError("kit-unknown", "The kit of MySQL needs an address.", hint=hint)
    import_driver("pymysql", engine="MySQL", extra="mysql")
    return Kit("mysql", partial(_open_mysql, url=url), _fit_mysql, _reach_mysql, share=24, every=8)


_POSTGRES_TYPES = {
    pa.bool_(): "boolean",
    pa.int16(): "int2",
    pa.int32(): "int4",
    pa.int64(): "int8",
    pa.float32(): "float4",
    pa.float64(): "float8",
    pa.string(): "text",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp",
}
_POSTGRES_STORED = {pa.int8(): pa.int16(), pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()}
_POSTGRES_DAYS = (-2_440_588, 2_145_042_540)  # 4714-11-24 BC and 5874897-12-31
_POSTGRES_MOMENTS = (-210_866_803_200_000_000, 9_223_371_331_199_999_999)
_ENDLESS = {2**31 - 1: "infinity", -(2**31) + 1: "-infinity", 2**63 - 1: "infinity", -(2**63) + 1: "-infinity"}


def _fit_postgres(table: pa.Table) -> pa.Table:
    return fit_table(table, stored=_POSTGRES_STORED, days=_POSTGRES_DAYS, moments=_POSTGRES_MOMENTS, zero_bytes=False)


def _reach_postgres(table: pa.Table) -> pa.Table:
    return fit_table(table, days=_POSTGRES_DAYS, moments=(_POSTGRES_MOMENTS[0], 2**63 - 2))


def create_postgres(url: str | None = None) -> Kit:
    """Return the kit of the PostgreSQL at `url`; each engine has a schema of its own, which is dropped at the end."""
    if url is None:
        hint = "Write --url postgresql://user@host/database; the user needs the right to create schemas there."
        raise UsageError("kit-unknown", "The kit of PostgreSQL needs an address.", hint=hint)
    import_driver("psycopg", engine="PostgreSQL", extra="postgres")
    types = ("BLOB", "ENUM", "UUID", "NUMERIC", "TIMESTAMP WITH TIME ZONE")
    return Kit("postgres", partial(_open_postgres, url), _fit_postgres, _reach_postgres, types=types)


def _open_postgres(url: str, tables: Mapping[str, pa.Table]) -> Engine:
    import psycopg

    schema = f"dpsql_suite_{uuid4().hex[:12]}"
    atexit.register(_drop_schema, url, schema)
    with psycopg.connect(url, autocommit=True) as connection:
        _run(connection, f'CREATE SCHEMA "{schema}"')
        for name, table in tables.items():
            columns = ", ".join(
                f'"{field.name}" {_POSTGRES_TYPES.get(field.type, _name_numeric(field.type))}' for field in table.schema
            )
            _run(connection, f'CREATE TABLE "{schema}"."{name}" ({columns})')
            with connection.cursor().copy(f'COPY "{schema}"."{name}" FROM STDIN'.encode()) as copy:
                for row in zip(*map(_texts, table.columns), strict=True):
                    copy.write_row(row)
    names = {f"{schema}.{name}": name for name in tables}
    return rename_tables(PostgresEngine.open(url, dict.fromkeys(names), options={}), names)


def _drop_schema(url: str, schema: str) -> None:
    """Drop a schema, if the server is still there."""
    import psycopg

    with suppress(psycopg.Error), psycopg.connect(url, autocommit=True) as connection:
        _run(connection, f'DROP SCHEMA IF EXISTS "{schema}" CASCADE')


def _run(connection: psycopg.Connection[tuple[object, ...]], statement: str) -> None:
    connection.execute(statement.encode())


def _name_numeric(type_: pa.DataType) -> str:
    return f"numeric({type_.precision}, {type_.scale})" if pa.types.is_decimal(type_) else ""


def _texts(column: pa.ChunkedArray) -> list[str | None]:
    """Return the values as PostgreSQL reads them."""
    values = column.combine_chunks()
    if pa.types.is_date32(values.type):
        return [_moment(days, 86_400_000_000, type_="DATE") for days in values.view(pa.int32()).to_pylist()]
    if pa.types.is_timestamp(values.type):
        return [_moment(at, 1, type_="TIMESTAMP") for at in values.view(pa.int64()).to_pylist()]
    return [None if value is None else str(value) for value in values.to_pylist()]


def _moment(number: int | None, width: int, *, type_: str) -> str | None:
    """Return a date or time stamp, of which a month before our era is the year 1 BC, as PostgreSQL reads it."""
    if number is None or number in _ENDLESS:
        return None if number is None else _ENDLESS[number]
    days, rest = divmod(number * width, 86_400_000_000)
    year, month, day = _civil(days)
    second, micro = divmod(rest, 1_000_000)
    era = f" {'BC' if year <= 0 else ''}".rstrip()
    clock = "" if type_ == "DATE" else f" {second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}.{micro:06}"
    return f"{1 - year if year <= 0 else year:04}-{month:02}-{day:02}{clock}{era}"


def _civil(days: int) -> tuple[int, int, int]:
    """Return year, month and day of a day since 1970 in the Gregorian calendar, beyond Python's dates too."""
    # Days are counted from 1 March of the year 0, so that a leap day is the last of its year; 146,097 are 400 years.
    era, of_era = divmod(days + 719_468, 146_097)
    year = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    return year + era * 400 + (month >= 10), month + 3 if month < 10 else month - 9, day
