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
    joint,
    known_names,
    laplace_limited_domain,
    limited_domain,
    limited_domain_sums,
    min_units,
    noisy_counts,
    peeling,
    propose_test_release,
    relay,
    selections_by_sums,
    stable,
    top_stable,
)
from support.laws import ROUNDING

from dpsql.plan.planner import MECHANISMS

LAWS = {
    "limited_domain": limited_domain.LAW,
    "limited_domain, by sums": limited_domain_sums.LAW,
    "limited_domain, min_units": min_units.LAW,
    "relay": relay.LAW,
    "gaussian_histogram": all_counts.HISTOGRAM,
    "gaussian_histogram, the order": all_counts.ORDER,
    "gaussian_histogram and weighted_gaussian, by sums": selections_by_sums.ALL_COUNTS,
    "gaussian_histogram and weighted_gaussian, known names": known_names.LAW,
    "weighted_gaussian": all_counts.WEIGHTED,
    "domain_discovery": all_counts.DISCOVERY,
    "laplace_limited_domain": laplace_limited_domain.LAW,
    "laplace_limited_domain, by sums": selections_by_sums.AT_ONCE,
    "stable": fixed_stable.LAW,
    "stable, by sums": selections_by_sums.FIXED_STABLE,
    "stable, adaptive": stable.LAW,
    "stable, adaptive, by sums": selections_by_sums.STABLE_SET,
    "stable, the choice of a gap": gap_choice.LAW,
    "stable, the test of a gap": propose_test_release.LAW,
    "top_stable": top_stable.LAW,
    "top_stable, by sums": selections_by_sums.TOP,
    "peeling": peeling.LAW,
    "peeling, known names with an evidence line": evidence.LAW,
    "joint": joint.LAW,
    "known_groups and counts": noisy_counts.LAW,
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


@pytest.mark.parametrize("mechanism", [name for name in MECHANISMS if name != "auto"])
def test_every_mechanism_of_the_planner_has_a_law(mechanism: str) -> None:
    assert LAWS[mechanism].claims
