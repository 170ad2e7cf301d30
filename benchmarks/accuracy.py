"""The common ground of the accuracy benchmarks: data, mechanisms of one loss, and recall.

Not run itself; `recall.py`, `exp1.py`, `exp2.py` and `histograms.py` import it. Every mechanism answers the same
question: the top k for a rho and a delta, all of which it may spend. A mechanism is one entry in MECHANISMS, a function
of a question that returns the labels. AUTO is one more: dpsql's own planner chooses, as it does for a query that names
no mechanism, and what it plans is drawn. With `most=` it is told that a policy bounds the groups of a unit, and is to
be compared with what keeps to the same bound (`rivals`). "AUTO of 0.11" and "AUTO of 0.10" are the rules of earlier
versions; that of 0.10 without and with a population in the policy. AUTO and AUTO of 0.11 say what they were charged.

Recall is the share of k that was returned and belongs to the true top k. A label whose count ties with the k-th
belongs; what is missing is a miss. The truth is the count of distinct units before any bounding.

Noise is the library's own, from the operating system, and so is the choice of which groups of a unit are kept.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
from data_sets import Integers, Log

from dpsql.accounting import ZCDP, ApproximateDP, BudgetVector
from dpsql.mechanisms import (
    WEIGHT_STEPS,
    DomainDiscovery,
    FixedStableTopK,
    FullHistogram,
    GaussianHistogram,
    Histogram,
    JointExponential,
    LaplaceLimitedDomain,
    LimitedDomain,
    OperatingSystemNoise,
    Peeling,
    StableTopK,
    TopStable,
    WeightedGaussian,
    unit_weight,
)
from dpsql.mechanisms.sampling.discrete_noise import discrete_gaussian
from dpsql.plan import Plan, build_plan
from dpsql.plan.mechanisms.base import Groups, ReadAgain
from dpsql.policy import Limits, PrivateTable
from dpsql.quantities import Delta, Epsilon, Rho
from dpsql.sql.analysis.analyze import analyze
from dpsql.sql.ir.catalog import Catalog, Table
from dpsql.sql.ir.statements import PrivateQuery
from dpsql.sql.ir.tree import parse_type
from dpsql.terms import Terms, compute_budget

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
NOISE = OperatingSystemNoise()
K_BAR_PER_K = 20
BOUNDS = (1, 5, 20)  # that a policy may set
_GRID = 10**9
_NAMES = "SELECT label FROM events GROUP BY label TOP {k} PRIVATE"
_CATALOG = Catalog(
    (
        Table(
            "events",
            ("events",),
            (("unit", parse_type("BIGINT")), ("label", parse_type("VARCHAR"))),
            "unit",
        ),
    )
)
PUBLIC_DOMAINS = ("msweb", "chestxray14_findings")  # areas of a site and findings of a protocol: somebody's short list


@dataclass(frozen=True, slots=True)
class Sample:
    """One trial's view of a log: what its units keep under each bound, drawn once for all mechanisms."""

    exact: Integers
    log: Log | None = None
    _seen: dict[tuple[str, int], Integers] = field(default_factory=dict)

    def bounded(self, most: int) -> Integers:
        """Return the counts of all labels where a unit keeps `most` of them."""
        if self.log is None:
            return self.exact  # a histogram without units: each is taken to be in one group
        if ("counts", most) not in self._seen:
            _, labels = self._kept(self.log, most)
            self._seen["counts", most] = np.bincount(labels, minlength=self.log.size)
        return self._seen["counts", most]

    def weights(self, most: int) -> Integers:
        """Return the weights of all labels where a unit spreads one over `most` of them at most."""
        if self.log is None:
            return self.exact * WEIGHT_STEPS
        if ("weights", most) not in self._seen:
            units, labels = self._kept(self.log, most)
            table = np.array([0, *(unit_weight(groups) for groups in range(1, most + 1))], dtype=np.int64)
            own = table[np.bincount(units)][units]
            sums = np.zeros(self.log.size, dtype=np.int64)
            np.add.at(sums, labels, own)
            self._seen["weights", most] = sums
        return self._seen["weights", most]

    def _kept(self, log: Log, most: int) -> tuple[Integers, Integers]:
        if ("units", most) not in self._seen:
            self._seen["units", most], self._seen["labels", most] = log.kept(most)
        return self._seen["units", most], self._seen["labels", most]


