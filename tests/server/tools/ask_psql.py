"""psql: its commands that describe, statements, PREPARE, and an interrupt."""

from __future__ import annotations

import csv
import os
import re
import signal
import subprocess
import threading
from io import StringIO

from steps import CANCEL_AFTER, given, say, step

ENVIRONMENT = {
    **os.environ,
    "PGHOST": given["host"],
    "PGPORT": given["port"],
    "PGUSER": given["user"],
    "PGPASSWORD": given["password"],
    "PGDATABASE": given["database"],
}


def psql(*commands: str, interrupt: bool = False) -> list[list[str]]:
    """Run commands and return the rows that psql prints; raise what it says on failure."""
    words = [word for command in commands for word in ("--command", command)]
    options = ["--no-psqlrc", "--csv", "--tuples-only", "--quiet", "--set=ON_ERROR_STOP=1", "--set=VERBOSITY=verbose"]
    pipe = subprocess.PIPE
    with subprocess.Popen(["psql", *options, *words], env=ENVIRONMENT, stdout=pipe, stderr=pipe, text=True) as process:
        if interrupt:
            threading.Timer(CANCEL_AFTER, process.send_signal, [signal.SIGINT]).start()
        printed, said = process.communicate()
    if process.returncode:
        raise RuntimeError(said)
    return list(csv.reader(StringIO(printed)))


say("version", {"value": re.search(r"[\d.]+", subprocess.check_output(["psql", "--version"], text=True))[0]})
step("connect", lambda: psql("SELECT 1"))
step(
    "introspect",
    lambda: {"tables": [row[1] for row in psql(r"\dt")], "columns": [row[0] for row in psql(r"\d reads")]},
)
step("ask", lambda: psql(given["question"]))
step("again", lambda: psql(given["question"]))
step("public", lambda: psql(given["public"]))
step(
    "prepared",
    lambda: [psql(f"PREPARE places(text) AS {given['numbered']}", "EXECUTE places('DE')") for _ in range(3)],
)
step("refused", lambda: psql(given["refused"]))
step("cancel", lambda: psql(given["slow"], interrupt=True))
step("after", lambda: psql(given["question"]))
for command in (r"\l", r"\dn", r"\d+ countries", r"\du", r"\df", r"\dT", r"\di", r"\dv", r"\dx", r"\dp", r"\ddp"):
    step(command, lambda command=command: len(psql(command)))
step(r"\copy", lambda: psql(rf"\copy ({given['public']}) TO STDOUT"))
