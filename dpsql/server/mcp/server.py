"""MCP over streamable HTTP: each request carries a token of the JSON API, and is answered by itself.

There are no sessions, so a client keeps nothing open, and no server-sent events: an answer is one JSON document.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.requests import Request
from starlette.responses import Response

from dpsql.errors import Error, Refusal, UsageError
from dpsql.policy.settings import is_loopback
from dpsql.server.bodies import read_body
from dpsql.server.gateway import Gateway
from dpsql.server.http import Http, serve_http
from dpsql.server.http_requests import Guard, name_user
from dpsql.server.mcp.protocol import Context, build_server
from dpsql.server.messages import Statement
from dpsql.server.problem_details import choose_status, plain_problem, without_paths
from dpsql.server.statement_dispatch import StatementDispatch
from dpsql.server.tokens import Access
from dpsql.server.visits import digest_token

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

    from dpsql.answer import Answer
    from dpsql.session import Session

__all__ = ["PATH", "SURFACE", "McpServer", "serve_mcp"]

SURFACE, PATH = "mcp", "/mcp"
_CALLER = "dpsql.caller"  # the key of a request's scope
T = TypeVar("T")


class McpServer:
    """A running server of MCP."""

    def __init__(self, http: Http, *, stopping: asyncio.Event, task: asyncio.Task[None]) -> None:
        self._http, self._stopping, self._task = http, stopping, task
        self.port = http.port

    async def close(self, seconds: float) -> None:
        """Accept no more connections, wait `seconds` for current requests, and end."""
        await self._http.close(seconds)
        self._stopping.set()
        await self._task


async def serve_mcp(gateway: Gateway, address: tuple[str, int], *, tls: ssl.SSLContext | None) -> McpServer:
    """Listen on a host and port, port 0 for any. Raises `OSError`."""
    dispatch = StatementDispatch(gateway=gateway, surface=SURFACE)
    manager = StreamableHTTPSessionManager(
        build_server(_find_caller, log_fault=lambda error: gateway.telemetry.log_fault(error, surface=SURFACE)),
        json_response=True,
        stateless=True,
    )
    endpoint = _Endpoint(dispatch, manager, is_local=is_loopback(address[0]))
    guard = Guard(endpoint, telemetry=gateway.telemetry, surface=SURFACE, secure=tls is not None)
    http = await serve_http(guard, address, tls=tls, connections=gateway.service.policy.server.max_connections)
    begun, stopping = asyncio.Event(), asyncio.Event()

    async def run() -> None:
        async with manager.run():
            begun.set()
            await stopping.wait()

    task = asyncio.create_task(run())
    await begun.wait()
    return McpServer(http, stopping=stopping, task=task)


@dataclass(frozen=True, slots=True)
class _TokenCaller:
    """Analyst whose token came with a request; `gone` says that its client has left or cancelled it."""

    dispatch: StatementDispatch
    access: Access
    gone: threading.Event
    cancelled: threading.Event

    async def ask(self, statement: Statement) -> Answer:
        gateway = self.dispatch.gateway.with_implicit(statement.implicit)
        user = self.access.user
        return await self.dispatch.answer(
            user,
            lambda: gateway.ask(
                SURFACE,
                user,
                text=statement.sql,
                parameters=statement.parameters,
                stop=lambda: self.gone.is_set() or self.cancelled.is_set(),
            ),
        )

    async def look(self, act: Callable[[Session], T]) -> T:
        return await self.dispatch.look(self.access.user, act)

    def require(self, scope: str) -> None:
        self.access.require(scope)

    def show(self, error: Error) -> Error:
        return error if self.access.user.is_curator else without_paths(error)


def _find_caller(context: Context, cancelled: threading.Event) -> tuple[_TokenCaller, str]:
    assert context.request is not None  # noqa: S101 - the SDK passes on that of `_Endpoint`
    dispatch, access, gone = context.request.scope[_CALLER]
    token = context.request.headers["authorization"]
    return _TokenCaller(dispatch, access, gone, cancelled), digest_token(token).hex()


class _Endpoint:
    """Application of ASGI: checks origin and token, reads the body, and passes both on to the SDK."""

    def __init__(self, dispatch: StatementDispatch, manager: StreamableHTTPSessionManager, *, is_local: bool) -> None:
        self._dispatch, self._manager, self._is_local = dispatch, manager, is_local

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        try:
            access = self._check(request)
            body = await read_body(request)
        except Error as error:
            await _problem(error)(scope, receive, send)
            return
        name_user(scope, access.user.name)
        gone, departed = threading.Event(), asyncio.Event()
        unread: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            if unread:
                return unread.pop()
            await departed.wait()
            return {"type": "http.disconnect"}

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            gone.set()
            departed.set()

        watching = asyncio.create_task(watch())
        try:
            known = {**scope, _CALLER: (self._dispatch, access, gone)}
            await self._manager.handle_request(known, replay, send)
        finally:
            watching.cancel()

    def _check(self, request: Request) -> Access:
        if request.url.path != PATH:
            raise UsageError("no-such-page", "There is nothing here.", hint=f"The path of MCP is {PATH}.")
        if not _is_own_origin(request, is_local=self._is_local):
            hint = "Connect from a program that is no web page, to the address in the policy."
            raise Refusal("foreign-origin", "This request comes from another web site.", hint=hint)
        if request.method != "POST":  # no sessions, and so no stream of notifications
            raise UsageError("no-such-method", "This path needs the HTTP method POST.", hint="Send POST.")
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        access = self._dispatch.gateway.find_token(SURFACE, token.strip()) if scheme.lower() == "bearer" else None
        if access is None:
            command = "dpsql user token NAME LABEL --scope read --scope query"
            hint = f"A curator makes a token, and sends SIGHUP to the server: {command}"
            raise Refusal("login-required", "Send Authorization: Bearer, with a valid token.", hint=hint)
        return access


def _is_own_origin(request: Request, *, is_local: bool) -> bool:
    """Return whether a request is for this server by name, and not that of another site's page (DNS rebinding).

    A server on this machine only is reached by a name of this machine. Any other has a certificate, which names it.
    """
    host, origin = request.headers.get("host", ""), request.headers.get("origin")
    if is_local and not is_loopback(_find_host(f"//{host}")):
        return False
    if origin is None:
        return True
    return is_loopback(_find_host(origin)) if is_local else origin.partition("://")[2].lower() == host.lower()


def _find_host(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


def _problem(error: Error) -> Response:
    status = choose_status(error)
    headers = {}
    if status == status.UNAUTHORIZED:
        headers = {"www-authenticate": 'Bearer realm="dpsql"'}
    elif status == status.METHOD_NOT_ALLOWED:
        headers = {"allow": "POST"}
    body = json.dumps(plain_problem(error))
    return Response(body, status_code=status, media_type="application/problem+json", headers=headers)
