"""Simulation of a mechanism on counts that the analyst guesses: the share of the true top k that it finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dpsql.mechanisms import Noise, unit_weight
from dpsql.plan.mechanisms.base import Groups
from dpsql.plan.mechanisms.record import Reads, assume_groups_per_unit
from dpsql.plan.mechanisms.records import Candidate
from dpsql.plan.plan import Plan
from dpsql.sql.ir.statements import LiteralDomain

TRIALS = 20
_LEAST_TRIALS, _DRAWS = 4, 50_000  # of noise: fewer trials where there are many groups, for EXPLAIN is free


def simulate_recall(plan: Plan, *, noise: Noise) -> Plan:
    """Return the plan with the recall of every mechanism that was considered, if its query guesses at the counts."""
    guess, k = plan.query.assumed, plan.query.clause.k
    if guess is None or k is None or plan.query.measures[0].bounds is not None:  # the guess is of units
        return plan
    domain = plan.query.domain
    counts = guess.counts
    if isinstance(domain, LiteralDomain):  # those of whom nothing is said are candidates too
        candidates = len(domain.values)
        counts = (*counts[:candidates], *[0] * (candidates - len(counts)))
    most = [each.mechanism.most_simulated for each in plan.considered]
    found = (
        each
        if largest is not None and k * len(counts) > largest
        else replace(each, recall=expected_recall(each, counts, k=k, noise=noise))
        for each, largest in zip(plan.considered, most, strict=True)
    )
    return replace(plan, considered=tuple(found))


def expected_recall(candidate: Candidate, guess: Sequence[int], *, k: int, noise: Noise) -> float:
    """Return the share of the k highest counts of the guess that are found, on the average of some trials.

    The trials are fewer, four at least, where there are many groups to draw noise for.
    The guess falls; what ties with the k-th belongs to the top k. Its counts are of the groups that units keep, and of
    units in as many groups as the planner takes for typical. With partitions it is the guess for one of them.
    """
    wanted = min(k, len(guess))
    if not wanted:
        return 1.0
    plan = candidate.mechanism.plan(candidate.request)  # of one partition
    groups = _read(candidate, np.array(guess, np.int64), others=len(plan.price.others))
    trials = max(_LEAST_TRIALS, min(TRIALS, _DRAWS // len(guess)))
    shares = [sum(guess[row] >= guess[wanted - 1] for row in plan.draw(groups, noise).rows) for _ in range(trials)]
    return sum(shares) / (trials * wanted)


def _read(candidate: Candidate, counts: np.ndarray[tuple[int], np.dtype[np.int64]], *, others: int) -> Groups:
    """Return what the engine would have read of the guessed groups; of measures after the first, nothing but 0."""
    mechanism, request, weights = candidate.mechanism, candidate.request, np.empty(0, np.int64)
    if mechanism.reads is Reads.LEADERS:
        counts = counts[: request.k_bar + 1]
    if mechanism.weighs and request.groups is not None:
        weights = counts * unit_weight(assume_groups_per_unit(request.groups))
    return Groups(counts, weights, others=tuple(np.zeros_like(counts) for _ in range(others)))
