"""What every surface is given: who may come in, how often, and the service that they ask.

A surface lets a connection in (`enter`), has its user prove who they are (`login`, or `admit` and then `let_in` or
`turn_away` where the proof is the surface's own, as SCRAM's is), and asks under that user's name.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from dpsql.errors import EngineError, Error, Refusal
from dpsql.policy.server import is_loopback
from dpsql.server.service import Service
from dpsql.server.telemetry import PRIVATE, Telemetry
from dpsql.server.throttle import Throttle
from dpsql.server.users import User, Users

if TYPE_CHECKING:
    import pyarrow as pa

    from dpsql.answer import Answer
    from dpsql.engines.base import Stop
    from dpsql.session import Session
    from dpsql.sql.syntax.parameters import ParameterValues

__all__ = ["Gateway"]

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Gateway:
    """One door for all surfaces; threads may share it."""

    service: Service
    users: Users
    watch: Telemetry
    throttle: Throttle

    def enter(self, surface: str) -> bool:
        """Count a connection and return True, or return False where the policy's `max_connections` are open."""
        if self.service.is_closed or self.watch.connections() >= self.service.policy.server.max_connections:
            return False
        self.watch.connected(surface)
        return True

    def leave(self, surface: str) -> None:
        """Count the end of a connection that was let in."""
        self.watch.disconnected(surface)

    def admit(self, surface: str, name: str, *, address: str) -> bool:
        """Return whether a proof of a password may be looked at; after failures it may not for a while.

        A surface asks before it lets anybody begin, and again once the proof is there: others may have failed since.
        """
        if self.throttle.admit(name, address):
            return True
        self.watch.failed_login(surface)
        self.watch.log("login-throttled", surface=surface, user=name, address=address)
        return False

    def let_in(self, surface: str, name: str, *, address: str) -> User | None:
        """Return the user who has proved who they are; None for one who was removed meanwhile."""
        self.throttle.passed(name, address)
        self.watch.log("login", surface=surface, user=name, address=address)
        return self.users.get(name)

    def turn_away(self, surface: str, name: str, *, address: str) -> None:
        """Remember that a proof was wrong."""
        self.throttle.failed(name, address)
        self.watch.failed_login(surface)
        self.watch.log("login-failed", surface=surface, user=name, address=address)

    def login(self, surface: str, name: str, *, password: str, address: str) -> User | None:
        """Return the user whose password this is, or None; the computation takes some milliseconds of a thread."""
        if not self.admit(surface, name, address=address):
            return None
        if self.users.check(name, password) is None:
            self.turn_away(surface, name, address=address)
            return None
        if not self.admit(surface, name, address=address):  # guesses that are made at once do not share one admission
            return None
        return self.let_in(surface, name, address=address)

    def may_ask(self, user: User) -> bool:
        """Return whether a user may ask as an analyst: a curator may where the policy lists them by name alone."""
        own = self.service.policy.analysts.get(user.name)
        return not user.is_curator or (own is not None and own.enabled)

    def acting(self, user: User, role: str) -> str:
        """Return the analyst for whom a user asks after SET ROLE; raise `Refusal` for one that they may not act as."""
        current = self._current(user)
        if role == current.name and not self.may_ask(current):
            hint = "List the curator under [analysts] in the policy, or ask as somebody else."
            raise Refusal("no-analyst", "A curator asks only where the policy lists them as an analyst.", hint=hint)
        if role != current.name and role not in current.acts_as:
            hint = "A curator says for whom a service account asks: dpsql user add NAME --acts-as ANALYST"
            raise Refusal("role", "This user may not ask for this analyst.", hint=hint)
        self.service.policy.analyst(role)
        return role

    def ask(
        self,
        surface: str,
        user: User,
        *,
        text: str,
        parameters: ParameterValues = (),
        role: str | None = None,
        stop: Stop | None = None,
    ) -> Answer:
        """Return the answer to a statement, charged to the user or to the `role` they act as; raises as a session.

        What is free is interrupted soon after `stop` returns True: the client has gone, or has cancelled it.
        """

        def asking(analyst: str) -> Answer:
            self._count(analyst)
            began = time.monotonic()
            answer = self.service.ask(analyst, text, parameters=parameters, stop=stop)
            self._told(surface, analyst, answer=answer, seconds=time.monotonic() - began)
            return answer

        return self._watched(surface, user, role=role, act=asking)

    def describe(
        self, surface: str, user: User, *, text: str, parameters: ParameterValues = (), role: str | None = None
    ) -> pa.Schema:
        """Return the columns that the answer to a statement would have; free, and no statement of the minute's."""

        def describing(analyst: str) -> pa.Schema:
            began = time.monotonic()
            schema = self.service.describe(analyst, text, parameters=parameters)
            self.watch.answered(surface, "describe", seconds=time.monotonic() - began)
            return schema

        return self._watched(surface, user, role=role, act=describing)

    def look(self, user: User, act: Callable[[Session], Result], *, role: str | None = None) -> Result:
        """Return what `act` makes of the session of a user, or of the `role` they act as; it reads no private row.

        Analysts take turns, since reading statements takes the processor from everybody else.
        """
        with self.service.looking(self.acting(user, user.name if role is None else role)) as session:
            return act(session)

    def health(self) -> str:
        """Return "ok", or "stopping" once nothing is answered any more."""
        return "stopping" if self.service.is_closed else "ok"

    def may_see_metrics(self, user: User | None, *, address: str, is_forwarded: bool) -> bool:
        """Return whether metrics may be told: to a curator, and to this machine unless it passes on for another."""
        current = None if user is None else self.users.get(user.name)
        return (current is not None and current.is_curator) or (is_loopback(address) and not is_forwarded)

    def _current(self, user: User) -> User:
        """Return the user as the file now has them; who was removed asks nothing more."""
        found = self.users.get(user.name)
        if found is None:
            raise Refusal("user-removed", "This user is no longer there.", hint="Ask the curator.")
        return found

    def _watched(self, surface: str, user: User, *, role: str | None, act: Callable[[str], Result]) -> Result:
        """Act for the analyst who asks; count what is refused, and let nothing out but errors of dpsql's own.

        They are raised outside the handlers, so that nothing hangs on them.
        """
        analyst = user.name if role is None else role
        try:
            return act(self.acting(user, analyst))
        except Error as error:
            refused = error
        except Exception as error:  # noqa: BLE001 - its words could hold anything
            self.watch.log("fault", surface=surface, analyst=analyst, kind=type(error).__name__, where=_where(error))
            hint = "Ask the curator: what happened is in the server's log, without values."
            refused = EngineError("server-failed", "The server could not answer.", hint=hint)
        self.watch.refused(surface, refused.code, analyst=analyst)
        self.watch.log("refused", surface=surface, analyst=analyst, code=refused.code)
        raise refused

    def _count(self, analyst: str) -> None:
        if not self.throttle.may_ask(analyst):
            hint = "Wait a little; the policy's statements_per_minute says how many there may be."
            raise Refusal("too-many-statements", "This analyst asks too often.", hint=hint)

    def _told(self, surface: str, analyst: str, *, answer: Answer, seconds: float) -> None:
        kind, items = _kind(answer), answer.receipt.items_charged
        self.watch.answered(surface, kind, seconds=seconds)
        self.watch.charged(items)
        told = self.watch.told(kind, seconds)
        took = {} if told is None else {"seconds": round(told, 3)}
        self.watch.log("answered", surface=surface, analyst=analyst, kind=kind, items=items, **took)


def _kind(answer: Answer) -> str:
    """Return what a statement did: read private rows, show again what they gave, or neither."""
    from dpsql.answer import NO_MECHANISM

    if answer.receipt.replayed:
        return "replay"
    return "free" if answer.receipt.mechanism == NO_MECHANISM else PRIVATE


def _where(error: Exception) -> str:
    """Return module and line of the innermost frame; no name of a variable and no value."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{trace.tb_frame.f_globals.get('__name__', '?')}:{trace.tb_lineno}"
