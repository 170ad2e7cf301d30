"""Pinned versions with digests, bounds of dependencies, the actions of CI, and the content of a build."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = {name: [Requirement(line) for line in lines] for name, lines in PROJECT["optional-dependencies"].items()}
# written in Python alone, and given bytes of clients, other servers or analysts
PARSERS = {"click", "h11", "jinja2", "mcp", "pyathena", "pymysql", "sqlglot", "starlette", "trino", "uvicorn"}


def needed(*, tests: bool) -> list[Requirement]:
    extras = [
        one for name, lines in EXTRAS.items() if tests or name not in {"docs", "test", "testing"} for one in lines
    ]
    return [one for one in [*map(Requirement, PROJECT["dependencies"]), *extras] if one.name != "dpsql"]


def pins() -> dict[str, Requirement]:
    lines = map(Requirement, (ROOT / "constraints.txt").read_text().splitlines())
    return {canonicalize_name(line.name): line for line in lines}


def test_the_lock_is_the_constraints_with_the_digests_of_files() -> None:
    entries = (ROOT / "requirements.lock").read_text().replace(" \\\n", "").splitlines()
    pinned = [re.sub(r"    --hash=sha256:[0-9a-f]{64}", "", entry) for entry in entries]
    assert pinned == (ROOT / "constraints.txt").read_text().splitlines(), "Run .ci/lock."
    assert all("--hash=" in entry for entry in entries)
    assert all(re.fullmatch(r"==[\w.]+", str(one.specifier)) for one in pins().values())


def test_every_dependency_is_pinned_within_its_bounds() -> None:
    pinned = pins()
    for one in needed(tests=True):
        (version,) = pinned[canonicalize_name(one.name)].specifier
        assert one.specifier.contains(version.version), f"{one}: run .ci/lock"


def is_compiled(name: str) -> bool:
    try:
        return any(file.suffix in {".so", ".pyd", ".dylib"} for file in files(name) or ())
    except PackageNotFoundError:  # not on this system
        return False


def test_a_dependency_that_is_compiled_or_parses_has_both_bounds() -> None:
    wanted = needed(tests=False)
    assert {one.name for one in wanted} >= PARSERS
    for one in wanted:
        operators = {each.operator for each in one.specifier}
        assert ">=" in operators, f"{one} has no lower bound, which .ci/versions installs"
        assert "<" in operators or not (one.name in PARSERS or is_compiled(one.name)), f"{one} has no upper bound"


def test_versions_runs_tests_that_exist() -> None:
    named = re.findall(r"tests/[\w/.]+", (ROOT / ".ci" / "versions").read_text())
    assert [path for path in named if not (ROOT / path).exists()] == []
    assert named


def test_actions_are_pinned_by_commit() -> None:
    uses = [line for path in (ROOT / ".github").rglob("*.yml") for line in re.findall(r"uses: *(.*)", path.read_text())]
    assert uses
    for one in uses:
        assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", one), one


def build(source: Path, target: Path) -> tuple[Path, Path]:
    environment = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(target)],
        cwd=source,
        env=environment,
        check=True,
        capture_output=True,
    )
    (wheel,), (archive,) = target.glob("*.whl"), target.glob("*.tar.gz")
    return wheel, archive


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build(ROOT, tmp_path_factory.mktemp("built"))


def test_a_build_of_the_source_distribution_has_the_same_bytes(built: tuple[Path, Path], tmp_path: Path) -> None:
    with tarfile.open(built[1]) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    for first, second in zip(built, build(source, tmp_path / "again"), strict=True):
        assert first.name == second.name
        assert first.read_bytes() == second.read_bytes(), first.name


def test_a_wheel_has_the_package_and_nothing_else(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[0]) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        entries = wheel.read(next(name for name in wheel.namelist() if name.endswith("/entry_points.txt"))).decode()
    there = (path for path in (ROOT / "dpsql").rglob("*") if path.is_file() and path.suffix != ".pyc")
    assert names == {path.relative_to(ROOT).as_posix() for path in there}
    kinds = {Path(name).suffix for name in names if not name.endswith("/py.typed")}
    assert kinds == {".css", ".html", ".js", ".md", ".parquet", ".py", ".sql", ".svg", ".txt"}
    assert "dpsql = dpsql.cli:main" in entries
