"""The page on adapters: what it writes and runs, and what it says of errors and files."""

from __future__ import annotations

import doctest
import os
import re
import shlex
import sqlite3
import subprocess
import sys
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

import dpsql
from dpsql import Budget, DataSource, Policy, PolicyError, PrivateTable, UsageError, open_engine
from dpsql.engines import Column, Registered
from dpsql.server.users import User, add_user
from dpsql.testing import kit
from dpsql.testing.__main__ import command, compare_gaps, render_gaps
from dpsql.testing.kit import find_kit
from dpsql.testing.suite import run_checks

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "write-an-adapter.md").read_text()
SIZES = re.compile(r"(?<= of )\d+(?= answered)|\d+(?= statements)|\d+(?= cases)")  # of a suite that grows
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
PYTHON = re.findall(r"^```python([^\n]*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
CONSOLE = re.findall(r"^```console\n\$ (.*?)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
BLOCKS = dict.fromkeys(["lite.py", "lite_kit.py", "lite.py, corrected"], "")
BLOCKS |= {title.removeprefix(' title="').removesuffix('"'): text for title, text in PYTHON if title}


def run(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    program, *words = shlex.split(line)
    words = words if program == "python" else ["-m", program, "-pno:cacheprovider", "-pno:schemathesis", *words]
    if program == "pytest" and "dpsql" not in entry_points(group="pytest11").names:  # installed before there was one
        words += ["-p", "dpsql.testing.plugin"]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}", "PYTEST_ADDOPTS": ""}
    return subprocess.run([sys.executable, *words], cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_the_page_leads_to_an_adapter_that_the_suite_accepts(tmp_path: Path) -> None:
    (tmp_path / "lite.py").write_text(BLOCKS["lite.py"])
    (tmp_path / "lite_kit.py").write_text(BLOCKS["lite_kit.py"])
    found = []
    for at, (line, output) in enumerate(CONSOLE):
        done = run(line, tmp_path)
        wanted, printed = (SIZES.sub("N", text) for text in (output, done.stdout))
        todo = f"docs/how-to/write-an-adapter.md shows other output of `{line}` than this:\n{done.stdout}{done.stderr}"
        assert doctest.OutputChecker().check_output(wanted, printed, FLAGS), todo
        found.append(done.returncode)
        if not at:
            corrected = re.sub(r"FORMS = .*\nLITE = .*\n", lambda _: BLOCKS["lite.py, corrected"], BLOCKS["lite.py"])
            assert corrected != BLOCKS["lite.py"]
            (tmp_path / "lite.py").write_text(corrected)
    assert found == [1, 0, 0]
    answers = [text for title, text in PYTHON if not title and "from lite" in text]
    assert len(answers) == 1
    (tmp_path / "answer.py").write_text(answers[0])
    assert run("python answer.py", tmp_path).returncode == 0


def test_a_change_of_what_is_refused_is_said(tmp_path: Path) -> None:
    gaps = tmp_path / "gaps.toml"
    gaps.write_text(render_gaps(["link", "union"]))
    assert compare_gaps(["link", "union"], gaps) == []
    assert compare_gaps(["union", "except"], gaps) == ["except is refused", "link is answered"]
    with pytest.raises(click.BadParameter):
        compare_gaps([], tmp_path / "missing.toml")
    done = CliRunner().invoke(command, ["--engine", "portable", "--gaps", str(gaps), "--only", "keys"])
    assert done.exit_code == 2  # a part does not say all that is refused


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("nowhere", "kit-unknown"),
        ("nowhere.kit:KIT", "kit-unknown"),
        ("dpsql.testing.kit:NOTHING", "kit-unknown"),
        ("dpsql.testing.kit:GROUP", "kit-unknown"),
        ("postgres", "kit-unknown"),
    ],
)
def test_a_kit_that_is_not_there_is_refused(name: str, code: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_kit(name)
    assert caught.value.code == code
    assert caught.value.hint


def test_a_kit_is_found_by_an_entry_point_and_called_with_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("mine", "dpsql.testing.kits:create_postgres", kit.GROUP)
    monkeypatch.setattr(kit, "entry_points", EntryPoints([point]).select)
    assert find_kit("mine", "postgresql://nowhere/").name == "postgres"
    with pytest.raises(UsageError):
        find_kit("portable", "duckdb:other")  # it takes no address


def test_a_part_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        list(run_checks(find_kit("portable"), ["nowhere"]))
    assert caught.value.code == "suite-part"


def test_the_other_python_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run write-an-adapter.md: a session over ClickHouse, and an engine by SQLAlchemy."""
    first, second = (text for title, text in PYTHON if not title and "from lite" not in text)
    monkeypatch.syspath_prepend(ROOT / "examples" / "engines")
    exec(compile(first, "write-an-adapter.md", "exec"), {})
    scope: dict[str, Any] = {"__name__": "engines"}
    exec(compile(second, "write-an-adapter.md", "exec"), scope)
    with sqlite3.connect(tmp_path / "events.sqlite") as database:
        database.execute("CREATE TABLE reads (user_id BIGINT, article TEXT, day DATE)")
        rows = [(at // 2, f"a{at % 4}", "2026-01-31") for at in range(12_000)]
        database.executemany("INSERT INTO reads VALUES (?, ?, ?)", rows)
    database.close()
    columns = Column("user_id", "BIGINT"), Column("article", "VARCHAR"), Column("day", "DATE")
    engine = scope["Alchemy"](f"sqlite:///{tmp_path}/events.sqlite", {"reads": Registered(("reads",), columns)})
    policy = Policy(Budget(10, "1e-6"), {"reads": PrivateTable("user_id")})
    with dpsql.connect(engine, policy=policy, ledger=":memory:") as session:
        asked = "SELECT article, day FROM reads WHERE article <> 'a3' AND day > '2026-01-01' GROUP BY ALL TOP 2 PRIVATE"
        found = session.sql(asked).fetchall()
        assert {str(day) for _, day in found} == {"2026-01-31"}
        assert len(session.sql(asked.replace("2026-01-01", "2027-01-01")).fetchall()) == 0


class Files:
    """Opener that keeps what it was called with."""

    given: Any = None
    reads_files = True

    def __call__(self, url: str, sources: Any, **settings: Any) -> Any:
        Files.given = (url, sources, settings)
        raise open_engine.EngineError("table-missing", "It stops here.")


class NoFiles(Files):
    reads_files = False


@pytest.mark.parametrize("opener", [Files(), NoFiles()])
def test_tables_of_files_are_for_adapters_that_read_them(
    opener: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    point = EntryPoint("files", "files:opener", open_engine.GROUP)
    monkeypatch.setattr(open_engine, "entry_points", EntryPoints([point]).select)
    monkeypatch.setattr(EntryPoint, "load", lambda _: opener)
    monkeypatch.setattr(Files, "given", None)
    path = tmp_path / "reads.parquet"
    policy = Policy(Budget(1, "1e-6"), {"reads": PrivateTable("user_id", source=path)}, source=DataSource("files:here"))
    with pytest.raises(open_engine.Error) as caught:
        open_engine.open_engine(None, policy)
    if opener.reads_files:
        assert (caught.value.code, Files.given[:2]) == ("table-missing", ("files:here", {"reads": path}))
    else:
        assert (type(caught.value), caught.value.code, Files.given) == (PolicyError, "policy-source", None)
        assert "leave source out" in caught.value.hint


FAILING = """
import sys
import dpsql
from dpsql.dialects import STANDARD, Dialect
from dpsql.engines import Column, Registered, RemoteEngine


class Failing(RemoteEngine):
    def fetch(self, statement):
        raise ValueError("the salary of Ada is 4711")

    def disconnect(self):
        pass


reads = Registered(("reads",), (Column("user_id", "BIGINT"), Column("article", "VARCHAR")))
engine = Failing(Dialect("Failing", "duckdb", STANDARD), {"reads": reads})
policy = dpsql.Policy(dpsql.Budget(10, "1e-6"), {"reads": dpsql.PrivateTable("user_id")})
with dpsql.connect(engine, policy=policy, ledger=":memory:") as session:
    try:
        session.sql("SELECT article FROM reads GROUP BY article TOP 2 PRIVATE")
    except dpsql.EngineError as error:
        print(error, error.__cause__, error.__context__)
"""


@pytest.mark.parametrize("shown", [False, True])
def test_an_adapters_errors_are_shown_to_its_author_alone(shown: bool, tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text(FAILING)
    env = {**os.environ, "PYTHONPATH": f"{ROOT}", "DPSQL_ADAPTER_DEBUG": "1" if shown else ""}
    done = subprocess.run(
        [sys.executable, "failing.py"], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    assert "[engine-failed]" in done.stdout
    assert done.stdout.endswith(" None None\n")
    assert "4711" not in done.stdout
    assert ("ValueError: the salary of Ada is 4711" in done.stderr) == shown


@pytest.mark.parametrize("words", [["serve", "--policy", "policy.toml"], ["mcp", "--policy", "policy.toml"]])
def test_no_server_starts_that_would_show_them(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(
        'ledger = "ledger.sqlite"\n[budget]\nepsilon = 10\ndelta = 1e-6\n[tables.reads]\nprivacy_unit = "user_id"\n'
        'source = "reads.parquet"\n[server]\nusers = "users.toml"\n'
    )
    add_user(tmp_path / "users.toml", User("ada"), password="correct horse battery")
    env = {**os.environ, "PYTHONPATH": f"{ROOT}", "DPSQL_ADAPTER_DEBUG": "1"}
    program = [sys.executable, "-c", "from dpsql.cli import main; main()", *words]
    done = subprocess.run(program, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode
    assert "[adapter-debug]" in done.stderr
    assert done.stdout == ""
