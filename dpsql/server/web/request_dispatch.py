"""Dispatch of the page's requests to the service: their logins and visits, and clients that leave."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.requests import Request

from dpsql.errors import Refusal
from dpsql.server.statement_dispatch import StatementDispatch
from dpsql.server.users import User
from dpsql.server.visits import Visits, resume

if TYPE_CHECKING:
    from dpsql.answer import Answer
    from dpsql.engines.base import Stop
    from dpsql.sql.syntax.parameters import ParameterValues

__all__ = ["SURFACE", "RequestDispatch", "require_curator"]

SURFACE = "web"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestDispatch(StatementDispatch):
    """Context of every handler of a request; the `visits` are those of browsers."""

    surface: str = SURFACE
    secure: bool
    visits: Visits = field(default_factory=Visits)

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
        return resume(self.visits, self.gateway.users, token=token)

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
        watching = asyncio.create_task(_watch_disconnect(request, gone))
        try:
            return await self.answer(user, lambda: act(gone.is_set))
        finally:
            watching.cancel()


async def _watch_disconnect(request: Request, gone: threading.Event) -> None:
    """Set `gone` when the client of a request, whose body was read, has hung up."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    gone.set()


def require_curator(user: User) -> None:
    """Raise `Refusal` for a user who is not a curator."""
    if not user.is_curator:
        raise Refusal(
            "curators-only", "This is for curators.", hint="Ask a curator, or make one: dpsql user add NAME --curator"
        )
