"""Words of a text of SQL, a cursor over those of a command, and the types and literals in PREPARE and EXECUTE."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from dpsql.server.wire.sqlstates import WireError
from dpsql.server.wire.values import OIDS

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


Item = TypeVar("Item")
_TYPES: Mapping[str, int] = {
    **dict.fromkeys(["bool", "boolean"], OIDS["bool"]),
    **dict.fromkeys(["smallint", "int2"], OIDS["int2"]),
    **dict.fromkeys(["int", "integer", "int4"], OIDS["int4"]),
    **dict.fromkeys(["bigint", "int8"], OIDS["int8"]),
    **dict.fromkeys(["real", "float4"], OIDS["float4"]),
    **dict.fromkeys(["float", "float8", "double precision"], OIDS["float8"]),
    **dict.fromkeys(["numeric", "decimal"], OIDS["numeric"]),
    **dict.fromkeys(["text", "char", "character", "bpchar", "name", "uuid"], OIDS["text"]),
    **dict.fromkeys(["varchar", "character varying"], OIDS["varchar"]),
    "date": OIDS["date"],
    "oid": 26,  # only the catalog has it
    **dict.fromkeys(["timestamp", "timestamp without time zone"], OIDS["timestamp"]),
    **dict.fromkeys(["timestamptz", "timestamp with time zone"], OIDS["timestamptz"]),
    "unknown": 0,
}
_SECOND_WORDS = {"DOUBLE": "PRECISION", "CHARACTER": "VARYING"}
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "\\": "\\", "'": "'"}
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


class Argument(NamedTuple):
    """A value as text, None for NULL, and the OID of its type, 0 where the statement decides."""

    text: bytes | None
    oid: int = 0


def parse_types(reader: CommandReader) -> tuple[int, ...]:
    """Parse the types of PREPARE in parentheses, if there are any; return their OIDs."""
    return tuple(_parse_list(reader, _parse_type))


def parse_arguments(reader: CommandReader) -> list[Argument]:
    """Parse the values of EXECUTE in parentheses, if there are any; raise `WireError` for what is no literal."""
    return _parse_list(reader, _parse_argument)


def _parse_list(reader: CommandReader, parse: Callable[[CommandReader], Item]) -> list[Item]:
    found = list[Item]()
    if not reader.accept("("):
        return found
    while not found or reader.accept(","):
        found.append(parse(reader))
    reader.expect(")")
    return found


def _parse_type(reader: CommandReader) -> int:
    if reader.accept("PG_CATALOG"):
        reader.expect(".")
    word = reader.next_word()
    name = word.value.lower()
    if second := reader.accept(_SECOND_WORDS.get(word.upper, "")):
        name += f" {second.lower()}"
    if reader.accept("("):
        reader.read_until(")")
    if zone := reader.accept("WITH", "WITHOUT"):
        reader.expect("TIME")
        reader.expect("ZONE")
        name += f" {zone.lower()} time zone"
    if name not in _TYPES or reader.peek() == "[":
        hint = "Use integer, bigint, double precision, numeric, boolean, text, date or timestamp."
        raise WireError("42704", "Parameters of this type are not supported.", hint=hint)
    return _TYPES[name]


def _parse_argument(reader: CommandReader) -> Argument:
    """Parse NULL, a truth value, a number with its sign, a string, or one of these with a type."""
    if reader.accept("CAST"):
        reader.expect("(")
        found = _parse_argument(reader)
        reader.expect("AS")
        found = found._replace(oid=_parse_type(reader))
        reader.expect(")")
    else:
        found = _parse_literal(reader)
    while reader.accept(":"):
        reader.expect(":")
        found = found._replace(oid=_parse_type(reader))
    if reader.peek() not in {",", ")", "AS"}:
        raise _refuse_expression()
    return found


def _parse_literal(reader: CommandReader) -> Argument:
    if reader.accept("NULL"):
        return Argument(None)
    if truth := reader.accept("TRUE", "FALSE"):
        return Argument(truth.lower().encode())
    if sign := reader.accept("-", "+"):
        word = reader.next_word()
        if word.kind == "number":
            return Argument((sign.strip("+") + word.written).encode())
        raise _refuse_expression()
    oid = _parse_type(reader) if reader.peek()[:1].isalpha() else 0
    word = reader.next_word()
    if word.kind == "number" and not oid:
        return Argument(word.written.encode())
    if word.kind in {"string", "dollar"}:
        return Argument(_decode_string(word).encode(), oid)
    raise _refuse_expression()


def _decode_string(word: Word) -> str:
    """Return the text that a string literal means, with the escapes of E strings."""
    if word.kind == "dollar":
        width = word.written.index("$", 1) + 1
        return word.written[width:-width]
    if word.written[0] not in "eE":
        return word.value
    return _ESCAPE.sub(_decode_escape, word.value)


def _decode_escape(found: re.Match[str]) -> str:
    if found[1] not in _ESCAPES:
        hint = "Write the character itself."
        raise WireError("0A000", "This escape is not supported in a string of EXECUTE.", hint=hint)
    return _ESCAPES[found[1]]


def _refuse_expression() -> WireError:
    hint = "Write each value as a literal, such as 10, 'DE' or DATE '2026-01-31'."
    return WireError("0A000", "EXECUTE takes literal values only.", hint=hint)
