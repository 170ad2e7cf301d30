"""Messages of PostgreSQL's protocol, version 3, and errors as clients see them: SQLSTATE, hint and position.

A message is read strictly, to its last byte: one that does not fit its own lengths is `Malformed`. The library pygwire
is not used because it accepts negative lengths and trailing bytes; `tests/server/wire/test_codec.py` compares both.
No error contains anything of a row.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dpsql.errors import (
    BudgetExceeded,
    EngineError,
    Error,
    LedgerError,
    Place,
    PolicyError,
    Refusal,
    Unsupported,
    UsageError,
)
from dpsql.ledger.base import MAY_BE_CHARGED, RESERVING, SETTLING
from dpsql.server.catalog.system_catalog import WireColumn

_STATES_BY_CODE: Mapping[str, str] = {
    "alias": "42712",
    "ambiguous-column": "42702",
    "analyst-disabled": "42501",
    "character": "42601",
    "clause": "42601",
    "closed": "57P01",
    "cte": "42712",
    "empty": "42601",
    "engine-busy": "53000",
    "function-arguments": "22023",
    "key-not-selected": "42803",
    "literal": "22P02",
    "multiple": "42601",
    "not-a-key": "42803",
    "number": "22003",
    "option": "22023",
    "option-range": "22023",
    "outer-select": "42601",
    "output-names": "42701",
    "parameter-type": "22P02",
    "parameters": "08P01",
    "source": "42P01",
    "syntax": "42601",
    "server-failed": "XX000",
    "too-deep": "54001",
    "too-large": "54000",
    "too-long": "54000",
    "too-many-statements": "53000",
    "too-many-tables": "54000",
    "type": "42804",
    "user-removed": "28000",
    "unknown-column": "42703",
    "unknown-table": "42P01",
}
_STATES_BY_TYPE: tuple[tuple[type[Error], str], ...] = (
    (BudgetExceeded, "53400"),
    (Refusal, "42501"),
    (Unsupported, "0A000"),
    (UsageError, "22023"),
    (EngineError, "58000"),
    (LedgerError, "58030"),
    (PolicyError, "F0000"),
)
_UNKNOWN_COMPLETION = "40003"  # statement_completion_unknown: a driver does not send it again by itself


class Malformed(Exception):
    """A message that is not read: it does not fit its own lengths, is not UTF-8, or is too long, as `sqlstate` says.

    `is_simple` is set for a message of the simple protocol, which waits for no Sync.
    """

    def __init__(self, reason: str, *, sqlstate: str = "08P01", hint: str = "") -> None:
        self.sqlstate, self.hint, self.is_simple = sqlstate, hint, False
        super().__init__(reason)


class WireError(Exception):
    """An error for the client; `position` counts the characters of its text from 1, and 0 is none.

    A `fatal` error ends the connection.
    """

    def __init__(self, sqlstate: str, reason: str, *, hint: str = "", position: int = 0, fatal: bool = False) -> None:
        self.sqlstate, self.reason, self.hint = sqlstate, reason, hint
        self.position, self.fatal = position, fatal
        super().__init__(sqlstate, reason)


def full_error() -> WireError:
    """Return the error of a user for whom the server holds as much as it may."""
    reason = "The server holds too much for this user: rows to be fetched, cursors, statements or values."
    return WireError("53200", reason, hint="Fetch the rows, close cursors and prepared statements, or try again later.")


def to_wire_error(error: Exception, text: str = "", *, before: int = 0) -> WireError:
    """Return the error for the client, of a statement with `before` characters of the client's text before it.

    It contains nothing of an unexpected error, whose text could contain values.
    """
    if isinstance(error, WireError):
        return error
    if isinstance(error, Malformed):
        return WireError(error.sqlstate, str(error), hint=error.hint)
    if not isinstance(error, Error):
        return WireError("XX000", "The server failed.", hint=f"{MAY_BE_CHARGED} Ask the curator.")
    state = _STATES_BY_CODE.get(error.code) or next(
        (state for kind, state in _STATES_BY_TYPE if isinstance(error, kind)), "XX000"
    )
    if error.charge in {RESERVING, SETTLING}:
        state = _UNKNOWN_COMPLETION
    position = 0
    if isinstance(error.place, Place):  # as a character of the text, from 1
        start = 0
        for _ in range(error.place.line - 1):
            start = text.find("\n", start) + 1
        position = max(start + error.place.column + before, 1)  # `before` may be negative, of a text made from it
    return WireError(state, f"[{error.code}] {error.reason}", hint=error.hint, position=position)


SURFACE = "postgres"
_INT16, _INT32 = struct.Struct("!H"), struct.Struct("!i")
HEAD = struct.Struct("!ci")
_COLUMN = struct.Struct("!ihihih")


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
class NameMessage:
    """A request to describe (D) or to close (C) a statement (`of` is "S") or a portal ("P")."""

    kind: bytes
    of: str
    name: str


@dataclass(frozen=True, slots=True)
class ExecuteMessage:
    """A request for the next rows of a portal, at most `max_rows`; 0 is all."""

    portal: str
    max_rows: int


@dataclass(frozen=True, slots=True)
class PasswordMessage:
    """A step of the login; its `repr` is empty."""

    data: bytes

    def __repr__(self) -> str:
        return "PasswordMessage()"


@dataclass(frozen=True, slots=True)
class BareMessage:
    """A message of which only the type is read.

    Sync (S), Flush (H), Terminate (X), a function call (F), or a part of the rows of a COPY FROM (d, c, f).
    """

    kind: bytes


Message = QueryMessage | ParseMessage | BindMessage | NameMessage | ExecuteMessage | PasswordMessage | BareMessage


@dataclass(frozen=True, slots=True)
class Unparsed:
    """A long message of many values, whose parsing takes long."""

    kind: bytes
    data: bytes


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

    def count(self) -> int:
        return int(_INT16.unpack(self.take(2))[0])

    def int32(self) -> int:
        return int(_INT32.unpack(self.take(4))[0])

    def codes(self) -> tuple[int, ...]:
        return tuple(self.count() for _ in range(self.count()))

    def value(self) -> bytes | None:
        size = self.int32()
        # -1 is NULL; `take` refuses any other negative length.
        return None if size == -1 else self.take(size)

    def rest(self) -> bytes:
        return self.take(len(self._data) - self._at)

    def end(self) -> None:
        if self._at != len(self._data):
            raise Malformed("A message is longer than its content.")


def parse_message(kind: bytes, data: bytes) -> Message:
    """Parse a client's message; raise `Malformed`."""
    body = _Body(data)
    found: Message
    match kind:
        case b"Q":
            found = QueryMessage(body.text())
        case b"P":
            name, text = body.text(), body.text()
            # An OID is unsigned, and int32() reads a sign.
            found = ParseMessage(name, text, tuple(body.int32() & 0xFFFFFFFF for _ in range(body.count())))
        case b"B":
            portal, statement, formats = body.text(), body.text(), body.codes()
            values = tuple(body.value() for _ in range(body.count()))
            found = BindMessage(portal, statement, formats, values, body.codes())
        case b"D" | b"C":
            of = body.take(1)
            if of not in {b"S", b"P"}:
                raise Malformed("A message names neither a statement nor a portal.")
            found = NameMessage(kind, of.decode(), body.text())
        case b"E":
            # PostgreSQL reads a negative number of rows as all of them, too.
            found = ExecuteMessage(body.text(), max(0, body.int32()))
        case b"p":
            found = PasswordMessage(body.rest())
        case b"d" | b"c" | b"f" | b"F":
            body.rest()
            found = BareMessage(kind)
        case b"S" | b"H" | b"X":
            found = BareMessage(kind)
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
    # The length counts itself, but not the type.
    return HEAD.pack(kind, len(data) + 4) + data


