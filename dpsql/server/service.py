"""The service that every surface of the server asks: one engine, and the session of each analyst who has come in.

Surfaces translate: who asks is known to them by a password, and what is asked is a text with parameters. Everything
that is decided, charged and answered is the session's.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.connect import engine_of, session_of
from dpsql.errors import UsageError
from dpsql.policy import Policy

if TYPE_CHECKING:
    import pyarrow as pa

    from dpsql.answer import Answer
    from dpsql.engines import Column, Engine, Exact, Statement
    from dpsql.session import Session
    from dpsql.sql.parameters import Given

__all__ = ["Service"]


class Service:
    """One policy over one data set, for many analysts; threads may share it.

    One statement of an analyst is answered at a time, so that a question that two of their clients ask is charged once
    and then replayed; different analysts do not wait for each other but for the engine.
    """

    def __init__(self, database: str | Path | None, policy: Policy, *, isolation: str | None = None) -> None:
        """Open the data. Raises `EngineError` and `PolicyError`; the ledger is opened when the first analyst comes."""
        self._engine: Engine = engine_of(database, policy, isolation=isolation)
        self._policy = policy
        self._lock = threading.Lock()
        self._desks: dict[str, _Desk] = {}
        self._closed = False

    @property
    def policy(self) -> Policy:
        """The policy that is in force."""
        return self._policy

    def session(self, analyst: str) -> Session:
        """Return the session of an analyst, for what reads no private row: budget, history, explain, forecast."""
        return self._desk(analyst).session

    def ask(self, analyst: str, text: str, parameters: Given = ()) -> Answer:
        """Return the answer to an analyst's statement, charged as `dpsql.Session.sql` says; raises as that does."""
        desk = self._desk(analyst)
        with desk.turn:
            return desk.session.sql(text, parameters)

    def describe(self, analyst: str, text: str, parameters: Given = ()) -> pa.Schema:
        """Return the columns that the answer to a statement would have; reads no row and charges nothing."""
        return self._desk(analyst).session.describe(text, parameters)

    def close(self) -> None:
        """Let the statements that run be answered and settled, then close; further use raises `UsageError`."""
        with self._lock:
            self._closed = True
            desks, self._desks = self._desks, {}
        for desk in desks.values():
            with desk.turn:
                desk.session.close()
        self._engine.close()

    def _desk(self, analyst: str) -> _Desk:
        with self._lock:
            if self._closed:
                raise UsageError("closed", "The server is stopping.", hint="Ask again when it is back.")
            if analyst not in self._desks:
                self._policy.analyst(analyst)  # who may not ask opens nothing
                lent = _Lent(self._engine)
                self._desks[analyst] = _Desk(session_of(lent, self._policy, analyst=analyst))
            return self._desks[analyst]


@dataclass(frozen=True, slots=True)
class _Desk:
    """The session of one analyst, and whose turn it is at it."""

    session: Session
    turn: threading.Lock = field(default_factory=threading.Lock)


class _Lent:
    """An engine that many sessions share: they may not close it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def sealed(self) -> bool:
        """Whether dpsql opened it."""
        return self._engine.sealed

    @property
    def isolation(self) -> str:
        """Where the data is open."""
        return self._engine.isolation

    def relation(self, name: str) -> tuple[str, ...]:
        """Return the identifier of a table."""
        return self._engine.relation(name)

    def columns(self, name: str) -> tuple[Column, ...]:
        """Return the columns of a table."""
        return self._engine.columns(name)

    def unique(self, name: str, column: str) -> bool:
        """Return whether no value stands twice in a column."""
        return self._engine.unique(name, column)

    def accepts_pattern(self, pattern: str) -> bool:
        """Return whether the engine compiles this regular expression."""
        return self._engine.accepts_pattern(pattern)

    def execute(self, statement: Statement) -> Exact:
        """Run one SELECT."""
        return self._engine.execute(statement)

    def close(self) -> None:
        """Do nothing: whoever lent it closes it."""
