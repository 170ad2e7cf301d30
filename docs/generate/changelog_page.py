"""Page of changes, made from CHANGELOG.md."""

from __future__ import annotations

import re

from pages import ROOT, head, relinked

_CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def page() -> str:
    """Return the changelog, its version numbers without the brackets that mark them as links."""
    _, _, text = _CHANGELOG.partition("\n")
    text = re.sub(r"^## \[(.+)\]", r"## \1", text.strip(), flags=re.MULTILINE)
    return "\n".join([head("Changes", "CHANGELOG.md"), relinked(text, page="CHANGELOG.md"), ""])
