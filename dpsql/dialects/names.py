"""Names and texts in SQL: quoted, or in queries that dpsql proposes, quoted only where they must be.

Type names without what may come from rows: the labels of an ENUM, the fields of a STRUCT, the tags of a UNION.

Engines write all of these into the text of a type, and they are often made from data: `CREATE TYPE ... AS ENUM (SELECT
DISTINCT ...)`, a pandas categorical, or the field names that `read_json` finds.
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
    return _Reader(_QUOTED.sub(_unquoted, name)).type() or _OTHER


def _unquoted(quoted: re.Match[str]) -> str:
    """Return the second part of a qualified name, which names a type, and nothing for any other quoted text."""
    before = quoted.string[max(quoted.start() - 1, 0) : quoted.start()]
    return quoted[0] if before == "." and _PART.fullmatch(quoted[0]) else ""


class _Reader:
    """Reads one type from text that holds no quoted text any more."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def type(self) -> str:
        """Return the type that begins here, "" where none does, and go on behind it."""
        head = self._take(_NAME)
        if not head:
            return ""
        arguments = self._take(_NUMBERS) or self._arguments(head)
        return head + arguments + self._take(_ENDING)

    def _arguments(self, head: str) -> str:
        """Return the text in parentheses if it consists of types alone, else nothing."""
        if self._peek() not in _CLOSES:
            return ""
        opening, start = self._peek(), self._at
        if head.upper() in _HOLDS_TYPES:
            self._at += 1
            types = [self.type()]
            while comma := self._take(_COMMA):
                types += [comma, self.type()]
            if all(types) and self._peek() == _CLOSES[opening]:
                self._at += 1
                return f"{opening}{''.join(types)}{_CLOSES[opening]}"
            self._at = start
        self._skip()
        return ""

    def _skip(self) -> None:
        """Go on behind the parenthesis that closes the one here, or to the end where none does."""
        depth = 0
        while self._at < len(self._text):
            depth += (self._peek() in "(<") - (self._peek() in ")>")
            self._at += 1
            if not depth:
                return

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return found[0] if found else ""
