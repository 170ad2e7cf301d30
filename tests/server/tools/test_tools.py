"""Tools that people use do with this server what they do with PostgreSQL, and their queries are charged once.

What was found is in outcomes.json, from which docs/reference/postgres-clients.md is made. A session must find the same
again; DPSQL_REGENERATE=1 writes what it finds.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.foreign_clients import Steps
from support.server_kit import PASSWORD, Served, serving
from support.surfaces_kit import POLICY
from support.tool_sessions import CELLS, COLUMNS, QUESTION, SLOW, TOOLS, Tool, statements

from dpsql.ledger import Request, SQLiteLedger
from dpsql.server.users import User
from dpsql.server.wire import Conversation
from dpsql.server.wire.codec import WireError

pytestmark = pytest.mark.tools
OUTCOMES = Path(__file__).parent / "outcomes.json"
SLOWLY = 1.5  # seconds: sessions cancel long before
NOT_THERE = ""  # the tool has no such thing, or its session does not try it
TABLES = {"reads", "countries"}
COUNTRIES = [["DE", "Europe"], ["FR", "Europe"], ["TV", "Oceania"]]
ACCOUNTS = "\n[server]\nusers = 'users.toml'\nstatements_per_minute = 100000\n" + "".join(
    f"\n[analysts.{tool.name}]\nepsilon = 1.0\nitems = 100\n" for tool in TOOLS
)


@pytest.fixture(scope="module")
def sent(module_patch: pytest.MonkeyPatch) -> dict[str, list[WireError]]:
    """Return the errors that the server sends, by user."""
    found: dict[str, list[WireError]] = defaultdict(list)
    send = Conversation._send_failure

    async def record(self: Conversation, failure: WireError, **options: bool) -> None:
        found[self._execution._router.user.name].append(failure)
        await send(self, failure, **options)

    module_patch.setattr(Conversation, "_send_failure", record)
    return found


@pytest.fixture(scope="module")
def module_patch() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, module_patch: pytest.MonkeyPatch) -> Iterator[Served]:
    """Serve with the catalog that tools see, and a user for each tool; what is slow takes seconds."""
    reserve = SQLiteLedger.reserve

    def reserve_slowly(self: SQLiteLedger, request: Request) -> object:
        reserved = reserve(self, request)
        if "slow" in request.query:
            time.sleep(SLOWLY)
        return reserved

    budget = "epsilon = 4.0\ndelta = 1e-6\nitems = 100\nqueries = 20"
    assert budget in POLICY
    policy = POLICY.replace(budget, "epsilon = 100.0\ndelta = 1e-4\nitems = 10000\nqueries = 2000") + ACCOUNTS
    users = [User(tool.name) for tool in TOOLS]
    module_patch.setattr(SQLiteLedger, "reserve", reserve_slowly)
    with serving(tmp_path_factory.mktemp("served"), catalog="auto", policy=policy, users=users) as running:
        yield running


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_a_tool_finds_what_is_written_down(tool: Tool, served: Served, sent: dict[str, list[WireError]]) -> None:
    given = {
        "host": "127.0.0.1",
        "port": str(served.port),
        "user": tool.name,
        "password": PASSWORD,
        "database": "dpsql",
        **statements(),
    }
    steps = tool.session(given)
    cancelled = sum(error.sqlstate == "57014" for error in sent[tool.name])
    for name in [name for name in steps if name.endswith("cancel")][:cancelled]:
        steps[name]["cancelled"] = True  # whatever the tool says of it
    if trace := os.environ.get("DPSQL_TOOLS_TRACE"):
        Path(trace).write_text(json.dumps([steps, [str(error) for error in sent[tool.name]]], indent=1, default=str))
    found = judge(steps, served, tool.name)
    outcomes = json.loads(OUTCOMES.read_text())
    if os.environ.get("DPSQL_REGENERATE"):
        version = str(steps["version"]["value"]) if "version" in steps else ""
        outcomes[tool.name] = {
            "title": tool.title,
            "version": version,
            "date": datetime.now(UTC).date().isoformat(),
            "notes": dict(tool.notes),
            **found,
        }
        OUTCOMES.write_text(json.dumps(dict(sorted(outcomes.items())), indent=1, ensure_ascii=False) + "\n")
    assert found["faults"].keys() == tool.notes.keys(), found["faults"]
    written = outcomes[tool.name]
    assert {name: written[name] for name in found} == found


def judge(steps: Steps, served: Served, user: str) -> dict[str, Any]:
    """Return what each column of the table says of a session, the further steps, and how many queries were charged."""
    session = served.front.service.session(user)
    if "cancel" in steps:  # it runs on when it was cancelled, and its answer is stored
        assert session.sql(SLOW).receipt.replayed
    answer = list[list[str]]()
    if any(QUESTION in text for text in session.history.column("query").to_pylist()):
        replayed = session.sql(QUESTION)
        assert replayed.receipt.replayed
        answer = [list(map(str, row.values())) for row in replayed.arrow().to_pylist()]
    faults = {name: fault for name, step in steps.items() if (fault := find_fault(name, step, answer))}
    own = {name for names in CELLS.values() for name in names} | {"version"}
    cells = {
        cell: "no" if faults.keys() & set(names) else "yes" if steps.keys() & set(names) else NOT_THERE
        for cell, names in CELLS.items()
    }
    return {
        "cells": cells,
        "further": sorted(steps.keys() - own - faults.keys()),
        "faults": faults,
        "charges": served.charges(user),
    }


def find_fault(name: str, step: dict[str, object], answer: list[list[str]]) -> str:
    """Return what is wrong with a step; empty if all is right."""
    value, message = step.get("value"), str(step.get("message", ""))
    said = f"{step.get('state') or 'no SQLSTATE'}: {' '.join(message.split())}" if "message" in step else f"{value}"
    match name.rpartition(": ")[2]:
        case "refused":
            is_right = step.get("state") == "42501" or (not step.get("state") and "PRIVATE" in message)
        case "cancel":
            is_right = "cancelled" in step and "failed" not in message
        case _ if "message" in step:
            is_right = False
        case "ask" | "again" | "after" | "transaction":
            is_right = rows(value) == answer
        case "public":
            is_right = rows(value) == COUNTRIES
        case "prepared":
            is_right = isinstance(value, list) and [sorted(rows(one)) for one in value] == [[["a0"], ["a1"]]] * 3
        case "introspect":
            assert isinstance(value, dict)
            tables = {str(table).rpartition(".")[2].strip('"') for table in value["tables"]}
            is_right = tables >= TABLES and sorted(value["columns"]) == sorted(COLUMNS)
        case _:
            is_right = True
    return "" if is_right else said


def rows(value: object) -> list[list[str]]:
    return [[str(cell) for cell in row] for row in value] if isinstance(value, list) else []


def test_every_tool_connects_and_is_told_of_its_notes() -> None:
    outcomes = json.loads(OUTCOMES.read_text())
    assert outcomes.keys() == {tool.name for tool in TOOLS}
    for tool in TOOLS:
        written = outcomes[tool.name]
        assert (written["title"], written["notes"]) == (tool.title, dict(tool.notes)), tool.name
        assert list(written["cells"]) == list(CELLS), tool.name
        assert "no" not in {written["cells"][name] for name in ("connect", "ask", "replay", "public", "prepared")}
