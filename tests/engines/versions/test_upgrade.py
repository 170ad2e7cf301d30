"""The steps of docs/how-to/upgrading.md from the real 0.10.1 and 0.11.0 to this version, and back again.

The code of these versions comes from the history of the repository; a clone without it skips these tests.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from support.command_kit import run_command
from support.ledgers_of_versions import make_database
from support.policies_of_versions import BEFORE, follow_hints
from support.postgres_kit import server
from support.upgrade_page import PAGE

COMMITS = {"0.10.1": "de52fe42", "0.11.0": "5e1da425"}
RUN = "import sys; sys.argv[0] = 'dpsql'; from dpsql.cli import main; main()"
KEYS = """
import sys
from dpsql import Policy
from dpsql.policy.toml import Section
known, only = set(), Section.only
def record(self, *keys):
    known.update((*self.path, key) for key in keys)
    only(self, *keys)
Section.only = record
Policy.from_toml('policy.toml')
print('\\n'.join('.'.join(path) for path in known))
"""
POLICY = """\
ledger = "ledger.sqlite"
prepared = "quick"
[budget]
epsilon = 20.0
delta = 1e-5
[server]
flight = "off"
catalog = "minimal"
[tables.reads]
privacy_unit = "user_id"
prepared = [["article"]]
"""
SQL = "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article TOP 3 PRIVATE"
OTHER = "SELECT country FROM reads GROUP BY country TOP 2 PRIVATE"
MEDIAN = (
    "SELECT article, MEDIAN(minutes, contribution_bounds_per_row => (0, 30)) AS m FROM reads GROUP BY 1 "
    "TOP 2 PRIVATE WITH (max_rows_contributed = 4)"
)
Python = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module", params=COMMITS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def earlier(version: str, tmp_path_factory: pytest.TempPathFactory) -> Python:
    """Return what runs Python with an earlier dpsql in a folder."""
    place, root = tmp_path_factory.mktemp(version), PAGE.parents[2]
    packed = subprocess.run(["git", "archive", COMMITS[version], "dpsql"], cwd=root, check=False, capture_output=True)
    if packed.returncode:
        pytest.skip(f"the history does not have {COMMITS[version]}")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(place, filter="data")

    def run(folder: Path, code: str, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-W", "ignore", "-c", code, *words]
        place_first = {**os.environ, "PYTHONPATH": str(place)}
        return subprocess.run(
            command, cwd=folder, env=place_first, check=False, capture_output=True, text=True, timeout=60
        )

    assert run(place, "import dpsql; print(dpsql.__file__)").stdout.startswith(str(place))
    return run


def test_a_ledger_of_a_later_version_is_named_and_left_as_it_is(tmp_path: Path) -> None:
    make_database(tmp_path / "events.duckdb")
    (tmp_path / "policy.toml").write_text(re.sub("(?m)^(prepared|flight|catalog) .*$", "", POLICY))
    ask = ("query", "--db", "events.duckdb", "--policy", "policy.toml", OTHER)
    assert run_command(tmp_path, *ask)[0] == 0
    ledger = tmp_path / "ledger.sqlite"
    with closing(sqlite3.connect(ledger)) as connection:
        connection.execute("PRAGMA user_version = 99")
    before = ledger.read_bytes()
    for words in (ask, ("check",), ("ledger", "verify", str(ledger))):
        code, _, err = run_command(tmp_path, *words)
        assert code == 7
        assert f"[ledger-newer] at {ledger}: The ledger has version 99" in err
        assert "Hint: Install the dpsql that wrote it, or a newer one." in err
    assert ledger.read_bytes() == before


def rows(printed: str) -> object:
    return json.loads(printed)["rows"]


def test_the_steps_of_the_page(version: str, earlier: Python, tmp_path: Path) -> None:
    make_database(tmp_path / "events.duckdb")
    (tmp_path / "policy.toml").write_text(POLICY)
    ask = ("query", "--db", "events.duckdb", "--policy", "policy.toml", "--format", "json")

    def old(*words: str) -> str:
        done = earlier(tmp_path, RUN, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def new(*words: str) -> str:
        code, out, err = run_command(tmp_path, *words)
        assert code == 0, err
        return out

    old("prepare", "--db", "events.duckdb", "--policy", "policy.toml")
    answer = rows(old(*ask, SQL))
    steps = "".join(re.findall(r"^```sh\n(.*?)```", PAGE.read_text(), re.MULTILINE | re.DOTALL)).splitlines()
    assert len(steps) == 3
    for step in steps:
        if "backup" in step and version == "0.10.1":  # which has no such command
            shutil.copy(tmp_path / "ledger.sqlite", tmp_path / "before.sqlite")
        else:
            old(*step.split()[1:])
    assert (tmp_path / "before.sqlite").exists()

    code, _, err = run_command(tmp_path, "check", "--policy", "policy.toml")
    assert code == 5
    assert "(policy.toml, line 2)" in err
    shutil.copy(tmp_path / "policy.toml", tmp_path / "old.toml")
    changed = follow_hints(tmp_path / "policy.toml")
    assert changed == ['prepared = "quick"', 'prepared = [["article"]]', 'flight = "off"', 'catalog = "minimal"']
    new("check", "--policy", "policy.toml")
    new("materialize", "--db", "events.duckdb", "--policy", "policy.toml")
    again = json.loads(new(*ask, SQL))
    assert (again["rows"], again["receipt"]["replayed"]) == (answer, True)
    assert json.loads(new(*ask, OTHER))["receipt"]["replayed"] is False
    assert json.loads(new(*ask, MEDIAN))["receipt"]["replayed"] is False

    # Back: the ledger is as it was for an earlier version, until it has something that such a version does not know.
    back = ("query", "--db", "events.duckdb", "--policy", "old.toml", "--format", "json")
    assert rows(old(*back, SQL)) == answer
    assert json.loads(old(*back, OTHER))["receipt"]["replayed"] is False
    new("ledger", "verify", "ledger.sqlite")
    new("publish", "weekly", "--db", "events.duckdb", "--policy", "policy.toml", "--yes", "--sql", SQL)
    refused = earlier(tmp_path, RUN, *back, SQL)
    assert refused.returncode == 7
    assert "ledger-newer" in refused.stderr
    assert rows(new(*ask, SQL)) == answer


def test_a_ledger_in_postgresql_goes_on_and_not_back(version: str, earlier: Python, tmp_path: Path) -> None:
    make_database(tmp_path / "events.duckdb")
    policy = re.sub("(?m)^(prepared|flight|catalog) .*$", "", POLICY)
    url = server().url(f"walk_{version.replace('.', '_')}")
    (tmp_path / "policy.toml").write_text(policy.replace("ledger.sqlite", url))
    ask = ("query", "--db", "events.duckdb", "--policy", "policy.toml", "--format", "json", SQL)
    first = earlier(tmp_path, RUN, *ask)
    assert first.returncode == 0, first.stderr
    code, out, _ = run_command(tmp_path, *ask)
    assert (code, rows(out), json.loads(out)["receipt"]["replayed"]) == (0, rows(first.stdout), True)
    publish = ("publish", "weekly", *ask[1:5], "--yes", "--sql", SQL)
    assert run_command(tmp_path, *publish)[0] == 0
    refused = earlier(tmp_path, RUN, *ask)
    assert refused.returncode == 7
    assert "ledger-newer" in refused.stderr
    assert rows(run_command(tmp_path, *ask)[1]) == rows(first.stdout)


def test_the_policy_of_a_version_has_every_key_that_it_knows(version: str, earlier: Python, tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(BEFORE[version])
    done = earlier(tmp_path, KEYS)
    assert done.returncode == 0, done.stderr
    written = {path for path in done.stdout.split() if not re.match(r"tables\.\w+\.", path)}
    of_tables = {path.rpartition(".")[2] for path in done.stdout.split() if path.startswith("tables.")}
    text = BEFORE[version]
    assert len(written) > 40
    assert [
        path for path in written if not re.search(rf"^(\[.*)?\b{path.rpartition('.')[2]}\b", text, re.MULTILINE)
    ] == []
    assert [key for key in of_tables if not re.search(rf"^{key} = ", text, re.MULTILINE)] == []
