"""Commands that a connection carries out itself, a reader of their words, and the types and literals in them.

They are transactions, settings, cursors, prepared statements and COPY.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple, TypeVar

from sqlglot import Token

from dpsql.server.wire.codec import WireError
from dpsql.server.wire.rows import OIDS
from dpsql.sql.syntax.block import Block, flatten, kind_of, list_blocks, nest


@dataclass(frozen=True, slots=True)
class Begin:
    """BEGIN or START TRANSACTION; `tag` is the one that was written."""

    tag: str


@dataclass(frozen=True, slots=True)
class Commit:
    """COMMIT or END; `chain` begins the next transaction at once."""

    chain: bool


@dataclass(frozen=True, slots=True)
class Rollback:
    """ROLLBACK or ABORT, to a savepoint if it has a name."""

    chain: bool = False
    savepoint: str = ""


@dataclass(frozen=True, slots=True)
class Savepoint:
    """SAVEPOINT."""

    name: str


@dataclass(frozen=True, slots=True)
class ReleaseSavepoint:
    """RELEASE SAVEPOINT."""

    name: str


@dataclass(frozen=True, slots=True)
class TableLock:
    """LOCK TABLE in the mode ACCESS SHARE; it does nothing, as no table can be changed."""


@dataclass(frozen=True, slots=True)
class Set:
    """SET; a value of None is DEFAULT, and `local` ends with the transaction."""

    name: str
    value: str | None
    local: bool = False


@dataclass(frozen=True, slots=True)
class SetConfig:
    """SELECT set_config(name, value, is_local), which returns the value; pg_dump sends it."""

    name: str
    value: str
    local: bool


@dataclass(frozen=True, slots=True)
class CancelBackend:
    """SELECT pg_cancel_backend(number), which cancels the statement of another connection; None is a parameter."""

    number: int | None


@dataclass(frozen=True, slots=True)
class Reset:
    """RESET; of all settings if the name is empty."""

    name: str


@dataclass(frozen=True, slots=True)
class Show:
    """SHOW of a setting."""

    name: str


@dataclass(frozen=True, slots=True)
class Declare:
    """DECLARE CURSOR for the statement that begins at a character; one with NO SCROLL only moves forwards."""

    name: str
    start: int
    hold: bool
    no_scroll: bool = False


@dataclass(frozen=True, slots=True)
class Fetch:
    """FETCH or MOVE by a number of rows, backwards if it is negative, or to one row, from the start or from here.

    A count of None is ALL. JDBC moves so through a scrollable result set.
    """

    name: str
    count: int | None
    kind: Literal["FORWARD", "BACKWARD", "ABSOLUTE", "RELATIVE"] = "FORWARD"
    move: bool = False


@dataclass(frozen=True, slots=True)
class CloseCursor:
    """CLOSE; of all cursors if the name is empty."""

    name: str


@dataclass(frozen=True, slots=True)
class CopyOut:
    """COPY (statement) TO STDOUT, or COPY of `columns` of a table, with options as written.

    The statement, or the name of the table, is from `start` up to `stop`.
    """

    start: int
    stop: int
    columns: str = ""
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Explain:
    """EXPLAIN with options, of the statement that begins at a character; a `layout` of "" is that of dpsql."""

    start: int
    layout: str
    is_verbose: bool


@dataclass(frozen=True, slots=True)
class Prepare:
    """PREPARE of the statement that begins at a character; `types` are the OIDs of its parameters."""

    name: str
    start: int
    types: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Execute:
    """EXECUTE of a prepared statement; its values as text, and the OIDs of their types, 0 for none."""

    name: str
    values: tuple[bytes | None, ...]
    types: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CreateView:
    """CREATE TEMPORARY VIEW of the query that begins at a character; tools make one to learn its columns."""

    name: str
    start: int
    replaces: bool


@dataclass(frozen=True, slots=True)
class DropView:
    """DROP VIEW."""

    names: tuple[str, ...]
    if_exists: bool


@dataclass(frozen=True, slots=True)
class Deallocate:
    """DEALLOCATE; of all statements if the name is empty."""

    name: str


@dataclass(frozen=True, slots=True)
class Discard:
    """DISCARD ALL, which PgBouncer sends between two clients, or PLANS, SEQUENCES or TEMP."""

    kind: str


@dataclass(frozen=True, slots=True)
class NoEffect:
    """LISTEN or UNLISTEN, whose `tag` is its word: no notification ever comes."""

    tag: str


@dataclass(frozen=True, slots=True)
class Unlock:
    """SELECT pg_advisory_unlock_all(), which asyncpg's pools send; it does nothing, as there are no locks."""


