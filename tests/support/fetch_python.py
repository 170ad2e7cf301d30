"""Fetch the Python of Debian unstable with its libraries into a folder, and print the program that starts it there.

    python tests/support/fetch_python.py 3.14 [FOLDER]

The folder is `.python` of the repository, or another. Like `fetch_mysql.py`, it needs Linux on amd64, and installs
nothing. Environments of that Python, which `-m venv` makes, start it in the same way.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fetch_mysql import fetch

FOLDER = Path(__file__).parents[2] / ".python"
# Python finds its environment and its modules by the path that it was called with
START = """#!/bin/sh
exec '{loader}' --library-path '{libraries}' --argv0 "$0" '{binary}' "$@"
"""


def fetch_python(version: str, folder: Path) -> Path:
    """Return the program of a folder, with which it is filled if it has none."""
    program = folder / "usr" / "bin" / f"python{version}"
    binary = program.with_name(f"python{version}.binary")
    if not binary.exists():
        fetch(folder, f"python{version}-venv")
        (loader,) = {each.resolve() for each in folder.glob("usr/lib/*/ld-linux-*.so.*")}
        for settings in folder.glob("usr/lib/python3*/_sysconfigdata_*.py"):  # of which pip a new environment has
            wheels = "/usr/share/python-wheels/"
            settings.write_text(settings.read_text().replace(f"'{wheels}'", repr(f"{folder}{wheels}")))
        program.rename(binary)
        program.write_text(START.format(loader=loader, libraries=loader.parent, binary=binary))
        program.chmod(0o755)
    return program


if __name__ == "__main__":
    found = fetch_python(sys.argv[1], Path(sys.argv[2]).resolve() if sys.argv[2:] else FOLDER)
    sys.stdout.write(f"{found}\n")
