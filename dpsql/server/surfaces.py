"""How each surface is started: imported when the policy asks for it, and told apart by the word of the policy."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol

from dpsql.errors import UsageError
from dpsql.policy import DatabaseUrl
from dpsql.server.front import Front

__all__ = ["STARTERS", "Listening", "start"]

_GRACE = 5.0  # seconds in which whoever reads from the former catalog may finish


class Closing(Protocol):
    """What a catalog is to whoever starts and ends it; the surface that it is for knows the rest."""

    def close(self) -> None:
        """Let go of what it runs on."""
        ...


class Closed(Protocol):
    """What a surface is once it listens."""

    @property
    def port(self) -> int:
        """The port that is listened on."""
        ...

    async def close(self, seconds: float) -> None:
        """Let nobody in, wait so many seconds for what is being answered, and end."""
        ...


@dataclass(frozen=True, slots=True)
class Listening:
    """A surface that listens: where, how it ends, and what it does when the policy was read again."""

    place: str
    close: Callable[[float], Awaitable[None]]
    renew: Callable[[], None] = lambda: None


class Starter(Protocol):
    """What starts a surface on a host and port, of which 0 is any."""

    async def __call__(self, front: Front, address: tuple[str, int], *, tls: ssl.SSLContext | None) -> Listening:
        """Return the surface once it listens; raises `ImportError` and `OSError`."""
        ...


async def start(name: str, front: Front, *, address: tuple[str, int], tls: ssl.SSLContext | None) -> Listening:
    """Start a surface. Raises `UsageError` for an address that cannot be had, or an extra that is not installed."""
    try:
        return await STARTERS[name](front, address, tls=tls)
    except ImportError as error:
        missing = error.name
    except OSError as error:
        reason = f"The address cannot be listened on: {error.strerror or 'it is not known here'}."
        hint = "End what listens there, or name another address in [server] of the policy."
        place = f"server.{name} ({address[0]}:{address[1]})"
        raise UsageError("server-address", reason, hint=hint, place=place) from None
    hint = "Install it: pip install 'dpsql[server]'."
    raise UsageError("not-installed", f"The server needs the package {missing}.", hint=hint, place=f"server.{name}")


async def _postgres(front: Front, address: tuple[str, int], *, tls: ssl.SSLContext | None) -> Listening:
    serve_wire = import_module("dpsql.server.wire").serve_wire
    catalog = await asyncio.to_thread(_Current, front)
    try:
        wire: Closed = await serve_wire(front, address, tls=tls, catalog=catalog)
    except BaseException:
        await asyncio.to_thread(catalog.close)
        raise

    async def close(seconds: float) -> None:
        try:
            await wire.close(seconds)
        finally:
            await asyncio.to_thread(catalog.close)

    return Listening(_place(address, wire.port), close, catalog.renew)


async def _web(front: Front, address: tuple[str, int], *, tls: ssl.SSLContext | None) -> Listening:
    from dpsql.server.http import serve_http

    application = import_module("dpsql.server.web.application").application(front, secure=tls is not None)
    most = front.service.policy.server.max_connections
    http = await serve_http(application, address, tls=tls, connections=most)
    scheme = "http" if tls is None else "https"
    return Listening(f"{scheme}://{_place(address, http.port)}", http.close)


async def _flight(front: Front, address: tuple[str, int], *, tls: ssl.SSLContext | None) -> Listening:
    flight: Closed = await import_module("dpsql.server.flight").serve_flight(front, address, tls=tls)
    scheme = "grpc" if tls is None else "grpc+tls"
    return Listening(f"{scheme}://{_place(address, flight.port)}", flight.close)


STARTERS: dict[str, Starter] = {"postgres": _postgres, "web": _web, "flight": _flight}


class _Current:
    """The catalog of the policy that is in force; another one after a policy with other tables was read."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._tables = front.service.catalog
        self._catalog = self._opened()

    def renew(self) -> None:
        """Open the catalog of the tables that there are now, and close the former when nobody can be reading it."""
        tables = self._front.service.catalog
        if tables != self._tables:
            former, self._catalog, self._tables = self._catalog, self._opened(), tables
            threading.Timer(_GRACE, former.close).start()

    def close(self) -> None:
        """Close it."""
        self._catalog.close()

    def __getattr__(self, name: str) -> object:
        return getattr(self._catalog, name)

    def _opened(self) -> Closing:
        kind = self._front.service.policy.server.catalog
        opened = import_module("dpsql.server.catalog").open_catalog
        named = kind.target if isinstance(kind, DatabaseUrl) else kind
        catalog: Closing = opened(named, self._front.service.catalog)
        return catalog


def _place(address: tuple[str, int], port: int) -> str:
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    return f"{host}:{port}"
