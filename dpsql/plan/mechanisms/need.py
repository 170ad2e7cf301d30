"""Predictions: with how many units a group has an even chance to be returned.

Only public numbers decide: k, the bound, the domain, epsilon and delta. Where the ranking is by rows or by a sum, the
need is in steps of that, which changes all mechanisms alike. The prediction replaces the data by fixed guesses:

* the threshold of a limited domain is above the count of group k_bar + 1, which is taken as 0;
* with weights, a unit is in half as many groups as the bound allows, and in at most 40, so that its weight is
  1 / sqrt(t). With 40 the mechanisms change places at about k = 11. In the logs that `benchmarks/recall.py` reads, most
  units have fewer groups and some have larger weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dpsql.mechanisms import WEIGHT_STEPS
from dpsql.plan.mechanisms.measure_text import describe_about
from dpsql.plan.mechanisms.request import MechanismRequest
from dpsql.sql.ir.measures import DISTINCT_UNITS, Measure
from dpsql.sql.ir.statements import LiteralDomain

_TYPICAL = 40  # groups of a unit without a bound
_CANDIDATES = 1_000  # of a domain whose size only the database knows


@dataclass(frozen=True, slots=True)
class Need:
    """With how many units a group has an even chance to be returned, above what, and for how many items at most.

    The units are above those of the group at `rank`; above 0 if that is None. Of a `measure` other than units they are
    steps.
    """

    units: float
    above: str = ""
    items: int = 0
    rank: int | None = None
    measure: Measure = DISTINCT_UNITS

    def __str__(self) -> str:
        return f"a group needs {describe_about(self.measure, self.units)}{self.above}; {self.items} items at most"


def need_of_leaders(offset: Fraction | int, k_bar: int) -> Need:
    """Return the need of a group among the k_bar leaders."""
    return Need(float(offset), f" above group number {k_bar + 1}", rank=k_bar + 1)


def need_of_weight(weight: float, bound: int, *, request: MechanismRequest) -> Need:
    """Return how many units give a group a weight, in steps, if each is in as many groups as is typical."""
    groups = assume_groups_per_unit(bound)
    return Need(
        units_of_weight(weight, bound, request=request), "" if groups == 1 else f", if each is in {groups} groups"
    )


def units_of_weight(weight: float, bound: int, *, request: MechanismRequest) -> float:
    """Return the units of `need_of_weight`."""
    return request.most * weight / WEIGHT_STEPS * math.sqrt(assume_groups_per_unit(bound))


def assume_groups_per_unit(bound: int) -> int:
    """Return in how many groups a unit is taken to be under a bound, where nothing is known of it."""
    return min(math.ceil(bound / 2), _TYPICAL)


def count_assumed(request: MechanismRequest, k: int) -> tuple[int, str]:
    """Return how many candidates a known domain is taken to have, and the word before this number."""
    domain = request.query.domain
    if request.known:
        return request.known, "of"
    return (len(domain.values), "of") if isinstance(domain, LiteralDomain) else (max(_CANDIDATES, k), "if there are")
