"""Server of PostgreSQL's protocol: connections and their limits, TLS, the login, requests to cancel, and the end.

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
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from dpsql.policy.settings import is_loopback
from dpsql.server.catalog.protocol import SystemCatalog
from dpsql.server.memory import MemoryQuota, trim_memory
from dpsql.server.throttle import PendingConnections
from dpsql.server.users import draw_bytes
from dpsql.server.wire.codec import (
    SURFACE,
    Channel,
    ClientDisconnected,
    ClientLimits,
    ClientReader,
    PasswordMessage,
    error_message,
    message,
    parse_cstrings,
    text_message,
)
from dpsql.server.wire.connection import Conversation
from dpsql.server.wire.connection_state import PER_CONNECTION, REPORTED, Settings, Transaction
from dpsql.server.wire.execution import Execution
from dpsql.server.wire.query_router import QueryRouter, ThreadRunner
from dpsql.server.wire.sqlstates import Malformed, WireError, full_error, to_wire_error

if TYPE_CHECKING:
    from dpsql.server.gateway import Gateway
    from dpsql.server.users import User, Verifier

_CANCEL, _TLS, _GSS = 80877102, 80877103, 80877104
_MAJOR, _NEWEST = 3, 2
_NUMBER, _MAX_KEY = 4, 256  # bytes of a request to cancel
_MAX_NAME = 200  # characters
_OPTION = re.compile(r"(?:-c\s*|--)(?P<name>[A-Za-z_][\w.-]*)=(?P<value>(?:\\.|[^\s\\])*)\s*")
_NOT_SETTINGS = frozenset(["user", "database", "options", "replication"])
_LONG_KEY, _SHORT_KEY = 32, 4  # bytes of the key that cancels; long ones since minor version 2
_LONG_KEY_MINOR = 2
DEFAULT_LIMITS = ClientLimits()
_MAX_NUMBER = 2**31 - 1


@dataclass(frozen=True, slots=True)
class _Connection:
    """A conversation, whose it is, and the key that cancels its statements."""

    key: bytes
    owner: tuple[str, str]
    conversation: Conversation


class Wire:
    """Connections of a server, and the threads that they share; `close` ends it."""

    def __init__(
        self,
        gateway: Gateway,
        catalog: Callable[[], SystemCatalog],
        *,
        tls: ssl.SSLContext | None,
        limits: ClientLimits,
    ) -> None:
        self._gateway, self._catalog, self._tls, self._limits = gateway, catalog, tls, limits
        self._runner = ThreadRunner(limits.threads)
        self._quota = MemoryQuota(limits.held, limits.held_by_user, full=full_error)
        self._connections: dict[int, _Connection] = {}
        self._user_counts = Counter[str]()
        self._pending = PendingConnections(limits.logins)
        self._last_number = 0
        self._is_closing = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._trimming: asyncio.Task[None] | None = None

    async def listen(self, address: tuple[str, int]) -> None:
        """Begin to listen; raise `OSError`."""
        loop = asyncio.get_running_loop()

        def protocol() -> asyncio.StreamReaderProtocol:
            return asyncio.StreamReaderProtocol(ClientReader(), self._accept)

        self._server = await loop.create_server(protocol, *address)
        self._trimming = loop.create_task(trim_memory(self._quota))

    @property
    def port(self) -> int:
        """The port of the first address."""
        return 0 if self._server is None else int(self._server.sockets[0].getsockname()[1])

    async def close(self, seconds: float = 30.0) -> None:
        """Accept no more connections, wait `seconds` for running statements, and close every connection.

        A private statement that still runs then is waited for, though its client is not.
        """
        self._is_closing = True  # also ends connections that were accepted just before
        if self._server is not None:
            self._server.close()
        if self._trimming is not None:
            self._trimming.cancel()
        self._pending.close_all()
        for one in list(self._connections.values()):
            one.conversation.stop()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=seconds)
        for task in set(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=1)
        await self._runner.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection in a task of its own, and send the client the error that ends it, if any."""
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        channel = Channel(reader, writer, limits=self._limits)
        try:
            try:
                if not self._is_closing:
                    await self._serve(channel)
            except ClientDisconnected:
                pass
            except Exception as error:  # noqa: BLE001 - its text could contain values
                if not isinstance(error, WireError | Malformed):
                    self._gateway.telemetry.log_fault(error, surface=SURFACE)
                failure = to_wire_error(error)
                failure.fatal = True
                channel.send(error_message(failure))
            finally:
                await channel.close()
        except asyncio.CancelledError:  # `close` has waited long enough for this client
            writer.transport.abort()

    async def _serve(self, channel: Channel) -> None:
        """Log a client in and count its connection while it lasts, or carry out a request to cancel."""
        pending = self._pending.add(channel.address, channel.abort)
        try:
            async with asyncio.timeout(self._limits.login_seconds):
                async with asyncio.timeout(self._limits.first_seconds):
                    startup = await negotiate(channel, self._tls)
                pending.has_spoken = True
                if isinstance(startup, CancelRequest):
                    connection = self._connections.get(startup.number)
                    if connection is not None and hmac.compare_digest(connection.key, startup.key):
                        connection.conversation.cancel()
                    return
                user = await login(channel, startup, gateway=self._gateway, limits=self._limits)
        except TimeoutError:
            raise WireError("08006", "The login took too long.", hint="Connect again.", fatal=True) from None
        finally:
            self._pending.remove(pending)
        self._enter(user)
        self._user_counts[user.name] += 1
        try:
            await self._converse(channel, startup, user=user)
        finally:
            self._user_counts[user.name] -= 1
            if not self._user_counts[user.name]:
                del self._user_counts[user.name]
            self._gateway.telemetry.count_disconnection(SURFACE)

    def _enter(self, user: User) -> None:
        """Count a connection; raise `WireError` for more than the policy allows to a user, or to all together."""
        settings = self._gateway.service.policy.server
        if self._user_counts[user.name] >= settings.connections_per_user:
            reason = f"This user has as many connections as are allowed: {settings.connections_per_user}."
            hint = "Close one. The curator may raise connections_per_user in [server] of the policy."
            raise WireError("53300", reason, hint=hint, fatal=True)
        if not self._gateway.enter(SURFACE):
            reason = "The server has as many connections as max_connections allows."
            hint = "Try again later. The curator may raise max_connections in [server] of the policy."
            raise WireError("53300", reason, hint=hint, fatal=True)

    async def _converse(self, channel: Channel, startup: Startup, *, user: User) -> None:
        """Begin the session of a user, and answer messages until the connection ends."""
        settings = initial_settings(startup)
        quota = channel.quota = self._quota.of_user(user.name)
        router = QueryRouter(self._gateway, self._catalog, runner=self._runner, user=user, quota=quota)
        transaction = Transaction(replace(settings, role=""), quota)
        owner = (user.name, settings.role)
        cancel = partial(self._cancel, owner=owner)
        execution = Execution(self._gateway, router, transaction=transaction, quota=quota, cancel_backend=cancel)
        if settings.role:
            execution.begin_as(settings.role)
        # clients derive features from the version, which is that of the catalog
        own = {"server_version": f"{self._catalog().version} (dpsql)", "session_authorization": user.name}
        reported = {name: own[name] if name in PER_CONNECTION else settings.get(name.lower()) for name in REPORTED}
        key = draw_bytes(_LONG_KEY if startup.minor >= _LONG_KEY_MINOR else _SHORT_KEY)
        number = self._last_number % _MAX_NUMBER + 1
        while number in self._connections:
            number = number % _MAX_NUMBER + 1
        self._last_number = number
        channel.send(*(text_message(b"S", *setting) for setting in reported.items()))
        channel.send(message(b"K", number.to_bytes(4), key))
        conversation = Conversation(
            channel,
            execution,
            limits=self._limits,
            reported=reported,
            telemetry=self._gateway.telemetry,
            share=self._gateway.service.share,
        )
        channel.call_on_end(conversation.cancel)
        self._connections[number] = _Connection(key, owner, conversation)
        try:
            await conversation.run()
        finally:
            conversation.cancel()
            channel.call_on_end(None)  # it would refer to the conversation, and so to all that this holds
            execution.objects.clear()
            del self._connections[number]

    def _cancel(self, number: int, *, owner: tuple[str, str]) -> bool:
        """Cancel what a connection of the same user and role runs, and return whether there is such a connection."""
        connection = self._connections.get(number)
        if connection is None or connection.owner != owner:
            return False
        connection.conversation.cancel()
        return True