def _encode_cstring(text: str) -> bytes:
    # A NUL would end the text. Half of a surrogate pair, which is no UTF-8, becomes ? as well.
    return text.replace("\0", "?").encode(errors="replace") + b"\0"


def fields_message(kind: bytes, fields: Mapping[str, str]) -> bytes:
    """Return an error (E) or a notice (N) with fields by their letters; empty fields are left out."""
    parts = [letter.encode() + _encode_cstring(text) for letter, text in fields.items() if text]
    return message(kind, *parts, b"\0")


def error_message(error: WireError) -> bytes:
    """Return the message of an error."""
    severity = "FATAL" if error.fatal else "ERROR"
    position = str(error.position) if error.position else ""
    fields = {"S": severity, "V": severity, "C": error.sqlstate, "M": error.reason, "H": error.hint, "P": position}
    return fields_message(b"E", fields)


def notice_message(text: str, *, sqlstate: str = "00000", severity: str = "NOTICE", detail: str = "") -> bytes:
    """Return the message of a notice or warning."""
    return fields_message(b"N", {"S": severity, "V": severity, "C": sqlstate, "M": text, "D": detail})


def text_message(kind: bytes, *values: str) -> bytes:
    """Return a message whose content is texts."""
    return message(kind, *map(_encode_cstring, values))


def row_description(columns: Sequence[WireColumn], formats: Iterable[int]) -> bytes:
    """Return the message that describes columns, each in its format."""
    parts = [_INT16.pack(len(columns))]
    for column, code in zip(columns, formats, strict=True):
        # The field of the struct is signed, an OID is not.
        oid = column.oid - (1 << 32) if column.oid >= 1 << 31 else column.oid
        parts += [_encode_cstring(column.name), _COLUMN.pack(0, 0, oid, column.size, column.modifier, code)]
    return message(b"T", *parts)


def parameter_description(oids: Sequence[int]) -> bytes:
    """Return the message of the parameter types of a statement."""
    return message(b"t", _INT16.pack(len(oids)), struct.pack(f"!{len(oids)}I", *oids))


def copy_header(code: int, count: int) -> bytes:
    """Return the message that announces rows of a COPY: `count` columns, all in text (0) or binary (1)."""
    return message(b"H", struct.pack(f"!bh{count}h", code, count, *[code] * count))
