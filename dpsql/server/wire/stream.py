"""Messages of one connection: limited in size and time when received, buffered when sent."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Callable
from dataclasses import dataclass

from dpsql.server.memory_quota import Holding, UserQuota
from dpsql.server.wire.codec import KINDS, Malformed, Message, Unparsed, parse_message
from dpsql.server.wire.sqlstates import WireError

_CHUNK = 64 * 1024
_SHORT_MESSAGE = 16 * 1024  # bytes of a message that is not counted, and parsed at once
_COPIES = 2  # of a message: its bytes, and the values or the text in it
_SIMPLE = frozenset([b"Q", b"F"])
_MANY_PARTS = frozenset([b"B", b"P"])  # types of many values
_HEAD = struct.Struct("!ci")


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
        self._notify()

    def set_exception(self, exc: Exception) -> None:
        """Record a broken connection."""
        super().set_exception(exc)
        self._notify()

    def _notify(self) -> None:
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
        if kind not in KINDS:
            raise WireError("08P01", "The type of a message is unknown.", fatal=True)
        if not 4 <= size <= max_bytes:  # noqa: PLR2004 - the length counts itself
            raise WireError("08P01", "A message has an impossible length.", hint="Send less at once.", fatal=True)
        self._hold_message(kind, size)
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

    def _hold_message(self, kind: bytes, size: int) -> None:
        """Count the next message before it is received; raise `Malformed` beyond the quota, and drop the message."""
        if self.quota is None or size <= _SHORT_MESSAGE:
            return
        try:
            self._holding = self.quota.hold(_COPIES * size)
        except WireError as error:
            refused = Malformed(error.reason, sqlstate=error.sqlstate, hint=error.hint)
            refused.is_simple = kind in _SIMPLE
        else:
            return
        self._unread = size + 1
        self._drop_unread()
        raise refused

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
        """Accept TLS and start it.

        Raises `ClientDisconnected` when the handshake fails, and `Malformed` when bytes follow the request in the
        clear, which would otherwise be read as if they had been encrypted.
        """
        if self._in:
            raise Malformed("Data follows a request for TLS in the clear.")
        self._writer.write(b"S")
        try:
            await self._writer.start_tls(context)
        except (OSError, asyncio.IncompleteReadError):
            raise ClientDisconnected from None

    def send(self, *messages: bytes) -> None:
        """Buffer messages."""
        for message in messages:
            self._out += message

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
