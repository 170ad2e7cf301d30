"""What several periods promise together: never less than the truth, and what the formula of one total says."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction

import pytest

from dpsql.accounting import ZCDP, ApproximateDP, Periods, delta_of_zcdp, describe_periods, epsilon_of_zcdp, total_after
from dpsql.errors import UsageError
from dpsql.quantities import Delta, Epsilon, Rho
from dpsql.terms import compute_budget

DAY = timedelta(days=1)
EACH = ApproximateDP(Epsilon(1), Delta("1e-6"))
BUDGET = compute_budget(EACH)


@pytest.mark.parametrize(
    ("length", "words"),
    [(DAY, "1 day"), (30 * DAY, "30 days"), (DAY / 24, "1 hour"), (DAY / 2, "12 hours"), (1.5 * DAY, "36 hours")],
)
def test_a_period_in_words(length: timedelta, words: str) -> None:
    assert str(Periods(length)) == words
    assert describe_periods(Periods(length)) == f"per {words}"
    assert describe_periods(Periods(length, 1)) == f"per {words}, at most 1 time"
    assert describe_periods(Periods(length, 3)) == f"per {words}, at most 3 times"
    assert describe_periods(None) == "once"


@pytest.mark.parametrize("length", [timedelta(0), -DAY, timedelta(minutes=30), timedelta(minutes=90), 10_001 * DAY])
def test_a_period_has_whole_hours(length: timedelta) -> None:
    with pytest.raises(UsageError, match="period-range"):
        Periods(length)


@pytest.mark.parametrize("most", [0, -1])
def test_there_is_at_least_one_period(most: int) -> None:
    with pytest.raises(UsageError, match="period-range"):
        Periods(DAY, most)


def test_one_period_promises_what_it_was_granted() -> None:
    assert total_after(1, EACH, budget=BUDGET) == EACH


@pytest.mark.parametrize("count", [2, 4, 12, 365])
@pytest.mark.parametrize(("epsilon", "delta"), [("0.1", "1e-9"), ("1", "1e-6"), ("5", "1e-4")])
def test_several_periods_are_charged_as_one_total_of_all_their_losses(count: int, epsilon: str, delta: str) -> None:
    each = ApproximateDP(Epsilon(epsilon), Delta(delta))
    budget = compute_budget(each)
    total = total_after(count, each, budget=budget)
    assert total.delta.value == count * Fraction(delta)
    conversion = Delta(total.delta.value - count * budget.delta.value)
    tight = epsilon_of_zcdp(budget.rho * count, conversion)
    assert tight <= float(total.epsilon) <= tight * (1 + 1e-5)
    assert delta_of_zcdp(budget.rho * count, total.epsilon) <= float(conversion) * (1 + 1e-9)
    assert each.epsilon < total.epsilon
    assert float(total.epsilon) < count * float(epsilon)  # better than adding up the epsilons
    assert float(str(total.epsilon)) >= tight  # as it is printed, too


def test_where_the_deltas_come_to_one_nothing_is_promised() -> None:
    each = ApproximateDP(Epsilon(1), Delta("0.25"))
    assert total_after(3, each, budget=compute_budget(each)) is not None
    assert total_after(4, each, budget=compute_budget(each)) is None


def test_a_tiny_budget_never_promises_less_than_one_period() -> None:
    each = ApproximateDP(Epsilon("0.001"), Delta("0.3"))
    for rho in (Rho(0), Rho("1e-12")):
        total = total_after(3, each, budget=ZCDP(rho, Delta("0.1")))
        assert total == ApproximateDP(Epsilon("0.001"), Delta("0.9"))
