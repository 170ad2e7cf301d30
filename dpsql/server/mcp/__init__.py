"""MCP's server of the official SDK over the tools, on standard streams and over streamable HTTP.

Every error is the result of a tool, with a code and a hint. Over standard streams there is one session in this process,
for the assistant that started it. Over HTTP each request carries a token of the JSON API, and is answered by itself:
there are no sessions, so a client keeps nothing open, and no server-sent events, as an answer is one JSON document.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from logging import getLogger
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import anyio
from anyio import CapacityLimiter
from mcp import types
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.requests import Request
from starlette.responses import Response

from dpsql.errors import BudgetExceeded, Error, Place, Refusal, Unsupported, UsageError
from dpsql.policy.settings import is_loopback
from dpsql.server.gateway import Gateway, fault
from dpsql.server.http import Guard, Http, serve_http
from dpsql.server.http_requests import (
    StatementBody,
    StatementDispatch,
    choose_status,
    convert_message,
    name_user,
    problem_response,
    read_body,
    watch_client,
)
from dpsql.server.mcp.tools import INSTRUCTIONS, TOOLS, Caller
from dpsql.server.telemetry import Telemetry
from dpsql.server.users import Access, digest_token

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

    from dpsql.answer import Answer
    from dpsql.session import Session


Context = ServerRequestContext[Any, Any]
FindCaller = Callable[[Context, threading.Event], tuple[Caller, str]]
_SILENT = 100  # above every level, as the SDK logs tracebacks


class _Handlers:
    """Answers to the requests of clients, and the events of those that run, which cancel them."""

    def __init__(self, find_caller: FindCaller, *, log_fault: Callable[[Exception], None]) -> None:
        self._find_caller, self._log_fault = find_caller, log_fault
        self._running: dict[tuple[str, str], threading.Event] = {}

    async def list_tools(self, _: Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        """Return the tools with their schemas."""
        tools = [
            types.Tool(
                name=tool.name,
                title=tool.title,
                description=tool.description,
                input_schema=tool.input_schema,
                output_schema=tool.output_schema,
                annotations=types.ToolAnnotations(
                    read_only_hint=tool.scope == "read",  # a query uses budget
                    destructive_hint=False,
                    idempotent_hint=True,
                    open_world_hint=False,
                ),
            )
            for tool in TOOLS.values()
        ]
        return types.ListToolsResult(tools=tools)

    async def call_tool(self, context: Context, parameters: types.CallToolRequestParams) -> types.CallToolResult:
        """Return the result of a tool, which a notification or the end of the request cancels."""
        cancelled = threading.Event()
        caller, client = self._find_caller(context, cancelled)
        # Clients number their requests themselves, so two clients use the same numbers.
        key = client, str(context.request_id)
        self._running[key] = cancelled

        async def watch() -> None:
            try:
                await anyio.sleep_forever()
            finally:  # the request is cancelled, which a thread that works for it does not notice
                cancelled.set()

        try:
            async with anyio.create_task_group() as group:
                group.start_soon(watch)
                result = await self._answer(caller, parameters.name, arguments=parameters.arguments or {})
                group.cancel_scope.cancel()
        finally:
            self._running.pop(key, None)
        return result

    async def cancel(self, context: Context, parameters: types.CancelledNotificationParams) -> None:
        """Cancel another request of the client."""
        _, client = self._find_caller(context, threading.Event())
        found = self._running.get((client, str(parameters.request_id)))
        if found is not None:
            found.set()

    async def _answer(self, caller: Caller, name: str, *, arguments: dict[str, Any]) -> types.CallToolResult:
        try:
            tool = TOOLS.get(name)
            if tool is None:
                hint = f"The tools are {', '.join(TOOLS)}."
                raise UsageError("no-such-tool", "There is no such tool.", hint=hint)  # noqa: TRY301 - shown as others
            caller.require(tool.scope)
            hint = f"Send arguments that fit the input schema of the tool {name}."
            result = await tool.act(caller, convert_message(arguments, tool.arguments, hint=hint))
            values = json.loads(json.dumps(result.values, default=str))  # what JSON does not have becomes text
        except Error as error:
            return _failure(caller.show(error))
        except Exception as error:  # noqa: BLE001 - its text could contain values
            self._log_fault(error)
            return _failure(fault())
        return types.CallToolResult(content=[types.TextContent(text=result.text)], structured_content=values)


def build_server(find_caller: FindCaller, *, log_fault: Callable[[Exception], None]) -> Server[Any]:
    """Return the server.

    `find_caller` gets the context of a request, and an event that is set when the request is cancelled. It returns the
    caller, and a name for the client: over HTTP a request is cancelled by another one, which is known by it.
    """
    for name in ("mcp", "sse_starlette"):
        getLogger(name).setLevel(_SILENT)
    handlers = _Handlers(find_caller, log_fault=log_fault)
    server: Server[Any] = Server(
        "dpsql",
        version=version("dpsql"),
        title="dpsql",
        description="SQL about people under one privacy budget",
        instructions=INSTRUCTIONS,
        on_list_tools=handlers.list_tools,
        on_call_tool=handlers.call_tool,
        get_tool_input_schema=lambda name: TOOLS[name].input_schema if name in TOOLS else None,
    )
    server.add_notification_handler("notifications/cancelled", types.CancelledNotificationParams, handlers.cancel)
    server.middleware.clear()  # that of OpenTelemetry measures the durations of private statements
    return server


def _failure(error: Error) -> types.CallToolResult:
    """Return an error as the result of a tool, which a language model reads and can correct itself by."""
    place = error.place
    where = None if place is None else str(place)
    if isinstance(place, Place):
        where = f"line {place.line}, column {place.column}"
    is_free = isinstance(error, Refusal | Unsupported | BudgetExceeded | UsageError) and not error.charge
    charged = "\nNothing was charged." if is_free else ""
    values = {"code": error.code, "reason": error.reason, "hint": error.hint, "place": where}
    return types.CallToolResult(
        content=[types.TextContent(text=f"{error}{charged}")], structured_content={"error": values}, is_error=True
    )


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _SessionCaller:
    """Analyst of the session; one thread at a time uses it."""

    session: Session
    limiter: CapacityLimiter
    cancelled: threading.Event

    async def ask(self, statement: StatementBody) -> Answer:
        return await self.look(lambda session: statement.run(session, self.cancelled.is_set))

    async def look(self, act: Callable[[Session], T]) -> T:
        return await anyio.to_thread.run_sync(lambda: act(self.session), limiter=self.limiter)

    def require(self, scope: str) -> None:
        """Allow everything: the user who starts the process can read the data."""

    def show(self, error: Error) -> Error:
        return error


def run_stdio(session: Session) -> None:
    """Answer requests from standard input until it ends; statements that run are settled first."""

    async def serve() -> None:
        limiter, telemetry = CapacityLimiter(1), Telemetry(sys.stderr)

        def find_caller(_: Context, cancelled: threading.Event) -> tuple[_SessionCaller, str]:
            return _SessionCaller(session, limiter, cancelled), ""

        server = build_server(find_caller, log_fault=lambda error: telemetry.log_fault(error, surface="mcp"))
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())

    anyio.run(serve)


SURFACE, PATH = "mcp", "/mcp"
_CALLER = "dpsql.caller"  # the key of a request's scope


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

    def find_caller(context: Context, cancelled: threading.Event) -> tuple[_TokenCaller, str]:
        assert context.request is not None  # noqa: S101 - the SDK passes on that of `_Endpoint`
        access, gone = context.request.scope[_CALLER]
        token = context.request.headers["authorization"]
        return _TokenCaller(dispatch, access, gone, cancelled), digest_token(token).hex()

    manager = StreamableHTTPSessionManager(
        build_server(find_caller, log_fault=lambda error: gateway.telemetry.log_fault(error, surface=SURFACE)),
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

    async def ask(self, statement: StatementBody) -> Answer:
        return await self.dispatch.answer(
            self.access.user,
            statement.run_within(self.access),
            stop=lambda: self.gone.is_set() or self.cancelled.is_set(),
        )

    async def look(self, act: Callable[[Session], T]) -> T:
        return await self.dispatch.look(self.access.user, act)

    def require(self, scope: str) -> None:
        self.access.require(scope)

    def show(self, error: Error) -> Error:
        return self.dispatch.refuse(self.access.user, error)


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
        gone = threading.Event()
        watching = asyncio.create_task(watch_client(receive, gone))
        # The body was read here, within limits, and the SDK reads it again from `replay`. Only `watching` may still
        # call `receive`, so the SDK learns from it that the client has left.
        unread: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            if unread:
                return unread.pop()
            await asyncio.wait({watching})
            return {"type": "http.disconnect"}

        try:
            known = {**scope, _CALLER: (access, gone)}
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
        access, address = None, "" if request.client is None else request.client.host
        if scheme.lower() == "bearer":
            access = self._dispatch.gateway.find_token(SURFACE, token.strip(), address=address)
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
    # A page of evil.example, a name that now resolves to 127.0.0.1, makes the browser send "Host: evil.example".
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
    return problem_response(error, headers=headers)
