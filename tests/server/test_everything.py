"""`dpsql serve` with every surface: one analyst asks through all of them and pays once, and then it stops."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import psycopg
import pytest

from dpsql.curator import read_spending, verify_ledger
from dpsql.server.users import StoredToken, User, add_token, add_user

WORDS = "correct horse battery"
QUESTION = "SELECT article FROM reads GROUP BY article TOP 3 PRIVATE WITH (epsilon = 0.1)"
POLICY = """\
ledger = "ledger.sqlite"
[budget]
epsilon = 10
delta = 1e-6
[tables.reads]
privacy_unit = "user_id"
[engine]
isolation = "process"
[server]
users = "users.toml"
catalog = "none"
postgres = "127.0.0.1:0"
web = "127.0.0.1:0"
mcp = "127.0.0.1:0"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with duckdb.connect(str(tmp_path / "events.duckdb")) as database:
        database.execute("CREATE TABLE reads AS SELECT i AS user_id, 'a' || i % 3 AS article FROM range(9000) t(i)")
    (tmp_path / "policy.toml").write_text(POLICY)
    add_user(tmp_path / "users.toml", User("alice"), password=WORDS)
    add_user(tmp_path / "users.toml", User("root", is_curator=True), password=WORDS)
    return tmp_path


@contextmanager
def served(folder: Path) -> Iterator[tuple[subprocess.Popen[str], dict[str, int]]]:
    """Yield the server, once it is ready, and the port of each surface."""
    code = "import sys; sys.argv[0] = 'dpsql'; from dpsql.cli import main; main()"
    command = [sys.executable, "-c", code, "serve", "--policy", "policy.toml", "--db", "events.duckdb"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    guard = threading.Timer(60, process.kill)
    guard.start()
    try:
        words: list[str] = []
        while not words or words[-1] not in {"ready\n", ""}:  # which is what a process that has ended says
            words.append(process.stdout.readline())
        assert words[-1], (folder / "log").read_text()
        none = (
            'the catalog of postgres is none, so tools that list tables get an error. The policy says catalog = "none".'
        )
        assert f"{none}\n" in words
        found = [re.match(r"(\w+) listens on .*:(\d+)(?:/mcp)?$", line) for line in words]
        yield process, {one[1]: int(one[2]) for one in found if one}
    finally:
        guard.cancel()
        process.kill()
        process.wait()
        process.stdout.close()


def by_http(port: int, path: str, *, user: str = "", body: object = None) -> tuple[int, str]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=data)
    if user:
        request.add_header("Authorization", f"Basic {b64encode(f'{user}:{WORDS}'.encode()).decode()}")
    request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def by_wire(port: int) -> list[tuple[object, ...]]:
    place = f"host=127.0.0.1 port={port} user=alice dbname=any"
    with psycopg.connect(place, password=WORDS, autocommit=True) as connection:
        return connection.execute(QUESTION).fetchall()


def by_mcp(port: int, token: str) -> list[tuple[object, ...]]:
    from support.mcp_kit import open_client

    async def run() -> list[tuple[object, ...]]:
        async with open_client(f"http://127.0.0.1:{port}/mcp", token) as client:
            answer = await client.call_tool("query", {"sql": QUESTION})
            return [tuple(row) for row in answer.structured_content["rows"]]

    return asyncio.run(run())


def test_one_analyst_pays_once_whatever_they_ask_with(folder: Path) -> None:
    token = add_token(folder / "users.toml", StoredToken("alice", "assistant", frozenset({"query"})))
    with served(folder) as (process, ports):
        assert ports.keys() == {"postgres", "web", "mcp"}
        rows = by_wire(ports["postgres"])
        assert by_mcp(ports["mcp"], token) == rows
        status, answer = by_http(ports["web"], "/api/v1/query", user="alice", body={"sql": QUESTION})
        assert status == 200
        assert json.loads(answer)
        assert by_http(ports["web"], "/healthz") == (200, "ok")
        status, metrics = by_http(ports["web"], "/metrics")
        assert (status, '{kind="private",surface="postgres"} 1.0' in metrics) == (200, True)
        replays = re.findall(r'^dpsql_statements_total\{kind="replay",surface="(\w+)"} 1\.0$', metrics, re.MULTILINE)
        assert sorted(replays) == ["mcp", "web"]
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert time.monotonic() - began < 20
    (entry,) = read_spending(folder / "policy.toml").entries
    assert (entry.account, entry.settlement is not None) == ("alice", True)
    assert verify_ledger(folder / "ledger.sqlite").events > 0
    told = (folder / "log").read_text()
    events = [json.loads(line)["event"] for line in told.splitlines()]
    assert (events.count("catalog"), events[-1]) == (1, "stopped")
    assert WORDS not in told
    assert token not in told
    assert "article" not in told
