"""The service that every surface of the server uses: one engine, and a session for each analyst who has come in.

Surfaces translate: a password tells them who the analyst is, a statement is a text with parameters. Sessions decide,
charge and answer.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.connect import check_on, engine_of, open_evaluator, session_of, spending_of
from dpsql.errors import EngineError, PolicyError, UsageError
from dpsql.open_engine import public_engines
from dpsql.policy import Policy
from dpsql.server.fair_queue import FairQueue, ProcessorShare
from dpsql.server.shared_engine import SharedDesk, SharedEngine, SharedPublic, TimingGate

if TYPE_CHECKING:
    import pyarrow as pa

    from dpsql.answer import Answer
    from dpsql.engines.base import Stop
    from dpsql.plan.report.policy_report import Check
    from dpsql.session import Session
    from dpsql.sql.ir.catalog import Catalog
    from dpsql.sql.syntax.parameters import ParameterValues

__all__ = ["Service"]

_GRACE = 5.0  # seconds in which statements that began under the former policy may finish
_PUBLIC, _COMPUTED = 2, 2  # at a time: public statements, outer SELECTs
_STATEMENTS_OF_ONE = 3  # of an analyst at a time; further ones wait. Of descriptions, one
_NO_END = 1 << 30


class Service:
    """One policy over one data set, for many analysts; threads may share it.

    Private statements run one at a time, and analysts take turns: at the engine that has private rows, at those of
    public tables, and where statements are described. Sessions are kept, one for each analyst who has come in, so there
    are no more of them than users and those whom they may act as.
    """

    def __init__(self, database: str | Path | None, policy: Policy, *, isolation: str | None = None) -> None:
        """Open the data and the ledger. Raises `EngineError`, `PolicyError` and `LedgerError`."""
        self._database = database
        self._isolation = isolation
        self._lock = threading.Lock()
        self._renewing = threading.Lock()
        self._stopping = threading.Event()
        self._retiring: list[threading.Thread] = []
        self._statements = FairQueue(_NO_END, each=_STATEMENTS_OF_ONE)
        self._private = FairQueue(1)  # whatever policy a statement began under
        self._descriptions = FairQueue(_NO_END)
        self._share = ProcessorShare()
        self._open = self._opened(policy)

    @property
    def policy(self) -> Policy:
        """The policy that is in force."""
        return self._open.policy

    @property
    def catalog(self) -> Catalog:
        """The tables that exist for analysts."""
        return self._open.catalog

    @property
    def is_closed(self) -> bool:
        """Whether it answers no more."""
        return self._stopping.is_set()

    def session(self, analyst: str) -> Session:
        """Return the session of an analyst, for what reads no private row; `looking` also waits for a turn."""
        return self._current().session(analyst)

    def ask(self, analyst: str, text: str, *, parameters: ParameterValues = (), stop: Stop | None = None) -> Answer:
        """Return the answer to an analyst's statement, charged as `dpsql.Session.sql` says; raises as that does.

        What is free is interrupted when the service stops, or soon after `stop` returns True.
        """

        def stops() -> bool:
            return self.is_closed or (stop is not None and stop())

        try:
            with self._turn(self._statements, analyst, stop=stops) as opened:
                return opened.session(analyst).sql(text, parameters, stop=stops)
        except EngineError as error:
            if error.code != "statement-stopped" or not self.is_closed:
                raise
        raise _stopping()

    def describe(self, analyst: str, text: str, *, parameters: ParameterValues = ()) -> pa.Schema:
        """Return the columns that the answer to a statement would have; reads no row and charges nothing."""
        with self.looking(analyst) as session:
            return session.describe(text, parameters)

    @contextmanager
    def looking(self, analyst: str) -> Iterator[Session]:
        """Wait for an analyst's turn among those who have statements described, and yield the session for it."""
        with self._turn(self._descriptions, analyst, stop=lambda: self.is_closed) as opened:
            yield opened.session(analyst)

    @contextmanager
    def _turn(self, queue: FairQueue, analyst: str, *, stop: Stop) -> Iterator[_Open]:
        """Wait for a place of the queue and for the analyst's share of the processor, and yield what is open."""
        with queue.place(analyst, stop=stop), self._share.turn(analyst, stop=stop), self._used() as opened:
            yield opened

    def check(self) -> Check:
        """Return what the policy in force means, checked against the data that is open."""
        return self._open.check()

    def renew(self, policy: Policy) -> None:
        """Answer by another policy from now on; statements that run are answered by the one they began under.

        Raises `PolicyError`, `EngineError` and `LedgerError`, and then the policy in force stays. The ledger cannot be
        another: what was spent is spent.
        """
        with self._renewing:
            if policy.ledger != self._open.policy.ledger:
                hint = "Restore it, or stop the server and start it again."
                raise PolicyError("policy-reload", "A server keeps its ledger.", hint=hint, place="ledger")
            renewed = self._opened(policy)
            with self._lock:
                closed = self.is_closed
                former, self._open = (renewed, self._open) if closed else (self._open, renewed)
            if closed:
                former.close()
                raise _stopping()
            thread = threading.Thread(target=self._retire, args=(former,), name="dpsql-retire")
            self._retiring = [one for one in self._retiring if one.is_alive()] + [thread]
            thread.start()

    def stop(self) -> None:
        """Begin no further statement: what is sent from now on raises `UsageError`; private statements go on."""
        with self._lock:
            self._stopping.set()

    def close(self) -> None:
        """Stop, let the private statements that run be answered and settled, then close everything."""
        self.stop()
        with self._renewing:
            for thread in self._retiring:
                thread.join()
        self._open.close()

    def _opened(self, policy: Policy) -> _Open:
        return _Open(self._database, policy, isolation=self._isolation, private=self._private)

    def _retire(self, former: _Open) -> None:
        self._stopping.wait(_GRACE)
        former.close()

    def _current(self) -> _Open:
        with self._lock:
            if self.is_closed:
                raise _stopping()
            return self._open

    @contextmanager
    def _used(self) -> Iterator[_Open]:
        """Yield what is open; where the policy was read again just now, what is open under the new one."""
        while True:
            opened = self._current()
            with opened.used() as is_open:
                if is_open:
                    yield opened
                    return


