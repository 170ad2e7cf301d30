"""Where the page's requests meet the service: who asks, in which thread, and how many at once.

What blocks runs in one of two bounded pools, so that statements that take their time hold up no page; and no user holds
more of the first than a few threads. Whoever goes away leaves their statement running: it is settled and stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field
from typing import TYPE_CHECKING, TypeVar

import anyio
from anyio import CapacityLimiter, Semaphore

from dpsql.errors import Refusal
from dpsql.server.front import Front
from dpsql.server.users import User
from dpsql.server.web.visits import Visits
from dpsql.values import dataclass

if TYPE_CHECKING:
    from dpsql.answer import Answer
    from dpsql.session import Session
    from dpsql.sql.parameters import Given

__all__ = ["SURFACE", "Desk", "require_curator"]

SURFACE = "web"
_STATEMENTS, _OTHERS = 16, 8  # threads
_AT_ONCE = 4  # statements of one user; further ones are refused
_LOOKS = 3  # threads of the others of one user; further looks wait
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Desk:
    """What every handler of a request is given."""

    front: Front
    secure: bool
    visits: Visits = field(default_factory=Visits)
    asking: Counter[str] = field(default_factory=Counter)
    looking: dict[str, Semaphore] = field(default_factory=dict)
    statements: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(_STATEMENTS))
    others: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(_OTHERS))

    async def login(self, name: str, password: str, *, address: str) -> User:
        """Return the user whose password this is; raise the same `Refusal` whatever is wrong."""
        user = await self.run(lambda: self.front.login(SURFACE, name, password=password, address=address))
        if user is None:
            hint = "Check both; after several failures, wait some minutes."
            raise Refusal("login-failed", "Name and password do not fit.", hint=hint)
        return user

    def begin(self, user: User) -> str:
        """Return the token of a new visit of a user who has logged in."""
        return self.visits.begin(user.name, mark=self.front.users.verifier(user.name).stored_key)

    def visitor(self, token: str) -> User | None:
        """Return whose visit this is; None if it has ended, if the user was removed or has another password now."""
        name = self.visits.name_of(token)
        if name is None:
            return None
        user = self.front.users.get(name)
        if user is None or self.front.users.verifier(name).stored_key != self.visits.mark_of(token):
            self.visits.end(token)
            return None
        return user

    async def ask(self, user: User, text: str, *, parameters: Given = ()) -> Answer:
        """Return the answer to a statement; raise as `Front.ask`, and `Refusal` for too many at once."""
        with self._counted(user):
            return await anyio.to_thread.run_sync(
                lambda: self.front.ask(SURFACE, user, text=text, parameters=parameters), limiter=self.statements
            )

    async def look(self, user: User, act: Callable[[Session], T]) -> T:
        """Return what `read` does, counted as a statement of the minute's."""
        if not self.front.throttle.may_ask(user.name):
            hint = "Wait a little; the policy's statements_per_minute says how many there may be."
            raise Refusal("too-many-statements", "This analyst asks too often.", hint=hint)
        return await self.read(user, act)

    async def read(self, user: User, act: Callable[[Session], T]) -> T:
        """Return what an act makes of the user's session that reads no private row and charges nothing."""
        async with self.looking.setdefault(user.name, Semaphore(_LOOKS)):
            return await self.run(lambda: act(self.front.session(user)))

    async def run(self, act: Callable[[], T]) -> T:
        """Return what a blocking act returns."""
        return await anyio.to_thread.run_sync(act, limiter=self.others)

    @contextmanager
    def _counted(self, user: User) -> Iterator[None]:
        if self.asking[user.name] >= _AT_ONCE:
            hint = "Wait for the answers to those that are running."
            raise Refusal("server-busy", "This user has too many statements running.", hint=hint)
        self.asking[user.name] += 1
        try:
            yield
        finally:
            self.asking[user.name] -= 1
            if not self.asking[user.name]:
                del self.asking[user.name]


def require_curator(user: User) -> None:
    """Raise `Refusal` for whoever is no curator."""
    if not user.is_curator:
        raise Refusal("curators-only", "This is for curators.", hint="Ask a curator; dpsql user add makes one.")
