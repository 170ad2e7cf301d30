"""The record of a mechanism, the request that it reads, and what it needs to return a group.

The record is all that the planner, AUTO, EXPLAIN, completion and the documentation know of a mechanism. Each mechanism
declares its own, beside its plan; `choice.py` lists them. No other module compares names or classes of mechanisms, but
`identity/replay_key.py` and `identity/stored_release.py`, which know what earlier versions chose among.

The request is a query with the session's terms: its options within the policy's limits, the price of items, and the
bound. A `Need` predicts with how many units a group has an even chance to be returned. Only public numbers decide: k,
the bound, the domain, epsilon and delta. Where the ranking is by rows or by a sum, the need is in steps of that, which
changes all mechanisms alike. The prediction replaces the data by fixed guesses:

* the threshold of a limited domain is above the count of group k_bar + 1, which is taken as 0;
* with weights, a unit is in half as many groups as the bound allows, and in at most 40, so that its weight is
  1 / sqrt(t). With 40 the mechanisms change places at about k = 11. In the logs that `benchmarks/recall.py` reads, most
  units have fewer groups and some have larger weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from fractions import Fraction
from functools import wraps
from typing import TypeVar

from dpsql.accounting import BudgetVector, Certificate
from dpsql.errors import Place, Refusal, UsageError
from dpsql.mechanisms import WEIGHT_STEPS
from dpsql.plan.mechanisms.base import ItemLoss, MechanismPlan, sqrt_rounded_down
from dpsql.quantities import Delta
from dpsql.sql.ir.measures import DISTINCT_UNITS, Aggregate, Measure
from dpsql.sql.ir.statements import LiteralDomain, PrivateQuery, ReleasedDomain, count_groups
from dpsql.terms import Terms, read_number, read_whole_number

K_BAR_PER_K = 20  # few leaders make a high threshold; reading more costs little more
MOST_CHOSEN = 50  # with counts, half of what a budget holds by default
MOST_GROUPS = 1_000_000
OWN_CAP = 100  # groups of each unit that are weighed: more raise the threshold, fewer lose what heavy units add
LEAST_DELTA = Fraction(1, 10**30)  # beyond any use, and short enough for the ledger to keep sums of it exactly
_CANDIDATES = 1_000  # of a domain whose size only the database knows
_TYPICAL = 40  # groups of a unit without a bound
_NORMAL, _LOGISTIC = 2.3264, math.log(99)  # what noise of scale 1 exceeds with a chance of 1 in 100
EVERY_CERTIFICATE = frozenset(Certificate)  # proved for every certificate (`maths.md` 6.3); nothing else enters
_ZCDP = frozenset([Certificate.zcdp])
Chosen = TypeVar("Chosen")


@dataclass(frozen=True, slots=True)
class MechanismRequest:
    """A query, the session's terms, the price of items, and the bound on the groups of each unit, None without one.

    The policy wants at least `min_units` units in a group, the most of any table in the query, 1 without any.
    `own_cap` says that the bound is the mechanism's own, OWN_CAP, since neither policy nor query has one; it limits
    weights alone, and the price is without it. The query's delta is spread over `runs` runs of the mechanism, and the
    losses of the `charged` of them that cost most add up. Terms and query are public, and no row is read for any of it.
    """

    query: PrivateQuery
    terms: Terms
    price: ItemLoss
    max_groups_contributed: int | None
    min_units: int
    own_cap: bool = False
    runs: int = 1
    charged: int = 1

    @property
    def k(self) -> int:
        """Number of keys; with ADAPTIVE, the largest number that can be returned: k_bar, or 50, within the limits."""
        if self.query.clause.k is not None:
            return self.query.clause.k
        most = min(self.terms.limits.max_k, self.max_k_bar)
        return self._read_k_bar(1, most) or min(max(MOST_CHOSEN, 2 * (self.prefer or 0)), most)

    @property
    def delta(self) -> Delta:
        """Delta of one run: that of the query or the default of the session, spread over the runs."""
        terms, option = self.terms, self.query.clause.options.get("delta")
        most = terms.pool.value if terms.limits.max_delta is None else terms.limits.max_delta.value
        default = min(terms.delta.value, most)
        if option is None:
            return Delta(default / self.runs)
        # A default below the least delta may be written out, too.
        value = read_number(option, "delta", bounds=(min(LEAST_DELTA, default), most))
        fixed = terms.certified.delta
        if fixed is not None and value != fixed.value:
            name = terms.certificate.value
            reason = f"Under the certificate {name} every query of an unknown domain has delta {fixed}."
            raise Refusal("certificate", reason, hint="Leave delta out.", place=option.place)
        return Delta(value / self.runs)

    @property
    def k_bar(self) -> int:
        """Number of exact leaders to read: that of the query, or 20 k, within the limit."""
        k = self.k
        if self.query.clause.k is None:
            return k
        most = self.max_k_bar
        return self._read_k_bar(k, most) or max(k, min(K_BAR_PER_K * k, most))

    @property
    def max_k_bar(self) -> int:
        """Largest k_bar within the limits; with partitions, such that the rows of all of them are within.

        At least k: what is too much even so is refused with the number of rows.
        """
        limits, partitions = self.terms.limits, self.query.partitions
        if limits.max_rows_fetched is None or partitions is None:
            return limits.most_k_bar
        # Each partition reads k_bar + 1 rows.
        each = limits.max_rows_fetched // len(partitions.values) - 1
        return min(limits.max_k_bar, max(each, self.query.clause.k or 1))

    def _read_k_bar(self, least: int, most: int) -> int | None:
        """Return the option k_bar, which is to be a number here."""
        option = self.query.clause.options.get("k_bar")
        if option is not None and self.leaves_k_bar:
            hint = "Write a number, or leave it out."
            raise Refusal("option", "k_bar = AUTO is for limited_domain.", hint=hint, place=option.place)
        return read_whole_number(option, "k_bar", bounds=(least, most))

    @property
    def leaves_k_bar(self) -> bool:
        """Whether the query leaves k_bar to a private choice."""
        option = self.query.clause.options.get("k_bar")
        return option is not None and option.word and option.value == "auto"

    @property
    def prefer(self) -> int | None:
        """The k that a private choice of k is drawn to; None where the query says nothing."""
        option = self.query.clause.options.get("prefer")
        return read_whole_number(option, "prefer", bounds=(1, self.terms.limits.max_k))

    @property
    def penalty(self) -> Fraction:
        """Penalty, in units of a gap, for each rank away from the preferred k: `rank_width` / epsilon."""
        return self.rank_width / self.price.epsilon.value

    @property
    def rank_width(self) -> int:
        """Most steps by which one unit changes the measure that ranks, or by which its changes of two groups differ.

        Mechanisms call it their `sensitivity`.
        """
        return self.query.measures[0].width

    @property
    def known(self) -> int:
        """Number of names that are known from earlier answers and take part without threshold; 0 with min_units."""
        return 0 if self.query.names is None or self.min_units > 1 else self.query.names.count

    @property
    def evident(self) -> bool:
        """Whether the known names that take part need evidence that some row has them."""
        return self.known > 0 and self.query.names is not None and self.query.names.evident

    @property
    def is_strict(self) -> bool:
        """Whether each known name needs evidence of its own (evidence = strict)."""
        option = self.query.clause.options.get("evidence")
        return option is not None and option.value == "strict"

    @property
    def place(self) -> Place:
        """Place of the mechanism in the statement, or else of the clause."""
        option = self.query.clause.options.get("mechanism")
        return self.query.clause.place if option is None else option.place

    def refuse(self, names: tuple[str, ...], *, reason: str, hint: str) -> None:
        """Refuse the first of the options that was given; `reason` speaks of it as {name}."""
        for name in names:
            if (option := self.query.clause.options.get(name)) is not None:
                raise Refusal("option", reason.format(name=name), hint=hint, place=option.place)

    def candidates(self) -> int:
        """Return how many candidates the known domain has at most, k where only the database knows; refuse the rest.

        No threshold sees to min_units there.
        """
        if self.min_units > 1:
            hint = "Leave the domain out: then a threshold sees to it."
            reason = "The policy wants groups of at least so many units here, which a known domain cannot promise."
            place = self.query.clause.options["domain"].place
            raise Refusal("min-units", reason, hint=hint, place=place)
        if self.query.domain is None or isinstance(self.query.domain, ReleasedDomain):
            if not self.known:
                hint = "Leave the domain out: the names that the query returns are known to later ones."
                reason = "No stored answer of yours has names of these keys."
                raise Refusal("domain", reason, hint=hint, place=self.place)
            return self.known
        known = count_groups(self.query.domain)
        return self.k if known is None else known

    def assume_candidates(self, k: int) -> tuple[int, str]:
        """Return how many candidates the known domain is taken to have, and the word before this number."""
        domain = self.query.domain
        if self.known:
            return self.known, "of"
        return (
            (len(domain.values), "of") if isinstance(domain, LiteralDomain) else (max(_CANDIDATES, k), "if there are")
        )

    def require_bound(self) -> int:
        """Return the bound; refuse a mechanism that needs one where there is none, or that has no min_units."""
        self.check_no_min_units()
        if self.max_groups_contributed is None:
            hint = "Add max_groups_contributed = 5, or another number, or let the policy set it for the table."
            reason = "This mechanism needs a bound on the groups of each unit."
            raise Refusal("bound", reason, hint=hint, place=self.place)
        return self.max_groups_contributed

    def check_adds_up(self) -> None:
        """Refuse a mechanism of weights where what ranks is no sum over units, as a number of different values."""
        if self.query.measures[0].aggregate is Aggregate.ITEMS:
            reason = "This mechanism weighs what each unit adds, and units can have the same values."
            hint = "Write mechanism = limited_domain, or leave the mechanism out."
            raise Refusal("option", reason, hint=hint, place=self.place)

    def check_no_min_units(self) -> None:
        """Refuse a mechanism that does not see to min_units where the policy wants them."""
        if self.min_units > 1:
            fix = "Give a number: TOP 10 PRIVATE" if self.query.clause.is_adaptive else "Leave the mechanism out"
            hint = f"{fix}: limited_domain sees to it."
            reason = "The policy wants groups of at least so many units here, which this mechanism does not promise."
            raise Refusal("min-units", reason, hint=hint, place=self.place)


def refuse_out_of_range(choose: Callable[[MechanismRequest], Chosen]) -> Callable[[MechanismRequest], Chosen]:
    """Return the function with a `Refusal` for parameters that the mechanism does not take."""

    @wraps(choose)
    def choose_within(request: MechanismRequest) -> Chosen:
        try:
            return choose(request)
        except UsageError as error:
            reason = error.reason
        hint = "Ask for another k, epsilon or max_groups_contributed."
        raise Refusal("option-range", reason, hint=hint, place=request.place)

    return choose_within


@dataclass(frozen=True, slots=True)
class Need:
    """With how many units a group has an even chance to be returned, above what, and for how many items at most.

    The units are above those of the group at `rank`; above 0 if that is None. Of a `measure` other than units they are
    steps. With fewer than `least`, and none of them in another group, a group is returned with a chance below 1 in 100;
    None where that is not known. Where weights decide, `span` has how many units are enough if they are in no other
    group, and if each is in as many as the bound allows, these above the group at the rank beside them.
    """

    units: float
    above: str = ""
    items: int = 0
    rank: int | None = None
    measure: Measure = DISTINCT_UNITS
    least: float | None = None
    span: tuple[float, float, int | None] | None = None

    def __str__(self) -> str:
        needed = describe_amount(self.measure, self.units, about="about ")
        return f"a group needs {needed}{self.above}; {self.items} items at most"

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
        among = "" if groups == 1 else f", if each unit is in {groups} groups"
        alone, most = (
            width * weight,
            bound if not query.key_values or query.partitions else min(bound, query.key_values),
        )
        span = (alone, alone * math.sqrt(most), None) if most > 1 else None
        least = width * (weight - _reach_of_noise(variance))
        return cls(alone * math.sqrt(groups), among, least=least, span=span)


def _reach_of_noise(variance: Fraction) -> float:
    """Return what discrete Gaussian noise exceeds with a chance below 1 in 100.

    A mass at n is at most the mean of the density on [n - 1, n], so that one more than for continuous noise is enough.
    """
    return _NORMAL * math.sqrt(variance) + 1


def assume_groups_per_unit(bound: int) -> int:
    """Return in how many groups a unit is taken to be under a bound, where nothing is known of it."""
    return min(math.ceil(bound / 2), _TYPICAL)


def describe_amount(measure: Measure, steps: Fraction | float, *, about: str = "", units: str = "units") -> str:
    """Return a number of steps of a measure as its value, or `about` that: so many units, rows, or so much of a sum.

    A whole number of units or rows that is given as an int is written as one.
    """
    value = float(steps) * float(1 if measure.bounds is None else measure.bounds.step)
    is_sum = measure.aggregate is Aggregate.SUM
    number = f"{value:,.0f}" if about or (isinstance(steps, int) and not is_sum) else f"{value:.1f}"
    if is_sum:
        return f"a sum of {about}{number}"
    words = {Aggregate.UNITS: units, Aggregate.ROWS: "rows", Aggregate.ITEMS: "different values"}
    return f"{about}{number} {words[measure.aggregate]}"


def find_epsilon_within(left: BudgetVector, items: int) -> Fraction:
    """Return an epsilon at which all items fit into what is left; 0 where an item's price does not depend on it."""
    match left.certificate:
        case Certificate.zcdp:
            return sqrt_rounded_down(8 * left.refundable / items)
        case Certificate.pure:
            return left.refundable / items
        case Certificate.theorem2 | Certificate.optimal:
            return Fraction(0)


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


