"""Start of each surface, by its name in the policy; a surface is imported only when it is used."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from dpsql.errors import UsageError
from dpsql.policy import Table
from dpsql.server.gateway import Gateway
from dpsql.sql.ir.catalog import Catalog as Tables

if TYPE_CHECKING:
    from dpsql.server.catalog import Catalog, CatalogRows, Description, Parameter
    from dpsql.server.catalog.protocol import Hold

__all__ = ["STARTERS", "Listening", "start"]

_GRACE = 5.0  # seconds in which statements over the former catalog may finish


@dataclass(frozen=True, slots=True)
class Listening:
    """A surface that listens: its place, and the calls that close it and renew it after the policy was reloaded.

    `catalog` says what answers tools that list tables, if the surface has that.
    """

    place: str
    close: Callable[[float], Awaitable[None]]
    renew: Callable[[], None] = lambda: None
    catalog: str = ""


class Starter(Protocol):
    """Function that starts a surface on a host and port; port 0 is any."""

    async def __call__(self, gateway: Gateway, address: tuple[str, int], *, tls: ssl.SSLContext | None) -> Listening:
        """Return the surface once it listens; raise `ImportError` and `OSError`."""
        ...


async def start(name: str, gateway: Gateway, *, address: tuple[str, int], tls: ssl.SSLContext | None) -> Listening:
    """Start a surface. Raises `UsageError` for an unavailable address, and for an extra that is not installed."""
    try:
        return await STARTERS[name](gateway, address, tls=tls)
    except ImportError as error:
        missing = error.name
    except OSError as error:
        reason = f"The server cannot listen on this address: {error.strerror or 'the host is unknown'}."
        hint = "End the process that listens there, or set another address in [server] of the policy."
        place = f"server.{name} ({address[0]}:{address[1]})"
        raise UsageError("server-address", reason, hint=hint, place=place) from None
    hint = f"Install it: pip install 'dpsql[{_EXTRAS.get(name, 'server')}]'."
    raise UsageError("not-installed", f"The server needs the package {missing}.", hint=hint, place=f"server.{name}")


async def _start_postgres(gateway: Gateway, address: tuple[str, int], *, tls: ssl.SSLContext | None) -> Listening:
    from dpsql.server.wire import serve_wire

    catalog = await asyncio.to_thread(_RenewableCatalog, gateway)
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

    return Listening(_format_place(address, wire.port), close, catalog.renew, catalog.summary)


async def _start_web(gateway: Gateway, address: tuple[str, int], *, tls: ssl.SSLContext | None) -> Listening:
    from dpsql.server.http import serve_http
    from dpsql.server.web.application import application

    connections = gateway.service.policy.server.max_connections
    http = await serve_http(application(gateway, secure=tls is not None), address, tls=tls, connections=connections)
    scheme = "http" if tls is None else "https"
    return Listening(f"{scheme}://{_format_place(address, http.port)}", http.close)


async def _start_mcp(gateway: Gateway, address: tuple[str, int], *, tls: ssl.SSLContext | None) -> Listening:
    from dpsql.server.mcp import serve_mcp

    mcp = await serve_mcp(gateway, address, tls=tls)
    scheme = "http" if tls is None else "https"
    return Listening(f"{scheme}://{_format_place(address, mcp.port)}/mcp", mcp.close)


STARTERS: dict[str, Starter] = {"postgres": _start_postgres, "web": _start_web, "mcp": _start_mcp}
_EXTRAS = {"mcp": "mcp"}  # of surfaces that need another extra than `server`


class _RenewableCatalog:
    """Catalog of the policy in force, replaced when a reloaded policy has other tables."""

    def __init__(self, gateway: Gateway) -> None:
        from dpsql.server.catalog import open_available_catalog

        self._gateway = gateway
        self._kind = gateway.service.policy.server.catalog  # only a restart changes it
        self._contents = self._read_contents()
        self._catalog: Catalog = open_available_catalog(self._kind, self._contents[0], policy=self._contents[1])

    @property
    def version(self) -> str:
        """The version of PostgreSQL that answers."""
        return self._catalog.version

    @property
    def summary(self) -> str:
        """What the catalog is, in a few words."""
        return self._catalog.summary

    def find_description(self, sql: str, types: Sequence[int] = ()) -> Description | None:
        """Return the description of a statement if it is known."""
        return self._catalog.find_description(sql, types)

    def find_answer(
        self, sql: str, parameters: Sequence[Parameter] = (), *, user: str, formats: Sequence[int] = ()
    ) -> CatalogRows | None:
        """Return the stored answer to a statement if it is still right."""
        return self._catalog.find_answer(sql, parameters, user=user, formats=formats)

    def describe(
        self, sql: str, types: Sequence[int] = (), *, user: str, definitions: Sequence[str] = ()
    ) -> Description:
        """Return the parameters and columns of one statement."""
        return self._catalog.describe(sql, types, user=user, definitions=definitions)

    def execute(
        self,
        sql: str,
        parameters: Sequence[Parameter] = (),
        *,
        user: str,
        formats: Sequence[int] = (),
        definitions: Sequence[str] = (),
        hold: Hold | None = None,
    ) -> CatalogRows:
        """Answer one statement."""
        return self._catalog.execute(sql, parameters, user=user, formats=formats, definitions=definitions, hold=hold)

    def renew(self) -> None:
        """Open the catalog of the present tables, and close the former one once its statements have ended."""
        from dpsql.server.catalog import open_catalog

        contents = self._read_contents()
        if contents != self._contents:
            renewed = open_catalog(self._kind, contents[0], policy=contents[1])
            former, self._catalog, self._contents = self._catalog, renewed, contents
            threading.Timer(_GRACE, former.close).start()

    def close(self) -> None:
        """Close the catalog."""
        self._catalog.close()

    def _read_contents(self) -> tuple[Tables, Mapping[str, Table]]:
        """Return the tables, and what the policy says of them."""
        service = self._gateway.service
        return service.catalog, service.policy.tables


def _format_place(address: tuple[str, int], port: int) -> str:
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    return f"{host}:{port}"
