"""HTTP server of the page: uvicorn on a socket of its own, without its signal handlers and its log."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import h11
import uvicorn
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from dpsql.errors import Error, Refusal
from dpsql.server.gateway import fault
from dpsql.server.http_requests import _USER, problem_response, stopping
from dpsql.server.limits import Holding, MemoryQuota, Pending, PendingConnections
from dpsql.server.telemetry import Telemetry

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


_SILENT = 100  # above every level, as its log contains tracebacks
_MAX_HEAD = 16_384  # bytes
_HEAD_SECONDS = 5.0
_HEALTH = "/healthz"
_MIN_CONNECTIONS = 100  # that may be open, even if fewer requests are answered at once
_SPEAKS_HTTPS = b"This port speaks HTTPS. Write https:// in the address.\n"
_PLAIN_REFUSED = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n"
_PLAIN_REFUSED += b"Content-Length: %d\r\n\r\n%b" % (len(_SPEAKS_HTTPS), _SPEAKS_HTTPS)


class Http:
    """A running HTTP server."""

    def __init__(self, server: uvicorn.Server, task: asyncio.Task[None], *, port: int) -> None:
        self._server, self._task = server, task
        self.port = port

    async def close(self, seconds: float) -> None:
        """Accept no more connections, wait `seconds` for current requests, and end."""
        self._server.config.timeout_graceful_shutdown = max(1, round(seconds))
        self._server.should_exit = True
        await self._task


async def serve_http(
    application: ASGIApp, address: tuple[str, int], *, tls: ssl.SSLContext | None, connections: int
) -> Http:
    """Listen on a host and port, port 0 for any; answer 503 to more than `connections` requests at once.

    A new connection is always accepted, and closes the longest idle one if there are too many. Raises `OSError`.
    """
    family, kind, protocol, _, place = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0]
    listening = socket.socket(family, kind, protocol)
    try:
        # A restarted server need not wait until the closed connections of the former one are forgotten (TIME_WAIT).
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
    except BaseException:
        listening.close()
        raise
    config = uvicorn.Config(
        _RequestLimit(application, connections),
        http=partial(_TimedConnection, pending=PendingConnections(max(connections, _MIN_CONNECTIONS)), tls=tls),  # type: ignore[arg-type]
        ws="none",
        lifespan="off",
        log_config=None,
        log_level=_SILENT,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=_MAX_HEAD,
    )
    server = _NotifyingServer(config)
    task = asyncio.create_task(server.serve(sockets=[listening]))
    waiting = asyncio.create_task(server.listens.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        waiting.cancel()
        await task
    return Http(server, task, port=listening.getsockname()[1])


class _NotifyingServer(uvicorn.Server):
    """Server that sets `listens` once it listens, and leaves signals to `dpsql serve`."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listens = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listens.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _RequestLimit:
    """Application with a limit on simultaneous requests; one place is reserved for the health check."""

    def __init__(self, application: ASGIApp, max_requests: int) -> None:
        self._application, self._max_requests = application, max_requests
        self._answering = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer 503."""
        if scope["type"] == "http" and scope["path"] != _HEALTH and self._answering + 1 >= max(2, self._max_requests):
            busy = PlainTextResponse("The server is busy; try again.", status_code=503, headers={"connection": "close"})
            await busy(scope, receive, send)
            return
        self._answering += 1
        try:
            await self._application(scope, receive, send)
        finally:
            self._answering -= 1


class _TimedConnection(H11Protocol):
    """Connection that is closed when no whole request arrives in time; uvicorn would wait for ever.

    It is counted as soon as it is accepted, so TLS begins here, once the first bytes are no plain HTTP.
    """

    def __init__(self, *args: Any, pending: PendingConnections, tls: ssl.SSLContext | None, **options: Any) -> None:  # noqa: ANN401 - uvicorn's
        super().__init__(*args, **options)
        self._connections, self._tls = pending, tls
        self._pending: Pending | None = None
        self._encrypting: asyncio.Task[None] | None = None
        self._unread: asyncio.Transport | None = None  # until the first bytes come where TLS is expected
        self._timer: asyncio.TimerHandle | None = None
        self._silence: asyncio.TimerHandle | None = None
        self._early_data = b""  # bytes that arrive with the end of the handshake

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        peer = transport.get_extra_info("peername")
        address = str(peer[0]) if isinstance(peer, tuple) else ""
        self._pending = self._connections.add(address, transport.abort, is_idle=self._is_idle)
        if self._tls is None:
            self._begin(transport)
        else:
            self._unread = transport
            self._silence = self.loop.call_later(_HEAD_SECONDS, transport.abort)

    async def _encrypt(self, transport: asyncio.Transport, context: ssl.SSLContext, *, hello: bytes) -> None:
        # after start_tls has connected its protocol, and before that reads further bytes
        self.loop.call_soon(self.loop.call_soon, _pass_on, transport, hello)
        encrypted: asyncio.Transport | None = None
        try:
            with suppress(OSError):
                encrypted = await self.loop.start_tls(
                    transport, self, context, server_side=True, ssl_handshake_timeout=_HEAD_SECONDS
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
        self._timer = self.loop.call_later(_HEAD_SECONDS, self._close_if_silent)
        if self._early_data:
            super().data_received(self._early_data)

    def data_received(self, data: bytes) -> None:
        if self._unread is not None and self._tls is not None:
            transport, self._unread = self._unread, None
            self._stop_waiting()
            if data[:1].isalpha():  # TLS begins with the byte 22, and a request in plain HTTP with a letter
                transport.write(_PLAIN_REFUSED)
                transport.close()
                return
            transport.pause_reading()
            self._encrypting = self.loop.create_task(self._encrypt(transport, self._tls, hello=data))
            return
        if self._pending is not None:
            self._pending.has_spoken = True
        if self._timer is None:
            self._early_data += data
        else:
            super().data_received(data)

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are not HTTP. A request before them that is being answered counts as abandoned."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        with suppress(h11.LocalProtocolError):  # a response has begun, so that no other can be sent
            super().send_400_response(msg)
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        self._stop_waiting()
        if self._timer is not None:
            self._timer.cancel()
            super().connection_lost(exc)

    def _stop_waiting(self) -> None:
        if self._silence is not None:
            self._silence.cancel()

    def _forget(self) -> None:
        if self._pending is not None:
            self._connections.remove(self._pending)

    def _is_idle(self) -> bool:
        """Return whether no whole request is being answered."""
        # A request whose body is still coming counts as idle, as a client can send it as slowly as it likes.
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def _close_if_silent(self) -> None:
        # `_before` is the request of five seconds ago. If it is still the last one, no other has come since then.
        if self.cycle is self._before and (self.cycle is None or self.cycle.response_complete):
            self.transport.close()
            return
        self._before = self.cycle
        self._timer = self.loop.call_later(_HEAD_SECONDS, self._close_if_silent)


def _pass_on(transport: asyncio.Transport, data: bytes) -> None:
    """Give bytes that were read already to the protocol that has the transport now."""
    protocol = transport.get_protocol()
    if isinstance(protocol, asyncio.BufferedProtocol) and not transport.is_closing():
        # asyncio's TLS protocol is buffered: bytes are put into its buffer, and then announced.
        memoryview(protocol.get_buffer(len(data)))[: len(data)] = data
        protocol.buffer_updated(len(data))


POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
_FOR_A_YEAR = "max-age=31536000"
_PIECE = 64 * 1024
_UNREAD, _UNREAD_OF_USER = 512 << 20, 64 << 20  # bytes of responses that clients have not read


class Guard:
    """An application around another: adds headers, and answers faults with one sentence, the same each time.

    A response is sent in pieces as the client reads it. One for which a user's unread responses leave no room is
    replaced by a problem; with little unread, any is sent.
    """

    def __init__(self, app: ASGIApp, *, telemetry: Telemetry, surface: str, secure: bool) -> None:
        headers = {**_HEADERS, **({"strict-transport-security": _FOR_A_YEAR} if secure else {})}
        self._app, self._telemetry, self._surface = app, telemetry, surface
        self._quota = MemoryQuota(_UNREAD, _UNREAD_OF_USER, full=_unread_error)
        self._headers = [(name.encode(), value.encode()) for name, value in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        response = _Response(send, headers=self._headers, quota=self._quota, scope=scope)
        try:
            await self._app(scope, receive, response.send)
        except ClientDisconnect:
            pass  # the client left in the middle of its request
        except asyncio.CancelledError:  # the server stops, and its grace is over
            if not response.has_begun:
                await response.fail(stopping(may_be_charged=scope["method"] == "POST"))
            raise
        except Exception as error:  # noqa: BLE001 - its text and frames could contain values
            self._telemetry.log_fault(error, surface=self._surface)
            if not response.has_begun:
                await response.fail(fault())


class _Response:
    """A response on its way to a client; what of its body was not read counts for the user until all of it is sent."""

    def __init__(self, send: Send, *, headers: list[tuple[bytes, bytes]], quota: MemoryQuota, scope: Scope) -> None:
        self._send, self._headers, self._quota, self._scope = send, headers, quota, scope
        self._holding: Holding | None = None
        self._is_replaced = False
        self.has_begun = False

    async def send(self, message: Message) -> None:
        """Send a part of a response, or a problem in place of one that there is no room for."""
        if self._is_replaced:
            return
        if message["type"] != "http.response.start":
            body = memoryview(message.get("body", b""))
            if len(body) <= _PIECE:
                await self._send(message)
                return
            for at in range(0, len(body), _PIECE):  # each when the client has read most of what came before
                more = at + _PIECE < len(body) or message.get("more_body", False)
                await self._send({**message, "body": bytes(body[at : at + _PIECE]), "more_body": more})
            return
        headers = message.get("headers", ())
        length = next((int(value) for name, value in headers if name.lower() == b"content-length"), 0)
        if length > _PIECE:
            quota = self._quota.of_user(self._scope.get(_USER, ""))
            try:
                self._holding = quota.hold(length, is_forced=quota.has_room)
            except Refusal as error:
                await self.fail(error)
                self._is_replaced = True
                return
        self.has_begun = True
        # An answer has values, so nothing is stored by a cache but what sets cache-control itself, such as static
        # files.
        is_cacheable = any(name.lower() == b"cache-control" for name, _ in headers)
        message["headers"] = [*headers, *self._headers, *([] if is_cacheable else [(b"cache-control", b"no-store")])]
        await self._send(message)

    async def fail(self, error: Error) -> None:
        """Send the problem of an error."""
        response = problem_response(error)
        start = {"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers}
        await self.send(start)
        await self.send({"type": "http.response.body", "body": response.body})


def _unread_error() -> Refusal:
    hint = "Read the responses that the server has sent, and send this again: what was charged is stored, and free."
    return Refusal("unread-answers", "This user has left too much unread.", hint=hint)
