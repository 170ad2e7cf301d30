"""Nouns for sentences, from the names of columns: user_id is a user, two of them are users."""

from __future__ import annotations

import re

from dpsql.display.element import replace_unprintable

__all__ = ["key_noun", "plural", "shorten", "unit_noun", "with_article"]

_IDENTIFIER = re.compile(r"(?:_(?i:id|uid|uuid|guid|no|nr|number|key|hash)|(?<=[a-z])(?:Id|ID|No|Number|Key))$")
_PERSON = frozenset(["id", "uid", "uuid", "guid", "u"])
_LONGEST = 40  # characters of a name in a sentence


def unit_noun(column: str) -> str:
    """Return what one value of a privacy unit's column stands for: user for user_id, device for deviceId."""
    return "user" if column.lower() in _PERSON else shorten(_IDENTIFIER.sub("", column) or column)


def key_noun(column: str) -> str:
    """Return what one value of a key is called: item for item_id, and the name itself for any other."""
    return shorten(_IDENTIFIER.sub("", column) or column)


def plural(noun: str) -> str:
    """Return the plural of an English noun; of any other, the noun with an s."""
    if re.search(r"[^aeiou]y$", noun):
        return f"{noun[:-1]}ies"
    return f"{noun}es" if re.search(r"(?:s|x|z|ch|sh)$", noun) else f"{noun}s"


def with_article(noun: str) -> str:
    """Return a noun with a or an."""
    return f"an {noun}" if noun[:1].lower() in "aeio" else f"a {noun}"


def shorten(name: str) -> str:
    """Return a name that may stand in a sentence: printable, and of at most 40 characters."""
    return replace_unprintable(name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}\N{HORIZONTAL ELLIPSIS}")
