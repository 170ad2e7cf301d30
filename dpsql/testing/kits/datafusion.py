"""DataFusion in this process, over Parquet files in a temporary folder."""

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
from dpsql.engines.datafusion import DataFusionEngine
from dpsql.testing.kit import Kit
from dpsql.testing.tables import fit_table

__all__ = ["KIT", "write_tables"]


@cache
def _folder() -> Path:
    made = Path(tempfile.mkdtemp(prefix="dpsql-datafusion-kit-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def write_tables(tables: Mapping[str, pa.Table]) -> dict[str, Path]:
    """Write each table to a Parquet file of small row groups, and return the files by name."""
    place = Path(tempfile.mkdtemp(dir=_folder()))
    for name, table in tables.items():
        pq.write_table(table, place / f"{name}.parquet", row_group_size=64)
    return {name: place / f"{name}.parquet" for name in tables}


def _open(tables: Mapping[str, pa.Table]) -> Engine:
    options = {"datafusion.execution.target_partitions": "2"}
    return DataFusionEngine.open("datafusion:", write_tables(tables), options=options)


def _fit(table: pa.Table) -> pa.Table:
    return fit_table(table, infinite=False)


KIT = Kit("datafusion", _open, _fit, share=24, every=8)