async def serve_wire(
    gateway: Gateway,
    address: tuple[str, int],
    *,
    tls: ssl.SSLContext | None,
    catalog: Callable[[], SystemCatalog],
    limits: ClientLimits = DEFAULT_LIMITS,
) -> Wire:
    """Listen on an address, port 0 for any, and return the server; raise `OSError`.

    `catalog` returns that of the policy in force.
    """
    wire = Wire(gateway, catalog, tls=tls, limits=limits)
    await wire.listen(address)
    return wire


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
    exchange = Exchange(gateway.users.verifier(name))
    channel.send(message(b"R", (10).to_bytes(4), MECHANISM.encode(), b"\0\0"))
    first = parse_initial_response(await _receive_step(channel, limits))
    channel.send(message(b"R", (11).to_bytes(4), exchange.create_challenge(first)))
    last = await _receive_step(channel, limits)
    _check_admission(gateway, name, address=address)  # again, as simultaneous guesses may have failed meanwhile
    proof = exchange.check_proof(last)
    user = None
    if proof is None:
        gateway.turn_away(SURFACE, name, address=address)
    else:
        user = gateway.let_in(SURFACE, name, address=address)
    if proof is None or user is None:
        raise WireError(
            "28P01", "The name or the password is wrong.", hint="Ask the curator for a new password.", fatal=True
        )
    channel.send(message(b"R", (12).to_bytes(4), proof), message(b"R", bytes(4)))
    return user


