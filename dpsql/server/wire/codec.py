"""Messages of PostgreSQL's protocol, version 3, and the channel that receives and sends those of one client.

A message is read strictly, to its last byte: one that does not fit its own lengths is `Malformed`. The library pygwire
is not used because it accepts negative lengths and trailing bytes; `tests/server/wire/test_codec.py` compares both.
What a client sends is limited in size and time, and what is sent to it is buffered.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dpsql.server.memory import Holding, UserQuota, WireColumn
from dpsql.server.wire.sqlstates import Malformed, WireError

SURFACE = "postgres"
_INT16, _INT32 = struct.Struct("!H"), struct.Struct("!i")
_HEAD = struct.Struct("!ci")
_COLUMN = struct.Struct("!ihihih")
_CHUNK = 64 * 1024
_SHORT_MESSAGE = 16 * 1024  # bytes of a message that is not counted, and parsed at once
_COPIES = 2  # of a message: its bytes, and the values or the text in it
_KINDS: Final = frozenset(bytes([kind]) for kind in b"BCDEFHPQSXcdfp")
_SIMPLE = frozenset([b"Q", b"F"])
_MANY_PARTS = frozenset([b"B", b"P"])  # types of many values


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
    return _HEAD.pack(kind, len(data) + 4) + data


def _encode_cstring(text: str) -> bytes:
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
        oid = column.oid - (1 << 32) if column.oid >= 1 << 31 else column.oid
        parts += [_encode_cstring(column.name), _COLUMN.pack(0, 0, oid, column.size, column.modifier, code)]
    return message(b"T", *parts)


def parameter_description(oids: Sequence[int]) -> bytes:
    """Return the message of the parameter types of a statement."""
    return message(b"t", _INT16.pack(len(oids)), struct.pack(f"!{len(oids)}I", *oids))


def copy_header(code: int, count: int) -> bytes:
    """Return the message that announces rows of a COPY: `count` columns, all in text (0) or binary (1)."""
    return message(b"H", struct.pack(f"!bh{count}h", code, count, *[code] * count))


class ClientDisconnected(Exception):
    """The client is no longer there."""


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Limits of clients: bytes that they send, seconds that they take, and numbers of them.

    A client has `first_seconds` to send its first packet. One address has at most half of the `logins` under way, as
    many clients may share it. `held` limits the bytes that the server holds for all connections together, such as rows
    that wait to be fetched, and `held_by_user` those of one user. There are more `threads` than connections that wait
    for a statement.
    """

    before_login: int = 10_000
    message: int = 1 << 20
    first_seconds: float = 5.0
    login_seconds: float = 10.0
    idle_seconds: float = 12 * 3600.0
    write_seconds: float = 60.0
    logins: int = 200
    threads: int = 256
    held: int = 512 << 20
    held_by_user: int = 64 << 20


class ClientReader(asyncio.StreamReader):
    """Reader of a client's bytes that calls `on_end` as soon as the client leaves, before its last bytes are read."""

    on_end: Callable[[], None] | None = None

    def feed_eof(self) -> None:
        """Record the end of the stream."""
        super().feed_eof()
        if self.on_end is not None:
            self.on_end()

    def set_exception(self, exc: Exception) -> None:
        """Record a broken connection."""
        super().set_exception(exc)
        if self.on_end is not None:
            self.on_end()


