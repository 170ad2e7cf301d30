"""Headers of every response over HTTP, a limit on what clients leave unread, and a response to unexpected errors."""

from __future__ import annotations

import asyncio
import json

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dpsql.errors import Error, Refusal
from dpsql.server.memory_quota import Holding, MemoryQuota
from dpsql.server.problem_details import choose_status, fault, plain_problem, stopping
from dpsql.server.telemetry import Telemetry

__all__ = ["POLICY", "Guard", "name_user"]

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
_USER = "dpsql.user"


def name_user(scope: Scope, name: str) -> None:
    """Say for whom a request is answered: what is not read counts for this user."""
    scope[_USER] = name


class Guard:
    """An application around another: adds headers, and answers faults with one sentence, the same each time.

    A response is sent in pieces as the client reads it. One for which a user's unread responses leave no room is
    replaced by a problem; with little unread, any is sent.
    """

    def __init__(self, app: ASGIApp, *, telemetry: Telemetry, surface: str, secure: bool) -> None:
        headers = {**_HEADERS, **({"strict-transport-security": _FOR_A_YEAR} if secure else {})}
        self._app = app
        self._telemetry, self._surface = telemetry, surface
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
            await _send_pieces(self._send, message)
            return
        try:
            self._hold(message)
        except Refusal as error:
            await self.fail(error)
            self._is_replaced = True
            return
        self.has_begun = True
        message["headers"] = [*message.get("headers", ()), *self._headers, *_cache_headers(message)]
        await self._send(message)

    async def fail(self, error: Error) -> None:
        """Send the problem of an error."""
        body = json.dumps(plain_problem(error)).encode()
        headers = [(b"content-type", b"application/problem+json"), (b"content-length", str(len(body)).encode())]
        await self.send({"type": "http.response.start", "status": int(choose_status(error)), "headers": headers})
        await self.send({"type": "http.response.body", "body": body})

    def _hold(self, start: Message) -> None:
        """Count the body; raise `Refusal` if too much is unread."""
        length = next((value for name, value in start.get("headers", ()) if name.lower() == b"content-length"), b"0")
        if int(length) > _PIECE:
            quota = self._quota.of_user(self._scope.get(_USER, ""))
            self._holding = quota.hold(int(length), is_forced=quota.has_room)


async def _send_pieces(send: Send, message: Message) -> None:
    """Send a body in pieces, each when the client has read most of what came before."""
    body = memoryview(message.get("body", b""))
    if len(body) <= _PIECE:
        await send(message)
        return
    for at in range(0, len(body), _PIECE):
        more = at + _PIECE < len(body) or message.get("more_body", False)
        await send({**message, "body": bytes(body[at : at + _PIECE]), "more_body": more})


def _unread_error() -> Refusal:
    hint = "Read the responses that the server has sent, and send this again: what was charged is stored, and free."
    return Refusal("unread-answers", "This user has left too much unread.", hint=hint)


def _cache_headers(message: Message) -> list[tuple[bytes, bytes]]:
    """Return the header that forbids caching, unless the response has its own."""
    if any(name.lower() == b"cache-control" for name, _ in message.get("headers", ())):
        return []
    return [(b"cache-control", b"no-store")]
