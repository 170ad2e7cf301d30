"""The shell command in a process of its own, as a user would run it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def dpsql_command(
    *arguments: str, cwd: Path | None = None, stdin: bytes = b"", **environment: str
) -> tuple[int, bytes, str]:
    """Run the command as a shell would; return exit code, stdout and stderr."""
    code = "import sys; sys.argv[0] = 'dpsql'; from dpsql.cli import main; main()"
    command = [sys.executable, "-c", code, *arguments]
    plain = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "FORCE_COLOR"}}
    done = subprocess.run(
        command, check=False, capture_output=True, cwd=cwd, input=stdin, env={**plain, **environment}, timeout=120
    )
    return done.returncode, done.stdout, done.stderr.decode()
