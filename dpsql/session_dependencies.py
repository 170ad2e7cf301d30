"""The parts that a session works with: its engine, ledger, catalog, terms and noise."""

from __future__ import annotations

from dataclasses import dataclass

from dpsql import engines
from dpsql.accounting import BudgetVector
from dpsql.ledger import base as ledgers
from dpsql.ledger.base_ledger import Ledger
from dpsql.ledger.record import Division
from dpsql.mechanisms import Noise
from dpsql.sql.ir import literals as clocks
from dpsql.sql.ir.catalog import Catalog
from dpsql.terms import Terms


@dataclass(frozen=True, slots=True)
class SessionDependencies:
    """Engine, ledger, catalog, terms and noise of a session, and the evaluator that computes outer SELECTs.

    Statements over public tables are run by `public`, apart from the private ones; without it the engine runs both.
    With `implicit`, standard SQL over private tables is read as private. The `division` gives each unit its value,
    where each value of a column has a budget.
    """

    engine: engines.Engine
    ledger: Ledger
    catalog: Catalog
    terms: Terms
    noise: Noise
    evaluator: engines.ResultEvaluator
    clock: clocks.Clock = clocks.system_clock
    public: engines.PublicStatements | None = None
    implicit: bool = False
    division: Division | None = None

    @property
    def account(self) -> str | None:
        """Name of the analyst under which answers are stored; None where analysts have no accounts."""
        return None if self.terms.account is None else self.terms.account.name

    def request(
        self,
        text: str,
        worst: BudgetVector,
        *,
        key: str,
        repeated: bool = True,
        law: str = "",
        values: tuple[str, ...] = (),
    ) -> ledgers.Request:
        """Return the request of this analyst to the ledger for a query of this text, worst case and key."""
        account, most_failures = self.terms.account, self.terms.limits.failures_per_day
        own = None if account is None else ledgers.Account(account.name, account.budget)
        return ledgers.Request(text, worst, own, key, most_failures, repeated, law, values, self.division)
