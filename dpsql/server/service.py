"""Service behind every surface of the server: one engine, and one session for each analyst.

Surfaces translate a login into an analyst and a message into a statement. Sessions decide, charge and answer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.connect import open_session
from dpsql.curator import check_engine, read_spending
from dpsql.engines.libraries import refuse_adapter_debug
from dpsql.errors import EngineError, PolicyError, UsageError
from dpsql.open_engine import open_evaluator, open_pool, public_engines
from dpsql.policy import Policy
from dpsql.server.engine_queue import EngineQueue, QueuedEngine, QueuedEvaluator, QueuedPublic, QueueTerms
from dpsql.server.fair_queue import FairQueue, Pause, ProcessorShare

if TYPE_CHECKING:
    from dpsql.answer import Answer
    from dpsql.engines.base import Stop
    from dpsql.report.policy_check import Check
    from dpsql.session import Session
    from dpsql.sql.ir.catalog import Catalog
    from dpsql.sql.syntax.parameters import ParameterValues


_GRACE = 5.0  # seconds in which statements that began under the former policy may finish
_EVALUATOR_PLACES = 2  # outer SELECTs that run at a time
_CATALOG_PLACES = 4  # statements over system catalogs that run at a time; of one analyst, one
_STATEMENTS_OF_ONE = 3  # statements of an analyst that run at a time; of descriptions, one
_UNLIMITED = 1 << 30


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
        self._resources = self._open_resources(policy)
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
    def is_closed(self) -> bool:
        """Whether the service accepts no more statements."""
        return self._stopping.is_set()

    def session(self, analyst: str) -> Session:
        """Return the session of an analyst, to read no private row with; `looking` also waits for a turn."""
        return self._current().session(analyst)

    def ask(
        self,
        analyst: str,
        text: str,
        *,
        parameters: ParameterValues = (),
        stop: Stop | None = None,
        implicit: bool | None = None,
        postgres: bool = False,
    ) -> Answer:
        """Answer an analyst's statement, charged as `dpsql.Session.sql` documents; raise as that does.

        A free statement is interrupted when the service stops, or soon after `stop` returns True.
        """
        return self._answer(
            analyst,
            lambda session, stop: session.sql(text, parameters, stop=stop, implicit=implicit, postgres=postgres),
            stop=stop,
        )

    def replay(self, analyst: str, text: str, *, stop: Stop | None = None) -> Answer:
        """Answer a statement that is stored or free, as `dpsql.Session.replay` documents; raise as that does."""
        return self._answer(analyst, lambda session, stop: session.replay(text, stop=stop), stop=stop)

    def peek(
        self,
        analyst: str,
        text: str,
        *,
        parameters: ParameterValues = (),
        implicit: bool | None = None,
        postgres: bool = False,
    ) -> Answer | None:
        """Return the answer to a repeated statement at once, as `dpsql.Session.peek` documents, else None.

        None also where the analyst's share of the processor is used up, and where the service stops.
        """
        resources = self._resources
        with resources.use() as is_open, self.share.try_turn(analyst) as has_turn:
            if not is_open or not has_turn or self.is_closed:
                return None
            session = resources.find_session(analyst)
            return None if session is None else session.peek(text, parameters, implicit=implicit, postgres=postgres)

    def _answer(self, analyst: str, act: Callable[[Session, Stop], Answer], *, stop: Stop | None) -> Answer:
        def should_stop() -> bool:
            return self.is_closed or (stop is not None and stop())

        try:
            with self._take_turn(self._statements, analyst, stop=should_stop) as resources:
                return act(resources.session(analyst), should_stop)
        except EngineError as error:
            if error.code != "statement-stopped" or error.charge or not self.is_closed:
                raise
        raise _service_stopping()

    @contextmanager
    def looking(self, analyst: str) -> Iterator[Session]:
        """Wait for an analyst's turn at descriptions, and yield the session."""
        with self._take_turn(self._descriptions, analyst, stop=lambda: self.is_closed) as resources:
            yield resources.session(analyst)

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
    def _take_turn(self, queue: FairQueue, analyst: str, *, stop: Stop) -> Iterator[_Resources]:
        """Wait for a place of the queue and for the analyst's share of the processor, and yield the open resources."""
        with queue.place(analyst, stop=stop), self.share.turn(analyst, stop=stop):
            while True:  # again where the policy was reloaded just now
                resources = self._current()
                with resources.use() as is_open:
                    if is_open:
                        yield resources
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
            renewed = self._open_resources(policy)
            with self._lock:
                is_closed = self.is_closed
                if not is_closed:
                    former, self._resources = self._resources, renewed
            if is_closed:
                renewed.close()
                raise _service_stopping()
            renewed.set_places()
            thread = threading.Thread(target=self._retire, args=(former,), name="dpsql-retire")
            self._retiring = [one for one in self._retiring if one.is_alive()] + [thread]
            thread.start()

    def stop(self) -> None:
        """Refuse further statements with `UsageError`; private statements that run go on."""
        with self._lock:
            self._stopping.set()
        self._resources.hurry()

    def close(self) -> None:
        """Stop, wait until the private statements that run are settled, then close everything."""
        self.stop()
        with self._renewing:
            for thread in self._retiring:
                thread.join()
        self._resources.close()

    def _open_resources(self, policy: Policy) -> _Resources:
        return _Resources(self._database, policy, isolation=self._isolation, private=self._private)

    def _retire(self, former: _Resources) -> None:
        self._stopping.wait(_GRACE)
        former.close()

    def _current(self) -> _Resources:
        with self._lock:
            if self.is_closed:
                raise _service_stopping()
            return self._resources


