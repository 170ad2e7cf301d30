"""`dpsql serve` whose ledger in PostgreSQL is behind a line that falls silent."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from support.child_kit import Child
from support.faulty_line import Fault, FaultyLine, faulty_line
from support.postgres_kit import fresh_schema
from support.server_kit import ACCOUNTS, PASSWORD, front_of
from support.surfaces_kit import POLICY, TOP, make_data
from support.web_kit import TestClient, proof

from dpsql.ledger import postgres_server
from dpsql.server.users import User, add_user
from dpsql.server.web import application

HEADERS = {"authorization": "Basic " + base64.b64encode(f"ana:{PASSWORD}".encode()).decode()}
ASK = {"sql": "SELECT COUNT(DISTINCT user_id) FROM reads PRIVATE WITH (fresh = true, epsilon = 0.01)"}
SURFACES = "web = '127.0.0.1:0'\npostgres = 'off'\ncatalog = 'none'\n"


@pytest.fixture(scope="module")
def line() -> Iterator[FaultyLine]:
    with faulty_line() as line:
        yield line


@pytest.fixture(scope="module")
def client(line: FaultyLine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """Return a client of a server whose ledger is behind the line, logged in."""
    front = front_of(tmp_path_factory.mktemp("served"), policy=policy_of(line), users=[User("ana")])
    with closing(front.service):
        yield TestClient(application(front, secure=False), base_url="http://127.0.0.1", headers=HEADERS)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_server, "WAIT", 0.4)
    monkeypatch.setitem(postgres_server._DEFAULTS, "connect_timeout", "2")


def policy_of(line: FaultyLine) -> str:
    text = POLICY + ACCOUNTS.replace("[server]\n", f"[server]\n{SURFACES}")
    return text.replace('ledger = "ledger.sqlite"', f"ledger = '{line.url(fresh_schema())}'")


@pytest.mark.usefixtures("impatient")
def test_a_request_is_answered_with_a_problem(line: FaultyLine, client: TestClient) -> None:
    assert client.get("/api/v1/budget").status_code == 200
    line.set(Fault("silent", message=0, lasting=True))
    began = time.monotonic()
    found = client.post("/api/v1/query", json={"sql": TOP})
    assert time.monotonic() - began < 20
    line.lift()
    assert (found.status_code, found.json()["code"]) == (503, "ledger-unreachable")
    assert found.json()["reason"].endswith("Nothing was charged.")
    assert client.post("/api/v1/query", json={"sql": TOP}).status_code == 200


def ask_twice(line: FaultyLine, client: TestClient) -> None:
    """Ask, the second time on a connection that is there, and let the line count that."""
    for _ in range(2):
        line.set(None)
        assert client.post("/api/v1/query", json=ASK).status_code == 200


def test_a_problem_says_what_may_have_been_charged(line: FaultyLine, client: TestClient) -> None:
    charged: set[str] = set()
    ask_twice(line, client)
    for at in range(len(line.commits)):
        ask_twice(line, client)
        line.set(Fault("reset", message=line.commits[at] + 1))
        found = client.post("/api/v1/query", json=ASK)
        line.lift()
        problem = found.json() if found.status_code != 200 else {}
        charged.add(str(found.status_code) + problem.get("reason", "").partition("known. ")[2])
    assert charged == {
        "200",
        "500The query may have been charged in full; no row was read.",
        "500The query is charged, in full unless its answer was stored.",
    }


@pytest.mark.usefixtures("impatient")
def test_a_page_shows_an_answer_without_the_budget_that_cannot_be_read(line: FaultyLine, client: TestClient) -> None:
    ask_twice(line, client)
    asking = line.messages
    login = {"name": "ana", "password": PASSWORD, "proof": proof(client, "/login")}
    assert client.post("/login", data=login).status_code == 200
    form = {"text": ASK["sql"], "proof": proof(client)}
    line.set(Fault("silent", message=asking, lasting=True))
    told = client.post("/ask", data=form)
    line.lift()
    assert told.status_code == 200
    assert "answered 1 of 1" in told.text
    assert "The ledger cannot be read now." in told.text


def test_sigterm_ends_the_wait_with_a_problem_and_the_server_in_order(line: FaultyLine, tmp_path: Path) -> None:
    make_data(tmp_path)
    (tmp_path / "policy.toml").write_text(policy_of(line))
    add_user(tmp_path / "users.toml", User("ana"), password=PASSWORD)
    with serve(tmp_path) as (process, address), ThreadPoolExecutor(2) as threads:
        assert fetch(f"{address}/api/v1/budget")[0] == 200
        fault = Fault("silent", message=0, lasting=True)
        line.set(fault)
        asking = [
            threads.submit(fetch, f"{address}/api/v1/budget"),
            threads.submit(fetch, f"{address}/api/v1/query", {"sql": TOP}),
        ]
        while not fault.hit:
            time.sleep(0.01)
        time.sleep(0.2)  # both have sent their request by now
        process.send_signal(signal.SIGTERM)
        found = [each.result(30) for each in asking]
        assert process.wait(30) == 0
    for status, kind, problem in found:
        assert status in {500, 503}
        assert kind == "application/problem+json"
        assert problem["code"] in {"ledger-unreachable", "closed"}
        assert problem["hint"]


@contextmanager
def serve(folder: Path) -> Iterator[tuple[Child, str]]:
    program = "from dpsql.cli import main; main()"
    words = [sys.executable, "-c", program, "serve", "--policy", str(folder / "policy.toml"), "--db"]
    with Child(
        [*words, str(folder / "events.duckdb")], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            told = process.stdout.readline()
            assert told.startswith("web listens on "), told
            yield process, told.removeprefix("web listens on ").strip()
        finally:
            process.kill()


def fetch(url: str, body: object = None) -> tuple[int, str, dict[str, str]]:
    """Return status, type and body of a response in JSON."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {**HEADERS, "content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, response.headers.get_content_type(), json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers.get_content_type(), json.load(error)
