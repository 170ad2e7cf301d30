"""Names and texts in SQL: quoted, or in queries that dpsql proposes, quoted only where they must be.

Names of types are read without what may come from rows: the labels of an ENUM, the fields of a STRUCT, the tags of a
UNION. Engines write all of these into the text of a type, and they are often made from data: `CREATE TYPE ... AS ENUM
(SELECT DISTINCT ...)`, a pandas categorical, or the field names that `read_json` finds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_PLAIN = re.compile(r"[a-z_][a-z0-9_]*", re.IGNORECASE | re.ASCII)
_KEYWORDS = frozenset(
    """
    all analyse analyze and anti any array as asc asof asymmetric at authorization between binary both by case cast
    check collate collation column columns concurrently constraint create cross default deferrable desc describe
    distinct div do else end escape except exists extract fetch for foreign freeze from full generated glob group
    having ilike in initially inner intersect interval into is isnull join lambda lateral leading left like limit map
    natural not notnull null offset on only or order outer overlaps partitioned_by pivot pivot_longer pivot_wider
    placing positional primary qualify references returning right select semi show similar some struct summarize
    symmetric table tablesample then to trailing try_cast tuple union unique unpack unpivot using variadic verbose
    when where window with
    """.split()
)


def quote_name(name: str) -> str:
    """Return a name in double quotes."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def quote_path(parts: Iterable[str]) -> str:
    """Return the quoted name of a table, from its catalog to its own."""
    return ".".join(map(quote_name, parts))


def quote_text(text: object) -> str:
    """Return a text as a literal of standard SQL, in which a backslash is no escape."""
    escaped = str(text).replace("'", "''")
    return f"'{escaped}'"


def write_name(name: str) -> str:
    """Return a name for a statement; the parts of a qualified name are written each for itself.

    >>> print(*map(write_name, ("editor", "order", "two words", 'a"b')), sep=", ")
    editor, "order", "two words", "a""b"
    """
    is_plain = _PLAIN.fullmatch(name) is not None and name.lower() not in _KEYWORDS
    return name if is_plain else quote_name(name)


def propose_query(table: str, *, key: str, unit: str) -> str:
    """Return a query for the values of a column, the key, that belong to most units.

    >>> propose_query("web.reads", key="article", unit="user_id")
    'SELECT article, COUNT(DISTINCT user_id) AS n FROM web.reads GROUP BY article TOP 10 PRIVATE'
    """
    named, count = write_name(key), "total" if key.lower() == "n" else "n"
    source = ".".join(map(write_name, table.split(".")))
    counted = f"COUNT(DISTINCT {write_name(unit)}) AS {count}"
    return f"SELECT {named}, {counted} FROM {source} GROUP BY {named} TOP 10 PRIVATE"  # noqa: S608 - quoted names


ENUM = "ENUM"
_OTHER = "USER-DEFINED"  # the word of the SQL standard for a type that has no name of its own
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`(?:[^`]|``)*`", re.DOTALL)
_NAME = re.compile(r"[A-Za-z0-9_.\"-]+(?: [A-Za-z0-9_.\"-]+)*")
_PART = re.compile(r'"[A-Za-z0-9_]+"')
_NUMBERS = re.compile(r"\(\d+(?:, ?-?\d+)?\)")
_COMMA = re.compile(", ?")
_ENDING = re.compile(r"(?:\[\d*\])*")
_HOLDS_TYPES = frozenset(["MAP", "ARRAY", "LIST", "NULLABLE", "LOWCARDINALITY"])
_CLOSES = {"(": ")", "<": ">"}


def strip_type_details(name: str) -> str:
    """Return the name of a type without its labels, fields and tags, which may hold any text.

    >>> names = ["ENUM('a', 'b')[]", "DECIMAL(9,2)", 'STRUCT("x y" INTEGER, z DATE[])[3]']
    >>> [strip_type_details(name) for name in names]
    ['ENUM[]', 'DECIMAL(9,2)', 'STRUCT[3]']
    >>> [strip_type_details(name) for name in ("MAP(ENUM('a'), VARCHAR)", "array<struct<a:int>>", "'a'")]
    ['MAP(ENUM, VARCHAR)', 'array<struct>', 'USER-DEFINED']
    """
    return _read_type(_QUOTED.sub(_keep_part, name), 0)[0] or _OTHER


def _keep_part(quoted: re.Match[str]) -> str:
    """Return the second part of a qualified name, which names a type, and nothing for any other quoted text."""
    before = quoted.string[max(quoted.start() - 1, 0) : quoted.start()]
    return quoted[0] if before == "." and _PART.fullmatch(quoted[0]) else ""


def _read_type(text: str, at: int) -> tuple[str, int]:
    """Return the type that begins at a place of a text without quotes, "" where none does, and the place behind it."""
    head = _NAME.match(text, at)
    if head is None:
        return "", at
    arguments, at = "", head.end()
    if numbers := _NUMBERS.match(text, at):
        arguments, at = numbers[0], numbers.end()
    elif text[at : at + 1] in _CLOSES:
        arguments, at = _read_arguments(text, at, holds_types=head[0].upper() in _HOLDS_TYPES)
    ending = _ENDING.match(text, at)
    sizes = ending[0] if ending else ""
    return head[0] + arguments + sizes, at + len(sizes)


def _read_arguments(text: str, at: int, *, holds_types: bool) -> tuple[str, int]:
    """Return the text in parentheses if it consists of types alone, else nothing, and the place behind it."""
    if holds_types:
        type_, end = _read_type(text, at + 1)
        types = [type_]
        while comma := _COMMA.match(text, end):
            type_, end = _read_type(text, comma.end())
            types += [comma[0], type_]
        if all(types) and text[end : end + 1] == _CLOSES[text[at]]:
            return f"{text[at]}{''.join(types)}{text[end]}", end + 1
    depth = 0
    for end in range(at, len(text)):
        depth += (text[end] in "(<") - (text[end] in ")>")
        if not depth:
            return "", end + 1
    return "", len(text)