class Channel:
    """The connection of one client; after the login, `quota` counts long messages until the next one is received."""

    quota: UserQuota | None = None

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, limits: ClientLimits) -> None:
        self._reader, self._writer, self._limits = reader, writer, limits
        self._in, self._out = bytearray(), bytearray()
        self._holding: Holding | None = None
        self._unread = 0  # bytes of a refused message that are still to come

    @property
    def address(self) -> str:
        """The client's address; empty for a socket that has none."""
        peer = self._writer.get_extra_info("peername")
        return str(peer[0]) if isinstance(peer, tuple) else ""

    def call_on_end(self, act: Callable[[], None] | None) -> None:
        """Call `act`, if any, when the client leaves; what it sent is still read, until a reply cannot be sent."""
        if isinstance(self._reader, ClientReader):
            self._reader.on_end = act

    def abort(self) -> None:
        """Close the connection at once, without sending what is buffered."""
        self._writer.transport.abort()

    @property
    def is_encrypted(self) -> bool:
        """Whether the connection uses TLS."""
        return self._writer.get_extra_info("ssl_object") is not None

    async def receive_startup(self) -> tuple[int, bytes]:
        """Return the code and content of a startup packet, which has no type."""
        size = int.from_bytes(await self._read(4))
        if not 8 <= size <= self._limits.before_login:  # noqa: PLR2004 - two whole numbers
            raise Malformed("The first packet has an impossible length.")
        packet = await self._read(size - 4)
        return int.from_bytes(packet[:4]), packet[4:]

    async def receive(self, *, max_bytes: int) -> Message | Unparsed:
        """Return the next message, of at most `max_bytes` bytes; a long one of many values is not parsed yet.

        Raises `ClientDisconnected`; `Malformed` for an inconsistent message, after which the next one can still be
        read; and a fatal `WireError` where nothing after it can be read.
        """
        while (found := self.take_received(max_bytes=max_bytes)) is None:
            await self._read_more()
        return found

    def take_received(self, *, max_bytes: int) -> Message | Unparsed | None:
        """Return the next message if all of it was received already, else None; raise as `receive` does."""
        self._holding = None
        self._drop_unread()
        if len(self._in) < _HEAD.size:
            return None
        kind, size = _HEAD.unpack_from(self._in)
        if kind not in _KINDS:
            raise WireError("08P01", "The type of a message is unknown.", fatal=True)
        if not 4 <= size <= max_bytes:  # noqa: PLR2004 - the length counts itself
            raise WireError("08P01", "A message has an impossible length.", hint="Send less at once.", fatal=True)
        refused: Malformed | None = None
        if self.quota is not None and size > _SHORT_MESSAGE:  # counted before all of it is received
            try:
                self._holding = self.quota.hold(_COPIES * size)
            except WireError as error:
                refused = Malformed(error.reason, sqlstate=error.sqlstate, hint=error.hint)
                refused.is_simple = kind in _SIMPLE
        if refused is not None:
            self._unread = size + 1
            self._drop_unread()
            raise refused
        if len(self._in) <= size:
            return None
        data = bytes(self._in[_HEAD.size : size + 1])
        del self._in[: size + 1]
        if kind in _MANY_PARTS and size > _SHORT_MESSAGE:
            return Unparsed(kind, data)
        try:
            return parse_message(kind, data)
        except Malformed as error:
            error.is_simple = kind in _SIMPLE
            raise

    def _drop_unread(self) -> None:
        count = min(self._unread, len(self._in))
        del self._in[:count]
        self._unread -= count

    async def _read(self, count: int) -> bytes:
        while len(self._in) < count:
            await self._read_more()
        data = bytes(self._in[:count])
        del self._in[:count]
        return data

    async def _read_more(self) -> None:
        """Wait for bytes of the client; raise `ClientDisconnected` if there come none."""
        try:
            chunk = await self._reader.read(_CHUNK)
        except OSError:
            chunk = b""
        if not chunk:
            raise ClientDisconnected
        self._in += chunk

    async def encrypt(self, context: ssl.SSLContext) -> None:
        """Accept TLS and start it; raise `ClientDisconnected` when the handshake fails."""
        if self._in:  # bytes after the request would be read as if they had been encrypted
            raise Malformed("Data follows a request for TLS in the clear.")
        self._writer.write(b"S")
        try:
            await self._writer.start_tls(context)
        except (OSError, asyncio.IncompleteReadError):
            raise ClientDisconnected from None

    def send(self, *messages: bytes) -> None:
        """Buffer messages."""
        for each in messages:
            self._out += each

    @property
    def is_full(self) -> bool:
        """Whether the buffer should be flushed before more is added."""
        return len(self._out) >= _CHUNK

    async def flush(self) -> None:
        """Send the buffered bytes, and wait until the client has taken most of them.

        Raises `ClientDisconnected` when it takes none in time.
        """
        data, self._out = bytes(self._out), bytearray()
        try:
            self._writer.write(data)
            if not self._writer.transport.is_closing() and not self._writer.transport.get_write_buffer_size():
                return
            async with asyncio.timeout(self._limits.write_seconds):
                await self._writer.drain()
        except (OSError, TimeoutError):
            self._writer.transport.abort()
            raise ClientDisconnected from None

    async def close(self) -> None:
        """Send what is buffered, if the client takes it, and close the connection."""
        try:
            await self.flush()
            self._writer.close()
            async with asyncio.timeout(5):
                await self._writer.wait_closed()
        except (ClientDisconnected, OSError, TimeoutError):
            self._writer.transport.abort()
