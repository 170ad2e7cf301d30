"""Messages of PostgreSQL's protocol, version 3: what a client sends as values, what it is sent as bytes.

The one place that knows how a message is laid out. A message is read strictly, to its last byte: what does not fit its
own lengths is `Malformed`, never guessed at. That is why no library reads it: the one that is there, pygwire, takes
lengths that lead back and bytes that nobody asks for (`tests/server/wire/test_codec.py`, where each reads the other).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = [
    "KINDS",
    "Bind",
    "Close",
    "Column",
    "CopyIn",
    "Describe",
    "Execute",
    "Flush",
    "FunctionCall",
    "Malformed",
    "Message",
    "Parse",
    "Password",
    "Query",
    "Sync",
    "Terminate",
    "cstrings",
    "fields",
    "message",
    "parameter_description",
    "read",
    "row",
    "row_description",
    "texts",
    "tuple_of",
]

KINDS: Final = frozenset(bytes([kind]) for kind in b"BCDEFHPQSXcdfp")
_INT16, _INT32 = struct.Struct("!H"), struct.Struct("!i")
_LENGTH = struct.Struct("!ci")
_COLUMN = struct.Struct("!ihihih")


class Malformed(Exception):
    """A message that does not fit its own lengths, or text that is not UTF-8: `sqlstate` says which.

    It `is_simple` where it is of the simple protocol, which waits for no Sync.
    """

    def __init__(self, reason: str, *, sqlstate: str = "08P01") -> None:
        self.sqlstate = sqlstate
        self.is_simple = False
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class Query:
    """One text of any number of statements."""

    text: str


@dataclass(frozen=True, slots=True)
class Parse:
    """A statement to keep under a name; `types` are the OIDs of its first parameters, 0 where not said."""

    name: str
    text: str
    types: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Bind:
    """Values for a statement; `formats` and `results` are 0 for text and 1 for binary, none, one for all, or each."""

    portal: str
    statement: str
    formats: tuple[int, ...]
    values: tuple[bytes | None, ...]
    results: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Describe:
    """What the statement ("S") or portal ("P") of a name takes and gives."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Close:
    """An end to the statement ("S") or portal ("P") of a name."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Execute:
    """The next rows of a portal, at most so many; all with 0."""

    portal: str
    most: int


@dataclass(frozen=True, slots=True)
class Sync:
    """The end of a batch."""


@dataclass(frozen=True, slots=True)
class Flush:
    """Whatever is ready is wanted now."""


@dataclass(frozen=True, slots=True)
class Terminate:
    """The client's last word."""


@dataclass(frozen=True, slots=True)
class Password:
    """A step of the login; it prints nothing of it."""

    data: bytes

    def __repr__(self) -> str:
        return "Password()"


@dataclass(frozen=True, slots=True)
class CopyIn:
    """Rows, or their end, for a COPY FROM that there is not."""


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A call of a function by its OID, an old door that stays shut."""


Message = (
    Query | Parse | Bind | Describe | Close | Execute | Sync | Flush | Terminate | Password | CopyIn | FunctionCall
)


@dataclass(frozen=True, slots=True)
class Column:
    """How a column is described: its name, the OID of its type, the type's size and modifier."""

    name: str
    oid: int
    size: int = -1
    modifier: int = -1


class _Body:
    """What a message holds, read from its beginning to exactly its end."""

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
            raise Malformed("Neither a statement nor a portal is named.")
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
            raise Malformed("A message is longer than what it holds.")


def read(kind: bytes, data: bytes) -> Message:
    """Return a client's message of one of the types `KINDS` and of this content; raises `Malformed`."""
    body = _Body(data)
    found = _read(kind, body)
    body.end()
    return found


def _read(kind: bytes, body: _Body) -> Message:
    match kind:
        case b"Q":
            return Query(body.text())
        case b"P":
            return Parse(body.text(), body.text(), tuple(body.int32() & 0xFFFFFFFF for _ in range(body.count())))
        case b"B":
            portal, statement, formats = body.text(), body.text(), body.codes()
            values = tuple(body.value() for _ in range(body.count()))
            return Bind(portal, statement, formats, values, body.codes())
        case b"D":
            return Describe(body.kind(), body.text())
        case b"C":
            return Close(body.kind(), body.text())
        case b"E":
            return Execute(body.text(), max(0, body.int32()))
        case b"p":
            return Password(body.rest())
        case b"d" | b"c" | b"f":
            body.rest()
            return CopyIn()
        case b"F":
            body.rest()
            return FunctionCall()
    return _bare(kind)


def _bare(kind: bytes) -> Message:
    match kind:
        case b"S":
            return Sync()
        case b"H":
            return Flush()
        case b"X":
            return Terminate()
    raise Malformed("A message is of a type that there is not.")


def cstrings(data: bytes) -> list[str]:
    """Return the texts of a startup packet, each ended by a NUL; raises `Malformed`."""
    body, found = _Body(data), list[str]()
    while name := body.text():
        found.append(name)
        found.append(body.text())
    body.end()
    return found


def message(kind: bytes, *parts: bytes) -> bytes:
    """Return a message of this type and content."""
    data = b"".join(parts)
    return _LENGTH.pack(kind, len(data) + 4) + data


def _cstring(text: str) -> bytes:
    return text.replace("\0", "?").encode(errors="replace") + b"\0"


def fields(kind: bytes, values: Mapping[str, str]) -> bytes:
    """Return an error (E) or notice (N) of fields by their letters; those without a text are left out."""
    return message(kind, *(letter.encode() + _cstring(text) for letter, text in values.items() if text), b"\0")


def texts(kind: bytes, *values: str) -> bytes:
    """Return a message of texts."""
    return message(kind, *map(_cstring, values))


def row_description(columns: Sequence[Column], formats: Iterable[int]) -> bytes:
    """Return the description of columns, each in its format."""
    parts = [_INT16.pack(len(columns))]
    for column, code in zip(columns, formats, strict=True):
        oid = column.oid - (1 << 32) if column.oid >= 1 << 31 else column.oid
        parts += [_cstring(column.name), _COLUMN.pack(0, 0, oid, column.size, column.modifier, code)]
    return message(b"T", *parts)


def parameter_description(oids: Sequence[int]) -> bytes:
    """Return the types of the parameters of a statement."""
    return message(b"t", _INT16.pack(len(oids)), struct.pack(f"!{len(oids)}I", *oids))


def row(values: Iterable[bytes | None]) -> bytes:
    """Return one row; None is NULL."""
    return message(b"D", tuple_of(values))


def tuple_of(values: Iterable[bytes | None]) -> bytes:
    """Return values with their number before them, and each with its length; None is NULL."""
    parts = [NULL if value is None else _INT32.pack(len(value)) + value for value in values]
    return _INT16.pack(len(parts)) + b"".join(parts)


NULL: Final = _INT32.pack(-1)
