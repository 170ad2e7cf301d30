"""Choice of the mechanism where names are known from earlier answers: among those that ask no threshold of them.

Only public numbers decide. With fewer known names than k nothing changes. With k or more, weighted Gaussian and
Gaussian histogram return known names above a line that is lower than their threshold, or however few units they have
with known = all, and others above their threshold. Peeling chooses among the known names alone, with less noise if k is
small, and misses any other name. It is considered from 5 k known
names on: so long a list is likely to hold the first k of another filter, and k names that were released for another one
are not. What is compared is the price and then the standard deviation of the noise, in units, that decides the order of
the names. `benchmarks/released.py` prints the recall that these choices give.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from dpsql.errors import Refusal
from dpsql.mechanisms import WEIGHT_STEPS, EvidenceGate
from dpsql.mechanisms.known_names import find_line
from dpsql.plan.auto import Prediction, assume_groups_per_unit, predict_need
from dpsql.plan.mechanisms import MechanismPlan
from dpsql.plan.mechanisms.evident_peeling import EvidentPeelingPlan
from dpsql.plan.mechanisms.gaussian_histogram import GaussianHistogramPlan
from dpsql.plan.mechanisms.joint import JointPlan
from dpsql.plan.mechanisms.peeling import PeelingPlan
from dpsql.plan.mechanisms.weighted_gaussian import WeightedGaussianPlan
from dpsql.sql.ir.statements import PrivateQuery

__all__ = ["NAMES_PER_KEY", "choose_over_names", "predict_known_need"]

NAMES_PER_KEY = 5
_CONSIDERED = ("weighted_gaussian", "gaussian_histogram", "peeling")
_GUMBEL_DEVIATION = math.pi / math.sqrt(6)


@dataclass(frozen=True, slots=True, order=True)
class _Cost:
    items: int
    deviation: float


def choose_over_names(query: PrivateQuery, *, build: Callable[[str], MechanismPlan]) -> str | None:
    """Return the mechanism that finds known names with the least noise, of those at the lowest price; None for no one.

    `build` returns the plan of a mechanism, or raises `Refusal` where it cannot answer the query.
    """
    names, k = query.names, query.clause.k
    if names is None or k is None or query.domain is not None or names.count < k:
        return None
    found: dict[str, _Cost] = {}
    for name in _CONSIDERED:
        if name == "peeling" and names.count < NAMES_PER_KEY * k:
            continue
        try:
            mechanism_plan = build(name)
        except Refusal:  # it does not go with the query's options, or with the policy's
            continue
        deviation = _measure_noise(mechanism_plan, query)
        if deviation is not None:
            found[name] = _Cost(mechanism_plan.price.items(k), deviation)
    return min(found, key=found.__getitem__, default=None)


def _measure_noise(mechanism_plan: MechanismPlan, query: PrivateQuery) -> float | None:
    """Return the standard deviation of the noise on a name, in steps of the measure; None for another mechanism."""
    match mechanism_plan:
        case PeelingPlan(selection=peeled) | EvidentPeelingPlan(selection=peeled):
            return _GUMBEL_DEVIATION * peeled.sensitivity / float(peeled.epsilon.value)
        case GaussianHistogramPlan(selection=histogram):
            return math.sqrt(histogram.variance)
        case WeightedGaussianPlan(selection=weighted):
            groups = assume_groups_per_unit(weighted.max_groups_contributed)
            return query.measures[0].width * math.sqrt(weighted.variance * groups) / WEIGHT_STEPS
    return None


def predict_known_need(mechanism_plan: MechanismPlan, query: PrivateQuery) -> Prediction | None:
    """Return how many units give a known name an even chance to reach its evidence line; None without a line."""
    match mechanism_plan:
        case EvidentPeelingPlan():
            return predict_need(mechanism_plan, query)
        case JointPlan(gate=EvidenceGate(height=height)):
            line = float(height)
        case GaussianHistogramPlan(selection=histogram, known=known, evident=True):
            line = float(find_line(histogram.variance, known))
        case WeightedGaussianPlan(selection=weighted, known=known, evident=True):
            groups = assume_groups_per_unit(weighted.max_groups_contributed)
            weight = find_line(weighted.variance, known) / WEIGHT_STEPS
            line = query.measures[0].width * weight * math.sqrt(groups)
        case _:
            return None
    return Prediction(line, measure=query.measures[0])
