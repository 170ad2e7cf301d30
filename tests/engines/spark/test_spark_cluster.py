"""Spark on two machines, each a Java process of its own: the same answers, and little leaves them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import spark_cluster_trial
from support.engine_kit_spark import require

from dpsql.testing.kit import PORTABLE_KIT as PORTABLE

HERE = Path(spark_cluster_trial.__file__)
ROWS = 21  # of TOP 20: the first one behind the others comes too


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    require()
    place = tmp_path_factory.mktemp("cluster")
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", HERE, place],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    result: dict[str, Any] = json.loads((place / "found.json").read_text())
    engine = PORTABLE.open({"reads": pa.concat_tables(map(pq.read_table, sorted((place / "reads").iterdir())))})
    result["duckdb"] = spark_cluster_trial.answer(engine)
    result["duckdb bounded"] = spark_cluster_trial.answer(engine, spark_cluster_trial.BOUND)
    engine.close()
    return result


def test_two_machines_answer_as_duckdb_does(found: dict[str, Any]) -> None:
    assert found["plain"] == found["duckdb"]
    assert found["bounded by digest"] == found["duckdb bounded"] != found["duckdb"]


def test_a_unit_keeps_the_same_groups_however_its_rows_are_spread(found: dict[str, Any]) -> None:
    assert found["bounded in other parts"] == found["bounded"]


def test_a_machine_that_dies_changes_nothing(found: dict[str, Any]) -> None:
    assert found["machines"] == [2, 1]  # there were two, and one of these is gone
    assert found["bounded while one dies"] == found["bounded"]


def test_a_query_is_charged_once_while_a_machine_dies(found: dict[str, Any]) -> None:
    assert found["charges"] == 1


def test_no_more_than_the_answer_leaves_the_cluster(found: dict[str, Any]) -> None:
    answers = [name for name in found if name.startswith(("plain", "bounded"))]
    assert all(len(found[name]) == ROWS for name in answers)
    tasks = found["bytes"]  # of the tasks whose results came here, and the first of all read the types of a file
    assert len(tasks) == len(answers) + 2  # and of the query of the session
    assert max(tasks) < 16_384
