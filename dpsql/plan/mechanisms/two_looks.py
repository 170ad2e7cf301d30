"""Two looks: what most queries of an unknown domain get that count units and name no mechanism.

The first look, and the limited domain, need the first k_bar + 1 groups alone. All groups, with their weights, are read
only where the first look did not settle it: what decides that is released, so that the second statement tells nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, partial

from dpsql.accounting import ZCDP, Loss
from dpsql.dialects import DUCKDB
from dpsql.errors import Refusal
from dpsql.mechanisms import FullHistogram, Histogram, Noise, Selection
from dpsql.mechanisms.gate import LOOK_SHARE
from dpsql.mechanisms.two_looks import Answerer, TwoLooks
from dpsql.plan.mechanisms.base import (
    CountNoise,
    Facts,
    Groups,
    MechanismOutput,
    MechanismPlan,
    PrefixLaw,
    ReadAgain,
    ReleaseSpec,
    SpecReport,
)
from dpsql.plan.mechanisms.draws import charge_and_draw_counts, charge_and_draw_others
from dpsql.plan.mechanisms.record import (
    Auto,
    Mechanism,
    MechanismRequest,
    Need,
    QueryKind,
    Reads,
    describe_amount,
    refuse_out_of_range,
)
from dpsql.plan.mechanisms.rows_fetched import OWN, compute_threshold, read_leaders, read_weights
from dpsql.quantities import Delta
from dpsql.sql.ir.measures import Aggregate
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.rewrite.engine_query import Bound

LEAST_K_BAR = 1_000  # more leaders than 20 k cost next to nothing to read, and the group after them is smaller


@dataclass(frozen=True, slots=True)
class TwoLooksPlan(MechanismPlan):
    """Two looks, the mechanism that they choose, and then counts by the item.

    `own_cap` says that neither policy nor query bounds the groups of each unit, but the mechanism, and for weights
    alone.
    """

    selection: TwoLooks
    own_cap: bool

    @property
    def release_identity(self) -> tuple[object, object]:
        return self.selection, (self.price, self.own_cap)

    def specify(self, query: PrivateQuery, bound: Bound | None) -> ReleaseSpec:
        looks, price = self.selection, self.price
        build_second = partial(read_weights, query, looks, bound=bound, own_cap=self.own_cap)
        if query.dialect is not DUCKDB:  # an engine elsewhere may not be able to weigh: it refuses here
            _ = build_second()
        return ReleaseSpec(
            k=looks.k,
            worst_case=price.loss(price.items(looks.k), looks.delta),
            rows=read_leaders(query, None if self.own_cap else bound, k_bar=looks.k_bar),
            build_second=build_second,
            counts=CountNoise.of(price.counts),
            report=SpecReport(
                charged="charged: the looks, and what answers after them",
                k_bar=looks.k_bar,
                threshold_offset=looks.leaders(Answerer.AT_ONCE).threshold_offset,
                cap=OWN if self.own_cap else "",
            ),
        )

    @property
    def loss_of_half(self) -> Loss:  # of the limited domain at once: the others would have been charged in full
        looks, returned = self.selection, math.ceil(self.selection.k / 2)
        stopped = Selection(tuple(range(returned)), stopped_at_bottom=returned < looks.k)
        keys = looks.loss(Answerer.AT_ONCE, looks.leaders(Answerer.AT_ONCE).loss(stopped))
        return keys + ZCDP(self.price.rho(self.price.count_items(returned)), Delta(0))

    def describe(self, query: PrivateQuery) -> Facts:
        looks, opens = self.selection, self.selection.open_probability
        offset, share = looks.leaders(Answerer.AT_ONCE).threshold_offset, 2 * LOOK_SHARE
        nothing = looks.k * (share + opens * (1 - share)) + (1 - share) * (1 - opens)
        weight = float(compute_threshold(looks.weighted))
        return (
            ("k_bar", str(looks.k_bar)),
            ("first look", f"at counts: how many of {looks.k} are far above group number {looks.k_bar + 1}"),
            ("threshold", f"{describe_amount(query.measures[0], offset)} above group number {looks.k_bar + 1}"),
            ("second look", f"at weights, if the first settled nothing; a group needs a noisy weight of {weight:.1f}"),
            ("if nothing stands out", f"about {float(nothing):.1f} of {looks.k} items are charged"),
        )

    def begin(self, groups: Groups, noise: Noise) -> MechanismOutput | ReadAgain:
        looks = self.selection
        leaders = Histogram.of_leaders(tuple(groups.counts[: looks.k_bar + 1].tolist()), looks.k_bar)
        seen = looks.look_at_counts(leaders, noise)
        if looks.choose(seen) is None:
            # What the second statement adds is kept apart from `first`: a limited domain answers from the counts of the
            # first look.
            return ReadAgain(partial(self._finish, first=groups, leaders=leaders, seen=seen))
        return self._answer_by_counts(
            groups, leaders, answerer=Answerer.AT_ONCE, noise=noise, looked=_describe(looks, seen)
        )

    def draw(self, groups: Groups, noise: Noise) -> MechanismOutput:
        begun = self.begin(groups, noise)
        return begun.resume(groups, noise) if isinstance(begun, ReadAgain) else begun

    def _finish(
        self, groups: Groups, noise: Noise, *, first: Groups, leaders: Histogram, seen: Fraction
    ) -> MechanismOutput:
        """Take the second look at all groups, and answer from them, or from the leaders that were read first."""
        looks, weights = self.selection, FullHistogram(groups.weights, groups.read)
        second = looks.look_at_weights(groups.weights, noise)
        answerer, looked = looks.choose(seen, second), _describe(looks, seen)
        looked += f"; by weights {'something' if second >= looks.height else 'nothing'} does"
        match answerer:
            case Answerer.WEIGHTS:
                rows = looks.weighted.release(weights, noise).positions
                loss = looks.weighted.loss
            case Answerer.HISTOGRAM:
                histogram = looks.histogram
                drawn = histogram.release(FullHistogram(groups.counts), noise)
                loss = looks.loss(answerer, histogram.loss)
                items = self.price.joint_items(looks.k)
                noises = CountNoise(histogram.variance), *map(CountNoise.of_release, self.price.others)
                keys = MechanismOutput(
                    drawn.positions,
                    drawn.counts,
                    loss,
                    items,
                    stopped_at_bottom=len(drawn.positions) < looks.k,
                    legs=f"{looked}; {answerer.value}: {len(drawn.positions)}",
                    noises=noises,
                    of_second_read=True,
                    prefix=PrefixLaw.OTHER,
                )
                return charge_and_draw_others(keys, groups, price=self.price, noise=noise)
            case Answerer.DISCOVERY:
                discovery = looks.discovery
                found = discovery.select(weights, FullHistogram(groups.counts), noise=noise)
                rows, loss = found.positions, discovery.loss(found)
            case _:
                return self._answer_by_counts(first, leaders, answerer=Answerer.LEADERS, noise=noise, looked=looked)
        keys = MechanismOutput(
            rows,
            None,
            looks.loss(answerer, loss),
            math.ceil(looks.items(answerer, loss)),
            stopped_at_bottom=len(rows) < looks.k,
            legs=f"{looked}; {answerer.value}: {len(rows)}",
            prefix=PrefixLaw.OTHER,  # which mechanism answers depends on k
        )
        return replace(charge_and_draw_counts(keys, groups, price=self.price, noise=noise), of_second_read=True)

    def _answer_by_counts(
        self, groups: Groups, leaders: Histogram, *, answerer: Answerer, noise: Noise, looked: str
    ) -> MechanismOutput:
        looks, domain = self.selection, self.selection.leaders(answerer)
        selected = domain.select(leaders, noise)
        loss = domain.loss(selected)
        keys = MechanismOutput(
            selected.positions,
            None,
            looks.loss(answerer, loss),
            math.ceil(looks.items(answerer, loss)),
            stopped_at_bottom=selected.stopped_at_bottom,
            legs=f"{looked}; {answerer.value}: {len(selected.positions)}",
            prefix=PrefixLaw.EXACT,  # of the limited domain behind the looks, whose noise is not theirs
        )
        return charge_and_draw_counts(keys, groups, price=self.price, noise=noise)


def _describe(looks: TwoLooks, seen: Fraction) -> str:
    share = min(max(seen, Fraction(0)), Fraction(1))
    return f"by counts about {float(share * looks.k):.0f} of {looks.k} stand out"


# A plan, its need, its notes and its draw ask for the same looks, about ten times a query.
_build_looks = lru_cache(maxsize=64)(TwoLooks)


@refuse_out_of_range
def _set_parameters(request: MechanismRequest) -> TwoLooks:
    if request.query.partitions is not None:
        hint = "Write mechanism = limited_domain, or leave the mechanism out."
        raise Refusal("partitions", "The mechanism two_looks does not go with PER.", hint=hint, place=request.place)
    if request.query.measures[0].aggregate is not Aggregate.UNITS:  # the looks are for counts that a unit changes by 1
        hint = "Write mechanism = limited_domain, or leave the mechanism out."
        reason = "The mechanism two_looks ranks by numbers of users alone."
        raise Refusal("option", reason, hint=hint, place=request.place)
    bound, price, k = request.require_bound(), request.price, request.k
    looks = _build_looks(
        price.epsilon, request.delta, k, _read_k_bar(request), bound, None if request.own_cap else bound
    )
    if price.counts is None or request.own_cap:
        return looks
    # under a bound a histogram can find more with the rho of the keys and of their counts
    counts_rho = price.rho(price.joint_items(k) - price.keys(k))
    by_counts = _build_looks(looks.epsilon, looks.delta, k, looks.k_bar, bound, bound, counts_rho)
    return by_counts if by_counts.histogram.threshold < _predict_weights(looks, request).units else looks


def _read_k_bar(request: MechanismRequest) -> int:
    """Return how many leaders are read: those of the query, or 20 k and 1000 at least, within the limit."""
    if "k_bar" in request.query.clause.options:
        return request.k_bar
    return max(request.k_bar, min(LEAST_K_BAR, request.max_k_bar))


def _predict_weights(looks: TwoLooks, request: MechanismRequest) -> Need:
    weighted = looks.weighted
    return Need.of_weight(weighted.threshold, looks.weighed_groups, request=request, variance=weighted.variance)


def _predict(request: MechanismRequest) -> Need:
    """Return the lesser need of the limited domain and of the weights.

    With less rho a threshold rises by more than what its noise exceeds 1 time in 100, so that after both looks the
    limited domain needs no fewer units than at once, and domain discovery no fewer than the weighted Gaussian.
    """
    looks = _set_parameters(request)
    domain = looks.leaders(Answerer.AT_ONCE)
    leaders = Need.of_leaders(domain.threshold_offset, looks.k_bar, epsilon=float(domain.epsilon))
    if looks.counts_rho is not None:
        others = Need.of_count(looks.histogram.threshold, variance=looks.histogram.variance)
    else:
        others = _predict_weights(looks, request)
    least, span = min(each.least for each in (leaders, others) if each.least is not None), others.span
    if span is not None and leaders.units < span[1]:
        span = (span[0], leaders.units, leaders.rank) if span[0] < leaders.units else None
    return replace(min(leaders, others, key=lambda each: each.units), least=least, span=span)


def _find_reach(request: MechanismRequest) -> tuple[float, float]:
    """Return between which numbers the need is: it is that of the leaders unless weights can need less."""
    looks = _set_parameters(request)
    leaders = float(looks.leaders(Answerer.AT_ONCE).threshold_offset)
    weighted, bound = looks.weighted, looks.weighed_groups
    least = Need.of_weight(weighted.least_threshold, bound, request=request, variance=weighted.variance).units
    if looks.counts_rho is not None:
        least = looks.histogram.threshold
    return min(leaders, least), leaders


TWO_LOOKS = Mechanism(
    name="two_looks",
    kind=QueryKind.UNKNOWN,
    theorem=TwoLooks,
    law="two looks",
    plan=lambda request: TwoLooksPlan(_set_parameters(request), request.price, request.own_cap),
    need=_predict,
    reach=_find_reach,
    reads=Reads.GROUPS,
    weighs=True,
    options=frozenset(["delta", "k_bar"]),
    auto=Auto.UNITS,  # to weigh rows and sums takes about three times as long as to count users
    replaces=("limited_domain", "weighted_gaussian", "gaussian_histogram"),
    why="it looks first how much stands out, and then answers as that favours",
)
