"""Pages that show sections of the README, which stay there: its promise, its limits with their date, its changes."""

from __future__ import annotations

import re

from pages import README, head, relinked


def _section(title: str) -> str:
    """Return a section of the README as the site reads Markdown: lists stand apart, what they hold by four spaces."""
    _, _, rest = README.partition(f"\n## {title}\n")
    text = rest.partition("\n## ")[0].partition("\nLicence: ")[0].strip()
    text = re.sub(r"^  (?=\S)", "    ", text, flags=re.MULTILINE)
    return relinked(re.sub(r"\n(?=\* )", "\n\n", text).replace("\n\n\n", "\n\n"), page="README.md")


def guarantee() -> str:
    """Return the guarantee with its limits, and the glossary."""
    parts = [head("The guarantee and its limits", "the README"), _section("The guarantee and its limits"), ""]
    return "\n".join([*parts, "## Glossary", "", _section("Glossary"), ""])


def changes() -> str:
    """Return what changed, by version."""
    return "\n".join([head("Changes", "the README"), _section("Changes"), ""])
