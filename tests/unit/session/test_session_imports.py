"""What asking a private query imports."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import duckdb
import pytest
from support.surfaces_kit import make_data

from dpsql.plan.mechanisms.names import int64_array

ASK = """
import sys, dpsql
text = "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads WHERE country <> 'FR' GROUP BY article TOP 3 PRIVATE"
with dpsql.connect("events.duckdb", policy="policy.toml") as session:
    for _ in range(2):
        assert len(session.sql(f"SELECT n FROM ({text}) AS t WHERE n > 10 ORDER BY n").fetchall())
print([name for name in ("pandas", "mpmath", "matplotlib", "IPython") if name in sys.modules])
"""


def test_a_private_query_imports_nothing_that_is_large_and_not_needed(tmp_path: Path) -> None:
    assert find_spec("pandas") is not None  # or the test shows nothing
    make_data(tmp_path)
    done = subprocess.run([sys.executable, "-c", ASK], cwd=tmp_path, capture_output=True, text=True, check=False)
    theirs = duckdb.__version__ < "2"  # DuckDB itself imports pandas there, to see whether a parameter is of it
    assert (done.stdout, done.stderr) == ("['pandas']\n" if theirs else "[]\n", "")


def test_whole_numbers_become_an_array_of_64_bits_or_none() -> None:
    for values in ((), (0, -1, 2**63 - 1, -(2**63)), range(3)):
        array = int64_array(values)
        assert (array.to_pylist(), str(array.type), array.null_count) == (list(values), "int64", 0)
    with pytest.raises(OverflowError):
        int64_array([2**63])
