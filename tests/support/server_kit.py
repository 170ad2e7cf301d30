"""A server for tests: in a thread, on a port of its own, with the small data of `surfaces_kit` and a few users."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from support.surfaces_kit import NAMES, POLICY, TOP, make_data

from dpsql.policy import Policy
from dpsql.server.catalog import open_catalog
from dpsql.server.catalog.system_catalog import CurrentCatalog, SystemCatalog
from dpsql.server.gateway import Gateway, Service
from dpsql.server.limits import Throttle
from dpsql.server.telemetry import Telemetry
from dpsql.server.users import User, Users, add_user
from dpsql.server.wire import Wire, serve_wire
from dpsql.server.wire.channel import ClientLimits

__all__ = ["NAMES", "PASSWORD", "TOP", "USERS", "Served", "front_of", "serving"]

PASSWORD = "a password of nobody"
USERS = (
    User("ana"),
    User("ben"),
    User("cleo"),
    User("bi"),  # who has no share of the budget
    User("curator", is_curator=True),
    User("metabase", acts_as=("ana", "ben")),
)
ACCOUNTS = "\n[analysts.bi]\nepsilon = 0\n\n[server]\nusers = 'users.toml'\nstatements_per_minute = 100000\n" + "".join(
    f"\n[analysts.{name}]\nepsilon = 1.0\nitems = 100\n" for name in ("ana", "ben", "cleo", "metabase")
)


@dataclass
class Served:
    """A running server: where it is, and what is behind it."""

    port: int
    front: Gateway
    wire: Wire
    log: StringIO
    faults: list[Mapping[str, object]]

    def url(self, user: str = "ana", scheme: str = "postgresql") -> str:
        return f"{scheme}://{user}:{PASSWORD.replace(' ', '%20')}@127.0.0.1:{self.port}/dpsql"

    def conninfo(self, user: str = "ana") -> str:
        return f"host=127.0.0.1 port={self.port} user={user} password='{PASSWORD}' dbname=dpsql"

    def charges(self, user: str = "ana") -> int:
        """Return how many queries the ledger was charged for."""
        return int(self.front.service.session(user).history.num_rows)


def front_of(
    folder: Path, *, policy: str = POLICY + ACCOUNTS, log: StringIO | None = None, users: Iterable[User] = USERS
) -> Gateway:
    """Make data, policy and users in a folder, and return the front that every surface gets."""
    make_data(folder)
    (folder / "policy.toml").write_text(policy)
    for user in users:
        add_user(folder / "users.toml", user, password=PASSWORD)
    loaded = Policy.from_toml(folder / "policy.toml")
    service = Service(folder / "events.duckdb", loaded)
    return Gateway(service, Users(folder / "users.toml"), Telemetry(log or StringIO()), Throttle(100_000))


@contextmanager
def serving(
    folder: Path,
    *,
    catalog: str | SystemCatalog = "none",
    tls: ssl.SSLContext | None = None,
    limits: ClientLimits | None = None,
    policy: str = POLICY + ACCOUNTS,
    users: Iterable[User] = USERS,
) -> Iterator[Served]:
    """Run a server as long as the block; `catalog` is "none", "auto", or one that is there."""
    log = StringIO()
    front = front_of(folder, policy=policy, log=log, users=users)
    if isinstance(catalog, str):
        opened = open_catalog(catalog, front.service.catalog, policy=front.service.policy.tables)
    else:
        opened = catalog
    loop, faults = asyncio.new_event_loop(), list[Mapping[str, object]]()
    loop.set_exception_handler(lambda _, context: faults.append(context))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start() -> Wire:
        return await serve_wire(
            front, ("127.0.0.1", 0), tls=tls, catalog=CurrentCatalog(opened), limits=limits or ClientLimits()
        )

    try:
        wire = asyncio.run_coroutine_threadsafe(start(), loop).result(30)
        try:
            yield Served(wire.port, front, wire, log, faults)
        finally:
            asyncio.run_coroutine_threadsafe(wire.close(), loop).result(60)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        front.service.close()
        opened.close()
    assert not faults, faults
