"""DataFusion as the tests of conformance use it: tables in Parquet that a session in this process reads."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from support.engine_kits import Kit
from support.engine_tables import fitted

from dpsql.engines import Engine
from dpsql.engines.datafusion.engine import DataFusionEngine

__all__ = ["KIT", "laid"]


@cache
def _folder() -> Path:
    made = Path(tempfile.mkdtemp(prefix="dpsql-datafusion-kit-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def laid(tables: Mapping[str, pa.Table]) -> dict[str, Path]:
    """Return where the tables stand, by name, each a file of blocks of few rows."""
    place = Path(tempfile.mkdtemp(dir=_folder()))
    for name, table in tables.items():
        pq.write_table(table, place / f"{name}.parquet", row_group_size=64)
    return {name: place / f"{name}.parquet" for name in tables}


def _open(tables: Mapping[str, pa.Table]) -> Engine:
    options = {"datafusion.execution.target_partitions": "2"}
    return DataFusionEngine.open("datafusion:", laid(tables), options=options)


def _fit(table: pa.Table) -> pa.Table:
    return fitted(table, infinite=False)


KIT = Kit("datafusion", _open, _fit)
