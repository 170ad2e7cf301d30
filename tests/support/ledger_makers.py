"""Ledgers of all kinds, made alike."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from hypothesis import strategies as st
from support.postgres_kit import fresh_schema, server

from dpsql.accounting import ApproximateDP, BudgetState, BudgetVector, Periods
from dpsql.ledger import (
    Account,
    Ledger,
    MemoryLedger,
    Request,
    Reservation,
    SQLiteLedger,
    verify,
)
from dpsql.ledger.postgres_ledger import PostgresLedger
from dpsql.ledger.postgres_ledger import verify as verify_postgres
from dpsql.ledger.record import Clock, utc
from dpsql.quantities import Delta, Epsilon

PARTS = st.fractions(min_value=0, max_value=Fraction(2, 5), max_denominator=60)


TOTAL = ApproximateDP(Epsilon(1), Delta("2e-6"))


def loss(rho: Fraction | int | str, delta: Fraction | int | str = 0) -> BudgetVector:
    return BudgetVector(rho, delta)


def ask(ledger: Ledger, worst_case: BudgetVector, query: str = "q", *, account: Account | None = None) -> Reservation:
    return ledger.reserve(Request(query, worst_case, account))


class Memory:
    """Ledgers that end with the process; what crashes is gone, so there is nothing to open again."""

    def __init__(self, folder: Path) -> None:
        pass

    def make(self, budget: BudgetVector, periods: Periods | None = None, clock: Clock = utc) -> Ledger:
        return MemoryLedger(budget, total=TOTAL, periods=periods, clock=clock)

    def again(self, ledger: Ledger, _: Clock = utc) -> Ledger:
        return ledger

    def check(self) -> None:
        pass


class SQLite:
    """Ledgers in files of one folder; one that crashed is opened again beside its remains."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._paths: dict[int, Path] = {}

    def make(self, budget: BudgetVector, periods: Periods | None = None, clock: Clock = utc) -> Ledger:
        path = self._folder / f"{len(self._paths)}.ledger"
        return self._opened(path, SQLiteLedger(path, budget, total=TOTAL, periods=periods, clock=clock))

    def again(self, ledger: Ledger, clock: Clock = utc) -> Ledger:
        path = self._paths[id(ledger)]
        return self._opened(path, SQLiteLedger.open(path, clock=clock))

    def check(self) -> None:
        for path in self._paths.values():
            verify(path)

    def _opened(self, path: Path, ledger: SQLiteLedger) -> Ledger:
        self._paths[id(ledger)] = path
        return ledger


class Postgres:
    """Ledgers in schemas of one real server; one that crashed leaves its connection open."""

    def __init__(self, folder: Path) -> None:  # noqa: ARG002 - they stand in no folder
        self._urls: dict[int, str] = {}

    def make(self, budget: BudgetVector, periods: Periods | None = None, clock: Clock = utc) -> Ledger:
        url = server().url(fresh_schema())
        return self._opened(url, PostgresLedger(url, budget, total=TOTAL, periods=periods, clock=clock))

    def again(self, ledger: Ledger, clock: Clock = utc) -> Ledger:
        url = self._urls[id(ledger)]
        return self._opened(url, PostgresLedger.open(url, clock=clock))

    def check(self) -> None:
        for url in self._urls.values():
            verify_postgres(url)

    def _opened(self, url: str, ledger: PostgresLedger) -> Ledger:
        self._urls[id(ledger)] = url
        return ledger


MAKERS = [Memory, SQLite, Postgres]  # a ledger in another store joins here, and passes everything below


Maker = Memory | SQLite | Postgres


def make_state(spent: BudgetVector, reserved: Fraction | int = 0) -> BudgetState:
    """Return the state of a budget of which `spent` was settled and `reserved` is held."""
    return BudgetState(spent.refundable, spent.permanent, Fraction(reserved))


def spent_in(state: BudgetState) -> BudgetVector:
    """Return what was settled and spent of a budget, without what is held."""
    return BudgetVector(state.spent, state.permanent)
