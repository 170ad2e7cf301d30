"""Visits of logged-in users to the page, and tokens of the JSON API and of MCP.

Both are random texts that only the server can map to users. A visit, and a token of POST /api/v1/token, ends after some
time without a request, after a working day, at logout, and with the server. A token of `dpsql user token` is in the
file of users, as a digest, until it expires or is revoked. Only the event loop uses this module.
"""

from __future__ import annotations

import hmac
import json
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from dpsql.errors import Refusal
from dpsql.server.users import SCOPES, User, Users, digest_token, draw_bytes, draw_text

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


@dataclass(frozen=True, slots=True)
class Access:
    """A user, and the scopes within which a request of theirs may act."""

    user: User
    scopes: frozenset[str]

    @classmethod
    def with_password(cls, user: User) -> Access:
        """Return the access of a user who gave the password: everything."""
        return cls(user, frozenset(SCOPES))

    def require(self, scope: str) -> None:
        """Raise `Refusal` without this scope."""
        if scope not in self.scopes:
            reason = f'This token may not do this: it does not have the scope "{scope}".'
            scopes = " ".join(f"--scope {each}" for each in SCOPES if each in self.scopes | {scope})
            hint = f"A curator makes another: dpsql user token {self.user.name} LABEL {scopes}"
            raise Refusal("token-scope", reason, hint=hint)


class Tokens:
    """The tokens that are valid now; the cookies of the page are other ones."""

    def __init__(self, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._clock = clock
        self._visits = Visits()

    def create(self, user: User, scopes: frozenset[str], *, users: Users) -> str:
        """Return a new token of a user who gave the password."""
        return self._visits.begin(user.name, mark=users.verifier(user.name).stored_key, scopes=scopes)

    def find(self, token: str, users: Users) -> Access | None:
        """Return what a token may do, and as whom; None if it is not valid."""
        user = resume(self._visits, users, token=token)
        if user is not None:
            return Access(user, self._visits.find_scopes(token))
        stored = users.find_token(digest_token(token))
        if stored is None or (stored.expires is not None and stored.expires <= self._clock()):
            return None
        user = users.get(stored.user)
        return None if user is None else Access(user, stored.scopes)

    def end(self, token: str, users: Users) -> None:
        """End a token of `create`. Raises `Refusal` for one of the file of users."""
        stored = users.find_token(digest_token(token))
        if stored is not None:
            hint = f"A curator ends it: dpsql user revoke {stored.user} {json.dumps(stored.label, ensure_ascii=False)}"
            raise Refusal("token-stored", "This token is in the file of users.", hint=hint)
        self._visits.end(token)
