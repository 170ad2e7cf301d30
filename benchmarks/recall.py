"""Recall of every mechanism, data set, k and total, for one query that spends the whole total.

    python -m benchmarks run recall [--data DIR] [--trials 100] [--epsilon 1 0.3 0.1] [--k 5 10 20 50 100]
                                    [--only NAME ...] [--gaps MECHANISM]

For each data set and total a table of mean recall, one of its deviation from trial to trial, and one of the mean number
of labels that came back; then, for each mechanism, in which share of the cells it is within 0.03 of the best of all,
what it loses to the best on average, and where it is furthest behind; then every cell where one mechanism, AUTO unless
`--gaps` names another, is further behind than that. AUTO is what dpsql's planner chooses from public numbers; "AUTO of
0.10" is the rule that it replaces, without and with a population. AUTO under a bound that a policy sets is compared
with what keeps to the same bound. The share that such a choice could reach at best is that of the rule that takes one
mechanism for each k and epsilon, and knows all these cells. Half of delta = 1e-6 pays for the conversion to rho, half
is the query's (`dpsql.terms.compute_budget`). Over the data sets whose labels are a public list anyway the
mechanisms of a known domain stand in the last rows; they do not compete.

A table has the mean loss of both rules to the best of limited domain, weighted Gaussian and domain discovery, and the
worst cell, over the cells where that has 0.1. The last one has the errors of the gate of the relay, for shares of what
is left and heights in its own deviations: how often it opens where there is nothing, what such an answer costs on
average, and how often it stays shut before a weight of 1, 1.5 and 2 times the threshold of the second leg.

The best of all is the best in the same trials, and of so many some are always lucky: with few trials every choice looks
further behind than it is. With 100 the standard error of a mean is 0.01 where the recall of a trial deviates by 0.1,
and in few cells it is 0.02.
"""

from __future__ import annotations

import math
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist

import accuracy
from accuracy import (
    KNOWN_DOMAIN,
    MECHANISMS,
    PUBLIC_DOMAINS,
    Cell,
    Question,
    Sample,
    measured,
    rivals,
    terms,
)
from data_sets import Log, logs
from program.main import alone
from program.row import Row, Value

from dpsql.mechanisms import WEIGHT_STEPS, Relay, Selection, WeightedGaussian
from dpsql.quantities import Delta, Epsilon, Rho

DELTA = "1e-6"
QUICK = {"trials": 2}
WITHIN = 0.03
HOPELESS = 0.1  # where the best is below it, all are alike


@dataclass(frozen=True, slots=True)
class Place:
    """Where a cell stands: data, k and the epsilon of the total."""

    data: str
    k: int
    epsilon: str


Table = dict[Place, dict[str, Cell]]


def cells(log: Log, ks: Iterable[int], *, epsilon: str, trials: int) -> Table:
    """Return the cells of one data set and total; a k that all labels would fill has none."""
    budget, counts = terms(epsilon, DELTA), log.counts
    mechanisms = {**MECHANISMS, **(KNOWN_DOMAIN if log.name in PUBLIC_DOMAINS else {})}
    samples = [Sample(counts, log) for _ in range(trials)]
    return {
        Place(log.name, k, epsilon): {
            name: measured([Question(sample, k, budget.rho, budget.delta) for sample in samples], mechanism)
            for name, mechanism in mechanisms.items()
        }
        for k in ks
        if k < log.size
    }


def told(log: Log, epsilon: str, table: Table) -> Iterator[Row]:
    """Yield the cells of one data set and total."""
    size = f"{log.population:,} units, {log.size:,} labels, {len(log.units):,} pairs"
    names = dict.fromkeys(name for column in table.values() for name in column)
    for what in ("recall", "deviation", "returned"):
        title = f"{log.name}, epsilon {epsilon}, delta {DELTA}: {what}"
        for name in names:
            values = {f"k = {place.k}": getattr(column[name], what) for place, column in table.items()}
            yield Row(title, name, values, note=f"{size}.")


def ranks(table: Mapping[Place, Mapping[str, Cell]]) -> Iterator[Row]:
    """Yield how often each mechanism is as good as the best, its mean loss, and where it is furthest behind."""
    best = {place: max(column[name].recall for name in MECHANISMS) for place, column in table.items()}
    hoped = [place for place in table if best[place] >= HOPELESS]
    title = (
        f"within {WITHIN} recall of the best, of {len(table)} cells, and of {len(hoped)} where the best has {HOPELESS}"
    )
    for name in MECHANISMS:
        losses = {place: _loss(column, name) for place, column in table.items()}
        worst = max(losses, key=lambda place: losses[place])
        at = f"-{losses[worst]:.2f} ({worst.data}, k = {worst.k}, epsilon {worst.epsilon})"
        shares = {"of all": _share(losses, list(table)), "of some": _share(losses, hoped)}
        yield Row(title, name, {**shares, "mean loss": sum(losses.values()) / len(losses), "worst": at})
    yield Row(title, "by k and epsilon, in hindsight", {"of all": hindsight(table)})


