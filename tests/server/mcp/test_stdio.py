"""`dpsql mcp`: an assistant starts it, asks over standard streams, and shares the ledger with everything else."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from support.command_kit import CODE, dpsql_command
from support.mcp_kit import text_of
from support.server_kit import ACCOUNTS, POLICY, TOP
from support.surfaces_kit import make_data

WORDS = ["mcp", "events.duckdb", "--policy", "policy.toml", "--analyst", "ana"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = make_data(tmp_path_factory.mktemp("stdio"))
    (path / "policy.toml").write_text(POLICY + ACCOUNTS)
    return path


def open_stdio(folder: Path, *, mode: str = "auto") -> Client:
    environment = {"PYTHONPATH": str(Path(__file__).parents[3])}
    return Client(
        StdioServerParameters(command=sys.executable, args=["-c", CODE, *WORDS], cwd=folder, env=environment), mode=mode
    )


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_question_is_charged_once_with_the_command_line(folder: Path, mode: str) -> None:
    sql = f"{TOP} WITH (epsilon = 0.0{5 if mode == 'auto' else 6})"
    command = ["query", sql, "--policy", "policy.toml", "--db", "events.duckdb", "--analyst", "ana", "--format", "json"]
    code, printed, told = dpsql_command(*command, cwd=folder)
    assert code == 0, told

    async def run() -> None:
        async with open_stdio(folder, mode=mode) as client:
            stored = await client.call_tool("query", {"sql": sql})
            assert stored.structured_content["rows"] == json.loads(printed)["rows"]
            assert stored.structured_content["receipt"]["replayed"] is True
            history = await client.call_tool("history", {})
            assert [each["query"] for each in history.structured_content["queries"]].count(sql) == 1
            assert "account ana" in text_of(await client.call_tool("budget", {}))
            refused = await client.call_tool("query", {"sql": "SELECT user_id FROM reads"})
            assert refused.is_error
            assert text_of(refused).startswith("[not-private]")

    asyncio.run(asyncio.wait_for(run(), 60))


def test_it_survives_what_is_no_message_and_ends_with_its_input(folder: Path) -> None:
    ask = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "tables", "arguments": {}}}
    start = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    lines = [
        b"",
        b"{",
        b"\xff\xfe",
        b"[" * 100_000,
        b"null",
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": start}).encode(),
        json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}).encode(),
        json.dumps({**ask, "id": 2, "params": {"name": "query", "arguments": {"sql": "x" * 1_000_000}}}).encode(),
        json.dumps({**ask, "id": 3, "method": "no/such"}).encode(),
        json.dumps(ask).encode(),
    ]
    environment = {"PYTHONPATH": str(Path(__file__).parents[3])}
    program = f"import sys; sys.modules['jinja2'] = None; {CODE}"  # which only the page needs
    command, pipe = [sys.executable, "-c", program, *WORDS], subprocess.PIPE
    answers: dict[object, dict[str, Any]] = {}
    with subprocess.Popen(command, cwd=folder, env=environment, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        guard = threading.Timer(60, process.kill)
        guard.start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"\n".join(lines) + b"\n")
        process.stdin.flush()
        while not {2, 3, 7} <= answers.keys() and (line := process.stdout.readline()):
            answer = json.loads(line)
            answers[answer.get("id")] = answer
        rest, told = process.communicate()
        guard.cancel()
    assert answers[2]["result"]["structuredContent"]["error"]["code"] == "request-malformed"
    assert answers[3]["error"]["code"] == -32601
    assert answers[7]["result"]["isError"] is False
    assert (process.returncode, rest, told) == (0, b"", b"")


def test_what_it_needs_is_said_before_it_begins(folder: Path) -> None:
    code, printed, told = dpsql_command("mcp", "nowhere.duckdb", "--policy", "policy.toml", cwd=folder)
    assert (code, printed) == (6, b"")
    assert "[database-missing]" in told


def test_without_its_extra_it_says_what_to_install(folder: Path) -> None:
    program = f"import sys; sys.modules['mcp'] = None; {CODE}"
    done = subprocess.run(
        [sys.executable, "-c", program, *WORDS],
        check=False,
        capture_output=True,
        cwd=folder,
        env={"PYTHONPATH": str(Path(__file__).parents[3])},
        input=b"",
        timeout=60,
    )
    assert done.returncode == 2
    assert "pip install 'dpsql[mcp]'" in done.stderr.decode()