class _Open:
    """Everything that is open under one policy: engines, and a session for each analyst."""

    def __init__(
        self, database: str | Path | None, policy: Policy, *, isolation: str | None, private: FairQueue
    ) -> None:
        """Open a policy's data, and see that tables and ledger fit it before anybody sends a statement."""
        from dpsql.plan.registration import build_catalog

        if policy.ledger is None:
            reason = "A server needs a ledger: what is spent must outlive it, and be one sum for all analysts."
            hint = 'Write ledger = "ledger.sqlite" at the top of the policy.'
            raise PolicyError("policy-ledger", reason, hint=hint, place=policy.where("ledger"))
        self.policy = policy
        self._gate = TimingGate(policy.engine.answer_grid_ms)
        self._private_queue = private
        self._public_queue, self._desk_queue = FairQueue(_PUBLIC), FairQueue(_COMPUTED)
        self._sessions: dict[str, Session] = {}
        self._opening: dict[str, threading.Lock] = {}
        self._changed = threading.Condition()
        self._users = 0
        self._is_closing = self._is_closed = False
        self._check: Check | None = None
        with ExitStack() as holds:
            self._engine = engine_of(database, policy, isolation=isolation)
            holds.callback(self._engine.close)
            self.catalog = build_catalog(self._engine, policy)
            self._public = public_engines(database, policy, engine=self._engine, isolation=isolation)
            if self._public is not None:
                holds.callback(self._public.close)
            self._desk = open_evaluator(self._engine, policy)
            holds.callback(self._desk.close)
            spending_of(policy)
            self._holds = holds.pop_all()

    @contextmanager
    def used(self) -> Iterator[bool]:
        """Keep everything open during the body; yields False where it is closing already."""
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
        """Return the session of an analyst; raises `Refusal` for one who may not ask.

        Opening one reads the ledger, and only its own analyst waits for that.
        """
        self.policy.analyst(analyst)
        with self._changed:
            opening = self._opening.setdefault(analyst, threading.Lock())
        with opening:
            if self._is_closed:
                raise _stopping()
            if analyst not in self._sessions:
                self._sessions[analyst] = self._opened(analyst)
            return self._sessions[analyst]

    def check(self) -> Check:
        """Return what the policy means, checked against the data the first time."""
        if self._check is None:
            with self._gate.passed():
                self._check = check_on(self._engine, self.policy, tables=self.policy.tables)
        return self._check

    def close(self) -> None:
        """Let the statements that run be settled, and close everything."""
        with self._changed:
            was_closing, self._is_closing = self._is_closing, True
            while self._users and not was_closing:
                self._changed.wait()
            self._is_closed = True
        if was_closing:
            return
        for analyst, opening in list(self._opening.items()):
            with opening:
                if analyst in self._sessions:
                    self._sessions[analyst].close()
        self._holds.close()

    def _opened(self, analyst: str) -> Session:
        engine = SharedEngine(self._engine, self._gate, queue=self._private_queue, analyst=analyst)
        desk = SharedDesk(self._desk, self._desk_queue, analyst=analyst)
        public = None
        if self._public is not None:
            public = SharedPublic(self._public, self._public_queue, analyst=analyst)
        return session_of(engine, self.policy, analyst=analyst, public=public, desk=desk)


def _stopping() -> UsageError:
    return UsageError("closed", "The server is stopping.", hint="Ask again when it is back.")
