"""Connection of one client: its messages within limits of size and time, TLS, and the login.

The login is SCRAM-SHA-256 (RFC 5802, RFC 7677) without channel binding. An unknown user name takes the same steps as a
wrong password.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dpsql.policy.settings import is_loopback
from dpsql.server.limits import Holding, UserQuota
from dpsql.server.users import draw_bytes
from dpsql.server.wire.codec import (
    HEAD,
    SURFACE,
    Malformed,
    Message,
    PasswordMessage,
    Unparsed,
    WireError,
    message,
    parse_cstrings,
    parse_message,
)

if TYPE_CHECKING:
    from dpsql.server.gateway import Gateway
    from dpsql.server.users import User, Verifier


_CHUNK = 64 * 1024
_SHORT_MESSAGE = 16 * 1024  # bytes of a message that is not counted, and parsed at once
_COPIES = 2  # of a message: its bytes, and the values or the text in it
_KINDS: Final = frozenset(bytes([kind]) for kind in b"BCDEFHPQSXcdfp")
_SIMPLE = frozenset([b"Q", b"F"])
_MANY_PARTS = frozenset([b"B", b"P"])  # types of many values


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
        if len(self._in) < HEAD.size:
            return None
        kind, size = HEAD.unpack_from(self._in)
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
        # The length counts itself, and not the type before it.
        if len(self._in) <= size:
            return None
        data = bytes(self._in[HEAD.size : size + 1])
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


_CANCEL, _TLS, _GSS = 80877102, 80877103, 80877104
_MAJOR, _NEWEST = 3, 2
_NUMBER, _MAX_KEY = 4, 256  # bytes of a request to cancel
_MAX_NAME = 200  # characters


@dataclass(frozen=True, slots=True)
class Startup:
    """The parameters of a connection, the user name among them, and the minor version of its protocol."""

    parameters: Mapping[str, str]
    minor: int


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """A request to cancel the statement of another connection, identified by `number` and `key`."""

    number: int
    key: bytes


async def negotiate(channel: Channel, tls: ssl.SSLContext | None) -> Startup | CancelRequest:
    """Return the startup of a client, after TLS if requested.

    The version and options that are supported of those requested are announced. Raises `Malformed`, `WireError` and
    `ClientDisconnected`.
    """
    codes = set[int]()
    while True:
        code, data = await channel.receive_startup()
        if code in codes:
            raise Malformed("Encryption was requested twice.")
        codes.add(code)
        match code:
            case _ if code == _TLS and tls is not None and not channel.is_encrypted:
                await channel.encrypt(tls)
            case _ if code in {_TLS, _GSS}:  # libpq requests GSSAPI first, then TLS, and goes on after each N
                channel.send(b"N")
                await channel.flush()
            case _ if code == _CANCEL:
                if not _NUMBER < len(data) <= _NUMBER + _MAX_KEY:
                    raise Malformed("A request to cancel has an impossible length.")
                return CancelRequest(int.from_bytes(data[:_NUMBER]), data[_NUMBER:])
            case _:
                break
    major, minor = divmod(code, 1 << 16)
    if major != _MAJOR:
        reason = "This version of PostgreSQL's protocol is not supported."
        raise WireError("0A000", reason, hint="Use a client of PostgreSQL 7.4 or later.", fatal=True)
    texts = parse_cstrings(data)
    parameters = dict(zip(texts[::2], texts[1::2], strict=True))
    # a newer client goes on with this version and without these options once it knows
    unknown = [name for name in parameters if name.startswith("_pq_.")]
    if minor > _NEWEST or unknown:
        minor = min(minor, _NEWEST)
        counts = ((_MAJOR << 16) + minor).to_bytes(4), len(unknown).to_bytes(4)
        channel.send(message(b"v", *counts, *(name.encode() + b"\0" for name in unknown)))
    if parameters.get("replication", "false").lower() not in {"false", "off", "no", "0"}:
        raise WireError("0A000", "Replication is not supported.", hint="Connect without replication.", fatal=True)
    return Startup(parameters, minor)


async def login(channel: Channel, startup: Startup, *, gateway: Gateway, limits: ClientLimits) -> User:
    """Return the user who proves to know the password.

    Raises a fatal `WireError`, `Malformed` and `ClientDisconnected`.
    """
    name, address = startup.parameters.get("user", "")[:_MAX_NAME], channel.address
    if not channel.is_encrypted and gateway.service.policy.server.require_tls:
        reason = "All connections must be encrypted, those from this machine too: the policy has require_tls."
        hint = "Connect with sslmode=require; a proxy on this machine needs TLS towards this server."
        raise WireError("28000", reason, hint=hint, fatal=True)
    if not channel.is_encrypted and address and not is_loopback(address):
        reason = "Connections from other machines must be encrypted."
        raise WireError("28000", reason, hint="Connect with sslmode=require.", fatal=True)
    _check_admission(gateway, name, address=address)
    # An unknown name gets an invented verifier, so that the exchange does not tell which names exist.
    verifier = gateway.users.verifier(name)
    exchange = Exchange(verifier)
    # 10, 11 and 12 are AuthenticationSASL, SASLContinue and SASLFinal; 0 is AuthenticationOk.
    channel.send(message(b"R", (10).to_bytes(4), MECHANISM.encode(), b"\0\0"))
    mechanism, _, rest = (await _receive_step(channel, limits)).partition(b"\0")
    if mechanism != MECHANISM.encode():
        raise Malformed("The client chose a login mechanism that was not offered.")
    if int.from_bytes(rest[:4]) != len(rest) - 4:
        raise Malformed("A step of the login does not fit its length.")
    channel.send(message(b"R", (11).to_bytes(4), exchange.create_challenge(rest[4:])))
    last = await _receive_step(channel, limits)
    _check_admission(gateway, name, address=address)  # again, as simultaneous guesses may have failed meanwhile
    proof = exchange.check_proof(last)
    user = None
    if proof is None:
        gateway.turn_away(SURFACE, name, address=address)
    else:
        user = gateway.let_in(SURFACE, name, address=address, mark=verifier.stored_key)
    if proof is None or user is None:
        raise WireError(
            "28P01", "The name or the password is wrong.", hint="Ask the curator for a new password.", fatal=True
        )
    channel.send(message(b"R", (12).to_bytes(4), proof), message(b"R", bytes(4)))
    return user


def _check_admission(gateway: Gateway, name: str, *, address: str) -> None:
    if not gateway.admit(SURFACE, name, address=address):
        seconds = max(1, gateway.throttle.count_seconds(name, address))
        raise WireError("53300", "Too many logins failed.", hint=f"Try again in {seconds} s.", fatal=True)


async def _receive_step(channel: Channel, limits: ClientLimits) -> bytes:
    await channel.flush()
    step = await channel.receive(max_bytes=limits.before_login)
    if not isinstance(step, PasswordMessage):
        raise Malformed("A message other than a step of the login was received.")
    return step.data


MECHANISM = "SCRAM-SHA-256"
# As in PostgreSQL, the user name n= is ignored: the startup packet has it, and libpq sends none here.
_FIRST = re.compile(r"(?P<header>[ny],,)(?P<bare>n=[^,]*,r=(?P<nonce>[\x21-\x2b\x2d-\x7e]{8,128})(?:,.*)?)", re.DOTALL)
_FINAL = re.compile(r"(?P<unproven>c=(?P<header>[^,]*),r=(?P<nonce>[^,]*)(?:,(?!p=).*)?),p=(?P<proof>[^,]*)", re.DOTALL)


class Exchange:
    """State of one login: `create_challenge` answers the client's first message, `check_proof` its last; no I/O."""

    __slots__ = ("_first", "_header", "_nonce", "_verifier")

    def __init__(self, verifier: Verifier) -> None:
        self._verifier = verifier
        self._first = self._header = self._nonce = ""

    def create_challenge(self, data: bytes) -> bytes:
        """Return the nonce, the salt and the number of iterations; raise `Malformed`."""
        found = _FIRST.fullmatch(_decode_text(data))
        if found is None:
            raise Malformed("The first step of the login cannot be parsed, or requests what is not offered.")
        self._header, self._nonce = found["header"], found["nonce"] + base64.b64encode(draw_bytes(18)).decode()
        salt = base64.b64encode(self._verifier.salt).decode()
        answer = f"r={self._nonce},s={salt},i={self._verifier.iterations}"
        self._first = f"{found['bare']},{answer}"
        return answer.encode()

    def check_proof(self, data: bytes) -> bytes | None:
        """Return the server's proof, or None if the client's is wrong; raise `Malformed`."""
        found = _FINAL.fullmatch(_decode_text(data))
        if found is None or found["nonce"] != self._nonce or _decode_base64(found["header"]) != self._header.encode():
            raise Malformed("The last step of the login cannot be parsed, or belongs to another login.")
        transcript = f"{self._first},{found['unproven']}".encode()
        signature = hmac.digest(self._verifier.stored_key, transcript, "sha256")
        proof = _decode_base64(found["proof"])
        if len(proof) != len(signature):
            raise Malformed("The proof of the login has a wrong length.")
        # RFC 5802: ClientProof is ClientKey XOR ClientSignature, and StoredKey is the hash of ClientKey.
        key = bytes(mine ^ theirs for mine, theirs in zip(signature, proof, strict=True))
        if not hmac.compare_digest(hashlib.sha256(key).digest(), self._verifier.stored_key):
            return None
        return b"v=" + base64.b64encode(hmac.digest(self._verifier.server_key, transcript, "sha256"))


def _decode_text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        pass
    raise Malformed("A step of the login is not UTF-8.")


def _decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        pass
    raise Malformed("A step of the login is not in base64.")
