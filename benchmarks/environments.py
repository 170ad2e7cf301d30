"""Environments for other systems, each with what its own list of requirements pins. Not run itself.

None is made unless a folder for them is named: FOLDER/NAME/bin/python is used where it is there, and made where not.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["NotInstalledError", "python_of"]

FOLDER = Path(__file__).parent / "beside"


class NotInstalledError(Exception):
    """There is no environment, and here is why."""


def python_of(name: str, environments: Path | None) -> Path:
    """Return the Python in which a system is installed, after installing it if need be.

    Raises `NotInstalledError` with what the installer said.
    """
    if environments is None:
        raise NotInstalledError("not installed: --environments FOLDER says where environments are, or are to be made")
    python = (environments / name / "bin" / "python").absolute()  # not resolved: the link is what makes it another
    if not python.exists():
        _make(name, python)
    return python


def _make(name: str, python: Path) -> None:
    place = python.parents[1]
    try:
        _ran(sys.executable, "-m", "venv", place)
        _ran(python, "-m", "pip", "install", "--quiet", "--requirement", FOLDER / f"{name}.txt")
    except NotInstalledError:
        shutil.rmtree(place, ignore_errors=True)  # half of an environment would be taken for one the next time
        raise


def _ran(*words: object) -> None:
    command = [*map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own words
    if done.returncode:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        first = next((line for line in lines if line.startswith("ERROR")), *lines[:1])
        raise NotInstalledError(f"not installed: {first}")
