"""Dispatch of the statements of HTTP's surfaces to the service: their threads, and their number at a time.

Blocking work runs in one of two bounded pools, so that long statements delay no other request, and a user has at most
a few threads of the first pool. When a client leaves, a private statement goes on and is settled and stored; a free one
is stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import anyio
from anyio import CapacityLimiter, Semaphore

from dpsql.errors import Refusal
from dpsql.server.gateway import Gateway
from dpsql.server.users import User

if TYPE_CHECKING:
    from dpsql.session import Session

__all__ = ["StatementDispatch"]

_STATEMENTS, _OTHERS = 256, 32  # threads; more of the first than statements that wait for an engine
_AT_ONCE = 4  # statements of one user; further ones are refused
_LOOKS = 3  # threads of the others of one user; further looks wait
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementDispatch:
    """Access of a surface's requests to the gateway."""

    gateway: Gateway
    surface: str
    asking: Counter[str] = field(default_factory=Counter)
    looking: dict[str, Semaphore] = field(default_factory=dict)
    statements: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(_STATEMENTS))
    others: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(_OTHERS))

    async def answer(self, user: User, act: Callable[[], T]) -> T:
        """Return the answer of a blocking act for a user; raise `Refusal` for too many at once."""
        with self._counted(user):
            return await anyio.to_thread.run_sync(act, limiter=self.statements)

    async def look(self, user: User, act: Callable[[Session], T]) -> T:
        """Return the result of `read`, counted against statements_per_minute."""
        if not self.gateway.throttle.may_ask(user.name):
            hint = "Wait a little; the policy's statements_per_minute says how many there may be."
            raise Refusal("too-many-statements", "This analyst has too many statements waiting.", hint=hint)
        return await self.read(user, act)

    async def read(self, user: User, act: Callable[[Session], T]) -> T:
        """Return the result of an act on the user's session that reads no private row and charges nothing."""
        async with self.looking.setdefault(user.name, Semaphore(_LOOKS)):
            return await self.run(lambda: self.gateway.look(user, act))

    async def run(self, act: Callable[[], T]) -> T:
        """Return the result of a blocking act."""
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
