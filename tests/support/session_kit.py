"""Sessions for tests: small data sets, engines that do what a test says, and ledgers that can be watched."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

import duckdb
from support.laws import SeededNoise

import dpsql
from dpsql.connect import open_session
from dpsql.engines import Column, Engine, Exact, Statement
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.ledger import Ledger, MemoryLedger, Request, Reservation
from dpsql.mechanisms import Histogram, LimitedDomain, Noise, Selection
from dpsql.mechanisms.two_looks import TwoLooks
from dpsql.open_engine import open_engine, public_engines
from dpsql.plan import Plan
from dpsql.quantities import Rho
from dpsql.session import Session
from dpsql.session_dependencies import SessionDependencies

__all__ = [
    "COUNTS",
    "NAMES",
    "PRIVATE",
    "HookedEngine",
    "WatchedLedger",
    "charged",
    "exact_histogram",
    "filled",
    "rebuilt",
    "seeded",
    "session_on",
    "shared",
    "values_rows",
]

PRIVATE = {"reads": dpsql.PrivateTable("user_id")}
NAMES = "SELECT article FROM reads GROUP BY article TOP 5 PRIVATE WITH (epsilon = 0.05)"
COUNTS = "SELECT article, COUNT(DISTINCT user_id) AS n FROM reads GROUP BY article TOP 5 PRIVATE WITH (epsilon = 0.05)"
Hook = Callable[[Statement, Callable[[Statement], Exact]], Exact]


def filled(*statements: str) -> duckdb.DuckDBPyConnection:
    """Return an open database in which `statements` were run."""
    connection = duckdb.connect(":memory:")
    for statement in statements:
        connection.execute(statement)
    return connection


def shared(*statements: str) -> duckdb.DuckDBPyConnection:
    """Return a database in which `statements` were run, for tests that change nothing in it: they share one."""
    cursor = _database(statements).cursor()
    _SHARED[cursor] = statements
    return cursor


@lru_cache(maxsize=8)
def _database(statements: tuple[str, ...]) -> duckdb.DuckDBPyConnection:
    return filled(*statements)


_SHARED: weakref.WeakKeyDictionary[duckdb.DuckDBPyConnection, tuple[str, ...]] = weakref.WeakKeyDictionary()
_ENGINES: deque[tuple[tuple[str, ...], dpsql.Policy, Engine]] = deque(maxlen=8)


class SharedEngine(DuckDBEngine):
    """An engine over a shared database: to borrow a connection takes longer than most queries of a test."""

    def close(self) -> None:
        """Leave the engine open for the next session."""


def _engine_on(connection: duckdb.DuckDBPyConnection, policy: dpsql.Policy) -> Engine:
    """Return an engine with the tables of a policy; those over a shared database serve all sessions over it."""
    statements = _SHARED.get(connection)
    for known, terms, engine in _ENGINES:
        if known == statements and (terms.tables, terms.engine) == (policy.tables, policy.engine):
            return engine
    engine = open_engine(connection, policy)
    if statements is not None:
        engine.__class__ = SharedEngine
        _ENGINES.append((statements, policy, engine))
    return engine


def values_rows(counts: dict[str, int]) -> tuple[str, ...]:
    """Return statements that make `reads`, in which every article has so many distinct users."""
    return (
        "CREATE TABLE reads (user_id BIGINT, article VARCHAR)",
        *(f"INSERT INTO reads SELECT i, '{article}' FROM range({count}) AS t(i)" for article, count in counts.items()),
    )


def session_on(
    connection: duckdb.DuckDBPyConnection, policy: dpsql.Policy | None = None, *, implicit: bool | None = None
) -> Session:
    """Return a session with a ledger in memory over an open database; by default the total is (1, 1e-6)."""
    chosen = dpsql.Policy(dpsql.Budget(1, "1e-6"), PRIVATE) if policy is None else policy
    if implicit is not None:
        chosen = chosen.with_implicit(implicit)
    engine = _engine_on(connection, chosen)
    public = public_engines(connection, chosen, engine=engine)
    return open_session(engine, chosen, ledger=":memory:", public=public)


def rebuilt(
    session: Session, *, engine: Hook | None = None, ledger: Ledger | None = None, noise: Noise | None = None
) -> Session:
    """Return a session with some of its parts replaced."""
    parts: SessionDependencies = session._dependencies
    return Session(
        replace(
            parts,
            engine=parts.engine if engine is None else HookedEngine(parts.engine, engine),
            ledger=parts.ledger if ledger is None else ledger,
            noise=parts.noise if noise is None else noise,
            public=parts.public if engine is None else None,  # a hook sees public statements too
        )
    )


def fresh_ledger(session: Session) -> MemoryLedger:
    """Return a ledger in memory with the whole budget of a session."""
    terms = session._dependencies.terms
    return MemoryLedger(terms.budget, total=terms.total)


def seeded(session: Session, seed: int) -> Session:
    """Return a session with a whole budget of its own and repeatable noise."""
    return rebuilt(session, ledger=fresh_ledger(session), noise=SeededNoise(seed))


class HookedEngine:
    """An engine whose `execute` is what a test says; it may call the real one, which it is given."""

    def __init__(self, engine: Engine, hook: Hook) -> None:
        self._engine = engine
        self._hook = hook
        self.sealed = engine.sealed
        self.isolation = engine.isolation
        self.closed = False

    def relation(self, name: str) -> tuple[str, ...]:
        return self._engine.relation(name)

    def columns(self, name: str) -> tuple[Column, ...]:
        return self._engine.columns(name)

    def unique(self, name: str, column: str) -> bool:
        return self._engine.unique(name, column)

    def accepts_pattern(self, pattern: str) -> bool:
        return self._engine.accepts_pattern(pattern)

    def execute(self, statement: Statement) -> Exact:
        return self._hook(statement, self._engine.execute)

    def close(self) -> None:
        self.closed = True
        self._engine.close()


class WatchedLedger:
    """A ledger that calls back around every settlement."""

    def __init__(self, ledger: Ledger, *, before: Callable[[], None], after: Callable[[], None]) -> None:
        self._ledger = ledger
        self._before = before
        self._after = after

    def __getattr__(self, name: str) -> object:
        return getattr(self._ledger, name)

    def reserve(self, request: Request) -> Reservation:
        return _Watched(self._ledger.reserve(request), self._before, self._after)


class _Watched:
    def __init__(self, held: Reservation, before: Callable[[], None], after: Callable[[], None]) -> None:
        self._held = held
        self._before = before
        self._after = after

    def settle(self, loss: Rho, digest: str, *, answer: bytes = b"", shared: bool = False) -> bytes:
        self._before()
        stands = self._held.settle(loss, digest, answer=answer, shared=shared)
        self._after()
        return stands


def exact_histogram(session: Session, sql: str) -> Histogram:
    """Return the leaders that the mechanism is given for `sql`; the session is charged as for any query."""
    seen: list[Histogram] = []
    original, look = LimitedDomain.select, TwoLooks.look_at_counts

    def watching(mechanism: LimitedDomain, histogram: Histogram, noise: Noise) -> Selection:
        seen.append(histogram)
        return original(mechanism, histogram, noise)

    def looking(looks: TwoLooks, leaders: Histogram, noise: Noise) -> Fraction:
        seen.append(leaders)
        return look(looks, leaders, noise)

    LimitedDomain.select = watching  # type: ignore[method-assign]
    TwoLooks.look_at_counts = looking  # type: ignore[method-assign]
    try:
        session.sql(sql)
    finally:
        LimitedDomain.select = original  # type: ignore[method-assign]
        TwoLooks.look_at_counts = look  # type: ignore[method-assign]
    (histogram,) = set(seen)  # the same for a look and for what answers after it
    return histogram


def charged(plan: Plan, items: int | Fraction) -> dpsql.Rho:
    """Return items * epsilon**2 / 8, spelled out here and not taken from the code under test."""
    return dpsql.Rho(items * plan.epsilon.value**2 / 8)
