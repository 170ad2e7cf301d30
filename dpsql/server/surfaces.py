"""How each surface is started: imported when the policy asks for it, and told apart by the word of the policy."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from dpsql.errors import UsageError
from dpsql.policy import DatabaseUrl
from dpsql.server.gateway import Gateway

if TYPE_CHECKING:
    from dpsql.server.catalog import Catalog, CatalogRows, Description, Parameter

__all__ = ["STARTERS", "Listening", "start"]

_GRACE = 5.0  # seconds in which whoever reads from the former catalog may finish


@dataclass(frozen=True, slots=True)
class Listening:
    """A surface that listens: where, how it ends, and what it does when the policy was read again."""

    place: str
    close: Callable[[float], Awaitable[None]]
    renew: Callable[[], None] = lambda: None


class Starter(Protocol):
    """What starts a surface on a host and port, of which 0 is any."""

    async def __call__(self, gateway: Gateway, address: tuple[str, int], *, tls: ssl.SSLContext | None) -> Listening:
        """Return the surface once it listens; raises `ImportError` and `OSError`."""
        ...


async def start(name: str, gateway: Gateway, *, address: tuple[str, int], tls: ssl.SSLContext | None) -> Listening:
    """Start a surface. Raises `UsageError` for an address that cannot be had, or an extra that is not installed."""
    try:
        return await STARTERS[name](gateway, address, tls=tls)
    except ImportError as error:
        missing = error.name
    except OSError as error:
        reason = f"The address cannot be listened on: {error.strerror or 'it is not known here'}."
        hint = "End what listens there, or name another address in [server] of the policy."
        place = f"server.{name} ({address[0]}:{address[1]})"
        raise UsageError("server-address", reason, hint=hint, place=place) from None
    hint = "Install it: pip install 'dpsql[server]'."
    raise UsageError("not-installed", f"The server needs the package {missing}.", hint=hint, place=f"server.{name}")


async def _postgres(gateway: Gateway, address: tuple[str, int], *, tls: ssl.SSLContext | None) -> Listening:
    from dpsql.server.wire import serve_wire

    catalog = await asyncio.to_thread(_Current, gateway)
    try:
        wire = await serve_wire(gateway, address, tls=tls, catalog=catalog)
    except BaseException:
        await asyncio.to_thread(catalog.close)
        raise

    async def close(seconds: float) -> None:
        try:
            await wire.close(seconds)
        finally:
            await asyncio.to_thread(catalog.close)

    return Listening(_place(address, wire.port), close, catalog.renew)


async def _web(gateway: Gateway, address: tuple[str, int], *, tls: ssl.SSLContext | None) -> Listening:
    from dpsql.server.http import serve_http
    from dpsql.server.web.application import application

    most = gateway.service.policy.server.max_connections
    http = await serve_http(application(gateway, secure=tls is not None), address, tls=tls, connections=most)
    scheme = "http" if tls is None else "https"
    return Listening(f"{scheme}://{_place(address, http.port)}", http.close)


async def _flight(gateway: Gateway, address: tuple[str, int], *, tls: ssl.SSLContext | None) -> Listening:
    from dpsql.server.flight import serve_flight

    flight = await serve_flight(gateway, address, tls=tls)
    scheme = "grpc" if tls is None else "grpc+tls"
    return Listening(f"{scheme}://{_place(address, flight.port)}", flight.close)


STARTERS: dict[str, Starter] = {"postgres": _postgres, "web": _web, "flight": _flight}


class _Current:
    """The catalog of the policy that is in force; another one after a policy with other tables was read."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._tables = gateway.service.catalog
        self._catalog = self._opened()

    @property
    def version(self) -> str:
        """The PostgreSQL that it speaks as."""
        return self._catalog.version

    def describe(self, sql: str, types: Sequence[int] = (), *, user: str) -> Description:
        """Return what one statement takes and gives."""
        return self._catalog.describe(sql, types, user=user)

    def execute(
        self, sql: str, parameters: Sequence[Parameter] = (), *, user: str, formats: Sequence[int] = ()
    ) -> CatalogRows:
        """Answer one statement."""
        return self._catalog.execute(sql, parameters, user=user, formats=formats)

    def renew(self) -> None:
        """Open the catalog of the tables that there are now, and close the former when nobody can be reading it."""
        tables = self._gateway.service.catalog
        if tables != self._tables:
            former, self._catalog, self._tables = self._catalog, self._opened(), tables
            threading.Timer(_GRACE, former.close).start()

    def close(self) -> None:
        """Close it."""
        self._catalog.close()

    def _opened(self) -> Catalog:
        from dpsql.server.catalog import open_catalog

        kind = self._gateway.service.policy.server.catalog
        named = kind.target if isinstance(kind, DatabaseUrl) else kind
        return open_catalog(named, self._gateway.service.catalog)


def _place(address: tuple[str, int], port: int) -> str:
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    return f"{host}:{port}"
