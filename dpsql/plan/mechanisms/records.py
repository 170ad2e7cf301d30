"""The mechanisms that a query can name, and the choice for queries without one: that of the least price and need.

Only public numbers decide, and nothing is planned to compare: the price and the need of a mechanism are arithmetic on
the request. The price is compared first, and then the need: the number of units at which a group has an even chance to
be returned (`record.py`).

For small k the relay answers where it can: its first leg is a limited domain, which ranks by counts and charges for
what it returns, and its second leg finds by their weights groups that the first cannot see. Where it cannot, as with
PER or `min_units`, the limited domain answers alone, and so it does where rows or sums are measured: to weigh these
takes about three times as long as to count users (`benchmarks run dashboard`). The `population` of a policy decides
nothing: population / k says too little of the k-th count of skewed data.

Where k names or more are known from earlier answers, only mechanisms that ask no threshold of them are compared.
Weighted Gaussian and Gaussian histogram return known names above a line that is lower than their threshold, or however
few units they have with known = all, and others above their threshold. Peeling chooses among the known names alone,
with less noise if k is small, and misses any other name; it is considered from 5 k known names on, since k names that
were released for another filter are not the first of this one. What is compared is the price and then the standard
deviation of the noise, in units, that decides the order of the names. `benchmarks/released.py` prints the recall that
these choices give.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from dpsql.errors import Refusal
from dpsql.plan.mechanisms.base import MechanismPlan
from dpsql.plan.mechanisms.gaussian_histogram import DOMAIN_DISCOVERY, GAUSSIAN_HISTOGRAM, WEIGHTED_GAUSSIAN
from dpsql.plan.mechanisms.joint import JOINT
from dpsql.plan.mechanisms.known_groups import KNOWN_GROUPS
from dpsql.plan.mechanisms.limited_domain import LAPLACE_LIMITED_DOMAIN, LIMITED_DOMAIN
from dpsql.plan.mechanisms.peeling import PEELING
from dpsql.plan.mechanisms.per_partition import check_partitions, plan_request
from dpsql.plan.mechanisms.record import Auto, Domain, Mechanism, MechanismRequest, Need
from dpsql.plan.mechanisms.rows_fetched import is_within_rows
from dpsql.plan.mechanisms.stable import ADAPTIVE, STABLE, TOP_STABLE
from dpsql.plan.mechanisms.two_looks import TWO_LOOKS
from dpsql.sql.ir.statements import LiteralDomain

Fit = Callable[[Mechanism], MechanismRequest]
RECORDS = (  # in the order in which they are listed and, of equal ones, chosen
    LIMITED_DOMAIN,
    TWO_LOOKS,
    GAUSSIAN_HISTOGRAM,
    LAPLACE_LIMITED_DOMAIN,
    WEIGHTED_GAUSSIAN,
    DOMAIN_DISCOVERY,
    STABLE,
    TOP_STABLE,
    PEELING,
    JOINT,
    ADAPTIVE,
    KNOWN_GROUPS,
)


def list_records(*domains: Domain) -> list[Mechanism]:
    """Return the mechanisms for queries of one of these domains, in their order; without domains all of them."""
    return [each for each in RECORDS if not domains or each.domain in domains]


def list_names() -> tuple[str, ...]:
    """Return the values of the option `mechanism`."""
    return ("auto", *(each.name for each in list_records(Domain.UNKNOWN, Domain.KNOWN)))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A mechanism that could answer a query, with what is predicted, or simulated, of it."""

    mechanism: Mechanism
    request: MechanismRequest = field(compare=False)
    prediction: Need
    recall: float | None = None

    @property
    def name(self) -> str:
        """The mechanism's name in SQL."""
        return self.mechanism.name

    @property
    def mechanism_plan(self) -> MechanismPlan:
        """The plan of the query with this mechanism."""
        return plan_request(self.mechanism, self.request)

    def __str__(self) -> str:
        told = "" if self.recall is None else f"; finds {self.recall:.2f} of the top k if the counts are as assumed"
        return f"{self.prediction}{told}"


