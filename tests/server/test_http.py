"""The HTTP server under the page: it ends in order, writes nothing, and takes no more connections than it may."""

from __future__ import annotations

import asyncio
import io
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import pytest
import trustme
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from dpsql.server.http import Guard, Http, serve_http
from dpsql.server.http_requests import name_user
from dpsql.server.telemetry import Telemetry

SECRET = "secret-value"
HOST = "127.0.0.1"


async def client(request: Request) -> PlainTextResponse:
    return PlainTextResponse("" if request.client is None else request.client.host)


async def slow(_: Request) -> PlainTextResponse:
    await asyncio.sleep(0.5)
    return PlainTextResponse("done")


async def broken(_: Request) -> PlainTextResponse:
    raise KeyError(SECRET)


async def echo(request: Request) -> PlainTextResponse:
    return PlainTextResponse((await request.body()).decode())


async def stream(_: Request) -> StreamingResponse:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"part"
            await asyncio.sleep(0.1)

    return StreamingResponse(parts())


ROUTES = [
    Route("/client", client, methods=["GET", "POST"]),
    Route("/slow", slow, methods=["GET", "POST"]),
    Route("/broken", broken),
    Route("/echo", echo, methods=["POST"]),
    Route("/stream", stream, methods=["GET", "POST"]),
]
APPLICATION = Starlette(routes=ROUTES)
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"


async def asked(http: Http, path: str, *, tls: ssl.SSLContext | None = None, head: str = "") -> str:
    name = None if tls is None else "localhost"
    reader, writer = await asyncio.open_connection(HOST, http.port, ssl=tls, server_hostname=name)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{head}\r\n".encode())
    answer = await reader.read()
    writer.close()
    return answer.decode()


def trial(act: Callable[[Http], Awaitable[object]], *, tls: ssl.SSLContext | None = None, connections: int = 9) -> None:
    async def run() -> None:
        http = await serve_http(APPLICATION, (HOST, 0), tls=tls, connections=connections)
        try:
            await act(http)
        finally:
            await http.close(5.0)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(HOST, http.port)

    asyncio.run(run())


