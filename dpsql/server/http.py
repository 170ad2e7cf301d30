"""The page's HTTP server: uvicorn on a socket of ours, which leaves signals to `dpsql serve` and writes no log."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.responses import PlainTextResponse
from uvicorn.protocols.http.h11_impl import H11Protocol

from dpsql.server.pending_connections import Pending, PendingConnections

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["Http", "serve_http"]

_SILENT = 100  # above every level: what it would say holds tracebacks
_LARGEST_HEAD = 16_384
_SLOWEST_HEAD = 5.0  # seconds
_HEALTH = "/healthz"
_LEAST_OPEN = 100  # connections that may be open, however few requests are answered at once


class Http:
    """An application that is being served, on a port."""

    def __init__(self, server: uvicorn.Server, task: asyncio.Task[None], *, port: int) -> None:
        self._server, self._task = server, task
        self.port = port

    async def close(self, seconds: float) -> None:
        """Let nobody in, wait so many seconds for the requests that are being answered, and end."""
        self._server.config.timeout_graceful_shutdown = max(1, round(seconds))
        self._server.should_exit = True
        await self._task


async def serve_http(
    application: ASGIApp, address: tuple[str, int], *, tls: ssl.SSLContext | None, connections: int
) -> Http:
    """Listen on a host and port, of which 0 is any; beyond so many requests at once the answer is 503.

    A new connection always gets in: of more than so many the longest idle one is closed. Raises `OSError`.
    """
    listening = _listen(address)
    config = uvicorn.Config(
        _Limited(application, connections),
        http=partial(_Prompt, pending=PendingConnections(max(connections, _LEAST_OPEN)), tls=tls),  # type: ignore[arg-type]
        ws="none",
        lifespan="off",
        log_config=None,
        log_level=_SILENT,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=_LARGEST_HEAD,
    )
    server = _Quiet(config)
    task = asyncio.create_task(server.serve(sockets=[listening]))
    waiting = asyncio.create_task(server.listens.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        waiting.cancel()
        await task
    return Http(server, task, port=listening.getsockname()[1])


class _Quiet(uvicorn.Server):
    """A server that says when it listens, and leaves the signals of the process to `dpsql serve`."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listens = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listens.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Limited:
    """An application that answers so many requests at once; one place among them is for the health check alone."""

    def __init__(self, application: ASGIApp, most: int) -> None:
        self._application, self._most = application, most
        self._answering = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer 503."""
        if scope["type"] == "http" and scope["path"] != _HEALTH and self._answering + 1 >= max(2, self._most):
            busy = PlainTextResponse("The server is busy; try again.", status_code=503, headers={"connection": "close"})
            await busy(scope, receive, send)
            return
        self._answering += 1
        try:
            await self._application(scope, receive, send)
        finally:
            self._answering -= 1


class _Prompt(H11Protocol):
    """A connection that is closed when no request comes, or half of one; uvicorn would wait for it without end.

    It is counted from the moment that it is accepted, so TLS begins here.
    """

    def __init__(self, *args: Any, pending: PendingConnections, tls: ssl.SSLContext | None, **options: Any) -> None:  # noqa: ANN401 - uvicorn's
        super().__init__(*args, **options)
        self._all, self._tls = pending, tls
        self._counted: Pending | None = None
        self._encrypting: asyncio.Task[None] | None = None
        self._look: asyncio.TimerHandle | None = None
        self._early = b""  # what arrived with the end of the handshake

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        peer = transport.get_extra_info("peername")
        address = str(peer[0]) if isinstance(peer, tuple) else ""
        self._counted = self._all.add(address, transport.abort, is_idle=self._is_idle)
        if self._tls is None:
            self._begin(transport)
        else:
            transport.pause_reading()
            self._encrypting = self.loop.create_task(self._encrypt(transport, self._tls))

    async def _encrypt(self, transport: asyncio.Transport, context: ssl.SSLContext) -> None:
        encrypted: asyncio.Transport | None = None
        try:
            with suppress(OSError):
                encrypted = await self.loop.start_tls(
                    transport, self, context, server_side=True, ssl_handshake_timeout=_SLOWEST_HEAD
                )
        finally:
            if encrypted is None:
                transport.abort()
                self._forget()
        if encrypted is not None:
            self._begin(encrypted)

    def _begin(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._before: object = None
        self._look = self.loop.call_later(_SLOWEST_HEAD, self._close_if_silent)
        if self._early:
            super().data_received(self._early)

    def data_received(self, data: bytes) -> None:
        if self._counted is not None:
            self._counted.has_spoken = True
        if self._look is None:
            self._early += data
        else:
            super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        if self._look is not None:
            self._look.cancel()
            super().connection_lost(exc)

    def _forget(self) -> None:
        if self._counted is not None:
            self._all.remove(self._counted)

    def _is_idle(self) -> bool:
        """Return whether no whole request is being answered."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def _close_if_silent(self) -> None:
        if self.cycle is self._before and (self.cycle is None or self.cycle.response_complete):
            self.transport.close()
            return
        self._before = self.cycle
        self._look = self.loop.call_later(_SLOWEST_HEAD, self._close_if_silent)


def _listen(address: tuple[str, int]) -> socket.socket:
    family, kind, protocol, _, place = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
    except BaseException:
        listening.close()
        raise
    return listening
