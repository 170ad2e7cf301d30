"""SCRAM-SHA-256 as PostgreSQL speaks it (RFC 5802, RFC 7677), without channel binding: the server's side, no I/O.

The name in the first message is not read: PostgreSQL takes that of the startup packet, and libpq sends none.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from typing import TYPE_CHECKING

from dpsql.server.random_bytes import unguessable
from dpsql.server.wire.codec import Malformed

if TYPE_CHECKING:
    from dpsql.server.passwords import Verifier

__all__ = ["MECHANISM", "Exchange", "initial_response"]

MECHANISM = "SCRAM-SHA-256"
_FIRST = re.compile(r"(?P<header>[ny],,)(?P<bare>n=[^,]*,r=(?P<nonce>[\x21-\x2b\x2d-\x7e]{8,128})(?:,.*)?)", re.DOTALL)
_FINAL = re.compile(r"(?P<unproven>c=(?P<header>[^,]*),r=(?P<nonce>[^,]*)(?:,(?!p=).*)?),p=(?P<proof>[^,]*)", re.DOTALL)


def initial_response(data: bytes) -> bytes:
    """Return what a client's first step says, having checked that it chose the mechanism; raises `Malformed`."""
    name, _, rest = data.partition(b"\0")
    if name != MECHANISM.encode():
        raise Malformed("The client chose a mechanism of login that was not offered.")
    if int.from_bytes(rest[:4]) != len(rest) - 4:
        raise Malformed("A step of the login does not fit its length.")
    return rest[4:]


class Exchange:
    """One login: `challenge` answers the client's first message, `outcome` its last."""

    __slots__ = ("_first", "_header", "_nonce", "_verifier")

    def __init__(self, verifier: Verifier) -> None:
        self._verifier = verifier
        self._first = self._header = self._nonce = ""

    def challenge(self, data: bytes) -> bytes:
        """Return the nonce, salt and number of iterations; raises `Malformed`."""
        found = _FIRST.fullmatch(_text(data))
        if found is None:
            raise Malformed("The first step of the login cannot be read, or asks for what is not offered.")
        self._header, self._nonce = found["header"], found["nonce"] + base64.b64encode(unguessable(18)).decode()
        salt = base64.b64encode(self._verifier.salt).decode()
        answer = f"r={self._nonce},s={salt},i={self._verifier.iterations}"
        self._first = f"{found['bare']},{answer}"
        return answer.encode()

    def outcome(self, data: bytes) -> bytes | None:
        """Return the server's own proof, or None where the client's does not hold; raises `Malformed`."""
        found = _FINAL.fullmatch(_text(data))
        if found is None or found["nonce"] != self._nonce or _decoded(found["header"]) != self._header.encode():
            raise Malformed("The last step of the login cannot be read, or belongs to another login.")
        said = f"{self._first},{found['unproven']}".encode()
        signature = hmac.digest(self._verifier.stored_key, said, "sha256")
        proof = _decoded(found["proof"])
        if len(proof) != len(signature):
            raise Malformed("The proof of the login has another length.")
        key = bytes(mine ^ theirs for mine, theirs in zip(signature, proof, strict=True))
        if not hmac.compare_digest(hashlib.sha256(key).digest(), self._verifier.stored_key):
            return None
        return b"v=" + base64.b64encode(hmac.digest(self._verifier.server_key, said, "sha256"))


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        pass
    raise Malformed("A step of the login is not UTF-8.")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        pass
    raise Malformed("A step of the login is not in base64.")
