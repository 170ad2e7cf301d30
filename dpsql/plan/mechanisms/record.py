"""The record of a mechanism, with what it needs to return a group.

The record is all that the planner, AUTO, EXPLAIN, completion and the documentation know of a mechanism. Each mechanism
declares its own, beside its plan; `choice.py` lists them. No other module compares names or classes of mechanisms, but
`identity/replay_key.py` and `identity/stored_release.py`, which know what earlier versions chose among.

A `Need` predicts with how many units a group has an even chance to be returned. Only public numbers decide: k, the
bound, the domain, epsilon and delta. Where the ranking is by rows or by a sum, the need is in steps of that, which
changes all mechanisms alike. The prediction replaces the data by fixed guesses:

* the threshold of a limited domain is above the count of group k_bar + 1, which is taken as 0;
* with weights, a unit is in half as many groups as the bound allows, and in at most 40, so that its weight is
  1 / sqrt(t). With 40 the mechanisms change places at about k = 11. In the logs that `benchmarks/recall.py` reads, most
  units have fewer groups and some have larger weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from dpsql.accounting import BudgetVector, Certificate
from dpsql.mechanisms import WEIGHT_STEPS
from dpsql.plan.mechanisms.base import ItemLoss, MechanismPlan, sqrt_rounded_down
from dpsql.plan.mechanisms.request import MechanismRequest
from dpsql.sql.ir.measures import DISTINCT_UNITS, Aggregate, Measure

_TYPICAL = 40  # groups of a unit without a bound
_NORMAL, _LOGISTIC = 2.3264, math.log(99)  # what noise of scale 1 exceeds with a chance of 1 in 100


@dataclass(frozen=True, slots=True)
class Need:
    """With how many units a group has an even chance to be returned, above what, and for how many items at most.

    The units are above those of the group at `rank`; above 0 if that is None. Of a `measure` other than units they are
    steps. With fewer than `least`, and none of them in another group, a group is returned with a chance below 1 in 100;
    None where that is not known.
    """

    units: float
    above: str = ""
    items: int = 0
    rank: int | None = None
    measure: Measure = DISTINCT_UNITS
    least: float | None = None

    def __str__(self) -> str:
        return f"a group needs {describe_about(self.measure, self.units)}{self.above}; {self.items} items at most"

    @classmethod
    def of_leaders(cls, offset: Fraction | int, k_bar: int, *, epsilon: float | None = None) -> Need:
        """Return the need of a group among the k_bar leaders; `epsilon` is that of its Gumbel noise, None of another.

        The noise of a group less that of BOTTOM is logistic.
        """
        least = None if epsilon is None else float(offset) - _LOGISTIC / epsilon
        return cls(float(offset), f" above group number {k_bar + 1}", rank=k_bar + 1, least=least)

    @classmethod
    def of_count(cls, count: int, *, variance: Fraction) -> Need:
        """Return the need of a group whose count must reach a threshold with discrete Gaussian noise."""
        return cls(float(count), least=count - _reach_of_noise(variance))

    @classmethod
    def of_weight(cls, weight: float, bound: int, *, request: MechanismRequest, variance: Fraction) -> Need:
        """Return how many units give a group a weight, in steps, if each is in as many groups as is typical."""
        groups, query, width = assume_groups_per_unit(bound), request.query, request.rank_width / WEIGHT_STEPS
        if query.key_values and query.partitions is None:
            groups = min(groups, query.key_values)
        among = "" if groups == 1 else f", if each is in {groups} groups"
        return cls(width * weight * math.sqrt(groups), among, least=width * (weight - _reach_of_noise(variance)))


def _reach_of_noise(variance: Fraction) -> float:
    """Return what discrete Gaussian noise exceeds with a chance below 1 in 100.

    A mass at n is at most the mean of the density on [n - 1, n], so that one more than for continuous noise is enough.
    """
    return _NORMAL * math.sqrt(variance) + 1


def assume_groups_per_unit(bound: int) -> int:
    """Return in how many groups a unit is taken to be under a bound, where nothing is known of it."""
    return min(math.ceil(bound / 2), _TYPICAL)


def describe_about(measure: Measure, steps: float, *, units: str = "units") -> str:
    """Return about how much of a measure a group needs."""
    value = f"{float(steps) * float(1 if measure.bounds is None else measure.bounds.step):,.0f}"
    match measure.aggregate:
        case Aggregate.UNITS:
            return f"about {value} {units}"
        case Aggregate.ROWS:
            return f"about {value} rows"
        case Aggregate.ITEMS:
            return f"about {value} different values"
        case Aggregate.SUM:
            return f"a sum of about {value}"


def find_epsilon_within(left: BudgetVector, items: int) -> Fraction:
    """Return an epsilon at which all items fit into what is left; 0 where an item's price does not depend on it."""
    match left.certificate:
        case Certificate.zcdp:
            return sqrt_rounded_down(8 * left.refundable / items)
        case Certificate.pure:
            return left.refundable / items
        case Certificate.theorem2 | Certificate.optimal:
            return Fraction(0)


