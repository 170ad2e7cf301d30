"""Quoting of names from a database where they could do harm: in a policy, in its comments and on a terminal."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dpsql.policy.validation import fold

__all__ = ["policy_names", "quote", "spell"]

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def spell(name: str) -> str:
    """Return the name as a TOML key: bare if it can be, else quoted.

    >>> spell("reads"), spell("two words")
    ('reads', '"two words"')
    """
    return name if _BARE.fullmatch(name) else quote(name)


def quote(name: str) -> str:
    r"""Return the name as a TOML string of one line; what does not print is escaped, so it can end or colour nothing.

    >>> print(quote('a"b\\c\n'), quote("\x7f"))
    "a\"b\\c\u000a" "\u007f"
    """
    return '"' + "".join(map(_escaped, name)) + '"'


def policy_names(tables: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return what a policy calls each table, given by schema and name; those that no name means alone are left out.

    >>> policy_names([("main", "reads"), ("web", "reads"), ("main", "a.b"), ("a", "b"), ("a.b", "c")]).values()
    dict_values(['reads', 'web.reads', 'main.a.b'])
    """
    names: dict[tuple[str, str], str] = {}
    taken: set[str] = set()
    for schema, table in tables:
        name = table if schema == "main" and "." not in table else f"{schema}.{table}"
        spoken = fold(name).removeprefix("main.")  # what statements may say for it
        if "." not in schema and "\0" not in name and spoken not in taken:
            names[schema, table] = name
            taken.add(spoken)
    return names


def _escaped(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    if char.isprintable():
        return char
    return f"\\u{ord(char):04x}" if ord(char) < 1 << 16 else f"\\U{ord(char):08x}"
