"""Starting and stopping Flight SQL: the server on a private socket, and the guard on the address that clients know."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

from dpsql.engines.scratch import ScratchFolder
from dpsql.errors import PolicyError
from dpsql.policy.server import is_loopback
from dpsql.server.flight.connection_guard import Guard
from dpsql.server.flight.login import Doors
from dpsql.server.flight.server import FlightSQLServer

if TYPE_CHECKING:
    from dpsql.server.gateway import Gateway

__all__ = ["Flight", "serve_flight"]

_GRACE_SECONDS = 30.0
_STEP_SECONDS = 0.05


async def serve_flight(gateway: Gateway, address: tuple[str, int], *, tls: ssl.SSLContext | None = None) -> Flight:
    """Listen for clients of Flight SQL on a host and port (0: any free port); return the handle that stops it.

    `tls` is a separate context, which is set up for HTTP/2. Raises `PolicyError` for an address that other machines
    can reach without TLS, and `OSError` for an address that is not available.
    """
    host, _ = address
    if tls is None and not is_loopback(host):
        reason = "Other machines can reach this address, and passwords and answers would travel unencrypted."
        hint = "Name a certificate and its key, or listen on 127.0.0.1."
        raise PolicyError("policy-tls", reason, hint=hint, place="server.flight")
    if tls is not None:
        tls.set_alpn_protocols(["h2"])
    folder = ScratchFolder()  # which its owner alone may enter
    doors, inside = Doors(), str(folder.path / "flight")
    server = FlightSQLServer(gateway, f"grpc+unix://{inside}", doors=doors)
    guard = Guard(gateway, doors, inside=inside)
    try:
        port = await guard.listen(address, tls=tls)
    except BaseException:
        await asyncio.to_thread(server.shutdown)
        folder.close()
        raise
    return Flight(server, guard, port=port, folder=folder)


class Flight:
    """Flight SQL that is being served, on a port."""

    def __init__(self, server: FlightSQLServer, guard: Guard, *, port: int, folder: ScratchFolder) -> None:
        self._server, self._guard, self._folder = server, guard, folder
        self.port = port

    async def close(self, grace: float = _GRACE_SECONDS) -> None:
        """Accept no further calls, wait `seconds` for the running ones, and stop; a running statement is settled."""
        self._guard.refuse()
        for _ in range(int(grace / _STEP_SECONDS)):
            if not len(self._server.calls):
                break
            await asyncio.sleep(_STEP_SECONDS)
        await self._guard.close()
        await asyncio.to_thread(self._server.shutdown)
        self._server.forget()
        self._folder.close()
