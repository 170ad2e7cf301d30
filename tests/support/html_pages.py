"""What our HTML may hold: parsed strictly, by an allow-list of elements and attributes."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

__all__ = ["cells", "page", "words"]

ALLOWED = {
    "div": {"class", "role", "aria-label"},
    "style": set(),
    "table": set(),
    "caption": set(),
    "thead": set(),
    "tbody": set(),
    "tr": set(),
    "th": {"scope", "class"},
    "td": {"class", "aria-hidden"},
    "p": {"class"},
    "strong": set(),
    "details": set(),
    "summary": set(),
    "bdi": set(),
    "pre": set(),
    "mark": set(),
    "svg": {"class", "viewBox", "preserveAspectRatio", "width", "height", "role", "aria-label", "aria-hidden"},
    "rect": {"x", "y", "width", "height", "fill", "fill-opacity"},
    "line": {"x1", "y1", "x2", "y2", "stroke", "vector-effect"},
}


def page(html: str) -> ET.Element:
    """Return the parsed page; refuse what is not well-formed, not allowed, reaches out, or styles what is not ours."""
    root = ET.fromstring(html)
    for each in root.iter():
        assert each.tag in ALLOWED, each.tag
        assert set(each.attrib) <= ALLOWED[each.tag], (each.tag, each.attrib)
    (style,) = root.iter("style")
    for rule in re.findall(r"([^{}]+)\{[^{}]*\}", style.text or ""):
        assert all(selector.strip().startswith(".dpsql-sheet") for selector in rule.split(",")), rule
    for reaching in ("url(", "@", "http", "expression", "position:", "<"):
        assert reaching not in (style.text or "")
    return root


def words(root: ET.Element) -> str:
    """Return what is read on the page."""
    return " ".join("".join(part.itertext()) for part in root.iter() if part.tag in {"caption", "p", "pre", "td", "th"})


def cells(root: ET.Element) -> list[list[str]]:
    """Return the text of the cells of the first table's body, without the row's number."""
    body = next(root.iter("tbody"))
    return [["".join(cell.itertext()) for cell in row.iter("td")] for row in body.iter("tr")]