EVERY_CERTIFICATE = frozenset(Certificate)  # proved for every certificate (`maths.md` 6.3); nothing else enters
_ZCDP = frozenset([Certificate.zcdp])


class QueryKind(Enum):
    """Among which groups a query asks for its answer."""

    UNKNOWN = "TOP k of all groups that there are"
    KNOWN = "TOP k of the candidates of a domain"
    ADAPTIVE = "TOP ADAPTIVE"
    ALL = "ALL PRIVATE, or a total"


class Reads(Enum):
    """Which groups the engine returns to a mechanism."""

    LEADERS = "the first k_bar + 1 groups"
    GROUPS = "all groups that there are"
    CANDIDATES = "the candidates of the domain"


class PerPartition(Enum):
    """How a mechanism answers PER."""

    EACH = "one run for each partition"
    CUT = "one release of all groups, cut to the first k of each partition"


class Auto(Enum):
    """For which queries AUTO may choose a mechanism."""

    NEVER = "none: it is there to be named, and to be compared with"
    UNITS = "those that count users alone"
    ALWAYS = "all that it can answer"


def price_by_item(request: MechanismRequest) -> ItemLoss:
    """Return the price of one item for each key and count."""
    return request.price


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanism:
    """What a mechanism can do, what it costs and what it needs, and how it is planned.

    `plan` returns the plan of a query, with the `price`; both raise `Refusal` where the mechanism cannot answer. `need`
    predicts how many units a group needs; without it the mechanism is not compared with others. `reach` returns two
    numbers between which this need is, for less arithmetic. `spread` is the standard deviation of the noise that orders
    known names, and `evidence` what such a name needs; a mechanism without `spread` does not answer over known names.
    `takes_names` is the least number of known names for each key from which it is considered.

    `theorem` is the class whose docstring states the loss, and `law` names the distribution of its output for the tests
    of that loss. `weighs` says that it ranks by weights, with a bound of its own where there is none: by what is a sum
    over units, which a number of different values is not. Counts are drawn after the choice, and may share one noisy
    total, with `draws_after`. `replaces` names mechanisms that are parts of it and never chosen beside it. Where
    candidates times k are above `most_simulated`, it takes too long for EXPLAIN to try it. `options` are those it takes
    of the options that only some mechanisms take, and `why` is what EXPLAIN says where AUTO chose it.
    """

    name: str
    kind: QueryKind
    theorem: type
    law: str
    plan: Callable[[MechanismRequest], MechanismPlan]
    price: Callable[[MechanismRequest], ItemLoss] = price_by_item
    need: Callable[[MechanismRequest], Need | None] | None = None
    reach: Callable[[MechanismRequest], tuple[float, float]] | None = None
    spread: Callable[[MechanismRequest], float] | None = None
    evidence: Callable[[MechanismRequest], float | None] | None = None
    takes_names: int = 1
    reads: Reads
    weighs: bool = False
    draws_after: bool = True
    per_partition: PerPartition | None = None
    certificates: frozenset[Certificate] = _ZCDP
    options: frozenset[str] = frozenset()
    auto: Auto = Auto.NEVER
    replaces: tuple[str, ...] = ()
    most_simulated: int | None = None
    why: str = ""
