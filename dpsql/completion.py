"""Completion of SQL for a shell, a notebook and the web page: where statements end, and the words that fit next."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dpsql.dialects import write_name
from dpsql.plan.mechanisms.choice import list_mechanism_names
from dpsql.sql.allow_list import AGGREGATES, FUNCTIONS, INTERVAL_ENDS, WINDOWS
from dpsql.sql.ir.catalog import Catalog
from dpsql.sql.ir.measures import SPREADS
from dpsql.sql.lexer import ascii_lower
from dpsql.sql.syntax.block import QUANTILES
from dpsql.sql.syntax.clause import OPTIONS

WORDS = frozenset(["help", "quit", "exit"])  # commands that need no dot
# A quote or comment may end with the text, by \Z: then it is open, and what follows belongs to it.
_PARTS = re.compile(
    r"""
      (?P<comment> --[^\n]*(?:\n|\Z) | /\*.*?(?:\*/|\Z) )
    | (?P<quoted>  (?<![A-Za-z0-9_])[eE]'(?:[^'\\]|\\.|'')*(?:'|\Z) | '(?:[^']|'')*(?:'|\Z) | "(?:[^"]|"")*(?:"|\Z)
                 | \$(?P<tag>[A-Za-z_]*)\$.*?(?:\$(?P=tag)\$|\Z) )
    | (?P<end> ; )
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Split:
    """Complete statements without their semicolons, the text behind them, and whether a quote is open."""

    statements: tuple[str, ...]
    rest: str
    is_quoted: bool


def split(text: str) -> Split:
    """Split a text at its semicolons; skip parts that hold only white space and comments."""
    statements, start, is_quoted = [], 0, False
    for part in _PARTS.finditer(text):
        if part["end"]:
            statements.append(text[start : part.start()])
            start = part.end()
        elif part.end() == len(text):
            is_quoted = not _is_closed(part[0])
    complete = tuple(statement.strip() for statement in statements if not _is_blank(statement))
    return Split(complete, text[start:], is_quoted)


def is_complete(text: str) -> bool:
    """Return whether the text can be run: a command, complete statements, or nothing."""
    found = split(text)
    return _is_command(text) or not text.strip() or (_is_blank(found.rest) and not found.is_quoted)


def items(lines: Iterable[str]) -> Iterator[str]:
    """Yield commands, each a line that begins with a dot, and statements; the last may lack its semicolon."""
    rest = ""
    for line in lines:
        if _is_blank(rest) and _is_command(line):
            yield line.strip()
            rest = ""
            continue
        found = split(rest + line)
        yield from found.statements
        rest = found.rest
    if not _is_blank(rest):
        yield rest.strip()


def _is_command(line: str) -> bool:
    stripped = line.strip()
    return stripped.startswith(".") or stripped.rstrip(";").lower() in WORDS


def _is_blank(text: str) -> bool:
    return not _PARTS.sub(lambda part: "" if part["comment"] else part[0], text).strip()


def _is_closed(part: str) -> bool:
    """Return whether the quote or comment at the end of a text is closed."""
    if part.startswith("--"):
        return part.endswith("\n")
    if part.startswith("/*"):
        return len(part) >= len("/**/") and part.endswith("*/")
    if part.startswith("$"):
        tag = part[: part.index("$", 1) + 1]
        return len(part) >= 2 * len(tag) and part.endswith(tag)
    return re.fullmatch(r"""[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*\"""", part, re.DOTALL) is not None


KEYWORDS = (
    "SELECT DISTINCT FROM WHERE GROUP BY HAVING ORDER LIMIT OFFSET AS AND OR NOT IN IS NULL TRUE FALSE LIKE ILIKE "
    "BETWEEN ESCAPE CASE WHEN THEN ELSE END JOIN INNER LEFT RIGHT FULL SEMI ANTI OUTER CROSS ON USING WITH ASC DESC "
    "ALL UNION INTERSECT EXCEPT QUALIFY INTERVAL COLLATE EXISTS OVER PARTITION FILTER TOP PRIVATE PER ADAPTIVE "
    "EXPLAIN SHOW TABLES ANSWERS FUNCTIONS BUDGET DESCRIBE"
).split()
_WORD = re.compile(r'"?[^\W\d]\w*\Z|"\Z')
_PREFIX_OF_NAME = re.compile(r'(?:"(?P<quoted>(?:[^"]|"")+)"|(?P<plain>[^\W\d]\w*))\.\Z')
_AFTER_FROM = re.compile(r"\b(?:from|join|describe|desc)\s+\Z", re.IGNORECASE)
_IN_OPTIONS = re.compile(r"\bprivate\b[^;]*\bwith\s*\((?:[^()]*,)?\s*\Z", re.IGNORECASE)
_MECHANISM = re.compile(r"\bmechanism\s*=>?\s*\Z", re.IGNORECASE)
_ALIASED = re.compile(r"\b(?:from|join|,)\s+(?P<table>[\w.]+)\s+(?:as\s+)?(?P<alias>[^\W\d]\w*)", re.IGNORECASE)
_COMMAND = re.compile(r"\s*\.(\w*)\Z")


def find_completions(before: str, catalog: Catalog, *, commands: dict[str, tuple[str, ...]]) -> tuple[str, list[str]]:
    """Return the word before the cursor and its completions; none inside string literals and comments.

    `commands` maps each command of the shell to the words that may follow it; <table> means any table.
    """
    command = _COMMAND.match(before)
    if command is not None:
        return f".{command[1]}", sorted(f".{name}" for name in commands if name.startswith(command[1]))
    found = split(before)
    word = _WORD.search(found.rest)
    prefix = word[0] if word else ""
    if found.is_quoted and not prefix.startswith('"'):
        return "", []
    known = _list_candidates(found.rest[: len(found.rest) - len(prefix)], catalog, commands=commands)
    wanted = ascii_lower(prefix.strip('"'))
    return prefix, sorted({name for name in known if ascii_lower(name.strip('"')).startswith(wanted)}, key=ascii_lower)


def _list_candidates(before: str, catalog: Catalog, *, commands: dict[str, tuple[str, ...]]) -> Iterable[str]:
    tables = [".".join(map(write_name, table.name.split("."))) for table in catalog.list_tables()]
    line = before.strip()
    if line.startswith("."):
        name, *rest = [*line[1:].split(), ""]
        if name not in commands or (any(rest) and name != "explain"):
            return []
        if name != "explain":
            return [known for word in commands[name] for known in (tables if word == "<table>" else [word])]
    if _MECHANISM.search(before):
        return list_mechanism_names()
    if _IN_OPTIONS.search(before):
        return OPTIONS
    if _AFTER_FROM.search(before):
        return tables
    qualified = _PREFIX_OF_NAME.search(before)
    named = catalog.tables
    if qualified is not None:
        name = ascii_lower(qualified["plain"] or qualified["quoted"].replace('""', '"'))
        # of a name or an alias; all tables if the text before the cursor names none
        aliases = (part["table"] for part in _ALIASED.finditer(before) if ascii_lower(part["alias"]) == name)
        table = catalog.find(next(aliases, name))
        named = catalog.tables if table is None else (table,)
    columns = [write_name(column) for table in named for column, _ in table.columns]
    if qualified is not None:
        return columns
    listed = [*FUNCTIONS, *AGGREGATES, *SPREADS, *INTERVAL_ENDS, *QUANTILES, *WINDOWS, "count"]
    return [*KEYWORDS, *tables, *columns, *listed]
