"""Recall of every mechanism, data set, k and budget, for one query that spends all of it.

    python -m benchmarks run recall [--data DIR] [--trials 100] [--epsilon 1 0.3 0.1 1/5 1/20 items]
                                    [--k 5 10 20 50 100 200] [--only NAME ...] [--gaps MECHANISM] [--rules]

A budget is a total that the query spends, one of 5 or of 20 equal queries of a total of 1, or what a policy's default
gives: k of 100 items of a total of 1, and a 20th of delta. `--rules` measures AUTO, that of 0.11, and the three
mechanisms that they are compared with, alone.

For each data set and budget a table of mean recall, one of its deviation from trial to trial, and one of the mean
number of labels that came back; then, for each mechanism, in which share of the cells it is within 0.03 of the best of
all, what it loses to the best on average, and where it is furthest behind; then every cell where one mechanism, AUTO
unless `--gaps` names another, is further behind than that. AUTO is what dpsql's planner chooses from public numbers;
"AUTO of 0.11" and "AUTO of 0.10" are the rules of earlier versions, the latter without and with a population. AUTO
under a bound that a policy sets is compared with what keeps to the same bound. The share that such a choice could reach
at best is that of the rule that takes one mechanism for each k and epsilon, and knows all these cells. Half of delta =
1e-6 pays for the conversion to rho, half is the query's (`dpsql.terms.compute_budget`). Over the data sets whose labels
are a public list anyway the mechanisms of a known domain stand in the last rows; they do not compete.

A table has the mean loss of these rules to the best of limited domain, weighted Gaussian and domain discovery, and the
worst cell, over the cells where that has 0.1. Another has the price: which share of its worst case AUTO is charged on
average, and AUTO of 0.11, in these cells, in those where the best of the three has less than 0.02, and where there is
no group at all. The last one has the errors of the gate: how often it opens on nothing, and how often it stays shut
where half of the k names are at the threshold behind it, where all are, and where one is at twice the threshold.

The best of all is the best in the same trials, and of so many some are always lucky: with few trials every choice looks
further behind than it is. With 100 the standard error of a mean is 0.01 where the recall of a trial deviates by 0.1,
and in few cells it is 0.02.
"""

from __future__ import annotations

import math
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import NormalDist

import accuracy
import numpy as np
from accuracy import (
    KNOWN_DOMAIN,
    MECHANISMS,
    PUBLIC_DOMAINS,
    Cell,
    Mechanism,
    Question,
    Sample,
    measured,
    rivals,
    share_of,
    terms,
)
from data_sets import Log, logs
from program.main import alone
from program.row import Row, Value

from dpsql.mechanisms import WEIGHT_STEPS, WeightedGaussian
from dpsql.mechanisms.gate import LOOK_SHARE, Gate, bound_weight_sum, find_open_probability
from dpsql.quantities import Delta, Rho

DELTA = "1e-6"
QUICK = {"trials": 2, "epsilon": ["1", "1/5", "items"]}
WITHIN = 0.03
HOPELESS = 0.1  # where the best is below it, all are alike
NOTHING = 0.02  # where the best is below it, there is as good as nothing to find
KS = [5, 10, 20, 50, 100, 200]
THREE = ("limited_domain", "weighted_gaussian most=100", "domain_discovery most=100")
RULES = ("AUTO", "AUTO of 0.11")
ITEMS, QUERIES = 100, 20  # of a policy's default


@dataclass(frozen=True, slots=True)
class Place:
    """Where a cell stands: data, k and the epsilon of the total."""

    data: str
    k: int
    epsilon: str


Table = dict[Place, dict[str, Cell]]


def share(budget: str, k: int) -> tuple[Rho, Delta]:
    """Return rho and delta of one query: of a total, of "1/n" of a total of 1, or of k of its 100 "items"."""
    total, _, queries = budget.partition("/")
    if budget != "items":
        whole = terms(total, DELTA)
        return Rho(whole.rho.value / int(queries or 1)), Delta(whole.delta.value / int(queries or 1))
    whole = terms("1", DELTA)
    return Rho(whole.rho.value * k / ITEMS), Delta(whole.delta.value / QUERIES)


