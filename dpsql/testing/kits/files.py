"""Engines that read Parquet files in a temporary folder: DataFusion and Spark, both in this process."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dpsql.engines.datafusion import DataFusionEngine
from dpsql.engines.spark import SparkEngine
from dpsql.testing.kit import Kit
from dpsql.testing.tables import fit_table

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
_STORED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64()}


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
    partial(fit_table, stored=_STORED, infinite=False),
    share=80,
    every=6,
)
