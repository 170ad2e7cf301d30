"""Golden files: pairs of an input and what a pass makes of it, after the manner of sqlglot.

A case is a block of lines between blank lines: `# words` (why it is here, optional), the input, which ends with `;`,
and the expected text, which ends with `;`. A line `# reference: SELECT ...` gives another reference than the input's
own text, and `# unit: x` the outermost name of the privacy unit. In `<pass>__refused.sql` the expected text is
`code line:column fragment`.

Run the tests with DPSQL_REGENERATE=1 in the environment to write what the passes make now, and read the difference.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

__all__ = ["Case", "check", "load"]

FIXTURES = Path(__file__).parents[1] / "unit" / "sql" / "fixtures"


@dataclass(frozen=True)
class Case:
    """One block of a golden file."""

    file: str
    number: int
    notes: tuple[str, ...]
    given: str
    expected: str

    def note(self, name: str, default: str) -> str:
        """Return what the line `# name: ...` says, or the default."""
        found = [note.removeprefix(f"# {name}:").strip() for note in self.notes if note.startswith(f"# {name}:")]
        return found[0] if found else default

    def __str__(self) -> str:
        return f"{self.file}-{self.number}"


def load(file: str) -> list[Case]:
    """Return the cases of a golden file."""
    blocks = [block.splitlines() for block in (FIXTURES / f"{file}.sql").read_text().split("\n\n")]
    cases = []
    for number, lines in enumerate(filter(None, blocks), start=1):
        notes = tuple(line for line in lines if line.startswith("# "))
        text = "\n".join(line for line in lines if not line.startswith("# "))
        given, _, expected = text.partition(";\n")
        cases.append(Case(file, number, notes, given.removesuffix(";"), expected.strip().removesuffix(";")))
    return cases


def check(case: Case, act: Callable[[str], str]) -> None:
    """Compare what `act` makes of the input with the expected text, or write it down when regenerating."""
    found = act(case.given)
    if os.environ.get("DPSQL_REGENERATE"):
        cases = [replace(each, expected=found) if each == case else each for each in load(case.file)]
        blocks = ["\n".join([*each.notes, each.given + ";", each.expected + ";"]) for each in cases]
        (FIXTURES / f"{case.file}.sql").write_text("\n\n".join(blocks) + "\n")
    else:
        todo = f"DPSQL_REGENERATE=1 writes tests/unit/sql/fixtures/{case.file}.sql; read the difference."
        assert found == case.expected, f"{todo}\n{found}"
