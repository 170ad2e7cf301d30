"""Table of the tools whose sessions the tests run, from what they found."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pages import ROOT, head, table

_OUTCOMES = ROOT / "tests" / "server" / "tools" / "outcomes.json"


def page() -> str:
    """Return the page."""
    tools: dict[str, dict[str, Any]] = json.loads(_OUTCOMES.read_text(encoding="utf-8"))
    found = sorted(tools.values(), key=lambda tool: str(tool["title"]).lower())
    return "\n".join(
        [
            head("PostgreSQL clients that were tried", "tests/server/tools/outcomes.json, which the tests write"),
            "Each of these tools runs a session against a server, and the tests compare what it finds with this page. A",
            "session does all of this, but for what the tool does not have or its session does not try:\n",
            "* **connect**: it logs in;",
            "* **introspect**: it lists the tables, and the columns of a private table;",
            "* **ask**: it shows the answer to a `TOP 3 PRIVATE` query;",
            "* **replay**: it gets the same answer again, also after errors and a cancelled statement, at no charge;",
            "* **public**: it shows the rows of a public table;",
            "* **prepared**: it binds a value to a private query, three times, for one charge;",
            "* **error**: it shows that a query was refused, with the SQLSTATE or the sentence;",
            "* **cancel**: it cancels a statement that runs.\n",
            "A tool that writes statements by itself, such as an ORM, also sends some of those.\n",
            table(["tool", "version", "date", "not tried, or fails"], map(_row, found)),
            "## What fails\n",
            *_failures(found),
            "",
        ]
    )


def _row(tool: Mapping[str, Any]) -> list[str]:
    untried = ", ".join(
        f"{name} fails" if outcome else name for name, outcome in tool["cells"].items() if outcome != "yes"
    )
    return [str(tool["title"]), str(tool["version"]), str(tool["date"]), untried]


def _failures(tools: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    for tool in tools:
        for step, note in tool["notes"].items():
            yield f"* **{tool['title']}**, {step}: {note}"
