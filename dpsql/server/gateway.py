"""Gateway between the surfaces and the sessions: logins, roles, one session for each analyst, and what is counted.

A surface logs its user in (`login`, or where it checks the proof itself, as with SCRAM, `admit` and then `let_in` or
`turn_away`), and runs statements under that user's name. Sessions decide, charge and answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from dpsql.answer import Answer
from dpsql.confinement import list_missing
from dpsql.connect import check_engine, open_budget, open_session
from dpsql.engines.base import read_confinement, refuse_adapter_debug
from dpsql.errors import EngineError, Error, PolicyError, Refusal, UsageError
from dpsql.ledger.base import MAY_BE_CHARGED
from dpsql.open_engine import open_evaluator, open_pool, public_engines
from dpsql.policy import Policy
from dpsql.policy.settings import is_loopback
from dpsql.receipt import NO_MECHANISM
from dpsql.server.catalog.system_catalog import CatalogError
from dpsql.server.limits import Throttle
from dpsql.server.queues import (
    EngineQueue,
    FairQueue,
    Pause,
    ProcessorShare,
    QueuedEngine,
    QueuedEvaluator,
    QueuedPublic,
    QueueTerms,
)
from dpsql.server.telemetry import CATALOG, DESCRIBE, FREE, PRIVATE, REPLAY, Telemetry
from dpsql.server.users import Access, Tokens, User, Users
from dpsql.terms import Terms

if TYPE_CHECKING:
    from dpsql.engines.base import Stop
    from dpsql.report.policy_check import Check
    from dpsql.session import Session
    from dpsql.sql.ir.catalog import Catalog, Table

Result = TypeVar("Result")
_GRACE = 5.0  # seconds in which statements that began under the former policy may finish
_EVALUATOR_PLACES = 2  # outer SELECTs that run at a time
_CATALOG_PLACES = 4  # statements over system catalogs that run at a time; of one analyst, one
_STATEMENTS_OF_ONE = 3  # statements of an analyst that run at a time; of descriptions, one
_UNLIMITED = 1 << 30
# Refusals of requests, of which some reach no statement: the surfaces over HTTP count them.
REQUEST_CODES = frozenset(
    {
        *("curators-only", "form-expired", "no-such-tool", "request-length", "request-malformed", "request-slow"),
        *("request-type", "server-busy", "token-scope"),
    }
)


@dataclass(frozen=True, slots=True)
class Gateway:
    """Entry to the service for all surfaces; threads may share it."""

    service: Service
    users: Users
    telemetry: Telemetry
    throttle: Throttle
    tokens: Tokens = field(default_factory=Tokens)

    def enter(self, surface: str) -> bool:
        """Count a connection and return True, or return False if `max_connections` of the policy are open."""
        if self.service.is_closed or self.telemetry.open_connections >= self.service.policy.server.max_connections:
            return False
        self.telemetry.count_connection(surface)
        return True

    def admit(self, surface: str, name: str, *, address: str) -> bool:
        """Return whether a login may be tried; after failures it may not for a while.

        A surface calls this before a login, and again before it uses the proof, as others may have failed meanwhile.
        """
        if self.throttle.admit(name, address):
            return True
        self.telemetry.count_failed_login(surface)
        self.telemetry.log("login-throttled", surface=surface, user=name, address=address)
        return False

    def let_in(self, surface: str, name: str, *, address: str, mark: bytes) -> User | None:
        """Record a login with the password of this mark and return its user; None if the user was removed meanwhile."""
        self.throttle.record_login(name, address)
        self.telemetry.log("login", surface=surface, user=name, address=address)
        user = self.users.get(name)
        return None if user is None else replace(user, mark=mark)

    def turn_away(self, surface: str, name: str, *, address: str) -> None:
        """Record a failed login."""
        self.throttle.record_failure(name, address)
        self.telemetry.count_failed_login(surface)
        self.telemetry.log("login-failed", surface=surface, user=name, address=address)

    def login(self, surface: str, name: str, *, password: str, address: str) -> User | None:
        """Check a password and return its user, or None; it computes for some milliseconds."""
        if not self.admit(surface, name, address=address):
            return None
        user = self.users.check(name, password)
        if user is None:
            self.turn_away(surface, name, address=address)
            return None
        if not self.admit(surface, name, address=address):  # again, as simultaneous guesses may have failed
            return None
        return self.let_in(surface, name, address=address, mark=user.mark)

    def find_token(self, surface: str, token: str, *, address: str) -> Access | None:
        """Return what a token may do, and as whom; count and log one that is not valid as a failed login."""
        access = self.tokens.find(token, self.users)
        if access is None:
            self.telemetry.count_failed_login(surface)
            self.telemetry.log("login-failed", surface=surface, user="", address=address)
        return access

    def may_ask(self, user: User) -> bool:
        """Return whether a user may run statements: a curator may if the policy lists them by name as an analyst."""
        own = self.service.policy.analysts.get(user.name)
        return not user.is_curator or (own is not None and own.enabled)

    def check_role(self, user: User, role: str, *, may_ask: bool = True) -> None:
        """Raise `Refusal` unless the user, as now in the file of users, has the role of an analyst and `may_ask`."""
        # `user` is as it was at the login; since then the file of users may have been read again.
        current = self.users.get(user.name)
        if current is None or (user.mark and user.mark != current.mark):
            reason = "This user was removed, or has another password since this login."
            raise Refusal("user-removed", reason, hint="Log in again, or contact the curator.")
        if role != current.name and role not in current.acts_as:
            hint = "A curator decides for whom a service account acts: dpsql user add NAME --acts-as ANALYST"
            raise Refusal("role", "This user may not act as this analyst.", hint=hint)
        if may_ask:
            if role == current.name and not self.may_ask(current):
                hint = "List the curator under [analysts] in the policy, or log in as another user."
                raise Refusal("no-analyst", "The policy does not list this curator as an analyst.", hint=hint)
            self.service.policy.analyst(role)

    def ask(
        self,
        surface: str,
        user: User,
        *,
        act: Callable[[Session, Stop], Answer],
        role: str | None = None,
        stop: Stop | None = None,
    ) -> Answer:
        """Answer a statement, charged to the user or to the `role` they act as; raise as `act` on the session does.

        A free statement is interrupted soon after `stop` returns True, when its client leaves or cancels it.
        """
        analyst = user.name if role is None else role
        return self._answer(surface, user, act=partial(self.service.answer, analyst, act, stop=stop), analyst=analyst)

    def peek(self, surface: str, user: User, *, act: Callable[[Session], Answer | None], role: str) -> Answer | None:
        """Answer a statement at once if its answer is at hand, free and still right, else return None.

        It does not wait, so that an event loop may call it. What is answered is checked, counted and logged as by
        `ask`, and raises as that does.
        """
        try:
            self.check_role(user, role)
            known = self.service.peek(role, act)
        except Error:
            return None  # `ask` raises it
        return None if known is None else self._answer(surface, user, act=lambda: known, analyst=role)

    def describe(self, surface: str, user: User, *, act: Callable[[Session], Result], role: str) -> Result:
        """Return what `act` says of a statement; it is free, and not counted against statements_per_minute."""

        def describe_in_turn() -> Result:
            with self.service.looking(role) as session:
                return act(session)

        return self._answer(surface, user, act=describe_in_turn, analyst=role, kind=DESCRIBE)

    def answer_from_catalog(
        self,
        user: User,
        act: Callable[[Pause], Result],
        *,
        surface: str,
        role: str,
        kind: str = CATALOG,
        stop: Stop | None = None,
    ) -> Result:
        """Return what `act` reads in the catalog, in a turn of the analyst; it calls the pause between blocks of rows.

        Counted, limited and logged as every statement is, as one of this `kind`. Raises `Error` and `CatalogError`.
        """

        def read_in_turn() -> Result:
            with self.service.reading_catalog(role, stop=stop) as pause:
                return act(pause)

        return self._answer(surface, user, act=read_in_turn, analyst=role, kind=kind, may_ask=False)

    def count_light(self, surface: str, user: User, *, role: str, kind: str) -> None:
        """Count, limit and log a statement that takes next to no time: a setting, a constant, a stored answer.

        Raises `Refusal`.
        """
        self._answer(surface, user, act=lambda: None, analyst=role, kind=kind, may_ask=False)

    def _answer(
        self,
        surface: str,
        user: User,
        *,
        act: Callable[[], Result],
        analyst: str,
        kind: str | None = None,
        may_ask: bool = True,
    ) -> Result:
        """Return the result of an act of the analyst, if the role and statements_per_minute allow it; count and log it.

        Descriptions are not limited. Without a `kind` the result is an `Answer`, whose receipt says it. Only errors of
        dpsql or the catalog are raised, outside the handlers, so that no other is attached to them.
        """
        refused: Error | CatalogError
        try:
            self.check_role(user, analyst, may_ask=may_ask)
            if kind != DESCRIBE and not self.throttle.may_ask(analyst):
                hint = "Wait a minute; statements_per_minute of the policy is the limit."
                raise Refusal(  # noqa: TRY301 - counted below as every refusal is
                    "too-many-statements", "This analyst sends too many statements.", hint=hint
                )
            began = time.monotonic()
            result = act()
            seconds, items = time.monotonic() - began, 0
            if kind is None:
                assert isinstance(result, Answer)  # noqa: S101 - what is not an answer has a kind
                kind = FREE if result.receipt.mechanism == NO_MECHANISM else PRIVATE
                kind, items = REPLAY if result.receipt.replayed else kind, result.receipt.items_charged
            reportable = self.telemetry.count_answer(surface, kind, seconds=seconds, items=items)
            if kind != DESCRIBE:
                fields = {} if reportable is None else {"seconds": round(reportable, 3)}
                self.telemetry.log("answered", surface=surface, analyst=analyst, kind=kind, items=items, **fields)
        except (Error, CatalogError) as error:
            refused = error
        except Exception as error:  # noqa: BLE001 - its text could contain values
            self.telemetry.log_fault(error, surface=surface, analyst=analyst)
            refused = fault()
        else:
            return result
        code = CATALOG if isinstance(refused, CatalogError) else refused.code
        if code not in REQUEST_CODES:
            self.count_refusal(surface, code, analyst=analyst)
        raise refused

    def count_refusal(self, surface: str, code: str, *, analyst: str) -> None:
        """Count and log what was refused to an analyst."""
        self.telemetry.count_refusal(surface, code, analyst=analyst)
        self.telemetry.log("refused", surface=surface, analyst=analyst, code=code)

    def look(self, user: User, act: Callable[[Session], Result]) -> Result:
        """Return the result of `act` on the session of a user; it reads no private row.

        Analysts take turns, as the analysis of statements takes the processor from all others.
        """
        self.check_role(user, user.name)
        with self.service.looking(user.name) as session:
            return act(session)

    def may_see_metrics(self, user: User | None, *, address: str, is_forwarded: bool) -> bool:
        """Return whether a client may read the metrics: a curator, or this machine unless it forwards requests."""
        current = None if user is None else self.users.get(user.name)
        return (current is not None and current.is_curator) or (is_loopback(address) and not is_forwarded)


def fault() -> EngineError:
    """Return the problem of an unexpected error: the same text every time."""
    hint = f"{MAY_BE_CHARGED} Ask the curator: what happened is in the server's log, without values."
    return EngineError("server-failed", "The server could not answer.", hint=hint)


class Service:
    """One policy over one data set, for many analysts; threads may share it.

    Analysts take turns at the connections of the private engine, at the engines of public tables, at descriptions and
    at the catalog. `share` limits the processor time of each.
    The number of sessions is limited by the analysts of the policy.
    """

    def __init__(self, database: str | Path | None, policy: Policy, *, isolation: str | None = None) -> None:
        """Open the data and the ledger. Raises `EngineError`, `PolicyError` and `LedgerError`."""
        self._database = database
        self._isolation = isolation
        self._lock = threading.Lock()
        self._renewing = threading.Lock()
        self._stopping = threading.Event()
        self._retiring: list[threading.Thread] = []
        self._statements = FairQueue(_UNLIMITED, each=_STATEMENTS_OF_ONE)
        self._private = EngineQueue(1, max_waiting=1)  # whatever policy was in force when a statement began
        self._descriptions = FairQueue(_UNLIMITED)
        self._catalog = FairQueue(_CATALOG_PLACES)
        self.share = ProcessorShare()
        self._resources = _Resources(database, policy, isolation=isolation, private=self._private)
        self._resources.set_places()

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self._resources.policy

    @property
    def catalog(self) -> Catalog:
        """The tables of the policy."""
        return self._resources.catalog

    @property
    def unconfined(self) -> str:
        """The measures that do not confine the workers of the data, with commas; empty without workers."""
        return self._resources.unconfined

    @property
    def waits_for_grant(self) -> bool:
        """Whether the policy in force has a larger total than the ledger had when it was put into force."""
        return self._resources.waits_for_grant

    @property
    def is_closed(self) -> bool:
        """Whether the service accepts no more statements."""
        return self._stopping.is_set()

    def session(self, analyst: str) -> Session:
        """Return the session of an analyst, to read no private row with; `looking` also waits for a turn."""
        return self._current().session(analyst)

    def answer(self, analyst: str, act: Callable[[Session, Stop], Result], *, stop: Stop | None = None) -> Result:
        """Answer an analyst's statement by an act on the session; raise as that does.

        A free statement is interrupted when the service stops, or soon after `stop` returns True.
        """

        def should_stop() -> bool:
            return self.is_closed or (stop is not None and stop())

        try:
            with self._take_turn(self._statements, analyst, stop=should_stop) as session:
                return act(session, should_stop)
        except EngineError as error:
            # A statement that the service stopped before it was charged says that the server is stopping. Others keep
            # their own error: one that was stopped by its client, or that may be charged.
            if error.code != "statement-stopped" or error.charge or not self.is_closed:
                raise
        raise _service_stopping()

    def peek(self, analyst: str, act: Callable[[Session], Result | None]) -> Result | None:
        """Return what `act` answers at once on the analyst's open session, as `dpsql.Session.peek` says, else None.

        None also where the analyst's share of the processor is used up, and where the service stops.
        """
        resources = self._resources
        with resources.use() as is_open, self.share.try_turn(analyst) as has_turn:
            if not is_open or not has_turn or self.is_closed:
                return None
            session = resources.sessions.get(analyst)
            return None if session is None else act(session)

    def list_stored(self, analyst: str) -> tuple[Table, ...]:
        """Return the stored tables that an analyst may read; none for one without access, or without a ledger now."""
        from dpsql.session import list_stored

        with suppress(Error):
            return list_stored(self.session(analyst))
        return ()

    def peek_stored(self, analyst: str) -> tuple[Table, ...] | None:
        """Return what `list_stored` returned if that is still right and a turn is free, else None; never wait."""
        from dpsql.session import peek_stored

        return self.peek(analyst, peek_stored)

    @contextmanager
    def looking(self, analyst: str) -> Iterator[Session]:
        """Wait for an analyst's turn at descriptions, and yield the session."""
        with self._take_turn(self._descriptions, analyst, stop=lambda: self.is_closed) as session:
            yield session

    @contextmanager
    def reading_catalog(self, analyst: str, *, stop: Stop | None = None) -> Iterator[Pause]:
        """Wait for an analyst's turn at the catalog, and yield the pause to call between blocks of rows.

        Both raise `statement-stopped` when the service stops, and soon after `stop` returns True.
        """

        def should_stop() -> bool:
            return self.is_closed or (stop is not None and stop())

        with (
            self._catalog.place(analyst, stop=should_stop),
            self.share.turn(analyst, stop=should_stop) as pause,
        ):
            yield pause

    @contextmanager
    def _take_turn(self, queue: FairQueue, analyst: str, *, stop: Stop) -> Iterator[Session]:
        """Wait for a place of the queue and for the analyst's share of the processor, and yield the session."""
        with queue.place(analyst, stop=stop), self.share.turn(analyst, stop=stop):
            while True:  # again where the policy was reloaded just now
                resources = self._current()
                with resources.use() as is_open:
                    if is_open:
                        yield resources.session(analyst)
                        return

    def check(self) -> Check:
        """Return the report of the policy in force, checked against the open data."""
        return self._resources.check()

    def renew(self, policy: Policy) -> None:
        """Put another policy into force; statements that run finish under the previous one.

        Raises `PolicyError`, also for another ledger, `EngineError` and `LedgerError`; the policy in force then stays.
        """
        with self._renewing:
            if policy.ledger != self._resources.policy.ledger:
                hint = "Restore the ledger of the policy, or restart the server."
                raise PolicyError(
                    "policy-reload", "The ledger cannot change while the server runs.", hint=hint, place="ledger"
                )
            renewed = _Resources(self._database, policy, isolation=self._isolation, private=self._private)
            with self._lock:
                # Looked at under the lock in which `stop` sets the event: resources put into force after it would never
                # be closed.
                is_closed = self.is_closed
                if not is_closed:
                    former, self._resources = self._resources, renewed
            if is_closed:
                renewed.close()
                raise _service_stopping()
            renewed.set_places()

            def retire() -> None:
                self._stopping.wait(_GRACE)
                former.close()

            thread = threading.Thread(target=retire, name="dpsql-retire")
            self._retiring = [one for one in self._retiring if one.is_alive()] + [thread]
            thread.start()

    def stop(self) -> None:
        """Refuse further statements with `UsageError`; private statements that run go on."""
        from dpsql.session import hurry

        with self._lock:
            self._stopping.set()
        for session in list(self._resources.sessions.values()):  # none waits long for a ledger in a database
            hurry(session)

    def close(self) -> None:
        """Stop, wait until the private statements that run are settled, then close everything."""
        self.stop()
        with self._renewing:
            for thread in self._retiring:
                thread.join()
        self._resources.close()

    def _current(self) -> _Resources:
        with self._lock:
            if self.is_closed:
                raise _service_stopping()
            return self._resources