def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the contexts of a server and of a client that trusts it."""
    authority, trusting = trustme.CA(), ssl.create_default_context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.configure_trust(trusting)
    return context, trusting


def test_the_address_of_the_peer_is_its_own_whatever_headers_say() -> None:
    async def act(http: Http) -> None:
        answer = await asked(http, "/client", head="X-Forwarded-For: 10.9.9.9\r\n")
        assert answer.endswith(HOST)
        assert "uvicorn" not in answer

    trial(act)


def test_a_fault_is_not_written_anywhere(capfd: pytest.CaptureFixture[str]) -> None:
    async def act(http: Http) -> None:
        answer = await asked(http, "/broken")
        assert answer.startswith("HTTP/1.1 500")
        assert SECRET not in answer
        assert (await asked(http, "/ no such HTTP")).startswith("HTTP/1.1 400")

    trial(act)
    assert capfd.readouterr() == ("", "")


BAD_ENDS = (
    CHUNKED + b"zz\r\n",
    CHUNKED + b"5\r\nabcdefgh\r\n",
    CHUNKED + b"2\r\nab\r\n-1\r\n",
    CHUNKED + b"0\r\nbad trailer\r\n\r\n",
    CHUNKED + b"1" * 40 + b"\r\n",
    b"Content-Length: 5\r\n\r\nab",
    b"Content-Length: 2\r\n\r\nab\0\0 no such HTTP\r\n\r\n",
    b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n",
)


@pytest.mark.parametrize("path", ["/client", "/slow", "/echo", "/stream", "/none"])
def test_a_request_that_ends_badly_is_no_fault_of_ours(path: str) -> None:
    """The rest of the request comes with its head, or when the application was called already."""
    faults = list[BaseException | str]()

    async def watched(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await APPLICATION(scope, receive, send)
        except ClientDisconnect:
            pass
        except BaseException as error:
            faults.append(error)
            raise

    async def send(http: Http, rest: bytes, *, pause: float) -> None:
        head, _, body = rest.partition(b"\r\n\r\n")
        reader, writer = await asyncio.open_connection(HOST, http.port)
        writer.write(f"POST {path} HTTP/1.1\r\nHost: x\r\n".encode() + head + b"\r\n\r\n" + (b"" if pause else body))
        if pause:
            await asyncio.sleep(pause)
            writer.write(body)
        writer.write_eof()
        with suppress(OSError):
            answer = await asyncio.wait_for(reader.read(), 5)
            assert not answer or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 2", b"HTTP/1.1 100"))
        writer.close()

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(str(context)))
        http = await serve_http(watched, (HOST, 0), tls=None, connections=50)
        await asyncio.gather(*(send(http, rest, pause=pause) for rest in BAD_ENDS for pause in (0.0, 0.05)))
        await http.close(5.0)

    asyncio.run(run())
    assert faults == []


def test_what_is_being_answered_when_it_closes_is_answered() -> None:
    async def act(http: Http) -> None:
        answering = asyncio.create_task(asked(http, "/slow"))
        await asyncio.sleep(0.2)
        await http.close(5.0)
        assert (await answering).endswith("done")

    trial(act)


@pytest.mark.parametrize(("method", "status"), [("GET", 503), ("POST", 500)])
def test_what_is_not_answered_when_its_grace_is_over_gets_a_problem(method: str, status: int) -> None:
    async def wait(_: Request) -> PlainTextResponse:
        await asyncio.sleep(60)
        return PlainTextResponse("done")

    waiting = Starlette(routes=[Route("/wait", wait, methods=["GET", "POST"])])
    guarded = Guard(waiting, telemetry=Telemetry(io.StringIO()), surface="web", secure=False)

    async def run() -> None:
        http = await serve_http(guarded, (HOST, 0), tls=None, connections=9)
        reader, writer = await asyncio.open_connection(HOST, http.port)
        writer.write(f"{method} /wait HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode())
        await asyncio.sleep(0.2)
        await http.close(1.0)
        head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
        writer.close()
        assert f" {status} " in head
        assert "application/problem+json" in head
        problem = json.loads(body)
        assert (problem["code"], problem["status"]) == ("closed", status)
        assert ("may have been charged" in problem["hint"]) == (method == "POST")

    asyncio.run(run())


def test_it_speaks_tls_with_a_context_that_is_given() -> None:
    context, trusting = contexts()

    async def act(http: Http) -> None:
        assert (await asked(http, "/client", tls=trusting)).endswith(HOST)

    trial(act, tls=context)


@pytest.mark.parametrize("request_", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"OPTIONS * HTTP/1.1\r\n\r\n", b"P"])
def test_plain_http_where_tls_is_spoken_is_told_so(request_: bytes) -> None:
    server_context, client_context = contexts()

    async def act(http: Http) -> None:
        reader, writer = await asyncio.open_connection(HOST, http.port)
        writer.write(request_)
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert f"\r\nContent-Length: {len(body)}".encode() in head
        assert body == b"This port speaks HTTPS. Write https:// in the address.\n"
        assert (await asked(http, "/client", tls=client_context)).endswith(HOST)

    trial(act, tls=server_context)


@pytest.mark.parametrize("cut", [1, 5, 100, 10_000])
def test_a_hello_of_tls_may_come_in_pieces(cut: int) -> None:
    """A hello is longer than a segment where it has post-quantum keys or many names of protocols."""
    server_context, client_context = contexts()
    client_context.set_alpn_protocols([f"protocol-{at:03}" for at in range(400)])

    async def act(http: Http) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = client_context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        reader, writer = await asyncio.open_connection(HOST, http.port)
        with pytest.raises(ssl.SSLWantReadError):
            tls.do_handshake()
        hello = outgoing.read()
        for piece in (hello[:cut], hello[cut:]):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.05)
        answer, is_greeted = b"", False
        while not answer.endswith(HOST.encode()):
            try:
                if not is_greeted:
                    tls.do_handshake()
                    is_greeted = bool(tls.write(b"GET /client HTTP/1.1\r\nHost: x\r\n\r\n"))
                answer += tls.read(65_536)
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())
                received = await asyncio.wait_for(reader.read(65_536), timeout=20)
                assert received
                incoming.write(received)
        writer.close()

    trial(act, tls=server_context)


def test_a_hello_of_tls_where_plain_http_is_spoken_is_no_fault(capfd: pytest.CaptureFixture[str]) -> None:
    faults = list[dict[str, object]]()

    async def act(http: Http) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asked(http, "/client", tls=ssl.create_default_context())
        assert (await asked(http, "/client")).endswith(HOST)

    trial(act)
    assert faults == []
    assert capfd.readouterr() == ("", "")


def test_beyond_the_most_connections_it_says_so() -> None:
    async def act(http: Http) -> None:
        answering = [asyncio.create_task(asked(http, "/slow")) for _ in range(2)]
        await asyncio.sleep(0.2)
        assert (await asked(http, "/client")).startswith("HTTP/1.1 503")
        assert all("done" in answer for answer in await asyncio.gather(*answering))

    trial(act, connections=3)


def test_an_address_that_is_taken_is_an_error() -> None:
    async def act(http: Http) -> None:
        with pytest.raises(OSError, match="in use"):
            await serve_http(APPLICATION, (HOST, http.port), tls=None, connections=9)

    trial(act)


@pytest.mark.parametrize("sent", [b"", b"GET /client HTT", b"GET /client HTTP/1.1\r\nHost: x\r\n\r\nGET /cl"])
def test_who_sends_no_request_or_half_of_one_is_hung_up_on(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr("dpsql.server.http._HEAD_SECONDS", 0.3)

    async def act(http: Http) -> None:
        reader, writer = await asyncio.open_connection(HOST, http.port)
        writer.write(sent)
        answer = await asyncio.wait_for(reader.read(), timeout=20)
        assert answer.count(b"200 OK") == sent.count(b"\r\n\r\n")
        writer.close()
        assert (await asked(http, "/slow")).endswith("done")  # which takes longer, and is not silent

    trial(act)


@pytest.mark.parametrize("sent", [b"", b"\x16", b"\x16\x03\x01\x00"])
def test_who_begins_no_tls_is_hung_up_on(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr("dpsql.server.http._HEAD_SECONDS", 0.3)

    async def act(http: Http) -> None:
        reader, writer = await asyncio.open_connection(HOST, http.port)
        writer.write(sent)
        with suppress(ConnectionError):
            assert await asyncio.wait_for(reader.read(), timeout=20) == b""
        writer.close()

    trial(act, tls=contexts()[0])


SIZE = 24 << 20


async def large(request: Request) -> PlainTextResponse:
    name_user(request.scope, request.query_params["user"])
    return PlainTextResponse(b"x" * SIZE)


def test_what_a_user_leaves_unread_is_limited_and_counts_no_longer_when_it_was_read() -> None:
    guarded = Guard(
        Starlette(routes=[Route("/large", large), *ROUTES]),
        telemetry=Telemetry(io.StringIO()),
        surface="web",
        secure=False,
    )

    writers: list[asyncio.StreamWriter] = []

    async def begin(http: Http, user: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
        reader, writer = await asyncio.open_connection(HOST, http.port, limit=1024)
        writer.write(f"GET /large?user={user} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        writers.append(writer)
        return reader, writer, await reader.readline()

    async def run() -> None:
        http = await serve_http(guarded, (HOST, 0), tls=None, connections=20)
        try:
            unread = [await begin(http, "ana") for _ in range(4)]
            assert [b"200" in head for _, _, head in unread] == [True, True, False, False]
            problem = await unread[3][0].read()
            assert b"unread-answers" in problem
            assert b"x" * 9 not in problem
            assert b"200" in (await begin(http, "bob"))[2]
            assert "200 OK" in await asked(http, "/client")
            reader, _, _ = unread[0]
            size = 0
            while chunk := await reader.read(1 << 20):
                size += len(chunk)
            assert size >= SIZE
            unread[1][1].transport.abort()
            await asyncio.sleep(0.3)
            again = [await begin(http, "ana") for _ in range(2)]
            assert [b"200" in head for _, _, head in again] == [True, True]
            for writer in writers:
                writer.transport.abort()
                with suppress(OSError):
                    await writer.wait_closed()
        finally:
            await http.close(5.0)

    asyncio.run(run())
