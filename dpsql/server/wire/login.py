"""Start of a connection: TLS, the protocol's version, a request to cancel, the login, and the first settings.

The login is SCRAM-SHA-256 (RFC 5802, RFC 7677) without channel binding. An unknown user name takes the same steps as a
wrong password.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dpsql.policy.settings import is_loopback
from dpsql.server.users import draw_bytes
from dpsql.server.wire.codec import Malformed, PasswordMessage, message, parse_cstrings, text_message
from dpsql.server.wire.sqlstates import WireError
from dpsql.server.wire.stream import Channel
from dpsql.server.wire.transaction import PER_CONNECTION, REPORTED, Settings, format_version

if TYPE_CHECKING:
    from dpsql.server.gateway import Gateway
    from dpsql.server.users import User, Verifier
    from dpsql.server.wire.stream import ClientLimits

_CANCEL, _TLS, _GSS = 80877102, 80877103, 80877104
_MAJOR, _NEWEST = 3, 2
_NUMBER, _MAX_KEY = 4, 256  # bytes of a request to cancel
_MAX_NAME = 200  # characters
SURFACE = "postgres"
_OPTION = re.compile(r"(?:-c\s*|--)(?P<name>[A-Za-z_][\w.-]*)=(?P<value>(?:\\.|[^\s\\])*)\s*")
_NOT_SETTINGS = frozenset(["user", "database", "options", "replication"])
_LONG_KEY, _SHORT_KEY = 32, 4  # bytes of the key that cancels; long ones since minor version 2
_LONG_KEY_MINOR = 2


@dataclass(frozen=True, slots=True)
class Startup:
    """The parameters of a connection, the user name among them, and the minor version of its protocol."""

    parameters: Mapping[str, str]
    minor: int

    @property
    def user(self) -> str:
        """The user name of the login."""
        return self.parameters.get("user", "")


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """A request to cancel the statement of another connection, identified by `number` and `key`."""

    number: int
    key: bytes


async def negotiate(channel: Channel, tls: ssl.SSLContext | None) -> Startup | CancelRequest:
    """Return the startup of a client, after TLS if requested.

    Raises `Malformed`, `WireError` and `ClientDisconnected`.
    """
    codes = set[int]()
    while True:
        code, data = await channel.receive_startup()
        if code in codes:
            raise Malformed("Encryption was requested twice.")
        codes.add(code)
        match code:
            case _ if code == _TLS and tls is not None and not channel.is_encrypted:
                await channel.encrypt(tls)
            case _ if code in {_TLS, _GSS}:  # libpq requests GSSAPI first, then TLS, and goes on after each N
                channel.send(b"N")
                await channel.flush()
            case _ if code == _CANCEL:
                if not _NUMBER < len(data) <= _NUMBER + _MAX_KEY:
                    raise Malformed("A request to cancel has an impossible length.")
                return CancelRequest(int.from_bytes(data[:_NUMBER]), data[_NUMBER:])
            case _:
                return _accept_version(channel, code, data=data)


def _accept_version(channel: Channel, code: int, *, data: bytes) -> Startup:
    """Return the startup of a client, and announce the version and options that are supported of those requested."""
    major, minor = divmod(code, 1 << 16)
    if major != _MAJOR:
        reason = "This version of PostgreSQL's protocol is not supported."
        raise WireError("0A000", reason, hint="Use a client of PostgreSQL 7.4 or later.", fatal=True)
    texts = parse_cstrings(data)
    parameters = dict(zip(texts[::2], texts[1::2], strict=True))
    # a newer client goes on with this version and without these options once it knows
    unknown = [name for name in parameters if name.startswith("_pq_.")]
    if minor > _NEWEST or unknown:
        minor = min(minor, _NEWEST)
        counts = ((_MAJOR << 16) + minor).to_bytes(4), len(unknown).to_bytes(4)
        channel.send(message(b"v", *counts, *(name.encode() + b"\0" for name in unknown)))
    if parameters.get("replication", "false").lower() not in {"false", "off", "no", "0"}:
        raise WireError("0A000", "Replication is not supported.", hint="Connect without replication.", fatal=True)
    return Startup(parameters, minor)


async def login(channel: Channel, startup: Startup, *, gateway: Gateway, limits: ClientLimits) -> User:
    """Return the user who proves to know the password.

    Raises a fatal `WireError`, `Malformed` and `ClientDisconnected`.
    """
    name, address = startup.user[:_MAX_NAME], channel.address
    if not channel.is_encrypted:
        _check_unencrypted(address, is_tls_required=gateway.service.policy.server.require_tls)
    _check_admission(gateway, name, address=address)
    exchange = Exchange(gateway.users.verifier(name))
    channel.send(message(b"R", (10).to_bytes(4), MECHANISM.encode(), b"\0\0"))
    first = parse_initial_response(await _receive_step(channel, limits))
    channel.send(message(b"R", (11).to_bytes(4), exchange.create_challenge(first)))
    last = await _receive_step(channel, limits)
    _check_admission(gateway, name, address=address)  # again, as simultaneous guesses may have failed meanwhile
    proof = exchange.check_proof(last)
    user = None
    if proof is None:
        gateway.turn_away(SURFACE, name, address=address)
    else:
        user = gateway.let_in(SURFACE, name, address=address)
    if proof is None or user is None:
        raise WireError(
            "28P01", "The name or the password is wrong.", hint="Ask the curator for a new password.", fatal=True
        )
    channel.send(message(b"R", (12).to_bytes(4), proof), message(b"R", bytes(4)))
    return user


def _check_unencrypted(address: str, *, is_tls_required: bool) -> None:
    """Raise `WireError` for a connection without TLS from another machine and, where TLS is required, from any."""
    reason = "All connections must be encrypted, those from this machine too: the policy has require_tls."
    hint = "Connect with sslmode=require; a proxy on this machine needs TLS towards this server."
    if not is_tls_required:
        if not address or is_loopback(address):
            return
        reason, hint = "Connections from other machines must be encrypted.", "Connect with sslmode=require."
    raise WireError("28000", reason, hint=hint, fatal=True)


def _check_admission(gateway: Gateway, name: str, *, address: str) -> None:
    if not gateway.admit(SURFACE, name, address=address):
        raise WireError("53300", "Too many logins failed.", hint="Try again in a few minutes.", fatal=True)


async def _receive_step(channel: Channel, limits: ClientLimits) -> bytes:
    await channel.flush()
    step = await channel.receive(max_bytes=limits.before_login)
    if not isinstance(step, PasswordMessage):
        raise Malformed("A message other than a step of the login was received.")
    return step.data


def initial_settings(startup: Startup) -> Settings:
    """Return the settings of a startup, its `options` first; the caller checks the role. Raise `WireError`."""
    requested = list[tuple[str, str]]()
    options, at = startup.parameters.get("options", "").strip(), 0
    while at < len(options):
        found = _OPTION.match(options, at)
        if found is None:
            hint = "Write them as options='-c name=value'."
            raise WireError("08P01", "The options of the connection cannot be parsed.", hint=hint)
        at = found.end()
        requested.append((found["name"].lower().replace("-", "_"), re.sub(r"\\(.)", r"\1", found["value"])))
    for name, value in startup.parameters.items():
        if name not in _NOT_SETTINGS and not name.startswith("_pq_."):
            requested.append((name.lower(), value))
    settings = Settings()
    for name, value in requested:
        settings = replace(settings, role=value) if name == "role" else settings.with_value(name, value)
    return settings


def create_key(minor: int) -> bytes:
    """Return a random key to cancel statements, as long as the minor version of the protocol allows."""
    return draw_bytes(_LONG_KEY if minor >= _LONG_KEY_MINOR else _SHORT_KEY)


def reported_settings(settings: Settings, *, version: str, user: str) -> dict[str, str]:
    """Return the settings that are reported to a client after its login, by name."""
    per_connection = {"server_version": format_version(version), "session_authorization": user}
    return {name: per_connection[name] if name in PER_CONNECTION else settings.get(name.lower()) for name in REPORTED}


def session_messages(reported: Mapping[str, str], *, number: int, key: bytes) -> list[bytes]:
    """Return the messages that end a login: the reported settings, and the key to cancel statements."""
    return [*(text_message(b"S", *setting) for setting in reported.items()), message(b"K", number.to_bytes(4), key)]


MECHANISM = "SCRAM-SHA-256"
# As in PostgreSQL, the user name n= is ignored: the startup packet has it, and libpq sends none here.
_FIRST = re.compile(r"(?P<header>[ny],,)(?P<bare>n=[^,]*,r=(?P<nonce>[\x21-\x2b\x2d-\x7e]{8,128})(?:,.*)?)", re.DOTALL)
_FINAL = re.compile(r"(?P<unproven>c=(?P<header>[^,]*),r=(?P<nonce>[^,]*)(?:,(?!p=).*)?),p=(?P<proof>[^,]*)", re.DOTALL)


def parse_initial_response(data: bytes) -> bytes:
    """Return the content of a client's first step; raise `Malformed`, also for another mechanism."""
    name, _, rest = data.partition(b"\0")
    if name != MECHANISM.encode():
        raise Malformed("The client chose a login mechanism that was not offered.")
    if int.from_bytes(rest[:4]) != len(rest) - 4:
        raise Malformed("A step of the login does not fit its length.")
    return rest[4:]