class _Resources:
    """Engines and sessions that are open under one policy."""

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
        self._private_queue = private
        self._evaluator_queue = FairQueue(_EVALUATOR_PLACES)
        self._sessions: dict[str, Session] = {}
        self._session_locks: dict[str, threading.Lock] = {}
        self._changed = threading.Condition()
        self._users = 0
        self._is_closing = self._is_closed = False
        self._check: Check | None = None
        with ExitStack() as stack:
            self._engine, self._places = open_pool(database, policy, isolation=isolation)
            stack.callback(self._engine.close)
            self.catalog = build_catalog(self._engine, policy)
            self._public = public_engines(database, policy, engine=self._engine, isolation=isolation)
            if self._public is not None:
                stack.callback(self._public.close)
                self._public_queue = EngineQueue(self._public.most, max_waiting=policy.engine.max_waiting)
            self._evaluator = open_evaluator(self._engine, policy, served=True)
            stack.callback(self._evaluator.close)
            read_spending(policy)
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
            if self._is_closed:
                raise _service_stopping()
            if analyst not in self._sessions:
                settings = self.policy.engine
                engine = QueuedEngine(self._engine, self._private_queue, settings=settings, analyst=analyst)
                evaluator = QueuedEvaluator(self._evaluator, self._evaluator_queue, analyst=analyst)
                public = None
                if self._public is not None:
                    public = QueuedPublic(self._public, self._public_queue, settings=settings, analyst=analyst)
                session = open_session(engine, self.policy, analyst=analyst, public=public, evaluator=evaluator)
                self._sessions[analyst] = session
            return self._sessions[analyst]

    def find_session(self, analyst: str) -> Session | None:
        """Return the session of an analyst if it is open."""
        return self._sessions.get(analyst)

    def hurry(self) -> None:
        """Let no session wait long for a ledger in a database."""
        from dpsql.session import hurry

        for session in list(self._sessions.values()):
            hurry(session)

    def check(self) -> Check:
        """Return the report of the policy, checked against the data at the first call."""
        if self._check is None:
            terms = QueueTerms(self.policy.engine.answer_grid_ms)
            with self._private_queue.place("", terms) as place, self._engine.turn(place=place.number):
                self._check = check_engine(self._engine, self.policy, tables=self.policy.tables)
        return self._check

    def close(self) -> None:
        """Wait until the statements that run are settled, and close everything."""
        with self._changed:
            was_closing, self._is_closing = self._is_closing, True
            while self._users and not was_closing:
                self._changed.wait()
            self._is_closed = True
        if was_closing:
            return
        for analyst, lock in list(self._session_locks.items()):
            with lock:
                if analyst in self._sessions:
                    self._sessions[analyst].close()
        self._stack.close()


def _service_stopping() -> UsageError:
    return UsageError("closed", "The server is stopping.", hint="Send the statement again later.")
