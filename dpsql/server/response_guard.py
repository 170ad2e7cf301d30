"""Headers of every response over HTTP, and a plain response to unexpected errors."""

from __future__ import annotations

import asyncio
import json

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dpsql.errors import Error
from dpsql.server.problem_details import choose_status, fault, plain_problem, stopping
from dpsql.server.telemetry import Telemetry

__all__ = ["POLICY", "Guard"]

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


class Guard:
    """An application around another: adds the headers, and answers faults with one sentence, the same each time."""

    def __init__(self, app: ASGIApp, *, telemetry: Telemetry, surface: str, secure: bool) -> None:
        headers = {**_HEADERS, **({"strict-transport-security": _FOR_A_YEAR} if secure else {})}
        self._app = app
        self._telemetry, self._surface = telemetry, surface
        self._headers = [(name.encode(), value.encode()) for name, value in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def sent(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                message["headers"] = [*message.get("headers", ()), *self._headers, *_cache_headers(message)]
            await send(message)

        try:
            await self._app(scope, receive, sent)
        except ClientDisconnect:
            pass  # the client left in the middle of its request
        except asyncio.CancelledError:  # the server stops, and its grace is over
            if not begun:
                await _fail(sent, stopping(may_be_charged=scope["method"] == "POST"))
            raise
        except Exception as error:  # noqa: BLE001 - its text and frames could contain values
            self._telemetry.log_fault(error, surface=self._surface)
            if not begun:
                await _fail(sent, fault())


def _cache_headers(message: Message) -> list[tuple[bytes, bytes]]:
    """Return the header that forbids caching, unless the response has its own."""
    if any(name.lower() == b"cache-control" for name, _ in message.get("headers", ())):
        return []
    return [(b"cache-control", b"no-store")]


async def _fail(send: Send, error: Error) -> None:
    body = json.dumps(plain_problem(error)).encode()
    headers = [(b"content-type", b"application/problem+json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": int(choose_status(error)), "headers": headers})
    await send({"type": "http.response.body", "body": body})
