"""Clients of other languages, each a program of its own that prints a line of JSON for each step.

A program that is not installed is a reason to skip its test; with DPSQL_ALL_CLIENTS=1 in the environment, as
.ci/run sets it where it has installed them, it is a reason to fail.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

__all__ = ["ODBC", "Steps", "java", "missing", "node", "odbc", "psql", "run"]

CLIENTS = Path(__file__).parents[1] / "server" / "clients"
JDBC = Path("/usr/share/java/postgresql.jar")
ODBC = "psqlodbcw.so"
Steps = dict[str, dict[str, object]]


def missing(what: str, *, required: bool = True) -> None:
    """Skip the test for want of a program, or fail where all of them were promised and it is `required`."""
    if required and os.environ.get("DPSQL_ALL_CLIENTS"):
        pytest.fail(f"DPSQL_ALL_CLIENTS is set, and {what} is not there")
    pytest.skip(f"{what} is not installed")


def run(
    command: Sequence[str | Path], given: dict[str, str], *, cwd: Path, environment: Mapping[str, str] | None = None
) -> Steps:
    """Run a program with `name=value` words, and return what it printed of each step."""
    words = [*map(str, command), *(f"{name}={value}" for name, value in given.items())]
    variables = {**os.environ, **(environment or {})}
    done = subprocess.run(words, cwd=cwd, env=variables, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, (done.stdout[-2000:], done.stderr[-2000:])
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]  # tools print too
    return {line.pop("step"): line for line in told}


def java(given: dict[str, str]) -> Steps:
    """Run the program of Java."""
    found = shutil.which("java")
    if found is None or not JDBC.exists():
        missing("Java with pgjdbc (libpostgresql-jdbc-java)")
    assert found is not None
    return run([found, "-cp", JDBC, CLIENTS / "Client.java"], given, cwd=CLIENTS)


def odbc(given: dict[str, str]) -> Steps:
    """Run the program that asks by ODBC."""
    drivers = sorted(Path("/usr/lib").glob(f"*/odbc/{ODBC}"))
    try:
        import pyodbc  # noqa: F401 - it loads the driver manager, which must be there
    except ImportError:
        missing("unixODBC (unixodbc)")
    if not drivers:
        missing("psqlODBC (odbc-postgresql)")
    return run([sys.executable, CLIENTS / "ask_odbc.py"], {**given, "driver": str(drivers[0])}, cwd=CLIENTS)


def node(program: str, given: dict[str, str], *, source: Path = CLIENTS / "node") -> Steps:
    """Run a program of a folder of node, with the packages of its lock file."""
    found = shutil.which("node")
    if found is None:
        missing("node")
    assert found is not None
    folder = packages(source)
    if folder is None:
        missing("what the lock file of node names (npm ci)")
    assert folder is not None
    return run([found, folder / program], given, cwd=folder)


@functools.cache
def packages(source: Path) -> Path | None:
    """Return a copy of a folder of node with its packages, made once for each lock file; None where npm cannot."""
    files = sorted(source.iterdir())
    version = hashlib.sha256(b"".join(file.read_bytes() for file in files if file.is_file())).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"dpsql-node-{os.getuid()}-{version}"
    npm = shutil.which("npm")
    if npm is None:
        return None
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of several processes of the tests, one installs
        if not (folder / "installed").exists():
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(source, folder, ignore=shutil.ignore_patterns("node_modules"))
            command = [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--prefer-offline"]
            try:
                done = subprocess.run(command, cwd=folder, capture_output=True, timeout=60, check=False)
            except subprocess.TimeoutExpired:
                return None
            if done.returncode:
                return None
            (folder / "installed").touch()
    return folder


def psql(*words: str, environment: dict[str, str]) -> str:
    """Return what psql prints."""
    found = shutil.which("psql")
    if found is None:
        missing("psql (postgresql-client)")
    assert found is not None
    command = [found, "--no-psqlrc", "--no-align", "--tuples-only", *words]
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60, check=False
    )
    return done.stdout + done.stderr
