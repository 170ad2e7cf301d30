"""Words of a text of SQL, and a cursor over those of a command."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from dpsql.server.wire.sqlstates import WireError

__all__ = ["CommandReader", "Word", "read_words"]

_TOKEN = re.compile(
    r"""
      (?P<blank>     \s+ | --[^\n]* | /\*.*?(?:\*/|\Z) )
    | (?P<string>    [eE]'(?:[^'\\]|\\.|'')*(?:'|\Z) | '(?:[^']|'')*(?:'|\Z) )
    | (?P<dollar>    \$(?P<tag>[A-Za-z_]*)\$.*?(?:\$(?P=tag)\$|\Z) )
    | (?P<quoted>    "(?:[^"]|"")*(?:"|\Z) )
    | (?P<parameter> \$[0-9]+ )
    | (?P<number>    [0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)? )
    | (?P<word>      [^\W\d]\w* )
    | (?P<sign>      . )
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Word:
    """One token: its kind, its text as written, and its first character's position."""

    kind: str
    written: str
    start: int

    @property
    def upper(self) -> str:
        """The word in capitals if it is a bare word, else an empty string."""
        return self.written.upper() if self.kind == "word" else ""

    @property
    def end(self) -> int:
        """The position behind its last character."""
        return self.start + len(self.written)

    @property
    def value(self) -> str:
        """The name or value meant: bare words in lower case, quoted names and strings without their quotes."""
        match self.kind:
            case "word":
                return self.written.lower()
            case "quoted":
                return self.written[1:-1].replace('""', '"')
            case "string":
                return self.written[self.written.index("'") + 1 : -1].replace("''", "'")
        return self.written


def read_words(text: str) -> Iterator[Word]:
    """Yield the tokens of a text except blanks and comments."""
    for found in _TOKEN.finditer(text):
        kind = found.lastgroup or "sign"
        if kind != "blank":
            yield Word("dollar" if kind == "tag" else kind, found.group(), found.start())


class CommandReader:
    """Cursor over the words of a command, after its verb."""

    def __init__(self, words: list[Word]) -> None:
        self._words = words
        self._at = 1
        self.verb = words[0].upper

    def peek(self, ahead: int = 0) -> str:
        """Return the next word in capitals, or the next sign, without passing it; or a word further `ahead`."""
        if self._at + ahead >= len(self._words):
            return ""
        word = self._words[self._at + ahead]
        return word.upper or (word.written if word.kind == "sign" else "")

    def accept(self, *names: str) -> str:
        """Pass the next word if it is one of these, and return it; else return an empty string."""
        word = self.peek()
        if not word or word not in names:
            return ""
        self._at += 1
        return word

    def expect(self, *names: str) -> None:
        """Pass the next word; raise `WireError` unless it is one of these."""
        if not self.accept(*names):
            raise self.syntax_error()

    def next_word(self) -> Word:
        """Return the next word; raise `WireError` at the end."""
        if self._at >= len(self._words):
            raise self.syntax_error()
        self._at += 1
        return self._words[self._at - 1]

    @property
    def last(self) -> Word:
        """The word that was passed last."""
        return self._words[self._at - 1]

    def read_name(self) -> str:
        """Return the value of the next word; raise `WireError` unless it is a name or a string."""
        word = self.next_word()
        if word.kind not in {"word", "quoted", "string"}:
            raise self.syntax_error()
        return word.value

    def read_number(self) -> int:
        """Return the next whole number, with its sign."""
        sign = -1 if self.accept("-") else 1
        self.accept("+")
        word = self.next_word()
        if word.kind != "number" or not word.written.isdigit() or len(word.written) > 18:  # noqa: PLR2004 - 64 bits
            raise self.syntax_error()
        return sign * int(word.written)

    @property
    def has_number(self) -> bool:
        """Whether a number comes next."""
        return self._at < len(self._words) and (self._words[self._at].kind == "number" or self.peek() in {"-", "+"})

    def read_until(self, sign: str) -> list[Word]:
        """Return the words before a sign, and pass the sign."""
        start = self._at
        while self.peek() != sign:
            self.next_word()
        self._at += 1
        return self._words[start : self._at - 1]

    def read_parenthesised(self) -> tuple[int, int]:
        """Pass text in parentheses, and return the positions of its first character and of its end."""
        start, depth = self.next_word().start + 1, 1
        while True:
            word = self.next_word()
            depth += {"(": 1, ")": -1}.get(word.written, 0) if word.kind == "sign" else 0
            if not depth:
                return start, word.start

    def read_relation(self) -> tuple[int, int]:
        """Pass a table name with its schema, and return the positions of its first character and of its end."""
        first = last = self.next_word()
        while self.accept("."):
            last = self.next_word()
        return first.start, last.end

    def read_rest(self) -> list[Word]:
        """Return all remaining words."""
        words, self._at = self._words[self._at :], len(self._words)
        return words

    def expect_end(self) -> None:
        """Raise `WireError` unless all words are read."""
        if self._at != len(self._words):
            raise self.syntax_error()

    def syntax_error(self) -> WireError:
        """Return the error for a command that cannot be parsed."""
        hint = f"Write it as in PostgreSQL's manual, page {self.verb}."
        return WireError("42601", f"The syntax of this {self.verb} is not supported.", hint=hint)
