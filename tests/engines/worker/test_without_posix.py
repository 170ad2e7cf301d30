"""A system without what POSIX adds to Python, such as Windows: it answers, and refuses a worker and a server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import duckdb

# What is imported first is not dpsql's, and would look for Windows itself.
PROGRAM = """
import asyncio.unix_events, json, multiprocessing, os, sqlite3, ssl, subprocess, sys, tempfile
import click, duckdb, jinja2, pyarrow.compute, pyarrow.parquet, rich.table, sqlglot, starlette.testclient, uvicorn

for name in "O_CLOEXEC O_DIRECTORY O_NOFOLLOW chown fchmod fork geteuid getuid killpg register_at_fork uname".split():
    delattr(os, name)
sys.modules |= dict.fromkeys(["fcntl", "grp", "pwd", "resource", "termios"])
sys.platform = "win32"

import dpsql
from dpsql.server.serve import run

def serve():
    run(None, None, tell=print, log=None)

def refused(act):
    try:
        act()
    except dpsql.Error as error:
        return error.code

data = {"database": "data.duckdb", "policy": "policy.toml"}
with dpsql.connect(**data) as session:
    query = "SELECT item, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY item TOP 2 PRIVATE"
    answers = [session.sql(text).fetchall() for text in (query, f"SELECT count(*) FROM ({query}) t")]
refusals = [refused(lambda: dpsql.connect(**data, isolation="process")), refused(serve)]
print(json.dumps([*map(len, answers), *answers[1], refusals]))
"""
POLICY = '[budget]\nepsilon = 10\ndelta = 1e-6\n[tables.reads]\nprivacy_unit = "user_id"\n'


def test_without_posix_queries_are_answered_and_workers_and_servers_refused(tmp_path: Path) -> None:

    with duckdb.connect(tmp_path / "data.duckdb") as database:
        database.execute("CREATE TABLE reads AS SELECT i AS user_id, 'a' || i % 2 AS item FROM range(9000) t(i)")
    (tmp_path / "policy.toml").write_text(f'ledger = "ledger.sqlite"\n{POLICY}')
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [2, 1, [2], ["isolation-unavailable", "server-unavailable"]]
