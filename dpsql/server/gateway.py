"""Gateway between the surfaces and the service: connections, logins, roles, and the count of what is answered.

A surface lets a connection in (`enter`), logs its user in (`login`, or where the surface checks the proof itself, as
with SCRAM, `admit` and then `let_in` or `turn_away`), and runs statements under that user's name.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from dpsql.answer import Answer
from dpsql.errors import EngineError, Error, Refusal
from dpsql.ledger.failures import MAY_BE_CHARGED
from dpsql.policy.settings import is_loopback
from dpsql.receipt import NO_MECHANISM
from dpsql.server.catalog.protocol import CatalogError
from dpsql.server.service import Service
from dpsql.server.telemetry import CATALOG, DESCRIBE, FREE, PRIVATE, REPLAY, Telemetry
from dpsql.server.throttle import Throttle
from dpsql.server.users import User, Users
from dpsql.server.visits import Access, Tokens

if TYPE_CHECKING:
    from dpsql.engines.base import Stop
    from dpsql.plan import Prepared
    from dpsql.server.fair_queue import Pause
    from dpsql.session import Session
    from dpsql.sql.syntax.parameters import ParameterValues

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Gateway:
    """Entry to the service for all surfaces; threads may share it.

    `implicit` reads standard SQL as private, or not; None leaves it to the policy. With `postgres`, statements mean
    what they mean in PostgreSQL.
    """

    service: Service
    users: Users
    telemetry: Telemetry
    throttle: Throttle
    implicit: bool | None = None
    tokens: Tokens = field(default_factory=Tokens)
    postgres: bool = False

    def with_implicit(self, implicit: bool | None) -> Gateway:  # noqa: FBT001 - the value of a setting
        """Return the same entry for a connection with a setting of its own."""
        return self if implicit is self.implicit else replace(self, implicit=implicit)

    def enter(self, surface: str) -> bool:
        """Count a connection and return True, or return False if `max_connections` of the policy are open."""
        if self.service.is_closed or self.telemetry.open_connections() >= self.service.policy.server.max_connections:
            return False
        self.telemetry.count_connection(surface)
        return True

    def leave(self, surface: str) -> None:
        """Count the end of a connection."""
        self.telemetry.count_disconnection(surface)

    def admit(self, surface: str, name: str, *, address: str) -> bool:
        """Return whether a login may be tried; after failures it may not for a while.

        A surface calls this before a login, and again before it uses the proof, as others may have failed meanwhile.
        """
        if self.throttle.admit(name, address):
            return True
        self.telemetry.count_failed_login(surface)
        self.telemetry.log("login-throttled", surface=surface, user=name, address=address)
        return False

    def let_in(self, surface: str, name: str, *, address: str) -> User | None:
        """Record a login and return its user; None if the user was removed meanwhile."""
        self.throttle.record_login(name, address)
        self.telemetry.log("login", surface=surface, user=name, address=address)
        return self.users.get(name)

    def turn_away(self, surface: str, name: str, *, address: str) -> None:
        """Record a failed login."""
        self.throttle.record_failure(name, address)
        self.telemetry.count_failed_login(surface)
        self.telemetry.log("login-failed", surface=surface, user=name, address=address)

    def login(self, surface: str, name: str, *, password: str, address: str) -> User | None:
        """Check a password and return its user, or None; it computes for some milliseconds."""
        if not self.admit(surface, name, address=address):
            return None
        if self.users.check(name, password) is None:
            self.turn_away(surface, name, address=address)
            return None
        if not self.admit(surface, name, address=address):  # again, as simultaneous guesses may have failed
            return None
        return self.let_in(surface, name, address=address)

    def create_token(self, user: User, scopes: frozenset[str]) -> str:
        """Return a new token for the JSON API and MCP of a user who has logged in."""
        return self.tokens.create(user, scopes, users=self.users)

    def find_token(self, surface: str, token: str) -> Access | None:
        """Return what a token may do, and as whom; count one that is not valid as a failed login, and return None."""
        access = self.tokens.find(token, self.users)
        if access is None:
            self.telemetry.count_failed_login(surface)
        return access

    def end_token(self, token: str) -> None:
        """End a token of `create_token`. Raises `Refusal` for one of the file of users."""
        self.tokens.end(token, self.users)

    def may_ask(self, user: User) -> bool:
        """Return whether a user may run statements: a curator may if the policy lists them by name as an analyst."""
        own = self.service.policy.analysts.get(user.name)
        return not user.is_curator or (own is not None and own.enabled)

    def check_role(self, user: User, role: str) -> str:
        """Return the analyst `role` if the user, as now in the file of users, may act as them; else raise `Refusal`."""
        current = self.check_login(user, role)
        if role == current.name and not self.may_ask(current):
            hint = "List the curator under [analysts] in the policy, or log in as another user."
            raise Refusal("no-analyst", "The policy does not list this curator as an analyst.", hint=hint)
        self.service.policy.analyst(role)
        return role

    def check_login(self, user: User, role: str) -> User:
        """Return the user as now in the file of users; raise `Refusal` for one that was removed or lacks the role."""
        current = self.users.get(user.name)
        if current is None:
            raise Refusal("user-removed", "This user was removed.", hint="Contact the curator.")
        if role != current.name and role not in current.acts_as:
            hint = "A curator decides for whom a service account acts: dpsql user add NAME --acts-as ANALYST"
            raise Refusal("role", "This user may not act as this analyst.", hint=hint)
        return current

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
        """Answer a statement, charged to the user or to the `role` they act as; raise as a session does.

        A free statement is interrupted soon after `stop` returns True, when its client leaves or cancels it.
        """

        def ask_service(analyst: str) -> Answer:
            return self.service.ask(
                analyst, text, parameters=parameters, stop=stop, implicit=self.implicit, postgres=self.postgres
            )

        return self._answer(surface, user, act=ask_service, role=role, check=self.check_role)

    def peek(
        self, surface: str, user: User, *, text: str, parameters: ParameterValues = (), role: str | None = None
    ) -> Answer | None:
        """Answer a statement at once if its answer is at hand, free and still right, else return None.

        It does not wait, so that an event loop may call it. What is answered is checked, counted and logged as by
        `ask`, and raises as that does.
        """
        try:
            analyst = self.check_role(user, user.name if role is None else role)
            known = self.service.peek(
                analyst, text, parameters=parameters, implicit=self.implicit, postgres=self.postgres
            )
        except Error:
            return None  # `ask` raises it
        if known is None:
            return None
        return self._answer(surface, user, act=lambda _: known, role=role, check=self.check_role)

    def replay(self, surface: str, user: User, *, text: str, stop: Stop | None = None) -> Answer:
        """Answer a statement that is stored or free; refuse one that would be charged."""
        return self._answer(
            surface, user, act=lambda analyst: self.service.replay(analyst, text, stop=stop), check=self.check_role
        )

    def prepare(
        self, surface: str, user: User, *, text: str, types: Sequence[str] = (), role: str | None = None
    ) -> Prepared:
        """Return the parameters and columns of a statement, as `dpsql.Session.prepare` documents.

        It is free, and not counted against statements_per_minute.
        """

        def prepare_in_turn(analyst: str) -> Prepared:
            with self.service.looking(analyst) as session:
                return session.prepare(text, types, implicit=self.implicit, postgres=self.postgres)

        return self._answer(surface, user, act=prepare_in_turn, role=role, check=self.check_role, kind=DESCRIBE)

    def answer_from_catalog(
        self,
        surface: str,
        user: User,
        *,
        act: Callable[[Pause], Result],
        role: str,
        kind: str = CATALOG,
        stop: Stop | None = None,
    ) -> Result:
        """Return what `act` reads in the catalog, in a turn of the analyst; it calls the pause between blocks of rows.

        Counted, limited and logged as every statement is, as one of this `kind`. Raises `Error` and `CatalogError`.
        """

        def read_in_turn(analyst: str) -> Result:
            with self.service.reading_catalog(analyst, stop=stop) as pause:
                return act(pause)

        return self._answer(surface, user, act=read_in_turn, role=role, check=self.check_login, kind=kind)

    def count_light(self, surface: str, user: User, *, role: str, kind: str) -> None:
        """Count, limit and log a statement that takes next to no time: a setting, a constant, a stored answer.

        Raises `Refusal`.
        """
        self._answer(surface, user, act=lambda _: None, role=role, check=self.check_login, kind=kind)

    def _answer(
        self,
        surface: str,
        user: User,
        *,
        act: Callable[[str], Result],
        check: Callable[[User, str], object],
        role: str | None = None,
        kind: str | None = None,
    ) -> Result:
        """Return the result of an act of the analyst after a check of the role, and count refusals.

        Only errors of dpsql or the catalog are raised, outside the handlers, so that no other is attached to them.
        """
        analyst = user.name if role is None else role
        refused: Error | CatalogError
        try:
            check(user, analyst)
            return self._count(surface, analyst, act=act, kind=kind)
        except (Error, CatalogError) as error:
            refused = error
        except Exception as error:  # noqa: BLE001 - its text could contain values
            self.telemetry.log_fault(error, surface=surface, analyst=analyst)
            refused = fault()
        code = CATALOG if isinstance(refused, CatalogError) else refused.code
        self.telemetry.count_refusal(surface, code, analyst=analyst)
        self.telemetry.log("refused", surface=surface, analyst=analyst, code=code)
        raise refused

    def _count(self, surface: str, analyst: str, *, act: Callable[[str], Result], kind: str | None) -> Result:
        """Return the result of an act, if statements_per_minute allows it; count and log it.

        Descriptions are not limited. Without a `kind` the result is an `Answer`, whose receipt says it.
        """
        if kind != DESCRIBE and not self.throttle.may_ask(analyst):
            hint = "Wait a minute; statements_per_minute of the policy is the limit."
            raise Refusal("too-many-statements", "This analyst sends too many statements.", hint=hint)
        began = time.monotonic()
        result = act(analyst)
        seconds = time.monotonic() - began
        named, items = _classify(result) if kind is None else (kind, 0)
        reportable = self.telemetry.count_answer(surface, named, seconds=seconds, items=items)
        if kind != DESCRIBE:
            fields = {} if reportable is None else {"seconds": round(reportable, 3)}
            self.telemetry.log("answered", surface=surface, analyst=analyst, kind=named, items=items, **fields)
        return result

    def look(self, user: User, act: Callable[[Session], Result], *, role: str | None = None) -> Result:
        """Return the result of `act` on the session of a user, or of their `role`; it reads no private row.

        Analysts take turns, as the analysis of statements takes the processor from all others.
        """
        with self.service.looking(self.check_role(user, user.name if role is None else role)) as session:
            return act(session)

    def health(self) -> str:
        """Return "ok", or "stopping" once the service accepts no more statements."""
        return "stopping" if self.service.is_closed else "ok"

    def may_see_metrics(self, user: User | None, *, address: str, is_forwarded: bool) -> bool:
        """Return whether a client may read the metrics: a curator, or this machine unless it forwards requests."""
        current = None if user is None else self.users.get(user.name)
        return (current is not None and current.is_curator) or (is_loopback(address) and not is_forwarded)


def _classify(answer: object) -> tuple[str, int]:
    """Return the kind of an answer, and how many items were charged."""
    assert isinstance(answer, Answer)  # noqa: S101 - what is not an answer has a kind
    receipt = answer.receipt
    if receipt.replayed:
        return REPLAY, receipt.items_charged
    return FREE if receipt.mechanism == NO_MECHANISM else PRIVATE, receipt.items_charged


def fault() -> EngineError:
    """Return the problem of an unexpected error: the same text every time."""
    hint = f"{MAY_BE_CHARGED} Ask the curator: what happened is in the server's log, without values."
    return EngineError("server-failed", "The server could not answer.", hint=hint)