def predict(mechanism: Mechanism, request: MechanismRequest) -> Need | None:
    """Return what a group needs, with the price; None for a mechanism whose answers are of another kind.

    Raises `Refusal` where the mechanism cannot answer.
    """
    need = None if mechanism.need is None else mechanism.need(request)
    if need is None:
        return None
    check_partitions(mechanism, request)
    return replace(need, items=_count_items(mechanism, request), measure=request.query.measures[0])


def _count_items(mechanism: Mechanism, request: MechanismRequest) -> int:
    """Return how many items the query costs at most."""
    k, domain = request.query.clause.k or 0, request.query.domain
    k = min(k, len(domain.values)) if isinstance(domain, LiteralDomain) else k
    return mechanism.price(request).items(k) * request.charged


def compare(mechanisms: Iterable[Mechanism], fit: Fit) -> tuple[Candidate, ...]:
    """Return those of the mechanisms that can answer the query, with what is predicted of them, in their order."""
    found = []
    for each in mechanisms:
        try:
            request = fit(each)
            need = predict(each, request)
        except Refusal:  # it does not go with the query's options, or with the policy's
            continue
        if need is not None and is_within_rows(each.reads, request):
            found.append(Candidate(each, request, need))
    return tuple(found)


def choose_candidate(found: Iterable[Candidate]) -> Candidate | None:
    """Return the first of those that cost least and, among these, need the fewest units; None of none.

    Others than AUTO may choose are there to be compared with, and never the best; so are the parts of another.
    """
    chosen = {each.name: each for each in found if each.mechanism.auto is not Auto.NEVER}
    for each in list(chosen.values()):
        for name in each.mechanism.replaces:
            chosen.pop(name, None)
    return min(chosen.values(), key=lambda each: (each.prediction.items, each.prediction.units), default=None)


def choose(mechanisms: Sequence[Mechanism], fit: Fit) -> Mechanism | None:
    """Return the mechanism that `choose_candidate` returns of all that AUTO may choose; None if none can answer.

    Most needs are known well enough from `reach` to tell which is the least, so that they are not computed.
    """
    able: dict[str, tuple[Mechanism, int, tuple[float, float]]] = {}
    for each in sorted(mechanisms, key=lambda each: not each.replaces):
        if any(each.name in other.replaces for other, *_ in able.values()):
            continue
        try:
            request = fit(each)
            reach = _find_reach(each, request)
        except Refusal:
            continue
        if reach is not None and is_within_rows(each.reads, request):
            able[each.name] = each, _count_items(each, request), reach
    rivals = [each for each in mechanisms if each.name in able]
    least = min((items for _, items, _ in able.values()), default=0)
    rivals = [each for each in rivals if able[each.name][1] == least]
    for at, each in enumerate(rivals):  # of equal needs the first wins
        _, most = able[each.name][2]
        before, after = ([able[other.name][2][0] for other in part] for part in (rivals[:at], rivals[at + 1 :]))
        if all(most < low for low in before) and all(most <= low for low in after):
            return each
    best = choose_candidate(compare(rivals, fit))
    return None if best is None else best.mechanism


def _find_reach(mechanism: Mechanism, request: MechanismRequest) -> tuple[float, float] | None:
    """Return between which numbers the need of a mechanism is; None where nothing is predicted."""
    if mechanism.reach is not None:
        check_partitions(mechanism, request)
        return mechanism.reach(request)
    need = predict(mechanism, request)
    return None if need is None else (need.units, need.units)


def choose_over_names(mechanisms: Iterable[Mechanism], fit: Fit, *, k: int, known: int) -> Mechanism | None:
    """Return the mechanism that finds known names with the least noise, of those at the lowest price; None for no one.

    `known` names are known from earlier answers.
    """
    found: dict[tuple[int, float], Mechanism] = {}
    for each in sorted(mechanisms, key=lambda each: not each.weighs):  # of equal noise, that of weights
        if each.spread is None or known < each.takes_names * k:
            continue
        try:
            request = fit(each)
            cost = each.price(request).items(k), each.spread(request)
            check_partitions(each, request)
        except Refusal:  # it does not go with the query's options, or with the policy's
            continue
        if is_within_rows(each.reads, request):
            found.setdefault(cost, each)
    return found[min(found)] if found else None
