"""Pages made from files at the root: the guarantee with its limits from README.md, the changes from CHANGELOG.md."""

from __future__ import annotations

import re

from pages import README, ROOT, head, relinked

_CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def _section(title: str) -> str:
    """Return a section of the README as the site reads Markdown: lists stand apart, what they hold by four spaces."""
    _, _, rest = README.partition(f"\n## {title}\n")
    text = rest.partition("\n## ")[0].strip()
    text = re.sub(r"^  (?=\S)", "    ", text, flags=re.MULTILINE)
    return relinked(re.sub(r"\n(?=\* )", "\n\n", text).replace("\n\n\n", "\n\n"), page="README.md")


def guarantee() -> str:
    """Return the guarantee with its limits, and the glossary."""
    parts = [head("The guarantee and its limits", "the README"), _section("The guarantee and its limits"), ""]
    return "\n".join([*parts, "## Glossary", "", _section("Glossary"), ""])


def changes() -> str:
    """Return the changelog, its version numbers without the brackets that mark them as links."""
    _, _, text = _CHANGELOG.partition("\n")
    text = re.sub(r"^## \[(.+)\]", r"## \1", text.strip(), flags=re.MULTILINE)
    return "\n".join([head("Changes", "CHANGELOG.md"), relinked(text, page="CHANGELOG.md"), ""])
