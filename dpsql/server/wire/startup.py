"""The first words of a connection: TLS, the protocol's version, a cancel of another connection, and the login.

Nothing but a password is decided on: a name that there is not goes through the same motions as a wrong password.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpsql.policy.server import is_loopback
from dpsql.server.wire.codec import Malformed, Password, cstrings, message
from dpsql.server.wire.scram import MECHANISM, Exchange, initial_response
from dpsql.server.wire.sqlstates import WireError
from dpsql.server.wire.stream import Channel

if TYPE_CHECKING:
    from dpsql.server.gateway import Gateway
    from dpsql.server.users import User
    from dpsql.server.wire.stream import Limits

__all__ = ["SURFACE", "CancelRequest", "Startup", "login", "negotiate"]

_CANCEL, _TLS, _GSS = 80877102, 80877103, 80877104
_MAJOR, _NEWEST = 3, 2
_NUMBER, _LONGEST_KEY = 4, 256  # bytes
_LONGEST_NAME = 200  # more than any user has, and less than would fill a memory
SURFACE = "postgres"


@dataclass(frozen=True, slots=True)
class Startup:
    """Who wants to come in, with which settings, and the minor version of the protocol that is spoken."""

    parameters: Mapping[str, str]
    minor: int

    @property
    def user(self) -> str:
        """The name under which a client logs in."""
        return self.parameters.get("user", "")


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """A wish that the statement of another connection, which `number` and `key` name, be given up."""

    number: int
    key: bytes


async def negotiate(channel: Channel, tls: ssl.SSLContext | None) -> Startup | CancelRequest:
    """Return what a client wants, over TLS where it asks for it; raises `Malformed`, `WireError` and `Gone`."""
    asked = set[int]()
    while True:
        code, data = await channel.startup()
        if code in asked:
            raise Malformed("Encryption was asked for twice.")
        asked.add(code)
        match code:
            case _ if code == _TLS and tls is not None and not channel.is_encrypted:
                await channel.encrypt(tls)
            case _ if code in {_TLS, _GSS}:
                channel.send(b"N")
                await channel.flush()
            case _ if code == _CANCEL:
                return _cancel(data)
            case _:
                return _started(channel, code, data=data)


def _cancel(data: bytes) -> CancelRequest:
    if not _NUMBER < len(data) <= _NUMBER + _LONGEST_KEY:
        raise Malformed("A request to cancel has an impossible length.")
    return CancelRequest(int.from_bytes(data[:_NUMBER]), data[_NUMBER:])


def _started(channel: Channel, code: int, *, data: bytes) -> Startup:
    major, minor = divmod(code, 1 << 16)
    if major != _MAJOR:
        reason = "This version of PostgreSQL's protocol is not spoken here."
        raise WireError("0A000", reason, hint="Use a client of PostgreSQL 7.4 or later.", fatal=True)
    listed = cstrings(data)
    parameters = dict(zip(listed[::2], listed[1::2], strict=True))
    unknown = [name for name in parameters if name.startswith("_pq_.")]
    if minor > _NEWEST or unknown:
        minor = min(minor, _NEWEST)
        counts = ((_MAJOR << 16) + minor).to_bytes(4), len(unknown).to_bytes(4)
        channel.send(message(b"v", *counts, *(name.encode() + b"\0" for name in unknown)))
    if parameters.get("replication", "false").lower() not in {"false", "off", "no", "0"}:
        raise WireError("0A000", "There is no replication here.", hint="Connect without it.", fatal=True)
    return Startup(parameters, minor)


async def login(channel: Channel, startup: Startup, *, front: Gateway, limits: Limits) -> User:
    """Return the user who has proved to know their password; raises a fatal `WireError`, `Malformed` and `Gone`."""
    name, address = startup.user[:_LONGEST_NAME], channel.address
    if not (channel.is_encrypted or not address or is_loopback(address)):
        raise WireError("28000", "Connections are encrypted here.", hint="Connect with sslmode=require.", fatal=True)
    _admit(front, name, address=address)
    exchange = Exchange(front.users.verifier(name))
    channel.send(message(b"R", (10).to_bytes(4), MECHANISM.encode(), b"\0\0"))
    first = initial_response(await _step(channel, limits))
    channel.send(message(b"R", (11).to_bytes(4), exchange.challenge(first)))
    last = await _step(channel, limits)
    _admit(front, name, address=address)  # of guesses that are made at once, the first that fails has the others wait
    proof = exchange.outcome(last)
    user = None
    if proof is None:
        front.turn_away(SURFACE, name, address=address)
    else:
        user = front.let_in(SURFACE, name, address=address)
    if proof is None or user is None:
        raise WireError(
            "28P01", "The name or the password is wrong.", hint="Ask the curator for a new one.", fatal=True
        )
    channel.send(message(b"R", (12).to_bytes(4), proof), message(b"R", bytes(4)))
    return user


def _admit(front: Gateway, name: str, *, address: str) -> None:
    if not front.admit(SURFACE, name, address=address):
        raise WireError("53300", "Too many logins were tried.", hint="Try again in a few minutes.", fatal=True)


async def _step(channel: Channel, limits: Limits) -> bytes:
    await channel.flush()
    said = await channel.receive(most=limits.before_login)
    if not isinstance(said, Password):
        raise Malformed("The client went on before it had logged in.")
    return said.data
