"""MCP over a small data set: a server in a thread, and clients of the official SDK."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import httpx2
from anyio import ClosedResourceError
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult
from support.server_kit import ACCOUNTS, POLICY, front_of

from dpsql.server.gateway import Gateway
from dpsql.server.mcp import serve_mcp

__all__ = ["Served", "call", "open_client", "serving_mcp", "text_of"]


@dataclass
class Served:
    """A running server: where it is, and what is behind it."""

    port: int
    front: Gateway
    log: StringIO

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def token(self, name: str = "ana", *scopes: str) -> str:
        user = self.front.users.get(name)
        assert user is not None
        return self.front.tokens.create(user, frozenset(scopes or ("read", "query")), users=self.front.users)

    def charges(self, user: str = "ana") -> int:
        return int(self.front.service.session(user).history.num_rows)


@contextmanager
def serving_mcp(folder: Path, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> Iterator[Served]:
    """Run a server as long as the block."""
    log = StringIO()
    front = front_of(folder, policy=POLICY + ACCOUNTS, log=log)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        server = asyncio.run_coroutine_threadsafe(serve_mcp(front, (host, 0), tls=tls), loop).result(30)
        try:
            yield Served(server.port, front, log)
        finally:
            asyncio.run_coroutine_threadsafe(server.close(5), loop).result(30)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        front.service.close()


@asynccontextmanager
async def open_client(
    url: str, token: str, *, mode: str = "auto", tls: ssl.SSLContext | bool = True
) -> AsyncIterator[Client]:
    """Yield a client.

    When it closes, the answer to a statement that it had cancelled may still come in. It fails then with an error of
    its own, which says nothing of the server.
    """
    headers = {"authorization": f"Bearer {token}"}
    closing = False
    try:
        async with (
            httpx2.AsyncClient(headers=headers, timeout=60, verify=tls) as http,
            Client(streamable_http_client(url, http_client=http), mode=mode) as client,
        ):
            yield client
            closing = True
    except* ClosedResourceError:
        if not closing:
            raise


def call(
    served: Served, tool: str, *, token: str | None = None, mode: str = "auto", **arguments: object
) -> CallToolResult:
    """Call one tool as ana, or with a token."""

    async def run() -> CallToolResult:
        async with open_client(served.url, token or served.token(), mode=mode) as client:
            return await client.call_tool(tool, arguments)

    return asyncio.run(run())


def text_of(result: CallToolResult) -> str:
    (content,) = result.content
    assert content.type == "text"
    return content.text
