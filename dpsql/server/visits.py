"""Visits of logged-in users, by random tokens that only the server can map to users.

A visit ends after some time without a request, after a working day, at logout, and with the server. Only the event loop
uses this module.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from dpsql.server.random_bytes import draw_bytes, draw_text
from dpsql.server.users import User, Users

__all__ = ["IDLE", "LONGEST", "Visits", "digest_token", "resume"]

IDLE = 30 * 60.0  # seconds
LONGEST = 12 * 3600.0
_TOKEN_BYTES = 32
_MOST_OF_ONE = 20  # visits of one user; the oldest ends


@dataclass(slots=True)
class _Visit:
    name: str
    mark: bytes
    scopes: frozenset[str]
    began: float
    asked: float


class Visits:
    """The visits that have not ended."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._key = draw_bytes(_TOKEN_BYTES)
        self._visits: OrderedDict[bytes, _Visit] = OrderedDict()

    def begin(self, name: str, *, mark: bytes = b"", scopes: frozenset[str] = frozenset()) -> str:
        """Return the token of a new visit, which is not stored; `mark` identifies the password that was given."""
        self._forget()
        own = [kept for kept, visit in self._visits.items() if visit.name == name]
        for oldest in own[: max(0, len(own) - _MOST_OF_ONE + 1)]:
            del self._visits[oldest]
        token, now = draw_text(_TOKEN_BYTES), self._clock()
        self._visits[digest_token(token)] = _Visit(name, mark, scopes, now, now)
        return token

    def find_user(self, token: str) -> str | None:
        """Return whose visit this is, and let it go on; None if it has ended or never was."""
        visit, now = self._visits.get(digest_token(token)), self._clock()
        if visit is None or _is_over(visit, now):
            return None
        visit.asked = now
        return visit.name

    def find_mark(self, token: str) -> bytes | None:
        """Return the mark that a visit began with, or None."""
        visit = self._visits.get(digest_token(token))
        return None if visit is None else visit.mark

    def find_scopes(self, token: str) -> frozenset[str]:
        """Return the scopes that a visit began with; none for one that never was."""
        visit = self._visits.get(digest_token(token))
        return frozenset() if visit is None else visit.scopes

    def end(self, token: str) -> None:
        """End a visit, if it has not ended."""
        self._visits.pop(digest_token(token), None)

    def proof(self, token: str) -> str:
        """Return what a form must bring along to have come from our own page; another site cannot know it."""
        return hmac.digest(self._key, token.encode(errors="replace"), "sha256").hex()

    def proves(self, token: str, given: str) -> bool:
        """Return whether a form contains the value that `proof` gave the page."""
        return hmac.compare_digest(self.proof(token).encode(), given.encode(errors="replace"))

    def _forget(self) -> None:
        now = self._clock()
        for kept in [kept for kept, visit in self._visits.items() if _is_over(visit, now)]:
            del self._visits[kept]


def _is_over(visit: _Visit, now: float) -> bool:
    return now - visit.asked > IDLE or now - visit.began > LONGEST


def digest_token(token: str) -> bytes:
    """Return the digest of a token, from which the token cannot be computed."""
    return hashlib.sha256(token.encode(errors="replace")).digest()


def resume(visits: Visits, users: Users, *, token: str) -> User | None:
    """Return whose visit this is; None if it has ended, if the user was removed or has another password now."""
    name = visits.find_user(token)
    if name is None:
        return None
    user = users.get(name)
    if user is None or users.verifier(name).stored_key != visits.find_mark(token):
        visits.end(token)
        return None
    return user
