"""The record of a mechanism: all that the planner, AUTO, EXPLAIN, completion and the documentation know of it.

Each mechanism declares its own, beside its plan; `records.py` lists them. What is not in the record of a mechanism is
not known of it anywhere else: no other module compares names or classes of mechanisms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from dpsql.accounting import Certificate
from dpsql.plan.mechanisms.base import ItemLoss, MechanismPlan
from dpsql.plan.mechanisms.need import Need
from dpsql.plan.mechanisms.request import MechanismRequest

EVERY_CERTIFICATE = frozenset(Certificate)  # proved for every certificate (`maths.md` 6.3); nothing else enters
_ZCDP = frozenset([Certificate.zcdp])


class Domain(Enum):
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
    of that loss. `weighs` says that it ranks by weights, with a bound of its own where there is none. Counts are drawn
    after the choice, and may share one noisy total, with `draws_after`. `replaces` names a mechanism that is its first
    part and never better beside it; where candidates times k are above `most_simulated`, it takes too long for EXPLAIN
    to try it. `options` are those it takes of the options that only some mechanisms take, and
    `why` is what EXPLAIN says where AUTO chose it.
    """

    name: str
    domain: Domain
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
    replaces: str = ""
    most_simulated: int | None = None
    why: str = ""
