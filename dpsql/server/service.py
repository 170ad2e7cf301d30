"""The service that every surface of the server asks: one engine, and the session of each analyst who has come in.

Surfaces translate: who asks is known to them by a password, and what is asked is a text with parameters. Everything
that is decided, charged and answered is the session's.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.connect import check_on, engine_of, session_of, spending_of
from dpsql.errors import PolicyError, UsageError
from dpsql.policy import Policy
from dpsql.server.lent import Gate, Lent

if TYPE_CHECKING:
    import pyarrow as pa

    from dpsql.answer import Answer
    from dpsql.engines import Engine
    from dpsql.plan.facts import Check
    from dpsql.session import Session
    from dpsql.sql.catalog import Catalog
    from dpsql.sql.parameters import Given

__all__ = ["Service"]

_GRACE = 5.0  # seconds in which whoever reads from a session of the former policy may finish


class Service:
    """One policy over one data set, for many analysts; threads may share it.

    One statement of an analyst is answered at a time, so that a question that two of their clients ask is charged once
    and then replayed; different analysts do not wait for each other but for the engine. Sessions are kept, one for
    each analyst who has asked, so that there are no more of them than users and those whom they may act as.
    """

    def __init__(self, database: str | Path | None, policy: Policy, *, isolation: str | None = None) -> None:
        """Open the data and the ledger. Raises `EngineError`, `PolicyError` and `LedgerError`."""
        self._database = database
        self._isolation = isolation
        self._lock = threading.Lock()
        self._renewing = threading.Lock()
        self._stopping = threading.Event()
        self._retiring: list[threading.Thread] = []
        self._turns: dict[str, threading.Lock] = {}  # of analysts, whatever policy their statements began under
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
        """Return the session of an analyst, for what reads no private row: budget, history, explain, forecast."""
        return self._desk(analyst).session()

    def ask(self, analyst: str, text: str, *, parameters: Given = ()) -> Answer:
        """Return the answer to an analyst's statement, charged as `dpsql.Session.sql` says; raises as that does."""
        with self._turn(analyst) as session:
            return session.sql(text, parameters)

    def describe(self, analyst: str, text: str, *, parameters: Given = ()) -> pa.Schema:
        """Return the columns that the answer to a statement would have; reads no row and charges nothing."""
        return self.session(analyst).describe(text, parameters)

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
        """Begin no further statement: what is asked from now on raises `UsageError`, and what runs goes on."""
        with self._lock:
            self._stopping.set()

    def close(self) -> None:
        """Stop, let the statements that run be answered and settled, then close everything."""
        self.stop()
        with self._renewing:
            for thread in self._retiring:
                thread.join()
        self._open.close()

    def _opened(self, policy: Policy) -> _Open:
        return _Open.of(self._database, policy, isolation=self._isolation, turns=self._turns)

    def _retire(self, former: _Open) -> None:
        self._stopping.wait(_GRACE)
        former.close()

    def _desk(self, analyst: str) -> _Desk:
        with self._lock:
            if self.is_closed:
                raise _stopping()
            return self._open.desk(analyst)

    @contextmanager
    def _turn(self, analyst: str) -> Iterator[Session]:
        """Wait for the turn at an analyst's desk; where the policy was read again meanwhile, at the new one."""
        while True:
            desk = self._desk(analyst)
            with desk.turn:
                if not desk.is_closed:
                    yield desk.session()
                    return


class _Open:
    """What is open under one policy: the engine, and a desk for each analyst."""

    def __init__(self, engine: Engine, policy: Policy, *, catalog: Catalog, turns: dict[str, threading.Lock]) -> None:
        self.policy = policy
        self.catalog = catalog
        self._turns = turns
        self._engine = engine
        self._gate = Gate(policy.engine.answer_grid_ms)
        self._desks: dict[str, _Desk] = {}
        self._is_closed = False
        self._check: Check | None = None

    @classmethod
    def of(
        cls,
        database: str | Path | None,
        policy: Policy,
        *,
        isolation: str | None,
        turns: dict[str, threading.Lock],
    ) -> _Open:
        """Open a policy's data, and see that tables and ledger fit it before anybody asks."""
        from dpsql.plan.registration import catalog_of

        if policy.ledger is None:
            reason = "A server needs a ledger: what is spent must outlive it, and be one sum for all analysts."
            hint = 'Write ledger = "ledger.sqlite" at the top of the policy.'
            raise PolicyError("policy-ledger", reason, hint=hint, place=policy.where("ledger"))
        engine = engine_of(database, policy, isolation=isolation)
        try:
            catalog = catalog_of(engine, policy)
            spending_of(policy)
        except BaseException:
            engine.close()
            raise
        return cls(engine, policy, catalog=catalog, turns=turns)

    def desk(self, analyst: str) -> _Desk:
        """Return the desk of an analyst; who may not ask has none."""
        if analyst not in self._desks:
            self.policy.analyst(analyst)
            turn = self._turns.setdefault(analyst, threading.Lock())
            lent = Lent(self._engine, self._gate)
            self._desks[analyst] = _Desk(lent, self.policy, analyst=analyst, turn=turn)
        return self._desks[analyst]

    def check(self) -> Check:
        """Return what the policy means, checked against the data the first time."""
        if self._check is None:
            with self._gate.passed():
                self._check = check_on(self._engine, self.policy, tables=self.policy.tables)
        return self._check

    def close(self) -> None:
        """Let the statements that run be settled, and close everything."""
        if not self._is_closed:
            self._is_closed = True
            for desk in list(self._desks.values()):
                with desk.turn:
                    desk.close()
            self._engine.close()


class _Desk:
    """The session of one analyst, opened when it is first wanted, and whose turn it is at it."""

    def __init__(self, engine: Engine, policy: Policy, *, analyst: str, turn: threading.Lock) -> None:
        self.turn = turn
        self.is_closed = False
        self._opening = threading.Lock()
        self._session: Session | None = None
        self._engine, self._policy, self._analyst = engine, policy, analyst

    def session(self) -> Session:
        """Return the session; opening one reads all of the ledger, and only its own analyst waits for that."""
        with self._opening:
            if self.is_closed:
                raise _stopping()
            if self._session is None:
                self._session = session_of(self._engine, self._policy, analyst=self._analyst)
            return self._session

    def close(self) -> None:
        """Close the session, by whoever has the turn."""
        with self._opening:
            self.is_closed = True
            if self._session is not None:
                self._session.close()


def _stopping() -> UsageError:
    return UsageError("closed", "The server is stopping.", hint="Ask again when it is back.")
