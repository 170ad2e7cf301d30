"""The mechanisms that a query can name, and the choice for queries without one: that of the least price and need.

Only public numbers decide, and nothing is planned to compare: the price and the need of a mechanism are arithmetic on
the request. The price is compared first, and then the need: the number of units at which a group has an even chance to
be returned (`record.py`).

Where units are counted two looks answer if they can: noisy sums, which are released, say which of four mechanisms has
most to return of this data. Where they cannot, as with PER or `min_units`, and where rows or sums are measured, the
limited domain, the Gaussian histogram or the weighted Gaussian answers, whichever needs fewest units: to weigh rows
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
from typing import NamedTuple

from dpsql.errors import Refusal
from dpsql.plan.mechanisms.candidates import JOINT, KNOWN_GROUPS, PEELING
from dpsql.plan.mechanisms.gaussian_histogram import DOMAIN_DISCOVERY, GAUSSIAN_HISTOGRAM, WEIGHTED_GAUSSIAN
from dpsql.plan.mechanisms.leaders import ADAPTIVE, LAPLACE_LIMITED_DOMAIN, LIMITED_DOMAIN, STABLE, TOP_STABLE
from dpsql.plan.mechanisms.record import (
    Auto,
    Candidate,
    Mechanism,
    MechanismRequest,
    QueryKind,
    check_partitions,
    count_items,
    predict,
)
from dpsql.plan.mechanisms.rows_fetched import is_within_rows
from dpsql.plan.mechanisms.two_looks import TWO_LOOKS

Adapt = Callable[[Mechanism], MechanismRequest]
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


def list_records(*kinds: QueryKind) -> list[Mechanism]:
    """Return the mechanisms for queries of one of these kinds, in their order; without kinds all of them."""
    return [each for each in RECORDS if not kinds or each.kind in kinds]


def list_mechanism_names() -> tuple[str, ...]:
    """Return the values of the option `mechanism`."""
    return ("auto", *(each.name for each in list_records(QueryKind.UNKNOWN, QueryKind.KNOWN)))


def predict_candidates(mechanisms: Iterable[Mechanism], adapt: Adapt) -> tuple[Candidate, ...]:
    """Return those of the mechanisms that can answer the query, with what is predicted of them, in their order."""
    found = []
    for each in mechanisms:
        try:
            request = adapt(each)
            need = predict(each, request)
        except Refusal:  # it does not go with the query's options, or with the policy's
            continue
        if need is not None and is_within_rows(each.reads, request):
            found.append(Candidate(each, request, need))
    return tuple(found)


def take_cheapest(found: Iterable[Candidate]) -> Candidate | None:
    """Return the first of those that cost least and, among these, need the fewest units; None of none.

    Others than AUTO may choose are there to be compared with, and never the best; so are the parts of another.
    """
    chosen = {each.name: each for each in found if each.mechanism.auto is not Auto.NEVER}
    for each in list(chosen.values()):
        for name in each.mechanism.replaces:
            chosen.pop(name, None)
    return min(chosen.values(), key=lambda each: (each.prediction.items, each.prediction.units), default=None)


class _Rival(NamedTuple):
    """A mechanism that can answer, for so many items at most, with two numbers between which its need is."""

    mechanism: Mechanism
    items: int
    low: float
    high: float


def choose(mechanisms: Sequence[Mechanism], adapt: Adapt) -> Mechanism | None:
    """Return the mechanism that `take_cheapest` returns of all that AUTO may choose; None if none can answer."""
    rivals, replaced = list[_Rival](), set[str]()
    # Those that replace others come first, so that the replaced ones are not computed. `_choose_among` has the old
    # order.
    for each in sorted(mechanisms, key=lambda each: not each.replaces):
        if each.name in replaced:
            continue
        try:
            request = adapt(each)
            check_partitions(each, request)
            if each.reach is not None:
                low, high = each.reach(request)
            elif (need := predict(each, request)) is not None:
                low = high = need.units
            else:
                continue
        except Refusal:
            continue
        if is_within_rows(each.reads, request):
            rivals.append(_Rival(each, count_items(each, request), low, high))
            replaced.update(each.replaces)
    if len(rivals) > 1:
        return _choose_among(sorted(rivals, key=lambda each: mechanisms.index(each.mechanism)), adapt)
    return rivals[0].mechanism if rivals else None


def _choose_among(rivals: Sequence[_Rival], adapt: Adapt) -> Mechanism | None:
    """Return the mechanism of the least price and, of that, of the least need.

    Most needs are known well enough to tell which is the least, so that they are not computed: one that surely needs
    least, by the ends of its reach alone, is chosen at once.
    """
    least = min(each.items for each in rivals)
    rivals = [each for each in rivals if each.items == least]
    for at, rival in enumerate(rivals):  # of equal needs the first wins
        before, after = rivals[:at], rivals[at + 1 :]
        if all(rival.high < other.low for other in before) and all(rival.high <= other.low for other in after):
            return rival.mechanism
    best = take_cheapest(predict_candidates((each.mechanism for each in rivals), adapt))
    return None if best is None else best.mechanism


def choose_over_names(mechanisms: Iterable[Mechanism], adapt: Adapt, *, k: int, known: int) -> Mechanism | None:
    """Return the mechanism that finds known names with the least noise, of those at the lowest price; None for no one.

    `known` names are known from earlier answers.
    """
    found: dict[tuple[int, float], Mechanism] = {}
    for each in sorted(mechanisms, key=lambda each: not each.weighs):  # of equal noise, that of weights
        if each.spread is None or known < each.takes_names * k:
            continue
        try:
            request = adapt(each)
            cost = each.price(request).items(k), each.spread(request)
            check_partitions(each, request)
        except Refusal:  # it does not go with the query's options, or with the policy's
            continue
        if is_within_rows(each.reads, request):
            found.setdefault(cost, each)
    return found[min(found)] if found else None
