"""Shared parts of the generated pages: headings and tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def head(title: str, source: str) -> str:
    """Return the beginning of a generated page: its title, and where what it says is changed."""
    return f"# {title}\n\n<!-- Written by `python docs/generate` from {source}. -->\n"


def fill(name: str, written: str) -> str:
    """Return a page of docs/reference that people write, with the generated part between its marks replaced."""
    text = (ROOT / "docs/reference" / name).read_text(encoding="utf-8")
    start, found, rest = text.partition("<!-- Written by `python docs/generate`")
    mark, _, rest = rest.partition("-->\n")
    end = rest.index("<!-- End of what is written. -->")
    return f"{start}{found}{mark}-->\n\n{written}\n{rest[end:]}"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def code(names: Iterable[str]) -> str:
    """Return names as code, in their order."""
    return " ".join(f"`{name}`" for name in names)
