"""Spark in this process, with one session of dpsql's own, which reads tables in Parquet."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dpsql.engines import Engine
from dpsql.engines.spark.engine import SparkEngine
from dpsql.testing.kit import Kit
from dpsql.testing.tables import fit_table

__all__ = ["KIT", "OPTIONS", "URL", "folder", "open_sources", "write_tables"]

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
_STORED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()}


@cache
def folder() -> Path:
    """Return a folder for the tables of this process; the first call starts Spark, for as long as the process runs."""
    made = Path(tempfile.mkdtemp(prefix="dpsql-spark-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    first = SparkEngine.open(URL, {}, options={**OPTIONS, "spark.sql.warehouse.dir": str(made)})
    atexit.register(first.close)
    return made


def write_tables(tables: Mapping[str, pa.Table]) -> dict[str, Path]:
    """Write each table into a folder of one file, and return the folders by name."""
    place = Path(tempfile.mkdtemp(dir=folder()))
    for name, table in tables.items():
        (place / name).mkdir()
        pq.write_table(table, place / name / "rows.parquet")
    return {name: place / name for name in tables}


def open_sources(sources: Mapping[str, Path | None]) -> SparkEngine:
    """Return an engine over tables in files, or of the catalog."""
    return SparkEngine.open(URL, sources, options={**OPTIONS, "spark.sql.warehouse.dir": str(folder())})


def _open(tables: Mapping[str, pa.Table]) -> Engine:
    return open_sources(write_tables(tables))


def _fit(table: pa.Table) -> pa.Table:
    return fit_table(table, stored=_STORED, infinite=False)


KIT = Kit("spark", _open, _fit, share=80, every=6)
