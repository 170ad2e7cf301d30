"""Server of PostgreSQL's protocol: its connections and their limits, requests to cancel, and the end."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from hmac import compare_digest
from typing import TYPE_CHECKING

from dpsql.server.catalog.protocol import SystemCatalog
from dpsql.server.memory_quota import MemoryQuota, trim_memory
from dpsql.server.throttle import PendingConnections
from dpsql.server.wire.codec import Malformed
from dpsql.server.wire.connection import Conversation
from dpsql.server.wire.execution import Execution
from dpsql.server.wire.login import (
    SURFACE,
    CancelRequest,
    Startup,
    create_key,
    initial_settings,
    login,
    negotiate,
    reported_settings,
    session_messages,
)
from dpsql.server.wire.query_router import QueryRouter, ThreadRunner
from dpsql.server.wire.sqlstates import WireError, error_message, full_error, to_wire_error
from dpsql.server.wire.stream import Channel, ClientDisconnected, ClientLimits, ClientReader
from dpsql.server.wire.transaction import Transaction

if TYPE_CHECKING:
    from dpsql.server.gateway import Gateway
    from dpsql.server.users import User


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
                    if connection is not None and compare_digest(connection.key, startup.key):
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
            self._gateway.leave(SURFACE)

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
        reported = reported_settings(settings, version=self._catalog().version, user=user.name)
        key = create_key(startup.minor)
        self._last_number = number = self._find_free_number()
        channel.send(*session_messages(reported, number=number, key=key))
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

    def _find_free_number(self) -> int:
        """Return the next number after the last one that no open connection has."""
        number = self._last_number % _MAX_NUMBER + 1
        while number in self._connections:
            number = number % _MAX_NUMBER + 1
        return number


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
