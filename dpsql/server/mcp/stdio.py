"""MCP over standard streams: one session in this process, for the assistant that started it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import anyio
from anyio import CapacityLimiter
from mcp.server.stdio import stdio_server

from dpsql.errors import Error
from dpsql.server.mcp.protocol import Context, build_server
from dpsql.server.messages import Statement
from dpsql.server.telemetry import Telemetry

if TYPE_CHECKING:
    from dpsql.answer import Answer
    from dpsql.session import Session

__all__ = ["run_stdio"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _SessionCaller:
    """Analyst of the session; one thread at a time uses it."""

    session: Session
    limiter: CapacityLimiter
    cancelled: threading.Event

    async def ask(self, statement: Statement) -> Answer:
        return await self.look(
            lambda session: session.sql(
                statement.sql, statement.parameters, stop=self.cancelled.is_set, implicit=statement.implicit
            )
        )

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
