"""What may stand next in a statement: words of the language, and names that the policy exposes; never a data value."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dpsql.completion.statements import split
from dpsql.plan.planner import MECHANISMS
from dpsql.sql.functions.allow_list import AGGREGATES, FUNCTIONS, WINDOWS
from dpsql.sql.ir.catalog import Catalog, Table
from dpsql.sql.lexer import ascii_lower
from dpsql.sql.syntax.options import OPTIONS

__all__ = ["KEYWORDS", "completions"]

KEYWORDS = (
    "SELECT DISTINCT FROM WHERE GROUP BY HAVING ORDER LIMIT OFFSET AS AND OR NOT IN IS NULL TRUE FALSE LIKE ILIKE "
    "BETWEEN ESCAPE CASE WHEN THEN ELSE END JOIN INNER LEFT RIGHT FULL SEMI ANTI OUTER CROSS ON USING WITH ASC DESC "
    "ALL UNION INTERSECT EXCEPT QUALIFY INTERVAL COLLATE EXISTS OVER PARTITION FILTER TOP PRIVATE PER ADAPTIVE "
    "PRIVATE_TOP EXPLAIN SHOW TABLES BUDGET DESCRIBE"
).split()
_WORD = re.compile(r'"?[^\W\d]\w*\Z|"\Z')
_PREFIX_OF_NAME = re.compile(r'(?:"(?P<quoted>(?:[^"]|"")+)"|(?P<plain>[^\W\d]\w*))\.\Z')
_AFTER_FROM = re.compile(r"\b(?:from|join|describe|desc)\s+\Z", re.IGNORECASE)
_IN_OPTIONS = re.compile(r"\bprivate\b[^;]*\bwith\s*\((?:[^()]*,)?\s*\Z", re.IGNORECASE)
_IN_CALL = re.compile(r"\bprivate_top\s*\([^()]*,\s*\Z", re.IGNORECASE)
_MECHANISM = re.compile(r"\bmechanism\s*=>?\s*\Z", re.IGNORECASE)
_ALIASED = re.compile(r"\b(?:from|join|,)\s+(?P<table>[\w.]+)\s+(?:as\s+)?(?P<alias>[^\W\d]\w*)", re.IGNORECASE)
_COMMAND = re.compile(r"\s*\.(\w*)\Z")


def completions(before: str, catalog: Catalog, *, commands: dict[str, tuple[str, ...]]) -> tuple[str, list[str]]:
    """Return the word that is being written, and what it may become; nothing inside texts and comments.

    `commands` are those of the shell and the words that may follow each; the word <table> stands for all tables.
    """
    command = _COMMAND.match(before)
    if command is not None:
        return f".{command[1]}", sorted(f".{name}" for name in commands if name.startswith(command[1]))
    found = split(before)
    word = _WORD.search(found.rest)
    begun = word[0] if word else ""
    if found.is_quoted and not begun.startswith('"'):
        return "", []
    known = _candidates(found.rest[: len(found.rest) - len(begun)], catalog, commands=commands)
    wanted = ascii_lower(begun.strip('"'))
    return begun, sorted({name for name in known if ascii_lower(name.strip('"')).startswith(wanted)}, key=ascii_lower)


def _candidates(before: str, catalog: Catalog, *, commands: dict[str, tuple[str, ...]]) -> Iterable[str]:
    tables = [_spelled(table.name) for table in catalog.tables]
    line = before.strip()
    if line.startswith("."):
        name, *rest = [*line[1:].split(), ""]
        if name not in commands or (any(rest) and name != "explain"):
            return []
        if name != "explain":
            return [known for word in commands[name] for known in (tables if word == "<table>" else [word])]
    if _MECHANISM.search(before):
        return MECHANISMS
    if _IN_OPTIONS.search(before) or _IN_CALL.search(before):
        return OPTIONS
    if _AFTER_FROM.search(before):
        return tables
    qualified = _PREFIX_OF_NAME.search(before)
    if qualified is not None:
        return _columns(_meant(before, qualified["plain"] or qualified["quoted"].replace('""', '"'), catalog=catalog))
    return [*KEYWORDS, *tables, *_columns(catalog.tables), *FUNCTIONS, *AGGREGATES, *WINDOWS, "count"]


def _meant(before: str, name: str, *, catalog: Catalog) -> Iterable[Table]:
    """Return the table of that name or alias; all, where the text does not say which."""
    alias = next(
        (found for found in _ALIASED.finditer(before) if ascii_lower(found["alias"]) == ascii_lower(name)), None
    )
    table = catalog.find(name if alias is None else alias["table"])
    return catalog.tables if table is None else [table]


def _columns(tables: Iterable[Table]) -> list[str]:
    return [_spelled(column) for table in tables for column, _ in table.columns]


def _spelled(name: str) -> str:
    """Return a name as it is written in a statement."""
    parts = [part if re.fullmatch(r"[A-Za-z_][A-Za-z_0-9]*", part) else _quoted(part) for part in name.split(".")]
    return ".".join(parts)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