@dataclass(frozen=True, slots=True)
class Question:
    """The top k of a sample for rho and delta in all."""

    sample: Sample
    k: int
    rho: Rho
    delta: Delta

    def epsilon(self, items: int, share: Fraction = Fraction(1)) -> Epsilon:
        """Return the epsilon of which a share of rho buys so many items, rounded down."""
        square = 8 * self.rho.value * share / items
        return Epsilon(Fraction(math.isqrt(math.floor(square * _GRID**2)), _GRID))

    @property
    def pure(self) -> Epsilon:
        """Return the epsilon of a pure mechanism of this rho, rounded down."""
        return self.epsilon(4)

    def leaders(self, k_bar: int) -> tuple[Integers, Histogram]:
        """Return the k_bar first labels, and their histogram."""
        counts = self.sample.exact
        order = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
        exact = tuple(int(count) for count in counts[order[: k_bar + 1]])
        return order[:k_bar], Histogram.of_leaders(exact, k_bar)

    def bounded_leaders(self, k_bar: int, most: int) -> tuple[Integers, Histogram]:
        """Return the k_bar first labels where a unit keeps `most` of them, and their histogram."""
        return Question(Sample(self.sample.bounded(most)), self.k, self.rho, self.delta).leaders(k_bar)


@dataclass(frozen=True, slots=True)
class Charged:
    """Labels, and the share of the worst case that they were charged."""

    labels: Integers
    share: float

    def __iter__(self) -> Iterator[int]:
        """Yield the labels."""
        return iter(self.labels.tolist())


Answer = Iterable[int]
Mechanism = Callable[[Question], Answer]


def limited_domain(
    question: Question,
    *,
    k_bar_per_k: int = K_BAR_PER_K,
    items_per_label: int = 1,
    epsilon: Epsilon | None = None,
    most: int | None = None,
) -> Answer:
    """Answer by a limited domain, over all of a unit's groups or `most`; two items a label pay for its count too."""
    k_bar = k_bar_per_k * question.k
    labels, histogram = question.leaders(k_bar) if most is None else question.bounded_leaders(k_bar, most)
    own = epsilon or question.epsilon(items_per_label * question.k)
    mechanism = LimitedDomain(own, question.delta, question.k, k_bar, most)
    return labels[list(mechanism.select(histogram, NOISE).positions)]


def laplace_limited_domain(question: Question, *, most: int) -> Answer:
    """Answer by a limited domain with Laplace noise, at most `most` groups a unit."""
    k_bar = K_BAR_PER_K * question.k
    labels, histogram = question.bounded_leaders(k_bar, most)
    mechanism = LaplaceLimitedDomain(question.pure, question.delta, question.k, k_bar, most)
    return labels[list(mechanism.select(histogram, NOISE).positions)]


def _full(counts: Integers) -> tuple[Integers, FullHistogram]:
    present = np.flatnonzero(counts)
    return present, FullHistogram(counts[present])


def gaussian_histogram(question: Question, *, most: int) -> Answer:
    """Answer by a Gaussian histogram, at most `most` groups a unit."""
    labels, histogram = _full(question.sample.bounded(most))
    mechanism = GaussianHistogram(question.rho, question.delta, question.k, most)
    return labels[list(mechanism.release(histogram, NOISE).positions)]


def weighted_gaussian(question: Question, *, most: int, share: Fraction = Fraction(1)) -> Answer:
    """Answer by a weighted Gaussian for a share of rho, at most `most` groups a unit."""
    labels, histogram = _full(question.sample.weights(most))
    mechanism = WeightedGaussian(Rho(question.rho.value * share), question.delta, question.k, most)
    return labels[list(mechanism.release(histogram, NOISE).positions)]


