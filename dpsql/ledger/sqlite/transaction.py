"""The book of a durable ledger: rows of a SQLite file. SQLite never calculates with the numbers.

Terms are read once in a transaction, which sees one state of the file.
"""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from datetime import datetime

from dpsql.accounting import BudgetState, CertificateTerms
from dpsql.ledger.calendar import Calendar
from dpsql.ledger.event_rows import FIRST, HISTORY, LINKED, EventRows, Found, encode_holder
from dpsql.ledger.record import (
    Terms,
    budget_names,
    decode_certificate,
    decode_fraction,
    decode_periods,
    decode_terms,
    encode_certificate,
    encode_fraction,
    encode_periods,
    encode_terms,
)
from dpsql.ledger.sqlite import schema
from dpsql.ledger.sqlite.errors import damaged

__all__ = ["Rows"]

_TOTAL = ("total_epsilon", "total_delta")
# the key is read as the index reads it, for all characters
_UNDER = f"""{LINKED} WHERE kind = 'reserved' AND json_extract(body, '$.key') <> ''
AND json_extract(body, '$.key') = json_extract(?, '$')"""


class Rows(EventRows):
    """One transaction's view of the file, by an open connection."""

    SETTLEMENT = f"{LINKED} WHERE kind = 'settled' AND json_extract(body, '$.entry') = ?"
    ASKED = f"{_UNDER} AND (substr(body, 1, ?) = ? OR body NOT LIKE ?) AND seq < ? ORDER BY seq DESC LIMIT ?"
    ENTRY = "json_extract(settled.body, '$.entry')"
    FIRST_ASKED = f"{_UNDER} AND body LIKE ? AND seq > ? ORDER BY seq LIMIT ?"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._terms: Terms | None = None

    def terms(self) -> Terms:
        """Return the present terms."""
        if self._terms is None:
            self._terms = self._read_terms()
        return self._terms

    def _read_terms(self) -> Terms:
        row = self._connection.execute(
            "SELECT budget_rho, budget_delta, total_epsilon, total_delta, data_set, data_version FROM terms"
        ).fetchone()
        if row is None:
            raise damaged()
        *told, data_set, version = row
        try:
            certified = self._certified()
            names = (*budget_names(certified.certificate), *_TOTAL)
            body = {**dict(zip(names, told, strict=True)), **encode_certificate(certified)}
            terms = decode_terms(body, data_set, data_version=int(version))
            return replace(terms, calendar=self._calendar())
        except (TypeError, ValueError) as error:
            raise damaged() from error

    def set_terms(self, terms: Terms) -> None:
        """Put other terms in place of the present ones."""
        told = encode_terms(terms.budget, terms.total, certified=terms.certified)
        names = (*budget_names(terms.certified.certificate), *_TOTAL)
        self._connection.execute(
            "REPLACE INTO terms (one, budget_rho, budget_delta, total_epsilon, total_delta, data_set, data_version) "
            "VALUES (1, ?, ?, ?, ?, ?, ?)",
            (*(told[name] for name in names), terms.data_set, terms.data_version),
        )
        if certificate := encode_certificate(terms.certified):
            self._set_certificate(tuple(certificate.values()))
        if terms.calendar is not None:
            self._set_calendar(terms.calendar)
        self._terms = terms

    def _set_certificate(self, told: tuple[object, ...]) -> None:
        if not schema.has_certificate(self._connection):
            schema.make_certificate(self._connection)
        self._connection.execute(
            "REPLACE INTO certificate (one, certificate, item_epsilon, query_delta) VALUES (1, ?, ?, ?)", told
        )

    def _certified(self) -> CertificateTerms:
        """Return the certificate; raise ValueError or TypeError if it is malformed."""
        if not schema.has_certificate(self._connection):
            return CertificateTerms()
        row = self._connection.execute("SELECT certificate, item_epsilon, query_delta FROM certificate").fetchone()
        certificate, epsilon, delta = row
        return decode_certificate({"certificate": certificate, "item_epsilon": epsilon, "query_delta": delta})

    def _set_calendar(self, calendar: Calendar) -> None:
        if not schema.has_periods(self._connection):
            schema.make_periods(self._connection)
        seconds, most = encode_periods(calendar.periods).values()
        self._connection.execute(
            "REPLACE INTO periods (one, length_seconds, most, began, number, since) VALUES (1, ?, ?, ?, ?, ?)",
            (seconds, most, calendar.began.isoformat(timespec="microseconds"), calendar.number, calendar.since),
        )

    def _calendar(self) -> Calendar | None:
        """Return the calendar; raise ValueError or TypeError if it is malformed."""
        if not schema.has_periods(self._connection):
            return None
        row = self._connection.execute("SELECT length_seconds, most, began, number, since FROM periods").fetchone()
        seconds, most, began, number, since = row
        return Calendar(decode_periods(seconds, most), datetime.fromisoformat(began), int(number), int(since))

    def balance(self, account: str | None) -> BudgetState:
        """Return the spent and reserved amounts."""
        row = self._connection.execute(
            "SELECT spent_rho, spent_delta, reserved_rho FROM balances WHERE holder = ?", (encode_holder(account),)
        ).fetchone()
        if row is None and account is None:
            raise damaged()
        return BudgetState() if row is None else _state(row)

    def set_balance(self, account: str | None, state: BudgetState) -> None:
        """Put another state in place of the present one."""
        values = (state.spent, state.permanent, state.reserved)
        self._connection.execute(
            "REPLACE INTO balances (holder, spent_rho, spent_delta, reserved_rho) VALUES (?, ?, ?, ?)",
            (encode_holder(account), *map(encode_fraction, values)),
        )

    def start_afresh(self) -> None:
        """Put a fresh state in place of every balance."""
        self._connection.execute("UPDATE balances SET spent_rho = '0/1', spent_delta = '0/1', reserved_rho = '0/1'")
        self.set_balance(None, BudgetState())

    def tell_repeats(self) -> bool:
        """Say in the ledger's version that entries may repeat others."""
        schema.tell_repeats(self._connection)
        return True

    def tell_divisions(self) -> bool:
        """Say in the ledger's version that values may have budgets."""
        schema.tell_divisions(self._connection)
        return True

    def balances(self) -> dict[str, BudgetState]:
        """Return the state of every holder: the total and all accounts."""
        rows = self._connection.execute("SELECT holder, spent_rho, spent_delta, reserved_rho FROM balances")
        return {holder: _state(row) for holder, *row in rows}

    def history(self, after: int = FIRST) -> Found:
        """Return seq, at, kind, body and chain of all events that follow number `after`, oldest first."""
        return self._run(HISTORY, after)

    def _run(self, statement: str, *values: object) -> Found:
        return self._connection.execute(statement, values)


def _state(row: tuple[object, ...] | list[object]) -> BudgetState:
    try:
        return BudgetState(*map(decode_fraction, row))
    except ValueError as error:
        raise damaged() from error