def check_partitions(mechanism: Mechanism, request: MechanismRequest) -> None:
    """Refuse a mechanism that does not go with PER, and counts that it would draw after a release of all groups."""
    if request.query.partitions is None or mechanism.per_partition is PerPartition.EACH:
        return
    if mechanism.per_partition is None:
        hint = "Leave the mechanism out, or take another."
        raise Refusal("option", "This mechanism does not go with PER.", hint=hint, place=request.place)
    if request.price.others:
        hint = "Leave the mechanism out, or select one measure alone."
        reason = "With PER this mechanism releases no further measure: the price would grow with the groups that pass."
        raise Refusal("option", reason, hint=hint, place=request.place)
    if mechanism.draws_after and request.price.counts is not None:
        ranks_units = request.query.measures[0].bounds is None
        out = "Leave the count out" if ranks_units else "Leave the mechanism out"  # a sum that ranks is selected
        hint = f"{out}, or write mechanism = gaussian_histogram, which needs a bound."
        raise Refusal("option", "With PER this mechanism releases names alone.", hint=hint, place=request.place)


def predict(mechanism: Mechanism, request: MechanismRequest) -> Need | None:
    """Return what a group needs, with the price; None for a mechanism whose answers are of another kind.

    Raises `Refusal` where the mechanism cannot answer.
    """
    need = None if mechanism.need is None else mechanism.need(request)
    if need is None:
        return None
    check_partitions(mechanism, request)
    return replace(need, items=count_items(mechanism, request), measure=request.query.measures[0])


def count_items(mechanism: Mechanism, request: MechanismRequest) -> int:
    """Return how many items the query costs at most."""
    k, domain = request.query.clause.k or 0, request.query.domain
    k = min(k, len(domain.values)) if isinstance(domain, LiteralDomain) else k
    return mechanism.price(request).items(k) * request.charged


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

    def __str__(self) -> str:
        told = "" if self.recall is None else f"; finds {self.recall:.2f} of the top k if the counts are as assumed"
        return f"{self.prediction}{told}"