def domain_discovery(question: Question, *, most: int) -> Answer:
    """Answer by domain discovery, the counts over all of a unit's groups.

    Half of rho is for the discovery, the other half for a choice among more than k labels; where there is none to make,
    a query would be charged the one half alone.
    """
    labels, weights = _full(question.sample.weights(most))
    half = Fraction(1, 2)
    peeled = question.epsilon(question.k, half)
    mechanism = DomainDiscovery(Rho(question.rho.value * half), question.delta, most, peeled, question.k)
    counts = FullHistogram(question.sample.exact[labels])
    return labels[list(mechanism.select(weights, counts, noise=NOISE).positions)]


def stable_top_k(question: Question) -> Answer:
    """Answer by the stable set that the data choose among the first k ranks."""
    labels, histogram = question.leaders(question.k)
    mechanism = StableTopK(question.epsilon(2), question.delta, question.k)
    return labels[sorted(mechanism.select(histogram, NOISE).positions or ())]


def fixed_stable_top_k(question: Question, *, penalty: int = 1) -> Answer:
    """Answer by a stable set of about k, filled up or cut to k."""
    k_bar = K_BAR_PER_K * question.k
    labels, histogram = question.leaders(k_bar)
    mechanism = FixedStableTopK(question.rho, question.delta, question.k, k_bar, Fraction(penalty))
    selection = mechanism.select(histogram, NOISE)
    return labels[[*sorted(selection.stable), *selection.filled]]


def top_stable(question: Question, *, k_bar_per_k: int = 1, alone: ApproximateDP | None = None) -> Answer:
    """Answer by the first stable rank, from k_bar down; k of them at random where that is beyond k.

    `alone` is spent by the mechanism's own guarantee, as a single query may, in place of rho and delta.
    """
    k_bar = k_bar_per_k * question.k
    labels, histogram = question.leaders(k_bar)
    epsilon, delta = (alone.epsilon, alone.delta) if alone else (question.pure, question.delta)
    selection = TopStable(epsilon, delta, question.k, k_bar).select(histogram, NOISE)
    return labels[[*sorted(selection.members), *selection.ranked]]


def candidates(question: Question) -> tuple[Integers, Histogram]:
    """Return all labels of a public list by descending count, and their histogram."""
    order = np.argsort(-question.sample.exact, kind="stable")
    return order, Histogram(tuple(int(count) for count in question.sample.exact[order]), following=0)


def peeling(question: Question) -> Answer:
    """Answer by peeling over a public list of all labels."""
    labels, histogram = candidates(question)
    return labels[list(Peeling(question.epsilon(question.k), question.k).select(histogram, NOISE).positions)]


def joint(question: Question) -> Answer:
    """Answer by the joint exponential mechanism over a public list of all labels."""
    labels, histogram = candidates(question)
    return labels[list(JointExponential(question.epsilon(1), question.k).select(histogram, NOISE).positions)]


@cache
def planned(k: int, rho: Rho, *, delta: Delta, most: int | None) -> Plan:
    """Return the plan of dpsql for a query of names that may spend rho and delta and names no mechanism."""
    query = analyze(_NAMES.format(k=k), _CATALOG, accepts_pattern=bool)
    if not isinstance(query, PrivateQuery):
        raise TypeError(query)
    own = Question(Sample(np.zeros(0, dtype=np.int64)), k, rho, delta).epsilon(k)
    total = ApproximateDP(Epsilon(1), delta)  # which decides nothing: the defaults of a query do
    tables = {"events": PrivateTable("unit", max_groups_contributed=most)}
    budget = BudgetVector.of(ZCDP(rho, delta))
    return build_plan(query, Terms(total, budget, own, delta, Limits(), tables), salts=(0, 0))


def auto(question: Question, *, most: int | None = None) -> Charged:
    """Answer by what dpsql chooses where a query names no mechanism and the policy has this bound, or none."""
    plan = planned(question.k, question.rho, delta=question.delta, most=most)
    counts = question.sample.exact if most is None else question.sample.bounded(most)
    cap = plan.max_groups_contributed
    weights = counts if cap is None else question.sample.weights(cap)
    labels = np.flatnonzero(np.minimum(counts, weights))  # in the order of labels, as a second read has them
    groups = Groups(counts[labels], weights[labels])
    if not plan.k_bar:
        drawn = plan.mechanism_plan.draw(groups, NOISE)
    else:
        first = np.argsort(-counts, kind="stable")[: min(plan.k_bar + 1, np.count_nonzero(counts))]
        begun = plan.mechanism_plan.begin(Groups(counts[first]), NOISE)
        drawn = begun.resume(groups, NOISE) if isinstance(begun, ReadAgain) else begun
        labels = labels if drawn.of_second_read else first
    return Charged(labels[list(drawn.rows)], float(drawn.loss.rho.value / plan.worst_case.rho.value))


