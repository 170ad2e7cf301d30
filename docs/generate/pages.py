"""What the generated pages share: the texts they are made from, their links, and tables in Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SQL = (ROOT / "docs" / "sql.md").read_text(encoding="utf-8")
_LINK = re.compile(r"\]\((?!https?:)([^)#]*)(#[^)]*)?\)")


def relinked(text: str, *, page: str) -> str:
    """Return text of `page`, the README or one of docs, with its links as they are from docs/reference."""

    def link(found: re.Match[str]) -> str:
        target = (found[1] or page).removeprefix("docs/")
        return f"](../{target}{found[2] or ''})"

    return _LINK.sub(link, text)


def head(title: str, source: str) -> str:
    """Return the beginning of a generated page: its title, and where what it says is changed."""
    return f"# {title}\n\n<!-- Written by `python docs/generate` from {source}. -->\n"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def code(names: Iterable[str]) -> str:
    """Return names as code, in their order."""
    return " ".join(f"`{name}`" for name in names)


def tables_of_sql() -> list[dict[str, list[str]]]:
    """Return the tables of docs/sql.md whose first column are names: the cells of each row by the name."""
    found: list[dict[str, list[str]]] = []
    for block in re.findall(r"(?:^\|.*\n)+", SQL, re.MULTILINE):
        rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in block.splitlines()[2:]]
        found.append({row[0].strip("`"): [relinked(cell, page="sql.md") for cell in row[1:]] for row in rows})
    return found


def described(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the table of docs/sql.md whose rows are exactly these names; refuse to write a page without one."""
    wanted = set(names)
    for rows in tables_of_sql():
        if rows.keys() == wanted:
            return rows
    raise SystemExit(f"No table of docs/sql.md describes exactly {', '.join(sorted(wanted))}.")