def _check_admission(gateway: Gateway, name: str, *, address: str) -> None:
    if not gateway.admit(SURFACE, name, address=address):
        raise WireError("53300", "Too many logins failed.", hint="Try again in a few minutes.", fatal=True)


async def _receive_step(channel: Channel, limits: ClientLimits) -> bytes:
    await channel.flush()
    step = await channel.receive(max_bytes=limits.before_login)
    if not isinstance(step, PasswordMessage):
        raise Malformed("A message other than a step of the login was received.")
    return step.data


def initial_settings(startup: Startup) -> Settings:
    """Return the settings of a startup, its `options` first; the caller checks the role. Raise `WireError`."""
    requested = list[tuple[str, str]]()
    options, at = startup.parameters.get("options", "").strip(), 0
    while at < len(options):
        found = _OPTION.match(options, at)
        if found is None:
            hint = "Write them as options='-c name=value'."
            raise WireError("08P01", "The options of the connection cannot be parsed.", hint=hint)
        at = found.end()
        requested.append((found["name"].lower().replace("-", "_"), re.sub(r"\\(.)", r"\1", found["value"])))
    for name, value in startup.parameters.items():
        if name not in _NOT_SETTINGS and not name.startswith("_pq_."):
            requested.append((name.lower(), value))
    settings = Settings()
    for name, value in requested:
        settings = replace(settings, role=value) if name == "role" else settings.with_value(name, value)
    return settings


MECHANISM = "SCRAM-SHA-256"
# As in PostgreSQL, the user name n= is ignored: the startup packet has it, and libpq sends none here.
_FIRST = re.compile(r"(?P<header>[ny],,)(?P<bare>n=[^,]*,r=(?P<nonce>[\x21-\x2b\x2d-\x7e]{8,128})(?:,.*)?)", re.DOTALL)
_FINAL = re.compile(r"(?P<unproven>c=(?P<header>[^,]*),r=(?P<nonce>[^,]*)(?:,(?!p=).*)?),p=(?P<proof>[^,]*)", re.DOTALL)


def parse_initial_response(data: bytes) -> bytes:
    """Return the content of a client's first step; raise `Malformed`, also for another mechanism."""
    name, _, rest = data.partition(b"\0")
    if name != MECHANISM.encode():
        raise Malformed("The client chose a login mechanism that was not offered.")
    if int.from_bytes(rest[:4]) != len(rest) - 4:
        raise Malformed("A step of the login does not fit its length.")
    return rest[4:]


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