def auto_of_0_11(question: Question) -> Charged:
    """Answer by the rule of 0.11, where no policy bounds the groups of a unit.

    It took weights where their need is below that of a limited domain with half of delta, units being in 40 groups.
    Otherwise the limited domain answered, and a tenth of the items that it left bought a look at the largest weight
    left: from two deviations on, the rest bought weights with the other half of delta.
    """
    k, rho, cap = question.k, question.rho.value, 100
    half = Delta(question.delta.value / 2)
    first = LimitedDomain(question.epsilon(k), half, k, K_BAR_PER_K * k)
    weighted = WeightedGaussian(question.rho, question.delta, k, cap)
    if weighted.threshold / WEIGHT_STEPS * math.sqrt(40) < float(first.threshold_offset):
        return Charged(np.array(list(weighted_gaussian(question, most=cap)), dtype=np.int64), 1.0)
    labels, histogram = question.leaders(first.k_bar)
    selected = first.select(histogram, NOISE)
    found = labels[list(selected.positions)]
    left = k - selected.steps if selected.stopped_at_bottom else 0
    if not left:
        return Charged(found, selected.steps / k)
    weights = question.sample.weights(cap).copy()
    weights[found] = 0
    variance = Fraction(WEIGHT_STEPS**2) / (2 * rho * left / (10 * k))
    (noise,) = discrete_gaussian(variance, NOISE, count=1)
    if int(weights.max(initial=0)) + noise < 2 * math.sqrt(variance):
        return Charged(found, (selected.steps + left / 10) / k)
    rest, others = _full(weights)
    behind = WeightedGaussian(Rho(rho * left * 9 / (10 * k)), half, k - len(found), cap)
    added = rest[list(behind.release(others, NOISE).positions)]
    return Charged(np.concatenate([found, added]), (selected.steps + left) / k)


def former_auto(question: Question, *, with_population: bool) -> Answer:
    """Answer by the rule of 0.10, where no policy bounds the groups of a unit.

    It compared the limited domain with weights of units in 40 groups. Given the number of units, to two digits, it
    took units to be in 20, and took the first that ranks by counts and needs no more than population / k.
    """
    k, rho, delta = question.k, question.rho, question.delta
    need = float(LimitedDomain(question.epsilon(k), delta, k, K_BAR_PER_K * k).threshold_offset)
    groups = 20 if with_population else 40
    weighted = WeightedGaussian(rho, delta, k, 100).threshold / WEIGHT_STEPS * math.sqrt(groups)
    if with_population and question.sample.log is not None:
        last = float(f"{question.sample.log.population:.1e}") / k
        half = Rho(rho.value / 2)
        found = WeightedGaussian(half, delta, k, 100).threshold / WEIGHT_STEPS * math.sqrt(groups)
        if need <= last:
            return limited_domain(question)
        if found <= last:
            return domain_discovery(question, most=100)
    return limited_domain(question) if need <= weighted else weighted_gaussian(question, most=100)


def tuned(mechanism: Callable[..., Answer], **parameters: object) -> Mechanism:
    """Return a mechanism with these parameters."""
    return lambda question: mechanism(question, **parameters)


