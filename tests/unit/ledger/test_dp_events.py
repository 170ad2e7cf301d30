"""The record as events of `dp_accounting`, composed by its own accountant."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest
from dp_accounting import ComposedDpEvent, NeighboringRelation, ZCDpEvent
from dp_accounting.rdp import RdpAccountant
from scipy.optimize import brentq
from scipy.stats import norm
from support.ledger_kit import TOTAL
from support.renyi_orders import best_alpha

from dpsql.accounting import BudgetVector, epsilon_of_zcdp
from dpsql.ledger import Entry, MemoryLedger, Request, SQLiteLedger, dp_events
from dpsql.quantities import Delta, Rho

BUDGET = BudgetVector(5, "1e-5")


def used(*losses: tuple[Fraction, Fraction | None]) -> tuple[Entry, ...]:
    ledger = MemoryLedger(BUDGET, total=TOTAL)
    for worst, loss in losses:
        held = ledger.reserve(Request("q", BudgetVector(worst, "1e-8")))
        if loss is not None:
            held.settle(Fraction(loss), "d")
    return ledger.entries()


def epsilon_of(event: ComposedDpEvent, delta: Delta, orders: list[float]) -> float:
    accountant = RdpAccountant(orders, NeighboringRelation.ADD_OR_REMOVE_ONE)
    accountant.compose(event)
    return float(accountant.get_epsilon(float(delta)))


def exact_epsilon_of_gaussian(rho: float, delta: float) -> float:
    """The least epsilon of a Gaussian mechanism (Balle and Wang 2018), below which no conversion of rho may go."""
    mu = math.sqrt(2 * rho)

    def excess(epsilon: float) -> float:
        first, second = norm.logcdf(mu / 2 - epsilon / mu), epsilon + norm.logcdf(-mu / 2 - epsilon / mu)
        return math.exp(first) - math.exp(second) - delta

    return float(brentq(excess, 0, 100))


def test_each_entry_is_an_event_of_what_it_was_charged() -> None:
    spent = dp_events(used((Fraction(1, 3), Fraction(1, 7)), (Fraction(1, 5), None), (Fraction(1, 9), Fraction(0))))
    assert spent.delta == Delta("3e-8")
    charged = [event.rho for event in spent.event.events]
    assert all(isinstance(event, ZCDpEvent) and event.xi == 0 for event in spent.event.events)
    for rho, exact in zip(charged, (Fraction(1, 7), Fraction(1, 5), Fraction(0)), strict=True):
        assert exact <= Fraction(rho) <= exact * (1 + Fraction(1, 10**15))


def test_an_empty_record_has_spent_nothing() -> None:
    spent = dp_events(())
    assert (spent.event, spent.delta) == (ComposedDpEvent([]), Delta(0))
    assert epsilon_of(spent.event, Delta("1e-6"), [2.0, 30.0]) == 0


@pytest.mark.parametrize("delta", ["1e-5", "5e-7", "1e-9"])
@pytest.mark.parametrize("count", [1, 7, 200])
def test_its_accountant_finds_what_our_conversion_claims_and_no_less_than_the_truth(count: int, delta: str) -> None:
    losses = [(Fraction(1, 97 + n), Fraction(1, 101 + n) if n % 3 else None) for n in range(count)]
    spent = dp_events(used(*losses))
    rho = Rho(sum((worst if loss is None else loss for worst, loss in losses), Fraction(0)))
    ours = epsilon_of_zcdp(rho, Delta(delta))
    found = epsilon_of(spent.event, Delta(delta), [best_alpha(rho, Delta(delta))])
    assert found == pytest.approx(ours, rel=1e-6)
    assert found <= ours * (1 + 1e-9)
    usual = [1 + x / 10 for x in range(1, 100)] + [float(x) for x in range(11, 2000)]
    assert ours <= epsilon_of(spent.event, Delta(delta), usual) * (1 + 1e-6)  # fewer orders find no better bound
    assert found >= exact_epsilon_of_gaussian(float(rho), float(delta))


def test_the_events_of_a_file_and_of_one_account(rich: Path) -> None:
    ledger = SQLiteLedger.open(rich)
    entries = ledger.entries()
    ledger.close()
    assert [event.rho for event in dp_events(entries).event.events] == [0.5, 0.0, 1.0]
    assert dp_events(entry for entry in entries if entry.account == "alice").event == ComposedDpEvent([ZCDpEvent(0.5)])


def test_without_the_package_it_says_how_to_install_it() -> None:
    code = (
        "import sys; sys.modules['dp_accounting'] = None\n"
        "from dpsql.errors import UsageError\n"
        "from dpsql.ledger import dp_events\n"
        "try:\n    dp_events(())\nexcept UsageError as error:\n    print(error.code, error.hint, error.__context__)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout == "not-installed Install it: pip install 'dpsql[dp-accounting]'. None\n"


def test_the_example_of_the_documentation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with closing(SQLiteLedger("ledger.sqlite", BUDGET, total=TOTAL)) as ledger:
        ledger.reserve(Request("q", BudgetVector("0.01", "1e-8"))).settle(Fraction("0.01"), "d")
    text = (Path(__file__).parents[3] / "docs" / "reference" / "ledger.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile(block, "ledger.md", "exec"), {})
    assert float(capsys.readouterr().out) == pytest.approx(epsilon_of_zcdp(Rho("0.01"), Delta("5e-7")), rel=1e-2)
