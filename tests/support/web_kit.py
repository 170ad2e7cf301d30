"""The page over a small data set, asked in this process or by a browser."""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import duckdb
import uvicorn
from starlette.applications import Starlette

from dpsql.policy import Policy
from dpsql.server.gateway import Gateway, Service
from dpsql.server.limits import Throttle
from dpsql.server.telemetry import Telemetry
from dpsql.server.users import User, Users, add_user
from dpsql.server.web import application

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # starlette would rather have the successor of httpx
    from starlette.testclient import TestClient

__all__ = ["COUNTS", "HOSTILE", "NAMES", "PASSWORD", "World", "made", "opened", "proof", "served"]

PASSWORD = "correct horse battery"
HOSTILE = "<script>alert(1)</script><b title='\"x'>\u202ekey"
COUNTS = "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article TOP 3 PRIVATE"
NAMES = "SELECT article FROM reads GROUP BY article TOP 3 PRIVATE"
POLICY = """\
ledger = "ledger.sqlite"
[budget]
epsilon = 4.0
delta = 1e-6
items = 100
queries = 20
[tables.reads]
privacy_unit = "user_id"
columns = ["user_id", "article", "country", "{column}"]
[tables.countries]
public = true
[analysts.default]
epsilon = 2.0
[analysts.poor]
epsilon = 0.05
items = 2
queries = 20
[analysts.bi]
epsilon = 0
[analysts.both]
epsilon = 1.0
[analysts.dora]
enabled = false
"""
COLUMN = "<img src=x>"


@dataclass(frozen=True)
class World:
    """What the page is over, and the page."""

    folder: Path
    front: Gateway
    app: Starlette
    log: StringIO

    def client(self) -> TestClient:
        """Return a browser that has not logged in, on this machine."""
        return TestClient(self.app, base_url="http://127.0.0.1", client=("127.0.0.1", 50000), follow_redirects=False)

    def login(self, name: str = "alice") -> TestClient:
        """Return a browser that has."""
        client = self.client()
        done = client.post("/login", data={"name": name, "password": PASSWORD, "proof": proof(client, "/login")})
        assert done.status_code == 303, done.text
        return client

    def charges(self) -> int:
        """Return how many questions the ledger was charged for."""
        from dpsql.curator import read_spending

        return len(read_spending(self.front.service.policy).entries)


def proof(client: TestClient, path: str = "/tables") -> str:
    """Return what the forms of a page bring along."""
    found = re.search(r'name="proof" value="([0-9a-f]{64})"', client.get(path).text)
    assert found is not None
    return found[1]


def made(folder: Path) -> None:
    """Write the data, the policy and the users."""
    with duckdb.connect(str(folder / "events.duckdb")) as connection:
        connection.execute(
            "CREATE TABLE reads AS SELECT u AS user_id, CASE a WHEN 0 THEN $1 ELSE 'article ' || a END AS article, "
            "['DE', 'FR'][1 + u % 2] AS country, 'SECRET-' || u AS \"<img src=x>\" "
            "FROM range(3) x(a), range(6000) y(u) WHERE u < 6000 - 2000 * a",
            [HOSTILE],
        )
        connection.execute("CREATE TABLE countries AS SELECT 'DE' AS country, 'Europe' AS continent")
    (folder / "policy.toml").write_text(POLICY.replace("{column}", COLUMN))
    for name, is_curator in (
        ("alice", False),
        ("poor", False),
        ("bi", False),
        ("clara", True),
        ("both", True),
        ("dora", True),
    ):
        add_user(folder / "users.toml", User(name, is_curator), password=PASSWORD)


@contextmanager
def opened(folder: Path, *, secure: bool = False, per_minute: int = 100_000) -> Iterator[World]:
    """Open the data that was made, and the page over it."""
    log = StringIO()
    service = Service(folder / "events.duckdb", Policy.from_toml(folder / "policy.toml"))
    with closing(service):
        front = Gateway(service, Users(folder / "users.toml"), Telemetry(log), Throttle(per_minute))
        yield World(folder, front, application(front, secure=secure), log)


@contextmanager
def served(world: World) -> Iterator[str]:
    """Serve the page to browsers of this machine, and return its address."""
    config = uvicorn.Config(
        world.app, host="127.0.0.1", port=0, log_config=None, lifespan="off", proxy_headers=False, server_header=False
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        thread.join(0.02)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(20)
