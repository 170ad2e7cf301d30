"""The words of a statement, as far as the wire needs them: where it ends, and what kind of statement it is.

Strings, quoted names and comments are passed over as `dpsql.sql.lexer` passes over them. Nothing is decided here that
the language decides: what is cut wrongly is read, and refused, as a whole by it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["StatementText", "Word", "pieces", "words"]

_TOKEN = re.compile(
    r"""
      (?P<blank>     \s+ | --[^\n]* | /\*.*?(?:\*/|\Z) )
    | (?P<string>    [eE]'(?:[^'\\]|\\.|'')*(?:'|\Z) | '(?:[^']|'')*(?:'|\Z) )
    | (?P<dollar>    \$(?P<tag>[A-Za-z_]*)\$.*?(?:\$(?P=tag)\$|\Z) )
    | (?P<quoted>    "(?:[^"]|"")*(?:"|\Z) )
    | (?P<parameter> \$[0-9]+ )
    | (?P<number>    [0-9]+(?:\.[0-9]*)? )
    | (?P<word>      [^\W\d]\w* )
    | (?P<sign>      . )
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Word:
    """One token: its kind, its text as written, and where it starts."""

    kind: str
    written: str
    start: int

    @property
    def upper(self) -> str:
        """A bare word in capitals; empty for anything else."""
        return self.written.upper() if self.kind == "word" else ""

    @property
    def value(self) -> str:
        """A name or value as it is meant: bare words in lower case, quoted ones and strings without their quotes."""
        match self.kind:
            case "word":
                return self.written.lower()
            case "quoted":
                return self.written[1:-1].replace('""', '"')
            case "string":
                return self.written[self.written.index("'") + 1 : -1].replace("''", "'")
        return self.written


@dataclass(frozen=True, slots=True)
class StatementText:
    """One statement of a text, and how many characters stand before it."""

    text: str
    before: int


def words(text: str) -> Iterator[Word]:
    """Yield the tokens of a text but blanks and comments."""
    for found in _TOKEN.finditer(text):
        kind = found.lastgroup or "sign"
        if kind != "blank":
            yield Word("dollar" if kind == "tag" else kind, found.group(), found.start())


def pieces(text: str) -> list[StatementText]:
    """Return the statements of a text, which semicolons end; those without a word are left out."""
    found, start, filled = list[StatementText](), 0, False
    for word in words(text):
        if word.written == ";":
            if filled:
                found.append(StatementText(text[start : word.start], start))
            start, filled = word.start + 1, False
        else:
            filled = True
    if filled:
        found.append(StatementText(text[start:], start))
    return found