MECHANISMS: Mapping[str, Mechanism] = {
    "AUTO": auto,
    "AUTO of 0.11": auto_of_0_11,
    "AUTO of 0.10 with a population": lambda question: former_auto(question, with_population=True),
    "AUTO of 0.10": lambda question: former_auto(question, with_population=False),
    **{f"AUTO most={most}": tuned(auto, most=most) for most in BOUNDS},
    "limited_domain": limited_domain,
    "limited_domain k_bar=k": tuned(limited_domain, k_bar_per_k=1),
    "limited_domain with counts": tuned(limited_domain, items_per_label=2),
    **{f"limited_domain most={most}": tuned(limited_domain, most=most) for most in BOUNDS},
    **{f"laplace_limited_domain most={most}": tuned(laplace_limited_domain, most=most) for most in BOUNDS},
    **{f"gaussian_histogram most={most}": tuned(gaussian_histogram, most=most) for most in (*BOUNDS, 100)},
    **{f"weighted_gaussian most={most}": tuned(weighted_gaussian, most=most) for most in (*BOUNDS, 100, 1_000, 10_000)},
    "weighted_gaussian most=100 half": tuned(weighted_gaussian, most=100, share=Fraction(1, 2)),
    "domain_discovery most=100": tuned(domain_discovery, most=100),
    "stable_top_k": stable_top_k,
    "fixed_stable_top_k": fixed_stable_top_k,
    "top_stable": top_stable,
    "top_stable k_bar=5k": tuned(top_stable, k_bar_per_k=5),
}
KNOWN_DOMAIN: Mapping[str, Mechanism] = {"peeling": peeling, "joint": joint}


def rivals(name: str) -> list[str]:
    """Return the fixed choices that a mechanism is compared with: all, or those of the bound that AUTO is told of."""
    fixed = [each for each in MECHANISMS if not each.startswith("AUTO")]
    bound = name.partition("AUTO most=")[2]
    return [each for each in fixed if each.endswith(f" most={bound}")] if bound else fixed


def recall(question: Question, returned: Sequence[int]) -> float:
    """Return the share of k that was returned and has at least the k-th count."""
    exact = question.sample.exact
    kth = np.partition(exact, -question.k)[-question.k]
    return int(np.count_nonzero(exact[list(returned)] >= kth)) / question.k


def terms(epsilon: str, delta: Fraction | str) -> ZCDP:
    """Return rho and delta of one query that spends all of (epsilon, delta), by the project's own conversion."""
    return compute_budget(ApproximateDP(Epsilon(epsilon), Delta(delta)))


def missed(question: Question, returned: Sequence[int]) -> float:
    """Return the share of the true top k's counts that what was returned does not reach."""
    best = int(np.sort(question.sample.exact)[-question.k :].sum())
    return 1 - int(question.sample.exact[list(returned)].sum()) / best


@dataclass(frozen=True, slots=True)
class Cell:
    """Recall, share of the counts missed, number of labels and share charged of one mechanism, trial by trial."""

    recalls: tuple[float, ...]
    misses: tuple[float, ...]
    sizes: tuple[int, ...]
    shares: tuple[float, ...] = ()

    @property
    def recall(self) -> float:
        """Return the mean recall."""
        return sum(self.recalls) / len(self.recalls)

    @property
    def missed(self) -> float:
        """Return the mean share of the counts that was missed."""
        return sum(self.misses) / len(self.misses)

    @property
    def deviation(self) -> float:
        """Return the standard deviation of recall from trial to trial."""
        return float(np.std(self.recalls))

    @property
    def returned(self) -> float:
        """Return the mean number of labels."""
        return sum(self.sizes) / len(self.sizes)

    @property
    def charged(self) -> float:
        """Return the mean share of the worst case that was charged; 1 of a mechanism that does not say it."""
        return sum(self.shares) / len(self.shares)


def share_of(answer: Answer) -> float:
    """Return which share of the worst case an answer was charged; all of it if it does not say."""
    return answer.share if isinstance(answer, Charged) else 1.0


def measured(questions: Iterable[Question], mechanism: Mechanism) -> Cell:
    """Return what a mechanism makes of a question in each of some samples."""
    drawn = [(question, mechanism(question)) for question in questions]
    answers = [(question, [int(label) for label in answer]) for question, answer in drawn]
    return Cell(
        recalls=tuple(recall(*each) for each in answers),
        misses=tuple(missed(*each) for each in answers),
        sizes=tuple(len(labels) for _, labels in answers),
        shares=tuple(share_of(answer) for _, answer in drawn),
    )


def options(parser: argparse.ArgumentParser, *, trials: int) -> None:
    """Add what all these suites take."""
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR", help="folder of the data sets")
    parser.add_argument("--trials", type=int, default=trials)
