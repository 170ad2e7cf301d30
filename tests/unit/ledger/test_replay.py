"""A history whose chain fits and whose acts do not: what dpsql would never have written."""

from __future__ import annotations

from fractions import Fraction

import pytest
from support.ledger_makers import make_state
from support.replay_kit import AT, CREATED, TERMS, Act, rows, settled

from dpsql.accounting import BudgetState, BudgetVector
from dpsql.errors import LedgerError
from dpsql.ledger.history import History
from dpsql.ledger.record import make_event
from dpsql.quantities import Delta, Rho


def reserved(rho: str = "1/3", delta: str = "1/100", account: str | None = None) -> Act:
    body = {"query": "q", "rho": rho, "delta": delta, "account": account, "key": "", "data_version": 0}
    return "reserved", body


def test_a_history_adds_up_exactly() -> None:
    replay = History()
    acts = [
        CREATED,
        reserved(),
        reserved("1/5", "1/30", "a"),
        settled(2),
        reserved("1/11", "0/1", "b"),
        settled(3, "0/1"),
    ]
    replay.read(rows(*acts))
    states = replay.states()
    delta = Delta(Fraction(1, 100) + Fraction(1, 30))
    assert states[None] == BudgetState(Fraction(1, 7), delta.value, Fraction(1, 11))
    assert states["a"] == BudgetState(Fraction(0), Fraction(1, 30), Fraction(0))
    assert states["b"] == make_state(BudgetVector(0, 0), Fraction(1, 11))
    assert replay.terms.data_set == "x"


def test_a_grant_counts_from_its_event_on() -> None:
    granted = ("granted", {**TERMS, "budget_rho": "2/1", "note": ""})
    replay = History()
    replay.read(rows(CREATED, reserved("1/1"), granted, reserved("1/1")))
    assert replay.states()[None].reserved == Fraction(2)
    assert replay.terms.budget.rho == Rho(2)
    with pytest.raises(LedgerError, match="event 3 "):
        History().read(rows(CREATED, reserved("1/1"), reserved("1/1"), granted))


@pytest.mark.parametrize(
    "act",
    [
        CREATED,
        ("deleted", {}),
        ("", {}),
        reserved("2/3"),
        reserved("1/1"),
        reserved("1/3", "1/10"),
        reserved("-1/3"),
        reserved("0.1"),
        reserved("1/0"),
        ("reserved", {"query": "q"}),
        ("reserved", []),
        settled(3, "1/1000"),
        settled(1),
        settled(99),
        settled("4"),
        settled(None),
        settled([4]),
        settled(4, "1/2"),
        settled(4, "much"),
        ("settled", {"entry": 4}),
        ("granted", {"budget_rho": "2/1"}),
        ("granted", {**TERMS, "total_epsilon": "0/1"}),
        ("bumped", {"data_version": 0}),
        ("bumped", {"data_version": -1}),
        ("bumped", {"data_version": 1.5}),
        ("bumped", {"data_version": True}),
        ("bumped", {"data_version": "1"}),
        ("bumped", {}),
        ("registered", {"units": []}),
        ("registered", {}),
    ],
)
def test_an_act_that_cannot_follow_is_named_by_its_number(act: Act) -> None:
    before = [CREATED, ("registered", {"units": {}}), reserved(), reserved(), settled(3)]
    History().read(rows(*before))
    with pytest.raises(LedgerError) as caught:
        History().read(rows(*before, act))
    assert caught.value.code == "ledger-tampered"
    assert "event 6 " in caught.value.reason


@pytest.mark.parametrize("acts", [[], [reserved()], [("bumped", {"data_version": 1})], [("registered", {"units": {}})]])
def test_a_history_begins_with_its_creation(acts: list[Act]) -> None:
    with pytest.raises(LedgerError, match="ledger-tampered"):
        History().read(rows(*acts))


def test_a_number_left_out_is_found_though_the_chain_fits() -> None:
    history = rows(CREATED, reserved())
    kind, body = reserved()
    event = make_event((3, history[-1][4]), kind, body=body, at=AT)
    with pytest.raises(LedgerError, match="event 3 "):
        History().read([*history, (event.seq, event.at, event.kind, event.body, event.chain)])


@pytest.mark.parametrize("column", range(5))
@pytest.mark.parametrize("other", [None, 7, b"bytes", "", "yesterday", 1.5])
def test_a_cell_of_another_kind_is_named_by_its_event(column: int, other: object) -> None:
    history = rows(CREATED, reserved(), settled(2))
    history[1] = (*history[1][:column], other, *history[1][column + 1 :])
    with pytest.raises(LedgerError, match="event 2 "):
        History().read(history)


def test_numbers_of_unlike_denominators_are_summed_exactly() -> None:
    parts = [Fraction(1, n) for n in (7, 11, 13, 17, 19, 23, 10**30, 2**60)]
    replay = History()
    acts = [CREATED, *(reserved(f"1/{part.denominator}", "0/1") for part in parts)]
    replay.read(rows(*acts))
    assert replay.states()[None].reserved == Fraction(sum(parts, Fraction(0)))
    left = 1 - sum(parts, Fraction(0))
    replay.read([])
    exact = reserved(f"{left.numerator}/{left.denominator}", "0/1")
    History().read(rows(*acts, exact))
    with pytest.raises(LedgerError, match=f"event {len(acts) + 2} "):
        History().read(rows(*acts, exact, reserved(f"1/{10**60}", "0/1")))