class Exchange:
    """State of one login: `create_challenge` answers the client's first message, `check_proof` its last; no I/O."""

    __slots__ = ("_first", "_header", "_nonce", "_verifier")

    def __init__(self, verifier: Verifier) -> None:
        self._verifier = verifier
        self._first = self._header = self._nonce = ""

    def create_challenge(self, data: bytes) -> bytes:
        """Return the nonce, the salt and the number of iterations; raise `Malformed`."""
        found = _FIRST.fullmatch(_decode_text(data))
        if found is None:
            raise Malformed("The first step of the login cannot be parsed, or requests what is not offered.")
        self._header, self._nonce = found["header"], found["nonce"] + base64.b64encode(draw_bytes(18)).decode()
        salt = base64.b64encode(self._verifier.salt).decode()
        answer = f"r={self._nonce},s={salt},i={self._verifier.iterations}"
        self._first = f"{found['bare']},{answer}"
        return answer.encode()

    def check_proof(self, data: bytes) -> bytes | None:
        """Return the server's proof, or None if the client's is wrong; raise `Malformed`."""
        found = _FINAL.fullmatch(_decode_text(data))
        if found is None or found["nonce"] != self._nonce or _decode_base64(found["header"]) != self._header.encode():
            raise Malformed("The last step of the login cannot be parsed, or belongs to another login.")
        transcript = f"{self._first},{found['unproven']}".encode()
        signature = hmac.digest(self._verifier.stored_key, transcript, "sha256")
        proof = _decode_base64(found["proof"])
        if len(proof) != len(signature):
            raise Malformed("The proof of the login has a wrong length.")
        key = bytes(mine ^ theirs for mine, theirs in zip(signature, proof, strict=True))
        if not hmac.compare_digest(hashlib.sha256(key).digest(), self._verifier.stored_key):
            return None
        return b"v=" + base64.b64encode(hmac.digest(self._verifier.server_key, transcript, "sha256"))


def _decode_text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        pass
    raise Malformed("A step of the login is not UTF-8.")


def _decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        pass
    raise Malformed("A step of the login is not in base64.")