def cells(log: Log, ks: Iterable[int], *, epsilon: str, trials: int, mechanisms: Mapping[str, Mechanism]) -> Table:
    """Return the cells of one data set and budget; none for a k that all labels would fill, or of too many items."""
    counts = log.counts
    samples = [Sample(counts, log) for _ in range(trials)]
    return {
        Place(log.name, k, epsilon): {
            name: measured([Question(sample, k, *share(epsilon, k)) for sample in samples], mechanism)
            for name, mechanism in mechanisms.items()
        }
        for k in ks
        if k < log.size and (epsilon != "items" or k <= ITEMS)
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
    best = {place: max(column[name].recall for name in THREE) for place, column in table.items()}
    hoped = [place for place in table if best[place] >= HOPELESS]
    if not hoped:
        return
    title = f"loss of recall to the best of three mechanisms, in {len(hoped)} cells where that has {HOPELESS}"
    for name in ("AUTO", "AUTO of 0.11", "AUTO of 0.10", "AUTO of 0.10 with a population", *THREE):
        if name not in table[hoped[0]]:
            continue
        losses = {place: max(0.0, best[place] - table[place][name].recall) for place in hoped}
        worst = max(losses, key=lambda place: losses[place])
        at = f"-{losses[worst]:.2f} ({worst.data}, k = {worst.k}, epsilon {worst.epsilon})"
        yield Row(title, name, {"mean loss": sum(losses.values()) / len(losses), "worst": at})


def prices(table: Mapping[Place, Mapping[str, Cell]], ks: Iterable[int], *, draws: int) -> Iterator[Row]:
    """Yield which share of the worst case is charged where there is much, next to nothing, and nothing."""
    best = {place: max(column[name].recall for name in THREE) for place, column in table.items()}
    kinds = {
        f"best has {HOPELESS}": [place for place in table if best[place] >= HOPELESS],
        f"best below {NOTHING}": [place for place in table if best[place] < NOTHING],
    }
    budget, nothing = terms("1", DELTA), Sample(np.zeros(0, dtype=np.int64))
    for name in RULES:
        values: dict[str, Value] = {
            f"{kind}: {len(places)} cells": sum(table[place][name].charged for place in places) / len(places)
            for kind, places in kinds.items()
            if places
        }
        for k in ks:
            empty = Question(nothing, k, budget.rho, budget.delta)
            shares = [share_of(MECHANISMS[name](empty)) for _ in range(draws)]
            values[f"nothing, k = {k}"] = sum(shares) / draws
        yield Row("share of the worst case that is charged", name, values, note=f"Of nothing {draws:,} draws each.")


def gate_errors(ks: Iterable[int]) -> Iterator[Row]:
    """Yield the errors of the gate, behind a first look and alone before a mechanism, computed from its normal law."""
    budget, cap = terms("1", DELTA), 100
    places = {"before a mechanism by name": 1, "after the first look": 2}
    for k, (place, looks) in product(ks, places.items()):
        weighted = WeightedGaussian(Rho(budget.rho.value * (1 - looks * LOOK_SHARE)), budget.delta, k, cap)
        gate = Gate(
            Rho(budget.rho.value * LOOK_SHARE),
            k,
            weighted.threshold,
            bound_weight_sum(min(k, cap), steps=WEIGHT_STEPS),
            find_open_probability(k, looks),
        )
        values: dict[str, Value] = {
            "opens on nothing": 1 - _shut(gate),
            "shut, k/2 at the threshold": _shut(gate, k / 2),
            "shut, all k": _shut(gate, k),
            "shut, one at twice": _shut(gate, 1, times=2),
        }
        yield Row("errors of the gate", f"k = {k}, {place}", values)


def _shut(gate: Gate, names: float = 0, *, times: int = 1) -> float:
    """Return how likely a gate stays shut before so many names at so many times its threshold."""
    seen = names * min(max(times * gate.threshold - gate.start, 0), gate.width) / (gate.k * gate.threshold)
    deviation = math.sqrt(gate.look.variance) / gate.look.whole
    return NormalDist().cdf((float(gate.height) - seen) / deviation)


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
    parser.add_argument("--epsilon", nargs="+", default=["1", "0.3", "0.1", "1/5", "1/20", "items"])
    parser.add_argument("--k", type=int, nargs="+", default=KS)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="data sets to take")
    parser.add_argument("--gaps", metavar="MECHANISM", default="AUTO", choices=MECHANISMS, help="whose gaps to list")
    parser.add_argument("--rules", action="store_true", help="measure AUTO and what its rules are compared with alone")


def run(given: Namespace) -> Iterator[Row]:
    """Measure each data set and total, and compare over all of them."""
    table: Table = {}
    for log in logs(given.data, quick=given.quick):
        if given.only and log.name not in given.only:
            continue
        for epsilon in given.epsilon:
            mechanisms = {**MECHANISMS, **(KNOWN_DOMAIN if log.name in PUBLIC_DOMAINS else {})}
            if given.rules:
                mechanisms = {name: MECHANISMS[name] for name in (*RULES, *THREE)}
            part = cells(log, given.k, epsilon=epsilon, trials=given.trials, mechanisms=mechanisms)
            yield from told(log, epsilon, part)
            table |= part
    if table and not given.rules:
        yield from ranks(table)
        yield from gaps(table, given.gaps)
    if table:
        yield from rules(table)
        yield from prices(table, given.k, draws=50 * given.trials)
    yield from gate_errors(given.k)


if __name__ == "__main__":
    alone(__file__)