def rules(table: Mapping[Place, Mapping[str, Cell]]) -> Iterator[Row]:
    """Yield what each rule of AUTO, and each mechanism, loses to the best of three where that has HOPELESS or more."""
    three = ("limited_domain", "weighted_gaussian most=100", "domain_discovery most=100")
    best = {place: max(column[name].recall for name in three) for place, column in table.items()}
    hoped = [place for place in table if best[place] >= HOPELESS]
    if not hoped:
        return
    title = f"loss of recall to the best of three mechanisms, in {len(hoped)} cells where that has {HOPELESS}"
    for name in ("AUTO", "AUTO of 0.10", "AUTO of 0.10 with a population", "relay", *three):
        losses = {place: max(0.0, best[place] - table[place][name].recall) for place in hoped}
        worst = max(losses, key=lambda place: losses[place])
        at = f"-{losses[worst]:.2f} ({worst.data}, k = {worst.k}, epsilon {worst.epsilon})"
        yield Row(title, name, {"mean loss": sum(losses.values()) / len(losses), "worst": at})


def gate_errors(k: int = 10) -> Iterator[Row]:
    """Yield both errors of a gate after a first leg that returned nothing, computed from its normal law.

    `charged` is what an answer of nothing costs on average, in items.
    """
    normal, left = NormalDist(), k - 1
    leg = Relay(Epsilon("0.05"), Delta("1e-6"), k, 20 * k, 100)
    nothing = Selection((), stopped_at_bottom=True)
    own = leg.gate(nothing)
    for share in (0.05, 0.1, 0.2):
        for height in (1.5, 2.0, 2.5):
            rho = float(leg.second_leg(nothing).rho.value) / (1 - float(leg.gate_items(nothing)) / left)
            second = WeightedGaussian(Rho(Fraction(rho * (1 - share))), Delta("5e-7"), k, 100)
            deviation = WEIGHT_STEPS / math.sqrt(2 * rho * share)
            opens = normal.cdf(-height)
            shut = {times: normal.cdf(height - times * second.threshold / deviation) for times in (1, 1.5, 2)}
            is_own = math.isclose(deviation, math.sqrt(own.variance)) and math.isclose(
                own.height, height * deviation, rel_tol=1e-6
            )
            values: dict[str, Value] = {
                "opens on nothing": opens,
                "charged": 1 + left * (share + opens * (1 - share)),
                **{f"shut at {times:g}": value for times, value in shut.items()},
            }
            label = f"share {share:g}, height {height:g} sigma{', as built' if is_own else ''}"
            yield Row(f"errors of the gate, k = {k}", label, values)


def hindsight(table: Mapping[Place, Mapping[str, Cell]]) -> float:
    """Return in which share of the cells the best rule that looks at k and epsilon alone is within of the best."""
    within = 0
    for asked in {(place.k, place.epsilon) for place in table}:
        columns = [column for place, column in table.items() if (place.k, place.epsilon) == asked]
        within += max(sum(_loss(column, name) <= WITHIN for column in columns) for name in rivals("AUTO"))
    return within / len(table)


def gaps(table: Mapping[Place, Mapping[str, Cell]], name: str) -> Iterator[Row]:
    """Yield every cell in which a mechanism is more than WITHIN behind the best."""
    for place, column in table.items():
        if _loss(column, name) > WITHIN:
            best = _best(column, name)
            found: dict[str, Value] = {name: column[name].recall, "of the best": column[best].recall, "best": best}
            title = f"where {name} is more than {WITHIN} behind"
            yield Row(title, f"{place.data}, k = {place.k}, epsilon {place.epsilon}", found)


def _best(column: Mapping[str, Cell], name: str) -> str:
    return max(rivals(name), key=lambda each: column[each].recall)


def _loss(column: Mapping[str, Cell], name: str) -> float:
    return max(0.0, column[_best(column, name)].recall - column[name].recall)


def _share(losses: Mapping[Place, float], among: Sequence[Place]) -> float:
    return sum(losses[place] <= WITHIN for place in among) / max(1, len(among))


def options(parser: ArgumentParser) -> None:
    """Add totals, k, data sets, and whose gaps are listed."""
    accuracy.options(parser, trials=100)
    parser.add_argument("--epsilon", nargs="+", default=["1", "0.3", "0.1"])
    parser.add_argument("--k", type=int, nargs="+", default=[5, 10, 20, 50, 100])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="data sets to take")
    parser.add_argument("--gaps", metavar="MECHANISM", default="AUTO", choices=MECHANISMS, help="whose gaps to list")


def run(given: Namespace) -> Iterator[Row]:
    """Measure each data set and total, and compare over all of them."""
    table: Table = {}
    for log in logs(given.data, quick=given.quick):
        if given.only and log.name not in given.only:
            continue
        for epsilon in given.epsilon:
            part = cells(log, given.k, epsilon=epsilon, trials=given.trials)
            yield from told(log, epsilon, part)
            table |= part
    if table:
        yield from ranks(table)
        yield from rules(table)
        yield from gaps(table, given.gaps)
    yield from gate_errors()


if __name__ == "__main__":
    alone(__file__)
