"""Names and texts in SQL: quoted, or in queries that dpsql proposes, quoted only where they must be."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["propose_query", "quote_name", "quote_path", "quote_text", "write_name"]

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
