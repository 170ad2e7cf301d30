"""Random bytes for salts, tokens and nonces, from the operating system; the rest of the server draws none itself."""

from __future__ import annotations

import secrets

__all__ = ["random_bytes", "random_text"]


def random_bytes(count: int) -> bytes:
    """Return `count` random bytes."""
    return secrets.token_bytes(count)


def random_text(count: int) -> str:
    """Return `count` random bytes as letters, digits, - and _, for a cookie or a header."""
    return secrets.token_urlsafe(count)