Command = (
    Begin | Commit | Rollback | Savepoint | ReleaseSavepoint | TableLock | Set | SetConfig | Reset | Show | Declare
    | Fetch | CloseCursor | CancelBackend | CreateView | DropView | CopyOut | Explain | Prepare | Execute | Deallocate
    | Discard | NoEffect | Unlock
)  # fmt: skip


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
        # The words inside, and the closing bracket.
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
    # Without a second word this is accept(""), which passes nothing.
    if second := reader.accept(_SECOND_WORDS.get(word_of(word), "")):
        name += f" {second.lower()}"
    # varchar(20), numeric(10, 2): length and scale are not applied.
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
    # DATE '2026-01-31'. For a string, E'a\tb' too, `peek` returns "".
    oid = parse_type(reader) if reader.peek()[:1].isalpha() else 0
    word = reader.next_word()
    kind, text = word.token_type.name, value_of(word)
    if kind == "NUMBER" and not oid:
        return Argument(text.encode())
    if kind == "HEREDOC_STRING":
        # $tag$text$tag$: the width of $tag$.
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


class CursorMove(NamedTuple):
    """Rows from `start` up to `stop`, from 0, in reverse if `is_reversed`, and the position of the cursor behind them.

    `goes_back` is true if a cursor with NO SCROLL cannot do it: also to fetch the row again on which it is.
    """

    start: int
    stop: int
    position: int
    is_reversed: bool = False
    goes_back: bool = False


def move_cursor(fetch: Fetch, *, position: int, total: int) -> CursorMove:
    """Return what a FETCH or MOVE does at a position in `total` rows.

    Position 0 is before the first row, 1 on it, and `total` + 1 behind the last one.
    """
    count, fetches_again = fetch.count, not fetch.move and 0 < position <= total
    match fetch.kind:
        case "ABSOLUTE":
            wanted = count or 0
            # ABSOLUTE -1 is the last row, at position `total`.
            target = total + 1 + wanted if wanted < 0 else wanted
            goes_back = wanted < 0 or (position > 0 and target <= position)
            return _move_to(target, total=total, goes_back=goes_back)
        case "RELATIVE":
            target = position + (count or 0)
            return _move_to(target, total=total, goes_back=target < position or (not count and fetches_again))
        # BACKWARD ALL; the parser turns BACKWARD n into a count of -n.
        case "BACKWARD":
            return CursorMove(0, max(position - 1, 0), 0, is_reversed=True, goes_back=True)
    # FETCH 0 fetches the current row again; there is none before the first and behind the last one.
    if count == 0:
        return _move_to(position, total=total, goes_back=fetches_again)
    if count is None or count > 0:
        target = total + 1 if count is None else min(position + count, total + 1)
        return CursorMove(min(position, total), min(target, total), target)
    target = max(position + count, 0)
    return CursorMove(max(target - 1, 0), max(position - 1, 0), target, is_reversed=True, goes_back=True)


def _move_to(target: int, *, total: int, goes_back: bool) -> CursorMove:
    """Return the move to one row, or to before the first or behind the last one, where there is none."""
    target = min(max(target, 0), total + 1)
    start = target - 1 if 0 < target <= total else target
    return CursorMove(min(start, total), min(target, total), target, goes_back=goes_back)
