"""Tokens of the JSON API and of MCP: whose they are, and what they may do.

A token of POST /api/v1/token ends when it is not used, and with the server. One of `dpsql user token` is in the file of
users, as a digest, until it expires or is revoked. The cookies of the page are other tokens, which open only the page.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from dpsql.errors import Refusal
from dpsql.server.users import SCOPES, User, Users
from dpsql.server.visits import Visits, digest_token, resume

__all__ = ["Access", "Tokens"]


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
    """The tokens that are valid now. Only the event loop uses it."""

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
