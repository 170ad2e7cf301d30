"""What tools send to learn of tables.

The file has one statement a line: the tool; whether it was captured from the tool, running against a PostgreSQL with
these two tables, or written after what the tool publishes; how many columns it had there; and which of our names it
showed. {reads} and {countries} stand for the OIDs of the tables.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from dpsql.server.catalog.system_catalog import Parameter


@dataclass(frozen=True)
class Asked:
    tool: str
    got: str
    shows: list[str]
    columns: int
    sql: str
    parameters: list[str | None]

    def filled(self, oids: dict[str, str]) -> tuple[str, list[Parameter]]:
        """Return the statement and its parameters with the OIDs that the tables have."""

        def known(text: str) -> str:
            return text.replace("{reads}", oids["reads"]).replace("{countries}", oids["countries"])

        given = [Parameter(None if value is None else known(value).encode()) for value in self.parameters]
        return known(self.sql), given


LINES = (Path(__file__).parent / "introspection.jsonl").read_text().splitlines()
CORPUS = [Asked(**json.loads(line)) for line in LINES]
