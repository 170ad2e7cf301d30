"""The table of what left, of docs/how-to/upgrading.md."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/how-to/upgrading.md"
_ROW = re.compile(
    r"^\| (?P<where>[^|`]+?)(?:, `\[server\]`)? \| `(?P<former>[^|]+)` \| (?P<instead>[^|]+) \|$", re.MULTILINE
)


def rows(where: str) -> list[tuple[str, str]]:
    """Return what left in one place, and the cell of what to write instead."""
    found = [match for match in _ROW.finditer(PAGE.read_text()) if match["where"] == where]
    return [(match["former"], match["instead"]) for match in found]


def pasted(cell: str) -> str:
    """Return the first text that a cell has for pasting."""
    return cell.split("`")[1]
