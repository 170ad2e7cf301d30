"""The server's side of SCRAM-SHA-256 in PostgreSQL (RFC 5802, RFC 7677), without channel binding and without I/O.

The user name in the first message is ignored, as in PostgreSQL: the startup packet has it, and libpq sends none here.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from typing import TYPE_CHECKING

from dpsql.server.random_bytes import draw_bytes
from dpsql.server.wire.codec import Malformed

if TYPE_CHECKING:
    from dpsql.server.passwords import Verifier

__all__ = ["MECHANISM", "Exchange", "parse_initial_response"]

MECHANISM = "SCRAM-SHA-256"
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
    """State of one login: `create_challenge` answers the client's first message, `check_proof` its last."""

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
