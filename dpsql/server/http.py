"""The page's HTTP server: uvicorn on a socket of ours, which leaves signals to `dpsql serve` and writes no log."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    from starlette.types import ASGIApp

__all__ = ["Http", "serve_http"]

_SILENT = 100  # above every level: what it would say holds tracebacks
_LARGEST_HEAD = 16_384
_SLOWEST_HEAD = 10.0  # seconds


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
    """Listen on a host and port, of which 0 is any; beyond so many connections the answer is 503. Raises `OSError`."""
    listening = _listen(address)
    config = uvicorn.Config(
        application,
        http=_Prompt,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level=_SILENT,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=connections,
        h11_max_incomplete_event_size=_LARGEST_HEAD,
        ssl_context_factory=None if tls is None else lambda _config, _usual: tls,
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


class _Prompt(H11Protocol):
    """A connection that is closed when no request comes, or half of one; uvicorn would wait for it without end."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._before: object = None
        self._look = self.loop.call_later(_SLOWEST_HEAD, self._close_if_silent)

    def connection_lost(self, exc: Exception | None) -> None:
        self._look.cancel()
        super().connection_lost(exc)

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
