"""Who may use MCP over HTTP: tokens with scopes, one origin, and bodies within limits."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import pytest
import trustme
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from support.fuzzing import examples
from support.mcp_kit import Served, call, open_client, serving_mcp, text_of
from support.server_kit import TOP

from dpsql.server.http_requests import LONGEST_BODY
from dpsql.server.mcp.tools import TOOLS
from dpsql.server.users import StoredToken, User, add_token, add_user, remove_token, remove_user

LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mcp")


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Served]:
    with serving_mcp(folder) as found:
        yield found


def post(
    served: Served, body: object = LIST, *, token: str = "", path: str = "/mcp", **headers: str
) -> httpx2.Response:
    given = {"accept": "application/json, text/event-stream", "content-type": "application/json", **headers}
    if token:
        given["authorization"] = f"Bearer {token}"
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return httpx2.post(f"http://127.0.0.1:{served.port}{path}", content=content, headers=given, timeout=30)


def test_without_a_valid_token_nothing_is_answered(served: Served) -> None:
    good = served.token()
    assert post(served, token=good).status_code == 200
    wrong = ["", "x", good[:-1], good + "x", "x" * 9000]
    for token in wrong:
        answer = post(served, token=token)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert answer.json()["code"] == "login-required"
    assert post(served, authorization="Basic YW5hOmEgcGFzc3dvcmQgb2Ygbm9ib2R5").status_code == 401
    assert 'dpsql_failed_logins_total{surface="mcp"}' in served.front.telemetry.metrics()


def test_a_token_does_what_its_scopes_say(served: Served) -> None:
    free = served.token("ana", "read")
    assert not call(served, "explain", token=free, sql=TOP).is_error
    refused = call(served, "query", token=free, sql=TOP)
    assert refused.structured_content["error"]["code"] == "token-scope"
    assert "LABEL --scope read --scope query" in text_of(refused)
    assert [one.code for one in served.front.telemetry.refusals(10)] == ["token-scope"]
    assert not call(served, "query", token=free, sql="SELECT 1").is_error
    assert call(served, "tables", token=served.token("ana", "curate")).is_error
    assert served.charges() == 0


def test_a_token_of_the_file_of_users_is_valid_until_it_expires_or_is_revoked(served: Served, folder: Path) -> None:
    users, now = folder / "users.toml", datetime.now(UTC)
    token = add_token(users, StoredToken("ben", "assistant", frozenset({"read"}), now + timedelta(days=1)))
    late = add_token(users, StoredToken("ben", "old", frozenset({"read"}), now - timedelta(seconds=1)))
    assert post(served, token=token).status_code == 401  # the server has not read the file again
    served.front.users.reload()
    assert post(served, token=token).status_code == 200
    assert post(served, token=late).status_code == 401
    remove_token(users, "ben", label="assistant")
    served.front.users.reload()
    assert post(served, token=token).status_code == 401


def test_tokens_of_a_removed_user_are_worth_nothing(served: Served, folder: Path) -> None:
    users = folder / "users.toml"
    add_user(users, User("dan"), password="a password of dan")
    stored = add_token(users, StoredToken("dan", "assistant", frozenset({"read", "query"})))
    served.front.users.reload()
    tokens = [stored, served.token("dan")]
    assert [post(served, token=token).status_code for token in tokens] == [200, 200]
    remove_user(users, "dan")
    served.front.users.reload()
    assert [post(served, token=token).status_code for token in tokens] == [401, 401]


def test_a_curator_asks_only_where_the_policy_lists_them(served: Served) -> None:
    refused = call(served, "tables", token=served.token("curator"))
    assert refused.structured_content["error"]["code"] == "no-analyst"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"origin": "http://localhost:3000"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://[bad"}, 403),
        ({"host": "evil.example"}, 403),
        ({"host": "evil.example", "origin": "http://evil.example"}, 403),
        ({"host": "127.0.0.1.evil.example"}, 403),
        ({"host": "localhost"}, 200),
    ],
)
def test_pages_of_other_sites_are_refused(served: Served, headers: dict[str, str], status: int) -> None:
    answer = post(served, token=served.token(), **headers)
    assert answer.status_code == status
    assert status == 200 or answer.json()["code"] == "foreign-origin"
    assert "access-control-allow-origin" not in answer.headers


def test_a_server_for_other_machines_has_a_certificate_and_takes_its_own_origin_alone(tmp_path: Path) -> None:
    authority, trusting = trustme.CA(), ssl.create_default_context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.configure_trust(trusting)
    with serving_mcp(tmp_path, host="0.0.0.0", tls=context) as served:
        url, token = f"https://localhost:{served.port}/mcp", served.token()

        async def run() -> list[str]:
            async with open_client(url, token, tls=trusting) as client:
                return [tool.name for tool in (await client.list_tools()).tools]

        assert "query" in asyncio.run(run())
        with httpx2.Client(verify=trusting, headers={"authorization": f"Bearer {token}"}) as client:
            for origin, status in ((f"https://localhost:{served.port}", 400), ("https://evil.example", 403)):
                answer = client.post(url, content=b"x", headers={"origin": origin, "content-type": "text/plain"})
                assert answer.status_code == status
            assert "strict-transport-security" in answer.headers


def test_paths_and_methods_that_there_are_not_are_problems(served: Served) -> None:
    token = served.token()
    assert post(served, token=token, path="/").status_code == 404
    for method in ("GET", "DELETE", "PUT", "OPTIONS"):
        answer = httpx2.request(method, served.url, headers={"authorization": f"Bearer {token}"})
        assert (answer.status_code, answer.headers["allow"], answer.json()["code"]) == (405, "POST", "no-such-method")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"\xff",
        b"null",
        b"[]",
        b"[" * 100_000,
        b'{"jsonrpc": "2.0"}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call"}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": 3}}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "query", "arguments": []}}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "a", "arguments": {"a": "\\ud800"}}}',
        b'{"jsonrpc": "2.0", "id": ' + b"1" * 5000 + b', "method": "ping"}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "resources/list"}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "' + b"x" * 90_000 + b'"}',
        b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}',
        b" " * (LONGEST_BODY + 1),
    ],
    ids=lambda body: body[:60].decode(errors="replace"),
)
@pytest.mark.parametrize("version", ["2025-06-18", "2026-07-28", "x"])
def test_a_body_that_means_nothing_leaves_the_server_as_it_was(served: Served, body: bytes, version: str) -> None:
    token = served.token()
    answer = post(served, body, token=token, **{"mcp-protocol-version": version})
    assert answer.status_code < 500
    assert "Traceback" not in answer.text
    assert "site-packages" not in answer.text
    assert post(served, token=token).status_code == 200
    assert served.charges() == 0


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(["sql", "parameters", "implicit", "last", "times", "x"])


def test_arguments_of_any_kind_are_answered_or_refused(served: Served) -> None:
    token, before = served.token(), served.charges()

    @given(tool=st.sampled_from([*TOOLS, "x"]), arguments=st.dictionaries(NAMES, VALUES, max_size=3) | VALUES)
    @settings(max_examples=examples(40), deadline=None, phases=[Phase.generate])
    def ask(tool: str, arguments: object) -> None:
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
        answer = post(served, body, token=token)
        assert answer.status_code < 500
        found = answer.json()
        if "result" in found and found["result"]["isError"]:
            assert found["result"]["structuredContent"]["error"]["code"] != "server-failed"

    ask()
    assert served.charges() == before
    assert "fault" not in served.log.getvalue()


def test_a_stranger_whose_body_is_no_http_rings_no_fault(served: Served) -> None:
    head = (
        b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    for end in (b"zz\r\n", b"5\r\nabcdefgh\r\n", b"2\r\n{}\r\n0\r\nno trailer\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", served.port), timeout=10) as client:
            client.sendall(head + end)
            assert client.recv(12) == b"HTTP/1.1 400"
    assert "fault" not in served.log.getvalue()


def test_what_one_user_leaves_unread_is_limited_and_takes_nothing_from_another(served: Served) -> None:
    def begin(name: str, number: int) -> socket.socket:
        arguments = {"sql": f"SELECT repeat('x', {12 << 20}) AS x, {number} AS n"}
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "query", "arguments": arguments}}
        body = json.dumps(call).encode()
        head = (
            f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nAuthorization: Bearer {served.token(name)}\r\n"
            "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        client = socket.create_connection(("127.0.0.1", served.port), timeout=60)
        client.sendall(head.encode() + body)
        return client

    with ExitStack() as stack:
        clients = [stack.enter_context(begin(*each)) for each in (("ana", 1), ("ana", 2), ("ana", 3), ("ben", 4))]
        found = [client.recv(12)[-3:] for client in clients]
        assert sorted(found[:3]) == [b"200", b"200", b"429"]
        assert found[3] == b"200"
