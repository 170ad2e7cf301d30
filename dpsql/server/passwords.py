"""What is kept of a password: the verifier of SCRAM-SHA-256 (RFC 5802 and 7677), from which nobody can log in.

It is the one form that every surface can use: PostgreSQL's clients prove that they know the password without sending
it, and the page and Flight SQL, which are sent it, compute the verifier again.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import stringprep
import unicodedata
from dataclasses import dataclass, field

__all__ = ["ITERATIONS", "SALT_BYTES", "Verifier", "has_password", "is_preparable", "prepared", "verifier_of"]

ITERATIONS = 16_384  # a few milliseconds; drivers that compute it in an interpreter must do so at every connection
SALT_BYTES = 16
_LEAST_ITERATIONS = 4096  # of RFC 7677
_MOST_ITERATIONS = 10_000_000
_KEY_BYTES = 32
_LONGEST_PASSWORD = 1024  # what is longer is no password of ours, and not worth a computation of its length
_BASE64 = r"[A-Za-z0-9+/]+={0,2}"
_SPELLED = re.compile(rf"SCRAM-SHA-256\$([0-9]{{4,8}}):({_BASE64})\$({_BASE64}):({_BASE64})")
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
    """What a server must know to check a password, and no more; it shows nothing of itself."""

    iterations: int
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    def spelled(self) -> str:
        """Return it as PostgreSQL spells it in pg_authid."""
        salt, stored, server = (
            base64.b64encode(part).decode() for part in (self.salt, self.stored_key, self.server_key)
        )
        return f"SCRAM-SHA-256${self.iterations}:{salt}${stored}:{server}"

    @classmethod
    def read(cls, text: str) -> Verifier | None:
        """Return the verifier that a text spells, or None."""
        found = _SPELLED.fullmatch(text)
        if found is None:
            return None
        try:
            salt, stored, server = (base64.b64decode(part, validate=True) for part in found.groups()[1:])
        except ValueError:
            return None
        iterations = int(found[1])
        fits = _LEAST_ITERATIONS <= iterations <= _MOST_ITERATIONS and len(stored) == len(server) == _KEY_BYTES
        return cls(iterations, salt, stored, server) if fits else None


def verifier_of(password: str, salt: bytes, *, iterations: int = ITERATIONS) -> Verifier:
    """Return the verifier of a password under a salt."""
    salted = hashlib.pbkdf2_hmac("sha256", prepared(password).encode(errors="replace"), salt, iterations)
    client = hmac.digest(salted, b"Client Key", "sha256")
    return Verifier(iterations, salt, hashlib.sha256(client).digest(), hmac.digest(salted, b"Server Key", "sha256"))


def has_password(verifier: Verifier, password: str) -> bool:
    """Return whether a password is that of a verifier, in a time that tells nothing of how nearly it is."""
    given = password if len(password) <= _LONGEST_PASSWORD else ""
    computed = verifier_of(given, verifier.salt, iterations=verifier.iterations)
    return hmac.compare_digest(computed.stored_key, verifier.stored_key) and given == password


def prepared(password: str) -> str:
    """Return a password as SASLprep (RFC 4013) writes it, or as it is where that has no word for it, as libpq does."""
    normal = _normal(password)
    return password if normal is None else normal


def is_preparable(password: str) -> bool:
    """Return whether SASLprep has a word for a password, so that every client writes it in the same way."""
    return _normal(password) is not None


def _normal(password: str) -> str | None:
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
