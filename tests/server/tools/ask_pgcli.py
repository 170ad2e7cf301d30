"""pgcli: what it reads to complete names, its commands, and statements as its prompt runs them."""

from __future__ import annotations

import subprocess
import sys
from threading import Event

import pgcli
from pgcli.completion_refresher import CompletionRefresher
from pgcli.pgexecute import PGExecute
from pgspecial.main import PGSpecial
from steps import after_a_moment, given, say, step

special = PGSpecial()


def connect() -> str:
    global execute  # noqa: PLW0603 - the steps share one connection
    execute = PGExecute(given["database"], given["user"], given["password"], given["host"], given["port"])
    return "connected"


def rows(statement: str) -> list[list[object]]:
    for _, found, _, _, _, is_success, _ in execute.run(statement, special, on_error_resume=False):
        assert is_success
        return [list(row) for row in found]
    return []


def introspect() -> dict[str, list[str]]:
    completer, is_done = [], Event()
    refresher = CompletionRefresher()
    refresher.refresh(execute, special, lambda found: (completer.append(found), is_done.set()))
    assert is_done.wait(30)
    found = completer[0].dbmetadata["tables"]
    tables = [table for schema in found.values() for table in schema]
    columns = next(schema["reads"] for schema in found.values() if "reads" in schema)
    return {"tables": tables, "columns": list(columns)}


def cancel() -> object:
    after_a_moment(execute.conn.cancel)
    return rows(given["slow"])


def by_program(*words: str) -> str:
    address = f"postgresql://{given['user']}@{given['host']}:{given['port']}/{given['database']}"
    command = [sys.executable, "-m", "pgcli.main", "--no-password", "--less-chatty", *words, address]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"PGPASSWORD": given["password"]})
    return done.stdout + done.stderr


say("version", {"value": pgcli.__version__})
step("connect", connect)
step("introspect", introspect)
step("ask", lambda: rows(given["question"]))
step("again", lambda: rows(given["question"]))
step("public", lambda: rows(given["public"]))
step("refused", lambda: rows(given["refused"]))
step("cancel", cancel)
step("after", lambda: rows(given["question"]))
for command in (r"\l", r"\dt", r"\dn", r"\d reads", r"\d+ countries", r"\du", r"\df", r"\dT", r"\di", r"\dv", r"\dx"):
    step(command, lambda command=command: len(rows(command)))
step("pgcli --command", lambda: by_program("--command", given["question"]))
step("pgcli --list", lambda: by_program("--list"))
