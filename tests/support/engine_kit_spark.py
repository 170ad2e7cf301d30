"""Kit of Spark, for tests that are skipped without it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pytest

from dpsql.engines import Engine
from dpsql.testing import kits
from dpsql.testing.kits import OPTIONS, URL
from dpsql.testing.kits import open_spark as opened
from dpsql.testing.kits import write_folders as laid

__all__ = ["KIT", "OPTIONS", "URL", "folder", "laid", "opened", "require"]


def require() -> None:
    """Skip a test where there is no Spark."""
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java, which is not installed")
    if find_spec("pyspark") is None:  # dpsql imports it, and says nothing of what that warns of
        pytest.skip("Spark needs the package pyspark")


def folder() -> Path:
    require()
    return kits.make_folder("spark")


def _open(tables: Mapping[str, pa.Table]) -> Engine:
    require()
    return kits.SPARK.open(tables)


KIT = replace(kits.SPARK, open=_open, every=48)
