"""Random bytes for salts, tokens and nonces: the one door of the server to the operating system's generator."""

from __future__ import annotations

import secrets

__all__ = ["unguessable", "unguessable_text"]


def unguessable(count: int) -> bytes:
    """Return `count` bytes that nobody can guess."""
    return secrets.token_bytes(count)


def unguessable_text(count: int) -> str:
    """Return letters, digits, - and _ made of `count` bytes that nobody can guess, for a cookie or a header."""
    return secrets.token_urlsafe(count)
