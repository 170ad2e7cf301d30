"""The book of a durable ledger: rows of a SQLite file. SQLite never calculates with the numbers."""

from __future__ import annotations

import sqlite3

from dpsql.accounting import ZCDP, FilterState
from dpsql.ledger.record import Terms, fraction, terms_of, told_terms, written
from dpsql.ledger.rows import EventRows, Found, holder_of
from dpsql.ledger.sqlite_errors import damaged
from dpsql.quantities import Delta, Rho

__all__ = ["Rows"]

_TERMS = ("budget_rho", "budget_delta", "total_epsilon", "total_delta")


class Rows(EventRows):
    """One transaction's view of the file, by an open connection."""

    SETTLEMENT = "SELECT body FROM events WHERE kind = 'settled' AND json_extract(body, '$.entry') = ?"
    # the key is read as the index read it, whatever letters it holds
    ASKED = (
        "SELECT seq, at, kind, body, chain FROM events "
        "WHERE kind = 'reserved' AND json_extract(body, '$.key') <> '' "
        "AND json_extract(body, '$.key') = json_extract(?, '$') ORDER BY seq DESC"
    )

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def terms(self) -> Terms:
        """Return the present terms."""
        row = self._connection.execute(
            "SELECT budget_rho, budget_delta, total_epsilon, total_delta, data_set, data_version FROM terms"
        ).fetchone()
        if row is None:
            raise damaged()
        *told, data_set, version = row
        try:
            return terms_of(dict(zip(_TERMS, told, strict=True)), data_set, data_version=int(version))
        except (TypeError, ValueError) as error:
            raise damaged() from error

    def set_terms(self, terms: Terms) -> None:
        """Put other terms in place of the present ones."""
        told = told_terms(terms.budget, terms.total)
        self._connection.execute(
            "REPLACE INTO terms (one, budget_rho, budget_delta, total_epsilon, total_delta, data_set, data_version) "
            "VALUES (1, ?, ?, ?, ?, ?, ?)",
            (*(told[name] for name in _TERMS), terms.data_set, terms.data_version),
        )

    def balance(self, account: str | None) -> FilterState:
        """Return what is spent and held."""
        row = self._connection.execute(
            "SELECT spent_rho, spent_delta, reserved_rho FROM balances WHERE holder = ?", (holder_of(account),)
        ).fetchone()
        if row is None and account is None:
            raise damaged()
        state = FilterState.fresh() if row is None else _state(row)
        budget = self.terms().budget
        if account is None and (state.spent.rho + state.reserved > budget.rho or state.spent.delta > budget.delta):
            raise damaged()
        return state

    def set_balance(self, account: str | None, state: FilterState) -> None:
        """Put another state in place of the present one."""
        values = (state.spent.rho.value, state.spent.delta.value, state.reserved.value)
        self._connection.execute(
            "REPLACE INTO balances (holder, spent_rho, spent_delta, reserved_rho) VALUES (?, ?, ?, ?)",
            (holder_of(account), *map(written, values)),
        )

    def balances(self) -> dict[str, FilterState]:
        """Return the state of every holder: the total and all accounts."""
        rows = self._connection.execute("SELECT holder, spent_rho, spent_delta, reserved_rho FROM balances")
        return {holder: _state(row) for holder, *row in rows}

    def history(self) -> Found:
        """Return seq, at, kind, body and chain of all events, oldest first."""
        return self._run("SELECT seq, at, kind, body, chain FROM events ORDER BY seq")

    def _run(self, statement: str, *values: object) -> Found:
        return self._connection.execute(statement, values)


def _state(row: tuple[object, ...] | list[object]) -> FilterState:
    try:
        spent_rho, spent_delta, reserved_rho = map(fraction, row)
    except ValueError as error:
        raise damaged() from error
    return FilterState(ZCDP(Rho(spent_rho), Delta(spent_delta)), Rho(reserved_rho))
