"""Splitter of typed or piped text into statements, which end at a semicolon outside quotes and comments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

__all__ = ["WORDS", "Split", "is_complete", "items", "split"]

WORDS = frozenset(["help", "quit", "exit"])  # commands that need no dot
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
