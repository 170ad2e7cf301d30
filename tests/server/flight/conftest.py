"""Flight SQL over a small database, served on a port of its own, for two users."""

from __future__ import annotations

import asyncio
import io
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.flight as fl
import pytest
import trustme
from support.surfaces_kit import make_data

from dpsql import Policy
from dpsql.server.flight import Flight, FlightSQLServer, serve_flight
from dpsql.server.gateway import Gateway
from dpsql.server.service import Service
from dpsql.server.telemetry import Telemetry
from dpsql.server.throttle import Throttle
from dpsql.server.users import User, Users
from dpsql.server.users_file import add_user

WORDS = "correct horse battery"
EXTRA = """
[server]
statements_per_minute = 100000
[analysts.bob]
epsilon = 0.001
items = 1
queries = 1
[analysts.default]
epsilon = 4
"""


@dataclass
class Served:
    """A server that runs: its port, its door, and what it wrote to its log."""

    flight: Flight
    front: Gateway
    log: io.StringIO
    run: Callable[[Coroutine[Any, Any, Any]], Any]
    authority: trustme.CA | None = None

    @property
    def server(self) -> FlightSQLServer:
        return self.flight._server

    @property
    def uri(self) -> str:
        return f"grpc{'' if self.authority is None else '+tls'}://localhost:{self.flight.port}"

    def charges(self, name: str = "alice") -> int:
        return int(self.front.service.session(name).history.num_rows)

    def client(self, name: str = "alice", password: str = WORDS) -> tuple[fl.FlightClient, fl.FlightCallOptions]:
        client = fl.connect(self.uri)
        return client, fl.FlightCallOptions(headers=[client.authenticate_basic_token(name, password)])


@pytest.fixture(scope="session")
def run() -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield lambda act: asyncio.run_coroutine_threadsafe(act, loop).result(30)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def front_in(folder: Path, log: io.StringIO) -> Gateway:
    make_data(folder)
    path = folder / "policy.toml"
    path.write_text(path.read_text() + EXTRA)
    for user in (User("alice"), User("bob"), User("carol", is_curator=True)):
        add_user(folder / "users.toml", user, password=WORDS)
    service = Service(folder / "events.duckdb", Policy.from_toml(path))
    return Gateway(service, Users.load(folder / "users.toml"), Telemetry(log), Throttle(100_000))


@pytest.fixture
def served(tmp_path: Path, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> Iterator[Served]:
    log = io.StringIO()
    front = front_in(tmp_path, log)
    flight = run(serve_flight(front, ("localhost", 0)))
    yield Served(flight, front, log, run)
    run(flight.close())
    front.service.close()


@pytest.fixture
def secured(tmp_path: Path, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> Iterator[Served]:
    authority, log = trustme.CA(), io.StringIO()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(tls)
    front = front_in(tmp_path, log)
    flight = run(serve_flight(front, ("localhost", 0), tls=tls))
    yield Served(flight, front, log, run, authority)
    run(flight.close())
    front.service.close()
