"""A cursor over the words of a command, and the types and literals in PREPARE and EXECUTE."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, TypeVar

from sqlglot import Token

from dpsql.server.wire.sqlstates import WireError
from dpsql.server.wire.values import OIDS
from dpsql.sql.syntax.block import Block, flatten, kind_of, list_blocks, nest

_VALUES = frozenset(["STRING", "HEREDOC_STRING", "IDENTIFIER", "NUMBER", "PARAMETER"])  # and no words or signs


def word_of(token: Token) -> str:
    """Return a bare word in capitals, or a sign; "" for a value and a quoted name."""
    return "" if token.token_type.name in _VALUES else token.text.upper()


def value_of(token: Token) -> str:
    """Return the name or value meant: bare words in lower case, quoted names and strings without their quotes."""
    match token.token_type.name:
        case "VAR":
            return token.text.lower()
        case "STRING":
            return token.text[token.text.index("'") + 1 : -1].replace("''", "'")
    return token.text


class CommandReader:
    """Cursor over the words of a command, after its verb."""

    def __init__(self, words: Sequence[Token]) -> None:
        self._words = words
        self._at = 1
        self.verb = word_of(words[0])

    def peek(self, ahead: int = 0) -> str:
        """Return the next word in capitals, or the next sign, without passing it; or a word further `ahead`."""
        return word_of(self._words[self._at + ahead]) if self._at + ahead < len(self._words) else ""

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

    def next_word(self) -> Token:
        """Return the next word; raise `WireError` at the end."""
        if self._at >= len(self._words):
            raise self.syntax_error()
        self._at += 1
        return self._words[self._at - 1]

    @property
    def last(self) -> Token:
        """The word that was passed last."""
        return self._words[self._at - 1]

    def read_name(self) -> str:
        """Return the value of the next word; raise `WireError` unless it is a name or a string."""
        word = self.next_word()
        if word.token_type.name not in {"VAR", "IDENTIFIER", "STRING"}:
            raise self.syntax_error()
        return value_of(word)

    def read_number(self) -> int:
        """Return the next whole number, with its sign."""
        sign = -1 if self.accept("-") else 1
        self.accept("+")
        word = self.next_word()
        if kind_of([word], 0) != "NUMBER" or not word.text.isdigit() or len(word.text) > 18:  # noqa: PLR2004 - 64 bits
            raise self.syntax_error()
        return sign * int(word.text)

    @property
    def has_number(self) -> bool:
        """Whether a number comes next."""
        return kind_of(self._words, self._at) == "NUMBER" or self.peek() in {"-", "+"}

    @cached_property
    def _blocks(self) -> Mapping[int, Block]:
        """The brackets of the command, by where they open."""
        blocks = list(list_blocks(nest(self._words)))
        return {block.opening.start: block for block in blocks if block.opening is not None}

    def read_parentheses(self) -> tuple[list[Token], int, int]:
        """Pass text in parentheses; return its words, and the positions of its first character and of its end."""
        block = self._blocks.get(self.next_word().start)
        if block is None or block.closing is None or block.closing.text != ")":
            raise self.syntax_error()
        words, start = flatten(block.nodes), self.last.end + 1
        self._at += len(words) + 1
        return words, start, block.closing.start

    def read_relation(self) -> tuple[int, int]:
        """Pass a table name with its schema, and return the positions of its first character and of its end."""
        first = last = self.next_word()
        while self.accept("."):
            last = self.next_word()
        return first.start, last.end + 1

    def read_rest(self) -> Sequence[Token]:
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


class Argument(NamedTuple):
    """A value as text, None for NULL, and the OID of its type, 0 where the statement decides."""

    text: bytes | None
    oid: int = 0


def parse_list(reader: CommandReader, parse: Callable[[CommandReader], Item]) -> list[Item]:
    """Parse a list in parentheses, if there is one, such as the types of PREPARE and the values of EXECUTE."""
    items = list[Item]()
    if not reader.accept("("):
        return items
    while not items or reader.accept(","):
        items.append(parse(reader))
    reader.expect(")")
    return items


def parse_type(reader: CommandReader) -> int:
    """Parse a type; return its OID."""
    if reader.accept("PG_CATALOG"):
        reader.expect(".")
    word = reader.next_word()
    name = value_of(word).lower()
    if second := reader.accept(_SECOND_WORDS.get(word_of(word), "")):
        name += f" {second.lower()}"
    if reader.peek() == "(":
        reader.read_parentheses()
    if zone := reader.accept("WITH", "WITHOUT"):
        reader.expect("TIME")
        reader.expect("ZONE")
        name += f" {zone.lower()} time zone"
    if name not in _TYPES or reader.peek() == "[":
        hint = "Use integer, bigint, double precision, numeric, boolean, text, date or timestamp."
        raise WireError("42704", "Parameters of this type are not supported.", hint=hint)
    return _TYPES[name]


def parse_argument(reader: CommandReader) -> Argument:
    """Parse NULL, a truth value, a number with its sign, a string, or one of these with a type."""
    if reader.accept("CAST"):
        reader.expect("(")
        argument = parse_argument(reader)
        reader.expect("AS")
        argument = argument._replace(oid=parse_type(reader))
        reader.expect(")")
    else:
        argument = _parse_literal(reader)
    while reader.accept("::"):
        argument = argument._replace(oid=parse_type(reader))
    if reader.peek() not in {",", ")", "AS"}:
        raise _refuse_expression()
    return argument


def _parse_literal(reader: CommandReader) -> Argument:
    if reader.accept("NULL"):
        return Argument(None)
    if truth := reader.accept("TRUE", "FALSE"):
        return Argument(truth.lower().encode())
    if sign := reader.accept("-", "+"):
        word = reader.next_word()
        if word.token_type.name != "NUMBER":
            raise _refuse_expression()
        return Argument((sign.strip("+") + word.text).encode())
    oid = parse_type(reader) if reader.peek()[:1].isalpha() else 0
    word = reader.next_word()
    kind, text = word.token_type.name, value_of(word)
    if kind == "NUMBER" and not oid:
        return Argument(text.encode())
    if kind == "HEREDOC_STRING":
        width = text.index("$", 1) + 1
        return Argument(text[width:-width].encode(), oid)
    if kind != "STRING":
        raise _refuse_expression()
    if word.text[0] in "eE":
        try:
            text = re.sub(r"\\(.)", lambda escape: _ESCAPES[escape[1]], text, flags=re.DOTALL)
        except KeyError:
            reason, hint = "This escape is not supported in a string of EXECUTE.", "Write the character itself."
            raise WireError("0A000", reason, hint=hint) from None
    return Argument(text.encode(), oid)


def _refuse_expression() -> WireError:
    hint = "Write each value as a literal, such as 10, 'DE' or DATE '2026-01-31'."
    return WireError("0A000", "EXECUTE takes literal values only.", hint=hint)
