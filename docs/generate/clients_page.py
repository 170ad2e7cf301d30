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
    groups: dict[str, list[str]] = {}
    for tool in found:
        groups.setdefault(_missing(tool["cells"]), []).append(f"{tool['title']} {tool['version']}")
    dates = sorted(str(tool["date"]) for tool in found)
    rows = ((missing, ", ".join(names)) for missing, names in sorted(groups.items()))
    return "\n".join(
        [
            head("PostgreSQL clients that were tried", "tests/server/tools/outcomes.json, which the tests write"),
            "Each of these tools runs a session against a server, and the tests compare what it finds with this page.",
            f"They were last tried from {dates[0]} to {dates[-1]}.\n",
            "* **connect**: it logs in;",
            "* **introspect**: it lists the tables, and the columns of a private table;",
            "* **ask**: it shows the answer to a `TOP 3 PRIVATE` query;",
            "* **replay**: it gets the same answer again, also after errors and a cancelled statement, at no charge;",
            "* **public**: it shows the rows of a public table;",
            "* **prepared**: it binds a value to a private query, three times, for one charge;",
            "* **error**: it shows that a query was refused, with the SQLSTATE or the sentence;",
            "* **cancel**: it cancels a statement that runs.\n",
            table(["missing", "tools"], rows),
            "What is missing the tool does not have, or its session does not try.\n",
            "## What fails\n",
            *_failures(found),
            "",
        ]
    )


def _missing(cells: Mapping[str, str]) -> str:
    names = (f"**{name} fails**" if outcome else name for name, outcome in cells.items() if outcome != "yes")
    return ", ".join(names) or "nothing"


def _failures(tools: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    for tool in tools:
        for step, note in tool["notes"].items():
            yield f"* **{tool['title']}**, {step}: {note}"
