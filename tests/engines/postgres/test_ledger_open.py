"""Rows of PostgreSQL that something else writes while a ledger is open: no act believes what no event explains."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from fractions import Fraction

import pytest
from support.ledger_kit import ALICE, ITEM, code_of
from support.postgres_ledger_kit import Place

from dpsql.ledger import Request, Reservation
from dpsql.ledger.postgres_ledger import PostgresLedger

OF_ALICE = Request("of alice", ITEM, ALICE, "another")
USING = {"total": {"reserve", "settle", "state"}, "account alice": {"reserve", "settle", "state of alice"}}
EVERY = {"reserve", "settle", "state", "state of alice", "budget", "stored", "bump"}


def acts(ledger: PostgresLedger, held: Reservation) -> dict[str, Callable[[], object]]:
    return {
        "reserve": lambda: ledger.reserve(OF_ALICE),
        "settle": lambda: held.settle(Fraction(0), "d"),
        "state": ledger.state,
        "state of alice": lambda: ledger.state("alice"),
        "budget": lambda: ledger.budget,
        "stored": lambda: ledger.stored("key", "alice"),
        "bump": lambda: ledger.bump("n"),
    }


@pytest.mark.parametrize("holder", sorted(USING))
@pytest.mark.parametrize("column", ["spent_rho", "spent_delta", "reserved_rho"])
@pytest.mark.parametrize("other", ["0/1", "1/1000000007", "9/1"])
def test_a_balance_that_is_changed_under_an_open_ledger_is_not_believed(
    rich: Place,
    holder: str,
    column: str,
    other: str,
) -> None:
    where = f"holder = '\"{holder}\"'"
    value = f'"{column}":"{other}"'
    with closing(PostgresLedger.open(rich.url)) as ledger:
        held = ledger.reserve(OF_ALICE)
        ((before,),) = rich.rows(f"SELECT body FROM balances WHERE {where}")
        (count,) = rich.rows("SELECT count(*) FROM events")
        changed = f"regexp_replace(body, '\"{column}\":\"[0-9/]+\"', '{value}')"
        rich.tamper(f"UPDATE balances SET body = {changed} WHERE {where}")
        for name in USING[holder]:
            assert code_of(acts(ledger, held)[name]) in {"ledger-tampered", "ledger-damaged"}, name
        assert rich.rows("SELECT count(*) FROM events") == [count]
        rich.tamper(f"UPDATE balances SET body = '{before}' WHERE {where}")
        held.settle(Fraction("0.5"), "d")
        assert ledger.state("alice").spent == Fraction(1)


@pytest.mark.parametrize(
    "change",
    [
        """replace(body, '"budget_rho":"50/1"', '"budget_rho":"51/1"')""",
        """replace(body, '"budget_rho":"50/1"', '"budget_rho":"49/1"')""",
        """replace(body, '"data_version":1', '"data_version":0')""",
        """replace(body, '"total_epsilon":"1/1"', '"total_epsilon":"2/1"')""",
    ],
)
def test_terms_that_are_changed_under_an_open_ledger_are_not_believed(rich: Place, change: str) -> None:
    with closing(PostgresLedger.open(rich.url)) as ledger:
        held = ledger.reserve(OF_ALICE)
        ((before,),) = rich.rows("SELECT body FROM terms")
        rich.tamper(f"UPDATE terms SET body = {change}")
        assert rich.rows("SELECT body FROM terms") != [(before,)]
        for name in EVERY:
            assert code_of(acts(ledger, held)[name]) == "ledger-tampered", name
        rich.tamper(f"UPDATE terms SET body = '{before}'")
        held.settle(Fraction("0.5"), "d")
        assert ledger.state("alice").spent == Fraction(1)


def test_a_row_that_is_deleted_under_an_open_ledger_is_missed(rich: Place) -> None:
    with closing(PostgresLedger.open(rich.url)) as ledger:
        held = ledger.reserve(OF_ALICE)
        rich.tamper("DELETE FROM balances WHERE holder LIKE '%alice%'")
        for name in USING["account alice"]:
            assert code_of(acts(ledger, held)[name]) == "ledger-tampered"


def test_events_that_a_reader_has_seen_and_that_are_gone_are_missed(rich: Place) -> None:
    with closing(PostgresLedger.open(rich.url)) as ledger:
        rich.tamper(
            "DELETE FROM events WHERE seq = 9",
            'UPDATE balances SET body = \'{"reserved_rho":"0/1","spent_delta":"1/500000000","spent_rho":"1/2"}\' '
            "WHERE holder = '\"total\"'",
        )
        assert code_of(ledger.state) == "ledger-tampered"
        assert code_of(lambda: ledger.reserve(OF_ALICE)) == "ledger-rolled-back"
