"""The listening side: how many may come in, how a statement of one connection is cancelled by another, and the end."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hmac import compare_digest
from typing import TYPE_CHECKING

from dpsql.server.catalog.query_result import Catalog
from dpsql.server.pending_connections import Pending, PendingConnections
from dpsql.server.wire.codec import Malformed
from dpsql.server.wire.connection import Conversation
from dpsql.server.wire.execution import Execution
from dpsql.server.wire.portals import RowQuota
from dpsql.server.wire.query_router import QueryRouter
from dpsql.server.wire.session_start import configured, greeting, new_key, statuses
from dpsql.server.wire.sqlstates import WireError, error_message, failure_of, where
from dpsql.server.wire.startup import SURFACE, CancelRequest, Startup, login, negotiate
from dpsql.server.wire.stream import Channel, ClientDisconnected, ClientReader, Limits
from dpsql.server.wire.threads import Runner
from dpsql.server.wire.transaction import Transaction

if TYPE_CHECKING:
    from dpsql.server.gateway import Gateway
    from dpsql.server.users import User

__all__ = ["Wire", "serve_wire"]


DEFAULT_LIMITS = Limits()
_LAST_NUMBER = 2**31 - 1


@dataclass(frozen=True, slots=True)
class _Open:
    """A conversation, and the key that cancels its statements."""

    key: bytes
    conversation: Conversation


class Wire:
    """The server: connections, and the threads that they share; `close` ends it."""

    def __init__(self, front: Gateway, catalog: Catalog, *, tls: ssl.SSLContext | None, limits: Limits) -> None:
        self._front, self._catalog, self._tls, self._limits = front, catalog, tls, limits
        self._runner = Runner(limits.threads)
        self._room = RowQuota(limits.rows)
        self._open: dict[int, _Open] = {}
        self._of_one = Counter[str]()
        self._pending = PendingConnections(limits.logins)
        self._next = 1
        self._is_closing = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def listen(self, address: tuple[str, int]) -> None:
        """Begin to listen; raises `OSError`."""
        loop = asyncio.get_running_loop()

        def protocol() -> asyncio.StreamReaderProtocol:
            return asyncio.StreamReaderProtocol(ClientReader(), self._accept)

        self._server = await loop.create_server(protocol, *address)

    @property
    def port(self) -> int:
        """The port that is listened on; of several addresses the first one's."""
        return 0 if self._server is None else int(self._server.sockets[0].getsockname()[1])

    async def close(self, seconds: float = 30.0) -> None:
        """Let nobody in any more, wait so long for statements that run, tell every client, and hang up.

        A private statement that still runs then is waited for, though its client is not.
        """
        self._is_closing = True  # who was accepted and not met yet is hung up on
        if self._server is not None:
            self._server.close()
        for one in list(self._open.values()):
            one.conversation.stop()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=seconds)
        for task in set(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=1)
        await self._runner.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        try:
            await self._attend(Channel(reader, writer, limits=self._limits))
        except asyncio.CancelledError:  # `close` has waited long enough for this client
            writer.transport.abort()

    async def _attend(self, channel: Channel) -> None:
        try:
            await self._serve(channel)
        except (WireError, Malformed) as error:
            failure = failure_of(error)
            failure.fatal = True
            channel.send(error_message(failure))
        except ClientDisconnected:
            pass
        except Exception as error:  # noqa: BLE001 - its words could hold anything
            self._front.watch.log("fault", surface=SURFACE, kind=type(error).__name__, where=where(error))
            failure = failure_of(error)
            failure.fatal = True
            channel.send(error_message(failure))
        finally:
            await channel.close()

    async def _serve(self, channel: Channel) -> None:
        if self._is_closing:
            return
        pending = self._pending.add(channel.address, channel.abort)
        try:
            wish = await self._met(channel, pending)
        finally:
            self._pending.remove(pending)
        if wish is not None:
            startup, user = wish
            with self._counted(user.name):
                await self._converse(channel, startup, user=user)

    async def _met(self, channel: Channel, pending: Pending) -> tuple[Startup, User] | None:
        """Return who has come in and what they want, or None for one who only cancels; raises `WireError`."""
        try:
            async with asyncio.timeout(self._limits.login_seconds):
                async with asyncio.timeout(self._limits.first_seconds):
                    wish = await negotiate(channel, self._tls)
                pending.has_spoken = True
                if isinstance(wish, CancelRequest):
                    self._cancel(wish)
                    return None
                return wish, await login(channel, wish, front=self._front, limits=self._limits)
        except TimeoutError:
            raise WireError("08006", "The login took too long.", hint="Connect again.", fatal=True) from None

    def _cancel(self, wish: CancelRequest) -> None:
        found = self._open.get(wish.number)
        if found is not None and compare_digest(found.key, wish.key):
            found.conversation.give_up()

    @contextmanager
    def _counted(self, name: str) -> Iterator[None]:
        if self._of_one[name] >= self._limits.connections_of_one or not self._front.enter(SURFACE):
            raise WireError("53300", "There are too many connections.", hint="Close some, or try later.", fatal=True)
        try:
            with _one_of(self._of_one, name):
                yield
        finally:
            self._front.leave(SURFACE)

    async def _converse(self, channel: Channel, startup: Startup, *, user: User) -> None:
        settings = configured(startup)
        asker = QueryRouter(self._front, self._catalog, runner=self._runner, user=user)
        execution = Execution(self._front, asker, transaction=Transaction(replace(settings, role="")), room=self._room)
        if settings.role:
            execution.begin_as(settings.role)
        told = greeting(settings, version=self._catalog.version, user=user.name)
        number, key = self._number(), new_key(startup.minor)
        channel.send(*statuses(told, number=number, key=key))
        conversation = Conversation(channel, execution, limits=self._limits, told=told)
        channel.on_end(conversation.give_up)
        self._open[number] = _Open(key, conversation)
        try:
            await conversation.hold()
        finally:
            conversation.give_up()
            del self._open[number]

    def _number(self) -> int:
        """Return a number that no open connection has."""
        while True:
            self._next = self._next % _LAST_NUMBER + 1
            if self._next not in self._open:
                return self._next


@contextmanager
def _one_of(counts: Counter[str], name: str) -> Iterator[None]:
    """Count one more under a name while the body runs; who has none is forgotten."""
    counts[name] += 1
    try:
        yield
    finally:
        counts[name] -= 1
        if not counts[name]:
            del counts[name]


async def serve_wire(
    front: Gateway,
    address: tuple[str, int],
    *,
    tls: ssl.SSLContext | None,
    catalog: Catalog,
    limits: Limits = DEFAULT_LIMITS,
) -> Wire:
    """Listen on an address, port 0 for any, and return the server, which `close` ends; raises `OSError`."""
    wire = Wire(front, catalog, tls=tls, limits=limits)
    await wire.listen(address)
    return wire
