"""Guard in front of pyarrow's Flight server: TLS, admission of connections, and limits on what they send.

pyarrow's server listens on a Unix socket in a private directory. It accepts messages of any length, does not say where
a call comes from, and has no limit on connections. It therefore receives only what the guard forwards.
"""

from __future__ import annotations

import asyncio
import itertools
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING

from dpsql.server.flight.frames import FRAME_HEAD, LARGEST_FRAME, PREFACE, Frame, Hostile, Watchman
from dpsql.server.flight.login import DOOR, SURFACE
from dpsql.server.pending_connections import Pending, PendingConnections

if TYPE_CHECKING:
    from dpsql.server.flight.login import Doors
    from dpsql.server.gateway import Gateway

__all__ = ["Guard"]

_LOGIN_SECONDS = 10.0  # until a call of a connection is a user's
_HANDSHAKE_SECONDS = 5.0  # of TLS
_MOST_PENDING = 200  # connections that are no user's yet
_IDLE_SECONDS = 1800.0  # without a byte from the client; it connects again by itself
_STALLED_SECONDS = 60.0  # in which a client takes nothing of what is sent
_CHUNK = 64 * 1024
_FRAMES_AT_ONCE = 32
_ENDED = (OSError, EOFError, Hostile, TimeoutError, ssl.SSLError)


class Guard:
    """Lets connections through to the server behind it; made on the loop on which it runs."""

    def __init__(self, gateway: Gateway, doors: Doors, *, inside: str) -> None:
        self._gateway = gateway
        self._doors = doors
        self._inside = inside
        self._connections: set[asyncio.Task[None]] = set()
        self._pending = PendingConnections(_MOST_PENDING)
        self._tls: ssl.SSLContext | None = None
        self._server: asyncio.Server | None = None

    async def listen(self, address: tuple[str, int], *, tls: ssl.SSLContext | None) -> int:
        """Begin to listen, and return the port."""
        host, port = address
        self._tls = tls
        self._server = await asyncio.start_server(self._meet, host, port)
        return int(self._server.sockets[0].getsockname()[1])

    def refuse(self) -> None:
        """Accept no further connections; existing ones stay."""
        if self._server is not None:
            self._server.close()

    async def close(self) -> None:
        """End every connection."""
        self.refuse()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)
        host = str(writer.get_extra_info("peername")[0])
        pending = self._pending.add(host, writer.transport.abort)
        try:
            if self._tls is not None:  # only now: a client that says nothing is counted already
                await writer.start_tls(self._tls, ssl_handshake_timeout=_HANDSHAKE_SECONDS)
            await self._connect(reader, writer, host=host, pending=pending)
        except (*_ENDED, asyncio.CancelledError):
            pass
        finally:
            self._pending.remove(pending)
            writer.transport.abort()

    async def _connect(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, host: str, pending: Pending
    ) -> None:
        """Pass on what both sides send, until one of them ends or the client does what it may not."""
        inside, out = await asyncio.open_unix_connection(self._inside)
        loop, proved = asyncio.get_running_loop(), asyncio.Event()
        door = self._doors.open(host, lambda: loop.call_soon_threadsafe(proved.set))
        watchman = Watchman((DOOR.encode(), door.encode()))
        passing = (
            asyncio.ensure_future(self._inward(reader, out, watchman=watchman)),
            asyncio.ensure_future(_outward(inside, writer)),
            asyncio.ensure_future(self._belong(proved, pending)),
        )
        try:
            done, _ = await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.exception()
        finally:
            self._doors.close(door)
            for transport in (out.transport, writer.transport):
                transport.abort()
            for task in passing:
                task.cancel()
            await asyncio.gather(*passing, return_exceptions=True)

    async def _inward(self, reader: asyncio.StreamReader, out: asyncio.StreamWriter, *, watchman: Watchman) -> None:
        preface = await reader.readexactly(len(PREFACE))
        if preface != PREFACE:
            raise Hostile
        out.write(preface)
        for count in itertools.count():
            if not count % _FRAMES_AT_ONCE:
                await asyncio.sleep(0)  # others are served between, however small the frames are
            async with asyncio.timeout(_IDLE_SECONDS):
                head = await reader.readexactly(FRAME_HEAD)
            size = int.from_bytes(head[:3])
            if size > LARGEST_FRAME:
                raise Hostile
            async with asyncio.timeout(_STALLED_SECONDS):
                payload = await reader.readexactly(size)
            out.write(watchman.passed(Frame.headed(head, payload)))
            await out.drain()

    async def _belong(self, proved: asyncio.Event, pending: Pending) -> None:
        """Count the connection as a user's once a call of it is; return if none is in time, or there are too many."""
        async with asyncio.timeout(_LOGIN_SECONDS):
            await proved.wait()
        self._pending.remove(pending)
        if self._gateway.enter(SURFACE):
            try:
                await asyncio.Event().wait()
            finally:
                self._gateway.leave(SURFACE)


async def _outward(inside: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await inside.read(_CHUNK):
        writer.write(data)
        async with asyncio.timeout(_STALLED_SECONDS):
            await writer.drain()
    with suppress(OSError):
        writer.write_eof()
