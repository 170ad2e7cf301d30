"""Builder of safe markup: text becomes `Html` by escaping, and elements contain only `Html`.

The markup is well-formed XML too, so that a test can parse it strictly.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from typing import NewType

__all__ = ["Html", "element", "plain", "replace_controls", "replace_unprintable", "text"]

Html = NewType("Html", str)
_MAX_TEXT = 200  # characters of a cell; the answer holds the whole text
_EMPTY = frozenset(["line", "rect"])
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_CONTROLS = re.compile(  # C0 and C1 but tab and line feed, and Unicode's separators and controls of direction
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)


def replace_controls(text: str) -> str:
    """Replace control characters of `text` but tab and line feed, and all that change the direction of writing.

    For text of several lines and for data: letters, joiners and spaces of all scripts stay as they are.
    """
    return _CONTROLS.sub(_REPLACEMENT, text)


def replace_unprintable(text: str) -> str:
    """Replace every character of `text` that does not print, so that no terminal or page obeys it.

    These are control characters, characters that change the direction of writing, and characters without width.
    """
    return "".join(char if char.isprintable() else _REPLACEMENT for char in text)


def text(value: str, longest: int = _MAX_TEXT) -> Html:
    """Escape text of one line; make it printable, and cut it at `longest` characters."""
    shown = value if len(value) <= longest else f"{value[: longest - 1]}\N{HORIZONTAL ELLIPSIS}"
    return Html(escape(replace_unprintable(shown), quote=True))


def plain(value: str) -> Html:
    """Escape text of dpsql or of the analyst, such as a statement, without a cut and with its line breaks."""
    return Html("\n".join(escape(replace_unprintable(line.expandtabs(4)), quote=True) for line in value.split("\n")))


def element(name: str, attributes: Mapping[str, str], *content: Html) -> Html:
    """Return an element; the values of its attributes are escaped."""
    written = "".join(f' {key}="{escape(replace_unprintable(value), quote=True)}"' for key, value in attributes.items())
    if name in _EMPTY:
        return Html(f"<{name}{written} />")
    return Html(f"<{name}{written}>{''.join(content)}</{name}>")
