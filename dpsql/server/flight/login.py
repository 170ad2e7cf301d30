"""Login of Flight SQL: a password once, at the handshake, and a random token from then on."""

from __future__ import annotations

import base64
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import pyarrow.flight as fl

from dpsql.errors import Refusal, UsageError
from dpsql.server.flight.failures import cleanly
from dpsql.server.flight.ticket_store import TicketStore
from dpsql.server.random_bytes import draw_text

if TYPE_CHECKING:
    from dpsql.server.gateway import Gateway
    from dpsql.server.users import User

__all__ = ["DOOR", "IMPLICIT", "SURFACE", "Caller", "Calls", "Doors", "Handshake", "Login", "Tokens"]

SURFACE = "flight"
DOOR = "x-dpsql-door"  # the header in which the guard writes at which door a call came in
IMPLICIT = "dpsql-implicit"  # the header with which a client reads standard SQL as private
_SETTINGS = {"on": True, "true": True, "off": False, "false": False}
_DOOR_BYTES = 24
_LONGEST_HEADER = 2_000
_TOKEN_SECONDS = 12 * 3600.0
_MOST_CALLS = 100  # of one user at a time
_MOST_TOKENS = 200  # of one user; a connection has one
Headers = Mapping[str, list[str | bytes]]


class Doors:
    """Connections through the guard, their addresses, and whether a user has called through them; thread-safe.

    Each has a random name. A client can write headers, and can make the header that the guard appends look like part of
    its own. A call therefore identifies its connection only by that name.
    """

    def __init__(self) -> None:
        self._open: dict[str, tuple[str, Callable[[], object]]] = {}

    def open(self, address: str, on_proof: Callable[[], object] = lambda: None) -> str:
        """Return the name of a new connection; `on_proof` is called when a call of it is a user's, from any thread."""
        name = draw_text(_DOOR_BYTES)
        self._open[name] = address, on_proof
        return name

    def address(self, name: str) -> str | None:
        """Return where a connection comes from; None for a name that there is not."""
        found = self._open.get(name)
        return None if found is None else found[0]

    def prove(self, name: str) -> None:
        """Say that a call of this connection was a user's."""
        found = self._open.get(name)
        if found is not None:
            found[1]()

    def close(self, name: str) -> None:
        """Forget a connection."""
        self._open.pop(name, None)


class Tokens:
    """The tokens that were handed out: for half a day, and as long as the user is one and has the same password."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._kept: TicketStore[tuple[User, bytes]] = TicketStore(most=_MOST_TOKENS, seconds=_TOKEN_SECONDS)

    def hand_out(self, user: User) -> str:
        """Return a new token for a user who has shown their password."""
        return self._kept.put(user.name, (user, self._proof(user.name))).decode()

    def user(self, token: str) -> User | None:
        """Return whose token this is; None for one that is not known, or no more."""
        found = self._kept.find(token.encode())
        if found is None:
            return None
        name, (user, proof) = found
        return user if self._gateway.users.get(name) == user and self._proof(name) == proof else None

    def take_back(self, name: str, token: str) -> None:
        """Forget a token."""
        self._kept.drop(name, token.encode())

    def _proof(self, name: str) -> bytes:
        """Return what changes with the password."""
        return self._gateway.users.verifier(name).stored_key


class Handshake(fl.ServerMiddleware):  # type: ignore[misc]  # pyarrow has no types
    """The call in which a password was shown; its answer carries the token."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def sending_headers(self) -> dict[str, str]:
        """Return the headers of the answer."""
        return {"authorization": f"Bearer {self._token}"}


