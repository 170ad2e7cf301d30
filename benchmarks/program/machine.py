"""What the figures were taken on."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import dpsql

__all__ = ["described", "line"]

_PACKAGES = ("duckdb", "sqlglot", "pyarrow", "numpy")


def described() -> dict[str, object]:
    """Return processor, cores, memory, load, and the versions of what is measured."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory, 1),
        "load": load(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        **{name: _version(name) for name in _PACKAGES},
        "dpsql": _version("dpsql"),
        "commit": _commit(),
    }


def load() -> float:
    """Return how many processes wanted a processor in the last minute."""
    return round(os.getloadavg()[0], 2)


def line(machine: dict[str, object]) -> str:
    """Return a description as a line."""
    return (
        f"{machine['cores']} x {machine['processor']}, {machine['memory_gib']} GiB, load {machine['load']}, "
        f"{machine['system']}; Python {machine['python']}, "
        + ", ".join(f"{name} {machine[name]}" for name in _PACKAGES)
        + f"; dpsql {machine['dpsql']} at {machine['commit']}"
    )


def _processor() -> str:
    told = Path("/proc/cpuinfo")
    lines = told.read_text().splitlines() if told.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def _commit() -> str:
    """Return the commit of the dpsql that is imported, with a mark if the files differ from it."""
    command = ["git", "-C", str(Path(dpsql.__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - no input of anybody's
    except (OSError, subprocess.CalledProcessError):
        return "no commit"
    return done.stdout.strip()
