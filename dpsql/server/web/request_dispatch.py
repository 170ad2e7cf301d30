"""Dispatch of the page's requests to the service: their users, their threads, and their number at a time.

Blocking work runs in one of two bounded pools, so that long statements delay no page, and a user has at most a few
threads of the first pool. When a client leaves, a private statement goes on and is settled and stored; a free one is
stopped.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import anyio
from anyio import CapacityLimiter, Semaphore
from starlette.requests import Request

from dpsql.errors import Refusal
from dpsql.server.gateway import Gateway
from dpsql.server.users import User
from dpsql.server.web.visits import Visits

if TYPE_CHECKING:
    from dpsql.answer import Answer
    from dpsql.engines.base import Stop
    from dpsql.session import Session
    from dpsql.sql.syntax.parameters import ParameterValues

__all__ = ["SURFACE", "RequestDispatch", "require_curator"]

SURFACE = "web"
_STATEMENTS, _OTHERS = 256, 32  # threads; more of the first than statements that wait for an engine
_AT_ONCE = 4  # statements of one user; further ones are refused
_LOOKS = 3  # threads of the others of one user; further looks wait
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RequestDispatch:
    """Context of every handler of a request."""

    gateway: Gateway
    secure: bool
    visits: Visits = field(default_factory=Visits)
    asking: Counter[str] = field(default_factory=Counter)
    looking: dict[str, Semaphore] = field(default_factory=dict)
    statements: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(_STATEMENTS))
    others: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(_OTHERS))

    async def login(self, name: str, password: str, *, address: str) -> User:
        """Return the user with this name and password; raise the same `Refusal` in every other case."""
        user = await self.run(lambda: self.gateway.login(SURFACE, name, password=password, address=address))
        if user is None:
            hint = "Check both; after several failures, wait some minutes."
            raise Refusal("login-failed", "Name and password do not fit.", hint=hint)
        return user

    def begin(self, user: User) -> str:
        """Return the token of a new visit of a user who has logged in."""
        return self.visits.begin(user.name, mark=self.gateway.users.verifier(user.name).stored_key)

    def visitor(self, token: str) -> User | None:
        """Return whose visit this is; None if it has ended, if the user was removed or has another password now."""
        name = self.visits.find_user(token)
        if name is None:
            return None
        user = self.gateway.users.get(name)
        if user is None or self.gateway.users.verifier(name).stored_key != self.visits.find_mark(token):
            self.visits.end(token)
            return None
        return user

    async def ask(
        self,
        user: User,
        text: str,
        *,
        request: Request,
        parameters: ParameterValues = (),
        implicit: bool | None = None,
    ) -> Answer:
        """Return the answer to a statement; raise as `Gateway.ask`, and `Refusal` for too many at once.

        The body of the `request` was read; what is free is stopped when its client goes away.
        """
        gateway = self.gateway.with_implicit(implicit)
        return await self._answer(
            user,
            lambda stop: gateway.ask(SURFACE, user, text=text, parameters=parameters, stop=stop),
            request=request,
        )

    async def replay(self, user: User, text: str, *, request: Request) -> Answer:
        """Return the answer to a statement that is stored or free; raise as `Gateway.replay` and as `ask`."""
        return await self._answer(
            user, lambda stop: self.gateway.replay(SURFACE, user, text=text, stop=stop), request=request
        )

    async def _answer(self, user: User, act: Callable[[Stop], Answer], *, request: Request) -> Answer:
        gone = threading.Event()
        with self._counted(user):
            watching = asyncio.create_task(_watch_disconnect(request, gone))
            try:
                return await anyio.to_thread.run_sync(lambda: act(gone.is_set), limiter=self.statements)
            finally:
                watching.cancel()

    async def look(self, user: User, act: Callable[[Session], T]) -> T:
        """Return what `read` does, counted as a statement of the minute's."""
        if not self.gateway.throttle.may_ask(user.name):
            hint = "Wait a little; the policy's statements_per_minute says how many there may be."
            raise Refusal("too-many-statements", "This analyst has too many statements waiting.", hint=hint)
        return await self.read(user, act)

    async def read(self, user: User, act: Callable[[Session], T]) -> T:
        """Return what an act makes of the user's session that reads no private row and charges nothing."""
        async with self.looking.setdefault(user.name, Semaphore(_LOOKS)):
            return await self.run(lambda: self.gateway.look(user, act))

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


async def _watch_disconnect(request: Request, gone: threading.Event) -> None:
    """Set `gone` when the client of a request, whose body was read, has hung up."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    gone.set()


def require_curator(user: User) -> None:
    """Raise `Refusal` for a user who is not a curator."""
    if not user.is_curator:
        raise Refusal("curators-only", "This is for curators.", hint="Ask a curator; dpsql user add makes one.")
