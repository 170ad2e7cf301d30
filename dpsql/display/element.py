"""Markup that cannot be broken out of: text becomes `Html` by being escaped, and elements are made of `Html` alone.

What is made here is well-formed XML too, so that a test can parse it strictly.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import NewType

__all__ = ["Html", "element", "plain", "printable", "text"]

Html = NewType("Html", str)
_LONGEST = 200  # characters of a cell; all of it is in the answer
_EMPTY = frozenset(["line", "rect"])


def printable(text: str) -> str:
    """Return `text` without what a terminal or a page would obey: every character that does not print is replaced.

    These are control characters, those that turn the direction of writing, and those without width.
    """
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def text(value: str, longest: int = _LONGEST) -> Html:
    """Return text of one line as markup: printable, at most `longest` characters, and escaped."""
    shown = value if len(value) <= longest else f"{value[: longest - 1]}\N{HORIZONTAL ELLIPSIS}"
    return Html(escape(printable(shown), quote=True))


def plain(value: str) -> Html:
    """Return text of our own or of the analyst, such as a statement, as markup: whole, its line breaks kept."""
    return Html("\n".join(escape(printable(line.expandtabs(4)), quote=True) for line in value.split("\n")))


def element(name: str, attributes: Mapping[str, str], *content: Html) -> Html:
    """Return an element; the values of its attributes are escaped."""
    given = "".join(f' {key}="{escape(printable(value), quote=True)}"' for key, value in attributes.items())
    if name in _EMPTY:
        return Html(f"<{name}{given} />")
    return Html(f"<{name}{given}>{''.join(content)}</{name}>")
