"""The same dialect under SQLAlchemy 1.4, which Superset still pins: the tests of one module, run in its own Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
VERSION = "1.4.54"


@pytest.fixture
def old(pytestconfig: pytest.Config) -> Path:
    """Return a folder with nothing but that SQLAlchemy, which is installed once and kept in pytest's cache."""
    kept: Path = pytestconfig.cache.mkdir(f"sqlalchemy-{VERSION}") / "site"  # type: ignore[union-attr]
    if kept.is_dir():
        return kept
    begun = kept.with_name(f"site-{os.getpid()}")
    # no constraint of this environment, whose SQLAlchemy is another, and none of its dependencies: 1.4 needs none here
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(begun)]
    environment = {**os.environ, "PIP_CONSTRAINT": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(
        [*command, f"sqlalchemy=={VERSION}"], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    begun.rename(kept)  # whole or not at all
    return kept


@pytest.mark.server  # a client in a Python of its own
def test_the_dialect_works_under_sqlalchemy_1_4(old: Path) -> None:
    # PYTHONPATH may already say where dpsql itself is
    paths = [str(old), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    checked = "import sqlalchemy as sa; assert sa.__version__ == '1.4.54', sa.__version__; import sys, pytest; "
    module = str(Path(__file__).with_name("test_sqlalchemy.py"))
    program = f"{checked} sys.exit(pytest.main(['-q', '-n0', '-p', 'no:cacheprovider', {module!r}]))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
