"""pgbench: a script of one private and one public statement, in each of its three ways to send them."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path

from steps import given, say, step

ENVIRONMENT = {
    **os.environ,
    "PGHOST": given["host"],
    "PGPORT": given["port"],
    "PGUSER": given["user"],
    "PGPASSWORD": given["password"],
    "PGDATABASE": given["database"],
}


def run(script: str, *words: str) -> str:
    """Return what pgbench prints of ten runs by each of two clients; raise what it says on failure."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "script.sql"
        file.write_text(script)
        command = ["pgbench", "--no-vacuum", "--client", "2", "--transactions", "10", "--file", file, *words]
        done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    if done.returncode or "number of failed transactions: 0" not in done.stdout:
        raise RuntimeError(done.stderr)
    return done.stdout


def all_ran(script: str, *words: str) -> bool:
    return "actually processed: 20/20" in run(script, *words)


say("version", {"value": re.search(r"[\d.]+", subprocess.check_output(["pgbench", "--version"], text=True))[0]})
both = f"{given['question']};\n{given['public']};\n"
bound = rf"\set place random(1, 1){chr(10)}SELECT country FROM countries WHERE length(country) >= :place;{chr(10)}"
step("connect", lambda: all_ran("SELECT 1;\n"))
step("scripts", lambda: [all_ran(both, "--protocol", way) for way in ("simple", "extended", "prepared")])
step("variables", lambda: [all_ran(bound, "--protocol", way) for way in ("simple", "extended", "prepared")])
step("in a transaction", lambda: all_ran(f"BEGIN;\n{both}END;\n"))
step("in a pipeline", lambda: all_ran(rf"\startpipeline{chr(10)}{both}\endpipeline{chr(10)}", "--protocol", "extended"))
step("refused", lambda: run(f"{given['refused']};\n"))
