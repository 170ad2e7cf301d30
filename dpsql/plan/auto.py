"""Choice of the mechanism for queries without one: the mechanism whose keys are predicted to need the fewest units.

Only public numbers decide: k, the bound, the domain, epsilon and delta, whether counts are released, and the number of
partitions. The price is compared first, and then the need: the number of units at which a group has an even chance to
be returned. Where the ranking is by rows or by a sum, it is in steps of that, which changes all mechanisms alike. The
prediction replaces the data by fixed guesses:

* the threshold of a limited domain is above the count of group k_bar + 1, which is taken as 0;
* with weights, a unit is in half as many groups as the bound allows, and in at most 40, so that its weight is
  1 / sqrt(t). With 40 the mechanisms change places at about k = 11. In the logs that `benchmarks/recall.py` reads, most
  units have fewer groups and some have larger weights.

Below that k the relay answers where it can: its first leg is a limited domain, which ranks by counts and charges for
what it returns, and its second leg finds by their weights groups that the first cannot see. Where it cannot, as with
PER or `min_units`, the limited domain answers alone, and so it does where rows or sums are measured: to weigh these
takes about three times as long as to count users (`benchmarks run dashboard`). The `population` of a policy decides
nothing: population / k says too little of the k-th count of skewed data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from statistics import NormalDist

from dpsql.errors import Refusal
from dpsql.mechanisms import WEIGHT_STEPS, EvidentPeeling, JointExponential, Peeling, Relay, WeightedGaussian
from dpsql.plan.mechanisms import MechanismPlan
from dpsql.plan.mechanisms.domain_discovery import DomainDiscoveryPlan
from dpsql.plan.mechanisms.evident_peeling import EvidentPeelingPlan
from dpsql.plan.mechanisms.gaussian_histogram import GaussianHistogramPlan
from dpsql.plan.mechanisms.joint import JointPlan
from dpsql.plan.mechanisms.laplace_limited_domain import LaplaceLimitedDomainPlan
from dpsql.plan.mechanisms.limited_domain import LimitedDomainPlan
from dpsql.plan.mechanisms.measure_text import describe_about
from dpsql.plan.mechanisms.peeling import PeelingPlan
from dpsql.plan.mechanisms.per_partition import AllPartitionsPlan, EachPartitionPlan
from dpsql.plan.mechanisms.relay import NOTHING_FOUND, RelayPlan
from dpsql.plan.mechanisms.weighted_gaussian import WeightedGaussianPlan
from dpsql.sql.ir.measures import DISTINCT_UNITS, Measure
from dpsql.sql.ir.statements import LiteralDomain, PrivateQuery

__all__ = [
    "CHOSEN",
    "Candidate",
    "Prediction",
    "assume_groups_per_unit",
    "choose_candidate",
    "compare_candidates",
    "predict_need",
]

CHOSEN = frozenset("relay limited_domain gaussian_histogram weighted_gaussian peeling".split())
_TYPICAL = 40  # groups of a unit without a bound
_NORMAL = NormalDist()
_CANDIDATES = 1_000  # of a domain whose size only the database knows


@dataclass(frozen=True, slots=True)
class Prediction:
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


@dataclass(frozen=True, slots=True)
class Candidate:
    """A mechanism that could answer a query, by its name in SQL, and what is predicted, or simulated, of it."""

    name: str
    mechanism_plan: MechanismPlan
    prediction: Prediction
    recall: float | None = None

    def __str__(self) -> str:
        told = "" if self.recall is None else f"; finds {self.recall:.2f} of the top k if the counts are as assumed"
        return f"{self.prediction}{told}"


def compare_candidates(
    query: PrivateQuery, names: Iterable[str], *, build: Callable[[str], MechanismPlan]
) -> tuple[Candidate, ...]:
    """Return those of the mechanisms that can answer the query, with what is predicted of them, in their order."""
    found = []
    for name in names:
        try:
            mechanism_plan = build(name)
        except Refusal:  # it does not go with the query's options, or with the policy's
            continue
        prediction = predict_need(mechanism_plan, query)
        if prediction is not None:
            found.append(Candidate(name, mechanism_plan, prediction))
    return tuple(found)


def choose_candidate(found: Iterable[Candidate]) -> Candidate | None:
    """Return the first of those that cost least and, among these, need the fewest units; None of none.

    Others than `CHOSEN` are there to be compared with, and never the best, and so is a limited domain beside a relay.
    """
    chosen = {each.name: each for each in found if each.name in CHOSEN}
    if "relay" in chosen:
        chosen.pop("limited_domain", None)
    return min(chosen.values(), key=lambda each: (each.prediction.items, each.prediction.units), default=None)


def predict_need(mechanism_plan: MechanismPlan, query: PrivateQuery) -> Prediction | None:
    """Return with how many units a group has an even chance; None for a mechanism whose answers are of another kind."""
    match mechanism_plan:
        case EachPartitionPlan(each=each, charged_partitions=charged):
            one = predict_need(each, query)
            return None if one is None else replace(one, items=one.items * charged)
        case AllPartitionsPlan(every=every):
            return predict_need(every, query)
    need, k, domain = _predict_units(mechanism_plan, query), query.clause.k or 0, query.domain
    k = min(k, len(domain.values)) if isinstance(domain, LiteralDomain) else k
    if need is None:
        return None
    return replace(need, items=mechanism_plan.price.items(k), measure=query.measures[0])


def _predict_units(mechanism_plan: MechanismPlan, query: PrivateQuery) -> Prediction | None:
    match mechanism_plan:
        case LimitedDomainPlan(selection=leaders):
            return _predict_leaders(max(leaders.threshold_offset, leaders.least_threshold), leaders.k_bar)
        case RelayPlan(selection=legs):
            first = _predict_leaders(legs.first_leg.threshold_offset, legs.k_bar)
            return min(first, _predict_second_leg(legs, query), key=lambda each: each.units)
        case LaplaceLimitedDomainPlan(selection=at_once):
            return _predict_leaders(at_once.offset + at_once.sensitivity, at_once.k_bar)
        case GaussianHistogramPlan(selection=histogram):
            return Prediction(float(histogram.threshold))
        case WeightedGaussianPlan(selection=weighted):
            return _predict_weighted(weighted, query)
        case DomainDiscoveryPlan(selection=discovery):
            return _predict_weighted(discovery.discovery, query)
        case PeelingPlan(selection=peeled):
            return _predict_known_domain(peeled, query, released=mechanism_plan.known)
        case EvidentPeelingPlan(selection=evident):
            return _predict_evident(evident, mechanism_plan.known)
        case JointPlan(selection=sequence):
            return _predict_known_domain(sequence, query, released=mechanism_plan.known)
    return None


def _predict_evident(mechanism: EvidentPeeling, known: int) -> Prediction:
    """Return the need of the most frequent of the known names: at BOTTOM, or at the gate, it has an even chance."""
    bottom = float(mechanism.find_bottom(known))
    return Prediction(min(bottom, float(mechanism.gate(0).height)) if mechanism.left(0) else bottom)


def _predict_leaders(offset: Fraction | int, k_bar: int) -> Prediction:
    """Return the need of a group among the k_bar leaders."""
    return Prediction(float(offset), f" above group number {k_bar + 1}", rank=k_bar + 1)


def _predict_weighted(mechanism: WeightedGaussian, query: PrivateQuery) -> Prediction:
    """Return the need of a group whose units are in as many groups as is typical."""
    return _predict_weight(mechanism.threshold, mechanism.max_groups_contributed, query=query)


def _predict_second_leg(legs: Relay, query: PrivateQuery) -> Prediction:
    """Return the need of a group that opens the gate and reaches the threshold behind it in one of two draws."""
    gate, second = legs.gate(NOTHING_FOUND), legs.second_leg(NOTHING_FOUND)
    looks = [(gate.height, math.sqrt(gate.variance)), (second.threshold, math.sqrt(second.variance))]
    low: float = max(height for height, _ in looks)
    high = low + 2 * max(deviation for _, deviation in looks)  # where each is passed in 97 of 100 draws at least
    for _ in range(40):
        middle = (low + high) / 2
        passes = math.prod(_NORMAL.cdf((middle - height) / deviation) for height, deviation in looks)
        low, high = (middle, high) if passes < 1 / 2 else (low, middle)
    return _predict_weight(high, legs.weighed_groups, query=query)


def _predict_weight(weight: float, bound: int, *, query: PrivateQuery) -> Prediction:
    """Return how many units give a group a weight, in steps, if each is in as many groups as is typical."""
    groups = assume_groups_per_unit(bound)
    each = "" if groups == 1 else f", if each is in {groups} groups"
    return Prediction(query.measures[0].width * weight / WEIGHT_STEPS * math.sqrt(groups), each)


def assume_groups_per_unit(bound: int) -> int:
    """Return in how many groups a unit is taken to be under a bound, where nothing is known of it."""
    return min(math.ceil(bound / 2), _TYPICAL)


def _predict_known_domain(mechanism: Peeling | JointExponential, query: PrivateQuery, *, released: int) -> Prediction:
    """Return how far behind its rank a key is in one of two draws at most, by the bounds that the mechanisms state."""
    domain, k = query.domain, mechanism.k
    known, told = (
        (len(domain.values), "of") if isinstance(domain, LiteralDomain) else (max(_CANDIDATES, k), "if there are")
    )
    known, told = (released, "of") if released else (known, told)
    epsilon = float(mechanism.epsilon.value / mechanism.sensitivity)
    if isinstance(mechanism, Peeling):
        reach = math.log(2 * max(known - k, 1) * (1 + math.log(k))) / epsilon
    else:
        reach = 2 * (math.lgamma(known + 1) - math.lgamma(known - k + 1) + math.log(2)) / epsilon
    return Prediction(reach, f" more than others, {told} {known:,} candidates")
