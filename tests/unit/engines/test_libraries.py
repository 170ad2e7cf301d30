"""Libraries that cannot be imported for lack of memory: one error of dpsql's own, before anything is reserved."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

POLICY = """\
ledger = "ledger.sqlite"
[budget]
epsilon = 4.0
delta = 1e-6
[tables.reads]
privacy_unit = "user_id"
"""
STATEMENT = "SELECT COUNT(DISTINCT user_id) AS n FROM reads PRIVATE"
LIMITED = """
import dpsql, dpsql.session, gc, resource, sys
from contextlib import suppress

def limited(act):
    size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + (12 << 20), -1))
    code = "none"
    try:
        act()
    except dpsql.EngineError as error:
        code = f"{error.code}: {error.reason}"
    resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
    print(code)

def connect(**options):
    return dpsql.connect("events.duckdb", policy="policy.toml", **options)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with duckdb.connect(str(tmp_path / "events.duckdb")) as connection:
        connection.execute("CREATE TABLE reads AS SELECT i AS user_id FROM range(1000) t(i)")
    (tmp_path / "policy.toml").write_text(POLICY)
    return tmp_path


def run(folder: Path, program: str, *, first: Path | None = None) -> list[str]:
    """Return the lines that a program prints in a process of its own."""
    path = "" if first is None else f"import sys; sys.path.insert(0, {str(first)!r})\n"
    command = [sys.executable, "-c", path + program]
    done = subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True, timeout=90)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.skipif(sys.platform != "linux", reason="the size of a process is read from /proc")
def test_a_session_without_memory_for_a_library_charges_nothing(folder: Path) -> None:
    program = f"""{LIMITED}
limited(connect)
with connect() as session:
    print("pyarrow" in sys.modules)
    limited(lambda: session.sql("{STATEMENT}"))
    print(len(session.history), session.sql("{STATEMENT}").receipt.replayed)
"""
    assert run(folder, program) == [
        "not-loaded: The package duckdb cannot be loaded; nothing was charged.",
        "False",
        "not-loaded: The package pyarrow cannot be loaded; nothing was charged.",
        "0 False",
    ]


@pytest.mark.parametrize("fault", ["MemoryError", "ImportError('_duckdb.so: failed to map segment')"])
@pytest.mark.parametrize("isolation", [None, "process"])
def test_an_engine_without_its_library_says_so(folder: Path, fault: str, isolation: str | None) -> None:
    (folder / "broken" / "duckdb").mkdir(parents=True)
    (folder / "broken" / "duckdb" / "__init__.py").write_text(f"raise {fault}\n")
    program = f"""
import dpsql
try:
    dpsql.connect("events.duckdb", policy="policy.toml", isolation={isolation!r})
except dpsql.EngineError as error:
    print(error.code, error.hint)
"""
    (line,) = run(folder, program, first=folder / "broken")
    assert line == "not-loaded Give this process more memory (ulimit -v), or install duckdb again."
