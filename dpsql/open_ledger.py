"""Opening of ledgers: in memory, in a SQLite file, or in a schema of a PostgreSQL database."""

from __future__ import annotations

import shlex
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.errors import LedgerError, MemoryLedgerWarning, UngrantedBudgetWarning, UsageError
from dpsql.policy import IN_MEMORY, DatabaseUrl, is_url

if TYPE_CHECKING:
    from dpsql.ledger import Ledger
    from dpsql.policy import Policy
    from dpsql.terms import Terms


def open_budget(
    place: str | Path | DatabaseUrl | None, policy: Policy, *, compute_terms: Callable[[Policy], Terms]
) -> tuple[Ledger, Terms]:
    """Open the ledger of a policy, and return it with the terms that `compute_terms` returns for its budget.

    Where the policy grants more than the ledger has, the terms are those of the smaller budget, with a warning.
    Raises as `open_ledger`.
    """
    from dpsql.accounting import describe_periods
    from dpsql.terms import describe_falling_shares

    terms = compute_terms(policy)
    record = open_ledger(place, terms)
    try:
        calendar = record.calendar
        periods = None if calendar is None else calendar.periods
        if (record.total, periods) != (terms.total, terms.periods):
            file = "policy.toml" if policy.lines is None else policy.lines.name
            reason = (
                f"The policy grants {terms.total} {describe_periods(terms.periods)}, its ledger has {record.total} "
                f"{describe_periods(periods)}, and this smaller budget holds. To grant the larger one, the curator "
                f'runs: dpsql ledger grant --policy {shlex.quote(file)} --note "why"'
            )
            falling = describe_falling_shares(policy, record.total)
            reason = f"{reason}. {falling}" if falling else reason
            budget = replace(
                policy.budget,
                epsilon=record.total.epsilon,
                delta=record.total.delta,
                period=None if periods is None else periods.length,
                periods=None if periods is None else periods.most,
            )
            terms = compute_terms(policy.with_budget(budget))
            warnings.warn(reason, UngrantedBudgetWarning, stacklevel=_caller_level())
        return record, terms.held_to(record.certified)
    except BaseException:
        record.close()
        raise


def open_ledger(place: str | Path | DatabaseUrl | None, terms: Terms) -> Ledger:
    """Open a ledger on the terms of a policy, making it if it is new; None and ":memory:" end with the process.

    Raises `LedgerError`, and `UsageError` for what names no ledger.
    """
    from dpsql.ledger import MemoryLedger

    if place is None:
        reason = "The policy names no ledger: spending is recorded in memory and lost when the session ends."
        warnings.warn(reason, MemoryLedgerWarning, stacklevel=_caller_level())
    elif not isinstance(place, str | Path | DatabaseUrl):
        raise UsageError("not-a-path", "A ledger is named by its path.", hint='Such as "ledger.sqlite", or ":memory:".')
    if place is None or str(place) == IN_MEMORY:
        return MemoryLedger(terms.budget, total=terms.total, periods=terms.periods, certified=terms.certified)
    known = DatabaseUrl.of(place) if is_url(place) else place
    try:
        return _open_durable(known, terms)
    except LedgerError as error:
        failure = LedgerError(error.code, error.reason, hint=error.hint, place=str(known))
    raise failure


def _open_durable(place: str | Path | DatabaseUrl, terms: Terms) -> Ledger:
    if isinstance(place, DatabaseUrl):
        require_psycopg()
        from dpsql.ledger.postgres_ledger import PostgresLedger

        return PostgresLedger(place, terms.budget, total=terms.total, periods=terms.periods, certified=terms.certified)
    from dpsql.ledger import SQLiteLedger

    return SQLiteLedger(place, terms.budget, total=terms.total, periods=terms.periods, certified=terms.certified)


def reopen_ledger(place: str | Path | DatabaseUrl) -> Ledger:
    """Open an existing ledger on the terms that it records. Raises `LedgerError`."""
    if is_url(place):
        require_psycopg()
        from dpsql.ledger.postgres_ledger import PostgresLedger

        return PostgresLedger.open(DatabaseUrl.of(place))
    from dpsql.ledger import SQLiteLedger

    return SQLiteLedger.open(str(place))


def require_psycopg() -> None:
    """Raise `UsageError` unless psycopg can be imported, which it cannot without a libpq."""
    found = True
    try:
        import psycopg  # noqa: F401 - whether it is there, and finds its libpq
    except ImportError:
        found = False
    if not found:
        hint = "Install it: pip install 'dpsql[postgres]'."
        raise UsageError("not-installed", "A ledger in PostgreSQL needs the package psycopg.", hint=hint)


def _caller_level() -> int:
    """Return the stack level of the first caller outside this package, counted from the function that calls this."""
    level, frame = 1, sys._getframe(1)  # noqa: SLF001 - warnings counts frames and names no package
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).split(".")[0] == __package__:
        level, frame = level + 1, frame.f_back
    return level
