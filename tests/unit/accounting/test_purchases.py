"""What a total buys under each certificate, in both directions."""

from __future__ import annotations

from fractions import Fraction

import pytest

from dpsql.accounting import (
    ApproximateDP,
    BoundedRange,
    Certificate,
    adaptive_epsilon,
    epsilon_of_zcdp,
    item_epsilon,
    items_bought,
)
from dpsql.accounting.certificates import durfee_rogers
from dpsql.errors import UsageError
from dpsql.quantities import Delta, Epsilon

TOTAL = ApproximateDP(Epsilon(1), Delta("1e-6"))
BOUGHT = {
    "0.005": (200, 5078, 7793),
    "0.01": (100, 1269, 1948),
    "0.02": (50, 317, 487),
    "0.05": (20, 50, 77),
    "0.1": (10, 12, 19),
    "0.2": (5, 5, 4),
}


@pytest.mark.parametrize("epsilon", BOUGHT)
def test_published_numbers_of_items(epsilon: str) -> None:
    closed = (Certificate.pure, Certificate.theorem2, Certificate.zcdp)
    assert tuple(items_bought(each, Epsilon(epsilon), total=TOTAL) for each in closed) == BOUGHT[epsilon]


def cost(certificate: Certificate, items: int, epsilon: Epsilon) -> float:
    """Return the total epsilon of the items, apart from the search that is tested."""
    match certificate:
        case Certificate.pure:
            return float(items * epsilon.value)
        case Certificate.theorem2:
            return durfee_rogers(items, epsilon, delta=TOTAL.delta).best
        case Certificate.zcdp:
            return epsilon_of_zcdp(BoundedRange(epsilon).rho * items, TOTAL.delta)
        case Certificate.optimal:
            return adaptive_epsilon(items, epsilon, delta=TOTAL.delta)


@pytest.mark.parametrize("certificate", Certificate)
@pytest.mark.parametrize("items", [1, 7, 60])
def test_both_directions_agree_and_leave_little(certificate: Certificate, items: int) -> None:
    epsilon = item_epsilon(certificate, items, total=TOTAL)
    assert cost(certificate, items, epsilon) <= 1.0 + 1e-9
    assert cost(certificate, items, Epsilon(epsilon.value * Fraction("1.0002"))) > 1.0
    assert items_bought(certificate, epsilon, total=TOTAL) == items
    more = Epsilon(epsilon.value * Fraction("1.0002"))
    assert items_bought(certificate, more, total=TOTAL) == items - 1


@pytest.mark.parametrize("certificate", Certificate)
def test_more_is_bought_by_more_and_by_smaller_items(certificate: Certificate) -> None:
    larger = ApproximateDP(Epsilon(2), Delta("1e-5"))
    counts = [items_bought(certificate, Epsilon(each), total=TOTAL) for each in ("1.1", "0.3", "0.1", "0.05")]
    assert counts == sorted(counts)
    assert items_bought(certificate, Epsilon("0.1"), total=larger) > counts[2]
    epsilons = [item_epsilon(certificate, items, total=TOTAL) for items in (3, 10, 40)]
    assert epsilons == sorted(epsilons, reverse=True)


def test_optimal_buys_the_most() -> None:
    for epsilon in ("0.03", "0.1", "0.2", "0.6"):
        counts = {each: items_bought(each, Epsilon(epsilon), total=TOTAL) for each in Certificate}
        assert counts[Certificate.optimal] == max(counts.values())


def test_an_item_too_large_is_not_bought() -> None:
    assert [items_bought(each, Epsilon(7), total=TOTAL) for each in Certificate] == [0, 0, 0, 0]


def test_optimal_counts_to_its_end() -> None:
    assert items_bought(Certificate.optimal, Epsilon("0.0001"), total=TOTAL) == 5000


@pytest.mark.parametrize("certificate", Certificate)
def test_no_epsilon_buys_no_items(certificate: Certificate) -> None:
    with pytest.raises(UsageError, match=r"\[items-range\]"):
        item_epsilon(certificate, 0, total=TOTAL)


def test_too_many_items_for_a_total() -> None:
    with pytest.raises(UsageError, match=r"\[items-range\]"):
        item_epsilon(Certificate.theorem2, 10**30, total=TOTAL)
    with pytest.raises(UsageError, match=r"\[items-range\]"):
        item_epsilon(Certificate.zcdp, 10**30, total=TOTAL)
