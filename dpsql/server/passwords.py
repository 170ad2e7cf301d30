"""Verifiers of passwords for SCRAM-SHA-256 (RFC 5802 and 7677); a verifier alone does not allow a login.

Every surface can use one: PostgreSQL's clients prove that they know the password without sending it, and the page
receives the password and computes its verifier again.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import stringprep
import unicodedata
from dataclasses import dataclass, field

__all__ = ["ITERATIONS", "SALT_BYTES", "Verifier", "can_saslprep", "derive_verifier", "has_password", "saslprep"]

ITERATIONS = 16_384  # a few milliseconds; drivers in interpreted languages compute it at every connection
SALT_BYTES = 16
_MIN_ITERATIONS = 4096  # of RFC 7677
_MAX_ITERATIONS = 10_000_000
_KEY_BYTES = 32
_MAX_PASSWORD = 1024  # characters; longer ones cannot be right and are not computed
_BASE64 = r"[A-Za-z0-9+/]+={0,2}"
_FORMAT = re.compile(rf"SCRAM-SHA-256\$([0-9]{{4,8}}):({_BASE64})\$({_BASE64}):({_BASE64})")
_FORBIDDEN = (
    stringprep.in_table_a1,
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


@dataclass(frozen=True, slots=True)
class Verifier:
    """The data with which a server checks a password; its `repr` shows none of it."""

    iterations: int
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    def encode(self) -> str:
        """Return the verifier as text, in the format of PostgreSQL's pg_authid."""
        salt, stored, server = (
            base64.b64encode(part).decode() for part in (self.salt, self.stored_key, self.server_key)
        )
        return f"SCRAM-SHA-256${self.iterations}:{salt}${stored}:{server}"

    @classmethod
    def parse(cls, text: str) -> Verifier | None:
        """Parse the text of a verifier, or return None."""
        found = _FORMAT.fullmatch(text)
        if found is None:
            return None
        try:
            salt, stored, server = (base64.b64decode(part, validate=True) for part in found.groups()[1:])
        except ValueError:
            return None
        iterations = int(found[1])
        is_valid = _MIN_ITERATIONS <= iterations <= _MAX_ITERATIONS and len(stored) == len(server) == _KEY_BYTES
        return cls(iterations, salt, stored, server) if is_valid else None


def derive_verifier(password: str, salt: bytes, *, iterations: int = ITERATIONS) -> Verifier:
    """Derive the verifier of a password with a salt."""
    salted = hashlib.pbkdf2_hmac("sha256", saslprep(password).encode(errors="replace"), salt, iterations)
    client = hmac.digest(salted, b"Client Key", "sha256")
    return Verifier(iterations, salt, hashlib.sha256(client).digest(), hmac.digest(salted, b"Server Key", "sha256"))


def has_password(verifier: Verifier, password: str) -> bool:
    """Return whether a verifier is that of a password, in constant time."""
    candidate = password if len(password) <= _MAX_PASSWORD else ""
    computed = derive_verifier(candidate, verifier.salt, iterations=verifier.iterations)
    return hmac.compare_digest(computed.stored_key, verifier.stored_key) and candidate == password


def saslprep(password: str) -> str:
    """Apply SASLprep (RFC 4013) to a password; return one that it rejects unchanged, as libpq does."""
    normal = _normalise(password)
    return password if normal is None else normal


def can_saslprep(password: str) -> bool:
    """Return whether SASLprep accepts a password, so that every client sends the same bytes."""
    return _normalise(password) is not None


def _normalise(password: str) -> str | None:
    mapped = (" " if stringprep.in_table_c12(char) else char for char in password if not stringprep.in_table_b1(char))
    normal = unicodedata.normalize("NFKC", "".join(mapped))
    return None if not normal or _is_forbidden(normal) else normal


def _is_forbidden(text: str) -> bool:
    if any(forbids(char) for char in text for forbids in _FORBIDDEN):
        return True
    if not any(stringprep.in_table_d1(char) for char in text):
        return False
    ends_right = stringprep.in_table_d1(text[0]) and stringprep.in_table_d1(text[-1])
    return not ends_right or any(stringprep.in_table_d2(char) for char in text)