class _Resources:
    """Engines and the open `sessions`, by analyst, under one policy."""

    def __init__(
        self, database: str | Path | None, policy: Policy, *, isolation: str | None, private: EngineQueue
    ) -> None:
        """Open the data of a policy, and check that tables and ledger fit it."""
        from dpsql.registration import build_catalog

        refuse_adapter_debug()
        if policy.ledger is None:
            reason = "A server needs a ledger, so that spending outlives it and counts over all analysts."
            hint = 'Write ledger = "ledger.sqlite" at the top of the policy.'
            raise PolicyError("policy-ledger", reason, hint=hint, place=policy.where("ledger"))
        self.policy = policy
        self.sessions: dict[str, Session] = {}
        self._private_queue = private
        self._evaluator_queue = FairQueue(_EVALUATOR_PLACES)
        self._session_locks: dict[str, threading.Lock] = {}
        self._changed = threading.Condition()
        self._users = 0
        self._is_closing = self._is_closed = False
        self._check: Check | None = None
        with ExitStack() as stack:
            self._engine, self._places = open_pool(database, policy, isolation=isolation)
            stack.callback(self._engine.close)
            has_workers = self._engine.isolation == "process"
            self.unconfined = list_missing(read_confinement(self._engine)) if has_workers else ""
            self.catalog = build_catalog(self._engine, policy)
            self._public = public_engines(database, policy, engine=self._engine, isolation=isolation)
            if self._public is not None:
                stack.callback(self._public.close)
                self._public_queue = EngineQueue(self._public.most, max_waiting=policy.engine.max_waiting)
            self._evaluator = open_evaluator(self._engine, policy, served=True)
            stack.callback(self._evaluator.close)
            wanted = Terms.of_total(policy)
            record, terms = open_budget(policy.ledger, policy, compute_terms=Terms.of_total)
            self.waits_for_grant = (terms.total, terms.periods) != (wanted.total, wanted.periods)
            with closing(record):  # a ledger that cannot be read is found before the first statement
                record.entries()
            self._stack = stack.pop_all()

    def set_places(self) -> None:
        """Let the queue for the private engine have the places of this policy."""
        self._private_queue.resize(self._places, max_waiting=self.policy.engine.max_waiting)

    @contextmanager
    def use(self) -> Iterator[bool]:
        """Prevent the resources from closing during the body; yield False if they are closing already."""
        with self._changed:
            is_open = not self._is_closing
            self._users += is_open
        try:
            yield is_open
        finally:
            with self._changed:
                self._users -= is_open
                self._changed.notify_all()

    def session(self, analyst: str) -> Session:
        """Return the session of an analyst; raise `Refusal` for one without access.

        Opening a session reads the ledger; other analysts do not wait for that.
        """
        self.policy.analyst(analyst)
        with self._changed:
            lock = self._session_locks.setdefault(analyst, threading.Lock())
        with lock:
            # Looked at under the lock that close() takes for each analyst: a session that is opened after it would
            # never be closed.
            if self._is_closed:
                raise _service_stopping()
            if analyst not in self.sessions:
                settings = self.policy.engine
                engine = QueuedEngine(self._engine, self._private_queue, settings=settings, analyst=analyst)
                evaluator = QueuedEvaluator(self._evaluator, self._evaluator_queue, analyst=analyst)
                public = None
                if self._public is not None:
                    public = QueuedPublic(self._public, self._public_queue, settings=settings, analyst=analyst)
                session = open_session(engine, self.policy, analyst=analyst, public=public, evaluator=evaluator)
                self.sessions[analyst] = session
            return self.sessions[analyst]

    def check(self) -> Check:
        """Return the report of the policy, checked against the data at the first call."""
        if self._check is None:
            terms = QueueTerms(self.policy.engine.answer_grid_ms)
            # No analyst has the empty name, so the check takes its turn as one more analyst would.
            with self._private_queue.place("", terms) as place, self._engine.turn(place=place.number):
                self._check = check_engine(self._engine, self.policy, tables=self.policy.tables)
        return self._check

    def close(self) -> None:
        """Wait until the statements that run are settled, and close everything."""
        with self._changed:
            # From here `use` yields False, so that the number of users only falls.
            was_closing, self._is_closing = self._is_closing, True
            while self._users and not was_closing:
                self._changed.wait()
            self._is_closed = True
        if was_closing:
            return
        for analyst, lock in list(self._session_locks.items()):
            with lock:
                if analyst in self.sessions:
                    self.sessions[analyst].close()
        self._stack.close()


def _service_stopping() -> UsageError:
    return UsageError("closed", "The server is stopping.", hint="Send the statement again later.")
