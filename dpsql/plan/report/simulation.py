"""Simulation of a mechanism on counts that the analyst guesses: the share of the true top k that it finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dpsql.mechanisms import Noise, unit_weight
from dpsql.plan.auto import assume_groups_per_unit
from dpsql.plan.mechanisms import MechanismPlan
from dpsql.plan.mechanisms.base import Groups
from dpsql.plan.mechanisms.domain_discovery import DomainDiscoveryPlan
from dpsql.plan.mechanisms.joint import JointPlan
from dpsql.plan.mechanisms.laplace_limited_domain import LaplaceLimitedDomainPlan
from dpsql.plan.mechanisms.limited_domain import LimitedDomainPlan
from dpsql.plan.mechanisms.per_partition import AllPartitionsPlan, EachPartitionPlan
from dpsql.plan.mechanisms.relay import RelayPlan
from dpsql.plan.mechanisms.weighted_gaussian import WeightedGaussianPlan
from dpsql.plan.plan import Plan
from dpsql.sql.ir.statements import LiteralDomain

__all__ = ["TRIALS", "expected_recall", "simulate_recall"]

TRIALS = 20
_LEAST_TRIALS, _DRAWS = 4, 50_000  # of noise: fewer trials where there are many groups, for EXPLAIN is free
_MOST_SEQUENCES = 1_000_000  # candidates times k, beyond which the joint mechanism is not tried


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
    found = (
        each
        if isinstance(each.mechanism_plan, JointPlan) and k * len(counts) > _MOST_SEQUENCES
        else replace(each, recall=expected_recall(each.mechanism_plan, counts, k=k, noise=noise))
        for each in plan.considered
    )
    return replace(plan, considered=tuple(found))


def expected_recall(mechanism_plan: MechanismPlan, guess: Sequence[int], *, k: int, noise: Noise) -> float:
    """Return the share of the k highest counts of the guess that are found, on the average of some trials.

    The trials are fewer, four at least, where there are many groups to draw noise for.
    The guess falls; what ties with the k-th belongs to the top k. Its counts are of the groups that units keep, and of
    units in as many groups as the planner takes for typical. With partitions it is the guess for one of them.
    """
    if isinstance(mechanism_plan, EachPartitionPlan):
        mechanism_plan = mechanism_plan.each
    elif isinstance(mechanism_plan, AllPartitionsPlan):
        mechanism_plan = mechanism_plan.every
    wanted = min(k, len(guess))
    if not wanted:
        return 1.0
    groups = _read(mechanism_plan, np.array(guess, np.int64))
    trials = max(_LEAST_TRIALS, min(TRIALS, _DRAWS // len(guess)))
    shares = [
        sum(guess[row] >= guess[wanted - 1] for row in mechanism_plan.draw(groups, noise).rows) for _ in range(trials)
    ]
    return sum(shares) / (trials * wanted)


def _read(mechanism_plan: MechanismPlan, counts: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Groups:
    """Return what the engine would have read of the guessed groups; of measures after the first, nothing but 0."""
    read = _read_counts(mechanism_plan, counts)
    return replace(read, others=tuple(np.zeros_like(read.counts) for _ in mechanism_plan.price.others))


def _read_counts(mechanism_plan: MechanismPlan, counts: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Groups:
    """Return the counts, and the weights if the mechanism uses any."""
    match mechanism_plan:
        case LimitedDomainPlan(selection=leaders):
            return Groups(counts[: leaders.k_bar + 1])
        case LaplaceLimitedDomainPlan(selection=at_once):
            return Groups(counts[: at_once.k_bar + 1])
        case RelayPlan(selection=legs):
            return Groups(counts, counts * unit_weight(assume_groups_per_unit(legs.weighed_groups)))
        case WeightedGaussianPlan(selection=weighted):
            return Groups(counts, counts * unit_weight(assume_groups_per_unit(weighted.max_groups_contributed)))
        case DomainDiscoveryPlan(selection=discovery):
            return Groups(counts, counts * unit_weight(assume_groups_per_unit(discovery.max_groups_contributed)))
    return Groups(counts)
