"""The file of a ledger with a certificate: its version, and what is found when it was changed."""

from __future__ import annotations

import sqlite3
from fractions import Fraction
from pathlib import Path

import pytest
from support.ledger_kit import BUDGET, TOTAL, code_of, tampering

from dpsql.accounting import BudgetVector, Certificate, CertificateTerms
from dpsql.ledger import Request, SQLiteLedger, verify
from dpsql.ledger import sqlite_tables as tables
from dpsql.quantities import Delta, Epsilon

FIXED = CertificateTerms(Certificate.theorem2, Epsilon("0.03"), Delta("2.5e-8"))
ITEMS = BudgetVector(100, 20, certificate=Certificate.theorem2)


@pytest.fixture
def fixed(path: Path) -> Path:
    ledger = SQLiteLedger(path, ITEMS, total=TOTAL, certified=FIXED)
    ledger.reserve(Request("q", BudgetVector(5, 1, certificate=Certificate.theorem2))).settle(Fraction(2), "d")
    ledger.close()
    return path


def test_an_earlier_dpsql_refuses_it(fixed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "VERSION", 3)  # what the earlier one knows
    assert code_of(lambda: SQLiteLedger.open(fixed)) in {"ledger-newer", "ledger-damaged"}
    assert code_of(lambda: SQLiteLedger(fixed, BUDGET, total=TOTAL)) in {"ledger-newer", "ledger-damaged"}


def drop_table(connection: sqlite3.Connection) -> None:
    connection.execute("DROP TABLE certificate")


def call_it_plain(connection: sqlite3.Connection) -> None:
    drop_table(connection)
    connection.execute("PRAGMA user_version = 2")


CHANGES = {
    "another certificate": "UPDATE certificate SET certificate = 'optimal', query_delta = NULL",
    "a larger epsilon": "UPDATE certificate SET item_epsilon = '1/10'",
    "another delta": "UPDATE certificate SET query_delta = '1/10'",
    "pure": "UPDATE certificate SET certificate = 'pure', item_epsilon = NULL, query_delta = NULL",
}
DAMAGES = {
    "no epsilon": "UPDATE certificate SET item_epsilon = NULL",
    "an epsilon of 0": "UPDATE certificate SET item_epsilon = '0/1'",
    "no certificate": "UPDATE certificate SET certificate = 'none'",
    "zcdp": "UPDATE certificate SET certificate = 'zcdp', item_epsilon = NULL, query_delta = NULL",
    "no row": "DELETE FROM certificate",
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_was_changed_beside_the_events_is_found(fixed: Path, change: str) -> None:
    with tampering(fixed) as connection:
        connection.execute(CHANGES[change])
    assert code_of(lambda: SQLiteLedger.open(fixed)) == "ledger-tampered"
    assert code_of(lambda: verify(fixed)) == "ledger-tampered"


@pytest.mark.parametrize("change", DAMAGES)
def test_what_is_no_certificate_is_damage(fixed: Path, change: str) -> None:
    with tampering(fixed) as connection:
        connection.execute(DAMAGES[change])
    assert code_of(lambda: SQLiteLedger.open(fixed)) == "ledger-damaged"


@pytest.mark.parametrize("change", [drop_table, call_it_plain])
def test_a_file_without_its_certificate_is_not_read_as_zcdp(fixed: Path, change: object) -> None:
    with tampering(fixed) as connection:
        change(connection)  # type: ignore[operator]
    assert code_of(lambda: SQLiteLedger.open(fixed)) in {"ledger-damaged", "ledger-tampered"}
    assert code_of(lambda: SQLiteLedger(fixed, BUDGET, total=TOTAL)) in {"ledger-damaged", "ledger-tampered"}