class Calls:
    """Counter of the calls of each user that are under way; threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: Counter[str] = Counter()

    def begin(self, name: str) -> bool:
        """Count a call, or return False where so many are under way: each holds a thread until its client has read."""
        with self._lock:
            if self._running[name] >= _MOST_CALLS:
                return False
            self._running[name] += 1
            return True

    def end(self, name: str) -> None:
        """Count the end of a call."""
        with self._lock:
            self._running[name] -= 1
            if not self._running[name]:
                del self._running[name]

    def __len__(self) -> int:
        with self._lock:
            return self._running.total()


class Caller(fl.ServerMiddleware):  # type: ignore[misc]  # pyarrow has no types
    """The call of a user who is known by a token, until it has ended.

    `implicit` reads standard SQL as private, or not; None leaves it to the policy.
    """

    def __init__(self, user: User, token: str, *, calls: Calls, implicit: bool | None) -> None:
        super().__init__()
        self.user = user
        self.token = token
        self.implicit = implicit
        self._calls = calls

    def call_completed(self, *_: object) -> None:
        """Count the end of the call, however it ended."""
        self._calls.end(self.user.name)


class Login(fl.ServerMiddlewareFactory):  # type: ignore[misc]  # pyarrow has no types
    """Authentication of calls: every call has a token, or is the handshake with name and password."""

    def __init__(self, gateway: Gateway, tokens: Tokens, *, doors: Doors, calls: Calls) -> None:
        super().__init__()
        self._gateway, self._tokens, self._doors, self._calls = gateway, tokens, doors, calls

    @cleanly
    def start_call(self, info: fl.CallInfo, headers: Headers) -> fl.ServerMiddleware:
        """Return the user of a call. Raises `unauthenticated` with the same text in every case."""
        kind, _, shown = _header(headers, "authorization").partition(" ")
        door = _header(headers, DOOR)
        address = self._doors.address(door)
        if address is None:
            raise _refused()
        if info.method == fl.FlightMethod.HANDSHAKE:
            if kind.lower() != "basic":
                raise _refused()
            user = self._checked(shown, address=address)
            token = self._tokens.hand_out(user)
        else:
            found = self._tokens.user(shown) if kind.lower() == "bearer" else None
            if found is None:
                raise _refused()
            user, token = found, shown
        self._doors.prove(door)
        implicit = _implicit(headers)
        if info.method == fl.FlightMethod.HANDSHAKE:
            return Handshake(token)
        if not self._calls.begin(user.name):
            hint = "Read the answers that are there, or close them."
            raise Refusal("server-busy", "Too many calls of this user are under way.", hint=hint)
        return Caller(user, token, calls=self._calls, implicit=implicit)

    def fault(self, kind: str) -> None:
        """Tell those who run the server that something failed, without its words."""
        self._gateway.telemetry.log("fault", surface=SURFACE, kind=kind)

    def _checked(self, shown: str, *, address: str) -> User:
        name, password = _basic(shown)
        user = self._gateway.login(SURFACE, name, password=password, address=address)
        if user is None:
            raise _refused()
        return user


def _header(headers: Headers, name: str) -> str:
    """Return a header; of several the last, which the guard at the door has written."""
    value = headers.get(name, [""])[-1]
    return value if isinstance(value, str) and len(value) <= _LONGEST_HEADER else ""


def _implicit(headers: Headers) -> bool | None:
    """Return the setting of a call; None where it has none."""
    written = _header(headers, IMPLICIT).lower()
    if IMPLICIT in headers and written not in _SETTINGS:
        raise UsageError("flight-header", f"The header {IMPLICIT} is on or off.", hint=f"Send {IMPLICIT}: on")
    return _SETTINGS.get(written)


def _basic(shown: str) -> tuple[str, str]:
    """Return name and password, of base64 with or without its padding."""
    try:
        text = base64.b64decode(shown.rstrip("=") + "=" * (-len(shown.rstrip("=")) % 4), validate=True).decode()
    except ValueError:
        text = ""
    name, colon, password = text.partition(":")
    if not colon:
        raise _refused()
    return name, password


def _refused() -> UsageError:
    hint = "Give name and password of a user of this server; after some failures, wait. A token lasts for half a day."
    return UsageError("flight-login", "This call has no login.", hint=hint)
