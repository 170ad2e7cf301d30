"""`dpsql materialize` on a disk that is full: an error of its own, and what was materialized before stays."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from support.materialized_kit import events, opened, policy

from dpsql.curator import materialize
from dpsql.errors import EngineError
from dpsql.materialized import build
from dpsql.materialized.lookup import read_state

resource = pytest.importorskip("resource")  # not on Windows

POLICY = """\
materialized = "materialized"
[budget]
epsilon = 1.0
delta = 1e-6
[tables.reads]
privacy_unit = "user_id"
materialized = [["article"]]
"""
PROGRAM = "from dpsql.cli import main; main()"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    events(tmp_path / "events.duckdb")
    return tmp_path / "events.duckdb"


def refuse(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("limit", [0, 1, 1000, 20_000, 100_000])
def test_the_command_says_that_there_is_no_room_and_that_nothing_is_charged(
    database: Path, tmp_path: Path, limit: int
) -> None:
    (tmp_path / "policy.toml").write_text(POLICY)
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, "materialize", "--db", str(database), "--policy", "policy.toml"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(build.__file__).parents[1])},
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        check=False,
    )
    assert "Traceback" not in ran.stderr
    assert ran.returncode == 6
    assert "prepare-failed" in ran.stderr
    assert "Free space" in ran.stderr
    assert " is charged" not in ran.stderr
    assert [file.name for file in tmp_path.glob("materialized/*")] in ([], ["lock"])


@pytest.mark.parametrize(
    ("owner", "name"), [(os, "open"), (build.shutil, "copyfile"), (build, "write_state"), (build, "_copy_permissions")]
)
def test_the_call_raises_an_error_of_ours_and_what_was_materialized_stays(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: object, name: str
) -> None:
    known = policy(tmp_path)
    materialize(known, database=database)
    before = read_state(tmp_path / "materialized")
    with duckdb.connect(str(database)) as connection:
        connection.execute("INSERT INTO reads SELECT * FROM reads LIMIT 3")
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, refuse)
        with pytest.raises(EngineError) as caught:
            materialize(known, database=database)
    assert caught.value.code == "prepare-failed"
    assert read_state(tmp_path / "materialized") == before
    materialize(known, database=database)
    with opened(database, known):
        pass
