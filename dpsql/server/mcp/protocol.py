"""MCP's server of the official SDK over the tools; every error is the result of a tool, with a code and a hint."""

from __future__ import annotations

import threading
from collections.abc import Callable
from importlib.metadata import version
from logging import getLogger
from typing import Any

import anyio
from mcp import types
from mcp.server import Server, ServerRequestContext

from dpsql.errors import BudgetExceeded, Error, Place, Refusal, Unsupported, UsageError
from dpsql.server.mcp.guide import INSTRUCTIONS
from dpsql.server.mcp.tools import TOOLS, Caller, Tool, ToolAnswer, encode_values
from dpsql.server.messages import convert_message
from dpsql.server.problem_details import fault

__all__ = ["Context", "build_server"]

Context = ServerRequestContext[Any, Any]
FindCaller = Callable[[Context, threading.Event], tuple[Caller, str]]
_SILENT = 100  # above every level, as the SDK logs tracebacks


def build_server(find_caller: FindCaller, *, log_fault: Callable[[Exception], None]) -> Server[Any]:
    """Return the server.

    `find_caller` gets the context of a request, and an event that is set when the request is cancelled. It returns the
    caller, and a name for the client: over HTTP a request is cancelled by another one, which is known by it.
    """
    running: dict[tuple[str, str], threading.Event] = {}
    for name in ("mcp", "sse_starlette"):
        getLogger(name).setLevel(_SILENT)

    async def list_tools(_: Context, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_describe(tool) for tool in TOOLS.values()])

    async def answer(caller: Caller, parameters: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            return _success(await _call(caller, parameters.name, arguments=parameters.arguments or {}))
        except Error as error:
            return _failure(caller.show(error))
        except Exception as error:  # noqa: BLE001 - its text could contain values
            log_fault(error)
            return _failure(fault())

    async def call_tool(context: Context, parameters: types.CallToolRequestParams) -> types.CallToolResult:
        cancelled = threading.Event()
        caller, client = find_caller(context, cancelled)
        key = client, str(context.request_id)
        running[key] = cancelled
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(_watch_cancellation, cancelled)
                result = await answer(caller, parameters)
                group.cancel_scope.cancel()
        finally:
            running.pop(key, None)
        return result

    async def cancel(context: Context, parameters: types.CancelledNotificationParams) -> None:
        _, client = find_caller(context, threading.Event())
        found = running.get((client, str(parameters.request_id)))
        if found is not None:
            found.set()

    server: Server[Any] = Server(
        "dpsql",
        version=version("dpsql"),
        title="dpsql",
        description="SQL about people under one privacy budget",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        get_tool_input_schema=lambda name: TOOLS[name].input_schema if name in TOOLS else None,
    )
    server.add_notification_handler("notifications/cancelled", types.CancelledNotificationParams, cancel)
    server.middleware.clear()  # that of OpenTelemetry measures the durations of private statements
    return server


async def _watch_cancellation(cancelled: threading.Event) -> None:
    """Set the event when the request is cancelled, which a thread that works for it does not notice."""
    try:
        await anyio.sleep_forever()
    finally:
        cancelled.set()


async def _call(caller: Caller, name: str, *, arguments: dict[str, Any]) -> ToolAnswer:
    tool = TOOLS.get(name)
    if tool is None:
        hint = f"The tools are {', '.join(TOOLS)}."
        raise UsageError("no-such-tool", "There is no such tool.", hint=hint)
    caller.require(tool.scope)
    hint = f"Send arguments that fit the input schema of the tool {name}."
    return await tool.act(caller, convert_message(arguments, tool.arguments, hint=hint))


def _describe(tool: Tool) -> types.Tool:
    return types.Tool(
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


def _success(result: ToolAnswer) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(text=result.text)], structured_content=encode_values(result.values)
    )


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
