"""The table of laws: what each mechanism claims holds for all neighbours, and what would break it is caught.

An entry is the law of one mechanism on tiny universes, computed exactly; `laws/record.py` says what is in it.
"""

from __future__ import annotations

import pytest
from properties.mechanisms.laws import (
    all_counts,
    evidence,
    fixed_stable,
    gap_choice,
    gate,
    joint,
    known_names,
    laplace_limited_domain,
    limited_domain,
    limited_domain_sums,
    min_units,
    noisy_counts,
    peeling,
    propose_test_release,
    selections_by_sums,
    stable,
    top_stable,
    two_looks,
)
from support.laws import ROUNDING

from dpsql.plan.mechanisms import choice
from dpsql.plan.mechanisms.record import Mechanism

# named as the records of mechanisms name them
LAWS = {
    "peeling of leaders": limited_domain.LAW,
    "peeling of leaders, by sums": limited_domain_sums.LAW,
    "peeling of leaders, min_units": min_units.LAW,
    "two looks": two_looks.LAW,
    "Gaussian noise on counts": all_counts.HISTOGRAM,
    "Gaussian noise on counts, the order": all_counts.ORDER,
    "Gaussian noise on counts and on weights, by sums": selections_by_sums.ALL_COUNTS,
    "Gaussian noise on counts and on weights, known names": known_names.LAW,
    "Gaussian noise on weights": all_counts.WEIGHTED,
    "Gaussian noise on weights, and peeling": all_counts.DISCOVERY,
    "Laplace noise on leaders": laplace_limited_domain.LAW,
    "Laplace noise on leaders, by sums": selections_by_sums.AT_ONCE,
    "a stable set and what makes it k": fixed_stable.LAW,
    "a stable set and what makes it k, by sums": selections_by_sums.FIXED_STABLE,
    "a stable set at a private k": stable.LAW,
    "a stable set at a private k, by sums": stable.BY_SUMS,
    "a stable set at a private k, of one unit exchanged": stable.EXCHANGED,
    "a gate, and Gaussian noise behind it": gate.LAW,
    "the choice of a gap": gap_choice.LAW,
    "the test of a gap": propose_test_release.LAW,
    "leaders down to a gap": top_stable.LAW,
    "leaders down to a gap, by sums": selections_by_sums.TOP,
    "peeling of candidates": peeling.LAW,
    "peeling of candidates, known names with an evidence line": evidence.LAW,
    "all keys in one draw": joint.LAW,
    "noise on known groups": noisy_counts.LAW,
}


def listed(part: str) -> list[object]:
    """Return the claims or the mistakes of all laws, each with its name."""
    return [
        pytest.param(*bar, id=f"{law}: {name}") for law, own in LAWS.items() for name, bar in getattr(own, part).items()
    ]


@pytest.mark.parametrize(("attained", "worst"), listed("claims"))
def test_no_neighbour_exceeds_the_claim(attained: float, worst: object) -> None:
    assert attained < worst() <= 1.0 + ROUNDING  # type: ignore[operator]


@pytest.mark.mutant
@pytest.mark.parametrize(("factor", "worst"), listed("mistakes"))
def test_every_known_mistake_is_caught(factor: float, worst: object) -> None:
    assert worst() > factor  # type: ignore[operator]


@pytest.mark.parametrize("record", choice.RECORDS, ids=lambda record: record.law)
def test_every_mechanism_has_a_law(record: Mechanism) -> None:
    place = f"tests/properties/mechanisms/laws/{record.name}.py"
    missing = f'Write {place}, and name its LAW "{record.law}" in LAWS of tests/properties/mechanisms/test_laws.py.'
    assert record.law in LAWS, missing
    assert LAWS[record.law].claims
