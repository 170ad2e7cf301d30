"""Random bytes for salts, tokens and nonces, from the operating system; the rest of the server draws none itself."""

from __future__ import annotations

import secrets

__all__ = ["draw_bytes", "draw_text"]


def draw_bytes(count: int) -> bytes:
    """Return `count` random bytes."""
    return secrets.token_bytes(count)


def draw_text(count: int) -> str:
    """Return `count` random bytes as letters, digits, - and _, for a cookie or a header."""
    return secrets.token_urlsafe(count)
