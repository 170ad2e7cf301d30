"""Messages of PostgreSQL's protocol, version 3: those of clients as values, those for clients as bytes.

A message is read strictly, to its last byte: one that does not fit its own lengths is `Malformed`. The library pygwire
is not used because it accepts negative lengths and trailing bytes; `tests/server/wire/test_codec.py` compares both.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dpsql.server.row_blocks import WireColumn

KINDS: Final = frozenset(bytes([kind]) for kind in b"BCDEFHPQSXcdfp")
_INT16, _INT32 = struct.Struct("!H"), struct.Struct("!i")
_LENGTH = struct.Struct("!ci")
_COLUMN = struct.Struct("!ihihih")


class Malformed(Exception):
    """A message that is not read: it does not fit its own lengths, is not UTF-8, or is too long, as `sqlstate` says.

    `is_simple` is set for a message of the simple protocol, which waits for no Sync.
    """

    def __init__(self, reason: str, *, sqlstate: str = "08P01", hint: str = "") -> None:
        self.sqlstate = sqlstate
        self.hint = hint
        self.is_simple = False
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class QueryMessage:
    """A text of any number of statements."""

    text: str


@dataclass(frozen=True, slots=True)
class ParseMessage:
    """A statement to prepare under a name; `types` are the OIDs of its first parameters, 0 for an open type."""

    name: str
    text: str
    types: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BindMessage:
    """Values for a statement; `formats` and `results` are text (0) or binary (1): none, one for all, or each."""

    portal: str
    statement: str
    formats: tuple[int, ...]
    values: tuple[bytes | None, ...]
    results: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DescribeMessage:
    """A request to describe a statement ("S") or a portal ("P")."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class CloseMessage:
    """A request to close a statement ("S") or a portal ("P")."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class ExecuteMessage:
    """A request for the next rows of a portal, at most `max_rows`; 0 is all."""

    portal: str
    max_rows: int


@dataclass(frozen=True, slots=True)
class SyncMessage:
    """The end of a batch."""


@dataclass(frozen=True, slots=True)
class FlushMessage:
    """A request to send what is buffered."""


@dataclass(frozen=True, slots=True)
class TerminateMessage:
    """The end of the connection."""


@dataclass(frozen=True, slots=True)
class PasswordMessage:
    """A step of the login; its `repr` is empty."""

    data: bytes

    def __repr__(self) -> str:
        return "PasswordMessage()"


@dataclass(frozen=True, slots=True)
class CopyInMessage:
    """Rows, or their end, of a COPY FROM, which is not supported."""


@dataclass(frozen=True, slots=True)
class FunctionCallMessage:
    """A call of a function by its OID, which is not supported."""


Message = (
    QueryMessage
    | ParseMessage
    | BindMessage
    | DescribeMessage
    | CloseMessage
    | ExecuteMessage
    | SyncMessage
    | FlushMessage
    | TerminateMessage
    | PasswordMessage
    | CopyInMessage
    | FunctionCallMessage
)


@dataclass(frozen=True, slots=True)
class Unparsed:
    """A message that takes more than a moment to parse."""

    kind: bytes
    data: bytes

    def parse(self) -> Message:
        """Return the message; raise `Malformed`."""
        return parse_message(self.kind, self.data)


class _Body:
    """Reader of the content of a message, from its first to exactly its last byte."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        if count < 0 or self._at + count > len(self._data):
            raise Malformed("A message is shorter than it says.")
        self._at += count
        return self._data[self._at - count : self._at]

    def text(self) -> str:
        end = self._data.find(b"\0", self._at)
        if end < 0:
            raise Malformed("A text in a message has no end.")
        raw, self._at = self._data[self._at : end], end + 1
        try:
            return raw.decode()
        except UnicodeDecodeError:
            pass
        raise Malformed("A text in a message is not UTF-8.", sqlstate="22021")

    def kind(self) -> str:
        letter = self.take(1)
        if letter not in {b"S", b"P"}:
            raise Malformed("A message names neither a statement nor a portal.")
        return letter.decode()

    def count(self) -> int:
        return int(_INT16.unpack(self.take(2))[0])

    def int32(self) -> int:
        return int(_INT32.unpack(self.take(4))[0])

    def codes(self) -> tuple[int, ...]:
        return tuple(self.count() for _ in range(self.count()))

    def value(self) -> bytes | None:
        size = self.int32()
        return None if size == -1 else self.take(size)

    def rest(self) -> bytes:
        return self.take(len(self._data) - self._at)

    def end(self) -> None:
        if self._at != len(self._data):
            raise Malformed("A message is longer than its content.")


def parse_message(kind: bytes, data: bytes) -> Message:  # noqa: C901, PLR0912 - one case for each type
    """Parse a client's message of one of the types `KINDS`; raise `Malformed`."""
    body = _Body(data)
    found: Message
    match kind:
        case b"Q":
            found = QueryMessage(body.text())
        case b"P":
            found = ParseMessage(
                body.text(), body.text(), tuple(body.int32() & 0xFFFFFFFF for _ in range(body.count()))
            )
        case b"B":
            portal, statement, formats = body.text(), body.text(), body.codes()
            values = tuple(body.value() for _ in range(body.count()))
            found = BindMessage(portal, statement, formats, values, body.codes())
        case b"D":
            found = DescribeMessage(body.kind(), body.text())
        case b"C":
            found = CloseMessage(body.kind(), body.text())
        case b"E":
            found = ExecuteMessage(body.text(), max(0, body.int32()))
        case b"p":
            found = PasswordMessage(body.rest())
        case b"d" | b"c" | b"f":
            body.rest()
            found = CopyInMessage()
        case b"F":
            body.rest()
            found = FunctionCallMessage()
        case b"S":
            found = SyncMessage()
        case b"H":
            found = FlushMessage()
        case b"X":
            found = TerminateMessage()
        case _:
            raise Malformed("The type of a message is unknown.")
    body.end()
    return found


def parse_cstrings(data: bytes) -> list[str]:
    """Return the texts of a startup packet, each ended by a NUL; raise `Malformed`."""
    body, texts = _Body(data), list[str]()
    while name := body.text():
        texts += [name, body.text()]
    body.end()
    return texts


def message(kind: bytes, *parts: bytes) -> bytes:
    """Return a message of a type and content."""
    data = b"".join(parts)
    return _LENGTH.pack(kind, len(data) + 4) + data


def _encode_cstring(text: str) -> bytes:
    return text.replace("\0", "?").encode(errors="replace") + b"\0"


def fields_message(kind: bytes, fields: Mapping[str, str]) -> bytes:
    """Return an error (E) or a notice (N) with fields by their letters; empty fields are left out."""
    parts = [letter.encode() + _encode_cstring(text) for letter, text in fields.items() if text]
    return message(kind, *parts, b"\0")


def text_message(kind: bytes, *values: str) -> bytes:
    """Return a message whose content is texts."""
    return message(kind, *map(_encode_cstring, values))


def row_description(columns: Sequence[WireColumn], formats: Iterable[int]) -> bytes:
    """Return the message that describes columns, each in its format."""
    parts = [_INT16.pack(len(columns))]
    for column, code in zip(columns, formats, strict=True):
        oid = column.oid - (1 << 32) if column.oid >= 1 << 31 else column.oid
        parts += [_encode_cstring(column.name), _COLUMN.pack(0, 0, oid, column.size, column.modifier, code)]
    return message(b"T", *parts)


def parameter_description(oids: Sequence[int]) -> bytes:
    """Return the message of the parameter types of a statement."""
    return message(b"t", _INT16.pack(len(oids)), struct.pack(f"!{len(oids)}I", *oids))
