"""What every ledger does with a certificate: it is recorded for good, and nothing of another one enters."""

from __future__ import annotations

import contextlib
import json
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import pytest
from support.ledger_terms import ALL, Terms
from support.postgres_kit import fresh_schema, server

from dpsql.accounting import ApproximateDP, BudgetState, Certificate, Periods
from dpsql.errors import Error, LedgerError, UsageError
from dpsql.ledger import Account, Ledger, MemoryLedger, Shortfall, SQLiteLedger, dp_events
from dpsql.ledger.postgres_ledger import PostgresLedger
from dpsql.ledger.postgres_ledger import verify as verify_postgres
from dpsql.ledger.sqlite_ledger import verify
from dpsql.quantities import Delta, Epsilon

TOTAL = ApproximateDP(Epsilon(1), Delta("2e-6"))
PERIODS = Periods(timedelta(days=1), 3)


Open = Callable[[Terms, Periods | None], Ledger]


class Memory:
    def __init__(self, folder: Path) -> None:
        pass

    def make(self, terms: Terms, periods: Periods | None = None) -> Ledger:
        return MemoryLedger(terms.budget, total=TOTAL, periods=periods, certified=terms.certified)

    def check(self) -> None:
        pass


class SQLite:
    """The same file at every call."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "a.ledger"

    def make(self, terms: Terms, periods: Periods | None = None) -> Ledger:
        return SQLiteLedger(self.path, terms.budget, total=TOTAL, periods=periods, certified=terms.certified)

    def open(self) -> Ledger:
        return SQLiteLedger.open(self.path)

    def check(self) -> None:
        verify(self.path)


class Postgres:
    """The same schema at every call."""

    def __init__(self, folder: Path) -> None:  # noqa: ARG002 - it stands in no folder
        self.url = server().url(fresh_schema())

    def make(self, terms: Terms, periods: Periods | None = None) -> Ledger:
        return PostgresLedger(self.url, terms.budget, total=TOTAL, periods=periods, certified=terms.certified)

    def open(self) -> Ledger:
        return PostgresLedger.open(self.url)

    def check(self) -> None:
        verify_postgres(self.url)


Place = Memory | SQLite | Postgres


@pytest.fixture(params=[Memory, SQLite, Postgres])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return request.param(tmp_path)


@pytest.fixture(params=[SQLite, Postgres])
def durable(request: pytest.FixtureRequest, tmp_path: Path) -> SQLite | Postgres:
    return request.param(tmp_path)


@pytest.fixture(params=ALL, ids=lambda terms: terms.certificate.value)
def terms(request: pytest.FixtureRequest) -> Terms:
    return request.param


@pytest.fixture
def ledger(place: Place, terms: Terms) -> Iterator[Ledger]:
    with contextlib.closing(place.make(terms)) as made:
        yield made
    place.check()


def bodies(ledger: Ledger) -> list[dict[str, object]]:
    return [json.loads(event.body) for event in ledger.events()]


def code_of(act: Callable[[], object]) -> str:
    with pytest.raises(Error) as caught:
        act()
    assert caught.value.hint
    return caught.value.code


def test_what_was_not_returned_is_refunded_and_what_was_spent_at_once_is_not(ledger: Ledger, terms: Terms) -> None:
    quarter = terms.worst.refundable / 4
    ledger.reserve(terms.ask()).settle(quarter, "digest")
    assert ledger.state() == BudgetState(quarter, terms.worst.permanent)
    assert ledger.certified == terms.certified
    assert ledger.budget == terms.budget


def test_a_budget_is_filled_and_no_further(ledger: Ledger, terms: Terms) -> None:
    held = [ledger.reserve(terms.ask()) for _ in range(2)]
    with pytest.raises(Shortfall) as caught:
        ledger.reserve(terms.ask())
    first, _ = terms.certificate.currencies
    assert f"may cost {first} {float(terms.worst.refundable):.6g}, and {first} " in str(caught.value)
    assert pickle.loads(pickle.dumps(caught.value)).worst_case == terms.worst
    held[0].settle(Fraction(0), "digest")
    ledger.reserve(terms.ask())


def test_the_second_currency_runs_out_by_its_own_name(ledger: Ledger, terms: Terms) -> None:
    request = replace(terms.ask(), worst_case=replace(terms.budget, refundable=0))
    ledger.reserve(request).settle(Fraction(0), "digest")
    _, second = terms.certificate.currencies
    with pytest.raises(Shortfall, match=f"may cost {second} .*, and {second} 0 is left of the budget"):
        ledger.reserve(terms.ask())


def test_an_account_is_counted_in_the_same_currencies(ledger: Ledger, terms: Terms) -> None:
    own = Account("alice", terms.worst)
    ledger.reserve(terms.ask(account=own))
    assert ledger.state("alice").reserved == terms.worst.refundable
    with pytest.raises(Shortfall, match="account alice"):
        ledger.reserve(terms.ask(account=own))


def test_a_request_of_another_certificate_is_refused_and_leaves_no_trace(ledger: Ledger, terms: Terms) -> None:
    before = list(ledger.events())
    for other in ALL:
        if other is not terms:
            with pytest.raises(UsageError, match=r"\[wrong-certificate\]"):
                ledger.reserve(other.ask())
    assert list(ledger.events()) == before


def test_currencies_are_recorded_by_their_names(ledger: Ledger, terms: Terms) -> None:
    ledger.reserve(terms.ask("key")).settle(terms.worst.refundable, "digest")
    created, reserved, _ = bodies(ledger)
    first, second = terms.certificate.currencies
    assert {f"budget_{first}", f"budget_{second}"} <= created.keys()
    assert {first, second} <= reserved.keys()
    if terms.certificate is Certificate.zcdp:
        assert created.keys() == {"data_set", "budget_rho", "budget_delta", "total_epsilon", "total_delta"}
    else:
        assert created["certificate"] == terms.certificate.value
        assert "budget_rho" not in created
        assert "rho" not in reserved
    (entry,) = ledger.entries()
    assert entry.worst_case == terms.worst


def test_only_rho_is_told_to_an_accountant_of_rho(ledger: Ledger, terms: Terms) -> None:
    ledger.reserve(terms.ask())
    if terms.certificate is Certificate.zcdp:
        assert len(dp_events(ledger.entries()).event.events) == 1
    else:
        assert code_of(lambda: dp_events(ledger.entries())) == "wrong-certificate"


def test_a_grant_raises_what_adds_up_and_no_number_that_is_fixed(ledger: Ledger, terms: Terms) -> None:
    larger = ApproximateDP(Epsilon(2), Delta("4e-6"))
    if terms.certified.fixes:
        before = list(ledger.events())
        assert code_of(lambda: ledger.grant(terms.more, larger, note="more")) == "ledger-grant"
        assert code_of(lambda: ledger.grant(terms.budget, TOTAL, note="the same")) == "ledger-grant"
        assert list(ledger.events()) == before
    else:
        ledger.grant(terms.more, larger, note="more")
        assert (ledger.budget, ledger.total, ledger.certified) == (terms.more, larger, terms.certified)
        for _ in range(3):
            ledger.reserve(terms.ask())


def test_a_ledger_opened_again_goes_on_with_its_certificate(durable: SQLite | Postgres, terms: Terms) -> None:
    with contextlib.closing(durable.make(terms)) as ledger:
        ledger.reserve(terms.ask("key")).settle(Fraction(0), "digest", answer=b"answer")
        ledger.reserve(terms.ask())
    for opened in (durable.open, lambda: durable.make(terms)):
        with contextlib.closing(opened()) as ledger:
            assert ledger.certified == terms.certified
            assert ledger.state() == BudgetState(Fraction(0), 2 * terms.worst.permanent, terms.worst.refundable)
            assert ledger.stored("key", None) == b"answer"
    durable.check()


@pytest.mark.parametrize("other", ALL, ids=lambda terms: terms.certificate.value)
def test_a_ledger_is_never_opened_with_another_certificate(
    durable: SQLite | Postgres, terms: Terms, other: Terms
) -> None:
    with contextlib.closing(durable.make(terms)) as ledger:
        ledger.reserve(terms.ask())
    if other is not terms:
        with pytest.raises(LedgerError, match=r"\[ledger-certificate\]") as caught:
            durable.make(other)
        assert f"has the certificate {terms.certificate.value}" in str(caught.value)
    with contextlib.closing(durable.open()) as ledger:
        assert len(list(ledger.events())) == 2
        ledger.reserve(terms.ask())


def test_other_numbers_of_items_or_queries_are_refused_where_they_are_fixed(
    durable: SQLite | Postgres, terms: Terms
) -> None:
    durable.make(terms).close()
    other = replace(terms, budget=terms.more)
    if terms.certified.fixes:
        with pytest.raises(LedgerError, match=r"\[ledger-certificate\].* fixes 100 items, .* opened for 200 items"):
            durable.make(other)
    else:
        with contextlib.closing(durable.make(other)) as ledger:
            assert ledger.budget == terms.budget


def test_the_epsilon_that_a_ledger_fixed_stays(durable: SQLite | Postgres, terms: Terms) -> None:
    durable.make(terms).close()
    if terms.certified.fixes:
        other = replace(terms, certified=replace(terms.certified, epsilon=Epsilon("0.031")))
        with contextlib.closing(durable.make(other)) as ledger:
            assert ledger.certified == terms.certified


def test_a_budget_per_period_is_granted_anew_under_every_certificate(durable: SQLite | Postgres, terms: Terms) -> None:
    with contextlib.closing(durable.make(terms, PERIODS)) as ledger:
        ledger.reserve(terms.ask()).settle(terms.worst.refundable, "digest")
        ledger._clock = lambda: datetime.now(UTC) + timedelta(days=1)  # type: ignore[attr-defined]
        assert ledger.state() == BudgetState()
        ledger.reserve(terms.ask())
        assert ledger.state().reserved == terms.worst.refundable
        assert ledger.certified == terms.certified
    durable.check()
    with contextlib.closing(durable.open()) as ledger:
        assert ledger.certified == terms.certified
        assert ledger.calendar is not None
        assert [entry.period for entry in ledger.entries()] == [0, 1]
