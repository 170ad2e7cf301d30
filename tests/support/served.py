"""`dpsql serve` with a surface of its own: a line is a user and a statement, answered by a line of JSON."""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import time

from dpsql.cli import main
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.errors import Error
from dpsql.server import serve
from dpsql.server.gateway import Gateway
from dpsql.server.users import User


class Lines:
    """The surface."""

    def __init__(self, front: Gateway) -> None:
        self.front = front
        self.port = 0
        self.talks: set[asyncio.Task[None]] = set()

    async def listen(self, host: str, port: int, *, tls: ssl.SSLContext | None) -> None:
        self.server = await asyncio.start_server(self.talk, host, port, ssl=tls)
        self.port = self.server.sockets[0].getsockname()[1]

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.talks.add(task)
        while line := await reader.readline():
            name, _, text = line.decode().rstrip("\n").partition(" ")
            writer.write(json.dumps(await asyncio.to_thread(self.answer, name, text)).encode() + b"\n")
            await writer.drain()

    def answer(self, name: str, text: str) -> object:
        try:
            answer = self.front.ask("lines", User(name), act=lambda session, stop: session.sql(text, stop=stop))
        except Error as error:
            return error.code
        return [answer.receipt.items_charged, answer.receipt.replayed, answer.arrow().num_rows]

    async def close(self, seconds: float) -> None:
        self.server.close()
        await asyncio.wait(self.talks, timeout=seconds) if self.talks else None
        for task in self.talks:
            task.cancel()


async def start(front: Gateway, address: tuple[str, int], *, tls: ssl.SSLContext | None) -> serve.Listening:
    lines = Lines(front)
    await lines.listen(*address, tls=tls)
    return serve.Listening(f"{address[0]}:{lines.port}", lines.close)


def slowly(seconds: float) -> None:
    """Let every statement take so long."""
    plain = DuckDBEngine.execute

    def execute(self: DuckDBEngine, statement: object, **options: object) -> object:
        time.sleep(seconds)
        return plain(self, statement, **options)  # type: ignore[arg-type]

    DuckDBEngine.execute = execute  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    serve.STARTERS["postgres"] = start
    slowly(float(sys.argv[2]))
    sys.argv[1:] = ["serve", "--policy", sys.argv[1]]
    main()
