"""Where statements end in what is typed or piped: at a semicolon outside of quotes and comments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

__all__ = ["WORDS", "Split", "is_complete", "items", "split"]

WORDS = frozenset(["help", "quit", "exit"])  # that mean a command also without its dot
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
    """The statements that are ended, without their semicolons, what stands behind them, and whether a quote is open."""

    statements: tuple[str, ...]
    rest: str
    is_quoted: bool


def split(text: str) -> Split:
    """Cut a text at its semicolons; what holds white space and comments alone is no statement."""
    statements, start, is_quoted = [], 0, False
    for part in _PARTS.finditer(text):
        if part["end"]:
            statements.append(text[start : part.start()])
            start = part.end()
        elif part.end() == len(text):
            is_quoted = not _is_closed(part[0])
    kept = tuple(statement.strip() for statement in statements if not _is_blank(statement))
    return Split(kept, text[start:], is_quoted)


def is_complete(text: str) -> bool:
    """Say whether what was typed can be acted on: a command, ended statements, or nothing."""
    found = split(text)
    return _is_command(text) or not text.strip() or (_is_blank(found.rest) and not found.is_quoted)


def items(lines: Iterable[str]) -> Iterator[str]:
    """Yield the commands, each a line that begins with a dot, and the statements; the last may lack its semicolon."""
    held = ""
    for line in lines:
        if _is_blank(held) and _is_command(line):
            yield line.strip()
            held = ""
            continue
        found = split(held + line)
        yield from found.statements
        held = found.rest
    if not _is_blank(held):
        yield held.strip()


def _is_command(line: str) -> bool:
    stripped = line.strip()
    return stripped.startswith(".") or stripped.rstrip(";").lower() in WORDS


def _is_blank(text: str) -> bool:
    return not _PARTS.sub(lambda part: "" if part["comment"] else part[0], text).strip()


def _is_closed(part: str) -> bool:
    """Say whether a quote or comment that ends a text has its own end."""
    if part.startswith("--"):
        return part.endswith("\n")
    if part.startswith("/*"):
        return len(part) >= len("/**/") and part.endswith("*/")
    if part.startswith("$"):
        tag = part[: part.index("$", 1) + 1]
        return len(part) >= 2 * len(tag) and part.endswith(tag)
    return re.fullmatch(r"""[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*\"""", part, re.DOTALL) is not None
